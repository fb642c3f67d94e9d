//! Ctrl-C: long work stops at its next gulp, and what it had begun to write is removed.

use std::sync::atomic::{AtomicBool, Ordering};

use sidereal::{Error, Result};

static REQUESTED: AtomicBool = AtomicBool::new(false);

/// Catches Ctrl-C (and a request to terminate) from now on. A second one ends the program at once.
pub(crate) fn install() {
    // Without a handler Ctrl-C still ends the program, so a failure here is no reason to stop.
    let _ = ctrlc::set_handler(|| {
        if REQUESTED.swap(true, Ordering::SeqCst) {
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
