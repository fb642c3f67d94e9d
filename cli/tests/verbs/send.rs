//! `send`: recordings as SPEAD streams and through rings.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use sidereal::io::voltages::VoltageOptions;
use sidereal::live::header::Content;
use sidereal::live::ring::{Key, Reader, Received};
use sidereal::live::socket::{Options, Receiver};
use sidereal::live::stream::Stream;

use crate::common::{
    code, done, fails, json, program, recording, sidereal, skip::skip, stderr, voltages,
};

const LONG: Duration = Duration::from_secs(60);

/// A key that no other process's tests have, `at` apart.
fn key(at: u32) -> Key {
    Key::new(0x6d0f_0002 + (std::process::id() % 0x7ff) * 32 + 2 * at).unwrap()
}

/// A ring that is removed at the end.
struct Ring<'a> {
    folder: &'a Path,
    key: Key,
}

impl<'a> Ring<'a> {
    fn new(folder: &'a Path, at: u32) -> Self {
        let key = key(at);
        done(folder, &format!("ring create -k {key} -n 4 -b 8KiB -q"));
        Self { folder, key }
    }

    /// Reads transfers on another thread: the header's text and the bytes of each.
    fn read(&self, transfers: usize) -> JoinHandle<Vec<(Content, Vec<u8>)>> {
        let mut reader = Reader::attach(self.key, LONG).unwrap();
        std::thread::spawn(move || {
            let one = |_| {
                let fields = reader.header(LONG).unwrap().expect("a header");
                let options = VoltageOptions::default();
                let content = Content::new(&fields, Path::new("ring"), &options).unwrap();
                let (mut bytes, mut part) = (Vec::new(), vec![0; 9000]);
                while let Received::Bytes(count) = reader.read(&mut part, LONG).unwrap() {
                    bytes.extend(&part[..count]);
                }
                (content, bytes)
            };
            (0..transfers).map(one).collect()
        })
    }
}

impl Drop for Ring<'_> {
    fn drop(&mut self) {
        sidereal(self.folder, &format!("ring destroy -k {} --force -q", self.key));
    }
}

#[test]
fn a_filterbank_passes_a_ring_as_its_rows() {
    let home = recording();
    let folder = home.path();
    let ring = Ring::new(folder, 0);
    let reading = ring.read(2);
    let words = format!("send a.fil dada:{} --rate 20 --loop 2 --restart 5", ring.key);
    let found = json(folder, &words);
    assert_eq!(found["schema"], "sidereal/send/1");
    assert_eq!((&found["samples"], &found["restarts"]), (&8000.into(), &1.into()));
    assert_eq!((&found["content"], &found["complete"]), (&"spectra".into(), &true.into()));
    let received = reading.join().unwrap();
    let file = fs::read(folder.join("a.fil")).unwrap();
    let rows = file[file.len() - 4000 * 64..].repeat(2);
    assert_eq!(received[0].1, rows[..5000 * 64]);
    assert_eq!(received[1].1, rows[5000 * 64..]);
    let Content::Spectra(header) = &received[0].0 else { panic!("spectra") };
    assert_eq!((header.tsamp_s, header.channels()), (1e-3, 64));
    assert!((received[1].0.start().seconds_since(&received[0].0.start()) - 5.0).abs() < 1e-5);
}

#[test]
fn voltages_pass_a_ring_as_in_a_file() {
    let home = voltages::recording("v.dada", "");
    let folder = home.path();
    let ring = Ring::new(folder, 1);
    let reading = ring.read(1);
    let text = done(folder, &format!("send v.dada dada:{} --rate max", ring.key));
    assert!(text.contains("samples of voltages"), "{text}");
    let file = fs::read(folder.join("v.dada")).unwrap();
    assert!(reading.join().unwrap()[0].1 == file[4096..], "the samples differ");
}

#[test]
fn a_stream_reaches_a_port_whole_apart_from_the_list() {
    let home = recording();
    let folder = home.path();
    let mut receiver = match Receiver::new(&Options::new("127.0.0.1:0".parse().unwrap())) {
        Ok(receiver) => receiver,
        Err(error) => return skip("sockets", &error.to_string()),
    };
    let port = receiver.port().unwrap();
    let words = format!(
        "send a.fil spead://localhost:{port} --rate max --heap-times 50 --packet-bytes 1408 --loss 0.1 \
         --seed 4 --lost-list lost.csv"
    );
    let found = json(folder, &words);
    let mut packets = Vec::new();
    while packets.len() < found["packets"].as_u64().unwrap() as usize {
        let count = receiver.receive(Duration::from_secs(2)).unwrap();
        assert!(count > 0, "{} packets of {found}", packets.len());
        packets.extend((0..count).map(|index| receiver.packet(index).to_vec()));
    }
    let stream = Stream::from_packet(&packets[0], Path::new("port"), &VoltageOptions::default());
    assert_eq!(stream.unwrap().unwrap().times(), 50);
    assert_eq!(Stream::end_of(packets.last().unwrap()), Some(4000));
    // A heap of 3200 bytes has 3 packets.
    let sent = 80 * 3 - found["dropped"].as_u64().unwrap();
    assert_eq!(packets.len() as u64, sent + found["header_packets"].as_u64().unwrap());
    let list = fs::read_to_string(folder.join("lost.csv")).unwrap();
    let mut lines = list.lines();
    assert_eq!(lines.next(), Some("first,times,source,start"));
    let lost: u64 = lines.map(|line| line.split(',').nth(1).unwrap().parse::<u64>().unwrap()).sum();
    let dropped = found["dropped"].as_u64().unwrap();
    assert!(
        lost > 0 && lost.is_multiple_of(50) && lost / 50 <= dropped && dropped <= lost / 50 * 3
    );
    fails(&sidereal(folder, &words), 2, &["--lost-list", "lost.csv"]);
    assert_eq!(done(folder, &format!("{words} --overwrite -q")), "");
    assert_eq!(fs::read_to_string(folder.join("lost.csv")).unwrap(), list);
}

/// Starts an endless stream.
fn endless(folder: &Path, words: &str) -> Child {
    Command::new(program())
        .args(words.split_whitespace())
        .current_dir(folder)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

#[test]
fn a_signal_ends_a_stream_with_its_summary() {
    let home = recording();
    let folder = home.path();
    let ring = Ring::new(folder, 2);
    for target in ["spead://127.0.0.1:9".to_owned(), format!("dada:{}", ring.key)] {
        let child = endless(folder, &format!("send a.fil {target} --loop 0 --json"));
        std::thread::sleep(Duration::from_millis(700));
        let asked = Instant::now();
        rustix::process::kill_process(
            rustix::process::Pid::from_child(&child),
            rustix::process::Signal::INT,
        )
        .unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(code(&output), 130, "{target}: {}", stderr(&output));
        assert!(asked.elapsed() < LONG);
        let found: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(
            (&found["complete"], &found["reason"]),
            (&false.into(), &"stopped on request".into())
        );
        assert!(found["samples"].as_u64().unwrap() > 0, "{found}");
    }
}

#[test]
fn standard_input_is_sent_and_its_end_told() {
    let home = recording();
    let folder = home.path();
    let file = fs::read(folder.join("a.fil")).unwrap();
    fs::write(folder.join("cut.fil"), &file[..file.len() - 30]).unwrap();
    let output = Command::new(program())
        .args(["send", "-", "spead://127.0.0.1:9", "--rate", "max", "--json"])
        .stdin(fs::File::open(folder.join("cut.fil")).unwrap())
        .current_dir(folder)
        .output()
        .unwrap();
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&found["samples"], &found["complete"]), (&3999.into(), &false.into()));
    assert!(stderr(&output).contains("warning"), "{}", stderr(&output));
}

#[test]
fn wrong_words_are_named() {
    let home = recording();
    let folder = home.path();
    let ring = Ring::new(folder, 3);
    let key = ring.key;
    let words =
        "simulate voltages v.dada -q --freq 150 --bandwidth 1 --coarse-channels 4 --duration 0.01";
    done(folder, words);
    let site = "[input]\naddress = \"udp://127.0.0.1:9\"\npreset = \"snap\"\nantennas = 1\nchannels = 256\n\
                centre_hz = 1400e6\nbandwidth_hz = 64e6\ntsamp_s = 4e-6\n";
    fs::write(folder.join("site.toml"), site).unwrap();
    for (words, expected) in [
        ("a.fil", "spead://HOST:PORT"),
        ("a.fil udp://127.0.0.1:9", "spead://HOST:PORT"),
        ("a.fil spead://127.0.0.1:0", "1 to 65535"),
        ("a.fil dada:xyz", "hexadecimal"),
        ("a.fil spead://127.0.0.1:9 --rate fast", "--rate"),
        ("a.fil spead://127.0.0.1:9 --rate 0", "--rate"),
        ("a.fil spead://127.0.0.1:9 --loss 1.5", "--loss is 1.5"),
        ("a.fil spead://127.0.0.1:9 --reorder -1", "--reorder is -1"),
        ("a.fil spead://127.0.0.1:9 --reorder-span 0", "--reorder-span is 0"),
        ("a.fil spead://127.0.0.1:9 --packet-bytes 12", "--packet-bytes is 12"),
        ("a.fil spead://127.0.0.1:9 --heap-times 0", "--heap-times is 0"),
        ("a.fil spead://127.0.0.1:9 --restart 0", "--restart"),
        ("a.fil spead://127.0.0.1:9 --first-count 281474976710656", "--first-count"),
        ("a.fil spead://127.0.0.1:9 --interface lo", "--interface"),
        ("a.fil spead://239.1.2.3:9 --interface nosuch", "--interface"),
        ("a.fil spead://239.1.2.3:9?interface=a --interface b", "--interface"),
        ("a.fil spead://127.0.0.1:9 --pols 2", "--pols"),
        ("a.fil spead://127.0.0.1:9 --overwrite", "--lost-list"),
        ("- spead://127.0.0.1:9 --loop 2", "--loop is 2"),
        ("a.fil vdif://127.0.0.1:9", "VDIF has voltages"),
        ("a.fil vdif:127.0.0.1:9", "vdif://HOST:PORT"),
        ("v.dada vdif://127.0.0.1:9 --first-count 3", "--first-count is 3"),
        ("v.dada vdif://127.0.0.1:9 --heap-times 7", "--heap-times is 7"),
        ("v.dada vdif://127.0.0.1:9 --interface lo", "--interface"),
        ("v.dada site.toml --heap-times 7", "--heap-times is 7"),
        ("v.dada site.toml --interface lo", "--interface"),
        ("v.dada site.toml", "the packets have 256"),
        ("a.fil site.toml", "the packets have voltages"),
        ("v.dada packets://127.0.0.1:9", "?preset=NAME"),
        ("v.dada packets://127.0.0.1:9?preset=snip", "\"snap2\""),
        ("v.dada packets://127.0.0.1:9?preset=snap", "multiple of the 256"),
        ("v.dada packets://127.0.0.1:9?preset=grex", "2048"),
        ("v.dada packets://127.0.0.1:9?preset=snap2", "the packets have Complex4"),
        ("v.dada packets://127.0.0.1:9?preset=snap2&antenas=1", "antenas"),
        ("v.dada packets://127.0.0.1:9?preset=snap2 --interface lo", "multicast"),
        ("v.dada packets://239.1.2.3:9?preset=snap2&interface=lo --interface eth0", "names"),
        ("a.fil packets://127.0.0.1:9?preset=snap2", "the packets have voltages"),
        (&format!("a.fil dada:{key} --loss 0.1"), "--loss"),
        (&format!("a.fil dada:{key} --first-count 3"), "--first-count"),
        (&format!("a.fil dada:{key} --heap-times 3"), "--heap-times"),
        (&format!("a.fil dada:{key} --lost-list x.csv"), "--lost-list"),
    ] {
        fails(&sidereal(folder, &format!("send {words}")), 2, &[expected]);
    }
    fails(&sidereal(folder, "send none.fil spead://127.0.0.1:9"), 1, &["none.fil"]);
    fails(&sidereal(folder, "send a.fil none.toml"), 1, &["none.toml"]);
    fails(&sidereal(folder, "send a.fil dada:6d0b0ffe"), 1, &["6d0b0ffe", "create the ring"]);
}
