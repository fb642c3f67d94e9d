//! Handles leftovers of killed runs beside an output: removes, completes, publishes, restores, or keeps them for
//! `--resume`.
//!
//! Invariant: only unfinished folders without a journal, unfinished files and replaced products are removed.

use std::path::{Path, PathBuf};
use std::time::SystemTime;
use std::{fs, io};

use sidereal::{Error, Result};

use super::draft::Locked;
use super::names::{self, Contents};
use super::publish::{self, Mark, put_all};
use super::{JOURNAL, rename};

/// Suffix of an unfinished file; those of an older version are beside the output.
const PART: &str = ".part";
/// Suffix that an older version added to the output's name for a replaced folder.
const OLD_FORMER: &str = ".former";

/// Handles all leftovers of a locked output; returns the unfinished folders that hold a journal, the newest first.
/// `contents` is that of a folder output.
///
/// # Errors
/// [`Error::Io`] when the parent folder cannot be read.
pub(super) fn settle(locked: &Locked, contents: Option<&Contents>) -> Result<Vec<PathBuf>> {
    if !locked.is_held() {
        // Without a lock, leftovers may belong to a run in progress.
        return Ok(Vec::new());
    }
    let place = &locked.place;
    let failed = |error| Error::io(names::parent(place), error);
    let (mut formers, mut kept) = (Vec::new(), Vec::new());
    for entry in fs::read_dir(names::parent(place)).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        let Some(behind) = names::behind(&name, place) else { continue };
        let path = place.with_file_name(&name);
        let is_folder = path.symlink_metadata().is_ok_and(|found| found.is_dir());
        let marked =
            |mark: &str| is_folder && behind.strip_prefix(mark).is_some_and(names::is_random);
        if behind == PART && !is_folder {
            sweep(locked, &path, fs::remove_file(&path));
        } else if marked(names::FORMER) || (is_folder && behind == OLD_FORMER) {
            formers.push(path);
        } else if marked(names::UNFINISHED) {
            if let Some(mark) = Mark::of(&path) {
                complete(locked, &path, mark);
            } else if publish::is_kept(&path) {
                publish(locked, &path);
            } else if path.join(JOURNAL).exists() {
                kept.push(path);
            } else {
                sweep(locked, &path, fs::remove_dir_all(&path));
            }
        }
    }
    newest_first(&mut formers, |path| path.clone());
    formers.iter().for_each(|path| settle_former(locked, path, contents));
    newest_first(&mut kept, |path| path.join(JOURNAL));
    Ok(kept)
}

/// Removes files that a killed run had begun in its unfinished folder.
///
/// # Errors
/// When the folder cannot be read.
pub(super) fn sweep_parts(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with('.') && name.ends_with(PART) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

fn newest_first(paths: &mut [PathBuf], of: impl Fn(&PathBuf) -> PathBuf) {
    let age = |path: &PathBuf| of(path).metadata().and_then(|found| found.modified());
    paths.sort_by_key(|path| std::cmp::Reverse(age(path).unwrap_or(SystemTime::UNIX_EPOCH)));
}

/// Reports the removal of a leftover.
fn sweep(locked: &Locked, path: &Path, removed: io::Result<()>) {
    let name = path.display();
    match removed {
        Ok(()) => locked.tell(&format!("removed {name}, which a killed run left.")),
        Err(error) => {
            locked.warn(&format!("{name}, which a killed run left, can't be removed: {error}."));
        }
    }
}

/// Renames a set of files, which a killed run had completed, to their final names.
fn complete(locked: &Locked, path: &Path, mark: Mark) {
    let place = &locked.place;
    let name = place.display();
    // The mark states that no run resumes the files.
    let Err(error) = publish::clear(path).and_then(|()| put_all(path, place, mark)) else {
        let words = "a killed run had finished its files; they have their names now.";
        return locked.tell(&format!("{name}: {words}"));
    };
    mark.remove(path);
    locked.warn(&match names::free(place, |free| rename::to_new(path, free)) {
        Ok(free) => format!(
            "{name}: a killed run had finished its files, but they can't have their names ({error}); they are in {}.",
            free.display()
        ),
        Err(error) => {
            format!("{}, of a killed run, can't be renamed: {error}.", path.display())
        }
    });
}

/// Publishes the partial file of a killed run of a verb that cannot resume it.
fn publish(locked: &Locked, path: &Path) {
    let place = &locked.place;
    match publish::publish(path, place) {
        Ok(free) => locked.tell(&format!(
            "{}: what a killed run had written of it is {}, marked as not complete.",
            place.display(),
            free.display()
        )),
        Err(error) => locked.warn(&format!(
            "{} holds what a killed run had written, and can't be published: {error}.",
            path.display()
        )),
    }
}

/// Renames a former output back if its final name is free; otherwise a new output has replaced it, so removes it.
fn settle_former(locked: &Locked, path: &Path, contents: Option<&Contents>) {
    let place = &locked.place;
    if rename::to_new(path, place).is_ok() {
        let name = place.display();
        locked.tell(&format!("{name}: put back what a killed run had put aside."));
        return;
    }
    discard(locked, path, contents);
}

/// Removes a replaced folder, unless it holds a file that is not sidereal's: then it gets a free name.
pub(super) fn discard(locked: &Locked, path: &Path, contents: Option<&Contents>) {
    let why = contents.map_or(Ok(None), |contents| contents.why_kept(path));
    let (name, place) = (path.display(), locked.place.display());
    match why {
        Ok(None) => {
            if let Err(error) = fs::remove_dir_all(path) {
                locked.warn(&format!("{name}, which {place} replaced, can't be removed: {error}."));
            }
        }
        why => {
            let why = why.map_or_else(|error| error.to_string(), Option::unwrap_or_default);
            let kept = names::free(&locked.place, |free| rename::to_new(path, free));
            let kept = kept.unwrap_or_else(|_| path.to_path_buf());
            locked.warn(&format!("the former {place} is kept as {}: {why}.", kept.display()));
        }
    }
}
