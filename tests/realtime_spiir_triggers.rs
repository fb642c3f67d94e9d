//! The trigger search does not allocate after its longest block.

#[path = "common/counting.rs"]
mod counting;
#[path = "common/random.rs"]
mod random;

use counting::{Counting, assert_quiet};
use num_complex::Complex;
use random::Random;
use sidereal::backend::Backend;
use sidereal::spiir::trigger::{Autocorrelation, Finder, Plan, Ratios, TriggerOptions};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn a_warm_search_asks_for_no_memory() {
    let (templates, times) = (5, 700);
    let value = |m: i32| Complex::from_polar((-0.02 * f32::from(m as i16).powi(2)).exp(), 0.1);
    let mut values: Vec<_> = (-50..=50).map(value).collect();
    values[50] = Complex::new(1.0, 0.0);
    let shapes = vec![Autocorrelation::new(values); templates];
    let options = TriggerOptions { threshold: 2.0, gate_pad_s: 0.01, ..TriggerOptions::new(2048) };
    let plan = Plan::new(options, shapes).expect("a plan");
    let mut finder = Finder::new(plan, &Backend::best(1)).expect("a finder");
    let mut random = Random::new(1);
    let mut normal = || random.gaussian() as f32;
    let z: Vec<_> = (0..templates * times).map(|_| Complex::new(normal(), normal())).collect();
    let mut valid = vec![true; times];
    valid[5] = false;
    let mut triggers = Vec::with_capacity(10_000);
    let mut found = 0;
    // A long warm-up: the thread that started this test allocates meanwhile.
    std::thread::sleep(std::time::Duration::from_millis(200));
    assert_quiet("search for triggers", 300, 30, || {
        triggers.clear();
        for count in [times, 100] {
            let ratios = Ratios { z: &z, stride: times, times: count };
            finder.run(ratios, &valid[..count], &mut triggers).expect("run");
        }
        found += triggers.len();
    });
    assert!(found > 100, "{found}");
}
