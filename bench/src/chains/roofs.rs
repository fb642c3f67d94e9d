//! Roofs of whole chains on this machine: reading the input, writing as much as the product, and a pipe.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use sidereal::io::positioned::FileExt;
use sidereal::{Error, Result};

/// Bytes of a read or a write.
const PIECE: usize = 16 << 20;

/// Most bytes that a measurement reads, and that it writes.
const MOST_READ: u64 = 4 << 30;
const MOST_WRITTEN: u64 = 1 << 30;

/// Best rate of a measurement.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Best {
    /// Bytes per second.
    pub(super) rate: f64,
    /// Number of threads that reached it.
    pub(super) threads: usize,
}

impl Best {
    /// Returns the seconds that this many bytes take; 0 for none.
    pub(super) fn seconds(self, bytes: u64) -> f64 {
        if bytes == 0 { 0.0 } else { bytes as f64 / self.rate }
    }
}

/// Piece of a file.
#[derive(Clone, Copy, Debug)]
struct Piece {
    file: usize,
    offset: u64,
    bytes: usize,
}

/// Returns the pieces of files of these lengths, at most `most` bytes together.
fn pieces(lengths: &[u64], most: u64) -> Vec<Piece> {
    let (mut pieces, mut left) = (Vec::new(), most);
    for (file, length) in lengths.iter().enumerate() {
        let length = (*length).min(left);
        left -= length;
        let starts = (0..length).step_by(PIECE);
        pieces.extend(starts.map(|offset| {
            let bytes = (length - offset).min(PIECE as u64) as usize;
            Piece { file, offset, bytes }
        }));
    }
    pieces
}

/// Measures reads of files with 1, 2, 4 and so on up to `most_threads` threads.
///
/// # Errors
/// [`Error::Io`].
pub(super) fn read(paths: &[PathBuf], most_threads: usize) -> Result<Best> {
    let mut files = Vec::new();
    let mut lengths = Vec::new();
    for path in paths {
        let file = File::open(path).map_err(|error| Error::io(path, error))?;
        lengths.push(file.metadata().map_err(|error| Error::io(path, error))?.len());
        files.push(file);
    }
    let pieces = pieces(&lengths, MOST_READ);
    best(most_threads, |threads| {
        on_threads(threads, &pieces, |piece, buffer| {
            files[piece.file].read_exact_at(buffer, piece.offset)
        })
        .map_err(|error| Error::io(&paths[0], error))
    })
}

/// Measures writes of `bytes` bytes, at most 1 GiB, to a new file in a folder.
///
/// # Errors
/// [`Error::Io`].
pub(super) fn write(folder: &Path, bytes: u64, most_threads: usize) -> Result<Best> {
    let pieces = pieces(&[bytes.max(1)], MOST_WRITTEN);
    let path = folder.join("written");
    best(most_threads, |threads| {
        let io = |error| Error::io(&path, error);
        let file = File::create(&path).map_err(io)?;
        let rate =
            on_threads(threads, &pieces, |piece, buffer| file.write_all_at(buffer, piece.offset));
        std::fs::remove_file(&path).map_err(io)?;
        rate.map_err(io)
    })
}

/// Measures a pipe through which one thread writes files, as they are fed to a verb.
///
/// # Errors
/// [`Error::Io`].
pub(super) fn pipe(paths: &[PathBuf]) -> Result<Best> {
    let io = |error| Error::io("a pipe", error);
    let (mut reader, writer) = std::io::pipe().map_err(io)?;
    // The usual size of a pipe serves, too.
    #[cfg(target_os = "linux")]
    let _ = rustix::pipe::fcntl_setpipe_size(&writer, 1 << 20);
    let mut buffer = vec![1; 1 << 20];
    let began = Instant::now();
    let bytes: std::io::Result<usize> = std::thread::scope(|scope| {
        let fed = scope.spawn(move || {
            let mut writer = writer;
            paths
                .iter()
                .try_for_each(|path| std::io::copy(&mut File::open(path)?, &mut writer).map(|_| ()))
        });
        let mut bytes = 0;
        loop {
            match reader.read(&mut buffer)? {
                0 => break,
                read => bytes += read,
            }
        }
        fed.join().unwrap_or_else(|_| Err(std::io::Error::other("its writer failed")))?;
        Ok(bytes)
    });
    let rate = bytes.map_err(io)? as f64 / began.elapsed().as_secs_f64();
    Ok(Best { rate, threads: 1 })
}

/// Returns the best of a measurement with 1, 2, 4 and so on up to `most` threads.
fn best(most: usize, measure: impl Fn(usize) -> Result<f64>) -> Result<Best> {
    let mut best = Best::default();
    let mut threads = 1;
    while threads <= most.max(1) {
        let rate = measure(threads)?;
        if rate > best.rate {
            best = Best { rate, threads };
        }
        threads *= 2;
    }
    Ok(best)
}

/// Returns the bytes per second of `work` on all pieces, each with a buffer of its thread.
fn on_threads(
    threads: usize,
    pieces: &[Piece],
    work: impl Fn(Piece, &mut [u8]) -> std::io::Result<()> + Sync,
) -> std::io::Result<f64> {
    let next = AtomicUsize::new(0);
    let failed = Mutex::new(Ok(()));
    let mut buffers = vec![vec![1; PIECE]; threads];
    let began = Instant::now();
    std::thread::scope(|scope| {
        for buffer in &mut buffers {
            scope.spawn(|| {
                while let Some(piece) = pieces.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Err(error) = work(*piece, &mut buffer[..piece.bytes]) {
                        *failed.lock().unwrap_or_else(std::sync::PoisonError::into_inner) =
                            Err(error);
                        return;
                    }
                }
            });
        }
    });
    let seconds = began.elapsed().as_secs_f64();
    failed.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)?;
    let bytes: usize = pieces.iter().map(|piece| piece.bytes).sum();
    Ok(bytes as f64 / seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_all_files_up_to_a_limit() {
        let lengths = [PIECE as u64 + 1, 0, 5];
        let all = pieces(&lengths, u64::MAX);
        let found: Vec<_> =
            all.iter().map(|piece| (piece.file, piece.offset, piece.bytes)).collect();
        assert_eq!(found, [(0, 0, PIECE), (0, PIECE as u64, 1), (2, 0, 5)]);
        let some: usize = pieces(&lengths, 7).iter().map(|piece| piece.bytes).sum();
        assert_eq!(some, 7);
    }

    #[test]
    fn rates_are_measured_and_nothing_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("in");
        std::fs::write(&path, vec![7; 100_000]).unwrap();
        let paths = [path];
        assert!(read(&paths, 2).unwrap().rate > 0.0);
        assert!(write(folder.path(), 100_000, 2).unwrap().rate > 0.0);
        assert!(pipe(&paths).unwrap().rate > 0.0);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        assert!(read(&[folder.path().join("none")], 1).is_err());
        assert_eq!(Best { rate: 2.0, threads: 1 }.seconds(6), 3.0);
        assert_eq!(Best::default().seconds(0), 0.0);
    }
}
