//! Synthetic filter banks without waveforms: delays, memories and frequencies follow a chirp's power laws.

use std::f64::consts::TAU;

use num_complex::Complex;
use sidereal::Result;
use sidereal::spiir::MAX_DELAY;
use sidereal::spiir::{Branch, Filter, Options, Plan, Resampler, Template};

use crate::random::{self, Random};

/// Sampling rate of the strain in Hz.
pub(crate) const RATE_HZ: u32 = 4096;

/// Number of filters for a chirp of [`LENGTH`] samples: 1.4 + 1.4 solar masses from 30 Hz with an error of 0.02
/// cycles.
const FILTERS: f64 = 386.0;
const LENGTH: f64 = 61.8 * 4096.0;

/// Exponent with which the delay grows with the filter's index.
const GROWTH: f64 = 3.2;

/// Rounds a coefficient to single precision.
fn single(x: Complex<f64>) -> Complex<f32> {
    Complex::new(x.re as f32, x.im as f32)
}

/// Makes `filters` filters of a chirp of the length that they cover: the time before the end grows as the filter
/// index to the power 16/5, since a chirp's frequency falls as that time to the power -3/8. `halvings` halves the
/// sampling rate of all.
fn chirp(random: &mut Random, filters: usize, halvings: u32) -> Vec<Filter> {
    let count = filters as f64;
    let length = LENGTH * (count / FILTERS).powf(GROWTH);
    let one = |index: usize| {
        let part = (index as f64 + 1.0) / count;
        let delay = length * part.powf(GROWTH) / f64::from(1u32 << halvings);
        // A filter's memory is four times the distance to the next filter.
        let memory = (4.0 * GROWTH * delay / (part * count)).max(4.0);
        let frequency = (0.12 * (64.0 / (delay + 1.0)).powf(0.375)).min(0.25);
        let decay = (-1.0 / memory).exp();
        let a = Complex::from_polar(decay, TAU * frequency * (0.98 + 0.04 * random.unit()));
        let size = ((1.0 - decay * decay) * 2.0 / count).sqrt();
        let b = Complex::from_polar(size, TAU * random.unit());
        let delay = (delay * (0.98 + 0.02 * random.unit())) as u32;
        Filter { a: single(a), b: single(b), delay }
    };
    (0..filters).map(one).collect()
}

/// Makes a plan of `templates` templates whose filters are split equally among the rates.
pub(crate) fn plan(templates: usize, filters: usize, rates: u32) -> Result<Plan> {
    let mut random = Random::new();
    let mut branch = |halvings: u32| {
        let from = filters * halvings as usize / rates as usize;
        let to = filters * (halvings as usize + 1) / rates as usize;
        Branch { halvings, filters: chirp(&mut random, to - from, halvings) }
    };
    let template = |_| Template { branches: (0..rates).map(&mut branch).collect() };
    let templates = (0..templates).map(template).collect();
    Plan::new(Options { rate_hz: RATE_HZ, templates, resampler: Resampler::default() })
}

/// Makes noise in place of whitened strain.
pub fn noise(times: usize) -> Vec<f32> {
    random::noise(99, times)
}

/// Makes a plan of filters with short delays, split equally among the rates, as in the recorded GPU measurements:
/// delays below 8192 samples (two seconds), memories of 20 to 420 samples.
pub fn near(templates: usize, filters: usize, rates: u32) -> Result<Plan> {
    let mut random = Random::new();
    let mut filter = |halvings: u32| {
        let decay = (-1.0 / (20.0 + 400.0 * random.unit())).exp();
        let a = Complex::from_polar(decay, 0.02 + 0.5 * random.unit());
        let size = ((1.0 - decay * decay) * 2.0 / filters as f64).sqrt();
        let b = Complex::from_polar(size, TAU * random.unit());
        let delay = (8192.0 * random.unit()) as u32 >> halvings;
        Filter { a: single(a), b: single(b), delay }
    };
    let mut branch = |halvings: u32| {
        let (from, to) =
            (filters as u32 * halvings / rates, filters as u32 * (halvings + 1) / rates);
        Branch { halvings, filters: (from..to).map(|_| filter(halvings)).collect() }
    };
    let template = |_| Template { branches: (0..rates).map(&mut branch).collect() };
    let templates = (0..templates).map(template).collect();
    Plan::new(Options { rate_hz: RATE_HZ, templates, resampler: Resampler::default() })
}

/// Makes a plan of chirps with `filters` filters, each filter at the lowest of the rates that represents its
/// frequency.
pub fn chirps(templates: usize, filters: usize, rates: u32) -> Result<Plan> {
    let most = rates - 1;
    let mut random = Random::new();
    let mut template = |_| {
        let mut branches: Vec<Branch> =
            (0..=most).map(|halvings| Branch { halvings, filters: Vec::new() }).collect();
        for filter in chirp(&mut random, filters, 0) {
            let cycles = f64::from(filter.a.arg()).abs() / TAU;
            let halvings = ((1.0 / (2.6 * cycles)).log2().max(0.0) as u32).min(most);
            branches[halvings as usize].filters.push(slowed(&filter, halvings));
        }
        branches.retain(|branch| !branch.filters.is_empty());
        Template { branches }
    };
    let templates = (0..templates).map(&mut template).collect();
    Plan::new(Options { rate_hz: RATE_HZ, templates, resampler: Resampler::default() })
}

/// Returns the most filters whose chirp does not exceed a filter's largest delay.
pub fn most_of_chirp() -> usize {
    (FILTERS * (f64::from(MAX_DELAY) / LENGTH).powf(1.0 / GROWTH)) as usize
}

/// Returns the same filter after `halvings` halvings of the rate.
fn slowed(filter: &Filter, halvings: u32) -> Filter {
    let step = 1u32 << halvings;
    let a = filter.pole().powu(step);
    let b = filter.weight() * f64::from(step).sqrt();
    Filter { a: single(a), b: single(b), delay: filter.delay.div_ceil(step) }
}

/// Returns a plan of only the first templates.
pub(crate) fn first(plan: &Plan, templates: usize) -> Result<Plan> {
    let mut options = plan.options().clone();
    options.templates.truncate(templates);
    Plan::new(options)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chirps_have_all_filters_whatever_the_rates() {
        for (filters, rates) in [(1, 1), (3, 3), (13, 13), (64, 4), (386, 13)] {
            let plan = chirps(2, filters, rates).unwrap();
            for template in &plan.options().templates {
                let counts: Vec<usize> =
                    template.branches.iter().map(|branch| branch.filters.len()).collect();
                assert_eq!(counts.iter().sum::<usize>(), filters);
                assert!(!counts.contains(&0) && counts.len() <= rates as usize, "{counts:?}");
            }
        }
    }

    #[test]
    fn the_longest_chirp_is_possible_and_a_longer_one_is_not() {
        let most = most_of_chirp();
        let longest = |filters| chirp(&mut Random(1), filters, 0)[filters - 1].delay;
        assert!(longest(most) <= MAX_DELAY && longest(2 * most) > MAX_DELAY);
        assert!(chirps(1, most, 1).is_ok());
    }
}
