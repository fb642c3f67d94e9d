//! How late the wave reaches an antenna at each spectrum, in whole samples and to the last phase.
//!
//! Invariant: a spectrum's delay depends on its number alone.

use crate::geometry::{DelayModel, DelayPolynomial};

/// More samples than any recording has.
const FARTHEST: f64 = 1e15;

/// What is known of delays.
#[derive(Clone, Debug)]
pub(super) enum Model {
    /// There are none.
    None,
    /// Those of a phase centre and of cables, from the common start on.
    Fitted(DelayModel),
    /// One polynomial an antenna, and the seconds from its start to the common start.
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

/// A delay, and the whole samples by which a spectrum's samples are taken later.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Delay {
    pub(super) delay_s: f64,
    pub(super) shift: i64,
}

impl Delays {
    /// Of spectra with samples `s hop` to `s hop + span`.
    pub(super) fn new(model: Model, tsamp_s: f64, (hop, span): (u64, u64)) -> Self {
        Self { model, tsamp_s, hop, span }
    }

    /// Seconds by which an antenna's samples are taken later that are `late` by themselves.
    pub(super) fn shift_s(&self, shift: i64, late: f64) -> f64 {
        (shift as f64 + late) * self.tsamp_s
    }

    /// The delay in the middle of the window over the samples that are taken, of an antenna whose samples are
    /// those of a moment `late` samples later.
    pub(super) fn at(&self, antenna: usize, late: f64, spectrum: u64) -> Delay {
        let middle = (spectrum * self.hop) as f64 + 0.5 * self.span as f64;
        let delay_s = |shift: f64| self.delay_s(antenna, (middle + shift + late) * self.tsamp_s);
        // The first guess is the reference point's time, and the delay changes little until the antenna's.
        let shift = self.samples(delay_s(self.samples(delay_s(0.0), late)), late);
        Delay { delay_s: delay_s(shift), shift: shift as i64 }
    }

    /// The nearest whole number of samples.
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
