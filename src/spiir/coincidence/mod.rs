//! Coincidences: triggers of one template in several detectors, with false-alarm rates from time slides.

mod background;
mod combine;
mod found;
mod search;
pub mod segments;
mod slides;
mod table;

pub use background::{Background, Rate};
pub use found::{Event, Found, Histogram, Single};
pub use search::{search, search_on};
pub use segments::Segments;

use super::trigger::{Trigger, reweighted};
use crate::error::{Error, Result};
use crate::units::Gps;

/// Most detectors.
pub const MAX_DETECTORS: usize = 4;

/// Trigger with the arrival time of its signal's peak at the detector.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TimedTrigger {
    /// Index of the template, the same in every detector.
    pub template: u32,
    /// Time of the event.
    pub gps: Gps,
    /// Signal-to-noise ratio.
    pub snr: f32,
    /// Phase in radians.
    pub phase: f32,
    /// Xi-squared.
    pub xi2: f32,
}

impl TimedTrigger {
    /// Converts a trigger of a stream whose sample 0 is at `start`. `peak_offset_s` is the event time minus the time
    /// of the output sample, from this detector's bank for the template.
    pub fn new(trigger: &Trigger, start: Gps, rate_hz: u32, peak_offset_s: f64) -> Self {
        let sample = start.plus_samples(trigger.sample as i64, rate_hz);
        let offset_s = f64::from(trigger.offset) / f64::from(rate_hz.max(1));
        Self {
            template: trigger.template,
            gps: sample.plus_s(offset_s + peak_offset_s),
            snr: trigger.snr(),
            phase: trigger.phase(),
            xi2: trigger.xi2,
        }
    }

    /// Returns the signal-to-noise ratio reduced by a mismatch of the shape: see [`reweighted`].
    pub fn reweighted(&self) -> f32 {
        reweighted(self.snr, self.xi2)
    }
}

/// Triggers and valid time of one detector.
#[derive(Clone, Copy, Debug)]
pub struct Detector<'a> {
    /// Triggers in any order.
    pub triggers: &'a [TimedTrigger],
    /// Times at which triggers were possible, on the scale of the trigger times; excludes gates and their pads.
    pub valid: &'a Segments,
}

/// Ranking statistic of events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ranking {
    /// Root of the sum of squares of the reweighted signal-to-noise ratios.
    #[default]
    Reweighted,
    /// Network signal-to-noise ratio.
    Snr,
}

impl Ranking {
    /// Returns a trigger's contribution to the square of an event's ranking.
    fn square(self, trigger: &TimedTrigger) -> f64 {
        let ranking = match self {
            Self::Reweighted => trigger.reweighted(),
            Self::Snr => trigger.snr,
        };
        f64::from(ranking).powi(2)
    }
}

/// Selects the triggers that the time slides use.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Sample {
    /// All. Triggers of signals are included, paired with noise, so the rates are conservative.
    #[default]
    Inclusive,
    /// Excludes zero-lag events of at least this ranking, and all triggers of their detectors within `cluster_s` of
    /// theirs.
    Below(f64),
    /// Excludes the foreground in the same way: the loudest events, as long as fewer than [`FOREGROUND_FALSE_ALARMS`]
    /// events as loud are expected in the time searched, with the event's own triggers and those of louder events
    /// left out.
    ExcludeForeground,
}

/// Expected false alarms in the time searched below which an event belongs to the foreground.
pub const FOREGROUND_FALSE_ALARMS: f64 = 0.05;

/// Options of the coincidence search.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Longest time between triggers of each pair of detectors: the light travel time and a pad.
    pub windows_s: Vec<Vec<f64>>,
    /// Requested time slides; fewer are made if the common time is too short. 0 for no background.
    pub slides: usize,
    /// Slide step in seconds: detector `j` of slide `i` (from 1) is shifted by `i j` steps.
    pub slide_interval_s: f64,
    /// Window in seconds within which only the best event is kept, whatever the template.
    pub cluster_s: f64,
    /// Ranking statistic.
    pub ranking: Ranking,
    /// Triggers that make the background.
    pub background: Sample,
    /// Whether to list triggers without a partner.
    pub singles: bool,
}

impl Options {
    /// Returns the defaults for these windows: 100 slides of 0.1 s, a cluster window of 0.5 s, an inclusive
    /// background.
    pub fn new(windows_s: Vec<Vec<f64>>) -> Self {
        Self {
            windows_s,
            slides: 100,
            slide_interval_s: 0.1,
            cluster_s: 0.5,
            ranking: Ranking::default(),
            background: Sample::default(),
            singles: false,
        }
    }

    /// Checks all values for this number of detectors.
    pub(crate) fn check(&self, detectors: usize) -> Result<()> {
        if !(2..=MAX_DETECTORS).contains(&detectors) {
            let rule = format!("coincidence is between 2 to {MAX_DETECTORS}");
            return Err(Error::parameter("detectors", detectors, rule));
        }
        let rows = self.windows_s.iter().map(Vec::len);
        if self.windows_s.len() != detectors || rows.clone().any(|row| row != detectors) {
            let found: Vec<usize> = rows.collect();
            let rule = format!("there are {detectors} detectors");
            let name = "rows of the coincidence windows";
            return Err(Error::parameter(name, format!("{found:?}"), rule));
        }
        for (i, j) in (0..detectors).flat_map(|i| (0..i).map(move |j| (i, j))) {
            let window = self.windows_s[i][j];
            let equal = window == self.windows_s[j][i];
            if !(equal && window > 0.0 && window <= 1.0) {
                let rule = format!(
                    "it must be above 0, at most 1, and the same both ways (detectors {j} and {i})"
                );
                return Err(Error::parameter("coincidence window (s)", window, rule));
            }
            if self.slides > 0 && self.slide_interval_s <= 2.0 * window {
                let rule = format!("it must be above two windows of {window} s");
                let name = "interval of time slides (s)";
                return Err(Error::parameter(name, self.slide_interval_s, rule));
            }
        }
        if self.slides > 0 && !(1e-3..=1e6).contains(&self.slide_interval_s) {
            let rule = "it must be 0.001 to 1e6";
            let name = "interval of time slides (s)";
            return Err(Error::parameter(name, self.slide_interval_s, rule));
        }
        if !(0.0..=1e6).contains(&self.cluster_s) {
            let rule = "it must be 0 to 1e6";
            return Err(Error::parameter("cluster window (s)", self.cluster_s, rule));
        }
        Ok(())
    }
}
