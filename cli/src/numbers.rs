//! Bounds of numbers on the command line: unphysical ones are rejected before a verb sees them.

use std::any::TypeId;
use std::fmt::Display;
use std::ops::RangeInclusive;

use clap::Command;
use sidereal::Error;
use sidereal::error::Value;

/// Smallest and largest magnitude of a nonzero number.
const SIZES: RangeInclusive<f64> = 1e-30..=1e30;

/// Returns the command with bounds on every option that takes a real number.
pub(crate) fn bounded(command: Command) -> Command {
    let command = command.mut_args(|argument| {
        let kind = argument.get_value_parser().type_id();
        match () {
            () if kind == TypeId::of::<f64>() => argument.value_parser(real),
            () if kind == TypeId::of::<f32>() => {
                argument.value_parser(|words: &str| real(words).map(|number| number as f32))
            }
            () => argument,
        }
    });
    command.mut_subcommands(bounded)
}

/// Parses a number; leaves infinities and NaN to the option's own check, which names it.
pub(crate) fn real(words: &str) -> Result<f64, String> {
    let number: f64 = words.parse().map_err(|error| format!("{error}"))?;
    if number.is_finite() { sane(number) } else { Ok(number) }
}

/// Parses a number within an option's value; it must also be finite.
pub(crate) fn finite(words: &str) -> Result<f64, String> {
    sane(words.parse().map_err(|_| format!("{words} is not a number"))?)
}

/// Returns a number of physical magnitude; an error for any other.
pub(crate) fn sane(number: f64) -> Result<f64, String> {
    let (least, most) = (SIZES.start(), SIZES.end());
    match number {
        _ if number.is_nan() || number.is_infinite() => Err(format!("{number} is not a number")),
        _ if number == 0.0 || SIZES.contains(&number.abs()) => Ok(number),
        _ => Err(format!("it must be 0 or {least:e} to {most:e} in size")),
    }
}

/// Checks that an option's value is in a range; `why` says what bounds it or its unit, if that helps.
///
/// # Errors
/// [`Error::Parameter`] naming the option.
pub(crate) fn within<T: PartialOrd + Display + Into<Value>>(
    option: &'static str,
    value: T,
    range: RangeInclusive<T>,
    why: &str,
) -> sidereal::Result<()> {
    if range.contains(&value) {
        return Ok(());
    }
    let why = if why.is_empty() { String::new() } else { format!(" ({why})") };
    let rule = format!("it must be {} to {}{why}", range.start(), range.end());
    Err(Error::parameter(option, value, rule))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absurd_sizes_are_refused() {
        for words in ["1e-320", "-1e-320", "1e-31", "1e31", "-1e308"] {
            assert!(real(words).is_err_and(|why| why.contains("1e-30")), "{words}");
        }
        for words in ["0", "-0", "1e-30", "-1e30", "64e-6", "nan", "inf"] {
            assert!(real(words).is_ok(), "{words}");
        }
        assert!(real("six").is_err());
        assert_eq!(finite("-2.5"), Ok(-2.5));
        for words in ["six", "nan", "inf", "1e-31", "1e400"] {
            assert!(finite(words).is_err(), "{words}");
        }
    }
}
