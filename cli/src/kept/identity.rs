//! All that a run's result depends on.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use sidereal::backend::Backend;
use sidereal::pipeline::burst::SearchOptions;
use sidereal::{Error, Result};

use crate::selection::Recording;

/// The settings of a run, in the order in which differences are told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Identity {
    settings: Vec<(String, String)>,
}

impl Identity {
    /// Of a verb and its own settings, each with its name.
    pub(crate) fn of(verb: &str, own: &[(&str, String)]) -> Self {
        let version = format!("{}, {verb}", env!("CARGO_PKG_VERSION"));
        let mut identity = Self { settings: Vec::new() };
        identity.add("version", version);
        own.iter().for_each(|(name, value)| identity.add(name, value.clone()));
        identity
    }

    /// The same of a recording, of what is done to it, and of what does it; `also` are files that are read too.
    ///
    /// # Errors
    /// [`Error::Io`] when a file can't be looked at.
    pub(crate) fn with(
        mut self,
        recording: &Recording,
        also: &[PathBuf],
        options: &SearchOptions,
        backend: &Backend,
    ) -> Result<Self> {
        for path in recording.files().iter().chain(also) {
            self.add(&format!("input {}", path.display()), stamp(path)?);
        }
        self.add("recording", recording.told());
        // The number of threads does not matter.
        let name = backend.name();
        let device = name.rsplit_once(" x").map_or(name.as_str(), |(device, _)| device);
        self.add("device", device.to_owned());
        for (name, value) in [
            ("trial DMs", format!("{:?}", options.plan)),
            ("--dm-constant", format!("{:?}", options.dm_constant)),
            ("--zero-dm", options.zero_dm.to_string()),
            ("--zap-chans", format!("{:?}", options.zapped)),
            ("automatic mask", options.auto_mask.to_string()),
            ("--rfi-mask", format!("{:?}", options.mask.as_ref().map(|mask| &mask.path))),
            ("--max-flagged", format!("{:?}", options.max_flagged)),
            ("--time-range", format!("{:?}", options.time_range)),
        ] {
            self.add(name, value);
        }
        Ok(self)
    }

    fn add(&mut self, name: &str, value: String) {
        self.settings.push((name.to_owned(), value));
    }

    /// As one line of JSON.
    pub(super) fn line(&self) -> Result<String> {
        serde_json::to_string(self).map_err(|error| Error::Unavailable {
            what: "the checkpoint's settings".to_owned(),
            why: error.to_string(),
        })
    }

    /// Fails unless the run that left a folder at `place` had the same settings, with the first that differs.
    pub(super) fn check(&self, left: &Self, place: &Path) -> Result<()> {
        let refuse = |why: String| {
            let rule = format!("{why}; --resume continues a run only as it was begun");
            Err(Error::parameter("--resume", place.display(), rule))
        };
        for (name, value) in &self.settings {
            match left.settings.iter().find(|(other, _)| other == name) {
                Some((_, other)) if other == value => {}
                Some((_, other)) => {
                    return refuse(format!("the run was begun with {name} {other}, not {value}"));
                }
                None => return refuse(format!("the run was begun without {name}")),
            }
        }
        match left.settings.iter().find(|(name, _)| self.settings.iter().all(|own| own.0 != *name))
        {
            Some((name, _)) => refuse(format!("the run was begun with {name}")),
            None => Ok(()),
        }
    }
}

/// Fails for a recording that can't be read again from where an interrupted run ended.
///
/// # Errors
/// [`Error::Parameter`] naming the file.
pub(crate) fn check_can_resume(recording: &Recording) -> Result<()> {
    let Some(path) = recording.files().into_iter().find(|path| !is_regular(path)) else {
        return Ok(());
    };
    let (shown, rule) = if path.as_os_str() == "-" {
        let rule = "what came through it can't be read again, so no run on it can be continued";
        ("standard input".to_owned(), rule)
    } else {
        let rule = "it is no regular file: what came through it can't be read again";
        (path.display().to_string(), rule)
    };
    Err(Error::parameter("--resume", shown, rule))
}

/// Whether all files of a recording can be read again.
pub(crate) fn can_be_read_again(recording: &Recording) -> bool {
    recording.files().iter().all(|path| is_regular(path))
}

/// Whether a file can be read again; the name of a series of files, which is none itself, can.
fn is_regular(path: &Path) -> bool {
    let is_file = || std::fs::metadata(path).map_or(true, |found| found.is_file());
    path.as_os_str() != "-" && is_file()
}

/// Size and time of change of a file; nothing of the name of a series of files, which is none itself.
fn stamp(path: &Path) -> Result<String> {
    let Ok(found) = std::fs::metadata(path) else { return Ok("a series of files".to_owned()) };
    let changed = found.modified().map_err(|error| Error::io(path, error))?;
    let changed = changed.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Ok(format!(
        "of {} bytes, changed at {}.{:09} s",
        found.len(),
        changed.as_secs(),
        changed.subsec_nanos()
    ))
}
