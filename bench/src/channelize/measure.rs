//! Times roof, baseline and filter bank alternately, over buffers larger than the caches.

use std::sync::Arc;
use std::time::Instant;

use rustfft::num_complex::Complex;
use rustfft::{Fft, FftPlanner};
use sidereal::backend::simd::Level;
use sidereal::backend::threads::Threads;
use sidereal::backend::{Backend, roof};
use sidereal::channelize::{Channelizer, Form, Output, Plan};
use sidereal::voltage::Voltages;
use sidereal::{Error, Result};

use super::cases::{Baseline, Case};
use super::check;
use crate::table::{Row, best_and_median};

/// Buffers: random voltages, complex floats for the baseline, and the output.
pub(super) struct Memory {
    bytes: Vec<u8>,
    floats: Vec<Complex<f32>>,
    output: Vec<Complex<f32>>,
}

/// Filter bank that processes the buffers repeatedly.
struct Ours<'a> {
    case: &'a Case,
    plan: Plan,
    channelizer: Channelizer,
    /// Samples of each stream in a run.
    times: usize,
}

impl Memory {
    /// Allocates input and output for `mib` MiB of complex floats each.
    pub(super) fn new(mib: usize) -> Self {
        let samples = (mib << 20) / size_of::<Complex<f32>>();
        let mut state = 0x2545_f491_4f6c_dd1du64;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        let float = |bits: u64| (bits as u32 as f32) / (u32::MAX as f32) - 0.5;
        let complex = |bits: u64| Complex::new(float(bits), float(bits >> 32));
        let floats: Vec<_> = (0..samples).map(|_| complex(next())).collect();
        let bytes = floats.iter().flat_map(|z| [z.re.to_le_bytes(), z.im.to_le_bytes()]).flatten();
        Self { bytes: bytes.collect(), output: vec![Complex::ONE; samples], floats }
    }

    /// Measures one case.
    ///
    /// # Errors
    /// Those of the filter bank.
    pub(super) fn measure(&mut self, case: &Case, seconds: f64) -> Result<Row> {
        let threads = Threads::new(case.threads);
        let backend = Backend::Cpu(Level::best(), threads.clone());
        let plan = Plan::new(case.options.clone())?;
        let compared = check::shortened(&plan)?;
        let checked = check::is_right(&compared, &backend, self.few(&compared)?)?;
        let mut ours = Ours::new(case, plan, &backend, self.floats.len())?;
        let one = Backend::Cpu(Level::best(), Threads::new(1));
        let mut single = Ours::new(case, ours.plan.clone(), &one, self.floats.len())?;
        let mut library = Library::new(ours.plan.points());
        let samples = (ours.times * ours.plan.input().streams()) as f64;
        let (mut roofs, mut baselines, mut rates) = (Vec::new(), Vec::new(), Vec::new());
        let mut flops = Vec::new();
        let start = Instant::now();
        while rates.len() < 5 || start.elapsed().as_secs_f64() < seconds {
            roofs.push(self.copy(&ours, &threads));
            baselines.push(match case.baseline {
                Baseline::Library => self.library(&mut library),
                Baseline::OneThread => samples * 1e-6 / self.run(&mut single)?,
                Baseline::Rate(rate) => rate,
            });
            rates.push(samples * 1e-6 / self.run(&mut ours)?);
            if case.roofline {
                flops.push(roof::multiply_adds(Level::best(), &threads, 1e-3) * 2e-9);
            }
        }
        let (rate, median) = best_and_median(&mut rates);
        let (roof, _) = best_and_median(&mut roofs);
        let (baseline, _) = best_and_median(&mut baselines);
        let (peak, _) = best_and_median(&mut flops);
        let row = Row {
            bench: "channelize",
            case: case.name.clone(),
            device: backend.name(),
            rate,
            unit: "Msample/s",
            roof,
            roof_unit: "Msample/s",
            fraction_of_roof: rate / roof,
            baseline,
            ratio_to_baseline: rate / baseline,
            checked,
            median,
        };
        Ok(if case.roofline { ours.roofline(row, peak) } else { row })
    }

    /// Returns the first samples, enough for a few rows of each stream.
    fn few(&self, plan: &Plan) -> Result<Voltages<'_>> {
        let rows = match plan.options().form {
            Form::Spectra | Form::Filtered => 20,
            _ => 4,
        };
        let times = plan.span() + (rows * plan.spectra_per_row() - 1) * plan.hop();
        let times = times.next_multiple_of(plan.input().encoding.samples_per_byte());
        self.voltages(plan, times)
    }

    /// Returns `times` samples of each stream.
    fn voltages(&self, plan: &Plan, times: usize) -> Result<Voltages<'_>> {
        let (encoding, streams) = (plan.input().encoding, plan.input().streams());
        let stride = encoding.bytes(times);
        Voltages::new(&self.bytes, encoding, streams, stride, times)
    }

    /// Runs once; returns the elapsed seconds.
    fn run(&mut self, ours: &mut Ours<'_>) -> Result<f64> {
        let plan = &ours.plan;
        let mut output = std::mem::take(&mut self.output);
        let input = self.voltages(plan, ours.times)?;
        let began = Instant::now();
        let floats = bytemuck::cast_slice_mut::<Complex<f32>, f32>(&mut output);
        let progress = match plan.options().form {
            Form::Spectra | Form::Filtered => {
                ours.channelizer.run(input, Output::Complex(bytemuck::cast_slice_mut(floats)))
            }
            Form::Detected(_) => ours.channelizer.run(input, Output::F32(floats)),
            Form::Requantized { .. } => {
                ours.channelizer.run(input, Output::Bytes(bytemuck::cast_slice_mut(floats)))
            }
        };
        let seconds = began.elapsed().as_secs_f64();
        self.output = output;
        progress.map(|_| seconds)
    }

    /// Returns the rate of a copy of the same input and output bytes, in 10^6 samples per second.
    fn copy(&mut self, ours: &Ours<'_>, threads: &Threads) -> f64 {
        let from = bytemuck::cast_slice(&self.floats);
        let to = bytemuck::cast_slice_mut(&mut self.output);
        roof::copy(from, to, threads) * 1e-6 / ours.bytes_per_sample()
    }

    /// Returns the points per second (in 10^6) that rustfft transforms; each point is a sample, real or complex.
    fn library(&mut self, library: &mut Library) -> f64 {
        let points = library.fft.len();
        let size = self.floats.len() / points * points;
        let (from, to) = (&self.floats[..size], &mut self.output[..size]);
        let began = Instant::now();
        library.fft.process_immutable_with_scratch(from, to, &mut library.scratch);
        let seconds = began.elapsed().as_secs_f64();
        size as f64 * 1e-6 / seconds
    }
}

struct Library {
    fft: Arc<dyn Fft<f32>>,
    scratch: Vec<Complex<f32>>,
}

impl Library {
    fn new(points: usize) -> Self {
        let fft = FftPlanner::new().plan_fft_forward(points);
        let scratch = vec![Complex::ZERO; fft.get_immutable_scratch_len()];
        Self { fft, scratch }
    }
}

impl<'a> Ours<'a> {
    /// Creates a filter bank whose runs take as many samples as fit into `room`, all streams together.
    fn new(case: &'a Case, plan: Plan, backend: &Backend, room: usize) -> Result<Self> {
        let streams = plan.input().streams();
        // A run may write one row more than the samples it consumes.
        let rows = (room / streams / plan.points()).saturating_sub(2 * plan.spectra_per_row());
        let times = rows * plan.points();
        if times < 2 * plan.span() {
            return Err(Error::parameter(
                "--memory",
                "too small",
                "streams are to be longer than windows",
            ));
        }
        Ok(Self { case, channelizer: Channelizer::new(plan.clone(), backend)?, plan, times })
    }

    /// Returns the bytes read and written per sample.
    fn bytes_per_sample(&self) -> f64 {
        let plan = &self.plan;
        let row = (plan.row_elements() * plan.element_bytes()) as f64;
        let samples = (plan.samples_per_row() * plan.input().streams()) as f64;
        plan.input().encoding.sample_bits() as f64 / 8.0 + row / samples
    }

    /// Converts the row to operations per second, below the roofline of `peak` (10^9 per second) and the copy.
    fn roofline(&self, row: Row, peak: f64) -> Row {
        let plan = &self.plan;
        let transform = match plan.options().form {
            Form::Filtered => 0.0,
            _ => 5.0 * (plan.points() as f64).log2(),
        };
        // 10^9 operations per 10^6 complex samples.
        let flops = 1e-3 * (4.0 * plan.taps() as f64 + transform);
        let intensity = 1e3 * flops / self.bytes_per_sample();
        let roof = (row.roof * flops).min(peak);
        Row {
            case: format!("{}, {intensity:.1} flop/B", self.case.name),
            rate: row.rate * flops,
            median: row.median * flops,
            unit: "GFLOP/s",
            roof,
            roof_unit: "GFLOP/s",
            fraction_of_roof: row.rate * flops / roof,
            baseline: row.baseline * flops,
            ..row
        }
    }
}
