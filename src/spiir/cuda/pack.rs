//! Packs the filters of a plan into units and builds the tables for the kernel.

use super::super::plan::{Branch, Filter, Plan};
use super::assign::Groups;
use super::kernels::{LANES, Shape};
use super::passes::{Limits, Pass, Tap, has_long_memory, near_counts, passes, share_windows};
use crate::backend::threads::Threads;

/// Most blocks that split the samples of a launch.
const MAX_PARTS: f64 = 8.0;

/// Bank-group counts that the sweeps of template swaps of all groups may inspect.
const SWEEP: usize = 1 << 22;
/// Swap partners tried per template within a unit.
const UNIT_PARTNERS: usize = 8;

/// Filters of one template at one rate: short memories before long ones, each in order of delay.
#[derive(Debug)]
struct Row<'a> {
    /// Place of the template in the bank.
    template: usize,
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
    /// Builds the tables of a plan; `row` maps a level and a template's place in the bank to the row of sums. Lanes,
    /// parts and blocks are those of all the bank's templates, so that parts of a plan sum in the same order as all of it.
    pub(super) fn new(
        plan: &Plan,
        limits: &Limits,
        row: &dyn Fn(usize, usize) -> usize,
        threads: &Threads,
    ) -> Self {
        let levels: Vec<Vec<Row<'_>>> =
            (0..plan.levels()).map(|level| rows(plan, level, limits)).collect();
        let warps = warps(&levels);
        let parts = (busy_warps(limits) / 2.0 / warps).floor().clamp(1.0, MAX_PARTS) as usize;
        let block = block(warps * parts as f64, limits);
        let sweep = SWEEP / plan.all_groups();
        let mut units = Vec::new();
        for (level, mut rows) in levels.into_iter().enumerate() {
            for group in plan.groups() {
                let place = |end: usize| rows.partition_point(|row| row.template < end);
                let own = place(group.start)..place(group.end);
                let rows = &mut rows[own];
                rows.sort_by_key(|row| (row.lanes, std::cmp::Reverse(row.taps.len())));
                for alike in rows.chunk_by(|a, b| a.lanes == b.lanes) {
                    let templates = block / alike[0].lanes;
                    let alike = ordered(alike, templates, level, limits, sweep);
                    for some in alike.chunks(templates) {
                        units.push(unit(level, some, block, limits, row));
                    }
                }
            }
        }
        units.sort_by(|a, b| b.cost.total_cmp(&a.cost));
        Self::of(&units, block, parts, threads)
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

    fn of(units: &[Unit<'_>], block: usize, parts: usize, threads: &Threads) -> Self {
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

/// Returns the branches that all the bank's templates have at a level, each with its best number of lanes.
fn rows<'a>(plan: &'a Plan, level: usize, limits: &Limits) -> Vec<Row<'a>> {
    let here = |branch: &&Branch| branch.halvings as usize == level && !branch.filters.is_empty();
    let tap = |filter: &'a Filter| Tap {
        filter,
        back: filter.delay as usize + plan.alignment(level),
        long: has_long_memory(filter),
    };
    let branches = plan.options().templates.iter().enumerate();
    let branches = branches.filter_map(|(at, template)| {
        template.branches.iter().find(here).map(|branch| (at, branch))
    });
    let mut rows: Vec<Row<'_>> = branches
        .map(|(at, branch)| {
            let mut taps: Vec<Tap<'_>> = branch.filters.iter().map(tap).collect();
            taps.sort_by_key(|tap| (tap.long, tap.back));
            Row { template: at, taps, lanes: 0 }
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

/// Returns the threads per block, 64 to 256: no more than give every multiprocessor a block.
fn block(warps: f64, limits: &Limits) -> usize {
    let each = (warps / limits.multiprocessors as f64).ceil() as usize;
    32 * each.next_power_of_two().clamp(2, 8)
}

/// Returns rows of equal lanes in the order in which units take them. Rows that need the same passes may swap
/// positions if no window becomes much longer; `sweep` bounds the bank-group counts that a sweep inspects.
fn ordered<'b, 'a>(
    rows: &'b [Row<'a>],
    of_unit: usize,
    level: usize,
    limits: &Limits,
    sweep: usize,
) -> Vec<&'b Row<'a>> {
    let counts: Vec<Vec<i32>> = rows.iter().map(|row| near_counts(&row.taps, row.lanes)).collect();
    let mut groups = Groups::new(&counts, 32 / rows[0].lanes);
    let mut begin = 0;
    let long = |row: &Row<'_>| row.taps.partition_point(|tap| !tap.long);
    for run in rows.chunk_by(|a, b| (a.taps.len(), long(a)) == (b.taps.len(), long(b))) {
        let taps: Vec<&[Tap<'_>]> = run.iter().map(|row| &row.taps[..]).collect();
        if share_windows(&taps, of_unit, level, limits) {
            let of_each = counts[begin].len().max(1) * run.len();
            groups.even(begin..begin + run.len(), (sweep / of_each).clamp(UNIT_PARTNERS, 96));
        }
        begin += run.len();
    }
    groups.order().into_iter().map(|at| &rows[at]).collect()
}

/// Builds a unit of these rows, of which `row` returns the rows of sums; consecutive rows share a warp.
fn unit<'a>(
    level: usize,
    rows: &[&Row<'a>],
    block: usize,
    limits: &Limits,
    row: &dyn Fn(usize, usize) -> usize,
) -> Unit<'a> {
    let lanes = rows[0].lanes;
    let taps: Vec<&[Tap<'a>]> = rows.iter().map(|row| &row.taps[..]).collect();
    let mut passes = passes(&taps, lanes, level, limits);
    let of = |at: usize| passes.iter().flat_map(|pass| pass.counts(at)).collect();
    let counts: Vec<Vec<i32>> = (0..rows.len()).map(of).collect();
    let mut groups = Groups::new(&counts, 32 / lanes);
    groups.even(0..rows.len(), UNIT_PARTNERS);
    let order = groups.order();
    passes.iter_mut().for_each(|pass| pass.reorder(&order));
    let mut own: Vec<i32> =
        order.into_iter().map(|at| row(level, rows[at].template) as i32).collect();
    own.resize(block / lanes, -1);
    let cost = passes.iter().map(Pass::cost).sum::<f64>() / f64::from(1 << level);
    Unit { level, lanes, rows: own, passes, cost }
}

#[cfg(test)]
mod tests {
    use num_complex::Complex;

    use super::super::super::plan::{Options, Resampler, Template};
    use super::*;

    const LIMITS: Limits = Limits { multiprocessors: 132, shared_bytes: 227 << 10, piece: 4096 };

    /// Slot as the kernel reads it.
    struct Slot {
        level: usize,
        /// Row of its template's sums.
        row: i32,
        /// Real part of its pole; 0 for an empty slot.
        a: f32,
        place: u32,
        /// Samples from its input to the end of the window's history.
        back: u32,
    }

    /// Returns all slots; each group of eight belongs to lanes that load at once.
    fn slots(packed: &Packed) -> Vec<Slot> {
        let (block, shapes) = (packed.threads, Shape::all());
        let mut slots = Vec::new();
        for &[level, lanes, pass, passes, row, part] in &packed.units {
            // Blocks that split a launch's samples have the same filters.
            if part & 0xffff > 0 {
                continue;
            }
            let templates = 32 / lanes as usize;
            for &[shape, values, _, reach, pitch, _] in
                &packed.passes[pass as usize..][..passes as usize]
            {
                let Shape { filters, long, .. } = shapes[shape as usize];
                let count = if long { 12 } else { 6 };
                for (filter, thread) in (0..filters).flat_map(|f| (0..block).map(move |t| (f, t))) {
                    let value = |at: usize| {
                        packed.values[(values as usize + filter * count + at) * block + thread]
                    };
                    let place = value(count - 1).to_bits();
                    let row = row as usize + thread / 32 * templates + thread % templates;
                    slots.push(Slot {
                        level: level as usize,
                        row: packed.rows[row],
                        a: value(0),
                        place,
                        back: reach - place % pitch - place / pitch,
                    });
                }
            }
        }
        slots
    }

    fn packed(plan: &Plan, threads: usize) -> Packed {
        let row = |level: usize, at: usize| 10_000 * level + at;
        Packed::new(plan, &LIMITS, &row, &Threads::new(threads))
    }

    /// Returns the wavefronts per load of a warp (4 at least), with less weight for lower rates. Lanes that read the
    /// same address share a wavefront.
    fn wavefronts(plan: &Plan) -> f64 {
        let (mut all, mut loads) = (0.0, 0.0);
        for octet in slots(&packed(plan, 2)).chunks(8) {
            let mut places: Vec<u32> = octet.iter().map(|slot| slot.place).collect();
            places.sort_unstable();
            places.dedup();
            let of = |bank: u32| places.iter().filter(|place| *place / 4 % 8 == bank).count();
            let part = 1.0 / f64::from(1u32 << octet[0].level);
            all += part * (0..8).map(of).max().unwrap_or(0) as f64;
            loads += part / 4.0;
        }
        all / loads
    }

    /// Pseudorandom numbers below 1.
    struct Random(u64);

    impl Random {
        fn unit(&mut self) -> f64 {
            self.0 =
                self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
            (self.0 >> 11) as f64 / (1u64 << 53) as f64
        }
    }

    fn plan(templates: Vec<Template>) -> Plan {
        let resampler = Resampler::default();
        Plan::new(Options { rate_hz: 4096, templates, resampler }).expect("a plan")
    }

    fn filter(delay: u32, memory: f64) -> Filter {
        let a = Complex::from_polar((-1.0 / memory).exp() as f32, 0.1);
        Filter { a, b: Complex::new(0.1, 0.2), delay }
    }

    /// Returns templates whose filters lie within two seconds.
    fn near(templates: usize, filters: usize, rates: u32) -> Plan {
        let mut random = Random(7);
        let mut branch = |halvings: u32| {
            let mut one = |_| filter((8192.0 * random.unit()) as u32 >> halvings, 100.0);
            Branch { halvings, filters: (0..filters / rates as usize).map(&mut one).collect() }
        };
        let template = |_| Template { branches: (0..rates).map(&mut branch).collect() };
        plan((0..templates).map(template).collect())
    }

    /// Returns templates of chirps; each filter is at the lowest rate that holds its frequency.
    fn chirps(templates: usize, filters: usize, rates: u32) -> Plan {
        let mut random = Random(7);
        let count = filters as f64;
        let length = 61.8 * 4096.0 * (count / 386.0).powf(3.2);
        let mut template = |_| {
            let mut branches: Vec<Branch> =
                (0..rates).map(|halvings| Branch { halvings, filters: Vec::new() }).collect();
            for index in 0..filters {
                let part = (index as f64 + 1.0) / count;
                let delay = length * part.powf(3.2);
                let memory = (12.8 * delay / (part * count)).max(4.0);
                let frequency = (0.12 * (64.0 / (delay + 1.0)).powf(0.375)).min(0.25);
                let cycles = frequency * (0.98 + 0.04 * random.unit());
                let halvings = ((1.0 / (2.6 * cycles)).log2().max(0.0) as u32).min(rates - 1);
                let step = f64::from(1u32 << halvings);
                let delay = (delay * (0.98 + 0.02 * random.unit()) / step).ceil();
                branches[halvings as usize].filters.push(filter(delay as u32, memory / step));
            }
            branches.retain(|branch| !branch.filters.is_empty());
            Template { branches }
        };
        plan((0..templates).map(&mut template).collect())
    }

    #[test]
    fn loads_take_few_turns() {
        // `before`: wavefronts without exchanges of templates and with greedy assignment of filters to lanes.
        for (filters, rates, before, most) in [
            // Below 4.4 in one group of all templates; groups cost 2 % of the rate on an H200.
            (4, 1, 8.7, 4.75),
            (8, 1, 8.5, 4.9),
            (12, 1, 6.8, 4.05),
            (16, 1, 7.3, 4.6),
            (50, 1, 5.4, 4.05),
            (64, 1, 5.5, 4.4),
            (128, 8, 7.3, 4.6),
        ] {
            let found = wavefronts(&near(4096, filters, rates));
            assert!(found < most, "{filters} filters, {rates} rates: {found:.2}, once {before}");
        }
        for (filters, rates, before, most) in [(84, 4, 4.7, 4.45), (256, 1, 5.6, 5.1)] {
            let found = wavefronts(&chirps(2048, filters, rates));
            assert!(
                found < most,
                "chirps, {filters} filters, {rates} rates: {found:.2}, once {before}"
            );
        }
    }

    /// Returns templates with different numbers of filters, some with long memories or large delays; all poles differ.
    fn mixed() -> Plan {
        let mut random = Random(3);
        let mut poles = 0;
        let mut branch = |halvings: u32, filters: usize| {
            let mut one = |_| {
                poles += 1;
                let long = random.unit() < 0.1;
                let memory = if long { 9000.0 } else { 50.0 };
                let length = if random.unit() < 0.1 { 40_000.0 } else { 4000.0 };
                let mut one = filter((length * random.unit()) as u32, memory);
                let part = f64::from(poles) / 65_536.0;
                one.a.re = if long { 0.9 + 0.01 * part } else { 0.5 + 0.1 * part } as f32;
                one.a.im = if long {
                    (1.0f64 - 1e-5 - f64::from(one.a.re).powi(2)).sqrt() as f32
                } else {
                    0.1
                };
                one
            };
            Branch { halvings, filters: (0..filters).map(&mut one).collect() }
        };
        let template = |at: usize| Template {
            branches: vec![
                branch(0, 1 + at % 7),
                branch(1, if at.is_multiple_of(3) { 5 } else { 20 + at % 2 }),
            ],
        };
        plan((0..700).map(template).collect())
    }

    #[test]
    fn tables_hold_each_filter_once_at_its_template_and_its_delay() {
        for plan in [mixed(), near(300, 4, 1), near(90, 40, 3)] {
            let mut expected = Vec::new();
            for (at, template) in plan.options().templates.iter().enumerate() {
                for branch in &template.branches {
                    let level = branch.halvings as usize;
                    let alignment = plan.alignment(level) as u32;
                    expected.extend(branch.filters.iter().map(|filter| {
                        (
                            (10_000 * level + at) as i32,
                            filter.a.re.to_bits(),
                            filter.delay + alignment,
                        )
                    }));
                }
            }
            let filled = |slot: &Slot| slot.a != 0.0;
            let found = slots(&packed(&plan, 1)).into_iter().filter(filled);
            let mut found: Vec<(i32, u32, u32)> =
                found.map(|slot| (slot.row, slot.a.to_bits(), slot.back)).collect();
            expected.sort_unstable();
            found.sort_unstable();
            assert!(found == expected, "{} filters, {} expected", found.len(), expected.len());
        }
    }

    #[test]
    fn tables_are_the_same_for_any_number_of_threads() {
        let plan = mixed();
        let (one, three) = (packed(&plan, 1), packed(&plan, 3));
        assert_eq!(
            (&one.units, &one.passes, &one.rows),
            (&three.units, &three.passes, &three.rows)
        );
        assert_eq!(one.values, three.values);
    }
}
