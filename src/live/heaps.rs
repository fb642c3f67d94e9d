//! Voltages in SPEAD heaps: a map of items gives counter, source and samples.
//!
//! A heap holds a block of one source and comes in one packet or several. Senders may repeat the items in each packet, or
//! send them in the first only; a table of the last heaps gives later packets the items of their first. Such a packet that
//! comes before the first of its heap is rejected as [`Reason::Unplaced`]. Heaps in flight at the same time need different
//! numbers, also those of different senders, as the protocol says.

use crate::error::{Error, Result};
use crate::live::packet::{Format, Outcome, Part, Reason, Rejection, Shape, Values};
use crate::live::spead::{self, Fault, Item, Packet};

/// Most items that tell sources apart.
const MOST_SELECTORS: usize = 8;

/// Immediate item that tells sources apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Selector {
    /// Identifier of the item.
    pub id: u64,
    /// Lowest bit used.
    pub shift: u32,
    /// Number of bits used.
    pub bits: u32,
    /// Values of the sources that are received.
    pub values: Values,
}

impl Selector {
    /// Makes a selector of all bits of an item.
    pub const fn new(id: u64, values: Values) -> Self {
        Self { id, shift: 0, bits: 64, values }
    }
}

/// Map of items.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ItemMap {
    /// Identifier of the immediate item that counts samples.
    pub counter: u64,
    /// Bits after which the counter wraps, at most those of an immediate value.
    pub counter_bits: u32,
    /// Difference of the counter between consecutive heaps of a source.
    pub step: u64,
    /// Items that tell sources apart, outermost first, at most 8. If a heap lacks one, it counts as 0.
    pub sources: Vec<Selector>,
    /// Identifier of the addressed item with the samples.
    pub samples: u64,
    /// Its bytes. Heaps with another length are of a wrong length; heaps without it are left out.
    pub samples_bytes: usize,
    /// Bytes by which presence is tracked: 8 for items at multiples of 8, 1 for any.
    pub granule_bytes: usize,
    /// Heaps in flight whose items are kept.
    pub heaps: usize,
    /// Byte that encodes zeros.
    pub zero_byte: u8,
}

impl ItemMap {
    /// Maps heaps of a MeerKAT digitiser: 4096 samples of 10 bits of a polarization, bit 0 of the digitiser's item.
    pub fn meerkat_digitiser() -> Self {
        let polarization = Selector { id: 0x3101, shift: 0, bits: 1, values: Values::from(0, 2) };
        Self {
            counter: 0x1600,
            counter_bits: 48,
            step: 4096,
            sources: vec![polarization],
            samples: 0x3300,
            samples_bytes: 5120,
            granule_bytes: 5120,
            heaps: 8,
            zero_byte: 0,
        }
    }

    /// Maps heaps of MeerKAT's F-engines: `channels` channels x `spectra` spectra x 2 polarizations of 8+8 bits, from
    /// `antennas` F-engines numbered from 0 on, whose heaps begin at `first_channels`. A spectrum is made of
    /// `samples_per_spectrum` samples of the digitiser.
    pub fn meerkat_f_engine(
        antennas: usize,
        first_channels: Values,
        channels: usize,
        spectra: usize,
        samples_per_spectrum: u64,
    ) -> Self {
        Self {
            counter: 0x1600,
            counter_bits: 48,
            step: samples_per_spectrum.saturating_mul(spectra as u64),
            sources: vec![
                Selector::new(0x4101, Values::from(0, antennas)),
                Selector::new(0x4103, first_channels),
            ],
            samples: 0x4300,
            samples_bytes: channels.saturating_mul(spectra).saturating_mul(4),
            granule_bytes: 8,
            heaps: antennas.saturating_mul(4).clamp(8, 1024),
            zero_byte: 0,
        }
    }
}

/// Items of a heap that places its packets.
#[derive(Clone, Copy, Debug)]
struct Items {
    source: usize,
    counter: u64,
    /// Offset of the samples in the heap.
    start: u64,
}

/// Values in the items of a packet, of those that the map names.
#[derive(Clone, Copy, Debug, Default)]
struct Found {
    counter: Option<u64>,
    /// Values of the items that tell sources apart; those that the packet lacks are 0.
    sources: [u64; MOST_SELECTORS],
    /// Address of the samples.
    start: Option<u64>,
    /// Number of addressed items.
    addressed: usize,
    /// Whether there are items other than those that the protocol defines.
    has_items: bool,
    /// Whether there is a descriptor or a control.
    is_protocol: bool,
}

impl Found {
    #[inline]
    fn see(&mut self, map: &ItemMap, item: Item) {
        self.has_items |= item.id > spead::id::CONTROL;
        self.is_protocol |= matches!(item.id, spead::id::DESCRIPTOR | spead::id::CONTROL);
        if !item.is_immediate {
            self.addressed += 1;
            if item.id == map.samples && self.start.is_none() {
                self.start = Some(item.value);
            }
            return;
        }
        if item.id == map.counter {
            self.counter = Some(item.value);
        }
        for (value, selector) in self.sources.iter_mut().zip(&map.sources) {
            if item.id == selector.id {
                *value = item.value;
            }
        }
    }
}

/// Heap in flight.
#[derive(Clone, Copy, Debug)]
struct Heap {
    number: u64,
    /// Items, or the reason for rejecting all of its packets; `None` for a heap without samples.
    items: std::result::Result<Option<Items>, Rejection>,
}

/// Receiver of heaps.
#[derive(Clone, Debug)]
pub struct Heaps {
    map: ItemMap,
    shape: Shape,
    /// Last heaps; the oldest is overwritten.
    table: Vec<Heap>,
    next: usize,
}

impl Heaps {
    /// Checks a map of items.
    ///
    /// # Errors
    /// [`Error::Parameter`] naming the first impossible number.
    pub fn new(map: ItemMap) -> Result<Self> {
        if !(1..=56).contains(&map.counter_bits) {
            return Err(Error::parameter("counter_bits", map.counter_bits, "it must be 1 to 56"));
        }
        if !(1..=4096).contains(&map.heaps) {
            return Err(Error::parameter("heaps", map.heaps, "it must be 1 to 4096"));
        }
        if map.sources.len() > MOST_SELECTORS {
            let rule = format!("at most {MOST_SELECTORS} items tell sources apart");
            return Err(Error::parameter("sources", map.sources.len(), rule));
        }
        for Selector { shift, bits, .. } in &map.sources {
            if *shift >= 64 || !(1..=64).contains(bits) {
                let rule = format!("bits from {shift} on: both must be at most 64");
                return Err(Error::parameter("sources", *bits, rule));
            }
        }
        let shape = Shape {
            sources: Values::sources(map.sources.iter().map(|selector| selector.values))?,
            block_bytes: map.samples_bytes,
            granule_bytes: map.granule_bytes,
            step: map.step,
            period: Some(1 << map.counter_bits),
            zero_byte: map.zero_byte,
        };
        shape.check()?;
        Ok(Self { table: Vec::with_capacity(map.heaps), map, shape, next: 0 })
    }

    /// Places a packet by the items that were found in it; `None` if it has none but the protocol's, so that they came in
    /// another.
    fn items(
        &self,
        packet: &Packet<'_>,
        found: &Found,
    ) -> Option<std::result::Result<Option<Items>, Rejection>> {
        if !found.has_items {
            return found.is_protocol.then_some(Ok(None));
        }
        let (Some(counter), Some(heap_bytes), Some(start)) =
            (found.counter, packet.heap_bytes, found.start)
        else {
            return Some(Ok(None));
        };
        let place = match found.addressed {
            1 => Some(start..heap_bytes.max(start)),
            _ => packet.place(self.map.samples, heap_bytes),
        };
        let Some(place) = place else { return Some(Ok(None)) };
        let mut source = 0;
        for (Selector { shift, bits, values, .. }, value) in
            self.map.sources.iter().zip(found.sources)
        {
            match values.index(value >> shift & u64::MAX >> (64 - bits)) {
                Some(index) => source = source * values.count + index,
                None => return Some(Err(Rejection::of(Reason::WrongSource))),
            }
        }
        let rejected = |reason| Some(Err(Rejection::from_source(reason, source)));
        if place.end - place.start != self.shape.block_bytes as u64 {
            return rejected(Reason::WrongLength);
        }
        if counter >> self.map.counter_bits != 0 {
            return rejected(Reason::Invalid);
        }
        Some(Ok(Some(Items { source, counter, start: place.start })))
    }

    fn keep(&mut self, heap: Heap) {
        match self.table.iter().position(|other| other.number == heap.number) {
            Some(place) => self.table[place] = heap,
            None if self.table.len() < self.map.heaps => self.table.push(heap),
            None => {
                self.table[self.next] = heap;
                self.next = (self.next + 1) % self.table.len();
            }
        }
    }
}

impl Format for Heaps {
    fn shape(&self) -> Shape {
        self.shape
    }

    fn part<'a>(&mut self, packet: &'a [u8]) -> Outcome<'a> {
        let mut found = Found::default();
        let map = &self.map;
        let packet = Packet::scan(packet, |item| found.see(map, item)).map_err(|fault| {
            Rejection::of(match fault {
                Fault::Short | Fault::PayloadShort => Reason::WrongLength,
                _ => Reason::Invalid,
            })
        })?;
        let items = match self.items(&packet, &found) {
            Some(items) => {
                let is_whole = packet.heap_bytes == Some(packet.payload.len() as u64);
                if !is_whole {
                    self.keep(Heap { number: packet.heap, items });
                }
                items
            }
            None => {
                let known = self.table.iter().find(|heap| heap.number == packet.heap);
                known.map(|heap| heap.items).ok_or(Rejection::of(Reason::Unplaced))?
            }
        };
        let Some(Items { source, counter, start }) = items? else { return Ok(None) };
        // The bytes of this packet that belong to the samples.
        let end = start + self.shape.block_bytes as u64;
        let own = packet.offset..packet.offset + packet.payload.len() as u64;
        let (first, last) = (own.start.max(start), own.end.min(end));
        if first >= last {
            return Ok(None);
        }
        let payload = &packet.payload[(first - own.start) as usize..(last - own.start) as usize];
        Ok(Some(Part { source, counter, offset: (first - start) as usize, payload }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::spead::{Flavour, Packetizer, Repeat};

    fn map() -> ItemMap {
        ItemMap {
            heaps: 2,
            ..ItemMap::meerkat_f_engine(3, Values { first: 64, step: 64, count: 2 }, 4, 2, 128)
        }
    }

    fn items(counter: u64, antenna: u64, channel: u64) -> Vec<Item> {
        vec![
            Item::immediate(0x1600, counter),
            Item::immediate(0x4101, antenna),
            Item::immediate(0x4103, channel),
            Item::at(0x4300, 8),
        ]
    }

    fn packets(heap: u64, items: &[Item], payload: &[u8], repeat: Repeat) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        let mut divider = Packetizer::new(Flavour::BITS_48, 16, repeat).unwrap();
        let mut keep = |packet: &[u8]| {
            all.push(packet.to_vec());
            Ok(())
        };
        divider.send(heap, items, payload, &mut keep).unwrap();
        all
    }

    /// Eight bytes before the samples, 32 bytes of samples.
    fn payload() -> Vec<u8> {
        (0..40).collect()
    }

    #[test]
    fn heaps_of_several_packets_are_placed() {
        for repeat in [Repeat::All, Repeat::First] {
            let mut heaps = Heaps::new(map()).unwrap();
            assert_eq!((heaps.shape().sources, heaps.shape().step), (6, 256));
            let sent = packets(9, &items(512, 2, 128), &payload(), repeat);
            let mut found = vec![0; 32];
            for packet in &sent {
                let part = heaps.part(packet).unwrap().unwrap();
                assert_eq!((part.source, part.counter), (2 * 2 + 1, 512));
                found[part.offset..][..part.payload.len()].copy_from_slice(part.payload);
            }
            assert_eq!(found, payload()[8..]);
        }
    }

    #[test]
    fn packets_before_the_first_of_their_heap_are_told() {
        let mut heaps = Heaps::new(map()).unwrap();
        let sent = packets(9, &items(512, 2, 128), &payload(), Repeat::First);
        assert_eq!(heaps.part(&sent[1]), Err(Rejection::of(Reason::Unplaced)));
        assert!(heaps.part(&sent[0]).is_ok() && heaps.part(&sent[2]).is_ok());
        // The table has two heaps: the oldest is forgotten.
        for heap in [10, 11] {
            heaps.part(&packets(heap, &items(768, 2, 128), &payload(), Repeat::First)[0]).unwrap();
        }
        assert_eq!(heaps.part(&sent[1]), Err(Rejection::of(Reason::Unplaced)));
    }

    #[test]
    fn heaps_are_rejected_by_reason() {
        let mut heaps = Heaps::new(map()).unwrap();
        let mut first = |items: &[Item], payload: &[u8], repeat| {
            let sent = packets(9, items, payload, repeat);
            let outcomes: Vec<_> = sent.iter().map(|p| heaps.part(p).map(drop)).collect();
            assert!(outcomes.iter().all(|outcome| *outcome == outcomes[0]));
            outcomes[0]
        };
        for repeat in [Repeat::First, Repeat::All] {
            let wrong = Err(Rejection::of(Reason::WrongSource));
            assert_eq!(first(&items(512, 3, 128), &payload(), repeat), wrong);
            assert_eq!(first(&items(512, 2, 127), &payload(), repeat), wrong);
            let length = Err(Rejection::from_source(Reason::WrongLength, 5));
            assert_eq!(first(&items(512, 2, 128), &payload()[..39], repeat), length);
        }
    }

    #[test]
    fn packets_without_samples_are_none() {
        let mut heaps = Heaps::new(map()).unwrap();
        let stop = [Item::immediate(spead::id::CONTROL, 2)];
        assert_eq!(heaps.part(&packets(1, &stop, &[], Repeat::All)[0]), Ok(None));
        let other = [Item::immediate(0x1600, 5), Item::at(0x1800, 0)];
        assert_eq!(heaps.part(&packets(1, &other, &[1; 8], Repeat::All)[0]), Ok(None));
        let mut garbage = packets(1, &stop, &[], Repeat::All).remove(0);
        garbage[0] = 0;
        assert_eq!(heaps.part(&garbage), Err(Rejection::of(Reason::Invalid)));
    }

    #[test]
    fn a_digitiser_sends_a_polarization() {
        let mut heaps = Heaps::new(ItemMap::meerkat_digitiser()).unwrap();
        let items = [
            Item::immediate(0x1600, 8192),
            Item::immediate(0x3101, 0xab_0001),
            Item::immediate(0x3102, 3 << 32),
            Item::at(0x3300, 0),
        ];
        let mut divider = Packetizer::new(Flavour::BITS_48, 5120, Repeat::All).unwrap();
        let mut check = |packet: &[u8]| {
            let part = heaps.part(packet).unwrap().unwrap();
            assert_eq!((part.source, part.counter, part.payload.len()), (1, 8192, 5120));
            Ok(())
        };
        divider.send(4, &items, &[3; 5120], &mut check).unwrap();
    }

    #[test]
    fn impossible_maps_are_named() {
        let selector = Selector { id: 1, shift: 64, bits: 1, values: Values::from(0, 1) };
        for (map, name) in [
            (ItemMap { counter_bits: 64, ..map() }, "counter_bits"),
            (ItemMap { heaps: 0, ..map() }, "heaps"),
            (ItemMap { sources: vec![selector; 9], ..map() }, "sources"),
            (ItemMap { sources: vec![selector], ..map() }, "sources"),
            (ItemMap { granule_bytes: 64, ..map() }, "granule_bytes"),
            (ItemMap { step: 1 << 48, ..map() }, "step"),
        ] {
            let error = Heaps::new(map).unwrap_err().to_string();
            assert!(error.contains(name), "{error}");
        }
    }
}
