//! What one launch of a channelizing kernel is given.

/// Spectra of every stream, whose samples and rows lie in the device's memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    /// Address of the first sample under the first window, of stream 0: a multiple of 16.
    pub input: u64,
    /// Bytes from stream to stream: a multiple of 16.
    pub stride: u64,
    /// The first spectrum, counted from the stream's start: phases refer to it.
    pub first_spectrum: u64,
    /// Spectra of each stream: whole rows.
    pub spectra: usize,
    /// Address of the first row.
    pub output: u64,
    /// Address of the counters of limited samples, 64 bits each, one a row element; or 0.
    pub saturated: u64,
}
