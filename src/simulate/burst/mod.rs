//! Filterbank with noise, bursts, pulsars and interference, generated row by row on demand.
//!
//! Invariant: a row is a function of options and row number, whatever was read before and by
//! however many threads.

mod levels;
mod pulse;

use std::f64::consts::{PI, TAU};
use std::ops::Range;
use std::path::PathBuf;

pub(super) use self::levels::best_boxcar;
use self::levels::{Boxcar, Levels, Wanted};
pub(super) use self::pulse::FWHM;
use self::pulse::{Channels, Pulse, Signal};
use super::random::{Key, Stream, fill_normal};
use super::{above_zero, within};
use crate::backend::threads::Threads;
use crate::error::{Error, Result};
use crate::io::{FilterbankHeader, FilterbankSource};
use crate::sample::Encoding;
use crate::units::{Band, DM_CONSTANT};

/// Largest DM of a simulation, pc cm^-3.
const MAX_DM: f64 = 1e6;

/// Largest width, scattering time and period, in seconds.
const MAX_SECONDS: f64 = 1e5;

/// Largest number of interference impulses per second.
const MAX_RATE_HZ: f64 = 1e4;

/// Single pulse.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Burst {
    /// Dispersion measure, pc cm^-3.
    pub dm: f64,
    /// Centre of the unscattered pulse at the highest channel's centre, in seconds from the start of the first
    /// sample.
    pub time_s: f64,
    /// Full width at half maximum of the Gaussian, before scattering and smearing, in seconds.
    pub width_s: f64,
    /// S/N of the best boxcar in the series dedispersed at the exact DM.
    pub snr: f64,
    /// Scattering time at 1 GHz in seconds; it scales as frequency to the power -4.
    pub scatter_s: f64,
    /// Exponent of the flux density as a function of frequency.
    pub spectral_index: f64,
}

impl Burst {
    /// Creates a burst without scattering and with a flat spectrum.
    pub fn new(dm: f64, time_s: f64, width_s: f64, snr: f64) -> Self {
        Self { dm, time_s, width_s, snr, scatter_s: 0.0, spectral_index: 0.0 }
    }

    fn pulse(&self) -> Pulse {
        let Self { dm, width_s, scatter_s, spectral_index, .. } = *self;
        Pulse { dm, width_s, scatter_s, spectral_index }
    }

    fn check(&self) -> Result<()> {
        within("dm", self.dm, 0.0, MAX_DM)?;
        within("time", self.time_s, -1e9, 1e9)?;
        above_zero("width", self.width_s, MAX_SECONDS)?;
        above_zero("snr", self.snr, 1e9)?;
        within("scatter", self.scatter_s, 0.0, MAX_SECONDS)?;
        within("index", self.spectral_index, -100.0, 100.0)
    }
}

/// Source of periodic pulses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pulsar {
    /// Period in seconds.
    pub period_s: f64,
    /// Dispersion measure, pc cm^-3.
    pub dm: f64,
    /// Full width at half maximum of a pulse, in seconds.
    pub width_s: f64,
    /// S/N of each pulse, defined as for a burst.
    pub snr: f64,
    /// Centre of one pulse, defined as for a burst; others precede and follow it.
    pub time_s: f64,
    /// Scattering time at 1 GHz in seconds.
    pub scatter_s: f64,
    /// Exponent of the flux density as a function of frequency.
    pub spectral_index: f64,
}

impl Pulsar {
    /// Returns one of the pulses.
    pub fn burst(&self) -> Burst {
        let Self { dm, time_s, width_s, snr, scatter_s, spectral_index, .. } = *self;
        Burst { dm, time_s, width_s, snr, scatter_s, spectral_index }
    }

    fn check(&self, tsamp_s: f64) -> Result<()> {
        let Self { width_s, period_s, .. } = *self;
        self.burst().check()?;
        above_zero("period", period_s, MAX_SECONDS)?;
        if period_s < 2.0 * tsamp_s || period_s < width_s {
            let rule = "it must be at least two samples and not below the pulse's width";
            return Err(Error::parameter("period", period_s, rule));
        }
        Ok(())
    }
}

/// Options of a simulation.
#[derive(Clone, Debug)]
pub struct Options {
    /// Channels.
    pub band: Band,
    /// Sampling time in seconds.
    pub tsamp_s: f64,
    /// Number of rows.
    pub times: u64,
    /// Encoding of the samples.
    pub encoding: Encoding,
    /// Seed of the noise and of all other random numbers.
    pub seed: u64,
    /// Receiver gain over the band.
    pub bandpass: Bandpass,
    /// Single pulses.
    pub bursts: Vec<Burst>,
    /// Periodic pulses.
    pub pulsars: Vec<Pulsar>,
    /// Tones in a few channels.
    pub narrow: Option<NarrowInterference>,
    /// Impulses at DM 0.
    pub broad: Option<BroadInterference>,
    /// Dispersion constant, s MHz^2 pc^-1 cm^3.
    pub dm_constant: f64,
    /// Name of the telescope, for the header.
    pub telescope: String,
    /// Name of the source, for the header.
    pub source_name: String,
    /// Start of the first sample, MJD (UTC).
    pub tstart_mjd: f64,
}

impl Options {
    /// Creates options for noise alone: 8 bit, flat, seed 0.
    pub fn new(band: Band, tsamp_s: f64, times: u64) -> Self {
        Self {
            band,
            tsamp_s,
            times,
            encoding: Encoding::U8,
            seed: 0,
            bandpass: Bandpass::Flat,
            bursts: Vec::new(),
            pulsars: Vec::new(),
            narrow: None,
            broad: None,
            dm_constant: DM_CONSTANT,
            telescope: String::new(),
            source_name: "simulation".to_owned(),
            tstart_mjd: 60000.0,
        }
    }

    fn check(&self) -> Result<()> {
        above_zero("tsamp_s", self.tsamp_s, MAX_SECONDS)?;
        within("dm_constant", self.dm_constant, 1.0, 1e6)?;
        let channels = self.band.channels();
        if self.encoding.row_bytes(channels).is_none() {
            let bits = self.encoding.bits();
            let rule = format!("a row of {bits}-bit samples must fill whole bytes");
            return Err(Error::parameter("burst.channels", channels, rule));
        }
        self.bursts.iter().try_for_each(Burst::check)?;
        self.pulsars.iter().try_for_each(|pulsar| pulsar.check(self.tsamp_s))?;
        if let Some(narrow) = &self.narrow {
            if narrow.channels > channels {
                let rule = format!("there are {channels} channels");
                return Err(Error::parameter("narrow.channels", narrow.channels, rule));
            }
            within("narrow.strength", narrow.strength, 0.0, 1e6)?;
        }
        if let Some(broad) = &self.broad {
            above_zero("broad.rate_hz", broad.rate_hz, MAX_RATE_HZ)?;
            above_zero("broad.snr", broad.snr, 1e9)?;
            above_zero("broad.width_s", broad.width_s, MAX_SECONDS)?;
        }
        Ok(())
    }
}

/// Fraction of the band at each edge over which the gain rolls off.
const EDGE: f64 = 0.08;

/// Gain at the edge.
const FLOOR: f64 = 0.1;

/// Relative amplitude and number of the ripples over the band.
const RIPPLE: f64 = 0.05;
const RIPPLES: f64 = 5.0;

/// Shape of the receiver's gain.
///
/// It applies to signal and noise alike. Data of 1, 2 and 4 bit are levelled in each channel before quantization, as
/// recorders do, which removes the bandpass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Bandpass {
    /// Constant gain.
    #[default]
    Flat,
    /// Roll-off to a tenth over the outer 8 % at each edge, with ripples of 5 %.
    Rippled,
}

impl Bandpass {
    /// Returns the gain of each channel.
    pub fn gains(self, channels: usize) -> Vec<f64> {
        let gain = |channel: usize| match self {
            Self::Flat => 1.0,
            Self::Rippled => {
                let place = (channel as f64 + 0.5) / channels as f64;
                let from_edge = place.min(1.0 - place) / EDGE;
                let rise = 0.5 - 0.5 * (PI * from_edge.min(1.0)).cos();
                let ripple = 1.0 + RIPPLE * (2.0 * PI * RIPPLES * place).cos();
                ripple * (FLOOR + (1.0 - FLOOR) * rise)
            }
        };
        (0..channels).map(gain).collect()
    }
}

/// Range of the tones' modulation periods, in seconds.
const PERIODS_S: [f64; 2] = [0.005, 0.5];

/// Amplitude-modulated tones, each in a channel chosen by the seed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NarrowInterference {
    /// Number of channels.
    pub channels: usize,
    /// Largest strength, in units of the channel's noise sigma.
    pub strength: f64,
}

/// Broadband impulses without dispersion, at random times.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BroadInterference {
    /// Mean number of impulses per second.
    pub rate_hz: f64,
    /// S/N of each, defined as for a burst.
    pub snr: f64,
    /// Full width at half maximum in seconds.
    pub width_s: f64,
}

/// Tone of one channel.
#[derive(Clone, Copy, Debug)]
struct Tone {
    channel: usize,
    rate_hz: f64,
    phase: f64,
    strength: f64,
}

/// Returns the tones of a seed, each in a channel of its own.
fn tones(narrow: &NarrowInterference, seed: u64, channels: usize) -> Vec<Tone> {
    let key = Key::new(seed, Stream::Narrow, 0);
    let mut order: Vec<usize> = (0..channels).collect();
    let tone = |i: usize| {
        let word = 4 * i as u64;
        let other = i + (key.uniform(word) * (channels - i) as f64) as usize;
        order.swap(i, other);
        let period = PERIODS_S[0] * (PERIODS_S[1] / PERIODS_S[0]).powf(key.uniform(word + 1));
        let phase = TAU * key.uniform(word + 2);
        let strength = narrow.strength * (0.5 + 0.5 * key.uniform(word + 3));
        Tone { channel: order[i], rate_hz: 1.0 / period, phase, strength }
    };
    let mut tones: Vec<Tone> = (0..narrow.channels.min(channels)).map(tone).collect();
    tones.sort_by_key(|tone| tone.channel);
    tones
}

impl Tone {
    /// Adds the tone at a time to a row, in units of sigma.
    fn add(&self, time_s: f64, row: &mut [f32]) {
        let wave = (TAU * self.rate_hz * time_s + self.phase).sin();
        row[self.channel] += (self.strength * (0.5 + 0.5 * wave)) as f32;
    }
}

/// Returns the times of the impulses that can reach `from_s .. to_s`: one random time in each interval of `1 / rate`.
fn impulses(
    broad: &BroadInterference,
    seed: u64,
    from_s: f64,
    to_s: f64,
) -> impl Iterator<Item = f64> + use<> {
    let rate = broad.rate_hz;
    let first = (from_s * rate).floor().max(0.0) as u64;
    let last = (to_s * rate).ceil().max(0.0) as u64;
    (first..last).map(move |slot| {
        let part = Key::new(seed, Stream::Broad, slot).uniform(0);
        (slot as f64 + part) / rate
    })
}

/// Largest number of listed impulse times.
const MAX_IMPULSES: usize = 1 << 20;

/// Rows per thread task.
const ROWS_PER_TASK: usize = 16;

/// Generates the filterbank data that a telescope would record; axes time, channel.
///
/// `x[t, c] = quantize(mean[c] + sigma[c] (noise[t, c] + sum of signals[t, c]))`. Each signal is a Gaussian pulse,
/// scattered, smeared by the dispersion within the channel and averaged over the sample. Its strength follows from
/// the requested S/N: that of the best boxcar in the series dedispersed at the exact DM with equal channel weights,
/// relative to the noise of the quantized samples.
///
/// Any row can be generated alone: the same options and seed give the same bytes for any sequence of reads and any
/// number of threads. Memory does not grow with the length.
///
/// # Source
/// Noise levels: see the list in `levels.rs`. Scattering scales as frequency to the power -4 (Lorimer & Kramer 2005).
#[derive(Debug)]
pub struct Simulator {
    header: FilterbankHeader,
    scene: Scene,
    truth: Truth,
    threads: Threads,
    scratch: Vec<Vec<f32>>,
    next: u64,
}

impl Simulator {
    /// Creates a simulation that runs on the calling thread.
    ///
    /// # Errors
    /// [`crate::Error::Parameter`] naming the option that is out of range, or an S/N that the bit depth cannot
    /// represent.
    pub fn new(options: Options) -> Result<Self> {
        options.check()?;
        let scene = Scene::new(&options)?;
        let truth = scene.truth(&options);
        let encoding = options.encoding;
        let header = FilterbankHeader {
            path: PathBuf::from("simulation"),
            format: "simulation",
            source_name: options.source_name,
            telescope: options.telescope,
            ra_deg: None,
            dec_deg: None,
            beam: None,
            tstart_mjd: options.tstart_mjd,
            tsamp_s: options.tsamp_s,
            band: options.band,
            encoding,
            recorded_bits: encoding.bits(),
            recorded_polarizations: 1,
            times: Some(options.times),
        };
        let threads = Threads::new(1);
        let scratch = vec![vec![0.0; header.channels()]];
        Ok(Self { header, scene, truth, threads, scratch, next: 0 })
    }

    /// Uses several threads.
    pub fn with_threads(mut self, threads: Threads) -> Self {
        self.scratch = vec![vec![0.0; self.header.channels()]; threads.count()];
        self.threads = threads;
        self
    }

    /// Returns the simulated truth.
    pub fn truth(&self) -> &Truth {
        &self.truth
    }

    fn left(&self) -> u64 {
        self.header.times.map_or(u64::MAX, |times| times - self.next)
    }
}

impl FilterbankSource for Simulator {
    fn header(&self) -> &FilterbankHeader {
        &self.header
    }

    fn read(&mut self, rows: &mut [u8]) -> Result<usize> {
        let row_bytes = self.header.row_bytes();
        let asked = self.header.times_in(rows)?;
        let times = self.left().min(asked as u64) as usize;
        let (scene, start) = (&self.scene, self.next);
        let rows = &mut rows[..times * row_bytes];
        let chunk = ROWS_PER_TASK * row_bytes;
        self.threads.for_each_chunk(&mut self.scratch, rows, chunk, |scratch, index, part| {
            for (offset, row) in part.chunks_exact_mut(row_bytes).enumerate() {
                let number = start + (index * ROWS_PER_TASK + offset) as u64;
                scene.make_row(number, scratch, row);
            }
        });
        self.next += times as u64;
        Ok(times)
    }

    fn skip(&mut self, times: u64) -> Result<u64> {
        let times = times.min(self.left());
        self.next += times;
        Ok(times)
    }
}

/// Pulse of known strength at one time or, with a period, at many.
#[derive(Debug)]
struct Source {
    signal: Signal,
    time_s: f64,
    period_s: Option<f64>,
    boxcar: Boxcar,
}

impl Source {
    /// Adds the pulses that reach a row.
    fn add(&self, row_s: &Range<f64>, channels: &Channels, x: &mut [f32]) {
        let Some(period_s) = self.period_s else {
            return self.signal.add(self.time_s, row_s, channels, x);
        };
        let span_s = self.signal.span_s();
        let from = ((row_s.start - span_s.end - self.time_s) / period_s).ceil() as i64;
        let to = ((row_s.end - span_s.start - self.time_s) / period_s).floor() as i64;
        for pulse in from..=to {
            self.signal.add(self.time_s + pulse as f64 * period_s, row_s, channels, x);
        }
    }
}

/// State from which rows are generated.
#[derive(Debug)]
struct Scene {
    seed: u64,
    tsamp_s: f64,
    channels: Channels,
    levels: Levels,
    bursts: Vec<Source>,
    pulsars: Vec<Source>,
    tones: Vec<Tone>,
    broad: Option<(BroadInterference, Signal)>,
}

impl Scene {
    fn new(options: &Options) -> Result<Self> {
        let channels = Channels::new(&options.band, options.dm_constant)?;
        let levels = Levels::new(options.encoding, &options.bandpass.gains(channels.count()));
        let source = |burst: &Burst, period_s: Option<f64>| -> Result<Source> {
            let pulse = burst.pulse();
            let wanted = Wanted { pulse, time_s: burst.time_s, snr: burst.snr };
            let (amplitude, boxcar) =
                levels::strength(&wanted, &channels, &levels, options.tsamp_s)?;
            let signal = Signal::new(pulse, amplitude, &channels);
            Ok(Source { signal, time_s: burst.time_s, period_s, boxcar })
        };
        let impulse = |broad: BroadInterference| -> Result<_> {
            let burst = Burst::new(0.0, 0.5 * options.tsamp_s, broad.width_s, broad.snr);
            Ok((broad, source(&burst, None)?.signal))
        };
        let pulsar = |pulsar: &Pulsar| source(&pulsar.burst(), Some(pulsar.period_s));
        let narrow = options.narrow.as_ref();
        Ok(Self {
            seed: options.seed,
            tsamp_s: options.tsamp_s,
            bursts: options
                .bursts
                .iter()
                .map(|burst| source(burst, None))
                .collect::<Result<_>>()?,
            pulsars: options.pulsars.iter().map(pulsar).collect::<Result<_>>()?,
            tones: narrow.map_or_else(Vec::new, |one| tones(one, options.seed, channels.count())),
            broad: options.broad.map(impulse).transpose()?,
            channels,
            levels,
        })
    }

    /// Generates one row; `x` is scratch of one float per channel.
    fn make_row(&self, number: u64, x: &mut [f32], output: &mut [u8]) {
        fill_normal(self.seed, number, x);
        let row_s = number as f64 * self.tsamp_s..(number + 1) as f64 * self.tsamp_s;
        for source in self.bursts.iter().chain(&self.pulsars) {
            source.add(&row_s, &self.channels, x);
        }
        self.tones.iter().for_each(|tone| tone.add(0.5 * (row_s.start + row_s.end), x));
        if let Some((broad, signal)) = &self.broad {
            let span_s = signal.span_s();
            let (from_s, to_s) = (row_s.start - span_s.end, row_s.end - span_s.start);
            for time in impulses(broad, self.seed, from_s, to_s) {
                signal.add(time, &row_s, &self.channels, x);
            }
        }
        self.levels.quantize(x, output);
    }

    fn truth(&self, options: &Options) -> Truth {
        let seconds = |rows: f64| rows * self.tsamp_s;
        let bursts = options.bursts.iter().zip(&self.bursts);
        let pulsars = options.pulsars.iter().zip(&self.pulsars);
        let impulses = |broad: &BroadInterference| {
            let end = options.times as f64 * self.tsamp_s;
            let times = impulses(broad, self.seed, 0.0, end);
            times.take(MAX_IMPULSES).filter(|time| *time < end).collect()
        };
        Truth {
            bursts: bursts
                .map(|(burst, source)| BurstTruth {
                    burst: *burst,
                    boxcar_start_s: seconds(source.boxcar.first as f64),
                    boxcar_s: seconds(source.boxcar.width as f64),
                })
                .collect(),
            pulsars: pulsars
                .map(|(pulsar, source)| PulsarTruth {
                    pulsar: *pulsar,
                    boxcar_s: seconds(source.boxcar.width as f64),
                })
                .collect(),
            narrow_channels: self.tones.iter().map(|tone| tone.channel).collect(),
            impulse_times_s: options.broad.as_ref().map(impulses).unwrap_or_default(),
        }
    }
}

/// Quantities that a search should find or reject.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Truth {
    /// Bursts, in the order of the options.
    pub bursts: Vec<BurstTruth>,
    /// Pulsars, in the order of the options.
    pub pulsars: Vec<PulsarTruth>,
    /// Channels with a tone, ascending.
    pub narrow_channels: Vec<usize>,
    /// Centres of the undispersed impulses in seconds, the first 2^20 of them.
    pub impulse_times_s: Vec<f64>,
}

/// Burst, and the boxcar in which it has its S/N.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BurstTruth {
    /// Requested burst.
    pub burst: Burst,
    /// Start of the best boxcar in the series dedispersed at the exact DM, in seconds.
    pub boxcar_start_s: f64,
    /// Length of the boxcar in seconds.
    pub boxcar_s: f64,
}

/// Pulsar, and the boxcar in which each of its pulses has its S/N.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PulsarTruth {
    /// Requested pulsar.
    pub pulsar: Pulsar,
    /// Length of the best boxcar in seconds.
    pub boxcar_s: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> Options {
        Options::new(Band::uniform(1500.0, -1.0, 60).unwrap(), 1e-3, 100)
    }

    #[test]
    fn each_fault_is_named() {
        let fault = |change: fn(&mut Options)| {
            let mut options = options();
            change(&mut options);
            match options.check() {
                Err(Error::Parameter { name, .. }) => name,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(fault(|o| o.tsamp_s = f64::NAN), "tsamp_s");
        assert_eq!(fault(|o| o.encoding = Encoding::U1), "burst.channels");
        assert_eq!(fault(|o| o.bursts = vec![Burst::new(-1.0, 0.0, 1e-3, 9.0)]), "dm");
        assert_eq!(fault(|o| o.bursts = vec![Burst::new(1.0, 0.0, 0.0, 9.0)]), "width");
        assert_eq!(fault(|o| o.bursts = vec![Burst::new(1.0, 0.0, 1e-3, f64::NAN)]), "snr");
        let narrow = |o: &mut Options| {
            o.narrow = Some(NarrowInterference { channels: 61, strength: 1.0 });
        };
        assert_eq!(fault(narrow), "narrow.channels");
        assert!(options().check().is_ok());
    }

    #[test]
    fn edges_are_low_and_the_middle_is_about_one() {
        let gains = Bandpass::Rippled.gains(1024);
        assert!(gains[0] < 0.12 && gains[1023] < 0.12);
        assert!(gains[100..900].iter().all(|g| (0.94..1.06).contains(g)));
        assert!(Bandpass::Flat.gains(8).iter().all(|g| *g == 1.0));
    }

    #[test]
    fn tones_have_channels_of_their_own() {
        let narrow = NarrowInterference { channels: 20, strength: 3.0 };
        let tones = tones(&narrow, 3, 32);
        assert!(tones.len() == 20 && tones.windows(2).all(|w| w[0].channel < w[1].channel));
    }

    #[test]
    fn impulses_do_not_depend_on_who_asks() {
        let broad = BroadInterference { rate_hz: 2.0, snr: 20.0, width_s: 1e-3 };
        let all: Vec<f64> = impulses(&broad, 5, 0.0, 10.0).collect();
        assert_eq!(all.len(), 20);
        let late: Vec<f64> = impulses(&broad, 5, 4.9, 5.4).collect();
        assert!(late.iter().all(|time| all.contains(time)));
        assert!(all.iter().filter(|t| (4.9..5.4).contains(*t)).all(|t| late.contains(t)));
    }
}
