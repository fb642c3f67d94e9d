//! The options of every verb, with their defaults and values, are those of `options.txt`.
//!
//! A change of it is a change for users: `SIDEREAL_UPDATE=1 cargo test --test interface options` writes the file anew.

use std::fs;
use std::path::Path;

use crate::common::{sidereal, stdout};

/// Lists a verb's options and its subcommands' below it: name, value, default and possible values, a line each.
fn list(folder: &Path, verb: &str, lines: &mut Vec<String>) {
    let help = stdout(&sidereal(folder, &format!("{verb} --help")));
    let mut section = "";
    let mut verbs = Vec::new();
    // The text of the last option, as wrapped lines joined.
    let mut described = String::new();
    for line in help.lines().chain([""]) {
        let text = line.trim();
        let is_option = text.starts_with('-') && !text.starts_with("- ");
        let is_argument = section == "Arguments:" && text.starts_with(['<', '[']);
        let is_name =
            is_option && line.find('-') <= Some(6) || is_argument && line.find(text) == Some(2);
        let is_section = !line.starts_with(' ') && line.ends_with(':');
        if is_name || is_section || line.is_empty() && section == "Commands:" {
            report(&described, lines);
            described.clear();
        }
        if is_section {
            section = line;
        } else if section == "Commands:" {
            let is_verb = line.starts_with("  ") && !line.starts_with("   ");
            verbs.extend(text.split(' ').next().filter(|name| is_verb && *name != "help"));
        } else if is_name {
            // The top level's help has descriptions on the same line.
            let (name, rest) = text.split_once("  ").unwrap_or((text, ""));
            lines.push(format!("{verb} {name}").trim().to_owned());
            described.push_str(rest);
        } else if text.starts_with("- ") && text.contains(':') {
            // A value with a description of its own.
            let value = text.trim_start_matches("- ").split(':').next().unwrap_or_default();
            lines.push(format!("    value {value}"));
        } else {
            described.push(' ');
            described.push_str(text);
        }
    }
    report(&described, lines);
    for name in verbs {
        list(folder, format!("{verb} {name}").trim(), lines);
    }
}

/// Adds the defaults and values that an option's text names.
fn report(described: &str, lines: &mut Vec<String>) {
    for mark in ["[default: ", "[possible values: ", "[env: "] {
        for part in described.split(mark).skip(1) {
            let value = part.split(']').next().unwrap_or_default();
            lines.push(format!("    {mark}{value}]"));
        }
    }
}

#[test]
fn options_are_those_that_users_know() {
    let folder = tempfile::tempdir().unwrap();
    let mut lines = Vec::new();
    list(folder.path(), "", &mut lines);
    let found = lines.join("\n") + "\n";
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/options.txt");
    if std::env::var_os("SIDEREAL_UPDATE").is_some() {
        fs::write(&path, &found).unwrap();
    }
    let expected = fs::read_to_string(&path).unwrap();
    for (found, expected) in found.lines().zip(expected.lines()) {
        assert_eq!(found, expected);
    }
    assert_eq!(found.lines().count(), expected.lines().count());
    assert!(lines.len() > 500, "{} lines", lines.len());
}
