//! Dumps of voltages: the latest seconds of a stream stay in memory, and a trigger writes the window of a dispersed burst to a file.
//!
//! Invariant: the reader of the stream waits for no dump and no disk. What a dump could not have is zeros in its file, and listed.

mod keeper;
mod queue;
mod request;
mod ring;
mod writer;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use self::keeper::Keeper;
use self::queue::Queue;
use self::request::Asked;
pub use self::request::{Options, Report, Request, State};
use self::ring::{Counters, Feeder, Sizes, Tapped, ring};
pub use self::ring::{Memory, RingSize};
use self::writer::Writer;
use crate::backend::threads::Threads;
use crate::error::{Error, Result};
use crate::io::voltages::{Sweep, VoltageHeader, VoltageSource};

/// Requests that may wait for the keeper.
const REQUESTS: usize = 256;

/// Ring of voltages and the threads that dump them.
pub struct Dumps {
    requests: SyncSender<Asked>,
    queue: Arc<Queue>,
    counters: Arc<Counters>,
    is_stopped: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

/// Source of voltages before it has a ring.
pub struct Tap {
    header: VoltageHeader,
    begins: SyncSender<Feeder>,
}

/// Makes a source whose samples a ring can hold from when [`Tap::begin`] makes one.
pub fn tap(source: Box<dyn VoltageSource>) -> (Box<dyn VoltageSource>, Tap) {
    let (begins, begun) = sync_channel(1);
    let tap = Tap { header: source.header().clone(), begins };
    (Box::new(Tapped::new(source, begun)), tap)
}

impl Tap {
    /// Returns the header of the voltages.
    pub fn header(&self) -> &VoltageHeader {
        &self.header
    }

    /// Makes a ring for the samples that are read from now on, and starts the threads of its dumps; `threads` copy the samples. What
    /// [`Options::memory`] lacks of the ring's memory is made, written to and locked while the first samples come.
    ///
    /// # Errors
    /// [`Error::Parameter`] if the header states no frequencies, the format cannot hold the voltages, or the ring has no length; [`Error::Unavailable`] when memory
    /// does not suffice; [`Error::Io`] if the system starts no thread.
    pub fn begin(self, options: &Options, threads: Threads) -> Result<Dumps> {
        let header = self.header;
        let none = Sweep { dms: [0.0; 2], times_s: [0.0; 2], dm_constant: 1.0 };
        if none.windows_s(&header).is_none() {
            let rule =
                "a dump follows a burst through the band, and the header states no frequencies";
            return Err(Error::parameter("centre_hz", 0, rule));
        }
        if !(options.ring_s > 0.0 && options.ring_s < 1e7) {
            return Err(Error::parameter("ring_s", options.ring_s, "it must be above 0"));
        }
        writer::check(&header, options)?;
        let sizes = Sizes::new(&header, options.ring_s);
        let (feeder, keeping) = ring(sizes, threads, options.memory.clone())?;
        let counters = Arc::clone(&keeping.counters);
        let (requests, asked) = sync_channel(REQUESTS);
        let queue = Arc::new(Queue::default());
        let is_stopped = Arc::new(AtomicBool::new(false));
        let writer =
            Writer::new(&header, sizes, options, Arc::clone(&queue), Arc::clone(&is_stopped));
        let keeper = Keeper::new(header, sizes, keeping, Arc::clone(&queue), options);
        let spawn = |name: &str, work: Box<dyn FnOnce() + Send>| {
            let spawned = thread::Builder::new().name(name.to_owned()).spawn(work);
            spawned.map_err(|error| Error::io(format!("thread of the {name}"), error))
        };
        let threads = vec![
            spawn("voltage ring", Box::new(move || keeper.run(&asked)))?,
            spawn("dump", Box::new(move || writer.run()))?,
        ];
        // A source that is gone needs no ring.
        let _ = self.begins.try_send(feeder);
        Ok(Dumps { requests, queue, counters, is_stopped, threads })
    }
}

impl Dumps {
    /// Asks for a dump; its fate is reported to the listener. Waits for nothing, and asks for no memory.
    ///
    /// # Errors
    /// The report of a request that is not taken, since too many wait or the thread of the ring has ended.
    pub fn request(&self, request: Request) -> std::result::Result<(), Box<Report>> {
        let asked = Asked { request, at: Instant::now() };
        self.requests.try_send(asked).map_err(|error| {
            let (asked, reason) = match error {
                TrySendError::Full(asked) => (asked, format!("{REQUESTS} requests wait")),
                TrySendError::Disconnected(asked) => {
                    (asked, "the ring of its observation has ended".to_owned())
                }
            };
            Box::new(Report::refused(asked.request, reason))
        })
    }

    /// Returns the samples per stream that were not kept, since dumps held all memory.
    pub fn missed(&self) -> u64 {
        self.counters.missed.load(Ordering::Relaxed)
    }

    /// Announces the stream's end: dumps that wait for later samples end with the stream.
    pub fn end(&self) {
        self.counters.is_ended.store(true, Ordering::Relaxed);
    }

    /// Ends the dumps under way with what is written; the others are not begun.
    pub fn stop(&self) {
        self.is_stopped.store(true, Ordering::Relaxed);
        self.queue.wake();
    }

    /// Returns whether all dumps have ended, after [`Dumps::end`].
    pub fn are_over(&self) -> bool {
        self.threads.iter().all(JoinHandle::is_finished)
    }

    /// Ends the dumps with the stream, and waits until they are written.
    pub fn finish(self) {
        self.end();
        for thread in self.threads {
            // A panic of a dump's thread ends dumps, not the search.
            let _ = thread.join();
        }
    }
}
