//! Processing chain of one detector: strain to whitened strain, signal-to-noise ratios and triggers, in blocks of any
//! length.

use std::collections::VecDeque;
use std::ops::Range;

use num_complex::Complex;

use super::divided::Part;
use crate::backend::Backend;
use crate::backend::cuda::{Buffer, Device, Prefetch, Stream, UploadRing};
use crate::error::{Error, Result};
use crate::pipeline::run::{remaining_bytes, side_by_side};
use crate::spiir::bank::Bank;
use crate::spiir::coincidence::{Segments, SegmentsBuilder, TimedTrigger};
use crate::spiir::trigger::{self, DeviceRatios, Finder, Ratios, Trigger, TriggerOptions};
use crate::spiir::whiten::{self, Whitener};
use crate::spiir::{self, Branch, DeviceOutput, DeviceSamples, Filter, Plan, Spiir, Template};
use crate::state::{Saved, Saving};
use crate::trace;
use crate::units::Gps;
use crate::view::{check_length, check_memory};

/// Starts to compile the kernels of every bank on a GPU and its peers.
pub(super) fn prefetch(backend: &Backend) -> Prefetch {
    match backend {
        Backend::Cuda(device, _) => device.prefetch_each(|devices| {
            devices.iter().map(|_| vec![trigger::source(), spiir::resample()]).collect()
        }),
        _ => Prefetch::default(),
    }
}

/// Options of one detector's processing chain.
#[derive(Clone, Debug)]
pub struct DetectorOptions {
    /// Whitening options.
    pub whitening: whiten::Options,
    /// Lowest signal-to-noise ratio of a trigger.
    pub threshold: f32,
    /// Half-width in seconds of the window within which a trigger must be its template's maximum.
    pub window_s: f64,
    /// Distance from a gate, in seconds, within which triggers are dropped.
    pub gate_pad_s: f64,
}

/// Intermediate output of a detector's chain; samples count from the stream's first.
#[derive(Clone, Copy, Debug)]
pub enum Piece<'a> {
    /// Whitened strain.
    Whitened {
        /// Number of the first sample.
        first: u64,
        /// The samples.
        samples: &'a [f32],
        /// Whether each sample is unaffected by gates.
        valid: &'a [bool],
    },
    /// Signal-to-noise ratios, axes template, time; not produced if they stay on a GPU.
    Ratios {
        /// Number of the first sample.
        first: u64,
        /// Rows of ratios.
        z: &'a [Complex<f32>],
        /// Elements between rows.
        stride: usize,
        /// Samples per row.
        times: usize,
    },
}

/// Processing chain of one detector: whitening, matched filters of a bank, and peak search.
///
/// | step      | does                                                                          |
/// |-----------|-------------------------------------------------------------------------------|
/// | whitening | gates bad data, and scales every frequency to unit noise                      |
/// | filters   | `spiir::Spiir`: signal-to-noise ratios of every template                      |
/// | triggers  | peaks of each template's ratio, interpolated in time, and xi-squared          |
///
/// Each step stores the history that it needs, so a stream may arrive in blocks of any length;
/// [`ChirpDetector::latency`] returns the delay of the triggers.
///
/// A chain [of triggers](Self::of_triggers) restarts its filters after a gap that is longer than their memory (14 e-folding
/// times after the longest delay, and the latency of all steps): they begin with the first whitened sample that is not 0.
/// Nothing is computed in the rest of the gap.
///
/// # Numerics
/// The same bits for any split into blocks and any number of threads at one SIMD level.
#[derive(Debug)]
pub struct ChirpDetector {
    start: Gps,
    rate_hz: u32,
    gate_pad_s: f64,
    peak_offsets_s: Vec<f64>,
    /// Median of the peak offsets: the shift between valid samples and the times of their triggers.
    usual_offset_s: f64,
    bank_bytes: usize,
    whitener: Whitener,
    work: Work,
    whitened: Vec<f32>,
    whitened_valid: Vec<bool>,
    /// Valid flags of whitened samples whose ratios are not computed yet.
    waiting: VecDeque<bool>,
    z_valid: Vec<bool>,
    /// Number of samples whitened and of samples filtered.
    counts: (u64, u64),
    segments: SegmentsBuilder,
    triggers: Vec<Trigger>,
    restarts: Restarts,
    /// Samples that each template's filters remember, in ascending order.
    reaches: Vec<u64>,
    /// Zeros and flags of the next samples of a gap.
    gap: Vec<f64>,
    gap_valid: Vec<bool>,
}

/// Restarts of the filters in long gaps.
#[derive(Clone, Copy, Debug)]
struct Restarts {
    /// Invalid zeros of whitened strain after which the filters restart; `None` if they never do.
    after: Option<u64>,
    /// Invalid zeros since the last other sample.
    quiet: u64,
    /// Whitened sample at which the filters have begun.
    base: u64,
    /// Whether the filters wait for the end of a gap.
    is_waiting: bool,
    count: u64,
}

impl ChirpDetector {
    /// Builds a chain for a stream whose first sample is at `start`.
    ///
    /// # Errors
    /// [`Error::Parameter`] when the bank's rate differs from the strain's; errors of the steps' options.
    pub fn new(
        start: Gps,
        bank: &Bank,
        options: &DetectorOptions,
        backend: &Backend,
    ) -> Result<Self> {
        Self::showing(true, start, bank, options, backend, Part::WHOLE)
    }

    /// Like [`ChirpDetector::new`], for triggers only: observers do not receive ratios, so that a GPU keeps them in
    /// its memory. On a GPU, triggers arrive while later strain is processed; [`ChirpDetector::settle`] waits for
    /// them.
    ///
    /// # Errors
    /// As [`ChirpDetector::new`].
    pub fn of_triggers(
        start: Gps,
        bank: &Bank,
        options: &DetectorOptions,
        backend: &Backend,
    ) -> Result<Self> {
        Self::of_part(start, bank, options, backend, Part::WHOLE)
    }

    /// Like [`ChirpDetector::of_triggers`], for a part of the templates; all else is that of the whole bank.
    ///
    /// # Errors
    /// As [`ChirpDetector::new`]; [`Error::Parameter`] for more parts than the templates can be divided into.
    pub(super) fn of_part(
        start: Gps,
        bank: &Bank,
        options: &DetectorOptions,
        backend: &Backend,
        part: Part,
    ) -> Result<Self> {
        Self::showing(false, start, bank, options, backend, part)
    }

    fn showing(
        shown: bool,
        start: Gps,
        bank: &Bank,
        options: &DetectorOptions,
        backend: &Backend,
        part: Part,
    ) -> Result<Self> {
        let rate_hz = options.whitening.rate_hz;
        check_rate(bank, rate_hz)?;
        let _kernels = prefetch(backend);
        let threads = backend.host().threads();
        let whitener = Whitener::new(options.whitening.clone())?.with_threads(threads);
        let plan = bank.plan()?;
        let search = bank.trigger_plan(TriggerOptions {
            rate_hz,
            threshold: options.threshold,
            window_s: options.window_s,
            gate_pad_s: options.gate_pad_s,
        })?;
        let mut reaches: Vec<u64> =
            bank.templates.iter().map(|one| reach(&one.filters) as u64).collect();
        reaches.sort_unstable();
        let work = Work::new(part_of(&plan, part, backend)?, search, backend, shown)?;
        let piece = work.piece;
        let latency = work.spiir().plan().latency() + 2 * work.finder().plan().latency();
        let memory = reaches.last().copied().unwrap_or(0) + latency as u64;
        let restarts = Restarts {
            after: (!shown).then_some(memory),
            quiet: 0,
            base: 0,
            is_waiting: false,
            count: 0,
        };
        let mut offsets: Vec<f64> = bank.templates.iter().map(|one| one.peak_offset_s).collect();
        offsets.sort_by(f64::total_cmp);
        Ok(Self {
            start,
            rate_hz,
            gate_pad_s: options.gate_pad_s,
            peak_offsets_s: bank.templates.iter().map(|one| one.peak_offset_s).collect(),
            usual_offset_s: offsets.get(offsets.len() / 2).copied().unwrap_or(0.0),
            bank_bytes: bank.held_bytes(),
            whitener,
            work,
            whitened: vec![0.0; piece],
            whitened_valid: vec![false; piece],
            waiting: VecDeque::new(),
            z_valid: Vec::new(),
            counts: (0, 0),
            segments: SegmentsBuilder::new(start, rate_hz),
            triggers: Vec::new(),
            restarts,
            reaches,
            gap: Vec::new(),
            gap_valid: Vec::new(),
        })
    }

    /// Returns the time of the first sample.
    pub fn start(&self) -> Gps {
        self.start
    }

    /// Sets the time of the first sample; call it before that.
    pub fn begin(&mut self, start: Gps) {
        self.start = start;
        self.segments = SegmentsBuilder::new(start, self.rate_hz);
    }

    /// Returns the number of templates whose filters have had strain for as long as they remember it: the longest delay, and 14
    /// e-folding times.
    pub fn warm(&self) -> usize {
        let had = self.counts.1 - self.restarts.base;
        match self.restarts.is_waiting {
            true => 0,
            false => self.reaches.partition_point(|reach| *reach <= had),
        }
    }

    /// Returns the time of strain in seconds after which all templates are warm.
    pub fn warm_after_s(&self) -> f64 {
        self.reaches.last().map_or(0.0, |reach| *reach as f64 / f64::from(self.rate_hz))
    }

    /// Returns the number of times that the filters have restarted after a gap longer than their memory.
    pub fn restarts(&self) -> u64 {
        self.restarts.count
    }

    /// Returns the largest number of samples processed at once.
    pub(super) fn piece(&self) -> usize {
        self.work.piece
    }

    /// Returns the host memory of the chain, including the bank.
    pub fn need(&self) -> Need {
        let work = self.work.need();
        // Whitened samples, their flags, and the queued flags.
        let sample = work.sample + size_of::<f32>() + 3;
        Need { held: self.bank_bytes + self.whitener.held_bytes() + work.held, sample }
    }

    /// Limits the samples processed at once; call it before the first sample. Results do not depend on it.
    pub fn limit(&mut self, samples: usize) {
        self.work.limit(samples);
        let piece = self.work.piece;
        self.whitened = vec![0.0; piece];
        self.whitened_valid = vec![false; piece];
    }

    /// Returns the delay of triggers relative to the strain.
    pub fn latency(&self) -> Latency {
        let seconds = |samples: usize| samples as f64 / f64::from(self.rate_hz);
        Latency {
            whitening_s: seconds(self.whitener.latency()),
            resampling_s: seconds(self.work.spiir().plan().latency()),
            triggers_s: seconds(self.work.finder().plan().latency()),
        }
    }

    /// Returns the triggers so far, by sample, then by template.
    pub fn triggers(&self) -> &[Trigger] {
        &self.triggers
    }

    /// Adds triggers of the templates that other parts search.
    pub(super) fn add(&mut self, triggers: &[Trigger]) {
        self.triggers.extend_from_slice(triggers);
    }

    /// Removes and returns the triggers so far.
    pub(super) fn remove(&mut self) -> Vec<Trigger> {
        std::mem::take(&mut self.triggers)
    }

    /// Returns the sample before which no trigger is missing.
    pub(super) fn certain(&self) -> u64 {
        match self.restarts.is_waiting {
            true => self.counts.1,
            false => self.restarts.base + self.work.certain(),
        }
    }

    /// Removes the triggers that are final, and returns them with their times.
    ///
    /// # Errors
    /// [`Error::Device`] when work on a GPU failed.
    pub fn take_triggers(&mut self) -> Result<impl Iterator<Item = TimedTrigger> + use<'_>> {
        self.settle()?;
        let (start, rate_hz, offsets_s) = (self.start, self.rate_hz, &self.peak_offsets_s);
        Ok(self.triggers.drain(..).map(move |trigger| {
            TimedTrigger::new(&trigger, start, rate_hz, offsets_s[trigger.template as usize])
        }))
    }

    /// Returns the time before which no further trigger can be, once those that are final have been taken.
    pub fn decided(&self) -> Gps {
        let finder = self.work.finder();
        let decided = match self.restarts.is_waiting {
            true => self.counts.1,
            false => {
                let latency = finder.plan().latency() as u64;
                self.restarts.base + finder.known().saturating_sub(latency)
            }
        };
        let least_s = self.peak_offsets_s.iter().copied().fold(f64::INFINITY, f64::min);
        let least_s = if least_s.is_finite() { least_s } else { 0.0 };
        let sample = decided as i64 - trigger::MOST_OFFSET;
        self.start.plus_samples(sample, self.rate_hz).plus_s(least_s)
    }

    /// Returns the spectrum in use for whitening, once it is known.
    pub fn psd(&self) -> Option<crate::math::PowerSpectrum> {
        self.whitener.psd()
    }

    /// Processes strain; `observe` receives the intermediate output.
    ///
    /// # Errors
    /// [`Error::Shape`] when the slices differ in length.
    pub fn run(
        &mut self,
        strain: &[f64],
        valid: &[bool],
        observe: &mut dyn FnMut(Piece<'_>),
    ) -> Result<()> {
        check_length("flags of valid samples", strain.len(), valid.len())?;
        let piece = self.work.piece;
        for (strain, valid) in strain.chunks(piece).zip(valid.chunks(piece)) {
            let output = &mut self.whitened[..strain.len()];
            let output_valid = &mut self.whitened_valid[..strain.len()];
            let span = trace::span(trace::Work::Compute, "whitening");
            let produced = self.whitener.run(strain, valid, output, output_valid)?.produced;
            drop(span);
            self.filter(produced, observe)?;
        }
        Ok(())
    }

    /// Processes the next samples of a gap, at most `samples` and about a second if they take time; returns their number.
    /// The result is that of [`Self::run`] with as many invalid samples, except that a gap longer than the memory of all
    /// steps takes no time.
    ///
    /// # Errors
    /// Errors of a GPU.
    pub fn gap(&mut self, samples: u64, observe: &mut dyn FnMut(Piece<'_>)) -> Result<u64> {
        if self.restarts.is_waiting {
            let skipped = self.whitener.skip(samples);
            if skipped > 0 {
                self.counts = (self.counts.0 + skipped, self.counts.1 + skipped);
                self.segments.skip(skipped);
                return Ok(skipped);
            }
        }
        let count = samples.min(self.rate_hz.into()) as usize;
        let (mut zeros, mut valid) =
            (std::mem::take(&mut self.gap), std::mem::take(&mut self.gap_valid));
        zeros.resize(self.rate_hz as usize, 0.0);
        valid.resize(self.rate_hz as usize, false);
        let done = self.run(&zeros[..count], &valid[..count], observe);
        (self.gap, self.gap_valid) = (zeros, valid);
        done.map(|()| count as u64)
    }

    /// Ends the stream as if silence followed.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub fn flush(&mut self, observe: &mut dyn FnMut(Piece<'_>)) -> Result<()> {
        loop {
            let produced = self.whitener.flush(&mut self.whitened, &mut self.whitened_valid)?;
            if produced == 0 {
                break;
            }
            self.filter(produced, observe)?;
        }
        if self.restarts.is_waiting {
            return Ok(());
        }
        loop {
            let produced = self.work.filter_end()?;
            if produced == 0 {
                break;
            }
            self.find(produced, observe)?;
        }
        self.end_search()
    }

    /// Waits for enqueued GPU work, so that [`ChirpDetector::triggers`] returns all triggers that are final.
    ///
    /// # Errors
    /// [`Error::Device`] when any of it failed.
    pub fn settle(&mut self) -> Result<()> {
        let before = self.triggers.len();
        self.work.collect(&mut self.triggers)?;
        self.place(before);
        Ok(())
    }

    /// Saves the state of an unfinished stream without its triggers; returns false for the reference backend, which
    /// cannot be saved. Call it after [`Self::settle`].
    ///
    /// # Errors
    /// [`Error::Device`] when earlier work on a GPU failed; [`Error::Unavailable`] when triggers of a GPU are
    /// outstanding.
    pub fn save(&self, to: &mut Saving) -> Result<bool> {
        to.part("chain");
        to.number(self.counts.0);
        to.number(self.counts.1);
        let Restarts { quiet, base, is_waiting, count, .. } = self.restarts;
        [quiet, base, is_waiting.into(), count].iter().for_each(|number| to.number(*number));
        to.flags(self.waiting.iter().copied());
        self.segments.save(to);
        self.whitener.save(to);
        self.work.save(to)
    }

    /// Restores the state of a chain with the same bank, options and backend, and the triggers it had.
    ///
    /// # Errors
    /// [`Error::Format`] for a state that no such chain saves; [`Error::Device`] when a GPU's driver refuses.
    pub fn load(&mut self, from: &mut Saved<'_>, triggers: Vec<Trigger>) -> Result<()> {
        from.part("chain")?;
        self.counts = (from.number()?, from.number()?);
        let (quiet, base) = (from.number()?, from.number()?);
        let is_waiting = from.at_most(1)? == 1;
        let count = from.number()?;
        self.restarts = Restarts { quiet, base, is_waiting, count, ..self.restarts };
        if base > self.counts.1 || is_waiting && self.counts.0 != self.counts.1 {
            return Err(from.fault("restart of the filters", format!("{:?}", self.restarts)));
        }
        let Some(waiting) = self.counts.0.checked_sub(self.counts.1) else {
            return Err(from.fault("samples filtered", format!("{:?}", self.counts)));
        };
        self.waiting = from.flags(usize::try_from(waiting).unwrap_or(usize::MAX))?.into();
        if self.waiting.len() as u64 != waiting {
            return Err(from.fault("flags", format!("{} of {waiting} found", self.waiting.len())));
        }
        self.segments.load(from, self.counts.1)?;
        self.whitener.load(from)?;
        let base = if is_waiting { self.counts.0 } else { base };
        self.work.load(from, self.counts.0 - base, self.counts.1 - base)?;
        if let Some(bad) =
            triggers.iter().find(|one| one.template as usize >= self.peak_offsets_s.len())
        {
            return Err(from.fault("template of a trigger", format!("{} found", bad.template)));
        }
        self.triggers = triggers;
        Ok(())
    }

    /// Returns a trigger with its time.
    pub(super) fn timed(&self, trigger: &Trigger) -> TimedTrigger {
        let offset_s = self.peak_offsets_s[trigger.template as usize];
        TimedTrigger::new(trigger, self.start, self.rate_hz, offset_s)
    }

    /// Ends the chain; returns its triggers with their times, and the segments in which triggers were possible.
    pub fn finish(mut self) -> (Vec<TimedTrigger>, Segments) {
        // Those of other parts follow own ones.
        self.triggers.sort_by_key(|trigger| (trigger.sample, trigger.template));
        let triggers = self.triggers.iter().map(|trigger| self.timed(trigger)).collect();
        let segments = self.segments.finish().shrunk(self.gate_pad_s).later(self.usual_offset_s);
        (triggers, segments)
    }

    /// Returns the segments of a time in which triggers were possible; the time must be decided.
    pub(super) fn valid(&self, time: Range<Gps>) -> Segments {
        // Pads shrink whole segments, so those that reach into the time are clipped last.
        let margin_s = self.gate_pad_s + 1.0;
        let begin = time.start.plus_s(-self.usual_offset_s - margin_s);
        let end = time.end.plus_s(-self.usual_offset_s + margin_s);
        let own = self.segments.around(begin, end).shrunk(self.gate_pad_s);
        let whole = Segments::one(time.start, time.end.seconds_since(time.start));
        Segments::at_least(2, &[&own.later(self.usual_offset_s), &whole])
    }

    /// Filters the first `count` whitened samples.
    fn filter(&mut self, count: usize, observe: &mut dyn FnMut(Piece<'_>)) -> Result<()> {
        let (samples, valid) = (&self.whitened[..count], &self.whitened_valid[..count]);
        if count > 0 {
            observe(Piece::Whitened { first: self.counts.0, samples, valid });
        }
        let mut first = 0;
        while first < count {
            let (samples, valid) =
                (&self.whitened[first..count], &self.whitened_valid[first..count]);
            if self.restarts.is_waiting {
                let quiet = samples
                    .iter()
                    .zip(valid)
                    .take_while(|(sample, valid)| is_quiet(**sample, **valid))
                    .count();
                self.counts = (self.counts.0 + quiet as u64, self.counts.1 + quiet as u64);
                self.segments.skip(quiet as u64);
                if quiet < samples.len() {
                    self.restarts.is_waiting = false;
                    (self.restarts.base, self.restarts.quiet) = (self.counts.0, 0);
                }
                first += quiet;
                continue;
            }
            let taken = self.restarts.take(samples, valid);
            self.waiting.extend(&valid[..taken]);
            self.counts.0 += taken as u64;
            let produced = self.work.filter(&samples[..taken])?;
            self.find(produced, observe)?;
            if self.restarts.is_due() {
                self.restart()?;
            }
            first += taken;
        }
        Ok(())
    }

    /// Ends the filters' stream in a gap: what they still hold is negligible, and invalid.
    fn restart(&mut self) -> Result<()> {
        self.segments.skip(self.waiting.len() as u64);
        self.waiting.clear();
        self.counts.1 = self.counts.0;
        self.end_search()?;
        self.work.reset();
        self.restarts.is_waiting = true;
        self.restarts.count += 1;
        Ok(())
    }

    /// Ends the peak search.
    fn end_search(&mut self) -> Result<()> {
        let before = self.triggers.len();
        self.work.end_search(&mut self.triggers)?;
        self.place(before);
        Ok(())
    }

    /// Gives the triggers from number `first` on their samples in the stream.
    fn place(&mut self, first: usize) {
        let base = self.restarts.base;
        self.triggers[first..].iter_mut().for_each(|trigger| trigger.sample += base);
    }

    /// Searches for peaks in the first `times` of each template's ratios.
    fn find(&mut self, times: usize, observe: &mut dyn FnMut(Piece<'_>)) -> Result<()> {
        if times == 0 {
            return Ok(());
        }
        self.z_valid.clear();
        self.z_valid.extend(self.waiting.drain(..times));
        if let Some(Ratios { z, stride, times }) = self.work.ratios(times) {
            observe(Piece::Ratios { first: self.counts.1, z, stride, times });
        }
        self.counts.1 += times as u64;
        self.segments.push(&self.z_valid);
        let _span = trace::span(trace::Work::Compute, "triggers");
        let before = self.triggers.len();
        self.work.find(&self.z_valid, &mut self.triggers)?;
        self.place(before);
        Ok(())
    }
}

impl Restarts {
    /// Counts invalid zeros; returns the number of samples up to the one that makes a restart due.
    fn take(&mut self, samples: &[f32], valid: &[bool]) -> usize {
        let Some(after) = self.after else { return samples.len() };
        for (index, (sample, valid)) in samples.iter().zip(valid).enumerate() {
            self.quiet = if is_quiet(*sample, *valid) { self.quiet + 1 } else { 0 };
            if self.quiet >= after {
                return index + 1;
            }
        }
        samples.len()
    }

    fn is_due(&self) -> bool {
        self.after.is_some_and(|after| self.quiet >= after)
    }
}

/// Returns the plan of a part of the templates.
fn part_of(plan: &Plan, part: Part, backend: &Backend) -> Result<Plan> {
    if part == Part::WHOLE {
        return Ok(plan.clone());
    }
    let mut parts = match backend.is_gpu() {
        true => plan.parts(part.count),
        false => plan.parts_on_cpu(part.count),
    };
    let found = parts.len();
    if found < part.count {
        let templates = plan.templates();
        let rule = format!(
            "the filters of some templates are computed together, so that at most {found} ranks can divide these {templates} templates"
        );
        return Err(Error::parameter("ranks", part.count, rule));
    }
    Ok(parts.swap_remove(part.own))
}

/// Returns whether a whitened sample is in a gap, after the whitener's response to its edge.
fn is_quiet(sample: f32, valid: bool) -> bool {
    sample == 0.0 && !valid
}

/// Checks that the strain has the bank's sample rate.
fn check_rate(bank: &Bank, rate_hz: u32) -> Result<()> {
    if bank.rate_hz == rate_hz {
        return Ok(());
    }
    let rule = format!("the bank was made for strain of {} Hz", bank.rate_hz);
    Err(Error::parameter("rate of the strain (Hz)", rate_hz, rule))
}

/// Run-in of each filter in units of its memory (e-folding time); after it, earlier input is negligible.
const MEMORIES: f64 = 14.0;

/// Returns the longest input range of a template's filters (delay and run-in), in samples of strain.
pub(super) fn reach(filters: &Template) -> usize {
    let of_branch = |branch: &Branch| {
        let of_filter = |filter: &Filter| {
            let memory = -1.0 / filter.pole().norm().ln();
            filter.delay as usize + (MEMORIES * memory).ceil() as usize
        };
        let samples = branch.filters.iter().map(of_filter).max().unwrap_or(0);
        samples.saturating_mul(1 << branch.halvings)
    };
    filters.branches.iter().map(of_branch).max().unwrap_or(0)
}

/// Delay of each stage, in seconds of data.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Latency {
    /// Whitener: samples required after one before it is whitened.
    pub whitening_s: f64,
    /// Filter bank: alignment of its sample rates.
    pub resampling_s: f64,
    /// Peak search: the window around a peak, its autocorrelation, gates that may follow.
    pub triggers_s: f64,
}

impl Latency {
    /// Returns the total delay.
    pub fn total_s(&self) -> f64 {
        self.whitening_s + self.resampling_s + self.triggers_s
    }
}

/// Shortest piece in samples to which a memory limit may shrink it.
const MIN_LIMIT: usize = 16;

/// Memory need: a fixed part, and a part per sample of a piece.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Need {
    /// Fixed bytes.
    pub held: usize,
    /// Bytes per sample.
    pub sample: usize,
}

impl Need {
    /// Returns the samples of the longest pieces for which all needs together stay within `limit`.
    ///
    /// # Errors
    /// [`crate::Error::Unavailable`], with the need, when not even the shortest pieces fit.
    pub fn piece(limit: Option<u64>, what: &str, all: impl Iterator<Item = Self>) -> Result<usize> {
        let Self { held, sample } = all.fold(Self::default(), |sum, one| Self {
            held: sum.held.saturating_add(one.held),
            sample: sum.sample.saturating_add(one.sample),
        });
        let remaining = remaining_bytes(limit, what, held, sample.saturating_mul(MIN_LIMIT))?;
        Ok(remaining / sample.max(1))
    }
}

/// Limits in bytes on the signal-to-noise ratios of a piece, on the host and on a GPU, and the divisor of the GPU's
/// free memory, which is a further limit.
const HOST_BYTES: usize = 16 << 20;
const DEVICE_BYTES: usize = 256 << 20;
const PART: usize = 4;

/// Smallest number of samples per piece without a memory limit, and largest on the host and on a GPU.
const MIN_PIECE: usize = 256;
const MAX_PIECE: usize = 1 << 14;
const MAX_DEVICE_PIECE: usize = 1 << 15;

/// Input buffers of a GPU: one is filtered while the next are copied and filled.
const SLOTS: usize = 3;

/// Filters and peak search of whitened strain: those of all templates, or of a share of them on each GPU.
#[derive(Debug)]
struct Work {
    shares: Vec<Share>,
    /// Largest number of samples per piece.
    piece: usize,
    /// End of the zeros that follow the stream, once it has ended.
    end: Option<u64>,
}

/// Filters and peak search of consecutive templates of the bank, on one device.
#[derive(Debug)]
struct Share {
    /// First template.
    first: u32,
    spiir: Spiir,
    finder: Finder,
    ratios: Memory,
    /// Triggers that other shares have not decided yet, by sample, then template.
    found: Vec<Trigger>,
}

/// Signal-to-noise ratios of a piece, axes template, time.
#[derive(Debug)]
enum Memory {
    Host(Vec<Complex<f32>>),
    Device(Box<OnDevice>),
}

/// Input and ratios of a piece in device memory.
#[derive(Debug)]
struct OnDevice {
    ordinal: usize,
    stream: Stream,
    uploads: UploadRing<f32>,
    z: Buffer<Complex<f32>>,
}

impl OnDevice {
    fn new(device: &Device, piece: usize, templates: usize) -> Result<Self> {
        Ok(Self {
            ordinal: device.ordinal(),
            stream: device.stream()?,
            uploads: UploadRing::new(device, piece, SLOTS)?,
            z: device.buffer(templates.saturating_mul(piece))?,
        })
    }
}

impl Share {
    /// Filters whitened samples; returns the number of ratios they produce, in rows of `stride` elements.
    fn filter(&mut self, samples: &[f32], stride: usize) -> Result<usize> {
        let times = samples.len();
        match &mut self.ratios {
            Memory::Host(z) => Ok(self.spiir.run(samples, z, stride)?.produced),
            Memory::Device(_) if times == 0 => Ok(0),
            Memory::Device(on_device) => {
                let OnDevice { stream, uploads, z, .. } = &mut **on_device;
                let fill = |host: &mut [f32]| host.copy_from_slice(samples);
                let buffer = uploads.upload(times, stream, fill)?;
                let input = DeviceSamples { buffer, first: 0, times };
                let output = DeviceOutput { buffer: z, first: 0, stride };
                let produced = self.spiir.enqueue(input, output, stream)?.produced;
                uploads.release(stream)?;
                Ok(produced)
            }
        }
    }

    /// Searches the piece's first `valid.len()` ratios.
    fn find(&mut self, valid: &[bool], stride: usize) -> Result<()> {
        let times = valid.len();
        let Self { finder, ratios, found, .. } = self;
        match ratios {
            Memory::Host(z) => finder.run(Ratios { z, stride, times }, valid, found),
            Memory::Device(on_device) => {
                let OnDevice { stream, z, .. } = &**on_device;
                finder.enqueue(DeviceRatios { z, stride, times }, valid, found, stream)
            }
        }
    }

    /// Calls `work`, and numbers the triggers that it appends as in the bank. Errors name the device.
    fn do_work<T>(&mut self, work: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let before = self.found.len();
        let done = work(self);
        self.found[before..].iter_mut().for_each(|trigger| trigger.template += self.first);
        done.map_err(|error| match &self.ratios {
            Memory::Device(on_device) => error.on_device(on_device.ordinal),
            Memory::Host(_) => error,
        })
    }
}

impl Work {
    /// Builds filters and peak search. On GPUs, which divide the templates, ratios stay in their memory unless they are
    /// `shown` to an observer; the peaks of shown ratios are searched on the host, and one GPU filters.
    ///
    /// # Errors
    /// Errors of the steps; [`Error::Unavailable`](crate::Error::Unavailable) without memory for a short piece.
    fn new(plan: Plan, search: trigger::Plan, backend: &Backend, shown: bool) -> Result<Self> {
        let backends = match backend {
            Backend::Cuda(..) if !shown => backend.shares(),
            _ => vec![backend.clone()],
        };
        let plans = match backends.len() {
            1 => vec![plan],
            count => plan.parts(count),
        };
        let parts = plans.into_iter().zip(backends).collect();
        let built = side_by_side(parts, |(plan, backend): (Plan, Backend)| {
            let own = plan.range();
            let host = backend.on_host();
            let finder = if shown { &host } else { &backend };
            let finder = Finder::new(search.part(own.clone()), finder)?;
            Ok((own.start as u32, Spiir::new(plan, &backend)?, finder, backend))
        })?;
        let ratio = size_of::<Complex<f32>>();
        let mut piece = usize::MAX;
        for (_, spiir, _, backend) in &built {
            let (bytes, longest) = match backend {
                Backend::Cuda(device, _) if !shown => {
                    (DEVICE_BYTES.min(device.free_bytes()? / PART), MAX_DEVICE_PIECE)
                }
                _ => (HOST_BYTES, MAX_PIECE),
            };
            let templates = spiir.plan().templates();
            piece = piece.min((bytes / ratio / templates).clamp(MIN_PIECE, longest));
        }
        let mut shares = Vec::with_capacity(built.len());
        for (first, spiir, finder, backend) in built {
            let templates = spiir.plan().templates();
            let ratios = match &backend {
                Backend::Cuda(device, _) if !shown => {
                    Memory::Device(Box::new(OnDevice::new(device, piece, templates)?))
                }
                _ => {
                    let what = "a piece of all templates' signal-to-noise ratios";
                    check_memory(what, templates.checked_mul(piece * ratio))?;
                    Memory::Host(vec![Complex::default(); templates * piece])
                }
            };
            shares.push(Share { first, spiir, finder, ratios, found: Vec::new() });
        }
        Ok(Self { shares, piece, end: None })
    }

    /// Returns the first share's filters, whose latency and samples are those of all.
    fn spiir(&self) -> &Spiir {
        &self.shares[0].spiir
    }

    /// Returns the first share's peak search, whose latency and samples are those of all.
    fn finder(&self) -> &Finder {
        &self.shares[0].finder
    }

    /// Returns the host memory.
    fn need(&self) -> Need {
        let mut need = Need::default();
        for Share { spiir, finder, ratios, .. } in &self.shares {
            let (held, staged) = spiir.host_bytes();
            need.held += held + finder.held_bytes();
            match ratios {
                Memory::Host(_) => {
                    need.sample += spiir.plan().templates() * size_of::<Complex<f32>>() + staged;
                }
                Memory::Device(_) => need.held += SLOTS * self.piece * size_of::<f32>(),
            }
        }
        need
    }

    /// Limits the samples per piece; call it before the first sample.
    fn limit(&mut self, samples: usize) {
        self.piece = self.piece.min(samples.max(1));
        for Share { spiir, ratios, .. } in &mut self.shares {
            if let Memory::Host(z) = ratios {
                z.truncate(spiir.plan().templates() * self.piece);
                z.shrink_to_fit();
                spiir.limit(self.piece);
            }
        }
    }

    /// Filters whitened samples, at most one piece; returns the number of ratios they produce.
    fn filter(&mut self, samples: &[f32]) -> Result<usize> {
        let times = samples.len();
        check_length("samples of a piece", times.min(self.piece), times)?;
        let mut produced = 0;
        for share in &mut self.shares {
            produced = share.do_work(|share| share.filter(samples, self.piece))?;
        }
        Ok(produced)
    }

    /// Filters zeros after the stream's end; returns the number of ratios they produce, 0 at the end.
    fn filter_end(&mut self) -> Result<usize> {
        let piece = self.piece;
        if let [Share { spiir, ratios: Memory::Host(z), .. }] = &mut self.shares[..] {
            return spiir.flush(z, piece);
        }
        let latency = self.spiir().plan().latency() as u64;
        let end = *self.end.get_or_insert(self.shares[0].spiir.consumed() + latency);
        let mut produced = 0;
        while produced == 0 && self.spiir().consumed() < end {
            let left = end - self.spiir().consumed();
            produced = self.filter(&vec![0.0; left.min(piece as u64) as usize])?;
        }
        Ok(produced)
    }

    /// Returns the piece's first `times` ratios if the host has them.
    fn ratios(&self, times: usize) -> Option<Ratios<'_>> {
        match &self.shares[0].ratios {
            Memory::Host(z) => Some(Ratios { z, stride: self.piece, times }),
            Memory::Device(_) => None,
        }
    }

    /// Searches the piece's first `valid.len()` ratios, and appends the triggers that are certain.
    fn find(&mut self, valid: &[bool], triggers: &mut Vec<Trigger>) -> Result<()> {
        let stride = self.piece;
        for share in &mut self.shares {
            share.do_work(|share| share.find(valid, stride))?;
        }
        self.take(triggers);
        Ok(())
    }

    /// Waits for enqueued work, and appends the triggers that are certain.
    fn collect(&mut self, triggers: &mut Vec<Trigger>) -> Result<()> {
        for share in &mut self.shares {
            share.do_work(|share| share.finder.collect(&mut share.found))?;
        }
        self.take(triggers);
        Ok(())
    }

    /// Ends the peak search, and appends its last triggers.
    fn end_search(&mut self, triggers: &mut Vec<Trigger>) -> Result<()> {
        for share in &mut self.shares {
            share.do_work(|share| share.finder.flush(&mut share.found))?;
        }
        self.take_before(u64::MAX, triggers);
        Ok(())
    }

    /// Prepares the filters for the next stream; the peak search must have ended.
    fn reset(&mut self) {
        self.shares.iter_mut().for_each(|share| share.spiir.reset());
    }

    /// Returns the number of samples that all shares have decided.
    fn certain(&self) -> u64 {
        self.shares.iter().map(|share| share.finder.certain()).min().unwrap_or(0)
    }

    /// Appends the triggers of the samples that all shares have decided.
    fn take(&mut self, triggers: &mut Vec<Trigger>) {
        self.take_before(self.certain(), triggers);
    }

    /// Appends the triggers before a sample, by sample, then by template.
    fn take_before(&mut self, sample: u64, triggers: &mut Vec<Trigger>) {
        let before = triggers.len();
        for share in &mut self.shares {
            let count = share.found.partition_point(|trigger| trigger.sample < sample);
            triggers.extend(share.found.drain(..count));
        }
        if self.shares.len() > 1 {
            triggers[before..].sort_unstable_by_key(|trigger| (trigger.sample, trigger.template));
        }
    }

    /// Saves the state of the stream; returns false for the reference backend, which cannot be saved. All final
    /// triggers must have been collected.
    fn save(&self, to: &mut Saving) -> Result<bool> {
        to.number(self.shares.len() as u64);
        let mut is_whole = true;
        for share in &self.shares {
            is_whole &= share.spiir.save(to)?;
            share.finder.save(to)?;
        }
        Ok(is_whole)
    }

    /// Restores a state saved after this many samples were whitened and filtered.
    fn load(&mut self, from: &mut Saved<'_>, whitened: u64, filtered: u64) -> Result<()> {
        from.expect("devices", self.shares.len() as u64)?;
        self.end = None;
        for share in &mut self.shares {
            share.found.clear();
            share.spiir.load(from)?;
            share.finder.load(from)?;
            let found = (share.spiir.consumed(), share.finder.known());
            if found != (whitened, filtered) {
                let why = format!("{found:?} found, expected {:?}", (whitened, filtered));
                return Err(from.fault("samples filtered", why));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_share_what_a_limit_leaves() {
        let needs =
            || [Need { held: 1000, sample: 10 }, Need { held: 2000, sample: 30 }].into_iter();
        assert!(Need::piece(None, "all", needs()).unwrap() > 1 << 40);
        assert_eq!(Need::piece(Some(7000), "all", needs()).unwrap(), 100);
        assert_eq!(Need::piece(Some(3640), "all", needs()).unwrap(), MIN_LIMIT);
        assert!(Need::piece(Some(3639), "all", needs()).is_err());
    }
}
