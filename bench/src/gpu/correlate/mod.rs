//! `bench correlate` on a GPU: operations per second of the X-engine, spectra and sums in device memory.

mod card;
mod cases;
mod check;

use std::io::Write as _;

use sidereal::backend::cuda::peak::{self, Products};
use sidereal::backend::cuda::{Buffer, Stream, measure};
use sidereal::correlate::{Correlator, DeviceSpectra, Plan, Precision};
use sidereal::voltage::VoltageEncoding;
use sidereal::{Error, Result};

use super::{Figure, Gpu, peers, random, table};
use crate::correlate::Arguments;
use crate::session::Session;
use card::{Card, Reader};
use cases::{Case, What};

const ABOUT: &str = "\
10^12 operations a second of antennas with two polarizations (n inputs): 8 for a complex multiply-add, n (n + 1) / 2
sums over 1024 samples of as many channels as make 65536 antennas in all; kernels alone, spectra and sums on the
device, sums of 32 bits written anew for each integration; the best and the median of 20 batches of 1 ms.
Sustained: back to back for two seconds, the rate of the second one, and, where nvidia-smi tells them, the card's power
(W, of what it may draw) and clock (MHz, of its highest). Bandwidth: MHz of each polarization that the device keeps up with. Roof: multiply-adds
of the same kind that do nothing else, or the spectra and sums once through the device's memory. Baseline: the best
peer of the same input on an H200 (driver 580, CUDA 13.0); 0 where none was measured. Sums are compared with plain ones.";

/// Seconds of back-to-back work, of which the second half counts.
const SUSTAINED_S: f64 = 2.0;

/// The same for a quick run.
const QUICK_S: f64 = 1e-3;

/// Alignment of rows in bytes.
const ALIGNED: usize = 16;

/// Runs the benchmark.
///
/// # Errors
/// Those of the device, and of a table with a wrong case.
pub(crate) fn run(gpu: &Gpu, arguments: &Arguments, session: &Session<'_>) -> Result<()> {
    let mut cases = cases::cases(arguments.tables(), gpu.quick);
    if let Some(part) = &arguments.only {
        cases.retain(|case| case.name.contains(part));
    }
    if cases.is_empty() {
        let rule = "no case's name contains it, or a GPU has no such table";
        return Err(Error::parameter("--only", arguments.only.as_deref().unwrap_or(""), rule));
    }
    let roofs = Roofs::new(gpu)?;
    let table = table(gpu, session, arguments.csv.as_deref(), ("correlate", ABOUT))?;
    let (mut data, mut rates) = (None, Vec::new());
    // Power and clock of a quick run mean nothing, and it should not depend on another program.
    let mut reader = (!gpu.quick).then(|| Reader::of(&gpu.device)).transpose()?;
    let measured = gpu.measure_all(
        table,
        &cases,
        |case| case.name.clone(),
        |case| {
            let encoding = case.options.encoding;
            if data.as_ref().is_none_or(|data: &Data| data.encoding != encoding) {
                // Frees the previous data first.
                data = None;
                data = Some(Data::new(gpu, encoding)?);
            }
            let Some(data) = &mut data else { return Err(no_data()) };
            let figures = measure(gpu, case, &roofs, (data, &mut reader))?;
            rates.push((case.clone(), figures[0].work / figures[0].seconds[0]));
            Ok(figures)
        },
    );
    if !session.json && !session.quiet {
        let text = beside_peers(&rates);
        let written = writeln!(std::io::stdout(), "{text}");
        written.map_err(|source| Error::io("standard output", source))?;
    }
    measured
}

fn no_data() -> Error {
    Error::Unavailable { what: "random spectra".to_owned(), why: "none were made".to_owned() }
}

/// Arithmetic peak rates of the device, in operations per second.
struct Roofs {
    integers: f64,
    floats: f64,
    tf32: f64,
    halves: f64,
}

impl Roofs {
    fn new(gpu: &Gpu) -> Result<Self> {
        let rounds = if gpu.quick { 1 } else { peak::ROUNDS };
        let floats = peak::floats(&gpu.device, rounds)?;
        let products = |of| peak::products(&gpu.device, of, rounds);
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
            (VoltageEncoding::ComplexF32, Precision::F32) => self.floats,
            // Numbers split into two parts take three products.
            (VoltageEncoding::ComplexF32, Precision::Split) => self.tf32 / 3.0,
            (VoltageEncoding::ComplexF32, Precision::Tf32) => self.tf32,
            (VoltageEncoding::ComplexF32, Precision::F16) => self.halves,
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
fn operations(plan: &Plan, times: usize) -> f64 {
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
        let samples = cases::samples(gpu.quick);
        let host = match encoding {
            VoltageEncoding::ComplexF32 => random::floats(2 * samples),
            _ => random::bytes(encoding.bytes(samples)),
        };
        let device = gpu.device.upload(&host)?;
        Ok(Self { encoding, host, device })
    }
}

/// Returns the layout of a case's spectra: rows begin at multiples of 16 bytes.
fn layout(plan: &Plan, times: usize) -> DeviceSpectra {
    let input_stride = plan.encoding().bytes(times).next_multiple_of(ALIGNED);
    let channel_stride = plan.inputs() * input_stride;
    DeviceSpectra { first_byte: 0, channel_stride, input_stride, times }
}

/// Measures a case's figures, the rate first.
fn measure(
    gpu: &Gpu,
    case: &Case,
    roofs: &Roofs,
    (data, reader): (&mut Data, &mut Option<Reader>),
) -> Result<Vec<Figure>> {
    let plan = Plan::new(case.options.clone())?.with_precision(case.precision);
    let layout = layout(&plan, case.times);
    let mut correlator = Correlator::new(plan.clone(), &gpu.backend)?;
    let stream = gpu.device.stream()?;
    correlator.enqueue(&mut data.device, layout, None, &stream)?;
    stream.synchronize()?;
    let checked = check::is_right(&mut correlator, &data.host, layout)?;
    let mut step = |stream: &Stream| {
        correlator.reset();
        correlator.enqueue(&mut data.device, layout, None, stream)
    };
    let mut seconds = measure::seconds(&stream, &mut step)?;
    let mut card = None;
    if case.what == What::Sustained {
        let long = if gpu.quick { QUICK_S } else { SUSTAINED_S };
        let calls = (long / seconds[0]).ceil().max(2.0) as usize;
        let mut work =
            |is_awaited: &dyn Fn() -> bool| sustained(gpu, &stream, (calls, is_awaited), &mut step);
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
    let figure = Figure {
        case: case.name.clone(),
        work,
        unit,
        seconds,
        roof: roofs.of(gpu, &plan, &layout) * work / all,
        roof_unit: unit,
        peer,
        checked,
    };
    let readings = card.into_iter().flat_map(|card| power_and_clock(case, card));
    Ok(std::iter::once(figure).chain(readings).collect())
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
    (calls, is_awaited): (usize, &dyn Fn() -> bool),
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

/// Returns the figures of the card's reading during the work.
fn power_and_clock(case: &Case, card: Card) -> [Figure; 2] {
    let figure = |what: &str, (value, most), unit| Figure {
        case: format!("{}, {what}", case.name),
        work: value,
        unit,
        seconds: vec![1.0],
        roof: most,
        roof_unit: unit,
        peer: 0.0,
        checked: true,
    };
    [
        figure("power", (card.power_w, card.most_w), "W"),
        figure("clock", (card.clock_mhz, card.most_mhz), "MHz"),
    ]
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
                let wanted = peers::CORRELATE_PRODUCT;
                same == (antennas, wanted, VoltageEncoding::Complex8, cases::TIMES)
                    && case.what == what
            });
            ours.map_or(0.0, |(_, rate)| *rate)
        })
    };
    let mut lines = vec![
        "\n10^12 operations a second, 8 bit and f32, 65536 antennas x channels, 1024 samples, on an H200".to_owned(),
        line("antennas", sizes.map(|antennas| antennas as f64)),
        line("ours, 8 bit, bursts", ours(What::Bursts)),
        line("ours, 8 bit, sustained", ours(What::Sustained)),
    ];
    lines.extend(peers::CORRELATE.iter().map(|(name, _, rates)| line(name, *rates)));
    lines.join("\n")
}
