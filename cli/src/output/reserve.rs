//! Space that is held back on a disk, so that a run that fills it can still write what describes its product.

use std::fs::{File, remove_file};
use std::path::Path;

use rustix::fs::{FallocateFlags, fallocate};

/// Enough for documents and a few pictures.
const BYTES: u64 = 4 << 20;

/// Reserved space: a file without a name, which goes with this.
#[derive(Debug)]
pub(crate) struct Reserve {
    _file: File,
}

impl Reserve {
    /// Reserves space on the disk that `file` is written to; `None` where that is not possible.
    pub(crate) fn new(file: &Path) -> Option<Self> {
        let path = file.with_file_name(".reserve");
        let reserved = File::create_new(&path).ok()?;
        remove_file(&path).ok()?;
        fallocate(&reserved, FallocateFlags::empty(), 0, BYTES).ok()?;
        Some(Self { _file: reserved })
    }
}
