//! Outputs: files and folders that are written under a hidden name, and renamed when they are complete.
//!
//! Each output is locked for the whole run; a file that exists is replaced only where the user asks for it; and what
//! killed runs left is settled by the next run.

mod contents;
mod draft;
mod files;
mod folder;
mod leftovers;
mod lock;
mod names;
mod rename;

use std::path::{Path, PathBuf};

use clap::Args;
use sidereal::{Error, Result};

use crate::common::Common;
use crate::selection::Recording;
pub(crate) use contents::Contents;
pub(crate) use draft::with_final_names;
pub(crate) use files::{Files, WritingFiles, is_same};
pub(crate) use folder::{Folder, Writing};
pub(crate) use names::beside;

/// The file in an unfinished folder that says that results in it are final.
pub(crate) const JOURNAL: &str = "journal";
/// Prefix of checkpoint files.
pub(crate) const CHECKPOINT: &str = "checkpoint";

/// The folder to write.
#[derive(Args, Clone, Debug)]
pub(crate) struct Destination {
    /// Folder to write; by default INPUT's name with _search, _dedispersed or _replot, in the current folder.
    #[arg(short, long, value_name = "DIR", help_heading = "Output")]
    output: Option<PathBuf>,
    /// Replace the output folder if it exists.
    #[arg(long, help_heading = "Output")]
    overwrite: bool,
}

impl Destination {
    /// Begins the folder; where none is named, it is the recording's name with `_suffix`. `also` is read too.
    ///
    /// # Errors
    /// As [`Folder::begin`].
    pub(crate) fn begin(
        &self,
        recording: &Recording,
        also: &[PathBuf],
        (suffix, contents): (&str, Contents),
        common: &Common,
    ) -> Result<Folder> {
        let inputs = [recording.files().as_slice(), also].concat();
        Folder::begin(&self.place(recording, suffix), &self.writing(&inputs, contents, common))
    }

    /// Continues an interrupted run's folder, as [`begin`](Self::begin) names it.
    ///
    /// # Errors
    /// As [`Folder::resume`].
    pub(crate) fn resume(
        &self,
        recording: &Recording,
        also: &[PathBuf],
        (suffix, contents): (&str, Contents),
        common: &Common,
    ) -> Result<Option<Folder>> {
        let inputs = [recording.files().as_slice(), also].concat();
        Folder::resume(&self.place(recording, suffix), &self.writing(&inputs, contents, common))
    }

    fn place(&self, recording: &Recording, suffix: &str) -> PathBuf {
        let usual = || PathBuf::from(format!("{}_{suffix}", recording.stem()));
        self.output.clone().unwrap_or_else(usual)
    }

    fn writing<'a>(
        &self,
        inputs: &'a [PathBuf],
        contents: Contents,
        common: &'a Common,
    ) -> Writing<'a> {
        Writing { contents, existing: Existing::new(self.overwrite), inputs, common }
    }
}

/// Why nothing is written over what is there.
const EXISTS: &str = "it exists; give another name, or --overwrite to replace it";

/// Why what is read is not written over.
const READ: &str = "it is a file that is read, so it is not replaced";

/// Policy for an existing output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Existing {
    /// It is an error.
    Refuse,
    /// It is replaced at the end.
    Replace,
}

impl Existing {
    /// As `--overwrite` says.
    pub(crate) fn new(overwrite: bool) -> Self {
        if overwrite { Self::Replace } else { Self::Refuse }
    }
}

/// Fails if there is a file already; `option` names it.
pub(crate) fn check_new(option: &'static str, path: &Path) -> Result<()> {
    if path.symlink_metadata().is_err() {
        return Ok(());
    }
    Err(Error::parameter(option, path.display(), EXISTS))
}

/// Fails if a file that is written is one of those that are read; `option` names it.
pub(crate) fn check_not_read<'a>(
    option: &'static str,
    written: impl IntoIterator<Item = &'a Path>,
    inputs: &[PathBuf],
) -> Result<()> {
    let read: Vec<PathBuf> = inputs.iter().filter_map(|path| path.canonicalize().ok()).collect();
    let is_read = |path: &&Path| path.canonicalize().is_ok_and(|path| read.contains(&path));
    match written.into_iter().find(is_read) {
        Some(path) => Err(Error::parameter(option, path.display(), READ)),
        None => Ok(()),
    }
}

/// Fails for a folder that must stay: one that holds where the user is, or a file that is read.
fn check_replaceable(place: &Path, inputs: &[PathBuf]) -> Result<()> {
    let refuse = |rule: &str| Err(Error::parameter("--output", place.display(), rule));
    if !place.symlink_metadata().is_ok_and(|found| found.is_dir()) {
        return refuse("it exists and is not a folder, so it is not replaced");
    }
    let Ok(place) = place.canonicalize() else { return Ok(()) };
    let inside = |path: &Path| path.canonicalize().is_ok_and(|path| path.starts_with(&place));
    if std::env::current_dir().is_ok_and(|folder| inside(&folder)) {
        return refuse("it holds the folder that you are in, so it is not replaced");
    }
    if std::env::var_os("HOME").is_some_and(|home| inside(Path::new(&home))) {
        return refuse("it holds your home folder, so it is not replaced");
    }
    // The name of a series of files is none itself, but lies in a folder.
    let held = |path: &PathBuf| inside(path) || (!path.exists() && inside(names::parent(path)));
    if inputs.iter().any(held) {
        return refuse("it holds a file that is read, so it is not replaced");
    }
    Ok(())
}

#[cfg(test)]
mod tests;
