//! Opening recordings: the format is told by a file's first bytes, never by its name.
//!
//! Invariant: a file's name never decides its format.

use std::fs::File;
use std::io::{Cursor, Read};
use std::path::{Path, PathBuf};

use super::{FilterbankSource, Polarizations, fbh5, foreign, observation, psrfits, sigproc};
use crate::error::{Error, Result};

/// How recordings are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenOptions {
    /// Which polarizations (SIGPROC's IFs) to give.
    pub polarizations: Polarizations,
    /// Whether times missing between the files of one observation, or inside one, may be filled.
    pub allow_gaps: bool,
}

/// A format that [`open`] knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Sigproc,
    Fits,
    Hdf5,
}

/// The first bytes of each format.
const MAGIC: &[(&[u8], Format)] = &[
    (b"\x0c\0\0\0HEADER_START", Format::Sigproc),
    (b"\0\0\0\x0cHEADER_START", Format::Sigproc),
    (b"SIMPLE  =", Format::Fits),
    (b"\x89HDF\r\n\x1a\n", Format::Hdf5),
];

/// Bytes of the longest of [`MAGIC`].
const LONGEST_MAGIC: u64 = 16;

/// Returns whether a path is read as a stream, once and from its start: standard input (`-`), a FIFO, a device.
pub fn is_stream(path: &Path) -> bool {
    let is_special = |found: std::fs::Metadata| !found.is_file() && !found.is_dir();
    path == Path::new("-") || std::fs::metadata(path).is_ok_and(is_special)
}

/// Refuses a stream where a reader seeks.
///
/// # Errors
/// [`Error::Io`] of kind `NotSeekable`.
pub(crate) fn check_seekable(path: &Path) -> Result<()> {
    if !is_stream(path) {
        return Ok(());
    }
    let why = "a pipe can't be sought, and this format needs that; give a file";
    Err(Error::io(path, std::io::Error::new(std::io::ErrorKind::NotSeekable, why)))
}

/// Opens the files of one observation, in any order; `-` is standard input. Streams ([`is_stream`]) hold SIGPROC
/// filterbanks; other formats are sought in.
///
/// # Errors
/// [`Error::Io`] for a file that is missing or can't be read; [`Error::Format`] for one that is
/// empty, of no known format or breaks its format's rules, and for files that don't fit together
/// ([`super::join`]); [`Error::Parameter`] for no file at all.
pub fn open(paths: &[PathBuf], options: &OpenOptions) -> Result<Box<dyn FilterbankSource>> {
    let plain = |path: &Path| -> std::io::Result<Box<dyn Read + Send>> {
        if path == Path::new("-") {
            return Ok(Box::new(std::io::stdin()));
        }
        Ok(Box::new(File::open(path)?))
    };
    open_with(paths, options, &plain)
}

/// As [`open`]; `stream` opens the paths of which [`is_stream`] is true, so that a caller may decide how to wait for bytes.
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
    mut stream: Box<dyn Read + Send>,
    path: &Path,
    options: &OpenOptions,
) -> Result<Box<dyn FilterbankSource>> {
    let mut first = Vec::new();
    let read = (&mut stream).take(LONGEST_MAGIC).read_to_end(&mut first);
    read.map_err(|error| Error::io(path, error))?;
    let sought = MAGIC.iter().find(|(magic, _)| first.starts_with(magic));
    if let Some((_, Format::Fits | Format::Hdf5)) = sought {
        let why = "this format is sought in, which a pipe does not allow; give a file";
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

/// Whether a file's first bytes are those of a filterbank format.
pub(super) fn is_filterbank(first: &[u8]) -> bool {
    MAGIC.iter().any(|(magic, _)| first.starts_with(magic))
}

/// The error that refuses a folder, which says what it is.
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
    let mut first = Vec::new();
    File::open(path).and_then(|file| file.take(16).read_to_end(&mut first)).map_err(io)?;
    if first.is_empty() {
        return Err(Error::format(path, "file", 0, "the file is empty"));
    }
    let known = MAGIC.iter().find(|(magic, _)| {
        // A file cut short within the magic is a broken file of that format.
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
