//! The fewest banks that go through every part of a GPU's filters, for tools that slow them down.

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

/// Templates of these numbers of filters at each rate.
fn plan(random: &mut Random, sizes: &[(usize, u32)], memory: f64, longest: u64) -> Plan {
    let template = |&(filters, rates): &(usize, u32)| {
        let mut branch = |halvings| {
            let filters = (0..filters).map(|_| filter(random, memory, longest)).collect();
            Branch { halvings, filters }
        };
        Template { branches: (0..rates).map(&mut branch).collect() }
    };
    let templates = sizes.iter().map(template).collect();
    let resampler = Resampler::linear_phase(48, 32, 80.0);
    Plan::new(Options { rate_hz: 4096, templates, resampler }).expect("a plan")
}

/// Blocks of these lengths in turn, all the same for every backend.
fn filtered(plan: &Plan, backend: &Backend, input: &[f32], blocks: &[usize]) -> Vec<Complex<f32>> {
    let mut spiir = Spiir::new(plan.clone(), backend).expect("bound");
    let stride = blocks.iter().max().expect("blocks") + 1;
    let mut output = vec![Complex::default(); plan.templates() * stride];
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

fn check(sizes: &[(usize, u32)], memory: f64, longest: u64) {
    let mut random = Random::new(17);
    let plan = plan(&mut random, sizes, memory, longest);
    let samples = plan.latency() + 600;
    let input: Vec<f32> =
        (0..samples).map(|_| (random.bits() % 2001) as f32 / 1000.0 - 1.0).collect();
    let expected = filtered(&plan, &Backend::Reference, &input, &[samples]);
    let power: f64 = expected.iter().map(|z| f64::from(z.norm_sqr())).sum();
    let size = (power / expected.len() as f64).sqrt();
    for backend in Backend::available(1).iter().filter(|backend| backend.is_gpu()) {
        let found = filtered(&plan, backend, &input, &[333, 1, 16, 62]);
        assert_eq!(found.len(), expected.len());
        let errors = found.iter().zip(&expected).map(|(x, y)| f64::from((x - y).norm()));
        let worst = errors.fold(0.0, f64::max) / size;
        assert!(worst < 1e-5, "{worst:.1e} on {}", backend.name());
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
