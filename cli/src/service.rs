//! Notifies a service manager that a run is ready, alive, or stopping (sd_notify protocol of systemd).
//!
//! Sends nothing unless `NOTIFY_SOCKET` is set, and watchdog messages only if `WATCHDOG_USEC` asks for them.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use sd_notify::NotifyState;

/// Start and interval of the watchdog messages.
static WATCHDOG: OnceLock<Option<(Instant, Duration)>> = OnceLock::new();
/// Milliseconds from the start to the last watchdog message.
static TOLD: AtomicU64 = AtomicU64::new(0);

/// Notifies that the run has begun.
pub(crate) fn ready() {
    // Three messages per watchdog timeout.
    let every = watchdog_us().map(|limit| (Instant::now(), Duration::from_micros(limit / 3)));
    let _ = WATCHDOG.set(every);
    let _ = sd_notify::notify(false, &[NotifyState::Ready]);
    if every.is_some() {
        let _ = sd_notify::notify(false, &[NotifyState::Watchdog]);
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
    let told = TOLD.load(Ordering::Relaxed);
    let due = now.saturating_sub(told) >= every.as_millis() as u64;
    if due && TOLD.compare_exchange(told, now, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
        let _ = sd_notify::notify(false, &[NotifyState::Watchdog]);
    }
}

/// Notifies that the run ends.
pub(crate) fn stopping() {
    let _ = sd_notify::notify(false, &[NotifyState::Stopping]);
}
