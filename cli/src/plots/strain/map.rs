//! Time-frequency map: energy of whitened strain in tiles of a constant quality factor.

use sidereal::Result;

use super::super::colour::Scale;
use super::super::frame::{Axis, Frame, Labels};
use super::super::pen::{Rect, Size, picture};
use super::super::png::Png;
use super::Heading;
use super::axes::{HEAD, caption, heading, log_ticks, time_unit};
use super::transform::constant_q;

/// Contents of the plot.
#[derive(Clone, Debug)]
pub(crate) struct Map<'a> {
    pub(crate) heading: Heading,
    /// Frequency range shown, in Hz.
    pub(crate) band_hz: (f64, f64),
    /// Time range shown, in seconds from the event; the series should extend one second further.
    pub(crate) span_s: (f64, f64),
    /// Quality factor of the tiles: frequency over bandwidth.
    pub(crate) quality: f64,
    pub(crate) detectors: Vec<MapOf<'a>>,
}

/// Series of one detector.
#[derive(Clone, Debug)]
pub(crate) struct MapOf<'a> {
    /// Detector: `H1`.
    pub(crate) name: &'a str,
    /// Time of the first sample less the event's, in seconds.
    pub(crate) start_s: f64,
    /// Sampling rate in Hz.
    pub(crate) rate_hz: f64,
    /// Whitened strain, of unit variance.
    pub(crate) strain: &'a [f32],
    /// Facts for the caption: `SNR 18.6` or similar.
    pub(crate) facts: String,
}

/// Height of a panel, and space between two.
const EACH: f64 = 560.0;
const BETWEEN: f64 = 76.0;
const LEFT: f64 = 130.0;
const RIGHT: f64 = 1510.0;

/// Rows and columns of a map.
const ROWS: usize = 160;
const COLUMNS: usize = 500;

/// Draws the maps side by side.
///
/// # Errors
/// [`sidereal::Error::Io`] when the file cannot be written.
pub(crate) fn map(file: &Png<'_>, about: &Map<'_>) -> Result<()> {
    let count = about.detectors.len().max(1) as f64;
    let width = (RIGHT - LEFT - (count - 1.0) * BETWEEN) / count;
    let (scale, label) = time_unit(about.span_s.1 - about.span_s.0);
    let (low, high) = about.band_hz;
    let planes: Vec<Vec<f32>> = about
        .detectors
        .iter()
        .map(|own| {
            let rows = (0..ROWS).map(|row| {
                // The first row is at the top.
                let part = (ROWS as f64 - row as f64 - 0.5) / ROWS as f64;
                low * (high / low).powf(part)
            });
            let column = |index: usize| {
                let part = (index as f64 + 0.5) / COLUMNS as f64;
                let time = about.span_s.0 + part * (about.span_s.1 - about.span_s.0);
                (time - own.start_s) * own.rate_hz
            };
            let places: Vec<f64> = (0..COLUMNS).map(column).collect();
            constant_q(own.strain, own.rate_hz, about.quality, rows, &places)
        })
        .collect();
    let loudest = planes.iter().flatten().filter(|x| x.is_finite()).fold(8f32, |a, b| a.max(*b));
    let colours = Scale { low: 0.0, high: loudest };
    picture(file, Size { width: 1600, height: 826 }, |pen| {
        heading(pen, &about.heading);
        for (index, (own, plane)) in about.detectors.iter().zip(&planes).enumerate() {
            let left = LEFT + index as f64 * (width + BETWEEN);
            let rect = Rect { left, top: HEAD, right: left + width, bottom: HEAD + EACH };
            let x = Axis::new(about.span_s.0 * scale, about.span_s.1 * scale);
            // A step beyond the axis gives no ticks: the logarithmic ones replace them.
            let y = Axis::new(low.log10(), high.log10()).every(1e9);
            let frame = Frame { rect, x, y };
            frame.plane(pen, plane, COLUMNS, colours);
            frame.axes(pen, Labels::Full(label), Labels::None);
            if index == 0 {
                log_ticks(pen, &frame, &frequencies(), "Frequency (Hz)", false);
            }
            if index + 1 == about.detectors.len() {
                frame.colour_bar(pen, colours, "energy (noise: 1)");
            }
            // Leaves space at the right for the colour bar's label.
            let room = Rect { right: rect.right - 16.0, ..rect };
            caption(pen, room, own.name, &own.facts);
        }
    })
}

/// Returns ticks at 1, 2 and 5 times powers of ten.
fn frequencies() -> Vec<(f64, String)> {
    let decade = |power: i32| [1.0, 2.0, 5.0].map(|digit| digit * 10f64.powi(power));
    (0..5).flat_map(decade).map(|hertz| (hertz, format!("{hertz:.0}"))).collect()
}
