//! Filterbanks as they are read: their rows' bytes, and their samples.

use std::path::PathBuf;

use sidereal::io::{FilterbankSource, OpenOptions, open};
use sidereal::sample::{Encoding, value};

/// Opens what must open.
pub(crate) fn open_with(paths: &[PathBuf], options: OpenOptions) -> Box<dyn FilterbankSource> {
    open(paths, &options).unwrap_or_else(|error| panic!("{error}"))
}

/// All rows' bytes, read in gulps of `gulp` rows.
pub(crate) fn read_all(source: &mut dyn FilterbankSource, gulp: usize) -> Vec<u8> {
    let row_bytes = source.header().row_bytes();
    let mut bytes = Vec::new();
    let mut buffer = vec![0xa5; gulp * row_bytes];
    loop {
        let times = source.read(&mut buffer).unwrap();
        bytes.extend_from_slice(&buffer[..times * row_bytes]);
        if times < gulp {
            return bytes;
        }
    }
}

/// The samples of rows, row after row.
pub(crate) fn values(bytes: &[u8], encoding: Encoding, channels: usize) -> Vec<f64> {
    let rows = bytes.chunks_exact(channels * encoding.bits() / 8);
    rows.flat_map(|row| {
        (0..channels).map(|channel| value(row, encoding, channel)).collect::<Vec<_>>()
    })
    .collect()
}
