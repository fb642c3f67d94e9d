//! Sample order within a recording's blocks, and the transposition to and from stream rows.

use super::columns::Rows;
use crate::voltage::Voltages;

/// Bytes of samples transposed at once, sized to stay in a core's cache.
const TILE_BYTES: usize = 1 << 18;

/// Copies the first or the second of each pair of samples, loaded as one integer of twice the width: compilers
/// vectorize this form.
macro_rules! pick_half {
    ($pair:ty, $half:ty, $source:expr, $row:expr, $place:expr) => {{
        let (pairs, _) = $source.as_chunks::<{ size_of::<$pair>() }>();
        let (samples, _) = $row.as_chunks_mut::<{ size_of::<$half>() }>();
        let shift = $place * <$half>::BITS;
        for (sample, pair) in samples.iter_mut().zip(pairs) {
            *sample = ((<$pair>::from_le_bytes(*pair) >> shift) as $half).to_le_bytes();
        }
    }};
}

/// Joins the samples of two rows to pairs, stored as one integer of twice the width: the inverse of [`pick_half`].
macro_rules! join_halves {
    ($pair:ty, $half:ty, $first:expr, $second:expr, $target:expr) => {{
        let (pairs, _) = $target.as_chunks_mut::<{ size_of::<$pair>() }>();
        let (first, _) = $first.as_chunks::<{ size_of::<$half>() }>();
        let (second, _) = $second.as_chunks::<{ size_of::<$half>() }>();
        for ((pair, first), second) in pairs.iter_mut().zip(first).zip(second) {
            let high = <$pair>::from(<$half>::from_le_bytes(*second)) << <$half>::BITS;
            *pair = (high | <$pair>::from(<$half>::from_le_bytes(*first))).to_le_bytes();
        }
    }};
}

/// An axis of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Axis {
    Antenna,
    Channel,
    Polarization,
    Time,
}

/// Length of each axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) antennas: usize,
    pub(crate) channels: usize,
    pub(crate) polarizations: usize,
}

impl Counts {
    fn of(self, axis: Axis) -> usize {
        match axis {
            Axis::Antenna => self.antennas,
            Axis::Channel => self.channels,
            Axis::Polarization => self.polarizations,
            Axis::Time => 1,
        }
    }

    /// Returns the difference in stream index between consecutive elements along an axis.
    fn step(self, axis: Axis) -> usize {
        match axis {
            Axis::Antenna => self.channels * self.polarizations,
            Axis::Channel => self.polarizations,
            Axis::Polarization => 1,
            Axis::Time => 0,
        }
    }
}

/// Byte order of a recording: axes outer streams, time, inner streams. It repeats in units of `unit_times` samples of
/// every stream, or is a single unbounded unit if time is outermost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Stream index by position, outer positions first.
    streams: Vec<usize>,
    inner: usize,
    sample_bytes: usize,
    unit_times: Option<u64>,
}

impl Layout {
    /// Makes a layout from its axes, outermost first, time included. `unit_times` is used only if time is not the
    /// outermost axis. The caller has checked that the file holds at least one sample of every stream, which bounds
    /// the allocation.
    pub(crate) fn new(
        order: [Axis; 4],
        counts: Counts,
        unit_times: u64,
        sample_bytes: usize,
    ) -> Self {
        let mut streams = vec![0];
        let (mut inner, mut endless, mut seen_time) = (1, true, false);
        for axis in order {
            if axis == Axis::Time {
                seen_time = true;
                endless = streams.len() == 1;
                continue;
            }
            let (count, step) = (counts.of(axis), counts.step(axis));
            streams = streams.iter().flat_map(|s| (0..count).map(move |i| s + i * step)).collect();
            inner *= if seen_time { count } else { 1 };
        }
        Self { streams, inner, sample_bytes, unit_times: (!endless).then_some(unit_times) }
    }

    /// Makes a layout from the index of the stream at each position, outer positions first; groups of `inner` positions lie within
    /// the time axis. Without `unit_times`, time is the outermost axis and `inner` is the number of streams.
    pub(crate) fn of_streams(
        streams: Vec<usize>,
        inner: usize,
        sample_bytes: usize,
        unit_times: Option<u64>,
    ) -> Self {
        Self { streams, inner, sample_bytes, unit_times }
    }

    /// Returns the index of the stream at each position, outer positions first.
    pub(crate) fn positions(&self) -> &[usize] {
        &self.streams
    }

    /// Reverses the channel order of each antenna.
    pub(crate) fn reverse_channels(&mut self, counts: Counts) {
        for stream in &mut self.streams {
            let (rest, polarization) =
                (*stream / counts.polarizations, *stream % counts.polarizations);
            let (antenna, channel) = (rest / counts.channels, rest % counts.channels);
            let channel = counts.channels - 1 - channel;
            *stream = (antenna * counts.channels + channel) * counts.polarizations + polarization;
        }
    }

    /// Returns the number of streams.
    pub(crate) fn streams(&self) -> usize {
        self.streams.len()
    }

    /// Returns the bytes of one sample of every stream.
    pub(crate) fn frame_bytes(&self) -> u64 {
        (self.streams.len() * self.sample_bytes) as u64
    }

    /// Returns the samples per stream in a unit; 1 if time is outermost.
    pub(crate) fn unit_times(&self) -> u64 {
        self.unit_times.unwrap_or(1)
    }

    /// Returns the bytes of the whole units that hold `times` samples.
    pub(crate) fn bytes(&self, times: u64) -> u64 {
        times.next_multiple_of(self.unit_times()) * self.frame_bytes()
    }

    /// Returns the number of contiguous byte runs that hold the samples of a span of time.
    pub(crate) fn runs(&self) -> usize {
        self.streams.len() / self.inner
    }

    /// Returns the samples from `time` to the end of its unit.
    pub(crate) fn left_in_unit(&self, time: u64) -> u64 {
        self.unit_times.map_or(u64::MAX, |unit| unit - time % unit)
    }

    /// Returns the offset and the length in bytes of the unit that contains `time`; `None` without units.
    pub(crate) fn unit(&self, time: u64) -> Option<(u64, u64)> {
        let bytes = self.bytes(self.unit_times?);
        Some((time / self.unit_times() * bytes, bytes))
    }

    /// Returns the byte offset of `time` in one run.
    pub(crate) fn offset(&self, run: usize, time: u64) -> u64 {
        let step = self.run_bytes(1);
        self.unit_times.map_or(time * step, |unit| {
            (time / unit * self.runs() as u64 + run as u64) * unit * step + time % unit * step
        })
    }

    /// Returns the bytes of `times` samples in one run.
    pub(crate) fn run_bytes(&self, times: u64) -> u64 {
        times * (self.inner * self.sample_bytes) as u64
    }

    /// Returns the samples transposed at once.
    pub(crate) fn tile_times(&self) -> usize {
        (TILE_BYTES / (self.inner * self.sample_bytes)).max(1)
    }

    /// Distributes one run's bytes to its streams' rows, starting at sample `at`.
    pub(crate) fn scatter<R: Rows>(&self, run: usize, source: &[u8], rows: &mut R, at: usize) {
        let streams = &self.streams[run * self.inner..][..self.inner];
        let bytes = self.sample_bytes;
        let mut row = |place: usize, time: usize, from: &[u8], pick: fn(&[u8], &mut [u8])| {
            let length = if self.inner == 2 { from.len() / 2 } else { from.len() };
            let row = rows.row(streams[place]);
            pick(from, &mut row[(at + time) * bytes..][..length]);
        };
        let copy = copy_samples;
        match (self.inner, bytes) {
            (1, _) => row(0, 0, source, copy),
            (2, 1) => {
                row(0, 0, source, |from, row| pick_half!(u16, u8, from, row, 0));
                row(1, 0, source, |from, row| pick_half!(u16, u8, from, row, 1));
            }
            (2, 2) => {
                row(0, 0, source, |from, row| pick_half!(u32, u16, from, row, 0));
                row(1, 0, source, |from, row| pick_half!(u32, u16, from, row, 1));
            }
            (2, 4) => {
                row(0, 0, source, |from, row| pick_half!(u64, u32, from, row, 0));
                row(1, 0, source, |from, row| pick_half!(u64, u32, from, row, 1));
            }
            (2, _) => {
                row(0, 0, source, |from, row| pick_half!(u128, u64, from, row, 0));
                row(1, 0, source, |from, row| pick_half!(u128, u64, from, row, 1));
            }
            (inner, 1) => to_rows::<1>(source, inner, |p, t, line| row(p, t, line, copy)),
            (inner, 2) => to_rows::<2>(source, inner, |p, t, line| row(p, t, line, copy)),
            (inner, 4) => to_rows::<4>(source, inner, |p, t, line| row(p, t, line, copy)),
            (inner, _) => to_rows::<8>(source, inner, |p, t, line| row(p, t, line, copy)),
        }
    }

    /// Gathers one run's bytes from its streams: the samples from `start` that fill `bytes`.
    pub(crate) fn gather(&self, run: usize, from: Voltages<'_>, start: usize, bytes: &mut [u8]) {
        let streams = &self.streams[run * self.inner..][..self.inner];
        let row = |place: usize, time: usize, bytes: usize| {
            &from.row(streams[place])[(start + time) * self.sample_bytes..][..bytes]
        };
        let half = bytes.len() / 2;
        let pair = |place: usize| row(place, 0, half);
        match (self.inner, self.sample_bytes) {
            (1, _) => bytes.copy_from_slice(row(0, 0, bytes.len())),
            (2, 1) => join_halves!(u16, u8, pair(0), pair(1), bytes),
            (2, 2) => join_halves!(u32, u16, pair(0), pair(1), bytes),
            (2, 4) => join_halves!(u64, u32, pair(0), pair(1), bytes),
            (2, _) => join_halves!(u128, u64, pair(0), pair(1), bytes),
            (inner, 1) => from_rows::<1>(bytes, inner, row),
            (inner, 2) => from_rows::<2>(bytes, inner, row),
            (inner, 4) => from_rows::<4>(bytes, inner, row),
            (inner, _) => from_rows::<8>(bytes, inner, row),
        }
    }
}

/// Copies samples; a few cache lines without a call, which would keep a core from copying to several rows at a time.
#[inline]
fn copy_samples(from: &[u8], row: &mut [u8]) {
    const LINE: usize = 64;
    let (lines, rest) = from.as_chunks::<LINE>();
    if rest.is_empty() && lines.len() <= 8 {
        for (to, line) in row.as_chunks_mut::<LINE>().0.iter_mut().zip(lines) {
            *to = *line;
        }
        return;
    }
    row.copy_from_slice(from);
}

/// Edge of the square tile of the transposition, in streams and in samples.
const TRANSPOSE_TILE: usize = 32;

/// Transposes frames of `streams` samples into row segments, each passed to `put(stream, time, segment)`.
fn to_rows<const BYTES: usize>(
    source: &[u8],
    streams: usize,
    mut put: impl FnMut(usize, usize, &[u8]),
) {
    let (samples, _) = source.as_chunks::<BYTES>();
    let mut square = [[[0; BYTES]; TRANSPOSE_TILE]; TRANSPOSE_TILE];
    for (times, frames) in samples.chunks(TRANSPOSE_TILE * streams).enumerate() {
        let count = frames.len() / streams;
        for place in (0..streams).step_by(TRANSPOSE_TILE) {
            let places = TRANSPOSE_TILE.min(streams - place);
            for (time, frame) in frames.chunks_exact(streams).enumerate() {
                for (line, sample) in square.iter_mut().zip(&frame[place..place + places]) {
                    line[time] = *sample;
                }
            }
            for (number, line) in square[..places].iter().enumerate() {
                put(place + number, times * TRANSPOSE_TILE, line[..count].as_flattened());
            }
        }
    }
}

/// Transposes rows, read through `row(stream, time, bytes)`, into frames of `streams` samples.
fn from_rows<'a, const BYTES: usize>(
    bytes: &mut [u8],
    streams: usize,
    row: impl Fn(usize, usize, usize) -> &'a [u8],
) {
    let (samples, _) = bytes.as_chunks_mut::<BYTES>();
    let mut square = [[[0; BYTES]; TRANSPOSE_TILE]; TRANSPOSE_TILE];
    for (times, frames) in samples.chunks_mut(TRANSPOSE_TILE * streams).enumerate() {
        let count = frames.len() / streams;
        for place in (0..streams).step_by(TRANSPOSE_TILE) {
            let places = TRANSPOSE_TILE.min(streams - place);
            for (number, line) in square[..places].iter_mut().enumerate() {
                let row = row(place + number, times * TRANSPOSE_TILE, count * BYTES);
                // A copy of known length is a few instructions.
                match row.as_chunks::<BYTES>().0.first_chunk::<TRANSPOSE_TILE>() {
                    Some(row) => *line = *row,
                    None => line.as_flattened_mut()[..row.len()].copy_from_slice(row),
                }
            }
            for (time, frame) in frames.chunks_exact_mut(streams).enumerate() {
                for (sample, line) in frame[place..place + places].iter_mut().zip(&square) {
                    *sample = line[time];
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::voltage::{VoltageBlock, VoltageEncoding};

    const COUNTS: Counts = Counts { antennas: 2, channels: 3, polarizations: 2 };
    const ORDERS: [[Axis; 4]; 4] = [
        [Axis::Antenna, Axis::Channel, Axis::Time, Axis::Polarization],
        [Axis::Time, Axis::Channel, Axis::Polarization, Axis::Antenna],
        [Axis::Polarization, Axis::Channel, Axis::Antenna, Axis::Time],
        [Axis::Polarization, Axis::Time, Axis::Antenna, Axis::Channel],
    ];

    /// Computes a sample's index from the axes alone.
    fn place(order: [Axis; 4], unit: usize, stream: usize, time: usize) -> usize {
        let (channels, polarizations) = (COUNTS.channels, COUNTS.polarizations);
        let mut place = 0;
        for axis in order {
            let (count, index) = match axis {
                Axis::Antenna => (COUNTS.antennas, stream / polarizations / channels),
                Axis::Channel => (channels, stream / polarizations % channels),
                Axis::Polarization => (polarizations, stream % polarizations),
                Axis::Time => (unit, time % unit),
            };
            place = place * count + index;
        }
        place + time / unit * unit * 12
    }

    #[test]
    fn samples_lie_where_the_axes_say() {
        for encoding in [VoltageEncoding::Complex4, VoltageEncoding::Complex8] {
            let bytes = encoding.sample_bits() / 8;
            for order in ORDERS {
                let unit = if order[0] == Axis::Time { 10 } else { 5 };
                let layout = Layout::new(order, COUNTS, 5, bytes);
                let source: Vec<u8> = (0..120 * bytes).map(|i| (i % 251) as u8).collect();
                let mut block = VoltageBlock::new(encoding, 12, 10);
                block.set_times(10).unwrap();
                for run in 0..layout.runs() {
                    for time in 0..10 {
                        let from = layout.offset(run, time) as usize;
                        let run_bytes = &source[from..][..layout.run_bytes(1) as usize];
                        layout.scatter(run, run_bytes, &mut block, time as usize);
                        let mut again = vec![0; run_bytes.len()];
                        layout.gather(run, block.voltages(), time as usize, &mut again);
                        assert_eq!(again, run_bytes);
                    }
                }
                for (stream, time) in (0..120).map(|i| (i / 10, i % 10)) {
                    let found = &block.voltages().row(stream)[time * bytes..][..bytes];
                    let at = place(order, unit, stream, time) * bytes;
                    assert_eq!(found, &source[at..at + bytes], "{order:?} {stream} {time}");
                }
            }
        }
    }

    #[test]
    fn many_samples_are_moved_at_once() {
        let encodings = [
            VoltageEncoding::Complex4,
            VoltageEncoding::Complex8,
            VoltageEncoding::Complex16,
            VoltageEncoding::ComplexF32,
        ];
        for (encoding, streams) in encodings.iter().flat_map(|e| [1, 2, 3, 33, 64].map(|n| (*e, n)))
        {
            let bytes = encoding.sample_bits() / 8;
            let counts = Counts { antennas: 1, channels: streams, polarizations: 1 };
            let order = [Axis::Time, Axis::Antenna, Axis::Channel, Axis::Polarization];
            let layout = Layout::new(order, counts, 1, bytes);
            let source: Vec<u8> = (0..streams * bytes * 75).map(|i| (i * 7 % 253) as u8).collect();
            let mut block = VoltageBlock::new(encoding, streams, 80);
            layout.scatter(0, &source, &mut block, 5);
            block.set_times(80).unwrap();
            for (stream, time) in (0..streams * 75).map(|i| (i / 75, i % 75)) {
                let found = &block.voltages().row(stream)[(time + 5) * bytes..][..bytes];
                assert_eq!(found, &source[(time * streams + stream) * bytes..][..bytes]);
            }
            let mut again = vec![0; source.len()];
            layout.gather(0, block.voltages(), 5, &mut again);
            assert_eq!(again, source);
        }
    }

    #[test]
    fn channels_can_be_turned_round() {
        let order = [Axis::Antenna, Axis::Channel, Axis::Time, Axis::Polarization];
        let mut layout = Layout::new(order, COUNTS, 5, 2);
        layout.reverse_channels(COUNTS);
        assert_eq!(layout.streams, [4, 5, 2, 3, 0, 1, 10, 11, 8, 9, 6, 7]);
    }
}
