//! Which filters go where: units of templates, and what they are given.

use super::super::plan::{Branch, Filter, Plan};
use super::group::Groups;
use super::passes::{Pass, Tap, near_counts, passes, share_windows};
use super::scaled;
use super::shape::{LANES, Shape};
use crate::backend::threads::Threads;

/// Most blocks that share the samples of a launch.
const MOST_PARTS: f64 = 8.0;

/// Counts of banks that may be looked at in a sweep over templates that change places.
const SWEEP: usize = 1 << 22;
/// Templates of a unit that each is tried with.
const UNIT_PARTNERS: usize = 8;

/// What a kernel's blocks are made for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Multiprocessors of the device.
    pub(super) multiprocessors: usize,
    /// Bytes of a block's shared memory.
    pub(super) shared_bytes: usize,
    /// Most samples of the full rate in one launch.
    pub(super) piece: usize,
}

/// The filters of one template at one rate, those that reach back least first.
#[derive(Debug)]
struct Row<'a> {
    /// Where its sums go.
    row: usize,
    taps: Vec<Tap<'a>>,
    lanes: usize,
}

/// Templates that a block works on.
#[derive(Debug)]
struct Unit<'a> {
    level: usize,
    lanes: usize,
    rows: Vec<i32>,
    passes: Vec<Pass<'a>>,
    cost: f64,
}

/// The tables of a plan, as the kernel reads them.
#[derive(Debug, Default)]
pub(super) struct Packed {
    /// Threads of a block.
    pub(super) threads: usize,
    /// Bytes of its shared memory.
    pub(super) shared_bytes: usize,
    /// Bodies that passes have, each once.
    pub(super) shapes: Vec<Shape>,
    pub(super) units: Vec<[u32; 6]>,
    pub(super) passes: Vec<[u32; 6]>,
    pub(super) rows: Vec<i32>,
    pub(super) values: Vec<f32>,
    /// States of all slots.
    pub(super) states: usize,
}

impl Packed {
    /// The tables of a plan; `row` says where the sums of a template at a level go.
    pub(super) fn new(
        plan: &Plan,
        limits: &Limits,
        row: &dyn Fn(usize, usize) -> usize,
        threads: &Threads,
    ) -> Self {
        let levels: Vec<Vec<Row<'_>>> =
            (0..plan.levels()).map(|level| rows(plan, level, limits, row)).collect();
        let warps = warps(&levels);
        let parts = (busy(limits) / 2.0 / warps).floor().clamp(1.0, MOST_PARTS) as usize;
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

    /// Whether sums of a template are added to those of an earlier pass.
    pub(super) fn adds(&self) -> bool {
        self.units.iter().any(|unit| unit[3] > 1)
    }

    /// What the speed of a way to run these tables depends on.
    pub(super) fn words(&self) -> String {
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

/// The branches of a level, each with as many lanes as serve it best.
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

/// The lanes with which a device that has so many templates like this one is done first.
fn lanes(row: &Row<'_>, templates: usize, limits: &Limits) -> usize {
    let busy = busy(limits);
    let time = |lanes: usize| {
        let each: f64 = passes(&[&row.taps], lanes, 0, limits).iter().map(Pass::cost).sum();
        each * ((templates * lanes) as f64 / 32.0 / busy).max(1.0)
    };
    let times = LANES.map(|lanes| (lanes, time(lanes)));
    let best = times.iter().min_by(|a, b| a.1.total_cmp(&b.1));
    best.map_or(LANES[0], |best| best.0)
}

/// Warps that work on all samples; those of lower rates count less.
fn warps(levels: &[Vec<Row<'_>>]) -> f64 {
    let warps = |rows: &Vec<Row<'_>>| rows.iter().map(|row| row.lanes).sum::<usize>() as f64 / 32.0;
    levels.iter().enumerate().map(|(level, rows)| warps(rows) / f64::from(1 << level)).sum()
}

/// Warps that keep a device busy.
fn busy(limits: &Limits) -> f64 {
    (limits.multiprocessors * 8) as f64
}

/// Threads of a block: no more than fill the device.
fn block(warps: f64, limits: &Limits) -> usize {
    let each = (warps / limits.multiprocessors as f64).ceil() as usize;
    32 * each.next_power_of_two().clamp(2, 8)
}

/// Rows that have as many lanes each, in the order that units take them: those that ask for the same passes may change places
/// where that makes no window much longer.
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

/// A unit of these rows: a warp's stand together.
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
