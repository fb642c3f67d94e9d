//! Whitening of strain: power spectra, zero-phase and minimum-phase filters, gates.
//!
//! Invariant: any split of a stream gives the same bits, and nothing that is not finite comes out.

mod fade;
mod filter;
mod running;
mod welch;

use std::collections::VecDeque;

use num_complex::Complex;
use rustfft::FftPlanner;

use crate::backend::threads::Threads;
use crate::error::{Error, Result};
use crate::math::PowerSpectrum;
use crate::state::{Saved, Saving};
use crate::view::{Progress, check_length};
use fade::{Edges, Fade};
use filter::{Designer, Overlap, Partition, Shape};
use running::Follower;
pub use running::{RunningOptions, RunningPsd};
pub use welch::{Average, Take, WelchOptions, welch, welch_of};

/// Samples beyond this magnitude are not strain and count as not finite.
const MAX_STRAIN: f64 = 1e60;
/// Approximate blocks per second of the minimum-phase filter.
const BLOCKS: f64 = 64.0;

enum Engine {
    Overlap(Box<Overlap>),
    Partition(Box<Partition>),
}

/// Whitens strain: `y = h * x`, `|H(f)|^2 = 2 / (rate S(f))`. Noise of one-sided power spectral density `S` becomes
/// white with unit variance per sample over the band up to the Nyquist frequency; below [`Options::f_low_hz`] the
/// response falls to 0.
///
/// | buffer         | axes | type | unit                         | access      |
/// |----------------|------|------|------------------------------|-------------|
/// | `strain`       | time | f64  | strain                       | read        |
/// | `valid`        | time | bool |                              | read        |
/// | `output`       | time | f32  | standard deviations of noise | overwritten |
/// | `output_valid` | time | bool |                              | overwritten |
///
/// Sample `k` of the output belongs to sample `k` of the strain and is known [`Whitener::latency`] samples later.
/// Samples that are invalid or not finite count as zeros and are output as zeros. The adjacent strain fades over
/// [`Options::taper`], before the filter and again after it. The output marks all of these invalid, and also gated
/// samples and those before a running spectrum is known.
///
/// # Numerics
/// Computes in f64; `run` allocates nothing.
/// # Source
/// Messick et al. 2017, Phys. Rev. D 95, 042001; the kernel's truncation: Allen et al. 2012, Phys. Rev. D 85, 122006;
/// minimum phase: Tsukada et al. 2018, Phys. Rev. D 97, 103009.
///
/// # Examples
/// In white noise of deviation 1e-21 a sine of amplitude 3e-21 has an amplitude of 3 deviations:
///
/// ```
/// use sidereal::math::PowerSpectrum;
/// use sidereal::spiir::whiten::{Options, Psd, Whitener};
///
/// # fn main() -> sidereal::Result<()> {
/// let rate_hz = 1024;
/// let density = 2.0 * 1e-21_f64.powi(2) / f64::from(rate_hz);
/// let psd = Psd::Fixed(PowerSpectrum::new(0.25, vec![density; 2049])?);
/// let mut whitener = Whitener::new(Options::low_latency(rate_hz, psd))?;
///
/// let wave = |k: usize| 3e-21 * (std::f64::consts::TAU * 128.0 * k as f64 / 1024.0).sin();
/// let strain: Vec<f64> = (0..8192).map(wave).collect();
/// let (mut white, mut is_valid) = (vec![0.0; 8192], vec![false; 8192]);
/// let produced = whitener.run(&strain, &[true; 8192], &mut white, &mut is_valid)?.produced;
/// assert_eq!(produced, 8192 - whitener.latency());
/// let last = &white[produced - 1024..produced];
/// let mean_square = last.iter().map(|y| y * y).sum::<f32>() / 1024.0;
/// let amplitude = (2.0 * mean_square).sqrt();
/// assert!((amplitude - 3.0).abs() < 0.1 && is_valid[produced - 1], "{amplitude}");
/// # Ok(())
/// # }
/// ```
pub struct Whitener {
    options: Options,
    shape: Shape,
    designer: Designer,
    kernel: Vec<f64>,
    fade: Fade,
    follower: Option<Follower>,
    engine: Engine,
    gate: Option<(f64, Fade)>,
    /// Weights of the samples in the filter, and of those in the gate.
    weights: VecDeque<f64>,
    gate_weights: VecDeque<f64>,
    /// First sample that is filtered only with a known spectrum; `None` until the spectrum is known.
    known_from: Option<u64>,
    /// Samples passed to the filter.
    filtered: u64,
    /// Strain received, without the zeros of a flush, and output produced.
    consumed: u64,
    produced: u64,
    is_ended: bool,
    /// Unusable samples since the last usable one.
    unusable: u64,
    /// Threads that convolve the frames of a block, and its samples after the fades, with their weights.
    threads: Option<Threads>,
    faded: Vec<f64>,
    faded_weights: Vec<f64>,
}

impl Whitener {
    /// Creates a whitener.
    ///
    /// # Errors
    /// [`Error::Parameter`] for a spectrum that does not reach the Nyquist frequency, a length of fewer than 16
    /// samples or more than 2^26, a lowest frequency that is not between 0 and the Nyquist frequency, or a taper or
    /// gate that is negative or longer than an hour.
    pub fn new(options: Options) -> Result<Self> {
        let shape = check(&options)?;
        let rate = f64::from(options.rate_hz);
        let samples = |seconds: f64| (seconds * rate).round() as usize;
        let block = 1 << (rate / BLOCKS).log2().round().max(0.0) as usize;
        let (before, after) = (samples(options.taper.before_s), samples(options.taper.after_s));
        // The filter restarts at most once per block and drops samples between two gaps in a block; a taper of at
        // least a block marks them invalid.
        let after = if shape.taps.is_some() { after.max(block) } else { after };
        let edges = Edges { zero: 0, before, after };
        let gate = options.gate.map(|gate| {
            let taper = samples(gate.taper_s);
            let edges = Edges { zero: samples(gate.hold_s), before: taper, after: taper };
            (gate.threshold, Fade::new(edges, false))
        });
        let follower = match &options.psd {
            Psd::Fixed(_) => None,
            Psd::Running(running) => Some(Follower::new(options.rate_hz, running)?),
        };
        let engine = match shape.taps {
            None => {
                let hop = shape.length.div_ceil(4);
                Engine::Overlap(Box::new(Overlap::new(shape.coefficients(), shape.origin(), hop)))
            }
            Some(taps) => {
                let over = (shape.length / 2).div_ceil(block);
                Engine::Partition(Box::new(Partition::new(taps, block, over)))
            }
        };
        let gate_latency = gate.as_ref().map_or(0, |(_, fade)| fade.latency());
        let mut whitener = Self {
            designer: Designer::new(shape),
            kernel: vec![0.0; shape.coefficients()],
            fade: Fade::new(edges, true),
            weights: VecDeque::with_capacity(engine.latency() + 1),
            gate_weights: VecDeque::with_capacity(gate_latency + 1),
            follower,
            engine,
            gate,
            shape,
            options,
            known_from: None,
            filtered: 0,
            consumed: 0,
            produced: 0,
            is_ended: false,
            unusable: 0,
            threads: None,
            faded: Vec::new(),
            faded_weights: Vec::new(),
        };
        whitener.reset();
        Ok(whitener)
    }

    /// Returns the same whitener, which filters long blocks on several threads if it is of [`Method::Overlap`] with a
    /// fixed spectrum. The output has the same bits. It allocates when a block has more frames (a quarter of the kernel's
    /// length each) than any before.
    #[must_use]
    pub fn with_threads(self, threads: Threads) -> Self {
        Self { threads: Some(threads), ..self }
    }

    /// Returns the options.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Returns the approximate host bytes it occupies.
    pub fn held_bytes(&self) -> usize {
        let engine = match &self.engine {
            Engine::Overlap(engine) => engine.held_bytes(),
            Engine::Partition(engine) => engine.held_bytes(),
        };
        let follower = self.follower.as_ref().map_or(0, Follower::held_bytes);
        // Queued weights, and samples with their flags.
        let waiting = 40 * self.latency();
        engine + follower + self.designer.held_bytes() + 8 * self.kernel.len() + waiting
    }

    /// Returns how many samples must follow before one is known: the sum for the filter, the taper before gaps, and
    /// the gate.
    pub fn latency(&self) -> usize {
        let gate = self.gate.as_ref().map_or(0, |(_, fade)| fade.latency());
        self.fade.latency() + self.engine.latency() + gate
    }

    /// Returns the latency in seconds.
    pub fn latency_s(&self) -> f64 {
        self.latency() as f64 / f64::from(self.options.rate_hz)
    }

    /// Processes all of `strain` and writes the next `produced <= strain.len()` whitened samples to the start of
    /// `output`.
    ///
    /// # Errors
    /// [`Error::Shape`] unless all slices have the same length; [`Error::Parameter`] after [`Self::flush`].
    pub fn run(
        &mut self,
        strain: &[f64],
        valid: &[bool],
        output: &mut [f32],
        output_valid: &mut [bool],
    ) -> Result<Progress> {
        check_length("flags of valid strain", strain.len(), valid.len())?;
        check_length("whitened strain", strain.len(), output.len())?;
        check_length("flags of whitened strain", strain.len(), output_valid.len())?;
        if self.is_ended {
            let rule = "a stream that was flushed has ended: reset the whitener first";
            return Err(Error::parameter("strain", strain.len(), rule));
        }
        let mut produced = 0;
        let mut put = |whitened: Option<(f32, bool)>| {
            if let Some((sample, valid)) = whitened {
                (output[produced], output_valid[produced]) = (sample, valid);
                produced += 1;
            }
        };
        let samples = strain.iter().copied().zip(valid.iter().copied());
        if self.threads.is_some() && self.follower.is_none() {
            self.fade_all(samples);
            for index in 0..self.faded.len() {
                put(self.filter(self.faded[index], self.faded_weights[index]));
            }
        } else {
            samples.for_each(|(sample, valid)| put(self.push(sample, valid)));
        }
        self.consumed += strain.len() as u64;
        self.produced += produced as u64;
        Ok(Progress { consumed: strain.len(), produced })
    }

    /// Ends the stream as if a gap followed: writes up to `output.len()` of its last [`Self::latency`] samples and
    /// returns their number. Call it until it returns 0.
    ///
    /// # Errors
    /// [`Error::Shape`] unless both slices have the same length.
    pub fn flush(&mut self, output: &mut [f32], output_valid: &mut [bool]) -> Result<usize> {
        check_length("flags of whitened strain", output.len(), output_valid.len())?;
        self.is_ended = true;
        let mut produced = 0;
        while produced < output.len() && self.produced < self.consumed {
            if let Some((sample, valid)) = self.push(0.0, false) {
                (output[produced], output_valid[produced]) = (sample, valid);
                produced += 1;
                self.produced += 1;
            }
        }
        Ok(produced)
    }

    /// Discards the stream and the state of a running spectrum.
    pub fn reset(&mut self) {
        self.fade.reset();
        self.weights.clear();
        self.gate_weights.clear();
        if let Some((_, fade)) = &mut self.gate {
            fade.reset();
        }
        match &mut self.engine {
            Engine::Overlap(engine) => engine.reset(),
            Engine::Partition(engine) => engine.reset(),
        }
        let is_known = self.follower.as_mut().is_none_or(|follower| {
            follower.reset();
            follower.is_settled()
        });
        self.known_from = is_known.then_some(0);
        if is_known {
            self.update_kernel(true);
        } else {
            self.kernel.fill(0.0);
            self.engine.set_kernel(&self.kernel, true);
        }
        (self.filtered, self.consumed, self.produced, self.is_ended) = (0, 0, 0, false);
        self.unusable = 0;
    }

    /// Passes over the next samples of a gap, of which some seconds have been [processed](Self::run): as if `run` had taken
    /// as many invalid samples and returned as many zeros. Returns their number, which is at most `samples`; 0 if the state
    /// still changes in the gap.
    pub fn skip(&mut self, samples: u64) -> u64 {
        let (segment, period) = match &self.engine {
            Engine::Overlap(engine) => (2 * self.shape.length, engine.period()),
            Engine::Partition(engine) => (self.shape.length, engine.period()),
        };
        let follower = self.follower.as_ref().map_or(2, Follower::length);
        let settled = self.latency() + 2 * segment + 2 * follower + 2 * period as usize;
        let half = follower as u64 / 2;
        let period = period / greatest_divisor(period, half) * half;
        let skipped = samples / period * period;
        if self.is_ended || skipped == 0 || self.unusable < settled as u64 {
            return 0;
        }
        self.fade.skip(skipped);
        if let Some((_, fade)) = &mut self.gate {
            fade.skip(skipped);
        }
        if let Some(follower) = &mut self.follower {
            follower.skip(skipped);
        }
        if let Engine::Overlap(engine) = &mut self.engine {
            engine.skip(skipped);
        }
        self.unusable += skipped;
        self.filtered += skipped;
        self.consumed += skipped;
        self.produced += skipped;
        skipped
    }

    /// Saves the state of a stream that has not ended, without options and tables.
    pub fn save(&self, to: &mut Saving) {
        to.part("whitener");
        let numbers = [self.filtered, self.consumed, self.produced, self.unusable];
        numbers.iter().for_each(|number| to.number(*number));
        to.maybe(self.known_from);
        to.f64s(self.kernel.iter());
        to.f64s(self.weights.iter());
        to.f64s(self.gate_weights.iter());
        self.fade.save(to);
        if let Some((_, fade)) = &self.gate {
            fade.save(to);
        }
        if let Some(follower) = &self.follower {
            follower.save(to);
        }
        match &self.engine {
            Engine::Overlap(engine) => engine.save(to),
            Engine::Partition(engine) => engine.save(to),
        }
    }

    /// Restores the state saved by a whitener with the same options.
    ///
    /// # Errors
    /// [`Error::Format`] for a state that such a whitener does not save, after which [`reset`](Self::reset) is
    /// required.
    pub fn load(&mut self, from: &mut Saved<'_>) -> Result<()> {
        from.part("whitener")?;
        self.is_ended = false;
        (self.filtered, self.consumed, self.produced) =
            (from.number()?, from.number()?, from.number()?);
        self.unusable = from.number()?;
        let known = self.consumed.saturating_sub(self.latency() as u64);
        if self.produced != known {
            let why = format!("{} found, expected {known}", self.produced);
            return Err(from.fault("whitened samples", why));
        }
        self.known_from = from.maybe()?;
        from.fill_f64(&mut self.kernel)?;
        self.weights = from.f64s(self.engine.latency())?.into();
        let gate_latency = self.gate.as_ref().map_or(0, |(_, fade)| fade.latency());
        self.gate_weights = from.f64s(gate_latency)?.into();
        self.fade.load(from)?;
        if let Some((_, fade)) = &mut self.gate {
            fade.load(from)?;
        }
        if let Some(follower) = &mut self.follower {
            follower.load(from)?;
        }
        match &mut self.engine {
            Engine::Overlap(engine) => {
                engine.set_kernel(&self.kernel);
                engine.load(from)
            }
            Engine::Partition(engine) => engine.load(from),
        }
    }

    /// Returns the present spectrum; `None` before a running one is known.
    pub fn psd(&self) -> Option<PowerSpectrum> {
        match (&self.options.psd, &self.follower) {
            (Psd::Fixed(spectrum), _) => Some(spectrum.clone()),
            (Psd::Running(_), Some(follower)) if self.known_from.is_some() => {
                follower.running().spectrum()
            }
            _ => None,
        }
    }

    /// Returns the present impulse response and the index of its lag 0; all 0 before a running spectrum is known.
    pub fn kernel(&self) -> (&[f64], usize) {
        (&self.kernel, self.shape.origin())
    }

    /// Returns the frequency response in bins `0 ..= points / 2` of a Fourier transform of `points` samples, to
    /// whiten a template like the strain. It is real for [`Method::Overlap`].
    ///
    /// # Errors
    /// [`Error::Parameter`] if the impulse response is longer than `points`.
    pub fn response(&self, points: usize) -> Result<Vec<Complex<f64>>> {
        if points < self.kernel.len() {
            let rule = format!("the response has {} samples", self.kernel.len());
            return Err(Error::parameter("points of the transform", points, rule));
        }
        let mut buffer = vec![Complex::default(); points];
        for (place, coefficient) in self.kernel.iter().enumerate() {
            buffer[(place + points - self.shape.origin()) % points] =
                Complex::new(*coefficient, 0.0);
        }
        FftPlanner::new().plan_fft_forward(points).process(&mut buffer);
        buffer.truncate(points / 2 + 1);
        Ok(buffer)
    }

    /// Fades the samples of a block, and filters its frames.
    fn fade_all(&mut self, samples: impl Iterator<Item = (f64, bool)>) {
        self.faded.clear();
        self.faded_weights.clear();
        for (sample, valid) in samples {
            if let Some((sample, weight)) = self.faded(sample, valid) {
                self.faded.push(sample);
                self.faded_weights.push(weight);
            }
        }
        if let (Engine::Overlap(engine), Some(threads)) = (&mut self.engine, &self.threads) {
            engine.convolve_ahead(&self.faded, threads);
        }
    }

    /// Passes one sample through all stages.
    fn push(&mut self, sample: f64, valid: bool) -> Option<(f32, bool)> {
        let (sample, weight) = self.faded(sample, valid)?;
        self.filter(sample, weight)
    }

    /// Passes one sample of the strain through its fade.
    fn faded(&mut self, sample: f64, valid: bool) -> Option<(f64, f64)> {
        let is_good = valid && sample.abs() <= MAX_STRAIN;
        self.unusable = if is_good { 0 } else { self.unusable + 1 };
        self.fade.push(if is_good { sample } else { 0.0 }, !is_good)
    }

    /// Passes one sample through all stages after the fade.
    fn filter(&mut self, sample: f64, weight: f64) -> Option<(f32, bool)> {
        if let Some(follower) = &mut self.follower
            && follower.push(sample, weight == 1.0)
            && follower.is_settled()
        {
            let at_once = self.known_from.is_none();
            self.known_from.get_or_insert(self.filtered + self.shape.origin() as u64);
            self.update_kernel(at_once);
        }
        let is_known = self.known_from.is_some_and(|first| self.filtered >= first);
        self.filtered += 1;
        self.weights.push_back(if is_known { weight } else { 0.0 });
        let whitened = match &mut self.engine {
            Engine::Overlap(engine) => engine.push(sample),
            Engine::Partition(engine) => engine.push(sample, weight == 0.0),
        }?;
        // Applies the taper again, so that the filter's ringing ends at the gap.
        let weight = self.weights.pop_front()?;
        let whitened = if weight == 0.0 { 0.0 } else { whitened * weight };
        let Some((threshold, fade)) = &mut self.gate else {
            return Some(finite(whitened, weight == 1.0));
        };
        self.gate_weights.push_back(weight);
        let is_quiet = whitened.abs() <= *threshold;
        let (whitened, gate_weight) = fade.push(whitened, !is_quiet)?;
        let weight = gate_weight * self.gate_weights.pop_front()?;
        Some(finite(whitened, weight == 1.0))
    }

    fn update_kernel(&mut self, at_once: bool) {
        let (spacing_hz, densities) = match (&self.options.psd, &self.follower) {
            (Psd::Fixed(spectrum), _) => (spectrum.spacing_hz(), spectrum.densities()),
            (Psd::Running(_), Some(follower)) => {
                (follower.running().spacing_hz(), follower.running().densities())
            }
            (Psd::Running(_), None) => return,
        };
        self.designer.design(spacing_hz, densities, &mut self.kernel);
        self.engine.set_kernel(&self.kernel, at_once);
    }
}

impl std::fmt::Debug for Whitener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Whitener").field("options", &self.options).finish_non_exhaustive()
    }
}

impl Engine {
    fn latency(&self) -> usize {
        match self {
            Self::Overlap(engine) => engine.latency(),
            Self::Partition(engine) => engine.latency(),
        }
    }

    fn set_kernel(&mut self, kernel: &[f64], at_once: bool) {
        match self {
            Self::Overlap(engine) => engine.set_kernel(kernel),
            Self::Partition(engine) => engine.set_kernel(kernel, at_once),
        }
    }
}

/// Checks all options and returns the kernel's shape.
fn check(options: &Options) -> Result<Shape> {
    let rate_hz = options.rate_hz;
    if !(1..=1_000_000).contains(&rate_hz) {
        return Err(Error::parameter("rate (Hz)", rate_hz, "it must be 1 to 10^6"));
    }
    let nyquist = f64::from(rate_hz) / 2.0;
    if !(options.f_low_hz > 0.0 && options.f_low_hz < nyquist) {
        let rule = format!("it must lie between 0 and {nyquist} Hz");
        return Err(Error::parameter("lowest frequency (Hz)", options.f_low_hz, rule));
    }
    if let Psd::Fixed(spectrum) = &options.psd
        && spectrum.highest_hz() < nyquist - spectrum.spacing_hz()
    {
        let rule = format!("it must reach {nyquist} Hz for strain of {rate_hz} Hz");
        return Err(Error::parameter(
            "end of the power spectrum (Hz)",
            spectrum.highest_hz(),
            rule,
        ));
    }
    let gate = options.gate.unwrap_or_default();
    let seconds = [options.taper.before_s, options.taper.after_s, gate.hold_s, gate.taper_s];
    if let Some(bad) = seconds.into_iter().find(|seconds| !(0.0..=3600.0).contains(seconds)) {
        let rule = "it must be 0 to 3600 s";
        return Err(Error::parameter("taper or hold of a gate (s)", bad, rule));
    }
    if gate.threshold.is_nan() || gate.threshold <= 0.0 {
        let rule = "it must be above 0 standard deviations";
        return Err(Error::parameter("threshold of the gate", gate.threshold, rule));
    }
    let (name, seconds, is_causal) = match options.method {
        Method::Overlap { fft_s } => ("length of the whitening filter (s)", fft_s, false),
        Method::MinimumPhase { taps_s } => ("length of the whitening filter (s)", taps_s, true),
    };
    let length = welch::even_samples(name, seconds, rate_hz)?;
    let taps = is_causal.then_some(length);
    Ok(Shape { rate_hz, f_low_hz: options.f_low_hz, length, taps })
}

/// Returns the greatest common divisor of two numbers that are not 0.
fn greatest_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { greatest_divisor(b, a % b) }
}

fn finite(whitened: f64, is_good: bool) -> (f32, bool) {
    let whitened = whitened as f32;
    if whitened.is_finite() { (whitened, is_good) } else { (0.0, false) }
}

/// Source of the power spectrum.
#[derive(Clone, Debug, PartialEq)]
pub enum Psd {
    /// One spectrum for the whole stream; it must reach the Nyquist frequency.
    Fixed(PowerSpectrum),
    /// A spectrum that tracks the stream.
    Running(RunningOptions),
}

/// Method of filtering.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Method {
    /// Zero-phase kernel of total length `fft_s`; the latency is `fft_s` plus the taper's.
    Overlap {
        /// Length of the kernel in seconds, at least that of the segments of the spectrum.
        fft_s: f64,
    },
    /// Minimum-phase kernel; the latency is one block, `2^round(log2(rate / 64))` samples less 1: 15 ms at 4096 Hz.
    MinimumPhase {
        /// Length of the kernel in seconds.
        taps_s: f64,
    },
}

/// Gating of loud transients in the whitened strain.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GateOptions {
    /// Whitened samples beyond this many standard deviations are gated.
    pub threshold: f64,
    /// Seconds on both sides of such a sample that are zeroed.
    pub hold_s: f64,
    /// Seconds beyond those over which the strain fades.
    pub taper_s: f64,
}

impl Default for GateOptions {
    /// Returns 50 standard deviations, 0.25 s and 0.25 s.
    fn default() -> Self {
        Self { threshold: 50.0, hold_s: 0.25, taper_s: 0.25 }
    }
}

/// Seconds over which strain fades next to unusable samples.
///
/// Short tapers create sidebands of strong lines, which pass the filter's narrow notches. Next to a gap in LIGO
/// Livingston's strain of 2015, the whitened strain reached 17 standard deviations with a taper of 0.25 s on both
/// sides, 8 with 0.5 s, and 5 with 1 s, hardly more than the noise.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Taper {
    /// Before such samples; adds to the latency.
    pub before_s: f64,
    /// After such samples, and after the stream's beginning.
    pub after_s: f64,
}

/// Options of a whitener.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Samples per second.
    pub rate_hz: u32,
    /// Source of the power spectrum.
    pub psd: Psd,
    /// Method of filtering.
    pub method: Method,
    /// Lowest frequency that is whitened; the response is 0 below 3/4 of it.
    pub f_low_hz: f64,
    /// Fade of the strain next to gaps.
    pub taper: Taper,
    /// Gating of loud transients; off by default.
    pub gate: Option<GateOptions>,
}

impl Options {
    /// Returns zero-phase whitening with a kernel of 4 s from 15 Hz on, tapers of 1 s, no gate; the latency is 5 s.
    pub fn new(rate_hz: u32, psd: Psd) -> Self {
        let method = Method::Overlap { fft_s: 4.0 };
        let taper = Taper { before_s: 1.0, after_s: 1.0 };
        Self { rate_hz, psd, method, f_low_hz: 15.0, taper, gate: None }
    }

    /// Returns minimum-phase whitening with a kernel of 4 s, a taper of 1 s after gaps and none before. The filter
    /// restarts after a gap, so the cut does not ring. The latency is 15 ms at 4096 Hz.
    pub fn low_latency(rate_hz: u32, psd: Psd) -> Self {
        let method = Method::MinimumPhase { taps_s: 4.0 };
        let taper = Taper { before_s: 0.0, after_s: 1.0 };
        Self { method, taper, ..Self::new(rate_hz, psd) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns noise of unit variance, roughly.
    fn noise(samples: usize) -> Vec<f64> {
        let mut state = 5_u64;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 11) as f64 / (1_u64 << 53) as f64 - 0.5
        };
        (0..samples).map(|_| (0..12).map(|_| random()).sum::<f64>()).collect()
    }

    #[test]
    fn a_gap_that_is_skipped_leaves_the_state_of_one_that_is_processed() {
        let rate_hz = 100;
        let flat = PowerSpectrum::new(0.5, vec![1.0; 101]).expect("a spectrum");
        let running = |initial: Option<PowerSpectrum>| {
            Psd::Running(RunningOptions { segment_s: 3.0, initial, ..RunningOptions::default() })
        };
        let spectra = [Psd::Fixed(flat.clone()), running(Some(flat)), running(None)];
        let gate = Some(GateOptions { threshold: 3.0, ..GateOptions::default() });
        let strain = noise(7000);
        for psd in &spectra {
            for options in
                [Options::new(rate_hz, psd.clone()), Options::low_latency(rate_hz, psd.clone())]
            {
                let mut whitener = Whitener::new(Options { gate, ..options }).expect("options");
                let (mut output, mut flags) = (vec![0.0; 7000], vec![false; 7000]);
                let run = |whitener: &mut Whitener, strain: &[f64], is_valid: bool| {
                    let (mut output, mut flags) =
                        (vec![0.0; strain.len()], vec![false; strain.len()]);
                    let valid = vec![is_valid; strain.len()];
                    let progress =
                        whitener.run(strain, &valid, &mut output, &mut flags).expect("lengths");
                    output.truncate(progress.produced);
                    (output, flags)
                };
                run(&mut whitener, &strain[..5371], true);
                assert_eq!(whitener.skip(1 << 20), 0, "in strain");
                run(&mut whitener, &[0.0; 17], false);
                assert_eq!(whitener.skip(1 << 20), 0, "at the beginning of a gap");
                run(&mut whitener, &vec![0.0; 6000], false);
                let saved = |whitener: &Whitener| {
                    let mut to = Saving::default();
                    whitener.save(&mut to);
                    to.finish()
                };
                let state = saved(&whitener);
                let mut other = Whitener::new(whitener.options().clone()).expect("options");
                other
                    .load(&mut Saved::new("a".as_ref(), 0, &state).expect("whole"))
                    .expect("state");
                let skipped = whitener.skip(100_000);
                assert!(skipped > 90_000 && skipped <= 100_000, "{skipped}");
                let zeros = run(&mut other, &vec![0.0; skipped as usize], false);
                assert!(zeros.0.iter().all(|sample| *sample == 0.0) && !zeros.1.contains(&true));
                assert_eq!(saved(&whitener), saved(&other), "{:?}", whitener.options().method);
                assert_eq!(
                    run(&mut whitener, &strain[5371..], true),
                    run(&mut other, &strain[5371..], true)
                );
                let ends = [&mut whitener, &mut other].map(|one| {
                    let count = one.flush(&mut output, &mut flags).expect("lengths");
                    (output[..count].to_vec(), flags[..count].to_vec())
                });
                assert_eq!(ends[0], ends[1]);
            }
        }
    }
}
