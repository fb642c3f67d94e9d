//! Gaps of a recording that were filled, as documents list them and warnings tell them.

use serde::Serialize;
use sidereal::io;

/// A time without data, which each channel's running median fills.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Gap {
    /// From the first sample's start.
    start_s: f64,
    length_s: f64,
}

/// Gaps in seconds.
pub(crate) fn listed(gaps: &[io::Gap], tsamp_s: f64) -> Vec<Gap> {
    let seconds = |times: u64| times as f64 * tsamp_s;
    let gap =
        |gap: &io::Gap| Gap { start_s: seconds(gap.start_time), length_s: seconds(gap.times) };
    gaps.iter().map(gap).collect()
}

/// Tells each gap on standard error.
pub(crate) fn warn(gaps: &[io::Gap], tsamp_s: f64) {
    for Gap { start_s, length_s } in listed(gaps, tsamp_s) {
        eprintln!("sidereal: warning: a gap of {length_s:.4} s at {start_s:.4} s was filled.");
    }
}
