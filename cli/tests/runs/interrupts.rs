//! Signals end each verb while it waits for an input, and pipes stream where a format allows it.
#![cfg(target_os = "linux")]

#[allow(unused)]
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::common::{code, done, entries, fails, json, program, recording, sidereal, stderr};

/// Bit of SIGHUP in the masks of /proc/PID/status.
const HANGUP: u64 = 1;

fn fifo(folder: &Path, name: &str) {
    assert!(Command::new("mkfifo").arg(folder.join(name)).status().unwrap().success());
}

/// Starts the program with the default action for hangups, which a shell's `nohup` would pass on as ignored.
fn start(folder: &Path, words: &str) -> Child {
    Command::new("env")
        .arg("--default-signal=HUP")
        .arg(program())
        .args(words.split_whitespace())
        .current_dir(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Waits until a process handles signals. Its handler starts a thread after the last signal is registered; a signal
/// that arrives during the registration is lost.
fn wait_for_handler(child: &mut Child) {
    loop {
        assert!(child.try_wait().unwrap().is_none(), "it ended before it could be interrupted");
        let threads = fs::read_dir(format!("/proc/{}/task", child.id())).into_iter().flatten();
        let mut names =
            threads.flatten().filter_map(|t| fs::read_to_string(t.path().join("comm")).ok());
        if names.any(|name| name.trim() == "signals") {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Returns whether a process ignores hangups.
fn ignores_hangups(child: &Child) -> bool {
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
    u64::from_str_radix(mask.trim(), 16).unwrap() & HANGUP != 0
}

fn signal(child: &Child, name: &str) {
    let id = child.id().to_string();
    assert!(Command::new("kill").args([&format!("-{name}"), &id]).status().unwrap().success());
}

/// Ends a run by a signal; it has to end soon.
fn interrupted(mut child: Child, name: &str) -> Output {
    wait_for_handler(&mut child);
    signal(&child, name);
    let sent = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if sent.elapsed() > Duration::from_secs(30) {
            child.kill().unwrap();
            panic!("it goes on: {}", stderr(&child.wait_with_output().unwrap()));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    child.wait_with_output().unwrap()
}

#[test]
fn a_run_that_waits_for_an_input_ends_on_a_signal() {
    let home = recording();
    fifo(home.path(), "silent");
    done(home.path(), "simulate voltages v.raw --freq 400 --bandwidth 4 --duration 0.01 -q");
    fs::write(home.path().join("masses.csv"), "mass1,mass2\n30,30\n").unwrap();
    let before = entries(home.path());
    for words in [
        "search silent -o out",
        "search - -o out",
        "search a.fil --rfi-mask silent -o out",
        "dedisperse silent -o out",
        "info silent",
        "info -",
        "plan silent",
        "channelize v.raw --window silent --channels 16 -o out.fil",
        "correlate x.dada --antennas silent -o out.uvh5",
        "simulate array --antennas silent -o out --freq 150 --bandwidth 2",
        "spiir bank masses.csv --psd silent -o out.h5",
    ] {
        let output = interrupted(start(home.path(), words), "TERM");
        assert_eq!(code(&output), 130, "{words}: {}", stderr(&output));
        assert!(stderr(&output).contains("stopped on request"), "{words}: {}", stderr(&output));
        assert_eq!(entries(home.path()), before, "{words}");
    }
}

#[test]
fn a_stream_that_stalls_ends_on_each_signal() {
    let home = recording();
    let data = fs::read(home.path().join("a.fil")).unwrap();
    for name in ["INT", "TERM", "HUP"] {
        // A busy disk may take longer to sync than the run has.
        let mut child = start(home.path(), "search - -o out --no-plots --no-sync --overwrite");
        let mut pipe = child.stdin.take().unwrap();
        pipe.write_all(&data[..data.len() / 2]).unwrap();
        let output = interrupted(child, name);
        assert_eq!(code(&output), 130, "{name}: {}", stderr(&output));
        drop(pipe);
    }
}

#[test]
fn a_run_that_ignores_hangups_goes_on() {
    let home = recording();
    let script = format!("trap '' HUP; exec {} info -", program().display());
    let mut child = Command::new("sh")
        .args(["-c", &script])
        .current_dir(home.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    wait_for_handler(&mut child);
    assert!(ignores_hangups(&child));
    signal(&child, "HUP");
    let mut pipe = child.stdin.take().unwrap();
    pipe.write_all(&fs::read(home.path().join("a.fil")).unwrap()).unwrap();
    drop(pipe);
    let output = child.wait_with_output().unwrap();
    assert_eq!(code(&output), 0, "{}", stderr(&output));
}

#[test]
fn a_fifo_gives_what_its_file_gives() {
    let home = recording();
    fifo(home.path(), "stream");
    let data = fs::read(home.path().join("a.fil")).unwrap();
    let expected = json(home.path(), "search a.fil -o a --no-plots")["candidates"].clone();
    let child = start(home.path(), "search stream -o b --json");
    fs::write(home.path().join("stream"), &data).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&document["candidates"], &document["file"]), (&expected, &"stream".into()));
    assert!(home.path().join("b/report.html").is_file());
    // The shell's process substitution is a FIFO, too.
    let script = format!("{} info <(cat a.fil) --header", program().display());
    let bash = Command::new("bash").args(["-c", &script]).current_dir(home.path()).output();
    if let Ok(shown) = bash {
        assert_eq!(code(&shown), 0, "{}", stderr(&shown));
    }
}

#[test]
fn formats_that_are_sought_in_refuse_a_fifo() {
    let home = recording();
    fifo(home.path(), "stream");
    done(home.path(), "simulate voltages v.raw --freq 400 --bandwidth 4 --duration 0.01 -q");
    fs::write(home.path().join("masses.csv"), "mass1,mass2\n30,30\n").unwrap();
    fs::write(home.path().join("antennas.csv"), "name,x,y,z\nx,6378137,0,0\n").unwrap();
    for (words, exit) in [
        ("channelize stream -o out.fil --channels 16", 2),
        ("search stream -o out --channels 16", 2),
        ("correlate x=stream --antennas antennas.csv -o out.uvh5", 2),
        ("spiir search H1=stream L1=stream --templates masses.csv -o out", 1),
    ] {
        let output = sidereal(home.path(), words);
        fails(&output, exit, &["can't be sought", "give a file"]);
    }
    fs::write(home.path().join("x.fits"), b"SIMPLE  =                    T").unwrap();
    let script = format!("{} info - < x.fits | cat; cat x.fits | {0} info -", program().display());
    let shell = Command::new("sh").args(["-c", &script]).current_dir(home.path()).output().unwrap();
    assert!(stderr(&shell).contains("give a file"), "{}", stderr(&shell));
}
