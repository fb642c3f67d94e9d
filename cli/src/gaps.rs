//! Filled gaps of a recording, as listed in documents and warnings.

use schemars::JsonSchema;
use serde::Serialize;
use sidereal::io;

use crate::say::warning;

/// Most gaps reported one by one.
const TOLD: usize = 8;

/// Interval without data, filled with each channel's running median.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct Gap {
    /// Seconds from the first sample's start.
    start_s: f64,
    length_s: f64,
}

impl Gap {
    pub(crate) fn length_s(&self) -> f64 {
        self.length_s
    }
}

/// Converts gaps to seconds; the first row starts at `first_s`.
pub(crate) fn listed(gaps: &[io::Gap], tsamp_s: f64, first_s: f64) -> Vec<Gap> {
    let seconds = |times: u64| times as f64 * tsamp_s;
    let gap = |gap: &io::Gap| Gap {
        start_s: first_s + seconds(gap.start_time),
        length_s: seconds(gap.times),
    };
    gaps.iter().map(gap).collect()
}

/// Warns of gaps: of each if they are few, otherwise of their sum.
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

/// Time in which a search can find nothing.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct Unsearched {
    /// Seconds from the first sample's start.
    start_s: f64,
    length_s: f64,
}

impl Unsearched {
    /// Converts rows to seconds; the first row starts at `first_s`.
    pub(crate) fn listed(rows: &[io::Gap], tsamp_s: f64, first_s: f64) -> Vec<Self> {
        let times = listed(rows, tsamp_s, first_s).into_iter();
        times.map(|Gap { start_s, length_s }| Self { start_s, length_s }).collect()
    }
}

/// Warns of times in which a search can find nothing because of gaps.
pub(crate) fn warn_of_unsearched(unsearched: &[Unsearched], quiet: bool) {
    let Some(first) = unsearched.first() else { return };
    let total: f64 = unsearched.iter().map(|one| one.length_s).sum();
    warning!(quiet: quiet,
        "{total:.4} s were not searched, from {:.4} s on: gaps fill more than a quarter of the \
         time over which the noise is measured there.",
        first.start_s
    );
}
