//! The fewest filter banks that run every part of a GPU's filters, for tools that slow them down.

#[path = "common/cuda.rs"]
mod cuda;
#[path = "common/random.rs"]
mod random;

use num_complex::Complex;
use random::Random;
use sidereal::backend::Backend;
use sidereal::spiir::{Branch, Filter, Options, Plan, Resampler, Spiir, Template};

fn filter(random: &mut Random, memory: f64, longest: u64) -> Filter {
    let angle = 3.0 * (random.bits() % 1000) as f64 / 1000.0 - 1.5;
    let a = Complex::from_polar((-1.0 / memory).exp(), angle);
    let b = Complex::from_polar(0.1 / memory.sqrt(), (random.bits() % 7) as f64);
    let single = |x: Complex<f64>| Complex::new(x.re as f32, x.im as f32);
    Filter { a: single(a), b: single(b), delay: (random.bits() % longest) as u32 }
}

/// Templates with these numbers of filters at each rate.
fn templates(
    random: &mut Random,
    sizes: &[(usize, u32)],
    (memory, longest): (f64, u64),
) -> Vec<Template> {
    let template = |&(filters, rates): &(usize, u32)| {
        let mut branch = |halvings| {
            let filters = (0..filters).map(|_| filter(random, memory, longest)).collect();
            Branch { halvings, filters }
        };
        Template { branches: (0..rates).map(&mut branch).collect() }
    };
    sizes.iter().map(template).collect()
}

fn plan(templates: Vec<Template>) -> Plan {
    let resampler = Resampler::linear_phase(48, 32, 80.0);
    Plan::new(Options { rate_hz: 4096, templates, resampler }).expect("a plan")
}

/// Blocks of these lengths in turn, equal for every backend.
fn filtered(plan: &Plan, backend: &Backend, input: &[f32], blocks: &[usize]) -> Vec<Complex<f32>> {
    collect(&mut Spiir::new(plan.clone(), backend).expect("bound"), input, blocks)
}

fn collect(spiir: &mut Spiir, input: &[f32], blocks: &[usize]) -> Vec<Complex<f32>> {
    let stride = blocks.iter().max().expect("blocks") + 1;
    let mut output = vec![Complex::default(); spiir.plan().templates() * stride];
    let (mut all, mut left, mut turn) = (Vec::new(), input, blocks.iter().cycle());
    while !left.is_empty() {
        let (block, rest) = left.split_at(left.len().min(*turn.next().expect("endless")));
        let produced = spiir.run(block, &mut output, stride).expect("run").produced;
        for time in 0..produced {
            all.extend(output.chunks_exact(stride).map(|row| row[time]));
        }
        left = rest;
    }
    all
}

fn noise(random: &mut Random, samples: usize) -> Vec<f32> {
    (0..samples).map(|_| (random.bits() % 2001) as f32 / 1000.0 - 1.0).collect()
}

/// Noise, longer than the memory of the filters, and the reference output.
fn reference(random: &mut Random, plan: &Plan, samples: usize) -> (Vec<f32>, Vec<Complex<f32>>) {
    let input = noise(random, plan.latency() + samples);
    let expected = filtered(plan, &Backend::Reference, &input, &[input.len()]);
    (input, expected)
}

fn assert_close(found: &[Complex<f32>], expected: &[Complex<f32>], name: &str) {
    let power: f64 = expected.iter().map(|z| f64::from(z.norm_sqr())).sum();
    let size = (power / expected.len() as f64).sqrt();
    assert_eq!(found.len(), expected.len());
    for error in found.iter().zip(expected).map(|(x, y)| f64::from((x - y).norm())) {
        // NaN lies within no bound.
        assert!(error < 1e-5 * size, "{:.1e} on {name}", error / size);
    }
}

fn check(sizes: &[(usize, u32)], memory: f64, longest: u64) {
    let mut random = Random::new(17);
    let plan = plan(templates(&mut random, sizes, (memory, longest)));
    let (input, expected) = reference(&mut random, &plan, 600);
    for (backend, _) in &cuda::devices(1) {
        let found = filtered(&plan, backend, &input, &[333, 1, 16, 62]);
        assert_close(&found, &expected, &backend.name());
    }
}

/// Parts of a plan give the bits of the whole, on the processor and on a GPU, though its templates differ in filters, rates and
/// delays.
#[test]
fn parts_of_a_plan_filter_as_the_whole() {
    let mut random = Random::new(23);
    let sizes: Vec<(usize, u32)> = (0..1700)
        .map(|template| {
            (1 + template % 5, if template < 600 { 1 + template as u32 % 2 } else { 1 })
        })
        .collect();
    let plan = plan(templates(&mut random, &sizes, (30.0, 900)));
    let input = noise(&mut random, plan.latency() + 400);
    let devices = cuda::devices(2);
    let on_gpus = devices.iter().map(|(backend, _)| backend.clone());
    for backend in std::iter::once(Backend::best(2)).chain(on_gpus) {
        let expected = filtered(&plan, &backend, &input, &[200]);
        for count in [2, 3] {
            let parts = plan.parts(count);
            assert_eq!(parts.len(), count);
            for part in parts {
                let found = filtered(&part, &backend, &input, &[200]);
                let rows = expected.chunks_exact(plan.templates());
                let own: Vec<Complex<f32>> =
                    rows.flat_map(|row| row[part.range()].to_vec()).collect();
                assert!(found == own, "{:?} on {}", part.range(), backend.name());
            }
        }
    }
}

#[test]
fn fixed_subset_spiir() {
    check(&[(3, 1), (4, 1), (1, 1), (9, 1), (40, 1), (150, 1)], 80.0, 900);
}

#[test]
fn fixed_subset_long_memories() {
    check(&[(5, 1), (70, 1)], 9000.0, 20_000);
}

#[test]
fn fixed_subset_rates() {
    check(&[(6, 3), (2, 1), (17, 2)], 300.0, 200);
}

/// Launches so long that several blocks share the input of a lower rate, down to rates of few samples; and rates
/// without filters.
#[test]
fn fixed_subset_rates_in_long_blocks() {
    let mut random = Random::new(41);
    let mut all = templates(&mut random, &[(2, 8), (3, 4), (1, 1)], (60.0, 100));
    let apart = [0, 3, 5]
        .map(|halvings| Branch { halvings, filters: vec![filter(&mut random, 60.0, 100)] });
    all.push(Template { branches: apart[1..].to_vec() });
    all.push(Template { branches: apart.to_vec() });
    let plan = plan(all);
    let (input, expected) = reference(&mut random, &plan, 5000);
    for (backend, _) in &cuda::devices(1) {
        let whole = filtered(&plan, backend, &input, &[input.len()]);
        let bits = |all: &[Complex<f32>]| -> Vec<[u32; 2]> {
            all.iter().map(|z| [z.re.to_bits(), z.im.to_bits()]).collect()
        };
        assert_close(&whole, &expected, &backend.name());
        for blocks in [&[4096, 1, 777][..], &[2500], &[15, 3000, 64]] {
            let found = filtered(&plan, backend, &input, blocks);
            assert_eq!(bits(&found), bits(&whole), "{blocks:?} on {}", backend.name());
        }
    }
}

/// Short memories of 8 and 16 filters per thread for any number of threads per template, long memories, and two
/// rates.
#[test]
fn fixed_subset_splits_resets_and_what_is_not_finite() {
    let mut random = Random::new(29);
    let mut all = templates(&mut random, &[(200, 1), (400, 1), (9, 2)], (80.0, 900));
    all.extend(templates(&mut random, &[(5, 1), (70, 1)], (9000.0, 900)));
    let plan = plan(all);
    let samples = plan.latency() + 700;
    let mut zeroed = noise(&mut random, samples);
    let mut input = zeroed.clone();
    let bad = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY];
    for (at, bad) in [0, 331, 600].into_iter().zip(bad) {
        (input[at], zeroed[at]) = (bad, 0.0);
    }
    for (backend, _) in &cuda::devices(1) {
        let mut spiir = Spiir::new(plan.clone(), backend).expect("bound");
        let whole = collect(&mut spiir, &zeroed, &[samples]);
        assert_eq!(whole.len(), 700 * plan.templates());
        assert!(whole.iter().all(|z| z.is_finite()) && whole.iter().any(|z| z.norm() > 0.1));
        for blocks in [&[samples][..], &[333, 1, 16, 62], &[7, 500, 3]] {
            spiir.reset();
            let split = collect(&mut spiir, &input, blocks);
            let differ = split.iter().zip(&whole).position(|(x, y)| x != y);
            assert_eq!((split.len(), differ), (whole.len(), None), "blocks of {blocks:?}");
        }
    }
}
