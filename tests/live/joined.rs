//! Voltages that arrive as several streams, bands or polarizations: they are those of the undivided recording, whatever is lost of a
//! stream and however they are read.

use std::net::SocketAddrV4;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use proptest::prelude::*;
use sidereal::io::Gap;
use sidereal::io::voltages::{Flag, Selection, VoltageHeader, VoltageOptions, VoltageSource};
use sidereal::live::impair;
use sidereal::live::joined::JoinedVoltages;
use sidereal::live::send::{Lost, Monitor, Options, Recording, send_packets};
use sidereal::live::socket::Sender;
use sidereal::live::source::{Live, LiveVoltages, Observation};
use sidereal::live::target::{Port, Target};
use sidereal::units::Epoch;
use sidereal::{Error, Result};

use crate::memory::Streams;
use crate::random::Random;

const LONG: Duration = Duration::from_secs(60);

/// Listener that keeps what was lost, and stops when it is asked to.
#[derive(Default)]
struct Losses {
    lost: Vec<Lost>,
    is_stopped: Arc<AtomicBool>,
}

impl Monitor for Losses {
    fn stops(&mut self) -> bool {
        self.is_stopped.load(Ordering::SeqCst)
    }

    fn sent(&mut self, _: u64) {}

    fn waits(&mut self, _: &str) {}

    fn lost(&mut self, lost: &Lost) -> Result<()> {
        self.lost.push(*lost);
        Ok(())
    }
}

fn live() -> Live {
    // The system chooses the port.
    let target = Target::Spead(Port { address: "127.0.0.1:0".parse().unwrap(), interface: None });
    Live::open(&target, &VoltageOptions::default(), 16 << 20).unwrap()
}

fn next(live: &Live) -> Result<LiveVoltages> {
    let end = Instant::now() + LONG;
    match live.resume(Box::new(move || Instant::now() < end))? {
        Observation::Voltages(voltages) => Ok(voltages),
        Observation::Spectra(_) => panic!("spectra"),
    }
}

fn join(lives: &[Live]) -> Result<JoinedVoltages> {
    JoinedVoltages::open(lives.len(), &mut |number| next(&lives[number]))
}

/// Returns a recording from its sample `begin` on.
fn from(streams: &Streams, begin: usize) -> Streams {
    let mut later = streams.clone();
    let (header, own) = (&mut later.header, streams.block.voltages());
    header.start = header.start.plus_s(begin as f64 * header.tsamp_s);
    header.times = Some((own.times() - begin) as u64);
    later.block = header.block(own.times() - begin);
    for (stream, row) in later.block.rows_mut().enumerate() {
        row.copy_from_slice(&own.row(stream)[2 * begin..]);
    }
    later.block.set_times(own.times() - begin).unwrap();
    later
}

/// Sends a part of a recording to a stream; returns what was lost.
fn send(streams: &Streams, part: &Selection, options: &Options, live: &Live) -> Vec<Lost> {
    let open = || -> Result<Recording> {
        let Recording::Voltages(source) = streams.recording() else { panic!("voltages") };
        part.of(source).map(Recording::Voltages)
    };
    let address: SocketAddrV4 = format!("127.0.0.1:{}", live.port().unwrap()).parse().unwrap();
    let mut socket = Sender::new(address, None).unwrap();
    let mut sent = 0;
    let mut put = |packets: &[&[u8]]| {
        sent += packets.len();
        // A loaded machine must not lose packets in the kernel's buffer.
        if sent > 256 {
            thread::sleep(Duration::from_millis(2));
            sent = 0;
        }
        socket.send(packets)
    };
    let mut losses = Losses::default();
    send_packets(open().unwrap(), &mut || open(), options, &mut put, &mut losses).unwrap();
    losses.lost
}

/// Samples of each stream as read, and which of them are flagged.
struct Read {
    header: VoltageHeader,
    rows: Vec<Vec<u8>>,
    is_flagged: Vec<Vec<bool>>,
}

/// Reads a source to its end, in reads of random lengths.
fn read_all(source: &mut dyn VoltageSource, random: &mut Random, most: usize) -> Read {
    let header = source.header().clone();
    let mut rows = vec![Vec::new(); header.streams()];
    let mut is_flagged = vec![Vec::new(); header.streams()];
    loop {
        let mut block = header.block(1 + random.below(most));
        let read = source.read(&mut block).unwrap();
        assert_eq!(block.times(), read);
        for (stream, row) in rows.iter_mut().enumerate() {
            row.extend_from_slice(block.voltages().row(stream));
            is_flagged[stream].resize(row.len() / 2, false);
        }
        assert!(block.flags().is_sorted_by_key(|flag| flag.start), "{:?}", block.flags());
        for Flag { streams, start, times } in block.flags().iter().cloned() {
            let first = is_flagged[0].len() - read + start as usize;
            for row in &mut is_flagged[streams] {
                row[first..first + times as usize].fill(true);
            }
        }
        if read == 0 {
            return Read { header, rows, is_flagged };
        }
    }
}

#[derive(Clone, Debug)]
struct Case {
    antennas: usize,
    /// Channels of each band; one of polarizations.
    bands: Vec<usize>,
    is_by_polarization: bool,
    is_descending: bool,
    times: usize,
    /// Samples of each stream that are sent before the others begin, in heaps.
    late: Vec<u64>,
    heap_times: usize,
    loss: f64,
    seed: u64,
    /// Most samples of a read.
    most: usize,
}

fn cases() -> impl Strategy<Value = Case> {
    let shape = (1_usize..4, prop::collection::vec(1_usize..6, 1..5), any::<bool>(), any::<bool>());
    let sizes = (200_usize..900, prop::collection::vec(0_u64..6, 5), 8_usize..40);
    let impaired = (0.0..0.3_f64, any::<u64>(), 1_usize..700);
    (shape, sizes, impaired).prop_map(|(shape, sizes, impaired)| {
        let (antennas, bands, is_by_polarization, is_descending) = shape;
        let (times, late, heap_times) = sizes;
        let (loss, seed, most) = impaired;
        Case {
            antennas,
            bands,
            is_by_polarization,
            is_descending,
            times,
            late,
            heap_times,
            loss,
            seed,
            most,
        }
    })
}

impl Case {
    /// Returns the undivided recording.
    fn streams(&self) -> Streams {
        let channels = self.bands.iter().sum();
        let mut streams = Streams::new(self.antennas, channels, self.times, self.seed >> 1 << 1);
        if self.is_descending {
            // Streams carry channels in the order of their sideband.
            streams.header.centres_hz.reverse();
            streams.header.lower_sideband = true;
        }
        streams
    }

    /// Returns the parts in a random order of the bands, and the streams of each among all.
    fn parts(&self, random: &mut Random) -> Vec<Selection> {
        if self.is_by_polarization {
            return (0..2)
                .map(|one| Selection { channels: None, polarization: Some(one) })
                .collect();
        }
        let mut first = 0;
        let mut part = |channels: &usize| {
            first += channels;
            Selection { channels: Some(first - channels..first), polarization: None }
        };
        let mut parts: Vec<Selection> = self.bands.iter().map(&mut part).collect();
        for at in (1..parts.len()).rev() {
            parts.swap(at, random.below(at + 1));
        }
        parts
    }

    /// Returns the streams of a part, of an antenna.
    fn rows(&self, part: &Selection, antenna: usize) -> Vec<usize> {
        let all: usize = self.bands.iter().sum();
        let channels: Range<usize> = part.channels.clone().unwrap_or(0..all);
        let is_in = |one: &usize| part.polarization.is_none_or(|only| only == *one);
        let rows = channels.flat_map(|channel| (0..2).filter(is_in).map(move |one| (channel, one)));
        rows.map(|(channel, one)| (antenna * all + channel) * 2 + one).collect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    /// A joined source has the samples and the flags of the undivided recording with the losses of its parts.
    #[test]
    fn streams_joined_are_the_recording_undivided(case in cases()) {
        let mut random = Random::new(case.seed);
        let streams = case.streams();
        let parts = case.parts(&mut random);
        let lives: Vec<Live> = parts.iter().map(|_| live()).collect();
        // A stream may begin with a later sample.
        let late = |number: usize| case.late[number] as usize * case.heap_times;
        let begin = (0..parts.len()).map(late).max().unwrap();
        let mut is_lost = vec![vec![false; case.times]; streams.header.streams()];
        for (number, part) in parts.iter().enumerate() {
            let later = from(&streams, late(number));
            let mut options = Options::default();
            (options.rate, options.heap_times) = (None, Some(case.heap_times));
            let (seed, reorder) = (case.seed.wrapping_add(number as u64), 0.1);
            options.impairments =
                impair::Options { loss: case.loss, reorder, span: 4, duplicate: 0.1, seed };
            for Lost { first, times, source, .. } in send(&later, part, &options, &lives[number]) {
                let first = first as usize + late(number);
                for row in case.rows(part, source) {
                    is_lost[row][first..first + times as usize].fill(true);
                }
            }
            let sources = 0..case.antennas;
            let mut rows = sources.flat_map(|antenna| case.rows(part, antenna));
            if rows.all(|row| is_lost[row][late(number)..].iter().all(|lost| *lost)) {
                // A stream of which nothing came does not begin.
                return Ok(());
            }
        }
        let mut joined = join(&lives).unwrap();
        let read = read_all(&mut joined, &mut random, case.most);
        let header = &streams.header;
        prop_assert_eq!(&read.header.centres_hz, &header.centres_hz);
        prop_assert_eq!((read.header.antennas, read.header.polarizations), (header.antennas, 2));
        // The first heaps may be lost.
        let skipped = (read.header.start.seconds_since(&header.start) / header.tsamp_s).round() as usize;
        prop_assert!(skipped >= begin && skipped.is_multiple_of(case.heap_times));
        prop_assert!(joined.cut().is_none(), "{:?}", joined.cut());
        for (stream, lost) in is_lost.iter().enumerate() {
            let lost = &lost[skipped..];
            prop_assert_eq!(&read.is_flagged[stream], lost, "stream {}", stream);
            let sent = &streams.block.voltages().row(stream)[2 * skipped..];
            for (time, (sent, found)) in sent.chunks(2).zip(read.rows[stream].chunks(2)).enumerate() {
                let expected = if lost[time] { &[0, 0] } else { sent };
                prop_assert_eq!(found, expected, "stream {}, sample {}", stream, time);
            }
        }
    }
}

/// Sends recordings of some headers, each to a stream, and joins them.
fn joined(headers: &[VoltageHeader], times: usize) -> Result<JoinedVoltages> {
    let lives: Vec<Live> = headers.iter().map(|_| live()).collect();
    for (header, live) in headers.iter().zip(&lives) {
        let mut streams = Streams::new(header.antennas, header.coarse_channels(), times, 2);
        streams.block = header.block(times);
        streams.block.set_times(times).unwrap();
        streams.header = VoltageHeader { times: Some(times as u64), ..header.clone() };
        let mut options = Options::default();
        (options.rate, options.heap_times) = (None, Some(16));
        send(&streams, &Selection::default(), &options, live);
    }
    join(&lives)
}

/// Header of a band of four channels of 1 MHz from a frequency in MHz on.
fn band(first_mhz: f64) -> VoltageHeader {
    let mut header = Streams::new(1, 4, 8, 2).header;
    header.centres_hz = (0..4).map(|channel| (first_mhz + f64::from(channel)) * 1e6).collect();
    header
}

#[test]
fn streams_that_are_no_recording_are_refused_with_both_named() {
    let changed = |change: fn(&mut VoltageHeader)| {
        let mut other = band(1404.0);
        change(&mut other);
        vec![band(1400.0), other]
    };
    for (headers, words) in [
        (
            vec![band(1400.0), band(1402.0)],
            ["overlap by 2.000000 MHz", "1401.500000 to 1405.500000"],
        ),
        (
            vec![band(1408.5), band(1400.0)],
            ["a hole of 4.500000 MHz", "1399.500000 to 1403.500000"],
        ),
        (
            vec![band(1400.0), band(1400.0)],
            ["overlap by 4.000000 MHz", "two polarizations of one band"],
        ),
        (changed(|header| header.tsamp_s = 2e-6), ["sampling time", "2e-6 s"]),
        (changed(|header| header.antennas = 2), ["antennas", "found 2"]),
        (changed(|header| header.polarizations = 1), ["polarizations", "found 1"]),
        (changed(|header| header.lower_sideband = true), ["sideband", "found lower"]),
        (changed(|header| header.start = header.start.plus_s(0.3e-6)), ["start", "0.300 samples"]),
        (changed(|header| header.start = Epoch::default()), ["start", "it is unknown"]),
        (
            changed(|header| header.centres_hz = vec![1404e6, 1406e6, 1408e6]),
            ["channels", "2.000000 MHz apart"],
        ),
    ] {
        let Err(error) = joined(&headers, 64) else { panic!("{words:?}") };
        let told = error.to_string();
        assert!(words.iter().all(|word| told.contains(word)), "{told}");
        assert!(told.matches("spead://127.0.0.1:").count() >= 2, "{told}");
    }
}

#[test]
fn a_stream_that_ends_first_ends_the_observation() {
    for order in [[0, 1], [1, 0]] {
        let lives = [live(), live()];
        for (number, header) in [band(1400.0), band(1404.0)].into_iter().enumerate() {
            let times = if number == 0 { 1000 } else { 2000 };
            let mut streams = Streams::new(1, 4, times, 2);
            streams.header.centres_hz = header.centres_hz;
            let mut options = Options::default();
            (options.rate, options.heap_times) = (None, Some(16));
            send(&streams, &Selection::default(), &options, &lives[number]);
        }
        let next = &mut |number: usize| next(&lives[order[number]]);
        let mut joined = JoinedVoltages::open(2, next).unwrap();
        let read = read_all(&mut joined, &mut Random::new(1), 300);
        assert_eq!(read.rows[0].len(), 2 * 1000);
        let told = joined.cut().unwrap();
        let port = lives[0].port();
        assert!(port.is_none() && told.contains("has ended"), "{told}");
        assert_eq!(joined.statistics().unwrap().sources.len(), 2);
        assert_eq!(joined.skip(10).unwrap(), 0);
    }
}

#[test]
fn a_reader_that_is_too_slow_loses_the_same_samples_of_all_streams() {
    // Each heap of 0.08 s is a chunk, of which 2048 may wait.
    const HEAP: usize = 8;
    const HEAPS: usize = 2000;
    const FIRST: usize = 36;
    let (lives, bands) = ([live(), live()], [0..2, 2..5]);
    let mut streams = Streams::new(1, 5, HEAPS * HEAP, 2);
    streams.header.tsamp_s = 0.01;
    let mut options = Options::default();
    (options.rate, options.heap_times) = (None, Some(HEAP));
    for (channels, live) in bands.iter().zip(&lives) {
        let part = Selection { channels: Some(channels.clone()), polarization: None };
        assert!(send(&streams, &part, &options, live).is_empty());
    }
    let mut joined = join(&lives).unwrap();
    let mut block = joined.header().block(FIRST);
    assert_eq!((joined.read(&mut block).unwrap(), block.flags().len()), (FIRST, 0));
    // Longer than a reader that was held up has to catch up.
    thread::sleep(Duration::from_millis(200));
    let read = read_all(&mut joined, &mut Random::new(1), 400);
    let flagged = &read.is_flagged[0];
    assert_eq!(flagged.len(), HEAPS * HEAP - FIRST);
    assert!(read.is_flagged.iter().all(|stream| stream == flagged));
    let dropped = flagged.iter().take_while(|flagged| **flagged).count();
    assert!(!flagged[dropped..].contains(&true));
    // Half of the chunks are left, but for those of a read.
    let expected = HEAPS * HEAP - FIRST - 1024 * HEAP;
    assert!(dropped.abs_diff(expected) <= 400 + 10 * HEAP, "{dropped} and {expected}");
    for (stream, row) in read.rows.iter().enumerate() {
        assert!(row[..2 * dropped].iter().all(|byte| *byte == 0));
        let sent = &streams.block.voltages().row(stream)[2 * (FIRST + dropped)..];
        assert_eq!(row[2 * dropped..], *sent);
    }
    for live in &lives {
        let behind = live.behind();
        assert_eq!((behind.stretches, behind.times), (1, dropped as u64));
        assert_eq!(behind.last, Some(Gap { start_time: FIRST as u64, times: dropped as u64 }));
        assert_eq!(behind.blocks, ((FIRST + dropped) / HEAP - FIRST / HEAP) as u64);
    }
}

#[test]
fn a_stream_that_ended_before_the_others_began_gives_its_next_observation() {
    let lives = [live(), live()];
    let sent = |number: usize, first_mhz: f64, start: Epoch| {
        let mut streams = Streams::new(1, 4, 480, 7 + number as u64);
        (streams.header.centres_hz, streams.header.start) = (band(first_mhz).centres_hz, start);
        streams.header.lower_sideband = false;
        let mut options = Options::default();
        (options.rate, options.heap_times) = (None, Some(16));
        send(&streams, &Selection::default(), &options, &lives[number]);
    };
    let (early, late) = (Epoch::new(60_000, 10.0), Epoch::new(60_000, 4000.0));
    sent(0, 1400.0, early);
    sent(0, 1400.0, late);
    sent(1, 1404.0, late);
    let mut joined = join(&lives).unwrap();
    assert_eq!((joined.header().start, joined.header().coarse_channels()), (late, 8));
    assert_eq!(read_all(&mut joined, &mut Random::new(1), 300).rows[15].len(), 2 * 480);
    assert!(matches!(join(&[]).unwrap_err(), Error::Parameter { .. }));
}

/// Sender that repeats a band until it is dropped.
struct Endless {
    is_stopped: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Endless {
    /// Sends a band from a frequency in MHz on, the first sample `late_s` seconds after a start, 40 times as fast as real time.
    fn start(first_mhz: f64, late_s: f64, port: u16) -> Self {
        let mut streams = Streams::new(1, 4, 4096, first_mhz as u64 * 2);
        streams.header.centres_hz = band(first_mhz).centres_hz;
        streams.header.tsamp_s = 1e-3;
        streams.header.start = streams.header.start.plus_s(late_s);
        let mut losses = Losses::default();
        let is_stopped = Arc::clone(&losses.is_stopped);
        let thread = thread::spawn(move || {
            let mut options = Options::default();
            (options.rate, options.repeats, options.heap_times) = (Some(40.0), 0, Some(64));
            let address: SocketAddrV4 = format!("127.0.0.1:{port}").parse().unwrap();
            let mut socket = Sender::new(address, None).unwrap();
            let mut put = |packets: &[&[u8]]| socket.send(packets);
            let mut reopen = || Ok(streams.recording());
            let recording = streams.recording();
            send_packets(recording, &mut reopen, &options, &mut put, &mut losses).unwrap();
        });
        Self { is_stopped, thread: Some(thread) }
    }
}

impl Drop for Endless {
    fn drop(&mut self) {
        self.is_stopped.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

#[test]
fn a_stream_that_has_gone_on_for_long_is_joined_from_its_latest_samples() {
    let lives = [live(), live()];
    let ports = [0, 1].map(|number: usize| lives[number].port().unwrap());
    let first = Endless::start(1400.0, 0.0, ports[0]);
    let begin = Instant::now();
    let second = thread::spawn(move || {
        thread::sleep(Duration::from_millis(500));
        // The clocks of both senders agree to a few samples.
        let late = (40.0 * begin.elapsed().as_secs_f64() / 1e-3).round();
        Endless::start(1404.0, late * 1e-3, ports[1])
    });
    let mut joined = join(&lives).unwrap();
    let second = second.join().unwrap();
    let header = joined.header().clone();
    assert_eq!(header.coarse_channels(), 8);
    let mut block = header.block(5000);
    assert_eq!(joined.read(&mut block).unwrap(), 5000);
    assert!(block.flags().is_empty());
    let begin = Streams::new(1, 4, 8, 0).header.start;
    let passed = (header.start.seconds_since(&begin) / 1e-3).round() as usize;
    assert!(passed >= 20_000, "{passed}");
    let sent = Streams::new(1, 4, 4096, 2800);
    for time in 0..5000 {
        let at = (passed + time) % 4096;
        for stream in 0..8 {
            let sent = &sent.block.voltages().row(stream)[2 * at..2 * at + 2];
            assert_eq!(&block.voltages().row(stream)[2 * time..2 * time + 2], sent);
        }
    }
    drop((first, second));
}

#[test]
fn clocks_that_differ_are_refused_with_both_streams_named() {
    let lives = [live(), live()];
    let _first = Endless::start(1400.0, 0.0, lives[0].port().unwrap());
    let _second = Endless::start(1404.0, 3600.0, lives[1].port().unwrap());
    let told = join(&lives).unwrap_err().to_string();
    assert!(told.contains("s before that of spead://") && told.contains("10 s at most"), "{told}");
    assert!(told.matches("spead://127.0.0.1:").count() == 2, "{told}");
}
