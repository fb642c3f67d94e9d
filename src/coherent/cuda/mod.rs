//! Coherent dedispersion on a GPU: windows of all streams are transformed in batches by cuFFT.
//!
//! Invariant: transforms run in whole batches of one plan, so that a block's bits depend on its window only.
#![allow(unsafe_code)]

use num_complex::Complex;

use super::plan::{Plan, Step};
use crate::backend::cuda::{
    Arguments, Buffer, Device, Extent, Fourier, Function, Length, Source, Stream, Variant,
};
use crate::error::{Error, Result};
use crate::voltage::{DeviceVoltages, VoltageEncoding};

/// Threads of a block of every kernel.
const THREADS: usize = 256;

/// Largest number of blocks along y.
const MAX_GRID_ROWS: usize = 65_535;

/// Plan bound to a GPU.
#[derive(Debug)]
pub(super) struct Engine {
    device: Device,
    plan: Plan,
    decode: Function,
    multiply: Function,
    keep: Function,
    carry: Function,
    /// Axes recorded channel, copy, bin, (re, im).
    filters: Buffer<f32>,
    fourier: Fourier,
    /// Windows of a batch; axes copy, transform, point, (re, im).
    work: Buffer<f32>,
    /// Carried samples of each stream, rows of `stride` bytes, and memory for the next ones.
    carried: [Buffer<u8>; 2],
    stride: usize,
}

impl Engine {
    pub(super) fn new(plan: &Plan, filters: &[Complex<f32>], device: &Device) -> Result<Self> {
        let encoding = plan.options().encoding;
        let module = device.module(&source(encoding))?;
        let stride = encoding.bytes(plan.points()).next_multiple_of(16);
        let bytes = stride.saturating_mul(plan.options().streams());
        let stream = device.stream()?;
        let mut carried = [device.buffer(bytes)?, device.buffer(bytes)?];
        for buffer in &mut carried {
            stream.fill(buffer, 0..bytes, 0)?;
        }
        let filters = device.upload(bytemuck::cast_slice(filters))?;
        let (fourier, mut work) = batch(plan, device)?;
        // Batches that a call only partly fills are transformed whole.
        let all = 0..work.len();
        stream.fill(&mut work, all, 0)?;
        stream.synchronize()?;
        Ok(Self {
            device: device.clone(),
            decode: module.function("decode_windows", 0)?,
            multiply: module.function("multiply_filters", 0)?,
            keep: module.function("keep_samples", 0)?,
            carry: module.function("carry_samples", 0)?,
            plan: plan.clone(),
            filters,
            fourier,
            work,
            carried,
            stride,
        })
    }

    /// Returns the device.
    pub(super) fn device(&self) -> &Device {
        &self.device
    }

    /// Enqueues a step with the first samples of `layout`; the rows of the output begin `stride` bytes apart.
    ///
    /// # Errors
    /// [`Error::Parameter`] for misaligned samples or buffers of another GPU; [`Error::Shape`] if samples exceed a
    /// buffer; [`Error::Device`] if the driver fails.
    pub(super) fn enqueue(
        &mut self,
        step: Step,
        input: &Buffer<u8>,
        layout: DeviceVoltages,
        output: &mut Buffer<u8>,
        stride: usize,
        stream: &Stream,
    ) -> Result<()> {
        input.check_on(&self.device)?;
        self.check_output(step, output, stride)?;
        let options = self.plan.options();
        layout.check(options.encoding, options.streams(), input.len())?;
        check_aligned(options.encoding, layout.first_byte, layout.stride)?;
        let from = input.at(layout.first_byte);
        // SAFETY: the checks above have found samples and rows in their buffers.
        unsafe {
            self.blocks(step, from, layout.stride, output.address(), stride, stream)?;
            self.carry(step, from, layout.stride, stream)
        }
    }

    /// Enqueues a step without new samples.
    ///
    /// # Errors
    /// Same as for [`Engine::enqueue`].
    pub(super) fn enqueue_last(
        &mut self,
        step: Step,
        output: &mut Buffer<u8>,
        stride: usize,
        stream: &Stream,
    ) -> Result<()> {
        self.check_output(step, output, stride)?;
        // The kernels read no input.
        let input = self.carried[0].address();
        // SAFETY: the check has found the rows in their buffer.
        unsafe {
            self.blocks(step, input, 0, output.address(), stride, stream)?;
            self.carry(step, input, 0, stream)
        }
    }

    /// Checks that the blocks of a step lie in the output.
    fn check_output(&self, step: Step, output: &Buffer<u8>, stride: usize) -> Result<()> {
        output.check_on(&self.device)?;
        let encoding = self.plan.output_encoding();
        let times = step.blocks * self.plan.block();
        let rows = DeviceVoltages { first_byte: 0, stride, times };
        rows.check(encoding, self.plan.output_streams(), output.len())?;
        check_aligned(encoding, 0, stride)
    }

    /// Enqueues the blocks of a step, batch by batch.
    ///
    /// # Safety
    /// The step's samples and blocks must lie in device memory.
    unsafe fn blocks(
        &mut self,
        step: Step,
        input: u64,
        input_stride: usize,
        output: u64,
        stride: usize,
        stream: &Stream,
    ) -> Result<()> {
        let plan = &self.plan;
        let (points, block, units) = (plan.points(), plan.block(), plan.units());
        let (together, options) = (plan.together(), plan.options());
        let half = self.fourier.batch() * points;
        let (products, windows) = (self.work.address(), self.work.at(2 * half));
        let all = step.blocks * units;
        for first in (0..all).step_by(self.fourier.batch()) {
            let count = self.fourier.batch().min(all - first);
            let samples = Arguments::new()
                .with(self.carried[0].address())
                .with(self.stride as u64)
                .with(input)
                .with(input_stride as u64)
                .with(step.zeros as u64)
                .with(step.held as u64)
                .with(step.end() as u64);
            let decoded = [points, block, units, together];
            let decoded = decoded.iter().fold(samples, |all, number| all.with(*number as u32));
            let decoded = decoded.with(first as u64).with(windows);
            let product = Arguments::new()
                .with(products)
                .with(half as u64)
                .with(self.filters.address())
                .with(points as u32);
            let numbers = [units, together, options.polarizations, options.coarse_channels()];
            let product = numbers.iter().fold(product, |all, number| all.with(*number as u32));
            let product = product.with(first as u64);
            let kept = Arguments::new().with(products).with(half as u64);
            let numbers = [points, plan.overlap(), block, units, together, options.streams()];
            let kept = numbers.iter().fold(kept, |all, number| all.with(*number as u32));
            let kept = kept.with(first as u64).with(output).with(stride as u64);
            let grid = |times: usize, copies: usize| [times.div_ceil(THREADS), count, copies];
            // SAFETY: the arguments match the kernels, and a batch fits the work buffer; the caller guarantees the
            // samples and the output.
            unsafe {
                stream.launch(&self.decode, grid(points, 1), [THREADS, 1, 1], &decoded)?;
                self.fourier.run(&mut self.work, 2 * half, stream)?;
                stream.launch(&self.multiply, grid(points, 1), [THREADS, 1, 1], &product)?;
                self.fourier.run_inverse(&mut self.work, 0, stream)?;
                self.fourier.run_inverse(&mut self.work, 2 * half, stream)?;
                stream.launch(&self.keep, grid(block, 2), [THREADS, 1, 1], &kept)?;
            }
        }
        Ok(())
    }

    /// Enqueues the copy of the samples from the next window on.
    ///
    /// # Safety
    /// The step's samples must lie in device memory.
    unsafe fn carry(
        &mut self,
        step: Step,
        input: u64,
        input_stride: usize,
        stream: &Stream,
    ) -> Result<()> {
        let encoding = self.plan.options().encoding;
        let past = step.blocks * self.plan.block();
        let streams = self.plan.options().streams();
        let left = encoding.bytes(step.end().saturating_sub(past));
        if left > 0 {
            let numbers = [encoding.bytes(step.held), encoding.bytes(past), left];
            let all = Arguments::new()
                .with(self.carried[0].address())
                .with(self.stride as u64)
                .with(input)
                .with(input_stride as u64);
            let all = numbers.iter().fold(all, |all, number| all.with(*number as u64));
            let all = all.with(streams as u32).with(self.carried[1].address());
            let grid = [left.div_ceil(THREADS), streams.min(MAX_GRID_ROWS), 1];
            // SAFETY: the arguments match the kernel; the samples left fit a row, and the caller guarantees the others.
            unsafe { stream.launch(&self.carry, grid, [THREADS, 1, 1], &all)? };
        }
        self.carried.swap(0, 1);
        Ok(())
    }
}

/// Checks that the samples of every stream begin at a multiple of a sample's size.
fn check_aligned(encoding: VoltageEncoding, first_byte: usize, stride: usize) -> Result<()> {
    let size = (encoding.sample_bits() / 8).max(1);
    for (name, bytes) in [("first byte of voltages", first_byte), ("stride (bytes)", stride)] {
        if !bytes.is_multiple_of(size) {
            let rule = format!("it must be a multiple of {size}, the bytes of a sample");
            return Err(Error::parameter(name, bytes, rule));
        }
    }
    Ok(())
}

/// Plans transforms of about as many windows as the level-2 cache holds, fewer if memory is short.
fn batch(plan: &Plan, device: &Device) -> Result<(Fourier, Buffer<f32>)> {
    let bytes = device.properties().l2_bytes.clamp(1 << 20, 1 << 27);
    let mut batch = (bytes / (16 * plan.points())).clamp(1, MAX_GRID_ROWS);
    loop {
        let planned = device.fourier(Length::Complex(plan.points()), batch);
        let made = planned.and_then(|fourier| {
            let work = device.buffer(4 * batch * plan.points())?;
            Ok((fourier, work))
        });
        match made {
            Err(Error::Unavailable { .. } | Error::Device { .. }) if batch > 1 => batch /= 2,
            made => return made,
        }
    }
}

/// Returns the kernels for samples of an encoding.
fn source(encoding: VoltageEncoding) -> Source {
    let place = VoltageEncoding::ALL.iter().position(|other| *other == encoding).unwrap_or(0);
    Source {
        name: "blocks.cu",
        text: include_str!("blocks.cu"),
        includes: &[("voltage.cuh", include_str!("../../backend/cuda/voltage.cuh"))],
        defines: vec![("ENCODING", place.to_string())],
    }
}

/// Returns the kernels of this stage.
pub fn kernels(extent: Extent) -> Vec<Variant> {
    use VoltageEncoding::{Complex8, ComplexF32, Real2, Real16};
    let encodings = match extent {
        // Every decoder is compiled with the filter bank's sums as well.
        Extent::Representative => vec![Complex8, ComplexF32, Real2, Real16],
        Extent::All => VoltageEncoding::ALL.to_vec(),
    };
    let plain = |encoding| Variant::plain(source(encoding), extent);
    encodings.into_iter().map(plain).collect()
}
