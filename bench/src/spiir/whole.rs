//! Complete search of two detectors, from strain to events, and each of its steps alone, on CPUs and GPUs.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use num_complex::Complex;
use sidereal::Result;
use sidereal::backend::cuda::measure;
use sidereal::backend::simd::Level;
use sidereal::backend::threads::Threads;
use sidereal::backend::{Backend, roof};
use sidereal::geometry::Interferometer;
use sidereal::io::strain::StrainSource;
use sidereal::math::{PowerSpectrum, advanced_ligo};
use sidereal::pipeline::cbc::{
    ChirpDetector, ChirpSearch, DetectorOptions, Input, Recording, Report, SearchOptions, Source,
    Spectrum, Whitening, design,
};
use sidereal::simulate::strain::{self, Injection, Simulation, StrainOptions, StrainSimulator};
use sidereal::spiir::bank::{self, Bank, Rates as BankRates};
use sidereal::spiir::coincidence::{self, Detector, Event, Ranking, Segments, TimedTrigger};
use sidereal::spiir::trigger::{DeviceRatios, Finder, Ratios, Trigger, TriggerOptions};
use sidereal::spiir::whiten::{Method, Options, Psd, Whitener};
use sidereal::spiir::{DeviceOutput, DeviceSamples, Resampler, Spiir};
use sidereal::strain::Binary;
use sidereal::units::Gps;
use sidereal::waveform::{InspiralOptions, inspiral};

use super::bank::{RATE_HZ, noise};
use super::fourier::neutron_stars;
use crate::gpu::Gpu;
use crate::runner::{Rates, Row};

/// Name of the benchmark.
const BENCH: &str = "spiir";
/// Lowest sampling rate: four rates in total.
const LOWEST_HZ: f64 = 512.0;
/// Lowest frequency of the templates.
const F_LOW_HZ: f64 = 30.0;
/// Operations per filter and sample.
const OPERATIONS: f64 = 12.0;
/// Samples in a block: a quarter of a second.
const BLOCK: usize = 1024;
/// Start of the strain in GPS seconds.
const START_S: f64 = 1_000_000_000.0;
const NAMES: [&str; 2] = ["H1", "L1"];

fn detectors() -> Vec<&'static Interferometer> {
    NAMES.iter().filter_map(|name| Interferometer::by_name(name)).collect()
}

fn inspirals() -> InspiralOptions {
    InspiralOptions { f_low_hz: F_LOW_HZ, rate_hz: RATE_HZ, ..InspiralOptions::default() }
}

/// Returns a binary that ends `before_end_s` before the end of `length_s` seconds of strain.
fn injection(length_s: f64, before_end_s: f64) -> Injection {
    Injection {
        source: strain::Source::Inspiral(Binary::of_masses(1.4, 1.4), inspirals()),
        distance_mpc: 60.0,
        ra_rad: 1.0,
        dec_rad: 0.7,
        inclination_rad: 0.2,
        polarization_rad: 0.3,
        phase_rad: 0.0,
        gps: end(length_s, before_end_s),
    }
}

/// Returns the time at which the injected binary ends.
fn end(length_s: f64, before_end_s: f64) -> Gps {
    Gps::from_s(START_S).plus_s((length_s - before_end_s).max(1.0))
}

/// Returns whether every detector saw the event at the binary's end.
fn is_at(event: &Event, end: Gps) -> bool {
    event.detectors.iter().flatten().all(|one| one.gps.seconds_since(end).abs() < 0.05)
}

/// Returns the time windows of two detectors' coincidence, in seconds.
fn windows_s() -> Vec<Vec<f64>> {
    let places = detectors();
    let window_s = places[0].light_travel_s(places[1]) + 0.002;
    vec![vec![0.0, window_s], vec![window_s, 0.0]]
}

/// Returns the operations per second of data of both detectors.
fn operations(bank: &Bank) -> f64 {
    let effective = bank.templates.iter().map(|template| template.filters.effective_filters());
    2.0 * OPERATIONS * effective.sum::<f64>() * f64::from(RATE_HZ)
}

/// Templates per detector on a CPU.
const TEMPLATES: usize = 1024;
/// Designed templates; the others repeat them.
const DESIGNS: usize = 32;
/// Seconds from the injected binary's end to the end of the data.
const BEFORE_END_S: f64 = 30.0;

/// Timed steps.
const STEPS: [&str; 5] =
    ["simulation (not counted)", "whitening", "filters", "triggers", "coincidence"];

/// Processing chain of one detector.
struct Chain {
    source: StrainSimulator,
    whitener: Whitener,
    spiir: Spiir,
    finder: Finder,
    triggers: Vec<Trigger>,
}

/// Buffers of a block.
struct Block {
    strain: Vec<f64>,
    valid: Vec<bool>,
    white: Vec<f32>,
    white_valid: Vec<bool>,
    z: Vec<Complex<f32>>,
}

impl Chain {
    fn new(
        interferometer: &'static Interferometer,
        bank: &Bank,
        times: u64,
        backend: &Backend,
    ) -> Result<Self> {
        let start = Gps::from_s(START_S);
        let mut options = StrainOptions::new(&[interferometer], &bank.psd, start, RATE_HZ, times);
        options.injections.push(injection(times as f64 / f64::from(RATE_HZ), BEFORE_END_S));
        options.seed = interferometer.name.bytes().map(u64::from).sum();
        let whitening =
            Options { f_low_hz: F_LOW_HZ, ..Options::new(RATE_HZ, Psd::Fixed(bank.psd.clone())) };
        Ok(Self {
            source: Simulation::new(&options)?.detectors.remove(0),
            whitener: Whitener::new(whitening)?,
            spiir: Spiir::new(bank.plan()?, backend)?,
            finder: Finder::new(bank.trigger_plan(TriggerOptions::new(RATE_HZ))?, backend)?,
            triggers: Vec::new(),
        })
    }

    /// Runs one block through all steps; returns false at the end of the data.
    fn run(&mut self, block: &mut Block, spent_s: &mut [f64; 5]) -> Result<bool> {
        let mut watch = Instant::now();
        let mut lap = |step: usize| {
            spent_s[step] += watch.elapsed().as_secs_f64();
            watch = Instant::now();
        };
        let count = self.source.read(&mut block.strain, &mut block.valid)?;
        lap(0);
        let made = self.whitener.run(
            &block.strain[..count],
            &block.valid[..count],
            &mut block.white[..count],
            &mut block.white_valid[..count],
        )?;
        lap(1);
        let white = &block.white[..made.produced];
        let known = self.spiir.run(white, &mut block.z, BLOCK)?.produced;
        lap(2);
        block.valid.fill(true);
        let ratios = Ratios { z: &block.z, stride: BLOCK, times: known };
        self.finder.run(ratios, &block.valid[..known], &mut self.triggers)?;
        lap(3);
        Ok(count > 0)
    }
}

/// Runs `length_s` seconds of two detectors through the chain; returns a row for each step and one for the total.
pub(super) fn on_cpu(length_s: f64, threads: usize) -> Result<Vec<Row>> {
    let level = Level::best();
    let threads = Threads::new(threads);
    let backend = Backend::Cpu(level, threads.clone());
    let mut bank = neutron_stars(DESIGNS, F_LOW_HZ, LOWEST_HZ, Resampler::default())?;
    bank.templates = bank.templates.iter().cycle().take(TEMPLATES).cloned().collect();
    let times = (length_s * f64::from(RATE_HZ)) as u64;
    let places = detectors();
    let chains = places.iter().map(|place| Chain::new(place, &bank, times, &backend));
    let mut chains = chains.collect::<Result<Vec<_>>>()?;
    let mut block = Block {
        strain: vec![0.0; BLOCK],
        valid: vec![true; BLOCK],
        white: vec![0.0; BLOCK],
        white_valid: vec![true; BLOCK],
        z: vec![Complex::default(); TEMPLATES * BLOCK],
    };
    let mut spent_s = [0.0; 5];
    let mut roof = 0.0_f64;
    for chain in &mut chains {
        while chain.run(&mut block, &mut spent_s)? {}
        roof = roof.max(2.0 * roof::multiply_adds(level, &threads, 5e-3) * OPERATIONS / 16.0);
    }
    let began = Instant::now();
    let checked = has_found(&chains, &bank, length_s)?;
    spent_s[4] = began.elapsed().as_secs_f64();
    let whole_s: f64 = spent_s[1..].iter().sum();
    let row = |step: &str, step_s: f64| {
        let name =
            format!("{step}, 2 detectors, {TEMPLATES} templates each, {length_s} s, 4 rates");
        let rates = Rates::once(length_s / step_s, roof / operations(&bank), length_s / whole_s);
        rates.row(BENCH, name, &backend, "times real time", checked)
    };
    let steps = STEPS.iter().zip(spent_s).skip(1);
    let rows = steps.map(|(step, step_s)| row(step, step_s.max(1e-9)));
    Ok(rows.chain([row("the whole search", whole_s)]).collect())
}

/// Runs the coincidence; returns whether the injected binary is its loudest event.
fn has_found(chains: &[Chain], bank: &Bank, length_s: f64) -> Result<bool> {
    let start = Gps::from_s(START_S);
    let timed = |chain: &Chain| {
        let timed = chain.triggers.iter().map(|trigger| {
            let offset_s = bank.templates[trigger.template as usize].peak_offset_s;
            TimedTrigger::new(trigger, start, RATE_HZ, offset_s)
        });
        timed.collect()
    };
    let timed: Vec<Vec<TimedTrigger>> = chains.iter().map(timed).collect();
    let valid = Segments::one(start, length_s);
    let detectors: Vec<Detector<'_>> =
        timed.iter().map(|triggers| Detector { triggers, valid: &valid }).collect();
    let found = coincidence::search(&detectors, &coincidence::Options::new(windows_s()))?;
    let end = end(length_s, BEFORE_END_S);
    Ok(found.events.first().is_some_and(|event| is_at(event, end)))
}

/// Templates per detector on a GPU, and the number of designed templates, which the others repeat.
const GPU_TEMPLATES: usize = 4096;
const GPU_DESIGNS: usize = 16;
/// The same for a quick run.
const QUICK_TEMPLATES: usize = 4;
const QUICK_DESIGNS: usize = 2;
/// Seconds from the injected binary's end to the end of the data.
const GPU_BEFORE_END_S: f64 = 20.0;
/// Samples in a second.
const TIMES: usize = RATE_HZ as usize;
/// Number of blocks timed from strain to triggers.
const BLOCKS: usize = 64;

/// Measures the search of `length_s` seconds on a GPU: a row for each step alone, one for the total, one for the
/// latency; `roof` is the number of operations per second that the filters' direct form allows.
pub(super) fn on_gpu(gpu: &Gpu, length_s: f64, threads: usize, roof: f64) -> Result<Vec<Row>> {
    let threads = Threads::new(threads);
    let (templates, designs) = match gpu.quick {
        true => (QUICK_TEMPLATES, QUICK_DESIGNS),
        false => (GPU_TEMPLATES, GPU_DESIGNS),
    };
    let bank = repeated_neutron_stars(templates, designs, &threads)?;
    let recordings = recordings(length_s, &bank)?;
    let strain = recordings[0].clone();
    let asked = options(&bank);
    let input = |recording| (recording, Input::Bank(Arc::new(bank.clone())));
    let inputs = recordings.into_iter().map(input).collect();
    let search = ChirpSearch::new(inputs, &asked, &gpu.backend)?;
    let report = search.run(&mut |_| true)?;
    let end = end(length_s, GPU_BEFORE_END_S);
    let checked =
        report.found.events.first().is_some_and(|event| {
            event.detectors.iter().flatten().count() == 2 && is_at(event, end)
        });
    let triggers: usize = report.detectors.iter().map(|one| one.triggers.len()).sum();
    let steps: [(&str, f64); 5] = [
        ("whitening, a thread each", whitening_s(&strain, &asked, &bank)?),
        ("filters, kernels", 2.0 * kernels_s(gpu, &bank)? * length_s),
        ("triggers, kernels", 2.0 * finder_s(gpu, &bank)? * length_s),
        (&format!("{triggers} triggers, slid"), coincidence_s(&report, &threads)?),
        (&format!("the whole search, {length_s} s"), report.elapsed_s),
    ];
    let roof = roof / operations(&bank);
    let templates = bank.templates.len();
    let row = |what: &str, rates: Rates, unit: &'static str| {
        rates.row(BENCH, format!("{what}, 2 x {templates} templates"), &gpu.backend, unit, checked)
    };
    let whole = length_s / report.elapsed_s;
    let speed = |step_s: f64| Rates::once(length_s / step_s.max(1e-9), roof, whole);
    let steps = steps.iter().map(|(what, step_s)| row(what, speed(*step_s), "times real time"));
    let mut rows: Vec<Row> = steps.collect();
    let (least, median) = latency_s(gpu, &strain, &asked, &bank)?;
    let waits_s = report.latency().total_s();
    let what = format!("0.25 s to its triggers (+ {waits_s:.1} s)");
    rows.push(row(&what, Rates::once(1.0 / median, 1.0 / least, 4.0), "blocks/s"));
    Ok(rows)
}

/// Designs a bank of binary neutron stars of about 1.4 + 1.4 solar masses: `designs` of them, which `templates` repeat.
pub(crate) fn repeated_neutron_stars(
    templates: usize,
    designs: usize,
    threads: &Threads,
) -> Result<Bank> {
    let make = |index: usize| {
        let binary = Binary::of_masses(1.4 + 0.003 * index as f64, 1.4);
        inspiral(&binary, &inspirals())
    };
    let options = bank::Options {
        f_low_hz: F_LOW_HZ,
        rates: BankRates::Multi { lowest_hz: LOWEST_HZ },
        ..bank::Options::default()
    };
    let waveforms = (0..designs).map(make).collect::<Result<Vec<_>>>()?;
    let mut bank = design(&Source { waveforms, options }, &psd()?, threads)?;
    // The search does not use the waveforms, which would fill the memory.
    bank.templates.iter_mut().for_each(|one| one.whitened.truncate(1));
    bank.templates = bank.templates.iter().cycle().take(templates).cloned().collect();
    Ok(bank)
}

fn psd() -> Result<PowerSpectrum> {
    advanced_ligo(0.25, RATE_HZ as usize * 2 + 1)
}

/// Simulates the strain of both detectors with a binary in it, each on its own thread.
pub(crate) fn recordings(length_s: f64, bank: &Bank) -> Result<Vec<Recording>> {
    let times = (length_s * f64::from(RATE_HZ)) as u64;
    let start = Gps::from_s(START_S);
    let mut options = StrainOptions::new(&detectors(), &bank.psd, start, RATE_HZ, times);
    options.seed = 7;
    options.injections.push(injection(length_s, GPU_BEFORE_END_S));
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

/// Returns the options of a search of two detectors with 100 time slides.
pub(crate) fn options(bank: &Bank) -> SearchOptions {
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
        let input = DeviceSamples { buffer: &input, first: 0, times };
        let output = DeviceOutput { buffer: &mut z, first: 0, stride: times };
        spiir.enqueue(input, output, stream).map(|_| ())
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
    let plan = bank.trigger_plan(TriggerOptions::new(RATE_HZ))?;
    let mut finder = Finder::new(plan, &gpu.backend)?;
    let (valid, mut triggers) = (vec![true; times], Vec::new());
    let seconds = measure::seconds(&stream, &mut |stream| {
        triggers.clear();
        let ratios = DeviceRatios { z: &z, stride: times, times };
        finder.enqueue(ratios, &valid, &mut triggers, stream)
    })?;
    Ok(measure::median(&seconds) / 2.0)
}

/// Returns the seconds of the coincidence with its time slides.
fn coincidence_s(report: &Report, threads: &Threads) -> Result<f64> {
    let detectors: Vec<Detector<'_>> = report
        .detectors
        .iter()
        .map(|one| Detector { triggers: &one.triggers, valid: &one.valid })
        .collect();
    let began = Instant::now();
    coincidence::search_on(threads, &detectors, &coincidence::Options::new(windows_s()))?;
    Ok(began.elapsed().as_secs_f64())
}

/// Returns the seconds from a block's strain in host memory to its triggers there: the least and the median.
fn latency_s(
    gpu: &Gpu,
    strain: &Recording,
    asked: &SearchOptions,
    bank: &Bank,
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
