//! Design of the filters of one waveform.

use std::f64::consts::TAU;
use std::sync::OnceLock;

use num_complex::Complex64;

use super::fit::{Chain, Target, gram};
use super::placement::{
    Assigned, Placed, assign, branches, exact, most_halvings, place, pursue, rounded,
};
use super::whitened::{Conditioned, Whitened};
use super::{BankTemplate, LeftOut, Options, Rates};
use crate::error::{Error, Result};
use crate::math::{PowerSpectrum, Transforms};
use crate::strain::Waveform;

/// Longest autocorrelation in samples, equal to the limit of the peak search.
const MAX_AUTOCORRELATION: usize = 1 << 16;

/// Allowed smoothing widths of the power spectrum; narrower ones would need too many bins.
const SMOOTHING_HZ: std::ops::RangeInclusive<f64> = 0.01..=1e5;
/// Most rounds of placing filters with another tolerance.
const MAX_ROUNDS: usize = 10;
/// Least tolerance in cycles.
const MIN_EPSILON: f64 = 0.001;
/// Ridge, as a fraction of the diagonal, that bounds the weights of nearly equal filters.
const RIDGE: f64 = 1e-4;
/// Filters per pursuit batch, and most batches.
const BATCH: usize = 6;
const BATCHES: usize = 6;
/// Least gain of the match for which another batch is tried.
const MIN_GAIN: f64 = 5e-4;
/// Filters above which no batch is added: the template has no phase that filters could follow.
const MAX_PURSUED: usize = 512;
/// Filters above which no finer tolerance is tried.
const MAX_REFINED: usize = 2048;
/// Seconds before the template's end in which pursuit adds filters.
const PURSUED_S: f64 = 0.25;
/// Decay times of the longest filter's response that the match includes.
const MEMORIES: f64 = 12.0;
/// Signal-to-noise ratio at the horizon.
const HORIZON_SNR: f64 = 8.0;

/// Designs filters for one power spectrum, which it smooths once for all waveforms.
pub struct Designer {
    options: Options,
    rate_hz: u32,
    conditioned: Conditioned,
    transforms: Transforms,
    /// Resampling kernels for each number of halvings, computed at first use.
    chains: Vec<OnceLock<Chain>>,
}

impl Designer {
    /// Prepares the power spectrum for waveforms of a rate.
    ///
    /// # Errors
    /// [`Error::Parameter`] for unusable options or a spectrum that ends within the band.
    pub fn new(psd: &PowerSpectrum, options: &Options, rate_hz: u32) -> Result<Self> {
        check_options(options)?;
        let conditioned = Conditioned::new(psd, options, rate_hz)?;
        Ok(Self {
            options: options.clone(),
            rate_hz,
            conditioned,
            transforms: Transforms::default(),
            chains: (0..=most_halvings(options, rate_hz)).map(|_| OnceLock::new()).collect(),
        })
    }

    /// Designs the filters of one waveform.
    ///
    /// Whitens the template, places filters along it, assigns each to a rate, and fits the weights by least squares
    /// with the rounded poles and the resampler's response. If the match is below the requested one, filters are
    /// placed again at half the tolerance, then between the last two tolerances, in up to ten rounds.
    ///
    /// # Errors
    /// [`LeftOut`] for a waveform of another rate, without power in the band, with nothing left after an
    /// early-warning cut, or with a best match below the floor.
    /// # Numerics
    /// The match is that of the rounded coefficients. It is exact except for aliasing, which depends on the phase of
    /// the lower rates (see docs/design/spiir_bank.md).
    /// # Source
    /// Hooper et al. 2012, Phys. Rev. D 86, 024012 (placement); Guo et al. 2018 (rates).
    pub fn design(&self, waveform: &Waveform) -> std::result::Result<BankTemplate, LeftOut> {
        let out = |fit: Option<f64>, reason: String| LeftOut {
            name: waveform.name.clone(),
            index: 0,
            fit,
            reason,
        };
        if waveform.rate_hz != self.rate_hz {
            let reason =
                format!("it has {} Hz, and the bank {} Hz", waveform.rate_hz, self.rate_hz);
            return Err(out(None, reason));
        }
        let template = Whitened::new(waveform, &self.conditioned, &self.options, &self.transforms)
            .map_err(|reason| out(None, reason))?;
        let fitter = Fitter::new(waveform, &template, self);
        let round = fitter.search();
        if round.fit < self.options.match_floor.min(self.options.minimum_match) {
            let reason = format!(
                "the best match is {:.4}, of {} filters at a tolerance of {:.4} cycles; a higher lowest frequency, a \
                 lower highest frequency or a smoother power spectrum may help",
                round.fit,
                round.filters.len(),
                round.epsilon
            );
            return Err(out(Some(round.fit), reason));
        }
        Ok(fitter.finished(round, f64::from(waveform.rate_hz)))
    }
}

/// Designs the filters of one waveform for strain with this power spectrum.
///
/// # Errors
/// As [`Designer::new`]; [`Error::Unavailable`] for a waveform that [`Designer::design`] leaves out.
pub fn design(waveform: &Waveform, psd: &PowerSpectrum, options: &Options) -> Result<BankTemplate> {
    let designer = Designer::new(psd, options, waveform.rate_hz)?;
    designer.design(waveform).map_err(|left_out| Error::Unavailable {
        what: format!("a filter bank for {}", left_out.name),
        why: left_out.reason,
    })
}

/// Filters of one round and their match.
#[derive(Clone, Debug)]
struct Round {
    epsilon: f64,
    filters: Vec<Assigned>,
    fit: f64,
    placement_fit: f64,
}

impl Round {
    fn none(epsilon: f64) -> Self {
        Self { epsilon, filters: Vec::new(), fit: 0.0, placement_fit: 0.0 }
    }
}

struct Fitter<'a> {
    waveform: &'a Waveform,
    template: &'a Whitened,
    options: &'a Options,
    halvings: u32,
    chain: &'a Chain,
    target: Target<'a>,
}

impl<'a> Fitter<'a> {
    fn new(waveform: &'a Waveform, template: &'a Whitened, designer: &'a Designer) -> Self {
        let options = &designer.options;
        let placed = place(template, options, options.epsilon).unwrap_or_default();
        let memory = placed.iter().map(|filter| 1.0 / filter.decay).fold(0.0, f64::max);
        let most = most_halvings(options, waveform.rate_hz);
        let assigned = assign(&placed, options, most);
        let halvings = assigned.iter().map(|filter| filter.halvings).max().unwrap_or(most);
        let make = || Chain::new(&options.resampler, halvings);
        let chain = designer.chains[halvings as usize].get_or_init(make);
        // Padding so that the autocorrelation's lags do not wrap around the transform.
        let memory = (MEMORIES * memory) as usize + options.autocorrelation_length / 2;
        let target = Target::new(&template.samples, chain, halvings, memory, &designer.transforms);
        Self { waveform, template, options, halvings, chain, target }
    }

    /// Searches for the greatest tolerance that reaches the requested match, adding filters to fit the residual; if
    /// none reaches it, returns the best match.
    fn search(&self) -> Round {
        let wanted = self.options.minimum_match;
        let mut epsilon = self.options.epsilon;
        let mut best: Option<Round> = None;
        let mut failed: Option<f64> = None;
        let mut nearest = Round::none(epsilon);
        for _ in 0..MAX_ROUNDS {
            let Some(placed) = place(self.template, self.options, epsilon) else { break };
            let round = self.pursued(epsilon, placed);
            if round.fit >= wanted {
                best = Some(round);
                // Tolerances within a factor of about sqrt(2) are not worth another round.
                match failed {
                    Some(failed) if failed / epsilon > 1.5 => epsilon = (failed * epsilon).sqrt(),
                    _ => break,
                }
            } else {
                let is_crowded = round.filters.len() > MAX_REFINED;
                if round.fit > nearest.fit {
                    nearest = round;
                }
                if is_crowded {
                    break;
                }
                failed = Some(epsilon);
                match &best {
                    Some(best) if epsilon / best.epsilon > 1.5 => {
                        epsilon = (epsilon * best.epsilon).sqrt();
                    }
                    Some(_) => break,
                    None if epsilon <= MIN_EPSILON => break,
                    None => epsilon = (epsilon / 2.0).max(MIN_EPSILON),
                }
            }
        }
        best.unwrap_or(nearest)
    }

    /// Fits the placed filters, and adds as many pursuit batches as the match needs.
    fn pursued(&self, epsilon: f64, mut placed: Vec<Placed>) -> Round {
        let mut round = self.fitted(epsilon, &placed);
        let placement_fit = round.placement_fit;
        let rate_hz = f64::from(self.waveform.rate_hz);
        let samples = ((PURSUED_S * rate_hz) as usize).min(self.template.samples.len());
        for _ in 0..BATCHES {
            let is_crowded = placed.len() > MAX_PURSUED;
            if round.fit >= self.options.minimum_match || is_crowded {
                break;
            }
            let response = self.target.response(&round.filters);
            let rest = self.target.rest(&response, samples);
            placed.extend(pursue(rest, self.options.f_low_hz / rate_hz, BATCH));
            let next = self.fitted(epsilon, &placed);
            let gain = next.fit - round.fit;
            if gain > 0.0 {
                round = Round { placement_fit, ..next };
            }
            if gain < MIN_GAIN {
                break;
            }
        }
        round
    }

    /// Fits and rounds the filters' weights.
    fn fitted(&self, epsilon: f64, placed: &[Placed]) -> Round {
        let mut filters = assign(placed, self.options, self.halvings);
        if filters.is_empty() {
            return Round::none(epsilon);
        }
        let matrix = gram(&filters, self.chain);
        let products = self.target.products(&filters);
        let fit = |weights: &[Complex64]| {
            let cross: Complex64 =
                weights.iter().zip(&products).map(|(b, product)| b.conj() * product).sum();
            cross.norm() / (matrix.norm(weights) * self.template.power).sqrt()
        };
        let placement: Vec<Complex64> = filters.iter().map(|filter| filter.weight).collect();
        let placement_fit = fit(&placement);
        // Falls back to the weights of the placement if the system cannot be solved.
        let mut weights = matrix.solve(RIDGE, &products).unwrap_or(placement);
        let scale = (2.0 / matrix.norm(&weights)).sqrt();
        weights.iter_mut().for_each(|b| *b = exact(rounded(*b * scale)));
        filters.iter_mut().zip(&weights).for_each(|(filter, b)| filter.weight = *b);
        Round { epsilon, fit: fit(&weights), filters, placement_fit }
    }

    fn finished(&self, round: Round, rate_hz: f64) -> BankTemplate {
        let response = self.target.response(&round.filters);
        let half = self.options.autocorrelation_length / 2;
        let autocorrelation = self.target.autocorrelation(&response, half);
        let norm: f64 = autocorrelation.iter().map(|a| 2.0 - 2.0 * a.norm_sqr()).sum();
        let h = &self.template.samples;
        // |h|^2 of an analytic signal is twice that of its real part.
        let sigma_1mpc = (self.template.power / 2.0).sqrt() * self.waveform.distance_mpc;
        let scale = (2.0 / self.target.power).sqrt();
        BankTemplate {
            name: self.waveform.name.clone(),
            binary: self.waveform.binary,
            approximant: self.waveform.approximant.clone(),
            filters: branches(&round.filters),
            fit: self.target.fit(&response) * (self.target.power / self.template.power).sqrt(),
            placement_fit: round.placement_fit,
            epsilon: round.epsilon,
            sigma_1mpc,
            horizon_mpc: sigma_1mpc / HORIZON_SNR,
            autocorrelation: autocorrelation.into_iter().map(rounded).collect(),
            autocorrelation_norm: norm as f32,
            peak_offset_s: self.template.peak_offset as f64 / rate_hz,
            duration_s: (h.len() - self.template.start) as f64 / rate_hz,
            f_low_hz: self.options.f_low_hz,
            f_final_hz: self.template.final_step.abs() / TAU * rate_hz,
            whitened: h.iter().map(|h| rounded(h * scale)).collect(),
        }
    }
}

/// Checks the options except the band's frequencies, whose check needs the rate.
fn check_options(options: &Options) -> Result<()> {
    let Options { epsilon, alpha, beta, padding, minimum_match, match_floor, .. } = *options;
    let Options { before_s, f_low_hz, smoothing_hz, power, .. } = *options;
    let f_stop_hz = options.f_stop_hz.unwrap_or(f64::INFINITY);
    let lowest_hz = match options.rates {
        Rates::Single => 1.0,
        Rates::Multi { lowest_hz } => lowest_hz,
    };
    let is_above_0 = |value: f64| value.is_finite() && value > 0.0;
    let is_smoothing = smoothing_hz == 0.0 || SMOOTHING_HZ.contains(&smoothing_hz);
    let (matches, below_1) = (0.0..1.0, "within 0 to 1, and below 1");
    let rules = [
        ("tolerance (cycles)", epsilon, epsilon > 0.0 && epsilon <= 0.5, "above 0, at most 0.5"),
        ("alpha", alpha, (0.0..=1.0).contains(&alpha), "within 0 to 1"),
        ("beta", beta, is_above_0(beta), "finite and above 0"),
        ("padding", padding, padding.is_finite() && padding >= 1.0, "at least 1"),
        ("match", minimum_match, matches.contains(&minimum_match), below_1),
        ("least match of a template", match_floor, matches.contains(&match_floor), below_1),
        ("lowest rate of a branch (Hz)", lowest_hz, is_above_0(lowest_hz), "finite and above 0"),
        ("early warning (s)", before_s, (0.0..1e5).contains(&before_s), "at least 0"),
        ("early warning (Hz)", f_stop_hz, f_stop_hz > f_low_hz, "above the lowest frequency"),
        ("smoothing of the power spectrum (Hz)", smoothing_hz, is_smoothing, "0, or 0.01 to 10^5"),
        ("part of the power", power, power > 0.0 && power <= 1.0, "above 0, at most 1"),
    ];
    if let Some((name, value, _, rule)) = rules.into_iter().find(|rule| !rule.2) {
        return Err(Error::parameter(name, value, format!("it must be {rule}")));
    }
    let length = options.autocorrelation_length;
    if length.is_multiple_of(2) || !(3..=MAX_AUTOCORRELATION).contains(&length) {
        let rule = format!("it must be odd, 3 to {MAX_AUTOCORRELATION}");
        return Err(Error::parameter("length of the autocorrelation (samples)", length, rule));
    }
    options.resampler.check()
}
