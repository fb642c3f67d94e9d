//! Opens recorded strain of any format.
//!
//! Invariant: an option never overrides a property that the file stores; the two must agree.

use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::io::compressed;
use crate::io::gwf::{Gwf, is_gwf};
use crate::io::hdf5::Input;
use crate::io::npy::{Header, Kind};
use crate::io::strain::writer::{INJECTION_BITS, QUALITY_BITS};
use crate::io::strain::{
    FileMetadata, MAX_MASK, OpenOptions, StrainHeader, StrainSource, finish_header, gwf, hdf5,
    join, whole_second,
};
use crate::view::check_length;

/// Opens one file: GWOSC's HDF5 (versions 1 to 3), a series that gwpy wrote to HDF5, a channel of a frame file (GWF,
/// versions 6 to 9), or a raw one-dimensional `.npy` (which needs [`OpenOptions::rate_hz`] and
/// [`OpenOptions::start`]).
///
/// [`OpenOptions::channel`] selects one of several channels. The default is the only floating-point channel (of
/// [`OpenOptions::detector`], if given), or the only one of those whose name ends in STRAIN.
///
/// Non-finite samples, and seconds without the required bits, read as 0 and are marked invalid.
///
/// # Errors
/// [`Error::Format`] naming file and field for a file that is none of these, is truncated, contradicts the requested
/// rate, start or detector, or lacks a required quality bit; [`Error::Parameter`] for a raw file without rate or
/// start, or if a channel must be selected; [`Error::Unavailable`] for an unsupported HDF5 filter or GWF version;
/// [`Error::Io`].
pub fn open(path: &Path, options: &OpenOptions) -> Result<Box<dyn StrainSource>> {
    crate::io::check_seekable(path)?;
    let head = compressed::head(path, 8)?;
    let (mut magic, found) = ([0; 8], head.len());
    magic[..found].copy_from_slice(&head);
    match &magic {
        b"\x89HDF\r\n\x1a\n" => hdf5::open(path, options),
        [0x93, b'N', b'U', b'M', b'P', b'Y', ..] => open_npy(path, options),
        [b'I', b'G', b'W', b'D', ..] => gwf::open(path, options),
        _ if found == 0 => Err(Error::format(path, "file", 0, "the file is empty")),
        _ => {
            let why = format!(
                "{} found, expected an HDF5 file, a frame file (GWF) or a .npy file{}",
                magic[..found].escape_ascii(),
                crate::io::foreign::clause(path)
            );
            Err(Error::format(path, "magic", 0, why))
        }
    }
}

/// Returns whether a file is a frame file, or HDF5 with strain; recognizes damaged files, too.
pub fn is_strain(path: &Path) -> bool {
    is_gwf(path) || hdf5::is_strain(path)
}

/// Lists the channels of a frame file or of gwpy's HDF5; none for files with a single unnamed series.
///
/// # Errors
/// As [`open`].
pub fn channels(path: &Path) -> Result<Vec<String>> {
    if is_gwf(path) {
        return Ok(Gwf::open(path)?.names().map(str::to_owned).collect());
    }
    hdf5::channels(path)
}

/// Returns the name of the channel that [`open`] reads, for formats that have channels.
///
/// # Errors
/// As [`open`].
pub fn channel_of(path: &Path, options: &OpenOptions) -> Result<Option<String>> {
    if is_gwf(path) {
        return gwf::choose(&Gwf::open(path)?, path, options).map(Some);
    }
    hdf5::channel_of(path, options)
}

/// Opens several files of one detector, in any order, as one stream; gaps between them read as invalid samples. Raw
/// files need a start each: open them one by one and use [`super::join`].
///
/// # Errors
/// As [`open`]; [`Error::Format`] for files of different detectors or rates, for overlaps, and for distances that are
/// not a whole number of samples; [`Error::Parameter`] for no files.
pub fn open_all(paths: &[PathBuf], options: &OpenOptions) -> Result<Box<dyn StrainSource>> {
    let [path] = paths else {
        let sources: Result<Vec<_>> = paths.iter().map(|path| open(path, options)).collect();
        return join(sources?);
    };
    open(path, options)
}

/// Bit masks of every second of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bits {
    /// Quality masks, in order of time: the first GPS second of a piece, and the masks from it on, with GWOSC
    /// data-quality bits.
    pub quality: Vec<(i64, Vec<u32>)>,
    /// Injection masks likewise, with GWOSC injection bits.
    pub injections: Vec<(i64, Vec<u32>)>,
}

/// Reads the bit masks of the strain in a file; empty for a file without masks.
///
/// # Errors
/// [`crate::Error::Format`] for damaged masks, or steps other than whole seconds.
pub fn bits(path: &Path, options: &OpenOptions) -> Result<Bits> {
    if is_gwf(path) {
        let file = Gwf::open(path)?;
        let name = gwf::choose(&file, path, options)?;
        return Ok(Bits {
            quality: gwf::mask_of(&file, &name, gwf::QUALITY, path)?,
            injections: gwf::mask_of(&file, &name, gwf::INJECTIONS, path)?,
        });
    }
    let Ok(input) = Input::open(path) else { return Ok(Bits::default()) };
    if !input.has(hdf5::STRAIN) {
        return Ok(Bits::default());
    }
    let start_s = match input.series(hdf5::STRAIN)?.number("Xstart")? {
        Some(start_s) => start_s,
        None => input.only_number("meta/GPSstart")?,
    };
    let mask = |group: &str, name: &str, known: &[(&str, &str)]| {
        let (mask, names) =
            (format!("quality/{group}/{name}mask"), format!("quality/{group}/{name}Shortnames"));
        if !input.has(&mask) {
            return Ok(Vec::new());
        }
        let series = input.series(&mask)?;
        let first_s = series.number("Xstart")?.unwrap_or(start_s);
        let spacing_s = series.number("Xspacing")?.unwrap_or(1.0);
        let first_s = whole_second(spacing_s, first_s).map_err(|why| input.fault(&mask, why))?;
        // The bit order differs between observing runs.
        let theirs = input.small_texts(&names)?;
        let place = |name: &str| theirs.iter().position(|known| known == name);
        let places: Vec<Option<usize>> = known.iter().map(|(name, _)| place(name)).collect();
        let ours = |number: &f64| {
            let has =
                |place: Option<usize>| place.is_some_and(|bit| *number as u64 >> bit & 1 == 1);
            let set = places.iter().enumerate().filter(|(_, place)| has(**place));
            set.fold(0_u32, |bits, (bit, _)| bits | 1 << bit)
        };
        Ok(vec![(first_s, series.read_all(MAX_MASK)?.iter().map(ours).collect())])
    };
    Ok(Bits {
        quality: mask("simple", "DQ", &QUALITY_BITS)?,
        injections: mask("injections", "Inj", &INJECTION_BITS)?,
    })
}

impl Bits {
    /// Returns whether there are no quality masks.
    pub fn is_empty(&self) -> bool {
        self.quality.is_empty()
    }

    /// Copies pieces into the masks of consecutive seconds from `start_s` on.
    pub fn copy(pieces: &[(i64, Vec<u32>)], start_s: i64, seconds: &mut [u32]) {
        for (first_s, bits) in pieces {
            for (second, bits) in (*first_s..).zip(bits) {
                let place = usize::try_from(second - start_s).ok();
                if let Some(place) = place.filter(|place| *place < seconds.len()) {
                    seconds[place] = *bits;
                }
            }
        }
    }
}

/// Bytes per read, and maximum bytes of a header.
const PIECE_BYTES: usize = 1 << 16;

/// Opens a raw series of floats.
fn open_npy(path: &Path, options: &OpenOptions) -> Result<Box<dyn StrainSource>> {
    let mut file = compressed::open(path)?;
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
    let metadata = FileMetadata { format: "npy", detector: None, spacing_s, start_s: start.s() };
    let mut header = finish_header(path, metadata, there, options)?;
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
