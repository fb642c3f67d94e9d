//! Tasks of one call: each computes and writes a range of spectra of one antenna's recorded channel.
//!
//! Invariant: groups of summed spectra are anchored to the stream's first spectrum; a task holds whole groups, except
//! at the ends of a call.
#![allow(unsafe_code)]

use std::marker::PhantomData;
use std::sync::atomic::AtomicU64;

use super::decode::{Column, Source};
use super::forms::{self, Finish, Integers};
use super::memory::Floats;
use super::samples::{History, Samples};
use super::shape::Shape;
use super::spectra::{Block, Buffers, spectrum};
use crate::backend::vector::fence;
use crate::channelize::plan::{Detection, Form, Output, Plan};
use crate::voltage::Voltages;

/// Maximum number of spectra per group; longer rows are sums of groups.
const MOST_IN_GROUP: usize = 256;

/// Tasks per thread and round, if rows have several groups.
pub(super) const ROUND: usize = 4;

/// Spectra per row and per group.
#[derive(Clone, Copy, Debug)]
pub(super) struct Groups {
    row: u64,
    group: u64,
}

impl Groups {
    pub(super) fn new(plan: &Plan) -> Self {
        let row = plan.spectra_per_row();
        let group = row.min(MOST_IN_GROUP.max((8 * plan.taps()).next_power_of_two()));
        Self { row: row as u64, group: group as u64 }
    }

    /// Returns the groups per row.
    pub(super) fn in_row(&self) -> u64 {
        self.row.div_ceil(self.group)
    }

    /// Returns the group of a spectrum.
    fn group(&self, spectrum: u64) -> u64 {
        spectrum / self.row * self.in_row() + spectrum % self.row / self.group
    }

    /// Returns a group's first spectrum.
    fn start(&self, group: u64) -> u64 {
        group / self.in_row() * self.row + group % self.in_row() * self.group
    }

    /// Returns whether a spectrum is the first of its group.
    pub(super) fn begins(&self, spectrum: u64) -> bool {
        self.start(self.group(spectrum)) == spectrum
    }

    /// Returns whether a spectrum is the last of its group.
    pub(super) fn ends(&self, spectrum: u64) -> bool {
        self.begins(spectrum + 1)
    }
}

/// Tasks of a call: each is one unit (an antenna's recorded channel) and a range of spectra.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tasks {
    pub(super) count: usize,
    units: usize,
    first: u64,
    last: u64,
    /// Groups per task.
    groups: u64,
}

impl Tasks {
    /// Divides the spectra `first .. last` of all units into a few tasks per thread, long enough that their overlap
    /// of `taps - 1` rows costs little.
    pub(super) fn new(
        shape: &Shape,
        groups: &Groups,
        (first, last): (u64, u64),
        units: usize,
        threads: usize,
    ) -> Self {
        let total = groups.group(last - 1) - groups.group(first) + 1;
        let own = if groups.in_row() > 1 {
            1
        } else if threads == 1 {
            total
        } else {
            let parts = (4 * threads).div_ceil(units) as u64;
            let least = (4 * shape.plan.taps()).next_multiple_of(2 * shape.block) as u64;
            let spectra = (total * groups.row).div_ceil(parts).max(least);
            spectra.next_multiple_of(shape.block as u64).div_ceil(groups.row)
        };
        let count = units * total.div_ceil(own) as usize;
        Self { count, units, first, last, groups: own }
    }

    /// Returns a task's unit and spectra; tasks are ordered by spectra, then by unit.
    pub(super) fn task(&self, groups: &Groups, index: usize) -> (usize, (u64, u64)) {
        let (unit, part) = (index % self.units, (index / self.units) as u64);
        let group = groups.group(self.first) + part * self.groups;
        let end = groups.start(group + self.groups).min(self.last);
        (unit, (groups.start(group).max(self.first), end))
    }
}

/// A slice of which concurrent tasks access disjoint parts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shared<'a, T> {
    at: *mut T,
    length: usize,
    slice: PhantomData<&'a mut [T]>,
}

// SAFETY: tasks access disjoint parts only, as `Shared::part` requires of its callers.
unsafe impl<T: Send> Sync for Shared<'_, T> {}

impl<'a, T> Shared<'a, T> {
    pub(super) fn new(slice: &'a mut [T]) -> Self {
        Self { at: slice.as_mut_ptr(), length: slice.len(), slice: PhantomData }
    }

    /// Returns a part of the slice.
    ///
    /// # Safety
    /// No other reference to any element of the part may exist.
    unsafe fn part(self, start: usize, length: usize) -> &'a mut [T] {
        assert!(start + length <= self.length);
        // SAFETY: within the slice; the caller guarantees exclusive access.
        unsafe { std::slice::from_raw_parts_mut(self.at.add(start), length) }
    }
}

/// Output location of rows.
#[derive(Debug)]
pub(super) struct Target<'a> {
    pub(super) bytes: usize,
    /// Complex values and sums, or integers; the other one is empty.
    floats: Shared<'a, f32>,
    integers: Shared<'a, u8>,
}

impl<'a> Target<'a> {
    pub(super) fn new(output: Output<'a>) -> Self {
        let (floats, integers): (&mut [f32], &mut [u8]) = match output {
            Output::Complex(values) => (bytemuck::cast_slice_mut(values), &mut []),
            Output::F32(values) => (values, &mut []),
            Output::Bytes(bytes) => (&mut [], bytes),
        };
        Self {
            bytes: size_of_val(floats) + integers.len(),
            floats: Shared::new(floats),
            integers: Shared::new(integers),
        }
    }
}

/// Buffers of one thread.
#[derive(Debug)]
pub(super) struct Scratch {
    /// One element per polarization.
    samples: Vec<Samples>,
    spectra: Vec<Floats>,
    buffers: Buffers,
    /// Offset of each polarization's channels in a row, for the task's unit.
    offsets: Vec<usize>,
    /// Sums of the group; axes: product, bin.
    sums: Vec<f32>,
    ordered: Vec<f32>,
}

impl Scratch {
    pub(super) fn new(shape: &Shape) -> Self {
        let polarizations = shape.plan.input().polarizations;
        let is_detected = matches!(shape.plan.options().form, Form::Detected(_));
        let spectra = Floats::new(shape.block * shape.spectrum_floats());
        Self {
            samples: vec![Samples::new(shape); polarizations],
            spectra: vec![spectra; polarizations],
            buffers: Buffers::new(shape),
            offsets: vec![0; polarizations],
            sums: vec![0.0; if is_detected { shape.sums() } else { 0 }],
            ordered: vec![0.0; if is_detected { shape.plan.channels() } else { 0 }],
        }
    }
}

/// State shared by all tasks of a call.
pub(super) struct Job<'a> {
    pub(super) shape: &'a Shape,
    pub(super) groups: &'a Groups,
    pub(super) history: &'a History,
    pub(super) fresh: Voltages<'a>,
    /// First row of the output.
    pub(super) first_row: u64,
    pub(super) target: Target<'a>,
    /// Whether rows are written with non-temporal stores.
    pub(super) streams: bool,
    pub(super) saturated: &'a [AtomicU64],
    pub(super) carried: &'a [f32],
    pub(super) left: Shared<'a, f32>,
    pub(super) slots: Shared<'a, f32>,
}

impl Job<'_> {
    /// Computes the spectra `start .. end` of a unit.
    pub(super) fn task(
        &self,
        own: &mut Scratch,
        unit: usize,
        (start, end): (u64, u64),
        slot: usize,
    ) {
        let shape = self.shape;
        own.samples.iter_mut().for_each(|samples| samples.start(shape, start));
        if !self.shape.is_detected() {
            let first = self.first_row;
            let offset = |(p, offset): (usize, &mut usize)| *offset = self.offset(unit, p, first);
            own.offsets.iter_mut().enumerate().for_each(offset);
        }
        let sums = own.sums.len();
        if self.groups.begins(start) {
            own.sums.fill(0.0);
        } else {
            own.sums.copy_from_slice(&self.carried[unit * sums..][..sums]);
        }
        let mut first = start;
        while first < end {
            let spectra = (shape.block as u64).min(end - first) as usize;
            for polarization in 0..own.samples.len() {
                let source = self.source(unit, polarization);
                let to = own.spectra[polarization].values_mut();
                let samples = &mut own.samples[polarization];
                let mut block = Block { first, spectra, to };
                own.buffers.prepare(shape, &source, samples, &mut block);
                for s in 0..spectra {
                    if self.finish_in_place(own, polarization, (first, s)) {
                        continue;
                    }
                    own.buffers.finish(shape, s, own.spectra[polarization].values_mut());
                    if shape.writes_at_once() {
                        self.write(own, (unit, polarization), (first, s), slot);
                    }
                }
            }
            if !shape.writes_at_once() {
                for s in 0..spectra {
                    self.write(own, (unit, 0), (first, s), slot);
                }
            }
            first += spectra as u64;
        }
        if sums > 0 && !self.groups.ends(end - 1) {
            // SAFETY: only one task per unit ends at the end of the call.
            unsafe { self.left.part(unit * sums, sums) }.copy_from_slice(&own.sums);
        }
        own.buffers.flush(shape);
        if self.streams {
            fence();
        }
    }

    fn source(&self, unit: usize, polarization: usize) -> Source<'_> {
        let plan = &self.shape.plan;
        let (antenna, place) = self.place(unit);
        let stream = plan.stream(antenna, plan.coarse_channel(place), polarization);
        Source {
            encoding: plan.input().encoding,
            column: self.shape.column,
            stored: self.history.row(stream),
            stored_start: self.history.start(),
            fresh: self.fresh.row(stream),
            fresh_start: self.history.end(),
        }
    }

    /// Returns a unit's antenna and the output index of its recorded channel.
    fn place(&self, unit: usize) -> (usize, usize) {
        let coarse = self.shape.plan.input().coarse_channels;
        (unit / coarse, unit % coarse)
    }

    /// Returns the first output element of a product's channels.
    fn offset(&self, unit: usize, product: usize, row: u64) -> usize {
        let plan = &self.shape.plan;
        let (antenna, place) = self.place(unit);
        let rows = (row - self.first_row) as usize;
        rows * plan.row_elements() + plan.row_offset(antenna, product, place)
    }

    /// Returns the first output element of a polarization's channels in a spectrum's row, for the task's unit.
    fn element(&self, own: &Scratch, polarization: usize, number: u64) -> usize {
        let row = (number - self.first_row) as usize;
        row * self.shape.plan.row_elements() + own.offsets[polarization]
    }

    /// Completes the transform of spectrum `s` directly in the output, if possible.
    fn finish_in_place(
        &self,
        own: &mut Scratch,
        polarization: usize,
        (first, s): (u64, usize),
    ) -> bool {
        let Some(rotation) = self.shape.rotation else { return false };
        let offset = self.element(own, polarization, first + s as u64);
        // SAFETY: each spectrum has its own range of a row.
        let to = unsafe { self.target.floats.part(2 * offset, 2 * self.shape.columns) };
        own.buffers.finish_in_place(self.shape, s, to, (rotation, self.streams))
    }

    /// Writes or accumulates spectrum `s` of the block that begins with spectrum `first`.
    fn write(
        &self,
        own: &mut Scratch,
        (unit, polarization): (usize, usize),
        (first, s): (u64, usize),
        slot: usize,
    ) {
        let shape = self.shape;
        let number = first + s as u64;
        let spectra = own.spectra[polarization].values();
        match &shape.plan.options().form {
            Form::Spectra | Form::Filtered => {
                self.complex(spectra, s, self.element(own, polarization, number));
            }
            Form::Requantized { bits, gains } => {
                let offset = self.element(own, polarization, number);
                self.requantize((*bits, gains), spectra, (unit, polarization), (offset, s));
            }
            Form::Detected(detection) => {
                self.detect(own, detection, s);
                if self.groups.ends(number) {
                    self.finish_group(own, detection, (unit, number), slot);
                }
            }
        }
    }

    fn complex(&self, spectra: &[f32], s: usize, offset: usize) {
        let shape = self.shape;
        let channels = shape.plan.output_channels();
        // SAFETY: each spectrum has its own range of a row.
        let to = unsafe { self.target.floats.part(2 * offset, 2 * channels) };
        let from = spectrum(shape, spectra, s);
        if shape.column == Column::Pair && shape.plan.options().form == Form::Filtered {
            let parts = from.re.iter().zip(from.im);
            for (to, (even, odd)) in to.chunks_exact_mut(4).zip(parts) {
                to.copy_from_slice(&[*even, 0.0, *odd, 0.0]);
            }
            return;
        }
        // SAFETY: the segments partition a spectrum, and `to` has its length.
        unsafe {
            forms::complex(shape.level, from, &shape.segments, to.as_mut_ptr(), self.streams)
        };
    }

    fn requantize(
        &self,
        (bits, gains): (usize, &[f32]),
        spectra: &[f32],
        (unit, polarization): (usize, usize),
        (offset, s): (usize, usize),
    ) {
        let plan = &self.shape.plan;
        let (channels, bytes) = (plan.channels(), plan.element_bytes());
        // SAFETY: each spectrum has its own range of a row.
        let to = unsafe { self.target.integers.part(offset * bytes, channels * bytes) };
        let (antenna, place) = self.place(unit);
        let gains = if gains.len() == 1 { gains } else { &gains[place * channels..][..channels] };
        let saturated =
            &self.saturated[plan.row_offset(antenna, polarization, place)..][..channels];
        let integers = Integers { bits, gains, segments: &self.shape.segments, saturated };
        integers.write(self.shape.level, spectrum(self.shape, spectra, s), to);
    }

    fn detect(&self, own: &mut Scratch, detection: &Detection, s: usize) {
        let shape = self.shape;
        let x = spectrum(shape, own.spectra[0].values(), s);
        let y = own.spectra.last().map_or(x, |spectra| spectrum(shape, spectra.values(), s));
        let both = [x, y];
        let spectra = &both[..own.spectra.len()];
        forms::detect(shape.level, detection, spectra, shape.plan.channels(), &mut own.sums);
    }

    /// Writes a group's sums as a row, or stores them until the row is complete.
    fn finish_group(
        &self,
        own: &mut Scratch,
        detection: &Detection,
        (unit, number): (usize, u64),
        slot: usize,
    ) {
        let sums = own.sums.len();
        if self.groups.in_row() > 1 {
            // SAFETY: each task has its own slot.
            unsafe { self.slots.part(slot * sums, sums) }.copy_from_slice(&own.sums);
        } else {
            self.finish_row(detection, (unit, number), &mut own.sums, &mut own.ordered);
        }
        own.sums.fill(0.0);
    }

    fn finish_row(
        &self,
        detection: &Detection,
        (unit, number): (usize, u64),
        sums: &mut [f32],
        ordered: &mut [f32],
    ) {
        let plan = &self.shape.plan;
        let channels = plan.channels();
        let finish = Finish {
            detection,
            segments: &self.shape.segments,
            channels,
            is_complex: plan.input().encoding.is_complex(),
        };
        let row = number / plan.spectra_per_row() as u64;
        for (product, sums) in sums.chunks_exact_mut(channels).enumerate() {
            let offset = self.offset(unit, product, row);
            // SAFETY: each product of a unit has its own range of a row.
            let to = unsafe { self.target.floats.part(offset, plan.output_channels()) };
            finish.product(sums, ordered, to);
        }
    }

    /// Adds a task's finished group to its row and writes the row if complete; groups must come in order.
    pub(super) fn join(
        &self,
        own: &mut Scratch,
        unit: usize,
        (_, end): (u64, u64),
        slot: usize,
        rows: &mut [f32],
    ) {
        let Form::Detected(detection) = &self.shape.plan.options().form else { return };
        if !self.groups.ends(end - 1) {
            return;
        }
        let sums = own.sums.len();
        let row = &mut rows[unit * sums..][..sums];
        // SAFETY: all tasks of the round have ended.
        let group = unsafe { self.slots.part(slot * sums, sums) };
        row.iter_mut().zip(&*group).for_each(|(row, group)| *row += *group);
        if end.is_multiple_of(self.shape.plan.spectra_per_row() as u64) {
            self.finish_row(detection, (unit, end - 1), row, &mut own.ordered);
            row.fill(0.0);
        }
    }
}
