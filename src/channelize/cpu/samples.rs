//! Samples under the windows: decoding to floats, history of each stream, and rows of columns.
#![allow(unsafe_code)]

use super::fir::{Row, SPARE};
use super::shape::{Column, Shape};
use crate::backend::simd::Level;
use crate::backend::vector::{Floats, Vector, levels};
use crate::voltage::{TWO_BIT_HIGH, VoltageEncoding, Voltages, ten_bits, voltage};

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
        if early > 0 {
            decode(
                level,
                self.encoding,
                self.column,
                self.stored,
                (start - self.stored_start) as usize,
                re,
                im,
            );
        }
        if !late_re.is_empty() {
            let first = start + early as u64 * samples - self.fresh_start;
            decode(level, self.encoding, self.column, self.fresh, first as usize, late_re, late_im);
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
    encoding: VoltageEncoding,
    column: Column,
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
    let step = match encoding {
        E::Real2 => 2,
        E::Real10 => TEN_BIT_COLUMNS,
        _ => V::LANES,
    };
    *done = re.len() / step * step;
    let (re, im) = (re[..*done].as_mut_ptr(), im[..*done].as_mut_ptr());
    let from = bytes.as_ptr();
    // SAFETY: the caller guarantees the bytes, and the columns fill whole registers.
    unsafe {
        for at in (0..*done).step_by(step) {
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
                E::Real10 => {
                    let mut words = [0_u8; 4 * TEN_BIT_COLUMNS];
                    ten_bits::unpack(&bytes[at / 2 * 5..][..TEN_BIT_COLUMNS / 2 * 5], &mut words);
                    for column in (0..TEN_BIT_COLUMNS).step_by(V::LANES) {
                        let words = V::load(words.as_ptr().add(4 * column));
                        words.field::<16, 16>().store(re.add(at + column));
                        words.field::<0, 16>().store(im.add(at + column));
                    }
                    continue;
                }
            };
            a.store(re.add(at));
            b.store(im.add(at));
        }
    }
}

/// Columns of 10-bit samples that are unpacked together: a multiple of the lanes of every register.
const TEN_BIT_COLUMNS: usize = 16;

/// Last samples of each stream.
#[derive(Clone, Debug)]
pub(super) struct History {
    encoding: VoltageEncoding,
    bytes: Vec<u8>,
    /// Bytes per stream.
    stride: usize,
    /// Offset of the stored bytes in each stream's segment.
    begin: usize,
    /// First stored sample.
    start: u64,
    /// One past the last stored sample.
    end: u64,
}

impl History {
    /// Allocates space for windows of `span` samples.
    pub(super) fn new(encoding: VoltageEncoding, streams: usize, span: usize) -> Self {
        let stride = encoding.bytes(2 * (span + 8).next_multiple_of(4));
        Self { encoding, bytes: vec![0; streams * stride], stride, begin: 0, start: 0, end: 0 }
    }

    pub(super) fn reset(&mut self) {
        (self.begin, self.start, self.end) = (0, 0, 0);
    }

    /// Returns the first stored sample.
    pub(super) fn start(&self) -> u64 {
        self.start
    }

    /// Returns one past the last stored sample.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// Returns one stream's stored bytes.
    pub(super) fn row(&self, stream: usize) -> &[u8] {
        &self.bytes[stream * self.stride + self.begin..][..self.length()]
    }

    fn length(&self) -> usize {
        self.encoding.bytes((self.end - self.start) as usize)
    }

    /// Appends all of `fresh`, at most one window.
    pub(super) fn append(&mut self, fresh: Voltages<'_>) {
        let length = self.length();
        let added = self.encoding.bytes(fresh.times());
        let moves = self.begin + length + added > self.stride;
        for (stream, row) in self.bytes.chunks_exact_mut(self.stride).enumerate() {
            if moves {
                row.copy_within(self.begin..self.begin + length, 0);
            }
            let to = if moves { length } else { self.begin + length };
            row[to..to + added].copy_from_slice(fresh.row(stream));
        }
        if moves {
            self.begin = 0;
        }
        self.end += fresh.times() as u64;
    }

    /// Appends `fresh` and discards the samples before `keep`, which no later window needs.
    pub(super) fn advance(&mut self, fresh: Voltages<'_>, keep: u64) {
        // Rounds down to whole bytes and whole pairs.
        let keep = keep / 4 * 4;
        if keep >= self.end {
            let skipped = self.encoding.bytes((keep - self.end) as usize);
            let end = self.end + fresh.times() as u64;
            (self.begin, self.start, self.end) = (0, keep, end);
            let length = self.length();
            for (stream, row) in self.bytes.chunks_exact_mut(self.stride).enumerate() {
                row[..length].copy_from_slice(&fresh.row(stream)[skipped..]);
            }
        } else {
            self.begin += self.encoding.bytes((keep.max(self.start) - self.start) as usize);
            self.start = self.start.max(keep);
            self.append(fresh);
        }
    }
}

/// Rows or columns prepared for the windows of the next spectra.
#[derive(Clone, Debug)]
pub(super) struct Samples {
    data: Floats,
    /// Next row to convert if windows share whole rows; otherwise the next column.
    next: u64,
    /// First column of the linear buffer.
    origin: u64,
    /// Copy of a row that begins in the history and ends in the new bytes.
    split: Vec<u8>,
}

impl Samples {
    pub(super) fn new(shape: &Shape) -> Self {
        Self {
            data: Floats::new(shape.sample_floats()),
            next: 0,
            origin: 0,
            split: vec![0; shape.row_bytes()],
        }
    }

    /// Discards all samples; the next spectrum is `spectrum`.
    pub(super) fn start(&mut self, shape: &Shape, spectrum: u64) {
        self.next = if shape.overlaps() { spectrum * shape.hop as u64 } else { spectrum };
        self.origin = self.next;
    }

    /// Returns one past the last converted sample.
    pub(super) fn next_sample(&self, shape: &Shape) -> u64 {
        let column = if shape.overlaps() { self.next } else { self.next * shape.columns as u64 };
        column * shape.column.samples() as u64
    }

    /// Lists the rows under the windows of `spectra` spectra from `first`, converting them if necessary.
    pub(super) fn rows(
        &mut self,
        shape: &Shape,
        source: &Source<'_>,
        first: u64,
        spectra: usize,
        rows: &mut Vec<*const u8>,
    ) {
        let end = first + (spectra + shape.plan.taps() - 1) as u64;
        rows.clear();
        if shape.filter.row == Row::Split {
            self.convert(shape, source, end);
            let (ring, stride) = (shape.ring_rows(), shape.ring_stride());
            let data = self.data.values();
            let start = (first % ring as u64) as usize;
            let slots = (start..ring).chain(0..ring).take((end - first) as usize);
            rows.extend(slots.map(|slot| data[slot * stride..].as_ptr().cast::<u8>()));
        } else {
            let samples = (shape.columns * shape.column.samples()) as u64;
            let row = |row| source.bytes(row * samples, &mut self.split).as_ptr();
            rows.extend((first..end).map(row));
            self.next = end;
        }
        // Unused sums may read any row, so the last one is repeated.
        let last = rows[rows.len() - 1];
        rows.extend([last; SPARE]);
    }

    /// Converts rows up to `end`.
    fn convert(&mut self, shape: &Shape, source: &Source<'_>, end: u64) {
        let (ring, stride) = (shape.ring_rows() as u64, shape.ring_stride());
        let samples = (shape.columns * shape.column.samples()) as u64;
        while self.next < end {
            let row = &mut self.data.values_mut()[(self.next % ring) as usize * stride..][..stride];
            let (re, im) = row.split_at_mut(shape.filter.imaginary);
            let (re, im) = (&mut re[..shape.columns], &mut im[..shape.columns]);
            source.columns(shape.level, self.next * samples, re, im);
            self.next += 1;
        }
    }

    /// Converts the missing samples of the windows of `spectra` spectra from `first`; returns the samples from the
    /// first window's start.
    pub(super) fn linear(
        &mut self,
        shape: &Shape,
        source: &Source<'_>,
        first: u64,
        spectra: usize,
    ) -> &[f32] {
        let samples = shape.column.samples() as u64;
        let span = shape.plan.span() as u64 / samples;
        let begin = first * shape.hop as u64;
        let end = begin + (spectra as u64 - 1) * shape.hop as u64 + span;
        let imaginary = shape.filter.imaginary;
        if end - self.origin > shape.linear_columns() as u64 {
            let from = (begin - self.origin) as usize;
            let count = (self.next - begin) as usize;
            let (re, im) = self.data.values_mut().split_at_mut(imaginary);
            re.copy_within(from..from + count, 0);
            im.copy_within(from..from + count, 0);
            self.origin = begin;
        }
        let (from, to) = ((self.next - self.origin) as usize, (end - self.origin) as usize);
        let (re, im) = self.data.values_mut().split_at_mut(imaginary);
        if to > from {
            source.columns(shape.level, self.next * samples, &mut re[from..to], &mut im[from..to]);
            self.next = end;
        }
        &self.data.values()[(begin - self.origin) as usize..]
    }
}
