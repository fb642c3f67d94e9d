//! Output of the correlator: visibilities of all chosen baselines over one integration.

use num_complex::Complex;

use crate::units::Epoch;

/// Sums over the spectra of one integration.
///
/// | buffer   | axes                    | type        | unit                      |
/// |----------|-------------------------|-------------|---------------------------|
/// | `sums`   | baseline, channel, pair | complex f64 | counts of the recording^2 |
/// | `counts` | baseline, channel       | u64         | samples                   |
///
/// `V_ij[p, q] = sum x_ip conj(x_jq)` over the samples at which antennas i and j are both valid. Pairs are in the
/// order XX, XY, YX, YY, channels by ascending sky frequency. Voltages of a lower sideband are conjugated to the
/// sky's first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Integration {
    /// Number of the integration, from 0.
    pub number: u64,
    /// Number of its first spectrum.
    pub first: u64,
    /// Spectra summed; only the last integration may have fewer than the others.
    pub spectra: u64,
    /// Centre time.
    pub centre: Epoch,
    /// Sums over valid samples.
    pub sums: Vec<Complex<f64>>,
    /// Valid samples, summed over the channels averaged into one.
    pub counts: Vec<u64>,
}

impl Integration {
    /// Creates an empty integration.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the mean over valid samples of each sum, 0 without valid samples; axes baseline, channel, pair.
    pub fn means(&self) -> impl Iterator<Item = Complex<f64>> + '_ {
        let pairs = self.sums.len() / self.counts.len().max(1);
        let rows = self.sums.chunks_exact(pairs.max(1)).zip(&self.counts);
        rows.flat_map(|(sums, count)| sums.iter().map(move |sum| sum / (*count).max(1) as f64))
    }

    /// Resizes the buffers and fills them with 0.
    pub(super) fn clear(
        &mut self,
        baselines: usize,
        channels: usize,
        pairs: usize,
    ) -> (&mut [Complex<f64>], &mut [u64]) {
        self.sums.clear();
        self.sums.resize(baselines * channels * pairs, Complex::ZERO);
        self.counts.clear();
        self.counts.resize(baselines * channels, 0);
        (&mut self.sums, &mut self.counts)
    }
}
