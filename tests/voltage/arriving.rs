//! A recording that is read as if it arrived: of unknown length, with the missing samples listed in the blocks.

use sidereal::Result;
use sidereal::io::voltages::{Flag, VoltageHeader, VoltageSource};
use sidereal::voltage::VoltageBlock;

/// Live source of another one's samples.
pub(crate) struct Arriving {
    source: Box<dyn VoltageSource>,
    header: VoltageHeader,
    at: u64,
}

impl Arriving {
    pub(crate) fn boxed(source: Box<dyn VoltageSource>) -> Box<dyn VoltageSource> {
        let header = VoltageHeader { times: None, ..source.header().clone() };
        Box::new(Self { source, header, at: 0 })
    }
}

impl VoltageSource for Arriving {
    fn header(&self) -> &VoltageHeader {
        &self.header
    }

    fn read(&mut self, block: &mut VoltageBlock) -> Result<usize> {
        let times = self.source.read(block)?;
        block.flags_mut().clear();
        for Flag { streams, start, times: length } in self.source.flags() {
            let from = (*start).max(self.at);
            let to = (start + length).min(self.at + times as u64);
            // A stream's samples are lost piece by piece.
            for piece in (from..to).step_by(1000) {
                let flag = Flag {
                    streams: streams.clone(),
                    start: piece - self.at,
                    times: (to - piece).min(1000),
                };
                block.flags_mut().push(flag);
            }
        }
        self.at += times as u64;
        Ok(times)
    }

    fn skip(&mut self, times: u64) -> Result<u64> {
        let skipped = self.source.skip(times)?;
        self.at += skipped;
        Ok(skipped)
    }

    fn is_live(&self) -> bool {
        true
    }
}
