//! Streams that are sent through a socket or a ring return as spectra and voltages; what was lost is listed and filled.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use sidereal::io::voltages::{Flag, VoltageHeader, VoltageOptions, VoltageSource};
use sidereal::io::{FilterbankHeader, FilterbankSource, Gap};
use sidereal::live::header::Content;
use sidereal::live::ring::{self, Key};
use sidereal::live::socket::Sender;
use sidereal::live::source::{Live, LiveSpectra, LiveVoltages, Observation};
use sidereal::live::spead::{Flavour, Item, Packetizer, Repeat, id};
use sidereal::live::stream::{END_ID, Stream};
use sidereal::live::target::{Port, Target};
use sidereal::sample::Encoding;
use sidereal::units::{Band, Epoch};
use sidereal::voltage::VoltageEncoding;

use crate::random::Random;

const LONG: Duration = Duration::from_secs(60);

fn spectra(channels: usize) -> FilterbankHeader {
    FilterbankHeader {
        path: PathBuf::new(),
        format: "PSRDADA spectra",
        source_name: "FRB".into(),
        telescope: "X".into(),
        ra_deg: None,
        dec_deg: None,
        beam: None,
        tstart_mjd: 60_000.25,
        tsamp_s: 1e-3,
        band: Band::uniform(1500.0, -0.5, channels).unwrap(),
        encoding: Encoding::U8,
        recorded_bits: 8,
        recorded_polarizations: 1,
        times: None,
    }
}

fn voltages() -> VoltageHeader {
    let centres = vec![1400e6, 1401e6, 1402e6, 1403e6];
    let mut header = VoltageHeader::new(centres, 1e-6, VoltageEncoding::Complex8);
    (header.antennas, header.polarizations) = (3, 2);
    header.start = Epoch::new(60_000, 7.0);
    header
}

/// Sender of a stream to a port of this machine.
struct Sending {
    stream: Stream,
    socket: Sender,
    packetizer: Packetizer,
    heap: u64,
}

impl Sending {
    fn new(stream: Stream, port: u16) -> Self {
        let socket = Sender::new(format!("127.0.0.1:{port}").parse().unwrap(), None).unwrap();
        let packetizer = Packetizer::new(Flavour::BITS_48, 1024, Repeat::All).unwrap();
        Self { stream, socket, packetizer, heap: 1 }
    }

    fn heap(&mut self, items: &[Item], payload: &[u8], is_lost: impl Fn(usize) -> bool) {
        let Self { socket, packetizer, heap, .. } = self;
        let mut part = 0;
        let mut send = |packet: &[u8]| {
            part += 1;
            if is_lost(part - 1) { Ok(()) } else { socket.send(&[packet]) }
        };
        packetizer.send(*heap, items, payload, &mut send).unwrap();
        self.heap += 1;
    }

    fn header(&mut self) {
        let text = self.stream.header_payload().unwrap();
        let mut whole = Packetizer::new(Flavour::BITS_48, 8192, Repeat::All).unwrap();
        let socket = &mut self.socket;
        whole
            .send(self.heap, &self.stream.header_items(), &text, &mut |p| socket.send(&[p]))
            .unwrap();
        self.heap += 1;
    }

    fn data(&mut self, time: u64, source: usize, samples: &[u8], is_lost: impl Fn(usize) -> bool) {
        let items = self.stream.data_items(time, source);
        self.heap(&items, samples, is_lost);
        // A loaded machine must not lose packets in the kernel's buffer.
        if self.heap.is_multiple_of(64) {
            thread::sleep(Duration::from_millis(2));
        }
    }

    fn stop(&mut self, end: u64) {
        let items = [Item::immediate(id::CONTROL, 2), Item::immediate(END_ID, end)];
        self.heap(&items, &[], |_| false);
    }
}

fn live() -> (Live, u16) {
    // The system chooses the port.
    let target = Target::Spead(Port { address: "127.0.0.1:0".parse().unwrap(), interface: None });
    let live = Live::open(&target, &VoltageOptions::default(), 16 << 20).unwrap();
    let port = live.port().unwrap();
    (live, port)
}

fn next_spectra(live: &Live) -> LiveSpectra {
    match live.next(Box::new(|| true)).unwrap() {
        Observation::Spectra(spectra) => spectra,
        Observation::Voltages(_) => panic!("voltages"),
    }
}

fn next_voltages(live: &Live) -> LiveVoltages {
    match live.next(Box::new(|| true)).unwrap() {
        Observation::Voltages(voltages) => voltages,
        Observation::Spectra(_) => panic!("spectra"),
    }
}

/// Reads all rows, in reads of `rows` rows.
fn read_all(source: &mut LiveSpectra, rows: usize) -> Vec<u8> {
    let row_bytes = source.header().row_bytes();
    let (mut all, mut gulp) = (Vec::new(), vec![0; rows * row_bytes]);
    loop {
        match source.read(&mut gulp).unwrap() {
            0 => return all,
            read => all.extend_from_slice(&gulp[..read * row_bytes]),
        }
    }
}

fn bytes(random: &mut Random, count: usize) -> Vec<u8> {
    (0..count).map(|_| random.below(256) as u8).collect()
}

#[test]
fn spectra_return_as_they_were_sent_and_lost_ones_are_listed() {
    let mut random = Random::new(3);
    for (channels, times, loss) in [(64, 10, 0.0), (64, 7, 0.1), (2048, 1, 0.05), (256, 32, 0.3)] {
        let header = spectra(channels);
        let stream = Stream::with_times(Content::Spectra(header.clone()), times).unwrap();
        let (live, port) = live();
        let heaps = 150;
        let padding = times / 2;
        let sent = bytes(&mut random, heaps * times * channels);
        // A heap that lacks a packet is lost as a whole.
        let packets = (times * channels).div_ceil(1024);
        let lost: Vec<Vec<bool>> = (0..heaps)
            .map(|heap| {
                (0..packets)
                    .map(|part| {
                        heap > 0 && (heap + 1 < heaps || part > 0) && random.uniform() < loss
                    })
                    .collect()
            })
            .collect();
        let mut sending = Sending::new(stream, port);
        let reader = thread::spawn(move || {
            let mut source = next_spectra(&live);
            let rows = read_all(&mut source, 13);
            (rows, source.gaps().to_vec(), source.header().clone(), source.statistics().unwrap())
        });
        sending.header();
        for (heap, samples) in sent.chunks_exact(times * channels).enumerate() {
            sending.data((heap * times) as u64, 0, samples, |part| lost[heap][part]);
        }
        sending.stop((heaps * times - padding) as u64);
        let (rows, gaps, found, statistics) = reader.join().unwrap();
        let expected = FilterbankHeader { path: found.path.clone(), ..header };
        assert_eq!(found, expected);
        assert_eq!(rows.len(), (heaps * times - padding) * channels);
        let mut expected: Vec<Gap> = Vec::new();
        for (heap, parts) in lost.iter().enumerate() {
            let samples = heap * times * channels..((heap + 1) * times * channels).min(rows.len());
            if !parts.contains(&true) {
                let is_same = rows[samples.clone()] == sent[samples];
                assert!(is_same, "heap {heap} of {channels} x {times}, {gaps:?}: {statistics:?}");
                continue;
            }
            let end = (heap + 1) * times - if heap + 1 == heaps { padding } else { 0 };
            let start = heap * times;
            let gap = Gap { start_time: start as u64, times: (end - start) as u64 };
            match expected.last_mut() {
                Some(last) if last.start_time + last.times == gap.start_time => {
                    last.times += gap.times
                }
                _ => expected.push(gap),
            }
        }
        assert_eq!(gaps, expected);
        let dropped = lost.iter().flatten().filter(|lost| **lost).count();
        assert_eq!(statistics.sum(|counts| counts.received) as usize, heaps * packets - dropped);
        let blocks = lost.iter().filter(|parts| parts.contains(&true)).count();
        assert_eq!(statistics.sum(|counts| counts.missing) as usize, blocks);
        assert_eq!((statistics.dropped, statistics.without_header), (0, 0));
    }
}

#[test]
fn another_header_begins_another_observation_and_time_counts_from_the_header() {
    let (live, port) = live();
    let header = spectra(64);
    let later = FilterbankHeader { tstart_mjd: header.tstart_mjd + 1.0, ..header.clone() };
    let sender = thread::spawn(move || {
        for (header, first) in [(header, 40_u64), (later, 0)] {
            let stream = Stream::with_times(Content::Spectra(header), 8).unwrap();
            let mut sending = Sending::new(stream, port);
            for heap in 0..20 {
                // The header is repeated.
                if heap % 5 == 0 {
                    sending.header();
                }
                sending.data(first + 8 * heap, 0, &[heap as u8; 8 * 64], |_| false);
            }
        }
        let stream = Stream::with_times(Content::Spectra(spectra(64)), 8).unwrap();
        Sending::new(stream, port).stop(160);
    });
    for (start, times) in [(60_000.25 + 0.04 / 86_400.0, 160), (60_001.25, 160)] {
        let mut source = next_spectra(&live);
        assert_eq!(source.header().tstart_mjd, start);
        let rows = read_all(&mut source, 50);
        assert_eq!(rows.len(), times * 64);
        assert!(rows.chunks_exact(8 * 64).enumerate().all(|(heap, rows)| rows[5] == heap as u8));
        assert!(source.gaps().is_empty());
    }
    sender.join().unwrap();
}

#[test]
fn voltages_return_as_they_were_sent_and_lost_ones_are_zeros() {
    let mut random = Random::new(5);
    let header = voltages();
    let (times, heaps) = (32, 60);
    let mut block = header.block(times * heaps);
    block.rows_mut().for_each(|row| row.copy_from_slice(&bytes(&mut random, row.len())));
    block.set_times(times * heaps).unwrap();
    let stream = Stream::with_times(Content::Voltages(header.clone()), times).unwrap();
    let (live, port) = live();
    // The last heaps are lost of all antennas.
    let lost: Vec<Vec<bool>> = (0..heaps)
        .map(|heap| {
            (0..3).map(|_| heap + 3 >= heaps || heap > 0 && random.uniform() < 0.2).collect()
        })
        .collect();
    let mut sending = Sending::new(stream.clone(), port);
    let reader = thread::spawn(move || {
        let mut source = next_voltages(&live);
        let (mut all, mut gulp) =
            (vec![Vec::new(); source.header().streams()], source.header().block(50));
        let (mut lost, mut time): (Vec<Flag>, u64) = (Vec::new(), 0);
        loop {
            let read = source.read(&mut gulp).unwrap();
            let absolute = |flag: &Flag| Flag { start: time + flag.start, ..flag.clone() };
            lost.extend(gulp.flags().iter().map(absolute));
            time += read as u64;
            for (stream, all) in all.iter_mut().enumerate() {
                all.extend_from_slice(&gulp.voltages().row(stream)[..2 * read]);
            }
            if read == 0 {
                return (all, lost, source.header().clone());
            }
        }
    });
    sending.header();
    let mut blocks = vec![0; stream.sources() * stream.block_bytes()];
    for (heap, lost) in lost.iter().enumerate() {
        stream.pack(block.voltages(), heap * times, &mut blocks).unwrap();
        for (antenna, samples) in blocks.chunks_exact(stream.block_bytes()).enumerate() {
            sending.data((heap * times) as u64, antenna, samples, |_| lost[antenna]);
        }
    }
    sending.stop((heaps * times) as u64);
    let (all, flags, found) = reader.join().unwrap();
    let expected = VoltageHeader { path: found.path.clone(), format: found.format, ..header };
    assert_eq!(found, expected);
    for (stream, row) in all.iter().enumerate() {
        assert_eq!(row.len(), 2 * times * heaps);
        for (heap, samples) in row.chunks_exact(2 * times).enumerate() {
            let is_lost = lost[heap][stream / 8];
            let sent = &block.voltages().row(stream)[2 * times * heap..][..2 * times];
            assert!(if is_lost { samples.iter().all(|byte| *byte == 0) } else { samples == sent });
        }
    }
    let count = |antenna: usize| lost.iter().filter(|heap| heap[antenna]).count() * times;
    for antenna in 0..3 {
        let own = |flag: &&Flag| flag.streams.contains(&(8 * antenna));
        let flagged: u64 = flags.iter().filter(own).map(|flag| flag.times).sum();
        assert_eq!(flagged as usize, count(antenna));
    }
}

#[test]
fn a_request_to_stop_ends_every_wait() {
    let (live, port) = live();
    let stop = Arc::new(AtomicBool::new(true));
    let asked = Arc::clone(&stop);
    let waits = move || !asked.load(Ordering::SeqCst);
    assert!(live.next(Box::new(waits.clone())).unwrap_err().is_stop());
    stop.store(false, Ordering::SeqCst);
    let header = spectra(64);
    let sender = thread::spawn(move || {
        let mut sending =
            Sending::new(Stream::with_times(Content::Spectra(header), 8).unwrap(), port);
        sending.header();
        // The window keeps the latest heaps until others follow.
        (0..1000).for_each(|heap| sending.data(8 * heap, 0, &[1; 512], |_| false));
    });
    let Observation::Spectra(mut source) = live.next(Box::new(waits)).unwrap() else { panic!() };
    let mut rows = vec![0; 64 * 4000];
    assert_eq!(source.read(&mut rows).unwrap(), 4000);
    sender.join().unwrap();
    stop.store(true, Ordering::SeqCst);
    let end = (0..9).find_map(|_| source.read(&mut rows).err());
    assert!(end.expect("an end after the rows in hand").is_stop());
    // The address is in use while its observation is.
    assert!(live.next(Box::new(|| true)).is_err());
    drop(source);
    assert!(live.next(Box::new(|| false)).unwrap_err().is_stop());
}

#[test]
fn a_ring_gives_what_was_written() {
    let mut options = ring::Options::default();
    (options.blocks, options.block_bytes) = (4, 1000);
    let first = std::process::id() % 0x7000 * 2;
    let free = |at: u32| {
        let number = 0x2e0a_0000 + (first + 2 * at) % 0xe000 + 2;
        ring::create(Key::new(number).unwrap(), &options).ok().map(|()| number)
    };
    let number = (0..100).find_map(free).expect("a free key");
    let key = Key::new(number).unwrap();
    let mut random = Random::new(9);
    let header = spectra(64);
    let sent = bytes(&mut random, 64 * 501 + 17);
    let text = Content::Spectra(header.clone()).text().unwrap();
    let own = sent.clone();
    let writer = thread::spawn(move || {
        let mut writer = ring::Writer::attach(key, LONG).unwrap();
        for _ in 0..2 {
            assert!(writer.begin(&text, LONG).unwrap());
            let mut done = 0;
            while done < own.len() {
                done += writer.write(&own[done..], LONG).unwrap();
            }
            assert!(writer.end(LONG).unwrap());
        }
    });
    let target: Target = format!("dada:{number:x}").parse().unwrap();
    let live = Live::open(&target, &VoltageOptions::default(), 1).unwrap();
    for _ in 0..2 {
        let mut source = next_spectra(&live);
        let expected = FilterbankHeader { path: source.header().path.clone(), ..header.clone() };
        assert_eq!(*source.header(), expected);
        assert_eq!(read_all(&mut source, 77), sent[..64 * 501]);
        assert!(source.cut().is_some_and(|cut| cut.contains("17 bytes")));
    }
    writer.join().unwrap();
    drop(live);
    ring::destroy(key).unwrap();
}
