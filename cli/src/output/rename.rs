//! Renames that replace nothing or exchange two names, and flushes to disk.
//!
//! Invariant: a rename that fails leaves both names as they were.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::Path;

/// Number of files above which one call flushes the whole file system.
const MANY: usize = 64;

/// Renames a file or a folder to a name that must be free, also if another process takes it at the same moment.
///
/// # Errors
/// Of kind `AlreadyExists` when the name is taken; other errors of the operating system.
pub(super) fn to_new(from: &Path, to: &Path) -> io::Result<()> {
    match by_flag(from, to, Flag::NoReplace) {
        Err(error) if is_unsupported(&error) => to_new_without_flag(from, to),
        done => done,
    }
}

/// Like [`to_new`], for file systems whose rename has no such flag.
fn to_new_without_flag(from: &Path, to: &Path) -> io::Result<()> {
    if from.symlink_metadata()?.is_dir() {
        // A rename may replace an empty folder, and `create_dir` ensures that no one else made it.
        fs::create_dir(to)?;
        return fs::rename(from, to).inspect_err(|_| drop(fs::remove_dir(to)));
    }
    match fs::hard_link(from, to) {
        Ok(()) => fs::remove_file(from),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Err(error),
        // The file system has no hard links either: check first, then rename.
        Err(_) if to.symlink_metadata().is_ok() => Err(ErrorKind::AlreadyExists.into()),
        Err(_) => fs::rename(from, to),
    }
}

/// Exchanges two folders; if the file system cannot, first renames the one at `to` to `aside`. Returns the new path
/// of the folder that was at `to`.
///
/// # Errors
/// Those of the operating system; `to` is then unchanged.
pub(super) fn exchange<'a>(from: &'a Path, to: &Path, aside: &'a Path) -> io::Result<&'a Path> {
    match by_flag(from, to, Flag::Exchange) {
        Err(error) if is_unsupported(&error) => exchange_without_flag(from, to, aside),
        done => done.map(|()| from),
    }
}

fn exchange_without_flag<'a>(from: &Path, to: &Path, aside: &'a Path) -> io::Result<&'a Path> {
    to_new(to, aside)?;
    match fs::rename(from, to) {
        Ok(()) => Ok(aside),
        Err(error) => {
            let _ = to_new(aside, to);
            Err(error)
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Flag {
    NoReplace,
    Exchange,
}

#[cfg(any(target_os = "linux", target_os = "android", target_vendor = "apple"))]
fn by_flag(from: &Path, to: &Path, flag: Flag) -> io::Result<()> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    let flags = match flag {
        Flag::NoReplace => RenameFlags::NOREPLACE,
        Flag::Exchange => RenameFlags::EXCHANGE,
    };
    Ok(renameat_with(CWD, from, CWD, to, flags)?)
}

#[cfg(not(any(target_os = "linux", target_os = "android", target_vendor = "apple")))]
fn by_flag(_: &Path, _: &Path, _: Flag) -> io::Result<()> {
    Err(ErrorKind::Unsupported.into())
}

/// Returns whether the kernel or the file system does not support the flag.
fn is_unsupported(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::Unsupported | ErrorKind::InvalidInput)
}

/// Waits until a folder and its contents are on disk.
///
/// # Errors
/// Those of the operating system when data cannot be written, such as a full disk.
pub(super) fn sync_tree(folder: &Path) -> io::Result<()> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    let mut next = 0;
    while next < folders.len() {
        for entry in fs::read_dir(&folders[next])? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                folders.push(entry.path());
            } else {
                files.push(entry.path());
            }
        }
        next += 1;
    }
    if files.len() > MANY && sync_file_system(folder)? {
        return Ok(());
    }
    for file in files {
        // Windows flushes only what may be written.
        File::options().read(true).write(cfg!(windows)).open(file)?.sync_all()?;
    }
    folders.iter().rev().try_for_each(|folder| sync_folder(folder))
}

/// Waits until the names in a folder are on disk, if the operating system can.
///
/// # Errors
/// Those of the operating system when data cannot be written.
pub(super) fn sync_folder(folder: &Path) -> io::Result<()> {
    let Ok(folder) = File::open(folder) else { return Ok(()) };
    match folder.sync_all() {
        Err(error) if is_unsupported(&error) => Ok(()),
        done => done,
    }
}

/// Flushes the whole file system of a folder; returns false if there is no such call.
#[cfg(target_os = "linux")]
fn sync_file_system(folder: &Path) -> io::Result<bool> {
    rustix::fs::syncfs(File::open(folder)?)?;
    Ok(true)
}

#[cfg(not(target_os = "linux"))]
fn sync_file_system(_: &Path) -> io::Result<bool> {
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rename function under test.
    type ToNew = fn(&Path, &Path) -> io::Result<()>;

    #[test]
    fn nothing_is_replaced_with_the_flag_or_without() {
        for to_new in [to_new as ToNew, to_new_without_flag] {
            let home = tempfile::tempdir().unwrap();
            let at = |name: &str| home.path().join(name);
            fs::write(at("file"), "1").unwrap();
            fs::write(at("taken"), "2").unwrap();
            fs::create_dir(at("folder")).unwrap();
            fs::write(at("folder/x"), "3").unwrap();
            fs::create_dir(at("empty")).unwrap();
            for from in ["file", "folder"] {
                for to in ["taken", "empty"] {
                    let kind = to_new(&at(from), &at(to)).unwrap_err().kind();
                    assert_eq!(kind, ErrorKind::AlreadyExists, "{from} to {to}");
                }
                to_new(&at(from), &at(&format!("new {from}"))).unwrap();
                assert!(!at(from).exists());
            }
            assert_eq!(fs::read(at("new file")).unwrap(), b"1");
            assert_eq!(fs::read(at("new folder/x")).unwrap(), b"3");
            assert_eq!(fs::read(at("taken")).unwrap(), b"2");
            assert!(fs::read_dir(at("empty")).unwrap().next().is_none());
        }
    }

    #[test]
    fn folders_are_exchanged_with_the_flag_or_without() {
        type Exchange = for<'a> fn(&'a Path, &Path, &'a Path) -> io::Result<&'a Path>;
        fn without<'a>(from: &'a Path, to: &Path, aside: &'a Path) -> io::Result<&'a Path> {
            exchange_without_flag(from, to, aside)
        }
        for exchange in [exchange as Exchange, without] {
            let home = tempfile::tempdir().unwrap();
            let at = |name: &str| home.path().join(name);
            for name in ["new", "old"] {
                fs::create_dir(at(name)).unwrap();
                fs::write(at(name).join("x"), name).unwrap();
            }
            let (new, aside) = (at("new"), at("aside"));
            let former = exchange(&new, &at("old"), &aside).unwrap();
            assert_eq!(fs::read(at("old/x")).unwrap(), b"new");
            assert_eq!(fs::read(former.join("x")).unwrap(), b"old");
            assert!(exchange(&at("missing"), &at("old"), &at("other")).is_err());
            assert_eq!(fs::read(at("old/x")).unwrap(), b"new");
        }
    }

    #[test]
    fn any_number_of_files_is_flushed() {
        let home = tempfile::tempdir().unwrap();
        fs::create_dir(home.path().join("inner")).unwrap();
        for count in [1, MANY + 1] {
            (0..count)
                .for_each(|n| fs::write(home.path().join(format!("inner/{n}")), "x").unwrap());
            sync_tree(home.path()).unwrap();
        }
        assert!(sync_tree(&home.path().join("missing")).is_err());
    }
}
