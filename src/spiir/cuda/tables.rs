//! Tests of the kernel's tables: each filter occurs once, and loads have few shared-memory bank conflicts.

use num_complex::Complex;

use super::super::plan::resample::Resampler;
use super::super::plan::{Branch, Filter, Options, Plan, Template};
use super::pack::Packed;
use super::passes::Limits;
use super::shape::Shape;
use crate::backend::threads::Threads;

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

/// Returns the wavefronts per load of a warp (4 at least), with less weight for lower rates. Lanes that read the same
/// address share a wavefront.
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
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
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
        (4, 1, 8.7, 4.4),
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
                    ((10_000 * level + at) as i32, filter.a.re.to_bits(), filter.delay + alignment)
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
    assert_eq!((&one.units, &one.passes, &one.rows), (&three.units, &three.passes, &three.rows));
    assert_eq!(one.values, three.values);
}
