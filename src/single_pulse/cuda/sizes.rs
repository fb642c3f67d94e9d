//! How a search is cut for a device: tiles, batches of windows, and the room that they need.

use crate::backend::cuda::Properties;
use crate::single_pulse::plan::Plan;

/// Starts that tell of themselves by one bit.
pub(super) const BLOCK: usize = 64;

/// Widths that a tile can hold: 1 to 7, then four an octave up to 1792.
const TILE_WIDTHS: usize = 39;

/// The narrowest of the widths that may be left to sums of many samples: their strides are whole warps.
const LEAST_WIDE: usize = 512;

/// Samples in a batch of windows: of a trial, and of all, of which a batch has the larger; the second of floats, of
/// which more is kept.
const BATCH: usize = 1 << 18;
const BATCH_POINTS: usize = 1 << 28;

/// The most windows of a trial in a batch.
const MOST_WINDOWS: usize = 1 << 14;

/// The longest windows whose noise one warp estimates: longer ones have a block of threads, and passes that are
/// launched one after another.
const SHORT_WINDOW: usize = 8192;

/// The most windows whose estimates one warp makes.
const MOST_GROUP: usize = 32;

/// Warps of a multiprocessor that estimate noise at a time: six blocks of four.
const WARPS: usize = 24;

/// Flagged blocks that are looked at closely at a time.
const ROOM: usize = 1 << 15;
const LEAST_ROOM: usize = 1 << 10;

/// The part of the free memory that one range's search may take.
const PART: usize = 4;

/// What sums are made of; those of floats are screened in single precision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sums {
    I32,
    I64,
    F64,
}

impl Sums {
    /// Bytes of a sum in the screen.
    fn bytes(self) -> usize {
        if self == Self::I64 { 8 } else { 4 }
    }
}

/// The sizes that follow from a plan and a device.
#[derive(Clone, Debug)]
pub(super) struct Sizes {
    pub(super) dms: usize,
    pub(super) window: usize,
    pub(super) reach: usize,
    /// Most windows in a batch.
    pub(super) windows: usize,
    pub(super) sums: Sums,
    /// Largest difference of two samples.
    pub(super) range: u64,
    /// Whether sums of squares or differences may pass 64 or 32 bits.
    pub(super) wide_squares: bool,
    /// Starts of a tile in one window, and the most windows that a tile takes: one, unless they are short.
    pub(super) starts: usize,
    tile_windows: usize,
    /// Widths that tiles hold, of all.
    pub(super) tile_widths: usize,
    pub(super) widths: usize,
    /// Samples from one kept sum to the next; kept sums of a window, 0 where none are.
    pub(super) grain: usize,
    pub(super) entries: usize,
    /// Flagged blocks that there is room for.
    pub(super) room: usize,
    pub(super) multiprocessors: usize,
}

/// How a batch of windows is cut into tiles.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tiling {
    /// Windows of a tile, its starts and its samples.
    pub(super) windows: usize,
    pub(super) starts: usize,
    pub(super) length: usize,
    /// Tiles of all trials.
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

    /// With batches so short, and room for so few flagged blocks at a time, that they leave room for the rest of the
    /// work; both cost time, and change no event.
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

    /// Whether one warp estimates the noise of a window.
    pub(super) fn is_short(&self) -> bool {
        self.sums != Sums::F64 && !self.wide_squares && self.window <= SHORT_WINDOW
    }

    /// Of so many windows, how many one warp takes: the series that corrects their deviations is then summed for all of
    /// them at once, as long as there are warps enough. Multiprocessors are filled a whole number of times.
    pub(super) fn group(&self, windows: usize) -> usize {
        let warps = WARPS * self.multiprocessors;
        let rounds = windows.div_ceil(warps * MOST_GROUP).max(1);
        windows.div_ceil(warps * rounds).max(1)
    }

    /// The tiles of a batch of `windows` windows of each trial: as long as there are tiles enough.
    pub(super) fn tiling(&self, windows: usize) -> Tiling {
        let mut count = self.tile_windows.min(windows.next_power_of_two());
        while count > 1 && self.dms * windows.div_ceil(count) < 4 * self.multiprocessors {
            count /= 2;
        }
        let starts = self.starts * count;
        let tiles = self.dms * windows.div_ceil(count) * self.tiles();
        Tiling { windows: count, starts, length: length(starts), tiles }
    }

    /// Samples of history of one trial.
    pub(super) fn capacity(&self) -> usize {
        self.window + self.reach
    }

    /// Samples from one trial's history to the next: whole sectors.
    pub(super) fn history_stride(&self) -> usize {
        self.capacity().next_multiple_of(32)
    }

    /// Tiles of a window.
    pub(super) fn tiles(&self) -> usize {
        self.window / self.starts
    }

    /// Words of flags of a window.
    pub(super) fn window_words(&self) -> usize {
        self.tiles() * self.starts.div_ceil(32 * BLOCK)
    }

    /// Blocks of a word of flags.
    pub(super) fn word_blocks(&self) -> usize {
        (self.window / BLOCK).min(32)
    }

    /// Shared memory of a tile.
    pub(super) fn shared_bytes(&self) -> usize {
        shared_bytes(length(self.starts * self.tile_windows), self.sums.bytes())
    }

    /// The most events that a round of flagged blocks can end: best hits begin at least 5 samples apart, and each may
    /// have another within it.
    pub(super) fn events(&self) -> usize {
        2 * (self.room * BLOCK.div_ceil(5) + self.room + self.dms)
    }
}

/// Samples of a tile: its starts, and what its widest boxcars reach beyond.
fn length(starts: usize) -> usize {
    starts + starts.min(2048)
}

/// Prefix sums and the levels above them: 9/4 of a tile's samples, and gaps that keep them on different banks.
fn shared_bytes(length: usize, bytes: usize) -> usize {
    (length * 9 / 4 + 32) * bytes
}

/// The narrowest sums that do, and the number of widths that they do for: of a run of boxcars in an octave that
/// begins with `4 B`, sums of up to `8 B` samples are compared with thresholds of up to `7 B`.
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
