//! Correlation divided among ranks: each computes the spectra of its antennas, and multiplies those of all antennas in
//! its channels.
//!
//! Gulp k is exchanged while the F-engine makes gulp k + 1 and the X-engine multiplies gulp k - 1. A rank makes a gulp
//! only once all have agreed on the length of the one before. A GPU's spectra are corrected and copied to the host after this
//! agreement, because only then their number is final.
//!
//! Invariant: all ranks begin the same calls in the same order.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use num_complex::Complex;

use super::device_messages::DeviceReceiver;
use super::division::{GULPS, MessageForm};
use super::f_engine::{Counts, FEngine, Spectra, Supply};
use super::messages::Messages;
use super::options::Integration;
use super::recordings::Baseline;
use super::x_engine::{Readout, Scales, XEngine};
use crate::correlate::Plan;
use crate::error::{Error, Result};
use crate::pipeline::exchange::{MAX_SPECTRA, Pending, Ranks, State};
use crate::trace::{self, Work};

/// Gulp that was made and is not yet received.
struct InFlight {
    spectra: Range<u64>,
    delivery: Delivery,
}

/// State of the messages of a gulp.
enum Delivery {
    /// They wait for the agreement on the number of a GPU's spectra; `None` if it makes none.
    Prepared(Option<Messages>),
    /// They are being exchanged.
    Begun(Pending<Messages>),
}

/// Messages and X-engine's input of a rank whose GPU computes the spectra.
pub(super) struct DeviceCornerTurn {
    pub(super) messages: Vec<Messages>,
    pub(super) receiver: DeviceReceiver,
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
    /// Messages of the gulp that a GPU makes next.
    prepared: Option<Messages>,
    /// None if the host computes the spectra.
    receiver: Option<DeviceReceiver>,
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
    /// Divides a correlation; `on_device` is there if GPUs compute the spectra of all ranks.
    pub(super) fn new(
        ranks: Ranks,
        form: Arc<MessageForm>,
        on_device: Option<DeviceCornerTurn>,
    ) -> Self {
        let (spare, receiver) = match on_device {
            Some(DeviceCornerTurn { messages, receiver }) => (messages, Some(receiver)),
            None => (Vec::new(), None),
        };
        Self {
            ranks,
            form,
            sent: 0,
            in_flight: VecDeque::with_capacity(GULPS),
            unsettled: None,
            available: None,
            spare,
            prepared: None,
            receiver,
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

    /// Prepares messages with space for `times` spectra, into which the F-engine of the host writes.
    ///
    /// # Errors
    /// [`Error::Shape`] if a GPU has no messages left.
    pub(super) fn prepare(&mut self, f_engine: &mut FEngine, times: usize) -> Result<()> {
        self.recycle();
        let spare = self.spare.pop();
        if self.receiver.is_some() {
            let lacking = Error::Shape { what: "messages of a gulp", expected: 1, actual: 0 };
            let mut messages = spare.ok_or(lacking)?;
            messages.set_times(times);
            self.prepared = Some(messages);
        } else {
            let mut messages = spare.unwrap_or_else(|| Messages::new(Arc::clone(&self.form)));
            messages.set_times(times);
            f_engine.spectra = Spectra::Messages(messages);
        }
        Ok(())
    }

    /// Makes the messages of the available spectra free for another gulp.
    fn recycle(&mut self) {
        let Some(Received { mut messages, .. }) = self.available.take() else { return };
        if let Some(receiver) = &self.receiver
            && let Ok(blocks) = messages.blocks()
        {
            receiver.release(blocks);
        }
        self.spare.push(messages);
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
        let delivery = if self.receiver.is_some() {
            self.ranks.begin_agreed(state, end, |_, _| Ok(()))?;
            Delivery::Prepared(self.prepared.take())
        } else {
            Delivery::Begun(self.begin_of_host(f_engine, state, end)?)
        };
        self.in_flight.push_back(InFlight { spectra: first..end, delivery });
        self.unsettled = Some(made);
        Ok(())
    }

    /// Begins to exchange spectra up to number `end` that the host has computed.
    fn begin_of_host(
        &mut self,
        f_engine: &mut FEngine,
        state: State,
        end: u64,
    ) -> Result<Pending<Messages>> {
        let first = self.sent;
        let empty = Spectra::Messages(Messages::new(Arc::clone(&self.form)));
        let Spectra::Messages(mut messages) = std::mem::replace(&mut f_engine.spectra, empty)
        else {
            return Err(Error::Shape { what: "messages of a gulp", expected: 1, actual: 0 });
        };
        let times = end.saturating_sub(first) as usize;
        let channels = f_engine.parts.channels.order.len();
        messages.set_mask(times, channels, f_engine.parts.mask(first..first + times as u64));
        self.ranks.begin_agreed(state, end, move |exchange, agreed| {
            let _span = trace::span(Work::Exchange, "exchange between ranks");
            messages.exchange(exchange, times, (agreed - first) as usize)?;
            Ok(messages)
        })
    }

    /// Begins to exchange spectra that a GPU has computed, whose number all ranks have agreed on. A GPU that fails is an error of the
    /// exchange at all ranks.
    fn begin_of_device(
        &self,
        f_engine: &mut FEngine,
        spectra: &Range<u64>,
        mut messages: Messages,
    ) -> Pending<Messages> {
        let times = (spectra.end - spectra.start) as usize;
        let channels = f_engine.parts.channels.order.len();
        messages.set_mask(times, channels, f_engine.parts.mask(spectra.clone()));
        let sent = f_engine.send(spectra.start, times, &mut messages);
        let validity = messages.validity();
        let ready = |messages: &mut Messages| sent.and_then(|()| messages.ready());
        self.ranks.begin_ready(messages, validity, ready, |mut messages, exchange, validity| {
            let _span = trace::span(Work::Exchange, "exchange between ranks");
            messages.exchange_of_device(exchange, validity)?;
            Ok(messages)
        })
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
        let gulp = self.in_flight.pop_back();
        if end > self.sent {
            let spectra = self.sent..end;
            let delivery = match gulp.map(|gulp| gulp.delivery) {
                Some(Delivery::Prepared(Some(messages))) => {
                    Some(Delivery::Begun(self.begin_of_device(f_engine, &spectra, messages)))
                }
                other => other,
            };
            self.in_flight.extend(delivery.map(|delivery| InFlight { spectra, delivery }));
            self.sent = end;
            return Ok(None);
        }
        // A gulp without spectra means that the observation has ended at a rank.
        match gulp.map(|empty| empty.delivery) {
            Some(Delivery::Begun(pending)) => self.spare.push(self.ranks.wait(pending)?),
            Some(Delivery::Prepared(messages)) => self.spare.extend(messages),
            None => {}
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
        self.recycle();
        let Some(InFlight { spectra, delivery }) = self.in_flight.pop_front() else {
            return self.fault.take().map_or(Ok(false), Err);
        };
        let Delivery::Begun(pending) = delivery else {
            return Err(Error::Shape { what: "messages exchanged", expected: 1, actual: 0 });
        };
        let messages = self.ranks.wait(pending)?;
        self.available = Some(Received { spectra, messages });
        self.elapsed_s += begin.elapsed().as_secs_f64();
        Ok(true)
    }

    /// Returns `times` available spectra of all antennas from number `first` on.
    ///
    /// # Errors
    /// [`Error::Shape`] for spectra that are not available; errors of a device.
    pub(super) fn supply(&mut self, first: u64, times: usize) -> Result<Supply<'_>> {
        let Some(Received { spectra, messages }) = &mut self.available else {
            return Err(Error::Shape { what: "spectra received", expected: times, actual: 0 });
        };
        let skipped = (first - spectra.start) as usize;
        let bits = skipped..skipped + times;
        let Some(receiver) = &mut self.receiver else {
            let spectra = messages.received(skipped, times)?;
            return Ok(Supply::Host { spectra, mask: messages.mask(bits) });
        };
        let ordinal = receiver.device().ordinal();
        let masked = receiver.set_mask(times, messages.mask(bits));
        let supply = masked.and_then(|()| receiver.supply(messages.blocks()?, skipped, times));
        supply.map(Supply::Received).map_err(|error| error.on_device(ordinal))
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
            integration.resize(0, 0, 0);
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
