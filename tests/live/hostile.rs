//! Garbage beside a good stream on the same socket: no good packet that the socket delivered is lost, and each bad one has its
//! counter.

use std::collections::BTreeMap;
use std::path::Path;
use std::thread;
use std::time::Duration;

use sidereal::io::voltages::{VoltageHeader, VoltageOptions};
use sidereal::live::capture::{Capture, Event, Statistics};
use sidereal::live::declared::{Axis, Declaration, Declared, Extent};
use sidereal::live::description::{Description, Packets};
use sidereal::live::header::Content;
use sidereal::live::packet::Values;
use sidereal::live::send::{Monitor, Options, send_frames, send_packets};
use sidereal::live::socket::{Options as SocketOptions, Sender};
use sidereal::voltage::VoltageEncoding;

use crate::memory::Streams;
use crate::random::Random;
use crate::skip::skip;

/// Counter of a bad packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Counter {
    WrongLength,
    WrongSource,
    Invalid,
    Ahead,
    WithoutSamples,
}

/// Bad packets made of a good one.
type Spoil = fn(&[u8], &mut Random) -> (Vec<u8>, Counter);

struct Silent;

impl Monitor for Silent {
    fn stops(&mut self) -> bool {
        false
    }
}

fn counter_of(statistics: &Statistics, counter: Counter) -> u64 {
    let totals = &statistics.totals;
    match counter {
        Counter::WrongLength => totals.wrong_length + statistics.sum(|c| c.wrong_length),
        Counter::WrongSource => totals.wrong_source,
        Counter::Invalid => totals.invalid + statistics.sum(|c| c.invalid),
        Counter::Ahead => statistics.sum(|c| c.ahead + c.late),
        Counter::WithoutSamples => totals.without_samples,
    }
}

/// Random bytes that no format takes for its own.
fn noise(random: &mut Random) -> Vec<u8> {
    let length = random.below(2000);
    (0..length).map(|_| random.below(256) as u8).collect()
}

fn changed(packet: &[u8], at: usize, byte: u8) -> Vec<u8> {
    let mut packet = packet.to_vec();
    packet[at] = byte;
    packet
}

/// Returns the packets that have a counter.
fn accounted(statistics: &Statistics) -> u64 {
    let totals = &statistics.totals;
    statistics.sum(|c| {
        c.received + c.late + c.ahead + c.duplicate + c.wrong_length + c.invalid + c.overrun
    }) + totals.wrong_source
        + totals.wrong_length
        + totals.invalid
        + totals.unplaced
        + totals.without_samples
        + statistics.without_header
        + statistics.dropped
}

/// Sends good packets with `each` bad ones after each of them, from another socket, and checks what the capture makes of them. A
/// loaded machine that drops packets in the kernel's buffer gets more time.
fn flood(start: &dyn Fn() -> Capture, good: &[Vec<u8>], each: usize, spoil: Spoil, headers: u64) {
    for pause_ms in [2, 20, 100] {
        let capture = start();
        let pause = Duration::from_millis(pause_ms);
        let flood = Flood { good, each, spoil, pause, headers };
        let expected = flood.pass(&capture);
        let found = capture.statistics();
        if found.dropped == 0 {
            return check(&found, expected, good.len() as u64, headers);
        }
    }
    skip("sockets", "the kernel drops packets at any pace");
}

struct Flood<'a> {
    good: &'a [Vec<u8>],
    each: usize,
    spoil: Spoil,
    /// Pause after 16 good packets.
    pause: Duration,
    /// Packets among the good ones that have no samples.
    headers: u64,
}

impl Flood<'_> {
    /// Sends the packets and returns the bad ones.
    fn send(&self, port: u16) -> BTreeMap<Counter, u64> {
        let address = format!("127.0.0.1:{port}").parse().unwrap();
        let (mut own, mut other) =
            (Sender::new(address, None).unwrap(), Sender::new(address, None).unwrap());
        let mut random = Random::new(11);
        let mut sent = BTreeMap::new();
        for (number, packet) in self.good.iter().enumerate() {
            own.send(&[packet]).unwrap();
            // Headers come first; a bad packet before them would be of no stream.
            if number < 40 {
                continue;
            }
            for _ in 0..self.each {
                let (bad, counter) = (self.spoil)(packet, &mut random);
                other.send(&[&bad]).unwrap();
                *sent.entry(counter).or_default() += 1;
            }
            if number % 16 == 0 {
                thread::sleep(self.pause);
            }
        }
        sent
    }

    /// Sends the packets to a capture and waits until it has counted all; returns the bad ones. All blocks must be whole.
    fn pass(&self, capture: &Capture) -> BTreeMap<Counter, u64> {
        let port = capture.port();
        thread::scope(|scope| {
            let mut sending = Some(scope.spawn(move || self.send(port)));
            let (mut sent, mut waits, mut is_done) = (None, 0, false);
            let (mut whole, mut blocks) = (0, 0);
            loop {
                match capture.next(Duration::from_millis(200)) {
                    Some(Event::Chunk(chunk)) => {
                        blocks += chunk.blocks;
                        whole += if chunk.lost().is_empty() { chunk.blocks } else { 0 };
                        capture.recycle(chunk);
                    }
                    Some(Event::Begin(_)) => {}
                    Some(Event::End { .. }) => break,
                    Some(event) => panic!("{event:?}"),
                    None => {
                        if let Some(finished) = sending.take_if(|thread| thread.is_finished()) {
                            sent = Some(finished.join().unwrap());
                        }
                        let Some(bad) = &sent else { continue };
                        // The first header begins the stream and has no counter.
                        let all = self.good.len() as u64 + bad.values().sum::<u64>()
                            - self.headers.min(1);
                        waits += 1;
                        assert!(waits < 300, "{all} packets: {:?}", capture.statistics());
                        // The end would not be heard among garbage.
                        if !is_done && accounted(&capture.statistics()) >= all {
                            capture.finish();
                            is_done = true;
                        }
                    }
                }
            }
            assert!(whole == blocks || capture.statistics().dropped > 0, "{whole} of {blocks}");
            sent.unwrap_or_else(|| sending.take().unwrap().join().unwrap())
        })
    }
}

/// Checks that no good packet is lost, and that each bad one has its counter.
fn check(found: &Statistics, mut expected: BTreeMap<Counter, u64>, good: u64, headers: u64) {
    assert_eq!(found.sum(|c| c.missing + c.duplicate + c.overrun), 0, "{found:?}");
    let samples = good - headers;
    assert_eq!(found.sum(|counts| counts.received), samples);
    // The first header begins the stream.
    *expected.entry(Counter::WithoutSamples).or_default() += headers.saturating_sub(1);
    for (counter, count) in &expected {
        assert_eq!(counter_of(found, *counter), *count, "{counter:?}: {found:?}");
    }
    assert_eq!((found.totals.unplaced, found.totals.streams, found.totals.jumps), (0, 1, 0));
    assert!(expected.values().sum::<u64>() > 3 * samples, "{expected:?}");
}

fn socket() -> SocketOptions {
    SocketOptions { buffer_bytes: 32 << 20, ..SocketOptions::new("127.0.0.1:0".parse().unwrap()) }
}

/// Packets that a sender makes of a recording.
fn packets(send: impl FnOnce(&mut dyn FnMut(&[&[u8]]) -> sidereal::Result<()>)) -> Vec<Vec<u8>> {
    let mut packets = Vec::new();
    send(&mut |batch: &[&[u8]]| {
        packets.extend(batch.iter().map(|packet| packet.to_vec()));
        Ok(())
    });
    packets
}

fn options() -> Options {
    let mut options = Options::default();
    options.rate = None;
    options
}

#[test]
fn a_stream_of_heaps_survives_a_flood() {
    let made = Streams::new(2, 4, 40_000, 3);
    let good = packets(|send| {
        let mut reopen = || Ok(made.recording());
        let mut options = options();
        options.heap_times = Some(64);
        send_packets(made.recording(), &mut reopen, &options, send, &mut Silent).unwrap();
    });
    let start =
        || Capture::start(&socket(), Path::new("spead://"), &VoltageOptions::default()).unwrap();
    // A packet has 7 items: heap, bytes of the heap, offset, bytes of the payload, time, antenna, samples.
    let item = |number: usize| 8 + 8 * number;
    let spoil: Spoil = |good, random| match random.below(7) {
        0 => {
            let mut bytes = noise(random);
            // Shorter than a header, or without its magic number.
            bytes.first_mut().into_iter().for_each(|first| *first |= 0x80);
            let counter = if bytes.len() < 8 { Counter::WrongLength } else { Counter::Invalid };
            (bytes, counter)
        }
        1 => (good[..random.below(good.len())].to_vec(), Counter::WrongLength),
        2 => (changed(good, 2, 3), Counter::Invalid),
        // Another antenna.
        3 => (changed(good, 8 + 8 * 5 + 6, 0x7f), Counter::WrongSource),
        // A count far ahead of the window.
        4 => (changed(good, 8 + 8 * 4 + 2, 1 + random.below(0x40) as u8), Counter::Ahead),
        // A count between those of two heaps.
        5 => (changed(good, 8 + 8 * 4 + 7, good[8 + 8 * 4 + 7] | 1), Counter::Invalid),
        // A heap whose samples end elsewhere.
        _ => (changed(good, 8 + 8 * 6 + 7, 8), Counter::WrongLength),
    };
    assert_eq!(good[60].len() - 4 * 2 * 2 * 64, item(7));
    let headers = good.iter().filter(|packet| packet.len() != good[60].len()).count() as u64;
    // The end is none among garbage: the test finishes the capture.
    let good = &good[..good.len() - 1];
    flood(&start, good, 12, spoil, headers - 1);
}

#[test]
fn declared_packets_survive_a_flood() {
    let declaration = Declaration::chips(4, 2, Values::from(9, 1));
    let format = Declared::new(declaration.clone()).unwrap();
    let mut header =
        VoltageHeader::new(vec![1e9, 1.1e9, 1.2e9, 1.3e9], 1e-4, VoltageEncoding::Complex4);
    (header.antennas, header.polarizations) = (32, 2);
    let axes: Vec<Extent> =
        [Extent::new(Axis::Antenna, 2)].into_iter().chain(declaration.axes).collect();
    let content = Content::Voltages(header);
    let description = Description::new(content, Packets::Declared(format.clone()), &axes).unwrap();
    let start =
        || Capture::start_described(&[socket()], Path::new("site.toml"), &description).unwrap();
    let good: Vec<Vec<u8>> = (0..2400)
        .map(|number| {
            let mut packet = vec![number as u8; 16 + 128];
            packet[..16].fill(0);
            format.write_header(&mut packet, number % 2, (1_000_000 + number / 2) as u64).unwrap();
            packet
        })
        .collect();
    let spoil: Spoil = |good, random| match random.below(6) {
        0 => {
            let mut bytes = noise(random);
            let counter =
                if bytes.len() < 16 { Counter::WrongLength } else { Counter::WrongSource };
            bytes.first_mut().into_iter().for_each(|first| *first |= 0x80);
            (bytes, counter)
        }
        1 => (good[..random.below(good.len())].to_vec(), Counter::WrongLength),
        2 => (changed(good, 0, 3 + random.below(250) as u8), Counter::WrongSource),
        3 => (changed(good, 2, 5), Counter::Invalid),
        4 => (changed(good, 8, 1 + random.below(0x7e) as u8), Counter::Ahead),
        _ => ([good, &[0; 5]].concat(), Counter::WrongLength),
    };
    flood(&start, &good, 12, spoil, 0);
}

#[test]
fn vdif_frames_survive_a_flood() {
    let made = Streams::new(2, 2, 40_000, 8);
    let good = packets(|send| {
        let mut reopen = || Ok(made.recording());
        let mut options = options();
        options.heap_times = Some(64);
        send_frames(made.recording(), &mut reopen, true, &options, send, &mut Silent).unwrap();
    });
    let options = VoltageOptions::default();
    let start = || Capture::start_vdif(&socket(), Path::new("vdif://"), true, &options).unwrap();
    let spoil: Spoil = |good, random| match random.below(7) {
        0 => {
            let mut bytes = noise(random);
            bytes.truncate(8 + 31);
            // A legacy header has 16 bytes.
            bytes.get_mut(8 + 3).into_iter().for_each(|byte| *byte &= 0xbf);
            let counter = if bytes.len() < 8 { Counter::WrongLength } else { Counter::Invalid };
            (bytes, counter)
        }
        1 => {
            let length = 8 + 32 + random.below(good.len() - 40);
            (good[..length].to_vec(), Counter::WrongLength)
        }
        // Another station.
        2 => (changed(good, 8 + 13, 1 + random.below(255) as u8), Counter::WrongSource),
        // Other bits.
        3 => (changed(good, 8 + 15, good[8 + 15] ^ 4), Counter::Invalid),
        // The invalid bit.
        4 => (changed(good, 8 + 3, good[8 + 3] | 0x80), Counter::Invalid),
        // A damaged sync word.
        5 => (changed(good, 8 + 21, 0), Counter::Invalid),
        // Seconds far from the others.
        _ => (changed(good, 8 + 2, good[8 + 2] ^ (1 + random.below(3) as u8) << 5), Counter::Ahead),
    };
    flood(&start, &good, 12, spoil, 0);
}
