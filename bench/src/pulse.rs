//! `bench pulse`: samples per second through the single-pulse search, on CPUs beside a prefix sum and a plain loop over
//! widths, on GPUs beside reading the plane.

use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use sidereal::backend::Backend;
use sidereal::backend::cuda::{Plane as DevicePlane, PlaneKind, Stream, measure};
use sidereal::backend::simd::Level;
use sidereal::backend::threads::Threads;
use sidereal::single_pulse::{Detector, Event, Input, Options, Plan, reference_search};
use sidereal::view::Plane;
use sidereal::{Error, Result};

use crate::gpu::Gpu;
use crate::runner::{Named, OnGpu, Rates, Row, Run, Session};

/// Name of the benchmark.
const BENCH: &str = "pulse";

/// Measure the single-pulse search of one series per trial, beside a prefix sum and a plain loop.
#[derive(Args, Clone, Debug)]
pub(crate) struct Arguments {
    /// Also write the rows to this CSV file.
    #[arg(long, value_name = "FILE")]
    pub(crate) csv: Option<PathBuf>,
    #[command(flatten)]
    on_gpu: OnGpu,
}

const SNR: f64 = 6.0;

/// Windows of the series in a round: together more than four times a large L2 cache.
const WINDOWS: usize = 4;
const TRIALS: usize = 64;

/// Parameters of one row of the table.
struct Case {
    name: &'static str,
    tsamp_s: f64,
    max_width_s: f64,
    baseline_s: f64,
    mean: f64,
    sigma: f64,
    /// Bound of the integer sums; `None` for floats.
    bound: Option<(i64, i64)>,
}

const CASES: [Case; 5] = [
    Case::new("8-bit x 1024, 64 us, to 0.1 s", 64e-6, Some((0, 255 * 1024))),
    Case::new("16-bit x 4096, 64 us, to 0.1 s", 64e-6, Some((0, 65535 * 4096))),
    Case::new("f32 x 1024, 64 us, to 0.1 s", 64e-6, None),
    Case::new("8-bit x 1024, 256 us, to 0.1 s", 256e-6, Some((0, 255 * 1024))),
    Case::new("8-bit x 1024, 1 ms, to 0.1 s", 1e-3, Some((0, 255 * 1024))),
];

impl Named for Case {
    fn name(&self) -> &str {
        self.name
    }
}

impl Case {
    const fn new(name: &'static str, tsamp_s: f64, bound: Option<(i64, i64)>) -> Self {
        let (max_width_s, baseline_s, mean, sigma) = (0.1, 2.0, 1e5, 500.0);
        Self { name, tsamp_s, max_width_s, baseline_s, mean, sigma, bound }
    }

    /// Returns the search plan of `trials` trials.
    fn plan(&self, trials: usize) -> Result<Plan> {
        Plan::new(Options {
            dms: (0..trials).map(|dm| dm as f64).collect(),
            tsamp_s: self.tsamp_s,
            max_width_s: self.max_width_s,
            baseline_s: self.baseline_s,
            snr: SNR,
            bound: self.bound,
        })
    }
}

/// Makes integer noise with a few pulses in the first trial.
fn series(case: &Case, count: usize) -> Vec<i32> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut bits = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        f64::from((state >> 40) as u32) / f64::from(1u32 << 24) - 0.5
    };
    // The sum of four uniform deviates has a variance of 1/3.
    let scale = case.sigma * 3f64.sqrt();
    let mut noise: Vec<i32> = (0..count)
        .map(|_| (case.mean + scale * (0..4).map(|_| bits()).sum::<f64>()) as i32)
        .collect();
    for pulse in 0..3 {
        let height = (10.0 * case.sigma / f64::from(1 + 3 * pulse as u32).sqrt()) as i32;
        noise[5000 * (pulse + 1)..][..1 + 3 * pulse].iter_mut().for_each(|y| *y += height);
    }
    noise
}

/// Least number of samples in a call: several times any cache.
const SAMPLES: usize = 1 << 27;

/// Windows per trial in a call.
const GPU_WINDOWS: usize = 2;

const ABOUT: &str = "Single-pulse search, all widths, in 10^9 samples a second; the roof is a prefix sum \
                     from memory to memory, the baseline a plain loop over widths.";

const GPU_ABOUT: &str = "\
Single-pulse search, all widths, in 10^9 samples a second: kernels alone, planes on the device. Roof:
reading the plane once. No peer's kernel takes so many widths, so there is no baseline. Events are compared
with the processor's.";

/// Runs the benchmark.
pub(crate) fn run(arguments: &Arguments, session: &Session<'_>) -> Result<()> {
    let csv = arguments.csv.as_deref();
    if let Some(gpu) = Gpu::of(&session.backend, arguments.on_gpu)? {
        let mut run = gpu.begin(session, csv, GPU_ABOUT)?;
        let cases = if gpu.quick { &CASES[4..] } else { &CASES[..] };
        run.each(cases, |case| measure_on_gpu(&gpu, case))?;
        return run.finish();
    }
    let mut run = Run::new(session, csv, ABOUT)?;
    let pool = Threads::new(session.backend.threads());
    for case in &CASES {
        for level in Level::available() {
            run.push(measure(case, level, &pool)?)?;
        }
    }
    run.finish()
}

const ROUNDS: usize = 20;

/// Measures a case on the CPU.
fn measure(case: &Case, level: Level, pool: &Threads) -> Result<Row> {
    let plan = case.plan(TRIALS)?;
    let backend = Backend::Cpu(level, pool.clone());
    let times = WINDOWS * plan.window_times().max(1 << 15);
    let whole = series(case, TRIALS * times);
    let floats: Vec<f32> = whole.iter().map(|y| *y as f32).collect();
    let input = match case.bound {
        Some(_) => Input::I32(Plane::new(&whole, TRIALS, times, times)?),
        None => Input::F32(Plane::new(&floats, TRIALS, times, times)?),
    };
    let mut search = Search { detector: Detector::new(plan.clone(), &backend)?, events: vec![] };
    let mut sums = vec![0i32; whole.len()];
    let count = whole.len();
    let rates = Rates::alternate(
        &mut sums,
        ROUNDS,
        0.0,
        |sums| {
            rate(count, || {
                prefix(pool, &whole, sums, times);
                Ok(())
            })
        },
        |sums| {
            rate(count / 8, || {
                std::hint::black_box(plain(&plan, case, pool, &mut sums[..count / 8], times));
                Ok(())
            })
        },
        |_| rate(count, || search.run(input, times as u64)),
    )?;
    let checked = search.agrees(&plan, &whole[..times]);
    let row = rates.row(BENCH, case.name, &backend, "Gsamples/s", checked);
    Ok(row.beside("Gsamples/s of a prefix sum"))
}

struct Search {
    detector: Detector,
    events: Vec<Event>,
}

impl Search {
    fn run(&mut self, input: Input<'_>, times: u64) -> Result<()> {
        self.events.clear();
        self.detector.run(input, &mut self.events)?;
        self.detector.flush(&|_| times, &mut self.events)
    }

    /// Returns whether the first trial's events equal the reference's and include the injected pulses.
    fn agrees(&self, plan: &Plan, row: &[i32]) -> bool {
        let row: Vec<f64> = row.iter().map(|y| f64::from(*y)).collect();
        let truth = reference_search(plan, 0, &row);
        let mut found: Vec<Event> = self.events.iter().copied().filter(|e| e.dm == 0).collect();
        found.sort_by_key(|event| event.time);
        found.len() >= 3 && are_same(&found, &truth)
    }
}

fn rate(samples: usize, work: impl FnOnce() -> Result<()>) -> Result<f64> {
    let start = Instant::now();
    work()?;
    Ok(1e-9 * samples as f64 / start.elapsed().as_secs_f64())
}

/// Runs the roof: reads each row once and writes its running sum once.
fn prefix(pool: &Threads, whole: &[i32], sums: &mut [i32], times: usize) {
    let mut scratch = vec![(); pool.count()];
    pool.for_each_chunk(&mut scratch, sums, times, |(), row, sums| {
        let mut sum = 0i32;
        for (to, from) in sums.iter_mut().zip(&whole[row * times..][..times]) {
            sum = sum.wrapping_add(*from);
            *to = sum;
        }
    });
}

/// Runs the baseline: for each width, one pass over the row's running sums, at the same strides between starts.
fn plain(plan: &Plan, case: &Case, pool: &Threads, sums: &mut [i32], times: usize) -> usize {
    let mut hits = vec![0usize; pool.count()];
    pool.for_each_chunk(&mut hits, sums, times, |hits, _, sums| {
        for &width in plan.widths() {
            let (w, stride) = (width as f64, plan.stride(width));
            let least = (w * case.mean + SNR * case.sigma * w.sqrt()) as i64 as i32;
            let (early, late) = (&sums[..times - width], &sums[width..]);
            let pairs = early.iter().step_by(stride).zip(late.iter().step_by(stride));
            *hits += pairs.filter(|(early, late)| late.wrapping_sub(**early) >= least).count();
        }
    });
    hits.iter().sum()
}

/// Returns whether two lists of events are equal but for rounding of S/N.
fn are_same(found: &[Event], truth: &[Event]) -> bool {
    let place = |event: &Event| (event.dm, event.time, event.width);
    let pairs = found.iter().zip(truth);
    let are_alike =
        |a: &Event, b: &Event| place(a) == place(b) && (a.snr - b.snr).abs() < 1e-4 * b.snr;
    found.len() == truth.len() && pairs.into_iter().all(|(a, b)| are_alike(a, b))
}

/// Measures a case on a GPU.
fn measure_on_gpu(gpu: &Gpu, case: &Case) -> Result<Row> {
    let copies = if gpu.quick { 1 } else { copies(case)? };
    let plan = case.plan(copies * TRIALS)?;
    let times = GPU_WINDOWS * plan.window_times();
    let whole = series(case, TRIALS * times);
    let plane = plane(gpu, case, &whole, copies, times)?;
    let mut detector = Detector::new(plan.clone(), &gpu.backend)?;
    let (stream, mut events) = (gpu.device.stream()?, Vec::new());
    detector.enqueue(&plane, times, &mut events, &stream)?;
    detector.flush(&|_| times as u64, &mut events)?;
    let checked = is_right(case, &whole, times, &events)?;
    detector.reset();
    let mut once = |stream: &Stream| {
        events.clear();
        detector.enqueue(&plane, times, &mut events, stream).map(|_| ())
    };
    let seconds = measure::seconds(&stream, &mut once)?;
    let sustained_s = gpu.sustained(&stream, seconds[0], &mut once)?;
    let name = format!("{}, {} trials", case.name, copies * TRIALS);
    let work = (copies * TRIALS * times) as f64 * 1e-9;
    let rates = Rates::of_seconds(work, &seconds, gpu.read * 1e-9 / 4.0, 0.0);
    let rates = rates.lasting(work, sustained_s);
    Ok(rates.row(BENCH, name, &gpu.backend, "Gsamples/s", checked))
}

/// Returns the number of copies of the case's trials.
fn copies(case: &Case) -> Result<usize> {
    let times = GPU_WINDOWS * case.plan(TRIALS)?.window_times();
    Ok((SAMPLES / (TRIALS * times)).clamp(1, 256))
}

/// Uploads the series of all trials, repeated `copies` times along the trial axis.
fn plane(
    gpu: &Gpu,
    case: &Case,
    whole: &[i32],
    copies: usize,
    times: usize,
) -> Result<DevicePlane> {
    let (kind, words): (_, Vec<u32>) = match case.bound {
        Some(_) => (PlaneKind::I32, whole.iter().map(|y| y.cast_unsigned()).collect()),
        None => (PlaneKind::F32, whole.iter().map(|y| (*y as f32).to_bits()).collect()),
    };
    let words = gpu.device.upload(&words.repeat(copies))?;
    Ok(DevicePlane { words, stride: times, dms: copies * TRIALS, kind })
}

/// Returns whether the first trials' events equal the CPU's.
fn is_right(case: &Case, whole: &[i32], times: usize, events: &[Event]) -> Result<bool> {
    let mut detector = Detector::new(case.plan(TRIALS)?, &Backend::best(0))?;
    let floats: Vec<f32> = whole.iter().map(|y| *y as f32).collect();
    let input = match case.bound {
        Some(_) => Input::I32(Plane::new(whole, TRIALS, times, times)?),
        None => Input::F32(Plane::new(&floats, TRIALS, times, times)?),
    };
    let mut truth = Vec::new();
    detector.run(input, &mut truth)?;
    detector.flush(&|_| times as u64, &mut truth)?;
    if truth.is_empty() {
        let why = "the processor finds none in the noise".to_owned();
        return Err(Error::Unavailable { what: "events to compare".to_owned(), why });
    }
    let mut found: Vec<Event> =
        events.iter().copied().filter(|event| (event.dm as usize) < TRIALS).collect();
    let place = |event: &Event| (event.dm, event.time, event.width);
    found.sort_unstable_by_key(place);
    truth.sort_unstable_by_key(place);
    Ok(are_same(&found, &truth))
}
