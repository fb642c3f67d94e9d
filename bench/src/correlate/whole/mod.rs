//! Measures all of `correlate`, from voltages to a visibility file, and the share of each step.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use num_complex::Complex;
use sidereal::Result;
use sidereal::backend::simd::Level;
use sidereal::backend::threads::Threads;
use sidereal::backend::{Backend, roof};
use sidereal::geometry::{Array, Dut1, Location, Sky};
use sidereal::io::voltages::{VoltageHeader, VoltageSource};
use sidereal::pipeline::correlator::{
    ArrayCorrelator, ArrayInput, CorrelateOptions, Integration, Labels, PhaseCentre, WriteReport,
    write_uvh5,
};
use sidereal::simulate::array::Layout;
use sidereal::units::Epoch;
use sidereal::voltage::{VoltageBlock, VoltageEncoding};

use crate::session::Session;
use crate::table::{Row, Table, best_and_median};

const ABOUT: &str = "\
10^6 samples a second of each polarization of each antenna, from voltages in memory (8 bit, one channel recorded) to
a file of visibilities: 1024 channels of 8 taps, the delays of a source taken out, 8 bits, all baselines,
one integration of 4096 spectra: the best and the median of all runs. Roof: the sum of the steps' least times, each
byte in and out at the rate of a copy, each multiply-add at that of operands in registers. Baseline: ours on
one thread. Roof, baseline and ours take turns. Visibilities are compared with another gulp's first, bit by bit.";

/// Antenna counts of the cases.
const ANTENNAS: [usize; 4] = [8, 32, 64, 128];

/// Channels, and rows of samples (taps) in the window.
const CHANNELS: usize = 1024;
const TAPS: usize = 8;

/// Spectra of the recording, all in one integration.
const SPECTRA: usize = 4096;

/// Spectra of the runs that are compared.
const COMPARED: usize = 512;

/// Least number of rounds.
const ROUNDS: usize = 3;

/// Diameter of the array in metres.
const SPREAD_M: f64 = 2e3;

/// Bytes copied to measure the roof.
const COPIED: usize = 64 << 20;

/// Array, its voltages, and the correlation options.
struct Case {
    array: Array,
    voltages: Vec<Noise>,
    options: CorrelateOptions,
    output: PathBuf,
}

/// Result of a run.
struct Outcome {
    integration: Integration,
    report: WriteReport,
    /// Seconds of the whole run, including the setup.
    elapsed_s: f64,
}

/// Seconds of each step of the fastest run, and the remainder.
type Parts = [f64; 8];

const NAMES: [&str; 8] =
    ["read", "channelize", "align", "turn", "correlate", "sums out", "write", "rest"];

/// Measures the whole verb.
///
/// # Errors
/// Those of the pipeline, and of a table with a wrong case.
pub(super) fn run(session: &Session<'_>, (csv, seconds): (Option<PathBuf>, f64)) -> Result<()> {
    let threads = Threads::new(session.threads).count();
    let mut table = Table::new(session, csv.as_deref(), ABOUT)?;
    let mut shares = Vec::new();
    for antennas in ANTENNAS {
        let case = Case::new(antennas)?;
        let (row, parts) = case.measure(threads, seconds)?;
        shares.push(line(&row.case, parts));
        table.push(row)?;
    }
    if table.shown {
        table.print("\nPart of the time that each step took, in %, of the fastest run")?;
        let names: String = NAMES.iter().map(|name| format!("{name:>11}")).collect();
        table.print(&format!("{:<44}{names}", "case"))?;
        shares.iter().try_for_each(|line| table.print(line))?;
    }
    table.finish()
}

fn line(name: &str, parts: Parts) -> String {
    let total: f64 = parts.iter().sum();
    let parts = parts.map(|part| format!("{:>11.1}", 100.0 * part / total));
    format!("{name:<44}{}", parts.concat())
}

impl Case {
    fn new(antennas: usize) -> Result<Self> {
        let place = Location { longitude_deg: 21.44, latitude_deg: -30.71, height_m: 1050.0 };
        let places = Layout::Random.places(antennas, SPREAD_M, 1);
        let array = Array::from_enu("bench", &places, place)?;
        let times = (SPECTRA + TAPS - 1) * CHANNELS;
        let voltages: Vec<Noise> = (0..antennas).map(|k| Noise::new(k, antennas, times)).collect();
        let start = header(times).start;
        let lst = Sky::new(&array, Dut1::Table)?.local_sidereal_time_rad(start)?;
        let mut options = CorrelateOptions::new(CHANNELS);
        options.taps = TAPS;
        options.integration_s = (SPECTRA * CHANNELS) as f64 / RATE_HZ;
        // Hour angle: 20 degrees west of the meridian.
        options.phase_centre = PhaseCentre::Sidereal {
            ra_deg: (lst.to_degrees() - 20.0).rem_euclid(360.0),
            dec_deg: -20.0,
            name: "source".into(),
        };
        let output = std::env::temp_dir()
            .join(format!("sidereal-bench-{}-{antennas}.uvh5", std::process::id()));
        Ok(Self { array, voltages, options, output })
    }

    fn run(&self, options: &CorrelateOptions, threads: &Threads) -> Result<Outcome> {
        let backend = Backend::Cpu(Level::best(), threads.clone());
        let inputs = self.voltages.iter().zip(&self.array.antennas);
        let inputs = inputs.map(|(own, antenna)| ArrayInput {
            antennas: vec![antenna.name.clone()],
            source: Box::new(own.clone()),
        });
        let inputs = inputs.collect();
        let begin = Instant::now();
        let mut correlator = ArrayCorrelator::new(&self.array, inputs, options, &backend)?;
        let mut integration = Integration::new();
        let report =
            write_uvh5(&mut correlator, &self.output, &Labels::default(), &mut |own, status| {
                // Clones only the short comparison runs: a timed run copies nothing.
                if status.times <= COMPARED as u64 {
                    integration = own.clone();
                }
                true
            });
        let elapsed_s = begin.elapsed().as_secs_f64();
        // The file may not exist.
        let _ = std::fs::remove_file(&self.output);
        let mut report = report?;
        report.ending = report.ending.or_error(false)?;
        Ok(Outcome { integration, report, elapsed_s })
    }

    /// Checks that a run with another gulp size on one thread gives the same bits, that no sample is missing and that
    /// the powers are right.
    fn is_right(&self, threads: &Threads) -> Result<bool> {
        let mut options = self.options.clone();
        options.integration_s = (COMPARED * CHANNELS) as f64 / RATE_HZ;
        options.time_range = Some((0.0, ((COMPARED + TAPS - 1) * CHANNELS) as f64 / RATE_HZ));
        let ours = self.run(&options, threads)?.integration;
        options.gulp = 100;
        let other = self.run(&options, &Threads::new(1))?.integration;
        // A delay may move the first spectrum across the recording's start.
        let whole = |count: &u64| (COMPARED as u64 - 1..=COMPARED as u64).contains(count);
        let right = ours == other && ours.counts.iter().all(whole);
        // Noise power that a filter with unit response to tones passes.
        let taps = options.window.coefficients(TAPS, CHANNELS)?;
        let squares: f64 = taps.iter().map(|tap| tap * tap).sum();
        let passed = squares / taps.iter().sum::<f64>().powi(2);
        let found = |k| power(&ours, k).map(|power| power / passed);
        Ok(right && self.voltages.iter().enumerate().all(|(k, own)| own.agrees(found(k))))
    }

    fn measure(&self, threads: usize, seconds: f64) -> Result<(Row, Parts)> {
        let pool = Threads::new(threads);
        let checked = self.is_right(&pool)?;
        let (mut roofs, mut baselines, mut rates) = (Vec::new(), Vec::new(), Vec::new());
        let mut fastest: Option<Outcome> = None;
        let start = Instant::now();
        while rates.len() < ROUNDS || start.elapsed().as_secs_f64() < seconds {
            roofs.push(self.roof(&pool));
            let ours = self.run(&self.options, &pool)?;
            rates.push(ours.rate());
            baselines.push(match threads {
                1 => ours.rate(),
                _ => self.run(&self.options, &Threads::new(1))?.rate(),
            });
            if fastest.as_ref().is_none_or(|other| ours.elapsed_s < other.elapsed_s) {
                fastest = Some(ours);
            }
        }
        let ((roof, _), (baseline, _)) =
            (best_and_median(&mut roofs), best_and_median(&mut baselines));
        let (rate, median) = best_and_median(&mut rates);
        let row = Row {
            bench: "correlate",
            case: format!("whole, {} antennas", self.voltages.len()),
            device: Backend::Cpu(Level::best(), pool).name(),
            rate,
            unit: "Msamples/s",
            roof,
            roof_unit: "Msamples/s",
            fraction_of_roof: rate / roof,
            baseline,
            ratio_to_baseline: rate / baseline,
            checked,
            median,
        };
        Ok((row, fastest.map_or([0.0; 8], |outcome| outcome.parts())))
    }

    /// Returns the rate, in 10^6 samples per second of each polarization, at which every step would reach the limit
    /// of its memory traffic or of its arithmetic.
    fn roof(&self, threads: &Threads) -> f64 {
        let (from, mut to) = (vec![1u8; COPIED], vec![0u8; COPIED]);
        roof::copy(&from, &mut to, threads);
        let copy = roof::copy(&from, &mut to, threads);
        let (level, streams) = (Level::best(), 2.0 * self.voltages.len() as f64);
        let floats = roof::multiply_adds(level, threads, 5e-3);
        let integers = roof::integer_multiply_adds(level, threads, 5e-3);
        // Source to window, window to rows, rows to packed block, packed block: 2 bytes each, read and written.
        let bytes = 4.0 + 4.0 + 4.0 + 2.0;
        // Filter with real taps, transform, phase and gain.
        let front = 2.0 * TAPS as f64 + 2.5 * (CHANNELS as f64).log2() + 4.0;
        // 4 operations per complex product; each of the `streams` samples accounts for its share of all products.
        let cross = 2.0 * (streams + 1.0);
        // Pairs of 64-bit integer sums to floats, and those to the file's single precision.
        let sums = 0.5 * (streams + 1.0) * (16.0 + 16.0 + 16.0 + 8.0) / SPECTRA as f64;
        let sample_s = (bytes + sums) / copy + front / floats + cross / integers;
        1e-6 / (streams * sample_s)
    }
}

impl Outcome {
    fn rate(&self) -> f64 {
        self.report.summary.samples as f64 * 1e-6 / self.elapsed_s
    }

    fn parts(&self) -> Parts {
        let steps = &self.report.summary.steps;
        let rest = self.elapsed_s - steps.total_s() - self.report.write_s;
        let front = [steps.read_s, steps.channelize_s, steps.align_s, steps.turn_s];
        let back = [steps.correlate_s, steps.output_s, self.report.write_s, rest.max(0.0)];
        std::array::from_fn(|k| if k < 4 { front[k] } else { back[k - 4] })
    }
}

/// Returns the mean power over all channels of an antenna's two polarizations.
fn power(integration: &Integration, antenna: usize) -> [f64; 2] {
    // Baselines are the lower triangle, row by row; pairs XX, XY, YX, YY.
    let baseline = antenna * (antenna + 1) / 2 + antenna;
    let means = integration.means().skip(4 * CHANNELS * baseline).take(4 * CHANNELS);
    let means: Vec<Complex<f64>> = means.collect();
    [0, 3]
        .map(|pair| means.iter().skip(pair).step_by(4).map(|z| z.re).sum::<f64>() / CHANNELS as f64)
}

/// Bytes held for all antennas: several times any cache.
pub(super) const BYTES: usize = 256 << 20;

/// Bytes of a complex sample.
pub(super) const SAMPLE: usize = 2;

/// Two polarizations of one recorded channel.
#[derive(Clone)]
pub(super) struct Noise {
    pub(super) header: VoltageHeader,
    /// Bytes of the first polarization, then of the second.
    pub(super) bytes: Arc<Vec<u8>>,
    /// Index of the next sample.
    pub(super) next: usize,
    /// Samples of each polarization.
    pub(super) times: usize,
}

/// Returns the header of a recording of `times` samples.
pub(super) fn header(times: usize) -> VoltageHeader {
    let mut header = VoltageHeader::new(vec![1.4e9], 1.0 / RATE_HZ, VoltageEncoding::Complex8);
    header.path = PathBuf::from("noise");
    header.polarizations = 2;
    header.circular = Some(false);
    header.start = Epoch::new(60_000, 0.0);
    header.times = Some(times as u64);
    header
}

impl Noise {
    /// Makes the noise of antenna `antenna` of `antennas`.
    pub(super) fn new(antenna: usize, antennas: usize, times: usize) -> Self {
        let held = (BYTES / (2 * SAMPLE * antennas)).min(times);
        let mut state = 0x2545_f491_4f6c_dd1d ^ (antenna as u64 + 1).wrapping_mul(0x9e37_79b9);
        let mut bytes = vec![0u8; 2 * SAMPLE * held];
        for bytes in bytes.chunks_mut(8) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            bytes.copy_from_slice(&state.to_le_bytes()[..bytes.len()]);
        }
        Self { header: header(times), bytes: Arc::new(bytes), next: 0, times }
    }

    /// Returns whether both polarizations' powers equal those of the voltages.
    pub(super) fn agrees(&self, powers: [f64; 2]) -> bool {
        let rows = self.bytes.chunks_exact(self.bytes.len() / 2);
        let square = |byte: &u8| f64::from(*byte as i8).powi(2);
        let means =
            rows.map(|row| SAMPLE as f64 * row.iter().map(square).sum::<f64>() / row.len() as f64);
        means.zip(powers).all(|(mean, found)| (found / mean - 1.0).abs() < POWER_TOLERANCE)
    }
}

impl VoltageSource for Noise {
    fn header(&self) -> &VoltageHeader {
        &self.header
    }

    fn read(&mut self, block: &mut VoltageBlock) -> Result<usize> {
        let times = block.capacity().min(self.times - self.next);
        let held = self.bytes.len() / 2;
        for (row, from) in block.rows_mut().zip(self.bytes.chunks_exact(held)) {
            let (mut at, mut row) = (self.next * SAMPLE % held, &mut row[..times * SAMPLE]);
            while !row.is_empty() {
                let (part, rest) = row.split_at_mut(row.len().min(held - at));
                part.copy_from_slice(&from[at..at + part.len()]);
                (row, at) = (rest, 0);
            }
        }
        block.set_times(times)?;
        self.next += times;
        Ok(times)
    }

    fn skip(&mut self, times: u64) -> Result<u64> {
        let times = (times as usize).min(self.times - self.next);
        self.next += times;
        Ok(times as u64)
    }
}

/// Samples per second of each polarization: 1.05 s in total.
pub(super) const RATE_HZ: f64 = 4e6;

/// Allowed relative difference between the mean power of all channels and that of the voltages.
pub(super) const POWER_TOLERANCE: f64 = 0.01;
