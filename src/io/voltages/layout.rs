//! Where samples lie in a recording's blocks, and their way into the streams' rows and back.

use crate::voltage::{VoltageBlock, Voltages};

/// Bytes of samples that are moved at once: they stay in a core's cache.
const TILE_BYTES: usize = 1 << 18;

/// What a block's bytes run over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Axis {
    Antenna,
    Channel,
    Polarization,
    Time,
}

/// How many there are of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) antennas: usize,
    pub(super) channels: usize,
    pub(super) polarizations: usize,
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

    /// How far apart in stream numbers neighbours along an axis lie.
    fn step(self, axis: Axis) -> usize {
        match axis {
            Axis::Antenna => self.channels * self.polarizations,
            Axis::Channel => self.polarizations,
            Axis::Polarization => 1,
            Axis::Time => 0,
        }
    }
}

/// The order of a recording's bytes: axes outer streams, time, inner streams; in units of so many
/// samples of every stream, or without end where time is outermost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    /// Each place's stream, outer places first.
    streams: Vec<usize>,
    inner: usize,
    sample_bytes: usize,
    unit_times: Option<u64>,
}

impl Layout {
    /// A layout with its axes outermost first, time among them; `unit_times` counts only where time
    /// is not the first. The caller has seen a file that is as long as one sample of every stream.
    pub(super) fn new(
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

    /// Puts each antenna's channels into the opposite order.
    pub(super) fn reverse_channels(&mut self, counts: Counts) {
        for stream in &mut self.streams {
            let (rest, polarization) =
                (*stream / counts.polarizations, *stream % counts.polarizations);
            let (antenna, channel) = (rest / counts.channels, rest % counts.channels);
            let channel = counts.channels - 1 - channel;
            *stream = (antenna * counts.channels + channel) * counts.polarizations + polarization;
        }
    }

    /// Streams.
    pub(super) fn streams(&self) -> usize {
        self.streams.len()
    }

    /// Bytes of one sample of every stream.
    pub(super) fn frame_bytes(&self) -> u64 {
        (self.streams.len() * self.sample_bytes) as u64
    }

    /// Samples of each stream in a unit: 1 where time is outermost.
    pub(super) fn unit_times(&self) -> u64 {
        self.unit_times.unwrap_or(1)
    }

    /// Bytes of as many whole units as hold `times` samples.
    pub(super) fn bytes(&self, times: u64) -> u64 {
        times.next_multiple_of(self.unit_times()) * self.frame_bytes()
    }

    /// Runs of bytes in which the samples of a span of time lie.
    pub(super) fn runs(&self) -> usize {
        self.streams.len() / self.inner
    }

    /// Samples from `time` to the end of its unit.
    pub(super) fn left_in_unit(&self, time: u64) -> u64 {
        self.unit_times.map_or(u64::MAX, |unit| unit - time % unit)
    }

    /// The byte at which a unit of `time` begins, and how long units are; `None` without units.
    pub(super) fn unit(&self, time: u64) -> Option<(u64, u64)> {
        let bytes = self.bytes(self.unit_times?);
        Some((time / self.unit_times() * bytes, bytes))
    }

    /// The byte of `time` in one run.
    pub(super) fn offset(&self, run: usize, time: u64) -> u64 {
        let step = self.run_bytes(1);
        self.unit_times.map_or(time * step, |unit| {
            (time / unit * self.runs() as u64 + run as u64) * unit * step + time % unit * step
        })
    }

    /// Bytes of `times` samples in one run.
    pub(super) fn run_bytes(&self, times: u64) -> u64 {
        times * (self.inner * self.sample_bytes) as u64
    }

    /// Samples that are moved at once.
    pub(super) fn tile_times(&self) -> usize {
        (TILE_BYTES / (self.inner * self.sample_bytes)).max(1)
    }

    /// Deals one run's bytes out to its streams' rows, from sample `at` on.
    pub(super) fn deal(&self, run: usize, source: &[u8], block: &mut VoltageBlock, at: usize) {
        let times = source.len() / (self.inner * self.sample_bytes);
        let span = at * self.sample_bytes..(at + times) * self.sample_bytes;
        let streams = &self.streams[run * self.inner..][..self.inner];
        for (place, stream) in streams.iter().enumerate() {
            let row = &mut block.row_mut(*stream)[span.clone()];
            match self.sample_bytes {
                1 => pick::<1>(source, self.inner, place, row),
                2 => pick::<2>(source, self.inner, place, row),
                4 => pick::<4>(source, self.inner, place, row),
                _ => pick::<8>(source, self.inner, place, row),
            }
        }
    }

    /// Gathers one run's bytes from its streams: as many samples from `start` on as `run_bytes` hold.
    pub(super) fn gather(&self, run: usize, from: Voltages<'_>, start: usize, bytes: &mut [u8]) {
        let times = bytes.len() / (self.inner * self.sample_bytes);
        let span = start * self.sample_bytes..(start + times) * self.sample_bytes;
        let streams = &self.streams[run * self.inner..][..self.inner];
        for (place, stream) in streams.iter().enumerate() {
            let row = &from.row(*stream)[span.clone()];
            match self.sample_bytes {
                1 => put::<1>(row, self.inner, place, bytes),
                2 => put::<2>(row, self.inner, place, bytes),
                4 => put::<4>(row, self.inner, place, bytes),
                _ => put::<8>(row, self.inner, place, bytes),
            }
        }
    }
}

/// Takes one of `streams` interleaved streams.
fn pick<const BYTES: usize>(source: &[u8], streams: usize, place: usize, row: &mut [u8]) {
    match (streams, place) {
        (1, _) => row.copy_from_slice(source),
        (2, 0) => {
            for (to, from) in row.chunks_exact_mut(BYTES).zip(source.chunks_exact(2 * BYTES)) {
                to.copy_from_slice(&from[..BYTES]);
            }
        }
        (2, _) => {
            for (to, from) in row.chunks_exact_mut(BYTES).zip(source.chunks_exact(2 * BYTES)) {
                to.copy_from_slice(&from[BYTES..]);
            }
        }
        _ => {
            let source = source[place * BYTES..].chunks(streams * BYTES);
            for (to, from) in row.chunks_exact_mut(BYTES).zip(source) {
                to.copy_from_slice(&from[..BYTES]);
            }
        }
    }
}

/// Puts one of `streams` interleaved streams into its places.
fn put<const BYTES: usize>(row: &[u8], streams: usize, place: usize, bytes: &mut [u8]) {
    if streams == 1 {
        bytes.copy_from_slice(row);
        return;
    }
    let places = bytes[place * BYTES..].chunks_mut(streams * BYTES);
    for (to, from) in places.zip(row.chunks_exact(BYTES)) {
        to[..BYTES].copy_from_slice(from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::voltage::VoltageEncoding;

    const COUNTS: Counts = Counts { antennas: 2, channels: 3, polarizations: 2 };
    const ORDERS: [[Axis; 4]; 4] = [
        [Axis::Antenna, Axis::Channel, Axis::Time, Axis::Polarization],
        [Axis::Time, Axis::Channel, Axis::Polarization, Axis::Antenna],
        [Axis::Polarization, Axis::Channel, Axis::Antenna, Axis::Time],
        [Axis::Polarization, Axis::Time, Axis::Antenna, Axis::Channel],
    ];

    /// Where a sample lies, by its axes and nothing else.
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
                        layout.deal(run, run_bytes, &mut block, time as usize);
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
    fn a_tile_is_dealt_at_once() {
        for bytes in [1, 2, 4, 8] {
            for streams in [1, 2, 3] {
                let source: Vec<u8> = (0..streams * bytes * 7).map(|i| i as u8).collect();
                let mut again = vec![0; source.len()];
                for place in 0..streams {
                    let mut row = vec![0; bytes * 7];
                    match bytes {
                        1 => pick::<1>(&source, streams, place, &mut row),
                        2 => pick::<2>(&source, streams, place, &mut row),
                        4 => pick::<4>(&source, streams, place, &mut row),
                        _ => pick::<8>(&source, streams, place, &mut row),
                    }
                    for (time, sample) in row.chunks(bytes).enumerate() {
                        let from = (time * streams + place) * bytes;
                        assert_eq!(sample, &source[from..from + bytes]);
                    }
                    match bytes {
                        1 => put::<1>(&row, streams, place, &mut again),
                        2 => put::<2>(&row, streams, place, &mut again),
                        4 => put::<4>(&row, streams, place, &mut again),
                        _ => put::<8>(&row, streams, place, &mut again),
                    }
                }
                assert_eq!(again, source);
            }
        }
    }
}
