//! Lines on standard error, which are log lines too where `--log-file` is given.
//!
//! Text from headers and file names passes [`sidereal::io::printable`], so that no control character reaches a terminal.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use sidereal::io::printable;
use sidereal::{Error, Result};
use tracing::Level;

use crate::common::Common;
use crate::errors;

/// Says what a user may want to know: `sidereal: WORDS`.
macro_rules! note {
    ($($words:tt)*) => { $crate::say::line(::tracing::Level::INFO, "", ::std::format_args!($($words)*)) };
}
/// Says what may make results less than expected: `sidereal: warning: WORDS`; in a quiet run in the log alone.
macro_rules! warning {
    (quiet: $quiet:expr, $($words:tt)*) => { $crate::say::warn($quiet, ::std::format_args!($($words)*)) };
}
/// Says why a run failed: `sidereal: WORDS`.
macro_rules! fault {
    ($($words:tt)*) => { $crate::say::line(::tracing::Level::ERROR, "", ::std::format_args!($($words)*)) };
}
/// Says more of the line before, as it stands.
macro_rules! more {
    ($($words:tt)*) => { $crate::say::more_line(::std::format_args!($($words)*)) };
}
pub(crate) use {fault, more, note, warning};

/// Says a line of a level.
pub(crate) fn line(level: Level, mark: &str, words: fmt::Arguments<'_>) {
    let words = words.to_string();
    let words = printable(&words);
    to_stderr(format_args!("sidereal: {mark}{words}"));
    log(level, &words);
}

/// Says a warning; in a quiet run in the log alone.
pub(crate) fn warn(quiet: bool, words: fmt::Arguments<'_>) {
    if quiet {
        log(Level::WARN, &printable(&words.to_string()));
    } else {
        line(Level::WARN, "warning: ", words);
    }
}

/// Warnings about recordings that were said.
static SAID: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Warns of what a recording says of itself, and of what it lacks where it is cut short.
pub(crate) fn warn_of_recording(warnings: &[String], cut: Option<&str>, common: &Common) {
    for warning in warnings.iter().map(String::as_str).chain(cut) {
        warn_once(warning, common.quiet);
    }
}

/// Says a warning about a recording, unless it was said before.
pub(crate) fn warn_once(warning: &str, quiet: bool) {
    let mut said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
    if !said.iter().any(|one| one == warning) {
        warning!(quiet: quiet, "{}", errors::sentence(&errors::named(warning)));
        said.push(warning.to_owned());
    }
}

/// Says a further line, with the indent that it brings.
pub(crate) fn more_line(words: fmt::Arguments<'_>) {
    let words = words.to_string();
    let words = printable(&words);
    to_stderr(format_args!("{words}"));
    log(Level::INFO, words.trim());
}

/// Writes a line to the log alone.
pub(crate) fn log(level: Level, words: &str) {
    let words = words.replace('\n', " ");
    match level {
        Level::ERROR => tracing::error!("{words}"),
        Level::WARN => tracing::warn!("{words}"),
        _ => tracing::info!("{words}"),
    }
}

/// Standard error that is closed is no fault of the run.
fn to_stderr(words: fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stderr().lock(), "{words}");
}

/// Appends to a log file from now on: UTC time, level and words, one event a line.
///
/// # Errors
/// [`Error::Parameter`] for a file that holds something else than a log; [`Error::Io`].
pub(crate) fn log_to(path: &Path) -> Result<()> {
    let failed = |error| Error::io(path, error);
    if path.metadata().is_ok_and(|found| found.is_file()) {
        let mut first = Vec::new();
        File::open(path).and_then(|file| file.take(11).read_to_end(&mut first)).map_err(failed)?;
        if !(first.is_empty() || is_date(&first)) {
            let rule = "it holds something else than log lines; give another name";
            return Err(Error::parameter("--log-file", path.display(), rule));
        }
    }
    let file = OpenOptions::new().create(true).append(true).open(path).map_err(failed)?;
    // A log on a full disk must not end the run that it is of.
    let log = tracing_subscriber::fmt()
        .with_writer(Arc::new(file))
        .with_ansi(false)
        .with_target(false)
        .log_internal_errors(false)
        .finish();
    // It fails only where a log was begun before.
    let _ = tracing::subscriber::set_global_default(log);
    Ok(())
}

/// Whether bytes begin as a log line does: `2026-11-23T`.
fn is_date(bytes: &[u8]) -> bool {
    let fits = |(byte, form): (&u8, &u8)| match form {
        b'0' => byte.is_ascii_digit(),
        form => byte == form,
    };
    bytes.len() == 11 && bytes.iter().zip(b"0000-00-00T").all(fits)
}
