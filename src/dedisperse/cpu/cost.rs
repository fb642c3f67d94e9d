//! Cost model that chooses the shape of the sums from a few sampled groups.
//!
//! Invariant: the choice depends on the plan alone, so that float sums have the same order on every
//! machine and any number of threads.

use super::super::plan::{Lane, Plan};
use super::placement::Pass;
use super::program::Tile;
use super::shape::{FAN_IN, Shape};

/// Trials of the sampled tile.
const SAMPLED_DMS: usize = 250;

/// Sampled groups of the last level, spread over the band.
const SAMPLED_GROUPS: usize = 4;

/// Bytes of rows in use during a pass: the private cache of a core on most machines.
const CACHE_BYTES: usize = 1 << 20;

/// Cost of starting a build, in bytes that could be added in the same time.
const START: f64 = 3000.0;

/// Costs of reading a byte that is widened, and of writing one, relative to a plain read; measured.
const WIDENED: f64 = 0.7;
const WRITTEN: f64 = 1.2;

/// Largest group size to try.
const LARGEST: usize = 128;

const TILE_TIMES: [usize; 4] = [512, 1024, 2048, 4096];

impl Shape {
    /// Returns the cheapest shape for a plan; `order` is as [`Tile::order`].
    pub(super) fn choose(plan: &Plan, order: &[(u32, u32)]) -> Self {
        // Cheapest chain of group sizes up to each size; longer chains extend these.
        let mut chains: Vec<Vec<usize>> = vec![Vec::new()];
        let mut best = estimate(plan, order, &[1], TILE_TIMES[1]);
        for size in (1..).map(|k| 1 << k).take_while(|size| *size <= LARGEST) {
            let step = |k: &usize| {
                let mut sizes = chains[chains.len() - k].clone();
                sizes.push(size);
                let (cost, shape) = estimate(plan, order, &sizes, TILE_TIMES[1]);
                (cost, shape, sizes)
            };
            let steps = (1..=chains.len().min(FAN_IN.ilog2() as usize)).collect::<Vec<_>>();
            let cheapest = steps.iter().map(step).min_by(|a, b| a.0.total_cmp(&b.0));
            let Some((cost, shape, sizes)) = cheapest else { break };
            chains.push(sizes);
            if cost < best.0 {
                best = (cost, shape);
            } else if cost > 1.3 * best.0 || size >= order.len() {
                break;
            }
        }
        let sizes: Vec<usize> = best.1.levels.iter().map(|rows| rows.channels).collect();
        for times in TILE_TIMES {
            let other = estimate(plan, order, &sizes, times);
            if other.0 < best.0 {
                best = other;
            }
        }
        best.1
    }
}

/// Returns the cost of a trial's output sample, in bytes added, and the shape with its passes.
fn estimate(plan: &Plan, order: &[(u32, u32)], sizes: &[usize], tile_times: usize) -> (f64, Shape) {
    let mut shape = Shape::new(plan, sizes, tile_times, 1);
    let dms = plan.dms().len().min(SAMPLED_DMS);
    let groups = order.len().div_ceil(shape.group());
    let sampled = groups.min(SAMPLED_GROUPS);
    let (mut build, mut bytes) = (0.0, 0);
    for k in 0..sampled {
        let first_dm = (plan.dms().len() - dms) * k / sampled.max(1);
        let tile = Tile { plan, shape: &shape, order, first_dm, dms };
        let pass = Pass::new(&tile, k * (groups - 1) / (sampled - 1).max(1), 1);
        build += build_cost(&shape, &pass);
        bytes += pass.bytes;
    }
    shape.pass_groups = pass_groups(&shape, groups, CACHE_BYTES * sampled / bytes.max(1));
    let passes = groups.div_ceil(shape.pass_groups);
    let samples = (dms * tile_times) as f64;
    let builds = build / sampled as f64 * groups as f64 / samples;
    let sums = groups as f64 * sum_cost(&shape) + passes as f64 * 14.0;
    (builds + sums, shape)
}

/// Returns the groups of a pass, at most `fitting`: equal passes of whole segments.
fn pass_groups(shape: &Shape, groups: usize, fitting: usize) -> usize {
    let most = fitting.clamp(1, groups);
    let step = if shape.segment == 0 || most < shape.segment { 1 } else { shape.segment };
    let passes = groups.div_ceil(most / step * step);
    groups.div_ceil(passes).next_multiple_of(step).min(groups)
}

/// Returns the cost of a pass's builds: a start for each, plus the bytes that it reads and writes.
fn build_cost(shape: &Shape, pass: &Pass) -> f64 {
    let cost = |level: usize, sources: usize, extra: usize| {
        let (from, to) = (shape.source(level), shape.levels[level].lane);
        let read = (sources * from.bytes()) as f64 * if from == to { 1.0 } else { WIDENED };
        START + (shape.tile_times + extra) as f64 * (read + WRITTEN * to.bytes() as f64)
    };
    pass.builds().map(|build| cost(build.level, build.sources, build.extra)).sum()
}

/// Returns the cost of adding one element of a group's row.
fn sum_cost(shape: &Shape) -> f64 {
    match shape.levels.last().map_or(Lane::U8, |rows| rows.lane) {
        Lane::U8 => 1.35,
        Lane::U16 if shape.wide() => 2.6,
        Lane::U16 => 2.0,
        Lane::U32 | Lane::F32 => 4.0,
    }
}
