//! Simulated strain of binaries in two detectors, searched, with each detector's trigger and the truth.
#![allow(dead_code, unreachable_pub, missing_docs)]

use sidereal::backend::Backend;
use sidereal::geometry::Interferometer;
use sidereal::math::{PowerSpectrum, advanced_ligo};
use sidereal::pipeline::cbc::{
    ChirpSearch, DetectorReport, Input, Recording, Report, SearchOptions, Source, Spectrum,
    Whitening,
};
use sidereal::simulate::strain::{
    DetectorTruth, Injection, Simulation, Source as Wave, StrainOptions,
};
use sidereal::spiir::bank::{Options, Rates};
use sidereal::spiir::coincidence::{Ranking, Sample, TimedTrigger};
use sidereal::spiir::whiten::{GateOptions, Method};
use sidereal::strain::Binary;
use sidereal::units::Gps;
use sidereal::waveform::{InspiralOptions, inspiral};
use std::sync::Arc;

pub const NAMES: [&str; 2] = ["H1", "L1"];
pub const START: Gps = Gps { ns: 1_250_000_000_000_000_000 };

pub fn design_curve(rate_hz: u32) -> PowerSpectrum {
    advanced_ligo(0.25, rate_hz as usize * 2 + 1).expect("a curve")
}

pub fn search_options(rate_hz: u32, method: Method) -> SearchOptions {
    SearchOptions {
        whitening: Whitening {
            spectrum: Spectrum::Given(design_curve(rate_hz)),
            method,
            gate: Some(GateOptions::default()),
        },
        threshold: 4.0,
        window_s: 0.1,
        gate_pad_s: 0.25,
        window_pad_s: 0.002,
        slides: 0,
        slide_interval_s: 0.1,
        cluster_s: 0.5,
        background: Sample::Inclusive,
        ranking: Ranking::Snr,
        block: 0,
        memory: None,
    }
}

pub fn bank_options() -> Options {
    Options { f_low_hz: 40.0, rates: Rates::Multi { lowest_hz: 128.0 }, ..Options::default() }
}

/// A binary seen by both detectors, its peak `after_s` after [`START`] at the Earth's centre.
#[derive(Clone)]
pub struct Scene {
    pub rate_hz: u32,
    pub masses: (f64, f64),
    pub network_snr: f64,
    pub after_s: f64,
    pub seed: u64,
    /// Of each detector: seconds from [`START`] to its first sample, and samples in seconds.
    pub spans_s: [(f64, f64); 2],
}

impl Scene {
    pub fn new(rate_hz: u32, masses: (f64, f64)) -> Self {
        Self {
            rate_hz,
            masses,
            network_snr: 28.0,
            after_s: 17.123_456_7,
            seed: 5,
            spans_s: [(0.0, 28.0); 2],
        }
    }

    pub fn source(&self, options: Options) -> Source {
        let binary = Binary::of_masses(self.masses.0, self.masses.1);
        let inspirals = InspiralOptions {
            f_low_hz: options.f_low_hz,
            rate_hz: self.rate_hz,
            ..InspiralOptions::default()
        };
        Source { waveforms: vec![inspiral(&binary, &inspirals).expect("a wave")], options }
    }

    /// Simulation options of each detector at the requested strength.
    pub fn simulations(&self) -> Vec<StrainOptions> {
        let wave = self.source(bank_options()).waveforms.remove(0);
        let injection = Injection {
            source: Wave::Waveform(wave.into()),
            distance_mpc: 100.0,
            ra_rad: 1.3,
            dec_rad: 0.4,
            inclination_rad: 0.6,
            polarization_rad: 0.9,
            phase_rad: 1.1,
            gps: START.plus_s(self.after_s),
        };
        let one = |name: &str, (from_s, length_s): (f64, f64)| {
            let times = (length_s * f64::from(self.rate_hz)) as u64;
            let place = Interferometer::by_name(name).expect("known");
            let (start, psd) = (START.plus_s(from_s), design_curve(self.rate_hz));
            let mut options = StrainOptions::new(&[place], &psd, start, self.rate_hz, times);
            options.seed = self.seed;
            options.injections.push(injection.clone());
            options
        };
        let mut all: Vec<_> =
            NAMES.iter().zip(self.spans_s).map(|(name, span)| one(name, span)).collect();
        let square: f64 = all.iter().map(|one| truth(one).snr.powi(2)).sum();
        for one in &mut all {
            one.injections[0].distance_mpc *= square.sqrt() / self.network_snr;
        }
        all
    }
}

pub fn truth(options: &StrainOptions) -> DetectorTruth {
    let simulation = Simulation::new(options).expect("a simulation");
    simulation.truth.injections[0].detectors[0].clone()
}

pub fn record(options: &StrainOptions) -> Recording {
    let mut simulation = Simulation::new(options).expect("a simulation");
    Recording::read(&mut simulation.detectors[0]).expect("read")
}

pub fn search(recordings: Vec<Recording>, source: &Source, asked: &SearchOptions) -> Report {
    let source = Arc::new(source.clone());
    let with = |one| (one, Input::Templates(Arc::clone(&source)));
    let inputs = recordings.into_iter().map(with).collect();
    let search = ChirpSearch::new(inputs, asked, &Backend::best(2)).expect("a search");
    search.run(&mut |_| true).expect("searched")
}

/// Standard deviations of a trigger's time and phase in noise alone at this SNR, from the slope and curvature of the
/// autocorrelation.
pub fn sigmas(detector: &DetectorReport, snr: f64) -> (f64, f64) {
    let template = &detector.bank.templates[0];
    let next = template.autocorrelation[template.autocorrelation.len() / 2 + 1];
    let spread = (1.0 - f64::from(next.norm_sqr())).sqrt() * f64::from(detector.rate_hz);
    let mean = f64::from(next.arg()) * f64::from(detector.rate_hz);
    (1.0 / (snr * spread), (1.0 + (mean / spread).powi(2)).sqrt() / snr)
}

/// Errors of a trigger's SNR, time and phase in units of those of noise, and that of the time in seconds.
pub fn errors(
    detector: &DetectorReport,
    found: &TimedTrigger,
    truth: &DetectorTruth,
    kept: f64,
) -> [f64; 4] {
    let snr = truth.snr * kept;
    let (time_s, phase_rad) = sigmas(detector, snr);
    let late_s = found.gps.seconds_since(truth.gps);
    let turn = f64::from(found.phase) - truth.phase_rad;
    let turn = (turn + std::f64::consts::PI).rem_euclid(std::f64::consts::TAU);
    let turn = turn - std::f64::consts::PI;
    [f64::from(found.snr) - snr, late_s / time_s, turn / phase_rad, late_s]
}
