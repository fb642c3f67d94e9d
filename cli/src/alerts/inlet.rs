//! Queue of triggers from a receiver to the search, with a rate limit for each sender and counters.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Instant;

use sidereal::live::trigger::{Message, Origin, RateLimit, parse};
use tracing::Level;

use crate::say;

/// Most messages that wait for the search.
const WAITING: usize = 256;

/// Counters of messages by their fate, which any thread may read.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) received: AtomicU64,
    /// From senders that are not allowed.
    pub(super) foreign: AtomicU64,
    /// Beyond the rate of their sender.
    pub(super) limited: AtomicU64,
    pub(super) malformed: AtomicU64,
    /// Dropped because the queue was full.
    pub(super) overflowed: AtomicU64,
    /// Dropped because the search had ended.
    pub(super) too_late: AtomicU64,
    /// Dropped by the kernel because its buffer was full.
    pub(super) dropped: AtomicU64,
}

impl Counters {
    /// Counts one message.
    pub(super) fn count(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns a counter's value.
    pub(super) fn of(counter: &AtomicU64) -> u64 {
        counter.load(Ordering::Relaxed)
    }
}

/// Message that came at an allowed rate.
#[derive(Debug)]
pub(super) struct Arrival {
    pub(super) origin: Origin,
    /// Its trigger, or the reason why it is none.
    pub(super) message: std::result::Result<Message, String>,
}

/// Fate of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// It waits for the search.
    Queued,
    /// It is no trigger, for this reason.
    Malformed(String),
    /// Its sender has sent too many.
    Limited,
    /// Too many wait.
    Full,
    /// The search has ended.
    Over,
}

/// Sending end of the queue, used by a receiver.
#[derive(Debug)]
pub(crate) struct Inlet {
    limit: RateLimit,
    queue: SyncSender<Arrival>,
    pub(super) counters: Arc<Counters>,
}

/// Receiving end of the queue, used by the search.
#[derive(Debug)]
pub(crate) struct Arrivals {
    queue: Receiver<Arrival>,
    pub(super) counters: Arc<Counters>,
}

/// Makes a queue; each sender may send `per_s` triggers in a second, and as many at once.
pub(crate) fn inlet(per_s: f64) -> (Inlet, Arrivals) {
    let (sender, receiver) = sync_channel(WAITING);
    let counters = Arc::new(Counters::default());
    let limit = RateLimit::new(per_s, per_s);
    let arrivals = Arrivals { queue: receiver, counters: Arc::clone(&counters) };
    (Inlet { limit, queue: sender, counters }, arrivals)
}

impl Inlet {
    /// Queues a message of an allowed sender; a malformed one is queued with the reason.
    pub(crate) fn take(&mut self, bytes: &[u8], origin: Origin, sender: IpAddr) -> Taken {
        let counters = &self.counters;
        Counters::count(&counters.received);
        if !self.limit.admit(sender, Instant::now()) {
            Counters::count(&counters.limited);
            return Taken::Limited;
        }
        let message = parse(bytes).map_err(|why| why.to_string());
        let fault = message.as_ref().err().cloned();
        if fault.is_some() {
            Counters::count(&counters.malformed);
        }
        match self.queue.try_send(Arrival { origin, message }) {
            Ok(()) => fault.map_or(Taken::Queued, Taken::Malformed),
            // A malformed message is refused for what it is, whether its line finds space or not.
            Err(TrySendError::Full(_)) if fault.is_some() => {
                Taken::Malformed(fault.unwrap_or_default())
            }
            Err(TrySendError::Full(_)) => {
                Counters::count(&counters.overflowed);
                Taken::Full
            }
            Err(TrySendError::Disconnected(_)) => {
                if counters.too_late.fetch_add(1, Ordering::Relaxed) == 0 {
                    say::log(Level::WARN, "triggers come although the search has ended");
                }
                Taken::Over
            }
        }
    }
}

impl Arrivals {
    /// Returns the next message, if one waits.
    pub(super) fn next(&self) -> Option<Arrival> {
        self.queue.try_recv().ok()
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const HOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
    const GOOD: &[u8] = br#"{"unix": 1700000000, "dm": 10}"#;

    #[test]
    fn each_fate_of_a_message_has_an_answer_and_a_counter() {
        let (mut inlet, arrivals) = inlet(1e6);
        let mut take = |bytes: &[u8]| inlet.take(bytes, Origin::Http, HOST);
        assert_eq!(take(GOOD), Taken::Queued);
        assert!(matches!(take(b"{}"), Taken::Malformed(_)));
        (2..WAITING).for_each(|_| assert_eq!(take(GOOD), Taken::Queued));
        assert_eq!(take(GOOD), Taken::Full);
        assert!(arrivals.next().is_some_and(|arrival| arrival.message.is_ok()));
        assert!(arrivals.next().is_some_and(|arrival| arrival.message.is_err()));
        assert_eq!(take(GOOD), Taken::Queued);
        let counters = Arc::clone(&arrivals.counters);
        drop(arrivals);
        assert_eq!(take(GOOD), Taken::Over);
        let Counters { received, malformed, overflowed, too_late, limited, .. } = &*counters;
        let counts = [received, malformed, overflowed, too_late, limited].map(Counters::of);
        assert_eq!(counts, [WAITING as u64 + 3, 1, 1, 1, 0]);
    }

    #[test]
    fn a_sender_has_its_rate() {
        let (mut inlet, arrivals) = inlet(3.0);
        let fates: Vec<Taken> = (0..6).map(|_| inlet.take(GOOD, Origin::Http, HOST)).collect();
        assert_eq!(fates[..3], [Taken::Queued, Taken::Queued, Taken::Queued]);
        assert!(fates[4..].iter().all(|fate| *fate == Taken::Limited), "{fates:?}");
        assert!(Counters::of(&arrivals.counters.limited) >= 2);
    }
}
