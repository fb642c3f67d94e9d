//! A counting allocator, for tests of code that must not allocate.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// The system's allocator, which counts each request while armed.
pub(crate) struct Counting;

static ARMED: AtomicBool = AtomicBool::new(false);
static REQUESTS: AtomicUsize = AtomicUsize::new(0);

fn count() {
    if ARMED.load(Ordering::Relaxed) && !is_of_the_harness() {
        REQUESTS.fetch_add(1, Ordering::Relaxed);
    }
}

/// Whether this is the process's first thread, on which the harness waits for the test: it may only begin to
/// wait, and ask for memory for that, while the test counts already.
#[cfg(target_os = "linux")]
fn is_of_the_harness() -> bool {
    // SAFETY: both only return a number.
    unsafe { libc::gettid() == libc::getpid() }
}

#[cfg(not(target_os = "linux"))]
fn is_of_the_harness() -> bool {
    false
}

// SAFETY: every request is passed to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller's promise is passed on.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

/// Requests for memory, on any thread but the harness's, while `work` runs; so a program has one test that counts.
pub(crate) fn requests_during(work: impl FnOnce()) -> usize {
    REQUESTS.store(0, Ordering::SeqCst);
    ARMED.store(true, Ordering::SeqCst);
    work();
    ARMED.store(false, Ordering::SeqCst);
    REQUESTS.load(Ordering::SeqCst)
}

/// Fails if `work` allocates in the `rounds` that follow `warm_up` rounds.
pub(crate) fn assert_quiet(name: &str, warm_up: usize, rounds: usize, mut work: impl FnMut()) {
    for _ in 0..warm_up {
        work();
    }
    let requests = requests_during(|| {
        for _ in 0..rounds {
            work();
        }
    });
    assert_eq!(requests, 0, "{name} asked for memory {requests} times in {rounds} rounds");
}
