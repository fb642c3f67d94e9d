//! X-engine on the CPU: tiles of sums in registers, panels of samples in the caches.
//!
//! Invariant: the same bits for any split of a stream and any number of threads.
#![allow(unsafe_code)]

mod memory;
mod panel;
mod partition;
mod portable;
mod sums;
#[cfg(test)]
mod tests;
mod tile;
mod work;
#[cfg(target_arch = "x86_64")]
mod x86;

use std::ops::Range;

use num_complex::Complex;
use panel::Channel;
use partition::{Band, Clock};
use sums::{Counts, Reader, Sums};
use work::{Kernel, Scratch, Work};

use super::block::{Block, Output};
use super::plan::{LANES, Plan};
use crate::backend::simd::Level;
use crate::backend::threads::Threads;
use crate::error::Result;
use crate::voltage::VoltageEncoding;

/// Approximate number of elements that a thread reads out at once.
const READ: usize = 1 << 14;

/// Plan bound to vector instructions and threads.
#[derive(Debug)]
pub(super) struct Engine {
    plan: Plan,
    threads: Threads,
    kernel: Kernel,
    clock: Clock,
    /// Bands of every channel, last rows first.
    bands: Vec<Band>,
    /// Axes channel, band.
    units: Vec<Unit>,
    workers: Vec<Worker>,
}

/// Sums and counts of one band of one channel.
#[derive(Debug)]
struct Unit {
    sums: Sums,
    counts: Counts,
}

/// Scratch memory of a thread.
#[derive(Debug)]
struct Worker {
    scratch: Scratch,
    /// Valid samples of each antenna.
    valid: Vec<u64>,
}

impl Engine {
    pub(super) fn new(plan: &Plan, level: Level, threads: &Threads) -> Result<Self> {
        let float = plan.encoding() == VoltageEncoding::ComplexF32;
        let bands = partition::bands(plan, threads.count());
        let unit = |band: &Band| Ok(Unit { sums: Sums::new(band)?, counts: Counts::new(band) });
        let worker = |_| Ok(Worker { scratch: Scratch::new()?, valid: vec![0; plan.antennas()] });
        let units = (0..plan.channels()).flat_map(|_| bands.iter().map(unit));
        Ok(Self {
            kernel: kernel(level, float),
            clock: Clock::new(float),
            units: units.collect::<Result<_>>()?,
            workers: (0..threads.count()).map(worker).collect::<Result<_>>()?,
            bands,
            threads: threads.clone(),
            plan: plan.clone(),
        })
    }

    pub(super) fn run(&mut self, block: Block<'_>) {
        let Self { plan, threads, kernel, clock, bands, units, workers } = self;
        let (plan, bands, kernel) = (&*plan, &*bands, *kernel);
        let (begin, ahead, all) = (*clock, threads.count(), units.len());
        threads.for_each_chunk(workers, units, 1, |worker, index, unit| {
            let channel = Channel { plan, block, channel: index / bands.len() };
            let band = &bands[index % bands.len()];
            unit[0].counts.add(band, channel, &mut worker.valid);
            let after = index + if bands.len() == 1 { ahead } else { 1 };
            let next = (after < all).then(|| {
                let channel = Channel { channel: after / bands.len(), ..channel };
                (channel, &bands[after % bands.len()])
            });
            let work = Work { channel, band, clock: begin, next };
            // SAFETY: a level proves that its instructions exist, and the unit belongs to this band.
            unsafe { kernel.run(work, &mut unit[0].sums, &mut worker.scratch) };
        });
        clock.pass(block.times(), kernel.times());
    }

    pub(super) fn read(&mut self, channels: Range<usize>, output: Output<'_>, counts: &mut [u64]) {
        match output {
            Output::Integer(sums) => {
                self.write(channels.start, sums, |r, i, j, to| r.integers(i, j, to))
            }
            Output::Float(sums) => {
                self.write(channels.start, sums, |r, i, j, to| r.floats(i, j, to))
            }
        }
        let baselines = self.plan.baselines();
        for (channel, counts) in channels.zip(counts.chunks_exact_mut(baselines)) {
            let units = &self.units[channel * self.bands.len()..];
            for (unit, band) in units.iter().zip(&self.bands) {
                let all =
                    Plan::baseline(band.antennas.start, 0)..Plan::baseline(band.antennas.end, 0);
                for (baseline, count) in all.clone().zip(&mut counts[all]) {
                    *count = unit.counts.baseline(baseline);
                }
            }
        }
    }

    /// Writes the sums of whole channels from `first` on.
    fn write<T: Send>(
        &mut self,
        first: usize,
        output: &mut [Complex<T>],
        write: impl Fn(&Reader<'_>, usize, Range<usize>, &mut [Complex<T>]) + Sync,
    ) {
        let Self { plan, threads, kernel, clock, bands, units, workers } = self;
        let (plan, bands, units) = (&*plan, &*bands, &*units);
        let (kind, clock) = (kernel.kind(), *clock);
        let (pairs, baselines) = (plan.pairs(), plan.baselines());
        let panels = partition::panels(bands);
        let chunk = READ / pairs;
        threads.for_each_chunk(workers, output, chunk * pairs, |_, index, mut output| {
            let mut at = index * chunk;
            while !output.is_empty() {
                let (channel, baseline) = (first + at / baselines, at % baselines);
                let i = antenna(baseline);
                let j = baseline - Plan::baseline(i, 0);
                let others = j..(i + 1).min(j + output.len() / pairs);
                let panel = i * plan.polarizations() / LANES;
                let band = bands.len() - 1 - panel / panels;
                let sums = &units[channel * bands.len() + band].sums;
                let reader = Reader { plan, band: &bands[band], sums, kind, clock };
                let (part, rest) = output.split_at_mut(others.len() * pairs);
                at += others.len();
                write(&reader, i, others, part);
                output = rest;
            }
        });
    }

    pub(super) fn reset(&mut self) {
        self.clock = Clock::new(self.plan.encoding() == VoltageEncoding::ComplexF32);
        self.units.iter_mut().for_each(|unit| unit.counts.reset());
    }
}

/// Returns the bytes of one channel's sums and counts.
pub(super) fn bytes(plan: &Plan, threads: usize) -> usize {
    let own = |band: &Band| size_of::<Unit>() + Sums::bytes(band) + Counts::bytes(band);
    partition::bands(plan, threads).iter().map(own).sum()
}

/// Returns the first antenna of a baseline.
fn antenna(baseline: usize) -> usize {
    let guess = ((8.0 * baseline as f64 + 1.0).sqrt() as usize).saturating_sub(1) / 2;
    if Plan::baseline(guess + 1, 0) <= baseline { guess + 1 } else { guess }
}

/// Returns the fastest kernel of a vector level.
fn kernel(level: Level, float: bool) -> Kernel {
    match (level, float) {
        #[cfg(target_arch = "x86_64")]
        (Level::Avx512(_), true) => Kernel::Floats512,
        #[cfg(target_arch = "x86_64")]
        (Level::Avx512(found), false) if found.vnni() => Kernel::Bytes512,
        #[cfg(target_arch = "x86_64")]
        (Level::Avx512(_), false) => Kernel::Shorts512,
        #[cfg(target_arch = "x86_64")]
        (Level::Avx2(_), true) => Kernel::Floats256,
        #[cfg(target_arch = "x86_64")]
        (Level::Avx2(_), false) => Kernel::Shorts256,
        (_, true) => Kernel::Floats,
        (_, false) => Kernel::Integers,
    }
}
