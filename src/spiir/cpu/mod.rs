//! Filter bank on the CPU: filters in the lanes of vector registers, four lanes per template.
//!
//! Invariant: the same bits for any split of a stream and any number of threads.
#![allow(unsafe_code)]

mod input;
mod kernel;
mod pack;
mod resample;
mod unit;
mod vector;
#[cfg(target_arch = "x86_64")]
mod x86;

use num_complex::Complex;

use super::plan::Plan;
use crate::backend::simd::Level;
use crate::backend::threads::Threads;
use crate::error::{Error, Result};
use crate::state::{Saved, Saving};
use crate::view::check_memory;
use input::{Inputs, PIECE};
use pack::Bundle;
use resample::Phases;
use unit::{Output, Shared, Unit, Worker};

/// Filter plan bound to vector instructions and threads.
#[derive(Debug)]
pub(super) struct Engine {
    vectors: Level,
    threads: Threads,
    latency: u64,
    inputs: Inputs,
    up: Phases,
    units: Vec<Unit>,
    workers: Vec<Worker>,
    /// Samples of the stream so far.
    taken: u64,
    /// Bytes it occupies.
    held: usize,
}

impl Engine {
    pub(super) fn new(plan: &Plan, vectors: Level, threads: &Threads) -> Result<Self> {
        let lanes = match vectors {
            Level::Portable => 4,
            Level::Avx2(_) => 8,
            Level::Avx512(_) => 16,
        };
        let up = Phases::new(&plan.options().resampler.up);
        let parts = [Inputs::bytes(plan), Bundle::bytes(plan, lanes), Unit::bytes(plan, &up)];
        let bytes = parts.iter().try_fold(0usize, |sum, part| sum.checked_add(*part));
        check_memory("the filter bank's history", bytes)?;
        if (0..plan.levels()).any(|level| u32::try_from(plan.history(level)).is_err()) {
            let what = "the filter bank's history".to_owned();
            let why = "a filter reaches back 2^32 samples or more".to_owned();
            return Err(Error::Unavailable { what, why });
        }
        let size = unit::templates_of_a_unit(plan);
        let templates = plan.templates();
        let unit = |first: usize| Unit::new(plan, &up, lanes, first..(first + size).min(templates));
        Ok(Self {
            vectors,
            threads: threads.clone(),
            latency: plan.latency() as u64,
            inputs: Inputs::new(plan),
            units: (0..templates).step_by(size).map(unit).collect(),
            workers: (0..threads.count()).map(|_| Worker::new()).collect(),
            up,
            taken: 0,
            held: bytes.unwrap_or(usize::MAX),
        })
    }

    /// Returns the bytes it occupies.
    pub(super) fn held_bytes(&self) -> usize {
        self.held
    }

    pub(super) fn reset(&mut self) {
        self.inputs.reset();
        self.units.iter_mut().for_each(Unit::reset);
        self.taken = 0;
    }

    pub(super) fn save(&self, to: &mut Saving) {
        to.part(self.vectors.name());
        self.inputs.save(to);
        self.units.iter().for_each(|unit| unit.save(to));
    }

    /// Restores the state of a stream of `taken` samples.
    pub(super) fn load(&mut self, from: &mut Saved<'_>, taken: u64) -> Result<()> {
        from.part(self.vectors.name())?;
        self.taken = taken;
        self.inputs.load(from, taken)?;
        self.units.iter_mut().try_for_each(|unit| unit.load(from))
    }

    /// Filters samples of whitened strain and writes the ratios known so far to `output` (template, time).
    pub(super) fn run(
        &mut self,
        input: &[f32],
        output: &mut [Complex<f32>],
        stride: usize,
    ) -> usize {
        let begin = self.taken.max(self.latency);
        let start = output.as_mut_ptr();
        for piece in input.chunks(PIECE) {
            self.inputs.extend(piece, self.vectors);
            let shared = Shared {
                vectors: self.vectors,
                inputs: &self.inputs,
                up: &self.up,
                output: Output { start, stride, first: begin },
            };
            self.threads.for_each_chunk(
                &mut self.workers,
                &mut self.units,
                1,
                |worker, _, unit| {
                    unit[0].run(worker, &shared);
                },
            );
            self.taken += piece.len() as u64;
        }
        (self.taken.max(self.latency) - begin) as usize
    }
}
