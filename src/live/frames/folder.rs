//! Folders in which frame files appear: their names, and notice of new ones.
//!
//! Invariant: a new name is reported once, by inotify or by the next listing. It is reported again if inotify reports another inode,
//! size or modification time under it.

use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;

use crate::error::{Error, Result};
use crate::units::{Gps, NS_PER_S};

/// Time between listings of all folders.
const LISTING: Duration = Duration::from_secs(1);

/// Latest accepted time, the year 2140, and longest frame, in seconds.
const LATEST_S: i64 = 5_000_000_000;
const LONGEST_S: i64 = 1 << 12;

/// Time that a frame's name says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Time of the first sample.
    pub start: Gps,
    /// Time after the last sample.
    pub end: Gps,
}

impl Span {
    /// Returns the time in a name `OBSERVATORY-TAG-GPS-DURATION.gwf`, with whole or decimal seconds; `None` for any other
    /// name, such as a temporary one that begins with a dot.
    pub fn of_name(name: &str) -> Option<Self> {
        let stem = name.strip_suffix(".gwf").filter(|stem| !stem.starts_with('.'))?;
        let mut parts = stem.rsplitn(3, '-');
        let (duration, start) = (parts.next()?, parts.next()?);
        let (observatory, tag) = parts.next()?.split_once('-')?;
        let (start_ns, length_ns) = (nanoseconds(start)?, nanoseconds(duration)?);
        let is_possible = !observatory.is_empty()
            && !tag.is_empty()
            && start_ns <= LATEST_S * NS_PER_S
            && (1..=LONGEST_S * NS_PER_S).contains(&length_ns);
        let start = Gps { ns: start_ns };
        is_possible.then(|| Self { start, end: Gps { ns: start_ns + length_ns } })
    }
}

/// Reads seconds without a sign, with up to nine digits after a point.
fn nanoseconds(text: &str) -> Option<i64> {
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    let is_number = |text: &str, most| {
        (1..=most).contains(&text.len()) && text.bytes().all(|letter| letter.is_ascii_digit())
    };
    if !is_number(whole, 10) || !is_number(part, 9) {
        return None;
    }
    let whole: i64 = whole.parse().ok()?;
    let part: i64 = format!("{part:0<9}").parse().ok()?;
    whole.checked_mul(NS_PER_S)?.checked_add(part)
}

/// File that has appeared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Arrival {
    /// Index of its folder.
    pub(super) folder: usize,
    pub(super) path: PathBuf,
    pub(super) span: Span,
}

/// Identity of a file and its contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    inode: u64,
    bytes: u64,
    /// Time of the last change: seconds, and nanoseconds after them.
    changed: i64,
    changed_ns: i64,
}

/// One folder.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    /// Letter of the detector's observatory, which names of its frames begin with.
    observatory: char,
    watch: Option<i32>,
    /// Files reported, as of the last listing or later.
    seen: HashMap<OsString, Option<Identity>>,
}

/// Several folders, watched by inotify, and listed once a second.
#[derive(Debug)]
pub(super) struct Folders {
    folders: Vec<Folder>,
    inotify: Option<OwnedFd>,
    listed: Option<Instant>,
}

impl Folders {
    /// Watches folders, which must exist.
    ///
    /// # Errors
    /// [`Error::Io`] for a folder that is missing or cannot be listed.
    pub(super) fn watch(folders: impl Iterator<Item = Folder>) -> Result<Self> {
        let folders: Vec<Folder> = folders.collect();
        for Folder { path, .. } in &folders {
            fs::read_dir(path).map_err(|error| Error::io(path, error))?;
        }
        // Without inotify, listings find all files.
        let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).ok();
        Ok(Self { folders, inotify, listed: None })
    }

    /// Waits until a file appears, at most `timeout`.
    pub(super) fn wait(&self, timeout: Duration) {
        let Some(inotify) = &self.inotify else { return std::thread::sleep(timeout) };
        let limit = Timespec {
            tv_sec: timeout.as_secs() as i64,
            tv_nsec: i64::from(timeout.subsec_nanos()),
        };
        // An error, as after a signal, ends the wait early.
        let _ = poll(&mut [PollFd::new(inotify, PollFlags::IN)], Some(&limit));
    }

    /// Appends the files that have appeared since the last call.
    pub(super) fn arrivals(&mut self, now: Instant, arrivals: &mut Vec<Arrival>) {
        self.notices(arrivals);
        if self.listed.is_none_or(|listed| now.duration_since(listed) >= LISTING) {
            self.listed = Some(now);
            self.list(arrivals);
        }
    }

    /// Lists all folders in the next call of [`Folders::arrivals`].
    #[cfg(test)]
    pub(super) fn relist(&mut self) {
        self.listed = None;
    }

    /// Takes what inotify reports.
    fn notices(&mut self, arrivals: &mut Vec<Arrival>) {
        let Some(inotify) = &self.inotify else { return };
        let mut buffer = [MaybeUninit::uninit(); 1 << 14];
        let mut reader = inotify::Reader::new(inotify, &mut buffer);
        loop {
            let event = match reader.next() {
                Ok(event) => event,
                Err(Errno::INTR) => continue,
                Err(_) => return,
            };
            if event.events().contains(ReadFlags::QUEUE_OVERFLOW) {
                self.listed = None;
                continue;
            }
            // Detectors that share a folder share its watch.
            let own = |(_, folder): &(usize, &mut Folder)| folder.watch == Some(event.wd());
            for (index, folder) in self.folders.iter_mut().enumerate().filter(own) {
                if event.events().contains(ReadFlags::IGNORED) {
                    folder.watch = None;
                } else if let Some(name) = event.file_name() {
                    folder.appeared(index, OsStr::from_bytes(name.to_bytes()), arrivals);
                }
            }
        }
    }

    /// Lists all folders; forgets files that are gone.
    fn list(&mut self, arrivals: &mut Vec<Arrival>) {
        for (index, folder) in self.folders.iter_mut().enumerate() {
            if let (Some(inotify), None) = (&self.inotify, folder.watch) {
                let events = WatchFlags::MOVED_TO | WatchFlags::CLOSE_WRITE | WatchFlags::ONLYDIR;
                folder.watch = inotify::add_watch(inotify, &folder.path, events).ok();
            }
            // A folder that is gone has no files; it may come back.
            let entries = fs::read_dir(&folder.path).into_iter().flatten();
            let names: HashSet<OsString> =
                entries.flatten().map(|entry| entry.file_name()).collect();
            folder.seen.retain(|name, _| names.contains(name));
            for name in names {
                if !folder.seen.contains_key(&name) {
                    folder.appeared(index, &name, arrivals);
                }
            }
        }
    }
}

impl Folder {
    /// Makes a folder of the frames of a detector, H1.
    pub(super) fn new(path: PathBuf, detector: &str) -> Self {
        let observatory = detector.chars().next().unwrap_or_default();
        Self { path, observatory, watch: None, seen: HashMap::new() }
    }

    /// Reports a file unless it is the same as before.
    fn appeared(&mut self, index: usize, name: &OsStr, arrivals: &mut Vec<Arrival>) {
        let Some(name) = name.to_str() else { return };
        let Some(span) = Span::of_name(name) else { return };
        // Names of frames of several observatories begin with all of their letters.
        let observatories = name.split('-').next().unwrap_or_default();
        if !observatories.contains(self.observatory) {
            return;
        }
        let path = self.path.join(name);
        let identity = identity(&path);
        let before = self.seen.insert(OsString::from(name), identity);
        if before.is_none_or(|before| before != identity) {
            arrivals.push(Arrival { folder: index, path, span });
        }
    }
}

/// Returns the identity of a file; `None` if it is gone.
pub(super) fn identity(path: &Path) -> Option<Identity> {
    let found = fs::metadata(path).ok()?;
    let (inode, bytes) = (found.ino(), found.len());
    Some(Identity { inode, bytes, changed: found.mtime(), changed_ns: found.mtime_nsec() })
}

#[cfg(test)]
mod tests {
    use std::iter::once;

    use super::*;

    #[test]
    fn names_give_times_in_whole_and_decimal_seconds() {
        let span = |name| Span::of_name(name).map(|span| (span.start.ns, span.end.ns));
        let second = NS_PER_S;
        let whole = 1_126_259_462 * second;
        assert_eq!(span("H-H1_llhoft-1126259462-1.gwf"), Some((whole, whole + second)));
        assert_eq!(
            span("H-H1-llhoft-1126259462.25-0.25.gwf"),
            Some((whole + second / 4, whole + second / 2))
        );
        assert_eq!(span("V-T-0.000000001-4096.gwf"), Some((1, 1 + 4096 * second)));
        for bad in [
            ".H-H1_llhoft-1126259462-1.gwf",
            "H-H1_llhoft-1126259462-1.gwf.tmp",
            "H-H1_llhoft-1126259462-0.gwf",
            "H-H1_llhoft-1126259462-1e3.gwf",
            "H-H1_llhoft-1126259462-.gwf",
            "H-1126259462-1.gwf",
            "-T-1126259462-1.gwf",
            "H--1126259462-1.gwf",
            "H-T-99999999999-1.gwf",
            "H-T-9999999999-1.gwf",
            "H-T-1126259462-99999.gwf",
            "H-T-1.0000000001-1.gwf",
            "frames.gwf",
        ] {
            assert_eq!(span(bad), None, "{bad}");
        }
    }

    fn names(folders: &mut Folders, listed: bool) -> Vec<String> {
        let mut arrivals = Vec::new();
        if listed {
            folders.listed = None;
        }
        folders.arrivals(Instant::now(), &mut arrivals);
        let name = |one: &Arrival| one.path.file_name().unwrap().to_string_lossy().into_owned();
        let mut names: Vec<String> = arrivals.iter().map(name).collect();
        names.sort();
        names
    }

    #[test]
    fn files_are_reported_once_whoever_finds_them_first() {
        let home = tempfile::tempdir().unwrap();
        let place = |name: &str| home.path().join(name);
        fs::write(place("H-T-100-1.gwf"), "a").unwrap();
        fs::write(place("other.txt"), "a").unwrap();
        fs::write(place("L-T-100-1.gwf"), "another detector's").unwrap();
        let mut folders =
            Folders::watch(once(Folder::new(home.path().to_path_buf(), "H1"))).unwrap();
        assert_eq!(names(&mut folders, false), ["H-T-100-1.gwf"]);
        // inotify reports what is renamed into place, and the listing does not report it again.
        fs::write(place(".new"), "b").unwrap();
        fs::rename(place(".new"), place("H-T-101-1.gwf")).unwrap();
        folders.wait(Duration::from_secs(10));
        assert_eq!(names(&mut folders, false), ["H-T-101-1.gwf"]);
        assert!(names(&mut folders, true).is_empty());
        // The listing alone, whose file inotify reports later.
        fs::write(place("H-T-102-1.gwf"), "c").unwrap();
        let mut listed = Vec::new();
        folders.list(&mut listed);
        assert_eq!(listed.len(), 1);
        assert!(names(&mut folders, true).is_empty());
        // Another file of the same name.
        fs::write(place(".new"), "again").unwrap();
        fs::rename(place(".new"), place("H-T-101-1.gwf")).unwrap();
        assert_eq!(names(&mut folders, false), ["H-T-101-1.gwf"]);
        fs::remove_file(place("H-T-100-1.gwf")).unwrap();
        assert!(names(&mut folders, true).is_empty());
        assert_eq!(folders.folders[0].seen.len(), 2);
    }

    #[test]
    fn a_folder_may_go_and_come_back_but_must_be_there_first() {
        let home = tempfile::tempdir().unwrap();
        let place = home.path().join("H1");
        let missing =
            Folders::watch(once(Folder::new(place.clone(), "H1"))).unwrap_err().to_string();
        assert!(missing.contains("H1"), "{missing}");
        fs::create_dir(&place).unwrap();
        let mut folders = Folders::watch(once(Folder::new(place.clone(), "H1"))).unwrap();
        assert!(names(&mut folders, true).is_empty());
        fs::remove_dir(&place).unwrap();
        assert!(names(&mut folders, true).is_empty());
        fs::create_dir(&place).unwrap();
        fs::write(place.join("H-T-100-1.gwf"), "a").unwrap();
        assert_eq!(names(&mut folders, true), ["H-T-100-1.gwf"]);
        fs::write(place.join("H-T-101-1.gwf"), "a").unwrap();
        assert_eq!(names(&mut folders, false), ["H-T-101-1.gwf"]);
    }
}
