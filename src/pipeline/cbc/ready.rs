//! One detector of a search, from its source to triggers, in steps of any length.

use std::sync::Arc;

use super::bank::{Input, Source, check_length, design_for};
use super::detector::{ChirpDetector, DetectorOptions, Need, Piece};
use super::divided::{Part, SentDetector};
use super::options::SearchOptions;
use super::report::{DetectorReport, Whitened};
use super::strain::{Reader, Strain};
use crate::backend::Backend;
use crate::backend::threads::Threads;
use crate::error::Result;
use crate::math::PowerSpectrum;
use crate::pipeline::exchange::Ranks;
use crate::spiir::bank::Bank;
use crate::spiir::coincidence::{Segments, TimedTrigger};
use crate::spiir::trigger::Trigger;
use crate::state::{Saved, Saving};
use crate::units::Gps;

/// One detector, ready to be searched.
pub(super) struct Ready {
    pub(super) strain: Strain,
    pub(super) bank: Arc<Bank>,
    psd: PowerSpectrum,
    pub(super) chain: ChirpDetector,
    /// Store of whitened strain; set before any strain is processed.
    pub(super) whitened: Whitened,
    reader: Option<Reader>,
    /// Samples searched, and whether the source is exhausted.
    pub(super) taken: u64,
    pub(super) has_ended: bool,
    /// Whether a step failed before it was complete.
    is_broken: bool,
    /// Triggers reported so far.
    reported: usize,
    samples: Vec<f64>,
    valid: Vec<bool>,
}

/// Strain of a detector, its bank, and its whitening spectrum.
pub(super) struct Prepared {
    pub(super) strain: Strain,
    pub(super) bank: Arc<Bank>,
    psd: PowerSpectrum,
}

impl Prepared {
    /// Prepares a detector whose strain has this spectrum; designs the bank if none is given, together with the ranks if there
    /// are any.
    pub(super) fn new(
        strain: Strain,
        input: Input,
        psd: Result<PowerSpectrum>,
        options: &SearchOptions,
        threads: &Threads,
        ranks: Option<&mut Ranks>,
    ) -> Result<Self> {
        let design = |source: &Source, psd| {
            let designed = design_for(source, &strain, psd, &options.whitening, threads, ranks)?;
            Ok((Arc::new(designed.0), designed.1))
        };
        let (bank, psd) = match input {
            Input::Templates(source) => design(&source, psd)?,
            Input::Bank(bank) => {
                check_length(&bank, &strain)?;
                (bank, psd?)
            }
        };
        Ok(Self { strain, bank, psd })
    }
}

impl Ready {
    /// Builds the processing chain for a part of the templates.
    pub(super) fn new(
        Prepared { strain, bank, psd }: Prepared,
        options: &SearchOptions,
        backend: &Backend,
        part: Part,
    ) -> Result<Self> {
        let whitening = &options.whitening;
        let f_low_hz = bank.options.f_low_hz;
        let chain = DetectorOptions {
            whitening: whitening.options(strain.rate_hz, &psd, f_low_hz),
            threshold: options.threshold,
            window_s: options.window_s,
            gate_pad_s: options.gate_pad_s,
        };
        let chain = ChirpDetector::of_part(strain.start, &bank, &chain, backend, part)?;
        Ok(Self {
            strain,
            bank,
            psd,
            chain,
            // One process needs it, to compute the series of events.
            whitened: if part.own == 0 { Whitened::default() } else { Whitened::latest(1) },
            reader: None,
            taken: 0,
            has_ended: false,
            is_broken: false,
            reported: 0,
            samples: Vec::new(),
            valid: Vec::new(),
        })
    }

    /// Returns the host memory.
    pub(super) fn need(&self) -> Need {
        let need = self.chain.need();
        // Strain with its flags as read, and whitened strain being written.
        Need { sample: need.sample + size_of::<f64>() + 1 + 5, ..need }
    }

    /// Describes the missing part of truncated strain.
    pub(super) fn cut(&self) -> Option<String> {
        if self.has_ended && self.taken < self.strain.times {
            let (path, times) = (self.strain.path.display(), self.strain.times);
            return Some(format!("{path}: {} of {times} samples were there", self.taken));
        }
        self.strain.cut().map(str::to_owned)
    }

    /// Searches up to `until` in blocks. `progress` receives the number of samples since its last call and stops the
    /// search by returning false; the result is then `None`.
    pub(super) fn advance(
        &mut self,
        until: Gps,
        block: usize,
        progress: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Option<()>> {
        let distance_ns = i128::from(until.ns) - i128::from(self.strain.start.ns);
        let samples = (distance_ns * i128::from(self.strain.rate_hz)).div_euclid(1_000_000_000);
        let until = u64::try_from(samples).unwrap_or(0).min(self.strain.times);
        while self.taken < until {
            let count = (until - self.taken).min(block as u64) as usize;
            let count = self.step(count)?;
            if count == 0 {
                break;
            }
            if !progress(count as u64) {
                return Ok(None);
            }
        }
        self.has_ended |= self.taken >= self.strain.times;
        Ok(Some(()))
    }

    /// Searches the next samples, at most `most`.
    fn step(&mut self, most: usize) -> Result<usize> {
        if self.reader.is_none() {
            self.reader = Some(self.strain.read_from(self.taken)?);
        }
        let Some(reader) = &mut self.reader else { return Ok(0) };
        if self.samples.len() < most {
            self.samples.resize(most, 0.0);
            self.valid.resize(most, false);
        }
        let count = reader.read(&mut self.samples[..most], &mut self.valid[..most])?;
        if count == 0 {
            self.has_ended = true;
            return Ok(0);
        }
        let (strain, valid) = (&self.samples[..count], &self.valid[..count]);
        self.is_broken = true;
        kept(&mut self.whitened, |observe| self.chain.run(strain, valid, observe))?;
        self.is_broken = false;
        self.taken += count as u64;
        Ok(count)
    }

    /// Returns the final triggers that were not reported yet.
    pub(super) fn new_triggers(&mut self) -> Vec<(Trigger, TimedTrigger)> {
        let new = &self.chain.triggers()[self.reported..];
        let triggers = new.iter().map(|trigger| (*trigger, self.chain.timed(trigger))).collect();
        self.reported = self.chain.triggers().len();
        triggers
    }

    /// Returns the triggers since the last call, for rank 0, and forgets them.
    pub(super) fn hand_over(&mut self) -> SentDetector {
        let decided = self.chain.certain();
        SentDetector { triggers: self.chain.remove(), decided }
    }

    /// Adds the triggers that other ranks have found.
    pub(super) fn receive(&mut self, triggers: &[Trigger]) {
        self.chain.add(triggers);
    }

    /// Returns the sample before which no trigger of this process is missing.
    pub(super) fn certain(&self) -> u64 {
        self.chain.certain()
    }

    /// Ends the stream as if silence followed.
    pub(super) fn flush(&mut self) -> Result<()> {
        self.reader = None;
        kept(&mut self.whitened, |observe| self.chain.flush(observe))
    }

    /// Returns the detector's results; only those before the sample `end`, if there is one.
    pub(super) fn report(mut self, end: Option<u64>) -> DetectorReport {
        let latency = self.chain.latency();
        let (start, rate_hz) = (self.strain.start, self.strain.rate_hz);
        if let Some(end) = end {
            let mut triggers = self.chain.remove();
            triggers.retain(|trigger| trigger.sample < end);
            self.chain.add(&triggers);
            self.taken = self.taken.min(end);
        }
        let (triggers, mut valid) = self.chain.finish();
        if end.is_some() {
            let whole = Segments::one(start, self.taken as f64 / f64::from(rate_hz));
            valid = Segments::at_least(2, &[&valid, &whole]);
        }
        DetectorReport {
            name: self.strain.detector.clone(),
            start: self.strain.start,
            rate_hz: self.strain.rate_hz,
            duration_s: self.taken as f64 / f64::from(self.strain.rate_hz),
            livetime_s: valid.duration_s(),
            psd: self.psd,
            bank: self.bank,
            triggers,
            valid,
            whitened: self.whitened,
            latency,
        }
    }

    /// Saves the settled state; returns false after a failed step.
    pub(super) fn save(&self, to: &mut Saving) -> Result<bool> {
        if self.is_broken {
            return Ok(false);
        }
        to.part("detector");
        to.number(self.taken);
        to.number(self.reported as u64);
        to.number(self.whitened.times());
        self.chain.save(to)
    }

    /// Restores a saved state and the triggers reported by then; returns the number of whitened samples at that time.
    pub(super) fn load(&mut self, from: &mut Saved<'_>, triggers: Vec<Trigger>) -> Result<u64> {
        from.part("detector")?;
        self.taken = from.number()?;
        if self.taken > self.strain.times {
            let why = format!("{} searched of {}", self.taken, self.strain.times);
            return Err(from.fault("samples", why));
        }
        from.expect("triggers in the journal", triggers.len() as u64)?;
        self.reported = triggers.len();
        let whitened = from.number()?;
        self.chain.load(from, triggers)?;
        Ok(whitened)
    }
}

/// Runs a step of a chain and stores its whitened strain; an error of the store becomes the step's error.
pub(super) fn kept(
    whitened: &mut Whitened,
    step: impl FnOnce(&mut dyn FnMut(Piece<'_>)) -> Result<()>,
) -> Result<()> {
    let mut fault = Ok(());
    step(&mut |piece| {
        if let (Piece::Whitened { first, samples, valid }, true) = (piece, fault.is_ok()) {
            fault = whitened.skip_to(first).and_then(|()| whitened.push(samples, valid));
        }
    })?;
    fault
}
