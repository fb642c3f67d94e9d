//! `bench pulse`: times the single-pulse search beside a prefix sum and a plain loop over widths.
//!
//! All three run interleaved in one process on the same series; the best round counts.

use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use sidereal::Result;
use sidereal::backend::Backend;
use sidereal::backend::simd::Level;
use sidereal::backend::threads::Threads;
use sidereal::single_pulse::{Detector, Event, Input, Options, Plan, reference};
use sidereal::view::Plane;

#[cfg(feature = "cuda")]
use super::Quick;
use super::{Row, Table, best_and_median};
use crate::common::Common;

/// Measure the single-pulse search of one series per trial, beside a prefix sum and a plain loop.
#[derive(Args, Clone, Debug)]
pub(crate) struct Arguments {
    /// Also write the rows to this CSV file.
    #[arg(long, value_name = "FILE")]
    pub(super) csv: Option<PathBuf>,
    #[cfg(feature = "cuda")]
    #[command(flatten)]
    quick: Quick,
}

const ABOUT: &str = "Single-pulse search, all widths, in 10^9 samples a second; the roof is a prefix sum \
                     from memory to memory, the baseline a plain loop over widths.";

pub(crate) fn run(arguments: &Arguments, common: &Common) -> Result<()> {
    #[cfg(feature = "cuda")]
    if let Some(gpu) = super::gpu::Gpu::of(&common.backend()?, arguments.quick)? {
        return super::gpu::pulse::run(&gpu, arguments, common);
    }
    let mut table = Table::new(common, arguments.csv.as_deref(), ABOUT)?;
    let pool = Threads::new(common.backend()?.threads());
    for case in &CASES {
        for level in Level::available() {
            table.push(measure(case, level, &pool)?)?;
        }
    }
    table.finish()
}

const ROUNDS: usize = 20;
const SNR: f64 = 6.0;

/// Windows of the series in a round: together more than four times a large L2 cache.
const WINDOWS: usize = 4;
pub(super) const TRIALS: usize = 64;

/// Parameters of one row of the table.
pub(super) struct Case {
    pub(super) name: &'static str,
    tsamp_s: f64,
    max_width_s: f64,
    baseline_s: f64,
    mean: f64,
    sigma: f64,
    /// Bound of the integer sums; `None` for floats.
    pub(super) bound: Option<(i64, i64)>,
}

pub(super) const CASES: [Case; 5] = [
    Case::new("8-bit x 1024, 64 us, to 0.1 s", 64e-6, Some((0, 255 * 1024))),
    Case::new("16-bit x 4096, 64 us, to 0.1 s", 64e-6, Some((0, 65535 * 4096))),
    Case::new("f32 x 1024, 64 us, to 0.1 s", 64e-6, None),
    Case::new("8-bit x 1024, 256 us, to 0.1 s", 256e-6, Some((0, 255 * 1024))),
    Case::new("8-bit x 1024, 1 ms, to 0.1 s", 1e-3, Some((0, 255 * 1024))),
];

impl Case {
    const fn new(name: &'static str, tsamp_s: f64, bound: Option<(i64, i64)>) -> Self {
        let (max_width_s, baseline_s, mean, sigma) = (0.1, 2.0, 1e5, 500.0);
        Self { name, tsamp_s, max_width_s, baseline_s, mean, sigma, bound }
    }

    /// Returns the search plan of `trials` trials.
    ///
    /// # Errors
    /// Those of the plan.
    pub(super) fn plan(&self, trials: usize) -> Result<Plan> {
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
    let (mut rates, mut roof, mut baseline) = (Vec::new(), 0.0f64, 0.0f64);
    for _ in 0..ROUNDS {
        rates.push(rate(whole.len(), || search.run(input, times as u64))?);
        roof = roof.max(rate(whole.len(), || {
            prefix(pool, &whole, &mut sums, times);
            Ok(())
        })?);
        baseline = baseline.max(rate(whole.len() / 8, || {
            std::hint::black_box(plain(&plan, case, pool, &mut sums[..whole.len() / 8], times));
            Ok(())
        })?);
    }
    let (ours, median) = best_and_median(&mut rates);
    Ok(Row {
        bench: "pulse",
        case: case.name.to_owned(),
        device: backend.name(),
        rate: ours,
        unit: "Gsamples/s",
        roof,
        roof_unit: "Gsamples/s of a prefix sum",
        fraction_of_roof: ours / roof,
        baseline,
        ratio_to_baseline: ours / baseline,
        checked: search.agrees(&plan, &whole[..times]),
        median,
    })
}

/// Makes integer noise with a few pulses in the first trial.
pub(super) fn series(case: &Case, count: usize) -> Vec<i32> {
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
        let truth = reference::search(plan, 0, &row);
        let mut found: Vec<Event> = self.events.iter().copied().filter(|e| e.dm == 0).collect();
        found.sort_by_key(|event| event.time);
        let same = |(a, b): (&Event, &Event)| {
            (a.time, a.width) == (b.time, b.width) && (a.snr - b.snr).abs() < 1e-4 * b.snr
        };
        found.len() == truth.len() && found.len() >= 3 && found.iter().zip(&truth).all(same)
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
