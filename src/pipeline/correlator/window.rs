//! Window of a recording: a range of samples of all streams, held in memory, and the spectra that flagged samples
//! invalidate.
//!
//! Invariant: samples in the window are finite and independent of earlier requests; [`NotFinite`] lists those that the
//! recording has as infinite or NaN.

use std::ops::Range;
use std::time::Instant;

use crate::error::{Error, Result};
use crate::io::voltages::{Flag, VoltageHeader, VoltageSource};
use crate::pipeline::voltage::blank;
use crate::trace::{self, Work};
use crate::voltage::{VoltageBlock, VoltageEncoding, Voltages, voltage};

/// Number of samples that fills whole bytes in every encoding.
const WHOLE: usize = 4;

/// Division of samples into spectra.
#[derive(Clone, Copy, Debug)]
pub(super) struct Framing {
    /// Samples from one spectrum to the next.
    pub(super) hop: u64,
    /// Samples under a spectrum's window.
    pub(super) span: u64,
}

/// Samples of every stream of a recording; axes stream, time.
pub(super) struct Window {
    bytes: Vec<u8>,
    pub(super) encoding: VoltageEncoding,
    streams: usize,
    /// Allocated samples per stream.
    capacity: usize,
    /// First sample held, counted from the recording's start.
    first: u64,
    /// Samples held per stream.
    times: usize,
}

impl Window {
    /// Returns samples of some streams from the window.
    ///
    /// # Errors
    /// [`Error::Shape`] when the window does not hold them.
    pub(super) fn voltages(
        &self,
        streams: Range<usize>,
        times: Range<u64>,
    ) -> Result<Voltages<'_>> {
        let end = self.first + self.times as u64;
        if times.start < self.first || times.end > end || times.start > times.end {
            let (expected, actual) = (self.times, (end.saturating_sub(times.start)) as usize);
            return Err(Error::Shape { what: "samples held", expected, actual });
        }
        let stride = self.encoding.bytes(self.capacity);
        let bytes = &self.bytes[streams.start * stride..streams.end * stride];
        let all = Voltages::new(bytes, self.encoding, streams.len(), stride, self.times)?;
        all.slice((times.start - self.first) as usize, (times.end - times.start) as usize)
    }

    /// Discards samples before `sample`.
    fn drop_before(&mut self, sample: u64) {
        let dropped = sample.saturating_sub(self.first).min(self.times as u64) as usize;
        let dropped = dropped / WHOLE * WHOLE;
        let stride = self.encoding.bytes(self.capacity);
        let rest = self.encoding.bytes(dropped)..self.encoding.bytes(self.times);
        if dropped > 0 && !rest.is_empty() {
            self.bytes.chunks_exact_mut(stride).for_each(|row| row.copy_within(rest.clone(), 0));
        }
        self.times -= dropped;
        self.first += dropped as u64;
    }

    /// Grows the buffer to `capacity` samples per stream.
    fn reserve(&mut self, capacity: usize) {
        if capacity <= self.capacity {
            return;
        }
        let capacity = capacity.next_multiple_of(self.encoding.samples_per_byte());
        let (old, new) = (self.encoding.bytes(self.capacity), self.encoding.bytes(capacity));
        let mut bytes = vec![0; self.streams * new];
        if old > 0 {
            let rows = bytes.chunks_exact_mut(new).zip(self.bytes.chunks_exact(old));
            rows.for_each(|(to, from)| to[..old].copy_from_slice(from));
        }
        (self.bytes, self.capacity) = (bytes, capacity);
    }

    /// Returns a block of at most `most` samples to fill, directly after those held.
    fn next(&mut self, most: usize) -> Result<VoltageBlock<'_>> {
        self.reserve(self.times + most);
        let stride = self.encoding.bytes(self.capacity);
        let times = self.times..self.times + most;
        VoltageBlock::within(&mut self.bytes, self.encoding, self.streams, stride, times)
    }
}

/// Source of a recording with the window that advances along it.
pub(super) struct WindowedSource {
    source: Box<dyn VoltageSource>,
    /// Samples per read.
    gulp: usize,
    pub(super) window: Window,
    pub(super) not_finite: NotFinite,
    /// Length of the source in samples.
    length: u64,
    /// Whether the correlation uses the source up to its end.
    reaches_end: bool,
    /// Error that made the source return too few samples, until it is taken.
    fault: Option<Error>,
    /// Whether the source failed or ended early.
    ended: bool,
    /// Seconds spent reading.
    pub(super) elapsed_s: f64,
    /// Result of the last [`WindowedSource::hold`].
    outcome: Result<()>,
}

impl WindowedSource {
    /// Builds a windowed source from a source of `length` samples, of which those before `end` are used; reads `gulp`
    /// samples at a time. `span` is the number of samples under a spectrum's window.
    pub(super) fn new(
        source: Box<dyn VoltageSource>,
        length: u64,
        end: u64,
        gulp: usize,
        span: u64,
    ) -> Self {
        let header = source.header();
        let window = Window {
            bytes: Vec::new(),
            encoding: header.encoding,
            streams: header.streams(),
            capacity: 0,
            first: 0,
            times: 0,
        };
        let gulp = gulp.max(1).next_multiple_of(WHOLE);
        let not_finite = NotFinite::new(window.streams, span);
        Self {
            source,
            gulp,
            window,
            not_finite,
            length,
            reaches_end: end >= length,
            fault: None,
            ended: false,
            elapsed_s: 0.0,
            outcome: Ok(()),
        }
    }

    /// Describes the truncation of a recording that is used to its end.
    pub(super) fn cut(&self) -> Option<String> {
        let why = self.source.cut().filter(|_| self.reaches_end)?;
        let path = self.header().path.display().to_string();
        Some(if why.contains(&path) { why.to_owned() } else { format!("{path}: {why}") })
    }

    /// Takes the error that made the source return too few samples.
    pub(super) fn take_fault(&mut self) -> Option<Error> {
        self.fault.take()
    }

    /// Returns whether the window holds those of the samples that the source has.
    pub(super) fn holds(&self, times: &Range<u64>) -> bool {
        let end = times.end.min(self.length);
        times.start >= end || self.window.first + self.window.times as u64 >= end
    }

    pub(super) fn header(&self) -> &VoltageHeader {
        self.source.header()
    }

    /// Takes the result of the last [`WindowedSource::hold`].
    pub(super) fn take_outcome(&mut self) -> Result<()> {
        std::mem::replace(&mut self.outcome, Ok(()))
    }

    /// Moves the window: discards samples before `times` and reads `times`, as far as the source delivers them.
    pub(super) fn hold(&mut self, times: Range<u64>) {
        let begin = Instant::now();
        self.outcome = self.held(times);
        self.elapsed_s += begin.elapsed().as_secs_f64();
    }

    fn held(&mut self, times: Range<u64>) -> Result<()> {
        let end = times.end.min(self.length);
        if times.start >= end {
            return Ok(());
        }
        if times.start < self.window.first {
            let rule = "it falls too fast: it needs samples that were already discarded";
            return Err(Error::parameter("delay (samples)", times.start, rule));
        }
        self.window.drop_before(times.start);
        self.not_finite.drop_before(self.window.first);
        self.pass_over(times.start);
        // Allocates for all samples, and for those read past the end.
        let room = (end - self.window.first) as usize + WHOLE + self.gulp;
        self.window.reserve(room);
        while !self.ended && self.window.first + (self.window.times as u64) < end {
            let first = self.window.first + self.window.times as u64;
            let mut block = self.window.next(self.gulp)?;
            let mut span = trace::span(Work::Read, "voltages");
            let read = match self.source.read(&mut block) {
                Ok(read) => read,
                Err(fault) => {
                    self.end(fault);
                    break;
                }
            };
            self.not_finite.find(&mut block, first);
            let times = block.times();
            span.add_bytes(block.streams() * block.encoding().bytes(times));
            drop(span);
            self.window.times += times;
            if read < self.gulp && first + (times as u64) < end {
                self.end(self.short());
            }
        }
        Ok(())
    }

    fn end(&mut self, fault: Error) {
        self.ended = true;
        self.fault = Some(fault);
    }

    /// Skips samples before `sample` while the window is empty.
    fn pass_over(&mut self, sample: u64) {
        let passed = (sample - self.window.first) / WHOLE as u64 * WHOLE as u64;
        if self.window.times == 0 && passed > 0 && !self.ended {
            match self.source.skip(passed) {
                Ok(skipped) if skipped < passed => self.end(self.short()),
                Ok(_) => self.window.first += passed,
                Err(fault) => self.end(fault),
            }
        }
    }

    fn short(&self) -> Error {
        let read = self.window.first + self.window.times as u64;
        let why = format!("the data end after {read} samples, expected {}", self.length);
        Error::format(&self.header().path, "data", 0, why)
    }
}

/// Samples of a recording that are not finite.
#[derive(Debug)]
pub(super) struct NotFinite {
    /// Runs of samples that are not finite; the runs of each stream ascend by start.
    pub(super) runs: Vec<Flag>,
    /// Index in `runs` of each stream's last run.
    last: Vec<Option<usize>>,
    /// Samples under a window; a shorter gap between runs has no valid spectrum, so the runs are joined.
    span: u64,
    /// Number of samples so far that were not finite.
    pub(super) count: u64,
}

impl NotFinite {
    pub(super) fn new(streams: usize, span: u64) -> Self {
        Self { runs: Vec::new(), last: vec![None; streams], span, count: 0 }
    }

    /// Replaces a block's samples that are not finite by zeros; `first` is the block's first sample.
    pub(super) fn find(&mut self, block: &mut VoltageBlock, first: u64) {
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
    pub(super) fn new(flags: &[Flag], streams: &Range<usize>, polarizations: usize) -> Self {
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
        let mut all: Vec<_> = flags.iter().filter_map(own).collect();
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

/// Returns the encoding with whole bytes per sample that holds the same values.
pub(super) fn unpacked_encoding(encoding: VoltageEncoding) -> VoltageEncoding {
    match encoding {
        VoltageEncoding::Real2 => VoltageEncoding::RealF32,
        VoltageEncoding::Real4 => VoltageEncoding::Real8,
        whole => whole,
    }
}

/// Wraps a source with several samples per byte, so that each sample fills whole bytes; returns other sources
/// unchanged.
pub(super) fn unpacked(source: Box<dyn VoltageSource>) -> Box<dyn VoltageSource> {
    let encoding = unpacked_encoding(source.header().encoding);
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
        let step = self.packed.encoding().samples_per_byte();
        let capacity = block.capacity() / step * step;
        if self.packed.capacity() != capacity {
            self.packed = self.source.header().block(capacity);
        }
        let times = self.source.read(&mut self.packed)?;
        let packed = self.packed.voltages();
        for (stream, row) in block.rows_mut().enumerate() {
            let from = packed.row(stream);
            let value = |time: usize| voltage(from, packed.encoding(), time).re;
            match packed.encoding() {
                VoltageEncoding::Real4 => {
                    row.iter_mut().enumerate().take(times).for_each(|(time, byte)| {
                        *byte = value(time) as i8 as u8;
                    });
                }
                _ => row.chunks_exact_mut(4).enumerate().take(times).for_each(|(time, bytes)| {
                    bytes.copy_from_slice(&(value(time) as f32).to_le_bytes());
                }),
            }
        }
        block.set_times(times)?;
        Ok(times)
    }

    fn skip(&mut self, times: u64) -> Result<u64> {
        let step = self.packed.encoding().samples_per_byte() as u64;
        self.source.skip(times / step * step)
    }

    fn flags(&self) -> &[Flag] {
        self.source.flags()
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

    #[test]
    fn runs_are_joined_where_no_window_lies_between() {
        let mut not_finite = NotFinite::new(2, 4);
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
                    let flags = Flags::new(&list, &(0..4), 2);
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
