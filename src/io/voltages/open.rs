//! Opens recorded voltages. The first bytes of a file determine its format, never its name.

use std::path::{Path, PathBuf};

use super::{VoltageOptions, VoltageSource, dada, guppi, mark5b, vdif};
use crate::error::{Error, Result};

/// Bytes examined to detect the format: a few frames of the formats without a magic number.
const FIRST_BYTES: u64 = 1 << 16;

/// Opens the files of one recording.
type Open = fn(&[PathBuf], &VoltageOptions) -> Result<Box<dyn VoltageSource>>;

/// A voltage format.
struct Format {
    name: &'static str,
    detect: fn(&[u8]) -> bool,
    open: Open,
}

/// Voltage formats, in order of decreasing reliability of their detection.
const FORMATS: &[Format] = &[
    Format { name: "GUPPI raw", detect: guppi::detect, open: guppi::open },
    Format { name: "PSRDADA", detect: dada::detect, open: dada::open },
    Format { name: "Mark 5B", detect: mark5b::detect, open: mark5b::open },
    Format { name: "VDIF", detect: vdif::detect, open: vdif::open },
];

/// Opens the files of one recording, given in any order.
///
/// A path that does not exist but is the prefix of a numbered sequence (`NAME` for `NAME.0000.raw`, `NAME.0001.raw`
/// and so on) selects the whole sequence. `options` override the files' headers. For formats with channel frequencies
/// (GUPPI raw, PSRDADA), `lower_sideband` inverts each channel but not the channel order. For formats located by
/// `centre_hz` alone (VDIF, Mark 5B), channels of a lower sideband also descend in frequency.
///
/// # Errors
/// [`Error::Io`] for a file that is missing or unreadable; [`Error::Format`] for a file that is empty, of unknown
/// format, of another format than the first, or invalid; [`Error::Parameter`] for no file or invalid options.
pub fn open(paths: &[PathBuf], options: &VoltageOptions) -> Result<Box<dyn VoltageSource>> {
    let paths: Vec<PathBuf> = paths.iter().flat_map(|path| sequence(path)).collect();
    let Some(first) = paths.first() else {
        return Err(Error::parameter("files", 0, "one at least is needed"));
    };
    let format = known(first)?;
    for path in &paths[1..] {
        let other = known(path)?;
        if other.name != format.name {
            let why =
                format!("found {}, expected {} as in the first file", other.name, format.name);
            return Err(Error::format(path, "file", 0, why));
        }
    }
    (format.open)(&paths, options)
}

/// Returns whether a file, or the numbered sequence with the prefix `path`, holds voltages.
///
/// Returns `false` for standard input and pipes, which cannot be read twice.
///
/// # Errors
/// [`Error::Io`] for an unreadable file.
pub fn is_voltages(path: &Path) -> Result<bool> {
    let files = sequence(path);
    let path = files.first().map_or(path, PathBuf::as_path);
    if path == Path::new("-") || path.is_dir() {
        return Ok(false);
    }
    let metadata = std::fs::metadata(path).map_err(|error| Error::io(path, error))?;
    Ok(metadata.is_file() && detect(&first_bytes(path)?).is_some())
}

fn known(path: &Path) -> Result<&'static Format> {
    if path.is_dir() {
        return Err(crate::io::open::is_folder(path));
    }
    crate::io::check_seekable(path)?;
    let first = first_bytes(path)?;
    if first.is_empty() {
        return Err(Error::format(path, "file", 0, "the file is empty"));
    }
    detect(&first).ok_or_else(|| {
        let names: Vec<_> = FORMATS.iter().map(|format| format.name).collect();
        let start = first[..first.len().min(16)].escape_ascii();
        let what = crate::io::foreign::clause(path);
        let names = names.join(", ");
        let why = format!("found the first bytes {start}, expected those of {names}{what}");
        Error::format(path, "file", 0, why)
    })
}

fn detect(first: &[u8]) -> Option<&'static Format> {
    if crate::io::open::is_filterbank(first) {
        return None;
    }
    FORMATS.iter().find(|format| (format.detect)(first))
}

fn first_bytes(path: &Path) -> Result<Vec<u8>> {
    crate::io::compressed::head(path, FIRST_BYTES)
}

/// Returns the files selected by a path: itself, or the numbered sequence with that prefix.
fn sequence(path: &Path) -> Vec<PathBuf> {
    let itself = vec![path.to_path_buf()];
    let Some(stem) = path.file_name().and_then(|name| name.to_str()) else { return itself };
    if path.exists() {
        return itself;
    }
    let folder = path.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
    let numbered = |name: &str| {
        let number = name.strip_prefix(stem)?.strip_prefix('.')?.strip_suffix(".raw")?;
        (number.len() == 4 && number.bytes().all(|byte| byte.is_ascii_digit())).then_some(())
    };
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let mut files: Vec<_> = names
        .filter(|name| numbered(name).is_some())
        .map(|name| path.with_file_name(name))
        .collect();
    files.sort();
    if files.is_empty() { itself } else { files }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_holds_no_voltages_is_told_clearly() {
        let folder = tempfile::tempdir().unwrap();
        let message = |path: &Path| {
            let Err(error) = open(&[path.to_path_buf()], &VoltageOptions::default()) else {
                panic!("{} opened", path.display());
            };
            error.to_string()
        };
        assert!(message(folder.path()).contains("is a folder"));
        assert!(message(&folder.path().join("none.raw")).contains("none.raw"));
        let path = folder.path().join("x.raw");
        let cases: [(&[u8], &str); 3] =
            [(b"", "empty"), (b"PK\x03\x04", "PK\\x03\\x04"), (b"SIMPLE  =   T", "SIMPLE")];
        for (bytes, expected) in cases {
            std::fs::write(&path, bytes).unwrap();
            let found = message(&path);
            assert!(found.contains(expected) && found.contains("x.raw"), "{found}");
            assert!(!is_voltages(&path).unwrap());
        }
        assert!(matches!(open(&[], &VoltageOptions::default()), Err(Error::Parameter { .. })));
        assert!(!is_voltages(Path::new("-")).unwrap() && !is_voltages(folder.path()).unwrap());
        assert!(is_voltages(&folder.path().join("none.raw")).is_err());
    }
}
