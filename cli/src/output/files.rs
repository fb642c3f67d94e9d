//! Output of one file or of several that belong together: written in a hidden folder beside the final names, and
//! renamed when all files are complete.
//!
//! Invariant: all files get their names, or none does. A run killed between two renames leaves the other files and a
//! mark in its hidden folder, and the next run completes the renames.

use std::cell::Cell;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use sidereal::io::atomic;
use sidereal::{Error, Result};

use super::draft::{Draft, Locked};
use super::folder::Folder;
use super::names::{self, remember_final_name};
use super::publish::{self, KEPT, Mark, put_all};
use super::{Existing, JOURNAL, check_new, check_not_read, leftovers, rename};
use crate::common::Common;
use crate::interrupt;

/// Reason why finished files do not get their final names.
const APPEARED: &str = "a file of this name appeared while this run worked, so it is not replaced";

/// Options of output files.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WritingFiles<'a> {
    /// Option that names the output, for errors.
    pub(crate) option: &'static str,
    /// Policy for an existing output.
    pub(crate) existing: Existing,
    /// Input files, which must not be replaced.
    pub(crate) inputs: &'a [PathBuf],
    /// Options `--quiet` and `--no-sync`.
    pub(crate) common: &'a Common,
}

/// Files being written. The lock excludes other runs from the same output.
///
/// If dropped before [`Files::finish`], they are removed; but if their hidden folder holds a file called `journal`,
/// it stays.
#[derive(Debug)]
pub(crate) struct Files {
    draft: Draft,
    /// Path of the output: the target of a symbolic link, otherwise the given name.
    place: PathBuf,
    existing: Existing,
    files: usize,
    /// Whether [`Files::keep`] wrote the journal.
    kept: Cell<bool>,
}

impl Files {
    /// Begins a file at `place` and, for each suffix in `ends`, a side file whose name is the file's whole name
    /// plus the suffix (`.json`). For a symbolic link the target is written, and the link stays.
    ///
    /// # Errors
    /// [`Error::Parameter`] when a name is taken, is an input, or is that of a device; [`Error::Io`] when another run
    /// writes it (kind `ResourceBusy`), or nothing can be written there.
    pub(crate) fn begin(place: &Path, ends: &[&str], writing: &WritingFiles<'_>) -> Result<Self> {
        check_name(place, writing)?;
        let target = target(place, writing)?;
        let mut parts: Vec<PathBuf> = ends.iter().map(|end| names::beside(&target, end)).collect();
        parts.push(place.to_path_buf());
        Self::begin_parts(target, &parts, writing)
    }

    /// Begins several files in one folder; `place` is a name that represents all of them.
    ///
    /// # Errors
    /// As [`Files::begin`].
    pub(crate) fn begin_all(
        place: &Path,
        parts: &[PathBuf],
        writing: &WritingFiles<'_>,
    ) -> Result<Self> {
        check_name(place, writing)?;
        Self::begin_parts(place.to_path_buf(), parts, writing)
    }

    /// Resumes the newest hidden folder with a journal that an interrupted run left for the file at `place`; `None`
    /// if there is none. The file at `place` may be a hard link to the file `same` in that folder, as an interrupted
    /// run leaves it: it is then replaced.
    ///
    /// # Errors
    /// As [`Files::begin`].
    pub(crate) fn resume(
        place: &Path,
        same: &str,
        writing: &WritingFiles<'_>,
    ) -> Result<Option<Self>> {
        check_name(place, writing)?;
        let place = target(place, writing)?;
        check_not_read(writing.option, [place.as_path()], writing.inputs)?;
        let locked = Locked::new(&place, false, writing.common)?;
        let Some(left) = leftovers::settle(&locked, None)?.into_iter().next() else {
            return Ok(None);
        };
        let existing =
            if is_same(&place, &left.join(same)) { Existing::Replace } else { writing.existing };
        if existing == Existing::Refuse {
            check_new(writing.option, &place)?;
        }
        let draft = Draft::of(left, locked);
        remember_final_name(&draft.path, "", "/");
        Ok(Some(Self { draft, place, existing, files: 1, kept: Cell::new(false) }))
    }

    /// Returns the hidden folder.
    pub(crate) fn folder(&self) -> &Path {
        &self.draft.path
    }

    fn begin_parts(place: PathBuf, parts: &[PathBuf], writing: &WritingFiles<'_>) -> Result<Self> {
        check_not_read(writing.option, parts.iter().map(PathBuf::as_path), writing.inputs)?;
        let locked = Locked::new(&place, false, writing.common)?;
        for left in leftovers::settle(&locked, None)? {
            locked.tell(&format!("{} holds what an interrupted run found.", left.display()));
        }
        for part in parts {
            match writing.existing {
                Existing::Refuse => check_new(writing.option, part)?,
                Existing::Replace => drop(atomic::target(part)?),
            }
        }
        let draft = Draft::new(locked)?;
        remember_final_name(&draft.path, "", "/");
        Ok(Self {
            draft,
            place,
            existing: writing.existing,
            files: parts.len(),
            kept: Cell::new(false),
        })
    }

    /// Preserves the files if this run is killed or fails from now on, because their contents are final: the next run
    /// publishes them.
    pub(crate) fn keep(&self) {
        if !self.kept.replace(true) {
            // Without a journal the files are as safe as before.
            let _ = fs::write(self.draft.path.join(JOURNAL), KEPT);
        }
    }

    /// Returns the current path of the file that will be at `place`.
    pub(crate) fn main(&self) -> PathBuf {
        self.file(&self.place)
    }

    /// Returns the current path of a side file.
    pub(crate) fn beside(&self, end: &str) -> PathBuf {
        self.file(&names::beside(&self.place, end))
    }

    /// Returns the current path of the file that gets the name `path`.
    pub(crate) fn file(&self, path: &Path) -> PathBuf {
        self.draft.path.join(path.file_name().unwrap_or_default())
    }

    /// Returns the final path of a file beside the output.
    pub(crate) fn place_beside(&self, end: &str) -> PathBuf {
        names::beside(&self.place, end)
    }

    /// Renames all files to their final names once they are on disk, the main one last.
    ///
    /// # Errors
    /// [`Error::Io`] when the disk is full, or a name was taken meanwhile: the file then gets a free name in the same
    /// folder, or several files a folder `NAME.1`; the error names it.
    pub(crate) fn finish(self) -> Result<()> {
        self.finish_as(true, None)
    }

    /// Like [`finish`](Self::finish) if `is_done`; otherwise a later run resumes the output, so its journal and its
    /// checkpoint stay in the hidden folder.
    ///
    /// # Errors
    /// As [`finish`](Self::finish).
    pub(crate) fn finish_resumable(self, is_done: bool) -> Result<()> {
        self.finish_as(is_done, None)
    }

    /// Like [`finish`](Self::finish), and renames a folder that belongs to the files before them.
    ///
    /// # Errors
    /// As [`finish`](Self::finish) and [`Folder::finish`].
    pub(crate) fn finish_with(self, folder: Option<Folder>) -> Result<()> {
        self.finish_as(true, folder)
    }

    fn finish_as(mut self, is_done: bool, folder: Option<Folder>) -> Result<()> {
        interrupt::finishing();
        let failed = |error| Error::io(&self.place, error);
        let mark = if self.existing == Existing::Replace { Mark::Replace } else { Mark::New };
        self.draft.sync()?;
        // A run that is killed without its journal leaves a file that only the mark declares complete.
        let has_journal = self.draft.path.join(JOURNAL).exists();
        if is_done && (self.files > 1 || has_journal) {
            mark.write(&self.draft.path).map_err(failed)?;
            // A mark must not reach the disk before the files that it declares complete.
            self.draft.sync()?;
        }
        if is_done {
            publish::clear(&self.draft.path).map_err(failed)?;
        }
        // If the folder's name was taken, it gets a free one, and the files continue regardless.
        let placed = folder.map_or(Ok(()), Folder::finish);
        match put_all(&self.draft.path, &self.place, mark) {
            Ok(()) => self.draft.done = true,
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                return Err(self.put_beside(APPEARED));
            }
            Err(error) => return Err(self.put_beside(&error.to_string())),
        }
        self.draft.sync_names()?;
        placed
    }

    fn put_beside(&mut self, why: &str) -> Error {
        Mark::ALL.iter().for_each(|mark| mark.remove(&self.draft.path));
        if self.files > 1 {
            return self.draft.put_beside(why);
        }
        let from = self.main();
        match names::free(&self.place, |free| rename::to_new(&from, free)) {
            Ok(path) => {
                let why = format!("{why}; the result is in {}", path.display());
                Error::io(&self.place, io::Error::new(ErrorKind::AlreadyExists, why))
            }
            Err(_) => self.draft.put_beside(why),
        }
    }
}

/// Returns whether two names refer to one file.
#[cfg(unix)]
pub(crate) fn is_same(one: &Path, other: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let of = |path: &Path| path.metadata().map(|found| (found.dev(), found.ino()));
    of(one).ok().zip(of(other).ok()).is_some_and(|(one, other)| one == other)
}

/// Returns whether two names refer to one file, hard links apart.
#[cfg(not(unix))]
pub(crate) fn is_same(one: &Path, other: &Path) -> bool {
    let of = |path: &Path| path.canonicalize();
    of(one).ok().zip(of(other).ok()).is_some_and(|(one, other)| one == other)
}

/// Fails for a path that does not name a file.
fn check_name(place: &Path, writing: &WritingFiles<'_>) -> Result<()> {
    match place.file_name() {
        Some(_) => Ok(()),
        None => Err(Error::parameter(writing.option, place.display(), "it must name a file")),
    }
}

/// Returns the file to write under a name; fails for anything but a regular file.
fn target(place: &Path, writing: &WritingFiles<'_>) -> Result<PathBuf> {
    let is_other = place.metadata().is_ok_and(|found| !found.is_file());
    if is_other && writing.existing == Existing::Refuse {
        check_new(writing.option, place)?;
    }
    atomic::target(place)
}
