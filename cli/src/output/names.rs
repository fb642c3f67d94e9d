//! Names beside an output: its lock, its unfinished folder, its side files, free names, final names in messages; and
//! the names in a verb's folder, which distinguish its own product from a folder with other files.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use sidereal::io::atomic::{MAX_NAME, hidden_name, short_name};

/// Suffix of an unfinished folder, before its random letters.
pub(super) const UNFINISHED: &str = ".unfinished-";

/// Suffix of a replaced output, before its random letters.
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

/// Names of unfinished folders, each with its replacement in messages.
static FINAL_NAMES: Mutex<Vec<(String, String)>> = Mutex::new(Vec::new());

/// Makes messages contain `final_name` instead of an unfinished folder's name.
pub(crate) fn remember_final_name(path: &Path, final_name: &str, end: &str) {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned() + end;
    let mut all = FINAL_NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    all.push((name, final_name.to_owned()));
}

/// Makes messages contain an unfinished folder's own name, because it stays.
pub(crate) fn forget_final_name(path: &Path) {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let mut all = FINAL_NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    all.retain(|(unfinished, _)| unfinished.trim_end_matches('/') != name);
}

/// Replaces the names in a message by the final names of the files.
pub(crate) fn with_final_names(message: &str) -> String {
    let all = FINAL_NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    all.iter().fold(message.to_owned(), |text, (name, final_name)| text.replace(name, final_name))
}

/// Files of one verb's product.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Contents {
    /// Name of the verb.
    pub(crate) verb: &'static str,
    /// Documents, of which each product has at least one. The first states whether the product is complete.
    pub(crate) documents: &'static [&'static str],
    /// Function that returns whether the verb, in this version or an earlier one, writes a file of this name into
    /// this folder. Names in inner folders contain a `/`.
    pub(crate) writes: fn(&Path, &str) -> bool,
}

impl Contents {
    /// Returns the reason why a folder must not be replaced; `None` if it is empty, or a product of this verb and
    /// nothing else.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub(super) fn why_kept(&self, folder: &Path) -> io::Result<Option<String>> {
        let files = files(folder)?;
        let own = |name: &String| {
            self.documents.contains(&name.as_str()) || is_state(name) || (self.writes)(folder, name)
        };
        if let Some(foreign) = files.iter().find(|name| !own(name)) {
            return Ok(Some(format!(
                "it holds {foreign}, which {} does not write, so it is not replaced; give another name",
                self.verb
            )));
        }
        let known = |name: &&String| self.documents.contains(&name.as_str()) || is_state(name);
        if !files.is_empty() && files.iter().find(known).is_none() {
            return Ok(Some(format!(
                "it holds no {}, so it is not a product of {} and is not replaced; give another name",
                self.documents.join(" nor "),
                self.verb
            )));
        }
        Ok(None)
    }

    /// Returns whether a folder's document states that the product is complete; `None` if no document states it.
    pub(super) fn is_complete(&self, folder: &Path) -> Option<bool> {
        let text = fs::read(folder.join(self.documents.first()?)).ok()?;
        let document: serde_json::Value = serde_json::from_slice(&text).ok()?;
        document.get("complete")?.as_bool()
    }
}

/// Returns whether any verb stores a file of this name to resume an interrupted run.
pub(crate) fn is_state(name: &str) -> bool {
    name == JOURNAL || name.starts_with(CHECKPOINT)
}

/// Returns the names of all files in a folder and its inner folders, sorted.
fn files(folder: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    let mut folders = vec![(folder.to_path_buf(), String::new())];
    while let Some((folder, prefix)) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
            if entry.file_type()?.is_dir() {
                folders.push((entry.path(), name + "/"));
            } else {
                names.push(name);
            }
        }
    }
    names.sort();
    Ok(names)
}

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

    const SEARCH: Contents = Contents {
        verb: "search",
        documents: &["summary.json"],
        writes: |_, name| name.ends_with(".png") || name == "inner/x",
    };

    #[test]
    fn only_a_product_is_replaced() {
        let home = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(home.path().join(name), text).unwrap();
        let why = || SEARCH.why_kept(home.path()).unwrap();
        fs::create_dir(home.path().join("inner")).unwrap();
        assert_eq!(why(), None);
        write("a.png", "");
        assert!(why().unwrap().contains("no summary.json"));
        write("summary.json", "{\"complete\": false}");
        write("inner/x", "");
        write("journal", "");
        assert_eq!((why(), SEARCH.is_complete(home.path())), (None, Some(false)));
        write("inner/thesis.tex", "");
        assert!(why().unwrap().contains("holds inner/thesis.tex, which search does not write"));
        write("summary.json", "{");
        assert_eq!(SEARCH.is_complete(home.path()), None);
    }
}
