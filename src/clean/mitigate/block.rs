//! Blocks of rows between their analysis and their treatment, and what both need to know of the rows.
//!
//! Invariant: a block's levels are those of its own time, whatever blocks are analyzed meanwhile.

use std::sync::Arc;

use super::broadband::Series;
use super::profile::{Levels, Terms};
use super::steps::Steps;
use crate::backend::simd::Level;
use crate::backend::threads::Threads;
use crate::error::Result;
use crate::sample::{Encoding, Samples};

/// Rows per thread task.
pub(super) const ROWS: usize = 64;

/// Form of the rows, steps applied to them, and threads.
#[derive(Debug)]
pub(super) struct Settings {
    pub(super) channels: usize,
    pub(super) encoding: Encoding,
    pub(super) steps: Steps,
    pub(super) block_rows: usize,
    /// Channels excluded throughout.
    pub(super) masked: Vec<bool>,
    pub(super) vectors: Level,
    pub(super) threads: Threads,
}

impl Settings {
    pub(super) fn row_bytes(&self) -> usize {
        self.channels * self.encoding.bits() / 8
    }

    pub(super) fn samples<'a>(&self, bytes: &'a [u8]) -> Result<Samples<'a>> {
        let times = bytes.len() / self.row_bytes().max(1);
        Samples::new(bytes, self.encoding, times, self.channels)
    }
}

/// Block and the interference found in it.
#[derive(Debug)]
pub(super) struct Block {
    pub(super) bytes: Vec<u8>,
    pub(super) rows: usize,
    /// Outlier channels of the block, and of each of its parts.
    pub(super) marked: Vec<bool>,
    pub(super) parts: Vec<Vec<bool>>,
    /// Levels without the block, and with it.
    pub(super) past: Arc<Levels>,
    pub(super) levels: Arc<Levels>,
    pub(super) terms: Option<Terms>,
    pub(super) series: Option<Series>,
}
