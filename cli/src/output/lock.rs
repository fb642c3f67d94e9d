//! Lock on an output: of all runs that write one name, only one continues.
//!
//! Invariant: the lock file is a hidden file of its own beside the output, and whoever holds its lock finds that
//! very file under its name.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Once;

use sidereal::{Error, Result};

use super::names;
use crate::interrupt::Unfinished;
use crate::say::warning;

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
