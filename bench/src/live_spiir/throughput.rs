//! Templates that the chain of a live search follows in real time, next to those of its filters alone.

use std::sync::Arc;
use std::time::Instant;

use num_complex::Complex;
use serde_json::{Value, json};
use sidereal::Result;
use sidereal::backend::Backend;
use sidereal::backend::cuda::{Buffer, Stream};
use sidereal::geometry::Interferometer;
use sidereal::io::strain::StrainSource;
use sidereal::io::templates::Templates;
use sidereal::pipeline::cbc::{
    Awaited, Input, OnlineSearch, SearchOptions, Source, Spectrum, Whitening, waveforms,
};
use sidereal::simulate::strain::{
    Injection, Simulation, Source as Wave, StrainOptions, StrainSimulator,
};
use sidereal::spiir::bank;
use sidereal::spiir::coincidence::{Change, Ranking, Sample, State};
use sidereal::spiir::whiten::{GateOptions, Method, RunningOptions};
use sidereal::spiir::{DeviceOutput, DeviceSamples, Plan, Resampler, Spiir};
use sidereal::strain::Binary;
use sidereal::units::Gps;
use sidereal::waveform::InspiralOptions;

use super::setup::{BEFORE_S, Count, DISTANCE_MPC, SOURCE_MSUN, START_S, Setup, row};
use crate::random;
use crate::runner::{Session, quantile};

/// Rates of a chain and of its filters.
pub(super) struct Throughput {
    pub(super) count: Count,
    templates: usize,
    detectors: usize,
    /// Filters of a template at all rates, and as many at the strain's rate as cost the same.
    filters: f64,
    effective: f64,
    /// Seconds of each second of strain of all detectors, in ascending order: the chain, and the filters alone.
    chain_s: Vec<f64>,
    alone_s: Vec<f64>,
}

/// Measures the chain in this process, and after each second of strain its filters alone on as many samples.
pub(super) fn measure(
    setup: &Setup,
    binaries: &[Binary],
    session: &Session<'_>,
) -> Result<Throughput> {
    let (rate_hz, names) = (setup.rate, &setup.detectors);
    let backend = &session.backend;
    let source = Input::Templates(Arc::new(setup.source(binaries, backend)?));
    let awaited = |name: &String| Awaited { detector: name.clone(), input: source.clone() };
    let awaited = names.iter().map(awaited).collect();
    let mut search = OnlineSearch::new(awaited, rate_hz, &setup.search_options()?, backend)?;
    drop(source);
    let start = Gps::from_s(START_S as f64);
    search.begin(start);
    let mut alone = Vec::new();
    let (mut templates, mut filters, mut effective) = (0, 0, 0.0);
    for one in search.detectors() {
        let banks = &one.bank.templates;
        templates = banks.len();
        filters = banks.iter().map(|template| template.filters.filters()).sum();
        effective = banks.iter().map(|template| template.filters.effective_filters()).sum();
        alone.push(Filters::new(one.bank.plan()?, rate_hz as usize, backend)?);
    }
    let mut strain = setup.strain(start)?;
    let mut second = Second::new(rate_hz as usize);
    let never = vec![Gps { ns: i64::MIN / 4 }; names.len()];
    let (mut changes, mut chain_s, mut alone_s) = (Vec::new(), Vec::new(), Vec::new());
    for index in 0..setup.seconds {
        session.caller.check_interrupt()?;
        let mut spent_s = 0.0;
        for (detector, source) in strain.iter_mut().enumerate() {
            source.read(&mut second.samples, &mut second.valid)?;
            let begin = Instant::now();
            search.push(detector, &second.samples, &second.valid)?;
            spent_s += begin.elapsed().as_secs_f64();
        }
        let begin = Instant::now();
        search.changes(&never, &mut changes)?;
        spent_s += begin.elapsed().as_secs_f64();
        let begin = Instant::now();
        alone.iter_mut().try_for_each(Filters::run)?;
        // Until then filters and spectrum fill.
        if f64::from(index) > BEFORE_S {
            chain_s.push(spent_s);
            alone_s.push(begin.elapsed().as_secs_f64());
        }
    }
    chain_s.sort_by(f64::total_cmp);
    alone_s.sort_by(f64::total_cmp);
    let count = setup.found(&changes);
    let share = 1.0 / templates.max(1) as f64;
    let (filters, effective) = (filters as f64 * share, effective * share);
    Ok(Throughput {
        count,
        templates,
        detectors: names.len(),
        filters,
        effective,
        chain_s,
        alone_s,
    })
}

impl Setup {
    /// Returns waveforms and design options, those of `live spiir`.
    fn source(&self, binaries: &[Binary], backend: &Backend) -> Result<Source> {
        let rows = binaries.iter().map(|binary| (String::new(), *binary)).collect();
        let inspirals =
            InspiralOptions { f_low_hz: self.f_low, rate_hz: self.rate, ..Default::default() };
        let threads = backend.host().threads();
        let waveforms = waveforms(Templates::Binaries(rows), &inspirals, None, &threads)?;
        let options = bank::Options {
            f_low_hz: self.f_low,
            rates: bank::Rates::Multi { lowest_hz: 128.0 },
            resampler: Resampler::low_latency(),
            autocorrelation_length: 1 + 2 * (100 * self.rate as usize).div_ceil(4096).max(100),
            ..bank::Options::default()
        };
        Ok(Source { waveforms, options })
    }

    /// Returns the options of `live spiir`.
    fn search_options(&self) -> Result<SearchOptions> {
        let short_s = 1.0 / 64.0;
        Ok(SearchOptions {
            whitening: Whitening {
                spectrum: Spectrum::Causal(self.psd()?, RunningOptions::default()),
                method: Method::MinimumPhase { taps_s: 4.0 },
                gate: Some(GateOptions { threshold: 50.0, hold_s: short_s, taper_s: short_s }),
            },
            threshold: 4.0,
            window_s: 0.1,
            gate_pad_s: 0.05,
            window_pad_s: 0.002,
            slides: 100,
            slide_interval_s: 0.1,
            cluster_s: 0.5,
            background: Sample::Inclusive,
            ranking: Ranking::default(),
            block: 0,
            memory: None,
        })
    }

    /// Returns simulators of the strain of all detectors, with the mergers.
    fn strain(&self, start: Gps) -> Result<Vec<StrainSimulator>> {
        let places: Vec<&'static Interferometer> =
            self.detectors.iter().filter_map(|name| Interferometer::by_name(name)).collect();
        let times = u64::from(self.seconds) * u64::from(self.rate);
        let mut options = StrainOptions::new(&places, &self.psd()?, start, self.rate, times);
        options.seed = 7;
        let [mass1, mass2] = SOURCE_MSUN;
        let inspirals =
            InspiralOptions { f_low_hz: 15.0, rate_hz: self.rate, ..Default::default() };
        options.injections.extend(self.mergers().map(|time_s| Injection {
            source: Wave::Inspiral(Binary::of_masses(mass1, mass2), inspirals),
            distance_mpc: DISTANCE_MPC,
            ra_rad: 1.2,
            dec_rad: 0.7,
            inclination_rad: 0.2,
            polarization_rad: 0.0,
            phase_rad: 0.0,
            gps: start.plus_s(time_s),
        }));
        Ok(Simulation::new(&options)?.detectors)
    }

    /// Counts the mergers of which an event was announced.
    fn found(&self, changes: &[Change]) -> Count {
        let has_event = |time_s: &f64| {
            let gps = Gps::from_s(START_S as f64).plus_s(*time_s);
            let is_near = |one: &Change| one.event.gps.seconds_since(gps).abs() < 0.05;
            changes.iter().any(|one| one.state != State::Retracted && is_near(one))
        };
        let found = self.mergers().filter(has_event).count();
        Count { found, mergers: self.mergers().count() }
    }
}

/// A second of strain of a detector.
struct Second {
    samples: Vec<f64>,
    valid: Vec<bool>,
}

impl Second {
    fn new(times: usize) -> Self {
        Self { samples: vec![0.0; times], valid: vec![true; times] }
    }
}

/// Bytes of the ratios that a call computes on the host, as in the chain, where they stay in the cache; and on a GPU.
const HOST_BYTES: usize = 16 << 20;
const DEVICE_BYTES: usize = 4 << 30;

/// Filters of one detector, which filter a second of noise.
enum Filters {
    Host(Box<OnHost>),
    Device(Box<OnDevice>),
}

/// Filters in the memory of the host.
struct OnHost {
    spiir: Spiir,
    noise: Vec<f32>,
    z: Vec<Complex<f32>>,
    piece: usize,
}

/// Filters in the memory of a GPU.
struct OnDevice {
    spiir: Spiir,
    stream: Stream,
    noise: Buffer<f32>,
    z: Buffer<Complex<f32>>,
    piece: usize,
}

impl Filters {
    fn new(plan: Plan, times: usize, backend: &Backend) -> Result<Self> {
        let (templates, noise) = (plan.templates(), random::noise(99, times));
        let spiir = Spiir::new(plan, backend)?;
        let piece =
            |bytes: usize| (bytes / size_of::<Complex<f32>>() / templates).clamp(256, times);
        Ok(match backend {
            Backend::Cuda(device, _) => {
                let piece = piece(DEVICE_BYTES.min(device.free_bytes()? / 8));
                let (stream, noise) = (device.stream()?, device.upload(&noise)?);
                let z = device.buffer(templates * piece)?;
                Self::Device(Box::new(OnDevice { spiir, stream, noise, z, piece }))
            }
            _ => {
                let piece = piece(HOST_BYTES);
                let z = vec![Complex::default(); templates * piece];
                Self::Host(Box::new(OnHost { spiir, noise, z, piece }))
            }
        })
    }

    /// Filters a second, and waits for the end.
    fn run(&mut self) -> Result<()> {
        match self {
            Self::Host(own) => {
                let OnHost { spiir, noise, z, piece } = &mut **own;
                noise.chunks(*piece).try_for_each(|noise| spiir.run(noise, z, *piece).map(|_| ()))
            }
            Self::Device(own) => {
                let OnDevice { spiir, stream, noise, z, piece } = &mut **own;
                for first in (0..noise.len()).step_by(*piece) {
                    let times = (*piece).min(noise.len() - first);
                    let input = DeviceSamples { buffer: noise, first, times };
                    let output = DeviceOutput { buffer: z, first: 0, stride: *piece };
                    spiir.enqueue(input, output, stream)?;
                }
                stream.synchronize()
            }
        }
    }
}

impl Throughput {
    /// Returns templates times detectors in real time, from the times that the seconds took.
    fn in_real_time(&self, seconds: &[f64]) -> f64 {
        (self.templates * self.detectors * seconds.len()) as f64 / seconds.iter().sum::<f64>()
    }

    pub(super) fn rows(&self) -> Vec<Vec<String>> {
        let Count { found, mergers } = self.count;
        let (chain, alone) = (self.in_real_time(&self.chain_s), self.in_real_time(&self.alone_s));
        let at = |seconds: &[f64], part| format!("{:.3}", quantile(seconds, part));
        let spent =
            |name: &str, seconds: &[f64]| row(name, at(seconds, 0.5), Some(at(seconds, 0.99)));
        vec![
            spent("chain, s for a second of all detectors", &self.chain_s),
            spent("filters alone, s", &self.alone_s),
            row("chain, templates x detectors in real time", format!("{chain:.0}"), None),
            row("filters alone, templates x detectors", format!("{alone:.0}"), None),
            row("chain over filters alone", format!("{:.3}", chain / alone), None),
            row("filters a template", format!("{:.1}", self.filters), None),
            row("filters a template, at the strain's rate", format!("{:.1}", self.effective), None),
            row("mergers of the chain with an event", format!("{found} of {mergers}"), None),
        ]
    }

    pub(super) fn values(&self) -> Value {
        json!({
            "chain_templates_detectors": self.in_real_time(&self.chain_s),
            "filters_templates_detectors": self.in_real_time(&self.alone_s),
            "chain_s": self.chain_s,
            "filters_s": self.alone_s,
            "filters_per_template": self.filters,
            "effective_filters_per_template": self.effective,
            "mergers": self.count.mergers,
            "found": self.count.found,
        })
    }
}
