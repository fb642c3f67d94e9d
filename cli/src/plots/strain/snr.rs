//! Plot of each detector's signal-to-noise ratio around an event.

use sidereal::Result;

use super::super::colour::{BLUE, GREY, RED};
use super::super::frame::{Axis, Frame, Labels, TICK_TEXT};
use super::super::pen::{Pen, Rect, Size, picture};
use super::super::png::Png;
use super::super::text::Style;
use super::Heading;
use super::axes::{WIDTH, caption, heading, height, panel, time_unit};

/// Contents of the plot.
#[derive(Clone, Debug)]
pub(crate) struct Snr<'a> {
    pub(crate) heading: Heading,
    /// Threshold of triggers.
    pub(crate) threshold: f64,
    pub(crate) detectors: Vec<SnrOf<'a>>,
}

/// Series of one detector.
#[derive(Clone, Debug)]
pub(crate) struct SnrOf<'a> {
    /// Detector: `H1`.
    pub(crate) name: &'a str,
    /// Time of the first sample less the event's, in seconds.
    pub(crate) start_s: f64,
    /// Sampling rate in Hz.
    pub(crate) rate_hz: f64,
    /// Signal-to-noise ratio `|z|`.
    pub(crate) snr: &'a [f32],
    /// Trigger, if this detector has one.
    pub(crate) peak: Option<Peak>,
}

/// Trigger of a detector.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peak {
    /// Time of the trigger less the event's, in seconds.
    pub(crate) time_s: f64,
    pub(crate) snr: f64,
    pub(crate) xi2: f64,
}

/// Height of a panel.
const EACH: f64 = 250.0;

/// Draws the signal-to-noise ratios.
///
/// # Errors
/// [`sidereal::Error::Io`] when the file cannot be written.
pub(crate) fn snr(file: &Png<'_>, about: &Snr<'_>) -> Result<()> {
    let size = Size { width: WIDTH, height: height(about.detectors.len(), EACH) };
    let x = span(about);
    let (scale, label) = time_unit(x.1 - x.0);
    let top = about.detectors.iter().map(loudest).fold(1.25 * about.threshold, f64::max);
    picture(file, size, |pen| {
        heading(pen, &about.heading);
        for (index, own) in about.detectors.iter().enumerate() {
            let x = Axis::new(x.0 * scale, x.1 * scale);
            let rect = panel(index, EACH);
            let frame = Frame { rect, x, y: Axis::new(0.0, 1.1 * top) };
            let is_last = index + 1 == about.detectors.len();
            let labels = if is_last { Labels::Full(label) } else { Labels::None };
            trace(pen, &frame, own, about.threshold, scale);
            frame.axes(pen, labels, Labels::Full("SNR |z|"));
            caption(pen, rect, own.name, &facts(own));
        }
    })
}

/// Returns the time range from the first start to the last end of the series.
fn span(about: &Snr<'_>) -> (f64, f64) {
    let heard = about.detectors.iter().filter(|own| !own.snr.is_empty());
    let ends = heard.map(|own| {
        (own.start_s, own.start_s + own.snr.len() as f64 / own.rate_hz.max(f64::MIN_POSITIVE))
    });
    ends.fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), (from, to)| (a.min(from), b.max(to)))
}

fn loudest(own: &SnrOf<'_>) -> f64 {
    let series = own.snr.iter().filter(|z| z.is_finite()).fold(0f32, |a, b| a.max(*b));
    own.peak.map_or(0.0, |peak| peak.snr).max(series.into())
}

fn facts(own: &SnrOf<'_>) -> String {
    own.peak.map_or_else(
        || "no trigger".to_owned(),
        |peak| {
            let time = format!("{:+.2} ms", 1e3 * peak.time_s).replace('-', "−");
            format!("SNR {:.2}   ·   ξ² {:.2}   ·   {time}", peak.snr, peak.xi2)
        },
    )
}

fn trace(pen: &Pen<'_>, frame: &Frame, own: &SnrOf<'_>, threshold: f64, scale: f64) {
    frame.guides(pen);
    let Rect { left, right, .. } = frame.rect;
    let (_, y) = frame.place(frame.x.from, threshold);
    for dash in 0.. {
        let from = left + 16.0 * f64::from(dash);
        if from > right {
            break;
        }
        pen.line(&[(from, y), ((from + 8.0).min(right), y)], GREY, 1.5);
    }
    let at = |index: usize| (own.start_s + index as f64 / own.rate_hz) * scale;
    let points: Vec<(f64, f64)> =
        own.snr.iter().enumerate().map(|(index, z)| (at(index), f64::from(*z))).collect();
    if let Some(peak) = own.peak {
        let time = peak.time_s * scale;
        frame.line(pen, &[(time, 0.0), (time, peak.snr)], RED, 1.5);
    }
    // Gated samples have no ratios.
    for run in points.split(|point| !point.1.is_finite()) {
        frame.line(pen, run, BLUE, 2.0);
    }
    if let Some(peak) = own.peak {
        frame.disc(pen, peak.time_s * scale, peak.snr, 6.0, RED);
    }
    let style = Style::new(TICK_TEXT).colour(GREY);
    pen.text(left + 12.0, y - 13.0, "threshold", style);
}
