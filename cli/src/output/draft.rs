//! Unfinished folder of one output, and its lock: of several runs that write one output, only one continues.
//!
//! Invariant: the lock is a separate hidden file beside the output, and while a run holds the lock, the file's name
//! refers to the locked file.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Once;

use sidereal::{Error, Result};

use super::names::{self, forget_final_name};
use super::{JOURNAL, rename};
use crate::common::Common;
use crate::interrupt::Unfinished;
use crate::say::{note, warning};

/// Largest number of attempts to create an output's folder while another run removes it.
const ATTEMPTS: usize = 10;

/// Locked name of an output.
#[derive(Debug)]
pub(crate) struct Locked {
    pub(super) place: PathBuf,
    /// `None` only during drop.
    lock: Option<Lock>,
    /// Parent folders created for the output, the innermost first.
    made: Vec<PathBuf>,
    pub(super) quiet: bool,
    sync: bool,
}

impl Locked {
    /// Locks `place`; `make_parents` states whether to create missing parent folders.
    ///
    /// # Errors
    /// As [`Lock::take`]; [`Error::Io`] when the parent folders cannot be created.
    pub(super) fn new(place: &Path, make_parents: bool, common: &Common) -> Result<Self> {
        let mut made = Vec::new();
        let mut attempt = 0;
        let lock = loop {
            if make_parents {
                made.extend(self::make_parents(names::parent(place))?);
            }
            attempt += 1;
            match Lock::take(place) {
                // A run that failed removes the folders that it created, as long as they are empty.
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
        sidereal::io::unpack_in(names::parent(place));
        Ok(Self { place: place.to_path_buf(), lock: Some(lock), made, quiet, sync })
    }

    /// Returns whether the lock excludes other runs from the same output.
    pub(super) fn is_held(&self) -> bool {
        self.lock.as_ref().is_some_and(Lock::is_held)
    }

    /// Prints a message on standard error, except in a quiet run.
    pub(super) fn tell(&self, words: &str) {
        if !self.quiet {
            note!("{words}");
        }
    }

    /// Prints a warning.
    pub(super) fn warn(&self, words: &str) {
        warning!(quiet: self.quiet, "{words}");
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        drop(self.lock.take());
        for folder in &self.made {
            // Removes the folder only if it is empty.
            let _ = fs::remove_dir(folder);
        }
    }
}

/// Folder being filled, in which no file has its final name yet.
///
/// A drop removes it, unless it holds a journal of final results: then it stays, and a message names it.
#[derive(Debug)]
pub(super) struct Draft {
    pub(super) path: PathBuf,
    /// Whether everything worth keeping has its final name.
    pub(super) done: bool,
    /// Registration for removal on Ctrl-C.
    unfinished: Option<Unfinished>,
    pub(super) locked: Locked,
}

impl Draft {
    /// Creates an empty folder.
    ///
    /// # Errors
    /// [`Error::Io`] naming the output.
    pub(super) fn new(locked: Locked) -> Result<Self> {
        let made = names::make(&locked.place, names::UNFINISHED, |path| fs::create_dir(path));
        let path = made.map_err(|error| Error::io(&locked.place, error))?;
        Ok(Self::of(path, locked))
    }

    /// Continues with an existing folder.
    pub(super) fn of(path: PathBuf, locked: Locked) -> Self {
        let unfinished = Some(Unfinished::new(path.clone()));
        Self { path, done: false, unfinished, locked }
    }

    /// Returns the output's final path.
    pub(super) fn place(&self) -> &Path {
        &self.locked.place
    }

    /// Waits until all files are on disk, unless `--no-sync` is given.
    ///
    /// # Errors
    /// [`Error::Io`] naming the output.
    pub(super) fn sync(&self) -> Result<()> {
        if !self.locked.sync {
            return Ok(());
        }
        rename::sync_tree(&self.path).map_err(|error| Error::io(self.place(), error))
    }

    /// Waits until the names in the parent folder are on disk, unless `--no-sync` is given.
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

    /// Renames the finished draft, whose final name was taken meanwhile, to a free name in the same folder; returns an
    /// error with that name, or with the hidden name if the draft keeps it.
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

/// Creates the parent folders; returns those that were missing, the innermost first.
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

/// Reason why a second run stops.
const BUSY: &str = "another run writes it; wait for its end, or give another name";

/// Lock, held for the lifetime of this value. The file is removed with it.
#[derive(Debug)]
pub(super) struct Lock {
    path: PathBuf,
    /// Open file; closing it releases the lock.
    file: File,
    /// False if the file system has no locks.
    held: bool,
    _unfinished: Unfinished,
}

impl Lock {
    /// Takes the lock of `place`, whose folder must exist.
    ///
    /// If the file system has no locks, a message reports it once, and the run continues without.
    ///
    /// # Errors
    /// [`Error::Io`] naming `place`: of kind `ResourceBusy` when another run holds the lock, otherwise when the
    /// folder does not exist or cannot be written.
    pub(super) fn take(place: &Path) -> Result<Self> {
        let path = names::lock(place);
        let failed = |error| Error::io(place, error);
        loop {
            let file = open(&path).map_err(failed)?;
            let held = match file.try_lock() {
                Ok(()) => true,
                Err(TryLockError::WouldBlock) => {
                    return Err(failed(io::Error::new(ErrorKind::ResourceBusy, BUSY)));
                }
                Err(TryLockError::Error(error)) => {
                    tell_of_no_locks(place, &error);
                    false
                }
            };
            // The holder may have removed the file after it was opened here; the name then refers to another file.
            if !held || is_under(&path, &file).map_err(failed)? {
                let _unfinished = Unfinished::new(path.clone());
                return Ok(Self { path, file, held, _unfinished });
            }
        }
    }

    /// Returns whether the lock excludes other runs from the same output.
    pub(super) fn is_held(&self) -> bool {
        self.held
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // While the lock is held, no other run uses the file.
        if !self.held || is_under(&self.path, &self.file).unwrap_or(false) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Opens the lock file, and creates it if necessary; another user's file need not be writable.
fn open(path: &Path) -> io::Result<File> {
    let made = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
    match made {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            File::open(path).map_err(|_| error)
        }
        made => made,
    }
}

/// Returns whether `path` still names the open file.
#[cfg(unix)]
fn is_under(path: &Path, file: &File) -> io::Result<bool> {
    use std::os::unix::fs::MetadataExt;
    let own = file.metadata()?;
    match path.symlink_metadata() {
        Ok(found) => Ok((found.dev(), found.ino()) == (own.dev(), own.ino())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Always true: an open file cannot be removed by others.
#[cfg(not(unix))]
fn is_under(_: &Path, _: &File) -> io::Result<bool> {
    Ok(true)
}

fn tell_of_no_locks(place: &Path, error: &io::Error) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        warning!(quiet: false,
            "the file system of {} has no locks ({error}); see to it that no other run writes \
             there.",
            place.display()
        );
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_holds_the_lock_and_its_file_goes_with_it() {
        let home = tempfile::tempdir().unwrap();
        let place = home.path().join("out");
        let lock = Lock::take(&place).unwrap();
        assert!(lock.is_held());
        let busy = Lock::take(&home.path().join(".").join("out")).unwrap_err().to_string();
        assert!(busy.contains("another run writes it"), "{busy}");
        drop(lock);
        assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0);
        // A file that a killed run left does not matter.
        std::fs::write(home.path().join(".out.lock"), "").unwrap();
        drop(Lock::take(&place).unwrap());
        assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0);
    }

    #[test]
    fn threads_that_take_and_give_it_back_are_never_in_it_together() {
        use std::sync::atomic::{AtomicUsize, Ordering};
        let home = tempfile::tempdir().unwrap();
        let place = home.path().join("out");
        let (inside, taken) = (AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..500 {
                        let Ok(lock) = Lock::take(&place) else { continue };
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                        std::thread::yield_now();
                        inside.fetch_sub(1, Ordering::SeqCst);
                        taken.fetch_add(1, Ordering::SeqCst);
                        drop(lock);
                    }
                });
            }
        });
        assert!(taken.into_inner() > 0);
    }
}
