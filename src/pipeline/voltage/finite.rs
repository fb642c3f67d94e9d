//! Voltages of floats without numbers that are not finite.
//!
//! Invariant: what is given is finite; other encodings pass as they are.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::Result;
use crate::io::voltages::{Flag, VoltageHeader, VoltageSource};
use crate::voltage::{VoltageBlock, VoltageEncoding};

/// The source, with zeros for samples of floats that are not finite, and their count so far.
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
    /// Samples that became zeros.
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

/// Puts zeros in the place of samples of so many bytes that are not finite, and says which.
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

/// Whether a little-endian float is; an exponent of ones is not.
fn is_finite(bytes: &[u8]) -> bool {
    bytes[3] & 0x7f != 0x7f || bytes[2] & 0x80 == 0
}
