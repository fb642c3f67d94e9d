//! Tables of the templates in device memory for the kernels.

use num_complex::Complex;

use super::super::interpolate::{HALF, Interpolator, ROWS, STEPS, TAPS};
use super::super::options::Autocorrelation;
use super::super::shape::Measure;
use crate::backend::cuda::{Arguments, Buffer, Device};
use crate::error::Result;

// The kernel source has the same constants.
const _: () = assert!(HALF == 8 && TAPS == 17 && STEPS == 16 && ROWS == 19);

/// Interpolation filters, and the autocorrelation of every template.
#[derive(Debug)]
pub(super) struct Tables {
    rows: Buffer<f32>,
    /// Autocorrelations, one row of `stride` values per template.
    shapes: Buffer<Complex<f32>>,
    stride: usize,
    halves: Buffer<u32>,
    norms: Buffer<f32>,
    shifts: Buffer<f32>,
}

impl Tables {
    /// Uploads autocorrelations of at most `half` samples on either side.
    pub(super) fn new(
        device: &Device,
        autocorrelations: &[Autocorrelation],
        half: usize,
    ) -> Result<Self> {
        let measure = Measure::new(half);
        let stride = 2 * half + 1;
        let mut shapes = vec![Complex::default(); stride * autocorrelations.len()];
        for (row, one) in shapes.chunks_exact_mut(stride).zip(autocorrelations) {
            row[..one.values.len()].copy_from_slice(&one.values);
        }
        let halves: Vec<u32> = autocorrelations.iter().map(|one| one.half() as u32).collect();
        let norms: Vec<f32> = autocorrelations.iter().map(|one| one.norm).collect();
        let shifts: Vec<f32> = autocorrelations.iter().map(|one| measure.shift(one)).collect();
        Ok(Self {
            rows: device.upload(Interpolator::new().rows().as_flattened())?,
            shapes: device.upload(&shapes)?,
            stride,
            halves: device.upload(&halves)?,
            norms: device.upload(&norms)?,
            shifts: device.upload(&shifts)?,
        })
    }

    /// Appends the tables to a kernel's arguments.
    pub(super) fn add_to(&self, arguments: Arguments) -> Arguments {
        arguments
            .with(self.rows.address())
            .with(self.shapes.address())
            .with(self.stride as u32)
            .with(self.halves.address())
            .with(self.norms.address())
            .with(self.shifts.address())
    }
}
