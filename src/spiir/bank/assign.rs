//! Assigns each filter to a rate and converts its coefficients to that rate.

use std::f64::consts::TAU;

use num_complex::{Complex, Complex64};

use super::placement::Placed;
use super::{Options, Rates};
use crate::spiir::plan::{Branch, Filter, MAX_HALVINGS, Template};

/// Powers of a pole below `exp(-REACH)` count as 0.
pub(super) const REACH: f64 = 25.0;

/// Filter at the rate of its branch, with a rounded pole.
#[derive(Clone, Copy, Debug)]
pub(super) struct Assigned {
    /// Number of times the rate is halved.
    pub halvings: u32,
    /// Pole, rounded to single precision.
    pub pole: Complex64,
    /// Weight, not rounded.
    pub weight: Complex64,
    /// Delay in samples of the branch.
    pub delay: usize,
}

impl Assigned {
    /// Returns the samples of the branch in which the response decays by a factor e.
    pub(super) fn memory(&self) -> f64 {
        -1.0 / self.pole.norm().ln()
    }

    /// Returns the samples of the branch after which the response counts as 0.
    pub(super) fn reach(&self) -> usize {
        (REACH * self.memory()).ceil() as usize + 1
    }
}

/// Returns the most halvings that the options allow.
pub(super) fn most_halvings(options: &Options, rate_hz: u32) -> u32 {
    let lowest_hz = match options.rates {
        Rates::Single => return 0,
        Rates::Multi { lowest_hz } => lowest_hz,
    };
    let octaves = (f64::from(rate_hz) / lowest_hz).log2().floor().max(0.0);
    (octaves as u32).min(rate_hz.trailing_zeros()).min(MAX_HALVINGS)
}

/// Converts each filter to the lowest rate that holds its band: `a' = a^M`, `d' = ceil(d / M)`,
/// `b' = M b a^(d' M - d)`.
pub(super) fn assign(placed: &[Placed], options: &Options, most_halvings: u32) -> Vec<Assigned> {
    let to_rate = |filter: &Placed| {
        let frequency = filter.angle.abs() / TAU;
        let held = options.padding * frequency + filter.reserve;
        let octaves = -(2.0 * held).max(1e-12).log2();
        let halvings = (octaves.floor().max(0.0) as u32).min(most_halvings);
        let factor = 1_usize << halvings;
        let delay = filter.delay.div_ceil(factor);
        let power = |samples: f64| {
            Complex64::from_polar((-filter.decay * samples).exp(), filter.angle * samples)
        };
        let late = power((delay * factor - filter.delay) as f64);
        let pole = exact(rounded(power(factor as f64)));
        Assigned { halvings, pole, weight: filter.weight * late * factor as f64, delay }
    };
    placed.iter().map(to_rate).collect()
}

/// Groups the filters into the branches of a plan's template.
pub(super) fn template(filters: &[Assigned]) -> Template {
    let mut branches: Vec<Branch> = Vec::new();
    let deepest = filters.iter().map(|filter| filter.halvings).max().unwrap_or(0);
    for halvings in 0..=deepest {
        let here = filters.iter().filter(|filter| filter.halvings == halvings);
        let filters: Vec<Filter> = here.map(as_filter).collect();
        if !filters.is_empty() {
            branches.push(Branch { halvings, filters });
        }
    }
    Template { branches }
}

fn as_filter(filter: &Assigned) -> Filter {
    let (a, b) = (rounded(filter.pole), rounded(filter.weight));
    Filter { a, b, delay: filter.delay as u32 }
}

/// Rounds to the single precision that filters run with.
pub(super) fn rounded(value: Complex64) -> Complex<f32> {
    Complex::new(value.re as f32, value.im as f32)
}

/// Converts back to double precision.
pub(super) fn exact(value: Complex<f32>) -> Complex64 {
    Complex64::new(f64::from(value.re), f64::from(value.im))
}
