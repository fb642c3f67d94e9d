//! `live spiir`: strain that arrives as frame files gives the events of its recording, whatever becomes of the files.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Output;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;
use sidereal::io::gwf::Gwf;
use sidereal::io::strain::{ALL_INJECTIONS, ALL_QUALITY, NewStrain, StrainWriter};
use sidereal::units::Gps;
use tempfile::TempDir;

use super::live::{LONG, Running};
use super::soak::soak_s;
use crate::common::{code, document, done, entries, fails, json, sidereal, stderr};

pub(super) const START: i64 = 1_400_000_000;

/// Strain of three detectors at a low rate, and two binaries.
pub(super) const NOISE: &str = "--detectors H1,L1,V1 --rate 1024 --seed 3 --start 1400000000";
const EARLY: &str =
    "--inject m1=30,m2=30,distance=900,ra=1.2,dec=-0.4,inclination=0.3,time=1400000014.3";
const LATE: &str =
    "--inject m1=20,m2=10,distance=400,ra=0.2,dec=0.9,inclination=0.3,time=1400000025.7";
pub(super) const TEMPLATES: &str = "--templates binaries.csv --f-low 40 --lowest-rate 256";
/// A threshold at which noise has events.
pub(super) const LOW: &str = "--threshold 3";
pub(super) const FRAMES: &str =
    "--frames H1=live/H1 --frames L1=live/L1 --frames V1=live/V1 --rate 1024";

/// A folder with a table of two binaries.
pub(super) fn home() -> TempDir {
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join("binaries.csv"), "mass1,mass2\n30,30\n20,10\n").unwrap();
    home
}

/// Makes the folders of three detectors, without frames.
pub(super) fn folders(folder: &Path) {
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
pub(super) fn events(document: &Value) -> Vec<Value> {
    let rows = document["events"].as_array().unwrap().iter().cloned();
    rows.map(|mut row| {
        for key in ["far_hz", "far_sigma", "far_per_year"] {
            row[key] = Value::Null;
        }
        for key in ["log_likelihood_ratio", "signal", "injection"] {
            row[key] = Value::Null;
        }
        row
    })
    .collect()
}

/// The document of the only run.
pub(super) fn run(folder: &Path, output: &str) -> Value {
    let mut names = entries(&folder.join(output));
    assert!(names.remove("events.ndjson") && names.remove("gaps.ndjson"), "{names:?}");
    names.remove("background");
    assert_eq!(names.len(), 1, "{names:?}");
    document(&folder.join(output).join(names.pop_first().unwrap()), "events.json")
}

pub(super) fn wait_until(what: &str, is_so: impl Fn() -> bool) {
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

/// Returns options for both binaries, and both again every 40 s.
fn binaries(length_s: u64) -> String {
    let at = |binary: &str, time: &str, after_s: u64| {
        let (from, to) = (time.to_owned(), time.parse::<f64>().unwrap() + after_s as f64);
        binary.replace(&from, &format!("{to:.1}"))
    };
    let both = |number: u64| {
        let (early, late) = ("1400000014.3", "1400000025.7");
        format!("{} {} ", at(EARLY, early, 40 * number), at(LATE, late, 40 * number))
    };
    (0..(length_s + 8) / 40).map(both).collect()
}

/// The length is `SIDEREAL_SOAK_S`, 32 s by default; longer strain is played faster.
#[test]
fn strain_played_live_gives_the_events_of_its_recording() {
    let home = home();
    let folder = home.path();
    let length_s = soak_s(32.0) as u64;
    let signals = binaries(length_s);
    done(folder, &format!("simulate strain whole.hdf5 {NOISE} {signals} --length {length_s} -q"));
    let files = "whole_H1.hdf5 whole_L1.hdf5 whole_V1.hdf5";
    let all = "--max-events 1000000";
    let words = format!("spiir search {files} {TEMPLATES} {LOW} {all} --causal --no-plots -o file");
    let whole = json(folder, &words);
    assert!(whole["events"].as_array().unwrap().len() > 5, "{whole}");
    let loudest = &whole["events"][0];
    assert!(loudest["network_snr"].as_f64().unwrap() > 10.0, "{loudest}");
    assert!(whole["latency_s"]["total"].as_f64().unwrap() < 0.6, "{}", whole["latency_s"]);
    // Frames of a quarter of a second come while the search goes on.
    folders(folder);
    let until = START + length_s as i64;
    let words = format!("live spiir {FRAMES} {TEMPLATES} {LOW} {all} --until {until} -o found");
    let running = Running::start(folder, &words);
    let speed = (length_s / 120).max(8);
    let play = format!("{NOISE} {signals} --length {length_s} --frame 0.25 --speed {speed} -q");
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
        let frames = own["frames"].as_u64();
        assert_eq!((frames, own["repeated"].as_u64()), (Some(4 * length_s), Some(0)));
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
    let injected = truth["events"].as_array().unwrap();
    assert_eq!(injected.len() as u64, 2 * ((length_s + 8) / 40));
    let is_found = |one: &&Value| {
        let gps = one["gps"].as_f64().unwrap();
        let is_near = |row: &Value| (row["gps"].as_f64().unwrap() - gps).abs() < 0.1;
        told["events"].as_array().unwrap().iter().any(is_near)
    };
    assert_eq!(injected.iter().filter(is_found).count(), injected.len());
    eprintln!("{length_s} s: {} events, all as in the recording", told["found"]);
    // The recording of frames gives the same again.
    let words = format!("live spiir {FRAMES} {TEMPLATES} {LOW} {all} --until {until} -o again -q");
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
fn a_killed_run_leaves_its_background_for_the_next() {
    let home = home();
    let folder = home.path();
    folders(folder);
    let play = "--length 200 --speed 0 -q";
    done(folder, &format!("simulate strain --live live {NOISE} {play}"));
    let base = format!("live spiir {FRAMES} {TEMPLATES} {LOW} -o found -q");
    let running = Running::start(folder, &base);
    let file = folder.join("found/background");
    wait_until("no background", || file.exists());
    running.signal(Signal::KILL);
    let output = running.end();
    assert!(!output.status.success(), "{}", stderr(&output));
    let killed = fs::read(&file).unwrap();
    // The next run searches the same frames, and has the time of both.
    let until = START + 200;
    done(folder, &format!("{base} --until {until}"));
    let told = document(&folder.join("found").join(START.to_string()), "events.json");
    let livetime_s = told["background"]["livetime_s"].as_f64().unwrap();
    assert!(livetime_s > 220.0 && livetime_s < 400.0, "{livetime_s}");
    let lines = lines_of(&folder.join("found/events.ndjson"));
    let rate = |line: &Value| line["far_per_year"].as_f64();
    // The first events of the first run come before any background, those of the second do not.
    assert!(rate(&lines[0]).is_none(), "{}", lines[0]);
    let last: Vec<&Value> = lines.iter().rev().take(20).collect();
    assert!(last.iter().all(|line| rate(line).is_some_and(|rate| rate > 0.0)), "{last:?}");
    let ratio = |line: &&Value| line["log_likelihood_ratio"].as_f64().unwrap();
    let order = |a: &&&Value, b: &&&Value| ratio(a).total_cmp(&ratio(b));
    let (quietest, loudest) = (last.iter().min_by(order), last.iter().max_by(order));
    assert!(rate(loudest.unwrap()) <= rate(quietest.unwrap()), "{last:?}");
    assert!(last.iter().all(|line| line["injection"] == false && line["signal"] == false));
    // It belongs to one search, and a damaged one is refused.
    let again = format!("{base} --until {until}");
    let other = again.replace(LOW, "--threshold 3.5");
    fails(&sidereal(folder, &other), 3, &["background", "3 found, expected 3.5", "move it away"]);
    for damaged in [&killed[..killed.len() - 9], b"text"] {
        fs::write(&file, damaged).unwrap();
        fails(&sidereal(folder, &again), 3, &["found/background", "move it away"]);
        assert_eq!(fs::read(&file).unwrap(), damaged);
    }
    fs::rename(&file, folder.join("elsewhere")).unwrap();
    fs::write(folder.join("elsewhere"), &killed).unwrap();
    done(folder, &format!("{again} --background elsewhere"));
    assert!(!file.exists() && fs::read(folder.join("elsewhere")).unwrap() != killed);
}

/// Clears the bit of binaries in the mask of injections of a frame of a second.
fn mark_injection(path: &Path, detector: &str, second: i64) {
    let file = Gwf::open(path).unwrap();
    let piece = file.pieces(&format!("{detector}:STRAIN")).unwrap().remove(0);
    let mut samples = vec![0.0; piece.samples as usize];
    file.open_piece(&piece).unwrap().read(&mut samples).unwrap();
    let strain = NewStrain {
        detector: detector.to_owned(),
        channel: None,
        start: Gps::from_s((START + second) as f64),
        rate_hz: 1024,
        samples: piece.samples,
        description: String::new(),
        bits: Some([vec![ALL_QUALITY], vec![ALL_INJECTIONS & !1]]),
        is_compressed: false,
    };
    let mut writer = StrainWriter::create(path, &strain).unwrap();
    writer.write(&samples).unwrap();
    writer.finish().unwrap();
}

#[test]
fn rare_events_give_alerts_with_files_and_commands() {
    let home = home();
    let folder = home.path();
    folders(folder);
    let near = EARLY.replace("distance=900", "distance=500").replace("000014.3", "000214.3");
    let play = "--length 240 --speed 0 -q";
    done(folder, &format!("simulate strain --live live {NOISE} {near} {play}"));
    // The file is there when the command runs.
    let script = folder.join("hook.sh");
    let text = "#!/bin/sh\nread line\necho \"$line\" >> messages\n\
                coinc=$(echo \"$line\" | sed 's/.*\"coinc\":\"\\([^\"]*\\)\".*/\\1/')\n\
                test -s \"$coinc\" && echo \"$coinc\" >> files\n";
    fs::write(&script, text).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let until = START + 240;
    let base = format!("live spiir {FRAMES} {TEMPLATES} {LOW} --until {until} -q");
    let alerts = "--alerts alerts --on-event ./hook.sh --alert-test";
    done(folder, &format!("{base} -o found {alerts} --far-max 1000"));
    let messages = lines_of(&folder.join("messages"));
    let lines = lines_of(&folder.join("found/events.ndjson"));
    let is_rare = |line: &&Value| line["far_per_year"].as_f64().is_some_and(|rate| rate <= 1000.0);
    let rare: Vec<&Value> = lines.iter().filter(is_rare).collect();
    assert!(!rare.is_empty() && rare.len() == messages.len(), "{rare:?} {messages:?}");
    let number = &rare[0]["number"];
    assert!(rare.iter().all(|line| line["number"] == *number), "{rare:?}");
    for (place, (line, message)) in rare.iter().zip(&messages).enumerate() {
        let state = if place == 0 { "initial" } else { "update" };
        assert_eq!((&message["state"], &message["test"]), (&state.into(), &true.into()));
        assert_eq!(message["sequence"].as_u64(), Some(place as u64 + 1));
        assert_eq!(message["final"], line["state"] == "final");
        for key in ["gps", "far_hz", "far_per_year", "network_snr", "log_likelihood_ratio"] {
            assert_eq!(message[key], line[key], "{key}");
        }
        assert!(message["time"].as_str().unwrap().starts_with("2024-05-17T16:56:36."), "{message}");
    }
    assert_eq!(messages.last().unwrap()["final"], true);
    let files = fs::read_to_string(folder.join("files")).unwrap();
    assert_eq!(files.lines().count(), messages.len(), "{files}");
    for message in &messages {
        let coinc = message["coinc"].as_str().unwrap();
        let text = fs::read_to_string(folder.join(coinc)).unwrap();
        let detectors = message["detectors"].as_object().unwrap().len();
        assert_eq!(text.matches("Name=\"COMPLEX8TimeSeries\"").count(), detectors, "{coinc}");
        assert_eq!(text.matches("Name=\"REAL8FrequencySeries\"").count(), detectors, "{coinc}");
        let notice = fs::read_to_string(folder.join(coinc.replace(".xml", ".json"))).unwrap();
        let notice: Value = serde_json::from_str(&notice).unwrap();
        assert_eq!((&notice["far"], &notice["alert_tense"]), (&message["far_hz"], &"test".into()));
    }
    // Frames of other lengths give final events the same rates.
    fs::rename(folder.join("live"), folder.join("seconds")).unwrap();
    folders(folder);
    done(folder, &format!("simulate strain --live live {NOISE} {near} {play} --frame 0.25"));
    done(folder, &format!("{base} -o quarters"));
    let finals = |output: &str| {
        let lines = lines_of(&folder.join(output).join("events.ndjson"));
        let finals = lines.into_iter().filter(|line| line["state"] == "final");
        let rated = finals.map(|line| {
            ["gps", "far_hz", "log_likelihood_ratio", "signal"].map(|key| line[key].clone())
        });
        rated.collect::<Vec<_>>()
    };
    assert_eq!(finals("quarters"), finals("found"));
    // The same signal as a hardware injection. A lower limit gives no alert.
    mark_injection(&folder.join("seconds/H1").join(frame("H1", 214)), "H1", 214);
    let marked = base.replace("=live/", "=seconds/");
    done(folder, &format!("{marked} -o marked --alerts marked/alerts --far-max 1000"));
    let lines = lines_of(&folder.join("marked/events.ndjson"));
    let is_marked = |line: &&Value| line["injection"] == true;
    assert!(lines.iter().filter(is_rare).all(|line| is_marked(&line)), "{lines:?}");
    assert!(lines.iter().any(|line| is_rare(&line) && is_marked(&line)), "{lines:?}");
    // The mark has a second, and a second before and after it.
    let far = |line: &Value| (line["gps"].as_f64().unwrap() - (START as f64 + 214.5)).abs() > 1.6;
    assert!(!lines.iter().filter(is_marked).any(far), "{lines:?}");
    let mut notices = 0;
    for notice in fs::read_dir(folder.join("marked/alerts")).unwrap() {
        let path = notice.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        let is_notice = path.extension() == Some("json".as_ref());
        assert!(!is_notice || text.contains("\"injection\""));
        notices += usize::from(is_notice);
    }
    assert!(notices > 0);
    done(folder, &format!("{base} -o rarer --alerts none --far-max 1e-6"));
    assert_eq!(fs::read_dir(folder.join("none")).unwrap().count(), 0);
    for (option, expected) in
        [("--far-max=-1", "--far-max"), ("--on-event ./none.sh", "--on-event")]
    {
        fails(&sidereal(folder, &format!("{base} -o found {option}")), 2, &[expected]);
    }
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
        (format!("live spiir --rate 1024 --frames live/H1 {TEMPLATES}"), "NAME=FOLDER"),
        (
            format!("live spiir --rate 1024 --frames H1=live/H1 --frames H1=live/L1 {TEMPLATES}"),
            "two folders",
        ),
        (format!("live spiir --rate 1024 --frames X1=live/H1 {TEMPLATES}"), "X1"),
        (format!("live spiir --frames H1=live/H1 {TEMPLATES}"), "--rate"),
        (format!("{base} --channel H1:A,L1:B,H1:C"), "H1:C, but H1 has H1:A already"),
        (format!("{base} --state L1:B,L1:C"), "L1:C, but L1 has L1:B already"),
        (format!("{base} --wait=-1"), "--wait"),
    ];
    for (words, expected) in cases {
        fails(&sidereal(folder, &words), 2, &[expected]);
    }
    let missing =
        sidereal(folder, &format!("live spiir --rate 1024 --frames H1=nowhere {TEMPLATES}"));
    fails(&missing, 1, &["nowhere"]);
    assert!(!folder.join("live/events.ndjson").exists());
    done(folder, "simulate strain a.hdf5 --detectors H1 --rate 1024 --length 8 -q");
    let causal = format!("spiir search a_H1.hdf5 {TEMPLATES} --causal --psd running -o x");
    fails(&sidereal(folder, &causal), 2, &["--psd", "known beforehand"]);
}

#[test]
fn a_finished_bank_is_searched_and_gives_the_rate() {
    let home = home();
    let folder = home.path();
    folders(folder);
    done(folder, &format!("simulate strain whole.hdf5 {NOISE} {EARLY} {LATE} --length 32 -q"));
    done(
        folder,
        &format!("simulate strain --live live {NOISE} {EARLY} {LATE} --length 32 --speed 0 -q"),
    );
    done(
        folder,
        "spiir bank binaries.csv --f-low 40 --lowest-rate 256 --rate 1024 --psd aligo -o bank.h5 -q",
    );
    let files = "whole_H1.hdf5 whole_L1.hdf5 whole_V1.hdf5";
    let words = format!(
        "spiir search {files} --bank bank.h5 {LOW} --causal --whitening overlap --no-plots -o file"
    );
    let whole = json(folder, &words);
    assert!(whole["events"].as_array().unwrap().len() > 5, "{whole}");
    let frames = FRAMES.replace(" --rate 1024", " --whitening overlap");
    let until = START + 32;
    done(folder, &format!("live spiir {frames} --bank bank.h5 {LOW} --until {until} -o found -q"));
    let told = run(folder, "found");
    assert_eq!(events(&told), events(&whole));
    assert_eq!(told["detectors"][0]["rate_hz"], 1024);
    assert_eq!(told["latency_s"], whole["latency_s"]);
    // Wrong uses are errors before any frame.
    let cases = [
        (
            format!("live spiir {frames} --bank bank.h5").replace("overlap", "minimum-phase"),
            "overlap",
        ),
        (format!("live spiir {frames} --bank bank.h5 --rate 2048"), "1024"),
        (format!("live spiir {frames} --bank bank.h5 --f-low 30"), "--f-low"),
        (format!("live spiir {frames} --bank bank.h5 --f-stop 60"), "--f-stop"),
        (format!("live spiir {frames} --bank K1=bank.h5"), "--bank H1=BANK"),
    ];
    for (words, expected) in cases {
        fails(&sidereal(folder, &words), 2, &[expected]);
    }
}

#[test]
fn frames_of_another_rate_and_without_a_state_vector_are_gaps_with_a_reason() {
    let home = home();
    let folder = home.path();
    folders(folder);
    done(folder, &format!("simulate strain --live live {NOISE} --length 4 --speed 0 -q"));
    let until = START + 4;
    let slow = FRAMES.replace("1024", "512");
    let words = format!("live spiir {slow} {TEMPLATES} --wait 0 --until {until} -o slow");
    let output = sidereal(folder, &words);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    for row in run(folder, "slow")["detectors"].as_array().unwrap() {
        assert_eq!(row["gaps"]["damaged"]["seconds"].as_f64(), Some(4.0), "{row}");
        assert_eq!(row["valid_s"].as_f64(), Some(0.0), "{row}");
    }
    let gaps = lines_of(&folder.join("slow/gaps.ndjson"));
    assert_eq!(gaps[0]["why"], "1024 Hz found, expected 512", "{gaps:?}");
    // The state vector is expected unless all strain is wanted.
    let words = format!(
        "live spiir {FRAMES} {TEMPLATES} --state H1:OTHER --wait 0 --until {until} -o stateless"
    );
    let output = sidereal(folder, &words);
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let said = stderr(&output);
    assert!(said.contains("H1: no strain is used") && said.contains("H1:OTHER"), "{said}");
    let told = run(folder, "stateless");
    assert_eq!(told["detectors"][0]["gaps"]["channel"]["seconds"].as_f64(), Some(4.0), "{told}");
    assert_eq!(told["detectors"][1]["valid_s"].as_f64(), Some(4.0), "{told}");
    let words = format!(
        "live spiir {FRAMES} {TEMPLATES} --state H1:OTHER --quality none --until {until} -o all"
    );
    let output = sidereal(folder, &words);
    assert!(stderr(&output).contains("whatever its state"), "{}", stderr(&output));
    assert_eq!(run(folder, "all")["detectors"][0]["valid_s"].as_f64(), Some(4.0));
}

#[test]
fn a_gap_longer_than_the_filters_memory_restarts_them_as_in_the_recording() {
    let home = home();
    let folder = home.path();
    let late = LATE.replace("time=1400000025.7", "time=1400000290.7");
    let gaps = "--gap-seconds H1:20:270 --gap-seconds L1:20:270 --gap-seconds V1:22:270";
    done(
        folder,
        &format!("simulate strain whole.hdf5 {NOISE} {EARLY} {late} {gaps} --length 300 -q"),
    );
    let files = "whole_H1.hdf5 whole_L1.hdf5 whole_V1.hdf5";
    let words = format!("spiir search {files} {TEMPLATES} {LOW} --causal --no-plots -o file");
    let whole = json(folder, &words);
    let is_late = |event: &Value| event["gps"].as_f64().unwrap() > 1_400_000_270.0;
    assert!(whole["events"].as_array().unwrap().iter().filter(|one| is_late(one)).count() > 5);
    // Frames of the gap are not there.
    folders(folder);
    done(
        folder,
        &format!("simulate strain --live made {NOISE} {EARLY} {late} --length 300 --speed 0 -q"),
    );
    for second in (0..22).chain(270..300) {
        for detector in ["H1", "L1", "V1"] {
            if !(20..270).contains(&second) || detector == "V1" {
                deliver(folder, detector, second);
            }
        }
    }
    let until = START + 300;
    let words =
        format!("live spiir {FRAMES} {TEMPLATES} {LOW} --wait 0.2 --until {until} -o found -q");
    done(folder, &words);
    let told = run(folder, "found");
    assert_eq!(events(&told), events(&whole));
    for row in told["detectors"].as_array().unwrap() {
        assert_eq!(row["restarts"].as_u64(), Some(1), "{row}");
        assert_eq!(row["duration_s"].as_f64(), Some(300.0), "{row}");
    }
}

#[test]
fn an_outage_of_a_month_takes_no_time() {
    let home = home();
    let folder = home.path();
    folders(folder);
    let month = 30 * 86_400;
    let again = NOISE.replace("1400000000", &(START + month).to_string());
    let play = |noise: &str| {
        done(folder, &format!("simulate strain --live live {noise} --length 10 --speed 0 -q"));
    };
    play(NOISE);
    let until = START + month + 10;
    let words =
        format!("live spiir {FRAMES} {TEMPLATES} {LOW} --wait 0.2 --until {until} -o found -q");
    let running = Running::start(folder, &words);
    let log = folder.join("found/events.ndjson");
    wait_until("no event", || fs::read_to_string(&log).is_ok_and(|text| text.contains("first")));
    play(&again);
    let begin = Instant::now();
    let output = running.end();
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert!(begin.elapsed() < LONG / 2, "{:?}", begin.elapsed());
    for row in run(folder, "found")["detectors"].as_array().unwrap() {
        assert_eq!(row["restarts"].as_u64(), Some(1), "{row}");
        assert_eq!(row["valid_s"].as_f64(), Some(20.0), "{row}");
        assert_eq!(row["gaps"]["missing"]["seconds"].as_f64(), Some((month - 10) as f64), "{row}");
    }
}

/// Lines of events without what differs between runs.
fn published(path: &Path) -> Vec<Value> {
    let mut lines = lines_of(path);
    for line in &mut lines {
        line["written_unix_s"] = Value::Null;
        line["observation"] = Value::Null;
    }
    lines
}

#[test]
fn killed_runs_continue_and_publish_each_event_once() {
    let home = home();
    let folder = home.path();
    folders(folder);
    let late = LATE.replace("time=1400000025.7", "time=1400000290.7");
    let gaps = "--gap-seconds H1:100:160 --bad-seconds L1:40:43";
    done(
        folder,
        &format!(
            "simulate strain --live live {NOISE} {EARLY} {late} {gaps} --length 300 --speed 0 -q"
        ),
    );
    let until = START + 300;
    let base =
        format!("live spiir {FRAMES} {TEMPLATES} {LOW} --wait 600 --give-up 900 --until {until}");
    done(folder, &format!("{base} -o whole -q"));
    let whole = published(&folder.join("whole/events.ndjson"));
    assert!(whole.len() > 100, "{}", whole.len());
    let is = |state: &str| whole.iter().filter(|line| line["state"] == state).count();
    assert!(is("better") + is("retracted") > 3, "{}", whole.len());
    // Killed at moments from the start of the search to its end, until a run ends by itself.
    let words = format!("{base} --checkpoint 0.02 --resume -o killed -q");
    let has_checkpoint = || {
        let found = fs::read_dir(folder.join("killed")).into_iter().flatten().flatten();
        found.map(|entry| entry.path().join("checkpoint")).any(|path| path.exists())
    };
    let mut seed = 7_u64;
    let (mut kills, mut continued) = (0, 0);
    let output = loop {
        let mut running = Running::start(folder, &words);
        let mut has_ended = || running.child().try_wait().unwrap().is_some();
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let events = folder.join("killed/events.ndjson");
        let lines = || fs::read_to_string(&events).map_or(0, |text| text.lines().count());
        // Events come, and some milliseconds pass.
        let (begin, more) = (lines(), Instant::now());
        while lines() == begin && !has_ended() && more.elapsed() < LONG {
            sleep(Duration::from_millis(1));
        }
        sleep(Duration::from_millis(seed >> 58));
        if kills < 15 && !has_ended() {
            running.signal(Signal::KILL);
            running.end();
            kills += 1;
            continued += usize::from(has_checkpoint());
            continue;
        }
        break running.end();
    };
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert!(kills > 9 && continued == kills, "{kills} {continued}");
    assert_eq!(published(&folder.join("killed/events.ndjson")), whole);
    let (told, expected) = (run(folder, "killed"), run(folder, "whole"));
    for key in ["events", "found", "retracted", "detectors"] {
        assert_eq!(told[key], expected[key], "{key}");
    }
    let gaps = |name: &str| -> Vec<Value> {
        let mut gaps = lines_of(&folder.join(name).join("gaps.ndjson"));
        gaps.iter_mut().for_each(|gap| gap["observation"] = Value::Null);
        gaps
    };
    assert_eq!(gaps("killed"), gaps("whole"));
}

#[test]
fn a_checkpoint_of_another_search_or_a_damaged_one_is_refused() {
    let home = home();
    let folder = home.path();
    folders(folder);
    done(folder, &format!("simulate strain --live live {NOISE} {EARLY} --length 30 --speed 0 -q"));
    let base = format!("live spiir {FRAMES} {TEMPLATES} -o killed --resume");
    let running = Running::start(folder, &format!("{base} {LOW} --checkpoint 0.01"));
    let hidden = || {
        let found = fs::read_dir(folder.join("killed")).into_iter().flatten().flatten();
        let mut paths = found.map(|entry| entry.path().join("checkpoint"));
        paths.find(|path| path.exists())
    };
    wait_until("no checkpoint", || hidden().is_some());
    running.signal(Signal::KILL);
    running.end();
    fails(&sidereal(folder, &format!("{base} --threshold 5")), 2, &["threshold", "--resume"]);
    fails(&sidereal(folder, &format!("{base} {LOW} --f-high 300")), 2, &["f_high"]);
    let path = hidden().unwrap();
    let whole = fs::read(&path).unwrap();
    let mut damaged = whole.clone();
    damaged[whole.len() / 2] ^= 1;
    fs::write(&path, &damaged).unwrap();
    fails(&sidereal(folder, &format!("{base} {LOW}")), 3, &["checkpoint", "checksum"]);
    fs::write(&path, &whole).unwrap();
    // Frames that are gone are a gap; the run continues all the same.
    for second in 10..20 {
        fs::remove_file(folder.join("live/L1").join(frame("L1", second))).unwrap();
    }
    let until = START + 30;
    done(folder, &format!("{base} {LOW} --wait 0.2 --until {until} -q"));
    let told = run(folder, "killed");
    assert_eq!(told["detectors"][0]["valid_s"].as_f64(), Some(30.0), "{told}");
    assert_eq!(told["detectors"][1]["duration_s"].as_f64(), Some(30.0), "{told}");
    let mut ended = std::collections::BTreeSet::new();
    for line in lines_of(&folder.join("killed/events.ndjson")) {
        if line["state"] == "final" || line["state"] == "retracted" {
            assert!(ended.insert(line["number"].as_u64()), "{line}");
        }
    }
}
