//! One detector: strain in, whitened strain, signal-to-noise ratios and triggers out, in blocks of any length.

use std::collections::VecDeque;

use num_complex::Complex;

use super::latency::Latency;
use super::need::Need;
use super::work::{Ratios, Work};
use crate::backend::Backend;
use crate::error::{Error, Result};
use crate::spiir::bank::{Bank, BankTemplate};
use crate::spiir::coincidence::segments::Builder;
use crate::spiir::coincidence::{Segments, TimedTrigger};
use crate::spiir::trigger::{Autocorrelation, Trigger, TriggerOptions};
use crate::spiir::whiten::{self, Whitener};
use crate::state::{Saved, Saving};
use crate::units::Gps;
use crate::view::check_length;

/// What one detector's chain does.
#[derive(Clone, Debug)]
pub struct DetectorOptions {
    /// How its strain is whitened.
    pub whitening: whiten::Options,
    /// Least ratio of a trigger.
    pub threshold: f32,
    /// A trigger is the greatest of its template within this many seconds before it and after it.
    pub window_s: f64,
    /// Triggers this close to a gate, in seconds, are dropped.
    pub gate_pad_s: f64,
}

/// A piece of what a detector's chain makes on its way; samples count from the stream's first.
#[derive(Clone, Copy, Debug)]
pub enum Piece<'a> {
    /// Whitened strain.
    Whitened {
        /// Number of the first sample.
        first: u64,
        /// The samples.
        samples: &'a [f32],
        /// Which of them are untouched by gates.
        valid: &'a [bool],
    },
    /// Signal-to-noise ratios, axes template, time; none where they stay on a GPU.
    Ratios {
        /// Number of the first sample.
        first: u64,
        /// Their rows.
        z: &'a [Complex<f32>],
        /// Elements from row to row.
        stride: usize,
        /// Samples of each row.
        times: usize,
    },
}

/// Strain of one detector, whitened, filtered with a bank, and searched for peaks.
///
/// | step      | does                                                                          |
/// |-----------|-------------------------------------------------------------------------------|
/// | whitening | gates what is bad, and scales every frequency to unit noise                   |
/// | filters   | `spiir::Spiir`: signal-to-noise ratios of every template                       |
/// | triggers  | peaks of each template's ratio, their times between samples, and xi-squared   |
///
/// Each step keeps what it needs of the past, so a stream may come in blocks of any length; [`ChirpDetector::latency`]
/// says how far the triggers lag behind.
///
/// # Numerics
/// The same bits for any split into blocks and any number of threads at one vector level.
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
    /// Flags of whitened samples whose ratios are not known yet.
    waiting: VecDeque<bool>,
    z_valid: Vec<bool>,
    /// Samples whitened, and samples filtered.
    counts: (u64, u64),
    segments: Builder,
    triggers: Vec<Trigger>,
}

impl ChirpDetector {
    /// A chain for a stream whose first sample is at `start`.
    ///
    /// # Errors
    /// [`Error::Parameter`] when the bank was made for another rate than the strain's; whatever the steps report of
    /// their options.
    pub fn new(
        start: Gps,
        bank: &Bank,
        options: &DetectorOptions,
        backend: &Backend,
    ) -> Result<Self> {
        Self::showing(true, (start, bank), options, backend)
    }

    /// As [`ChirpDetector::new`], for who wants triggers: observers need not be shown ratios, so that on a GPU these stay in
    /// its memory. There triggers come back while later strain is searched: [`ChirpDetector::settle`] waits for them.
    ///
    /// # Errors
    /// As [`ChirpDetector::new`].
    pub fn of_triggers(
        start: Gps,
        bank: &Bank,
        options: &DetectorOptions,
        backend: &Backend,
    ) -> Result<Self> {
        Self::showing(false, (start, bank), options, backend)
    }

    fn showing(
        shown: bool,
        (start, bank): (Gps, &Bank),
        options: &DetectorOptions,
        backend: &Backend,
    ) -> Result<Self> {
        let rate_hz = options.whitening.rate_hz;
        check_rate(bank, rate_hz)?;
        let whitener = Whitener::new(options.whitening.clone())?;
        let autocorrelation = |template: &BankTemplate| Autocorrelation {
            values: template.autocorrelation.clone(),
            norm: template.autocorrelation_norm,
        };
        let autocorrelations: Vec<Autocorrelation> =
            bank.templates.iter().map(autocorrelation).collect();
        let triggers = TriggerOptions {
            rate_hz,
            threshold: options.threshold,
            window_s: options.window_s,
            gate_pad_s: options.gate_pad_s,
        };
        let work = Work::new(bank.plan()?, (&triggers, &autocorrelations), backend, shown)?;
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
            segments: Builder::new(start, rate_hz),
            triggers: Vec::new(),
        })
    }

    /// Samples that are worked on at once, at most.
    pub(super) fn piece(&self) -> usize {
        self.work.piece()
    }

    /// The memory that it takes on the host, its bank's included.
    pub fn need(&self) -> Need {
        let work = self.work.need();
        // Whitened samples, their flags, and the flags that wait.
        let sample = work.sample + size_of::<f32>() + 3;
        Need { held: self.bank_bytes + self.whitener.held_bytes() + work.held, sample }
    }

    /// Makes it work on at most so many samples at once, before the first; results stay the same.
    pub fn limit(&mut self, samples: usize) {
        self.work.limit(samples);
        let piece = self.work.piece();
        self.whitened = vec![0.0; piece];
        self.whitened_valid = vec![false; piece];
    }

    /// How far triggers lag behind the strain.
    pub fn latency(&self) -> Latency {
        let seconds = |samples: usize| samples as f64 / f64::from(self.rate_hz);
        let (filters, search) = self.work.latencies();
        Latency {
            whitening_s: seconds(self.whitener.latency()),
            resampling_s: seconds(filters),
            triggers_s: seconds(search),
        }
    }

    /// Triggers so far, by sample, then by template.
    pub fn triggers(&self) -> &[Trigger] {
        &self.triggers
    }

    /// The spectrum that strain is whitened with now, once it is known.
    pub fn psd(&self) -> Option<crate::math::power_spectrum::PowerSpectrum> {
        self.whitener.psd()
    }

    /// Takes strain; `observe` is shown what is made of it.
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

    /// Ends the stream, as if nothing but silence followed.
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

    /// Waits for what is under way on a GPU: [`ChirpDetector::triggers`] are then all that are certain by now.
    ///
    /// # Errors
    /// [`Error::Device`] when any of it failed.
    pub fn settle(&mut self) -> Result<()> {
        self.work.settle(&mut self.triggers)
    }

    /// Saves what is kept of a stream that has not ended, but for the triggers, and says whether it can: the reference can't.
    /// To be called when all is [settled](Self::settle).
    ///
    /// # Errors
    /// [`Error::Device`] when earlier work on a GPU failed; [`Error::Unavailable`] when triggers are on their way from it.
    pub fn save(&self, to: &mut Saving) -> Result<bool> {
        to.part("chain");
        to.number(self.counts.0);
        to.number(self.counts.1);
        to.flags(self.waiting.iter().copied());
        self.segments.save(to);
        self.whitener.save(to);
        self.work.save(to)
    }

    /// Goes on where a chain of the same bank, options and backend was saved, with the triggers that it had then.
    ///
    /// # Errors
    /// [`Error::Format`] for what such a chain does not save; [`Error::Device`] when a GPU's driver refuses.
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
        self.work.load(from, self.counts)?;
        if let Some(bad) =
            triggers.iter().find(|one| one.template as usize >= self.peak_offsets_s.len())
        {
            return Err(from.fault("template of a trigger", format!("{} found", bad.template)));
        }
        self.triggers = triggers;
        Ok(())
    }

    /// A trigger with its time.
    pub(super) fn timed(&self, trigger: &Trigger) -> TimedTrigger {
        let offset_s = self.peak_offsets_s[trigger.template as usize];
        TimedTrigger::new(trigger, self.start, self.rate_hz, offset_s)
    }

    /// Ends the chain: its triggers with their times, and when there could have been some.
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

    /// Looks for peaks in the first `times` of each template's ratios.
    fn find(&mut self, times: usize, observe: &mut dyn FnMut(Piece<'_>)) -> Result<()> {
        if times == 0 {
            return Ok(());
        }
        self.z_valid.clear();
        self.z_valid.extend(self.waiting.drain(..times));
        if let Some(Ratios { z, stride }) = self.work.ratios() {
            observe(Piece::Ratios { first: self.counts.1, z, stride, times });
        }
        self.counts.1 += times as u64;
        self.segments.push(&self.z_valid);
        self.work.find(&self.z_valid, &mut self.triggers)
    }
}

/// A bank works at its own rate only.
pub(super) fn check_rate(bank: &Bank, rate_hz: u32) -> Result<()> {
    if bank.rate_hz == rate_hz {
        return Ok(());
    }
    let rule = format!("the bank was made for strain of {} Hz", bank.rate_hz);
    Err(Error::parameter("rate of the strain (Hz)", rate_hz, rule))
}
