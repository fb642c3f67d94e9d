//! The progress bar of long work, on standard error and only where someone watches.

use std::fmt::Write as _;
use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressState, ProgressStyle};

use crate::common::Common;

/// How far long work has come.
pub(crate) struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// A bar over `total` times (unknown on a pipe) of `channels` samples, `tsamp_s` apart.
    pub(crate) fn new(common: &Common, total: Option<u64>, channels: usize, tsamp_s: f64) -> Self {
        let hidden = common.no_progress || common.quiet || common.json;
        if hidden || !std::io::stderr().is_terminal() {
            return Self { bar: ProgressBar::hidden() };
        }
        let bar = total.map_or_else(ProgressBar::new_spinner, ProgressBar::new);
        bar.set_style(style(total.is_some(), channels, tsamp_s));
        bar.enable_steady_tick(Duration::from_millis(200));
        Self { bar }
    }

    /// A bar over `total` things of any kind.
    pub(crate) fn items(common: &Common, total: u64) -> Self {
        let progress = Self::new(common, Some(total), 0, 0.0);
        let plain = ProgressStyle::default_bar();
        let style = ProgressStyle::with_template("{msg} {bar:32} {pos} of {len}").unwrap_or(plain);
        progress.bar.set_style(style.progress_chars("━╸─"));
        progress
    }

    /// Corrects the total, where it became known later or only a part is used.
    pub(crate) fn total(&self, total: Option<u64>) {
        if let Some(total) = total.filter(|total| self.bar.length() != Some(*total)) {
            self.bar.set_length(total);
        }
    }

    /// What is being done, before the bar.
    pub(crate) fn doing(&self, what: &'static str) {
        self.bar.set_message(what);
    }

    /// Sets the times done.
    pub(crate) fn at(&self, times: u64) {
        self.bar.set_position(times);
    }

    /// Removes the bar.
    pub(crate) fn finish(&self) {
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
        "{msg} {bar:32} {percent:>3}%  {samples}  {realtime}  {eta} left"
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
        .with_key("recorded", move |state: &ProgressState, text: &mut dyn std::fmt::Write| {
            let _ = write!(text, "{:.1} s of data", state.pos() as f64 * tsamp_s);
        })
}

/// Samples a second with a prefix: `1.25 Gsamples/s`.
pub(crate) fn rate(samples_per_s: f64) -> String {
    let steps = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];
    let (unit, prefix) = steps.into_iter().find(|s| samples_per_s >= s.0).unwrap_or((1.0, ""));
    let mut text = String::new();
    let _ = write!(text, "{:.3}", samples_per_s / unit);
    // Three digits say enough.
    let digits = text.find('.').map_or(text.len(), |point| (point + 1).max(4));
    format!("{} {prefix}samples/s", text[..digits.min(text.len())].trim_end_matches('.'))
}

/// A multiple of real time: two digits below 10, whole numbers above.
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
    fn multiples_of_real_time() {
        assert_eq!(multiple(2.345), "2.3");
        assert_eq!(multiple(123.4), "123");
    }
}
