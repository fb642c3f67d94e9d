//! Samples packed into the payloads of frames: the inverse of [`super::unpack`].

use super::unpack::{Code, Layout};
use crate::error::{Error, Result};
use crate::io::voltages::VoltageHeader;
use crate::voltage::{VoltageEncoding, Voltages};

/// Packs samples of one encoding into payloads of one layout.
#[derive(Clone, Copy, Debug)]
pub(in crate::io::voltages) struct Packer {
    encoding: VoltageEncoding,
    layout: Layout,
}

/// Returns the fewest bits that hold the samples of a recording exactly: the bits of frames that were read, and otherwise 16 for
/// integers of 8 bits, since 8 bits in a frame are -127.5 to 127.5.
///
/// # Errors
/// [`Error::Parameter`] for floats, unless they are levels of 2 bits, and for packed samples of 10 bits.
pub(in crate::io::voltages) fn exact_bits(header: &VoltageHeader) -> Result<usize> {
    match header.encoding {
        VoltageEncoding::Real2 => Ok(2),
        VoltageEncoding::Real4 | VoltageEncoding::Complex4 => Ok(4),
        VoltageEncoding::Real16 | VoltageEncoding::Complex16 if header.recorded_bits == 8 => Ok(8),
        VoltageEncoding::RealF32 | VoltageEncoding::ComplexF32 => match header.recorded_bits {
            2 => Ok(2),
            _ => {
                let rule = "VDIF has integers of up to 16 bits";
                Err(Error::parameter("encoding", format!("{:?}", header.encoding), rule))
            }
        },
        VoltageEncoding::Real10 => {
            let rule = "frames are written with samples of 10 bits unpacked to 16";
            Err(Error::parameter("encoding", format!("{:?}", header.encoding), rule))
        }
        _ => Ok(16),
    }
}

impl Packer {
    /// Selects the conversion of samples of an encoding to those of a layout whose bits [`exact_bits`] gave.
    pub(in crate::io::voltages) fn new(encoding: VoltageEncoding, layout: Layout) -> Self {
        debug_assert_eq!(layout.code, Code::Offset);
        Self { encoding, layout }
    }

    /// Packs the samples from `start` on of the streams of a thread's channels until `payload` is full.
    pub(in crate::io::voltages) fn pack(
        &self,
        voltages: Voltages<'_>,
        streams: &[usize],
        start: usize,
        payload: &mut [u8],
    ) {
        let to = Place { voltages, streams, start, payload };
        let wide = |value: i8| (i16::from(value) as u16 ^ 0x8000).to_le_bytes();
        // An even number, such as the zeros of a gap, has no code: the lower neighbour.
        let narrow = |bytes| ((i32::from(i16::from_le_bytes(bytes)) + 255) >> 1) as u8;
        match (self.encoding, self.layout.bits) {
            (VoltageEncoding::Complex4, _) => {
                to.map(|[byte]: [u8; 1]| [byte.rotate_left(4) ^ 0x88])
            }
            (VoltageEncoding::Complex8, _) => to.map(|parts: [u8; 2]| {
                let [re, im] = parts.map(|part| wide(part as i8));
                [re[0], re[1], im[0], im[1]]
            }),
            (VoltageEncoding::ComplexOffset8, _) => to.map(|parts: [u8; 2]| {
                let [re, im] = parts.map(|part| wide((part ^ 0x80) as i8));
                [re[0], re[1], im[0], im[1]]
            }),
            (VoltageEncoding::Real8, _) => to.map(|[value]: [u8; 1]| wide(value as i8)),
            (VoltageEncoding::RealOffset8, _) => {
                to.map(|[value]: [u8; 1]| wide((value ^ 0x80) as i8));
            }
            (VoltageEncoding::Complex16, 8) => {
                to.map(|[a, b, c, d]: [u8; 4]| [narrow([a, b]), narrow([c, d])]);
            }
            (VoltageEncoding::Real16, 8) => to.map(|parts: [u8; 2]| [narrow(parts)]),
            (VoltageEncoding::Complex16, _) => {
                to.map(|[a, b, c, d]: [u8; 4]| [a, b ^ 0x80, c, d ^ 0x80]);
            }
            (VoltageEncoding::Real16, _) => to.map(|[a, b]: [u8; 2]| [a, b ^ 0x80]),
            _ => self.pack_bits(to),
        }
    }

    /// Packs samples of 2 or 4 bits that fill no bytes on either side.
    fn pack_bits(&self, to: Place<'_, '_>) {
        let Place { voltages, streams, start, payload } = to;
        if let (VoltageEncoding::Real2 | VoltageEncoding::Real4, [stream]) =
            (self.encoding, streams)
        {
            let turn = if self.encoding == VoltageEncoding::Real4 { 0x88 } else { 0 };
            let row = &voltages.row(*stream)[self.encoding.bytes(start)..];
            payload.iter_mut().zip(row).for_each(|(to, from)| *to = from ^ turn);
            return;
        }
        let bits = self.layout.sample_bits();
        payload.fill(0);
        for (channel, stream) in streams.iter().enumerate() {
            let row = voltages.row(*stream);
            for time in 0..self.layout.times() {
                let code = code(row, self.encoding, start + time);
                let bit = (time * streams.len() + channel) * bits;
                payload[bit / 8] |= code << (bit % 8);
            }
        }
    }
}

/// Returns the code of a sample of at most 4 bits, parts included.
fn code(row: &[u8], encoding: VoltageEncoding, time: usize) -> u8 {
    let level = |place: usize| {
        let bytes = [0, 1, 2, 3].map(|byte| row[4 * place + byte]);
        let value = f32::from_le_bytes(bytes);
        u8::from(value >= 0.0) * 2 + u8::from(value >= 2.0 || (-2.0..0.0).contains(&value))
    };
    match encoding {
        VoltageEncoding::Real2 => row[time / 4] >> (2 * (time % 4)) & 3,
        VoltageEncoding::Real4 => (row[time / 2] >> (4 * (time % 2)) & 15) ^ 8,
        VoltageEncoding::ComplexF32 => level(2 * time) | level(2 * time + 1) << 2,
        _ => level(time),
    }
}

/// Samples and the payload that they fill.
struct Place<'a, 'b> {
    voltages: Voltages<'a>,
    streams: &'b [usize],
    start: usize,
    payload: &'b mut [u8],
}

impl Place<'_, '_> {
    /// Converts samples of `IN` bytes to `OUT` bytes: axes time, channel.
    fn map<const IN: usize, const OUT: usize>(self, convert: impl Fn([u8; IN]) -> [u8; OUT]) {
        let Self { voltages, streams, start, payload } = self;
        let (packed, _) = payload.as_chunks_mut::<OUT>();
        for (channel, stream) in streams.iter().enumerate() {
            let (samples, _) = voltages.row(*stream)[start * IN..].as_chunks::<IN>();
            let places = packed.iter_mut().skip(channel).step_by(streams.len());
            places.zip(samples).for_each(|(to, from)| *to = convert(*from));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::unpack::{Samples, Unpacker, Words};
    use super::*;
    use crate::voltage::VoltageBlock;

    /// Samples that frames of some bits hold, and no others.
    fn samples(encoding: VoltageEncoding, bits: usize, streams: usize) -> VoltageBlock<'static> {
        let mut block = VoltageBlock::new(encoding, streams, 32);
        let levels = [-crate::voltage::TWO_BIT_HIGH, -1.0, 1.0, crate::voltage::TWO_BIT_HIGH];
        for (stream, row) in block.rows_mut().enumerate() {
            let number = |at: usize| (at * 167 + at * at / 3 + stream * 71 + 9) as u32;
            match (encoding, bits) {
                (VoltageEncoding::RealF32 | VoltageEncoding::ComplexF32, _) => {
                    for (at, value) in row.as_chunks_mut::<4>().0.iter_mut().enumerate() {
                        *value = levels[number(at) as usize % 4].to_le_bytes();
                    }
                }
                (VoltageEncoding::Real16 | VoltageEncoding::Complex16, 8) => {
                    for (at, value) in row.as_chunks_mut::<2>().0.iter_mut().enumerate() {
                        *value = (2 * (number(at) % 256) as i16 - 255).to_le_bytes();
                    }
                }
                _ => row.iter_mut().enumerate().for_each(|(at, byte)| *byte = number(at) as u8),
            }
        }
        block.set_times(32).unwrap();
        block
    }

    /// Unpacks a payload as the readers of files do.
    fn unpacked(layout: Layout, payload: &[u8]) -> VoltageBlock<'static> {
        let unpacker = Unpacker::new(layout);
        let times = layout.times();
        let mut block = VoltageBlock::new(layout.encoding(), layout.channels, times);
        let step = layout.time_bits() / 8;
        let starts: Vec<u32> = (0..times).map(|time| (time * step) as u32).collect();
        let words = Words { bytes: payload, skip: 0 };
        for (channel, row) in block.rows_mut().enumerate() {
            if unpacker.gathers() {
                unpacker.gather(Samples { bytes: payload, starts: &starts }, channel, row);
            } else {
                unpacker.unpack(words, channel, row);
            }
        }
        block.set_times(times).unwrap();
        block
    }

    #[test]
    fn what_is_packed_is_unpacked_as_the_same_values() {
        for (encoding, recorded) in
            VoltageEncoding::ALL.iter().flat_map(|e| [2, 8, 16].map(|bits| (*e, bits)))
        {
            let mut header = VoltageHeader::new(vec![0.0], 1e-6, encoding);
            header.recorded_bits = recorded;
            let Ok(bits) = exact_bits(&header) else {
                let is_float = encoding.bits() == 32;
                assert!(is_float || encoding == VoltageEncoding::Real10, "{encoding:?}");
                continue;
            };
            for channels in [1, 2, 8] {
                let complex = encoding.is_complex();
                let times = 16;
                let bytes = times * channels * bits * if complex { 2 } else { 1 } / 8;
                let layout = Layout { bits, complex, channels, bytes, code: Code::Offset };
                let block = samples(encoding, bits, channels + 1);
                let streams: Vec<usize> = (1..=channels).collect();
                let mut payload = vec![0xa5; bytes];
                Packer::new(encoding, layout).pack(block.voltages(), &streams, 8, &mut payload);
                let found = unpacked(layout, &payload);
                for (channel, stream) in streams.iter().enumerate() {
                    for time in 0..times {
                        let value = |block: &VoltageBlock<'_>, encoding, stream: usize, time| {
                            let row = block.voltages().row(stream).to_vec();
                            crate::voltage::voltage(&row, encoding, time)
                        };
                        assert_eq!(
                            value(&found, layout.encoding(), channel, time),
                            value(&block, encoding, *stream, 8 + time),
                            "{encoding:?} {bits} {channels} {time}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn the_zeros_of_a_gap_become_the_smallest_number() {
        let block = VoltageBlock::new(VoltageEncoding::Real16, 1, 4);
        let layout = Layout { bits: 8, complex: false, channels: 1, bytes: 4, code: Code::Offset };
        let mut payload = [0; 4];
        let zeros = [0; 8];
        let voltages = Voltages::new(&zeros, VoltageEncoding::Real16, 1, 8, 4).unwrap();
        Packer::new(VoltageEncoding::Real16, layout).pack(voltages, &[0], 0, &mut payload);
        assert_eq!((payload, block.capacity()), ([127; 4], 4));
    }
}
