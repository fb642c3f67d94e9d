//! Design of filter banks: a waveform and a power spectrum in, filters with a known match out.

mod assign;
mod chain;
mod check;
mod design;
mod gram;
mod placement;
mod pursuit;
mod solve;
mod spectrum;
mod target;
mod transforms;
mod whitened;

use num_complex::Complex;

use super::plan::resample::Resampler;
use super::plan::{self, Filter, Plan, Template};
use crate::error::{Error, Result};
use crate::math::power_spectrum::PowerSpectrum;
use crate::strain::{Binary, Waveform};
pub use design::{Designer, LeftOut, design};

/// The rates that filters may run at.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rates {
    /// The strain's rate alone.
    Single,
    /// The strain's rate and its halves, each filter at the lowest that holds it.
    Multi {
        /// No branch runs below this rate, in Hz.
        lowest_hz: f64,
    },
}

/// How a bank is designed.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Below this frequency the template is taken as unknown, in Hz.
    pub f_low_hz: f64,
    /// Above this frequency too, in Hz: by default Nyquist's.
    pub f_high_hz: Option<f64>,
    /// How far a filter's phase may run from the template's, in cycles: the first try.
    pub epsilon: f64,
    /// Where in its stretch of the template a filter is tuned, as a part of the stretch before its end.
    pub alpha: f64,
    /// How much a filter decays over its stretch.
    pub beta: f64,
    /// Reserve between a filter's frequency and Nyquist's of its branch.
    pub padding: f64,
    /// The match that is asked for, from 0 to 1.
    pub minimum_match: f64,
    /// A template that reaches less than this match is left out, one between it and what is asked for is kept.
    pub match_floor: f64,
    /// The rates that filters may run at.
    pub rates: Rates,
    /// How rates are halved and doubled.
    pub resampler: Resampler,
    /// Early warning: the template ends this long before its peak, in seconds; 0 keeps all of it.
    pub before_s: f64,
    /// Length of the autocorrelation in samples: odd.
    pub autocorrelation_length: usize,
    /// Half the width of the running median over the power spectrum, and that at half height of the running mean
    /// after it, in Hz; 0 takes the spectrum as it is.
    pub smoothing_hz: f64,
    /// Part of the template's power that filters follow: its slow beginning with the rest is left out.
    pub power: f64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            f_low_hz: 30.0,
            f_high_hz: None,
            epsilon: 0.02,
            alpha: 0.99,
            beta: 0.25,
            padding: 1.3,
            minimum_match: 0.97,
            match_floor: 0.9,
            rates: Rates::Multi { lowest_hz: 32.0 },
            resampler: Resampler::default(),
            before_s: 0.0,
            autocorrelation_length: 201,
            smoothing_hz: 4.0,
            power: 0.998,
        }
    }
}

/// The filters of one template, and what a search must know of them.
#[derive(Clone, Debug, PartialEq)]
pub struct BankTemplate {
    /// The waveform's name.
    pub name: String,
    /// The binary, where known.
    pub binary: Option<Binary>,
    /// The approximant of its waveform, such as IMRPhenomD, where known.
    pub approximant: Option<String>,
    /// The filters.
    pub filters: Template,
    /// The match of filters and whitened template, from 0 to 1: with the coefficients as they are rounded, with the
    /// resampler's response, and with what was cut off the template's ends.
    pub fit: f64,
    /// The same before the weights were fitted.
    pub placement_fit: f64,
    /// The tolerance at which the filters were placed, in cycles.
    pub epsilon: f64,
    /// Signal-to-noise ratio at 1 Mpc, oriented as well as can be, in a filter that is the template itself.
    pub sigma_1mpc: f64,
    /// Distance at which that ratio is 8, in Mpc.
    pub horizon_mpc: f64,
    /// `A[m] = (u * h)[L - 1 + m] / (u * h)[L - 1]` of the response `u` and the whitened template `h`, at the strain's
    /// rate; `A[0] = 1` is the middle.
    pub autocorrelation: Vec<Complex<f32>>,
    /// `sum(2 - 2 |A|^2)`.
    pub autocorrelation_norm: f32,
    /// The event's time less the time of the output sample that answers it, in seconds.
    pub peak_offset_s: f64,
    /// Length of the whitened template in seconds.
    pub duration_s: f64,
    /// Lowest frequency used, in Hz.
    pub f_low_hz: f64,
    /// The template's frequency when 99.9 % of its power has passed, or at its peak if that is earlier, in Hz.
    pub f_final_hz: f64,
    /// The whitened template with `sum |h|^2 = 2`, in rising time: of positive frequencies alone, its real part that
    /// of the whitened `h_plus`. The response is `conj(h[L - 1 - n])`.
    pub whitened: Vec<Complex<f32>>,
}

/// The filters of several templates for one power spectrum.
#[derive(Clone, Debug, PartialEq)]
pub struct Bank {
    /// Samples of the whitened strain in a second.
    pub rate_hz: u32,
    /// How it was designed.
    pub options: Options,
    /// The power spectrum that its templates are whitened with, before it was smoothed.
    pub psd: PowerSpectrum,
    /// How rates are halved and doubled.
    pub resampler: Resampler,
    /// The templates.
    pub templates: Vec<BankTemplate>,
    /// The templates that it was made of and that are no part of it, by their index.
    pub left_out: Vec<LeftOut>,
}

impl Bank {
    /// Bytes that its templates take.
    pub fn held_bytes(&self) -> usize {
        let bytes = |one: &BankTemplate| {
            let waves = one.autocorrelation.len() + one.whitened.len();
            size_of_val(one)
                + waves * size_of::<Complex<f32>>()
                + one.filters.filters() * size_of::<Filter>()
        };
        self.templates.iter().map(bytes).sum()
    }

    /// Designs the filters of all waveforms, which share one rate.
    ///
    /// # Errors
    /// As [`Designer::new`] and [`Bank::of`]; [`Error::Parameter`] when there is no waveform or their rates differ.
    pub fn design(waveforms: &[Waveform], psd: &PowerSpectrum, options: &Options) -> Result<Self> {
        let Some(first) = waveforms.first() else {
            return Err(Error::parameter("templates", 0, "a filter bank has at least 1"));
        };
        if let Some(other) = waveforms.iter().find(|other| other.rate_hz != first.rate_hz) {
            let rule = format!("{} has {} Hz, and a bank one rate", first.name, first.rate_hz);
            return Err(Error::parameter("rate of the waveform (Hz)", other.rate_hz, rule));
        }
        let designer = Designer::new(psd, options, first.rate_hz)?;
        let made = waveforms.iter().map(|waveform| designer.design(waveform));
        Self::of(made, psd, options, first.rate_hz)
    }

    /// Gathers designed templates, and those that were left out.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when no template is left, with the first one's reason.
    pub fn of(
        made: impl Iterator<Item = std::result::Result<BankTemplate, LeftOut>>,
        psd: &PowerSpectrum,
        options: &Options,
        rate_hz: u32,
    ) -> Result<Self> {
        let (mut templates, mut left_out) = (Vec::new(), Vec::new());
        for (index, one) in made.enumerate() {
            match one {
                Ok(template) => templates.push(template),
                Err(one) => left_out.push(LeftOut { index, ..one }),
            }
        }
        let bank = Self {
            rate_hz,
            options: options.clone(),
            psd: psd.clone(),
            resampler: options.resampler.clone(),
            templates,
            left_out,
        };
        bank.some_left()?;
        Ok(bank)
    }

    /// Leaves out templates, each for a reason; the index is that among the waveforms that the bank was made of.
    pub fn leave_out(&mut self, reason: &mut dyn FnMut(usize, &BankTemplate) -> Option<String>) {
        let before: Vec<usize> = self.left_out.iter().map(|one| one.index).collect();
        let count = self.templates.len() + before.len();
        let mut indices = (0..count).filter(|index| !before.contains(index));
        let left_out = &mut self.left_out;
        self.templates.retain(|template| {
            let Some(index) = indices.next() else { return true };
            let Some(reason) = reason(index, template) else { return true };
            let (name, fit) = (template.name.clone(), Some(template.fit));
            left_out.push(LeftOut { index, name, fit, reason });
            false
        });
        left_out.sort_by_key(|one| one.index);
    }

    /// Fails when all templates were left out.
    ///
    /// # Errors
    /// [`Error::Unavailable`] with the first one's reason.
    pub fn some_left(&self) -> Result<()> {
        match (&self.templates[..], self.left_out.first()) {
            ([], Some(first)) => Err(Error::Unavailable {
                what: format!("a bank of any of {} templates", self.left_out.len()),
                why: format!("{}: {}", first.name, first.reason),
            }),
            ([], None) => Err(Error::parameter("templates", 0, "a filter bank has at least 1")),
            _ => Ok(()),
        }
    }

    /// The plan that runs the bank.
    ///
    /// # Errors
    /// As [`Plan::new`].
    pub fn plan(&self) -> Result<Plan> {
        Plan::new(plan::Options {
            rate_hz: self.rate_hz,
            templates: self.templates.iter().map(|template| template.filters.clone()).collect(),
            resampler: self.resampler.clone(),
        })
    }
}
