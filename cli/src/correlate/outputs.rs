//! The files of one call: OUT, the document beside it, and the folder of pictures.
//!
//! Invariant: a call that fails leaves none of its files; what was there before goes only when its
//! successor is whole.

use std::path::{Path, PathBuf};

use sidereal::io::atomic;
use sidereal::{Error, Result};

use crate::interrupt::Unfinished;
use crate::output::{self, Existing, Folder};

/// Names of what is written.
#[derive(Debug)]
pub(super) struct Outputs {
    place: PathBuf,
    document: PathBuf,
    plots: Option<PathBuf>,
    existing: Existing,
}

impl Outputs {
    /// Checks that no file that is read would be written.
    ///
    /// # Errors
    /// [`Error::Parameter`] for a file that is read, or a name that is none.
    pub(super) fn new(
        place: &Path,
        plots: Option<&Path>,
        overwrite: bool,
        inputs: &[PathBuf],
    ) -> Result<Self> {
        let refuse =
            |path: &Path, rule: &str| Err(Error::parameter("--output", path.display(), rule));
        let document = place.with_extension("json");
        if place.as_os_str() == "-" || place.file_name().is_none() || document == place {
            return refuse(place, "it must name a file, such as array.uvh5");
        }
        output::check_not_read("--output", [place, document.as_path()], inputs)?;
        let plots = plots.map(Path::to_path_buf);
        if plots.as_ref().is_some_and(|plots| *plots == place || *plots == document) {
            let rule = "it must be another name than those of the files";
            return Err(Error::parameter("--plots", place.display(), rule));
        }
        let existing = if overwrite { Existing::Replace } else { Existing::Refuse };
        Ok(Self { place: place.to_path_buf(), document, plots, existing })
    }

    /// Checks that nothing is there, or that it may go.
    ///
    /// # Errors
    /// [`Error::Parameter`] when something exists that may not go.
    pub(super) fn check_free(&self) -> Result<()> {
        for path in [&self.place, &self.document] {
            match self.existing {
                Existing::Replace => drop(atomic::target(path)?),
                Existing::Refuse => output::check_new("--output", path)?,
            }
        }
        match (&self.plots, self.existing) {
            (Some(plots), Existing::Refuse) => output::check_new("--plots", plots),
            _ => Ok(()),
        }
    }

    /// OUT.
    pub(super) fn place(&self) -> &Path {
        &self.place
    }

    /// The document beside it.
    pub(super) fn document(&self) -> &Path {
        &self.document
    }

    /// Says that OUT is being written.
    pub(super) fn unfinished(&self) -> Option<Unfinished> {
        let part = atomic::target(&self.place).and_then(|place| atomic::part_name(&place)).ok();
        part.map(Unfinished::new)
    }

    /// Removes OUT and the document, when what belongs to them could not be made.
    pub(super) fn remove(&self) {
        for path in [&self.place, &self.document] {
            drop(std::fs::remove_file(path));
        }
    }

    /// Begins the folder of pictures, where they are wanted.
    ///
    /// # Errors
    /// As [`Folder::begin`].
    pub(super) fn begin_plots(&self, inputs: &[PathBuf]) -> Result<Option<Folder>> {
        self.plots.as_ref().map(|plots| Folder::begin(plots, self.existing, inputs)).transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_must_be_files_of_their_own() {
        let new = |place: &str, plots: Option<&str>| {
            Outputs::new(Path::new(place), plots.map(Path::new), false, &[])
        };
        assert_eq!(new("a.uvh5", None).unwrap().document(), Path::new("a.json"));
        assert!(
            new("a.json", None).is_err() && new("..", None).is_err() && new("-", None).is_err()
        );
        assert!(new("a.uvh5", Some("a.uvh5")).is_err() && new("a.uvh5", Some("a.json")).is_err());
    }
}
