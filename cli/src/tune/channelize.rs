//! Tuning of a filter bank's kernels.

use std::rc::Rc;

use clap::Args;
use sidereal::backend::cuda::tune::{Tuned, Work, digest};
use sidereal::backend::cuda::{Buffer, Stream};
use sidereal::channelize::{
    Channelizer, Detection, DeviceVoltages, Feed, Form, Input, Options, Plan, Products,
};
use sidereal::voltage::VoltageEncoding;
use sidereal::{Error, Result};

use super::Bench;
use crate::common::Common;

/// Tune the filter bank for a number of channels, taps and form.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    sidereal tune channelize --channels 1024 --taps 8\n  \
    sidereal tune channelize --channels 4096 --taps 4 --nbits 16 --polarizations 2 --integrate 16")]
pub(super) struct Arguments {
    /// Channels per recorded channel.
    #[arg(long, default_value_t = 1024)]
    channels: usize,
    /// Number of taps.
    #[arg(long, default_value_t = 8)]
    taps: usize,
    /// Bits per value: 4, 8, 16, or 32 (floats).
    #[arg(long, value_name = "BITS", default_value_t = 8)]
    nbits: usize,
    /// Use real samples instead of complex ones.
    #[arg(long)]
    real: bool,
    /// Number of polarizations per antenna.
    #[arg(long, default_value_t = 1)]
    polarizations: usize,
    /// Number of antennas.
    #[arg(long, default_value_t = 1)]
    antennas: usize,
    /// Detect, and sum this many spectra; without it the output is complex spectra.
    #[arg(long, value_name = "SPECTRA")]
    integrate: Option<usize>,
}

impl Arguments {
    pub(super) fn tune(&self, bench: &Bench, common: &Common) -> Result<Vec<Tuned>> {
        let plan = Plan::new(self.options()?)?;
        let layout = layout(&plan, bench)?;
        let bytes = layout.stride * plan.input().streams();
        let input =
            Rc::new(if self.nbits == 32 { bench.floats(bytes)? } else { bench.noise(bytes)? });
        let mut build = || -> Result<Box<dyn Work>> {
            Ok(Box::new(Channelization::new(&plan, bench, layout, Rc::clone(&input))?))
        };
        bench.tune(common, &mut build)
    }

    fn options(&self) -> Result<Options> {
        let encoding = match (self.nbits, self.real) {
            (4, false) => VoltageEncoding::Complex4,
            (8, false) => VoltageEncoding::Complex8,
            (16, false) => VoltageEncoding::Complex16,
            (32, false) => VoltageEncoding::ComplexF32,
            (4, true) => VoltageEncoding::Real4,
            (8, true) => VoltageEncoding::Real8,
            (16, true) => VoltageEncoding::Real16,
            (32, true) => VoltageEncoding::RealF32,
            _ => return Err(Error::parameter("--nbits", self.nbits, "it must be 4, 8, 16 or 32")),
        };
        let detected = |spectra| {
            Form::Detected(Detection {
                products: Products::I,
                feed: Feed::Linear,
                spectra,
                channels: 1,
                interpolate_dc: false,
            })
        };
        let (antennas, polarizations) = (self.antennas, self.polarizations);
        Ok(Options {
            input: Input { antennas, polarizations, ..Input::one(encoding) },
            form: self.integrate.map_or(Form::Spectra, detected),
            ..Options::new(self.channels, self.taps, encoding)
        })
    }
}

/// Returns a layout with one stream after another, as long as memory allows.
fn layout(plan: &Plan, bench: &Bench) -> Result<DeviceVoltages> {
    let free = bench.device.free_bytes()?;
    let input = plan.input();
    let row_bytes = (plan.samples_per_row() * input.encoding.sample_bits()).div_ceil(8);
    let output_bytes = plan.row_elements() * plan.element_bytes();
    let rows = (bench.input_bytes.min(free / 8) / (row_bytes * input.streams()))
        .min(free / 4 / output_bytes);
    let alignment = 128;
    let stride = rows * row_bytes / alignment * alignment;
    let times = stride * 8 / input.encoding.sample_bits();
    if plan.max_rows(times) == 0 {
        return Err(Error::Unavailable {
            what: "memory for a block of this plan".to_owned(),
            why: format!("{} MiB are free on the device", free >> 20),
        });
    }
    Ok(DeviceVoltages { first_byte: 0, stride, times })
}

/// Filter bank whose stream continues from run to run.
struct Channelization {
    channelizer: Channelizer,
    input: Rc<Buffer<u8>>,
    output: Buffer<u8>,
    layout: DeviceVoltages,
}

impl Channelization {
    fn new(
        plan: &Plan,
        bench: &Bench,
        layout: DeviceVoltages,
        input: Rc<Buffer<u8>>,
    ) -> Result<Self> {
        let bytes = plan.max_rows(layout.times) * plan.row_elements() * plan.element_bytes();
        let mut output = bench.device.buffer(bytes)?;
        let stream = bench.device.stream()?;
        stream.fill(&mut output, 0..bytes, 0)?;
        stream.synchronize()?;
        let channelizer = Channelizer::new(plan.clone(), &bench.backend)?;
        Ok(Self { channelizer, input, output, layout })
    }
}

impl Work for Channelization {
    fn enqueue(&mut self, stream: &Stream) -> Result<()> {
        let (input, output) = (&*self.input, &mut self.output);
        self.channelizer.enqueue(input, self.layout, output, stream).map(|_| ())
    }

    fn digest(&mut self) -> Result<u128> {
        digest(&self.output)
    }
}
