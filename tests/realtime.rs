//! A stage's `run` does not allocate after warm-up, on one thread and on two.
//!
//! One test holds all cases: a second one, started while the first counts, would be counted too.

#[path = "common/counting.rs"]
mod counting;

use counting::{Counting, assert_quiet, requests_during};
use sidereal::backend::Backend;
use sidereal::backend::threads::Threads;
use sidereal::sample::{Encoding, Samples};
use sidereal::units::{Band, DM_CONSTANT};
use sidereal::view::{Plane, PlaneMut};
use sidereal::{clean, dedisperse, single_pulse};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const CHANNELS: usize = 64;
const TIMES: usize = 4096;
const TRIALS: usize = 40;

#[test]
fn warm_stages_ask_for_no_memory() {
    assert!(requests_during(|| drop(vec![0u8; 64])) > 0, "the counter counts");
    for count in [1, 2] {
        the_pool(count);
        for backend in Backend::available(count) {
            if matches!(backend, Backend::Reference) {
                continue;
            }
            for encoding in [Encoding::U2, Encoding::U8, Encoding::I16, Encoding::F32] {
                dedispersion(&backend, encoding);
            }
            pulse_search(&backend, true);
            pulse_search(&backend, false);
            for encoding in [Encoding::U2, Encoding::U8, Encoding::F32] {
                cleaning(&backend, encoding, false);
                cleaning(&backend, encoding, true);
            }
        }
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

/// Bytes without a simple pattern; as floats they are finite.
fn noise(bytes: usize) -> Vec<u8> {
    let mut state = 1u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8 & 0x3f
    };
    (0..bytes).map(|_| next()).collect()
}

fn dedispersion(backend: &Backend, encoding: Encoding) {
    let options = dedisperse::Options {
        band: Band::uniform(1500.0, -4.0, CHANNELS).unwrap(),
        tsamp_s: 1e-3,
        dms: (0..TRIALS).map(|trial| trial as f64 * 2.0).collect(),
        downsample: 2,
        encoding,
        range: None,
        masked: Vec::new(),
        dm_constant: DM_CONSTANT,
    };
    let plan = dedisperse::Plan::new(options).unwrap();
    let stride = plan.max_output(TIMES);
    let mut stage = dedisperse::Dedisperser::new(plan, backend).unwrap();
    let rows = noise(TIMES * CHANNELS * encoding.bits() / 8);
    let (mut integers, mut floats) = (vec![0i32; TRIALS * stride], vec![0f32; TRIALS * stride]);
    let name = format!("dedispersion of {encoding:?} on {}", backend.name());
    let mut produced = 0;
    assert_quiet(&name, 3, 5, || {
        let input = Samples::new(&rows, encoding, TIMES, CHANNELS).unwrap();
        let output = if encoding == Encoding::F32 {
            dedisperse::Output::F32(PlaneMut::new(&mut floats, TRIALS, stride).unwrap())
        } else {
            dedisperse::Output::I32(PlaneMut::new(&mut integers, TRIALS, stride).unwrap())
        };
        produced += stage.run(input, output).unwrap().produced;
    });
    assert!(produced > 0, "{name}: nothing was done");
}

fn pulse_search(backend: &Backend, is_integer: bool) {
    let options = single_pulse::Options {
        dms: (0..TRIALS).map(|trial| trial as f64).collect(),
        tsamp_s: 1e-3,
        max_width_s: 0.05,
        baseline_s: 1.0,
        snr: 3.5,
        bound: is_integer.then_some((0, 64)),
    };
    let plan = single_pulse::Plan::new(options).unwrap();
    let mut stage = single_pulse::Detector::new(plan, backend).unwrap();
    let integers: Vec<i32> = noise(TRIALS * TIMES).into_iter().map(i32::from).collect();
    let floats: Vec<f32> = integers.iter().map(|x| *x as f32).collect();
    let mut events = Vec::with_capacity(1 << 20);
    let mut found = 0;
    let name = format!("pulse search (integer: {is_integer}) on {}", backend.name());
    assert_quiet(&name, 3, 5, || {
        let input = if is_integer {
            single_pulse::Input::I32(Plane::new(&integers, TRIALS, TIMES, TIMES).unwrap())
        } else {
            single_pulse::Input::F32(Plane::new(&floats, TRIALS, TIMES, TIMES).unwrap())
        };
        events.clear();
        stage.run(input, &mut events).unwrap();
        found += events.len();
    });
    assert!(found > 0, "{name}: nothing was found");
}

fn cleaning(backend: &Backend, encoding: Encoding, is_masked: bool) {
    let intervals = vec![vec![], vec![1, 2], vec![7], vec![]];
    let mask = clean::TimeMask { interval_times: 5000, first_time: 0, intervals };
    let options = clean::Options {
        channels: CHANNELS,
        encoding,
        zero_dm: true,
        masked: Vec::new(),
        time_mask: is_masked.then_some(mask),
    };
    let plan = clean::Plan::new(options).unwrap();
    let mut output = vec![0; TIMES * plan.output_row_bytes()];
    let mut stage = clean::Cleaner::new(plan, backend).unwrap();
    let rows = noise(TIMES * CHANNELS * encoding.bits() / 8);
    let name = format!("cleaning of {encoding:?} (masked: {is_masked}) on {}", backend.name());
    assert_quiet(&name, 2, 4, || {
        let input = Samples::new(&rows, encoding, TIMES, CHANNELS).unwrap();
        assert_eq!(stage.run(input, &mut output).unwrap().produced, TIMES);
    });
}
