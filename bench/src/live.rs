//! `bench live`: packets through the loopback interface to chunks in memory, beside sockets alone, and to a ring that is dumped.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use sidereal::Result;
use sidereal::io::voltages::VoltageOptions;
use sidereal::live::capture::{Capture, Event};
use sidereal::live::declared::{Axis, Constant, Declaration, Declared, Extent, Field};
use sidereal::live::packet::Format;
use sidereal::live::socket::{Options as SocketOptions, Receiver};
use sidereal::live::window::{Options as WindowOptions, Ready, Window};
use sidereal::voltage::VoltageEncoding;

use crate::live_dump;
use crate::live_sender::{CHANNELS, Kind, PAYLOAD, TIMES, failed, filling, header, send};
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
    /// Folder of the dump that is written while voltages arrive [default: that of temporary files].
    #[arg(long, value_name = "DIR")]
    dump_to: Option<PathBuf>,
    /// Rate of the voltages while they are dumped, in 10^9 bits a second.
    #[arg(long, default_value_t = 2.0, value_name = "GBIT/S")]
    dump_rate: f64,
    /// Seconds of the dump; the ring in memory has 2 s more.
    #[arg(long, default_value_t = 10.0, value_name = "SECONDS")]
    dump_seconds: f64,
    /// Also write the table to this CSV file.
    #[arg(long, value_name = "FILE")]
    pub(crate) csv: Option<PathBuf>,
}

const ABOUT: &str = "\
Highest rate at which no packet is lost, of packets with 8192 bytes of samples. Roof: the same for sockets alone, which
receive the same packets and look at their counter. Baseline: 80 Gb/s of the receivers of a MeerKAT correlator (2 x 2 GS/s
of 10 bits for two antennas). Loopback only: no network card is involved. The last cases write a dump from a ring while voltages arrive
at --dump-rate; they check the bytes of the dump, and that no packet was lost. For the delay from the request to the first bytes, the
roof is a goal (50 ms), not a measurement.";

/// Rate of the baseline in 10^9 bits a second.
const BASELINE_GB_S: f64 = 80.0;

/// Goal of the time from a request to the first bytes of its dump.
const DELAY_MS: f64 = 50.0;

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
    session.caller.check_interrupt()?;
    let folder = arguments.dump_to.clone().unwrap_or_else(std::env::temp_dir);
    let (gb_s, seconds) =
        if arguments.quick { (0.05, 0.5) } else { (arguments.dump_rate, arguments.dump_seconds) };
    let outcome = live_dump::Trial { folder, pairs, gb_s, seconds }.run()?;
    let mut case = format!("ring, {seconds} s of {gb_s} Gb/s dumped, {pairs} pairs");
    if !outcome.is_right() {
        let live_dump::Outcome { lost, missed, wrong, .. } = outcome;
        case += &format!(" (lost {lost}, not in the ring {missed}, wrong {wrong})");
    }
    let (is_right, rates) = (outcome.is_right(), Rates::once(outcome.gb_s, roof, BASELINE_GB_S));
    run.push(rates.row("live", case, &session.backend, "Gb/s", is_right))?;
    let delay = Rates::once(outcome.delay_s * 1e3, DELAY_MS, 0.0);
    let case = "request to the dump's first bytes, ms";
    run.push(delay.row("live", case, &session.backend, "ms", is_right))?;
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

/// Declaration of packets with a counter of 8 bytes before the samples.
fn declaration() -> Declaration {
    Declaration {
        header_bytes: 16,
        sequence: Field::big(0, 8),
        step: 1,
        sources: Vec::new(),
        constants: vec![Constant { field: Field::big(8, 8), value: 7 }],
        axes: vec![
            Extent::new(Axis::Channel, CHANNELS),
            Extent::new(Axis::Time, TIMES),
            Extent::new(Axis::Polarization, 2),
        ],
        encoding: VoltageEncoding::Complex8,
    }
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
            senders.push(scope.spawn(move || send(kind, port, rate, seconds, &header(0, 1e-6))));
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
                trial.count(&chunk, TIMES as u64);
                capture.recycle(chunk);
            }
            Some(_) => last = Instant::now(),
            None => {}
        }
    }
    capture.finish();
    while let Some(event) = capture.next(QUIET) {
        if let Event::Chunk(chunk) = event {
            trial.count(&chunk, TIMES as u64);
        }
    }
    trial
}
