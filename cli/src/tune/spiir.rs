//! Tuning of the SPIIR filter bank's kernels.

use std::path::PathBuf;
use std::rc::Rc;

use clap::Args;
use num_complex::Complex;
use sidereal::backend::cuda::tune::{Tuned, Work, digest};
use sidereal::backend::cuda::{Buffer, Stream};
use sidereal::pipeline::cbc::read_bank;
use sidereal::spiir::{DeviceOutput, DeviceSamples, MAX_HALVINGS, Plan, Spiir};
use sidereal::{Error, Result};
use sidereal_bench::spiir_bank;

use super::Bench;
use crate::common::Common;

/// Tune a filter bank from a file or from the generator of `bench spiir`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    sidereal tune spiir bank.h5\n  \
    sidereal tune spiir --templates 1024 --filters 512 --rates 4\n  \
    sidereal tune spiir --filters 386 --rates 4 --chirps")]
pub(super) struct Arguments {
    /// Bank written by `sidereal spiir bank`; alternatively, use the options below.
    #[arg(value_name = "BANK")]
    bank: Option<PathBuf>,
    /// Number of templates.
    #[arg(long, default_value_t = 4096, conflicts_with = "bank")]
    templates: usize,
    /// Number of filters per template, over all rates.
    #[arg(long, default_value_t = 64, conflicts_with = "bank")]
    filters: usize,
    /// Number of sampling rates that share the filters; each is half of the previous one.
    #[arg(long, default_value_t = 1, conflicts_with = "bank")]
    rates: usize,
    /// Give the filters the delays of a chirp.
    ///
    /// Each filter runs at the lowest rate that represents its frequency (with few filters, some rates stay empty).
    /// Without this option delays are below two seconds, and the rates share the filters equally.
    #[arg(long, conflicts_with = "bank")]
    chirps: bool,
}

/// Most filters of all templates.
const MOST_FILTERS: usize = 1 << 26;

impl Arguments {
    pub(super) fn tune(&self, bench: &Bench, common: &Common) -> Result<Vec<Tuned>> {
        let plan = self.plan()?;
        let times = times(&plan, bench)?;
        let input = Rc::new(bench.device.upload(&spiir_bank::noise(times))?);
        let mut build = || -> Result<Box<dyn Work>> {
            Ok(Box::new(Filtering::new(&plan, bench, Rc::clone(&input))?))
        };
        bench.tune(common, &mut build)
    }

    fn plan(&self) -> Result<Plan> {
        if let Some(file) = &self.bank {
            return read_bank(file)?.0.plan();
        }
        let (templates, filters, rates) = (self.templates, self.filters, self.rates);
        let most = MAX_HALVINGS as usize + 1;
        if !(1..=most).contains(&rates) {
            return Err(Error::parameter("--rates", rates, format!("it must be 1 to {most}")));
        }
        if filters < rates || filters > MOST_FILTERS {
            let rule = "it must be at least one a rate, and at most 2^26";
            return Err(Error::parameter("--filters", filters, rule));
        }
        if !(1..=MOST_FILTERS / filters).contains(&templates) {
            let rule = "it must be at least 1, with at most 2^26 filters in all";
            return Err(Error::parameter("--templates", templates, rule));
        }
        let most = spiir_bank::most_of_chirp();
        if self.chirps && filters > most {
            let rule =
                format!("a chirp of more than {most} is longer than what a filter can remember");
            return Err(Error::parameter("--filters", filters, rule));
        }
        let of = if self.chirps { spiir_bank::chirps } else { spiir_bank::near };
        of(templates, filters, rates as u32)
    }
}

/// Returns the samples of a run: one second, or as many as the memory holds ratios for.
fn times(plan: &Plan, bench: &Bench) -> Result<usize> {
    let free = bench.device.free_bytes()?;
    let sample = plan.templates() * size_of::<Complex<f32>>();
    let times = (bench.input_bytes.min(free / 4) / sample).min(plan.options().rate_hz as usize);
    if times == 0 {
        return Err(Error::Unavailable {
            what: "memory for the ratios of one sample".to_owned(),
            why: format!(
                "they need {sample} bytes, --memory gives {}, and {free} are free on the device",
                bench.input_bytes
            ),
        });
    }
    Ok(times)
}

/// Filter bank whose stream continues from run to run.
struct Filtering {
    spiir: Spiir,
    input: Rc<Buffer<f32>>,
    output: Buffer<Complex<f32>>,
}

impl Filtering {
    fn new(plan: &Plan, bench: &Bench, input: Rc<Buffer<f32>>) -> Result<Self> {
        let times = input.len();
        let spiir = Spiir::new(plan.clone(), &bench.backend)?;
        let output = bench.device.buffer(plan.templates() * times)?;
        let mut work = Self { spiir, input, output };
        let stream = bench.device.stream()?;
        // All filters have input and every sample has its ratio only after the longest delay.
        let reach = |level: usize| plan.history(level) << level;
        let longest = (0..plan.levels()).map(reach).max().unwrap_or(0).max(plan.latency());
        for _ in 0..longest.div_ceil(times) {
            work.enqueue(&stream)?;
        }
        stream.synchronize()?;
        Ok(work)
    }
}

impl Work for Filtering {
    fn enqueue(&mut self, stream: &Stream) -> Result<()> {
        let times = self.input.len();
        let input = DeviceSamples { buffer: &self.input, first: 0, times };
        let output = DeviceOutput { buffer: &mut self.output, first: 0, stride: times };
        self.spiir.enqueue(input, output, stream).map(|_| ())
    }

    fn digest(&mut self) -> Result<u128> {
        digest(&self.output)
    }
}
