//! Opens recorded strain of any format.
//!
//! Invariant: what a file says of itself is never overruled by an option; the two must agree.

use std::io::Read;
use std::path::{Path, PathBuf};

use super::header::OpenOptions;
use super::{StrainSource, gwf, hdf5, join, npy};
use crate::error::{Error, Result};
use crate::io::gwf::{Gwf, is_gwf};

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
    let mut magic = [0; 8];
    let mut file = std::fs::File::open(path).map_err(|error| Error::io(path, error))?;
    let mut found = 0;
    while found < magic.len() {
        match file.read(&mut magic[found..]).map_err(|error| Error::io(path, error))? {
            0 => break,
            more => found += more,
        }
    }
    match &magic {
        b"\x89HDF\r\n\x1a\n" => hdf5::open(path, options),
        [0x93, b'N', b'U', b'M', b'P', b'Y', ..] => npy::open(path, options),
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
        return join::join(sources?);
    };
    open(path, options)
}
