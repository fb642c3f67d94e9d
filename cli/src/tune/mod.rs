//! `sidereal tune`: finds the fastest tuning candidate of each kernel on this GPU for one plan.

mod bench;
mod channelize;
mod correlate;
mod dedisperse;
mod spiir;

use std::fmt::Write as _;

use clap::{Args, Subcommand};
use serde::Serialize;
use sidereal::backend::Backend;
use sidereal::backend::cuda::tune;
use sidereal::backend::cuda::tune::{Measured, Tuned};
use sidereal::{Error, Result};

use crate::common::Common;
use crate::json;
use crate::say::note;
pub(crate) use bench::Bench;

/// Tune a plan's GPU kernels: measure, and cache the fastest.
///
/// All candidates give the same bits, which is checked. The tuned choices are cached in $SIDEREAL_CACHE_DIR, or else
/// in ~/.cache/sidereal, by kernel, GPU, driver and plan; without a cached choice, a model chooses.
#[derive(Args, Debug)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
    /// Measure, but cache nothing.
    #[arg(long, global = true)]
    dry_run: bool,
    /// Size of each run's input, in MiB: more than the caches hold.
    #[arg(long, global = true, default_value_t = 256, value_name = "MIB")]
    working_set: usize,
}

#[derive(Subcommand, Debug)]
enum Command {
    Channelize(channelize::Arguments),
    Correlate(correlate::Arguments),
    Dedisperse(Box<dedisperse::Arguments>),
    Spiir(spiir::Arguments),
}

/// Results of one kernel of a plan, as JSON.
#[derive(Serialize)]
struct Document {
    kernel: String,
    shape: String,
    device: String,
    choices: Vec<Line>,
    best: Option<String>,
    stored: bool,
}

#[derive(Serialize)]
struct Line {
    choice: String,
    values: Vec<u32>,
    seconds: Option<f64>,
    median_s: Option<f64>,
    error: Option<String>,
}

/// Runs the verb.
pub(crate) fn run(arguments: &Arguments, common: &Common) -> Result<()> {
    if !(1..=1 << 16).contains(&arguments.working_set) {
        return Err(Error::parameter(
            "--working-set",
            arguments.working_set,
            "it must be 1 to 65536 MiB",
        ));
    }
    let bench = Bench::new(common, arguments.working_set << 20)?;
    let tuned = match &arguments.command {
        Command::Channelize(options) => options.tune(&bench, common)?,
        Command::Correlate(options) => options.tune(&bench, common)?,
        Command::Dedisperse(options) => options.tune(&bench, common)?,
        Command::Spiir(options) => options.tune(&bench, common)?,
    };
    let (mut documents, mut kept) = (Vec::new(), Ok(()));
    for tuned in &tuned {
        // Report the measurements even if they cannot be cached.
        let is_wanted = !arguments.dry_run && tuned.best().is_some() && kept.is_ok();
        if is_wanted {
            kept = keep(tuned);
        }
        documents.push(document(tuned, &bench.backend, is_wanted && kept.is_ok()));
    }
    if common.json {
        json::print(&documents)?;
    } else if !common.quiet {
        json::say(table(&documents).trim_end())?;
    }
    let refused = refused(&documents);
    if let (Err(_), Err(why)) = (&refused, &kept) {
        note!("{why}");
    }
    refused.and(kept)
}

/// Caches the best candidate; if the folder cannot be written, the error says what helps.
fn keep(tuned: &Tuned) -> Result<()> {
    tune::store(tuned).map_err(|error| match error {
        Error::Io { path, source } => Error::Unavailable {
            what: format!("a place for tuned choices ({})", path.display()),
            why: format!("{source}; mend that, or name another folder in SIDEREAL_CACHE_DIR"),
        },
        other => other,
    })
}

fn document(tuned: &Tuned, backend: &Backend, stored: bool) -> Document {
    let line = |measured: &Measured| Line {
        choice: measured.choice.name.clone(),
        values: measured.choice.values.clone(),
        seconds: measured.seconds.as_ref().ok().map(|seconds| seconds.0),
        median_s: measured.seconds.as_ref().ok().map(|seconds| seconds.1),
        error: measured.seconds.as_ref().err().cloned(),
    };
    Document {
        kernel: tuned.kernel().to_owned(),
        shape: tuned.shape().to_owned(),
        device: backend.name(),
        choices: tuned.measured.iter().map(line).collect(),
        best: tuned.best().map(|(choice, _)| choice.name.clone()),
        stored,
    }
}

fn table(documents: &[Document]) -> String {
    if documents.is_empty() {
        return "There is nothing to choose for this plan.".to_owned();
    }
    let mut text = String::new();
    for document in documents {
        let _ = writeln!(text, "{}, {}, on {}", document.kernel, document.shape, document.device);
        let _ = writeln!(text, "  {:<40}{:>12}{:>12}", "choice", "best ms", "median ms");
        for line in &document.choices {
            let _ = match (line.seconds, line.median_s, &line.error) {
                (Some(best), Some(median), _) => {
                    let mark =
                        if document.best.as_ref() == Some(&line.choice) { "  *" } else { "" };
                    let (best, median) = (1e3 * best, 1e3 * median);
                    writeln!(text, "  {:<40}{best:>12.4}{median:>12.4}{mark}", line.choice)
                }
                (.., why) => {
                    let why = why.as_deref().unwrap_or_default();
                    writeln!(text, "  {:<40}can't be launched: {why}", line.choice)
                }
            };
        }
        let kept = if document.stored { "kept" } else { "not kept" };
        let _ = writeln!(text, "  * the fastest, {kept}\n");
    }
    text
}

/// Fails if a candidate could not be launched: the stage that offered it is at fault.
fn refused(documents: &[Document]) -> Result<()> {
    let lines = documents.iter().flat_map(|document| &document.choices);
    let refused: Vec<&str> =
        lines.filter(|line| line.error.is_some()).map(|line| line.choice.as_str()).collect();
    if refused.is_empty() {
        return Ok(());
    }
    Err(Error::Unavailable {
        what: refused.join("; "),
        why: "these choices are offered, but can't be launched on this GPU".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn documents() -> Vec<Document> {
        let line = |choice: &str, seconds: Option<f64>| Line {
            choice: choice.to_owned(),
            values: vec![1],
            seconds,
            median_s: seconds,
            error: seconds.is_none().then(|| "too much shared memory".to_owned()),
        };
        vec![Document {
            kernel: "tile.cu".to_owned(),
            shape: "channels=1024".to_owned(),
            device: "cuda:0".to_owned(),
            choices: vec![line("small", Some(2e-3)), line("large", None)],
            best: Some("small".to_owned()),
            stored: true,
        }]
    }

    #[test]
    fn the_table_marks_the_best_and_names_what_failed() {
        let text = table(&documents());
        let best = text.lines().find(|line| line.ends_with('*')).expect("one is the best");
        assert!(best.contains("small") && best.contains("2.0000"), "{text}");
        assert!(text.contains("can't be launched: too much shared memory"), "{text}");
        assert!(table(&[]).contains("nothing to choose"));
    }

    #[test]
    fn a_choice_that_can_not_be_launched_is_an_error() {
        let mut documents = documents();
        let error = refused(&documents).expect_err("one failed").to_string();
        assert!(error.contains("large") && !error.contains("small"), "{error}");
        documents[0].choices.pop();
        assert!(refused(&documents).is_ok());
    }
}
