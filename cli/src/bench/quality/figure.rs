//! Draws the two figures: lines from the windows' responses, dots from tones through the filter bank.

use plotters::style::RGBColor;
use sidereal::Result;
use sidereal::backend::Backend;
use sidereal::math::Window;

use super::{Bank, CENTRE, CHANNELS, powers_db};
use crate::plots::Png;
use crate::plots::colour::{BLUE, FAINT, GREY, RED, map};
use crate::plots::frame::{Axis, Frame, LABEL_TEXT, Labels, TICK_TEXT};
use crate::plots::pen::{Pen, Rect, picture};
use crate::plots::text::{Anchor, Style};

const SIZE: (u32, u32) = (1600, 780);
/// Channels drawn on either side of the tone.
const NEAR: usize = 40;
const LEFT: Rect = Rect { left: 130.0, top: 110.0, right: 790.0, bottom: 620.0 };
const RIGHT: Rect = Rect { left: 900.0, top: 110.0, right: 1560.0, bottom: 620.0 };

/// Legend of the scalloping figure.
const KEYS: [(&str, RGBColor); 3] =
    [("best channel", BLUE), ("other channels", GREY), ("measured", RED)];

/// Returns the two filter banks that both figures compare: without and with the filter.
fn pair(banks: &[Bank]) -> impl Iterator<Item = &Bank> {
    let shown = |bank: &&Bank| bank.is(&Window::Rectangular, 1) || bank.is(&Window::Hann, 8);
    banks.iter().filter(shown)
}

/// Draws the scalloping: power of a tone that moves over three channels, in its own and in the adjacent channels.
pub(super) fn scalloping(file: &Png<'_>, banks: &[Bank], backend: &Backend) -> Result<()> {
    let offsets: Vec<f64> = (-15..=15).map(|step| f64::from(step) / 10.0).collect();
    let mut dots = Vec::new();
    for bank in pair(banks) {
        let mut found = Vec::new();
        for offset in &offsets {
            found.push(powers_db(&bank.plan, backend, CENTRE as f64 + offset)?);
        }
        dots.push(found);
    }
    picture(file, SIZE, |pen| {
        title(pen, "Scalloping: a tone that moves over three channels");
        for ((bank, rect), found) in pair(banks).zip([LEFT, RIGHT]).zip(&dots) {
            let frame = Frame { rect, x: Axis::new(-1.5, 1.5), y: Axis::new(-12.0, 1.0) };
            frame.guides(pen);
            let fine = (0..=600).map(|step| f64::from(step) / 200.0 - 1.5);
            let curves: Vec<Vec<(f64, f64)>> = [-1.0, 0.0, 1.0]
                .iter()
                .map(|k| fine.clone().map(|x| (x, bank.plan.response().db(x - k))).collect())
                .collect();
            let highest = |at: usize| curves.iter().map(|c| c[at].1).fold(f64::MIN, f64::max);
            let envelope: Vec<_> = fine.enumerate().map(|(at, x)| (x, highest(at))).collect();
            for points in &curves {
                curve(pen, &frame, points, GREY, 2.0);
            }
            curve(pen, &frame, &envelope, BLUE, 3.5);
            for (x, powers) in offsets.iter().zip(found) {
                for db in &powers[CENTRE - 1..=CENTRE + 1] {
                    if *db > frame.y.from {
                        pen.disc(frame.place(*x, *db), 4.0, RED);
                    }
                }
            }
            let loss = format!(
                "{}: {:.2} dB lost half way, less than 1 dB in {:.0} % of the band",
                bank.name(),
                bank.summary.scalloping_loss_db,
                100.0 * bank.within_1_db
            );
            head(pen, rect, &loss);
            frame.axes(
                pen,
                Labels::Full("Frequency of the tone (channels)"),
                Labels::Full("Power in each channel (dB)"),
            );
            for (column, (words, colour)) in KEYS.into_iter().enumerate() {
                key(pen, rect, (column, 0), words, colour);
            }
        }
    })
}

/// Draws the leakage: a tone half way between two channels over the whole band, and the windows' responses.
pub(super) fn leakage(file: &Png<'_>, banks: &[Bank], backend: &Backend) -> Result<()> {
    let mut found = Vec::new();
    for bank in pair(banks) {
        found.push(powers_db(&bank.plan, backend, CENTRE as f64 + 0.5)?);
    }
    picture(file, SIZE, |pen| {
        title(pen, "Leakage of a tone into other channels");
        let x = Axis::new(-(NEAR as f64), NEAR as f64);
        let frame = Frame { rect: LEFT, x, y: Axis::new(-120.0, 5.0) };
        frame.guides(pen);
        for (index, (bank, powers)) in pair(banks).zip(&found).enumerate() {
            let near = CENTRE - NEAR..=CENTRE + NEAR;
            let place = |c: usize| c as f64 - CENTRE as f64 - 0.5;
            let steps = near.flat_map(|c| [-0.5, 0.5].map(|edge| (place(c) + edge, powers[c])));
            let colour = [RED, BLUE][index];
            curve(pen, &frame, &steps.collect::<Vec<_>>(), colour, 2.5);
            key(pen, LEFT, (index, 0), &bank.name(), colour);
        }
        head(pen, LEFT, "Measured: a tone half way between two channels");
        frame.axes(
            pen,
            Labels::Full("Distance from the tone (channels)"),
            Labels::Full("Power in each channel (dB)"),
        );
        windows(pen, banks);
    })
}

/// Draws the responses of every window with 8 taps and of the plain transform.
fn windows(pen: &Pen<'_>, banks: &[Bank]) {
    let frame = Frame { rect: RIGHT, x: Axis::new(0.0, 3.0), y: Axis::new(-120.0, 5.0) };
    frame.guides(pen);
    let (low, high) = (frame.place(1.0, frame.y.from), frame.place(1.0, frame.y.to));
    pen.line(&[low, high], FAINT, 2.0);
    let shown = banks.iter().filter(|bank| bank.taps == 8 || bank.is(&Window::Rectangular, 1));
    for (index, bank) in shown.enumerate() {
        let colour = match bank.window {
            Window::Rectangular => RED,
            Window::Hann => BLUE,
            Window::Hamming => map(0.28),
            Window::Blackman => GREY,
            _ => map(0.82),
        };
        let fine = (0..=1500).map(|step| f64::from(step) / 500.0);
        let points: Vec<_> = fine.map(|x| (x, bank.plan.response().db(x))).collect();
        curve(pen, &frame, &points, colour, 2.0);
        key(pen, RIGHT, (index % 3, index / 3), &bank.name(), colour);
    }
    head(pen, RIGHT, "Response: the next channel's centre is at 1");
    frame.axes(
        pen,
        Labels::Full("Distance from the channel's centre (channels)"),
        Labels::Full("Response (dB)"),
    );
}

fn title(pen: &Pen<'_>, words: &str) {
    pen.text((LEFT.left, 40.0), words, Style::new(28.0));
    let words = format!("{CHANNELS} channels");
    pen.text((RIGHT.right, 40.0), &words, Style::new(22.0).colour(GREY).anchor(Anchor::End));
}

fn head(pen: &Pen<'_>, rect: Rect, words: &str) {
    pen.text((rect.left, rect.top - 20.0), words, Style::new(LABEL_TEXT));
}

/// Draws a legend entry, in a column and a row below a panel.
fn key(pen: &Pen<'_>, rect: Rect, (column, row): (usize, usize), words: &str, colour: RGBColor) {
    let (x, y) = (rect.left + 230.0 * column as f64, rect.bottom + 92.0 + 30.0 * row as f64);
    pen.line(&[(x, y), (x + 30.0, y)], colour, 4.0);
    pen.text((x + 38.0, y), words, Style::new(TICK_TEXT));
}

/// Draws a curve, clipped at the lower edge of the frame.
fn curve(pen: &Pen<'_>, frame: &Frame, points: &[(f64, f64)], colour: RGBColor, width: f64) {
    let floor = frame.y.from;
    for pair in points.windows(2) {
        let [(a, b), (c, d)] = [pair[0], pair[1]];
        if b.max(d) <= floor {
            continue;
        }
        let crossing = |from: (f64, f64), to: (f64, f64)| {
            let part = ((floor - from.1) / (to.1 - from.1)).clamp(0.0, 1.0);
            (from.0 + part * (to.0 - from.0), floor)
        };
        let first = if b < floor { crossing((c, d), (a, b.max(-400.0))) } else { (a, b) };
        let second = if d < floor { crossing((a, b), (c, d.max(-400.0))) } else { (c, d) };
        frame.line(pen, &[first, second], colour, width);
    }
}
