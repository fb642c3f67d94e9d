//! `live` on a full disk, with a writer that stalls, slower than its stream, after the death of its sender, and stopped by a
//! signal: what was received before is kept, and what was lost is listed.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Deserializer, Value};
use sidereal::io::voltages::{self, VoltageOptions};

use crate::common::{code, document, done, entries, on_full_disk, recording, stderr};
use crate::live::{LONG, Running, free_port, is_received, receiving};
use crate::ring;

/// Half a second of voltages, 16 MB/s.
fn simulated(folder: &Path) {
    let words = "simulate voltages v.raw -q --freq 1400 --bandwidth 4 --coarse-channels 4 --duration 0.5 --seed 2";
    done(folder, words);
}

/// Samples of the streams of a file of voltages.
fn samples(path: &Path) -> Vec<Vec<u8>> {
    let paths = [PathBuf::from(path)];
    let mut source = voltages::open(&paths, &VoltageOptions::default()).unwrap();
    let mut block = source.header().block(source.header().times.unwrap() as usize);
    let read = source.read(&mut block).unwrap();
    let streams = 0..source.header().streams();
    streams.map(|stream| block.voltages().row(stream)[..2 * read].to_vec()).collect()
}

/// Samples that a document lists as lost, of `samples` samples of `tsamp_s` each.
fn listed(document: &Value, samples: usize, tsamp_s: f64) -> Vec<bool> {
    let count = |value: &Value| (value.as_f64().unwrap() / tsamp_s).round() as usize;
    let mut lost = vec![false; samples];
    for gap in document["gaps"].as_array().unwrap() {
        lost[count(&gap["start_s"])..][..count(&gap["length_s"])].fill(true);
    }
    lost
}

#[test]
fn a_full_disk_keeps_what_was_recorded_whole() {
    let home = recording();
    let folder = home.path();
    simulated(folder);
    for (sent, rate, words, suffix, kilobytes) in [
        ("a.fil", 25, "", ".fil", 1000),
        ("v.raw", 1, "--format dada", ".dada", 5000),
        // A block has 16 MiB.
        ("v.raw", 1, "--format guppi", ".raw", 18_000),
    ] {
        let port = free_port();
        let address = format!("spead://127.0.0.1:{port}");
        let is_over = AtomicBool::new(false);
        let output = scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::SeqCst) && !is_received(port) {
                    sleep(Duration::from_millis(10));
                }
                let words = format!("send {sent} {address} --rate {rate} --loop 0 -q");
                let _sender = Running::start(folder, &words);
                while !is_over.load(Ordering::SeqCst) {
                    sleep(Duration::from_millis(10));
                }
            });
            let begun = format!("find disk -name '*.part' -size +{kilobytes}k | grep -q .");
            let words = format!("live record {address} -o disk/live {words}");
            let output = on_full_disk(folder, &words, &begun);
            is_over.store(true, Ordering::SeqCst);
            output
        });
        let Some(output) = output else { return };
        assert_eq!(code(&output), 4, "{suffix}: {}", stderr(&output));
        assert!(stderr(&output).contains("space"), "{}", stderr(&output));
        let kept = folder.join("copy/live");
        let names = entries(&kept);
        assert!(names.iter().all(|name| !name.contains("unfinished")), "{names:?}");
        let name = names.iter().find(|name| name.ends_with(suffix)).expect("what was recorded");
        let found = document(&kept, &format!("{name}.json"));
        assert_eq!(found["complete"], false);
        assert!(found["reason"].as_str().unwrap().contains("space"), "{found}");
        let times = found["samples"].as_u64().unwrap() as usize;
        // Samples that arrived first are there, as they were sent.
        let (was, is, sample_bytes) = if suffix == ".fil" {
            let rows = |path: &Path, bytes: Option<usize>| {
                let all = fs::read(path).unwrap();
                let bytes = bytes.unwrap_or(4000 * 64);
                vec![all[all.len() - bytes..].to_vec()]
            };
            let is = rows(&kept.join(name), Some(times * 64));
            (rows(&folder.join("a.fil"), None), is, 64)
        } else {
            (samples(&folder.join("v.raw")), samples(&kept.join(name)), 2)
        };
        let lost = listed(&found, times, found["tsamp_s"].as_f64().unwrap());
        assert!(times * sample_bytes * is.len() > 900 * kilobytes, "{suffix}: {times} samples");
        for (was, is) in was.iter().zip(&is) {
            assert_eq!(is.len(), times * sample_bytes, "{suffix}");
            let was = was.chunks_exact(sample_bytes).cycle();
            for ((was, is), lost) in was.zip(is.chunks_exact(sample_bytes)).zip(&lost) {
                assert!(was == is || *lost, "{suffix}");
            }
        }
    }
}

#[test]
fn a_writer_that_stalls_loses_whole_stretches_that_are_listed() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path();
    simulated(folder);
    // Documents go to a pipe that nobody reads until the sender has ended.
    let words = "live record ADDRESS -o slow --roll 0.25 --observations 1 --json --no-sync";
    let (mut running, address) = receiving(folder, words);
    let mut pipe = running.child().stdout.take().unwrap();
    rustix::pipe::fcntl_setpipe_size(&pipe, 4096).unwrap();
    // 320 MB: more than may wait for the writer.
    done(folder, &format!("send v.raw {address} --rate 8 --loop 40 -q"));
    let mut text = String::new();
    pipe.read_to_string(&mut text).unwrap();
    let output = running.end();
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert!(stderr(&output).contains("behind real time"), "{}", stderr(&output));
    assert!(stderr(&output).contains("The slowest stage is `document`"), "{}", stderr(&output));
    let found: Vec<Value> = Deserializer::from_str(&text).into_iter().map(Result::unwrap).collect();
    let count = |value: &Value| (value.as_f64().unwrap() * 1e6).round() as usize;
    let was = samples(&folder.join("v.raw"));
    let sent_times = was[0].len() / 2;
    let (mut first, mut all_lost) = (0, 0);
    for document in &found {
        let is = samples(&folder.join(document["file"].as_str().unwrap()));
        let times = document["samples"].as_u64().unwrap() as usize;
        let lost = listed(document, times, 1e-6);
        all_lost += lost.iter().filter(|lost| **lost).count();
        for (was, is) in was.iter().zip(&is) {
            assert_eq!(is.len(), 2 * times);
            for (time, (is, lost)) in is.chunks_exact(2).zip(&lost).enumerate() {
                let place = 2 * ((first + time) % sent_times);
                let expected = if *lost { &[0, 0][..] } else { &was[place..place + 2] };
                assert_eq!(is, expected, "sample {}", first + time);
            }
        }
        first += times;
    }
    assert_eq!(first, 40 * sent_times);
    let last = found.last().unwrap();
    let dropped = count(&last["dropped"]["dropped_s"]);
    assert!(dropped > 0 && last["dropped"]["stretches"].as_u64().unwrap() > 0);
    assert!(last["packets"]["overrun"].as_u64().unwrap() > 0);
    // The kernel may have dropped packets while the machine was busy.
    if last["packets"]["missing_blocks"] == 0 {
        assert_eq!(dropped, all_lost);
    }
    assert!(dropped <= all_lost);
}

#[test]
fn a_search_that_is_too_slow_says_what_it_dropped_and_why() {
    let home = recording();
    let folder = home.path();
    // More than may wait: 1024 chunks of 50 ms, and what the search holds.
    let words = "live search ADDRESS -o live --observations 1 --dm-max 3000";
    let (running, address) = receiving(folder, words);
    done(folder, &format!("send a.fil {address} --rate max --loop 60 -q"));
    let output = running.end();
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let mut names = entries(&folder.join("live"));
    names.remove("candidates.ndjson");
    let name = names.pop_first().unwrap();
    let found = document(&folder.join("live"), &format!("{name}/summary.json"));
    let told = stderr(&output);
    assert!(told.contains("behind real time") && told.contains("The slowest stage is `"), "{told}");
    let stage = found["dropped"]["slowest_stage"].as_str().unwrap();
    assert!(told.contains(&format!("`{stage}`")), "{told}");
    let listed_s: f64 =
        found["gaps"].as_array().unwrap().iter().map(|gap| gap["length_s"].as_f64().unwrap()).sum();
    let dropped_s = found["dropped"]["dropped_s"].as_f64().unwrap();
    assert!(dropped_s > 1.0 && dropped_s <= listed_s + 1e-6, "{dropped_s} and {listed_s} s");
}

/// Waits until a condition holds.
fn await_that(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < LONG, "{what}");
        sleep(Duration::from_millis(20));
    }
}

/// Bytes of the files that are being written in a folder of products, and the number of products.
fn written(folder: &Path) -> (u64, usize) {
    let names = fs::read_dir(folder).map_or_else(|_| Vec::new(), |names| names.flatten().collect());
    let is_hidden = |name: &fs::DirEntry| name.file_name().as_encoded_bytes().starts_with(b".");
    let unfinished = names.iter().filter(|name| is_hidden(name) && name.path().is_dir());
    let files = unfinished.flat_map(|name| fs::read_dir(name.path())).flatten().flatten();
    let bytes = files.map(|file| file.metadata().map_or(0, |found| found.len())).sum();
    (bytes, names.iter().filter(|name| !is_hidden(name)).count())
}

/// Rows of a filterbank of 64 channels of a byte, of which a document says how many there are.
fn rows(path: &Path, times: usize) -> Vec<u8> {
    let all = fs::read(path).unwrap();
    all[all.len() - 64 * times..].to_vec()
}

/// The only product of a recording, and its document.
fn recorded(folder: &Path, suffix: &str) -> (PathBuf, Value) {
    let names = entries(folder);
    let name = names.iter().find(|name| name.ends_with(suffix)).expect("a recording");
    assert_eq!(names.len(), 2, "{names:?}");
    (folder.join(name), document(folder, &format!("{name}.json")))
}

#[test]
fn a_signal_ends_a_run_whose_sender_is_silent() {
    let home = recording();
    let folder = home.path();
    for (verb, seconds) in [("record", 1), ("search", 1), ("search", 40)] {
        let out = format!("{verb}{seconds}");
        let (running, address) = receiving(folder, &format!("live {verb} ADDRESS -o {out}"));
        let words = format!("send a.fil {address} --rate {seconds} --loop 0 -q");
        let mut sender = Running::start(folder, &words);
        await_that("an observation", || entries_or_none(&folder.join(&out)) > 0);
        sleep(Duration::from_millis(1000));
        sender.child().kill().unwrap();
        sender.end();
        sleep(Duration::from_millis(500));
        running.signal(Signal::TERM);
        let output = running.end();
        assert_eq!(code(&output), 130, "{verb}: {}", stderr(&output));
        let names = entries(&folder.join(&out));
        assert!(names.iter().all(|name| !name.starts_with('.')), "{names:?}");
        let name = names.iter().find(|name| name.starts_with("20")).expect("a product").clone();
        let found = match verb {
            "record" => document(&folder.join(&out), &format!("{name}.json")),
            _ => document(&folder.join(&out), &format!("{name}/summary.json")),
        };
        assert_eq!(found["complete"], false);
        assert_eq!(found["reason"], "stopped on request");
    }
}

fn entries_or_none(folder: &Path) -> usize {
    fs::read_dir(folder).map_or(0, |names| names.count())
}

#[test]
fn a_signal_ends_a_run_whose_output_is_not_read() {
    let home = recording();
    let folder = home.path();
    let words = "live record ADDRESS -o live --roll 1 --json --no-sync";
    let (mut running, address) = receiving(folder, words);
    let pipe = running.child().stdout.take().unwrap();
    rustix::pipe::fcntl_setpipe_size(&pipe, 4096).unwrap();
    let _sender = Running::start(folder, &format!("send a.fil {address} --rate 10 --loop 0 -q"));
    let live = folder.join("live");
    // The pipe holds two documents or fewer.
    let (mut before, mut since) = (0, Instant::now());
    await_that("a document that waits", || {
        let now = written(&live).1;
        if now != before {
            (before, since) = (now, Instant::now());
        }
        now > 0 && since.elapsed() > Duration::from_secs(2)
    });
    running.signal(Signal::TERM);
    await_that("the run to end", || running.child().try_wait().unwrap().is_some());
    drop(pipe);
    let output = running.end();
    assert_eq!(code(&output), 130, "{}", stderr(&output));
    let names = entries(&live);
    assert!(names.iter().all(|name| !name.contains("unfinished")), "{names:?}");
    let files: Vec<_> = names.iter().filter(|name| name.ends_with(".fil")).collect();
    assert!(!files.is_empty() && names.len() == 2 * files.len(), "{names:?}");
    for name in files {
        assert_eq!(document(&live, &format!("{name}.json"))["complete"], true);
        done(folder, &format!("info live/{name}"));
    }
}

#[test]
fn a_signal_ends_a_search_that_is_behind_real_time() {
    let home = recording();
    let folder = home.path();
    let words = "live search ADDRESS -o live --dm-max 3000 --log-file live.log";
    let (running, address) = receiving(folder, words);
    let _sender = Running::start(folder, &format!("send a.fil {address} --rate max --loop 0 -q"));
    let log = || fs::read_to_string(folder.join("live.log")).unwrap_or_default();
    await_that("a search that is too slow", || log().contains("behind real time"));
    running.signal(Signal::TERM);
    let output = running.end();
    assert_eq!(code(&output), 130, "{}", stderr(&output));
    let mut names = entries(&folder.join("live"));
    names.remove("pictures");
    assert!(names.remove("candidates.ndjson") && names.len() == 1, "{names:?}");
    let name = names.pop_first().unwrap();
    let found = document(&folder.join("live"), &format!("{name}/summary.json"));
    assert_eq!(found["complete"], false);
    assert!(found["dropped"]["blocks"].as_u64().unwrap() > 0);
}

#[test]
fn a_sender_that_was_killed_may_be_started_again() {
    let home = recording();
    let folder = home.path();
    let sent = rows(&folder.join("a.fil"), 4000);
    let words = "live record ADDRESS -o live --observations 2";
    let (running, address) = receiving(folder, words);
    let mut sender = Running::start(folder, &format!("send a.fil {address} --rate 5 --loop 0 -q"));
    await_that("a recording", || written(&folder.join("live")).0 > 256 << 10);
    sender.child().kill().unwrap();
    sender.end();
    done(folder, &format!("send a.fil {address} --rate 5 --loop 2 -q"));
    let output = running.end();
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let names = entries(&folder.join("live"));
    let found: Vec<&String> = names.iter().filter(|name| name.ends_with(".fil")).collect();
    assert_eq!(found.len(), 2, "{names:?}");
    let mut firsts = Vec::new();
    for name in found {
        let document = document(&folder.join("live"), &format!("{name}.json"));
        let times = document["samples"].as_u64().unwrap() as usize;
        let start_s = (document["tstart_mjd"].as_f64().unwrap() - start_mjd(folder)) * 86_400.0;
        let first = (start_s * 1e3).round() as usize;
        let lost = listed(&document, times, 1e-3);
        let is = rows(&folder.join("live").join(name), times);
        for (row, lost) in lost.iter().enumerate() {
            let place = 64 * ((first + row) % 4000);
            let same = is[64 * row..][..64] == sent[place..place + 64];
            assert!(same || *lost, "{name}: row {row}");
        }
        assert_eq!(document["complete"], true);
        firsts.push((first, times));
    }
    // The first packets of the second sender show that it has started again, and are lost.
    assert!(firsts.iter().any(|(first, _)| *first == 0), "{firsts:?}");
    assert!(
        firsts.iter().any(|(first, times)| *first < 4000 && first + times == 8000),
        "{firsts:?}"
    );
}

/// Start of the recording that is sent.
fn start_mjd(folder: &Path) -> f64 {
    let text = done(folder, "info a.fil --json");
    let found: Value = serde_json::from_str(&text).unwrap();
    found["tstart_mjd"].as_f64().unwrap()
}

#[test]
fn a_ring_ends_by_a_signal_and_by_the_death_of_its_writer() {
    let home = recording();
    let folder = home.path();
    let key = ring::key(12);
    done(folder, &format!("ring create -k {key} -n 8 -b 4096 -q"));
    // Before any transfer.
    let waiting = Running::start(folder, &format!("live record dada:{key} -o none"));
    await_that("a reader", || {
        done(folder, &format!("ring show -k {key}")).contains(&format!("process {}", waiting.id()))
    });
    waiting.signal(Signal::TERM);
    let output = waiting.end();
    assert_eq!(code(&output), 130, "{}", stderr(&output));
    assert!(!folder.join("none").exists());
    let sent = rows(&folder.join("a.fil"), 4000);
    // In a transfer, and after its writer has died.
    for (out, is_killed, exit) in [("stopped", false, 130), ("dead", true, 1)] {
        let running = Running::start(folder, &format!("live record dada:{key} -o {out}"));
        let words = format!("send a.fil dada:{key} --rate 2 --loop 0 -q");
        let sender = Running::start(folder, &words);
        await_that("a recording", || written(&folder.join(out)).0 > 64 << 10);
        if !is_killed {
            running.signal(Signal::TERM);
        }
        let killed = || {
            sender.signal(Signal::KILL);
            sender.end()
        };
        let output = if is_killed {
            killed();
            running.end()
        } else {
            let output = running.end();
            killed();
            output
        };
        assert_eq!(code(&output), exit, "{out}: {}", stderr(&output));
        let (path, found) = recorded(&folder.join(out), ".fil");
        assert_eq!(found["complete"], false);
        let times = found["samples"].as_u64().unwrap() as usize;
        let is = rows(&path, times);
        assert!(is.iter().zip(sent.iter().cycle()).all(|(is, was)| is == was), "{out}");
        done(folder, &format!("ring repair -k {key} --discard"));
    }
    done(folder, &format!("ring destroy -k {key}"));
}
