//! Templates found so far, and whether one of them matches a wave.

use std::collections::HashMap;

use super::overlap::{Frame, Shape};

/// How many times farther apart than in phases alone templates may lie and still match: where amplitudes or large
/// differences of phase matter, matches fall more slowly with distance.
const REACH: f64 = 2.5;

/// Templates in one frame, by coordinates.
#[derive(Clone, Debug)]
pub(super) struct Neighbors {
    shapes: Vec<Shape>,
    /// Templates by the cell that holds their first coordinate.
    cells: HashMap<i64, Vec<u32>>,
    /// Distance within which templates are near, and that beyond which none matches.
    near: f64,
    reach: f64,
}

impl Neighbors {
    /// No templates, for a least match.
    pub(super) fn new(min_match: f64) -> Self {
        let near = (2.0 * (1.0 - min_match)).sqrt();
        Self { shapes: Vec::new(), cells: HashMap::new(), near, reach: REACH * near }
    }

    /// Number of templates.
    pub(super) fn len(&self) -> usize {
        self.shapes.len()
    }

    /// Takes up a template.
    pub(super) fn push(&mut self, shape: Shape) {
        let cell = self.cell(&shape);
        self.cells.entry(cell).or_default().push(self.shapes.len() as u32);
        self.shapes.push(shape);
    }

    fn cell(&self, shape: &Shape) -> i64 {
        (shape.coordinates[0] / self.reach).floor() as i64
    }

    /// Whether a template from number `first` on has at least this match with a wave. The nearest are looked at first.
    pub(super) fn has(&self, frame: &Frame, shape: &Shape, least: f32, first: usize) -> bool {
        let cell = self.cell(shape);
        let ranges = [(0.0, self.near), (self.near, self.reach)].map(|(a, b)| a * a..b * b);
        ranges.iter().any(|range| {
            let cells = [cell, cell - 1, cell + 1];
            let mut near = cells.iter().filter_map(|cell| self.cells.get(cell)).flatten();
            near.any(|index| {
                let other = &self.shapes[*index as usize];
                *index as usize >= first
                    && range.contains(&distance_squared(shape, other))
                    && frame.overlap(shape, other) >= least
            })
        })
    }
}

fn distance_squared(one: &Shape, other: &Shape) -> f64 {
    let pairs = one.coordinates.iter().zip(&other.coordinates);
    pairs.map(|(a, b)| (a - b) * (a - b)).sum()
}
