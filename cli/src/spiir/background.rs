//! File of a live search's background, which outlives its runs.
//!
//! Invariant: the file is whole at any time, whatever ends the program or the machine.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use schemars::JsonSchema;
use serde::Serialize;
use sidereal::io::atomic::hidden_name;
use sidereal::pipeline::cbc::OnlineSearch;
use sidereal::spiir::coincidence::Significance;
use sidereal::state::Saved;
use sidereal::units::{Gps, SECONDS_PER_DAY};
use sidereal::{Error, Result};
use tracing::Level;

use super::search::EventRow;
use crate::alerts::{Fates, Worker};
use crate::common::Common;
use crate::plots::{duration, short};
use crate::say::{self, note, warning};

/// Name of the file in the folder of all runs.
pub(super) const NAME: &str = "background";

/// First bytes of the file, before the state.
const HEAD: &[u8] = b"sidereal background of live spiir\n";

/// Seconds of strain between two versions of the file.
const EVERY_S: f64 = 60.0;

/// Least time between two versions: an outage of days passes in seconds.
const LEAST: Duration = Duration::from_secs(1);

/// Longest wait at the end for a version that is being written.
const PATIENCE: Duration = Duration::from_secs(5);

/// Event with its significance.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct RatedRow {
    #[serde(flatten)]
    pub(super) event: EventRow,
    /// Natural logarithm of the likelihood ratio of signal and noise; null, as the rates, until the background has 100 triggers of
    /// each detector in the mass bin of the template.
    pub(super) log_likelihood_ratio: Option<f64>,
    /// Whether the rate is below 12 a year, so that the event's surroundings do not enter the background.
    signal: bool,
    /// Whether the state vector marks a hardware injection at the event's time.
    pub(super) injection: bool,
}

impl RatedRow {
    pub(super) fn new(event: EventRow, rated: Option<Significance>, injection: bool) -> Self {
        Self {
            event,
            log_likelihood_ratio: rated.map(|own| own.log_likelihood_ratio),
            signal: rated.is_some_and(|own| own.is_signal()),
            injection,
        }
    }
}

/// Background at the end of a run; old strain counts less, with a time constant of seven days.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct BackgroundRow {
    /// Time in seconds in which events were possible.
    livetime_s: f64,
    /// Triggers of each detector, in their order.
    triggers: Vec<f64>,
}

impl BackgroundRow {
    pub(super) fn new(search: &OnlineSearch) -> Self {
        let background = search.background();
        let triggers = 0..search.detectors().count();
        Self {
            livetime_s: background.livetime_s(),
            triggers: triggers.map(|detector| background.triggers(detector)).collect(),
        }
    }

    /// Formats a line.
    pub(super) fn text(&self) -> String {
        let counts: Vec<String> = self.triggers.iter().map(|one| short(*one, 4)).collect();
        let time = match self.livetime_s / SECONDS_PER_DAY {
            days if days >= 1.0 => format!("{} days", short(days, 3)),
            _ => duration(self.livetime_s),
        };
        format!("background of {time} with {} triggers", counts.join(" + "))
    }
}

/// The file, and the thread that writes it.
pub(super) struct BackgroundFile {
    path: PathBuf,
    worker: Worker<Vec<u8>>,
    /// Time before which the strain is in the file, or the search's start.
    written: Option<Gps>,
    last: Instant,
    is_synced: bool,
    is_quiet: bool,
}

impl BackgroundFile {
    /// Restores the background if the file exists, and starts the thread that replaces the file. A search that continues from a
    /// checkpoint takes the background from there.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Format`] for a damaged file, or that of another search.
    pub(super) fn open(
        path: PathBuf,
        search: &mut OnlineSearch,
        continues: bool,
        common: &Common,
    ) -> Result<Self> {
        match fs::read(&path) {
            _ if continues => {}
            Ok(bytes) => load(&path, &bytes, search)?,
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(Error::io(path, error)),
        }
        let row = BackgroundRow::new(search);
        if !common.quiet && row.livetime_s > 0.0 {
            note!("{}: {}", path.display(), row.text());
        }
        let (own, is_synced) = (path.clone(), !common.no_sync);
        let mut has_warned = false;
        let worker = Worker::start("background", 1, move |bytes: Vec<u8>, fates: &Fates| {
            match replace(&own, &bytes, is_synced) {
                Ok(()) => Fates::count(&fates.done),
                Err(error) => {
                    Fates::count(&fates.failed);
                    let words = format!("the background was not written: {error}");
                    if std::mem::replace(&mut has_warned, true) {
                        say::log(Level::WARN, &words);
                    } else {
                        warning!(quiet: false, "{words}; further failures are only logged.");
                    }
                }
            }
        })?;
        let (written, last) = (None, Instant::now());
        Ok(Self { path, worker, written, last, is_synced, is_quiet: common.quiet })
    }

    /// Writes a new version once a minute of strain, and once a second at most, without waiting for it.
    pub(super) fn update(&mut self, search: &OnlineSearch) {
        let entered = search.background().entered();
        let is_due = entered.seconds_since(*self.written.get_or_insert(entered)) >= EVERY_S;
        if is_due && self.last.elapsed() >= LEAST {
            (self.written, self.last) = (Some(entered), Instant::now());
            self.worker.offer(saved(search));
        }
    }

    /// Writes the last version; a failure is a warning, since the events have been written.
    pub(super) fn finish(mut self, search: &OnlineSearch) {
        self.worker.finish(PATIENCE);
        if search.background().livetime_s() == 0.0 {
            return;
        }
        if let Err(error) = replace(&self.path, &saved(search), self.is_synced) {
            warning!(quiet: self.is_quiet, "the background was not written: {error}.");
        }
    }
}

fn saved(search: &OnlineSearch) -> Vec<u8> {
    [HEAD, &search.background().save()].concat()
}

fn load(path: &Path, bytes: &[u8], search: &mut OnlineSearch) -> Result<()> {
    let remedy = "move it away to begin a new background, or name another one with --background";
    let Some(state) = bytes.strip_prefix(HEAD) else {
        let why = format!("no background of live spiir found; {remedy}");
        return Err(Error::format(path, "first line", 0, why));
    };
    let saved = Saved::new(path, HEAD.len() as u64, state);
    let loaded = saved.and_then(|mut from| search.load_background(&mut from));
    loaded.map_err(|error| match error {
        Error::Format { path, field, offset, why } => {
            Error::Format { path, field, offset, why: format!("{why}; {remedy}") }
        }
        other => other,
    })
}

/// Replaces the file by a whole one.
fn replace(path: &Path, bytes: &[u8], is_synced: bool) -> Result<()> {
    let failed = |error| Error::io(path, error);
    let next = path.with_file_name(hidden_name(path.file_name().unwrap_or_default(), 5));
    let next = next.with_added_extension("next");
    let mut file = File::create(&next).map_err(failed)?;
    file.write_all(bytes).map_err(failed)?;
    if is_synced {
        file.sync_all().map_err(failed)?;
    }
    fs::rename(&next, path).map_err(failed)?;
    if is_synced {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        // A file system without names to flush, or without permission to read the folder, has the file all the same.
        let _ = File::open(folder.unwrap_or(Path::new("."))).and_then(|folder| folder.sync_all());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_as_a_whole() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join(NAME);
        // The unfinished file of a killed run is overwritten.
        fs::write(home.path().join(".background.next"), [0; 100]).unwrap();
        for bytes in [b"one".as_slice(), b"another"] {
            replace(&path, bytes, true).unwrap();
            assert_eq!(fs::read(&path).unwrap(), bytes);
        }
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 1);
        let why = replace(&home.path().join("missing/background"), b"x", true).unwrap_err();
        assert!(why.to_string().contains("missing"), "{why}");
    }
}
