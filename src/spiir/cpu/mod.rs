//! Filter bank on the CPU: filters in the lanes of vector registers, four lanes per template.
//!
//! Invariant: the same bits for any split of a stream and any number of threads.
#![allow(unsafe_code)]

mod inputs;
mod kernel;
mod quads;

use std::ops::Range;

use num_complex::Complex;

use super::plan::{Branch, Plan, Template, UNIT};
use crate::backend::simd::Level;
use crate::backend::threads::Threads;
use crate::backend::vector;
use crate::error::{Error, Result};
use crate::state::{Saved, Saving};
use crate::view::check_memory;
use inputs::{Doubling, Inputs, PIECE, Phases, double};
use kernel::{Bundle, Line, SCRATCH, SLOTS, TILES, UNUSED, Work, filter};
use quads::TILE;

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
        let lanes = vector::lanes(vectors);
        let up = Phases::new(&plan.options().resampler.up);
        let parts = [Inputs::bytes(plan), Bundle::bytes(plan, lanes), Unit::bytes(plan, &up)];
        let bytes = parts.iter().try_fold(0usize, |sum, part| sum.checked_add(*part));
        check_memory("the filter bank's history", bytes)?;
        if (0..plan.levels()).any(|level| u32::try_from(plan.history(level)).is_err()) {
            let what = "the filter bank's history".to_owned();
            let why = "a filter reaches back 2^32 samples or more".to_owned();
            return Err(Error::Unavailable { what, why });
        }
        let size = plan.unit();
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

/// Samples of a worker's row.
const ROW: usize = TILES * TILE;

/// Scratch memory of a thread.
#[derive(Debug)]
struct Worker {
    scratch: Vec<Line>,
    /// Sums of some tiles, axes template, time.
    rows: Vec<Complex<f32>>,
}

impl Worker {
    fn new() -> Self {
        let rows = vec![Complex::default(); UNIT * ROW];
        Self { scratch: vec![Line([0.0; 16]); SCRATCH / 16], rows }
    }
}

/// Output of the ratios: template 0's first ratio, and its sample number.
#[derive(Clone, Copy, Debug)]
struct Output {
    start: *mut Complex<f32>,
    stride: usize,
    first: u64,
}

// SAFETY: units write to disjoint rows.
unsafe impl Sync for Output {}

/// Data shared by all units.
#[derive(Debug)]
struct Shared<'a> {
    vectors: Level,
    inputs: &'a Inputs,
    up: &'a Phases,
    output: Output,
}

/// One level of a unit.
#[derive(Debug)]
struct Rate {
    /// Templates (index within the unit) with filters at this level or below, and whether any are below.
    active: Vec<(usize, bool)>,
    bundles: Vec<Bundle>,
    /// Sums of the last piece and of the history that upsampling needs, axes template, time; empty at the full rate.
    sums: Vec<Complex<f32>>,
    /// Samples of a template's sums, and those before the piece.
    stride: usize,
    past: usize,
}

/// Work unit of a thread: some templates at all rates.
#[derive(Debug)]
struct Unit {
    /// Index of the first template.
    first: usize,
    rates: Vec<Rate>,
}

/// Returns the sums before a piece that upsampling needs.
fn past(up: &Phases) -> usize {
    up.reach() + TILE
}

/// Returns the samples of a template's sums at a level.
fn sums(up: &Phases, level: usize) -> usize {
    past(up) + (PIECE >> level) + 1 + 2 * TILE
}

impl Unit {
    /// Returns the bytes of sums of all units.
    fn bytes(plan: &Plan, up: &Phases) -> usize {
        let each = (1..plan.levels()).map(|level| 8 * sums(up, level)).sum::<usize>();
        each.saturating_mul(plan.templates())
    }

    fn new(plan: &Plan, up: &Phases, lanes: usize, templates: Range<usize>) -> Self {
        let own = &plan.own()[templates.clone()];
        let rate = |level: usize| {
            let deep = |template: &Template| template.halvings() as usize;
            let reached = own.iter().enumerate().filter(|(_, template)| deep(template) >= level);
            let active: Vec<_> =
                reached.map(|(at, template)| (at, deep(template) > level)).collect();
            let here =
                |branch: &&Branch| branch.halvings as usize == level && !branch.filters.is_empty();
            let branch = |(at, template): (usize, &'_ Template)| -> Option<(usize, Branch)> {
                template.branches.iter().find(here).map(|branch| (at, branch.clone()))
            };
            let branches: Vec<_> = own.iter().enumerate().filter_map(branch).collect();
            let branches: Vec<_> = branches.iter().map(|(at, branch)| (*at, branch)).collect();
            let stride = if level == 0 { 0 } else { sums(up, level) };
            Rate {
                bundles: Bundle::all(plan, lanes, &branches),
                sums: vec![Complex::default(); own.len() * stride],
                active,
                stride,
                past: past(up),
            }
        };
        Self { first: templates.start, rates: (0..plan.levels()).map(rate).collect() }
    }

    fn reset(&mut self) {
        for rate in &mut self.rates {
            rate.bundles.iter_mut().for_each(Bundle::reset);
            rate.sums.fill(Complex::default());
        }
    }

    fn save(&self, to: &mut Saving) {
        to.part("unit");
        for rate in &self.rates {
            rate.bundles.iter().for_each(|bundle| bundle.save(to));
            for row in rate.sums.chunks_exact(rate.stride.max(1)) {
                to.complex(&row[..rate.past]);
            }
        }
    }

    fn load(&mut self, from: &mut Saved<'_>) -> Result<()> {
        from.part("unit")?;
        for rate in &mut self.rates {
            rate.bundles.iter_mut().try_for_each(|bundle| bundle.load(from))?;
            for row in rate.sums.chunks_exact_mut(rate.stride.max(1)) {
                from.fill_complex(&mut row[..rate.past])?;
            }
        }
        Ok(())
    }

    /// Filters the last piece of the inputs.
    fn run(&mut self, worker: &mut Worker, shared: &Shared<'_>) {
        for level in (0..self.rates.len()).rev() {
            let fresh = shared.inputs.fresh(level);
            let mut tiles = fresh.start / TILE as u64..fresh.end.div_ceil(TILE as u64);
            while !fresh.is_empty() && !tiles.is_empty() {
                let some = tiles.start..tiles.end.min(tiles.start + TILES as u64);
                self.double(worker, shared, level, some.clone());
                self.filter(worker, shared, level, some.clone());
                self.hand_out(worker, shared, level, some.clone());
                tiles.start = some.end;
            }
        }
        for (level, rate) in self.rates.iter_mut().enumerate().skip(1) {
            let fresh = shared.inputs.fresh(level);
            let ended = (fresh.end - fresh.start) as usize;
            for row in rate.sums.chunks_exact_mut(rate.stride) {
                row.copy_within(ended..ended + rate.past, 0);
            }
        }
    }

    /// Initializes the rows of some tiles with the upsampled sums of the lower level, or with zeros.
    fn double(&self, worker: &mut Worker, shared: &Shared<'_>, level: usize, tiles: Range<u64>) {
        let count = (tiles.end - tiles.start) as usize;
        for (template, deeper) in &self.rates[level].active {
            let row = &mut worker.rows[template * ROW..][..count * TILE];
            if !deeper {
                row.fill(Complex::default());
                continue;
            }
            let lower = &self.rates[level + 1];
            let begin = shared.inputs.fresh(level + 1).start;
            // A tile begins at most half a tile before the new samples.
            let at = lower.past + (tiles.start * (TILE as u64 / 2)) as usize - begin as usize;
            let from = &lower.sums[template * lower.stride..][..lower.stride];
            let end = at + count * TILE / 2;
            assert!(at >= shared.up.reach() && end <= lower.stride, "sums of the lower level");
            let work = Doubling {
                phases: shared.up,
                lower: from.as_ptr().wrapping_add(at),
                tiles: count,
                to: row.as_mut_ptr(),
            };
            // SAFETY: the assertion above ensures that the samples the taps reach and the tiles' ends are in the row.
            unsafe { double(shared.vectors, &work) };
        }
    }

    /// Adds the level's own filters to the rows of some tiles.
    fn filter(
        &mut self,
        worker: &mut Worker,
        shared: &Shared<'_>,
        level: usize,
        tiles: Range<u64>,
    ) {
        let end = shared.inputs.fresh(level).end;
        let complete = (end / TILE as u64).min(tiles.end) - tiles.start;
        let rows = worker.rows.as_mut_ptr();
        for bundle in &mut self.rates[level].bundles {
            let row = |slot: usize| match bundle.slots.get(slot) {
                Some(&template) if template != UNUSED => rows.wrapping_add(template * ROW),
                _ => std::ptr::null_mut(),
            };
            let rows: [_; SLOTS] = std::array::from_fn(row);
            let (values, offsets) = bundle.pointers();
            let work = Work {
                x: shared.inputs.at(level, tiles.start * TILE as u64),
                tiles: (tiles.end - tiles.start) as usize,
                complete: complete as usize,
                values,
                offsets,
                long: bundle.long,
                groups: bundle.groups,
                scratch: worker.scratch.as_mut_ptr().cast(),
                rows,
            };
            // SAFETY: the inputs hold the longest offset before the piece's first tile and a tile after its last
            // sample; the bundle holds all groups; a row holds that many tiles.
            unsafe { filter(shared.vectors, &work) };
        }
    }

    /// Copies the new samples of some tiles to the level's sums or to the output.
    fn hand_out(&mut self, worker: &Worker, shared: &Shared<'_>, level: usize, tiles: Range<u64>) {
        let fresh = shared.inputs.fresh(level);
        let origin = tiles.start * TILE as u64;
        let known = if level == 0 { shared.output.first } else { 0 };
        let begin = origin.max(fresh.start).max(known);
        let end = (tiles.end * TILE as u64).min(fresh.end);
        if begin >= end {
            return;
        }
        let (count, skipped) = ((end - begin) as usize, (begin - origin) as usize);
        let rate = &mut self.rates[level];
        for (template, _) in &rate.active {
            let row = &worker.rows[template * ROW + skipped..][..count];
            if level > 0 {
                let at = template * rate.stride + rate.past + (begin - fresh.start) as usize;
                rate.sums[at..][..count].copy_from_slice(row);
                continue;
            }
            let Output { start, stride, first } = shared.output;
            let at = (self.first + template) * stride + (begin - first) as usize;
            // SAFETY: the engine's caller provides space for each template's new ratios in a row of its own.
            unsafe { std::ptr::copy_nonoverlapping(row.as_ptr(), start.add(at), count) };
        }
    }
}
