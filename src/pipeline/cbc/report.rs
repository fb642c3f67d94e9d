//! Results of a search for coincident events.

use super::detector::Latency;
use super::whitened::Whitened;
use crate::math::PowerSpectrum;
use crate::pipeline::ending::Ending;
use crate::spiir::bank::Bank;
use crate::spiir::coincidence::{Found, Segments, TimedTrigger};
use crate::units::Gps;

/// Results of one detector.
#[derive(Clone, Debug)]
pub struct DetectorReport {
    /// Two-character name of the detector: `H1`.
    pub name: String,
    /// Time of the first sample.
    pub start: Gps,
    /// Sample rate.
    pub rate_hz: u32,
    /// Length of the strain searched, in seconds.
    pub duration_s: f64,
    /// Length of the segments in which triggers were possible, in seconds.
    pub livetime_s: f64,
    /// Whitening spectrum of its templates.
    pub psd: PowerSpectrum,
    /// Filter bank.
    pub bank: Bank,
    /// All triggers.
    pub triggers: Vec<TimedTrigger>,
    /// Segments in which triggers were possible.
    pub valid: Segments,
    /// Whitened strain, from `start` on.
    pub whitened: Whitened,
    /// Delay of its triggers relative to the strain.
    pub latency: Latency,
}

/// Results of all detectors.
#[derive(Clone, Debug)]
pub struct Report {
    /// Detectors, in the given order.
    pub detectors: Vec<DetectorReport>,
    /// Events and background; for a single detector, its clustered triggers.
    pub found: Found,
    /// End state of the search; all data before a stop or an error were searched in all detectors.
    pub ending: Ending,
    /// Length of the longest recording, in seconds.
    pub data_s: f64,
    /// Elapsed time in seconds.
    pub elapsed_s: f64,
}

impl Report {
    /// Returns the seconds of data searched per second.
    pub fn realtime_factor(&self) -> f64 {
        self.data_s / self.elapsed_s.max(1e-9)
    }

    /// Returns the longest latency of the detectors.
    pub fn latency(&self) -> Latency {
        let latencies = self.detectors.iter().map(|detector| detector.latency);
        latencies.max_by(|a, b| a.total_s().total_cmp(&b.total_s())).unwrap_or_default()
    }
}
