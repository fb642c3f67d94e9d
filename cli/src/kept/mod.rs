//! Files that an interrupted run leaves in its folder so that `--resume` continues it: a journal of final results, and a
//! checkpoint with all that the run depends on.
//!
//! The checkpoint is a line of JSON, which says what run it is of and how much of the journal belongs to it, the state
//! behind it and a checksum. It is replaced as a whole.
//!
//! Invariant: a run is continued only with the input, the options, the version and the device that began it.

mod identity;

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sidereal::state::{Saved, Saving};
use sidereal::{Error, Result};

use crate::common::Common;
use crate::output::{CHECKPOINT, JOURNAL};
use crate::say::note;
pub(crate) use identity::{Identity, can_be_read_again};

/// Whether an interrupted run is continued.
#[derive(Args, Clone, Debug)]
pub(crate) struct Resume {
    /// Continue an interrupted or killed run from its last checkpoint: same input, options, version and device. The result
    /// is that of a run that was never interrupted. Begins anew where there is nothing to continue.
    #[arg(long, conflicts_with = "overwrite", help_heading = "Output")]
    resume: bool,
}

impl Resume {
    /// Begins where a run writes, or continues what an interrupted one `left` there; true in the second case. `inputs` are
    /// read again then.
    ///
    /// # Errors
    /// Those of both; [`Error::Parameter`] for a file that can't be read again.
    pub(crate) fn begin<T>(
        &self,
        inputs: &[PathBuf],
        left: impl FnOnce() -> Result<Option<T>>,
        anew: impl FnOnce() -> Result<T>,
        common: &Common,
    ) -> Result<(T, bool)> {
        if self.resume {
            identity::check_can_resume(inputs)?;
            if let Some(left) = left()? {
                return Ok((left, true));
            }
            if !common.quiet {
                note!("no interrupted run left anything to continue; this one begins anew.");
            }
        }
        Ok((anew()?, false))
    }
}

/// Says from where a run is continued.
pub(crate) fn tell(rows: u64, common: &Common) {
    if !common.quiet {
        note!("continues an interrupted run of which {rows} spectra were done.");
    }
}

/// The checkpoint's name while it is written.
const PART: &str = "checkpoint.part";

/// Time between checkpoints.
const PERIOD: Duration = Duration::from_secs(5);

/// A checkpoint's first line.
#[derive(Debug, Serialize, Deserialize)]
struct Head {
    run: Identity,
    /// Bytes of the journal that belong to the state.
    journal: u64,
}

/// The journal and the checkpoint of a run that works.
#[derive(Debug)]
pub(crate) struct Keeper {
    folder: PathBuf,
    head: Head,
    journal: Option<File>,
    /// When the last checkpoint was written.
    written: Option<Instant>,
}

/// A checkpoint that an interrupted run left.
#[derive(Debug)]
pub(crate) struct Left {
    path: PathBuf,
    /// The byte at which the state begins.
    origin: usize,
    bytes: Vec<u8>,
}

impl Left {
    /// Reads that of a folder, and checks that it is whole and of a run that had the same settings; `None` where there is
    /// none. `place` is what the user calls the folder.
    fn read(folder: &Path, run: &Identity, place: &Path) -> Result<Option<(Head, Self)>> {
        let path = folder.join(CHECKPOINT);
        let mut bytes = match fs::read(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            bytes => bytes.map_err(|error| Error::io(&path, error))?,
        };
        Saved::new(&path, 0, &bytes)?;
        bytes.truncate(bytes.len() - 8);
        let line = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let head: Head = serde_json::from_slice(line).map_err(|error| {
            Error::format(&path, "first line", 0, format!("{error}, expected a line of JSON"))
        })?;
        run.check(&head.run, place)?;
        let origin = (line.len() + 1).min(bytes.len());
        Ok(Some((head, Self { path, origin, bytes })))
    }

    /// The state.
    pub(crate) fn state(&self) -> &[u8] {
        &self.bytes[self.origin..]
    }

    /// The state as stages save it.
    ///
    /// # Errors
    /// [`Error::Format`] when it is none.
    pub(crate) fn saved(&self) -> Result<Saved<'_>> {
        Saved::new(&self.path, self.origin as u64, self.state())
    }
}

impl Keeper {
    /// A keeper that writes into `folder`; nothing is written yet.
    pub(crate) fn new(folder: PathBuf, run: Identity) -> Self {
        Self { folder, head: Head { run, journal: 0 }, journal: None, written: None }
    }

    /// Fails where another run left the folder, with what differs.
    ///
    /// # Errors
    /// As [`Keeper::resume`].
    pub(crate) fn check(&self, place: &Path) -> Result<()> {
        Left::read(&self.folder, &self.head.run, place).map(|_| ())
    }

    /// Continues what another run left, and returns its checkpoint; `None` where it left none. Of its journal the lines
    /// that the checkpoint counts are kept: later ones will come again.
    ///
    /// # Errors
    /// [`Error::Parameter`] when it was another run's, with what differs; [`Error::Format`] when a file is damaged.
    pub(crate) fn resume(&mut self, place: &Path) -> Result<Option<Left>> {
        let path = self.folder.join(JOURNAL);
        let Some((head, left)) = Left::read(&self.folder, &self.head.run, place)? else {
            let _ = fs::remove_file(path);
            return Ok(None);
        };
        let failed = |error| Error::io(&path, error);
        let journal = open(&path)?;
        let found = journal.metadata().map_err(failed)?.len();
        if found < head.journal {
            let why =
                format!("{found} bytes found, expected {} as the checkpoint says", head.journal);
            return Err(Error::format(&path, "journal", 0, why));
        }
        journal.set_len(head.journal).map_err(failed)?;
        (self.head, self.journal) = (head, Some(journal));
        Ok(Some(left))
    }

    /// The journal's lines.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Format`] for a line of something else.
    pub(crate) fn lines<T: DeserializeOwned>(&self) -> Result<Vec<T>> {
        let path = self.folder.join(JOURNAL);
        let mut text = vec![0; self.head.journal as usize];
        if let Some(journal) = &self.journal {
            journal.read_exact_at(&mut text, 0).map_err(|error| Error::io(&path, error))?;
        }
        let line = |(index, line): (usize, &[u8])| {
            serde_json::from_slice(line).map_err(|error| {
                Error::format(&path, format!("line {}", index + 1), 0, error.to_string())
            })
        };
        text.split_inclusive(|byte| *byte == b'\n').enumerate().map(line).collect()
    }

    /// Appends a line of JSON for each of these to the journal; they are with the system when this returns.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn append<T: Serialize>(
        &mut self,
        lines: impl IntoIterator<Item = T>,
    ) -> Result<()> {
        let path = self.folder.join(JOURNAL);
        let failed = |error| Error::io(&path, error);
        let mut bytes = Vec::new();
        for line in lines {
            serde_json::to_writer(&mut bytes, &line).map_err(|error| failed(error.into()))?;
            bytes.push(b'\n');
        }
        let journal = match &mut self.journal {
            Some(journal) => journal,
            none => none.insert(open(&path)?),
        };
        // A line appended to one that a full disk cut would be lost.
        journal.write_all_at(&bytes, self.head.journal).map_err(failed)?;
        self.head.journal += bytes.len() as u64;
        Ok(())
    }

    /// Whether a checkpoint is due.
    pub(crate) fn is_due(&self) -> bool {
        self.written.is_none_or(|written| written.elapsed() >= PERIOD)
    }

    /// Writes the state in place of the last one.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn checkpoint(&mut self, state: &[u8]) -> Result<()> {
        // A folder without a journal is swept, so there is one from the first checkpoint on.
        self.append(None::<()>)?;
        let (part, path) = (self.folder.join(PART), self.folder.join(CHECKPOINT));
        let failed = |error| Error::io(&path, error);
        let mut bytes = serde_json::to_vec(&self.head).map_err(|error| failed(error.into()))?;
        bytes.push(b'\n');
        bytes.extend(state);
        let written = fs::write(&part, Saving::sealed(bytes));
        written.and_then(|()| fs::rename(&part, &path)).map_err(failed)?;
        self.written = Some(Instant::now());
        Ok(())
    }
}

/// Opens a journal; there may be none yet.
fn open(path: &Path) -> Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    options.open(path).map_err(|error| Error::io(path, error))
}

/// Makes sure that the folder of an incomplete product has a journal, by which `--resume` knows it: without a checkpoint
/// it begins anew there.
///
/// # Errors
/// [`Error::Io`].
pub(crate) fn mark(folder: &Path) -> Result<()> {
    open(&folder.join(JOURNAL)).map(drop)
}

/// Removes journal, checkpoint and what goes with them, of a run that needs them no more.
///
/// # Errors
/// [`Error::Io`].
pub(crate) fn clear(folder: &Path) -> Result<()> {
    let failed = |error| Error::io(folder, error);
    for entry in fs::read_dir(folder).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        if name == JOURNAL || name.to_string_lossy().starts_with(CHECKPOINT) {
            fs::remove_file(folder.join(name)).map_err(failed)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fmt::Debug;

    use sidereal::backend::Backend;

    use super::*;

    struct Search {
        word: &'static str,
        snr: f64,
    }

    impl Debug for Search {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.debug_struct("Search").field("word", &self.word).field("snr", &self.snr).finish()
        }
    }

    fn keeper(folder: &Path, file: &Path, options: &dyn Debug) -> Keeper {
        let files = [file.to_path_buf()];
        let run = Identity::new("a verb", &files, &[("--snr", options)], &Backend::Reference);
        Keeper::new(folder.to_path_buf(), run.unwrap())
    }

    #[test]
    fn a_run_goes_on_from_its_last_checkpoint_with_the_lines_that_it_counts() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("file");
        fs::write(&file, "1").unwrap();
        let folder = home.path().join("out");
        fs::create_dir(&folder).unwrap();
        let begun = |options: &dyn Debug| keeper(&folder, &file, options);
        let mut first = begun(&6.0);
        assert!(first.is_due() && first.resume(&folder).unwrap().is_none());
        first.append([1, 2]).unwrap();
        first.checkpoint(b"state").unwrap();
        assert!(!first.is_due());
        first.append([3]).unwrap();
        // A full disk left part of a line.
        fs::OpenOptions::new()
            .append(true)
            .open(folder.join(JOURNAL))
            .and_then(|mut journal| std::io::Write::write_all(&mut journal, b"4"))
            .unwrap();
        first.append([5]).unwrap();
        assert_eq!(first.lines::<u8>().unwrap(), [1, 2, 3, 5]);
        let mut second = begun(&6.0);
        second.check(&folder).unwrap();
        let left = second.resume(&folder).unwrap().unwrap();
        assert_eq!((left.state(), second.lines().unwrap()), (b"state".as_slice(), vec![1, 2]));
        assert!(left.saved().is_err(), "it is none that a stage saved");
        second.append([6]).unwrap();
        assert_eq!(second.lines::<u8>().unwrap(), [1, 2, 6]);
        let refused = begun(&7.0).resume(&folder).unwrap_err().to_string();
        assert!(refused.contains("--snr 6.0, not 7.0"), "{refused}");
        fs::write(&file, "12").unwrap();
        let refused = begun(&6.0).check(&folder).unwrap_err().to_string();
        assert!(refused.contains("of 1 bytes") && refused.contains("input"), "{refused}");
        fs::write(folder.join(JOURNAL), "1").unwrap();
        let mut cut = begun(&6.0);
        cut.head.run = second.head.run.clone();
        assert!(matches!(cut.resume(&folder), Err(Error::Format { .. })));
        let path = folder.join(CHECKPOINT);
        let mut bytes = fs::read(&path).unwrap();
        let last = bytes.len() - 9;
        bytes[last] ^= 1;
        fs::write(&path, bytes).unwrap();
        assert!(matches!(begun(&6.0).resume(&folder), Err(Error::Format { .. })));
        fs::write(folder.join("checkpoint.H1"), "").unwrap();
        clear(&folder).unwrap();
        assert!(fs::read_dir(&folder).unwrap().next().is_none());
        assert!(begun(&6.0).resume(&folder).unwrap().is_none());
    }

    #[test]
    fn of_many_options_the_one_that_differs_is_told() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("file");
        fs::write(&file, "").unwrap();
        let begun = |snr: f64| keeper(home.path(), &file, &Search { word: "ä, {b}", snr });
        begun(6.0).checkpoint(&[]).unwrap();
        let refused = begun(6.5).check(home.path()).unwrap_err().to_string();
        assert!(refused.contains("with --snr snr: 6.0, not snr: 6.5"), "{refused}");
    }
}
