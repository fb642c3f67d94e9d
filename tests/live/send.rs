//! Recordings sent as SPEAD heaps and through rings: what is received is what was sent, apart from what the sender says it
//! lost.

use std::path::Path;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use sidereal::io::voltages::{VoltageOptions, dada};
use sidereal::live::header::Content;
use sidereal::live::heaps::Heaps;
use sidereal::live::impair;
use sidereal::live::ring::{self, Key, Reader, Received, Writer};
use sidereal::live::send::{
    Lost, Monitor, Options, Recording, Summary, send, send_packets, send_transfers,
};
use sidereal::live::socket::{Options as SocketOptions, Receiver};
use sidereal::live::spead::{Packet, id};
use sidereal::live::stream::{self, Stream};
use sidereal::live::target::Target;
use sidereal::live::window::{Options as Sizes, Ready, Window};
use sidereal::{Error, Result};

use crate::memory::{Spectra, Streams};
use crate::skip::skip;

/// Listener that keeps what it hears and stops at a number of samples or calls.
struct Listener {
    lost: Vec<Lost>,
    sent: u64,
    waits: Vec<String>,
    stop_at: u64,
}

impl Listener {
    fn new() -> Self {
        Self { lost: Vec::new(), sent: 0, waits: Vec::new(), stop_at: u64::MAX }
    }
}

impl Monitor for Listener {
    fn stops(&mut self) -> bool {
        self.sent >= self.stop_at || !self.waits.is_empty()
    }

    fn sent(&mut self, samples: u64) {
        self.sent = samples;
    }

    fn waits(&mut self, why: &str) {
        self.waits.push(why.to_owned());
    }

    fn lost(&mut self, lost: &Lost) -> Result<()> {
        self.lost.push(*lost);
        Ok(())
    }
}

/// A recording of either kind.
#[derive(Clone)]
enum Made {
    Spectra(Spectra),
    Voltages(Streams),
}

impl Made {
    fn recording(&self) -> Recording {
        match self {
            Self::Spectra(spectra) => spectra.recording(),
            Self::Voltages(streams) => streams.recording(),
        }
    }

    fn times(&self) -> u64 {
        match self {
            Self::Spectra(spectra) => spectra.header.times.unwrap(),
            Self::Voltages(streams) => streams.header.times.unwrap(),
        }
    }

    /// Bytes of all heaps of `repeats` repetitions: axes heap, source, byte; the last heap ends with zeros.
    fn heaps(&self, stream: &Stream, repeats: usize) -> Vec<u8> {
        match self {
            Self::Spectra(spectra) => {
                let mut rows = spectra.rows.repeat(repeats);
                rows.resize(rows.len().next_multiple_of(stream.block_bytes()), 0);
                rows
            }
            Self::Voltages(streams) => {
                let (header, own) = (&streams.header, streams.block.voltages());
                let times = repeats * own.times();
                let whole = times.next_multiple_of(stream.times());
                let mut block = header.block(whole);
                for (number, row) in block.rows_mut().enumerate() {
                    let samples = own.row(number).repeat(repeats);
                    row[..samples.len()].copy_from_slice(&samples);
                }
                block.set_times(whole).unwrap();
                let mut heaps =
                    vec![0; whole / stream.times() * stream.sources() * stream.block_bytes()];
                let each = stream.sources() * stream.block_bytes();
                for (heap, bytes) in heaps.chunks_exact_mut(each).enumerate() {
                    stream.pack(block.voltages(), heap * stream.times(), bytes).unwrap();
                }
                heaps
            }
        }
    }
}

struct Sent {
    packets: Vec<Vec<u8>>,
    summary: Summary,
    listener: Listener,
    /// Times that the recording was opened again.
    reopened: usize,
}

/// Sends a recording into memory.
fn sent(made: &Made, options: &Options, mut listener: Listener) -> Sent {
    let mut packets = Vec::new();
    let mut put = |batch: &[&[u8]]| {
        packets.extend(batch.iter().map(|packet| packet.to_vec()));
        Ok(())
    };
    let mut reopened = 0;
    let mut reopen = || {
        reopened += 1;
        Ok(made.recording())
    };
    let summary =
        send_packets(made.recording(), &mut reopen, options, &mut put, &mut listener).unwrap();
    assert_eq!(summary.packets, packets.len() as u64);
    assert_eq!(summary.bytes, packets.iter().map(|packet| packet.len() as u64).sum::<u64>());
    Sent { packets, summary, listener, reopened }
}

fn parsed(packet: &[u8]) -> Option<Stream> {
    let options = VoltageOptions::default();
    Stream::from_packet(packet, Path::new("memory"), &options).map(|stream| stream.unwrap())
}

#[derive(Clone, Debug)]
struct Case {
    is_voltages: bool,
    channels: usize,
    antennas: usize,
    times: usize,
    seed: u64,
    repeats: usize,
    /// Most bytes that are kept for repetitions.
    kept_bytes: u64,
    heap_times: Option<usize>,
    packet_bytes: usize,
    before_wrap: u64,
    impairments: impair::Options,
}

prop_compose! {
    fn cases()(
        is_voltages in any::<bool>(),
        channels in 1_usize..9,
        antennas in 1_usize..4,
        times in 1_usize..400,
        seed in any::<u64>(),
        repeats in 1_usize..4,
        kept_bytes in prop_oneof![Just(0), Just(1 << 30)],
        heap_times in prop_oneof![Just(None), (1_usize..40).prop_map(Some)],
        packet_words in 1_usize..20,
        before_wrap in prop_oneof![Just(0_u64), 1_u64..200],
        loss in prop_oneof![Just(0.0), 0.0..0.2],
        reorder in prop_oneof![Just(0.0), 0.0..0.5],
        duplicate in prop_oneof![Just(0.0), 0.0..0.3],
    ) -> Case {
        let impairments = impair::Options { loss, reorder, span: 10, duplicate, seed };
        Case {
            is_voltages, channels, antennas, times, seed, repeats, kept_bytes, heap_times,
            packet_bytes: 8 * packet_words, before_wrap, impairments,
        }
    }
}

/// Marks which heaps were lost: axes source, heap.
fn marks(lost: &[Lost], stream: &Stream, heaps: usize) -> Vec<Vec<bool>> {
    let mut marks = vec![vec![false; heaps]; stream.sources()];
    for Lost { start, first, times, source } in lost {
        assert_eq!((*start, first % stream.times() as u64), (0, 0));
        let first = *first as usize / stream.times();
        let count = (*times as usize).div_ceil(stream.times());
        marks[*source][first..first + count].iter_mut().for_each(|mark| {
            assert!(!*mark, "a heap is listed once");
            *mark = true;
        });
    }
    marks
}

/// Checks what is sent of a case; returns the times that the recording was opened again.
fn run(case: &Case) -> usize {
    let made = if case.is_voltages {
        Made::Voltages(Streams::new(case.antennas, case.channels, case.times, case.seed))
    } else {
        Made::Spectra(Spectra::new(case.channels, case.times, 1e-3, case.seed))
    };
    let mut options = Options::default();
    options.rate = None;
    options.repeats = case.repeats as u64;
    options.kept_bytes = case.kept_bytes;
    options.first = ((1 << 48) - case.before_wrap) % (1 << 48);
    options.packet_bytes = case.packet_bytes;
    options.heap_times = case.heap_times;
    options.impairments = case.impairments;
    let Sent { packets, summary, listener, reopened } = sent(&made, &options, Listener::new());

    let stream = parsed(&packets[0]).expect("the header comes first, alone in a packet");
    let total = made.times() * case.repeats as u64;
    assert_eq!((summary.samples, stream.first()), (total, options.first));
    let end = Stream::end_of(packets.last().unwrap()).expect("an end");
    assert_eq!(end, (options.first + total) % (1 << 48));
    if let Some(times) = case.heap_times {
        assert_eq!(stream.times(), times);
    }
    // Each packet with samples is counted.
    let heaps = total.div_ceil(stream.times() as u64) as usize;
    let parts = stream.block_bytes().div_ceil(case.packet_bytes);
    let made_packets = (heaps * stream.sources() * parts) as u64;
    let data = made_packets - summary.dropped + summary.duplicated;
    assert_eq!(summary.packets, data + summary.header_packets);

    // Channels may be in another order in the header that is received.
    let own = Stream::with_times(made.recording().content(), stream.times()).unwrap();
    let expected = made.heaps(&own, case.repeats);
    let marks = marks(&listener.lost, &stream, heaps);
    let lost_heaps = marks.iter().flatten().filter(|mark| **mark).count();
    let lost_packets = summary.dropped as usize;
    assert!(lost_heaps <= lost_packets && lost_packets <= lost_heaps * parts);

    // A receiver finds these.
    let map = stream.item_map();
    let mut format = Heaps::new(map).unwrap();
    let (blocks, chunks) = (16, 4);
    let shape = sidereal::live::packet::Format::shape(&format);
    let mut window = Window::with_buffers(shape, Sizes::new(blocks, chunks), chunks + 3).unwrap();
    let each = stream.sources() * stream.block_bytes();
    let mut found = vec![0; expected.len()];
    let mut seen = vec![vec![false; heaps]; stream.sources()];
    let mut take = |window: &mut Window| {
        while let Some(ready) = window.take() {
            let Ready::Chunk(chunk) = ready else { continue };
            let counter = chunk.first.wrapping_sub(options.first) % (1 << 48);
            let first = counter as usize / stream.times();
            for block in 0..chunk.blocks {
                found[(first + block) * each..][..each]
                    .copy_from_slice(&chunk.bytes()[block * each..][..each]);
                for (source, seen) in seen.iter_mut().enumerate() {
                    seen[first + block] = chunk.is_present(block, source);
                }
            }
            window.recycle(chunk).unwrap();
        }
    };
    for packet in &packets {
        window.receive(&mut format, packet);
        take(&mut window);
    }
    window.finish();
    take(&mut window);
    // A stream begins with the first packet that is seen: delayed ones of earlier heaps are late.
    let late: u64 = window.counts().iter().map(|counts| counts.late).sum();
    for (source, (marks, seen)) in marks.iter().zip(&seen).enumerate() {
        for heap in 0..heaps {
            let is_early = late > 0 && heap < 12;
            assert!(
                seen[heap] != marks[heap] || is_early && !seen[heap],
                "heap {heap} of {source}: seen {}, lost {}",
                seen[heap],
                marks[heap]
            );
            let place = heap * each + source * stream.block_bytes()..;
            let place = place.start..place.start + stream.block_bytes();
            if seen[heap] {
                assert_eq!(found[place.clone()], expected[place], "heap {heap} of {source}");
            } else {
                assert!(found[place].iter().all(|byte| *byte == stream.zero_byte()));
            }
        }
    }
    let (received, duplicate) = window
        .counts()
        .iter()
        .fold((0, 0), |sum, counts| (sum.0 + counts.received, sum.1 + counts.duplicate));
    assert_eq!(received + duplicate + late, data);
    if late == 0 {
        assert_eq!((received, duplicate), (made_packets - summary.dropped, summary.duplicated));
    }
    assert_eq!(window.totals().without_samples, summary.header_packets);
    reopened
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// Random recordings of spectra and voltages, lost, delayed and doubled: the receiver has each heap that the sender did
    /// not lose, byte for byte, and each packet is counted once.
    #[test]
    fn what_is_received_is_what_was_sent_and_not_lost(case in cases()) {
        run(&case);
    }
}

/// A recording of whole heaps is read once and then sent from memory; others are read in each repetition.
#[test]
fn repetitions_of_a_short_recording_are_sent_from_memory() {
    let case = |heap_times, kept_bytes, seed| Case {
        is_voltages: true,
        channels: 8,
        antennas: 2,
        times: 100_000,
        seed,
        repeats: 5,
        kept_bytes,
        heap_times: Some(heap_times),
        packet_bytes: 4096,
        before_wrap: 0,
        impairments: impair::Options { loss: 0.01, reorder: 0.1, span: 10, duplicate: 0.0, seed },
    };
    // The samples take more than 1 MiB.
    assert_eq!(run(&case(125, 1 << 30, 1)), 0);
    assert_eq!(run(&case(128, 1 << 30, 2)), 4);
    assert_eq!(run(&case(125, 1 << 20, 3)), 4);
}

#[test]
fn restarts_begin_with_a_later_header_and_number_from_zero() {
    let made = Made::Spectra(Spectra::new(16, 1000, 1e-3, 4));
    let mut options = Options::default();
    (options.rate, options.first) = (None, 77);
    (options.heap_times, options.restart_s) = (Some(8), Some(0.3));
    options.impairments.reorder = 0.5;
    let Sent { packets, summary, .. } = sent(&made, &options, Listener::new());
    assert_eq!((summary.restarts, summary.samples), (3, 1000));
    let places: Vec<usize> =
        (0..packets.len()).filter(|at| parsed(&packets[*at]).is_some()).collect();
    assert_eq!(places.len(), 4);
    for (start, place) in places.iter().enumerate() {
        let stream = parsed(&packets[*place]).unwrap();
        // 0.3 s are 300 samples, 37.5 heaps.
        let earlier = 304 * start as u64;
        let Content::Spectra(header) = stream.content() else { panic!("spectra") };
        let since_s = (header.tstart_mjd - 60_000.25) * 86_400.0;
        assert!((since_s - earlier as f64 * 1e-3).abs() < 2e-6, "{since_s}");
        assert_eq!(stream.first(), if start == 0 { 77 } else { 0 });
        let end = places.get(start + 1).copied().unwrap_or(packets.len());
        let mut times: Vec<u64> = packets[*place..end]
            .iter()
            .filter_map(|packet| Packet::parse(packet).unwrap().value(stream::TIME_ID))
            .collect();
        times.sort_unstable();
        let count = (1000 - earlier).min(304) / 8;
        let expected: Vec<u64> = (0..count).map(|heap| stream.first() + heap * 8).collect();
        assert_eq!(times, expected);
    }
    let stops = packets.iter().filter(|packet| Packet::parse(packet).unwrap().control().is_some());
    assert_eq!(stops.count(), 1, "a restart is no end");
    assert_eq!(Stream::end_of(packets.last().unwrap()), Some(1000 - 3 * 304));
}

#[test]
fn descriptors_follow_the_header_and_heaps_have_numbers_of_their_own() {
    let made = Made::Voltages(Streams::new(2, 3, 100, 8));
    let mut options = Options::default();
    options.rate = None;
    let Sent { packets, .. } = sent(&made, &options, Listener::new());
    let described = Packet::parse(&packets[1]).unwrap();
    let length = described.heap_bytes.unwrap();
    assert_eq!(described.payload.len() as u64, length);
    assert_eq!(described.places(id::DESCRIPTOR, length).count(), 5);
    let mut heaps: Vec<u64> =
        packets.iter().map(|packet| Packet::parse(packet).unwrap().heap).collect();
    heaps.dedup();
    assert_eq!(heaps, (1..=heaps.len() as u64).collect::<Vec<_>>());
}

#[test]
fn a_stopped_sender_ends_its_stream() {
    let made = Made::Spectra(Spectra::new(64, 500, 1e-3, 2));
    let mut options = Options::default();
    (options.rate, options.repeats) = (None, 0);
    let listener = Listener { stop_at: 100_000, ..Listener::new() };
    let Sent { packets, summary, .. } = sent(&made, &options, listener);
    assert!(summary.is_stopped && summary.samples >= 100_000);
    assert_eq!(Stream::end_of(packets.last().unwrap()), Some(summary.samples));
}

#[test]
fn a_schedule_is_kept_and_headers_return() {
    let made = Made::Spectra(Spectra::new(64, 300, 1e-3, 2));
    let mut options = Options::default();
    options.rate = Some(0.2);
    let begin = Instant::now();
    let Sent { packets, summary, .. } = sent(&made, &options, Listener::new());
    // The last sample is due after 1.5 s; a loaded machine may take longer.
    assert!(begin.elapsed() >= Duration::from_millis(1500) && summary.elapsed_s >= 1.5);
    let headers = packets.iter().filter(|packet| parsed(packet).is_some()).count();
    assert!(headers >= 2, "{headers} headers");
    assert_eq!(summary.header_packets, 2 * headers as u64 + 1);
}

#[test]
fn a_stream_reaches_a_socket() {
    let options = SocketOptions::new("127.0.0.1:0".parse().unwrap());
    let mut receiver = match Receiver::new(&options) {
        Ok(receiver) => receiver,
        Err(Error::Unavailable { what, why }) => return skip("sockets", &format!("{what}: {why}")),
        Err(error) => panic!("{error}"),
    };
    let target: Target = format!("spead://127.0.0.1:{}", receiver.port().unwrap()).parse().unwrap();
    let made = Made::Spectra(Spectra::new(100, 700, 1e-3, 3));
    let mut options = Options::default();
    options.rate = None;
    let mut reopen = || Ok(made.recording());
    let mut listener = Listener::new();
    let summary = send(made.recording(), &mut reopen, &target, &options, &mut listener).unwrap();
    let mut received = Vec::new();
    while received.len() < summary.packets as usize {
        let count = receiver.receive(Duration::from_secs(2)).unwrap();
        assert!(count > 0, "{} of {} packets", received.len(), summary.packets);
        received.extend((0..count).map(|index| receiver.packet(index).to_vec()));
    }
    assert_eq!(received, sent(&made, &options, Listener::new()).packets);
}

#[test]
fn impossible_options_are_named() {
    let made = Made::Spectra(Spectra::new(8, 10, 1e-3, 3));
    let with = |change: &dyn Fn(&mut Options)| {
        let mut options = Options::default();
        change(&mut options);
        let mut reopen = || Ok(made.recording());
        let mut put = |_: &[&[u8]]| Ok(());
        send_packets(made.recording(), &mut reopen, &options, &mut put, &mut Listener::new())
            .unwrap_err()
            .to_string()
    };
    for (change, name) in [
        (&(|o: &mut Options| o.rate = Some(0.0)) as &dyn Fn(&mut Options), "send.rate"),
        (&|o| o.rate = Some(f64::NAN), "send.rate"),
        (&|o| o.restart_s = Some(-1.0), "send.restart_s"),
        (&|o| o.first = 1 << 48, "send.first"),
        (&|o| o.packet_bytes = 12, "payload_bytes"),
        (&|o| o.heap_times = Some(0), "samples per heap"),
        (&|o| o.impairments.loss = 2.0, "impair.loss"),
    ] {
        let error = with(change);
        assert!(error.contains(name), "{name}: {error}");
    }
}

/// A ring with a key of its own, removed at the end.
struct Ring {
    key: Key,
}

impl Ring {
    fn new(blocks: usize, block_bytes: usize) -> Self {
        let options = ring::Options::new(blocks, block_bytes);
        let first = std::process::id() % 0x7000 * 2;
        let keys = (0..0x7000).map(|at| 0x3d0a_0000 + (first + 2 * at) % 0xe000 + 2);
        let free = |number: &u32| match ring::create(Key::new(*number).unwrap(), &options) {
            Ok(()) => true,
            Err(Error::Parameter { name: "ring.key", .. }) => false,
            Err(error) => panic!("{error}"),
        };
        Self { key: Key::new(keys.into_iter().find(free).expect("a free key")).unwrap() }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        let _ = ring::destroy(self.key);
    }
}

/// Transfers of a ring: each header, and its bytes.
fn transfers(mut reader: Reader, count: usize) -> Vec<(Content, Vec<u8>)> {
    let limit = Duration::from_secs(60);
    let options = VoltageOptions::default();
    let mut all = Vec::new();
    for _ in 0..count {
        let fields = reader.header(limit).unwrap().expect("a header");
        let content = Content::new(&fields, Path::new("memory"), &options).unwrap();
        let (mut bytes, mut part) = (Vec::new(), vec![0; 5000]);
        loop {
            match reader.read(&mut part, limit).unwrap() {
                Received::Bytes(count) => bytes.extend(&part[..count]),
                Received::End => break,
                other => panic!("{other:?}"),
            }
        }
        all.push((content, bytes));
    }
    all
}

/// Sends through a ring that another thread reads.
fn through_ring(
    made: &Made,
    options: &Options,
    count: usize,
) -> (Summary, Vec<(Content, Vec<u8>)>) {
    let ring = Ring::new(3, 4096);
    let limit = Duration::from_secs(10);
    let reader = Reader::attach(ring.key, limit).unwrap();
    let reading = std::thread::spawn(move || transfers(reader, count));
    let mut writer = Writer::attach(ring.key, limit).unwrap();
    let mut reopen = || Ok(made.recording());
    let mut listener = Listener::new();
    let summary =
        send_transfers(made.recording(), &mut reopen, options, &mut writer, &mut listener).unwrap();
    (summary, reading.join().unwrap())
}

#[test]
fn spectra_pass_a_ring_as_rows() {
    let spectra = Spectra::new(24, 1000, 1e-3, 11);
    let mut options = Options::default();
    (options.rate, options.repeats, options.restart_s) = (Some(50.0), 2, Some(1.5));
    let made = Made::Spectra(spectra.clone());
    let (summary, received) = through_ring(&made, &options, 2);
    assert_eq!((summary.samples, summary.restarts, summary.bytes), (2000, 1, 48_000));
    let rows = spectra.rows.repeat(2);
    for ((content, bytes), (offset_s, expected)) in
        received.iter().zip([(0.0, &rows[..1500 * 24]), (1.5, &rows[1500 * 24..])])
    {
        let Content::Spectra(header) = content else { panic!("{content:?}") };
        let since_s = (header.tstart_mjd - spectra.header.tstart_mjd) * 86_400.0;
        assert!((since_s - offset_s).abs() < 2e-6, "{since_s}");
        assert_eq!(header.band, spectra.header.band);
        assert_eq!(bytes, expected);
    }
}

#[test]
fn voltages_pass_a_ring_in_the_order_of_files() {
    let home = tempfile::tempdir().unwrap();
    for (antennas, seed) in [(1, 20), (1, 21), (3, 22), (3, 23)] {
        let streams = Streams::new(antennas, 4, 3000, seed);
        let mut options = Options::default();
        options.rate = None;
        let (summary, received) = through_ring(&Made::Voltages(streams.clone()), &options, 1);
        assert_eq!(summary.samples, 3000);
        let path = home.path().join(format!("{seed}.dada"));
        let mut writer = dada::Writer::create(&path, &streams.header).unwrap();
        writer.write(streams.block.voltages()).unwrap();
        writer.finish().unwrap();
        assert_eq!(received[0].1, std::fs::read(&path).unwrap()[4096..]);
        let text = streams.recording().content().text().unwrap();
        let options = VoltageOptions::default();
        let header = Content::parse(&text, Path::new("memory"), &options).unwrap();
        assert_eq!(received[0].0, header);
    }
}

#[test]
fn a_full_ring_is_named_and_left() {
    let ring = Ring::new(2, 100);
    let mut writer = Writer::attach(ring.key, Duration::from_secs(10)).unwrap();
    let made = Made::Spectra(Spectra::new(50, 100, 1e-3, 12));
    let mut options = Options::default();
    options.rate = None;
    let mut listener = Listener::new();
    let mut reopen = || Ok(made.recording());
    let summary =
        send_transfers(made.recording(), &mut reopen, &options, &mut writer, &mut listener)
            .unwrap();
    assert!(summary.is_stopped);
    assert!(listener.waits[0].contains("no process is attached"), "{:?}", listener.waits);
    options.impairments.loss = 0.1;
    let refused =
        send_transfers(made.recording(), &mut reopen, &options, &mut writer, &mut listener);
    assert!(refused.unwrap_err().to_string().contains("packets"));
}
