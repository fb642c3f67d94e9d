//! JSON documents and text on standard output, and JSON files.

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

/// Prints lines of text on standard output.
///
/// # Errors
/// [`Error::Io`] when standard output is closed.
pub(crate) fn say(words: &str) -> Result<()> {
    let mut output = std::io::stdout().lock();
    let words = printable(words);
    let written = output.write_all(words.as_bytes()).and_then(|()| output.write_all(b"\n"));
    written.and_then(|()| output.flush()).map_err(|error| Error::io("standard output", error))
}
