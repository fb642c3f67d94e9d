//! Sequential reads of frame headers, and random reads of payloads.
//!
//! Invariant: one file is open at a time, and nothing behind its length at opening is asked for.

use std::fs::File;
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// Largest distance in bytes between two headers at which reading on is cheaper than seeking.
const NEAR_BYTES: u64 = 4096;
/// Bytes per read when headers are close together.
const AHEAD_BYTES: u64 = 1 << 16;

/// Fails if there is no file.
pub(in crate::io::voltages) fn check_paths(paths: &[PathBuf]) -> Result<()> {
    if paths.is_empty() {
        return Err(Error::parameter("files", 0, "a recording has at least one"));
    }
    Ok(())
}

/// A file whose headers are read from start to end.
#[derive(Debug)]
pub(in crate::io::voltages) struct Scan<'a> {
    path: &'a Path,
    file: File,
    /// The last bytes read.
    buffer: Vec<u8>,
    buffer_at: u64,
    /// Offset of the next header, at most the file's length.
    pub(in crate::io::voltages) at: u64,
    /// Length of the file.
    pub(in crate::io::voltages) bytes: u64,
}

impl<'a> Scan<'a> {
    /// Opens a file at its start.
    ///
    /// # Errors
    /// [`Error::Io`] for a missing or unreadable file; [`Error::Format`] for an empty file and for a file without a
    /// length.
    pub(in crate::io::voltages) fn open(path: &'a Path) -> Result<Self> {
        let io = |error| Error::io(path, error);
        let file = File::open(path).map_err(io)?;
        let metadata = file.metadata().map_err(io)?;
        if metadata.is_dir() {
            let why = "is a folder, expected a recording";
            return Err(io(std::io::Error::new(ErrorKind::IsADirectory, why)));
        }
        if !metadata.is_file() {
            let why = "found a pipe or device, expected a file: all headers are read at the start";
            return Err(Error::format(path, "file", 0, why));
        }
        if metadata.len() == 0 {
            return Err(Error::format(path, "file", 0, "the file is empty"));
        }
        let bytes = metadata.len();
        Ok(Self { path, file, buffer: Vec::new(), buffer_at: 0, at: 0, bytes })
    }

    /// Returns the path.
    pub(in crate::io::voltages) fn path(&self) -> &'a Path {
        self.path
    }

    /// Returns the bytes from the next header to the file's end.
    pub(in crate::io::voltages) fn left(&self) -> u64 {
        self.bytes - self.at
    }

    /// Describes the truncation of the current frame of `bytes` bytes by the file's end.
    pub(in crate::io::voltages) fn cut_frame(&self, bytes: u64) -> String {
        let (path, there) = (self.path.display(), self.left());
        format!("{path}: its last frame has {there} of {bytes} bytes and is left out")
    }

    /// Fills `bytes` from byte `from` of the file, within its length.
    pub(in crate::io::voltages) fn read_at(&mut self, from: u64, bytes: &mut [u8]) -> Result<()> {
        let end = from + bytes.len() as u64;
        let buffer_end = self.buffer_at + self.buffer.len() as u64;
        if from < self.buffer_at || end > buffer_end {
            let near = from.abs_diff(buffer_end) <= NEAR_BYTES;
            let ahead = if near { AHEAD_BYTES.min(self.bytes.saturating_sub(from)) } else { 0 };
            self.buffer.resize(ahead.max(end - from) as usize, 0);
            self.buffer_at = from;
            let read = self.file.seek(SeekFrom::Start(from));
            let read = read.and_then(|_| self.file.read_exact(&mut self.buffer));
            read.map_err(|error| Error::io(self.path, error))?;
        }
        let place = (from - self.buffer_at) as usize;
        bytes.copy_from_slice(&self.buffer[place..][..bytes.len()]);
        Ok(())
    }
}

/// Random access to several files.
#[derive(Debug)]
pub(super) struct Files {
    paths: Vec<PathBuf>,
    open: Option<(usize, File)>,
}

impl Files {
    pub(super) fn new(paths: &[PathBuf]) -> Self {
        Self { paths: paths.to_vec(), open: None }
    }

    /// Fills `bytes` from byte `from` of file `number`.
    pub(super) fn read_at(&mut self, number: usize, from: u64, bytes: &mut [u8]) -> Result<()> {
        let path = &self.paths[number];
        let io = |error| Error::io(path, error);
        let mut file = match self.open.take() {
            Some((open, file)) if open == number => file,
            _ => File::open(path).map_err(io)?,
        };
        file.seek(SeekFrom::Start(from)).and_then(|_| file.read_exact(bytes)).map_err(io)?;
        self.open = Some((number, file));
        Ok(())
    }
}
