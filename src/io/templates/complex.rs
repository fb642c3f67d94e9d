//! Complex numbers in HDF5 files: a compound of two floats.

use hdf5_pure::{CompoundMember, Datatype, DatatypeByteOrder};
use num_complex::Complex64;

/// Accepted names of the two parts.
const PARTS: [[&str; 2]; 3] = [["r", "i"], ["re", "im"], ["real", "imag"]];

/// Layout of the two parts in an element.
pub(super) struct ComplexLayout {
    bytes: usize,
    parts: [Part; 2],
}

/// A float within an element.
#[derive(Clone, Copy)]
struct Part {
    offset: usize,
    is_double: bool,
    is_big_endian: bool,
}

impl ComplexLayout {
    /// Returns the layout of a complex type; `None` for another type.
    pub(super) fn of(kind: &Datatype) -> Option<Self> {
        let Datatype::Compound { size, members } = kind else { return None };
        let [first, second] = members.as_slice() else { return None };
        let names = [first.name.as_str(), second.name.as_str()];
        let bytes = *size as usize;
        let parts = [Part::of(first, bytes)?, Part::of(second, bytes)?];
        PARTS.contains(&names).then_some(Self { bytes, parts })
    }

    /// Decodes whole elements.
    pub(super) fn numbers(&self, bytes: &[u8]) -> Vec<Complex64> {
        let [re, im] = self.parts;
        let elements = bytes.chunks_exact(self.bytes.max(1));
        elements.map(|element| Complex64::new(re.number(element), im.number(element))).collect()
    }
}

impl Part {
    /// Returns a member's layout if it is a float within an element of `bytes`.
    fn of(member: &CompoundMember, bytes: usize) -> Option<Self> {
        let Datatype::FloatingPoint { size, byte_order, .. } = &member.datatype else {
            return None;
        };
        let is_big_endian = match byte_order {
            DatatypeByteOrder::LittleEndian => false,
            DatatypeByteOrder::BigEndian => true,
            DatatypeByteOrder::Vax => return None,
        };
        let offset = usize::try_from(member.byte_offset).ok()?;
        let end = offset.checked_add(*size as usize)?;
        let is_known = matches!(size, 4 | 8) && end <= bytes;
        is_known.then_some(Self { offset, is_double: *size == 8, is_big_endian })
    }

    fn number(self, element: &[u8]) -> f64 {
        let width = if self.is_double { 8 } else { 4 };
        let mut little = [0; 8];
        for (place, byte) in element[self.offset..self.offset + width].iter().enumerate() {
            little[if self.is_big_endian { width - 1 - place } else { place }] = *byte;
        }
        let [a, b, c, d, ..] = little;
        match self.is_double {
            true => f64::from_le_bytes(little),
            false => f32::from_le_bytes([a, b, c, d]).into(),
        }
    }
}
