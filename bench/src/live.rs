//! `bench live`: packets through the loopback interface to chunks in memory, beside sockets alone.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use sidereal::io::voltages::{VoltageHeader, VoltageOptions};
use sidereal::live::capture::{Capture, Event};
use sidereal::live::declared::{Axis, Constant, Declaration, Declared, Extent, Field};
use sidereal::live::header::Content;
use sidereal::live::packet::Format;
use sidereal::live::socket::{BATCH, Options as SocketOptions, Receiver, Sender};
use sidereal::live::spead::{Flavour, Packetizer, Repeat};
use sidereal::live::stream::Stream;
use sidereal::live::window::{Options as WindowOptions, Ready, Window};
use sidereal::units::Epoch;
use sidereal::voltage::VoltageEncoding;
use sidereal::{Error, Result};

use crate::runner::{Rates, Run, Session};

/// Measure reception: packets through the loopback interface to chunks in memory, without loss.
#[derive(Args, Clone, Debug)]
pub(crate) struct Arguments {
    /// Pairs of a sender and a receiver, a socket each [default: half of the cores].
    #[arg(long, value_name = "N")]
    pairs: Option<usize>,
    /// Seconds of each trial.
    #[arg(long, default_value_t = 0.5, value_name = "SECONDS")]
    seconds: f64,
    /// Short trials, to test that everything works; the rates mean nothing.
    #[arg(long)]
    quick: bool,
    /// Also write the table to this CSV file.
    #[arg(long, value_name = "FILE")]
    pub(crate) csv: Option<PathBuf>,
}

const ABOUT: &str = "\
Highest rate at which no packet is lost, of packets with 8192 bytes of samples. Roof: the same for sockets alone, which
receive the same packets and look at their counter. Baseline: 80 Gb/s of the receivers of a MeerKAT correlator (2 x 2 GS/s
of 10 bits for two antennas). Loopback only: no network card is involved.";

/// Bytes of samples in a packet.
const PAYLOAD: usize = 8192;

/// Rate of the baseline in 10^9 bits a second.
const BASELINE_GB_S: f64 = 80.0;

/// First rate that is tried, and the number of steps of the bisection.
const FIRST_GB_S: f64 = 1.0;
const STEPS: usize = 6;

/// Bytes of a socket's buffer.
const BUFFER_BYTES: usize = 64 << 20;

/// Number of chunks in the window, and of spare chunks.
const CHUNKS: usize = 8;
const WAITING: usize = 16;

/// Time without packets after which a receiver ends.
const QUIET: Duration = Duration::from_millis(200);

/// Receiver that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Sockets alone.
    Roof,
    /// Packets with a fixed header, in a window.
    Declared,
    /// SPEAD heaps with a header, by the capture thread.
    Spead,
}

const KINDS: [Kind; 3] = [Kind::Roof, Kind::Declared, Kind::Spead];

/// Measurements of each kind.
const ROUNDS: usize = 3;

/// Outcome of a trial.
#[derive(Clone, Copy, Debug, Default)]
struct Trial {
    sent: u64,
    received: u64,
    /// Packets whose samples were not those sent.
    wrong: u64,
    seconds: f64,
}

/// Runs the benchmark.
pub(crate) fn run(arguments: &Arguments, session: &Session<'_>) -> Result<()> {
    let cores = thread::available_parallelism().map_or(2, usize::from);
    let pairs = arguments.pairs.unwrap_or(cores / 2).max(1);
    let seconds = if arguments.quick { 0.05 } else { arguments.seconds };
    let mut run = Run::new(session, arguments.csv.as_deref(), ABOUT)?;
    let (rounds, steps) = if arguments.quick { (1, 2) } else { (ROUNDS, STEPS) };
    let mut rates = [const { Vec::new() }; KINDS.len()];
    let mut right = [true; KINDS.len()];
    // In turn, since other programs may use the cores for a while.
    for _ in 0..rounds {
        for (at, kind) in KINDS.into_iter().enumerate() {
            let mut works = |gb_s: f64| -> Result<f64> {
                session.caller.check_interrupt()?;
                let trial = trial(kind, pairs, gb_s, seconds)?;
                right[at] &= trial.wrong == 0 && trial.received > 0;
                let rate = trial.received as f64 * PAYLOAD as f64 * 8e-9 / trial.seconds;
                Ok(if trial.received == trial.sent { rate } else { 0.0 })
            };
            rates[at].push(highest(&mut works, steps)?);
        }
    }
    let roof = rates[0].iter().copied().fold(0.0_f64, f64::max);
    for (at, kind) in KINDS.into_iter().enumerate() {
        let case = match kind {
            Kind::Roof => format!("sockets alone, {pairs} pairs"),
            Kind::Declared => format!("packets to chunks, {pairs} pairs"),
            Kind::Spead => format!("SPEAD heaps to chunks, {pairs} pairs"),
        };
        let rates = Rates::of(rates[at].clone(), roof, BASELINE_GB_S);
        run.push(rates.row("live", case, &session.backend, "Gb/s", right[at]))?;
    }
    run.finish()
}

/// Returns the highest rate without loss: doubles the rate until packets are lost, then bisects.
fn highest(works: &mut impl FnMut(f64) -> Result<f64>, steps: usize) -> Result<f64> {
    let (mut low, mut best) = (FIRST_GB_S / 2.0, 0.0_f64);
    let mut high = FIRST_GB_S;
    loop {
        let rate = works(high)?;
        if rate == 0.0 {
            break;
        }
        best = best.max(rate);
        // The sender is at its own limit.
        if rate < 0.9 * high {
            return Ok(best);
        }
        (low, high) = (high, 2.0 * high);
    }
    for _ in 0..steps {
        let middle = 0.5 * (low + high);
        let rate = works(middle)?;
        if rate > 0.0 {
            best = best.max(rate);
            low = middle;
        } else {
            high = middle;
        }
    }
    Ok(best)
}

/// Header of the voltages: 1024 channels of two polarizations, four samples a packet.
fn header() -> VoltageHeader {
    let centres = (0..1024).map(|channel| 1400e6 + 1e6 * f64::from(channel)).collect();
    let mut header = VoltageHeader::new(centres, 1e-6, VoltageEncoding::Complex8);
    header.polarizations = 2;
    header.start = Epoch::new(60_000, 0.0);
    header
}

/// Declaration of packets with a counter of 8 bytes before the samples.
fn declaration() -> Declaration {
    Declaration {
        header_bytes: 16,
        sequence: Field::big(0, 8),
        step: 1,
        sources: Vec::new(),
        constants: vec![Constant { field: Field::big(8, 8), value: 7 }],
        axes: vec![
            Extent::new(Axis::Channel, 1024),
            Extent::new(Axis::Time, 2),
            Extent::new(Axis::Polarization, 2),
        ],
        encoding: VoltageEncoding::Complex8,
    }
}

/// Byte that fills packet `number`.
fn filling(number: u64) -> u8 {
    (number % 251) as u8
}

/// Sends and receives for some seconds at a total rate.
fn trial(kind: Kind, pairs: usize, gb_s: f64, seconds: f64) -> Result<Trial> {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let mut receivers = Vec::new();
        let mut senders = Vec::new();
        for _ in 0..pairs {
            let stop = &stop;
            let address = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0);
            let options =
                SocketOptions { buffer_bytes: BUFFER_BYTES, ..SocketOptions::new(address) };
            let port = if kind == Kind::Spead {
                let path = "spead://127.0.0.1".as_ref();
                let capture = Capture::start(&options, path, &VoltageOptions::default())?;
                let port = capture.port();
                receivers.push(scope.spawn(move || Ok(count_chunks(&capture, stop))));
                port
            } else {
                let receiver = Receiver::new(&options)?;
                let port = receiver.port()?;
                receivers.push(scope.spawn(move || receive(kind, receiver, stop)));
                port
            };
            let rate = gb_s / pairs as f64;
            senders.push(scope.spawn(move || send(kind, port, rate, seconds)));
        }
        let mut all = Trial::default();
        for sender in senders {
            let (sent, seconds) = sender.join().unwrap_or_else(|_| Err(failed()))?;
            all.sent += sent;
            all.seconds = all.seconds.max(seconds);
        }
        stop.store(true, Ordering::SeqCst);
        for receiver in receivers {
            let found = receiver.join().unwrap_or_else(|_| Err(failed()))?;
            all.received += found.received;
            all.wrong += found.wrong;
        }
        Ok(all)
    })
}

fn failed() -> Error {
    Error::Unavailable { what: "a thread of the benchmark".into(), why: "it panicked".into() }
}

/// Sends packets at a rate in 10^9 bits a second; returns their number and the time that it took.
fn send(kind: Kind, port: u16, gb_s: f64, seconds: f64) -> Result<(u64, f64)> {
    let address = SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
    let mut socket = Sender::new(address, None)?;
    let stream = Stream::with_times(Content::Voltages(header()), 2)?;
    let mut packets: Vec<Vec<u8>> = Vec::new();
    let mut packetizer = Packetizer::new(Flavour::BITS_48, PAYLOAD, Repeat::All)?;
    if kind == Kind::Spead {
        let mut whole = Packetizer::new(Flavour::BITS_48, 49_152, Repeat::All)?;
        let text = stream.header_payload()?;
        whole.send(0, &stream.header_items(), &text, &mut |packet| socket.send(&[packet]))?;
        for _ in 0..BATCH {
            let items = stream.data_items(0, 0);
            packetizer.send(0, &items, &[0; PAYLOAD], &mut |packet| {
                packets.push(packet.to_vec());
                Ok(())
            })?;
        }
    } else {
        let mut packet = vec![0; 16 + PAYLOAD];
        packet[15] = 7;
        packets.resize(BATCH, packet);
    }
    let begin = Instant::now();
    let mut sent = 0_u64;
    while begin.elapsed().as_secs_f64() < seconds {
        for (packet, number) in packets.iter_mut().zip(sent..) {
            let start = packet.len() - PAYLOAD;
            // The whole payload would cost the sender more than the socket does.
            packet[start] = filling(number);
            packet[start + PAYLOAD - 1] = filling(number);
            if kind == Kind::Spead {
                // The heap's number and the time are the first and the fifth item.
                packet[10..16].copy_from_slice(&(number + 1).to_be_bytes()[2..]);
                packet[42..48].copy_from_slice(&(2 * number).to_be_bytes()[2..]);
            } else {
                packet[..8].copy_from_slice(&number.to_be_bytes());
            }
        }
        let batch: [&[u8]; BATCH] = std::array::from_fn(|index| packets[index].as_slice());
        socket.send(&batch)?;
        sent += BATCH as u64;
        let due = sent as f64 * PAYLOAD as f64 * 8e-9 / gb_s;
        let ahead = due.min(seconds) - begin.elapsed().as_secs_f64();
        if ahead > 0.0 {
            thread::sleep(Duration::from_secs_f64(ahead));
        }
    }
    Ok((sent, begin.elapsed().as_secs_f64()))
}

/// Receives packets, alone or into a window.
fn receive(kind: Kind, mut receiver: Receiver, stop: &AtomicBool) -> Result<Trial> {
    let mut trial = Trial::default();
    let mut format = Declared::new(declaration())?;
    let options = WindowOptions::new(64, CHUNKS);
    let mut window = Window::with_buffers(format.shape(), options, CHUNKS + WAITING)?;
    let (mut next, mut last) = (0_u64, Instant::now());
    while !stop.load(Ordering::Relaxed) || last.elapsed() < QUIET {
        let count = receiver.receive(Duration::from_millis(50))?;
        if count > 0 {
            last = Instant::now();
        }
        for index in 0..count {
            let packet = receiver.packet(index);
            if kind == Kind::Declared {
                window.receive(&mut format, packet);
                continue;
            }
            let number = packet.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes));
            trial.received += 1;
            trial.wrong += u64::from(number < next || packet[16] != filling(number));
            next = number + 1;
        }
        while let Some(ready) = window.take() {
            trial.take(ready, &mut window, 1)?;
        }
    }
    window.finish();
    while let Some(ready) = window.take() {
        trial.take(ready, &mut window, 1)?;
    }
    Ok(trial)
}

impl Trial {
    /// Counts the blocks of a chunk, whose counters rise by `step`, and gives it back.
    fn take(&mut self, ready: Ready, window: &mut Window, step: u64) -> Result<()> {
        let Ready::Chunk(chunk) = ready else { return Ok(()) };
        self.count(&chunk, step);
        window.recycle(chunk)
    }

    fn count(&mut self, chunk: &sidereal::live::window::Chunk, step: u64) {
        for (block, samples) in chunk.bytes().chunks_exact(PAYLOAD).take(chunk.blocks).enumerate() {
            if chunk.is_present(block, 0) {
                let expected = filling(chunk.first / step + block as u64);
                self.received += 1;
                self.wrong += u64::from([samples[0], samples[PAYLOAD - 1]] != [expected; 2]);
            }
        }
    }
}

/// Takes chunks from a capture thread.
fn count_chunks(capture: &Capture, stop: &AtomicBool) -> Trial {
    let mut trial = Trial::default();
    let mut last = Instant::now();
    while !stop.load(Ordering::Relaxed) || last.elapsed() < QUIET {
        match capture.next(Duration::from_millis(50)) {
            Some(Event::Chunk(chunk)) => {
                last = Instant::now();
                trial.count(&chunk, 2);
                capture.recycle(chunk);
            }
            Some(_) => last = Instant::now(),
            None => {}
        }
    }
    capture.finish();
    while let Some(event) = capture.next(QUIET) {
        if let Event::Chunk(chunk) = event {
            trial.count(&chunk, 2);
        }
    }
    trial
}
