//! Plot of the background's distribution and the significance of the events.

use sidereal::Result;

use super::super::colour::{BLUE, FAINT, GREY, INK, RED};
use super::super::frame::{Axis, Frame, Labels};
use super::super::pen::{Pen, Rect, Size, picture};
use super::super::png::Png;
use super::super::text::{Anchor, Style};
use super::super::{duration, plural};
use super::Heading;
use super::axes::{HEAD, WIDTH, decades, heading, log_guides, log_ticks};

/// Contents of the plot.
#[derive(Clone, Debug)]
pub(crate) struct Background<'a> {
    pub(crate) heading: Heading,
    /// Rankings of the events in all time slides.
    pub(crate) slides: &'a [f64],
    /// Coincident time of all slides together, in seconds.
    pub(crate) slides_s: f64,
    /// Rankings of the events found.
    pub(crate) events: &'a [f64],
    /// Time searched, in seconds.
    pub(crate) livetime_s: f64,
    /// Name of the ranking, for the axis.
    pub(crate) ranking: &'a str,
}

const PLOT: Rect = Rect { left: 150.0, top: HEAD, right: 1440.0, bottom: 726.0 };

/// Number of histogram bins.
const BINS: usize = 60;

/// Lower end of the count axis.
const LEAST: f64 = 0.5;

/// Draws the histogram.
///
/// # Errors
/// [`sidereal::Error::Io`] when the file cannot be written.
pub(crate) fn background(file: &Png<'_>, about: &Background<'_>) -> Result<()> {
    let x = span(about);
    let width = (x.1 - x.0) / BINS as f64;
    let (slides, events) = (counts(about.slides, x.0, width), counts(about.events, x.0, width));
    // The rate at a bin's lower edge counts all events from there on.
    let louder: Vec<f64> = slides
        .iter()
        .rev()
        .scan(0.0, |sum, count| {
            *sum += count;
            Some(*sum)
        })
        .collect();
    let most = louder.last().copied().unwrap_or(0.0).max(10.0);
    let y = Axis::new(LEAST.log10(), (2.0 * most).log10()).every(1e9);
    let frame = Frame { rect: PLOT, x: Axis::new(x.0, x.1), y };
    picture(file, Size { width: WIDTH, height: 826 }, |pen| {
        heading(pen, &about.heading);
        let ticks = decades(0, (2.0 * most).log10() as i32, 8);
        log_guides(pen, &frame, &ticks);
        bars(pen, &frame, &slides, width);
        let curve = louder.iter().rev().enumerate().map(|(bin, count)| (bin, 1.0 + count));
        let steps: Vec<(f64, f64)> = curve
            .flat_map(|(bin, count)| {
                let from = x.0 + bin as f64 * width;
                [(from, count.log10()), (from + width, count.log10())]
            })
            .collect();
        frame.line(pen, &steps, INK, 2.0);
        let line = marks(pen, &frame, &events, about.events, width);
        frame.axes(pen, Labels::Full(about.ranking), Labels::None);
        log_ticks(pen, &frame, &ticks, "Events in a bin, or at least as loud", false);
        rates(pen, &frame, about.slides_s, most);
        legend(pen, about, line);
    })
}

/// Returns the range of the rankings, with a margin.
fn span(about: &Background<'_>) -> (f64, f64) {
    let all = about.slides.iter().chain(about.events).filter(|x| x.is_finite());
    let (low, high) =
        all.fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), x| (a.min(*x), b.max(*x)));
    if low > high {
        return (0.0, 10.0);
    }
    (low.floor(), (high + 0.04 * (high - low)).max(low.floor() + 1.0))
}

fn counts(rankings: &[f64], low: f64, width: f64) -> Vec<f64> {
    let mut counts = vec![0.0; BINS];
    for ranking in rankings.iter().filter(|x| x.is_finite()) {
        counts[(((ranking - low) / width) as usize).min(BINS - 1)] += 1.0;
    }
    counts
}

fn bars(pen: &Pen<'_>, frame: &Frame, counts: &[f64], width: f64) {
    for (bin, count) in counts.iter().enumerate().filter(|(_, count)| **count > 0.0) {
        let from = frame.x.from + bin as f64 * width;
        let (left, top) = frame.place(from, count.log10());
        let (right, _) = frame.place(from + width, 0.0);
        pen.block(Rect { left, top, right: right - 1.0, bottom: frame.rect.bottom }, BLUE, 0.75);
    }
}

/// Marks the events: a disc each at the height of its bin, and a line at the loudest; returns the position of that
/// line.
fn marks(pen: &Pen<'_>, frame: &Frame, counts: &[f64], events: &[f64], width: f64) -> Option<f64> {
    let finite = || events.iter().copied().filter(|x| x.is_finite());
    let loudest = finite().reduce(f64::max)?;
    let (x, _) = frame.place(loudest, 0.0);
    pen.line(&[(x, frame.rect.top), (x, frame.rect.bottom)], RED, 1.5);
    for ranking in finite() {
        let bin = (((ranking - frame.x.from) / width) as usize).min(counts.len() - 1);
        frame.disc(pen, ranking, counts[bin].max(1.0).log10(), 5.0, RED);
    }
    let words = format!("loudest event: {loudest:.2}");
    let is_left = x > 0.5 * (frame.rect.left + frame.rect.right);
    let (place, anchor) = if is_left { (x - 14.0, Anchor::End) } else { (x + 14.0, Anchor::Start) };
    let style = Style::new(22.0).colour(RED).anchor(anchor);
    pen.text(place, frame.rect.top + 24.0, &words, style);
    Some(x)
}

/// Draws the right axis: rate of events at least as loud.
fn rates(pen: &Pen<'_>, frame: &Frame, slides_s: f64, most: f64) {
    if !(slides_s.is_finite() && slides_s > 0.0) {
        return;
    }
    let shift = slides_s.log10();
    let y = Axis::new(frame.y.from - shift, frame.y.to - shift);
    let right = Frame { y, ..*frame };
    let high = (2.0 * most / slides_s).log10().floor() as i32;
    let low = (LEAST / slides_s).log10().ceil() as i32;
    log_ticks(pen, &right, &decades(low, high, 8), "False alarms at least as loud (Hz)", true);
}

/// Draws the legend; left of the line at `line` if they would overlap.
fn legend(pen: &Pen<'_>, about: &Background<'_>, line: Option<f64>) {
    let slides = format!(
        "{} of time slides, {}",
        plural(about.slides.len(), "event"),
        duration(about.slides_s)
    );
    let events =
        format!("{} found in {}", plural(about.events.len(), "event"), duration(about.livetime_s));
    let rows =
        [(BLUE, slides), (INK, "1 + time slides at least as loud".to_owned()), (RED, events)];
    let widest =
        rows.iter().map(|row| super::super::text::length(&row.1, 20.0)).fold(0.0, f32::max);
    let length = f64::from(widest) + 60.0;
    let right = PLOT.right - 14.0;
    let right = line.filter(|x| *x > right - length - 14.0).map_or(right, |x| x - 14.0);
    let (left, top) = (right - length, PLOT.top + 52.0);
    let room = Rect { left, top, right, bottom: top + 104.0 };
    pen.block(room, plotters::style::WHITE, 0.9);
    let corners = [(room.left, room.top), (room.right, room.top), (room.right, room.bottom)];
    let corners = [&corners[..], &[(room.left, room.bottom), (room.left, room.top)]].concat();
    pen.line(&corners, FAINT, 1.0);
    for (row, (colour, words)) in rows.iter().enumerate() {
        let y = room.top + 22.0 + 30.0 * row as f64;
        let mark = Rect { left: left + 14.0, top: y - 5.0, right: left + 34.0, bottom: y + 5.0 };
        match row {
            0 => pen.block(mark, *colour, 0.75),
            1 => pen.line(&[(mark.left, y), (mark.right, y)], *colour, 2.0),
            _ => pen.disc(0.5 * (mark.left + mark.right), y, 5.0, *colour),
        }
        pen.text(left + 46.0, y, words, Style::new(20.0).colour(GREY));
    }
}
