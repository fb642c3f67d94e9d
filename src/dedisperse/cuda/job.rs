//! What the engine hands to a kernel: values by channel on the device, and where the sums go.

/// One launch: sums of `times` output times of every trial that the kernel covers.
///
/// | buffer   | axes          | type | unit   | access |
/// |----------|---------------|------|--------|--------|
/// | `input`  | channel, time | u8   | counts | read   |
/// | `output` | dm, time      | i32  | counts | write  |
///
/// Row `k` of the input is the k-th of the channels that are summed. Its element 0 is the sample at the
/// first output time, so that output time `i` reads element `i + shift`. Rows may be read [`SLACK`] bytes
/// beyond their samples on both sides; what stands there never reaches a sum.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    /// Address of element 0 of the first row; any alignment.
    pub(super) input: u64,
    /// Bytes from a row to the next: a multiple of 16.
    pub(super) pitch: u64,
    /// Output times.
    pub(super) times: usize,
    /// Address of the first trial's sum at the first output time; a multiple of 4.
    pub(super) output: u64,
    /// Elements from a trial's sums to the next trial's.
    pub(super) output_stride: usize,
    /// Added to every sum: channels x the value that a zero byte stands for.
    pub(super) offset: i32,
}

/// Bytes around a row's samples that a kernel may read.
pub(super) const SLACK: usize = 2048;
