//! Recordings sent as packets with a fixed header: what is received is what was sent, apart from what the sender says it lost.

use std::collections::BTreeSet;
use std::thread;
use std::time::Duration;

use proptest::prelude::*;
use sidereal::Result;
use sidereal::io::voltages::VoltageHeader;
use sidereal::live::declared::{Axis, Declaration, Declared, Extent};
use sidereal::live::description::{Description, Packets};
use sidereal::live::header::Content;
use sidereal::live::impair;
use sidereal::live::packet::{Format, Shape, Values};
use sidereal::live::send::{Options, Recording, Summary, send_described};
use sidereal::live::window::{Counts, Options as Sizes, Ready, Window};
use sidereal::units::Epoch;
use sidereal::voltage::VoltageEncoding;

use crate::described::{self, SYNC, byte, cases, open, voltages};
use crate::frames::Listener;
use crate::memory::{Spectra, Streams};

/// Block of a source, counted from the start of the recording.
type Block = (u64, usize);

/// A recording and its samples in the order of the packets.
enum Made {
    Voltages {
        streams: Box<Streams>,
        /// Stream and time of each sample of a block of all sources.
        places: Vec<[usize; 2]>,
    },
    /// Groups of channels.
    Spectra(Box<Spectra>),
}

impl Made {
    fn recording(&self) -> Recording {
        match self {
            Self::Voltages { streams, .. } => streams.recording(),
            Self::Spectra(spectra) => spectra.recording(),
        }
    }

    /// Returns the bytes of a block of a source of `times` samples; zeros after the end of the recording.
    fn payload(&self, block: u64, source: usize, times: usize, shape: &Shape) -> Vec<u8> {
        let first = block as usize * times;
        match self {
            Self::Voltages { streams, places } => {
                let bytes = streams.header.encoding.sample_bits() / 8;
                let own = streams.block.voltages();
                let each = places.len() / shape.sources;
                let sample = |[stream, time]: &[usize; 2]| match first + time {
                    time if time < own.times() => {
                        own.row(*stream)[time * bytes..][..bytes].to_vec()
                    }
                    _ => vec![0; bytes],
                };
                places[source * each..][..each].iter().flat_map(sample).collect()
            }
            Self::Spectra(spectra) => {
                let channels = spectra.header.channels();
                let group = channels / shape.sources;
                let row = |time: usize| {
                    let own = (first + time) * channels + source * group;
                    match spectra.rows.get(own..own + group) {
                        Some(row) => row.to_vec(),
                        None => vec![0; group],
                    }
                };
                (0..times).flat_map(row).collect()
            }
        }
    }
}

/// Makes the recording of a case: samples as [`byte`] gives them.
fn streams(case: &described::Case, times: u64, start: Epoch) -> Streams {
    let mut made = Streams::new(1, 1, 1, 0);
    made.header = VoltageHeader { start, times: Some(times), ..case.header.clone() };
    made.block = made.header.block(times as usize);
    let bytes = made.header.encoding.sample_bits() / 8;
    for (stream, row) in made.block.rows_mut().enumerate() {
        for (at, to) in row.iter_mut().enumerate() {
            *to = byte(stream, (at / bytes) as u64, at % bytes);
        }
    }
    made.block.set_times(times as usize).unwrap();
    made
}

/// Sends a recording of `total` samples in blocks of `times`; returns the summary, and the blocks that were lost. Their samples
/// are those that the sender lists.
fn sent(
    made: &Made,
    description: &Description,
    options: &Options,
    [total, times]: [u64; 2],
    put: &mut dyn FnMut(&[&[u8]]) -> Result<()>,
) -> (Summary, BTreeSet<Block>) {
    let mut reopen = || Ok(made.recording());
    let mut listener = Listener::default();
    let summary =
        send_described(made.recording(), &mut reopen, description, options, put, &mut listener)
            .unwrap();
    let mut lost = BTreeSet::new();
    for part in &listener.0 {
        let end = part.first + part.times;
        assert_eq!((part.start, part.first % times), (0, 0));
        assert!(end == total || end < total && end.is_multiple_of(times), "{part:?}");
        lost.extend((part.first / times..end.div_ceil(times)).map(|block| (block, part.source)));
    }
    let samples: u64 = lost.iter().map(|(block, _)| times.min(total - block * times)).sum();
    assert_eq!(samples, listener.0.iter().map(|part| part.times).sum::<u64>());
    assert_eq!((summary.samples, summary.dropped), (total, lost.len() as u64));
    (summary, lost)
}

/// Returns the counter's distance from `first` in blocks.
fn block_of(shape: &Shape, first: u64, counter: u64) -> u64 {
    let units = match shape.period {
        Some(period) => (counter % period + period - first) % period,
        None => counter - first,
    };
    assert_eq!(units % shape.step, 0);
    units / shape.step
}

/// Groups of channels of spectra in packets of 4 rows.
fn spectra(total: u64, seed: u64) -> (Made, Description) {
    let mut declaration = Declaration {
        axes: vec![Extent::new(Axis::Time, 4), Extent::new(Axis::Channel, 8)],
        encoding: VoltageEncoding::Real8,
        step: 4,
        constants: Vec::new(),
        ..Declaration::chips(1, 1, Values { first: 0, step: 8, count: 3 })
    };
    declaration.sources.remove(0);
    let mut axes = vec![Extent::new(Axis::Channel, 3)];
    axes.extend(&declaration.axes);
    let made = Spectra::new(24, total as usize, 1e-3, seed);
    let packets = Packets::Declared(Declared::new(declaration).unwrap());
    let content = Content::Spectra(made.header.clone());
    (Made::Spectra(Box::new(made)), Description::new(content, packets, &axes).unwrap())
}

#[derive(Clone, Debug)]
struct Case {
    /// SNAP, SNAP2, CHIPS with a counter of 20 bits, GReX, groups of spectra.
    kind: usize,
    /// Blocks of which the last has fewer samples.
    blocks: u64,
    last: u64,
    /// Blocks before the counter wraps, or has no more values.
    before: u64,
    impairments: impair::Options,
}

prop_compose! {
    fn impaired()(
        loss in prop_oneof![Just(0.0), 0.0..0.3],
        reorder in prop_oneof![Just(0.0), 0.0..0.5],
        duplicate in prop_oneof![Just(0.0), 0.0..0.3],
        seed in any::<u64>(),
    ) -> impair::Options {
        impair::Options { loss, reorder, span: 10, duplicate, seed }
    }
}

prop_compose! {
    fn sendings()(
        kind in 0_usize..5,
        blocks in 1_u64..60,
        last in any::<u64>(),
        before in 1_u64..100,
        impairments in impaired(),
    ) -> Case {
        Case { kind, blocks, last, before, impairments }
    }
}

fn run(case: &Case) {
    let voltages = cases().into_iter().nth(case.kind).filter(|_| case.kind < 4);
    let times = voltages.as_ref().map_or(4, described::Case::times);
    let total = (case.blocks - 1) * times + 1 + case.last % times;
    let (made, description) = match &voltages {
        Some(own) => {
            let streams = Box::new(streams(own, total, SYNC));
            (Made::Voltages { streams, places: own.places() }, own.description())
        }
        None => spectra(total, case.impairments.seed),
    };
    let mut format = description.packets().clone();
    let shape = format.shape();
    let mut options = Options::default();
    options.rate = None;
    options.impairments = case.impairments;
    options.first = match shape.period {
        Some(period) => period - case.before * shape.step,
        None => case.before * shape.step,
    };
    let mut packets: Vec<Vec<u8>> = Vec::new();
    let mut put = |batch: &[&[u8]]| {
        packets.extend(batch.iter().map(|packet| packet.to_vec()));
        Ok(())
    };
    let (summary, lost) = sent(&made, &description, &options, [total, times], &mut put);
    let all = case.blocks * shape.sources as u64;
    assert_eq!(summary.packets, all - summary.dropped + summary.duplicated);
    assert_eq!((summary.packets, summary.header_packets), (packets.len() as u64, 0));

    // A receiver begins with the first packet that comes: delayed ones of earlier blocks are late.
    let arrived: Vec<u64> = packets
        .iter()
        .map(|packet| format.part(packet).unwrap().unwrap().counter)
        .map(|counter| block_of(&shape, options.first, counter))
        .collect();
    let Some(begin) = arrived.first().copied() else { return };
    let end = arrived.iter().max().unwrap() + 1;
    let mut window = Window::with_buffers(shape, Sizes::new(8, 4), 7).unwrap();
    let mut next = begin;
    let mut listed = BTreeSet::new();
    let mut take = |window: &mut Window| {
        while let Some(ready) = window.take() {
            let Ready::Chunk(chunk) = ready else { panic!("{ready:?}") };
            assert_eq!(block_of(&shape, options.first, chunk.first), next);
            for missing in chunk.lost() {
                let first = block_of(&shape, options.first, missing.first);
                listed.extend((first..first + missing.blocks).map(|block| (block, missing.source)));
            }
            let cells = chunk.bytes().chunks_exact(shape.block_bytes);
            for (cell, bytes) in cells.take(chunk.blocks * shape.sources).enumerate() {
                let place = (next + (cell / shape.sources) as u64, cell % shape.sources);
                if lost.contains(&place) {
                    assert!(bytes.iter().all(|byte| *byte == shape.zero_byte), "{place:?}");
                } else {
                    let expected = made.payload(place.0, place.1, times as usize, &shape);
                    assert!(bytes == expected, "{place:?} of {case:?}");
                }
            }
            next += chunk.blocks as u64;
            window.recycle(chunk).unwrap();
        }
    };
    for packet in &packets {
        window.receive(&mut format, packet);
        take(&mut window);
    }
    window.finish();
    take(&mut window);
    assert_eq!(next, end);
    let inside: BTreeSet<Block> =
        lost.iter().copied().filter(|(block, _)| (begin..end).contains(block)).collect();
    assert_eq!(listed, inside);
    let mut sum = Counts::default();
    window.counts().iter().for_each(|counts| sum += *counts);
    assert_eq!(sum.missing, inside.len() as u64);
    let late = arrived.iter().filter(|block| **block < begin).count() as u64;
    let received = (end - begin) * shape.sources as u64 - sum.missing;
    assert_eq!((sum.received, sum.late), (received, late));
    assert_eq!(sum.duplicate, summary.packets - late - received);
    assert_eq!(sum.wrong_length + sum.invalid + sum.ahead + sum.overrun + sum.incomplete, 0);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 120, failure_persistence: None, ..ProptestConfig::default() })]

    /// Random recordings in packets that are lost, delayed and doubled: a receiver has each block that the sender did not lose,
    /// byte for byte, lists the others, and counts each packet once.
    #[test]
    fn packets_have_the_samples_sent_and_not_lost(case in sendings()) {
        run(&case);
    }
}

/// Sends the voltages of a case to a socket, impaired, and checks what is read from there.
fn pass(case: &described::Case, impairments: impair::Options) {
    let description = case.description();
    let (live, mut senders) = open(&description);
    let mut format = case.packets.clone();
    let shape = format.shape();
    // The counter follows from the time, 100 blocks after it was 0.
    let first = 100 * shape.step;
    let (times, total) = (case.times(), case.blocks * case.times());
    let rate_s = case.header.tsamp_s * times as f64;
    let streams = Box::new(streams(case, total, SYNC.plus_s(100.0 * rate_s)));
    let made = Made::Voltages { streams, places: case.places() };
    let mut options = Options::default();
    options.rate = None;
    options.impairments = impairments;
    thread::scope(|scope| {
        let sending = scope.spawn(|| {
            let (mut arrived, mut bytes) = (Vec::new(), 0);
            let mut put = |batch: &[&[u8]]| {
                for packet in batch {
                    let part = format.part(packet).unwrap().unwrap();
                    arrived.push(block_of(&shape, first, part.counter));
                    bytes += packet.len();
                    senders[0].send(&[packet])?;
                    // A loaded machine must not lose packets in the kernel's buffer.
                    if bytes > 64 << 10 {
                        bytes = 0;
                        thread::sleep(Duration::from_millis(2));
                    }
                }
                Ok(())
            };
            let (_, lost) = sent(&made, &description, &options, [total, times], &mut put);
            (arrived, lost)
        });
        let source = voltages(&live);
        let (arrived, lost) = sending.join().unwrap();
        let blocks = arrived[0]..arrived.iter().max().unwrap() + 1;
        let counter = first + blocks.start * shape.step;
        let inside = lost.iter().filter(|(block, _)| blocks.contains(block)).count() as u64;
        let late = arrived.iter().filter(|block| **block < blocks.start).count() as u64;
        case.check(source, counter, blocks, &lost);
        let found = live.shared_statistics().unwrap().lock().unwrap().clone();
        assert_eq!(found.dropped, 0);
        assert_eq!(found.sum(|counts| counts.missing), inside);
        assert_eq!(found.sum(|counts| counts.late), late);
        let copies = arrived.len() as u64 - late;
        assert_eq!(found.sum(|counts| counts.received + counts.duplicate), copies);
    });
}

#[test]
fn what_a_socket_loses_is_flagged_to_the_sample() {
    let declared = |case: &described::Case| matches!(case.packets, Packets::Declared(_));
    thread::scope(|scope| {
        for (number, case) in cases().into_iter().filter(declared).enumerate() {
            let seed = number as u64 + 3;
            let impairments =
                impair::Options { loss: 0.1, reorder: 0.2, span: 10, duplicate: 0.1, seed };
            scope.spawn(move || pass(&case, impairments));
        }
    });
}

#[test]
fn recordings_that_packets_cannot_hold_are_refused() {
    let case = cases().remove(0);
    let description = case.description();
    let good = streams(&case, 32, SYNC);
    let with = |change: &dyn Fn(&mut VoltageHeader, &mut Options)| {
        let (mut made, mut options) = (good.clone(), Options::default());
        change(&mut made.header, &mut options);
        let mut reopen = || Ok(made.recording());
        let mut put = |_: &[&[u8]]| panic!("a packet");
        let listener = &mut Listener::default();
        send_described(made.recording(), &mut reopen, &description, &options, &mut put, listener)
            .unwrap_err()
            .to_string()
    };
    for (error, words) in [
        (with(&|_, options| options.heap_times = Some(16)), "send.heap_times"),
        (with(&|header, _| header.antennas = 1), "the packets have 2"),
        (with(&|header, _| header.polarizations = 1), "the packets have 2"),
        (with(&|header, _| header.centres_hz = vec![1e9]), "the packets have 512"),
        (with(&|header, _| header.encoding = VoltageEncoding::Complex8), "Complex4"),
        (with(&|header, _| header.tsamp_s *= 1.01), "the packets have 0.0001 s"),
        (with(&|header, _| header.centres_hz[7] += 1e5), "at its place"),
        (with(&|header, _| header.start = SYNC.plus_s(-10.0)), "first 0"),
    ] {
        assert!(error.contains(words), "{words}: {error}");
    }
    let spectra = Spectra::new(24, 10, 1e-3, 1);
    let mut reopen = || Ok(spectra.recording());
    let mut put = |_: &[&[u8]]| panic!("a packet");
    let (options, listener) = (Options::default(), &mut Listener::default());
    let recording = spectra.recording();
    let error = send_described(recording, &mut reopen, &description, &options, &mut put, listener);
    assert!(error.unwrap_err().to_string().contains("the packets have voltages"));
}
