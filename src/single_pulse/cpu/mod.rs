//! Single-pulse search with vector instructions: histories, windows and threads.
//!
//! Invariant: a window is searched once all samples that its boxcars reach are there, so what is
//! found depends on the samples only. Hits come by start, then by width, whatever the groups' strides.

mod kernels;

use super::plan::{BLOCK, Group, Input, Plan};
use super::rules::{
    Carried, CarriedTrial, Event, GUESS, Hit, Noise, Statistics, Sweep, Threshold, guess_indices,
    noise, statistics,
};
use crate::backend::simd::Level;
use crate::backend::threads::Threads;
use crate::error::{Error, Result};
use crate::view::Plane;
use kernels::{Boxes, Sample, Screen, Sum, accumulate, thin};

/// Initial capacity of a thread's event buffer.
const EVENTS: usize = 4096;

/// State of one trial between blocks.
#[derive(Debug)]
struct Trial<T> {
    /// Samples from the current window's start on.
    history: Vec<T>,
    /// Index of the current window.
    window: u64,
    /// Total number of valid samples of this trial.
    end: u64,
    /// Total number of samples seen, including void ones.
    seen: u64,
    /// Noise of the previous window.
    noise: Noise,
    sweep: Sweep,
    /// Whether another search processed the previous window, so that the samples its boxcars reach are not repaired
    /// yet.
    is_restored: bool,
}

/// Search bound to a vector level and threads.
#[derive(Debug)]
pub(super) struct Engine {
    plan: Plan,
    level: Level,
    threads: Threads,
    state: State,
}

#[derive(Debug)]
enum State {
    I32(Search<i32>),
    F32(Search<f32>),
}

/// Evaluates an expression of the search of either sample type.
macro_rules! each {
    ($state:expr, $search:ident => $value:expr) => {
        match $state {
            State::I32($search) => $value,
            State::F32($search) => $value,
        }
    };
}

#[derive(Debug)]
struct Search<T> {
    trials: Vec<Trial<T>>,
    workers: Vec<Worker<T>>,
}

/// Memory of one thread.
#[derive(Debug)]
struct Worker<T> {
    scratch: Scratch,
    /// Copy of a trial, whose search changes nothing.
    copy: Trial<T>,
}

impl Engine {
    pub(super) fn new(plan: &Plan, level: Level, threads: Threads) -> Result<Self> {
        let workers = threads.count();
        let state = if plan.input_is_integer() {
            State::I32(Search::new(plan, workers)?)
        } else {
            State::F32(Search::new(plan, workers)?)
        };
        Ok(Self { plan: plan.clone(), level, threads, state })
    }

    pub(super) fn run(&mut self, input: Input<'_>, events: &mut Vec<Event>) -> Result<()> {
        let Self { plan, level, threads, state } = self;
        match (state, input) {
            (State::I32(search), Input::I32(plane)) => {
                search.run(plan, *level, threads, plane, events);
            }
            (State::F32(search), Input::F32(plane)) => {
                search.run(plan, *level, threads, plane, events);
            }
            _ => unreachable!("the detector checks the type"),
        }
        Ok(())
    }

    pub(super) fn end_at(&mut self, valid_times: &dyn Fn(usize) -> u64) {
        each!(&mut self.state, search => search.end_at(valid_times));
    }

    pub(super) fn flush(&mut self, events: &mut Vec<Event>) -> Result<()> {
        let Self { plan, level, threads, state } = self;
        each!(state, search => search.flush(plan, *level, threads, events))
    }

    pub(super) fn peek(&mut self, events: &mut Vec<Event>) {
        let Self { plan, level, threads, state } = self;
        each!(state, search => search.peek(plan, *level, threads, events));
    }

    pub(super) fn settle(&mut self, events: &mut Vec<Event>) -> Result<u64> {
        each!(&mut self.state, search => Ok(search.settle(&self.plan, events)))
    }

    pub(super) fn carried(&mut self) -> Result<Carried> {
        each!(&self.state, search => Ok(search.carried()))
    }

    pub(super) fn restore(&mut self, carried: &Carried) -> Result<()> {
        each!(&mut self.state, search => search.restore(&self.plan, carried));
        Ok(())
    }

    pub(super) fn reset(&mut self) {
        each!(&mut self.state, search => search.trials.iter_mut().for_each(Trial::reset));
    }
}

impl<T: Sample> Search<T> {
    fn new(plan: &Plan, workers: usize) -> Result<Self> {
        let trials = (0..plan.dms()).map(|_| Trial::new(plan)).collect::<Result<_>>()?;
        let worker =
            |_| Worker { scratch: Scratch::new(plan, EVENTS), copy: Trial::beginning(Vec::new()) };
        Ok(Self { trials, workers: (0..workers).map(worker).collect() })
    }

    fn run(
        &mut self,
        plan: &Plan,
        level: Level,
        threads: &Threads,
        plane: Plane<'_, T>,
        events: &mut Vec<Event>,
    ) {
        threads.for_each_chunk(&mut self.workers, &mut self.trials, 1, |worker, dm, trial| {
            let trial = &mut trial[0];
            let mut row = trial.accept(plane.row(dm));
            while !row.is_empty() {
                let free = plan.capacity() - trial.history.len();
                let (now, later) = row.split_at(free.min(row.len()));
                trial.history.extend_from_slice(now);
                row = later;
                if trial.history.len() == plan.capacity() {
                    worker.scratch.search(plan, level, dm, trial);
                }
            }
        });
        self.collect(events);
    }

    fn end_at(&mut self, valid_times: &dyn Fn(usize) -> u64) {
        for (dm, trial) in self.trials.iter_mut().enumerate() {
            trial.end = valid_times(dm);
        }
    }

    fn flush(
        &mut self,
        plan: &Plan,
        level: Level,
        threads: &Threads,
        events: &mut Vec<Event>,
    ) -> Result<()> {
        for (dm, trial) in self.trials.iter_mut().enumerate() {
            trial.cut(plan, dm)?;
        }
        threads.for_each_chunk(&mut self.workers, &mut self.trials, 1, |worker, dm, trial| {
            worker.scratch.finish(plan, level, dm, &mut trial[0]);
            trial[0].reset();
        });
        self.collect(events);
        Ok(())
    }

    fn peek(&mut self, plan: &Plan, level: Level, threads: &Threads, events: &mut Vec<Event>) {
        threads.for_each_chunk(&mut self.workers, &mut self.trials, 1, |worker, dm, trial| {
            let Worker { scratch, copy } = worker;
            copy.history.clear();
            copy.history.extend_from_slice(&trial[0].history);
            let Trial { window, end, seen, noise, sweep, is_restored, .. } = trial[0];
            let history = std::mem::take(&mut copy.history);
            *copy = Trial { history, window, end, seen, noise, sweep, is_restored };
            scratch.finish(plan, level, dm, copy);
        });
        self.collect(events);
    }

    /// Appends the events that no later window changes. Returns the sample before which no later event starts.
    fn settle(&mut self, plan: &Plan, events: &mut Vec<Event>) -> u64 {
        let mut frontier = u64::MAX;
        for (dm, trial) in self.trials.iter_mut().enumerate() {
            let next = trial.window * plan.window_times() as u64;
            events.extend(trial.sweep.settle(next).map(|hit| hit.event(dm)));
            frontier = frontier.min(trial.sweep.frontier(next));
        }
        frontier
    }

    fn carried(&self) -> Carried {
        let trial = |trial: &Trial<T>| CarriedTrial { noise: trial.noise, sweep: trial.sweep };
        let window = self.trials.first().map_or(0, |trial| trial.window);
        Carried { window, trials: self.trials.iter().map(trial).collect() }
    }

    fn restore(&mut self, plan: &Plan, carried: &Carried) {
        for (trial, CarriedTrial { noise, sweep }) in self.trials.iter_mut().zip(&carried.trials) {
            trial.window = carried.window;
            trial.seen = carried.window * plan.window_times() as u64;
            (trial.noise, trial.sweep) = (*noise, *sweep);
            trial.is_restored = carried.window > 0;
        }
    }

    /// Appends the events that the threads found, ordered by trial and time.
    fn collect(&mut self, events: &mut Vec<Event>) {
        let old = events.len();
        self.workers.iter_mut().for_each(|worker| events.append(&mut worker.scratch.events));
        events[old..].sort_unstable_by_key(|event| (event.dm, event.time));
    }
}

impl<T: Sample> Trial<T> {
    fn new(plan: &Plan) -> Result<Self> {
        let mut history = Vec::new();
        history.try_reserve_exact(plan.capacity()).map_err(|error| Error::Unavailable {
            what: format!("{} bytes of history for the pulse search", plan.state_bytes()),
            why: format!("{error}; fewer trials or a shorter baseline need less"),
        })?;
        Ok(Self::beginning(history))
    }

    /// Creates the state at the start of a stream.
    fn beginning(history: Vec<T>) -> Self {
        let (noise, sweep) = (Noise::default(), Sweep::default());
        let is_restored = false;
        Self { history, window: 0, end: u64::MAX, seen: 0, noise, sweep, is_restored }
    }

    /// Returns the valid part of a row.
    fn accept<'a>(&mut self, row: &'a [T]) -> &'a [T] {
        let valid = self.end.saturating_sub(self.seen).min(row.len() as u64);
        self.seen += row.len() as u64;
        &row[..valid as usize]
    }

    /// Drops void samples at the end of the stream.
    fn cut(&mut self, plan: &Plan, dm: usize) -> Result<()> {
        let start = self.window * plan.window_times() as u64;
        let searched = if self.window == 0 { 0 } else { start + plan.max_width() as u64 };
        if self.end < searched {
            let rule = format!(
                "trial {dm} was already searched up to sample {searched}, so its end cannot be set there"
            );
            return Err(Error::parameter("valid samples", self.end, rule));
        }
        let valid = (self.end - start).min(self.history.len() as u64);
        self.history.truncate(valid as usize);
        Ok(())
    }

    fn reset(&mut self) {
        self.history.clear();
        (self.window, self.end, self.seen) = (0, u64::MAX, 0);
        (self.noise, self.sweep) = (Noise::default(), Sweep::default());
        self.is_restored = false;
    }
}

/// Buffers of one thread.
#[derive(Debug)]
struct Scratch {
    guess: Vec<f64>,
    thresholds: Vec<Threshold>,
    sums: Vec<Sums>,
    /// Bit mask per block of starts: groups that may have a hit in it.
    flags: Vec<u32>,
    events: Vec<Event>,
}

/// Prefix sums of a group, in the narrowest sufficient type.
#[derive(Debug)]
enum Sums {
    Narrow(Boxes<i32>),
    Wide(Boxes<i64>),
    Real(Boxes<f64>),
}

/// Evaluates an expression of the boxcars of any sum type.
macro_rules! boxes {
    ($sums:expr, $boxes:ident => $value:expr) => {
        match $sums {
            Sums::Narrow($boxes) => $value,
            Sums::Wide($boxes) => $value,
            Sums::Real($boxes) => $value,
        }
    };
}

impl Scratch {
    fn new(plan: &Plan, events: usize) -> Self {
        Self {
            guess: Vec::with_capacity(GUESS),
            thresholds: vec![Threshold::default(); plan.widths().len()],
            sums: plan.groups().iter().map(|group| Sums::new(plan, group)).collect(),
            flags: vec![0; plan.window_times() / BLOCK],
            events: Vec::with_capacity(events),
        }
    }

    /// Searches the remaining samples of a trial, whose stream ends with them.
    fn finish<T: Sample>(&mut self, plan: &Plan, level: Level, dm: usize, trial: &mut Trial<T>) {
        while !trial.history.is_empty() {
            self.search(plan, level, dm, trial);
        }
        self.events.extend(trial.sweep.end().map(|hit| hit.event(dm)));
    }

    /// Searches the current window of a trial and advances to the next.
    fn search<T: Sample>(&mut self, plan: &Plan, level: Level, dm: usize, trial: &mut Trial<T>) {
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
        for index in 0..self.sums.len() {
            let group = &plan.groups()[index];
            let (before, rest) = self.sums.split_at_mut(index);
            rest[0].fill(plan, group, level, before.last(), &trial.history);
            boxes!(&mut rest[0], boxes => boxes.bind(plan, group, &self.thresholds));
        }
    }

    /// Flags the blocks of starts in which a group may have a hit.
    fn flag(&mut self, plan: &Plan, level: Level, available: usize) {
        self.flags.fill(0);
        for (index, (group, own)) in plan.groups().iter().zip(&self.sums).enumerate() {
            let (bit, stride, flags) = (1u32 << index, group.stride, &mut self.flags);
            let whole = available.min(plan.window_times()).div_ceil(stride * BLOCK);
            let mark = |block: usize| {
                flags[block * stride..][..stride].iter_mut().for_each(|flag| *flag |= bit);
            };
            boxes!(own, boxes => Screen::screen(level, boxes, whole, mark));
        }
    }

    /// Evaluates the flagged blocks and groups hits into events.
    fn scan<T>(&mut self, plan: &Plan, dm: usize, trial: &mut Trial<T>, available: usize) {
        let origin = trial.window * plan.window_times() as u64;
        let middle = plan.middle();
        let Self { flags, sums, thresholds, events, .. } = self;
        for (block, flag) in flags.iter().enumerate().filter(|(_, flag)| **flag != 0) {
            let start = block * BLOCK;
            for time in start..(start + BLOCK).min(available) {
                let mut best: Option<Hit> = None;
                for (index, (group, own)) in plan.groups().iter().zip(&*sums).enumerate() {
                    if flag & (1 << index) == 0 || !time.is_multiple_of(group.stride) {
                        continue;
                    }
                    let most = (available - time) / group.stride;
                    let hit = |boxcar: usize, sum: f64| {
                        let which = group.widths.start + boxcar;
                        let width = plan.widths()[which] as u64;
                        let sum = sum + (width as i64 * middle) as f64;
                        let snr = thresholds[which].snr(sum);
                        if best.is_none_or(|best| snr > best.snr) {
                            best = Some(Hit { time: origin + time as u64, width, snr });
                        }
                    };
                    boxes!(own, boxes => boxes.hits(time / group.stride, most, hit));
                }
                let ended = best.into_iter().flat_map(|hit| trial.sweep.offer(hit));
                events.extend(ended.map(|hit| hit.event(dm)));
            }
        }
    }
}

impl Sums {
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
            (now, _) => boxes!(now, boxes => {
                accumulate(samples, group.stride, plan.middle(), &mut boxes.prefix);
            }),
        }
    }
}

impl<S: Sum> Boxes<S> {
    fn new(length: usize, boxcars: usize) -> Self {
        Self { prefix: Vec::with_capacity(length), boxcars: Vec::with_capacity(boxcars) }
    }

    /// Sets the smallest hit sums, clamped if no boxcar or every boxcar reaches them.
    fn bind(&mut self, plan: &Plan, group: &Group, thresholds: &[Threshold]) {
        let indices = group.widths.clone();
        self.boxcars.clear();
        self.boxcars.extend(indices.map(|index| {
            let width = plan.widths()[index];
            let most = width as i64 * plan.half_range() + 1;
            let least = thresholds[index].least - (width as i64 * plan.middle()) as f64;
            (width / group.stride, S::threshold(least, most as f64))
        }));
    }

    /// Calls `hit(boxcar, sum)` for each boxcar of up to `most` strides that reaches its threshold.
    fn hits(&self, start: usize, most: usize, mut hit: impl FnMut(usize, f64)) {
        for (boxcar, (width, threshold)) in self.boxcars.iter().enumerate() {
            if *width > most {
                return;
            }
            let sum = self.prefix[start + width].minus(self.prefix[start]);
            if sum >= *threshold {
                hit(boxcar, sum.value());
            }
        }
    }
}
