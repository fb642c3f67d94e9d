//! `bench correlate --turn`: corner turn and alignment beside a copy of the same number of bytes.

use std::time::Instant;

use num_complex::Complex;
use sidereal::Result;
use sidereal::backend::simd::Level;
use sidereal::backend::threads::Threads;
use sidereal::backend::{Backend, roof};
use sidereal::correlate::{BlockBuffer, CornerTurn, Options, Plan, Rows, Spectra};
use sidereal::delay::{self, DelayCorrector, Slope};
use sidereal::voltage::VoltageEncoding::{self, Complex4, Complex8, ComplexF32};
use sidereal::voltage::{Voltages, voltage};

use crate::random::Random;
use crate::runner::{Rates, Row, Run};

/// Name of the benchmark.
const BENCH: &str = "correlate";

/// Least number of rounds.
const ROUNDS: usize = 5;

pub(super) const ABOUT: &str = "\
Corner turn: 10^9 bytes a second, read and written, from rows of spectra (or channelized streams) of antennas
with two polarizations to packed blocks: the best and the median of all runs. Roof: a copy of as many bytes
with ordinary stores. Baseline: the same turn without vector instructions; two threads: on one. Alignment: 10^6
samples a second of 8 spectra of 2 x 1024 complex floats that stay in the caches. Roof: a copy of as many bytes
there. Baseline: the same without vector instructions. Outputs are compared with the reference first.";

/// Bytes of a block, larger than any cache.
const BYTES: usize = 128 << 20;

/// Source of the spectra.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum From {
    Rows,
    Streams,
}

struct Case {
    name: String,
    options: Options,
    from: From,
    threads: usize,
}

/// Measures the corner turn and the alignment; `threads` is the largest number of threads to use.
pub(super) fn measure(
    run: &mut Run<'_>,
    threads: usize,
    seconds: f64,
    only: Option<&str>,
) -> Result<()> {
    let is_wanted = |name: &str| only.is_none_or(|part| name.contains(part));
    for case in cases(threads).iter().filter(|case| is_wanted(&case.name)) {
        run.push(measure_turn(case, seconds)?)?;
    }
    for case in alignments().iter().filter(|case| is_wanted(&case.name)) {
        run.push(measure_alignment(case, seconds)?)?;
    }
    Ok(())
}

/// Names an encoding: `4 bit`, `8 bit`, `f32`.
fn label(encoding: VoltageEncoding) -> &'static str {
    match encoding {
        Complex4 => "4 bit",
        Complex8 => "8 bit",
        _ => "f32",
    }
}

fn cases(threads: usize) -> Vec<Case> {
    let case = |antennas, channels, encoding, from, threads| {
        let what = if from == From::Rows { "rows" } else { "streams" };
        let name = format!("turn {antennas} antennas x {channels}, {}, {what}", label(encoding));
        let options = Options { antennas, polarizations: 2, channels, encoding };
        Case { name, options, from, threads }
    };
    let mut cases = Vec::new();
    for from in [From::Rows, From::Streams] {
        for encoding in [Complex8, Complex4, ComplexF32] {
            cases.push(case(64, 1024, encoding, from, 1));
        }
    }
    for (antennas, channels) in [(8, 1024), (32, 4096), (256, 256)] {
        cases.push(case(antennas, channels, Complex8, From::Rows, 1));
    }
    if threads > 1 {
        cases.push(case(64, 1024, Complex8, From::Rows, threads));
        cases.push(case(64, 1024, Complex8, From::Streams, threads));
    }
    cases
}

/// Runs the corner turn on all spectra; returns the elapsed seconds.
fn turn(case: &Case, turn: &mut CornerTurn, bytes: &[u8], buffer: &mut BlockBuffer) -> Result<f64> {
    let (plan, times) = (turn.plan().clone(), buffer.times());
    let began = Instant::now();
    match case.from {
        From::Rows => turn.run(Spectra::Rows(Rows { bytes, times, first: 0 }), buffer)?,
        From::Streams => {
            let (encoding, streams) = (plan.encoding(), plan.inputs() * plan.channels());
            let stride = encoding.bytes(times);
            let voltages = Voltages::new(bytes, encoding, streams, stride, times)?;
            turn.run(Spectra::Streams(voltages), buffer)?;
        }
    }
    Ok(began.elapsed().as_secs_f64())
}

fn measure_turn(case: &Case, seconds: f64) -> Result<Row> {
    let plan = Plan::new(case.options.clone())?;
    let times = BYTES / plan.packed_bytes(2) * 2;
    let mut random = Random::new();
    let row = plan.inputs() * plan.channels() * plan.encoding().sample_bits() / 8;
    let bytes: Vec<u8> = (0..times * row / 8).flat_map(|_| random.next().to_le_bytes()).collect();
    let mut buffer = BlockBuffer::new(&plan, times);
    buffer.set_times(times)?;
    let (threads, one) = (Threads::new(case.threads), Threads::new(1));
    let backend = Backend::Cpu(Level::best(), threads.clone());
    let plain = if case.threads > 1 { Level::best() } else { Level::Portable };
    let mut ours = CornerTurn::new(plan.clone(), &backend);
    let mut other = CornerTurn::new(plan.clone(), &Backend::Cpu(plain, one));

    turn(case, &mut ours, &bytes, &mut buffer)?;
    let mut copy = buffer.block().bytes().to_vec();
    let mut reference = CornerTurn::new(plan.clone(), &Backend::Reference);
    turn(case, &mut reference, &bytes, &mut buffer)?;
    let checked = copy == buffer.block().bytes();

    let moved = 2e-9 * bytes.len() as f64;
    let rates = Rates::alternate(
        &mut buffer,
        ROUNDS,
        seconds,
        |_| Ok(1e-9 * roof::copy(&bytes, &mut copy[..bytes.len()], &threads)),
        |buffer| Ok(moved / turn(case, &mut other, &bytes, buffer)?),
        |buffer| Ok(moved / turn(case, &mut ours, &bytes, buffer)?),
    )?;
    Ok(rates.row(BENCH, &case.name, &backend, "GB/s", checked))
}

/// Spectra in a call.
const TIMES: usize = 8;

/// Calls that are timed together.
const CALLS: usize = 50;

/// Delay and phase rotation of some spectra.
struct Alignment {
    name: String,
    options: delay::Options,
    slope: Slope,
}

fn alignments() -> Vec<Alignment> {
    let turned = Slope { start: 0.37, step: 1e-4 };
    let case = |[coarse_channels, channels]: [usize; 2], encoding, gains: bool, slope| {
        let elements = if gains { 2 * coarse_channels * channels } else { 1 };
        let phases = if slope == turned { "phases" } else { "no phases" };
        let each = if gains { ", gains" } else { "" };
        let shape = format!("{coarse_channels} x {channels}");
        let name = format!("align {shape}, {}, {phases}{each}", label(encoding));
        let gains = vec![Complex::new(0.9, -0.2); elements];
        let options = delay::Options {
            gains,
            ..delay::Options::one_antenna(2, coarse_channels, channels, encoding)
        };
        Alignment { name, options, slope }
    };
    let mut cases = Vec::new();
    for encoding in [Complex8, Complex4, ComplexF32] {
        cases.push(case([1, 1024], encoding, false, turned));
        cases.push(case([1, 1024], encoding, true, turned));
        cases.push(case([1, 1024], encoding, true, Slope::default()));
    }
    cases.push(case([16, 64], Complex8, true, turned));
    cases.push(case([1024, 1], Complex8, true, turned));
    cases
}

/// Delay correction and its output.
struct Subject {
    corrector: DelayCorrector,
    bytes: Vec<u8>,
}

impl Subject {
    fn new(plan: &delay::Plan, backend: &Backend) -> Result<Self> {
        let bytes = vec![0; TIMES * plan.row_elements() * plan.element_bytes()];
        Ok(Self { corrector: DelayCorrector::new(plan.clone(), backend)?, bytes })
    }

    fn run(&mut self, spectra: &[Complex<f32>], slopes: &[Slope]) -> Result<()> {
        self.corrector.run(
            spectra,
            slopes,
            delay::Rows { bytes: &mut self.bytes, times: TIMES, first: 0 },
        )
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

fn measure_alignment(case: &Alignment, seconds: f64) -> Result<Row> {
    let plan = delay::Plan::new(case.options.clone())?;
    let spectra = spectra(&plan);
    let slopes = vec![case.slope; TIMES * case.options.coarse_channels];
    let backend = Backend::Cpu(Level::best(), Threads::new(1));
    let plain = Backend::Cpu(Level::Portable, Threads::new(1));
    let mut ours = Subject::new(&plan, &backend)?;
    let mut other = Subject::new(&plan, &plain)?;
    let mut reference = Subject::new(&plan, &Backend::Reference)?;
    ours.run(&spectra, &slopes)?;
    reference.run(&spectra, &slopes)?;
    let checked = are_alike(case.options.encoding, &ours.bytes, &reference.bytes);

    // The copy reads and writes the same number of bytes.
    let moved = size_of_val(spectra.as_slice()) + ours.bytes.len();
    let per_sample = moved as f64 / spectra.len() as f64;
    let rates = Rates::alternate(
        &mut ours,
        ROUNDS,
        seconds,
        |_| Ok(1e-6 * roof::copy_bytes(moved / 2, 1e-3) / per_sample),
        |_| other.rate(&spectra, &slopes, CALLS / 5),
        |ours| ours.rate(&spectra, &slopes, CALLS),
    )?;
    Ok(rates.row(BENCH, &case.name, &backend, "Msample/s", checked))
}

/// Makes noise at the level that an array's correlator would set: at 4 bit, a few samples in a thousand saturate.
fn spectra(plan: &delay::Plan) -> Vec<Complex<f32>> {
    let sigma = match plan.options().encoding {
        Complex4 => 2.6,
        _ => 25.0,
    };
    let mut random = Random::new();
    let mut gaussian = || (sigma * random.normal()) as f32;
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
        let bound = if encoding == ComplexF32 { 2e-6 * b.norm() } else { 1.5 };
        if error > bound {
            return false;
        }
    }
    encoding == ComplexF32 || differing <= 1 + elements / 1000
}
