//! Dedispersion in real time: no allocation after warm-up.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use sidereal::backend::Backend;
use sidereal::dedisperse::{Dedisperser, Options, Output, Plan};
use sidereal::sample::{Encoding, Samples};
use sidereal::units::{Band, DM_CONSTANT};
use sidereal::view::PlaneMut;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

/// The system's allocator, counting.
struct Counting;

// SAFETY: every call is passed to the system's allocator unchanged.
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

#[test]
fn run_and_flush_allocate_nothing() {
    for (encoding, downsample) in [(Encoding::U8, 1), (Encoding::U2, 3), (Encoding::F32, 4)] {
        for threads in [1, 3] {
            // Threads that are still starting allocate; the warm-up starts all that work.
            let unused = if threads > 1 { 1 } else { 0 };
            let all = Backend::available(threads).into_iter().skip(unused);
            // An emulator's own work allocates.
            for backend in all.filter(|backend| !backend.name().contains("Emulated")) {
                check(encoding, downsample, &backend);
            }
        }
    }
}

fn check(encoding: Encoding, downsample: usize, backend: &Backend) {
    let channels = 72;
    let plan = Plan::new(Options {
        band: Band::uniform(1500.0, -4.0, channels).unwrap(),
        tsamp_s: 256e-6,
        dms: (0..20).map(f64::from).collect(),
        downsample,
        encoding,
        range: None,
        masked: Vec::new(),
        dm_constant: DM_CONSTANT,
    });
    let plan = plan.unwrap();
    let dms = plan.dms().len();
    let gulp = 900;
    let bytes = vec![0x55u8; gulp * channels * encoding.bits() / 8];
    let mut integers = vec![0i32; dms * gulp];
    let mut floats = vec![0f32; dms * gulp];
    let mut dedisperser = Dedisperser::new(plan, backend).unwrap();
    let mut before = 0;
    for round in 0..5 {
        if round == 1 {
            before = ALLOCATIONS.load(Ordering::Relaxed);
        }
        let times = gulp - 101 * round;
        let bytes = &bytes[..times * channels * encoding.bits() / 8];
        let input = Samples::new(bytes, encoding, times, channels).unwrap();
        let output = output(encoding, (&mut integers, &mut floats), dms, gulp);
        assert_eq!(dedisperser.run(input, output).unwrap().consumed, times);
    }
    let output = output(encoding, (&mut integers, &mut floats), dms, gulp);
    assert!(dedisperser.flush(output).unwrap().produced > 0);
    let allocations = ALLOCATIONS.load(Ordering::Relaxed) - before;
    assert_eq!(allocations, 0, "{encoding:?} on {}", backend.name());
}

fn output<'a>(
    encoding: Encoding,
    (integers, floats): (&'a mut [i32], &'a mut [f32]),
    dms: usize,
    gulp: usize,
) -> Output<'a> {
    if encoding == Encoding::F32 {
        Output::F32(PlaneMut::new(floats, dms, gulp).unwrap())
    } else {
        Output::I32(PlaneMut::new(integers, dms, gulp).unwrap())
    }
}
