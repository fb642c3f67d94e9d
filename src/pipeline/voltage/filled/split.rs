//! Rows on their way from the host to a device: what a device goes on with.

use super::super::rows::Rows;
use super::super::spectra::{Bank, Unread};
use super::{Filled, Place};

/// What makes rows of voltages, and where in the recording it stands.
pub(in crate::pipeline) struct Making<'a> {
    pub(in crate::pipeline::voltage) bank: Bank<'a>,
    pub(in crate::pipeline::voltage) place: &'a mut Place,
    /// What the host has seen of the rows.
    pub(in crate::pipeline::voltage) seen: Option<HostLevel<'a>>,
}

/// The rows that the next gap's level is taken over, as the host has them.
pub(in crate::pipeline::voltage) struct HostLevel<'a> {
    /// The latest rows, row `k` in place `k` modulo their number.
    pub(in crate::pipeline::voltage) ring: &'a [f32],
    /// Rows that were seen.
    pub(in crate::pipeline::voltage) rows: usize,
    /// What fills gaps at present, and the end of the rows that it was taken over.
    pub(in crate::pipeline::voltage) filling: Option<(u64, &'a [f32])>,
}

impl Filled {
    /// Whether a device can go on from here: not before or within a gap at the very start, whose level lies
    /// behind it.
    pub(in crate::pipeline::voltage) fn can_split(&self) -> bool {
        self.ahead.is_empty() && !self.place.must_look_ahead()
    }

    /// What is not read, and what makes rows of what is.
    pub(in crate::pipeline::voltage) fn split(&mut self) -> (Unread<'_>, Making<'_>) {
        let Self { rows, place, level, filling, .. } = self;
        let (unread, bank) = Rows::split(rows);
        let filling = filling.as_ref().map(|(end, values)| (*end, values.as_slice()));
        let seen = level.as_ref().map(|level| {
            let (ring, rows) = level.seen();
            HostLevel { ring, rows, filling }
        });
        (unread, Making { bank, place, seen })
    }

    /// Rows that a level is taken over, where there are gaps.
    pub(in crate::pipeline::voltage) fn level_rows(&self) -> Option<usize> {
        self.level.as_ref().map(super::Level::samples)
    }
}
