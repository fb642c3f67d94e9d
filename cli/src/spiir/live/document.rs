//! Document events.json of a run, and its text.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use schemars::JsonSchema;
use serde::Serialize;
use sidereal::live::frames::{Begun, Count, Counts, Reason};
use sidereal::pipeline::cbc::{Latency, OnlineDetector};

use crate::plots::{plural, short};
use crate::spiir::background::{BackgroundRow, RatedRow};
use crate::spiir::search::LatencyRow;

/// Contents of events.json.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct Document {
    /// Whether the run reached --until; otherwise `reason` states why not.
    pub(super) complete: bool,
    pub(super) reason: Option<String>,
    /// Final events, loudest first.
    pub(super) events: Vec<RatedRow>,
    /// Total number of final events, and of retracted ones.
    pub(super) found: u64,
    pub(super) retracted: u64,
    pub(super) detectors: Vec<DetectorRow>,
    pub(super) background: BackgroundRow,
    /// Latency of a trigger after its sample, of the detector that has the largest.
    pub(super) latency_s: LatencyRow,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(super) struct DetectorRow {
    pub(super) name: String,
    /// Channel of the strain; absent if no frame of the detector could be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) channel: Option<String>,
    pub(super) start_gps: f64,
    pub(super) rate_hz: u32,
    pub(super) duration_s: f64,
    /// Strain that was valid.
    pub(super) valid_s: f64,
    /// Time in which triggers were possible.
    pub(super) livetime_s: f64,
    /// Times that its filters were restarted after a gap longer than their memory.
    pub(super) restarts: u64,
    pub(super) templates: usize,
    pub(super) filters: usize,
    pub(super) lowest_match: f64,
    pub(super) triggers: u64,
    /// Frames that were read.
    pub(super) frames: u64,
    /// Invalid strain by reason.
    pub(super) gaps: BTreeMap<&'static str, GapRow>,
    /// Files that were not used because their time had passed as a gap, or because they lie an hour or more after all others.
    pub(super) late: u64,
    /// Files whose time had been read.
    pub(super) repeated: u64,
}

/// Invalid strain of one reason.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub(crate) struct GapRow {
    /// Pieces of missing strain (1 s, or 64 s while more than that is missing), or frames with invalid samples.
    pub(crate) gaps: u64,
    pub(crate) seconds: f64,
}

impl GapRow {
    /// Describes a reason's gaps at a sampling rate.
    pub(super) fn new(count: &Count, rate_hz: u32) -> Self {
        Self { gaps: count.gaps, seconds: count.samples as f64 / f64::from(rate_hz) }
    }
}

impl DetectorRow {
    pub(super) fn new(
        one: &OnlineDetector<'_>,
        channel: Option<String>,
        counts: &Counts,
        begun: Begun,
    ) -> Self {
        let seconds = |samples: u64| samples as f64 / f64::from(begun.rate_hz);
        let gaps = Reason::ALL.iter().zip(&counts.gaps).filter(|(_, count)| count.gaps > 0);
        let fits = one.bank.templates.iter().map(|template| template.fit);
        Self {
            name: one.detector.to_owned(),
            channel,
            start_gps: begun.start.s(),
            rate_hz: begun.rate_hz,
            duration_s: seconds(counts.samples),
            valid_s: seconds(counts.valid()),
            livetime_s: 0.0,
            restarts: one.restarts,
            templates: one.bank.templates.len(),
            filters: one.bank.templates.iter().map(|template| template.filters.filters()).sum(),
            lowest_match: fits.fold(1.0, f64::min),
            triggers: one.triggers,
            frames: counts.frames,
            gaps: gaps
                .map(|(reason, count)| (reason.name(), GapRow::new(count, begun.rate_hz)))
                .collect(),
            late: counts.late,
            repeated: counts.repeated,
        }
    }
}

/// Returns the largest latency.
pub(super) fn largest(latencies: impl Iterator<Item = Latency>) -> Latency {
    let larger = |a: Latency, b: Latency| if b.total_s() > a.total_s() { b } else { a };
    latencies.reduce(larger).unwrap_or_default()
}

impl Document {
    /// Formats a line for each detector, and the number of events.
    pub(super) fn text(&self, place: &Path) -> String {
        let mut text = String::new();
        for one in &self.detectors {
            let gaps = one
                .gaps
                .iter()
                .map(|(reason, row)| format!(", {} s {reason}", short(row.seconds, 4)));
            let _ = writeln!(
                text,
                "{}: {} s, {} s of them valid{}; {} with {}, {}",
                one.name,
                short(one.duration_s, 6),
                short(one.valid_s, 6),
                gaps.collect::<String>(),
                plural(one.templates, "template"),
                plural(one.filters, "filter"),
                plural(one.triggers as usize, "trigger"),
            );
        }
        let _ = writeln!(text, "{}", self.background.text());
        text + &format!("{}: {}", place.display(), plural(self.found as usize, "event"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latency_is_the_largest_of_all_detectors() {
        let of = |whitening_s, triggers_s| Latency { whitening_s, resampling_s: 0.5, triggers_s };
        let all = [of(1.0, 0.5), of(9.0, 0.1), of(2.0, 0.7)];
        assert_eq!(largest(all.into_iter()), of(9.0, 0.1));
        assert_eq!(largest([].into_iter()), Latency::default());
    }
}
