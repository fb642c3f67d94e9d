//! Reads of one file, and conversions of its samples, by several threads.
//!
//! One thread copies 3 to 8 GB/s from the page cache, less than a bus or a filter bank takes; several threads add up
//! until the memory's bandwidth is reached.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

/// Bytes that are worth a thread of their own: its start takes about 20 µs, this read 0.3 to 1 ms.
const THREAD_BYTES: usize = 2 << 20;

/// Threads that saturate the memory of the machines measured.
const MAX_THREADS: usize = 12;

static LIMIT: AtomicUsize = AtomicUsize::new(MAX_THREADS);

/// Limits the threads of one read or conversion, 12 without a call; there are never more than processor cores.
pub fn limit_threads(most: usize) {
    LIMIT.store(most.clamp(1, MAX_THREADS), Ordering::Relaxed);
}

/// Returns the number of threads for a read or a conversion of `bytes` bytes.
pub(super) fn threads(bytes: usize) -> usize {
    static CORES: OnceLock<usize> = OnceLock::new();
    let cores = *CORES.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from));
    (bytes / THREAD_BYTES).min(cores).min(LIMIT.load(Ordering::Relaxed)).max(1)
}

/// Fills `buffer` with the file's bytes from `offset` on; returns their number, which is less than the buffer's length
/// only at the file's end.
pub(super) fn read_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let count = threads(buffer.len());
    if count == 1 {
        return read_part(file, buffer, offset);
    }
    let bytes = buffer.len().div_ceil(count);
    let mut parts = buffer.chunks_mut(bytes).enumerate();
    std::thread::scope(|scope| {
        let first = parts.next();
        let others: Vec<_> = parts
            .map(|(index, part)| {
                let length = part.len();
                let offset = offset + (index * bytes) as u64;
                (length, scope.spawn(move || read_part(file, part, offset)))
            })
            .collect();
        let mut read = first.map_or(Ok(0), |(_, part)| read_part(file, part, offset))?;
        let mut is_whole = read == bytes;
        for (length, thread) in others {
            let part = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            // Bytes after a gap do not count: the file ended before them when its earlier part was read.
            if is_whole {
                let part = part?;
                read += part;
                is_whole = part == length;
            }
        }
        Ok(read)
    })
}

/// Calls `run` for every job, which together move `bytes` bytes, on several threads if they are many.
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
        (1..count).for_each(|_| {
            scope.spawn(work);
        });
        work();
    });
}

/// As [`read_at`], on the calling thread.
pub(super) fn read_part(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut read = 0;
    while read < buffer.len() {
        match file.read_at(&mut buffer[read..], offset + read as u64) {
            Ok(0) => break,
            Ok(bytes) => read += bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(read)
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
    fn an_error_is_returned() {
        // A folder can be opened, but not read.
        let folder = File::open(std::env::temp_dir()).unwrap();
        let mut buffer = vec![0; 3 * THREAD_BYTES];
        assert!(read_at(&folder, &mut buffer, 0).is_err());
    }
}
