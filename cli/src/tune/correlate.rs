//! Tuning of an X-engine's kernels.

use std::cell::RefCell;
use std::rc::Rc;

use clap::Args;
use num_complex::Complex;
use sidereal::backend::cuda::tune::{Tuned, Work, digest_of};
use sidereal::backend::cuda::{Buffer, Stream};
use sidereal::correlate::{Correlator, DeviceSpectra, Options, Output, Plan, Precision};
use sidereal::voltage::VoltageEncoding;
use sidereal::{Error, Result};

use super::Bench;
use crate::common::Common;
use crate::correlate::PrecisionWord;

/// Tune the X-engine for a number of antennas, channels and bits.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    sidereal tune correlate --antennas 64 --channels 1024\n  \
    sidereal tune correlate --antennas 256 --channels 256 --nbits 32 --precision tf32 --samples 1024")]
pub(super) struct Arguments {
    /// Number of antennas.
    #[arg(long, default_value_t = 128)]
    antennas: usize,
    /// Number of polarizations per antenna.
    #[arg(long, default_value_t = 2)]
    polarizations: usize,
    /// Number of channels, over all recorded channels.
    #[arg(long, default_value_t = 1024)]
    channels: usize,
    /// Bits of the values that are multiplied: 8 or 4 (integers), or 32 (floats).
    #[arg(long, value_name = "BITS", default_value_t = 8)]
    nbits: usize,
    /// Rounding of 32-bit spectra before multiplication, as in `sidereal correlate`.
    #[arg(long, value_enum, value_name = "WHAT", default_value = "f32")]
    precision: PrecisionWord,
    /// Samples per integration [default: as many as --memory holds, at most 1024].
    #[arg(long)]
    samples: Option<usize>,
}

/// Most samples per integration by default.
const SAMPLES: usize = 1024;

/// Alignment of rows in bytes.
const ALIGNED: usize = 16;

impl Arguments {
    pub(super) fn tune(&self, bench: &Bench, common: &Common) -> Result<Vec<Tuned>> {
        let plan = self.plan()?;
        let layout = self.layout(&plan, bench)?;
        let bytes = plan.channels() * layout.channel_stride;
        let input = Rc::new(RefCell::new(match plan.encoding() {
            VoltageEncoding::ComplexF32 => bench.floats(bytes)?,
            _ => bench.noise(bytes)?,
        }));
        let mut build = || -> Result<Box<dyn Work>> {
            let correlator = Correlator::new(plan.clone(), &bench.backend)?;
            Ok(Box::new(Correlation { correlator, input: Rc::clone(&input), layout }))
        };
        bench.tune(common, &mut build)
    }

    fn plan(&self) -> Result<Plan> {
        let encoding = match self.nbits {
            4 => VoltageEncoding::Complex4,
            8 => VoltageEncoding::Complex8,
            32 => VoltageEncoding::ComplexF32,
            _ => return Err(Error::parameter("--nbits", self.nbits, "it must be 4, 8 or 32")),
        };
        let precision = Precision::from(self.precision);
        if precision != Precision::F32 && encoding != VoltageEncoding::ComplexF32 {
            let rule = "products of integers are exact: it is for --nbits 32";
            return Err(Error::parameter("--precision", precision.to_string(), rule));
        }
        let (antennas, polarizations) = (self.antennas, self.polarizations);
        let options = Options { antennas, polarizations, channels: self.channels, encoding };
        Ok(Plan::new(options)?.with_precision(precision))
    }

    /// Returns the layout of one integration, with rows that begin at multiples of 16 bytes.
    fn layout(&self, plan: &Plan, bench: &Bench) -> Result<DeviceSpectra> {
        let rows = plan.channels() * plan.inputs();
        let in_memory = bench.input_bytes / rows * 8 / plan.encoding().sample_bits();
        let chosen = (in_memory / ALIGNED * ALIGNED).clamp(ALIGNED, SAMPLES);
        let times = self.samples.unwrap_or(chosen);
        if times == 0 {
            return Err(Error::parameter("--samples", times, "it must be above 0"));
        }
        let row_bytes = times.checked_mul(plan.encoding().sample_bits());
        let input_stride =
            row_bytes.map_or(usize::MAX, |bits| (bits / 8).next_multiple_of(ALIGNED));
        let free = bench.device.free_bytes()?;
        if input_stride.checked_mul(rows).is_none_or(|bytes| bytes > free) {
            return Err(Error::Unavailable {
                what: format!("memory for spectra of {times} samples"),
                why: format!("{} MiB are free on the device", free >> 20),
            });
        }
        let channel_stride = plan.inputs() * input_stride;
        Ok(DeviceSpectra { first_byte: 0, channel_stride, input_stride, times })
    }
}

/// Correlation of one integration, repeated in each run.
struct Correlation {
    correlator: Correlator,
    input: Rc<RefCell<Buffer<u8>>>,
    layout: DeviceSpectra,
}

impl Work for Correlation {
    fn enqueue(&mut self, stream: &Stream) -> Result<()> {
        self.correlator.reset();
        self.correlator.enqueue(&mut self.input.borrow_mut(), self.layout, None, stream)
    }

    /// Returns a digest of the sums of evenly spaced channels, as many as fit.
    fn digest(&mut self) -> Result<u128> {
        /// Most sums copied to the host, unless one channel has more.
        const SUMS: usize = 1 << 22;
        let plan = self.correlator.plan().clone();
        let (last, channels) = (plan.channels() - 1, (SUMS / plan.row_elements()).clamp(1, 64));
        let channels = channels.min(plan.channels());
        let digest = |channel| self.digest_of_channel(&plan, channel);
        let spread = (0..channels).map(|place| last * place / (channels - 1).max(1));
        let digests = spread.map(digest).collect::<Result<Vec<u128>>>()?;
        Ok(digest_of(bytemuck::cast_slice(&digests)))
    }
}

impl Correlation {
    fn digest_of_channel(&mut self, plan: &Plan, channel: usize) -> Result<u128> {
        let channels = channel..channel + 1;
        let mut counts = vec![0; plan.baselines()];
        if plan.encoding() == VoltageEncoding::ComplexF32 {
            let mut sums = vec![Complex::new(0_f64, 0.0); plan.row_elements()];
            self.correlator.read(channels, Output::Float(&mut sums), &mut counts)?;
            return Ok(digest_of(bytemuck::cast_slice(&sums)));
        }
        let mut sums = vec![Complex::new(0_i64, 0); plan.row_elements()];
        self.correlator.read(channels, Output::Integer(&mut sums), &mut counts)?;
        Ok(digest_of(bytemuck::cast_slice(&sums)))
    }
}
