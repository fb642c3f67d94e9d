//! Matching pursuit: adds filters to fit the residual that the placed filters leave.
//!
//! The placement rule follows a slowly changing phase. An abrupt end, or ringing of the whitening, has no such phase.
//! Damped oscillations fitted to the residual do not need one.

use std::f64::consts::TAU;

use num_complex::Complex64;

use super::placement::Placed;

/// Trial frequencies per octave.
const FREQUENCIES_AN_OCTAVE: f64 = 8.0;
/// Highest frequency in cycles per sample.
const HIGHEST: f64 = 0.36;
/// Trial decay times in cycles of the frequency.
const MEMORIES_CYCLES: [f64; 6] = [0.1, 0.2, 0.4, 0.8, 1.6, 3.2];
/// Greatest decay per sample.
const FASTEST: f64 = 1.0;
/// Refinement steps of frequency and decay time, each half the previous one.
const FINER: usize = 4;
/// Multiple of a filter's decay, in cycles per sample, that its branch must hold in addition to its frequency.
const RESERVE: f64 = 4.0;

/// Finds damped oscillations that successively remove most of a series; `lowest` is the lowest frequency in cycles
/// per sample.
///
/// Each one maximizes `|<v, r>| / |v|` over frequency, decay and delay, with `v[n] = a^(n - d)` and `r` the residual
/// of the previous ones.
pub(super) fn pursue(mut rest: Vec<Complex64>, lowest: f64, count: usize) -> Vec<Placed> {
    let octaves = (HIGHEST / lowest).log2().max(0.0);
    let frequencies = (octaves * FREQUENCIES_AN_OCTAVE) as usize + 1;
    let grid: Vec<(f64, f64)> = (0..frequencies)
        .map(|at| TAU * lowest * (at as f64 / FREQUENCIES_AN_OCTAVE).exp2())
        .flat_map(|angle| MEMORIES_CYCLES.map(|cycles| (angle, angle / (TAU * cycles))))
        .collect();
    let mut bases: Vec<Vec<Complex64>> = Vec::new();
    let mut found = Vec::new();
    for _ in 0..count {
        let Some(one) = best(&rest, &grid) else { break };
        let one = finer(&rest, one);
        // The residual is orthogonal to all oscillations found before.
        let mut base = series(&one, rest.len());
        for other in &bases {
            take_away(&mut base, other);
        }
        let norm = base.iter().map(Complex64::norm_sqr).sum::<f64>().sqrt();
        if norm > 1e-6 {
            base.iter_mut().for_each(|value| *value /= norm);
            take_away(&mut rest, &base);
            bases.push(base);
        }
        found.push(one);
    }
    found
}

/// Returns the best frequency and decay of a grid at the best delay.
fn best(rest: &[Complex64], grid: &[(f64, f64)]) -> Option<Placed> {
    let mut best = (0.0, None);
    for &(angle, decay) in grid {
        let pole = Complex64::from_polar((-decay).exp(), -angle);
        let norm = 1.0 - pole.norm_sqr();
        let mut product = Complex64::default();
        for (delay, value) in rest.iter().enumerate().rev() {
            // Computes <v, r> at one delay from its value at the next.
            product = product * pole + value;
            let score = product.norm_sqr() * norm;
            if score > best.0 {
                best = (score, Some(placed(angle, decay, delay)));
            }
        }
    }
    best.1
}

fn placed(angle: f64, decay: f64, delay: usize) -> Placed {
    let decay = decay.min(FASTEST);
    let reserve = RESERVE * decay / TAU;
    Placed { angle, decay, delay, reserve, weight: Complex64::default() }
}

/// Refines frequency and decay in decreasing steps to remove more of the residual.
fn finer(rest: &[Complex64], mut one: Placed) -> Placed {
    let score = |one: &Placed| {
        let pole = Complex64::from_polar((-one.decay).exp(), -one.angle);
        let part = rest[one.delay..].iter().rev();
        let product = part.fold(Complex64::default(), |sum, value| sum * pole + value);
        product.norm_sqr() * (1.0 - pole.norm_sqr())
    };
    let mut most = score(&one);
    let mut step = 0.5;
    for _ in 0..FINER {
        let angle = (step / FREQUENCIES_AN_OCTAVE).exp2();
        let decay = step.exp2();
        for (angle, decay) in [(angle, 1.0), (1.0 / angle, 1.0), (1.0, decay), (1.0, 1.0 / decay)] {
            let angle = (one.angle * angle).min(TAU * HIGHEST);
            let other = placed(angle, one.decay * decay, one.delay);
            let new = score(&other);
            if new > most {
                (most, one) = (new, other);
            }
        }
        step /= 2.0;
    }
    one
}

/// Returns the response with unit weight.
fn series(one: &Placed, length: usize) -> Vec<Complex64> {
    let pole = Complex64::from_polar((-one.decay).exp(), one.angle);
    let mut value = Complex64::new(1.0, 0.0);
    let mut out = vec![Complex64::default(); length];
    for out in &mut out[one.delay..] {
        *out = value;
        value *= pole;
    }
    out
}

/// Subtracts the projection onto a unit vector.
fn take_away(from: &mut [Complex64], unit: &[Complex64]) {
    let along: Complex64 = unit.iter().zip(&*from).map(|(unit, value)| unit.conj() * value).sum();
    from.iter_mut().zip(unit).for_each(|(value, unit)| *value -= along * unit);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damped_oscillations_are_found_again() {
        let truth = [placed(TAU * 0.021, 0.011, 40), placed(TAU * 0.11, 0.05, 12)];
        let mut sum = vec![Complex64::default(); 900];
        for one in &truth {
            sum.iter_mut().zip(series(one, 900)).for_each(|(sum, value)| *sum += value);
        }
        let power = |series: &[Complex64]| series.iter().map(Complex64::norm_sqr).sum::<f64>();
        let found = pursue(sum.clone(), 0.005, 4);
        assert_eq!(found.len(), 4);
        assert!(found.iter().any(|one| one.delay.abs_diff(40) <= 1), "{found:?}");
        assert!(found.iter().any(|one| one.delay.abs_diff(12) <= 1), "{found:?}");
        let mut rest = sum.clone();
        let mut bases: Vec<Vec<Complex64>> = Vec::new();
        for one in &found {
            let mut base = series(one, 900);
            bases.iter().for_each(|other| take_away(&mut base, other));
            let norm = power(&base).sqrt();
            base.iter_mut().for_each(|value| *value /= norm);
            take_away(&mut rest, &base);
            bases.push(base);
        }
        assert!(power(&rest) < 3e-3 * power(&sum), "{}", power(&rest) / power(&sum));
    }
}
