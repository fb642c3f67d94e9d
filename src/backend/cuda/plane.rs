//! A plane of trials that stays on a device.

use super::{Buffer, Device};
use crate::error::{Error, Result};
use crate::view::check_length;

/// What the words of a plane are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlaneKind {
    /// Signed integers of 32 bits.
    I32,
    /// IEEE single precision.
    F32,
}

/// A plane of trial dispersion measures on a device: axes dm, time; `dms` rows of `stride` words.
#[derive(Debug)]
pub struct Plane {
    /// The words, rows one behind another.
    pub words: Buffer<u32>,
    /// Words from one row to the next: the most that a row can hold.
    pub stride: usize,
    /// Rows.
    pub dms: usize,
    /// What a word is.
    pub kind: PlaneKind,
}

impl Plane {
    /// A plane of `dms` rows of `stride` words, which hold anything until they are written.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when the device has no memory for it.
    pub fn new(device: &Device, kind: PlaneKind, dms: usize, stride: usize) -> Result<Self> {
        let words = dms.checked_mul(stride).ok_or_else(|| {
            let rule = "the plane has more words than can be counted";
            Error::parameter("stride of a plane", stride, rule)
        })?;
        Ok(Self { words: device.buffer(words)?, stride, dms, kind })
    }

    /// Looks whether there are words for all rows; there may be more.
    ///
    /// # Errors
    /// [`Error::Shape`] when there are too few.
    pub fn check(&self) -> Result<()> {
        let words = self.dms.saturating_mul(self.stride);
        check_length("plane (dm, time)", words, self.words.len().min(words))
    }
}
