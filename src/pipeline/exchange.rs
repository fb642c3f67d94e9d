//! Ranks: processes that share one run, and the calls in which all of them take part.
//!
//! Invariant: an agreement precedes every other exchange of data, and a rank that gives up takes part in one last
//! agreement, so no rank waits for one that has given up. If a call itself fails, the process must end the others
//! ([`EarlyEnd::is_broken`]).

use std::ops::Range;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::trace::{self, Work};

/// Time without calls after which an exchange is called idle.
const IDLE: Duration = Duration::from_millis(100);

/// Largest number of ranks.
pub const MAX_RANKS: usize = 1 << RANK_BITS;

/// Largest number of spectra that ranks agree on.
pub(super) const MAX_SPECTRA: u64 = (1 << SPECTRUM_BITS) - 1;

/// Bits of a rank's number, and of a number of spectra, in the value of an agreement.
const RANK_BITS: u32 = 12;
const SPECTRUM_BITS: u32 = 50;

/// Collective calls among the processes of one run, such as those of MPI. All ranks make the same calls in the
/// same order; each call returns when the data of this rank are complete. All machines have the same byte order.
pub trait Exchange: Send {
    /// Returns the number of this rank, from 0.
    fn rank(&self) -> usize;

    /// Returns the number of ranks.
    fn ranks(&self) -> usize;

    /// Sends a message to each other rank and receives one from each. Messages lie one after another in ascending order
    /// of the ranks. A rank sends itself nothing (`send_bytes` has 0 for it): `receive` keeps the bytes in its place.
    ///
    /// # Errors
    /// Errors of the connection.
    fn all_to_all(
        &mut self,
        send: &[u8],
        send_bytes: &[usize],
        receive: &mut [u8],
        receive_bytes: &[usize],
    ) -> Result<()>;

    /// Returns the least value of all ranks.
    ///
    /// # Errors
    /// Errors of the connection.
    fn least(&mut self, value: u64) -> Result<u64>;

    /// Returns the bytes of all ranks at rank 0, in ascending order; `None` at the others.
    ///
    /// # Errors
    /// Errors of the connection.
    fn gather(&mut self, own: Vec<u8>) -> Result<Option<Vec<Vec<u8>>>>;

    /// Is called from time to time while no call is under way, such as to take messages outside of calls. Does not wait.
    fn idle(&mut self) {}
}

/// Early end of a divided run: which rank ended it.
#[derive(Clone, Debug, Default)]
pub struct EarlyEnd(Arc<Mutex<Cause>>);

#[derive(Clone, Copy, Debug, Default)]
struct Cause {
    rank: Option<usize>,
    is_own: bool,
    is_broken: bool,
}

impl EarlyEnd {
    fn cause(&self) -> Cause {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut Cause)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Returns the rank that ended the run, the lowest if several did; `None` if none has.
    pub fn rank(&self) -> Option<usize> {
        self.cause().rank
    }

    /// Returns whether this rank ended the run, alone or together with others.
    pub fn is_own(&self) -> bool {
        self.cause().is_own
    }

    /// Returns whether a call failed, so that other ranks may wait for this one.
    pub fn is_broken(&self) -> bool {
        self.cause().is_broken
    }
}

/// State of a rank in an agreement. The most severe one of all ranks, the first in this list, decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum State {
    /// Takes part in no later call.
    Gone,
    /// Makes no more spectra because of an error.
    Failed,
    /// Makes no more spectra because it was asked to stop.
    Stopped,
    GoesOn,
}

/// Result of an agreement, the same at all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Agreement {
    pub(super) state: State,
    /// Least number that a rank has given, if all go on.
    pub(super) number: u64,
    /// Lowest rank of that state.
    rank: usize,
}

impl Agreement {
    fn encoded(self) -> u64 {
        (self.state as u64) << (RANK_BITS + SPECTRUM_BITS)
            | self.number << RANK_BITS
            | self.rank as u64
    }

    fn decoded(value: u64) -> Self {
        let state = match value >> (RANK_BITS + SPECTRUM_BITS) {
            0 => State::Gone,
            1 => State::Failed,
            2 => State::Stopped,
            _ => State::GoesOn,
        };
        let number = value >> RANK_BITS & ((1 << SPECTRUM_BITS) - 1);
        Self { state, number, rank: (value & (MAX_RANKS as u64 - 1)) as usize }
    }

    /// Agrees with all ranks, within a call: this is the agreement of a rank alone.
    ///
    /// # Errors
    /// Errors of the connection.
    fn among(self, exchange: &mut dyn Exchange) -> Result<Self> {
        exchange.least(self.encoded()).map(Self::decoded)
    }

    /// Fails unless all ranks go on.
    ///
    /// # Errors
    /// [`Error::stopped`], or [`Error::Unavailable`] that names the rank that gave up.
    pub(super) fn check(self) -> Result<Self> {
        if self.state == State::GoesOn { Ok(self) } else { Err(self.failure()) }
    }

    /// Returns the error of an agreement in which not all ranks go on.
    pub(super) fn failure(self) -> Error {
        match self.state {
            State::Stopped | State::GoesOn => Error::stopped("the divided run"),
            State::Failed | State::Gone => Error::Unavailable {
                what: format!("rank {}", self.rank),
                why: "it ended early, and its own message says why".to_owned(),
            },
        }
    }
}

/// Result of an agreement at which some rank was not ready. No rank makes this call or a later one.
struct Unready {
    /// Error of this rank, until it is returned.
    own: Option<Error>,
    agreement: Agreement,
}

/// End of all calls, which the thread that makes them finds; the same at all ranks.
#[derive(Clone, Default)]
struct LastCall(Arc<Mutex<Option<Unready>>>);

impl LastCall {
    fn state(&self) -> MutexGuard<'_, Option<Unready>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Rates of an exchange between ranks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ExchangeRates {
    /// Seconds of an agreement.
    pub agreement_s: f64,
    /// Bytes per second that this rank receives from all others.
    pub received: f64,
}

/// Call for the thread that owns the exchange.
type Order = Box<dyn FnOnce(&mut dyn Exchange) + Send>;

/// Result of a call that the thread makes while this one works.
pub(super) struct Pending<T>(Receiver<Result<T>>);

/// Ranks of a divided run. A thread of its own makes all calls, in the order in which they are begun.
///
/// A rank that drops this value before the end of the run gives up: the others end, too, at their next
/// agreement.
pub struct Ranks {
    own: usize,
    count: usize,
    orders: Option<Sender<Order>>,
    thread: Option<JoinHandle<()>>,
    /// Rank of each recording, if only that one can read it.
    readers: Option<Vec<usize>>,
    /// Whether another correlation may follow.
    repeats: bool,
    /// Agreement that was begun and not waited for, with the state that this rank has declared.
    unsettled: Option<(State, Pending<Agreement>)>,
    /// Whether no rank expects another call.
    is_over: bool,
    last_call: LastCall,
    early: EarlyEnd,
}

impl std::fmt::Debug for Ranks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ranks").field("own", &self.own).field("count", &self.count).finish()
    }
}

impl Ranks {
    /// Starts the thread that makes the calls.
    ///
    /// # Errors
    /// [`Error::Parameter`] for more than [`MAX_RANKS`] ranks; [`Error::Io`] if no thread can be started.
    pub fn new(mut exchange: Box<dyn Exchange>) -> Result<Self> {
        let (own, count) = (exchange.rank(), exchange.ranks());
        if count > MAX_RANKS {
            return Err(Error::parameter(
                "ranks",
                count,
                format!("at most {MAX_RANKS} are possible"),
            ));
        }
        let (orders, received) = channel::<Order>();
        let thread = std::thread::Builder::new().name("exchange".to_owned());
        let work = move || {
            loop {
                match received.recv_timeout(IDLE) {
                    Ok(order) => order(&mut *exchange),
                    Err(RecvTimeoutError::Timeout) => exchange.idle(),
                    Err(RecvTimeoutError::Disconnected) => break,
                }
            }
        };
        let thread = thread.spawn(work);
        let thread = thread.map_err(|error| Error::io("the exchange between ranks", error))?;
        let (orders, thread) = (Some(orders), Some(thread));
        let early = EarlyEnd::default();
        Ok(Self {
            own,
            count,
            orders,
            thread,
            readers: None,
            repeats: false,
            unsettled: None,
            is_over: false,
            last_call: LastCall::default(),
            early,
        })
    }

    /// Returns the number of this rank.
    pub fn own(&self) -> usize {
        self.own
    }

    /// Returns the number of ranks.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Declares that each recording can be read by one rank only; `readers` has the rank of each.
    pub fn read_by(mut self, readers: Vec<usize>) -> Self {
        self.readers = Some(readers);
        self
    }

    /// Declares that other correlations follow, to which
    /// [`into_ranks`](crate::pipeline::correlator::ArrayCorrelator::into_ranks) passes the ranks on. The end of all is declared by
    /// [`Ranks::finish`].
    pub fn repeating(mut self) -> Self {
        self.repeats = true;
        self
    }

    /// Returns the antennas of this rank among `count` correlated ones, if every rank can read all recordings.
    pub fn antennas(&self, count: usize) -> Range<usize> {
        part(count, self.own, self.count)
    }

    /// Returns the rank of each recording, if only that one can read it.
    pub(super) fn readers(&self) -> Option<&[usize]> {
        self.readers.as_deref()
    }

    /// Ends a correlation, once all ranks do; another one may follow.
    ///
    /// # Errors
    /// As [`Ranks::exchange`].
    pub(super) fn pass_on(mut self) -> Result<Self> {
        self.settle()?;
        self.agree(State::GoesOn, 0)?.check()?;
        self.readers = None;
        Ok(self)
    }

    /// Returns the cause of an early end, also after this value is dropped.
    pub fn early_end(&self) -> EarlyEnd {
        self.early.clone()
    }

    /// Begins a call.
    pub(super) fn begin<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut dyn Exchange) -> Result<T> + Send + 'static,
    ) -> Pending<T> {
        let (result, pending) = sync_channel(1);
        let last = self.last_call.clone();
        let order: Order = Box::new(move |exchange| {
            if last.state().is_none() {
                // The caller may have given up.
                let _ = result.send(work(exchange));
            }
        });
        // Without the thread the result is missing, and its reader reports that.
        let _ = self.orders.as_ref().map(|orders| orders.send(order));
        Pending(pending)
    }

    /// Begins a call that is made only if all ranks are ready for it: `ready` of this rank is called when it is due, and the least
    /// `number` of all ranks is passed to `work`. If a rank is not ready, no rank makes this call or a later one.
    pub(super) fn begin_ready<S: Send + 'static, T: Send + 'static>(
        &self,
        mut subject: S,
        number: u64,
        ready: impl FnOnce(&mut S) -> Result<()> + Send + 'static,
        work: impl FnOnce(S, &mut dyn Exchange, u64) -> Result<T> + Send + 'static,
    ) -> Pending<T> {
        let (last, rank) = (self.last_call.clone(), self.own);
        self.begin(move |exchange| {
            let own = ready(&mut subject).err();
            let state = if own.is_none() { State::GoesOn } else { State::Failed };
            let agreement = Agreement { state, number, rank }.among(exchange)?;
            if agreement.state < State::GoesOn {
                *last.state() = Some(Unready { own, agreement });
                return Err(ended());
            }
            work(subject, exchange, agreement.number)
        })
    }

    /// Waits for a call.
    ///
    /// # Errors
    /// The error of the call; no call can follow it. That of this rank, or [`Error::Unavailable`] that names another, if they were not
    /// ready for it.
    pub(super) fn wait<T>(&mut self, pending: Pending<T>) -> Result<T> {
        let lost = |_| {
            let why = "the thread that makes its calls failed".to_owned();
            Err(Error::Unavailable { what: "the exchange between ranks".to_owned(), why })
        };
        let result = pending.0.recv().unwrap_or_else(lost);
        if result.is_ok() {
            return result;
        }
        self.is_over = true;
        let unready = self.last_call.state().as_mut().map(|last| (last.own.take(), last.agreement));
        let Some((own, agreement)) = unready else {
            self.early.change(|cause| (cause.is_own, cause.is_broken) = (true, true));
            return result;
        };
        self.note(if own.is_some() { State::Failed } else { State::GoesOn }, agreement);
        Err(own.unwrap_or_else(|| agreement.failure()))
    }

    /// Makes a call.
    ///
    /// # Errors
    /// As [`Ranks::wait`].
    pub(super) fn call<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(&mut dyn Exchange) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let pending = self.begin(work);
        self.wait(pending)
    }

    /// Agrees with all ranks on going on, and on the least of their numbers. Once a rank is gone, no call follows.
    ///
    /// # Errors
    /// As [`Ranks::wait`]; [`Error::Unavailable`] after the last call.
    pub(super) fn agree(&mut self, state: State, number: u64) -> Result<Agreement> {
        self.check_order()?;
        let own = Agreement { state, number, rank: self.own };
        let agreement = self.call(move |exchange| own.among(exchange))?;
        self.note(state, agreement);
        Ok(agreement)
    }

    /// Begins an agreement, and after it, if all ranks go on, a call with the least of their numbers. [`Ranks::settle`]
    /// must wait for the agreement before any other call.
    ///
    /// # Errors
    /// [`Error::Unavailable`] after the last call.
    pub(super) fn begin_agreed<T: Send + 'static>(
        &mut self,
        state: State,
        number: u64,
        work: impl FnOnce(&mut dyn Exchange, u64) -> Result<T> + Send + 'static,
    ) -> Result<Pending<T>> {
        self.check_order()?;
        let own = Agreement { state, number, rank: self.own };
        let (agreed, unsettled) = sync_channel(1);
        let pending = self.begin(move |exchange| {
            let agreement = own.among(exchange);
            let number = agreement.as_ref().ok().and_then(|own| own.check().ok());
            // The caller may have given up.
            let _ = agreed.send(agreement);
            match number {
                Some(agreement) => work(exchange, agreement.number),
                None => Err(ended()),
            }
        });
        self.unsettled = Some((state, Pending(unsettled)));
        Ok(pending)
    }

    /// Waits for an agreement that was begun; `None` if there is none.
    ///
    /// # Errors
    /// As [`Ranks::wait`].
    pub(super) fn settle(&mut self) -> Result<Option<Agreement>> {
        let Some((state, pending)) = self.unsettled.take() else { return Ok(None) };
        let agreement = self.wait(pending)?;
        self.note(state, agreement);
        Ok(Some(agreement))
    }

    /// Checks that a call may begin.
    fn check_order(&mut self) -> Result<()> {
        if self.is_over || self.unsettled.is_some() { Err(ended()) } else { Ok(()) }
    }

    /// Records the cause of an early end.
    fn note(&mut self, state: State, agreement: Agreement) {
        if agreement.state < State::GoesOn {
            // Later ones follow from the first.
            self.early.change(|cause| {
                if cause.rank.is_none() {
                    cause.rank = Some(agreement.rank);
                    cause.is_own |= state < State::GoesOn;
                }
            });
        }
        self.is_over |= agreement.state == State::Gone;
    }

    /// Agrees on the least of all numbers, below 2^50.
    ///
    /// # Errors
    /// As [`Ranks::agree`] and [`Agreement::check`].
    pub(super) fn least(&mut self, number: u64) -> Result<u64> {
        Ok(self.agree(State::GoesOn, number)?.check()?.number)
    }

    /// Sends each rank its part of `parts`, in ascending order of the ranks, and returns what each rank has sent to this one.
    /// A rank that failed before passes its error.
    ///
    /// # Errors
    /// As [`Ranks::agree`] and [`Agreement::check`]; the error of this rank.
    pub(super) fn exchange(&mut self, parts: Result<Vec<Vec<u8>>>) -> Result<Vec<Vec<u8>>> {
        let (own, count) = (self.own, self.count);
        let mut parts = self.agree_on(parts)?;
        self.call(move |exchange| {
            let _span = trace::span(Work::Exchange, "exchange between ranks");
            let kept = std::mem::take(&mut parts[own]);
            let send_bytes: Vec<usize> = parts.iter().map(Vec::len).collect();
            let lengths: Vec<u64> = send_bytes.iter().map(|bytes| *bytes as u64).collect();
            let without_own = |bytes: &[u64]| [&bytes[..own], &bytes[own + 1..]].concat();
            let each: Vec<usize> = (0..count).map(|rank| 8 * usize::from(rank != own)).collect();
            // A rank sends itself nothing, and has a place for its own number.
            let (sent, mut received) = (without_own(&lengths), vec![0_u64; count]);
            let to = bytemuck::cast_slice_mut(&mut received);
            exchange.all_to_all(bytemuck::cast_slice(&sent), &each, to, &vec![8; count])?;
            received[own] = 0;
            let receive_bytes: Vec<usize> = received.iter().map(|bytes| *bytes as usize).collect();
            let mut receive = vec![0; receive_bytes.iter().sum()];
            exchange.all_to_all(&parts.concat(), &send_bytes, &mut receive, &receive_bytes)?;
            let mut rest = &receive[..];
            let mut all: Vec<Vec<u8>> = Vec::with_capacity(count);
            for bytes in receive_bytes {
                let (part, after) = rest.split_at(bytes);
                all.push(part.to_vec());
                rest = after;
            }
            all[own] = kept;
            Ok(all)
        })
    }

    /// Returns the bytes of all ranks, in ascending order, at each of them. A rank that failed before passes its error.
    ///
    /// # Errors
    /// As [`Ranks::exchange`].
    pub(super) fn share(&mut self, own: Result<Vec<u8>>) -> Result<Vec<Vec<u8>>> {
        let count = self.count;
        self.exchange(own.map(|bytes| vec![bytes; count]))
    }

    /// Returns the bytes of all ranks at rank 0, in ascending order; nothing at the others. The ranks must have agreed on
    /// going on.
    ///
    /// # Errors
    /// As [`Ranks::wait`].
    pub(super) fn gather(&mut self, own: Vec<u8>) -> Result<Vec<Vec<u8>>> {
        let all = self.call(move |exchange| {
            let _span = trace::span(Work::Exchange, "gathering at rank 0");
            exchange.gather(own)
        });
        Ok(all?.unwrap_or_default())
    }

    /// Measures the exchange with messages of `bytes` bytes between each two ranks, once each has made `calls` calls.
    ///
    /// # Errors
    /// As [`Ranks::agree_on`].
    pub fn measure(&mut self, bytes: usize, calls: usize) -> Result<ExchangeRates> {
        self.agree_on(Ok(()))?;
        let (own, count) = (self.own, self.count);
        let rates = self.call(move |exchange| {
            let begin = Instant::now();
            for _ in 0..calls {
                exchange.least(0)?;
            }
            let agreement_s = begin.elapsed().as_secs_f64() / calls as f64;
            let mut each = vec![bytes; count];
            let mut receive = vec![0; count * bytes];
            each[own] = 0;
            let send = vec![own as u8; (count - 1) * bytes];
            let receive_bytes = vec![bytes; count];
            let begin = Instant::now();
            for _ in 0..calls {
                exchange.all_to_all(&send, &each, &mut receive, &receive_bytes)?;
            }
            let seconds = begin.elapsed().as_secs_f64() / calls as f64;
            let senders = receive.chunks_exact(bytes.max(1)).enumerate();
            let is_right =
                |rank: usize, part: &[u8]| rank == own || part.iter().all(|own| *own == rank as u8);
            let are_right = senders.into_iter().all(|(rank, part)| is_right(rank, part));
            let received = ((count - 1) * bytes) as f64 / seconds;
            Ok((are_right, ExchangeRates { agreement_s, received }))
        });
        let (are_right, rates) = rates?;
        let why = "bytes of an exchange between ranks arrived changed".to_owned();
        let changed = || Error::Unavailable { what: "MPI".to_owned(), why };
        self.agree_on(are_right.then_some(rates).ok_or_else(changed))
    }

    /// Agrees on going on, unless one of the ranks passes an error; returns the result of this rank.
    ///
    /// # Errors
    /// The error of this rank; [`Error::stopped`] if another was asked to stop, [`Error::Unavailable`] that names a rank that has failed;
    /// errors of the exchange.
    pub fn agree_on<T>(&mut self, own: Result<T>) -> Result<T> {
        let state = match &own {
            Ok(_) => State::GoesOn,
            Err(error) if error.is_stop() => State::Stopped,
            Err(_) => State::Failed,
        };
        let agreement = self.agree(state, 0);
        let own = own?;
        agreement?.check().map(|_| own)
    }

    /// Declares that no rank expects another call.
    pub fn finish(&mut self) {
        self.is_over = true;
    }

    /// Declares that no rank expects another call of this correlation.
    pub(super) fn finish_correlation(&mut self) {
        self.is_over |= !self.repeats;
    }

    /// Gives up: takes part in one last agreement, unless no rank expects it.
    pub(super) fn leave(&mut self) {
        // An agreement that fails is the last one.
        let _ = self.settle();
        if !self.is_over {
            // An error is recorded in the cause of the early end.
            let _ = self.agree(State::Gone, 0);
            self.is_over = true;
        }
    }
}

impl Drop for Ranks {
    fn drop(&mut self) {
        self.leave();
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Returns one of `count` equal parts of numbers, such as the antennas of a rank.
pub fn part(number: usize, part: usize, count: usize) -> Range<usize> {
    number * part / count..number * (part + 1) / count
}

/// Makes the error of a call after the last one.
fn ended() -> Error {
    let what = "the exchange between ranks".to_owned();
    Error::Unavailable { what, why: "it has ended".to_owned() }
}

/// Checks that numbers of spectra fit into the value of an agreement.
///
/// # Errors
/// [`Error::Parameter`] for 2^50 spectra or more.
pub(super) fn check_spectra(spectra: u64) -> Result<()> {
    if spectra >> SPECTRUM_BITS == 0 {
        return Ok(());
    }
    let rule = format!("ranks correlate fewer than 2^{SPECTRUM_BITS}");
    Err(Error::parameter("spectra", spectra, rule))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_severe_state_decides_and_then_the_least_number() {
        let value = |state, number, rank| Agreement { state, number, rank }.encoded();
        let most = (1 << SPECTRUM_BITS) - 1;
        let cases = [
            ([value(State::GoesOn, 7, 0), value(State::GoesOn, 5, 1)], (State::GoesOn, 5, 1)),
            (
                [value(State::GoesOn, most, 3), value(State::GoesOn, most, 1)],
                (State::GoesOn, most, 1),
            ),
            (
                [value(State::GoesOn, 0, 0), value(State::Stopped, 0, 4095)],
                (State::Stopped, 0, 4095),
            ),
            ([value(State::Failed, 0, 2), value(State::Gone, 0, 3)], (State::Gone, 0, 3)),
            ([value(State::Failed, 0, 2), value(State::Failed, 0, 1)], (State::Failed, 0, 1)),
        ];
        for ([a, b], (state, number, rank)) in cases {
            assert_eq!(Agreement::decoded(a.min(b)), Agreement { state, number, rank });
        }
        let gone = Agreement { state: State::Gone, number: 0, rank: 3 };
        assert!(gone.check().unwrap_err().to_string().contains("rank 3"));
    }

    /// A rank alone, whose calls fail after some.
    struct Alone(usize);

    impl Exchange for Alone {
        fn rank(&self) -> usize {
            0
        }

        fn ranks(&self) -> usize {
            1
        }

        fn all_to_all(&mut self, _: &[u8], _: &[usize], _: &mut [u8], _: &[usize]) -> Result<()> {
            Ok(())
        }

        fn least(&mut self, value: u64) -> Result<u64> {
            assert!(self.0 > 0, "a call after the last one");
            self.0 -= 1;
            if self.0 == 0 { Err(Error::stopped("a test")) } else { Ok(value) }
        }

        fn gather(&mut self, own: Vec<u8>) -> Result<Option<Vec<Vec<u8>>>> {
            Ok(Some(vec![own]))
        }
    }

    #[test]
    fn a_call_that_fails_is_the_last_one() {
        let mut ranks = Ranks::new(Box::new(Alone(2))).unwrap();
        let early = ranks.early_end();
        assert_eq!(ranks.least(8).unwrap(), 8);
        assert!(!early.is_broken() && early.rank().is_none());
        assert!(ranks.least(8).unwrap_err().is_stop());
        assert!(ranks.least(8).unwrap_err().to_string().contains("has ended"));
        drop(ranks);
        assert!(early.is_broken() && early.is_own());
    }

    #[test]
    fn a_stop_is_no_failure() {
        let mut ranks = Ranks::new(Box::new(Alone(8))).unwrap();
        let stopped = ranks.agree_on::<()>(Err(Error::stopped("a test")));
        assert!(stopped.unwrap_err().is_stop());
        let agreement = ranks.agree(State::Stopped, 0).unwrap();
        assert!(agreement.check().unwrap_err().is_stop());
    }

    #[test]
    fn a_call_that_a_rank_is_not_ready_for_is_the_last_one() {
        let mut ranks = Ranks::new(Box::new(Alone(2))).unwrap();
        let early = ranks.early_end();
        let ready = |_: &mut ()| Err(Error::stopped("a GPU"));
        let work = |(), _: &mut dyn Exchange, _| -> Result<()> { panic!("a call of no rank") };
        let failed = ranks.begin_ready((), 1, ready, work);
        let later = ranks.begin(|_| -> Result<()> { panic!("a later call") });
        assert!(ranks.wait(failed).unwrap_err().is_stop());
        // A caller that has waited for the other call before has the error that names the rank.
        assert!(ranks.wait(later).unwrap_err().to_string().contains("rank 0"));
        drop(ranks);
        assert_eq!((early.rank(), early.is_own(), early.is_broken()), (Some(0), true, false));
    }

    #[test]
    fn a_rank_that_is_dropped_takes_part_once_more() {
        let ranks = Ranks::new(Box::new(Alone(2))).unwrap();
        let early = ranks.early_end();
        drop(ranks);
        assert_eq!((early.rank(), early.is_own(), early.is_broken()), (Some(0), true, false));
    }
}
