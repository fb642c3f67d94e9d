//! Schedule of the narrow sums: when they start again and when they are added to the wide ones.
//!
//! Invariant: integers are settled before they can overflow; floats after runs that are counted from the
//! last reset, however the stream was split.

use super::super::plan::MAX_INTEGER_TIMES;

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
    pub(super) settled: bool,
}

/// Times of a block that are processed together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    pub(super) first: usize,
    pub(super) times: usize,
    /// Whether the narrow sums start again with it.
    pub(super) fresh: bool,
    /// Whether the narrow sums are added to the wide ones after it.
    pub(super) settle: bool,
    /// Whether that overwrites the wide sums.
    pub(super) replace: bool,
}

impl Clock {
    pub(super) fn new(float: bool) -> Self {
        Self { float, pending: 0, settled: false }
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
        let settle =
            if self.float { self.pending == RUN } else { self.pending + MOST > MAX_INTEGER_TIMES };
        let replace = settle && !self.settled;
        if settle {
            (self.pending, self.settled) = (0, true);
        }
        Piece { first, times, fresh, settle, replace }
    }

    /// Advances over a block.
    pub(super) fn pass(&mut self, times: usize, most: usize) {
        let mut first = 0;
        while first < times {
            first += self.take(first, times - first, most).times;
        }
    }
}
