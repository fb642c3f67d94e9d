//! The options in effect as TOML text.

use std::ffi::OsString;

use clap::error::ErrorKind;
use clap::{Arg, Command};
use sidereal::{Error, Result};
use toml::Value;

use super::file::{is_list, may_hold};
use super::verb::Verb;

/// Formats the options of a command line as a file; `None` for words that are wrong. Required options may be missing.
///
/// # Errors
/// [`Error::Parameter`] for a value that is not UTF-8, which TOML cannot hold.
pub(super) fn text(command: &Command, words: &[OsString]) -> Result<Option<String>> {
    let mut strict = command.clone();
    let mut lenient = command.clone().ignore_errors(true);
    let matches = match strict.try_get_matches_from_mut(words) {
        Err(error) if error.kind() == ErrorKind::MissingRequiredArgument => {
            lenient.try_get_matches_from_mut(words).ok().map(|matches| (&lenient, matches))
        }
        parsed => parsed.ok().map(|matches| (&strict, matches)),
    };
    let Some((command, matches)) = matches else { return Ok(None) };
    Verb::of(command, &matches).map(|verb| of_verb(&verb)).transpose()
}

/// Formats the options of a verb, grouped as in its help; those without a value are named in a comment.
fn of_verb(verb: &Verb<'_>) -> Result<String> {
    let path = verb.path.join(".");
    let mut text = format!(
        "# Options of `sidereal {}` in effect, for --config. Inputs are named on the command line.\n[{path}]\n",
        verb.path.join(" ")
    );
    let mut without = Vec::new();
    let mut heading = None;
    for argument in by_heading(verb.command) {
        let name = argument.get_long().unwrap_or_default();
        let Some(value) = value(verb, argument)? else {
            without.push(name);
            continue;
        };
        if argument.get_help_heading() != heading {
            heading = argument.get_help_heading();
            text += &format!("\n# {}\n", heading.unwrap_or("Options"));
        }
        text += &format!("{name} = {value}\n");
    }
    if !without.is_empty() {
        text += "\n# Without a value:\n";
        text += &without.iter().map(|name| format!("# {name}\n")).collect::<String>();
    }
    Ok(text)
}

/// Returns the options that a file may hold, grouped by their headings in the order of the help.
fn by_heading(command: &Command) -> Vec<&Arg> {
    let mut arguments: Vec<&Arg> = command.get_arguments().filter(|own| may_hold(own)).collect();
    let headings: Vec<_> = arguments.iter().map(|own| own.get_help_heading()).collect();
    arguments.sort_by_key(|own| headings.iter().position(|one| *one == own.get_help_heading()));
    arguments
}

/// Returns the value of an option as TOML; `None` if it has none.
fn value(verb: &Verb<'_>, argument: &Arg) -> Result<Option<String>> {
    let id = argument.get_id().as_str();
    if !argument.get_action().takes_values() {
        return Ok(Some(verb.matches.get_flag(id).to_string()));
    }
    let Some(raw) = verb.matches.get_raw(id) else { return Ok(None) };
    let values = raw.map(|value| {
        value.to_str().map(quoted).ok_or_else(|| {
            let name = argument.get_long().unwrap_or_default();
            let rule = format!("--{name} has it, and a TOML file must be UTF-8");
            Error::parameter("a value", value.to_string_lossy().as_ref(), rule)
        })
    });
    let values = values.collect::<Result<Vec<_>>>()?;
    Ok(Some(match is_list(argument) {
        true => format!("[{}]", values.join(", ")),
        false => values.join(", "),
    }))
}

/// Formats a value: a number as it is if TOML reads the same digits, any other text in quotes.
fn quoted(text: &str) -> String {
    let is_integer = text.parse::<i64>().is_ok_and(|number| number.to_string() == text);
    let is_float = || {
        let number = text.parse::<f64>().ok().filter(|number| number.is_finite());
        number.is_some_and(|number| number.to_string() == text && text.contains('.'))
    };
    if is_integer || is_float() {
        return text.to_owned();
    }
    Value::String(text.to_owned()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heading_is_printed_once() {
        let words = ["sidereal", "search", "a.fil"].map(OsString::from);
        let text = text(&crate::command(), &words).unwrap().unwrap();
        let headings: Vec<&str> = text.lines().filter(|line| line.starts_with("# ")).collect();
        assert!(headings.contains(&"# Output"), "{headings:?}");
        for (index, heading) in headings.iter().enumerate() {
            assert!(!headings[..index].contains(heading), "{heading}");
        }
    }

    #[test]
    fn numbers_keep_their_digits() {
        for text in ["5", "-3", "0.1", "4148.808"] {
            assert_eq!(quoted(text), text);
        }
        for text in ["5.", "1e-5", "0.10", "+3", "007", "nan", "", "a b", "0:31"] {
            assert_eq!(quoted(text), format!("\"{text}\""));
        }
        assert_eq!(quoted("say \"x\"\n").parse::<Value>().unwrap().as_str(), Some("say \"x\"\n"));
    }
}
