//! Windowed sums: first step of the general path.

use super::job::{BLOCK, Job, Pass, Target};
use super::shape;
use crate::backend::cuda::{Arguments, Buffer, Device, Function, Source, Stream};
use crate::channelize::plan::Plan;
use crate::error::Result;
use crate::voltage::VoltageEncoding;

/// Spectra per thread of the kernel for any plan, if windows are a whole row apart.
const SPECTRA: usize = 8;

/// Spectra and threads of the kernel for pairs of columns.
const BATCH: usize = 16;
const THREADS: usize = 128;

/// Minimum number of points that justifies compiling a kernel for the plan.
const LEAST_POINTS: usize = 256;

/// Kernel of a plan and its coefficients.
#[derive(Debug)]
pub(super) struct Sums {
    plan: Plan,
    kernel: Kernel,
    coefficients: Buffer<f32>,
}

#[derive(Debug)]
enum Kernel {
    Any(Function),
    /// For full batches, and for launches shorter than a batch.
    Pairs {
        batches: Function,
        single: Function,
    },
}

impl Sums {
    /// Builds the kernel; `alternates` negates odd columns.
    pub(super) fn new(plan: &Plan, device: &Device, alternates: bool) -> Result<Self> {
        let scale = plan.input().scale;
        let sign =
            |index: usize| if alternates && index % plan.points() % 2 == 1 { -1.0 } else { 1.0 };
        let coefficient = |(index, b): (usize, &f64)| (b * scale) as f32 * sign(index);
        let mut coefficients: Vec<f32> =
            plan.coefficients().iter().enumerate().map(coefficient).collect();
        // A kernel may load one row of taps past the end.
        coefficients.resize(plan.span() + plan.points(), 0.0);
        let kernel = match pairs(plan) {
            Some(source) => {
                let module = device.module(&source)?;
                let batches = module.function("sums_batches", 0)?;
                let single = module.function("sums_single", 0)?;
                Kernel::Pairs { batches, single }
            }
            None => {
                let module = device.module(&fir(plan.input().encoding))?;
                let name = if plan.hop() == plan.points() { "fir" } else { "fir_overlapping" };
                Kernel::Any(module.function(name, 0)?)
            }
        };
        let coefficients = device.upload(&coefficients)?;
        Ok(Self { plan: plan.clone(), kernel, coefficients })
    }

    /// Returns the required alignment of samples and streams, in bytes.
    pub(super) fn alignment(&self) -> usize {
        let sample = self.plan.input().encoding.sample_bits().div_ceil(8);
        if matches!(self.kernel, Kernel::Any(_)) { sample } else { 2 * sample }
    }

    /// Enqueues a pass of a job whose first window begins `skipped` samples after the first sample of its first byte.
    /// If `widens`, real sums are written as complex values.
    ///
    /// # Safety
    /// The job's addresses must be valid for its sizes, and the target for the pass.
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
                // SAFETY: the arguments match the kernel; the caller guarantees the job.
                unsafe { stream.launch(function, grid, [BLOCK, 1, 1], &arguments) }
            }
            Kernel::Pairs { batches, single } => {
                let (function, batch) =
                    if pass.spectra < BATCH { (single, 1) } else { (batches, BATCH) };
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

    /// Appends the arguments that select the pass's streams.
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

/// Returns the kernel for pairs of columns if the plan allows it: windows one row apart and an even number of complex
/// samples per row.
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
        // A ring of taps needs more registers.
        ("RESIDENT", if plan.taps() > shape::MOST_HELD { 3 } else { 4 }),
        ("AHEAD", if sample_bytes == 8 { 2 } else { 4 }),
        ("PRODUCT_ORDER", 2),
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

/// Returns the kernel of windowed sums for any plan, by encoding.
pub(super) fn fir(encoding: VoltageEncoding) -> Source {
    let place = VoltageEncoding::ALL.iter().position(|other| *other == encoding).unwrap_or(0);
    Source {
        name: "fir.cu",
        text: include_str!("fir.cu"),
        includes: &[],
        defines: vec![("ENCODING", place.to_string())],
    }
}
