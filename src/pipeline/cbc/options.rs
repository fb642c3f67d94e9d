//! Options, inputs and observers of a search.

use std::sync::Arc;

use super::bank::Source;
use super::spectrum::Whitening;
use crate::error::Result;
use crate::spiir::bank::Bank;
use crate::spiir::coincidence::{self, Ranking, Sample, TimedTrigger};
use crate::spiir::trigger::Trigger;

/// Options of a search.
#[derive(Clone, Debug)]
pub struct SearchOptions {
    /// Whitening of the strain.
    pub whitening: Whitening,
    /// Lowest signal-to-noise ratio of a trigger.
    pub threshold: f32,
    /// Half-width in seconds of the window within which a trigger must be its template's maximum.
    pub window_s: f64,
    /// Triggers this close to a gate, in seconds, are dropped.
    pub gate_pad_s: f64,
    /// Added to the light travel time between two detectors, in seconds.
    pub window_pad_s: f64,
    /// Number of time slides for the background.
    pub slides: usize,
    /// Interval of the slides in seconds.
    pub slide_interval_s: f64,
    /// Events this close in time are merged, in seconds.
    pub cluster_s: f64,
    /// Ranking statistic of events.
    pub ranking: Ranking,
    /// Triggers that form the background.
    pub background: Sample,
    /// Samples per block; 0 selects automatically. Results do not depend on it.
    pub block: usize,
    /// Limit in bytes on the host memory of filters and blocks; `None` sets no limit. Results do not depend on it.
    pub memory: Option<u64>,
}

impl SearchOptions {
    /// Returns the coincidence options for these windows.
    pub(super) fn coincidence(&self, windows_s: Vec<Vec<f64>>) -> coincidence::Options {
        coincidence::Options {
            slides: self.slides,
            slide_interval_s: self.slide_interval_s,
            cluster_s: self.cluster_s,
            ranking: self.ranking,
            background: self.background,
            ..coincidence::Options::new(windows_s)
        }
    }
}

/// Templates or bank of a detector.
#[derive(Clone, Debug)]
pub enum Input {
    /// Templates, from which a bank is designed for the detector's own noise.
    Templates(Source),
    /// As `Templates`, shared by several detectors.
    Shared(Arc<Source>),
    /// Existing bank.
    Bank(Box<Bank>),
}

/// Progress of a search.
#[derive(Clone, Copy, Debug)]
pub struct Status {
    /// Samples searched, over all detectors.
    pub times: u64,
    /// Total number of samples.
    pub total: u64,
}

/// Receiver of a search's progress and results.
pub trait SearchObserver {
    /// Receives the progress; returning false stops the search.
    fn at(&mut self, status: &Status) -> bool;

    /// Receives a detector's triggers as they become final, each with its time; `detector` is the index in the given
    /// order.
    ///
    /// # Errors
    /// Any error ends the search.
    fn found(&mut self, detector: usize, triggers: &[(Trigger, TimedTrigger)]) -> Result<()> {
        let _ = (detector, triggers);
        Ok(())
    }

    /// Returns whether to save a state now; [`SearchObserver::save`] then receives it.
    fn is_due(&mut self) -> bool {
        false
    }

    /// Receives a state for [`ChirpSearch::resume`](super::ChirpSearch::resume), after all triggers found by then.
    ///
    /// # Errors
    /// Any error ends the search.
    fn save(&mut self, state: Vec<u8>) -> Result<()> {
        let _ = state;
        Ok(())
    }
}
