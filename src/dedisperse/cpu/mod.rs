//! Dedispersion on the CPU: computes shared partial sums once, in vector registers, on all threads.
//!
//! Invariant: `load` and `emit` allocate nothing.
#![allow(unsafe_code)]

mod execute;
mod history;
mod program;

use super::plan::{Lane, Plan, Sum, UsedChannel};
use crate::backend::simd::Level;
use crate::backend::threads::Threads;
use crate::error::{Error, Result};
use crate::sample::Samples;
use crate::view::PlaneMut;
use execute::{History, Target};
use history::{Lanes, Size};
use program::{Pass, Shape, Tile};

/// Scratch bytes beyond a program's own, for whole vectors.
const SPARE: usize = 1024;

/// Plan bound to vector instructions and threads.
#[derive(Debug)]
pub(super) struct Engine {
    shape: Shape,
    level: Level,
    threads: Threads,
    history: Lanes,
    size: Size,
    /// Trials in a tile.
    tile_dms: usize,
    /// Passes of each tile of trials.
    tiles: Vec<Vec<Pass>>,
    scratch: Vec<Scratch>,
    bias: u32,
    block: usize,
}

/// Scratch rows of a thread, in 64-byte units.
#[derive(Debug)]
struct Scratch(Vec<[u64; 8]>);

impl Engine {
    pub(super) fn new(plan: &Plan, level: Level, threads: &Threads) -> Result<Self> {
        let order = plan.descending_channels();
        let shape = Shape::choose(plan, &order);
        let tile_dms = program::tile_dms(plan.dms().len(), threads.count());
        let tiles = compile(plan, &shape, &order, tile_dms, threads);
        let passes = || tiles.iter().flatten();
        let longest = passes().map(|pass| pass.longest).max().unwrap_or(0);
        let bytes = passes().map(|pass| pass.bytes).max().unwrap_or(0) + SPARE;
        let block = shape.block_times(plan);
        let size = Size {
            rows: plan.channels_used().len(),
            capacity: (plan.max_shift() + block).next_multiple_of(64),
            mirror: shape.tile_times + longest + 128,
        };
        check_memory(&size, shape.input.bytes(), bytes)?;
        let scratch = || Scratch(vec![[0; 8]; bytes.div_ceil(64)]);
        Ok(Self {
            history: Lanes::new(shape.input, plan, size, threads),
            scratch: (0..threads.count()).map(|_| scratch()).collect(),
            bias: plan.bias(),
            threads: threads.clone(),
            shape,
            level,
            size,
            tile_dms,
            tiles,
            block,
        })
    }

    /// Returns the bytes of the history and of the threads' buffers.
    pub(super) fn held_bytes(&self) -> usize {
        let history = self.size.rows * self.size.stride() * self.shape.input.bytes();
        history + self.scratch.iter().map(|scratch| 64 * scratch.0.len()).sum::<usize>()
    }

    /// Returns the largest number of output times in one call of [`Engine::emit`].
    pub(super) fn block_times(&self) -> usize {
        self.block
    }

    /// Resets the state for a new stream; stale samples of the history are overwritten before they are read.
    pub(super) fn reset(&mut self) {}

    /// Loads input rows; `before` rows came earlier.
    pub(super) fn load(&mut self, input: Samples<'_>, before: u64) -> Result<()> {
        self.history.load(input, before, &self.threads);
        Ok(())
    }

    /// Writes `times` output times of every trial, from output time `first` on, at `column`.
    pub(super) fn emit<T: Sum>(
        &mut self,
        first: u64,
        times: usize,
        output: &mut PlaneMut<'_, T>,
        column: usize,
    ) -> Result<()> {
        let stride = output.stride();
        let rows: &mut [u32] = bytemuck::cast_slice_mut(output.data_mut());
        let tiles = times.div_ceil(self.shape.tile_times);
        let step = times.div_ceil(tiles).next_multiple_of(64);
        let history = History {
            data: self.history.bytes(),
            stride: self.size.stride(),
            capacity: self.size.capacity,
            position: 0,
        };
        let (shape, level, size, bias) = (&self.shape, self.level, self.size, self.bias);
        let programs = &self.tiles;
        let float = shape.input == Lane::F32;
        let chunk = self.tile_dms * stride;
        self.threads.for_each_chunk(&mut self.scratch, rows, chunk, |scratch, index, rows| {
            let scratch = scratch.0.as_mut_ptr().cast::<u8>();
            for start in (0..times).step_by(step) {
                let times = step.min(times - start);
                let now = first + start as u64;
                let position = (now % size.capacity as u64) as usize;
                let history = history.moved_to(position);
                let mut target =
                    Target { rows: &mut *rows, stride, column: column + start, times, bias, float };
                for (k, pass) in programs[index].iter().enumerate() {
                    // SAFETY: the engine compiled the program for this history, and sized the scratch and the mirror
                    // for it.
                    unsafe {
                        execute::pass(level, shape, pass, history, scratch, &mut target, k == 0);
                    }
                }
            }
        });
        Ok(())
    }
}

/// Returns an error for sizes beyond any machine's memory, before they are allocated.
fn check_memory(size: &Size, lane_bytes: usize, scratch: usize) -> Result<()> {
    let bytes = (size.rows as u128) * (size.stride() as u128) * lane_bytes as u128;
    if bytes > 1 << 40 || scratch > u32::MAX as usize {
        let rule = format!("the samples that its delay spans take {bytes} bytes, over 2^40");
        return Err(Error::parameter("dm", "too high", rule));
    }
    Ok(())
}

/// Compiles the program of each tile of trials on all threads.
fn compile(
    plan: &Plan,
    shape: &Shape,
    order: &[UsedChannel],
    tile_dms: usize,
    threads: &Threads,
) -> Vec<Vec<Pass>> {
    let dms = plan.dms().len();
    let groups = order.len().div_ceil(shape.group());
    let mut tiles: Vec<Vec<Pass>> = (0..dms.div_ceil(tile_dms)).map(|_| Vec::new()).collect();
    threads.for_each(&mut tiles, 1, |index, passes| {
        let first_dm = index * tile_dms;
        let dms = tile_dms.min(dms - first_dm);
        let tile = Tile { plan, shape, order, first_dm, dms };
        let starts = (0..groups).step_by(shape.pass_groups);
        let pass = |start| Pass::new(&tile, start, shape.pass_groups.min(groups - start));
        passes[0] = starts.map(pass).collect();
    });
    tiles
}
