//! Distinguishes seekable files from streams.
//!
//! Invariant: no check opens or reads the path.

use std::path::Path;

use crate::error::{Error, Result};

/// Returns whether a path can be read only once, sequentially: standard input (`-`), a FIFO, a device.
pub fn is_stream(path: &Path) -> bool {
    let is_special = |found: std::fs::Metadata| !found.is_file() && !found.is_dir();
    path == Path::new("-") || std::fs::metadata(path).is_ok_and(is_special)
}

/// Rejects a stream for a reader that seeks.
///
/// # Errors
/// [`Error::Io`] of kind `NotSeekable`.
pub(crate) fn check_seekable(path: &Path) -> Result<()> {
    if !is_stream(path) {
        return Ok(());
    }
    let why = "a pipe can't be sought, and this format needs that; give a file";
    Err(Error::io(path, std::io::Error::new(std::io::ErrorKind::NotSeekable, why)))
}
