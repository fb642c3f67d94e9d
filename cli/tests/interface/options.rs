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
    for line in help.lines() {
        let text = line.trim();
        if !line.starts_with(' ') && line.ends_with(':') {
            section = line;
        } else if section == "Commands:" {
            let is_name = line.starts_with("  ") && !line.starts_with("   ");
            verbs.extend(text.split(' ').next().filter(|name| is_name && *name != "help"));
        } else if text.starts_with('-') && line.find('-') <= Some(6)
            || section == "Arguments:" && text.starts_with(['<', '[']) && !text.contains(": ")
        {
            // The top level's help has descriptions on the same line.
            let name = text.split("  ").next().unwrap_or(text);
            lines.push(format!("{verb} {name}").trim().to_owned());
        } else if text.starts_with("[default: ")
            || text.starts_with("[possible values: ")
            || text.starts_with("[env: ")
        {
            lines.push(format!("    {text}"));
        } else if text.starts_with("- ") && text.contains(':') {
            // A value with a description of its own.
            let value = text.trim_start_matches("- ").split(':').next().unwrap_or_default();
            lines.push(format!("    value {value}"));
        }
    }
    for name in verbs {
        list(folder, format!("{verb} {name}").trim(), lines);
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
