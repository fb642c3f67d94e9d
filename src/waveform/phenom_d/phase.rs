//! Phase of IMRPhenomD in the inspiral, intermediate, and merger-ringdown regions.

use std::f64::consts::{FRAC_PI_4, PI};

use super::coefficients::{Bodies, FITS, Fit, Remnant, polynomial};
use crate::waveform::post_newtonian::EULER_GAMMA;

/// End of the inspiral's phase in units of 1/M.
const INSPIRAL_END: f64 = 0.018;

/// Powers of `v` in the inspiral's phase.
const TERMS: usize = 12;

/// Phase lag of the wave, continuous in value and slope; frequencies are in units of 1/M.
#[derive(Clone, Copy, Debug)]
pub(super) struct Phase {
    inspiral: Inspiral,
    intermediate: Joined<Intermediate>,
    merger: Joined<Merger>,
    merger_begin: f64,
}

impl Phase {
    /// # Source
    /// Khan et al. 2016, section V and VIII: equations 13, 14, 16, 27, 28.
    pub(super) fn new(bodies: &Bodies, remnant: &Remnant) -> Self {
        let fit = |fit: Fit| fit.at(bodies.nu, bodies.chi) / bodies.nu;
        let inspiral = Inspiral::new(bodies);
        let intermediate = Intermediate { beta: [FITS.beta1, FITS.beta2, FITS.beta3].map(fit) };
        let merger = Merger {
            alpha: [FITS.alpha1, FITS.alpha2, FITS.alpha3, FITS.alpha4].map(fit),
            centre: FITS.alpha5.at(bodies.nu, bodies.chi) * remnant.ringdown,
            damping: remnant.damping,
        };
        let merger_begin = 0.5 * remnant.ringdown;
        let root = INSPIRAL_END.cbrt();
        let intermediate =
            Joined::new(intermediate, INSPIRAL_END, [inspiral.at(root), inspiral.slope(root)]);
        let before = [intermediate.at(merger_begin), intermediate.slope(merger_begin)];
        let merger = Joined::new(merger, merger_begin, before);
        Self { inspiral, intermediate, merger, merger_begin }
    }

    /// Returns the phase in radians at `f`, whose cube root is `root`.
    pub(super) fn at(&self, f: f64, root: f64) -> f64 {
        if f < INSPIRAL_END {
            self.inspiral.at(root)
        } else if f < self.merger_begin {
            self.intermediate.at(f)
        } else {
            self.merger.at(f)
        }
    }

    /// Returns the derivative with respect to `f`.
    pub(super) fn slope(&self, f: f64) -> f64 {
        if f < INSPIRAL_END {
            self.inspiral.slope(f.cbrt())
        } else if f < self.merger_begin {
            self.intermediate.slope(f)
        } else {
            self.merger.slope(f)
        }
    }
}

/// Phase of a region and its derivative.
trait Region {
    fn at(&self, f: f64) -> f64;
    fn slope(&self, f: f64) -> f64;
}

/// Phase of a region plus a term linear in `f` that makes it continuous with the region before.
#[derive(Clone, Copy, Debug)]
struct Joined<R> {
    region: R,
    constant: f64,
    linear: f64,
}

impl<R: Region> Joined<R> {
    fn new(region: R, joint: f64, [value, slope]: [f64; 2]) -> Self {
        let linear = slope - region.slope(joint);
        let constant = value - region.at(joint) - linear * joint;
        Self { region, constant, linear }
    }

    fn at(&self, f: f64) -> f64 {
        self.region.at(f) + self.constant + self.linear * f
    }

    fn slope(&self, f: f64) -> f64 {
        self.region.slope(f) + self.linear
    }
}

/// `v^-5 sum_k (p_k + l_k ln v) v^k - pi/4`, `v = (pi f)^(1/3)`.
#[derive(Clone, Copy, Debug)]
struct Inspiral {
    terms: [f64; TERMS],
    /// Coefficients of the logarithms at the fifth and the sixth power.
    logarithms: [f64; 2],
}

impl Inspiral {
    /// Returns TaylorF2 to 3.5PN, spin-orbit to 3.5PN, spin-spin to 2PN, and four calibrated terms.
    ///
    /// # Source
    /// Khan et al. 2016, appendix B; Buonanno et al. 2009, arXiv:0907.0700; Bohe et al. 2013, arXiv:1303.7431.
    fn new(bodies: &Bodies) -> Self {
        let Bodies { nu, difference, mass1, mass2, chi1, chi2, .. } = *bodies;
        let (nu2, nu3) = (nu * nu, nu * nu * nu);
        let s = mass1 * mass1 * chi1 + mass2 * mass2 * chi2;
        let sigma = difference * (mass2 * chi2 - mass1 * chi1);
        let squares = (mass1 * chi1).powi(2) + (mass2 * chi2).powi(2);
        let tail = 5.0 / 9.0 * (7729.0 / 84.0 - 13.0 * nu) * PI;
        let spin_orbit = (554_345.0 / 1134.0 + 110.0 / 9.0 * nu) * s
            + (13_915.0 / 84.0 - 10.0 / 3.0 * nu) * sigma;
        let sixth = 11_583_231_236_531.0 / 4_694_215_680.0
            - 640.0 / 3.0 * PI * PI
            - 6848.0 / 21.0 * (EULER_GAMMA + 4_f64.ln())
            + (-15_737_765_635.0 / 3_048_192.0 + 2255.0 / 12.0 * PI * PI) * nu
            + 76_055.0 / 1728.0 * nu2
            - 127_825.0 / 1296.0 * nu3
            + PI / 3.0 * (3760.0 * s + 1490.0 * sigma);
        let seventh = PI
            * (77_096_675.0 / 254_016.0 + 378_515.0 / 1512.0 * nu - 74_045.0 / 756.0 * nu2)
            + (-8_980_424_995.0 / 762_048.0 + 6_586_595.0 / 756.0 * nu - 305.0 / 36.0 * nu2) * s
            - (170_978_035.0 / 48_384.0 - 2_876_425.0 / 672.0 * nu - 4735.0 / 144.0 * nu2) * sigma;
        let post_newtonian = [
            1.0,
            0.0,
            5.0 / 9.0 * (743.0 / 84.0 + 11.0 * nu),
            -16.0 * PI + 188.0 / 3.0 * s + 25.0 * sigma,
            5.0 / 72.0 * (3_058_673.0 / 7056.0 + 5429.0 / 7.0 * nu + 617.0 * nu2)
                - 10.0 * (79.0 / 8.0 * nu * chi1 * chi2 + 81.0 / 16.0 * squares),
            tail - spin_orbit,
            sixth,
            seventh,
        ];
        let leading = 3.0 / (128.0 * nu);
        let mut terms = [0.0; TERMS];
        for (term, value) in terms.iter_mut().zip(post_newtonian) {
            *term = leading * value;
        }
        let calibrated =
            [(FITS.sigma1, 1.0), (FITS.sigma2, 0.75), (FITS.sigma3, 0.6), (FITS.sigma4, 0.5)];
        let root = PI.cbrt();
        for (index, (fit, factor)) in calibrated.into_iter().enumerate() {
            // f^(n/3) is v^n / pi^(n/3), and is multiplied by v^-5.
            let value = fit.at(nu, bodies.chi) * factor / nu;
            terms[8 + index] = value / root.powi(3 + index as i32);
        }
        let logarithms = [3.0 * (tail - spin_orbit), -6848.0 / 21.0].map(|l| l * leading);
        Self { terms, logarithms }
    }

    /// Returns the phase at the frequency whose cube root is `root`.
    fn at(&self, root: f64) -> f64 {
        let v = PI.cbrt() * root;
        let [fifth, sixth] = self.logarithms;
        polynomial(&self.terms, v) / v.powi(5) + (fifth + sixth * v) * v.ln() - FRAC_PI_4
    }

    fn slope(&self, root: f64) -> f64 {
        let v = PI.cbrt() * root;
        let [fifth, sixth] = self.logarithms;
        let terms = std::array::from_fn::<_, TERMS, _>(|k| self.terms[k] * (k as f64 - 5.0));
        // Derivative by v; f is v^3 / pi.
        let slope = polynomial(&terms, v) / v.powi(6) + (fifth + sixth * v) / v + sixth * v.ln();
        slope * PI / (3.0 * v * v)
    }
}

/// `b1 f + b2 ln f - b3 f^-3 / 3`.
#[derive(Clone, Copy, Debug)]
struct Intermediate {
    beta: [f64; 3],
}

impl Region for Intermediate {
    fn at(&self, f: f64) -> f64 {
        let [linear, logarithm, cube] = self.beta;
        linear * f + logarithm * f.ln() - cube / (3.0 * f * f * f)
    }

    fn slope(&self, f: f64) -> f64 {
        let [linear, logarithm, cube] = self.beta;
        linear + logarithm / f + cube / f.powi(4)
    }
}

/// `a1 f - a2 / f + 4/3 a3 f^(3/4) + a4 arctan((f - centre) / damping)`.
#[derive(Clone, Copy, Debug)]
struct Merger {
    alpha: [f64; 4],
    centre: f64,
    damping: f64,
}

impl Region for Merger {
    fn at(&self, f: f64) -> f64 {
        let [linear, inverse, power, arctangent] = self.alpha;
        let quarters = (f * f.sqrt()).sqrt();
        linear * f - inverse / f
            + 4.0 / 3.0 * power * quarters
            + arctangent * ((f - self.centre) / self.damping).atan()
    }

    fn slope(&self, f: f64) -> f64 {
        let [linear, inverse, power, arctangent] = self.alpha;
        let x = (f - self.centre) / self.damping;
        linear
            + inverse / (f * f)
            + power / f.sqrt().sqrt()
            + arctangent / (self.damping * (1.0 + x * x))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::strain::Binary;

    #[test]
    fn slopes_are_those_of_the_phase_and_regions_join() {
        let binary = Binary { spin1z: 0.7, spin2z: -0.3, ..Binary::of_masses(36.0, 10.0) };
        let bodies = Bodies::new(&binary);
        let phase = Phase::new(&bodies, &Remnant::new(&bodies));
        let at = |f: f64| phase.at(f, f.cbrt());
        for f in [0.003, 0.01, 0.017_99, 0.018_01, 0.03, 0.06, 0.12] {
            let step = 1e-6;
            let slope = (at(f + step) - at(f - step)) / (2.0 * step);
            assert!((phase.slope(f) - slope).abs() < 1e-5 * slope.abs().max(100.0), "{f} {slope}");
        }
        for joint in [INSPIRAL_END, phase.merger_begin] {
            assert!((at(joint - 1e-12) - at(joint + 1e-12)).abs() < 1e-6, "{joint}");
            let (before, after) = (phase.slope(joint - 1e-12), phase.slope(joint + 1e-12));
            assert!((before - after).abs() < 1e-6 * before.abs().max(1.0), "{before} {after}");
        }
    }
}
