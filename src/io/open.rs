//! Opens recordings; detects the format from the first bytes.
//!
//! Invariant: a file's name never decides its format.

use std::fs::File;
use std::io::{Cursor, Read};
use std::path::{Path, PathBuf};

use super::{
    FilterbankSource, Polarizations, compressed, fbh5, foreign, is_stream, observation, psrfits,
    sigproc,
};
use crate::error::{Error, Result};

/// Options for reading recordings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenOptions {
    /// Selected polarizations (SIGPROC's IFs).
    pub polarizations: Polarizations,
    /// Whether to fill gaps between the files of one observation or within a file.
    pub allow_gaps: bool,
}

/// A format supported by [`open`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Sigproc,
    Fits,
    Hdf5,
}

/// Magic bytes of each format.
const MAGIC: &[(&[u8], Format)] = &[
    (b"\x0c\0\0\0HEADER_START", Format::Sigproc),
    (b"\0\0\0\x0cHEADER_START", Format::Sigproc),
    (b"SIMPLE  =", Format::Fits),
    (b"\x89HDF\r\n\x1a\n", Format::Hdf5),
];

/// Length of the longest of [`MAGIC`].
const MAX_MAGIC: u64 = 16;

/// Opens the files of one observation, in any order; `-` is standard input. Streams ([`is_stream`]) must be SIGPROC
/// filterbanks, because readers of the other formats seek. Files and streams may be compressed by gzip or Zstandard
/// ([`super::Unpacking`]).
///
/// # Errors
/// [`Error::Io`] for a missing or unreadable file; [`Error::Format`] for a file that is empty, of unknown format or
/// invalid, and for inconsistent files ([`super::join`]); [`Error::Parameter`] for no file.
pub fn open(paths: &[PathBuf], options: &OpenOptions) -> Result<Box<dyn FilterbankSource>> {
    let plain = |path: &Path| -> std::io::Result<Box<dyn Read + Send>> {
        if path == Path::new("-") {
            return Ok(Box::new(std::io::stdin()));
        }
        Ok(Box::new(File::open(path)?))
    };
    open_with(paths, options, &plain)
}

/// Opens files like [`open`], but opens streams ([`is_stream`]) through `stream`, so that the caller controls how to
/// wait for bytes.
///
/// # Errors
/// As [`open`].
pub fn open_with(
    paths: &[PathBuf],
    options: &OpenOptions,
    stream: &dyn Fn(&Path) -> std::io::Result<Box<dyn Read + Send>>,
) -> Result<Box<dyn FilterbankSource>> {
    let one = |path: &PathBuf| match is_stream(path) {
        true => open_stream(stream(path).map_err(|error| Error::io(path, error))?, path, options),
        false => open_one(path, options),
    };
    let sources: Result<Vec<_>> = paths.iter().map(one).collect();
    observation::join(sources?, options.allow_gaps)
}

fn open_stream(
    stream: Box<dyn Read + Send>,
    path: &Path,
    options: &OpenOptions,
) -> Result<Box<dyn FilterbankSource>> {
    let mut stream = compressed::stream(stream).map_err(|error| Error::io(path, error))?;
    let mut first = Vec::new();
    let read = (&mut stream).take(MAX_MAGIC).read_to_end(&mut first);
    read.map_err(|error| Error::io(path, error))?;
    let sought = MAGIC.iter().find(|(magic, _)| first.starts_with(magic));
    if let Some((_, Format::Fits | Format::Hdf5)) = sought {
        let why = "this format needs seeking, which a pipe does not allow; give a file";
        return Err(Error::io(path, std::io::Error::new(std::io::ErrorKind::NotSeekable, why)));
    }
    let whole = Box::new(Cursor::new(first).chain(stream));
    Ok(Box::new(sigproc::FilterbankReader::from_pipe(whole, path, options.polarizations)?))
}

fn open_one(path: &Path, options: &OpenOptions) -> Result<Box<dyn FilterbankSource>> {
    match detect(path)? {
        Format::Sigproc => Ok(Box::new(sigproc::open(path, options.polarizations)?)),
        Format::Fits => psrfits::open(path, options.polarizations, options.allow_gaps),
        Format::Hdf5 => fbh5::open(path, options.polarizations),
    }
}

/// Returns whether a file's first bytes are those of a filterbank format.
pub(super) fn is_filterbank(first: &[u8]) -> bool {
    MAGIC.iter().any(|(magic, _)| first.starts_with(magic))
}

/// Makes the error for a folder, with a description of the folder.
pub(super) fn is_folder(path: &Path) -> Error {
    let why = format!("is a folder, expected a recording{}", foreign::clause(path));
    Error::io(path, std::io::Error::new(std::io::ErrorKind::IsADirectory, why))
}

fn detect(path: &Path) -> Result<Format> {
    let io = |error| Error::io(path, error);
    let metadata = std::fs::metadata(path).map_err(io)?;
    if metadata.is_dir() {
        return Err(is_folder(path));
    }
    let first = compressed::head(path, MAX_MAGIC)?;
    if first.is_empty() {
        return Err(Error::format(path, "file", 0, "the file is empty"));
    }
    let known = MAGIC.iter().find(|(magic, _)| {
        // A file truncated within the magic bytes is a damaged file of that format.
        first.starts_with(magic) || (first.len() >= 4 && magic.starts_with(&first))
    });
    known.map(|(_, format)| *format).ok_or_else(|| {
        let why = format!(
            "found the first bytes {}, expected those of SIGPROC (HEADER_START), PSRFITS (SIMPLE) \
             or HDF5{}",
            first.escape_ascii(),
            foreign::clause(path)
        );
        Error::format(path, "file", 0, why)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(path: &Path) -> String {
        let Err(error) = open(&[path.to_path_buf()], &OpenOptions::default()) else {
            panic!("{} opened", path.display());
        };
        error.to_string()
    }

    #[test]
    fn what_is_no_recording_is_told_clearly() {
        let folder = tempfile::tempdir().unwrap();
        assert!(message(folder.path()).contains("is a folder"));
        assert!(message(&folder.path().join("none.fil")).contains("none.fil"));
        let cases: [(&[u8], &str); 5] = [
            (b"", "empty"),
            (b"PK\x03\x04 not a recording", "PK\\x03\\x04"),
            (b"\x0c\0\0\0HEADER_", "breaks off"),
            (b"\0\0\0\x0cHEADER_START.", "big-endian"),
            (b"\x0c\0\0\0HEADER_START\x05\0\0\0nch", "breaks off"),
        ];
        for (bytes, expected) in cases {
            let path = folder.path().join("x.fil");
            std::fs::write(&path, bytes).unwrap();
            let found = message(&path);
            assert!(found.contains(expected) && found.contains("x.fil"), "{found}");
        }
        assert!(matches!(open(&[], &OpenOptions::default()), Err(Error::Parameter { .. })));
    }
}
