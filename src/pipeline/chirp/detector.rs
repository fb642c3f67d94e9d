//! One detector: strain in, whitened strain, signal-to-noise ratios and triggers out, in blocks of any length.

use std::collections::VecDeque;

use num_complex::Complex;

use super::latency::Latency;
use crate::array::{check_length, check_memory};
use crate::backend::Backend;
use crate::error::{Error, Result};
use crate::spiir::Spiir;
use crate::spiir::bank::{Bank, BankTemplate};
use crate::spiir::coincidence::segments::Builder;
use crate::spiir::coincidence::{Segments, TimedTrigger};
use crate::spiir::trigger::{Autocorrelation, Finder, Trigger, TriggerOptions};
use crate::spiir::whiten::{self, Whitener};
use crate::units::Gps;

/// Bytes of signal-to-noise ratios that are made at once.
const PLANE_BYTES: usize = 16 << 20;
/// Samples that are filtered at once: at least, and at most.
const PIECES: (usize, usize) = (256, 1 << 14);

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
    /// Signal-to-noise ratios, axes template, time.
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
/// | filters   | [`Spiir`]: signal-to-noise ratios of every template                           |
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
    whitener: Whitener,
    spiir: Spiir,
    finder: Finder,
    /// Samples filtered at once.
    piece: usize,
    whitened: Vec<f32>,
    whitened_valid: Vec<bool>,
    z: Vec<Complex<f32>>,
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
        let rate_hz = options.whitening.rate_hz;
        check_rate(bank, rate_hz)?;
        let whitener = Whitener::new(options.whitening.clone())?;
        let spiir = Spiir::new(bank.plan()?, backend)?;
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
        let finder = Finder::new(&triggers, &autocorrelations)?;
        let ratio = size_of::<Complex<f32>>();
        let templates = bank.templates.len();
        let piece = (PLANE_BYTES / ratio / templates.max(1)).clamp(PIECES.0, PIECES.1);
        check_memory(
            "a piece of all templates' signal-to-noise ratios",
            templates.checked_mul(piece * ratio),
        )?;
        Ok(Self {
            start,
            rate_hz,
            gate_pad_s: options.gate_pad_s,
            peak_offsets_s: bank.templates.iter().map(|one| one.peak_offset_s).collect(),
            whitener,
            spiir,
            finder,
            piece,
            whitened: vec![0.0; piece],
            whitened_valid: vec![false; piece],
            z: vec![Complex::default(); templates * piece],
            waiting: VecDeque::new(),
            z_valid: Vec::new(),
            counts: (0, 0),
            segments: Builder::new(start, rate_hz),
            triggers: Vec::new(),
        })
    }

    /// How far triggers lag behind the strain.
    pub fn latency(&self) -> Latency {
        let seconds = |samples: usize| samples as f64 / f64::from(self.rate_hz);
        Latency {
            whitening_s: seconds(self.whitener.latency()),
            resampling_s: seconds(self.spiir.plan().latency()),
            triggers_s: seconds(self.finder.latency()),
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
        for (strain, valid) in strain.chunks(self.piece).zip(valid.chunks(self.piece)) {
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
            let produced = self.spiir.flush(&mut self.z, self.piece)?;
            if produced == 0 {
                break;
            }
            self.find(produced, observe)?;
        }
        self.finder.flush(&mut self.triggers);
        Ok(())
    }

    /// Ends the chain: its triggers with their times, and when there could have been some.
    pub fn finish(self) -> (Vec<TimedTrigger>, Segments) {
        let timed = |trigger: &Trigger| {
            let offset_s = self.peak_offsets_s[trigger.template as usize];
            TimedTrigger::new(trigger, self.start, self.rate_hz, offset_s)
        };
        let triggers = self.triggers.iter().map(timed).collect();
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
        let produced = self.spiir.run(samples, &mut self.z, self.piece)?.produced;
        self.find(produced, observe)
    }

    /// Looks for peaks in the first `times` of each template's ratios.
    fn find(&mut self, times: usize, observe: &mut dyn FnMut(Piece<'_>)) -> Result<()> {
        if times == 0 {
            return Ok(());
        }
        self.z_valid.clear();
        self.z_valid.extend(self.waiting.drain(..times));
        let (z, stride) = (&self.z, self.piece);
        observe(Piece::Ratios { first: self.counts.1, z, stride, times });
        self.counts.1 += times as u64;
        self.segments.push(&self.z_valid);
        self.finder.run(z, stride, times, &self.z_valid, &mut self.triggers)
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
