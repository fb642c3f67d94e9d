//! Signals, exit codes, and notifications of a service manager (sd_notify protocol of systemd).
//!
//! A run checks [`requested`] between gulps. After SIGINT, SIGTERM or SIGHUP it stops and publishes its results so far.
//! A thread (`watch`) ends a run that does not check because it waits for input, within a second of the signal, and
//! removes the folder that the run was filling, unless the folder holds a journal of final results. A second signal
//! ends any run at once.
//!
//! Windows has Ctrl-C alone, and no thread `watch`: a second Ctrl-C ends a run that waits for input.

use std::cell::Cell;
use std::fs::{remove_dir_all, remove_file};
use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Mutex, Once, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

#[cfg(unix)]
use rustix::time::{ClockId, clock_gettime};
#[cfg(unix)]
use sd_notify::NotifyState;
use sidereal::{Error, Result};
use signal_hook::consts::SIGINT;
#[cfg(unix)]
use signal_hook::consts::{SIGHUP, SIGTERM};
#[cfg(unix)]
use signal_hook::iterator::Signals;
use signal_hook::low_level;
use tracing::Level;

use crate::output::{CHECKPOINT, JOURNAL};
use crate::say::{self, fault};

/// Whether a signal asked the run to stop.
static REQUESTED: AtomicBool = AtomicBool::new(false);
/// Whether the run has read [`REQUESTED`] at least once, which shows that it works in gulps.
static CHECKED: AtomicBool = AtomicBool::new(false);
/// Products that are being written, during which `watch` must not end the run.
static FINISHING: AtomicUsize = AtomicUsize::new(0);
/// Whether the run waits for other ranks, which ends that wait itself after a signal.
static WAITING: AtomicBool = AtomicBool::new(false);

/// Folders being filled and files being written.
static UNFINISHED: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Interval between checks of the run's activity after a signal.
const STEP: Duration = Duration::from_millis(100);
/// Number of steps in which a run may stop by itself.
#[cfg(unix)]
const GRACE_STEPS: u32 = 7;
/// Number of steps without work after which a run counts as waiting.
#[cfg(unix)]
const IDLE_STEPS: u32 = 5;
/// CPU time of all threads in [`IDLE_STEPS`] that does not count as work: that of `watch` and a progress bar.
#[cfg(unix)]
const IDLE: Duration = Duration::from_millis(10);
/// Longest time spent on removing unfinished files, because their disk may hang.
const REMOVING: Duration = Duration::from_millis(300);

/// Folder or file that is removed if the program is ended during the lifetime of this value.
#[derive(Debug)]
pub(crate) struct Unfinished {
    path: PathBuf,
}

impl Unfinished {
    pub(crate) fn new(path: PathBuf) -> Self {
        UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner).push(path.clone());
        Self { path }
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        let mut paths = UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = paths.iter().position(|path| *path == self.path) {
            paths.swap_remove(place);
        }
    }
}

/// Installs the handler of SIGINT, SIGTERM and SIGHUP, once in a process, and forgets the signals of earlier runs.
pub(crate) fn install() {
    static INSTALLED: Once = Once::new();
    FINISHING.store(0, Ordering::SeqCst);
    for flag in [&REQUESTED, &CHECKED] {
        flag.store(false, Ordering::SeqCst);
    }
    INSTALLED.call_once(handle);
}

#[cfg(unix)]
fn handle() {
    let signals = [Some(SIGINT), Some(SIGTERM), (!hangup_is_ignored()).then_some(SIGHUP)];
    // Without a handler a signal still ends the program, so a failure here does not matter.
    let Ok(mut signals) = Signals::new(signals.into_iter().flatten()) else { return };
    let _ = thread::Builder::new().name("signals".to_owned()).spawn(move || {
        for _ in signals.forever() {
            heard();
            let _ = thread::Builder::new().name("watch".to_owned()).spawn(watch);
        }
    });
}

#[cfg(not(unix))]
fn handle() {
    use std::sync::Arc;

    let signal = Arc::new(AtomicBool::new(false));
    // Without a handler Ctrl-C still ends the program, so a failure here does not matter.
    if signal_hook::flag::register(SIGINT, signal.clone()).is_err() {
        return;
    }
    let _ = thread::Builder::new().name("signals".to_owned()).spawn(move || {
        loop {
            thread::sleep(STEP);
            if signal.swap(false, Ordering::SeqCst) {
                heard();
            }
        }
    });
}

/// Takes a signal: the first asks the run to stop, the second ends it.
fn heard() {
    if REQUESTED.swap(true, Ordering::SeqCst) {
        end();
    }
    stopping();
    say::log(Level::INFO, "asked to stop by a signal");
}

/// Takes the request to stop of another rank, as if it were a signal.
#[cfg(feature = "mpi")]
pub(crate) fn stop_with_ranks() {
    if !REQUESTED.swap(true, Ordering::SeqCst) {
        stopping();
        say::log(Level::INFO, "asked to stop by another rank");
    }
}

/// Returns whether the user asked to stop.
pub(crate) fn requested() -> bool {
    alive();
    CHECKED.store(true, Ordering::SeqCst);
    REQUESTED.load(Ordering::SeqCst)
}

/// Returns whether the user asked to stop, for a thread that does not show by its question that the run goes on.
#[cfg(any(
    all(target_os = "linux", target_pointer_width = "64", feature = "page"),
    feature = "mpi"
))]
pub(crate) fn is_stopping() -> bool {
    REQUESTED.load(Ordering::SeqCst)
}

/// Fails if the user asked to stop.
///
/// # Errors
/// [`Error::stopped`], which `main` turns into exit code 130.
pub(crate) fn check() -> Result<()> {
    if requested() { Err(Error::stopped("the run")) } else { Ok(()) }
}

thread_local! {
    /// Those of them that this thread's run writes.
    static FINISHED_HERE: Cell<usize> = const { Cell::new(0) };
}

/// Declares that the run writes its product: from now on only a second signal ends it, until [`goes_on`].
pub(crate) fn finishing() {
    FINISHING.fetch_add(1, Ordering::SeqCst);
    FINISHED_HERE.set(FINISHED_HERE.get() + 1);
}

/// Declares that a product has its final name and that the run goes on to the next one.
pub(crate) fn goes_on() {
    FINISHING.fetch_sub(FINISHED_HERE.take(), Ordering::SeqCst);
}

/// Declares whether the run waits for other ranks, which does not show that it is stuck.
#[cfg(feature = "mpi")]
pub(crate) fn waits_for_ranks(does: bool) {
    WAITING.store(does, Ordering::SeqCst);
}

/// Returns whether the program was started with SIGHUP ignored, as by `nohup`.
#[cfg(unix)]
fn hangup_is_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & (1 << (SIGHUP - 1)) != 0)
}

/// Returns the CPU time of all threads.
#[cfg(unix)]
fn worked() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap_or_default()
}

/// Ends the program if the run waits or has not begun to work in gulps; any other run stops by itself.
///
/// Counts steps instead of time, because a suspended process neither works nor waits.
#[cfg(unix)]
fn watch() {
    let (mut steps, mut idle, mut before) = (0, 0, worked());
    loop {
        thread::sleep(STEP);
        if FINISHING.load(Ordering::SeqCst) > 0 || WAITING.load(Ordering::SeqCst) {
            // A run with several products may go on.
            (steps, idle, before) = (0, 0, worked());
            continue;
        }
        steps += 1;
        idle += 1;
        if worked().saturating_sub(before) > IDLE {
            (idle, before) = (0, worked());
        }
        let late = steps >= GRACE_STEPS;
        if late && (idle >= IDLE_STEPS || !CHECKED.load(Ordering::SeqCst)) {
            end();
        }
    }
}

/// Ends the program at once; folders that hold final results stay.
fn end() -> ! {
    let (done, wait) = channel();
    // A separate thread, so that a disk that hangs does not delay the end.
    let _ = thread::Builder::new().name("removal".to_owned()).spawn(move || {
        let mut kept = Vec::new();
        for path in UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            if path.join(JOURNAL).exists() {
                kept.push(path);
                continue;
            }
            let is_folder = path.is_dir();
            let _ = if is_folder { remove_dir_all(path) } else { remove_file(path) };
        }
        match kept.first() {
            None => fault!("stopped on request; no unfinished file remains."),
            Some(path) => {
                let goes_on = path.join(CHECKPOINT).exists();
                let resume = if goes_on { ", and --resume continues from there" } else { "" };
                let path = path.display();
                fault!("stopped on request; results that were final are kept in {path}{resume}.");
            }
        }
        log_end(Exit::Interrupted);
        let _ = done.send(());
    });
    let _ = wait.recv_timeout(REMOVING);
    low_level::exit(i32::from(Exit::Interrupted as u8))
}

/// Exit code of the program, which scripts and services evaluate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Success, also for a truncated recording, which causes a warning.
    Success = 0,
    /// Any other failure.
    Failed = 1,
    /// Options or arguments are wrong; clap uses the same code.
    WrongUse = 2,
    /// An input violates its format.
    Damaged = 3,
    /// A disk, a quota or the largest file size is exceeded.
    DiskFull = 4,
    /// A GPU failed or was lost during the run.
    DeviceLost = 5,
    /// SIGINT, SIGTERM or SIGHUP stopped the run, whether its product was kept or not.
    Interrupted = 130,
}

impl Exit {
    /// Returns the exit code for an error.
    pub(crate) fn after(error: &Error) -> Self {
        match error {
            _ if error.is_stop() => Self::Interrupted,
            Error::Parameter { .. } => Self::WrongUse,
            Error::Format { .. } => Self::Damaged,
            Error::Device { .. } => Self::DeviceLost,
            Error::Io { source, .. } if is_full(source.kind()) => Self::DiskFull,
            Error::Io { source, .. }
                if matches!(source.kind(), ErrorKind::UnexpectedEof | ErrorKind::InvalidData) =>
            {
                Self::Damaged
            }
            _ => Self::Failed,
        }
    }
}

impl From<()> for Exit {
    fn from((): ()) -> Self {
        Self::Success
    }
}

/// Writes the exit code to the log as its last line.
pub(crate) fn log_end(exit: Exit) {
    say::log(Level::INFO, &format!("ended with exit code {}", exit as u8));
}

pub(crate) fn is_full(kind: ErrorKind) -> bool {
    use ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(kind, StorageFull | QuotaExceeded | FileTooLarge)
}

/// Start and interval of the watchdog messages.
static WATCHDOG: OnceLock<Option<(Instant, Duration)>> = OnceLock::new();
/// Milliseconds from the start to the last watchdog message.
static LAST_MESSAGE_MS: AtomicU64 = AtomicU64::new(0);

#[cfg(not(unix))]
#[derive(Clone, Copy, Debug)]
enum NotifyState {
    Ready,
    Watchdog,
    Stopping,
}

/// Sends a message to systemd if it started the program.
#[cfg(unix)]
fn notify(state: NotifyState<'_>) {
    let _ = sd_notify::notify(false, &[state]);
}

/// Sends nothing: other systems have no service manager of this protocol.
#[cfg(not(unix))]
fn notify(_: NotifyState) {}

/// Notifies that the run has begun.
pub(crate) fn ready() {
    // Three messages per watchdog timeout.
    let every = watchdog_us().map(|limit| (Instant::now(), Duration::from_micros(limit / 3)));
    let _ = WATCHDOG.set(every);
    notify(NotifyState::Ready);
    if every.is_some() {
        notify(NotifyState::Watchdog);
    }
}

/// Returns the watchdog timeout for this process in microseconds; `None` if there is none.
fn watchdog_us() -> Option<u64> {
    let number = |name| std::env::var(name).ok()?.parse::<u64>().ok();
    let limit = number("WATCHDOG_USEC").filter(|limit| *limit > 0)?;
    // Without a process id the variable applies to every process.
    let is_own = std::env::var_os("WATCHDOG_PID").is_none()
        || number("WATCHDOG_PID") == Some(std::process::id().into());
    is_own.then_some(limit)
}

/// Sends a watchdog message if it is due; called between gulps and while waiting for a pipe.
pub(crate) fn alive() {
    let Some(Some((start, every))) = WATCHDOG.get() else { return };
    let now = start.elapsed().as_millis() as u64;
    let last = LAST_MESSAGE_MS.load(Ordering::Relaxed);
    let due = now.saturating_sub(last) >= every.as_millis() as u64;
    if due
        && LAST_MESSAGE_MS.compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    {
        notify(NotifyState::Watchdog);
    }
}

/// Notifies that the run ends.
pub(crate) fn stopping() {
    notify(NotifyState::Stopping);
}
