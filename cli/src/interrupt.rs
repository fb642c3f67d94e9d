//! Ctrl-C: long work stops at its next gulp, and what it had begun to write is removed.

use std::fs::{remove_dir_all, remove_file};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use sidereal::{Error, Result};

static REQUESTED: AtomicBool = AtomicBool::new(false);

/// The folder being filled or the file being written, if any.
static UNFINISHED: Mutex<Option<PathBuf>> = Mutex::new(None);

/// Names the folder or file that a second Ctrl-C has to remove, or says that there is none any more.
pub(crate) fn unfinished(path: Option<PathBuf>) {
    *UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner) = path;
}

/// Catches Ctrl-C (and a request to terminate) from now on. A second one ends the program at once,
/// as when it waits for a pipe on which nothing comes.
pub(crate) fn install() {
    // Without a handler Ctrl-C still ends the program, so a failure here is no reason to stop.
    let _ = ctrlc::set_handler(|| {
        if REQUESTED.swap(true, Ordering::SeqCst) {
            if let Some(path) = UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner).take() {
                let is_folder = path.is_dir();
                let _ = if is_folder { remove_dir_all(path) } else { remove_file(path) };
            }
            std::process::exit(130);
        }
    });
}

/// Whether the user asked to stop.
pub(crate) fn requested() -> bool {
    REQUESTED.load(Ordering::SeqCst)
}

/// Fails when the user asked to stop.
///
/// # Errors
/// [`Error::Io`] of kind `Interrupted`, which `main` turns into exit code 130.
pub(crate) fn check() -> Result<()> {
    if !requested() {
        return Ok(());
    }
    Err(Error::io("standard input", std::io::ErrorKind::Interrupted.into()))
}
