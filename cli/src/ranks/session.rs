//! Exchange between ranks by MPI.
//!
//! All operations are immediate ones that are tested until they are complete: without pauses while pieces arrive, otherwise with
//! pauses, so that a rank that waits leaves its core to the others. A stop request ends the wait.

use std::cell::Cell;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use mpi::Threading;
use mpi::collective::SystemOperation;
use mpi::environment::Universe;
use mpi::request;
use mpi::topology::SimpleCommunicator;
use mpi::traits::*;
use sidereal::pipeline::correlator::{EarlyEnd, Exchange, Ranks};
use sidereal::{Error, Result};

use super::End;
use super::place::{OPTION, Place};
use crate::interrupt::{self, Exit};
use crate::say::fault;

/// Most bytes of a message. Longer ones are sent in pieces, which arrive in order and show that bytes are on their way. MPI
/// counts the bytes of a message in 32 bits with a sign.
const MOST_BYTES: usize = 256 << 10;

/// Tags of the messages.
const DATA: i32 = 1;
const LENGTH: i32 = 2;
const END: i32 = 3;
const STOP: i32 = 4;
const WORKS: i32 = 5;

/// Tests without a pause once a piece has arrived. Where the system allows no copy from process to process, Open MPI moves some
/// 32 kB in each test.
const SPINS: usize = 100;

/// Shortest and longest pause between tests.
const SHORTEST: Duration = Duration::from_micros(30);
const LONGEST: Duration = Duration::from_millis(1);

/// Time that operations may take after a stop request, before the run is ended. It begins anew with every message by which rank 0 says
/// that it works outside of calls.
const GRACE: Duration = Duration::from_secs(5);

/// Time between these messages.
const WORKS_EVERY: Duration = Duration::from_secs(1);

/// This process as one of several.
pub(crate) struct Session {
    universe: Universe,
    rank: usize,
    ranks: usize,
    early: EarlyEnd,
    /// Whether another rank prints the error with which this one ends.
    is_silent: bool,
    /// Whether [`Session::ranks`] was called.
    is_taken: bool,
}

impl Session {
    /// Initializes MPI.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if MPI does not allow calls of another thread; [`Error::Parameter`] if it does not find the
    /// processes that mpirun started.
    pub(crate) fn new(place: Place) -> Result<Self> {
        let lacking =
            |why: &str| Error::Unavailable { what: "MPI".to_owned(), why: why.to_owned() };
        let (universe, threading) = mpi::initialize_with_threading(Threading::Serialized)
            .ok_or_else(|| lacking("it was initialized before in this process"))?;
        if threading < Threading::Serialized {
            return Err(lacking("its library has no support for threads (MPI_THREAD_SERIALIZED)"));
        }
        let ranks = universe.world().size() as usize;
        if ranks != place.ranks {
            let rule = format!(
                "MPI finds {ranks}: mpirun must belong to the MPI library that this program was built with"
            );
            return Err(Error::parameter(OPTION, place.ranks, rule));
        }
        let rank = universe.world().rank() as usize;
        let early = EarlyEnd::default();
        Ok(Self { universe, rank, ranks, early, is_silent: false, is_taken: false })
    }

    /// Returns the processes for calls in which no rank waits for data.
    fn world(&self) -> World {
        World { rank: self.rank, ranks: self.ranks, asks: Cell::new(false), said: Cell::new(None) }
    }

    /// Returns the number of this rank.
    pub(super) fn rank(&self) -> usize {
        self.rank
    }

    /// Returns the number of ranks.
    pub(super) fn count(&self) -> usize {
        self.ranks
    }

    /// Returns whether another rank prints the error with which this one ends.
    pub(super) fn is_silent(&self) -> bool {
        let early = &self.early;
        let is_own = early.is_own() && early.rank() != Some(0);
        let is_of_all = self.is_taken && self.rank > 0 && !early.is_broken() && !is_own;
        self.is_silent || is_of_all
    }

    /// Returns whether other ranks may wait for this one, after a panic or not. Ranks that a panic dropped have taken part in the last
    /// agreement.
    pub(super) fn is_awaited(&self, has_panicked: bool) -> bool {
        self.early.is_broken() || has_panicked && !self.is_taken
    }

    /// Returns this rank's value if all ranks have one. Of the ranks that have an error, the lowest prints it.
    ///
    /// # Errors
    /// The error of this rank; [`Error::Unavailable`] that names the lowest rank with an error if this one has none.
    pub(super) fn agree<T>(&mut self, own: Result<T>) -> Result<T> {
        let number = if own.is_ok() { self.ranks } else { self.rank };
        let failed = self.world().least(number as u64)? as usize;
        if failed == self.ranks {
            return own;
        }
        self.is_silent = failed != self.rank;
        let why = "it ended early, and its own message says why".to_owned();
        own.and(Err(Error::Unavailable { what: format!("rank {failed}"), why }))
    }

    /// Returns the bytes of rank 0 at all ranks; those of others are not used.
    ///
    /// # Errors
    /// Errors of the connection.
    pub(super) fn share(&mut self, mut bytes: Vec<u8>) -> Result<Vec<u8>> {
        let mut world = self.world();
        let length = world.least(if self.rank == 0 { bytes.len() as u64 } else { u64::MAX })?;
        let what = "the bytes that rank 0 shares";
        if self.rank == 0 {
            let to_others = (1..self.ranks).map(|to| Message::Send { to, bytes: &bytes });
            world.transfer(to_others, DATA, what);
        } else {
            bytes = vec![0; length as usize];
            let message = Message::Receive { from: 0, bytes: &mut bytes };
            world.transfer(std::iter::once(message), DATA, what);
        }
        Ok(bytes)
    }

    /// Returns the bytes of all ranks at rank 0, in ascending order; `None` at the others.
    ///
    /// # Errors
    /// Errors of the connection.
    pub(super) fn gather(&mut self, own: Vec<u8>) -> Result<Option<Vec<Vec<u8>>>> {
        self.world().gather(own)
    }

    /// Calls `work` as [`super::Group::until_all_end`] does.
    pub(super) fn until_all_end<T>(
        &mut self,
        work: impl FnOnce(&(dyn Fn() -> bool + Sync)) -> (T, End),
    ) -> T {
        let ends = Mutex::new(Ends { world: self.world(), received: 0, early: None });
        let is_early = || ends.lock().unwrap_or_else(PoisonError::into_inner).early().is_some();
        let (done, end) = work(&is_early);
        let mut ends = ends.into_inner().unwrap_or_else(PoisonError::into_inner);
        ends.send(end);
        ends.wait();
        done
    }

    /// Returns the ranks, for a library call that divides its work.
    ///
    /// # Errors
    /// [`Error::Unavailable`] for a second correlator; as [`Ranks::new`].
    pub(crate) fn ranks(&mut self) -> Result<Ranks> {
        if std::mem::replace(&mut self.is_taken, true) {
            let why = "the work of a run can be divided only once".to_owned();
            return Err(Error::Unavailable { what: "MPI".to_owned(), why });
        }
        let world = World { asks: Cell::new(true), ..self.world() };
        let ranks = Ranks::new(Box::new(world))?;
        self.early = ranks.early_end();
        Ok(ranks)
    }

    /// Waits until all processes leave.
    pub(crate) fn leave(self) {
        // Rank 0 may write for longer than a run without work is left alone after a signal.
        interrupt::waits_for_ranks(true);
        // The drop finalizes MPI, which waits for all.
        drop(self.universe);
    }

    /// Ends all processes, of which some may wait for this one.
    pub(crate) fn abort(&self, exit: Exit) -> ! {
        self.universe.world().abort(exit as i32)
    }
}

/// Notices by which each rank learns that another has ended its share of the work, and how.
struct Ends {
    world: World,
    received: usize,
    /// First early end of another rank.
    early: Option<End>,
}

impl Ends {
    /// Sends a notice to all other ranks.
    fn send(&mut self, end: End) {
        let bytes = [end as u8];
        let others = (0..self.world.ranks).filter(|to| *to != self.world.rank);
        let messages = others.map(|to| Message::Send { to, bytes: &bytes });
        self.world.transfer(messages, END, "the notice of its end");
    }

    /// Takes the notices that have arrived; returns the first early end of another rank. After the stop of one, this rank is asked
    /// to stop, too.
    fn early(&mut self) -> Option<End> {
        let world = SimpleCommunicator::world();
        if self.world.take_requests() {
            self.early.get_or_insert(End::Stopped);
        }
        while let Some((message, _)) = world.any_process().immediate_matched_probe_with_tag(END) {
            let (end, _) = message.matched_receive::<u8>();
            self.received += 1;
            let end = End::of(end);
            if end == End::Stopped {
                interrupt::stop_with_ranks();
            }
            if end != End::Done {
                self.early.get_or_insert(end);
            }
        }
        self.early
    }

    /// Waits for the notices of all other ranks, which may write their products for a while. After a stop request, asks them to stop.
    fn wait(mut self) {
        let mut has_asked = false;
        interrupt::waits_for_ranks(true);
        loop {
            self.early();
            if self.received + 1 == self.world.ranks {
                break;
            }
            if interrupt::is_stopping() && !std::mem::replace(&mut has_asked, true) {
                self.world.ask_to_stop();
            }
            thread::sleep(LONGEST);
        }
        interrupt::waits_for_ranks(false);
    }
}

/// All processes of the run.
struct World {
    rank: usize,
    ranks: usize,
    /// Whether this rank asks the others to stop after a stop request: once.
    asks: Cell<bool>,
    /// Time at which rank 0 said last that it works.
    said: Cell<Option<Instant>>,
}

/// Progress of an operation since its last test.
#[derive(Clone, Copy, Debug)]
enum Progress {
    Done,
    /// Some bytes have arrived.
    Moved,
    Waits,
}

impl Progress {
    fn of(is_done: bool) -> Self {
        if is_done { Self::Done } else { Self::Waits }
    }
}

/// Message of an operation.
enum Message<'a> {
    Send { to: usize, bytes: &'a [u8] },
    Receive { from: usize, bytes: &'a mut [u8] },
}

impl World {
    /// Sends and receives all messages.
    fn transfer<'a>(&self, messages: impl Iterator<Item = Message<'a>>, tag: i32, what: &str) {
        let world = SimpleCommunicator::world();
        request::multiple_scope(2 * self.ranks, |scope, requests| {
            for message in messages {
                match message {
                    Message::Send { to, bytes } => {
                        let to = world.process_at_rank(to as i32);
                        for piece in bytes.chunks(MOST_BYTES) {
                            requests.add(to.immediate_send_with_tag(scope, piece, tag));
                        }
                    }
                    Message::Receive { from, bytes } => {
                        let from = world.process_at_rank(from as i32);
                        for piece in bytes.chunks_mut(MOST_BYTES) {
                            requests.add(from.immediate_receive_into_with_tag(scope, piece, tag));
                        }
                    }
                }
            }
            let mut arrived = Vec::new();
            self.wait(what, || {
                if requests.incomplete() > 0 {
                    requests.test_some(&mut arrived);
                }
                match (requests.incomplete(), arrived.is_empty()) {
                    (0, _) => Progress::Done,
                    (_, false) => Progress::Moved,
                    (_, true) => Progress::Waits,
                }
            });
        });
    }

    /// Tests an operation until it is complete. Does not return if it is not, some time after a stop request: other ranks
    /// have ended then.
    fn wait(&self, what: &str, mut test: impl FnMut() -> Progress) {
        let (mut spins, mut pause, mut asked) = (SPINS, SHORTEST, None);
        interrupt::waits_for_ranks(true);
        loop {
            match test() {
                Progress::Done => break,
                Progress::Moved => (spins, pause, asked) = (SPINS, SHORTEST, None),
                Progress::Waits => {}
            }
            if spins > 0 {
                spins -= 1;
                thread::yield_now();
            } else {
                thread::sleep(pause);
                pause = LONGEST.min(2 * pause);
            }
            if interrupt::is_stopping() && self.asks.replace(false) {
                self.ask_to_stop();
            }
            if interrupt::is_stopping() && self.take_signs() {
                asked = None;
            }
            if interrupt::is_stopping() && asked.get_or_insert_with(Instant::now).elapsed() > GRACE
            {
                fault!(
                    "rank {} gave up {what}: other ranks did not answer within {} s of the signal to stop.",
                    self.rank,
                    GRACE.as_secs()
                );
                interrupt::log_end(Exit::Interrupted);
                SimpleCommunicator::world().abort(Exit::Interrupted as i32);
            }
        }
        interrupt::waits_for_ranks(false);
    }

    /// Takes the requests to stop of other ranks; returns whether there were any. This rank is asked to stop, too.
    fn take_requests(&self) -> bool {
        let (world, mut are_any) = (SimpleCommunicator::world(), false);
        while let Some(status) = world.any_process().immediate_probe_with_tag(STOP) {
            let from = world.process_at_rank(status.source_rank());
            from.receive_into_with_tag(&mut [0_u8], STOP);
            interrupt::stop_with_ranks();
            are_any = true;
        }
        are_any
    }

    /// Takes the messages by which rank 0 says that it works; returns whether there were any.
    fn take_signs(&self) -> bool {
        let (world, mut are_any) = (SimpleCommunicator::world(), false);
        let first = world.process_at_rank(0);
        while first.immediate_probe_with_tag(WORKS).is_some() {
            first.receive_into_with_tag(&mut [0_u8], WORKS);
            are_any = true;
        }
        are_any
    }

    /// Says at rank 0, which may write for a while, that it works although it makes no calls.
    fn say_that_it_works(&self) {
        let is_due = self.said.get().is_none_or(|last| last.elapsed() >= WORKS_EVERY);
        if self.rank == 0 && interrupt::is_stopping() && is_due {
            self.said.set(Some(Instant::now()));
            self.send_to_others(WORKS);
        }
    }

    /// Asks the other ranks to stop: one of them may wait for data without a call of its own.
    fn ask_to_stop(&self) {
        self.send_to_others(STOP);
    }

    /// Sends the others a message that its tag explains.
    fn send_to_others(&self, tag: i32) {
        let world = SimpleCommunicator::world();
        // So short a message is sent without a receiver.
        let others = (0..self.ranks).filter(|rank| *rank != self.rank);
        others.for_each(|rank| world.process_at_rank(rank as i32).send_with_tag(&[1_u8], tag));
    }
}

/// Splits bytes into those of each rank.
fn split<'a>(mut bytes: &'a [u8], each: &[usize]) -> Vec<&'a [u8]> {
    let mut parts = Vec::with_capacity(each.len());
    for length in each {
        let (own, rest) = bytes.split_at(*length);
        parts.push(own);
        bytes = rest;
    }
    parts
}

/// As [`split`], for bytes to change.
fn split_mut<'a>(mut bytes: &'a mut [u8], each: &[usize]) -> Vec<&'a mut [u8]> {
    let mut parts = Vec::with_capacity(each.len());
    for length in each {
        let (own, rest) = bytes.split_at_mut(*length);
        parts.push(own);
        bytes = rest;
    }
    parts
}

impl Exchange for World {
    fn rank(&self) -> usize {
        self.rank
    }

    fn ranks(&self) -> usize {
        self.ranks
    }

    fn all_to_all(
        &mut self,
        send: &[u8],
        send_bytes: &[usize],
        receive: &mut [u8],
        receive_bytes: &[usize],
    ) -> Result<()> {
        let is_other = |rank: usize| rank != self.rank;
        let received = split_mut(receive, receive_bytes).into_iter().enumerate();
        let received = received.filter(|(rank, _)| is_other(*rank));
        let received = received.map(|(from, bytes)| Message::Receive { from, bytes });
        let sent = split(send, send_bytes).into_iter().enumerate();
        let sent = sent.filter(|(rank, _)| is_other(*rank));
        let sent = sent.map(|(to, bytes)| Message::Send { to, bytes });
        // Messages that are expected when they arrive are not copied twice.
        self.transfer(received.chain(sent), DATA, "the exchange of spectra");
        Ok(())
    }

    fn least(&mut self, value: u64) -> Result<u64> {
        let mut least = 0_u64;
        request::scope(|scope| {
            let world = SimpleCommunicator::world();
            let minimum = SystemOperation::min();
            let begun = world.immediate_all_reduce_into(scope, &value, &mut least, minimum);
            let mut pending = Some(begun);
            self.wait("an agreement", || {
                pending = pending.take().and_then(|request| request.test().err());
                Progress::of(pending.is_none())
            });
        });
        Ok(least)
    }

    fn gather(&mut self, own: Vec<u8>) -> Result<Option<Vec<Vec<u8>>>> {
        let what = "the gathering at rank 0";
        if self.rank > 0 {
            let length = (own.len() as u64).to_ne_bytes();
            let send = |bytes| std::iter::once(Message::Send { to: 0, bytes });
            self.transfer(send(&length), LENGTH, what);
            self.transfer(send(&own), DATA, what);
            return Ok(None);
        }
        let mut lengths = vec![[0; 8]; self.ranks];
        let places = lengths.iter_mut().enumerate().skip(1);
        let messages = places.map(|(from, bytes)| Message::Receive { from, bytes });
        self.transfer(messages, LENGTH, what);
        let length = |bytes: &[u8; 8]| u64::from_ne_bytes(*bytes) as usize;
        let mut all = vec![own];
        all.extend(lengths[1..].iter().map(|bytes| vec![0; length(bytes)]));
        let places = all.iter_mut().enumerate().skip(1);
        let messages = places.map(|(from, bytes)| Message::Receive { from, bytes });
        self.transfer(messages, DATA, what);
        Ok(Some(all))
    }

    fn idle(&mut self) {
        self.take_requests();
        self.say_that_it_works();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_split_among_ranks() {
        let mut bytes = [0_u8, 1, 2, 3, 4, 5];
        let each = [2, 0, 3, 1];
        let expected: [&[u8]; 4] = [&[0, 1], &[], &[2, 3, 4], &[5]];
        assert_eq!(split(&bytes, &each), expected);
        assert_eq!(split_mut(&mut bytes, &each), expected);
    }

    #[test]
    fn a_piece_has_fewer_bytes_than_a_signed_number_of_32_bits_counts() {
        assert!(i32::try_from(MOST_BYTES).is_ok());
        // 5 GiB are 20480 messages.
        assert_eq!((5_usize << 30).div_ceil(MOST_BYTES), 20_480);
    }
}
