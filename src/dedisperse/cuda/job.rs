//! Arguments of one kernel launch: channel-major input on the device and the output plane.

/// Launch that sums `times` output times of every trial of the kernel.
///
/// | buffer   | axes          | type | unit   | access |
/// |----------|---------------|------|--------|--------|
/// | `input`  | channel, time | u8   | counts | read   |
/// | `output` | dm, time      | i32  | counts | write  |
///
/// Row `k` of the input is the k-th summed channel. Its element 0 is the sample at the first output time, so output
/// time `i` reads element `i + shift`. Kernels may read [`SLACK`] bytes beyond a row's samples on both sides; those
/// bytes never reach a sum.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    /// Address of element 0 of the first row; any alignment.
    pub(super) input: u64,
    /// Bytes between rows: a multiple of 16.
    pub(super) pitch: u64,
    /// Output times.
    pub(super) times: usize,
    /// Address of the first trial's sum at the first output time; a multiple of 4.
    pub(super) output: u64,
    /// Elements between the rows of consecutive trials.
    pub(super) output_stride: usize,
    /// Constant added to every sum: channels x the value that a zero byte represents.
    pub(super) offset: i32,
}

/// Bytes beyond both ends of a row's samples that a kernel may read.
pub(super) const SLACK: usize = 2048;
