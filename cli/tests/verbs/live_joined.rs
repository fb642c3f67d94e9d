//! Voltages that arrive as several streams: their products are those of the undivided recording.

use std::fs;
use std::path::Path;

use rustix::process::Signal;
use sidereal::io::voltages::{self, VoltageOptions};

use crate::common::voltages::recording as pulse;
use crate::common::{code, document, done, entries, fails, sidereal, stderr};
use crate::live::{LONG, Running, await_port, free_port, observation};

/// A running `live` of several addresses, and those addresses.
struct Joined {
    running: Running,
    addresses: Vec<String>,
}

impl Joined {
    /// Starts `live` with `count` addresses in place of `ADDRESSES`.
    fn start(folder: &Path, count: usize, words: &str) -> Self {
        let ports: Vec<u16> = (0..count).map(|_| free_port()).collect();
        let address = |port: &u16| format!("spead://127.0.0.1:{port}");
        let addresses: Vec<String> = ports.iter().map(address).collect();
        let running = Running::start(folder, &words.replace("ADDRESSES", &addresses.join(" ")));
        ports.into_iter().for_each(await_port);
        Self { running, addresses }
    }

    /// Sends a part of v.raw to each address at the same time, and waits until all have ended.
    fn send(&self, folder: &Path, parts: &[&str]) {
        let pairs = self.addresses.iter().zip(parts);
        let senders = pairs.map(|(address, part)| {
            Running::start(folder, &format!("send v.raw {address} -q {part}"))
        });
        for sender in senders.collect::<Vec<_>>() {
            let output = sender.end();
            assert_eq!(code(&output), 0, "{}", stderr(&output));
        }
    }

    fn end(self) {
        let output = self.running.end();
        assert_eq!(code(&output), 0, "{}", stderr(&output));
    }
}

#[test]
fn a_search_of_bands_or_polarizations_finds_what_the_search_of_the_file_finds() {
    let home = pulse("v.raw", "");
    let folder = home.path();
    let options = "--channels 32 --integrate 4 --dm-max 30";
    done(folder, &format!("search v.raw -o file -q --no-plots {options}"));
    let expected = fs::read_to_string(folder.join("file/candidates.cand")).unwrap();
    assert!(expected.lines().count() > 0);
    let whole = document(folder, "file/summary.json");
    for (name, parts) in [
        ("bands", &["--channels 2:3", "--channels 0:1"][..]),
        ("polarizations", &["--pol 0", "--pol 1"]),
        ("single", &["--channels 3", "--channels 0", "--channels 1:2"]),
    ] {
        let words = format!("live search ADDRESSES -o {name} -q --observations 1 {options}");
        let joined = Joined::start(folder, parts.len(), &words);
        joined.send(folder, parts);
        let addresses = joined.addresses.clone();
        joined.end();
        let place = observation(&folder.join(name));
        assert_eq!(fs::read_to_string(place.join("candidates.cand")).unwrap(), expected, "{name}");
        let found = document(&place, "summary.json");
        for key in ["candidates", "plan", "masked_channels", "observation"] {
            assert!(found[key] == whole[key], "{name} {key}: {} {}", found[key], whole[key]);
        }
        let file = found["file"].as_str().unwrap();
        assert!(addresses.iter().all(|address| file.contains(address.as_str())), "{file}");
    }
}

#[test]
fn bands_are_recorded_and_channelized_as_one_and_their_counters_summed() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path();
    let words = "simulate voltages v.raw -q --freq 1400 --bandwidth 4 --coarse-channels 4 --duration 0.3 --seed 2";
    done(folder, words);
    done(folder, "channelize v.raw -o v.fil -q --channels 16 --integrate 4");
    let parts = ["--channels 0:0", "--channels 3:3", "--channels 1:2"];
    let joined = Joined::start(
        folder,
        3,
        "live channelize ADDRESSES -o fil -q --observations 1 --channels 16 --integrate 4",
    );
    joined.send(folder, &parts);
    joined.end();
    let read = |place: &Path| {
        let names = entries(place);
        let name = names.iter().find(|name| name.ends_with(".fil")).expect("a filterbank");
        let bytes = fs::read(place.join(name)).unwrap();
        let at = bytes.windows(10).position(|window| window == b"HEADER_END").unwrap();
        bytes[at + 10..].to_vec()
    };
    let expected = fs::read(folder.join("v.fil")).unwrap();
    let rows = read(&folder.join("fil"));
    assert!(!rows.is_empty() && expected.ends_with(&rows));

    let site = |addresses: &[String]| {
        let addresses: Vec<String> = addresses.iter().map(|text| format!("{text:?}")).collect();
        let text = format!(
            "[input]\naddress = [{}]\n[record]\noutput = \"recorded\"\nobservations = 1\n",
            addresses.join(", ")
        );
        fs::write(folder.join("site.toml"), text).unwrap();
    };
    let ports = [free_port(), free_port()];
    let addresses = ports.map(|port| format!("spead://127.0.0.1:{port}")).to_vec();
    site(&addresses);
    let running = Running::start(folder, "live run site.toml -q");
    ports.into_iter().for_each(await_port);
    let joined = Joined { running, addresses };
    joined.send(folder, &["--channels 0:1 --loss 0.05 --seed 4", "--channels 2:3"]);
    joined.end();
    let names = entries(&folder.join("recorded"));
    let name = names.iter().find(|name| name.ends_with(".dada")).expect("a recording");
    let samples = |path: &Path| {
        let mut source = voltages::open(&[path.to_path_buf()], &VoltageOptions::default()).unwrap();
        let header = source.header().clone();
        let mut block = header.block(header.times.unwrap() as usize);
        source.read(&mut block).unwrap();
        let row = |stream| block.voltages().row(stream).to_vec();
        (header.centres_hz.clone(), (0..header.streams()).map(row).collect::<Vec<_>>())
    };
    let ((band, sent), (own, found)) =
        (samples(&folder.join("v.raw")), samples(&folder.join("recorded").join(name)));
    assert_eq!(own, band);
    assert!(found[4..] == sent[4..], "the band without loss");
    let pairs = sent[..4].iter().flatten().zip(found[..4].iter().flatten());
    assert!(
        pairs.clone().all(|(was, is)| was == is || *is == 0)
            && !pairs.clone().all(|(was, is)| was == is)
    );
    let found = document(&folder.join("recorded"), &format!("{name}.json"));
    let packets = &found["packets"];
    // Heaps of 2048 samples of 2 channels x 2 polarizations x 16 bits, in packets of 8 KiB.
    let sent = 2 * 300_000_u64.div_ceil(2048);
    let heaps = packets["received"].as_u64().unwrap() + packets["missing_blocks"].as_u64().unwrap();
    assert!(packets["missing_blocks"].as_u64().unwrap() > 0 && heaps >= sent, "{packets} {sent}");
    assert!(!found["gaps"].as_array().unwrap().is_empty());
}

#[test]
fn a_sender_that_starts_again_begins_another_observation_of_all_streams() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path();
    let words = "simulate voltages v.raw -q --freq 1400 --bandwidth 0.4 --coarse-channels 4 --duration 3 --seed 2";
    done(folder, words);
    let joined = Joined::start(folder, 2, "live record ADDRESSES -o live --observations 2");
    joined.send(folder, &["--channels 0:1 --restart 1.2", "--channels 2:3"]);
    let output = joined.running.end();
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    assert!(stderr(&output).contains("has ended; what came later"), "{}", stderr(&output));
    let place = folder.join("live");
    let names = entries(&place);
    let files: Vec<&String> = names.iter().filter(|name| name.ends_with(".dada")).collect();
    assert_eq!(files.len(), 2, "{names:?}");
    let mut whole = voltages::open(&[folder.join("v.raw")], &VoltageOptions::default()).unwrap();
    let header = whole.header().clone();
    let mut all = header.block(header.times.unwrap() as usize);
    whole.read(&mut all).unwrap();
    let mut sum = 0;
    for name in files {
        let mut part = voltages::open(&[place.join(name)], &VoltageOptions::default()).unwrap();
        let own = part.header().clone();
        let begin = own.start.seconds_since(&header.start) / header.tsamp_s;
        let begin = begin.round() as usize;
        let mut block = own.block(own.times.unwrap() as usize);
        let times = part.read(&mut block).unwrap();
        for stream in 0..header.streams() {
            let sent = &all.voltages().row(stream)[2 * begin..][..2 * times];
            assert!(sent == &block.voltages().row(stream)[..2 * times], "{name} {stream}");
        }
        sum += times;
    }
    // Samples between the end and the next header are left out.
    assert!(sum as f64 > 0.6 * 300_000.0, "{sum}");
}

#[test]
fn a_stream_that_does_not_fit_is_refused_and_a_wait_for_it_is_stopped() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path();
    let words = "simulate voltages v.raw -q --freq 1400 --bandwidth 4 --coarse-channels 4 --duration 0.02 --seed 2";
    done(folder, words);
    let joined = Joined::start(folder, 2, "live record ADDRESSES -o live");
    joined.send(folder, &["--channels 0:1", "--channels 1:2"]);
    let output = joined.running.end();
    assert_eq!(code(&output), 3, "{}", stderr(&output));
    let told = stderr(&output);
    assert!(told.contains("overlap by 1.000000 MHz"), "{told}");
    assert!(joined.addresses.iter().all(|address| told.contains(address.as_str())), "{told}");

    let joined = Joined::start(folder, 2, "live search ADDRESSES -o live --channels 16");
    let sender = format!("send v.raw {} -q --channels 0:1", joined.addresses[0]);
    done(folder, &sender);
    let asked = std::time::Instant::now();
    joined.running.signal(Signal::TERM);
    assert_eq!(code(&joined.running.end()), 130);
    assert!(asked.elapsed() < LONG);

    done(
        folder,
        "simulate burst a.fil -q --fch1 1500 --foff -4 --channels 64 --tsamp 1e-3 --duration 0.2 --seed 3",
    );
    let joined = Joined::start(folder, 2, "live record ADDRESSES -o live");
    done(folder, &format!("send a.fil {} -q", joined.addresses[0]));
    let output = joined.running.end();
    assert_eq!(code(&output), 3, "{}", stderr(&output));
    assert!(stderr(&output).contains("found spectra, expected voltages"), "{}", stderr(&output));
    assert!(!folder.join("live").exists());

    for (words, expected) in [
        ("live record spead://:9 spead://:9 -o x", "given twice"),
        ("live search spead://:9 a.fil -o x", "spead://HOST:PORT"),
        ("live channelize spead://:9 v.raw -o x --channels 4", "spead://HOST:PORT"),
        ("send v.raw spead://127.0.0.1:9 --channels 2:4", "channels 0 to 3"),
        ("send v.raw spead://127.0.0.1:9 --channels 3:2", "FIRST:LAST"),
        ("send v.raw spead://127.0.0.1:9 --pol 2", "--pol is 2"),
        ("send a.fil spead://127.0.0.1:9 --channels 0:1", "it is for voltages"),
    ] {
        fails(&sidereal(folder, words), 2, &[expected]);
    }
}
