//! The filters and the peak search on a GPU are queued without memory allocation.
//!
//! One test holds all cases: a second one, started while the first counts, would be counted too.

#[path = "common/counting.rs"]
mod counting;
#[path = "common/cuda.rs"]
mod cuda;

use counting::{Counting, assert_quiet};
use num_complex::Complex;
use sidereal::backend::Backend;
use sidereal::backend::cuda::Buffer;
use sidereal::backend::threads::Threads;
use sidereal::spiir::trigger::{self, Autocorrelation, DeviceRatios, Finder, TriggerOptions};
use sidereal::spiir::{
    Branch, DeviceOutput, DeviceSamples, Filter, Options, Plan, Resampler, Spiir, Template,
};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const TEMPLATES: usize = 2;
/// Samples of a block.
const TIMES: usize = 256;
/// Between two peaks.
const APART: usize = 64;

fn plan() -> Plan {
    let filter = |index: usize| Filter {
        a: Complex::from_polar((-1.0 / (9.0 + index as f32)).exp(), 0.07 * index as f32),
        b: Complex::new(0.1, 0.3 - 0.1 * index as f32),
        delay: 40 * index as u32,
    };
    let branch = |halvings| Branch { halvings, filters: (0..5).map(filter).collect() };
    let template = Template { branches: (0..2).map(branch).collect() };
    let resampler = Resampler::linear_phase(48, 32, 80.0);
    let templates = vec![template; TEMPLATES];
    Plan::new(Options { rate_hz: 4096, templates, resampler }).expect("a plan")
}

fn shape() -> Autocorrelation {
    let value = |m: i32| Complex::new(0.5_f32.powi(m.abs()), 0.0);
    Autocorrelation::new((-20..=20).map(value).collect())
}

#[test]
fn a_search_asks_for_no_memory() {
    let Some(device) = cuda::device() else { return };
    let stream = device.stream().expect("a stream");
    let backend = Backend::Cuda(device.clone(), Threads::new(1));
    let mut spiir = Spiir::new(plan(), &backend).expect("bound");
    let input = device.upload(&[0.5; TIMES]).expect("room");
    let mut output: Buffer<Complex<f32>> = device.buffer(TEMPLATES * TIMES).expect("room");
    assert_quiet("filters", 2, 6, || {
        let samples = DeviceSamples { buffer: &input, first: 0, times: TIMES };
        let rows = DeviceOutput { buffer: &mut output, first: 0, stride: TIMES };
        spiir.enqueue(samples, rows, &stream).expect("queued");
    });
    let options =
        TriggerOptions { rate_hz: 1000, threshold: 4.0, window_s: 0.02, gate_pad_s: 0.01 };
    let plan = trigger::Plan::new(options, vec![shape(); TEMPLATES]).expect("a plan");
    let mut finder = Finder::new(plan, &backend).expect("made");
    let peak = |k: usize| Complex::new(if k % APART == 5 { 9.0 } else { 0.1 }, 0.0);
    let z: Vec<Complex<f32>> = (0..TEMPLATES * TIMES).map(peak).collect();
    let z = device.upload(&z).expect("room");
    let (mut triggers, mut found) = (Vec::with_capacity(4096), 0);
    assert_quiet("the search for peaks", 6, 6, || {
        triggers.clear();
        let rows = DeviceRatios { z: &z, stride: TIMES, times: TIMES };
        finder.enqueue(rows, &[true; TIMES], &mut triggers, &stream).expect("queued");
        found += triggers.len();
    });
    assert!(found >= 6 * TEMPLATES * TIMES / APART, "{found} triggers");
    stream.synchronize().expect("done");
}
