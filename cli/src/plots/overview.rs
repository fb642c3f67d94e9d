//! Plot of all candidates of a search: DM against time, and the distributions of S/N and DM.

use sidereal::Result;

use super::colour::{self, BLUE, GREY};
use super::frame::{Axis, Frame, Labels, TICK_TEXT};
use super::pen::{Pen, Rect, Size, picture};
use super::png::Png;
use super::short;
use super::text::{Anchor, Style, fitted};

/// One candidate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Point {
    pub(crate) time_s: f64,
    pub(crate) dm: f64,
    pub(crate) snr: f64,
}

/// Search and its candidates, in any order.
#[derive(Clone, Debug)]
pub(crate) struct Overview {
    pub(crate) file: String,
    pub(crate) target: String,
    /// Start and end of the searched data, in seconds.
    pub(crate) span_s: (f64, f64),
    /// Lowest and highest trial.
    pub(crate) dms: (f64, f64),
    /// S/N threshold.
    pub(crate) snr: f64,
    pub(crate) points: Vec<Point>,
}

const SIZE: Size = Size { width: 1600, height: 1000 };
/// Number of candidates labelled with their rank.
const RANKED: usize = 15;
const SCATTER: Rect = Rect { left: 130.0, top: 130.0, right: 1560.0, bottom: 580.0 };
const SNRS: Rect = Rect { left: 130.0, top: 710.0, right: 790.0, bottom: 915.0 };
const DMS: Rect = Rect { left: 900.0, top: 710.0, right: 1560.0, bottom: 915.0 };

/// Draws the overview of a search.
///
/// # Errors
/// [`sidereal::Error::Io`] when the file cannot be written.
pub(crate) fn overview(file: &Png<'_>, about: &Overview) -> Result<()> {
    picture(file, SIZE, |pen| {
        header(pen, about);
        scatter(pen, about);
        let snrs: Vec<f64> = about.points.iter().map(|p| p.snr).collect();
        let most = snrs.iter().copied().fold(about.snr * 1.5, f64::max);
        histogram(pen, SNRS, &snrs, Axis::new(about.snr, most * 1.02), "S/N");
        let dms: Vec<f64> = about.points.iter().map(|p| p.dm).collect();
        histogram(pen, DMS, &dms, Axis::new(about.dms.0, about.dms.1), "DM (pc cm⁻³)");
    })
}

fn header(pen: &Pen<'_>, about: &Overview) {
    pen.text(40.0, 46.0, &about.file, Style::new(34.0));
    let found = match about.points.len() {
        0 => "no candidate".to_owned(),
        1 => "1 candidate".to_owned(),
        many => format!("{many} candidates"),
    };
    let words = format!("{found} above S/N {}", short(about.snr, 3));
    pen.text(1560.0, 46.0, &words, Style::new(24.0).colour(GREY).anchor(Anchor::End));
    // Leaves space for the legend of sizes at the right.
    pen.text(40.0, 84.0, &about.target, fitted(&about.target, 24.0, 1080.0).colour(GREY));
}

/// Returns radius and colour-map value (0 to 1) for an S/N, from its ratio to the threshold.
fn look(snr: f64, threshold: f64) -> (f64, f32) {
    let ratio = (snr / threshold).max(1.0).log2();
    (5.0 + 7.0 * ratio.min(3.5), (0.25 + 0.2 * ratio as f32).min(0.93))
}

fn scatter(pen: &Pen<'_>, about: &Overview) {
    let room = 0.03 * (about.dms.1 - about.dms.0).max(1.0);
    let (first, last) = about.span_s;
    let frame = Frame {
        rect: SCATTER,
        x: Axis::new(first, last),
        y: Axis::new(about.dms.0 - room, about.dms.1 + room),
    };
    frame.guides(pen);
    // Draws the brightest last, on top of the others.
    let mut points = about.points.clone();
    points.sort_by(|a, b| a.snr.total_cmp(&b.snr));
    for point in &points {
        let (radius, shade) = look(point.snr, about.snr);
        frame.disc(pen, point.time_s, point.dm, radius, colour::map(shade));
    }
    ranks(pen, &frame, about.snr, points.iter().rev().take(RANKED));
    frame.axes(pen, Labels::Full("Time from the first sample (s)"), Labels::Full("DM (pc cm⁻³)"));
    if points.is_empty() {
        let (x, y) = (0.5 * (SCATTER.left + SCATTER.right), 0.5 * (SCATTER.top + SCATTER.bottom));
        let style = Style::new(28.0).colour(GREY).anchor(Anchor::Middle);
        pen.text(x, y, "nothing above the threshold", style);
    }
    key(pen, about.snr);
}

/// Draws the ranks of the best candidates, as in their own plots.
fn ranks<'a>(pen: &Pen<'_>, frame: &Frame, threshold: f64, best: impl Iterator<Item = &'a Point>) {
    for (index, point) in best.enumerate() {
        let (x, y) = frame.place(point.time_s, point.dm);
        let x = x + look(point.snr, threshold).0 + 5.0;
        pen.text(x, y, &(index + 1).to_string(), Style::new(TICK_TEXT - 2.0));
    }
}

/// Draws the legend of sizes and colours.
fn key(pen: &Pen<'_>, threshold: f64) {
    let style = Style::new(TICK_TEXT).colour(GREY);
    let mut x = 1190.0;
    pen.text(x - 14.0, 100.0, "S/N", style.anchor(Anchor::End));
    for factor in [1.0, 2.0, 4.0, 8.0] {
        let (radius, shade) = look(threshold * factor, threshold);
        pen.disc(x + radius, 100.0, radius, colour::map(shade));
        pen.text(x + 2.0 * radius + 8.0, 100.0, &short(threshold * factor, 3), style);
        x += 2.0 * radius + 60.0;
    }
}

fn histogram(pen: &Pen<'_>, rect: Rect, values: &[f64], x: Axis, label: &str) {
    const BINS: usize = 48;
    let mut counts = [0u32; BINS];
    for value in values {
        let part = (value - x.from) / (x.to - x.from);
        if (0.0..=1.0).contains(&part) {
            counts[((part * BINS as f64) as usize).min(BINS - 1)] += 1;
        }
    }
    let most = f64::from(counts.iter().copied().max().unwrap_or(0).max(4));
    let frame = Frame { rect, x, y: Axis::new(0.0, most * 1.08) };
    frame.guides(pen);
    let width = (x.to - x.from) / BINS as f64;
    for (bin, count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
        let (left, top) = frame.place(x.from + bin as f64 * width, f64::from(*count));
        let (right, bottom) = frame.place(x.from + (bin + 1) as f64 * width, 0.0);
        pen.block(Rect { left, top, right: right - 1.0, bottom }, BLUE, 0.9);
    }
    frame.axes(pen, Labels::Full(label), Labels::Full("Candidates"));
}
