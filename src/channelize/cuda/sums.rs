//! Windowed sums: the first step of the general path.

use super::general::{BLOCK, Pass};
use super::job::Job;
use super::shape;
use crate::backend::cuda::{Arguments, Buffer, Device, Function, Source, Stream};
use crate::channelize::plan::Plan;
use crate::error::Result;

/// Spectra that a thread of the kernel for whole rows of any plan sums at a time.
const SPECTRA: usize = 8;

/// Spectra and threads of the kernel for pairs of columns.
const BATCH: usize = 16;
const THREADS: usize = 128;

/// The fewest points that are worth a kernel of the plan's own.
const LEAST_POINTS: usize = 256;

/// Where values go: the address of the pass' first row, for an antenna 0 whether it is in the pass or not; and
/// floats from row, antenna, recorded channel and polarization to the next.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target {
    pub(super) address: u64,
    pub(super) strides: [usize; 4],
}

impl Target {
    /// A pass' rows in the output, of complex values.
    pub(super) fn output(plan: &Plan, pass: &Pass) -> Self {
        let (coarse, points) = (plan.input().coarse_channels, plan.points());
        let polarization = 2 * coarse * points;
        let antenna = plan.input().polarizations * polarization;
        let strides = [2 * plan.row_elements(), antenna, 2 * points, polarization];
        Self { address: pass.output, strides }
    }

    /// A work buffer with axes spectrum, stream of the pass, `pitch` floats.
    pub(super) fn work(plan: &Plan, pass: &Pass, address: u64, pitch: usize) -> Self {
        let unit = plan.input().polarizations * pitch;
        let strides = [pass.units * unit, plan.input().coarse_channels * unit, unit, pitch];
        let before = 4 * (pass.first_unit * unit) as u64;
        Self { address: address.wrapping_sub(before), strides }
    }
}

/// The kernel of a plan and its coefficients.
#[derive(Debug)]
pub(super) struct Sums {
    plan: Plan,
    kernel: Kernel,
    coefficients: Buffer<f32>,
}

#[derive(Debug)]
enum Kernel {
    Any(Function),
    /// For whole batches, and for launches of fewer spectra.
    Pairs {
        batches: Function,
        few: Function,
    },
}

impl Sums {
    /// Sums of which, if `alternates`, every second column's sign is turned.
    pub(super) fn new(plan: &Plan, device: &Device, alternates: bool) -> Result<Self> {
        let scale = plan.input().scale;
        let sign =
            |index: usize| if alternates && index % plan.points() % 2 == 1 { -1.0 } else { 1.0 };
        let coefficient = |(index, b): (usize, &f64)| (b * scale) as f32 * sign(index);
        let mut coefficients: Vec<f32> =
            plan.coefficients().iter().enumerate().map(coefficient).collect();
        // A kernel may load a tap more than there are.
        coefficients.resize(plan.span() + plan.points(), 0.0);
        let kernel = match pairs(plan) {
            Some(source) => {
                let module = device.module(&source)?;
                let batches = module.function("sums_batches", 0)?;
                let few = module.function("sums_few", 0)?;
                Kernel::Pairs { batches, few }
            }
            None => {
                let module = device.module(&super::variants::fir(plan.input().encoding))?;
                let name = if plan.hop() == plan.points() { "fir" } else { "fir_overlapping" };
                Kernel::Any(module.function(name, 0)?)
            }
        };
        let coefficients = device.upload(&coefficients)?;
        Ok(Self { plan: plan.clone(), kernel, coefficients })
    }

    /// Bytes that samples and streams must begin at a multiple of.
    pub(super) fn alignment(&self) -> usize {
        let sample = self.plan.input().encoding.sample_bits().div_ceil(8);
        if matches!(self.kernel, Kernel::Any(_)) { sample } else { 2 * sample }
    }

    /// Queues a pass of a job whose first window begins `skipped` samples behind the first one of its first byte;
    /// if `widens`, real sums become complex values.
    ///
    /// # Safety
    /// The job's addresses have room for all that its sizes say, and the target for the pass.
    pub(super) unsafe fn enqueue(
        &self,
        stream: &Stream,
        (job, skipped): (&Job, usize),
        pass: &Pass,
        to: &Target,
        widens: bool,
    ) -> Result<()> {
        let (plan, input) = (&self.plan, self.plan.input());
        let points = plan.points();
        let first_sample =
            (pass.first_spectrum - job.first_spectrum) * plan.hop() as u64 + skipped as u64;
        let streams = pass.units * input.polarizations;
        match &self.kernel {
            Kernel::Any(function) => {
                let rotation =
                    pass.first_spectrum % points as u64 * plan.hop() as u64 % points as u64;
                let arguments = Arguments::new()
                    .with(job.input)
                    .with(job.stride)
                    .with(first_sample)
                    .with(self.coefficients.address())
                    .with(to.address);
                let arguments = wide(arguments, &to.strides);
                let arguments = short(
                    arguments,
                    &[points, plan.taps(), plan.hop(), rotation as usize, pass.spectra],
                );
                let arguments = self.units(arguments, pass).with(u32::from(widens));
                let own = if plan.hop() == points { SPECTRA } else { 1 };
                let threads = pass.spectra.div_ceil(own) * points;
                let grid = [threads.div_ceil(BLOCK), streams, 1];
                // SAFETY: the arguments are the kernel's; the caller vouches for the job.
                unsafe { stream.launch(function, grid, [BLOCK, 1, 1], &arguments) }
            }
            Kernel::Pairs { batches, few } => {
                let (function, batch) =
                    if pass.spectra < BATCH { (few, 1) } else { (batches, BATCH) };
                let first = first_sample * (input.encoding.sample_bits() / 8) as u64;
                let arguments = Arguments::new()
                    .with(job.input + first)
                    .with(job.stride)
                    .with(self.coefficients.address())
                    .with(to.address);
                let arguments = wide(arguments, &to.strides.map(|floats| floats / 4));
                let arguments = short(arguments, &[points / 2, pass.spectra]);
                let arguments = self.units(arguments, pass);
                let blocks = (points / 2).div_ceil(THREADS);
                let grid = [blocks, pass.spectra.div_ceil(batch), streams];
                // SAFETY: as above.
                unsafe { stream.launch(function, grid, [THREADS, 1, 1], &arguments) }
            }
        }
    }

    /// Which streams the pass has.
    fn units(&self, arguments: Arguments, pass: &Pass) -> Arguments {
        let input = self.plan.input();
        let reverses = usize::from(self.plan.options().reverse_coarse);
        let numbers = [pass.first_unit, input.coarse_channels, input.polarizations, reverses];
        short(arguments, &numbers)
    }
}

fn wide(arguments: Arguments, numbers: &[usize]) -> Arguments {
    numbers.iter().fold(arguments, |all, number| all.with(*number as u64))
}

fn short(arguments: Arguments, numbers: &[usize]) -> Arguments {
    numbers.iter().fold(arguments, |all, number| all.with(*number as u32))
}

/// The kernel for pairs of columns, where the plan has them: windows a row apart of an even number of complex
/// samples.
pub(super) fn pairs(plan: &Plan) -> Option<Source> {
    let points = plan.points();
    let (encoding, sample_bytes) = shape::encoding(plan.input().encoding)?;
    if points < LEAST_POINTS || points % 2 == 1 || plan.hop() != points {
        return None;
    }
    let constants = [
        ("TAPS", plan.taps()),
        ("BATCH", BATCH),
        ("THREADS", THREADS),
        // A ring of taps takes more registers.
        ("RESIDENT", if plan.taps() > shape::MOST_HELD { 3 } else { 4 }),
        ("AHEAD", if sample_bytes == 8 { 2 } else { 4 }),
        ("TURN", 2),
        ("ENCODING", encoding),
        ("CONVERSION", usize::from(sample_bytes == 2)),
    ];
    Some(Source {
        name: "sums.cu",
        text: include_str!("sums.cu"),
        includes: &[
            ("decode.cuh", include_str!("decode.cuh")),
            ("fir.cuh", include_str!("fir.cuh")),
        ],
        defines: constants.map(|(name, value)| (name, value.to_string())).to_vec(),
    })
}
