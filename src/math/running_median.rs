//! Running median of each channel over earlier samples.
//!
//! Invariant: the median depends only on the samples and their times, not on how calls divide them, and is one of the
//! samples.

use crate::sample::{Encoding, set_value, unpack_f32, value};

/// Memory limit of a dense median's samples, in bytes.
const MAX_BYTES: usize = 64 << 20;

/// Sampling of the window, and the interval at which the median is recomputed.
#[derive(Clone, Copy, Debug)]
struct Window {
    /// Times between sampled rows.
    spacing: u64,
    /// Number of latest samples per channel in the window.
    samples: usize,
    /// New samples of a channel after which its median is recomputed.
    refresh: usize,
}

/// Every 16th of 1024 rows: cheap enough for a query at every time.
const SPARSE: Window = Window { spacing: 16, samples: 64, refresh: 16 };

/// All of the last 1024 rows, for rare gaps.
const DENSE: Window = Window { spacing: 1, samples: 1024, refresh: 1 };

/// Running median of each channel, used to fill masked or missing samples.
#[derive(Clone, Debug)]
pub struct RunningMedian {
    encoding: Encoding,
    window: Window,
    /// Ring buffer; axes: sample, channel.
    values: Vec<f32>,
    channels: Vec<Channel>,
    /// Whether no sample has been skipped, so that all channels have the same position in the ring.
    is_level: bool,
    column: Vec<f32>,
}

#[derive(Clone, Debug, Default)]
struct Channel {
    /// Samples observed in all.
    seen: usize,
    /// Samples observed since the median was computed.
    fresh: usize,
    median: Option<f32>,
}

impl RunningMedian {
    /// Creates a median over 64 samples per channel, one from every 16th row; it allocates nothing afterwards.
    pub fn sparse(encoding: Encoding, channels: usize) -> Self {
        Self::new(encoding, channels, SPARSE)
    }

    /// Creates a median over the last 1024 rows, or as many as fit in 64 MiB as floats.
    pub fn dense(encoding: Encoding, channels: usize) -> Self {
        Self::last(encoding, channels, DENSE.samples)
    }

    /// Creates a median over the last `rows` rows, or as many as fit in 64 MiB as floats.
    pub fn last(encoding: Encoding, channels: usize, rows: usize) -> Self {
        let fitting = MAX_BYTES / (size_of::<f32>() * channels.max(1));
        let samples = rows.min(fitting).max(1);
        Self::new(encoding, channels, Window { samples, ..DENSE })
    }

    fn new(encoding: Encoding, channels: usize, window: Window) -> Self {
        Self {
            encoding,
            window,
            values: vec![0.0; window.samples * channels],
            channels: vec![Channel::default(); channels],
            is_level: true,
            column: Vec::with_capacity(window.samples),
        }
    }

    /// Returns the number of samples per channel in the window.
    pub fn samples(&self) -> usize {
        self.window.samples
    }

    /// Adds a row's finite samples, except for channels for which `bad` returns true.
    pub fn observe(&mut self, time: u64, row: &[u8], bad: impl Fn(usize) -> bool) {
        if !time.is_multiple_of(self.window.spacing) {
            return;
        }
        let stride = self.channels.len();
        for (index, channel) in self.channels.iter_mut().enumerate() {
            let sample = value(row, self.encoding, index) as f32;
            if !sample.is_finite() || bad(index) {
                self.is_level = false;
                continue;
            }
            self.values[channel.seen % self.window.samples * stride + index] = sample;
            channel.seen += 1;
            channel.fresh += 1;
        }
    }

    /// Adds whole rows, the first of which is at `time`, with all their channels.
    pub fn observe_rows(&mut self, time: u64, rows: &[u8]) {
        let row_bytes = (self.channels.len() * self.encoding.bits() / 8).max(1);
        // If no sample is skipped, only the last rows matter. Otherwise earlier rows take the place of skipped samples.
        let reach = self.window.samples * self.window.spacing as usize;
        let times = rows.len() / row_bytes;
        let passed = if self.takes_whole_rows() { times.saturating_sub(reach) } else { 0 };
        let rows = rows.chunks_exact(row_bytes).skip(passed);
        for (row, time) in rows.zip(time + passed as u64..) {
            let is_whole = self.encoding == Encoding::F32 && self.is_level && is_finite(row);
            if is_whole || self.takes_whole_rows() {
                self.take_row(time, row);
            } else {
                self.observe(time, row, |_| false);
            }
        }
    }

    fn takes_whole_rows(&self) -> bool {
        self.is_level && self.encoding.range().is_some()
    }

    fn take_row(&mut self, time: u64, row: &[u8]) {
        if !time.is_multiple_of(self.window.spacing) {
            return;
        }
        let stride = self.channels.len();
        let place = self.channels.first().map_or(0, |channel| channel.seen % self.window.samples);
        unpack_f32(row, self.encoding, &mut self.values[place * stride..][..stride]);
        for channel in &mut self.channels {
            channel.seen += 1;
            channel.fresh += 1;
        }
    }

    /// Returns the median of a channel (the lower of the two middle samples if their number is even), or `None`
    /// before its first sample.
    pub fn value(&mut self, channel: usize) -> Option<f32> {
        let stride = self.channels.len();
        let state = &mut self.channels[channel];
        let is_new = state.fresh > 0 && state.seen <= self.window.samples;
        if is_new || state.fresh >= self.window.refresh {
            let count = state.seen.min(self.window.samples);
            self.column.clear();
            self.column.extend(self.values[channel..].iter().step_by(stride).take(count));
            let middle = (count - 1) / 2;
            let (_, lower, _) = self.column.select_nth_unstable_by(middle, f32::total_cmp);
            state.median = Some(*lower);
            state.fresh = 0;
        }
        state.median
    }

    /// Returns a row of all channels' medians, with zeros for channels without samples.
    pub fn row(&mut self) -> Vec<u8> {
        let mut row = vec![0; (self.channels.len() * self.encoding.bits()).div_ceil(8)];
        for channel in 0..self.channels.len() {
            if let Some(median) = self.value(channel) {
                set_value(&mut row, self.encoding, channel, f64::from(median));
            }
        }
        row
    }

    /// Discards all samples.
    pub fn reset(&mut self) {
        self.channels.fill(Channel::default());
        self.is_level = true;
    }
}

/// Returns whether all floats of a row are finite.
fn is_finite(row: &[u8]) -> bool {
    row.chunks_exact(4).all(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]).is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_rows_count_however_they_come() {
        for encoding in Encoding::ALL {
            let mut bytes: Vec<u8> =
                (0..8 * 3000u32).map(|k| (k.wrapping_mul(2_654_435_761) >> 17) as u8).collect();
            if encoding == Encoding::F32 {
                bytes.iter_mut().skip(3).step_by(4).for_each(|byte| *byte &= 0x3f);
            }
            let channels = 64 / encoding.bits();
            let mut whole = RunningMedian::dense(encoding, channels);
            whole.observe_rows(0, &bytes);
            let mut split = RunningMedian::dense(encoding, channels);
            for part in [0..8, 8..8000, 8000..8016, 8016..24000] {
                split.observe_rows(part.start as u64 / 8, &bytes[part]);
            }
            assert_eq!(whole.row(), split.row());
            let last = &bytes[8 * (3000 - DENSE.samples)..];
            for channel in 0..channels {
                let mut column: Vec<f64> =
                    last.chunks(8).map(|row| value(row, encoding, channel)).collect();
                column.sort_by(f64::total_cmp);
                let found = value(&whole.row(), encoding, channel);
                assert_eq!(found.to_bits(), column[DENSE.samples / 2 - 1].to_bits());
            }
        }
    }

    #[test]
    fn few_rows_and_none() {
        let mut median = RunningMedian::dense(Encoding::U8, 2);
        assert_eq!(median.row(), [0, 0]);
        median.observe_rows(0, &[5, 9, 7, 1, 6, 200]);
        assert_eq!(median.row(), [6, 9]);
    }

    #[test]
    fn what_is_not_finite_does_not_count() {
        let mut median = RunningMedian::dense(Encoding::F32, 2);
        let rows = [1.0f32, f32::NAN, 3.0, 7.0, f32::INFINITY, 5.0, 2.0, f32::NAN];
        median.observe_rows(0, bytemuck::cast_slice(&rows));
        assert_eq!((median.value(0), median.value(1)), (Some(2.0), Some(5.0)));
    }

    #[test]
    fn the_sparse_median_follows_the_channel() {
        let mut medians = RunningMedian::sparse(Encoding::U8, 2);
        assert_eq!(medians.value(0), None);
        for time in 0..4096u64 {
            let level = if time < 2048 { 10 } else { 20 };
            let spike = if time % 48 == 0 { 200 } else { 0 };
            medians.observe(time, &[level + spike, level], |channel| channel == 1);
        }
        assert_eq!(medians.value(0), Some(20.0));
        assert_eq!(medians.value(1), None);
        medians.reset();
        assert_eq!(medians.value(0), None);
    }
}
