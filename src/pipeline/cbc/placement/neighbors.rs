//! Templates found so far, and the search for one that matches a waveform.

use std::collections::HashMap;

use super::overlap::{Frame, Shape};

/// Factor on the distance at which templates that differ in phase only still match. With different amplitudes or
/// large phase differences, the match falls more slowly with distance.
const REACH: f64 = 2.5;

/// Templates in one frame, indexed by coordinates.
#[derive(Clone, Debug)]
pub(super) struct Neighbors {
    shapes: Vec<Shape>,
    /// Templates by the cell of their first coordinate.
    cells: HashMap<i64, Vec<u32>>,
    /// Distance below which templates are tested first, and distance above which none matches.
    near: f64,
    reach: f64,
}

impl Neighbors {
    /// Creates an empty set for a minimal match.
    pub(super) fn new(min_match: f64) -> Self {
        let near = (2.0 * (1.0 - min_match)).sqrt();
        Self { shapes: Vec::new(), cells: HashMap::new(), near, reach: REACH * near }
    }

    /// Returns the number of templates.
    pub(super) fn len(&self) -> usize {
        self.shapes.len()
    }

    /// Adds a template.
    pub(super) fn push(&mut self, shape: Shape) {
        let cell = self.cell(&shape);
        self.cells.entry(cell).or_default().push(self.shapes.len() as u32);
        self.shapes.push(shape);
    }

    fn cell(&self, shape: &Shape) -> i64 {
        (shape.coordinates[0] / self.reach).floor() as i64
    }

    /// Whether a template numbered `first` or higher has at least the match `least` with a waveform. Tests near ones
    /// first.
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
