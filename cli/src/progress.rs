//! Progress bar on standard error, shown only on a terminal.

use std::fmt::Write as _;
use std::io::IsTerminal;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use tracing::Level;

use crate::common::Common;
use crate::say;

/// Progress of long work.
pub(crate) struct Progress {
    bar: ProgressBar,
    /// Current activity, and time of the last progress line in the log.
    log: Mutex<(&'static str, Instant)>,
    started: Instant,
}

/// Interval between progress lines in the log.
const LOG_EVERY: Duration = Duration::from_secs(60);

impl Progress {
    /// Creates a bar over `total` times (unknown on a pipe) of `channels` samples, `tsamp_s` apart.
    pub(crate) fn new(common: &Common, total: Option<u64>, channels: usize, tsamp_s: f64) -> Self {
        let hidden = common.no_progress || common.quiet || common.json;
        if hidden || !std::io::stderr().is_terminal() {
            let bar = total.map_or_else(ProgressBar::no_length, ProgressBar::new);
            bar.set_draw_target(ProgressDrawTarget::hidden());
            return Self::of(bar);
        }
        let bar = total.map_or_else(ProgressBar::new_spinner, ProgressBar::new);
        bar.set_style(style(total.is_some(), channels, tsamp_s));
        bar.enable_steady_tick(Duration::from_millis(200));
        Self::of(bar)
    }

    fn of(bar: ProgressBar) -> Self {
        let now = Instant::now();
        Self { bar, log: Mutex::new(("Working", now)), started: now }
    }

    /// Creates a bar over `total` items of any kind.
    pub(crate) fn items(common: &Common, total: u64) -> Self {
        let progress = Self::new(common, Some(total), 0, 0.0);
        let plain = ProgressStyle::default_bar();
        let style = ProgressStyle::with_template("{msg} {bar:32} {pos} of {len}").unwrap_or(plain);
        progress.bar.set_style(style.progress_chars("━╸─"));
        progress
    }

    /// Corrects the total, if it became known later or only a part is processed.
    pub(crate) fn total(&self, total: Option<u64>) {
        if let Some(total) = total.filter(|total| self.bar.length() != Some(*total)) {
            self.bar.set_length(total);
        }
    }

    /// Sets the activity shown before the bar.
    pub(crate) fn doing(&self, what: &'static str) {
        self.bar.set_message(what);
        self.log.lock().unwrap_or_else(PoisonError::into_inner).0 = what;
        say::log(Level::INFO, what);
    }

    /// Sets the number of times done.
    pub(crate) fn at(&self, times: u64) {
        self.bar.set_position(times);
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        if log.1.elapsed() >= LOG_EVERY {
            log.1 = Instant::now();
            say::log(Level::INFO, &self.how_far(log.0));
        }
    }

    /// Formats the progress for the log.
    fn how_far(&self, what: &str) -> String {
        let done = self.bar.position();
        let of = self.bar.length().map_or_else(String::new, |total| format!(" of {total}"));
        format!("{what}: {done}{of} after {:.1} s", self.started.elapsed().as_secs_f64())
    }

    /// Removes the bar.
    pub(crate) fn finish(&self) {
        let what = self.log.lock().unwrap_or_else(PoisonError::into_inner).0;
        say::log(Level::INFO, &self.how_far(what));
        self.bar.finish_and_clear();
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

fn style(bounded: bool, channels: usize, tsamp_s: f64) -> ProgressStyle {
    let template = if bounded {
        "{msg} {bar:32} {percent:>3}%  {samples}  {realtime}  {left}"
    } else {
        "{msg} {spinner}  {recorded}  {samples}  {realtime}"
    };
    let plain = ProgressStyle::default_bar();
    let style = ProgressStyle::with_template(template).unwrap_or(plain).progress_chars("━╸─");
    style
        .with_key("samples", move |state: &ProgressState, text: &mut dyn std::fmt::Write| {
            let _ = text.write_str(&rate(state.per_sec() * channels as f64));
        })
        .with_key("realtime", move |state: &ProgressState, text: &mut dyn std::fmt::Write| {
            let _ = write!(text, "{} x real time", multiple(state.per_sec() * tsamp_s));
        })
        .with_key("left", |state: &ProgressState, text: &mut dyn std::fmt::Write| {
            let is_done = state.len().is_some_and(|total| state.pos() >= total);
            let _ = text.write_str(&left(state.eta(), state.elapsed(), is_done));
        })
        .with_key("recorded", move |state: &ProgressState, text: &mut dyn std::fmt::Write| {
            let _ = write!(text, "{:.1} s of data", state.pos() as f64 * tsamp_s);
        })
}

/// Time that must pass before the first estimate of the remaining time.
const FIRST_ESTIMATE: Duration = Duration::from_secs(2);

/// Formats the remaining time; empty while there is no estimate, for which indicatif returns 0.
fn left(estimate: Duration, elapsed: Duration, is_done: bool) -> String {
    if elapsed < FIRST_ESTIMATE || (estimate.is_zero() && !is_done) {
        return String::new();
    }
    format!("{:#} left", HumanDuration(estimate))
}

/// Formats samples per second with a prefix: `1.25 Gsamples/s`.
pub(crate) fn rate(samples_per_s: f64) -> String {
    let steps = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];
    let (unit, prefix) = steps.into_iter().find(|s| samples_per_s >= s.0).unwrap_or((1.0, ""));
    let mut text = String::new();
    let _ = write!(text, "{:.3}", samples_per_s / unit);
    // Three digits suffice.
    let digits = text.find('.').map_or(text.len(), |point| (point + 1).max(4));
    format!("{} {prefix}samples/s", text[..digits.min(text.len())].trim_end_matches('.'))
}

/// Formats a multiple of real time: one decimal below 10, integers above.
pub(crate) fn multiple(factor: f64) -> String {
    if factor < 10.0 { format!("{factor:.1}") } else { format!("{factor:.0}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_have_three_digits_and_a_prefix() {
        assert_eq!(rate(1.25e9), "1.25 Gsamples/s");
        assert_eq!(rate(999.4e6), "999 Msamples/s");
        assert_eq!(rate(12_340.0), "12.3 ksamples/s");
        assert_eq!(rate(0.0), "0.00 samples/s");
    }

    #[test]
    fn what_is_left_is_told_once_it_is_known() {
        let s = Duration::from_secs;
        assert_eq!(left(s(0), s(0), false), "");
        assert_eq!(left(s(500), s(1), false), "");
        assert_eq!(left(s(0), s(30), false), "");
        assert_eq!(left(s(75), s(2), false), "75s left");
        assert_eq!(left(s(0), s(30), true), "0s left");
    }

    #[test]
    fn multiples_of_real_time() {
        assert_eq!(multiple(2.345), "2.3");
        assert_eq!(multiple(123.4), "123");
    }
}
