//! Reference implementation of the search: plain loops in double precision over whole series.

use super::plan::{Input, Plan};
use super::rules::{
    Carried, Event, Hit, Noise, Statistics, Sweep, Threshold, statistics, window_noise,
};
use crate::error::{Error, Result};

/// Series of every trial, searched at the end of the stream.
#[derive(Debug)]
pub(super) struct Engine {
    plan: Plan,
    series: Vec<Vec<f64>>,
    /// Valid samples of each trial.
    ends: Vec<u64>,
}

impl Engine {
    pub(super) fn new(plan: &Plan) -> Self {
        let dms = plan.dms();
        Self { plan: plan.clone(), series: vec![Vec::new(); dms], ends: vec![u64::MAX; dms] }
    }

    pub(super) fn run(&mut self, input: Input<'_>, _: &mut Vec<Event>) -> Result<()> {
        for (dm, row) in self.series.iter_mut().enumerate() {
            input.append(dm, 0..input.times(), row);
        }
        Ok(())
    }

    pub(super) fn end_at(&mut self, valid_times: &dyn Fn(usize) -> u64) {
        self.ends.iter_mut().enumerate().for_each(|(dm, end)| *end = valid_times(dm));
    }

    pub(super) fn flush(&mut self, events: &mut Vec<Event>) -> Result<()> {
        for (dm, (row, end)) in self.series.iter_mut().zip(&self.ends).enumerate() {
            row.truncate(usize::try_from(*end).unwrap_or(usize::MAX));
            events.extend(search(&self.plan, dm, row));
        }
        self.reset();
        Ok(())
    }

    pub(super) fn peek(&self, events: &mut Vec<Event>) {
        for (dm, (row, end)) in self.series.iter().zip(&self.ends).enumerate() {
            let valid = row.len().min(usize::try_from(*end).unwrap_or(usize::MAX));
            events.extend(search(&self.plan, dm, &row[..valid]));
        }
    }

    /// Settles nothing.
    pub(super) fn settle(&mut self, _: &mut Vec<Event>) -> Result<u64> {
        Ok(0)
    }

    /// Returns the state of the stream's start.
    pub(super) fn carried(&mut self) -> Result<Carried> {
        Ok(Carried::nothing(self.plan.dms()))
    }

    pub(super) fn restore(&mut self, carried: &Carried) -> Result<()> {
        if carried.window > 0 {
            let rule = "the reference goes on from the start alone";
            return Err(Error::parameter("window of the search's state", carried.window, rule));
        }
        Ok(())
    }

    pub(super) fn reset(&mut self) {
        self.series.iter_mut().for_each(Vec::clear);
        self.ends.fill(u64::MAX);
    }
}

/// Returns the events of one complete trial.
///
/// `snr[t, w] = (sum_{i < w} y[t + i] - w mu) / (sigma sqrt(w))`, with the noise `mu`, `sigma` of
/// the window that holds `t`, at the starts `t` that are multiples of the width's stride.
pub fn search(plan: &Plan, dm: usize, series: &[f64]) -> Vec<Event> {
    let mut series = series.to_vec();
    let mut events = Vec::new();
    let (mut sweep, mut last) = (Sweep::default(), Noise::default());
    for start in (0..series.len()).step_by(plan.window_times()) {
        let window = &series[start..series.len().min(start + plan.window_times())];
        let own = statistics(plan, (start / plan.window_times()) as u64, window.len());
        match own {
            Statistics::Own => last = window_noise(plan, window),
            Statistics::Preceding => {}
            Statistics::None => break,
        }
        let end = series.len().min(start + plan.capacity());
        let reach = &mut series[start..end];
        reach.iter_mut().filter(|y| !y.is_finite()).for_each(|y| *y = repaired(last.mean));
        for mut hit in best_of_starts(window_hits(plan, reach, last)) {
            hit.time += start as u64;
            events.extend(sweep.offer(hit));
        }
    }
    events.extend(sweep.end());
    events.into_iter().map(|hit: Hit| hit.event(dm)).collect()
}

/// Returns the replacement of a non-finite sample, rounded as a float series holds it.
fn repaired(mean: f64) -> f64 {
    f64::from(mean as f32)
}

/// Returns the strongest hit of each start, the narrowest of equal ones.
fn best_of_starts(hits: Vec<Hit>) -> Vec<Hit> {
    let mut best: Vec<Hit> = Vec::new();
    for hit in hits {
        match best.last_mut() {
            Some(last) if last.time == hit.time => {
                if hit.snr > last.snr {
                    *last = hit;
                }
            }
            _ => best.push(hit),
        }
    }
    best
}

/// Returns every boxcar at or above its threshold, by start, then by width.
fn window_hits(plan: &Plan, reach: &[f64], noise: Noise) -> Vec<Hit> {
    let mut hits = Vec::new();
    if noise.sigma == 0.0 {
        return hits;
    }
    for time in 0..reach.len().min(plan.window_times()) {
        for &width in plan.widths() {
            if !time.is_multiple_of(plan.stride(width)) || time + width > reach.len() {
                continue;
            }
            let sum: f64 = reach[time..time + width].iter().sum();
            let threshold = Threshold::new(plan, noise, width);
            if sum >= threshold.least {
                let snr = threshold.snr(sum);
                hits.push(Hit { time: time as u64, width: width as u64, snr });
            }
        }
    }
    hits
}
