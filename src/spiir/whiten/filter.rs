//! Whitening filters: their design from a power spectrum, and zero-phase and minimum-phase convolution of a stream.
//!
//! Invariant: a kernel is finite whatever the spectrum; frames and blocks lie at multiples of their length from the
//! stream's first sample, and nothing is allocated after creation.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use num_complex::Complex;
use rustfft::{Fft, FftPlanner};

use crate::backend::threads::Threads;
use crate::error::Result;
use crate::state::{Saved, Saving};

/// Start of the cutoff below the lowest frequency, as a fraction of that frequency.
const WALL: f64 = 0.75;
/// Floor of the response below the cutoff, relative to the whitening gain: a minimum-phase filter cannot have zeros.
const FLOOR: f64 = 1e-4;

/// Shape of a kernel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) rate_hz: u32,
    pub(super) f_low_hz: f64,
    /// Samples of the zero-phase kernel, an even number: its lags are `-length / 2 + 1` to `length / 2 - 1`.
    pub(super) length: usize,
    /// Coefficients of the minimum-phase kernel derived from it; `None` for the zero-phase kernel itself.
    pub(super) taps: Option<usize>,
}

impl Shape {
    /// Returns the number of coefficients.
    pub(super) fn coefficients(&self) -> usize {
        self.taps.unwrap_or(self.length - 1)
    }

    /// Returns the index of lag 0 among the coefficients.
    pub(super) fn origin(&self) -> usize {
        if self.taps.is_some() { 0 } else { self.length / 2 - 1 }
    }
}

/// Designs kernels.
pub(super) struct Designer {
    shape: Shape,
    forward: Arc<dyn Fft<f64>>,
    inverse: Arc<dyn Fft<f64>>,
    buffer: Vec<Complex<f64>>,
    scratch: Vec<Complex<f64>>,
    /// Hann window over the lags from 0 on.
    window: Vec<f64>,
    /// Least response of a minimum-phase kernel.
    least: Vec<f64>,
}

impl Designer {
    /// Returns the bytes it occupies, including the tables of its transforms.
    pub(super) fn held_bytes(&self) -> usize {
        64 * self.buffer.len() + 8 * (self.window.len() + self.least.len())
    }

    pub(super) fn new(shape: Shape) -> Self {
        // Longer than the kernel: the cepstrum is longer than the response.
        let points = shape.length * if shape.taps.is_some() { 8 } else { 2 };
        let mut planner = FftPlanner::new();
        let forward = planner.plan_fft_forward(points);
        let inverse = planner.plan_fft_inverse(points);
        let scratch = forward.get_inplace_scratch_len().max(inverse.get_inplace_scratch_len());
        let half = shape.length / 2;
        let angle = std::f64::consts::FRAC_PI_2 / half as f64;
        Self {
            shape,
            forward,
            inverse,
            buffer: vec![Complex::default(); points],
            scratch: vec![Complex::default(); scratch],
            window: (0..half).map(|lag| (lag as f64 * angle).cos().powi(2)).collect(),
            least: vec![0.0; points / 2 + 1],
        }
    }

    /// Writes the kernel for densities `spacing_hz` apart.
    pub(super) fn design(&mut self, spacing_hz: f64, densities: &[f64], kernel: &mut [f64]) {
        self.zero_phase(spacing_hz, densities);
        let (points, half) = (self.buffer.len(), self.shape.length / 2);
        let Some(taps) = self.shape.taps else {
            for (place, coefficient) in kernel.iter_mut().enumerate() {
                *coefficient = self.buffer[(place + points - (half - 1)) % points].re;
            }
            return;
        };
        self.minimum_phase();
        let scale = 1.0 / points as f64;
        for (place, coefficient) in kernel.iter_mut().enumerate() {
            // The second half of the kernel is tapered.
            let part = (2.0 * place as f64 / taps as f64 - 1.0).max(0.0);
            let window = (part * std::f64::consts::FRAC_PI_2).cos().powi(2);
            *coefficient = self.buffer.get(place).map_or(0.0, |value| value.re * scale * window);
        }
    }

    /// Computes the zero-phase kernel, lag 0 first and negative lags at the end.
    fn zero_phase(&mut self, spacing_hz: f64, densities: &[f64]) {
        let points = self.buffer.len();
        let rate = f64::from(self.shape.rate_hz);
        let f_low = self.shape.f_low_hz;
        let at_low = interpolated(densities, f_low / spacing_hz);
        for bin in 0..=points / 2 {
            let frequency = bin as f64 * rate / points as f64;
            let mut density = interpolated(densities, frequency / spacing_hz);
            if frequency < f_low {
                density = density.max(at_low);
            }
            let whole = (2.0 / (rate * density)).sqrt();
            let whole = if whole.is_finite() { whole } else { 0.0 };
            let wall = ((frequency / f_low - WALL) / (1.0 - WALL)).clamp(0.0, 1.0);
            let wall = (wall * std::f64::consts::FRAC_PI_2).sin().powi(2);
            self.least[bin] = FLOOR * whole;
            let value = Complex::new(whole * wall, 0.0);
            self.buffer[bin] = value;
            self.buffer[(points - bin) % points] = value;
        }
        self.inverse.process_with_scratch(&mut self.buffer, &mut self.scratch);
        let scale = 1.0 / points as f64;
        let half = self.shape.length / 2;
        self.buffer[half..=points - half].fill(Complex::default());
        for lag in 0..half {
            let window = scale * self.window[lag];
            self.buffer[lag] = Complex::new(self.buffer[lag].re * window, 0.0);
            if lag > 0 {
                self.buffer[points - lag] = self.buffer[lag];
            }
        }
    }

    /// Converts the zero-phase kernel in the buffer to the minimum-phase kernel of the same magnitude.
    fn minimum_phase(&mut self) {
        let points = self.buffer.len();
        self.forward.process_with_scratch(&mut self.buffer, &mut self.scratch);
        let greatest = self.buffer.iter().map(|value| value.re.abs()).fold(0.0, f64::max);
        // Bounds the logarithm even if the response is 0 everywhere.
        let last = (greatest * 1e-12).max(f64::MIN_POSITIVE);
        for (bin, value) in self.buffer.iter_mut().enumerate() {
            let least = self.least[bin.min(points - bin)].max(last);
            *value = Complex::new(value.re.abs().max(least).ln(), 0.0);
        }
        self.inverse.process_with_scratch(&mut self.buffer, &mut self.scratch);
        let scale = 1.0 / points as f64;
        for (lag, value) in self.buffer.iter_mut().enumerate() {
            let fold = match lag {
                0 => 1.0,
                lag if 2 * lag < points => 2.0,
                lag if 2 * lag == points => 1.0,
                _ => 0.0,
            };
            *value = Complex::new(value.re * scale * fold, 0.0);
        }
        self.forward.process_with_scratch(&mut self.buffer, &mut self.scratch);
        self.buffer.iter_mut().for_each(|value| *value = value.exp());
        self.inverse.process_with_scratch(&mut self.buffer, &mut self.scratch);
    }
}

/// Returns the density between bins by logarithmic interpolation; beyond the last bin, the last density.
fn interpolated(densities: &[f64], place: f64) -> f64 {
    let place = place.clamp(0.0, (densities.len() - 1) as f64);
    let below = (place as usize).min(densities.len().saturating_sub(2));
    let part = place - below as f64;
    let (low, high) = (densities[below], densities[(below + 1).min(densities.len() - 1)]);
    if part == 0.0 {
        low
    } else if part == 1.0 {
        high
    } else if low.is_infinite() || high.is_infinite() {
        f64::INFINITY
    } else {
        (low.ln() * (1.0 - part) + high.ln() * part).exp()
    }
}

/// Buffers for the convolution of one frame.
struct Frame {
    values: Vec<Complex<f64>>,
    scratch: Vec<Complex<f64>>,
}

/// Zero-phase convolution of a stream with overlapping windowed frames (overlap-add).
pub(super) struct Overlap {
    /// Samples between consecutive frames, half a frame.
    hop: usize,
    origin: usize,
    window: Vec<f64>,
    forward: Arc<dyn Fft<f64>>,
    inverse: Arc<dyn Fft<f64>>,
    response: Vec<Complex<f64>>,
    frame: Frame,
    /// Convolutions of the next frames, and buffers for others.
    ahead: VecDeque<Frame>,
    spare: Vec<Frame>,
    /// Samples of the last frame.
    samples: VecDeque<f64>,
    /// Sums of frames. The first belongs to sample `first`; those before `known` are complete.
    sums: VecDeque<f64>,
    first: i64,
    known: i64,
    pushed: u64,
}

impl Overlap {
    /// Returns the bytes it occupies, including the tables of its transforms.
    pub(super) fn held_bytes(&self) -> usize {
        80 * self.response.len() + 8 * (self.window.len() + 2 * self.hop)
    }

    /// Creates a filter for kernels of `coefficients` with lag 0 at `origin`, with frames of `2 hop` samples.
    pub(super) fn new(coefficients: usize, origin: usize, hop: usize) -> Self {
        let points = (2 * hop + coefficients).next_power_of_two();
        let mut planner = FftPlanner::new();
        let forward = planner.plan_fft_forward(points);
        let inverse = planner.plan_fft_inverse(points);
        let scratch = forward.get_inplace_scratch_len().max(inverse.get_inplace_scratch_len());
        let step = std::f64::consts::FRAC_PI_2 / hop as f64;
        let mut overlap = Self {
            hop,
            origin,
            window: (0..2 * hop).map(|n| (n as f64 * step).sin().powi(2)).collect(),
            forward,
            inverse,
            response: vec![Complex::default(); points],
            frame: Frame {
                values: vec![Complex::default(); points],
                scratch: vec![Complex::default(); scratch],
            },
            ahead: VecDeque::new(),
            spare: Vec::new(),
            samples: VecDeque::with_capacity(2 * hop),
            sums: VecDeque::with_capacity(2 * points),
            first: 0,
            known: 0,
            pushed: 0,
        };
        overlap.reset();
        overlap
    }

    /// Returns how many samples must follow before one is known.
    pub(super) fn latency(&self) -> usize {
        2 * self.hop - 1 + self.origin
    }

    /// Sets the kernel for the frames that end from now on.
    pub(super) fn set_kernel(&mut self, kernel: &[f64]) {
        self.response.fill(Complex::default());
        let scale = 1.0 / self.response.len() as f64;
        for (value, coefficient) in self.response.iter_mut().zip(kernel) {
            *value = Complex::new(coefficient * scale, 0.0);
        }
        self.forward.process_with_scratch(&mut self.response, &mut self.frame.scratch);
    }

    /// Appends a sample and returns the next whitened one.
    pub(super) fn push(&mut self, sample: f64) -> Option<f64> {
        self.samples.pop_front();
        self.samples.push_back(sample);
        self.pushed += 1;
        if self.pushed.is_multiple_of(self.hop as u64) {
            self.add_frame();
        }
        if self.pushed <= self.latency() as u64 {
            return None;
        }
        debug_assert!(self.first < self.known, "known later than the latency says");
        self.first += 1;
        self.sums.pop_front()
    }

    /// Convolves the frames that end within the samples `coming` next, on all threads. The kernel must not change
    /// before these samples are pushed. Allocates buffers for at most as many frames as in any earlier call.
    pub(super) fn convolve_ahead(&mut self, coming: &[f64], threads: &Threads) {
        let (hop, held) = (self.hop, self.samples.len());
        let first = hop - (self.pushed % hop as u64) as usize;
        let frames = (coming.len() + hop - first) / hop;
        if threads.count() == 1 || frames < 2 {
            return;
        }
        while self.spare.len() < frames {
            let new = |other: &Vec<Complex<f64>>| vec![Complex::default(); other.len()];
            let Frame { values, scratch } = &self.frame;
            self.spare.push(Frame { values: new(values), scratch: new(scratch) });
        }
        let mut made = self.spare.split_off(self.spare.len() - frames);
        threads.for_each(&mut made, 1, |index, frame| {
            // The frame's samples, counted from the first one held.
            let end = held + first + index * hop;
            let sample = |place: usize| match place.checked_sub(held) {
                Some(place) => coming[place],
                None => self.samples[place],
            };
            self.convolve((end - 2 * hop..end).map(sample), &mut frame[0]);
        });
        self.ahead.extend(made);
    }

    /// Convolves a frame of samples.
    fn convolve(&self, samples: impl Iterator<Item = f64>, frame: &mut Frame) {
        let Frame { values, scratch } = frame;
        values.fill(Complex::default());
        let windowed = samples.zip(&self.window).map(|(sample, window)| sample * window);
        for (value, sample) in values.iter_mut().zip(windowed) {
            *value = Complex::new(sample, 0.0);
        }
        self.forward.process_with_scratch(values, scratch);
        values.iter_mut().zip(&self.response).for_each(|(value, response)| *value *= response);
        self.inverse.process_with_scratch(values, scratch);
    }

    /// Adds the convolution of the frame that ends now to the sums.
    fn add_frame(&mut self) {
        let none = Frame { values: Vec::new(), scratch: Vec::new() };
        let is_ahead = !self.ahead.is_empty();
        let frame = self.ahead.pop_front().unwrap_or_else(|| {
            let mut frame = std::mem::replace(&mut self.frame, none);
            self.convolve(self.samples.iter().copied(), &mut frame);
            frame
        });
        // The convolution's first value is at the frame's first sample plus the kernel's most negative lag.
        let start = self.pushed as i64 - 2 * self.hop as i64 - self.origin as i64;
        let end = start + frame.values.len() as i64;
        while self.first + (self.sums.len() as i64) < end {
            self.sums.push_back(0.0);
        }
        let skipped = (self.first - start).max(0) as usize;
        let from = (start - self.first).max(0) as usize;
        let sums = self.sums.iter_mut().skip(from);
        for (sum, value) in sums.zip(frame.values.iter().skip(skipped)) {
            *sum += value.re;
        }
        self.known = start + self.hop as i64;
        if is_ahead {
            self.spare.push(frame);
        } else {
            self.frame = frame;
        }
    }

    /// Returns the zeros after which the state repeats but for its counters, if it holds only zeros.
    pub(super) fn period(&self) -> u64 {
        self.hop as u64
    }

    /// Passes over zeros, whole periods.
    pub(super) fn skip(&mut self, samples: u64) {
        self.pushed += samples;
        self.first += samples as i64;
        self.known += samples as i64;
    }

    pub(super) fn reset(&mut self) {
        self.samples.clear();
        self.samples.resize(2 * self.hop, 0.0);
        self.spare.extend(self.ahead.drain(..));
        self.sums.clear();
        (self.first, self.known, self.pushed) = (0, 0, 0);
    }

    /// Saves the state of the stream; the kernel must be set separately.
    pub(super) fn save(&self, to: &mut Saving) {
        to.part("overlap");
        to.number(self.pushed);
        to.f64s(self.samples.iter());
        to.f64s(self.sums.iter());
    }

    pub(super) fn load(&mut self, from: &mut Saved<'_>) -> Result<()> {
        from.part("overlap")?;
        self.pushed = from.number()?;
        let mut samples = vec![0.0; self.samples.len()];
        from.fill_f64(&mut samples)?;
        self.samples = samples.into();
        // Derives the start of the sums and the end of the last frame from the number of samples.
        self.first = self.pushed.saturating_sub(self.latency() as u64) as i64;
        let (hop, frame) = (self.hop as i64, self.pushed / self.hop as u64 * self.hop as u64);
        let start = frame as i64 - 2 * hop - self.origin as i64;
        let held = if frame == 0 { 0 } else { start + self.frame.values.len() as i64 - self.first };
        self.known = if frame == 0 { 0 } else { start + hop };
        let mut sums = vec![0.0; usize::try_from(held).unwrap_or(0)];
        from.fill_f64(&mut sums)?;
        self.sums = sums.into();
        Ok(())
    }
}

/// Minimum-phase convolution of a stream in blocks (uniformly partitioned overlap-save).
pub(super) struct Partition {
    block: usize,
    forward: Arc<dyn Fft<f64>>,
    inverse: Arc<dyn Fft<f64>>,
    /// Spectra of the kernel's parts before the last change, and their changes; axes: part, bin.
    before: Vec<Complex<f64>>,
    change: Vec<Complex<f64>>,
    /// Blocks since the change, and blocks over which it is applied.
    since: usize,
    over: usize,
    /// Ring of the spectra of the latest inputs; axes: part, bin.
    inputs: Vec<Complex<f64>>,
    /// Index in the ring for the next block.
    next: usize,
    /// Samples of the last block, and those of the next block so far.
    samples: Vec<f64>,
    filled: usize,
    /// First and last cut in the block so far.
    cuts: Option<(usize, usize)>,
    output: Vec<f64>,
    has_output: bool,
    buffer: Vec<Complex<f64>>,
    scratch: Vec<Complex<f64>>,
}

impl Partition {
    /// Returns the bytes it occupies, including the tables of its transforms.
    pub(super) fn held_bytes(&self) -> usize {
        48 * self.inputs.len() + 72 * self.buffer.len() + 8 * self.output.len()
    }

    /// Creates a filter for kernels of `taps` coefficients in parts of `block`; a kernel change is spread over `over`
    /// blocks.
    pub(super) fn new(taps: usize, block: usize, over: usize) -> Self {
        let mut planner = FftPlanner::new();
        let forward = planner.plan_fft_forward(2 * block);
        let inverse = planner.plan_fft_inverse(2 * block);
        let scratch = forward.get_inplace_scratch_len().max(inverse.get_inplace_scratch_len());
        let spectra = vec![Complex::default(); taps.div_ceil(block) * (block + 1)];
        Self {
            block,
            forward,
            inverse,
            before: spectra.clone(),
            change: spectra.clone(),
            since: 0,
            over: over.max(1),
            inputs: spectra,
            next: 0,
            samples: vec![0.0; 2 * block],
            filled: 0,
            cuts: None,
            output: vec![0.0; block],
            has_output: false,
            buffer: vec![Complex::default(); 2 * block],
            scratch: vec![Complex::default(); scratch],
        }
    }

    /// Returns how many samples must follow before one is known.
    pub(super) fn latency(&self) -> usize {
        self.block - 1
    }

    /// Sets the kernel, at once or in small steps from block to block.
    pub(super) fn set_kernel(&mut self, kernel: &[f64], at_once: bool) {
        let part = self.share();
        let scale = 1.0 / (2 * self.block) as f64;
        let rows = self.before.chunks_exact_mut(self.block + 1);
        for (index, (before, change)) in
            rows.zip(self.change.chunks_exact_mut(self.block + 1)).enumerate()
        {
            self.buffer.fill(Complex::default());
            let coefficients = kernel.iter().skip(index * self.block).take(self.block);
            for (value, coefficient) in self.buffer.iter_mut().zip(coefficients) {
                *value = Complex::new(coefficient * scale, 0.0);
            }
            self.forward.process_with_scratch(&mut self.buffer, &mut self.scratch);
            for ((before, change), new) in before.iter_mut().zip(change).zip(&self.buffer) {
                *before = if at_once { *new } else { *before + *change * part };
                *change = new - *before;
            }
        }
        self.since = 0;
    }

    /// Returns the fraction of the last change applied so far.
    fn share(&self) -> f64 {
        self.since as f64 / self.over as f64
    }

    /// Appends a sample and returns the next filtered one. After a cut the stream restarts, so that ringing of the
    /// cut does not extend beyond it.
    pub(super) fn push(&mut self, sample: f64, is_cut: bool) -> Option<f64> {
        if is_cut {
            let first = self.cuts.map_or(self.filled, |cuts| cuts.0);
            self.cuts = Some((first, self.filled));
        }
        self.samples[self.block + self.filled] = sample;
        self.filled += 1;
        if self.filled == self.block {
            self.since = (self.since + 1).min(self.over);
            match self.cuts.take() {
                None => self.filter(0..2 * self.block, 0..self.block),
                Some((first, last)) => {
                    self.filter(0..self.block + first, 0..first);
                    self.inputs.fill(Complex::default());
                    self.samples[..=self.block + last].fill(0.0);
                    self.filter(0..2 * self.block, first..self.block);
                }
            }
            self.next = (self.next + 1) % (self.inputs.len() / (self.block + 1));
            self.filled = 0;
            self.samples.copy_within(self.block.., 0);
            self.has_output = true;
        }
        // The first output of a block is returned with its last sample.
        self.has_output.then(|| self.output[self.filled])
    }

    /// Filters the last two blocks, of which only the samples in `kept` count, and writes the outputs `wanted`.
    fn filter(&mut self, kept: Range<usize>, wanted: Range<usize>) {
        if wanted.is_empty() {
            return;
        }
        let bins = self.block + 1;
        self.buffer.fill(Complex::default());
        for (value, sample) in self.buffer[kept.clone()].iter_mut().zip(&self.samples[kept]) {
            *value = Complex::new(*sample, 0.0);
        }
        self.forward.process_with_scratch(&mut self.buffer, &mut self.scratch);
        self.inputs[self.next * bins..][..bins].copy_from_slice(&self.buffer[..bins]);
        let parts = self.inputs.len() / bins;
        let share = self.share();
        let sums = &mut self.buffer[..bins];
        sums.fill(Complex::default());
        for part in 0..parts {
            let row = (self.next + parts - part) % parts * bins;
            let input = &self.inputs[row..row + bins];
            let before = &self.before[part * bins..][..bins];
            let change = &self.change[part * bins..][..bins];
            let kernel = before.iter().zip(change).map(|(before, change)| before + change * share);
            for ((sum, input), kernel) in sums.iter_mut().zip(input).zip(kernel) {
                *sum += input * kernel;
            }
        }
        for bin in 1..self.block {
            self.buffer[2 * self.block - bin] = self.buffer[bin].conj();
        }
        self.inverse.process_with_scratch(&mut self.buffer, &mut self.scratch);
        let values = &self.buffer[self.block..];
        for (output, value) in self.output[wanted.clone()].iter_mut().zip(&values[wanted]) {
            *output = value.re;
        }
    }

    /// Returns the cuts after which the state repeats, once a kernel change is complete: the ring's length.
    pub(super) fn period(&self) -> u64 {
        (self.inputs.len() / (self.block + 1) * self.block) as u64
    }

    pub(super) fn reset(&mut self) {
        self.inputs.fill(Complex::default());
        self.samples.fill(0.0);
        (self.next, self.filled, self.has_output, self.cuts) = (0, 0, false, None);
    }

    /// Saves the state, including a kernel change in progress.
    pub(super) fn save(&self, to: &mut Saving) {
        to.part("partition");
        let (first, last) = self.cuts.unzip();
        let numbers = [self.since, self.next, self.filled, usize::from(self.has_output)];
        numbers.iter().for_each(|number| to.number(*number as u64));
        to.maybe(first.map(|first| first as u64));
        to.maybe(last.map(|last| last as u64));
        [&self.before, &self.change, &self.inputs].into_iter().for_each(|part| to.complex64(part));
        to.f64s(self.samples.iter());
        to.f64s(self.output.iter());
    }

    pub(super) fn load(&mut self, from: &mut Saved<'_>) -> Result<()> {
        from.part("partition")?;
        self.since = from.at_most(self.over)?;
        self.next = from.at_most(self.inputs.len() / (self.block + 1) - 1)?;
        self.filled = from.at_most(self.block - 1)?;
        self.has_output = from.at_most(1)? == 1;
        self.cuts = match (from.maybe()?, from.maybe()?) {
            (None, None) => None,
            (Some(first), Some(last)) if first <= last && last < self.filled as u64 => {
                Some((first as usize, last as usize))
            }
            found => return Err(from.fault("cuts", format!("{found:?} found"))),
        };
        from.fill_complex64(&mut self.before)?;
        from.fill_complex64(&mut self.change)?;
        from.fill_complex64(&mut self.inputs)?;
        from.fill_f64(&mut self.samples)?;
        from.fill_f64(&mut self.output)
    }
}
