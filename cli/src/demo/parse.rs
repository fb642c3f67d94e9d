//! Arguments of the verbs that the demo calls.

use std::ffi::OsString;
use std::path::Path;

use clap::{Args, FromArgMatches};
use sidereal::{Error, Result};

/// Parses a verb's arguments from a path and lines of words.
pub(crate) fn parse<A: Args + FromArgMatches>(
    before: &[&str],
    path: &Path,
    lines: &[&str],
) -> Result<A> {
    let words = lines.iter().flat_map(|line| line.split(' ')).map(Into::into);
    let before = std::iter::once("verb").chain(before.iter().copied()).map(Into::into);
    let all: Vec<OsString> =
        before.chain(std::iter::once(path.as_os_str().to_owned())).chain(words).collect();
    parse_words(all)
}

/// Parses a verb's arguments from words, the first of which is the verb.
pub(crate) fn parse_words<A: Args + FromArgMatches>(all: Vec<OsString>) -> Result<A> {
    let command = A::augment_args(clap::Command::new("verb"));
    let matches = command.try_get_matches_from(all);
    matches
        .and_then(|matches| A::from_arg_matches(&matches))
        .map_err(|error| Error::Unavailable { what: "the demo".to_owned(), why: error.to_string() })
}
