//! `bench telescopes --live`: the spectra of each telescope through the loopback interface to `sidereal live search`, at their own rate.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use serde_json::Value;
use sidereal::simulate::Telescope;
use sidereal::{Error, Result};

use super::observation::{Arguments, Observation, SECONDS, Scratch, has_burst, summary};
use crate::loopback::{Sending, await_port, failed, free_port};
use crate::runner::{Rates, Run, Session, say};

const FOOT: &str = "\
lost: part of the spectra that was not searched, since the search or the receiver was too slow. after the end: seconds from the last
packet to the end of the search.";

/// Runs the benchmark.
pub(super) fn run(
    rate: f64,
    chosen: &[&'static Telescope],
    arguments: &Arguments,
    session: &Session<'_>,
) -> Result<()> {
    if !(rate > 0.0 && rate <= 1e6) {
        return Err(Error::parameter("--live", rate, "it must be above 0, 1e6 at most"));
    }
    let seconds = arguments.seconds.unwrap_or(SECONDS);
    let mut run = Run::hidden(session, arguments.csv.as_deref());
    if session.talks() {
        say(&format!(
            "{:<16} {:>6} {:>7} {:>7} {:>9} {:>9} {:>15} {:>6}",
            "telescope", "rfi", "MB/s", "data/s", "of rate", "lost", "after the end/s", "found"
        ))?;
    }
    for telescope in chosen {
        let observation = Observation::new(telescope, arguments, seconds)?;
        let (work, recording) = Scratch::recorded(&observation, arguments, session)?;
        for rfi in ["none", "auto"] {
            let played = play(&observation, &recording, &work.0, rfi, rate, session)?;
            let found = has_burst(&played.summary, &observation.burst);
            let rates = Rates::once(rate * (1.0 - played.lost), rate, 0.0);
            let case = format!("{}, live, --rfi {rfi}", telescope.name);
            let row = rates.row("telescopes", case, &session.backend, "x real time", found);
            if session.talks() {
                let bytes_per_s = telescope.channels as f64 / telescope.tsamp_s() * rate;
                say(&format!(
                    "{:<16} {rfi:>6} {:>7.1} {:>7.1} {rate:>9} {:>9.5} {:>15.2} {:>6}",
                    telescope.name,
                    bytes_per_s * 1e-6,
                    observation.seconds,
                    played.lost,
                    played.after_s,
                    if found { "yes" } else { "NO" },
                ))?;
            }
            run.push(row.beside("x real time sent"))?;
        }
    }
    if session.talks() {
        say(FOOT)?;
    }
    run.finish()
}

/// Live search of a recording.
struct Played {
    /// Part of the samples that was not searched.
    lost: f64,
    after_s: f64,
    summary: Value,
}

/// Sends a recording to a search with a value of `--rfi`.
fn play(
    observation: &Observation,
    recording: &Path,
    folder: &Path,
    rfi: &str,
    rate: f64,
    session: &Session<'_>,
) -> Result<Played> {
    let program = std::env::current_exe().map_err(|source| Error::io("sidereal", source))?;
    let (port, output) = (free_port()?, folder.join(format!("live-{rfi}")));
    let mut search = Command::new(&program)
        .args(["live", "search", &format!("spead://127.0.0.1:{port}"), "--observations", "1"])
        .args(observation.options(rfi))
        .args(["--threads", &session.threads.to_string(), "--device", &session.device()])
        .arg("-o")
        .arg(&output)
        .stdout(Stdio::null())
        .spawn()
        .map_err(|source| Error::io(&program, source))?;
    let sending = Sending { path: recording, repeats: 1, rate, port, session };
    let sent = await_port(port, &mut search).and_then(|()| sending.run());
    let end = Instant::now();
    if sent.is_err() {
        let _ = search.kill();
    }
    let ended = search.wait().map_err(|source| Error::io(&program, source))?;
    let after_s = end.elapsed().as_secs_f64();
    sent?;
    if !ended.success() {
        return Err(failed(format!("it ended with {ended}")));
    }
    let summary = summary(&only_folder(&output)?)?;
    let gaps = summary["gaps"].as_array().map(Vec::as_slice).unwrap_or_default();
    let lost_s: f64 = gaps.iter().filter_map(|gap| gap["length_s"].as_f64()).sum();
    // The sum of none is -0.
    Ok(Played { lost: lost_s.abs() / observation.seconds, after_s, summary })
}

/// Returns the only folder in a folder: that of the observation.
fn only_folder(folder: &Path) -> Result<PathBuf> {
    let entries = std::fs::read_dir(folder).map_err(|source| Error::io(folder, source))?;
    let mut folders = entries.flatten().map(|entry| entry.path()).filter(|path| path.is_dir());
    match (folders.next(), folders.next()) {
        (Some(only), None) => Ok(only),
        _ => Err(failed(format!("it wrote no single observation to {}", folder.display()))),
    }
}
