//! Trials that fit the data, and the search of one range of a DM plan: dedispersion and detection, with the DM-time plane between them in memory.
//!
//! Invariant: a trial is searched if it has a sample at all in data of known length, and always otherwise. The plane never holds more than one gulp.

mod edge;

use std::sync::Arc;

pub(super) use edge::{DeviceTail, Edge, EdgeRows, Tail};

use super::cleaning::{CleanedForm, Expected};
use super::detections::Detections;
use super::flagged::Filled;
use super::options::{Part, SearchOptions};
use crate::backend::cuda::{Device, Prefetch};
use crate::backend::{Backend, cuda};
use crate::clean;
use crate::dedisperse::dm_plan::DmRange;
use crate::dedisperse::{self, Dedisperser, Output};
use crate::error::{Error, Result};
use crate::io::{FilterbankHeader, Gap};
use crate::sample::Samples;
use crate::single_pulse::{
    self, BandEdges, Candidate, Clusterer, Detector, Event, Input, TrialRange,
};
use crate::trace::{self, Work};
use crate::units::dispersion_delay_s;
use crate::view::{Plane, PlaneMut, Progress, check_length};

/// Delay in seconds beyond which trials may wait longer, in proportion: the history of a group is as long as its longest delay,
/// and many groups would need much memory.
const WAIT_DELAY_S: f64 = 0.8;

/// Alignment in words of a device plane's rows: 128 bytes.
const ALIGNED: usize = 32;

/// Dedisperser and detector of a range, with the plane between them.
pub(super) struct RangeSearch {
    index: usize,
    dedisperser: Dedisperser,
    detector: Detector,
    plane: PlaneBuffer,
    events: Vec<Event>,
    /// Lowest S/N of an event.
    snr: f64,
    detections: Option<Arc<Detections>>,
    filled: Filled,
    skipped: usize,
    /// Next row, and the first row to process; another process searched the earlier ones.
    next_row: u64,
    first_row: u64,
    /// Samples of each trial that were passed to the detector.
    emitted: u64,
    /// Number of rows of the stream, once it has ended.
    ended_at: Option<u64>,
}

enum PlaneBuffer {
    I32(Vec<i32>),
    F32(Vec<f32>),
}

impl RangeSearch {
    /// Builds a range for each group of trials ([`Trials::groups`]) from those whose delays fit the data.
    pub(super) fn all(trials: Trials<'_>, filled: &Filled, backend: &Backend) -> Result<Vec<Self>> {
        let mut ranges = Vec::new();
        let mut skipped = 0;
        for group in trials.groups() {
            let (plan, too_long) = trials.bind(group)?;
            skipped += too_long;
            if let Some(plan) = plan {
                let range = Self::new(ranges.len(), plan, trials, backend)?;
                ranges.push(Self { filled: filled.clone(), ..range });
            }
        }
        if let Some(first) = ranges.first_mut() {
            first.skipped = skipped;
        }
        Ok(ranges)
    }

    fn new(
        index: usize,
        plan: dedisperse::Plan,
        trials: Trials<'_>,
        backend: &Backend,
    ) -> Result<Self> {
        let (detector_plan, snr) = (trials.detector_plan(&plan)?, trials.options.snr);
        let integer = plan.output_is_integer();
        Ok(Self {
            index,
            dedisperser: timed("dedisperser", || Dedisperser::new(plan, backend))?,
            detector: timed("detector", || Detector::new(detector_plan, backend))?,
            plane: if integer {
                PlaneBuffer::I32(Vec::new())
            } else {
                PlaneBuffer::F32(Vec::new())
            },
            events: Vec::new(),
            snr,
            detections: trials.options.detections.clone(),
            filled: Filled::default(),
            skipped: 0,
            next_row: 0,
            first_row: 0,
            emitted: 0,
            ended_at: None,
        })
    }

    /// Builds a clusterer for the events of all ranges.
    pub(super) fn clusterer(
        ranges: &[Self],
        header: &FilterbankHeader,
        options: &SearchOptions,
    ) -> Result<Clusterer> {
        let trials = |range: &Self| {
            let plan = range.dedisperser.plan();
            let widest = range.detector.plan().max_width();
            TrialRange { dms: plan.dms().to_vec(), tsamp_s: plan.tsamp_s(), widest }
        };
        let band = BandEdges {
            lowest_hz: header.band.lowest_hz(),
            highest_hz: header.band.highest_hz(),
            dm_constant: options.dm_constant,
        };
        let clusterer = Clusterer::new(ranges.iter().map(trials).collect(), band)?;
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
        (self.next_row, self.first_row) = (0, 0);
        (self.emitted, self.ended_at) = (0, None);
    }

    /// Dedisperses a gulp on a device into a plane of at least [`Self::plane_words`]; returns the new samples of each
    /// trial.
    pub(super) fn enqueue(
        &mut self,
        rows: &cuda::Buffer<u8>,
        times: usize,
        plane: &mut cuda::Plane,
        stream: &cuda::Stream,
    ) -> Result<usize> {
        let passed = self.pass(times);
        if passed == times {
            return Ok(0);
        }
        self.shape(plane);
        let plan = self.dedisperser.plan();
        let first_byte = passed * plan.channels() * plan.encoding().bits() / 8;
        let times = times - passed;
        let progress = self.dedisperser.enqueue(rows, first_byte, times, plane, stream)?;
        check_length("rows that are dedispersed", times, progress.consumed)?;
        Ok(progress.produced)
    }

    /// Searches the `produced` samples of each trial that [`Self::enqueue`] left in a plane, on the same stream.
    pub(super) fn enqueue_search(
        &mut self,
        plane: &cuda::Plane,
        produced: usize,
        stream: &cuda::Stream,
        clusterer: &mut Clusterer,
    ) -> Result<()> {
        if produced == 0 {
            return Ok(());
        }
        let span = trace::span(Work::Compute, "wait for the device");
        self.detector.enqueue(plane, produced, &mut self.events, stream)?;
        drop(span);
        self.emitted += produced as u64;
        self.push_events(clusterer)
    }

    /// Like [`Self::finish`], on a device.
    pub(super) fn enqueue_finish(
        &mut self,
        times: u64,
        plane: &mut cuda::Plane,
        stream: &cuda::Stream,
        clusterer: &mut Clusterer,
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
            self.enqueue_search(plane, produced, stream, clusterer)?;
        }
        self.detector.flush(&valid, &mut self.events)?;
        self.push_events(clusterer)?;
        Ok((0..plan.dms().len()).filter(|dm| valid(*dm) == 0).count())
    }

    /// Sets the shape of the plane, which all ranges share, for this range.
    fn shape(&self, plane: &mut cuda::Plane) {
        plane.dms = self.dedisperser.plan().dms().len();
        plane.stride = plane.words.len() / plane.dms / ALIGNED * ALIGNED;
    }

    /// Dedisperses and searches a gulp.
    pub(super) fn run(&mut self, samples: Samples<'_>, clusterer: &mut Clusterer) -> Result<()> {
        let passed = self.pass(samples.times());
        let mut rest = samples.slice(passed, samples.times() - passed);
        while rest.times() > 0 {
            let progress = self.step(Some(rest))?;
            rest = rest.slice(progress.consumed, rest.times() - progress.consumed);
        }
        self.push_events(clusterer)
    }

    /// Ends the stream after `times` rows; returns the number of trials whose delay is longer than the data.
    pub(super) fn finish(&mut self, times: u64, clusterer: &mut Clusterer) -> Result<usize> {
        let plan = self.dedisperser.plan().clone();
        let valid = |dm: usize| plan.valid_times(times, dm);
        self.detector.end_at(&valid);
        self.ended_at = Some(times);
        while self.step(None)?.produced > 0 {
            self.push_events(clusterer)?;
        }
        self.detector.flush(&valid, &mut self.events)?;
        self.push_events(clusterer)?;
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
        self.next_row = row;
    }

    /// Returns how many of the next rows precede the first row to process.
    fn pass(&mut self, times: usize) -> usize {
        let early = self.first_row.saturating_sub(self.next_row).min(times as u64);
        self.next_row += times as u64;
        early as usize
    }

    /// Returns the candidates that no later row of any range changes.
    pub(super) fn settle(ranges: &mut [Self], clusterer: &mut Clusterer) -> Result<Vec<Candidate>> {
        let mut frontier_s = f64::INFINITY;
        for range in ranges {
            let frontier = range.detector.settle(&mut range.events)?;
            range.push_events(clusterer)?;
            let tsamp_s = range.dedisperser.plan().tsamp_s();
            frontier_s = frontier_s.min(frontier as f64 * tsamp_s);
        }
        // Without ranges there are no events.
        if frontier_s.is_finite() {
            return Ok(clusterer.settle(frontier_s));
        }
        Ok(Vec::new())
    }

    /// Returns the candidates that later rows may still change: those of the events found so far, and of the events in
    /// samples that are not searched yet, as if the rows ended now.
    pub(super) fn open(ranges: &mut [Self], clusterer: &mut Clusterer) -> Result<Vec<Candidate>> {
        let _span = trace::span(Work::Compute, "provisional candidates");
        clusterer.undecided(|clusterer| {
            ranges.iter_mut().try_for_each(|range| {
                range.detector.peek(&mut range.events)?;
                range.push_events(clusterer)
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
        detections.searched(self.next_row as f64 * plan.tsamp_s() / plan.downsample() as f64);
    }

    fn push_events(&mut self, clusterer: &mut Clusterer) -> Result<()> {
        let _span = trace::span(Work::Compute, "cluster");
        let (plan, detector) = (self.dedisperser.plan(), self.detector.plan());
        let samples = |dm: usize| {
            let valid = self.ended_at.map_or(u64::MAX, |row| plan.valid_times(row, dm));
            self.emitted.min(valid)
        };
        self.filled.weigh(plan, detector, samples, self.snr, &mut self.events);
        self.show_events();
        clusterer.push(self.index, &self.events)?;
        self.events.clear();
        Ok(())
    }
}

/// Calls a function in a span.
fn timed<T>(name: &'static str, work: impl FnOnce() -> T) -> T {
    let _span = trace::span(Work::Compute, name);
    work()
}

/// Largest number of output times per flush.
pub(super) const FLUSH_TIMES: usize = 1 << 12;

/// Data and options that trials are checked against.
#[derive(Clone, Copy)]
pub(super) struct Trials<'a> {
    pub(super) header: &'a FilterbankHeader,
    pub(super) options: &'a SearchOptions,
    /// Form of the rows.
    pub(super) form: &'a CleanedForm,
    pub(super) part: Part,
}

/// Starts to compile the kernels that `list` returns on a GPU, those of the cleaning, and `others`, before the channel
/// mask, which hardly changes them, is known. Errors of the options are left to the stages.
pub(super) fn prefetch(
    header: &FilterbankHeader,
    options: &SearchOptions,
    part: Part,
    backend: &Backend,
    others: Vec<cuda::Source>,
    list: impl FnOnce(&Trials<'_>, &Device) -> Result<Vec<cuda::Source>> + Send + 'static,
) -> Prefetch {
    let Backend::Cuda(device, _) = backend else { return Prefetch::default() };
    let (header, options, bound) = (header.clone(), options.clone(), device.clone());
    device.prefetch(move || {
        let sources = || {
            let Expected { form, plan } = Expected::new(&header, &options, part)?;
            let trials = Trials { header: &header, options: &options, form: &form, part };
            let mut sources = list(&trials, &bound)?;
            sources.extend(plan.iter().flat_map(clean::sources));
            Ok::<_, Error>(sources)
        };
        sources().unwrap_or_default().into_iter().chain(others).collect()
    })
}

/// Trials of one time binning that share a history of samples.
pub(super) struct TrialGroup {
    downsample: usize,
    /// Ascending, pc cm^-3.
    dms: Vec<f64>,
}

impl TrialGroup {
    /// Returns the trials of one range of a plan.
    pub(super) fn of(range: &DmRange) -> Self {
        Self { downsample: range.downsample, dms: range.dms() }
    }
}

impl Trials<'_> {
    /// Lists the kernels that all ranges are expected to need on a device.
    pub(super) fn sources(&self, device: &Device) -> Result<Vec<cuda::Source>> {
        let mut sources = Vec::new();
        for group in self.groups() {
            if let (Some(plan), _) = self.bind(group)? {
                sources.extend(dedisperse::sources(&plan, device));
                sources.extend(single_pulse::sources(&self.detector_plan(&plan)?, device));
            }
        }
        Ok(sources)
    }

    /// Builds the plan of the search of a range's series.
    fn detector_plan(&self, plan: &dedisperse::Plan) -> Result<single_pulse::Plan> {
        let unmasked = self.form.masked.iter().filter(|masked| !**masked).count();
        let summed = (unmasked * plan.downsample()) as i64;
        let bound = self
            .form
            .range
            .map(|(low, high)| (i64::from(low).min(0) * summed, i64::from(high).max(0) * summed));
        single_pulse::Plan::new(single_pulse::Options {
            dms: plan.dms().to_vec(),
            tsamp_s: plan.tsamp_s(),
            max_width_s: self.options.max_width_s,
            baseline_s: self.options.baseline_s,
            snr: self.options.snr,
            bound,
        })
    }

    /// Groups the trials that are dedispersed and searched together. Ranges of the plan that differ only in their steps
    /// share one history of samples, unless their delays differ by more than [`SearchOptions::max_wait_s`], which grows in
    /// proportion to delays beyond [`WAIT_DELAY_S`].
    fn groups(&self) -> Vec<TrialGroup> {
        let band = &self.header.band;
        let (lowest, highest) = (band.lowest_hz(), band.highest_hz());
        let delay_s = |dm: f64| dispersion_delay_s(dm, lowest, highest, self.options.dm_constant);
        let mut groups: Vec<TrialGroup> = Vec::new();
        for range in &self.options.plan.ranges {
            let downsample = range.downsample;
            for dm in range.dms() {
                let is_near = |group: &TrialGroup| {
                    let longer = (delay_s(group.dms[0]) / WAIT_DELAY_S).max(1.0);
                    let most = self.options.max_wait_s * longer;
                    group.downsample == downsample && delay_s(dm - group.dms[0]) <= most
                };
                match groups.last_mut() {
                    Some(group) if is_near(group) => group.dms.push(dm),
                    _ => groups.push(TrialGroup { downsample, dms: vec![dm] }),
                }
            }
        }
        groups
    }

    /// Builds the plan of a group from the trials whose delays fit the data; none without such a trial. Also returns the
    /// number of trials skipped.
    pub(super) fn bind(&self, group: TrialGroup) -> Result<(Option<dedisperse::Plan>, usize)> {
        let TrialGroup { downsample, dms } = group;
        let all = self.plan(downsample, dms)?;
        let fits = |dm: &usize| self.part.times.is_none_or(|times| all.valid_times(times, *dm) > 0);
        let kept: Vec<f64> = (0..all.dms().len()).filter(fits).map(|dm| all.dms()[dm]).collect();
        let skipped = all.dms().len() - kept.len();
        match (kept.len(), skipped) {
            (0, _) => Ok((None, skipped)),
            (_, 0) => Ok((Some(all), 0)),
            _ => Ok((Some(self.plan(downsample, kept)?), skipped)),
        }
    }

    fn plan(&self, downsample: usize, dms: Vec<f64>) -> Result<dedisperse::Plan> {
        dedisperse::Plan::new(dedisperse::Options {
            band: self.header.band.clone(),
            tsamp_s: self.header.tsamp_s,
            dms,
            downsample,
            encoding: self.form.encoding,
            range: self.form.range,
            masked: self.form.masked.clone(),
            dm_constant: self.options.dm_constant,
        })
    }
}

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
