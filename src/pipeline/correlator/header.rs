//! Results of a correlation: properties known before its first integration, and integrations.

use num_complex::Complex;

use super::options::PhaseCentre;
use crate::correlate::Precision;
use crate::geometry::Array;
use crate::units::Epoch;

/// Properties of a correlation known before its first integration.
#[derive(Clone, Debug, PartialEq)]
pub struct ArrayHeader {
    /// All antennas, including those without a recording.
    pub array: Array,
    /// Whether each antenna has a recording.
    pub present: Vec<bool>,
    /// Output baselines: antenna numbers in the array (i, j), i >= j.
    pub baselines: Vec<(usize, usize)>,
    /// Polarizations of each antenna.
    pub polarizations: usize,
    /// Whether the feeds are circular (R and L).
    pub circular: bool,
    /// Sky frequency of each channel's centre in Hz, ascending.
    pub frequencies_hz: Vec<f64>,
    /// Width of a channel in Hz.
    pub channel_width_hz: f64,
    /// Correlated channels averaged into each output channel.
    pub average_channels: usize,
    /// The start of the first spectrum's window; day 0 when unknown.
    pub start: Epoch,
    /// Seconds between spectra.
    pub spectrum_s: f64,
    /// Length of a spectrum's window in seconds.
    pub window_s: f64,
    /// Number of spectra per antenna.
    pub spectra: u64,
    /// Spectra per integration.
    pub integration_spectra: u64,
    /// Number of integrations; the last may have fewer spectra.
    pub integrations: u64,
    /// Phase centre.
    pub phase_centre: PhaseCentre,
    /// UT1 - UTC at the start in seconds; 0 if the start is unknown and nothing is tracked.
    pub dut1_s: f64,
    /// Source name as recorded; empty if unknown.
    pub source_name: String,
    /// Parameters of the filter bank and of the X-engine's arithmetic.
    pub bank: BankHeader,
}

/// Parameters of the filter bank and of the X-engine's arithmetic.
#[derive(Clone, Debug, PartialEq)]
pub struct BankHeader {
    /// Whether this program channelized the recorded channels.
    pub channelized_here: bool,
    /// Channels per recorded channel.
    pub channels: usize,
    /// Taps; 0 without a filter bank.
    pub taps: usize,
    /// Window name; empty without a filter bank.
    pub window: String,
    /// Bits of each real component of the spectra that were multiplied.
    pub nbits: usize,
    /// Rounding of floats that the GPU's X-engine may use.
    pub precision: Precision,
    /// Whether recorded integers were multiplied unchanged.
    pub as_recorded: bool,
    /// Sample rate of each stream.
    pub sample_rate_hz: f64,
}

impl ArrayHeader {
    /// Returns the length of an integration in seconds.
    pub fn integration_s(&self) -> f64 {
        self.integration_spectra as f64 * self.spectrum_s
    }

    /// Returns the number of polarization pairs: 1 or 4.
    pub fn pairs(&self) -> usize {
        self.polarizations * self.polarizations
    }

    /// Returns the count of an integration whose samples are all valid.
    pub fn full_count(&self) -> u64 {
        self.integration_spectra * self.average_channels as u64
    }

    /// Returns the length of the data in seconds.
    pub fn duration_s(&self) -> f64 {
        self.spectra as f64 * self.spectrum_s
    }
}

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
