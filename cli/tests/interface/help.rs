//! Short and long help of every verb, completions of shells, and pages of the manual.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use crate::common::{done, entries, fails, program, sidereal, stderr, stdout};

/// Most lines of a short help in a terminal of 80 columns.
const MOST_LINES: usize = 60;
/// Most options of a short help.
const MOST_OPTIONS: usize = 20;

/// Collects every verb and subcommand as the words that follow `sidereal`.
fn verbs(folder: &Path, verb: &str, all: &mut Vec<String>) {
    all.push(verb.to_owned());
    let help = stdout(&sidereal(folder, &format!("{verb} --help")));
    let Some((_, listed)) = help.split_once("\nCommands:\n") else { return };
    let listed = listed.split("\n\n").next().unwrap();
    let is_name = |line: &&str| line.starts_with("  ") && !line.starts_with("   ");
    for line in listed.lines().filter(is_name) {
        let name = line.split_whitespace().next().unwrap();
        if name != "help" {
            verbs(folder, format!("{verb} {name}").trim(), all);
        }
    }
}

/// Counts the options that a help text lists.
fn options(help: &str) -> usize {
    let is_option = |line: &&str| {
        let text = line.trim_start();
        let indent = line.len() - text.len();
        text.starts_with('-') && !text.starts_with("- ") && (indent == 2 || indent == 6)
    };
    let listed = help.split("\nExample").next().unwrap();
    listed.lines().filter(is_option).count()
}

#[test]
fn short_help_is_short_and_names_the_long_one() {
    let home = tempfile::tempdir().unwrap();
    let mut all = Vec::new();
    verbs(home.path(), "", &mut all);
    assert!(all.len() > 40, "{all:?}");
    for verb in &all {
        let short = Command::new(program())
            .args(verb.split_whitespace())
            .arg("-h")
            .env("COLUMNS", "80")
            .output()
            .unwrap();
        let short = stdout(&short);
        let lines: Vec<&str> = short.lines().collect();
        assert!(lines.len() <= MOST_LINES, "{verb} -h has {} lines:\n{short}", lines.len());
        let long = options(&stdout(&sidereal(home.path(), &format!("{verb} --help"))));
        let last = format!("`sidereal {verb} --help` shows all {long} options.").replace("  ", " ");
        assert_eq!(lines.last(), Some(&last.as_str()), "{verb}");
        let shown = options(&short);
        assert!(shown <= MOST_OPTIONS && shown < long, "{verb} -h has {shown} of {long} options");
    }
}

#[test]
fn long_help_has_every_option_and_the_exit_codes() {
    let home = tempfile::tempdir().unwrap();
    let help = stdout(&sidereal(home.path(), "--help"));
    assert!(help.contains("\nExit codes:\n") && help.contains("--no-sync"), "{help}");
    let short = stdout(&sidereal(home.path(), "-h"));
    assert!(!short.contains("Exit codes") && !short.contains("--no-sync"), "{short}");
    let search = stdout(&sidereal(home.path(), "search --help"));
    assert!(search.contains("--mark5b-near-mjd") && !search.contains("shows all"), "{search}");
}

/// Runs a script of bash that has the completions at hand; `None` where there is no bash.
fn bash(home: &Path, script: &str) -> Option<Output> {
    let run = Command::new("bash").args(["--norc", "-c", script]).current_dir(home).output();
    if run.is_err() {
        eprintln!("skipped: bash is not installed");
    }
    run.ok()
}

#[test]
fn bash_completes_verbs_options_and_values() {
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join("sidereal.bash"), done(home.path(), "completions bash")).unwrap();
    let Some(checked) = bash(home.path(), "bash -n sidereal.bash") else { return };
    assert!(checked.status.success() && checked.stderr.is_empty(), "{}", stderr(&checked));
    for (line, expected) in [
        ("sea", "search"),
        ("spiir ba", "bank"),
        ("search --dm-m", "--dm-min\n--dm-max"),
        ("search --print", "--print-config"),
        ("search --sideband ", "upper\nlower"),
        ("completions ", "bash\nelvish\nfish\npowershell\nzsh"),
    ] {
        let words: Vec<String> = line.split(' ').map(|word| format!("'{word}'")).collect();
        // Bash sets these variables when the key for completion is pressed.
        let script = format!(
            "source ./sidereal.bash; complete -p sidereal >/dev/null || exit 9
            COMP_WORDS=(sidereal {}); COMP_CWORD={}
            _sidereal sidereal \"${{COMP_WORDS[COMP_CWORD]}}\" \"${{COMP_WORDS[COMP_CWORD-1]}}\"
            printf '%s\\n' \"${{COMPREPLY[@]}}\"",
            words.join(" "),
            words.len()
        );
        let run = bash(home.path(), &script).unwrap();
        assert!(run.status.success() && run.stderr.is_empty(), "{line}: {}", stderr(&run));
        let found = stdout(&run);
        for word in expected.lines() {
            assert!(found.lines().any(|found| found == word), "{line}: {word} is not in {found}");
        }
    }
}

#[test]
fn every_shell_has_completions() {
    let home = tempfile::tempdir().unwrap();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = done(home.path(), &format!("completions {shell}"));
        assert!(script.contains("dm-max") && script.contains("print-config"), "{shell}");
    }
    fails(&sidereal(home.path(), "completions tcsh"), 2, &["tcsh", "possible values", "fish"]);
    assert!(entries(home.path()).is_empty());
}

#[test]
fn the_manual_has_a_page_for_each_verb_that_troff_reads() {
    let home = tempfile::tempdir().unwrap();
    done(home.path(), "man -q");
    let pages = entries(&home.path().join("man/man1"));
    let mut all = Vec::new();
    verbs(home.path(), "", &mut all);
    assert_eq!(pages.len(), all.len());
    for verb in &all {
        let name = format!("sidereal {verb}").trim().replace(' ', "-") + ".1";
        assert!(pages.contains(&name), "{name}");
    }
    let page = fs::read_to_string(home.path().join("man/man1/sidereal-search.1")).unwrap();
    for text in ["\\-\\-mark5b\\-near\\-mjd", "EXAMPLES", "sidereal search observation.fil", "0.2"]
    {
        assert!(page.contains(text), "{text}");
    }
    fails(&sidereal(home.path(), "man"), 2, &["man/man1/sidereal", "--overwrite"]);
    done(home.path(), "man --overwrite -q");
    done(home.path(), "man other -q");
    assert_eq!(entries(&home.path().join("other")), pages);
    if Command::new("groff").arg("--version").output().is_err() {
        eprintln!("skipped: groff is not installed, so pages were not formatted");
        return;
    }
    for page in pages {
        let path = home.path().join("man/man1").join(&page);
        let words = ["-man", "-ww", "-Tutf8", "-P-c"];
        let run = Command::new("groff").args(words).arg(&path).output().unwrap();
        assert!(run.status.success() && run.stderr.is_empty(), "{page}: {}", stderr(&run));
        assert!(stdout(&run).contains("sidereal"), "{page}");
    }
}
