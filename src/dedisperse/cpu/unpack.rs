//! Unpacks input rows into unsigned elements and sums them over bins.

use super::super::plan::Plan;
use super::history::Element;
use super::vector::prefetch;
use crate::sample::{Encoding, Samples};

/// Channels in a strip: whole bytes for every encoding.
pub(super) const WIDTH: usize = 64;

/// Rows to prefetch ahead; they are too far apart for the hardware prefetcher.
const AHEAD: usize = 24;

/// Conversion of samples to elements.
#[derive(Debug)]
pub(super) struct Unpack {
    encoding: Encoding,
    downsample: usize,
    low: i32,
    high: i32,
    /// Whether the range covers the whole encoding, so that no value is clipped.
    whole: bool,
    /// For each byte value, its packed samples, one per byte.
    packed: Vec<u64>,
}

impl Unpack {
    pub(super) fn new(plan: &Plan) -> Self {
        let (low, high) = plan.range();
        let encoding = plan.encoding();
        let bits = encoding.bits();
        let expand = |byte: u64| {
            let sample = |k: usize| (byte >> (k * bits) & ((1 << bits) - 1)) << (8 * k);
            (0..8 / bits).map(sample).sum()
        };
        let packed = if bits < 8 { (0..256).map(expand).collect() } else { Vec::new() };
        Self {
            encoding,
            downsample: plan.downsample(),
            low,
            high,
            whole: encoding.range() == Some((low, high)),
            packed,
        }
    }

    pub(super) fn downsample(&self) -> usize {
        self.downsample
    }

    /// Sums input rows of one strip of channels into bins; the first bin already holds `open` rows.
    pub(super) fn run<L: Element>(
        &self,
        input: Samples<'_>,
        strip: usize,
        open: usize,
        bins: &mut [[L; WIDTH]],
    ) {
        let channels = WIDTH.min(input.channels() - strip * WIDTH);
        let start = strip * WIDTH * self.encoding.bits() / 8;
        let bytes = channels * self.encoding.bits() / 8;
        let (mut bin, mut filled) = (0, open);
        for time in 0..input.times() {
            if time + AHEAD < input.times() {
                prefetch(&input.row(time + AHEAD)[start..start + bytes]);
            }
            let row = &input.row(time)[start..start + bytes];
            self.row(row, filled > 0, &mut bins[bin]);
            filled += 1;
            if filled == self.downsample {
                (bin, filled) = (bin + 1, 0);
            }
        }
    }

    fn row<L: Element>(&self, row: &[u8], add: bool, sums: &mut [L; WIDTH]) {
        match self.encoding {
            Encoding::F32 => {
                let values =
                    row.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]));
                put(values.map(|x| bytemuck::cast::<f32, L>(x)), add, sums);
            }
            Encoding::U16 => {
                let values = row.chunks_exact(2).map(|b| u16::from_le_bytes([b[0], b[1]]));
                put(values.map(|x| self.element(i32::from(x))), add, sums);
            }
            Encoding::I16 => {
                let values = row.chunks_exact(2).map(|b| i16::from_le_bytes([b[0], b[1]]));
                put(values.map(|x| self.element(i32::from(x))), add, sums);
            }
            Encoding::U8 if self.whole => put(row.iter().map(|x| L::from_u8(*x)), add, sums),
            Encoding::U8 => put(row.iter().map(|x| self.element(i32::from(*x))), add, sums),
            Encoding::I8 if self.whole => {
                put(row.iter().map(|x| L::from_u8(*x ^ 0x80)), add, sums);
            }
            Encoding::I8 => put(row.iter().map(|x| self.element(i32::from(*x as i8))), add, sums),
            Encoding::U1 => self.packed_row::<L, 8>(row, add, sums),
            Encoding::U2 => self.packed_row::<L, 4>(row, add, sums),
            Encoding::U4 => self.packed_row::<L, 2>(row, add, sums),
        }
    }

    #[inline(always)]
    fn element<L: Element>(&self, value: i32) -> L {
        L::from_u32((value.clamp(self.low, self.high) - self.low) as u32)
    }

    /// Unpacks a row of samples of `8 / EACH` bits.
    fn packed_row<L: Element, const EACH: usize>(
        &self,
        row: &[u8],
        add: bool,
        sums: &mut [L; WIDTH],
    ) {
        let mut values = [[0u8; EACH]; WIDTH];
        for (values, byte) in values.iter_mut().zip(row) {
            let samples = self.packed[usize::from(*byte)].to_le_bytes();
            values.copy_from_slice(&samples[..EACH]);
        }
        let values = values.as_flattened().iter();
        if self.whole {
            put(values.map(|x| L::from_u8(*x)), add, sums);
        } else {
            put(values.map(|x| self.element(i32::from(*x))), add, sums);
        }
    }
}

#[inline(always)]
fn put<L: Element>(values: impl Iterator<Item = L>, add: bool, sums: &mut [L; WIDTH]) {
    if add {
        sums.iter_mut().zip(values).for_each(|(sum, value)| *sum = sum.plus(value));
    } else {
        sums.iter_mut().zip(values).for_each(|(sum, value)| *sum = value);
    }
}
