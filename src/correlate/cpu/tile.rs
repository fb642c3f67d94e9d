//! Inner loop of the X-engine, which multiplies a few rows with a few panels of columns and holds their sums in
//! registers, and its portable arithmetic on plain arrays.
//!
//! Invariant: each sum adds samples in the order of time, for any shape of the tile.
#![allow(unsafe_code)]

use super::super::plan::LANES;

/// Bytes of a cache line.
pub(super) const LINE: usize = 64;

/// Rows of a group: prepared together, with their sums in registers at the same time.
pub(super) const ROWS: usize = 4;

/// Maximum number of panels of rows in a band: 64 rows, whose prepared samples fit the second-level cache.
pub(super) const BAND: usize = 4;

/// Bytes of one prepared row in a step.
pub(super) const ROW: usize = 8;

/// Bytes from one row's sums to the next: real and imaginary sums with a panel.
pub(super) const SUMS: usize = 128;

/// Maximum number of panels of columns whose sums are in registers at once.
pub(super) const WIDTH: usize = 3;

/// Form of the narrow sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// 32-bit integers.
    Integer,
    /// 32-bit integers of rows raised by 128; imaginary sums lack the columns' imaginary parts. The column sums give
    /// both corrections.
    Offset,
    /// Single-precision floats.
    Float,
}

/// Arithmetic of one encoding at one vector level: products of a row with a vector of columns.
///
/// A step is one or two times. In a step a prepared row has [`ROW`] bytes, and a panel of columns
/// [`Arithmetic::COLUMN`].
///
/// # Safety
/// Every method may be called only where the level's instructions exist; pointers must be valid for what a
/// method reads or writes.
pub(super) unsafe trait Arithmetic {
    /// Times in a step.
    const TIMES: usize;
    /// Bytes of a panel of columns in a step.
    const COLUMN: usize;
    /// Inputs in a vector: 16, or fewer for shorter registers.
    const LANES: usize;
    /// Form of the narrow sums.
    const KIND: Kind;
    /// Sums of `LANES` inputs.
    type Sum: Copy;
    /// Row, broadcast to all lanes.
    type Row: Copy;
    /// Vector of `LANES` columns.
    type Column: Copy;
    unsafe fn zero() -> Self::Sum;
    unsafe fn load(from: *const u8) -> Self::Sum;
    unsafe fn store(sum: Self::Sum, to: *mut u8);
    unsafe fn row(from: *const u8) -> Self::Row;
    unsafe fn column(from: *const u8) -> Self::Column;
    /// Adds the products of a row with the conjugate columns to the real and imaginary sums: all terms, or the first
    /// half of them.
    unsafe fn add(sums: &mut [Self::Sum; 2], row: Self::Row, column: Self::Column);
    /// Adds the second half of the terms, if any. The caller issues it some instructions after [`Arithmetic::add`], to
    /// hide latency.
    #[inline(always)]
    unsafe fn add_more(_sums: &mut [Self::Sum; 2], _row: Self::Row, _column: Self::Column) {}
    /// Converts packed spectra (8 bit, f32) to columns and returns their address. Integers come in whole pairs of
    /// times.
    #[inline(always)]
    unsafe fn columns(packed: *const u8, _steps: usize, _buffer: *mut u8) -> *const u8 {
        packed
    }
    /// Prepares all rows of a panel from its columns; groups of `ROWS` rows are `group` bytes apart.
    unsafe fn rows(columns: *const u8, steps: usize, rows: *mut u8, group: usize);
}

/// Tile of rows by columns.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tile {
    pub(super) rows: *const u8,
    pub(super) columns: [*const u8; WIDTH],
    /// Sums of the first row with each panel of columns.
    pub(super) sums: [*mut u8; WIDTH],
    pub(super) steps: usize,
    /// Whether the sums start from zero with this tile.
    pub(super) fresh: bool,
    /// Wide sums to prefetch, if the narrow ones are added to them after this tile.
    pub(super) wide: [*const u8; WIDTH],
}

/// Steps between two prefetches.
pub(super) const STEPS: usize = 8;

/// Adds all steps of `R` rows by `C` panels' vectors.
///
/// # Safety
/// The level's instructions exist, and all pointers are valid for the steps.
// Several arrays share the indices; the compiler unrolls the loops.
#[allow(clippy::needless_range_loop)]
#[inline(always)]
pub(super) unsafe fn add<A: Arithmetic, const R: usize, const C: usize>(
    tile: &Tile,
    prefetch: &mut Prefetch,
) {
    // SAFETY: the caller upholds this function's contract.
    unsafe {
        let mut sums = [[[A::zero(); 2]; C]; R];
        if !tile.fresh {
            for r in 0..R {
                for c in 0..C {
                    let from = tile.sums[c].add(r * SUMS);
                    sums[r][c] = [A::load(from), A::load(from.add(SUMS / 2))];
                }
            }
        }
        let mut row = tile.rows;
        let mut at = 0;
        let mut left = tile.steps;
        while left > 0 {
            let steps = STEPS.min(left);
            left -= steps;
            prefetch.step();
            prefetch_sums::<C>(tile, at / A::COLUMN / STEPS);
            for _ in 0..steps {
                let mut columns = [A::column(tile.columns[0].add(at)); C];
                for c in 1..C {
                    columns[c] = A::column(tile.columns[c].add(at));
                }
                for r in 0..R {
                    let x = A::row(row.add(r * ROW));
                    for c in 0..C {
                        A::add(&mut sums[r][c], x, columns[c]);
                    }
                    for c in 0..C {
                        A::add_more(&mut sums[r][c], x, columns[c]);
                    }
                }
                row = row.add(R * ROW);
                at += A::COLUMN;
            }
        }
        for r in 0..R {
            for c in 0..C {
                let to = tile.sums[c].add(r * SUMS);
                A::store(sums[r][c][0], to);
                A::store(sums[r][c][1], to.add(SUMS / 2));
            }
        }
    }
}

/// Prefetches a few lines of the sums after those of the tile, usually those of the next rows, and of the tile's wide
/// sums.
#[inline(always)]
fn prefetch_sums<const C: usize>(tile: &Tile, line: usize) {
    const LINES: usize = ROWS * SUMS / LINE;
    if line >= LINES {
        return;
    }
    for c in 0..C {
        prefetch_line(tile.sums[c].wrapping_add((LINES + line) * LINE));
        if !tile.wide[c].is_null() {
            prefetch_line(tile.wide[c].wrapping_add(2 * line * LINE));
            prefetch_line(tile.wide[c].wrapping_add((2 * line + 1) * LINE));
        }
    }
}

/// Prefetches a line into the first-level cache.
#[inline(always)]
fn prefetch_line(line: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch reads nothing.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(line.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = line;
}

/// Remaining samples to prefetch of several panels of equal length.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stream {
    panels: [*const u8; BAND],
    /// Cache lines left per panel.
    lines: usize,
    /// Cache lines per panel and step.
    step: usize,
}

impl Default for Stream {
    fn default() -> Self {
        Self { panels: [std::ptr::null(); BAND], lines: 0, step: 0 }
    }
}

impl Stream {
    /// Creates a stream that is complete after `steps` steps.
    pub(super) fn new<'a>(panels: impl Iterator<Item = &'a [u8]>, steps: usize) -> Self {
        let mut stream = Self::default();
        for (index, panel) in panels.enumerate() {
            // Unused entries repeat the last panel; a second prefetch costs nothing.
            stream.panels[index..].fill(panel.as_ptr());
            stream.lines = panel.len().div_ceil(LINE);
        }
        stream.step = stream.lines.div_ceil(steps.max(1));
        stream
    }

    #[inline(always)]
    fn step(&mut self) {
        let lines = self.step.min(self.lines);
        self.lines -= lines;
        for _ in 0..lines {
            for panel in &mut self.panels {
                #[cfg(target_arch = "x86_64")]
                // SAFETY: a prefetch reads nothing.
                unsafe {
                    use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
                    _mm_prefetch::<_MM_HINT_T1>(panel.cast());
                }
                *panel = panel.wrapping_add(LINE);
            }
        }
    }
}

/// Streams to prefetch.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Prefetch {
    /// Columns of the next tiles.
    pub(super) columns: Stream,
    /// Rows of the next band.
    pub(super) rows: Stream,
}

impl Prefetch {
    /// Prefetches a few lines.
    #[inline(always)]
    pub(super) fn step(&mut self) {
        self.columns.step();
        self.rows.step();
    }
}

/// 16-bit integers in plain arrays.
pub(super) struct Integers;

/// Single-precision floats in plain arrays.
pub(super) struct Floats;

// SAFETY: nothing is required beyond valid pointers, which callers guarantee.
unsafe impl Arithmetic for Integers {
    const TIMES: usize = 1;
    const COLUMN: usize = 64;
    const LANES: usize = 8;
    const KIND: Kind = Kind::Integer;
    type Sum = [i32; 8];
    type Row = [i16; 4];
    type Column = [i16; 16];
    #[inline(always)]
    unsafe fn zero() -> Self::Sum {
        [0; 8]
    }
    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self::Sum {
        // SAFETY: the caller guarantees a readable vector.
        unsafe { from.cast::<[i32; 8]>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn store(sum: Self::Sum, to: *mut u8) {
        // SAFETY: the caller guarantees a writable vector.
        unsafe { to.cast::<[i32; 8]>().write_unaligned(sum) }
    }
    #[inline(always)]
    unsafe fn row(from: *const u8) -> Self::Row {
        // SAFETY: the caller guarantees a readable row.
        unsafe { from.cast::<[i16; 4]>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn column(from: *const u8) -> Self::Column {
        // SAFETY: the caller guarantees a readable vector.
        unsafe { from.cast::<[i16; 16]>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn add(sums: &mut [Self::Sum; 2], row: Self::Row, column: Self::Column) {
        let row = row.map(i32::from);
        for lane in 0..8 {
            let (re, im) = (i32::from(column[2 * lane]), i32::from(column[2 * lane + 1]));
            sums[0][lane] = sums[0][lane].wrapping_add(row[0] * re + row[1] * im);
            sums[1][lane] = sums[1][lane].wrapping_add(row[2] * re + row[3] * im);
        }
    }
    #[inline(always)]
    unsafe fn columns(packed: *const u8, steps: usize, buffer: *mut u8) -> *const u8 {
        // SAFETY: the caller upholds this function's contract.
        unsafe { wide_columns(packed, steps, buffer) }
    }
    #[inline(always)]
    unsafe fn rows(columns: *const u8, steps: usize, rows: *mut u8, group: usize) {
        // SAFETY: the caller upholds this function's contract.
        unsafe { wide_rows(columns, steps, rows, group) }
    }
}

// SAFETY: nothing is required beyond valid pointers, which callers guarantee.
unsafe impl Arithmetic for Floats {
    const TIMES: usize = 1;
    const COLUMN: usize = 128;
    const LANES: usize = 8;
    const KIND: Kind = Kind::Float;
    type Sum = [f32; 8];
    type Row = [f32; 2];
    type Column = [[f32; 8]; 2];
    #[inline(always)]
    unsafe fn zero() -> Self::Sum {
        [0.0; 8]
    }
    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self::Sum {
        // SAFETY: the caller guarantees a readable vector.
        unsafe { from.cast::<[f32; 8]>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn store(sum: Self::Sum, to: *mut u8) {
        // SAFETY: the caller guarantees a writable vector.
        unsafe { to.cast::<[f32; 8]>().write_unaligned(sum) }
    }
    #[inline(always)]
    unsafe fn row(from: *const u8) -> Self::Row {
        // SAFETY: the caller guarantees a readable row.
        unsafe { from.cast::<[f32; 2]>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn column(from: *const u8) -> Self::Column {
        // SAFETY: the caller guarantees readable vectors of both parts.
        unsafe { [Self::load(from), Self::load(from.add(64))] }
    }
    #[inline(always)]
    unsafe fn add(sums: &mut [Self::Sum; 2], [re, im]: Self::Row, column: Self::Column) {
        for lane in 0..8 {
            sums[0][lane] += re * column[0][lane];
            sums[1][lane] += im * column[0][lane];
        }
    }
    #[inline(always)]
    unsafe fn add_more(sums: &mut [Self::Sum; 2], [re, im]: Self::Row, column: Self::Column) {
        for lane in 0..8 {
            sums[0][lane] += im * column[1][lane];
            sums[1][lane] -= re * column[1][lane];
        }
    }
    #[inline(always)]
    unsafe fn rows(columns: *const u8, steps: usize, rows: *mut u8, group: usize) {
        // SAFETY: the caller upholds this function's contract.
        unsafe { float_rows(columns, steps, rows, group) }
    }
}

/// Converts bytes of pairs of times to 16-bit integers, axes time, input, (re, im).
///
/// # Safety
/// Both pointers are valid for `steps` times, rounded up to pairs.
#[inline(always)]
pub(super) unsafe fn wide_columns(packed: *const u8, steps: usize, buffer: *mut u8) -> *const u8 {
    for pair in 0..steps.div_ceil(2) {
        // SAFETY: the caller guarantees whole pairs.
        unsafe {
            let x = packed.add(pair * 64).cast::<[[i8; 4]; LANES]>().read_unaligned();
            let mut wide = [[[0i16; 2]; LANES]; 2];
            for lane in 0..LANES {
                wide[0][lane] = [i16::from(x[lane][0]), i16::from(x[lane][1])];
                wide[1][lane] = [i16::from(x[lane][2]), i16::from(x[lane][3])];
            }
            buffer.add(pair * 128).cast::<[[[i16; 2]; LANES]; 2]>().write_unaligned(wide);
        }
    }
    buffer
}

/// Prepares rows of 16-bit integers: (re, im) and (im, -re).
///
/// # Safety
/// As for [`Arithmetic::rows`].
#[inline(always)]
pub(super) unsafe fn wide_rows(columns: *const u8, steps: usize, rows: *mut u8, group: usize) {
    for step in 0..steps {
        // SAFETY: the caller guarantees columns and rows of all steps.
        unsafe {
            let x = columns.add(step * 64).cast::<[[i16; 2]; LANES]>().read_unaligned();
            for (g, x) in x.chunks_exact(ROWS).enumerate() {
                let mut out = [[0i16; 4]; ROWS];
                for (out, [re, im]) in out.iter_mut().zip(x) {
                    *out = [*re, *im, *im, -re];
                }
                let to = rows.add(g * group + step * ROWS * ROW);
                to.cast::<[[i16; 4]; ROWS]>().write_unaligned(out);
            }
        }
    }
}

/// Prepares rows of floats: (re, im).
///
/// # Safety
/// As for [`Arithmetic::rows`].
#[inline(always)]
pub(super) unsafe fn float_rows(columns: *const u8, steps: usize, rows: *mut u8, group: usize) {
    for step in 0..steps {
        // SAFETY: the caller guarantees columns and rows of all steps.
        unsafe {
            let [re, im] = columns.add(step * 128).cast::<[[f32; LANES]; 2]>().read_unaligned();
            for g in 0..LANES / ROWS {
                let mut out = [[0f32; 2]; ROWS];
                for r in 0..ROWS {
                    out[r] = [re[g * ROWS + r], im[g * ROWS + r]];
                }
                let to = rows.add(g * group + step * ROWS * ROW);
                to.cast::<[[f32; 2]; ROWS]>().write_unaligned(out);
            }
        }
    }
}
