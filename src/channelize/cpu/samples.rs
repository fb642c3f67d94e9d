//! One stream's samples as columns, from the start of the next window.
//!
//! Invariant: within a task each sample is converted once.

use super::decode::Source;
use super::fir::SPARE;
use super::memory::Floats;
use super::rows::Row;
use super::shape::Shape;

/// Rows or columns prepared for the windows of the next spectra.
#[derive(Clone, Debug)]
pub(super) struct Samples {
    data: Floats,
    /// Next row to convert if windows share whole rows; otherwise the next column.
    next: u64,
    /// First column of the linear buffer.
    origin: u64,
    /// Row that spans the history and the new bytes.
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
        (first, spectra): (u64, usize),
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
        // Surplus sums may read any row.
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
        (first, spectra): (u64, usize),
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
