//! Float voltages with samples that are not finite replaced by zeros.
//!
//! Invariant: what is given is finite; other encodings pass as they are.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::Result;
use crate::io::voltages::{Flag, VoltageHeader, VoltageSource};
use crate::voltage::{VoltageBlock, VoltageEncoding};

/// Wraps a source of floats so that samples that are not finite become zeros; also returns their running count.
pub(in crate::pipeline) fn finite(
    source: Box<dyn VoltageSource>,
) -> (Box<dyn VoltageSource>, Arc<AtomicU64>) {
    let count = Arc::new(AtomicU64::new(0));
    match source.header().encoding {
        VoltageEncoding::ComplexF32 | VoltageEncoding::RealF32 => {
            (Box::new(Finite { source, count: count.clone() }), count)
        }
        _ => (source, count),
    }
}

struct Finite {
    source: Box<dyn VoltageSource>,
    /// Number of samples replaced by zeros.
    count: Arc<AtomicU64>,
}

impl VoltageSource for Finite {
    fn header(&self) -> &VoltageHeader {
        self.source.header()
    }

    fn read(&mut self, block: &mut VoltageBlock) -> Result<usize> {
        let times = self.source.read(block)?;
        let encoding = block.encoding();
        let (length, sample) = (encoding.bytes(times), encoding.bytes(1));
        let mut bad = 0;
        for row in block.rows_mut() {
            blank(&mut row[..length], sample, |_| bad += 1);
        }
        self.count.fetch_add(bad, Ordering::Relaxed);
        Ok(times)
    }

    fn skip(&mut self, times: u64) -> Result<u64> {
        self.source.skip(times)
    }

    fn flags(&self) -> &[Flag] {
        self.source.flags()
    }

    fn cut(&self) -> Option<&str> {
        self.source.cut()
    }

    fn warnings(&self) -> &[String] {
        self.source.warnings()
    }
}

/// Replaces samples of `sample` bytes that are not finite by zeros and reports their indices to `found`.
pub(in crate::pipeline) fn blank(row: &mut [u8], sample: usize, mut found: impl FnMut(usize)) {
    if row.chunks_exact(4).all(is_finite) {
        return;
    }
    for (time, z) in row.chunks_exact_mut(sample).enumerate() {
        if !z.chunks_exact(4).all(is_finite) {
            z.fill(0);
            found(time);
        }
    }
}

/// Whether a little-endian float is finite: its exponent is not all ones.
fn is_finite(bytes: &[u8]) -> bool {
    bytes[3] & 0x7f != 0x7f || bytes[2] & 0x80 == 0
}
