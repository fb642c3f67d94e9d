//! `spiir search` and `spiir filter` that are interrupted: what was found stands, and `--resume` goes on with the bits of
//! a run that was not interrupted.

use std::fs;
use std::path::Path;

use crate::common::strain::{found, has_bytes, home, interrupt, start, unfinished};
use crate::common::{code, document, done, fails, on_full_disk, sidereal, stderr};
use rustix::process::Signal;
use serde_json::Value;

const RATE_HZ: u32 = 1024;
/// Length of the strain in seconds.
const LENGTH_S: usize = 1000;
const STRAIN: &str = "H1=h1.npy L1=l1.npy --rate 1024 --start 1400000000";
/// One sample at once: so slow that a signal comes in the middle on any machine.
const SEARCH: &str = "--templates binaries.csv --f-low 40 --lowest-rate 256 --threshold 3.5 --no-plots --slides 3 --gulp 1";

#[test]
fn a_search_that_is_interrupted_goes_on_with_the_same_bits() {
    let home = home(RATE_HZ, LENGTH_S, |_, _| {});
    let folder = home.path();
    let words = format!("spiir search {STRAIN} {SEARCH} --reproducible");
    done(folder, &format!("{words} -o whole"));
    let expected = found(&folder.join("whole"));
    assert_eq!(expected.0["complete"].as_bool(), Some(true));
    assert!(expected.0["detectors"][0]["triggers"].as_u64().unwrap() > 20, "{}", expected.0);
    let (words, out) = (format!("{words} -o out"), folder.join("out"));

    // Ctrl-C: what was found stands, and says that it is not all.
    let mut child = start(folder, &words);
    let has_journal = |folder: &Path| has_bytes(&folder.join("journal"));
    assert_eq!(interrupt(&mut child, folder, has_journal, Signal::INT), Some(130));
    let part = document(&out, "events.json");
    assert_eq!(part["complete"].as_bool(), Some(false));
    assert!(part["reason"].as_str().unwrap().contains("request"));
    let searched = part["detectors"][0]["duration_s"].as_f64().unwrap();
    assert!((0.1..LENGTH_S as f64 - 0.1).contains(&searched), "{searched}");
    let journal = fs::read_to_string(out.join("journal")).unwrap();
    let first: Value = serde_json::from_str(journal.lines().next().unwrap()).unwrap();
    assert!(first["snr"].as_f64().unwrap() >= 3.5 && first["detector"].is_string(), "{first}");

    // Only the same run goes on.
    let other = sidereal(
        folder,
        &format!("{words} --resume --threshold 3.6").replacen("--threshold 3.5", "", 1),
    );
    fails(&other, 2, &["threshold: 3.5", "threshold: 3.6"]);
    let checkpoint = fs::read(out.join("checkpoint")).unwrap();
    let mut damaged = checkpoint.clone();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 1;
    fs::write(out.join("checkpoint"), &damaged).unwrap();
    fails(&sidereal(folder, &format!("{words} --resume")), 3, &["checkpoint", "checksum"]);
    fs::write(out.join("checkpoint"), &checkpoint).unwrap();

    // Killed in the middle of the rest.
    let mut child = start(folder, &format!("{words} --resume"));
    let before = checkpoint;
    let is_changed =
        |folder: &Path| fs::read(folder.join("checkpoint")).is_ok_and(|now| now != before);
    interrupt(&mut child, folder, is_changed, Signal::KILL);
    let output = sidereal(folder, &format!("{words} --resume -q"));
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert!(found(&out) == expected, "{} {}", document(&out, "events.json"), expected.0);
    assert_eq!(unfinished(folder), None);
    fails(&sidereal(folder, &format!("{words} --resume")), 2, &["--resume"]);
}

#[test]
fn filters_that_are_interrupted_go_on_with_the_same_bits() {
    let home = home(RATE_HZ, LENGTH_S, |_, _| {});
    let folder = home.path();
    done(folder, "spiir bank binaries.csv -o bank.h5 --rate 1024 --f-low 40 --lowest-rate 256 -q");
    let words = format!("spiir filter {STRAIN} --bank bank.h5 --reproducible");
    let told = crate::common::json(folder, &format!("{words} -o whole"));
    let expected = fs::read(folder.join("whole")).unwrap();
    let words = format!("{words} -o out");
    let mut child = start(folder, &words);
    let has_series = |folder: &Path| has_bytes(&folder.join("checkpoint.series"));
    let ended = interrupt(&mut child, folder, has_series, Signal::INT);
    if ended == Some(130) {
        let part = fs::read(folder.join("out")).unwrap();
        assert!(part.starts_with(b"\x89HDF") && part != expected);
        assert!(unfinished(folder).is_some_and(|folder| has_bytes(&folder.join("checkpoint"))));
        let other = format!("{words} --resume --psd aligo");
        fails(&sidereal(folder, &other), 2, &["psd: \"aligo\""]);
        let again = crate::common::json(folder, &format!("{words} --resume"));
        assert_eq!(again["detectors"], told["detectors"]);
    } else {
        // A fast machine was done before the signal came.
        assert_eq!(ended, Some(0));
    }
    assert!(fs::read(folder.join("out")).unwrap() == expected);
    assert_eq!(unfinished(folder), None);
}

#[test]
fn a_search_that_fills_the_disk_lists_its_events_and_goes_on() {
    let home = home(RATE_HZ, LENGTH_S, |_, _| {});
    let folder = home.path();
    let words = format!("spiir search {STRAIN} {SEARCH} --reproducible");
    let begun = "find disk -name journal -size +0 | grep -q .";
    let Some(full) = on_full_disk(folder, &format!("{words} -o disk/out --no-sync"), begun) else {
        return;
    };
    let told = stderr(&full);
    assert_eq!(code(&full), 4, "{told}");
    assert!(told.contains("space") && told.contains("not complete"), "{told}");
    let out = folder.join("copy/out");
    let part = document(&out, "events.json");
    assert_eq!(part["complete"].as_bool(), Some(false));
    assert!(part["detectors"][0]["triggers"].as_u64().unwrap() > 0, "{part}");
    assert!(out.join("events.xml").exists() && out.join("journal").exists());
    done(folder, &format!("{words} -o copy/out --resume --no-sync"));
    assert_eq!(document(&out, "events.json")["complete"].as_bool(), Some(true));
}
