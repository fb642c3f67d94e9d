//! Plot of amplitude and phase against time and frequency, for some baselines.

use num_complex::Complex;
use sidereal::Result;

use super::super::colour::{self, Scale, quantiles};
use super::super::frame::{Axis, Frame, Labels};
use super::super::pen::{Pen, Rect, Size, picture};
use super::super::png::Png;
use super::super::text::Style;
use super::{Correlation, Fringes, scale};

const SIZE: Size = Size { width: 1600, height: 1000 };
/// Area of the panels: baselines side by side, amplitudes above phases.
const PANELS: Rect = Rect { left: 120.0, top: 165.0, right: 1500.0, bottom: 920.0 };
const GAP: f64 = 30.0;

/// Draws the page.
///
/// # Errors
/// [`sidereal::Error::Io`] when the file cannot be written.
pub(super) fn draw(file: &Png<'_>, about: &Correlation) -> Result<()> {
    let norms =
        |fringes: &Fringes| fringes.waterfall.iter().map(|v| v.norm()).collect::<Vec<f32>>();
    let all: Vec<f32> = about.baselines.iter().flat_map(norms).collect();
    let most = quantiles(&all, 0.0, 0.995).high;
    let (unit, words) = scale(most.into());
    let product = about.products.first().map_or("", String::as_str);
    picture(file, SIZE, |pen| {
        about.header(pen, 1560.0, &format!("{product} against time and frequency"));
        for (index, fringes) in about.baselines.iter().enumerate() {
            let place = |row| Place { rect: panel(about, index, row), first: index == 0, row };
            pen.text(
                place(0).rect.left,
                PANELS.top - 22.0,
                &about.title(fringes),
                Style::new(22.0),
            );
            let amplitude = |v: Complex<f32>| colour::map(v.norm() / most);
            let phase = |v: Complex<f32>| colour::wheel(turn(v));
            let upper = plane(pen, about, fringes, &place(0), amplitude);
            let lower = plane(pen, about, fringes, &place(1), phase);
            if index + 1 == about.baselines.len() {
                let scale = Scale { low: 0.0, high: (f64::from(most) / unit) as f32 };
                upper.colour_bar(pen, scale, &format!("amplitude{words}"));
                let y = Axis::new(-180.0, 180.0).every(90.0);
                lower.colour_bar_of(pen, y, "phase (°)", colour::wheel);
            }
        }
    })
}

/// Maps a phase to 0 (−180°) to 1 (180°).
fn turn(visibility: Complex<f32>) -> f32 {
    0.5 + visibility.arg() / std::f32::consts::TAU
}

/// Position of a panel.
struct Place {
    rect: Rect,
    /// Whether the panel is the first in its row.
    first: bool,
    row: usize,
}

fn panel(about: &Correlation, column: usize, row: usize) -> Rect {
    let columns = about.baselines.len() as f64;
    let width = (PANELS.right - PANELS.left - GAP * (columns - 1.0)) / columns;
    let height = 0.5 * (PANELS.bottom - PANELS.top - GAP);
    let (left, top) =
        (PANELS.left + column as f64 * (width + GAP), PANELS.top + row as f64 * (height + GAP));
    Rect { left, right: left + width, top, bottom: top + height }
}

fn plane(
    pen: &Pen<'_>,
    about: &Correlation,
    fringes: &Fringes,
    place: &Place,
    colour_of: impl Fn(Complex<f32>) -> plotters::style::RGBColor,
) -> Frame {
    let (channels, columns) = (about.channels(), about.columns);
    let times = fringes.waterfall.len() / columns.max(1);
    let x = Axis::new(0.0, about.duration_s);
    let frame = Frame { rect: place.rect, x, y: about.frequency_axis() };
    let along = about.channels_along();
    let time_at = |part: f64| ((part * times as f64) as usize).min(times.saturating_sub(1));
    let place_at = |part: f64| (((1.0 - part) * along.len() as f64) as usize).min(along.len() - 1);
    pen.cells(frame.rect, time_at, place_at, |time, place| {
        let channel = along[place].filter(|_| times > 0);
        channel.map_or(colour::BLANK, |channel| {
            let value = fringes.waterfall[time * columns + channel * columns / channels];
            if value.is_finite() { colour_of(value) } else { colour::BLANK }
        })
    });
    let x_label = if place.row == 1 { Labels::Full("Time (s)") } else { Labels::None };
    let y_label = if place.first { Labels::Full("Frequency (MHz)") } else { Labels::None };
    frame.axes(pen, x_label, y_label);
    frame
}
