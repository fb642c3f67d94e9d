//! Time from mergers to the lines of `sidereal live spiir`, in its parts.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sidereal::strain::Binary;
use sidereal::{Error, Result};

use super::setup::{Count, START_S, Setup, row};
use crate::runner::{Session, quantile};

/// Latencies of a run.
pub(super) struct Latencies {
    pub(super) count: Count,
    /// S/N of the mergers in all detectors.
    network_snr: f64,
    /// Latency of triggers after their strain, by the search's own account.
    algorithms_s: f64,
    /// The parts of each event, in ascending order.
    waiting_s: Vec<f64>,
    delivery_s: Vec<f64>,
    computing_s: Vec<f64>,
    total_s: Vec<f64>,
}

/// Frame of all detectors: its end, in seconds from the start of the strain, and the time at which the last file was renamed.
#[derive(Clone, Copy, Debug)]
struct Delivered {
    end_s: f64,
    due: Instant,
    at: Instant,
}

/// Line of an event.
struct Line {
    at: Instant,
    gps: f64,
    network_snr: f64,
}

/// Part of a merger's S/N above which an event is the merger's, and largest difference of their times.
const PART: f64 = 0.6;
const NEAR_S: f64 = 0.05;

/// Time from the search's readiness to the start of the first frame.
const LEAD: Duration = Duration::from_millis(200);

/// Time between looks at requests to stop.
const STEP: Duration = Duration::from_millis(200);

/// Makes frames of noise and mergers, starts a search, and delivers each frame when its last sample would have been recorded.
pub(super) fn measure(
    setup: &Setup,
    binaries: &[Binary],
    session: &Session<'_>,
) -> Result<Latencies> {
    let folder = match &setup.folder {
        Some(folder) => tempfile::tempdir_in(folder),
        None => tempfile::tempdir(),
    };
    let folder = folder.map_err(|error| Error::io("folder of the benchmark", error))?;
    let _held = session.caller.hold(folder.path());
    let place = folder.path();
    write(&place.join("templates.csv"), &table(binaries))?;
    write(&place.join("mergers.csv"), &setup.injections())?;
    setup.simulate(place)?;
    for detector in &setup.detectors {
        let watched = place.join("live").join(detector);
        fs::create_dir_all(&watched).map_err(|error| Error::io(&watched, error))?;
    }
    let mut search = Search::start(setup, place, session)?;
    let delivered = search.is_ready(session).and_then(|()| setup.deliver(place, session));
    if delivered.is_err() {
        let _ = search.child.kill();
    }
    let lines = search.end();
    let delivered = delivered?;
    let lines = lines?;
    let truth = document(&place.join("made/truth.json"))?;
    let events = document(&place.join("found").join(START_S.to_string()).join("events.json"))?;
    setup.measured(&truth, &events, &delivered, &lines)
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).map_err(|error| Error::io(path, error))
}

/// Returns the templates as a table that `live spiir` reads.
fn table(binaries: &[Binary]) -> String {
    let line = |one: &Binary| {
        let Binary { mass1_msun, mass2_msun, spin1z, spin2z } = one;
        format!("{mass1_msun},{mass2_msun},{spin1z},{spin2z}\n")
    };
    "mass1,mass2,spin1z,spin2z\n".to_owned() + &binaries.iter().map(line).collect::<String>()
}

fn document(path: &Path) -> Result<Value> {
    let text = fs::read_to_string(path).map_err(|error| Error::io(path, error))?;
    serde_json::from_str(&text).map_err(|error| failed(format!("{}: {error}", path.display())))
}

/// Returns a command of this program.
fn program() -> Result<Command> {
    std::env::current_exe().map(Command::new).map_err(|error| Error::io("sidereal", error))
}

/// Returns the error of a program that failed.
fn failed(why: String) -> Error {
    Error::Unavailable { what: "sidereal live spiir".into(), why }
}

impl Setup {
    /// Writes the frames of all detectors to the folder `made`.
    fn simulate(&self, place: &Path) -> Result<()> {
        let mut command = program()?;
        command.args(["simulate", "strain", "--live", "made", "--speed", "0", "--seed", "7", "-q"]);
        command.args(["--injections", "mergers.csv", "--detectors", &self.detectors.join(",")]);
        command.args(["--rate", &self.rate.to_string(), "--frame", &self.frame.to_string()]);
        command.args(["--start", &START_S.to_string(), "--length", &self.seconds.to_string()]);
        let ended = command.current_dir(place).status();
        let ended = ended.map_err(|error| Error::io("sidereal simulate strain", error))?;
        match ended.success() {
            true => Ok(()),
            false => Err(failed(format!("the strain was not made: {ended}"))),
        }
    }

    /// Renames each frame into its detector's folder when its last sample would have been recorded.
    fn deliver(&self, place: &Path, session: &Session<'_>) -> Result<Vec<Delivered>> {
        let mut names: Vec<Vec<PathBuf>> = Vec::new();
        for detector in &self.detectors {
            let made = place.join("made").join(detector);
            let entries = fs::read_dir(&made).map_err(|error| Error::io(&made, error))?;
            let mut own: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
            own.sort();
            names.push(own);
        }
        let begin = Instant::now() + LEAD;
        let frames = names.iter().map(Vec::len).min().unwrap_or(0);
        let mut delivered = Vec::with_capacity(frames);
        for index in 0..frames {
            let end_s = (index + 1) as f64 * self.frame;
            let due = begin + Duration::from_secs_f64(end_s);
            loop {
                session.caller.check_interrupt()?;
                match due.saturating_duration_since(Instant::now()) {
                    Duration::ZERO => break,
                    left => sleep(left.min(STEP)),
                }
            }
            for (detector, own) in self.detectors.iter().zip(&names) {
                let from = &own[index];
                let to = place.join("live").join(detector);
                let to = to.join(from.file_name().unwrap_or_default());
                fs::rename(from, &to).map_err(|error| Error::io(&to, error))?;
            }
            delivered.push(Delivered { end_s, due, at: Instant::now() });
        }
        Ok(delivered)
    }

    /// Divides the time from each merger to the first line of its event into parts.
    fn measured(
        &self,
        truth: &Value,
        events: &Value,
        delivered: &[Delivered],
        lines: &[Line],
    ) -> Result<Latencies> {
        let number = |value: &Value, what: &str| {
            value.as_f64().ok_or_else(|| failed(format!("{what} is missing from a document")))
        };
        let algorithms_s = number(&events["latency_s"]["total"], "the latency of the search")?;
        let network_snr = number(&truth["events"][0]["network_snr"], "the S/N of the mergers")?;
        let mergers: Vec<f64> = self.mergers().collect();
        let mut latencies = Latencies {
            count: Count { found: 0, mergers: mergers.len() },
            network_snr,
            algorithms_s,
            waiting_s: Vec::new(),
            delivery_s: Vec::new(),
            computing_s: Vec::new(),
            total_s: Vec::new(),
        };
        for time_s in mergers {
            let gps = START_S as f64 + time_s;
            let is_its = |line: &&Line| {
                (line.gps - gps).abs() < NEAR_S && line.network_snr > PART * network_snr
            };
            let Some(line) = lines.iter().find(is_its) else { continue };
            // The frame with the strain that decides the event; one before it if the latency is less than its bound.
            let decides = |frame: &&Delivered| frame.end_s >= time_s + algorithms_s;
            let later = delivered.iter().find(decides).filter(|frame| frame.at <= line.at);
            let before = delivered.iter().rev().find(|frame| frame.at <= line.at);
            let Some(frame) = later.or(before) else { continue };
            let seconds = |from: Instant, to: Instant| (to - from).as_secs_f64();
            latencies.count.found += 1;
            latencies.waiting_s.push(frame.end_s - time_s - algorithms_s);
            latencies.delivery_s.push(seconds(frame.due, frame.at));
            latencies.computing_s.push(seconds(frame.at, line.at));
            latencies.total_s.push(frame.end_s - time_s + seconds(frame.due, line.at));
        }
        latencies.parts_mut().into_iter().for_each(|part| part.sort_by(f64::total_cmp));
        Ok(latencies)
    }
}

/// Search that is measured.
struct Search {
    child: Child,
    reading: thread::JoinHandle<Result<Vec<Line>>>,
    /// Lines of its standard error.
    notes: Receiver<String>,
}

/// Note of a search whose filters are there.
const READY: &str = "waiting for frames";

/// Longest time until then: the design of all filters.
const LONGEST: Duration = Duration::from_secs(3600);

impl Search {
    fn start(setup: &Setup, place: &Path, session: &Session<'_>) -> Result<Self> {
        let mut command = program()?;
        command.args(["live", "spiir", "--templates", "templates.csv", "-o", "found"]);
        for detector in &setup.detectors {
            command.args(["--frames", &format!("{detector}=live/{detector}")]);
        }
        let until = START_S + i64::from(setup.seconds);
        command.args(["--rate", &setup.rate.to_string(), "--until", &until.to_string()]);
        command.args(["--f-low", &setup.f_low.to_string()]);
        command.args(["--checkpoint", &setup.checkpoint.to_string()]);
        command.args(["--threads", &session.threads.to_string(), "--device", &session.device()]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).current_dir(place);
        let mut child = command.spawn().map_err(|error| Error::io("sidereal", error))?;
        let (Some(output), Some(errors)) = (child.stdout.take(), child.stderr.take()) else {
            return Err(failed("its output was not opened".into()));
        };
        let reading = thread::spawn(move || lines(output));
        Ok(Self { child, reading, notes: notes(errors) })
    }

    /// Waits until the filters have been designed.
    fn is_ready(&self, session: &Session<'_>) -> Result<()> {
        let (begin, mut said) = (Instant::now(), String::new());
        while begin.elapsed() < LONGEST {
            session.caller.check_interrupt()?;
            match self.notes.recv_timeout(STEP) {
                Ok(note) if note.contains(READY) => return Ok(()),
                Ok(note) => said = note,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(failed(said)),
            }
        }
        Err(failed("it has no filters after an hour".into()))
    }

    /// Waits for the end; returns the lines.
    fn end(mut self) -> Result<Vec<Line>> {
        let ended = self.child.wait().map_err(|error| Error::io("sidereal live spiir", error))?;
        let lines = self.reading.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        match ended.success() {
            true => Ok(lines),
            false => Err(failed(self.notes.iter().last().unwrap_or_else(|| ended.to_string()))),
        }
    }
}

/// Passes on the lines of a program's standard error, until it ends.
fn notes(errors: ChildStderr) -> Receiver<String> {
    let (sender, notes) = channel();
    thread::spawn(move || {
        for note in BufReader::new(errors).lines().map_while(std::result::Result::ok) {
            // The program must not wait for a reader.
            let _ = sender.send(note);
        }
    });
    notes
}

/// Reads the lines of events that are not retracted, until the search ends.
fn lines(output: ChildStdout) -> Result<Vec<Line>> {
    let mut found = Vec::new();
    for text in BufReader::new(output).lines() {
        let text = text.map_err(|error| Error::io("lines of the search", error))?;
        let at = Instant::now();
        let Ok(line) = serde_json::from_str::<Value>(&text) else { continue };
        if let (Some(gps), Some(network_snr), Some(state)) =
            (line["gps"].as_f64(), line["network_snr"].as_f64(), line["state"].as_str())
            && state != "retracted"
        {
            found.push(Line { at, gps, network_snr });
        }
    }
    Ok(found)
}

impl Latencies {
    fn parts_mut(&mut self) -> [&mut Vec<f64>; 4] {
        [&mut self.waiting_s, &mut self.delivery_s, &mut self.computing_s, &mut self.total_s]
    }

    pub(super) fn rows(&self) -> Vec<Vec<String>> {
        let part = |name: &str, sorted: &[f64]| {
            let at = |fraction| format!("{:.4}", quantile(sorted, fraction));
            row(name, at(0.5), Some(at(0.99)))
        };
        let Count { found, mergers } = self.count;
        vec![
            part("waiting for the frame's end, s", &self.waiting_s),
            part("delivery: from its end to its rename, s", &self.delivery_s),
            row(
                "whitening, resampling, peaks, gates, s",
                format!("{:.4}", self.algorithms_s),
                None,
            ),
            part("computing: from the rename to the event's line, s", &self.computing_s),
            part("merger to the event's line, s", &self.total_s),
            row("mergers with an event", format!("{found} of {mergers}"), None),
            row("network S/N of the mergers", format!("{:.1}", self.network_snr), None),
        ]
    }

    pub(super) fn values(&self) -> Value {
        json!({
            "waiting_s": self.waiting_s,
            "delivery_s": self.delivery_s,
            "algorithms_s": self.algorithms_s,
            "computing_s": self.computing_s,
            "total_s": self.total_s,
            "network_snr": self.network_snr,
            "mergers": self.count.mergers,
            "found": self.count.found,
        })
    }
}
