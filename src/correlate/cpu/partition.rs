//! Division of a channel into bands of rows and pieces of time, and the layout of its sums.
//!
//! Invariant: bands share nothing, so that each can be worked by a thread of its own; integers are folded before they
//! can overflow, floats after runs that are counted from the last reset, however the stream was split.

use std::ops::Range;

use super::super::plan::{LANES, MAX_INTEGER_TIMES, Plan};
use super::tile::{BAND, ROWS, SUMS, WIDTH};

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

/// Samples summed in single precision.
pub(super) const RUN: usize = 256;

/// Most times in a piece.
pub(super) const MOST: usize = 512;

/// State of a stream since the last reset.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    float: bool,
    /// Samples in the narrow sums.
    pub(super) pending: usize,
    /// Whether the wide sums hold samples.
    pub(super) folded: bool,
}

/// Times of a block that are processed together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    pub(super) first: usize,
    pub(super) times: usize,
    /// Whether the narrow sums start again with it.
    pub(super) fresh: bool,
    /// Whether the narrow sums are added to the wide ones after it.
    pub(super) fold: bool,
    /// Whether that overwrites the wide sums.
    pub(super) replace: bool,
}

impl Clock {
    pub(super) fn new(float: bool) -> Self {
        Self { float, pending: 0, folded: false }
    }

    /// Returns the next piece, of at most `most` of the `left` times from `first` on. Pieces of integers begin at
    /// even times: only the last of a block has an odd length.
    #[inline(always)]
    pub(super) fn take(&mut self, first: usize, left: usize, most: usize) -> Piece {
        let mut times = left.min(most);
        if self.float {
            times = times.min(RUN - self.pending);
        }
        let fresh = self.pending == 0;
        self.pending += times;
        let fold =
            if self.float { self.pending == RUN } else { self.pending + MOST > MAX_INTEGER_TIMES };
        let replace = fold && !self.folded;
        if fold {
            (self.pending, self.folded) = (0, true);
        }
        Piece { first, times, fresh, fold, replace }
    }

    /// Advances over a block.
    pub(super) fn pass(&mut self, times: usize, most: usize) {
        let mut first = 0;
        while first < times {
            first += self.take(first, times - first, most).times;
        }
    }
}
