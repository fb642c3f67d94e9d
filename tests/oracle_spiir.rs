//! Every variant of the filter bank against the reference, over random plans.

use num_complex::Complex;
use sidereal::backend::Backend;
use sidereal::spiir::{Branch, Filter, Options, Plan, Resampler, Spiir, Template};

/// Largest error relative to the rms of a template's SNR series.
const ERROR: f64 = 1e-5;

/// Value of the guard elements of an output.
const GUARD: Complex<f32> = Complex::new(-7e30, 3e-30);

/// Pseudorandom numbers.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 >> 11
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn unit(&mut self) -> f64 {
        self.next() as f64 / (1u64 << 53) as f64
    }

    /// Approximately normal, variance 1.
    fn normal(&mut self) -> f32 {
        ((0..12).map(|_| self.unit()).sum::<f64>() - 6.0) as f32
    }
}

/// A filter with this memory in samples.
fn filter(random: &mut Random, memory: f64, longest: u64) -> Filter {
    let a = Complex::from_polar((-1.0 / memory).exp(), 3.0 * (random.unit() - 0.5));
    let size = 0.1 / memory.sqrt();
    let b = Complex::from_polar(size * (0.5 + random.unit()), 6.3 * random.unit());
    let single = |x: Complex<f64>| Complex::new(x.re as f32, x.im as f32);
    Filter { a: single(a), b: single(b), delay: random.below(longest + 1) as u32 }
}

/// Templates of random sizes at random rates.
fn plan(random: &mut Random, most: u64, deepest: u64, memory: f64) -> Plan {
    let template = |random: &mut Random| {
        let mut branches = Vec::new();
        for halvings in 0..=deepest as u32 {
            let filters = if random.below(3) == 0 { 0 } else { 1 + random.below(most) };
            let filters = (0..filters).map(|_| {
                let memory = memory.powf(0.2 + 0.8 * random.unit());
                filter(random, memory, 3000 >> halvings)
            });
            let filters: Vec<Filter> = filters.collect();
            if halvings == 0 && deepest == 0 || !filters.is_empty() {
                branches.push(Branch { halvings, filters });
            }
        }
        Template { branches }
    };
    let templates = 1 + random.below(20);
    let templates = (0..templates).map(|_| template(random));
    let mut templates: Vec<Template> =
        templates.filter(|template| template.filters() > 0).collect();
    if templates.is_empty() {
        let filters = vec![filter(random, memory, 10)];
        templates.push(Template { branches: vec![Branch { halvings: deepest as u32, filters }] });
    }
    let resampler = match random.below(3) {
        0 => Resampler::default(),
        1 => Resampler::linear_phase(48, 32, 80.0),
        // Odd lengths, no symmetry.
        _ => Resampler {
            down: vec![0.1, 0.5, 0.3, 0.1, 0.05, -0.05, 0.0],
            down_delay: 2,
            up: vec![0.2, 0.9, 0.7, 0.3, -0.1],
            up_delay: 1,
        },
    };
    Plan::new(Options { rate_hz: 4096, templates, resampler }).expect("a plan")
}

/// Blocks of these lengths in turn, then the flush; outputs start dirty, with guards.
fn filtered(
    plan: &Plan,
    backend: &Backend,
    input: &[f32],
    blocks: &[usize],
) -> Vec<Vec<Complex<f32>>> {
    let mut spiir = Spiir::new(plan.clone(), backend).expect("bound");
    collect(&mut spiir, input, blocks)
}

fn collect(spiir: &mut Spiir, mut input: &[f32], blocks: &[usize]) -> Vec<Vec<Complex<f32>>> {
    let templates = spiir.plan().templates();
    let mut rows = vec![Vec::new(); templates];
    let stride = blocks.iter().max().expect("blocks") + 3;
    let mut output = vec![GUARD; templates * stride];
    let mut take = |output: &mut [Complex<f32>], produced: usize| {
        for (row, all) in output.chunks_exact_mut(stride).zip(&mut rows) {
            all.extend_from_slice(&row[..produced]);
            assert!(row[produced..].iter().all(|z| *z == GUARD), "written beyond the end");
            row[..produced].fill(GUARD);
        }
    };
    let mut turn = blocks.iter().cycle();
    while !input.is_empty() {
        let (block, rest) = input.split_at(input.len().min(*turn.next().expect("endless")));
        let progress = spiir.run(block, &mut output, stride).expect("run");
        assert_eq!(progress.consumed, block.len());
        take(&mut output, progress.produced);
        input = rest;
    }
    loop {
        let produced = spiir.flush(&mut output, stride).expect("flush");
        if produced == 0 {
            return rows;
        }
        take(&mut output, produced);
    }
}

fn noise(random: &mut Random, samples: usize) -> Vec<f32> {
    (0..samples).map(|_| random.normal()).collect()
}

/// The greater of two; NaN is kept, so that no bound holds for it.
fn greater(worst: f64, x: f64) -> f64 {
    if x > worst || x.is_nan() { x } else { worst }
}

/// The largest error of all templates, relative to the rms of a template's SNR series.
fn error(found: &[Vec<Complex<f32>>], expected: &[Vec<Complex<f32>>]) -> f64 {
    assert_eq!(found.len(), expected.len());
    let of_one = |(found, expected): (&Vec<Complex<f32>>, &Vec<Complex<f32>>)| {
        assert_eq!(found.len(), expected.len());
        let power: f64 = expected.iter().map(|z| f64::from(z.norm_sqr())).sum();
        let size = (power / expected.len() as f64).sqrt();
        let worst = found.iter().zip(expected).map(|(x, y)| f64::from((x - y).norm()));
        let worst = worst.fold(0.0, greater);
        // Delays longer than the data leave zeros, for which any error is too large.
        if worst == 0.0 { 0.0 } else { worst / size }
    };
    found.iter().zip(expected).map(of_one).fold(0.0, greater)
}

#[test]
fn what_is_no_number_is_an_error() {
    let row = |last: f32| vec![vec![Complex::new(1.0, 0.0), Complex::new(last, 0.0)]; 2];
    assert_eq!(error(&row(2.0), &row(2.0)), 0.0);
    let mut found = row(f32::NAN);
    assert!(error(&found, &row(2.0)).is_nan());
    found[1] = row(2.0).swap_remove(0);
    assert!(error(&found, &row(2.0)).is_nan(), "a good template hides no bad one");
    let zeros = vec![vec![Complex::default(); 2]];
    assert_eq!(error(&zeros, &zeros), 0.0);
    assert!(error(&[row(2.0).swap_remove(0)], &zeros) > ERROR);
}

#[test]
fn all_variants_equal_the_reference() {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for round in 0..8 {
        let deepest = [0, 4, 1, 0, 2, 3, 0, 4][round];
        let most = if round < 2 { 150 } else { 40 };
        let memory = [30.0, 300.0, 40_000.0][round % 3];
        let plan = plan(&mut random, most, deepest, memory);
        let samples = 1000 + random.below(3000) as usize;
        let input = noise(&mut random, samples);
        let expected = filtered(&plan, &Backend::Reference, &input, &[samples]);
        assert!(expected.iter().all(|row| row.len() == samples));
        for backend in Backend::available(1).iter().skip(1) {
            let found = filtered(&plan, backend, &input, &[samples]);
            let error = error(&found, &expected);
            assert!(error < ERROR, "round {round}, {}: {error:.2e}", backend.name());
        }
    }
}

#[test]
fn splits_and_threads_give_the_same_bits() {
    let mut random = Random(77);
    for deepest in [0, 4] {
        let plan = plan(&mut random, 40, deepest, 60_000.0);
        let input = noise(&mut random, 5000);
        for (alone, three) in Backend::available(1).iter().zip(Backend::available(3)).skip(1) {
            let whole = filtered(&plan, alone, &input, &[input.len()]);
            for blocks in [&[1, 7, 500, 16, 2, 1030, 3][..], &[256], &[1000]] {
                let split = filtered(&plan, &three, &input, blocks);
                assert_eq!(split, whole, "{} in blocks of {blocks:?}", three.name());
            }
        }
    }
}

#[test]
fn a_reset_forgets_everything() {
    let mut random = Random(4242);
    let plan = plan(&mut random, 30, 3, 50_000.0);
    let input = noise(&mut random, 3000);
    for backend in Backend::available(1).iter().skip(1) {
        let mut spiir = Spiir::new(plan.clone(), backend).expect("bound");
        let first = collect(&mut spiir, &input, &[700]);
        spiir.reset();
        assert_eq!(collect(&mut spiir, &input, &[512]), first, "{}", backend.name());
    }
}

#[test]
fn what_is_not_finite_counts_as_zero_and_leaves_no_trace() {
    let mut random = Random(99);
    let plan = plan(&mut random, 30, 2, 200.0);
    let mut input = noise(&mut random, 3000);
    let mut zeroed = input.clone();
    for (at, bad) in
        [(0, f32::NAN), (17, f32::INFINITY), (1023, f32::NEG_INFINITY), (1024, f32::NAN)]
    {
        (input[at], zeroed[at]) = (bad, 0.0);
    }
    for backend in Backend::available(1) {
        let found = filtered(&plan, &backend, &input, &[600]);
        assert_eq!(found, filtered(&plan, &backend, &zeroed, &[600]), "{}", backend.name());
        assert!(found.iter().flatten().all(|z| z.re.is_finite() && z.im.is_finite()));
    }
}

#[test]
fn silence_ends_in_zeros_without_denormal_numbers() {
    let mut random = Random(5);
    let memories = [1.5, 8.0, 40.0];
    let filters = memories.map(|memory| filter(&mut random, memory, 9)).to_vec();
    let templates = vec![Template { branches: vec![Branch { halvings: 0, filters }] }; 5];
    let plan = Options { rate_hz: 4096, templates, resampler: Resampler::default() };
    let plan = Plan::new(plan).expect("a plan");
    let mut input = noise(&mut random, 200);
    input.resize(8000, 0.0);
    for backend in Backend::available(1).iter().skip(1) {
        let rows = filtered(&plan, backend, &input, &[input.len()]);
        let odd = |x: f32| x.is_subnormal() || x.is_nan();
        assert!(!rows.iter().flatten().any(|z| odd(z.re) || odd(z.im)), "{}", backend.name());
        assert!(rows.iter().all(|row| row[7000..].iter().all(|z| *z == Complex::default())));
    }
}
