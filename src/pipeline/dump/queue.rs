//! Dumps that the keeper fills with chunks, and the writer empties.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::request::{Report, State};
use super::ring::{Chunk, STEP};
use crate::io::voltages::{Sweep, VoltageHeader};

/// Longest wait of the writer for a change.
const WAIT: Duration = Duration::from_millis(100);

/// Dumps in work, shared by the keeper and the writer.
#[derive(Debug, Default)]
pub(super) struct Queue {
    state: Mutex<Dumping>,
    changed: Condvar,
}

/// Dumps in work, and whether there will be others.
#[derive(Debug, Default)]
pub(super) struct Dumping {
    pub(super) dumps: Vec<Dump>,
    /// Set when the stream has ended and every dump has all chunks that it will have.
    pub(super) is_over: bool,
}

/// Dump in work.
#[derive(Debug)]
pub(super) struct Dump {
    pub(super) number: u64,
    pub(super) names: Vec<String>,
    pub(super) priority: u8,
    pub(super) sweep: Sweep,
    /// Samples of each recorded channel, in whole bytes.
    pub(super) windows: Vec<Range<u64>>,
    /// Samples of any channel.
    pub(super) range: Range<u64>,
    /// Chunks to be written.
    pub(super) chunks: VecDeque<Arc<Chunk>>,
    /// Sample up to which the keeper has added the chunks that exist.
    pub(super) held: u64,
    /// Sample up to which the file is written, or the writer is about to write.
    pub(super) written: u64,
    /// Whether no chunk will be added.
    pub(super) is_closed: bool,
    /// Whether the writer has begun its file, and whether it ends it.
    pub(super) is_open: bool,
    pub(super) is_ending: bool,
    /// Bytes taken from the quota.
    pub(super) bytes: u64,
    /// Reason why it ends early.
    pub(super) reason: Option<String>,
    /// Time of the request.
    pub(super) asked: Instant,
}

impl Queue {
    /// Locks the queue.
    pub(super) fn lock(&self) -> MutexGuard<'_, Dumping> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the writer.
    pub(super) fn wake(&self) {
        self.changed.notify_all();
    }

    /// Waits for a change, for a limited time.
    pub(super) fn wait<'a>(&self, guard: MutexGuard<'a, Dumping>) -> MutexGuard<'a, Dumping> {
        let waited = self.changed.wait_timeout(guard, WAIT);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// Samples of a sweep.
pub(super) struct Extent {
    pub(super) windows: Vec<Range<u64>>,
    pub(super) range: Range<u64>,
}

impl Extent {
    /// Computes the samples of each channel, rounded outwards to whole bytes; `None` if they lie before the stream's first
    /// sample, or the times are not numbers.
    pub(super) fn new(sweep: &Sweep, header: &VoltageHeader) -> Option<Self> {
        let rate = 1.0 / header.tsamp_s;
        let step = STEP as f64;
        let rounded = |window: Range<f64>| {
            let (start, end) = (window.start * rate / step, window.end * rate / step);
            (start.is_finite() && end.is_finite() && end < 1e17).then(|| {
                let start = start.floor().max(0.0) as u64 * STEP as u64;
                start..(end.ceil().max(0.0) as u64 * STEP as u64).max(start)
            })
        };
        let windows: Option<Vec<_>> = sweep.windows_s(header)?.into_iter().map(rounded).collect();
        let windows = windows?;
        let start = windows.iter().map(|window| window.start).min()?;
        let end = windows.iter().map(|window| window.end).max()?;
        (start < end).then_some(Self { windows, range: start..end })
    }
}

impl Dump {
    /// Returns whether the windows of both overlap in every channel, and the samples written so far are those of the joined dump.
    pub(super) fn can_join(&self, other: &Extent, joined: &Extent) -> bool {
        let overlaps = |(own, other): (&Range<u64>, &Range<u64>)| {
            own.start <= other.end && other.start <= own.end
        };
        let is_kept = |(own, joined): (&Range<u64>, &Range<u64>)| {
            let written =
                |window: &Range<u64>| window.start.min(self.written)..window.end.min(self.written);
            own == joined || written(own) == written(joined)
        };
        self.windows.iter().zip(&other.windows).all(overlaps)
            && (!self.is_open
                || self.range.start == joined.range.start
                    && self.windows.iter().zip(&joined.windows).all(is_kept))
    }

    /// Adds the chunks of `history` that belong to the dump and were not added yet.
    pub(super) fn hold<'a>(&mut self, history: impl Iterator<Item = &'a Arc<Chunk>>) {
        for chunk in history {
            if self.is_closed || chunk.end() <= self.held.max(self.range.start) {
                continue;
            }
            if chunk.first < self.range.end {
                self.chunks.push_back(Arc::clone(chunk));
            }
            self.held = chunk.end();
            self.is_closed = self.held >= self.range.end;
        }
    }

    /// Adds the chunks of `history` that belong to a dump whose range has grown, before and after those that it holds.
    pub(super) fn hold_more<'a>(&mut self, history: impl Iterator<Item = &'a Arc<Chunk>>) {
        for chunk in history {
            let is_needed = chunk.end() > self.written && chunk.first < self.range.end;
            if is_needed && self.chunks.iter().all(|own| own.first != chunk.first) {
                self.chunks.push_back(Arc::clone(chunk));
            }
            self.held = self.held.max(chunk.end());
        }
        self.chunks.make_contiguous().sort_by_key(|chunk| chunk.first);
        self.is_closed = self.held >= self.range.end;
    }

    /// Returns the report on a state.
    pub(super) fn report(&self, state: State) -> Report {
        Report {
            number: self.number,
            names: self.names.clone(),
            state,
            priority: self.priority,
            sweep: self.sweep,
            first: self.range.start,
            samples: self.written.saturating_sub(self.range.start),
            path: None,
            lost: Vec::new(),
            delay_s: None,
            reason: self.reason.clone(),
        }
    }
}
