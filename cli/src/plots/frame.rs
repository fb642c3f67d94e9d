//! Frame with two axes: ticks at round numbers, labels with units, planes and lines inside.

use plotters::style::RGBColor;

use super::colour::{self, FAINT, GREY, INK, Scale};
use super::pen::{Pen, Rect};
use super::text::{Anchor, Style};

/// Text size of tick numbers; axis labels are a little larger.
pub(crate) const TICK_TEXT: f32 = 19.0;
/// Text size of axis labels.
pub(crate) const LABEL_TEXT: f32 = 21.0;

/// Axis, given by the values at its ends (the first at the left or at the bottom).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Axis {
    pub(crate) from: f64,
    pub(crate) to: f64,
    /// Distance between ticks, if round numbers are unsuitable.
    step: Option<f64>,
}

/// Text at an axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Labels<'a> {
    /// Ticks only.
    None,
    /// Ticks and numbers.
    Numbers,
    /// Numbers and a label.
    Full(&'a str),
}

/// Rectangle with axes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame {
    pub(crate) rect: Rect,
    pub(crate) x: Axis,
    pub(crate) y: Axis,
}

impl Axis {
    /// Creates an axis; it runs from 0 to 1 if the values are equal or not finite.
    pub(crate) fn new(from: f64, to: f64) -> Self {
        let fine = from.is_finite() && to.is_finite() && from != to;
        if fine { Self { from, to, step: None } } else { Self { from: 0.0, to: 1.0, step: None } }
    }

    /// Returns the axis with ticks at this distance.
    pub(crate) fn every(self, step: f64) -> Self {
        Self { step: Some(step), ..self }
    }

    fn part(self, value: f64) -> f64 {
        (value - self.from) / (self.to - self.from)
    }

    /// Returns round numbers along the axis, at most one for each `apart` pixels of `length`.
    fn ticks(self, length: f64, apart: f64) -> Vec<(f64, String)> {
        let (low, high) = (self.from.min(self.to), self.from.max(self.to));
        let raw = (high - low) / (length / apart).max(1.0);
        let power = 10f64.powf(raw.log10().floor());
        let round = [1.0, 2.0, 5.0, 10.0].into_iter().find(|r| r * power >= raw * 0.999);
        let step = self.step.unwrap_or(round.unwrap_or(10.0) * power);
        let decimals = (-(step * 1.001).log10().floor()).max(0.0) as usize;
        let first = (low / step - 1e-9).ceil() as i64;
        let last = (high / step + 1e-9).floor() as i64;
        (first..=last)
            .map(|i| {
                let value = i as f64 * step;
                (value, format!("{value:.decimals$}").replace('-', "−"))
            })
            .collect()
    }
}

impl Frame {
    /// Returns the pixel of a point.
    pub(crate) fn place(&self, x: f64, y: f64) -> (f64, f64) {
        let Rect { left, top, right, bottom } = self.rect;
        (left + (right - left) * self.x.part(x), bottom - (bottom - top) * self.y.part(y))
    }

    /// Draws the frame with its ticks, numbers and labels; call it after drawing the contents.
    pub(crate) fn axes(&self, pen: &Pen<'_>, x_labels: Labels<'_>, y_labels: Labels<'_>) {
        let Rect { left, top, right, bottom } = self.rect;
        let corners = [(left, top), (right, top), (right, bottom), (left, bottom), (left, top)];
        pen.line(&corners, INK, 1.5);
        self.x_axis(pen, x_labels);
        self.y_axis(pen, y_labels);
    }

    fn x_axis(&self, pen: &Pen<'_>, labels: Labels<'_>) {
        let Rect { left, right, bottom, .. } = self.rect;
        let numbers = Style::new(TICK_TEXT).anchor(Anchor::Middle);
        for (value, words) in self.x.ticks(right - left, 70.0) {
            let (x, _) = self.place(value, self.y.from);
            pen.line(&[(x, bottom), (x, bottom + 6.0)], INK, 1.5);
            if labels != Labels::None {
                pen.text(x, bottom + 20.0, &words, numbers);
            }
        }
        if let Labels::Full(words) = labels {
            let style = Style::new(LABEL_TEXT).anchor(Anchor::Middle);
            pen.text(0.5 * (left + right), bottom + 48.0, words, style);
        }
    }

    fn y_axis(&self, pen: &Pen<'_>, labels: Labels<'_>) {
        let Rect { left, top, bottom, .. } = self.rect;
        let numbers = Style::new(TICK_TEXT).anchor(Anchor::End);
        let mut widest = 44f32;
        for (value, words) in self.y.ticks(bottom - top, 55.0) {
            let (_, y) = self.place(self.x.from, value);
            pen.line(&[(left - 6.0, y), (left, y)], INK, 1.5);
            if labels != Labels::None {
                pen.text(left - 11.0, y, &words, numbers);
                widest = widest.max(super::text::length(&words, TICK_TEXT));
            }
        }
        if let Labels::Full(words) = labels {
            let style = Style::new(LABEL_TEXT).anchor(Anchor::Middle).upwards();
            let x = left - 11.0 - f64::from(widest) - 20.0;
            pen.text(x, 0.5 * (top + bottom), words, style);
        }
    }

    /// Draws faint lines at the ticks of the y axis; call it before drawing the contents.
    pub(crate) fn guides(&self, pen: &Pen<'_>) {
        let Rect { left, top, right, bottom } = self.rect;
        for (value, _) in self.y.ticks(bottom - top, 55.0) {
            let (_, y) = self.place(self.x.from, value);
            pen.line(&[(left, y), (right, y)], FAINT, 1.0);
        }
    }

    /// Draws a plane of `columns` values per row, first row at the top.
    pub(crate) fn plane(&self, pen: &Pen<'_>, plane: &[f32], columns: usize, scale: Scale) {
        let rows = plane.len() / columns.max(1);
        let cell = |part: f64, count: usize| ((part * count as f64) as usize).min(count - 1);
        let colour_of = |column: usize, row: usize| scale.colour(plane[row * columns + column]);
        pen.cells(self.rect, |part| cell(part, columns), |part| cell(part, rows), colour_of);
    }

    /// Draws a line through points, clipped at the frame.
    pub(crate) fn line(&self, pen: &Pen<'_>, points: &[(f64, f64)], colour: RGBColor, width: f64) {
        let Rect { left, top, right, bottom } = self.rect;
        let inside = |(x, y): (f64, f64)| (x.clamp(left, right), y.clamp(top, bottom));
        let points: Vec<_> = points.iter().map(|(x, y)| inside(self.place(*x, *y))).collect();
        pen.line(&points, colour, width);
    }

    /// Draws a thin line through noisy points, segment by segment: joined segments would have spikes at sharp angles.
    pub(crate) fn trace(&self, pen: &Pen<'_>, points: &[(f64, f64)], colour: RGBColor) {
        points.windows(2).for_each(|stroke| self.line(pen, stroke, colour, 1.5));
    }

    /// Draws a disc at a point.
    pub(crate) fn disc(&self, pen: &Pen<'_>, x: f64, y: f64, radius: f64, colour: RGBColor) {
        let (x, y) = self.place(x, y);
        pen.disc(x, y, radius, colour);
    }

    /// Draws a colour bar at the frame's right side.
    pub(crate) fn colour_bar(&self, pen: &Pen<'_>, scale: Scale, words: &str) {
        let y = Axis::new(scale.low.into(), scale.high.into());
        self.colour_bar_of(pen, y, words, colour::map);
    }

    /// Draws a colour bar of another colour map.
    pub(crate) fn colour_bar_of(
        &self,
        pen: &Pen<'_>,
        y: Axis,
        words: &str,
        colours: fn(f32) -> RGBColor,
    ) {
        let left = self.rect.right + 12.0;
        let rect = Rect { left, right: left + 14.0, ..self.rect };
        pen.gradient(rect, |part| colours(1.0 - part as f32));
        let bar = Frame { rect, x: Axis::new(0.0, 1.0), y };
        for (value, number) in bar.y.ticks(rect.bottom - rect.top, 70.0) {
            let (_, y) = bar.place(1.0, value);
            pen.line(&[(rect.right, y), (rect.right + 4.0, y)], INK, 1.0);
            pen.text(rect.right + 8.0, y, &number, Style::new(TICK_TEXT - 2.0));
        }
        let style = Style::new(TICK_TEXT - 2.0).colour(GREY).anchor(Anchor::Middle);
        pen.text(0.5 * (rect.left + rect.right), rect.top - 14.0, words, style);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_numbers_inside_the_axis() {
        let words = |from, to| -> Vec<String> {
            Axis::new(from, to).ticks(400.0, 90.0).into_iter().map(|t| t.1).collect()
        };
        assert_eq!(words(0.0, 10.0), ["0", "5", "10"]);
        assert_eq!(words(1130.0, 1470.0), ["1200", "1300", "1400"]);
        assert_eq!(words(0.02, -0.02), ["−0.02", "−0.01", "0.00", "0.01", "0.02"]);
    }

    #[test]
    fn an_empty_axis_still_has_a_length() {
        assert!(Axis::new(3.0, 3.0).ticks(100.0, 20.0).len() > 1);
        assert!(Axis::new(f64::NAN, 3.0).ticks(100.0, 20.0).len() > 1);
    }
}
