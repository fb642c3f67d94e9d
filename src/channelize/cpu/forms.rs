//! Conversion of a spectrum, while it is in the cache, to its output form: complex values, powers, integers.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicU64, Ordering};

use super::shape::Segment;
use crate::backend::simd::Level;
use crate::backend::vector::{Vector, levels};
use crate::channelize::plan::{Detection, Feed, Products};

/// One spectrum in FFT order.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spectrum<'a> {
    pub(super) re: &'a [f32],
    pub(super) im: &'a [f32],
}

levels!(complex, complex_body, (
    spectrum: Spectrum<'_>,
    segments: &[Segment],
    to: *mut f32,
    streams: bool,
));

/// Writes complex values in output order; `streams` selects non-temporal stores.
///
/// # Safety
/// The segments must lie in the spectrum, and `to` must have space for all their channels.
#[inline(always)]
unsafe fn complex_body<V: Vector>(
    spectrum: Spectrum<'_>,
    segments: &[Segment],
    to: *mut f32,
    streams: bool,
) {
    let channels: usize = segments.iter().map(|segment| segment.channels).sum();
    if streams && channels <= MAX_INLINE_CHANNELS {
        let mut row = [0f32; 2 * MAX_INLINE_CHANNELS];
        // SAFETY: `row` has space for all channels, and `to` by the caller's guarantee.
        unsafe {
            each_segment::<V>(spectrum, segments, row.as_mut_ptr(), false);
            stream::<V>(&row[..2 * channels], to);
        }
        return;
    }
    // SAFETY: forwards the caller's guarantee.
    unsafe { each_segment::<V>(spectrum, segments, to, streams) };
}

/// Maximum number of channels for which a spectrum is assembled before it is written with non-temporal stores, so
/// that it has only one partial cache line at each end.
const MAX_INLINE_CHANNELS: usize = 512;

/// Writes floats with non-temporal stores, except for partial cache lines at both ends.
///
/// # Safety
/// `to` must have space for all floats.
#[inline(always)]
unsafe fn stream<V: Vector>(from: &[f32], to: *mut f32) {
    let head = (to.addr().wrapping_neg() % 64 / 4).min(from.len());
    let whole = if to.addr().is_multiple_of(4) { (from.len() - head) / V::LANES } else { 0 };
    let tail = head + whole * V::LANES;
    // SAFETY: all indices are below the number of floats.
    unsafe {
        for i in (0..head).chain(tail..from.len()) {
            *to.add(i) = from[i];
        }
        for i in (head..tail).step_by(V::LANES) {
            V::load(from.as_ptr().add(i)).stream(to.add(i));
        }
    }
}

/// # Safety
/// Same requirements as for [`complex`].
#[inline(always)]
unsafe fn each_segment<V: Vector>(
    spectrum: Spectrum<'_>,
    segments: &[Segment],
    to: *mut f32,
    streams: bool,
) {
    for segment in segments {
        let end = segment.bin + segment.channels;
        let (re, im) = (&spectrum.re[segment.bin..end], &spectrum.im[segment.bin..end]);
        // SAFETY: forwards the caller's guarantee.
        unsafe {
            let to = to.add(2 * segment.place);
            match (segment.descending, streams) {
                (false, false) => interleave::<V, false, false>(re, im, to),
                (false, true) => interleave::<V, false, true>(re, im, to),
                (true, false) => interleave::<V, true, false>(re, im, to),
                (true, true) => interleave::<V, true, true>(re, im, to),
            }
        }
    }
}

/// # Safety
/// `to` must have space for `re` and `im`, which have equal lengths.
#[inline(always)]
unsafe fn interleave<V: Vector, const DESCENDING: bool, const STREAMS: bool>(
    re: &[f32],
    im: &[f32],
    to: *mut f32,
) {
    let count = re.len();
    let place = |i: usize| if DESCENDING { count - 1 - i } else { i };
    // Number of 8-byte complex values up to the next cache line, if a value can start there.
    let line = 64 - (to.addr() % 64);
    let head = if !STREAMS { 0 } else { (line % 64 / 8).min(count) };
    let streams = STREAMS && line.is_multiple_of(8);
    // SAFETY: all indices are below `count`.
    unsafe {
        for i in 0..head {
            *to.add(2 * i) = re[place(i)];
            *to.add(2 * i + 1) = im[place(i)];
        }
        let mut i = head;
        while i + V::LANES <= count {
            let (first, second) = if DESCENDING {
                let from = count - i - V::LANES;
                let re = V::load(re.as_ptr().add(from)).reverse();
                re.interleave(V::load(im.as_ptr().add(from)).reverse())
            } else {
                V::load(re.as_ptr().add(i)).interleave(V::load(im.as_ptr().add(i)))
            };
            let to = to.add(2 * i);
            if streams {
                first.stream(to);
                second.stream(to.add(V::LANES));
            } else {
                first.store(to);
                second.store(to.add(V::LANES));
            }
            i += V::LANES;
        }
        for i in i..count {
            *to.add(2 * i) = re[place(i)];
            *to.add(2 * i + 1) = im[place(i)];
        }
    }
}

/// Expression of one product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Term {
    First,
    Second,
    Both,
    Difference,
    Real,
    Imaginary,
    TwiceReal,
    TwiceImaginary,
}

fn terms(detection: &Detection, polarizations: usize) -> &'static [Term] {
    use Term::{Both, Difference, First, Imaginary, Real, Second, TwiceImaginary, TwiceReal};
    match (detection.products, detection.feed) {
        (Products::Power, _) if polarizations == 2 => &[First, Second],
        (Products::I, _) if polarizations == 2 => &[Both],
        (Products::Power | Products::I, _) => &[First],
        (Products::Iquv, Feed::Linear) => &[Both, Difference, TwiceReal, TwiceImaginary],
        (Products::Iquv, Feed::Circular) => &[Both, TwiceReal, TwiceImaginary, Difference],
        (Products::Aabbcrci, _) => &[First, Second, Real, Imaginary],
    }
}

/// Adds the products of one spectrum of each polarization to the sums; axes: product, bin.
pub(super) fn detect(
    level: Level,
    detection: &Detection,
    spectra: &[Spectrum<'_>],
    channels: usize,
    sums: &mut [f32],
) {
    let (Some(&x), Some(&y)) = (spectra.first(), spectra.last()) else { return };
    let terms = terms(detection, spectra.len());
    for (term, sums) in terms.iter().zip(sums.chunks_exact_mut(channels)) {
        // SAFETY: the body is safe; the spectra are cut to the length of the sums.
        unsafe { add_term(level, *term, x, y, sums) };
    }
}

levels!(add_term, add_term_body, (term: Term, x: Spectrum<'_>, y: Spectrum<'_>, sums: &mut [f32]));

/// Adds one product.
///
/// # Safety
/// None beyond support for the SIMD level.
#[inline(always)]
unsafe fn add_term_body<V: Vector>(term: Term, x: Spectrum<'_>, y: Spectrum<'_>, sums: &mut [f32]) {
    match term {
        Term::First => add(x, y, sums, |a, b, _, _| a * a + b * b),
        Term::Second => add(x, y, sums, |_, _, c, d| c * c + d * d),
        Term::Both => add(x, y, sums, |a, b, c, d| (a * a + b * b) + (c * c + d * d)),
        Term::Difference => add(x, y, sums, |a, b, c, d| (a * a + b * b) - (c * c + d * d)),
        Term::Real => add(x, y, sums, |a, b, c, d| a * c + b * d),
        Term::Imaginary => add(x, y, sums, |a, b, c, d| b * c - a * d),
        Term::TwiceReal => add(x, y, sums, |a, b, c, d| 2.0 * (a * c + b * d)),
        Term::TwiceImaginary => add(x, y, sums, |a, b, c, d| 2.0 * (b * c - a * d)),
    }
}

#[inline(always)]
fn add(
    x: Spectrum<'_>,
    y: Spectrum<'_>,
    sums: &mut [f32],
    product: impl Fn(f32, f32, f32, f32) -> f32,
) {
    let count = sums.len();
    let (a, b, c, d) = (&x.re[..count], &x.im[..count], &y.re[..count], &y.im[..count]);
    for i in 0..count {
        sums[i] += product(a[i], b[i], c[i], d[i]);
    }
}

/// Conversion of finished sums to a part of an output row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Finish<'a> {
    pub(super) detection: &'a Detection,
    pub(super) segments: &'a [Segment],
    pub(super) channels: usize,
    /// Whether bin -1 is the highest bin; real input has no bin -1.
    pub(super) is_complex: bool,
}

impl Finish<'_> {
    /// Interpolates, orders and sums the channels of one product; `ordered` is scratch.
    pub(super) fn product(&self, sums: &mut [f32], ordered: &mut [f32], row: &mut [f32]) {
        if self.detection.interpolate_dc {
            let below = if self.is_complex { self.channels - 1 } else { 1 };
            sums[0] = 0.5 * (sums[1] + sums[below]);
        }
        for segment in self.segments {
            let from = &sums[segment.bin..segment.bin + segment.channels];
            let to = &mut ordered[segment.place..segment.place + segment.channels];
            if segment.descending {
                to.iter_mut().zip(from.iter().rev()).for_each(|(to, from)| *to = *from);
            } else {
                to.copy_from_slice(from);
            }
        }
        let parts = ordered.chunks_exact(self.detection.channels);
        row.iter_mut().zip(parts).for_each(|(sum, part)| *sum = part.iter().sum());
    }
}

/// Requantization of spectra to integers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Integers<'a> {
    pub(super) bits: usize,
    /// One gain, or one for each channel of the recorded channel in output order.
    pub(super) gains: &'a [f32],
    pub(super) segments: &'a [Segment],
    /// Number of clipped samples of each channel in output order.
    pub(super) saturated: &'a [AtomicU64],
}

/// Channels that are checked together for clipped values.
const CHUNK: usize = 64;

impl Integers<'_> {
    /// Requantizes and writes one spectrum.
    pub(super) fn write(&self, level: Level, spectrum: Spectrum<'_>, to: &mut [u8]) {
        for segment in self.segments {
            let end = segment.bin + segment.channels;
            let (re, im) = (&spectrum.re[segment.bin..end], &spectrum.im[segment.bin..end]);
            for start in (0..segment.channels).step_by(CHUNK) {
                let count = CHUNK.min(segment.channels - start);
                let place = segment.place + start;
                let (mut x, mut y) = ([0.0; CHUNK], [0.0; CHUNK]);
                for (part, out) in [(re, &mut x), (im, &mut y)] {
                    if segment.descending {
                        let from = part[segment.channels - start - count..][..count].iter().rev();
                        out.iter_mut().zip(from).for_each(|(out, from)| *out = *from);
                    } else {
                        out[..count].copy_from_slice(&part[start..start + count]);
                    }
                }
                self.chunk(level, &mut x[..count], &mut y[..count], place, to);
            }
        }
    }

    fn chunk(&self, level: Level, x: &mut [f32], y: &mut [f32], place: usize, to: &mut [u8]) {
        let most = (1i32 << (self.bits - 1)) as f32 - 1.0;
        let gains =
            if self.gains.len() == 1 { self.gains } else { &self.gains[place..][..x.len()] };
        let (mut limited, mut words) = ([0u8; CHUNK], [0u16; CHUNK]);
        let words = &mut words[..x.len()];
        // SAFETY: the bodies are safe.
        unsafe {
            whole(level, gains, x, y, most, &mut limited[..x.len()]);
            pack(level, x, y, self.bits, words);
        }
        for (eight, flags) in limited.as_chunks::<8>().0.iter().enumerate() {
            let mut left = u64::from_le_bytes(*flags);
            while left != 0 {
                let at = place + 8 * eight + left.trailing_zeros() as usize / 8;
                self.saturated[at].fetch_add(1, Ordering::Relaxed);
                left &= left - 1;
            }
        }
        if self.bits == 4 {
            to[place..].iter_mut().zip(words).for_each(|(to, word)| *to = *word as u8);
        } else {
            let to = to[2 * place..].chunks_exact_mut(2);
            to.zip(words).for_each(|(to, word)| to.copy_from_slice(&word.to_le_bytes()));
        }
    }
}

levels!(pack, pack_body, (x: &[f32], y: &[f32], bits: usize, words: &mut [u16]));

/// Clips whole numbers and packs both parts into one byte, or into two in little-endian order.
///
/// # Safety
/// None beyond support for the SIMD level.
#[inline(always)]
unsafe fn pack_body<V: Vector>(x: &[f32], y: &[f32], bits: usize, words: &mut [u16]) {
    let parts = words.iter_mut().zip(x.iter().zip(y));
    if bits == 4 {
        let part = |value: f32| limited_bits(value, 7.0) & 15;
        parts.for_each(|(word, (x, y))| *word = part(*x) << 4 | part(*y));
    } else {
        let part = |value: f32| limited_bits(value, 127.0) & 255;
        parts.for_each(|(word, (x, y))| *word = part(*y) << 8 | part(*x));
    }
}

/// Returns the low bits of a whole number in two's complement; 0 for NaN.
#[inline(always)]
fn limited_bits(value: f32, most: f32) -> u16 {
    /// A float of this magnitude (1.5 x 2^23) has unit spacing, so its low bits are a whole number.
    const WHOLE: f32 = 12_582_912.0;
    let value = if value > most { most } else { value };
    let value = if value < -most - 1.0 { -most - 1.0 } else { value };
    let bits = (value + WHOLE).to_bits() as u16;
    if value.is_nan() { 0 } else { bits }
}

/// Returns whether a value is in range; false for NaN.
#[inline(always)]
fn is_within(whole: f32, most: f32) -> bool {
    (-most - 1.0..=most).contains(&whole)
}

levels!(whole, whole_body, (
    gains: &[f32],
    x: &mut [f32],
    y: &mut [f32],
    most: f32,
    limited: &mut [u8],
));

/// Rounds each value times its gain and marks those out of range.
///
/// # Safety
/// None beyond support for the SIMD level.
#[inline(always)]
unsafe fn whole_body<V: Vector>(
    gains: &[f32],
    x: &mut [f32],
    y: &mut [f32],
    most: f32,
    limited: &mut [u8],
) {
    for part in [x, y] {
        if let [gain] = gains {
            part.iter_mut().for_each(|value| *value = (*value * gain).round_ties_even());
        } else {
            let pairs = part.iter_mut().zip(gains);
            pairs.for_each(|(value, gain)| *value = (*value * gain).round_ties_even());
        }
        let pairs = limited.iter_mut().zip(part);
        pairs.for_each(|(limited, value)| *limited |= u8::from(!is_within(*value, most)));
    }
}
