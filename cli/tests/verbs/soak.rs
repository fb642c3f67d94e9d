//! `send`, `live record` and `live search` for as long as `SIDEREAL_SOAK_S` says (seconds, 7 by default), with senders that restart and
//! lose packets: memory and open files stay as they are, and every sample is received or known to be lost. Another test does the same
//! with a search of voltages, triggers, dumps and readers of its page.

use std::fs;
#[cfg(feature = "page")]
use std::net::{TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

#[cfg(feature = "page")]
use crate::common::done;
use crate::common::{code, document, entries, recording, stderr};
#[cfg(feature = "page")]
use crate::live::free_port;
use crate::live::{LONG, Running, receiving};
#[cfg(feature = "page")]
use crate::page::exchange;

/// Samples (ms) in a heap, which is one packet.
const HEAP_TIMES: u64 = 100;

/// Most packets of a message, which the kernel counts as one that it drops.
const MESSAGE_PACKETS: u64 = 64;

/// Multiple of real time: 1.6 MB/s.
const RATE: f64 = 25.0;

/// Growth of memory that is not a leak, in KiB, and of the number of open files: an observation may begin or end at any moment.
const MEMORY_KIB: u64 = 32 << 10;
const FILES: u64 = 4;

/// Growth of memory in the first half minute, in KiB.
#[cfg(feature = "page")]
const FIRST_KIB: u64 = 256 << 10;

/// Memory and open files of a process.
#[derive(Clone, Copy, Debug, Default)]
struct Held {
    memory_kib: u64,
    files: u64,
}

impl Held {
    fn of(running: &Running) -> Self {
        let folder = format!("/proc/{}", running.id());
        let status = fs::read_to_string(format!("{folder}/status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        let memory_kib = line.trim().trim_end_matches(" kB").parse().unwrap();
        Self { memory_kib, files: fs::read_dir(format!("{folder}/fd")).unwrap().count() as u64 }
    }

    /// Checks that the second half of a run needs no more than the first, without the time in which buffers grow to their sizes.
    fn check(held: &[Self], who: &str, allowed_kib: u64) {
        let (early, late) = held[held.len() / 4..].split_at(held.len() * 3 / 8);
        let (early, late) = (Self::most(early), Self::most(late));
        eprintln!("{who}: {early:?}, then {late:?}");
        assert!(late.memory_kib <= early.memory_kib + allowed_kib, "{who}: {late:?}");
        assert!(late.files <= early.files + FILES, "{who}: {late:?}");
    }

    fn most(all: &[Self]) -> Self {
        let most = |value: fn(&Self) -> u64| all.iter().map(value).max().unwrap_or(0);
        Self { memory_kib: most(|held| held.memory_kib), files: most(|held| held.files) }
    }
}

/// A receiver with its sender.
struct Course {
    verb: &'static str,
    folder: PathBuf,
    port: String,
    receiver: Running,
    sender: Option<Running>,
    held: [Vec<Held>; 2],
    /// Products so far, the samples in them, and those of their gaps.
    products: usize,
    samples: u64,
    lost: u64,
}

impl Course {
    fn begin(home: &Path, verb: &'static str, restart_s: f64) -> Self {
        let words = format!("live {verb} ADDRESS -o {verb} -q");
        let (mut receiver, address) = receiving(home, &words);
        let mut lines = receiver.child().stdout.take().unwrap();
        spawn(move || std::io::copy(&mut lines, &mut std::io::sink()));
        let words = format!(
            "send a.fil {address} --rate {RATE} --loop 0 --restart {} --heap-times {HEAP_TIMES} --json --loss 0.01 \
             --duplicate 0.01 --seed 4 --lost-list {verb}.csv",
            restart_s * RATE
        );
        let sender = Running::start(home, &words);
        Self {
            verb,
            folder: home.join(verb),
            port: address.rsplit(':').next().unwrap().to_owned(),
            receiver,
            sender: Some(sender),
            held: [Vec::new(), Vec::new()],
            products: 0,
            samples: 0,
            lost: 0,
        }
    }

    /// Names in the folder, if it is there yet.
    fn names(&self) -> Vec<String> {
        if self.folder.exists() { entries(&self.folder).into_iter().collect() } else { Vec::new() }
    }

    /// Counts the products that are complete, and removes them.
    fn collect(&mut self) {
        let names = self.names();
        for name in names.iter().filter(|name| !name.starts_with('.')) {
            let path = self.folder.join(name);
            let is_search = self.verb == "search";
            let found = if is_search && path.is_dir() && name != "pictures" {
                document(&path, "summary.json")
            } else if name.ends_with(".fil") && names.contains(&format!("{name}.json")) {
                document(&self.folder, &format!("{name}.json"))
            } else {
                continue;
            };
            assert_eq!(found["complete"], true, "{name}");
            assert!(found["dropped"].is_null(), "{name}: {}", found["dropped"]);
            let run = |key| found["run"][key].as_f64().unwrap();
            let ms = |seconds: f64| (1e3 * seconds).round() as u64;
            self.samples += match self.verb {
                "record" => found["samples"].as_u64().unwrap(),
                _ => ms(run("elapsed_s") * run("realtime_factor")),
            };
            let gaps = found["gaps"].as_array().map_or(&[][..], Vec::as_slice);
            self.lost += gaps.iter().map(|gap| ms(gap["length_s"].as_f64().unwrap())).sum::<u64>();
            self.products += 1;
            if is_search {
                fs::remove_dir_all(path).unwrap();
            } else {
                fs::remove_file(&path).unwrap();
                fs::remove_file(self.folder.join(format!("{name}.json"))).unwrap();
            }
        }
    }

    /// Messages that the kernel dropped.
    fn dropped_by_kernel(&self) -> u64 {
        let port: u16 = self.port.parse().unwrap();
        let place = format!("0100007F:{port:04X} ");
        let all = fs::read_to_string("/proc/net/udp").unwrap();
        let line = all.lines().find(|line| line.contains(&place)).expect("a socket");
        line.split_whitespace().last().unwrap().parse().unwrap()
    }

    /// Ends the sender, then the receiver, and compares what was sent with what was received.
    fn end(mut self, home: &Path) {
        let sender = self.sender.take().unwrap();
        sender.signal(Signal::TERM);
        let output = sender.end();
        assert_eq!(code(&output), 130, "{}", stderr(&output));
        let sent: Value = serde_json::from_slice(&output.stdout).unwrap();
        let list = fs::read_to_string(home.join(format!("{}.csv", self.verb))).unwrap();
        let times = list.lines().skip(1).map(|line| line.split(',').nth(1).unwrap().parse::<u64>());
        let lost_by_sender: u64 = times.map(Result::unwrap).sum();
        // The last observation ends with its sender.
        let begin = Instant::now();
        let (mut last, mut products) = (begin, self.products);
        loop {
            // Observations that wait are searched one after another.
            self.collect();
            if self.products > products {
                (last, products) = (Instant::now(), self.products);
            }
            let is_idle =
                self.products > 0 && self.names().iter().all(|name| !name.starts_with('.'));
            self.receiver_is_running();
            if is_idle && last.elapsed() > Duration::from_secs(2) {
                break;
            }
            assert!(begin.elapsed() < LONG, "{:?}", self.names());
            sleep(Duration::from_millis(50));
        }
        let dropped = self.dropped_by_kernel();
        self.receiver.signal(Signal::TERM);
        self.collect();
        let Self { verb, receiver, held, products, samples, lost, .. } = self;
        let output = receiver.end();
        assert_eq!(code(&output), 130, "{}", stderr(&output));
        let (good, expected) = (samples - lost, sent["samples"].as_u64().unwrap() - lost_by_sender);
        eprintln!(
            "{verb}: {products} products, {samples} samples, {lost} lost; {lost_by_sender} lost by the sender, {dropped} \
             messages by the kernel"
        );
        assert!(lost_by_sender > 0);
        assert!(
            good <= expected && expected - good <= dropped * MESSAGE_PACKETS * HEAP_TIMES,
            "{good} of {expected}"
        );
        assert!(products > 10, "{products} products");
        for (who, held) in ["receiver", "sender"].into_iter().zip(&held) {
            Held::check(held, &format!("{verb}, {who}"), MEMORY_KIB);
        }
    }

    fn receiver_is_running(&mut self) {
        assert!(self.receiver.child().try_wait().unwrap().is_none(), "the receiver has ended");
    }
}

/// Returns how long the tests last.
fn seconds() -> f64 {
    soak_s(7.0)
}

/// Returns the seconds of `SIDEREAL_SOAK_S`.
pub(crate) fn soak_s(usual_s: f64) -> f64 {
    std::env::var("SIDEREAL_SOAK_S").map_or(usual_s, |text| text.parse().unwrap())
}

#[cfg(feature = "page")]
#[test]
fn triggers_dumps_and_readers_of_the_page_cost_no_sample_no_memory_and_no_file() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path();
    let words = "simulate voltages a.dada --freq 300 --bandwidth 1 --pols 1 --duration 4 --seed 5 \
        --pulse dm=100,time=2,width=0.002,snr=40 -q";
    done(folder, words);
    let (seconds, trigger_port) = (seconds(), free_port());
    let page = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let words = format!(
        "live search ADDRESS -o live --channels 16 --integrate 8 --dm-max 150 --dm-step 0.5 --rfi none --no-plots \
         --dump-ring auto --dump-margin 0.1 --trigger-snr 15 --trigger-most 1000000 --triggers udp://:{trigger_port} \
         --page {page}"
    );
    let (mut receiver, address) = receiving(folder, &words);
    let mut lines = receiver.child().stdout.take().unwrap();
    spawn(move || std::io::copy(&mut lines, &mut std::io::sink()));
    let mut told = receiver.child().stderr.take().unwrap();
    spawn(move || std::io::copy(&mut told, &mut std::io::sink()));
    let restart_s = (seconds / 10.0).clamp(2.0, 60.0);
    let words = format!("send a.dada {address} --rate 1 --loop 0 --restart {restart_s} -q");
    let mut sender = Running::start(folder, &words);
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let (begin, mut held, mut asked) = (Instant::now(), Vec::new(), 0);
    while begin.elapsed().as_secs_f64() < seconds {
        assert!(receiver.child().try_wait().unwrap().is_none(), "the search has ended");
        let request = format!("GET /status HTTP/1.1\r\nHost: {page}\r\nConnection: close\r\n\r\n");
        let answer = exchange(&page, request.as_bytes());
        let status: Value = serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap();
        let observation = &status["streams"][0]["observation"];
        if let (Some(mjd), Some(data_s)) =
            (observation["start_mjd"].as_f64(), observation["data_s"].as_f64())
        {
            asked += 1;
            let mjd = mjd + (data_s - 0.3) / 86_400.0;
            let text = format!("{{\"name\": \"t{asked}\", \"mjd\": {mjd:.9}, \"dm\": 20}}");
            socket.send_to(text.as_bytes(), ("127.0.0.1", trigger_port)).unwrap();
        }
        held.push(Held::of(&receiver));
        for name in entries(&folder.join("live")).iter().filter(|name| name.starts_with("20")) {
            let summary = folder.join("live").join(name).join("summary.json");
            if summary.exists() {
                let found: Value = serde_json::from_slice(&fs::read(&summary).unwrap()).unwrap();
                assert!(found["dropped"].is_null(), "{name}: {}", found["dropped"]);
            }
        }
        sleep(Duration::from_millis(200));
    }
    sender.child().kill().unwrap();
    let asked_to_stop = Instant::now();
    receiver.signal(Signal::TERM);
    assert_eq!(code(&receiver.end()), 130);
    assert!(asked_to_stop.elapsed() < Duration::from_secs(3), "{:?}", asked_to_stop.elapsed());
    let list = fs::read_to_string(folder.join("live/dumps.ndjson")).unwrap();
    let list: Vec<Value> = list.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let finished = list.iter().filter(|line| line["state"] == "done");
    let mut count = 0;
    for line in finished {
        count += 1;
        let file = folder.join(line["file"].as_str().unwrap());
        assert!(file.metadata().unwrap().len() > 4096, "{line}");
        let is_whole = line["complete"] == true;
        let reason = line["reason"].as_str().unwrap_or_default();
        assert!(is_whole || reason.contains("ended") || reason.contains("stop"), "{line}");
    }
    eprintln!("{asked} triggers, {count} dumps");
    assert!(count > 1 && asked > 5, "{asked} triggers, {count} dumps");
    let names = entries(&folder.join("live/dumps"));
    assert!(names.iter().all(|name| !name.starts_with('.')), "{names:?}");
    // Chunks of the capture are used for the first time in the first half minute.
    let allowed_kib = if seconds < 60.0 { FIRST_KIB } else { MEMORY_KIB };
    Held::check(&held, "search with dumps", allowed_kib);
}

#[test]
fn senders_that_restart_again_and_again_cost_no_sample_no_memory_and_no_file() {
    let seconds = seconds();
    let home = recording();
    let restart_s = (seconds / 50.0_f64).clamp(0.13, 60.0);
    let mut courses = ["record", "search"].map(|verb| Course::begin(home.path(), verb, restart_s));
    let begin = Instant::now();
    while begin.elapsed().as_secs_f64() < seconds {
        for course in &mut courses {
            course.receiver_is_running();
            course.collect();
            course.held[0].push(Held::of(&course.receiver));
            course.held[1].extend(course.sender.as_ref().map(Held::of));
        }
        sleep(Duration::from_millis(100));
    }
    for course in courses {
        course.end(home.path());
    }
}
