//! Renames complete sets of files from a hidden folder to their final names.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::{fs, io};

use crate::json;
use crate::output::{CHECKPOINT, JOURNAL, names, rename};

/// Text in the journal of files that cannot be resumed.
pub(crate) const KEPT: &str =
    "The file in this folder holds all that an interrupted run wrote. No run continues it.\n";

/// Suffix of a document's name.
pub(crate) const DOCUMENT: &str = ".json";

/// Mark that a hidden folder holds a complete set of files, and whether they may replace others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    New,
    Replace,
}

impl Mark {
    pub(crate) const ALL: [Self; 2] = [Self::New, Self::Replace];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::New => ".whole-new",
            Self::Replace => ".whole-replace",
        }
    }

    /// Returns the mark in a folder.
    pub(crate) fn of(folder: &Path) -> Option<Self> {
        Self::ALL.into_iter().find(|mark| folder.join(mark.name()).exists())
    }

    pub(crate) fn write(self, folder: &Path) -> io::Result<()> {
        fs::write(folder.join(self.name()), "")
    }

    pub(crate) fn remove(self, folder: &Path) {
        let _ = fs::remove_file(folder.join(self.name()));
    }
}

/// Removes journal, checkpoint and related files from the folder of a run that no later run resumes.
///
/// # Errors
/// When the folder cannot be read, or a file cannot be removed.
pub(crate) fn clear(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name();
        if name == JOURNAL || name.to_string_lossy().starts_with(CHECKPOINT) {
            fs::remove_file(folder.join(name))?;
        }
    }
    Ok(())
}

/// Renames the files of a hidden folder to their final names, that of `place` last; then removes the folder, except
/// for the files that an interrupted run needs.
///
/// # Errors
/// Of kind `AlreadyExists` when one may not be replaced; all files are then in the hidden folder again.
pub(crate) fn put_all(folder: &Path, place: &Path, mark: Mark) -> io::Result<()> {
    let is_part = |name: &std::ffi::OsString| {
        let name = name.to_string_lossy();
        !Mark::ALL.iter().any(|mark| mark.name() == name)
            && name != JOURNAL
            && !name.starts_with(CHECKPOINT)
    };
    let names = fs::read_dir(folder)?.map(|entry| entry.map(|entry| entry.file_name()));
    let mut names: Vec<_> = names.collect::<io::Result<_>>()?;
    names.retain(|name| is_part(name) || Some(name.as_os_str()) == place.file_name());
    names.sort_by_key(|name| (Some(name.as_os_str()) == place.file_name(), name.clone()));
    let mut put = Vec::new();
    for name in &names {
        let (from, to) = (folder.join(name), place.with_file_name(name));
        let renamed = match mark {
            Mark::New => rename::to_new(&from, &to),
            Mark::Replace => fs::rename(&from, &to),
        };
        match renamed {
            Ok(()) => put.push((from, to)),
            Err(error) => {
                if mark == Mark::New {
                    put.iter().rev().for_each(|(from, to)| drop(rename::to_new(to, from)));
                }
                return Err(error);
            }
        }
    }
    mark.remove(folder);
    // Fails if an interrupted run's journal is in it.
    let _ = fs::remove_dir(folder);
    Ok(())
}

/// Returns whether a folder holds a killed run's file with final results that no verb can resume ([`KEPT`]).
pub(crate) fn is_kept(folder: &Path) -> bool {
    fs::read(folder.join(JOURNAL)).is_ok_and(|text| text == KEPT.as_bytes())
}

/// Moves the file of a folder for which [`is_kept`] holds to a free name beside `place`, with a document that
/// declares it incomplete; returns that name.
///
/// # Errors
/// [`Error::Io`]; nothing is then removed.
pub(crate) fn publish(folder: &Path, place: &Path) -> io::Result<PathBuf> {
    let free = names::free(place, |free| {
        let is_taken = [free, &names::beside(free, DOCUMENT)]
            .iter()
            .any(|path| path.symlink_metadata().is_ok());
        if is_taken { Err(ErrorKind::AlreadyExists.into()) } else { Ok(()) }
    })?;
    let inside = |path: &Path| folder.join(path.file_name().unwrap_or_default());
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name() != JOURNAL {
            files.push((entry.metadata()?.len(), entry.path()));
        }
    }
    // The data file is the largest: documents are small, and are begun after everything else is complete.
    let largest = files.iter().max().map(|(_, path)| path.clone()).ok_or(ErrorKind::NotFound)?;
    for (_, path) in files.iter().filter(|(_, path)| *path != largest) {
        fs::remove_file(path)?;
    }
    fs::rename(&largest, inside(&free))?;
    let document = serde_json::json!({
        "complete": false,
        "reason": "the run that wrote it was killed",
        "file": free.file_name().unwrap_or_default().to_string_lossy(),
    });
    let text = json::text(&document).map_err(io::Error::other)?;
    fs::write(inside(&names::beside(&free, DOCUMENT)), text)?;
    Mark::New.write(folder)?;
    fs::remove_file(folder.join(JOURNAL))?;
    put_all(folder, &free, Mark::New)?;
    Ok(free)
}
