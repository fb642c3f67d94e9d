//! Searches of two detectors on any backend, with simulated and real strain.
#![allow(dead_code, unreachable_pub, missing_docs)]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use num_complex::Complex64;
use sidereal::Result;
use sidereal::backend::Backend;
use sidereal::backend::threads::Threads;
use sidereal::io::strain::{OpenOptions, open};
use sidereal::io::templates;
use sidereal::math::PowerSpectrum;
use sidereal::pipeline::Ending;
use sidereal::pipeline::cbc::{
    ChirpDetector, ChirpSearch, DetectorOptions, DetectorReport, Input, Recording, Report,
    SearchObserver, SearchOptions, Source, Spectrum, Status, Whitening, design, waveforms,
};
use sidereal::spiir::bank::{self, Bank, Rates};
use sidereal::spiir::coincidence::{Ranking, Sample, TimedTrigger};
use sidereal::spiir::trigger::Trigger;
use sidereal::spiir::whiten::{Average, GateOptions, Method, WelchOptions};
use sidereal::state::Saved;
use sidereal::strain::Waveform;
use sidereal::units::Gps;
use sidereal::waveform::InspiralOptions;

pub const RATE_HZ: u32 = 1024;
pub const SIGMA: f64 = 1e-21;

/// A chirp of half a second, from 40 Hz to 200 Hz (0) or a lower frequency.
pub fn chirp(which: u32) -> Waveform {
    let sample = |k: usize| {
        let t = k as f64 / f64::from(RATE_HZ);
        let slope = 160.0 - 30.0 * f64::from(which);
        let phase = std::f64::consts::TAU * (40.0 * t + slope * t * t);
        Complex64::from_polar(SIGMA * (0.2 + t), -phase)
    };
    let samples = (0..512).map(sample).collect();
    Waveform::new(format!("chirp {which}"), None, RATE_HZ, samples, 1.0).expect("a wave")
}

pub fn white() -> PowerSpectrum {
    let density = 2.0 * SIGMA * SIGMA / f64::from(RATE_HZ);
    PowerSpectrum::new(1.0, vec![density; RATE_HZ as usize / 2 + 1]).expect("a spectrum")
}

fn source() -> Source {
    let options = bank::Options {
        f_low_hz: 30.0,
        minimum_match: 0.9,
        rates: Rates::Multi { lowest_hz: 256.0 },
        ..bank::Options::default()
    };
    Source { waveforms: (0..3).map(chirp).collect(), options }
}

/// Filters of three chirps at two rates.
pub fn chirp_bank() -> Bank {
    design(&source(), &white(), &Threads::new(1)).expect("a bank")
}

/// Noise of unit variance from a small generator.
pub fn noise(seed: u64, times: usize) -> Vec<f64> {
    let mut state = seed;
    let mut uniform = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 11) as f64 / (1_u64 << 53) as f64
    };
    (0..times).map(|_| (0..12).map(|_| uniform()).sum::<f64>() - 6.0).collect()
}

/// White noise of 16 s with a chirp in it.
pub fn recording(detector: &str, seed: u64, chirp_at: usize) -> Recording {
    let mut samples = noise(seed, 16 * RATE_HZ as usize);
    samples.iter_mut().for_each(|x| *x *= SIGMA);
    let wave = chirp(0);
    let power: f64 = wave.samples.iter().map(|h| (h.re / SIGMA).powi(2)).sum();
    for (x, h) in samples[chirp_at..].iter_mut().zip(&wave.samples) {
        *x += 20.0 / power.sqrt() * h.re;
    }
    let valid = vec![true; samples.len()];
    let (detector, path) = (detector.to_owned(), PathBuf::from(detector));
    Recording { detector, path, start: Gps::from_s(1e9), rate_hz: RATE_HZ, samples, valid }
}

pub fn pair() -> Vec<Recording> {
    vec![recording("H1", 1, 9000), recording("L1", 2, 9004)]
}

/// Stores triggers and states, and stops at a sample.
#[derive(Default)]
pub struct Kept {
    pub stop_at: Option<u64>,
    /// True if a state is requested at every opportunity.
    pub is_always_due: bool,
    pub triggers: Vec<Vec<Trigger>>,
    /// States, each with the triggers reported before it.
    pub states: Vec<(Vec<u8>, Vec<Vec<Trigger>>)>,
}

impl SearchObserver for Kept {
    fn at(&mut self, status: &Status) -> bool {
        self.stop_at.is_none_or(|stop| status.times < stop)
    }

    fn found(&mut self, detector: usize, triggers: &[(Trigger, TimedTrigger)]) -> Result<()> {
        self.triggers.resize(self.triggers.len().max(detector + 1), Vec::new());
        self.triggers[detector].extend(triggers.iter().map(|(trigger, _)| *trigger));
        Ok(())
    }

    fn is_due(&mut self) -> bool {
        self.is_always_due
    }

    fn save(&mut self, state: Vec<u8>) -> Result<()> {
        self.states.push((state, self.triggers.clone()));
        Ok(())
    }
}

/// Strain with a gap, a NaN, and a glitch for the gate.
pub fn spoilt() -> Vec<Recording> {
    let mut both = pair();
    both[0].samples[3000] = f64::NAN;
    both[0].valid[12_000..12_100].fill(false);
    both[1].samples[5000] *= 1e4;
    both[1].start = both[1].start.plus_samples(37, RATE_HZ);
    both
}

/// Results that must be identical, bit for bit.
pub fn bits(report: &Report) -> impl PartialEq + use<> {
    let of = |one: &DetectorReport| {
        let (whitened, valid) = one.whitened.read(0..u64::MAX).expect("samples");
        let whitened: Vec<u32> = whitened.iter().map(|x| x.to_bits()).collect();
        (one.triggers.clone(), one.valid.clone(), whitened, valid, one.duration_s)
    };
    (report.detectors.iter().map(of).collect::<Vec<_>>(), report.found.clone())
}

/// Stops a search at a sample and resumes it, from the stop or from the last state before it (`is_killed`).
pub fn interrupted(
    mut first: ChirpSearch,
    stop_at: u64,
    is_killed: bool,
    mut again: ChirpSearch,
) -> Report {
    let folder = tempfile::tempdir().expect("a folder");
    let stop_at = Some(stop_at);
    let mut kept = Kept { stop_at, is_always_due: is_killed, ..Kept::default() };
    first.store_in(folder.path()).expect("files");
    let stopped = first.run_kept(&mut kept).expect("stopped");
    assert!(matches!(stopped.ending, Ending::Stopped), "{:?}", stopped.ending);
    let which = if is_killed { kept.states.len() / 2 } else { kept.states.len() - 1 };
    let (state, triggers) = kept.states.swap_remove(which);
    let mut saved = Saved::new(Path::new("state"), 0, &state).expect("whole");
    again.resume(folder.path(), &mut saved, triggers).expect("resumed");
    let report = again.run(&mut |_| true).expect("searched");
    assert!(report.ending.is_complete());
    report
}

fn whitening() -> Whitening {
    let method = Method::Overlap { fft_s: 1.0 };
    Whitening { spectrum: Spectrum::Given(white()), method, gate: None }
}

pub fn chain() -> DetectorOptions {
    DetectorOptions {
        whitening: whitening().options(RATE_HZ, &white(), 30.0),
        threshold: 4.0,
        window_s: 0.1,
        gate_pad_s: 0.25,
    }
}

fn options(whitening: Whitening) -> SearchOptions {
    SearchOptions {
        whitening,
        threshold: 4.0,
        window_s: 0.1,
        gate_pad_s: 0.25,
        window_pad_s: 0.002,
        slides: 20,
        slide_interval_s: 0.1,
        cluster_s: 0.5,
        background: Sample::Inclusive,
        ranking: Ranking::default(),
        block: 0,
        memory: None,
    }
}

pub fn search_options() -> SearchOptions {
    options(whitening())
}

fn run(inputs: Vec<(Recording, Input)>, asked: &SearchOptions, backend: &Backend) -> Report {
    let search = ChirpSearch::new(inputs, asked, backend).expect("a search");
    search.run(&mut |_| true).expect("searched")
}

/// A search with the bank of three chirps.
pub fn search(recordings: Vec<Recording>, backend: &Backend) -> Report {
    let bank = || Input::Bank(Arc::new(chirp_bank()));
    let inputs = recordings.into_iter().map(|one| (one, bank())).collect();
    run(inputs, &options(whitening()), backend)
}

/// The search of GW150914's recordings.
pub fn gw150914(folder: &Path, backend: &Backend) -> Report {
    let read = |name: &str| {
        let path = folder.join("gw").join(name);
        let mut source = open(&path, &OpenOptions::default()).expect("opened");
        Recording::read(source.as_mut()).expect("read")
    };
    let file = templates::open(&folder.join("gw/GW150914_4_template.hdf5")).expect("templates");
    let inspirals = InspiralOptions { rate_hz: 4096, ..InspiralOptions::default() };
    let rates = Rates::Multi { lowest_hz: 128.0 };
    let source = Source {
        waveforms: waveforms(file, &inspirals, None, &Threads::new(2)).expect("waveforms"),
        options: bank::Options { f_low_hz: 20.0, rates, ..bank::Options::default() },
    };
    let source = Arc::new(source);
    let names = ["H-H1_LOSC_4_V2-1126259446-32.hdf5", "L-L1_LOSC_4_V2-1126259446-32.hdf5"];
    let inputs = names.map(|name| (read(name), Input::Templates(Arc::clone(&source)))).into();
    let welch = WelchOptions { average: Average::Mean, ..WelchOptions::default() };
    let whitening = Whitening {
        spectrum: Spectrum::Welch(welch),
        method: Method::Overlap { fft_s: 8.0 },
        gate: Some(GateOptions::default()),
    };
    run(inputs, &options(whitening), backend)
}

/// Searches a recording, a gap of 200 s and the recording again, in blocks, and the gap at once or as invalid samples; returns the
/// triggers and the number of restarts.
pub fn around_a_gap(
    mut chain: ChirpDetector,
    block: usize,
    is_at_once: bool,
) -> (Vec<Trigger>, u64) {
    let one = recording("H1", 1, 9000);
    let run = |chain: &mut ChirpDetector, samples: &[f64], is_valid: bool| {
        for strain in samples.chunks(block) {
            chain.run(strain, &vec![is_valid; strain.len()], &mut |_| {}).expect("run");
        }
    };
    let gap = 200 * u64::from(RATE_HZ);
    run(&mut chain, &one.samples, true);
    if is_at_once {
        let (mut left, mut calls) = (gap, 0);
        while left > 0 {
            left -= chain.gap(left, &mut |_| {}).expect("a gap");
            calls += 1;
        }
        assert!(calls < 100, "{calls}");
    } else {
        run(&mut chain, &vec![0.0; gap as usize], false);
    }
    run(&mut chain, &one.samples, true);
    chain.flush(&mut |_| {}).expect("flushed");
    (chain.triggers().to_vec(), chain.restarts())
}
