//! Filter bank on the CPU. All threads compute windowed sums, transforms, detection and requantization in cache-sized
//! blocks.
//!
//! Invariant: the same bits for any split of a stream and any number of threads.
#![allow(unsafe_code)]

mod butterfly;
mod decode;
mod fir;
mod forms;
mod job;
mod memory;
mod passes;
mod pending;
mod samples;
mod shape;
mod spectra;

use std::sync::atomic::{AtomicU64, Ordering};

use super::plan::{Form, Output, Plan};
use crate::backend::simd::Level;
use crate::backend::threads::Threads;
use crate::error::Result;
use crate::voltage::Voltages;
use decode::Column;
use job::{Groups, Job, Scratch, Target, Tasks};
use samples::History;
use shape::Shape;

/// Output size in bytes from which non-temporal stores are used, because so much output would not stay in the caches.
const STREAMED_BYTES: usize = 1 << 22;

/// A plan bound to a SIMD level and threads.
pub(super) struct Engine {
    shape: Shape,
    threads: Threads,
    groups: Groups,
    history: History,
    scratch: Vec<Scratch>,
    saturated: Vec<AtomicU64>,
    /// Partial sums of each unit's unfinished group: from the last call, and for the next.
    carried: Vec<f32>,
    left: Vec<f32>,
    /// Sums of finished groups of unfinished rows.
    rows: Vec<f32>,
    /// Sums of the groups that a round of tasks finishes.
    slots: Vec<f32>,
    times: u64,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { threads, times, .. } = self;
        f.debug_struct("Engine").field("threads", threads).field("times", times).finish()
    }
}

impl Engine {
    pub(super) fn new(plan: &Plan, level: Level, threads: &Threads) -> Result<Self> {
        let shape = Shape::new(plan, level)?;
        let groups = Groups::new(plan);
        let input = plan.input();
        let units = input.antennas * input.coarse_channels;
        let (detected, requantized) = match plan.options().form {
            Form::Detected(_) => (shape.sums(), 0),
            Form::Requantized { .. } => (0, plan.row_elements()),
            _ => (0, 0),
        };
        let (slots, rows) =
            if groups.in_row() > 1 { (job::ROUND * threads.count(), units) } else { (0, 0) };
        Ok(Self {
            history: History::new(input.encoding, input.streams(), plan.span()),
            scratch: (0..threads.count()).map(|_| Scratch::new(&shape)).collect(),
            saturated: (0..requantized).map(|_| AtomicU64::new(0)).collect(),
            carried: vec![0.0; units * detected],
            left: vec![0.0; units * detected],
            rows: vec![0.0; rows * detected],
            slots: vec![0.0; slots * detected],
            threads: threads.clone(),
            shape,
            groups,
            times: 0,
        })
    }

    pub(super) fn saturated(&self) -> Vec<u64> {
        let counts: Vec<u64> =
            self.saturated.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        if counts.is_empty() { vec![0; self.shape.plan.row_elements()] } else { counts }
    }

    pub(super) fn reset(&mut self) {
        self.history.reset();
        self.rows.fill(0.0);
        self.saturated.iter().for_each(|count| count.store(0, Ordering::Relaxed));
        self.times = 0;
    }

    /// Consumes all samples and writes the rows they complete to the front of the output.
    pub(super) fn run(&mut self, input: Voltages<'_>, output: Output<'_>) {
        let first = self.shape.plan.spectra(self.times);
        self.times += input.times() as u64;
        let last = self.shape.plan.spectra(self.times);
        let fresh = self.whole_pairs(input);
        if last > first {
            self.spectra(fresh, output, (first, last));
        }
        self.history.advance(fresh, last * self.shape.plan.hop() as u64);
    }

    /// Moves one sample to the history if pairs would otherwise start at an odd sample.
    fn whole_pairs<'a>(&mut self, input: Voltages<'a>) -> Voltages<'a> {
        let is_odd = self.shape.column == Column::Pair && !self.history.end().is_multiple_of(2);
        if !is_odd || input.times() == 0 {
            return input;
        }
        match (input.slice(0, 1), input.slice(1, input.times() - 1)) {
            (Ok(one), Ok(rest)) => {
                self.history.append(one);
                rest
            }
            _ => input,
        }
    }

    /// Computes the spectra `first .. last` of all streams.
    fn spectra(&mut self, fresh: Voltages<'_>, output: Output<'_>, (first, last): (u64, u64)) {
        let input = *self.shape.plan.input();
        let target = Target::new(output);
        let units = input.antennas * input.coarse_channels;
        let tasks =
            Tasks::new(&self.shape, &self.groups, (first, last), units, self.threads.count());
        let job = Job {
            shape: &self.shape,
            groups: &self.groups,
            history: &self.history,
            fresh,
            first_row: first / self.shape.plan.spectra_per_row() as u64,
            streams: target.bytes >= STREAMED_BYTES,
            target,
            saturated: &self.saturated,
            carried: &self.carried,
            left: job::Shared::new(&mut self.left),
            slots: job::Shared::new(&mut self.slots),
        };
        let round =
            if self.groups.in_row() > 1 { job::ROUND * self.threads.count() } else { tasks.count };
        for start in (0..tasks.count).step_by(round.max(1)) {
            let mut places = [(); usize::MAX];
            let places = &mut places[..round.min(tasks.count - start)];
            self.threads.for_each_chunk(&mut self.scratch, places, 1, |scratch, slot, _| {
                let (unit, spectra) = tasks.task(&self.groups, start + slot);
                job.task(scratch, unit, spectra, slot);
            });
            if self.groups.in_row() > 1 {
                let tasks =
                    (0..places.len()).map(|slot| (slot, tasks.task(&self.groups, start + slot)));
                for (slot, (unit, spectra)) in tasks {
                    job.join(&mut self.scratch[0], unit, spectra, slot, &mut self.rows);
                }
            }
        }
        std::mem::swap(&mut self.carried, &mut self.left);
    }
}
