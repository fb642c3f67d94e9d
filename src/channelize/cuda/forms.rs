//! Last step of the general path: converts spectra in FFT order to output rows.

use super::detected::Detected;
use super::general::{BLOCK, Pass};
use crate::backend::cuda::{Arguments, Buffer, Device, Function, Module, Stream};
use crate::channelize::plan::{self, Order, Plan};
use crate::error::Result;

/// Rows of one element per thread when requantizing.
const ROWS: usize = 16;

/// Output form of spectra.
#[derive(Debug)]
enum Kind {
    /// The windowed sums are the output.
    Filtered,
    Complex(Function),
    Integers {
        function: Function,
        gains: Buffer<f32>,
        /// Stride of the gains; 0 if one gain applies to all channels.
        step: usize,
    },
    Detected(Box<Detected>),
}

/// Kernels and tables of an output form.
#[derive(Debug)]
pub(super) struct Form {
    plan: Plan,
    kind: Kind,
    /// Whether spectra already have the output's order.
    is_ordered: bool,
}

impl Form {
    /// Creates a form for passes of `pass` (spectra, units).
    pub(super) fn new(
        plan: &Plan,
        device: &Device,
        module: &Module,
        pass: (usize, usize),
        is_ordered: bool,
    ) -> Result<Self> {
        let kind = match &plan.options().form {
            plan::Form::Filtered => Kind::Filtered,
            plan::Form::Spectra => Kind::Complex(module.function("complex_form", 0)?),
            plan::Form::Requantized { bits, gains } => Kind::Integers {
                function: module.function(&format!("integers_{bits}"), 0)?,
                gains: device.upload(gains)?,
                step: usize::from(gains.len() > 1),
            },
            plan::Form::Detected(detection) => {
                Kind::Detected(Box::new(Detected::new(plan, detection, device, module, pass)?))
            }
        };
        Ok(Self { plan: plan.clone(), kind, is_ordered })
    }

    /// Enqueues a pass whose spectra lie at `work`.
    ///
    /// # Safety
    /// `work` must hold the pass's spectra, and the output must have space for its rows.
    pub(super) unsafe fn enqueue(
        &mut self,
        stream: &Stream,
        work: u64,
        pass: &Pass,
        saturated: u64,
    ) -> Result<()> {
        let plan = &self.plan;
        let streams = pass.units * plan.input().polarizations;
        let (function, arguments, own) = match &mut self.kind {
            Kind::Filtered => return Ok(()),
            Kind::Detected(detected) => {
                // SAFETY: forwards the caller's guarantee.
                return unsafe { detected.enqueue(stream, work, pass) };
            }
            Kind::Complex(function) => {
                let arguments = spectra(work, plan, pass);
                let ordered = match self.is_ordered {
                    true => arguments.with(plan.channels() as u32).with(0_u32).with(0_u32),
                    false => order(arguments, plan),
                };
                (&*function, place(ordered, plan, pass).with(pass.output), 1)
            }
            Kind::Integers { function, gains, step } => {
                let arguments = place(order(spectra(work, plan, pass), plan), plan, pass)
                    .with(gains.address())
                    .with(*step as u32)
                    .with(saturated)
                    .with(pass.output);
                (&*function, arguments, ROWS)
            }
        };
        let threads = pass.spectra.div_ceil(own) * plan.channels();
        let grid = [threads.div_ceil(BLOCK), streams, 1];
        // SAFETY: the arguments match the kernel; the caller guarantees the addresses.
        unsafe { stream.launch(function, grid, [BLOCK, 1, 1], &arguments) }
    }

    /// Ends the passes of a range of spectra; the next passes continue their partial sums.
    pub(super) fn turn(&mut self) {
        if let Kind::Detected(detected) = &mut self.kind {
            detected.turn();
        }
    }
}

/// Returns the kernel arguments that describe a pass's spectra.
pub(super) fn spectra(work: u64, plan: &Plan, pass: &Pass) -> Arguments {
    let bins = if plan.input().encoding.is_complex() { plan.points() } else { plan.channels() + 1 };
    let polarizations = plan.input().polarizations;
    Arguments::new()
        .with(work)
        .with(bins as u64)
        .with((pass.units * polarizations) as u32)
        .with(pass.spectra as u32)
        .with(polarizations as u32)
}

/// Appends the channel order.
pub(super) fn order(arguments: Arguments, plan: &Plan) -> Arguments {
    let (channels, order) = (plan.channels(), plan.options().order);
    let middle = if plan.input().encoding.is_complex() { channels.div_ceil(2) } else { 0 };
    let shift = if order == Order::Natural { 0 } else { middle };
    let falls = u32::from(order == Order::Descending);
    arguments.with(channels as u32).with(shift as u32).with(falls)
}

/// Appends the row strides and the pass's units.
pub(super) fn place(arguments: Arguments, plan: &Plan, pass: &Pass) -> Arguments {
    let (coarse, channels) = (plan.input().coarse_channels, plan.output_channels());
    arguments
        .with(plan.row_elements() as u64)
        .with((plan.output_products() * coarse * channels) as u64)
        .with(channels as u64)
        .with((coarse * channels) as u64)
        .with(pass.first_unit as u32)
        .with(coarse as u32)
}
