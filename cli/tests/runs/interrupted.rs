//! Runs that are stopped, killed or cut, and those that continue them.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use crate::common::{document, done, entries, fails, program, sidereal, stderr};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// A folder with 40 s of 32 channels (a.fil) and three bursts, early ones first.
fn recording() -> TempDir {
    let home = tempfile::tempdir().unwrap();
    let words = "simulate burst a.fil -q --fch1 1500 --foff -8 --channels 32 --tsamp 1e-3 --duration 40 \
                 --seed 5 --burst dm=60,time=1.5,width=0.004,snr=25 \
                 --burst dm=30,time=9.5,width=0.004,snr=20 --burst dm=90,time=31,width=0.008,snr=30";
    done(home.path(), words);
    home
}

fn start(folder: &Path, words: &str) -> Child {
    Command::new(program())
        .args(words.split_whitespace())
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// The hidden folder that a run fills.
fn unfinished(folder: &Path) -> Option<PathBuf> {
    let is_one = |name: &&String| name.contains(".unfinished-");
    entries(folder).iter().find(is_one).map(|name| folder.join(name))
}

/// Waits until a run's hidden folder has a file that is long enough; false if the run ends before.
fn waits_for(child: &mut Child, folder: &Path, name: &str, bytes: u64) -> bool {
    loop {
        let length = |path: PathBuf| fs::metadata(path.join(name)).ok().map(|found| found.len());
        if unfinished(folder).and_then(length).is_some_and(|length| length >= bytes) {
            return true;
        }
        if child.try_wait().unwrap().is_some() {
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

/// Files of two products are the same, but for what tells how fast they were made.
fn same(folder: &Path, one: &str, other: &str) {
    let (one, other) = (folder.join(one), folder.join(other));
    assert_eq!(entries(&one), entries(&other));
    for name in entries(&one) {
        if name.ends_with(".json") {
            let told = |folder: &Path| {
                let mut summary = document(folder, &name);
                summary.as_object_mut().unwrap().remove("run");
                summary
            };
            assert_eq!(told(&one), told(&other));
            continue;
        }
        assert!(
            fs::read(one.join(&name)).unwrap() == fs::read(other.join(&name)).unwrap(),
            "{name}"
        );
    }
}

const SEARCH: &str = "search a.fil --reproducible --device cpu --snr 5.5 --dm-max 200 --max-plots 3 --singlepulse \
                      --list-absorbed";

#[test]
fn a_search_that_is_killed_or_stopped_is_continued() {
    let home = recording();
    let folder = home.path();
    done(folder, &format!("{SEARCH} -o whole"));
    assert!(!entries(&folder.join("whole")).contains("journal"));
    for (index, kind) in [Signal::KILL, Signal::INT, Signal::TERM].into_iter().enumerate() {
        let out = format!("out{index}");
        let mut child = start(folder, &format!("{SEARCH} -o {out} --gulp 8"));
        // The first checkpoint, then the first line of the journal.
        let name = if index == 0 { "journal" } else { "checkpoint" };
        assert!(
            waits_for(&mut child, folder, name, 1),
            "{}",
            stderr(&child.wait_with_output().unwrap())
        );
        signal(&child, kind);
        let ended = child.wait_with_output().unwrap();
        if kind == Signal::KILL {
            assert!(!folder.join(&out).exists());
        } else {
            assert_eq!(ended.status.code(), Some(130), "{}", stderr(&ended));
            let summary = document(&folder.join(&out), "summary.json");
            assert_eq!(summary["complete"], false);
            assert_eq!(summary["reason"], "stopped on request");
            assert!(entries(&folder.join(&out)).contains("checkpoint"));
        }
        let other = sidereal(folder, &format!("{SEARCH} -o {out} --zero-dm --resume"));
        fails(&other, 2, &["--zero-dm false, not true", "only with the same options"]);
        let other = sidereal(folder, &format!("{SEARCH} -o {out} --resume").replace("5.5", "6"));
        fails(&other, 2, &["--snr 5.5, not 6.0"]);
        done(folder, &format!("{SEARCH} -o {out} --resume"));
        same(folder, &out, "whole");
        assert_eq!(unfinished(folder), None);
        let complete = sidereal(folder, &format!("{SEARCH} -o {out} --resume"));
        fails(&complete, 2, &["--resume"]);
    }
    let changed = fs::read(folder.join("a.fil")).unwrap();
    let mut child = start(folder, &format!("{SEARCH} -o other --gulp 8"));
    assert!(waits_for(&mut child, folder, "checkpoint", 1));
    signal(&child, Signal::KILL);
    child.wait().unwrap();
    fs::write(folder.join("a.fil"), &changed[..changed.len() - 32]).unwrap();
    let other = sidereal(folder, &format!("{SEARCH} -o other --resume"));
    fails(&other, 2, &["input a.fil of", "bytes"]);
}

const BEAMS: &str = "search a.fil b.fil c.fil --beams --reproducible --device cpu --snr 5.5 --dm-max 200 --max-plots 2";

/// Three recordings as that of [`recording`], with noise of their own.
fn beams() -> TempDir {
    let home = recording();
    for (name, seed) in [("b", 6), ("c", 7)] {
        let words = format!(
            "simulate burst {name}.fil -q --fch1 1500 --foff -8 --channels 32 --tsamp 1e-3 --duration 40 --seed {seed} \
             --burst dm=60,time=1.5,width=0.004,snr=25 --burst dm=90,time=31,width=0.008,snr=30"
        );
        done(home.path(), &words);
    }
    home
}

/// Folders of beams in two products, and their own files, are the same.
fn same_beams(folder: &Path, one: &str, other: &str) {
    let names = entries(&folder.join(one));
    assert_eq!(names, entries(&folder.join(other)));
    for name in names {
        let of = |product: &str| format!("{product}/{name}");
        if folder.join(of(one)).is_dir() {
            same(folder, &of(one), &of(other));
        } else if name.ends_with(".json") {
            assert_eq!(document(folder, &of(one)), document(folder, &of(other)));
        } else {
            let read = |product: &str| fs::read(folder.join(of(product))).unwrap();
            assert!(read(one) == read(other), "{name}");
        }
    }
}

#[test]
fn a_search_of_beams_that_is_killed_or_stopped_is_continued() {
    let home = beams();
    let folder = home.path();
    done(folder, &format!("{BEAMS} -o whole/found"));
    for (index, kind) in [Signal::KILL, Signal::INT, Signal::KILL].into_iter().enumerate() {
        let (home, out) = (folder.join(format!("run{index}")), format!("run{index}/found"));
        fs::create_dir(&home).unwrap();
        // Within the first beam nothing can be joined.
        let within = if index == 2 { "a_search" } else { "b_search" };
        let mut child = start(folder, &format!("{BEAMS} -o {out} --gulp 8"));
        assert!(
            waits_for(&mut child, &home, &format!("{within}/journal"), 1),
            "{}",
            stderr(&child.wait_with_output().unwrap())
        );
        signal(&child, kind);
        let ended = child.wait_with_output().unwrap();
        let left = if kind == Signal::KILL {
            assert!(!folder.join(&out).exists());
            unfinished(&home).unwrap()
        } else {
            assert_eq!(ended.status.code(), Some(130), "{}", stderr(&ended));
            let summary = document(&folder.join(&out), "summary.json");
            assert_eq!(
                (&summary["complete"], &summary["reason"]),
                (&false.into(), &"stopped on request".into())
            );
            assert_eq!(summary["beams"].as_array().unwrap().len(), 1);
            assert!(!folder.join(&out).join("c_search").exists());
            folder.join(&out)
        };
        assert!(!left.join("b_search/summary.json").exists());
        let written = |left: &Path| {
            fs::metadata(left.join("a_search/candidates.csv"))
                .ok()
                .map(|found| found.modified().unwrap())
        };
        let before = written(&left);
        for (option, said) in [
            ("--max-beams 1", "--max-beams None, not Some(1)"),
            ("--zero-dm", "--zero-dm false, not true"),
            ("--fetch", "--fetch"),
        ] {
            let other = sidereal(folder, &format!("{BEAMS} {option} -o {out} --resume"));
            fails(&other, 2, &[said, "only with the same options"]);
        }
        let other = sidereal(folder, &format!("{} -o {out} --resume", BEAMS.replace(" c.fil", "")));
        fails(&other, 2, &["input c.fil"]);
        let resumed = sidereal(folder, &format!("{BEAMS} -o {out} --resume"));
        assert!(resumed.status.success(), "{}", stderr(&resumed));
        assert!(
            stderr(&resumed).contains("continues an interrupted run of which"),
            "{}",
            stderr(&resumed)
        );
        same_beams(folder, &out, "whole/found");
        // A beam that was complete is not searched again.
        if before.is_some() {
            assert_eq!(written(&folder.join(&out)), before);
        }
        assert_eq!(unfinished(&home), None);
        let complete = sidereal(folder, &format!("{BEAMS} -o {out} --resume"));
        fails(&complete, 2, &["--resume"]);
    }
}

#[test]
fn a_search_that_is_stopped_within_the_first_beam_is_kept_for_a_later_run() {
    let home = beams();
    let folder = home.path();
    fs::create_dir(folder.join("run")).unwrap();
    let mut child = start(folder, &format!("{BEAMS} -o run/found --gulp 8"));
    assert!(waits_for(&mut child, &folder.join("run"), "a_search/journal", 1));
    signal(&child, Signal::TERM);
    let ended = child.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(130), "{}", stderr(&ended));
    assert!(stderr(&ended).contains("--resume continues from there"), "{}", stderr(&ended));
    assert!(!folder.join("run/found").exists() && unfinished(&folder.join("run")).is_some());
    done(folder, &format!("{BEAMS} -o run/found --resume"));
    done(folder, &format!("{BEAMS} -o whole/found"));
    same_beams(folder, "run/found", "whole/found");
    // An error before any checkpoint leaves nothing.
    let whole = fs::read(folder.join("a.fil")).unwrap();
    fs::write(folder.join("a.fil"), &whole[..60]).unwrap();
    fails(&sidereal(folder, &format!("{BEAMS} -o none")), 3, &["a.fil"]);
    assert_eq!(unfinished(folder), None);
}

#[test]
fn a_dedispersion_that_is_killed_or_stopped_is_continued() {
    let home = recording();
    let folder = home.path();
    for (format, kind) in [("npy", Signal::KILL), ("dat", Signal::INT), ("tim", Signal::KILL)] {
        let words = "dedisperse a.fil --reproducible --device cpu --ranges 0:60:4,60:100:8:2";
        let words = format!("{words} --format {format}");
        let (out, whole) = (format!("out_{format}"), format!("whole_{format}"));
        done(folder, &format!("{words} -o {whole}"));
        let mut child = start(folder, &format!("{words} -o {out} --gulp 4"));
        assert!(waits_for(&mut child, folder, "checkpoint", 1));
        signal(&child, kind);
        let ended = child.wait_with_output().unwrap();
        if kind == Signal::INT {
            assert_eq!(ended.status.code(), Some(130), "{}", stderr(&ended));
            let told = document(&folder.join(&out), "dedispersed.json");
            assert_eq!(
                (&told["complete"], &told["reason"]),
                (&false.into(), &"stopped on request".into())
            );
        }
        let other = sidereal(folder, &format!("{words} -o {out} --zap-chans 3 --resume"));
        fails(&other, 2, &["--zap-chans [], not [3]"]);
        done(folder, &format!("{words} -o {out} --resume"));
        same(folder, &out, &whole);
        assert_eq!(unfinished(folder), None);
    }
}

#[test]
fn a_dedispersion_that_fills_the_disk_keeps_what_it_made() {
    let home = recording();
    let folder = home.path();
    let words = "dedisperse a.fil --device cpu --ranges 0:60:4,60:100:8:2 --gulp 500";
    done(folder, &format!("{words} -o whole"));
    // A file may have 512 KiB; the signal that comes with it is ignored.
    let binary = program().display().to_string();
    let script = format!("trap '' XFSZ; ulimit -f 1024; exec {binary} {words} -o out");
    let full = Command::new("sh").args(["-c", &script]).current_dir(folder).output().unwrap();
    assert_eq!(full.status.code(), Some(4), "{}", stderr(&full));
    let told = document(&folder.join("out"), "dedispersed.json");
    assert_eq!(told["complete"], false);
    let most = told["times"].as_array().unwrap().iter().map(|times| times.as_u64().unwrap()).max();
    let bytes = fs::read(folder.join("out/dedispersed.npy")).unwrap();
    assert!(most > Some(0));
    assert_eq!(bytes.len() as u64, 128 + 4 * 15 * most.unwrap());
    done(folder, &format!("{words} -o out --resume"));
    same(folder, "out", "whole");
}

#[test]
fn what_came_through_a_pipe_cannot_be_continued() {
    let home = recording();
    let output = sidereal(home.path(), "search - -o out --resume");
    fails(&output, 2, &["standard input", "cannot be read again"]);
    let output = sidereal(home.path(), "dedisperse - -o out --resume");
    fails(&output, 2, &["standard input", "cannot be read again"]);
    assert_eq!(entries(home.path()).len(), 2);
}

/// Starts a run whose input stalls after `seconds` of the recording; returns it with its open standard input.
fn stalled(folder: &Path, seconds: usize, words: &str) -> (Child, ChildStdin) {
    let mut child = Command::new(program())
        .args(words.split_whitespace())
        .current_dir(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let rows = fs::read(folder.join("a.fil")).unwrap();
    let header = rows.len() - 40_000 * 32;
    let mut stream = child.stdin.take().unwrap();
    stream.write_all(&rows[..header + seconds * 1000 * 32]).unwrap();
    (child, stream)
}

#[test]
fn a_stream_that_ends_within_the_rows_of_the_mask_is_searched_as_far_as_it_came() {
    let home = recording();
    let folder = home.path();
    // The mask waits for 32768 rows; 20000 come, of which the pipe may hold back 2048.
    for is_cut in [false, true] {
        let out = if is_cut { "cut" } else { "stopped" };
        let words = format!("search - -o {out} --device cpu --dm-max 200 --gulp 500");
        let (child, mut stream) = stalled(folder, 20, &words);
        if is_cut {
            stream.write_all(&[7; 20]).unwrap();
            drop(stream);
        } else {
            signal(&child, Signal::TERM);
        }
        let ended = child.wait_with_output().unwrap();
        let code = if is_cut { 0 } else { 130 };
        assert_eq!(ended.status.code(), Some(code), "{}", stderr(&ended));
        let summary = document(&folder.join(out), "summary.json");
        assert_eq!(summary["complete"], false);
        let times = summary["candidates"].as_array().unwrap().iter();
        let times: Vec<f64> = times.map(|one| one["time_s"].as_f64().unwrap()).collect();
        for expected in [1.5, 9.5] {
            assert!(times.iter().any(|time| (time - expected).abs() < 5e-3), "{times:?}");
        }
        let names = entries(&folder.join(out));
        assert!(!names.contains("journal") && !names.contains("checkpoint"), "{names:?}");
        assert_eq!(unfinished(folder), None);
    }
}

#[test]
fn a_product_without_a_checkpoint_is_begun_anew() {
    let home = recording();
    let folder = home.path();
    for words in [SEARCH, "dedisperse a.fil --device cpu --ranges 0:60:4"] {
        let verb = words.split(' ').next().unwrap();
        done(folder, &format!("{words} -o {verb}"));
        done(folder, &format!("{words} -o again"));
        // A stop within the rows of the mask leaves the same.
        let name = if verb == "search" { "summary.json" } else { "dedispersed.json" };
        let path = folder.join("again").join(name);
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, text.replace("\"complete\": true", "\"complete\": false")).unwrap();
        fs::write(folder.join("again/journal"), "").unwrap();
        done(folder, &format!("{words} -o again --resume"));
        same(folder, "again", verb);
        fs::remove_dir_all(folder.join("again")).unwrap();
    }
}

#[test]
fn a_stream_that_stalls_is_stopped_with_what_was_found() {
    let home = recording();
    let folder = home.path();
    // Without it the first rows are awaited, for the levels of channels.
    let words = "search - -o out --device cpu --dm-max 200 --gulp 500 --rfi none";
    for kind in [Signal::KILL, Signal::TERM] {
        let (mut child, stream) = stalled(folder, 30, words);
        assert!(waits_for(&mut child, folder, "journal", 1));
        signal(&child, kind);
        let ended = child.wait_with_output().unwrap();
        drop(stream);
        if kind == Signal::KILL {
            let left = unfinished(folder).unwrap();
            let journal = fs::read_to_string(left.join("journal")).unwrap();
            let time = |line: &str| {
                serde_json::from_str::<serde_json::Value>(line).unwrap()["time_s"].clone()
            };
            let is_first = |line: &str| (time(line).as_f64().unwrap() - 1.5).abs() < 5e-3;
            assert!(journal.lines().any(is_first), "{journal}");
            fs::remove_dir_all(left).unwrap();
            continue;
        }
        assert_eq!(ended.status.code(), Some(130), "{}", stderr(&ended));
        assert!(stderr(&ended).contains("out"), "{}", stderr(&ended));
        let summary = document(&folder.join("out"), "summary.json");
        assert_eq!(summary["complete"], false);
        let times: Vec<f64> = summary["candidates"]
            .as_array()
            .unwrap()
            .iter()
            .map(|candidate| candidate["time_s"].as_f64().unwrap())
            .collect();
        // The bursts of the rows that came.
        for expected in [1.5, 9.5] {
            assert!(times.iter().any(|time| (time - expected).abs() < 5e-3), "{times:?}");
        }
        let names = entries(&folder.join("out"));
        assert!(names.contains("candidates.csv") && !names.contains("rows.tmp"), "{names:?}");
    }
}
