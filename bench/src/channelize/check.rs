//! Checks a filter bank's output: compares some values with sums in double precision.

use std::f64::consts::TAU;

use rustfft::num_complex::Complex;
use sidereal::backend::Backend;
use sidereal::channelize::{Channelizer, Form, Output, Plan};
use sidereal::voltage::Voltages;
use sidereal::{Error, Result};

/// Bins of a spectrum that are compared.
const BINS: usize = 12;

/// Output rows of any form.
#[derive(Clone, Debug)]
pub(super) struct Rows {
    pub(super) complex: Vec<Complex<f32>>,
    pub(super) floats: Vec<f32>,
    pub(super) bytes: Vec<u8>,
}

impl Rows {
    /// Allocates `rows` rows of a plan.
    pub(super) fn new(plan: &Plan, rows: usize) -> Self {
        let elements = rows * plan.row_elements();
        let (complex, floats, bytes) = match plan.options().form {
            Form::Spectra | Form::Filtered => (elements, 0, 0),
            Form::Detected(_) => (0, elements, 0),
            Form::Requantized { .. } => (0, 0, elements * plan.element_bytes()),
        };
        Self {
            complex: vec![Complex::ZERO; complex],
            floats: vec![0.0; floats],
            bytes: vec![0; bytes],
        }
    }

    pub(super) fn output(&mut self, plan: &Plan) -> Output<'_> {
        match plan.options().form {
            Form::Spectra | Form::Filtered => Output::Complex(&mut self.complex),
            Form::Detected(_) => Output::F32(&mut self.floats),
            Form::Requantized { .. } => Output::Bytes(&mut self.bytes),
        }
    }
}

/// Returns the plan with sums over at most two spectra, because the reference is slow.
pub(super) fn shortened(plan: &Plan) -> Result<Plan> {
    let mut options = plan.options().clone();
    if let Form::Detected(detection) = &mut options.form {
        detection.spectra = detection.spectra.min(2);
    }
    Plan::new(options)
}

/// Compares the first rows of a stream with the reference.
///
/// # Errors
/// Those of the filter bank.
pub(super) fn is_right(plan: &Plan, backend: &Backend, input: Voltages<'_>) -> Result<bool> {
    let rows = plan.rows(input.times() as u64) as usize;
    if rows == 0 {
        return Err(Error::parameter("--memory", "too small", "no row can be compared"));
    }
    let mut found = Rows::new(plan, rows);
    Channelizer::new(plan.clone(), backend)?.run(input, found.output(plan))?;
    match plan.options().form {
        Form::Spectra | Form::Filtered => Ok(spectra_are_right(plan, input, &found, rows)),
        _ => {
            let mut truth = Rows::new(plan, rows);
            Channelizer::new(plan.clone(), &Backend::Reference)?.run(input, truth.output(plan))?;
            Ok(are_alike(&found, &truth))
        }
    }
}

/// Returns whether sums agree within single precision and integers within one rounding step.
fn are_alike(found: &Rows, truth: &Rows) -> bool {
    let peak = truth.floats.iter().fold(0f32, |peak, x| peak.max(x.abs()));
    let floats = found.floats.iter().zip(&truth.floats);
    let bytes = found.bytes.iter().zip(&truth.bytes);
    let differing = bytes.filter(|(a, b)| a != b).count();
    floats.into_iter().all(|(a, b)| (a - b).abs() <= 2e-5 * peak)
        && differing <= 1 + found.bytes.len() / 100
}

fn spectra_are_right(plan: &Plan, input: Voltages<'_>, found: &Rows, rows: usize) -> bool {
    let geometry = *plan.input();
    let is_filtered = plan.options().form == Form::Filtered;
    let summed = if is_filtered { 1.0 } else { plan.points() as f64 };
    let channels = plan.output_channels();
    let mut right = true;
    for row in [0, rows - 1] {
        for antenna in [0, geometry.antennas - 1] {
            for polarization in 0..geometry.polarizations {
                let stream = plan.stream(antenna, plan.coarse_channel(0), polarization);
                let window = window(plan, input, stream, row);
                let peak = window.iter().fold(0f64, |peak, z| peak.max(z.norm()));
                let bound = 6e-7 * ((2 * plan.span()) as f64).log2() * peak * summed;
                let at = row * plan.row_elements() + plan.row_offset(antenna, polarization, 0);
                for bin in 0..BINS {
                    let place = bin * (channels - 1) / (BINS - 1);
                    let error = value(plan, &window, place) - widened(found.complex[at + place]);
                    right &= error.norm() <= bound;
                }
            }
        }
    }
    right
}

fn widened(z: Complex<f32>) -> Complex<f64> {
    Complex::new(f64::from(z.re), f64::from(z.im))
}

/// Computes the windowed sums of one spectrum.
fn window(plan: &Plan, input: Voltages<'_>, stream: usize, row: usize) -> Vec<Complex<f64>> {
    let (points, start) = (plan.points(), row * plan.hop());
    let mut sums = vec![Complex::ZERO; points];
    for (n, b) in plan.coefficients().iter().enumerate() {
        sums[(start + n) % points] += input.value(stream, start + n) * b;
    }
    sums
}

/// Computes one output value from the windowed sums.
fn value(plan: &Plan, sums: &[Complex<f64>], place: usize) -> Complex<f64> {
    if plan.options().form == Form::Filtered {
        return sums[place];
    }
    let (bin, points) = (plan.bin(place), plan.points());
    let phase = |n: usize| Complex::cis(-TAU * (n * bin % points) as f64 / points as f64);
    sums.iter().enumerate().map(|(n, y)| y * phase(n)).sum()
}
