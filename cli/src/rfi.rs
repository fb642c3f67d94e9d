//! Report on RFI mitigation, whose steps `--rfi` names.

use std::fmt::Write as _;

use schemars::JsonSchema;
use serde::Serialize;
use sidereal::clean::{Bandpass, Mitigated};

pub(crate) use sidereal::clean::Rfi;

/// Default of the most candidates per minute.
pub(crate) const MAX_PER_MINUTE: usize = 1000;

/// Report on mitigation, for documents.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct Document {
    /// Value of the option: `auto`, `none` or the steps.
    asked: String,
    /// Steps that were run: fewer than requested if the recording has too few channels or bits.
    steps: Vec<&'static str>,
    /// Length of a block in seconds; 0 without steps.
    block_s: f64,
    /// Detections and their treatment, one sentence each.
    done: Vec<String>,
    /// Fraction of the samples replaced by their channel's level because they were outliers.
    masked_part: f64,
    /// Number of spectra whose broadband component was removed.
    broadband_spectra: u64,
    /// Number of broadband signals.
    broadband_signals: u64,
    /// Seconds of dropouts.
    dropout_s: f64,
    /// Number of dropouts.
    dropouts: u64,
    /// Seconds during which a changed level was tracked.
    followed_s: f64,
    /// Largest relative change of a tracked level.
    largest_change: f64,
}

impl Document {
    pub(crate) fn new(asked: Rfi, found: Option<&Mitigated>, tsamp_s: f64) -> Self {
        let found = found.copied().unwrap_or_default();
        let done = sentences(asked, &found, tsamp_s);
        let seconds = |rows: u64| (rows as f64 * tsamp_s * 1e6).round() / 1e6;
        let part = |count: u64, of: u64| (count as f64 / of.max(1) as f64 * 1e6).round() / 1e6;
        Self {
            asked: asked.to_string(),
            steps: found.steps.names(),
            block_s: found.block_rows as f64 * tsamp_s,
            done,
            masked_part: part(found.masked_cells, found.cells),
            broadband_spectra: found.broadband_rows,
            broadband_signals: found.broadband_runs,
            dropout_s: seconds(found.lost_rows),
            dropouts: found.lost_runs,
            followed_s: seconds(found.followed_rows),
            largest_change: (found.largest_change * 1e6).round() / 1e6,
        }
    }

    /// Formats the report as terminal output; empty if nothing was done.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        for line in &self.done {
            let _ = writeln!(text, "{line}");
        }
        text
    }
}

/// Formats detections, treatment and reasons as text.
fn sentences(asked: Rfi, found: &Mitigated, tsamp_s: f64) -> Vec<String> {
    let mut lines = Vec::new();
    let percent = |part: u64, whole: u64| 100.0 * part as f64 / whole.max(1) as f64;
    let seconds = |rows: u64| rows as f64 * tsamp_s;
    if found.masked_cells > 0 {
        let part = percent(found.masked_cells, found.cells);
        lines.push(format!(
            "Interference (--rfi {asked}): {part:.2} % of the samples, in channels that stood out for a while, \
             were replaced by their channel's level."
        ));
    }
    if found.steps.bandpass == Bandpass::Always && found.rows > 0 {
        lines.push(format!(
            "Interference (--rfi {asked}): each spectrum's broadband part was taken away."
        ));
    } else if found.broadband_rows > 0 {
        lines.push(format!(
            "Interference (--rfi {asked}): {} signals of no dispersion stood out over the whole band; their broadband \
             part was taken away from {} spectra ({:.2} %).",
            found.broadband_runs,
            found.broadband_rows,
            percent(found.broadband_rows, found.rows),
        ));
    }
    if found.lost_rows > 0 {
        lines.push(format!(
            "Interference (--rfi {asked}): the receiver dropped out {} times, {:.3} s in all; other spectra stand in \
             for those.",
            found.lost_runs,
            seconds(found.lost_rows),
        ));
    }
    if found.followed_rows > 0 {
        lines.push(format!(
            "Interference (--rfi {asked}): the level changed, by up to {:.1} %; it was followed through {:.1} s.",
            100.0 * found.largest_change,
            seconds(found.followed_rows),
        ));
    }
    lines
}
