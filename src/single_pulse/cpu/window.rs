//! One window of one trial: noise, prefix sums, hits.
//!
//! Invariant: hits come by start, then by width, whatever the groups' strides.

use super::Trial;
use super::kernels::{Boxes, Sample, Screen, Sum, accumulate, thin};
use crate::backend::simd::Level;
use crate::single_pulse::plan::{BLOCK, Group, Plan};
use crate::single_pulse::rules::{
    Event, GUESS, Hit, Noise, Statistics, Threshold, guess_indices, noise, statistics,
};

/// Buffers of one thread.
#[derive(Debug)]
pub(super) struct Scratch {
    guess: Vec<f64>,
    thresholds: Vec<Threshold>,
    rungs: Vec<Rung>,
    /// Bit mask per block of starts: groups that may have a hit in it.
    flags: Vec<u32>,
    pub(super) events: Vec<Event>,
}

/// Prefix sums of a group, in the narrowest sufficient type.
#[derive(Debug)]
enum Rung {
    Narrow(Boxes<i32>),
    Wide(Boxes<i64>),
    Real(Boxes<f64>),
}

impl Scratch {
    pub(super) fn new(plan: &Plan, events: usize) -> Self {
        Self {
            guess: Vec::with_capacity(GUESS),
            thresholds: vec![Threshold::default(); plan.widths().len()],
            rungs: plan.groups().iter().map(|group| Rung::new(plan, group)).collect(),
            flags: vec![0; plan.window_times() / BLOCK],
            events: Vec::with_capacity(events),
        }
    }

    /// Searches the current window of a trial and advances to the next.
    pub(super) fn search<T: Sample>(
        &mut self,
        plan: &Plan,
        level: Level,
        dm: usize,
        trial: &mut Trial<T>,
    ) {
        let samples = trial.history.len().min(plan.window_times());
        if std::mem::take(&mut trial.is_restored) {
            // The previous window already repaired the samples that its boxcars reached.
            let reached = trial.history.len().min(plan.max_width());
            T::repair(&mut trial.history[..reached], trial.noise.mean);
        }
        match statistics(plan, trial.window, samples) {
            Statistics::Own => {
                trial.noise = self.noise(plan, level, &trial.history[..samples]);
            }
            Statistics::Preceding => {}
            Statistics::None => trial.noise = Noise::default(),
        }
        T::repair(&mut trial.history, trial.noise.mean);
        let available = trial.history.len();
        if trial.noise.sigma > 0.0 {
            // The screen needs whole blocks; the scan evaluates valid boxcars only.
            trial.history.resize(plan.whole_blocks(available), T::filler(trial.noise.mean));
            self.prepare(plan, level, trial);
            self.flag(plan, level, available);
            self.scan(plan, dm, trial, available);
            trial.history.truncate(available);
        }
        let kept = trial.history.len() - samples;
        trial.history.copy_within(samples.., 0);
        trial.history.truncate(kept);
        trial.window += 1;
    }

    fn noise<T: Sample>(&mut self, plan: &Plan, level: Level, window: &[T]) -> Noise {
        self.guess.clear();
        let picked = guess_indices(window.len()).map(|i| window[i].value());
        self.guess.extend(picked.filter(|y| y.is_finite()));
        let narrow = plan.narrow_differences();
        noise(&mut self.guess, plan.input_is_integer(), |clip| {
            T::moments(level, window, clip, narrow)
        })
    }

    /// Computes thresholds and prefix sums of the window.
    fn prepare<T: Sample>(&mut self, plan: &Plan, level: Level, trial: &Trial<T>) {
        for (threshold, &width) in self.thresholds.iter_mut().zip(plan.widths()) {
            *threshold = Threshold::new(plan, trial.noise, width);
        }
        for index in 0..self.rungs.len() {
            let group = &plan.groups()[index];
            let (before, rest) = self.rungs.split_at_mut(index);
            rest[0].fill(plan, group, level, before.last(), &trial.history);
            rest[0].bind(plan, group, &self.thresholds);
        }
    }

    /// Flags the blocks of starts in which a group may have a hit.
    fn flag(&mut self, plan: &Plan, level: Level, available: usize) {
        self.flags.fill(0);
        for (index, (group, rung)) in plan.groups().iter().zip(&self.rungs).enumerate() {
            let (bit, stride, flags) = (1u32 << index, group.stride, &mut self.flags);
            let whole = available.min(plan.window_times()).div_ceil(stride * BLOCK);
            let mark = |block: usize| {
                flags[block * stride..][..stride].iter_mut().for_each(|flag| *flag |= bit);
            };
            match rung {
                Rung::Narrow(boxes) => Screen::screen(level, boxes, whole, mark),
                Rung::Wide(boxes) => Screen::screen(level, boxes, whole, mark),
                Rung::Real(boxes) => Screen::screen(level, boxes, whole, mark),
            }
        }
    }

    /// Evaluates the flagged blocks and groups hits into events.
    fn scan<T>(&mut self, plan: &Plan, dm: usize, trial: &mut Trial<T>, available: usize) {
        let origin = trial.window * plan.window_times() as u64;
        let middle = plan.middle();
        let Self { flags, rungs, thresholds, events, .. } = self;
        for (block, flag) in flags.iter().enumerate().filter(|(_, flag)| **flag != 0) {
            let start = block * BLOCK;
            for time in start..(start + BLOCK).min(available) {
                let mut best: Option<Hit> = None;
                for (index, (group, rung)) in plan.groups().iter().zip(&*rungs).enumerate() {
                    if flag & (1 << index) == 0 || !time.is_multiple_of(group.stride) {
                        continue;
                    }
                    let most = (available - time) / group.stride;
                    rung.hits(time / group.stride, most, |boxcar, sum| {
                        let which = group.widths.start + boxcar;
                        let width = plan.widths()[which] as u64;
                        let sum = sum + (width as i64 * middle) as f64;
                        let snr = thresholds[which].snr(sum);
                        if best.is_none_or(|best| snr > best.snr) {
                            best = Some(Hit { time: origin + time as u64, width, snr });
                        }
                    });
                }
                let ended = best.into_iter().flat_map(|hit| trial.sweep.offer(hit));
                events.extend(ended.map(|hit| hit.event(dm)));
            }
        }
    }
}

impl Rung {
    fn new(plan: &Plan, group: &Group) -> Self {
        let length = plan.capacity() / group.stride + 1;
        let boxcars = group.widths.len();
        if !plan.input_is_integer() {
            Self::Real(Boxes::new(length, boxcars))
        } else if group.wide {
            Self::Wide(Boxes::new(length, boxcars))
        } else {
            Self::Narrow(Boxes::new(length, boxcars))
        }
    }

    fn fill<T: Sample>(
        &mut self,
        plan: &Plan,
        group: &Group,
        level: Level,
        finer: Option<&Self>,
        samples: &[T],
    ) {
        let middle = plan.middle();
        match (self, finer) {
            (Self::Narrow(now), Some(Self::Narrow(finer))) => {
                thin(level, &finer.prefix, &mut now.prefix);
            }
            (Self::Wide(now), Some(Self::Wide(finer))) => {
                thin(level, &finer.prefix, &mut now.prefix);
            }
            (Self::Real(now), Some(Self::Real(finer))) => {
                thin(level, &finer.prefix, &mut now.prefix);
            }
            (Self::Narrow(now), _) => {
                let middle = middle as i32;
                accumulate(samples, group.stride, &mut now.prefix, |y| {
                    y.integer().wrapping_sub(middle)
                });
            }
            (Self::Wide(now), _) => {
                accumulate(samples, group.stride, &mut now.prefix, |y| {
                    i64::from(y.integer()) - middle
                });
            }
            (Self::Real(now), _) => {
                accumulate(samples, group.stride, &mut now.prefix, T::value);
            }
        }
    }

    /// Sets the smallest hit sums, clamped if no boxcar or every boxcar reaches them.
    fn bind(&mut self, plan: &Plan, group: &Group, thresholds: &[Threshold]) {
        let widths = &plan.widths()[group.widths.clone()];
        let thresholds = &thresholds[group.widths.clone()];
        let least = |width: usize, threshold: &Threshold| {
            let most = width as i64 * plan.half_range() + 1;
            let least = threshold.least - (width as i64 * plan.middle()) as f64;
            (least.clamp(-(most as f64), most as f64)) as i64
        };
        let pairs = widths.iter().zip(thresholds).map(|(w, t)| (*w, t));
        match self {
            Self::Narrow(boxes) => boxes.bind(group, pairs, |w, t| least(w, t) as i32),
            Self::Wide(boxes) => boxes.bind(group, pairs, least),
            Self::Real(boxes) => boxes.bind(group, pairs, |_, threshold| threshold.least),
        }
    }

    /// Calls `hit(boxcar, sum)` for each boxcar of up to `most` strides that reaches its threshold.
    fn hits(&self, start: usize, most: usize, hit: impl FnMut(usize, f64)) {
        match self {
            Self::Narrow(boxes) => boxes.hits(start, most, f64::from, hit),
            Self::Wide(boxes) => boxes.hits(start, most, |sum| sum as f64, hit),
            Self::Real(boxes) => boxes.hits(start, most, |sum| sum, hit),
        }
    }
}

impl<S: Sum> Boxes<S> {
    fn new(length: usize, boxcars: usize) -> Self {
        Self { prefix: Vec::with_capacity(length), boxcars: Vec::with_capacity(boxcars) }
    }

    fn bind<'a>(
        &mut self,
        group: &Group,
        pairs: impl Iterator<Item = (usize, &'a Threshold)>,
        least: impl Fn(usize, &Threshold) -> S,
    ) {
        self.boxcars.clear();
        self.boxcars.extend(pairs.map(|(width, t)| (width / group.stride, least(width, t))));
    }

    fn hits(
        &self,
        start: usize,
        most: usize,
        value: impl Fn(S) -> f64,
        mut hit: impl FnMut(usize, f64),
    ) {
        for (boxcar, (width, threshold)) in self.boxcars.iter().enumerate() {
            if *width > most {
                return;
            }
            let sum = self.prefix[start + width].minus(self.prefix[start]);
            if sum >= *threshold {
                hit(boxcar, value(sum));
            }
        }
    }
}
