//! Options and results of a correlation: properties known before the first integration, and integrations.
//!
//! Invariant: options do not refer to a recording; binding them to recordings finds those that do not fit.

use num_complex::Complex;

use crate::backend::Backend;
use crate::correlate::Precision;
use crate::geometry::{Array, DelayPolynomial, Dut1};
use crate::math::Window;
use crate::units::Epoch;

/// Options of an array's correlation.
#[derive(Clone, Debug, PartialEq)]
pub struct CorrelateOptions {
    /// Channels per recorded channel.
    pub channels: usize,
    /// Taps of the filter bank per channel: its window is this many hops long.
    pub taps: usize,
    /// The prototype filter.
    pub window: Window,
    /// Whether to channelize recorded channels; `None`: yes, unless the recordings state that a filter bank made
    /// them.
    pub channelize: Option<bool>,
    /// Bits of each real component of the spectra that are multiplied: 4, 8, or 32 (single precision).
    pub nbits: usize,
    /// Rounding of 32-bit spectra that a GPU may apply before it multiplies them.
    pub precision: Precision,
    /// Gains of the spectra before requantization.
    pub gains: Gains,
    /// Length of an integration in seconds, rounded to whole spectra.
    pub integration_s: f64,
    /// Adjacent channels averaged into one.
    pub average_channels: usize,
    /// Baselines to write.
    pub baselines: Baselines,
    /// Phase centre.
    pub phase_centre: PhaseCentre,
    /// UT1 - UTC.
    pub dut1: Dut1,
    /// Fixed antenna delays in seconds, also removed: one per antenna of the array, or empty.
    pub cable_delays_s: Vec<f64>,
    /// Time range in seconds from the first sample that all antennas have.
    pub time_range: Option<(f64, f64)>,
    /// Treatment of antennas without a recording.
    pub missing: Missing,
    /// Whether recordings of different lengths are correlated up to the end of the shortest.
    pub shortest: bool,
    /// Limit in bytes on buffers in host memory, which reduces the spectra per gulp; `None` sets no limit.
    pub memory: Option<u64>,
    /// Spectra per gulp; 0 selects automatically. Visibilities do not depend on it, except in the last bits of floats
    /// that a GPU may round.
    pub gulp: usize,
}

impl CorrelateOptions {
    /// Returns default options for `channels` channels per recorded channel: 8 taps, sinc x Hann, 8 bits, 1 s, all
    /// baselines, drift.
    pub fn new(channels: usize) -> Self {
        Self {
            channels,
            taps: 8,
            window: Window::default(),
            channelize: None,
            nbits: 8,
            precision: Precision::default(),
            gains: Gains::Auto,
            integration_s: 1.0,
            average_channels: 1,
            baselines: Baselines::All,
            phase_centre: PhaseCentre::Drift,
            dut1: Dut1::Table,
            cable_delays_s: Vec::new(),
            time_range: None,
            missing: Missing::Fail,
            shortest: false,
            memory: None,
            gulp: 0,
        }
    }
}

/// Gains of the spectra before requantization to integers.
#[derive(Clone, Debug, PartialEq)]
pub enum Gains {
    /// Per antenna, polarization and channel. Scales the real and imaginary parts to a standard deviation of 20
    /// counts for 8 bits, 2.8 for 4. The power of the antenna's first valid spectra sets each gain; the gain then
    /// stays constant, and the readout divides the visibilities by it. For single precision the gain is 1.
    Auto,
    /// One gain for all inputs and channels; the readout divides the visibilities by it.
    Fixed(f32),
    /// Complex gains that remain in the visibilities: one for all, one per channel, or axes antenna, polarization,
    /// channel. Channels ascend by sky frequency, before any averaging; antennas are those of the array.
    Table(Vec<Complex<f32>>),
}

/// Baselines to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Baselines {
    /// All, autocorrelations included.
    All,
    /// Autocorrelations.
    Autos,
    /// Pairs of antenna names, in any order; the same name twice is an autocorrelation.
    List(Vec<(String, String)>),
}

/// Phase centre of the array.
#[derive(Clone, Debug, PartialEq)]
pub enum PhaseCentre {
    /// Direction on the sky (ICRS, J2000), tracked as the Earth rotates.
    Sidereal {
        /// Right ascension in degrees.
        ra_deg: f64,
        /// Declination in degrees.
        dec_deg: f64,
        /// Name of the source.
        name: String,
    },
    /// No direction: only the antennas' fixed delays are removed.
    Drift,
}

/// Treatment of the array's antennas without a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// Return an error.
    Fail,
    /// Flag all their samples.
    Flag,
}

/// Request: array, options and backend.
#[derive(Clone, Copy)]
pub(super) struct Request<'a> {
    pub(super) array: &'a Array,
    pub(super) options: &'a CorrelateOptions,
    /// The caller's delays, one polynomial per antenna.
    pub(super) delays: Option<&'a [DelayPolynomial]>,
    pub(super) backend: &'a Backend,
}

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
/// order XX, XY, YX, YY, channels by ascending sky frequency. Voltages of a lower sideband are first
/// conjugated, which gives the sky's voltages.
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

    /// Resizes the buffers, which keep old values.
    pub(super) fn resize(&mut self, baselines: usize, channels: usize, pairs: usize) {
        self.sums.resize(baselines * channels * pairs, Complex::ZERO);
        self.counts.resize(baselines * channels, 0);
    }
}
