//! Comparison of rows with the filter bank's equation, within the bounds of single precision.
//!
//! With `u = 2^-24`, `x` the largest sample under a spectrum's window and `B` the sum of the
//! coefficients' magnitudes, a windowed sum is off by at most `u (taps + 2)` times the sum of its terms'
//! magnitudes (one rounding a coefficient, a product and an addition), and each of the transform's
//! `log2 N` steps adds a few `u` of what it sums, at most `x B` in all:
//!
//! - a value of a spectrum: `e = u (taps + 8 log2 2N) x B`;
//! - all values of a spectrum, in root mean square: `u (4 + sqrt(taps) + log2 2N)` times the 2-norm of
//!   the windowed sums of magnitudes (Parseval), which is `sqrt(N)` times tighter;
//! - a detected product of `X` and `Y`, with `P = |X|^2 + |Y|^2`: `2 (|X| + |Y|)(e_X + e_Y) + 2 (e_X +
//!   e_Y)^2 + 8 u P`, and a sum over `k` of them `k u` times the sum of `P` more;
//! - a requantized part `v`: what `v - e gain - 2 u |v|` and `v + e gain + 2 u |v|` round to.
#![allow(dead_code, unreachable_pub, missing_docs)]

use sidereal::backend::Backend;
use sidereal::channelize::{Detection, Form, Input, Plan};

use super::banks::Brief;
use super::channelize::{Recording, Run, Truth, split};
use super::expected::{Spectrum, UNIT};
use super::random::Random;

/// Number of channels compared in a long row.
const PROBES: usize = 24;

/// Compares one row element by element (only some elements of a long row).
struct Comparison<'a> {
    plan: &'a Plan,
    recording: &'a Recording,
    probes: Vec<usize>,
    name: String,
}

impl Comparison<'_> {
    fn check(&self, run: &Run) {
        let truth = Truth::new(self.plan, self.recording);
        let rows = self.plan.rows(self.recording.times() as u64) as usize;
        let bytes = rows * self.plan.row_elements() * self.plan.element_bytes();
        assert_eq!(run.bytes.len(), bytes, "{}", self.name);
        match &self.plan.options().form {
            Form::Spectra | Form::Filtered => self.spectra(run, &truth, rows),
            Form::Detected(detection) => self.detected(run, &truth, rows, detection),
            Form::Requantized { bits, gains } => {
                self.requantized(run, &truth, rows, *bits, gains);
            }
        }
        if !matches!(self.plan.options().form, Form::Requantized { .. }) {
            assert!(run.saturated.iter().all(|count| *count == 0), "{}", self.name);
        }
        assert_eq!(run.saturated.len(), self.plan.row_elements());
    }

    /// Antenna, index and polarization of every spectrum of a row.
    fn places(&self) -> Vec<(usize, usize, usize)> {
        let Input { antennas, coarse_channels, polarizations, .. } = *self.plan.input();
        let streams = 0..antennas * coarse_channels * polarizations;
        let place = |s| {
            let rest = s / polarizations;
            (rest / coarse_channels, rest % coarse_channels, s % polarizations)
        };
        streams.map(place).collect()
    }

    fn spectra(&self, run: &Run, truth: &Truth<'_>, rows: usize) {
        let (plan, found) = (self.plan, run.complex());
        for row in 0..rows {
            let spectrum = Spectrum::new(truth, plan, row);
            for (antenna, place, polarization) in self.places() {
                let sums = spectrum.sums(antenna, place, polarization);
                let at = row * plan.row_elements() + plan.row_offset(antenna, polarization, place);
                let (mut squares, mut power) = (0.0, 0.0);
                for channel in &self.probes {
                    let (expected, bound) = spectrum.value(sums, *channel);
                    let error = (found[at + channel] - expected).norm();
                    let name = format!("{}: row {row} channel {channel}", self.name);
                    assert!(error <= bound, "{name}: off by {error:.3e}, at most {bound:.3e}");
                    squares += error * error;
                    power += expected.norm_sqr();
                }
                let norm: f64 = sums.magnitudes.iter().map(|y| y * y).sum::<f64>().sqrt();
                let steps = (plan.taps() as f64).sqrt() + (2.0 * plan.points() as f64).log2();
                // If only some channels are compared, that of a tone may be among them.
                let own = (power / self.probes.len() as f64).sqrt();
                let bound = UNIT * (4.0 + steps) * norm.max(own);
                let error = (squares / self.probes.len() as f64).sqrt();
                let name = format!("{}: row {row}", self.name);
                assert!(error <= bound, "{name}: rms error {error:.3e}, at most {bound:.3e}");
            }
        }
    }

    fn detected(&self, run: &Run, truth: &Truth<'_>, rows: usize, detection: &Detection) {
        let (plan, found) = (self.plan, run.floats());
        for row in 0..rows {
            let spectra = row * detection.spectra..(row + 1) * detection.spectra;
            let spectra: Vec<_> = spectra.map(|s| Spectrum::new(truth, plan, s)).collect();
            for (antenna, place, _) in self.places().iter().filter(|place| place.2 == 0) {
                for channel in &self.probes {
                    let mut sums = vec![0.0; plan.output_products()];
                    let (mut bound, mut power, mut terms) = (0.0, 0.0, 0.0);
                    let own = channel * detection.channels..(channel + 1) * detection.channels;
                    for (spectrum, own) in
                        spectra.iter().flat_map(|s| own.clone().map(move |c| (s, c)))
                    {
                        let (values, off, weight) = spectrum.cleaned((*antenna, *place), own);
                        sums.iter_mut().zip(&values).for_each(|(sum, value)| *sum += value);
                        (bound, power, terms) = (bound + off, power + weight, terms + 1.0);
                    }
                    bound += terms * UNIT * power;
                    for (product, expected) in sums.iter().enumerate() {
                        let at = plan.row_offset(*antenna, product, *place) + channel;
                        let error = (found[row * plan.row_elements() + at] - expected).abs();
                        let name = format!("{}: row {row} {product} {channel}", self.name);
                        assert!(error <= bound, "{name}: off by {error:.3e}, at most {bound:.3e}");
                    }
                }
            }
        }
    }

    fn requantized(&self, run: &Run, truth: &Truth<'_>, rows: usize, bits: usize, gains: &[f32]) {
        let (plan, found) = (self.plan, run.integers(bits));
        let most = f64::from(1 << (bits - 1)) - 1.0;
        let elements = plan.row_elements();
        let mut limited = vec![(0u64, 0u64); elements];
        let (mut parts, mut differing) = (0, 0);
        for row in 0..rows {
            let spectrum = Spectrum::new(truth, plan, row);
            for (antenna, place, polarization) in self.places() {
                let sums = spectrum.sums(antenna, place, polarization);
                for channel in &self.probes {
                    let at = plan.row_offset(antenna, polarization, place) + channel;
                    let own = place * plan.channels() + channel;
                    let gain = f64::from(gains[if gains.len() == 1 { 0 } else { own }]);
                    let (value, off) = spectrum.value(sums, *channel);
                    let (re, im) = found[row * elements + at];
                    let mut beyond = (false, false);
                    for (v, found) in [(value.re * gain, re), (value.im * gain, im)] {
                        let off = off * gain.abs() + 2.0 * UNIT * v.abs();
                        let (low, high) =
                            ((v - off).round_ties_even(), (v + off).round_ties_even());
                        let part = |x: f64| x.clamp(-most - 1.0, most) as i8;
                        let fits = (part(low)..=part(high)).contains(&found);
                        assert!(fits, "{}: row {row} {at}: {found} for {v} +- {off}", self.name);
                        beyond.0 |= low > most || high < -most - 1.0;
                        beyond.1 |= high > most || low < -most - 1.0;
                        if off < 0.05 {
                            parts += 1;
                            differing += usize::from(part(v.round_ties_even()) != found);
                        }
                    }
                    limited[at].0 += u64::from(beyond.0);
                    limited[at].1 += u64::from(beyond.1);
                    if row + 1 == rows {
                        let (least, most) = limited[at];
                        let count = run.saturated[at];
                        let name = format!("{}: element {at}", self.name);
                        assert!((least..=most).contains(&count), "{name}: {count} limited");
                    }
                }
            }
        }
        assert!(differing <= 3 + parts / 100, "{}: {differing} of {parts} differ", self.name);
    }
}

/// Of this many cases, an emulated GPU, thousands of times slower than a real one, runs one.
const EMULATED: usize = 5;

/// Whether a backend runs a case: the reference if it is fast enough, an emulated GPU some of them.
fn takes(backend: &Backend, plan: &Plan, index: usize) -> bool {
    if backend.name().contains("Emulated")
        && (!index.is_multiple_of(EMULATED) || plan.points() > 1 << 16)
    {
        eprintln!("case {index} is left out on {}", backend.name());
        return false;
    }
    !(matches!(backend, Backend::Reference) && plan.points() > 64)
}

/// All backends against the equation.
pub fn check(random: &mut Random, plan: &Plan, recording: &Recording, index: usize) {
    let count = plan.output_channels();
    // Each probe of a sum over channels costs as many bins.
    let probes = PROBES / plan.channels().div_ceil(count).min(3);
    let mut probes: Vec<usize> = if count <= probes {
        (0..count).collect()
    } else {
        // Ends, middle and every lane of a vector, besides any others.
        let fixed = [0, 1, count / 2 - 1, count / 2, count / 2 + 1, count - 2, count - 1];
        let others = (fixed.len()..probes).map(|_| random.below(count));
        fixed.into_iter().chain(others).collect()
    };
    probes.sort_unstable();
    probes.dedup();
    let backends = Backend::available(1 + random.below(3));
    for backend in &backends {
        if !takes(backend, plan, index) {
            continue;
        }
        let run = split(plan, backend, recording, random);
        let name = format!("{} {:?}", backend.name(), Brief(plan));
        Comparison { plan, recording, probes: probes.clone(), name }.check(&run);
    }
}
