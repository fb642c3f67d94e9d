//! Coherent dedispersion on the CPU: a task transforms one block of one complex stream, or of the real polarizations of
//! a recorded channel.
//!
//! Invariant: each task computes alone, so the bits depend on the samples of its window only.
#![allow(unsafe_code)]

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

use num_complex::Complex;
use rustfft::{Fft, FftPlanner};

use super::plan::{Plan, Step};
use crate::backend::threads::Threads;
use crate::voltage::{VoltageBlock, VoltageEncoding, Voltages, voltage};

type Complex32 = Complex<f32>;

/// Bytes of carried samples that a thread copies at a time.
const CARRIED_BYTES: usize = 1 << 16;

/// Plan bound to threads.
pub(super) struct Engine {
    plan: Plan,
    threads: Threads,
    /// Axes recorded channel, copy, bin.
    filters: Vec<Complex32>,
    transforms: Vec<Transform>,
    /// Carried samples of each stream, rows of `stride` bytes, and memory for the next ones.
    carried: [Vec<u8>; 2],
    stride: usize,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("plan", &self.plan).finish_non_exhaustive()
    }
}

impl Engine {
    pub(super) fn new(plan: &Plan, filters: Vec<Complex32>, threads: &Threads) -> Self {
        let stride = plan.options().encoding.bytes(plan.points());
        let bytes = stride * plan.options().streams();
        Self {
            filters,
            transforms: vec![Transform::new(plan.points()); threads.count()],
            carried: [vec![0; bytes], vec![0; bytes]],
            stride,
            threads: threads.clone(),
            plan: plan.clone(),
        }
    }

    pub(super) fn run(&mut self, step: Step, input: Voltages<'_>, output: &mut VoltageBlock<'_>) {
        let Self { plan, threads, filters, transforms, carried, stride } = self;
        let job = Job { plan, filters, step, input, carried: &carried[0], stride: *stride };
        let target = Target::new(output);
        // Elements without size take no memory.
        let mut places = [(); usize::MAX];
        let tasks = &mut places[..step.blocks * plan.units()];
        threads.for_each_chunk(transforms, tasks, 1, |own, task, _| {
            let (block, unit) = (task / plan.units(), task % plan.units());
            job.window(block, unit, &mut own.spectrum);
            job.filter(block, unit, own, &target);
        });
        self.carry(step, input);
    }

    /// Keeps the samples from the next window on.
    fn carry(&mut self, step: Step, input: Voltages<'_>) {
        let Self { plan, threads, carried, stride, .. } = self;
        let encoding = plan.options().encoding;
        let past = step.blocks * plan.block();
        if past == 0 {
            let at = encoding.bytes(step.held);
            let rows = carried[0].chunks_exact_mut(*stride).enumerate();
            for (stream, row) in rows.filter(|_| step.fresh > 0) {
                let samples = &input.row(stream)[..encoding.bytes(step.fresh)];
                row[at..][..samples.len()].copy_from_slice(samples);
            }
            return;
        }
        let [before, after] = carried;
        let (stride, each) = (*stride, (CARRIED_BYTES / *stride).max(1));
        threads.for_each(after, each * stride, |index, rows| {
            for (row, to) in rows.chunks_exact_mut(stride).enumerate() {
                let stream = index * each + row;
                let kept = past.min(step.held)..step.held;
                let own = &before[stream * stride..][..stride];
                let own = &own[encoding.bytes(kept.start)..encoding.bytes(kept.end)];
                to[..own.len()].copy_from_slice(own);
                let fresh = past.saturating_sub(step.held).min(step.fresh)..step.fresh;
                if !fresh.is_empty() {
                    let bytes = encoding.bytes(fresh.start)..encoding.bytes(fresh.end);
                    let samples = &input.row(stream)[bytes];
                    to[own.len()..][..samples.len()].copy_from_slice(samples);
                }
            }
        });
        carried.swap(0, 1);
    }
}

/// Forward and inverse transforms with their scratch memory.
#[derive(Clone)]
struct Transform {
    forward: Arc<dyn Fft<f32>>,
    inverse: Arc<dyn Fft<f32>>,
    spectrum: Vec<Complex32>,
    product: Vec<Complex32>,
    scratch: Vec<Complex32>,
}

impl Transform {
    fn new(points: usize) -> Self {
        let mut planner = FftPlanner::new();
        let (forward, inverse) =
            (planner.plan_fft_forward(points), planner.plan_fft_inverse(points));
        let scratch = forward.get_inplace_scratch_len().max(inverse.get_inplace_scratch_len());
        Self {
            forward,
            inverse,
            spectrum: vec![Complex32::ZERO; points],
            product: vec![Complex32::ZERO; points],
            scratch: vec![Complex32::ZERO; scratch],
        }
    }
}

/// Work of one call, shared by its tasks.
struct Job<'a> {
    plan: &'a Plan,
    filters: &'a [Complex32],
    step: Step,
    input: Voltages<'a>,
    carried: &'a [u8],
    stride: usize,
}

impl Job<'_> {
    /// Decodes the window of a block; samples outside the recording are zeros.
    fn window(&self, block: usize, unit: usize, window: &mut [Complex32]) {
        let Step { zeros, held, .. } = self.step;
        let encoding = self.plan.options().encoding;
        let first = block * self.plan.block();
        window.fill(Complex32::ZERO);
        let overlapping = |samples: Range<usize>| {
            let end = samples.end.clamp(first, first + window.len());
            samples.start.clamp(first, end)..end
        };
        let (old, new) = (overlapping(zeros..held), overlapping(held..self.step.end()));
        let together = self.plan.together();
        for index in 0..together {
            let stream = unit * together + index;
            let mut part = |row: &[u8], samples: Range<usize>, origin: usize| {
                if !samples.is_empty() {
                    let row = &row[encoding.bytes(samples.start - origin)..];
                    let values = &mut window[samples.start - first..samples.end - first];
                    decode(row, encoding, index == 1, values);
                }
            };
            part(&self.carried[stream * self.stride..][..self.stride], old.clone(), 0);
            if !new.is_empty() {
                part(self.input.row(stream), new.clone(), held);
            }
        }
    }

    /// Filters the window in `own.spectrum` and writes both copies.
    fn filter(&self, block: usize, unit: usize, own: &mut Transform, target: &Target<'_>) {
        let Transform { forward, inverse, spectrum, product, scratch } = own;
        let (points, times) = (self.plan.points(), self.plan.block());
        forward.process_with_scratch(spectrum, scratch);
        for copy in 0..2 {
            let filter = 2 * self.plan.coarse(unit) + copy;
            let pairs = spectrum.iter().zip(&self.filters[filter * points..][..points]);
            product.iter_mut().zip(pairs).for_each(|(y, (x, h))| *y = x * h);
            inverse.process_with_scratch(product, scratch);
            let kept = &product[self.plan.overlap()..][..times];
            let together = self.plan.together();
            for index in 0..together {
                let stream = copy * self.plan.options().streams() + unit * together + index;
                // SAFETY: this task alone writes this block of this stream.
                let row = unsafe { target.samples(stream, block * times, times) };
                write(kept, self.plan.output_encoding(), index, row);
            }
        }
    }
}

/// Writes complex samples, or one of their parts as real samples.
fn write(values: &[Complex32], encoding: VoltageEncoding, part: usize, row: &mut [u8]) {
    if encoding.is_complex() {
        row.copy_from_slice(bytemuck::cast_slice(values));
        return;
    }
    for (bytes, z) in row.chunks_exact_mut(4).zip(values) {
        let value = if part == 0 { z.re } else { z.im };
        bytes.copy_from_slice(&value.to_le_bytes());
    }
}

/// Memory of an output block, whose parts different threads write.
struct Target<'a> {
    at: *mut u8,
    bytes: usize,
    encoding: VoltageEncoding,
    stride: usize,
    offset: usize,
    block: PhantomData<&'a mut [u8]>,
}

// SAFETY: tasks access disjoint samples only, as `Target::samples` requires of its callers.
unsafe impl Sync for Target<'_> {}

impl<'a> Target<'a> {
    fn new(block: &'a mut VoltageBlock<'_>) -> Self {
        let (encoding, stride) = (block.encoding(), block.stride());
        let (memory, own) = block.memory_mut();
        let (at, bytes) = (memory.as_mut_ptr(), memory.len());
        Self { at, bytes, encoding, stride, offset: own.start, block: PhantomData }
    }

    /// Returns the bytes of some samples of a stream.
    ///
    /// # Safety
    /// No other reference to these samples may exist.
    unsafe fn samples(&self, stream: usize, start: usize, times: usize) -> &'a mut [u8] {
        let first = stream * self.stride + self.offset + self.encoding.bytes(start);
        let length = self.encoding.bytes(times);
        assert!(first + length <= self.bytes, "samples outside the block");
        // SAFETY: within the block; the caller guarantees exclusive access.
        unsafe { std::slice::from_raw_parts_mut(self.at.add(first), length) }
    }
}

/// Decodes samples to complex numbers; real samples set one part and leave the other unchanged.
fn decode(row: &[u8], encoding: VoltageEncoding, to_imaginary: bool, values: &mut [Complex32]) {
    use VoltageEncoding::{
        Complex8, Complex16, ComplexF32, ComplexOffset8, Real8, Real16, RealF32,
    };
    let short = |b: &[u8]| f32::from(i16::from_le_bytes([b[0], b[1]]));
    let float = |b: &[u8]| f32::from_le_bytes([b[0], b[1], b[2], b[3]]);
    let part = |z: &mut Complex32, value: f32| {
        if to_imaginary { z.im = value } else { z.re = value }
    };
    match encoding {
        Complex8 => each(row, 2, values, |b, z| {
            *z = Complex32::new(f32::from(b[0] as i8), f32::from(b[1] as i8));
        }),
        ComplexOffset8 => each(row, 2, values, |b, z| {
            *z = Complex32::new(f32::from(b[0]) - 128.0, f32::from(b[1]) - 128.0);
        }),
        Complex16 => each(row, 4, values, |b, z| *z = Complex32::new(short(b), short(&b[2..]))),
        ComplexF32 => each(row, 8, values, |b, z| *z = Complex32::new(float(b), float(&b[4..]))),
        Real8 => each(row, 1, values, |b, z| part(z, f32::from(b[0] as i8))),
        Real16 => each(row, 2, values, |b, z| part(z, short(b))),
        RealF32 => each(row, 4, values, |b, z| part(z, float(b))),
        _ => {
            for (index, z) in values.iter_mut().enumerate() {
                let value = voltage(row, encoding, index);
                match encoding.is_complex() {
                    true => *z = Complex32::new(value.re as f32, value.im as f32),
                    false => part(z, value.re as f32),
                }
            }
        }
    }
}

/// Calls `set` with the bytes of each sample and its value.
fn each(row: &[u8], size: usize, values: &mut [Complex32], set: impl Fn(&[u8], &mut Complex32)) {
    row.chunks_exact(size).zip(values).for_each(|(bytes, value)| set(bytes, value));
}
