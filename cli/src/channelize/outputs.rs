//! The files of one call: OUT, and what stands beside it.
//!
//! Invariant: a call that fails leaves none of its files; one that was there before goes only when its
//! successor is whole.

use std::path::{Path, PathBuf};

use clap::ValueEnum;
use sidereal::io::atomic;
use sidereal::{Error, Result};

use super::document::Document;
use crate::interrupt::Unfinished;
use crate::{json, output};

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
    /// What a file's name asks for.
    fn of(place: &Path) -> Self {
        let extension = place.extension().and_then(|end| end.to_str()).map(str::to_ascii_lowercase);
        match extension.as_deref() {
            Some("raw") => Self::Guppi,
            Some("dada") => Self::Dada,
            _ => Self::Fil,
        }
    }

    /// As documents name it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Fil => "SIGPROC filterbank",
            Self::Guppi => "GUPPI raw",
            Self::Dada => "PSRDADA",
        }
    }
}

/// OUT, and the names of the files beside it.
pub(super) struct Outputs {
    format: Format,
    place: PathBuf,
    gaps: PathBuf,
    document: PathBuf,
}

impl Outputs {
    /// Checks that no file that is read would be written.
    ///
    /// # Errors
    /// [`Error::Parameter`] for a file that is read, or a name that is none.
    pub(super) fn new(place: &Path, format: Option<Format>, inputs: &[PathBuf]) -> Result<Self> {
        let beside = |extension| place.with_extension(extension);
        let (gaps, document) = (beside("gaps.json"), beside("json"));
        let format = format.unwrap_or_else(|| Format::of(place));
        let outputs = Self { format, place: place.to_path_buf(), gaps, document };
        let refuse =
            |path: &Path, rule: &str| Err(Error::parameter("--output", path.display(), rule));
        if outputs.piped() {
            return match format {
                Format::Fil => Ok(outputs),
                _ => refuse(place, "voltages are written to files only"),
            };
        }
        if place.file_name().is_none() || outputs.document == place {
            return refuse(place, "it must name a file, such as spectra.fil");
        }
        output::check_not_read("--output", outputs.all(), inputs)?;
        Ok(outputs)
    }

    /// Checks that nothing is there, or that it may go.
    ///
    /// # Errors
    /// [`Error::Parameter`] when a file exists that may not go.
    pub(super) fn check_free(&self, overwrite: bool) -> Result<()> {
        if self.piped() {
            return Ok(());
        }
        if overwrite {
            return self.all().into_iter().try_for_each(|path| atomic::target(path).map(drop));
        }
        self.all().into_iter().try_for_each(|path| output::check_new("--output", path))
    }

    pub(super) fn format(&self) -> Format {
        self.format
    }

    /// Whether OUT is standard output.
    pub(super) fn piped(&self) -> bool {
        self.place.as_os_str() == "-"
    }

    /// OUT.
    pub(super) fn place(&self) -> &Path {
        &self.place
    }

    /// Says that OUT is being written.
    pub(super) fn unfinished(&self) -> Option<Unfinished> {
        let part = || atomic::target(&self.place).and_then(|place| atomic::part_name(&place)).ok();
        let part = if self.piped() { None } else { part() };
        part.map(Unfinished::new)
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
        let written = write(&self.gaps, json::text(&document.gap_list()))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_tells_the_format() {
        let of = |name: &str| Outputs::new(Path::new(name), None, &[]).map(|o| o.format());
        assert_eq!(of("a.fil").unwrap(), Format::Fil);
        assert_eq!(of("a.RAW").unwrap(), Format::Guppi);
        assert_eq!(of("a.b.dada").unwrap(), Format::Dada);
        assert_eq!(of("-").unwrap(), Format::Fil);
        assert!(of("a.json").is_err() && of("..").is_err());
        assert!(Outputs::new(Path::new("-"), Some(Format::Dada), &[]).is_err());
    }
}
