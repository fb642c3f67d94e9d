//! A stage's `run` asks for no memory once it is warm, on one thread and on two.
//!
//! One test holds all cases: a second one, started while the first counts, would be counted too.

#[path = "common/counting.rs"]
mod counting;

use counting::{Counting, assert_quiet, requests_during};
use sidereal::backend::threads::Threads;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn warm_stages_ask_for_no_memory() {
    assert!(requests_during(|| drop(vec![0u8; 64])) > 0, "the counter counts");
    for threads in [1, 2] {
        the_pool(threads);
    }
}

fn the_pool(count: usize) {
    let threads = Threads::new(count);
    let mut scratch = vec![0u64; threads.count()];
    let mut data = vec![1u32; 10_000];
    assert_quiet(&format!("threads x{count}"), 2, 100, || {
        threads.for_each_chunk(&mut scratch, &mut data, 64, |own, _, part| {
            *own += part.iter().map(|x| u64::from(*x)).sum::<u64>();
        });
    });
}
