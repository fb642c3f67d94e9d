//! Filterbanks: rows of channels.

use sidereal::io::{self, FilterbankSource, OpenOptions, Polarizations};

use super::with_file;

/// Longest row, in bytes, that is read at all: a header may promise more than there is memory.
const LONGEST_ROW: usize = 1 << 20;

/// A SIGPROC filterbank: header and data.
pub fn sigproc(bytes: &[u8]) {
    filterbank(bytes);
}

/// A PSRFITS search-mode file.
pub fn psrfits(bytes: &[u8]) {
    filterbank(bytes);
}

/// blimpy's HDF5 filterbank.
pub fn fbh5(bytes: &[u8]) {
    filterbank(bytes);
}

fn filterbank(bytes: &[u8]) {
    let total = OpenOptions::default();
    let second = OpenOptions { polarizations: Polarizations::One(1), allow_gaps: true };
    with_file(bytes, |path| {
        for options in [&total, &second] {
            if let Ok(mut source) = io::open(&[path.to_path_buf()], options) {
                drain(source.as_mut());
            }
        }
    });
}

/// Reads a source to its end, and holds it to what it promised.
fn drain(source: &mut dyn FilterbankSource) {
    let header = source.header().clone();
    let row = header.row_bytes();
    assert!(row > 0 && header.tsamp_s > 0.0 && header.band.lowest_hz() > 0.0);
    if row > LONGEST_ROW {
        return;
    }
    let gulp = 7;
    let mut rows = vec![0; gulp * row];
    let Ok(mut read) = source.skip(3) else { return };
    for _ in 0..1000 {
        match source.read(&mut rows) {
            Ok(times) if times == gulp => read += times as u64,
            Ok(times) => {
                assert!(times < gulp);
                read += times as u64;
                assert!(header.times.is_none_or(|promised| promised == read));
                return;
            }
            Err(_) => return,
        }
    }
}

/// A chunk of bitshuffle and LZ4, behind a byte that says how wide its elements are.
pub fn bitshuffle(bytes: &[u8]) {
    let Some((width, chunk)) = bytes.split_first() else { return };
    let width = usize::from(*width);
    // A reader knows a chunk's length from the file's own header: here it comes from the chunk, and
    // from a fixed one.
    let promised = chunk.iter().take(8).fold(0u64, |sum, byte| (sum << 8) | u64::from(*byte));
    for length in [promised.min(1 << 16) as usize, 1024] {
        let mut output = vec![0; length];
        let _ = io::fbh5::bitshuffle::decode_lz4(chunk, width, &mut output);
        let _ = io::fbh5::bitshuffle::decode_bare(
            chunk,
            width,
            usize::from(chunk.len() as u16),
            &mut output,
        );
    }
}
