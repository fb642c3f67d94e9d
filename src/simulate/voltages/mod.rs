//! Voltages with noise, tones and coherently dispersed pulses, generated block by block on demand.
//!
//! Invariant: a sample is a function of options and its own number, whatever was read before and by
//! however many threads.

mod band;
mod options;
mod pulses;

pub use options::{Carrier, Options, Polarization, Pulse, Tone};

pub use super::recording::usual_rms;

use std::path::PathBuf;

use self::band::{Band, RecordedTone};
use self::pulses::{Profile, Source, Waves, energy};
use super::random::{Key, Stream, fill_normal};
use super::recording::{Recording, store};
use crate::backend::threads::Threads;
use crate::error::{Error, Result};
use crate::io::voltages::{Flag, VoltageHeader, VoltageSource};
use crate::voltage::VoltageBlock;

/// Samples whose noise uses one row of random numbers.
const CHUNK: usize = 1024;

/// Samples of a stream per thread task.
const PIECE: usize = 8 * CHUNK;

/// Samples of each stream generated between updates of the waves.
const GULP: usize = 8 * PIECE;

/// Generates the voltages that a receiver would record; axes stream, time, as in every recording.
///
/// `x[s, n] = round(rms noise[s, n] + tones + pulses)` for stream s, which is a recorded channel and a polarization
/// of an antenna. The noise is Gaussian and white, and independent in all streams. Each recorded channel is an ideal
/// rectangular band; tones and pulses are the same in all antennas.
///
/// - Sample n is taken at `(n + 1/2) tsamp`, the middle of its interval. A tone at `d` above a complex channel's
///   centre is `exp(2 pi i d n tsamp)`, and above a real channel's lower edge `cos(2 pi d n tsamp)`. A lower sideband
///   holds the conjugate.
/// - A pulse is dispersed by cold plasma: its spectrum is multiplied by a phase whose group delay at every sky
///   frequency f is [`crate::units::dispersion_delay_s`] relative to the upper edge of the whole recorded band,
///   within channels and between them. See [`Truth::reference_hz`] for its time at another frequency.
/// - A pulse's S/N is that of the best boxcar in the total intensity of one antenna: the recorded channels coherently
///   dedispersed, detected, and summed with both polarizations. It is `S/N = E F / (2 rms^2 sqrt(P C w))`. E is the
///   sum of |z|^2 over P polarizations, C channels and all samples of 1 / channel width each (for real samples of the
///   analytic signal); F is the fraction of E in the boxcar of w samples. The mean of the noise's |z|^2 is `2 rms^2`,
///   and so is its standard deviation. Rounding to few bits loses some of the S/N, and so does saturation of a bright
///   pulse. The energy in each recorded channel is exact for any noise realization of the pulse.
///
/// Any sample can be generated alone: the same options and seed give the same bytes for any sequence of reads and any
/// number of threads. A dispersed pulse is in memory while it lasts in a recorded channel; memory does not grow with
/// the recording's length.
///
/// # Source
/// Coherent dispersion: Hankins & Rickett 1975, Methods in Computational Physics 14, 55. The radiometer
/// equation: Lorimer & Kramer 2005.
#[derive(Debug)]
pub struct VoltageSimulator {
    recording: Recording,
    scene: Scene,
    waves: Waves,
    truth: Truth,
    threads: Threads,
}

impl VoltageSimulator {
    /// Creates a simulation that runs on the calling thread.
    ///
    /// # Errors
    /// [`Error::Parameter`] naming the option that is out of range, a tone outside the recorded channels, or a pulse
    /// whose dispersion needs too much memory.
    pub fn new(options: Options) -> Result<Self> {
        options.check()?;
        let scene = Scene::new(&options)?;
        let (sources, pulses) = sources(&options, &scene.band)?;
        let truth = Truth { reference_hz: scene.band.reference_hz, pulses };
        let waves = Waves::new(sources, &scene.band, options.times, GULP)?;
        let recording = Recording::new(header(&options), &options.gaps);
        Ok(Self { recording, scene, waves, truth, threads: Threads::new(1) })
    }

    /// Uses several threads.
    pub fn with_threads(mut self, threads: Threads) -> Self {
        self.threads = threads;
        self
    }

    /// Returns the simulated truth.
    pub fn truth(&self) -> &Truth {
        &self.truth
    }

    /// Generates samples `start .. end`, within one gulp, at `offset` in the block's rows.
    fn fill(&self, block: &mut VoltageBlock, offset: usize, start: u64, end: u64) {
        let encoding = self.recording.header.encoding;
        let mut pieces = Vec::new();
        let streams = self.recording.header.streams();
        for (stream, row) in block.rows_mut().take(streams).enumerate() {
            let bytes = self.recording.bytes(offset, (end - start) as usize);
            let mut row = &mut row[bytes];
            let mut from = start;
            while from < end {
                let to = ((from / PIECE as u64 + 1) * PIECE as u64).min(end);
                let (bytes, rest) = row.split_at_mut(encoding.bytes((to - from) as usize));
                pieces.push(Piece { stream, start: from, end: to, bytes });
                (row, from) = (rest, to);
            }
        }
        let numbers = if encoding.is_complex() { 2 } else { 1 };
        let mut scratch = vec![vec![0f32; CHUNK * numbers]; self.threads.count()];
        self.threads.for_each_chunk(&mut scratch, &mut pieces, 1, |x, _, pieces| {
            pieces.iter_mut().for_each(|piece| self.make(piece, x));
        });
    }

    /// Generates a piece chunk by chunk; `x` is scratch of one chunk's numbers.
    fn make(&self, piece: &mut Piece<'_>, x: &mut [f32]) {
        let encoding = self.recording.header.encoding;
        let numbers = x.len() / CHUNK;
        let mut from = piece.start;
        while from < piece.end {
            let chunk = from / CHUNK as u64;
            let first = chunk * CHUNK as u64;
            let to = (first + CHUNK as u64).min(piece.end);
            self.make_chunk(piece.stream, chunk, x);
            let wanted = (from - first) as usize * numbers..(to - first) as usize * numbers;
            let times = (to - from) as usize;
            let bytes = self.recording.bytes((from - piece.start) as usize, times);
            store(&x[wanted], encoding, &mut piece.bytes[bytes]);
            from = to;
        }
        self.recording.fill_gaps(piece.start..piece.end, piece.bytes);
    }

    fn make_chunk(&self, stream: usize, chunk: u64, x: &mut [f32]) {
        let numbers = x.len() / CHUNK;
        let polarizations = self.recording.header.polarizations;
        let polarization = stream % polarizations;
        let channel = stream / polarizations % self.recording.header.coarse_channels();
        let start = chunk * CHUNK as u64;
        self.scene.add_noise(stream, chunk, x);
        let tones = self.scene.tones.iter().filter(|tone| tone.channel == channel);
        tones.for_each(|tone| tone.add(polarization, start, numbers == 2, x));
        self.waves.add(channel, polarization, start, x);
    }
}

impl VoltageSource for VoltageSimulator {
    fn header(&self) -> &VoltageHeader {
        &self.recording.header
    }

    fn read(&mut self, block: &mut VoltageBlock) -> Result<usize> {
        let times = self.recording.times_into(block)?;
        let start = self.recording.next;
        let end = start + times as u64;
        while self.recording.next < end {
            let from = self.recording.next;
            let to = ((from / GULP as u64 + 1) * GULP as u64).min(end);
            self.waves.generate(from..to, &self.scene.band, &self.threads);
            self.fill(block, (from - start) as usize, from, to);
            self.recording.next = to;
        }
        block.set_times(times)?;
        Ok(times)
    }

    fn skip(&mut self, times: u64) -> Result<u64> {
        self.recording.skip(times)
    }

    fn flags(&self) -> &[Flag] {
        &self.recording.flags
    }
}

/// Part of one stream to generate.
struct Piece<'a> {
    stream: usize,
    start: u64,
    end: u64,
    bytes: &'a mut [u8],
}

/// Time-independent state of the simulation.
#[derive(Debug)]
struct Scene {
    band: Band,
    rms: f32,
    noise: bool,
    /// Noise seed of each stream.
    seeds: Vec<u64>,
    tones: Vec<RecordedTone>,
}

impl Scene {
    fn new(options: &Options) -> Result<Self> {
        let band = Band::new(options);
        let tone = |tone: &Tone| RecordedTone::new(tone, &band, options.rms);
        let tones = options.tones.iter().map(tone).collect::<Result<_>>()?;
        let seed = |stream: usize| Key::new(options.seed, Stream::Voltage, stream as u64).word(0);
        let seeds = (0..options.streams()).map(seed).collect();
        Ok(Self { band, rms: options.rms as f32, noise: options.noise, seeds, tones })
    }

    fn add_noise(&self, stream: usize, chunk: u64, x: &mut [f32]) {
        if !self.noise {
            x.fill(0.0);
            return;
        }
        fill_normal(self.seeds[stream], chunk, x);
        x.iter_mut().for_each(|x| *x *= self.rms);
    }
}

/// Builds the sources of the pulses' waves, and their truth.
fn sources(options: &Options, band: &Band) -> Result<(Vec<Source>, Vec<PulseTruth>)> {
    let channels = band.centres_hz.len();
    let streams = channels * options.polarizations;
    let source = |(number, pulse): (usize, &Pulse)| {
        let profile = Profile::new(pulse.carrier, band.width_hz);
        let middle = pulse.time_s * band.width_hz - 0.5;
        let (boxcar, part) = profile.boxcar(middle - middle.floor());
        let energy = energy(pulse.snr, options.rms, streams, part);
        let mixture = pulse.polarization.mixture(options.circular);
        if options.polarizations == 1 && mixture.first == 0.0 {
            let rule = "the one polarization that is recorded gets none of it";
            let linear = pulse.polarization.linear;
            return Err(Error::parameter("linear of a pulse", linear, rule));
        }
        let truth = PulseTruth {
            pulse: *pulse,
            width_s: match pulse.carrier {
                Carrier::Noise { width_s } => width_s,
                Carrier::Impulse => 1.0 / band.width_hz,
            },
            boxcar_s: boxcar / band.width_hz,
            peak: pulse.snr / (streams as f64 * boxcar).sqrt(),
        };
        let source = Source {
            pulse: *pulse,
            profile,
            mixture,
            polarizations: options.polarizations,
            energy: energy / channels as f64,
            seed: Key::new(options.seed, Stream::VoltagePulse, number as u64).word(0),
        };
        Ok((source, truth))
    };
    let both = options.pulses.iter().enumerate().map(source).collect::<Result<Vec<_>>>()?;
    Ok(both.into_iter().unzip())
}

fn header(options: &Options) -> VoltageHeader {
    VoltageHeader {
        path: PathBuf::from("simulation"),
        format: "simulation",
        source_name: options.source_name.clone(),
        telescope: options.telescope.clone(),
        start: options.start,
        lower_sideband: options.lower_sideband,
        antennas: options.antennas,
        polarizations: options.polarizations,
        circular: Some(options.circular),
        times: Some(options.times),
        ..VoltageHeader::new(options.centres_hz.clone(), options.tsamp_s(), options.encoding)
    }
}

/// Quantities that a search can find.
#[derive(Clone, Debug, PartialEq)]
pub struct Truth {
    /// Reference frequency of pulse times: the upper edge of the whole recorded band, in Hz.
    ///
    /// At another frequency f a pulse is later by [`crate::units::dispersion_delay_s`]`(dm, f, reference_hz,
    /// dm_constant)`; for the time that a search reports, f is the highest channel's centre.
    pub reference_hz: f64,
    /// Pulses, in the order of the options.
    pub pulses: Vec<PulseTruth>,
}

/// Pulse, and the boxcar in which it has its S/N.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PulseTruth {
    /// Requested pulse.
    pub pulse: Pulse,
    /// Full width at half maximum of its power before dispersion, in seconds; for an impulse, the inverse of the
    /// recorded channel's width.
    pub width_s: f64,
    /// Length of the best boxcar in the coherently dedispersed total intensity, in seconds.
    pub boxcar_s: f64,
    /// Mean power over the boxcar relative to the noise: the instantaneous brightness.
    pub peak: f64,
}
