//! Dumps of `live search`: a burst's own trigger, and triggers of other programs, write its voltages.

use std::fs;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};

use super::live::{LONG, Running, await_port, free_port, is_received, receiving, snap_file};
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

/// Sends triggers of the recording that starts at MJD 60000.
struct Sender {
    socket: UdpSocket,
    port: u16,
}

impl Sender {
    fn to(port: u16) -> Self {
        await_port(port);
        Self { socket: UdpSocket::bind("127.0.0.1:0").unwrap(), port }
    }

    fn send(&self, name: &str, seconds: f64, width_s: f64, priority: u8) {
        let mjd = 60_000.0 + seconds / 86_400.0;
        let trigger = json!({"name": name, "mjd": mjd, "dm": 0, "dm_error": 0, "width_s": width_s, "priority": priority});
        self.socket.send_to(trigger.to_string().as_bytes(), ("127.0.0.1", self.port)).unwrap();
    }
}

fn await_file(path: &Path) {
    let begin = Instant::now();
    while !path.exists() {
        assert!(begin.elapsed() < LONG, "{} is missing", path.display());
        sleep(Duration::from_millis(10));
    }
}

/// The last line of a dump that a trigger is one of.
fn last<'a>(lines: &'a [Value], name: &str) -> &'a Value {
    let own = |line: &&Value| line["triggers"].as_array().unwrap().iter().any(|one| one == name);
    lines.iter().rfind(own).unwrap_or_else(|| panic!("no dump of {name}: {lines:?}"))
}

#[test]
fn dumps_and_triggers_end_whatever_ends_the_search() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path();
    voltages(folder);
    let port = free_port();
    let words = format!(
        "live search ADDRESS -o live {SEARCH} --dump-ring 6 --dump-margin 0.05 --triggers udp://:{port}"
    );
    let (running, address) = receiving(folder, &words);
    let sending = Running::start(folder, &format!("send a.dada {address} --rate 1 -q"));
    let list = folder.join("live/dumps.ndjson");
    await_file(&list);
    let triggers = Sender::to(port);
    sleep(Duration::from_secs(1));
    // The stream ends after 8 s, within the first window and before the second one.
    triggers.send("open", 4.0, 4.5, 0);
    await_line(&list, "running");
    triggers.send("queued", 9.0, 0.5, 0);
    let begin = Instant::now();
    while !lines(&list).iter().any(|line| line["triggers"][0] == "queued") {
        assert!(begin.elapsed() < LONG, "{:?}", lines(&list));
        sleep(Duration::from_millis(10));
    }
    // The folder that is being filled disappears, and the search cannot be written.
    let entries = fs::read_dir(folder.join("live")).unwrap().map(|entry| entry.unwrap().path());
    let is_unfinished =
        |path: &PathBuf| path.is_dir() && path.to_string_lossy().contains("unfinished");
    let unfinished: Vec<_> = entries.filter(is_unfinished).collect();
    assert_eq!(unfinished.len(), 1, "{unfinished:?}");
    fs::remove_dir_all(&unfinished[0]).unwrap();
    let output = running.end();
    let told = stderr(&output);
    assert_eq!(code(&output), 1, "{told}");
    assert_eq!(code(&sending.end()), 0);
    let found = lines(&list);
    let (open, queued) = (last(&found, "open"), last(&found, "queued"));
    assert_eq!((&open["state"], &open["complete"]), (&"done".into(), &false.into()), "{found:?}");
    assert!(folder.join(open["file"].as_str().unwrap()).is_file(), "{open}");
    // The search ends with its stream, or when it writes the burst to the journal that is gone.
    let seconds = open["samples"].as_f64().unwrap() * open["tsamp_s"].as_f64().unwrap();
    assert!((0.5..4.06).contains(&seconds), "{open}");
    assert_eq!((&queued["state"], &queued["reason"]), (&"failed".into(), &open["reason"]));
    assert_eq!(open["reason"], "the observation ended before it");
    let triggers = lines(&folder.join("live/triggers.ndjson"));
    let summary = triggers.last().unwrap();
    assert_eq!((&summary["fate"], &summary["counts"]["accepted"]), (&"summary".into(), &2.into()));
}

#[test]
fn a_trigger_that_comes_while_the_mask_is_made_is_dumped() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path();
    voltages(folder);
    let port = free_port();
    // The rows of the mask take 16.8 s.
    let search = SEARCH.replace("--rfi none", "--rfi auto");
    let words =
        format!("live search ADDRESS -o live {search} --dump-ring 5 --triggers udp://:{port}");
    let (running, address) = receiving(folder, &words);
    let mut sending =
        Running::start(folder, &format!("send a.dada {address} --rate 1 --loop 0 -q"));
    let list = folder.join("live/dumps.ndjson");
    await_file(&list);
    let begin = Instant::now();
    let triggers = Sender::to(port);
    sleep(Duration::from_secs(2));
    triggers.send("early", 1.0, 0.1, 0);
    let found = await_line(&list, "done");
    assert!(begin.elapsed() < Duration::from_secs(12), "{:?}", begin.elapsed());
    assert_eq!((&last(&found, "early")["complete"], found.len()), (&true.into(), 3), "{found:?}");
    running.signal(Signal::TERM);
    let output = running.end();
    let _ = sending.child().kill();
    assert_eq!(code(&output), 130, "{}", stderr(&output));
}

#[test]
fn a_disk_that_takes_no_more_costs_the_dump_and_not_the_search() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path();
    voltages(folder);
    let (port, stream) = (free_port(), free_port());
    let words = format!(
        "live search spead://127.0.0.1:{stream} -o live --observations 1 {SEARCH} --dump-ring 5 --dump-margin 0.05 \
         --triggers udp://:{port}"
    );
    // Files of 4 MiB at most, which is half a second of the voltages.
    let limited = format!("trap '' XFSZ; ulimit -f 8192; exec PROGRAM {words}");
    let running = Running::by_shell(folder, &limited);
    await_port(stream);
    let address = format!("spead://127.0.0.1:{stream}");
    let sending = Running::start(folder, &format!("send a.dada {address} --rate 2 -q"));
    let list = folder.join("live/dumps.ndjson");
    await_file(&list);
    let triggers = Sender::to(port);
    sleep(Duration::from_secs(1));
    triggers.send("large", 0.2, 1.5, 1);
    triggers.send("small", 2.2, 0.1, 0);
    let output = running.end();
    let told = stderr(&output);
    assert_eq!(code(&output), 0, "{told}");
    assert_eq!(code(&sending.end()), 0);
    let found = lines(&list);
    let (large, small) = (last(&found, "large"), last(&found, "small"));
    assert_eq!((&large["state"], &large["complete"]), (&"done".into(), &false.into()), "{found:?}");
    assert!(large["reason"].as_str().unwrap().contains("large"), "{large}");
    let kept = fs::metadata(folder.join(large["file"].as_str().unwrap())).unwrap().len();
    assert!((3 << 20..=4 << 20).contains(&kept), "{kept}");
    assert_eq!((&small["state"], &small["complete"]), (&"done".into(), &true.into()), "{found:?}");
    let info = done(folder, &format!("info {}", large["file"].as_str().unwrap()));
    assert!(info.contains("DADA"), "{info}");
    // The stream was read whole, and the burst found.
    assert!(!told.contains("were not kept") && !told.contains("dropped"), "{told}");
    let entries = fs::read_dir(folder.join("live")).unwrap().map(|entry| entry.unwrap().path());
    let place: Vec<_> = entries.filter(|path| path.join("summary.json").exists()).collect();
    let summary = document(&place[0], "summary.json");
    assert!(summary["dropped"].is_null(), "{summary}");
    assert!((summary["candidates"][0]["dm"].as_f64().unwrap() - 100.0).abs() < 3.0);
}

#[test]
fn the_ring_of_a_described_stream_is_made_before_its_first_packet() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path();
    let stream = free_port();
    let search = "[search]\noutput = \"found\"\nchannels = 4\nintegrate = 8\ndm_max = 50\nrfi = \"none\"\ntrigger_snr = 10\ndump_margin = 0.05\nno_plots = true\n";
    let site = |ring: &str| {
        let input = snap_file(stream).replace("[record]\nroll_s = 60\n", search);
        fs::write(folder.join("site.toml"), format!("{input}dump_ring = {ring}\n")).unwrap();
    };
    site("0.1");
    let output = sidereal(folder, "live run site.toml");
    fails(&output, 2, &["--dump-ring", "it must be"]);
    // Both are found without starting.
    fails(&sidereal(folder, "live check site.toml"), 2, &["--dump-ring", "it must be"]);
    site("2e5");
    fails(&sidereal(folder, "live check site.toml"), 2, &["--dump-ring", "of memory, and"]);
    site("2");
    let running = Running::start(folder, "--log-file log live run site.toml");
    let begin = Instant::now();
    let log = || fs::read_to_string(folder.join("log")).unwrap_or_default();
    while !log().contains("before the first packet") {
        assert!(begin.elapsed() < LONG, "{}", log());
        sleep(Duration::from_millis(10));
    }
    await_port(stream);
    assert!(is_received(stream));
    let words = ["stay in memory", "its memory was allocated before the first packet in", "locked"];
    assert!(words.iter().all(|word| log().contains(word)), "{}", log());
    running.signal(Signal::TERM);
    assert_eq!(code(&running.end()), 130);
}

#[cfg(feature = "page")]
#[test]
fn triggers_over_http_have_a_rate() {
    use std::io::{BufRead, BufReader, Read, Write};
    use std::net::TcpStream;

    let home = tempfile::tempdir().unwrap();
    let folder = home.path();
    voltages(folder);
    let words = format!(
        "live search ADDRESS -o live {SEARCH} --dump-ring 5 --page 127.0.0.1:0 --trigger-rate 3"
    );
    let (mut running, address) = receiving(folder, &words);
    let mut text = String::new();
    BufReader::new(running.child().stderr.take().unwrap()).read_line(&mut text).unwrap();
    let page = text.split("http://").nth(1).and_then(|rest| rest.split('/').next()).unwrap();
    let token = fs::read_to_string(folder.join("live/page-token")).unwrap();
    let ask = |body: &str| {
        let mut stream = TcpStream::connect(page).unwrap();
        let request = format!(
            "POST /trigger HTTP/1.1\r\nHost: {page}\r\nAuthorization: Bearer {}\r\nConnection: close\r\n\
             Content-Length: {}\r\n\r\n{body}",
            token.trim(),
            body.len()
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer.split(' ').nth(1).and_then(|code| code.parse::<u16>().ok()).unwrap()
    };
    let codes: Vec<u16> = (0..20).map(|_| ask(r#"{"mjd": 60000.00001, "dm": 10}"#)).collect();
    assert_eq!(codes[..3], [202; 3], "{codes:?}");
    let limited = codes.iter().filter(|code| **code == 429).count() as u64;
    assert!(limited >= 10 && codes.iter().all(|code| [202, 429].contains(code)), "{codes:?}");
    sleep(Duration::from_millis(700));
    assert_eq!(ask("{}"), 400);
    let mut sending = Running::start(folder, &format!("send a.dada {address} --rate 1 -q"));
    await_file(&folder.join("live/dumps.ndjson"));
    running.signal(Signal::TERM);
    let output = running.end();
    assert_eq!(code(&output), 130);
    let _ = sending.child().kill();
    let triggers = lines(&folder.join("live/triggers.ndjson"));
    let counts = &triggers.last().unwrap()["counts"];
    let fates = [("received", 21), ("beyond_rate", limited), ("malformed", 1), ("overflowed", 0)];
    fates.iter().for_each(|(key, count)| assert_eq!(counts[key], *count, "{counts}"));
    assert!(triggers.iter().any(|line| line["source"] == "http"), "{triggers:?}");
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
