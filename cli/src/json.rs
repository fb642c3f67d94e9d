//! JSON documents and text on standard output, and JSON files.

use std::cell::RefCell;
use std::io::Write;
use std::path::Path;

use serde::Serialize;
use sidereal::io::printable;
use sidereal::{Error, Result};

/// Formats a document, with a final newline.
///
/// # Errors
/// [`Error::Unavailable`] for a value that JSON cannot represent.
pub(crate) fn text(document: &impl Serialize) -> Result<String> {
    Ok(serde_json::to_string_pretty(document).map_err(unavailable)? + "\n")
}

fn unavailable(error: serde_json::Error) -> Error {
    Error::Unavailable { what: "the JSON document".to_owned(), why: error.to_string() }
}

/// Formats a document as one line.
///
/// # Errors
/// As [`text`].
pub(crate) fn line(document: &impl Serialize) -> Result<String> {
    serde_json::to_string(document).map_err(unavailable)
}

/// Prints a document on standard output.
///
/// # Errors
/// [`Error::Io`] when standard output is closed.
pub(crate) fn print(document: &impl Serialize) -> Result<()> {
    say(text(document)?.trim_end())
}

/// Prints the document of a run with `--json`: a line if it is one of several runs.
///
/// # Errors
/// As [`print`].
pub(crate) fn print_one(document: &impl Serialize, is_batch: bool) -> Result<()> {
    if is_batch { say(&line(document)?) } else { print(document) }
}

/// Writes a document as a file.
///
/// # Errors
/// [`Error::Io`].
pub(crate) fn write(path: &Path, document: &impl Serialize) -> Result<()> {
    std::fs::write(path, text(document)?).map_err(|error| Error::io(path, error))
}

thread_local! {
    /// Output of this thread that is not printed yet, if it is held.
    static HELD: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Calls `work`, whose output on this thread is returned and not printed.
pub(crate) fn held<R>(work: impl FnOnce() -> R) -> (R, String) {
    HELD.set(Some(String::new()));
    let result = work();
    (result, HELD.take().unwrap_or_default())
}

/// Prints lines of text on standard output.
///
/// # Errors
/// [`Error::Io`] when standard output is closed.
pub(crate) fn say(words: &str) -> Result<()> {
    let lines = printable(words).into_owned() + "\n";
    let is_held = HELD.with_borrow_mut(|held| match held {
        Some(held) => {
            held.push_str(&lines);
            true
        }
        None => false,
    });
    if is_held { Ok(()) } else { print_lines(&lines) }
}

/// Prints lines that were held.
///
/// # Errors
/// As [`say`].
pub(crate) fn print_lines(lines: &str) -> Result<()> {
    let mut output = std::io::stdout().lock();
    let written = output.write_all(lines.as_bytes());
    written.and_then(|()| output.flush()).map_err(|error| Error::io("standard output", error))
}
