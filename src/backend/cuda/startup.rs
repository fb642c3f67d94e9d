//! Time that the process has spent on starting GPUs: driver, contexts, NVRTC, and kernels.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

/// Time spent on starting GPUs so far, over all devices of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StartUp {
    /// Loading and initialization of the driver.
    pub driver: Spent,
    /// Creation of the devices' contexts.
    pub contexts: Spent,
    /// Loading of NVRTC.
    pub compiler: Spent,
    /// Kernel files taken from the cache on disk.
    pub cached: Spent,
    /// Kernel files compiled.
    pub compiled: Spent,
    /// Modules loaded into devices.
    pub loaded: Spent,
    /// Kernels that began as a variant that compiles quickly.
    pub quick: usize,
    /// Seconds from the first use of the driver to the first launch of a kernel; `None` before it.
    pub first_launch_s: Option<f64>,
}

/// Time spent on one kind of work.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spent {
    /// Pieces that succeeded.
    pub count: usize,
    /// Sum of the durations of all pieces, in seconds.
    pub summed_s: f64,
    /// Seconds in which at least one piece was under way.
    pub elapsed_s: f64,
}

/// Kind of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Driver,
    Context,
    Compiler,
    Cached,
    Compiled,
    Loaded,
}

/// Number of kinds of work.
const STEPS: usize = 6;

/// Time of one kind of work, and its pieces under way.
#[derive(Clone, Copy, Debug)]
struct Record {
    spent: Spent,
    under_way: usize,
    since: Option<Instant>,
}

/// Records of all kinds, in the order of [`Step`].
static RECORDS: Mutex<[Record; STEPS]> = Mutex::new([Record::NEW; STEPS]);

/// Start of the first piece of work, and of the first launch.
static BEGUN: OnceLock<Instant> = OnceLock::new();
static LAUNCHED: OnceLock<Instant> = OnceLock::new();

/// Number of quick kernels taken.
static QUICK: AtomicUsize = AtomicUsize::new(0);

impl Record {
    const NEW: Self = Self {
        spent: Spent { count: 0, summed_s: 0.0, elapsed_s: 0.0 },
        under_way: 0,
        since: None,
    };

    fn begin(&mut self, now: Instant) {
        self.under_way += 1;
        self.since.get_or_insert(now);
    }

    fn end(&mut self, begin: Instant, now: Instant, is_done: bool) {
        self.spent.count += usize::from(is_done);
        self.spent.summed_s += now.duration_since(begin).as_secs_f64();
        self.under_way -= 1;
        if self.under_way == 0
            && let Some(since) = self.since.take()
        {
            self.spent.elapsed_s += now.duration_since(since).as_secs_f64();
        }
    }
}

/// Times a piece of work; counts it if `is_done` accepts its result.
pub(super) fn timed<T>(
    step: Step,
    is_done: impl FnOnce(&T) -> bool,
    work: impl FnOnce() -> T,
) -> T {
    let begin = Instant::now();
    BEGUN.get_or_init(|| begin);
    records()[step as usize].begin(begin);
    let done = work();
    records()[step as usize].end(begin, Instant::now(), is_done(&done));
    done
}

/// Counts a kernel that begins as a variant that compiles quickly.
pub(super) fn began_quickly() {
    QUICK.fetch_add(1, Ordering::Relaxed);
}

/// Records the first launch of a kernel; later calls cost one atomic load.
pub(super) fn launched() {
    LAUNCHED.get_or_init(Instant::now);
}

/// Returns the time spent on starting GPUs so far.
pub fn start_up() -> StartUp {
    let records = *records();
    let spent = |step: Step| records[step as usize].spent;
    let first = BEGUN.get().zip(LAUNCHED.get());
    StartUp {
        driver: spent(Step::Driver),
        contexts: spent(Step::Context),
        compiler: spent(Step::Compiler),
        cached: spent(Step::Cached),
        compiled: spent(Step::Compiled),
        loaded: spent(Step::Loaded),
        quick: QUICK.load(Ordering::Relaxed),
        first_launch_s: first
            .map(|(begun, launched)| launched.duration_since(*begun).as_secs_f64()),
    }
}

fn records() -> MutexGuard<'static, [Record; STEPS]> {
    RECORDS.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn overlapping_pieces_are_summed_and_elapse_once() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut record = Record::NEW;
        record.begin(at(0));
        record.begin(at(1));
        record.end(at(0), at(3), true);
        record.end(at(1), at(4), false);
        record.begin(at(10));
        record.end(at(10), at(11), true);
        assert_eq!(record.spent, Spent { count: 2, summed_s: 7.0, elapsed_s: 5.0 });
        assert_eq!((record.under_way, record.since), (0, None));
    }
}
