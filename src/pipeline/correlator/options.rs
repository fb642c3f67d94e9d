//! What is made of antenna voltages.
//!
//! Invariant: options say nothing of a recording; what does not fit one is found when they are bound.

use num_complex::Complex;

use crate::correlate::Precision;
use crate::geometry::Dut1;
use crate::math::window::Window;

/// What an array's correlation is asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct CorrelateOptions {
    /// Channels out of each recorded channel.
    pub channels: usize,
    /// Taps: rows of samples under the filter bank's window.
    pub taps: usize,
    /// The prototype filter.
    pub window: Window,
    /// Whether recorded channels are divided into channels; `None`: unless the recordings say that a
    /// filter bank made them.
    pub channelize: Option<bool>,
    /// Bits of a real number of the spectra that are multiplied: 4, 8, or 32 (single precision).
    pub nbits: usize,
    /// How a GPU may round spectra of 32 bits before it multiplies them.
    pub precision: Precision,
    /// What spectra are multiplied by before they are rounded.
    pub gains: Gains,
    /// Length of an integration in seconds, rounded to whole spectra.
    pub integration_s: f64,
    /// Neighbouring channels averaged into one.
    pub average_channels: usize,
    /// Which baselines come out.
    pub baselines: Baselines,
    /// Where the array looks.
    pub phase_centre: PhaseCentre,
    /// UT1 - UTC.
    pub dut1: Dut1,
    /// Fixed delays of the array's antennas in seconds, taken out too: one an antenna, or none.
    pub cable_delays_s: Vec<f64>,
    /// The part to take, in seconds from the first sample that all antennas have.
    pub time_range: Option<(f64, f64)>,
    /// What antennas without a recording are.
    pub missing: Missing,
    /// Whether recordings of different length are taken as far as the shortest goes.
    pub shortest: bool,
    /// The most bytes that buffers in the host's memory may take; `None` sets no limit. Fewer spectra are made at once.
    pub memory: Option<u64>,
    /// Spectra that are made at once; 0 chooses. The visibilities do not depend on it, but for the last bits of floats that
    /// a GPU may round.
    pub gulp: usize,
}

impl CorrelateOptions {
    /// So many channels out of each recorded one: 8 taps, sinc x Hann, 8 bits, 1 s, all baselines, drift.
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

/// What spectra are multiplied by before they are rounded to integers.
#[derive(Clone, Debug, PartialEq)]
pub enum Gains {
    /// For each antenna, polarization and channel such that real and imaginary part have a standard
    /// deviation of 20 counts for 8 bits, 2.8 for 4, by the power of the antenna's first valid spectra;
    /// held, and taken out of the visibilities again. 1 for single precision.
    Auto,
    /// One for all, taken out of the visibilities again.
    Fixed(f32),
    /// Complex gains that stay in the visibilities: one for all, one a channel, or axes antenna,
    /// polarization, channel; channels by rising sky frequency, before any averaging, antennas those of
    /// the array.
    Table(Vec<Complex<f32>>),
}

/// Which baselines come out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Baselines {
    /// All, autocorrelations included.
    All,
    /// Autocorrelations.
    Autos,
    /// These pairs of antennas' names, in any order; the same name twice is an autocorrelation.
    List(Vec<(String, String)>),
}

/// Where the array looks.
#[derive(Clone, Debug, PartialEq)]
pub enum PhaseCentre {
    /// A place on the sky, whose delays are taken out as the Earth turns (ICRS, J2000).
    Sidereal {
        /// Right ascension in degrees.
        ra_deg: f64,
        /// Declination in degrees.
        dec_deg: f64,
        /// Its name.
        name: String,
    },
    /// None: only the antennas' own fixed delays are taken out.
    Drift,
}

/// What antennas of the array without a recording are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// An error.
    Fail,
    /// Antennas without a valid sample.
    Flag,
}
