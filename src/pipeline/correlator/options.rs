//! Options of a correlation.
//!
//! Invariant: options say nothing of a recording; what does not fit one is found when they are bound.

use num_complex::Complex;

use crate::backend::Backend;
use crate::correlate::Precision;
use crate::geometry::{Array, DelayPolynomial, Dut1};
use crate::math::Window;

/// Options of an array's correlation.
#[derive(Clone, Debug, PartialEq)]
pub struct CorrelateOptions {
    /// Channels per recorded channel.
    pub channels: usize,
    /// Taps of the filter bank: rows of samples under its window.
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
    /// Limit in bytes on buffers in host memory, met by fewer spectra per gulp; `None` sets no limit.
    pub memory: Option<u64>,
    /// Spectra per gulp; 0 selects automatically. Visibilities do not depend on it, except in the last bits of floats
    /// that a GPU may round.
    pub gulp: usize,
}

impl CorrelateOptions {
    /// Options with `channels` channels per recorded channel: 8 taps, sinc x Hann, 8 bits, 1 s, all baselines, drift.
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
    /// counts for 8 bits, 2.8 for 4. The power of the antenna's first valid spectra sets each gain; it then stays
    /// constant, and the readout divides the visibilities by it. 1 for single precision.
    Auto,
    /// One for all; the readout divides the visibilities by it.
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
pub(super) struct Asked<'a> {
    pub(super) array: &'a Array,
    pub(super) options: &'a CorrelateOptions,
    /// The caller's delays, one polynomial per antenna.
    pub(super) delays: Option<&'a [DelayPolynomial]>,
    pub(super) backend: &'a Backend,
}
