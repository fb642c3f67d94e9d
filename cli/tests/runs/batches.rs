//! Several recordings in one command line (`--each`), and the steps that `RUST_LOG` shows.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use crate::common::{
    code, document, done, entries, fails, program, recording, renamed, sidereal, stderr, stdout,
};

/// Makes three recordings of which the second is cut within its header.
fn recordings() -> tempfile::TempDir {
    let home = recording();
    let path = home.path();
    renamed(path, "c.fil", "OTHER");
    fs::write(path.join("b.fil"), &fs::read(path.join("a.fil")).unwrap()[..60]).unwrap();
    home
}

/// Checks that two folders have the same files, bit for bit.
fn same(a: &Path, b: &Path) {
    assert_eq!(entries(a), entries(b));
    for name in entries(a) {
        assert!(fs::read(a.join(&name)).unwrap() == fs::read(b.join(&name)).unwrap(), "{name}");
    }
}

#[test]
fn each_file_has_a_run_of_its_own_and_a_bad_one_ends_no_other() {
    let home = recordings();
    let path = home.path();
    let options = "--dm-max 100 --reproducible";
    let output =
        sidereal(path, &format!("search a.fil b.fil c.fil --each -o out {options} --json"));
    let told = stderr(&output);
    assert_eq!(code(&output), 3, "{told}");
    assert!(told.contains("b.fil: ") && told.contains("2 of 3 done, 1 failed"), "{told}");
    let lines: Vec<Value> =
        stdout(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 2, "a document is a line");
    assert_eq!(entries(&path.join("out")), ["a_search", "c_search"].map(String::from).into());
    for (line, name) in lines.iter().zip(["a", "c"]) {
        let own = format!("out/{name}_search");
        assert_eq!(document(&path.join(&own), "summary.json"), *line);
        // The product is that of a run of the file alone, and can be made again.
        done(path, &format!("search {name}.fil -o alone_{name} {options} -q"));
        same(&path.join(&own), &path.join(format!("alone_{name}")));
        done(path, &format!("rerun {own} -o again_{name} --reproducible -q"));
        same(&path.join(&own), &path.join(format!("again_{name}")));
    }
    assert_eq!(lines[1]["observation"]["source"], "OTHER");

    let quiet = sidereal(path, "dedisperse a.fil c.fil --each --dm-max 20 --dm-step 10 -q");
    assert_eq!((code(&quiet), stderr(&quiet).as_str()), (0, ""));
    assert!(path.join("a_dedispersed/dedispersed.npy").exists());
    assert!(path.join("c_dedispersed/dedispersed.npy").exists());
}

#[test]
fn a_batch_that_cannot_be_done_is_refused_before_it_begins() {
    let home = recordings();
    let path = home.path();
    fs::create_dir(path.join("sub")).unwrap();
    fs::copy(path.join("a.fil"), path.join("sub/a.fil")).unwrap();
    for (words, told) in [
        ("search a.fil sub/a.fil --each", "a.fil and sub/a.fil would both be written there"),
        ("search a.fil - --each", "standard input"),
        ("search a.fil c.fil --each --snr 0", "--snr"),
        ("search spead://127.0.0.1:1 --each", "files, not streams"),
    ] {
        let output = sidereal(path, words);
        assert_eq!(code(&output), 2, "{}", stderr(&output));
        assert!(stderr(&output).contains(told), "{}", stderr(&output));
    }
    // Failures of several kinds have the general code.
    let output = sidereal(path, "search b.fil missing.fil --each -q");
    assert_eq!(code(&output), 1, "{}", stderr(&output));
    assert!(stderr(&output).contains("0 of 2 done, 2 failed"), "{}", stderr(&output));
    assert!(!entries(path).iter().any(|name| name.ends_with("_search")));
    fails(&sidereal(path, "live search spead://127.0.0.1:1 --each"), 2, &["--each", "for files"]);
}

fn with_log(folder: &Path, words: &str, level: &str) -> Output {
    let words = words.split_whitespace();
    let mut command = Command::new(program());
    command.args(words).current_dir(folder).env("RUST_LOG", level).output().unwrap()
}

#[test]
fn steps_are_shown_only_if_they_are_asked_for() {
    let home = recording();
    let path = home.path();
    let words = |out: &str| format!("search a.fil -o {out} --dm-max 100 --no-plots -q");
    let steps = |output: &Output| {
        assert_eq!(code(output), 0, "{}", stderr(output));
        stderr(output).lines().filter(|line| line.contains("sidereal::steps")).count()
    };
    assert_eq!(stderr(&sidereal(path, &words("none"))), "");
    assert_eq!(stderr(&with_log(path, &words("empty"), "")), "");
    assert_eq!(stderr(&with_log(path, &words("info"), "info")), "");
    let debug = with_log(path, &words("debug"), "debug");
    let told = stderr(&debug);
    for step in
        ["read: header and plan: ", "read: rows: ", "compute: ", "write: products: ", " pieces"]
    {
        assert!(told.contains(step), "{step}: {told}");
    }
    assert!(steps(&with_log(path, &words("trace"), "sidereal=trace")) > steps(&debug));
    assert_eq!(steps(&with_log(path, &words("other"), "other=trace")), 0);
    let wrong = with_log(path, "search a.fil -o wrong --dm-max 100 --no-plots", "sidereal=loud");
    assert_eq!(steps(&wrong), 0);
    assert!(stderr(&wrong).contains("RUST_LOG is \"sidereal=loud\""), "{}", stderr(&wrong));
    // A log file has messages, not steps; products are the same.
    let logged = with_log(path, &format!("{} --log-file l.log", words("logged")), "debug");
    assert!(steps(&logged) > 3);
    let log = fs::read_to_string(path.join("l.log")).unwrap();
    assert!(log.contains("ended with exit code 0") && !log.contains("header and plan"), "{log}");
    let lists =
        ["none", "debug"].map(|out| fs::read(path.join(out).join("candidates.cand")).unwrap());
    assert!(lists[0] == lists[1]);
}
