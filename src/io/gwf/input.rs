//! Random access to a frame file, in its writer's byte order.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::checksum::Checksum;
use crate::error::{Error, Result};

/// Bytes before the first structure.
pub(super) const HEADER_BYTES: usize = 40;
/// Bytes per read.
pub(super) const PIECE_BYTES: usize = 1 << 16;

/// Byte order of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Little,
    Big,
}

impl Order {
    /// Decodes an unsigned number of at most eight bytes.
    pub(super) fn number(self, bytes: &[u8]) -> u64 {
        let join = |number: u64, byte: &u8| number << 8 | u64::from(*byte);
        match self {
            Self::Little => bytes.iter().rev().fold(0, join),
            Self::Big => bytes.iter().fold(0, join),
        }
    }
}

/// An open frame file.
#[derive(Clone, Debug)]
pub(super) struct Input {
    pub(super) path: PathBuf,
    file: Arc<File>,
    pub(super) bytes: u64,
    pub(super) order: Order,
    pub(super) version: u8,
}

impl Input {
    /// Opens a file and reads its 40-byte header.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let io = |error| Error::io(path, error);
        let file = File::open(path).map_err(io)?;
        let bytes = file.metadata().map_err(io)?.len();
        let mut head = [0; HEADER_BYTES];
        let fault = |field: &str, offset, why: String| Error::format(path, field, offset, why);
        if bytes < head.len() as u64 {
            let why = format!("{bytes} bytes found, expected a header of {}", head.len());
            return Err(fault("file", 0, why));
        }
        file.read_exact_at(&mut head, 0).map_err(io)?;
        if head[..5] != *b"IGWD\0" {
            let why = format!("{} found, expected IGWD", head[..5].escape_ascii());
            return Err(fault("magic", 0, why));
        }
        let version = head[5];
        if !(6..=9).contains(&version) {
            let what = format!("a reader of frame files of version {version}");
            let why = format!("{}: versions 6 to 9 are read", path.display());
            return Err(Error::Unavailable { what, why });
        }
        let order = match [head[12], head[13]] {
            [0x34, 0x12] => Order::Little,
            [0x12, 0x34] => Order::Big,
            other => {
                let why = format!("{other:02x?} found, expected 0x1234 in either order");
                return Err(fault("byte order", 12, why));
            }
        };
        let sizes = [head[7], head[8], head[9], head[10], head[11]];
        if sizes != [2, 4, 8, 4, 8] {
            let why = format!("{sizes:?} found, expected [2, 4, 8, 4, 8]");
            return Err(fault("sizes of numbers", 7, why));
        }
        Ok(Self { path: path.to_path_buf(), file: Arc::new(file), bytes, order, version })
    }

    /// Fills `buffer` from `offset`.
    pub(super) fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        self.file.read_exact_at(buffer, offset).map_err(|error| Error::io(&self.path, error))
    }

    /// Returns a stream of `bytes` bytes from `offset`.
    pub(super) fn section(&self, offset: u64, bytes: u64) -> Section {
        Section { file: Arc::clone(&self.file), next: offset, end: offset.saturating_add(bytes) }
    }

    pub(super) fn fault(&self, field: &str, offset: u64, why: impl Into<String>) -> Error {
        Error::format(&self.path, field, offset, why)
    }

    /// Computes the checksum of `bytes` bytes from `offset`.
    pub(super) fn checksum(&self, offset: u64, bytes: u64) -> Result<u32> {
        let mut section = self.section(offset, bytes);
        let mut sum = Checksum::default();
        let mut piece = vec![0; PIECE_BYTES.min(bytes as usize)];
        loop {
            match section.read(&mut piece).map_err(|error| Error::io(&self.path, error))? {
                0 => return Ok(sum.finish()),
                count => sum.add(&piece[..count]),
            }
        }
    }
}

/// Sequential reader of a byte range of a file.
#[derive(Debug)]
pub(super) struct Section {
    file: Arc<File>,
    next: u64,
    end: u64,
}

impl Section {
    /// Skips bytes.
    pub(super) fn skip(&mut self, bytes: u64) {
        self.next = self.next.saturating_add(bytes).min(self.end);
    }
}

impl Read for Section {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = (buffer.len() as u64).min(self.end.saturating_sub(self.next)) as usize;
        let count = self.file.read_at(&mut buffer[..count], self.next)?;
        self.next += count as u64;
        Ok(count)
    }
}
