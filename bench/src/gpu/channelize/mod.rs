//! `bench channelize` on a GPU: samples per second through the filter bank, data in device memory.

mod case;
mod check;
mod whole;

use sidereal::backend::cuda::{Buffer, Stream, measure};
use sidereal::channelize::{Channelizer, DeviceVoltages, Plan};
use sidereal::voltage::VoltageEncoding;
use sidereal::{Error, Result};

use super::{Figure, Gpu, table};
use crate::channelize::Arguments;
use crate::session::Session;
pub(crate) use case::{Case, Data, bytes_per_sample, no_data};

const ENCODINGS: [VoltageEncoding; 3] =
    [VoltageEncoding::Complex8, VoltageEncoding::Complex16, VoltageEncoding::ComplexF32];

const ABOUT: &str = "\
10^9 complex samples a second: kernels alone, data on the device, the best and the median of 20 batches.
Roof: copying as many bytes as go in and come out, once, in the device's memory (of whole calls: the bus).
Baseline: AstroAccelerate's filter bank on an H200 (driver 580, CUDA 13.0), the best peer; 0 where it was not
measured. Outputs are compared with the processor's first.";

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
pub(crate) fn run(gpu: &Gpu, arguments: &Arguments, session: &Session<'_>) -> Result<()> {
    let mut cases = cases(gpu.quick);
    if let Some(part) = &arguments.only {
        cases.retain(|case| case.name.contains(part));
        if cases.is_empty() {
            return Err(Error::parameter("--only", part, "no case's name contains it"));
        }
    }
    let table = table(gpu, session, arguments.csv.as_deref(), ("channelize", ABOUT))?;
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
