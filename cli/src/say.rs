//! Messages on standard error, also written to the log with `--log-file`.
//!
//! Text from headers and file names passes [`sidereal::io::printable`], so that no control character reaches a
//! terminal.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use sidereal::io::printable;
use sidereal::{Error, Result};
use tracing::Level;
use tracing_subscriber::Layer as _;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::time::uptime;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::flags::named;
use crate::steps;

/// Prints information for the user: `sidereal: WORDS`.
macro_rules! note {
    ($($words:tt)*) => { $crate::say::line(::tracing::Level::INFO, "", ::std::format_args!($($words)*)) };
}
/// Warns that results may be worse than expected: `sidereal: warning: WORDS`; a quiet run only logs it.
macro_rules! warning {
    (quiet: $quiet:expr, $($words:tt)*) => { $crate::say::warn($quiet, ::std::format_args!($($words)*)) };
}
/// Reports the reason of a failure: `sidereal: WORDS`.
macro_rules! fault {
    ($($words:tt)*) => { $crate::say::line(::tracing::Level::ERROR, "", ::std::format_args!($($words)*)) };
}
/// Continues the previous message with a line as it is.
macro_rules! more {
    ($($words:tt)*) => { $crate::say::more_line(::std::format_args!($($words)*)) };
}
pub(crate) use {fault, more, note, warning};

/// Number of this process among those of the run.
static RANK: AtomicUsize = AtomicUsize::new(0);

/// Returns the number of this process among those of the run; 0 for a process that is alone.
pub(crate) fn rank() -> usize {
    RANK.load(Ordering::Relaxed)
}

/// Sets the number of this process; messages of others than 0 begin with it from now on.
pub(crate) fn set_rank(rank: usize) {
    RANK.store(rank, Ordering::Relaxed);
}

/// Prints a line of a level.
pub(crate) fn line(level: Level, mark: &str, words: fmt::Arguments<'_>) {
    let words = words.to_string();
    let words = printable(&words);
    let rank = match rank() {
        0 => String::new(),
        rank => format!("rank {rank}: "),
    };
    to_stderr(format_args!("sidereal: {rank}{mark}{words}"));
    log(level, &format!("{rank}{words}"));
}

/// Prints a warning; a quiet run only logs it.
pub(crate) fn warn(quiet: bool, words: fmt::Arguments<'_>) {
    if quiet {
        log(Level::WARN, &printable(&words.to_string()));
    } else {
        line(Level::WARN, "warning: ", words);
    }
}

/// Warnings about recordings printed so far.
static SAID: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Prints a recording's warnings, and the missing part if it is truncated.
pub(crate) fn warn_of_recording(warnings: &[String], cut: Option<&str>, quiet: bool) {
    for warning in warnings.iter().map(String::as_str).chain(cut) {
        warn_once(warning, quiet);
    }
}

/// Prints a warning about a recording, unless it was printed before.
pub(crate) fn warn_once(warning: &str, quiet: bool) {
    let mut said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
    if !said.iter().any(|one| one == warning) {
        warning!(quiet: quiet, "{}", sentence(&named(warning)));
        said.push(warning.to_owned());
    }
}

/// Prints a continuation line with its own indent.
pub(crate) fn more_line(words: fmt::Arguments<'_>) {
    let words = words.to_string();
    let words = printable(&words);
    to_stderr(format_args!("{words}"));
    log(Level::INFO, words.trim());
}

/// Writes a line only to the log.
pub(crate) fn log(level: Level, words: &str) {
    let words = words.replace('\n', " ");
    match level {
        Level::ERROR => tracing::error!("{words}"),
        Level::WARN => tracing::warn!("{words}"),
        _ => tracing::info!("{words}"),
    }
}

/// Ignores errors: a closed standard error does not fail the run.
fn to_stderr(words: fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stderr().lock(), "{words}");
}

/// Appends messages to a log file from now on, if one is given, and prints the steps that `RUST_LOG` asks for.
///
/// # Errors
/// [`Error::Parameter`] for a file that is not a log; [`Error::Io`].
pub(crate) fn begin(log_file: Option<&Path>) -> Result<()> {
    let wanted = steps::wanted().unwrap_or_else(|why| {
        warning!(quiet: false, "{why}; no steps are shown.");
        None
    });
    if log_file.is_none() && wanted.is_none() {
        return Ok(());
    }
    let file = log_file.map(open_log).transpose()?;
    let log = file.map(|file| {
        // A log on a full disk must not end the run.
        let log = tracing_subscriber::fmt::layer()
            .with_writer(Arc::new(file))
            .with_ansi(false)
            .with_target(false)
            .log_internal_errors(false);
        log.with_filter(Targets::new().with_target(steps::MESSAGES, LevelFilter::INFO))
    });
    let shown = wanted.map(|wanted| {
        let shown = tracing_subscriber::fmt::layer()
            .with_writer(std::io::stderr)
            .with_timer(uptime())
            .with_ansi(false)
            .log_internal_errors(false);
        shown.with_filter(wanted)
    });
    // Fails only if a log was begun before.
    let _ = tracing_subscriber::registry().with(log).with(shown).try_init();
    steps::begin();
    Ok(())
}

/// Opens a log file: UTC time, level and words, one event per line.
fn open_log(path: &Path) -> Result<File> {
    let failed = |error| Error::io(path, error);
    if path.metadata().is_ok_and(|found| found.is_file()) {
        let mut first = Vec::new();
        File::open(path).and_then(|file| file.take(11).read_to_end(&mut first)).map_err(failed)?;
        if !(first.is_empty() || is_date(&first)) {
            let rule = "it holds something else than log lines; give another name";
            return Err(Error::parameter("--log-file", path.display(), rule));
        }
    }
    OpenOptions::new().create(true).append(true).open(path).map_err(failed)
}

/// Returns whether bytes begin as a log line does: `2026-11-23T`.
fn is_date(bytes: &[u8]) -> bool {
    let fits = |(byte, form): (&u8, &u8)| match form {
        b'0' => byte.is_ascii_digit(),
        form => byte == form,
    };
    bytes.len() == 11 && bytes.iter().zip(b"0000-00-00T").all(fits)
}

/// Ends a message with a full stop, unless it has one or ends with lines to type.
pub(crate) fn sentence(words: &str) -> String {
    // Keeps lines that the user should type unchanged.
    let is_typed = words.lines().last().is_some_and(|line| line.starts_with("    "));
    if is_typed || words.ends_with(['.', '!', '?']) {
        words.to_owned()
    } else {
        format!("{words}.")
    }
}
