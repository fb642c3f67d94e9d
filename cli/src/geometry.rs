//! Filter bank that made spectra from voltages, as described in documents.

use schemars::JsonSchema;
use serde::Serialize;
use sidereal::Result;
use sidereal::math::{Response, ResponseSummary};
use sidereal::pipeline::voltage::{ChannelizeOptions, Geometry};

/// Most coefficients for which the response is computed by default.
const MAX_SPAN: usize = 1 << 20;

/// Filter bank with the keys of its JSON document.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct Document {
    recorded_format: &'static str,
    recorded_channels: usize,
    recorded_tsamp_s: f64,
    /// Number of antennas whose polarizations are summed.
    antennas: usize,
    polarizations: usize,
    channels: usize,
    taps: usize,
    window: String,
    oversampling: [usize; 2],
    /// Samples between the starts of successive spectra.
    hop: usize,
    integrate: usize,
    average_channels: usize,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    products: Vec<&'static str>,
    feed: &'static str,
    interpolate_dc: bool,
    coherent_dm: Option<f64>,
    /// Seconds from the recording's first sample to the first spectrum's start.
    delay_s: f64,
}

/// Response of the filter.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub(crate) struct ResponseDocument {
    scalloping_loss_db: f64,
    adjacent_db: f64,
    leakage_db: f64,
    /// Offset from the channel's centre, in channels.
    leakage_offset: f64,
    /// Noise bandwidth in channels.
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

    /// Summarizes the filter bank in one line, for --verbose.
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
    /// Computes the response of a filter bank of `points` points; `None` if that would take long.
    pub(crate) fn new(options: &ChannelizeOptions, points: usize) -> Result<Option<Self>> {
        let short = options.taps * points <= MAX_SPAN;
        short.then(|| response(options, points).map(Self::from)).transpose()
    }
}

/// Computes the response of a filter bank of `points` points.
///
/// # Errors
/// As [`sidereal::math::Window::coefficients`].
pub(crate) fn response(options: &ChannelizeOptions, points: usize) -> Result<ResponseSummary> {
    let coefficients = options.window.coefficients(options.taps, points)?;
    Ok(Response::new(&coefficients, points)?.summary())
}

impl From<ResponseSummary> for ResponseDocument {
    fn from(summary: ResponseSummary) -> Self {
        Self {
            scalloping_loss_db: summary.scalloping_loss_db,
            adjacent_db: summary.adjacent_db,
            leakage_db: summary.leakage_db,
            leakage_offset: summary.leakage_offset,
            noise_bandwidth: summary.noise_bandwidth,
        }
    }
}

/// Returns the seconds from the recording's first sample to the first spectrum's start.
pub(crate) fn delay_s(geometry: &Geometry) -> f64 {
    geometry.delay_samples * geometry.recorded_tsamp_s
}
