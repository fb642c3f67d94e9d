//! `bench spiir`: filter samples per second of the bank of recursive filters on CPUs and GPUs, and its accuracy.

pub mod bank;
mod fourier;
pub(crate) mod whole;

use std::path::PathBuf;
use std::time::Instant;

use clap::{Args, ValueEnum};
use num_complex::{Complex, Complex64};
use sidereal::backend::cuda::{Buffer, Device, Stream, measure};
use sidereal::backend::simd::Level;
use sidereal::backend::threads::Threads;
use sidereal::backend::{Backend, roof};
use sidereal::spiir::{
    Branch, DeviceOutput, DeviceSamples, Filter, Options, Plan, Spiir, Template,
};
use sidereal::{Error, Result};

use crate::gpu::Gpu;
use crate::peers;
use crate::random::{self, Random};
use crate::runner::{OnGpu, Rates, Row, Run, Session, no_case};
use bank::RATE_HZ;
pub use fourier::Curve;

/// Name of the benchmark.
const BENCH: &str = "spiir";

/// Tables of benchmark cases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Name {
    /// 4 to 512 filters per template (Guo et al. 2018, Table 2), and two threads.
    Filters,
    /// 1024 filters at 1 to 8 rates (Guo et al. 2018, Table 3).
    Rates,
    /// Every SIMD level of this machine, 64 filters.
    Levels,
    /// Blocks of 16 to 16384 samples.
    Blocks,
    /// Decay into silence, compared with noise.
    Silence,
    /// Largest error over one hour.
    Accuracy,
    /// Comparison with an FFT matched filter, for templates of 1 to 64 s.
    Fourier,
    /// 1.4 + 1.4 solar-mass templates that one core runs in real time, from 30, 20 and 15 Hz.
    Binaries,
    /// Complete search of two detectors with 1024 templates each, step by step (Guo et al. 2018, Section 5).
    Whole,
}

/// Measure the SPIIR filter bank.
#[derive(Args, Clone, Debug)]
pub(crate) struct Arguments {
    /// Table to measure; may be given several times.
    #[arg(long, value_enum, value_name = "NAME", default_value = "filters")]
    table: Vec<Name>,
    /// Measure all tables.
    #[arg(long)]
    all: bool,
    /// Least number of seconds spent on each case.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Seconds of data in the complete search.
    #[arg(long, default_value_t = 1000.0)]
    length: f64,
    /// Plot templates against latency, from the table `fourier`, to this PNG.
    #[arg(long, value_name = "FILE")]
    pub(crate) plot: Option<PathBuf>,
    /// Measure only cases whose name contains this text.
    #[arg(long)]
    only: Option<String>,
    /// Also write the table to this CSV file.
    #[arg(long, value_name = "FILE")]
    pub(crate) csv: Option<PathBuf>,
    #[command(flatten)]
    on_gpu: OnGpu,
}

impl Arguments {
    /// Returns the requested tables; `--all` selects those that a GPU has.
    fn names(&self) -> Vec<Name> {
        let on_gpu = [Name::Filters, Name::Rates, Name::Fourier, Name::Accuracy, Name::Whole];
        if self.all { on_gpu.to_vec() } else { self.table.clone() }
    }
}

const ABOUT: &str = "\
10^9 operations a second, 12 for each filter and sample of its own rate: the best and the median of all runs.
Templates have the filters that a chirp asks for (0.02 cycles of error each), at 4096 Hz. Roof: the direct form's,
12/16 of the multiply-adds with operands in registers, on as many threads. Baseline: a plain loop over one filter
after another on one thread, without vector instructions (two threads: ours on one; rates: 10^6 template samples a
second, beside all filters at one rate; silence: beside noise). Roof, baseline and ours take turns. Some
templates are compared with the sums in double precision first. Accuracy: the largest error in an hour, in 10^-6 of
the output's root mean square, beside what is allowed (as roof) and the root mean square error (as baseline).";

const GPU_ABOUT: &str = "\
10^12 operations a second, 12 for each filter and sample of its own rate: kernels alone, a second of whitened strain in,
its ratios out, on the device, filters' states carried from call to call; the best and the median of 20 batches. Roof: the
direct form's 8 instructions a filter and sample on an H200. Baseline: the kernel of Guo et al. 2018 on an H200 (driver 580,
CUDA 13.0), for filters with delays within two seconds; the one before it reached 0.30, 0.64, 1.32, 2.49, 2.59, 2.65, 2.69 and 2.70. Rates: 10^6 template samples a
second, beside all filters at one rate. Lengths: multiples of real time of 4096 templates, beside overlap-save by Fourier
transforms (PyTorch). Some templates are compared with the reference. Accuracy: the largest error in an hour, in 10^-6 of the
output's root mean square, beside what is allowed and the root mean square error.";

/// Runs the benchmark; adds the points of the table `fourier` to `curves`.
pub(crate) fn run(
    arguments: &Arguments,
    session: &Session<'_>,
    curves: &mut Vec<Curve>,
) -> Result<()> {
    session.check(arguments.seconds)?;
    if let Some(gpu) = Gpu::of(&session.backend, arguments.on_gpu)? {
        return on_gpu(&gpu, arguments, session);
    }
    let threads = Threads::new(session.threads).count();
    let names = if arguments.all { Name::value_variants() } else { &arguments.table };
    let wanted = |name: &str| arguments.only.as_ref().is_none_or(|part| name.contains(part));
    let mut run = Run::new(session, arguments.csv.as_deref(), ABOUT)?;
    for name in names {
        for case in cases(*name, threads).iter().filter(|case| wanted(&case.name)) {
            run.case(&case.name, || Ok(vec![measure(case, arguments.seconds)?]))?;
        }
        match name {
            Name::Fourier => curves.extend(fourier::measure(&mut run, arguments.seconds, &wanted)?),
            Name::Binaries => fourier::binaries(&mut run, arguments.seconds, &wanted)?,
            Name::Whole if wanted("the whole search") => {
                run.case("the whole search", || whole::on_cpu(arguments.length, session.threads))?;
            }
            Name::Accuracy => {
                for accuracy in ACCURACIES.iter().filter(|accuracy| wanted(accuracy.name)) {
                    let backend = Backend::Cpu(Level::best(), Threads::new(1));
                    run.case(accuracy.name, || Ok(vec![accuracy.measure(&backend, false)?]))?;
                }
            }
            _ => {}
        }
    }
    if run.cases() == 0 {
        return Err(no_case(arguments.only.as_deref()));
    }
    run.finish()
}

/// Runs the benchmark on a GPU.
fn on_gpu(gpu: &Gpu, arguments: &Arguments, session: &Session<'_>) -> Result<()> {
    let wanted = |name: &str| arguments.only.as_ref().is_none_or(|part| name.contains(part));
    let mut run = gpu.begin(session, arguments.csv.as_deref(), GPU_ABOUT)?;
    let mut one_rate = None;
    for name in &arguments.names() {
        for case in gpu_cases(*name, gpu.quick)?.iter().filter(|case| wanted(&case.name)) {
            run.case(&case.name, || Ok(vec![measure_on_gpu(gpu, case, &mut one_rate)?]))?;
        }
        if *name == Name::Accuracy {
            let count = if gpu.quick { 1 } else { ACCURACIES.len() };
            for accuracy in ACCURACIES.iter().take(count).filter(|own| wanted(own.name)) {
                let measure = || Ok(vec![accuracy.measure(&gpu.backend, gpu.quick)?]);
                run.case(accuracy.name, measure)?;
            }
        }
        if *name == Name::Whole && wanted("the whole search") {
            let roof = roof_on(gpu) / f64::from(RATE_HZ);
            run.case("the whole search", || {
                whole::on_gpu(gpu, arguments.length, session.threads, roof)
            })?;
        }
    }
    if run.cases() == 0 {
        return Err(no_case(arguments.only.as_deref()));
    }
    run.finish()
}

/// Samples in a block.
const BLOCK: usize = 1024;

/// Reference that a case's rate is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Baseline {
    /// Plain loops.
    Plain,
    /// This filter bank on one thread.
    OneThread,
    /// This filter bank with all filters at the full rate.
    OneRate,
    /// This filter bank in noise, while the case measures silence.
    Noise,
}

/// Filter bank and its measurement settings.
#[derive(Clone, Debug)]
struct Case {
    name: String,
    templates: usize,
    filters: usize,
    rates: u32,
    level: Level,
    threads: usize,
    block: usize,
    baseline: Baseline,
}

/// Creates a case of `filters` filters at the full rate on one thread, with enough templates for the states to fill
/// the second-level cache.
fn plain(filters: usize) -> Case {
    let templates = (16384 / filters).clamp(64, 1024);
    Case {
        name: format!("{filters} filters, {templates} templates"),
        templates,
        filters,
        rates: 1,
        level: Level::best(),
        threads: 1,
        block: BLOCK,
        baseline: Baseline::Plain,
    }
}

/// Returns a table's cases; `threads` is the largest number of threads to use.
fn cases(name: Name, threads: usize) -> Vec<Case> {
    match name {
        Name::Filters => {
            let mut cases: Vec<_> = (2..=9).map(|bits| plain(1 << bits)).collect();
            if threads > 1 {
                let case = plain(64);
                let name = format!("{}, 2 threads", case.name);
                let baseline = Baseline::OneThread;
                cases.push(Case { name, threads: 2, block: 4 * BLOCK, baseline, ..case });
            }
            cases
        }
        Name::Rates => (1..=8).map(rates).collect(),
        Name::Levels => Level::available().into_iter().map(level).collect(),
        Name::Blocks => [16, 100, 256, 1024, 4096, 16384].into_iter().map(block).collect(),
        Name::Silence => [4, 64, 512].into_iter().map(silence).collect(),
        Name::Accuracy | Name::Fourier | Name::Binaries | Name::Whole => Vec::new(),
    }
}

fn rates(rates: u32) -> Case {
    let case = Case { templates: 32, ..plain(1024) };
    let name = format!("1024 filters at {rates} rates, 32 templates");
    Case { name, rates, baseline: Baseline::OneRate, ..case }
}

fn level(level: Level) -> Case {
    let case = plain(64);
    Case { name: format!("{}, {}", case.name, level.name()), level, ..case }
}

fn block(block: usize) -> Case {
    let case = plain(64);
    Case { name: format!("{}, blocks of {block}", case.name), block, ..case }
}

fn silence(filters: usize) -> Case {
    let case = plain(filters);
    Case { name: format!("{}, silence", case.name), baseline: Baseline::Noise, ..case }
}

/// Least number of rounds.
const ROUNDS: usize = 5;

/// Approximate duration of a round's blocks in seconds.
const ROUND_S: f64 = 2e-3;

/// Operations per filter and sample.
const OPERATIONS: f64 = 12.0;

/// Templates that are compared with the reference.
const CHECKED: usize = 3;

/// Largest allowed error relative to the root mean square.
const ERROR: f64 = 1e-5;

/// Filter bank on an endless stream.
struct Ours {
    spiir: Spiir,
    input: Vec<f32>,
    output: Vec<Complex<f32>>,
    block: usize,
}

impl Ours {
    fn new(plan: Plan, level: Level, threads: &Threads, block: usize) -> Result<Self> {
        let blocks = 65536_usize.div_ceil(block);
        Ok(Self {
            input: random::noise(99, blocks * block),
            output: vec![Complex::default(); plan.templates() * block],
            spiir: Spiir::new(plan, &Backend::Cpu(level, threads.clone()))?,
            block,
        })
    }

    /// Returns the template samples per second over enough blocks for a stable time.
    fn rate(&mut self) -> Result<f64> {
        let (began, mut blocks) = (Instant::now(), 0);
        for block in self.input.chunks_exact(self.block).cycle() {
            self.spiir.run(block, &mut self.output, self.block)?;
            blocks += 1;
            if began.elapsed().as_secs_f64() > ROUND_S {
                break;
            }
        }
        let samples = blocks * self.block * self.spiir.plan().templates();
        Ok(samples as f64 / began.elapsed().as_secs_f64())
    }

    /// Lets noise decay to states that would be denormal if denormals were not flushed.
    fn quieten(&mut self) -> Result<()> {
        self.rate()?;
        self.input.fill(0.0);
        for block in self.input.chunks_exact(self.block) {
            self.spiir.run(block, &mut self.output, self.block)?;
        }
        Ok(())
    }
}

/// Reference that a rate is compared with.
enum Other {
    Plain { plain: Plain, input: Vec<f32>, longest: usize, output: Vec<Complex<f32>> },
    Ours(Box<Ours>),
}

impl Other {
    fn new(case: &Case, plan: &Plan) -> Result<Self> {
        let ours = |plan, threads: usize| -> Result<Self> {
            let ours = Ours::new(plan, case.level, &Threads::new(threads), case.block)?;
            Ok(Self::Ours(Box::new(ours)))
        };
        match case.baseline {
            Baseline::OneThread => ours(plan.clone(), 1),
            Baseline::OneRate => ours(bank::plan(case.templates, case.filters, 1)?, case.threads),
            Baseline::Noise => ours(plan.clone(), case.threads),
            Baseline::Plain => {
                let longest = plan.history(0);
                let filters = &plan.options().templates[0].branches[0].filters;
                let output = vec![Complex::default(); 4096.max(65536 / filters.len())];
                let input = random::noise(5, longest + output.len());
                Ok(Self::Plain { plain: Plain::new(filters), input, longest, output })
            }
        }
    }

    /// Returns the template samples per second.
    fn rate(&mut self) -> Result<f64> {
        match self {
            Self::Ours(ours) => ours.rate(),
            Self::Plain { plain, input, longest, output } => {
                let began = Instant::now();
                plain.run(input, *longest, output);
                Ok(output.len() as f64 / began.elapsed().as_secs_f64())
            }
        }
    }
}

/// Measures one case.
fn measure(case: &Case, seconds: f64) -> Result<Row> {
    let plan = bank::plan(case.templates, case.filters, case.rates)?;
    let threads = Threads::new(case.threads);
    let backend = Backend::Cpu(case.level, threads.clone());
    let checked = is_right(&plan, &backend)?;
    let mut ours = Ours::new(plan.clone(), case.level, &threads, case.block)?;
    if case.baseline == Baseline::Noise {
        ours.quieten()?;
    }
    let mut other = Other::new(case, &plan)?;
    let rates = Rates::alternate(
        &mut ours,
        ROUNDS,
        seconds,
        |_| Ok(2.0 * roof::multiply_adds(case.level, &threads, 2e-3) * OPERATIONS / 16.0),
        |_| other.rate(),
        Ours::rate,
    )?;
    // Operations, or template samples.
    let operations = operations(&plan);
    let (scale, unit) = match case.baseline {
        Baseline::OneRate => (1e-6, "M template samples/s"),
        _ => (1e-9 * operations, "GFLOP/s"),
    };
    let rates = Rates { roof: rates.roof / operations, ..rates }.scaled(scale);
    Ok(rates.row(BENCH, &case.name, &backend, unit, checked))
}

/// Returns whether the first templates' outputs agree with the reference.
fn is_right(plan: &Plan, backend: &Backend) -> Result<bool> {
    let few = bank::first(plan, CHECKED)?;
    let samples = plan.latency() + 3000;
    let input = random::noise(17, samples);
    let mut output = vec![Complex::default(); plan.templates() * samples];
    Spiir::new(plan.clone(), backend)?.run(&input, &mut output, samples)?;
    let mut expected = vec![Complex::default(); few.templates() * samples];
    let known = Spiir::new(few, &Backend::Reference)?.run(&input, &mut expected, samples)?.produced;
    let rows = output.chunks_exact(samples).zip(expected.chunks_exact(samples));
    Ok(rows.map(|(x, y)| error(&x[..known], &y[..known])).all(|error| error < ERROR))
}

/// Returns the largest error relative to the root mean square.
fn error(found: &[Complex<f32>], expected: &[Complex<f32>]) -> f64 {
    let power: f64 = expected.iter().map(|z| f64::from(z.norm_sqr())).sum();
    let worst = found.iter().zip(expected).map(|(x, y)| f64::from((x - y).norm_sqr()));
    (worst.fold(0.0, greater) / power * expected.len() as f64).sqrt()
}

/// Returns the greater of two; NaN persists, so that every bound fails.
fn greater(worst: f64, x: f64) -> f64 {
    if x > worst || x.is_nan() { x } else { worst }
}

/// A template's filters in plain loops, with persistent states.
#[derive(Debug)]
struct Plain {
    filters: Vec<Filter>,
    states: Vec<Complex<f32>>,
}

impl Plain {
    fn new(filters: &[Filter]) -> Self {
        Self { filters: filters.to_vec(), states: vec![Complex::default(); filters.len()] }
    }

    /// Writes the sum of all filters to `output`; its first sample corresponds to `x[begin]`.
    fn run(&mut self, x: &[f32], begin: usize, output: &mut [Complex<f32>]) {
        output.fill(Complex::default());
        for (filter, state) in self.filters.iter().zip(&mut self.states) {
            let x = &x[begin - filter.delay as usize..][..output.len()];
            let (a, b, mut y) = (filter.a, filter.b, *state);
            for (z, x) in output.iter_mut().zip(x) {
                y = Complex::new(
                    a.re * y.re - a.im * y.im + b.re * x,
                    a.re * y.im + a.im * y.re + b.im * x,
                );
                *z += y;
            }
            *state = y;
        }
    }
}

/// Returns the operations per template and sample.
pub(crate) fn operations(plan: &Plan) -> f64 {
    let effective = plan.options().templates.iter().map(Template::effective_filters);
    OPERATIONS * effective.sum::<f64>() / plan.templates() as f64
}

/// Seconds of data.
const SECONDS: usize = 3600;

/// Case of the largest error over one hour, relative to the same rounded coefficients in double precision.
struct Accuracy {
    name: &'static str,
    filters: usize,
}

/// From short filter memories to those of a binary neutron star from 15 Hz.
const ACCURACIES: [Accuracy; 4] = [
    Accuracy { name: "largest error in an hour, 4 filters", filters: 4 },
    Accuracy { name: "largest error in an hour, 64 filters", filters: 64 },
    Accuracy { name: "largest error in an hour, 386 filters", filters: 386 },
    Accuracy { name: "largest error in an hour, 640 filters", filters: 640 },
];

/// Filter in double precision that reads its delayed inputs from the recent past.
struct Exact {
    filter: Filter,
    y: Complex64,
}

/// Filters that one thread sums, and their sums over a block.
struct Group {
    filters: Vec<Exact>,
    sums: Vec<Complex64>,
}

impl Accuracy {
    /// Measures one case; the row's rate is the error. All cores share the double-precision sums; `quick` uses 20 s
    /// of data.
    fn measure(&self, backend: &Backend, quick: bool) -> Result<Row> {
        let plan = bank::plan(1, self.filters, 1)?;
        let filters = &plan.options().templates[0].branches[0].filters;
        let (longest, block) = (plan.history(0), RATE_HZ as usize);
        let seconds = if quick { 20 } else { SECONDS };
        let threads = Threads::new(0);
        let mut groups: Vec<Group> = filters
            .chunks(filters.len().div_ceil(threads.count()))
            .map(|filters| Group {
                filters: filters.iter().map(Exact::new).collect(),
                sums: vec![Complex64::default(); block],
            })
            .collect();
        let mut scratch = vec![(); threads.count()];
        let mut spiir = Spiir::new(plan.clone(), backend)?;
        let mut random = Random(31);
        let mut input = vec![0f32; longest + block];
        let mut output = vec![Complex::default(); block];
        let (mut worst, mut power, mut errors) = (0f64, 0f64, 0f64);
        for _ in 0..seconds {
            input.copy_within(block.., 0);
            input[longest..].fill_with(|| random.normal() as f32);
            spiir.run(&input[longest..], &mut output, block)?;
            threads.for_each_chunk(&mut scratch, &mut groups, 1, |(), _, group| {
                group.iter_mut().for_each(|group| group.add(&input, longest));
            });
            for (k, z) in output.iter().enumerate() {
                let exact: Complex64 = groups.iter().map(|group| group.sums[k]).sum();
                let error = (Complex64::new(z.re.into(), z.im.into()) - exact).norm_sqr();
                (worst, errors, power) =
                    (greater(worst, error), errors + error, power + exact.norm_sqr());
            }
        }
        let samples = (seconds * block) as f64;
        let mean = power / samples;
        let micro = |square: f64| 1e6 * (square / mean).sqrt();
        let error = micro(worst);
        let rates = Rates::once(error, 1e6 * ERROR, micro(errors / samples));
        Ok(rates.row(BENCH, self.name, backend, "1e-6 of rms", error * 1e-6 < ERROR))
    }
}

impl Group {
    fn add(&mut self, x: &[f32], begin: usize) {
        self.sums.fill(Complex64::default());
        self.filters.iter_mut().for_each(|one| one.add(x, begin, &mut self.sums));
    }
}

impl Exact {
    fn new(filter: &Filter) -> Self {
        Self { filter: *filter, y: Complex64::default() }
    }

    /// Adds a block's outputs; `x[begin]` is the block's first sample.
    fn add(&mut self, x: &[f32], begin: usize, output: &mut [Complex64]) {
        let (a, b) = (self.filter.pole(), self.filter.weight());
        let x = &x[begin - self.filter.delay as usize..];
        for (z, x) in output.iter_mut().zip(x) {
            self.y = a * self.y + b * f64::from(*x);
            *z += self.y;
        }
    }
}

/// Templates in a bank.
const TEMPLATES: usize = 4096;

/// The same for a quick run.
const QUICK_TEMPLATES: usize = 8;

/// Filters per rate of a quick run's chirps: they cover about 200 samples.
const QUICK_CHIRPS: usize = 40;

/// Operations per second and multiprocessor that the direct form allows: 48 x 10^12 on the 132 of an H200.
const ROOF: f64 = 48e12 / 132.0;

/// Filters of chirps, and the seconds that they cover.
const FAR: [(usize, u32); 2] = [(256, 17), (512, 152)];

/// Unit of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shown {
    /// Operations.
    Operations,
    /// Template samples.
    Samples,
    /// Seconds of data for the whole bank.
    RealTime,
}

/// Filter bank and the unit of its figure.
#[derive(Clone, Debug)]
struct GpuCase {
    name: String,
    templates: usize,
    filters: usize,
    rates: u32,
    /// Whether filters have a chirp's delays, each at the lowest sufficient rate; otherwise all delays are below two
    /// seconds.
    is_chirps: bool,
    shown: Shown,
    /// Rate of the best peer; 0 if not measured.
    peer: f64,
}

impl GpuCase {
    /// Returns the value of one template sample of `operations` operations in the figure's unit.
    fn scale(&self, operations: f64) -> f64 {
        match self.shown {
            Shown::Operations => operations * 1e-12,
            Shown::Samples => 1e-6,
            Shown::RealTime => 1.0 / (self.templates as f64 * f64::from(bank::RATE_HZ)),
        }
    }

    /// Makes the plan: filters of short delays split equally among the rates, or a chirp's filters each at its own
    /// rate.
    fn plan(&self) -> Result<Plan> {
        let of = if self.is_chirps { bank::chirps } else { bank::near };
        of(self.templates, self.filters, self.rates)
    }

    /// Reduces the case to the size of a quick run.
    fn shrink(&mut self) {
        let each = if self.is_chirps { QUICK_CHIRPS } else { 4 };
        (self.templates, self.filters) = (QUICK_TEMPLATES, each * self.rates as usize);
        let (filters, plural) = (self.filters, if self.rates == 1 { "" } else { "s" });
        let of = if self.is_chirps { " of chirps" } else { "" };
        self.name = format!("{filters} filters{of} at {} rate{plural}", self.rates);
    }

    fn unit(&self) -> &'static str {
        match self.shown {
            Shown::Operations => "TFLOP/s",
            Shown::Samples => "M template samples/s",
            Shown::RealTime => "times real time",
        }
    }
}

/// Returns the operations per second that the direct form allows.
fn roof_on(gpu: &Gpu) -> f64 {
    ROOF * gpu.device.properties().multiprocessors as f64
}

/// Returns a table's cases on a GPU.
///
/// # Errors
/// [`Error::Parameter`] for a table that only the CPU has.
fn gpu_cases(name: Name, quick: bool) -> Result<Vec<GpuCase>> {
    let mut cases: Vec<GpuCase> = match name {
        Name::Filters => (2..=9)
            .map(|bits| filters(1 << bits))
            .chain(FAR.map(|(count, seconds)| far(count, seconds)))
            .collect(),
        Name::Rates => (1..=8).map(gpu_rates).collect(),
        Name::Fourier => {
            peers::SPIIR_FOURIER.iter().map(|(seconds, peer)| length(*seconds, *peer)).collect()
        }
        Name::Accuracy | Name::Whole => Vec::new(),
        Name::Levels | Name::Blocks | Name::Silence | Name::Binaries => {
            let rule = "on a GPU there are filters, rates, fourier, accuracy and whole";
            return Err(Error::parameter("--table", format!("{name:?}").to_lowercase(), rule));
        }
    };
    if quick {
        let chirps = cases.iter().find(|case| case.is_chirps).cloned();
        cases.retain(|case| !case.is_chirps);
        cases.truncate(2);
        cases.extend(chirps);
        cases.iter_mut().for_each(GpuCase::shrink);
    }
    Ok(cases)
}

fn filters(filters: usize) -> GpuCase {
    GpuCase {
        name: format!("{filters} filters, {TEMPLATES} templates"),
        templates: TEMPLATES,
        filters,
        rates: 1,
        is_chirps: false,
        shown: Shown::Operations,
        peer: peers::spiir(filters),
    }
}

/// Creates a case with the delays of a chirp of this many seconds, all filters at the full rate.
fn far(count: usize, seconds: u32) -> GpuCase {
    GpuCase {
        name: format!("{count} filters of chirps of {seconds} s, {TEMPLATES} templates"),
        is_chirps: true,
        peer: 0.0,
        ..filters(count)
    }
}

fn gpu_rates(rates: u32) -> GpuCase {
    let name = format!("1024 filters at {rates} rates, {TEMPLATES} templates");
    GpuCase { name, filters: 1024, rates, shown: Shown::Samples, peer: 0.0, ..filters(4) }
}

/// Creates a case with chirps of `seconds` seconds, at as many rates as suit them.
fn length(seconds: f64, peer: f64) -> GpuCase {
    // Number of filters for a binary neutron star's chirp with 0.02 cycles of error: 386 in 61.8 s.
    let count = (386.0 * (seconds / 61.8).powf(1.0 / 3.2)).round() as usize;
    GpuCase {
        name: format!("chirps of {seconds} s, {TEMPLATES} templates"),
        filters: count,
        rates: 4,
        is_chirps: true,
        shown: Shown::RealTime,
        peer,
        ..filters(4)
    }
}

/// Samples in a call: one second.
const TIMES: usize = bank::RATE_HZ as usize;

/// The same for a quick run.
const QUICK_TIMES: usize = 256;

/// Returns the longest delay of any filter, in samples of the full rate.
fn longest_delay(plan: &Plan) -> usize {
    let branches = plan.options().templates.iter().flat_map(|template| &template.branches);
    let delay = |branch: &Branch| {
        let longest = branch.filters.iter().map(|filter| filter.delay as usize).max();
        longest.unwrap_or(0) << branch.halvings
    };
    branches.map(delay).max().unwrap_or(0)
}

/// Filter bank whose strain and ratios stay in device memory.
pub(crate) struct Resident {
    spiir: Spiir,
    input: Buffer<f32>,
    pub(crate) output: Buffer<Complex<f32>>,
    times: usize,
}

impl Resident {
    pub(crate) fn new(
        device: &Device,
        backend: &Backend,
        plan: &Plan,
        input: &[f32],
    ) -> Result<Self> {
        let times = input.len();
        Ok(Self {
            spiir: Spiir::new(plan.clone(), backend)?,
            input: device.upload(input)?,
            output: device.buffer(plan.templates() * times)?,
            times,
        })
    }

    /// Enqueues the filters of the input, as the next samples of the stream; returns the number of ratios.
    pub(crate) fn step(&mut self, stream: &Stream) -> Result<usize> {
        let times = self.times;
        let input = DeviceSamples { buffer: &self.input, first: 0, times };
        let output = DeviceOutput { buffer: &mut self.output, first: 0, stride: times };
        Ok(self.spiir.enqueue(input, output, stream)?.produced)
    }
}

/// Measures a case on a GPU.
fn measure_on_gpu(gpu: &Gpu, case: &GpuCase, one_rate: &mut Option<f64>) -> Result<Row> {
    let plan = case.plan()?;
    let input = bank::noise(if gpu.quick { QUICK_TIMES } else { TIMES });
    let stream = gpu.device.stream()?;
    let mut resident = Resident::new(&gpu.device, &gpu.backend, &plan, &input)?;
    let checked = is_device_right(&mut resident, &input, &stream)?;
    let mut once = |stream: &Stream| resident.step(stream).map(|_| ());
    let seconds = measure::seconds(&stream, &mut once)?;
    let sustained_s = gpu.sustained(&stream, seconds[0], &mut once)?;
    let samples = (plan.templates() * input.len()) as f64;
    let scale = case.scale(operations(&plan));
    let roof = roof_on(gpu) / operations(&plan) * scale;
    let rates = Rates::of_seconds(samples * scale, &seconds, roof, case.peer);
    let rates = rates.lasting(samples * scale, sustained_s);
    let baseline = match case.shown {
        Shown::Samples if case.rates == 1 => *one_rate.insert(rates.best),
        Shown::Samples => one_rate.unwrap_or(0.0),
        _ => case.peer,
    };
    let rates = Rates { baseline, ..rates };
    Ok(rates.row(BENCH, &case.name, &gpu.backend, case.unit(), checked))
}

/// Returns whether some templates' ratios, from the stream's start over several calls, agree with the reference.
fn is_device_right(resident: &mut Resident, input: &[f32], stream: &Stream) -> Result<bool> {
    let plan = resident.spiir.plan().clone();
    let (templates, times) = (plan.templates(), input.len());
    let places: Vec<usize> = (0..CHECKED).map(|k| k * (templates - 1) / (CHECKED - 1)).collect();
    // Enough calls for every filter's input to begin.
    let calls = 2 + (plan.latency() + longest_delay(&plan)) / times;
    let mut found = vec![Vec::new(); CHECKED];
    let mut row = vec![Complex::default(); times];
    for _ in 0..calls {
        let produced = resident.step(stream)?;
        for (found, template) in found.iter_mut().zip(&places) {
            resident.output.download(template * times, &mut row[..produced])?;
            found.extend_from_slice(&row[..produced]);
        }
    }
    let options = plan.options();
    let few = places.iter().map(|place| options.templates[*place].clone()).collect();
    let few = Plan::new(Options { templates: few, ..options.clone() })?;
    let (input, samples) = (input.repeat(calls), calls * times);
    let mut expected = vec![Complex::default(); CHECKED * samples];
    let progress = Spiir::new(few, &Backend::Reference)?.run(&input, &mut expected, samples)?;
    let rows = found.iter().zip(expected.chunks_exact(samples));
    let is_right = |(found, expected): (&Vec<Complex<f32>>, &[Complex<f32>])| {
        found.len() == progress.produced && error(found, &expected[..found.len()]) < ERROR
    };
    Ok(progress.produced > 0 && rows.into_iter().all(is_right))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_number_is_within_no_bound() {
        let row = |z: f32| [Complex::new(z, 0.0), Complex::new(1.0, 1.0)];
        assert!(error(&row(2.0), &row(2.0)) < ERROR);
        let bad = error(&row(f32::NAN), &row(2.0));
        assert!(bad.is_nan() && greater(bad, 1.0).is_nan() && greater(1.0, bad).is_nan());
    }
}
