//! Gravitational-wave strain of several detectors: coloured Gaussian noise or recorded strain, binaries, glitches, gaps.

mod options;
mod recorded;
mod signal;

use std::f64::consts::PI;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use num_complex::Complex64;
use rustfft::{Fft, FftPlanner};

pub use options::{DetectorOptions, Flagged, Glitch, Injection, Quality, Source, StrainOptions};
pub use recorded::Recorded;
pub use signal::{DetectorTruth, InjectionTruth, Truth};

use self::recorded::Played;
use self::signal::{Products, Projection, Signal, SineGaussian, Spectrum};
use super::random::{Key, Stream, fill_normal};
use crate::error::{Error, Result};
use crate::io::strain::{ALL_INJECTIONS, ALL_QUALITY, StrainHeader, StrainSource};
use crate::view::check_length;

/// Detectors of a simulation, and its ground truth.
pub struct Simulation {
    /// Simulators, one per detector, in the order of the options.
    pub detectors: Vec<StrainSimulator>,
    /// Simulated truth.
    pub truth: Truth,
}

/// Generates the strain that one detector would record.
///
/// `x[n] = noise[n] + sum_i Re(factor_i h_i((n - p_i) / rate)) + glitches`
///
/// - Recorded strain may take the place of the noise.
/// - The noise is Gaussian and stationary, with the requested one-sided density smeared over 1/16 Hz. Below the
///   options' lowest frequency it falls to zero. Each detector's noise is independent.
/// - A wave `h = h+ - i hx` is received as `F+ (1 + cos^2 i)/2 h+ + Fx cos i hx`, rotated by `exp(-2 i phase)`. The
///   antenna patterns and the delay are those of the event's time, when `|h|` peaks at the Earth's centre. Sub-sample
///   shifts use a sinc of 192 taps with a Kaiser window.
///
/// | buffer    | axes | type | unit   | access      |
/// |-----------|------|------|--------|-------------|
/// | `samples` | time | f64  | strain | overwritten |
///
/// Any sample is a function of the options and its number: it does not depend on the blocks in which samples are
/// read, and a detector's noise does not depend on the other detectors.
///
/// # Source
/// docs/design/strain_simulation.md.
pub struct StrainSimulator {
    header: StrainHeader,
    detector: DetectorOptions,
    floor: Floor,
    signals: Vec<Signal>,
    marks_injections: bool,
    glitches: Vec<SineGaussian>,
    next: u64,
}

/// Strain to which signals are added.
enum Floor {
    Silence,
    Noise(Box<Coloured>),
    Recorded(Box<Played>),
}

impl Simulation {
    /// Creates a simulation.
    ///
    /// # Errors
    /// [`Error::Parameter`] naming the option that is out of range, a power spectrum that ends below the
    /// Nyquist frequency, an event outside the data, or a binary without an inspiral in the band.
    pub fn new(options: &StrainOptions) -> Result<Self> {
        options.check()?;
        let of = |detector| StrainSimulator::new(options, detector, Floor::Silence);
        let mut detectors: Vec<StrainSimulator> = options.detectors.iter().map(of).collect();
        if options.noise {
            for (simulator, detector) in detectors.iter_mut().zip(&options.detectors) {
                let StrainOptions { seed, rate_hz, lowest_hz, .. } = *options;
                let noise = Coloured::new(seed, detector, rate_hz, lowest_hz);
                simulator.floor = Floor::Noise(Box::new(noise));
            }
        }
        Self::with_injections(options, detectors)
    }

    /// Creates a simulation of recorded strain, one recording for each detector, to which injections and faults are added. The
    /// spectra of the options are those of the truth's ratios.
    ///
    /// # Errors
    /// As [`Simulation::new`]; [`Error::Format`] for a recording of another detector or rate, or that lacks some of the
    /// time; [`Error::Parameter`] for a start that is no whole second, or another number of recordings.
    pub fn of_recordings(options: &StrainOptions, recordings: Vec<Recorded>) -> Result<Self> {
        options.check()?;
        if recordings.len() != options.detectors.len() {
            let rule = format!("there are {} detectors", options.detectors.len());
            return Err(Error::parameter("recordings", recordings.len(), rule));
        }
        let mut detectors = Vec::new();
        for (detector, recorded) in options.detectors.iter().zip(recordings) {
            let played = Box::new(Played::new(recorded, detector.interferometer.name, options)?);
            detectors.push(StrainSimulator::new(options, detector, Floor::Recorded(played)));
        }
        Self::with_injections(options, detectors)
    }

    /// Adds the injections of the options.
    fn with_injections(
        options: &StrainOptions,
        mut detectors: Vec<StrainSimulator>,
    ) -> Result<Self> {
        let mut injections = Vec::new();
        for injection in &options.injections {
            injections.push(inject(injection, options, &mut detectors)?);
        }
        Ok(Self { detectors, truth: Truth { injections } })
    }
}

/// Adds an injection to all detectors.
fn inject(
    injection: &Injection,
    options: &StrainOptions,
    simulators: &mut [StrainSimulator],
) -> Result<InjectionTruth> {
    let wave = injection.source.waveform(options.rate_hz)?;
    let spectrum = Spectrum::new(&wave.samples, options.rate_hz);
    let rate_hz = f64::from(options.rate_hz);
    let before_s = wave.peak as f64 / rate_hz;
    let after_s = (wave.samples.len() - 1 - wave.peak) as f64 / rate_hz;
    let mut products = Products::default();
    let mut detectors: Vec<DetectorTruth> = Vec::new();
    for (index, (simulator, detector)) in simulators.iter_mut().zip(&options.detectors).enumerate()
    {
        if index == 0 || detector.psd != options.detectors[index - 1].psd {
            products = spectrum.products(detector, options.lowest_hz);
        }
        let projection = Projection::new(injection, detector, &wave);
        let signal = Signal::new(&injection.source, &wave, &projection, options.start);
        simulator.signals.push(signal);
        let cut_before_s = (before_s - projection.gps.seconds_since(options.start)).max(0.0);
        let cut_after_s = (after_s - options.end().seconds_since(projection.gps)).max(0.0);
        detectors.push(projection.truth(
            detector.interferometer.name,
            &products,
            cut_before_s,
            cut_after_s,
        ));
    }
    Ok(InjectionTruth {
        name: wave.name.clone(),
        binary: wave.binary,
        approximant: wave.approximant.clone(),
        gps: injection.gps,
        duration_s: wave.duration_s(),
        network_snr: detectors.iter().map(|one| one.snr * one.snr).sum::<f64>().sqrt(),
        detectors,
    })
}

impl StrainSimulator {
    /// Creates one detector from checked options, without injections.
    fn new(options: &StrainOptions, detector: &DetectorOptions, floor: Floor) -> Self {
        let StrainOptions { start, rate_hz, marks_injections, .. } = *options;
        let header = StrainHeader {
            path: PathBuf::from("simulation"),
            format: "simulation",
            detector: detector.interferometer.name.to_owned(),
            start,
            rate_hz,
            times: Some(options.times),
        };
        let glitch = |glitch| SineGaussian::new(glitch, detector, options);
        Self {
            header,
            detector: detector.clone(),
            floor,
            signals: Vec::new(),
            marks_injections,
            glitches: detector.glitches.iter().map(glitch).collect(),
            next: 0,
        }
    }

    /// Returns whether the strain is a recording, to which signals are added.
    pub fn is_recorded(&self) -> bool {
        matches!(self.floor, Floor::Recorded(_))
    }

    /// Returns the quality of a second, counted from the first sample; a recorded second without the bits DATA and CBC_CAT1 is bad.
    pub fn quality(&self, second: u64) -> Quality {
        let own = match &self.floor {
            Floor::Recorded(played) if !played.is_good(second) => Quality::Bad,
            _ => Quality::Good,
        };
        own.max(self.detector.quality(second))
    }

    /// Returns GWOSC's data-quality and injection bits of seconds, counted from the first sample.
    pub fn bits(&self, seconds: Range<u64>) -> [Vec<u32>; 2] {
        let rate = u64::from(self.header.rate_hz);
        seconds
            .map(|second| {
                let [mut quality, mut injections] = match &self.floor {
                    Floor::Recorded(played) => played.bits(second),
                    _ => [ALL_QUALITY, ALL_INJECTIONS],
                };
                match self.detector.quality(second) {
                    Quality::Good => {}
                    // The lowest bit means that data are present.
                    Quality::Bad => quality &= 1,
                    Quality::Missing => (quality, injections) = (0, 0),
                }
                let samples = second * rate..(second + 1) * rate;
                let is_marked = |signal: &Signal| signal.reaches(samples.clone());
                if self.marks_injections && self.signals.iter().any(is_marked) {
                    // The lowest bit means that there is no injection of a binary.
                    injections &= !1;
                }
                (quality, injections)
            })
            .unzip::<u32, u32, Vec<u32>, Vec<u32>>()
            .into()
    }

    /// Writes the next samples as a file holds them: including those of bad quality, and NaN for missing ones.
    /// Returns their number; 0 at the end.
    ///
    /// # Errors
    /// Those of reading a recording, and of generating the injected waves again, of which none is expected, because they were
    /// generated before.
    pub fn read_recorded(&mut self, samples: &mut [f64]) -> Result<usize> {
        let left = self.header.times.unwrap_or(0) - self.next;
        let times = left.min(samples.len() as u64) as usize;
        let samples = &mut samples[..times];
        match &mut self.floor {
            Floor::Silence => samples.fill(0.0),
            Floor::Noise(noise) => noise.fill(self.next, samples),
            Floor::Recorded(played) => played.fill(samples)?,
        }
        for signal in &mut self.signals {
            signal.add(self.next, self.header.rate_hz, samples)?;
        }
        self.glitches.iter().for_each(|glitch| glitch.add(self.next, samples));
        self.each_second(samples, |quality, samples| {
            if quality == Quality::Missing {
                samples.fill(f64::NAN);
            }
        });
        self.next += times as u64;
        Ok(times)
    }

    /// Calls `act` with each second's quality and its samples in this block.
    fn each_second(&self, mut samples: &mut [f64], mut act: impl FnMut(Quality, &mut [f64])) {
        let rate = u64::from(self.header.rate_hz);
        let mut number = self.next;
        while !samples.is_empty() {
            let second = number / rate;
            let times = ((second + 1) * rate - number).min(samples.len() as u64) as usize;
            let (now, later) = samples.split_at_mut(times);
            act(self.detector.quality(second), now);
            (samples, number) = (later, number + times as u64);
        }
    }
}

impl StrainSource for StrainSimulator {
    fn header(&self) -> &StrainHeader {
        &self.header
    }

    fn read(&mut self, samples: &mut [f64], valid: &mut [bool]) -> Result<usize> {
        check_length("valid (time)", samples.len(), valid.len())?;
        let from = self.next;
        let times = self.read_recorded(samples)?;
        let rate = u64::from(self.header.rate_hz);
        for (number, (x, valid)) in (from..).zip(samples.iter_mut().zip(valid)).take(times) {
            *valid = self.quality(number / rate) == Quality::Good && x.is_finite();
            if !*valid {
                *x = 0.0;
            }
        }
        Ok(times)
    }
}

/// Shortest block in seconds: its inverse is the width over which spectral lines are smeared.
const BLOCK_S: usize = 16;

/// Coloured noise as the sum of blocks that overlap by half with sine windows.
///
/// The squares of two overlapping windows sum to 1, so that the noise is stationary: at a lag `t` its covariance is
/// that of the spectrum times `cos(pi t / T)`, T the block's length. Block b covers samples `(b - 1) hop .. (b + 1)
/// hop`; blocks 2p and 2p + 1 are the real and the imaginary part of one transform of independent random numbers.
struct Coloured {
    seed: u64,
    /// Standard deviation of both parts of each bin.
    gains: Vec<f64>,
    window: Vec<f64>,
    hop: usize,
    fft: Arc<dyn Fft<f64>>,
    /// Pairs of blocks, each stored at its number modulo 2.
    pairs: [Option<(u64, Vec<Complex64>)>; 2],
    scratch: Vec<Complex64>,
    random: Vec<f32>,
}

impl Coloured {
    /// Creates the noise of a detector, independent of the other detectors.
    pub(super) fn new(seed: u64, detector: &DetectorOptions, rate_hz: u32, lowest_hz: f64) -> Self {
        let length = (BLOCK_S * rate_hz as usize).next_power_of_two();
        let fft = FftPlanner::new().plan_fft_inverse(length);
        let spacing_hz = f64::from(rate_hz) / length as f64;
        let gain = |bin: usize| {
            let bin = bin.min(length - bin);
            if bin == 0 || bin == length / 2 {
                return 0.0;
            }
            let density = detector.simulated_density(bin as f64 * spacing_hz, lowest_hz);
            (density * spacing_hz / 2.0).sqrt()
        };
        let name = detector.interferometer.name.bytes();
        let item = name.fold(0, |number, letter| number << 8 | u64::from(letter));
        Self {
            seed: Key::new(seed, Stream::Strain, item).word(0),
            gains: (0..length).map(gain).collect(),
            window: (0..length).map(|n| (PI * (n as f64 + 0.5) / length as f64).sin()).collect(),
            hop: length / 2,
            scratch: vec![Complex64::ZERO; fft.get_inplace_scratch_len()],
            fft,
            pairs: [None, None],
            random: vec![0.0; 2 * length],
        }
    }

    /// Writes samples from number `start` on.
    pub(super) fn fill(&mut self, start: u64, mut samples: &mut [f64]) {
        let hop = self.hop as u64;
        let mut start = start;
        while !samples.is_empty() {
            let (block, offset) = (start / hop, (start % hop) as usize);
            let times = samples.len().min(self.hop - offset);
            let (now, later) = samples.split_at_mut(times);
            let whole = self.hop + offset;
            now.fill(0.0);
            self.add(block, whole, now);
            self.add(block + 1, offset, now);
            (samples, start) = (later, start + times as u64);
        }
    }

    /// Adds part of a block from its sample `offset` on.
    fn add(&mut self, block: u64, offset: usize, samples: &mut [f64]) {
        self.generate(block / 2);
        let Some((_, pair)) = &self.pairs[(block / 2 % 2) as usize] else { return };
        let windowed = pair[offset..].iter().zip(&self.window[offset..]);
        if block.is_multiple_of(2) {
            samples.iter_mut().zip(windowed).for_each(|(x, (z, w))| *x += w * z.re);
        } else {
            samples.iter_mut().zip(windowed).for_each(|(x, (z, w))| *x += w * z.im);
        }
    }

    /// Generates a pair of blocks, unless it is stored.
    fn generate(&mut self, pair: u64) {
        let slot = (pair % 2) as usize;
        if matches!(&self.pairs[slot], Some((there, _)) if *there == pair) {
            return;
        }
        fill_normal(self.seed, pair, &mut self.random);
        let mut bins = self.pairs[slot].take().map(|(_, bins)| bins).unwrap_or_default();
        bins.clear();
        let numbers = self.random.as_chunks::<2>().0;
        bins.extend(
            numbers.iter().zip(&self.gains).map(|([re, im], gain)| {
                Complex64::new(gain * f64::from(*re), gain * f64::from(*im))
            }),
        );
        self.fft.process_with_scratch(&mut bins, &mut self.scratch);
        self.pairs[slot] = Some((pair, bins));
    }
}
