//! What a search for coincident events found.

use super::latency::Latency;
use super::whitened::Whitened;
use crate::math::power_spectrum::PowerSpectrum;
use crate::pipeline::ending::Ending;
use crate::spiir::bank::Bank;
use crate::spiir::coincidence::{Found, Segments, TimedTrigger};
use crate::units::Gps;

/// One detector's part.
#[derive(Clone, Debug)]
pub struct DetectorReport {
    /// Two letters: `H1`.
    pub name: String,
    /// Time of the first sample.
    pub start: Gps,
    /// Samples in a second.
    pub rate_hz: u32,
    /// Length of the strain that was searched, and of what of it could be used, in seconds.
    pub duration_s: f64,
    /// Length of what of it could have had triggers.
    pub livetime_s: f64,
    /// The spectrum that its templates are whitened with.
    pub psd: PowerSpectrum,
    /// Its bank.
    pub bank: Bank,
    /// All its triggers.
    pub triggers: Vec<TimedTrigger>,
    /// When it could have had triggers.
    pub valid: Segments,
    /// Its whitened strain, from `start` on.
    pub whitened: Whitened,
    /// How far its triggers lag behind the strain.
    pub latency: Latency,
}

/// All that was found.
#[derive(Clone, Debug)]
pub struct Report {
    /// The detectors, in the order that they were given.
    pub detectors: Vec<DetectorReport>,
    /// Events and background; of one detector its triggers, clustered.
    pub found: Found,
    /// How the search ended: what lies before a stop or a fault was searched in all detectors.
    pub ending: Ending,
    /// Length of the longest recording, in seconds.
    pub data_s: f64,
    /// Time that the search took, in seconds.
    pub elapsed_s: f64,
}

impl Report {
    /// Seconds of data searched in a second.
    pub fn realtime_factor(&self) -> f64 {
        self.data_s / self.elapsed_s.max(1e-9)
    }

    /// The latest that a detector's triggers are known.
    pub fn latency(&self) -> Latency {
        let latencies = self.detectors.iter().map(|detector| detector.latency);
        latencies.max_by(|a, b| a.total_s().total_cmp(&b.total_s())).unwrap_or_default()
    }
}
