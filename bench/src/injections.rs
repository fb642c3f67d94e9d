//! `bench injections`: injects binaries of known masses, sky positions and signal-to-noise ratios into simulated noise
//! of two detectors, searches for them and compares the events with the truth.

use std::f64::consts::{PI, TAU};
use std::path::PathBuf;
use std::sync::Arc;

use clap::{Args, ValueEnum};
use serde_json::{Value, json};
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
use sidereal::{Error, Result};

use crate::runner::{Report as Results, Session, in_parallel};

/// Inject binaries into noise of two detectors, search for them and compare the events with the truth.
#[derive(Args, Clone, Debug)]
pub(crate) struct Arguments {
    /// Number of binaries.
    #[arg(long, default_value_t = 200, value_name = "COUNT")]
    injections: usize,
    /// Seed of the binaries and the noise.
    #[arg(long, default_value_t = 1, value_name = "NUMBER")]
    seed: u64,
    /// Sampling rate of the strain in Hz.
    #[arg(long, default_value_t = 2048, value_name = "HZ")]
    rate: u32,
    /// Source of the power spectrum.
    #[arg(long, value_enum, value_name = "WHICH", default_value = "design")]
    psd: Spectrum,
    /// Whitening method of the strain.
    #[arg(long, value_enum, value_name = "WHICH", default_value = "overlap")]
    whitening: Whitening,
    /// Filters that halve and double the sampling rate.
    #[arg(long, value_enum, value_name = "WHICH", default_value = "paper")]
    resampling: Resampling,
    /// Early warning: end the templates this many seconds before the merger.
    #[arg(long, default_value_t = 0.0, value_name = "SECONDS")]
    before: f64,
    /// Also write the table as Markdown.
    #[arg(long, value_name = "FILE.md")]
    pub(crate) markdown: Option<PathBuf>,
    /// Also plot recovered against injected values.
    #[arg(long, value_name = "FILE.png")]
    pub(crate) plot: Option<PathBuf>,
}

/// Power spectra that whiten strain and templates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Spectrum {
    /// Design curve that the noise was made with.
    Design,
    /// Welch estimate from each recording.
    Welch,
}

/// Whitening methods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Whitening {
    /// Overlap-add with zero phase.
    Overlap,
    /// Minimum phase.
    MinimumPhase,
}

/// Resampling filters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Resampling {
    /// Linear phase, 384 and 32 taps.
    Paper,
    /// Filters with less delay.
    LowLatency,
    /// No resampling: one rate.
    None,
}

/// Runs the campaign and prints its results.
pub(crate) fn run(arguments: &Arguments, session: &Session<'_>) -> Result<Vec<Outcome>> {
    if !(1..=100_000).contains(&arguments.injections) {
        let rule = "it must be 1 to 100000";
        return Err(Error::parameter("--injections", arguments.injections, rule));
    }
    if !(1024..=16_384).contains(&arguments.rate) {
        return Err(Error::parameter("--rate (Hz)", arguments.rate, "it must be 1024 to 16384"));
    }
    let setup = Setup::new(arguments)?;
    let outcomes = in_parallel(session.threads, arguments.injections, |index| {
        setup.run(&Case::draw(arguments.seed, index as u64))
    })?;
    let rows = rows(&outcomes);
    let lines = outcomes.iter().map(record).collect();
    let report = Results { lines, text: text(&rows, &outcomes), heads: HEADS.into(), rows };
    report.show(session, arguments.markdown.as_deref())?;
    Ok(outcomes)
}

/// Ranges of the masses in solar masses, and of the network signal-to-noise ratio.
const MASSES: (f64, f64) = (1.4, 30.0);
const INJECTED_SNRS: (f64, f64) = (8.0, 30.0);

/// One binary, before the detectors' responses are known.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    masses_msun: (f64, f64),
    /// Network ratio: root of the sum of the detectors' squared optimal ratios.
    network_snr: f64,
    ra_rad: f64,
    dec_rad: f64,
    inclination_rad: f64,
    polarization_rad: f64,
    phase_rad: f64,
    /// Seconds of the peak after a whole second.
    part_s: f64,
    /// Seed of the noise.
    seed: u64,
}

impl Case {
    /// Returns the sum of the masses in solar masses.
    pub fn total_msun(&self) -> f64 {
        self.masses_msun.0 + self.masses_msun.1
    }

    /// Draws a binary with masses uniform in their logarithms, isotropic sky position and orientation.
    fn draw(seed: u64, number: u64) -> Self {
        let mut random = Random(seed.wrapping_mul(1 << 20).wrapping_add(number));
        let (low, high) = MASSES;
        let mut mass = || low * (high / low).powf(random.unit());
        let masses_msun = (mass(), mass());
        let mut between = |from: f64, until: f64| from + (until - from) * random.unit();
        Self {
            masses_msun: (masses_msun.0.max(masses_msun.1), masses_msun.0.min(masses_msun.1)),
            network_snr: between(INJECTED_SNRS.0, INJECTED_SNRS.1),
            ra_rad: between(0.0, TAU),
            dec_rad: between(-1.0, 1.0).asin(),
            inclination_rad: between(-1.0, 1.0).acos(),
            polarization_rad: between(0.0, TAU / 2.0),
            phase_rad: between(0.0, TAU),
            part_s: between(0.0, 1.0),
            seed: (between(0.0, 1.0) * (1_u64 << 52) as f64) as u64,
        }
    }
}

/// Pseudorandom number generator.
struct Random(u64);

impl Random {
    /// Returns a number from 0 to 1.
    fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((word ^ (word >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// Names of the detectors.
const NAMES: [&str; 2] = ["H1", "L1"];
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
const FALSE_SNR: f64 = 9.0;

/// Settings shared by all cases.
#[derive(Debug)]
struct Setup {
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
    filters: usize,
    fit: f64,
    /// Network signal-to-noise ratio of the event, if one was found.
    pub network_snr: Option<f64>,
    /// Whether the injection was the loudest event.
    loudest: bool,
    /// Number of other events above [`FALSE_SNR`].
    others: usize,
    /// Results of each detector.
    detectors: Vec<Pair>,
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
    fn new(arguments: &Arguments) -> Result<Self> {
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
    fn run(&self, case: &Case) -> Result<Outcome> {
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
                Some(bank) => Input::Bank(Arc::new(bank.clone())),
                None => Input::Templates(Arc::new(source.clone())),
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
            found: best.map(|one| errors_of(one, truth, template, detector.rate_hz)),
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
fn errors_of(
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

/// Least injected ratio of a detector that counts for the errors: below it, noise peaks replace the signal's.
const LEAST_SNR: f64 = 6.0;

/// Row of the table: name and range of the binary's total mass.
const ROWS: [(&str, f64, f64); 5] = [
    ("2.8 to 6", 0.0, 6.0),
    ("6 to 15", 6.0, 15.0),
    ("15 to 30", 15.0, 30.0),
    ("30 to 60", 30.0, 61.0),
    ("all", 0.0, 61.0),
];

const HEADS: [&str; 11] = [
    "total mass (solar)",
    "injected",
    "both above 5",
    "of these found",
    "loudest",
    "others above 9",
    "SNR / injected",
    "SNR - expected",
    "time error (ms)",
    "phase error (rad)",
    "xi-squared",
];

/// Returns the detectors that count, with their recovered values.
pub fn recovered(outcomes: &[&Outcome]) -> Vec<(Pair, Recovered)> {
    let pairs = outcomes.iter().flat_map(|outcome| &outcome.detectors);
    let counted = pairs.filter(|pair| pair.injected >= LEAST_SNR);
    counted.filter_map(|pair| Some((*pair, pair.found?))).collect()
}

/// Returns the mean, and the standard deviation about zero.
fn moments(values: &[f64]) -> (f64, f64) {
    let count = values.len().max(1) as f64;
    let mean = values.iter().sum::<f64>() / count;
    (mean, (values.iter().map(|value| value * value).sum::<f64>() / count).sqrt())
}

/// Formats `mean rms, rms in units of the expected deviation`.
fn errors(values: &[(Pair, Recovered)], error: fn(&Recovered) -> (f64, f64)) -> String {
    let plain: Vec<f64> = values.iter().map(|(_, one)| error(one).0).collect();
    let scaled: Vec<f64> = values.iter().map(|(_, one)| error(one).0 / error(one).1).collect();
    let ((mean, rms), (_, sigmas)) = (moments(&plain), moments(&scaled));
    format!("{mean:+.3} rms {rms:.3}, {sigmas:.2} sigma")
}

fn cells(name: &str, outcomes: &[&Outcome]) -> Vec<String> {
    let above = |outcome: &&&Outcome| outcome.detectors.iter().all(|pair| pair.injected >= 5.0);
    let both: Vec<&&Outcome> = outcomes.iter().filter(above).collect();
    let found = both.iter().filter(|outcome| outcome.network_snr.is_some()).count();
    let loudest = outcomes.iter().filter(|outcome| outcome.loudest).count();
    let others: usize = outcomes.iter().map(|outcome| outcome.others).sum();
    let values = recovered(outcomes);
    let mean =
        |of: fn(&(Pair, Recovered)) -> f64| moments(&values.iter().map(of).collect::<Vec<f64>>());
    let excess = mean(|(pair, one)| one.snr - pair.expected);
    let xi2 = mean(|(_, one)| one.xi2).0;
    let spread = moments(&values.iter().map(|(_, one)| one.xi2 - xi2).collect::<Vec<f64>>()).1;
    let sigma = spread / (values.len().max(1) as f64).sqrt();
    vec![
        name.to_owned(),
        outcomes.len().to_string(),
        both.len().to_string(),
        found.to_string(),
        loudest.to_string(),
        others.to_string(),
        format!("{:.3}", mean(|(pair, one)| one.snr / pair.injected).0),
        format!("{:+.2} rms {:.2}", excess.0, excess.1),
        errors(&values, |one| (one.time_error_s * 1e3, one.time_sigma_s * 1e3)),
        errors(&values, |one| (one.phase_error_rad, one.phase_sigma_rad)),
        format!("{xi2:.3} ± {sigma:.3}"),
    ]
}

fn rows(outcomes: &[Outcome]) -> Vec<Vec<String>> {
    let row = |(name, low, high): &(&str, f64, f64)| {
        let of_row = outcomes.iter().filter(|outcome| {
            let total = outcome.case.masses_msun.0 + outcome.case.masses_msun.1;
            (*low..*high).contains(&total)
        });
        cells(name, &of_row.collect::<Vec<_>>())
    };
    ROWS.iter().map(row).collect()
}

/// Formats the table for the terminal: a line per column.
fn text(rows: &[Vec<String>], outcomes: &[Outcome]) -> String {
    let line = |column: usize, head: &str| {
        let cells: Vec<&str> = rows.iter().map(|row| row[column].as_str()).collect();
        format!("{head:>20}  {}\n", cells.join(" | "))
    };
    let lines: String = HEADS.iter().enumerate().map(|(column, head)| line(column, head)).collect();
    let counted = recovered(&outcomes.iter().collect::<Vec<_>>()).len();
    format!(
        "{lines}Errors are of the {counted} detectors with an injected ratio of at least {LEAST_SNR}."
    )
}

fn record(outcome: &Outcome) -> Value {
    let detectors = outcome.detectors.iter().zip(NAMES).map(|(pair, name)| {
        let found = pair.found.map(|one| {
            json!({
                "snr": one.snr, "xi2": one.xi2, "time_error_s": one.time_error_s,
                "time_sigma_s": one.time_sigma_s, "phase_error_rad": one.phase_error_rad,
                "phase_sigma_rad": one.phase_sigma_rad,
            })
        });
        json!({
            "detector": name, "injected_snr": pair.injected, "expected_snr": pair.expected,
            "found": found,
        })
    });
    json!({
        "bench": "injections", "mass1_msun": outcome.case.masses_msun.0,
        "mass2_msun": outcome.case.masses_msun.1, "injected_snr": outcome.case.network_snr,
        "filters": outcome.filters, "match": outcome.fit, "network_snr": outcome.network_snr,
        "loudest": outcome.loudest, "others": outcome.others,
        "detectors": detectors.collect::<Vec<Value>>(),
    })
}
