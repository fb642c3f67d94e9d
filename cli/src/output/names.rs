//! Names beside an output: its lock, its unfinished folder, its side files, and free names.

use std::ffi::{OsStr, OsString};
use std::io;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use sidereal::io::atomic::{MAX_NAME, hidden_name, short_name};

/// Suffix of an unfinished folder, before its random letters.
pub(super) const UNFINISHED: &str = ".unfinished-";

/// The same of the replaced output.
pub(super) const FORMER: &str = ".former-";

/// Suffix of a lock file.
const LOCK: &str = ".lock";

/// Number of random letters in a name.
const RANDOM_LETTERS: usize = 6;

/// Bytes that every hidden name reserves for its suffix.
const MORE: usize = UNFINISHED.len() + RANDOM_LETTERS;

/// Largest number tried for a free name.
const MOST_NUMBERS: u32 = 10_000;

/// Returns the `.NAME` of an output, shortened if it would be too long.
pub(super) fn hidden(place: &Path) -> OsString {
    hidden_name(place.file_name().unwrap_or_default(), MORE)
}

/// Returns the name of the lock.
pub(super) fn lock(place: &Path) -> PathBuf {
    let mut name = hidden(place);
    name.push(LOCK);
    place.with_file_name(name)
}

/// Creates a file or folder under a new hidden name of the output, with random letters after `mark`.
///
/// # Errors
/// Those of `make`.
pub(super) fn make(
    place: &Path,
    mark: &str,
    make: impl FnMut(&Path) -> io::Result<()>,
) -> io::Result<PathBuf> {
    let mut prefix = hidden(place);
    prefix.push(mark);
    let made = tempfile::Builder::new()
        .prefix(&prefix)
        .rand_bytes(RANDOM_LETTERS)
        .make_in(parent(place), make)?;
    let (_, path) = made.keep().map_err(|fault| fault.error)?;
    Ok(place.with_file_name(path.file_name().unwrap_or_default()))
}

/// Returns the folder of an output.
pub(super) fn parent(place: &Path) -> &Path {
    match place.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Returns the name of a file beside a product: the product's whole name plus `end`, such as `.json`.
///
/// Shortens a name too long for file systems and appends a hash.
pub(crate) fn beside(product: &Path, end: &str) -> PathBuf {
    let name = product.file_name().unwrap_or_default();
    let mut name = short_name(name, MAX_NAME - end.len());
    name.push(end);
    product.with_file_name(name)
}

/// Calls `put` with `NAME.1`, `NAME.2` and so on until one is free; returns that one.
///
/// # Errors
/// Those of `put`, except for names that are taken.
pub(super) fn free(
    place: &Path,
    mut put: impl FnMut(&Path) -> io::Result<()>,
) -> io::Result<PathBuf> {
    for number in 1..MOST_NUMBERS {
        let candidate = beside(place, &format!(".{number}"));
        match put(&candidate) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
            Ok(()) => return Ok(candidate),
        }
    }
    Err(ErrorKind::AlreadyExists.into())
}

/// Returns the part of a name after the output's hidden name, if it begins with that.
pub(super) fn behind<'a>(name: &'a OsStr, place: &Path) -> Option<&'a str> {
    let end = name.as_encoded_bytes().strip_prefix(hidden(place).as_encoded_bytes())?;
    str::from_utf8(end).ok()
}

/// Returns whether only random letters, or an older version's process number, follow a mark.
pub(super) fn is_random(letters: &str) -> bool {
    !letters.is_empty() && letters.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

/// File in an unfinished folder that declares results in it final.
pub(crate) const JOURNAL: &str = "journal";

/// Prefix of checkpoint files.
pub(crate) const CHECKPOINT: &str = "checkpoint";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_whole_unless_they_are_too_long() {
        let place = Path::new("data/o.fil");
        assert_eq!(beside(place, ".gaps.json"), Path::new("data/o.fil.gaps.json"));
        assert_eq!(lock(place), Path::new("data/.o.fil.lock"));
        let long = "x".repeat(MAX_NAME);
        for path in [beside(Path::new(&long), ".gaps.json"), lock(Path::new(&long))] {
            assert!(path.as_os_str().len() <= MAX_NAME, "{path:?}");
        }
        assert!(lock(Path::new(&long)) != lock(Path::new(&(long[1..].to_owned() + "y"))));
        assert_eq!(behind(".o.fil.unfinished-Ab12".as_ref(), place), Some(".unfinished-Ab12"));
        assert_eq!(behind(".o.file".as_ref(), place), Some("e"));
        assert_eq!(behind("o.fil.lock".as_ref(), place), None);
    }
}
