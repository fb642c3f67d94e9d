//! Search of one range of trials on one device: dedispersion and detection, with the DM-time plane between them in memory.
//!
//! Invariant: the plane never holds more than one gulp; what is found does not depend on how trials are divided among devices.

mod edge;
mod trials;

use std::sync::Arc;

pub(super) use edge::{DeviceTail, Edge, EdgeRows, Tail};
use trials::divide;
pub(super) use trials::{TrialGroup, Trials, prefetch};

use super::detections::Detections;
use super::flagged::Filled;
use super::options::SearchOptions;
use crate::backend::{Backend, cuda};
use crate::dedisperse::{self, Dedisperser, Output};
use crate::error::{Error, Result};
use crate::io::{FilterbankHeader, Gap};
use crate::sample::Samples;
use crate::single_pulse::{
    self, BandEdges, Candidate, Clusterer, Detector, Event, Input, TrialRange,
};
use crate::trace::{self, Work};
use crate::view::{Plane, PlaneMut, Progress, check_length};

/// Alignment in words of a device plane's rows: 128 bytes.
const ALIGNED: usize = 32;

/// Dedisperser and detector of a range, with the plane between them.
pub(super) struct RangeSearch {
    place: Place,
    dedisperser: Dedisperser,
    detector: Detector,
    plane: PlaneBuffer,
    events: Vec<Event>,
    /// Events that the clusterer has not received yet; their trials count from the group's first.
    collected: Vec<Event>,
    /// Lowest S/N of an event.
    snr: f64,
    detections: Option<Arc<Detections>>,
    filled: Filled,
    skipped: usize,
    /// Next row to dedisperse, and the first row to process; another process searched the earlier ones.
    next_row: u64,
    first_row: u64,
    /// Rows whose events were collected.
    searched_rows: u64,
    /// Sample before which no later event begins.
    frontier: u64,
    /// Samples of each trial that were passed to the detector.
    emitted: u64,
    /// Number of rows of the stream, once it has ended.
    ended_at: Option<u64>,
}

/// Place of a range in the search.
struct Place {
    /// Index of its group of trials.
    group: usize,
    /// Index of its first trial in the group.
    first_dm: usize,
    /// Longest delay of any trial of the group, in samples.
    longest: usize,
    /// Index of its device among those of the search.
    device: usize,
}

enum PlaneBuffer {
    I32(Vec<i32>),
    F32(Vec<f32>),
}

impl RangeSearch {
    /// Builds the ranges: a group of trials ([`Trials::groups`]) whose delays fit the data is one range or, if the backend's GPU
    /// has peers, divided among the GPUs ([`divide`]); the ranges of each GPU follow each other.
    pub(super) fn all(trials: Trials<'_>, filled: &Filled, backend: &Backend) -> Result<Vec<Self>> {
        let mut plans = Vec::new();
        let mut skipped = 0;
        for group in trials.groups() {
            let (plan, too_long) = trials.bind(group)?;
            skipped += too_long;
            plans.extend(plan);
        }
        let backends = backend.shares();
        let devices: Vec<cuda::Device> = match backend {
            Backend::Cuda(device, _) => device.joined().cloned().collect(),
            Backend::Reference | Backend::Cpu(..) => Vec::new(),
        };
        let mut ranges = Vec::new();
        for share in divide(&plans, &devices) {
            let plan = trials.plan_of(&share, &plans)?;
            let place = Place {
                group: share.group,
                first_dm: share.trials.start,
                longest: plans[share.group].max_shift(),
                device: share.device,
            };
            let range = Self::new(place, plan, trials, &backends[share.device]);
            let range = range.map_err(|error| match &devices[..] {
                [_, _, ..] => error.on_device(devices[share.device].ordinal()),
                _ => error,
            })?;
            ranges.push(Self { filled: filled.clone(), ..range });
        }
        if let Some(first) = ranges.first_mut() {
            first.skipped = skipped;
        }
        Ok(ranges)
    }

    fn new(
        place: Place,
        plan: dedisperse::Plan,
        trials: Trials<'_>,
        backend: &Backend,
    ) -> Result<Self> {
        let (detector_plan, snr) = (trials.detector_plan(&plan)?, trials.options.snr);
        let integer = plan.output_is_integer();
        Ok(Self {
            place,
            dedisperser: timed("dedisperser", || Dedisperser::new(plan, backend))?,
            detector: timed("detector", || Detector::new(detector_plan, backend))?,
            plane: if integer {
                PlaneBuffer::I32(Vec::new())
            } else {
                PlaneBuffer::F32(Vec::new())
            },
            events: Vec::new(),
            collected: Vec::new(),
            snr,
            detections: trials.options.detections.clone(),
            filled: Filled::default(),
            skipped: 0,
            next_row: 0,
            first_row: 0,
            searched_rows: 0,
            frontier: 0,
            emitted: 0,
            ended_at: None,
        })
    }

    /// Returns the index of the device that searches the range, among those of the search.
    pub(super) fn device(&self) -> usize {
        self.place.device
    }

    /// Builds a clusterer for the events of all groups of trials.
    pub(super) fn clusterer(
        ranges: &[Self],
        header: &FilterbankHeader,
        options: &SearchOptions,
    ) -> Result<Clusterer> {
        let mut groups: Vec<TrialRange> = Vec::new();
        for range in ranges {
            let plan = range.dedisperser.plan();
            match groups.get_mut(range.place.group) {
                Some(group) => group.dms.extend(plan.dms()),
                None => groups.push(TrialRange {
                    dms: plan.dms().to_vec(),
                    tsamp_s: plan.tsamp_s(),
                    widest: range.detector.plan().max_width(),
                }),
            }
        }
        let band = BandEdges {
            lowest_hz: header.band.lowest_hz(),
            highest_hz: header.band.highest_hz(),
            dm_constant: options.dm_constant,
        };
        let clusterer = Clusterer::new(groups, band)?;
        Ok(if options.list_absorbed { clusterer.listing() } else { clusterer })
    }

    /// Returns the number of trials skipped from the start, over all ranges.
    pub(super) fn skipped(ranges: &[Self]) -> usize {
        ranges.iter().map(|range| range.skipped).sum()
    }

    /// Returns the trials whose delays fit `times` rows, over all ranges.
    pub(super) fn searched(ranges: &[Self], times: u64) -> Vec<f64> {
        let fitting = |range: &Self| {
            let plan = range.dedisperser.plan();
            let fits = |dm: &usize| plan.valid_times(times, *dm) > 0;
            (0..plan.dms().len()).filter(fits).map(|dm| plan.dms()[dm]).collect::<Vec<_>>()
        };
        ranges.iter().flat_map(fitting).collect()
    }

    /// Returns the rows of a source, of `times` rows from row `first` on, in which no burst of the lowest trial can be found because gaps
    /// fill more than a quarter of the window that gives their noise.
    pub(super) fn unsearched(&self, gaps: &[Gap], first: u64, times: u64) -> Vec<Gap> {
        self.filled.unsearched(gaps, first, times, self.dedisperser.plan(), self.detector.plan())
    }

    /// Returns the bytes of the plane per input row.
    pub(super) fn plane_bytes_per_row(&self) -> usize {
        let plan = self.dedisperser.plan();
        (4 * plan.dms().len()).div_ceil(plan.downsample())
    }

    /// Returns the bytes held for any gulp length: histories of samples and of series, and the plane of a flush.
    pub(super) fn held_bytes(&self) -> usize {
        let plan = self.dedisperser.plan();
        let flush = 4 * plan.dms().len() * stride(plan, None);
        self.dedisperser.held_bytes() + self.detector.plan().state_bytes() + flush
    }

    /// Returns the words of the plane that a gulp of `times` rows, or a flush, fills.
    pub(super) fn plane_words(&self, times: usize) -> usize {
        let plan = self.dedisperser.plan();
        plan.dms().len() * plan.max_output(times).max(1).next_multiple_of(ALIGNED)
    }

    /// Whether the plane holds integers.
    pub(super) fn is_integer(&self) -> bool {
        matches!(self.plane, PlaneBuffer::I32(_))
    }

    /// Resets the state for another stream.
    pub(super) fn reset(&mut self) {
        self.dedisperser.reset();
        self.detector.reset();
        self.events.clear();
        self.collected.clear();
        (self.next_row, self.first_row) = (0, 0);
        (self.searched_rows, self.frontier) = (0, 0);
        (self.emitted, self.ended_at) = (0, None);
    }

    /// Dedisperses a gulp on a device into a plane of at least [`Self::plane_words`].
    pub(super) fn enqueue(
        &mut self,
        rows: &cuda::Buffer<u8>,
        times: usize,
        plane: &mut cuda::Plane,
        stream: &cuda::Stream,
    ) -> Result<Dedispersed> {
        let passed = self.pass(times);
        if passed == times {
            return Ok(Dedispersed { rows: times, samples: 0 });
        }
        self.shape(plane);
        let plan = self.dedisperser.plan();
        let first_byte = passed * plan.channels() * plan.encoding().bits() / 8;
        let left = times - passed;
        let progress = self.dedisperser.enqueue(rows, first_byte, left, plane, stream)?;
        check_length("rows that are dedispersed", left, progress.consumed)?;
        Ok(Dedispersed { rows: times, samples: progress.produced })
    }

    /// Queues the search of the samples that [`Self::enqueue`] left in a plane, on the same stream.
    pub(super) fn submit_search(
        &mut self,
        plane: &cuda::Plane,
        dedispersed: Dedispersed,
        stream: &cuda::Stream,
    ) -> Result<()> {
        if dedispersed.samples == 0 {
            return Ok(());
        }
        self.detector.submit(plane, dedispersed.samples, stream)
    }

    /// Waits for the search that was submitted; [`Self::settled`] passes the events on.
    pub(super) fn collect_search(
        &mut self,
        dedispersed: Dedispersed,
        stream: &cuda::Stream,
    ) -> Result<()> {
        if dedispersed.samples > 0 {
            let _span = trace::span(Work::Compute, "wait for the device");
            self.detector.collect(&mut self.events, stream)?;
        }
        self.emitted += dedispersed.samples as u64;
        self.searched_rows += dedispersed.rows as u64;
        self.settle()
    }

    /// Like [`Self::finish`], on a device; [`Self::deliver`] passes the events on.
    pub(super) fn enqueue_finish(
        &mut self,
        times: u64,
        plane: &mut cuda::Plane,
        stream: &cuda::Stream,
    ) -> Result<usize> {
        let plan = self.dedisperser.plan().clone();
        let valid = |dm: usize| plan.valid_times(times, dm);
        self.shape(plane);
        self.detector.end_at(&valid);
        self.ended_at = Some(times);
        loop {
            let produced = self.dedisperser.enqueue_flush(plane, stream)?.produced;
            if produced == 0 {
                break;
            }
            self.detector.enqueue(plane, produced, &mut self.events, stream)?;
            self.emitted += produced as u64;
            self.collect();
        }
        self.detector.flush(&valid, &mut self.events)?;
        self.collect();
        Ok((0..plan.dms().len()).filter(|dm| valid(*dm) == 0).count())
    }

    /// Sets the shape of the plane, which all ranges share, for this range.
    fn shape(&self, plane: &mut cuda::Plane) {
        plane.dms = self.dedisperser.plan().dms().len();
        plane.stride = plane.words.len() / plane.dms / ALIGNED * ALIGNED;
    }

    /// Dedisperses and searches a gulp; [`Self::settled`] passes the events on.
    pub(super) fn run(&mut self, samples: Samples<'_>) -> Result<()> {
        let passed = self.pass(samples.times());
        let mut rest = samples.slice(passed, samples.times() - passed);
        while rest.times() > 0 {
            let progress = self.step(Some(rest))?;
            rest = rest.slice(progress.consumed, rest.times() - progress.consumed);
        }
        self.searched_rows = self.next_row;
        self.settle()
    }

    /// Ends the stream after `times` rows; returns the number of trials whose delay is longer than the data.
    /// [`Self::deliver`] passes the events on.
    pub(super) fn finish(&mut self, times: u64) -> Result<usize> {
        let plan = self.dedisperser.plan().clone();
        let valid = |dm: usize| plan.valid_times(times, dm);
        self.detector.end_at(&valid);
        self.ended_at = Some(times);
        while self.step(None)?.produced > 0 {
            self.collect();
        }
        self.detector.flush(&valid, &mut self.events)?;
        self.collect();
        Ok((0..plan.dms().len()).filter(|dm| valid(*dm) == 0).count())
    }

    /// Returns the state that the search of later rows needs.
    pub(super) fn carried(&mut self) -> Result<Vec<u64>> {
        Ok(self.detector.carried()?.words())
    }

    /// Restores the state of another process; returns the first row that is needed again.
    pub(super) fn restore(&mut self, words: &[u64]) -> Result<u64> {
        let plan = self.dedisperser.plan();
        let carried = single_pulse::Carried::from_words(words, plan.dms().len())?;
        let window_rows = self.detector.plan().window_times() as u64 * plan.downsample() as u64;
        let first_row = carried.window.checked_mul(window_rows).ok_or_else(|| {
            Error::parameter("window of the checkpoint", carried.window, "it is damaged")
        })?;
        self.detector.restore(&carried)?;
        self.first_row = first_row;
        self.emitted = carried.window * self.detector.plan().window_times() as u64;
        Ok(first_row)
    }

    /// Sets the number of the next row.
    pub(super) fn start_at(&mut self, row: u64) {
        (self.next_row, self.searched_rows) = (row, row);
    }

    /// Returns how many of the next rows precede the first row to process.
    fn pass(&mut self, times: usize) -> usize {
        let early = self.first_row.saturating_sub(self.next_row).min(times as u64);
        self.next_row += times as u64;
        early as usize
    }

    /// Collects the events that no later row changes.
    fn settle(&mut self) -> Result<()> {
        self.frontier = self.detector.settle(&mut self.events)?;
        self.collect();
        Ok(())
    }

    /// Moves the events that no later row of any range changes to an empty batch, with the time before which none follows.
    pub(super) fn take_settled(ranges: &mut [Self], batch: &mut Batch) {
        batch.events.resize_with(ranges.len(), Default::default);
        batch.frontier_s = f64::INFINITY;
        for (range, (group, events)) in ranges.iter_mut().zip(&mut batch.events) {
            *group = range.place.group;
            std::mem::swap(events, &mut range.collected);
            let tsamp_s = range.dedisperser.plan().tsamp_s();
            batch.frontier_s = batch.frontier_s.min(range.frontier as f64 * tsamp_s);
        }
    }

    /// Returns the candidates that later rows may still change: those of the events found so far, and of the events in
    /// samples that are not searched yet, as if the rows ended now.
    pub(super) fn open(ranges: &mut [Self], clusterer: &mut Clusterer) -> Result<Vec<Candidate>> {
        let _span = trace::span(Work::Compute, "provisional candidates");
        clusterer.undecided(|clusterer| {
            ranges.iter_mut().try_for_each(|range| {
                range.detector.peek(&mut range.events)?;
                range.collect();
                range.deliver(clusterer)
            })
        })
    }

    /// Runs each stage once: with rows, or to flush.
    fn step(&mut self, rows: Option<Samples<'_>>) -> Result<Progress> {
        let stride = stride(self.dedisperser.plan(), rows);
        let dms = self.dedisperser.plan().dms().len();
        let progress = match &mut self.plane {
            PlaneBuffer::I32(plane) => {
                plane.resize(plane.len().max(dms * stride), 0);
                let plane = &mut plane[..dms * stride];
                let output = Output::I32(PlaneMut::new(plane, dms, stride)?);
                let progress =
                    timed("dedisperse", || advance(&mut self.dedisperser, rows, output))?;
                let view = Plane::new(plane, dms, stride, progress.produced)?;
                let events = &mut self.events;
                timed("detect pulses", || self.detector.run(Input::I32(view), events))?;
                progress
            }
            PlaneBuffer::F32(plane) => {
                plane.resize(plane.len().max(dms * stride), 0.0);
                let plane = &mut plane[..dms * stride];
                let output = Output::F32(PlaneMut::new(plane, dms, stride)?);
                let progress =
                    timed("dedisperse", || advance(&mut self.dedisperser, rows, output))?;
                let view = Plane::new(plane, dms, stride, progress.produced)?;
                let events = &mut self.events;
                timed("detect pulses", || self.detector.run(Input::F32(view), events))?;
                progress
            }
        };
        self.emitted += progress.produced as u64;
        Ok(progress)
    }

    /// Passes the events on to those who watch the search.
    fn show_events(&self) {
        let Some(detections) = &self.detections else { return };
        let plan = self.dedisperser.plan();
        for event in &self.events {
            let middle = event.time as f64 + 0.5 * f64::from(event.width);
            if let Some(dm) = plan.dms().get(event.dm as usize) {
                detections.add(middle * plan.tsamp_s(), *dm, event.snr);
            }
        }
        let row_s = plan.tsamp_s() / plan.downsample() as f64;
        detections.searched(self.searched_rows as f64 * row_s);
    }

    /// Weighs the new events by the gaps near them and keeps them for the clusterer.
    fn collect(&mut self) {
        let (plan, detector) = (self.dedisperser.plan(), self.detector.plan());
        let samples = |dm: usize| {
            let valid = self.ended_at.map_or(u64::MAX, |row| plan.valid_times(row, dm));
            self.emitted.min(valid)
        };
        self.filled.weigh(plan, detector, samples, self.snr, &mut self.events);
        self.show_events();
        let first = self.place.first_dm as u32;
        let of_group = self.events.drain(..).map(|event| Event { dm: event.dm + first, ..event });
        self.collected.extend(of_group);
    }

    /// Passes the events collected so far to the clusterer.
    pub(super) fn deliver(&mut self, clusterer: &mut Clusterer) -> Result<()> {
        clusterer.push(self.place.group, &self.collected)?;
        self.collected.clear();
        Ok(())
    }
}

/// Rows of a gulp, and the new samples of each trial that they gave.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Dedispersed {
    rows: usize,
    samples: usize,
}

/// Events of all ranges up to a row.
#[derive(Debug, Default)]
pub(super) struct Batch {
    /// Group and events of each range.
    events: Vec<(usize, Vec<Event>)>,
    /// Time in seconds from the first row before which no later event begins.
    frontier_s: f64,
}

impl Batch {
    /// Passes the events to the clusterer and empties the batch; returns the candidates that no later event changes.
    pub(super) fn cluster(&mut self, clusterer: &mut Clusterer) -> Result<Vec<Candidate>> {
        for (group, events) in &mut self.events {
            clusterer.push(*group, events)?;
            events.clear();
        }
        // Without ranges there are no events.
        if self.events.is_empty() {
            return Ok(Vec::new());
        }
        Ok(clusterer.settle(self.frontier_s))
    }
}

/// Calls a function in a span.
fn timed<T>(name: &'static str, work: impl FnOnce() -> T) -> T {
    let _span = trace::span(Work::Compute, name);
    work()
}

/// Largest number of output times per flush.
pub(super) const FLUSH_TIMES: usize = 1 << 12;

/// Dedisperses rows or, without rows, flushes the remainder.
pub(super) fn advance(
    dedisperser: &mut Dedisperser,
    rows: Option<Samples<'_>>,
    output: Output<'_>,
) -> Result<Progress> {
    match rows {
        Some(rows) => dedisperser.run(rows, output),
        None => dedisperser.flush(output),
    }
}

/// Returns the largest number of output times of a step: for rows, all of theirs; for a flush, part of the remainder.
pub(super) fn stride(plan: &dedisperse::Plan, rows: Option<Samples<'_>>) -> usize {
    match rows {
        Some(rows) => plan.max_output(rows.times()).max(1),
        None => plan.max_shift().clamp(1, FLUSH_TIMES),
    }
}
