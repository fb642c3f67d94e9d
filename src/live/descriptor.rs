//! Descriptors: items of a SPEAD heap that describe its other items by name, type and shape.
//!
//! Each is a whole packet within the payload, of the heap's flavour. Receivers that know their items skip them.
//!
//! # Source
//! SPEAD protocol specification, section on item descriptors; the item with a NumPy header is an extension of spead2.

use crate::error::{Error, Result};
use crate::live::spead::{Fault, Flavour, Item, Packet, WORD, id, write_packet};

/// Identifiers of the items within a descriptor.
mod own {
    pub(super) const NAME: u64 = 0x10;
    pub(super) const DESCRIPTION: u64 = 0x11;
    pub(super) const SHAPE: u64 = 0x12;
    pub(super) const FORMAT: u64 = 0x13;
    pub(super) const ID: u64 = 0x14;
    pub(super) const NUMPY: u64 = 0x15;
}

/// Field of an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// Type: `u` and `i` for integers, `f` for floats, `c` for characters, `b` for booleans.
    pub letter: char,
    /// Bits.
    pub bits: u32,
}

/// Description of an item.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Descriptor {
    /// Identifier of the item described.
    pub id: u64,
    /// Name.
    pub name: String,
    /// Description in words.
    pub description: String,
    /// Fields of an element.
    pub format: Vec<Kind>,
    /// Length of each axis; `None` if it varies.
    pub shape: Vec<Option<u64>>,
    /// Header of a NumPy file, which overrides format and shape.
    pub numpy: Option<String>,
}

impl Descriptor {
    /// Parses a descriptor: the bytes of an item 0x05. Text that is not UTF-8 is replaced.
    ///
    /// # Errors
    /// The [`Fault`] of the packet within; [`Fault::Missing`] without the identifier that it describes.
    pub fn parse(bytes: &[u8]) -> std::result::Result<Self, Fault> {
        let packet = Packet::parse(bytes)?;
        let heap_bytes = packet.payload.len() as u64;
        let text = |id: u64| {
            let place = packet.place(id, heap_bytes)?;
            packet.payload.get(place.start as usize..place.end as usize)
        };
        let string = |id: u64| text(id).map(|bytes| String::from_utf8_lossy(bytes).into_owned());
        let (kind, axis) = widths(packet.flavour);
        let kinds = text(own::FORMAT).unwrap_or(&[]).chunks_exact(kind).map(|bytes| Kind {
            letter: bytes[0].into(),
            bits: number(&bytes[1..]).min(u32::MAX.into()) as u32,
        });
        let axes = text(own::SHAPE).unwrap_or(&[]).chunks_exact(axis);
        Ok(Self {
            id: packet.value(own::ID).ok_or(Fault::Missing)?,
            name: string(own::NAME).unwrap_or_default(),
            description: string(own::DESCRIPTION).unwrap_or_default(),
            format: kinds.collect(),
            shape: axes.map(|axis| (axis[0] & 1 == 0).then(|| number(&axis[1..]))).collect(),
            numpy: string(own::NUMPY).filter(|text| !text.is_empty()),
        })
    }

    /// Returns the bytes of the item 0x05 that describes an item of a heap of this flavour.
    ///
    /// # Errors
    /// [`Error::Parameter`] for an identifier, a type or an axis that does not fit its field, or text of more than 64
    /// KiB in all.
    pub fn bytes(&self, flavour: Flavour) -> Result<Vec<u8>> {
        let (kind, axis) = widths(flavour);
        let fits = |value: u64, bytes: usize| bytes >= WORD || value >> (8 * bytes) == 0;
        if self.id >> (63 - flavour.address_bits()).min(flavour.address_bits()) != 0 {
            return Err(Error::parameter("id", self.id, "it must fit an identifier and a value"));
        }
        let mut format = Vec::new();
        for Kind { letter, bits } in &self.format {
            if !letter.is_ascii() || !fits((*bits).into(), kind - 1) {
                let rule =
                    format!("`{letter}` must be ASCII, its bits a number of {} bytes", kind - 1);
                return Err(Error::parameter("format", *bits, rule));
            }
            format.push(*letter as u8);
            format.extend(&u64::from(*bits).to_be_bytes()[WORD + 1 - kind..]);
        }
        let mut shape = Vec::new();
        for length in &self.shape {
            let value = length.unwrap_or(0);
            if !fits(value, axis - 1) {
                let rule = format!("it must fit {} bytes", axis - 1);
                return Err(Error::parameter("shape", value, rule));
            }
            shape.push(u8::from(length.is_none()));
            shape.extend(&value.to_be_bytes()[WORD + 1 - axis..]);
        }
        let numpy = self.numpy.as_deref().unwrap_or_default();
        let texts = [
            (own::NAME, self.name.as_bytes()),
            (own::DESCRIPTION, self.description.as_bytes()),
            (own::FORMAT, &format),
            (own::SHAPE, &shape),
            (own::NUMPY, numpy.as_bytes()),
        ];
        let (mut payload, mut items) = (Vec::new(), vec![Item::immediate(own::ID, self.id)]);
        for (id, bytes) in texts {
            if !bytes.is_empty() || id != own::NUMPY {
                items.push(Item::at(id, payload.len() as u64));
                payload.extend_from_slice(bytes);
            }
        }
        let most = flavour.max_value().min(u16::MAX.into());
        if payload.len() as u64 > most {
            let rule = format!("all texts together must have at most {most} bytes");
            return Err(Error::parameter("description", payload.len(), rule));
        }
        if payload.is_empty() {
            payload.push(0);
            items.push(Item::at(id::NULL, 0));
        }
        let length = payload.len() as u64;
        let protocol = [
            Item::immediate(id::HEAP, 1),
            Item::immediate(id::HEAP_BYTES, length),
            Item::immediate(id::OFFSET, 0),
            Item::immediate(id::PAYLOAD_BYTES, length),
        ];
        let mut packet = Vec::new();
        write_packet(flavour, &[&protocol, &items], &payload, &mut packet);
        Ok(packet)
    }
}

/// Bytes of a field of the format, and of an axis of the shape.
fn widths(flavour: Flavour) -> (usize, usize) {
    let address = flavour.address_bits() as usize / 8;
    (WORD + 1 - address, 1 + address)
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

/// Items and payload of a heap that describes items.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DescriptorHeap {
    /// Items, one for each descriptor.
    pub items: Vec<Item>,
    /// Payload.
    pub payload: Vec<u8>,
}

impl DescriptorHeap {
    /// Makes the heap of some descriptors.
    ///
    /// # Errors
    /// Those of [`Descriptor::bytes`].
    pub fn new(descriptors: &[Descriptor], flavour: Flavour) -> Result<Self> {
        let mut heap = Self::default();
        for descriptor in descriptors {
            heap.items.push(Item::at(id::DESCRIPTOR, heap.payload.len() as u64));
            heap.payload.extend(descriptor.bytes(flavour)?);
        }
        Ok(heap)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Descriptors that spead2 4.5 wrote, in hexadecimal; this and the next in SPEAD-64-48.
    const TIMESTAMP_48: &str = "\
        530402060000000980010000000000018002000000000013800300000000000080040000000000138014000000001600\
        001000000000000000110000000000090013000000000010001200000000001374696d657374616d7053616d706c6573\
        750030";

    /// An array of NumPy.
    const RAW_48: &str = "\
        530402060000000a8001000000000001800200000000004a8003000000000000800400000000004a8014000000004300\
        001000000000000000110000000000030013000000000003001200000000000300150000000000117261770000000000\
        0004000000000000027b276465736372273a20277c6931272c2027666f727472616e5f6f72646572273a2046616c7365\
        2c20277368617065273a2028342c2032297d";

    /// An axis of varying length, in SPEAD-64-40.
    const VARYING_40: &str = "\
        530403050000000980000100000000018000020000000014800003000000000080000400000000148000140000004301\
        000010000000000000001100000000030000130000000004000012000000000876617278750000080100000000000000\
        00000003";

    fn binary(hexadecimal: &str) -> Vec<u8> {
        let digit = |byte: u8| char::from(byte).to_digit(16).unwrap() as u8;
        hexadecimal.as_bytes().chunks(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
    }

    fn descriptors() -> Vec<Descriptor> {
        let timestamp = Descriptor {
            id: 0x1600,
            name: "timestamp".into(),
            description: "Samples since the start".into(),
            format: vec![Kind { letter: 'u', bits: 48 }],
            shape: Vec::new(),
            numpy: None,
        };
        let samples = Descriptor {
            id: 0x300,
            name: "raw".into(),
            shape: vec![Some(3), None, Some(1 << 39)],
            numpy: Some("{'shape': (3, 5), 'fortran_order': False, 'descr': '>i1'}".into()),
            ..Descriptor::default()
        };
        vec![timestamp, samples, Descriptor { id: 9, ..Descriptor::default() }]
    }

    #[test]
    fn descriptors_are_those_of_spead2() {
        let text = |name: &str, description: &str| (name.to_owned(), description.to_owned());
        let descriptor =
            |id, (name, description)| Descriptor { id, name, description, ..Descriptor::default() };
        let timestamp = Descriptor {
            format: vec![Kind { letter: 'u', bits: 48 }],
            ..descriptor(0x1600, text("timestamp", "Samples"))
        };
        let header = "{'descr': '|i1', 'fortran_order': False, 'shape': (4, 2)}";
        let raw = Descriptor {
            shape: vec![Some(4), Some(2)],
            numpy: Some(header.into()),
            ..descriptor(0x4300, text("raw", ""))
        };
        let varying = Descriptor {
            format: vec![Kind { letter: 'u', bits: 8 }],
            shape: vec![None, Some(3)],
            ..descriptor(0x4301, text("var", "x"))
        };
        for (hexadecimal, flavour, expected) in [
            (TIMESTAMP_48, Flavour::BITS_48, timestamp),
            (RAW_48, Flavour::BITS_48, raw),
            (VARYING_40, Flavour::BITS_40, varying),
        ] {
            assert_eq!(Descriptor::parse(&binary(hexadecimal)), Ok(expected.clone()));
            assert_eq!(expected.bytes(flavour).unwrap(), binary(hexadecimal));
        }
    }

    #[test]
    fn every_flavour_returns_what_was_written() {
        for flavour in [Flavour::BITS_48, Flavour::BITS_40] {
            let heap = DescriptorHeap::new(&descriptors(), flavour).unwrap();
            let mut packet = Vec::new();
            let length = heap.payload.len() as u64;
            let own = [
                Item::immediate(id::HEAP, 1),
                Item::immediate(id::OFFSET, 0),
                Item::immediate(id::PAYLOAD_BYTES, length),
            ];
            write_packet(flavour, &[&own, &heap.items], &heap.payload, &mut packet);
            let packet = Packet::parse(&packet).unwrap();
            let read: Vec<_> = packet
                .places(id::DESCRIPTOR, length)
                .map(|place| &packet.payload[place.start as usize..place.end as usize])
                .map(|bytes| Descriptor::parse(bytes).unwrap())
                .collect();
            assert_eq!(read, descriptors());
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let good = descriptors().remove(0);
        let long = Descriptor { shape: vec![Some(1 << 48)], ..good.clone() };
        assert!(long.bytes(Flavour::BITS_48).is_err());
        let wide = Descriptor { format: vec![Kind { letter: 'u', bits: 1 << 16 }], ..good.clone() };
        assert!(wide.bytes(Flavour::BITS_48).is_err() && wide.bytes(Flavour::BITS_40).is_ok());
        let text = Descriptor { description: "a".repeat(70_000), ..good.clone() };
        assert!(text.bytes(Flavour::BITS_48).is_err());
        assert!(Descriptor { id: 1 << 15, ..good }.bytes(Flavour::BITS_48).is_err());
    }

    #[test]
    fn damaged_descriptors_are_rejected() {
        let bytes = descriptors()[1].bytes(Flavour::BITS_48).unwrap();
        for length in 0..bytes.len() {
            assert!(Descriptor::parse(&bytes[..length]).is_err(), "{length} bytes");
        }
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0xff;
            let _ = Descriptor::parse(&damaged);
        }
    }
}
