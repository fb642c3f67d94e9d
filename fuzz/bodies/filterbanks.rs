//! Filterbanks: rows of channels, read, searched and dedispersed.

use sidereal::Error;
use sidereal::io::{self, FilterbankSource, OpenOptions, Polarizations};

use super::pipelines::burst;
use super::{Outcome, Read, with_file};

/// Longest row in bytes to read: a header may declare more than the available memory.
const LONGEST_ROW: usize = 1 << 20;

/// A SIGPROC filterbank: header and data.
pub(super) fn sigproc(bytes: &[u8]) -> Outcome {
    filterbank(bytes)
}

/// A PSRFITS search-mode file.
pub(super) fn psrfits(bytes: &[u8]) -> Outcome {
    filterbank(bytes)
}

/// blimpy's HDF5 filterbank.
pub(super) fn fbh5(bytes: &[u8]) -> Outcome {
    filterbank(bytes)
}

fn filterbank(bytes: &[u8]) -> Outcome {
    let total = OpenOptions::default();
    let second = OpenOptions { polarizations: Polarizations::One(1), allow_gaps: true };
    with_file(bytes, |path| {
        let paths = [path.to_path_buf()];
        if let Ok(mut source) = io::open(&paths, &second) {
            let _ = drain(source.as_mut());
        }
        let read = drain(io::open(&paths, &total)?.as_mut())?;
        burst(|| io::open(&paths, &total))?;
        Ok(read)
    })
}

/// Reads a source to its end, and checks its declared properties.
fn drain(source: &mut dyn FilterbankSource) -> Outcome {
    let header = source.header().clone();
    let row = header.row_bytes();
    assert!(row > 0 && header.tsamp_s > 0.0 && header.band.lowest_hz() > 0.0);
    if row > LONGEST_ROW {
        return Ok(Read::Part);
    }
    let gulp = 7;
    let mut rows = vec![0; gulp * row];
    let mut read = source.skip(3)?;
    for _ in 0..1000 {
        let times = source.read(&mut rows)?;
        read += times as u64;
        if times < gulp {
            assert!(header.times.is_none_or(|promised| promised == read));
            return Ok(if source.cut().is_some() { Read::Cut } else { Read::Whole });
        }
    }
    Ok(Read::Part)
}

/// Decodes a bitshuffle-LZ4 chunk, preceded by a byte with the width of its elements.
pub(super) fn bitshuffle(bytes: &[u8]) -> Outcome {
    let Some((width, chunk)) = bytes.split_first() else { return Ok(Read::Part) };
    let width = usize::from(*width);
    // A reader knows a chunk's length from the file's own header: here it comes from the chunk, and
    // from a fixed one.
    let promised = chunk.iter().take(8).fold(0u64, |sum, byte| (sum << 8) | u64::from(*byte));
    let mut output = vec![0; promised.min(1 << 16) as usize];
    let outcome = io::decode_lz4(chunk, width, &mut output);
    let length = usize::from(chunk.len() as u16);
    for promised in [output.len(), 1024] {
        output.resize(promised, 0);
        let _ = io::decode_lz4(chunk, width, &mut output);
        let _ = io::decode_bare(chunk, width, length, &mut output);
    }
    outcome.map(|_| Read::Whole).map_err(|why| Error::format("fuzz", "chunk", 0, why))
}
