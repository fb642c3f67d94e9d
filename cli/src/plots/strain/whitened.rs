//! Plot of whitened strain with the template over it.

use sidereal::Result;

use super::super::colour::{GREY, RED};
use super::super::frame::{Axis, Frame, Labels};
use super::super::pen::{Size, picture};
use super::super::png::Png;
use super::super::short;
use super::Heading;
use super::axes::{WIDTH, caption, heading, height, panel, time_unit};
use super::transform::band;

/// Colour of whitened strain, lighter than the template's.
const STRAIN: plotters::style::RGBColor = plotters::style::RGBColor(122, 158, 206);

/// Contents of the plot.
#[derive(Clone, Debug)]
pub(crate) struct Whitened<'a> {
    pub(crate) heading: Heading,
    /// Frequency range shown, of strain and template alike, in Hz: noise above it would hide the signal.
    pub(crate) band_hz: (f64, f64),
    /// Time range shown, in seconds from the event; the series may extend further.
    pub(crate) span_s: (f64, f64),
    pub(crate) detectors: Vec<WhitenedOf<'a>>,
}

/// Series of one detector.
#[derive(Clone, Debug)]
pub(crate) struct WhitenedOf<'a> {
    /// Detector: `H1`.
    pub(crate) name: &'a str,
    /// Time of the first sample less the event's, in seconds.
    pub(crate) start_s: f64,
    /// Sampling rate in Hz.
    pub(crate) rate_hz: f64,
    /// Whitened strain, of unit variance.
    pub(crate) strain: &'a [f32],
    /// Whitened strain expected from the template: as many samples ([`super::overlay`] computes them), or none.
    pub(crate) template: &'a [f32],
    /// Facts for the caption: `SNR 18.6` or similar.
    pub(crate) facts: String,
}

/// Height of a panel.
const EACH: f64 = 300.0;

/// Draws strain and template.
///
/// # Errors
/// [`sidereal::Error::Io`] when the file cannot be written.
pub(crate) fn whitened(file: &Png<'_>, about: &Whitened<'_>) -> Result<()> {
    let size = Size { width: WIDTH, height: height(about.detectors.len(), EACH) };
    let (scale, label) = time_unit(about.span_s.1 - about.span_s.0);
    let (low, high) = about.band_hz;
    let shown = |own: &WhitenedOf<'_>, series: &[f32]| -> Vec<(f64, f64)> {
        let values = band(series, own.rate_hz, low, high);
        let at = |index: usize| own.start_s + index as f64 / own.rate_hz;
        let points = values.iter().enumerate().map(|(index, value)| (at(index), *value));
        points
            .filter(|(time, _)| (about.span_s.0..=about.span_s.1).contains(time))
            .map(|(time, value)| (time * scale, f64::from(value)))
            .collect()
    };
    picture(file, size, |pen| {
        heading(pen, &about.heading);
        for (index, own) in about.detectors.iter().enumerate() {
            let (strain, template) = (shown(own, own.strain), shown(own, own.template));
            let most = strain.iter().chain(&template).fold(1.0, |most: f64, p| most.max(p.1.abs()));
            let rect = panel(index, EACH);
            let x = Axis::new(about.span_s.0 * scale, about.span_s.1 * scale);
            let frame = Frame { rect, x, y: Axis::new(-1.12 * most, 1.12 * most) };
            frame.guides(pen);
            frame.line(pen, &[(x.from, 0.0), (x.to, 0.0)], GREY, 1.0);
            frame.line(pen, &strain, STRAIN, 2.0);
            frame.line(pen, &template, RED, 2.0);
            let is_last = index + 1 == about.detectors.len();
            let labels = if is_last { Labels::Full(label) } else { Labels::None };
            frame.axes(pen, labels, Labels::Full("Whitened strain (σ)"));
            let facts = format!(
                "strain blue, template red, both {} to {} Hz   ·   {}",
                short(low, 4),
                short(high, 4),
                own.facts
            );
            caption(pen, rect, own.name, &facts);
        }
    })
}
