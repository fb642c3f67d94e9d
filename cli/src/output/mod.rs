//! Outputs: files and folders that are written under a hidden name and renamed when complete.
//!
//! Each output is locked for the whole run; an existing file is replaced only if the user asks for it; the next run
//! handles the leftovers of killed runs.

mod draft;
mod files;
mod folder;
mod leftovers;
mod names;
mod publish;
mod rename;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use clap::Args;
use sidereal::{Error, Result};

use crate::common::Common;
use crate::selection::Recording;

pub(crate) use files::{Files, WritingFiles, is_same};
pub(crate) use folder::{Folder, Writing};
pub(crate) use names::{CHECKPOINT, Contents, JOURNAL, beside, is_state, with_final_names};
pub(crate) use publish::clear;

/// Options of the output folder.
#[derive(Args, Clone, Debug)]
pub(crate) struct Destination {
    /// Folder to write.
    ///
    /// By default INPUT's name with _search, _dedispersed or _replot, in the current folder.
    #[arg(short, long, value_name = "DIR", help_heading = "Output")]
    output: Option<PathBuf>,
    /// Replace the output folder if it exists.
    #[arg(long, help_heading = "Output")]
    overwrite: bool,
}

/// Kind of folder that a verb writes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FolderKind<'a> {
    /// End of the default name, which begins with the recording's.
    pub(crate) suffix: &'a str,
    pub(crate) contents: Contents,
}

impl Destination {
    /// Begins the folder; the default name is the recording's with `_suffix`. `also` are further input files.
    ///
    /// # Errors
    /// As [`Folder::begin`].
    pub(crate) fn begin(
        &self,
        recording: &Recording,
        also: &[PathBuf],
        kind: FolderKind<'_>,
        common: &Common,
    ) -> Result<Folder> {
        let inputs = [recording.files().as_slice(), also].concat();
        let place = self.place(recording, kind.suffix);
        Folder::begin(&place, &self.writing(&inputs, kind.contents, common))
    }

    /// Resumes an interrupted run's folder, named as in [`begin`](Self::begin).
    ///
    /// # Errors
    /// As [`Folder::resume`].
    pub(crate) fn resume(
        &self,
        recording: &Recording,
        also: &[PathBuf],
        kind: FolderKind<'_>,
        common: &Common,
    ) -> Result<Option<Folder>> {
        let inputs = [recording.files().as_slice(), also].concat();
        let place = self.place(recording, kind.suffix);
        Folder::resume(&place, &self.writing(&inputs, kind.contents, common))
    }

    /// Begins a folder at another place than the given one.
    ///
    /// # Errors
    /// As [`Folder::begin`].
    pub(crate) fn at(&self, place: &Path, contents: Contents, common: &Common) -> Result<Folder> {
        Folder::begin(place, &self.writing(&[], contents, common))
    }

    /// Returns the destination of a recording that is one of several: the default name, in the folder given.
    pub(crate) fn of_each(&self, recording: &Recording, suffix: &str) -> Self {
        let folder = self.output.clone().unwrap_or_default();
        let place = folder.join(format!("{}_{suffix}", recording.stem()));
        Self { output: Some(place), overwrite: self.overwrite }
    }

    /// Returns the folder given, or `usual`.
    pub(crate) fn parent(&self, usual: &str) -> PathBuf {
        self.output.clone().unwrap_or_else(|| usual.into())
    }

    pub(crate) fn place(&self, recording: &Recording, suffix: &str) -> PathBuf {
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

/// Reason why an existing output is not replaced.
const EXISTS: &str = "it exists; give another name, or --overwrite to replace it";

/// Reason why an input is not replaced.
const READ: &str = "it is a file that is read, so it is not replaced";

/// Policy for an existing output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Existing {
    /// Fail.
    Refuse,
    /// Replace it at the end.
    Replace,
}

impl Existing {
    /// Returns the policy for `--overwrite`.
    pub(crate) fn new(overwrite: bool) -> Self {
        if overwrite { Self::Replace } else { Self::Refuse }
    }
}

/// Fails if the file exists; `option` names it.
pub(crate) fn check_new(option: &'static str, path: &Path) -> Result<()> {
    if path.symlink_metadata().is_err() {
        return Ok(());
    }
    Err(Error::parameter(option, path.display(), EXISTS))
}

/// Fails if an output file is one of the inputs; `option` names it.
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

/// Fails for a folder that must stay: one that contains the current folder or an input file.
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
    // The name of a file series is not a file itself, but is in a folder.
    let held = |path: &PathBuf| inside(path) || (!path.exists() && inside(names::parent(path)));
    if inputs.iter().any(held) {
        return refuse("it holds a file that is read, so it is not replaced");
    }
    Ok(())
}
