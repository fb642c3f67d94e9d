//! Injects one binary, searches for it and compares.

use std::f64::consts::{PI, TAU};

use sidereal::Result;
use sidereal::backend::Backend;
use sidereal::backend::threads::Threads;
use sidereal::geometry::Interferometer;
use sidereal::math::{PowerSpectrum, advanced_ligo};
use sidereal::pipeline::cbc::{self, ChirpSearch, Input, Recording, Report, SearchOptions, Source};
use sidereal::simulate::strain::{
    DetectorTruth, Injection, Simulation, Source as Wave, StrainOptions,
};
use sidereal::spiir::Resampler;
use sidereal::spiir::bank::{self, BankTemplate, Rates};
use sidereal::spiir::coincidence::{Ranking, Sample, TimedTrigger};
use sidereal::spiir::whiten::{Average, GateOptions, Method, WelchOptions};
use sidereal::strain::Binary;
use sidereal::units::Gps;
use sidereal::waveform::{InspiralOptions, inspiral};

use super::draw::Case;
use super::{Arguments, Resampling, Spectrum, Whitening};

/// Names of the detectors.
pub(crate) const NAMES: [&str; 2] = ["H1", "L1"];
/// Lowest frequency of the injected waves and the templates.
const F_LOW_HZ: f64 = 30.0;
/// Seconds of strain before the wave begins and after its peak, and of the shortest recording.
const BEFORE_S: f64 = 12.0;
const AFTER_S: f64 = 10.0;
const SHORTEST_S: f64 = 32.0;
/// Shortest recording with Welch spectra of the recordings.
const SHORTEST_WELCH_S: f64 = 256.0;
/// Largest time difference in seconds of an event that counts as the injection.
const NEAR_S: f64 = 0.05;
/// Network signal-to-noise ratio above which any other event is false.
pub(crate) const FALSE_SNR: f64 = 9.0;

/// Settings shared by all cases.
#[derive(Debug)]
pub(crate) struct Setup {
    rate_hz: u32,
    psd: PowerSpectrum,
    bank: bank::Options,
    search: SearchOptions,
    shortest_s: f64,
}

/// Results of a case.
#[derive(Debug)]
pub struct Outcome {
    pub case: Case,
    pub(crate) filters: usize,
    pub(crate) fit: f64,
    /// Network signal-to-noise ratio of the event, if one was found.
    pub network_snr: Option<f64>,
    /// Whether the injection was the loudest event.
    pub(crate) loudest: bool,
    /// Number of other events above [`FALSE_SNR`].
    pub(crate) others: usize,
    /// Results of each detector.
    pub(crate) detectors: Vec<Pair>,
}

/// One detector's injected and recovered values.
#[derive(Clone, Copy, Debug)]
pub struct Pair {
    /// Optimal signal-to-noise ratio.
    pub injected: f64,
    /// Expected ratio: the part that the filters recover, plus the bias that noise adds to a maximum.
    pub expected: f64,
    pub found: Option<Recovered>,
}

/// Trigger and its errors against the truth.
#[derive(Clone, Copy, Debug)]
pub struct Recovered {
    pub snr: f64,
    pub xi2: f64,
    pub time_error_s: f64,
    pub phase_error_rad: f64,
    /// Standard deviations that noise gives the two errors for an optimal filter.
    pub time_sigma_s: f64,
    pub phase_sigma_rad: f64,
}

impl Setup {
    pub(crate) fn new(arguments: &Arguments) -> Result<Self> {
        let rate_hz = arguments.rate;
        let psd = advanced_ligo(0.125, rate_hz as usize * 4 + 1)?;
        let multi = Rates::Multi { lowest_hz: 128.0 };
        let (rates, resampler) = match arguments.resampling {
            Resampling::Paper => (multi, Resampler::default()),
            Resampling::LowLatency => (multi, Resampler::low_latency()),
            Resampling::None => (Rates::Single, Resampler::default()),
        };
        let welch = WelchOptions { average: Average::Mean, ..WelchOptions::default() };
        let spectrum = match arguments.psd {
            Spectrum::Design => cbc::Spectrum::Given(psd.clone()),
            Spectrum::Welch => cbc::Spectrum::Welch(welch),
        };
        let method = match arguments.whitening {
            Whitening::Overlap => Method::Overlap { fft_s: 8.0 },
            Whitening::MinimumPhase => Method::MinimumPhase { taps_s: 4.0 },
        };
        Ok(Self {
            rate_hz,
            psd,
            bank: bank::Options {
                f_low_hz: F_LOW_HZ,
                rates,
                resampler,
                before_s: arguments.before,
                ..bank::Options::default()
            },
            search: SearchOptions {
                whitening: cbc::Whitening { spectrum, method, gate: Some(GateOptions::default()) },
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
            },
            shortest_s: match arguments.psd {
                Spectrum::Design => SHORTEST_S,
                Spectrum::Welch => SHORTEST_WELCH_S,
            },
        })
    }

    /// Injects, searches and compares.
    ///
    /// # Errors
    /// Those of the steps.
    pub(crate) fn run(&self, case: &Case) -> Result<Outcome> {
        let binary = Binary::of_masses(case.masses_msun.0, case.masses_msun.1);
        let inspirals = InspiralOptions {
            f_low_hz: F_LOW_HZ,
            rate_hz: self.rate_hz,
            ..InspiralOptions::default()
        };
        let waveform = inspiral(&binary, &inspirals)?;
        let simulation = self.simulation(case, Wave::Waveform(waveform.clone().into()))?;
        let truth = simulation.truth.injections[0].detectors.clone();
        let source = Source { waveforms: vec![waveform], options: self.bank.clone() };
        let mut inputs = Vec::new();
        let shared = match self.search.whitening {
            // One spectrum's bank serves both detectors, unless the whitener changes phases.
            cbc::Whitening {
                spectrum: cbc::Spectrum::Given(_),
                method: Method::Overlap { .. },
                ..
            } => Some(cbc::design(&source, &self.psd, &Threads::new(1))?),
            _ => None,
        };
        for mut detector in simulation.detectors {
            let input = match &shared {
                Some(bank) => Input::Bank(Box::new(bank.clone())),
                None => Input::Templates(source.clone()),
            };
            inputs.push((Recording::read(&mut detector)?, input));
        }
        let search = ChirpSearch::new(inputs, &self.search, &Backend::best(1))?;
        Ok(compare(case, &truth, &search.run(&mut |_| true)?))
    }

    /// Creates noise of both detectors with the binary injected at the requested network ratio.
    fn simulation(&self, case: &Case, source: Wave) -> Result<Simulation> {
        let start = Gps::from_s(1_250_000_000.0 + (case.seed % 86_400) as f64);
        let duration_s = match &source {
            Wave::Waveform(waveform) => waveform.duration_s(),
            Wave::Inspiral(..) => 0.0,
        };
        let length_s = (duration_s + BEFORE_S + AFTER_S).ceil().max(self.shortest_s);
        let times = (length_s * f64::from(self.rate_hz)) as u64;
        let places: Vec<_> =
            NAMES.iter().filter_map(|name| Interferometer::by_name(name)).collect();
        let mut options = StrainOptions::new(&places, &self.psd, start, self.rate_hz, times);
        options.seed = case.seed;
        options.injections.push(Injection {
            source,
            distance_mpc: 100.0,
            ra_rad: case.ra_rad,
            dec_rad: case.dec_rad,
            inclination_rad: case.inclination_rad,
            polarization_rad: case.polarization_rad,
            phase_rad: case.phase_rad,
            gps: start.plus_s(length_s - AFTER_S + case.part_s - 1.0),
        });
        let unscaled = Simulation::new(&options)?.truth.injections[0].network_snr;
        options.injections[0].distance_mpc *= unscaled / case.network_snr;
        Simulation::new(&options)
    }
}

/// Compares the event with the truth; without an event, the detectors' own triggers.
fn compare(case: &Case, truth: &[DetectorTruth], report: &Report) -> Outcome {
    let is_near = |one: &TimedTrigger, detector: usize| {
        one.gps.seconds_since(truth[detector].gps).abs() < NEAR_S
    };
    let events = &report.found.events;
    let is_it = |event: &sidereal::spiir::coincidence::Event| {
        let seen = event.detectors.iter().enumerate();
        seen.flat_map(|(detector, one)| Some(is_near(one.as_ref()?, detector))).all(|near| near)
    };
    let place = events.iter().position(is_it);
    let others = events.iter().filter(|one| !is_it(one) && one.network_snr > FALSE_SNR).count();
    let pairs = report.detectors.iter().zip(truth).enumerate().map(|(index, (detector, truth))| {
        let template = &detector.bank.templates[0];
        let near = detector.triggers.iter().filter(|one| is_near(one, index));
        let best = near.max_by(|a, b| a.snr.total_cmp(&b.snr));
        // Bias of a maximum over amplitude, phase and time: three normal variables, one of which is the amplitude.
        let kept = truth.snr * template.fit;
        Pair {
            injected: truth.snr,
            expected: kept + 1.0 / kept.max(1.0),
            found: best.map(|one| recovered(one, truth, template, detector.rate_hz)),
        }
    });
    Outcome {
        case: *case,
        filters: report.detectors[0].bank.templates[0].filters.filters(),
        fit: report.detectors[0].bank.templates[0].fit,
        network_snr: place.map(|place| events[place].network_snr),
        loudest: place == Some(0),
        others,
        detectors: pairs.collect(),
    }
}

/// Computes a trigger's errors and their expected deviations, from the slope and curvature of the autocorrelation at
/// its centre.
fn recovered(
    one: &TimedTrigger,
    truth: &DetectorTruth,
    template: &BankTemplate,
    rate_hz: u32,
) -> Recovered {
    let middle = template.autocorrelation.len() / 2;
    let next = template.autocorrelation[middle + 1];
    // |A[1]|^2 = 1 - (spread / rate)^2, arg A[1] = mean / rate, with angular frequencies.
    let spread = (1.0 - f64::from(next.norm_sqr())).max(1e-9).sqrt() * f64::from(rate_hz);
    let mean = f64::from(next.arg()) * f64::from(rate_hz);
    let kept = truth.snr * template.fit;
    let turn = f64::from(one.phase) - truth.phase_rad;
    Recovered {
        snr: f64::from(one.snr),
        xi2: f64::from(one.xi2),
        time_error_s: one.gps.seconds_since(truth.gps),
        phase_error_rad: (turn + PI).rem_euclid(TAU) - PI,
        time_sigma_s: 1.0 / (kept * spread),
        phase_sigma_rad: (1.0 + (mean / spread).powi(2)).sqrt() / kept,
    }
}
