//! Output files of one call: OUT, its JSON document, and the folder of plots.
//!
//! Invariant: a call that fails leaves none of its files; what was there before goes only when its
//! successor is whole.

use std::path::{Path, PathBuf};

use sidereal::io::uvh5;
use sidereal::{Error, Result};

use crate::common::Common;
use crate::json;
use crate::output::{Contents, Existing, Files, Folder, Writing, WritingFiles};
use crate::plots::correlation::{FRINGES, LAYOUT, POWERS, WATERFALLS};
use crate::space::Reserve;

use super::document::Document;
use crate::provenance::Product;

/// Suffix of the document's name.
const DOCUMENT: &str = ".json";

/// Contents of the folder of plots.
const CONTENTS: Contents = Contents {
    verb: "correlate",
    documents: &[POWERS, FRINGES, WATERFALLS, LAYOUT],
    writes: |_, _| false,
};

/// Returns whether a file of this name is one of the plots.
pub(crate) fn draws(name: &str) -> bool {
    CONTENTS.documents.contains(&name)
}

/// Output files of a call.
#[derive(Debug)]
pub(super) struct Outputs {
    place: PathBuf,
    files: Files,
    plots: Option<Folder>,
    reserve: Option<Reserve>,
}

impl Outputs {
    /// Begins all files.
    ///
    /// # Errors
    /// As [`Files::begin`] and [`Folder::begin`]; [`Error::Parameter`] for a name that is none.
    pub(super) fn begin(
        place: &Path,
        plots: Option<&Path>,
        existing: Existing,
        (inputs, common): (&[PathBuf], &Common),
    ) -> Result<Self> {
        if place.as_os_str() == "-" || place.file_name().is_none() {
            let rule = "it must name a file, such as array.uvh5";
            return Err(Error::parameter("--output", place.display(), rule));
        }
        uvh5::check_name(place)?;
        let writing = WritingFiles { option: "--output", existing, inputs, common };
        let files = Files::begin(place, &[DOCUMENT], &writing)?;
        let is_taken = |plots: &Path| *plots == *place || plots == files.place_beside(DOCUMENT);
        if plots.is_some_and(is_taken) {
            let rule = "it must be another name than those of the files";
            return Err(Error::parameter("--plots", place.display(), rule));
        }
        let writing = Writing { contents: CONTENTS, existing, inputs, common };
        let plots = plots.map(|plots| Folder::begin(plots, &writing)).transpose()?;
        let reserve = Reserve::new(&files.main());
        Ok(Self { place: place.to_path_buf(), files, plots, reserve })
    }

    /// Returns the path of OUT.
    pub(super) fn place(&self) -> &Path {
        &self.place
    }

    /// Returns the path that OUT is being written to.
    pub(super) fn file(&self) -> PathBuf {
        self.files.main()
    }

    /// Returns the folder of plots, if requested.
    pub(super) fn plots(&self) -> Option<&Folder> {
        self.plots.as_ref()
    }

    /// As [`Files::keep`].
    pub(super) fn keep(&self) {
        self.files.keep();
    }

    /// Frees the reserved disk space for the files that describe the visibilities.
    pub(super) fn use_reserve(&mut self) {
        self.reserve = None;
    }

    /// Drops the folder of plots after a write error.
    pub(super) fn leave_out_plots(&mut self) {
        self.plots = None;
    }

    /// Writes the document, and renames all files to their final names.
    ///
    /// # Errors
    /// As [`Files::finish_with`].
    pub(super) fn finish(self, document: &Product<Document>) -> Result<()> {
        json::write(&self.files.beside(DOCUMENT), document)?;
        self.files.finish_with(self.plots)
    }
}
