//! Sorting of samples from blocks of a stream into rows, one row of each stream of voltages, by several threads.
//!
//! Samples are collected until there are enough for long writes, and then sorted at once. Each thread fills tiles: rows of
//! some streams over a stretch of time. Within a tile a few rows at a time take their samples from all blocks in order of
//! time, so that the writes of a row follow each other.
//!
//! Invariant: the rows are the same for any number of threads and any division into parts.

use std::ops::Range;

use crate::backend::threads::{Places, Threads, Tile, Tiling};
use crate::io;
use crate::io::voltages::layout::Layout;
use crate::io::voltages::{ArrivingFrames, Rows, Scratch};
use crate::voltage::{VoltageBlock, VoltageEncoding};

/// Bytes that are sorted at once: enough for [`ROW_BYTES`] of each row, within these limits, and at least [`THREAD_BYTES`] for each
/// thread, so that the work outweighs waking it.
const LEAST_BYTES: usize = 2 << 20;
const THREAD_BYTES: usize = 1 << 20;
const MOST_BYTES: usize = 32 << 20;

/// Bytes of a row that are long enough for a write.
const ROW_BYTES: usize = 1 << 10;

/// Most parts that are sorted at once.
const MOST_PARTS: usize = 32;

/// Tiles for each thread: several, so that threads end at about the same time. Least bytes of a tile.
const TILES: usize = 4;
const TILE_BYTES: usize = 32 << 10;

/// Bytes at whose multiples rows are divided: whole cache lines, which two threads should not share, and whole groups of
/// samples that share bytes.
const LINE: usize = 320;

/// Rows that take their samples from all parts before the next ones do.
const LOT_ROWS: usize = 256;

/// Most bytes of two streams that are divided at a time, so that the second row finds them in the cache.
const PAIR_BYTES: usize = 16 << 10;

/// Order of voltages in the blocks of all sources.
#[derive(Debug)]
pub(super) enum Order {
    /// Whole bytes of each sample, or of each group of samples that share bytes; time is then the innermost axis.
    Bytes(Layout),
    /// Packed samples, a frame of each source.
    Frames(ArrivingFrames),
}

/// Samples of a chunk, and their place in a block of voltages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    /// Number of the chunk.
    pub(super) chunk: usize,
    /// First sample in the chunk.
    pub(super) first: usize,
    pub(super) times: usize,
    /// First sample in the block of voltages.
    pub(super) at: usize,
}

/// Chunks of blocks of all sources.
pub(super) trait Chunks: Sync {
    /// Returns the bytes of a chunk, block by block.
    fn bytes(&self, chunk: usize) -> &[u8];

    /// Returns whether a block of a source in a chunk is there.
    fn is_present(&self, chunk: usize, block: usize, source: usize) -> bool;
}

/// Sorter of the samples of an observation.
#[derive(Debug)]
pub(super) struct Sorter {
    order: Order,
    encoding: VoltageEncoding,
    streams: usize,
    /// Runs of the layout, or sources of frames, by the rows that they fill.
    runs: Vec<usize>,
    /// Groups of rows that share no run with others: first row and first of `runs` of each, and the ends of both.
    groups: Vec<[usize; 2]>,
    /// Rows and runs where the shares of the threads begin, and their ends.
    rows: Vec<usize>,
    firsts: Vec<usize>,
    parts: Vec<Part>,
    threads: Threads,
    /// Memory of each thread.
    memory: Vec<Scratch>,
}

impl Sorter {
    /// Makes a sorter; `sources` has the streams of each source.
    pub(super) fn new(
        order: Order,
        encoding: VoltageEncoding,
        sources: &[Vec<Range<usize>>],
    ) -> Self {
        let spans: Vec<Range<usize>> = match &order {
            Order::Bytes(layout) => {
                let inner = layout.streams() / layout.runs();
                let rows = |run: &[usize]| span(run.iter().map(|stream| *stream..stream + 1));
                layout.positions().chunks_exact(inner).map(rows).collect()
            }
            Order::Frames(_) => sources.iter().map(|own| span(own.iter().cloned())).collect(),
        };
        let streams = spans.iter().map(|span| span.end).max().unwrap_or(0);
        let mut runs: Vec<usize> = (0..spans.len()).collect();
        runs.sort_by_key(|run| spans[*run].start);
        let (mut groups, mut end) = (Vec::new(), 0);
        for (index, run) in runs.iter().enumerate() {
            if spans[*run].start >= end {
                groups.push([spans[*run].start, index]);
            }
            end = end.max(spans[*run].end);
        }
        groups.push([streams, runs.len()]);
        let threads = Threads::new(io::most_threads());
        let (rows, firsts, memory) = (Vec::new(), Vec::new(), Vec::new());
        let parts = Vec::with_capacity(MOST_PARTS);
        let mut sorter = Self {
            order,
            encoding,
            streams,
            runs,
            groups,
            rows,
            firsts,
            parts,
            threads: threads.clone(),
            memory,
        };
        sorter.set_threads(threads);
        sorter
    }

    /// Sorts on these threads from now on.
    pub(super) fn set_threads(&mut self, threads: Threads) {
        let groups = self.groups.len() - 1;
        let shares = (TILES * threads.count()).min(groups);
        let starts = (0..=shares).map(|share| self.groups[share * groups / shares.max(1)]);
        (self.rows, self.firsts) = starts.map(|[row, run]| (row, run)).unzip();
        self.memory = vec![Scratch::default(); threads.count()];
        self.threads = threads;
    }

    /// Adds samples, in order of time.
    pub(super) fn add(&mut self, part: Part) {
        self.parts.push(part);
    }

    /// Forgets the samples that were added.
    pub(super) fn clear(&mut self) {
        self.parts.clear();
    }

    /// Returns whether the samples added should be sorted before more are.
    pub(super) fn is_due(&self) -> bool {
        let row = self.encoding.bytes(self.parts.iter().map(|part| part.times).sum());
        let bytes = self.streams * row;
        let least = (THREAD_BYTES * self.threads.count()).clamp(LEAST_BYTES, MOST_BYTES);
        let is_long = row >= ROW_BYTES && bytes >= least;
        is_long || bytes >= MOST_BYTES || self.parts.len() >= MOST_PARTS
    }

    /// Writes the samples added to the rows of a block, and forgets them; `places` has those of the streams' rows.
    pub(super) fn sort(
        &mut self,
        chunks: &impl Chunks,
        block: &mut VoltageBlock<'_>,
        places: Places,
    ) {
        let Self { encoding, streams, threads, memory, .. } = self;
        let (order, runs, firsts, parts) = (&self.order, &self.runs, &self.firsts, &self.parts);
        let (Some(first), Some(last)) = (parts.first(), parts.last()) else { return };
        let (encoding, stride) = (*encoding, block.stride());
        let (bytes, own) = block.memory_mut();
        let byte = |time: usize| own.start + encoding.bytes(time);
        let columns = byte(first.at)..byte(last.at + last.times);
        let all = *streams * columns.len();
        let most = if threads.count() > 1 { TILES * threads.count() } else { 1 };
        let tiles = (all / TILE_BYTES).clamp(1, most);
        let whole = [0, *streams];
        let rows = if tiles > 1 { self.rows.as_slice() } else { &whole };
        let across = tiles.div_ceil(rows.len() - 1);
        let step = match across {
            1 => columns.end.max(1),
            across => columns.len().div_ceil(across).next_multiple_of(LINE),
        };
        let tiling = Tiling { stride, rows, places, columns, step };
        let all_runs = runs.len();
        let work = |scratch: &mut Scratch, share: usize, tile: Tile<'_>| {
            let runs = if tiles > 1 { &runs[firsts[share]..firsts[share + 1]] } else { &runs[..] };
            let time = |byte: usize| (byte - own.start) * 8 / encoding.sample_bits();
            let times = time(tile.columns().start)..time(tile.columns().end);
            let parts = parts.iter().filter_map(|part| part.within(&times));
            match order {
                Order::Bytes(layout) => {
                    let group = encoding.group_samples();
                    let parts = parts.map(|part| part.in_groups(group));
                    sort_bytes(layout, runs, chunks, parts, &mut Own(tile));
                }
                Order::Frames(frames) => {
                    let rows = &mut Own(tile);
                    sort_frames(frames, all_runs, runs, chunks, parts, rows, scratch);
                }
            }
        };
        threads.for_each_tile(memory, bytes, &tiling, work);
        self.parts.clear();
    }
}

/// Returns the smallest range that holds all of these.
fn span(ranges: impl Iterator<Item = Range<usize>> + Clone) -> Range<usize> {
    let start = ranges.clone().map(|range| range.start).min();
    start.unwrap_or(0)..ranges.map(|range| range.end).max().unwrap_or(0)
}

impl Part {
    /// Returns the samples within `times` of the block of voltages, and their place from the start of `times` on.
    fn within(&self, times: &Range<usize>) -> Option<Self> {
        let (start, end) = (self.at.max(times.start), (self.at + self.times).min(times.end));
        (start < end).then(|| Self {
            first: self.first + start - self.at,
            times: end - start,
            at: start - times.start,
            ..*self
        })
    }

    /// Returns the place in groups of `group` samples.
    fn in_groups(self, group: usize) -> Self {
        let Self { chunk, first, times, at } = self;
        Self { chunk, first: first / group, times: times / group, at: at / group }
    }
}

/// Rows of a tile.
struct Own<'a>(Tile<'a>);

impl Rows for Own<'_> {
    #[inline]
    fn row(&mut self, stream: usize) -> &mut [u8] {
        self.0.row(stream)
    }
}

/// Copies the samples of some runs of a layout.
fn sort_bytes(
    layout: &Layout,
    runs: &[usize],
    chunks: &impl Chunks,
    parts: impl Iterator<Item = Part> + Clone,
    rows: &mut Own<'_>,
) {
    let inner = layout.streams() / layout.runs();
    let step = layout.run_bytes(layout.unit_times()) as usize;
    let most = if inner == 2 { PAIR_BYTES / layout.run_bytes(1) as usize } else { usize::MAX };
    for runs in runs.chunks((LOT_ROWS / inner).max(1)) {
        for part in parts.clone() {
            let bytes = chunks.bytes(part.chunk);
            let mut done = 0;
            while done < part.times {
                let from = (part.first + done) as u64;
                let left = layout.left_in_unit(from).min((part.times - done) as u64) as usize;
                let times = left.min(most);
                let (first, length) = (layout.offset(0, from), layout.run_bytes(times as u64));
                for run in runs {
                    let place =
                        first as usize + run * step..first as usize + run * step + length as usize;
                    layout.scatter(*run, &bytes[place], rows, part.at + done);
                }
                done += times;
            }
        }
    }
}

/// Unpacks the samples of some of `all` sources of frames.
fn sort_frames(
    frames: &ArrivingFrames,
    all: usize,
    sources: &[usize],
    chunks: &impl Chunks,
    parts: impl Iterator<Item = Part> + Clone,
    rows: &mut Own<'_>,
    scratch: &mut Scratch,
) {
    let (bytes, each) = (frames.payload_bytes(), frames.times());
    for source in sources {
        for part in parts.clone() {
            let mut done = 0;
            while done < part.times {
                let (block, start) = ((part.first + done) / each, (part.first + done) % each);
                let times = (each - start).min(part.times - done);
                let payload = &chunks.bytes(part.chunk)[(block * all + source) * bytes..][..bytes];
                let payload = chunks.is_present(part.chunk, block, *source).then_some(payload);
                let (span, at) = (start..start + times, part.at + done);
                frames.unpack(*source, payload, span, rows, at, scratch);
                done += times;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::io::voltages::layout::{Axis, Counts};

    const ENCODINGS: [VoltageEncoding; 6] = [
        VoltageEncoding::Real10,
        VoltageEncoding::Complex4,
        VoltageEncoding::Complex8,
        VoltageEncoding::Complex16,
        VoltageEncoding::ComplexF32,
        VoltageEncoding::Real16,
    ];

    /// Chunks whose bytes are numbers.
    struct Made(Vec<Vec<u8>>);

    impl Chunks for Made {
        fn bytes(&self, chunk: usize) -> &[u8] {
            &self.0[chunk]
        }

        fn is_present(&self, _: usize, _: usize, _: usize) -> bool {
            true
        }
    }

    #[derive(Clone, Debug)]
    struct Case {
        order: [Axis; 4],
        counts: [usize; 3],
        /// Groups of samples per block, blocks per chunk, chunks.
        sizes: [usize; 3],
        encoding: VoltageEncoding,
        /// Divides the samples into parts and reads.
        seed: u64,
        /// Groups of samples of a row before and after the block.
        around: [usize; 2],
    }

    impl Case {
        fn block_times(&self) -> usize {
            self.sizes[0]
        }

        fn times(&self) -> usize {
            self.sizes.iter().product()
        }

        fn group_bytes(&self) -> usize {
            self.encoding.bytes(self.encoding.group_samples())
        }

        fn streams(&self) -> usize {
            self.counts.iter().product()
        }

        /// Returns the place of a sample in all chunks, from the axes alone.
        fn place(&self, stream: usize, time: usize) -> usize {
            let ([antennas, channels, polarizations], unit) = (self.counts, self.block_times());
            let mut place = time / unit;
            for axis in self.order {
                let (count, index) = match axis {
                    Axis::Antenna => (antennas, stream / polarizations / channels),
                    Axis::Channel => (channels, stream / polarizations % channels),
                    Axis::Polarization => (polarizations, stream % polarizations),
                    Axis::Time => (unit, time % unit),
                };
                place = place * count + index;
            }
            place
        }

        /// Returns the samples of all chunks, and the chunks.
        fn chunks(&self) -> (Vec<u8>, Made) {
            let samples: Vec<u8> = (0..self.times() * self.streams() * self.group_bytes())
                .map(|i| (i.wrapping_mul(0x9e37_79b9) >> 13) as u8)
                .collect();
            let chunk = samples.len() / self.sizes[2];
            let chunks = samples.chunks_exact(chunk).map(<[u8]>::to_vec).collect();
            (samples, Made(chunks))
        }
    }

    fn cases() -> impl Strategy<Value = Case> {
        use Axis::{Antenna, Channel, Polarization, Time};
        let order = Just([Antenna, Channel, Polarization, Time]).prop_shuffle();
        let counts = [1_usize..9, 1_usize..40, 1_usize..3];
        let sizes = [1_usize..80, 1_usize..6, 1_usize..5];
        let around = [0_usize..70, 0_usize..70];
        let parts = (order, counts, sizes, 0..ENCODINGS.len(), any::<u64>(), around);
        parts.prop_map(|(mut order, counts, sizes, encoding, seed, around)| {
            let encoding = ENCODINGS[encoding];
            if encoding.group_samples() > 1 {
                // Time is the innermost axis of samples that share bytes.
                order.sort_by_key(|axis| *axis == Time);
            }
            Case { order, counts, sizes, encoding, seed, around }
        })
    }

    /// Returns the rows of a case after reads of random lengths, each of parts of random lengths.
    fn sorted(case: &Case, made: &Made, threads: usize) -> Vec<u8> {
        let (group, bytes) = (case.encoding.group_samples(), case.group_bytes());
        let [antennas, channels, polarizations] = case.counts;
        let counts = Counts { antennas, channels, polarizations };
        let layout = Layout::new(case.order, counts, case.block_times() as u64, bytes);
        let order = Order::Bytes(layout);
        let mut sorter = Sorter::new(order, case.encoding, &[]);
        sorter.set_threads(Threads::new(threads));
        let (times, [before, after]) = (case.times(), case.around);
        let stride = (before + times + after) * bytes;
        let mut memory = vec![7; case.streams() * stride];
        let mut random = case.seed;
        let mut below = |most: usize| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            1 + (random >> 33) as usize % most
        };
        let (mut done, chunk_times) = (0, case.sizes[0] * case.sizes[1]);
        while done < times {
            let read = if below(3) == 1 { times } else { below(times) }.min(times - done);
            let span = (before + done) * group..(before + done + read) * group;
            let (encoding, streams) = (case.encoding, case.streams());
            let mut block =
                VoltageBlock::within(&mut memory, encoding, streams, stride, span).unwrap();
            let mut at = 0;
            while at < read {
                let first = (done + at) % chunk_times;
                let most = (chunk_times - first).min(read - at);
                let times = if below(4) == 1 { below(most) } else { most };
                let [first, samples, place] = [first, times, at].map(|groups| groups * group);
                let chunk = (done + at) / chunk_times;
                sorter.add(Part { chunk, first, times: samples, at: place });
                at += times;
                if below(6) == 1 {
                    sorter.sort(made, &mut block, Places::ALL);
                }
            }
            sorter.sort(made, &mut block, Places::ALL);
            done += read;
        }
        memory
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 120, failure_persistence: None, ..ProptestConfig::default() })]

        /// Each sample lies in its row at its time, for any order of axes, division and number of threads; others keep their
        /// values.
        #[test]
        fn samples_lie_in_their_rows(case in cases()) {
            let bytes = case.group_bytes();
            let (samples, made) = case.chunks();
            let [before, after] = case.around;
            let mut expected = Vec::new();
            for stream in 0..case.streams() {
                expected.resize(expected.len() + before * bytes, 7);
                for time in 0..case.times() {
                    expected.extend_from_slice(&samples[case.place(stream, time) * bytes..][..bytes]);
                }
                expected.resize(expected.len() + after * bytes, 7);
            }
            for threads in [1, 2, 5] {
                prop_assert!(sorted(&case, &made, threads) == expected, "{} threads", threads);
            }
        }
    }

    #[test]
    fn rows_that_share_a_run_stay_together() {
        use Axis::{Antenna, Channel, Polarization, Time};
        let counts = Counts { antennas: 3, channels: 4, polarizations: 2 };
        let groups = |order| {
            let order = Order::Bytes(Layout::new(order, counts, 5, 2));
            let sorter = Sorter::new(order, VoltageEncoding::Complex8, &[]);
            sorter.groups.iter().map(|[row, _]| *row).collect::<Vec<_>>()
        };
        let pairs: Vec<_> = (0..=24).step_by(2).collect();
        assert_eq!(groups([Antenna, Channel, Time, Polarization]), pairs);
        assert_eq!(groups([Polarization, Channel, Antenna, Time]), (0..=24).collect::<Vec<_>>());
        assert_eq!(groups([Antenna, Time, Channel, Polarization]), [0, 8, 16, 24]);
        assert_eq!(groups([Polarization, Time, Antenna, Channel]), [0, 24]);
        assert_eq!(groups([Time, Antenna, Channel, Polarization]), [0, 24]);
    }
}
