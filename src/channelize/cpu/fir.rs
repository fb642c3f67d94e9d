//! The windowed sums: several spectra for each coefficient that is loaded, and, for lengths that allow
//! it, the first step of the Fourier transform on them while they are in the first-level cache.
//!
//! Invariant: each sum is made in the order of the taps, whatever the number of spectra.
#![allow(unsafe_code)]

use super::butterfly::{Complexes, butterfly};
use super::passes::Spread;
use super::rows::{Byte, Float, Load, Row, Short, Split};
use super::vector::{Portable, Vector, levels};
#[cfg(target_arch = "x86_64")]
use super::x86;
use crate::backend::simd::Level;

/// Coefficients, and where columns and sums lie.
#[derive(Clone, Debug)]
pub(super) struct Filter {
    pub(super) taps: usize,
    /// Registers' worth of columns.
    pub(super) blocks: usize,
    /// Coefficients by block, tap and lane; for pairs those of odd samples behind them.
    pub(super) coefficients: super::memory::Floats,
    /// Floats from the coefficients of even samples to those of odd ones; 0 for complex samples.
    pub(super) odd: usize,
    /// How rows are stored.
    pub(super) row: Row,
    /// Floats from a converted row's real parts to its imaginary ones.
    pub(super) imaginary: usize,
}

/// Where sums are written: those of spectrum `s` at `at + s * spectrum`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sums {
    pub(super) at: *mut f32,
    pub(super) spectrum: usize,
    /// Floats from real parts to imaginary ones.
    pub(super) imaginary: usize,
}

/// Rows of samples under the windows of some spectra: spectrum `s` has rows `s .. s + taps`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rows<'a> {
    /// At least [`SPARE`] more than the spectra have.
    pub(super) rows: &'a [*const u8],
    pub(super) spectra: usize,
}

/// Rows beyond the last, which sums of no spectrum are made of: any that can be read.
pub(super) const SPARE: usize = 8;

/// Bytes that will be needed next, asked for a few lines at a time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ahead {
    pub(super) at: *const u8,
    pub(super) lines: usize,
    /// Lines in each step.
    pub(super) step: usize,
}

impl Default for Ahead {
    fn default() -> Self {
        Self { at: std::ptr::null(), lines: 0, step: 0 }
    }
}

impl Ahead {
    /// Asks for the next lines.
    #[inline(always)]
    fn step(&mut self) {
        let lines = self.step.min(self.lines);
        self.lines -= lines;
        for _ in 0..lines {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: a prefetch reads nothing.
            unsafe {
                use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
                _mm_prefetch::<_MM_HINT_T1>(self.at.cast());
            }
            self.at = self.at.wrapping_add(64);
        }
    }
}

/// Repeats a block for literal numbers, so that indices are constants.
macro_rules! unrolled {
    ($i:ident in [$($n:literal)*] $body:block) => { $( { let $i: usize = $n; $body } )* };
}

/// The Fourier transform's first step: which factors, and where to.
#[derive(Clone, Copy, Debug)]
pub(super) struct First<'a> {
    /// For each group of `LANES` columns, output and lane: exp(-2 pi i n2 k1 / N).
    pub(super) twiddles: &'a [f32],
    /// Rows of the second step: those of spectrum `s` at `rows + s * spectrum`.
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

/// All sums, columns side by side; or, with a first step, transformed over the columns that are
/// `N / LANES` apart, `LANES` blocks at a time.
///
/// # Safety
/// `rows` has `spectra + taps - 1` rows of whole blocks, and [`SPARE`] more. The sums have room for all
/// blocks, or with a first step, which has room for all, for `LANES` of them; the number of blocks is a
/// multiple of `LANES` then. Both have room for the spectra, rounded up to 2, 8 or a multiple of 8.
#[inline(always)]
unsafe fn filter_body<V: Vector>(
    filter: &Filter,
    rows: Rows<'_>,
    sums: Sums,
    first: Option<First<'_>>,
    ahead: Ahead,
) {
    // SAFETY: the caller's promise is handed on; the rows are of the filter's kind.
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

/// # Safety
/// As for [`filter`].
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
            // SAFETY: the caller's promise is handed on.
            unsafe { columns::<V, R, PAIRS>(filter, rows, block, sums) };
        }
        let Some(first) = first else { continue };
        for s in 0..rows.spectra {
            ahead.step();
            // SAFETY: the caller's promise is handed on.
            unsafe { first_step::<V>(sums.at.add(s * sums.spectrum), first, group, s) };
        }
    }
}

levels!(steps, steps_body, (groups: usize, sums: *const f32, first: First<'_>));

/// The first step of one spectrum's sums, which lie group by group.
///
/// # Safety
/// `sums` and `first` hold all groups.
#[inline(always)]
unsafe fn steps_body<V: Vector>(groups: usize, sums: *const f32, first: First<'_>) {
    for group in 0..groups {
        // SAFETY: the caller's promise is handed on.
        unsafe {
            first_step::<V>(sums.add(group * 2 * V::LANES * V::LANES), first, group, 0);
        }
    }
}

/// `LANES` blocks of one group, `n1` outermost, to rows of the second step: lanes `n2` become lanes `k1`.
///
/// # Safety
/// As for [`filter`].
#[inline(always)]
unsafe fn first_step<V: Vector>(sums: *const f32, first: First<'_>, group: usize, s: usize) {
    let block = 2 * V::LANES;
    let square = block * V::LANES;
    // SAFETY: the caller promises sums, factors and rows of the group.
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

/// One block of columns for all spectra.
///
/// # Safety
/// As for [`filter`].
#[inline(always)]
unsafe fn columns<V: Vector, R: Load, const PAIRS: bool>(
    filter: &Filter,
    rows: Rows<'_>,
    block: usize,
    sums: Sums,
) {
    let mut s = 0;
    // As many sums as registers allow; the last ones may be of no spectrum.
    while s < rows.spectra {
        let left = rows.spectra - s;
        // SAFETY: the spectra are rounded up as the caller provided for.
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

/// # Safety
/// As for [`filter`], with `SPECTRA` spectra.
#[inline(always)]
unsafe fn spectra<V: Vector, R: Load, const SPECTRA: usize, const PAIRS: bool>(
    filter: &Filter,
    rows: *const *const u8,
    block: usize,
    sums: Sums,
) {
    // SAFETY: the caller's promise is handed on.
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

#[derive(Clone, Copy)]
struct Taps {
    from: *const f32,
    odd: usize,
    rows: *const *const u8,
    column: usize,
    imaginary: usize,
}

/// Adds `GROUP` taps from tap `t` on.
///
/// # Safety
/// As for [`filter`].
#[inline(always)]
unsafe fn group<V: Vector, R: Load, const SPECTRA: usize, const GROUP: usize, const PAIRS: bool>(
    sum: &mut [Complexes<V>; 8],
    taps: Taps,
    t: usize,
) {
    // SAFETY: rows `t .. t + SPECTRA + GROUP - 1` are there by the caller's promise.
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

/// The sums of one spectrum whose rows overlap: row `t` begins `t * columns` floats behind `samples`.
///
/// # Safety
/// `samples` holds all taps, real and imaginary, to whole blocks; `sums` has room for whole blocks.
#[inline(always)]
unsafe fn single_body<V: Vector>(filter: &Filter, samples: *const f32, columns: usize, sums: Sums) {
    let coefficients = filter.coefficients.values().as_ptr();
    // SAFETY: the caller's promise is handed on.
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
