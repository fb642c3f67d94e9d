//! Dispersion-measure plane in device memory.

use super::{Buffer, Device};
use crate::error::{Error, Result};
use crate::view::check_length;

/// Type of a plane's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlaneKind {
    /// Signed 32-bit integers.
    I32,
    /// IEEE single precision.
    F32,
}

/// Plane of trial dispersion measures on a device; axes: DM, time; `dms` rows of `stride` words.
#[derive(Debug)]
pub struct Plane {
    /// Words, row by row.
    pub words: Buffer<u32>,
    /// Words from row to row: the capacity of a row.
    pub stride: usize,
    /// Number of rows.
    pub dms: usize,
    /// Type of a word.
    pub kind: PlaneKind,
}

impl Plane {
    /// Allocates a plane of `dms` rows of `stride` words; their contents are undefined until written.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if the device memory does not suffice.
    pub fn new(device: &Device, kind: PlaneKind, dms: usize, stride: usize) -> Result<Self> {
        let words = dms.checked_mul(stride).ok_or_else(|| {
            let rule = "the plane has more words than can be counted";
            Error::parameter("stride of a plane", stride, rule)
        })?;
        Ok(Self { words: device.buffer(words)?, stride, dms, kind })
    }

    /// Checks that the buffer has at least the words of all rows.
    ///
    /// # Errors
    /// [`Error::Shape`] if it has fewer.
    pub fn check(&self) -> Result<()> {
        let words = self.dms.saturating_mul(self.stride);
        check_length("plane (dm, time)", words, self.words.len().min(words))
    }
}
