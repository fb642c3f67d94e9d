//! Numbers on the command line: bounds of every option, ranges, and values such as `dm=500,time=3,width=0.002`.

use std::any::TypeId;
use std::fmt::Display;
use std::ops::RangeInclusive;

use clap::Command;
use sidereal::error::Value;
use sidereal::{Error, Result};

use crate::numbers;

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
pub(crate) fn real(words: &str) -> std::result::Result<f64, String> {
    let number: f64 = words.parse().map_err(|error| format!("{error}"))?;
    if number.is_finite() { sane(number) } else { Ok(number) }
}

/// Parses a number within an option's value; it must also be finite.
pub(crate) fn finite(words: &str) -> std::result::Result<f64, String> {
    sane(words.parse().map_err(|_| format!("{words} is not a number"))?)
}

/// Returns a number of physical magnitude; an error for any other.
pub(crate) fn sane(number: f64) -> std::result::Result<f64, String> {
    let (least, most) = (SIZES.start(), SIZES.end());
    match number {
        _ if number.is_nan() || number.is_infinite() => Err(format!("{number} is not a number")),
        _ if number == 0.0 || SIZES.contains(&number.abs()) => Ok(number),
        _ => Err(format!("it must be 0 or {least:e} to {most:e} in size")),
    }
}

/// Rounds off the binary noise of the last digits: 474.91, not 474.90999999999997.
pub(crate) fn tidy(value: f64) -> f64 {
    (value * 1e9).round() / 1e9
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

/// Numbers by name, from one option's value.
#[derive(Clone, Debug)]
pub(crate) struct Fields {
    option: &'static str,
    values: Vec<(String, f64)>,
}

impl Fields {
    /// Parses `text`; each name of `allowed` may occur at most once, others may not.
    ///
    /// # Errors
    /// [`Error::Parameter`] naming the option and the part that is wrong.
    pub(crate) fn parse(option: &'static str, text: &str, allowed: &[&str]) -> Result<Self> {
        let mut values: Vec<(String, f64)> = Vec::new();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let wrong = |rule: String| Err(Error::parameter(option, part, rule));
            let Some((name, number)) = part.split_once('=') else {
                return wrong("it must have the form name=number".to_owned());
            };
            let name = name.trim();
            if !allowed.contains(&name) {
                return wrong(format!("its names are {}", allowed.join(", ")));
            }
            if values.iter().any(|value| value.0 == name) {
                return wrong("it may be given once only".to_owned());
            }
            match numbers::finite(number.trim()) {
                Ok(number) => values.push((name.to_owned(), number)),
                Err(why) => return wrong(why),
            }
        }
        Ok(Self { option, values })
    }

    /// Returns a number, if given.
    pub(crate) fn get(&self, name: &str) -> Option<f64> {
        self.values.iter().find(|value| value.0 == name).map(|value| value.1)
    }

    /// Returns a number, or its default.
    pub(crate) fn or(&self, name: &str, default: f64) -> f64 {
        self.get(name).unwrap_or(default)
    }

    /// Returns a required number.
    ///
    /// # Errors
    /// [`Error::Parameter`] naming it.
    pub(crate) fn need(&self, name: &str) -> Result<f64> {
        let missing = || Error::parameter(self.option, format!("without {name}"), "it needs one");
        self.get(name).ok_or_else(missing)
    }
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

    #[test]
    fn fields_are_read_and_faults_named() {
        let names = ["dm", "time"];
        let fields = Fields::parse("--burst", "dm=5.5, time=-1e-3", &names).unwrap();
        assert_eq!((fields.get("dm"), fields.or("time", 2.0)), (Some(5.5), -1e-3));
        assert!(fields.need("width").is_err());
        for bad in ["dm", "dm=x", "dm=nan", "DM=5", "dm=1,dm=2", "snr=3", "dm=inf", "dm=1e-320"] {
            let error = Fields::parse("--burst", bad, &names).unwrap_err();
            assert!(error.to_string().contains("--burst"), "{bad}");
        }
    }
}
