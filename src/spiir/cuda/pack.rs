//! Packs the filters of a plan into units and builds the tables for the kernel.

use super::super::plan::{Branch, Filter, Plan};
use super::group::Groups;
use super::passes::{Limits, Pass, Tap, near_counts, passes, share_windows};
use super::scaled;
use super::shape::{LANES, Shape};
use crate::backend::threads::Threads;

/// Most blocks that split the samples of a launch.
const MOST_PARTS: f64 = 8.0;

/// Bank-group counts that a sweep of template swaps may inspect.
const SWEEP: usize = 1 << 22;
/// Swap partners tried per template within a unit.
const UNIT_PARTNERS: usize = 8;

/// Filters of one template at one rate: short memories before long ones, each in order of delay.
#[derive(Debug)]
struct Row<'a> {
    /// Row of its sums.
    row: usize,
    taps: Vec<Tap<'a>>,
    lanes: usize,
}

/// Templates of one block.
#[derive(Debug)]
struct Unit<'a> {
    level: usize,
    lanes: usize,
    rows: Vec<i32>,
    passes: Vec<Pass<'a>>,
    cost: f64,
}

/// Tables of a plan as the kernel reads them.
#[derive(Debug, Default)]
pub(super) struct Packed {
    /// Threads of a block.
    pub(super) threads: usize,
    /// Bytes of its shared memory.
    pub(super) shared_bytes: usize,
    /// Distinct shapes of the passes.
    pub(super) shapes: Vec<Shape>,
    pub(super) units: Vec<[u32; 6]>,
    pub(super) passes: Vec<[u32; 6]>,
    pub(super) rows: Vec<i32>,
    pub(super) values: Vec<f32>,
    /// States of all slots.
    pub(super) states: usize,
}

impl Packed {
    /// Builds the tables of a plan; `row` maps a level and a template to the row of sums.
    pub(super) fn new(
        plan: &Plan,
        limits: &Limits,
        row: &dyn Fn(usize, usize) -> usize,
        threads: &Threads,
    ) -> Self {
        let levels: Vec<Vec<Row<'_>>> =
            (0..plan.levels()).map(|level| rows(plan, level, limits, row)).collect();
        let warps = warps(&levels);
        let parts = (busy_warps(limits) / 2.0 / warps).floor().clamp(1.0, MOST_PARTS) as usize;
        let block = block(warps * parts as f64, limits);
        let mut units = Vec::new();
        for (level, mut rows) in levels.into_iter().enumerate() {
            rows.sort_by_key(|row| (row.lanes, std::cmp::Reverse(row.taps.len())));
            for alike in rows.chunk_by(|a, b| a.lanes == b.lanes) {
                let templates = block / alike[0].lanes;
                let alike = ordered(alike, templates, level, limits);
                units.extend(alike.chunks(templates).map(|some| unit(level, some, block, limits)));
            }
        }
        units.sort_by(|a, b| b.cost.total_cmp(&a.cost));
        Self::of(&units, (block, parts), threads)
    }

    /// Returns the properties that a tuning choice depends on.
    pub(super) fn tuning_key(&self) -> String {
        let filters = self.states / self.threads.max(1);
        let (units, passes, shared) = (self.units.len(), self.passes.len(), self.shared_bytes);
        format!(
            "templates={} units={units} threads={} passes={passes} slots={filters} shared={shared}",
            self.rows.len(),
            self.threads
        )
    }

    fn of(units: &[Unit<'_>], (block, parts): (usize, usize), threads: &Threads) -> Self {
        let mut packed = Self { threads: block, ..Self::default() };
        let mut values = 0;
        let mut filled = Vec::new();
        for unit in units {
            let (pass, row) = (packed.passes.len(), packed.rows.len());
            for part in 0..parts {
                let part = parts << 16 | part;
                let head = [unit.level, unit.lanes, pass, unit.passes.len(), row, part];
                packed.units.push(head.map(|word| word as u32));
            }
            packed.rows.extend(&unit.rows);
            for pass in &unit.passes {
                let Pass { shape, reach, pitch, chunk, .. } = *pass;
                let words = [shape.index(), values, packed.states, reach, pitch, chunk];
                packed.passes.push(words.map(|word| word as u32));
                values += shape.filters * pass.count();
                packed.states += shape.filters;
                packed.shared_bytes = packed.shared_bytes.max(16 * pitch);
                if !packed.shapes.contains(&shape) {
                    packed.shapes.push(shape);
                }
                filled.push((pass, Vec::new()));
            }
        }
        packed.states *= block;
        let mut workers = vec![(); threads.count()];
        threads.for_each_chunk(&mut workers, &mut filled, 1, |(), _, pass| {
            pass[0].1 = pass[0].0.values(block);
        });
        packed.values = filled.into_iter().flat_map(|(_, values)| values).collect();
        packed.shapes.sort_by_key(|shape| shape.index());
        packed
    }
}

/// Returns the branches of a level, each with its best number of lanes.
fn rows<'a>(
    plan: &'a Plan,
    level: usize,
    limits: &Limits,
    row: &dyn Fn(usize, usize) -> usize,
) -> Vec<Row<'a>> {
    let here = |branch: &&Branch| branch.halvings as usize == level && !branch.filters.is_empty();
    let tap = |filter: &'a Filter| Tap {
        filter,
        back: filter.delay as usize + plan.alignment(level),
        long: scaled::has_long_memory(filter),
    };
    let branches = plan.options().templates.iter().enumerate();
    let branches = branches.filter_map(|(at, template)| {
        template.branches.iter().find(here).map(|branch| (at, branch))
    });
    let mut rows: Vec<Row<'_>> = branches
        .map(|(at, branch)| {
            let mut taps: Vec<Tap<'_>> = branch.filters.iter().map(tap).collect();
            taps.sort_by_key(|tap| (tap.long, tap.back));
            Row { row: row(level, at), taps, lanes: 0 }
        })
        .collect();
    let templates = rows.len();
    for row in &mut rows {
        row.lanes = lanes(row, templates, limits);
    }
    rows
}

/// Returns the number of lanes that finishes first if the device runs `templates` templates like this one.
fn lanes(row: &Row<'_>, templates: usize, limits: &Limits) -> usize {
    let busy_warps = busy_warps(limits);
    let time = |lanes: usize| {
        let each: f64 = passes(&[&row.taps], lanes, 0, limits).iter().map(Pass::cost).sum();
        each * ((templates * lanes) as f64 / 32.0 / busy_warps).max(1.0)
    };
    let times = LANES.map(|lanes| (lanes, time(lanes)));
    let best = times.iter().min_by(|a, b| a.1.total_cmp(&b.1));
    best.map_or(LANES[0], |best| best.0)
}

/// Returns the number of warps, those of lower rates weighted by their share of the samples.
fn warps(levels: &[Vec<Row<'_>>]) -> f64 {
    let warps = |rows: &Vec<Row<'_>>| rows.iter().map(|row| row.lanes).sum::<usize>() as f64 / 32.0;
    levels.iter().enumerate().map(|(level, rows)| warps(rows) / f64::from(1 << level)).sum()
}

/// Returns the number of warps that keep the device busy.
fn busy_warps(limits: &Limits) -> f64 {
    (limits.multiprocessors * 8) as f64
}

/// Returns the threads of a block, no more than fill the device.
fn block(warps: f64, limits: &Limits) -> usize {
    let each = (warps / limits.multiprocessors as f64).ceil() as usize;
    32 * each.next_power_of_two().clamp(2, 8)
}

/// Returns rows of equal lanes in the order in which units take them. Rows that need the same passes may swap
/// positions if no window becomes much longer.
fn ordered<'b, 'a>(
    rows: &'b [Row<'a>],
    of_unit: usize,
    level: usize,
    limits: &Limits,
) -> Vec<&'b Row<'a>> {
    let counts: Vec<Vec<i32>> = rows.iter().map(|row| near_counts(&row.taps, row.lanes)).collect();
    let mut groups = Groups::new(&counts, 32 / rows[0].lanes);
    let mut begin = 0;
    let long = |row: &Row<'_>| row.taps.partition_point(|tap| !tap.long);
    for run in rows.chunk_by(|a, b| (a.taps.len(), long(a)) == (b.taps.len(), long(b))) {
        let taps: Vec<&[Tap<'_>]> = run.iter().map(|row| &row.taps[..]).collect();
        if share_windows(&taps, of_unit, level, limits) {
            let of_each = counts[begin].len().max(1) * run.len();
            groups.even(begin..begin + run.len(), (SWEEP / of_each).clamp(UNIT_PARTNERS, 96));
        }
        begin += run.len();
    }
    groups.order().into_iter().map(|at| &rows[at]).collect()
}

/// Builds a unit of these rows; consecutive rows share a warp.
fn unit<'a>(level: usize, rows: &[&Row<'a>], block: usize, limits: &Limits) -> Unit<'a> {
    let lanes = rows[0].lanes;
    let taps: Vec<&[Tap<'a>]> = rows.iter().map(|row| &row.taps[..]).collect();
    let mut passes = passes(&taps, lanes, level, limits);
    let of = |at: usize| passes.iter().flat_map(|pass| pass.counts(at)).collect();
    let counts: Vec<Vec<i32>> = (0..rows.len()).map(of).collect();
    let mut groups = Groups::new(&counts, 32 / lanes);
    groups.even(0..rows.len(), UNIT_PARTNERS);
    let order = groups.order();
    passes.iter_mut().for_each(|pass| pass.reorder(&order));
    let mut own: Vec<i32> = order.into_iter().map(|at| rows[at].row as i32).collect();
    own.resize(block / lanes, -1);
    let cost = passes.iter().map(Pass::cost).sum::<f64>() / f64::from(1 << level);
    Unit { level, lanes, rows: own, passes, cost }
}
