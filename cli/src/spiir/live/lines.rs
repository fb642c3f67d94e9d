//! Lines of events and gaps: printed, and appended to files.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sidereal::live::frames::{Gap, Span};
use sidereal::spiir::coincidence::{self, Change};
use sidereal::{Error, Result};

use crate::common::Common;
use crate::json;
use crate::spiir::search::EventRow;

/// Files of the lines of events and of gaps, in the folder of all runs.
const EVENTS: &str = "events.ndjson";
const GAPS: &str = "gaps.ndjson";

/// State of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum State {
    /// It was found; later strain, or that of a late detector, may change it.
    First,
    /// A higher-ranked coincidence has replaced it.
    Better,
    /// No later strain changes it.
    Final,
    /// A coincidence of another event outranks it.
    Retracted,
}

/// Event of a live search as a line of JSON.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct EventLine {
    state: State,
    /// Number of the event in its run, the same in all of its lines.
    number: u64,
    /// Folder of the run.
    observation: String,
    #[serde(flatten)]
    event: EventRow,
    /// Time of this line, in seconds since 1970.
    written_unix_s: f64,
}

/// Gap of a detector as a line of JSON.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct GapLine {
    detector: String,
    /// Folder of the run.
    observation: String,
    /// First time, and the time after the last, of the gap or of the frames that have it, in GPS seconds.
    start_gps: f64,
    end_gps: f64,
    /// missing, stopped, damaged, vanished, channel, state or not_finite.
    reason: &'static str,
    /// Invalid strain in that time.
    seconds: f64,
    /// Fault of the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

/// Lines of events and gaps, printed and appended to files.
pub(super) struct Lines {
    events: Appended,
    gaps: Appended,
    observation: String,
    is_quiet: bool,
    /// Gaps of each detector that may go on, with the seconds of invalid strain in them.
    open: BTreeMap<String, Vec<GapLine>>,
    /// Final events, loudest first.
    pub(super) loudest: Vec<EventRow>,
    pub(super) found: u64,
    pub(super) retracted: u64,
}

/// File to which lines are appended.
struct Appended {
    path: PathBuf,
    file: File,
}

impl Appended {
    fn open(path: PathBuf) -> Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(&path);
        let file = file.map_err(|error| Error::io(&path, error))?;
        Ok(Self { path, file })
    }

    fn line(&mut self, text: &str) -> Result<()> {
        let written = self.file.write_all(format!("{text}\n").as_bytes());
        written.map_err(|error| Error::io(&self.path, error))
    }
}

impl Lines {
    /// Opens the files in a folder; their earlier lines stay.
    pub(super) fn begin(folder: &Path, observation: &Path, common: &Common) -> Result<Self> {
        Ok(Self {
            events: Appended::open(folder.join(EVENTS))?,
            gaps: Appended::open(folder.join(GAPS))?,
            observation: observation.display().to_string(),
            is_quiet: common.quiet,
            open: BTreeMap::new(),
            loudest: Vec::new(),
            found: 0,
            retracted: 0,
        })
    }

    /// Writes an event that has changed.
    pub(super) fn event(&mut self, change: &Change, event: EventRow) -> Result<()> {
        let state = match change.state {
            coincidence::State::First => State::First,
            coincidence::State::Better => State::Better,
            coincidence::State::Final => State::Final,
            coincidence::State::Retracted => State::Retracted,
        };
        match state {
            State::Final => {
                self.found += 1;
                let place = self.loudest.partition_point(|other| other.ranking >= event.ranking);
                self.loudest.insert(place, event.clone());
            }
            State::Retracted => self.retracted += 1,
            State::First | State::Better => {}
        }
        let written = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let line = EventLine {
            state,
            number: change.number,
            observation: self.observation.clone(),
            event,
            written_unix_s: written.as_secs_f64(),
        };
        let text = json::line(&line)?;
        self.events.line(&text)?;
        if !self.is_quiet {
            json::say(&text)?;
        }
        Ok(())
    }

    /// Takes the gaps in a detector's next samples; writes those that do not go on.
    pub(super) fn block(&mut self, detector: &str, gaps: &[Gap], rate_hz: u32) -> Result<()> {
        let before = self.open.remove(detector).unwrap_or_default();
        let mut open: Vec<GapLine> = Vec::with_capacity(gaps.len());
        for gap in gaps {
            let Span { start, end } = gap.span;
            open.push(GapLine {
                detector: detector.to_owned(),
                observation: self.observation.clone(),
                start_gps: start.s(),
                end_gps: end.s(),
                reason: gap.reason.name(),
                seconds: gap.samples as f64 / f64::from(rate_hz),
                why: gap.why.clone(),
            });
        }
        for line in before {
            let goes_on = |other: &&mut GapLine| {
                other.reason == line.reason
                    && other.start_gps <= line.end_gps
                    && other.why == line.why
            };
            match open.iter_mut().find(goes_on) {
                Some(other) => {
                    other.start_gps = line.start_gps;
                    other.seconds += line.seconds;
                }
                None => self.gap(&line)?,
            }
        }
        if !open.is_empty() {
            self.open.insert(detector.to_owned(), open);
        }
        Ok(())
    }

    /// Writes the gaps that may go on.
    pub(super) fn end(&mut self) -> Result<()> {
        let open = std::mem::take(&mut self.open);
        open.into_values().flatten().try_for_each(|line| self.gap(&line))
    }

    fn gap(&mut self, line: &GapLine) -> Result<()> {
        let text = json::line(line)?;
        self.gaps.line(&text)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use sidereal::live::frames::Reason;
    use sidereal::units::Gps;

    use super::*;

    #[test]
    fn gaps_that_go_on_are_one_line() {
        let home = tempfile::tempdir().unwrap();
        let mut lines = Lines {
            events: Appended::open(home.path().join(EVENTS)).unwrap(),
            gaps: Appended::open(home.path().join(GAPS)).unwrap(),
            observation: "live/100".to_owned(),
            is_quiet: true,
            open: BTreeMap::new(),
            loudest: Vec::new(),
            found: 0,
            retracted: 0,
        };
        let gap = |s: f64, reason, samples| Gap {
            span: Span { start: Gps::from_s(s), end: Gps::from_s(s + 1.0) },
            reason,
            samples,
            why: None,
        };
        for s in [100.0, 101.0, 102.0] {
            lines.block("H1", &[gap(s, Reason::Stopped, 16)], 16).unwrap();
        }
        lines.block("L1", &[gap(101.0, Reason::Missing, 16)], 16).unwrap();
        lines.block("H1", &[gap(103.0, Reason::State, 4)], 16).unwrap();
        lines.block("H1", &[], 16).unwrap();
        lines.block("H1", &[gap(105.0, Reason::State, 4)], 16).unwrap();
        lines.end().unwrap();
        let text = fs::read_to_string(home.path().join(GAPS)).unwrap();
        let rows: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let row = |row: &serde_json::Value| {
            let number = |key: &str| row[key].as_f64().unwrap();
            (row["reason"].as_str().unwrap().to_owned(), number("start_gps"), number("seconds"))
        };
        let expected = [
            ("stopped".to_owned(), 100.0, 3.0),
            ("state".to_owned(), 103.0, 0.25),
            ("state".to_owned(), 105.0, 0.25),
            ("missing".to_owned(), 101.0, 1.0),
        ];
        assert_eq!(rows.iter().map(row).collect::<Vec<_>>(), expected);
    }
}
