//! Samples that the next windows need: every stream's recorded bytes between calls, and one stream's columns in a task.
//!
//! Invariant: within a task each sample is converted once; a recorded byte is moved about as often as it is appended.

use super::decode::Source;
use super::fir::{Row, SPARE};
use super::memory::Floats;
use super::shape::Shape;
use crate::voltage::{VoltageEncoding, Voltages};

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
