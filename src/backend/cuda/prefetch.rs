//! Compiles kernels in parallel before a stage needs them.
//!
//! Invariant: a prefetch changes no result and no error, only the time at which [`Device::module`] returns.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};

use super::{Device, Source, cache};

/// Kernels that other threads compile, or load from the cache. [`Device::module`] waits for a kernel that is being
/// compiled and compiles one that has not begun.
///
/// Dropping it cancels those that have not begun and waits for the others: the compiler must not run when the process
/// ends.
#[derive(Debug, Default)]
#[must_use = "dropping it cancels all kernels that have not begun"]
pub struct Prefetch {
    is_cancelled: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Device {
    /// Starts to compile sources, or to load them from the cache, on at most as many threads as the machine has
    /// cores. One of these threads calls `sources`; those at the front begin first, and equal ones are compiled once.
    ///
    /// Errors are left to [`Device::module`]. While kernels are tuned, nothing is prefetched.
    pub fn prefetch(&self, sources: impl FnOnce() -> Vec<Source> + Send + 'static) -> Prefetch {
        if self.state().is_tuning {
            return Prefetch::default();
        }
        let is_cancelled = Arc::new(AtomicBool::new(false));
        let (architecture, stop) = (self.architecture(), Arc::clone(&is_cancelled));
        let work = move || prepare(sources(), &architecture, &stop);
        // Without a thread, each kernel is compiled when it is needed.
        let thread = thread::Builder::new().name("compile 0".to_owned()).spawn(work).ok();
        Prefetch { is_cancelled, thread }
    }
}

impl Prefetch {
    /// Waits until all sources are compiled.
    pub fn wait(mut self) {
        if let Some(thread) = self.thread.take() {
            // A panic of the thread recurs in the stage that needs the kernel.
            let _ = thread.join();
        }
    }
}

impl Drop for Prefetch {
    fn drop(&mut self) {
        self.is_cancelled.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic of the thread recurs in the stage that needs the kernel.
            let _ = thread.join();
        }
    }
}

/// Prepares sources side by side until all are ready or `is_cancelled`.
fn prepare(mut sources: Vec<Source>, architecture: &str, is_cancelled: &AtomicBool) {
    let mut unique = Vec::with_capacity(sources.len());
    sources.retain(|source| {
        let is_new = !unique.contains(source);
        if is_new {
            unique.push(source.clone());
        }
        is_new && !cache::is_ready(source, architecture)
    });
    let next = AtomicUsize::new(0);
    let work = || {
        while !is_cancelled.load(Ordering::Relaxed)
            && let Some(source) = sources.get(next.fetch_add(1, Ordering::Relaxed))
        {
            cache::prepare(source, architecture);
        }
    };
    let cores = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for number in 1..sources.len().min(cores) {
            // With fewer threads the others do more.
            let _ =
                thread::Builder::new().name(format!("compile {number}")).spawn_scoped(scope, work);
        }
        work();
    });
}
