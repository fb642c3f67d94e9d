//! `bench dedisperse`: additions per second on CPUs and GPUs; one addition per channel, trial and output sample.

use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use sidereal::Result;
use sidereal::backend::cuda::{Buffer, Plane, PlaneKind, Stream, measure};
use sidereal::backend::simd::Level;
use sidereal::backend::threads::Threads;
use sidereal::backend::{Backend, roof};
use sidereal::dedisperse::{Dedisperser, Options, Output, Plan};
use sidereal::sample::{Encoding, Samples};
use sidereal::units::{Band, DM_CONSTANT};
use sidereal::view::PlaneMut;

use crate::gpu::Gpu;
use crate::peers;
use crate::random::{self, Random};
use crate::runner::{Named, OnGpu, Rates, Row, Run, Session, select};

/// Name of the benchmark.
const BENCH: &str = "dedisperse";

/// Measure dedispersion.
#[derive(Args, Clone, Debug)]
pub(crate) struct Arguments {
    /// Least number of seconds spent on each case.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Measure only cases whose name contains this text.
    #[arg(long)]
    only: Option<String>,
    /// Also write the table to this CSV file.
    #[arg(long, value_name = "FILE")]
    pub(crate) csv: Option<PathBuf>,
    #[command(flatten)]
    on_gpu: OnGpu,
}

/// Samples in each run; also the period of the data.
const TIMES: usize = 4096;

/// Trials of each range that are compared with the plain loop.
const CHECKED_DMS: usize = 6;

/// Trials that the plain loop is timed on in each round.
const BASELINE_DMS: usize = 3;

/// Samples per channel in a call, and the period of the data.
const GPU_TIMES: usize = 1 << 17;

/// The same for a quick run.
const QUICK_TIMES: usize = 1 << 9;

/// Positions of the plane that are compared, each with the next [`NEIGHBOURS`] times.
const PLACES: usize = 40;

/// Times compared after each position.
const NEIGHBOURS: usize = 32;

const ABOUT: &str = "\
10^9 adds a second, the best and the median of all runs. Roof: one load, add, shift and add for each
vector of samples, in the first-level cache, on as many threads. Baseline: the plain loop over trials,
channels and times with 16-bit sums (32-bit for 16-bit samples), as the compiler vectorizes it, on one
thread. Roof, baseline and ours take turns.";

const GPU_ABOUT: &str = "\
10^12 adds a second, one add a channel, trial and output sample: kernels alone, data and planes on the
device, the corner turn and the history between calls included; the best and the median of 20 batches. Roof:
the samples once and the planes once through the device's memory. Baseline: AstroAccelerate on an H200
(driver 580, CUDA 13.0), tuned, 8 bit, the paper's plan, the best peer. Sums are compared with plain ones.";

/// Runs the benchmark.
pub(crate) fn run(arguments: &Arguments, session: &Session<'_>) -> Result<()> {
    session.check(arguments.seconds)?;
    let (csv, only) = (arguments.csv.as_deref(), arguments.only.as_deref());
    if let Some(gpu) = Gpu::of(&session.backend, arguments.on_gpu)? {
        let cases = select(gpu_cases(&gpu), only)?;
        let mut run = gpu.begin(session, csv, GPU_ABOUT)?;
        let longest = cases.iter().map(|case| case.channels * case.encoding.bits() / 8).max();
        let host = random::bytes(longest.unwrap_or(0) * gpu_times(&gpu));
        run.each(&cases, |case| measure_on_gpu(&gpu, case, &host))?;
        return run.finish();
    }
    let cases = select(cases(Threads::new(session.threads).count()), only)?;
    let mut run = Run::new(session, csv, ABOUT)?;
    run.each(&cases, |case| measure(case, arguments.seconds))?;
    run.finish()
}

/// Frequency band and its DM trials.
struct Case {
    name: String,
    centre_mhz: f64,
    bandwidth_mhz: f64,
    channels: usize,
    tsamp_s: f64,
    encoding: Encoding,
    ranges: Vec<Trials>,
    threads: usize,
}

/// Range of trial DMs.
#[derive(Clone, Copy)]
struct Trials {
    first: f64,
    step: f64,
    count: usize,
}

impl Named for Case {
    fn name(&self) -> &str {
        &self.name
    }
}

/// Returns the plan of the paper: DM 0 to 150 in steps of 0.1, to 300 by 0.2, to 500 by 0.25.
fn plan_of_the_paper() -> Vec<Trials> {
    let ranges = [(0.0, 0.1, 1500), (150.0, 0.2, 750), (300.0, 0.25, 800)];
    ranges.map(|(first, step, count)| Trials { first, step, count }).into()
}

/// Returns all cases; `threads` is the largest number of threads to use.
fn cases(threads: usize) -> Vec<Case> {
    let case = |name: String, channels, encoding, ranges| Case {
        name,
        centre_mhz: 1400.0,
        bandwidth_mhz: 300.0,
        channels,
        tsamp_s: 64e-6,
        encoding,
        ranges,
        threads,
    };
    let mut cases = Vec::new();
    for threads in if threads > 1 { vec![1, threads] } else { vec![1] } {
        let name = format!("500 trials, 1024 channels, 8 bit, {threads} threads");
        let ranges = vec![Trials { first: 0.0, step: 0.1, count: 500 }];
        cases.push(Case { threads, ..case(name, 1024, Encoding::U8, ranges) });
    }
    let encodings = [Encoding::U8, Encoding::U4, Encoding::U2, Encoding::U1, Encoding::U16];
    for encoding in encodings {
        for channels in [512, 1024, 2048, 4096, 8192] {
            let name = format!("paper's plan, {channels} channels, {} bit", encoding.bits());
            cases.push(case(name, channels, encoding, plan_of_the_paper()));
        }
    }
    cases.extend(bands().into_iter().map(|(name, centre_mhz, bandwidth_mhz, tsamp_s, step)| {
        Case {
            centre_mhz,
            bandwidth_mhz,
            tsamp_s,
            ..case(
                name.to_owned(),
                4096,
                Encoding::U8,
                vec![Trials { first: 0.0, step, count: 1000 }],
            )
        }
    }));
    cases
}

/// Returns bands of our own choice at three frequencies: centre and width (MHz), sampling time (s) and step between
/// trials. The steps of the last are far too wide for its band, so that neighbouring trials share few partial sums.
fn bands() -> Vec<(&'static str, f64, f64, f64, f64)> {
    vec![
        ("high, 1400 +- 150 MHz, 64 us, step 0.1", 1400.0, 300.0, 64e-6, 0.1),
        ("mid, 800 +- 100 MHz, 64 us, step 0.05", 800.0, 200.0, 64e-6, 0.05),
        ("low, 400 +- 50 MHz, 256 us, step 0.05", 400.0, 100.0, 256e-6, 0.05),
        ("low and coarse, 400 +- 100 MHz, 64 us, 0.1", 400.0, 200.0, 64e-6, 0.1),
    ]
}

/// Returns the plan of one range of a case.
fn plan(case: &Case, trials: Trials) -> Result<Plan> {
    let width = case.bandwidth_mhz / case.channels as f64;
    let top = case.centre_mhz + 0.5 * (case.bandwidth_mhz - width);
    Plan::new(Options {
        band: Band::uniform(top, -width, case.channels)?,
        tsamp_s: case.tsamp_s,
        dms: (0..trials.count).map(|i| trials.first + i as f64 * trials.step).collect(),
        downsample: 1,
        encoding: case.encoding,
        range: None,
        masked: Vec::new(),
        dm_constant: DM_CONSTANT,
    })
}

/// One range of trials, its streams and its reference sums.
struct Range {
    dedisperser: Dedisperser,
    plan: Plan,
    output: Vec<i32>,
}

/// Measures a case on the CPU.
fn measure(case: &Case, seconds: f64) -> Result<Row> {
    let threads = Threads::new(case.threads);
    let backend = Backend::Cpu(Level::best(), threads.clone());
    let bytes = high_bytes(TIMES * case.channels * case.encoding.bits() / 8);
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
    let rates = Rates::alternate(
        &mut ranges,
        5,
        seconds,
        |_| Ok(roof::byte_adds(Level::best(), &threads, 2e-3) * scale),
        |_| Ok(baseline.rate() * 1e-9),
        |ranges| {
            let began = Instant::now();
            for range in ranges {
                step(range, samples)?;
            }
            Ok(adds * 1e-9 / began.elapsed().as_secs_f64())
        },
    )?;
    Ok(rates.row(BENCH, &case.name, &backend, "Gadd/s", checked))
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

/// Returns the high bytes of pseudorandom words.
fn high_bytes(count: usize) -> Vec<u8> {
    let mut random = Random::new();
    (0..count).map(|_| (random.next() >> 56) as u8).collect()
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
        let shifts = trials
            .map(|(range, dm)| (0..samples.channels()).map(|c| range.plan.shift(dm, c)).collect());
        Self { channels, bytes, shifts: shifts.collect() }
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

fn gpu_times(gpu: &Gpu) -> usize {
    if gpu.quick { QUICK_TIMES } else { GPU_TIMES }
}

/// Returns the CPU's single-thread cases that apply to a GPU.
fn gpu_cases(gpu: &Gpu) -> Vec<Case> {
    let mut cases = cases(1);
    if gpu.quick {
        cases.retain(|case| case.channels == 1024);
        for case in &mut cases {
            case.channels = 64;
            case.name = case.name.replace("1024", "64");
            case.ranges = vec![Trials { first: 0.0, step: 0.4, count: 70 }];
        }
        return cases;
    }
    let wanted = |case: &Case| match case.encoding {
        Encoding::U8 => true,
        Encoding::U16 | Encoding::U4 => matches!(case.channels, 1024 | 4096),
        _ => case.channels == 1024,
    };
    cases.retain(wanted);
    // Most important cases first, in case the run is interrupted.
    cases.sort_by_key(|case| match case.encoding {
        Encoding::U8 => 0,
        Encoding::U4 | Encoding::U16 => 1,
        _ => 2,
    });
    cases
}

/// One range of trials, its stream and its plane.
struct DeviceRange {
    plan: Plan,
    dedisperser: Dedisperser,
    plane: Plane,
    /// Output times before the last call.
    before: u64,
    /// Output times in total.
    produced: u64,
}

impl DeviceRange {
    fn new(gpu: &Gpu, plan: Plan, times: usize) -> Result<Self> {
        let dedisperser = Dedisperser::new(plan.clone(), &gpu.backend)?;
        let kind = if plan.output_is_integer() { PlaneKind::I32 } else { PlaneKind::F32 };
        let plane = Plane::new(&gpu.device, kind, plan.dms().len(), plan.max_output(times))?;
        Ok(Self { plan, dedisperser, plane, before: 0, produced: 0 })
    }

    fn step(&mut self, input: &Buffer<u8>, times: usize, stream: &Stream) -> Result<()> {
        let progress = self.dedisperser.enqueue(input, 0, times, &mut self.plane, stream)?;
        self.before = self.produced;
        self.produced += progress.produced as u64;
        Ok(())
    }

    /// Returns whether some sums of the last call equal the plain loop's over the periodic data.
    fn is_right(&self, samples: Samples<'_>) -> Result<bool> {
        let (period, dms) = (samples.times(), self.plan.dms().len());
        let times = (self.produced - self.before) as usize;
        if times < NEIGHBOURS {
            return Ok(false);
        }
        let mut random = Random::new();
        let mut words = [0u32; NEIGHBOURS];
        for place in 0..PLACES {
            let dm = match place {
                0 => 0,
                1 => dms - 1,
                _ => random.below(dms),
            };
            let first = match place {
                0 => 0,
                1 => times - NEIGHBOURS,
                _ => random.below(times - NEIGHBOURS + 1),
            };
            self.plane.words.download(dm * self.plane.stride + first, &mut words)?;
            for (k, word) in words.iter().enumerate() {
                let time = self.before as usize + first + k;
                let value = |channel: usize| {
                    let at = (time + self.plan.shift(dm, channel)) % period;
                    samples.value(at, channel) as i64
                };
                let sum: i64 = (0..samples.channels()).map(value).sum();
                if sum != i64::from(word.cast_signed()) {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }
}

/// Measures a case on a GPU.
fn measure_on_gpu(gpu: &Gpu, case: &Case, host: &[u8]) -> Result<Row> {
    let times = gpu_times(gpu);
    let row_bytes = case.channels * case.encoding.bits() / 8;
    let samples = Samples::new(&host[..times * row_bytes], case.encoding, times, case.channels)?;
    let input = gpu.device.upload(samples.bytes())?;
    let stream = gpu.device.stream()?;
    let (mut seconds, mut checked) = (Vec::new(), true);
    let (mut adds, mut bytes, mut sustained_s) = (0.0, 0.0, Some(0.0));
    for range in &case.ranges {
        let mut range = DeviceRange::new(gpu, plan(case, *range)?, times)?;
        // Runs until the longest delay is filled, and one call more.
        for _ in 0..=range.plan.max_shift() / times + 1 {
            range.step(&input, times, &stream)?;
        }
        checked &= range.produced - range.before == times as u64 && range.is_right(samples)?;
        let points = (range.plan.dms().len() * times) as f64;
        adds += points * case.channels as f64;
        bytes += 4.0 * points + (times * row_bytes) as f64;
        let mut once = |stream: &Stream| range.step(&input, times, stream);
        let each = measure::seconds(&stream, &mut once)?;
        let lasting_s = gpu.sustained(&stream, each[0], &mut once)?;
        add(&mut seconds, &each);
        sustained_s = sustained_s.zip(lasting_s).map(|(all, one)| all + one);
    }
    // The copy's rate counts read and written bytes alike.
    let roof = adds * 1e-12 * gpu.copy / bytes;
    let rates = Rates::of_seconds(adds * 1e-12, &seconds, roof, peers::dedisperse(case.channels));
    let rates = rates.lasting(adds * 1e-12, sustained_s);
    Ok(rates.row(BENCH, &case.name, &gpu.backend, "Tadd/s", checked))
}

/// Adds the seconds of a range to those of the previous ranges: best to best, median to median.
fn add(total: &mut Vec<f64>, each: &[f64]) {
    let (best, median) = (each.first().copied().unwrap_or(f64::INFINITY), measure::median(each));
    if total.is_empty() {
        *total = vec![best, median];
    } else {
        total[0] += best;
        total[1] += median;
    }
}
