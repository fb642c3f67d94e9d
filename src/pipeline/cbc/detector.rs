//! Processing chain of one detector: strain to whitened strain, signal-to-noise ratios and triggers, in blocks of any
//! length.

use std::collections::VecDeque;

use num_complex::Complex;

use super::need::Need;
use super::work::Work;
use crate::backend::Backend;
use crate::error::{Error, Result};
use crate::spiir::bank::Bank;
use crate::spiir::coincidence::SegmentsBuilder;
use crate::spiir::coincidence::{Segments, TimedTrigger};
use crate::spiir::trigger::{Ratios, Trigger, TriggerOptions};
use crate::spiir::whiten::{self, Whitener};
use crate::state::{Saved, Saving};
use crate::units::Gps;
use crate::view::check_length;

/// Options of one detector's processing chain.
#[derive(Clone, Debug)]
pub struct DetectorOptions {
    /// Whitening options.
    pub whitening: whiten::Options,
    /// Lowest signal-to-noise ratio of a trigger.
    pub threshold: f32,
    /// Half-width in seconds of the window within which a trigger must be its template's maximum.
    pub window_s: f64,
    /// Triggers this close to a gate, in seconds, are dropped.
    pub gate_pad_s: f64,
}

/// Intermediate output of a detector's chain; samples count from the stream's first.
#[derive(Clone, Copy, Debug)]
pub enum Piece<'a> {
    /// Whitened strain.
    Whitened {
        /// Number of the first sample.
        first: u64,
        /// The samples.
        samples: &'a [f32],
        /// Whether each sample is unaffected by gates.
        valid: &'a [bool],
    },
    /// Signal-to-noise ratios, axes template, time; not produced if they stay on a GPU.
    Ratios {
        /// Number of the first sample.
        first: u64,
        /// Rows of ratios.
        z: &'a [Complex<f32>],
        /// Elements between rows.
        stride: usize,
        /// Samples per row.
        times: usize,
    },
}

/// Processing chain of one detector: whitening, matched filters of a bank, and peak search.
///
/// | step      | does                                                                          |
/// |-----------|-------------------------------------------------------------------------------|
/// | whitening | gates bad data, and scales every frequency to unit noise                      |
/// | filters   | `spiir::Spiir`: signal-to-noise ratios of every template                      |
/// | triggers  | peaks of each template's ratio, interpolated in time, and xi-squared          |
///
/// Each step stores the history that it needs, so a stream may arrive in blocks of any length;
/// [`ChirpDetector::latency`] returns the delay of the triggers.
///
/// # Numerics
/// The same bits for any split into blocks and any number of threads at one SIMD level.
#[derive(Debug)]
pub struct ChirpDetector {
    start: Gps,
    rate_hz: u32,
    gate_pad_s: f64,
    peak_offsets_s: Vec<f64>,
    bank_bytes: usize,
    whitener: Whitener,
    work: Work,
    whitened: Vec<f32>,
    whitened_valid: Vec<bool>,
    /// Valid flags of whitened samples whose ratios are not computed yet.
    waiting: VecDeque<bool>,
    z_valid: Vec<bool>,
    /// Number of samples whitened and of samples filtered.
    counts: (u64, u64),
    segments: SegmentsBuilder,
    triggers: Vec<Trigger>,
}

impl ChirpDetector {
    /// Builds a chain for a stream whose first sample is at `start`.
    ///
    /// # Errors
    /// [`Error::Parameter`] when the bank's rate differs from the strain's; errors of the steps' options.
    pub fn new(
        start: Gps,
        bank: &Bank,
        options: &DetectorOptions,
        backend: &Backend,
    ) -> Result<Self> {
        Self::showing(true, start, bank, options, backend)
    }

    /// Like [`ChirpDetector::new`], for triggers only: observers do not receive ratios, so that a GPU keeps them in
    /// its memory. On a GPU, triggers arrive while later strain is processed; [`ChirpDetector::settle`] waits for
    /// them.
    ///
    /// # Errors
    /// As [`ChirpDetector::new`].
    pub fn of_triggers(
        start: Gps,
        bank: &Bank,
        options: &DetectorOptions,
        backend: &Backend,
    ) -> Result<Self> {
        Self::showing(false, start, bank, options, backend)
    }

    fn showing(
        shown: bool,
        start: Gps,
        bank: &Bank,
        options: &DetectorOptions,
        backend: &Backend,
    ) -> Result<Self> {
        let rate_hz = options.whitening.rate_hz;
        check_rate(bank, rate_hz)?;
        let whitener = Whitener::new(options.whitening.clone())?;
        let plan = bank.plan()?;
        let search = bank.trigger_plan(TriggerOptions {
            rate_hz,
            threshold: options.threshold,
            window_s: options.window_s,
            gate_pad_s: options.gate_pad_s,
        })?;
        let work = Work::new(plan, search, backend, shown)?;
        let piece = work.piece();
        Ok(Self {
            start,
            rate_hz,
            gate_pad_s: options.gate_pad_s,
            peak_offsets_s: bank.templates.iter().map(|one| one.peak_offset_s).collect(),
            bank_bytes: bank.held_bytes(),
            whitener,
            work,
            whitened: vec![0.0; piece],
            whitened_valid: vec![false; piece],
            waiting: VecDeque::new(),
            z_valid: Vec::new(),
            counts: (0, 0),
            segments: SegmentsBuilder::new(start, rate_hz),
            triggers: Vec::new(),
        })
    }

    /// Returns the largest number of samples processed at once.
    pub(super) fn piece(&self) -> usize {
        self.work.piece()
    }

    /// Returns the host memory of the chain, including the bank.
    pub fn need(&self) -> Need {
        let work = self.work.need();
        // Whitened samples, their flags, and the queued flags.
        let sample = work.sample + size_of::<f32>() + 3;
        Need { held: self.bank_bytes + self.whitener.held_bytes() + work.held, sample }
    }

    /// Limits the samples processed at once; call it before the first sample. Results do not depend on it.
    pub fn limit(&mut self, samples: usize) {
        self.work.limit(samples);
        let piece = self.work.piece();
        self.whitened = vec![0.0; piece];
        self.whitened_valid = vec![false; piece];
    }

    /// Returns the delay of triggers relative to the strain.
    pub fn latency(&self) -> Latency {
        let seconds = |samples: usize| samples as f64 / f64::from(self.rate_hz);
        Latency {
            whitening_s: seconds(self.whitener.latency()),
            resampling_s: seconds(self.work.filter_latency()),
            triggers_s: seconds(self.work.search_latency()),
        }
    }

    /// Returns the triggers so far, by sample, then by template.
    pub fn triggers(&self) -> &[Trigger] {
        &self.triggers
    }

    /// Returns the spectrum in use for whitening, once it is known.
    pub fn psd(&self) -> Option<crate::math::PowerSpectrum> {
        self.whitener.psd()
    }

    /// Processes strain; `observe` receives the intermediate output.
    ///
    /// # Errors
    /// [`Error::Shape`] when the slices differ in length.
    pub fn run(
        &mut self,
        strain: &[f64],
        valid: &[bool],
        observe: &mut dyn FnMut(Piece<'_>),
    ) -> Result<()> {
        check_length("flags of valid samples", strain.len(), valid.len())?;
        let piece = self.work.piece();
        for (strain, valid) in strain.chunks(piece).zip(valid.chunks(piece)) {
            let output = &mut self.whitened[..strain.len()];
            let output_valid = &mut self.whitened_valid[..strain.len()];
            let produced = self.whitener.run(strain, valid, output, output_valid)?.produced;
            self.filter(produced, observe)?;
        }
        Ok(())
    }

    /// Ends the stream as if silence followed.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn flush(&mut self, observe: &mut dyn FnMut(Piece<'_>)) -> Result<()> {
        loop {
            let produced = self.whitener.flush(&mut self.whitened, &mut self.whitened_valid)?;
            if produced == 0 {
                break;
            }
            self.filter(produced, observe)?;
        }
        loop {
            let produced = self.work.filter_end()?;
            if produced == 0 {
                break;
            }
            self.find(produced, observe)?;
        }
        self.work.finish(&mut self.triggers)
    }

    /// Waits for enqueued GPU work, so that [`ChirpDetector::triggers`] returns all triggers that are final.
    ///
    /// # Errors
    /// [`Error::Device`] when any of it failed.
    pub fn settle(&mut self) -> Result<()> {
        self.work.settle(&mut self.triggers)
    }

    /// Saves the state of an unfinished stream without its triggers; returns false for the reference backend, which
    /// cannot be saved. Call it after [`Self::settle`].
    ///
    /// # Errors
    /// [`Error::Device`] when earlier work on a GPU failed; [`Error::Unavailable`] when triggers of a GPU are
    /// outstanding.
    pub fn save(&self, to: &mut Saving) -> Result<bool> {
        to.part("chain");
        to.number(self.counts.0);
        to.number(self.counts.1);
        to.flags(self.waiting.iter().copied());
        self.segments.save(to);
        self.whitener.save(to);
        self.work.save(to)
    }

    /// Restores the state of a chain with the same bank, options and backend, and the triggers it had.
    ///
    /// # Errors
    /// [`Error::Format`] for a state that no such chain saves; [`Error::Device`] when a GPU's driver refuses.
    pub fn load(&mut self, from: &mut Saved<'_>, triggers: Vec<Trigger>) -> Result<()> {
        from.part("chain")?;
        self.counts = (from.number()?, from.number()?);
        let Some(waiting) = self.counts.0.checked_sub(self.counts.1) else {
            return Err(from.fault("samples filtered", format!("{:?}", self.counts)));
        };
        self.waiting = from.flags(usize::try_from(waiting).unwrap_or(usize::MAX))?.into();
        if self.waiting.len() as u64 != waiting {
            return Err(from.fault("flags", format!("{} of {waiting} found", self.waiting.len())));
        }
        self.segments.load(from, self.counts.1)?;
        self.whitener.load(from)?;
        self.work.load(from, self.counts.0, self.counts.1)?;
        if let Some(bad) =
            triggers.iter().find(|one| one.template as usize >= self.peak_offsets_s.len())
        {
            return Err(from.fault("template of a trigger", format!("{} found", bad.template)));
        }
        self.triggers = triggers;
        Ok(())
    }

    /// Returns a trigger with its time.
    pub(super) fn timed(&self, trigger: &Trigger) -> TimedTrigger {
        let offset_s = self.peak_offsets_s[trigger.template as usize];
        TimedTrigger::new(trigger, self.start, self.rate_hz, offset_s)
    }

    /// Ends the chain; returns its triggers with their times, and the segments in which triggers were possible.
    pub fn finish(self) -> (Vec<TimedTrigger>, Segments) {
        let triggers = self.triggers.iter().map(|trigger| self.timed(trigger)).collect();
        let mut offsets = self.peak_offsets_s.clone();
        offsets.sort_by(f64::total_cmp);
        let usual_s = offsets.get(offsets.len() / 2).copied().unwrap_or(0.0);
        let segments = self.segments.finish().shrunk(self.gate_pad_s).later(usual_s);
        (triggers, segments)
    }

    /// Filters the first `count` whitened samples.
    fn filter(&mut self, count: usize, observe: &mut dyn FnMut(Piece<'_>)) -> Result<()> {
        let (samples, valid) = (&self.whitened[..count], &self.whitened_valid[..count]);
        if count > 0 {
            observe(Piece::Whitened { first: self.counts.0, samples, valid });
        }
        self.waiting.extend(valid);
        self.counts.0 += count as u64;
        let produced = self.work.filter(samples)?;
        self.find(produced, observe)
    }

    /// Searches for peaks in the first `times` of each template's ratios.
    fn find(&mut self, times: usize, observe: &mut dyn FnMut(Piece<'_>)) -> Result<()> {
        if times == 0 {
            return Ok(());
        }
        self.z_valid.clear();
        self.z_valid.extend(self.waiting.drain(..times));
        if let Some(Ratios { z, stride, times }) = self.work.ratios(times) {
            observe(Piece::Ratios { first: self.counts.1, z, stride, times });
        }
        self.counts.1 += times as u64;
        self.segments.push(&self.z_valid);
        self.work.find(&self.z_valid, &mut self.triggers)
    }
}

/// Checks that the strain has the bank's sample rate.
pub(super) fn check_rate(bank: &Bank, rate_hz: u32) -> Result<()> {
    if bank.rate_hz == rate_hz {
        return Ok(());
    }
    let rule = format!("the bank was made for strain of {} Hz", bank.rate_hz);
    Err(Error::parameter("rate of the strain (Hz)", rate_hz, rule))
}

/// Delay of each stage, in seconds of data.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Latency {
    /// Whitener: samples required after one before it is whitened.
    pub whitening_s: f64,
    /// Filter bank: alignment of its sample rates.
    pub resampling_s: f64,
    /// Peak search: the window around a peak, its autocorrelation, gates that may follow.
    pub triggers_s: f64,
}

impl Latency {
    /// Returns the total delay.
    pub fn total_s(&self) -> f64 {
        self.whitening_s + self.resampling_s + self.triggers_s
    }
}
