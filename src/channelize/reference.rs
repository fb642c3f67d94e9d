//! Reference polyphase filter bank as plain loops in f64.
//!
//! Invariant: the code follows the equation directly; all other implementations are tested against it.

use std::f64::consts::TAU;

use num_complex::Complex;

use super::plan::{Detection, Feed, Form, Plan, Products};
use crate::voltage::Voltages;

type Complex64 = Complex<f64>;

/// Reference implementation.
#[derive(Debug)]
pub struct Engine {
    plan: Plan,
    /// `exp(-2 pi i k / points)` for every `k`.
    phases: Vec<Complex64>,
    /// Samples of each stream from the start of the next spectrum's window.
    history: Vec<Vec<Complex64>>,
    /// Index of the next spectrum.
    next: usize,
    /// Partial sums of the current row.
    sums: Vec<f64>,
    saturated: Vec<u64>,
}

impl Engine {
    /// Creates an engine at the start of a stream.
    pub fn new(plan: &Plan) -> Self {
        let elements = plan.row_elements();
        let history = vec![Vec::new(); plan.input().streams()];
        let points = plan.points();
        let phase = |k: usize| Complex64::cis(-TAU * k as f64 / points as f64);
        Self {
            plan: plan.clone(),
            phases: (0..points).map(phase).collect(),
            history,
            next: 0,
            sums: vec![0.0; elements],
            saturated: vec![0; elements],
        }
    }

    /// Consumes all samples and appends each finished row to `rows`, as complex values or as sums with an imaginary
    /// part of 0.
    pub fn run(&mut self, input: Voltages<'_>, rows: &mut Vec<Complex64>) {
        let scale = self.plan.input().scale;
        for (stream, history) in self.history.iter_mut().enumerate() {
            history.extend((0..input.times()).map(|time| scale * input.value(stream, time)));
        }
        while self.history[0].len() >= self.plan.span() {
            self.spectrum(rows);
            self.next += 1;
            self.history.iter_mut().for_each(|stream| drop(stream.drain(..self.plan.hop())));
        }
    }

    /// Returns the number of complex samples clipped by requantization, for each row element.
    pub fn saturated(&self) -> &[u64] {
        &self.saturated
    }

    /// Computes one spectrum of every stream.
    fn spectrum(&mut self, rows: &mut Vec<Complex64>) {
        let Self { plan, phases, history, next, sums, saturated } = self;
        let mut row = vec![Complex64::ZERO; plan.row_elements()];
        for antenna in 0..plan.input().antennas {
            for place in 0..plan.input().coarse_channels {
                let coarse = plan.coarse_channel(place);
                let polarizations = 0..plan.input().polarizations;
                let streams = polarizations.map(|p| &history[plan.stream(antenna, coarse, p)]);
                let spectra: Vec<_> = streams.map(|x| transform(plan, phases, x, *next)).collect();
                for (product, values) in products(plan, &spectra).into_iter().enumerate() {
                    let at = plan.row_offset(antenna, product, place);
                    row[at..at + values.len()].copy_from_slice(&values);
                }
            }
        }
        match &plan.options().form {
            Form::Spectra | Form::Filtered => rows.extend(row),
            Form::Requantized { bits, gains } => {
                rows.extend(row.iter().enumerate().map(|(element, value)| {
                    let gain = gains[element % gains.len()];
                    let (limited, whole) = requantize(value * f64::from(gain), *bits);
                    saturated[element] += u64::from(limited);
                    whole
                }));
            }
            Form::Detected(detection) => {
                sums.iter_mut().zip(&row).for_each(|(sum, value)| *sum += value.re);
                if (*next + 1).is_multiple_of(detection.spectra) {
                    rows.extend(sums.iter().map(|sum| Complex64::new(*sum, 0.0)));
                    sums.fill(0.0);
                }
            }
        }
    }
}

/// Returns the spectrum of the window's samples `x` with bins in output order, or the windowed sums for
/// [`Form::Filtered`]. The phase reference is the stream's first sample.
fn transform(
    plan: &Plan,
    phases: &[Complex64],
    x: &[Complex64],
    spectrum: usize,
) -> Vec<Complex64> {
    let points = plan.points();
    let mut y = vec![Complex64::ZERO; points];
    for (n, b) in plan.coefficients().iter().enumerate() {
        y[(n + spectrum * plan.hop()) % points] += x[n] * b;
    }
    if plan.options().form == Form::Filtered {
        return y;
    }
    let bin = |m: usize| y.iter().enumerate().map(|(n, y)| y * phases[n * m % points]).sum();
    (0..plan.channels()).map(|index| bin(plan.bin(index))).collect()
}

/// Returns the values of one recorded channel of an antenna; axes: polarization or product, channel.
fn products(plan: &Plan, spectra: &[Vec<Complex64>]) -> Vec<Vec<Complex64>> {
    let Form::Detected(detection) = &plan.options().form else { return spectra.to_vec() };
    let channels = 0..plan.channels();
    let detected: Vec<Vec<f64>> = channels
        .map(|index| {
            detect(
                detection,
                spectra[0][index],
                spectra.last().map_or(Complex64::ZERO, |s| s[index]),
                spectra.len(),
            )
        })
        .collect();
    let product = |product: usize| {
        let mut values: Vec<f64> = detected.iter().map(|values| values[product]).collect();
        if detection.interpolate_dc {
            interpolate_dc(plan, &mut values);
        }
        let sums = values.chunks(detection.channels).map(|part| part.iter().sum::<f64>());
        sums.map(|sum| Complex64::new(sum, 0.0)).collect()
    };
    (0..plan.output_products()).map(product).collect()
}

/// Returns the products of one channel.
fn detect(detection: &Detection, x: Complex64, y: Complex64, polarizations: usize) -> Vec<f64> {
    let (aa, bb) = (x.norm_sqr(), y.norm_sqr());
    let cross = x * y.conj();
    let both = if polarizations == 2 { aa + bb } else { aa };
    match (detection.products, detection.feed) {
        (Products::Power, _) => vec![aa, bb],
        (Products::I, _) => vec![both],
        (Products::Iquv, Feed::Linear) => vec![both, aa - bb, 2.0 * cross.re, 2.0 * cross.im],
        (Products::Iquv, Feed::Circular) => vec![both, 2.0 * cross.re, 2.0 * cross.im, aa - bb],
        (Products::Aabbcrci, _) => vec![aa, bb, cross.re, cross.im],
    }
}

/// Replaces zero frequency by the mean of its neighbours (real input: by its one neighbour).
fn interpolate_dc(plan: &Plan, values: &mut [f64]) {
    let place = |bin: usize| (0..plan.channels()).find(|index| plan.bin(*index) == bin);
    let last = if plan.input().encoding.is_complex() { plan.channels() - 1 } else { 1 };
    if let (Some(zero), Some(above), Some(below)) = (place(0), place(1), place(last)) {
        values[zero] = 0.5 * (values[above] + values[below]);
    }
}

/// Rounds to nearest, ties to even, and clips; also returns whether the value was clipped.
fn requantize(value: Complex64, bits: usize) -> (bool, Complex64) {
    let most = f64::from(1 << (bits - 1)) - 1.0;
    let whole = Complex64::new(value.re.round_ties_even(), value.im.round_ties_even());
    let part = |x: f64| x.clamp(-most - 1.0, most);
    let limited = Complex64::new(part(whole.re), part(whole.im));
    (limited != whole, limited)
}
