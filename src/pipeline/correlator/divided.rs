//! Correlation divided among ranks: each computes the spectra of its antennas, and multiplies those of all antennas in
//! its channels.
//!
//! Gulp k is exchanged while the F-engine makes gulp k + 1 and the X-engine multiplies gulp k - 1. A rank makes a gulp
//! only once all have agreed on the length of the one before.
//!
//! Invariant: all ranks begin the same calls in the same order.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use num_complex::Complex;

use super::f_engine::{Counts, FEngine, Spectra, Supply};
use super::messages::{GULPS, MessageForm, Messages};
use super::options::Integration;
use super::recordings::Baseline;
use super::x_engine::{Readout, Scales, XEngine};
use crate::correlate::Plan;
use crate::error::{Error, Result};
use crate::pipeline::exchange::{MAX_SPECTRA, Pending, Ranks, State};
use crate::trace::{self, Work};

/// Gulp that is being exchanged.
struct InFlight {
    spectra: Range<u64>,
    pending: Pending<Messages>,
}

/// Spectra of all antennas in this rank's channels.
struct Received {
    spectra: Range<u64>,
    messages: Messages,
}

/// Outcome of making a gulp.
pub(super) enum Made {
    /// Spectra, at least one.
    Spectra,
    /// None: a live observation has ended; the number of all its spectra.
    Ended(u64),
    /// None, because of an error or a request to stop.
    Failed(Error),
}

/// One rank of a divided correlation.
pub(super) struct Divided {
    ranks: Ranks,
    form: Arc<MessageForm>,
    /// Spectrum that the next gulp begins with.
    sent: u64,
    in_flight: VecDeque<InFlight>,
    /// Gulp whose length is not yet agreed, the last one in flight.
    unsettled: Option<Made>,
    available: Option<Received>,
    spare: Vec<Messages>,
    /// Error that ends the run after the spectra already exchanged.
    fault: Option<Error>,
    /// Whether this rank was asked to stop.
    is_stopping: bool,
    /// Counts of all antennas and recordings, at rank 0 and after an integration.
    counts: Counts,
    part: Integration,
    /// Inverse gains of all antennas in this rank's channels.
    inverse: Option<Vec<f64>>,
    /// Seconds of waiting for other ranks.
    elapsed_s: f64,
}

impl Divided {
    pub(super) fn new(ranks: Ranks, form: Arc<MessageForm>) -> Self {
        Self {
            ranks,
            form,
            sent: 0,
            in_flight: VecDeque::with_capacity(GULPS),
            unsettled: None,
            available: None,
            spare: Vec::new(),
            fault: None,
            is_stopping: false,
            counts: Counts::default(),
            part: Integration::new(),
            inverse: None,
            elapsed_s: 0.0,
        }
    }

    fn plan(&self) -> &Plan {
        self.form.plan()
    }

    /// Returns counts of all antennas and recordings, up to the last integration.
    pub(super) fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Takes the seconds of waiting since the last call.
    pub(super) fn take_elapsed_s(&mut self) -> f64 {
        std::mem::take(&mut self.elapsed_s)
    }

    /// Returns the end of the available spectra, if they hold number `next`.
    pub(super) fn available(&self, next: u64) -> Option<u64> {
        let received = self.available.as_ref().filter(|own| own.spectra.contains(&next));
        received.map(|own| own.spectra.end)
    }

    /// Returns the spectrum that the next gulp to make begins with, after [`Divided::settle`]; `None` if no gulp is to be
    /// made now.
    pub(super) fn next_gulp(&self, spectra: u64) -> Option<u64> {
        let is_wanted = self.fault.is_none() && !self.is_full() && self.sent < spectra;
        is_wanted.then_some(self.sent)
    }

    /// Returns whether no further gulp is to be made before one was received.
    pub(super) fn is_full(&self) -> bool {
        self.in_flight.len() >= GULPS
    }

    /// Asks all ranks to stop, at their next gulp.
    pub(super) fn stop(&mut self) {
        self.is_stopping = true;
    }

    /// Returns whether this rank was asked to stop.
    pub(super) fn is_stopping(&self) -> bool {
        self.is_stopping
    }

    /// As [`Ranks::finish_correlation`].
    pub(super) fn finish(&mut self) {
        self.ranks.finish_correlation();
    }

    /// As [`Ranks::finish`].
    pub(super) fn finish_all(&mut self) {
        self.ranks.finish();
    }

    /// As [`Ranks::pass_on`].
    pub(super) fn pass_on(self) -> Result<Ranks> {
        self.ranks.pass_on()
    }

    /// As [`Ranks::leave`].
    pub(super) fn leave(&mut self) {
        self.ranks.leave();
    }

    /// Gives the F-engine messages with space for `times` spectra.
    pub(super) fn prepare(&mut self, f_engine: &mut FEngine, times: usize) {
        self.spare.extend(self.available.take().map(|used| used.messages));
        let mut messages =
            self.spare.pop().unwrap_or_else(|| Messages::new(Arc::clone(&self.form)));
        messages.set_times(times);
        f_engine.spectra = Spectra::Messages(messages);
    }

    /// Begins to exchange the gulp that the F-engine has made, once all ranks have agreed on its length.
    ///
    /// # Errors
    /// As [`Ranks::begin_agreed`].
    pub(super) fn send(&mut self, f_engine: &mut FEngine, made: Made) -> Result<()> {
        let first = self.sent;
        let (state, end) = match &made {
            Made::Spectra => (State::GoesOn, f_engine.made.end),
            Made::Ended(_) => (State::GoesOn, first),
            Made::Failed(fault) if fault.is_stop() => (State::Stopped, 0),
            Made::Failed(_) => (State::Failed, 0),
        };
        let empty = Spectra::Messages(Messages::new(Arc::clone(&self.form)));
        let Spectra::Messages(mut messages) = std::mem::replace(&mut f_engine.spectra, empty)
        else {
            return Err(Error::Shape { what: "messages of a gulp", expected: 1, actual: 0 });
        };
        let times = end.saturating_sub(first) as usize;
        let channels = f_engine.parts.channels.order.len();
        messages.set_mask(times, channels, f_engine.parts.mask(first..first + times as u64));
        let pending = self.ranks.begin_agreed(state, end, move |exchange, agreed| {
            let _span = trace::span(Work::Exchange, "exchange between ranks");
            messages.exchange(exchange, times, (agreed - first) as usize)?;
            Ok(messages)
        })?;
        self.in_flight.push_back(InFlight { spectra: first..end, pending });
        self.unsettled = Some(made);
        Ok(())
    }

    /// Waits until all ranks have made the last gulp that was sent, and shortens it to the spectra that all have. Returns
    /// the number of spectra of the correlation, of which `spectra` is an upper bound, if a live observation has ended.
    ///
    /// If this or another rank has failed or stopped, [`Divided::receive`] returns the error after all earlier gulps.
    ///
    /// # Errors
    /// As [`Ranks::settle`]; the error of a rank that is gone.
    pub(super) fn settle(&mut self, f_engine: &mut FEngine, spectra: u64) -> Result<Option<u64>> {
        let Some(made) = self.unsettled.take() else { return Ok(None) };
        let begin = Instant::now();
        let Some(agreement) = self.ranks.settle()? else { return Ok(None) };
        self.elapsed_s += begin.elapsed().as_secs_f64();
        let end = match agreement.check() {
            Ok(agreement) => agreement.number,
            Err(other) => {
                f_engine.shorten(self.sent);
                self.in_flight.pop_back();
                let fault = if let Made::Failed(own) = made { own } else { other };
                if agreement.state == State::Gone {
                    return Err(fault);
                }
                self.fault = Some(fault);
                return Ok(None);
            }
        };
        f_engine.shorten(end);
        if let Some(gulp) = self.in_flight.back_mut() {
            gulp.spectra.end = end;
        }
        if end > self.sent {
            self.sent = end;
            return Ok(None);
        }
        // A gulp without spectra means that the observation has ended at a rank.
        if let Some(empty) = self.in_flight.pop_back() {
            self.spare.push(self.ranks.wait(empty.pending)?);
        }
        let own = if let Made::Ended(own) = made { own } else { spectra };
        self.ranks.least(own.min(MAX_SPECTRA)).map(|least| Some(least.max(self.sent)))
    }

    /// Waits for the next gulp of all antennas; returns false if none is being exchanged.
    ///
    /// # Errors
    /// The error that ends the run, once all gulps before it were returned; as [`Ranks::wait`].
    pub(super) fn receive(&mut self) -> Result<bool> {
        let begin = Instant::now();
        self.spare.extend(self.available.take().map(|used| used.messages));
        let Some(InFlight { spectra, pending }) = self.in_flight.pop_front() else {
            return self.fault.take().map_or(Ok(false), Err);
        };
        let messages = self.ranks.wait(pending)?;
        self.available = Some(Received { spectra, messages });
        self.elapsed_s += begin.elapsed().as_secs_f64();
        Ok(true)
    }

    /// Returns `times` available spectra of all antennas from number `first` on.
    ///
    /// # Errors
    /// [`Error::Shape`] for spectra that are not available.
    pub(super) fn supply(&self, first: u64, times: usize) -> Result<Supply<'_>> {
        let Some(Received { spectra, messages }) = &self.available else {
            return Err(Error::Shape { what: "spectra received", expected: times, actual: 0 });
        };
        let skipped = (first - spectra.start) as usize;
        let mask = messages.mask(skipped..skipped + times);
        Ok(Supply::Host { spectra: messages.received(skipped, times)?, mask })
    }

    /// Reads out the integration of all ranks; at other ranks than 0 it stays empty. Every gulp must be settled.
    ///
    /// # Errors
    /// As [`Ranks::agree`] and [`XEngine::read`].
    pub(super) fn read(
        &mut self,
        f_engine: &FEngine,
        x_engine: &mut XEngine,
        readout: &Readout,
        baselines: &[Baseline],
        integration: &mut Integration,
    ) -> Result<()> {
        let begin = Instant::now();
        // Gains that are known at all ranks do not change.
        let is_known = u64::from(self.inverse.is_some());
        if self.ranks.agree(State::GoesOn, is_known)?.check()?.number == 0 {
            let inverse = self.inverse_gains(f_engine)?;
            self.inverse = f_engine.is_final().then(|| inverse.clone());
            self.elapsed_s += begin.elapsed().as_secs_f64();
            self.read_scaled(Some(inverse), x_engine, readout, baselines)?;
        } else {
            self.elapsed_s += begin.elapsed().as_secs_f64();
            self.read_scaled(self.inverse.clone(), x_engine, readout, baselines)?;
        }
        let begin = Instant::now();
        let gathered = self.gather(f_engine)?;
        let outputs = self.form.division().outputs.last().map_or(0, |own| own.end);
        let Some(all) = gathered else {
            integration.clear(0, 0, 0);
            self.elapsed_s += begin.elapsed().as_secs_f64();
            return Ok(());
        };
        // The parts of all ranks overwrite everything.
        integration.resize(baselines.len(), outputs, self.plan().pairs());
        self.counts = Counts::default();
        for (rank, bytes) in all.iter().enumerate() {
            self.place(rank, bytes, baselines.len(), integration)?;
        }
        self.elapsed_s += begin.elapsed().as_secs_f64();
        Ok(())
    }

    /// Reads out this rank's part of the integration, if all ranks can.
    fn read_scaled(
        &mut self,
        inverse: Option<Vec<f64>>,
        x_engine: &mut XEngine,
        readout: &Readout,
        baselines: &[Baseline],
    ) -> Result<()> {
        let form = Arc::clone(&self.form);
        let scales = Scales::new(form.plan(), readout, inverse);
        let read = x_engine.read(&scales, baselines, &mut self.part);
        let begin = Instant::now();
        let state = if read.is_ok() { State::GoesOn } else { State::Gone };
        let agreement = self.ranks.agree(state, 0)?;
        self.elapsed_s += begin.elapsed().as_secs_f64();
        read?;
        agreement.check().map(drop)
    }

    /// Returns the inverse gains of all antennas in this rank's channels; axes antenna, polarization, channel.
    fn inverse_gains(&mut self, f_engine: &FEngine) -> Result<Vec<f64>> {
        let division = self.form.division();
        let sizes = division.sizes(8, self.plan().polarizations());
        let mut send: Vec<f64> = Vec::new();
        let mut receive = vec![0.0; sizes.receive.iter().sum::<usize>() / 8];
        let place: usize = sizes.receive[..division.own].iter().sum::<usize>() / 8;
        for (rank, runs) in division.channels.iter().enumerate() {
            let own = f_engine.inverse_gains(runs);
            match rank == division.own {
                true => receive[place..][..own.len()].copy_from_slice(&own),
                false => send.extend(own),
            }
        }
        self.ranks.call(move |exchange| {
            let (from, to) = (bytemuck::cast_slice(&send), bytemuck::cast_slice_mut(&mut receive));
            exchange.all_to_all(from, &sizes.send, to, &sizes.receive)?;
            Ok(receive)
        })
    }

    /// Gathers the counts and this rank's part of an integration at rank 0.
    fn gather(&mut self, f_engine: &FEngine) -> Result<Option<Vec<Vec<u8>>>> {
        let Counts { masked, saturated, not_finite } = f_engine.counts();
        let mut bytes: Vec<u8> = Vec::new();
        for numbers in [&masked, &saturated, &not_finite] {
            bytes.extend_from_slice(bytemuck::cast_slice(numbers));
        }
        // Rank 0 places its own part without a message.
        if self.ranks.own() > 0 {
            bytes.extend_from_slice(bytemuck::cast_slice(&self.part.counts));
            bytes.extend_from_slice(bytemuck::cast_slice(&self.part.sums));
        }
        self.ranks.call(move |exchange| exchange.gather(bytes))
    }

    /// Adds what a rank has sent to the integration and the counts.
    fn place(
        &mut self,
        rank: usize,
        bytes: &[u8],
        baselines: usize,
        integration: &mut Integration,
    ) -> Result<()> {
        let division = self.form.division();
        let (antennas, own) = (division.antennas[rank].len(), &division.outputs[rank]);
        let (outputs, pairs) = (integration.counts.len() / baselines, self.plan().pairs());
        let (counts, sums) = (8 * own.len(), 16 * own.len() * pairs);
        let is_own = rank == division.own;
        let part = if is_own { 0 } else { baselines * (counts + sums) };
        let rest = part + 16 * antennas;
        let recordings = bytes.len().saturating_sub(rest);
        if bytes.len() < rest || !recordings.is_multiple_of(8) {
            let what = "integration of a rank (bytes)";
            return Err(Error::Shape { what, expected: rest, actual: bytes.len() });
        }
        let (masked, bytes) = bytes.split_at(8 * antennas);
        let (saturated, bytes) = bytes.split_at(8 * antennas);
        let (not_finite, bytes) = bytes.split_at(recordings);
        self.counts.masked.extend(bytemuck::pod_collect_to_vec::<u8, u64>(masked));
        self.counts.saturated.extend(bytemuck::pod_collect_to_vec::<u8, u64>(saturated));
        let not_finite: Vec<u64> = bytemuck::pod_collect_to_vec(not_finite);
        let all = &mut self.counts.not_finite;
        all.resize(not_finite.len(), 0);
        // Several ranks may read a recording of several antennas.
        all.iter_mut().zip(not_finite).for_each(|(most, own)| *most = own.max(*most));
        let own_part = || -> (&[u8], &[u8]) {
            (bytemuck::cast_slice(&self.part.counts), bytemuck::cast_slice(&self.part.sums))
        };
        let (all_counts, all_sums) =
            if is_own { own_part() } else { bytes.split_at(baselines * counts) };
        let to = integration.counts.chunks_exact_mut(outputs);
        for (to, from) in to.zip(all_counts.chunks_exact(counts)) {
            let to: &mut [u8] = bytemuck::cast_slice_mut(&mut to[own.clone()]);
            to.copy_from_slice(from);
        }
        let to = integration.sums.chunks_exact_mut(outputs * pairs);
        for (to, from) in to.zip(all_sums.chunks_exact(sums)) {
            let to: &mut [Complex<f64>] = &mut to[own.start * pairs..own.end * pairs];
            bytemuck::cast_slice_mut::<_, u8>(to).copy_from_slice(from);
        }
        Ok(())
    }
}
