//! Long power-of-two transforms in two kernels: windowed sums with the first part of the transform, then the rest. The
//! indices c1, c2, k1 and k2 are defined in `split_sums.cu`.
//!
//! Invariant: a spectrum's value depends only on the samples under its window.

use std::f64::consts::TAU;

use super::fused::{MAX_HELD, encoding, order, twiddle_words};
use super::job::{Job, Pass, PassSize, Target};
use crate::backend::cuda::tune::{self, Candidate};
use crate::backend::cuda::{Arguments, Buffer, Device, Function, Properties, Source, Stream};
use crate::channelize::plan::{Form, Plan};
use crate::error::Result;

/// Product of radix and spectra of a batch. A thread holds that many sums of two complex columns: 64 registers.
const SUMS: usize = 16;

/// Values that a block of the second kernel transforms if it takes three steps.
const LONG_VALUES: usize = 1 << 14;

/// Bytes of shared memory reserved per block.
const RESERVED_BYTES: usize = 1024;

/// Sizes of both kernels, named as their constants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Shape {
    pub(super) points: usize,
    /// Values of c1 that a thread of the first kernel transforms in registers.
    pub(super) radix: usize,
    /// Length of the first kernel's second transform.
    pub(super) side: usize,
    /// Lengths of the second kernel's transforms: two equal ones and 1, or three of which the last is 16.
    pub(super) sides: [usize; 3],
    /// Columns per block.
    pub(super) group: usize,
    pub(super) taps: usize,
    /// Spectra per batch.
    pub(super) batch: usize,
    /// Resident blocks per multiprocessor.
    pub(super) resident: usize,
    /// Rows of samples prefetched by asynchronous copies.
    pub(super) prefetched: usize,
    /// Rows in flight from global memory to registers.
    pub(super) ahead: usize,
    pub(super) holds_taps: bool,
    pub(super) conversion: usize,
    pub(super) encoding: usize,
    pub(super) sample_bytes: usize,
    /// Lines per block of the second kernel.
    pub(super) lines: usize,
    /// MiB of intermediate values per pass.
    pub(super) pass_mib: usize,
    /// XOR mask that maps a frequency to its index in the output.
    pub(super) order: usize,
}

impl Shape {
    /// Returns the shapes worth measuring for a plan, the default first; empty if the plan has no such kernels.
    pub(in super::super) fn candidates(plan: &Plan, properties: &Properties) -> Vec<Self> {
        let mut found: Vec<Self> = Vec::new();
        for shape in Self::of_plan(plan).iter().flat_map(Self::others) {
            if let Some(shape) = shape.fitting(properties.shared_bytes)
                && !found.contains(&shape)
            {
                found.push(shape);
            }
        }
        found
    }

    fn of_plan(plan: &Plan) -> Option<Self> {
        let (points, taps) = (plan.points(), plan.taps());
        let (encoding, sample_bytes) = encoding(plan.input().encoding)?;
        let (radix, sides) = geometry(points, taps, sample_bytes)?;
        if plan.hop() != points || plan.options().form == Form::Filtered {
            return None;
        }
        let is_plain = plan.options().form == Form::Spectra;
        let line: usize = sides.iter().product();
        let shape = Self {
            points,
            radix,
            side: 32,
            sides,
            group: 32,
            taps,
            batch: SUMS / radix,
            resident: 1,
            prefetched: 0,
            ahead: if sample_bytes == 8 { 2 } else { 4 },
            holds_taps: taps * radix <= MAX_HELD,
            conversion: usize::from(sample_bytes == 2),
            encoding,
            sample_bytes,
            lines: if sides[2] == 1 { 8 } else { LONG_VALUES / line },
            pass_mib: 512,
            // Other forms reorder the channels themselves.
            order: if is_plain { order(plan.options().order, points) } else { 0 },
        };
        Some(shape.relieved())
    }

    /// Returns whether sums, taps and samples leave no registers for addresses of prefetched samples; determined by
    /// experiment.
    fn is_tight(&self) -> bool {
        match (self.radix, self.sample_bytes) {
            (1, 8) => (9..48).contains(&self.taps),
            (1, _) => (MAX_HELD + 1..48).contains(&self.taps),
            (2, 4 | 8) => self.taps <= MAX_HELD,
            _ => false,
        }
    }

    /// Returns the shape with smaller blocks if a thread needs more registers than 512 threads allow.
    fn relieved(self) -> Self {
        let Self { radix, taps, sample_bytes, .. } = self;
        let is_ring = taps > MAX_HELD;
        let is_full = radix > 1 && (is_ring || sample_bytes == 8 && taps > 8);
        match is_full {
            true => {
                Self { group: if sample_bytes == 1 { 16 } else { 8 }, ..self }.of_fewer_threads()
            }
            false if sample_bytes == 8 && taps <= MAX_HELD => self.of_group(16),
            false => self,
        }
    }

    /// Limits the number of resident threads, so that each thread has more registers.
    fn of_fewer_threads(self) -> Self {
        Self { resident: 24 / self.group, ..self }
    }

    /// Returns the shape with `group` columns per block and the same number of resident threads.
    fn of_group(self, group: usize) -> Self {
        Self { group, resident: 32 / group, ..self }
    }

    /// Returns this shape and variants that differ in one parameter.
    fn others(&self) -> Vec<Self> {
        let own = *self;
        let mut others = vec![own];
        others.extend([16, 32].map(|group| own.of_group(group)));
        others.push(Self { group: 8, ..own }.of_fewer_threads());
        others.extend([32, 256, 1024].map(|pass_mib| Self { pass_mib, ..own }));
        others.push(Self { ahead: 12 - own.ahead.max(4), ..own });
        if own.sides[2] == 1 {
            others.extend([4, 16].map(|lines| Self { lines, ..own }));
        }
        others
    }

    /// Fits the number of resident blocks and prefetched rows to shared memory.
    fn fitting(mut self, shared_bytes: usize) -> Option<Self> {
        self.prefetched = 0;
        // Asynchronous copies move 16 bytes.
        if self.group * self.sample_bytes < 16 {
            return None;
        }
        let room = |resident: usize| {
            ((shared_bytes + RESERVED_BYTES) / resident).saturating_sub(RESERVED_BYTES)
        };
        while self.sums_bytes() > room(self.resident) {
            self.resident = self.resident.checked_sub(1).filter(|resident| *resident > 0)?;
        }
        if self.lines_bytes() > shared_bytes {
            return None;
        }
        let wanted = match self.taps {
            _ if self.is_tight() => 0,
            0..=MAX_HELD => self.taps + self.batch - 1,
            _ => self.ahead.min(self.batch),
        };
        let row = self.first() * self.group * self.sample_bytes;
        self.prefetched = wanted.min((room(self.resident) - self.sums_bytes()) / row);
        Some(self)
    }

    /// Returns the number of values of k1.
    pub(super) fn first(&self) -> usize {
        self.radix * self.side
    }

    pub(super) fn line(&self) -> usize {
        self.sides.iter().product()
    }

    pub(super) fn sums_threads(&self) -> usize {
        self.side * self.group / 2
    }

    pub(super) fn lines_threads(&self) -> usize {
        if self.sides[2] == 1 { self.lines * self.sides[0] } else { LONG_VALUES / self.sides[2] }
    }

    /// Returns the bytes of shared memory per block of the first kernel for full batches.
    pub(super) fn sums_bytes(&self) -> usize {
        self.rows_bytes(self.batch)
            + self.prefetched * self.first() * self.group * self.sample_bytes
    }

    /// Returns the bytes of shared memory per block of the first kernel for one spectrum at a time.
    pub(super) fn sums_bytes_of_one(&self) -> usize {
        self.rows_bytes(1)
    }

    /// Returns the bytes of the rows of values and of the twiddle factors.
    fn rows_bytes(&self, batch: usize) -> usize {
        let factors = if self.radix > 1 { 4 * self.first() } else { 0 };
        8 * (batch + 1) * self.first() * self.group + factors
    }

    /// Returns the bytes of shared memory per block of the second kernel.
    pub(super) fn lines_bytes(&self) -> usize {
        let [one, two, three] = self.sides;
        let line = if three == 1 { one * (two + 1) } else { one * two * (three + 1) };
        8 * self.lines * (line + if self.lines >= 16 { 1 } else { 16 / self.lines })
    }

    /// Returns W^(c2 k1), the twiddle factors between the kernels; axes: group, k1, c2 in the group.
    pub(super) fn twiddles(&self) -> Vec<f32> {
        let mut values = Vec::with_capacity(2 * self.points);
        for group in 0..self.line() / self.group {
            for k1 in 0..self.first() {
                for c2 in group * self.group..(group + 1) * self.group {
                    let (sine, cosine) = (-TAU * (c2 * k1) as f64 / self.points as f64).sin_cos();
                    values.extend([cosine as f32, sine as f32]);
                }
            }
        }
        values
    }

    /// Returns the twiddle factors of the first kernel's second transform; axes: output index of the first transform,
    /// word.
    pub(super) fn row_factors(&self) -> Vec<f32> {
        let phase = |k: usize| k as f64 / self.first() as f64;
        (0..self.radix).flat_map(|k| twiddle_words(self.side, phase(k)).flatten()).collect()
    }

    /// Returns the twiddle factors of the second kernel's transforms after the first; axes: word, partial frequency
    /// index.
    pub(super) fn line_factors(&self) -> [Vec<f32>; 2] {
        let [one, two, three] = self.sides;
        [
            table(two, one, one * two),
            if three == 1 { Vec::new() } else { table(three, one * two, self.line()) },
        ]
    }

    /// Returns the key under which the tuner caches its choice.
    pub(super) fn tuning_key(&self) -> String {
        let Self { points, taps, encoding, .. } = self;
        format!("points={points} taps={taps} encoding={encoding}")
    }

    /// Returns the shape as a tuning candidate.
    pub(super) fn candidate(&self) -> Candidate {
        let Self { group, resident, prefetched, ahead, lines, pass_mib, .. } = *self;
        let name = format!(
            "{resident} x {group} columns, rows {prefetched} and {ahead} ahead, {lines} lines, \
             passes of {pass_mib} MiB"
        );
        let values = [group, resident, prefetched, ahead, lines, pass_mib];
        Candidate { name, values: values.map(|value| value as u32).to_vec() }
    }

    /// Returns the first kernel's source and constants.
    pub(in super::super) fn sums_source(&self) -> Source {
        let constants = [
            ("POINTS", self.points),
            ("RADIX", self.radix),
            ("SIDE", self.side),
            ("GROUP", self.group),
            ("THREADS", self.sums_threads()),
            ("RESIDENT", self.resident),
            ("TAPS", self.taps),
            ("BATCH", self.batch),
            ("PREFETCHED", self.prefetched),
            ("AHEAD", self.ahead),
            ("HOLDS_TAPS", usize::from(self.holds_taps)),
            ("PRODUCT_ORDER", 2),
            ("ENCODING", self.encoding),
            ("CONVERSION", self.conversion),
        ];
        Source {
            name: "split_sums.cu",
            text: include_str!("split_sums.cu"),
            includes: &[
                ("decode.cuh", include_str!("decode.cuh")),
                ("fft.cuh", include_str!("fft.cuh")),
                ("fir.cuh", include_str!("fir.cuh")),
            ],
            defines: constants.map(|(name, value)| (name, value.to_string())).to_vec(),
        }
    }

    /// Returns the second kernel's source and constants.
    pub(in super::super) fn lines_source(&self) -> Source {
        let [one, two, three] = self.sides;
        let common = [
            ("POINTS", self.points),
            ("LINES", self.lines),
            ("ORDER", self.order),
            ("RESIDENT", (512 / self.lines_threads()).max(1)),
        ];
        let own = match three {
            1 => vec![("SIDE", one)],
            _ => vec![
                ("SIDE_1", one),
                ("SIDE_2", two),
                ("SIDE_3", three),
                ("THREADS", self.lines_threads()),
            ],
        };
        let (name, text) = match three {
            1 => ("split_lines.cu", include_str!("split_lines.cu")),
            _ => ("split_long.cu", include_str!("split_long.cu")),
        };
        let defines = common.into_iter().chain(own);
        Source {
            name,
            text,
            includes: &[("fft.cuh", include_str!("fft.cuh"))],
            defines: defines.map(|(name, value)| (name, value.to_string())).collect(),
        }
    }
}

/// Returns the first kernel's radix and the second kernel's sides.
fn geometry(points: usize, taps: usize, sample_bytes: usize) -> Option<(usize, [usize; 3])> {
    match points {
        32_768 => Some((1, [32, 32, 1])),
        // With wide samples, two values of c1 per thread exceed the registers.
        65_536 if sample_bytes > 2 => Some((1, [8, 16, 16])),
        65_536 => Some((2, [32, 32, 1])),
        131_072 => Some((1, [16, 16, 16])),
        262_144 => Some((2, [16, 16, 16])),
        // Four values of c1 per thread exceed the registers unless taps are few and samples narrow.
        524_288 if sample_bytes > 2 || taps > 8 => None,
        524_288 => Some((4, [16, 16, 16])),
        _ => None,
    }
}

/// Returns words of twiddle factors of `side`-point transforms with phase step `k / of`; axes: word, k.
fn table(side: usize, count: usize, of: usize) -> Vec<f32> {
    let words: Vec<Vec<[f32; 4]>> =
        (0..count).map(|k| twiddle_words(side, k as f64 / of as f64).collect()).collect();
    (0..side / 4).flat_map(|word| words.iter().flat_map(move |line| line[word])).collect()
}

/// Lists the kernels of a plan; empty if the plan or the device has none.
pub(super) fn sources(plan: &Plan, device: &Device) -> Vec<Source> {
    let shape = chosen(plan, device);
    shape.map_or_else(Vec::new, |shape| vec![shape.sums_source(), shape.lines_source()])
}

/// Both kernels of a plan, their tables and the intermediate buffer.
#[derive(Debug)]
pub(super) struct Split {
    shape: Shape,
    /// First kernel for full batches, and for launches shorter than a batch.
    batches: Function,
    single: Function,
    lines: Function,
    /// Blocks of the first kernel resident on the device.
    blocks: usize,
    coefficients: Buffer<f32>,
    twiddles: Buffer<f32>,
    row_factors: Buffer<f32>,
    line_factors: [Buffer<f32>; 2],
    /// Intermediate values; axes: spectrum, stream of the pass, k1, c2.
    values: Buffer<f32>,
}

impl Split {
    /// Returns `None` if the plan or the device has no such kernels.
    pub(super) fn new(plan: &Plan, device: &Device) -> Result<Option<Self>> {
        let Some(shape) = chosen(plan, device) else { return Ok(None) };
        let sums = device.module(&shape.sums_source())?;
        let lines = device.module(&shape.lines_source())?;
        let batches = sums.function("split_sums_batches", shape.sums_bytes())?;
        let resident = batches.blocks_per_multiprocessor(shape.sums_threads())?;
        let scale = plan.input().scale;
        let coefficients: Vec<f32> =
            plan.coefficients().iter().map(|b| (b * scale) as f32).collect();
        // The kernel may load one row of taps past the end.
        let room = vec![0.0; plan.points()];
        let (shape, values) = values(plan, device, shape)?;
        let [second, third] = shape.line_factors();
        let kernel = if third.is_empty() { "split_lines" } else { "split_long_lines" };
        Ok(Some(Self {
            single: sums.function("split_sums_single", shape.sums_bytes_of_one())?,
            lines: lines.function(kernel, shape.lines_bytes())?,
            blocks: (resident * device.properties().multiprocessors).max(1),
            coefficients: device.upload(&[coefficients, room].concat())?,
            twiddles: device.upload(&shape.twiddles())?,
            row_factors: device.upload(&shape.row_factors())?,
            line_factors: [device.upload(&second)?, device.upload(&third)?],
            values,
            shape,
            batches,
        }))
    }

    /// Returns the spectra and units per pass.
    pub(super) fn pass_size(&self, plan: &Plan) -> PassSize {
        pass_size(plan, &self.shape)
    }

    /// Enqueues the first kernel for a pass.
    ///
    /// # Safety
    /// The job's addresses must be valid for its sizes, and the pass must be part of the job.
    pub(super) unsafe fn sums(
        &self,
        stream: &Stream,
        job: &Job,
        pass: &Pass,
        plan: &Plan,
    ) -> Result<()> {
        let input = plan.input();
        let skipped = (pass.first_spectrum - job.first_spectrum) * plan.hop() as u64;
        let groups = self.shape.line() / self.shape.group;
        let streams = pass.units * input.polarizations;
        let is_short = pass.spectra < self.shape.batch;
        let (function, batch) =
            if is_short { (&self.single, 1) } else { (&self.batches, self.shape.batch) };
        let batches = pass.spectra.div_ceil(batch);
        let share = share(self.blocks, groups * streams, batches);
        let arguments = Arguments::new()
            .with(job.input + skipped * self.shape.sample_bytes as u64)
            .with(job.stride)
            .with(self.coefficients.address())
            .with(self.twiddles.address())
            .with(self.row_factors.address())
            .with(self.values.address())
            .with(pass.spectra as u32)
            .with((share * batch) as u32)
            .with(pass.first_unit as u32)
            .with(input.coarse_channels as u32)
            .with(input.polarizations as u32)
            .with(u32::from(plan.options().reverse_coarse));
        let grid = [groups, batches.div_ceil(share), streams];
        // SAFETY: the arguments match the kernel; the caller guarantees the job, and `values` has space for a pass.
        unsafe { stream.launch(function, grid, [self.shape.sums_threads(), 1, 1], &arguments) }
    }

    /// Enqueues the second kernel for a pass.
    ///
    /// # Safety
    /// The target must have space for the pass's spectra.
    pub(super) unsafe fn lines(
        &self,
        stream: &Stream,
        pass: &Pass,
        plan: &Plan,
        to: &Target,
    ) -> Result<()> {
        let input = plan.input();
        let streams = pass.units * input.polarizations;
        let [row, antenna, place, polarization] = to.strides.map(|floats| (floats / 2) as u64);
        let [second, third] = &self.line_factors;
        let arguments = Arguments::new().with(self.values.address()).with(second.address());
        let arguments = if third.is_empty() { arguments } else { arguments.with(third.address()) };
        let arguments = arguments
            .with(streams as u32)
            .with(input.polarizations as u32)
            .with(row)
            .with(antenna)
            .with(place)
            .with(polarization)
            .with(pass.first_unit as u32)
            .with(input.coarse_channels as u32)
            .with(to.address);
        let groups = self.shape.first() / self.shape.lines;
        let grid = [pass.spectra * streams * groups, 1, 1];
        // SAFETY: the arguments match the kernel; the caller guarantees the target.
        unsafe { stream.launch(&self.lines, grid, [self.shape.lines_threads(), 1, 1], &arguments) }
    }
}

/// Returns the shape measured fastest on this device, or else the default.
fn chosen(plan: &Plan, device: &Device) -> Option<Shape> {
    let candidates = Shape::candidates(plan, device.properties());
    let first = candidates.first()?;
    let choices: Vec<Candidate> = candidates.iter().map(Shape::candidate).collect();
    let choice = tune::select(device, &first.sums_source(), &first.tuning_key(), &choices);
    candidates.iter().find(|shape| shape.candidate() == choice).or(Some(first)).copied()
}

/// Allocates the intermediate buffer, halving its size until the allocation succeeds.
fn values(plan: &Plan, device: &Device, mut shape: Shape) -> Result<(Shape, Buffer<f32>)> {
    loop {
        let PassSize { spectra, units } = pass_size(plan, &shape);
        let transforms = spectra * units * plan.input().polarizations;
        match device.buffer(2 * plan.points() * transforms) {
            Ok(buffer) => return Ok((shape, buffer)),
            Err(error) if shape.pass_mib == 1 => return Err(error),
            Err(_) => shape.pass_mib /= 2,
        }
    }
}

/// Returns the spectra and units per pass: at least one batch of spectra, with as many units as fit.
fn pass_size(plan: &Plan, shape: &Shape) -> PassSize {
    let input = plan.input();
    let unit = 8 * shape.points * input.polarizations;
    let most = (shape.pass_mib << 20) / unit;
    let units = (most / shape.batch).clamp(1, input.antennas * input.coarse_channels);
    PassSize { spectra: (most / units).max(shape.batch), units }
}

/// Returns the number of consecutive batches per block that minimizes the estimated time. `blocks` blocks run at a
/// time, `columns` counts groups of columns and streams, and starting a block costs half a batch.
fn share(blocks: usize, columns: usize, batches: usize) -> usize {
    let time = |share: &usize| {
        (columns * batches.div_ceil(*share)).div_ceil(blocks) * (2 * share.min(&batches) + 1)
    };
    (1..=batches).min_by_key(time).unwrap_or(1)
}

#[cfg(test)]
mod shape_tests {
    use super::*;
    use crate::channelize::plan::Options;
    use crate::voltage::VoltageEncoding;

    fn shape(channels: usize) -> Shape {
        let plan = Plan::new(Options::new(channels, 8, VoltageEncoding::Complex8)).unwrap();
        Shape::of_plan(&plan).unwrap().fitting(232_448).unwrap()
    }

    #[test]
    fn a_block_uses_the_memory_that_there_is() {
        let found = shape(32768);
        assert_eq!((found.resident, found.batch, found.prefetched), (1, 16, 23));
        assert_eq!(found.sums_bytes(), 8 * 17 * 1024 + 23 * 2048);
        assert_eq!((shape(131_072).lines, shape(131_072).lines_threads()), (4, 1024));
    }

    #[test]
    fn factors_are_on_the_circle_in_the_kernels_order() {
        let found = shape(65536);
        let (twiddles, [factors, none]) = (found.twiddles(), found.line_factors());
        assert_eq!((twiddles.len(), factors.len(), none.len()), (2 * 65536, 1024, 0));
        let angle =
            |values: &[f32], at: usize| f64::from(values[at + 1]).atan2(f64::from(values[at]));
        // Group 1 of 32, k1 = 3, c2 = 37.
        let at = 2 * (64 * 32 + 3 * 32 + 5);
        assert!((angle(&twiddles, at) + TAU * 111.0 / 65536.0).abs() < 1e-6);
        // The first word of k3 = 3: w^16 and w^8, w = exp(-2 pi i 3 / 1024).
        assert!((angle(&factors, 12) + TAU * 48.0 / 1024.0).abs() < 1e-6);
        assert!((angle(&factors, 14) + TAU * 24.0 / 1024.0).abs() < 1e-6);
        let [second, third] = shape(131_072).line_factors();
        assert_eq!((second.len(), third.len()), (16 * 16, 16 * 256));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_share_the_batches() {
        assert_eq!(share(264, 64, 8), 2);
        assert_eq!(share(264, 64, 256), 64);
        assert_eq!(share(264, 64, 1), 1);
        assert_eq!(share(264, 1000, 3), 3);
    }
}
