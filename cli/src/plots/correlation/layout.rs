//! Plot of the array on the ground, seen from above.

use sidereal::Result;

use super::super::colour::{BLUE, GREY, RED};
use super::super::frame::{Axis, Frame, Labels, TICK_TEXT};
use super::super::pen::{Pen, Rect, Size, picture};
use super::super::png::Png;
use super::super::text::{self, Anchor, Style};
use super::Correlation;

const SIZE: Size = Size { width: 1200, height: 1160 };
const MAP: Rect = Rect { left: 150.0, top: 120.0, right: 1130.0, bottom: 1070.0 };
/// Extent in metres above which the axes are in kilometres.
const FAR_M: f64 = 20_000.0;

/// Draws the page.
///
/// # Errors
/// [`sidereal::Error::Io`] when the file cannot be written.
pub(super) fn draw(file: &Png<'_>, about: &Correlation) -> Result<()> {
    picture(file, SIZE, |pen| {
        let antennas = match about.antennas.len() {
            1 => "1 antenna".to_owned(),
            many => format!("{many} antennas"),
        };
        about.header(pen, 1160.0, &antennas);
        let (frame, metres) = frame(about);
        frame.guides(pen);
        let places: Vec<(f64, f64)> = about
            .antennas
            .iter()
            .map(|station| frame.place(station.east_m / metres, station.north_m / metres))
            .collect();
        for baseline in &about.baselines {
            let (first, second) = baseline.antennas;
            if let (Some(from), Some(to)) = (places.get(first), places.get(second)) {
                pen.line(&[*from, *to], RED, 1.5);
            }
        }
        let radius = if places.len() > 100 { 4.0 } else { 6.5 };
        places.iter().for_each(|(x, y)| pen.disc(*x, *y, radius, BLUE));
        names(pen, about, &places, radius);
        let unit = if metres > 1.0 { "km" } else { "m" };
        let (east, north) = (format!("East ({unit})"), format!("North ({unit})"));
        frame.axes(pen, Labels::Full(&east), Labels::Full(&north));
        if !about.baselines.is_empty() {
            let style = Style::new(TICK_TEXT).colour(GREY).anchor(Anchor::End);
            pen.text(1160.0, 84.0, "lines: baselines that are shown", style);
        }
    })
}

/// Returns axes of equal scale around all antennas, and the number of metres per axis unit.
fn frame(about: &Correlation) -> (Frame, f64) {
    let ends = |value: fn(&super::Antenna) -> f64| {
        let values = about.antennas.iter().map(value).filter(|value| value.is_finite());
        values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v)))
    };
    let (east, north) = (ends(|station| station.east_m), ends(|station| station.north_m));
    let span = (east.1 - east.0).max(north.1 - north.0);
    let span = if span > 0.0 && span.is_finite() { span } else { 1.0 };
    let metres = if span > FAR_M { 1e3 } else { 1.0 };
    let axis = |(low, high): (f64, f64), pixels: f64| {
        let middle = if low <= high { 0.5 * (low + high) } else { 0.0 };
        let half = 0.57 * span * pixels / (MAP.bottom - MAP.top);
        Axis::new((middle - half) / metres, (middle + half) / metres)
    };
    let x = axis(east, MAP.right - MAP.left);
    (Frame { rect: MAP, x, y: axis(north, MAP.bottom - MAP.top) }, metres)
}

/// Writes names beside the antennas where space permits.
fn names(pen: &Pen<'_>, about: &Correlation, places: &[(f64, f64)], radius: f64) {
    let size = if places.len() > 100 { TICK_TEXT - 4.0 } else { TICK_TEXT };
    let disc = |(x, y): (f64, f64)| Rect {
        left: x - radius,
        right: x + radius,
        top: y - radius,
        bottom: y + radius,
    };
    let mut taken: Vec<Rect> = places.iter().copied().map(disc).collect();
    for (station, (x, y)) in about.antennas.iter().zip(places) {
        let width = f64::from(text::length(&station.name, size));
        let half = 0.4 * f64::from(size);
        let off = radius + 5.0;
        let corners = [
            (x + off, *y),
            (x - off - width, *y),
            (x - 0.5 * width, y - off - half),
            (x - 0.5 * width, y + off + half),
        ];
        let rect = |(left, middle): (f64, f64)| Rect {
            left,
            right: left + width,
            top: middle - half,
            bottom: middle + half,
        };
        let free = |place: &(f64, f64)| !taken.iter().any(|other| overlap(other, &rect(*place)));
        if let Some(place) = corners.into_iter().find(free) {
            pen.text(place.0, place.1, &station.name, Style::new(size));
            taken.push(rect(place));
        }
    }
}

fn overlap(a: &Rect, b: &Rect) -> bool {
    a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom
}
