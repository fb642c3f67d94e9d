//! Free disk space: checked before a long run, and reserved for the documents of its product.

use std::fs::{File, remove_file};
use std::io::ErrorKind;
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
use std::io::Write;
use std::path::Path;
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
use std::time::Instant;

#[cfg(unix)]
use rustix::fs::{FallocateFlags, fallocate};
use sidereal::{Error, Result};

use crate::common::Common;
use crate::say::note;

/// Output size in bytes from which a run reports it.
const WORTH_SAYING: u64 = 1 << 30;
/// MiB that are written to measure a disk.
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
const MEASURED_MIB: u64 = 64;
/// Reserved bytes: enough for documents and a few plots.
const RESERVED: u64 = 4 << 20;

/// Rejects a run whose product does not fit the file system of `out`, and reports the size of a large one.
///
/// File systems that do not report their free space pass.
///
/// # Errors
/// [`Error::Io`] of the kind `StorageFull`, with the bytes needed and the bytes free.
pub(crate) fn check(out: &Path, need: u64, common: &Common) -> Result<()> {
    let Some(free) = free_bytes(out) else { return Ok(()) };
    if need > free {
        let (need, free) = (human(need), human(free));
        let why = format!("{need} are needed for it, and {free} are free on its file system");
        return Err(Error::io(out, std::io::Error::new(ErrorKind::StorageFull, why)));
    }
    if need >= WORTH_SAYING && !common.quiet {
        note!("{} needs {} of the {} that are free.", out.display(), human(need), human(free));
    }
    Ok(())
}

/// Describes a lack of free space for a product of a live stream, which has at most `most` bytes and often fewer; `None` if there is
/// enough. The stream is received all the same, since its end is not known.
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
pub(crate) fn shortage(out: &Path, most: u64) -> Option<String> {
    let free = free_bytes(out).filter(|free| most > *free)?;
    let (place, most, free) = (out.display(), human(most), human(free));
    Some(format!("{place} may grow to {most}, and {free} are free on its file system"))
}

/// Returns the bytes that a user may still write where a file of this name would be created; `None` if unknown.
pub(crate) fn free_bytes(out: &Path) -> Option<u64> {
    let is_file = std::fs::metadata(out).map_or(true, |found| found.is_file() || found.is_dir());
    if !is_file {
        return None;
    }
    let parent = match out.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let there = parent.ancestors().find(|folder| folder.exists()).unwrap_or(Path::new("."));
    let there = if there.as_os_str().is_empty() { Path::new(".") } else { there };
    free_of(there)
}

/// Returns the bytes that a user may still write to the file system of a folder; `None` if unknown.
#[cfg(unix)]
fn free_of(folder: &Path) -> Option<u64> {
    let found = rustix::fs::statvfs(folder).ok()?;
    // Some network file systems report no blocks at all.
    (found.f_blocks > 0).then(|| found.f_bavail.saturating_mul(found.f_frsize))
}

/// Returns `None`: this system is not asked.
#[cfg(not(unix))]
fn free_of(_: &Path) -> Option<u64> {
    None
}

/// Returns the bytes of memory that are available without swapping; `None` where the system does not say.
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
pub(crate) fn available_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
    Some(kib << 10)
}

/// Measures how fast a folder's disk is written, in bytes per second; leaves no file.
///
/// # Errors
/// [`Error::Io`].
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
pub(crate) fn write_rate(folder: &Path) -> Result<f64> {
    let failed = |error| Error::io(folder, error);
    let mut file = tempfile::tempfile_in(folder).map_err(failed)?;
    let (block, begin) = (vec![1; 1 << 20], Instant::now());
    for _ in 0..MEASURED_MIB {
        file.write_all(&block).map_err(failed)?;
    }
    file.sync_data().map_err(failed)?;
    Ok((MEASURED_MIB << 20) as f64 / begin.elapsed().as_secs_f64())
}

/// Formats a size: 1.5 GiB.
pub(crate) fn human(bytes: u64) -> String {
    let mut size = bytes as f64;
    for unit in ["bytes", "KiB", "MiB", "GiB", "TiB"] {
        if size < 1024.0 {
            let digits = if unit == "bytes" || size >= 100.0 { 0 } else { 1 };
            return format!("{size:.digits$} {unit}");
        }
        size /= 1024.0;
    }
    format!("{size:.1} PiB")
}

/// Reserved space: an unlinked file, freed on drop.
#[derive(Debug)]
pub(crate) struct Reserve {
    _file: File,
}

impl Reserve {
    /// Reserves space on the disk of `file`; `None` if that is not possible.
    pub(crate) fn new(file: &Path) -> Option<Self> {
        let path = file.with_file_name(".reserve");
        let reserved = File::create_new(&path).ok()?;
        remove_file(&path).ok()?;
        #[cfg(unix)]
        fallocate(&reserved, FallocateFlags::empty(), 0, RESERVED).ok()?;
        // Gives the file its blocks, unless it is sparse or compressed.
        #[cfg(not(unix))]
        reserved.set_len(RESERVED).ok()?;
        Some(Self { _file: reserved })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_space_is_that_of_the_nearest_folder() {
        let home = tempfile::tempdir().unwrap();
        let near = free_bytes(&home.path().join("a.fil")).unwrap();
        assert!(near > 0 && free_bytes(&home.path().join("not/there/a.fil")).is_some());
        assert!(free_bytes(Path::new("a.fil")).is_some());
        assert_eq!(free_bytes(Path::new("/dev/null")), None);
    }

    #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
    #[test]
    fn a_live_product_that_may_not_fit_is_described() {
        let home = tempfile::tempdir().unwrap();
        let out = home.path().join("a.uvh5");
        let text = shortage(&out, u64::MAX).unwrap();
        assert!(text.contains("a.uvh5 may grow to 16384.0 PiB"), "{text}");
        assert_eq!(shortage(&out, 0), None);
    }

    #[test]
    fn sizes_have_units() {
        let sizes =
            [(1, "1 bytes"), (1536, "1.5 KiB"), (300 << 20, "300 MiB"), (5 << 50, "5.0 PiB")];
        sizes.into_iter().for_each(|(bytes, text)| assert_eq!(human(bytes), text));
    }
}
