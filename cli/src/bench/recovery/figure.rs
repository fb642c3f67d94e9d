//! Figure of the campaign: one column per band; S/N, DM error and time error below each other.

use sidereal::Result;

use super::cell::{Band, Outcome, SNRS, WIDTHS_S};
use crate::plots::Png;
use crate::plots::colour::{self, FAINT, GREY, INK};
use crate::plots::frame::{Axis, Frame, LABEL_TEXT, Labels, TICK_TEXT};
use crate::plots::pen::{Pen, Rect, picture};
use crate::plots::text::{Anchor, Style};

const SIZE: (u32, u32) = (1600, 1090);
const LEFT: f64 = 130.0;
const TOP: f64 = 120.0;
const COLUMN: f64 = 500.0;
const ROW: f64 = 310.0;
const PANEL: (f64, f64) = (430.0, 270.0);

/// Row of panels: label, limits, expected value and plotted value.
type Panel = (&'static str, (f64, f64), f64, fn(&Outcome) -> f64);

const PANELS: [Panel; 3] = [
    ("mean S/N / exact-DM S/N", (0.9, 1.1), 1.0, |o| o.mean_snr / o.exact_snr),
    ("rms DM error / allowed", (0.0, 1.0), 0.0, |o| o.dm_rms / o.dm_reach),
    ("rms time error / allowed", (0.0, 1.0), 0.0, |o| o.time_rms_s / o.time_reach_s),
];

/// Draws the campaign.
///
/// # Errors
/// [`sidereal::Error::Io`] when the file can't be written.
pub(super) fn draw(file: &Png<'_>, outcomes: &[Outcome], bands: &[Band]) -> Result<()> {
    picture(file, SIZE, |pen| {
        let injected: usize = outcomes.iter().map(|o| o.injected).sum();
        let found: usize = outcomes.iter().map(|o| o.found).sum();
        let title = format!("{injected} bursts injected, {found} found");
        pen.text((40.0, 46.0), &title, Style::new(30.0));
        key(pen);
        for (column, band) in bands.iter().enumerate() {
            let of_band: Vec<&Outcome> =
                outcomes.iter().filter(|o| o.cell.band.name == band.name).collect();
            for (row, panel) in PANELS.iter().enumerate() {
                draw_panel(pen, (column, row), panel, &of_band);
            }
            let middle = (LEFT + column as f64 * COLUMN + 0.5 * PANEL.0, TOP - 22.0);
            let style = Style::new(LABEL_TEXT).anchor(Anchor::Middle);
            pen.text(middle, &format!("{}, {} channels", band.name, band.channels), style);
        }
    })
}

fn shade(snr: f64) -> plotters::style::RGBColor {
    let place = SNRS.iter().position(|s| *s == snr).unwrap_or(0);
    colour::map(0.15 + 0.35 * place as f32)
}

fn key(pen: &Pen<'_>) {
    let mut x = 1180.0;
    pen.text(
        (x - 20.0, 46.0),
        "injected S/N",
        Style::new(TICK_TEXT).colour(GREY).anchor(Anchor::End),
    );
    for snr in SNRS {
        pen.disc((x, 46.0), 7.0, shade(snr));
        pen.text((x + 16.0, 46.0), &format!("{snr:.0}"), Style::new(TICK_TEXT).colour(GREY));
        x += 80.0;
    }
}

fn draw_panel(pen: &Pen<'_>, place: (usize, usize), panel: &Panel, outcomes: &[&Outcome]) {
    let (label, (low, high), expected, value) = *panel;
    let (left, top) = (LEFT + place.0 as f64 * COLUMN, TOP + place.1 as f64 * ROW);
    let rect = Rect { left, top, right: left + PANEL.0, bottom: top + PANEL.1 };
    let groups = outcomes.len() / SNRS.len();
    let frame = Frame { rect, x: Axis::new(0.0, groups as f64), y: Axis::new(low, high) };
    for group in 1..groups {
        let width = if group % WIDTHS_S.len() == 0 { 1.5 } else { 0.5 };
        let x = group as f64;
        pen.line(&[frame.place(x, low), frame.place(x, high)], FAINT, width);
    }
    frame.line(pen, &[(0.0, expected), (groups as f64, expected)], GREY, 1.0);
    for (index, outcome) in outcomes.iter().enumerate() {
        let x = (index as f64 + 0.5) / SNRS.len() as f64;
        let y = value(outcome).clamp(low, high);
        pen.disc(frame.place(x, y), 5.0, shade(outcome.cell.snr));
    }
    let words = if place.0 == 0 { label } else { "" };
    frame.axes(pen, Labels::None, Labels::Full(words));
    if place.1 + 1 == PANELS.len() {
        feet(pen, &frame, outcomes);
    }
}

/// Draws the width and DM of each group of points below the last panel.
fn feet(pen: &Pen<'_>, frame: &Frame, outcomes: &[&Outcome]) {
    let style = Style::new(15.0).anchor(Anchor::Middle);
    for (group, cells) in outcomes.chunks(SNRS.len()).enumerate() {
        let cell = &cells[0].cell;
        let (x, y) = frame.place(group as f64 + 0.5, frame.y.from);
        pen.text((x, y + 20.0), &format!("{:.0} ms", cell.width_s * 1e3), style.colour(INK));
        if group % WIDTHS_S.len() == 1 {
            pen.text((x, y + 44.0), &format!("DM {:.0}", cell.dm), style.colour(GREY));
        }
    }
}
