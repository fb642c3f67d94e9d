//! Checks of a bank's options.

use super::{Options, Rates};
use crate::error::{Error, Result};

/// Longest autocorrelation in samples, equal to the limit of the peak search.
const LONGEST_AUTOCORRELATION: usize = 1 << 16;

/// Allowed smoothing widths of the power spectrum; narrower ones would need too many bins.
const SMOOTHING_HZ: std::ops::RangeInclusive<f64> = 0.01..=1e5;

/// Checks the options except the band's frequencies, whose check needs the rate.
pub(super) fn options(options: &Options) -> Result<()> {
    let is_above_0 = |value: f64| value.is_finite() && value > 0.0;
    let (is_tolerance, is_part) =
        (|value: f64| value > 0.0 && value <= 0.5, |value: f64| value > 0.0 && value <= 1.0);
    let lowest_hz = match options.rates {
        Rates::Single => 1.0,
        Rates::Multi { lowest_hz } => lowest_hz,
    };
    let rules: [(&'static str, f64, bool, &str); 10] = [
        (
            "tolerance (cycles)",
            options.epsilon,
            is_tolerance(options.epsilon),
            "above 0, at most 0.5",
        ),
        ("alpha", options.alpha, (0.0..=1.0).contains(&options.alpha), "within 0 to 1"),
        ("beta", options.beta, is_above_0(options.beta), "finite and above 0"),
        (
            "padding",
            options.padding,
            options.padding.is_finite() && options.padding >= 1.0,
            "at least 1",
        ),
        (
            "match",
            options.minimum_match,
            (0.0..1.0).contains(&options.minimum_match),
            "within 0 to 1, and below 1",
        ),
        (
            "least match of a template",
            options.match_floor,
            (0.0..1.0).contains(&options.match_floor),
            "within 0 to 1, and below 1",
        ),
        ("lowest rate of a branch (Hz)", lowest_hz, is_above_0(lowest_hz), "finite and above 0"),
        (
            "early warning (s)",
            options.before_s,
            (0.0..1e5).contains(&options.before_s),
            "at least 0",
        ),
        (
            "smoothing of the power spectrum (Hz)",
            options.smoothing_hz,
            options.smoothing_hz == 0.0 || SMOOTHING_HZ.contains(&options.smoothing_hz),
            "0, or 0.01 to 10^5",
        ),
        ("part of the power", options.power, is_part(options.power), "above 0, at most 1"),
    ];
    if let Some((name, value, _, rule)) = rules.into_iter().find(|rule| !rule.2) {
        return Err(Error::parameter(name, value, format!("it must be {rule}")));
    }
    let length = options.autocorrelation_length;
    if length.is_multiple_of(2) || !(3..=LONGEST_AUTOCORRELATION).contains(&length) {
        let rule = format!("it must be odd, 3 to {LONGEST_AUTOCORRELATION}");
        return Err(Error::parameter("length of the autocorrelation (samples)", length, rule));
    }
    options.resampler.check()
}
