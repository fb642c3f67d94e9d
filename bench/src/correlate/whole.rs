//! `bench correlate --whole`: all of `correlate`. On CPUs from voltages in memory to a visibility file, with the share
//! of each step; on GPUs from voltages in page-locked host memory to visibilities in host memory.

use std::path::{Path, PathBuf};
use std::time::Instant;

use num_complex::Complex;
use sidereal::backend::cuda::{Buffer, Stream, UploadRing};
use sidereal::backend::simd::Level;
use sidereal::backend::threads::Threads;
use sidereal::backend::{Backend, roof};
use sidereal::channelize::{self, Channelizer, DeviceVoltages, Order};
use sidereal::correlate::{self, Correlator, DeviceSpectra};
use sidereal::delay::{
    self, Band, Delay, DelayCorrector, DeviceDelays, DeviceSamples, Form, Natural, Slope,
};
use sidereal::pipeline::correlator::{
    CorrelateOptions, Integration, Labels, WriteReport, write_uvh5,
};
use sidereal::voltage::{VoltageEncoding, Voltages};
use sidereal::{Error, Result};

use super::recorded::{CHANNELS, RATE_HZ, Recorded, SAMPLE, TAPS};
use crate::gpu::Gpu;
use crate::random;
use crate::runner::{Rates, Row, Run, Session, say};

/// Name of the benchmark.
const BENCH: &str = "correlate";

const ABOUT: &str = "\
10^6 samples a second of each polarization of each antenna, from voltages in memory (8 bit, one channel recorded) to
a file of visibilities: 1024 channels of 8 taps, the delays of a source taken out, 8 bits, all baselines,
one integration of 4096 spectra: the best and the median of all runs. Roof: the sum of the steps' least times, each
byte in and out at the rate of a copy, each multiply-add at that of operands in registers. Baseline: ours on
one thread. Roof, baseline and ours take turns. Visibilities are compared with another gulp's first, bit by bit.";

/// Antenna counts of the cases.
const ANTENNAS: [usize; 4] = [8, 32, 64, 128];

/// Spectra of the recording, all in one integration.
const SPECTRA: usize = 4096;

/// Spectra of the runs that are compared.
const COMPARED: usize = 512;

/// Least number of rounds.
const ROUNDS: usize = 3;

/// Bytes copied to measure the roof.
const COPIED: usize = 64 << 20;

/// Recording in memory, and the file of its visibilities.
struct Case {
    recorded: Recorded,
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

/// Measures the whole verb on a CPU.
pub(super) fn on_cpu(session: &Session<'_>, csv: Option<&Path>, seconds: f64) -> Result<()> {
    let threads = Threads::new(session.threads).count();
    let mut run = Run::new(session, csv, ABOUT)?;
    let mut shares = Vec::new();
    for antennas in ANTENNAS {
        let case = Case::new(antennas)?;
        let (row, parts) = case.measure(threads, seconds)?;
        shares.push(line(&row.case, parts));
        run.push(row)?;
    }
    if run.shown {
        say("\nPart of the time that each step took, in %, of the fastest run")?;
        let names: String = NAMES.iter().map(|name| format!("{name:>11}")).collect();
        say(&format!("{:<44}{names}", "case"))?;
        shares.iter().try_for_each(|line| say(line))?;
    }
    run.finish()
}

fn line(name: &str, parts: Parts) -> String {
    let total: f64 = parts.iter().sum();
    let parts = parts.map(|part| format!("{:>11.1}", 100.0 * part / total));
    format!("{name:<44}{}", parts.concat())
}

impl Case {
    fn new(antennas: usize) -> Result<Self> {
        let output = std::env::temp_dir()
            .join(format!("sidereal-bench-{}-{antennas}.uvh5", std::process::id()));
        Ok(Self { recorded: Recorded::new(antennas, SPECTRA, 1)?, output })
    }

    fn run(&self, options: &CorrelateOptions, threads: &Threads) -> Result<Outcome> {
        let backend = Backend::Cpu(Level::best(), threads.clone());
        let begin = Instant::now();
        let mut correlator = self.recorded.correlator(options, &backend)?;
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
        let mut options = self.recorded.options.clone();
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
        Ok(right
            && self
                .recorded
                .voltages
                .iter()
                .enumerate()
                .all(|(k, own)| agree(&own.bytes, found(k))))
    }

    fn measure(&self, threads: usize, seconds: f64) -> Result<(Row, Parts)> {
        let pool = Threads::new(threads);
        let checked = self.is_right(&pool)?;
        let one = Threads::new(1);
        let mut fastest: Option<Outcome> = None;
        let rates = Rates::alternate(
            &mut fastest,
            ROUNDS,
            seconds,
            |_| Ok(self.roof(&pool)),
            |_| match threads {
                1 => Ok(0.0),
                _ => Ok(self.run(&self.recorded.options, &one)?.rate()),
            },
            |fastest| {
                let ours = self.run(&self.recorded.options, &pool)?;
                let rate = ours.rate();
                if fastest.as_ref().is_none_or(|other| ours.elapsed_s < other.elapsed_s) {
                    *fastest = Some(ours);
                }
                Ok(rate)
            },
        )?;
        let baseline = if threads == 1 { rates.best } else { rates.baseline };
        let name = format!("whole, {} antennas", self.recorded.voltages.len());
        let backend = Backend::Cpu(Level::best(), pool);
        let rates = Rates { baseline, ..rates };
        let row = rates.row(BENCH, name, &backend, "Msamples/s", checked);
        Ok((row, fastest.map_or([0.0; 8], |outcome| outcome.parts())))
    }

    /// Returns the rate, in 10^6 samples per second of each polarization, at which every step would reach the limit
    /// of its memory traffic or of its arithmetic.
    fn roof(&self, threads: &Threads) -> f64 {
        let (from, mut to) = (vec![1u8; COPIED], vec![0u8; COPIED]);
        roof::copy(&from, &mut to, threads);
        let copy = roof::copy(&from, &mut to, threads);
        let (level, streams) = (Level::best(), 2.0 * self.recorded.voltages.len() as f64);
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

/// Returns whether both polarizations' powers equal those of the voltages.
fn agree(voltages: &[u8], powers: [f64; 2]) -> bool {
    let rows = voltages.chunks_exact(voltages.len() / 2);
    let square = |byte: &u8| f64::from(*byte as i8).powi(2);
    let means =
        rows.map(|row| SAMPLE as f64 * row.iter().map(square).sum::<f64>() / row.len() as f64);
    means.zip(powers).all(|(mean, found)| (found / mean - 1.0).abs() < POWER_TOLERANCE)
}

/// Allowed relative difference between the mean power of all channels and that of the voltages.
const POWER_TOLERANCE: f64 = 0.01;

const GPU_ABOUT: &str = "\
10^9 bytes a second of voltages (8 bit, two polarizations), from the host's page-locked memory to visibilities in the
host's memory: filter bank of 8 taps, delay phases, gains, rounding to 8 bits, products of all antennas; the best and the
median integration, each read out while the next one's voltages are on their way. Roof: the same memory copied to the
device and nothing else, in the same run. Visibilities of a gulp are compared with the processor's first.";

/// Antennas of the cases; antennas x channels equal `PRODUCT`.
const GPU_ANTENNAS: [usize; 4] = [32, 64, 128, 256];
const PRODUCT: usize = 65536;

/// Spectra in a gulp.
const GULP_SPECTRA: usize = 1024;

/// Number of gulps in host memory, and in an integration.
const SLOTS: usize = 12;
const GULPS: usize = 32;

/// Integrations that count, after one warm-up.
const RUNS: usize = 5;

fn sizes(quick: bool) -> Vec<Size> {
    if quick {
        return vec![Size { antennas: 3, channels: 256, spectra: 24, gulps: 3 }];
    }
    let size = |antennas| Size {
        antennas,
        channels: PRODUCT / antennas,
        spectra: GULP_SPECTRA,
        gulps: GULPS,
    };
    GPU_ANTENNAS.map(size).to_vec()
}

/// Measures the chain on a GPU.
pub(super) fn on_gpu(gpu: &Gpu, csv: Option<&Path>, session: &Session<'_>) -> Result<()> {
    let sizes = sizes(gpu.quick);
    let bytes = sizes.iter().map(|size| size.gulp_bytes()).max().unwrap_or(0);
    let slots = if gpu.quick { 4 } else { SLOTS };
    let mut uploads = UploadRing::new(&gpu.device, bytes, slots)?;
    let voltages = fill(gpu, &mut uploads, bytes, slots)?;
    let bus = bus(gpu, &mut uploads, bytes, slots)? * 1e-9;
    let mut run = gpu.begin(session, csv, GPU_ABOUT)?;
    for size in sizes {
        let name =
            format!("{} antennas, {} channels, whole, from the host", size.antennas, size.channels);
        run.case(&name, || {
            let mut chain = Chain::new(gpu, size)?;
            let checked = is_device_right(gpu, &mut chain, &mut uploads, &voltages)?;
            let runs = if gpu.quick { 1 } else { RUNS };
            let seconds = integrations(&mut chain, &mut uploads, runs)?;
            let work = (size.gulp_bytes() * size.gulps) as f64 * 1e-9;
            let rates = Rates::of_seconds(work, &seconds, bus, 0.0);
            let row = rates.row(BENCH, &name, &gpu.backend, "GB/s", checked);
            Ok(vec![row.beside("GB/s over the bus")])
        })?;
    }
    run.finish()
}

/// Fills all buffer pairs with random voltages, each rotated by a further 4096 bytes; returns the first pair's
/// voltages.
fn fill(gpu: &Gpu, uploads: &mut UploadRing, bytes: usize, slots: usize) -> Result<Vec<u8>> {
    let voltages = random::bytes(bytes);
    let work = gpu.device.stream()?;
    for slot in 0..slots {
        let turned = slot * 4096 % bytes;
        let mut slot = uploads.current();
        let room = slot.host()?;
        room[..bytes - turned].copy_from_slice(&voltages[turned..]);
        room[bytes - turned..bytes].copy_from_slice(&voltages[..turned]);
        uploads.release(&work)?;
    }
    Ok(voltages)
}

/// Returns the bytes per second over the bus: the best of three passes over all pairs.
fn bus(gpu: &Gpu, uploads: &mut UploadRing, bytes: usize, slots: usize) -> Result<f64> {
    let work = gpu.device.stream()?;
    let mut best = 0.0_f64;
    for _ in 0..3 {
        let begin = Instant::now();
        for _ in 0..slots {
            let mut slot = uploads.current();
            slot.host()?;
            slot.send(bytes)?;
            let _ = uploads.acquire(&work)?;
            uploads.release(&work)?;
        }
        work.synchronize()?;
        best = best.max((slots * bytes) as f64 / begin.elapsed().as_secs_f64());
    }
    Ok(best)
}

/// Returns the seconds from the end of one integration to the end of the next, smallest first.
fn integrations(chain: &mut Chain, uploads: &mut UploadRing, runs: usize) -> Result<Vec<f64>> {
    let mut seconds = Vec::new();
    chain.begin(uploads)?;
    let mut ended = Instant::now();
    for run in 0..=runs {
        chain.integrate(uploads)?;
        chain.read()?;
        if run > 0 {
            seconds.push(ended.elapsed().as_secs_f64());
        }
        ended = Instant::now();
    }
    chain.end(uploads)?;
    if seconds.iter().any(|own| !own.is_finite()) {
        let why = "no integration took a time".to_owned();
        return Err(Error::Unavailable { what: "a rate".to_owned(), why });
    }
    seconds.sort_by(f64::total_cmp);
    Ok(seconds)
}

/// Frequency of the recorded channel's centre, and its width.
const SKY_HZ: f64 = 1.4e9;
const WIDTH_HZ: f64 = 4e6;

/// Chain of device calls from voltages to visibilities.
struct Chain {
    size: Size,
    work: Stream,
    channelizer: Channelizer,
    spectra: Buffer<u8>,
    corrector: DelayCorrector,
    seconds: Buffer<f64>,
    natural: Buffer<u8>,
    layout: Natural,
    correlator: Correlator,
    sums: Vec<Complex<i64>>,
    counts: Vec<u64>,
    /// Buffer pairs whose copies are ahead of the computation.
    ahead: usize,
}

/// Plans the filter bank of `antennas` antennas.
fn bank(size: Size, antennas: usize) -> Result<channelize::Plan> {
    let mut options = channelize::Options::new(size.channels, TAPS, VoltageEncoding::Complex8);
    options.input.antennas = antennas;
    options.input.polarizations = 2;
    options.order = Order::Ascending;
    channelize::Plan::new(options)
}

/// Returns the band that delays refer to.
fn band(size: Size) -> Band {
    Band {
        zeros_hz: vec![SKY_HZ],
        first_hz: -0.5 * WIDTH_HZ,
        step_hz: WIDTH_HZ / size.channels as f64,
    }
}

/// Returns an antenna's delay at a spectrum of a gulp: the residual is below half a sample.
fn antenna_delay(antenna: usize, spectrum: usize) -> Delay {
    let residual_s = 1e-7 * (antenna as f64 * 0.7).sin() + 1e-12 * spectrum as f64;
    Delay { total_s: 0.75e-6 * antenna as f64 + residual_s, residual_s }
}

/// Returns a gain that gives real and imaginary parts a deviation of about 20 counts: uniform 8-bit samples have 74,
/// and a filter bank of unit gain leaves each channel its share of their power.
fn gain(size: Size) -> Complex<f32> {
    Complex::new(20.0 / 74.0 * (size.channels as f32).sqrt(), 0.0)
}

impl Chain {
    fn new(gpu: &Gpu, size: Size) -> Result<Self> {
        let Size { antennas, channels, spectra, .. } = size;
        let encoding = VoltageEncoding::Complex8;
        let plan = correlate::Plan::new(correlate::Options {
            antennas,
            polarizations: 2,
            channels,
            encoding,
        })?;
        let options = delay::Options {
            inputs: (0..antennas).map(|antenna| 2 * antenna).collect(),
            polarizations: 2,
            coarse_channels: 1,
            channels,
            encoding,
            form: Form::Spectra,
            band: Some(band(size)),
            gains: vec![gain(size)],
        };
        let corrector = DelayCorrector::new(delay::Plan::new(options)?, &gpu.backend)?;
        let delays = (0..antennas).flat_map(|antenna| {
            (0..spectra).flat_map(move |spectrum| {
                let own = antenna_delay(antenna, spectrum);
                [own.total_s, own.residual_s]
            })
        });
        let input_stride = encoding.bytes(spectra).next_multiple_of(128);
        let layout =
            Natural { first_byte: 0, channel_stride: 2 * antennas * input_stride, input_stride };
        Ok(Self {
            work: gpu.device.stream()?,
            channelizer: Channelizer::new(bank(size, antennas)?, &gpu.backend)?,
            spectra: gpu.device.buffer(8 * 2 * antennas * channels * spectra)?,
            corrector,
            seconds: gpu.device.upload(&delays.collect::<Vec<f64>>())?,
            natural: gpu.device.buffer(channels * layout.channel_stride)?,
            layout,
            sums: vec![Complex::ZERO; channels * plan.row_elements()],
            counts: vec![0; channels * plan.baselines()],
            correlator: Correlator::new(plan, &gpu.backend)?,
            ahead: 0,
            size,
        })
    }

    /// Sends the first gulps.
    fn begin(&mut self, uploads: &mut UploadRing) -> Result<()> {
        self.channelizer.reset();
        self.correlator.reset();
        let bytes = self.size.gulp_bytes();
        let mut current = uploads.current();
        current.host()?;
        current.send(bytes)?;
        let (_, others) = uploads.acquire(&self.work)?;
        let mut others: Vec<_> = others.collect();
        // One pair is in use, and another may still be in use when it is due to be filled.
        self.ahead = others.len() - 1;
        for slot in others.iter_mut().take(self.ahead - 1) {
            slot.host()?;
            slot.send(bytes)?;
        }
        Ok(())
    }

    /// Queues all gulps of an integration, each as soon as its copy has been queued.
    fn integrate(&mut self, uploads: &mut UploadRing) -> Result<()> {
        (0..self.size.gulps).try_for_each(|_| self.step(uploads))
    }

    /// Sends the gulp farthest ahead, and queues the computation on the present one.
    fn step(&mut self, uploads: &mut UploadRing) -> Result<()> {
        let Size { channels, spectra, .. } = self.size;
        let bytes = self.size.gulp_bytes();
        let (voltages, mut others) = uploads.acquire(&self.work)?;
        if let Some(mut slot) = others.nth(self.ahead - 1) {
            slot.host()?;
            slot.send(bytes)?;
        }
        drop(others);
        let samples = channels * spectra;
        let layout = DeviceVoltages { first_byte: 0, stride: 2 * samples, times: samples };
        let made = self.channelizer.enqueue(voltages, layout, &mut self.spectra, &self.work)?;
        let times = made.produced;
        let stride = 8 * self.channelizer.plan().row_elements();
        let from = DeviceSamples { first_byte: 0, stride, times };
        let delays = DeviceDelays { seconds: &self.seconds, first: 0, stride: spectra };
        self.corrector.enqueue(
            &self.spectra,
            from,
            Some(delays),
            &mut self.natural,
            self.layout,
            &self.work,
        )?;
        let layout = DeviceSpectra {
            first_byte: 0,
            channel_stride: self.layout.channel_stride,
            input_stride: self.layout.input_stride,
            times,
        };
        self.correlator.enqueue(&mut self.natural, layout, None, &self.work)?;
        uploads.release(&self.work)
    }

    /// Copies the visibilities to the host, and begins another integration.
    fn read(&mut self) -> Result<()> {
        let output = correlate::Output::Integer(&mut self.sums);
        self.correlator.read(0..self.size.channels, output, &mut self.counts)?;
        self.correlator.reset();
        Ok(())
    }

    /// Waits for pending work.
    fn end(&mut self, uploads: &mut UploadRing) -> Result<()> {
        for _ in 0..self.ahead {
            let _ = uploads.acquire(&self.work)?;
            uploads.release(&self.work)?;
        }
        self.work.synchronize()
    }
}

/// Sizes of a case.
#[derive(Clone, Copy, Debug)]
struct Size {
    antennas: usize,
    channels: usize,
    /// Spectra in a gulp.
    spectra: usize,
    /// Gulps in an integration.
    gulps: usize,
}

impl Size {
    /// Returns the bytes of a gulp's voltages.
    fn gulp_bytes(self) -> usize {
        2 * 2 * self.antennas * self.channels * self.spectra
    }
}

/// Distance between compared channels.
const STEP: usize = 32;

/// Allowed difference relative to the power: one sample in a few thousand may round differently.
const TOLERANCE: f64 = 2e-4;

/// Processes `voltages` as the first gulp on device and CPU, and compares three antennas.
fn is_device_right(
    gpu: &Gpu,
    chain: &mut Chain,
    uploads: &mut UploadRing,
    voltages: &[u8],
) -> Result<bool> {
    let size = chain.size;
    let bytes = size.gulp_bytes();
    // The chain uses the slots in the order of filling.
    put(uploads, &voltages[..bytes])?;
    chain.begin(uploads)?;
    chain.step(uploads)?;
    chain.read()?;
    chain.end(uploads)?;
    let antennas = [0, size.antennas / 2, size.antennas - 1];
    let host = Backend::best(gpu.backend.threads());
    let each = bytes / size.antennas;
    let spectra = antennas.map(|antenna| {
        let own = &voltages[antenna * each..(antenna + 1) * each];
        aligned(chain, antenna, own, &host)
    });
    let [a, b, c] = spectra;
    Ok(are_visibilities(chain, antennas, &[a?, b?, c?]))
}

/// Copies voltages into the present pair.
fn put(uploads: &mut UploadRing, voltages: &[u8]) -> Result<()> {
    let mut slot = uploads.current();
    slot.host()?[..voltages.len()].copy_from_slice(voltages);
    Ok(())
}

/// Returns one antenna's spectra from the CPU, and their number; axes polarization, time, channel.
fn aligned(chain: &Chain, antenna: usize, own: &[u8], host: &Backend) -> Result<(Vec<u8>, usize)> {
    let size = chain.size;
    let plan = bank(size, 1)?;
    let samples = size.channels * size.spectra;
    let input = Voltages::new(own, VoltageEncoding::Complex8, 2, 2 * samples, samples)?;
    let mut spectra = vec![Complex::ZERO; plan.row_elements() * plan.max_rows(samples)];
    let mut channelizer = Channelizer::new(plan, host)?;
    let made = channelizer.run(input, channelize::Output::Complex(&mut spectra))?.produced;
    let options = delay::Options {
        gains: vec![gain(size)],
        ..delay::Options::one_antenna(2, 1, size.channels, VoltageEncoding::Complex8)
    };
    let mut corrector = DelayCorrector::new(delay::Plan::new(options)?, host)?;
    let band = band(size);
    let slopes: Vec<Slope> =
        (0..made).map(|time| band.slope(0, antenna_delay(antenna, time))).collect();
    let mut bytes = vec![0; 2 * made * size.channels * 2];
    let elements = made * 2 * size.channels;
    let rows = delay::Rows { bytes: &mut bytes, times: made, first: 0 };
    corrector.run(&spectra[..elements], &slopes, rows)?;
    Ok((bytes, made))
}

fn are_visibilities(chain: &Chain, antennas: [usize; 3], spectra: &[(Vec<u8>, usize); 3]) -> bool {
    let channels = chain.size.channels;
    let baselines = chain.size.antennas * (chain.size.antennas + 1) / 2;
    let part = |byte: u8| f64::from(byte as i8);
    let value = |own: usize, polarization: usize, time: usize, channel: usize| {
        let (bytes, times) = &spectra[own];
        let at = 2 * ((polarization * times + time) * channels + channel);
        Complex::new(part(bytes[at]), part(bytes[at + 1]))
    };
    let times = spectra[0].1;
    let sum = |(i, p): (usize, usize), (j, q): (usize, usize), channel: usize| {
        let products = (0..times).map(|t| value(i, p, t, channel) * value(j, q, t, channel).conj());
        products.sum::<Complex<f64>>()
    };
    (0..channels).step_by(STEP).all(|channel| {
        let power = |own: (usize, usize)| sum(own, own, channel).re;
        (0..3).all(|i| {
            (0..=i).all(|j| {
                let (first, second) = (antennas[i], antennas[j]);
                let row = channel * baselines + first * (first + 1) / 2 + second;
                let counted = chain.counts[row] == times as u64;
                (0..4).all(|pair| {
                    let (p, q) = (pair / 2, pair % 2);
                    let found = chain.sums[4 * row + pair];
                    let found = Complex::new(found.re as f64, found.im as f64);
                    let off = (found - sum((i, p), (j, q), channel)).norm();
                    let bound = TOLERANCE * (power((i, p)) * power((j, q))).sqrt();
                    counted && power((i, p)) > 0.0 && off <= bound
                })
            })
        })
    })
}
