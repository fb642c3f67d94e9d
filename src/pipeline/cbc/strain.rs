//! Strain of one detector, readable repeatedly, and the common time of several detectors.
//!
//! Invariant: memory does not grow with the length, unless the strain was in memory before.

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use crate::error::{Error, Result};
use crate::io::strain::{StrainHeader, StrainSource};
use crate::math::PowerSpectrum;
use crate::spiir::whiten::{Take, WelchOptions};
use crate::trace::{self, Work};
use crate::units::Gps;
use crate::view::check_memory;

/// Samples per read.
pub(super) const PIECE: usize = 1 << 16;

/// Strain of one detector in memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Recording {
    /// Two-character name of the detector: `H1`.
    pub detector: String,
    /// Path of the data.
    pub path: PathBuf,
    /// Time of the first sample.
    pub start: Gps,
    /// Sample rate.
    pub rate_hz: u32,
    /// Samples; invalid ones are 0.
    pub samples: Vec<f64>,
    /// Whether each sample is valid.
    pub valid: Vec<bool>,
}

impl Recording {
    /// Reads a source to its end.
    ///
    /// # Errors
    /// Errors of the source; [`Error::Format`] when it has no sample, [`Error::Unavailable`] when memory does not
    /// suffice.
    pub fn read(source: &mut dyn StrainSource) -> Result<Self> {
        let StrainHeader { path, detector, start, rate_hz, .. } = source.header().clone();
        let mut recording =
            Self { detector, path, start, rate_hz, samples: Vec::new(), valid: Vec::new() };
        loop {
            let known = recording.samples.len();
            check_memory("the strain of one detector", (known + PIECE).checked_mul(9))?;
            recording.samples.resize(known + PIECE, 0.0);
            recording.valid.resize(known + PIECE, false);
            let count =
                source.read(&mut recording.samples[known..], &mut recording.valid[known..])?;
            recording.samples.truncate(known + count);
            recording.valid.truncate(known + count);
            if count == 0 {
                break;
            }
        }
        if recording.samples.is_empty() {
            return Err(Error::format(
                recording.path,
                "strain",
                0,
                "found no sample, expected some",
            ));
        }
        Ok(recording)
    }

    /// Returns the time of the sample after the last.
    pub fn end(&self) -> Gps {
        self.start.plus_samples(self.samples.len() as i64, self.rate_hz)
    }

    /// Returns the length in seconds.
    pub fn duration_s(&self) -> f64 {
        self.samples.len() as f64 / f64::from(self.rate_hz)
    }
}

type Open = dyn Fn() -> Result<Box<dyn StrainSource>> + Send + Sync;

/// Spectrum of strain once it is known, and the options it was made with.
pub(super) type Known = Arc<Mutex<Option<(WelchOptions, PowerSpectrum)>>>;

/// Strain of one detector that can be read more than once: first for its spectrum, then for the search.
#[derive(Clone)]
pub struct Strain {
    /// Two-character name of the detector: `H1`.
    pub detector: String,
    /// Path of the data.
    pub path: PathBuf,
    /// Time of the first sample.
    pub start: Gps,
    /// Sample rate.
    pub rate_hz: u32,
    /// Number of samples.
    pub times: u64,
    /// Index of the first sample in the source.
    first: u64,
    open: Arc<Open>,
    /// Description of the missing part of a truncated recording.
    cut: Option<String>,
    /// Spectrum of these samples, shared by clones.
    pub(super) known: Known,
}

/// Reader of strain from one sample to the end.
pub struct Reader {
    source: Box<dyn StrainSource>,
    left: u64,
}

impl Strain {
    /// Builds strain from a source that `open` opens at its first sample on each call.
    ///
    /// # Errors
    /// Errors of the source; [`Error::Format`] when it has no sample.
    pub fn new(
        open: impl Fn() -> Result<Box<dyn StrainSource>> + Send + Sync + 'static,
    ) -> Result<Self> {
        let mut source = open()?;
        let StrainHeader { path, detector, start, rate_hz, times, .. } = source.header().clone();
        let times = match times {
            Some(times) => times,
            None => source.skip(u64::MAX)?,
        };
        if times == 0 {
            return Err(Error::format(path, "strain", 0, "found no sample, expected some"));
        }
        let cut = source.cut().map(str::to_owned);
        let (open, known) = (Arc::new(open), Known::default());
        Ok(Self { detector, path, start, rate_hz, times, first: 0, open, cut, known })
    }

    /// Returns the time of the sample after the last.
    pub fn end(&self) -> Gps {
        self.start.plus_samples(self.times as i64, self.rate_hz)
    }

    /// Returns the length in seconds.
    pub fn duration_s(&self) -> f64 {
        self.times as f64 / f64::from(self.rate_hz)
    }

    /// Restricts the strain to the samples from `from` to before `until`.
    pub fn limit(&mut self, from: Gps, until: Gps) {
        let place = |gps: Gps| {
            let samples = gps.seconds_since(self.start) * f64::from(self.rate_hz);
            (samples.round().max(0.0) as u64).min(self.times)
        };
        let (first, last) = (place(from), place(until));
        // A truncation of the unused end does not matter.
        if last < self.times {
            self.cut = None;
        }
        self.start = self.start.plus_samples(first as i64, self.rate_hz);
        self.first += first;
        self.times = last.saturating_sub(first);
        self.known = Known::default();
    }

    /// Describes the missing part of a truncated recording.
    pub fn cut(&self) -> Option<&str> {
        self.cut.as_deref()
    }

    /// Returns a reader that starts at sample number `from`.
    ///
    /// # Errors
    /// Errors of the source; [`Error::Format`] when it has fewer samples.
    pub fn read_from(&self, from: u64) -> Result<Reader> {
        let mut source = (self.open)()?;
        let skipped = self.first + from;
        if source.skip(skipped)? < skipped {
            return Err(Error::format(&self.path, "strain", 0, "it is shorter than it was before"));
        }
        Ok(Reader { source, left: self.times.saturating_sub(from) })
    }

    /// Passes all samples to `take`, piece by piece.
    pub(super) fn for_each(&self, take: &mut Take<'_>) -> Result<()> {
        let mut reader = self.read_from(0)?;
        let (mut samples, mut valid) = (vec![0.0; PIECE], vec![false; PIECE]);
        loop {
            match reader.read(&mut samples, &mut valid)? {
                0 => return Ok(()),
                count => take(&samples[..count], &valid[..count])?,
            }
        }
    }

    /// Returns the number of samples before the first read error; without one, all samples.
    pub(super) fn readable(&self) -> Result<u64> {
        let mut reader = self.read_from(0)?;
        let (mut samples, mut valid) = (vec![0.0; PIECE], vec![false; PIECE]);
        let mut known = 0;
        loop {
            match reader.read(&mut samples, &mut valid) {
                Ok(0) | Err(_) => return Ok(known),
                Ok(count) => known += count as u64,
            }
        }
    }

    /// Formats the time span: `H1 GPS 1126259446.000 to 1126259478.000`.
    fn span(&self) -> String {
        let name = if self.detector.is_empty() { "a detector" } else { &self.detector };
        format!("{name} GPS {:.3} to {:.3}", self.start.s(), self.end().s())
    }
}

impl Reader {
    /// Writes the next samples to the front of `samples` and their validity to `valid`; returns 0 at the end.
    ///
    /// # Errors
    /// Errors of the source.
    pub fn read(&mut self, samples: &mut [f64], valid: &mut [bool]) -> Result<usize> {
        let count = (samples.len() as u64).min(self.left) as usize;
        if count == 0 {
            return Ok(0);
        }
        let mut span = trace::span(Work::Read, "strain");
        let count = self.source.read(&mut samples[..count], &mut valid[..count])?;
        span.add_bytes(count * size_of::<f64>());
        self.left -= count as u64;
        Ok(count)
    }
}

impl fmt::Debug for Strain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "strain of {}, {} samples from {}", self.span(), self.times, self.path.display())
    }
}

impl From<Recording> for Strain {
    fn from(recording: Recording) -> Self {
        let Recording { detector, path, start, rate_hz, .. } = recording.clone();
        let times = recording.samples.len() as u64;
        let recording = Arc::new(recording);
        let open = move || -> Result<Box<dyn StrainSource>> {
            let Recording { detector, path, start, rate_hz, .. } = &*recording;
            let header = StrainHeader {
                path: path.clone(),
                format: "memory",
                detector: detector.clone(),
                start: *start,
                rate_hz: *rate_hz,
                times: Some(recording.samples.len() as u64),
            };
            Ok(Box::new(Memory { header, recording: Arc::clone(&recording), next: 0 }))
        };
        let (open, known) = (Arc::new(open), Known::default());
        Self { detector, path, start, rate_hz, times, first: 0, open, cut: None, known }
    }
}

/// Source that reads a recording in memory.
struct Memory {
    header: StrainHeader,
    recording: Arc<Recording>,
    next: usize,
}

impl StrainSource for Memory {
    fn header(&self) -> &StrainHeader {
        &self.header
    }

    fn read(&mut self, samples: &mut [f64], valid: &mut [bool]) -> Result<usize> {
        let (strain, flags) =
            (&self.recording.samples[self.next..], &self.recording.valid[self.next..]);
        let count = strain.len().min(samples.len());
        samples[..count].copy_from_slice(&strain[..count]);
        valid[..count].copy_from_slice(&flags[..count]);
        self.next += count;
        Ok(count)
    }

    fn skip(&mut self, samples: u64) -> Result<u64> {
        let count = samples.min((self.recording.samples.len() - self.next) as u64);
        self.next += count as usize;
        Ok(count)
    }
}

/// Returns the time span common to all strain.
///
/// # Errors
/// [`Error::Parameter`], with every detector's span, when there is none.
pub fn common_span(strain: &[Strain]) -> Result<(Gps, Gps)> {
    let from = strain.iter().map(|one| one.start).max();
    let until = strain.iter().map(Strain::end).min();
    match from.zip(until) {
        None => Err(Error::parameter("detectors", 0, "there must be at least one recording")),
        Some((from, until)) if from < until => Ok((from, until)),
        _ => {
            let spans: Vec<String> = strain.iter().map(Strain::span).collect();
            let rule = format!("the detectors don't overlap in time: {}", spans.join(", "));
            Err(Error::parameter("common time of the detectors (s)", 0, rule))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strain(detector: &str, start_s: f64, samples: usize) -> Strain {
        let recording = Recording {
            detector: detector.to_owned(),
            path: PathBuf::new(),
            start: Gps::from_s(start_s),
            rate_hz: 16,
            samples: (0..samples).map(|k| k as f64).collect(),
            valid: vec![true; samples],
        };
        recording.into()
    }

    #[test]
    fn the_common_time_is_where_all_overlap() {
        let both = [strain("H1", 10.0, 160), strain("L1", 15.0, 160)];
        assert_eq!(common_span(&both).ok(), Some((Gps::from_s(15.0), Gps::from_s(20.0))));
        let apart = [strain("H1", 10.0, 16), strain("L1", 11.0, 16)];
        let error = common_span(&apart).expect_err("apart").to_string();
        assert!(error.contains("overlap") && error.contains("H1 GPS 10.000 to 11.000"), "{error}");
    }

    #[test]
    fn limits_keep_times_and_readers_begin_anywhere() {
        let mut one = strain("H1", 10.0, 160);
        one.limit(Gps::from_s(12.0), Gps::from_s(19.0));
        one.limit(Gps::from_s(12.0), Gps::from_s(13.0));
        assert_eq!((one.start, one.times), (Gps::from_s(12.0), 16));
        let (mut samples, mut valid) = ([0.0; 32], [false; 32]);
        let mut reader = one.read_from(4).expect("opened");
        assert_eq!(reader.read(&mut samples, &mut valid).expect("read"), 12);
        assert_eq!((samples[0], samples[11], valid[11]), (36.0, 47.0, true));
        assert_eq!(reader.read(&mut samples, &mut valid).expect("read"), 0);
        one.limit(Gps::from_s(0.0), Gps::from_s(99.0));
        assert_eq!((one.start, one.times), (Gps::from_s(12.0), 16));
    }
}
