//! Target response of the fit at every rate, and the response of a set of filters.

use num_complex::Complex64;

use super::assign::Assigned;
use super::chain::Kernel;
use super::transforms::Transforms;
use super::whitened::fast_size;

/// Target response `t[n] = conj(h[L - 1 - n])`: its spectrum, and its projection through the resampler at each rate.
pub(super) struct Target<'a> {
    /// Spectrum of `t`, and of one downsampling followed by one upsampling.
    spectrum: Vec<Complex64>,
    once: Vec<Complex64>,
    /// `sum |t|^2`.
    pub power: f64,
    /// Samples at any rate by which the resampler spreads the target.
    spread: usize,
    /// Projection at each rate, `q_m[k] = sum_n conj(r_m[n - k M]) t[n]`, from `k = 0`.
    seen: Vec<Vec<Complex64>>,
    transforms: &'a Transforms,
}

impl<'a> Target<'a> {
    /// Creates the target of a whitened template; `memory` samples are padded for responses to decay.
    pub(super) fn new(
        h: &[Complex64],
        (once, halvings): (&Kernel, u32),
        memory: usize,
        transforms: &'a Transforms,
    ) -> Self {
        let spread = once.taps.len() * usize::from(halvings > 0);
        let size = fast_size(h.len() + 2 * (spread << halvings) + memory, halvings);
        let forward = transforms.forward(size);
        let mut spectrum: Vec<Complex64> = h.iter().rev().map(Complex64::conj).collect();
        spectrum.resize(size, Complex64::default());
        forward.process(&mut spectrum);
        let mut response = vec![Complex64::default(); size];
        for (tap, n) in once.taps.iter().zip(once.first..) {
            response[n.rem_euclid(size as i64) as usize] += tap;
        }
        forward.process(&mut response);
        let power = h.iter().map(Complex64::norm_sqr).sum();
        let mut target =
            Self { spectrum, once: response, power, spread, seen: Vec::new(), transforms };
        target.seen = target.look(halvings, h.len());
        target
    }

    /// Projects the target to each rate in turn. This is the inner product with upsampled samples.
    fn look(&self, halvings: u32, length: usize) -> Vec<Vec<Complex64>> {
        let mut spectrum = self.spectrum.clone();
        let mut seen = Vec::new();
        for level in 0..=halvings {
            let factor = 1 << level;
            let mut series = spectrum.clone();
            self.transforms.inverse(series.len()).process(&mut series);
            let scale = 1.0 / series.len() as f64;
            series.truncate((length >> level) + self.spread);
            series.iter_mut().for_each(|value| *value *= scale);
            seen.push(series);
            let half = spectrum.len() / 2;
            if level < halvings {
                let folded = |k: usize| {
                    let part = |k: usize| self.once[k * factor].conj() * spectrum[k];
                    (part(k) + part(k + half)) / 2.0
                };
                spectrum = (0..half).map(folded).collect();
            }
        }
        seen
    }

    /// Returns `<u_l, t>` for each filter with unit weight.
    pub(super) fn products(&self, filters: &[Assigned]) -> Vec<Complex64> {
        let product = |filter: &Assigned| {
            let seen = &self.seen[filter.halvings as usize];
            let end = seen.len().min(filter.delay + filter.reach());
            let part = seen.get(filter.delay..end).unwrap_or(&[]);
            let pole = filter.pole.conj();
            part.iter().rev().fold(Complex64::default(), |sum, value| sum * pole + value)
        };
        filters.iter().map(product).collect()
    }

    /// Returns the spectrum of the weighted filters' response, averaged over the phases of the lower rates.
    pub(super) fn response(&self, filters: &[Assigned]) -> Vec<Complex64> {
        let size = self.spectrum.len();
        let deepest = filters.iter().map(|filter| filter.halvings).max().unwrap_or(0);
        let mut sum: Vec<Complex64> = Vec::new();
        for level in (0..=deepest).rev() {
            let length = size >> level;
            let mut series = vec![Complex64::default(); length];
            for filter in filters.iter().filter(|filter| filter.halvings == level) {
                let mut value = filter.weight;
                let end = length.min(filter.delay + filter.reach());
                for out in &mut series[filter.delay.min(end)..end] {
                    *out += value;
                    value *= filter.pole;
                }
            }
            self.transforms.forward(length).process(&mut series);
            if !sum.is_empty() {
                for (k, out) in series.iter_mut().enumerate() {
                    *out += self.once[k << level] * sum[k % (length / 2)];
                }
            }
            sum = series;
        }
        sum
    }

    /// Returns the first samples of the residual of the target after subtracting the response with its best-fitting
    /// weight.
    pub(super) fn rest(&self, response: &[Complex64], samples: usize) -> Vec<Complex64> {
        let pairs = response.iter().zip(&self.spectrum);
        let (cross, norm) =
            pairs.clone().fold((Complex64::default(), 0.0), |(cross, norm), (u, t)| {
                (cross + u.conj() * t, norm + u.norm_sqr())
            });
        let weight = if norm > 0.0 { cross / norm } else { Complex64::default() };
        let mut series: Vec<Complex64> = pairs.map(|(u, t)| t - weight * u).collect();
        let size = series.len();
        self.transforms.inverse(size).process(&mut series);
        series.truncate(samples);
        series.iter_mut().for_each(|value| *value /= size as f64);
        series
    }

    /// Returns `|<u, t>| / (|u| |t|)` for the spectrum of a response.
    pub(super) fn fit(&self, response: &[Complex64]) -> f64 {
        let pairs = response.iter().zip(&self.spectrum);
        let (cross, norm) = pairs.fold((Complex64::default(), 0.0), |(cross, norm), (u, t)| {
            (cross + u.conj() * t, norm + u.norm_sqr())
        });
        let size = self.spectrum.len() as f64;
        cross.norm() / (norm * self.power * size).sqrt()
    }

    /// Returns `A[m] = sum_n u[n] conj(t[n - m])` for `|m| <= half`, divided by `A[0]`.
    pub(super) fn autocorrelation(&self, response: &[Complex64], half: usize) -> Vec<Complex64> {
        let pairs = response.iter().zip(&self.spectrum);
        let mut series: Vec<Complex64> = pairs.map(|(u, t)| u * t.conj()).collect();
        let size = series.len();
        self.transforms.inverse(size).process(&mut series);
        let at = |m: i64| series[m.rem_euclid(size as i64) as usize] / series[0];
        let half = half as i64;
        (-half..=half).map(at).collect()
    }
}
