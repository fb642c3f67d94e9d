//! Plan of a polyphase filter bank: options, channels, taps, window, streams, output form and output buffer.
//!
//! Invariant: every [`Plan`] is valid, and determines all sizes.

use num_complex::Complex;

use crate::error::{Error, Result};
use crate::math::{Response, Window};
use crate::voltage::VoltageEncoding;

/// Maximum number of channels per recorded channel.
pub const MAX_CHANNELS: usize = 1 << 20;

/// Maximum number of taps.
pub const MAX_TAPS: usize = 256;

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

/// Validated filter bank: geometry, coefficients and all sizes.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    options: Options,
    points: usize,
    hop: usize,
    coefficients: Vec<f64>,
    /// Antennas of all plans among which an array is divided; otherwise those of the input.
    of_antennas: usize,
}

impl Plan {
    /// Validates the options and computes the window.
    ///
    /// # Errors
    /// [`Error::Parameter`] naming the option that is out of range; [`Error::Shape`] if the window or the gains have
    /// the wrong length.
    pub fn new(options: Options) -> Result<Self> {
        within("channelize.channels", options.channels, 2, MAX_CHANNELS)?;
        within("taps", options.taps, 1, MAX_TAPS)?;
        let Input { antennas, coarse_channels, polarizations, scale, encoding } = options.input;
        within("antennas", antennas, 1, 1 << 16)?;
        within("recorded channels", coarse_channels, 1, 1 << 20)?;
        within("polarizations", polarizations, 1, 2)?;
        if !scale.is_finite() || scale == 0.0 {
            return Err(Error::parameter("scale", scale, "it must be finite and not 0"));
        }
        let points = if encoding.is_complex() { options.channels } else { 2 * options.channels };
        let hop = hop(points, options.oversampling.0, options.oversampling.1)?;
        check_form(&options)?;
        let coefficients = options.window.coefficients(options.taps, points)?;
        Ok(Self { options, points, hop, coefficients, of_antennas: antennas })
    }

    /// Returns a plan for some of `antennas` antennas, whose spectra have the bits of a plan for all of them: a GPU's choices that
    /// affect the last bits follow from the whole.
    #[must_use]
    pub(crate) fn part_of(self, antennas: usize) -> Self {
        Self { of_antennas: antennas, ..self }
    }

    /// Returns the streams of all antennas of [`Plan::part_of`].
    pub(super) fn whole_streams(&self) -> usize {
        Input { antennas: self.of_antennas, ..*self.input() }.streams()
    }

    /// Returns the options.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Returns the description of the input streams.
    pub fn input(&self) -> &Input {
        &self.options.input
    }

    /// Returns the channels per recorded channel, before summing channels.
    pub fn channels(&self) -> usize {
        self.options.channels
    }

    /// Returns the number of taps: rows of samples under the window.
    pub fn taps(&self) -> usize {
        self.options.taps
    }

    /// Returns the length of the Fourier transform: the number of channels, doubled for real input.
    pub fn points(&self) -> usize {
        self.points
    }

    /// Returns the samples from one spectrum to the next.
    pub fn hop(&self) -> usize {
        self.hop
    }

    /// Returns the samples under the window: taps x points.
    pub fn span(&self) -> usize {
        self.coefficients.len()
    }

    /// Returns the [`Plan::span`] coefficients of the prototype filter, without [`Input::scale`].
    pub fn coefficients(&self) -> &[f64] {
        &self.coefficients
    }

    /// Returns the frequency response of a channel: scalloping loss, leakage, noise bandwidth.
    pub fn response(&self) -> Response<'_> {
        Response::of(&self.coefficients, self.points)
    }

    /// Returns the spectra summed per output row.
    pub fn spectra_per_row(&self) -> usize {
        match &self.options.form {
            Form::Detected(detection) => detection.spectra,
            _ => 1,
        }
    }

    /// Returns the input samples from one output row to the next.
    pub fn samples_per_row(&self) -> usize {
        self.hop * self.spectra_per_row()
    }

    /// Returns the offset in samples from the first input sample to the start of the first output row. It places each
    /// row's time at the centre of its windows' weights: `(span - hop) / 2`.
    pub fn delay_samples(&self) -> f64 {
        (self.span() as f64 - self.hop as f64) / 2.0
    }

    /// Returns the output channels per recorded channel.
    pub fn output_channels(&self) -> usize {
        match &self.options.form {
            Form::Detected(detection) => self.channels() / detection.channels,
            Form::Filtered => self.points,
            _ => self.channels(),
        }
    }

    /// Returns the polarizations or products per antenna in an output row.
    pub fn output_products(&self) -> usize {
        let polarizations = self.input().polarizations;
        match &self.options.form {
            Form::Detected(detection) => detection.products.count(polarizations),
            _ => polarizations,
        }
    }

    /// Returns the FFT bin of output channel `index`, before summing channels.
    pub fn bin(&self, index: usize) -> usize {
        let channels = self.channels();
        let ascending = |index: usize| match self.input().encoding.is_complex() {
            true => (index + channels.div_ceil(2)) % channels,
            false => index,
        };
        match self.options.order {
            Order::Natural => index,
            Order::Ascending => ascending(index),
            Order::Descending => ascending(channels - 1 - index),
        }
    }

    /// Returns the recorded channel at `index` of the output.
    pub fn coarse_channel(&self, index: usize) -> usize {
        if self.options.reverse_coarse { self.input().coarse_channels - 1 - index } else { index }
    }

    /// Returns the input stream of an antenna, recorded channel and polarization.
    pub fn stream(&self, antenna: usize, coarse: usize, polarization: usize) -> usize {
        let Input { coarse_channels, polarizations, .. } = *self.input();
        (antenna * coarse_channels + coarse) * polarizations + polarization
    }

    /// Returns the element of a row at which the channels of an antenna, product and recorded channel (in output
    /// order) begin.
    pub fn row_offset(&self, antenna: usize, product: usize, coarse_index: usize) -> usize {
        let row = antenna * self.output_products() + product;
        (row * self.input().coarse_channels + coarse_index) * self.output_channels()
    }

    /// Returns the elements per output row: antennas x products x recorded channels x channels.
    pub fn row_elements(&self) -> usize {
        let Input { antennas, coarse_channels, .. } = *self.input();
        antennas * self.output_products() * coarse_channels * self.output_channels()
    }

    /// Returns the bytes per output element: complex f32 8, f32 4, complex 8 bit 2, complex 4 bit 1.
    pub fn element_bytes(&self) -> usize {
        match &self.options.form {
            Form::Spectra | Form::Filtered => 8,
            Form::Detected(_) => 4,
            Form::Requantized { bits, .. } => bits / 4,
        }
    }

    /// Returns the number of spectra of a whole stream of `times` samples.
    pub fn spectra(&self, times: u64) -> u64 {
        let span = self.span() as u64;
        if times < span { 0 } else { (times - span) / self.hop as u64 + 1 }
    }

    /// Returns the number of complete output rows of a whole stream of `times` samples.
    pub fn rows(&self, times: u64) -> u64 {
        self.spectra(times) / self.spectra_per_row() as u64
    }

    /// Returns the maximum number of rows that one `run` of `times` samples can write, at any point of a stream.
    pub fn max_rows(&self, times: usize) -> usize {
        times / self.samples_per_row() + 1
    }

    /// Returns how many of the `offered` samples a filter bank consumes that has consumed `times` and written `rows`, if the
    /// output has space for `free` rows; a partial count is a whole number of bytes.
    pub(crate) fn fitting(&self, times: u64, rows: u64, free: usize, offered: usize) -> usize {
        // One sample fewer than would complete the first row that does not fit.
        let rows = (rows + 1).saturating_add(free as u64);
        let spectra = rows.saturating_mul(self.spectra_per_row() as u64) - 1;
        let samples = spectra.saturating_mul(self.hop as u64);
        let most = samples.saturating_add(self.span() as u64 - 1) - times;
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let step = self.input().encoding.group_samples();
        if offered <= most { offered } else { most / step * step }
    }
}

fn within(name: &'static str, value: usize, least: usize, most: usize) -> Result<()> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(Error::parameter(name, value, format!("it must be {least} to {most}")))
}

/// Returns the samples between spectra for an oversampling of P / Q.
fn hop(points: usize, p: usize, q: usize) -> Result<usize> {
    let error = |rule: &str| Err(Error::parameter("oversampling", format!("{p}/{q}"), rule));
    if q == 0 || p < q {
        return error("it must be at least 1, written as P/Q");
    }
    match points.checked_mul(q) {
        Some(samples) if samples.is_multiple_of(p) && samples / p > 0 => Ok(samples / p),
        _ => error(&format!(
            "{points} x Q / P samples from spectrum to spectrum must be a whole number"
        )),
    }
}

fn check_form(options: &Options) -> Result<()> {
    let polarizations = options.input.polarizations;
    match &options.form {
        Form::Spectra | Form::Filtered => Ok(()),
        Form::Detected(detection) => {
            within("integrate", detection.spectra, 1, 1 << 30)?;
            if detection.channels == 0 || !options.channels.is_multiple_of(detection.channels) {
                let rule = format!("it must divide the {} channels", options.channels);
                return Err(Error::parameter("average_channels", detection.channels, rule));
            }
            let cross = matches!(detection.products, Products::Iquv | Products::Aabbcrci);
            if cross && polarizations != 2 {
                let rule = "cross products need two polarizations, and there is one";
                return Err(Error::parameter(
                    "products",
                    format!("{:?}", detection.products),
                    rule,
                ));
            }
            Ok(())
        }
        Form::Requantized { bits, gains } => {
            if !matches!(bits, 4 | 8) {
                return Err(Error::parameter("bits", bits, "complex integers have 4 or 8 bits"));
            }
            if let Some(bad) = gains.iter().find(|gain| !gain.is_finite()) {
                return Err(Error::parameter("gain", bad, "gains must be finite"));
            }
            if gains.len() == 1 {
                return Ok(());
            }
            let expected = options.channels * options.input.coarse_channels;
            crate::view::check_length("gains (recorded channel, channel)", expected, gains.len())
        }
    }
}

/// Output rows; axes: time, antenna, polarization or product, channel.
#[derive(Debug)]
pub enum Output<'a> {
    /// Rows of [`Form::Spectra`] and [`Form::Filtered`].
    Complex(&'a mut [Complex<f32>]),
    /// Rows of [`Form::Detected`].
    F32(&'a mut [f32]),
    /// Rows of [`Form::Requantized`]: [`VoltageEncoding::Complex8`] or [`VoltageEncoding::Complex4`].
    Bytes(&'a mut [u8]),
}

impl<'a> Output<'a> {
    /// Returns the first `elements` elements.
    pub(in crate::channelize) fn front(self, elements: usize, plan: &Plan) -> Self {
        match self {
            Self::Complex(values) => Self::Complex(&mut values[..elements]),
            Self::F32(values) => Self::F32(&mut values[..elements]),
            Self::Bytes(bytes) => Self::Bytes(&mut bytes[..elements * plan.element_bytes()]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> Options {
        Options::new(8, 4, VoltageEncoding::Complex8)
    }

    #[test]
    fn sizes_follow_from_the_geometry() {
        let plan = Plan::new(options()).unwrap();
        assert_eq!((plan.points(), plan.hop(), plan.span()), (8, 8, 32));
        assert_eq!((plan.spectra(31), plan.spectra(32), plan.spectra(40)), (0, 1, 2));
        assert_eq!(plan.delay_samples(), 12.0);
        let real = Options::new(8, 4, VoltageEncoding::Real8);
        let real = Plan::new(Options { oversampling: (4, 3), ..real }).unwrap();
        assert_eq!((real.points(), real.hop(), real.output_channels()), (16, 12, 8));
    }

    #[test]
    fn rising_frequency_starts_at_minus_half() {
        let bins = |channels, order, encoding| -> Vec<usize> {
            let options = Options { order, ..Options::new(channels, 4, encoding) };
            let plan = Plan::new(options).unwrap();
            (0..channels).map(|index| plan.bin(index)).collect()
        };
        use VoltageEncoding::{Complex8, Real8};
        assert_eq!(bins(4, Order::Ascending, Complex8), [2, 3, 0, 1]);
        assert_eq!(bins(5, Order::Ascending, Complex8), [3, 4, 0, 1, 2]);
        assert_eq!(bins(4, Order::Descending, Complex8), [1, 0, 3, 2]);
        assert_eq!(bins(4, Order::Ascending, Real8), [0, 1, 2, 3]);
        assert_eq!(bins(4, Order::Descending, Real8), [3, 2, 1, 0]);
        assert_eq!(bins(4, Order::Natural, Complex8), [0, 1, 2, 3]);
    }

    #[test]
    fn rules_name_the_option() {
        let refused = |change: &dyn Fn(&mut Options)| {
            let mut options = options();
            change(&mut options);
            Plan::new(options).unwrap_err().to_string()
        };
        assert!(refused(&|o| o.channels = 0).contains("channelize.channels"));
        assert!(refused(&|o| o.channels = 1).contains("channelize.channels"));
        assert!(refused(&|o| o.taps = 257).contains("taps"));
        assert!(refused(&|o| o.oversampling = (3, 4)).contains("at least 1"));
        assert!(refused(&|o| o.oversampling = (3, 2)).contains("whole number"));
        assert!(refused(&|o| o.oversampling = (1, 0)).contains("oversampling"));
        assert!(refused(&|o| o.window = Window::Custom(vec![0.0; 31])).contains("31"));
        let gains = || Form::Requantized { bits: 8, gains: vec![1.0; 7] };
        assert!(refused(&|o| o.form = gains()).contains("gains"));
        let detection = Detection {
            products: Products::Iquv,
            feed: Feed::Linear,
            spectra: 1,
            channels: 1,
            interpolate_dc: false,
        };
        assert!(refused(&|o| o.form = Form::Detected(detection)).contains("products"));
    }
}
