//! Sums of powers: groups of spectra first, all at a time, then each row's groups in their order.

use super::forms::{order, place, spectra};
use super::general::{BLOCK, Pass};
use crate::backend::cuda::{Arguments, Buffer, Device, Function, Module, Stream};
use crate::channelize::plan::{Detection, Feed, Plan, Products};
use crate::error::Result;

/// The most spectra in one group, unless 8 taps are more.
const MOST: usize = 256;

/// Channels in a sum from which on 32 threads make it.
const MANY: usize = 32;

/// Sums that one call of passes leaves for the next: read from the first, written to the second.
#[derive(Debug)]
struct Carry([Buffer<f32>; 2]);

impl Carry {
    fn new(device: &Device, len: usize) -> Result<Self> {
        Ok(Self([device.buffer(len)?, device.buffer(len)?]))
    }
}

/// Kernels and sums of a plan's detection.
#[derive(Debug)]
pub(super) struct Detected {
    plan: Plan,
    detection: Detection,
    detect: Function,
    finish: Function,
    /// Spectra of a row and of a group, groups of a row.
    row: u64,
    group: u64,
    groups_in_row: u64,
    /// Finished groups of a pass: axes group, unit of the pass, product, bin.
    slots: Buffer<f32>,
    /// The unfinished group, and the sums of finished groups of the unfinished row: axes unit, product, bin.
    groups: Carry,
    rows: Carry,
}

/// The groups that a pass touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Touched {
    /// Spectra of the first row that came before the pass.
    begin: u64,
    /// The group of its row that the first spectrum belongs to.
    first_group: u64,
    groups: u64,
    finished: u64,
    rows: u64,
}

impl Detected {
    /// For passes of at most so many spectra and units.
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

    /// Queues a pass.
    ///
    /// # Safety
    /// Its spectra lie at `work`, and the output has room for its rows.
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
        // SAFETY: the arguments are the kernel's; the slots have room for a pass' groups.
        unsafe { stream.launch(&self.detect, grid, [BLOCK, 1, 1], &arguments)? };
        if touched.rows == 0 {
            return Ok(());
        }
        // SAFETY: the caller's promise is handed on.
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
        // SAFETY: the arguments are the kernel's; the caller vouches for the output.
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
        // Rows of one group end with it; those of several have sums to be kept.
        let rows = if self.groups_in_row == 1 { finished } else { last_row + 1 };
        Touched { begin, first_group, groups, finished, rows }
    }

    /// The next spectra go on from what these left.
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
