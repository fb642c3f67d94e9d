//! SPEAD heaps of a recording: header, descriptors, data and end, in batches of packets.

use std::time::{Duration, Instant};

use super::feed::{Feed, Recording, later};
use super::options::{Lost, Monitor, Options, Summary};
use super::pace::{Pace, pause};
use crate::error::{Error, Result};
use crate::live::descriptor::DescriptorHeap;
use crate::live::header::Content;
use crate::live::impair::Impairer;
use crate::live::socket::BATCH;
use crate::live::spead::{Flavour, Item, Packetizer, Repeat};
use crate::live::stream::Stream;

/// Flavour of all heaps.
const FLAVOUR: Flavour = Flavour::BITS_48;

/// Time between headers.
const HEADER_EVERY: Duration = Duration::from_secs(1);

/// Largest payload of a header, which is alone in a packet.
const HEADER_BYTES: usize = 57_000;

/// Bytes of a packet's SPEAD header and items of a heap of data, rounded up.
const ITEMS_BYTES: usize = 64;

/// Time of the data in a heap, if the sender chooses: no receiver waits longer for the last sample.
const HEAP_S: f64 = 0.1;

/// Sends a batch of packets.
type Put<'a> = &'a mut dyn FnMut(&[&[u8]]) -> Result<()>;

/// Divides a recording into SPEAD heaps and passes their packets to `send`, a batch at a time. `reopen` opens the recording
/// again for each repetition. Nothing is allocated for a packet, apart from what the recording's reader does.
///
/// # Errors
/// [`Error::Parameter`] for options out of range, and for contents that [`Stream`] refuses; those of the recording, of `send` and of
/// the listener.
pub fn send_packets(
    recording: Recording,
    reopen: &mut dyn FnMut() -> Result<Recording>,
    options: &Options,
    send: Put<'_>,
    monitor: &mut dyn Monitor,
) -> Result<Summary> {
    options.check()?;
    let content = recording.content();
    let mut heaps = Heaps::new(&content, options, send)?;
    let times = heaps.stream.times();
    let mut feed = Feed::new(recording, reopen, options.repeats, times, options.rate);
    let per_start = options.samples_per_start(content.tsamp_s());
    let per_start = per_start.checked_next_multiple_of(times as u64).unwrap_or(u64::MAX);
    let mut pace = Pace::new(content.tsamp_s(), options.rate);
    let mut samples = 0;
    heaps.header()?;
    let is_stopped = 'blocks: loop {
        let filled = match feed.fill(monitor) {
            Err(error) if error.is_stop() => break true,
            filled => filled?,
        };
        feed.pad(filled, filled.next_multiple_of(times), heaps.stream.zero_byte());
        for start in (0..filled).step_by(times) {
            let count = times.min(filled - start) as u64;
            if heaps.position >= per_start {
                heaps.restart(later(&content, samples as f64 * content.tsamp_s()), monitor)?;
            }
            loop {
                if heaps.last_header.elapsed() >= HEADER_EVERY {
                    heaps.header()?;
                }
                let left = pace.until(samples + count);
                if left.is_zero() {
                    break;
                }
                heaps.batch.flush(heaps.send)?;
                if monitor.stops() {
                    break 'blocks true;
                }
                pause(left);
            }
            heaps.data(&feed, start, count, monitor)?;
            samples += count;
        }
        monitor.sent(samples);
        if monitor.stops() {
            break true;
        }
        if filled == 0 {
            break false;
        }
    };
    heaps.end(monitor)?;
    let counts = heaps.impairer.counts();
    Ok(Summary {
        packets: heaps.batch.packets,
        header_packets: heaps.header_packets,
        bytes: heaps.batch.bytes,
        samples,
        data_s: samples as f64 * content.tsamp_s(),
        elapsed_s: pace.elapsed_s(),
        behind_s: pace.behind_s(),
        restarts: heaps.losses.start,
        dropped: counts.dropped,
        delayed: counts.delayed,
        duplicated: counts.duplicated,
        is_stopped,
    })
}

/// Heaps of one start of a sender, and the next ones.
struct Heaps<'a> {
    stream: Stream,
    packetizer: Packetizer,
    /// Divider for heaps that are alone in a packet.
    whole: Packetizer,
    header: Vec<u8>,
    descriptors: DescriptorHeap,
    /// Number of the next heap.
    next: u64,
    /// Samples since the header's start.
    position: u64,
    last_header: Instant,
    header_packets: u64,
    impairer: Impairer,
    losses: Losses,
    /// Voltages of a heap of every antenna.
    blocks: Vec<u8>,
    batch: Batch,
    send: Put<'a>,
}

impl<'a> Heaps<'a> {
    fn new(content: &Content, options: &Options, send: Put<'a>) -> Result<Self> {
        let stream = match options.heap_times {
            Some(times) => Stream::with_times(content.clone(), times)?,
            None => {
                let stream = Stream::new(content.clone())?;
                let times = ((HEAP_S / content.tsamp_s()) as usize).clamp(1, stream.times());
                Stream::with_times(content.clone(), times)?
            }
        };
        let stream = stream.starting_at(options.first);
        if stream.first() != options.first {
            let rule = "it must be less than 2^48";
            return Err(Error::parameter("send.first", options.first, rule));
        }
        let header = header(&stream)?;
        let descriptors = DescriptorHeap::new(&stream.descriptors(), FLAVOUR)?;
        let is_voltages = matches!(content, Content::Voltages(_));
        let blocks = if is_voltages { stream.sources() * stream.block_bytes() } else { 0 };
        Ok(Self {
            packetizer: Packetizer::new(FLAVOUR, options.packet_bytes, Repeat::All)?,
            whole: Packetizer::new(FLAVOUR, HEADER_BYTES, Repeat::All)?,
            header,
            descriptors,
            next: 1,
            position: 0,
            last_header: Instant::now(),
            header_packets: 0,
            impairer: Impairer::new(options.impairments)?,
            losses: Losses::new(stream.sources()),
            blocks: vec![0; blocks],
            batch: Batch::new(options.packet_bytes + ITEMS_BYTES),
            stream,
            send,
        })
    }

    /// Sends the header and the descriptors, without impairments.
    fn header(&mut self) -> Result<()> {
        let items = self.stream.header_items();
        let Self { whole, header, descriptors, batch, send, next, .. } = self;
        let mut put = |packet: &[u8]| batch.put(packet, *send);
        whole.send(*next, &items, header, &mut put)?;
        whole.send(*next + 1, &descriptors.items, &descriptors.payload, &mut put)?;
        *next += 2;
        self.header_packets += 2;
        self.last_header = Instant::now();
        Ok(())
    }

    /// Sends a heap of each source, of which `count` samples are data.
    fn data(
        &mut self,
        feed: &Feed<'_>,
        start: usize,
        count: u64,
        monitor: &mut dyn Monitor,
    ) -> Result<()> {
        let Self { stream, packetizer, impairer, losses, batch, send, blocks, .. } = self;
        let voltages = feed.voltages()?;
        if let Some(voltages) = voltages {
            stream.pack(voltages, start, blocks)?;
        }
        let spectra = || feed.spectra(start, stream.times());
        let bytes = if voltages.is_some() { &blocks[..] } else { spectra() };
        for (source, bytes) in bytes.chunks_exact(stream.block_bytes()).enumerate() {
            let items = stream.data_items(stream.first() + self.position, source);
            let mut is_lost = false;
            let mut pass = |packet: &[u8]| {
                is_lost |= impairer.pass(packet, &mut |packet| batch.put(packet, *send))?;
                Ok(())
            };
            packetizer.send(self.next, &items, bytes, &mut pass)?;
            self.next += 1;
            if is_lost {
                losses.add(source, self.position, count, monitor)?;
            }
        }
        self.position += count;
        Ok(())
    }

    /// Sends the packets that are held back, and all of the batch.
    fn flush(&mut self, monitor: &mut dyn Monitor) -> Result<()> {
        let Self { impairer, losses, batch, send, .. } = self;
        impairer.finish(&mut |packet| batch.put(packet, *send))?;
        losses.finish(monitor)?;
        batch.flush(*send)
    }

    /// Starts again with other contents: heaps and samples are numbered from the beginning.
    fn restart(&mut self, content: Content, monitor: &mut dyn Monitor) -> Result<()> {
        self.flush(monitor)?;
        self.stream = Stream::with_times(content, self.stream.times())?;
        self.header = header(&self.stream)?;
        self.losses.start += 1;
        (self.next, self.position) = (1, 0);
        self.header()
    }

    /// Ends the stream.
    fn end(&mut self, monitor: &mut dyn Monitor) -> Result<()> {
        self.flush(monitor)?;
        let items: [Item; 2] = self.stream.end_items(self.stream.first() + self.position);
        let Self { whole, batch, send, next, .. } = self;
        whole.send(*next, &items, &[], &mut |packet| batch.put(packet, *send))?;
        self.header_packets += 1;
        batch.flush(*send)
    }
}

/// Returns the payload of a header that fits one packet.
fn header(stream: &Stream) -> Result<Vec<u8>> {
    let header = stream.header_payload()?;
    if header.len() > HEADER_BYTES {
        let rule = format!("it must fit a packet of {HEADER_BYTES} bytes");
        return Err(Error::parameter("header (bytes)", header.len(), rule));
    }
    Ok(header)
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
