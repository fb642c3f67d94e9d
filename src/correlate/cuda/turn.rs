//! Corner turn of a packed block from the host to natural order, on the device.

use super::super::plan::{LANES, Plan};
use super::shape::Shape;
use crate::backend::cuda::{
    Arguments, Device, Extent, Function, Source, Stream, Variant, combinations,
};
use crate::error::Result;

/// Threads of a block.
const BLOCK: usize = 256;

/// Corner-turn kernel.
#[derive(Debug)]
pub(super) struct Turn {
    shape: Shape,
    panels: usize,
    /// Times of a group in the packed order, and steps of a group.
    group: (usize, usize),
    /// Bytes of a step of one input.
    unit: usize,
    function: Function,
}

fn source(defines: Vec<(&'static str, String)>) -> Source {
    Source { name: "turn.cu", text: include_str!("turn.cu"), includes: &[], defines }
}

/// Returns the variants for the kernel table.
pub(super) fn variants(extent: Extent) -> Vec<Variant> {
    let variant = |defines| Variant::plain(source(defines), extent);
    combinations(&[("UNIT", &["2", "4"])], extent).into_iter().map(variant).collect()
}

impl Turn {
    pub(super) fn new(plan: &Plan, shape: &Shape, device: &Device) -> Result<Self> {
        // A pair of integer samples is one step, a float sample two.
        let steps = if shape.is_float() { 2 } else { 1 };
        let unit = shape.row_bytes(plan.group()) / steps;
        let module = device.module(&source(vec![("UNIT", unit.to_string())]))?;
        Ok(Self {
            shape: *shape,
            panels: plan.panels(),
            group: (plan.group(), steps),
            unit,
            function: module.function("turn", 0)?,
        })
    }

    /// Returns the bytes from one input to the next for `times` times.
    pub(super) fn stride(shape: &Shape, times: usize) -> usize {
        shape.row_bytes(times).next_multiple_of(16)
    }

    /// Queues the corner turn of some channels from one address to another.
    pub(super) fn enqueue(
        &self,
        (from, to): (u64, u64),
        channels: usize,
        times: usize,
        stream: &Stream,
    ) -> Result<()> {
        let steps = times.div_ceil(self.group.0) * self.group.1;
        // Steps of a block: 64 of 4 bytes, or 128 of 2.
        let parts = steps.div_ceil(256 / self.unit);
        let stride = Self::stride(&self.shape, times);
        let arguments = Arguments::new()
            .with(from)
            .with(self.panels as u32)
            .with(self.shape.inputs as u32)
            .with(steps as i64)
            .with(parts as u32)
            .with(to)
            .with((self.shape.inputs * stride) as i64)
            .with(stride as i64);
        let grid = [channels * self.panels * parts, 1, 1];
        const { assert!(LANES == 16) };
        // SAFETY: the arguments match the kernel, and both buffers hold these channels and times.
        unsafe { stream.launch(&self.function, grid, [BLOCK, 1, 1], &arguments) }
    }
}
