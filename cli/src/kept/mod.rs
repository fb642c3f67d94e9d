//! Files that an interrupted run leaves in its folder so that `--resume` continues it: a journal of final results, and a
//! checkpoint with all that the run depends on.
//!
//! Invariant: a run is continued only with the input, the options, the version and the device that began it.

mod identity;

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use sidereal::{Error, Result};

use crate::common::Common;
use crate::output::{CHECKPOINT, Contents, Destination, Folder, JOURNAL};
use crate::say::note;
use crate::selection::Recording;
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
    /// Begins the folder of a run, or continues that of an interrupted one; true in the second case.
    ///
    /// # Errors
    /// As [`Folder::begin`] and [`Folder::resume`]; [`Error::Parameter`] for a recording that can't be read again.
    pub(crate) fn begin(
        &self,
        destination: &Destination,
        recording: &Recording,
        (also, product): (&[PathBuf], (&str, Contents)),
        common: &Common,
    ) -> Result<(Folder, bool)> {
        if self.resume {
            identity::check_can_resume(recording)?;
            if let Some(folder) = destination.resume(recording, also, product, common)? {
                return Ok((folder, true));
            }
            if !common.quiet {
                note!("no interrupted run left anything to continue; this one begins anew.");
            }
        }
        Ok((destination.begin(recording, also, product, common)?, false))
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

/// The journal and the checkpoint of a run that works.
#[derive(Debug)]
pub(crate) struct Keeper {
    folder: PathBuf,
    identity: Identity,
    journal: Option<File>,
    /// Bytes of whole lines in the journal.
    length: u64,
    /// When the last checkpoint was written.
    written: Option<Instant>,
}

impl Keeper {
    /// A keeper that writes into `folder`; nothing is written yet.
    pub(crate) fn new(folder: PathBuf, identity: Identity) -> Self {
        Self { folder, identity, journal: None, length: 0, written: None }
    }

    /// Continues what another run left, and returns its state; `None` where it left no checkpoint. Of its journal as many
    /// lines are kept as `lines` reads from the state: later ones will come again.
    ///
    /// # Errors
    /// [`Error::Parameter`] when it was another run's, with what differs; [`Error::Format`] when a file is damaged.
    pub(crate) fn resume(
        &mut self,
        place: &Path,
        lines: impl FnOnce(&[u8]) -> Result<u64>,
    ) -> Result<Option<Vec<u8>>> {
        let path = self.folder.join(CHECKPOINT);
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let _ = fs::remove_file(self.folder.join(JOURNAL));
                return Ok(None);
            }
            Err(error) => return Err(Error::io(path, error)),
        };
        let (identity, state) = parse(&bytes).ok_or_else(|| {
            Error::format(
                &path,
                "checkpoint",
                0,
                "it is damaged, expected a line of JSON and a state",
            )
        })?;
        self.identity.check(&identity, place)?;
        self.continue_journal(lines(state)?)?;
        Ok(Some(state.to_vec()))
    }

    /// Opens the journal behind its first `lines` lines.
    fn continue_journal(&mut self, lines: u64) -> Result<()> {
        let path = self.folder.join(JOURNAL);
        let failed = |error| Error::io(&path, error);
        let text = match fs::read_to_string(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            text => text.map_err(failed)?,
        };
        let kept: Vec<&str> =
            text.split_inclusive('\n').take(usize::try_from(lines).unwrap_or(usize::MAX)).collect();
        if kept.len() as u64 != lines || kept.last().is_some_and(|line| !line.ends_with('\n')) {
            let why =
                format!("it has {} lines, expected {lines} as the checkpoint says", kept.len());
            return Err(Error::format(&path, "journal", 0, why));
        }
        let bytes: usize = kept.iter().map(|line| line.len()).sum();
        let journal = OpenOptions::new().create(true).append(true).open(&path).map_err(failed)?;
        journal.set_len(bytes as u64).map_err(failed)?;
        (self.journal, self.length) = (Some(journal), bytes as u64);
        Ok(())
    }

    /// The journal's whole lines.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn read(&self) -> Result<String> {
        if self.length == 0 {
            return Ok(String::new());
        }
        let path = self.folder.join(JOURNAL);
        let mut text = fs::read_to_string(&path).map_err(|error| Error::io(path, error))?;
        text.truncate(usize::try_from(self.length).unwrap_or(usize::MAX));
        Ok(text)
    }

    /// Appends lines to the journal, each with its end; they are with the system when this returns.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn append(&mut self, lines: &str) -> Result<()> {
        let path = self.folder.join(JOURNAL);
        let failed = |error| Error::io(&path, error);
        let journal = match &mut self.journal {
            Some(journal) => journal,
            none => {
                let made = OpenOptions::new().create(true).append(true).open(&path);
                none.insert(made.map_err(failed)?)
            }
        };
        journal.write_all(lines.as_bytes()).map_err(failed)?;
        self.length += lines.len() as u64;
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
        self.append("")?;
        let (part, path) = (self.folder.join(PART), self.folder.join(CHECKPOINT));
        let identity = self.identity.line()?;
        let sum = sum(&[identity.as_bytes(), state]).to_le_bytes();
        let bytes = [identity.as_bytes(), b"\n", state, &sum].concat();
        let written = fs::write(&part, bytes).and_then(|()| fs::rename(&part, &path));
        written.map_err(|error| Error::io(path, error))?;
        self.written = Some(Instant::now());
        Ok(())
    }
}

/// Makes sure that the folder of an incomplete product has a journal, by which `--resume` knows it: without a checkpoint
/// it begins anew there.
///
/// # Errors
/// [`Error::Io`].
pub(crate) fn mark(folder: &Path) -> Result<()> {
    let path = folder.join(JOURNAL);
    let made = OpenOptions::new().create(true).append(true).open(&path);
    made.map(drop).map_err(|error| Error::io(path, error))
}

/// Removes journal and checkpoint of a run that needs them no more.
///
/// # Errors
/// [`Error::Io`].
pub(crate) fn clear(folder: &Path) -> Result<()> {
    for name in [PART, CHECKPOINT, JOURNAL] {
        let path = folder.join(name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(Error::io(path, error));
            }
            _ => {}
        }
    }
    Ok(())
}

fn parse(bytes: &[u8]) -> Option<(Identity, &[u8])> {
    let end = bytes.iter().position(|byte| *byte == b'\n')?;
    let (identity, rest) = (&bytes[..end], &bytes[end + 1..]);
    let (state, told) = rest.split_last_chunk::<8>()?;
    let is_whole = sum(&[identity, state]) == u64::from_le_bytes(*told);
    is_whole.then_some(())?;
    Some((serde_json::from_slice(identity).ok()?, state))
}

/// Fowler, Noll and Vo's hash.
fn sum(parts: &[&[u8]]) -> u64 {
    let bytes = parts.iter().flat_map(|part| *part);
    bytes.fold(0xcbf2_9ce4_8422_2325, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keeper(folder: &Path, snr: &str) -> Keeper {
        let identity = Identity::of("search", &[("--snr", snr.to_owned())]);
        Keeper::new(folder.to_path_buf(), identity)
    }

    #[test]
    fn a_run_goes_on_from_its_last_checkpoint_with_the_lines_that_it_counts() {
        let home = tempfile::tempdir().unwrap();
        let mut first = keeper(home.path(), "6");
        assert!(first.is_due());
        first.append("{1}\n{2}\n").unwrap();
        first.checkpoint(&[7, 10, 9]).unwrap();
        assert!(!first.is_due());
        first.append("{3}\n{4").unwrap();
        let mut second = keeper(home.path(), "6");
        let state = second.resume(home.path(), |_| Ok(2)).unwrap().unwrap();
        assert_eq!((state, second.read().unwrap()), (vec![7, 10, 9], "{1}\n{2}\n".to_owned()));
        second.append("{5}\n").unwrap();
        assert_eq!(second.read().unwrap(), "{1}\n{2}\n{5}\n");
        let refused = keeper(home.path(), "7").resume(home.path(), |_| Ok(2)).unwrap_err();
        assert!(refused.to_string().contains("--snr 6, not 7"), "{refused}");
        assert!(keeper(home.path(), "6").resume(home.path(), |_| Ok(4)).is_err());
        let path = home.path().join(CHECKPOINT);
        let mut bytes = fs::read(&path).unwrap();
        let last = bytes.len() - 9;
        bytes[last] ^= 1;
        fs::write(&path, bytes).unwrap();
        let damaged = keeper(home.path(), "6").resume(home.path(), |_| Ok(2)).unwrap_err();
        assert!(matches!(damaged, Error::Format { .. }), "{damaged}");
        clear(home.path()).unwrap();
        assert!(fs::read_dir(home.path()).unwrap().next().is_none());
        assert!(keeper(home.path(), "6").resume(home.path(), |_| Ok(2)).unwrap().is_none());
    }
}
