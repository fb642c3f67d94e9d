//! Searching and cleaning allocate nothing once they are warm.

#[path = "common/random.rs"]
mod random;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use random::Random;
use sidereal::array::Plane;
use sidereal::backend::Backend;
use sidereal::clean::{Cleaner, TimeMask};
use sidereal::pulse::{Detector, Input};
use sidereal::sample::{Encoding, Samples};
use sidereal::{clean, pulse};

struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: hands every call on to the system's allocator.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Allocations of a call.
fn count(work: impl FnOnce()) -> usize {
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    work();
    ALLOCATIONS.load(Ordering::Relaxed) - before
}

#[test]
fn a_warm_stream_allocates_nothing() {
    let mut random = Random::new(1);
    let (dms, times) = (6, 9000);
    let data: Vec<i32> =
        (0..dms * times).map(|_| (5000.0 + 100.0 * random.gaussian()) as i32).collect();
    let floats: Vec<f32> = data.iter().map(|x| *x as f32).collect();
    for bound in [Some((0, 100_000)), None] {
        let options = pulse::Options {
            dms: vec![0.0; dms],
            tsamp_s: 1e-3,
            max_width_s: 0.1,
            baseline_s: 2.0,
            snr: 4.0,
            bound,
        };
        let plan = pulse::Plan::new(options).unwrap();
        let mut detector = Detector::new(plan, &Backend::best(2)).unwrap();
        let input = match bound {
            Some(_) => Input::I32(Plane::new(&data, dms, times, times).unwrap()),
            None => Input::F32(Plane::new(&floats, dms, times, times).unwrap()),
        };
        let mut events = Vec::with_capacity(1 << 16);
        detector.run(input, &mut events).unwrap();
        let allocations = count(|| {
            for _ in 0..5 {
                detector.run(input, &mut events).unwrap();
            }
        });
        assert!(!events.is_empty());
        assert_eq!(allocations, 0, "pulse search, bound {bound:?}");
    }

    let intervals = vec![vec![], vec![1, 2], vec![7], vec![]];
    for time_mask in [None, Some(TimeMask { interval_times: 500, first_time: 0, intervals })] {
        let options = clean::Options {
            channels: 64,
            encoding: Encoding::U8,
            zero_dm: true,
            masked: vec![],
            time_mask,
        };
        let mut cleaner =
            Cleaner::new(clean::Plan::new(options).unwrap(), &Backend::best(2)).unwrap();
        let bytes: Vec<u8> = (0..64 * 400).map(|_| random.bits() as u8).collect();
        let mut output = vec![0; 2 * bytes.len()];
        let input = Samples::u8(&bytes, 400, 64).unwrap();
        cleaner.run(input, &mut output).unwrap();
        let allocations = count(|| {
            for _ in 0..5 {
                cleaner.run(input, &mut output).unwrap();
            }
        });
        assert_eq!(allocations, 0, "cleaning");
    }
}
