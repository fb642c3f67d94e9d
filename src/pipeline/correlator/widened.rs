//! Unpacks real samples of less than a byte, so that a window can begin at any of them.
//!
//! Invariant: values are the same, and so are their times and flags.

use crate::error::Result;
use crate::io::voltages::{Flag, VoltageHeader, VoltageSource};
use crate::voltage::{VoltageBlock, VoltageEncoding, voltage};

/// Returns the encoding with whole bytes per sample that holds the same values.
pub(super) fn widest(encoding: VoltageEncoding) -> VoltageEncoding {
    match encoding {
        VoltageEncoding::Real2 => VoltageEncoding::RealF32,
        VoltageEncoding::Real4 => VoltageEncoding::Real8,
        whole => whole,
    }
}

/// Wraps a source so that each sample fills whole bytes; returns other sources unchanged.
pub(super) fn widened(source: Box<dyn VoltageSource>) -> Box<dyn VoltageSource> {
    let encoding = widest(source.header().encoding);
    if encoding == source.header().encoding {
        return source;
    }
    let header = VoltageHeader { encoding, ..source.header().clone() };
    let packed = source.header().block(0);
    Box::new(Widened { source, header, packed })
}

struct Widened {
    source: Box<dyn VoltageSource>,
    header: VoltageHeader,
    packed: VoltageBlock<'static>,
}

impl VoltageSource for Widened {
    fn header(&self) -> &VoltageHeader {
        &self.header
    }

    fn read(&mut self, block: &mut VoltageBlock) -> Result<usize> {
        let step = self.packed.encoding().samples_per_byte();
        let capacity = block.capacity() / step * step;
        if self.packed.capacity() != capacity {
            self.packed = self.source.header().block(capacity);
        }
        let times = self.source.read(&mut self.packed)?;
        let packed = self.packed.voltages();
        for (stream, row) in block.rows_mut().enumerate() {
            let from = packed.row(stream);
            let value = |time: usize| voltage(from, packed.encoding(), time).re;
            match packed.encoding() {
                VoltageEncoding::Real4 => {
                    row.iter_mut().enumerate().take(times).for_each(|(time, byte)| {
                        *byte = value(time) as i8 as u8;
                    });
                }
                _ => row.chunks_exact_mut(4).enumerate().take(times).for_each(|(time, bytes)| {
                    bytes.copy_from_slice(&(value(time) as f32).to_le_bytes());
                }),
            }
        }
        block.set_times(times)?;
        Ok(times)
    }

    fn skip(&mut self, times: u64) -> Result<u64> {
        let step = self.packed.encoding().samples_per_byte() as u64;
        self.source.skip(times / step * step)
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
