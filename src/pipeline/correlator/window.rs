//! Window of a recording: a range of samples of all streams, held in memory.
//!
//! Invariant: samples that are held are those that the source gave, whatever was asked for before.

use std::ops::Range;
use std::time::Instant;

use super::lost::Lost;
use crate::error::{Error, Result};
use crate::io::voltages::{VoltageHeader, VoltageSource};
use crate::voltage::{VoltageBlock, VoltageEncoding, Voltages};

/// Number of samples that fills whole bytes in every encoding.
const WHOLE: usize = 4;

/// Samples of every stream of a recording; axes stream, time.
pub(super) struct Window {
    bytes: Vec<u8>,
    encoding: VoltageEncoding,
    streams: usize,
    /// Allocated samples per stream.
    capacity: usize,
    /// First sample held, counted from the recording's start.
    first: u64,
    /// Samples held per stream.
    times: usize,
}

impl Window {
    /// Returns the encoding of the samples.
    #[cfg(feature = "cuda")]
    pub(super) fn encoding(&self) -> VoltageEncoding {
        self.encoding
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
        let kept = self.encoding.bytes(dropped)..self.encoding.bytes(self.times);
        if dropped > 0 && !kept.is_empty() {
            self.bytes.chunks_exact_mut(stride).for_each(|row| row.copy_within(kept.clone(), 0));
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
pub(super) struct Feed {
    source: Box<dyn VoltageSource>,
    /// Samples per read.
    gulp: usize,
    window: Window,
    lost: Lost,
    /// Length of the source in samples.
    length: u64,
    /// Whether the correlation uses the source up to its end.
    reaches_end: bool,
    /// Why the source returned too few samples, until it is taken.
    fault: Option<Error>,
    /// Whether there was an error.
    ended: bool,
    /// Seconds spent reading.
    elapsed_s: f64,
    /// Result of the last move.
    outcome: Result<()>,
}

impl Feed {
    /// Builds a feed from a source of `length` samples, of which those before `end` are used; reads `gulp` samples at
    /// a time. `span` is the number of samples under a spectrum's window.
    pub(super) fn new(
        source: Box<dyn VoltageSource>,
        (length, end): (u64, u64),
        (gulp, span): (usize, u64),
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
        let lost = Lost::new(window.streams, span);
        Self {
            source,
            gulp,
            window,
            lost,
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

    /// Takes the error for which the source returned too few samples.
    pub(super) fn take_fault(&mut self) -> Option<Error> {
        self.fault.take()
    }

    /// Whether the window holds the samples, as far as the source has them.
    pub(super) fn holds(&self, times: &Range<u64>) -> bool {
        let end = times.end.min(self.length);
        times.start >= end || self.window.first + self.window.times as u64 >= end
    }

    pub(super) fn header(&self) -> &VoltageHeader {
        self.source.header()
    }

    pub(super) fn window(&self) -> &Window {
        &self.window
    }

    /// Returns the lost samples within the window.
    pub(super) fn lost(&self) -> &Lost {
        &self.lost
    }

    /// Seconds spent reading.
    pub(super) fn elapsed_s(&self) -> f64 {
        self.elapsed_s
    }

    /// Takes the result of the last move.
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
            let rule = "it falls so fast that samples are needed which have been let go";
            return Err(Error::parameter("delay (samples)", times.start, rule));
        }
        self.window.drop_before(times.start);
        self.lost.drop_before(self.window.first);
        self.pass_over(times.start);
        // Allocates for all samples, and for those read past the end.
        let room = (end - self.window.first) as usize + WHOLE + self.gulp;
        self.window.reserve(room);
        while !self.ended && self.window.first + (self.window.times as u64) < end {
            let first = self.window.first + self.window.times as u64;
            let mut block = self.window.next(self.gulp)?;
            let read = match self.source.read(&mut block) {
                Ok(read) => read,
                Err(fault) => {
                    self.end(fault);
                    break;
                }
            };
            self.lost.find(&mut block, first);
            let times = block.times();
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
        let why = format!("the data end after {read} samples, and {} were promised", self.length);
        Error::format(&self.header().path, "data", 0, why)
    }
}
