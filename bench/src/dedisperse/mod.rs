//! `bench dedisperse`: additions per second; one addition per channel, trial and output sample.

mod cases;

use std::time::Instant;

use sidereal::backend::simd::Level;
use sidereal::backend::threads::Threads;
use sidereal::backend::{Backend, roof};
use sidereal::dedisperse::{Dedisperser, Output, Plan};
use sidereal::sample::Samples;
use sidereal::view::PlaneMut;
use sidereal::{Error, Result};

use crate::session::Session;
use crate::table::{Row, Table, best_and_median};
pub(crate) use cases::{Arguments, Case, cases, plan};

/// Samples in each run; also the period of the data.
const TIMES: usize = 4096;

/// Trials of each range that are compared with the plain loop.
const CHECKED_DMS: usize = 6;

/// Trials that the plain loop is timed on in each round.
const BASELINE_DMS: usize = 3;

const ABOUT: &str = "\
10^9 adds a second, the best and the median of all runs. Roof: one load, add, shift and add for each
vector of samples, in the first-level cache, on as many threads. Baseline: the plain loop over trials,
channels and times with 16-bit sums (32-bit for 16-bit samples), as the compiler vectorizes it, on one
thread. Roof, baseline and ours take turns.";

/// Runs the benchmark.
pub(crate) fn run(arguments: &Arguments, session: &Session<'_>) -> Result<()> {
    if session.is_reference() {
        let rule = "the reference is too slow to be measured; leave --device out";
        return Err(Error::parameter("--device", "reference", rule));
    }
    if !arguments.seconds.is_finite() || arguments.seconds < 0.0 {
        let rule = "it must be finite and not negative";
        return Err(Error::parameter("--seconds", arguments.seconds, rule));
    }
    if let Some(gpu) = super::gpu::Gpu::of(&session.backend, arguments.quick)? {
        return super::gpu::dedisperse::run(&gpu, arguments, session);
    }
    let threads = Threads::new(session.threads).count();
    let mut cases = cases(threads);
    if let Some(part) = &arguments.only {
        cases.retain(|case| case.name.contains(part));
        if cases.is_empty() {
            return Err(Error::parameter("--only", part, "no case's name contains it"));
        }
    }
    let mut table = Table::new(session, arguments.csv.as_deref(), ABOUT)?;
    for case in &cases {
        table.push(measure(case, arguments.seconds)?)?;
    }
    table.finish()
}

/// One range of trials, its streams and its reference sums.
struct Range {
    dedisperser: Dedisperser,
    plan: Plan,
    output: Vec<i32>,
}

fn measure(case: &Case, seconds: f64) -> Result<Row> {
    let threads = Threads::new(case.threads);
    let backend = Backend::Cpu(Level::best(), threads.clone());
    let bytes = random_bytes(TIMES * case.channels * case.encoding.bits() / 8);
    let samples = Samples::new(&bytes, case.encoding, TIMES, case.channels)?;
    let mut ranges = Vec::new();
    for range in &case.ranges {
        let plan = plan(case, *range)?;
        let dedisperser = Dedisperser::new(plan.clone(), &backend)?;
        let output = vec![0; plan.dms().len() * TIMES];
        ranges.push(Range { dedisperser, plan, output });
    }
    let baseline = Baseline::new(&ranges, samples);
    let mut checked = true;
    for range in &mut ranges {
        checked &= fill(range, samples)? && baseline.agrees(range);
    }
    let trials: usize = ranges.iter().map(|range| range.plan.dms().len()).sum();
    let adds = (trials * case.channels * TIMES) as f64;
    // A vector takes the same three operations but holds half as many 16-bit samples.
    let scale = 1e-9 * 8.0 / case.encoding.bits().max(8) as f64;
    let (mut roofs, mut baselines, mut rates) = (Vec::new(), Vec::new(), Vec::new());
    let start = Instant::now();
    while rates.len() < 5 || start.elapsed().as_secs_f64() < seconds {
        roofs.push(roof::byte_adds(Level::best(), &threads, 2e-3) * scale);
        baselines.push(baseline.rate() * 1e-9);
        let began = Instant::now();
        for range in &mut ranges {
            step(range, samples)?;
        }
        rates.push(adds * 1e-9 / began.elapsed().as_secs_f64());
    }
    let (rate, median) = best_and_median(&mut rates);
    let (roof, _) = best_and_median(&mut roofs);
    let (baseline, _) = best_and_median(&mut baselines);
    Ok(Row {
        bench: "dedisperse",
        case: case.name.clone(),
        device: backend.name(),
        rate,
        unit: "Gadd/s",
        roof,
        roof_unit: "Gadd/s",
        fraction_of_roof: rate / roof,
        baseline,
        ratio_to_baseline: rate / baseline,
        checked,
        median,
    })
}

/// Processes one period of the data; returns whether that produced one period of output.
fn step(range: &mut Range, samples: Samples<'_>) -> Result<bool> {
    let output = PlaneMut::new(&mut range.output, range.plan.dms().len(), TIMES)?;
    let progress = range.dedisperser.run(samples, Output::I32(output))?;
    Ok(progress.produced == TIMES && progress.consumed == TIMES)
}

/// Runs until the history covers the longest delay, so that the next call produces a whole period.
fn fill(range: &mut Range, samples: Samples<'_>) -> Result<bool> {
    for _ in 0..=range.plan.max_shift() / TIMES {
        step(range, samples)?;
    }
    step(range, samples)
}

fn random_bytes(count: usize) -> Vec<u8> {
    let mut state = 0x2545_f491_4f6c_dd1du64;
    let mut byte = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 56) as u8
    };
    (0..count).map(|_| byte()).collect()
}

/// Plain loop over the same data in channel order.
struct Baseline {
    /// Samples by channel, repeated up to the longest delay.
    channels: Vec<Vec<u16>>,
    bytes: Vec<Vec<u8>>,
    /// Shifts of the checked trials, those of the first range first.
    shifts: Vec<Vec<usize>>,
}

/// Returns the trials of a plan that are compared.
fn checked_dms(plan: &Plan) -> impl Iterator<Item = usize> + '_ {
    let dms = plan.dms().len();
    (0..CHECKED_DMS).map(move |k| k * (dms - 1) / (CHECKED_DMS - 1))
}

impl Baseline {
    fn new(ranges: &[Range], samples: Samples<'_>) -> Self {
        let longest = ranges.iter().map(|range| range.plan.max_shift()).max().unwrap_or(0);
        let value = |c: usize, t: usize| samples.value(t % TIMES, c) as u16;
        let wide = samples.encoding().bits() > 8;
        let rows = 0..samples.channels();
        let row = |c: usize| {
            let period: Vec<u16> = (0..TIMES).map(|t| value(c, t)).collect();
            (0..TIMES + longest).map(|t| period[t % TIMES]).collect::<Vec<u16>>()
        };
        let narrow = |c| row(c).iter().map(|x| *x as u8).collect();
        let (channels, bytes) = if wide {
            (rows.map(row).collect(), Vec::new())
        } else {
            (Vec::new(), rows.map(narrow).collect())
        };
        let trials =
            ranges.iter().flat_map(|range| checked_dms(&range.plan).map(move |d| (range, d)));
        let shifts = |(range, dm): (&Range, usize)| {
            (0..samples.channels()).map(|c| range.plan.shift(dm, c)).collect()
        };
        Self { channels, bytes, shifts: trials.map(shifts).collect() }
    }

    /// Returns whether the checked trials of the last output period equal the plain loop's.
    fn agrees(&self, range: &Range) -> bool {
        // The output period starts at the last input period's start less the longest delay.
        let start = TIMES - range.plan.max_shift() % TIMES;
        let mut sums = vec![0; TIMES];
        checked_dms(&range.plan).all(|dm| {
            let channels = self.channels.len().max(self.bytes.len());
            let shifts: Vec<usize> = (0..channels).map(|c| range.plan.shift(dm, c)).collect();
            self.trial(&shifts, &mut sums);
            let row = &range.output[dm * TIMES..(dm + 1) * TIMES];
            row.iter().enumerate().all(|(t, y)| *y == sums[(start + t) % TIMES])
        })
    }

    fn trial(&self, shifts: &[usize], sums: &mut [i32]) {
        if self.bytes.is_empty() {
            plain_32(&self.channels, shifts, sums);
        } else {
            plain_16(&self.bytes, shifts, sums);
        }
    }

    /// Returns the additions per second of the fastest of a few trials; the first trial finds the caches cold.
    fn rate(&self) -> f64 {
        let mut sums = vec![0; TIMES];
        let adds = (self.shifts[0].len() * TIMES) as f64;
        let trials = self.shifts.iter().rev().take(BASELINE_DMS);
        let rate = |shifts: &Vec<usize>| {
            let began = Instant::now();
            self.trial(shifts, &mut sums);
            std::hint::black_box(&sums);
            adds / began.elapsed().as_secs_f64()
        };
        trials.map(rate).fold(0.0, f64::max)
    }
}

/// Sums bytes in a plain loop with 16-bit sums, which 256 channels cannot overflow.
fn plain_16(channels: &[Vec<u8>], shifts: &[usize], sums: &mut [i32]) {
    let mut words = [0u16; TIMES];
    sums.fill(0);
    for (channels, shifts) in channels.chunks(256).zip(shifts.chunks(256)) {
        words.fill(0);
        for (channel, shift) in channels.iter().zip(shifts) {
            for (sum, x) in words.iter_mut().zip(&channel[*shift..*shift + TIMES]) {
                *sum += u16::from(*x);
            }
        }
        sums.iter_mut().zip(&words).for_each(|(sum, word)| *sum += i32::from(*word));
    }
}

/// Sums 16-bit samples in a plain loop.
fn plain_32(channels: &[Vec<u16>], shifts: &[usize], sums: &mut [i32]) {
    sums.fill(0);
    for (channel, shift) in channels.iter().zip(shifts) {
        for (sum, x) in sums.iter_mut().zip(&channel[*shift..*shift + TIMES]) {
            *sum += i32::from(*x);
        }
    }
}
