//! Chain of a site: the table that names a verb of `live` and its options, as the words of a command line.

use std::path::{Path, PathBuf};

use clap::{Command, FromArgMatches};
use sidereal::io::is_address;
use sidereal::{Error, Result};
use toml::{Table, Value};

use super::input;
use crate::common::{CommandLine, Common};

/// Verbs of `live`, whose tables have their options.
pub(super) const VERBS: [&str; 4] = ["search", "channelize", "correlate", "record"];

/// Returns the command line that a site's file stands for; options of all verbs are those of `common`.
///
/// # Errors
/// [`Error::Io`] for a file that cannot be read; [`Error::Format`] naming the key at fault and what is expected.
pub(crate) fn command_line(path: &Path, common: &Common) -> Result<crate::Arguments> {
    let table = input::table(path)?;
    let mut command = crate::command();
    let words = words(path, &table, &command)?;
    let refused = |error: clap::Error| {
        let text = error.to_string();
        let why = text.trim_start_matches("error: ").split("\n\nUsage:").next().unwrap_or_default();
        Error::format(path, "options", 0, why.trim().to_owned())
    };
    let matches = command.try_get_matches_from_mut(&words).map_err(refused)?;
    let mut arguments = crate::Arguments::from_arg_matches(&matches).map_err(refused)?;
    let command_line = CommandLine::new(&command, &matches, words);
    arguments.common = Common { command_line, ..common.clone() };
    Ok(arguments)
}

/// Returns the addresses of a site's streams: those that its file names, if the streams carry their header, otherwise the file itself.
pub(crate) fn addresses(path: &Path, table: &Table) -> Vec<PathBuf> {
    let input = table.get("input").and_then(Value::as_table);
    let value = input.filter(|input| input.len() == 1).and_then(|input| input.get("address"));
    let texts =
        value.map(|value| value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice));
    let address = |text: &Value| text.as_str().map(PathBuf::from).filter(|path| is_address(path));
    let addresses = texts.and_then(|texts| texts.iter().map(address).collect::<Option<Vec<_>>>());
    addresses.filter(|all| !all.is_empty()).unwrap_or_else(|| vec![path.to_path_buf()])
}

/// Returns the words of the command line of a file's table.
fn words(path: &Path, table: &Table, command: &Command) -> Result<Vec<String>> {
    let fault = |key: &str, why: String| Err(Error::format(path, key, 0, why));
    let found: Vec<&str> = VERBS.into_iter().filter(|verb| table.contains_key(*verb)).collect();
    let [verb] = found[..] else {
        let why = match found.as_slice() {
            [] => format!("found none of the tables {}, expected one", VERBS.join(", ")),
            found => format!("found the tables {}, expected one of them", found.join(", ")),
        };
        return fault("chain", why);
    };
    if let Some(other) = table.keys().find(|key| *key != verb && *key != "input") {
        return fault(other, format!("the file has no such key, only input and {verb}"));
    }
    let Some(options) = table[verb].as_table() else {
        return fault(verb, format!("found {}, expected a table", table[verb]));
    };
    let live = command.find_subcommand("live");
    let own = live.and_then(|live| live.find_subcommand(verb));
    let mut words = vec!["sidereal".to_owned(), "live".to_owned(), verb.to_owned()];
    for (key, value) in options {
        let name = key.replace('_', "-");
        let place = format!("{verb}.{key}");
        let mut arguments = own.into_iter().flat_map(Command::get_arguments);
        let Some(argument) = arguments.find(|own| own.get_long() == Some(&name)) else {
            return fault(&place, format!("`sidereal live {verb}` has no option --{name}"));
        };
        let takes_values = argument.get_action().takes_values();
        let values = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
        for value in values {
            match (takes_values, value) {
                (false, Value::Boolean(true)) => words.push(format!("--{name}")),
                (false, Value::Boolean(false)) => {}
                (false, other) => {
                    return fault(&place, format!("found {other}, expected true or false"));
                }
                (true, Value::String(text)) => words.push(format!("--{name}={text}")),
                (true, Value::Integer(_) | Value::Float(_) | Value::Datetime(_)) => {
                    words.push(format!("--{name}={value}"));
                }
                (true, other) => {
                    return fault(&place, format!("found {other}, expected a text or a number"));
                }
            }
        }
    }
    words.push("--".to_owned());
    words.extend(addresses(path, table).iter().map(|address| address.display().to_string()));
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> Result<Vec<String>> {
        let command = crate::command();
        words(Path::new("site.toml"), &text.parse().unwrap(), &command)
    }

    #[test]
    fn a_table_is_a_command_line() {
        let text = "[input]\naddress = \"spead://:7148\"\n\n[search]\ndm_max = 1000\nsnr = 7.5\nzero-dm = true\n\
                    no_auto_mask = false\noutput = \"found\"";
        let mut found = line(text).unwrap();
        found[3..7].sort();
        let expected = "sidereal live search --dm-max=1000 --output=found --snr=7.5 --zero-dm -- spead://:7148";
        assert_eq!(found, expected.split(' ').collect::<Vec<_>>());
        let text = "[input]\naddress = \"udp://:7148\"\npreset = \"snap\"\n[record]\nroll = 60";
        assert_eq!(line(text).unwrap().join(" "), "sidereal live record --roll=60 -- site.toml");
        let text = "[input]\naddress = [\"spead://:1\", \"spead://:2\"]\n[record]";
        assert_eq!(line(text).unwrap().join(" "), "sidereal live record -- spead://:1 spead://:2");
    }

    #[test]
    fn mistakes_are_named() {
        for (text, expected) in [
            ("[input]", "none of the tables search, channelize, correlate, record"),
            ("[search]\n[record]", "found the tables search, record, expected one of them"),
            ("[search]\n[page]", "page: the file has no such key, only input and search"),
            ("search = 1", "search: found 1, expected a table"),
            (
                "[search]\ndm_most = 3",
                "search.dm_most: `sidereal live search` has no option --dm-most",
            ),
            ("[search]\nzero_dm = 1", "search.zero_dm: found 1, expected true or false"),
            ("[search]\nsnr = true", "search.snr: found true, expected a text or a number"),
        ] {
            let error = line(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
