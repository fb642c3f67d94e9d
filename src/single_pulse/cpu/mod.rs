//! Single-pulse search with vector instructions: histories, windows and threads.
//!
//! Invariant: a window is searched once all samples that its boxcars reach are there, so what is
//! found depends on the samples only.

mod kernels;
#[cfg(target_arch = "x86_64")]
mod screen;
mod window;

use super::carried::{self, Carried};
use super::input::Input;
use super::plan::Plan;
use super::rules::{Event, Noise, Sweep};
use crate::backend::simd::Level;
use crate::backend::threads::Threads;
use crate::error::{Error, Result};
use crate::view::Plane;
use kernels::Sample;
use window::Scratch;

/// Initial capacity of a thread's event buffer.
const EVENTS: usize = 4096;

/// State of one trial between blocks.
#[derive(Debug)]
pub(super) struct Trial<T> {
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
    level: Level,
    threads: Threads,
    state: State,
}

#[derive(Debug)]
enum State {
    I32(Search<i32>),
    F32(Search<f32>),
}

#[derive(Debug)]
struct Search<T> {
    trials: Vec<Trial<T>>,
    scratch: Vec<Scratch>,
}

impl Engine {
    pub(super) fn new(plan: &Plan, level: Level, threads: Threads) -> Result<Self> {
        let workers = threads.count();
        let state = if plan.input_is_integer() {
            State::I32(Search::new(plan, workers)?)
        } else {
            State::F32(Search::new(plan, workers)?)
        };
        Ok(Self { level, threads, state })
    }

    pub(super) fn run(&mut self, plan: &Plan, input: Input<'_>, events: &mut Vec<Event>) {
        match (&mut self.state, input) {
            (State::I32(search), Input::I32(plane)) => {
                search.run(plan, self.level, &self.threads, plane, events);
            }
            (State::F32(search), Input::F32(plane)) => {
                search.run(plan, self.level, &self.threads, plane, events);
            }
            _ => unreachable!("the detector checks the type"),
        }
    }

    pub(super) fn end_at(&mut self, valid_times: &dyn Fn(usize) -> u64) {
        match &mut self.state {
            State::I32(search) => search.end_at(valid_times),
            State::F32(search) => search.end_at(valid_times),
        }
    }

    pub(super) fn flush(&mut self, plan: &Plan, events: &mut Vec<Event>) -> Result<()> {
        match &mut self.state {
            State::I32(search) => search.flush(plan, self.level, &self.threads, events),
            State::F32(search) => search.flush(plan, self.level, &self.threads, events),
        }
    }

    pub(super) fn settle(&mut self, plan: &Plan, events: &mut Vec<Event>) -> u64 {
        match &mut self.state {
            State::I32(search) => search.settle(plan, events),
            State::F32(search) => search.settle(plan, events),
        }
    }

    pub(super) fn carried(&self) -> Carried {
        match &self.state {
            State::I32(search) => search.carried(),
            State::F32(search) => search.carried(),
        }
    }

    pub(super) fn restore(&mut self, plan: &Plan, carried: &Carried) {
        match &mut self.state {
            State::I32(search) => search.restore(plan, carried),
            State::F32(search) => search.restore(plan, carried),
        }
    }

    pub(super) fn reset(&mut self) {
        match &mut self.state {
            State::I32(search) => search.trials.iter_mut().for_each(Trial::reset),
            State::F32(search) => search.trials.iter_mut().for_each(Trial::reset),
        }
    }
}

impl<T: Sample> Search<T> {
    fn new(plan: &Plan, workers: usize) -> Result<Self> {
        let trials = (0..plan.dms()).map(|_| Trial::new(plan)).collect::<Result<_>>()?;
        let scratch = (0..workers).map(|_| Scratch::new(plan, EVENTS)).collect();
        Ok(Self { trials, scratch })
    }

    fn run(
        &mut self,
        plan: &Plan,
        level: Level,
        threads: &Threads,
        plane: Plane<'_, T>,
        events: &mut Vec<Event>,
    ) {
        threads.for_each_chunk(&mut self.scratch, &mut self.trials, 1, |scratch, dm, trial| {
            let trial = &mut trial[0];
            let mut row = trial.accept(plane.row(dm));
            while !row.is_empty() {
                let room = plan.capacity() - trial.history.len();
                let (now, later) = row.split_at(room.min(row.len()));
                trial.history.extend_from_slice(now);
                row = later;
                if trial.history.len() == plan.capacity() {
                    scratch.search(plan, level, dm, trial);
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
        threads.for_each_chunk(&mut self.scratch, &mut self.trials, 1, |scratch, dm, trial| {
            let trial = &mut trial[0];
            while !trial.history.is_empty() {
                scratch.search(plan, level, dm, trial);
            }
            scratch.events.extend(trial.sweep.end().map(|hit| hit.event(dm)));
            trial.reset();
        });
        self.collect(events);
        Ok(())
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
        let trial = |trial: &Trial<T>| carried::Trial { noise: trial.noise, sweep: trial.sweep };
        let window = self.trials.first().map_or(0, |trial| trial.window);
        Carried { window, trials: self.trials.iter().map(trial).collect() }
    }

    fn restore(&mut self, plan: &Plan, carried: &Carried) {
        for (trial, carried::Trial { noise, sweep }) in self.trials.iter_mut().zip(&carried.trials)
        {
            trial.window = carried.window;
            trial.seen = carried.window * plan.window_times() as u64;
            (trial.noise, trial.sweep) = (*noise, *sweep);
            trial.is_restored = carried.window > 0;
        }
    }

    /// Appends the events that the threads found, ordered by trial and time.
    fn collect(&mut self, events: &mut Vec<Event>) {
        let old = events.len();
        self.scratch.iter_mut().for_each(|scratch| events.append(&mut scratch.events));
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
        let (noise, sweep) = (Noise::default(), Sweep::default());
        let is_restored = false;
        Ok(Self { history, window: 0, end: u64::MAX, seen: 0, noise, sweep, is_restored })
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
                "trial {dm} was searched up to sample {searched}: its end must be told before"
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
