//! Windowed sums. Each loaded coefficient serves several spectra. For suitable lengths, the first step of the Fourier
//! transform runs while the sums are in the L1 cache.
//!
//! Invariant: each sum adds its products in tap order, for any number of spectra.
#![allow(unsafe_code)]

use super::passes::{Complexes, Spread, butterfly};
use crate::backend::vector::{Floats, Vector, levels, prefetch_l2};
use crate::voltage::VoltageEncoding;

/// Storage format of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Row {
    /// Converted: real parts, then imaginary parts.
    Split,
    /// Recorded single-precision floats.
    Float,
    /// Recorded 16-bit integers.
    Short,
    /// Recorded signed bytes.
    Byte,
}

impl Row {
    /// Returns the fastest format for rows of whole registers. With few taps, each sample is read too few times for a
    /// separate conversion pass to pay for its memory traffic.
    pub(super) fn best(encoding: VoltageEncoding, taps: usize) -> Self {
        use VoltageEncoding as E;
        match encoding {
            E::ComplexF32 | E::RealF32 if taps <= MAX_FLOAT_TAPS => Self::Float,
            E::Complex16 | E::Real16 if taps <= MAX_TAPS => Self::Short,
            E::Complex8 | E::Real8 if taps <= MAX_TAPS => Self::Byte,
            _ => Self::Split,
        }
    }
}

/// Maximum number of taps for which integers are converted at every read.
const MAX_TAPS: usize = 8;

/// Maximum number of taps for which floats are deinterleaved at every read.
const MAX_FLOAT_TAPS: usize = 24;

/// Loads a register of columns of a row.
///
/// # Safety
/// Same requirements as for [`Vector`]'s methods; the row must hold the columns.
unsafe trait Load {
    unsafe fn load<V: Vector>(row: *const u8, column: usize, imaginary: usize) -> Complexes<V>;
}

struct Split;
struct Float;
struct Short;
struct Byte;

// SAFETY: reads two registers of a converted row.
unsafe impl Load for Split {
    #[inline(always)]
    unsafe fn load<V: Vector>(row: *const u8, column: usize, imaginary: usize) -> Complexes<V> {
        // SAFETY: forwards the caller's guarantee.
        unsafe { Complexes::load(row.cast::<f32>().add(column), imaginary) }
    }
}

// SAFETY: reads 8 bytes per column.
unsafe impl Load for Float {
    #[inline(always)]
    unsafe fn load<V: Vector>(row: *const u8, column: usize, _: usize) -> Complexes<V> {
        // SAFETY: forwards the caller's guarantee.
        unsafe {
            let from = row.cast::<f32>().add(2 * column);
            let (re, im) = V::load(from).deinterleave(V::load(from.add(V::LANES)));
            Complexes { re, im }
        }
    }
}

// SAFETY: reads 4 bytes per column.
unsafe impl Load for Short {
    #[inline(always)]
    unsafe fn load<V: Vector>(row: *const u8, column: usize, _: usize) -> Complexes<V> {
        // SAFETY: forwards the caller's guarantee.
        unsafe {
            let words = V::load(row.add(4 * column));
            Complexes { re: words.field::<16, 16>(), im: words.field::<0, 16>() }
        }
    }
}

// SAFETY: reads 2 bytes per column.
unsafe impl Load for Byte {
    #[inline(always)]
    unsafe fn load<V: Vector>(row: *const u8, column: usize, _: usize) -> Complexes<V> {
        // SAFETY: forwards the caller's guarantee.
        unsafe {
            let words = V::widen_16_to_32(row.add(2 * column));
            Complexes { re: words.field::<24, 24>(), im: words.field::<16, 24>() }
        }
    }
}

/// Coefficients of the filter, and the layout of its rows.
#[derive(Clone, Debug)]
pub(super) struct Filter {
    pub(super) taps: usize,
    /// Number of registers per row of columns.
    pub(super) blocks: usize,
    /// Coefficients; axes: block, tap, lane. For pairs, those of odd samples follow.
    pub(super) coefficients: Floats,
    /// Offset in floats from the coefficients of even samples to those of odd samples; 0 for complex samples.
    pub(super) odd: usize,
    /// Storage format of rows.
    pub(super) row: Row,
    /// Offset in floats from a converted row's real parts to its imaginary parts.
    pub(super) imaginary: usize,
}

/// Output of the sums: spectrum `s` at `at + s * spectrum`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sums {
    pub(super) at: *mut f32,
    pub(super) spectrum: usize,
    /// Offset in floats from real to imaginary parts.
    pub(super) imaginary: usize,
}

/// Rows of samples under the windows of several spectra: spectrum `s` uses rows `s .. s + taps`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rows<'a> {
    /// At least [`SPARE`] more rows than the spectra use.
    pub(super) rows: &'a [*const u8],
    pub(super) spectra: usize,
}

/// Readable rows beyond the last, which feed only unused sums.
pub(super) const SPARE: usize = 8;

/// Memory to prefetch, a few cache lines at a time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ahead {
    pub(super) at: *const u8,
    pub(super) lines: usize,
    /// Cache lines per step.
    pub(super) step: usize,
}

impl Default for Ahead {
    fn default() -> Self {
        Self { at: std::ptr::null(), lines: 0, step: 0 }
    }
}

impl Ahead {
    /// Prefetches the next lines.
    #[inline(always)]
    fn step(&mut self) {
        let lines = self.step.min(self.lines);
        self.lines -= lines;
        for _ in 0..lines {
            prefetch_l2(self.at);
            self.at = self.at.wrapping_add(64);
        }
    }
}

/// Repeats code for literal values of a variable, so that indices are constants.
macro_rules! unrolled {
    ($i:ident in [$($n:literal)*] $body:block) => { $( { let $i: usize = $n; $body } )* };
}

/// First step of the Fourier transform: twiddle factors and destination.
#[derive(Clone, Copy, Debug)]
pub(super) struct First<'a> {
    /// exp(-2 pi i n2 k1 / N); axes: group of `LANES` columns, output, lane.
    pub(super) twiddles: &'a [f32],
    /// Rows of the second step: spectrum `s` at `rows + s * spectrum`.
    pub(super) rows: *mut f32,
    pub(super) spectrum: usize,
    pub(super) spread: Spread,
}

levels!(filter, filter_body, (
    filter: &Filter,
    rows: Rows<'_>,
    sums: Sums,
    first: Option<First<'_>>,
    ahead: Ahead,
));

/// Computes all sums with columns side by side. With a first step, also transforms over columns `N / LANES` apart,
/// `LANES` blocks at a time.
///
/// # Safety
/// `rows` must hold `spectra + taps - 1` rows of whole blocks and [`SPARE`] more. Without a first step, `sums` must
/// have space for all blocks; with one, for `LANES` blocks, `first` must have space for all, and the number of blocks
/// must be a multiple of `LANES`. Both must have space for the spectra rounded up to 2, 8 or a multiple of 8.
#[inline(always)]
unsafe fn filter_body<V: Vector>(
    filter: &Filter,
    rows: Rows<'_>,
    sums: Sums,
    first: Option<First<'_>>,
    ahead: Ahead,
) {
    // SAFETY: forwards the caller's guarantee; the row type is the filter's.
    unsafe {
        match (filter.row, filter.odd > 0) {
            (Row::Split, false) => rounds::<V, Split, false>(filter, rows, sums, first, ahead),
            (Row::Split, true) => rounds::<V, Split, true>(filter, rows, sums, first, ahead),
            (Row::Float, false) => rounds::<V, Float, false>(filter, rows, sums, first, ahead),
            (Row::Float, true) => rounds::<V, Float, true>(filter, rows, sums, first, ahead),
            (Row::Short, false) => rounds::<V, Short, false>(filter, rows, sums, first, ahead),
            (Row::Short, true) => rounds::<V, Short, true>(filter, rows, sums, first, ahead),
            (Row::Byte, false) => rounds::<V, Byte, false>(filter, rows, sums, first, ahead),
            (Row::Byte, true) => rounds::<V, Byte, true>(filter, rows, sums, first, ahead),
        }
    }
}

/// Computes the sums block by block, and the first step group by group.
///
/// # Safety
/// Same requirements as for [`filter`].
#[inline(always)]
unsafe fn rounds<V: Vector, R: Load, const PAIRS: bool>(
    filter: &Filter,
    rows: Rows<'_>,
    sums: Sums,
    first: Option<First<'_>>,
    mut ahead: Ahead,
) {
    let (groups, blocks) = match first {
        Some(_) => (filter.blocks / V::LANES, V::LANES),
        None => (1, filter.blocks),
    };
    let between = if first.is_some() { 2 * V::LANES } else { V::LANES };
    for group in 0..groups {
        for n1 in 0..blocks {
            let sums = Sums { at: sums.at.wrapping_add(n1 * between), ..sums };
            let block = n1 * groups + group;
            ahead.step();
            // SAFETY: forwards the caller's guarantee.
            unsafe { columns::<V, R, PAIRS>(filter, rows, block, sums) };
        }
        let Some(first) = first else { continue };
        for s in 0..rows.spectra {
            // SAFETY: forwards the caller's guarantee.
            unsafe { first_step::<V>(sums.at.add(s * sums.spectrum), first, group, s) };
        }
    }
}

levels!(steps, steps_body, (groups: usize, sums: *const f32, first: First<'_>));

/// Runs the first step on one spectrum's sums, which are stored group by group.
///
/// # Safety
/// `sums` and `first` must hold all groups.
#[inline(always)]
unsafe fn steps_body<V: Vector>(groups: usize, sums: *const f32, first: First<'_>) {
    for group in 0..groups {
        // SAFETY: forwards the caller's guarantee.
        unsafe {
            first_step::<V>(sums.add(group * 2 * V::LANES * V::LANES), first, group, 0);
        }
    }
}

/// Transforms `LANES` blocks of one group over the block index `n1`, multiplies by the twiddle factors, and transposes:
/// lanes are columns `n2` before and outputs `k1` after. The results are rows of the second step.
///
/// # Safety
/// Same requirements as for [`filter`].
#[inline(always)]
unsafe fn first_step<V: Vector>(sums: *const f32, first: First<'_>, group: usize, s: usize) {
    let block = 2 * V::LANES;
    let square = block * V::LANES;
    // SAFETY: the caller guarantees the sums, factors and rows of the group.
    unsafe {
        let zero = Complexes { re: V::splat(0.0), im: V::splat(0.0) };
        let mut x = [zero; 16];
        for (n1, x) in x.iter_mut().enumerate().take(V::LANES) {
            *x = Complexes::load(sums.add(n1 * block), V::LANES);
        }
        if V::LANES == 16 {
            butterfly::<V, 16>(&mut x);
        } else {
            butterfly::<V, 8>(&mut x);
        }
        let twiddles = first.twiddles.as_ptr().add(group * square);
        let (mut re, mut im) = ([x[0].re; 16], [x[0].im; 16]);
        for k1 in 1..V::LANES {
            let factor = Complexes::load(twiddles.add(k1 * block), V::LANES);
            let turned = x[k1].times(factor);
            (re[k1], im[k1]) = (turned.re, turned.im);
        }
        let place = first.spread.place(group * V::LANES);
        let to = first.rows.add(s * first.spectrum + place * block);
        V::transpose(&mut re);
        for (i, re) in re.iter().enumerate().take(V::LANES) {
            re.store(to.add(i * block));
        }
        V::transpose(&mut im);
        for (i, im) in im.iter().enumerate().take(V::LANES) {
            im.store(to.add(i * block + V::LANES));
        }
    }
}

/// Computes one block of columns for all spectra.
///
/// # Safety
/// Same requirements as for [`filter`].
#[inline(always)]
unsafe fn columns<V: Vector, R: Load, const PAIRS: bool>(
    filter: &Filter,
    rows: Rows<'_>,
    block: usize,
    sums: Sums,
) {
    let mut s = 0;
    // Computes as many sums at a time as registers allow; surplus sums at the end are unused.
    while s < rows.spectra {
        let left = rows.spectra - s;
        // SAFETY: the caller provides space for the spectra rounded up.
        unsafe {
            let (rows, sums) = (rows.rows.as_ptr().add(s), sums.moved(s));
            if left <= 2 {
                spectra::<V, R, 2, PAIRS>(filter, rows, block, sums);
                s += 2;
            } else if V::LANES == 16 {
                spectra::<V, R, 8, PAIRS>(filter, rows, block, sums);
                s += 8;
            } else {
                spectra::<V, R, 4, PAIRS>(filter, rows, block, sums);
                s += 4;
            }
        }
    }
}

impl Sums {
    #[inline(always)]
    fn moved(self, s: usize) -> Self {
        Self { at: self.at.wrapping_add(s * self.spectrum), ..self }
    }
}

/// Computes one block of columns for `SPECTRA` spectra.
///
/// # Safety
/// Same requirements as for [`filter`], with `SPECTRA` spectra.
#[inline(always)]
unsafe fn spectra<V: Vector, R: Load, const SPECTRA: usize, const PAIRS: bool>(
    filter: &Filter,
    rows: *const *const u8,
    block: usize,
    sums: Sums,
) {
    // SAFETY: forwards the caller's guarantee.
    unsafe {
        let mut sum = [Complexes { re: V::splat(0.0), im: V::splat(0.0) }; 8];
        let from = filter.coefficients.values().as_ptr().add(block * filter.taps * V::LANES);
        let (odd, column, imaginary) = (filter.odd, block * V::LANES, filter.imaginary);
        let taps = Taps { from, odd, rows, column, imaginary };
        let mut t = 0;
        if V::LANES == 16 && !PAIRS {
            while t + 8 <= filter.taps {
                group::<V, R, SPECTRA, 8, PAIRS>(&mut sum, taps, t);
                t += 8;
            }
        }
        while t + 4 <= filter.taps {
            group::<V, R, SPECTRA, 4, PAIRS>(&mut sum, taps, t);
            t += 4;
        }
        while t < filter.taps {
            group::<V, R, SPECTRA, 1, PAIRS>(&mut sum, taps, t);
            t += 1;
        }
        unrolled!(s in [0 1 2 3 4 5 6 7] {
            if s < SPECTRA {
                sum[s].store(sums.at.add(s * sums.spectrum), sums.imaginary);
            }
        });
    }
}

/// Coefficients and rows of one block of columns.
#[derive(Clone, Copy)]
struct Taps {
    from: *const f32,
    odd: usize,
    rows: *const *const u8,
    column: usize,
    imaginary: usize,
}

/// Adds `GROUP` taps from tap `t`.
///
/// # Safety
/// Same requirements as for [`filter`].
#[inline(always)]
unsafe fn group<V: Vector, R: Load, const SPECTRA: usize, const GROUP: usize, const PAIRS: bool>(
    sum: &mut [Complexes<V>; 8],
    taps: Taps,
    t: usize,
) {
    // SAFETY: the caller guarantees rows `t .. t + SPECTRA + GROUP - 1`.
    unsafe {
        let mut even = [V::splat(0.0); 8];
        let mut odd = even;
        unrolled!(g in [0 1 2 3 4 5 6 7] {
            if g < GROUP {
                let from = taps.from.add((t + g) * V::LANES);
                even[g] = V::load(from);
                odd[g] = if PAIRS { V::load(from.add(taps.odd)) } else { even[g] };
            }
        });
        unrolled!(r in [0 1 2 3 4 5 6 7 8 9 10 11 12 13 14] {
            if r < SPECTRA + GROUP - 1 {
                let x = R::load::<V>(*taps.rows.add(t + r), taps.column, taps.imaginary);
                unrolled!(g in [0 1 2 3 4 5 6 7] {
                    let s = r.wrapping_sub(g);
                    if g < GROUP && s < SPECTRA {
                        let y = &mut sum[s & 7];
                        y.re = x.re.mul_add(even[g], y.re);
                        y.im = x.im.mul_add(odd[g], y.im);
                    }
                });
            }
        });
    }
}

levels!(single, single_body, (filter: &Filter, samples: *const f32, columns: usize, sums: Sums));

/// Computes the sums of one spectrum of an oversampled filter bank: row `t` begins at `samples + t * columns`.
///
/// # Safety
/// `samples` must hold all taps, real and imaginary, in whole blocks; `sums` must have space for whole blocks.
#[inline(always)]
unsafe fn single_body<V: Vector>(filter: &Filter, samples: *const f32, columns: usize, sums: Sums) {
    let coefficients = filter.coefficients.values().as_ptr();
    // SAFETY: forwards the caller's guarantee.
    unsafe {
        for block in 0..filter.blocks {
            let (mut re, mut im) = (V::splat(0.0), V::splat(0.0));
            let from = coefficients.add(block * filter.taps * V::LANES);
            for t in 0..filter.taps {
                let at = samples.add(t * columns + block * V::LANES);
                let b = from.add(t * V::LANES);
                re = V::load(at).mul_add(V::load(b), re);
                im = V::load(at.add(filter.imaginary)).mul_add(V::load(b.add(filter.odd)), im);
            }
            Complexes { re, im }.store(sums.at.add(block * V::LANES), sums.imaginary);
        }
    }
}
