//! Spectra of one gulp as messages to ranks, and the buffers that antennas write their spectra into while these are in the
//! cache.
//!
//! Invariant: the messages that a rank receives, one after another, are the spectra of all antennas in its channels, in
//! the order of a single process.

use std::ops::Range;
use std::sync::Arc;

use super::device_blocks::DeviceBlocks;
use super::division::{Layout, MessageForm, Sizes};
use crate::backend::cuda::Device;
use crate::backend::resize_in_huge_pages;
use crate::correlate::{self, Plan, Rows};
use crate::error::{Error, Result};
use crate::pipeline::exchange::Exchange;
use crate::voltage::Voltages;

/// Function that writes a validity mask; axes channel, antenna, word.
pub(super) type FillMask<'a> = Box<dyn Fn(&mut [u64]) + 'a>;

/// Buffers for the messages of a gulp, to send and to receive. Those of GPUs have their spectra in other ones.
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
    /// Spectra of the mask.
    masked: usize,
    buffers: Buffers,
    /// Page-locked blocks of spectra, of [`Layout::Device`].
    blocks: Option<Box<DeviceBlocks>>,
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
        let buffers = Buffers::default();
        Self { form, times: 0, masked: 0, buffers, blocks: None, is_masked: false }
    }

    /// Makes messages whose spectra a GPU computes, with space for `capacity` spectra.
    ///
    /// # Errors
    /// As [`DeviceBlocks::new`].
    pub(super) fn on_device(
        form: Arc<MessageForm>,
        device: &Device,
        capacity: usize,
    ) -> Result<Self> {
        let blocks = Some(Box::new(DeviceBlocks::new(device, &form, capacity)?));
        Ok(Self { blocks, ..Self::new(form) })
    }

    pub(super) fn is_direct(&self) -> bool {
        self.form.layout() == Layout::Streams
    }

    /// Returns the blocks of a GPU's spectra.
    ///
    /// # Errors
    /// [`Error::Shape`] for messages of the host.
    pub(super) fn blocks(&mut self) -> Result<&mut DeviceBlocks> {
        let lacking = Error::Shape { what: "page-locked messages", expected: 1, actual: 0 };
        self.blocks.as_deref_mut().ok_or(lacking)
    }

    /// Sets the number of spectra that the messages have space for. Their contents become undefined.
    pub(super) fn set_times(&mut self, times: usize) {
        self.times = times;
        if let Some(blocks) = &mut self.blocks {
            return blocks.set_times(times);
        }
        let sizes = self.form.sizes(times);
        resize_in_huge_pages(&mut self.buffers.send, sizes.send.iter().sum());
        resize_in_huge_pages(&mut self.buffers.receive, sizes.receive.iter().sum());
    }

    /// Returns the parts of each antenna of this rank; `channels` is the number of all.
    pub(super) fn antennas(&mut self, channels: usize) -> Vec<Parts<'_>> {
        let Self { form, times, buffers, .. } = self;
        let division = form.division();
        let antennas = division.antennas().len();
        let empty = || Parts {
            all: Vec::with_capacity(division.antennas.len()),
            times: *times,
            sample: form.sample(),
            row: channels * form.sample(),
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
        self.masked = times;
        let Buffers { send_mask: send, receive_mask: receive, .. } = &mut self.buffers;
        send.resize(sizes.send.iter().sum::<usize>() / 8, u64::MAX);
        receive.resize(sizes.receive.iter().sum::<usize>() / 8, u64::MAX);
        self.is_masked = fill.is_some();
        let Some(fill) = fill else {
            send.fill(u64::MAX);
            receive.fill(u64::MAX);
            return;
        };
        let row = self.form.division().antennas().len() * words;
        let mut mask = vec![0; channels * row];
        fill(&mut mask);
        let (send, receive) = (bytemuck::cast_slice_mut(send), bytemuck::cast_slice_mut(receive));
        let messages = sizes.split(send, receive);
        for (message, runs) in messages.into_iter().zip(&self.form.division().channels) {
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
            let (row, own) = (form.row(form.division().own), form.division().own);
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
            self.masked = times;
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
        let Buffers { send, receive, .. } = &mut self.buffers;
        let sizes = self.form.sizes(times);
        exchange.all_to_all(send, &sizes.send, receive, &sizes.receive)?;
        self.is_masked = exchange.least(u64::from(!self.is_masked))? == 0;
        self.exchange_mask(exchange)
    }

    /// Waits for the copies between the messages and a GPU.
    ///
    /// # Errors
    /// [`Error::Device`] if work on the GPU failed.
    pub(super) fn ready(&mut self) -> Result<()> {
        self.blocks()?.ready()
    }

    /// Returns 1 if all spectra of this rank are valid, 0 otherwise.
    pub(super) fn validity(&self) -> u64 {
        u64::from(!self.is_masked)
    }

    /// Exchanges spectra that GPUs have computed with all ranks; `validity` is the least one of all ranks.
    ///
    /// # Errors
    /// Those of the exchange; [`Error::Device`] if work on the GPU failed.
    pub(super) fn exchange_of_device(
        &mut self,
        exchange: &mut dyn Exchange,
        validity: u64,
    ) -> Result<()> {
        let sizes = self.form.sizes(self.times);
        let (send, receive) = self.blocks()?.host()?;
        exchange.all_to_all(send, &sizes.send, receive, &sizes.receive)?;
        self.is_masked = validity == 0;
        self.exchange_mask(exchange)
    }

    /// Exchanges the mask, if any spectra are invalid.
    fn exchange_mask(&mut self, exchange: &mut dyn Exchange) -> Result<()> {
        if !self.is_masked {
            return Ok(());
        }
        let sizes = self.form.mask_sizes(self.masked);
        let Buffers { send_mask, receive_mask, .. } = &mut self.buffers;
        let (from, to) = (bytemuck::cast_slice(send_mask), bytemuck::cast_slice_mut(receive_mask));
        exchange.all_to_all(from, &sizes.send, to, &sizes.receive)
    }

    /// Returns `times` exchanged spectra from number `first` on.
    ///
    /// # Errors
    /// [`Error::Shape`] for spectra that are not available.
    pub(super) fn received(&self, first: usize, times: usize) -> Result<correlate::Spectra<'_>> {
        let (bytes, plan) = (self.buffers.receive.as_slice(), self.form.plan());
        if !self.is_direct() {
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
        let plan = self.form.plan();
        let (channels, antennas) = (plan.channels(), plan.antennas());
        let row = Plan::mask_words(bits.len());
        // Axes rank, channel, antenna of the rank, word.
        let mut rows = self.buffers.receive_mask.chunks_exact(Plan::mask_words(self.masked));
        for own in &self.form.division().antennas {
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
    use super::super::division::Division;
    use super::*;
    use crate::voltage::VoltageEncoding;

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
