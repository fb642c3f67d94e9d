//! Dumps of `live search`: a burst's own trigger, and triggers of other programs, write its voltages.

use std::fs;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};

use super::live::{LONG, Running, free_port, receiving};
use crate::common::{code, document, done, fails, sidereal, stderr};

const SEARCH: &str =
    "--channels 16 --integrate 8 --dm-min 50 --dm-max 150 --dm-step 0.5 --no-plots --rfi none";

/// Writes two antennas' voltages with a burst of DM 100 at 3 s.
fn voltages(folder: &Path) {
    let words = "simulate voltages a.dada --freq 300 --bandwidth 2 --pols 1 --antennas 2 --duration 8 --seed 5 \
        --pulse dm=100,time=3,width=0.002,snr=40 -q";
    done(folder, words);
}

fn lines(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn of_state<'a>(lines: &'a [Value], state: &str) -> Vec<&'a Value> {
    lines.iter().filter(|line| line["state"] == state).collect()
}

/// Waits until a list has a line of a state, and returns all its lines.
fn await_line(path: &Path, state: &str) -> Vec<Value> {
    let begin = Instant::now();
    loop {
        let found = lines(path);
        if !of_state(&found, state).is_empty() {
            return found;
        }
        assert!(begin.elapsed() < LONG, "no dump is {state}: {found:?}");
        sleep(Duration::from_millis(10));
    }
}

/// The best candidate of a search's folder: S/N, DM, time as MJD.
fn best(folder: &Path, place: &str) -> [f64; 3] {
    let summary = document(folder, &format!("{place}/summary.json"));
    let first = &summary["candidates"][0];
    ["snr", "dm", "mjd"].map(|key| first[key].as_f64().unwrap_or_else(|| panic!("{key}: {first}")))
}

#[test]
fn a_burst_dumps_its_voltages_and_is_found_again_in_them() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path();
    voltages(folder);
    let words = format!(
        "live search ADDRESS -o live --observations 1 {SEARCH} --dump-ring 6 --trigger-snr 15"
    );
    let (running, address) = receiving(folder, &words);
    done(folder, &format!("send a.dada {address} --rate 2 -q"));
    let output = running.end();
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let list = lines(&folder.join("live/dumps.ndjson"));
    let ended = of_state(&list, "done");
    let [dump] = ended.as_slice() else { panic!("{list:?}\n{}", stderr(&output)) };
    assert_eq!(dump["complete"], true, "{dump}");
    let file = PathBuf::from(dump["file"].as_str().unwrap());
    let document = document(folder, &format!("{}.json", file.display()));
    assert_eq!(document["windows"].as_array().unwrap().len(), 8);
    // The windows of lower channels are later.
    let mut windows = document["windows"].as_array().unwrap().clone();
    windows.sort_by(|a, b| a["mhz"].as_f64().unwrap().total_cmp(&b["mhz"].as_f64().unwrap()));
    let starts: Vec<u64> = windows.iter().map(|one| one["start"].as_u64().unwrap()).collect();
    assert!(starts.windows(2).all(|pair| pair[0] > pair[1]), "{starts:?}");
    let search = format!("{SEARCH} --coherent-dm 100 -q");
    done(folder, &format!("search a.dada -o whole {search}"));
    done(folder, &format!("search {} -o again {search}", file.display()));
    let ([snr, dm, mjd], [own_snr, own_dm, own_mjd]) =
        (best(folder, "whole"), best(folder, "again"));
    assert!((own_mjd - mjd).abs() * 86_400.0 < 1e-3, "{own_mjd} {mjd}");
    // A change of the DM by 3 delays the band's lower edge by the pulse's width.
    assert!((own_dm - 100.0).abs() <= 2.0 && (dm - 100.0).abs() <= 2.0, "{own_dm} {dm}");
    assert!((own_snr / snr - 1.0).abs() < 0.1, "{own_snr} {snr}");
    let summary = fs::read_to_string(folder.join("again/candidates.csv")).unwrap();
    assert_eq!(summary.lines().count(), 2, "{summary}");
}

#[test]
fn triggers_of_other_programs_are_dumped_joined_or_refused() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path();
    voltages(folder);
    let port = free_port();
    let words = format!(
        "live search ADDRESS -o live {SEARCH} --dump-ring 4 --dump-margin 0.05 --dump-format guppi --triggers udp://:{port} \
         --trigger-rate 10000"
    );
    let (running, address) = receiving(folder, &words);
    let mut sender = Running::start(folder, &format!("send a.dada {address} --rate 1 --loop 0 -q"));
    let list = folder.join("live/dumps.ndjson");
    let begin = Instant::now();
    while !list.exists() {
        assert!(begin.elapsed() < LONG, "the search has not begun");
        sleep(Duration::from_millis(10));
    }
    sleep(Duration::from_secs(3));
    let start = 60_000.0;
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let trigger = |name: &str, seconds: f64, dm: f64| {
        let mjd = start + seconds / 86_400.0;
        let text = json!({"name": name, "mjd": mjd, "dm": dm, "width_s": 0.01}).to_string();
        socket.send_to(text.as_bytes(), ("127.0.0.1", port)).unwrap();
    };
    trigger("ancient", -1e6, 100.0);
    trigger("undispersed", 2.0, 0.0);
    trigger("same", 2.01, 0.0);
    trigger("absurd", 2.0, 1e9);
    (0..1000).for_each(|_| trigger("again", 2.005, 0.0));
    let found = await_line(&list, "done");
    let file = PathBuf::from(of_state(&found, "done")[0]["file"].as_str().unwrap());
    assert!(file.extension().is_some_and(|suffix| suffix == "raw"), "{}", file.display());
    running.signal(Signal::TERM);
    let ending = Instant::now();
    let output = running.end();
    assert!(ending.elapsed() < Duration::from_secs(2), "{:?}", ending.elapsed());
    assert_eq!(code(&output), 130, "{}", stderr(&output));
    let _ = sender.child().kill();
    let found = lines(&list);
    let reasons = of_state(&found, "refused");
    assert!(reasons.iter().any(|line| line["triggers"][0] == "ancient"), "{reasons:?}");
    // Those that the search takes between two gulps are joined; the queue counts the others.
    let joined = of_state(&found, "joined").len();
    assert!((50..1010).contains(&joined), "{joined}");
    assert!(of_state(&found, "done").len() < 10);
    let info = done(folder, &format!("info {}", file.display()));
    assert!(info.contains("GUPPI"), "{info}");
}

#[test]
fn options_of_dumps_that_make_no_sense_are_refused() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path();
    for (words, expected) in [
        ("--dump-ring -1", "seconds above 0, or auto"),
        ("--dump-ring soon", "seconds above 0, or auto"),
        ("--dump-ring 5 --dump-margin 1e9", "--dump-margin"),
        ("--dump-quota 5G", "it needs --dump-ring"),
        ("--dump-ring auto", "nothing asks for dumps"),
    ] {
        let output = sidereal(folder, &format!("live search spead://:0 {words}"));
        fails(&output, 2, &[expected]);
    }
    // The ring is compared with the stream when its header is there.
    voltages(folder);
    let words = format!("live search ADDRESS -o live {SEARCH} --dump-ring 0.5 --trigger-snr 9");
    let (running, address) = receiving(folder, &words);
    let _sender = Running::start(folder, &format!("send a.dada {address} --rate 1 -q"));
    let output = running.end();
    let text = stderr(&output);
    assert_eq!(code(&output), 2, "{text}");
    assert!(text.contains("--dump-ring") && text.contains("sweep of DM 150"), "{text}");
}
