//! One-line summary of a strain recording.
//!
//! Invariant: gaps are in order of time, apart from each other, and inside the recording.

use std::fmt;

use super::{StrainHeader, StrainSource};
use crate::error::Result;
use crate::units::Gps;

/// Samples per read.
const PIECE: usize = 1 << 14;

/// Contents of a recording, found by reading all of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// Header of the recording.
    pub header: StrainHeader,
    /// Number of samples.
    pub times: u64,
    /// Number of valid samples.
    pub valid_times: u64,
    /// Runs of invalid samples: the first sample, and the first after the run.
    pub gaps: Vec<(u64, u64)>,
    /// Root mean square of the valid samples.
    pub rms: f64,
}

impl Summary {
    /// Reads a source to its end.
    ///
    /// # Errors
    /// Those of [`StrainSource::read`].
    pub fn read(source: &mut dyn StrainSource) -> Result<Self> {
        let (mut samples, mut valid) = (vec![0.0; PIECE], vec![false; PIECE]);
        let mut summary = Self {
            header: source.header().clone(),
            times: 0,
            valid_times: 0,
            gaps: Vec::new(),
            rms: 0.0,
        };
        let mut squares = 0.0;
        loop {
            let count = source.read(&mut samples, &mut valid)?;
            if count == 0 {
                break;
            }
            for (sample, is_valid) in samples[..count].iter().zip(&valid) {
                if *is_valid {
                    summary.valid_times += 1;
                    squares += sample * sample;
                } else {
                    summary.add_bad();
                }
                summary.times += 1;
            }
        }
        summary.rms = (squares / summary.valid_times.max(1) as f64).sqrt();
        Ok(summary)
    }

    fn add_bad(&mut self) {
        match self.gaps.last_mut() {
            Some(last) if last.1 == self.times => last.1 += 1,
            _ => self.gaps.push((self.times, self.times + 1)),
        }
    }

    /// Returns the length in seconds.
    pub fn seconds(&self) -> f64 {
        self.times as f64 / f64::from(self.header.rate_hz)
    }

    /// Returns the valid length in seconds.
    pub fn valid_seconds(&self) -> f64 {
        self.valid_times as f64 / f64::from(self.header.rate_hz)
    }

    /// Returns the time of a sample.
    pub fn time(&self, sample: u64) -> Gps {
        self.header.start.plus_samples(sample as i64, self.header.rate_hz)
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let header = &self.header;
        let detector =
            if header.detector.is_empty() { "unknown detector" } else { &header.detector };
        write!(
            f,
            "{}: {detector}, {} Hz, GPS {} + {} s, {} s valid, {} gaps, rms {:.3e}",
            header.format,
            header.rate_hz,
            header.start.s(),
            self.seconds(),
            self.valid_seconds(),
            self.gaps.len(),
            self.rms
        )
    }
}
