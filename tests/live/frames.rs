//! Voltages sent as VDIF frames: a file of the frames and a receiver have the samples that were sent, apart from what the sender
//! says it lost.

use std::collections::BTreeSet;
use std::fs;
use std::thread;
use std::time::Duration;

use proptest::prelude::*;
use sidereal::Result;
use sidereal::backend::threads::Threads;
use sidereal::io::voltages::{Flag, VoltageOptions, VoltageSource, open_vdif};
use sidereal::live::impair;
use sidereal::live::packet::Format;
use sidereal::live::send::{Lost, Monitor, Options, Summary, send_frames};
use sidereal::live::socket::Sender;
use sidereal::live::source::{Live, LiveVoltages, Observation};
use sidereal::live::target::Target;
use sidereal::live::vdif::{Frames, Options as FrameOptions, Thread};
use sidereal::live::window::{Counts, Options as Sizes, Window};
use sidereal::units::Epoch;
use sidereal::voltage::{VoltageBlock, VoltageEncoding, voltage};

use crate::memory::Streams;
use crate::random::Random;

/// Encodings that frames hold, and the bits of recordings that were frames.
const ENCODINGS: [(VoltageEncoding, usize); 11] = [
    (VoltageEncoding::Real2, 2),
    (VoltageEncoding::Real4, 4),
    (VoltageEncoding::Real8, 8),
    (VoltageEncoding::RealOffset8, 8),
    (VoltageEncoding::Real16, 16),
    (VoltageEncoding::Real16, 8),
    (VoltageEncoding::Complex4, 4),
    (VoltageEncoding::Complex8, 8),
    (VoltageEncoding::ComplexOffset8, 8),
    (VoltageEncoding::Complex16, 16),
    (VoltageEncoding::Complex16, 8),
];

#[derive(Clone, Copy, Debug)]
struct Case {
    encoding: (VoltageEncoding, usize),
    channels: usize,
    antennas: usize,
    polarizations: usize,
    blocks: usize,
    frame_times: usize,
    numbered: bool,
    start_s: f64,
    rate: f64,
    impairments: impair::Options,
}

/// Listener that keeps the losses.
#[derive(Default)]
pub(crate) struct Listener(pub(crate) Vec<Lost>);

impl Monitor for Listener {
    fn stops(&mut self) -> bool {
        false
    }

    fn lost(&mut self, lost: &Lost) -> Result<()> {
        self.0.push(*lost);
        Ok(())
    }
}

/// Frame of a thread by its number since the start.
type Frame = (u64, usize);

impl Case {
    fn threads(&self) -> usize {
        self.antennas * self.polarizations
    }

    fn recording(&self) -> Streams {
        let mut made = Streams::new(self.antennas, self.channels, 4, self.impairments.seed);
        let (encoding, bits) = self.encoding;
        let header = &mut made.header;
        (header.encoding, header.recorded_bits, header.tsamp_s) = (encoding, bits, 1.0 / self.rate);
        header.polarizations = self.polarizations;
        header.start = Epoch::new(60_000, self.start_s);
        let times = self.blocks * self.frame_times;
        header.times = Some(times as u64);
        made.block = header.block(times);
        let mut random = Random::new(self.impairments.seed);
        for row in made.block.rows_mut() {
            row.iter_mut().for_each(|byte| *byte = random.below(256) as u8);
            if bits == 8 && encoding.bits() == 16 {
                // Frames of 8 bits have odd numbers up to 255.
                for value in row.as_chunks_mut::<2>().0 {
                    *value = (2 * i16::from(value[0]) - 255).to_le_bytes();
                }
            }
        }
        made.block.set_times(times).unwrap();
        made
    }

    fn options(&self) -> Options {
        let mut options = Options::default();
        options.rate = None;
        options.heap_times = Some(self.frame_times);
        options.impairments = self.impairments;
        options
    }

    /// Sends the recording through `send`; returns the summary and the frames that were lost.
    fn send(&self, send: &mut dyn FnMut(&[&[u8]]) -> Result<()>) -> (Summary, BTreeSet<Frame>) {
        let (made, mut listener) = (self.recording(), Listener::default());
        let mut reopen = || Ok(made.recording());
        let (options, numbered) = (self.options(), self.numbered);
        let summary =
            send_frames(made.recording(), &mut reopen, numbered, &options, send, &mut listener)
                .unwrap();
        let times = self.frame_times as u64;
        let frames = listener.0.iter().flat_map(|lost| {
            assert_eq!((lost.start, lost.first % times, lost.times % times), (0, 0, 0));
            (0..lost.times / times).map(move |frame| (lost.first / times + frame, lost.source))
        });
        let frames: BTreeSet<Frame> = frames.collect();
        assert_eq!(frames.len() as u64, summary.dropped);
        (summary, frames)
    }

    /// Checks a source from its frame `first` on: samples, flags, and start.
    fn check(&self, source: &mut dyn VoltageSource, first: u64, lost: &BTreeSet<Frame>) {
        let (made, times) = (self.recording(), self.frame_times);
        let header = source.header().clone();
        assert_eq!(header.streams(), made.header.streams());
        assert_eq!((header.antennas, header.polarizations), (self.antennas, self.polarizations));
        let start =
            Epoch::new(60_000, self.start_s).plus_s((first as usize * times) as f64 / self.rate);
        assert!(header.start.seconds_since(&start).abs() < 1e-7, "{:?} {start:?}", header.start);
        assert!((header.tsamp_s * self.rate - 1.0).abs() < 1e-12);
        let end = (first..self.blocks as u64)
            .rev()
            .find(|frame| (0..self.threads()).any(|thread| !lost.contains(&(*frame, thread))));
        let total = (end.unwrap() + 1 - first) as usize * times;
        let mut block = header.block(total + 4 * times);
        assert_eq!(source.read(&mut block).unwrap(), total);
        let flags = if source.is_live() { block.flags() } else { source.flags() };
        let flagged = marks(flags, header.streams(), total);
        let value = |block: &VoltageBlock<'_>, encoding, stream, time| {
            voltage(block.voltages().row(stream), encoding, time)
        };
        for (stream, flagged) in flagged.iter().enumerate() {
            let antenna = stream / (self.channels * self.polarizations);
            let thread = antenna * self.polarizations + stream % self.polarizations;
            for (time, flagged) in flagged.iter().enumerate() {
                let frame = first + (time / times) as u64;
                let is_lost = lost.contains(&(frame, thread));
                assert_eq!(*flagged, is_lost, "stream {stream}, sample {time}");
                let found = value(&block, header.encoding, stream, time);
                let whole = first as usize * times + time;
                if !is_lost {
                    let sent = value(&made.block, self.encoding.0, stream, whole);
                    assert_eq!(found, sent, "stream {stream}, sample {time}: {self:?}");
                } else if header.encoding != VoltageEncoding::Real2 {
                    assert_eq!((found.re, found.im), (0.0, 0.0));
                }
            }
        }
    }
}

/// Marks flagged samples: axes stream, time.
fn marks(flags: &[Flag], streams: usize, times: usize) -> Vec<Vec<bool>> {
    let mut marks = vec![vec![false; times]; streams];
    for flag in flags {
        for row in &mut marks[flag.streams.clone()] {
            row[flag.start as usize..(flag.start + flag.times) as usize].fill(true);
        }
    }
    marks
}

/// Receives packets through a window; returns the counters of all threads.
fn received(case: &Case, packets: &[Vec<u8>]) -> Counts {
    let polarizations = case.polarizations;
    let thread = |number: usize| Thread {
        station: (1 + number / polarizations) as u16,
        thread: (number % polarizations) as u16,
    };
    let front = if case.numbered { 8 } else { 0 };
    let options = FrameOptions {
        numbered: case.numbered,
        threads: (0..case.threads()).map(thread).collect(),
        payload_bytes: packets[0].len() - 32 - front,
        frames_per_s: (case.rate / case.frame_times as f64) as u32,
        zero_byte: 0,
    };
    let mut format = Frames::new(options).unwrap();
    let mut window = Window::with_buffers(format.shape(), Sizes::new(8, 4), 7).unwrap();
    for packet in packets {
        window.receive(&mut format, packet);
        while let Some(ready) = window.take() {
            if let sidereal::live::window::Ready::Chunk(chunk) = ready {
                window.recycle(chunk).unwrap();
            }
        }
    }
    window.finish();
    let mut sum = Counts::default();
    window.counts().iter().for_each(|counts| sum += *counts);
    sum
}

fn run(case: &Case) {
    let mut packets: Vec<Vec<u8>> = Vec::new();
    let (summary, lost) = case.send(&mut |batch: &[&[u8]]| {
        packets.extend(batch.iter().map(|packet| packet.to_vec()));
        Ok(())
    });
    let made = (case.blocks * case.threads()) as u64;
    assert_eq!(summary.packets, made - summary.dropped + summary.duplicated);
    assert_eq!((summary.packets, summary.header_packets), (packets.len() as u64, 0));
    if lost.len() as u64 == made {
        return;
    }
    if case.numbered {
        let mut numbers: Vec<u64> = packets
            .iter()
            .map(|packet| u64::from_le_bytes(*packet.first_chunk().unwrap()))
            .collect();
        numbers.sort_unstable();
        numbers.dedup();
        let all = (0..made).filter(|number| {
            let threads = case.threads() as u64;
            !lost.contains(&(number / threads, (number % threads) as usize))
        });
        assert_eq!(numbers, all.collect::<Vec<_>>());
    }
    // A file of the frames, each once and in order of time: readers of files take a delayed frame for a damaged one.
    let front = if case.numbered { 8 } else { 0 };
    let mut frames: Vec<&[u8]> = packets.iter().map(|packet| &packet[front..]).collect();
    let word = |frame: &[u8], at: usize| u32::from_le_bytes(*frame[at..].first_chunk().unwrap());
    frames.sort_by_key(|frame| [0, 4, 12].map(|at| word(frame, at)));
    frames.dedup();
    let bytes = frames.concat();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("frames.vdif");
    fs::write(&path, bytes).unwrap();
    let is_there = |frame: u64| (0..case.threads()).any(|thread| !lost.contains(&(frame, thread)));
    let first = (0..case.blocks as u64).find(|frame| is_there(*frame)).unwrap();
    // A thread of which nothing came is unknown to a file.
    let is_heard =
        |thread: usize| (0..case.blocks as u64).any(|frame| !lost.contains(&(frame, thread)));
    if (0..case.threads()).all(is_heard) {
        let options =
            VoltageOptions { sample_rate_hz: Some(case.rate), ..VoltageOptions::default() };
        let mut source = open_vdif(&[path], &options).unwrap();
        case.check(source.as_mut(), first, &lost);
    }
    let counts = received(case, &packets);
    assert_eq!(counts.received + counts.duplicate + counts.late, summary.packets);
    assert_eq!(counts.wrong_length + counts.invalid + counts.ahead + counts.overrun, 0);
    if case.impairments.reorder == 0.0 {
        let end = (first..case.blocks as u64).rev().find(|frame| is_there(*frame)).unwrap();
        let inside = lost.iter().filter(|(frame, _)| (first..=end).contains(frame)).count();
        assert_eq!((counts.missing, counts.late), (inside as u64, 0));
    }
}

prop_compose! {
    fn cases()(
        encoding in prop::sample::select(ENCODINGS.to_vec()),
        channels in prop::sample::select(vec![1_usize, 2, 4, 8]),
        antennas in 1_usize..4,
        polarizations in 1_usize..3,
        blocks in 1_usize..60,
        frame_times in prop::sample::select(vec![32_usize, 64, 160]),
        numbered in any::<bool>(),
        start in prop_oneof![Just(3600.0), Just(86_399.5), Just(17.25)],
        loss in prop_oneof![Just(0.0), 0.0..0.3],
        reorder in prop_oneof![Just(0.0), 0.0..0.5],
        duplicate in prop_oneof![Just(0.0), 0.0..0.3],
        seed in any::<u64>(),
    ) -> Case {
        let impairments = impair::Options { loss, reorder, span: 10, duplicate, seed };
        Case {
            encoding, channels, antennas, polarizations, blocks, frame_times, numbered,
            start_s: start, rate: 64e4, impairments,
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    /// Random recordings in frames that are lost, delayed and doubled: a file of the frames has each sample that the sender did
    /// not lose, the others are flagged, and a receiver counts each packet once and each lost frame.
    #[test]
    fn frames_have_the_samples_sent_and_not_lost(case in cases()) {
        run(&case);
    }
}

/// Opens an address of VDIF on a port of the system's choice.
fn listen(numbered: bool, options: &VoltageOptions) -> (Live, Sender) {
    let mut target: Target = "vdif://127.0.0.1:1".parse().unwrap();
    if numbered {
        target = "vdif://127.0.0.1:1?sequence".parse().unwrap();
    }
    target.port_mut().unwrap().address.set_port(0);
    let live = Live::open(&target, options, 16 << 20).unwrap();
    let address = format!("127.0.0.1:{}", live.port().unwrap());
    (live, Sender::new(address.parse().unwrap(), None).unwrap())
}

fn voltages(live: &Live) -> LiveVoltages {
    match live.next(Box::new(|| true)).unwrap() {
        Observation::Voltages(voltages) => voltages,
        Observation::Spectra(_) => panic!("spectra"),
    }
}

/// Sends a case to an address and checks what is received. Without numbers, the first frames must not be delayed.
fn pass(case: &Case, options: &VoltageOptions) {
    let (live, mut socket) = listen(case.numbered, options);
    let threads = case.threads() as u64;
    thread::scope(|scope| {
        let sending = scope.spawn(|| {
            let (mut sent, mut arrived) = (0, Vec::new());
            let mut send = |batch: &[&[u8]]| {
                sent += batch.len();
                // A loaded machine must not lose packets in the kernel's buffer.
                if sent % 512 < batch.len() {
                    thread::sleep(Duration::from_millis(2));
                }
                if case.numbered {
                    let number =
                        |packet: &&[u8]| u64::from_le_bytes(*packet.first_chunk().unwrap());
                    arrived.extend(batch.iter().map(|packet| number(packet) / threads));
                }
                socket.send(batch)
            };
            let (summary, lost) = case.send(&mut send);
            (summary, lost, arrived)
        });
        let sorting = [1, 2, 5][(case.impairments.seed as usize + case.antennas) % 3];
        let mut source = voltages(&live).with_threads(Threads::new(sorting));
        let (summary, lost, arrived) = sending.join().unwrap();
        // A stream begins with the first frame that comes: delayed ones before it are late.
        let first = arrived.first().copied().unwrap_or(0);
        let is_there =
            |frame: u64| (0..case.threads()).any(|thread| !lost.contains(&(frame, thread)));
        let end = (first..case.blocks as u64).rev().find(|frame| is_there(*frame)).unwrap();
        case.check(&mut source, first, &lost);
        let counters = source.statistics().unwrap();
        assert_eq!((counters.dropped, counters.without_header), (0, 0));
        let missing = lost.iter().filter(|(frame, _)| (first..=end).contains(frame)).count();
        let late = arrived.iter().filter(|frame| **frame < first).count() as u64;
        assert_eq!(counters.sum(|counts| counts.missing), missing as u64);
        assert_eq!(counters.sum(|counts| counts.late), late);
        assert_eq!(
            counters.sum(|counts| counts.received + counts.duplicate),
            summary.packets - late
        );
        assert_eq!(counters.sum(|counts| counts.invalid), 0);
    });
}

/// Impairments of a seed for which the first frames of all threads and the last frame are not lost.
const IMPAIRED: impair::Options =
    impair::Options { loss: 0.05, reorder: 0.0, span: 10, duplicate: 0.1, seed: 5 };

const PLAIN: Case = Case {
    encoding: (VoltageEncoding::Complex8, 8),
    channels: 4,
    antennas: 2,
    polarizations: 2,
    blocks: 600,
    frame_times: 160,
    numbered: true,
    start_s: 86_399.75,
    rate: 64e4,
    impairments: IMPAIRED,
};

#[test]
fn an_address_receives_the_frames_of_an_unknown_stream() {
    let (known, none) = (
        VoltageOptions { sample_rate_hz: Some(64e4), ..VoltageOptions::default() },
        VoltageOptions::default(),
    );
    let reals = Case { encoding: (VoltageEncoding::Real2, 2), channels: 1, ..PLAIN };
    // Its headers state no rate, and it begins in one second and goes on into the third.
    let start_s = 86_399.0 + 75.0 / 101.0;
    let untold =
        Case { rate: 3_232.0, frame_times: 32, blocks: 160, numbered: false, start_s, ..PLAIN };
    let short = Case { blocks: 12, impairments: impair::Options::default(), ..PLAIN };
    for (case, options) in [
        (PLAIN, &none),
        (Case { numbered: false, encoding: (VoltageEncoding::Complex16, 8), ..PLAIN }, &none),
        (Case { polarizations: 1, ..reals }, &known),
        (Case { antennas: 1, ..reals }, &none),
        (untold, &none),
        (short, &none),
    ] {
        pass(&case, options);
    }
}

#[test]
fn what_a_socket_loses_is_flagged_to_the_sample() {
    thread::scope(|scope| {
        for (seed, encoding) in [(8, 0), (9, 2), (10, 5), (11, 6), (12, 10)] {
            let impairments =
                impair::Options { loss: 0.1, reorder: 0.2, span: 10, duplicate: 0.1, seed };
            let (blocks, channels) = (200, if encoding == 0 { 1 } else { 4 });
            let encoding = ENCODINGS[encoding];
            let case = Case { encoding, blocks, channels, impairments, ..PLAIN };
            scope.spawn(move || pass(&case, &VoltageOptions::default()));
        }
    });
}

#[test]
fn recordings_that_frames_cannot_hold_are_refused() {
    let made = PLAIN.recording();
    let with = |change: &dyn Fn(&mut Streams, &mut Options)| {
        let (mut made, mut options) = (made.clone(), PLAIN.options());
        change(&mut made, &mut options);
        let mut reopen = || Ok(made.recording());
        let mut send = |_: &[&[u8]]| panic!("a packet");
        let listener = &mut Listener::default();
        send_frames(made.recording(), &mut reopen, false, &options, &mut send, listener)
            .unwrap_err()
            .to_string()
    };
    for (error, words) in [
        (with(&|_, options| options.first = 7), "numbered by their time"),
        (with(&|made, _| made.header.tsamp_s = 1.0 / 640_000.5), "whole number of samples"),
        (with(&|_, options| options.heap_times = Some(7)), "divides a second"),
        (with(&|_, options| options.packet_bytes = 8), "at most 8 bytes"),
        (with(&|made, _| made.header.encoding = VoltageEncoding::ComplexF32), "up to 16 bits"),
    ] {
        assert!(error.contains(words), "{words}: {error}");
    }
}

#[test]
fn a_restart_continues_the_time_and_numbers_packets_anew() {
    let case =
        Case { antennas: 1, polarizations: 1, impairments: impair::Options::default(), ..PLAIN };
    let (made, mut options) = (case.recording(), case.options());
    options.restart_s = Some(200.0 * 160.0 / 64e4);
    let mut packets: Vec<Vec<u8>> = Vec::new();
    let mut send = |batch: &[&[u8]]| {
        packets.extend(batch.iter().map(|packet| packet.to_vec()));
        Ok(())
    };
    let mut reopen = || Ok(made.recording());
    let listener = &mut Listener::default();
    let summary =
        send_frames(made.recording(), &mut reopen, true, &options, &mut send, listener).unwrap();
    assert_eq!((summary.restarts, packets.len()), (2, 600));
    for (number, packet) in packets.iter().enumerate() {
        let word = |at: usize| u32::from_le_bytes(*packet[at..].first_chunk().unwrap());
        assert_eq!(u64::from(word(0)), number as u64 % 200);
        assert_eq!(word(12) & 0xff_ffff, (3000 + number as u32) % 4000, "frame number");
    }
}
