//! Reference implementation of dedispersion: plain loops in f64.

use super::plan::{Plan, Sum};
use crate::error::Result;
use crate::sample::Samples;
use crate::view::PlaneMut;

/// History of binned rows; axes time, channel.
#[derive(Debug)]
pub(super) struct Engine {
    plan: Plan,
    /// Binned rows from output time `first` on; the last may be incomplete.
    rows: Vec<f64>,
    first: u64,
    /// Input rows in the incomplete bin.
    open: usize,
}

/// Largest number of output times in one call of [`Engine::emit`].
const BLOCK: usize = 4096;

impl Engine {
    /// Allocates the plan's history; nothing is allocated later.
    pub(super) fn new(plan: &Plan) -> Self {
        let rows = Vec::with_capacity((plan.max_shift() + BLOCK + 1) * plan.channels());
        Self { plan: plan.clone(), rows, first: 0, open: 0 }
    }

    /// Returns the largest number of output times in one call of [`Engine::emit`].
    pub(super) fn block_times(&self) -> usize {
        BLOCK
    }

    /// Resets the state for a new stream.
    pub(super) fn reset(&mut self) {
        self.rows.clear();
        (self.first, self.open) = (0, 0);
    }

    /// Loads input rows and sums `downsample` of them into one.
    pub(super) fn load(&mut self, input: Samples<'_>, _before: u64) -> Result<()> {
        let plan = &self.plan;
        let channels = plan.channels();
        let (low, high) = plan.range();
        for time in 0..input.times() {
            if self.open == 0 {
                self.rows.extend(std::iter::repeat_n(0.0, channels));
            }
            let start = self.rows.len() - channels;
            for (channel, sum) in self.rows[start..].iter_mut().enumerate() {
                let value = input.value(time, channel);
                let clamped = value.clamp(f64::from(low), f64::from(high));
                *sum += if plan.output_is_integer() { clamped } else { value };
            }
            self.open = (self.open + 1) % plan.downsample();
        }
        Ok(())
    }

    /// Computes one output sample: `sum_c x[t + shift(c, d), c]`, with missing samples as 0.
    fn sum(&self, dm: usize, time: u64) -> f64 {
        let plan = &self.plan;
        let channels = plan.channels();
        let start = (time - self.first) as usize;
        let sample = |channel: &usize| {
            let row = start + plan.shift(dm, *channel);
            self.rows.get(row * channels + channel).copied().unwrap_or(0.0)
        };
        plan.channels_used().iter().map(sample).sum()
    }

    /// Writes `times` output samples of every trial, from output time `first` on, at `column`, and drops the rows
    /// that only they needed.
    pub(super) fn emit<T: Sum>(
        &mut self,
        first: u64,
        times: usize,
        output: &mut PlaneMut<'_, T>,
        column: usize,
    ) -> Result<()> {
        for dm in 0..self.plan.dms().len() {
            let row = &mut output.row_mut(dm)[column..column + times];
            for (time, y) in row.iter_mut().enumerate() {
                *y = T::from_f64(self.sum(dm, first + time as u64));
            }
        }
        self.rows.drain(..times * self.plan.channels());
        self.first = first + times as u64;
        Ok(())
    }
}
