//! Correlation of one band of one channel: columns in groups of panels, times in pieces, rows in groups.
//!
//! Invariant: a group of column panels stays in the first-level cache while the band multiplies it with all its rows;
//! the band's prepared rows stay in the second-level cache.
#![allow(unsafe_code)]

use std::ops::Range;

use super::super::plan::LANES;
use super::bands::{Band, Channel, Clock, MAX_PIECE_TIMES, Piece, ROW_SUMS};
use super::sums::{Aligned, Sums, fold};
use super::tile::{
    self, Arithmetic, BAND, Floats, Integers, Kind, Prefetch, ROW, ROWS, SUMS, Stream, Tile, WIDTH,
    add,
};
#[cfg(target_arch = "x86_64")]
use super::x86;
use crate::backend::simd::Level;
use crate::error::Result;

/// Bytes of a panel of columns in a piece: three of them stay in the nearest caches while all rows of a band are
/// multiplied with them.
const PANEL: usize = 16 * 1024;

/// Steps of prepared rows that the scratch memory holds.
const STEPS: usize = 512;

/// Bytes of a group of prepared rows.
const GROUP: usize = STEPS * ROWS * ROW;

/// Scratch memory of a thread.
#[derive(Debug)]
pub(super) struct Scratch {
    /// Prepared rows, axes group of rows, step, row.
    rows: Aligned,
    /// Modified copies of the spectra of a group of panels.
    spectra: Aligned,
    /// Converted columns.
    columns: Aligned,
    /// Row of ones, whose products are the column sums: re + im, and im.
    ones: Aligned,
}

impl Scratch {
    pub(super) fn new() -> Result<Self> {
        let new = |length| Aligned::new("a thread's samples", length);
        let mut ones = new(MAX_PIECE_TIMES * ROW)?;
        ones.values_mut().as_chunks_mut().0.fill([1u8, 1, 1, 1, 0, 1, 0, 1]);
        Ok(Self {
            rows: new(BAND * LANES / ROWS * GROUP)?,
            spectra: new(WIDTH * PANEL)?,
            columns: new(WIDTH * PANEL)?,
            ones,
        })
    }
}

/// Unit of work: one band of one channel of a block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Work<'a> {
    pub(super) channel: Channel<'a>,
    pub(super) band: &'a Band,
    pub(super) clock: Clock,
    /// Channel and band that probably come next, for prefetches.
    pub(super) next: Option<(Channel<'a>, &'a Band)>,
}

/// Kernel for the samples of a plan at a vector level.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kernel {
    /// Maximum number of times in a piece.
    pub(super) times: usize,
    /// Form of the narrow sums.
    pub(super) kind: Kind,
    /// Adds a block. The level's instructions must exist, and the sums must be the band's.
    pub(super) run: unsafe fn(Work<'_>, &mut Sums, &mut Scratch),
}

impl Kernel {
    /// Returns the fastest kernel of a vector level.
    pub(super) fn new(level: Level, float: bool) -> Self {
        match (level, float) {
            #[cfg(target_arch = "x86_64")]
            (Level::Avx512(_), true) => Self::of::<x86::Floats512>(floats_512),
            #[cfg(target_arch = "x86_64")]
            (Level::Avx512(found), false) if found.vnni() => Self::of::<x86::Bytes512>(bytes_512),
            #[cfg(target_arch = "x86_64")]
            (Level::Avx512(_), false) => Self::of::<x86::Shorts512>(shorts_512),
            #[cfg(target_arch = "x86_64")]
            (Level::Avx2(_), true) => Self::of::<x86::Floats256>(floats_256),
            #[cfg(target_arch = "x86_64")]
            (Level::Avx2(_), false) => Self::of::<x86::Shorts256>(shorts_256),
            (_, true) => Self::of::<Floats>(run::<Floats>),
            (_, false) => Self::of::<Integers>(run::<Integers>),
        }
    }

    fn of<A: Arithmetic>(run: unsafe fn(Work<'_>, &mut Sums, &mut Scratch)) -> Self {
        Self { times: times::<A>(), kind: A::KIND, run }
    }
}

macro_rules! wrapped {
    ($($name:ident, $arithmetic:ident, $features:literal;)*) => { $(
        /// # Safety
        /// As for [`Kernel`].
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = $features)]
        unsafe fn $name(work: Work<'_>, sums: &mut Sums, scratch: &mut Scratch) {
            // SAFETY: the caller upholds this function's contract.
            unsafe { run::<x86::$arithmetic>(work, sums, scratch) }
        }
    )* };
}

wrapped! {
    shorts_256, Shorts256, "avx2,fma";
    floats_256, Floats256, "avx2,fma";
    shorts_512, Shorts512, "avx512f,avx512bw,avx512vl,avx512dq";
    bytes_512, Bytes512, "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni";
    floats_512, Floats512, "avx512f,avx512bw,avx512vl,avx512dq";
}

/// Returns the times whose columns fill [`PANEL`] bytes.
#[inline(always)]
const fn times<A: Arithmetic>() -> usize {
    PANEL / A::COLUMN * A::TIMES
}

/// Returns the number of prefetch steps in a tile of `steps` steps.
#[inline(always)]
fn prefetch_steps(steps: usize) -> usize {
    steps.div_ceil(tile::STEPS)
}

/// Adds a block, in spans whose prepared rows fit the scratch memory.
///
/// # Safety
/// As for [`Kernel`].
#[inline(always)]
unsafe fn run<A: Arithmetic>(work: Work<'_>, sums: &mut Sums, scratch: &mut Scratch) {
    // Integers are folded between pieces. A span must hold whole pieces, so that they match the clock of the stream.
    const {
        assert!(times::<A>() <= MAX_PIECE_TIMES);
        assert!(matches!(A::KIND, Kind::Float) || (STEPS * A::TIMES).is_multiple_of(times::<A>()));
    }
    let mut clock = work.clock;
    let all = work.channel.block.times();
    let length = STEPS * A::TIMES;
    for first in (0..all).step_by(length) {
        let times = length.min(all - first);
        let next = match all - first - times {
            0 => work.next.map(|(channel, band)| (channel, band, 0, length.min(all))),
            left => Some((work.channel, work.band, first + times, length.min(left))),
        };
        let rows = next.map(|(channel, band, first, times)| {
            let panels = band.panels.clone().map(|panel| channel.packed(panel, first, times));
            Stream::new(panels, work.band.tiles() * prefetch_steps(times.div_ceil(A::TIMES)))
        });
        let span = Span { first, times, clock };
        let mut prefetch = Prefetch { rows: rows.unwrap_or_default(), ..Prefetch::default() };
        // SAFETY: the caller upholds this function's contract.
        unsafe {
            prepare::<A>(work, span, scratch);
            multiply::<A>(work, span, &mut prefetch, sums, scratch);
        }
        clock.pass(times, self::times::<A>());
    }
}

/// Range of times whose prepared rows fit the scratch memory.
#[derive(Clone, Copy, Debug)]
struct Span {
    first: usize,
    times: usize,
    clock: Clock,
}

impl Span {
    /// Yields the pieces of the span.
    #[inline(always)]
    fn pieces<A: Arithmetic>(self) -> impl Iterator<Item = Piece> {
        let Self { first, times, mut clock } = self;
        let mut done = 0;
        std::iter::from_fn(move || {
            let piece = (done < times)
                .then(|| clock.take(first + done, times - done, self::times::<A>()))?;
            done += piece.times;
            Some(piece)
        })
    }

    /// Returns the first step of a piece and its number of steps.
    #[inline(always)]
    fn steps<A: Arithmetic>(self, piece: Piece) -> (usize, usize) {
        ((piece.first - self.first) / A::TIMES, piece.times.div_ceil(A::TIMES))
    }
}

/// Prepares the band's rows.
///
/// # Safety
/// As for [`Kernel`].
#[inline(always)]
unsafe fn prepare<A: Arithmetic>(work: Work<'_>, span: Span, scratch: &mut Scratch) {
    for piece in span.pieces::<A>() {
        let (at, steps) = span.steps::<A>(piece);
        for (index, panel) in work.band.panels.clone().enumerate() {
            let spectra = work.channel.spectra(panel, piece, scratch.spectra.values_mut());
            let groups = index * LANES / ROWS;
            let rows = &mut scratch.rows.values_mut::<u8>()[groups * GROUP + at * ROWS * ROW..];
            // SAFETY: the buffers hold the steps of each group of a band's rows, and the columns.
            unsafe {
                let buffer = scratch.columns.values_mut::<u8>().as_mut_ptr();
                let columns = A::columns(spectra.as_ptr(), steps, buffer);
                A::rows(columns, steps, rows.as_mut_ptr(), GROUP);
            }
        }
    }
}

/// Adds all products of prepared rows.
///
/// # Safety
/// As for [`Kernel`].
#[inline(always)]
unsafe fn multiply<A: Arithmetic>(
    work: Work<'_>,
    span: Span,
    prefetch: &mut Prefetch,
    sums: &mut Sums,
    scratch: &mut Scratch,
) {
    let band = work.band;
    let groups = (0..band.panels.end).step_by(WIDTH);
    let groups = groups.map(|start| start..band.panels.end.min(start + WIDTH));
    let mut turns = groups.flat_map(|group| span.pieces::<A>().map(move |p| (group.clone(), p)));
    let mut turn = turns.next();
    while let Some((panels, piece)) = turn {
        turn = turns.next();
        let (_, steps) = span.steps::<A>(piece);
        let columns = turn.as_ref().map(|(panels, piece)| {
            let packed = |panel| work.channel.packed(panel, piece.first, piece.times);
            let tiles = band.rows_from(panels.start) / ROWS;
            Stream::new(panels.clone().map(packed), tiles * prefetch_steps(steps))
        });
        prefetch.columns = columns.unwrap_or_default();
        // SAFETY: the caller upholds this function's contract, and the rows are prepared.
        unsafe { multiply_panels::<A>(work, span, panels, piece, prefetch, sums, scratch) };
    }
}

/// Multiplies all rows of the band with some panels of columns.
///
/// # Safety
/// As for [`Kernel`]; the piece's rows are prepared.
#[inline(always)]
unsafe fn multiply_panels<A: Arithmetic>(
    work: Work<'_>,
    span: Span,
    panels: Range<usize>,
    piece: Piece,
    prefetch: &mut Prefetch,
    sums: &mut Sums,
    scratch: &mut Scratch,
) {
    let band = work.band;
    let (narrow, wide) = (sums.narrow.pointer(), sums.wide.pointer());
    let (start, width) = (panels.start, panels.len());
    let (at, steps) = span.steps::<A>(piece);
    let mut columns = [std::ptr::null(); WIDTH];
    let spectra = scratch.spectra.values_mut::<u8>().chunks_exact_mut(PANEL);
    let buffers = scratch.columns.values_mut::<u8>().chunks_exact_mut(PANEL);
    for (c, (spectra, buffer)) in spectra.zip(buffers).enumerate().take(width) {
        let spectra = work.channel.spectra(start + c, piece, spectra);
        // SAFETY: a buffer holds a piece.
        columns[c] = unsafe { A::columns(spectra.as_ptr(), steps, buffer.as_mut_ptr()) };
    }
    let mut tile = Tile {
        rows: scratch.ones.values::<u8>().as_ptr(),
        columns,
        sums: [std::ptr::null_mut(); WIDTH],
        steps,
        fresh: piece.fresh,
        wide: [std::ptr::null(); WIDTH],
    };
    // SAFETY: rows, columns and sums of the band exist for all steps.
    unsafe {
        if A::KIND == Kind::Offset {
            for c in 0..width {
                tile.sums[c] = narrow.add(band.column(start + c) * 4);
            }
            tiles::<A, 1>(tile, width, prefetch);
        }
        for panel in band.panels.start.max(start)..band.panels.end {
            let width = width.min(panel + 1 - start);
            let groups = (panel - band.panels.start) * LANES / ROWS;
            for group in 0..band.rows(panel) / ROWS {
                let place = (groups + group) * GROUP + at * ROWS * ROW;
                tile.rows = scratch.rows.values::<u8>().as_ptr().add(place);
                let at = |c| band.at(panel, start + c) + group * ROWS * ROW_SUMS;
                for c in 0..width {
                    tile.sums[c] = narrow.add(at(c) * 4);
                    if piece.fold {
                        tile.wide[c] = wide.add(at(c) * 8);
                    }
                }
                tiles::<A, ROWS>(tile, width, prefetch);
                for c in 0..if piece.fold { width } else { 0 } {
                    fold(A::KIND, sums, at(c), band.column(start + c), piece.replace);
                }
            }
        }
    }
}

/// Multiplies rows with some panels of columns.
///
/// # Safety
/// As for [`add`].
#[inline(always)]
unsafe fn tiles<A: Arithmetic, const R: usize>(tile: Tile, width: usize, prefetch: &mut Prefetch) {
    // SAFETY: the caller upholds this function's contract; the lanes of a panel are contiguous.
    unsafe {
        if A::LANES == LANES {
            match width {
                1 => add::<A, R, 1>(&tile, prefetch),
                2 => add::<A, R, 2>(&tile, prefetch),
                _ => add::<A, R, 3>(&tile, prefetch),
            }
            return;
        }
        for c in 0..width {
            for part in 0..LANES / A::LANES {
                let mut tile = tile;
                let columns = part * A::LANES * 4;
                tile.columns[0] = tile.columns[c].add(columns);
                tile.sums[0] = tile.sums[c].add(columns);
                add::<A, R, 1>(&tile, prefetch);
            }
        }
    }
}
const _: () = assert!(SUMS == 2 * LANES * 4);
