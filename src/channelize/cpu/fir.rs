//! The windowed sums: several spectra for each coefficient that is loaded, and, for lengths that allow
//! it, the first step of the Fourier transform on them while they are in the first-level cache.
//!
//! Invariant: each sum is made in the order of the taps, whatever the number of spectra.
#![allow(unsafe_code)]

use super::butterfly::{Complexes, butterfly};
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
    /// Floats from a row's real parts to its imaginary ones.
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
    pub(super) rows: &'a [*const f32],
    pub(super) spectra: usize,
}

/// Bytes that will be needed next, asked for a few lines at a time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ahead {
    pub(super) at: *const u8,
    pub(super) lines: usize,
    /// Lines in each step.
    pub(super) step: usize,
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

levels!(plain, plain_body, (filter: &Filter, rows: Rows<'_>, sums: Sums));

/// All sums, columns side by side.
///
/// # Safety
/// `rows` has `spectra + taps - 1` rows of whole blocks, the sums room for as many blocks.
#[inline(always)]
unsafe fn plain_body<V: Vector>(filter: &Filter, rows: Rows<'_>, sums: Sums) {
    for block in 0..filter.blocks {
        let sums = Sums { at: sums.at.wrapping_add(block * V::LANES), ..sums };
        // SAFETY: the caller's promise is handed on.
        unsafe { columns::<V>(filter, rows, block, sums) };
    }
}

levels!(fused, fused_body, (
    filter: &Filter,
    rows: Rows<'_>,
    sums: Sums,
    first: First<'_>,
    ahead: Ahead,
));

/// The Fourier transform's first step: which factors, and where to.
#[derive(Clone, Copy, Debug)]
pub(super) struct First<'a> {
    /// For each group of `LANES` columns, output and lane: exp(-2 pi i n2 k1 / N).
    pub(super) twiddles: &'a [f32],
    /// Rows of the second step: those of spectrum `s` at `rows + s * spectrum`.
    pub(super) rows: *mut f32,
    pub(super) spectrum: usize,
}

/// All sums, transformed over the columns that are `N / LANES` apart: `LANES` blocks at a time.
///
/// # Safety
/// As for [`plain`], but that the sums have room for `LANES` blocks and `first` for all; the number of
/// blocks is a multiple of `LANES`.
#[inline(always)]
unsafe fn fused_body<V: Vector>(
    filter: &Filter,
    rows: Rows<'_>,
    sums: Sums,
    first: First<'_>,
    mut ahead: Ahead,
) {
    let groups = filter.blocks / V::LANES;
    for group in 0..groups {
        for n1 in 0..V::LANES {
            let sums = Sums { at: sums.at.wrapping_add(2 * n1 * V::LANES), ..sums };
            // SAFETY: the caller's promise is handed on.
            unsafe { columns::<V>(filter, rows, n1 * groups + group, sums) };
        }
        for s in 0..rows.spectra {
            ahead.step();
            // SAFETY: the caller's promise is handed on.
            unsafe {
                first_step::<V>(sums.at.add(s * sums.spectrum), first, group, s);
            }
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
/// As for [`fused`].
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
        let to = first.rows.add(s * first.spectrum + group * square);
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
/// As for [`plain`].
#[inline(always)]
unsafe fn columns<V: Vector>(filter: &Filter, rows: Rows<'_>, block: usize, sums: Sums) {
    // SAFETY: the caller's promise is handed on.
    unsafe {
        if filter.odd == 0 {
            parts::<V, false>(filter, rows, block, sums);
        } else {
            parts::<V, true>(filter, rows, block, sums);
        }
    }
}

/// # Safety
/// As for [`plain`].
#[inline(always)]
unsafe fn parts<V: Vector, const PAIRS: bool>(
    filter: &Filter,
    rows: Rows<'_>,
    block: usize,
    sums: Sums,
) {
    let mut s = 0;
    // SAFETY: the parts' spectra are within the rows'.
    unsafe {
        while s + 8 <= rows.spectra {
            spectra::<V, 8, PAIRS>(filter, rows.rows.as_ptr().add(s), block, sums.moved(s));
            s += 8;
        }
        if s + 4 <= rows.spectra {
            spectra::<V, 4, PAIRS>(filter, rows.rows.as_ptr().add(s), block, sums.moved(s));
            s += 4;
        }
        if s + 2 <= rows.spectra {
            spectra::<V, 2, PAIRS>(filter, rows.rows.as_ptr().add(s), block, sums.moved(s));
            s += 2;
        }
        if s < rows.spectra {
            spectra::<V, 1, PAIRS>(filter, rows.rows.as_ptr().add(s), block, sums.moved(s));
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
/// As for [`plain`], with `SPECTRA` spectra.
#[inline(always)]
unsafe fn spectra<V: Vector, const SPECTRA: usize, const PAIRS: bool>(
    filter: &Filter,
    rows: *const *const f32,
    block: usize,
    sums: Sums,
) {
    // SAFETY: the caller's promise is handed on.
    unsafe {
        let mut sum = [Complexes { re: V::splat(0.0), im: V::splat(0.0) }; 8];
        let from = filter.coefficients.values().as_ptr().add(block * filter.taps * V::LANES);
        let taps = Taps {
            from,
            odd: filter.odd,
            rows,
            column: block * V::LANES,
            imaginary: filter.imaginary,
        };
        let mut t = 0;
        while t + 4 <= filter.taps {
            group::<V, SPECTRA, 4, PAIRS>(&mut sum, taps, t);
            t += 4;
        }
        while t < filter.taps {
            group::<V, SPECTRA, 1, PAIRS>(&mut sum, taps, t);
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
    rows: *const *const f32,
    column: usize,
    imaginary: usize,
}

/// Adds `GROUP` taps from tap `t` on.
///
/// # Safety
/// As for [`plain`].
#[inline(always)]
unsafe fn group<V: Vector, const SPECTRA: usize, const GROUP: usize, const PAIRS: bool>(
    sum: &mut [Complexes<V>; 8],
    taps: Taps,
    t: usize,
) {
    // SAFETY: rows `t .. t + SPECTRA + GROUP - 1` are there by the caller's promise.
    unsafe {
        let mut even = [V::splat(0.0); 4];
        let mut odd = even;
        unrolled!(g in [0 1 2 3] {
            if g < GROUP {
                let from = taps.from.add((t + g) * V::LANES);
                even[g] = V::load(from);
                odd[g] = if PAIRS { V::load(from.add(taps.odd)) } else { even[g] };
            }
        });
        unrolled!(r in [0 1 2 3 4 5 6 7 8 9 10] {
            if r < SPECTRA + GROUP - 1 {
                let x = Complexes::<V>::load((*taps.rows.add(t + r)).add(taps.column), taps.imaginary);
                unrolled!(g in [0 1 2 3] {
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
