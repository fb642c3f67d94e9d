//! Plot of the number of templates that one core filters in real time against latency: recursive filters beside
//! Fourier transforms.

use plotters::style::RGBColor;
use sidereal::Result;

use super::colour::{FAINT, GREY};
use super::frame::{Axis, Frame, LABEL_TEXT, Labels, TICK_TEXT};
use super::pen::{Pen, Rect, picture};
use super::png::Png;
use super::short;
use super::text::{Anchor, Style};

/// Results for one template length: points of latency in seconds, and templates that one core filters in real time.
#[derive(Clone, Debug)]
pub(crate) struct Curve {
    /// Length of the templates, in seconds.
    pub(crate) length_s: f64,
    /// Points of the Fourier transforms, by rising latency.
    pub(crate) transforms: Vec<(f64, f64)>,
    /// Points of the recursive filters, one per resampler.
    pub(crate) filters: Vec<(f64, f64)>,
}

const SIZE: (u32, u32) = (1500, 900);
const PLANE: Rect = Rect { left: 150.0, top: 120.0, right: 1270.0, bottom: 800.0 };

/// One colour per length.
const COLOURS: [RGBColor; 4] =
    [RGBColor(33, 84, 160), RGBColor(30, 140, 120), RGBColor(190, 120, 20), RGBColor(190, 50, 60)];

/// Draws all lengths into one plot with logarithmic axes.
///
/// # Errors
/// [`sidereal::Error::Io`] when the file cannot be written.
pub(crate) fn latency(file: &Png<'_>, curves: &[Curve]) -> Result<()> {
    let points = || curves.iter().flat_map(|curve| curve.transforms.iter().chain(&curve.filters));
    let span = |value: fn(&(f64, f64)) -> f64| {
        let logs = || points().map(|point| value(point).max(1e-9).log10());
        (logs().fold(f64::MAX, f64::min).floor(), logs().fold(f64::MIN, f64::max).ceil())
    };
    let (x, y) = (span(|point| point.0), span(|point| point.1));
    // A step beyond the axes gives no ticks: `decades` draws them at powers of ten instead.
    let frame =
        Frame { rect: PLANE, x: Axis::new(x.0, x.1).every(1e9), y: Axis::new(y.0, y.1).every(1e9) };
    picture(file, SIZE, |pen| {
        let words = "Templates that one core follows: recursive filters beside Fourier transforms";
        pen.text((PLANE.left, 45.0), words, Style::new(26.0));
        let legend =
            "lines: overlap-save, latency of one block; discs: filters, short and long resamplers";
        pen.text((PLANE.left, 82.0), legend, Style::new(20.0).colour(GREY));
        decades(pen, &frame, (x, y));
        for (curve, colour) in curves.iter().zip(COLOURS.iter().cycle()) {
            draw(pen, &frame, curve, *colour);
        }
        frame.axes(pen, Labels::None, Labels::None);
        let middle = Style::new(LABEL_TEXT).anchor(Anchor::Middle);
        pen.text((0.5 * (PLANE.left + PLANE.right), PLANE.bottom + 58.0), "Latency (s)", middle);
        let upwards = middle.upwards();
        let words = "Templates in real time on one core";
        pen.text((PLANE.left - 100.0, 0.5 * (PLANE.top + PLANE.bottom)), words, upwards);
    })
}

/// Draws lines and numbers at powers of ten.
fn decades(pen: &Pen<'_>, frame: &Frame, (x, y): ((f64, f64), (f64, f64))) {
    let whole = |(from, to): (f64, f64)| from as i32..=to as i32;
    for power in whole(x) {
        let (across, _) = frame.place(f64::from(power), y.0);
        pen.line(&[(across, PLANE.top), (across, PLANE.bottom)], FAINT, 1.0);
        let style = Style::new(TICK_TEXT).anchor(Anchor::Middle);
        pen.text((across, PLANE.bottom + 22.0), &short(10f64.powi(power), 4), style);
    }
    for power in whole(y) {
        let (_, down) = frame.place(x.0, f64::from(power));
        pen.line(&[(PLANE.left, down), (PLANE.right, down)], FAINT, 1.0);
        let style = Style::new(TICK_TEXT).anchor(Anchor::End);
        pen.text((PLANE.left - 10.0, down), &short(10f64.powi(power), 4), style);
    }
}

fn draw(pen: &Pen<'_>, frame: &Frame, curve: &Curve, colour: RGBColor) {
    let log = |point: &(f64, f64)| (point.0.max(1e-9).log10(), point.1.max(1e-9).log10());
    let line: Vec<(f64, f64)> = curve.transforms.iter().map(log).collect();
    frame.line(pen, &line, colour, 2.5);
    let filters: Vec<(f64, f64)> = curve.filters.iter().map(log).collect();
    frame.line(pen, &filters, colour, 1.0);
    for (x, y) in &filters {
        pen.disc(frame.place(*x, *y), 9.0, colour);
    }
    if let Some((x, y)) = line.last() {
        let (across, down) = frame.place(*x, *y);
        let words = format!("{} s", short(curve.length_s, 3));
        pen.text((across + 10.0, down), &words, Style::new(20.0).colour(colour));
    }
}
