//! Spectra of one gulp as messages to ranks: how antennas and channels are divided, and the buffers that antennas write
//! their spectra into while these are in the cache.
//!
//! Invariant: the messages that a rank receives, one after another, are the spectra of all antennas in its channels, in
//! the order of a single process.

use std::ops::Range;
use std::sync::Arc;

use super::recordings::Channels;
use crate::backend::resize_in_huge_pages;
use crate::correlate::{self, Plan, Rows};
use crate::error::{Error, Result};
use crate::pipeline::exchange::{Exchange, Ranks, part};
use crate::voltage::Voltages;

/// Largest number of gulps whose messages are being written, exchanged or multiplied.
pub(super) const GULPS: usize = 2;

/// Function that writes a validity mask; axes channel, antenna, word.
pub(super) type FillMask<'a> = Box<dyn Fn(&mut [u64]) + 'a>;

/// Antennas and channels of each rank.
#[derive(Clone, Debug)]
pub(super) struct Division {
    pub(super) own: usize,
    /// Antennas of each rank, by their place among all correlated ones.
    pub(super) antennas: Vec<Range<usize>>,
    /// Output channels of each rank, by ascending sky frequency.
    pub(super) outputs: Vec<Range<usize>>,
    /// Correlated channels of each rank in ascending order, as runs.
    pub(super) channels: Vec<Vec<Range<usize>>>,
}

impl Division {
    /// Divides channels into equal parts, and antennas, unless `owners` has the rank of each. Channels averaged into one
    /// output channel have the same rank.
    ///
    /// # Errors
    /// [`Error::Parameter`] for more ranks than antennas or output channels, or a rank without antennas.
    pub(super) fn new(
        ranks: &Ranks,
        antennas: usize,
        owners: Option<&[usize]>,
        channels: &Channels,
    ) -> Result<Self> {
        let (own, count, outputs) = (ranks.own(), ranks.count(), channels.centres_hz.len());
        for (number, what) in [(antennas, "antennas"), (outputs, "channels")] {
            if count > number {
                let rule = format!("each rank needs at least one of the {number} {what}");
                return Err(Error::parameter("ranks", count, rule));
            }
        }
        let outputs = parts(outputs, count);
        let own_channels = |outputs: &Range<usize>| {
            let average = channels.average;
            runs(&channels.order[outputs.start * average..outputs.end * average])
        };
        let channels = outputs.iter().map(own_channels).collect();
        let antennas = match owners {
            None => parts(antennas, count),
            Some(owners) => {
                let first = |rank: usize| owners.partition_point(|owner| *owner < rank);
                (0..count).map(|rank| first(rank)..first(rank + 1)).collect()
            }
        };
        if let Some(idle) = antennas.iter().position(Range::is_empty) {
            let rule = "each rank reads at least one antenna";
            return Err(Error::parameter("rank without antennas", idle, rule));
        }
        Ok(Self { own, antennas, outputs, channels })
    }

    /// Returns the antennas of this rank.
    pub(super) fn antennas(&self) -> Range<usize> {
        self.antennas[self.own].clone()
    }

    /// Returns the number of correlated channels of a rank.
    fn count(&self, rank: usize) -> usize {
        self.channels[rank].iter().map(ExactSizeIterator::len).sum()
    }

    /// Returns the plans of this rank's F-engine and X-engine, from the plan of all antennas and channels.
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

    /// Returns the sizes of messages of `unit` bytes for each channel of each of an antenna's `rows`.
    pub(super) fn sizes(&self, unit: usize, rows: usize) -> Sizes {
        let ranks = 0..self.antennas.len();
        let size =
            |from: usize, to: usize| self.antennas[from].len() * rows * self.count(to) * unit;
        let to = |rank| if rank == self.own { 0 } else { size(self.own, rank) };
        Sizes {
            own: self.own,
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

/// Divides numbers into equal parts.
fn parts(number: usize, count: usize) -> Vec<Range<usize>> {
    (0..count).map(|index| part(number, index, count)).collect()
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

/// Bytes of the messages to and from each rank. A rank sends itself nothing: its own message is written into the buffer
/// to receive.
#[derive(Clone, Debug)]
pub(super) struct Sizes {
    own: usize,
    pub(super) send: Vec<usize>,
    pub(super) receive: Vec<usize>,
}

impl Sizes {
    /// Returns the message for each rank in the buffers to send and to receive.
    fn split<'a>(&self, mut send: &'a mut [u8], mut receive: &'a mut [u8]) -> Vec<&'a mut [u8]> {
        let mut messages = Vec::with_capacity(self.send.len());
        for (rank, (sent, received)) in self.send.iter().zip(&self.receive).enumerate() {
            let (head, rest) = std::mem::take(&mut send).split_at_mut(*sent);
            send = rest;
            let (place, rest) = std::mem::take(&mut receive).split_at_mut(*received);
            receive = rest;
            messages.push(if rank == self.own { place } else { head });
        }
        messages
    }
}

/// Form of the messages of all gulps.
#[derive(Debug)]
pub(super) struct MessageForm {
    division: Division,
    /// Plan of this rank's X-engine.
    plan: Plan,
    /// Whether spectra are streams of recorded voltages.
    is_direct: bool,
    /// Bytes of a sample.
    sample: usize,
}

impl MessageForm {
    pub(super) fn new(division: Division, plan: Plan, is_direct: bool) -> Self {
        let sample = plan.encoding().sample_bits() / 8;
        Self { division, plan, is_direct, sample }
    }

    pub(super) fn division(&self) -> &Division {
        &self.division
    }

    /// Returns the plan of this rank's X-engine.
    pub(super) fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Returns the sizes of the messages of `times` spectra.
    fn sizes(&self, times: usize) -> Sizes {
        self.division.sizes(times * self.sample, self.plan.polarizations())
    }

    /// Returns the sizes of the messages with the validity mask of `times` spectra.
    fn mask_sizes(&self, times: usize) -> Sizes {
        self.division.sizes(8 * Plan::mask_words(times), 1)
    }

    /// Returns the bytes of the messages of all gulps in memory, of `times` spectra each, and of an integration of
    /// `visibilities` bytes; `None` if the count overflows.
    pub(super) fn bytes(&self, times: usize, visibilities: usize) -> Option<usize> {
        let each = self.sizes(1);
        let masks = self.mask_sizes(times);
        let all = |sizes: &Sizes| sizes.send.iter().chain(&sizes.receive).sum::<usize>();
        let gulp = all(&each).checked_mul(times)?.checked_add(all(&masks))?;
        // The sums of each rank, and at rank 0 those of all.
        let Division { own, outputs, .. } = &self.division;
        let gathered = if *own == 0 { visibilities } else { visibilities / outputs.len() };
        gulp.checked_mul(GULPS)?.checked_add(gathered)
    }

    /// Returns the bytes of one spectrum in a row of messages for a rank: rows are those of an antenna and polarization,
    /// or of a stream.
    fn row(&self, rank: usize) -> usize {
        if self.is_direct { self.sample } else { self.division.count(rank) * self.sample }
    }
}

/// Buffers for the messages of a gulp, to send and to receive.
#[derive(Debug, Default)]
struct Buffers {
    send: Vec<u8>,
    receive: Vec<u8>,
    send_mask: Vec<u64>,
    receive_mask: Vec<u64>,
}

/// Spectra of a gulp as messages: those of this rank's antennas to all ranks, and after the exchange those of all antennas
/// in this rank's channels.
#[derive(Debug)]
pub(super) struct Messages {
    form: Arc<MessageForm>,
    /// Spectra that the messages have space for.
    times: usize,
    buffers: Buffers,
    /// Whether any rank has invalid spectra; before the exchange, whether this rank has.
    is_masked: bool,
}

/// One antenna's spectra in the message for one rank.
#[derive(Debug)]
pub(super) struct Part<'a> {
    /// Channels of the rank.
    runs: &'a [Range<usize>],
    /// Axes polarization, time, channel; of recorded voltages channel, polarization, time.
    bytes: &'a mut [u8],
}

/// One antenna's spectra in the messages for all ranks.
#[derive(Debug)]
pub(super) struct Parts<'a> {
    all: Vec<Part<'a>>,
    /// Spectra that the messages have space for.
    times: usize,
    /// Bytes of a sample, and of a spectrum of one polarization and all channels.
    sample: usize,
    row: usize,
}

impl Messages {
    /// Makes messages without space.
    pub(super) fn new(form: Arc<MessageForm>) -> Self {
        Self { form, times: 0, buffers: Buffers::default(), is_masked: false }
    }

    pub(super) fn is_direct(&self) -> bool {
        self.form.is_direct
    }

    /// Sets the number of spectra that the messages have space for. Their contents become undefined.
    pub(super) fn set_times(&mut self, times: usize) {
        let Sizes { send, receive, .. } = self.form.sizes(times);
        resize_in_huge_pages(&mut self.buffers.send, send.iter().sum());
        resize_in_huge_pages(&mut self.buffers.receive, receive.iter().sum());
        self.times = times;
    }

    /// Returns the parts of each antenna of this rank; `channels` is the number of all.
    pub(super) fn antennas(&mut self, channels: usize) -> Vec<Parts<'_>> {
        let Self { form, times, buffers, .. } = self;
        let division = &form.division;
        let antennas = division.antennas().len();
        let empty = || Parts {
            all: Vec::with_capacity(division.antennas.len()),
            times: *times,
            sample: form.sample,
            row: channels * form.sample,
        };
        let mut parts: Vec<Parts<'_>> = (0..antennas).map(|_| empty()).collect();
        let messages = form.sizes(*times).split(&mut buffers.send, &mut buffers.receive);
        for (message, runs) in messages.into_iter().zip(&division.channels) {
            let each = message.len() / antennas;
            for (own, bytes) in parts.iter_mut().zip(message.chunks_exact_mut(each.max(1))) {
                own.all.push(Part { runs, bytes });
            }
        }
        parts
    }

    /// Writes the mask of the first `times` spectra into the messages. `fill` writes that of this rank's antennas, with
    /// the axes channel, antenna, word; `None` if all are valid. `channels` is the number of all.
    pub(super) fn set_mask(&mut self, times: usize, channels: usize, fill: Option<FillMask<'_>>) {
        let words = Plan::mask_words(times);
        let sizes = self.form.mask_sizes(times);
        let Buffers { send_mask: send, receive_mask: receive, .. } = &mut self.buffers;
        send.resize(sizes.send.iter().sum::<usize>() / 8, u64::MAX);
        receive.resize(sizes.receive.iter().sum::<usize>() / 8, u64::MAX);
        self.is_masked = fill.is_some();
        let Some(fill) = fill else {
            send.fill(u64::MAX);
            receive.fill(u64::MAX);
            return;
        };
        let row = self.form.division.antennas().len() * words;
        let mut mask = vec![0; channels * row];
        fill(&mut mask);
        let (send, receive) = (bytemuck::cast_slice_mut(send), bytemuck::cast_slice_mut(receive));
        let messages = sizes.split(send, receive);
        for (message, runs) in messages.into_iter().zip(&self.form.division.channels) {
            let own = runs.iter().flat_map(|run| &mask[run.start * row..run.end * row]);
            message.chunks_exact_mut(8).zip(own).for_each(|(to, word)| {
                to.copy_from_slice(&word.to_ne_bytes());
            });
        }
    }

    /// Moves the first `times` spectra, of `made` with a mask, to messages that have space for no more.
    fn shorten(&mut self, made: usize, times: usize) {
        let Self { form, buffers, .. } = self;
        if times < self.times {
            let (before, after) = (form.sizes(self.times), form.sizes(times));
            for (rank, count) in before.send.iter().enumerate() {
                let row = form.row(rank);
                let place = |sizes: &Sizes| sizes.send[..rank].iter().sum::<usize>();
                let rows = Moved { from: place(&before), to: place(&after), bytes: *count };
                rows.shorten(&mut buffers.send, self.times * row, times * row);
            }
            let (row, own) = (form.row(form.division.own), form.division.own);
            let place = |sizes: &Sizes| sizes.receive[..own].iter().sum::<usize>();
            let bytes = before.receive[own];
            let rows = Moved { from: place(&before), to: place(&after), bytes };
            rows.shorten(&mut buffers.receive, self.times * row, times * row);
            self.set_times(times);
        }
        let (words, fewer) = (Plan::mask_words(made), Plan::mask_words(times));
        if times < made {
            for mask in [&mut self.buffers.send_mask, &mut self.buffers.receive_mask] {
                let rows = mask.chunks_exact(words);
                let mut short = vec![0; rows.len() * fewer];
                let to = short.chunks_exact_mut(fewer.max(1));
                to.zip(rows).for_each(|(to, from)| copy_bits(from, &(0..times), to));
                *mask = short;
            }
        }
    }

    /// Exchanges the first `times` of `made` spectra with all ranks.
    ///
    /// # Errors
    /// Those of the exchange.
    pub(super) fn exchange(
        &mut self,
        exchange: &mut dyn Exchange,
        made: usize,
        times: usize,
    ) -> Result<()> {
        self.shorten(made, times);
        if times == 0 {
            return Ok(());
        }
        let Buffers { send, receive, send_mask, receive_mask } = &mut self.buffers;
        let sizes = self.form.sizes(times);
        exchange.all_to_all(send, &sizes.send, receive, &sizes.receive)?;
        self.is_masked = exchange.least(u64::from(!self.is_masked))? == 0;
        if self.is_masked {
            let sizes = self.form.mask_sizes(times);
            let (from, to) =
                (bytemuck::cast_slice(send_mask), bytemuck::cast_slice_mut(receive_mask));
            exchange.all_to_all(from, &sizes.send, to, &sizes.receive)?;
        }
        Ok(())
    }

    /// Returns `times` exchanged spectra from number `first` on.
    ///
    /// # Errors
    /// [`Error::Shape`] for spectra that are not available.
    pub(super) fn received(&self, first: usize, times: usize) -> Result<correlate::Spectra<'_>> {
        let (bytes, plan) = (self.buffers.receive.as_slice(), &self.form.plan);
        if !self.form.is_direct {
            return Ok(correlate::Spectra::Rows(Rows { bytes, times: self.times, first }));
        }
        let (encoding, streams) = (plan.encoding(), plan.inputs() * plan.channels());
        let each = encoding.bytes(self.times);
        let voltages = Voltages::new(bytes, encoding, streams, each, self.times)?;
        Ok(correlate::Spectra::Streams(voltages.slice(first, times)?))
    }

    /// Returns the function that writes the bits `bits` of the exchanged mask, with the axes channel, antenna, word;
    /// `None` if all spectra are valid.
    pub(super) fn mask(&self, bits: Range<usize>) -> Option<FillMask<'_>> {
        let fill = move |mask: &mut [u64]| self.fill_mask(&bits, mask);
        self.is_masked.then_some(Box::new(fill))
    }

    fn fill_mask(&self, bits: &Range<usize>, mask: &mut [u64]) {
        let plan = &self.form.plan;
        let (channels, antennas) = (plan.channels(), plan.antennas());
        let row = Plan::mask_words(bits.len());
        // Axes rank, channel, antenna of the rank, word.
        let mut rows = self.buffers.receive_mask.chunks_exact(Plan::mask_words(self.times));
        for own in &self.form.division.antennas {
            for channel in 0..channels {
                let first = (channel * antennas + own.start) * row;
                let to = mask[first..][..own.len() * row].chunks_exact_mut(row);
                to.zip(rows.by_ref()).for_each(|(to, from)| copy_bits(from, bits, to));
            }
        }
    }
}

/// Rows of a message that moves to an earlier place in its buffer.
struct Moved {
    from: usize,
    to: usize,
    bytes: usize,
}

impl Moved {
    /// Keeps the beginning of each row.
    fn shorten(&self, buffer: &mut [u8], row: usize, kept: usize) {
        for number in 0..self.bytes / row.max(1) {
            let from = self.from + number * row;
            buffer.copy_within(from..from + kept, self.to + number * kept);
        }
    }
}

/// Bytes that are copied at once.
const LINE: usize = 64;

/// Copies a short row without a call where its length allows it.
#[inline]
fn copy(from: &[u8], to: &mut [u8]) {
    let ((from, from_rest), (to, to_rest)) = (from.as_chunks::<LINE>(), to.as_chunks_mut::<LINE>());
    to.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
    if !to_rest.is_empty() {
        to_rest.copy_from_slice(from_rest);
    }
}

impl Parts<'_> {
    /// Copies `times` spectra of this antenna (axes polarization, time, channel), starting at time `first`.
    pub(super) fn put(&mut self, spectra: &[u8], first: usize, times: usize) {
        let Self { all, times: most, sample, row } = self;
        for part in all {
            let channels: usize = part.runs.iter().map(ExactSizeIterator::len).sum();
            let own = channels * *sample;
            let polarizations = part.bytes.chunks_exact_mut(*most * own);
            for (to, from) in polarizations.zip(spectra.chunks_exact(times * *row)) {
                let to = &mut to[first * own..(first + times) * own];
                for (mut to, from) in to.chunks_exact_mut(own).zip(from.chunks_exact(*row)) {
                    for run in part.runs {
                        let (head, rest) = to.split_at_mut(run.len() * *sample);
                        copy(&from[run.start * *sample..run.end * *sample], head);
                        to = rest;
                    }
                }
            }
        }
    }

    /// Fills spectra of this antenna in some channels with zeros.
    pub(super) fn blank(&mut self, spectra: Range<usize>, channels: &Range<usize>) {
        let Self { all, times, sample, .. } = self;
        for part in all {
            let own: usize = part.runs.iter().map(ExactSizeIterator::len).sum();
            for polarization in part.bytes.chunks_exact_mut(*times * own * *sample) {
                let rows = polarization.chunks_exact_mut(own * *sample);
                for row in rows.skip(spectra.start).take(spectra.len()) {
                    let mut first = 0;
                    for run in part.runs {
                        let start = channels.start.clamp(run.start, run.end);
                        let end = channels.end.clamp(start, run.end);
                        let at = first + start - run.start;
                        row[at * *sample..(at + end - start) * *sample].fill(0);
                        first += run.len();
                    }
                }
            }
        }
    }

    /// Returns the row of each stream (channel, polarization) of recorded voltages, with the stream's number.
    pub(super) fn streams(
        &mut self,
        polarizations: usize,
    ) -> impl Iterator<Item = (usize, &mut [u8])> {
        let each = self.times * self.sample;
        self.all.iter_mut().flat_map(move |part| {
            let streams = part.runs.iter();
            let streams =
                streams.flat_map(move |run| run.start * polarizations..run.end * polarizations);
            streams.zip(part.bytes.chunks_exact_mut(each.max(1)))
        })
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
    use crate::voltage::VoltageEncoding;

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

    /// Messages of rank 1 of three, for two antennas of two polarizations and 7 channels.
    fn messages(is_direct: bool) -> Messages {
        let division = Division {
            own: 1,
            antennas: vec![0..1, 1..3, 3..4],
            outputs: vec![0..2, 2..5, 5..7],
            channels: vec![vec![5..7], vec![0..1, 3..5], vec![1..3]],
        };
        let plan = Plan::new(correlate::Options {
            antennas: 4,
            polarizations: 2,
            channels: 3,
            encoding: VoltageEncoding::Complex8,
        });
        Messages::new(Arc::new(MessageForm::new(division, plan.unwrap(), is_direct)))
    }

    /// Writes `times` spectra, whose values say antenna, polarization, time and channel, into messages with space for
    /// `most`, with invalid spectra.
    fn written(is_direct: bool, most: usize, times: usize) -> Messages {
        let mut messages = messages(is_direct);
        messages.set_times(most);
        for (antenna, mut parts) in messages.antennas(7).into_iter().enumerate() {
            let value = |polarization: usize, time: usize, channel: usize| {
                [(16 * antenna + 8 * polarization + channel) as u8, time as u8]
            };
            if is_direct {
                for (stream, row) in parts.streams(2) {
                    for (time, sample) in row.chunks_exact_mut(2).take(times).enumerate() {
                        sample.copy_from_slice(&value(stream % 2, time, stream / 2));
                    }
                }
                continue;
            }
            // In two pieces.
            for range in [0..times / 2, times / 2..times].into_iter().filter(|own| !own.is_empty())
            {
                let rows =
                    (0..2).flat_map(|polarization| range.clone().map(move |t| (polarization, t)));
                let spectra: Vec<u8> = rows
                    .flat_map(|(p, t)| (0..7).flat_map(move |channel| value(p, t, channel)))
                    .collect();
                parts.put(&spectra, range.start, range.len());
            }
        }
        // Antenna, channel and time decide about a bit.
        messages.set_mask(
            times,
            7,
            Some(Box::new(|mask: &mut [u64]| {
                let words = Plan::mask_words(times);
                for (row, words) in mask.chunks_exact_mut(words).enumerate() {
                    for time in 0..times {
                        words[time / 64] |= u64::from((row + time) % 3 > 0) << (time % 64);
                    }
                }
            })),
        );
        messages
    }

    #[test]
    fn shortened_messages_are_those_of_fewer_spectra() {
        for is_direct in [false, true] {
            for (most, made, times) in [(130, 130, 130), (130, 100, 70), (70, 66, 64), (9, 9, 1)] {
                let mut long = written(is_direct, most, made);
                let short = written(is_direct, times, times);
                long.shorten(made, times);
                let what = format!("{is_direct} {most} {made} {times}");
                assert_eq!(long.buffers.send, short.buffers.send, "{what}");
                assert_eq!(long.buffers.send_mask, short.buffers.send_mask, "{what}");
                // The rest is for the messages of other ranks.
                let sizes = long.form.sizes(times).receive;
                let own = sizes[0]..sizes[0] + sizes[1];
                assert_eq!(long.buffers.receive[own.clone()], short.buffers.receive[own], "{what}");
            }
        }
    }

    #[test]
    fn invalid_spectra_are_zero_in_all_messages() {
        let mut messages = written(false, 5, 5);
        for mut parts in messages.antennas(7) {
            parts.blank(1..3, &(4..6));
            for part in &parts.all {
                let channels: Vec<usize> = part.runs.iter().cloned().flatten().collect();
                for (row, bytes) in part.bytes.chunks_exact(2 * channels.len()).enumerate() {
                    for (channel, sample) in channels.iter().zip(bytes.chunks_exact(2)) {
                        let is_blank = (1..3).contains(&(row % 5)) && (4..6).contains(channel);
                        let expected = if is_blank { 0 } else { row % 5 };
                        assert_eq!(usize::from(sample[1]), expected, "{row} {channel}");
                    }
                }
            }
        }
    }
}
