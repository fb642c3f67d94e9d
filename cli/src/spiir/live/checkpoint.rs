//! Checkpoints of `live spiir`: the state of the search, written by a thread of its own, and a journal of the events published since.
//!
//! The journal has a record for each time that events changed: its length in bytes, and the sealed changes, after the length of
//! the file of events before they were written to it. A record precedes its lines, so a killed run leaves at most the lines of
//! its last record unwritten; the next one writes them.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use sidereal::spiir::coincidence::Published;
use sidereal::state::{Saved, Saving};
use sidereal::{Error, Result};

use crate::flags;
use crate::output::{CHECKPOINT, Folder, JOURNAL, Writing};
use crate::resume::{HeadLine, Identity, SavedCheckpoint, write_checkpoint};
use crate::say::warning;

/// Least time between two checkpoints, in units of the time for which one holds the search up.
const SHARE: u32 = 100;

/// Most bytes of a record of the journal.
const MOST_RECORD: usize = 1 << 28;

/// Events that were published together.
pub(super) struct Record {
    /// Length of the file of events before their lines.
    pub(super) before: u64,
    pub(super) published: Published,
}

/// Remains of a killed run.
pub(super) struct Left {
    checkpoint: SavedCheckpoint,
    /// Records after the checkpoint.
    pub(super) records: Vec<Record>,
    journal: u64,
}

impl Left {
    /// Reads what the newest killed run of a folder has left, of events of `detectors` detectors, with the run's folder; `None` if
    /// there is none.
    ///
    /// # Errors
    /// [`Error::Parameter`] naming the difference if it was another run; [`Error::Format`] for damaged files; [`Error::Io`].
    pub(super) fn find(
        output: &Path,
        run: &Identity,
        writing: &Writing<'_>,
        detectors: usize,
    ) -> Result<Option<(Folder, Self)>> {
        let Some(name) = killed(output)? else { return Ok(None) };
        let Some(folder) = Folder::resume(&output.join(name), writing)? else { return Ok(None) };
        let found = SavedCheckpoint::with_journal(&folder.file(""), run, folder.place())?;
        let Some((from, checkpoint)) = found else { return Ok(None) };
        let (records, journal) = records(&folder.file(JOURNAL), from, detectors)?;
        Ok(Some((folder, Self { checkpoint, records, journal })))
    }

    /// Returns whether the run was killed after its search had ended.
    pub(super) fn has_ended(&self) -> bool {
        self.records.last().is_some_and(|record| record.published.is_last())
    }

    /// Returns the state.
    ///
    /// # Errors
    /// [`Error::Format`] for a damaged one.
    pub(super) fn state(&self) -> Result<Saved<'_>> {
        self.checkpoint.saved()
    }
}

/// Returns the records of a journal from a byte on, and the byte after them.
fn records(path: &Path, from: u64, detectors: usize) -> Result<(Vec<Record>, u64)> {
    let bytes = fs::read(path).map_err(|error| Error::io(path, error))?;
    let mut at = usize::try_from(from).unwrap_or(usize::MAX);
    if at > bytes.len() {
        let why = format!("{} bytes found, expected {from} as the checkpoint says", bytes.len());
        return Err(Error::format(path, "journal", 0, why));
    }
    let mut records = Vec::new();
    // A record that was not written to its end was followed by no line.
    while let Some((length, rest)) = bytes[at..].split_first_chunk::<8>() {
        let length = usize::try_from(u64::from_le_bytes(*length)).unwrap_or(usize::MAX);
        if length == 0 {
            // A power failure may leave zeros at the end.
            break;
        }
        if length > MOST_RECORD {
            let why = format!("{length} bytes found, expected at most {MOST_RECORD}");
            return Err(Error::format(path, "length of a record", at as u64, why));
        }
        let Some(record) = rest.get(..length) else { break };
        let mut saved = Saved::new(path, at as u64 + 8, record)?;
        let (before, published) = (saved.number()?, Published::load(&mut saved, detectors)?);
        saved.end()?;
        records.push(Record { before, published });
        at += 8 + length;
    }
    Ok((records, at as u64))
}

/// State to write.
struct Job {
    state: Saving,
    journal: u64,
}

/// Result of the writer, and the memory of the state.
struct Done {
    memory: Vec<u8>,
    written: Result<()>,
}

/// Writer of checkpoints.
pub(super) struct Keeper {
    path: PathBuf,
    journal: File,
    /// Length of the journal.
    bytes: u64,
    interval: Duration,
    due: Instant,
    jobs: Option<SyncSender<Job>>,
    done: Receiver<Done>,
    /// Memory for the next state; `None` while one is written.
    spare: Option<Vec<u8>>,
    writer: Option<JoinHandle<()>>,
    is_writing: bool,
    has_failed: bool,
}

impl Keeper {
    /// Begins the journal of a folder, or continues that of a killed run, and starts the writer.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(super) fn begin(
        folder: &Path,
        run: Identity,
        left: Option<&Left>,
        interval: Duration,
        is_synced: bool,
    ) -> Result<Self> {
        let path = folder.join(JOURNAL);
        let failed = |error| Error::io(&path, error);
        let mut options = OpenOptions::new();
        let journal = options.append(true).create(true).open(&path).map_err(failed)?;
        let bytes = left.map_or(0, |left| left.journal);
        journal.set_len(bytes).map_err(failed)?;
        let (jobs, to_write) = sync_channel::<Job>(1);
        let (results, done) = sync_channel(1);
        let folder = folder.to_path_buf();
        let file = journal.try_clone().map_err(failed)?;
        let journal_path = path.clone();
        let write = move || {
            for Job { state, journal } in to_write {
                let memory = state.finish();
                let head = HeadLine { run: &run, journal };
                // The checkpoint relies on the journal's bytes.
                let synced = if is_synced { file.sync_data() } else { Ok(()) };
                let synced = synced.map_err(|error| Error::io(&journal_path, error));
                let written =
                    synced.and_then(|()| write_checkpoint(&folder, &head, &memory, is_synced));
                if results.send(Done { memory, written }).is_err() {
                    return;
                }
            }
        };
        let writer = thread::Builder::new().name("checkpoint".into()).spawn(write);
        let writer = Some(writer.map_err(|error| Error::io("thread of checkpoints", error))?);
        let (jobs, spare, due) = (Some(jobs), Some(Vec::new()), Instant::now());
        let (is_writing, has_failed) = (false, false);
        Ok(Self {
            path,
            journal,
            bytes,
            interval,
            due,
            jobs,
            done,
            spare,
            writer,
            is_writing,
            has_failed,
        })
    }

    /// Appends events to the journal, before their lines are written.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(super) fn publish(&mut self, record: &Record) -> Result<()> {
        let mut to = Saving::default();
        to.number(record.before);
        record.published.save(&mut to);
        let record = to.finish();
        let mut bytes = (record.len() as u64).to_le_bytes().to_vec();
        bytes.extend(record);
        self.journal.write_all(&bytes).map_err(|error| Error::io(&self.path, error))?;
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    /// Saves the state if a checkpoint is due and the last one has been written. `save` returns false for a state that cannot be
    /// saved.
    ///
    /// # Errors
    /// Those of `save`. A checkpoint that cannot be written is a warning.
    pub(super) fn keep(
        &mut self,
        is_quiet: bool,
        save: impl FnOnce(&mut Saving) -> Result<bool>,
    ) -> Result<()> {
        if let Ok(done) = self.done.try_recv() {
            self.take(done, is_quiet);
        }
        let begin = Instant::now();
        if begin < self.due {
            return Ok(());
        }
        let Some(memory) = self.spare.take() else { return Ok(()) };
        let mut state = Saving::reusing(memory);
        let is_saved = save(&mut state)?;
        if let (Some(jobs), true) = (&self.jobs, is_saved) {
            // The writer waits for a job, since the memory has come back.
            self.is_writing = jobs.send(Job { state, journal: self.bytes }).is_ok();
        }
        self.due = begin + self.interval.max(SHARE * begin.elapsed());
        Ok(())
    }

    /// Waits until the last checkpoint has been written.
    pub(super) fn settle(&mut self, is_quiet: bool) {
        if self.is_writing
            && let Ok(done) = self.done.recv()
        {
            self.take(done, is_quiet);
        }
    }

    /// Takes the result of the writer.
    fn take(&mut self, Done { memory, written }: Done, is_quiet: bool) {
        self.spare = Some(memory);
        self.is_writing = false;
        if let (Err(error), false) = (&written, self.has_failed) {
            let why = flags::text(error);
            warning!(quiet: is_quiet, "a checkpoint could not be written: {why}");
        }
        self.has_failed = written.is_err();
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(writer) = self.writer.take()
            && let Err(panic) = writer.join()
        {
            std::panic::resume_unwind(panic);
        }
    }
}

/// Returns the name of the newest run in a folder that was killed after a checkpoint.
fn killed(folder: &Path) -> Result<Option<String>> {
    let failed = |error| Error::io(folder, error);
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        entries => entries.map_err(failed)?,
    };
    let mut newest = None;
    for entry in entries {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some((name, _)) =
            name.strip_prefix('.').and_then(|name| name.split_once(".unfinished-"))
        else {
            continue;
        };
        let changed = fs::metadata(entry.path().join(CHECKPOINT));
        if let Ok(changed) = changed.and_then(|found| found.modified()) {
            newest = newest.max(Some((changed, name.to_owned())));
        }
    }
    Ok(newest.map(|(_, name)| name))
}
