//! Converts raw bytes of DATA to rows: bit and byte order, selection and sum of polarizations, scaling.
//!
//! Invariant: sub-byte samples come most significant first and leave least significant first.

use super::layout::Layout;
use super::scale::{Factors, Scaling};
use crate::io::rows::{Chosen, byte_encoding, encode};
use crate::sample::{Encoding, unpack_f32};

/// Converter of recorded spectra to rows of one encoding.
#[derive(Clone, Debug)]
pub(super) struct Converter {
    layout: Layout,
    chosen: Chosen,
    encoding: Encoding,
    is_copy: bool,
    order: BitOrder,
    values: Vec<f32>,
    addend: Vec<f32>,
}

impl Converter {
    /// Makes a converter for one polarization, or the sum of two, scaled unless the factors are trivial.
    pub(super) fn new(layout: &Layout, chosen: Chosen, scaling: &Scaling) -> Self {
        let native = layout.encoding;
        let recorded = if layout.signed_bits { Encoding::I8 } else { native };
        let is_copy = scaling.is_trivial()
            && chosen.second.is_none()
            && !layout.signed_bits
            && layout.is_byte_aligned();
        let encoding = match (scaling.is_trivial(), chosen.second) {
            (false, _) => Encoding::F32,
            (true, None) if is_copy => native,
            (true, None) => byte_encoding(recorded),
            // The sum of two signed nibbles fits a signed byte.
            (true, Some(_)) if layout.signed_bits => Encoding::I8,
            (true, Some(_)) => chosen.encoding(native),
        };
        let order = BitOrder::new(layout.bits);
        let values = vec![0.0; layout.channels];
        let addend = values.clone();
        Self { layout: layout.clone(), chosen, encoding, is_copy, order, values, addend }
    }

    /// Returns the encoding of the rows that [`Converter::convert`] writes.
    pub(super) fn encoding(&self) -> Encoding {
        self.encoding
    }

    /// Converts the spectra in `raw`, whose first `phase` bits belong to an earlier spectrum.
    pub(super) fn convert(
        &mut self,
        raw: &mut [u8],
        phase: usize,
        scaling: (&Scaling, &Factors),
        rows: &mut [u8],
    ) {
        self.order.apply(&self.layout, raw);
        let row_bytes = self.layout.channels * self.encoding.bits() / 8;
        for (time, row) in rows.chunks_exact_mut(row_bytes).enumerate() {
            let spectrum = phase + time * self.layout.spectrum_bits() as usize;
            if self.is_copy {
                let start =
                    (spectrum + self.chosen.first * self.layout.channels * self.layout.bits) / 8;
                row.copy_from_slice(&raw[start..start + row_bytes]);
                continue;
            }
            self.unpack(raw, spectrum, self.chosen.first, scaling);
            if let Some(second) = self.chosen.second {
                std::mem::swap(&mut self.values, &mut self.addend);
                self.unpack(raw, spectrum, second, scaling);
                self.values.iter_mut().zip(&self.addend).for_each(|(y, x)| *y += x);
            }
            encode(&self.values, self.encoding, row);
        }
    }

    /// Unpacks one polarization of a spectrum to values.
    fn unpack(
        &mut self,
        raw: &[u8],
        spectrum: usize,
        polarization: usize,
        scaling: (&Scaling, &Factors),
    ) {
        let layout = &self.layout;
        let start = spectrum + polarization * layout.channels * layout.bits;
        if start.is_multiple_of(8) {
            unpack_f32(&raw[start / 8..], layout.encoding, &mut self.values);
        } else {
            let mask = ((1u16 << layout.bits) - 1) as u8;
            for (channel, value) in self.values.iter_mut().enumerate() {
                let bit = start + channel * layout.bits;
                *value = f32::from((raw[bit / 8] >> (bit % 8)) & mask);
            }
        }
        if layout.signed_bits {
            let half = f32::from(1u8 << (layout.bits - 1));
            let signed = self.values.iter_mut().filter(|value| **value >= half);
            signed.for_each(|value| *value -= 2.0 * half);
        }
        if !scaling.0.is_trivial() {
            scaling.0.apply(scaling.1, polarization, &mut self.values);
        }
    }
}

/// Conversion to the bit and byte order of [`crate::sample`].
#[derive(Clone, Debug)]
struct BitOrder(Option<Box<[u8; 256]>>);

impl BitOrder {
    /// Makes a table that reverses the samples within a byte; none for whole-byte samples.
    fn new(bits: usize) -> Self {
        if bits >= 8 {
            return Self(None);
        }
        let mut table = Box::new([0u8; 256]);
        for (byte, turned) in table.iter_mut().enumerate() {
            let mask = (1usize << bits) - 1;
            let samples =
                (0..8 / bits).map(|k| ((byte >> (k * bits)) & mask) << (8 - (k + 1) * bits));
            *turned = samples.sum::<usize>() as u8;
        }
        Self(Some(table))
    }

    fn apply(&self, layout: &Layout, raw: &mut [u8]) {
        if let Some(table) = &self.0 {
            raw.iter_mut().for_each(|byte| *byte = table[usize::from(*byte)]);
            return;
        }
        let bytes = layout.bits / 8;
        if layout.big_endian {
            raw.chunks_exact_mut(bytes).for_each(<[u8]>::reverse);
        }
        if layout.sign_flip != 0 {
            raw.chunks_exact_mut(bytes).for_each(|sample| sample[bytes - 1] ^= layout.sign_flip);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_of_a_byte_are_turned() {
        let turned = |bits, byte: u8| BitOrder::new(bits).0.unwrap()[usize::from(byte)];
        assert_eq!(turned(4, 0x2f), 0xf2);
        assert_eq!(turned(2, 0b00_01_10_11), 0b11_10_01_00);
        assert_eq!(turned(1, 0b0000_0011), 0b1100_0000);
        assert!(BitOrder::new(8).0.is_none());
    }
}
