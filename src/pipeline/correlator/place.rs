//! Where an antenna's samples are, among recordings and in time.

use std::ops::Range;

/// Where an antenna's samples are.
#[derive(Clone, Debug)]
pub(super) struct Place {
    /// The antenna's number in the array.
    pub(super) antenna: usize,
    /// The recording.
    pub(super) feed: usize,
    /// Its streams there.
    pub(super) streams: Range<usize>,
    /// The recording's sample at common sample 0.
    pub(super) offset: u64,
    /// By how much of a sample its samples were taken later than the common ones.
    pub(super) late: f64,
    /// Samples of the recording.
    pub(super) length: u64,
}
