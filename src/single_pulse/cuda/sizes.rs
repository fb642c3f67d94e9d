//! Partition of a search on a device: tiles, batches of windows, and buffer sizes.

use crate::backend::cuda::Properties;
use crate::single_pulse::plan::Plan;

/// Starts per flag bit.
pub(super) const BLOCK: usize = 64;

/// Largest number of widths in a tile: 1 to 7, then four per octave up to 1792.
const TILE_WIDTHS: usize = 39;

/// Smallest width that may be left to the stored prefix sums: strides from there on are multiples of a warp.
const LEAST_WIDE: usize = 512;

/// Samples in a batch of windows: of one trial, and of all trials. Integers use the larger, floats always the second,
/// because they store more per sample.
const BATCH: usize = 1 << 18;
const BATCH_POINTS: usize = 1 << 28;

/// Largest number of windows of a trial in a batch.
const MOST_WINDOWS: usize = 1 << 14;

/// Longest window whose noise one warp estimates. Longer ones use a thread block and separately launched passes.
const SHORT_WINDOW: usize = 8192;

/// Largest number of windows whose estimates one warp computes.
const MOST_GROUP: usize = 32;

/// Warps per multiprocessor in the noise estimate: six blocks of four.
const WARPS: usize = 24;

/// Flagged blocks evaluated per round.
const ROOM: usize = 1 << 15;
const LEAST_ROOM: usize = 1 << 10;

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
    pub(super) room: usize,
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
        let windows = windows.clamp(1, MOST_WINDOWS);
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
            room: ROOM.min(plan.dms() * windows * window / BLOCK),
            multiprocessors: properties.multiprocessors,
        }
    }

    /// Shortens batches and reduces the room for flagged blocks until the buffers fit their share of free memory.
    /// Both cost time and change no event.
    pub(super) fn within(mut self, free: usize) -> Self {
        while super::memory::bytes(&self) > free / PART {
            if self.room > LEAST_ROOM {
                self.room = (self.room / 2).max(LEAST_ROOM);
            } else if self.windows > 1 {
                self.windows /= 2;
            } else {
                break;
            }
            self.room = self.room.min(self.dms * self.windows * self.window / BLOCK);
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
        let rounds = windows.div_ceil(warps * MOST_GROUP).max(1);
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
    pub(super) fn capacity(&self) -> usize {
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
        2 * (self.room * BLOCK.div_ceil(5) + self.room + self.dms)
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
    if held == most || widths[held] >= LEAST_WIDE { (Sums::I32, held) } else { (Sums::I64, most) }
}
