//! The unfinished folder of one output, and the lock that goes with it.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use sidereal::{Error, Result};

use super::lock::Lock;
use super::{JOURNAL, names, rename};
use crate::common::Common;
use crate::interrupt::Unfinished;
use crate::say::{note, warning};

/// How often an output's folder is made again when another run removes it at the same moment.
const ATTEMPTS: usize = 10;

/// An output's name, locked.
#[derive(Debug)]
pub(crate) struct Locked {
    pub(super) place: PathBuf,
    /// `None` only while this is dropped.
    lock: Option<Lock>,
    /// Folders above that were made on the way, the innermost first.
    made: Vec<PathBuf>,
    pub(super) quiet: bool,
    sync: bool,
}

impl Locked {
    /// Locks `place`; `make_parents` says whether missing folders above are made.
    ///
    /// # Errors
    /// As [`Lock::take`]; [`Error::Io`] when the folders above can't be made.
    pub(super) fn new(place: &Path, make_parents: bool, common: &Common) -> Result<Self> {
        let mut made = Vec::new();
        let mut attempt = 0;
        let lock = loop {
            if make_parents {
                made.extend(self::make_parents(names::parent(place))?);
            }
            attempt += 1;
            match Lock::take(place) {
                // A run that failed removes the folders that it made, as long as they are empty.
                Err(Error::Io { source, .. })
                    if source.kind() == ErrorKind::NotFound
                        && make_parents
                        && attempt < ATTEMPTS => {}
                Err(error) => {
                    made.iter().for_each(|folder| drop(fs::remove_dir(folder)));
                    return Err(error);
                }
                Ok(lock) => break lock,
            }
        };
        let (quiet, sync) = (common.quiet, !common.no_sync);
        Ok(Self { place: place.to_path_buf(), lock: Some(lock), made, quiet, sync })
    }

    /// Whether no other run can write the same output.
    pub(super) fn is_held(&self) -> bool {
        self.lock.as_ref().is_some_and(Lock::is_held)
    }

    /// Says something on standard error, unless nothing shall be said.
    pub(super) fn tell(&self, words: &str) {
        if !self.quiet {
            note!("{words}");
        }
    }

    /// Warns of something.
    pub(super) fn warn(&self, words: &str) {
        warning!(quiet: self.quiet, "{words}");
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        drop(self.lock.take());
        for folder in &self.made {
            // Only an empty one goes.
            let _ = fs::remove_dir(folder);
        }
    }
}

/// A folder in the making, of which nothing has its final name yet.
///
/// Dropped, it vanishes, unless it holds a journal: that has results which are final, so it stays and is named.
#[derive(Debug)]
pub(super) struct Draft {
    pub(super) path: PathBuf,
    /// Whether all that is worth keeping has its final name.
    pub(super) done: bool,
    /// What Ctrl-C has to remove.
    unfinished: Option<Unfinished>,
    pub(super) locked: Locked,
}

impl Draft {
    /// Makes an empty one.
    ///
    /// # Errors
    /// [`Error::Io`] naming the output.
    pub(super) fn new(locked: Locked) -> Result<Self> {
        let made = names::make(&locked.place, names::UNFINISHED, |path| fs::create_dir(path));
        let path = made.map_err(|error| Error::io(&locked.place, error))?;
        Ok(Self::of(path, locked))
    }

    /// Goes on with one that is there.
    pub(super) fn of(path: PathBuf, locked: Locked) -> Self {
        let unfinished = Some(Unfinished::new(path.clone()));
        Self { path, done: false, unfinished, locked }
    }

    /// The output's final place.
    pub(super) fn place(&self) -> &Path {
        &self.locked.place
    }

    /// Waits until all files are on the disk, unless `--no-sync` is given.
    ///
    /// # Errors
    /// [`Error::Io`] naming the output.
    pub(super) fn sync(&self) -> Result<()> {
        if !self.locked.sync {
            return Ok(());
        }
        rename::sync_tree(&self.path).map_err(|error| Error::io(self.place(), error))
    }

    /// Waits until the names in the folder above are on the disk, unless `--no-sync` is given.
    ///
    /// # Errors
    /// [`Error::Io`] naming the output.
    pub(super) fn sync_names(&self) -> Result<()> {
        if !self.locked.sync {
            return Ok(());
        }
        rename::sync_folder(names::parent(self.place()))
            .map_err(|error| Error::io(self.place(), error))
    }

    /// Puts the finished draft, whose name was taken by another, under a free one beside it; returns the error that
    /// says so, or that it stays where it is.
    pub(super) fn put_beside(&mut self, why: &str) -> Error {
        self.done = true;
        let put = names::free(self.place(), |path| rename::to_new(&self.path, path));
        let kept = match put {
            Ok(path) => format!("the result is in {}", path.display()),
            Err(error) => {
                forget_final_name(&self.path);
                format!("the result stays in {} ({error})", self.path.display())
            }
        };
        Error::io(self.place(), io::Error::new(ErrorKind::AlreadyExists, format!("{why}; {kept}")))
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        drop(self.unfinished.take());
        if self.done {
            return;
        }
        if self.path.join(JOURNAL).exists() {
            self.locked.tell(&format!("what was found is kept in {}.", self.path.display()));
            return;
        }
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Makes the folders above, and returns those that were not there, the innermost first.
fn make_parents(parent: &Path) -> Result<Vec<PathBuf>> {
    let missing = |folder: &&Path| !folder.as_os_str().is_empty() && !folder.exists();
    let made = parent.ancestors().take_while(missing).map(Path::to_path_buf).collect();
    if let Some(file) = parent.ancestors().find(|above| above.is_file()) {
        let why = "is a file, expected a folder to write in";
        return Err(Error::io(file, io::Error::new(ErrorKind::NotADirectory, why)));
    }
    fs::create_dir_all(parent).map_err(|error| Error::io(parent, error))?;
    Ok(made)
}

/// Names of unfinished folders, each with what messages say instead.
static FINAL_NAMES: Mutex<Vec<(String, String)>> = Mutex::new(Vec::new());

/// Lets messages say `final_name` instead of an unfinished folder's name.
pub(super) fn remember_final_name(path: &Path, final_name: &str, end: &str) {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned() + end;
    let mut all = FINAL_NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    all.push((name, final_name.to_owned()));
}

/// Lets messages name an unfinished folder, since it stays.
fn forget_final_name(path: &Path) {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let mut all = FINAL_NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    all.retain(|(unfinished, _)| unfinished.trim_end_matches('/') != name);
}

/// A message with the names that files have, or would have had, in the end.
pub(crate) fn with_final_names(message: &str) -> String {
    let all = FINAL_NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    all.iter().fold(message.to_owned(), |text, (name, final_name)| text.replace(name, final_name))
}
