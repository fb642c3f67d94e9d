//! Gaps of a recording that were filled, as documents list them and warnings tell them.

use schemars::JsonSchema;
use serde::Serialize;
use sidereal::io;

use crate::say::warning;

/// Gaps that are told one by one.
const TOLD: usize = 8;

/// A time without data, which each channel's running median fills.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct Gap {
    /// From the first sample's start.
    start_s: f64,
    length_s: f64,
}

impl Gap {
    pub(crate) fn length_s(&self) -> f64 {
        self.length_s
    }
}

/// Gaps in seconds, of rows whose first starts at `first_s`.
pub(crate) fn listed(gaps: &[io::Gap], tsamp_s: f64, first_s: f64) -> Vec<Gap> {
    let seconds = |times: u64| times as f64 * tsamp_s;
    let gap = |gap: &io::Gap| Gap {
        start_s: first_s + seconds(gap.start_time),
        length_s: seconds(gap.times),
    };
    gaps.iter().map(gap).collect()
}

/// Warns of gaps: of each of a few, of the sum of many.
pub(crate) fn warn(gaps: &[Gap], quiet: bool) {
    if gaps.len() > TOLD {
        let total: f64 = gaps.iter().map(|gap| gap.length_s).sum();
        warning!(quiet: quiet, "{} gaps, {total:.4} s in all, were filled.", gaps.len());
        return;
    }
    for Gap { start_s, length_s } in gaps {
        warning!(quiet: quiet, "a gap of {length_s:.4} s at {start_s:.4} s was filled.");
    }
}
