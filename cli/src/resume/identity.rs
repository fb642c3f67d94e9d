//! Identity of a run: everything that its result depends on.

use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use sidereal::backend::{Backend, Host};
use sidereal::pipeline::burst::SearchOptions;
use sidereal::{Error, Result};

use crate::selection::Recording;

/// Settings of a run, in the order in which differences are reported.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Identity {
    settings: Vec<(String, String)>,
}

impl Identity {
    /// Identifies a run of a verb on a backend by its named settings and by its input `files`.
    ///
    /// # Errors
    /// [`Error::Io`] when a file cannot be examined.
    pub(crate) fn new(
        verb: &str,
        files: &[PathBuf],
        own: &[(&str, &dyn Debug)],
        backend: &Backend,
    ) -> Result<Self> {
        let mut identity = Self { settings: Vec::new() };
        identity.add("version", format!("{}, {verb}", env!("CARGO_PKG_VERSION")));
        identity.add_all(own);
        for path in files {
            identity.add(&format!("input {}", path.display()), stamp(path)?);
        }
        // Results do not depend on the number of threads.
        let device = if backend.is_gpu() { backend.name() } else { "cpu".to_owned() };
        identity.add("device", device);
        let level = match backend.host() {
            Host::Reference => "reference",
            Host::Cpu(level, _) => level.name(),
        };
        identity.add("vector level", level.to_owned());
        Ok(identity)
    }

    /// Adds a filterbank recording and its processing options.
    pub(crate) fn with(mut self, recording: &Recording, options: &SearchOptions) -> Self {
        self.add("recording", recording.told());
        self.add_all(&[
            ("trial DMs", &options.plan),
            ("--dm-constant", &options.dm_constant),
            ("--zero-dm", &options.zero_dm),
            ("--zap-chans", &options.zapped),
            ("automatic mask", &options.auto_mask),
            ("--rfi", &options.mitigation),
            ("--rfi-mask", &options.mask.as_ref().map(|mask| &mask.path)),
            ("--max-flagged", &options.max_flagged),
            ("--time-range", &options.time_range),
        ]);
        self
    }

    fn add_all(&mut self, settings: &[(&str, &dyn Debug)]) {
        for (name, value) in settings {
            self.add(name, format!("{value:?}"));
        }
    }

    fn add(&mut self, name: &str, value: String) {
        self.settings.push((name.to_owned(), value));
    }

    /// Fails, naming the first difference, unless the run that left a folder at `place` had the same settings.
    pub(super) fn check(&self, left: &Self, place: &Path) -> Result<()> {
        let refuse = |why: String| {
            let rule = format!("{why}; --resume continues a run only as it was begun");
            Err(Error::parameter("--resume", place.display(), rule))
        };
        for (name, value) in &self.settings {
            match left.settings.iter().find(|(other, _)| other == name) {
                Some((_, other)) if other == value => {}
                Some((_, other)) => {
                    let (then, now) = differing(other, value);
                    return refuse(format!("the run was begun with {name} {then}, not {now}"));
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

/// Returns the first fields in which two debug texts of structures differ, or the whole texts of other values.
fn differing<'a>(then: &'a str, now: &'a str) -> (&'a str, &'a str) {
    let mut both = then.char_indices().zip(now.chars());
    let same = both.find(|((_, a), b)| a != b).map_or(then.len().min(now.len()), |((at, _), _)| at);
    let Some(_) = then[..same].find('{') else { return (then, now) };
    let begin = then[..same].rfind(['{', ',']).map_or(0, |at| at + 1);
    let field = |all: &'a str| {
        let field = &all[begin..];
        field[..field.find([',', '}']).unwrap_or(field.len())].trim()
    };
    (field(then), field(now))
}

/// Fails for files that cannot be read again from the position where an interrupted run ended.
///
/// # Errors
/// [`Error::Parameter`] naming the file.
pub(super) fn check_can_resume(files: &[PathBuf]) -> Result<()> {
    let Some(path) = files.iter().find(|path| !is_regular(path)) else {
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

/// Returns whether all files of a recording can be read again.
pub(crate) fn can_be_read_again(recording: &Recording) -> bool {
    recording.files().iter().all(|path| is_regular(path))
}

/// Returns whether a file can be read again; true for the name of a file series, which is not a file itself.
fn is_regular(path: &Path) -> bool {
    let is_file = || std::fs::metadata(path).map_or(true, |found| found.is_file());
    path.as_os_str() != "-" && is_file()
}

/// Returns size and modification time of a file, or a fixed text for the name of a file series, which is not a file
/// itself.
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
