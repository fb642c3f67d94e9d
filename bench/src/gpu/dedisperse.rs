//! `bench dedisperse` on a GPU: additions per second, data and planes in device memory.

use sidereal::backend::cuda::{Buffer, Plane, PlaneKind, Stream, measure};
use sidereal::dedisperse::{Dedisperser, Plan};
use sidereal::sample::{Encoding, Samples};
use sidereal::{Error, Result};

use super::random::{self, Random};
use super::{Figure, Gpu, table};
use crate::dedisperse::{Arguments, Case, cases, plan};
use crate::session::Session;

/// Samples per channel in a call, and the period of the data.
const TIMES: usize = 1 << 17;

/// The same for a quick run.
const QUICK_TIMES: usize = 1 << 9;

/// Positions of the plane that are compared, each with the next [`NEIGHBOURS`] times.
const PLACES: usize = 40;

/// Times compared after each position.
const NEIGHBOURS: usize = 32;

const ABOUT: &str = "\
10^12 adds a second, one add a channel, trial and output sample: kernels alone, data and planes on the
device, the corner turn and the history between calls included; the best and the median of 20 batches. Roof:
the samples once and the planes once through the device's memory. Baseline: AstroAccelerate on an H200
(driver 580, CUDA 13.0), tuned, 8 bit, the paper's plan, the best peer. Sums are compared with plain ones.";

/// Runs the benchmark.
pub(crate) fn run(gpu: &Gpu, arguments: &Arguments, session: &Session<'_>) -> Result<()> {
    let mut cases = chosen(gpu);
    if let Some(part) = &arguments.only {
        cases.retain(|case| case.name.contains(part));
        if cases.is_empty() {
            return Err(Error::parameter("--only", part, "no case's name contains it"));
        }
    }
    let table = table(gpu, session, arguments.csv.as_deref(), ("dedisperse", ABOUT))?;
    let longest = cases.iter().map(|case| case.channels * case.encoding.bits() / 8).max();
    let host = random::bytes(longest.unwrap_or(0) * times(gpu));
    gpu.measure(table, &cases, |case| case.name.clone(), |case| measure(gpu, case, &host))
}

fn times(gpu: &Gpu) -> usize {
    if gpu.quick { QUICK_TIMES } else { TIMES }
}

/// Returns the CPU's single-thread cases that apply to a GPU.
fn chosen(gpu: &Gpu) -> Vec<Case> {
    let mut cases = cases(1);
    if gpu.quick {
        cases.retain(|case| case.channels == 1024);
        for case in &mut cases {
            case.channels = 64;
            case.name = case.name.replace("1024", "64");
            case.ranges = vec![(0.0, 0.4, 70)];
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
struct Range {
    plan: Plan,
    dedisperser: Dedisperser,
    plane: Plane,
    /// Output times before the last call.
    before: u64,
    /// Output times in total.
    produced: u64,
}

impl Range {
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

fn measure(gpu: &Gpu, case: &Case, host: &[u8]) -> Result<Figure> {
    let times = times(gpu);
    let row_bytes = case.channels * case.encoding.bits() / 8;
    let samples = Samples::new(&host[..times * row_bytes], case.encoding, times, case.channels)?;
    let input = gpu.device.upload(samples.bytes())?;
    let stream = gpu.device.stream()?;
    let (mut seconds, mut checked) = (Vec::new(), true);
    let (mut adds, mut bytes) = (0.0, 0.0);
    for range in &case.ranges {
        let mut range = Range::new(gpu, plan(case, *range)?, times)?;
        // Runs until the longest delay is filled, and one call more.
        for _ in 0..=range.plan.max_shift() / times + 1 {
            range.step(&input, times, &stream)?;
        }
        checked &= range.produced - range.before == times as u64 && range.is_right(samples)?;
        let points = (range.plan.dms().len() * times) as f64;
        adds += points * case.channels as f64;
        bytes += 4.0 * points + (times * row_bytes) as f64;
        let each = measure::seconds(&stream, &mut |stream| range.step(&input, times, stream))?;
        add(&mut seconds, &each);
    }
    Ok(Figure {
        case: case.name.clone(),
        work: adds * 1e-12,
        unit: "Tadd/s",
        seconds,
        // The copy's rate counts read and written bytes alike.
        roof: adds * 1e-12 * gpu.copy / bytes,
        roof_unit: "Tadd/s",
        peer: super::peers::dedisperse(case.channels),
        checked,
    })
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
