//! Plots as PNG files, drawn without system libraries or fonts.

pub(crate) mod bench;
mod candidate;
pub(crate) mod colour;
pub(crate) mod correlation;
pub(crate) mod frame;
mod overview;
pub(crate) mod pen;
mod png;
pub(crate) mod strain;
mod sweep;
pub(crate) mod text;

pub(crate) use self::png::{Png, texts as png_texts};
pub(crate) use candidate::{Candidate, candidate};
pub(crate) use overview::{Overview, Point, overview};
pub(crate) use sweep::{Sweep, sweep};

/// Formats a number with at most `digits` digits and without trailing zeros: 12.5, but 12 and not 12.0.
pub(crate) fn short(value: f64, digits: i32) -> String {
    if value == 0.0 || !value.is_finite() {
        return format!("{value}");
    }
    let decimals = (digits - 1 - value.abs().log10().floor() as i32).clamp(0, 9) as usize;
    let words = format!("{value:.decimals$}");
    if words.contains('.') {
        words.trim_end_matches('0').trim_end_matches('.').into()
    } else {
        words
    }
}

/// Formats a count: 1 event, 2 events.
pub(crate) fn plural(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

/// Formats a duration with a suitable unit.
pub(crate) fn duration(seconds: f64) -> String {
    match seconds.abs() {
        s if s >= 1.0 => format!("{} s", short(seconds, 4)),
        s if s >= 1e-3 => format!("{} ms", short(seconds * 1e3, 3)),
        _ => format!("{} µs", short(seconds * 1e6, 3)),
    }
}

/// Formats a frequency with a suitable unit.
pub(crate) fn frequency(hertz: f64) -> String {
    match hertz.abs() {
        f if f >= 1e9 => format!("{} GHz", short(hertz / 1e9, 6)),
        f if f >= 1e6 => format!("{} MHz", short(hertz / 1e6, 5)),
        f if f >= 1e3 => format!("{} kHz", short(hertz / 1e3, 4)),
        _ => format!("{} Hz", short(hertz, 4)),
    }
}

#[cfg(test)]
mod tests;
