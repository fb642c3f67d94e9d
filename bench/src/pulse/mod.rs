//! `bench pulse`: times the single-pulse search beside a prefix sum and a plain loop over widths.
//!
//! All three run interleaved in one process on the same series; the best round counts.

mod cases;

use std::time::Instant;

use sidereal::Result;
use sidereal::backend::Backend;
use sidereal::backend::simd::Level;
use sidereal::backend::threads::Threads;
use sidereal::single_pulse::{Detector, Event, Input, Plan, reference_search};
use sidereal::view::Plane;

use crate::session::Session;
use crate::table::{Row, Table, best_and_median};
pub(crate) use cases::{Arguments, CASES, Case, SNR, TRIALS, WINDOWS, series};

const ABOUT: &str = "Single-pulse search, all widths, in 10^9 samples a second; the roof is a prefix sum \
                     from memory to memory, the baseline a plain loop over widths.";

pub(crate) fn run(arguments: &Arguments, session: &Session<'_>) -> Result<()> {
    if let Some(gpu) = super::gpu::Gpu::of(&session.backend, arguments.quick)? {
        return super::gpu::pulse::run(&gpu, arguments, session);
    }
    let mut table = Table::new(session, arguments.csv.as_deref(), ABOUT)?;
    let pool = Threads::new(session.backend.clone().threads());
    for case in &CASES {
        for level in Level::available() {
            table.push(measure(case, level, &pool)?)?;
        }
    }
    table.finish()
}

const ROUNDS: usize = 20;

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
