//! The filter bank that made spectra from voltages, as documents tell it.

use schemars::JsonSchema;
use serde::Serialize;
use sidereal::Result;
use sidereal::math::response::{Response, Summary};
use sidereal::pipeline::voltage::{ChannelizeOptions, Geometry};

/// Coefficients of which a response is made without being asked for.
const MAX_SPAN: usize = 1 << 20;

/// The filter bank, with the names of its JSON document.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct Document {
    recorded_format: &'static str,
    recorded_channels: usize,
    recorded_tsamp_s: f64,
    /// Summed: polarizations of how many antennas.
    antennas: usize,
    polarizations: usize,
    channels: usize,
    taps: usize,
    window: String,
    oversampling: [usize; 2],
    /// Samples from one spectrum to the next.
    hop: usize,
    integrate: usize,
    average_channels: usize,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    products: Vec<&'static str>,
    feed: &'static str,
    interpolate_dc: bool,
    coherent_dm: Option<f64>,
    /// From the recording's first sample to the first spectrum's start.
    delay_s: f64,
}

/// What the filter lets through.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub(crate) struct ResponseDocument {
    scalloping_loss_db: f64,
    adjacent_db: f64,
    leakage_db: f64,
    /// In channels from the channel's centre.
    leakage_offset: f64,
    /// In channels.
    noise_bandwidth: f64,
}

impl Document {
    pub(crate) fn new(geometry: &Geometry) -> Self {
        let delay_s = delay_s(geometry);
        let geometry = geometry.clone();
        let (p, q) = geometry.oversampling;
        Self {
            recorded_format: geometry.format,
            recorded_channels: geometry.recorded_channels,
            recorded_tsamp_s: geometry.recorded_tsamp_s,
            antennas: geometry.antennas,
            polarizations: geometry.polarizations,
            channels: geometry.channels,
            taps: geometry.taps,
            window: geometry.window,
            oversampling: [p, q],
            hop: geometry.hop,
            integrate: geometry.integrate,
            average_channels: geometry.average_channels,
            products: geometry.products,
            feed: geometry.feed,
            interpolate_dc: geometry.interpolate_dc,
            coherent_dm: geometry.coherent_dm,
            delay_s,
        }
    }

    pub(crate) fn delay_s(&self) -> f64 {
        self.delay_s
    }

    pub(crate) fn coherent_dm(&self) -> Option<f64> {
        self.coherent_dm
    }

    pub(crate) fn products(&self) -> &[&'static str] {
        &self.products
    }

    /// A line for --verbose.
    pub(crate) fn text(&self) -> String {
        let Self { channels, taps, window, hop, .. } = self;
        let [p, q] = self.oversampling;
        let oversampled = if p == q { String::new() } else { format!(", oversampled {p}/{q}") };
        format!(
            "{channels} channels of each of {} recorded, {taps} taps, {window}{oversampled}: a \
             spectrum every {hop} samples",
            self.recorded_channels,
        )
    }
}

impl ResponseDocument {
    /// Of a filter bank of so many points; `None` where it would take long.
    pub(crate) fn new(options: &ChannelizeOptions, points: usize) -> Result<Option<Self>> {
        let short = options.taps * points <= MAX_SPAN;
        short.then(|| response(options, points).map(Self::from)).transpose()
    }
}

/// What a filter bank of so many points lets through.
///
/// # Errors
/// As [`sidereal::math::window::Window::coefficients`].
pub(crate) fn response(options: &ChannelizeOptions, points: usize) -> Result<Summary> {
    let coefficients = options.window.coefficients(options.taps, points)?;
    Ok(Response::new(&coefficients, points)?.summary())
}

impl From<Summary> for ResponseDocument {
    fn from(summary: Summary) -> Self {
        Self {
            scalloping_loss_db: summary.scalloping_loss_db,
            adjacent_db: summary.adjacent_db,
            leakage_db: summary.leakage_db,
            leakage_offset: summary.leakage_offset,
            noise_bandwidth: summary.noise_bandwidth,
        }
    }
}

/// Seconds from the recording's first sample to the first spectrum's start.
pub(crate) fn delay_s(geometry: &Geometry) -> f64 {
    geometry.delay_samples * geometry.recorded_tsamp_s
}
