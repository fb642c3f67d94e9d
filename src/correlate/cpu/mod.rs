//! X-engine on the CPU: tiles of sums in registers, panels of samples in the caches.
//!
//! Invariant: sums have the same bits for any split of a stream and any number of threads.
#![allow(unsafe_code)]

mod bands;
mod sums;
mod tile;
mod work;
#[cfg(target_arch = "x86_64")]
mod x86;

use std::ops::Range;

use bands::{Band, Channel, Clock};
use num_complex::Complex;
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
    /// Bands of a channel, the same for all channels, last rows first.
    bands: Vec<Band>,
    /// Sums and counts; axes channel, band.
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
        let bands = bands::divide(plan, threads.count());
        let unit = |band: &Band| Ok(Unit { sums: Sums::new(band)?, counts: Counts::new(band) });
        let worker = |_| Ok(Worker { scratch: Scratch::new()?, valid: vec![0; plan.antennas()] });
        let units = (0..plan.channels()).flat_map(|_| bands.iter().map(unit));
        Ok(Self {
            kernel: Kernel::new(level, float),
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
            unsafe { (kernel.run)(work, &mut unit[0].sums, &mut worker.scratch) };
        });
        clock.pass(block.times(), kernel.times);
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
        let (kind, clock) = (kernel.kind, *clock);
        let (pairs, baselines) = (plan.pairs(), plan.baselines());
        let panels = bands[bands.len() - 1].panels.len();
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
    bands::divide(plan, threads).iter().map(own).sum()
}

/// Returns the first antenna of a baseline.
fn antenna(baseline: usize) -> usize {
    let guess = ((8.0 * baseline as f64 + 1.0).sqrt() as usize).saturating_sub(1) / 2;
    if Plan::baseline(guess + 1, 0) <= baseline { guess + 1 } else { guess }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use VoltageEncoding::{Complex4, Complex8, ComplexF32};
    use num_complex::Complex;

    use super::super::block::{Block, BlockBuffer, Output};
    use super::super::plan::{Options, Plan};
    use super::Engine;
    use crate::backend::simd::Level;
    use crate::backend::threads::Threads;
    use crate::voltage::VoltageEncoding;

    /// Pseudo-random numbers.
    struct Noise(u64);

    impl Noise {
        fn next(&mut self) -> u64 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
        }

        /// Returns random spectra, with invalid samples if `holes`.
        fn spectra(&mut self, plan: &Plan, times: usize, holes: bool) -> BlockBuffer {
            let mut buffer = BlockBuffer::new(plan, times);
            buffer.set_times(times).unwrap();
            self.fill(plan, buffer.bytes_mut());
            if holes {
                // About a quarter of the words have invalid samples.
                let mut word = || if self.next() >> 62 == 0 { self.next() } else { u64::MAX };
                buffer.mask_mut().fill_with(&mut word);
            }
            buffer
        }

        fn fill(&mut self, plan: &Plan, bytes: &mut [u8]) {
            if plan.encoding() == ComplexF32 {
                let float = |bits: u64| (bits >> 40) as f32 / (1 << 24) as f32 - 0.5;
                let bytes = bytes.chunks_exact_mut(4);
                bytes.for_each(|to| to.copy_from_slice(&float(self.next()).to_le_bytes()));
                return;
            }
            // About a quarter of the bytes are extreme values.
            let byte = |bits: u64| match (bits >> 60, plan.encoding()) {
                (0..2, _) => 0x80,
                (2..4, Complex8) => 0x7f,
                (2..4, _) => 0x77,
                _ => (bits >> 40) as u8,
            };
            bytes.fill_with(|| byte(self.next()));
        }
    }

    fn plan(
        antennas: usize,
        polarizations: usize,
        channels: usize,
        encoding: VoltageEncoding,
    ) -> Plan {
        Plan::new(Options { antennas, polarizations, channels, encoding }).unwrap()
    }

    /// Results of an engine.
    #[derive(Debug, PartialEq)]
    struct Sums {
        integers: Vec<Complex<i64>>,
        floats: Vec<Complex<f64>>,
        counts: Vec<u64>,
    }

    fn read(engine: &mut Engine, channels: Range<usize>) -> Sums {
        let plan = engine.plan.clone();
        let elements = channels.len() * plan.row_elements();
        let mut counts = vec![9; channels.len() * plan.baselines()];
        let (mut integers, mut floats) = (Vec::new(), Vec::new());
        if plan.encoding() == ComplexF32 {
            floats = vec![Complex::new(9.0, 9.0); elements];
            engine.read(channels, Output::Float(&mut floats), &mut counts);
        } else {
            integers = vec![Complex::new(9, 9); elements];
            engine.read(channels, Output::Integer(&mut integers), &mut counts);
        }
        Sums { integers, floats, counts }
    }

    /// Computes the sums one product at a time.
    fn expected(plan: &Plan, block: Block<'_>) -> Sums {
        let mut sums = Sums { integers: Vec::new(), floats: Vec::new(), counts: Vec::new() };
        let polarizations = plan.polarizations();
        for channel in 0..plan.channels() {
            for (i, j) in (0..plan.antennas()).flat_map(|i| (0..=i).map(move |j| (i, j))) {
                let valid = |antenna, time: &usize| block.is_valid(plan, channel, antenna, *time);
                let times = (0..block.times()).filter(|t| valid(i, t) && valid(j, t));
                let times: Vec<usize> = times.collect();
                sums.counts.push(times.len() as u64);
                for pair in 0..plan.pairs() {
                    let value = |antenna: usize, polarization: usize, time: usize| {
                        block.value(plan, channel, antenna * polarizations + polarization, time)
                    };
                    let (p, q) = (pair / polarizations, pair % polarizations);
                    let products = times.iter().map(|t| value(i, p, *t) * value(j, q, *t).conj());
                    let sum: Complex<f64> = products.sum();
                    if plan.encoding() == ComplexF32 {
                        sums.floats.push(sum);
                    } else {
                        sums.integers.push(Complex::new(sum.re as i64, sum.im as i64));
                    }
                }
            }
        }
        sums
    }

    fn compare(actual: &Sums, expected: &Sums, times: usize, name: &str) {
        assert_eq!(actual.counts, expected.counts, "{name}");
        assert_eq!(actual.integers, expected.integers, "{name}");
        assert_eq!(actual.floats.len(), expected.floats.len(), "{name}");
        // Samples are below one half; the error of a run is a few roundings of its sum.
        let bound = 1e-5 * (times as f64).sqrt().max(1.0);
        for (a, b) in actual.floats.iter().zip(&expected.floats) {
            assert!((a - b).norm() < bound, "{name}: {a} is not {b}");
        }
    }

    #[test]
    fn every_kernel_has_the_sums_of_the_equation() {
        let shapes =
            [(1, 1, 3), (1, 2, 1), (3, 1, 2), (17, 1, 1), (8, 2, 2), (9, 2, 1), (35, 2, 1)];
        let mut noise = Noise(0x9e37_79b9_7f4a_7c15);
        for encoding in [Complex4, Complex8, ComplexF32] {
            for (antennas, polarizations, channels) in shapes {
                let plan = plan(antennas, polarizations, channels, encoding);
                for times in [0, 1, 2, 63, 67, 300] {
                    for holes in [false, true] {
                        let buffer = noise.spectra(&plan, times, holes);
                        let block = buffer.block();
                        let expected = expected(&plan, block);
                        for level in Level::variants() {
                            let name = format!("{plan:?}, {times} times on {level:?}");
                            let mut engine = Engine::new(&plan, level, &Threads::new(1)).unwrap();
                            engine.run(block);
                            compare(&read(&mut engine, 0..channels), &expected, times, &name);
                        }
                    }
                }
            }
        }
    }

    /// Returns the byte range of an input at a time in its panel.
    fn places(plan: &Plan, time: usize, lane: usize) -> Vec<Range<usize>> {
        if plan.encoding() == ComplexF32 {
            return [0, 1]
                .map(|part| ((2 * time + part) * 16 + lane) * 4)
                .map(|at| at..at + 4)
                .into();
        }
        let bytes = plan.encoding().sample_bits() / 8;
        let at = ((time / 2 * 16 + lane) * 2 + time % 2) * bytes;
        std::iter::once(at..at + bytes).collect()
    }

    /// Copies `times` times of a block, from `first` on, to a new block.
    fn part(plan: &Plan, block: Block<'_>, first: usize, times: usize) -> BlockBuffer {
        let mut buffer = BlockBuffer::new(plan, times);
        buffer.set_times(times).unwrap();
        let to = buffer.bytes_mut().chunks_exact_mut(plan.panel_bytes(times));
        for (from, to) in block.bytes().chunks_exact(plan.panel_bytes(block.times())).zip(to) {
            for (time, lane) in (0..times).flat_map(|time| (0..16).map(move |lane| (time, lane))) {
                let from_to =
                    places(plan, first + time, lane).into_iter().zip(places(plan, time, lane));
                from_to.for_each(|(source, target)| to[target].copy_from_slice(&from[source]));
            }
        }
        for (index, mask) in buffer.mask_mut().chunks_exact_mut(Plan::mask_words(times)).enumerate()
        {
            let (channel, antenna) = (index / plan.antennas(), index % plan.antennas());
            // Sets the bits after the last time, which the engine must ignore.
            mask.fill(0);
            mask[(times - 1) / 64] = u64::MAX << ((times - 1) % 64) << 1;
            let valid = |t: &usize| block.is_valid(plan, channel, antenna, first + t);
            (0..times).filter(valid).for_each(|t| mask[t / 64] |= 1 << (t % 64));
        }
        buffer
    }

    #[test]
    fn any_split_and_any_number_of_threads_give_the_same_bits() {
        let mut noise = Noise(0x1234_5678_9abc_def1);
        for encoding in [Complex4, Complex8, ComplexF32] {
            for (antennas, channels) in [(40, 1), (9, 5)] {
                let plan = plan(antennas, 2, channels, encoding);
                let times = 900;
                let buffer = noise.spectra(&plan, times, true);
                for level in Level::variants() {
                    let mut whole = Engine::new(&plan, level, &Threads::new(1)).unwrap();
                    whole.run(buffer.block());
                    let whole = read(&mut whole, 0..channels);
                    for (threads, lengths) in [(3, [7, 256]), (1, [300, 1]), (2, [129, 64])] {
                        let mut engine = Engine::new(&plan, level, &Threads::new(threads)).unwrap();
                        // Samples before a reset must not matter.
                        engine.run(part(&plan, buffer.block(), 5, 70).block());
                        engine.reset();
                        let (mut first, mut turn) = (0, 0);
                        while first < times {
                            let length = lengths[turn % 2].min(times - first);
                            engine.run(part(&plan, buffer.block(), first, length).block());
                            (first, turn) = (first + length, turn + 1);
                        }
                        let name = format!("{plan:?} on {level:?}, {lengths:?}");
                        assert_eq!(read(&mut engine, 0..channels), whole, "{name}");
                        if channels > 2 {
                            let some = read(&mut engine, 1..3);
                            let row = plan.row_elements();
                            assert!(
                                whole.integers.get(row..3 * row).unwrap_or(&[]) == some.integers
                            );
                            assert!(whole.floats.get(row..3 * row).unwrap_or(&[]) == some.floats);
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn sums_that_no_32_bits_hold_are_exact() {
        for (encoding, byte, most) in [(Complex8, 0x80, 128), (Complex4, 0x88, 8)] {
            let plan = plan(2, 1, 1, encoding);
            for level in Level::variants() {
                let mut engine = Engine::new(&plan, level, &Threads::new(1)).unwrap();
                let mut times = 0;
                for length in [65_535, 1, 70_001, 131_070] {
                    let mut buffer = BlockBuffer::new(&plan, length);
                    buffer.set_times(length).unwrap();
                    buffer.bytes_mut().fill(byte);
                    engine.run(buffer.block());
                    times += length as i64;
                }
                let sums = read(&mut engine, 0..1);
                assert_eq!(
                    sums.integers,
                    [Complex::new(2 * most * most * times, 0); 3],
                    "{level:?}"
                );
                assert_eq!(sums.counts, [times as u64; 3]);
            }
        }
    }

    #[test]
    fn what_is_nobodys_or_masked_may_be_anything() {
        let plan = plan(5, 1, 1, ComplexF32);
        let mut noise = Noise(77);
        let mut buffer = noise.spectra(&plan, 70, false);
        let lanes = 0..70 * 2 * 16;
        for at in lanes.filter(|at| at % 16 >= 5) {
            buffer.bytes_mut()[at * 4..][..4].copy_from_slice(&f32::NAN.to_le_bytes());
        }
        let infinite = 66 * 2 * 16 + 3;
        buffer.bytes_mut()[infinite * 4..][..4].copy_from_slice(&f32::INFINITY.to_le_bytes());
        buffer.mask_mut().fill(u64::MAX);
        buffer.mask_mut()[3 * 2 + 1] = !(1 << 2);
        let expected = expected(&plan, buffer.block());
        for level in Level::variants() {
            let mut engine = Engine::new(&plan, level, &Threads::new(1)).unwrap();
            engine.run(buffer.block());
            compare(&read(&mut engine, 0..1), &expected, 70, level.name());
        }
    }
}
