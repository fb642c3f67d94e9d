//! Geometric and instrumental delays per antenna and spectrum, in whole samples and in seconds.
//!
//! Invariant: a spectrum's delay depends on its number alone.

use crate::geometry::{DelayModel, DelayPolynomial};

/// Bound on delays in samples; longer than any recording.
const FARTHEST: f64 = 1e15;

/// Delay model.
#[derive(Clone, Debug)]
pub(super) enum Model {
    /// No delays.
    None,
    /// Delays of a phase centre and of cables, from the common start on.
    Fitted(DelayModel),
    /// One polynomial per antenna, and the seconds from its start to the common start.
    Given(Vec<(DelayPolynomial, f64)>),
}

/// Delays of all antennas at all spectra.
#[derive(Clone, Debug)]
pub(super) struct Delays {
    model: Model,
    tsamp_s: f64,
    hop: u64,
    span: u64,
}

/// Delay of a spectrum, and its whole-sample shift: samples are read `shift` later.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Delay {
    pub(super) delay_s: f64,
    pub(super) shift: i64,
}

impl Delays {
    /// Computes delays for spectra that cover samples `s hop` to `s hop + span`.
    pub(super) fn new(model: Model, tsamp_s: f64, (hop, span): (u64, u64)) -> Self {
        Self { model, tsamp_s, hop, span }
    }

    /// Returns the shift in seconds of an antenna whose sampling is offset by `late` samples.
    pub(super) fn shift_s(&self, shift: i64, late: f64) -> f64 {
        (shift as f64 + late) * self.tsamp_s
    }

    /// Returns the delay at the centre of the shifted window, for an antenna whose sampling is offset by `late`
    /// samples.
    pub(super) fn at(&self, antenna: usize, late: f64, spectrum: u64) -> Delay {
        let middle = (spectrum * self.hop) as f64 + 0.5 * self.span as f64;
        let delay_s = |shift: f64| self.delay_s(antenna, (middle + shift + late) * self.tsamp_s);
        // The first estimate uses the reference point's time; the delay changes little until the antenna's own time.
        let shift = self.samples(delay_s(self.samples(delay_s(0.0), late)), late);
        Delay { delay_s: delay_s(shift), shift: shift as i64 }
    }

    /// Returns the delay rounded to whole samples.
    fn samples(&self, delay_s: f64, late: f64) -> f64 {
        (delay_s / self.tsamp_s - late).round().clamp(-FARTHEST, FARTHEST)
    }

    fn delay_s(&self, antenna: usize, seconds: f64) -> f64 {
        match &self.model {
            Model::None => 0.0,
            Model::Fitted(model) => model.at(antenna, seconds),
            Model::Given(all) => {
                let (polynomial, since_s) = &all[antenna];
                polynomial.at(seconds + since_s)
            }
        }
    }
}
