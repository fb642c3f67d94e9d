//! Converts voltages of any encoding to single-precision columns, each only once.
//!
//! Invariant: a column is a complex sample, a pair of real ones (the even one first), or a real one and 0.
#![allow(unsafe_code)]

use crate::backend::simd::Level;
use crate::backend::vector::{Vector, levels};
use crate::voltage::{TWO_BIT_HIGH, VoltageEncoding, voltage};

/// Type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Column {
    Complex,
    Pair,
    Real,
}

impl Column {
    /// Returns the samples per column.
    pub(super) fn samples(self) -> usize {
        if self == Self::Pair { 2 } else { 1 }
    }
}

/// One stream's samples: those from the history, followed by the new ones.
#[derive(Clone, Copy, Debug)]
pub(super) struct Source<'a> {
    pub(super) encoding: VoltageEncoding,
    pub(super) column: Column,
    pub(super) stored: &'a [u8],
    /// Index in the stream of the first sample of `stored`, which begins a byte.
    pub(super) stored_start: u64,
    pub(super) fresh: &'a [u8],
    pub(super) fresh_start: u64,
}

impl<'a> Source<'a> {
    /// Writes the columns from sample `start` until `re` and `im` are full.
    pub(super) fn columns(&self, level: Level, start: u64, re: &mut [f32], im: &mut [f32]) {
        let samples = self.column.samples() as u64;
        let early = self.fresh_start.saturating_sub(start).div_ceil(samples);
        let early = (early as usize).min(re.len());
        let (re, late_re) = re.split_at_mut(early);
        let (im, late_im) = im.split_at_mut(early);
        let kinds = (self.encoding, self.column);
        if early > 0 {
            decode(level, kinds, self.stored, (start - self.stored_start) as usize, re, im);
        }
        if !late_re.is_empty() {
            let first = start + early as u64 * samples - self.fresh_start;
            decode(level, kinds, self.fresh, first as usize, late_re, late_im);
        }
    }

    /// Returns the bytes of the samples from `start`, which must begin a byte. If they span the history and the new
    /// samples, they are copied to `split`.
    pub(super) fn bytes<'b>(&self, start: u64, split: &'b mut [u8]) -> &'b [u8]
    where
        'a: 'b,
    {
        let bytes = |samples: u64| samples as usize * self.encoding.sample_bits() / 8;
        if start >= self.fresh_start {
            return &self.fresh[bytes(start - self.fresh_start)..][..split.len()];
        }
        let stored = &self.stored[bytes(start - self.stored_start)..];
        if stored.len() >= split.len() {
            return &stored[..split.len()];
        }
        split[..stored.len()].copy_from_slice(stored);
        let rest = split.len() - stored.len();
        split[stored.len()..].copy_from_slice(&self.fresh[..rest]);
        split
    }

    /// Returns the bytes of the new input from sample `start`, which the next columns will read.
    pub(super) fn ahead(&self, start: u64) -> &'a [u8] {
        let samples = start.saturating_sub(self.fresh_start);
        let byte = samples as usize * self.encoding.sample_bits() / 8;
        &self.fresh[byte.min(self.fresh.len())..]
    }
}

/// Decodes the columns from sample `first` of `bytes`.
fn decode(
    level: Level,
    (encoding, column): (VoltageEncoding, Column),
    bytes: &[u8],
    first: usize,
    re: &mut [f32],
    im: &mut [f32],
) {
    let bits = first * encoding.sample_bits();
    let column_bits = encoding.sample_bits() * column.samples();
    assert!((bits + column_bits * re.len()).div_ceil(8) <= bytes.len() && re.len() == im.len());
    let mut done = 0;
    if column != Column::Real && bits.is_multiple_of(8) {
        // SAFETY: `bytes` holds all columns, and both outputs have one float per column.
        unsafe { vectors(level, encoding, &bytes[bits / 8..], re, im, &mut done) };
    }
    for i in done..re.len() {
        let value = |at| voltage(bytes, encoding, first + at);
        (re[i], im[i]) = match column {
            Column::Complex => (value(i).re as f32, value(i).im as f32),
            Column::Pair => (value(2 * i).re as f32, value(2 * i + 1).re as f32),
            Column::Real => (value(i).re as f32, 0.0),
        };
    }
}

levels!(vectors, vectors_body, (
    encoding: VoltageEncoding,
    bytes: &[u8],
    re: &mut [f32],
    im: &mut [f32],
    done: &mut usize,
));

/// Decodes whole registers of columns and stores the number of columns in `done`.
///
/// # Safety
/// `bytes` must hold as many columns as `re` and `im` have floats.
#[inline(always)]
unsafe fn vectors_body<V: Vector>(
    encoding: VoltageEncoding,
    bytes: &[u8],
    re: &mut [f32],
    im: &mut [f32],
    done: &mut usize,
) {
    use VoltageEncoding as E;
    *done = if encoding == E::Real2 { re.len() / 2 * 2 } else { re.len() / V::LANES * V::LANES };
    let (re, im) = (re[..*done].as_mut_ptr(), im[..*done].as_mut_ptr());
    let from = bytes.as_ptr();
    // SAFETY: the caller guarantees the bytes, and the columns fill whole registers.
    unsafe {
        for at in (0..*done).step_by(if encoding == E::Real2 { 2 } else { V::LANES }) {
            let (a, b) = match encoding {
                E::ComplexF32 | E::RealF32 => {
                    let from = from.add(8 * at).cast::<f32>();
                    V::load(from).deinterleave(V::load(from.add(V::LANES)))
                }
                E::Complex16 | E::Real16 => {
                    let words = V::load(from.add(4 * at));
                    (words.field::<16, 16>(), words.field::<0, 16>())
                }
                E::Complex8 | E::Real8 => {
                    let words = V::widen_16_to_32(from.add(2 * at));
                    (words.field::<24, 24>(), words.field::<16, 24>())
                }
                E::ComplexOffset8 | E::RealOffset8 => {
                    let words = V::widen_16_to_32(from.add(2 * at)).xor(V::splat_32(0x8080));
                    (words.field::<24, 24>(), words.field::<16, 24>())
                }
                E::Complex4 => {
                    let words = V::widen_8_to_32(from.add(at));
                    (words.field::<24, 28>(), words.field::<28, 28>())
                }
                E::Real4 => {
                    let words = V::widen_8_to_32(from.add(at));
                    (words.field::<28, 28>(), words.field::<24, 28>())
                }
                E::Real2 => {
                    const LEVELS: [f32; 4] = [-TWO_BIT_HIGH, -1.0, 1.0, TWO_BIT_HIGH];
                    let byte = usize::from(*from.add(at / 2));
                    *re.add(at) = LEVELS[byte & 3];
                    *im.add(at) = LEVELS[byte >> 2 & 3];
                    *re.add(at + 1) = LEVELS[byte >> 4 & 3];
                    *im.add(at + 1) = LEVELS[byte >> 6];
                    continue;
                }
            };
            a.store(re.add(at));
            b.store(im.add(at));
        }
    }
}
