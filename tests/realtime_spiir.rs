//! The filter bank does not allocate, on one thread and on three.
//!
//! One test holds all cases: a second one, started while the first counts, would be counted too.

#[path = "common/counting.rs"]
mod counting;

use counting::{Counting, assert_quiet};
use num_complex::Complex;
use sidereal::backend::Backend;
use sidereal::spiir::{Branch, Filter, Options, Plan, Resampler, Spiir, Template};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The most samples in a block.
const SAMPLES: usize = 3000;

#[test]
fn filtering_asks_for_no_memory() {
    for threads in [1, 3] {
        for backend in Backend::variants(threads).into_iter().skip(1) {
            start_threads(&backend);
            for (templates, filters, rates) in [(1, 1, 1), (21, 37, 1), (9, 18, 4)] {
                filter(&backend, &plan(templates, filters, rates));
            }
        }
    }
}

/// A thread that is still starting allocates: a call ends when all have worked.
fn start_threads(backend: &Backend) {
    let Backend::Cpu(_, threads) = backend else { return };
    let mut scratch = vec![(); threads.count()];
    threads.for_each_chunk(&mut scratch, &mut [0u8; 64], 1, |(), _, part| part[0] = 1);
}

fn plan(templates: usize, filters: usize, rates: u32) -> Plan {
    let filter = |index: usize| Filter {
        a: Complex::from_polar((-1.0 / (3.0 + 100.0 * index as f32)).exp(), 0.01 * index as f32),
        b: Complex::new(0.1, 0.2),
        delay: 50 * index as u32,
    };
    let branch = |halvings| Branch { halvings, filters: (0..filters).map(filter).collect() };
    let template = Template { branches: (0..rates).map(branch).collect() };
    let resampler = Resampler::linear_phase(48, 32, 80.0);
    let templates = vec![template; templates];
    Plan::new(Options { rate_hz: 4096, templates, resampler }).unwrap()
}

/// Blocks of all lengths, the stream's end, and another stream.
fn filter(backend: &Backend, plan: &Plan) {
    let name = format!("{} templates on {}", plan.templates(), backend.name());
    let input: Vec<f32> = (0..SAMPLES).map(|k| (k as f32).sin()).collect();
    let mut output = vec![Complex::default(); plan.templates() * SAMPLES];
    let mut spiir = Spiir::new(plan.clone(), backend).unwrap();
    let mut round = 0;
    assert_quiet(&name, 4, 8, || {
        round += 1;
        let samples = [SAMPLES, 1, 255, 0][round % 4];
        spiir.run(&input[..samples], &mut output, SAMPLES).unwrap();
        if round % 4 == 3 {
            spiir.flush(&mut output, SAMPLES).unwrap();
            spiir.reset();
        }
    });
}
