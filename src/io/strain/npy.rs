//! Raw strain in NumPy's `.npy`: a one-dimensional array; the options supply start time and rate.
//!
//! Invariant: reading holds one piece of 64 KiB.

use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use super::header::{OpenOptions, Said, finish_header};
use super::{StrainHeader, StrainSource};
use crate::error::{Error, Result};
use crate::io::npy::{Header, Kind};
use crate::view::check_length;

/// Bytes per read, and maximum bytes of a header.
const PIECE_BYTES: usize = 1 << 16;

/// Opens a raw series of floats.
pub(super) fn open(path: &Path, options: &OpenOptions) -> Result<Box<dyn StrainSource>> {
    let mut file = File::open(path).map_err(|error| Error::io(path, error))?;
    let mut head = Vec::new();
    let io = |error| Error::io(path, error);
    file.by_ref().take(PIECE_BYTES as u64).read_to_end(&mut head).map_err(io)?;
    let found = Header::parse(&head, path)?;
    let fault = |field: &str, why: String| Error::format(path, field, 0, why);
    let [times] = found.shape[..] else {
        return Err(fault("shape", format!("{:?} found, expected one axis", found.shape)));
    };
    if !matches!(found.kind, Kind::F32 | Kind::F64) {
        return Err(fault("descr", format!("{:?} found, expected floats (f4 or f8)", found.kind)));
    }
    let bytes = file.seek(SeekFrom::End(0)).map_err(io)?;
    let expected = (times as u64).checked_mul(found.kind.bytes() as u64);
    let data = bytes.saturating_sub(found.data_offset as u64);
    let there = data / found.kind.bytes() as u64;
    if expected.is_none_or(|expected| data > expected) || there == 0 {
        let why = format!("{data} bytes found, expected {times} numbers of {}", found.kind.bytes());
        return Err(fault("data", why));
    }
    let cut = (there < times as u64).then(|| {
        let path = path.display();
        format!(
            "{path}: it ends within its data: {there} of the {times} samples promised are there"
        )
    });
    let missing =
        |name, rule: &str| Error::parameter(name, "none", format!("{rule} ({})", path.display()));
    let rate_hz =
        options.rate_hz.ok_or_else(|| missing("rate", "a .npy file needs its rate in Hz"))?;
    let start = options
        .start
        .ok_or_else(|| missing("start", "a .npy file needs the GPS time of its start"))?;
    let spacing_s = 1.0 / f64::from(rate_hz);
    let said = Said { format: "npy", detector: None, spacing_s, start_s: start.s() };
    let mut header = finish_header(path, said, there, options)?;
    header.start = start;
    file.seek(SeekFrom::Start(found.data_offset as u64)).map_err(io)?;
    let input = BufReader::with_capacity(PIECE_BYTES, file);
    Ok(Box::new(Source { header, input, kind: found.kind, left: there, cut }))
}

struct Source {
    header: StrainHeader,
    input: BufReader<File>,
    kind: Kind,
    left: u64,
    cut: Option<String>,
}

impl StrainSource for Source {
    fn header(&self) -> &StrainHeader {
        &self.header
    }

    fn read(&mut self, samples: &mut [f64], valid: &mut [bool]) -> Result<usize> {
        check_length("flags of valid samples", samples.len(), valid.len())?;
        let count = (samples.len() as u64).min(self.left) as usize;
        let width = self.kind.bytes();
        for (sample, valid) in samples.iter_mut().zip(valid).take(count) {
            let mut bytes = [0; 8];
            let path = &self.header.path;
            self.input.read_exact(&mut bytes[..width]).map_err(|error| Error::io(path, error))?;
            let [a, b, c, d, ..] = bytes;
            let number = match self.kind {
                Kind::F32 => f64::from(f32::from_le_bytes([a, b, c, d])),
                _ => f64::from_le_bytes(bytes),
            };
            *valid = number.is_finite();
            *sample = if *valid { number } else { 0.0 };
        }
        self.left -= count as u64;
        Ok(count)
    }
    fn skip(&mut self, samples: u64) -> Result<u64> {
        let count = samples.min(self.left);
        let bytes = (count * self.kind.bytes() as u64) as i64;
        let path = &self.header.path;
        self.input.seek_relative(bytes).map_err(|error| Error::io(path, error))?;
        self.left -= count;
        Ok(count)
    }

    fn cut(&self) -> Option<&str> {
        self.cut.as_deref()
    }
}
