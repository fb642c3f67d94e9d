//! Recordings that are cut short or odd: every verb that reads them says so once, and goes on.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::common::{code, done, fails, json, program, recording, sidereal, stderr};
use serde_json::Value;

const SEARCH: &str = "--no-plots --dm-max 100 --dm-step 5 -t 1 --no-progress";

#[test]
fn a_cut_row_is_told_once_by_every_verb() {
    let home = recording();
    let folder = home.path();
    let bytes = fs::read(folder.join("a.fil")).unwrap();
    fs::write(folder.join("cut.fil"), &bytes[..bytes.len() - 20]).unwrap();
    for words in [
        "info cut.fil",
        "info cut.fil --header",
        "info cut.fil --json",
        "plan cut.fil",
        &format!("search cut.fil -o found {SEARCH}"),
        "dedisperse cut.fil -o series --dm-max 10 --dm-step 5 -t 1 --no-progress",
    ] {
        let output = sidereal(folder, words);
        let told = stderr(&output);
        assert_eq!(code(&output), 0, "{words}: {told}");
        let lines: Vec<&str> = told.lines().filter(|line| line.contains("row 3999")).collect();
        assert_eq!(lines.len(), 1, "{words}: {told}");
        assert!(
            lines[0].starts_with("sidereal: warning: cut.fil: the data end 44 bytes"),
            "{told}"
        );
    }
    let shown = json(folder, "info cut.fil -q");
    assert_eq!((&shown["complete"], &shown["times"]), (&Value::Bool(false), &Value::from(3999)));
    assert!(shown["reason"].as_str().is_some_and(|why| why.contains("row 3999")));
    assert!(done(folder, "info cut.fil").contains("Complete    no: cut.fil: the data end"));
    let whole = json(folder, "info a.fil");
    assert_eq!((&whole["complete"], &whole["reason"]), (&Value::Bool(true), &Value::Null));
    assert_eq!(whole["warnings"], Value::Array(Vec::new()));
    // A pipe tells at its end.
    let mut child = Command::new(program())
        .args(["info", "-", "--all", "--json"])
        .stdin(fs::File::open(folder.join("cut.fil")).unwrap())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    assert!(child.wait().unwrap().success());
    let output = child.wait_with_output().unwrap();
    let piped: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(piped["complete"], Value::Bool(false));
    assert!(
        stderr(&output).contains("standard input: the data end 44 bytes"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn numbers_that_no_measurement_has_are_wrong_use() {
    let home = recording();
    let folder = home.path();
    for (words, option) in [
        ("search a.fil -o x --snr 1e-320", "--snr"),
        ("search a.fil -o x --snr 1e-9", "--snr"),
        ("search a.fil -o x --snr 1e9", "--snr"),
        ("search a.fil -o x --max-width 1e-20", "--max-width"),
        ("search a.fil -o x --baseline 1e-310", "--baseline"),
        ("search a.fil -o x --dm-max 1e-310", "--dm-max"),
        ("search a.fil -o x --dm-constant 1e-5", "--dm-constant"),
        ("search a.fil -o x --time-range 1e-320:2", "--time-range"),
        ("plan --fch1 1500 --foff -1 --channels 64 --tsamp 1e-300", "--tsamp"),
        ("plan --fch1 1500 --foff -1 --channels 64 --tsamp 1e-20", "--tsamp"),
        ("channelize a.fil -o x.fil --channels 4 --sample-rate 1e-300", "--sample-rate"),
        ("channelize a.fil -o x.raw --channels 4 --gain 1e-40", "--gain"),
        ("simulate burst x.fil --duration 1e-320", "--duration"),
    ] {
        let output = sidereal(folder, words);
        assert_eq!(code(&output), 2, "{words}: {}", stderr(&output));
        assert!(stderr(&output).contains(option), "{words}: {}", stderr(&output));
    }
}

#[test]
fn a_damaged_file_of_strain_is_told_from_other_hdf5() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path();
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/seeds/strain");
    for (name, words) in [
        // A chunk list with a chunk of 2 GB.
        ("found_memory.hdf5", "strain/Strain"),
        ("broken_spacing.hdf5", "sample spacing"),
    ] {
        fs::copy(seeds.join(name), folder.join(name)).unwrap();
        fails(&sidereal(folder, &format!("info {name}")), 3, &[name, words]);
    }
}
