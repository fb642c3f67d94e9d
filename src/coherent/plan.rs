//! Coherent dedispersion: parameters, their checks, filters, and the position of blocks in a stream.

use std::f64::consts::TAU;

use num_complex::Complex;

use crate::error::{Error, Result};
use crate::units::{HZ_PER_MHZ, dispersion_delay_s};
use crate::voltage::VoltageEncoding;

/// Largest transform length.
const MAX_POINTS: usize = 1 << 26;

/// Smallest transform length; below it, distributing blocks to threads takes longer than transforming them.
const MIN_POINTS: usize = 1 << 12;

/// Limit in bytes on all filters.
const MAX_BYTES: usize = 2 << 30;

/// Blocks and overlaps are multiples of this, so that blocks begin at whole bytes.
const STEP: usize = 4;

/// Streams, dispersion and the channels to correct for.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Dispersion measure.
    pub dm: f64,
    /// Dispersion constant.
    pub dm_constant: f64,
    /// Encoding of the recorded samples.
    pub encoding: VoltageEncoding,
    /// Number of antennas.
    pub antennas: usize,
    /// Polarizations per antenna, 1 or 2.
    pub polarizations: usize,
    /// Sky frequency of each recorded channel's centre in Hz.
    pub centres_hz: Vec<f64>,
    /// Whether sky frequency falls as the voltage's frequency rises.
    pub lower_sideband: bool,
    /// Sampling time of each stream in seconds.
    pub tsamp_s: f64,
    /// Frequency in Hz of each output channel in a recorded channel's voltages, relative to its middle.
    pub offsets_hz: Vec<f64>,
    /// Samples within which the response outside a channel decays: a window row of the filter bank that follows.
    pub ringing: usize,
    /// Length of the recording in samples, when known.
    pub times: Option<u64>,
}

impl Options {
    /// Returns the number of recorded channels.
    pub fn coarse_channels(&self) -> usize {
        self.centres_hz.len()
    }

    /// Returns the number of recorded streams: antennas x recorded channels x polarizations.
    pub fn streams(&self) -> usize {
        self.antennas * self.coarse_channels() * self.polarizations
    }

    /// Returns the width of a recorded channel in Hz.
    fn width_hz(&self) -> f64 {
        let rate = 1.0 / self.tsamp_s;
        if self.encoding.is_complex() { rate } else { 0.5 * rate }
    }

    /// Returns 1, or -1 in a lower sideband.
    fn sign(&self) -> f64 {
        if self.lower_sideband { -1.0 } else { 1.0 }
    }

    /// Returns the longest delay in seconds across `width` Hz, at the lowest frequency.
    fn delay_s(&self, width: f64) -> f64 {
        let lowest = self.centres_hz.iter().copied().fold(f64::MAX, f64::min);
        let edge = lowest - 0.5 * self.width_hz();
        if edge <= 0.0 {
            return f64::INFINITY;
        }
        dispersion_delay_s(self.dm, edge, edge + width, self.dm_constant)
    }

    /// Returns the dispersive phase in turns at a sky frequency, relative to a channel centre.
    ///
    /// `K DM (f - f_0)^2 / (f f_0^2)`: its slope is the delay of `f` relative to `f_0`.
    ///
    /// # Source
    /// Hankins & Rickett 1975, Methods in Computational Physics 14, 55.
    fn turns(&self, frequency_hz: f64, middle_hz: f64) -> f64 {
        // K is in s MHz^2; phase in turns is seconds times Hz.
        let constant = self.dm_constant * self.dm * HZ_PER_MHZ * HZ_PER_MHZ;
        let distance = frequency_hz - middle_hz;
        constant * distance * distance / (frequency_hz * middle_hz * middle_hz)
    }
}

/// Checked parameters and transform length; filters are as short as the delay within a channel allows.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    options: Options,
    points: usize,
    overlap: usize,
    reach: usize,
}

impl Plan {
    /// Checks the options and chooses the transform length.
    ///
    /// # Errors
    /// [`Error::Parameter`] for a dispersion measure that is negative or not finite, or whose filters are too long,
    /// or longer than the recording.
    pub fn new(options: Options) -> Result<Self> {
        let dm = options.dm;
        if !(dm.is_finite() && dm >= 0.0) {
            let rule = "it must be 0 or more";
            return Err(Error::parameter("coherent_dm", dm, rule));
        }
        let width = options.width_hz() / options.offsets_hz.len() as f64;
        let delay = options.delay_s(width) / options.tsamp_s;
        // Responses outside the channel decay within one window of the filter bank.
        let overlap = ((delay + options.ringing as f64) / STEP as f64).ceil() * STEP as f64;
        let most = MAX_POINTS.min(MAX_BYTES / (16 * options.coarse_channels())).max(1);
        let most = 1 << most.ilog2();
        if most < MIN_POINTS || 8.0 * overlap > most as f64 {
            let rule = format!(
                "in channels of {:.6} MHz it takes filters of {overlap:.0} samples, and at most {} are \
                 possible; more channels make them shorter",
                width / HZ_PER_MHZ,
                most / 8,
            );
            return Err(Error::parameter("coherent_dm", dm, rule));
        }
        if let Some(times) = options.times.filter(|times| delay >= *times as f64) {
            let rule = format!(
                "in channels of {:.6} MHz it delays by {delay:.0} samples, and there are {times} of each \
                 stream",
                width / HZ_PER_MHZ,
            );
            return Err(Error::parameter("coherent_dm", dm, rule));
        }
        let overlap = overlap as usize;
        let points = (8 * overlap).next_power_of_two().max(MIN_POINTS);
        Ok(Self { options, points, overlap, reach: delay.ceil() as usize })
    }

    /// Returns the options.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Returns the transform length in samples, a power of two.
    pub fn points(&self) -> usize {
        self.points
    }

    /// Returns the samples discarded at each end of a block.
    pub fn overlap(&self) -> usize {
        self.overlap
    }

    /// Returns the output samples of a block.
    pub fn block(&self) -> usize {
        self.points - 2 * self.overlap
    }

    /// Returns the longest delay that a filter removes, in samples.
    pub fn reach(&self) -> usize {
        self.reach
    }

    /// Returns the encoding of the output: single precision, complex or real as the input.
    pub fn output_encoding(&self) -> VoltageEncoding {
        match self.options.encoding.is_complex() {
            true => VoltageEncoding::ComplexF32,
            false => VoltageEncoding::RealF32,
        }
    }

    /// Returns the streams of the output: two copies of each recorded stream.
    pub fn output_streams(&self) -> usize {
        2 * self.options.streams()
    }

    /// Returns the most output samples of each stream that `times` input samples complete.
    pub fn max_times(&self, times: usize) -> usize {
        (self.points + times).div_ceil(self.block()) * self.block()
    }

    /// Returns the block that contains output sample `first`: its first output sample, and the first input sample that it
    /// needs.
    pub fn start(&self, first: u64) -> Start {
        let block = self.block() as u64;
        let output = first / block * block;
        Start { output, input: output.saturating_sub(self.overlap as u64) }
    }

    /// Returns the output samples that the input samples before `end` complete, counted from the first of the recording.
    pub(crate) fn complete(&self, end: u64) -> u64 {
        let block = self.block() as u64;
        end.saturating_sub(self.overlap as u64) / block * block
    }

    /// Returns the end of the input samples that complete the output samples before `end`.
    pub(crate) fn needed(&self, end: u64) -> u64 {
        end.next_multiple_of(self.block() as u64) + self.overlap as u64
    }

    /// Returns the first output sample with which a stream can begin that has the input samples from number `first` on.
    pub(crate) fn first_output(&self, first: u64) -> u64 {
        (first + self.overlap as u64).next_multiple_of(self.block() as u64)
    }

    /// Returns the bytes that a plan on the host holds for filters and carried samples.
    pub fn host_bytes(&self) -> usize {
        let carried = self.options.streams() * self.options.encoding.bytes(self.points);
        8 * self.responses() + 2 * carried
    }

    /// Returns the streams that share a transform: one complex stream, or the polarizations of real ones.
    pub(super) fn together(&self) -> usize {
        if self.options.encoding.is_complex() { 1 } else { self.options.polarizations }
    }

    /// Returns the transforms of a block.
    pub(super) fn units(&self) -> usize {
        self.options.streams() / self.together()
    }

    /// Returns the recorded channel of a unit.
    pub(super) fn coarse(&self, unit: usize) -> usize {
        unit * self.together() / self.options.polarizations % self.options.coarse_channels()
    }

    /// Returns one bin of a filter: its phase relative to the centre of the nearest even (copy 0) or odd (copy 1)
    /// channel, divided by the transform length.
    pub(super) fn response(&self, coarse: usize, copy: usize, bin: usize) -> Complex<f64> {
        let Self { options, points, .. } = self;
        let points = *points;
        let (rate, width) = (1.0 / options.tsamp_s, options.width_hz());
        let (centre, offsets) = (options.centres_hz[coarse], &options.offsets_hz);
        let first = offsets[copy.min(offsets.len() - 1)];
        let spacing = 2.0 * width / offsets.len() as f64;
        let sign = options.sign();
        let complex = options.encoding.is_complex();
        let edge = if complex { 0.0 } else { 0.5 * width };
        let signed = if bin < points.div_ceil(2) { bin as f64 } else { bin as f64 - points as f64 };
        let frequency = signed * rate / points as f64;
        // Real samples have each frequency twice, the negative one conjugated.
        let offset = if complex { frequency } else { frequency.abs() - edge };
        let middle = first + ((offset - first) / spacing).round() * spacing;
        let turns = options.turns(centre + sign * offset, centre + sign * middle);
        let mirrored = !complex && frequency < 0.0;
        let phase = -TAU * sign * turns.fract() * if mirrored { -1.0 } else { 1.0 };
        let mut value = Complex::from_polar(1.0 / points as f64, phase);
        if !complex && (bin == 0 || bin == points / 2) {
            // Otherwise the two polarizations that share a transform mix.
            value.im = 0.0;
        }
        value
    }

    /// Returns the number of all filters' bins; axes recorded channel, copy, bin.
    pub(super) fn responses(&self) -> usize {
        2 * self.options.coarse_channels() * self.points
    }

    /// Returns the bin at an index of all filters' bins, in single precision.
    pub(super) fn response_at(&self, index: usize) -> Complex<f32> {
        let (filter, bin) = (index / self.points, index % self.points);
        let value = self.response(filter / 2, filter % 2, bin);
        Complex::new(value.re as f32, value.im as f32)
    }
}

/// Start of a stream within a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// First output sample.
    pub output: u64,
    /// First input sample to supply.
    pub input: u64,
}

/// Position in a stream. Windows overlap, so samples are carried from one call to the next.
#[derive(Clone, Copy, Debug)]
pub(super) struct Position {
    /// Samples of the next window at hand, and the zeros among them, which precede the recording.
    held: usize,
    zeros: usize,
    /// Input samples taken and output samples written, counted from the first sample of the recording.
    taken: u64,
    made: u64,
}

impl Position {
    /// Returns the position before a start.
    pub(super) fn new(plan: &Plan, start: Start) -> Self {
        let zeros = if start.output == 0 { plan.overlap } else { 0 };
        Self { held: zeros, zeros, taken: start.input, made: start.output }
    }

    /// Returns the work for `offered` samples if the output has space for `free` ones.
    pub(super) fn step(&self, plan: &Plan, offered: usize, free: usize) -> Step {
        let (points, block) = (plan.points, plan.block());
        let all = self.held + offered;
        let complete = if all >= points { 1 + (all - points) / block } else { 0 };
        let blocks = complete.min(free / block);
        // The samples left must fit one window.
        let fresh = offered.min(blocks * block + points - self.held);
        Step { zeros: self.zeros, held: self.held, fresh, blocks, times: blocks * block }
    }

    /// Returns the work for the end of the stream: zeros follow its last sample.
    pub(super) fn last_step(&self, plan: &Plan, free: usize) -> Step {
        let block = plan.block();
        let pending = self.taken.saturating_sub(self.made) as usize;
        let blocks = pending.div_ceil(block).min(free / block);
        let times = pending.min(blocks * block);
        Step { zeros: self.zeros, held: self.held, fresh: 0, blocks, times }
    }

    /// Advances past a step.
    pub(super) fn pass(&mut self, plan: &Plan, step: &Step) {
        let past = step.blocks * plan.block();
        self.held = step.end().saturating_sub(past);
        self.zeros = step.zeros.saturating_sub(past);
        self.taken += step.fresh as u64;
        self.made += step.times as u64;
    }
}

/// Work of one call. Sample 0 is the first of the first window; block `b` has the window from sample `b block` on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    /// Samples before the call's input: zeros, then those carried from earlier calls.
    pub(super) zeros: usize,
    pub(super) held: usize,
    /// Samples of the call's input.
    pub(super) fresh: usize,
    /// Blocks to compute.
    pub(super) blocks: usize,
    /// Output samples; the last block of a stream may exceed them.
    pub(super) times: usize,
}

impl Step {
    /// Returns the end of the samples at hand; later ones are zeros.
    pub(super) fn end(&self) -> usize {
        self.held + self.fresh
    }
}
