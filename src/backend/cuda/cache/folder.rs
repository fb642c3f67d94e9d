//! The user's cache folder for compiled kernels and tuned choices.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

/// Folder that only this user can write to.
#[derive(Clone, Debug)]
pub(in crate::backend::cuda) struct Folder(PathBuf);

/// Age at which partial files of killed processes are deleted.
const LEFT_OVER: Duration = Duration::from_secs(3600);

/// Returns the folder's path: `$SIDEREAL_CACHE_DIR`, else `sidereal` in `$XDG_CACHE_HOME`, else in `~/.cache`.
pub(in crate::backend::cuda) fn place() -> Option<PathBuf> {
    place_by(|name| std::env::var_os(name))
}

fn place_by(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let path = |name| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let base = || {
        // The XDG specification requires ignoring a relative path.
        let xdg = path("XDG_CACHE_HOME").filter(|path| path.is_absolute());
        xdg.or_else(|| path("HOME").map(|home| home.join(".cache")))
    };
    path("SIDEREAL_CACHE_DIR").or_else(|| base().map(|base| base.join("sidereal")))
}

impl Folder {
    /// Opens the folder at `path`, creating it if missing. Returns `None` if it cannot be created, belongs to another
    /// user, or is writable by others.
    pub(in crate::backend::cuda) fn open(path: &Path) -> Option<Self> {
        if fs::metadata(path).is_err() {
            make(path).ok()?;
        }
        is_ours(path).then(|| Self(path.to_owned()))
    }

    /// Returns the path of file `name`.
    pub(in crate::backend::cuda) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Writes a file atomically: it appears under its name only when complete.
    pub(in crate::backend::cuda) fn write(&self, name: &str, bytes: &[u8]) -> std::io::Result<()> {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let part = self.path(&format!(".{name}.{}.{count}.part", std::process::id()));
        let written = create(&part)
            .and_then(|mut file| file.write_all(bytes))
            .and_then(|()| fs::rename(&part, self.path(name)));
        if written.is_err() {
            let _ = fs::remove_file(&part);
        }
        written
    }

    /// Removes the oldest files whose names end with `end` until the rest hold at most `most` bytes, and old partial
    /// files of killed processes.
    pub(in crate::backend::cuda) fn shrink(&self, end: &str, most: u64) {
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.0).into_iter().flatten().flatten() {
            let Ok(metadata) = entry.metadata() else { continue };
            let modified = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if name.starts_with('.') && name.ends_with(".part") {
                if modified.elapsed().is_ok_and(|age| age > LEFT_OVER) {
                    let _ = fs::remove_file(entry.path());
                }
            } else if name.ends_with(end) {
                files.push((modified, metadata.len(), entry.path()));
            }
        }
        files.sort_by_key(|file| std::cmp::Reverse(file.0));
        let mut bytes = 0;
        for (_, length, path) in files {
            bytes += length;
            if bytes > most {
                let _ = fs::remove_file(path);
            }
        }
    }
}

#[cfg(unix)]
fn make(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    fs::DirBuilder::new().mode(0o700).create(path)
}

#[cfg(not(unix))]
fn make(path: &Path) -> std::io::Result<()> {
    fs::create_dir_all(path)
}

#[cfg(unix)]
fn create(path: &Path) -> std::io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

#[cfg(not(unix))]
fn create(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().write(true).create_new(true).open(path)
}

/// Returns whether a folder belongs to this user and only this user may write to it.
#[cfg(unix)]
fn is_ours(path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    unsafe extern "C" {
        safe fn geteuid() -> u32;
    }
    fs::metadata(path)
        .is_ok_and(|found| found.is_dir() && found.uid() == geteuid() && found.mode() & 0o022 == 0)
}

#[cfg(not(unix))]
fn is_ours(path: &Path) -> bool {
    path.is_dir()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place_of(variables: &[(&str, &str)]) -> Option<PathBuf> {
        place_by(|name| {
            variables.iter().find(|variable| variable.0 == name).map(|variable| variable.1.into())
        })
    }

    #[test]
    fn the_place_is_the_first_that_is_set() {
        let home = ("HOME", "/home/ada");
        let expected = |path: &str| Some(PathBuf::from(path));
        assert_eq!(place_of(&[home]), expected("/home/ada/.cache/sidereal"));
        assert_eq!(place_of(&[home, ("XDG_CACHE_HOME", "/x")]), expected("/x/sidereal"));
        assert_eq!(
            place_of(&[home, ("XDG_CACHE_HOME", "x")]),
            expected("/home/ada/.cache/sidereal")
        );
        let all = [home, ("XDG_CACHE_HOME", "/x"), ("SIDEREAL_CACHE_DIR", "/mine")];
        assert_eq!(place_of(&all), expected("/mine"));
        assert_eq!(
            place_of(&[home, ("SIDEREAL_CACHE_DIR", "")]),
            expected("/home/ada/.cache/sidereal")
        );
        assert_eq!(place_of(&[]), None);
    }

    #[test]
    fn the_oldest_files_go_first() {
        let place = tempfile::tempdir().expect("a folder");
        let folder = Folder::open(place.path()).expect("it is ours");
        for (age, name) in [(30, "old.x"), (20, "middle.x"), (10, "new.x"), (40, "other.y")] {
            folder.write(name, &[0; 100]).expect("room");
            let modified = SystemTime::now() - Duration::from_secs(age);
            let file = File::options().write(true).open(folder.path(name)).expect("it is there");
            file.set_modified(modified).expect("ours");
        }
        folder.shrink(".x", 250);
        let is_there = |name: &str| folder.path(name).exists();
        assert!(!is_there("old.x") && is_there("middle.x") && is_there("new.x"));
        assert!(is_there("other.y"));
    }

    #[test]
    fn files_left_half_written_are_removed_when_they_are_old() {
        let place = tempfile::tempdir().expect("a folder");
        let folder = Folder::open(place.path()).expect("it is ours");
        for (name, age) in [(".a.x.1.0.part", 2 * LEFT_OVER), (".b.x.1.0.part", LEFT_OVER / 2)] {
            fs::write(folder.path(name), "half").expect("room");
            let file = File::options().write(true).open(folder.path(name)).expect("it is there");
            file.set_modified(SystemTime::now() - age).expect("ours");
        }
        folder.shrink(".x", 0);
        assert!(!folder.path(".a.x.1.0.part").exists());
        assert!(folder.path(".b.x.1.0.part").exists());
    }

    #[cfg(unix)]
    #[test]
    fn only_a_folder_of_ones_own_is_used() {
        use std::os::unix::fs::{PermissionsExt, chown};
        let place = tempfile::tempdir().expect("a folder");
        let made = place.path().join("a/b");
        assert!(Folder::open(&made).is_some());
        let mode = fs::metadata(&made).expect("it was made").permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        fs::set_permissions(&made, fs::Permissions::from_mode(0o770)).expect("ours");
        assert!(Folder::open(&made).is_none(), "others may write");
        fs::set_permissions(&made, fs::Permissions::from_mode(0o755)).expect("ours");
        assert!(Folder::open(&made).is_some(), "others may only read");
        // `/` belongs to another user, except for root, who can change a folder's owner.
        let others = if chown(&made, Some(12345), None).is_ok() { &made } else { Path::new("/") };
        assert!(Folder::open(others).is_none(), "another user's");
        fs::write(place.path().join("file"), "").expect("room");
        assert!(Folder::open(&place.path().join("file")).is_none());
        assert!(Folder::open(&place.path().join("file/below")).is_none());
    }
}
