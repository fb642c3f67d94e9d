//! `bench channelize` on a GPU: samples per second through the filter bank, data in device memory.

mod check;
mod whole;

use sidereal::backend::cuda::{Buffer, Stream, measure};
use sidereal::channelize::{
    Channelizer, Detection, DeviceVoltages, Feed, Form, Options, Plan, Products,
};
use sidereal::voltage::VoltageEncoding;
use sidereal::{Error, Result};

use super::{Figure, Gpu, random, table};
use crate::bench::channelize::Arguments;
use crate::common::Common;

/// Samples in a call: input and output are several times any cache.
const SAMPLES: usize = 1 << 27;

/// Samples in a call of a quick run.
const QUICK_SAMPLES: usize = 1 << 14;

const ENCODINGS: [VoltageEncoding; 3] =
    [VoltageEncoding::Complex8, VoltageEncoding::Complex16, VoltageEncoding::ComplexF32];

const ABOUT: &str = "\
10^9 complex samples a second: kernels alone, data on the device, the best and the median of 20 batches.
Roof: copying as many bytes as go in and come out, once, in the device's memory (of whole calls: the bus).
Baseline: AstroAccelerate's filter bank on an H200 (driver 580, CUDA 13.0), the best peer; 0 where it was not
measured. Outputs are compared with the processor's first.";

/// Filter bank and its measurement settings.
#[derive(Clone, Debug)]
struct Case {
    name: String,
    options: Options,
    /// Whether the case includes the copies from and to host memory.
    whole: bool,
}

impl Case {
    fn new(channels: usize, taps: usize, encoding: VoltageEncoding) -> Self {
        let bits = match encoding {
            VoltageEncoding::ComplexF32 => "f32".to_owned(),
            _ => format!("{} bit", encoding.bits()),
        };
        let name = format!("{channels} channels, {taps} taps, {bits}");
        Self { name, options: Options::new(channels, taps, encoding), whole: false }
    }

    /// Returns the case with detected powers, summed over `spectra` spectra.
    fn detected(self, spectra: usize) -> Self {
        let (products, feed) = (Products::I, Feed::Linear);
        let detection = Detection { products, feed, spectra, channels: 1, interpolate_dc: false };
        let options = Options { form: Form::Detected(detection), ..self.options };
        Self { name: format!("{}, powers of {spectra}", self.name), options, ..self }
    }
}

fn cases(quick: bool) -> Vec<Case> {
    let eight = VoltageEncoding::Complex8;
    if quick {
        let whole = Case { whole: true, ..Case::new(64, 4, eight).detected(16) };
        let mut cases: Vec<Case> = ENCODINGS.map(|encoding| Case::new(256, 4, encoding)).into();
        cases.extend([Case::new(64, 8, eight).detected(16), whole]);
        return cases;
    }
    let mut cases = Vec::new();
    for encoding in ENCODINGS {
        cases.extend([4, 8, 16, 32, 64].map(|taps| Case::new(1024, taps, encoding)));
    }
    for encoding in ENCODINGS {
        let channels = (8..=16).map(|bits| 1 << bits).filter(|channels| *channels != 1024);
        cases.extend(channels.map(|channels| Case::new(channels, 8, encoding)));
    }
    cases.extend([4, 8, 16, 32, 64].map(|taps| Case::new(1024, taps, eight).detected(16)));
    cases.extend([1536, 3000].map(|channels| Case::new(channels, 8, eight)));
    let whole = Case::new(1024, 8, eight).detected(16);
    let name = "1024 channels, 8 taps, 8 bit, host to host".to_owned();
    cases.push(Case { whole: true, name, ..whole });
    cases
}

/// Runs the benchmark.
pub(crate) fn run(gpu: &Gpu, arguments: &Arguments, common: &Common) -> Result<()> {
    let mut cases = cases(gpu.quick);
    if let Some(part) = &arguments.only {
        cases.retain(|case| case.name.contains(part));
        if cases.is_empty() {
            return Err(Error::parameter("--only", part, "no case's name contains it"));
        }
    }
    let table = table(gpu, common, arguments.csv.as_deref(), ("channelize", ABOUT))?;
    let mut data = None;
    gpu.measure(
        table,
        &cases,
        |case| case.name.clone(),
        |case| {
            let plan = Plan::new(case.options.clone())?;
            let encoding = plan.input().encoding;
            if data.as_ref().is_none_or(|data: &Data| data.encoding != encoding) {
                data = Some(Data::new(gpu, encoding)?);
            }
            let Some(data) = &data else { return Err(no_data()) };
            if case.whole {
                whole::measure(gpu, case, &plan, data)
            } else {
                kernels(gpu, case, &plan, data)
            }
        },
    )
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

/// Returns the bytes read and written per sample.
fn bytes_per_sample(plan: &Plan) -> f64 {
    let row = (plan.row_elements() * plan.element_bytes()) as f64;
    plan.input().encoding.sample_bits() as f64 / 8.0 + row / plan.samples_per_row() as f64
}

fn kernels(gpu: &Gpu, case: &Case, plan: &Plan, data: &Data) -> Result<Figure> {
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
        rows as u64 == plan.rows(times as u64) && check::is_right(plan, &data.host, &output, rows)?;
    let seconds = measure::seconds(&stream, &mut |stream| step(&mut output, stream).map(|_| ()))?;
    Ok(Figure {
        case: case.name.clone(),
        work: times as f64 * 1e-9,
        unit: "Gsample/s",
        seconds,
        roof: gpu.copy * 1e-9 / bytes_per_sample(plan),
        roof_unit: "Gsample/s",
        peer: super::peers::channelize(data.encoding, plan.channels(), plan.taps()),
        checked,
    })
}
