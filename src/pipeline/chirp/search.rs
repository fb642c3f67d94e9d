//! The search: every detector's chain, then coincidence.

use std::sync::Arc;
use std::time::Instant;

use super::bank::{Source, check_length, design_for};
use super::detector::{ChirpDetector, DetectorOptions, Piece};
use super::recording::{Recording, common_span};
use super::report::{DetectorReport, Report};
use super::single;
use super::spectrum::Whitening;
use super::together;
use crate::backend::threads::Threads;
use crate::backend::{Backend, Host};
use crate::error::{Error, Result};
use crate::geometry::interferometer::{self, Interferometer};
use crate::math::power_spectrum::PowerSpectrum;
use crate::spiir::bank::{Bank, BankTemplate};
use crate::spiir::coincidence::{self, Detector, Found, Ranking};
use crate::strain::Binary;

/// Samples that are searched between two looks at the observer.
const BLOCK: usize = 1 << 15;

/// How a search is done.
#[derive(Clone, Debug)]
pub struct SearchOptions {
    /// How strain is whitened.
    pub whitening: Whitening,
    /// Least signal-to-noise ratio of a trigger.
    pub threshold: f32,
    /// A trigger is the greatest of its template within this many seconds before it and after it.
    pub window_s: f64,
    /// Triggers this close to a gate, in seconds, are dropped.
    pub gate_pad_s: f64,
    /// Added to light's travel time between two detectors, in seconds.
    pub window_pad_s: f64,
    /// Time slides for the background.
    pub slides: usize,
    /// Interval of the slides, in seconds.
    pub slide_interval_s: f64,
    /// Events this close in time are one, in seconds.
    pub cluster_s: f64,
    /// What ranks events.
    pub ranking: Ranking,
    /// Samples taken at once; 0 chooses. Results are the same for any.
    pub block: usize,
}

impl SearchOptions {
    /// How events are made of triggers, for these windows.
    fn coincidence(&self, windows_s: Vec<Vec<f64>>) -> coincidence::Options {
        coincidence::Options {
            slides: self.slides,
            slide_interval_s: self.slide_interval_s,
            cluster_s: self.cluster_s,
            ranking: self.ranking,
            ..coincidence::Options::new(windows_s)
        }
    }
}

/// What a detector is searched with.
#[derive(Clone, Debug)]
pub enum Input {
    /// Templates, from which a bank is made for the detector's own noise.
    Templates(Source),
    /// The same, of templates that several detectors share.
    Shared(Arc<Source>),
    /// A bank that was made before.
    Bank(Box<Bank>),
}

/// How far a search is.
#[derive(Clone, Copy, Debug)]
pub struct Status {
    /// Samples searched, of all detectors together.
    pub times: u64,
    /// Samples in all.
    pub total: u64,
}

/// One detector, ready to be searched.
pub(super) struct Ready {
    recording: Recording,
    bank: Bank,
    psd: PowerSpectrum,
    chain: ChirpDetector,
}

/// A search for coincident events in several detectors' strain.
pub struct ChirpSearch {
    options: SearchOptions,
    detectors: Vec<Ready>,
    coincidence: coincidence::Options,
    threads: Threads,
    /// Whether detectors are searched side by side: on a GPU, where the host only whitens.
    is_together: bool,
}

impl ChirpSearch {
    /// Checks everything, and makes banks where there are none.
    ///
    /// Each recording comes with what it is searched with. Banks must have the same templates in the same order.
    ///
    /// # Errors
    /// [`Error::Parameter`] for detectors that are unknown, twice there, too many, of different rates or without common
    /// time, for windows and slides that don't fit each other, for banks of other rates or templates, and templates
    /// longer than the data; whatever the steps report.
    pub fn new(
        inputs: Vec<(Recording, Input)>,
        options: &SearchOptions,
        backend: &Backend,
    ) -> Result<Self> {
        let (recordings, with): (Vec<Recording>, Vec<Input>) = inputs.into_iter().unzip();
        let coincidence = options.coincidence(windows(&recordings, options.window_pad_s)?);
        if recordings.len() > 1 {
            coincidence.check(recordings.len())?;
        }
        common_span(&recordings)?;
        let threads = match &backend.host() {
            Host::Cpu(_, threads) => threads.clone(),
            Host::Reference => Threads::new(1),
        };
        let pairs = recordings.into_iter().zip(with);
        let ready = pairs.map(|(recording, input)| {
            let made =
                |source: &Source| design_for(source, &recording, &options.whitening, &threads);
            let (bank, psd) = match input {
                Input::Templates(source) => made(&source)?,
                Input::Shared(source) => made(&source)?,
                Input::Bank(bank) => {
                    check_length(&bank, &recording)?;
                    let psd = options.whitening.spectrum(&recording)?;
                    (*bank, psd)
                }
            };
            let f_low_hz = bank.options.f_low_hz;
            let chain = DetectorOptions {
                whitening: options.whitening.options(recording.rate_hz, &psd, f_low_hz),
                threshold: options.threshold,
                window_s: options.window_s,
                gate_pad_s: options.gate_pad_s,
            };
            let chain = ChirpDetector::of_triggers(recording.start, &bank, &chain, backend)?;
            Ok(Ready { recording, bank, psd, chain })
        });
        let detectors = ready.collect::<Result<Vec<_>>>()?;
        check_templates(&detectors)?;
        let (options, is_together) = (options.clone(), backend.is_gpu());
        Ok(Self { options, detectors, coincidence, threads, is_together })
    }

    /// Each detector's bank.
    pub fn banks(&self) -> impl Iterator<Item = (&str, &Bank)> {
        self.detectors.iter().map(|one| (one.recording.detector.as_str(), &one.bank))
    }

    /// Searches. `observe` is told on the way how far the search is, and stops it by giving false.
    ///
    /// # Errors
    /// Those of the steps; `None` instead of a report when it was stopped.
    pub fn run(self, observe: &mut dyn FnMut(&Status) -> bool) -> Result<Option<Report>> {
        let begin = Instant::now();
        let lengths = self.detectors.iter().map(|one| one.recording.samples.len() as u64);
        let mut status = Status { times: 0, total: lengths.sum() };
        let block = if self.options.block == 0 { BLOCK } else { self.options.block };
        let run = if self.is_together { together::run } else { in_turn };
        let Some(reports) = run(self.detectors, block, &mut status, observe)? else {
            return Ok(None);
        };
        let found = coincide(&reports, &self.coincidence, &self.threads)?;
        let lengths = reports.iter().map(|report| report.duration_s);
        Ok(Some(Report {
            data_s: lengths.fold(0.0, f64::max),
            detectors: reports,
            found,
            elapsed_s: begin.elapsed().as_secs_f64(),
        }))
    }
}

/// Searches one detector after another.
fn in_turn(
    detectors: Vec<Ready>,
    block: usize,
    status: &mut Status,
    observe: &mut dyn FnMut(&Status) -> bool,
) -> Result<Option<Vec<DetectorReport>>> {
    let mut reports = Vec::with_capacity(detectors.len());
    for ready in detectors {
        let report = ready.run(block, &mut |times| {
            status.times += times;
            observe(status)
        })?;
        match report {
            Some(report) => reports.push(report),
            None => return Ok(None),
        }
    }
    Ok(Some(reports))
}

impl Ready {
    /// Searches it; `observe` is told how many samples were searched since, and stops it by giving false.
    pub(super) fn run(
        self,
        block: usize,
        observe: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Option<DetectorReport>> {
        let Self { recording, bank, psd, mut chain } = self;
        let mut whitened = Vec::with_capacity(recording.samples.len());
        let mut whitened_valid = Vec::with_capacity(recording.samples.len());
        let mut keep = |piece: Piece<'_>| {
            if let Piece::Whitened { samples, valid, .. } = piece {
                whitened.extend_from_slice(samples);
                whitened_valid.extend_from_slice(valid);
            }
        };
        for (strain, valid) in recording.samples.chunks(block).zip(recording.valid.chunks(block)) {
            chain.run(strain, valid, &mut keep)?;
            if !observe(strain.len() as u64) {
                return Ok(None);
            }
        }
        chain.flush(&mut keep)?;
        let latency = chain.latency();
        let (triggers, valid) = chain.finish();
        Ok(Some(DetectorReport {
            name: recording.detector.clone(),
            start: recording.start,
            rate_hz: recording.rate_hz,
            duration_s: recording.duration_s(),
            livetime_s: valid.duration_s(),
            psd,
            bank,
            triggers,
            valid,
            whitened,
            whitened_valid,
            latency,
        }))
    }
}

/// Events of all detectors' triggers.
fn coincide(
    reports: &[DetectorReport],
    asked: &coincidence::Options,
    threads: &Threads,
) -> Result<Found> {
    check_good(reports)?;
    if let [only] = reports {
        return Ok(single::events(only, asked.cluster_s, asked.ranking));
    }
    let detectors: Vec<Detector<'_>> = reports
        .iter()
        .map(|report| Detector { triggers: &report.triggers, valid: &report.valid })
        .collect();
    coincidence::search_on(threads, &detectors, asked)
}

/// Fails unless two detectors, or the only one, have data that are good.
fn check_good(reports: &[DetectorReport]) -> Result<()> {
    let least = reports.len().min(2);
    if reports.iter().filter(|report| report.livetime_s > 0.0).count() >= least {
        return Ok(());
    }
    let part = |report: &DetectorReport| {
        // The sum of no segments is -0.
        format!("{} has {} of {} s", report.name, report.livetime_s.abs(), report.duration_s)
    };
    let parts: Vec<String> = reports.iter().map(part).collect();
    let rule = format!(
        "there must be some of {}: {}. The rest is bad or missing data, gates (the spectrum may not be that of these \
         data), the ends where filters start, or what a running spectrum learned from",
        if least == 1 { "the detector" } else { "two detectors" },
        parts.join(", ")
    );
    Err(Error::parameter("strain that is good (s)", 0, rule))
}

/// The longest time between triggers of each pair of detectors, in seconds.
///
/// # Errors
/// [`Error::Parameter`] for a detector whose place is not known, or that is there twice.
fn windows(recordings: &[Recording], pad_s: f64) -> Result<Vec<Vec<f64>>> {
    if !(0.0..=0.1).contains(&pad_s) {
        return Err(Error::parameter("window pad (s)", pad_s, "it must be 0 to 0.1"));
    }
    let mut places: Vec<&Interferometer> = Vec::new();
    for recording in recordings {
        let place = interferometer::by_name(&recording.detector).ok_or_else(|| {
            let known: Vec<&str> = interferometer::ALL.iter().map(|one| one.name).collect();
            let (path, known) = (recording.path.display(), known.join(", "));
            match recording.detector.as_str() {
                "" => {
                    let rule =
                        format!("{path} does not say whose it is; say NAME=FILE, of {known}");
                    Error::parameter("detector", "not named", rule)
                }
                other => {
                    let rule = format!("{path} is its recording, and known are {known}");
                    Error::parameter("detector", other, rule)
                }
            }
        })?;
        if places.iter().any(|other| other.name == place.name) {
            let rule =
                "it is there twice; files of one detector are joined when they are given as one";
            return Err(Error::parameter("detector", place.name, rule));
        }
        places.push(place);
    }
    let row = |own: &&Interferometer| {
        places.iter().map(|other| own.light_travel_s(other) + pad_s).collect()
    };
    Ok(places.iter().map(row).collect())
}

/// All banks must have the same templates.
fn check_templates(detectors: &[Ready]) -> Result<()> {
    let Some((first, rest)) = detectors.split_first() else {
        return Err(Error::parameter("detectors", 0, "there must be at least one recording"));
    };
    rest.iter().try_for_each(|other| {
        let names = [&first.recording.detector, &other.recording.detector].map(String::as_str);
        check_same(names, [&first.bank.templates, &other.bank.templates])
    })
}

/// Fails, and says where, unless two detectors' banks have the same templates in the same order.
fn check_same(detectors: [&str; 2], templates: [&[BankTemplate]; 2]) -> Result<()> {
    let [first, other] = templates;
    let rule = |first: &str| {
        let [one, two] = detectors;
        format!("{two} must have the same templates in the same order as {one}, which has {first}")
    };
    if first.len() != other.len() {
        return Err(Error::parameter("templates", other.len(), rule(&first.len().to_string())));
    }
    let mut pairs = first.iter().zip(other).enumerate();
    match pairs.find(|(_, (a, b))| a.name != b.name || a.binary != b.binary) {
        Some((index, (a, b))) => {
            let found = format!("{} at index {index}", told(b));
            Err(Error::parameter("template", found, rule(&told(a))))
        }
        None => Ok(()),
    }
}

/// A template's name, and its binary where it has one.
fn told(template: &BankTemplate) -> String {
    let name = &template.name;
    template.binary.map_or_else(
        || name.clone(),
        |Binary { mass1_msun, mass2_msun, spin1z, spin2z }| {
            format!("{name} (masses {mass1_msun} and {mass2_msun}, spins {spin1z} and {spin2z})")
        },
    )
}
