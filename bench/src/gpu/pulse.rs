//! `bench pulse` on a GPU: samples per second through the single-pulse search, planes in device memory.

use sidereal::backend::Backend;
use sidereal::backend::cuda::{Plane, PlaneKind, measure};
use sidereal::single_pulse::{Detector, Event, Input};
use sidereal::view;
use sidereal::{Error, Result};

use super::{Figure, Gpu, table};
use crate::pulse::{Arguments, CASES, Case, TRIALS, series};
use crate::session::Session;

/// Least number of samples in a call: several times any cache.
const SAMPLES: usize = 1 << 27;

/// Windows per trial in a call.
const WINDOWS: usize = 2;

const ABOUT: &str = "\
Single-pulse search, all widths, in 10^9 samples a second: kernels alone, planes on the device. Roof:
reading the plane once. No peer's kernel takes so many widths, so there is no baseline. Events are compared
with the processor's.";

/// Runs the benchmark.
pub(crate) fn run(gpu: &Gpu, arguments: &Arguments, session: &Session<'_>) -> Result<()> {
    let table = table(gpu, session, arguments.csv.as_deref(), ("pulse", ABOUT))?;
    let cases = if gpu.quick { &CASES[4..] } else { &CASES[..] };
    gpu.measure(table, cases, |case| case.name.to_owned(), |case| measure(gpu, case))
}

fn measure(gpu: &Gpu, case: &Case) -> Result<Figure> {
    let copies = if gpu.quick { 1 } else { copies(case)? };
    let plan = case.plan(copies * TRIALS)?;
    let times = WINDOWS * plan.window_times();
    let whole = series(case, TRIALS * times);
    let plane = plane(gpu, case, &whole, (copies, times))?;
    let mut detector = Detector::new(plan.clone(), &gpu.backend)?;
    let (stream, mut events) = (gpu.device.stream()?, Vec::new());
    detector.enqueue(&plane, times, &mut events, &stream)?;
    detector.flush(&|_| times as u64, &mut events)?;
    let checked = is_right(case, &whole, times, &events)?;
    detector.reset();
    let seconds = measure::seconds(&stream, &mut |stream| {
        events.clear();
        detector.enqueue(&plane, times, &mut events, stream).map(|_| ())
    })?;
    Ok(Figure {
        case: format!("{}, {} trials", case.name, copies * TRIALS),
        work: (copies * TRIALS * times) as f64 * 1e-9,
        unit: "Gsamples/s",
        seconds,
        roof: gpu.read * 1e-9 / 4.0,
        roof_unit: "Gsamples/s",
        peer: 0.0,
        checked,
    })
}

/// Returns the number of copies of the case's trials.
fn copies(case: &Case) -> Result<usize> {
    let times = WINDOWS * case.plan(TRIALS)?.window_times();
    Ok((SAMPLES / (TRIALS * times)).clamp(1, 256))
}

/// Uploads the series of all trials, repeated `copies` times along the trial axis.
fn plane(gpu: &Gpu, case: &Case, whole: &[i32], (copies, times): (usize, usize)) -> Result<Plane> {
    let (kind, words): (_, Vec<u32>) = match case.bound {
        Some(_) => (PlaneKind::I32, whole.iter().map(|y| y.cast_unsigned()).collect()),
        None => (PlaneKind::F32, whole.iter().map(|y| (*y as f32).to_bits()).collect()),
    };
    let words = gpu.device.upload(&words.repeat(copies))?;
    Ok(Plane { words, stride: times, dms: copies * TRIALS, kind })
}

/// Returns whether the first trials' events equal the CPU's.
fn is_right(case: &Case, whole: &[i32], times: usize, events: &[Event]) -> Result<bool> {
    let mut detector = Detector::new(case.plan(TRIALS)?, &Backend::best(0))?;
    let floats: Vec<f32> = whole.iter().map(|y| *y as f32).collect();
    let input = match case.bound {
        Some(_) => Input::I32(view::Plane::new(whole, TRIALS, times, times)?),
        None => Input::F32(view::Plane::new(&floats, TRIALS, times, times)?),
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
    let same =
        |(a, b): (&Event, &Event)| place(a) == place(b) && (a.snr - b.snr).abs() < 1e-4 * b.snr;
    Ok(found.len() == truth.len() && found.iter().zip(&truth).all(same))
}
