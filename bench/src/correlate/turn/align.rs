//! Alignment: samples per second from spectra that stay in the caches.

use std::time::Instant;

use num_complex::Complex;
use sidereal::Result;
use sidereal::backend::simd::Level;
use sidereal::backend::{Backend, roof};
use sidereal::delay::{Aligner, Options, Plan, Rows, Slope};
use sidereal::voltage::VoltageEncoding::{self, Complex4, Complex8, ComplexF32};
use sidereal::voltage::voltage;

use super::{ROUNDS, encoding_name, random, row_of};
use crate::table::Row;

/// Spectra in a call.
const TIMES: usize = 8;

/// Calls that are timed together.
const CALLS: usize = 50;

pub(super) struct Case {
    pub(super) name: String,
    options: Options,
    slope: Slope,
}

pub(super) fn cases() -> Vec<Case> {
    let turned = Slope { start: 0.37, step: 1e-4 };
    let case = |(coarse_channels, channels), encoding, gains: bool, slope| {
        let elements = if gains { 2 * coarse_channels * channels } else { 1 };
        let phases = if slope == turned { "phases" } else { "no phases" };
        let each = if gains { ", gains" } else { "" };
        let shape = format!("{coarse_channels} x {channels}");
        let name = format!("align {shape}, {}, {phases}{each}", encoding_name(encoding));
        let gains = vec![Complex::new(0.9, -0.2); elements];
        let options = Options { polarizations: 2, coarse_channels, channels, encoding, gains };
        Case { name, options, slope }
    };
    let mut cases = Vec::new();
    for encoding in [Complex8, Complex4, ComplexF32] {
        cases.push(case((1, 1024), encoding, false, turned));
        cases.push(case((1, 1024), encoding, true, turned));
        cases.push(case((1, 1024), encoding, true, Slope::default()));
    }
    cases.push(case((16, 64), Complex8, true, turned));
    cases.push(case((1024, 1), Complex8, true, turned));
    cases
}

/// Aligner and its output.
struct Subject {
    aligner: Aligner,
    bytes: Vec<u8>,
}

impl Subject {
    fn new(plan: &Plan, backend: &Backend) -> Self {
        let bytes = vec![0; TIMES * plan.row_elements() * plan.element_bytes()];
        Self { aligner: Aligner::new(plan.clone(), backend), bytes }
    }

    fn run(&mut self, spectra: &[Complex<f32>], slopes: &[Slope]) -> Result<()> {
        self.aligner.run(spectra, slopes, Rows { bytes: &mut self.bytes, times: TIMES, first: 0 })
    }

    /// Returns the rate in 10^6 samples per second.
    fn rate(&mut self, spectra: &[Complex<f32>], slopes: &[Slope], calls: usize) -> Result<f64> {
        let began = Instant::now();
        for _ in 0..calls {
            self.run(spectra, slopes)?;
        }
        Ok((calls * spectra.len()) as f64 * 1e-6 / began.elapsed().as_secs_f64())
    }
}

pub(super) fn measure(case: &Case, seconds: f64) -> Result<Row> {
    let plan = Plan::new(case.options.clone())?;
    let spectra = spectra(&plan);
    let slopes = vec![case.slope; TIMES * case.options.coarse_channels];
    let backend = Backend::Cpu(Level::best(), sidereal::backend::threads::Threads::new(1));
    let plain = Backend::Cpu(Level::Portable, sidereal::backend::threads::Threads::new(1));
    let mut ours = Subject::new(&plan, &backend);
    let mut other = Subject::new(&plan, &plain);
    let mut reference = Subject::new(&plan, &Backend::Reference);
    ours.run(&spectra, &slopes)?;
    reference.run(&spectra, &slopes)?;
    let checked = are_alike(case.options.encoding, &ours.bytes, &reference.bytes);

    // The copy reads and writes the same number of bytes.
    let moved = size_of_val(spectra.as_slice()) + ours.bytes.len();
    let per_sample = moved as f64 / spectra.len() as f64;
    let (mut roofs, mut baselines, mut rates) = (Vec::new(), Vec::new(), Vec::new());
    let start = Instant::now();
    while rates.len() < ROUNDS || start.elapsed().as_secs_f64() < seconds {
        roofs.push(1e-6 * roof::copy_bytes(moved / 2, 1e-3) / per_sample);
        baselines.push(other.rate(&spectra, &slopes, CALLS / 5)?);
        rates.push(ours.rate(&spectra, &slopes, CALLS)?);
    }
    Ok(row_of(&case.name, (&backend, "Msample/s"), checked, [rates, roofs, baselines]))
}

/// Makes noise at the level that an array's correlator would set: at 4 bit, a few samples in a thousand saturate.
fn spectra(plan: &Plan) -> Vec<Complex<f32>> {
    let sigma = match plan.options().encoding {
        Complex4 => 2.6,
        _ => 25.0,
    };
    let mut next = random();
    // The sum of 12 uniform numbers has unit variance.
    let mut gaussian = || {
        let sum: f64 = (0..12).map(|_| (next() >> 11) as f64 / (1u64 << 53) as f64).sum();
        (sigma * (sum - 6.0)) as f32
    };
    (0..TIMES * plan.row_elements()).map(|_| Complex::new(gaussian(), gaussian())).collect()
}

/// Returns whether floats agree within single precision and integers within one rounding step.
fn are_alike(encoding: VoltageEncoding, found: &[u8], truth: &[u8]) -> bool {
    let elements = found.len() * 8 / encoding.sample_bits();
    let mut differing = 0;
    for i in 0..elements {
        let (a, b) = (voltage(found, encoding, i), voltage(truth, encoding, i));
        let error = (a - b).norm();
        differing += usize::from(error != 0.0);
        let most = if encoding == ComplexF32 { 2e-6 * b.norm() } else { 1.5 };
        if error > most {
            return false;
        }
    }
    encoding == ComplexF32 || differing <= 1 + elements / 1000
}
