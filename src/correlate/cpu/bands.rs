//! Division of a channel into bands of rows and pieces of time, the layout of its sums, and the spectra of one panel.
//!
//! Invariant: bands share no sums, so that each can have its own thread. Narrow integer sums are folded into wide sums
//! before they can overflow, narrow float sums after runs counted from the last reset, for any split of the stream.

use std::ops::Range;

use super::super::block::Block;
use super::super::plan::{LANES, MAX_INTEGER_TIMES, Plan};
use super::tile::{BAND, ROWS, SUMS, WIDTH};
use crate::voltage::VoltageEncoding;

/// Number of sums of one row with a panel of columns: real sums, then imaginary sums.
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
    /// Number of sums of rows with columns.
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

    /// Returns the number of sums. The column sums come after the products.
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

    /// Returns the index of the first column sum of a panel of columns.
    #[inline(always)]
    pub(super) fn column(&self, column: usize) -> usize {
        self.products + column * ROW_SUMS
    }
}

/// Divides a channel into bands, the largest (last rows) first. Bands are smaller if the threads need more of them.
pub(super) fn divide(plan: &Plan, threads: usize) -> Vec<Band> {
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

/// Samples per run: the samples summed in single precision before a fold.
const RUN: usize = 256;

/// Maximum number of times in a piece.
pub(super) const MAX_PIECE_TIMES: usize = 512;

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
    /// Whether the narrow sums start from zero with this piece.
    pub(super) fresh: bool,
    /// Whether the narrow sums are added to the wide sums after this piece.
    pub(super) fold: bool,
    /// Whether this addition overwrites the wide sums.
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
        let fold = if self.float {
            self.pending == RUN
        } else {
            self.pending + MAX_PIECE_TIMES > MAX_INTEGER_TIMES
        };
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

/// Channel of a block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Channel<'a> {
    pub(super) plan: &'a Plan,
    pub(super) block: Block<'a>,
    pub(super) channel: usize,
}

impl<'a> Channel<'a> {
    /// Returns a panel's packed bytes of `times` times from the even time `first` on.
    #[inline(always)]
    pub(super) fn packed(&self, panel: usize, first: usize, times: usize) -> &'a [u8] {
        let size = self.plan.panel_bytes(self.block.times());
        let bytes = &self.block.bytes()[(self.channel * self.plan.panels() + panel) * size..];
        &bytes[self.plan.panel_bytes(first)..][..self.plan.panel_bytes(times)]
    }

    /// Returns a panel's antennas.
    #[inline(always)]
    fn antennas(&self, panel: usize) -> std::ops::Range<usize> {
        let antennas = LANES / self.plan.polarizations();
        panel * antennas..self.plan.antennas().min((panel + 1) * antennas)
    }

    /// Returns a panel's spectra of a piece: the packed bytes, or a modified copy in the buffer.
    #[inline(always)]
    pub(super) fn spectra<'b>(&self, panel: usize, piece: Piece, buffer: &'b mut [u8]) -> &'b [u8]
    where
        'a: 'b,
    {
        let packed = self.packed(panel, piece.first, piece.times);
        let encoding = self.plan.encoding();
        let float = encoding == VoltageEncoding::ComplexF32;
        let odd = !float && piece.times % 2 == 1;
        let valid = self.antennas(panel).all(|antenna| {
            let mask = self.block.mask(self.plan, self.channel, antenna);
            mask.is_none_or(|mask| invalid(mask, piece).all(|(_, bits)| bits == 0))
        });
        if encoding == VoltageEncoding::Complex4 {
            unpack_nibbles(packed, buffer);
        } else if valid && !odd {
            return packed;
        } else {
            buffer[..packed.len()].copy_from_slice(packed);
        }
        let size = packed.len() * if encoding == VoltageEncoding::Complex4 { 2 } else { 1 };
        let buffer = &mut buffer[..size];
        if odd {
            let last = size - 4 * LANES;
            buffer[last..].chunks_exact_mut(4).for_each(|pair| pair[2..].fill(0));
        }
        if !valid {
            self.clear(panel, piece, buffer);
        }
        buffer
    }

    /// Sets invalid samples of a panel's antennas to zero.
    fn clear(&self, panel: usize, piece: Piece, buffer: &mut [u8]) {
        let polarizations = self.plan.polarizations();
        let float = self.plan.encoding() == VoltageEncoding::ComplexF32;
        let first = self.antennas(panel).start;
        for antenna in self.antennas(panel) {
            let Some(mask) = self.block.mask(self.plan, self.channel, antenna) else { continue };
            let lanes = (antenna - first) * polarizations..(antenna - first + 1) * polarizations;
            for (start, mut bits) in invalid(mask, piece) {
                while bits != 0 {
                    let time = start + bits.trailing_zeros() as usize;
                    bits &= bits - 1;
                    for lane in lanes.clone() {
                        if float {
                            let at = (time * 2 * LANES + lane) * 4;
                            buffer[at..at + 4].fill(0);
                            buffer[at + 4 * LANES..][..4].fill(0);
                        } else {
                            let at = (time / 2 * LANES + lane) * 4 + time % 2 * 2;
                            buffer[at..at + 2].fill(0);
                        }
                    }
                }
            }
        }
    }
}

/// Yields the piece's invalid times in groups of 64: index of the first time in the piece, and one bit per time.
#[inline(always)]
fn invalid(mask: &[u64], piece: Piece) -> impl Iterator<Item = (usize, u64)> {
    (0..piece.times).step_by(64).map(move |start| {
        let (word, shift) = ((piece.first + start) / 64, (piece.first + start) % 64);
        let mut bits = mask[word] >> shift;
        if shift > 0 && word + 1 < mask.len() {
            bits |= mask[word + 1] << (64 - shift);
        }
        let left = (piece.times - start).min(64);
        (start, !bits & (u64::MAX >> (64 - left)))
    })
}

/// Unpacks nibbles to bytes: (real, imaginary), sign-extended.
#[inline(always)]
fn unpack_nibbles(packed: &[u8], buffer: &mut [u8]) {
    for (from, to) in packed.iter().zip(buffer.chunks_exact_mut(2)) {
        // The shift left puts the nibble's sign at the top of the byte; the arithmetic shift right extends it.
        let high = |byte: u8| ((byte as i8) >> 4) as u8;
        (to[0], to[1]) = (high(*from), high(*from << 4));
    }
}
