//! Strain of one detector in memory.

use std::path::PathBuf;

use super::strain::PIECE;
use crate::error::{Error, Result};
use crate::io::strain::{StrainHeader, StrainSource};
use crate::units::Gps;
use crate::view::check_memory;

/// Strain of one detector.
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

    /// Returns the length of valid data in seconds.
    pub fn valid_s(&self) -> f64 {
        let valid = self.valid.iter().filter(|valid| **valid).count();
        valid as f64 / f64::from(self.rate_hz)
    }
}
