//! Options of a search, its whitening, and its observers.

use std::sync::PoisonError;
use std::thread;

use super::strain::Strain;
use crate::error::{Error, Result};
use crate::math::PowerSpectrum;
use crate::spiir::coincidence::{self, Ranking, Sample, TimedTrigger};
use crate::spiir::trigger::Trigger;
use crate::spiir::whiten::{self, GateOptions, Method, Psd, RunningOptions, WelchOptions};
use crate::trace::{self, Work};

/// Options of a search.
#[derive(Clone, Debug)]
pub struct SearchOptions {
    /// Whitening of the strain.
    pub whitening: Whitening,
    /// Lowest signal-to-noise ratio of a trigger.
    pub threshold: f32,
    /// Half-width in seconds of the window within which a trigger must be its template's maximum.
    pub window_s: f64,
    /// Distance from a gate, in seconds, within which triggers are dropped.
    pub gate_pad_s: f64,
    /// Pad added to the light travel time between two detectors, in seconds.
    pub window_pad_s: f64,
    /// Number of time slides for the background.
    pub slides: usize,
    /// Interval of the slides in seconds.
    pub slide_interval_s: f64,
    /// Time in seconds within which events are merged.
    pub cluster_s: f64,
    /// Ranking statistic of events.
    pub ranking: Ranking,
    /// Triggers that form the background.
    pub background: Sample,
    /// Samples per block; 0 selects automatically. Results do not depend on it.
    pub block: usize,
    /// Limit in bytes on the host memory of filters and blocks; `None` sets no limit. Results do not depend on it.
    pub memory: Option<u64>,
}

impl SearchOptions {
    /// Returns the coincidence options for these windows.
    pub(super) fn coincidence(&self, windows_s: Vec<Vec<f64>>) -> coincidence::Options {
        coincidence::Options {
            slides: self.slides,
            slide_interval_s: self.slide_interval_s,
            cluster_s: self.cluster_s,
            ranking: self.ranking,
            background: self.background,
            ..coincidence::Options::new(windows_s)
        }
    }
}

/// Progress of a search.
#[derive(Clone, Copy, Debug)]
pub struct Status {
    /// Samples searched, over all detectors.
    pub times: u64,
    /// Total number of samples.
    pub total: u64,
}

/// Receiver of a search's progress and results.
pub trait SearchObserver {
    /// Receives the progress; returning false stops the search.
    fn at(&mut self, status: &Status) -> bool;

    /// Receives a detector's triggers as they become final, each with its time; `detector` is the index in the given
    /// order.
    ///
    /// # Errors
    /// Any error ends the search.
    fn found(&mut self, detector: usize, triggers: &[(Trigger, TimedTrigger)]) -> Result<()> {
        let _ = (detector, triggers);
        Ok(())
    }

    /// Returns whether to save a state now; [`SearchObserver::save`] then receives it.
    fn is_due(&mut self) -> bool {
        false
    }

    /// Receives a state for [`ChirpSearch::resume`](super::ChirpSearch::resume), after all triggers found by then.
    ///
    /// # Errors
    /// Any error ends the search.
    fn save(&mut self, state: Vec<u8>) -> Result<()> {
        let _ = state;
        Ok(())
    }
}

/// Source of the power spectrum.
#[derive(Clone, Debug, PartialEq)]
pub enum Spectrum {
    /// Given in advance.
    Given(PowerSpectrum),
    /// Welch's method over the whole recording.
    Welch(WelchOptions),
    /// Running estimate that tracks the noise; templates are whitened with Welch's spectrum of the whole recording.
    Running(RunningOptions, WelchOptions),
    /// Given in advance for templates and the start; the whitener's estimate then tracks the noise with earlier samples
    /// only.
    Causal(PowerSpectrum, RunningOptions),
}

/// Whitening of strain.
#[derive(Clone, Debug, PartialEq)]
pub struct Whitening {
    /// Power spectrum.
    pub spectrum: Spectrum,
    /// Method of the whitening filter.
    pub method: Method,
    /// Gates for loud glitches; `None` disables them.
    pub gate: Option<GateOptions>,
}

impl Whitening {
    /// Returns [`Self::spectrum`] of each recording, all estimated at the same time.
    pub fn spectra(&self, strain: &[Strain]) -> Vec<Result<PowerSpectrum>> {
        thread::scope(|scope| {
            let begin = |one| scope.spawn(move || self.spectrum(one));
            let running: Vec<_> = strain.iter().map(begin).collect();
            let ended = running.into_iter().map(thread::ScopedJoinHandle::join);
            ended.map(|one| one.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
        })
    }

    /// Returns the power spectrum for whitening the templates. For strain that cannot be read to its end, it is the
    /// spectrum of the readable part. The strain remembers it, so that only the first call reads.
    ///
    /// # Errors
    /// As [`whiten::welch`], naming the recording; errors of the source when nothing can be read.
    pub fn spectrum(&self, strain: &Strain) -> Result<PowerSpectrum> {
        let welch = match &self.spectrum {
            Spectrum::Given(psd) | Spectrum::Causal(psd, _) => return Ok(psd.clone()),
            Spectrum::Welch(welch) | Spectrum::Running(_, welch) => welch,
        };
        let mut known = strain.known.lock().unwrap_or_else(PoisonError::into_inner);
        match &*known {
            Some((options, psd)) if options == welch => return Ok(psd.clone()),
            _ => {}
        }
        let psd = estimated(strain, welch)?;
        *known = Some((*welch, psd.clone()));
        Ok(psd)
    }

    /// Returns the whitener's options for the recording's spectrum and a bank's lowest frequency.
    pub fn options(&self, rate_hz: u32, psd: &PowerSpectrum, f_low_hz: f64) -> whiten::Options {
        let psd = match &self.spectrum {
            Spectrum::Running(running, _) => Psd::Running(running.clone()),
            Spectrum::Causal(_, running) => {
                Psd::Running(RunningOptions { initial: Some(psd.clone()), ..running.clone() })
            }
            _ => Psd::Fixed(psd.clone()),
        };
        let usual = match self.method {
            Method::Overlap { .. } => whiten::Options::new(rate_hz, psd),
            Method::MinimumPhase { .. } => whiten::Options::low_latency(rate_hz, psd),
        };
        // Templates start a little below their lowest frequency; the whitener must pass the strain there.
        let f_low_hz = usual.f_low_hz.min(0.9 * f_low_hz);
        whiten::Options { method: self.method, gate: self.gate, f_low_hz, ..usual }
    }
}

/// Estimates the spectrum of strain, or of its readable part.
fn estimated(strain: &Strain, welch: &WelchOptions) -> Result<PowerSpectrum> {
    let _span = trace::span(Work::Compute, "spectrum");
    let of = |strain: &Strain| {
        let (times, rate_hz) = (strain.times, strain.rate_hz);
        whiten::welch_of(&mut |take| strain.for_each(take), times, rate_hz, welch)
    };
    of(strain).or_else(|fault| {
        if matches!(fault, Error::Parameter { .. }) {
            return Err(whose(fault, strain));
        }
        match strain.readable()? {
            0 => Err(fault),
            known => {
                let mut before = strain.clone();
                before.times = known;
                of(&before).map_err(|error| whose(error, strain))
            }
        }
    })
}

/// Adds the recording to an error.
fn whose(error: Error, recording: &Strain) -> Error {
    match error {
        Error::Parameter { name, value, rule } => {
            let (detector, path) = (&recording.detector, recording.path.display());
            Error::Parameter { name, value, rule: format!("{rule}: strain of {detector}, {path}") }
        }
        other => other,
    }
}
