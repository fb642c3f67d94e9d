//! Reference implementation of cleaning: plain loops in double precision.
//!
//! Invariant: reads samples one by one, whatever their encoding.

use super::plan::Plan;
use crate::error::Result;
use crate::math::RunningMedian;
use crate::sample::{Samples, set_value};

/// Running medians of a stream, and its time.
#[derive(Debug)]
pub(super) struct Engine {
    medians: RunningMedian,
    time: u64,
}

impl Engine {
    pub(super) fn new(plan: &Plan) -> Self {
        Self { medians: RunningMedian::sparse(plan.encoding(), plan.channels()), time: 0 }
    }

    /// Cleans rows: see [`super::Cleaner`].
    ///
    /// `x'[t, c] = k x[t, c] - round(k mean_c x[t, c])` over the unmasked channels; `k` is the plan's scale.
    pub(super) fn run(&mut self, plan: &Plan, input: Samples<'_>, output: &mut [u8]) -> Result<()> {
        for (time, row) in output.chunks_exact_mut(plan.output_row_bytes()).enumerate() {
            let values = filled(plan, self.time, &mut self.medians, input.slice(time, 1));
            let mean = if plan.options().zero_dm { mean(plan, &values) } else { 0.0 };
            for (channel, value) in values.iter().enumerate() {
                let masked = plan.options().masked[channel];
                let scaled = value * f64::from(plan.scale());
                let cleaned = if masked { scaled } else { scaled - mean };
                set_value(row, plan.output_encoding(), channel, cleaned);
            }
            self.time += 1;
        }
        Ok(())
    }

    pub(super) fn reset(&mut self) {
        self.medians.reset();
        self.time = 0;
    }
}

/// Returns a row's values. Bad cells become their channel's running median or, before there is one, the mean of the
/// row's good cells.
fn filled(plan: &Plan, time: u64, medians: &mut RunningMedian, row: Samples<'_>) -> Vec<f64> {
    let mut values: Vec<f64> = (0..plan.channels()).map(|c| row.value(0, c)).collect();
    let bad = plan.bad_channels(time);
    let is_bad = |channel: usize| bad.contains(&(channel as u32));
    medians.observe(time, row.bytes(), is_bad);
    let good = (0..values.len()).filter(|c| !is_bad(*c) && !plan.options().masked[*c]);
    let good: Vec<f64> = good.map(|c| values[c]).collect();
    let fallback = if good.is_empty() { 0.0 } else { total(&good).round_ties_even() };
    for channel in bad {
        let channel = *channel as usize;
        values[channel] = medians.value(channel).map_or(fallback, f64::from);
    }
    values
}

fn total(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Returns the scaled mean over unmasked channels; for integers rounded to nearest, ties to even.
fn mean(plan: &Plan, values: &[f64]) -> f64 {
    let masked = &plan.options().masked;
    let good = values.iter().zip(masked).filter(|(x, masked)| !**masked && x.is_finite());
    let good: Vec<f64> = good.map(|(x, _)| *x).collect();
    if good.is_empty() {
        return 0.0;
    }
    let mean = f64::from(plan.scale()) * total(&good);
    if plan.encoding().range().is_some() { mean.round_ties_even() } else { mean }
}
