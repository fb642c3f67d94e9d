//! Filterbank with noise, bursts, pulsars and interference, generated row by row on demand.
//!
//! Invariant: a row is a function of options and row number, whatever was read before and by
//! however many threads.

mod options;

pub use options::{Burst, Options, Pulsar};

use std::path::PathBuf;

use super::amplitude::{self, Found, Wanted};
use super::channels::Channels;
use super::interference::{self, BroadInterference, Tone};
use super::levels::Levels;
use super::noise;
use super::signal::{Pulse, Signal};
use crate::backend::threads::Threads;
use crate::error::Result;
use crate::io::{FilterbankHeader, FilterbankSource};

/// Largest number of listed impulse times.
const MOST_IMPULSES: usize = 1 << 20;

/// Rows per thread task.
const ROWS_A_TASK: usize = 16;

/// Generates what a telescope would record; axes time, channel.
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
        let chunk = ROWS_A_TASK * row_bytes;
        self.threads.for_each_chunk(&mut self.scratch, rows, chunk, |scratch, index, part| {
            for (offset, row) in part.chunks_exact_mut(row_bytes).enumerate() {
                let number = start + (index * ROWS_A_TASK + offset) as u64;
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

/// Periodic signal.
#[derive(Debug)]
struct Train {
    signal: Signal,
    period_s: f64,
    time_s: f64,
    found: Found,
}

/// State from which rows are generated.
#[derive(Debug)]
struct Scene {
    seed: u64,
    tsamp_s: f64,
    channels: Channels,
    levels: Levels,
    bursts: Vec<(f64, Signal, Found)>,
    pulsars: Vec<Train>,
    tones: Vec<Tone>,
    broad: Option<(BroadInterference, Signal)>,
}

impl Scene {
    fn new(options: &Options) -> Result<Self> {
        let channels = Channels::new(&options.band, options.dm_constant)?;
        let levels = Levels::new(options.encoding, &options.bandpass.gains(channels.count()));
        let place = |pulse: Pulse, time_s: f64, snr: f64| -> Result<(Signal, Found)> {
            let wanted = Wanted { pulse, time_s, snr };
            let found = amplitude::find(&wanted, &channels, &levels, options.tsamp_s)?;
            Ok((Signal::new(pulse, found.amplitude, &channels), found))
        };
        let burst = |burst: &Burst| -> Result<_> {
            let (signal, found) = place(burst.pulse(), burst.time_s, burst.snr)?;
            Ok((burst.time_s, signal, found))
        };
        let pulsar = |pulsar: &Pulsar| -> Result<_> {
            let (signal, found) = place(pulsar.pulse(), pulsar.time_s, pulsar.snr)?;
            Ok(Train { signal, period_s: pulsar.period_s, time_s: pulsar.time_s, found })
        };
        let bursts = options.bursts.iter().map(burst).collect::<Result<_>>()?;
        let pulsars = options.pulsars.iter().map(pulsar).collect::<Result<_>>()?;
        let impulse = |broad: BroadInterference| -> Result<_> {
            let pulse =
                Pulse { dm: 0.0, width_s: broad.width_s, scatter_s: 0.0, spectral_index: 0.0 };
            Ok((broad, place(pulse, 0.5 * options.tsamp_s, broad.snr)?.0))
        };
        let broad = options.broad.map(impulse).transpose()?;
        let seed = options.seed;
        let tones = options.narrow.as_ref();
        let tones = tones.map(|narrow| interference::tones(narrow, seed, channels.count()));
        let tones = tones.unwrap_or_default();
        let tsamp_s = options.tsamp_s;
        Ok(Self { seed, tsamp_s, channels, levels, bursts, pulsars, tones, broad })
    }

    /// Generates one row; `x` is scratch of one float per channel.
    fn make_row(&self, number: u64, x: &mut [f32], output: &mut [u8]) {
        noise::fill(self.seed, number, x);
        let row_s = (number as f64 * self.tsamp_s, (number + 1) as f64 * self.tsamp_s);
        for (time_s, signal, _) in &self.bursts {
            signal.add(*time_s, row_s, &self.channels, x);
        }
        for train in &self.pulsars {
            train.add(row_s, &self.channels, x);
        }
        self.tones.iter().for_each(|tone| tone.add(0.5 * (row_s.0 + row_s.1), x));
        if let Some((broad, signal)) = &self.broad {
            let (first, last) = signal.span_s();
            for time in interference::impulses(broad, self.seed, row_s.0 - last, row_s.1 - first) {
                signal.add(time, row_s, &self.channels, x);
            }
        }
        self.levels.quantize(x, output);
    }

    fn truth(&self, options: &Options) -> Truth {
        let boxcar = |found: &Found| {
            let start = found.first as f64 * self.tsamp_s;
            (start, found.width as f64 * self.tsamp_s)
        };
        let burst = |(burst, (_, _, found)): (&Burst, &(f64, Signal, Found))| {
            let (boxcar_start_s, boxcar_s) = boxcar(found);
            BurstTruth { burst: *burst, boxcar_start_s, boxcar_s }
        };
        let pulsar = |(pulsar, train): (&Pulsar, &Train)| PulsarTruth {
            pulsar: *pulsar,
            boxcar_s: boxcar(&train.found).1,
        };
        let impulses = |broad: &BroadInterference| {
            let end = options.times as f64 * self.tsamp_s;
            let times = interference::impulses(broad, self.seed, 0.0, end);
            times.take(MOST_IMPULSES).filter(|time| *time < end).collect()
        };
        Truth {
            bursts: options.bursts.iter().zip(&self.bursts).map(burst).collect(),
            pulsars: options.pulsars.iter().zip(&self.pulsars).map(pulsar).collect(),
            narrow_channels: self.tones.iter().map(|tone| tone.channel).collect(),
            impulse_times_s: options.broad.as_ref().map(impulses).unwrap_or_default(),
        }
    }
}

impl Train {
    fn add(&self, row_s: (f64, f64), channels: &Channels, x: &mut [f32]) {
        let (first, last) = self.signal.span_s();
        let from = ((row_s.0 - last - self.time_s) / self.period_s).ceil() as i64;
        let to = ((row_s.1 - first - self.time_s) / self.period_s).floor() as i64;
        for pulse in from..=to {
            let time = self.time_s + pulse as f64 * self.period_s;
            self.signal.add(time, row_s, channels, x);
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

/// Burst, and the boxcar with its S/N.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BurstTruth {
    /// Requested burst.
    pub burst: Burst,
    /// Start of the best boxcar in the series dedispersed at the exact DM, in seconds.
    pub boxcar_start_s: f64,
    /// Length of the boxcar in seconds.
    pub boxcar_s: f64,
}

/// Pulsar, and the boxcar with the S/N of one of its pulses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PulsarTruth {
    /// Requested pulsar.
    pub pulsar: Pulsar,
    /// Length of the best boxcar in seconds.
    pub boxcar_s: f64,
}
