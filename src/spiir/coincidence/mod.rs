//! Coincidences: triggers of one template in several detectors, with false-alarm rates from time slides.

mod background;
mod density;
mod online;
mod search;
mod segments;

use super::trigger::{Trigger, reweighted};
use crate::error::{Error, Result};
use crate::units::Gps;
pub use background::{
    BackgroundOptions, MASS_EDGES_MSUN, MEMORY_S, OnlineBackground, RankedRate, SIGNAL_HZ,
    Significance, VETO_S,
};
pub use online::{Change, Coincider, Published, State};
pub use search::{search, search_on};
pub use segments::{Segments, SegmentsBuilder};

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

/// Triggers that the time slides use.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Sample {
    /// All triggers. Those of signals are included, paired with noise, so the rates are conservative.
    #[default]
    Inclusive,
    /// Excludes zero-lag events of at least this ranking: all triggers of their detectors within `cluster_s` of the
    /// event's triggers, and that time.
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

/// Rate with its statistical uncertainty.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// Events per second.
    pub hz: f64,
    /// Standard deviation.
    pub sigma_hz: f64,
}

/// Events of all time slides.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Background {
    /// Rankings, greatest first.
    pub rankings: Vec<f64>,
    /// Coincident time of all slides together, in seconds.
    pub time_s: f64,
    /// Number of slides.
    pub slides: usize,
    /// Number of loudest zero-lag events whose triggers were left out.
    pub left_out: usize,
}

impl Background {
    /// Counts the events at least as loud.
    pub fn louder(&self, ranking: f64) -> usize {
        self.rankings.partition_point(|other| *other >= ranking)
    }

    /// Returns the false-alarm rate of events at least as loud, `(1 + louder) / time`, and its standard deviation,
    /// `sqrt(1 + louder) / time`; `None` without background time.
    ///
    /// Without a louder event both are `1 / time`, and the rate is an upper limit.
    ///
    /// # Source
    /// Usman et al. 2016, Class. Quantum Grav. 33, 215004: the count includes the event itself.
    pub fn rate(&self, ranking: f64) -> Option<Rate> {
        let count = 1.0 + self.louder(ranking) as f64;
        (self.time_s > 0.0)
            .then(|| Rate { hz: count / self.time_s, sigma_hz: count.sqrt() / self.time_s })
    }
}

/// Coincident event.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Index of the template.
    pub template: u32,
    /// Time of the trigger with the best ranking.
    pub gps: Gps,
    /// Trigger of each detector, in the order of the detectors.
    pub detectors: Vec<Option<TimedTrigger>>,
    /// Root of the sum of squares of the signal-to-noise ratios.
    pub network_snr: f64,
    /// Ranking statistic: see [`Ranking`].
    pub ranking: f64,
    /// Background events at least as loud.
    pub louder: usize,
    /// False-alarm rate of events at least as loud: see [`Background::rate`]. `None` without a background.
    pub far_hz: Option<f64>,
    /// Standard deviation of the false-alarm rate.
    pub far_sigma: Option<f64>,
    /// Probability of an accidental event at least as loud in the time searched, `1 - exp(-far time)`.
    pub false_alarm_probability: Option<f64>,
}

/// Trigger without a coincident one in another detector, the best within the cluster window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Single {
    /// Index of the detector.
    pub detector: usize,
    /// Trigger.
    pub trigger: TimedTrigger,
}

/// Events of a search and their background.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Found {
    /// Events, greatest ranking first.
    pub events: Vec<Event>,
    /// Triggers without a partner, greatest ranking first, if requested.
    pub singles: Vec<Single>,
    /// Background from time slides.
    pub background: Background,
    /// Time in seconds in which at least two detectors were valid.
    pub livetime_s: f64,
}

/// Histogram of events by ranking, with the expected background.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Histogram {
    /// Edges of the bins, one more than there are bins. The last bin includes its upper edge.
    pub edges: Vec<f64>,
    /// Events in each bin.
    pub events: Vec<u64>,
    /// Background events in each bin, scaled to the time searched.
    pub expected: Vec<f64>,
    /// Standard deviation of `expected`, from the number of background events.
    pub expected_sigma: Vec<f64>,
}

impl Found {
    /// Returns the events and the background in `bins` (at least 1) bins of equal width, from the least ranking to
    /// the greatest; empty without events and background.
    pub fn histogram(&self, bins: usize) -> Histogram {
        let events = self.events.iter().map(|event| event.ranking);
        let rankings = || events.clone().chain(self.background.rankings.iter().copied());
        let (least, most) =
            rankings().fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), x| (a.min(x), b.max(x)));
        if least > most {
            return Histogram::default();
        }
        let bins = bins.max(1);
        let width = ((most - least) / bins as f64).max(f64::MIN_POSITIVE);
        let count = |rankings: &mut dyn Iterator<Item = f64>| {
            let mut counts = vec![0_u64; bins];
            for ranking in rankings {
                counts[(((ranking - least) / width) as usize).min(bins - 1)] += 1;
            }
            counts
        };
        let background = count(&mut self.background.rankings.iter().copied());
        let time_s = self.background.time_s;
        let scale = if time_s > 0.0 { self.livetime_s / time_s } else { 0.0 };
        Histogram {
            edges: (0..=bins).map(|edge| least + edge as f64 * width).collect(),
            events: count(&mut events.clone()),
            expected: background.iter().map(|count| *count as f64 * scale).collect(),
            expected_sigma: background.iter().map(|count| (*count as f64).sqrt() * scale).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_count_the_event_itself() {
        let background =
            Background { rankings: vec![9.0, 7.0, 7.0, 6.0], time_s: 50.0, slides: 5, left_out: 0 };
        assert_eq!(background.rate(10.0), Some(Rate { hz: 0.02, sigma_hz: 0.02 }));
        assert_eq!(background.rate(7.0), Some(Rate { hz: 0.08, sigma_hz: 0.04 }));
        assert_eq!(background.louder(1.0), 4);
        assert_eq!(Background::default().rate(5.0), None);
    }
}
