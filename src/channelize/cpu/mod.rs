//! Filter bank on the CPU. All threads compute windowed sums, transforms, detection and requantization in cache-sized
//! blocks. A task computes a range of spectra of one antenna's recorded channel.
//!
//! Invariant: the same bits for any split of a stream and any number of threads: groups of summed spectra are anchored
//! to the stream's first spectrum, and a task holds whole groups, except at the ends of a call.
#![allow(unsafe_code)]

mod fir;
mod forms;
mod passes;
mod samples;
mod shape;
mod spectra;

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use forms::{Finish, Integers, Spectrum};
use samples::{History, Samples, Source};
use shape::{Column, Shape};
use spectra::{Block, Buffers, spectrum};

use crate::backend::simd::Level;
use crate::backend::threads::Threads;
use crate::backend::vector::{Floats, fence};
use crate::channelize::plan::{Detection, Form, Output, Plan};
use crate::error::Result;
use crate::voltage::Voltages;

/// Output size in bytes from which non-temporal stores are used, because so much output would not stay in the caches.
const STREAMED_BYTES: usize = 1 << 22;

/// Plan bound to a SIMD level and threads.
pub(super) struct Engine {
    shape: Shape,
    threads: Threads,
    groups: Groups,
    history: History,
    scratch: Vec<Scratch>,
    saturated: Vec<AtomicU64>,
    /// Partial sums of the unfinished group of each unit (an antenna's recorded channel): from the previous call, and
    /// for the next.
    carried: Vec<f32>,
    left: Vec<f32>,
    /// Sums of finished groups of unfinished rows.
    rows: Vec<f32>,
    /// Sums of the groups that a round of tasks finishes.
    slots: Vec<f32>,
    times: u64,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { threads, times, .. } = self;
        f.debug_struct("Engine").field("threads", threads).field("times", times).finish()
    }
}

impl Engine {
    pub(super) fn new(plan: &Plan, level: Level, threads: &Threads) -> Result<Self> {
        let shape = Shape::new(plan, level)?;
        let groups = Groups::new(plan);
        let input = plan.input();
        let units = input.antennas * input.coarse_channels;
        let (detected, requantized) = match plan.options().form {
            Form::Detected(_) => (shape.sums(), 0),
            Form::Requantized { .. } => (0, plan.row_elements()),
            _ => (0, 0),
        };
        let (slots, rows) =
            if groups.in_row() > 1 { (ROUND * threads.count(), units) } else { (0, 0) };
        Ok(Self {
            history: History::new(input.encoding, input.streams(), plan.span()),
            scratch: (0..threads.count()).map(|_| Scratch::new(&shape)).collect(),
            saturated: (0..requantized).map(|_| AtomicU64::new(0)).collect(),
            carried: vec![0.0; units * detected],
            left: vec![0.0; units * detected],
            rows: vec![0.0; rows * detected],
            slots: vec![0.0; slots * detected],
            threads: threads.clone(),
            shape,
            groups,
            times: 0,
        })
    }

    pub(super) fn saturated(&self) -> Vec<u64> {
        let counts: Vec<u64> =
            self.saturated.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        if counts.is_empty() { vec![0; self.shape.plan.row_elements()] } else { counts }
    }

    pub(super) fn reset(&mut self) {
        self.history.reset();
        self.rows.fill(0.0);
        self.saturated.iter().for_each(|count| count.store(0, Ordering::Relaxed));
        self.times = 0;
    }

    /// Consumes all samples and writes the rows they complete to the front of the output.
    pub(super) fn run(&mut self, input: Voltages<'_>, output: Output<'_>) {
        let first = self.shape.plan.spectra(self.times);
        self.times += input.times() as u64;
        let last = self.shape.plan.spectra(self.times);
        let fresh = self.whole_pairs(input);
        if last > first {
            self.spectra(fresh, output, first..last);
        }
        self.history.advance(fresh, last * self.shape.plan.hop() as u64);
    }

    /// Moves one sample to the history if pairs would otherwise start at an odd sample.
    fn whole_pairs<'a>(&mut self, input: Voltages<'a>) -> Voltages<'a> {
        let is_odd = self.shape.column == Column::Pair && !self.history.end().is_multiple_of(2);
        if !is_odd || input.times() == 0 {
            return input;
        }
        match (input.slice(0, 1), input.slice(1, input.times() - 1)) {
            (Ok(one), Ok(rest)) => {
                self.history.append(one);
                rest
            }
            _ => input,
        }
    }

    /// Computes some spectra of all streams.
    fn spectra(&mut self, fresh: Voltages<'_>, output: Output<'_>, spectra: Range<u64>) {
        let first = spectra.start;
        let input = *self.shape.plan.input();
        let target = Target::new(output);
        let units = input.antennas * input.coarse_channels;
        let tasks = Tasks::new(&self.shape, &self.groups, spectra, units, self.threads.count());
        let job = Job {
            shape: &self.shape,
            groups: &self.groups,
            history: &self.history,
            fresh,
            first_row: first / self.shape.plan.spectra_per_row() as u64,
            streams: target.bytes >= STREAMED_BYTES,
            target,
            saturated: &self.saturated,
            carried: &self.carried,
            left: Shared::new(&mut self.left),
            slots: Shared::new(&mut self.slots),
        };
        let round =
            if self.groups.in_row() > 1 { ROUND * self.threads.count() } else { tasks.count };
        for start in (0..tasks.count).step_by(round.max(1)) {
            let mut places = [(); usize::MAX];
            let places = &mut places[..round.min(tasks.count - start)];
            self.threads.for_each_chunk(&mut self.scratch, places, 1, |scratch, slot, _| {
                let (unit, spectra) = tasks.task(&self.groups, start + slot);
                job.task(scratch, unit, spectra, slot);
            });
            if self.groups.in_row() > 1 {
                let tasks =
                    (0..places.len()).map(|slot| (slot, tasks.task(&self.groups, start + slot)));
                for (slot, (unit, spectra)) in tasks {
                    job.join(&mut self.scratch[0], unit, spectra.end, slot, &mut self.rows);
                }
            }
        }
        std::mem::swap(&mut self.carried, &mut self.left);
    }
}

/// Maximum number of spectra per group; longer rows are sums of groups.
const MAX_IN_GROUP: usize = 256;

/// Tasks per thread and round, if rows have several groups.
const ROUND: usize = 4;

/// Spectra per row and per group.
#[derive(Clone, Copy, Debug)]
struct Groups {
    row: u64,
    group: u64,
}

impl Groups {
    fn new(plan: &Plan) -> Self {
        let row = plan.spectra_per_row();
        let group = row.min(MAX_IN_GROUP.max((8 * plan.taps()).next_power_of_two()));
        Self { row: row as u64, group: group as u64 }
    }

    /// Returns the groups per row.
    fn in_row(&self) -> u64 {
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
    fn begins(&self, spectrum: u64) -> bool {
        self.start(self.group(spectrum)) == spectrum
    }

    /// Returns whether a spectrum is the last of its group.
    fn ends(&self, spectrum: u64) -> bool {
        self.begins(spectrum + 1)
    }
}

/// Tasks of a call: each is one unit (an antenna's recorded channel) and a range of spectra.
#[derive(Clone, Copy, Debug)]
struct Tasks {
    count: usize,
    units: usize,
    first: u64,
    last: u64,
    /// Groups per task.
    groups: u64,
}

impl Tasks {
    /// Divides the spectra of all units into a few tasks per thread, long enough that their overlap
    /// of `taps - 1` rows costs little.
    fn new(
        shape: &Shape,
        groups: &Groups,
        spectra: Range<u64>,
        units: usize,
        threads: usize,
    ) -> Self {
        let Range { start: first, end: last } = spectra;
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
    fn task(&self, groups: &Groups, index: usize) -> (usize, Range<u64>) {
        let (unit, part) = (index % self.units, (index / self.units) as u64);
        let group = groups.group(self.first) + part * self.groups;
        let end = groups.start(group + self.groups).min(self.last);
        (unit, groups.start(group).max(self.first)..end)
    }
}

/// A slice of which concurrent tasks access disjoint parts.
#[derive(Clone, Copy, Debug)]
struct Shared<'a, T> {
    at: *mut T,
    length: usize,
    slice: PhantomData<&'a mut [T]>,
}

// SAFETY: tasks access disjoint parts only, as `Shared::part` requires of its callers.
unsafe impl<T: Send> Sync for Shared<'_, T> {}

impl<'a, T> Shared<'a, T> {
    fn new(slice: &'a mut [T]) -> Self {
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
struct Target<'a> {
    bytes: usize,
    /// Complex values and sums, or integers; the other one is empty.
    floats: Shared<'a, f32>,
    integers: Shared<'a, u8>,
}

impl<'a> Target<'a> {
    fn new(output: Output<'a>) -> Self {
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
struct Scratch {
    /// One element per polarization.
    samples: Vec<Samples>,
    spectra: Vec<Floats>,
    buffers: Buffers,
    /// Offset of each polarization's channels in a row, for the task's unit.
    offsets: Vec<usize>,
    /// Sums of the group; axes: product, bin.
    sums: Vec<f32>,
    /// Channels of one product in output order.
    ordered: Vec<f32>,
}

impl Scratch {
    fn new(shape: &Shape) -> Self {
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
struct Job<'a> {
    shape: &'a Shape,
    groups: &'a Groups,
    history: &'a History,
    fresh: Voltages<'a>,
    /// First row of the output.
    first_row: u64,
    target: Target<'a>,
    /// Whether rows are written with non-temporal stores.
    streams: bool,
    saturated: &'a [AtomicU64],
    carried: &'a [f32],
    left: Shared<'a, f32>,
    slots: Shared<'a, f32>,
}

impl Job<'_> {
    /// Computes some spectra of a unit.
    fn task(&self, own: &mut Scratch, unit: usize, spectra: Range<u64>, slot: usize) {
        let Range { start, end } = spectra;
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
                    if self.finish_in_place(own, polarization, first, s) {
                        continue;
                    }
                    own.buffers.finish(shape, s, own.spectra[polarization].values_mut());
                    if shape.writes_at_once() {
                        self.write(own, unit, polarization, first, s, slot);
                    }
                }
            }
            if !shape.writes_at_once() {
                for s in 0..spectra {
                    self.write(own, unit, 0, first, s, slot);
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
        first: u64,
        s: usize,
    ) -> bool {
        let Some(rotation) = self.shape.rotation else { return false };
        let offset = self.element(own, polarization, first + s as u64);
        // SAFETY: each spectrum has its own range of a row.
        let to = unsafe { self.target.floats.part(2 * offset, 2 * self.shape.columns) };
        own.buffers.finish_in_place(self.shape, s, to, rotation, self.streams)
    }

    /// Writes spectrum `s` of the block that begins with spectrum `first`, or adds its products to the sums.
    fn write(
        &self,
        own: &mut Scratch,
        unit: usize,
        polarization: usize,
        first: u64,
        s: usize,
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
                self.requantize(
                    *bits,
                    gains,
                    spectrum(shape, spectra, s),
                    unit,
                    polarization,
                    offset,
                );
            }
            Form::Detected(detection) => {
                self.detect(own, detection, s);
                if self.groups.ends(number) {
                    self.finish_group(own, detection, unit, number, slot);
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
        bits: usize,
        gains: &[f32],
        spectrum: Spectrum<'_>,
        unit: usize,
        polarization: usize,
        offset: usize,
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
        integers.write(self.shape.level, spectrum, to);
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
        unit: usize,
        number: u64,
        slot: usize,
    ) {
        let sums = own.sums.len();
        if self.groups.in_row() > 1 {
            // SAFETY: each task has its own slot.
            unsafe { self.slots.part(slot * sums, sums) }.copy_from_slice(&own.sums);
        } else {
            self.finish_row(detection, unit, number, &mut own.sums, &mut own.ordered);
        }
        own.sums.fill(0.0);
    }

    fn finish_row(
        &self,
        detection: &Detection,
        unit: usize,
        number: u64,
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

    /// Adds the finished group of a task that ends at spectrum `end` to its row, and writes the row if it is complete.
    /// Must be called for the groups in order.
    fn join(&self, own: &mut Scratch, unit: usize, end: u64, slot: usize, rows: &mut [f32]) {
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
            self.finish_row(detection, unit, end - 1, row, &mut own.ordered);
            row.fill(0.0);
        }
    }
}
