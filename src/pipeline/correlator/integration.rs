//! What comes out: the sums of all chosen baselines over some time.

use num_complex::Complex;

use crate::units::Epoch;

/// Sums over the spectra of one integration.
///
/// | buffer   | axes                    | type        | unit                      |
/// |----------|-------------------------|-------------|---------------------------|
/// | `sums`   | baseline, channel, pair | complex f64 | counts of the recording^2 |
/// | `counts` | baseline, channel       | u64         | samples                   |
///
/// `V_ij[p, q] = sum x_ip conj(x_jq)` over the samples at which antennas i and j are both valid, pairs in
/// the order XX, XY, YX, YY, channels by rising sky frequency; of a lower sideband, too, the voltages are
/// the sky's.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Integration {
    /// Its number, from 0.
    pub number: u64,
    /// Its first spectrum's number.
    pub first: u64,
    /// Its spectra: fewer than the others have only in the last.
    pub spectra: u64,
    /// Its middle.
    pub centre: Epoch,
    /// Sums over valid samples.
    pub sums: Vec<Complex<f64>>,
    /// Valid samples, over all channels that were averaged into one.
    pub counts: Vec<u64>,
}

impl Integration {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The mean over valid samples of each sum, 0 where there are none; axes baseline, channel, pair.
    pub fn means(&self) -> impl Iterator<Item = Complex<f64>> + '_ {
        let pairs = self.sums.len() / self.counts.len().max(1);
        let rows = self.sums.chunks_exact(pairs.max(1)).zip(&self.counts);
        rows.flat_map(|(sums, count)| sums.iter().map(move |sum| sum / (*count).max(1) as f64))
    }

    /// Brings the buffers to their lengths and to 0.
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
