//! Packets of a recording, in batches: schedule, restarts and impairments of every division into packets.

use super::feed::{Feed, Recording, later};
use super::options::{Lost, Monitor, Options, Summary};
use super::pace::{Pace, pause};
use crate::error::Result;
use crate::live::header::Content;
use crate::live::impair::Impairer;
use crate::live::socket::BATCH;

/// Sends a batch of packets.
pub(super) type Put<'a> = &'a mut dyn FnMut(&[&[u8]]) -> Result<()>;

/// Division of a recording into packets: blocks of each source, of the same number of samples.
pub(super) trait Division {
    /// Returns the samples per block.
    fn times(&self) -> usize;

    /// Returns the number of sources.
    fn sources(&self) -> usize;

    /// Returns the byte that encodes zeros in the recording.
    fn zero_byte(&self) -> u8;

    /// Returns the most bytes of a packet with samples.
    fn packet_bytes(&self) -> usize;

    /// Sends what receivers need beforehand, if it is due.
    ///
    /// # Errors
    /// Those of sending.
    fn announce(&mut self, _outlet: &mut Outlet<'_>) -> Result<()> {
        Ok(())
    }

    /// Returns the bytes of the packed block of every source; 0 if samples are sent as the feed has them.
    fn packed_bytes(&self) -> usize {
        0
    }

    /// Packs the next block of every source, of the samples from `start` on.
    ///
    /// # Errors
    /// Those of the recording.
    fn pack(&self, _feed: &Feed<'_>, _start: usize, _packed: &mut [u8]) -> Result<()> {
        Ok(())
    }

    /// Sends the block of a source, the sources in ascending order; returns whether any of it is lost.
    ///
    /// # Errors
    /// Those of sending.
    fn send(
        &mut self,
        source: usize,
        block: &Block<'_, '_>,
        outlet: &mut Outlet<'_>,
    ) -> Result<bool>;

    /// Starts again with contents that begin later, after `position` samples.
    ///
    /// # Errors
    /// [`crate::Error::Parameter`] for contents that the division refuses.
    fn restart(&mut self, content: Content, position: u64) -> Result<()>;

    /// Ends the stream after `position` samples since the last start.
    ///
    /// # Errors
    /// Those of sending.
    fn end(&mut self, _position: u64, _outlet: &mut Outlet<'_>) -> Result<()> {
        Ok(())
    }
}

/// Samples of all sources at one time.
pub(super) struct Block<'a, 'f> {
    /// Number of the first sample since the last start.
    pub(super) position: u64,
    /// Packed samples: axes source, bytes of a block.
    pub(super) packed: &'a [u8],
    /// Samples that are not packed, the first of them at `start`.
    pub(super) feed: &'a Feed<'f>,
    pub(super) start: usize,
}

/// Divides a recording into packets and passes them to `send`, a batch at a time. `reopen` opens the recording again for each
/// repetition, unless its packed blocks are kept in memory. Nothing is allocated for a packet, apart from what the recording's reader does.
///
/// # Errors
/// [`crate::Error::Parameter`] for options out of range; those of the recording, of `send` and of the listener.
pub(super) fn run(
    recording: Recording,
    reopen: &mut dyn FnMut() -> Result<Recording>,
    mut division: impl Division,
    options: &Options,
    send: Put<'_>,
    monitor: &mut dyn Monitor,
) -> Result<Summary> {
    let content = recording.content();
    let mut outlet = Outlet::new(options, division.packet_bytes(), send)?;
    let mut losses = Losses::new(division.sources());
    let times = division.times();
    let mut feed = Feed::new(recording, reopen, options.repeats, times, options.rate);
    let mut packed = Packed::new(division.packed_bytes());
    if options.repeats != 1 {
        packed.keep(&mut feed, &division, options.kept_bytes, monitor)?;
    }
    let per_start = options.samples_per_start(content.tsamp_s());
    let per_start = per_start.checked_next_multiple_of(times as u64).unwrap_or(u64::MAX);
    let mut pace = Pace::new(content.tsamp_s(), options.rate);
    let (mut samples, mut position) = (0, 0);
    division.announce(&mut outlet)?;
    let is_stopped = 'blocks: loop {
        let filled = match if packed.is_kept { Ok(feed.pass()) } else { feed.fill(monitor) } {
            Err(error) if error.is_stop() => break true,
            filled => filled?,
        };
        feed.pad(filled, filled.next_multiple_of(times), division.zero_byte());
        for start in (0..filled).step_by(times) {
            let count = times.min(filled - start) as u64;
            if position >= per_start {
                outlet.flush()?;
                losses.finish(monitor)?;
                division.restart(later(&content, samples as f64 * content.tsamp_s()), position)?;
                losses.start += 1;
                position = 0;
            }
            loop {
                division.announce(&mut outlet)?;
                let left = pace.until(samples + count);
                if left.is_zero() {
                    break;
                }
                outlet.batch.flush(outlet.send)?;
                if monitor.stops() {
                    break 'blocks true;
                }
                pause(left);
            }
            let number = (samples / times as u64) as usize;
            let packed = packed.block(number, |bytes| division.pack(&feed, start, bytes))?;
            let block = Block { position, packed, feed: &feed, start };
            for source in 0..division.sources() {
                if division.send(source, &block, &mut outlet)? {
                    losses.add(source, position, count, monitor)?;
                }
            }
            (samples, position) = (samples + count, position + count);
        }
        monitor.sent(samples);
        if monitor.stops() {
            break true;
        }
        if filled == 0 {
            break false;
        }
    };
    outlet.flush()?;
    losses.finish(monitor)?;
    division.end(position, &mut outlet)?;
    outlet.batch.flush(outlet.send)?;
    let counts = outlet.impairer.counts();
    Ok(Summary {
        packets: outlet.batch.packets,
        header_packets: outlet.header_packets,
        bytes: outlet.batch.bytes,
        samples,
        data_s: samples as f64 * content.tsamp_s(),
        elapsed_s: pace.elapsed_s(),
        behind_s: pace.behind_s(),
        restarts: losses.start,
        dropped: counts.dropped,
        delayed: counts.delayed,
        duplicated: counts.duplicated,
        is_stopped,
        ..Summary::default()
    })
}

/// Packed blocks: one, or all of a short recording that is repeated, so that repetitions cost only their packets.
struct Packed {
    block_bytes: usize,
    bytes: Vec<u8>,
    is_kept: bool,
}

impl Packed {
    fn new(block_bytes: usize) -> Self {
        Self { block_bytes, bytes: vec![0; block_bytes], is_kept: false }
    }

    /// Reads the recording before the first packet is due and keeps its packed blocks. Keeps none if they have more than `most` bytes,
    /// the last one is not whole, samples are sent unpacked, or reading fails; the recording is then read again while it is sent.
    ///
    /// # Errors
    /// Those of `pack` and of opening the recording again.
    fn keep(
        &mut self,
        feed: &mut Feed<'_>,
        division: &impl Division,
        most: u64,
        monitor: &mut dyn Monitor,
    ) -> Result<()> {
        let times = division.times();
        let blocks = feed.length().map_or(0, |samples| samples / times as u64);
        let is_whole = feed.length().is_some_and(|samples| samples.is_multiple_of(times as u64));
        let bytes = blocks.saturating_mul(self.block_bytes as u64);
        if !is_whole || bytes == 0 || bytes > most {
            return Ok(());
        }
        let mut kept = Vec::new();
        if kept.try_reserve_exact(bytes as usize).is_err() {
            return Ok(());
        }
        kept.resize(bytes as usize, 0);
        let mut all = kept.chunks_exact_mut(self.block_bytes);
        let mut has_ended = false;
        while !(has_ended || monitor.stops()) {
            let Ok(filled) = feed.fill_once() else { break };
            has_ended = filled == 0;
            for (start, block) in (0..filled).step_by(times).zip(&mut all) {
                division.pack(feed, start, block)?;
            }
        }
        self.is_kept = feed.begin_again(has_ended, monitor)?;
        if self.is_kept {
            self.bytes = kept;
        }
        Ok(())
    }

    /// Returns block `number`, counted over all repetitions in order, which `pack` makes unless it is kept.
    ///
    /// # Errors
    /// Those of `pack`.
    fn block(
        &mut self,
        number: usize,
        pack: impl FnOnce(&mut [u8]) -> Result<()>,
    ) -> Result<&[u8]> {
        if self.is_kept {
            let blocks = self.bytes.len() / self.block_bytes;
            return Ok(&self.bytes[number % blocks * self.block_bytes..][..self.block_bytes]);
        }
        pack(&mut self.bytes)?;
        Ok(&self.bytes)
    }
}

/// Way of packets to the receiver.
pub(super) struct Outlet<'a> {
    impairer: Impairer,
    batch: Batch,
    send: Put<'a>,
    header_packets: u64,
}

impl<'a> Outlet<'a> {
    fn new(options: &Options, packet_bytes: usize, send: Put<'a>) -> Result<Self> {
        let impairer = Impairer::new(options.impairments)?;
        Ok(Self { impairer, batch: Batch::new(packet_bytes), send, header_packets: 0 })
    }

    /// Sends a packet without samples, unimpaired.
    pub(super) fn header(&mut self, packet: &[u8]) -> Result<()> {
        self.header_packets += 1;
        self.batch.put(packet, self.send)
    }

    /// Sends a packet with samples; returns whether it is lost.
    pub(super) fn samples(&mut self, packet: &[u8]) -> Result<bool> {
        let Self { impairer, batch, send, .. } = self;
        impairer.pass(packet, &mut |packet| batch.put(packet, *send))
    }

    /// Sends the packets that are held back, and all of the batch.
    fn flush(&mut self) -> Result<()> {
        let Self { impairer, batch, send, .. } = self;
        impairer.finish(&mut |packet| batch.put(packet, *send))?;
        batch.flush(*send)
    }
}

/// Packets that are sent together.
struct Batch {
    slots: Vec<Vec<u8>>,
    filled: usize,
    /// Packets and their bytes, those in the batch included.
    packets: u64,
    bytes: u64,
}

impl Batch {
    fn new(packet_bytes: usize) -> Self {
        let slots = (0..BATCH).map(|_| Vec::with_capacity(packet_bytes)).collect();
        Self { slots, filled: 0, packets: 0, bytes: 0 }
    }

    fn put(&mut self, packet: &[u8], send: &mut dyn FnMut(&[&[u8]]) -> Result<()>) -> Result<()> {
        if self.filled == self.slots.len() {
            self.flush(send)?;
        }
        let slot = &mut self.slots[self.filled];
        slot.clear();
        slot.extend_from_slice(packet);
        self.filled += 1;
        self.packets += 1;
        self.bytes += packet.len() as u64;
        Ok(())
    }

    fn flush(&mut self, send: &mut dyn FnMut(&[&[u8]]) -> Result<()>) -> Result<()> {
        let mut packets: [&[u8]; BATCH] = [&[]; BATCH];
        for (packet, slot) in packets.iter_mut().zip(&self.slots) {
            *packet = slot;
        }
        let filled = std::mem::take(&mut self.filled);
        if filled == 0 { Ok(()) } else { send(&packets[..filled]) }
    }
}

/// Lost samples of each source, neighbours joined.
struct Losses {
    open: Vec<Option<Lost>>,
    /// Number of restarts so far.
    start: u64,
}

impl Losses {
    fn new(sources: usize) -> Self {
        Self { open: vec![None; sources], start: 0 }
    }

    fn add(
        &mut self,
        source: usize,
        first: u64,
        times: u64,
        monitor: &mut dyn Monitor,
    ) -> Result<()> {
        let open = &mut self.open[source];
        match open {
            Some(lost) if lost.first + lost.times == first => lost.times += times,
            _ => {
                let ended = open.replace(Lost { start: self.start, first, times, source });
                ended.map_or(Ok(()), |lost| monitor.lost(&lost))?;
            }
        }
        Ok(())
    }

    fn finish(&mut self, monitor: &mut dyn Monitor) -> Result<()> {
        self.open
            .iter_mut()
            .try_for_each(|open| open.take().map_or(Ok(()), |lost| monitor.lost(&lost)))
    }
}
