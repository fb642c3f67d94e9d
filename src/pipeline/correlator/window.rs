//! Window of a recording: a range of samples of all streams, held in memory, and the spectra that flagged samples
//! invalidate.
//!
//! Invariant: a window holds consecutive samples; [`Invalid`] lists those that are missing, infinite or NaN, and
//! replaces the latter.

use std::ops::Range;

use crate::error::{Error, Result};
use crate::io::voltages::{Flag, VoltageHeader, VoltageSource};
use crate::pipeline::voltage::blank;
use crate::voltage::{VoltageBlock, VoltageEncoding, Voltages};

/// Number of samples that fills whole bytes in every encoding.
pub(super) const WHOLE: usize = 4;

/// Division of samples into spectra.
#[derive(Clone, Copy, Debug)]
pub(super) struct Framing {
    /// Samples from one spectrum to the next.
    pub(super) hop: u64,
    /// Samples under a spectrum's window.
    pub(super) span: u64,
}

impl Framing {
    /// Returns the spectra of `times` samples.
    pub(super) fn spectra(self, times: u64) -> u64 {
        times.checked_sub(self.span).map_or(0, |rest| rest / self.hop + 1)
    }
}

/// Samples of every stream of a recording; axes stream, time.
pub(super) struct Window {
    bytes: Vec<u8>,
    pub(super) encoding: VoltageEncoding,
    streams: usize,
    /// Allocated samples per stream.
    capacity: usize,
    /// Place of the first sample held in its row; a multiple of [`WHOLE`].
    start: usize,
    /// First sample held, counted from the recording's start.
    first: u64,
    /// Samples held per stream.
    times: usize,
}

impl Window {
    /// Makes an empty window before the first sample of a recording.
    pub(super) fn new(header: &VoltageHeader) -> Self {
        let (encoding, streams) = (header.encoding, header.streams());
        Self { bytes: Vec::new(), encoding, streams, capacity: 0, start: 0, first: 0, times: 0 }
    }

    /// Returns samples of some streams from the window.
    ///
    /// # Errors
    /// [`Error::Shape`] when the window does not hold them.
    pub(super) fn voltages(
        &self,
        streams: Range<usize>,
        times: Range<u64>,
    ) -> Result<Voltages<'_>> {
        let end = self.end();
        if times.start < self.first || times.end > end || times.start > times.end {
            let (expected, actual) = (self.times, (end.saturating_sub(times.start)) as usize);
            return Err(Error::Shape { what: "samples held", expected, actual });
        }
        let stride = self.stride();
        let bytes = &self.bytes[streams.start * stride..streams.end * stride];
        let held = self.start + self.times;
        let all = Voltages::new(bytes, self.encoding, streams.len(), stride, held)?;
        let skipped = self.start + (times.start - self.first) as usize;
        all.slice(skipped, (times.end - times.start) as usize)
    }

    /// Returns the first sample held.
    pub(super) fn first(&self) -> u64 {
        self.first
    }

    /// Returns the sample after the last one held.
    pub(super) fn end(&self) -> u64 {
        self.first + self.times as u64
    }

    /// Returns whether no samples are held.
    pub(super) fn is_empty(&self) -> bool {
        self.times == 0
    }

    /// Returns the bytes of a row.
    fn stride(&self) -> usize {
        self.encoding.bytes(self.capacity)
    }

    /// Returns the place of the samples in a row, in bytes.
    fn place(&self) -> Range<usize> {
        self.encoding.bytes(self.start)..self.encoding.bytes(self.start + self.times)
    }

    /// Discards samples before `sample`, in whole bytes.
    pub(super) fn drop_before(&mut self, sample: u64) {
        let dropped = sample.saturating_sub(self.first).min(self.times as u64) as usize;
        let dropped = dropped / WHOLE * WHOLE;
        self.times -= dropped;
        self.start = if self.times == 0 { 0 } else { self.start + dropped };
        self.first += dropped as u64;
    }

    /// Moves an empty window on by `passed` samples, a multiple of [`WHOLE`].
    pub(super) fn skip(&mut self, passed: u64) {
        self.first += passed;
    }

    /// Makes space for `more` samples per stream after those held.
    pub(super) fn reserve(&mut self, more: usize) {
        if self.start + self.times + more > self.capacity {
            // Before the first sample, the space is kept that `follow` has left.
            let start = if self.is_empty() { self.start } else { 0 };
            self.arrange(start, start + self.times + more);
        }
    }

    /// Moves the samples held to place `start` of rows of at least `capacity` samples.
    fn arrange(&mut self, start: usize, capacity: usize) {
        let (from, old) = (self.place(), self.stride());
        let to = self.encoding.bytes(start);
        self.start = start;
        if capacity <= self.capacity {
            if !from.is_empty() {
                self.bytes.chunks_exact_mut(old).for_each(|row| row.copy_within(from.clone(), to));
            }
            return;
        }
        self.capacity = capacity.next_multiple_of(WHOLE);
        let mut bytes = vec![0; self.streams * self.stride()];
        if !from.is_empty() {
            let rows = bytes.chunks_exact_mut(self.stride()).zip(self.bytes.chunks_exact(old));
            rows.for_each(|(row, own)| row[to..][..from.len()].copy_from_slice(&own[from.clone()]));
        }
        self.bytes = bytes;
    }

    /// Returns a block of at most `most` samples to fill, directly after those held.
    pub(super) fn next(&mut self, most: usize) -> Result<VoltageBlock<'_>> {
        self.reserve(most);
        let (stride, held) = (self.stride(), self.start + self.times);
        let times = held..held + most;
        VoltageBlock::within(&mut self.bytes, self.encoding, self.streams, stride, times)
    }

    /// Counts `times` samples that a block from [`Window::next`] has received.
    pub(super) fn extend(&mut self, times: usize) {
        self.times += times;
    }

    /// Empties a window for the samples after those of `earlier`, with space before them for those that `earlier` holds
    /// from sample `kept` on.
    pub(super) fn follow(&mut self, earlier: &Self, kept: u64) {
        let space = earlier.end().saturating_sub(kept).min(earlier.times as u64) as usize;
        (self.first, self.times) = (earlier.end(), 0);
        self.start = space.next_multiple_of(WHOLE);
    }

    /// Appends the samples of a window that [`follows`](Window::follow) this one, and empties that window. Copies
    /// the fewer samples if there is space for them.
    pub(super) fn append(&mut self, later: &mut Self) {
        if later.is_empty() {
            return;
        }
        if self.times > later.start {
            self.reserve(later.times);
            let to = self.place().end;
            self.copy_rows(later, to);
            self.times += later.times;
        } else {
            let kept = self.times;
            let to = later.encoding.bytes(later.start - kept);
            later.copy_rows(self, to);
            later.start -= kept;
            later.first -= kept as u64;
            later.times += kept;
            std::mem::swap(self, later);
        }
        later.times = 0;
    }

    /// Copies the samples of another window to byte `to` of the rows.
    fn copy_rows(&mut self, from: &Self, to: usize) {
        let (stride, place) = (self.stride(), from.place());
        if !place.is_empty() {
            let rows =
                self.bytes.chunks_exact_mut(stride).zip(from.bytes.chunks_exact(from.stride()));
            rows.for_each(|(row, own)| {
                row[to..][..place.len()].copy_from_slice(&own[place.clone()]);
            });
        }
    }
}

/// Samples of a recording that are not valid, found as they are read: not finite, or missing in a live stream.
#[derive(Debug)]
pub(super) struct Invalid {
    /// Runs of samples that are not finite; the runs of each stream ascend by start.
    runs: Vec<Flag>,
    /// Index in `runs` of each stream's last run.
    last: Vec<Option<usize>>,
    /// Missing samples of a live stream, by ascending start.
    missing: Vec<Flag>,
    /// Samples under a window; a shorter gap between runs has no valid spectrum, so the runs are joined.
    span: u64,
    /// Number of samples so far that were not finite.
    pub(super) count: u64,
}

impl Invalid {
    pub(super) fn new(streams: usize, span: u64) -> Self {
        Self { runs: Vec::new(), last: vec![None; streams], missing: Vec::new(), span, count: 0 }
    }

    /// Returns the invalid samples from the first sample held on.
    pub(super) fn flags(&self) -> impl Iterator<Item = &Flag> {
        self.runs.iter().chain(&self.missing)
    }

    /// Replaces a block's samples that are not finite by zeros, and takes its missing samples; `first` is the block's first
    /// sample.
    pub(super) fn find(&mut self, block: &mut VoltageBlock, first: u64) {
        self.missing.extend(block.flags_after(first));
        let (encoding, times) = (block.encoding(), block.times());
        if !matches!(encoding, VoltageEncoding::ComplexF32 | VoltageEncoding::RealF32) {
            return;
        }
        let (length, sample) = (encoding.bytes(times), encoding.bytes(1));
        for (stream, row) in block.rows_mut().enumerate() {
            blank(&mut row[..length], sample, |time| self.add(stream, first + time as u64));
        }
    }

    fn add(&mut self, stream: usize, time: u64) {
        self.count += 1;
        if let Some(run) = self.last[stream].map(|index| &mut self.runs[index])
            && time < run.start + run.times + self.span
        {
            run.times = time + 1 - run.start;
            return;
        }
        self.runs.push(Flag { streams: stream..stream + 1, start: time, times: 1 });
        self.last[stream] = Some(self.runs.len() - 1);
    }

    /// Removes runs that end before a sample.
    pub(super) fn drop_before(&mut self, sample: u64) {
        self.missing.retain(|flag| flag.start + flag.times > sample);
        if self.runs.is_empty() {
            return;
        }
        self.runs.retain(|run| run.start + run.times > sample);
        self.last.fill(None);
        for (index, run) in self.runs.iter().enumerate() {
            self.last[run.streams.start] = Some(index);
        }
    }
}

/// Range of invalid spectra and recorded channels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct InvalidRange {
    pub(super) spectra: Range<u64>,
    pub(super) coarse: Range<usize>,
}

/// Flags of one antenna, by ascending start.
#[derive(Clone, Debug)]
pub(super) struct Flags {
    /// Sample range and recorded-channel range of each flag.
    all: Vec<(Range<u64>, Range<usize>)>,
    /// Running maximum of the flags' ends.
    ends: Vec<u64>,
}

impl Flags {
    pub(super) fn none() -> Self {
        Self { all: Vec::new(), ends: Vec::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Selects the flags of an antenna's streams; a flag on one polarization applies to both.
    pub(super) fn new<'a>(
        flags: impl Iterator<Item = &'a Flag>,
        streams: &Range<usize>,
        polarizations: usize,
    ) -> Self {
        let own = |flag: &Flag| {
            let first = flag.streams.start.max(streams.start);
            let last = flag.streams.end.min(streams.end);
            let samples = flag.start..flag.start.saturating_add(flag.times);
            (first < last && flag.times > 0).then(|| {
                let coarse = (first - streams.start) / polarizations
                    ..(last - streams.start).div_ceil(polarizations);
                (samples, coarse)
            })
        };
        let mut all: Vec<_> = flags.filter_map(own).collect();
        all.sort_by_key(|(samples, _)| samples.start);
        let latest = all.iter().scan(0, |latest, (samples, _)| {
            *latest = samples.end.max(*latest);
            Some(*latest)
        });
        Self { ends: latest.collect(), all }
    }

    /// Appends the invalid ranges within `spectra`. Spectrum `s` covers `span` samples from `s hop + origin`; all of
    /// them must exist.
    pub(super) fn find(
        &self,
        spectra: &Range<u64>,
        origin: i64,
        framing: Framing,
        found: &mut Vec<InvalidRange>,
    ) {
        let Framing { hop, span } = framing;
        let at = |spectrum: u64| spectrum as i64 * hop as i64 + origin;
        let (from, to) = (at(spectra.start), at(spectra.end) - hop as i64 + span as i64);
        let first = self.ends.partition_point(|end| (*end as i64) <= from);
        let last = self.all.partition_point(|(samples, _)| (samples.start as i64) < to);
        for (samples, coarse) in &self.all[first.min(last)..last] {
            // First spectrum whose window ends after the flag's start, and first that begins at or after its end.
            let start = (samples.start as i64 - span as i64 - origin).div_euclid(hop as i64) + 1;
            let end = (samples.end as i64 - origin).div_euclid(hop as i64)
                + i64::from((samples.end as i64 - origin).rem_euclid(hop as i64) > 0);
            let start = start.max(spectra.start as i64) as u64;
            let end = end.clamp(0, spectra.end as i64) as u64;
            if start < end {
                found.push(InvalidRange { spectra: start..end, coarse: coarse.clone() });
            }
        }
    }
}

/// Returns the first spectrum with at least one valid recorded channel.
pub(super) fn lead(invalid: &[InvalidRange], spectra: &Range<u64>, coarse: usize) -> Option<u64> {
    let mut leads = vec![spectra.start; coarse];
    let mut sorted: Vec<&InvalidRange> = invalid.iter().collect();
    sorted.sort_by_key(|invalid| invalid.spectra.start);
    for invalid in sorted {
        for lead in
            leads[invalid.coarse.clone()].iter_mut().filter(|lead| invalid.spectra.start <= **lead)
        {
            *lead = invalid.spectra.end.max(*lead);
        }
    }
    leads.into_iter().min().filter(|lead| *lead < spectra.end)
}

/// Counts the invalid cells (spectrum, recorded channel), each once.
pub(super) fn cells(invalid: &[InvalidRange], coarse: usize) -> u64 {
    let mut ends = vec![0; coarse];
    let mut sorted: Vec<&InvalidRange> = invalid.iter().collect();
    sorted.sort_by_key(|invalid| invalid.spectra.start);
    let mut cells = 0;
    for invalid in sorted {
        for end in &mut ends[invalid.coarse.clone()] {
            cells += invalid.spectra.end.saturating_sub(invalid.spectra.start.max(*end));
            *end = invalid.spectra.end.max(*end);
        }
    }
    cells
}

/// Wraps a source whose samples share bytes, so that each sample fills whole bytes; returns other sources
/// unchanged.
pub(super) fn unpacked(source: Box<dyn VoltageSource>) -> Box<dyn VoltageSource> {
    let encoding = source.header().encoding.unpacked();
    if encoding == source.header().encoding {
        return source;
    }
    let header = VoltageHeader { encoding, ..source.header().clone() };
    let packed = source.header().block(0);
    Box::new(Unpacked { source, header, packed })
}

struct Unpacked {
    source: Box<dyn VoltageSource>,
    header: VoltageHeader,
    packed: VoltageBlock<'static>,
}

impl VoltageSource for Unpacked {
    fn header(&self) -> &VoltageHeader {
        &self.header
    }

    fn read(&mut self, block: &mut VoltageBlock) -> Result<usize> {
        let step = self.packed.encoding().group_samples();
        let capacity = block.capacity() / step * step;
        if self.packed.capacity() != capacity {
            self.packed = self.source.header().block(capacity);
        }
        let times = self.source.read(&mut self.packed)?;
        self.packed.voltages().unpack(block)?;
        block.flags_mut().clear();
        block.flags_mut().extend_from_slice(self.packed.flags());
        Ok(times)
    }

    fn skip(&mut self, times: u64) -> Result<u64> {
        let step = self.packed.encoding().group_samples() as u64;
        self.source.skip(times / step * step)
    }

    fn flags(&self) -> &[Flag] {
        self.source.flags()
    }

    fn is_live(&self) -> bool {
        self.source.is_live()
    }

    fn cut(&self) -> Option<&str> {
        self.source.cut()
    }

    fn warnings(&self) -> &[String] {
        self.source.warnings()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Appends the samples before `end`; sample `t` of stream `s` is `7 s + t`.
    fn fill(window: &mut Window, end: u64) {
        let first = window.end();
        let times = (end - first) as usize;
        let mut block = window.next(times.next_multiple_of(WHOLE)).unwrap();
        for (stream, row) in block.rows_mut().enumerate() {
            row.iter_mut().zip(first..end).for_each(|(x, t)| *x = (7 * stream as u64 + t) as u8);
        }
        block.set_times(times).unwrap();
        window.extend(times);
    }

    fn check(window: &Window, times: Range<u64>) {
        let voltages = window.voltages(1..3, times.clone()).unwrap();
        for stream in 0..2 {
            let value = |t: u64| (7 * (stream as u64 + 1) + t) as u8;
            let expected: Vec<u8> = times.clone().map(value).collect();
            assert_eq!(voltages.row(stream), expected, "{times:?}");
        }
        assert!(window.voltages(1..3, times.start..window.end() + 1).is_err());
    }

    #[test]
    fn windows_in_turn_hold_the_same_samples_as_one() {
        let centres_hz = vec![1e9; 3];
        let header = VoltageHeader::new(centres_hz, 1e-6, VoltageEncoding::Real8);
        // Expected and true start of the second gulp: with space before it, and without.
        for (expected, start) in [(30, 30), (30, 33), (30, 23), (40, 8), (45, 50), (0, 41)] {
            let (mut window, mut next) = (Window::new(&header), Window::new(&header));
            window.reserve(44);
            fill(&mut window, 40);
            window.drop_before(6);
            check(&window, 6..40);
            for end in [64, 100, 120] {
                next.follow(&window, expected + end - 64);
                assert!(next.is_empty());
                fill(&mut next, end);
                window.drop_before(start + end - 64);
                window.append(&mut next);
                window.drop_before(start + end - 64);
                check(&window, start + end - 64..end);
                assert!(next.is_empty() && window.end() == end);
            }
            fill(&mut window, 140);
            check(&window, 120..140);
        }
    }

    #[test]
    fn runs_are_joined_where_no_window_lies_between() {
        let mut not_finite = Invalid::new(2, 4);
        for (stream, time) in [(0, 3), (0, 4), (1, 4), (0, 8), (0, 13), (1, 6)] {
            not_finite.add(stream, time);
        }
        let run = |stream, start, times| Flag { streams: stream..stream + 1, start, times };
        assert_eq!(not_finite.runs, [run(0, 3, 6), run(1, 4, 3), run(0, 13, 1)]);
        not_finite.drop_before(9);
        assert_eq!(not_finite.runs, [run(0, 13, 1)]);
        not_finite.add(1, 14);
        not_finite.add(0, 14);
        assert_eq!(not_finite.runs, [run(0, 13, 2), run(1, 14, 1)]);
        assert_eq!(not_finite.count, 8);
    }

    #[test]
    fn cells_are_counted_once() {
        let invalid = |spectra, coarse| InvalidRange { spectra, coarse };
        let all =
            [invalid(5..9, 0..2), invalid(2..6, 1..3), invalid(3..4, 1..2), invalid(5..9, 0..2)];
        assert_eq!(cells(&all, 3), 4 + 7 + 4);
        assert_eq!(cells(&[], 3), 0);
    }

    #[test]
    fn a_spectrum_is_bad_when_its_window_touches_a_flag() {
        for (hop, span) in [(1, 1), (8, 8), (8, 32)] {
            for origin in [-9, 0, 5] {
                for start in 0..80 {
                    let flag = |start, times| Flag { streams: 1..2, start, times };
                    let list = [flag(start, 7), flag(60, 1)];
                    let flags = Flags::new(list.iter(), &(0..4), 2);
                    // Spectra whose samples all exist.
                    let spectra = 2..20u64;
                    let mut found = Vec::new();
                    flags.find(&spectra, origin, Framing { hop, span }, &mut found);
                    assert!(found.iter().all(|invalid| invalid.coarse == (0..1)));
                    for spectrum in spectra {
                        let first = spectrum as i64 * hop as i64 + origin;
                        let touched = list.iter().any(|flag| {
                            let from = flag.start as i64;
                            first < from + flag.times as i64 && first + span as i64 > from
                        });
                        let is_invalid =
                            found.iter().any(|invalid| invalid.spectra.contains(&spectrum));
                        assert_eq!(is_invalid, touched, "{hop} {span} {origin} {start} {spectrum}");
                    }
                }
            }
        }
    }

    #[test]
    fn the_lead_ends_where_one_channel_is_valid() {
        let invalid = |spectra, coarse| InvalidRange { spectra, coarse };
        let list =
            [invalid(6..9, 0..2), invalid(0..4, 0..1), invalid(0..6, 1..2), invalid(3..7, 0..1)];
        assert_eq!(lead(&list, &(0..20), 2), Some(9));
        assert_eq!(lead(&list, &(0..9), 2), None);
        assert_eq!(lead(&list[1..], &(0..9), 2), Some(6));
        assert_eq!(lead(&[], &(5..9), 2), Some(5));
    }
}
