//! Plot of the autocorrelation spectra of all antennas, in dB.

use plotters::style::RGBColor;
use sidereal::Result;

use super::super::colour::{self, INK, Scale, quantiles};
use super::super::frame::{Axis, Frame, Labels, TICK_TEXT};
use super::super::pen::{Pen, Rect, Size, picture};
use super::super::png::Png;
use super::super::text::{Anchor, Style};
use super::Correlation;

const SIZE: Size = Size { width: 1600, height: 1000 };
/// Area of the panels, one below the other.
const PANELS: Rect = Rect { left: 130.0, top: 130.0, right: 1400.0, bottom: 920.0 };
/// Largest number of antennas drawn as lines; more become rows of a plane.
const LINES: usize = 16;
/// Approximate number of points in a line.
const POINTS: usize = 1270;
/// Gap between panels.
const GAP: f64 = 24.0;

/// Draws the page.
///
/// # Errors
/// [`sidereal::Error::Io`] when the file cannot be written.
pub(super) fn draw(file: &Png<'_>, about: &Correlation) -> Result<()> {
    let decibels: Vec<f32> = about.powers.iter().copied().map(decibels).collect();
    let as_lines = about.antennas.len() <= LINES;
    picture(file, SIZE, |pen| {
        about.header(pen, 1560.0, "autocorrelations");
        let scale = if as_lines {
            let Scale { low, high } = quantiles(&decibels, 0.001, 1.0);
            let margin = (0.08 * (high - low)).max(0.05);
            Scale { low: low - margin, high: high + margin }
        } else {
            quantiles(&decibels, 0.005, 0.999)
        };
        let length = about.antennas.len() * about.channels();
        for (index, product) in decibels.chunks_exact(length.max(1)).enumerate() {
            let frame = Frame { rect: panel(about, index), ..frame(about, scale) };
            let last = index + 1 == about.products.len();
            let x_label = if last { Labels::Full("Frequency (MHz)") } else { Labels::None };
            if as_lines {
                lines(pen, &frame, about, product);
                let words = format!("{} (dB of 1 count²)", about.products[index]);
                frame.axes(pen, x_label, Labels::Full(&words));
            } else {
                let frame = Frame { y: rows_axis(about), ..frame };
                plane(pen, &frame, about, product, scale);
                let words = format!("{}: antenna, in order", about.products[index]);
                frame.axes(pen, x_label, Labels::Full(&words));
                frame.colour_bar(pen, scale, "dB of 1 count²");
            }
        }
        if as_lines {
            key(pen, about);
        }
    })
}

fn decibels(power: f32) -> f32 {
    if power > 0.0 { 10.0 * power.log10() } else { f32::NAN }
}

fn panel(about: &Correlation, index: usize) -> Rect {
    let products = about.products.len().max(1) as f64;
    let height = (PANELS.bottom - PANELS.top - GAP * (products - 1.0)) / products;
    let top = PANELS.top + index as f64 * (height + GAP);
    Rect { top, bottom: top + height, ..PANELS }
}

fn frame(about: &Correlation, scale: Scale) -> Frame {
    let y = Axis::new(scale.low.into(), scale.high.into());
    Frame { rect: PANELS, x: about.frequency_axis(), y }
}

/// Returns an axis with the first antenna at the top.
fn rows_axis(about: &Correlation) -> Axis {
    Axis::new(about.antennas.len() as f64 - 0.5, -0.5)
}

fn lines(pen: &Pen<'_>, frame: &Frame, about: &Correlation, product: &[f32]) {
    frame.guides(pen);
    for (antenna, spectrum) in product.chunks_exact(about.channels().max(1)).enumerate() {
        let colour = shade(antenna, about.antennas.len());
        for line in about.lines(spectrum, POINTS) {
            frame.trace(pen, &line, colour);
        }
    }
}

fn plane(pen: &Pen<'_>, frame: &Frame, about: &Correlation, product: &[f32], scale: Scale) {
    let (antennas, channels) = (about.antennas.len(), about.channels());
    let along = about.channels_along();
    let place_at = |part: f64| (part * along.len() as f64) as usize;
    let antenna_at = |part: f64| ((part * antennas as f64) as usize).min(antennas - 1);
    pen.cells(frame.rect, place_at, antenna_at, |place, antenna| {
        let channel = along[place];
        let value = channel.map_or(f32::NAN, |channel| product[antenna * channels + channel]);
        scale.colour(value)
    });
}

/// Returns a colour for each antenna, from dark to moderately light for white paper.
fn shade(antenna: usize, antennas: usize) -> RGBColor {
    colour::map(0.1 + 0.75 * antenna as f32 / antennas.max(2).saturating_sub(1) as f32)
}

fn key(pen: &Pen<'_>, about: &Correlation) {
    for (antenna, station) in about.antennas.iter().enumerate() {
        let y = PANELS.top + 14.0 + 30.0 * antenna as f64;
        let x = PANELS.right + 24.0;
        pen.line(&[(x, y), (x + 30.0, y)], shade(antenna, about.antennas.len()), 3.5);
        let style = Style::new(TICK_TEXT).colour(INK).anchor(Anchor::Start);
        pen.text(x + 42.0, y, &station.name, style);
    }
}
