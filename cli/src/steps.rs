//! Steps of a run and their times on standard error, if the variable `RUST_LOG` asks for them.
//!
//! `debug` has the first piece of each kind of work when it is done, and the sums at the end; `trace` has every piece. Messages for
//! users are printed anyway and are no steps.

use std::sync::{Mutex, MutexGuard, PoisonError};

use sidereal::trace::{Ended, Work, observe};
use tracing::Level;
use tracing_subscriber::filter::{LevelFilter, Targets};

/// Variable with the level, or levels by target: `debug`, `sidereal=trace,info`.
const VARIABLE: &str = "RUST_LOG";

/// Target of messages, which are printed by other means.
pub(crate) const MESSAGES: &str = "sidereal_cli::say";

/// Work of one name.
#[derive(Clone, Copy, Debug)]
struct Sum {
    work: Work,
    name: &'static str,
    pieces: u64,
    elapsed_s: f64,
    bytes: u64,
}

static SUMS: Mutex<Vec<Sum>> = Mutex::new(Vec::new());

/// Returns the sums of the run's steps.
fn sums() -> MutexGuard<'static, Vec<Sum>> {
    SUMS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the levels that the user asks for; `None` without the variable.
///
/// # Errors
/// The reason why its value has no meaning.
pub(crate) fn wanted() -> Result<Option<Targets>, String> {
    let Some(words) = std::env::var_os(VARIABLE) else { return Ok(None) };
    parse(&words.to_string_lossy())
}

/// Parses the value of the variable; `None` if it is empty.
fn parse(words: &str) -> Result<Option<Targets>, String> {
    if words.trim().is_empty() {
        return Ok(None);
    }
    let fault = |why: &str| {
        format!(
            "{VARIABLE} is \"{words}\" ({why}), expected off, error, warn, info, debug or trace, or TARGET=LEVEL,..."
        )
    };
    // A single word that is no level would be a target, and say nothing.
    let is_level = |part: &str| part.contains(['=', ':']) || part.parse::<LevelFilter>().is_ok();
    if let Some(part) = words.split(',').map(str::trim).find(|part| !is_level(part)) {
        return Err(fault(&format!("{part} is no level")));
    }
    let targets: Targets = words.parse().map_err(|error| fault(&format!("{error}")))?;
    Ok(Some(targets.with_target(MESSAGES, LevelFilter::OFF)))
}

/// Begins to report steps, if a subscriber wants them.
pub(crate) fn begin() {
    sums().clear();
    if tracing::enabled!(target: "sidereal::steps", Level::DEBUG) {
        observe(ended);
    }
}

/// Reports a piece of work.
fn ended(piece: &Ended) {
    let Ended { work, name, elapsed_s, bytes } = *piece;
    let is_first = {
        let mut sums = sums();
        match sums.iter_mut().find(|sum| sum.name == name && sum.work == work) {
            Some(sum) => {
                sum.pieces += 1;
                sum.elapsed_s += elapsed_s;
                sum.bytes += bytes;
                false
            }
            None => {
                sums.push(Sum { work, name, pieces: 1, elapsed_s, bytes });
                true
            }
        }
    };
    let kind = work.name();
    let size = size(bytes);
    match is_first {
        true => {
            tracing::debug!(target: "sidereal::steps", "{kind}: {name}: {elapsed_s:.6} s{size}")
        }
        false => {
            tracing::trace!(target: "sidereal::steps", "{kind}: {name}: {elapsed_s:.6} s{size}")
        }
    }
}

/// Reports the sums of all work.
pub(crate) fn finish() {
    for sum in sums().drain(..).filter(|sum| sum.pieces > 1) {
        let Sum { work, name, pieces, elapsed_s, bytes } = sum;
        let (kind, size) = (work.name(), size(bytes));
        tracing::debug!(target: "sidereal::steps", "{kind}: {name}: {elapsed_s:.6} s in {pieces} pieces{size}");
    }
}

fn size(bytes: u64) -> String {
    if bytes == 0 { String::new() } else { format!(", {:.3} MB", bytes as f64 * 1e-6) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_read() {
        let enables = |words: &str, target: &str, level| {
            let targets = parse(words).unwrap();
            targets.is_some_and(|targets| targets.would_enable(target, &level))
        };
        for words in ["debug", "trace", "sidereal=debug", "off,sidereal::steps=debug"] {
            assert!(enables(words, "sidereal::steps", Level::DEBUG), "{words}");
            assert!(!enables(words, MESSAGES, Level::INFO), "{words}");
        }
        for words in ["", " ", "info", "off", "other=trace"] {
            assert!(!enables(words, "sidereal::steps", Level::DEBUG), "{words}");
        }
        assert!(parse("loud").unwrap_err().contains("loud is no level"));
        let fault = parse("sidereal=loud").unwrap_err();
        assert!(
            fault.contains("RUST_LOG is \"sidereal=loud\"") && fault.contains("expected"),
            "{fault}"
        );
    }
}
