//! Options of a filter bank.

use crate::math::window::Window;
use crate::voltage::VoltageEncoding;

/// Order of a recorded channel's channels in the output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// FFT order: zero frequency first.
    Natural,
    /// Ascending frequency of the voltages: from -1/2 to 1/2 of the sampling rate (real input: from 0).
    #[default]
    Ascending,
    /// Descending frequency of the voltages.
    Descending,
}

/// Polarization basis of the feeds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Feed {
    /// X and Y.
    #[default]
    Linear,
    /// R and L.
    Circular,
}

/// Products detected from a spectrum's polarizations.
///
/// | products   | linear feeds, X and Y                          | circular feeds, R and L           |
/// |------------|------------------------------------------------|-----------------------------------|
/// | `Power`    | \|X\|^2 (and \|Y\|^2), each recorded polarization | \|R\|^2 (and \|L\|^2)                |
/// | `I`        | the sum of these                               | the sum of these                  |
/// | `Iquv`     | I, \|X\|^2-\|Y\|^2, 2 Re(X Y*), 2 Im(X Y*)         | I, 2 Re(R L*), 2 Im(R L*), \|R\|^2-\|L\|^2 |
/// | `Aabbcrci` | \|X\|^2, \|Y\|^2, Re(X Y*), Im(X Y*)               | \|R\|^2, \|L\|^2, Re(R L*), Im(R L*)  |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Products {
    /// Power of each polarization: AA, and BB if there are two.
    Power,
    /// Total intensity.
    I,
    /// The four Stokes parameters.
    Iquv,
    /// Both powers, and the real and imaginary parts of the cross product.
    Aabbcrci,
}

impl Products {
    /// Returns the number of values per channel.
    pub fn count(self, polarizations: usize) -> usize {
        match self {
            Self::Power => polarizations,
            Self::I => 1,
            Self::Iquv | Self::Aabbcrci => 4,
        }
    }
}

/// Detection: products and the extent of the sums.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Detection {
    /// Products to compute.
    pub products: Products,
    /// Polarization basis of the feeds.
    pub feed: Feed,
    /// Spectra summed per output row.
    pub spectra: usize,
    /// Neighbouring channels summed into one; must divide the number of channels.
    pub channels: usize,
    /// Whether to replace each recorded channel's zero-frequency channel by the mean of its neighbours.
    pub interpolate_dc: bool,
}

/// Output form.
#[derive(Clone, Debug, PartialEq)]
pub enum Form {
    /// Complex spectra, single precision.
    Spectra,
    /// Windowed sums before the Fourier transform, single precision, for an external transform.
    Filtered,
    /// Powers or Stokes parameters, single precision.
    Detected(Detection),
    /// Complex integers: each channel times its gain, rounded to nearest, ties to even, and clipped.
    Requantized {
        /// 8 (range -128 to 127) or 4 (range -8 to 7) bits.
        bits: usize,
        /// One gain for all channels, or one per output channel of a polarization (recorded channel, channel, in
        /// output order).
        gains: Vec<f32>,
    },
}

/// Input streams: their number and encoding.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Input {
    /// Encoding of a sample.
    pub encoding: VoltageEncoding,
    /// Scale factor of every sample: the value of one count.
    pub scale: f64,
    /// Antennas (station inputs, beams).
    pub antennas: usize,
    /// Recorded (coarse) channels.
    pub coarse_channels: usize,
    /// Polarizations: 1 or 2.
    pub polarizations: usize,
}

impl Input {
    /// Returns the input of a single stream.
    pub fn one(encoding: VoltageEncoding) -> Self {
        Self { encoding, scale: 1.0, antennas: 1, coarse_channels: 1, polarizations: 1 }
    }

    /// Returns the number of streams: antennas x recorded channels x polarizations.
    pub fn streams(&self) -> usize {
        self.antennas * self.coarse_channels * self.polarizations
    }
}

/// Options of a filter bank.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Channels per recorded channel.
    pub channels: usize,
    /// Taps: rows of samples under the window.
    pub taps: usize,
    /// The prototype filter.
    pub window: Window,
    /// Oversampling P / Q, at least 1: a spectrum every `points Q / P` samples.
    pub oversampling: (usize, usize),
    /// Input streams.
    pub input: Input,
    /// Order of the channels within a recorded channel.
    pub order: Order,
    /// Whether to reverse the order of the recorded channels.
    pub reverse_coarse: bool,
    /// Output form.
    pub form: Form,
}

impl Options {
    /// Returns options for complex spectra of one stream: critical sampling, sinc x Hann window, ascending frequency.
    pub fn new(channels: usize, taps: usize, encoding: VoltageEncoding) -> Self {
        Self {
            channels,
            taps,
            window: Window::default(),
            oversampling: (1, 1),
            input: Input::one(encoding),
            order: Order::default(),
            reverse_coarse: false,
            form: Form::Spectra,
        }
    }
}
