//! The files of one call: OUT, and what stands beside it.
//!
//! Invariant: a call that fails leaves none of its files; one that was there before goes only when its
//! successor is whole.

use std::path::{Path, PathBuf};

use sidereal::io::atomic;
use sidereal::{Error, Result};

use super::document::Document;
use crate::{json, output};

/// OUT, and the names of the files beside it.
pub(super) struct Outputs {
    place: PathBuf,
    gaps: PathBuf,
    document: PathBuf,
}

impl Outputs {
    /// Checks that nothing is lost by writing there.
    ///
    /// # Errors
    /// [`Error::Parameter`] when a file exists that may not go, or is one that is read.
    pub(super) fn new(place: &Path, overwrite: bool, inputs: &[PathBuf]) -> Result<Self> {
        let beside = |extension| place.with_extension(extension);
        let (gaps, document) = (beside("gaps.json"), beside("json"));
        let outputs = Self { place: place.to_path_buf(), gaps, document };
        if outputs.piped() {
            return Ok(outputs);
        }
        if place.extension().is_some_and(|extension| extension == "json") {
            let rule = "OUT.json is what is written beside it; give a name such as OUT.fil";
            return Err(Error::parameter("--output", place.display(), rule));
        }
        for path in outputs.all() {
            check_not_read(path, inputs)?;
            if !overwrite {
                output::check_new("--output", path)?;
            }
        }
        Ok(outputs)
    }

    /// Whether OUT is standard output.
    pub(super) fn piped(&self) -> bool {
        self.place.as_os_str() == "-"
    }

    /// OUT.
    pub(super) fn place(&self) -> &Path {
        &self.place
    }

    /// Writes the gaps and the document; if that fails, OUT goes too.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(super) fn write_beside(&self, document: &Document) -> Result<()> {
        if self.piped() {
            return Ok(());
        }
        let write = |path: &Path, text: Result<String>| atomic::write(path, text?.as_bytes());
        let written = write(&self.gaps, json::text(&document.gaps()))
            .and_then(|()| write(&self.document, json::text(document)));
        if written.is_err() {
            self.all().into_iter().for_each(|path| drop(std::fs::remove_file(path)));
        }
        written
    }

    fn all(&self) -> [&Path; 3] {
        [&self.place, &self.gaps, &self.document]
    }
}

fn check_not_read(path: &Path, inputs: &[PathBuf]) -> Result<()> {
    let Ok(place) = path.canonicalize() else { return Ok(()) };
    if inputs.iter().any(|input| input.canonicalize().is_ok_and(|input| input == place)) {
        let rule = "it is the recording that is read, so it is not replaced";
        return Err(Error::parameter("--output", path.display(), rule));
    }
    Ok(())
}
