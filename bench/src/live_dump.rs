//! `bench live`: voltages that arrive are kept in a ring, and a dump of it is written to a disk meanwhile.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use sidereal::backend::threads::Threads;
use sidereal::io::voltages::{Sweep, VoltageOptions, VoltageSource, open};
use sidereal::live::joined::JoinedVoltages;
use sidereal::live::source::{Live, Observation};
use sidereal::live::target::Target;
use sidereal::pipeline::dump::{Dumps, Memory, Options, Report, Request, tap};
use sidereal::pipeline::voltage::VoltageFormat;
use sidereal::units::Epoch;
use sidereal::{Error, Result};

use crate::live_sender::{CHANNELS, Kind, PAYLOAD, TIMES, failed, filling, header, send};

/// Rows of a pair: its channels and two polarizations. Bytes of a sample of all of them.
const ROWS: usize = 2 * CHANNELS;
const SAMPLE_BYTES: usize = PAYLOAD / TIMES;

/// Bytes of a socket's buffer.
const BUFFER_BYTES: usize = 64 << 20;

/// Time without packets after which the stream has ended.
const QUIET: Duration = Duration::from_millis(500);

/// Seconds of samples that are read at once.
const READ_S: f64 = 0.01;

/// Seconds before the dump and after it.
const MARGIN_S: f64 = 1.0;

/// Most threads that copy samples to the ring.
const MOST_THREADS: usize = 8;

/// Dump while voltages arrive.
#[derive(Clone, Debug)]
pub(crate) struct Trial {
    /// Folder of the dump.
    pub(crate) folder: PathBuf,
    pub(crate) pairs: usize,
    /// Rate of all pairs in 10^9 bits a second, and seconds of the dump.
    pub(crate) gb_s: f64,
    pub(crate) seconds: f64,
}

/// Outcome of a trial.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    /// Rate of the samples that were read, in 10^9 bits a second.
    pub(crate) gb_s: f64,
    /// Packets that were lost anywhere, samples that the ring did not keep, and samples of the dump that are others than those sent.
    pub(crate) lost: u64,
    pub(crate) missed: u64,
    pub(crate) wrong: u64,
    /// Seconds from the request to the first samples of the file.
    pub(crate) delay_s: f64,
}

impl Outcome {
    /// Returns whether nothing was lost and the dump has what was sent.
    pub(crate) fn is_right(&self) -> bool {
        self.lost + self.missed + self.wrong == 0
    }
}

impl Trial {
    fn tsamp_s(&self) -> f64 {
        SAMPLE_BYTES as f64 * 8e-9 * self.pairs as f64 / self.gb_s
    }

    /// Returns the seconds before the dump and after it, and those of the ring.
    fn margin_s(&self) -> f64 {
        MARGIN_S.min(self.seconds)
    }

    fn ring_s(&self) -> f64 {
        self.seconds + 2.0 * self.margin_s()
    }

    /// Receives packets, keeps their samples in a ring, and dumps it; allocates the ring before the first packet.
    ///
    /// # Errors
    /// Those of sockets and files; [`Error::Unavailable`] when too little arrives.
    pub(crate) fn run(&self) -> Result<Outcome> {
        let headers: Vec<_> = (0..self.pairs).map(|pair| header(pair, self.tsamp_s())).collect();
        let joined = JoinedVoltages::header_of(&headers.iter().collect::<Vec<_>>())?;
        let memory = Memory::default();
        memory.prepare(&joined, self.ring_s(), &threads())?;
        let open = |_| Live::open(&free_target()?, &VoltageOptions::default(), BUFFER_BYTES);
        let lives = (0..self.pairs).map(open).collect::<Result<Vec<_>>>()?;
        let reads = Arc::new(AtomicBool::new(true));
        let (rate, length_s) = (self.gb_s / self.pairs as f64, self.ring_s());
        thread::scope(|scope| {
            let senders = lives.iter().zip(&headers).map(|(live, header)| {
                let port = live.port().unwrap_or_default();
                scope.spawn(move || send(Kind::Spead, port, rate, length_s, header))
            });
            let senders: Vec<_> = senders.collect();
            let goes_on = Arc::clone(&reads);
            let sending = scope.spawn(move || {
                let join = |sender: thread::ScopedJoinHandle<'_, _>| sender.join();
                let sent: Vec<_> = senders.into_iter().map(join).collect();
                thread::sleep(QUIET);
                goes_on.store(false, Ordering::SeqCst);
                sent
            });
            let outcome = self.receive(&lives, &reads, memory);
            for sent in sending.join().map_err(|_| failed())? {
                sent.map_err(|_| failed())??;
            }
            outcome
        })
    }

    fn receive(&self, lives: &[Live], reads: &Arc<AtomicBool>, memory: Memory) -> Result<Outcome> {
        let mut next = |number: usize| {
            let reads = Arc::clone(reads);
            let goes_on = Box::new(move || reads.load(Ordering::SeqCst));
            match lives[number].resume(goes_on)? {
                Observation::Voltages(voltages) => Ok(voltages),
                Observation::Spectra(_) => Err(failed()),
            }
        };
        let joined = JoinedVoltages::open(self.pairs, &mut next)?;
        let header = joined.header().clone();
        let reports = Arc::new(Mutex::new(Vec::<Report>::new()));
        let (listed, folder) = (Arc::clone(&reports), self.folder.clone());
        let options = Options {
            ring_s: self.ring_s(),
            format: VoltageFormat::Dada,
            quota: None,
            name: Arc::new(move |_| folder.join(format!("sidereal-bench-{}", std::process::id()))),
            space: Arc::new(|| None),
            listener: Arc::new(move |report| {
                listed.lock().unwrap_or_else(PoisonError::into_inner).push(report.clone());
            }),
            memory,
            ready: Arc::new(|_| {}),
        };
        let (mut source, tap) = tap(Box::new(joined));
        let dumps = tap.begin(&options, threads())?;
        let mut block = header.block((READ_S / header.tsamp_s) as usize);
        let (mut times, mut lost, mut is_asked) = (0_u64, 0, false);
        let (begin, mut latest) = (Instant::now(), Instant::now());
        loop {
            let read = match source.read(&mut block) {
                Err(error) if error.is_stop() => break,
                read => read?,
            };
            if read == 0 {
                break;
            }
            latest = Instant::now();
            times += read as u64;
            lost += block.flags().iter().map(|flag| flag.times).sum::<u64>();
            let now_s = times as f64 * header.tsamp_s;
            if !is_asked && now_s >= self.margin_s() {
                is_asked = true;
                ask(&dumps, now_s - 0.5 * self.margin_s(), self.seconds)?;
            }
        }
        let missed = dumps.missed();
        drop(source);
        dumps.finish();
        lost += lives.iter().filter_map(Live::shared_statistics).fold(0, |sum, statistics| {
            let own = statistics.lock().unwrap_or_else(PoisonError::into_inner);
            sum + own.sum(|counts| counts.missing + counts.late + counts.overrun) + own.dropped
        });
        let reports = reports.lock().unwrap_or_else(PoisonError::into_inner);
        let ended = reports.iter().find(|report| report.path.is_some());
        let Some(ended) = ended else {
            let why = reports.last().and_then(|report| report.reason.clone());
            return Err(Error::Unavailable {
                what: "the dump".into(),
                why: why.unwrap_or_else(|| "too few samples came".into()),
            });
        };
        let path = ended.path.clone().unwrap_or_default();
        let wrong = wrong(&path, self.pairs, self.seconds);
        std::fs::remove_file(&path).map_err(|error| Error::io(&path, error))?;
        let bytes = times as f64 * (SAMPLE_BYTES * self.pairs) as f64;
        Ok(Outcome {
            gb_s: bytes * 8e-9 / (latest - begin).as_secs_f64(),
            lost,
            missed,
            wrong: wrong? + u64::from(ended.reason.is_some()) + ended.lost.len() as u64,
            delay_s: ended.delay_s.unwrap_or(f64::INFINITY),
        })
    }
}

/// Returns the threads that copy samples to the ring, as those of a search.
fn threads() -> Threads {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    Threads::new((cores / 2).clamp(1, MOST_THREADS))
}

/// Asks for a dump that begins in the past, as that of a burst does.
fn ask(dumps: &Dumps, first_s: f64, seconds: f64) -> Result<()> {
    let sweep = Sweep { dms: [0.0; 2], times_s: [first_s, first_s + seconds], dm_constant: 1.0 };
    let request = Request { name: "bench".into(), sweep, priority: 0 };
    dumps.request(request).map_err(|report| Error::Unavailable {
        what: "the dump".into(),
        why: report.reason.unwrap_or_default(),
    })
}

/// Counts the samples of a dump that are others than those sent, and those that are not there.
fn wrong(path: &Path, pairs: usize, seconds: f64) -> Result<u64> {
    let mut source = open(&[path.to_path_buf()], &VoltageOptions::default())?;
    let header = source.header().clone();
    let first =
        (header.start.seconds_since(&Epoch::new(60_000, 0.0)) / header.tsamp_s).round() as u64;
    let mut block = header.block(4096);
    let (mut at, mut wrong) = (first, 0);
    loop {
        let times = source.read(&mut block)?;
        if times == 0 {
            break;
        }
        let voltages = block.voltages();
        for pair in 0..pairs {
            let (low, high) = (voltages.row(ROWS * pair), voltages.row(ROWS * (pair + 1) - 1));
            for time in 0..times {
                let number = at + time as u64;
                let byte = filling(number / TIMES as u64);
                // The first byte of a packet and the last one are filled.
                let expected = match number as usize % TIMES {
                    0 => [byte, 0, 0, 0],
                    place if place == TIMES - 1 => [0, 0, 0, byte],
                    _ => [0; 4],
                };
                let found = [low[2 * time], low[2 * time + 1], high[2 * time], high[2 * time + 1]];
                wrong += u64::from(found != expected);
            }
        }
        at += times as u64;
    }
    let expected = (seconds / header.tsamp_s) as u64;
    Ok(wrong + expected.saturating_sub(at - first))
}

/// Returns a free port of this machine as a target.
fn free_target() -> Result<Target> {
    let failed = |error| Error::io("127.0.0.1", error);
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").map_err(failed)?;
    let port = socket.local_addr().map_err(failed)?.port();
    format!("spead://127.0.0.1:{port}").parse()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_dump_has_what_was_sent() {
        let folder = tempfile::tempdir().unwrap();
        for pairs in [1, 2] {
            let trial = Trial { folder: folder.path().to_owned(), pairs, gb_s: 0.1, seconds: 0.5 };
            let outcome = trial.run().unwrap();
            assert_eq!((outcome.wrong, outcome.missed), (0, 0), "{outcome:?}");
            assert!(outcome.delay_s < Duration::from_secs(10).as_secs_f64(), "{outcome:?}");
        }
    }
}
