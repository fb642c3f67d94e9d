//! What a run keeps on its way: a journal of what is final, and a checkpoint from which it goes on when interrupted.
//!
//! The checkpoint is a line of JSON, which says what run it is of and how much of the journal belongs to it, and the
//! state behind it. It is replaced as a whole.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use sidereal::backend::{Backend, Host};
use sidereal::{Error, Result};

use crate::output::{CHECKPOINT, JOURNAL};

/// Least time between two checkpoints.
const INTERVAL: Duration = Duration::from_secs(1);
/// Bytes of a checkpoint's first line, at most.
const LONGEST: usize = 1 << 20;

/// What must be the same in a run that goes on where another was interrupted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Identity(BTreeMap<String, Vec<String>>);

/// A checkpoint's first line.
#[derive(Debug, Serialize, Deserialize)]
struct Head {
    run: Identity,
    /// Bytes of the journal that belong to the state.
    journal: u64,
}

/// The journal and the checkpoint of a run.
#[derive(Debug)]
pub(super) struct Kept {
    folder: PathBuf,
    run: Identity,
    journal: Option<File>,
    /// Bytes of the journal.
    written: u64,
    saved: Instant,
}

/// Where an interrupted run was.
#[derive(Debug)]
pub(super) struct Before {
    /// The journal's lines.
    pub(super) lines: Vec<u8>,
    /// The state, and the byte of the checkpoint at which it begins; none where the run has to begin anew.
    pub(super) state: Option<(u64, Vec<u8>)>,
    /// The checkpoint, for errors.
    pub(super) path: PathBuf,
}

impl Identity {
    /// A run of this verb on a backend, which reads these files, with options as they print themselves.
    ///
    /// # Errors
    /// [`Error::Io`] of a file.
    pub(super) fn new(
        verb: &str,
        files: &[PathBuf],
        options: &[(&str, &dyn Debug)],
        backend: &Backend,
    ) -> Result<Self> {
        let level = match backend.host() {
            Host::Reference => "reference",
            Host::Cpu(level, _) => level.name(),
        };
        let device = if backend.is_gpu() { backend.name() } else { "cpu".to_owned() };
        let mut all = BTreeMap::new();
        for (name, value) in [
            ("version", env!("CARGO_PKG_VERSION")),
            ("verb", verb),
            ("device", &device),
            ("vector level", level),
        ] {
            all.insert(name.to_owned(), vec![value.to_owned()]);
        }
        for (name, options) in options {
            let lines = format!("{options:#?}");
            let lines = lines.lines().map(|line| line.trim().trim_end_matches(',').to_owned());
            all.insert((*name).to_owned(), lines.collect());
        }
        let inputs = files.iter().map(|path| input(path)).collect::<Result<_>>()?;
        all.insert("input".to_owned(), inputs);
        Ok(Self(all))
    }

    /// Fails, and says what differs, unless both are of the same run.
    fn check(&self, before: &Self) -> Result<()> {
        for (name, now) in &self.0 {
            let none = Vec::new();
            let then = before.0.get(name).unwrap_or(&none);
            if now == then {
                continue;
            }
            let differing = then.iter().zip(now).find(|(then, now)| then != now);
            let found = match differing {
                Some((then, now)) => format!("{then}, and this run has {now}"),
                None => format!("{} lines, and this run has {}", then.len(), now.len()),
            };
            let rule = format!("the interrupted run had {found}: {name} must be the same");
            return Err(Error::parameter("--resume", "another run's", rule));
        }
        Ok(())
    }
}

/// Path, size and time of the last change of a file.
fn input(path: &Path) -> Result<String> {
    let io = |error| Error::io(path, error);
    let whole = path.canonicalize().map_err(io)?;
    let found = fs::metadata(path).map_err(io)?;
    let changed = found.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    let changed_ns = changed.map_or(0, |since| since.as_nanos());
    Ok(format!("{} of {} bytes, changed {changed_ns}", whole.display(), found.len()))
}

/// A checkpoint's first line, and the state behind it.
fn read(folder: &Path) -> Result<(Head, Vec<u8>)> {
    let path = folder.join(CHECKPOINT);
    let mut bytes = fs::read(&path).map_err(|error| Error::io(&path, error))?;
    let fault = |why: &str| Error::format(&path, "first line", 0, why);
    let end = bytes.iter().take(LONGEST).position(|byte| *byte == b'\n');
    let end = end.ok_or_else(|| fault("it does not end, expected a line of JSON"))?;
    let head = serde_json::from_slice(&bytes[..end])
        .map_err(|error| fault(&format!("{error}, expected a line of JSON")))?;
    Ok((head, bytes.split_off(end + 1)))
}

impl Kept {
    /// Of a run that begins in a folder; nothing of another run is to be there.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(super) fn begin(folder: &Path, run: Identity) -> Result<Self> {
        let folder = folder.to_path_buf();
        let mut kept = Self { folder, run, journal: None, written: 0, saved: Instant::now() };
        kept.write(&[])?;
        Ok(kept)
    }

    /// Fails unless the run that left a folder is this one.
    ///
    /// # Errors
    /// As [`Self::resume`].
    pub(super) fn check(folder: &Path, run: &Identity) -> Result<()> {
        run.check(&read(folder)?.0.run)
    }

    /// Of a run that goes on in a folder that another left.
    ///
    /// # Errors
    /// [`Error::Parameter`] naming what differs between both runs; [`Error::Format`] for a damaged checkpoint or
    /// journal; [`Error::Io`].
    pub(super) fn resume(folder: &Path, run: Identity) -> Result<(Self, Before)> {
        let (head, state) = read(folder)?;
        run.check(&head.run)?;
        let path = folder.join(CHECKPOINT);
        let end = fs::metadata(&path).map_err(|error| Error::io(&path, error))?.len();
        let origin = end.saturating_sub(state.len() as u64);
        let state = (!state.is_empty()).then_some((origin, state));
        // Without a state all is found again.
        let written = if state.is_some() { head.journal } else { 0 };
        let journal_path = folder.join(JOURNAL);
        let io = |error| Error::io(&journal_path, error);
        let journal = OpenOptions::new().read(true).write(true).open(&journal_path).map_err(io)?;
        let found = journal.metadata().map_err(io)?.len();
        if found < written {
            let why = format!("{found} bytes found, expected {written}, as the checkpoint says");
            return Err(Error::format(&journal_path, "journal", 0, why));
        }
        let mut lines = vec![0; written as usize];
        journal.read_exact_at(&mut lines, 0).map_err(io)?;
        journal.set_len(written).map_err(io)?;
        let folder = folder.to_path_buf();
        let journal = Some(journal);
        let kept = Self { folder, run, journal, written, saved: Instant::now() };
        Ok((kept, Before { lines, state, path }))
    }

    /// Appends a line for each of these to the journal.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(super) fn note<T: Serialize>(&mut self, lines: impl Iterator<Item = T>) -> Result<()> {
        let path = self.folder.join(JOURNAL);
        let io = |error| Error::io(&path, error);
        let mut bytes = Vec::new();
        for line in lines {
            serde_json::to_writer(&mut bytes, &line).map_err(|error| io(error.into()))?;
            bytes.push(b'\n');
        }
        let file = match &mut self.journal {
            Some(file) => file,
            none => none.insert(File::create(&path).map_err(io)?),
        };
        // Behind a line that a full disk cut, the next would be lost.
        file.write_all_at(&bytes, self.written).map_err(io)?;
        self.written += bytes.len() as u64;
        Ok(())
    }

    /// Says whether it is time for a checkpoint.
    pub(super) fn is_due(&self) -> bool {
        self.saved.elapsed() >= INTERVAL
    }

    /// Replaces the checkpoint.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(super) fn save(&mut self, state: &[u8]) -> Result<()> {
        // A journal says that there is something to go on with.
        self.note(std::iter::empty::<()>())?;
        self.write(state)?;
        self.saved = Instant::now();
        Ok(())
    }

    fn write(&mut self, state: &[u8]) -> Result<()> {
        let path = self.folder.join(CHECKPOINT);
        let next = self.folder.join(format!("{CHECKPOINT}.next"));
        let io = |error| Error::io(&path, error);
        let head = Head { run: self.run.clone(), journal: self.written };
        let mut file = File::create(&next).map_err(io)?;
        let mut line = serde_json::to_vec(&head).map_err(|error| io(error.into()))?;
        line.push(b'\n');
        file.write_all(&line).and_then(|()| file.write_all(state)).map_err(io)?;
        fs::rename(&next, &path).map_err(io)
    }

    /// Removes journal, checkpoint and all that goes with them: the run was not interrupted.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(super) fn remove(folder: &Path) -> Result<()> {
        let io = |error| Error::io(folder, error);
        for entry in fs::read_dir(folder).map_err(io)? {
            let name = entry.map_err(io)?.file_name();
            let is_own = name.to_string_lossy().starts_with(CHECKPOINT) || name == JOURNAL;
            if is_own {
                fs::remove_file(folder.join(name)).map_err(io)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(threshold: f64, file: &Path) -> Identity {
        let options = [("options", &threshold as &dyn Debug)];
        Identity::new("a verb", &[file.to_path_buf()], &options, &Backend::Reference).unwrap()
    }

    #[test]
    fn a_run_goes_on_only_where_the_same_was_interrupted() {
        let home = tempfile::tempdir().unwrap();
        let (folder, file) = (home.path(), home.path().join("strain"));
        fs::write(&file, "1").unwrap();
        let mut kept = Kept::begin(folder, run(4.0, &file)).unwrap();
        assert!(!folder.join(JOURNAL).exists(), "nothing is final yet");
        kept.note(["one", "two"].iter()).unwrap();
        kept.save(b"state").unwrap();
        kept.note(["three"].iter()).unwrap();
        drop(kept);
        let error = Kept::resume(folder, run(5.0, &file)).unwrap_err().to_string();
        assert!(error.contains("had 4.0, and this run has 5.0: options"), "{error}");
        let (mut kept, before) = Kept::resume(folder, run(4.0, &file)).unwrap();
        assert_eq!(before.lines, b"\"one\"\n\"two\"\n");
        assert_eq!(before.state.unwrap().1, b"state");
        kept.note(["four"].iter()).unwrap();
        assert_eq!(fs::read(folder.join(JOURNAL)).unwrap(), b"\"one\"\n\"two\"\n\"four\"\n");
        fs::write(&file, "12").unwrap();
        let error = Kept::resume(folder, run(4.0, &file)).unwrap_err().to_string();
        assert!(error.contains("of 1 bytes") && error.contains("input"), "{error}");
        fs::write(&file, "1").unwrap();
        fs::write(folder.join(JOURNAL), "\"one\"").unwrap();
        let now = run(4.0, &file);
        let mut then = kept;
        then.run = now.clone();
        then.write(b"state").unwrap();
        assert!(matches!(Kept::resume(folder, now.clone()), Err(Error::Format { .. })));
        fs::write(folder.join(CHECKPOINT), "{").unwrap();
        assert!(matches!(Kept::resume(folder, now), Err(Error::Format { .. })));
        Kept::remove(folder).unwrap();
        assert!(!folder.join(JOURNAL).exists() && !folder.join(CHECKPOINT).exists());
    }
}
