//! Work that a search hands to a thread and never waits for: a bounded queue, and counters of what became of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use sidereal::{Error, Result};

use crate::interrupt;

/// Time between two looks at a thread that ends.
const STEP: Duration = Duration::from_millis(10);

/// Longest wait for a thread after a request to stop.
const GRACE: Duration = Duration::from_millis(900);

/// Time in which a thread that nobody waits for ends what it does.
const ENDING: Duration = Duration::from_millis(100);

/// Counters of items by their fate.
#[derive(Debug, Default)]
pub(crate) struct Fates {
    /// Handed over, whether they had place in the queue or not.
    offered: AtomicU64,
    /// Done as wanted.
    pub(crate) done: AtomicU64,
    /// Failed.
    pub(crate) failed: AtomicU64,
    /// Whether nobody waits for the thread any more.
    is_over: AtomicBool,
}

impl Fates {
    /// Counts one item.
    pub(crate) fn count(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns whether the thread should stop what it does.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Returns the numbers of items that were done, that failed, and that were neither: left out, or not done yet.
    pub(crate) fn counts(&self) -> [u64; 3] {
        let counters = [&self.offered, &self.done, &self.failed];
        let [offered, done, failed] = counters.map(|counter| counter.load(Ordering::Relaxed));
        [done, failed, offered.saturating_sub(done + failed)]
    }
}

/// A thread and its queue.
pub(crate) struct Worker<T> {
    sender: Option<SyncSender<T>>,
    thread: Option<JoinHandle<()>>,
    pub(crate) fates: Arc<Fates>,
}

impl<T: Send + 'static> Worker<T> {
    /// Starts a thread that does `work` with each item; at most `waiting` items wait.
    ///
    /// # Errors
    /// [`Error::Io`] if the system starts no thread.
    pub(crate) fn start(
        name: &str,
        waiting: usize,
        mut work: impl FnMut(T, &Fates) + Send + 'static,
    ) -> Result<Self> {
        let (sender, receiver) = sync_channel(waiting);
        let fates = Arc::new(Fates::default());
        let own = Arc::clone(&fates);
        let spawned = thread::Builder::new().name(name.to_owned()).spawn(move || {
            while let Ok(item) = receiver.recv() {
                work(item, &own);
            }
        });
        let thread = spawned.map_err(|error| Error::io(format!("thread of {name}"), error))?;
        Ok(Self { sender: Some(sender), thread: Some(thread), fates })
    }

    /// Hands over an item, unless the queue is full.
    pub(crate) fn offer(&self, item: T) {
        Fates::count(&self.fates.offered);
        if let Some(sender) = &self.sender {
            // A full queue shows in the counters.
            let _ = sender.try_send(item);
        }
    }

    /// Waits for the items in the queue, at most `longest`, and after a request to stop at most a second.
    pub(crate) fn finish(&mut self, longest: Duration) {
        drop(self.sender.take());
        let Some(thread) = self.thread.take() else { return };
        let (begin, mut asked) = (Instant::now(), None);
        while !thread.is_finished() && begin.elapsed() < longest {
            if interrupt::requested() && asked.get_or_insert_with(Instant::now).elapsed() >= GRACE {
                break;
            }
            thread::sleep(STEP);
        }
        self.fates.is_over.store(true, Ordering::Relaxed);
        // The work in progress may have something to end.
        let begin = Instant::now();
        while !thread.is_finished() && begin.elapsed() < ENDING {
            thread::sleep(STEP);
        }
    }
}
