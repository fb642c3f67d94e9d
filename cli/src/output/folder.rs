//! Output that is a folder: filled under a hidden name, and renamed when it is complete.
//!
//! Invariant: the final name refers to nothing, to the former folder, or to the complete new folder.

use std::fs;
use std::path::{Path, PathBuf};

use sidereal::{Error, Result};

use super::draft::{Draft, Locked};
use super::names::{self, Contents, remember_final_name};
use super::{EXISTS, Existing, JOURNAL, check_replaceable, leftovers, rename};
use crate::common::Common;
use crate::interrupt;

/// Reason why a finished folder does not get its final name.
const APPEARED: &str = "it appeared while this run worked, so it is not replaced";

/// Options of an output folder.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Writing<'a> {
    /// Files that the verb writes; they identify its own product.
    pub(crate) contents: Contents,
    /// Policy for an existing output.
    pub(crate) existing: Existing,
    /// Input files, which must not be inside a replaced folder.
    pub(crate) inputs: &'a [PathBuf],
    /// Options `--quiet` and `--no-sync`.
    pub(crate) common: &'a Common,
}

/// Folder being filled. The lock excludes other runs from the same folder.
///
/// If dropped before [`Folder::finish`], it is removed; but if it holds a file called `journal`, which declares
/// results in it final, it stays under its hidden name, and the next run can [`resume`](Folder::resume) it.
#[derive(Debug)]
pub(crate) struct Folder {
    place: PathBuf,
    /// Path at which it is filled.
    temporary: PathBuf,
    /// `None` in an inner folder, which is removed or stays with its parent.
    own: Option<Own>,
}

/// State of a folder that is not an inner folder.
#[derive(Debug)]
struct Own {
    draft: Draft,
    contents: Contents,
    existing: Existing,
    /// Whether it existed under its final name before, as an incomplete product.
    was_incomplete: bool,
}

impl Folder {
    /// Begins a folder that will be at `place`, after the leftovers of killed runs are handled; one that holds a
    /// journal is reported, and stays.
    ///
    /// # Errors
    /// [`Error::Parameter`] when `place` is taken or must not be replaced; [`Error::Io`] when another run writes it
    /// (kind `ResourceBusy`), or nothing can be written there.
    pub(crate) fn begin(place: &Path, writing: &Writing<'_>) -> Result<Self> {
        check_name(place)?;
        let locked = Locked::new(place, true, writing.common)?;
        for left in leftovers::settle(&locked, Some(&writing.contents))? {
            locked.tell(&format!(
                "{} holds what an interrupted run found; --resume continues it, or remove it.",
                left.display()
            ));
        }
        check_free(place, writing)?;
        Ok(Self::of(Draft::new(locked)?, writing, writing.existing, false))
    }

    /// Resumes an interrupted run's folder: the newest that a killed run left with a journal, otherwise the product
    /// at `place` if its document has `"complete": false` and it holds a journal.
    ///
    /// Returns `None` if there is neither and `place` is free. The folder contains all its earlier files, under
    /// [`file`](Self::file). A product at `place` is renamed to the hidden name without a copy, and the verb changes
    /// it in place. [`finish`](Self::finish) then renames it back, complete or not, and so does a drop, as after an
    /// error; only a killed run leaves it under its hidden name, where the next one finds it by its journal. To
    /// publish a leftover unchanged, resume and finish it. A verb that completes the product first removes journal
    /// and checkpoint.
    ///
    /// # Errors
    /// As [`Folder::begin`]; [`Error::Parameter`] when the product at `place` is complete or cannot be resumed.
    pub(crate) fn resume(place: &Path, writing: &Writing<'_>) -> Result<Option<Self>> {
        check_name(place)?;
        let locked = Locked::new(place, true, writing.common)?;
        let left = leftovers::settle(&locked, Some(&writing.contents))?;
        let contents = &writing.contents;
        let stands = place.symlink_metadata().is_ok_and(|found| found.is_dir());
        let is_incomplete = stands && contents.is_complete(place) == Some(false);
        if let Some(path) = left.into_iter().next() {
            let existing = if is_incomplete { Existing::Replace } else { writing.existing };
            check_free(place, &Writing { existing, ..*writing })?;
            leftovers::sweep_parts(&path).map_err(|error| Error::io(place, error))?;
            return Ok(Some(Self::of(Draft::of(path, locked), writing, existing, false)));
        }
        if place.symlink_metadata().is_err() {
            return Ok(None);
        }
        let refuse = |rule: &str| Err(Error::parameter("--resume", place.display(), rule));
        if !is_incomplete {
            return refuse("it is not an unfinished product, so there is nothing to continue");
        }
        if !place.join(JOURNAL).exists() {
            return refuse(
                "it holds no journal, so it can't be continued; --overwrite starts from the beginning",
            );
        }
        check_free(place, &Writing { existing: Existing::Replace, ..*writing })?;
        let moved = names::make(place, names::UNFINISHED, |path| rename::to_new(place, path));
        let path = moved.map_err(|error| Error::io(place, error))?;
        Ok(Some(Self::of(Draft::of(path, locked), writing, writing.existing, true)))
    }

    fn of(draft: Draft, writing: &Writing<'_>, existing: Existing, was_incomplete: bool) -> Self {
        let name = draft.place().file_name().unwrap_or_default().to_string_lossy();
        remember_final_name(&draft.path, &name, "");
        let (place, temporary) = (draft.place().to_path_buf(), draft.path.clone());
        let own = Some(Own { draft, contents: writing.contents, existing, was_incomplete });
        Self { place, temporary, own }
    }

    /// Returns a folder that another process of the run has begun and finishes; it is filled at `temporary`.
    pub(crate) fn of_other(place: &Path, temporary: PathBuf) -> Self {
        let name = place.file_name().unwrap_or_default().to_string_lossy();
        remember_final_name(&temporary, &name, "");
        Self { place: place.to_path_buf(), temporary, own: None }
    }

    /// Creates a folder within this one, unless an interrupted run has.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn inner(&self, name: &str) -> Result<Self> {
        let (place, temporary) = (self.place.join(name), self.temporary.join(name));
        match fs::create_dir(&temporary) {
            Err(error) if !temporary.is_dir() => Err(Error::io(&place, error)),
            _ => Ok(Self { place, temporary, own: None }),
        }
    }

    /// Returns the current path of a file in this folder.
    pub(crate) fn file(&self, name: impl AsRef<Path>) -> PathBuf {
        self.temporary.join(name)
    }

    /// Returns the final path of the folder.
    pub(crate) fn place(&self) -> &Path {
        &self.place
    }

    /// Renames the folder to its final name once everything is on disk, and removes the folder that it replaces.
    ///
    /// # Errors
    /// [`Error::Io`] when the disk is full, or the name was taken by something that may not be replaced; the folder
    /// then gets a free name in the same folder (`NAME.1`), which the error names.
    pub(crate) fn finish(mut self) -> Result<()> {
        let Some(own) = &mut self.own else { return Ok(()) };
        interrupt::finishing();
        own.draft.sync()?;
        own.put()
    }
}

impl Own {
    fn put(&mut self) -> Result<()> {
        let place = self.draft.place().to_path_buf();
        match rename::to_new(&self.draft.path, &place) {
            Ok(()) => {
                self.draft.done = true;
                return self.draft.sync_names();
            }
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(self.draft.put_beside(&error.to_string())),
        }
        if self.existing == Existing::Refuse {
            return Err(self.draft.put_beside(APPEARED));
        }
        if let Err(error) = check_contents(&place, &self.contents) {
            let why = match error {
                Error::Parameter { rule, .. } => rule,
                other => other.to_string(),
            };
            return Err(self.draft.put_beside(&why));
        }
        let former = match self.exchange(&place) {
            Ok(former) => former,
            Err(error) => return Err(self.draft.put_beside(&error.to_string())),
        };
        self.draft.done = true;
        leftovers::discard(&self.draft.locked, &former, Some(&self.contents));
        self.draft.sync_names()
    }

    /// Exchanges the folder with the one at `place`; returns the hidden name of the replaced folder.
    fn exchange(&self, place: &Path) -> std::io::Result<PathBuf> {
        // Only chooses a name: the replaced folder is renamed to it.
        let aside = names::make(place, names::FORMER, |_| Ok(()))?;
        let former = rename::exchange(&self.draft.path, place, &aside)?;
        // Under an unfinished folder's name, a journal in it would pass for an unfinished run's.
        if *former != *aside && rename::to_new(former, &aside).is_err() {
            return Ok(former.to_path_buf());
        }
        Ok(aside)
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        if !self.draft.done && self.was_incomplete {
            // The resumed run may have failed; the earlier product returns to its final name.
            self.draft.done = rename::to_new(&self.draft.path, self.draft.place()).is_ok();
        }
    }
}

/// Fails for a path that cannot name a new folder.
fn check_name(place: &Path) -> Result<()> {
    match place.file_name() {
        Some(_) => Ok(()),
        None => {
            Err(Error::parameter("--output", place.display(), "it must name a folder to be made"))
        }
    }
}

fn check_free(place: &Path, writing: &Writing<'_>) -> Result<()> {
    if place.symlink_metadata().is_err() {
        return Ok(());
    }
    if writing.existing == Existing::Refuse {
        return Err(Error::parameter("--output", place.display(), EXISTS));
    }
    check_replaceable(place, writing.inputs)?;
    check_contents(place, &writing.contents)
}

/// Fails unless everything at `place` is a product of the verb.
fn check_contents(place: &Path, contents: &Contents) -> Result<()> {
    if !place.symlink_metadata().is_ok_and(|found| found.is_dir()) {
        let rule = "it exists and is not a folder, so it is not replaced";
        return Err(Error::parameter("--output", place.display(), rule));
    }
    match contents.why_kept(place).map_err(|error| Error::io(place, error))? {
        Some(why) => Err(Error::parameter("--output", place.display(), why)),
        None => Ok(()),
    }
}
