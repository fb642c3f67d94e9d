//! State of the place of a run's product: nothing, the product of that run, or something else.
//!
//! A product is that of a run if its document has the verb, every option, the inputs and their sizes, and the version.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;
use sidereal::pipeline::Ending;
use sidereal::{Error, Result};

use super::task::{Kind, PlannedRun};
use crate::common::CommandLine;
use crate::output::{JOURNAL, beside};
use crate::provenance::Provenance;

/// Most bytes of a document.
const MOST_BYTES: u64 = 1 << 30;

/// State of a run's product.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum State {
    /// There is none.
    Absent,
    /// It is complete.
    Done,
    /// The product is complete, and its input is truncated.
    Cut,
    /// It is that of the run, which was interrupted or failed for this reason.
    Incomplete { reason: Option<String> },
    /// It is not that of the run, for this reason.
    Other(String),
}

/// Part of a document that says what it is.
#[derive(Deserialize)]
struct Made {
    provenance: Provenance,
    complete: Option<bool>,
    reason: Option<String>,
}

/// Returns the document of a product.
fn document(kind: &Kind, output: &Path) -> PathBuf {
    match kind.document {
        Some(name) => output.join(name),
        None => beside(output, ".json"),
    }
}

/// Returns the state of a run's product; `expected` is the run's command line, and `has_failed` whether a record says that the run
/// failed.
///
/// # Errors
/// [`Error::Io`].
pub(super) fn state(
    kind: &Kind,
    run: &PlannedRun,
    expected: &CommandLine,
    version: &str,
    has_failed: bool,
) -> Result<State> {
    let output = &run.output;
    let path = document(kind, output);
    let found = match fs::metadata(&path) {
        Ok(found) => found,
        Err(_) if output.symlink_metadata().is_err() => return Ok(State::Absent),
        Err(_) => {
            let why = format!("it has no {}, so what made it is unknown", path.display());
            return Ok(State::Other(why));
        }
    };
    if found.len() > MOST_BYTES {
        return Ok(State::Other(format!("{} has {} bytes", path.display(), found.len())));
    }
    let text = fs::read(&path).map_err(|error| Error::io(&path, error))?;
    let made: Made = match serde_json::from_slice(&text) {
        Ok(made) => made,
        Err(error) => {
            return Ok(State::Other(format!("{} is no document: {error}", path.display())));
        }
    };
    if let Some(why) = difference(&made.provenance, run, expected, version) {
        return Ok(State::Other(why));
    }
    let is_whole = output.symlink_metadata().is_ok();
    if is_whole && made.complete == Some(true) {
        return Ok(State::Done);
    }
    // An interrupted run leaves a journal or that reason, one that fails leaves a journal or a record.
    let may_continue = kind.document.is_some() && output.join(JOURNAL).exists();
    let is_stopped = made.reason == Ending::Stopped.reason();
    match is_whole && made.reason.is_some() && !may_continue && !is_stopped && !has_failed {
        true => Ok(State::Cut),
        false => Ok(State::Incomplete { reason: made.reason }),
    }
}

/// Returns in what a product's provenance differs from a run.
fn difference(
    found: &Provenance,
    run: &PlannedRun,
    expected: &CommandLine,
    version: &str,
) -> Option<String> {
    if found.verb != expected.verb {
        return Some(format!("{} made it, expected {}", found.verb, expected.verb));
    }
    if found.version != version {
        return Some(format!("version {} made it, expected {version}", found.version));
    }
    let names = found.options.keys().chain(expected.options.keys());
    let differs = |name: &&String| found.options.get(*name) != expected.options.get(*name);
    if let Some(name) = names.into_iter().find(differs) {
        let shown = |value: Option<&Value>| value.map_or("none".to_owned(), Value::to_string);
        let (then, now) = (found.options.get(name), expected.options.get(name));
        return Some(format!("its {name} is {}, expected {}", shown(then), shown(now)));
    }
    for input in &run.inputs {
        let path = super::manifest::file_of(&input.file).to_string_lossy();
        let read = found.inputs.iter().find(|read| read.file == path);
        // A series of files is recorded by its files.
        let bytes = read.and_then(|read| read.bytes).unwrap_or(input.bytes);
        if bytes != input.bytes {
            return Some(format!(
                "it was made of {path} with {bytes} bytes, expected {}",
                input.bytes
            ));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::estimate::Estimate;
    use super::super::task::PlannedInput;
    use super::*;

    #[test]
    fn only_the_product_of_the_same_command_and_inputs_is_done() {
        let home = tempfile::tempdir().unwrap();
        let output = home.path().join("a_search");
        let kind = Kind::of(&["search".to_owned()]).unwrap();
        let run = PlannedRun {
            command: Vec::new(),
            inputs: vec![PlannedInput { file: "a.fil".to_owned(), bytes: 9 }],
            output: output.clone(),
            estimate: Estimate::default(),
        };
        let options = json!({"inputs": ["a.fil"], "snr": 6.0});
        let expected = CommandLine {
            verb: "search".to_owned(),
            options: serde_json::from_value(options.clone()).unwrap(),
            ..CommandLine::default()
        };
        let state_after = |has_failed| state(kind, &run, &expected, "1", has_failed).unwrap();
        let state = || state_after(false);
        assert_eq!(state(), State::Absent);
        fs::create_dir(&output).unwrap();
        assert!(matches!(state(), State::Other(why) if why.contains("no ")));
        let inputs = json!([{"file": "a.fil", "bytes": 9, "head_sha256": ""}]);
        let whole = json!({
            "complete": true,
            "provenance": {"program": "sidereal", "version": "1", "verb": "search", "inputs": inputs, "options": options,
                           "given": [], "barycentred": false},
        });
        let write = |value: &Value| {
            fs::write(output.join("summary.json"), value.to_string()).unwrap();
        };
        write(&whole);
        assert_eq!(state(), State::Done);
        let changed = |path: &str, value: Value| {
            let mut other = whole.clone();
            *other.pointer_mut(path).unwrap() = value;
            write(&other);
            state()
        };
        for (path, value, word) in [
            ("/provenance/verb", json!("dedisperse"), "dedisperse made it"),
            ("/provenance/version", json!("2"), "version 2 made it, expected 1"),
            ("/provenance/options/snr", json!(7.0), "its snr is 7.0, expected 6.0"),
            ("/provenance/inputs/0/bytes", json!(8), "with 8 bytes, expected 9"),
            ("/provenance", json!(3), "no document"),
        ] {
            let found = changed(path, value);
            assert!(matches!(&found, State::Other(why) if why.contains(word)), "{found:?}");
        }
        let incomplete = |reason: &str| State::Incomplete { reason: Some(reason.to_owned()) };
        changed("/complete", json!(false));
        assert_eq!(state(), State::Incomplete { reason: None });
        for (reason, expected) in [
            ("the file ends early", State::Cut),
            ("stopped on request", incomplete("stopped on request")),
        ] {
            let mut other = whole.clone();
            other["complete"] = json!(false);
            other["reason"] = json!(reason);
            write(&other);
            assert_eq!(state(), expected);
            assert_eq!(state_after(true), incomplete(reason));
            fs::write(output.join(JOURNAL), "").unwrap();
            assert_eq!(state(), incomplete(reason));
            fs::remove_file(output.join(JOURNAL)).unwrap();
        }
    }
}
