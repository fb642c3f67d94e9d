//! Lines of events and gaps: printed, and appended to files.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sidereal::live::frames::{Gap, Reason, Span};
use sidereal::spiir::coincidence::{self, Change};
use sidereal::state::{Saved, Saving};
use sidereal::{Error, Result};

use crate::common::Common;
use crate::json;
use crate::say::note;
use crate::spiir::background::RatedRow;

/// Files of the lines of events and of gaps, in the folder of all runs.
const EVENTS: &str = "events.ndjson";
const GAPS: &str = "gaps.ndjson";

/// Bytes of the lines of events that a run that continues shows: some hundred events.
const LATEST_BYTES: u64 = 1 << 20;

/// State of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum State {
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
    event: RatedRow,
    /// Time of this line, in seconds since 1970.
    written_unix_s: f64,
}

impl EventLine {
    /// Returns the folder of the run and the number of the event, which identify it.
    #[cfg(feature = "page")]
    pub(crate) fn key(&self) -> (&str, u64) {
        (&self.observation, self.number)
    }

    /// Returns the state of the event.
    #[cfg(feature = "page")]
    pub(crate) fn state(&self) -> State {
        self.state
    }

    /// Returns the time of the line, in seconds since 1970.
    #[cfg(feature = "page")]
    pub(crate) fn written_unix_s(&self) -> f64 {
        self.written_unix_s
    }

    /// Returns whether the event was unknown before.
    pub(crate) fn is_first(&self) -> bool {
        self.state == State::First
    }
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
    /// missing, stopped, damaged, vanished, channel, off_grid, state or not_finite.
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
    /// Detectors whose frames without a channel have been reported.
    reported: BTreeSet<String>,
    /// Final events, loudest first, at most `most`.
    loudest: Vec<Loud>,
    most: usize,
    pub(super) found: u64,
    pub(super) retracted: u64,
}

/// Final event.
struct Loud {
    change: Change,
    row: RatedRow,
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

    /// Returns the length of the file.
    fn bytes(&self) -> Result<u64> {
        let found = self.file.metadata();
        Ok(found.map_err(|error| Error::io(&self.path, error))?.len())
    }

    /// Cuts the file, if it is longer.
    fn cut(&mut self, bytes: u64) -> Result<()> {
        if self.bytes()? <= bytes {
            return Ok(());
        }
        self.file.set_len(bytes).map_err(|error| Error::io(&self.path, error))
    }

    /// Returns the number of whole lines from a byte on, and cuts what follows them.
    fn lines_from(&mut self, byte: u64) -> Result<usize> {
        let failed = |error| Error::io(&self.path, error);
        let mut text = Vec::new();
        let mut file = File::open(&self.path).map_err(failed)?;
        file.seek(SeekFrom::Start(byte)).map_err(failed)?;
        file.read_to_end(&mut text).map_err(failed)?;
        let whole = text.iter().rposition(|letter| *letter == b'\n').map_or(0, |last| last + 1);
        self.cut(byte + whole as u64)?;
        Ok(text[..whole].iter().filter(|letter| **letter == b'\n').count())
    }

    /// Returns the whole lines among the last bytes.
    fn last_lines(&self, bytes: u64) -> Result<Vec<String>> {
        let failed = |error| Error::io(&self.path, error);
        let from = self.bytes()?.saturating_sub(bytes);
        let mut text = Vec::new();
        let mut file = File::open(&self.path).map_err(failed)?;
        file.seek(SeekFrom::Start(from)).map_err(failed)?;
        file.read_to_end(&mut text).map_err(failed)?;
        let text = String::from_utf8_lossy(&text);
        // The first line is a part of one, unless it is that of the file.
        Ok(text.lines().skip(usize::from(from > 0)).map(str::to_owned).collect())
    }

    fn line(&mut self, text: &str) -> Result<()> {
        let written = self.file.write_all(format!("{text}\n").as_bytes());
        written.map_err(|error| Error::io(&self.path, error))
    }
}

impl Lines {
    /// Opens the files in a folder; their earlier lines stay.
    pub(super) fn begin(
        folder: &Path,
        observation: &Path,
        most: usize,
        common: &Common,
    ) -> Result<Self> {
        Ok(Self {
            events: Appended::open(folder.join(EVENTS))?,
            gaps: Appended::open(folder.join(GAPS))?,
            observation: observation.display().to_string(),
            is_quiet: common.quiet,
            open: BTreeMap::new(),
            reported: BTreeSet::new(),
            loudest: Vec::new(),
            most,
            found: 0,
            retracted: 0,
        })
    }

    /// Returns the final events, loudest first.
    pub(super) fn loudest(self) -> Vec<RatedRow> {
        self.loudest.into_iter().map(|loud| loud.row).collect()
    }

    /// Returns the length of the file of events.
    pub(super) fn events_bytes(&self) -> Result<u64> {
        self.events.bytes()
    }

    /// Returns how many lines of events are in the file from a byte on; cuts a line that was not written to its end.
    pub(super) fn events_from(&mut self, byte: u64) -> Result<usize> {
        match self.events.bytes()? < byte {
            // Another file has taken its place: lines are written twice rather than lost.
            true => Ok(0),
            false => self.events.lines_from(byte),
        }
    }

    /// Returns the latest lines of events of this run.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(super) fn latest(&self) -> Result<Vec<serde_json::Value>> {
        let lines = self.events.last_lines(LATEST_BYTES)?;
        let parsed = lines.iter().filter_map(|line| serde_json::from_str(line).ok());
        let is_own = |line: &serde_json::Value| line["observation"] == *self.observation;
        Ok(parsed.filter(is_own).collect())
    }

    /// Saves what the lines so far leave.
    pub(super) fn save(&self, to: &mut Saving) -> Result<()> {
        to.part("lines");
        to.number(self.found);
        to.number(self.retracted);
        to.number(self.gaps.bytes()?);
        to.number(self.loudest.len() as u64);
        self.loudest.iter().for_each(|loud| loud.change.save(to));
        to.number(self.open.values().map(Vec::len).sum::<usize>() as u64);
        for line in self.open.values().flatten() {
            let names = [Some(&*line.detector), Some(line.reason), line.why.as_deref()];
            for text in names {
                to.flags(text.is_some().then_some(true).into_iter());
                to.bytes(text.unwrap_or_default().as_bytes());
            }
            to.f64s([line.start_gps, line.end_gps, line.seconds].iter());
        }
        Ok(())
    }

    /// Continues from a state, and cuts the gaps that were written after it; `row` describes a change of an event of `detectors` detectors.
    ///
    /// # Errors
    /// [`Error::Format`] for another state; [`Error::Io`].
    pub(super) fn load(
        &mut self,
        from: &mut Saved<'_>,
        detectors: usize,
        row: impl Fn(&Change) -> RatedRow,
    ) -> Result<()> {
        from.part("lines")?;
        (self.found, self.retracted) = (from.number()?, from.number()?);
        self.gaps.cut(from.number()?)?;
        self.loudest.clear();
        for _ in 0..from.number()? {
            let change = Change::load(from, detectors)?;
            let row = row(&change);
            self.loudest.push(Loud { change, row });
        }
        self.open.clear();
        for _ in 0..from.number()? {
            let mut text = || {
                let is_there = !from.flags(1)?.is_empty();
                let text = String::from_utf8_lossy(&from.bytes(1 << 16)?).into_owned();
                Ok(is_there.then_some(text))
            };
            let (detector, reason, why) = (text()?.unwrap_or_default(), text()?, text()?);
            let mut times = [0.0; 3];
            from.fill_f64(&mut times)?;
            let known = Reason::ALL.iter().map(|known| known.name());
            let Some(reason) = known.into_iter().find(|known| reason.as_deref() == Some(known))
            else {
                return Err(from.fault("reason of a gap", format!("{reason:?} found")));
            };
            let observation = self.observation.clone();
            let [start_gps, end_gps, seconds] = times;
            let line = GapLine { detector, observation, start_gps, end_gps, reason, seconds, why };
            self.open.entry(line.detector.clone()).or_default().push(line);
        }
        Ok(())
    }

    /// Writes the line of an event that has changed.
    pub(super) fn write(&mut self, change: &Change, event: RatedRow) -> Result<EventLine> {
        let state = match change.state {
            coincidence::State::First => State::First,
            coincidence::State::Better => State::Better,
            coincidence::State::Final => State::Final,
            coincidence::State::Retracted => State::Retracted,
        };
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
        Ok(line)
    }

    /// Counts an event that has changed.
    pub(super) fn count(&mut self, change: &Change, row: RatedRow) {
        match change.state {
            coincidence::State::Final => {
                self.found += 1;
                let ranking = change.event.ranking;
                let above = |other: &Loud| other.change.event.ranking >= ranking;
                let place = self.loudest.partition_point(above);
                self.loudest.insert(place, Loud { change: change.clone(), row });
                self.loudest.truncate(self.most);
            }
            coincidence::State::Retracted => self.retracted += 1,
            coincidence::State::First | coincidence::State::Better => {}
        }
    }

    /// Takes the gaps in a detector's next samples; writes those that do not go on.
    pub(super) fn block(&mut self, detector: &str, gaps: &[Gap], rate_hz: u32) -> Result<()> {
        let before = self.open.remove(detector).unwrap_or_default();
        let mut open: Vec<GapLine> = Vec::with_capacity(gaps.len());
        for gap in gaps {
            let Span { start, end } = gap.span;
            if let (Reason::Channel, Some(why)) = (gap.reason, &gap.why)
                && self.reported.insert(detector.to_owned())
                && !self.is_quiet
            {
                note!(
                    "{detector}: no strain is used from frames without a channel: {why} (--quality none needs no state vector)"
                );
            }
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
            reported: BTreeSet::new(),
            loudest: Vec::new(),
            most: 10,
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
