//! What a filter bank can be asked for.

use crate::math::window::Window;
use crate::voltage::VoltageEncoding;

/// The order of a recorded channel's channels in the output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// As the Fourier transform gives them: zero frequency first.
    Natural,
    /// Rising frequency of the voltages: from -1/2 to 1/2 of the sampling rate (real input: from 0).
    #[default]
    Ascending,
    /// Falling frequency of the voltages: the other way round.
    Descending,
}

/// How the feeds of the two polarizations are made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Feed {
    /// X and Y.
    #[default]
    Linear,
    /// R and L.
    Circular,
}

/// What is detected of a spectrum's polarizations.
///
/// | products   | linear feeds, X and Y                          | circular feeds, R and L           |
/// |------------|------------------------------------------------|-----------------------------------|
/// | `Power`    | \|X\|^2 (and \|Y\|^2), each recorded polarization | \|R\|^2 (and \|L\|^2)                |
/// | `I`        | the sum of these                               | the sum of these                  |
/// | `Iquv`     | I, \|X\|^2-\|Y\|^2, 2 Re(X Y*), 2 Im(X Y*)         | I, 2 Re(R L*), 2 Im(R L*), \|R\|^2-\|L\|^2 |
/// | `Aabbcrci` | \|X\|^2, \|Y\|^2, Re(X Y*), Im(X Y*)               | \|R\|^2, \|L\|^2, Re(R L*), Im(R L*)  |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Products {
    /// The power of each polarization: AA, and BB where there are two.
    Power,
    /// Total intensity.
    I,
    /// The four Stokes parameters.
    Iquv,
    /// Both powers, and the cross product's real and imaginary part.
    Aabbcrci,
}

impl Products {
    /// How many numbers a channel has.
    pub fn count(self, polarizations: usize) -> usize {
        match self {
            Self::Power => polarizations,
            Self::I => 1,
            Self::Iquv | Self::Aabbcrci => 4,
        }
    }
}

/// Detected spectra: what is summed, and over how much.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Detection {
    /// What is detected.
    pub products: Products,
    /// How the feeds are made.
    pub feed: Feed,
    /// Spectra summed into one.
    pub spectra: usize,
    /// Neighbouring channels summed into one; divides the number of channels.
    pub channels: usize,
    /// Replace each recorded channel's zero-frequency channel by the mean of its neighbours.
    pub interpolate_dc: bool,
}

/// The form of the output.
#[derive(Clone, Debug, PartialEq)]
pub enum Form {
    /// Complex spectra, single precision.
    Spectra,
    /// The windowed sums before the Fourier transform, single precision: for a transform of one's own.
    Filtered,
    /// Powers or Stokes parameters, single precision.
    Detected(Detection),
    /// Complex integers: each channel times its gain, rounded to nearest, ties to even, and limited.
    Requantized {
        /// 8 (range -128 to 127) or 4 (range -8 to 7) bits.
        bits: usize,
        /// One gain for all, or one for each output channel of a polarization (recorded channel,
        /// channel, in output order).
        gains: Vec<f32>,
    },
}

/// What goes in: how each stream is stored, and which streams there are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Input {
    /// How each sample is stored.
    pub encoding: VoltageEncoding,
    /// What one count means: every sample is multiplied by it.
    pub scale: f64,
    /// Antennas (stations, beams).
    pub antennas: usize,
    /// Recorded (coarse) channels.
    pub coarse_channels: usize,
    /// Polarizations: 1 or 2.
    pub polarizations: usize,
}

impl Input {
    /// One stream.
    pub fn one(encoding: VoltageEncoding) -> Self {
        Self { encoding, scale: 1.0, antennas: 1, coarse_channels: 1, polarizations: 1 }
    }

    /// Number of streams: antennas x recorded channels x polarizations.
    pub fn streams(&self) -> usize {
        self.antennas * self.coarse_channels * self.polarizations
    }
}

/// What is asked of a filter bank.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Channels out of each recorded channel.
    pub channels: usize,
    /// Taps: rows of samples under the window.
    pub taps: usize,
    /// The prototype filter.
    pub window: Window,
    /// Oversampling P / Q, at least 1: a spectrum every `points Q / P` samples.
    pub oversampling: (usize, usize),
    /// The streams.
    pub input: Input,
    /// Order of the channels within a recorded channel.
    pub order: Order,
    /// Whether recorded channels come out last first.
    pub reverse_coarse: bool,
    /// What comes out.
    pub form: Form,
}

impl Options {
    /// Complex spectra of one stream: critical sampling, sinc x Hann, rising frequency.
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
