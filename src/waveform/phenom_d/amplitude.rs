//! Amplitude of IMRPhenomD in the inspiral, intermediate, and merger-ringdown regions.

use std::f64::consts::PI;

use super::coefficients::{Bodies, FITS, Fit, Remnant, polynomial};

/// End of the inspiral's amplitude in units of 1/M.
const INSPIRAL_END: f64 = 0.014;

/// Powers of `f^(1/3)` in the inspiral's amplitude.
const TERMS: usize = 10;

/// `|h|` divided by `sqrt(2 nu / 3) pi^(-1/6) f^(-7/6)`, with `f` in units of 1/M.
#[derive(Clone, Copy, Debug)]
pub(super) struct Amplitude {
    inspiral: [f64; TERMS],
    intermediate: [f64; 5],
    merger: Merger,
    /// Frequency of the Lorentzian's peak, where the merger region begins.
    pub(super) peak: f64,
}

impl Amplitude {
    /// # Source
    /// Khan et al. 2016, section VI: equations 19, 20, 21 to 26, 29, 30.
    pub(super) fn new(bodies: &Bodies, remnant: &Remnant) -> Self {
        let fit = |fit: Fit| fit.at(bodies.nu, bodies.chi);
        let width = remnant.damping * fit(FITS.gamma3);
        let decay = fit(FITS.gamma2);
        let merger = Merger { height: fit(FITS.gamma1), decay, width, ringdown: remnant.ringdown };
        // For `decay` above 1 the root in the equation of the peak is imaginary and is set to 0.
        let root = (1.0 - decay * decay).max(0.0).sqrt();
        let peak = (remnant.ringdown + width * (root - 1.0) / decay).abs();
        let inspiral = inspiral(bodies);
        let middle = fit(FITS.middle);
        let intermediate = intermediate(&inspiral, middle, &merger, peak);
        Self { inspiral, intermediate, merger, peak }
    }

    /// Returns the amplitude at `f`, whose cube root is `root`.
    pub(super) fn at(&self, f: f64, root: f64) -> f64 {
        if f < INSPIRAL_END {
            polynomial(&self.inspiral, root)
        } else if f < self.peak {
            polynomial(&self.intermediate, f)
        } else {
            self.merger.at(f)
        }
    }
}

/// Lorentzian with an exponential decay.
#[derive(Clone, Copy, Debug)]
struct Merger {
    height: f64,
    decay: f64,
    width: f64,
    ringdown: f64,
}

impl Merger {
    fn at(&self, f: f64) -> f64 {
        let x = (f - self.ringdown) / self.width;
        self.height / self.width * (-self.decay * x).exp() / (x * x + 1.0)
    }

    fn slope(&self, f: f64) -> f64 {
        let x = (f - self.ringdown) / self.width;
        self.at(f) * (-2.0 * x / (x * x + 1.0) - self.decay) / self.width
    }
}

/// Returns the terms of the post-Newtonian amplitude to 3PN and three calibrated ones.
///
/// # Source
/// Khan et al. 2016, appendix B.
fn inspiral(bodies: &Bodies) -> [f64; TERMS] {
    let Bodies { nu, difference: d, .. } = *bodies;
    let (s, a) = (0.5 * (bodies.chi1 + bodies.chi2), 0.5 * (bodies.chi1 - bodies.chi2));
    let (nu2, nu3) = (nu * nu, nu * nu * nu);
    let post_newtonian = [
        1.0,
        0.0,
        -323.0 / 224.0 + 451.0 / 168.0 * nu,
        27.0 / 8.0 * d * a + (27.0 / 8.0 - 11.0 / 6.0 * nu) * s,
        -27_312_085.0 / 8_128_512.0 - 1_975_055.0 / 338_688.0 * nu
            + 105_271.0 / 24_192.0 * nu2
            + (-81.0 / 32.0 + 8.0 * nu) * a * a
            - 81.0 / 16.0 * d * a * s
            + (-81.0 / 32.0 + 17.0 / 8.0 * nu) * s * s,
        85.0 * PI / 16.0 * (nu - 0.25)
            + d * (285_197.0 / 16_128.0 - 1579.0 / 4032.0 * nu) * a
            + (285_197.0 / 16_128.0 - 15_317.0 / 672.0 * nu - 2227.0 / 1008.0 * nu2) * s,
        -177_520_268_561.0 / 8_583_708_672.0
            + (545_384_828_789.0 / 5_007_163_392.0 - 205.0 * PI * PI / 48.0) * nu
            - 3_248_849_057.0 / 178_827_264.0 * nu2
            + 34_473_079.0 / 6_386_688.0 * nu3
            + (1_614_569.0 / 64_512.0 - 1_873_643.0 / 16_128.0 * nu + 2167.0 / 42.0 * nu2) * a * a
            + (31.0 / 12.0 - 7.0 / 3.0 * nu) * PI * s
            + (1_614_569.0 / 64_512.0 - 61_391.0 / 1344.0 * nu + 57_451.0 / 4032.0 * nu2) * s * s
            + d * a * (31.0 / 12.0 * PI + (1_614_569.0 / 32_256.0 - 165_961.0 / 2688.0 * nu) * s),
    ];
    let root = PI.cbrt();
    let mut terms = [0.0; TERMS];
    for (power, (term, value)) in terms.iter_mut().zip(post_newtonian).enumerate() {
        *term = value * root.powi(power as i32);
    }
    for (term, fit) in terms[7..].iter_mut().zip([FITS.rho1, FITS.rho2, FITS.rho3]) {
        *term = fit.at(nu, bodies.chi);
    }
    terms
}

/// Returns the quartic that matches the values and slopes of both adjacent regions and has the value `middle` between
/// them.
fn intermediate(inspiral: &[f64; TERMS], middle: f64, merger: &Merger, peak: f64) -> [f64; 5] {
    let root = INSPIRAL_END.cbrt();
    let slope_terms = std::array::from_fn::<_, TERMS, _>(|k| inspiral[k] * k as f64);
    let start = polynomial(inspiral, root);
    let start_slope = polynomial(&slope_terms, root) / (3.0 * INSPIRAL_END);
    // In t = (f - start) / length: value a, slope b, and the other terms from the remaining three conditions.
    let length = peak - INSPIRAL_END;
    let (a, b) = (start, start_slope * length);
    let at_end = merger.at(peak) - a - b;
    let slope = merger.slope(peak) * length - b;
    let half = middle - a - 0.5 * b;
    // c + d + e = at_end, 2 c + 3 d + 4 e = slope, c/4 + d/8 + e/16 = half.
    let c = 16.0 * half - 5.0 * at_end + slope;
    let d = -32.0 * half + 14.0 * at_end - 3.0 * slope;
    let e = 16.0 * half - 8.0 * at_end + 2.0 * slope;
    shifted([a, b, c, d, e], INSPIRAL_END, length)
}

/// Converts a polynomial in `(f - start) / length` to one in `f`.
fn shifted(terms: [f64; 5], start: f64, length: f64) -> [f64; 5] {
    let mut result = [0.0; 5];
    for term in terms.iter().rev() {
        // result <- result * (f - start) / length + term
        let mut next = [0.0; 5];
        for (power, value) in result.iter().enumerate() {
            next[power] -= value * start / length;
            if power + 1 < next.len() {
                next[power + 1] += value / length;
            }
        }
        next[0] += term;
        result = next;
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::strain::Binary;

    #[test]
    fn regions_join_in_value_and_slope() {
        for spin in [-0.85, 0.0, 0.85] {
            let binary = Binary { spin1z: spin, ..Binary::of_masses(36.0, 10.0) };
            let bodies = Bodies::new(&binary);
            let amplitude = Amplitude::new(&bodies, &Remnant::new(&bodies));
            let at = |f: f64| amplitude.at(f, f.cbrt());
            for joint in [INSPIRAL_END, amplitude.peak] {
                let step = 1e-6;
                assert!((at(joint - 1e-12) / at(joint + 1e-12) - 1.0).abs() < 1e-9, "{joint}");
                let before = (at(joint - step) - at(joint - 2.0 * step)) / step;
                let after = (at(joint + 2.0 * step) - at(joint + step)) / step;
                assert!((before - after).abs() < 2e-3 * at(joint) / joint, "{before} {after}");
            }
        }
    }
}
