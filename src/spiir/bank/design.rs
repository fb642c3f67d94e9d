//! From a waveform to its filters.

use std::f64::consts::TAU;

use num_complex::Complex64;

use super::assign::{self, Assigned, assign, exact, most_halvings, rounded};
use super::chain::Chain;
use super::gram::gram;
use super::placement::{MOST_FILTERS, Placed, place};
use super::target::Target;
use super::whitened::Whitened;
use super::{BankTemplate, Options, check};
use crate::error::{Error, Result};
use crate::math::power_spectrum::PowerSpectrum;
use crate::strain::Waveform;

/// Most rounds of placing filters with another tolerance.
const MOST_ROUNDS: usize = 10;
/// Least tolerance, in cycles.
const LEAST_EPSILON: f64 = 0.001;
/// What keeps weights small where filters are nearly alike, as a part of the diagonal.
const RIDGE: f64 = 1e-4;
/// Memories of the longest filter after which its response is left out of the match.
const MEMORIES: f64 = 12.0;
/// The signal-to-noise ratio at the horizon.
const HORIZON_SNR: f64 = 8.0;

/// Designs the filters of one waveform for strain with this power spectrum.
///
/// The template is whitened, filters are placed along it, each is brought to its rate, and the weights are fitted by
/// least squares with the poles as they are rounded and with the resampler's response. With a match below what is
/// asked for, filters are placed at half the tolerance, then between the last two tolerances, up to ten times.
///
/// # Errors
/// [`Error::Parameter`] for options that can't be used, a spectrum that ends within the band, a waveform with nothing
/// in the band or nothing left after an early warning's cut; [`Error::Unavailable`] when the match that is asked for
/// can't be reached, with the best that was.
/// # Numerics
/// The match is that of the rounded coefficients; it is exact but for what aliases, which changes with the phase of the
/// lower rates (see docs/design/spiir_bank.md).
/// # Source
/// Hooper et al. 2012, Phys. Rev. D 86, 024012 (placement); Guo et al. 2018 (rates).
pub fn design(waveform: &Waveform, psd: &PowerSpectrum, options: &Options) -> Result<BankTemplate> {
    check::options(options)?;
    let template = Whitened::new(waveform, psd, options)?;
    let mut designer = Designer::new(waveform, &template, options)?;
    let round = designer.search()?;
    Ok(designer.finished(round, f64::from(waveform.rate_hz)))
}

/// Filters that were tried.
#[derive(Clone, Debug)]
struct Round {
    epsilon: f64,
    filters: Vec<Assigned>,
    fit: f64,
    placement_fit: f64,
}

struct Designer<'a> {
    waveform: &'a Waveform,
    template: &'a Whitened,
    options: &'a Options,
    halvings: u32,
    chain: Chain,
    target: Target,
}

impl<'a> Designer<'a> {
    fn new(waveform: &'a Waveform, template: &'a Whitened, options: &'a Options) -> Result<Self> {
        let placed = place(template, options, options.epsilon).unwrap_or_default();
        let memory = placed.iter().map(|filter| 1.0 / filter.decay).fold(0.0, f64::max);
        let most = most_halvings(options, waveform.rate_hz);
        let assigned = assign(&placed, options, most);
        let halvings = assigned.iter().map(|filter| filter.halvings).max().unwrap_or(most);
        let chain = Chain::new(&options.resampler, halvings);
        // The autocorrelation's lags must not meet round the transform's end.
        let memory = (MEMORIES * memory) as usize + options.autocorrelation_length / 2;
        let target = Target::new(&template.samples, &chain.once, halvings, memory);
        Ok(Self { waveform, template, options, halvings, chain, target })
    }

    /// Looks for the greatest tolerance that reaches the match.
    fn search(&self) -> Result<Round> {
        let wanted = self.options.minimum_match;
        let mut epsilon = self.options.epsilon;
        let mut best: Option<Round> = None;
        let mut failed: Option<f64> = None;
        let mut nearest = (0.0, 0, epsilon);
        for _ in 0..MOST_ROUNDS {
            let Some(round) = self.round(epsilon) else {
                let most = format!("more than {MOST_FILTERS} filters at {epsilon} cycles");
                return Err(self.unreached(nearest, &most));
            };
            if round.fit > nearest.0 {
                nearest = (round.fit, round.filters.len(), epsilon);
            }
            if round.fit >= wanted {
                best = Some(round);
                // Between two tolerances a factor sqrt(2) apart there is nothing worth another round.
                match failed {
                    Some(failed) if failed / epsilon > 1.5 => epsilon = (failed * epsilon).sqrt(),
                    _ => break,
                }
            } else {
                failed = Some(epsilon);
                match &best {
                    Some(best) if epsilon / best.epsilon > 1.5 => {
                        epsilon = (epsilon * best.epsilon).sqrt();
                    }
                    Some(_) => break,
                    None if epsilon <= LEAST_EPSILON => break,
                    None => epsilon = (epsilon / 2.0).max(LEAST_EPSILON),
                }
            }
        }
        best.ok_or_else(|| self.unreached(nearest, "no more at finer tolerances"))
    }

    fn unreached(&self, (fit, filters, epsilon): (f64, usize, f64), more: &str) -> Error {
        let best = match filters {
            0 => String::new(),
            _ => format!(
                "the best is {fit:.4}, of {filters} filters at a tolerance of {epsilon:.4} cycles, and "
            ),
        };
        let why = format!(
            "{best}{more}; a smoother power spectrum, a higher lowest frequency, another tolerance or a lower match may help"
        );
        let (wanted, name) = (self.options.minimum_match, &self.waveform.name);
        Error::Unavailable { what: format!("a match of {wanted} for {name}"), why }
    }

    /// Filters at one tolerance, their weights fitted and rounded.
    fn round(&self, epsilon: f64) -> Option<Round> {
        let placed: Vec<Placed> = place(self.template, self.options, epsilon)?;
        let mut filters = assign(&placed, self.options, self.halvings);
        if filters.is_empty() {
            return Some(Round { epsilon, filters, fit: 0.0, placement_fit: 0.0 });
        }
        let matrix = gram(&filters, &self.chain);
        let products = self.target.products(&filters);
        let fit = |weights: &[Complex64]| {
            let cross: Complex64 =
                weights.iter().zip(&products).map(|(b, product)| b.conj() * product).sum();
            cross.norm() / (matrix.norm(weights) * self.template.power).sqrt()
        };
        let placement: Vec<Complex64> = filters.iter().map(|filter| filter.weight).collect();
        let placement_fit = fit(&placement);
        // The placement's own weights stand in where the system can't be solved.
        let mut weights = matrix.solve(RIDGE, &products).unwrap_or(placement);
        let scale = (2.0 / matrix.norm(&weights)).sqrt();
        weights.iter_mut().for_each(|b| *b = exact(rounded(*b * scale)));
        filters.iter_mut().zip(&weights).for_each(|(filter, b)| filter.weight = *b);
        Some(Round { epsilon, fit: fit(&weights), filters, placement_fit })
    }

    fn finished(&mut self, round: Round, rate_hz: f64) -> BankTemplate {
        let response = self.target.response(&round.filters);
        let half = self.options.autocorrelation_length / 2;
        let autocorrelation = self.target.autocorrelation(&response, half);
        let norm: f64 = autocorrelation.iter().map(|a| 2.0 - 2.0 * a.norm_sqr()).sum();
        let h = &self.template.samples;
        // |h|^2 of a one-sided series is twice that of its real part.
        let sigma_1mpc = (self.template.power / 2.0).sqrt() * self.waveform.distance_mpc;
        let scale = (2.0 / self.target.power).sqrt();
        BankTemplate {
            name: self.waveform.name.clone(),
            binary: self.waveform.binary,
            approximant: self.waveform.approximant.clone(),
            filters: assign::template(&round.filters),
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
