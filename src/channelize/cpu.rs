//! The filter bank on the CPU.
//!
//! Invariant: the same bits for any split of a stream and any number of threads.

use std::sync::Arc;

use num_complex::Complex;
use rustfft::{Fft, FftPlanner};

use super::output::Output;
use super::plan::{Detection, Feed, Form, Plan, Products};
use crate::backend::simd::Level;
use crate::backend::threads::Threads;
use crate::error::Result;
use crate::voltage::Voltages;

type Complex32 = Complex<f32>;

/// Streams and their filter bank.
pub(super) struct Engine {
    plan: Plan,
    coefficients: Vec<f32>,
    fft: Arc<dyn Fft<f32>>,
    history: Vec<Vec<Complex32>>,
    sums: Vec<f32>,
    saturated: Vec<u64>,
    next: usize,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("next", &self.next).finish_non_exhaustive()
    }
}

impl Engine {
    pub(super) fn new(plan: &Plan, _level: Level, _threads: &Threads) -> Result<Self> {
        let scale = plan.input().scale;
        Ok(Self {
            plan: plan.clone(),
            coefficients: plan.coefficients().iter().map(|b| (b * scale) as f32).collect(),
            fft: FftPlanner::new().plan_fft_forward(plan.points()),
            history: vec![Vec::new(); plan.input().streams()],
            sums: vec![0.0; plan.row_elements()],
            saturated: vec![0; plan.row_elements()],
            next: 0,
        })
    }

    pub(super) fn saturated(&self) -> Vec<u64> {
        self.saturated.clone()
    }

    pub(super) fn reset(&mut self) {
        self.history.iter_mut().for_each(Vec::clear);
        self.sums.fill(0.0);
        self.saturated.fill(0);
        self.next = 0;
    }

    pub(super) fn run(&mut self, input: Voltages<'_>, mut output: Output<'_>) {
        for (stream, history) in self.history.iter_mut().enumerate() {
            let narrow = |z: Complex<f64>| Complex32::new(z.re as f32, z.im as f32);
            history.extend((0..input.times()).map(|time| narrow(input.value(stream, time))));
        }
        let (mut start, mut row) = (0, 0);
        while self.history[0].len() - start >= self.plan.span() {
            row += usize::from(self.spectrum(start, row, &mut output));
            self.next += 1;
            start += self.plan.hop();
        }
        self.history.iter_mut().for_each(|stream| drop(stream.drain(..start)));
    }

    /// One spectrum of every stream; whether a row is finished.
    fn spectrum(&mut self, start: usize, row: usize, output: &mut Output<'_>) -> bool {
        let plan = self.plan.clone();
        let elements = plan.row_elements();
        for antenna in 0..plan.input().antennas {
            for place in 0..plan.input().coarse_channels {
                let coarse = plan.coarse_channel(place);
                let streams =
                    (0..plan.input().polarizations).map(|p| plan.stream(antenna, coarse, p));
                let spectra: Vec<_> = streams.map(|s| self.transform(s, start)).collect();
                match (&mut *output, &plan.options().form) {
                    (Output::Complex(values), _) => {
                        for (p, spectrum) in spectra.iter().enumerate() {
                            let at = row * elements + plan.row_offset(antenna, p, place);
                            values[at..at + spectrum.len()].copy_from_slice(spectrum);
                        }
                    }
                    (Output::F32(_), Form::Detected(detection)) => {
                        for product in 0..plan.output_products() {
                            let at = plan.row_offset(antenna, product, place);
                            self.detect(detection, product, &spectra, at);
                        }
                    }
                    (Output::Bytes(bytes), Form::Requantized { bits, gains }) => {
                        for (p, spectrum) in spectra.iter().enumerate() {
                            let at = plan.row_offset(antenna, p, place);
                            for (c, z) in spectrum.iter().enumerate() {
                                let z = z * gains[(at + c) % gains.len()];
                                let (limited, re, im) = requantize(z, *bits);
                                self.saturated[at + c] += u64::from(limited);
                                let element = row * elements + at + c;
                                if *bits == 4 {
                                    bytes[element] = (re << 4) as u8 | (im as u8 & 15);
                                } else {
                                    bytes[2 * element..][..2]
                                        .copy_from_slice(&[re as u8, im as u8]);
                                }
                            }
                        }
                    }
                    _ => unreachable!("checked by Channelizer::run"),
                }
            }
        }
        let done = (self.next + 1).is_multiple_of(plan.spectra_per_row());
        if let (Output::F32(values), true) = (output, done) {
            values[row * elements..][..elements].copy_from_slice(&self.sums);
            self.sums.fill(0.0);
        }
        done
    }

    fn transform(&self, stream: usize, start: usize) -> Vec<Complex32> {
        let plan = &self.plan;
        let points = plan.points();
        let x = &self.history[stream][start..][..plan.span()];
        let turn = self.next * plan.hop() % points;
        let mut y = vec![Complex32::ZERO; points];
        for c in 0..points {
            let taps =
                (0..plan.taps()).map(|t| x[t * points + c] * self.coefficients[t * points + c]);
            y[(c + turn) % points] = taps.sum();
        }
        if plan.options().form == Form::Filtered {
            return y;
        }
        self.fft.process(&mut y);
        (0..plan.channels()).map(|index| y[plan.bin(index)]).collect()
    }

    fn detect(
        &mut self,
        detection: &Detection,
        product: usize,
        spectra: &[Vec<Complex32>],
        at: usize,
    ) {
        let plan = &self.plan;
        let y = &spectra[spectra.len() - 1];
        let pairs = spectra[0].iter().zip(y);
        let mut values: Vec<f32> =
            pairs.map(|(x, y)| detect(detection, product, *x, *y, spectra.len())).collect();
        if detection.interpolate_dc {
            let place = |bin: usize| (0..plan.channels()).find(|index| plan.bin(*index) == bin);
            let last = if plan.input().encoding.is_complex() { plan.channels() - 1 } else { 1 };
            if let (Some(zero), Some(above), Some(below)) = (place(0), place(1), place(last)) {
                values[zero] = 0.5 * (values[above] + values[below]);
            }
        }
        for (sum, part) in self.sums[at..].iter_mut().zip(values.chunks(detection.channels)) {
            *sum += part.iter().sum::<f32>();
        }
    }
}

fn detect(
    detection: &Detection,
    product: usize,
    x: Complex32,
    y: Complex32,
    polarizations: usize,
) -> f32 {
    let cross = x * y.conj();
    let both = if polarizations == 2 { x.norm_sqr() + y.norm_sqr() } else { x.norm_sqr() };
    let difference = x.norm_sqr() - y.norm_sqr();
    let linear = detection.feed == Feed::Linear;
    match (detection.products, product) {
        (Products::I | Products::Iquv, 0) => both,
        (Products::Power | Products::Aabbcrci, 0) => x.norm_sqr(),
        (Products::Power | Products::Aabbcrci, 1) => y.norm_sqr(),
        (Products::Aabbcrci, 2) => cross.re,
        (Products::Aabbcrci, _) => cross.im,
        (_, 1) => {
            if linear {
                difference
            } else {
                2.0 * cross.re
            }
        }
        (_, 2) => {
            if linear {
                2.0 * cross.re
            } else {
                2.0 * cross.im
            }
        }
        _ => {
            if linear {
                2.0 * cross.im
            } else {
                difference
            }
        }
    }
}

fn requantize(z: Complex32, bits: usize) -> (bool, i8, i8) {
    let most = (1i32 << (bits - 1)) as f32 - 1.0;
    let part = |x: f32| {
        let whole = x.round_ties_even();
        (whole.clamp(-most - 1.0, most) as i8, !(-most - 1.0..=most).contains(&whole))
    };
    let ((re, a), (im, b)) = (part(z.re), part(z.im));
    (a || b, re, im)
}
