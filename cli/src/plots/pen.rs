//! Drawing surface with twice the resolution of the written image, for smooth edges.

use std::cell::Cell;

use plotters::coord::Shift;
use plotters::drawing::{DrawingArea, IntoDrawingArea};
use plotters::element::{BitMapElement, Circle, PathElement, Polygon, Rectangle};
use plotters::prelude::BitMapBackend;
use plotters::style::{Color, RGBColor, ShapeStyle};
use sidereal::Result;

use super::png::Png;
use super::text;

/// Pixels drawn per pixel written, along each axis.
const FINE: u32 = 2;

/// Value of each colour of an empty image.
const WHITE: u8 = 255;

thread_local! {
    /// Memory of this thread's last image.
    static PAPER: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

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
    // Fresh memory of this size costs more time than a plot's lines.
    let mut paper = PAPER.take();
    paper.clear();
    paper.resize(fine.0 as usize * fine.1 as usize * 3, WHITE);
    draw(&Pen { area: BitMapBackend::with_buffer(&mut paper, fine).into_drawing_area() });
    let written = file.write(width, height, halved(&mut paper, width as usize));
    PAPER.set(paper);
    written
}

/// Averages squares of `FINE * FINE` pixels; returns rows of `width` pixels, in the first part of the memory.
fn halved(pixels: &mut [u8], width: usize) -> &[u8] {
    const STEP: usize = FINE as usize;
    let row_bytes = width * STEP * 3;
    let rows = pixels.len() / (row_bytes * STEP);
    let mut sums = vec![0u16; row_bytes];
    for row in 0..rows {
        sums.fill(0);
        for fine in pixels[row * STEP * row_bytes..].chunks_exact(row_bytes).take(STEP) {
            sums.iter_mut().zip(fine).for_each(|(sum, value)| *sum += u16::from(*value));
        }
        let own = &mut pixels[row * width * 3..][..width * 3];
        for (pixel, sums) in own.chunks_exact_mut(3).zip(sums.chunks_exact(3 * STEP)) {
            for (colour, value) in pixel.iter_mut().enumerate() {
                let sum: u16 = sums.iter().skip(colour).step_by(3).sum();
                *value = (sum / (FINE * FINE) as u16) as u8;
            }
        }
    }
    &pixels[..rows * width * 3]
}

fn fine(x: f64, y: f64) -> (i32, i32) {
    let scale = f64::from(FINE);
    ((x * scale).round() as i32, (y * scale).round() as i32)
}

/// Returns the drawn columns of a rectangle, each with its place from 0 to 1.
fn across(rect: Rect) -> impl Iterator<Item = (i32, f64)> {
    places(fine(rect.left, rect.top).0, fine(rect.right, rect.bottom).0)
}

/// Returns the drawn rows of a rectangle, each with its place from 0 to 1.
fn down(rect: Rect) -> impl Iterator<Item = (i32, f64)> {
    places(fine(rect.left, rect.top).1, fine(rect.right, rect.bottom).1)
}

fn places(first: i32, end: i32) -> impl Iterator<Item = (i32, f64)> {
    (first..end).map(move |at| (at, (f64::from(at - first) + 0.5) / f64::from(end - first)))
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

    /// Fills a rectangle with cells: `column_at` and `row_at` return the cell at a place, 0 to 1 from the left and from
    /// the top, and `colour_of` the colour of a column and a row.
    pub(crate) fn cells(
        &self,
        rect: Rect,
        column_at: impl Fn(f64) -> usize,
        row_at: impl Fn(f64) -> usize,
        colour_of: impl Fn(usize, usize) -> RGBColor,
    ) {
        let columns: Vec<usize> = across(rect).map(|(_, part)| column_at(part)).collect();
        let mut drawn = None;
        let mut pixels = Vec::with_capacity(3 * columns.len());
        for (y, part) in down(rect) {
            let row = row_at(part);
            if drawn.replace(row) != Some(row) {
                pixels.clear();
                for run in columns.chunk_by(|a, b| a == b) {
                    let RGBColor(red, green, blue) = colour_of(run[0], row);
                    run.iter().for_each(|_| pixels.extend([red, green, blue]));
                }
            }
            self.row(rect, y, &pixels);
        }
    }

    /// Fills a rectangle with colours that change from the top (0) to the bottom (1).
    pub(crate) fn gradient(&self, rect: Rect, colour_at: impl Fn(f64) -> RGBColor) {
        let width = across(rect).count();
        for (y, part) in down(rect) {
            let RGBColor(red, green, blue) = colour_at(part);
            self.row(rect, y, &[red, green, blue].repeat(width));
        }
    }

    /// Writes one row of drawn pixels from the left edge of a rectangle.
    fn row(&self, rect: Rect, y: i32, pixels: &[u8]) {
        let ((left, _), (width, height)) = (fine(rect.left, rect.top), self.area.dim_in_pixel());
        // The bitmap's own clipping takes the wrong part of a row.
        let hidden = left.min(0).unsigned_abs() as usize;
        let room = (i64::from(width) - i64::from(left.max(0))).max(0) as usize;
        let shown = (pixels.len() / 3).saturating_sub(hidden).min(room);
        if shown == 0 || !(0..height as i32).contains(&y) {
            return;
        }
        let (place, size) = ((left.max(0), y), (shown as u32, 1));
        let shown = &pixels[3 * hidden..][..3 * shown];
        let element: Option<BitMapElement<'_, (i32, i32)>> =
            BitMapElement::with_ref(place, size, shown);
        if let Some(element) = element {
            self.area.draw(&element).ok();
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
