//! Independent first-order recursions in SIMD lanes, which hides the latency of each step.
//!
//! Invariant: each recursion has the bits that it has alone.

use num_complex::Complex64;

/// Most recursions at a time.
const LANES: usize = 8;

/// Recursion over the samples from `from` to before `until` of a series.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Recursion {
    /// Factor per sample.
    pub pole: Complex64,
    /// First sample.
    pub from: usize,
    /// Sample after the last, at least `from`.
    pub until: usize,
    /// Value before the first step, then after the last.
    pub value: Complex64,
}

/// Steps each recursion from its last sample to its first: `value = value pole + series[n]`.
pub(super) fn sum_back(series: &[Complex64], recursions: &mut [Recursion]) {
    for group in recursions.chunks_mut(LANES) {
        let parts = Parts::new(group);
        for part in parts.all().iter().rev() {
            let series = &series[part.from..part.until];
            match part.count {
                0 => {}
                1 => part.run(group, |lanes: &mut Lanes<1>| lanes.sum_back(series)),
                2 => part.run(group, |lanes: &mut Lanes<2>| lanes.sum_back(series)),
                3 | 4 => part.run(group, |lanes: &mut Lanes<4>| lanes.sum_back(series)),
                _ => part.run(group, |lanes: &mut Lanes<LANES>| lanes.sum_back(series)),
            }
        }
    }
}

/// Adds each recursion's values to the series from its first sample to its last; values for the same sample are added
/// in the order of the recursions: `series[n] += value`, `value = value pole`.
pub(super) fn add_responses(series: &mut [Complex64], recursions: &mut [Recursion]) {
    for group in recursions.chunks_mut(LANES) {
        let parts = Parts::new(group);
        for part in parts.all() {
            let series = &mut series[part.from..part.until];
            match part.count {
                0 => {}
                1 => part.run(group, |lanes: &mut Lanes<1>| lanes.add_to(series)),
                2 => part.run(group, |lanes: &mut Lanes<2>| lanes.add_to(series)),
                3 | 4 => part.run(group, |lanes: &mut Lanes<4>| lanes.add_to(series)),
                _ => part.run(group, |lanes: &mut Lanes<LANES>| lanes.add_to(series)),
            }
        }
    }
}

/// Samples over which the same recursions of a group run.
#[derive(Clone, Copy, Debug, Default)]
struct Part {
    from: usize,
    until: usize,
    /// Indices of the recursions, in order, and their number.
    active: [usize; LANES],
    count: usize,
}

impl Part {
    /// Runs `work` on the recursions; lanes beyond them are 0.
    fn run<const N: usize>(&self, group: &mut [Recursion], work: impl FnOnce(&mut Lanes<N>)) {
        let active = &self.active[..self.count];
        let mut lanes = Lanes { pole: [[0.0; N]; 2], value: [[0.0; N]; 2] };
        for (lane, index) in active.iter().enumerate() {
            let Recursion { pole, value, .. } = group[*index];
            [lanes.pole[0][lane], lanes.pole[1][lane]] = [pole.re, pole.im];
            [lanes.value[0][lane], lanes.value[1][lane]] = [value.re, value.im];
        }
        work(&mut lanes);
        for (lane, index) in active.iter().enumerate() {
            group[*index].value = Complex64::new(lanes.value[0][lane], lanes.value[1][lane]);
        }
    }
}

/// Parts of a group's samples, ascending.
struct Parts {
    parts: [Part; 2 * LANES],
    count: usize,
}

impl Parts {
    /// Splits the samples wherever a recursion begins or ends.
    fn new(group: &[Recursion]) -> Self {
        let mut edges = [0; 2 * LANES];
        for (pair, one) in edges.as_chunks_mut::<2>().0.iter_mut().zip(group) {
            *pair = [one.from, one.until];
        }
        let edges = &mut edges[..2 * group.len()];
        edges.sort_unstable();
        let mut all = Self { parts: [Part::default(); 2 * LANES], count: 0 };
        for pair in edges.windows(2).filter(|pair| pair[0] < pair[1]) {
            let mut part = Part { from: pair[0], until: pair[1], ..Part::default() };
            for (index, one) in group.iter().enumerate() {
                if one.from <= part.from && one.until >= part.until {
                    part.active[part.count] = index;
                    part.count += 1;
                }
            }
            all.parts[all.count] = part;
            all.count += 1;
        }
        all
    }

    fn all(&self) -> &[Part] {
        &self.parts[..self.count]
    }
}

/// Recursions side by side: real and imaginary parts.
struct Lanes<const N: usize> {
    pole: [[f64; N]; 2],
    value: [[f64; N]; 2],
}

impl<const N: usize> Lanes<N> {
    fn sum_back(&mut self, series: &[Complex64]) {
        let ([a, b], [mut re, mut im]) = (self.pole, self.value);
        for sample in series.iter().rev() {
            for lane in 0..N {
                let next = re[lane] * a[lane] - im[lane] * b[lane];
                im[lane] = re[lane] * b[lane] + im[lane] * a[lane] + sample.im;
                re[lane] = next + sample.re;
            }
        }
        self.value = [re, im];
    }

    fn add_to(&mut self, series: &mut [Complex64]) {
        let ([a, b], [mut re, mut im]) = (self.pole, self.value);
        for sample in series {
            for lane in 0..N {
                *sample += Complex64::new(re[lane], im[lane]);
                let next = re[lane] * a[lane] - im[lane] * b[lane];
                im[lane] = re[lane] * b[lane] + im[lane] * a[lane];
                re[lane] = next;
            }
        }
        self.value = [re, im];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Recursions of any range, some empty, some of which share samples.
    fn recursions(count: usize, length: usize) -> Vec<Recursion> {
        let one = |k: usize| {
            let (from, span) = (k * 37 % length, [0, 1, 50, length][k % 4]);
            Recursion {
                pole: Complex64::from_polar(0.9 + 0.01 * (k % 9) as f64, 0.3 * k as f64),
                from,
                until: (from + span).min(length),
                value: Complex64::new(0.1 * k as f64, -0.7),
            }
        };
        (0..count).map(one).collect()
    }

    #[test]
    fn lanes_have_the_bits_of_single_recursions() {
        let wave: Vec<Complex64> = (0..301).map(|n| Complex64::cis(f64::from(n * n))).collect();
        for count in 0..28 {
            let before = recursions(count, wave.len());
            let mut after = before.clone();
            sum_back(&wave, &mut after);
            for (one, found) in before.iter().zip(&after) {
                let samples = wave[one.from..one.until].iter().rev();
                let value = samples.fold(one.value, |value, sample| value * one.pole + sample);
                assert_eq!(found.value, value, "{one:?}");
            }
            let (mut sum, mut expected) = (wave.clone(), wave.clone());
            let mut after = before.clone();
            add_responses(&mut sum, &mut after);
            for (one, found) in before.iter().zip(&after) {
                let mut value = one.value;
                for sample in &mut expected[one.from..one.until] {
                    *sample += value;
                    value *= one.pole;
                }
                assert_eq!(found.value, value, "{one:?}");
            }
            assert_eq!(sum, expected);
        }
    }
}
