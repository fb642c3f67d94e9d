//! Lines of a live search: each candidate as JSON when it stands out, when it changes, and when it is final.
//!
//! Invariant: each number is announced once, and ends once, as final or retracted, unless the program is killed. A final
//! candidate is that of the search's lists.

use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use sidereal::io::FilterbankHeader;
use sidereal::single_pulse::Candidate;
use sidereal::trace::{self, Work};
use sidereal::units::SECONDS_PER_DAY;
use sidereal::{Error, Result};

use super::album::Album;
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
use super::dumps::Dumping;
use super::line::{CandidateLine, NAME, State};
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
use crate::alerts::Alerts;
use crate::common::Common;
use crate::json;
use crate::numbers::tidy;
use crate::watch::Watcher;

/// Rise of the S/N that is worth another line.
const RISE: f64 = 1.05;

/// Most triggers that are taken after a gulp.
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
const MOST_TRIGGERS: usize = 64;

/// Candidate that was announced and is not final.
#[derive(Clone, Copy, Debug)]
struct Announced {
    number: u64,
    /// As in the last line.
    line: Candidate,
    /// As the search last had it.
    latest: Candidate,
    is_there: bool,
}

/// Changes of candidates.
#[derive(Debug, Default)]
struct Book {
    announced: Vec<Announced>,
    count: u64,
}

/// Change to report.
#[derive(Clone, Copy, Debug)]
struct Change {
    state: State,
    number: u64,
    candidate: Candidate,
}

impl Book {
    /// Returns the position of the announced candidate that a candidate continues.
    fn position(&self, candidate: &Candidate) -> Option<usize> {
        self.announced.iter().position(|other| is_same(&other.latest, candidate))
    }

    /// Takes candidates that are final.
    fn found(&mut self, candidates: &[Candidate], changes: &mut Vec<Change>) {
        for candidate in candidates {
            let number = match self.position(candidate) {
                Some(position) => self.announced.swap_remove(position).number,
                None => self.next(),
            };
            changes.push(Change { state: State::Final, number, candidate: *candidate });
        }
    }

    /// Takes all candidates that are not final.
    fn provisional(&mut self, candidates: &[Candidate], changes: &mut Vec<Change>) {
        self.announced.iter_mut().for_each(|announced| announced.is_there = false);
        for candidate in candidates {
            let Some(position) = self.position(candidate) else {
                let number = self.next();
                let (line, latest) = (*candidate, *candidate);
                self.announced.push(Announced { number, line, latest, is_there: true });
                changes.push(Change { state: State::Provisional, number, candidate: *candidate });
                continue;
            };
            let announced = &mut self.announced[position];
            announced.is_there = true;
            announced.latest = *candidate;
            if candidate.snr > RISE * announced.line.snr {
                announced.line = *candidate;
                let number = announced.number;
                changes.push(Change { state: State::Updated, number, candidate: *candidate });
            }
        }
        self.announced.retain(|announced| {
            if !announced.is_there {
                let Announced { number, line: candidate, .. } = *announced;
                changes.push(Change { state: State::Retracted, number, candidate });
            }
            announced.is_there
        });
    }

    fn next(&mut self) -> u64 {
        self.count += 1;
        self.count
    }
}

/// Returns whether two candidates overlap in time and dispersion measure, as one before and after more events.
fn is_same(before: &Candidate, after: &Candidate) -> bool {
    before.begin_s <= after.end_s
        && after.begin_s <= before.end_s
        && before.dm_min <= after.dm_max
        && after.dm_min <= before.dm_max
}

/// Identifies a final candidate whose times count from `delay_s`.
fn key(candidate: &Candidate, delay_s: f64) -> (usize, i64) {
    (candidate.trial, ((candidate.peak_begin_s + delay_s) * 1e6).round() as i64)
}

/// Lines of candidates, printed and appended to a file as they are found.
pub(super) struct Lines {
    file: File,
    path: PathBuf,
    observation: String,
    tstart_mjd: f64,
    is_quiet: bool,
    book: Book,
    changes: Vec<Change>,
    album: Option<Album>,
    watcher: Option<Arc<dyn Watcher>>,
    /// Triggers and alerts of a run, which go on with its next observation.
    #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
    pub(super) alerts: Option<Alerts>,
    /// Dumps of the observation.
    #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
    pub(super) dumps: Option<Dumping>,
    /// Final candidates: trial, and start of the peak in microseconds.
    written: HashSet<(usize, i64)>,
}

/// Observation whose candidates are written.
pub(super) struct Begin<'a> {
    pub(super) observation: &'a Path,
    pub(super) header: &'a FilterbankHeader,
    /// Drawer of final candidates.
    pub(super) album: Option<Album>,
    pub(super) watcher: Option<Arc<dyn Watcher>>,
}

impl Lines {
    /// Opens `candidates.ndjson` in a folder; its earlier lines stay.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(super) fn begin(folder: &Path, begin: Begin<'_>, common: &Common) -> Result<Self> {
        let Begin { observation, header, album, watcher } = begin;
        let path = folder.join(NAME);
        let file = OpenOptions::new().create(true).append(true).open(&path);
        let file = file.map_err(|error| Error::io(&path, error))?;
        Ok(Self {
            file,
            path,
            observation: observation.display().to_string(),
            tstart_mjd: header.tstart_mjd,
            is_quiet: common.quiet,
            book: Book::default(),
            changes: Vec::new(),
            album,
            watcher,
            #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
            alerts: None,
            #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
            dumps: None,
            written: HashSet::new(),
        })
    }

    /// Writes candidates that are final; their times count from the first spectrum, which starts at `delay_s`.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(super) fn found(&mut self, candidates: &[Candidate], delay_s: f64) -> Result<()> {
        self.book.found(candidates, &mut self.changes);
        self.written.extend(candidates.iter().map(|candidate| key(candidate, delay_s)));
        self.write(delay_s)
    }

    /// Writes the candidates of an observation that has ended, other than those already final, and retracts the rest. Their
    /// times count from the first sample.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(super) fn finish(&mut self, candidates: &[Candidate]) -> Result<()> {
        let is_new = |candidate: &&Candidate| !self.written.contains(&key(candidate, 0.0));
        let late: Vec<Candidate> = candidates.iter().filter(is_new).copied().collect();
        self.found(&late, 0.0)?;
        self.provisional(&[], 0.0)?;
        if let Some(album) = &self.album {
            album.end();
        }
        Ok(())
    }

    /// Waits for the pictures that are not drawn yet.
    pub(super) fn finish_pictures(&mut self) {
        if let Some(album) = &mut self.album {
            album.end();
            album.finish();
        }
    }

    /// Writes the changes of all candidates that are not final.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(super) fn provisional(&mut self, candidates: &[Candidate], delay_s: f64) -> Result<()> {
        self.book.provisional(candidates, &mut self.changes);
        self.write(delay_s)
    }

    /// Asks for dumps of the triggers that wait.
    pub(super) fn take_triggers(&mut self) {
        #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
        if let Some(alerts) = &mut self.alerts {
            while let Some(written) = self.dumps.as_ref().and_then(Dumping::written) {
                alerts.dumped(&written.triggers, &written.file);
            }
            for _ in 0..MOST_TRIGGERS {
                let Some(trigger) = alerts.next_trigger() else { break };
                if let Some(dumps) = &self.dumps {
                    dumps.trigger(&trigger);
                }
            }
        }
    }

    /// Writes all changes, and hands each to watcher and alerts, even if a line could not be written.
    fn write(&mut self, delay_s: f64) -> Result<()> {
        let _span = trace::span(Work::Write, "candidate lines");
        let mut written = Ok(());
        let mut changes = std::mem::take(&mut self.changes);
        for change in changes.drain(..) {
            let line = self.line(&change, delay_s);
            written = written.and(self.put(&line));
            if let Some(watcher) = &self.watcher {
                watcher.candidate(&line);
            }
            #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
            if let Some(alerts) = &mut self.alerts {
                let Change { state, number, mut candidate } = change;
                candidate.shift(delay_s);
                match state {
                    State::Retracted => alerts.retract(number),
                    state => alerts.candidate(number, &candidate, state == State::Final),
                }
            }
        }
        self.changes = changes;
        #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
        if let Some(alerts) = &mut self.alerts {
            alerts.end_gulp();
        }
        self.take_triggers();
        written
    }

    /// Makes the line of a change, and asks for the picture of a final candidate.
    fn line(&mut self, change: &Change, delay_s: f64) -> CandidateLine {
        let Change { state, number, candidate } = *change;
        let time_s = candidate.time_s + delay_s;
        let album = self.album.as_mut().filter(|_| state == State::Final);
        let picture = album.and_then(|album| {
            let mut shifted = candidate;
            shifted.shift(delay_s);
            album.want(number, &shifted)
        });
        let written = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        CandidateLine {
            state,
            number,
            observation: self.observation.clone(),
            snr: tidy(candidate.snr),
            dm: tidy(candidate.dm),
            time_s: tidy(time_s),
            mjd: (self.tstart_mjd > 0.0).then_some(self.tstart_mjd + time_s / SECONDS_PER_DAY),
            width_s: tidy(candidate.width_s),
            members: candidate.members,
            picture: picture.map(|path| path.display().to_string()),
            written_unix_s: written.as_secs_f64(),
        }
    }

    /// Prints a line and appends it to the file.
    fn put(&mut self, line: &CandidateLine) -> Result<()> {
        let text = json::line(line)?;
        let written = self.file.write_all(format!("{text}\n").as_bytes());
        let written = written.map_err(|error| Error::io(&self.path, error));
        let said = if self.is_quiet { Ok(()) } else { json::say(&text) };
        written.and(said)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(time_s: f64, dm: f64, snr: f64) -> Candidate {
        Candidate {
            dm,
            time_s,
            snr,
            width_s: 0.01,
            members: 3,
            range: 0,
            trial: 1,
            peak_begin_s: time_s,
            peak_end_s: time_s + 0.01,
            begin_s: time_s - 0.1,
            end_s: time_s + 0.1,
            dm_min: dm - 5.0,
            dm_max: dm + 5.0,
            band_fraction: 1.0,
        }
    }

    fn states(changes: &mut Vec<Change>) -> Vec<(State, u64)> {
        changes.drain(..).map(|change| (change.state, change.number)).collect()
    }

    #[test]
    fn a_candidate_is_announced_updated_and_final_under_one_number() {
        let (mut book, mut changes) = (Book::default(), Vec::new());
        book.provisional(&[candidate(1.0, 100.0, 8.0)], &mut changes);
        assert_eq!(states(&mut changes), [(State::Provisional, 1)]);
        book.provisional(&[candidate(1.01, 101.0, 8.1), candidate(5.0, 300.0, 7.0)], &mut changes);
        assert_eq!(states(&mut changes), [(State::Provisional, 2)]);
        book.provisional(&[candidate(1.02, 103.0, 12.0), candidate(5.0, 300.0, 7.0)], &mut changes);
        assert_eq!(states(&mut changes), [(State::Updated, 1)]);
        book.found(&[candidate(1.02, 104.0, 12.1), candidate(9.0, 50.0, 6.5)], &mut changes);
        book.provisional(&[], &mut changes);
        let expected = [(State::Final, 1), (State::Final, 3), (State::Retracted, 2)];
        assert_eq!(states(&mut changes), expected);
        assert!(book.announced.is_empty());
    }
}
