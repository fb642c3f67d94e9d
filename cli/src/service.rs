//! Notifies a service manager that a run is ready, alive, or stopping (sd_notify, as systemd defines it).
//!
//! Nothing is sent unless `NOTIFY_SOCKET` is set; the watchdog is told only where `WATCHDOG_USEC` asks for it.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use sd_notify::NotifyState;

/// Since when, and how often, the watchdog is told.
static WATCHDOG: OnceLock<Option<(Instant, Duration)>> = OnceLock::new();
/// Milliseconds after the start at which it was told last.
static TOLD: AtomicU64 = AtomicU64::new(0);

/// Tells that the run has begun.
pub(crate) fn ready() {
    // Thrice in the time that the manager waits for.
    let every = watchdog_us().map(|limit| (Instant::now(), Duration::from_micros(limit / 3)));
    let _ = WATCHDOG.set(every);
    let _ = sd_notify::notify(false, &[NotifyState::Ready]);
    if every.is_some() {
        let _ = sd_notify::notify(false, &[NotifyState::Watchdog]);
    }
}

/// Returns the time, in microseconds, within which the watchdog wants to hear of this process; `None` if it does not.
fn watchdog_us() -> Option<u64> {
    let number = |name| std::env::var(name).ok()?.parse::<u64>().ok();
    let limit = number("WATCHDOG_USEC").filter(|limit| *limit > 0)?;
    // Without a process number the variable is meant for any.
    let is_own = std::env::var_os("WATCHDOG_PID").is_none()
        || number("WATCHDOG_PID") == Some(std::process::id().into());
    is_own.then_some(limit)
}

/// Tells the watchdog that the run goes on, if it is time: called between gulps and while a pipe is waited for.
pub(crate) fn alive() {
    let Some(Some((start, every))) = WATCHDOG.get() else { return };
    let now = start.elapsed().as_millis() as u64;
    let told = TOLD.load(Ordering::Relaxed);
    let due = now.saturating_sub(told) >= every.as_millis() as u64;
    if due && TOLD.compare_exchange(told, now, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
        let _ = sd_notify::notify(false, &[NotifyState::Watchdog]);
    }
}

/// Tells that the run ends.
pub(crate) fn stopping() {
    let _ = sd_notify::notify(false, &[NotifyState::Stopping]);
}
