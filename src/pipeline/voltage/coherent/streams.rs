//! Filtering of one recorded channel's streams.

use std::ops::Range;
use std::sync::Arc;

use num_complex::Complex;
use rustfft::{Fft, FftPlanner};

use super::transfer::Transfer;
use crate::voltage::{VoltageEncoding, Voltages, voltage};

pub(super) type Complex32 = Complex<f32>;

/// Forward and inverse transforms with their scratch memory.
#[derive(Clone)]
pub(super) struct Transform {
    forward: Arc<dyn Fft<f32>>,
    inverse: Arc<dyn Fft<f32>>,
    spectrum: Vec<Complex32>,
    product: Vec<Complex32>,
    scratch: Vec<Complex32>,
}

impl Transform {
    pub(super) fn new(points: usize) -> Self {
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

/// One complex stream, or one or two real streams as its real and imaginary parts; the filter of real samples is
/// Hermitian, so the parts stay separate.
#[derive(Debug)]
pub(super) struct Unit {
    coarse: usize,
    /// Stream indices in the source.
    streams: Range<usize>,
    /// Samples of the current block.
    window: Vec<Complex32>,
    /// Valid output samples of the block, for the even and the odd channels.
    kept: [Vec<Complex32>; 2],
}

impl Unit {
    pub(super) fn new(coarse: usize, streams: Range<usize>, transfer: &Transfer) -> Self {
        let kept = || vec![Complex32::ZERO; transfer.kept()];
        let window = vec![Complex32::ZERO; transfer.points];
        Self { coarse, streams, window, kept: [kept(), kept()] }
    }

    /// Clears all samples.
    pub(super) fn clear(&mut self) {
        self.window.fill(Complex32::ZERO);
    }

    /// Shifts the window by `times` samples and appends new ones; missing samples are zeros.
    pub(super) fn push(&mut self, samples: Voltages<'_>, times: usize) {
        let free = self.window.len() - times;
        self.window.copy_within(times.., 0);
        let window = &mut self.window[free..];
        window.fill(Complex32::ZERO);
        for (index, stream) in self.streams.clone().enumerate() {
            decode(
                samples.row(stream),
                samples.encoding(),
                index == 1,
                &mut window[..samples.times()],
            );
        }
    }

    /// Filters the block.
    pub(super) fn run(&mut self, transfer: &Transfer, transform: &mut Transform) {
        let Transform { forward, inverse, spectrum, product, scratch } = transform;
        spectrum.copy_from_slice(&self.window);
        forward.process_with_scratch(spectrum, scratch);
        for (copy, kept) in self.kept.iter_mut().enumerate() {
            let pairs = spectrum.iter().zip(transfer.filter(self.coarse, copy));
            product.iter_mut().zip(pairs).for_each(|(y, (x, h))| *y = x * h);
            inverse.process_with_scratch(product, scratch);
            let times = kept.len();
            kept.copy_from_slice(&product[transfer.overlap..][..times]);
        }
    }

    /// Writes output samples of one copy to the rows of its streams.
    pub(super) fn write<'a>(
        &self,
        copy: usize,
        samples: Range<usize>,
        is_complex: bool,
        rows: impl Iterator<Item = &'a mut [u8]>,
    ) {
        let kept = &self.kept[copy][samples];
        for (index, row) in rows.enumerate() {
            if is_complex {
                row[..8 * kept.len()].copy_from_slice(bytemuck::cast_slice(kept));
                continue;
            }
            for (bytes, z) in row.chunks_exact_mut(4).zip(kept) {
                let value = if index == 0 { z.re } else { z.im };
                bytes.copy_from_slice(&value.to_le_bytes());
            }
        }
    }

    /// Returns the stream indices in the source.
    pub(super) fn streams(&self) -> Range<usize> {
        self.streams.clone()
    }
}

/// Decodes samples to complex numbers; real samples set one part and leave the other unchanged.
fn decode(row: &[u8], encoding: VoltageEncoding, to_imaginary: bool, values: &mut [Complex32]) {
    if encoding == VoltageEncoding::Complex8 {
        let pairs = row.chunks_exact(2).zip(values);
        pairs.for_each(|(b, z)| *z = Complex32::new(f32::from(b[0] as i8), f32::from(b[1] as i8)));
        return;
    }
    for (index, z) in values.iter_mut().enumerate() {
        let value = voltage(row, encoding, index);
        let value = Complex32::new(value.re as f32, value.im as f32);
        match (encoding.is_complex(), to_imaginary) {
            (true, _) => *z = value,
            (false, false) => z.re = value.re,
            (false, true) => z.im = value.re,
        }
    }
}
