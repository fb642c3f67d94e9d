//! Time segments: the valid time of detectors, and their intersections.

use std::ops::Range;

use crate::error::{Error, Result};
use crate::state::{Saved, Saving};
use crate::units::Gps;

/// Half-open time segments: ordered, disjoint and not adjacent, none empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Segments {
    spans: Vec<(Gps, Gps)>,
}

impl Segments {
    /// Creates segments from spans in any order; merges those that touch or overlap and drops empty ones.
    ///
    /// # Errors
    /// [`Error::Parameter`] if a span ends before it begins.
    pub fn new(mut spans: Vec<(Gps, Gps)>) -> Result<Self> {
        if let Some((begin, end)) = spans.iter().find(|(begin, end)| end < begin) {
            let rule = format!("it begins at {} s", begin.s());
            return Err(Error::parameter("end of a segment (GPS s)", end.s(), rule));
        }
        spans.sort_unstable();
        let mut segments = Self::default();
        for (begin, end) in spans {
            segments.push(begin, end);
        }
        Ok(segments)
    }

    /// Creates one segment of `seconds` seconds.
    pub fn one(begin: Gps, seconds: f64) -> Self {
        let mut segments = Self::default();
        segments.push(begin, begin.plus_s(seconds));
        segments
    }

    /// Returns the segments.
    pub fn spans(&self) -> &[(Gps, Gps)] {
        &self.spans
    }

    /// Tells whether there is no segment.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Returns the first beginning and the last end.
    pub(super) fn extent(&self) -> Option<Range<Gps>> {
        Some(self.spans.first()?.0..self.spans.last()?.1)
    }

    /// Returns the sum of all lengths in seconds.
    pub fn duration_s(&self) -> f64 {
        self.spans.iter().map(|(begin, end)| end.seconds_since(*begin)).sum()
    }

    /// Tells whether a time lies in a segment.
    pub fn contains(&self, gps: Gps) -> bool {
        let after = self.spans.partition_point(|(begin, _)| *begin <= gps);
        after > 0 && gps < self.spans[after - 1].1
    }

    /// Returns the time in which at least `count` of these are valid.
    pub fn at_least(count: usize, of: &[&Self]) -> Self {
        let spans = of.iter().flat_map(|segments| &segments.spans);
        let mut edges: Vec<(Gps, i32)> =
            spans.flat_map(|(begin, end)| [(*begin, 1), (*end, -1)]).collect();
        edges.sort_unstable();
        let mut segments = Self::default();
        let mut valid = 0;
        for pair in edges.windows(2) {
            valid += pair[0].1;
            if valid >= count as i32 {
                segments.push(pair[0].0, pair[1].0);
            }
        }
        segments
    }

    /// Returns the segments shortened by `pad_s` seconds at either end.
    #[must_use]
    pub fn shrunk(&self, pad_s: f64) -> Self {
        let mut segments = Self::default();
        for (begin, end) in &self.spans {
            segments.push(begin.plus_s(pad_s), end.plus_s(-pad_s));
        }
        segments
    }

    /// Returns the segments shifted `seconds` seconds later.
    #[must_use]
    pub fn later(&self, seconds: f64) -> Self {
        let later = |(begin, end): &(Gps, Gps)| (begin.plus_s(seconds), end.plus_s(seconds));
        Self { spans: self.spans.iter().map(later).collect() }
    }

    /// Returns the time in these segments but not in `other`.
    #[must_use]
    pub fn without(&self, other: &Self) -> Self {
        let Some(extent) = self.extent() else { return Self::default() };
        let mut gaps = Self::default();
        let mut begin = extent.start;
        for (from, until) in &other.spans {
            gaps.push(begin, *from);
            begin = begin.max(*until);
        }
        gaps.push(begin, extent.end);
        Self::at_least(2, &[self, &gaps])
    }

    /// Returns the part within an interval, cyclically shifted by `offset_ns` within it.
    pub(super) fn turned(&self, circle: &Range<Gps>, offset_ns: i64) -> Self {
        let (first, last) = (circle.start, circle.end);
        let length = last.ns - first.ns;
        let mut turned = Vec::with_capacity(self.spans.len() + 1);
        for (begin, end) in &self.spans {
            let (begin, end) = (begin.ns.max(first.ns), end.ns.min(last.ns));
            if begin < end {
                let from = first.ns + (begin - first.ns + offset_ns).rem_euclid(length);
                let until = from + (end - begin);
                turned.push((from, until.min(last.ns)));
                turned.push((first.ns, (until - length).max(first.ns)));
            }
        }
        turned.sort_unstable();
        let mut segments = Self::default();
        for (begin, end) in turned {
            segments.push(Gps { ns: begin }, Gps { ns: end });
        }
        segments
    }

    /// Appends a segment that begins no earlier than all others; ignores an empty one.
    fn push(&mut self, begin: Gps, end: Gps) {
        if end <= begin {
            return;
        }
        match self.spans.last_mut() {
            Some((_, last)) if begin <= *last => *last = end.max(*last),
            _ => self.spans.push((begin, end)),
        }
    }
}

/// Builds segments from a stream's valid samples.
#[derive(Clone, Debug)]
pub struct SegmentsBuilder {
    start: Gps,
    rate_hz: u32,
    samples: i64,
    /// Start of the current run of valid samples.
    begin: Option<i64>,
    segments: Segments,
}

impl SegmentsBuilder {
    /// Starts a stream whose sample 0 is at `start`.
    pub fn new(start: Gps, rate_hz: u32) -> Self {
        Self { start, rate_hz, samples: 0, begin: None, segments: Segments::default() }
    }

    /// Appends the validity of the next samples.
    pub fn push(&mut self, valid: &[bool]) {
        for valid in valid {
            match (valid, self.begin) {
                (true, None) => self.begin = Some(self.samples),
                (false, Some(begin)) => self.close(begin),
                _ => {}
            }
            self.samples += 1;
        }
    }

    /// Appends invalid samples.
    pub fn skip(&mut self, samples: u64) {
        if let Some(begin) = self.begin {
            self.close(begin);
        }
        self.samples += samples as i64;
    }

    /// Saves the state.
    pub fn save(&self, to: &mut Saving) {
        to.part("segments of time");
        to.number(self.samples as u64);
        to.maybe(self.begin.map(|begin| begin as u64));
        to.number(self.segments.spans.len() as u64);
        for (begin, end) in &self.segments.spans {
            to.number((begin.ns - self.start.ns) as u64);
            to.number((end.ns - self.start.ns) as u64);
        }
    }

    /// Restores the state saved by a builder of the same start and rate after `samples` samples.
    ///
    /// # Errors
    /// [`Error::Format`] for a state that such a builder does not save.
    pub fn load(&mut self, from: &mut Saved<'_>, samples: u64) -> Result<()> {
        from.part("segments of time")?;
        from.expect("samples", samples)?;
        self.samples = samples as i64;
        self.begin = from.maybe()?.map(|begin| begin as i64);
        if self.begin.is_some_and(|begin| begin >= self.samples) {
            return Err(from.fault("present segment", "it begins after the last sample".into()));
        }
        self.segments = Segments::default();
        let mut last = 0;
        for _ in 0..from.number()? {
            let (begin, end) = (from.number()? as i64, from.number()? as i64);
            if begin < last || end <= begin {
                return Err(from.fault("segment", format!("{begin} to {end} ns found")));
            }
            last = end;
            let gps = |ns| Gps { ns: self.start.ns.saturating_add(ns) };
            self.segments.push(gps(begin), gps(end));
        }
        Ok(())
    }

    /// Returns the segments so far that overlap a time, unclipped.
    pub(crate) fn around(&self, begin: Gps, end: Gps) -> Segments {
        let spans = &self.segments.spans;
        let first = spans.partition_point(|(_, last)| *last <= begin);
        let own = spans[first..].iter().take_while(|(from, _)| *from < end);
        let mut around = Segments { spans: own.copied().collect() };
        if let Some(open) = self.begin {
            let time = |sample| self.start.plus_samples(sample, self.rate_hz);
            let (from, until) = (time(open), time(self.samples));
            if from < end && until > begin {
                around.push(from, until);
            }
        }
        around
    }

    /// Ends the stream and returns its segments.
    pub fn finish(mut self) -> Segments {
        if let Some(begin) = self.begin {
            self.close(begin);
        }
        self.segments
    }

    fn close(&mut self, begin: i64) {
        let time = |sample| self.start.plus_samples(sample, self.rate_hz);
        let (begin, end) = (time(begin), time(self.samples));
        self.segments.push(begin, end);
        self.begin = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segments(spans: &[(i64, i64)]) -> Segments {
        let gps = |(begin, end): &(i64, i64)| (Gps { ns: *begin }, Gps { ns: *end });
        Segments::new(spans.iter().map(gps).collect()).expect("in order")
    }

    #[test]
    fn stretches_are_put_in_order() {
        let mixed = segments(&[(20, 30), (0, 10), (10, 12), (25, 27), (40, 40)]);
        assert_eq!(mixed, segments(&[(0, 12), (20, 30)]));
        assert!(mixed.contains(Gps { ns: 0 }) && !mixed.contains(Gps { ns: 12 }));
        assert!(!mixed.contains(Gps { ns: -1 }) && mixed.contains(Gps { ns: 29 }));
        assert!(Segments::new(vec![(Gps { ns: 2 }, Gps { ns: 1 })]).is_err());
    }

    #[test]
    fn common_times_are_found() {
        let (a, b) = (segments(&[(0, 10), (20, 30)]), segments(&[(5, 25)]));
        let c = segments(&[(8, 9), (28, 40)]);
        assert_eq!(Segments::at_least(2, &[&a, &b]), segments(&[(5, 10), (20, 25)]));
        let two = segments(&[(5, 10), (20, 25), (28, 30)]);
        assert_eq!(Segments::at_least(2, &[&a, &b, &c]), two);
        assert_eq!(Segments::at_least(3, &[&a, &b, &c]), segments(&[(8, 9)]));
        assert_eq!(a.without(&b), segments(&[(0, 5), (25, 30)]));
        assert_eq!(a.without(&Segments::default()), a);
    }

    #[test]
    fn a_turn_keeps_the_length_and_a_full_turn_everything() {
        let a = segments(&[(0, 10), (20, 30), (35, 50)]);
        let circle = Gps { ns: 5 }..Gps { ns: 45 };
        assert_eq!(a.turned(&circle, 0), segments(&[(5, 10), (20, 30), (35, 45)]));
        assert_eq!(a.turned(&circle, 8), segments(&[(5, 18), (28, 38), (43, 45)]));
        assert_eq!(a.turned(&circle, 40), a.turned(&circle, 0));
        for offset in 0..40 {
            assert!((a.turned(&circle, offset).duration_s() - 25e-9).abs() < 1e-18);
        }
    }

    #[test]
    fn segments_around_a_time_are_whole() {
        let start = Gps::from_s(100.0);
        let mut builder = SegmentsBuilder::new(start, 4);
        builder.push(&[true, true, false, false, true, false, true, true]);
        let at = |quarters: i64| start.plus_samples(quarters, 4);
        assert_eq!(builder.around(at(1), at(5)).spans(), [(at(0), at(2)), (at(4), at(5))]);
        assert_eq!(builder.around(at(5), at(9)).spans(), [(at(6), at(8))]);
        assert!(builder.around(at(2), at(4)).is_empty());
    }

    #[test]
    fn valid_samples_become_stretches() {
        let start = Gps::from_s(100.0);
        for split in 0..=8 {
            let valid = [true, true, false, false, true, false, true, true];
            let mut builder = SegmentsBuilder::new(start, 4);
            builder.push(&valid[..split]);
            builder.push(&valid[split..]);
            let spans = builder.finish();
            let at = |quarters: i64| start.plus_samples(quarters, 4);
            assert_eq!(spans.spans(), [(at(0), at(2)), (at(4), at(5)), (at(6), at(8))]);
        }
    }
}
