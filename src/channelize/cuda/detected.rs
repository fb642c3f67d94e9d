//! Sums of powers: sums groups of spectra in parallel, then each row's groups in order.

use super::forms::{order, place, spectra};
use super::general::{BLOCK, Pass};
use crate::backend::cuda::{Arguments, Buffer, Device, Function, Module, Stream};
use crate::channelize::plan::{Detection, Feed, Plan, Products};
use crate::error::Result;

/// Maximum number of spectra per group, unless 8 times the taps is more.
const MOST: usize = 256;

/// Number of summed channels from which 32 threads compute one output.
const MANY: usize = 32;

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
pub(super) struct Detected {
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
    groups: u64,
    finished: u64,
    rows: u64,
}

impl Detected {
    /// Creates the stage for passes of at most `spectra` spectra and `units` units.
    pub(super) fn new(
        plan: &Plan,
        detection: &Detection,
        device: &Device,
        module: &Module,
        (spectra, units): (usize, usize),
    ) -> Result<Self> {
        let row = detection.spectra;
        let group = row.min(MOST.max((8 * plan.taps()).next_power_of_two()));
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
    pub(super) unsafe fn enqueue(&mut self, stream: &Stream, work: u64, pass: &Pass) -> Result<()> {
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
        let lanes = if self.detection.channels >= MANY { 5 } else { 0 };
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
    pub(super) fn turn(&mut self) {
        self.groups.0.swap(0, 1);
        self.rows.0.swap(0, 1);
    }
}

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
