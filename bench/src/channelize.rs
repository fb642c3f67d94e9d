//! `bench channelize`: input samples per second through the polyphase filter bank, on CPUs and GPUs.

use std::f64::consts::TAU;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use clap::{Args, ValueEnum};
use rustfft::num_complex::Complex;
use rustfft::{Fft, FftPlanner};
use serde::Deserialize;
use sidereal::backend::cuda::{Buffer, Stream, measure};
use sidereal::backend::simd::Level;
use sidereal::backend::threads::Threads;
use sidereal::backend::{Backend, roof};
use sidereal::channelize::{
    Channelizer, Detection, DeviceVoltages, Feed, Form, Input, Options, Order, Output, Plan,
    Products,
};
use sidereal::voltage::{VoltageEncoding, Voltages};
use sidereal::{Error, Result};

use crate::gpu::Gpu;
use crate::peers;
use crate::random::{self, Random};
use crate::runner::{Named, OnGpu, Rates, Row, Run, Session, select};

/// Name of the benchmark.
const BENCH: &str = "channelize";

/// Tables of benchmark cases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Name {
    /// 1024 channels with several tap counts, 8 bit, two cores.
    Headline,
    /// 64 to 65536 channels times 4 to 64 taps.
    Sizes,
    /// Every voltage encoding.
    Types,
    /// Channels x taps = 4096, 64 stations with two polarizations, 16 bit: the filter alone, and with the transform
    /// (van der Veldt et al. 2012).
    Lofar,
    /// 65536 channels, two polarizations, 8 bit, 8 to 64 taps.
    Vegas,
    /// Tap counts at 1024 and at 512 channels.
    Taps,
    /// Channel counts at 8 and 16 taps, including 3072 channels.
    Channels,
    /// Detected and requantized spectra, oversampling, channel orders.
    Forms,
}

/// Measure the polyphase filter bank.
#[derive(Args, Clone, Debug)]
pub(crate) struct Arguments {
    /// Table to measure; may be given several times.
    #[arg(long, value_enum, value_name = "NAME", default_value = "headline")]
    table: Vec<Name>,
    /// Measure all tables.
    #[arg(long)]
    all: bool,
    /// Least number of seconds spent on each case.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Measure only cases whose name contains this text.
    #[arg(long)]
    only: Option<String>,
    /// Size of the input buffer and of the output buffer, as complex floats, in MiB each: more than the caches.
    #[arg(long, default_value_t = 256, value_name = "MIB")]
    working_set: usize,
    /// Output file of benches/channelize_scipy.py on this machine: its rates become baselines.
    #[arg(long, value_name = "FILE")]
    scipy: Option<PathBuf>,
    /// Also write the table to this CSV file.
    #[arg(long, value_name = "FILE")]
    pub(crate) csv: Option<PathBuf>,
    #[command(flatten)]
    on_gpu: OnGpu,
    /// Measure scalloping loss and leakage of every window instead of rates, with figures (Adamek, Novotny & Armour
    /// 2016, Figures 3 and 4).
    #[arg(long)]
    pub(crate) quality: bool,
    /// Folder for the figures of --quality.
    #[arg(
        short,
        long,
        value_name = "DIR",
        default_value = "sidereal-quality",
        requires = "quality"
    )]
    pub(crate) output: PathBuf,
}

const ABOUT: &str = "\
10^6 samples a second, complex or real as they come in, of all streams together (LOFAR's tables: 10^9
floating-point operations a second): the best and the median of all runs. Every run takes
buffers that are longer than the caches. Roof: copying as many bytes as go in and come out, with ordinary
stores, on as many threads (LOFAR's tables: the roofline, from that copy and from the arithmetic peak).
Baseline: rustfft's transforms alone, out of place over complex floats in the same memory, on one thread (two
cores: ours on one; --scipy: SciPy's rate). Roof, baseline and ours take turns. Outputs are compared with
sums in double precision first.";

const GPU_ABOUT: &str = "\
10^9 complex samples a second: kernels alone, data on the device, the best and the median of 20 batches.
Roof: copying as many bytes as go in and come out, once, in the device's memory (of whole calls: the bus).
Baseline: AstroAccelerate's filter bank on an H200 (driver 580, CUDA 13.0), the best peer; 0 where it was not
measured. Outputs are compared with the processor's first.";

/// Runs the benchmark.
pub(crate) fn run(arguments: &Arguments, session: &Session<'_>) -> Result<()> {
    session.check(arguments.seconds)?;
    if !(16..=1 << 16).contains(&arguments.working_set) {
        let rule = "it must be 16 to 65536 MiB";
        return Err(Error::parameter("--working-set", arguments.working_set, rule));
    }
    let (csv, only) = (arguments.csv.as_deref(), arguments.only.as_deref());
    if let Some(gpu) = Gpu::of(&session.backend, arguments.on_gpu)? {
        let cases = select(gpu_cases(gpu.quick), only)?;
        let mut run = gpu.begin(session, csv, GPU_ABOUT)?;
        let mut data = None;
        run.each(&cases, |case| measure_on_gpu(&gpu, case, &mut data))?;
        return run.finish();
    }
    let threads = Threads::new(session.threads).count();
    let tables = Name::value_variants().iter();
    let tables = tables.filter(|name| arguments.all || arguments.table.contains(name));
    let mut all: Vec<Case> = tables.flat_map(|name| cases(*name, threads)).collect();
    if let Some(path) = &arguments.scipy {
        all.extend(scipy(path)?);
    }
    let cases = select(all, only)?;
    let mut run = Run::new(session, csv, ABOUT)?;
    let mut memory = Memory::new(arguments.working_set);
    run.each(&cases, |case| memory.measure(case, arguments.seconds))?;
    run.finish()
}

/// Reference that a case's rate is compared with.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Baseline {
    /// rustfft's transforms alone.
    Library,
    /// This filter bank on one thread.
    OneThread,
    /// Rate measured earlier, in 10^6 samples per second.
    Rate(f64),
}

/// Filter bank and its measurement settings.
#[derive(Clone, Debug)]
struct Case {
    name: String,
    options: Options,
    threads: usize,
    baseline: Baseline,
    /// Whether the rate is in operations per second, below a roofline.
    roofline: bool,
    /// On a GPU, whether the case includes the copies from and to host memory.
    whole: bool,
}

impl Named for Case {
    fn name(&self) -> &str {
        &self.name
    }
}

impl Case {
    /// Creates a case on one thread, with rustfft as baseline.
    fn new(name: impl Into<String>, options: Options) -> Self {
        let name = name.into();
        let baseline = Baseline::Library;
        Self { name, options, threads: 1, baseline, roofline: false, whole: false }
    }
}

const F32: VoltageEncoding = VoltageEncoding::ComplexF32;

/// Names an encoding: `f32`, `8 bit`, `real 8 bit`.
fn label(encoding: VoltageEncoding) -> String {
    let real = if encoding.is_complex() { "" } else { "real " };
    match encoding {
        VoltageEncoding::ComplexF32 | VoltageEncoding::RealF32 => format!("{real}f32"),
        VoltageEncoding::ComplexOffset8 | VoltageEncoding::RealOffset8 => {
            format!("{real}8 bit unsigned")
        }
        _ => format!("{real}{} bit", encoding.bits()),
    }
}

fn plain(channels: usize, taps: usize, encoding: VoltageEncoding) -> Case {
    let name = format!("{channels} channels, {taps} taps, {}", label(encoding));
    Case::new(name, Options::new(channels, taps, encoding))
}

/// Returns a table's cases; `threads` is the largest number of threads to use.
fn cases(name: Name, threads: usize) -> Vec<Case> {
    match name {
        Name::Headline => headline(threads),
        Name::Sizes => {
            let channels = (6..=16).map(|bits| 1usize << bits);
            let taps = [4, 8, 16, 32, 64];
            channels.flat_map(|c| taps.map(|t| plain(c, t, F32))).collect()
        }
        Name::Types => VoltageEncoding::ALL.map(|encoding| plain(1024, 8, encoding)).into(),
        Name::Lofar => lofar(),
        Name::Vegas => [8, 16, 32, 64].map(vegas).into(),
        Name::Taps => {
            let taps = || (1..=16).map(|k| 4 * k);
            [512, 1024].into_iter().flat_map(|c| taps().map(move |t| plain(c, t, F32))).collect()
        }
        Name::Channels => {
            let channels = [128, 256, 512, 1024, 1536, 2048, 3072, 4096, 6144, 8192];
            channels.into_iter().flat_map(|c| [8, 16].map(|t| plain(c, t, F32))).collect()
        }
        Name::Forms => forms(),
    }
}

fn headline(threads: usize) -> Vec<Case> {
    let mut cases: Vec<Case> = [4, 8, 16, 32].map(|taps| plain(1024, taps, F32)).into();
    let encodings =
        [VoltageEncoding::Complex4, VoltageEncoding::Complex8, VoltageEncoding::Complex16];
    cases.extend(encodings.map(|encoding| plain(1024, 8, encoding)));
    if threads > 1 {
        let case = plain(1024, 8, F32);
        let name = format!("{}, 2 threads", case.name);
        cases.push(Case { name, threads: 2, baseline: Baseline::OneThread, ..case });
    }
    cases
}

fn lofar() -> Vec<Case> {
    let shapes = [(64, 64), (128, 32), (256, 16), (512, 8), (1024, 4)];
    let forms = [(Form::Filtered, "filter alone"), (Form::Spectra, "with transform")];
    let case = |channels: usize, taps: usize, form: Form, what: &str| {
        let encoding = VoltageEncoding::Complex16;
        let input = Input { antennas: 64, polarizations: 2, ..Input::one(encoding) };
        let options = Options { input, form, ..Options::new(channels, taps, encoding) };
        let name = format!("LOFAR {channels} x {taps}, {what}");
        Case { roofline: true, ..Case::new(name, options) }
    };
    let shapes = shapes.into_iter();
    let case =
        |(channels, taps)| forms.clone().map(|(form, what)| case(channels, taps, form, what));
    shapes.flat_map(case).collect()
}

fn vegas(taps: usize) -> Case {
    let encoding = VoltageEncoding::Complex8;
    let input = Input { polarizations: 2, ..Input::one(encoding) };
    let options = Options { input, ..Options::new(65536, taps, encoding) };
    Case::new(format!("VEGAS: 65536 channels, {taps} taps, 2 pol, 8 bit"), options)
}

fn forms() -> Vec<Case> {
    let encoding = VoltageEncoding::Complex8;
    let options = Options {
        input: Input { polarizations: 2, ..Input::one(encoding) },
        ..Options::new(1024, 8, encoding)
    };
    let detected = |products, spectra| {
        let detection =
            Detection { products, feed: Feed::Linear, spectra, channels: 1, interpolate_dc: true };
        let form = Form::Detected(detection);
        let name = format!("2 pol 8 bit, 1024 x 8, {products:?}, sum of {spectra}");
        Case::new(name, Options { form, ..options.clone() })
    };
    let requantized = |bits: usize| {
        let form = Form::Requantized { bits, gains: vec![2.0] };
        let name = format!("2 pol 8 bit, 1024 x 8, to {bits} bit");
        Case::new(name, Options { form, ..options.clone() })
    };
    let oversampled = Options { oversampling: (4, 3), ..Options::new(1024, 8, F32) };
    let descending = Options { order: Order::Descending, ..Options::new(1024, 8, F32) };
    vec![
        detected(Products::I, 16),
        detected(Products::I, 1024),
        detected(Products::Iquv, 16),
        detected(Products::Aabbcrci, 1),
        requantized(8),
        requantized(4),
        Case::new("1024 channels, 8 taps, f32, oversampled 4/3", oversampled),
        Case::new("1024 channels, 8 taps, f32, descending", descending),
    ]
}

/// Output of benches/channelize_scipy.py.
#[derive(Deserialize)]
struct Scipy {
    channels: usize,
    rates: Vec<(usize, f64)>,
}

/// Returns a case for each shape that SciPy was measured on.
fn scipy(path: &Path) -> Result<Vec<Case>> {
    let text = std::fs::read_to_string(path).map_err(|source| Error::io(path, source))?;
    let scipy: Scipy = serde_json::from_str(&text).map_err(|error| {
        Error::parameter("--scipy", path.display().to_string(), error.to_string())
    })?;
    let case = |taps: usize, rate: f64| {
        let case = plain(scipy.channels, taps, F32);
        Case { name: format!("{}, SciPy", case.name), baseline: Baseline::Rate(rate), ..case }
    };
    Ok(scipy.rates.iter().map(|(taps, rate)| case(*taps, *rate)).collect())
}

/// Samples in a call: input and output are several times any cache.
const SAMPLES: usize = 1 << 27;

/// Samples in a call of a quick run.
const QUICK_SAMPLES: usize = 1 << 14;

const ENCODINGS: [VoltageEncoding; 3] =
    [VoltageEncoding::Complex8, VoltageEncoding::Complex16, VoltageEncoding::ComplexF32];

/// Returns the cases of a GPU.
fn gpu_cases(quick: bool) -> Vec<Case> {
    let eight = VoltageEncoding::Complex8;
    if quick {
        let whole = Case { whole: true, ..summed(plain(64, 4, eight), 16) };
        let mut cases: Vec<Case> = ENCODINGS.map(|encoding| plain(256, 4, encoding)).into();
        cases.extend([summed(plain(64, 8, eight), 16), whole]);
        return cases;
    }
    let mut cases = Vec::new();
    for encoding in ENCODINGS {
        cases.extend([4, 8, 16, 32, 64].map(|taps| plain(1024, taps, encoding)));
    }
    for encoding in ENCODINGS {
        let channels = (8..=16).map(|bits| 1 << bits).filter(|channels| *channels != 1024);
        cases.extend(channels.map(|channels| plain(channels, 8, encoding)));
    }
    cases.extend([4, 8, 16, 32, 64].map(|taps| summed(plain(1024, taps, eight), 16)));
    cases.extend([1536, 3000].map(|channels| plain(channels, 8, eight)));
    let whole = summed(plain(1024, 8, eight), 16);
    let name = "1024 channels, 8 taps, 8 bit, host to host".to_owned();
    cases.push(Case { whole: true, name, ..whole });
    cases
}

/// Returns the case with detected powers, summed over `spectra` spectra.
fn summed(case: Case, spectra: usize) -> Case {
    let (products, feed) = (Products::I, Feed::Linear);
    let detection = Detection { products, feed, spectra, channels: 1, interpolate_dc: false };
    let options = Options { form: Form::Detected(detection), ..case.options };
    Case { name: format!("{}, powers of {spectra}", case.name), options, ..case }
}

/// Buffers: random voltages, complex floats for the baseline, and the output.
struct Memory {
    bytes: Vec<u8>,
    floats: Vec<Complex<f32>>,
    output: Vec<Complex<f32>>,
}

impl Memory {
    /// Allocates input and output for `mib` MiB of complex floats each.
    fn new(mib: usize) -> Self {
        let samples = (mib << 20) / size_of::<Complex<f32>>();
        let mut random = Random::new();
        let float = |bits: u64| (bits as u32 as f32) / (u32::MAX as f32) - 0.5;
        let complex = |bits: u64| Complex::new(float(bits), float(bits >> 32));
        let floats: Vec<_> = (0..samples).map(|_| complex(random.next())).collect();
        let bytes = floats.iter().flat_map(|z| [z.re.to_le_bytes(), z.im.to_le_bytes()]).flatten();
        Self { bytes: bytes.collect(), output: vec![Complex::ONE; samples], floats }
    }

    /// Measures one case.
    fn measure(&mut self, case: &Case, seconds: f64) -> Result<Row> {
        let threads = Threads::new(case.threads);
        let backend = Backend::Cpu(Level::best(), threads.clone());
        let plan = Plan::new(case.options.clone())?;
        let compared = shortened(&plan)?;
        let checked = is_right(&compared, &backend, self.few(&compared)?)?;
        let mut ours = Ours::new(plan.clone(), &backend, self.floats.len())?;
        let one = Backend::Cpu(Level::best(), Threads::new(1));
        let mut single = Ours::new(plan.clone(), &one, self.floats.len())?;
        let mut library = Library::new(plan.points());
        let samples = (ours.times * plan.input().streams()) as f64;
        let sample_bytes = bytes_per_sample(&plan);
        let mut peak = 0.0_f64;
        let rates = Rates::alternate(
            self,
            5,
            seconds,
            |memory| {
                if case.roofline {
                    peak = peak.max(roof::multiply_adds(Level::best(), &threads, 1e-3) * 2e-9);
                }
                let from = bytemuck::cast_slice(&memory.floats);
                let to = bytemuck::cast_slice_mut(&mut memory.output);
                Ok(roof::copy(from, to, &threads) * 1e-6 / sample_bytes)
            },
            |memory| match case.baseline {
                Baseline::Library => Ok(memory.library(&mut library)),
                Baseline::OneThread => Ok(samples * 1e-6 / memory.run(&mut single)?),
                Baseline::Rate(rate) => Ok(rate),
            },
            |memory| Ok(samples * 1e-6 / memory.run(&mut ours)?),
        )?;
        if !case.roofline {
            return Ok(rates.row(BENCH, &case.name, &backend, "Msample/s", checked));
        }
        let transform = match plan.options().form {
            Form::Filtered => 0.0,
            _ => 5.0 * (plan.points() as f64).log2(),
        };
        // 10^9 operations per 10^6 complex samples, below the roofline of the peak and the copy.
        let flops = 1e-3 * (4.0 * plan.taps() as f64 + transform);
        let intensity = 1e3 * flops / sample_bytes;
        let rates = rates.scaled(flops);
        let rates = Rates { roof: rates.roof.min(peak), ..rates };
        let name = format!("{}, {intensity:.1} flop/B", case.name);
        Ok(rates.row(BENCH, name, &backend, "GFLOP/s", checked))
    }

    /// Returns the first samples, enough for a few rows of each stream.
    fn few(&self, plan: &Plan) -> Result<Voltages<'_>> {
        let rows = match plan.options().form {
            Form::Spectra | Form::Filtered => 20,
            _ => 4,
        };
        let times = plan.span() + (rows * plan.spectra_per_row() - 1) * plan.hop();
        let times = times.next_multiple_of(plan.input().encoding.group_samples());
        self.voltages(plan, times)
    }

    /// Returns `times` samples of each stream.
    fn voltages(&self, plan: &Plan, times: usize) -> Result<Voltages<'_>> {
        let (encoding, streams) = (plan.input().encoding, plan.input().streams());
        let stride = encoding.bytes(times);
        Voltages::new(&self.bytes, encoding, streams, stride, times)
    }

    /// Runs once; returns the elapsed seconds.
    fn run(&mut self, ours: &mut Ours) -> Result<f64> {
        let plan = &ours.plan;
        let mut buffer = std::mem::take(&mut self.output);
        let input = self.voltages(plan, ours.times)?;
        let began = Instant::now();
        let progress =
            ours.channelizer.run(input, output(plan, bytemuck::cast_slice_mut(&mut buffer)));
        let seconds = began.elapsed().as_secs_f64();
        self.output = buffer;
        progress.map(|_| seconds)
    }

    /// Returns the points per second (in 10^6) that rustfft transforms; each point is a sample, real or complex.
    fn library(&mut self, library: &mut Library) -> f64 {
        let points = library.fft.len();
        let size = self.floats.len() / points * points;
        let (from, to) = (&self.floats[..size], &mut self.output[..size]);
        let began = Instant::now();
        library.fft.process_immutable_with_scratch(from, to, &mut library.scratch);
        let seconds = began.elapsed().as_secs_f64();
        size as f64 * 1e-6 / seconds
    }
}

struct Library {
    fft: Arc<dyn Fft<f32>>,
    scratch: Vec<Complex<f32>>,
}

impl Library {
    fn new(points: usize) -> Self {
        let fft = FftPlanner::new().plan_fft_forward(points);
        let scratch = vec![Complex::ZERO; fft.get_immutable_scratch_len()];
        Self { fft, scratch }
    }
}

/// Filter bank that processes the buffers repeatedly.
struct Ours {
    plan: Plan,
    channelizer: Channelizer,
    /// Samples of each stream in a run.
    times: usize,
}

impl Ours {
    /// Creates a filter bank whose runs take as many samples as fit into `capacity`, all streams together.
    fn new(plan: Plan, backend: &Backend, capacity: usize) -> Result<Self> {
        let streams = plan.input().streams();
        // A run may write one row more than the samples it consumes.
        let rows = (capacity / streams / plan.points()).saturating_sub(2 * plan.spectra_per_row());
        let times = rows * plan.points();
        if times < 2 * plan.span() {
            let rule = "streams are to be longer than windows";
            return Err(Error::parameter("--memory", "too small", rule));
        }
        Ok(Self { channelizer: Channelizer::new(plan.clone(), backend)?, plan, times })
    }
}

/// Returns the bytes read and written per sample.
fn bytes_per_sample(plan: &Plan) -> f64 {
    let row = (plan.row_elements() * plan.element_bytes()) as f64;
    let samples = (plan.samples_per_row() * plan.input().streams()) as f64;
    plan.input().encoding.sample_bits() as f64 / 8.0 + row / samples
}

/// Bins of a spectrum that are compared.
const BINS: usize = 12;

/// Returns the output of a plan's form in a buffer.
fn output<'a>(plan: &Plan, buffer: &'a mut [f32]) -> Output<'a> {
    match plan.options().form {
        Form::Spectra | Form::Filtered => Output::Complex(bytemuck::cast_slice_mut(buffer)),
        Form::Detected(_) => Output::F32(buffer),
        Form::Requantized { .. } => Output::Bytes(bytemuck::cast_slice_mut(buffer)),
    }
}

/// Returns the plan with sums over at most two spectra, because the reference is slow.
fn shortened(plan: &Plan) -> Result<Plan> {
    let mut options = plan.options().clone();
    if let Form::Detected(detection) = &mut options.form {
        detection.spectra = detection.spectra.min(2);
    }
    Plan::new(options)
}

/// Compares the first rows of a stream with the reference.
fn is_right(plan: &Plan, backend: &Backend, input: Voltages<'_>) -> Result<bool> {
    let rows = plan.rows(input.times() as u64) as usize;
    if rows == 0 {
        return Err(Error::parameter("--memory", "too small", "no row can be compared"));
    }
    let bytes = rows * plan.row_elements() * plan.element_bytes();
    let run = |backend: &Backend| -> Result<Vec<f32>> {
        let mut found = vec![0.0; bytes.div_ceil(4)];
        Channelizer::new(plan.clone(), backend)?.run(input, output(plan, &mut found))?;
        Ok(found)
    };
    let found = run(backend)?;
    let form = &plan.options().form;
    if matches!(form, Form::Spectra | Form::Filtered) {
        return Ok(spectra_are_right(plan, input, bytemuck::cast_slice(&found), rows));
    }
    let truth = run(&Backend::Reference)?;
    if matches!(form, Form::Detected(_)) {
        // Sums agree within single precision.
        let peak = truth.iter().fold(0f32, |peak, x| peak.max(x.abs()));
        return Ok(found.iter().zip(&truth).all(|(a, b)| (a - b).abs() <= 2e-5 * peak));
    }
    // Integers agree but for rounding.
    let [found, truth]: [&[u8]; 2] = [&found, &truth].map(|floats| bytemuck::cast_slice(floats));
    let differing = found.iter().zip(truth).filter(|(a, b)| a != b).count();
    Ok(differing <= 1 + bytes / 100)
}

fn spectra_are_right(
    plan: &Plan,
    input: Voltages<'_>,
    found: &[Complex<f32>],
    rows: usize,
) -> bool {
    let geometry = *plan.input();
    let is_filtered = plan.options().form == Form::Filtered;
    let summed = if is_filtered { 1.0 } else { plan.points() as f64 };
    let channels = plan.output_channels();
    let mut right = true;
    for row in [0, rows - 1] {
        for antenna in [0, geometry.antennas - 1] {
            for polarization in 0..geometry.polarizations {
                let stream = plan.stream(antenna, plan.coarse_channel(0), polarization);
                let window = window(plan, input, stream, row);
                let peak = window.iter().fold(0f64, |peak, z| peak.max(z.norm()));
                let bound = 6e-7 * ((2 * plan.span()) as f64).log2() * peak * summed;
                let at = row * plan.row_elements() + plan.row_offset(antenna, polarization, 0);
                for bin in 0..BINS {
                    let place = bin * (channels - 1) / (BINS - 1);
                    let error = value(plan, &window, place) - widened(found[at + place]);
                    right &= error.norm() <= bound;
                }
            }
        }
    }
    right
}

fn widened(z: Complex<f32>) -> Complex<f64> {
    Complex::new(f64::from(z.re), f64::from(z.im))
}

/// Computes the windowed sums of one spectrum.
fn window(plan: &Plan, input: Voltages<'_>, stream: usize, row: usize) -> Vec<Complex<f64>> {
    let (points, start) = (plan.points(), row * plan.hop());
    let mut sums = vec![Complex::ZERO; points];
    for (n, b) in plan.coefficients().iter().enumerate() {
        sums[(start + n) % points] += input.value(stream, start + n) * b;
    }
    sums
}

/// Computes one output value from the windowed sums.
fn value(plan: &Plan, sums: &[Complex<f64>], place: usize) -> Complex<f64> {
    if plan.options().form == Form::Filtered {
        return sums[place];
    }
    let (bin, points) = (plan.bin(place), plan.points());
    let phase = |n: usize| Complex::cis(-TAU * (n * bin % points) as f64 / points as f64);
    sums.iter().enumerate().map(|(n, y)| y * phase(n)).sum()
}

/// Measures a case on a GPU; `data` keeps the voltages from case to case.
fn measure_on_gpu(gpu: &Gpu, case: &Case, data: &mut Option<Data>) -> Result<Row> {
    let plan = Plan::new(case.options.clone())?;
    let encoding = plan.input().encoding;
    if data.as_ref().is_none_or(|data: &Data| data.encoding != encoding) {
        *data = Some(Data::new(gpu, encoding)?);
    }
    let Some(data) = data else { return Err(no_data()) };
    if case.whole { host_to_host(gpu, case, &plan, data) } else { kernels(gpu, case, &plan, data) }
}

fn no_data() -> Error {
    Error::Unavailable { what: "random voltages".to_owned(), why: "none were made".to_owned() }
}

/// Random voltages of one encoding, on host and device.
struct Data {
    encoding: VoltageEncoding,
    host: Vec<u8>,
    device: Buffer<u8>,
}

impl Data {
    fn new(gpu: &Gpu, encoding: VoltageEncoding) -> Result<Self> {
        let samples = if gpu.quick { QUICK_SAMPLES } else { SAMPLES };
        let host = match encoding {
            VoltageEncoding::ComplexF32 => random::floats(2 * samples),
            _ => random::bytes(encoding.bytes(samples)),
        };
        let device = gpu.device.upload(&host)?;
        Ok(Self { encoding, host, device })
    }

    /// Returns the samples in a call, a whole number of rows.
    fn times(&self, plan: &Plan) -> Result<usize> {
        let samples = self.host.len() * 8 / self.encoding.sample_bits();
        let times = samples / plan.samples_per_row() * plan.samples_per_row();
        if times > plan.span() { Ok(times) } else { Err(no_data()) }
    }
}

/// Times the kernels, with all data in device memory.
fn kernels(gpu: &Gpu, case: &Case, plan: &Plan, data: &Data) -> Result<Row> {
    let times = data.times(plan)?;
    let mut channelizer = Channelizer::new(plan.clone(), &gpu.backend)?;
    let row_bytes = plan.row_elements() * plan.element_bytes();
    let mut output = gpu.device.buffer::<u8>(plan.max_rows(times) * row_bytes)?;
    let stream = gpu.device.stream()?;
    let layout = DeviceVoltages { first_byte: 0, stride: data.host.len(), times };
    let mut step = |output: &mut Buffer<u8>, stream: &Stream| {
        channelizer.enqueue(&data.device, layout, output, stream)
    };
    let rows = step(&mut output, &stream)?.produced;
    let checked =
        rows as u64 == plan.rows(times as u64) && are_right(plan, &data.host, &output, rows)?;
    let mut once = |stream: &Stream| step(&mut output, stream).map(|_| ());
    let seconds = measure::seconds(&stream, &mut once)?;
    let sustained_s = gpu.sustained(&stream, seconds[0], &mut once)?;
    let roof = gpu.copy * 1e-9 / bytes_per_sample(plan);
    let peer = peers::channelize(data.encoding, plan.channels(), plan.taps());
    let work = times as f64 * 1e-9;
    let rates = Rates::of_seconds(work, &seconds, roof, peer).lasting(work, sustained_s);
    Ok(rates.row(BENCH, &case.name, &gpu.backend, "Gsample/s", checked))
}

/// Runs that are timed.
const WHOLE_RUNS: usize = 7;

/// Number of times the voltages are repeated, end to end.
const WHOLE_COPIES: usize = 4;

/// Bytes of the copies that measure the bus.
const BUS_BYTES: usize = 256 << 20;

/// Times the filter bank from host memory to host memory.
fn host_to_host(gpu: &Gpu, case: &Case, plan: &Plan, data: &Data) -> Result<Row> {
    // Longer than the kernels need: start and end would dominate a short run.
    let copies = if gpu.quick { 1 } else { WHOLE_COPIES };
    let host = data.host.repeat(copies);
    let times = copies * data.times(plan)?;
    let mut channelizer = Channelizer::new(plan.clone(), &gpu.backend)?;
    let mut output = vec![0f32; plan.max_rows(times) * plan.row_elements()];
    let input = Voltages::new(&host, data.encoding, 1, host.len(), times)?;
    let rows = channelizer.run(input, Output::F32(&mut output))?.produced;
    let elements = plan.row_elements();
    let mut checked = rows as u64 == plan.rows(times as u64);
    for row in [0, rows / 2, rows.saturating_sub(1)] {
        let found = bytemuck::cast_slice(&output[row * elements..][..elements]);
        checked &= is_row(plan, &host, row, found)?;
    }
    let mut seconds = Vec::new();
    for _ in 0..WHOLE_RUNS {
        let began = Instant::now();
        channelizer.run(input, Output::F32(&mut output))?;
        seconds.push(began.elapsed().as_secs_f64());
    }
    seconds.sort_by(f64::total_cmp);
    let bus = measure::transfers(&gpu.device, if gpu.quick { 1 << 16 } else { BUS_BYTES })?;
    let inward = plan.input().encoding.sample_bits() as f64 / 8.0;
    let outward = bytes_per_sample(plan) - inward;
    // Both directions run at once, so the slower one is the roof.
    let roof = (bus.to_device / inward).min(bus.both / outward);
    let rates = Rates::of_seconds(times as f64 * 1e-9, &seconds, roof * 1e-9, 0.0);
    let row = rates.row(BENCH, &case.name, &gpu.backend, "Gsample/s", checked);
    Ok(row.beside("Gsample/s over the bus"))
}

/// Rows that are compared.
const ROWS: usize = 12;

/// Compares some rows of one stream's output: the first, the last and others.
fn are_right(plan: &Plan, host: &[u8], output: &Buffer<u8>, rows: usize) -> Result<bool> {
    let row_bytes = plan.row_elements() * plan.element_bytes();
    let mut found = vec![0; row_bytes];
    let mut random = Random::new();
    for index in 0..ROWS.min(rows) {
        let row = match index {
            0 => 0,
            1 => rows - 1,
            _ => random.below(rows),
        };
        output.download(row * row_bytes, &mut found)?;
        if !is_row(plan, host, row, &found)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns whether `found` is row `row`.
fn is_row(plan: &Plan, host: &[u8], row: usize, found: &[u8]) -> Result<bool> {
    let encoding = plan.input().encoding;
    let times = plan.span() + (plan.spectra_per_row() - 1) * plan.hop();
    let first = encoding.bytes(row * plan.samples_per_row());
    let input = Voltages::one(&host[first..first + encoding.bytes(times)], encoding)?;
    let peak = (0..times).map(|n| input.value(0, n).norm()).fold(0.0, f64::max);
    let sum: f64 = plan.coefficients().iter().map(|b| b.abs()).sum();
    let steps = plan.taps() as f64 + 8.0 * ((2 * plan.points()) as f64).log2();
    // Both sides may differ from the exact values by this.
    let bound = 2.0 * steps * peak * sum / f64::from(1 << 24);
    let mut channelizer = Channelizer::new(plan.clone(), &Backend::best(1))?;
    if let Form::Detected(_) = plan.options().form {
        let mut truth = vec![0f32; plan.row_elements()];
        channelizer.run(input, Output::F32(&mut truth))?;
        let spectra = plan.spectra_per_row() as f64;
        let near = |found: f32, truth: f32| {
            let power = f64::from(truth);
            let allowed = 2.0 * bound * (spectra * power).sqrt() + spectra * bound * bound;
            f64::from((found - truth).abs()) <= allowed + 1e-6 * power
        };
        return Ok(floats(found).zip(truth).all(|(found, truth)| near(found, truth)));
    }
    let mut truth = vec![Complex::<f32>::ZERO; plan.row_elements()];
    channelizer.run(input, Output::Complex(&mut truth))?;
    let truth = truth.iter().flat_map(|z| [z.re, z.im]);
    Ok(floats(found).zip(truth).all(|(found, truth)| f64::from((found - truth).abs()) <= bound))
}

fn floats(bytes: &[u8]) -> impl Iterator<Item = f32> + '_ {
    bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]))
}
