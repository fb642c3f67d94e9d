//! Least-squares fit of filter weights: inner products of responses through the resampling chain, the target at every
//! rate, and the solver.

use std::cell::OnceCell;
use std::sync::Arc;

use num_complex::Complex64;

use super::super::plan::Resampler;
use super::placement::{Assigned, REACH};
use super::recursions::{Recursion, add_responses, sum_back};
use super::whitened::{OfSize, fast_size};
use crate::math::{Buffer, Transforms};

/// Target response `t[n] = conj(h[L - 1 - n])`: its spectrum, and its projection through the resampler at each rate.
pub(super) struct Target<'a> {
    /// Spectrum of one downsampling followed by one upsampling.
    once: Arc<[Complex64]>,
    /// `sum |t|^2`.
    pub power: f64,
    /// Rates, from the strain's on.
    rates: Vec<Rate<'a>>,
    transforms: &'a Transforms,
}

/// Projection of the target at one rate.
struct Rate<'a> {
    spectrum: Buffer<'a>,
    /// Most samples of the projection that are not 0.
    length: usize,
    /// `q_m[k] = sum_n conj(r_m[n - k M]) t[n]`, from `k = 0`; computed for the first filter of this rate.
    seen: OnceCell<Buffer<'a>>,
}

impl<'a> Rate<'a> {
    fn new(spectrum: Buffer<'a>, length: usize) -> Self {
        Self { spectrum, length, seen: OnceCell::new() }
    }

    fn seen(&self, transforms: &'a Transforms) -> &[Complex64] {
        self.seen.get_or_init(|| {
            let mut series = transforms.copy(&self.spectrum);
            transforms.inverse(&mut series);
            let scale = 1.0 / series.len() as f64;
            series.truncate(self.length);
            series.iter_mut().for_each(|value| *value *= scale);
            series
        })
    }
}

impl<'a> Target<'a> {
    /// Creates the target of a whitened template; `memory` samples are padded for responses to decay.
    pub(super) fn new(
        h: &[Complex64],
        chain: &Chain,
        halvings: u32,
        memory: usize,
        transforms: &'a Transforms,
    ) -> Self {
        let spread = chain.once.taps.len() * usize::from(halvings > 0);
        let size = fast_size(h.len() + 2 * (spread << halvings) + memory, halvings);
        let mut spectrum = transforms.zeros(size);
        spectrum.iter_mut().zip(h.iter().rev()).for_each(|(to, h)| *to = h.conj());
        transforms.forward(&mut spectrum);
        let once = chain.spectrum(size, transforms);
        let power = h.iter().map(Complex64::norm_sqr).sum();
        let length = |level: u32| (h.len() >> level) + spread;
        let mut rates = vec![Rate::new(spectrum, length(0))];
        for level in 0..halvings {
            let spectrum = halved(&rates[level as usize].spectrum, &once, level, transforms);
            rates.push(Rate::new(spectrum, length(level + 1)));
        }
        Self { once, power, rates, transforms }
    }

    /// Returns the spectrum at the strain's rate.
    fn spectrum(&self) -> &[Complex64] {
        &self.rates[0].spectrum
    }

    /// Returns `<u_l, t>` for each filter with unit weight.
    pub(super) fn products(&self, filters: &[Assigned]) -> Vec<Complex64> {
        let mut products = vec![Complex64::default(); filters.len()];
        let mut recursions = Vec::new();
        for (level, rate) in (0..).zip(&self.rates) {
            let own = || (0..filters.len()).filter(|at| filters[*at].halvings == level);
            if own().next().is_none() {
                continue;
            }
            let seen = rate.seen(self.transforms);
            recursions.clear();
            recursions.extend(own().map(|at| {
                let filter = &filters[at];
                let until = seen.len().min(filter.delay + filter.reach());
                let (pole, from) = (filter.pole.conj(), filter.delay.min(until));
                Recursion { pole, from, until, value: Complex64::default() }
            }));
            sum_back(seen, &mut recursions);
            own().zip(&recursions).for_each(|(at, recursion)| products[at] = recursion.value);
        }
        products
    }

    /// Returns the spectrum of the weighted filters' response, averaged over the phases of the lower rates.
    pub(super) fn response(&self, filters: &[Assigned]) -> Buffer<'a> {
        let size = self.spectrum().len();
        let deepest = filters.iter().map(|filter| filter.halvings).max().unwrap_or(0);
        let mut sum: Option<Buffer<'a>> = None;
        let mut recursions = Vec::new();
        for level in (0..=deepest).rev() {
            let length = size >> level;
            let mut series = self.transforms.zeros(length);
            recursions.clear();
            let own = filters.iter().filter(|filter| filter.halvings == level);
            recursions.extend(own.map(|filter| {
                let until = length.min(filter.delay + filter.reach());
                let (pole, from) = (filter.pole, filter.delay.min(until));
                Recursion { pole, from, until, value: filter.weight }
            }));
            // The transform of zeros is zeros.
            if !recursions.is_empty() {
                add_responses(&mut series, &mut recursions);
                self.transforms.forward(&mut series);
            }
            if let Some(sum) = sum {
                let (low, high) = series.split_at_mut(length / 2);
                for half in [(low, 0), (high, length / 2)] {
                    for (k, (out, sum)) in half.0.iter_mut().zip(&*sum).enumerate() {
                        *out += self.once[(half.1 + k) << level] * sum;
                    }
                }
            }
            sum = Some(series);
        }
        sum.unwrap_or_else(|| self.transforms.zeros(0))
    }

    /// Returns the first samples of the residual of the target after subtracting the response with its best-fitting
    /// weight.
    pub(super) fn rest(&self, response: &[Complex64], samples: usize) -> Vec<Complex64> {
        let pairs = response.iter().zip(self.spectrum());
        let (cross, norm) =
            pairs.clone().fold((Complex64::default(), 0.0), |(cross, norm), (u, t)| {
                (cross + u.conj() * t, norm + u.norm_sqr())
            });
        let weight = if norm > 0.0 { cross / norm } else { Complex64::default() };
        let size = response.len();
        let mut series = self.transforms.buffer(size);
        series.iter_mut().zip(pairs).for_each(|(to, (u, t))| *to = t - weight * u);
        self.transforms.inverse(&mut series);
        series[..samples].iter().map(|value| value / size as f64).collect()
    }

    /// Returns `|<u, t>| / (|u| |t|)` for the spectrum of a response.
    pub(super) fn fit(&self, response: &[Complex64]) -> f64 {
        let pairs = response.iter().zip(self.spectrum());
        let (cross, norm) = pairs.fold((Complex64::default(), 0.0), |(cross, norm), (u, t)| {
            (cross + u.conj() * t, norm + u.norm_sqr())
        });
        let size = self.spectrum().len() as f64;
        cross.norm() / (norm * self.power * size).sqrt()
    }

    /// Returns `A[m] = sum_n u[n] conj(t[n - m])` for `|m| <= half`, divided by `A[0]`.
    pub(super) fn autocorrelation(&self, response: &[Complex64], half: usize) -> Vec<Complex64> {
        let pairs = response.iter().zip(self.spectrum());
        let size = response.len();
        let mut series = self.transforms.buffer(size);
        series.iter_mut().zip(pairs).for_each(|(to, (u, t))| *to = u * t.conj());
        self.transforms.inverse(&mut series);
        let at = |m: i64| series[m.rem_euclid(size as i64) as usize] / series[0];
        let half = half as i64;
        (-half..=half).map(at).collect()
    }
}

/// Computes the spectrum at half the rate of a spectrum at the rate halved `level` times.
fn halved<'a>(
    spectrum: &[Complex64],
    once: &[Complex64],
    level: u32,
    transforms: &'a Transforms,
) -> Buffer<'a> {
    let half = spectrum.len() / 2;
    let mut folded = transforms.buffer(half);
    for (k, to) in folded.iter_mut().enumerate() {
        let part = |k: usize| once[k << level].conj() * spectrum[k];
        *to = (part(k) + part(k + half)) / 2.0;
    }
    folded
}

/// Computes `G[l, k] = <u_l, u_k>` of the responses with unit weights at the strain's rate, averaged over its phases.
///
/// A filter is a recursion, so its response through a kernel `p` at a rate `2^j` times its own is one too: `s[n] = a
/// s[n - 2^j] + p[n - 2^j d]`. Beyond the kernel it is a geometric series, and its product with another filter's is a
/// sum in closed form.
pub(super) fn gram(filters: &[Assigned], chain: &Chain) -> Hermitian {
    let levels = filters.iter().map(|filter| filter.halvings).max().map_or(0, |last| last + 1);
    let mut matrix = Hermitian::zeros(filters.len());
    let polar: Vec<Polar> = filters.iter().map(|filter| Polar::new(filter.pole)).collect();
    let mut pairs = Pairs::default();
    for (k, lower) in filters.iter().enumerate() {
        for higher in 0..=lower.halvings.min(levels - 1) {
            let kernel = chain.kernel(higher, lower.halvings);
            let begin = ((lower.delay << (lower.halvings - higher)) as i64) + kernel.first;
            let is_met = |l: usize, filter: &Assigned| {
                let is_counted = higher == lower.halvings && l > k;
                filter.halvings == higher
                    && !is_counted
                    && begin < (filter.delay + filter.reach()) as i64
            };
            pairs.met.clear();
            pairs.met.extend((0..filters.len()).filter(|l| is_met(*l, &filters[*l])));
            if pairs.met.is_empty() {
                continue;
            }
            let response = Response { begin, beyond: begin + kernel.taps.len() as i64, higher };
            pairs.multiply(&response, lower, &polar[k], kernel, filters, &polar);
            for (l, recursion) in pairs.met.iter().zip(&pairs.recursions) {
                matrix.set(*l, k, recursion.value);
            }
        }
    }
    matrix
}

/// Modulus and angle of a pole, for its powers.
#[derive(Clone, Copy, Debug)]
struct Polar {
    /// Logarithm of the modulus.
    size: f64,
    angle: f64,
}

impl Polar {
    fn new(pole: Complex64) -> Self {
        Self { size: pole.norm().ln(), angle: pole.arg() }
    }

    fn conj(self) -> Self {
        Self { angle: -self.angle, ..self }
    }

    /// Returns a power of the pole, or 0 if it is negligible.
    fn power(self, exponent: f64) -> Complex64 {
        if exponent == 0.0 {
            return Complex64::new(1.0, 0.0);
        }
        let (size, angle) = (self.size * exponent, self.angle * exponent);
        if size < -2.0 * REACH {
            Complex64::default()
        } else {
            Complex64::from_polar(size.exp(), angle)
        }
    }
}

/// Response of a filter at a rate above its own.
#[derive(Clone, Copy, Debug)]
struct Response {
    /// Index of the first sample, and of the first one beyond the kernel.
    begin: i64,
    beyond: i64,
    /// Number of halvings of the rate.
    higher: u32,
}

/// Products of one filter's response with those of the filters that are alive when it begins.
#[derive(Default)]
struct Pairs {
    /// Indices of the other filters.
    met: Vec<usize>,
    /// Sums over the kernel, in the order of `met`.
    recursions: Vec<Recursion>,
    /// Samples of the response through the kernel, and those of one more period beyond it.
    series: Vec<Complex64>,
}

impl Pairs {
    /// Computes `sum over n >= d of conj(a)^(n - d) s[n]` for each other filter, at its rate.
    fn multiply(
        &mut self,
        response: &Response,
        lower: &Assigned,
        lower_polar: &Polar,
        kernel: &Kernel,
        filters: &[Assigned],
        polar: &[Polar],
    ) {
        let Response { begin, beyond, higher } = *response;
        let ratio = 1_usize << (lower.halvings - higher);
        let alive = |filter: &Assigned| (filter.delay + filter.reach()) as i64;
        let latest = self.met.iter().map(|l| alive(&filters[*l])).max().unwrap_or(0);
        let needed = match latest > beyond {
            true => kernel.taps.len() + ratio,
            false => (latest - begin) as usize,
        };
        self.respond(lower.pole, &kernel.taps, ratio, needed);
        self.recursions.clear();
        for l in &self.met {
            let filter = &filters[*l];
            let pole = filter.pole.conj();
            let delay = filter.delay as i64;
            let from = begin.max(delay);
            let (value, until) = if alive(filter) > beyond {
                let start = beyond.max(delay);
                let last = &self.series[kernel.taps.len()..];
                let skipped = (start - beyond) as usize;
                let rest = tail(lower.pole, *lower_polar, pole, polar[*l].conj(), last, skipped);
                (rest, start.min(beyond))
            } else {
                (Complex64::default(), alive(filter))
            };
            let [from, until] = [from.min(until), until].map(|n| (n - begin) as usize);
            self.recursions.push(Recursion { pole, from, until, value });
        }
        sum_back(&self.series, &mut self.recursions);
        for (recursion, l) in self.recursions.iter_mut().zip(&self.met) {
            let delay = filters[*l].delay as i64;
            recursion.value *= polar[*l].conj().power((begin.max(delay) - delay) as f64);
        }
    }

    /// Computes the first `needed` samples of a response: `s[n] = a s[n - ratio] + p[n]`.
    fn respond(&mut self, pole: Complex64, taps: &[f64], ratio: usize, needed: usize) {
        self.series.clear();
        self.series.extend(taps.iter().take(needed).map(|tap| Complex64::new(*tap, 0.0)));
        self.series.resize(needed, Complex64::default());
        let mut rest = &mut self.series[..];
        while rest.len() > ratio {
            let (before, after) = rest.split_at_mut(ratio);
            after.iter_mut().zip(&*before).for_each(|(now, before)| *now += pole * before);
            rest = after;
        }
    }
}

/// Returns the product with a filter of this pole from `skipped` samples beyond the kernel on, in closed form; `last` is
/// the first period beyond it.
fn tail(
    lower: Complex64,
    lower_polar: Polar,
    pole: Complex64,
    polar: Polar,
    last: &[Complex64],
    skipped: usize,
) -> Complex64 {
    let ratio = last.len();
    let (periods, first) = (skipped / ratio, skipped % ratio);
    // The period that the sum begins in, and the one that it ends in.
    let power = |periods: usize| lower_polar.power(periods as f64);
    let powers = [power(periods), if first > 0 { power(periods + 1) } else { Complex64::ZERO }];
    let mut sum = Complex64::default();
    for at in (first..first + ratio).rev() {
        let value = last[at % ratio] * powers[at / ratio];
        sum = sum * pole + value;
    }
    sum / (1.0 - polar.power(ratio as f64) * lower)
}

/// Taps at a kernel's ends below this fraction of the largest are dropped.
const MIN_TAP: f64 = 1e-13;

/// Finite sequence with indices of either sign.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Kernel {
    /// Values.
    pub taps: Vec<f64>,
    /// Index of the first value.
    pub first: i64,
}

impl Kernel {
    /// Returns 1 at index 0.
    fn impulse() -> Self {
        Self { taps: vec![1.0], first: 0 }
    }

    /// Returns one downsampling followed by one upsampling: `(down * up) / 2` without the integer delays.
    fn once(resampler: &Resampler) -> Self {
        let widen = |taps: &[f32], delay: usize| Self {
            taps: taps.iter().map(|tap| f64::from(*tap)).collect(),
            first: -(delay as i64),
        };
        let down = widen(&resampler.down, resampler.down_delay);
        let up = widen(&resampler.up, resampler.up_delay);
        let mut both = down.convolved(&up);
        both.taps.iter_mut().for_each(|tap| *tap /= 2.0);
        both
    }

    /// Returns the index after the last value.
    fn end(&self) -> i64 {
        self.first + self.taps.len() as i64
    }

    fn convolved(&self, other: &Self) -> Self {
        let mut taps = vec![0.0; self.taps.len() + other.taps.len() - 1];
        let (short, long) = if self.taps.len() < other.taps.len() {
            (&self.taps, &other.taps)
        } else {
            (&other.taps, &self.taps)
        };
        for (at, left) in short.iter().enumerate() {
            for (tap, right) in taps[at..].iter_mut().zip(long) {
                *tap += left * right;
            }
        }
        Self { taps, first: self.first + other.first }.trimmed()
    }

    fn reversed(&self) -> Self {
        Self { taps: self.taps.iter().rev().copied().collect(), first: 1 - self.end() }
    }

    /// Inserts a zero after each sample.
    fn doubled(&self) -> Self {
        let mut taps = vec![0.0; 2 * self.taps.len() - 1];
        for (out, tap) in taps.iter_mut().step_by(2).zip(&self.taps) {
            *out = *tap;
        }
        Self { taps, first: 2 * self.first }
    }

    /// Selects the samples with even indices.
    fn halved(&self) -> Self {
        let skip = self.first.rem_euclid(2) as usize;
        let taps = self.taps.iter().skip(skip).step_by(2).copied().collect();
        Self { taps, first: (self.first + skip as i64) / 2 }
    }

    fn trimmed(mut self) -> Self {
        let largest = self.taps.iter().fold(0.0_f64, |most, tap| most.max(tap.abs()));
        let counts = |tap: &f64| tap.abs() > MIN_TAP * largest;
        let first = self.taps.iter().position(counts).unwrap_or(0);
        let last = self.taps.iter().rposition(counts).unwrap_or(0);
        self.taps.truncate(last + 1);
        self.taps.drain(..first);
        self.first += first as i64;
        self
    }
}

/// Kernels between all pairs of rates.
pub(super) struct Chain {
    /// Entry `m`, `j`: response at the rate halved `m` times to one sample at the rate halved `m + j` times,
    /// convolved with the inner-product kernel of the rate halved `m` times.
    kernels: Vec<Vec<Kernel>>,
    /// One downsampling followed by one upsampling, and its spectra.
    pub once: Kernel,
    spectra: OfSize<Complex64>,
}

impl Chain {
    /// Computes the kernels up to `halvings`.
    ///
    /// `r_0 = 1`, `r_j[n] = sum_k c[n - 2 k] r_(j-1)[k]` is the upsampling; `v_0 = 1`,
    /// `v_m[t] = (c * reversed c * v_(m-1))[2 t]` is the inner product of two samples `t` apart; entry `m`, `j` is
    /// `v_m * r_j`.
    pub(super) fn new(resampler: &Resampler, halvings: u32) -> Self {
        let once = if halvings == 0 { Kernel::impulse() } else { Kernel::once(resampler) };
        let mut up = vec![Kernel::impulse()];
        let mut products = vec![Kernel::impulse()];
        let square = once.convolved(&once.reversed());
        for level in 0..halvings as usize {
            up.push(once.convolved(&up[level].doubled()));
            products.push(square.convolved(&products[level]).halved());
        }
        let row = |level: usize| {
            let up = &up[..=halvings as usize - level];
            up.iter().map(|up| products[level].convolved(up)).collect()
        };
        Self {
            kernels: (0..=halvings as usize).map(row).collect(),
            once,
            spectra: OfSize::default(),
        }
    }

    /// Returns the spectrum of one downsampling followed by one upsampling for a size of transforms.
    fn spectrum(&self, size: usize, transforms: &Transforms) -> Arc<[Complex64]> {
        self.spectra.get(size, || {
            let mut response = vec![Complex64::default(); size];
            for (tap, n) in self.once.taps.iter().zip(self.once.first..) {
                response[n.rem_euclid(size as i64) as usize] += tap;
            }
            transforms.forward(&mut response);
            response
        })
    }

    /// Returns the kernel from the rate halved `lower` times to that halved `higher <= lower` times.
    fn kernel(&self, higher: u32, lower: u32) -> &Kernel {
        &self.kernels[higher as usize][(lower - higher) as usize]
    }
}

/// Lower triangle of a Hermitian matrix.
#[derive(Clone, Debug)]
pub(super) struct Hermitian {
    size: usize,
    /// Rows in order, each up to the diagonal.
    entries: Vec<Complex64>,
}

impl Hermitian {
    /// Returns a zero matrix.
    fn zeros(size: usize) -> Self {
        Self { size, entries: vec![Complex64::default(); size * (size + 1) / 2] }
    }

    /// Sets an entry and its conjugate across the diagonal.
    fn set(&mut self, row: usize, column: usize, value: Complex64) {
        if row >= column {
            self.entries[start(row) + column] = value;
        } else {
            self.entries[start(column) + row] = value.conj();
        }
    }

    fn row(&self, row: usize) -> &[Complex64] {
        &self.entries[start(row)..start(row + 1)]
    }

    /// Returns `x^H G x`.
    pub(super) fn norm(&self, x: &[Complex64]) -> f64 {
        let row = |at: usize| {
            let (diagonal, below) = (self.row(at)[at].re, &self.row(at)[..at]);
            let cross: Complex64 = below.iter().zip(x).map(|(entry, other)| entry * other).sum();
            diagonal * x[at].norm_sqr() + 2.0 * (x[at].conj() * cross).re
        };
        (0..self.size).map(row).sum()
    }

    /// Solves `(G + ridge diag G) x = y` by a Cholesky factorization whose rows start at their first nonzero entry.
    pub(super) fn solve(&self, ridge: f64, y: &[Complex64]) -> Option<Vec<Complex64>> {
        let scale: Vec<f64> = (0..self.size).map(|at| self.row(at)[at].re.sqrt()).collect();
        let mut factor = self.clone();
        let mut firsts = Vec::with_capacity(self.size);
        for row in 0..self.size {
            let (above, current) = factor.entries.split_at_mut(start(row));
            let current = &mut current[..=row];
            for (column, entry) in current.iter_mut().enumerate() {
                *entry /= scale[row] * scale[column];
            }
            let first = current.iter().position(|entry| entry.norm_sqr() > 0.0)?;
            for column in first..row {
                let from = first.max(firsts[column]);
                let other = &above[start(column)..start(column + 1)];
                let pairs =
                    current[from.min(column)..column].iter().zip(&other[from.min(column)..column]);
                let done: Complex64 = pairs.map(|(left, right)| left * right.conj()).sum();
                current[column] = (current[column] - done) / other[column].re;
            }
            let done: f64 = current[first..row].iter().map(Complex64::norm_sqr).sum();
            let left = current[row].re * (1.0 + ridge) - done;
            if left <= 0.0 || !left.is_finite() {
                return None;
            }
            current[row] = Complex64::new(left.sqrt(), 0.0);
            firsts.push(first);
        }
        let mut x: Vec<Complex64> = y.iter().zip(&scale).map(|(y, scale)| y / scale).collect();
        for row in 0..self.size {
            let (known, current) = x.split_at_mut(row);
            let entries = factor.row(row);
            let pairs = entries[firsts[row]..row].iter().zip(&known[firsts[row]..]);
            let done: Complex64 = pairs.map(|(entry, x)| entry * x).sum();
            current[0] = (current[0] - done) / entries[row].re;
        }
        for row in (0..self.size).rev() {
            let (rest, current) = x.split_at_mut(row);
            let entries = factor.row(row);
            current[0] /= entries[row].re;
            for (x, entry) in rest[firsts[row]..].iter_mut().zip(&entries[firsts[row]..row]) {
                *x -= entry.conj() * current[0];
            }
        }
        x.iter_mut().zip(&scale).for_each(|(x, scale)| *x /= scale);
        Some(x)
    }
}

fn start(row: usize) -> usize {
    row * (row + 1) / 2
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spiir::plan::Resampler;

    fn filter(halvings: u32, frequency: f64, memory: f64, delay: usize) -> Assigned {
        let pole = Complex64::from_polar((-1.0 / memory).exp(), std::f64::consts::TAU * frequency);
        Assigned { halvings, pole, weight: Complex64::new(0.7, -0.2), delay }
    }

    #[test]
    fn inner_products_are_those_of_the_responses() {
        let filters = [
            filter(0, 0.21, 6.0, 3),
            filter(0, 0.17, 9.0, 11),
            filter(1, 0.30, 15.0, 9),
            filter(1, 0.22, 2.0, 0),
            filter(2, 0.36, 20.0, 14),
            filter(2, 0.20, 40.0, 60),
        ];
        for resampler in [Resampler::low_latency(), Resampler::linear_phase(40, 16, 60.0)] {
            let chain = Chain::new(&resampler, 2);
            let wanted: Vec<Complex64> =
                (0..700).map(|n| Complex64::cis(2e-4 * f64::from(n * n))).collect();
            let transforms = Transforms::default();
            let target = Target::new(&wanted, &chain, 2, 4000, &transforms);
            let matrix = gram(&filters, &chain);
            let products = target.products(&filters);
            // Zeroes all weights but two to check one pair at a time.
            for (l, k) in (0..6).flat_map(|l| (0..=l).map(move |k| (l, k))) {
                let mut pair = filters;
                let chosen = |at: usize| if at == l || at == k { 1.0 } else { 0.0 };
                pair.iter_mut().zip(0..).for_each(|(filter, at)| filter.weight *= chosen(at));
                let weights: Vec<Complex64> = pair.iter().map(|filter| filter.weight).collect();
                let response = target.response(&pair);
                let power = response.iter().map(Complex64::norm_sqr).sum::<f64>();
                let (found, expected) = (matrix.norm(&weights), power / response.len() as f64);
                assert!((found / expected - 1.0).abs() < 1e-8, "{l} {k}: {found} {expected}");
                let cross: Complex64 =
                    weights.iter().zip(&products).map(|(b, product)| b.conj() * product).sum();
                let fit = cross.norm() / (found * target.power).sqrt();
                assert!((fit - target.fit(&response)).abs() < 1e-8, "{l} {k}: {fit}");
            }
        }
    }

    #[test]
    fn a_solution_solves() {
        let size = 7;
        let mut matrix = Hermitian::zeros(size);
        for row in 0..size {
            for column in row.saturating_sub(2)..row {
                matrix.set(column, row, Complex64::new(0.3, 0.1 * column as f64 - 0.2));
            }
            matrix.set(row, row, Complex64::new(2.0 + row as f64, 0.0));
        }
        let truth: Vec<Complex64> =
            (0..size).map(|at| Complex64::new(at as f64, 1.0 - at as f64)).collect();
        let entry = |row: usize, column: usize| {
            if row >= column { matrix.row(row)[column] } else { matrix.row(column)[row].conj() }
        };
        let times = |row: usize| (0..size).map(|column| entry(row, column) * truth[column]).sum();
        let y: Vec<Complex64> = (0..size).map(times).collect();
        let x = matrix.solve(0.0, &y).expect("positive");
        for (x, truth) in x.iter().zip(&truth) {
            assert!((x - truth).norm() < 1e-12, "{x} against {truth}");
        }
        let direct: Complex64 = truth.iter().zip(&y).map(|(x, y)| x.conj() * y).sum();
        assert!((matrix.norm(&truth) - direct.re).abs() < 1e-10);
        matrix.set(3, 3, Complex64::new(-1.0, 0.0));
        assert!(matrix.solve(0.0, &y).is_none());
    }
}
