//! Division of a channel's sums into bands of rows, and their layout.
//!
//! Invariant: bands share nothing, so that each can be worked by a thread of its own.

use std::ops::Range;

use super::super::plan::{LANES, Plan};
use super::tile::{ROWS, SUMS, WIDTH};

/// Most panels of rows in a band: 64 rows, whose prepared samples fit the second-level cache.
pub(super) const BAND: usize = 4;

/// Sums of one row with a panel of columns: real ones, then imaginary ones.
pub(super) const ROW_SUMS: usize = SUMS / size_of::<f32>();

/// Band of panels of rows, with all columns up to the diagonal.
#[derive(Clone, Debug)]
pub(super) struct Band {
    /// Panels of rows.
    pub(super) panels: Range<usize>,
    pub(super) antennas: Range<usize>,
    /// Index of the first sum of each panel of rows.
    starts: Vec<usize>,
    /// Rows of each panel, rounded up to whole groups.
    rows: Vec<usize>,
    /// Sums of rows by columns.
    pub(super) products: usize,
}

impl Band {
    fn new(plan: &Plan, panels: Range<usize>) -> Self {
        let last = |panel: usize| plan.inputs().min((panel + 1) * LANES);
        let rows = |panel: usize| (last(panel) - panel * LANES).next_multiple_of(ROWS);
        let rows: Vec<usize> = panels.clone().map(rows).collect();
        let mut products = 0;
        let mut starts = Vec::new();
        for (panel, rows) in panels.clone().zip(&rows) {
            starts.push(products);
            products += (panel + 1) * rows * ROW_SUMS;
        }
        let antenna = |input: usize| input / plan.polarizations();
        let antennas = antenna(panels.start * LANES)..antenna(last(panels.end - 1));
        Self { panels, antennas, starts, rows, products }
    }

    /// Returns the number of sums. Those of the columns alone come after the products.
    pub(super) fn sums(&self) -> usize {
        self.products + self.panels.end * ROW_SUMS
    }

    /// Returns the rows of a panel, rounded up to whole groups.
    #[inline(always)]
    pub(super) fn rows(&self, panel: usize) -> usize {
        self.rows[panel - self.panels.start]
    }

    /// Returns the number of rows that are multiplied with a panel of columns.
    #[inline(always)]
    pub(super) fn rows_from(&self, column: usize) -> usize {
        (self.panels.start.max(column)..self.panels.end).map(|panel| self.rows(panel)).sum()
    }

    /// Returns the number of tiles in a piece.
    pub(super) fn tiles(&self) -> usize {
        let groups = (0..self.panels.end).step_by(WIDTH);
        groups.map(|column| self.rows_from(column) / ROWS).sum()
    }

    /// Returns the index of the first sum of a panel of rows with a panel of columns.
    #[inline(always)]
    pub(super) fn at(&self, panel: usize, column: usize) -> usize {
        self.starts[panel - self.panels.start] + column * self.rows(panel) * ROW_SUMS
    }

    /// Returns the index of the first sum of a panel of columns alone.
    #[inline(always)]
    pub(super) fn column(&self, column: usize) -> usize {
        self.products + column * ROW_SUMS
    }
}

/// Divides a channel into bands, the largest first; smaller ones if there are too few for the threads.
pub(super) fn bands(plan: &Plan, threads: usize) -> Vec<Band> {
    let enough = 4 * threads;
    let mut panels = BAND;
    while panels > 1 && threads > 1 && plan.panels().div_ceil(panels) * plan.channels() < enough {
        panels /= 2;
    }
    let starts = (0..plan.panels()).step_by(panels);
    let bands = starts.map(|start| Band::new(plan, start..plan.panels().min(start + panels)));
    let mut bands: Vec<Band> = bands.collect();
    bands.reverse();
    bands
}

/// Returns the panels of rows in each band but the last.
pub(super) fn panels(bands: &[Band]) -> usize {
    bands[bands.len() - 1].panels.len()
}
