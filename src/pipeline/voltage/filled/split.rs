//! Transfer of the row computation from the host to a device.

use super::super::rows::Rows;
use super::super::spectra::{Bank, Unread};
use super::{Filled, GapCursor};

/// State that computes rows from voltages, with its position in the recording.
pub(in crate::pipeline) struct Making<'a> {
    pub(in crate::pipeline::voltage) bank: Bank<'a>,
    pub(in crate::pipeline::voltage) cursor: &'a mut GapCursor,
    /// Rows that the host has recorded for levels.
    pub(in crate::pipeline::voltage) seen: Option<HostLevel<'a>>,
}

/// Rows for the next gap's level, recorded by the host.
pub(in crate::pipeline::voltage) struct HostLevel<'a> {
    /// Latest rows, row `k` at index `k` modulo their number.
    pub(in crate::pipeline::voltage) ring: &'a [f32],
    /// Rows recorded.
    pub(in crate::pipeline::voltage) rows: usize,
    /// Current fill level, and the end of the rows it was computed from.
    pub(in crate::pipeline::voltage) filling: Option<(u64, &'a [f32])>,
}

impl Filled {
    /// Whether a device can continue from here: not before or within a gap at the very start, whose level comes from
    /// the rows after it.
    pub(in crate::pipeline::voltage) fn can_split(&self) -> bool {
        self.ahead.is_empty() && !self.cursor.must_look_ahead()
    }

    /// Splits the rows into the unread voltages and the state that computes rows.
    pub(in crate::pipeline::voltage) fn split(&mut self) -> (Unread<'_>, Making<'_>) {
        let Self { rows, cursor, level, filling, .. } = self;
        let (unread, bank) = Rows::split(rows);
        let filling = filling.as_ref().map(|(end, values)| (*end, values.as_slice()));
        let seen = level.as_ref().map(|level| {
            let (ring, rows) = level.seen();
            HostLevel { ring, rows, filling }
        });
        (unread, Making { bank, cursor, seen })
    }

    /// Returns the rows per level, if there are gaps.
    pub(in crate::pipeline::voltage) fn level_rows(&self) -> Option<usize> {
        self.level.as_ref().map(super::Level::samples)
    }
}
