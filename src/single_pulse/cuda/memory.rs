//! Device buffers of a search.

use super::sizes::Sizes;
use crate::backend::cuda::{Buffer, Device, Event, Pinned};
use crate::error::Result;

/// Largest number of passes over a window's samples for its noise, including the first over all samples.
pub(super) const ROUNDS: usize = 9;

/// 64-bit words of the header before the events, of an event, and of a hit.
pub(super) const HEADER_WORDS: usize = 2;
pub(super) const EVENT_WORDS: usize = 3;
pub(super) const HIT_WORDS: usize = 3;

/// 64-bit words of a trial's open event: its best hit, and one hit within it.
pub(super) const SWEEP_WORDS: usize = 2 * HIT_WORDS;

/// 64-bit words of a window's noise estimate.
const ESTIMATE_WORDS: usize = 8;

/// Buffers of a search, allocated when the search is bound.
#[derive(Debug)]
pub(super) struct Memory {
    /// Samples from the current window's start on, one row per trial.
    pub(super) history: Buffer<u32>,
    /// Valid samples of each trial.
    pub(super) ends: Buffer<u64>,
    /// Mean and deviation of each window, and those carried to the next batch.
    pub(super) own: Buffer<f64>,
    pub(super) carried: Buffer<f64>,
    pub(super) estimates: Buffer<u64>,
    /// Windows that need a pass (current and next list), and their number for each pass.
    pub(super) lists: [Buffer<u32>; 2],
    pub(super) active: Buffer<u32>,
    /// Prefix sums of each window at regular intervals.
    pub(super) totals: Buffer<u64>,
    /// One bit per block of starts.
    pub(super) flags: Buffer<u32>,
    /// Number of flagged blocks of each trial, and its prefix sum.
    pub(super) counts: Buffer<u32>,
    pub(super) offsets: Buffer<u32>,
    /// Trial and index of flagged blocks; significance and width of the best boxcar of each of their starts.
    pub(super) blocks: Buffer<u64>,
    pub(super) snrs: Buffer<f64>,
    pub(super) widths: Buffer<u32>,
    /// Open event of each trial, before and after a round.
    pub(super) bests: [Buffer<u64>; 2],
    pub(super) told_bests: Pinned<u64>,
    /// Float windows whose blocks must all be evaluated, and whether a batch must be repeated one window after
    /// another.
    pub(super) loud: Buffer<u32>,
    pub(super) spoilt: Buffer<u32>,
    /// Header (event and flagged-block counts in one word, spoilt flag in the next), then the events.
    pub(super) events: Buffer<u64>,
    pub(super) found: Pinned<u64>,
    pub(super) told_ends: Pinned<u64>,
    /// Completion of the last copy of `told_ends`.
    pub(super) told: Event,
}

/// Returns the bytes of the buffers on the device.
pub(super) fn bytes(sizes: &Sizes) -> usize {
    let (dms, all) = (sizes.dms, sizes.dms * sizes.windows);
    let listed = if sizes.is_short() { 1 } else { all };
    let trial = 4 * sizes.history_stride() + 8 * (1 + 2 + 2 * SWEEP_WORDS) + 8;
    let window = 16 + 8 * sizes.entries + 4 * sizes.window_words();
    let block = 8 + 12 * super::sizes::BLOCK;
    let events = HEADER_WORDS + sizes.events() * EVENT_WORDS;
    let parts = [dms * trial, all * window, listed * (8 * ESTIMATE_WORDS + 12), sizes.room * block];
    parts.into_iter().fold(8 * events, usize::saturating_add)
}

impl Memory {
    pub(super) fn new(device: &Device, sizes: &Sizes) -> Result<Self> {
        let (dms, all) = (sizes.dms, sizes.dms * sizes.windows);
        let listed = if sizes.is_short() { 1 } else { all };
        let events = HEADER_WORDS + sizes.events() * EVENT_WORDS;
        Ok(Self {
            history: device.buffer(dms * sizes.history_stride())?,
            ends: device.buffer(dms)?,
            own: device.buffer(2 * all)?,
            carried: device.buffer(2 * dms)?,
            estimates: device.buffer(ESTIMATE_WORDS * listed)?,
            lists: [device.buffer(listed)?, device.buffer(listed)?],
            active: device.buffer(ROUNDS + 1)?,
            totals: device.buffer(all * sizes.entries)?,
            flags: device.buffer(all * sizes.window_words())?,
            counts: device.buffer(dms)?,
            offsets: device.buffer(dms + 1)?,
            blocks: device.buffer(sizes.room)?,
            snrs: device.buffer(sizes.room * super::sizes::BLOCK)?,
            widths: device.buffer(sizes.room * super::sizes::BLOCK)?,
            bests: [device.buffer(SWEEP_WORDS * dms)?, device.buffer(SWEEP_WORDS * dms)?],
            told_bests: device.pinned(SWEEP_WORDS * dms)?,
            loud: device.buffer(listed)?,
            spoilt: device.buffer(1)?,
            events: device.buffer(events)?,
            found: device.pinned(events)?,
            told_ends: device.pinned(dms)?,
            told: device.event()?,
        })
    }
}
