//! Search at the start and the end of a recording for bursts that are partly outside it.
//!
//! Rows before the first and after the last count as zeros, and each dedispersed sample is compared with the noise of
//! the channels that contribute to it.
//!
//! Invariant: what is found depends on the rows at the edge alone, never on gulps, threads or backend.

use std::ops::Range;
use std::panic::resume_unwind;
use std::thread::{self, ScopedJoinHandle};

use super::{FLUSH_TIMES, PlaneBuffer, RangeSearch};
use crate::backend::Backend;
use crate::backend::cuda::{Buffer, Device, Stream};
use crate::backend::threads::Threads;
use crate::dedisperse::{self, Dedisperser, Output};
use crate::error::Result;
use crate::math::median;
use crate::sample::{Samples, unpack_f32};
use crate::single_pulse::{
    self, Clusterer, Coverage, Expected, Input, PartialDetector, PartialEvent, Span,
};
use crate::trace::{self, Work};
use crate::view::{Plane, PlaneMut, check_memory};

/// Samples with all channels from which a trial's noise is estimated.
const NOISE_TIMES: usize = 1024;

/// Additional S/N that a cut burst must have above the threshold. Edges add samples in which noise can reach the
/// threshold, in a short recording as many as it has itself, and a sum of fewer channels is more skewed.
const MARGIN: f64 = 1.0;

/// Groups of rows; a channel's level is the median over them, so interference in fewer than half changes it little.
const GROUPS: usize = 16;

/// Limit in bytes on the rows for levels.
const LEVEL_BYTES: usize = 64 << 20;

/// Bytes of zeros dedispersed per step.
const ZERO_BYTES: usize = 4 << 20;

/// Time before any sample of an edge; effectively minus infinity.
const NEVER: i64 = i64::MIN / 4;
const ALWAYS: i64 = i64::MAX / 4;

/// Rows at a recording's start, at its end, or all rows of a short one.
pub(in super::super) struct Edge<'a> {
    rows: Samples<'a>,
    /// Number of the first row.
    first: u64,
    is_start: bool,
    is_end: bool,
    /// Smallest fraction of the channels that a sample must have.
    least_band: f64,
    levels: Levels,
}

/// Rows at an edge that a search needs.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct EdgeRows {
    /// Rows searched.
    pub(in super::super) searched: usize,
    /// Rows for the channels' levels.
    pub(in super::super) level: usize,
}

/// Mean and variance of each channel.
struct Levels {
    means: Vec<f64>,
    variances: Vec<f64>,
    /// Median over groups of the channels' sum, minus the sum of the channels' medians: with skewed data the medians
    /// are too low.
    excess: f64,
}

impl<'a> Edge<'a> {
    /// Builds the edge at a recording's start, or of all of it if it `ends` with these rows. Levels come from the
    /// first `level_rows` rows.
    pub(in super::super) fn start(
        rows: Samples<'a>,
        ends: bool,
        masked: &[bool],
        level_rows: usize,
        least_band: f64,
        backend: &Backend,
    ) -> Self {
        let near = rows.slice(0, level_rows.min(rows.times()));
        let levels = Levels::new(near, masked, backend);
        Self { rows, first: 0, is_start: true, is_end: ends, least_band, levels }
    }

    /// Builds the edge at the end of a recording of `times` rows. Levels come from the last `level_rows` rows.
    pub(in super::super) fn end(
        rows: Samples<'a>,
        times: u64,
        masked: &[bool],
        level_rows: usize,
        least_band: f64,
        backend: &Backend,
    ) -> Self {
        let count = level_rows.min(rows.times());
        let levels = Levels::new(rows.slice(rows.times() - count, count), masked, backend);
        let first = times - rows.times() as u64;
        Self { rows, first, is_start: false, is_end: true, least_band, levels }
    }
}

impl Levels {
    /// Computes the medians over groups of rows of each channel's mean and variance. The excess excludes masked
    /// channels.
    fn new(rows: Samples<'_>, masked: &[bool], backend: &Backend) -> Self {
        let channels = rows.channels();
        let used = |channel: &usize| !masked[*channel];
        let count = GROUPS.min(rows.times()).max(1);
        let mut groups = vec![Group::default(); count];
        backend.host().threads().for_each(&mut groups, 1, |index, group| {
            let own = index * rows.times() / count..(index + 1) * rows.times() / count;
            group[0] = Group::new(rows.slice(own.start, own.len()));
        });
        let sum_used =
            |means: &[f64]| (0..channels).filter(used).map(|channel| means[channel]).sum::<f64>();
        let mut totals: Vec<f64> = groups.iter().map(|group| sum_used(&group.means)).collect();
        let middle = |values: &dyn Fn(&Group) -> f64| {
            median(&mut groups.iter().map(values).collect::<Vec<_>>()).unwrap_or(0.0)
        };
        let means: Vec<f64> =
            (0..channels).map(|channel| middle(&|group| group.means[channel])).collect();
        let variances =
            (0..channels).map(|channel| middle(&|group| group.variances[channel])).collect();
        let sum = sum_used(&means);
        let excess = median(&mut totals).unwrap_or(0.0) - sum;
        Self { means, variances, excess }
    }
}

/// Mean and variance of each channel in one group of rows.
#[derive(Clone, Default)]
struct Group {
    means: Vec<f64>,
    variances: Vec<f64>,
}

impl Group {
    fn new(rows: Samples<'_>) -> Self {
        let channels = rows.channels();
        let mut row = vec![0f32; channels];
        let (mut means, mut variances) = (vec![0.0; channels], vec![0.0; channels]);
        for time in 0..rows.times() {
            unpack_f32(rows.row(time), rows.encoding(), &mut row);
            for ((x, sum), squares) in row.iter().zip(&mut means).zip(&mut variances) {
                *sum += f64::from(*x);
                *squares += f64::from(*x) * f64::from(*x);
            }
        }
        let count = rows.times().max(1) as f64;
        for (mean, variance) in means.iter_mut().zip(&mut variances) {
            *mean /= count;
            *variance = (*variance / count - *mean * *mean).max(0.0);
        }
        Self { means, variances }
    }
}

/// Channels available to the samples of a range's trials at an edge.
struct EdgeCoverage<'a> {
    plan: &'a dedisperse::Plan,
    /// Channels summed, by ascending delay.
    order: Vec<usize>,
    /// Cumulative sums over the first channels of this order: of means, and of variances relative to the total.
    means: Vec<f64>,
    shares: Vec<f64>,
    excess: f64,
    /// Contribution of an absent channel.
    absent: f64,
    is_start: bool,
    /// Length of the recording in samples, if it ends here.
    end: Option<i64>,
    /// Smallest number of channels.
    least: usize,
}

impl<'a> EdgeCoverage<'a> {
    /// Builds the coverage; none if no channel varies.
    fn new(plan: &'a dedisperse::Plan, edge: &Edge<'_>, end: u64) -> Option<Self> {
        let centres = plan.options().band.centres_hz();
        let mut order = plan.channels_used().to_vec();
        order.sort_by(|a, b| centres[*b].total_cmp(&centres[*a]));
        let Levels { means, variances, excess } = &edge.levels;
        let bin = plan.downsample() as f64;
        let all: f64 = order.iter().map(|channel| variances[*channel]).sum();
        if all.is_nan() || all <= 0.0 {
            return None;
        }
        let sums = |value: &dyn Fn(usize) -> f64| {
            let mut sums = vec![0.0];
            for channel in &order {
                sums.push(sums[sums.len() - 1] + value(*channel));
            }
            sums
        };
        let means = sums(&|channel| bin * means[channel]);
        let shares = sums(&|channel| variances[channel] / all);
        let (low, high) = plan.range();
        let absent =
            if plan.output_is_integer() { f64::from(0.clamp(low, high)) * bin } else { 0.0 };
        let least = ((edge.least_band * order.len() as f64).ceil() as usize).clamp(1, order.len());
        let end = edge.is_end.then_some(end as i64);
        let (excess, is_start) = (bin * excess, edge.is_start);
        Some(Self { plan, means, shares, excess, absent, is_start, end, least, order })
    }

    /// Returns the delays of the channels in a trial, ascending.
    fn shifts(&self, dm: usize) -> Vec<i64> {
        self.order.iter().map(|channel| self.plan.shift(dm, *channel) as i64).collect()
    }

    /// Returns the expected noise of a sample to which these of `all` channels are available.
    fn expected(&self, present: Range<usize>, all: usize) -> Expected {
        let Range { start, end } = present;
        let absent = (all - (end - start)) as f64 * self.absent;
        let share = self.shares[end] - self.shares[start];
        let sum = self.means[end] - self.means[start] + share * self.excess + absent;
        Expected { sum, share }
    }

    /// Returns the channels available to a sample, given the channels' delays.
    fn present(&self, shifts: &[i64], time: i64) -> Range<usize> {
        let first =
            if self.is_start { shifts.partition_point(|shift| time + shift < 0) } else { 0 };
        let end =
            self.end.map_or(shifts.len(), |end| shifts.partition_point(|shift| time + shift < end));
        first..end.max(first)
    }
}

impl Coverage for EdgeCoverage<'_> {
    fn span(&self, dm: usize) -> Span {
        let longest = self.plan.trial_shift(dm) as i64;
        let (slowest, fastest) = (self.order.len() - self.least, self.least - 1);
        let delay = |index: usize| self.plan.shift(dm, self.order[index]) as i64;
        let start = if self.is_start { (-delay(slowest), 0) } else { (NEVER, NEVER) };
        let end = self.end.map_or((ALWAYS, ALWAYS), |end| (end - delay(fastest), end - longest));
        Span { searched: start.0..end.0, whole: start.1..end.1 }
    }

    fn expect(&self, dm: usize, first: i64, expected: &mut [Expected]) {
        let shifts = self.shifts(dm);
        // Later samples gain the channels of the shortest delays at a start, and lose those of the longest at an end.
        let mut start = if self.is_start { shifts.len() } else { 0 };
        let (mut end, limit) = (shifts.len(), self.end.unwrap_or(i64::MAX));
        let mut value = None;
        for (time, expected) in (first..).zip(expected) {
            let before = (start, end);
            while start > 0 && time + shifts[start - 1] >= 0 {
                start -= 1;
            }
            while end > 0 && time + shifts[end - 1] >= limit {
                end -= 1;
            }
            *expected = match value.filter(|_| before == (start, end)) {
                Some(value) => value,
                None => self.expected(start..end.max(start), shifts.len()),
            };
            value = Some(*expected);
        }
    }

    fn band(&self, dm: usize, time: i64) -> f64 {
        let shifts = self.shifts(dm);
        self.present(&shifts, time).len() as f64 / shifts.len() as f64
    }
}

impl RangeSearch {
    /// Returns the rows for the search of an edge, over all ranges; none if no trial has a delay.
    pub(in super::super) fn edge_rows(ranges: &[Self], row_bytes: usize) -> Option<EdgeRows> {
        let delayed = ranges.iter().filter(|range| range.place.longest > 0);
        let rows = delayed.map(|range| {
            let (plan, detector) = (range.dedisperser.plan(), range.detector.plan());
            let level = detector.window_times() * plan.downsample();
            let beyond = NOISE_TIMES.max(detector.max_width()) + 1;
            EdgeRows { searched: (range.place.longest + beyond) * plan.downsample(), level }
        });
        let rows = rows.reduce(|a, b| EdgeRows {
            searched: a.searched.max(b.searched),
            level: a.level.max(b.level),
        })?;
        let level = rows.level.min(LEVEL_BYTES / row_bytes.max(1)).max(1);
        Some(EdgeRows { searched: rows.searched.max(level), level })
    }

    /// Returns the bytes of the plane for the search of an edge.
    pub(in super::super) fn edge_plane_bytes(&self) -> usize {
        4 * (self.dedisperser.plan().dms().len() + 1) * self.edge_stride()
    }

    /// Returns the samples per row of that plane: a block, plus the boxcars that begin at the end of the previous
    /// block.
    fn edge_stride(&self) -> usize {
        let longest = self.place.longest;
        self.detector.plan().max_width() + longest.clamp(1, FLUSH_TIMES).max(NOISE_TIMES)
    }

    /// Searches an edge in all ranges; the dedispersers must hold no other rows. On a GPU the ranges are searched side by
    /// side, because each waits for the device and for the host's search in turn.
    pub(in super::super) fn search_edges(
        ranges: &mut [Self],
        edge: &Edge<'_>,
        backend: &Backend,
        clusterer: &mut Clusterer,
    ) -> Result<()> {
        let found: Vec<Result<Vec<PartialEvent>>> = if backend.is_gpu() {
            thread::scope(|scope| {
                let ranges = ranges.iter_mut();
                let running: Vec<_> = ranges
                    .map(|range| scope.spawn(move || range.search_edge(edge, backend)))
                    .collect();
                let running = running.into_iter().map(ScopedJoinHandle::join);
                running.map(|one| one.unwrap_or_else(|panic| resume_unwind(panic))).collect()
            })
        } else {
            ranges.iter_mut().map(|range| range.search_edge(edge, backend)).collect()
        };
        for (range, events) in ranges.iter().zip(found) {
            let (group, first) = (range.place.group, range.place.first_dm as u32);
            let mut events = events?;
            events.iter_mut().for_each(|event| event.dm += first);
            clusterer.push_partial(group, &events)?;
        }
        Ok(())
    }

    fn search_edge(&mut self, edge: &Edge<'_>, backend: &Backend) -> Result<Vec<PartialEvent>> {
        let plan = self.dedisperser.plan().clone();
        // The samples searched, and those of the noise, are the same for all trials of the group.
        let (bin, longest) = (plan.downsample() as u64, self.place.longest);
        let own = plan.max_shift();
        // Whole samples, counted from the recording's first row.
        let first = edge.first.div_ceil(bin);
        let end = (edge.first + edge.rows.times() as u64) / bin;
        if longest == 0 || end <= first {
            return Ok(Vec::new());
        }
        let Some(cover) = EdgeCoverage::new(&plan, edge, end) else { return Ok(Vec::new()) };
        let samples = |range: Range<u64>| {
            let from = (range.start * bin - edge.first) as usize;
            edge.rows.slice(from, ((range.end - range.start) * bin) as usize)
        };
        let reach = |beyond: usize| (longest + beyond) as u64;
        let near = |beyond: usize| {
            if edge.is_start && edge.is_end {
                first..end
            } else if edge.is_start {
                first..end.min(first + reach(beyond))
            } else {
                first.max(end.saturating_sub(reach(beyond)))..end
            }
        };
        let mut pass = Pass::new(self, backend);
        let options = self.detector.plan().options().clone();
        let least = options.snr + MARGIN;
        let options = single_pulse::Options { snr: least, ..options };
        let mut partial = PartialDetector::new(single_pulse::Plan::new(options)?, backend);
        // For a short recording, the noise comes from its start.
        let noise = near(NOISE_TIMES);
        let noise = noise.start..noise.end.min(noise.start + reach(NOISE_TIMES));
        let count = (noise.end - noise.start) as usize;
        self.dedisperser.reset();
        let needed = noise.start..noise.end.min(noise.start + (own + NOISE_TIMES) as u64);
        pass.rows(&mut self.dedisperser, samples(needed), &mut |_, _| Ok(()))?;
        pass.zeros(
            &mut self.dedisperser,
            NOISE_TIMES - pass.filled.min(NOISE_TIMES),
            &mut |_, _| Ok(()),
        )?;
        let valid = |dm: usize| count.saturating_sub(plan.trial_shift(dm)).min(NOISE_TIMES);
        let span = trace::span(Work::Compute, "noise of cut bursts");
        partial.learn(pass.view(pass.filled)?, valid)?;
        drop(span);
        self.dedisperser.reset();
        pass.filled = 0;
        let searched = near(self.detector.plan().max_width());
        pass.first = searched.start as i64 - if edge.is_start { longest as i64 } else { 0 };
        let mut events = Vec::new();
        let mut search = |input: Input<'_>, starts: Range<i64>| {
            let _span = trace::span(Work::Compute, "search of cut bursts");
            partial.run(input, starts, &cover, &mut events)
        };
        if edge.is_start {
            pass.zeros(&mut self.dedisperser, longest, &mut search)?;
        }
        if edge.is_end {
            pass.rows(&mut self.dedisperser, samples(searched), &mut search)?;
            pass.zeros(&mut self.dedisperser, own, &mut search)?;
        } else {
            let needed = searched.end.saturating_sub((longest - own) as u64).max(searched.start);
            pass.rows(&mut self.dedisperser, samples(searched.start..needed), &mut search)?;
        }
        pass.end(&mut search)?;
        self.dedisperser.reset();
        partial.flush(&cover, &mut events);
        let window = noise.start..noise.start + NOISE_TIMES as u64;
        self.filled.weigh_partial(&plan, window, least, &mut events);
        Ok(events)
    }
}

/// Rows passed through a dedisperser to a search that is called when the plane is full.
struct Pass {
    threads: Threads,
    plane: PlaneBuffer,
    dms: usize,
    stride: usize,
    /// Samples that a boxcar extends beyond its first sample.
    reach: usize,
    bin: usize,
    row_bytes: usize,
    /// Samples in the plane, and the time of the first of them.
    filled: usize,
    first: i64,
}

/// Search callback: receives samples and the range of boxcar starts to search, of which the first is the first sample.
type Search<'a> = &'a mut dyn FnMut(Input<'_>, Range<i64>) -> Result<()>;

impl Pass {
    fn new(range: &RangeSearch, backend: &Backend) -> Self {
        let plan = range.dedisperser.plan();
        let (dms, stride) = (plan.dms().len(), range.edge_stride());
        // One additional row, so that a view may begin within the first row.
        let words = (dms + 1) * stride;
        Self {
            threads: backend.host().threads(),
            plane: match range.plane {
                PlaneBuffer::I32(_) => PlaneBuffer::I32(vec![0; words]),
                PlaneBuffer::F32(_) => PlaneBuffer::F32(vec![0.0; words]),
            },
            dms,
            stride,
            reach: range.detector.plan().max_width(),
            bin: plan.downsample(),
            row_bytes: plan.channels() * plan.encoding().bits() / 8,
            filled: 0,
            first: 0,
        }
    }

    /// Dedisperses zeros for `samples` samples.
    fn zeros(
        &mut self,
        dedisperser: &mut Dedisperser,
        samples: usize,
        search: Search<'_>,
    ) -> Result<()> {
        let mut left = samples * self.bin;
        let most = (ZERO_BYTES / self.row_bytes.max(1)).clamp(1, left.max(1));
        let zeros = vec![0; most * self.row_bytes];
        let plan = dedisperser.plan();
        let (encoding, channels) = (plan.encoding(), plan.channels());
        let zeros = Samples::new(&zeros, encoding, most, channels)?;
        while left > 0 {
            let rows = most.min(left);
            self.rows(dedisperser, zeros.slice(0, rows), search)?;
            left -= rows;
        }
        Ok(())
    }

    /// Dedisperses rows.
    fn rows(
        &mut self,
        dedisperser: &mut Dedisperser,
        rows: Samples<'_>,
        search: Search<'_>,
    ) -> Result<()> {
        let mut rest = rows;
        while rest.times() > 0 {
            if self.filled == self.stride {
                self.search(search)?;
            }
            // Limits the output to the free space in the plane.
            let most = ((self.stride - self.filled) * self.bin).min(rest.times());
            let progress = dedisperser.run(rest.slice(0, most), self.output()?)?;
            self.filled += progress.produced;
            rest = rest.slice(progress.consumed, rest.times() - progress.consumed);
        }
        Ok(())
    }

    /// Searches the remaining samples.
    fn end(&mut self, search: Search<'_>) -> Result<()> {
        let starts = self.first..self.first + self.filled as i64;
        search(self.view(self.filled)?, starts)
    }

    /// Searches the boxcars that lie entirely in the plane and retains the samples of the others.
    fn search(&mut self, search: Search<'_>) -> Result<()> {
        let whole = self.filled - self.reach;
        let starts = self.first..self.first + whole as i64;
        search(self.view(self.filled)?, starts)?;
        let (words, kept) = (self.dms * self.stride, whole..self.filled);
        match &mut self.plane {
            PlaneBuffer::I32(plane) => {
                self.threads.for_each(&mut plane[..words], self.stride, |_, row: &mut [i32]| {
                    row.copy_within(kept.clone(), 0)
                })
            }
            PlaneBuffer::F32(plane) => {
                self.threads.for_each(&mut plane[..words], self.stride, |_, row: &mut [f32]| {
                    row.copy_within(kept.clone(), 0)
                })
            }
        }
        self.filled = self.reach;
        self.first += whole as i64;
        Ok(())
    }

    /// Returns the output position of the next samples.
    fn output(&mut self) -> Result<Output<'_>> {
        let (dms, stride) = (self.dms, self.stride);
        let words = self.filled..self.filled + dms * stride;
        Ok(match &mut self.plane {
            PlaneBuffer::I32(plane) => Output::I32(PlaneMut::new(&mut plane[words], dms, stride)?),
            PlaneBuffer::F32(plane) => Output::F32(PlaneMut::new(&mut plane[words], dms, stride)?),
        })
    }

    fn view(&self, times: usize) -> Result<Input<'_>> {
        let (dms, stride) = (self.dms, self.stride);
        Ok(match &self.plane {
            PlaneBuffer::I32(plane) => {
                Input::I32(Plane::new(&plane[..dms * stride], dms, stride, times)?)
            }
            PlaneBuffer::F32(plane) => {
                Input::F32(Plane::new(&plane[..dms * stride], dms, stride, times)?)
            }
        })
    }
}

/// Ring buffer of the latest rows.
#[derive(Debug)]
pub(in super::super) struct Tail {
    /// At most `most` bytes; fewer until the ring is full.
    bytes: Vec<u8>,
    most: usize,
    /// Next write position once the ring is full.
    at: usize,
}

impl Tail {
    /// Allocates a ring of `most` bytes.
    ///
    /// # Errors
    /// [`crate::Error::Unavailable`] when memory does not suffice.
    pub(in super::super) fn new(most: usize) -> Result<Self> {
        check_memory("the last rows", Some(most))?;
        Ok(Self { bytes: Vec::with_capacity(most), most, at: 0 })
    }

    /// Returns the capacity in bytes.
    pub(in super::super) fn held_bytes(&self) -> usize {
        self.most
    }

    /// Appends rows.
    pub(in super::super) fn push(&mut self, rows: &[u8]) {
        let rows = &rows[rows.len().saturating_sub(self.most)..];
        let (new, rest) = rows.split_at((self.most - self.bytes.len()).min(rows.len()));
        self.bytes.extend_from_slice(new);
        let (later, first) = rest.split_at(rest.len().min(self.most - self.at));
        self.bytes[self.at..][..later.len()].copy_from_slice(later);
        self.bytes[..first.len()].copy_from_slice(first);
        if !rest.is_empty() {
            self.at = (self.at + rest.len()) % self.most;
        }
    }

    /// Returns all rows, the earliest first, and empties the ring.
    pub(in super::super) fn take(&mut self) -> Vec<u8> {
        self.bytes.rotate_left(std::mem::take(&mut self.at));
        std::mem::take(&mut self.bytes)
    }
}

/// Ring buffer of the latest rows on a device.
#[derive(Debug)]
pub(in super::super) struct DeviceTail {
    bytes: Buffer<u8>,
    filled: usize,
    at: usize,
}

impl DeviceTail {
    /// Allocates a ring of `most` bytes.
    pub(in super::super) fn new(device: &Device, most: usize) -> Result<Self> {
        Ok(Self { bytes: device.buffer(most)?, filled: 0, at: 0 })
    }

    /// Enqueues a copy of the first `bytes` bytes of a buffer, the next rows.
    pub(in super::super) fn push(
        &mut self,
        rows: &Buffer<u8>,
        bytes: usize,
        stream: &Stream,
    ) -> Result<()> {
        let most = self.bytes.len();
        let mut from = bytes.saturating_sub(most);
        while from < bytes {
            let count = (bytes - from).min(most - self.at);
            stream.copy(rows, from..from + count, &mut self.bytes, self.at)?;
            (from, self.at) = (from + count, (self.at + count) % most);
            self.filled = (self.filled + count).min(most);
        }
        Ok(())
    }

    /// Copies all rows to the host, the earliest first, after the enqueued work has finished.
    pub(in super::super) fn take(&mut self) -> Result<Vec<u8>> {
        let mut rows = vec![0; std::mem::take(&mut self.filled)];
        self.bytes.download(0, &mut rows)?;
        let at = std::mem::take(&mut self.at);
        if rows.len() == self.bytes.len() {
            rows.rotate_left(at);
        }
        Ok(rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_bytes_stay_in_order_whatever_their_pieces() {
        let all: Vec<u8> = (0..200).collect();
        for most in [1, 7, 64, 300] {
            for piece in [1, 3, 7, 50, 200] {
                let mut tail = Tail::new(most).unwrap();
                all.chunks(piece).for_each(|rows| tail.push(rows));
                assert_eq!(tail.take(), all[all.len().saturating_sub(most)..], "{most} {piece}");
            }
        }
        let mut none = Tail::new(0).unwrap();
        none.push(&all);
        assert!(none.take().is_empty());
    }
}
