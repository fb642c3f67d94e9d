//! `send`, `live record` and `live search` for as long as `SIDEREAL_SOAK_S` says (seconds, 7 by default), with senders that restart and
//! lose packets: memory and open files stay as they are, and every sample is received or known to be lost.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use crate::common::{code, document, entries, recording, stderr};
use crate::live::{LONG, Running, receiving};

/// Samples (ms) in a heap, which is one packet.
const HEAP_TIMES: u64 = 100;

/// Multiple of real time: 1.6 MB/s.
const RATE: f64 = 25.0;

/// Growth of memory that is not a leak, in KiB, and of the number of open files: an observation may begin or end at any moment.
const MEMORY_KIB: u64 = 32 << 10;
const FILES: u64 = 4;

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

    /// Packets that the kernel dropped.
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
        loop {
            let is_idle =
                self.products > 0 && self.names().iter().all(|name| !name.starts_with('.'));
            self.receiver_is_running();
            if is_idle && begin.elapsed() > Duration::from_secs(2) {
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
             packets by the kernel"
        );
        assert!(lost_by_sender > 0);
        assert!(
            good <= expected && expected - good <= dropped * HEAP_TIMES,
            "{good} of {expected}"
        );
        assert!(products > 10, "{products} products");
        for (who, held) in ["receiver", "sender"].into_iter().zip(&held) {
            // Buffers grow to their sizes in the first observations.
            let (early, late) = held[held.len() / 4..].split_at(held.len() * 3 / 8);
            let (early, late) = (Held::most(early), Held::most(late));
            eprintln!("{verb}, {who}: {early:?}, then {late:?}");
            assert!(late.memory_kib <= early.memory_kib + MEMORY_KIB, "{verb}, {who}: {late:?}");
            assert!(late.files <= early.files + FILES, "{verb}, {who}: {late:?}");
        }
    }

    fn receiver_is_running(&mut self) {
        assert!(self.receiver.child().try_wait().unwrap().is_none(), "the receiver has ended");
    }
}

#[test]
fn senders_that_restart_again_and_again_cost_no_sample_no_memory_and_no_file() {
    let seconds = std::env::var("SIDEREAL_SOAK_S").map_or(7.0, |text| text.parse().unwrap());
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
