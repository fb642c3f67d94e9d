//! `live spiir`: strain that arrives as frame files gives the events of its recording, whatever becomes of the files.

use std::fs;
use std::path::Path;
use std::process::Output;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use super::live::{LONG, Running};
use crate::common::{code, document, done, entries, fails, json, sidereal, stderr};

const START: i64 = 1_400_000_000;

/// Strain of three detectors at a low rate, and two binaries.
const NOISE: &str = "--detectors H1,L1,V1 --rate 1024 --seed 3 --start 1400000000";
const EARLY: &str =
    "--inject m1=30,m2=30,distance=900,ra=1.2,dec=-0.4,inclination=0.3,time=1400000014.3";
const LATE: &str =
    "--inject m1=20,m2=10,distance=400,ra=0.2,dec=0.9,inclination=0.3,time=1400000025.7";
const TEMPLATES: &str = "--templates binaries.csv --f-low 40 --lowest-rate 256";
/// A threshold at which noise has events.
const LOW: &str = "--threshold 3";
const FRAMES: &str = "--frames H1=live/H1 --frames L1=live/L1 --frames V1=live/V1";

/// A folder with a table of two binaries.
fn home() -> TempDir {
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join("binaries.csv"), "mass1,mass2\n30,30\n20,10\n").unwrap();
    home
}

/// Makes the folders of three detectors, without frames.
fn folders(folder: &Path) {
    for name in ["H1", "L1", "V1"] {
        fs::create_dir_all(folder.join("live").join(name)).unwrap();
    }
}

fn lines_of(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn printed(output: &Output) -> Vec<Value> {
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Events without what depends on a background, loudest first.
fn events(document: &Value) -> Vec<Value> {
    let rows = document["events"].as_array().unwrap().iter().cloned();
    rows.map(|mut row| {
        for key in ["far_hz", "far_sigma", "far_per_year"] {
            row[key] = Value::Null;
        }
        row
    })
    .collect()
}

/// The document of the only run.
fn run(folder: &Path, output: &str) -> Value {
    let mut names = entries(&folder.join(output));
    assert!(names.remove("events.ndjson") && names.remove("gaps.ndjson"), "{names:?}");
    assert_eq!(names.len(), 1, "{names:?}");
    document(&folder.join(output).join(names.pop_first().unwrap()), "events.json")
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < LONG, "{what}");
        sleep(Duration::from_millis(10));
    }
}

/// Moves a frame of a second, counted from the start, from `made` to the folder that is watched.
fn deliver(folder: &Path, detector: &str, second: i64) {
    let name = frame(detector, second);
    fs::rename(
        folder.join("made").join(detector).join(&name),
        folder.join("live").join(detector).join(&name),
    )
    .unwrap();
}

fn frame(detector: &str, second: i64) -> String {
    format!("{}-{detector}_SIM-{}-1.gwf", &detector[..1], START + second)
}

#[test]
fn strain_played_live_gives_the_events_of_its_recording() {
    let home = home();
    let folder = home.path();
    done(folder, &format!("simulate strain whole.hdf5 {NOISE} {EARLY} {LATE} --length 32 -q"));
    let files = "whole_H1.hdf5 whole_L1.hdf5 whole_V1.hdf5";
    let words = format!("spiir search {files} {TEMPLATES} {LOW} --causal --no-plots -o file");
    let whole = json(folder, &words);
    assert!(whole["events"].as_array().unwrap().len() > 5, "{whole}");
    let loudest = &whole["events"][0];
    assert!(loudest["network_snr"].as_f64().unwrap() > 10.0, "{loudest}");
    assert!(whole["latency_s"]["total"].as_f64().unwrap() < 0.6, "{}", whole["latency_s"]);
    // Frames of a quarter of a second come while the search goes on.
    folders(folder);
    let until = START + 32;
    let words = format!("live spiir {FRAMES} {TEMPLATES} {LOW} --until {until} -o found");
    let running = Running::start(folder, &words);
    let play = format!("{NOISE} {EARLY} {LATE} --length 32 --frame 0.25 --speed 8 -q");
    done(folder, &format!("simulate strain --live live {play}"));
    let output = running.end();
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let told = run(folder, "found");
    assert_eq!(events(&told), events(&whole));
    assert_eq!(told["found"].as_u64(), Some(whole["found"].as_u64().unwrap()));
    assert_eq!(told["complete"], true);
    assert!(lines_of(&folder.join("found/gaps.ndjson")).is_empty());
    for (own, other) in
        told["detectors"].as_array().unwrap().iter().zip(whole["detectors"].as_array().unwrap())
    {
        for key in ["name", "livetime_s", "triggers", "filters", "lowest_match", "duration_s"] {
            assert_eq!(own[key], other[key], "{key}");
        }
        assert_eq!((own["frames"].as_u64(), own["repeated"].as_u64()), (Some(128), Some(0)));
    }
    // Every event is announced before it is final, and has one last line.
    let lines = printed(&output);
    assert_eq!(lines, lines_of(&folder.join("found/events.ndjson")));
    let of = |state: &str| lines.iter().filter(|line| line["state"] == state).count() as u64;
    assert_eq!(of("final"), told["found"].as_u64().unwrap());
    assert_eq!(of("retracted"), told["retracted"].as_u64().unwrap());
    assert!(of("first") > 0, "{lines:?}");
    // The truth was there from the beginning.
    let truth = document(&folder.join("live"), "truth.json");
    assert_eq!(truth["events"].as_array().unwrap().len(), 2, "{truth}");
    // The recording of frames gives the same again.
    let words = format!("live spiir {FRAMES} {TEMPLATES} {LOW} --until {until} -o again -q");
    done(folder, &words);
    assert_eq!(events(&run(folder, "again")), events(&whole));
}

#[test]
fn each_fault_of_a_file_is_a_gap_of_its_detector_with_a_reason() {
    let home = home();
    let folder = home.path();
    let bad = "--bad-seconds H1:3:4 --gap-seconds L1:5:6";
    done(folder, &format!("simulate strain --live made {NOISE} {bad} --length 12 --speed 0 -q"));
    folders(folder);
    let made =
        |detector: &str, second| folder.join("made").join(detector).join(frame(detector, second));
    // H1: one is missing, one damaged, one of another length than it says, one for times that were read.
    fs::remove_file(made("H1", 1)).unwrap();
    let whole = fs::read(made("H1", 5)).unwrap();
    fs::write(made("H1", 5), &whole[..whole.len() / 2]).unwrap();
    fs::copy(made("H1", 8), made("H1", 7)).unwrap();
    for second in 0..12 {
        for detector in ["H1", "L1"] {
            if !(detector == "H1" && second == 1) {
                deliver(folder, detector, second);
            }
        }
        // V1 has no frame from the fourth second on.
        if second < 4 {
            deliver(folder, "V1", second);
        }
    }
    let until = START + 12;
    let patience = "--wait 0.3 --give-up 5";
    let words = format!("live spiir {FRAMES} {TEMPLATES} {patience} --until {until} -o found");
    let running = Running::start(folder, &words);
    let log = folder.join("found/gaps.ndjson");
    // A file whose time has been read.
    wait_until("no gap", || fs::read_to_string(&log).is_ok_and(|text| text.contains("missing")));
    let copy = folder.join("live/H1").join(".new");
    fs::copy(folder.join("live/H1").join(frame("H1", 0)), &copy).unwrap();
    fs::rename(&copy, folder.join("live/H1").join(frame("H1", 0))).unwrap();
    let output = running.end();
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let told = run(folder, "found");
    let row = |index: usize| &told["detectors"][index];
    let seconds = |index: usize, reason: &str| row(index)["gaps"][reason]["seconds"].as_f64();
    assert_eq!(seconds(0, "missing"), Some(1.0), "{}", row(0));
    assert_eq!(seconds(0, "state"), Some(1.0), "{}", row(0));
    assert_eq!(seconds(0, "damaged"), Some(2.0), "{}", row(0));
    assert_eq!(row(0)["valid_s"].as_f64(), Some(8.0), "{}", row(0));
    assert_eq!((row(0)["frames"].as_u64(), row(0)["repeated"].as_u64()), (Some(9), Some(1)));
    assert_eq!(row(1)["valid_s"].as_f64(), Some(11.0), "{}", row(1));
    assert_eq!(seconds(2, "stopped"), Some(8.0), "{}", row(2));
    for index in 0..3 {
        assert_eq!(row(index)["duration_s"].as_f64(), Some(12.0), "{}", row(index));
        let gaps = row(index)["gaps"].as_object().unwrap().values();
        let sum: f64 = gaps.map(|gap| gap["seconds"].as_f64().unwrap()).sum();
        assert_eq!(sum + row(index)["valid_s"].as_f64().unwrap(), 12.0, "{}", row(index));
    }
    let gaps = lines_of(&folder.join("found/gaps.ndjson"));
    let gap = |detector: &str, reason: &str| {
        gaps.iter().find(|gap| gap["detector"] == detector && gap["reason"] == reason).unwrap()
    };
    assert_eq!(gap("H1", "missing")["start_gps"].as_f64(), Some((START + 1) as f64));
    assert!(gap("H1", "damaged")["why"].as_str().is_some_and(|why| !why.is_empty()));
    assert_eq!(gap("V1", "stopped")["seconds"].as_f64(), Some(8.0), "one line");
}

#[test]
fn an_event_goes_out_without_a_late_detector_and_is_better_with_it() {
    let home = home();
    let folder = home.path();
    // V1 alone has S/N 8, H1 34.
    let near = EARLY.replace("distance=900", "distance=400");
    done(folder, &format!("simulate strain --live made {NOISE} {near} --length 20 --speed 0 -q"));
    folders(folder);
    let words = format!(
        "live spiir {FRAMES} {TEMPLATES} --wait 0.2 --give-up 600 --until {} -o found --threshold 5",
        START + 20
    );
    let running = Running::start(folder, &words);
    // L1 is late from the tenth second on.
    for second in 0..20 {
        for detector in ["H1", "V1", "L1"] {
            if detector != "L1" || second < 10 {
                deliver(folder, detector, second);
            }
        }
    }
    let path = folder.join("found/events.ndjson");
    let is_near = |line: &Value| (line["gps"].as_f64().unwrap() - 1_400_000_014.3).abs() < 0.3;
    let of = |state: &str| {
        let lines = if path.exists() { lines_of(&path) } else { Vec::new() };
        lines.into_iter().find(|line| is_near(line) && line["state"] == state)
    };
    wait_until("no event without L1", || of("first").is_some());
    sleep(Duration::from_millis(500));
    assert!(of("final").is_none());
    for second in 10..20 {
        deliver(folder, "L1", second);
    }
    let output = running.end();
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let first = of("first").unwrap();
    assert!(first["detectors"]["L1"].is_null() && first["detectors"]["H1"].is_object(), "{first}");
    let has_l1 = |line: &Value| line["detectors"]["L1"].is_object();
    let better = lines_of(&path).into_iter().find(|line| is_near(line) && has_l1(line)).unwrap();
    assert_eq!(better["state"], "better", "{better}");
    assert!(better["ranking"].as_f64() > first["ranking"].as_f64());
    let last = of("final").unwrap();
    assert_eq!((&last["number"], has_l1(&last)), (&first["number"], true));
}

#[test]
fn a_signal_ends_the_search_and_keeps_what_was_found() {
    let home = home();
    let folder = home.path();
    folders(folder);
    // Without a frame.
    let words = format!("live spiir {FRAMES} {TEMPLATES} -o none");
    let running = Running::start(folder, &words);
    sleep(Duration::from_millis(300));
    let begin = Instant::now();
    running.signal(Signal::INT);
    let output = running.end();
    assert_eq!(code(&output), 130, "{}", stderr(&output));
    assert!(begin.elapsed() < Duration::from_secs(2), "{:?}", begin.elapsed());
    assert!(!folder.join("none").exists());
    // With frames that have been searched.
    done(folder, &format!("simulate strain --live live {NOISE} {EARLY} --length 20 --speed 0 -q"));
    let words = format!("live spiir {FRAMES} {TEMPLATES} {LOW} -o found");
    let running = Running::start(folder, &words);
    let log = folder.join("found/events.ndjson");
    let is_found = || fs::read_to_string(&log).is_ok_and(|text| text.contains("final"));
    wait_until("no event", is_found);
    let begin = Instant::now();
    running.signal(Signal::TERM);
    let output = running.end();
    assert_eq!(code(&output), 130, "{}", stderr(&output));
    assert!(begin.elapsed() < Duration::from_secs(2), "{:?}", begin.elapsed());
    let told = run(folder, "found");
    assert_eq!(told["complete"], false);
    assert!(told["found"].as_u64().unwrap() > 0, "{told}");
    let finals = lines_of(&log).iter().filter(|line| line["state"] == "final").count();
    assert_eq!(told["found"].as_u64(), Some(finals as u64));
}

#[test]
fn frames_without_the_channel_and_wrong_options_are_errors() {
    let home = home();
    let folder = home.path();
    folders(folder);
    done(folder, &format!("simulate strain --live live {NOISE} --length 2 --speed 0 -q"));
    let base = format!("live spiir {FRAMES} {TEMPLATES}");
    let cases = [
        (format!("{base} --channel H1:OTHER,L1:OTHER,V1:OTHER --wait 0"), "H1:STRAIN"),
        (format!("{base} --quality NO_SUCH_BIT"), "CBC_CAT1"),
        (format!("{base} --channel K1:STRAIN"), "K1:STRAIN"),
        (format!("{base} --psd welch"), "known beforehand"),
        (format!("live spiir --frames live/H1 {TEMPLATES}"), "NAME=FOLDER"),
        (format!("live spiir --frames H1=live/H1 --frames H1=live/L1 {TEMPLATES}"), "two folders"),
        (format!("live spiir --frames X1=live/H1 {TEMPLATES}"), "X1"),
        (format!("{base} --wait=-1"), "--wait"),
    ];
    for (words, expected) in cases {
        fails(&sidereal(folder, &words), 2, &[expected]);
    }
    let missing = sidereal(folder, &format!("live spiir --frames H1=nowhere {TEMPLATES}"));
    fails(&missing, 1, &["nowhere"]);
    assert!(!folder.join("live/events.ndjson").exists());
    done(folder, "simulate strain a.hdf5 --detectors H1 --rate 1024 --length 8 -q");
    let causal = format!("spiir search a_H1.hdf5 {TEMPLATES} --causal --psd running -o x");
    fails(&sidereal(folder, &causal), 2, &["--psd", "known beforehand"]);
}
