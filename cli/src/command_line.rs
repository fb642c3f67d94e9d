//! Command line as given: the verb, its options and all words.

use std::collections::BTreeMap;

use clap::parser::ValueSource;
use clap::{ArgMatches, Command};
use serde_json::Value;

/// Options that change location, speed and messages of a run, but not its results.
const OF_THE_RUN: [&str; 17] = [
    "device",
    "threads",
    "memory",
    "simd",
    "gulp",
    "log_file",
    "json",
    "verbose",
    "quiet",
    "no_progress",
    "no_sync",
    "reproducible",
    "out",
    "output",
    "toml",
    "overwrite",
    "resume",
];

/// Command line as given.
#[derive(Clone, Debug, Default)]
pub(crate) struct CommandLine {
    /// Verb: `spiir search`.
    pub(crate) verb: String,
    /// Every option and argument of the verb that has a value, by its long name; an argument by the name of its
    /// position.
    pub(crate) options: BTreeMap<String, Value>,
    /// Names of those that are not defaults.
    pub(crate) given: Vec<String>,
    /// All words of the command line.
    pub(crate) words: Vec<String>,
}

impl CommandLine {
    /// Collects the values of a parsed command line.
    pub(crate) fn new(command: &Command, matches: &ArgMatches, words: Vec<String>) -> Self {
        let (mut command, mut matches) = (command, matches);
        let mut verb = Vec::new();
        while let Some((name, inner)) = matches.subcommand() {
            let Some(found) = command.find_subcommand(name) else { break };
            (command, matches) = (found, inner);
            verb.push(name);
        }
        let (mut options, mut given) = (BTreeMap::new(), Vec::new());
        for argument in command.get_arguments() {
            let id = argument.get_id().as_str();
            let is_known = matches.try_contains_id(id).unwrap_or(false);
            if !is_known || OF_THE_RUN.contains(&id) || ["help", "version"].contains(&id) {
                continue;
            }
            let Some(raw) = matches.get_raw(id) else { continue };
            let mut values: Vec<Value> =
                raw.map(|value| value_of(&value.to_string_lossy())).collect();
            let is_list = argument.get_num_args().is_some_and(|count| count.max_values() > 1)
                || matches!(argument.get_action(), clap::ArgAction::Append);
            let value = match values.len() {
                1 if !is_list => values.remove(0),
                _ => Value::Array(values),
            };
            let name = argument.get_long().unwrap_or(id).to_owned();
            if matches.value_source(id) == Some(ValueSource::CommandLine) {
                given.push(name.clone());
            }
            options.insert(name, value);
        }
        Self { verb: verb.join(" "), options, given, words }
    }

    /// Returns all words of the command line.
    pub(crate) fn words(&self) -> &[String] {
        &self.words
    }

    /// Returns every option and argument of the verb that has a value.
    pub(crate) fn options(&self) -> &BTreeMap<String, Value> {
        &self.options
    }
}

/// Converts a value to JSON: numbers and booleans keep their types.
fn value_of(word: &str) -> Value {
    match serde_json::from_str(word) {
        Ok(value @ (Value::Number(_) | Value::Bool(_))) => value,
        _ => Value::String(word.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_keep_their_kind() {
        assert_eq!(value_of("6.5"), serde_json::json!(6.5));
        assert_eq!(value_of("true"), Value::Bool(true));
        for word in ["10:20", "", "null", "[1]", "1e400", "nan"] {
            assert_eq!(value_of(word), Value::String(word.to_owned()), "{word}");
        }
    }
}
