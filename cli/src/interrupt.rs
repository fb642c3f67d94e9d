//! Ctrl-C: long work stops at its next gulp, and what it had begun to write is removed.

use std::fs::{remove_dir_all, remove_file};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use sidereal::{Error, Result};

static REQUESTED: AtomicBool = AtomicBool::new(false);

/// The folders being filled and the files being written.
static UNFINISHED: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// A folder or file that a second Ctrl-C has to remove, for as long as this lives.
#[derive(Debug)]
pub(crate) struct Unfinished {
    path: PathBuf,
}

impl Unfinished {
    pub(crate) fn new(path: PathBuf) -> Self {
        UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner).push(path.clone());
        Self { path }
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        let mut paths = UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = paths.iter().position(|path| *path == self.path) {
            paths.swap_remove(place);
        }
    }
}

/// Catches Ctrl-C (and a request to terminate) from now on. A second one ends the program at once,
/// as when it waits for a pipe on which nothing comes.
pub(crate) fn install() {
    // Without a handler Ctrl-C still ends the program, so a failure here is no reason to stop.
    let _ = ctrlc::set_handler(|| {
        if REQUESTED.swap(true, Ordering::SeqCst) {
            for path in UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
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
/// [`Error::stopped`], which `main` turns into exit code 130.
pub(crate) fn check() -> Result<()> {
    if !requested() {
        return Ok(());
    }
    Err(Error::stopped("the run"))
}
