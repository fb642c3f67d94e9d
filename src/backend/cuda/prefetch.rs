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

/// Kernels for one architecture.
struct Kernel {
    architecture: String,
    source: Source,
}

impl Device {
    /// Starts to compile sources, or to load them from the cache, on at most as many threads as the machine has
    /// cores. One of these threads calls `sources`; those at the front begin first, and equal ones are compiled once.
    ///
    /// Errors are left to [`Device::module`]. While kernels are tuned, nothing is prefetched.
    pub fn prefetch(&self, sources: impl FnOnce() -> Vec<Source> + Send + 'static) -> Prefetch {
        self.alone().prefetch_each(move |_| vec![sources()])
    }

    /// As [`Device::prefetch`], for this GPU and its peers: `sources` receives all and returns a list for each, in the same order.
    /// Kernels that GPUs of one architecture share are compiled once.
    pub fn prefetch_each(
        &self,
        sources: impl FnOnce(&[Self]) -> Vec<Vec<Source>> + Send + 'static,
    ) -> Prefetch {
        if self.state().is_tuning {
            return Prefetch::default();
        }
        let is_cancelled = Arc::new(AtomicBool::new(false));
        let devices: Vec<Self> = self.joined().map(Self::alone).collect();
        let stop = Arc::clone(&is_cancelled);
        let work = move || {
            let lists = sources(&devices).into_iter().zip(&devices);
            let kernels = lists.flat_map(|(list, device)| {
                let architecture = device.architecture();
                list.into_iter()
                    .map(move |source| Kernel { architecture: architecture.clone(), source })
            });
            prepare(kernels.collect(), &stop);
        };
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

/// Prepares kernels side by side until all are ready or `is_cancelled`.
fn prepare(kernels: Vec<Kernel>, is_cancelled: &AtomicBool) {
    let kernels = unique(kernels, |kernel| !cache::is_ready(&kernel.source, &kernel.architecture));
    let next = AtomicUsize::new(0);
    let work = || {
        while !is_cancelled.load(Ordering::Relaxed)
            && let Some(Kernel { architecture, source }) =
                kernels.get(next.fetch_add(1, Ordering::Relaxed))
        {
            cache::prepare(source, architecture);
        }
    };
    let cores = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for number in 1..kernels.len().min(cores) {
            // With fewer threads the others do more.
            let _ =
                thread::Builder::new().name(format!("compile {number}")).spawn_scoped(scope, work);
        }
        work();
    });
}

/// Returns the kernels that are `wanted`, each once, in order.
fn unique(kernels: Vec<Kernel>, wanted: impl Fn(&Kernel) -> bool) -> Vec<Kernel> {
    let mut kept: Vec<Kernel> = Vec::with_capacity(kernels.len());
    for kernel in kernels {
        let is_known = |other: &Kernel| {
            other.source == kernel.source && other.architecture == kernel.architecture
        };
        if !kept.iter().any(is_known) {
            kept.push(kernel);
        }
    }
    kept.retain(wanted);
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_is_prepared_once_for_each_architecture() {
        let kernel = |size: usize, architecture: &str| {
            let defines = vec![("SIZE", size.to_string())];
            let source = Source { name: "a.cu", text: "", includes: &[], defines };
            Kernel { architecture: architecture.to_owned(), source }
        };
        let all = [(1, "90"), (2, "90"), (1, "90"), (1, "80"), (2, "90"), (3, "80")];
        let all = all.map(|(size, architecture)| kernel(size, architecture)).into();
        let kept = unique(all, |kernel| kernel.source.defines[0].1 != "3");
        let kept: Vec<_> = kept
            .iter()
            .map(|kernel| (kernel.source.defines[0].1.as_str(), kernel.architecture.as_str()))
            .collect();
        assert_eq!(kept, [("1", "90"), ("2", "90"), ("1", "80")]);
    }
}
