//! Options from files: `--config`, `--print-config` and `--preset`.
//!
//! Invariant: an option on the command line wins over the file, and the file over the preset; a list replaces a list.
//! They add words of the command line, so that products record them as they record words that were typed.

mod file;
mod presets;
mod print;
mod verb;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Arg, ArgAction, Command, value_parser};
use sidereal::Result;

use file::{CONFIG, File, PRESET, PRINT_CONFIG};
use verb::Verb;

use crate::say::more;

/// Command line with the options that files and presets add.
#[derive(Debug, PartialEq)]
pub(crate) struct Expanded {
    /// All words.
    pub(crate) words: Vec<OsString>,
    /// Those that were added.
    pub(crate) added: Vec<String>,
    /// Text to print instead of running the verb.
    pub(crate) text: Option<String>,
}

impl Expanded {
    /// Prints the options that were added, below an error that may be about one of them.
    pub(crate) fn name_added(&self) {
        if !self.added.is_empty() {
            more!("          Options of --config and --preset: {}", self.added.join(" "));
        }
    }
}

/// Adds the options of this module to a command line.
pub(crate) fn with_options(command: Command) -> Command {
    let common =
        |name: &'static str| Arg::new(name).long(name).global(true).help_heading("Common options");
    let config = common(CONFIG)
        .value_name("FILE")
        .value_parser(value_parser!(PathBuf))
        .help("Read options from a TOML file")
        .long_help(
            "Read options from a TOML file; those on the command line win.\n\n\
             A table for each verb, such as [search] or [live.search], has its options by their long names: dm-max = 500, \
             zero-dm = true, zap-chans = [\"0:31\", \"40\"]. Options above the tables are those of every verb. Paths are \
             relative to the current folder, as on the command line.",
        );
    let print = common(PRINT_CONFIG)
        .action(ArgAction::SetTrue)
        .help("Print the options in effect as a file for --config, and do nothing else");
    let preset = Arg::new(PRESET)
        .long(PRESET)
        .value_name("NAME")
        .help("Use the published options of a telescope; `--preset list` prints them")
        .long_help(
            "Use the published options of a telescope; `--preset list` prints them.\n\n\
             A preset has what the recording's header lacks, such as the highest DM. Options of --config and of the \
             command line win over it.",
        );
    // Command::mut_subcommand would move the verb to the end of the list.
    command.arg(config).arg(print).mut_subcommands(|verb| {
        if presets::VERBS.contains(&verb.get_name()) { verb.arg(preset.clone()) } else { verb }
    })
}

/// Adds the words of `--config` and `--preset` to a command line, if it has these options.
///
/// # Errors
/// [`sidereal::Error::Io`] for a file that cannot be read, [`sidereal::Error::Format`] naming line and key at fault, and
/// [`sidereal::Error::Parameter`] for an unknown preset.
pub(crate) fn expand(command: &Command, words: Vec<OsString>) -> Result<Expanded> {
    let mut expanded = Expanded { words, added: Vec::new(), text: None };
    let is_ours = |word: &OsString| {
        let word = word.to_string_lossy();
        let name = word.strip_prefix("--").and_then(|word| word.split('=').next());
        name.is_some_and(|name| [CONFIG, PRINT_CONFIG, PRESET].contains(&name))
    };
    if !expanded.words.iter().any(is_ours) {
        return Ok(expanded);
    }
    // Other faults of the words are reported when they are parsed to run.
    let mut lenient = command.clone().ignore_errors(true);
    let Ok(matches) = lenient.try_get_matches_from_mut(&expanded.words) else {
        return Ok(expanded);
    };
    let Some(verb) = Verb::of(&lenient, &matches) else { return Ok(expanded) };
    let mut layers = Vec::new();
    if let Some(path) = verb.matches.get_one::<PathBuf>(CONFIG) {
        layers.push(File::new(path, &file::read(path)?, command).options(&verb.path)?);
    }
    let in_file = layers.iter().flatten().find(|setting| setting.name == PRESET);
    let preset = verb.value(PRESET).or(in_file.and_then(|preset| preset.values.first().cloned()));
    match preset {
        Some(list) if list == presets::LIST => {
            expanded.text = Some(presets::list(command)?);
            return Ok(expanded);
        }
        Some(name) => layers.push(presets::options(&name, &verb.path, command)?),
        None => {}
    }
    expanded.added = verb.added(&layers);
    let end = expanded.words.iter().position(|word| word == "--").unwrap_or(expanded.words.len());
    expanded.words.splice(end..end, expanded.added.iter().map(OsString::from));
    if verb.matches.get_flag(PRINT_CONFIG) {
        expanded.text = print::text(command, &expanded.words)?;
    }
    Ok(expanded)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use sidereal::Error;

    use super::*;

    /// Returns the words that a file adds to a command line.
    fn with_file(text: &str, line: &str) -> Result<Vec<String>> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("c.toml");
        std::fs::write(&path, text).unwrap();
        let words = ["sidereal"].into_iter().chain(line.split_whitespace()).map(OsString::from);
        let config = [OsString::from("--config"), path.into_os_string()];
        let expanded = expand(&crate::command(), words.chain(config).collect());
        expanded.map(|expanded| expanded.added)
    }

    fn sorted(mut words: Vec<String>) -> String {
        words.sort();
        words.join(" ")
    }

    #[test]
    fn a_table_adds_what_the_command_line_lacks() {
        let text = "threads = 2\n[search]\ndm-max = 5e2\nsnr = 7.50\nzero_dm = true\nfetch = false\n\
                    zap-chans = [\"0:31\", 40]\n[info]\nall = true\n[live.search]\nsnr = 9\n";
        let found = with_file(text, "search a.fil").unwrap();
        let expected = "--dm-max=5e2 --snr=7.50 --threads=2 --zap-chans=0:31,40 --zero-dm";
        assert_eq!(sorted(found), expected);
        let found = with_file(text, "-t 1 search a.fil --snr 5 --zap-chans 3").unwrap();
        assert_eq!(sorted(found), "--dm-max=5e2 --zero-dm");
        assert_eq!(sorted(with_file(text, "info a.fil").unwrap()), "--all --threads=2");
        let found = with_file(text, "live search spead://:7148").unwrap();
        assert_eq!(sorted(found), "--snr=9 --threads=2");
        assert_eq!(with_file("[devices]\nthreads = 0", "devices").unwrap(), [""; 0], "a default");
    }

    #[test]
    fn lists_replace_lists() {
        let text = "[simulate.burst]\nburst = [\"dm=1,time=1\", \"dm=2,time=2\"]";
        let found = with_file(text, "simulate burst a.fil").unwrap();
        assert_eq!(found, ["--burst=dm=1,time=1", "--burst=dm=2,time=2"]);
        let found = with_file(text, "simulate burst a.fil --burst dm=3,time=3").unwrap();
        assert!(found.is_empty(), "{found:?}");
    }

    #[test]
    fn options_that_exclude_one_another_give_way_to_the_command_line() {
        let text = "[search]\ndm-max = 500\ndm-tol = 1.1\nsnr = 8";
        for (line, expected) in [
            ("search a.fil", "--dm-max=500 --dm-tol=1.1 --snr=8"),
            ("search a.fil --ranges 0:9:1", "--snr=8"),
            ("search a.fil --ddplan", "--dm-max=500 --snr=8"),
        ] {
            assert_eq!(sorted(with_file(text, line).unwrap()), expected, "{line}");
        }
    }

    #[test]
    fn mistakes_name_line_and_key() {
        for (text, expected) in [
            (
                "[search]\n\ndm-mx = 5",
                "line 3: search.dm-mx: `sidereal search` has no option of this name; the nearest is dm-max",
            ),
            (
                "[serach]",
                "line 1: serach: `sidereal` has no verb or option of this name; the nearest is search",
            ),
            (
                "[search]\nqqq = 5",
                "qqq: `sidereal search` has no option of this name; `sidereal search --help` lists them",
            ),
            (
                "snr = 6",
                "line 1: snr: `sidereal` has no verb or option of this name; it is an option of single verbs",
            ),
            ("[live.serch]", "line 1: live.serch: `sidereal live` has no verb or option"),
            ("[search]\nconfig = \"a\"", "no option of this name"),
            (
                "search = 5",
                "line 1: search: found 5, expected a table of options of `sidereal search`",
            ),
            ("[search]\nzero-dm = 1", "line 2: search.zero-dm: found 1, expected true or false"),
            ("[search]\nsnr = true", "search.snr: found true, expected a text or a number"),
            ("[search]\nsnr = [5, 6]", "search.snr: found [5, 6], expected a text or a number"),
            (
                "[search]\nzap-chans = [[1]]",
                "found [[1]], expected a text or a number, or a list of them",
            ),
            ("[search]\nsnr = \"high\"", "search.snr: invalid value 'high' for '--snr <S/N>'"),
            ("device = \"gpu\"\n[info]", "line 1: device: invalid value 'gpu'"),
            ("[info]\nall = true\n\nall = true", "line 4: it is not TOML: duplicate key"),
            ("[search]\ndm_max = 1\ndm-max = 2", "the option is set twice"),
        ] {
            let error = with_file(text, "search a.fil").unwrap_err();
            assert!(matches!(error, Error::Format { .. }), "{error:?}");
            let error = error.to_string();
            assert!(error.contains("c.toml: ") && error.contains(expected), "{text}: {error}");
        }
        let words = ["sidereal", "info", "a.fil", "--config=missing.toml"];
        let error = expand(&crate::command(), words.map(OsString::from).to_vec()).unwrap_err();
        assert!(matches!(error, Error::Io { path, .. } if path == Path::new("missing.toml")));
    }

    #[test]
    fn a_file_wins_over_a_preset() {
        let text = "[search]\npreset = \"askap-craft\"\nsnr = 12\n";
        let found = with_file(text, "search a.fil").unwrap();
        assert!(found.contains(&"--preset=askap-craft".to_owned()), "{found:?}");
        assert!(found.contains(&"--snr=12".to_owned()), "{found:?}");
        assert!(found.contains(&"--dm-max=3763".to_owned()), "{found:?}");
        let found = with_file(text, "search a.fil --ranges 0:9:1 --preset chime-frb").unwrap();
        assert_eq!(found, ["--snr=12"]);
    }
}
