//! Times roof, baseline and X-engine alternately.

use std::time::Instant;

use num_complex::Complex;
use sidereal::Result;
use sidereal::backend::simd::Level;
use sidereal::backend::threads::Threads;
use sidereal::backend::{Backend, roof};
use sidereal::correlate::{Block, BlockBuffer, Correlator, Options, Output, Plan};
use sidereal::voltage::VoltageEncoding;

use super::cases::{Baseline, Case, Measure};
use super::check;
use super::cherk::Cherk;
use crate::table::{Row, best_and_median};

/// Least number of rounds.
const ROUNDS: usize = 5;

/// Channels of a plain loop's block: one is enough to fill the caches with sums.
const PLAIN_CHANNELS: usize = 1;

/// X-engine and the buffers of its readout.
struct Ours {
    correlator: Correlator,
    threads: Threads,
    level: Level,
    integers: Vec<Complex<i64>>,
    floats: Vec<Complex<f64>>,
    counts: Vec<u64>,
}

impl Ours {
    fn new(plan: &Plan, level: Level, threads: usize, measure: Measure) -> Result<Self> {
        let threads = Threads::new(threads);
        let all = if measure == Measure::Integrations { plan.channels() } else { 0 };
        let float = plan.encoding() == VoltageEncoding::ComplexF32;
        let elements = |wanted| if wanted { all * plan.row_elements() } else { 0 };
        Ok(Self {
            correlator: Correlator::new(plan.clone(), &Backend::Cpu(level, threads.clone()))?,
            threads,
            level,
            integers: vec![Complex::new(0, 0); elements(!float)],
            floats: vec![Complex::ZERO; elements(float)],
            counts: vec![0; all * plan.baselines()],
        })
    }

    /// Returns the rate of one block in 10^9 operations per second, including the readout if `measure` counts it.
    fn rate(&mut self, block: Block<'_>, measure: Measure) -> Result<f64> {
        let plan = self.correlator.plan().clone();
        let began = Instant::now();
        self.correlator.run(block)?;
        if measure == Measure::Integrations {
            let sums = match plan.encoding() {
                VoltageEncoding::ComplexF32 => Output::Float(&mut self.floats),
                _ => Output::Integer(&mut self.integers),
            };
            self.correlator.read(0..plan.channels(), sums, &mut self.counts)?;
            self.correlator.reset();
        }
        let operations = per_time(&plan) * plan.channels() as f64 * block.times() as f64;
        Ok(operations / began.elapsed().as_secs_f64() * 1e-9)
    }

    /// Returns the rate that the multiply-add instructions allow, in 10^9 operations per second.
    fn roof(&self) -> f64 {
        let (level, threads) = (self.level, &self.threads);
        let multiply_adds = match self.correlator.plan().encoding() {
            VoltageEncoding::ComplexF32 => roof::multiply_adds(level, threads, 2e-3),
            _ => roof::integer_multiply_adds(level, threads, 2e-3),
        };
        2e-9 * multiply_adds
    }
}

/// Returns the operations for one time of one channel: 8 per complex multiply-add.
fn per_time(plan: &Plan) -> f64 {
    let inputs = plan.inputs() as f64;
    8.0 * inputs * (inputs + 1.0) / 2.0
}

/// Reference that a rate is compared with.
enum Other<'a> {
    Cherk(&'a mut Cherk),
    /// The X-engine without SIMD, or on one thread.
    Ours(Box<Ours>, BlockBuffer),
}

/// Measures one case.
///
/// # Errors
/// Those of the X-engine and of `cherk`.
pub(super) fn measure(case: &Case, cherk: Option<&mut Cherk>, seconds: f64) -> Result<Row> {
    let plan = Plan::new(case.options.clone())?;
    let buffer = spectra(&plan, case.times)?;
    let mut ours = Ours::new(&plan, case.level, case.threads, case.measure)?;
    let backend = Backend::Cpu(case.level, ours.threads.clone());
    let checked = check::is_right(&plan, &backend, buffer.block())?;
    let mut other = match (case.baseline, cherk) {
        (Baseline::Library, Some(cherk)) => Other::Cherk(cherk),
        (Baseline::Library, None) => {
            let plan = Plan::new(Options { channels: PLAIN_CHANNELS, ..case.options.clone() })?;
            let plain = Ours::new(&plan, Level::Portable, 1, case.measure)?;
            Other::Ours(Box::new(plain), spectra(&plan, case.times)?)
        }
        (Baseline::OneThread, _) => {
            let single = Ours::new(&plan, case.level, 1, case.measure)?;
            Other::Ours(Box::new(single), spectra(&plan, case.times)?)
        }
    };
    let (mut roofs, mut baselines, mut rates) = (Vec::new(), Vec::new(), Vec::new());
    let start = Instant::now();
    while rates.len() < ROUNDS || start.elapsed().as_secs_f64() < seconds {
        roofs.push(ours.roof());
        baselines.push(match &mut other {
            Other::Cherk(cherk) => cherk.rate(plan.inputs(), case.times, 0.1)?,
            Other::Ours(other, buffer) => other.rate(buffer.block(), case.measure)?,
        });
        rates.push(ours.rate(buffer.block(), case.measure)?);
    }
    // Operations, or Hz: each Hz is one sample of each polarization of an antenna per second.
    let (scale, unit) = match case.measure {
        Measure::Bandwidth => (1e6 / per_time(&plan), "kHz"),
        _ => (1.0, "GFLOP/s"),
    };
    let best = |rates: &mut [f64]| best_and_median(rates).0 * scale;
    let (rate, median) = best_and_median(&mut rates);
    let (roof, baseline) = (best(&mut roofs), best(&mut baselines));
    Ok(Row {
        bench: "correlate",
        case: case.name.clone(),
        device: backend.name(),
        rate: rate * scale,
        unit,
        roof,
        roof_unit: unit,
        fraction_of_roof: rate * scale / roof,
        baseline,
        ratio_to_baseline: rate * scale / baseline,
        checked,
        median: median * scale,
    })
}

/// Makes pseudorandom spectra, all valid.
fn spectra(plan: &Plan, times: usize) -> Result<BlockBuffer> {
    let mut buffer = BlockBuffer::new(plan, times);
    buffer.set_times(times)?;
    let mut state = 0x2545_f491_4f6c_dd1du64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let float = plan.encoding() == VoltageEncoding::ComplexF32;
    for bytes in buffer.bytes_mut().chunks_exact_mut(4) {
        let bits = next();
        let number = bits as u32 as f32 / u32::MAX as f32 - 0.5;
        bytes.copy_from_slice(&if float {
            number.to_le_bytes()
        } else {
            (bits as u32).to_le_bytes()
        });
    }
    Ok(buffer)
}
