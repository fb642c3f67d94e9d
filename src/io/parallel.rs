//! Reads of one file, and conversions of its samples, by several threads.
//!
//! One thread copies 5 to 7 GB/s from the page cache, less than a bus or a filter bank takes; twelve copy 50 GB/s, the
//! rate of a bus (measured on the host of an H200).

use std::cell::Cell;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use super::positioned::FileExt;

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

/// Returns the most threads of a read or a conversion.
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
pub(crate) fn most_threads() -> usize {
    threads(usize::MAX)
}

/// Returns the number of threads for a read or a conversion of `bytes` bytes.
pub(super) fn threads(bytes: usize) -> usize {
    static CORES: OnceLock<usize> = OnceLock::new();
    let cores = *CORES.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from));
    let limit = LIMIT.load(Ordering::Relaxed).min(OWN_LIMIT.get());
    (bytes / THREAD_BYTES).min(cores).min(limit).max(1)
}

/// File, or a file's bytes, that several threads read at offsets.
#[derive(Debug)]
pub(super) enum Input {
    File(File),
    Bytes(Vec<u8>),
}

impl Input {
    /// Returns the number of bytes.
    ///
    /// # Errors
    /// That of the file's metadata.
    pub(super) fn len(&self) -> io::Result<u64> {
        match self {
            Self::File(file) => Ok(file.metadata()?.len()),
            Self::Bytes(bytes) => Ok(bytes.len() as u64),
        }
    }

    /// Returns a reader that starts at byte `position`; several may read at the same time.
    pub(super) fn cursor_at(&self, position: u64) -> InputCursor<'_> {
        InputCursor { input: self, position }
    }

    /// Fills `buffer` with the bytes from `offset` on, by several threads if it is large.
    ///
    /// # Errors
    /// Those of the file; [`io::ErrorKind::UnexpectedEof`] if it ends before.
    pub(super) fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let length = buffer.len();
        let read = in_parts(buffer, offset, |part, offset| {
            fill(part, |rest, filled| self.read_some(rest, offset + filled as u64))
        })?;
        if read < length {
            let why = "failed to fill whole buffer";
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, why));
        }
        Ok(())
    }

    fn read_some(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        match self {
            // The system takes no offset beyond.
            Self::File(_) if i64::try_from(offset).is_err() => Ok(0),
            Self::File(file) => file.read_at(buffer, offset),
            Self::Bytes(bytes) => {
                let start = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
                let count = buffer.len().min(bytes.len() - start);
                buffer[..count].copy_from_slice(&bytes[start..start + count]);
                Ok(count)
            }
        }
    }
}

/// Reader of an [`Input`] with a position of its own.
#[derive(Debug)]
pub(super) struct InputCursor<'a> {
    input: &'a Input,
    position: u64,
}

impl Read for InputCursor<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.input.read_some(buffer, self.position)?;
        self.position += read as u64;
        Ok(read)
    }
}

impl Seek for InputCursor<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let (from, by) = match to {
            SeekFrom::Start(position) => (position, 0),
            SeekFrom::Current(by) => (self.position, by),
            SeekFrom::End(by) => (self.input.len()?, by),
        };
        let position = from.checked_add_signed(by);
        self.position = position.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.position)
    }
}

/// Fills `buffer` with the file's bytes from `offset` on; returns their number, which is less than the buffer's length
/// only at the file's end.
pub(super) fn read_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    in_parts(buffer, offset, |part, offset| read_part(file, part, offset))
}

/// Fills `buffer` by calls of `read` for its parts, each with the part's offset, on several threads if it is large;
/// returns the bytes before the first part that was not filled.
fn in_parts(
    buffer: &mut [u8],
    offset: u64,
    read: impl Fn(&mut [u8], u64) -> io::Result<usize> + Sync,
) -> io::Result<usize> {
    let count = threads(buffer.len());
    if count == 1 {
        return read(buffer, offset);
    }
    let (length, bytes) = (buffer.len(), buffer.len().div_ceil(count));
    let mut results: Vec<_> = (0..count).map(|_| Ok(0)).collect();
    let jobs = buffer.chunks_mut(bytes).zip(&mut results).enumerate();
    for_each(length, jobs, |(index, (part, result))| {
        *result = read(part, offset + (index * bytes) as u64);
    });
    let mut filled = 0;
    for (index, result) in results.into_iter().enumerate() {
        // Bytes after a short part do not count, since the file ended there when that part was read.
        if filled < (index * bytes).min(length) {
            break;
        }
        filled += result?;
    }
    Ok(filled)
}

/// Calls `run` for every job; uses several threads if `bytes`, which the jobs move together, is large.
pub(super) fn for_each<J: Send>(
    bytes: usize,
    jobs: impl Iterator<Item = J> + Send,
    run: impl Fn(J) + Sync,
) {
    for_each_with(&mut vec![(); threads(bytes)], jobs, |(), job| run(job));
}

/// Calls `run` for every job, on as many threads as there are states; each thread passes its own state.
///
/// # Panics
/// If there is no state.
pub(super) fn for_each_with<S: Send, J: Send>(
    states: &mut [S],
    mut jobs: impl Iterator<Item = J> + Send,
    run: impl Fn(&mut S, J) + Sync,
) {
    let (own, others) = states.split_first_mut().expect("a state");
    if others.is_empty() {
        return jobs.for_each(|job| run(own, job));
    }
    let jobs = Mutex::new(&mut jobs);
    let next = || jobs.lock().unwrap_or_else(PoisonError::into_inner).next();
    let work = |state: &mut S| {
        while let Some(job) = next() {
            run(state, job);
        }
    };
    std::thread::scope(|scope| {
        let work = &work;
        for state in others {
            // Without further threads, those that run do the work.
            if std::thread::Builder::new().spawn_scoped(scope, move || work(state)).is_err() {
                break;
            }
        }
        work(own);
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
    fn bytes_and_files_are_read_alike() {
        let bytes: Vec<u8> = (0..2 * THREAD_BYTES + 5).map(|k| (k * 7 % 253) as u8).collect();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&bytes).unwrap();
        for input in [Input::File(file), Input::Bytes(bytes.clone())] {
            assert_eq!(input.len().unwrap(), bytes.len() as u64);
            let mut found = vec![0; bytes.len() - 3];
            input.read_exact_at(&mut found, 3).unwrap();
            assert!(found == bytes[3..]);
            let fault = input.read_exact_at(&mut found, 4).unwrap_err();
            assert_eq!(fault.kind(), io::ErrorKind::UnexpectedEof);
            let mut cursor = input.cursor_at(0);
            cursor.seek(SeekFrom::End(-7)).unwrap();
            cursor.seek(SeekFrom::Current(2)).unwrap();
            let mut last = Vec::new();
            cursor.read_to_end(&mut last).unwrap();
            assert_eq!(last, bytes[bytes.len() - 5..]);
            cursor.seek(SeekFrom::Start(u64::MAX)).unwrap();
            assert_eq!(cursor.read(&mut last).unwrap(), 0);
            assert!(cursor.seek(SeekFrom::Current(1)).is_err());
        }
    }

    #[test]
    fn an_error_is_returned() {
        // A folder can be opened, but not read.
        let folder = File::open(std::env::temp_dir()).unwrap();
        let mut buffer = vec![0; 3 * THREAD_BYTES];
        assert!(read_at(&folder, &mut buffer, 0).is_err());
    }
}
