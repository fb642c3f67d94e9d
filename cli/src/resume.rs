//! Files in the folder of an interrupted run from which `--resume` continues: a journal of final results, and a
//! checkpoint with the run's identity (everything that its result depends on) and state.
//!
//! The checkpoint consists of a line of JSON with the run's identity and the length of its journal, then the state,
//! then a checksum. It is replaced atomically.
//!
//! Invariant: a run is continued only with the input, the options, the version and the device that began it.

use std::fmt::Debug;
use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use clap::Args;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sidereal::backend::{Backend, Host};
use sidereal::io::is_address;
use sidereal::io::positioned::FileExt;
use sidereal::pipeline::burst::SearchOptions;
use sidereal::state::{Saved, Saving};
use sidereal::{Error, Result};

use crate::common::Common;
use crate::output::{CHECKPOINT, Destination, Folder, FolderKind, JOURNAL};
use crate::say::note;
use crate::selection::Recording;

/// Option to continue an interrupted run.
#[derive(Args, Clone, Debug)]
pub(crate) struct Resume {
    /// Continue an interrupted or killed run from its last checkpoint.
    ///
    /// Input, options, version and device must be the same. The result is that of an uninterrupted run. Starts from
    /// the beginning if there is nothing to continue.
    #[arg(long, conflicts_with = "overwrite", help_heading = "Output")]
    resume: bool,
}

impl Resume {
    /// Fails if the option is given for inputs that cannot be read again.
    pub(crate) fn check(&self, inputs: &[PathBuf]) -> Result<()> {
        if self.resume { check_can_resume(inputs) } else { Ok(()) }
    }

    /// Begins the folder of a recording's products, or continues that of an interrupted run; returns true in the second case. Arguments
    /// are those of [`Destination::begin`].
    ///
    /// # Errors
    /// As [`Self::begin`], [`Destination::begin`] and [`Destination::resume`].
    pub(crate) fn folder(
        &self,
        destination: &Destination,
        recording: &Recording,
        also: &[PathBuf],
        kind: FolderKind<'_>,
        common: &Common,
    ) -> Result<(Folder, bool)> {
        self.begin(
            &recording.files(),
            || destination.resume(recording, also, kind, common),
            || destination.begin(recording, also, kind, common),
            common,
        )
    }

    /// Begins a run's output with `anew`, or continues that of an interrupted run with `left`; returns true in the
    /// second case, in which `inputs` are read again.
    ///
    /// # Errors
    /// Those of `anew` and `left`; [`Error::Parameter`] for an input that cannot be read again.
    pub(crate) fn begin<T>(
        &self,
        inputs: &[PathBuf],
        left: impl FnOnce() -> Result<Option<T>>,
        anew: impl FnOnce() -> Result<T>,
        common: &Common,
    ) -> Result<(T, bool)> {
        if self.resume {
            check_can_resume(inputs)?;
            if let Some(left) = left()? {
                return Ok((left, true));
            }
            if !common.quiet && !common.is_batch {
                note!(
                    "no interrupted run left anything to continue; this run starts from the beginning."
                );
            }
        }
        Ok((anew()?, false))
    }
}

/// Reports the position from which a run continues.
pub(crate) fn tell(rows: u64, common: &Common) {
    if !common.quiet {
        note!("continues an interrupted run of which {rows} spectra were done.");
    }
}

/// Name of the checkpoint while it is written.
const PART: &str = "checkpoint.part";

/// Time between checkpoints.
const PERIOD: Duration = Duration::from_secs(5);

/// First line of a checkpoint.
#[derive(Debug, Serialize, Deserialize)]
struct Head {
    run: Identity,
    /// Bytes of the journal that belong to the state.
    journal: u64,
}

/// Journal and checkpoint of a running run.
#[derive(Debug)]
pub(crate) struct RunJournal {
    folder: PathBuf,
    head: Head,
    journal: Option<File>,
    /// Time of the last checkpoint.
    written: Option<Instant>,
}

/// Checkpoint of an interrupted run.
#[derive(Debug)]
pub(crate) struct SavedCheckpoint {
    path: PathBuf,
    /// Byte offset of the state.
    origin: usize,
    bytes: Vec<u8>,
}

impl SavedCheckpoint {
    /// Reads the checkpoint of a folder, and checks its checksum and its run's settings; `None` if there is none. Returns also the
    /// bytes of the journal that belong to it. `place` is the user's name for the folder.
    ///
    /// # Errors
    /// As [`RunJournal::resume`].
    pub(crate) fn with_journal(
        folder: &Path,
        run: &Identity,
        place: &Path,
    ) -> Result<Option<(u64, Self)>> {
        Ok(Self::read(folder, run, place)?.map(|(head, saved)| (head.journal, saved)))
    }

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

    /// Returns the state's bytes.
    pub(crate) fn state(&self) -> &[u8] {
        &self.bytes[self.origin..]
    }

    /// Returns the state in the format that pipeline stages save.
    ///
    /// # Errors
    /// [`Error::Format`] when it is not in that format.
    pub(crate) fn saved(&self) -> Result<Saved<'_>> {
        Saved::new(&self.path, self.origin as u64, self.state())
    }
}

impl RunJournal {
    /// Creates a run journal that writes to `folder`; nothing is written yet.
    pub(crate) fn new(folder: PathBuf, run: Identity) -> Self {
        Self { folder, head: Head { run, journal: 0 }, journal: None, written: None }
    }

    /// Fails if the folder's checkpoint is that of a run with other settings.
    ///
    /// # Errors
    /// As [`RunJournal::resume`].
    pub(crate) fn check(&self, place: &Path) -> Result<()> {
        SavedCheckpoint::read(&self.folder, &self.head.run, place).map(|_| ())
    }

    /// Resumes an interrupted run and returns its checkpoint; `None` if there is none. Keeps the journal lines that
    /// the checkpoint counts; the resumed run writes the later ones again.
    ///
    /// # Errors
    /// [`Error::Parameter`] naming the difference if it was another run's; [`Error::Format`] when a file is damaged.
    pub(crate) fn resume(&mut self, place: &Path) -> Result<Option<SavedCheckpoint>> {
        let path = self.folder.join(JOURNAL);
        let Some((head, left)) = SavedCheckpoint::read(&self.folder, &self.head.run, place)? else {
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

    /// Returns the journal's lines.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Format`] for a line of another type.
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

    /// Appends a line of JSON for each element to the journal; the operating system has them when this returns.
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
        // Written at the counted offset: a line appended to one truncated by a full disk would be lost.
        journal.write_all_at(&bytes, self.head.journal).map_err(failed)?;
        self.head.journal += bytes.len() as u64;
        Ok(())
    }

    /// Returns whether a checkpoint is due.
    pub(crate) fn is_due(&self) -> bool {
        self.written.is_none_or(|written| written.elapsed() >= PERIOD)
    }

    /// Replaces the last checkpoint by this state.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn checkpoint(&mut self, state: &[u8]) -> Result<()> {
        // Later runs remove a folder without a journal, so it exists from the first checkpoint on.
        self.append(None::<()>)?;
        let head = HeadLine { run: &self.head.run, journal: self.head.journal };
        write_checkpoint(&self.folder, &head, state, false)?;
        self.written = Some(Instant::now());
        Ok(())
    }
}

/// First line of a checkpoint, as it is written.
#[derive(Debug, Serialize)]
pub(crate) struct HeadLine<'a> {
    pub(crate) run: &'a Identity,
    /// Bytes of the journal that belong to the state.
    pub(crate) journal: u64,
}

/// Replaces a folder's checkpoint, flushed to the disk first if `is_synced`.
///
/// # Errors
/// [`Error::Io`].
pub(crate) fn write_checkpoint(
    folder: &Path,
    head: &HeadLine<'_>,
    state: &[u8],
    is_synced: bool,
) -> Result<()> {
    let (part, path) = (folder.join(PART), folder.join(CHECKPOINT));
    let failed = |error| Error::io(&path, error);
    let mut bytes = serde_json::to_vec(head).map_err(|error| failed(error.into()))?;
    bytes.push(b'\n');
    bytes.extend(state);
    let mut file = File::create(&part).map_err(failed)?;
    file.write_all(&Saving::sealed(bytes)).map_err(failed)?;
    if is_synced {
        file.sync_all().map_err(failed)?;
    }
    fs::rename(&part, &path).map_err(failed)
}

/// Opens a journal; creates it if it does not exist.
fn open(path: &Path) -> Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    options.open(path).map_err(|error| Error::io(path, error))
}

/// Creates a journal in the folder of an incomplete product if there is none: it marks the folder for `--resume`,
/// which starts from the beginning without a checkpoint.
///
/// # Errors
/// [`Error::Io`].
pub(crate) fn mark(folder: &Path) -> Result<()> {
    open(&folder.join(JOURNAL)).map(drop)
}

/// Removes journal, checkpoint and related files of a run that no longer needs them.
///
/// # Errors
/// [`Error::Io`].
pub(crate) fn clear(folder: &Path) -> Result<()> {
    crate::output::clear(folder).map_err(|error| Error::io(folder, error))
}

/// Name of the setting that has the devices of a run.
const DEVICE: &str = "device";

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
        identity.add(DEVICE, device(backend));
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
            ("--rfi-block", &options.mitigation_block_s),
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
    fn check(&self, left: &Self, place: &Path) -> Result<()> {
        let refuse = |why: String| {
            let rule = format!("{why}; --resume continues a run only with the same options");
            Err(Error::parameter("--resume", place.display(), rule))
        };
        for (name, value) in &self.settings {
            match left.settings.iter().find(|(other, _)| other == name) {
                Some((_, other)) if other == value => {}
                Some((_, other)) => {
                    let (then, now) = differing(other, value);
                    if name == DEVICE {
                        let rule = format!(
                            "the run was begun on {then}, not on {now}, which divides the work in another way: choose devices of that \
                             kind and number with --device (cuda:0 for one GPU)"
                        );
                        return Err(Error::parameter("--resume", place.display(), rule));
                    }
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

/// Names the device of a backend. Results depend neither on the number of threads, nor on which of equal GPUs is used.
fn device(backend: &Backend) -> String {
    let Backend::Cuda(first, _) = backend else { return "cpu".to_owned() };
    let names = first.joined().map(|device| device.properties().name.clone());
    names.collect::<Vec<_>>().join(" + ")
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
fn check_can_resume(files: &[PathBuf]) -> Result<()> {
    let Some(path) = files.iter().find(|path| is_address(path) || !is_regular(path)) else {
        return Ok(());
    };
    let (shown, rule) = if path.as_os_str() == "-" {
        let rule = "its data cannot be read again, so the run cannot be continued";
        ("standard input".to_owned(), rule)
    } else {
        let rule = "it is not a regular file, so its data cannot be read again";
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

    fn keeper(folder: &Path, file: &Path, options: &dyn Debug) -> RunJournal {
        let files = [file.to_path_buf()];
        let run = Identity::new("a verb", &files, &[("--snr", options)], &Backend::Reference);
        RunJournal::new(folder.to_path_buf(), run.unwrap())
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
