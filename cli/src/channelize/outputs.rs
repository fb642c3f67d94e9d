//! Output files of one call: OUT and its side files.
//!
//! Invariant: a call that fails leaves none of its files; one that was there before goes only when its
//! successor is whole.

use std::path::{Path, PathBuf};

use clap::ValueEnum;
use serde::Serialize;
use sidereal::{Error, Result};

use crate::json;
use crate::output::{Files, WritingFiles};
use crate::provenance::Product;
use crate::space::Reserve;

/// Suffixes of the files beside OUT.
const GAPS: &str = ".gaps.json";
const DOCUMENT: &str = ".json";

/// A format of OUT.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// SIGPROC filterbank.
    Fil,
    /// Voltages as GUPPI raw.
    Guppi,
    /// Voltages as PSRDADA.
    Dada,
}

impl Format {
    /// Returns the format that a file's extension implies.
    fn of(place: &Path) -> Self {
        let extension = place.extension().and_then(|end| end.to_str()).map(str::to_ascii_lowercase);
        match extension.as_deref() {
            Some("raw") => Self::Guppi,
            Some("dada") => Self::Dada,
            _ => Self::Fil,
        }
    }

    /// Returns the name used in documents.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Fil => "SIGPROC filterbank",
            Self::Guppi => "GUPPI raw",
            Self::Dada => "PSRDADA",
        }
    }
}

/// OUT and its side files.
pub(super) struct Outputs {
    format: Format,
    place: PathBuf,
    /// `None` if OUT is standard output.
    files: Option<Files>,
    reserve: Option<Reserve>,
}

impl Outputs {
    /// Begins the files.
    ///
    /// # Errors
    /// As [`Files::begin`]; [`Error::Parameter`] for voltages on standard output.
    pub(super) fn begin(
        place: &Path,
        format: Option<Format>,
        writing: &WritingFiles<'_>,
    ) -> Result<Self> {
        let format = format.unwrap_or_else(|| Format::of(place));
        let files = match (place.as_os_str() == "-", format) {
            (true, Format::Fil) => None,
            (true, _) => {
                let rule = "voltages are written to files only";
                return Err(Error::parameter("--output", place.display(), rule));
            }
            (false, _) => Some(Files::begin(place, &[GAPS, DOCUMENT], writing)?),
        };
        let reserve = files.as_ref().and_then(|files| Reserve::new(&files.main()));
        Ok(Self { format, place: place.to_path_buf(), files, reserve })
    }

    pub(super) fn format(&self) -> Format {
        self.format
    }

    /// Returns whether OUT is standard output.
    pub(super) fn piped(&self) -> bool {
        self.files.is_none()
    }

    /// Returns the path of OUT.
    pub(super) fn place(&self) -> &Path {
        &self.place
    }

    /// Returns the path that OUT is being written to; `None` if OUT is standard output.
    pub(super) fn file(&self) -> Option<PathBuf> {
        self.files.as_ref().map(Files::main)
    }

    /// As [`Files::keep`].
    pub(super) fn keep(&self) {
        self.files.iter().for_each(Files::keep);
    }

    /// Writes the gaps and the document, and renames all files to their final names.
    ///
    /// # Errors
    /// As [`Files::finish`].
    pub(super) fn finish(
        self,
        product: &Product<impl Serialize>,
        gaps: &impl Serialize,
    ) -> Result<()> {
        let Some(files) = self.files else { return Ok(()) };
        drop(self.reserve);
        json::write(&files.beside(GAPS), gaps)?;
        json::write(&files.beside(DOCUMENT), product)?;
        files.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_tells_the_format() {
        let of = |name: &str| Format::of(Path::new(name));
        assert_eq!((of("a.fil"), of("a.RAW")), (Format::Fil, Format::Guppi));
        assert_eq!((of("a.b.dada"), of("-")), (Format::Dada, Format::Fil));
    }
}
