//! Partition of a search on a device (tiles, batches of windows, buffer sizes), and the buffers themselves.

use crate::backend::cuda::{Buffer, Device, Event, Pinned, Properties};
use crate::error::Result;
use crate::single_pulse::plan::Plan;

/// Starts per flag bit.
pub(super) const BLOCK: usize = 64;

/// Largest number of widths in a tile: 1 to 7, then four per octave up to 1792.
const TILE_WIDTHS: usize = 39;

/// Smallest width that may be left to the stored prefix sums: strides from there on are multiples of a warp.
const MIN_WIDE: usize = 512;

/// Samples in a batch of windows: of one trial, and of all trials. Integers use the larger, floats always the second,
/// because they store more per sample.
const BATCH: usize = 1 << 18;
const BATCH_POINTS: usize = 1 << 28;

/// Largest number of windows of a trial in a batch.
const MAX_WINDOWS: usize = 1 << 14;

/// Longest window whose noise one warp estimates. Longer ones use a thread block and separately launched passes.
const SHORT_WINDOW: usize = 8192;

/// Largest number of windows whose estimates one warp computes.
const MAX_GROUP: usize = 32;

/// Warps per multiprocessor in the noise estimate: six blocks of four.
const WARPS: usize = 24;

/// Flagged blocks evaluated per round.
const FLAGGED: usize = 1 << 15;
const MIN_FLAGGED: usize = 1 << 10;

/// Divisor of the free memory that one range's search may use.
const PART: usize = 4;

/// Type of the boxcar sums; the screen sums floats in single precision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sums {
    I32,
    I64,
    F64,
}

impl Sums {
    /// Returns the bytes of a sum in the screen.
    fn bytes(self) -> usize {
        if self == Self::I64 { 8 } else { 4 }
    }
}

/// Sizes that follow from a plan and a device.
#[derive(Clone, Debug)]
pub(super) struct Sizes {
    pub(super) dms: usize,
    pub(super) window: usize,
    pub(super) reach: usize,
    /// Largest number of windows in a batch.
    pub(super) windows: usize,
    pub(super) sums: Sums,
    /// Largest difference of two samples.
    pub(super) range: u64,
    /// Whether sums of squares exceed 64 bits or differences exceed 32 bits.
    pub(super) wide_squares: bool,
    /// Starts of a tile in one window, and the largest number of windows of a tile: 1 unless windows are short.
    pub(super) starts: usize,
    tile_windows: usize,
    /// Number of widths handled by tiles, and of all widths.
    pub(super) tile_widths: usize,
    pub(super) widths: usize,
    /// Samples between stored sums; stored sums per window, 0 if none.
    pub(super) grain: usize,
    pub(super) entries: usize,
    /// Flagged blocks that fit the buffers.
    pub(super) flagged: usize,
    pub(super) multiprocessors: usize,
}

/// Partition of a batch of windows into tiles.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tiling {
    /// Windows, starts and samples of a tile.
    pub(super) windows: usize,
    pub(super) starts: usize,
    pub(super) length: usize,
    /// Number of tiles of all trials.
    pub(super) tiles: usize,
}

impl Sizes {
    pub(super) fn new(plan: &Plan, properties: &Properties) -> Self {
        let (window, reach) = (plan.window_times(), plan.max_width());
        let widths = plan.widths().len();
        let (min, max) = plan.options().bound.unwrap_or((0, 0));
        let range = (max - min) as u64;
        let (sums, tile_widths) = sums(plan, range);
        let bytes = sums.bytes();
        let fits = |starts: &usize| shared_bytes(length(*starts), bytes) <= properties.shared_bytes;
        let most = [8192, 4096, 2048].into_iter().find(fits).unwrap_or(1024);
        let starts = most.min(window);
        let grain = match sums {
            Sums::F64 => 32,
            _ if tile_widths < widths => plan.stride(plan.widths()[tile_widths]),
            _ => 0,
        };
        let least = if sums == Sums::F64 { 0 } else { BATCH };
        let windows = least.max(BATCH_POINTS / plan.dms()) / window;
        let windows = windows.clamp(1, MAX_WINDOWS);
        let squares = u128::from(range).pow(2) * window as u128;
        Self {
            dms: plan.dms(),
            window,
            reach,
            windows,
            sums,
            range,
            wide_squares: squares > i64::MAX as u128 || range > i32::MAX as u64,
            starts,
            tile_windows: most / starts,
            tile_widths,
            widths,
            grain: grain.max(1),
            entries: plan.capacity().checked_div(grain).map_or(0, |entries| entries + 1),
            flagged: FLAGGED.min(plan.dms() * windows * window / BLOCK),
            multiprocessors: properties.multiprocessors,
        }
    }

    /// Shortens batches and reduces the number of flagged blocks per round until the buffers fit their share of free memory.
    /// Both cost time and change no event.
    pub(super) fn within(mut self, free: usize) -> Self {
        while bytes(&self) > free / PART {
            if self.flagged > MIN_FLAGGED {
                self.flagged = (self.flagged / 2).max(MIN_FLAGGED);
            } else if self.windows > 1 {
                self.windows /= 2;
            } else {
                break;
            }
            self.flagged = self.flagged.min(self.dms * self.windows * self.window / BLOCK);
        }
        self
    }

    /// Returns whether one warp estimates the noise of a window.
    pub(super) fn is_short(&self) -> bool {
        self.sums != Sums::F64 && !self.wide_squares && self.window <= SHORT_WINDOW
    }

    /// Returns the windows per warp of the noise estimate. Lanes evaluate the deviation series of all windows of a
    /// warp in parallel, as long as enough warps remain; multiprocessors get a whole number of waves.
    pub(super) fn group(&self, windows: usize) -> usize {
        let warps = WARPS * self.multiprocessors;
        let rounds = windows.div_ceil(warps * MAX_GROUP).max(1);
        windows.div_ceil(warps * rounds).max(1)
    }

    /// Tiles a batch of `windows` windows of each trial; tiles span several windows while enough tiles remain.
    pub(super) fn tiling(&self, windows: usize) -> Tiling {
        let mut count = self.tile_windows.min(windows.next_power_of_two());
        while count > 1 && self.dms * windows.div_ceil(count) < 4 * self.multiprocessors {
            count /= 2;
        }
        let starts = self.starts * count;
        let tiles = self.dms * windows.div_ceil(count) * self.tiles();
        Tiling { windows: count, starts, length: length(starts), tiles }
    }

    /// Returns the history samples of one trial.
    fn capacity(&self) -> usize {
        self.window + self.reach
    }

    /// Returns the samples between the histories of consecutive trials: whole sectors.
    pub(super) fn history_stride(&self) -> usize {
        self.capacity().next_multiple_of(32)
    }

    /// Returns the tiles of a window.
    pub(super) fn tiles(&self) -> usize {
        self.window / self.starts
    }

    /// Returns the words of flags of a window.
    pub(super) fn window_words(&self) -> usize {
        self.tiles() * self.starts.div_ceil(32 * BLOCK)
    }

    /// Returns the blocks per word of flags.
    pub(super) fn word_blocks(&self) -> usize {
        (self.window / BLOCK).min(32)
    }

    /// Returns the shared memory of a tile in bytes.
    pub(super) fn shared_bytes(&self) -> usize {
        shared_bytes(length(self.starts * self.tile_windows), self.sums.bytes())
    }

    /// Returns the largest number of events that a round can end: best hits start at least 5 samples apart, and each
    /// may contain another.
    pub(super) fn events(&self) -> usize {
        2 * (self.flagged * BLOCK.div_ceil(5) + self.flagged + self.dms)
    }
}

/// Returns the samples of a tile: its starts, and the reach of its widest boxcars.
fn length(starts: usize) -> usize {
    starts + starts.min(2048)
}

/// Returns the bytes of prefix sums and pyramid: 9/4 of a tile's samples, and gaps against bank conflicts.
fn shared_bytes(length: usize, bytes: usize) -> usize {
    (length * 9 / 4 + 32) * bytes
}

/// Returns the narrowest sufficient sum type, and the number of widths it suffices for. For runs of an octave from `4
/// B` on, sums of up to `8 B` samples are compared with thresholds of up to `7 B`.
fn sums(plan: &Plan, range: u64) -> (Sums, usize) {
    let widths = plan.widths();
    let most = widths.len().min(TILE_WIDTHS);
    if !plan.input_is_integer() {
        return (Sums::F64, most);
    }
    let narrow = |width: &&usize| {
        let octave = 1u64 << (**width).max(32).ilog2();
        4 * octave * range <= i32::MAX as u64
    };
    let held = widths[..most].iter().take_while(narrow).count();
    if held == most || widths[held] >= MIN_WIDE { (Sums::I32, held) } else { (Sums::I64, most) }
}

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
    pub(super) host_bests: Pinned<u64>,
    /// Saved open events, and the saved mean and deviation of the last window.
    pub(super) saved_bests: Buffer<u64>,
    pub(super) saved_noise: Buffer<f64>,
    /// Float windows whose blocks must all be evaluated, and whether a batch must be repeated one window after
    /// another.
    pub(super) loud: Buffer<u32>,
    pub(super) serial: Buffer<u32>,
    /// Header (event and flagged-block counts in one word, serial flag in the next), then the events.
    pub(super) events: Buffer<u64>,
    pub(super) found: Pinned<u64>,
    /// Completion of the copy of the header and the first events.
    pub(super) first_copied: Event,
    pub(super) host_ends: Pinned<u64>,
    /// Completion of the last copy of `host_ends`.
    pub(super) ends_copied: Event,
}

/// Returns the bytes of the buffers on the device.
pub(super) fn bytes(sizes: &Sizes) -> usize {
    let (dms, all) = (sizes.dms, sizes.dms * sizes.windows);
    let listed = if sizes.is_short() { 1 } else { all };
    let trial = 4 * sizes.history_stride() + 8 * (1 + 4 + 3 * SWEEP_WORDS) + 8;
    let window = 16 + 8 * sizes.entries + 4 * sizes.window_words();
    let block = 8 + 12 * BLOCK;
    let events = HEADER_WORDS + sizes.events() * EVENT_WORDS;
    let parts =
        [dms * trial, all * window, listed * (8 * ESTIMATE_WORDS + 12), sizes.flagged * block];
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
            blocks: device.buffer(sizes.flagged)?,
            snrs: device.buffer(sizes.flagged * BLOCK)?,
            widths: device.buffer(sizes.flagged * BLOCK)?,
            bests: [device.buffer(SWEEP_WORDS * dms)?, device.buffer(SWEEP_WORDS * dms)?],
            host_bests: device.pinned(SWEEP_WORDS * dms)?,
            saved_bests: device.buffer(SWEEP_WORDS * dms)?,
            saved_noise: device.buffer(2 * dms)?,
            loud: device.buffer(listed)?,
            serial: device.buffer(1)?,
            events: device.buffer(events)?,
            found: device.pinned(events)?,
            first_copied: device.event()?,
            host_ends: device.pinned(dms)?,
            ends_copied: device.event()?,
        })
    }
}
