//! Every backend's events equal the reference's.

#[path = "common/random.rs"]
mod random;

use proptest::prelude::*;
use random::Random;
use sidereal::backend::Backend;
use sidereal::single_pulse::{Detector, Event, Input, Options, Plan};
use sidereal::view::Plane;

const CASES: u32 = 24;

fn options(dms: usize, widest: usize, snr: f64, bound: Option<(i64, i64)>) -> Options {
    Options {
        dms: (0..dms).map(|dm| dm as f64).collect(),
        tsamp_s: 1.0,
        max_width_s: widest as f64,
        baseline_s: 1024.0,
        snr,
        bound,
    }
}

/// Noise with pulses, ramps and constant stretches.
fn series(random: &mut Random, times: usize, sigma: f64, bound: (i64, i64)) -> Vec<i32> {
    let mean = (bound.0 as f64 + bound.1 as f64) / 2.0;
    let mut row: Vec<f64> = (0..times).map(|_| mean + sigma * random.gaussian()).collect();
    for _ in 0..times / 700 {
        let (start, width) = (random.below(times), 1 + random.below(120));
        let height = sigma * (random.uniform() * 12.0 - 2.0);
        row[start..(start + width).min(times)].iter_mut().for_each(|y| *y += height);
    }
    if times > 0 && random.below(3) == 0 {
        let start = random.below(times);
        row[start..(start + 1500).min(times)].fill(mean);
    }
    let whole = |y: &f64| y.round().clamp(bound.0 as f64, bound.1 as f64) as i32;
    row.iter().map(whole).collect()
}

trait Series: Copy + Default {
    fn input(plane: Plane<'_, Self>) -> Input<'_>;
}

impl Series for i32 {
    fn input(plane: Plane<'_, Self>) -> Input<'_> {
        Input::I32(plane)
    }
}

impl Series for f32 {
    fn input(plane: Plane<'_, Self>) -> Input<'_> {
        Input::F32(plane)
    }
}

/// Searches rows in blocks of random lengths; trial `dm` ends at `valid[dm]`.
fn search<T: Series>(
    plan: &Plan,
    backend: &Backend,
    rows: &[Vec<T>],
    valid: &[u64],
    splits: &mut dyn FnMut(usize) -> usize,
) -> Vec<Event> {
    let mut detector = Detector::new(plan.clone(), backend).unwrap();
    let mut events = Vec::new();
    let (mut start, times) = (0, rows[0].len());
    detector.end_at(&|dm| valid[dm]);
    while start < times {
        let length = splits(times - start);
        let stride = length + 3;
        let mut block = vec![T::default(); stride * rows.len()];
        for (dm, row) in rows.iter().enumerate() {
            block[dm * stride..][..length].copy_from_slice(&row[start..start + length]);
        }
        let plane = Plane::new(&block, rows.len(), stride, length).unwrap();
        let progress = detector.run(T::input(plane), &mut events).unwrap();
        assert_eq!(progress.consumed, length);
        start += length;
    }
    detector.flush(&|dm| valid[dm], &mut events).unwrap();
    events.sort_by_key(|event| (event.dm, event.time));
    events
}

/// Checks that a peek after any block finds what the end of the stream there would, and that the search goes on as if
/// there had been none.
fn check_peeks<T: Series>(seed: u64, rows: &[Vec<T>], plan: &Plan) {
    let times = rows[0].len();
    for backend in Backend::available(2) {
        let mut random = Random::new(seed);
        let mut detector = Detector::new(plan.clone(), &backend).unwrap();
        let (mut start, mut events, mut peeked) = (0, Vec::new(), 0);
        while start < times {
            let end = start + 1 + random.below((times - start).min(900));
            let now: Vec<_> = rows.iter().map(|row| row[..end].to_vec()).collect();
            let block: Vec<T> = now.iter().flat_map(|row| &row[start..]).copied().collect();
            let plane = Plane::new(&block, rows.len(), end - start, end - start).unwrap();
            detector.run(T::input(plane), &mut events).unwrap();
            start = end;
            if random.below(3) > 0 {
                let mut all = events.clone();
                detector.peek(&mut all).unwrap();
                all.sort_by_key(|event| (event.dm, event.time));
                let ends = vec![end as u64; rows.len()];
                let mut truth = search(plan, &backend, &now, &ends, &mut |left| left);
                if 2 * end < plan.window_times() {
                    truth.clear();
                }
                assert_eq!(all, truth, "{} of {times}, {end} of {plan:?}", backend.name());
                peeked += all.len() - events.len();
            }
        }
        let ends = vec![times as u64; rows.len()];
        detector.flush(&|_| times as u64, &mut events).unwrap();
        events.sort_by_key(|event| (event.dm, event.time));
        assert_eq!(events, search(plan, &backend, rows, &ends, &mut |left| left));
        assert!(peeked > 0, "no peek of {} found an event", backend.name());
    }
}

fn check_integers(seed: u64, times: usize, widest: usize, range: u32) {
    let mut random = Random::new(seed);
    let half = (1i64 << range) - 1;
    let offset = random.below(1 << 12) as i64;
    let bound = ((offset - half).max(-(1 << 31)), (offset + half).min((1 << 31) - 1));
    let sigma = [0.3, 1.0, 30.0, half as f64 / 20.0][random.below(4)];
    let dms = 1 + random.below(3);
    let rows: Vec<_> = (0..dms).map(|_| series(&mut random, times, sigma, bound)).collect();
    let valid: Vec<_> = (0..dms).map(|_| (times - random.below(times.min(900))) as u64).collect();
    let plan = Plan::new(options(dms, widest, 4.0, Some(bound))).unwrap();
    let all = |left| left;
    let truth = search(&plan, &Backend::Reference, &rows, &valid, &mut { all });
    for backend in Backend::available(2) {
        let mut splits = |left: usize| 1 + random.below((times / 3).min(left));
        let found = search(&plan, &backend, &rows, &valid, &mut splits);
        assert_eq!(found, truth, "{} {plan:?}", backend.name());
    }
}

fn check_floats(seed: u64, times: usize, widest: usize) {
    let mut random = Random::new(seed);
    let rows: Vec<Vec<f32>> = (0..2)
        .map(|_| {
            let row = series(&mut random, times, 900.0, (-(1 << 20), 1 << 20));
            let mut row: Vec<f32> = row.iter().map(|y| 0.37 * *y as f32).collect();
            row[random.below(times)] = [f32::NAN, f32::INFINITY, 0.0][random.below(3)];
            row
        })
        .collect();
    let valid = [times as u64, (times - random.below(times)) as u64];
    compare_floats(&mut random, &rows, &valid, widest);
}

/// Events of floats are those of the reference, and the same bits on every other backend.
fn compare_floats(random: &mut Random, rows: &[Vec<f32>], valid: &[u64], widest: usize) {
    let plan = Plan::new(options(rows.len(), widest, 4.5, None)).unwrap();
    let truth = search(&plan, &Backend::Reference, rows, valid, &mut |left| left);
    let found = same_floats(random, rows, valid, widest);
    assert_eq!(found.len(), truth.len());
    for (found, truth) in found.iter().zip(&truth) {
        assert_eq!((found.dm, found.time, found.width), (truth.dm, truth.time, truth.width));
        assert!((found.snr - truth.snr).abs() < 1e-4 * truth.snr);
    }
}

/// The events of floats: the same bits on every backend but the reference.
fn same_floats(random: &mut Random, rows: &[Vec<f32>], valid: &[u64], widest: usize) -> Vec<Event> {
    let times = rows[0].len();
    let plan = Plan::new(options(rows.len(), widest, 4.5, None)).unwrap();
    let mut first: Option<Vec<Event>> = None;
    for backend in Backend::available(2).into_iter().skip(1) {
        let mut splits = |left: usize| 1 + random.below((times / 3).min(left));
        let found = search(&plan, &backend, rows, valid, &mut splits);
        let first = first.get_or_insert_with(|| found.clone());
        assert_eq!(first, &found, "{}", backend.name());
    }
    first.expect("there is a processor")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: CASES, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn integer_events_equal_the_reference(
        seed in any::<u64>(), times in 1usize..7000, widest in 1usize..130, range in 1u32..32,
    ) {
        check_integers(seed, times, widest, range);
    }

    #[test]
    fn float_events_equal_for_any_split_and_agree_with_the_reference(
        seed in any::<u64>(), times in 1usize..6000, widest in 1usize..100,
    ) {
        check_floats(seed, times, widest);
    }
}

#[test]
fn a_peek_finds_what_the_end_would_find_and_changes_nothing() {
    for seed in 0..6 {
        let mut random = Random::new(seed);
        let (times, bound) = (6000 + random.below(3000), (-4000, 4000));
        let widest = [3, 60, 200][random.below(3)];
        let rows: Vec<_> = (0..2).map(|_| series(&mut random, times, 200.0, bound)).collect();
        let plan = Plan::new(options(2, widest, 4.0, Some(bound))).unwrap();
        check_peeks(seed, &rows, &plan);
        let floats = |row: &Vec<i32>| row.iter().map(|y| 0.37 * *y as f32).collect();
        let mut rows: Vec<Vec<f32>> = rows.iter().map(floats).collect();
        (0..5).for_each(|_| rows[1][random.below(times)] = f32::NAN);
        check_peeks(seed, &rows, &Plan::new(options(2, widest, 4.5, None)).unwrap());
    }
}

#[test]
fn the_widest_integers_do_not_overflow() {
    for (seed, range) in [(1, 31), (2, 30), (3, 22), (4, 19), (5, 16)] {
        check_integers(seed, 5000, 100, range);
    }
}

/// A few cases for slow checkers of device memory: whole tiles and windows, and a remainder of each.
#[test]
fn fixed_subset_pulse() {
    check_integers(6, 5000, 100, 18);
    check_integers(7, 1500, 20, 31);
    check_floats(8, 5000, 100);
}

#[test]
fn boxcars_that_no_tile_holds_are_found() {
    check_integers(9, 20_000, 700, 19);
}

#[test]
fn floats_wider_than_a_tile_are_found() {
    check_floats(10, 40_000, 2100);
}

/// At the start of a window, a NaN sample takes the mean of the previous window.
#[test]
fn floats_that_are_no_numbers_may_lie_anywhere() {
    let mut random = Random::new(11);
    let times = 9 * 1024 + 300;
    let mut rows = Vec::new();
    for dm in 0..3 {
        let row = series(&mut random, times, 900.0, (-(1 << 20), 1 << 20));
        let mut row: Vec<f32> = row.iter().map(|y| 0.37 * *y as f32 + 1e4).collect();
        for window in 0..times / 1024 {
            row[window * 1024 + 5 * dm] = f32::NAN;
            row[window * 1024 + random.below(1024)] = f32::NEG_INFINITY;
        }
        if dm == 2 {
            row[3 * 1024..4 * 1024].fill(f32::NAN);
        }
        rows.push(row);
    }
    compare_floats(&mut random, &rows, &[times as u64; 3], 40);
}

/// Sums in single precision are too coarse for these.
#[test]
fn floats_may_be_of_any_size() {
    let mut random = Random::new(12);
    let times = 6 * 1024 + 50;
    let mut rows = Vec::new();
    for (offset, scale, spike) in [(1e12, 1e5, 0.0), (3.0, 1e-20, 1e9), (0.0, 1e3, 3e38)] {
        let row = series(&mut random, times, 900.0, (-(1 << 20), 1 << 20));
        let mut row: Vec<f32> = row.iter().map(|y| scale * *y as f32 + offset).collect();
        for place in [100, 3000, 3100] {
            row[place] += spike;
            row[place + 30] -= spike;
        }
        rows.push(row);
    }
    // The reference sums each boxcar separately: it loses no precision after a spike.
    let found = same_floats(&mut random, &rows, &[times as u64; 3], 60);
    assert!(found.len() > 3, "{}", found.len());
}

#[test]
fn samples_past_the_end_of_a_trial_are_void() {
    let mut random = Random::new(7);
    let bound = (0, 2000);
    let mut row = series(&mut random, 9000, 20.0, bound);
    let plan = Plan::new(options(1, 30, 5.0, Some(bound))).unwrap();
    let backend = Backend::best(1);
    let all = |left| left;
    let short = vec![row[..5000].to_vec()];
    let truth = search(&plan, &backend, &short, &[5000], &mut { all });
    row[5000..].fill(0);
    let found = search(&plan, &backend, &[row.clone()], &[5000], &mut { all });
    assert_eq!(found, truth);

    let mut detector = Detector::new(plan, &backend).unwrap();
    let plane = Plane::new(&row, 1, row.len(), row.len()).unwrap();
    detector.run(Input::I32(plane), &mut Vec::new()).unwrap();
    assert!(detector.flush(&|_| 5000, &mut Vec::new()).is_err());
}

#[test]
fn a_detector_refuses_what_the_plan_does_not_name() {
    let plan = Plan::new(options(2, 30, 5.0, None)).unwrap();
    let mut detector = Detector::new(plan, &Backend::best(1)).unwrap();
    let plane = Plane::new(&[0i32; 8], 2, 4, 4).unwrap();
    assert!(detector.run(Input::I32(plane), &mut Vec::new()).is_err());
    let plane = Plane::new(&[0f32; 8], 1, 8, 8).unwrap();
    assert!(detector.run(Input::F32(plane), &mut Vec::new()).is_err());
}
