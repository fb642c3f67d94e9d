//! Which filters go where: units of templates, and their passes over filters whose inputs lie near each other.

use super::super::plan::{Branch, Filter, Plan};
use super::assign::{Place, Warp};
use super::scaled::{self, Scaled};
use super::shape::{LANES, Shape};
use crate::backend::threads::Threads;

/// Values of a slot: a filter's, and the place of its input.
const VALUES: [usize; 2] = [scaled::SHORT_VALUES + 1, scaled::LONG_VALUES + 1];
/// Fewest samples of tiles that a window is for.
const LEAST_CHUNK: usize = 1024;
/// Samples of a window that are read ahead.
const AHEAD: usize = 8;
/// Most blocks that share the samples of a launch.
const MOST_PARTS: f64 = 8.0;
/// Instructions of another pass for a sample, about.
const PASS: f64 = 6.0;

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

/// A filter, and how far back its input lies.
#[derive(Clone, Copy, Debug)]
struct Tap<'a> {
    filter: &'a Filter,
    back: usize,
    long: bool,
}

/// The filters of one template at one rate, those that reach back least first.
#[derive(Debug)]
struct Row<'a> {
    /// Where its sums go.
    row: usize,
    taps: Vec<Tap<'a>>,
    lanes: usize,
}

/// One pass of a unit: its filters by template.
#[derive(Debug)]
struct Pass<'a> {
    shape: Shape,
    taps: Vec<Vec<Tap<'a>>>,
    reach: usize,
    pitch: usize,
    chunk: usize,
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
                units.extend(alike.chunks(templates).map(|some| unit(level, some, block, limits)));
            }
        }
        units.sort_by(|a, b| b.cost.total_cmp(&a.cost));
        Self::of(&units, (block, parts), threads)
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
                values += shape.filters * VALUES[usize::from(shape.long)];
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
        let passes = passes(std::slice::from_ref(row), lanes, 0, limits);
        let each: f64 = passes.iter().map(|pass| pass.shape.cost() + PASS).sum();
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

fn unit<'a>(level: usize, rows: &[Row<'a>], block: usize, limits: &Limits) -> Unit<'a> {
    let lanes = rows[0].lanes;
    let passes = passes(rows, lanes, level, limits);
    let mut own: Vec<i32> = rows.iter().map(|row| row.row as i32).collect();
    own.resize(block / lanes, -1);
    let cost = passes.iter().map(|pass| pass.shape.cost() + PASS).sum::<f64>();
    let cost = cost / f64::from(1 << level);
    Unit { level, lanes, rows: own, passes, cost }
}

/// The passes over the filters of some templates, by windows that hold the inputs of all.
fn passes<'a>(rows: &[Row<'a>], lanes: usize, level: usize, limits: &Limits) -> Vec<Pass<'a>> {
    let capacity = limits.shared_bytes / 16 - AHEAD;
    let wanted = ((limits.piece >> level) + 2 * scaled::TILE).next_multiple_of(scaled::TILE);
    let span = capacity - LEAST_CHUNK.min(wanted) - 8;
    let mut passes = Vec::new();
    for long in [true, false] {
        let mut left: Vec<&[Tap<'a>]> = rows
            .iter()
            .map(|row| {
                let short = row.taps.partition_point(|tap| !tap.long);
                if long { &row.taps[short..] } else { &row.taps[..short] }
            })
            .collect();
        while let Some(least) =
            left.iter().filter_map(|taps| taps.first()).map(|tap| tap.back).min()
        {
            let take = |taps: &mut &[Tap<'a>]| {
                let (now, rest) =
                    taps.split_at(taps.partition_point(|tap| tap.back <= least + span));
                *taps = rest;
                now.to_vec()
            };
            let taken: Vec<Vec<Tap<'a>>> = left.iter_mut().map(take).collect();
            let farthest = taken.iter().flatten().map(|tap| tap.back).max().unwrap_or(least);
            let reach = farthest.next_multiple_of(4);
            let room = (capacity - (reach - least) - 4) / scaled::TILE * scaled::TILE;
            let chunk = wanted.min(room);
            let pitch = (reach - least + chunk + AHEAD).next_multiple_of(4);
            let most = taken.iter().map(Vec::len).max().unwrap_or(0);
            let mut from = 0;
            for shape in Shape::passes(most, lanes, long) {
                let to = from + shape.slots();
                let part =
                    |taps: &Vec<Tap<'a>>| taps[from.min(taps.len())..to.min(taps.len())].to_vec();
                let taps = taken.iter().map(part).collect();
                passes.push(Pass { shape, taps, reach, pitch, chunk });
                from = to;
            }
        }
    }
    passes
}

impl Pass<'_> {
    /// The values of all slots: axes filter of a thread, value, thread.
    fn values(&self, block: usize) -> Vec<f32> {
        let Self { shape, reach, pitch, .. } = *self;
        let count = VALUES[usize::from(shape.long)];
        let mut values = vec![0.0; shape.filters * count * block];
        let templates = 32 / shape.lanes;
        let place = |tap: &Tap<'_>| Place::new(reach - tap.back, pitch);
        for warp in 0..block / 32 {
            let own = |template: usize| self.taps.get(warp * templates + template);
            let places: Vec<Vec<Place>> = (0..templates)
                .map(|template| {
                    own(template).map_or(Vec::new(), |taps| taps.iter().map(place).collect())
                })
                .collect();
            for slot in Warp::new(shape.filters, shape.lanes, &places).assign() {
                let at = slot.filter * count * block + warp * 32 + slot.lane;
                let mut set = |value: usize, x: f32| values[at + value * block] = x;
                set(count - 1, f32::from_bits(slot.place.0));
                if let Some((template, index)) = slot.of {
                    let filter = self.taps[warp * templates + template][index].filter;
                    let own = Scaled::new(filter).values(filter);
                    own[..count - 1].iter().enumerate().for_each(|(value, x)| set(value, *x));
                }
            }
        }
        values
    }
}
