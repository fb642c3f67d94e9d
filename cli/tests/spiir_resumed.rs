//! `spiir search` and `spiir filter` that are interrupted: what was found stands, and `--resume` goes on with the bits of
//! a run that was not interrupted.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::{code, document, done, entries, fails, on_full_disk, program, sidereal, stderr};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use sidereal::io::npy;
use tempfile::TempDir;

const RATE_HZ: usize = 1024;
/// Length of the strain in seconds.
const LENGTH_S: usize = 1000;
const STRAIN: &str = "H1=h1.npy L1=l1.npy --rate 1024 --start 1400000000";
/// One sample at once: so slow that a signal comes in the middle on any machine.
const SEARCH: &str = "--templates binaries.csv --f-low 40 --lowest-rate 256 --threshold 3.5 --no-plots --slides 3 --gulp 1";

/// White noise of both detectors.
fn home() -> TempDir {
    let home = tempfile::tempdir().unwrap();
    for (name, seed) in [("h1.npy", 1_u64), ("l1.npy", 2)] {
        let mut state = seed;
        let mut uniform = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 11) as f64 / (1_u64 << 53) as f64
        };
        let times = LENGTH_S * RATE_HZ;
        let mut sample = || ((0..12).map(|_| uniform()).sum::<f64>() - 6.0) as f32 * 1e-21;
        let strain: Vec<f32> = (0..times).map(|_| sample()).collect();
        npy::write_f32(&home.path().join(name), &[times], &strain).unwrap();
    }
    fs::write(home.path().join("binaries.csv"), "mass1,mass2\n30,30\n20,10\n").unwrap();
    home
}

fn start(folder: &Path, words: &str) -> Child {
    let mut command = Command::new(program());
    command.args(words.split_whitespace()).current_dir(folder);
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// The unfinished folder of `out`.
fn unfinished(folder: &Path) -> Option<PathBuf> {
    let name = entries(folder).into_iter().find(|name| name.starts_with(".out.unfinished"))?;
    Some(folder.join(name))
}

/// Waits for a moment of a run, or its end.
fn wait(child: &mut Child, folder: &Path, is_it: impl Fn(&Path) -> bool) {
    let begun = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if unfinished(folder).is_some_and(|folder| is_it(&folder)) {
            return;
        }
        assert!(begun.elapsed() < Duration::from_secs(300), "nothing happened");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn has_bytes(path: &Path) -> bool {
    path.metadata().is_ok_and(|found| found.len() > 0)
}

/// Whether a checkpoint holds more than its first line.
fn has_state(folder: &Path) -> bool {
    let found = fs::read(folder.join("checkpoint")).unwrap_or_default();
    found.iter().position(|byte| *byte == b'\n').is_some_and(|end| end + 1 < found.len())
}

/// All of a search that must be the same, and the names of its files.
fn found(folder: &Path) -> (Value, Vec<Vec<u8>>, Vec<String>) {
    let mut events = document(folder, "events.json");
    events["realtime_factor"] = Value::Null;
    let files = ["events.xml", "snr.h5", "bank_H1.h5", "bank_L1.h5"];
    let bytes = files.iter().map(|name| fs::read(folder.join(name)).unwrap());
    (events, bytes.collect(), entries(folder).into_iter().collect())
}

#[test]
fn a_search_that_is_interrupted_goes_on_with_the_same_bits() {
    let home = home();
    let folder = home.path();
    let words = format!("spiir search {STRAIN} {SEARCH}");
    done(folder, &format!("{words} -o whole"));
    let expected = found(&folder.join("whole"));
    assert_eq!(expected.0["complete"].as_bool(), Some(true));
    assert!(expected.0["detectors"][0]["triggers"].as_u64().unwrap() > 20, "{}", expected.0);
    let (words, out) = (format!("{words} -o out"), folder.join("out"));

    // Ctrl-C: what was found stands, and says that it is not all.
    let mut child = start(folder, &words);
    wait(&mut child, folder, |folder| has_bytes(&folder.join("journal")));
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
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
    wait(&mut child, folder, |folder| {
        has_state(folder) && fs::read(folder.join("checkpoint")).is_ok_and(|now| now != before)
    });
    kill_process(Pid::from_child(&child), Signal::KILL).unwrap();
    child.wait().unwrap();
    let output = sidereal(folder, &format!("{words} --resume -q"));
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert!(found(&out) == expected, "{} {}", document(&out, "events.json"), expected.0);
    assert_eq!(unfinished(folder), None);
    fails(&sidereal(folder, &format!("{words} --resume")), 2, &["--resume"]);
}

#[test]
fn filters_that_are_interrupted_go_on_with_the_same_bits() {
    let home = home();
    let folder = home.path();
    done(folder, "spiir bank binaries.csv -o bank.h5 --rate 1024 --f-low 40 --lowest-rate 256 -q");
    let words = format!("spiir filter {STRAIN} --bank bank.h5");
    let told = common::json(folder, &format!("{words} -o whole"));
    let expected = fs::read(folder.join("whole")).unwrap();
    let words = format!("{words} -o out");
    let mut child = start(folder, &words);
    wait(&mut child, folder, |folder| has_bytes(&folder.join("checkpoint.series")));
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let ended = child.wait().unwrap().code();
    if ended == Some(130) {
        let part = fs::read(folder.join("out")).unwrap();
        assert!(part.starts_with(b"\x89HDF") && part != expected);
        assert!(unfinished(folder).is_some_and(|folder| has_state(&folder)));
        let other = format!("{words} --resume --psd aligo");
        fails(&sidereal(folder, &other), 2, &["psd: \"aligo\""]);
        let again = common::json(folder, &format!("{words} --resume"));
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
    let home = home();
    let folder = home.path();
    let words = format!("spiir search {STRAIN} {SEARCH}");
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
