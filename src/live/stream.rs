//! Streams of spectra or voltages in SPEAD heaps that carry their own header, so that a receiver needs an address only.
//!
//! Two kinds of heaps have different numbers:
//!
//! | heap | items |
//! |---|---|
//! | header | [`HEADER_ID`]: a text ([`Content::text`]) and the line SPEAD_TIMES: samples per heap of data |
//! | data | 0x1600: number of its first sample; 0x4101: antenna; 0x4300: samples |
//! | end | the protocol's command to stop; [`END_ID`]: number of the sample after the last one |
//!
//! A heap of spectra has the axes time, channel; one of voltages those of MeerKAT's F-engines, channel, time, polarization,
//! of one antenna. The header is sent first, and again every second, so that a receiver may start later; it is alone in one
//! packet. Every packet has all items of its heap.
//!
//! Samples are numbered from 0 at the header's start, or from the number in the line SPEAD_FIRST. Numbers wrap after
//! [`TIME_BITS`] bits. If a stream does not end with a whole heap, the last one is filled up with zeros, and [`END_ID`] tells how
//! many of its samples are data. Without an end, as from a sender that was killed, all samples are.

use std::path::Path;

use crate::error::{Error, Result};
use crate::io::voltages::layout::{Axis, Counts, Layout};
use crate::io::voltages::{VoltageHeader, VoltageOptions, dada};
use crate::live::descriptor::{Descriptor, Kind};
use crate::live::header::{Content, MOST_BYTES};
use crate::live::heaps::{ItemMap, Selector};
use crate::live::packet::Values;
use crate::live::spead::{Control, Item, Packet, id};
use crate::view::check_length;
use crate::voltage::Voltages;

/// Item with the number of the first sample.
pub const TIME_ID: u64 = 0x1600;
/// Item with the antenna's number.
pub const ANTENNA_ID: u64 = 0x4101;
/// Item with the samples.
pub const SAMPLES_ID: u64 = 0x4300;
/// Item with the header's text.
pub const HEADER_ID: u64 = 0x1701;

/// Item with the number of the sample after the last one, in the heap that ends a stream.
pub const END_ID: u64 = 0x1702;

/// Bits of the sample's number, after which it wraps.
pub const TIME_BITS: u32 = 48;

/// Bytes of samples that a heap has at least, if a sample of all channels has less.
const HEAP_BYTES: usize = 8192;

/// Key of the samples per heap.
const TIMES_KEY: &str = "SPEAD_TIMES";

/// Key of the number of the first sample, if it is not 0.
const FIRST_KEY: &str = "SPEAD_FIRST";

/// Most samples per heap.
const MOST_TIMES: u64 = 1 << 20;

/// Division of a stream into heaps.
#[derive(Clone, Debug, PartialEq)]
pub struct Stream {
    content: Content,
    /// Samples per heap.
    times: usize,
    /// Antennas of voltages; 1 for spectra.
    sources: usize,
    block_bytes: usize,
    /// Number of the sample at the header's start.
    first: u64,
    /// Order of the samples of voltages.
    layout: Option<Layout>,
}

impl Stream {
    /// Divides contents into heaps of about 8 KiB.
    ///
    /// # Errors
    /// [`Error::Parameter`] for samples that are not whole bytes, or too many.
    pub fn new(content: Content) -> Result<Self> {
        let bytes = sample_bytes(&content)?;
        let times = (HEAP_BYTES / bytes.max(1)).max(1);
        Self::with_times(content, times)
    }

    /// Divides contents into heaps of `times` samples.
    ///
    /// # Errors
    /// As [`Stream::new`]; [`Error::Parameter`] for no samples or more than 2^20.
    pub fn with_times(content: Content, times: usize) -> Result<Self> {
        if !(1..=MOST_TIMES).contains(&(times as u64)) {
            let rule = format!("it must be 1 to {MOST_TIMES}");
            return Err(Error::parameter("samples per heap", times, rule));
        }
        let block_bytes = sample_bytes(&content)?.saturating_mul(times);
        let sources = match &content {
            Content::Spectra(_) => 1,
            Content::Voltages(header) => header.antennas,
        };
        let layout = layout(&content, times);
        Ok(Self { content, times, sources, block_bytes, first: 0, layout })
    }

    /// Numbers samples from `first` on, modulo 2^48.
    #[must_use]
    pub fn starting_at(mut self, first: u64) -> Self {
        self.first = wrapped(first);
        self
    }

    /// Returns the contents.
    pub fn content(&self) -> &Content {
        &self.content
    }

    /// Returns the samples per heap.
    pub fn times(&self) -> usize {
        self.times
    }

    /// Returns the number of the sample at the header's start.
    pub fn first(&self) -> u64 {
        self.first
    }

    /// Returns the number of sources: antennas, or 1 for spectra.
    pub fn sources(&self) -> usize {
        self.sources
    }

    /// Returns the bytes of samples per heap.
    pub fn block_bytes(&self) -> usize {
        self.block_bytes
    }

    /// Returns the map of items by which packets are placed. The counter is the number of the sample.
    pub fn item_map(&self) -> ItemMap {
        let values = Values::from(0, self.sources);
        ItemMap {
            counter: TIME_ID,
            counter_bits: TIME_BITS,
            step: self.times as u64,
            sources: vec![Selector::new(ANTENNA_ID, values)],
            samples: SAMPLES_ID,
            samples_bytes: self.block_bytes,
            granule_bytes: 8.min(self.block_bytes),
            heaps: (4 * self.sources).clamp(8, 1024),
            zero_byte: self.zero_byte(),
        }
    }

    /// Returns the byte that encodes zeros.
    pub fn zero_byte(&self) -> u8 {
        match &self.content {
            Content::Spectra(_) => 0,
            Content::Voltages(header) => header.encoding.zero_byte(),
        }
    }

    /// Returns the payload of the header's heap.
    ///
    /// # Errors
    /// As [`Content::text`].
    pub fn header_payload(&self) -> Result<Vec<u8>> {
        let mut text = self.content.text()?;
        text.truncate(text.iter().position(|byte| *byte == 0).unwrap_or(text.len()));
        let end = b"# end of header";
        let end = text.windows(end.len()).position(|line| line == end).unwrap_or(text.len());
        text.truncate(end);
        text.extend(format!("{TIMES_KEY:<13}{}\n", self.times).bytes());
        if self.first != 0 {
            text.extend(format!("{FIRST_KEY:<13}{}\n", self.first).bytes());
        }
        // Addresses of following items would be multiples of 8.
        text.resize(text.len().next_multiple_of(8), 0);
        Ok(text)
    }

    /// Returns the items of the header's heap.
    pub fn header_items(&self) -> [Item; 1] {
        [Item::at(HEADER_ID, 0)]
    }

    /// Returns the items of a heap of data whose first sample is number `time`.
    pub fn data_items(&self, time: u64, source: usize) -> [Item; 3] {
        [
            Item::immediate(TIME_ID, wrapped(time)),
            Item::immediate(ANTENNA_ID, source as u64),
            Item::at(SAMPLES_ID, 0),
        ]
    }

    /// Returns the items of the heap that ends a stream; `end` is the number of the sample after the last one.
    pub fn end_items(&self, end: u64) -> [Item; 2] {
        [Item::immediate(id::CONTROL, Control::Stop as u64), Item::immediate(END_ID, wrapped(end))]
    }

    /// Returns the number of the sample after the last one, if a packet ends a stream and says it.
    pub fn end_of(packet: &[u8]) -> Option<u64> {
        let packet = Packet::parse(packet).ok()?;
        packet.control().filter(|control| *control == Control::Stop)?;
        packet.value(END_ID)
    }

    /// Describes the items, for receivers that know nothing of them.
    pub fn descriptors(&self) -> Vec<Descriptor> {
        let described = |id, name: &str, letter, bits, shape: &[Option<u64>]| Descriptor {
            id,
            name: name.to_owned(),
            description: String::new(),
            format: vec![Kind { letter, bits }],
            shape: shape.to_vec(),
            numpy: None,
        };
        vec![
            described(TIME_ID, "timestamp", 'u', TIME_BITS, &[]),
            described(ANTENNA_ID, "antenna", 'u', TIME_BITS, &[]),
            described(SAMPLES_ID, "samples", 'u', 8, &[Some(self.block_bytes as u64)]),
            described(HEADER_ID, "header", 'c', 8, &[None]),
            described(END_ID, "end", 'u', TIME_BITS, &[]),
        ]
    }

    /// Parses the header in a packet that holds a whole header's heap; `None` for any other packet. `path` names the
    /// stream in errors.
    ///
    /// # Errors
    /// [`Error::Format`] for an invalid header.
    pub fn from_packet(
        packet: &[u8],
        path: &Path,
        options: &VoltageOptions,
    ) -> Option<Result<Self>> {
        let text = header_of(packet)?;
        Some(Self::parse(text, path, options))
    }

    /// Parses the text of a header.
    ///
    /// # Errors
    /// [`Error::Format`] for keys that are missing or invalid.
    pub fn parse(text: &[u8], path: &Path, options: &VoltageOptions) -> Result<Self> {
        let fields = dada::parse_header(text, MOST_BYTES, path)?;
        let times = fields.needed(TIMES_KEY)?;
        if times > MOST_TIMES {
            let why = format!("found {times}, expected {MOST_TIMES} at most");
            return Err(fields.fault(TIMES_KEY, why));
        }
        let first = fields.count(FIRST_KEY)?.unwrap_or(0);
        if first != wrapped(first) {
            return Err(fields.fault(FIRST_KEY, format!("found {first}, expected less than 2^48")));
        }
        let content = Content::new(&fields, path, options)?;
        Ok(Self::with_times(content, times as usize)?.starting_at(first))
    }

    /// Returns the order of the samples in the blocks of all sources at one time: axes antenna, channel, time, polarization,
    /// the channels as the header's text says. `None` for spectra, which are in the order of rows.
    pub(crate) fn layout(&self) -> Option<Layout> {
        self.layout.clone()
    }

    /// Writes the samples from `start` on of all antennas into `blocks`: axes antenna, bytes of a heap.
    ///
    /// # Errors
    /// [`Error::Shape`] for another number of streams or bytes; [`Error::Parameter`] for spectra, or another encoding.
    pub fn pack(&self, voltages: Voltages<'_>, start: usize, blocks: &mut [u8]) -> Result<()> {
        let (Content::Voltages(header), Some(layout)) = (&self.content, &self.layout) else {
            return Err(Error::parameter("content", "spectra", "it must be voltages"));
        };
        if voltages.encoding() != header.encoding {
            let rule = format!("the header says {:?}", header.encoding);
            return Err(Error::parameter("encoding", format!("{:?}", voltages.encoding()), rule));
        }
        check_length("streams", header.streams(), voltages.streams())?;
        check_length("blocks (bytes)", self.sources * self.block_bytes, blocks.len())?;
        let run_bytes = layout.run_bytes(self.times as u64) as usize;
        for (run, bytes) in blocks.chunks_exact_mut(run_bytes).enumerate() {
            layout.gather(run, voltages, start, bytes);
        }
        Ok(())
    }
}

/// Returns the text in a packet that holds a whole header's heap.
pub(crate) fn header_of(packet: &[u8]) -> Option<&[u8]> {
    let packet = Packet::parse(packet).ok()?;
    let heap_bytes = packet.heap_bytes.filter(|bytes| *bytes == packet.payload.len() as u64)?;
    let place = packet.place(HEADER_ID, heap_bytes)?;
    packet.payload.get(place.start as usize..place.end as usize)
}

/// Returns the number of a sample, which wraps.
pub(crate) fn wrapped(number: u64) -> u64 {
    number & ((1 << TIME_BITS) - 1)
}

fn layout(content: &Content, times: usize) -> Option<Layout> {
    let Content::Voltages(header) = content else { return None };
    let order = [Axis::Antenna, Axis::Channel, Axis::Time, Axis::Polarization];
    let (counts, bytes) = (counts(header), header.encoding.sample_bits() / 8);
    let mut layout = Layout::new(order, counts, times as u64, bytes);
    if dada::is_reversed(header).unwrap_or(false) {
        layout.reverse_channels(counts);
    }
    Some(layout)
}

fn counts(header: &VoltageHeader) -> Counts {
    Counts {
        antennas: header.antennas,
        channels: header.coarse_channels(),
        polarizations: header.polarizations,
    }
}

/// Returns the bytes of one sample of all channels of a source.
fn sample_bytes(content: &Content) -> Result<usize> {
    match content {
        Content::Spectra(header) => Ok(header.row_bytes()),
        Content::Voltages(header) => {
            let encoding = header.encoding;
            if encoding.group_samples() > 1 {
                let rule = "samples of streams have whole bytes: convert to 8 bits first";
                return Err(Error::parameter("encoding", format!("{encoding:?}"), rule));
            }
            Ok(header.coarse_channels() * header.polarizations * encoding.sample_bits() / 8)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::heaps::Heaps;
    use crate::live::packet::Format;
    use crate::live::spead::{Flavour, Packetizer, Repeat};
    use crate::units::Epoch;
    use crate::voltage::VoltageEncoding;

    fn header(lower: bool) -> VoltageHeader {
        let centres = vec![1400e6, 1401e6, 1402e6];
        let mut header = VoltageHeader::new(centres, 1e-6, VoltageEncoding::Complex8);
        (header.antennas, header.polarizations) = (2, 2);
        header.lower_sideband = lower;
        header.start = Epoch::new(60_000, 3.0);
        header
    }

    #[test]
    fn voltages_return_from_packets() {
        for lower in [false, true] {
            let header = header(lower);
            let sent = Stream::with_times(Content::Voltages(header.clone()), 4).unwrap();
            let mut block = header.block(12);
            for (stream, row) in block.rows_mut().enumerate() {
                row.iter_mut().enumerate().for_each(|(at, byte)| *byte = (stream * 31 + at) as u8);
            }
            block.set_times(12).unwrap();
            let mut packets = Vec::new();
            let mut keep = |packet: &[u8]| {
                packets.push(packet.to_vec());
                Ok(())
            };
            let mut sender = Packetizer::new(Flavour::BITS_48, 16, Repeat::All).unwrap();
            let text = sent.header_payload().unwrap();
            let mut whole = Packetizer::new(Flavour::BITS_48, 4096, Repeat::All).unwrap();
            whole.send(1, &sent.header_items(), &text, &mut keep).unwrap();
            let mut blocks = vec![0; sent.sources() * sent.block_bytes()];
            for first in [0, 4, 8] {
                sent.pack(block.voltages(), first, &mut blocks).unwrap();
                for (antenna, bytes) in blocks.chunks_exact(sent.block_bytes()).enumerate() {
                    let items = sent.data_items(first as u64, antenna);
                    sender.send((2 + first + antenna) as u64, &items, bytes, &mut keep).unwrap();
                }
            }
            let (path, options) = (Path::new("x"), VoltageOptions::default());
            let found = Stream::from_packet(&packets[0], path, &options).unwrap().unwrap();
            assert_eq!((found.times(), found.sources()), (4, 2));
            assert!(Stream::from_packet(&packets[1], path, &options).is_none());
            let Content::Voltages(own) = found.content() else { panic!("{found:?}") };
            let mut heaps = Heaps::new(found.item_map()).unwrap();
            let mut bytes = vec![0; 3 * 2 * found.block_bytes()];
            for packet in &packets[1..] {
                let part = heaps.part(packet).unwrap().unwrap();
                let cell = part.counter as usize / 4 * 2 + part.source;
                let to = cell * found.block_bytes() + part.offset;
                bytes[to..to + part.payload.len()].copy_from_slice(part.payload);
            }
            let (layout, mut received) = (found.layout().unwrap(), own.block(12));
            for run in 0..layout.runs() {
                for first in [0_u64, 4, 8] {
                    let from = layout.offset(run, first) as usize;
                    let run_bytes = layout.run_bytes(4) as usize;
                    layout.scatter(run, &bytes[from..][..run_bytes], &mut received, first as usize);
                }
            }
            received.set_times(12).unwrap();
            // A lower sideband is written with descending channels.
            for antenna in 0..2 {
                for channel in 0..3 {
                    let here = if lower { 2 - channel } else { channel };
                    assert_eq!(own.centres_hz[here], header.centres_hz[channel]);
                    for polarization in 0..2 {
                        let stream = |channel| (antenna * 3 + channel) * 2 + polarization;
                        let (was, is) = (block.voltages(), received.voltages());
                        assert_eq!(was.row(stream(channel)), is.row(stream(here)));
                    }
                }
            }
        }
    }

    #[test]
    fn numbers_and_ends_wrap() {
        let first = (1 << TIME_BITS) - 3;
        let sent = Stream::new(Content::Voltages(header(false))).unwrap().starting_at(first);
        let text = sent.header_payload().unwrap();
        let (path, options) = (Path::new("x"), VoltageOptions::default());
        assert_eq!(Stream::parse(&text, path, &options).unwrap().first(), first);
        let text = String::from_utf8(text).unwrap();
        let long = text.replace(&first.to_string(), &(1_u64 << TIME_BITS).to_string());
        let error = Stream::parse(long.as_bytes(), path, &options).unwrap_err().to_string();
        assert!(error.contains(FIRST_KEY), "{error}");
        assert_eq!(sent.data_items(first + 5, 1)[0], Item::immediate(TIME_ID, 2));
        let mut whole = Packetizer::new(Flavour::BITS_48, 4096, Repeat::All).unwrap();
        let mut ends = Vec::new();
        let mut keep = |packet: &[u8]| {
            ends.push(Stream::end_of(packet));
            Ok(())
        };
        whole.send(1, &sent.end_items(first + 5), &[], &mut keep).unwrap();
        whole.send(2, &sent.end_items(first + 5)[..1], &[], &mut keep).unwrap();
        whole.send(3, &sent.end_items(first + 5)[1..], &[], &mut keep).unwrap();
        assert_eq!(ends, [Some(2), None, None]);
    }

    #[test]
    fn impossible_divisions_are_refused() {
        let content = Content::Voltages(header(false));
        assert!(Stream::with_times(content.clone(), 0).is_err());
        let real = VoltageHeader::new(vec![1e9], 1e-6, VoltageEncoding::Real2);
        assert!(Stream::new(Content::Voltages(real)).is_err());
        let text = Stream::new(content).unwrap().header_payload().unwrap();
        let text = String::from_utf8(text).unwrap();
        for (key, bad) in [("SPEAD_TIMES", "0"), ("SPEAD_TIMES", "1048577"), ("NANT", "x")] {
            let line = |line: &str| {
                if line.starts_with(key) { format!("{key} {bad}") } else { line.to_owned() }
            };
            let text: Vec<String> = text.lines().map(line).collect();
            let options = VoltageOptions::default();
            let error = Stream::parse(text.join("\n").as_bytes(), Path::new("x"), &options);
            assert!(error.unwrap_err().to_string().contains(key));
        }
    }
}
