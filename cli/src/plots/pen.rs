//! Drawing surface with twice the resolution of the written image, for smooth edges.

use plotters::coord::Shift;
use plotters::drawing::{DrawingArea, IntoDrawingArea};
use plotters::element::{Circle, PathElement, Polygon, Rectangle};
use plotters::prelude::BitMapBackend;
use plotters::style::{Color, RGBColor, ShapeStyle, WHITE};
use sidereal::Result;

use super::png::Png;
use super::text;

/// Pixels drawn per pixel written, along each axis.
const FINE: u32 = 2;

/// Rectangle in image pixels; `top` is above `bottom` and so the smaller number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rect {
    pub(crate) left: f64,
    pub(crate) top: f64,
    pub(crate) right: f64,
    pub(crate) bottom: f64,
}

/// Size of an image in pixels.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    pub(crate) width: u32,
    pub(crate) height: u32,
}

/// Draws in image pixels; clips at the edges of the image.
pub(crate) struct Pen<'a> {
    area: DrawingArea<BitMapBackend<'a>, Shift>,
}

/// Draws an image of `size` pixels and writes it as a PNG file.
///
/// # Errors
/// [`sidereal::Error::Io`] when the file cannot be written.
pub(crate) fn picture(file: &Png<'_>, size: Size, draw: impl FnOnce(&Pen<'_>)) -> Result<()> {
    let Size { width, height } = size;
    let fine = (width * FINE, height * FINE);
    let mut buffer = vec![255u8; fine.0 as usize * fine.1 as usize * 3];
    {
        let area = BitMapBackend::with_buffer(&mut buffer, fine).into_drawing_area();
        // Drawing into memory cannot fail.
        area.fill(&WHITE).ok();
        draw(&Pen { area });
    }
    file.write(width, height, &halve(&buffer, width as usize))
}

/// Averages squares of `FINE * FINE` pixels; returns rows of `width` pixels.
fn halve(fine: &[u8], width: usize) -> Vec<u8> {
    let step = FINE as usize;
    let row_bytes = width * step * 3;
    let mut picture = Vec::with_capacity(fine.len() / (step * step));
    for rows in fine.chunks_exact(row_bytes * step) {
        for index in 0..width * 3 {
            let start = index / 3 * step * 3 + index % 3;
            let cells = (0..step * step).map(|k| start + k / step * row_bytes + k % step * 3);
            let sum: usize = cells.map(|place| usize::from(rows[place])).sum();
            picture.push((sum / (step * step)) as u8);
        }
    }
    picture
}

fn fine(x: f64, y: f64) -> (i32, i32) {
    let scale = f64::from(FINE);
    ((x * scale).round() as i32, (y * scale).round() as i32)
}

impl Pen<'_> {
    /// Draws a line through `points`, `width` pixels wide.
    pub(crate) fn line(&self, points: &[(f64, f64)], colour: RGBColor, width: f64) {
        let stroke = (width * f64::from(FINE)).round().max(1.0) as u32;
        let style = ShapeStyle::from(colour).stroke_width(stroke);
        let points: Vec<_> = points.iter().map(|(x, y)| fine(*x, *y)).collect();
        self.area.draw(&PathElement::new(points, style)).ok();
    }

    /// Fills a polygon.
    pub(crate) fn fill(&self, points: &[(f64, f64)], colour: RGBColor, opacity: f64) {
        let points: Vec<_> = points.iter().map(|(x, y)| fine(*x, *y)).collect();
        self.area.draw(&Polygon::new(points, colour.mix(opacity).filled())).ok();
    }

    /// Fills a rectangle.
    pub(crate) fn block(&self, rect: Rect, colour: RGBColor, opacity: f64) {
        let corners = [fine(rect.left, rect.top), fine(rect.right, rect.bottom)];
        self.area.draw(&Rectangle::new(corners, colour.mix(opacity).filled())).ok();
    }

    /// Draws a disc with a thin edge; `x` and `y` are its centre.
    pub(crate) fn disc(&self, x: f64, y: f64, radius: f64, colour: RGBColor) {
        let centre = fine(x, y);
        let radius = (radius * f64::from(FINE)).round().max(1.0) as i32;
        self.area.draw(&Circle::new(centre, radius, colour.filled())).ok();
        let edge = ShapeStyle::from(super::colour::INK.mix(0.6)).stroke_width(1);
        self.area.draw(&Circle::new(centre, radius, edge)).ok();
    }

    /// Fills a rectangle with `colour_at(x, y)`, where x and y run from 0 to 1 from the left and from the top.
    pub(crate) fn pixels(&self, rect: Rect, colour_at: impl Fn(f64, f64) -> RGBColor) {
        let ((left, top), (right, bottom)) =
            (fine(rect.left, rect.top), fine(rect.right, rect.bottom));
        for y in top..bottom {
            for x in left..right {
                let across = (f64::from(x - left) + 0.5) / f64::from(right - left);
                let down = (f64::from(y - top) + 0.5) / f64::from(bottom - top);
                self.area.draw_pixel((x, y), &colour_at(across, down)).ok();
            }
        }
    }

    /// Writes one line of text with its anchor at `x`, `y`.
    pub(crate) fn text(&self, x: f64, y: f64, words: &str, style: text::Style) {
        let scale = f64::from(FINE);
        let style = text::Style { size: style.size * scale as f32, ..style };
        text::draw(words, x * scale, y * scale, &style, |x, y, coverage| {
            let colour = style.colour.mix(f64::from(coverage));
            self.area.draw_pixel((x, y), &colour).ok();
        });
    }
}
