//! Effect of the resampling chain on an impulse, and on the inner product of two responses.

use crate::spiir::plan::resample::Resampler;

/// Taps at a kernel's ends below this fraction of the largest are dropped.
const LEAST_TAP: f64 = 1e-13;

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
    pub(super) fn impulse() -> Self {
        Self { taps: vec![1.0], first: 0 }
    }

    /// Returns one downsampling followed by one upsampling: `(down * up) / 2` without the integer delays.
    pub(super) fn once(resampler: &Resampler) -> Self {
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
    pub(super) fn end(&self) -> i64 {
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
        let counts = |tap: &f64| tap.abs() > LEAST_TAP * largest;
        let first = self.taps.iter().position(counts).unwrap_or(0);
        let last = self.taps.iter().rposition(counts).unwrap_or(0);
        self.taps.truncate(last + 1);
        self.taps.drain(..first);
        self.first += first as i64;
        self
    }
}

/// Kernels between all pairs of rates.
#[derive(Clone, Debug)]
pub(super) struct Chain {
    /// Entry `m`, `j`: a sample of the rate halved `m + j` times, upsampled to the rate halved `m` times, under the
    /// inner product of that rate.
    kernels: Vec<Vec<Kernel>>,
    /// One downsampling followed by one upsampling.
    pub once: Kernel,
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
        Self { kernels: (0..=halvings as usize).map(row).collect(), once }
    }

    /// Returns the kernel from the rate halved `lower` times to that halved `higher <= lower` times.
    pub(super) fn kernel(&self, higher: u32, lower: u32) -> &Kernel {
        &self.kernels[higher as usize][(lower - higher) as usize]
    }
}
