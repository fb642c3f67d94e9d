//! SPEAD heaps of a recording: header, descriptors, data and end.

use std::time::{Duration, Instant};

use super::feed::{Feed, Recording};
use super::options::{Monitor, Options, Summary};
use super::packets::{Block, Division, Outlet, Put, run};
use crate::error::{Error, Result};
use crate::live::descriptor::DescriptorHeap;
use crate::live::header::Content;
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
    let heaps = Heaps::new(&recording.content(), options)?;
    run(recording, reopen, heaps, options, send, monitor)
}

/// Heaps of one start of a sender, and the next ones.
struct Heaps {
    stream: Stream,
    packetizer: Packetizer,
    /// Divider for heaps that are alone in a packet.
    whole: Packetizer,
    packet_bytes: usize,
    header: Vec<u8>,
    descriptors: DescriptorHeap,
    /// Number of the next heap.
    next: u64,
    /// Time of the last header; `None` if one is due.
    last_header: Option<Instant>,
}

impl Heaps {
    fn new(content: &Content, options: &Options) -> Result<Self> {
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
        Ok(Self {
            packetizer: Packetizer::new(FLAVOUR, options.packet_bytes, Repeat::All)?,
            whole: Packetizer::new(FLAVOUR, HEADER_BYTES, Repeat::All)?,
            packet_bytes: options.packet_bytes + ITEMS_BYTES,
            header: header(&stream)?,
            descriptors: DescriptorHeap::new(&stream.descriptors(), FLAVOUR)?,
            next: 1,
            last_header: None,
            stream,
        })
    }
}

impl Division for Heaps {
    fn times(&self) -> usize {
        self.stream.times()
    }

    fn sources(&self) -> usize {
        self.stream.sources()
    }

    fn zero_byte(&self) -> u8 {
        self.stream.zero_byte()
    }

    fn packet_bytes(&self) -> usize {
        self.packet_bytes
    }

    /// Sends the header and the descriptors, without impairments.
    fn announce(&mut self, outlet: &mut Outlet<'_>) -> Result<()> {
        if self.last_header.is_some_and(|last| last.elapsed() < HEADER_EVERY) {
            return Ok(());
        }
        let items = self.stream.header_items();
        let Self { whole, header, descriptors, next, .. } = self;
        let mut put = |packet: &[u8]| outlet.header(packet);
        whole.send(*next, &items, header, &mut put)?;
        whole.send(*next + 1, &descriptors.items, &descriptors.payload, &mut put)?;
        *next += 2;
        self.last_header = Some(Instant::now());
        Ok(())
    }

    fn packed_bytes(&self) -> usize {
        let is_voltages = matches!(self.stream.content(), Content::Voltages(_));
        if is_voltages { self.stream.sources() * self.stream.block_bytes() } else { 0 }
    }

    fn pack(&self, feed: &Feed<'_>, start: usize, packed: &mut [u8]) -> Result<()> {
        match feed.voltages()? {
            Some(voltages) => self.stream.pack(voltages, start, packed),
            None => Ok(()),
        }
    }

    fn send(
        &mut self,
        source: usize,
        block: &Block<'_, '_>,
        outlet: &mut Outlet<'_>,
    ) -> Result<bool> {
        let Self { stream, packetizer, next, .. } = self;
        let each = block.feed.streams() / stream.sources();
        let times = block.start..block.start + stream.times();
        if block.feed.is_lost(&(source * each..(source + 1) * each), &times) {
            // A receiver flags a heap that does not come.
            return Ok(false);
        }
        let bytes = match block.packed {
            [] => block.feed.spectra(block.start, stream.times()),
            packed => &packed[source * stream.block_bytes()..][..stream.block_bytes()],
        };
        let items = stream.data_items(stream.first() + block.position, source);
        let mut is_lost = false;
        let mut pass = |packet: &[u8]| {
            is_lost |= outlet.samples(packet)?;
            Ok(())
        };
        packetizer.send(*next, &items, bytes, &mut pass)?;
        *next += 1;
        Ok(is_lost)
    }

    /// Numbers heaps and samples from the beginning.
    fn restart(&mut self, content: Content, _position: u64) -> Result<()> {
        self.stream = Stream::with_times(content, self.stream.times())?;
        self.header = header(&self.stream)?;
        (self.next, self.last_header) = (1, None);
        Ok(())
    }

    fn end(&mut self, position: u64, outlet: &mut Outlet<'_>) -> Result<()> {
        let items: [Item; 2] = self.stream.end_items(self.stream.first() + position);
        self.whole.send(self.next, &items, &[], &mut |packet| outlet.header(packet))
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
