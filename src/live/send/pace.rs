//! Schedule of a sender: the time of a sample follows from its number.

use std::time::{Duration, Instant};

/// Longest sleep before the listener is asked whether to stop.
const LONGEST: Duration = Duration::from_millis(100);

/// Shortest sleep: packets that are due within it are sent together.
const SHORTEST: Duration = Duration::from_millis(1);

/// Schedule.
#[derive(Debug)]
pub(super) struct Pace {
    started: Instant,
    /// Seconds per sample; `None` without a schedule.
    step_s: Option<f64>,
    behind: Duration,
}

impl Pace {
    /// Starts now. `rate` is a multiple of real time.
    pub(super) fn new(tsamp_s: f64, rate: Option<f64>) -> Self {
        let step_s = rate.map(|rate| tsamp_s / rate);
        Self { started: Instant::now(), step_s, behind: Duration::ZERO }
    }

    /// Returns how long to wait until the first `samples` samples are due; zero if they are.
    pub(super) fn until(&mut self, samples: u64) -> Duration {
        let Some(step_s) = self.step_s else { return Duration::ZERO };
        let due = Duration::try_from_secs_f64(samples as f64 * step_s).unwrap_or(Duration::MAX);
        let now = self.started.elapsed();
        self.behind = self.behind.max(now.saturating_sub(due));
        due.saturating_sub(now)
    }

    /// Returns the seconds since the start.
    pub(super) fn elapsed_s(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }

    /// Returns the most seconds by which samples were late.
    pub(super) fn behind_s(&self) -> f64 {
        self.behind.as_secs_f64()
    }
}

/// Sleeps for a time, or a part of it, after which the listener is asked whether to stop.
pub(super) fn pause(left: Duration) {
    std::thread::sleep(left.clamp(SHORTEST, LONGEST));
}
