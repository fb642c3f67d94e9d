//! A whitened chirp as a function of time, its filters, and their responses.
#![allow(dead_code, unreachable_pub, missing_docs)]

use std::f64::consts::{PI, TAU};

use num_complex::{Complex, Complex64};
use sidereal::backend::Backend;
use sidereal::spiir::trigger::Autocorrelation;
use sidereal::spiir::{Branch, Filter, Options, Plan, Resampler, Spiir, Template};

pub const RATE_HZ: u32 = 2048;

/// Samples of the chirp.
pub const LENGTH: usize = 2048;

/// A chirp `f ~ (t_c - t)^(-3/8)` that begins at `low_hz` one second before its end, tapered at both ends.
#[derive(Clone, Copy)]
pub struct Chirp {
    pub low_hz: f64,
    scale: f64,
}

impl Chirp {
    /// `sum |h|^2 = 2`: each quadrature has norm 1.
    pub fn new(low_hz: f64) -> Self {
        let unscaled = Self { low_hz, scale: 1.0 };
        let norm: f64 = (0..LENGTH).map(|j| unscaled.at(j as f64).norm_sqr()).sum();
        Self { low_hz, scale: (2.0 / norm).sqrt() }
    }

    /// `h_plus - i h_cross` at an integer or fractional sample.
    pub fn at(&self, j: f64) -> Complex64 {
        Complex64::from_polar(self.amplitude(j), -self.phase(j))
    }

    fn amplitude(&self, j: f64) -> f64 {
        let last = LENGTH as f64 - 1.0;
        if !(0.0..=last).contains(&j) {
            return 0.0;
        }
        let rise = (0.5 * PI * (j / 200.0).min(1.0)).sin();
        let fall = (0.5 * PI * ((last - j) / 24.0).min(1.0)).sin();
        self.scale * (last + 10.0 - j).powf(-0.2) * (rise * fall).powi(2)
    }

    /// Phase in radians; it grows with time.
    fn phase(&self, j: f64) -> f64 {
        let left = (LENGTH as f64 + 9.0 - j).max(1.0);
        let slope = TAU * self.low_hz / f64::from(RATE_HZ) * (LENGTH as f64).powf(0.375);
        -slope * left.powf(0.625) / 0.625
    }

    /// Filters for `u[n] = conj(h[L - 1 - n])`, placed as Hooper et al. 2012 do.
    pub fn filters(&self, epsilon: f64) -> Template {
        let p = |j: i64| self.phase(j as f64);
        let mut filters = Vec::new();
        let mut j = LENGTH as i64 - 1;
        while j > 3 {
            let bend = (p(j - 2) - 2.0 * p(j - 1) + p(j)).abs() / TAU;
            if bend > 8.0 * epsilon {
                j -= 1;
                continue;
            }
            let length = (2.0 * epsilon / bend.max(1e-12)).sqrt().round().max(1.0);
            let k = (j as f64 - 0.99 * length).round().max(1.0) as i64;
            if k <= 2 {
                break;
            }
            let w = (8.0 * (p(k + 1) - p(k - 1)) - p(k + 2) + p(k - 2)) / 12.0;
            let a = Complex64::from_polar((-0.25 / length).exp(), -w);
            let b = Complex64::from_polar(self.amplitude(k as f64), p(k) + w * (j - k) as f64);
            filters.push((a, b, (LENGTH as i64 - 1 - j) as u32));
            j -= length as i64;
        }
        let single = |z: Complex64| Complex::new(z.re as f32, z.im as f32);
        let scale = (2.0 / response(&filters).iter().map(|u| u.norm_sqr()).sum::<f64>()).sqrt();
        let filter = |(a, b, delay): (Complex64, Complex64, u32)| Filter {
            a: single(a),
            b: single(b * scale),
            delay,
        };
        let filters = filters.into_iter().map(filter).collect();
        Template { branches: vec![Branch { halvings: 0, filters }] }
    }
}

/// `u[n] = sum_l b_l a_l^(n - d_l)`, twice as long as the chirp.
fn response(filters: &[(Complex64, Complex64, u32)]) -> Vec<Complex64> {
    let mut u = vec![Complex64::default(); 2 * LENGTH];
    for (a, b, delay) in filters {
        let mut y = *b;
        for u in &mut u[*delay as usize..] {
            *u += y;
            y *= a;
        }
    }
    u
}

/// `(u * h)[L - 1 + m]` for `|m| <= half`.
pub fn overlap(template: &Template, chirp: &Chirp, half: usize) -> Vec<Complex64> {
    let filters = template.branches.iter().flat_map(|branch| &branch.filters);
    let filters: Vec<_> = filters.map(|one| (one.pole(), one.weight(), one.delay)).collect();
    let u = response(&filters);
    let h: Vec<Complex64> = (0..LENGTH).map(|j| chirp.at(j as f64)).collect();
    let at = |m: i64| {
        let last = LENGTH as i64 - 1 + m;
        let terms = (0..=last.min(u.len() as i64 - 1)).filter(|n| last - n < LENGTH as i64);
        terms.map(|n| u[n as usize] * h[(last - n) as usize]).sum()
    };
    (-(half as i64)..=half as i64).map(at).collect()
}

/// Response of the filters to a chirp of amplitude 1 (the match, with a phase of its own), and the autocorrelation in
/// the documented convention.
pub fn autocorrelation(
    template: &Template,
    chirp: &Chirp,
    half: usize,
) -> (Complex64, Autocorrelation) {
    let overlap = overlap(template, chirp, half);
    let middle = overlap[half];
    let one = |z: &Complex64| Complex::new((z / middle).re as f32, (z / middle).im as f32);
    (middle / 2.0, Autocorrelation::new(overlap.iter().map(one).collect()))
}

/// The signal-to-noise ratios (template, time) of all of `x`.
pub fn filtered(templates: Vec<Template>, x: &[f32]) -> Vec<Complex<f32>> {
    let rows = templates.len();
    let options = Options { rate_hz: RATE_HZ, templates, resampler: Resampler::default() };
    let plan = Plan::new(options).expect("a plan");
    let mut spiir = Spiir::new(plan, &Backend::Reference).expect("bound");
    let mut z = vec![Complex::default(); rows * x.len()];
    let progress = spiir.run(x, &mut z, x.len()).expect("run");
    assert_eq!(progress.produced, x.len(), "one rate has no latency");
    z
}
