//! Correlation divided among ranks: each computes the spectra of its antennas, and multiplies those of all antennas in
//! its channels.
//!
//! Gulp k is exchanged while the F-engine makes gulp k + 1 and the X-engine multiplies gulp k - 1.
//!
//! Invariant: the messages that a rank receives, one after another, are the spectra of all antennas in its channels, in
//! the order of a single process.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Instant;

use num_complex::Complex;

use super::exchange::{Pending, Ranks, State};
use super::f_engine::{Counts, FEngine, Spectra, Supply};
use super::options::Integration;
use super::recordings::{Baseline, Channels};
use super::x_engine::{Readout, Scales, XEngine};
use crate::correlate::{self, Plan, Rows};
use crate::error::{Error, Result};
use crate::trace::{self, Work};
use crate::voltage::Voltages;

/// Largest number of gulps that are exchanged, or are still to be multiplied, at the same time.
const GULPS: usize = 2;

/// Antennas and channels of each rank.
#[derive(Clone, Debug)]
pub(super) struct Division {
    own: usize,
    /// Antennas of each rank, by their place among all correlated ones.
    antennas: Vec<Range<usize>>,
    /// Output channels of each rank, by ascending sky frequency.
    outputs: Vec<Range<usize>>,
    /// Correlated channels of each rank in ascending order, as runs.
    channels: Vec<Vec<Range<usize>>>,
}

impl Division {
    /// Divides antennas and channels into equal parts. Channels averaged into one output channel have the same rank.
    ///
    /// # Errors
    /// [`Error::Parameter`] for more ranks than antennas or output channels.
    pub(super) fn new(ranks: &Ranks, antennas: usize, channels: &Channels) -> Result<Self> {
        let (own, count, outputs) = (ranks.own(), ranks.count(), channels.centres_hz.len());
        for (number, what) in [(antennas, "antennas"), (outputs, "channels")] {
            if count > number {
                let rule = format!("each rank needs at least one of the {number} {what}");
                return Err(Error::parameter("ranks", count, rule));
            }
        }
        let parts = |number: usize| -> Vec<Range<usize>> {
            (0..count).map(|rank| number * rank / count..number * (rank + 1) / count).collect()
        };
        let outputs = parts(outputs);
        let own_channels = |outputs: &Range<usize>| {
            let average = channels.average;
            runs(&channels.order[outputs.start * average..outputs.end * average])
        };
        let channels = outputs.iter().map(own_channels).collect();
        Ok(Self { own, antennas: parts(antennas), outputs, channels })
    }

    /// Returns the antennas of this rank.
    pub(super) fn antennas(&self) -> Range<usize> {
        self.antennas[self.own].clone()
    }

    /// Returns the number of correlated channels of a rank.
    fn count(&self, rank: usize) -> usize {
        self.channels[rank].iter().map(ExactSizeIterator::len).sum()
    }

    /// Returns the plan of this rank's F-engine, or of its X-engine, of a plan of all antennas and channels.
    ///
    /// # Errors
    /// As [`Plan::new`].
    pub(super) fn plans(&self, all: &Plan) -> Result<EnginePlans> {
        let of = |antennas: usize, channels: usize| {
            let options = correlate::Options { antennas, channels, ..all.options().clone() };
            Plan::new(options).map(|plan| plan.with_precision(all.precision()))
        };
        Ok(EnginePlans {
            f_engine: of(self.antennas().len(), all.channels())?,
            x_engine: of(all.antennas(), self.count(self.own))?,
        })
    }

    /// Returns the division of sums and counts into this rank's output channels.
    pub(super) fn readout(&self, channels: &Channels) -> Readout {
        Readout::part(channels, &self.channels[self.own], &self.outputs[self.own])
    }

    /// Returns the bytes of all messages of gulps, and of an integration; `None` if the count overflows.
    pub(super) fn bytes(
        &self,
        plans: &EnginePlans,
        gulp: usize,
        visibilities: usize,
    ) -> Option<usize> {
        let of = |plan: &Plan| {
            let spectra = plan.inputs() * plan.channels() * plan.encoding().sample_bits() / 8;
            let mask = 8 * plan.antennas() * plan.channels() * Plan::mask_words(gulp);
            spectra.checked_mul(gulp)?.checked_add(mask)
        };
        let received = of(&plans.x_engine)?.checked_mul(GULPS)?;
        // The sums of each rank, and at rank 0 those of all.
        let gathered = if self.own == 0 { visibilities } else { visibilities / self.outputs.len() };
        of(&plans.f_engine)?.checked_add(received)?.checked_add(gathered)
    }

    /// Returns the sizes of the messages of a gulp.
    fn sizes(&self, unit: usize, antenna: usize) -> Sizes {
        let ranks = 0..self.antennas.len();
        let size =
            |from: usize, to: usize| self.antennas[from].len() * antenna * self.count(to) * unit;
        let to = |rank| if rank == self.own { 0 } else { size(self.own, rank) };
        Sizes {
            send: ranks.clone().map(to).collect(),
            receive: ranks.map(|rank| size(rank, self.own)).collect(),
        }
    }
}

/// Plans of the engines of a process.
pub(super) struct EnginePlans {
    pub(super) f_engine: Plan,
    pub(super) x_engine: Plan,
}

/// Returns numbers as runs of consecutive ones, in ascending order.
fn runs(numbers: &[usize]) -> Vec<Range<usize>> {
    let mut sorted = numbers.to_vec();
    sorted.sort_unstable();
    let mut runs: Vec<Range<usize>> = Vec::new();
    for number in sorted {
        match runs.last_mut() {
            Some(run) if run.end == number => run.end += 1,
            _ => runs.push(number..number + 1),
        }
    }
    runs
}

/// Bytes of the messages to and from each rank.
#[derive(Clone, Debug)]
struct Sizes {
    send: Vec<usize>,
    receive: Vec<usize>,
}

impl Sizes {
    /// Returns the place of each message in the buffers to send and to receive.
    fn split<'a>(&self, own: usize, parcels: Parcels<'a>) -> Vec<&'a mut [u8]> {
        let (mut send, mut receive) = (parcels.send, parcels.receive);
        let mut messages = Vec::with_capacity(self.send.len());
        for (rank, (sent, received)) in self.send.iter().zip(&self.receive).enumerate() {
            let (head, rest) = std::mem::take(&mut send).split_at_mut(*sent);
            send = rest;
            let (place, rest) = std::mem::take(&mut receive).split_at_mut(*received);
            receive = rest;
            messages.push(if rank == own { place } else { head });
        }
        messages
    }
}

/// Buffers of the same data, to send and to receive.
struct Parcels<'a> {
    send: &'a mut [u8],
    receive: &'a mut [u8],
}

/// Messages of a gulp to or from all ranks: spectra, and words of the validity mask.
#[derive(Default)]
struct Parcel {
    bytes: Vec<u8>,
    mask: Vec<u64>,
}

/// Gulp in the buffers of an exchange.
struct Exchanged {
    send: Parcel,
    receive: Parcel,
    /// Whether any rank has invalid spectra.
    is_masked: bool,
}

/// Gulp that is being exchanged.
struct InFlight {
    spectra: Range<u64>,
    pending: Pending<Exchanged>,
}

/// Spectra of all antennas in this rank's channels.
struct Received {
    spectra: Range<u64>,
    parcel: Parcel,
    is_masked: bool,
}

/// One rank of a divided correlation.
pub(super) struct Divided {
    ranks: Ranks,
    division: Division,
    /// Plan of this rank's X-engine.
    plan: Plan,
    /// Whether spectra are streams of recorded voltages.
    is_direct: bool,
    /// Spectrum that the next gulp begins with.
    sent: u64,
    in_flight: VecDeque<InFlight>,
    available: Option<Received>,
    send: Option<Parcel>,
    spare: Vec<Parcel>,
    /// Error that ends the run after the spectra already exchanged.
    fault: Option<Error>,
    /// Whether this rank was asked to stop.
    is_stopping: bool,
    /// Counts of all antennas and recordings, at rank 0 and after an integration.
    counts: Counts,
    part: Integration,
    /// Seconds of packing messages and of waiting for other ranks.
    elapsed_s: f64,
}

impl Divided {
    pub(super) fn new(ranks: Ranks, division: Division, plan: Plan, is_direct: bool) -> Self {
        Self {
            ranks,
            division,
            plan,
            is_direct,
            sent: 0,
            in_flight: VecDeque::with_capacity(GULPS),
            available: None,
            send: None,
            spare: Vec::new(),
            fault: None,
            is_stopping: false,
            counts: Counts::default(),
            part: Integration::new(),
            elapsed_s: 0.0,
        }
    }

    /// Returns counts of all antennas and recordings, up to the last integration.
    pub(super) fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Takes the seconds of packing and waiting since the last call.
    pub(super) fn take_elapsed_s(&mut self) -> f64 {
        std::mem::take(&mut self.elapsed_s)
    }

    /// Returns the end of the available spectra, if they hold number `next`.
    pub(super) fn available(&self, next: u64) -> Option<u64> {
        let received = self.available.as_ref().filter(|own| own.spectra.contains(&next));
        received.map(|own| own.spectra.end)
    }

    /// Returns the spectrum that the next gulp to make begins with; `None` if no gulp is to be made now.
    pub(super) fn next_gulp(&self, spectra: u64) -> Option<u64> {
        let is_wanted = self.fault.is_none() && self.in_flight.len() < GULPS && self.sent < spectra;
        is_wanted.then_some(self.sent)
    }

    /// Asks all ranks to stop, at their next gulp.
    pub(super) fn stop(&mut self) {
        self.is_stopping = true;
    }

    /// Returns whether this rank was asked to stop.
    pub(super) fn is_stopping(&self) -> bool {
        self.is_stopping
    }

    /// As [`Ranks::finish`].
    pub(super) fn finish(&mut self) {
        self.ranks.finish();
    }

    /// As [`Ranks::leave`].
    pub(super) fn leave(&mut self) {
        self.ranks.leave();
    }

    /// Begins to exchange the gulp that the F-engine has made, up to the spectrum that all ranks have made; if this or
    /// another rank has failed or stopped, returns the error only after all earlier gulps.
    ///
    /// # Errors
    /// As [`Ranks::agree`]; the error of a rank that is gone.
    pub(super) fn send(&mut self, f_engine: &mut FEngine, made: Result<()>) -> Result<()> {
        let begin = Instant::now();
        let (state, end) = match &made {
            Ok(()) => (State::GoesOn, f_engine.made.end),
            Err(fault) if fault.is_stop() => (State::Stopped, 0),
            Err(_) => (State::Failed, 0),
        };
        let agreement = self.ranks.agree(state, end)?;
        let end = match agreement.check() {
            Ok(agreement) => agreement.number,
            Err(other) => {
                f_engine.shorten(self.sent);
                let fault = made.err().unwrap_or(other);
                if agreement.state == State::Gone {
                    return Err(fault);
                }
                self.fault = Some(fault);
                return Ok(());
            }
        };
        f_engine.shorten(end);
        let exchanged = self.pack(f_engine, (end - self.sent) as usize);
        self.begin(end, exchanged);
        self.elapsed_s += begin.elapsed().as_secs_f64();
        Ok(())
    }

    /// Cuts the spectra of this rank's antennas into the messages for all ranks.
    fn pack(&mut self, f_engine: &mut FEngine, times: usize) -> Exchanged {
        let _span = trace::span(Work::Compute, "messages");
        let mut send = self.send.take().unwrap_or_default();
        let mut receive = self.spare.pop().unwrap_or_default();
        let (own, polarizations) = (self.division.own, self.plan.polarizations());
        let size = self.plan.encoding().sample_bits() / 8;
        let sizes = self.division.sizes(times * size, polarizations);
        send.bytes.resize(sizes.send.iter().sum(), 0);
        receive.bytes.resize(sizes.receive.iter().sum(), 0);
        let parcels = Parcels { send: &mut send.bytes, receive: &mut receive.bytes };
        let messages = sizes.split(own, parcels);
        let antennas = self.division.antennas().len();
        match &f_engine.spectra {
            Spectra::Rows(rows) => {
                let each = rows.len() / (antennas * polarizations);
                let inputs = antennas * polarizations;
                let cut = Cut { sample: size, channels: each / size / f_engine.capacity, times };
                self.fill(f_engine, messages, inputs, |input, runs, to| {
                    cut.rows(&rows[input * each..][..each], runs, to);
                });
            }
            Spectra::Streams(block) => {
                let voltages = block.voltages();
                let each = voltages.streams() / antennas;
                self.fill(f_engine, messages, antennas, |antenna, runs, to| {
                    cut_streams(voltages, antenna * each, polarizations, runs, to);
                });
            }
            // Divided correlations make spectra on the host.
            Spectra::Device(_) => {}
        }
        let is_masked = self.pack_mask(f_engine, times, &mut send, &mut receive);
        Exchanged { send, receive, is_masked }
    }

    /// Calls `fill` with each of `units` inputs or antennas, the runs of channels of each rank, and their place in the
    /// message for that rank.
    fn fill(
        &self,
        f_engine: &FEngine,
        messages: Vec<&mut [u8]>,
        units: usize,
        fill: impl Fn(usize, &[Range<usize>], &mut [u8]) + Sync,
    ) {
        let mut pieces: Vec<Piece<'_>> = Vec::with_capacity(units * messages.len());
        for (message, runs) in messages.into_iter().zip(&self.division.channels) {
            let each = message.len() / units;
            let places = message.chunks_exact_mut(each).enumerate();
            pieces.extend(places.map(|(unit, to)| Piece { unit, runs, to }));
        }
        f_engine.threads.for_each(&mut pieces, 1, |_, piece| {
            let Piece { unit, runs, to } = &mut piece[0];
            fill(*unit, runs, to);
        });
    }

    /// Writes the words of the mask into the messages, if any of this rank's spectra are invalid; returns whether they
    /// are.
    fn pack_mask(
        &self,
        f_engine: &FEngine,
        times: usize,
        send: &mut Parcel,
        receive: &mut Parcel,
    ) -> bool {
        let words = Plan::mask_words(times);
        let sizes = self.division.sizes(8 * words, 1);
        send.mask.resize(sizes.send.iter().sum::<usize>() / 8, u64::MAX);
        receive.mask.resize(sizes.receive.iter().sum::<usize>() / 8, u64::MAX);
        let start = f_engine.made.start;
        let Some(fill) = f_engine.parts.mask(start..start + times as u64) else {
            send.mask.fill(u64::MAX);
            receive.mask.fill(u64::MAX);
            return false;
        };
        let row = self.division.antennas().len() * words;
        let mut mask = vec![0; f_engine.parts.channels.order.len() * row];
        fill(&mut mask);
        let parcels = Parcels {
            send: bytemuck::cast_slice_mut(&mut send.mask),
            receive: bytemuck::cast_slice_mut(&mut receive.mask),
        };
        let messages = sizes.split(self.division.own, parcels);
        for (message, runs) in messages.into_iter().zip(&self.division.channels) {
            let own = runs.iter().flat_map(|run| &mask[run.start * row..run.end * row]);
            message.chunks_exact_mut(8).zip(own).for_each(|(to, word)| {
                to.copy_from_slice(&word.to_ne_bytes());
            });
        }
        true
    }

    /// Begins to exchange the messages of the spectra up to number `end`.
    fn begin(&mut self, end: u64, exchanged: Exchanged) {
        let spectra = self.sent..end;
        let times = (end - self.sent) as usize;
        let size = self.plan.encoding().sample_bits() / 8;
        let spectra_sizes = self.division.sizes(times * size, self.plan.polarizations());
        let mask_sizes = self.division.sizes(8 * Plan::mask_words(times), 1);
        let pending = self.ranks.begin(move |exchange| {
            let Exchanged { send, mut receive, is_masked } = exchanged;
            let _span = trace::span(Work::Exchange, "exchange between ranks");
            let Sizes { send: sent, receive: received } = spectra_sizes;
            exchange.all_to_all(&send.bytes, &sent, &mut receive.bytes, &received)?;
            let is_masked = exchange.least(u64::from(!is_masked))? == 0;
            if is_masked {
                let Sizes { send: sent, receive: received } = mask_sizes;
                let (from, to) =
                    (bytemuck::cast_slice(&send.mask), bytemuck::cast_slice_mut(&mut receive.mask));
                exchange.all_to_all(from, &sent, to, &received)?;
            }
            Ok(Exchanged { send, receive, is_masked })
        });
        self.in_flight.push_back(InFlight { spectra, pending });
        self.sent = end;
    }

    /// Waits for the next gulp of all antennas.
    ///
    /// # Errors
    /// The error that ends the run, once all gulps before it were returned; as [`Ranks::wait`].
    pub(super) fn receive(&mut self) -> Result<()> {
        let begin = Instant::now();
        if let Some(used) = self.available.take() {
            self.spare.push(used.parcel);
        }
        let Some(InFlight { spectra, pending }) = self.in_flight.pop_front() else {
            return Err(self.fault.take().unwrap_or_else(|| Error::stopped("voltages")));
        };
        let Exchanged { send, receive, is_masked } = self.ranks.wait(pending)?;
        self.send = Some(send);
        self.available = Some(Received { spectra, parcel: receive, is_masked });
        self.elapsed_s += begin.elapsed().as_secs_f64();
        Ok(())
    }

    /// Returns `times` available spectra of all antennas from number `first` on.
    ///
    /// # Errors
    /// [`Error::Shape`] for spectra that are not available.
    pub(super) fn supply(&self, first: u64, times: usize) -> Result<Supply<'_>> {
        let Some(Received { spectra, parcel, is_masked }) = &self.available else {
            return Err(Error::Shape { what: "spectra received", expected: times, actual: 0 });
        };
        let skipped = (first - spectra.start) as usize;
        let all = (spectra.end - spectra.start) as usize;
        let (bytes, encoding) = (parcel.bytes.as_slice(), self.plan.encoding());
        let received = match self.is_direct {
            true => {
                let streams = self.plan.inputs() * self.plan.channels();
                let voltages = Voltages::new(bytes, encoding, streams, encoding.bytes(all), all)?;
                correlate::Spectra::Streams(voltages.slice(skipped, times)?)
            }
            false => correlate::Spectra::Rows(Rows { bytes, times: all, first: skipped }),
        };
        let bits = skipped..skipped + times;
        let words = Plan::mask_words(all);
        let mask = is_masked.then(|| {
            let fill = move |mask: &mut [u64]| self.fill_mask(&parcel.mask, words, &bits, mask);
            Box::new(fill) as super::f_engine::FillMask<'_>
        });
        Ok(Supply::Host { spectra: received, mask })
    }

    /// Writes the bits `bits` of received masks (axes rank, channel, antenna of the rank, word) with the axes channel,
    /// antenna, word.
    fn fill_mask(&self, received: &[u64], words: usize, bits: &Range<usize>, mask: &mut [u64]) {
        let (channels, antennas) = (self.plan.channels(), self.plan.antennas());
        let row = Plan::mask_words(bits.len());
        let mut rows = received.chunks_exact(words);
        for own in &self.division.antennas {
            for channel in 0..channels {
                let first = (channel * antennas + own.start) * row;
                let to = mask[first..][..own.len() * row].chunks_exact_mut(row);
                to.zip(rows.by_ref()).for_each(|(to, from)| copy_bits(from, bits, to));
            }
        }
    }

    /// Reads out the integration of all ranks; at other ranks than 0 it stays empty.
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
        self.ranks.agree(State::GoesOn, 0)?.check()?;
        let inverse = self.inverse_gains(f_engine)?;
        let scales = Scales::new(&self.plan, readout, Some(inverse));
        self.elapsed_s += begin.elapsed().as_secs_f64();
        let read = x_engine.read(&scales, baselines, &mut self.part);
        let begin = Instant::now();
        let state = if read.is_ok() { State::GoesOn } else { State::Gone };
        let agreement = self.ranks.agree(state, 0)?;
        read?;
        agreement.check()?;
        let gathered = self.gather(f_engine)?;
        let outputs = self.division.outputs.last().map_or(0, |own| own.end);
        integration.clear(0, 0, 0);
        if let Some(all) = gathered {
            integration.clear(baselines.len(), outputs, self.plan.pairs());
            self.counts = Counts::default();
            for (rank, bytes) in all.iter().enumerate() {
                self.place(rank, bytes, baselines.len(), integration)?;
            }
        }
        self.elapsed_s += begin.elapsed().as_secs_f64();
        Ok(())
    }

    /// Returns the inverse gains of all antennas in this rank's channels; axes antenna, polarization, channel.
    fn inverse_gains(&mut self, f_engine: &FEngine) -> Result<Vec<f64>> {
        let sizes = self.division.sizes(8, self.plan.polarizations());
        let mut send: Vec<f64> = Vec::new();
        let mut receive = vec![0.0; sizes.receive.iter().sum::<usize>() / 8];
        let place: usize = sizes.receive[..self.division.own].iter().sum::<usize>() / 8;
        for (rank, runs) in self.division.channels.iter().enumerate() {
            let own = f_engine.inverse_gains(runs);
            match rank == self.division.own {
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
        for numbers in [&masked, &saturated, &not_finite, &self.part.counts] {
            bytes.extend_from_slice(bytemuck::cast_slice(numbers));
        }
        bytes.extend_from_slice(bytemuck::cast_slice(&self.part.sums));
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
        let (antennas, own) = (self.division.antennas[rank].len(), &self.division.outputs[rank]);
        let (outputs, pairs) = (integration.counts.len() / baselines, self.plan.pairs());
        let (counts, sums) = (8 * own.len(), 16 * own.len() * pairs);
        let rest = baselines * (counts + sums) + 16 * antennas;
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
        let (all_counts, all_sums) = bytes.split_at(baselines * counts);
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

/// Place in a message for the spectra of one input or antenna.
struct Piece<'a> {
    unit: usize,
    runs: &'a [Range<usize>],
    to: &'a mut [u8],
}

/// Form of the rows of one input; axes time, channel.
struct Cut {
    /// Bytes of a sample.
    sample: usize,
    channels: usize,
    times: usize,
}

impl Cut {
    /// Copies the channels of some runs.
    fn rows(&self, from: &[u8], runs: &[Range<usize>], mut to: &mut [u8]) {
        for row in from.chunks_exact(self.channels * self.sample).take(self.times) {
            for run in runs {
                let (head, rest) = to.split_at_mut(run.len() * self.sample);
                head.copy_from_slice(&row[run.start * self.sample..run.end * self.sample]);
                to = rest;
            }
        }
    }
}

/// Copies the channels of some runs of an antenna, whose streams begin with number `first`; axes channel, polarization,
/// time.
fn cut_streams(
    voltages: Voltages<'_>,
    first: usize,
    polarizations: usize,
    runs: &[Range<usize>],
    to: &mut [u8],
) {
    let streams = runs.iter().flat_map(|run| run.start * polarizations..run.end * polarizations);
    let each = to.len() / (runs.iter().map(ExactSizeIterator::len).sum::<usize>() * polarizations);
    for (stream, to) in streams.zip(to.chunks_exact_mut(each)) {
        to.copy_from_slice(&voltages.row(first + stream)[..each]);
    }
}

/// Copies the bits `bits` of a row of words to the start of another; the bits after them become 0.
fn copy_bits(from: &[u64], bits: &Range<usize>, to: &mut [u64]) {
    for (index, word) in to.iter_mut().enumerate() {
        let bit = bits.start + 64 * index;
        let (place, shift) = (bit / 64, bit % 64);
        let next =
            if shift > 0 { from.get(place + 1).map_or(0, |own| own << (64 - shift)) } else { 0 };
        let left = bits.end - bit;
        let mask = if left < 64 { (1 << left) - 1 } else { u64::MAX };
        *word = (from[place] >> shift | next) & mask;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_are_runs_in_ascending_order() {
        assert_eq!(runs(&[5, 4, 3, 9, 10, 0]), [0..1, 3..6, 9..11]);
        assert!(runs(&[]).is_empty());
    }

    #[test]
    fn bits_are_copied_one_by_one() {
        let from = [0x9e37_79b9_7f4a_7c15_u64, 0xdead_beef_0123_4567, 0x0f1e_2d3c_4b5a_6978];
        let bit = |row: &[u64], at: usize| row[at / 64] >> (at % 64) & 1;
        for start in [0_usize, 1, 63, 64, 65, 100] {
            for end in start + 1..=192 {
                let mut to = vec![u64::MAX; (end - start).div_ceil(64)];
                copy_bits(&from, &(start..end), &mut to);
                for at in 0..64 * to.len() {
                    let expected = if at < end - start { bit(&from, start + at) } else { 0 };
                    assert_eq!(bit(&to, at), expected, "{start} {end} {at}");
                }
            }
        }
    }
}
