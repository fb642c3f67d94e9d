//! State of a search at a window boundary, from which another search can continue.
//!
//! Invariant: a detector put into this state finds in later samples what the one that it was taken from finds.

use super::plan::Plan;
use super::rules::{Hit, Noise, Sweep};
use crate::error::{Error, Result};
use crate::state::GREATEST;

/// 64-bit words of a trial.
const TRIAL: usize = 8;

/// State of a [`super::Detector`] at the start of its current window, with all earlier windows searched.
#[derive(Clone, Debug, PartialEq)]
pub struct Carried {
    /// Index of the window.
    pub window: u64,
    pub(super) trials: Vec<Trial>,
}

/// State of one trial.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Trial {
    /// Noise of the last window that had its own.
    pub(super) noise: Noise,
    /// Open event, which later hits may still join.
    pub(super) sweep: Sweep,
}

impl Carried {
    /// Returns the empty state at the start of a stream.
    pub(super) fn nothing(dms: usize) -> Self {
        Self { window: 0, trials: vec![Trial::default(); dms] }
    }

    /// Returns the state as 64-bit words.
    pub fn words(&self) -> Vec<u64> {
        let trial = |trial: &Trial| {
            let Noise { mean, sigma } = trial.noise;
            let hit = |hit: Option<Hit>| {
                let hit = hit.unwrap_or(Hit { time: 0, width: 0, snr: 0.0 });
                [hit.time, hit.width, hit.snr.to_bits()]
            };
            let (best, inner) = (hit(trial.sweep.best), hit(trial.sweep.inner));
            [[mean.to_bits(), sigma.to_bits()].as_slice(), &best, &inner].concat()
        };
        std::iter::once(self.window).chain(self.trials.iter().flat_map(trial)).collect()
    }

    /// Creates a state from its words.
    ///
    /// # Errors
    /// [`Error::Parameter`] for another number of trials.
    pub fn from_words(words: &[u64], dms: usize) -> Result<Self> {
        let (Some(window), true) = (words.first(), words.len() == 1 + TRIAL * dms) else {
            let rule = format!("{dms} trials take {}", 1 + TRIAL * dms);
            return Err(Error::parameter("words of the search's state", words.len(), rule));
        };
        let trial = |words: &[u64]| {
            let hit = |words: &[u64]| {
                let hit = Hit { time: words[0], width: words[1], snr: f64::from_bits(words[2]) };
                (hit.width > 0).then_some(hit)
            };
            let sweep = Sweep { best: hit(&words[2..5]), inner: hit(&words[5..8]) };
            let [mean, sigma] = [words[0], words[1]].map(f64::from_bits);
            Trial { noise: Noise { mean, sigma }, sweep }
        };
        Ok(Self { window: *window, trials: words[1..].chunks_exact(TRIAL).map(trial).collect() })
    }

    /// Returns an error for values that no search of this plan produces, so that none overflows.
    pub(super) fn check(&self, plan: &Plan) -> Result<()> {
        let start = self.window.checked_mul(plan.window_times() as u64);
        let Some(start) = start.filter(|start| *start < GREATEST) else {
            let rule = "it is damaged: no recording has so many";
            return Err(Error::parameter("window of the search's state", self.window, rule));
        };
        for hit in self.trials.iter().filter_map(|trial| trial.sweep.best) {
            if hit.time >= start {
                let rule = format!("samples before {start} alone were searched");
                return Err(Error::parameter("event in the search's state", hit.time, rule));
            }
            if hit.width > plan.max_width() as u64 {
                let rule = format!("the widest boxcar has {} samples", plan.max_width());
                return Err(Error::parameter("width in the search's state", hit.width, rule));
            }
        }
        Ok(())
    }
}
