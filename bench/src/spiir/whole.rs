//! Complete search chain, step by step: two detectors, from strain to events.

use std::time::Instant;

use num_complex::Complex;
use sidereal::Result;
use sidereal::backend::simd::Level;
use sidereal::backend::threads::Threads;
use sidereal::backend::{Backend, roof};
use sidereal::geometry::Interferometer;
use sidereal::io::strain::StrainSource;
use sidereal::simulate::strain::{Injection, Source, StrainOptions, StrainSimulator};
use sidereal::spiir::bank::Bank;
use sidereal::spiir::coincidence::{self, Detector, Segments, TimedTrigger};
use sidereal::spiir::trigger::{Autocorrelation, Finder, TriggerOptions};
use sidereal::spiir::whiten::{Options, Psd, Whitener};
use sidereal::spiir::{Resampler, Spiir};
use sidereal::strain::Binary;
use sidereal::units::Gps;
use sidereal::waveform::InspiralOptions;

use super::bank::RATE_HZ;
use super::fourier::neutron_stars;
use crate::table::{Row, Table};

/// Templates per detector.
const TEMPLATES: usize = 1024;
/// Designed templates; the others repeat them.
const DESIGNS: usize = 32;
/// Samples in a block: a quarter of a second.
const BLOCK: usize = 1024;
/// Lowest sampling rate: four rates in total.
const LOWEST_HZ: f64 = 512.0;
/// Lowest frequency of the templates.
const F_LOW_HZ: f64 = 30.0;
/// Operations per filter and sample.
const OPERATIONS: f64 = 12.0;
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
    triggers: Vec<sidereal::spiir::trigger::Trigger>,
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
        let start = Gps::from_s(1_000_000_000.0);
        let mut options = StrainOptions::new(&[interferometer], &bank.psd, start, RATE_HZ, times);
        let end_s = times as f64 / f64::from(RATE_HZ);
        options.injections.push(Injection {
            source: Source::Inspiral(
                Binary::of_masses(1.4, 1.4),
                InspiralOptions { f_low_hz: F_LOW_HZ, rate_hz: RATE_HZ, ..Default::default() },
            ),
            distance_mpc: 60.0,
            ra_rad: 1.0,
            dec_rad: 0.7,
            inclination_rad: 0.2,
            polarization_rad: 0.3,
            phase_rad: 0.0,
            gps: start.plus_s((end_s - BEFORE_END_S).max(1.0)),
        });
        options.seed = interferometer.name.bytes().map(u64::from).sum();
        let autocorrelations: Vec<Autocorrelation> = bank
            .templates
            .iter()
            .map(|template| Autocorrelation {
                values: template.autocorrelation.clone(),
                norm: template.autocorrelation_norm,
            })
            .collect();
        let whitening =
            Options { f_low_hz: F_LOW_HZ, ..Options::new(RATE_HZ, Psd::Fixed(bank.psd.clone())) };
        Ok(Self {
            source: sidereal::simulate::strain::Simulation::new(&options)?.detectors.remove(0),
            whitener: Whitener::new(whitening)?,
            spiir: Spiir::new(bank.plan()?, backend)?,
            finder: Finder::new(&TriggerOptions::new(RATE_HZ), &autocorrelations)?,
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
        self.finder.run(&block.z, BLOCK, known, &block.valid[..known], &mut self.triggers)?;
        lap(3);
        Ok(count > 0)
    }
}

/// Runs `length_s` seconds of two detectors through the chain; adds a row for each step and one for the total.
///
/// # Errors
/// Those of the steps.
pub(super) fn run(table: &mut Table<'_>, length_s: f64, threads: usize) -> Result<()> {
    let level = Level::best();
    let threads = Threads::new(threads);
    let backend = Backend::Cpu(level, threads.clone());
    let mut bank = neutron_stars(DESIGNS, F_LOW_HZ, LOWEST_HZ, Resampler::default())?;
    bank.templates = bank.templates.iter().cycle().take(TEMPLATES).cloned().collect();
    let times = (length_s * f64::from(RATE_HZ)) as u64;
    let places: Vec<&'static Interferometer> =
        ["H1", "L1"].iter().filter_map(|name| Interferometer::by_name(name)).collect();
    let mut chains = places
        .iter()
        .map(|place| Chain::new(place, &bank, times, &backend))
        .collect::<Result<Vec<_>>>()?;
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
    let checked = is_found(&chains, &bank, length_s, &places)?;
    spent_s[4] = began.elapsed().as_secs_f64();
    let effective: f64 =
        bank.templates.iter().map(|template| template.filters.effective_filters()).sum();
    let operations = OPERATIONS * effective * f64::from(RATE_HZ) * chains.len() as f64;
    let whole_s: f64 = spent_s[1..].iter().sum();
    let mut push = |step: &str, step_s: f64| {
        table.push(Row {
            bench: "spiir",
            case: format!("{step}, 2 detectors, {TEMPLATES} templates each, {length_s} s, 4 rates"),
            device: backend.name(),
            rate: length_s / step_s,
            unit: "times real time",
            roof: roof / operations,
            roof_unit: "times real time",
            fraction_of_roof: length_s / step_s / (roof / operations),
            baseline: length_s / whole_s,
            ratio_to_baseline: whole_s / step_s,
            checked,
            median: length_s / step_s,
        })
    };
    for (step, step_s) in STEPS.iter().zip(spent_s).skip(1) {
        push(step, step_s.max(1e-9))?;
    }
    push("the whole search", whole_s)
}

/// Runs the coincidence; returns whether the injected binary is its loudest event.
fn is_found(
    chains: &[Chain],
    bank: &Bank,
    length_s: f64,
    places: &[&'static Interferometer],
) -> Result<bool> {
    let start = Gps::from_s(1_000_000_000.0);
    let timed: Vec<Vec<TimedTrigger>> = chains
        .iter()
        .map(|chain| {
            let timed = chain.triggers.iter().map(|trigger| {
                let offset_s = bank.templates[trigger.template as usize].peak_offset_s;
                TimedTrigger::new(trigger, start, RATE_HZ, offset_s)
            });
            timed.collect()
        })
        .collect();
    let valid = Segments::one(start, length_s);
    let detectors: Vec<Detector<'_>> =
        timed.iter().map(|triggers| Detector { triggers, valid: &valid }).collect();
    let window_s = places[0].light_travel_s(places[1]) + 0.002;
    let windows_s = vec![vec![0.0, window_s], vec![window_s, 0.0]];
    let found = coincidence::search(&detectors, &coincidence::Options::new(windows_s))?;
    let end = start.plus_s((length_s - BEFORE_END_S).max(1.0));
    Ok(found.events.first().is_some_and(|event| {
        event.detectors.iter().flatten().all(|one| one.gps.seconds_since(end).abs() < 0.05)
    }))
}
