//! Parameters of one launch of a channelizer kernel.

/// Spectra of every stream, with samples and rows in device memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    /// Address of the first sample under the first window of stream 0; a multiple of 16.
    pub input: u64,
    /// Bytes from stream to stream; a multiple of 16.
    pub stride: u64,
    /// First spectrum, counted from the stream's start, which is the phase reference.
    pub first_spectrum: u64,
    /// Spectra per stream; a whole number of rows.
    pub spectra: usize,
    /// Address of the first row.
    pub output: u64,
    /// Address of the 64-bit counts of saturated values, one per row element, or 0.
    pub saturated: u64,
}
