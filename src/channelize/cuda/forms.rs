//! Last step of the general path: converts spectra in FFT order to output rows.
//!
//! Detection sums groups of spectra in parallel, then each row's groups in order.

use super::job::{BLOCK, Pass, PassSize};
use crate::backend::cuda::{Arguments, Buffer, Device, Function, Module, Source, Stream};
use crate::channelize::plan::{self, Detection, Feed, Order, Plan, Products};
use crate::error::{Error, Result};
use crate::view::check_length;

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
    /// Creates a form for passes of at most this size.
    pub(super) fn new(
        plan: &Plan,
        device: &Device,
        module: &Module,
        pass: PassSize,
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
    pub(super) fn swap_carry(&mut self) {
        if let Kind::Detected(detected) = &mut self.kind {
            detected.swap_carry();
        }
    }
}

/// Returns the kernel arguments that describe a pass's spectra.
fn spectra(work: u64, plan: &Plan, pass: &Pass) -> Arguments {
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
fn order(arguments: Arguments, plan: &Plan) -> Arguments {
    let (channels, order) = (plan.channels(), plan.options().order);
    let middle = if plan.input().encoding.is_complex() { channels.div_ceil(2) } else { 0 };
    let shift = if order == Order::Natural { 0 } else { middle };
    let falls = u32::from(order == Order::Descending);
    arguments.with(channels as u32).with(shift as u32).with(falls)
}

/// Appends the row strides and the pass's units.
fn place(arguments: Arguments, plan: &Plan, pass: &Pass) -> Arguments {
    let (coarse, channels) = (plan.input().coarse_channels, plan.output_channels());
    arguments
        .with(plan.row_elements() as u64)
        .with((plan.output_products() * coarse * channels) as u64)
        .with(channels as u64)
        .with((coarse * channels) as u64)
        .with(pass.first_unit as u32)
        .with(coarse as u32)
}

/// Maximum number of spectra per group, unless 8 times the number of taps is more.
const MAX_IN_GROUP: usize = 256;

/// Number of summed channels from which 32 threads compute one output.
const MANY_CHANNELS: usize = 32;

/// Partial sums carried between calls: read from the first buffer, written to the second.
#[derive(Debug)]
struct Carry([Buffer<f32>; 2]);

impl Carry {
    fn new(device: &Device, len: usize) -> Result<Self> {
        Ok(Self([device.buffer(len)?, device.buffer(len)?]))
    }
}

/// Kernels and partial sums of a plan's detection.
#[derive(Debug)]
struct Detected {
    plan: Plan,
    detection: Detection,
    detect: Function,
    finish: Function,
    /// Spectra per row, spectra per group, groups per row.
    row: u64,
    group: u64,
    groups_in_row: u64,
    /// Complete groups of a pass; axes: group, unit of the pass, product, bin.
    slots: Buffer<f32>,
    /// Incomplete group, and sum of the complete groups of the incomplete row; axes: unit, product, bin.
    groups: Carry,
    rows: Carry,
}

/// Groups that a pass contributes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Touched {
    /// Spectra of the first row before the pass.
    begin: u64,
    /// Group, within its row, of the first spectrum.
    first_group: u64,
    /// Number of groups, and of those that the pass completes.
    groups: u64,
    finished: u64,
    /// Rows to finish, or to save partial sums of.
    rows: u64,
}

impl Detected {
    /// Creates the stage for passes of at most this size.
    fn new(
        plan: &Plan,
        detection: &Detection,
        device: &Device,
        module: &Module,
        pass: PassSize,
    ) -> Result<Self> {
        let PassSize { spectra, units } = pass;
        let row = detection.spectra;
        let group = row.min(MAX_IN_GROUP.max((8 * plan.taps()).next_power_of_two()));
        let groups_in_row = row.div_ceil(group);
        let most = spectra.min((spectra / row + 2) * groups_in_row);
        let sums = plan.output_products() * plan.channels();
        let all = plan.input().antennas * plan.input().coarse_channels;
        let kept = all.saturating_mul(sums);
        Ok(Self {
            detect: module.function(kernel(detection, plan.input().polarizations), 0)?,
            finish: module.function("finish_rows", 0)?,
            row: row as u64,
            group: group as u64,
            groups_in_row: groups_in_row as u64,
            slots: device.buffer((most * units).saturating_mul(sums))?,
            groups: Carry::new(device, kept)?,
            rows: Carry::new(device, if groups_in_row > 1 { kept } else { 0 })?,
            plan: plan.clone(),
            detection: *detection,
        })
    }

    /// Enqueues a pass.
    ///
    /// # Safety
    /// `work` must hold the pass's spectra, and the output must have space for its rows.
    unsafe fn enqueue(&mut self, stream: &Stream, work: u64, pass: &Pass) -> Result<()> {
        let touched = self.touched(pass);
        let channels = self.plan.channels();
        let arguments = spectra(work, &self.plan, pass).with(channels as u32);
        let groups = [self.row, self.group, self.groups_in_row, touched.begin, touched.first_group];
        let arguments = groups.iter().fold(arguments, |all, number| all.with(*number as u32));
        let arguments = arguments
            .with(touched.groups as u32)
            .with(pass.first_unit as u32)
            .with(pass.units as u32)
            .with(self.slots.address())
            .with(self.groups.0[0].address())
            .with(self.groups.0[1].address());
        let threads = touched.groups as usize * channels;
        let grid = [threads.div_ceil(BLOCK), pass.units, 1];
        // SAFETY: the arguments match the kernel; the slots have space for a pass's groups.
        unsafe { stream.launch(&self.detect, grid, [BLOCK, 1, 1], &arguments)? };
        if touched.rows == 0 {
            return Ok(());
        }
        // SAFETY: forwards the caller's guarantee.
        unsafe { self.finish(stream, pass, &touched) }
    }

    unsafe fn finish(&self, stream: &Stream, pass: &Pass, touched: &Touched) -> Result<()> {
        let products = self.plan.output_products();
        let is_complex = self.plan.input().encoding.is_complex();
        let lanes = if self.detection.channels >= MANY_CHANNELS { 5 } else { 0 };
        let numbers = [
            products,
            pass.units,
            touched.rows as usize,
            touched.finished as usize,
            self.groups_in_row as usize,
            touched.first_group as usize,
            self.detection.channels,
            usize::from(self.detection.interpolate_dc),
            if is_complex { self.plan.channels() - 1 } else { 1 },
            lanes,
        ];
        let arguments = place(order(Arguments::new(), &self.plan), &self.plan, pass);
        let arguments = numbers.iter().fold(arguments, |all, number| all.with(*number as u32));
        let arguments = arguments
            .with(self.slots.address())
            .with(self.rows.0[0].address())
            .with(self.rows.0[1].address())
            .with(pass.output);
        let threads = (touched.rows as usize * self.plan.output_channels()) << lanes;
        let grid = [threads.div_ceil(BLOCK), pass.units * products, 1];
        // SAFETY: the arguments match the kernel; the caller guarantees the output.
        unsafe { stream.launch(&self.finish, grid, [BLOCK, 1, 1], &arguments) }
    }

    fn touched(&self, pass: &Pass) -> Touched {
        let begin = pass.first_spectrum % self.row;
        let first_group = begin / self.group;
        let last = begin + pass.spectra as u64 - 1;
        let (last_row, in_row) = (last / self.row, last % self.row);
        let groups = last_row * self.groups_in_row + in_row / self.group - first_group + 1;
        let ends = in_row + 1 == self.row || (in_row + 1).is_multiple_of(self.group);
        let finished = if ends { groups } else { groups - 1 };
        // A row of a single group is counted only when it is complete; a row of several groups also has partial sums
        // to save.
        let rows = if self.groups_in_row == 1 { finished } else { last_row + 1 };
        Touched { begin, first_group, groups, finished, rows }
    }

    /// Swaps the carry buffers: the next spectra continue these partial sums.
    fn swap_carry(&mut self) {
        self.groups.0.swap(0, 1);
        self.rows.0.swap(0, 1);
    }
}

/// Returns the kernel of a detection.
fn kernel(detection: &Detection, polarizations: usize) -> &'static str {
    match (detection.products, detection.feed, polarizations) {
        (Products::Power | Products::I, _, 1) => "detect_first",
        (Products::Power, ..) => "detect_powers",
        (Products::I, ..) => "detect_sum",
        (Products::Iquv, Feed::Linear, _) => "detect_stokes_linear",
        (Products::Iquv, Feed::Circular, _) => "detect_stokes_circular",
        (Products::Aabbcrci, ..) => "detect_cross",
    }
}

/// Returns the kernels of the output forms of the general path.
pub(super) fn source() -> Source {
    Source { name: "forms.cu", text: include_str!("forms.cu"), includes: &[], defines: Vec::new() }
}

/// Threads per block, along a row.
const JOIN_BLOCK: usize = 256;

/// Maximum number of blocks along the rows.
const MAX_ROWS: usize = 1 << 14;

/// Conversion of filter-bank rows (axes: copy, antenna, product, recorded channel, channel) to rows of the sum over
/// antennas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Joining {
    /// Copies of all antennas: channel `c` of a recorded channel is taken from copy `c mod copies`.
    pub copies: usize,
    /// Antennas to sum.
    pub antennas: usize,
    /// Products per antenna.
    pub products: usize,
    /// Index in the filter-bank row of each recorded channel.
    pub places: Vec<usize>,
    /// Channels per recorded channel.
    pub channels: usize,
    /// Channel of each recorded channel to replace by the mean of two others, and those two.
    pub middle: Option<(usize, [usize; 2])>,
}

/// Sums antennas, orders recorded channels and interleaves the channels of copies, on a device.
///
/// | buffer | axes                                      | type                      | access      |
/// |--------|-------------------------------------------|---------------------------|-------------|
/// | `from` | time, copy, antenna, product, channel     | f32 (its bytes in memory) | read        |
/// | `to`   | time, product, channel                    | f32 (its bytes in memory) | overwritten |
///
/// # Numerics
/// Single precision; antennas are summed in order.
/// # Real time
/// Allocates nothing after `new`.
#[derive(Debug)]
pub struct RowJoiner {
    joining: Joining,
    function: Function,
    places: Buffer<u32>,
}

impl RowJoiner {
    /// Lists the kernels of every joiner.
    pub(crate) fn sources() -> Vec<Source> {
        vec![joining_source()]
    }

    /// Creates a joiner on a device.
    ///
    /// # Errors
    /// [`Error::Parameter`] for an invalid index of a recorded channel; [`Error::Unavailable`] without memory or
    /// NVRTC; [`Error::Device`] if the driver fails.
    pub fn new(device: &Device, joining: Joining) -> Result<Self> {
        if let Some(place) = joining.places.iter().find(|place| **place >= joining.places.len()) {
            let rule = format!("there are {} recorded channels", joining.places.len());
            return Err(Error::parameter("place of a recorded channel", place, rule));
        }
        let module = device.module(&joining_source())?;
        let places: Vec<u32> = joining.places.iter().map(|place| *place as u32).collect();
        Ok(Self {
            function: module.function("join_rows", 0)?,
            places: device.upload(&places)?,
            joining,
        })
    }

    /// Returns the values per output row.
    fn elements(&self) -> usize {
        self.joining.products * self.joining.places.len() * self.joining.channels
    }

    /// Enqueues the joining of `rows` rows.
    ///
    /// # Errors
    /// [`Error::Shape`] if the buffers are too small; [`Error::Device`] if the driver fails.
    pub fn enqueue(
        &self,
        from: &Buffer<u8>,
        rows: usize,
        to: &mut Buffer<u8>,
        stream: &Stream,
    ) -> Result<()> {
        let Joining { copies, antennas, products, channels, middle, ref places } = self.joining;
        let bytes = rows.saturating_mul(4 * self.elements());
        let all = bytes.saturating_mul(copies * antennas);
        check_length("rows of antennas (bytes)", all, from.len().min(all))?;
        check_length("joined rows (bytes)", bytes, to.len().min(bytes))?;
        if rows == 0 {
            return Ok(());
        }
        // `u32::MAX` is no channel and disables the replacement.
        let (zero, [above, below]) = middle.unwrap_or((u32::MAX as usize, [0, 0]));
        let arguments = Arguments::new().with(from.address());
        let numbers = [rows, copies, antennas, products, places.len(), channels];
        let arguments = numbers.iter().fold(arguments, |all, number| all.with(*number as u32));
        let arguments = arguments.with(self.places.address());
        let numbers = [zero, above, below];
        let arguments = numbers.iter().fold(arguments, |all, number| all.with(*number as u32));
        let arguments = arguments.with(to.address());
        let grid = [self.elements().div_ceil(JOIN_BLOCK), rows.min(MAX_ROWS), 1];
        // SAFETY: the arguments match the kernel; both buffers have space for the rows.
        unsafe { stream.launch(&self.function, grid, [JOIN_BLOCK, 1, 1], &arguments) }
    }
}

/// Returns the kernel that joins antennas' rows.
pub(super) fn joining_source() -> Source {
    Source { name: "rows.cu", text: include_str!("rows.cu"), includes: &[], defines: Vec::new() }
}
