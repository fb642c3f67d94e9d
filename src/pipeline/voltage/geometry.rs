//! Filter-bank parameters for a file's metadata.

use crate::channelize::{Detection, Feed, Plan, Products};
use crate::io::voltages::VoltageHeader;

/// Filter bank that computed rows from a recording.
#[derive(Clone, Debug, PartialEq)]
pub struct Geometry {
    /// Format of the recording.
    pub format: &'static str,
    /// Channels per recorded channel, before any sum over channels.
    pub channels: usize,
    /// Recorded channels.
    pub recorded_channels: usize,
    /// Taps.
    pub taps: usize,
    /// Name of the window.
    pub window: String,
    /// Oversampling P / Q.
    pub oversampling: (usize, usize),
    /// Samples between spectra.
    pub hop: usize,
    /// Spectra summed into a row.
    pub integrate: usize,
    /// Adjacent channels summed into one.
    pub average_channels: usize,
    /// Name of each product, in the order of a row; empty for voltage output.
    pub products: Vec<&'static str>,
    /// `linear` or `circular`.
    pub feed: &'static str,
    /// Whether the channel at each recorded channel's zero frequency was interpolated.
    pub interpolate_dc: bool,
    /// Dispersion measure for which dispersion within channels was removed.
    pub coherent_dm: Option<f64>,
    /// Antennas whose powers were summed.
    pub antennas: usize,
    /// Polarizations recorded.
    pub polarizations: usize,
    /// Sampling time of the recording in seconds.
    pub recorded_tsamp_s: f64,
    /// Recorded samples from the start of the first sample to the start of the first row.
    pub delay_samples: f64,
}

impl Geometry {
    pub(super) fn new(recorded: &VoltageHeader, plan: &Plan, detection: Option<Detection>) -> Self {
        let options = plan.options();
        let names =
            |detection: Detection| product_names(detection.products, recorded.polarizations);
        let circular = recorded.circular == Some(true);
        let feed = if circular { Feed::Circular } else { Feed::Linear };
        Self {
            format: recorded.format,
            channels: plan.channels(),
            recorded_channels: recorded.coarse_channels(),
            taps: plan.taps(),
            window: options.window.name(),
            oversampling: options.oversampling,
            hop: plan.hop(),
            integrate: plan.spectra_per_row(),
            average_channels: plan.channels() / plan.output_channels(),
            products: detection.map_or_else(Vec::new, names),
            feed: feed_name(detection.map_or(feed, |detection| detection.feed)),
            interpolate_dc: detection.is_some_and(|detection| detection.interpolate_dc),
            coherent_dm: None,
            antennas: recorded.antennas,
            polarizations: recorded.polarizations,
            recorded_tsamp_s: recorded.tsamp_s,
            delay_samples: plan.delay_samples(),
        }
    }
}

fn product_names(products: Products, polarizations: usize) -> Vec<&'static str> {
    let names: &[&str] = match products {
        Products::Power => &["AA", "BB"],
        Products::I => &["I"],
        Products::Iquv => &["I", "Q", "U", "V"],
        Products::Aabbcrci => &["AA", "BB", "CR", "CI"],
    };
    names[..products.count(polarizations)].to_vec()
}

fn feed_name(feed: Feed) -> &'static str {
    match feed {
        Feed::Linear => "linear",
        Feed::Circular => "circular",
    }
}
