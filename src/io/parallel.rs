//! Reads of one file, and conversions of its samples, by several threads.
//!
//! One thread copies 5 to 7 GB/s from the page cache, less than a bus or a filter bank takes; twelve copy 50 GB/s, the
//! rate of a bus (measured on the host of an H200).

use std::cell::Cell;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

/// Minimum bytes per thread: starting a thread takes about 20 µs, reading these bytes 0.3 to 1 ms.
const THREAD_BYTES: usize = 2 << 20;

/// Maximum threads of one read: they reach the rate of a bus.
const MAX_THREADS: usize = 12;

static LIMIT: AtomicUsize = AtomicUsize::new(MAX_THREADS);

thread_local! {
    static OWN_LIMIT: Cell<usize> = const { Cell::new(MAX_THREADS) };
}

/// Limits the threads of each read or conversion; the default is 12, and the number of cores always limits it.
pub fn limit_threads(most: usize) {
    LIMIT.store(most.clamp(1, MAX_THREADS), Ordering::Relaxed);
}

/// Calls `work` with at most `most` threads for each read or conversion that it starts on this thread, for several files
/// that are read at the same time.
pub fn with_threads<R>(most: usize, work: impl FnOnce() -> R) -> R {
    let before = OWN_LIMIT.replace(most.max(1));
    let result = work();
    OWN_LIMIT.set(before);
    result
}

/// Returns the number of threads for a read or a conversion of `bytes` bytes.
pub(super) fn threads(bytes: usize) -> usize {
    static CORES: OnceLock<usize> = OnceLock::new();
    let cores = *CORES.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from));
    let limit = LIMIT.load(Ordering::Relaxed).min(OWN_LIMIT.get());
    (bytes / THREAD_BYTES).min(cores).min(limit).max(1)
}

/// Fills `buffer` with the file's bytes from `offset` on; returns their number, which is less than the buffer's length
/// only at the file's end.
pub(super) fn read_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let count = threads(buffer.len());
    if count == 1 {
        return read_part(file, buffer, offset);
    }
    let (length, bytes) = (buffer.len(), buffer.len().div_ceil(count));
    let mut results: Vec<_> = (0..count).map(|_| Ok(0)).collect();
    let jobs = buffer.chunks_mut(bytes).zip(&mut results).enumerate();
    for_each(length, jobs, |(index, (part, result))| {
        *result = read_part(file, part, offset + (index * bytes) as u64);
    });
    let mut read = 0;
    for (index, result) in results.into_iter().enumerate() {
        // Bytes after a short part do not count, since the file ended there when that part was read.
        if read < (index * bytes).min(length) {
            break;
        }
        read += result?;
    }
    Ok(read)
}

/// Calls `run` for every job; uses several threads if `bytes`, which the jobs move together, is large.
pub(super) fn for_each<J: Send>(
    bytes: usize,
    jobs: impl Iterator<Item = J> + Send,
    run: impl Fn(J) + Sync,
) {
    let count = threads(bytes);
    if count == 1 {
        return jobs.for_each(run);
    }
    let jobs = Mutex::new(jobs);
    let next = || jobs.lock().unwrap_or_else(PoisonError::into_inner).next();
    let work = || {
        while let Some(job) = next() {
            run(job);
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..count {
            // Without further threads, those that run do the work.
            if std::thread::Builder::new().spawn_scoped(scope, work).is_err() {
                break;
            }
        }
        work();
    });
}

/// As [`read_at`], on the calling thread.
pub(super) fn read_part(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    fill(buffer, |rest, filled| file.read_at(rest, offset + filled as u64))
}

/// Fills `buffer` by calls of `read`, which receives the rest of the buffer and the number of bytes before it; returns the
/// bytes read, fewer only at the end of the data.
pub(super) fn fill(
    buffer: &mut [u8],
    mut read: impl FnMut(&mut [u8], usize) -> io::Result<usize>,
) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match read(&mut buffer[filled..], filled) {
            Ok(0) => break,
            Ok(bytes) => filled += bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn all_bytes_come_in_order_and_the_end_is_found() {
        let bytes: Vec<u8> = (0..3 * THREAD_BYTES + 777).map(|k| (k * 31 % 251) as u8).collect();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&bytes).unwrap();
        for (offset, length) in [
            (0, bytes.len()),
            (5, 2 * THREAD_BYTES + 1),
            (bytes.len() - 9, 3 * THREAD_BYTES),
            (3, 2),
        ] {
            let mut found = vec![0; length];
            let read = read_at(&file, &mut found, offset as u64).unwrap();
            let expected = &bytes[offset..(offset + length).min(bytes.len())];
            assert_eq!(read, expected.len(), "{offset} {length}");
            assert!(found[..read] == *expected, "{offset} {length}");
        }
        let mut found = vec![0; 4 * THREAD_BYTES];
        assert_eq!(read_at(&file, &mut found, 2 * bytes.len() as u64).unwrap(), 0);
    }

    #[test]
    fn every_job_runs_once() {
        let mut counts = vec![0; 100];
        for_each(4 * THREAD_BYTES, counts.iter_mut(), |count| *count += 1);
        assert!(counts.iter().all(|count| *count == 1));
    }

    #[test]
    fn files_read_together_share_the_threads() {
        let all = threads(64 * THREAD_BYTES);
        assert_eq!(with_threads(1, || threads(64 * THREAD_BYTES)), 1);
        assert_eq!(threads(64 * THREAD_BYTES), all);
    }

    #[test]
    fn an_error_is_returned() {
        // A folder can be opened, but not read.
        let folder = File::open(std::env::temp_dir()).unwrap();
        let mut buffer = vec![0; 3 * THREAD_BYTES];
        assert!(read_at(&folder, &mut buffer, 0).is_err());
    }
}
