//! `bench correlate`: operations per second of the X-engine on CPUs and GPUs; the corner turn and the whole correlator
//! are in files of their own.

pub(crate) mod recorded;
mod turn;
mod whole;

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

use clap::{Args, ValueEnum};
use num_complex::Complex;
use sidereal::backend::cuda::measure::Products;
use sidereal::backend::cuda::{Buffer, Stream, measure};
use sidereal::backend::simd::Level;
use sidereal::backend::threads::Threads;
use sidereal::backend::{Backend, roof};
use sidereal::correlate::{
    Block, BlockBuffer, Correlator, DeviceSpectra, Options, Output, Plan, Precision,
};
use sidereal::voltage::VoltageEncoding::{self, Complex4, Complex8, ComplexF32};
use sidereal::voltage::voltage;
use sidereal::{Error, Result};

use crate::gpu::{Card, Gpu, Reader};
use crate::peers;
use crate::random::{self, Random};
use crate::runner::{Named, OnGpu, Rates, Row, Run, Session, say, select};

/// Name of the benchmark.
const BENCH: &str = "correlate";

/// Tables of benchmark cases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Name {
    /// 32 to 256 antennas at 8 bit; 4 bit and f32 at 128 antennas; two threads.
    Headline,
    /// 8 to 1024 antennas at 4 bit, 8 bit and f32.
    Sizes,
    /// Every SIMD level of this machine, 128 antennas.
    Levels,
    /// Antennas times channels (Clark et al. 2011, Figure 5).
    Channels,
    /// Integrations of 64 to 16384 samples at a constant total number of samples (Clark et al. 2011, Figure 6).
    Integration,
    /// Bandwidth that one core sustains, by number of antennas (Clark et al. 2011, Figure 8).
    Bandwidth,
}

/// Measure the X-engine.
#[derive(Args, Clone, Debug)]
pub(crate) struct Arguments {
    /// Table to measure; may be given several times.
    #[arg(long, value_enum, value_name = "NAME", default_value = "headline")]
    table: Vec<Name>,
    /// Measure all tables.
    #[arg(long)]
    all: bool,
    /// Measure the corner turn and the alignment before the X-engine instead of the X-engine.
    #[arg(long, conflicts_with_all = ["table", "all", "scipy"])]
    turn: bool,
    /// Measure all of `correlate` instead, from voltages to a file, and the time of each step.
    #[arg(long, conflicts_with_all = ["table", "all", "only", "scipy", "turn"])]
    whole: bool,
    /// Least number of seconds spent on each case.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Measure only cases whose name contains this text.
    #[arg(long)]
    only: Option<String>,
    /// Python with SciPy: its cherk becomes the baseline, timed alternately with the X-engine.
    #[arg(long, value_name = "PYTHON")]
    scipy: Option<PathBuf>,
    /// Also write the table to this CSV file.
    #[arg(long, value_name = "FILE")]
    pub(crate) csv: Option<PathBuf>,
    #[command(flatten)]
    on_gpu: OnGpu,
}

impl Arguments {
    /// Returns the benchmark's name if it has no GPU kernels.
    pub(crate) fn cpu_only_name(&self) -> Option<&'static str> {
        self.turn.then_some("bench correlate --turn")
    }

    /// Returns the requested tables.
    fn tables(&self) -> &[Name] {
        if self.all { Name::value_variants() } else { &self.table }
    }
}

const ABOUT: &str = "\
10^9 operations a second of antennas with two polarizations (n inputs): 8 for a complex multiply-add, n (n + 1) / 2
sums over 1024 samples, from packed spectra to sums that stay in the X-engine: the best and the median of all
runs, over blocks of 32 MiB (8 bit) and more. Integration: as many samples in all, each integration read out.
Bandwidth: kHz of each polarization that the threads keep up with. Roof: multiply-adds of the same kind with
operands in registers. Baseline: cherk of complex floats on one thread (--scipy), or else our plain loops; two
threads: ours on one. Roof, baseline and ours take turns. Sums are compared with sums of single products first.";

const GPU_ABOUT: &str = "\
10^12 operations a second of antennas with two polarizations (n inputs): 8 for a complex multiply-add, n (n + 1) / 2
sums over 1024 samples of as many channels as make 65536 antennas in all; kernels alone, spectra and sums on the
device, sums of 32 bits written anew for each integration; the best and the median of 20 batches of 1 ms.
Sustained: back to back for two seconds, the rate of the second one, and, where nvidia-smi tells them, the card's power
(W, of what it may draw) and clock (MHz, of its highest). Bandwidth: MHz of each polarization that the device keeps up with. Roof: multiply-adds
of the same kind that do nothing else, or the spectra and sums once through the device's memory. Baseline: the best
peer of the same input on an H200 (driver 580, CUDA 13.0); 0 where none was measured. Sums are compared with plain ones.";

/// Runs the benchmark.
pub(crate) fn run(arguments: &Arguments, session: &Session<'_>) -> Result<()> {
    session.check(arguments.seconds)?;
    let (csv, only) = (arguments.csv.as_deref(), arguments.only.as_deref());
    let threads = Threads::new(session.threads).count();
    if arguments.turn {
        let mut run = Run::new(session, csv, turn::ABOUT)?;
        turn::measure(&mut run, threads, arguments.seconds, only)?;
        return run.finish();
    }
    let gpu = Gpu::of(&session.backend, arguments.on_gpu)?;
    match (gpu, arguments.whole) {
        (Some(gpu), true) => whole::on_gpu(&gpu, csv, session),
        (Some(gpu), false) => on_gpu(&gpu, arguments, session),
        (None, true) => whole::on_cpu(session, csv, arguments.seconds),
        (None, false) => {
            let cases = arguments.tables().iter().flat_map(|name| cases(*name, threads));
            let cases = select(cases.collect(), only)?;
            let mut cherk = arguments.scipy.as_deref().map(Cherk::start).transpose()?;
            let mut run = Run::new(session, csv, ABOUT)?;
            run.each(&cases, |case| measure(case, cherk.as_mut(), arguments.seconds))?;
            run.finish()
        }
    }
}

/// Runs the benchmark on a GPU.
fn on_gpu(gpu: &Gpu, arguments: &Arguments, session: &Session<'_>) -> Result<()> {
    let mut cases = gpu_cases(arguments.tables(), gpu.quick);
    if let Some(part) = &arguments.only {
        cases.retain(|case| case.name.contains(part));
    }
    if cases.is_empty() {
        let rule = "no case's name contains it, or a GPU has no such table";
        return Err(Error::parameter("--only", arguments.only.as_deref().unwrap_or(""), rule));
    }
    let roofs = Roofs::new(gpu)?;
    let mut run = gpu.begin(session, arguments.csv.as_deref(), GPU_ABOUT)?;
    let mut data: Option<Data> = None;
    let mut rates = Vec::new();
    // Power and clock of a quick run mean nothing, and it should not depend on another program.
    let mut reader = (!gpu.quick).then(|| Reader::of(&gpu.device)).transpose()?;
    for case in &cases {
        run.case(&case.name, || {
            let encoding = case.options.encoding;
            if data.as_ref().is_none_or(|data| data.encoding != encoding) {
                // Frees the previous data first.
                data = None;
                data = Some(Data::new(gpu, encoding)?);
            }
            let Some(data) = &mut data else {
                let (what, why) = ("random spectra".to_owned(), "none were made".to_owned());
                return Err(Error::Unavailable { what, why });
            };
            let rows = measure_on_gpu(gpu, case, &roofs, data, &mut reader)?;
            rates.push((case.clone(), rows[0].rate));
            Ok(rows)
        })?;
    }
    let measured = run.finish();
    if session.talks() {
        say(&beside_peers(&rates))?;
    }
    measured
}

/// Times in a block, and samples of an integration.
const TIMES: usize = 1024;

/// Dual-polarization samples per time over all antennas and channels: 32 MiB for a block at 8 bit.
const SAMPLES: usize = 8192;

/// Antennas times channels on a GPU.
const GPU_ANTENNAS: usize = 1 << 16;

/// The same for a quick run, and its samples.
const QUICK_ANTENNAS: usize = 80;
const QUICK_TIMES: usize = 70;

/// Quantity that a case reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    /// Operations per second of blocks added to persistent sums; on a GPU, in bursts of one millisecond.
    Blocks,
    /// The same, with a readout and a reset of the sums after each integration.
    Integrations,
    /// Operations per second on a GPU, back to back.
    Sustained,
    /// Bandwidth that one core or a GPU sustains.
    Bandwidth,
}

/// Reference that a case's rate is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Baseline {
    /// `cherk` if available, otherwise plain loops.
    Library,
    /// This X-engine on one thread.
    OneThread,
}

/// X-engine and its measurement settings.
#[derive(Clone, Debug)]
struct Case {
    name: String,
    options: Options,
    times: usize,
    what: What,
    /// Settings on a CPU.
    level: Level,
    threads: usize,
    baseline: Baseline,
    /// Precision on a GPU.
    precision: Precision,
}

impl Named for Case {
    fn name(&self) -> &str {
        &self.name
    }
}

impl Case {
    fn new(antennas: usize, channels: usize, encoding: VoltageEncoding) -> Self {
        let label = match encoding {
            Complex4 => "4 bit",
            Complex8 => "8 bit",
            _ => "f32",
        };
        Self {
            name: format!("{antennas} antennas, {label}"),
            options: Options { antennas, polarizations: 2, channels, encoding },
            times: TIMES,
            what: What::Blocks,
            level: Level::best(),
            threads: 1,
            baseline: Baseline::Library,
            precision: Precision::F32,
        }
    }

    /// Creates a case with exactly `channels` channels.
    fn by_channels(antennas: usize, channels: usize) -> Self {
        let case = Self::new(antennas, channels, Complex8);
        let plural = if channels == 1 { "" } else { "s" };
        Self { name: format!("{channels} channel{plural}, {}", case.name), ..case }
    }

    /// Creates a case of 128 antennas: the longer the integration, the fewer the channels.
    fn integration(channels: usize, times: usize, what: What) -> Self {
        let case = Self::new(128, channels, Complex8);
        let name = format!("{}, {channels} channels, {times} samples", case.name);
        Self { name, times, what, ..case }
    }

    fn rounded(self, precision: Precision, words: &str) -> Self {
        Self { name: format!("{} as {words}", self.name), precision, ..self }
    }

    fn of(self, what: What, words: &str) -> Self {
        Self { name: format!("{}, {words}", self.name), what, ..self }
    }
}

/// Antenna counts of the papers' figures.
const CHANNELS_ANTENNAS: [usize; 9] = [16, 32, 64, 96, 128, 192, 256, 384, 512];
const BANDWIDTH_ANTENNAS: [usize; 13] = [8, 16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024];

fn of_channels() -> Vec<Case> {
    let of = |channels| CHANNELS_ANTENNAS.map(|antennas| Case::by_channels(antennas, channels));
    [1, 8, 64].into_iter().flat_map(of).collect()
}

/// Creates a case with enough channels to fill a CPU's caches.
fn plain(antennas: usize, encoding: VoltageEncoding) -> Case {
    Case::new(antennas, (SAMPLES / antennas).max(8), encoding)
}

/// Returns a table's cases on a CPU; `threads` is the largest number of threads to use.
fn cases(name: Name, threads: usize) -> Vec<Case> {
    match name {
        Name::Headline => headline(threads),
        Name::Sizes => {
            let antennas = (3..=10).map(|bits| 1usize << bits);
            let encodings = [Complex4, Complex8, ComplexF32];
            antennas.flat_map(|n| encodings.map(|encoding| plain(n, encoding))).collect()
        }
        Name::Levels => {
            let level = |level: Level, encoding| {
                let case = plain(128, encoding);
                let vnni = matches!(level, Level::Avx512(found) if found.vnni());
                let vnni = if vnni { " with VNNI" } else { "" };
                Case { name: format!("{}, {}{vnni}", case.name, level.name()), level, ..case }
            };
            let levels = Level::variants().into_iter().skip(1);
            levels.flat_map(|l| [Complex8, ComplexF32].map(|encoding| level(l, encoding))).collect()
        }
        Name::Channels => of_channels(),
        Name::Integration => {
            let times = (6..=14).map(|bits| 1 << bits);
            times.map(|t| Case::integration((1 << 16) / t, t, What::Integrations)).collect()
        }
        Name::Bandwidth => {
            let bandwidth = |n| Case { what: What::Bandwidth, ..plain(n, Complex8) };
            BANDWIDTH_ANTENNAS.map(bandwidth).into()
        }
    }
}

fn headline(threads: usize) -> Vec<Case> {
    let mut cases: Vec<Case> = [32, 64, 128, 256].map(|n| plain(n, Complex8)).into();
    cases.extend([plain(128, Complex4), plain(128, ComplexF32)]);
    if threads > 1 {
        let two = |case: Case| {
            let name = format!("{}, 2 threads", case.name);
            Case { name, threads: 2, baseline: Baseline::OneThread, ..case }
        };
        let one_channel =
            Case { name: "256 antennas, 8 bit, 1 channel".into(), ..Case::new(256, 1, Complex8) };
        cases.extend([plain(128, Complex8), one_channel, plain(128, ComplexF32)].map(two));
    }
    cases
}

/// Returns the number of dual-polarization samples that hold the spectra of every case on a GPU.
fn samples(quick: bool) -> usize {
    let (antennas, times) =
        if quick { (QUICK_ANTENNAS, QUICK_TIMES) } else { (GPU_ANTENNAS, TIMES) };
    // Alignment of rows to 16 bytes takes more.
    2 * antennas * (times + 16)
}

/// Creates a case of a constant number of samples on a GPU, whatever the antennas and times.
fn constant(antennas: usize, encoding: VoltageEncoding, times: usize) -> Case {
    let channels = (GPU_ANTENNAS * TIMES / (antennas * times)).max(1);
    Case { times, ..Case::new(antennas, channels, encoding) }
}

fn filling(antennas: usize, encoding: VoltageEncoding) -> Case {
    constant(antennas, encoding, TIMES)
}

/// Returns all cases of some tables on a GPU.
fn gpu_cases(names: &[Name], is_quick: bool) -> Vec<Case> {
    if is_quick {
        return quick();
    }
    names.iter().flat_map(|name| of_table(*name)).collect()
}

fn of_table(name: Name) -> Vec<Case> {
    match name {
        Name::Headline => gpu_headline(),
        Name::Sizes => {
            let antennas = (3..=11).map(|bits| 1usize << bits);
            let encodings = [Complex4, Complex8, ComplexF32];
            antennas.flat_map(|n| encodings.map(|encoding| filling(n, encoding))).collect()
        }
        // SIMD levels belong to the CPU.
        Name::Levels => Vec::new(),
        Name::Channels => of_channels(),
        Name::Integration => {
            let times = (6..=14).map(|bits| 1 << bits);
            let channels = |t: usize| (GPU_ANTENNAS * TIMES / (128 * t)).max(1);
            times.map(|t| Case::integration(channels(t), t, What::Blocks)).collect()
        }
        Name::Bandwidth => {
            let bandwidth = |n| filling(n, Complex8).of(What::Bandwidth, "bandwidth");
            BANDWIDTH_ANTENNAS.map(bandwidth).into()
        }
    }
}

/// Returns the papers' sizes and others; most important first, in case the run is interrupted.
fn gpu_headline() -> Vec<Case> {
    let sizes = [32, 64, 128, 256, 512, 1024];
    let mut cases: Vec<Case> = sizes.map(|n| filling(n, Complex8)).into();
    cases.extend([70, 100, 250, 257, 514, 1000].map(|n| filling(n, Complex8)));
    cases.extend([1000, 1023].map(|times| {
        let case = constant(256, Complex8, times);
        Case { name: format!("{}, {times} samples", case.name), ..case }
    }));
    cases.extend(sizes.into_iter().chain([70, 257]).map(|n| filling(n, Complex4)));
    cases.extend(sizes.map(|n| filling(n, Complex8).of(What::Sustained, "sustained")));
    cases.extend(sizes.map(|n| filling(n, ComplexF32)));
    cases.extend(sizes.map(|n| filling(n, ComplexF32).rounded(Precision::Split, "split")));
    cases.extend(sizes.map(|n| filling(n, ComplexF32).rounded(Precision::Tf32, "tf32")));
    cases.extend(sizes.map(|n| filling(n, ComplexF32).rounded(Precision::F16, "f16")));
    cases
}

/// Returns small cases of every kind.
fn quick() -> Vec<Case> {
    let small = |antennas: usize, encoding| Case {
        times: QUICK_TIMES,
        ..Case::new(antennas, QUICK_ANTENNAS / antennas, encoding)
    };
    let mut cases: Vec<Case> = [Complex8, Complex4, ComplexF32].map(|e| small(20, e)).into();
    cases.extend([3, 40].map(|antennas| small(antennas, Complex8)));
    cases.push(small(20, ComplexF32).rounded(Precision::Tf32, "tf32"));
    cases.push(small(20, ComplexF32).rounded(Precision::F16, "f16"));
    cases.push(small(40, Complex8).of(What::Bandwidth, "bandwidth"));
    cases.push(small(40, Complex8).of(What::Sustained, "sustained"));
    cases
}

const SCRIPT: &str = include_str!("cherk.py");

/// Python process that waits for shapes to measure.
struct Cherk {
    child: Child,
    shapes: Option<ChildStdin>,
    rates: BufReader<ChildStdout>,
}

impl Cherk {
    /// Starts a Python that has SciPy.
    ///
    /// # Errors
    /// [`Error::Io`] when it cannot be started.
    fn start(python: &Path) -> Result<Self> {
        let mut command = Command::new(python);
        command.args(["-c", SCRIPT]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|source| Error::io(python, source))?;
        let (shapes, rates) = (child.stdin.take(), child.stdout.take());
        let rates = rates.ok_or_else(|| failed("its output can't be read"))?;
        Ok(Self { child, shapes, rates: BufReader::new(rates) })
    }

    /// Returns the best rate of one core in `seconds`, in 10^9 operations per second.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when the process ended.
    fn rate(&mut self, inputs: usize, times: usize, seconds: f64) -> Result<f64> {
        let ended = || failed("it ended; has that Python got NumPy and SciPy?");
        let shapes = self.shapes.as_mut().ok_or_else(ended)?;
        let asked = writeln!(shapes, "{inputs} {times} {seconds}").and_then(|()| shapes.flush());
        asked.map_err(|_| ended())?;
        let mut line = String::new();
        self.rates.read_line(&mut line).map_err(|_| ended())?;
        line.trim().parse().map_err(|_| ended())
    }
}

impl Drop for Cherk {
    fn drop(&mut self) {
        drop(self.shapes.take());
        let _ = self.child.wait();
    }
}

fn failed(why: &str) -> Error {
    Error::Unavailable { what: "the rate of cherk".to_owned(), why: why.to_owned() }
}

/// Least number of rounds.
const ROUNDS: usize = 5;

/// Channels of a plain loop's block: one is enough to fill the caches with sums.
const PLAIN_CHANNELS: usize = 1;

/// X-engine and the buffers of its readout.
struct Ours {
    correlator: Correlator,
    threads: Threads,
    level: Level,
    integers: Vec<Complex<i64>>,
    floats: Vec<Complex<f64>>,
    counts: Vec<u64>,
}

impl Ours {
    fn new(plan: &Plan, level: Level, threads: usize, what: What) -> Result<Self> {
        let threads = Threads::new(threads);
        let all = if what == What::Integrations { plan.channels() } else { 0 };
        let float = plan.encoding() == ComplexF32;
        let elements = |wanted| if wanted { all * plan.row_elements() } else { 0 };
        Ok(Self {
            correlator: Correlator::new(plan.clone(), &Backend::Cpu(level, threads.clone()))?,
            threads,
            level,
            integers: vec![Complex::new(0, 0); elements(!float)],
            floats: vec![Complex::ZERO; elements(float)],
            counts: vec![0; all * plan.baselines()],
        })
    }

    /// Returns the rate of one block in 10^9 operations per second, including the readout if `what` counts it.
    fn rate(&mut self, block: Block<'_>, what: What) -> Result<f64> {
        let plan = self.correlator.plan().clone();
        let began = Instant::now();
        self.correlator.run(block)?;
        if what == What::Integrations {
            let sums = match plan.encoding() {
                ComplexF32 => Output::Float(&mut self.floats),
                _ => Output::Integer(&mut self.integers),
            };
            self.correlator.read(0..plan.channels(), sums, &mut self.counts)?;
            self.correlator.reset();
        }
        let operations = per_time(&plan) * plan.channels() as f64 * block.times() as f64;
        Ok(operations / began.elapsed().as_secs_f64() * 1e-9)
    }

    /// Returns the rate that the multiply-add instructions allow, in 10^9 operations per second.
    fn roof(&self) -> f64 {
        let (level, threads) = (self.level, &self.threads);
        let multiply_adds = match self.correlator.plan().encoding() {
            ComplexF32 => roof::multiply_adds(level, threads, 2e-3),
            _ => roof::integer_multiply_adds(level, threads, 2e-3),
        };
        2e-9 * multiply_adds
    }
}

/// Returns the operations for one time of one channel: 8 per complex multiply-add.
fn per_time(plan: &Plan) -> f64 {
    let inputs = plan.inputs() as f64;
    8.0 * inputs * (inputs + 1.0) / 2.0
}

/// Reference that a rate is compared with.
enum Other<'a> {
    Cherk(&'a mut Cherk),
    /// The X-engine without SIMD, or on one thread.
    Ours(Box<Ours>, BlockBuffer),
}

/// Measures one case.
fn measure(case: &Case, cherk: Option<&mut Cherk>, seconds: f64) -> Result<Row> {
    let plan = Plan::new(case.options.clone())?;
    let buffer = spectra(&plan, case.times)?;
    let mut ours = Ours::new(&plan, case.level, case.threads, case.what)?;
    let backend = Backend::Cpu(case.level, ours.threads.clone());
    let checked = is_right(&plan, &backend, buffer.block())?;
    let mut other = match (case.baseline, cherk) {
        (Baseline::Library, Some(cherk)) => Other::Cherk(cherk),
        (Baseline::Library, None) => {
            let plan = Plan::new(Options { channels: PLAIN_CHANNELS, ..case.options.clone() })?;
            let plain = Ours::new(&plan, Level::Portable, 1, case.what)?;
            Other::Ours(Box::new(plain), spectra(&plan, case.times)?)
        }
        (Baseline::OneThread, _) => {
            let single = Ours::new(&plan, case.level, 1, case.what)?;
            Other::Ours(Box::new(single), spectra(&plan, case.times)?)
        }
    };
    // Operations, or Hz: each Hz is one sample of each polarization of an antenna per second.
    let (scale, unit) = match case.what {
        What::Bandwidth => (1e6 / per_time(&plan), "kHz"),
        _ => (1.0, "GFLOP/s"),
    };
    let rates = Rates::alternate(
        &mut ours,
        ROUNDS,
        seconds,
        |ours| Ok(ours.roof()),
        |_| match &mut other {
            Other::Cherk(cherk) => cherk.rate(plan.inputs(), case.times, 0.1),
            Other::Ours(other, buffer) => other.rate(buffer.block(), case.what),
        },
        |ours| ours.rate(buffer.block(), case.what),
    )?;
    Ok(rates.scaled(scale).row(BENCH, &case.name, &backend, unit, checked))
}

/// Makes pseudorandom spectra, all valid.
fn spectra(plan: &Plan, times: usize) -> Result<BlockBuffer> {
    let mut buffer = BlockBuffer::new(plan, times);
    buffer.set_times(times)?;
    let mut random = Random::new();
    let float = plan.encoding() == ComplexF32;
    for bytes in buffer.bytes_mut().chunks_exact_mut(4) {
        let bits = random.next();
        let number = bits as u32 as f32 / u32::MAX as f32 - 0.5;
        bytes.copy_from_slice(&if float {
            number.to_le_bytes()
        } else {
            (bits as u32).to_le_bytes()
        });
    }
    Ok(buffer)
}

/// Number of antennas whose baselines are compared: the first, the last and some between.
const COMPARED_ANTENNAS: usize = 6;

/// Correlates one block into empty sums and compares the sums of its first and last channel.
fn is_right(plan: &Plan, backend: &Backend, block: Block<'_>) -> Result<bool> {
    let mut correlator = Correlator::new(plan.clone(), backend)?;
    correlator.run(block)?;
    let (last, polarizations) = (plan.antennas() - 1, plan.polarizations());
    let antennas = (0..COMPARED_ANTENNAS).map(|k| k * last / (COMPARED_ANTENNAS - 1));
    let inputs =
        antennas.flat_map(|antenna| (0..polarizations).map(move |p| antenna * polarizations + p));
    let inputs: Vec<usize> = inputs.collect();
    for channel in [0, plan.channels() - 1] {
        let (sums, _) = read(plan, &mut correlator, channel)?;
        let samples = |input| Samples {
            input,
            values: (0..block.times()).map(|t| block.value(plan, channel, input, t)).collect(),
        };
        let samples: Vec<Samples> = inputs.iter().map(|input| samples(*input)).collect();
        if !are_right(plan, &samples, &sums, if plan.encoding() == ComplexF32 { 2e-6 } else { 0.0 })
        {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Reads a channel's sums, as floats (integer sums here are far below 2^53), and its counts.
fn read(
    plan: &Plan,
    correlator: &mut Correlator,
    channel: usize,
) -> Result<(Vec<Complex<f64>>, Vec<u64>)> {
    let mut counts = vec![0; plan.baselines()];
    let channels = channel..channel + 1;
    if plan.encoding() == ComplexF32 {
        let mut floats = vec![Complex::ZERO; plan.row_elements()];
        correlator.read(channels, Output::Float(&mut floats), &mut counts)?;
        return Ok((floats, counts));
    }
    let mut integers = vec![Complex::new(0i64, 0); plan.row_elements()];
    correlator.read(channels, Output::Integer(&mut integers), &mut counts)?;
    Ok((integers.iter().map(|z| Complex::new(z.re as f64, z.im as f64)).collect(), counts))
}

/// Samples of an input in a channel.
struct Samples {
    input: usize,
    values: Vec<Complex<f64>>,
}

/// Returns whether the sums of all products of these inputs differ from plain ones by at most `bound` of the sum of
/// their magnitudes.
fn are_right(plan: &Plan, samples: &[Samples], sums: &[Complex<f64>], bound: f64) -> bool {
    let polarizations = plan.polarizations();
    let agrees = |left: &Samples, right: &Samples| {
        let baseline = Plan::baseline(left.input / polarizations, right.input / polarizations);
        let pair = left.input % polarizations * polarizations + right.input % polarizations;
        let products = left.values.iter().zip(&right.values).map(|(x, y)| x * y.conj());
        let (sum, size) = products.fold((Complex::ZERO, 0.0), |(sum, size), product| {
            (sum + product, size + product.norm())
        });
        (sums[baseline * plan.pairs() + pair] - sum).norm() <= bound * size
    };
    samples.iter().all(|left| {
        let others = samples
            .iter()
            .filter(|right| right.input / polarizations <= left.input / polarizations);
        others.into_iter().all(|right| agrees(left, right))
    })
}

/// Seconds of back-to-back work, of which the second half counts.
const SUSTAINED_S: f64 = 2.0;

/// The same for a quick run.
const QUICK_S: f64 = 1e-3;

/// Alignment of rows in bytes.
const ALIGNED: usize = 16;

/// Arithmetic peak rates of the device, in operations per second.
struct Roofs {
    integers: f64,
    floats: f64,
    tf32: f64,
    halves: f64,
}

impl Roofs {
    fn new(gpu: &Gpu) -> Result<Self> {
        let rounds = if gpu.quick { 1 } else { measure::ROUNDS };
        let floats = measure::floats(&gpu.device, rounds)?;
        let products = |of| measure::products(&gpu.device, of, rounds);
        let tf32 = products(Products::Tf32)?.unwrap_or(floats);
        Ok(Self {
            // Without tensor cores, four byte products take the place of each float product.
            integers: products(Products::Integers)?.unwrap_or(4.0 * floats),
            floats,
            tf32,
            halves: products(Products::Halves)?.unwrap_or(floats),
        })
    }

    /// Returns the largest number of operations per second for a plan.
    fn of(&self, gpu: &Gpu, plan: &Plan, layout: &DeviceSpectra) -> f64 {
        let arithmetic = match (plan.encoding(), plan.precision()) {
            (ComplexF32, Precision::F32) => self.floats,
            // Numbers split into two parts take three products.
            (ComplexF32, Precision::Split) => self.tf32 / 3.0,
            (ComplexF32, Precision::Tf32) => self.tf32,
            (ComplexF32, Precision::F16) => self.halves,
            _ => self.integers,
        };
        let samples = (plan.channels() * plan.inputs() * layout.times) as f64;
        let spectra = samples * plan.encoding().sample_bits() as f64 / 8.0;
        let sums = 8.0 * (plan.channels() * plan.row_elements()) as f64;
        let operations = operations(plan, layout.times);
        arithmetic.min(operations * gpu.copy / (spectra + sums))
    }
}

/// Returns the operations of one integration: 8 per complex multiply-add.
pub(crate) fn operations(plan: &Plan, times: usize) -> f64 {
    let inputs = plan.inputs() as f64;
    4.0 * inputs * (inputs + 1.0) * plan.channels() as f64 * times as f64
}

/// Random spectra of one encoding, on host and device.
struct Data {
    encoding: VoltageEncoding,
    host: Vec<u8>,
    device: Buffer<u8>,
}

impl Data {
    fn new(gpu: &Gpu, encoding: VoltageEncoding) -> Result<Self> {
        let samples = samples(gpu.quick);
        let host = match encoding {
            ComplexF32 => random::floats(2 * samples),
            _ => random::bytes(encoding.bytes(samples)),
        };
        let device = gpu.device.upload(&host)?;
        Ok(Self { encoding, host, device })
    }
}

/// Returns the layout of a case's spectra: rows begin at multiples of 16 bytes.
pub(crate) fn layout(plan: &Plan, times: usize) -> DeviceSpectra {
    let input_stride = plan.encoding().bytes(times).next_multiple_of(ALIGNED);
    let channel_stride = plan.inputs() * input_stride;
    DeviceSpectra { first_byte: 0, channel_stride, input_stride, times }
}

/// Measures a case on a GPU: the rate first, then the card's power and clock if it was read.
fn measure_on_gpu(
    gpu: &Gpu,
    case: &Case,
    roofs: &Roofs,
    data: &mut Data,
    reader: &mut Option<Reader>,
) -> Result<Vec<Row>> {
    let plan = Plan::new(case.options.clone())?.with_precision(case.precision);
    let layout = layout(&plan, case.times);
    let mut correlator = Correlator::new(plan.clone(), &gpu.backend)?;
    let stream = gpu.device.stream()?;
    correlator.enqueue(&mut data.device, layout, None, &stream)?;
    stream.synchronize()?;
    let checked = is_device_right(&mut correlator, &data.host, layout)?;
    let mut step = |stream: &Stream| {
        correlator.reset();
        correlator.enqueue(&mut data.device, layout, None, stream)
    };
    let mut seconds = measure::seconds(&stream, &mut step)?;
    let sustained_s = gpu.sustained(&stream, seconds[0], &mut step)?;
    let mut card: Option<Card> = None;
    if case.what == What::Sustained {
        let long = if gpu.quick { QUICK_S } else { SUSTAINED_S };
        let calls = (long / seconds[0]).ceil().max(2.0) as usize;
        let mut work =
            |is_awaited: &dyn Fn() -> bool| sustained(gpu, &stream, calls, is_awaited, &mut step);
        let each = match reader {
            Some(known) => {
                let (each, read) = known.meanwhile(work);
                let each = each?;
                card = read.inspect_err(|why| without(reader, why)).ok();
                each
            }
            None => work(&|| false)?,
        };
        seconds = vec![each];
    }
    // Operations, or samples of each polarization of an antenna: one per second for each Hz.
    let all = operations(&plan, case.times);
    let (work, unit, peer) = match case.what {
        What::Bandwidth => ((plan.channels() * case.times) as f64 * 1e-6, "MHz", 0.0),
        _ => (all * 1e-12, "TFLOP/s", peers::correlate(&plan, case.times)),
    };
    let roof = roofs.of(gpu, &plan, &layout) * work / all;
    let rates = Rates::of_seconds(work, &seconds, roof, peer).lasting(work, sustained_s);
    let mut rows = vec![rates.row(BENCH, &case.name, &gpu.backend, unit, checked)];
    if let Some(card) = card {
        let reading = |what: &str, value: f64, limit: f64, unit| {
            let name = format!("{}, {what}", case.name);
            Rates::once(value, limit, 0.0).row(BENCH, name, &gpu.backend, unit, true)
        };
        rows.push(reading("power", card.power_w, card.limit_w, "W"));
        rows.push(reading("clock", card.clock_mhz, card.max_mhz, "MHz"));
    }
    Ok(rows)
}

/// Continues without power and clock, which only accompany the rate.
fn without(reader: &mut Option<Reader>, why: &str) {
    eprintln!("sidereal: the card's power and clock are left out: {why}");
    *reader = None;
}

/// Returns the seconds per call in the second half of `calls` calls; adds calls while a reading is awaited.
fn sustained(
    gpu: &Gpu,
    stream: &Stream,
    calls: usize,
    is_awaited: &dyn Fn() -> bool,
    step: &mut dyn FnMut(&Stream) -> Result<()>,
) -> Result<f64> {
    let (half, end) = (gpu.device.event()?, gpu.device.event()?);
    for call in 0..calls {
        if call == calls / 2 {
            stream.record(&half)?;
        }
        step(stream)?;
    }
    stream.record(&end)?;
    end.synchronize()?;
    while is_awaited() {
        (0..calls.div_ceil(20)).try_for_each(|_| step(stream))?;
        stream.synchronize()?;
    }
    Ok(end.seconds_since(&half)? / (calls - calls / 2) as f64)
}

/// Formats this X-engine's 8-bit rates beside the peers', by antennas.
fn beside_peers(rates: &[(Case, f64)]) -> String {
    let sizes = peers::CORRELATE_ANTENNAS;
    let line = |name: &str, rates: [f64; 6]| {
        let cells = rates.map(|rate| match rate {
            0.0 => format!("{:>10}", "-"),
            rate => format!("{rate:>10.0}"),
        });
        format!("{name:<44}{}", cells.concat())
    };
    let ours = |what: What| {
        sizes.map(|antennas| {
            let ours = rates.iter().find(|(case, _)| {
                let options = &case.options;
                let product = options.antennas * options.channels;
                let same = (options.antennas, product, options.encoding, case.times);
                same == (antennas, peers::CORRELATE_PRODUCT, Complex8, TIMES) && case.what == what
            });
            ours.map_or(0.0, |(_, rate)| *rate)
        })
    };
    let mut lines = vec![
        "\n10^12 operations a second, 8 bit and f32, 65536 antennas x channels, 1024 samples, on an H200".to_owned(),
        line("antennas", sizes.map(|antennas| antennas as f64)),
        line("ours, 8 bit, bursts", ours(What::Blocks)),
        line("ours, 8 bit, sustained", ours(What::Sustained)),
    ];
    lines.extend(peers::CORRELATE.iter().map(|(name, _, rates)| line(name, *rates)));
    lines.join("\n")
}

/// Most inputs whose products are compared: some of every tile.
const INPUTS: usize = 60;

/// Returns the allowed difference of a sum of random samples relative to the sum of magnitudes; for rounded inputs,
/// less than the worst case.
fn device_bound(plan: &Plan) -> f64 {
    match (plan.encoding(), plan.precision()) {
        (ComplexF32, Precision::F32 | Precision::Split) => 514.5 / f64::from(1 << 24),
        (ComplexF32, _) => 1.0 / 4096.0,
        _ => 0.0,
    }
}

/// Compares products of some inputs in three channels on a GPU, and the counts.
fn is_device_right(
    correlator: &mut Correlator,
    host: &[u8],
    layout: DeviceSpectra,
) -> Result<bool> {
    let plan = correlator.plan().clone();
    let mut random = Random::new();
    let last = plan.channels() - 1;
    let mut right = true;
    for channel in [0, last, random.below(last + 1)] {
        let (sums, counts) = read(&plan, correlator, channel)?;
        right &= counts.iter().all(|count| *count == layout.times as u64);
        let samples = samples_of(&plan, host, layout, channel, &mut random);
        right &= are_right(&plan, &samples, &sums, device_bound(&plan));
    }
    Ok(right)
}

/// Returns the first, the last and some other inputs, unordered; all inputs when they are few.
fn samples_of(
    plan: &Plan,
    host: &[u8],
    layout: DeviceSpectra,
    channel: usize,
    random: &mut Random,
) -> Vec<Samples> {
    let inputs = plan.inputs();
    let mut chosen: Vec<usize> = (0..inputs).collect();
    if inputs > INPUTS {
        let spread = |k: usize| k * inputs / INPUTS + random.below(inputs / INPUTS);
        chosen = (0..INPUTS).map(spread).collect();
        (chosen[0], chosen[INPUTS - 1]) = (0, inputs - 1);
    }
    let encoding = plan.encoding();
    let row = |input: usize| {
        let first =
            layout.first_byte + channel * layout.channel_stride + input * layout.input_stride;
        let bytes = &host[first..first + encoding.bytes(layout.times)];
        let values = (0..layout.times).map(|time| voltage(bytes, encoding, time)).collect();
        Samples { input, values }
    };
    chosen.into_iter().map(row).collect()
}
