//! Output folders: filled under a temporary name, and renamed when they are complete.
//!
//! Invariant: under the final name stands either nothing, or what stood there before, or all that the
//! verb writes.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use sidereal::{Error, Result};

use crate::interrupt::Unfinished;
use crate::selection::Recording;

/// The folder to write.
#[derive(Args, Clone, Debug)]
pub(crate) struct Destination {
    /// Folder to write; by default INPUT's name with _search or _dedispersed, in the current folder.
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
        suffix: &str,
    ) -> Result<Folder> {
        let usual = || PathBuf::from(format!("{}_{suffix}", recording.stem()));
        let place = self.output.clone().unwrap_or_else(usual);
        let existing = if self.overwrite { Existing::Replace } else { Existing::Refuse };
        Folder::begin(&place, existing, &[recording.files().as_slice(), also].concat())
    }
}

/// Why nothing is written over what is there.
const EXISTS: &str = "it exists; give another name, or --overwrite to replace it";

/// Why what is read is not written over.
const READ: &str = "it is a file that is read, so it is not replaced";

/// What happens to a folder that is there already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Existing {
    /// It is an error.
    Refuse,
    /// It is replaced at the end.
    Replace,
}

/// A folder being filled. Dropped before [`Folder::finish`], it vanishes.
#[derive(Debug)]
pub(crate) struct Folder {
    place: PathBuf,
    temporary: PathBuf,
    /// Folders above, made on the way; the innermost first.
    made: Vec<PathBuf>,
    finished: bool,
    /// What Ctrl-C has to remove; `None` in a part of another, which vanishes or stays as a whole.
    unfinished: Option<Unfinished>,
}

impl Folder {
    /// Begins a folder that will stand at `place`; `inputs` must not lie in what it replaces.
    ///
    /// # Errors
    /// [`Error::Parameter`] when the place is taken or must not be replaced, [`Error::Io`] when
    /// nothing can be written there.
    pub(crate) fn begin(place: &Path, existing: Existing, inputs: &[PathBuf]) -> Result<Self> {
        check_free(place, existing, inputs)?;
        let parent = parent_of(place);
        let made = make_parents(&parent)?;
        let name = place.file_name().map_or_else(Default::default, |n| n.to_string_lossy());
        let temporary = parent.join(format!(".{name}{}", mark()));
        fs::create_dir(&temporary).map_err(|error| Error::io(place, error))?;
        let unfinished = Some(Unfinished::new(temporary.clone()));
        Ok(Self { place: place.to_path_buf(), temporary, made, finished: false, unfinished })
    }

    /// A folder within this one.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn inner(&self, name: &str) -> Result<Self> {
        let (place, temporary) = (self.place.join(name), self.temporary.join(name));
        fs::create_dir(&temporary).map_err(|error| Error::io(&place, error))?;
        Ok(Self { place, temporary, made: Vec::new(), finished: false, unfinished: None })
    }

    /// Where a file of this folder is written now.
    pub(crate) fn file(&self, name: impl AsRef<Path>) -> PathBuf {
        self.temporary.join(name)
    }

    /// Where the folder will stand.
    pub(crate) fn place(&self) -> &Path {
        &self.place
    }

    /// Puts the complete folder in its place, and removes what stood there before.
    ///
    /// # Errors
    /// [`Error::Io`]; the former folder is then put back.
    pub(crate) fn finish(mut self) -> Result<()> {
        crate::interrupt::finishing();
        let failed = |error| Error::io(&self.place, error);
        if self.place.symlink_metadata().is_err() {
            fs::rename(&self.temporary, &self.place).map_err(failed)?;
            self.finished = true;
            return Ok(());
        }
        let former = self.temporary.with_extension("former");
        fs::rename(&self.place, &former).map_err(failed)?;
        if let Err(error) = fs::rename(&self.temporary, &self.place) {
            let _ = fs::rename(&former, &self.place);
            return Err(failed(error));
        }
        self.finished = true;
        fs::remove_dir_all(&former).map_err(|error| Error::io(&former, error))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if self.finished || self.unfinished.is_none() {
            return;
        }
        let _ = fs::remove_dir_all(&self.temporary);
        for folder in &self.made {
            // Only an empty one goes.
            let _ = fs::remove_dir(folder);
        }
    }
}

/// What the temporary name has behind the final one.
fn mark() -> String {
    format!(".unfinished-{}", std::process::id())
}

/// A message with the names that files would have had in the end.
pub(crate) fn with_final_names(message: &str) -> String {
    let Some((before, after)) = message.split_once(&mark()) else { return message.to_owned() };
    let dot = before.rfind("/.").map_or(0, |slash| slash + 1);
    format!("{}{}{}", &before[..dot], &before[dot + 1..], with_final_names(after))
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

fn parent_of(place: &Path) -> PathBuf {
    match place.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_path_buf(),
        _ => PathBuf::from("."),
    }
}

fn check_free(place: &Path, existing: Existing, inputs: &[PathBuf]) -> Result<()> {
    let refuse = |rule: &str| Err(Error::parameter("--output", place.display(), rule));
    if place.file_name().is_none() {
        return refuse("it must name a folder to be made");
    }
    let Ok(found) = place.symlink_metadata() else { return Ok(()) };
    if existing == Existing::Refuse {
        return refuse(EXISTS);
    }
    if !found.is_dir() {
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
    let held = |path: &PathBuf| inside(path) || (!path.exists() && inside(&parent_of(path)));
    if inputs.iter().any(held) {
        return refuse("it holds a file that is read, so it is not replaced");
    }
    Ok(())
}

/// Makes the folders above, and returns those that were not there, the innermost first.
fn make_parents(parent: &Path) -> Result<Vec<PathBuf>> {
    let missing = |folder: &&Path| !folder.as_os_str().is_empty() && !folder.exists();
    let made = parent.ancestors().take_while(missing).map(Path::to_path_buf).collect();
    if let Some(file) = parent.ancestors().find(|above| above.is_file()) {
        let why = "is a file, expected a folder to write in";
        return Err(Error::io(file, std::io::Error::new(std::io::ErrorKind::NotADirectory, why)));
    }
    fs::create_dir_all(parent).map_err(|error| Error::io(parent, error))?;
    Ok(made)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(folder: &Path) -> Vec<String> {
        let name = |e: std::io::Result<fs::DirEntry>| e.unwrap().file_name().into_string().unwrap();
        fs::read_dir(folder).unwrap().map(name).collect()
    }

    #[test]
    fn a_folder_stands_when_finished_and_vanishes_when_dropped() {
        let home = tempfile::tempdir().unwrap();
        let place = home.path().join("a/b/out");
        let folder = Folder::begin(&place, Existing::Refuse, &[]).unwrap();
        fs::write(folder.file("x"), "1").unwrap();
        drop(folder);
        assert!(entries(home.path()).is_empty());
        let folder = Folder::begin(&place, Existing::Refuse, &[]).unwrap();
        fs::write(folder.file("x"), "1").unwrap();
        assert!(!place.exists());
        folder.finish().unwrap();
        assert_eq!(entries(&place), ["x"]);
        assert_eq!(entries(place.parent().unwrap()), ["out"]);
    }

    #[test]
    fn an_existing_folder_is_replaced_only_when_asked_and_only_at_the_end() {
        let home = tempfile::tempdir().unwrap();
        let place = home.path().join("out");
        fs::create_dir(&place).unwrap();
        fs::write(place.join("old"), "1").unwrap();
        assert!(Folder::begin(&place, Existing::Refuse, &[]).is_err());
        let folder = Folder::begin(&place, Existing::Replace, &[]).unwrap();
        fs::write(folder.file("new"), "1").unwrap();
        assert_eq!(entries(&place), ["old"]);
        folder.finish().unwrap();
        assert_eq!(entries(&place), ["new"]);
        assert_eq!(entries(home.path()), ["out"]);
    }

    #[test]
    fn messages_name_the_file_that_would_have_been() {
        let message = format!("a/.out{0}/x.npy: full, and ./.b{0}/y too", mark());
        assert_eq!(with_final_names(&message), "a/out/x.npy: full, and ./b/y too");
        assert_eq!(with_final_names("plain"), "plain");
    }

    #[test]
    fn what_must_not_be_lost_is_not_replaced() {
        let home = tempfile::tempdir().unwrap();
        let input = home.path().join("data.fil");
        fs::write(&input, "1").unwrap();
        let replace = |place: &Path, inputs: &[PathBuf]| {
            Folder::begin(place, Existing::Replace, inputs).is_err()
        };
        assert!(replace(home.path(), std::slice::from_ref(&input)));
        assert!(replace(&home.path().join("."), &[home.path().join("series")]));
        assert!(replace(&input, &[]));
        assert!(replace(Path::new("/"), &[]));
        assert!(replace(&std::env::current_dir().unwrap(), &[]));
        assert!(Folder::begin(&input.join("out"), Existing::Refuse, &[]).is_err());
        assert_eq!(entries(home.path()), ["data.fil"]);
        let other = home.path().join("./data.fil");
        let read = |path: &Path| check_not_read("-o", [path], std::slice::from_ref(&other));
        assert!(read(&input).is_err() && read(&home.path().join("new.fil")).is_ok());
    }
}
