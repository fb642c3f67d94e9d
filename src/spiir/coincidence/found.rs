//! Results of a coincidence search.

use super::TimedTrigger;
use super::background::Background;
use crate::units::Gps;

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
    /// Ranking statistic: see [`super::Ranking`].
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
