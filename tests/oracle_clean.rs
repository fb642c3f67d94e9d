//! Every backend cleans like the reference.

#[path = "common/random.rs"]
mod random;

use proptest::prelude::*;
use random::Random;
use sidereal::backend::Backend;
use sidereal::clean::{Cleaner, Options, Plan, TimeMask};
use sidereal::sample::{Encoding, Samples};

/// Cleans in blocks of random lengths; the output starts dirty.
fn clean(plan: &Plan, backend: &Backend, input: Samples<'_>, random: &mut Random) -> Vec<u8> {
    let mut cleaner = Cleaner::new(plan.clone(), backend).unwrap();
    let bytes = plan.output_row_bytes();
    let mut output = vec![0xa5; bytes * input.times()];
    let mut start = 0;
    while start < input.times() {
        let times = 1 + random.below(input.times() - start);
        let room = &mut output[start * bytes..][..bytes * (1 + random.below(times))];
        let progress = cleaner.run(input.slice(start, times), room).unwrap();
        assert_eq!(progress.consumed, room.len() / bytes);
        start += progress.consumed;
    }
    output
}

/// Cleans `times` rows of 8 `octets` channels in encoding `which`; with zero-DM, masked channels and masked cells.
fn check(
    seed: u64,
    (octets, times): (usize, usize),
    which: usize,
    (zero_dm, with_mask, with_times): (bool, bool, bool),
) {
    let mut random = Random::new(seed);
    let (encoding, channels) = (Encoding::ALL[which], 8 * octets);
    let mut bytes: Vec<u8> =
        (0..times * channels * encoding.bits() / 8).map(|_| random.bits() as u8).collect();
    if encoding == Encoding::F32 {
        for value in bytes.chunks_exact_mut(4) {
            value.copy_from_slice(&((random.gaussian() * 100.0) as f32).to_le_bytes());
        }
    }
    let masked = (0..if with_mask { channels } else { 0 }).map(|_| random.below(4) == 0).collect();
    let time_mask = with_times.then(|| TimeMask {
        first_time: 0,
        interval_times: 1 + random.below(90),
        intervals: (0..5)
            .map(|_| (0..channels as u32).filter(|_| random.below(5) == 0).collect())
            .collect(),
    });
    let plan = Plan::new(Options { channels, encoding, zero_dm, masked, time_mask }).unwrap();
    let input = Samples::new(&bytes, encoding, times, channels).unwrap();
    let truth = clean(&plan, &Backend::Reference, input, &mut random);
    let out = plan.output_encoding();
    let mut first: Option<Vec<u8>> = None;
    for backend in Backend::available(2).into_iter().skip(1) {
        let found = clean(&plan, &backend, input, &mut random);
        assert_eq!(first.get_or_insert_with(|| found.clone()), &found);
        if encoding != Encoding::F32 {
            assert_eq!(&found, &truth, "{} {:?}", backend.name(), plan);
        }
        let (found, truth) = (
            Samples::new(&found, out, times, channels).unwrap(),
            Samples::new(&truth, out, times, channels).unwrap(),
        );
        for time in 0..times {
            for channel in 0..channels {
                let (x, y) = (found.value(time, channel), truth.value(time, channel));
                assert!((x - y).abs() <= 1e-4, "{x} {y}");
                let (low, high) = plan.output_range().unwrap_or((i32::MIN, i32::MAX));
                assert!((f64::from(low)..=f64::from(high)).contains(&x));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn rows_equal_the_reference(
        seed in any::<u64>(), octets in 1usize..40, times in 1usize..300, which in 0usize..8,
        zero_dm in any::<bool>(), with_mask in any::<bool>(), with_times in any::<bool>(),
    ) {
        check(seed, (octets, times), which, (zero_dm, with_mask, with_times));
    }
}

/// A few cases for slow checkers of device memory: whole warps of rows and channels, and a remainder of each.
#[test]
fn fixed_subset_clean() {
    for which in [0, 3, 6, 7] {
        check(which as u64, (5, 43), which, (true, true, true));
        check(which as u64, (5, 11), which, (false, false, true));
    }
    check(9, (9, 21), 3, (true, false, false));
}
