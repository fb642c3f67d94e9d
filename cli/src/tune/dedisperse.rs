//! Tuning of dedispersion kernels.

use std::path::PathBuf;
use std::rc::Rc;

use clap::Args;
use sidereal::backend::cuda::tune::{Tuned, Work, digest};
use sidereal::backend::cuda::{Buffer, Plane, PlaneKind, Stream};
use sidereal::dedisperse::{Dedisperser, Options, Plan};
use sidereal::io::{self, OpenOptions};
use sidereal::sample::Encoding;
use sidereal::{Error, Result};

use super::Bench;
use crate::band::{BandArguments, Setup};
use crate::common::Common;
use crate::dm_arguments::DmArguments;

/// Tune dedispersion for the band and trials of a recording or of options.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    sidereal tune dedisperse observation.fil --dm-max 500\n  \
    sidereal tune dedisperse --fch1 1550 --foff -0.29297 --channels 1024 --tsamp 64e-6 --ranges 0:150:0.1")]
pub(super) struct Arguments {
    /// Recording that gives band, sampling time and bits; alternatively, use the options below.
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// Bits per sample: 1, 2, 4, 8, 16, or 32 (floats).
    #[arg(
        long,
        value_name = "BITS",
        default_value_t = 8,
        conflicts_with = "file",
        help_heading = "Band"
    )]
    nbits: usize,
    #[command(flatten)]
    band: BandArguments,
    #[command(flatten)]
    dms: DmArguments,
}

impl Arguments {
    pub(super) fn tune(&self, bench: &Bench, common: &Common) -> Result<Vec<Tuned>> {
        let mut all = Vec::new();
        for plan in self.plans()? {
            let sizes = Sizes::new(&plan, bench)?;
            let bytes = sizes.times * sizes.row_bytes;
            let is_float = plan.encoding() == Encoding::F32;
            let input =
                Rc::new(if is_float { bench.floats(bytes)? } else { bench.noise(bytes)? });
            let mut build = || -> Result<Box<dyn Work>> {
                Ok(Box::new(Dedispersion::new(&plan, bench, &sizes, Rc::clone(&input))?))
            };
            all.extend(bench.tune(common, &mut build)?);
        }
        Ok(all)
    }

    /// Returns the plans: trials of equal downsampling are summed together, as in a search.
    fn plans(&self) -> Result<Vec<Plan>> {
        let (setup, encoding) = self.setup()?;
        let limits = setup.telescope.map(|telescope| (telescope.dm_min, telescope.dm_max));
        let ranges = self.dms.plan(&setup.band, setup.tsamp_s, limits, None)?.ranges;
        let mut downsamples: Vec<usize> = ranges.iter().map(|range| range.downsample).collect();
        downsamples.dedup();
        let plan = |downsample: &usize| {
            let ranges = ranges.iter().filter(|range| range.downsample == *downsample);
            Plan::new(Options {
                band: setup.band.clone(),
                tsamp_s: setup.tsamp_s,
                dms: ranges.flat_map(|range| range.dms()).collect(),
                downsample: *downsample,
                encoding,
                range: None,
                masked: Vec::new(),
                dm_constant: self.dms.dm_constant,
            })
        };
        downsamples.iter().map(plan).collect()
    }

    fn setup(&self) -> Result<(Setup, Encoding)> {
        let Some(file) = &self.file else { return Ok((self.band.setup()?, encoding(self.nbits)?)) };
        if self.band.given() {
            let rule = "a recording has its own band; leave out either it or the band's options";
            return Err(Error::parameter("FILE", file.display(), rule));
        }
        let source = io::open(std::slice::from_ref(file), &OpenOptions::default())?;
        let header = source.header();
        let setup = Setup { band: header.band.clone(), tsamp_s: header.tsamp_s, telescope: None };
        Ok((setup, header.encoding))
    }
}

fn encoding(bits: usize) -> Result<Encoding> {
    Ok(match bits {
        1 => Encoding::U1,
        2 => Encoding::U2,
        4 => Encoding::U4,
        8 => Encoding::U8,
        16 => Encoding::U16,
        32 => Encoding::F32,
        _ => return Err(Error::parameter("--nbits", bits, "it must be 1, 2, 4, 8, 16 or 32")),
    })
}

/// Sizes of one run's input and output.
struct Sizes {
    times: usize,
    row_bytes: usize,
    /// Words in a row of the plane.
    stride: usize,
}

impl Sizes {
    fn new(plan: &Plan, bench: &Bench) -> Result<Self> {
        let free = bench.device.free_bytes()?;
        let row_bytes = (plan.channels() * plan.encoding().bits()).div_ceil(8).max(1);
        let step = 8 * plan.downsample();
        // One block of 32-bit output per trial, and the input.
        let output = free / 4 / (4 * plan.dms().len()) * plan.downsample();
        let times = output.min(bench.input_bytes.min(free / 8) / row_bytes) / step * step;
        if times == 0 {
            return Err(Error::Unavailable {
                what: "memory for a block of this plan".to_owned(),
                why: format!("{} MiB are free on the device", free >> 20),
            });
        }
        Ok(Self { times, row_bytes, stride: plan.max_output(times) })
    }
}

/// Dedispersion whose stream continues from run to run.
struct Dedispersion {
    dedisperser: Dedisperser,
    input: Rc<Buffer<u8>>,
    plane: Plane,
    times: usize,
}

impl Dedispersion {
    fn new(plan: &Plan, bench: &Bench, sizes: &Sizes, input: Rc<Buffer<u8>>) -> Result<Self> {
        let dedisperser = Dedisperser::new(plan.clone(), &bench.backend)?;
        let kind = if plan.output_is_integer() { PlaneKind::I32 } else { PlaneKind::F32 };
        let plane = Plane::new(&bench.device, kind, plan.dms().len(), sizes.stride)?;
        let mut work = Self { dedisperser, input, plane, times: sizes.times };
        let stream = bench.device.stream()?;
        let words = work.plane.words.len();
        stream.fill(&mut work.plane.words, 0..words, 0)?;
        // A run is complete only after the longest delay is filled.
        let rows = plan.max_shift().saturating_add(1) * plan.downsample();
        for _ in 0..rows.div_ceil(sizes.times) {
            work.enqueue(&stream)?;
        }
        stream.synchronize()?;
        Ok(work)
    }
}

impl Work for Dedispersion {
    fn enqueue(&mut self, stream: &Stream) -> Result<()> {
        let (input, plane) = (&*self.input, &mut self.plane);
        self.dedisperser.enqueue(input, 0, self.times, plane, stream).map(|_| ())
    }

    fn digest(&mut self) -> Result<u128> {
        digest(&self.plane.words)
    }
}
