//! SPEAD packets (Streaming Protocol for Exchanging Astronomical Data) of the flavours SPEAD-64-XX.
//!
//! A heap is a set of items sent in one or more packets. A packet is a header of 8 bytes, item pointers of 8 bytes each,
//! and a part of the heap's payload; all words are big-endian. A pointer holds an immediate value or the offset of an
//! item's bytes in the heap's payload. The bits of identifiers and of addresses sum to 64; 64-48 and 64-40 are common.
//!
//! # Source
//! SPEAD protocol specification (CASPER and SKA South Africa); checked with packets of spead2.

use std::ops::Range;

use crate::error::{Error, Result};

/// First two bytes of each packet: the magic number and the version.
const MAGIC: [u8; 2] = [0x53, 4];

/// Bytes of a packet's header, and of each item pointer.
pub const WORD: usize = 8;

/// Most items of a heap: their pointers and a payload fit a datagram.
const MOST_ITEMS: usize = 1000;

/// Identifiers of items that the protocol defines.
pub mod id {
    /// Padding.
    pub const NULL: u64 = 0x00;
    /// Number of the heap.
    pub const HEAP: u64 = 0x01;
    /// Bytes of the heap's payload.
    pub const HEAP_BYTES: u64 = 0x02;
    /// Offset of this packet's payload in the heap's.
    pub const OFFSET: u64 = 0x03;
    /// Bytes of this packet's payload.
    pub const PAYLOAD_BYTES: u64 = 0x04;
    /// Descriptor of an item: a packet within the payload.
    pub const DESCRIPTOR: u64 = 0x05;
    /// Control of the stream: [`super::Control`].
    pub const CONTROL: u64 = 0x06;
}

/// Division of an item pointer: bits of the address or immediate value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flavour(u8);

impl Flavour {
    /// SPEAD-64-48, as MeerKAT sends.
    pub const BITS_48: Self = Self(48);
    /// SPEAD-64-40, the default of spead2 in Python.
    pub const BITS_40: Self = Self(40);

    /// Creates a flavour with addresses of `bits`: 8, 16 and so on to 56.
    ///
    /// # Errors
    /// [`Error::Parameter`] for another number.
    pub fn new(bits: u32) -> Result<Self> {
        match bits {
            8 | 16 | 24 | 32 | 40 | 48 | 56 => Ok(Self(bits as u8)),
            _ => {
                let rule = "it must be a multiple of 8 from 8 to 56";
                Err(Error::parameter("address_bits", u64::from(bits), rule))
            }
        }
    }

    /// Returns the bits of an address or immediate value.
    pub fn address_bits(self) -> u32 {
        self.0.into()
    }

    /// Returns the largest immediate value, and the mask of the address bits.
    pub fn max_value(self) -> u64 {
        (1 << self.0) - 1
    }
}

/// Item pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item {
    /// Identifier.
    pub id: u64,
    /// Immediate value, or address.
    pub value: u64,
    /// Whether the value is the item itself, not the offset of its bytes in the heap's payload.
    pub is_immediate: bool,
}

impl Item {
    /// Creates an item whose value lies in the pointer.
    pub const fn immediate(id: u64, value: u64) -> Self {
        Self { id, value, is_immediate: true }
    }

    /// Creates an item whose bytes begin at `offset` of the heap's payload.
    pub const fn at(id: u64, offset: u64) -> Self {
        Self { id, value: offset, is_immediate: false }
    }

    fn parse(word: u64, flavour: Flavour) -> Self {
        Self {
            id: (word & !(1 << 63)) >> flavour.0,
            value: word & flavour.max_value(),
            is_immediate: word >> 63 == 1,
        }
    }

    fn word(self, flavour: Flavour) -> u64 {
        u64::from(self.is_immediate) << 63 | self.id << flavour.0 | self.value
    }
}

/// Command of a control item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// The stream begins.
    Start,
    /// Descriptors are sent again.
    Reissue,
    /// The stream ends; its heap carries no data.
    Stop,
    /// Descriptors have changed.
    Update,
}

impl Control {
    /// Returns the command of a control item's value.
    pub fn of(value: u64) -> Option<Self> {
        [Self::Start, Self::Reissue, Self::Stop, Self::Update].get(value as usize).copied()
    }
}

/// Reason for rejecting a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It is shorter than its header and pointers.
    Short,
    /// It does not begin with SPEAD's magic number and version 4.
    NotSpead,
    /// Its widths of identifier and address do not sum to 64 bits.
    Widths,
    /// It lacks the heap's number, the payload's offset or the payload's length.
    Missing,
    /// Its payload is shorter than it states.
    PayloadShort,
    /// Its payload ends beyond the heap.
    PayloadBeyondHeap,
}

impl Fault {
    /// Returns the reason in words.
    pub fn text(self) -> &'static str {
        match self {
            Self::Short => "shorter than its header and item pointers",
            Self::NotSpead => "not SPEAD version 4",
            Self::Widths => "widths of item identifier and heap address do not sum to 64 bits",
            Self::Missing => "no heap number, payload offset or payload length",
            Self::PayloadShort => "payload shorter than stated",
            Self::PayloadBeyondHeap => "payload beyond the end of the heap",
        }
    }
}

/// Parsed packet.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// Flavour.
    pub flavour: Flavour,
    /// Number of the heap.
    pub heap: u64,
    /// Bytes of the heap's payload, if stated.
    pub heap_bytes: Option<u64>,
    /// Offset of this packet's payload in the heap's.
    pub offset: u64,
    /// This packet's part of the payload.
    pub payload: &'a [u8],
    pointers: &'a [u8],
}

impl<'a> Packet<'a> {
    /// Parses a packet. Bytes after the payload are ignored, as some switches pad short packets.
    ///
    /// # Errors
    /// The [`Fault`] of a packet that violates the protocol.
    pub fn parse(bytes: &'a [u8]) -> std::result::Result<Self, Fault> {
        Self::scan(bytes, |_| {})
    }

    /// Parses a packet, and passes each of its items to `see` on the way.
    ///
    /// # Errors
    /// As [`Packet::parse`].
    #[inline]
    pub(crate) fn scan(
        bytes: &'a [u8],
        mut see: impl FnMut(Item),
    ) -> std::result::Result<Self, Fault> {
        let (header, rest) = bytes.split_at_checked(WORD).ok_or(Fault::Short)?;
        if header[..2] != MAGIC {
            return Err(Fault::NotSpead);
        }
        let (identifier, address) = (header[2], header[3]);
        if identifier == 0 || address == 0 || u32::from(identifier) + u32::from(address) != 8 {
            return Err(Fault::Widths);
        }
        let flavour = Flavour(8 * address);
        let count = usize::from(u16::from_be_bytes([header[6], header[7]]));
        let (pointers, rest) = rest.split_at_checked(count * WORD).ok_or(Fault::Short)?;
        let mut packet =
            Self { flavour, heap: 0, heap_bytes: None, offset: 0, payload: &[], pointers };
        let (mut heap, mut offset, mut length) = (None, None, None);
        for item in packet.items() {
            match (item.is_immediate, item.id) {
                (true, id::HEAP) => heap = Some(item.value),
                (true, id::HEAP_BYTES) => packet.heap_bytes = Some(item.value),
                (true, id::OFFSET) => offset = Some(item.value),
                (true, id::PAYLOAD_BYTES) => length = Some(item.value),
                _ => {}
            }
            see(item);
        }
        let (Some(heap), Some(offset), Some(length)) = (heap, offset, length) else {
            return Err(Fault::Missing);
        };
        let length = usize::try_from(length).map_err(|_| Fault::PayloadShort)?;
        packet.payload = rest.get(..length).ok_or(Fault::PayloadShort)?;
        let end = offset.checked_add(length as u64).ok_or(Fault::PayloadBeyondHeap)?;
        // A heap of no bytes carries one byte of padding.
        if packet.heap_bytes.is_some_and(|bytes| end > bytes.max(1)) {
            return Err(Fault::PayloadBeyondHeap);
        }
        (packet.heap, packet.offset) = (heap, offset);
        Ok(packet)
    }

    /// Iterates over the item pointers, the protocol's own included, in their order.
    pub fn items(&self) -> impl Iterator<Item = Item> + 'a {
        let flavour = self.flavour;
        self.pointers
            .as_chunks::<WORD>()
            .0
            .iter()
            .map(move |word| Item::parse(u64::from_be_bytes(*word), flavour))
    }

    /// Returns the value of the last immediate item with an identifier.
    pub fn value(&self, id: u64) -> Option<u64> {
        self.items().filter(|item| item.id == id && item.is_immediate).last().map(|item| item.value)
    }

    /// Returns the stream control command of the packet.
    pub fn control(&self) -> Option<Control> {
        self.value(id::CONTROL).and_then(Control::of)
    }

    /// Returns where the bytes of an addressed item lie in the payload of a heap of `heap_bytes`: they end at the next
    /// larger address or at the heap's end. Of items with equal addresses all but the last are empty. `None` if this packet
    /// does not have the item.
    pub fn place(&self, id: u64, heap_bytes: u64) -> Option<Range<u64>> {
        let at = self.items().position(|item| item.id == id && !item.is_immediate)?;
        Some(self.place_at(at, heap_bytes))
    }

    /// Returns the places of all items with an identifier, as [`Packet::place`] does for the first.
    pub fn places(&self, id: u64, heap_bytes: u64) -> impl Iterator<Item = Range<u64>> {
        let all = self.items().enumerate();
        let own = all.filter(move |(_, item)| item.id == id && !item.is_immediate);
        own.map(move |(at, _)| self.place_at(at, heap_bytes))
    }

    fn place_at(&self, at: usize, heap_bytes: u64) -> Range<u64> {
        let addressed = || self.items().enumerate().filter(|(_, item)| !item.is_immediate);
        let start = self.items().nth(at).map_or(0, |item| item.value);
        let is_empty = addressed().any(|(other, item)| other > at && item.value == start);
        let ends = addressed().map(|(_, item)| item.value).filter(|address| *address > start);
        let end = if is_empty { start } else { ends.min().unwrap_or(heap_bytes) };
        start..end.min(heap_bytes).max(start)
    }
}

/// Packets of a heap that carry its items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeat {
    /// All: any packet may be the first that a receiver sees.
    All,
    /// The first only: later packets carry more samples, and are lost with the first.
    First,
}

/// Divides heaps into packets.
#[derive(Clone, Debug)]
pub struct Packetizer {
    flavour: Flavour,
    repeat: Repeat,
    /// Largest payload of a packet, a multiple of 8 bytes.
    payload_bytes: usize,
    packet: Vec<u8>,
}

impl Packetizer {
    /// Creates a divider into packets of at most `payload_bytes` of payload each, a multiple of 8.
    ///
    /// # Errors
    /// [`Error::Parameter`] for a payload that is not a multiple of 8 from 8 to 57 000 bytes.
    pub fn new(flavour: Flavour, payload_bytes: usize, repeat: Repeat) -> Result<Self> {
        if payload_bytes == 0 || !payload_bytes.is_multiple_of(WORD) || payload_bytes > 57_000 {
            let rule = "it must be a multiple of 8 from 8 to 57000";
            return Err(Error::parameter("payload_bytes", payload_bytes, rule));
        }
        Ok(Self { flavour, repeat, payload_bytes, packet: Vec::new() })
    }

    /// Passes the packets of a heap to `send`, in order. Addresses among the items are offsets in `payload`. An empty
    /// payload is sent as one byte, with a NULL item at its address.
    ///
    /// # Errors
    /// [`Error::Parameter`] for an identifier or a value that the flavour cannot hold; the error of `send`.
    pub fn send(
        &mut self,
        heap: u64,
        items: &[Item],
        payload: &[u8],
        send: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        check_items(items, self.flavour)?;
        let padding: &[Item] = if payload.is_empty() { &[Item::at(id::NULL, 0)] } else { &[] };
        let payload = if payload.is_empty() { &[0] } else { payload };
        for (part, bytes) in payload.chunks(self.payload_bytes).enumerate() {
            let own = [
                Item::immediate(id::HEAP, heap & self.flavour.max_value()),
                Item::immediate(id::HEAP_BYTES, payload.len() as u64),
                Item::immediate(id::OFFSET, (part * self.payload_bytes) as u64),
                Item::immediate(id::PAYLOAD_BYTES, bytes.len() as u64),
            ];
            let repeated = if part == 0 || self.repeat == Repeat::All { items } else { &[] };
            write_packet(self.flavour, &[&own, repeated, padding], bytes, &mut self.packet);
            send(&self.packet)?;
        }
        Ok(())
    }
}

/// Checks that a flavour can hold the items, and a packet their number.
///
/// # Errors
/// [`Error::Parameter`] naming the first that does not fit.
fn check_items(items: &[Item], flavour: Flavour) -> Result<()> {
    if items.len() > MOST_ITEMS {
        let rule = format!("a packet has at most {MOST_ITEMS}");
        return Err(Error::parameter("items", items.len(), rule));
    }
    let (bits, most) = (flavour.address_bits(), flavour.max_value());
    let longest_id = (1 << (63 - bits)) - 1;
    match items.iter().find(|item| item.value > most || item.id > longest_id) {
        None => Ok(()),
        Some(Item { id, value, .. }) => {
            let rule =
                format!("item {id:#x} with value {value} must fit {} and {bits} bits", 63 - bits);
            Err(Error::parameter("items", *value, rule))
        }
    }
}

/// Writes a packet with the given groups of items in place of the bytes of `packet`.
pub(super) fn write_packet(
    flavour: Flavour,
    items: &[&[Item]],
    payload: &[u8],
    packet: &mut Vec<u8>,
) {
    let address = flavour.0 / 8;
    let count: usize = items.iter().map(|group| group.len()).sum();
    packet.clear();
    packet.extend([MAGIC[0], MAGIC[1], 8 - address, address, 0, 0]);
    packet.extend((count as u16).to_be_bytes());
    for item in items.iter().copied().flatten() {
        packet.extend(item.word(flavour).to_be_bytes());
    }
    packet.extend(payload);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// First packet of a heap of spead2 4.5: SPEAD-64-48, timestamp 0x123456 immediate, item 0x4300 at address 0.
    const PACKET: [u8; 64] = [
        0x53, 0x04, 0x02, 0x06, 0, 0, 0, 6, //
        0x80, 0x01, 0, 0, 0, 0, 0, 1, //
        0x80, 0x02, 0, 0, 0, 0, 0, 16, //
        0x80, 0x03, 0, 0, 0, 0, 0, 0, //
        0x80, 0x04, 0, 0, 0, 0, 0, 8, //
        0x96, 0x00, 0, 0, 0, 0x12, 0x34, 0x56, //
        0x43, 0x00, 0, 0, 0, 0, 0, 0, //
        1, 2, 3, 4, 5, 6, 7, 8,
    ];

    fn packets(items: &[Item], payload: &[u8], flavour: Flavour, bytes: usize) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        let mut divider = Packetizer::new(flavour, bytes, Repeat::All).unwrap();
        let mut keep = |packet: &[u8]| {
            all.push(packet.to_vec());
            Ok(())
        };
        divider.send(1, items, payload, &mut keep).unwrap();
        all
    }

    #[test]
    fn packets_are_those_of_spead2() {
        let items = [Item::immediate(0x1600, 0x12_3456), Item::at(0x4300, 0)];
        let payload: Vec<u8> = (1..=16).collect();
        let sent = packets(&items, &payload, Flavour::BITS_48, 8);
        assert_eq!(sent.len(), 2);
        assert_eq!(sent[0], PACKET);
        let packet = Packet::parse(&PACKET).unwrap();
        assert_eq!((packet.heap, packet.heap_bytes, packet.offset), (1, Some(16), 0));
        assert_eq!(packet.payload, [1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(packet.value(0x1600), Some(0x12_3456));
        assert_eq!(packet.place(0x4300, 16), Some(0..16));
        let second = Packet::parse(&sent[1]).unwrap();
        assert_eq!((second.offset, second.payload), (8, &payload[8..]));
    }

    #[test]
    fn every_flavour_returns_what_was_sent() {
        for bits in (8..=56).step_by(8) {
            let flavour = Flavour::new(bits).unwrap();
            let most = flavour.max_value();
            let id = (1_u64 << (63 - bits)) - 1;
            let items = [Item::immediate(id, most), Item::at(id - 1, 3), Item::at(id - 2, 7)];
            let sent = packets(&items, &[5; 9], flavour, 16);
            let packet = Packet::parse(&sent[0]).unwrap();
            assert_eq!(packet.flavour, flavour);
            assert_eq!(packet.items().skip(4).collect::<Vec<_>>(), items);
            assert_eq!(packet.place(id - 1, 9), Some(3..7));
            assert_eq!(packet.place(id - 2, 9), Some(7..9));
            assert_eq!(packet.place(id - 2, 5), Some(7..7), "an address beyond the heap");
            assert_eq!(packet.place(id - 9, 9), None);
        }
        assert!(Flavour::new(64).is_err() && Flavour::new(0).is_err() && Flavour::new(44).is_err());
    }

    #[test]
    fn damaged_packets_are_rejected_by_reason() {
        let with = |at: usize, value: u8| {
            let mut packet = PACKET;
            packet[at] = value;
            Packet::parse(&packet).map(|packet| packet.heap)
        };
        assert_eq!(with(0, 0x54), Err(Fault::NotSpead));
        assert_eq!(with(1, 3), Err(Fault::NotSpead));
        assert_eq!(with(3, 5), Err(Fault::Widths));
        assert_eq!(with(7, 200), Err(Fault::Short));
        assert_eq!(with(9, 0x7f), Err(Fault::Missing));
        assert_eq!(with(39, 9), Err(Fault::PayloadShort));
        assert_eq!(with(31, 9), Err(Fault::PayloadBeyondHeap));
        for length in 0..PACKET.len() {
            assert!(Packet::parse(&PACKET[..length]).is_err(), "{length} bytes");
        }
        let mut padded = PACKET.to_vec();
        padded.extend([9; 20]);
        assert_eq!(Packet::parse(&padded).map(|packet| packet.payload.len()), Ok(8));
    }

    #[test]
    fn of_items_at_one_address_the_last_has_the_bytes() {
        let items =
            [Item::at(0x100, 0), Item::at(0x101, 4), Item::at(0x102, 0), Item::at(0x103, 8)];
        let sent = packets(&items, &[5; 8], Flavour::BITS_48, 8);
        let packet = Packet::parse(&sent[0]).unwrap();
        let places = [0x100, 0x101, 0x102, 0x103].map(|id| packet.place(id, 8));
        assert_eq!(places, [Some(0..0), Some(4..8), Some(0..4), Some(8..8)]);
        assert_eq!(
            (packet.places(0x102, 8).next(), packet.places(0x102, 8).count()),
            (Some(0..4), 1)
        );
    }

    #[test]
    fn items_may_come_in_the_first_packet_only() {
        let mut sent = Vec::new();
        let mut divider = Packetizer::new(Flavour::BITS_48, 8, Repeat::First).unwrap();
        let mut keep = |packet: &[u8]| {
            sent.push(packet.to_vec());
            Ok(())
        };
        divider.send(1, &[Item::at(0x4300, 0)], &[7; 20], &mut keep).unwrap();
        let counts: Vec<usize> =
            sent.iter().map(|packet| Packet::parse(packet).unwrap().items().count()).collect();
        assert_eq!(counts, [5, 4, 4]);
    }

    #[test]
    fn control_items_are_commands() {
        let stop = [Item::immediate(id::CONTROL, 2)];
        let sent = packets(&stop, &[], Flavour::BITS_40, 64);
        let packet = Packet::parse(&sent[0]).unwrap();
        assert_eq!((packet.control(), packet.payload), (Some(Control::Stop), &[0][..]));
        assert_eq!(Control::of(4), None);
    }

    #[test]
    fn items_that_do_not_fit_are_refused() {
        let mut divider = Packetizer::new(Flavour::BITS_48, 8, Repeat::All).unwrap();
        let mut send = |_: &[u8]| Ok(());
        let large = [Item::immediate(0x1600, 1 << 48)];
        let error = divider.send(0, &large, &[], &mut send).unwrap_err().to_string();
        assert!(error.contains("0x1600"), "{error}");
        assert!(divider.send(0, &[Item::immediate(1 << 15, 0)], &[], &mut send).is_err());
        assert!(divider.send(0, &[Item::immediate(9, 0); 1001], &[], &mut send).is_err());
        assert!(Packetizer::new(Flavour::BITS_48, 12, Repeat::All).is_err());
    }
}
