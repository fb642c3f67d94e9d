//! Location of an antenna's samples: recording, streams and offset in time.

use std::ops::Range;

/// Location of an antenna's samples.
#[derive(Clone, Debug)]
pub(super) struct Place {
    /// Antenna number in the array.
    pub(super) antenna: usize,
    /// Index of the recording.
    pub(super) feed: usize,
    /// Streams within the recording.
    pub(super) streams: Range<usize>,
    /// Sample index of the recording at common sample 0.
    pub(super) offset: u64,
    /// Lag of the recording's samples behind the common ones, in samples.
    pub(super) late: f64,
    /// Number of samples of the recording.
    pub(super) length: u64,
}
