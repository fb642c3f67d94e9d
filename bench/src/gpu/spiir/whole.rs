//! Complete search of two detectors on a GPU, and each of its steps alone, to find the bottleneck.

use std::path::PathBuf;
use std::time::Instant;

use num_complex::Complex;
use sidereal::Result;
use sidereal::backend::cuda::measure;
use sidereal::backend::threads::Threads;
use sidereal::geometry::Interferometer;
use sidereal::math::{PowerSpectrum, advanced_ligo};
use sidereal::pipeline::cbc::{
    ChirpDetector, ChirpSearch, DetectorOptions, Input, Recording, Report, SearchOptions, Source,
    Spectrum, Whitening, design,
};
use sidereal::simulate::strain::{self, Injection, Simulation, StrainOptions};
use sidereal::spiir::Spiir;
use sidereal::spiir::bank::{self, Bank, Rates};
use sidereal::spiir::coincidence::{self, Detector, Ranking};
use sidereal::spiir::trigger::{Autocorrelation, DeviceFinder, TriggerOptions};
use sidereal::spiir::whiten::{Method, Whitener};
use sidereal::strain::Binary;
use sidereal::units::Gps;
use sidereal::waveform::{InspiralOptions, inspiral};

use super::super::Gpu;
use super::{TIMES, operations};
use crate::spiir::bank::{RATE_HZ, noise};
use crate::table::Row;

/// Templates per detector, and the number of designed templates, which the others repeat.
const TEMPLATES: usize = 4096;
const DESIGNS: usize = 16;
/// The same for a quick run.
const QUICK: (usize, usize) = (4, 2);
/// Lowest frequency of the templates, and the lowest sampling rate: four rates in total.
const F_LOW_HZ: f64 = 30.0;
const LOWEST_HZ: f64 = 512.0;
/// Seconds from the injected binary's end to the end of the data.
const BEFORE_END_S: f64 = 20.0;
/// Samples of a block timed from strain to triggers, and the number of blocks.
const BLOCK: usize = 1024;
const BLOCKS: usize = 64;
const NAMES: [&str; 2] = ["H1", "L1"];
const START_S: f64 = 1_000_000_000.0;

/// Measures the search of `length_s` seconds: a row for each step alone, one for the total, one for the latency.
///
/// # Errors
/// Those of the steps.
pub(super) fn measure(gpu: &Gpu, length_s: f64, threads: usize) -> Result<Vec<Row>> {
    let threads = Threads::new(threads);
    let bank = neutron_stars(if gpu.quick { QUICK } else { (TEMPLATES, DESIGNS) }, &threads)?;
    let recordings = recordings(length_s, &bank)?;
    let strain = recordings[0].clone();
    let asked = options(&bank);
    let input = |recording| (recording, Input::Bank(Box::new(bank.clone())));
    let inputs = recordings.into_iter().map(input).collect();
    let search = ChirpSearch::new(inputs, &asked, &gpu.backend)?;
    let report = search.run(&mut |_| true)?;
    let checked = is_found(&report, length_s);
    let triggers: usize = report.detectors.iter().map(|one| one.triggers.len()).sum();
    let steps: [(&str, f64); 5] = [
        ("whitening, a thread each", whitening_s(&strain, &asked, &bank)?),
        ("filters, kernels", 2.0 * kernels_s(gpu, &bank)? * length_s),
        ("triggers, kernels", 2.0 * finder_s(gpu, &bank)? * length_s),
        (&format!("{triggers} triggers, slid"), coincidence_s(&report, &asked, &threads)?),
        (&format!("the whole search, {length_s} s"), report.elapsed_s),
    ];
    let operations = 2.0 * operations(&bank.plan()?) * bank.templates.len() as f64;
    let roof = super::cases::roof(gpu.device.properties().multiprocessors)
        / (operations * f64::from(RATE_HZ));
    let templates = bank.templates.len();
    let case = |what: &str| format!("{what}, 2 x {templates} templates");
    let row = |what: &str, rate: f64, unit: &'static str, (roof, baseline): (f64, f64)| Row {
        bench: "spiir",
        case: case(what),
        device: gpu.backend.name(),
        rate,
        unit,
        roof,
        roof_unit: unit,
        fraction_of_roof: rate / roof,
        baseline,
        ratio_to_baseline: rate / baseline,
        checked,
        median: rate,
    };
    let whole = length_s / report.elapsed_s;
    let speed = |(what, step_s): &(&str, f64)| {
        row(what, length_s / step_s.max(1e-9), "times real time", (roof, whole))
    };
    let mut rows: Vec<Row> = steps.iter().map(speed).collect();
    let (least, median) = latency_s(gpu, &strain, (&asked, &bank))?;
    let waits_s = report.latency().total_s();
    let rate = 1.0 / median;
    let what = format!("0.25 s to its triggers (+ {waits_s:.1} s)");
    rows.push(row(&what, rate, "blocks/s", (1.0 / least, 4.0)));
    Ok(rows)
}

/// Designs a bank of binary neutron stars of about 1.4 + 1.4 solar masses; a few designs repeat.
fn neutron_stars((templates, designs): (usize, usize), threads: &Threads) -> Result<Bank> {
    let make = |index: usize| {
        let binary = Binary::of_masses(1.4 + 0.003 * index as f64, 1.4);
        inspiral(&binary, &inspirals())
    };
    let options = bank::Options {
        f_low_hz: F_LOW_HZ,
        rates: Rates::Multi { lowest_hz: LOWEST_HZ },
        ..bank::Options::default()
    };
    let waveforms = (0..designs).map(make).collect::<Result<Vec<_>>>()?;
    let mut bank = design(&Source { waveforms, options }, &psd()?, threads)?;
    // The search does not use the waveforms, which would fill the memory.
    bank.templates.iter_mut().for_each(|one| one.whitened.truncate(1));
    bank.templates = bank.templates.iter().cycle().take(templates).cloned().collect();
    Ok(bank)
}

fn inspirals() -> InspiralOptions {
    InspiralOptions { f_low_hz: F_LOW_HZ, rate_hz: RATE_HZ, ..InspiralOptions::default() }
}

fn psd() -> Result<PowerSpectrum> {
    advanced_ligo(0.25, RATE_HZ as usize * 2 + 1)
}

/// Simulates the strain of both detectors with a binary in it, each on its own thread.
fn recordings(length_s: f64, bank: &Bank) -> Result<Vec<Recording>> {
    let places: Vec<&'static Interferometer> =
        NAMES.iter().filter_map(|name| Interferometer::by_name(name)).collect();
    let times = (length_s * f64::from(RATE_HZ)) as u64;
    let start = Gps::from_s(START_S);
    let mut options = StrainOptions::new(&places, &bank.psd, start, RATE_HZ, times);
    options.seed = 7;
    options.injections.push(Injection {
        source: strain::Source::Inspiral(Binary::of_masses(1.4, 1.4), inspirals()),
        distance_mpc: 60.0,
        ra_rad: 1.0,
        dec_rad: 0.7,
        inclination_rad: 0.2,
        polarization_rad: 0.3,
        phase_rad: 0.0,
        gps: start.plus_s(end_s(length_s)),
    });
    let mut detectors = Simulation::new(&options)?.detectors;
    std::thread::scope(|scope| {
        let running: Vec<_> = detectors
            .iter_mut()
            .map(|detector| scope.spawn(move || Recording::read(detector)))
            .collect();
        let ended = running.into_iter().map(|one| {
            let mut recording =
                one.join().unwrap_or_else(|fault| std::panic::resume_unwind(fault))?;
            recording.path = PathBuf::from("simulated");
            Ok(recording)
        });
        ended.collect()
    })
}

fn end_s(length_s: f64) -> f64 {
    (length_s - BEFORE_END_S).max(1.0)
}

fn options(bank: &Bank) -> SearchOptions {
    SearchOptions {
        whitening: Whitening {
            spectrum: Spectrum::Given(bank.psd.clone()),
            method: Method::Overlap { fft_s: 4.0 },
            gate: None,
        },
        threshold: 4.0,
        window_s: 0.1,
        gate_pad_s: 0.25,
        window_pad_s: 0.002,
        slides: 100,
        slide_interval_s: 0.1,
        cluster_s: 0.5,
        background: coincidence::Sample::Inclusive,
        ranking: Ranking::default(),
        block: 0,
        memory: None,
    }
}

/// Returns whether the loudest event is the injected binary.
fn is_found(report: &Report, length_s: f64) -> bool {
    let end = Gps::from_s(START_S).plus_s(end_s(length_s));
    report.found.events.first().is_some_and(|event| {
        event.detectors.iter().flatten().count() == 2
            && event.detectors.iter().flatten().all(|one| one.gps.seconds_since(end).abs() < 0.05)
    })
}

/// Returns the seconds that one thread takes to whiten a detector's strain.
fn whitening_s(strain: &Recording, asked: &SearchOptions, bank: &Bank) -> Result<f64> {
    let options = asked.whitening.options(RATE_HZ, &bank.psd, F_LOW_HZ);
    let mut whitener = Whitener::new(options)?;
    let (mut white, mut valid) = (vec![0.0; TIMES], vec![false; TIMES]);
    let began = Instant::now();
    for (strain, good) in strain.samples.chunks(TIMES).zip(strain.valid.chunks(TIMES)) {
        let times = strain.len();
        whitener.run(strain, good, &mut white[..times], &mut valid[..times])?;
    }
    Ok(began.elapsed().as_secs_f64())
}

/// Returns the seconds of the filter kernels per second of one detector, in calls of two seconds.
fn kernels_s(gpu: &Gpu, bank: &Bank) -> Result<f64> {
    let (stream, times) = (gpu.device.stream()?, 2 * TIMES);
    let input = gpu.device.upload(&noise(times))?;
    let mut z = gpu.device.buffer::<Complex<f32>>(bank.templates.len() * times)?;
    let mut spiir = Spiir::new(bank.plan()?, &gpu.backend)?;
    let seconds = measure::seconds(&stream, &mut |stream| {
        spiir.enqueue((&input, 0), times, (&mut z, 0, times), stream).map(|_| ())
    })?;
    Ok(measure::median(&seconds) / 2.0)
}

/// Returns the seconds of the peak search per second of one detector's ratios: noise of unit variance per quadrature.
fn finder_s(gpu: &Gpu, bank: &Bank) -> Result<f64> {
    let (stream, times) = (gpu.device.stream()?, 2 * TIMES);
    let row = noise(2 * times);
    let mut z: Vec<Complex<f32>> = Vec::with_capacity(bank.templates.len() * times);
    for template in 0..bank.templates.len() {
        let value = |k: usize| row[(37 * template + k) % row.len()];
        z.extend((0..times).map(|k| Complex::new(value(2 * k), value(2 * k + 1))));
    }
    let z = gpu.device.upload(&z)?;
    let shape = |one: &bank::BankTemplate| Autocorrelation {
        values: one.autocorrelation.clone(),
        norm: one.autocorrelation_norm,
    };
    let shapes: Vec<Autocorrelation> = bank.templates.iter().map(shape).collect();
    let mut finder = DeviceFinder::new(&TriggerOptions::new(RATE_HZ), &shapes, &gpu.device)?;
    let (valid, mut triggers) = (vec![true; times], Vec::new());
    let seconds = measure::seconds(&stream, &mut |stream| {
        triggers.clear();
        finder.enqueue(&z, (times, times), &valid, stream, &mut triggers)
    })?;
    Ok(measure::median(&seconds) / 2.0)
}

/// Returns the seconds of the coincidence with its time slides.
fn coincidence_s(report: &Report, asked: &SearchOptions, threads: &Threads) -> Result<f64> {
    let detectors: Vec<Detector<'_>> = report
        .detectors
        .iter()
        .map(|one| Detector { triggers: &one.triggers, valid: &one.valid })
        .collect();
    let places: Vec<_> = NAMES.iter().filter_map(|name| Interferometer::by_name(name)).collect();
    let window_s = places[0].light_travel_s(places[1]) + asked.window_pad_s;
    let windows_s = vec![vec![0.0, window_s], vec![window_s, 0.0]];
    let began = Instant::now();
    coincidence::search_on(threads, &detectors, &coincidence::Options::new(windows_s))?;
    Ok(began.elapsed().as_secs_f64())
}

/// Returns the seconds from a block's strain in host memory to its triggers there: the least and the median.
fn latency_s(
    gpu: &Gpu,
    strain: &Recording,
    (asked, bank): (&SearchOptions, &Bank),
) -> Result<(f64, f64)> {
    let options = DetectorOptions {
        whitening: asked.whitening.options(RATE_HZ, &bank.psd, F_LOW_HZ),
        threshold: asked.threshold,
        window_s: asked.window_s,
        gate_pad_s: asked.gate_pad_s,
    };
    let mut chain = ChirpDetector::of_triggers(strain.start, bank, &options, &gpu.backend)?;
    // Blocks until the whitener and the lower rates produce output.
    let warm = ((chain.latency().total_s() + 1.0) * f64::from(RATE_HZ)) as usize / BLOCK;
    let blocks = strain.samples.chunks_exact(BLOCK).zip(strain.valid.chunks_exact(BLOCK));
    let mut spent = Vec::with_capacity(BLOCKS);
    for (index, (strain, valid)) in blocks.take(warm + BLOCKS).enumerate() {
        let began = Instant::now();
        chain.run(strain, valid, &mut |_| {})?;
        chain.settle()?;
        if index >= warm {
            spent.push(began.elapsed().as_secs_f64());
        }
    }
    spent.sort_by(f64::total_cmp);
    Ok((spent.first().copied().unwrap_or(f64::INFINITY), measure::median(&spent)))
}
