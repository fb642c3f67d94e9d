//! Computes a block of spectra from one stream's samples.
#![allow(unsafe_code)]

use num_complex::Complex;

use super::fir::{self, Ahead, First, Rows, SPARE, Sums};
use super::forms::Spectrum;
use super::passes::{self, Pending, RotatedTarget, Spread, Target};
use super::samples::{Samples, Source};
use super::shape::{Column, Shape, Transform};
use crate::backend::simd::Level;
use crate::backend::vector::{Floats, Vector, levels};

/// Buffers of one thread for windowed sums and their transforms.
#[derive(Debug)]
pub(super) struct Buffers {
    /// Windowed sums.
    sums: Floats,
    /// Sums of an oversampled filter bank before rotation to the phase reference.
    unrotated: Floats,
    /// Rows of the transform's second step, or of spectra side by side.
    rows: Floats,
    /// Transformed spectra side by side.
    side: Floats,
    library: Vec<Complex<f32>>,
    scratch: Vec<Complex<f32>>,
    pointers: Vec<*const u8>,
    /// Two buffers for finished spectra as complex values, used in turn, and the pending stores of one of them.
    rotated: Floats,
    pending: Pending,
    /// Whether the second buffer holds the latest spectrum.
    second: bool,
}

// SAFETY: row pointers are rebuilt before each use, and no stores are pending between calls.
unsafe impl Send for Buffers {}

/// Spectra of a block for one polarization: real parts, then imaginary parts `padded` floats further.
pub(super) struct Block<'a> {
    pub(super) first: u64,
    pub(super) spectra: usize,
    pub(super) to: &'a mut [f32],
}

impl Buffers {
    pub(super) fn new(shape: &Shape) -> Self {
        let lanes = shape.lanes();
        let square = 2 * lanes * lanes + 16;
        let (mut sums, mut rows, mut side, mut library, mut scratch) = (0, 0, 0, 0, 0);
        match &shape.transform {
            Transform::None => {}
            Transform::Square { .. } => {
                sums = if shape.overlaps() { 2 * shape.padded } else { shape.block * square };
                rows = shape.block * shape.step_floats();
            }
            Transform::Batch(passes) => {
                sums = shape.block * shape.spectrum_floats();
                rows = 2 * lanes * passes.room();
                side = 2 * lanes * shape.padded;
            }
            Transform::Library(fft) => {
                sums = shape.block * shape.spectrum_floats();
                library = shape.columns;
                scratch = fft.get_inplace_scratch_len();
            }
        }
        let rotated = if shape.rotation.is_some() { 2 * (2 * shape.columns + 16) } else { 0 };
        let unrotated = if shape.overlaps() { shape.spectrum_floats() } else { 0 };
        Self {
            sums: Floats::new(sums),
            unrotated: Floats::new(unrotated),
            rows: Floats::new(rows),
            side: Floats::new(side),
            library: vec![Complex::ZERO; library],
            scratch: vec![Complex::ZERO; scratch],
            pointers: Vec::with_capacity(shape.ring_rows() + SPARE),
            rotated: Floats::new(rotated),
            pending: Pending::default(),
            second: false,
        }
    }

    /// Computes a block's windowed sums, and the transform steps that cover all its spectra together.
    pub(super) fn prepare(
        &mut self,
        shape: &Shape,
        source: &Source<'_>,
        samples: &mut Samples,
        block: &mut Block<'_>,
    ) {
        match &shape.transform {
            Transform::None => {
                let sums = Sums {
                    at: block.to.as_mut_ptr(),
                    spectrum: shape.spectrum_floats(),
                    imaginary: shape.padded,
                };
                self.filter(shape, source, samples, block, sums);
            }
            Transform::Square { passes, twiddles } => {
                let (twiddles, spread) = (twiddles.values(), passes.spread());
                self.square(shape, source, samples, block, twiddles, spread);
            }
            Transform::Batch(passes) => {
                self.filter_aside(shape, source, samples, block);
                self.batch(shape, passes, block);
            }
            Transform::Library(_) => self.filter_aside(shape, source, samples, block),
        }
    }

    /// Completes the transform of spectrum `s` of the prepared block, in the spectrum's slot.
    pub(super) fn finish(&mut self, shape: &Shape, s: usize, to: &mut [f32]) {
        let to = &mut to[shape.slot(s) * shape.spectrum_floats()..][..shape.spectrum_floats()];
        match &shape.transform {
            Transform::None => return,
            Transform::Square { passes, .. } => {
                let rows = &mut self.rows.values_mut()[s * shape.step_floats()..];
                let at = to.as_mut_ptr();
                let target = Target { at, row: shape.lanes(), imaginary: shape.padded };
                // SAFETY: a spectrum has `columns / lanes` rows of `lanes` bins.
                unsafe { passes::transform(shape.level, passes, rows.as_mut_ptr(), target) };
            }
            Transform::Batch(_) => {}
            Transform::Library(fft) => {
                let sums = &self.sums.values()[s * shape.spectrum_floats()..];
                let (re, im) = (&sums[..shape.columns], &sums[shape.padded..]);
                let parts = re.iter().zip(im).map(|(re, im)| Complex::new(*re, *im));
                self.library.iter_mut().zip(parts).for_each(|(z, part)| *z = part);
                fft.process_with_scratch(&mut self.library, &mut self.scratch);
                let (re, im) = to.split_at_mut(shape.padded);
                for ((z, re), im) in self.library.iter().zip(re).zip(im) {
                    (*re, *im) = (z.re, z.im);
                }
            }
        }
        if shape.column == Column::Pair {
            let (re, im) = to.split_at_mut(shape.padded);
            let (re, im) = (&mut re[..shape.columns], &mut im[..shape.columns]);
            divide_pairs(shape.level, shape.halves.values(), re, im);
        }
    }

    /// Like [`Self::finish`], but writes complex values to the output, rotated by `rotation` rows of bins; returns
    /// whether it could. Non-temporal stores are complete only after [`Self::flush`].
    pub(super) fn finish_in_place(
        &mut self,
        shape: &Shape,
        s: usize,
        to: &mut [f32],
        rotation: usize,
        streams: bool,
    ) -> bool {
        let Transform::Square { passes, .. } = &shape.transform else { return false };
        if streams && !shape.spreads {
            return false;
        }
        let rows = self.rows.values_mut()[s * shape.step_floats()..].as_mut_ptr();
        let (at, line) = (to.as_mut_ptr(), to.as_ptr().addr() % 64);
        if !streams || line == 0 {
            let target = RotatedTarget { at, rotation, streams };
            let pending = &mut self.pending;
            // SAFETY: a spectrum has `columns / lanes` rows of `lanes` bins.
            unsafe { passes::transform_in_place(shape.level, passes, rows, target, pending) };
            return true;
        }
        self.second = !self.second;
        // The two buffers alternate, each at the output's offset within a cache line.
        let rotated = &mut self.rotated.values_mut()
            [usize::from(self.second) * (2 * shape.columns + 16) + line / 4..];
        let rotated = &mut rotated[..2 * shape.columns];
        let target = RotatedTarget { at: rotated.as_mut_ptr(), rotation, streams: false };
        // SAFETY: as above; the pending stores read the other buffer, and their destination in the output is borrowed
        // for the whole call, which ends with `flush`.
        unsafe {
            passes::transform_in_place(shape.level, passes, rows, target, &mut self.pending);
            passes::flush(shape.level, &mut self.pending);
            self.pending = Pending::new(rotated.as_ptr(), at, to.len());
        }
        true
    }

    /// Writes all pending stores.
    pub(super) fn flush(&mut self, shape: &Shape) {
        // SAFETY: as in `finish_in_place`.
        unsafe { passes::flush(shape.level, &mut self.pending) };
    }

    /// Computes windowed sums into the buffer of sums, spectra side by side.
    fn filter_aside(
        &mut self,
        shape: &Shape,
        source: &Source<'_>,
        samples: &mut Samples,
        block: &Block<'_>,
    ) {
        let sums = Sums {
            at: self.sums.values_mut().as_mut_ptr(),
            spectrum: shape.spectrum_floats(),
            imaginary: shape.padded,
        };
        self.filter(shape, source, samples, block, sums);
    }

    /// Computes windowed sums with columns side by side.
    fn filter(
        &mut self,
        shape: &Shape,
        source: &Source<'_>,
        samples: &mut Samples,
        block: &Block<'_>,
        sums: Sums,
    ) {
        if shape.overlaps() {
            for s in 0..block.spectra {
                let rotation = self.unrotated(shape, source, samples, block, s);
                let unrotated = self.unrotated.values();
                for part in [0, shape.padded] {
                    let from = &unrotated[part..part + shape.columns];
                    // SAFETY: a spectrum's sums have space for both parts, and the memory they lie in (`block.to` or
                    // the buffer of sums) is borrowed for this call.
                    let to = unsafe {
                        let at = sums.at.add(s * sums.spectrum + part);
                        std::slice::from_raw_parts_mut(at, shape.columns)
                    };
                    to[rotation..].copy_from_slice(&from[..shape.columns - rotation]);
                    to[..rotation].copy_from_slice(&from[shape.columns - rotation..]);
                }
            }
            return;
        }
        samples.rows(shape, source, block.first, block.spectra, &mut self.pointers);
        let rows = Rows { rows: &self.pointers, spectra: block.spectra };
        // SAFETY: the rows were just listed, and are padded to whole blocks, as are the sums.
        unsafe { fir::filter(shape.level, &shape.filter, rows, sums, None, Ahead::default()) };
    }

    /// Computes the sums of spectrum `s` of an oversampled block before rotation; returns the rotation in columns.
    fn unrotated(
        &mut self,
        shape: &Shape,
        source: &Source<'_>,
        samples: &mut Samples,
        block: &Block<'_>,
        s: usize,
    ) -> usize {
        let window = samples.linear(shape, source, block.first, block.spectra);
        let at = self.unrotated.values_mut().as_mut_ptr();
        let sums = Sums { at, spectrum: 0, imaginary: shape.padded };
        let window = window[s * shape.hop..].as_ptr();
        // SAFETY: the sample buffer holds the block's windows and one padded row beyond them.
        unsafe { fir::single(shape.level, &shape.filter, window, shape.columns, sums) };
        let start = u128::from(block.first + s as u64) * shape.hop as u128;
        (start % shape.columns as u128) as usize
    }

    /// Computes windowed sums and the first step of the transform.
    fn square(
        &mut self,
        shape: &Shape,
        source: &Source<'_>,
        samples: &mut Samples,
        block: &Block<'_>,
        twiddles: &[f32],
        spread: Spread,
    ) {
        let lanes = shape.lanes();
        let spectrum = shape.step_floats();
        let rows = self.rows.values_mut().as_mut_ptr();
        let first = First { twiddles, rows, spectrum, spread };
        if shape.overlaps() {
            for s in 0..block.spectra {
                let rotation = self.unrotated(shape, source, samples, block, s);
                let sums = self.sums.values_mut();
                scatter(shape, rotation, self.unrotated.values(), sums);
                let groups = shape.filter.blocks / lanes;
                let first = First { rows: rows.wrapping_add(s * spectrum), ..first };
                // SAFETY: the sums and rows of the spectrum are complete.
                unsafe { fir::steps(shape.level, groups, sums.as_ptr(), first) };
            }
            return;
        }
        samples.rows(shape, source, block.first, block.spectra, &mut self.pointers);
        let at = self.sums.values_mut().as_mut_ptr();
        let sums = Sums { at, spectrum: 2 * lanes * lanes + 16, imaginary: lanes };
        let ahead = ahead(shape, source, samples, block);
        let listed = Rows { rows: &self.pointers, spectra: block.spectra };
        // SAFETY: the rows were just listed; the sums and rows are sized for a block of spectra.
        unsafe { fir::filter(shape.level, &shape.filter, listed, sums, Some(first), ahead) };
    }

    /// Transforms a block's sums with one spectrum per lane.
    fn batch(&mut self, shape: &Shape, passes: &passes::Passes, block: &mut Block<'_>) {
        let lanes = shape.lanes();
        let (rows, side) = (self.rows.values_mut(), self.side.values_mut());
        let spectrum = shape.spectrum_floats();
        let parts = [(0, 0), (shape.padded, lanes)];
        for block in 0..shape.padded / lanes {
            for (from, to) in parts {
                let from = self.sums.values()[from + block * lanes..].as_ptr();
                let to = rows[passes.spread().place(block * lanes) * 2 * lanes + to..].as_mut_ptr();
                // SAFETY: the sums hold `lanes` spectra, and the buffer has a row for every column.
                unsafe { transpose(shape.level, from, spectrum, to, 2 * lanes) };
            }
        }
        let target = Target { at: side.as_mut_ptr(), row: 2 * lanes, imaginary: lanes };
        // SAFETY: both buffers have one row per point.
        unsafe { passes::transform(shape.level, passes, rows.as_mut_ptr(), target) };
        for block_of_bins in 0..shape.padded / lanes {
            for (to, from) in parts {
                let from = side[block_of_bins * lanes * 2 * lanes + from..].as_ptr();
                let to = block.to[to + block_of_bins * lanes..].as_mut_ptr();
                // SAFETY: the block has space for `lanes` spectra.
                unsafe { transpose(shape.level, from, 2 * lanes, to, spectrum) };
            }
        }
    }
}

/// Rotates one spectrum's sums and stores them in the order of the first step: by group, then by block.
fn scatter(shape: &Shape, rotation: usize, unrotated: &[f32], sums: &mut [f32]) {
    let (lanes, columns) = (shape.lanes(), shape.columns);
    let groups = columns / lanes / lanes;
    let mut column = 0;
    while column < columns {
        let to = (column + rotation) % columns;
        let lane = to % lanes;
        let count = (lanes - lane).min(columns - column);
        let (n1, group) = (to / lanes / groups, to / lanes % groups);
        let at = (group * lanes + n1) * 2 * lanes + lane;
        sums[at..at + count].copy_from_slice(&unrotated[column..column + count]);
        let imaginary = &unrotated[shape.padded + column..][..count];
        sums[at + lanes..at + lanes + count].copy_from_slice(imaginary);
        column += count;
    }
}

/// Returns the memory to prefetch: the bytes of the next block's new rows.
fn ahead(shape: &Shape, source: &Source<'_>, samples: &Samples, block: &Block<'_>) -> Ahead {
    let next = source.ahead(samples.next_sample(shape));
    let bits = source.encoding.sample_bits() * shape.column.samples();
    let bytes = next.len().min(block.spectra * shape.columns * bits / 8);
    let lines = bytes.div_ceil(64);
    Ahead { at: next.as_ptr(), lines, step: lines.div_ceil(shape.filter.blocks) }
}

/// Returns spectrum `s` of a block from its slot.
pub(super) fn spectrum<'a>(shape: &Shape, spectra: &'a [f32], s: usize) -> Spectrum<'a> {
    let floats = &spectra[shape.slot(s) * shape.spectrum_floats()..][..shape.spectrum_floats()];
    let (re, im) = floats.split_at(shape.padded);
    Spectrum { re: &re[..shape.columns], im: &im[..shape.columns] }
}

/// Combines the spectra `E` and `O` of even and odd samples of real input, transformed together as `Z = E + i O`:
/// computes `X[k] = E[k] + w^k O[k]`, `w = exp(-pi i / C)`, for k = 0 .. C - 1.
fn divide_pairs(level: Level, halves: &[f32], re: &mut [f32], im: &mut [f32]) {
    // SAFETY: the body is safe.
    unsafe { divide_each(level, halves, re, im) };
}

levels!(divide_each, divide_each_body, (halves: &[f32], re: &mut [f32], im: &mut [f32]));

/// # Safety
/// None beyond support for the SIMD level.
#[inline(always)]
unsafe fn divide_each_body<V: Vector>(halves: &[f32], re: &mut [f32], im: &mut [f32]) {
    let channels = re.len();
    (re[0], im[0]) = (re[0] + im[0], 0.0);
    if channels.is_multiple_of(2) {
        im[channels / 2] = -im[channels / 2];
    }
    // Bins 1 .. middle, and their mirror bins.
    let middle = channels.div_ceil(2);
    let upper = channels - middle + 1;
    let (low_re, high_re) = re.split_at_mut(upper);
    let (low_im, high_im) = im.split_at_mut(upper);
    let count = middle - 1;
    let (low_re, low_im) = (&mut low_re[1..=count], &mut low_im[1..=count]);
    let (high_re, high_im) = (&mut high_re[..count], &mut high_im[..count]);
    let (cos, sin) = (&halves[1..=count], &halves[channels + 1..channels + 1 + count]);
    for i in 0..count {
        let j = count - 1 - i;
        let (a, b, c, d) = (low_re[i], low_im[i], high_re[j], high_im[j]);
        let (even_re, even_im) = (0.5 * (a + c), 0.5 * (b - d));
        let (odd_re, odd_im) = (0.5 * (b + d), 0.5 * (c - a));
        let twiddled_re = cos[i] * odd_re - sin[i] * odd_im;
        let twiddled_im = cos[i] * odd_im + sin[i] * odd_re;
        (low_re[i], low_im[i]) = (even_re + twiddled_re, even_im + twiddled_im);
        (high_re[j], high_im[j]) = (even_re - twiddled_re, twiddled_im - even_im);
    }
}

levels!(transpose, transpose_body, (from: *const f32, from_row: usize, to: *mut f32, to_row: usize));

/// Transposes `LANES` rows of `LANES` floats.
///
/// # Safety
/// Both arrays must hold `LANES` rows, `from_row` and `to_row` floats apart.
#[inline(always)]
unsafe fn transpose_body<V: Vector>(
    from: *const f32,
    from_row: usize,
    to: *mut f32,
    to_row: usize,
) {
    // SAFETY: forwards the caller's guarantee.
    unsafe {
        let mut x = [V::splat(0.0); 16];
        for (i, x) in x.iter_mut().enumerate().take(V::LANES) {
            *x = V::load(from.add(i * from_row));
        }
        V::transpose(&mut x);
        for (i, x) in x.iter().enumerate().take(V::LANES) {
            x.store(to.add(i * to_row));
        }
    }
}
