//! Samples to write, and their writer.

use std::path::Path;

use sidereal::Result;
use sidereal::io::voltages::VoltageHeader;
use sidereal::voltage::{VoltageBlock, Voltages};

/// Every byte value among the samples: -128 and -8 too.
pub(crate) fn noise(header: &VoltageHeader, times: usize) -> VoltageBlock<'static> {
    let mut block = header.block(times);
    for (stream, row) in block.rows_mut().enumerate() {
        let bytes = row.iter_mut().enumerate();
        bytes.for_each(|(at, byte)| *byte = (at * 37 + stream * 101 + at / 256) as u8);
    }
    block.set_times(times).unwrap();
    block
}

/// Passes samples to a writer in three pieces of different lengths; no file may appear before the end.
pub(crate) fn in_pieces(
    path: &Path,
    block: &VoltageBlock,
    mut write: impl FnMut(Voltages<'_>) -> Result<()>,
) {
    let voltages = block.voltages();
    let times = voltages.times();
    let cuts = [0, times / 3, times / 3 + 1, times];
    for cut in cuts.windows(2) {
        write(voltages.slice(cut[0], cut[1] - cut[0]).unwrap()).unwrap();
        assert!(!path.exists());
    }
}

/// Contents of each stream.
pub(crate) fn rows(block: &VoltageBlock) -> Vec<Vec<u8>> {
    (0..block.streams()).map(|stream| block.voltages().row(stream).to_vec()).collect()
}
