//! Sample layout of a frame's payload, and its output encoding.
//!
//! Words are 32 bits, little endian. For bits that are a power of two, values are packed without gaps, least
//! significant bits first, in the order time, channel, part (real, imaginary). Other widths allow one channel only;
//! each word holds whole samples, and its most significant bits are unused.
//!
//! Invariant: a frame holds at least one sample of every channel, and a channel's encoded samples fill whole bytes.

use crate::voltage::{TWO_BIT_HIGH, VoltageEncoding};

/// Maximum bits per real number.
const MAX_BITS: usize = 16;
/// Bits per word.
const WORD: usize = 32;

/// Meaning of a value's bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::io::voltages) enum Code {
    /// Offset binary: code 0 is the lowest value.
    Offset,
    /// Mark 5B: 2-bit values are sign and, above it, magnitude; a set 1-bit value is negative.
    Mark5b,
}

/// Payload of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::io::voltages) struct Layout {
    /// Bits per real number.
    pub(in crate::io::voltages) bits: usize,
    /// Whether samples are complex.
    pub(in crate::io::voltages) complex: bool,
    /// Channels per frame.
    pub(in crate::io::voltages) channels: usize,
    /// Bytes of the payload, in whole words.
    pub(in crate::io::voltages) bytes: usize,
    /// Meaning of the bits.
    pub(in crate::io::voltages) code: Code,
}

/// A range of a frame's samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    /// Byte offset of their first word in the payload.
    pub(super) start: usize,
    /// Bytes of their words.
    pub(super) bytes: usize,
    /// Samples of the first word to skip.
    pub(super) skip: usize,
}

impl Layout {
    /// Checks the layout; returns the invalid field and a message with the found and expected values.
    pub(in crate::io::voltages) fn fault(&self) -> Option<(&'static str, String)> {
        let Self { bits, channels, bytes, .. } = *self;
        let kind = if self.complex { "complex" } else { "real" };
        if bits == 0 || bits > MAX_BITS {
            let why = format!("found {bits} bits a sample, expected 1 to {MAX_BITS}");
            return Some(("bits", why));
        }
        if !bits.is_power_of_two() && channels != 1 {
            let why = format!(
                "found {channels} channels of {bits} bits, expected one channel where the bits are \
                 not a power of two"
            );
            return Some(("bits", why));
        }
        if self.times() == 0 {
            let why = format!(
                "found {bytes} bytes of payload, too few for one {kind} sample of {bits} bits of \
                 {channels} channels"
            );
            return Some(("frame length", why));
        }
        None
    }

    /// Returns the bits of one sample of one channel.
    pub(super) fn sample_bits(&self) -> usize {
        if self.complex { 2 * self.bits } else { self.bits }
    }

    /// Returns the bits of one sample of all channels.
    pub(super) fn time_bits(&self) -> usize {
        self.sample_bits() * self.channels
    }

    /// Returns the whole samples per word; 0 if a sample of all channels spans several words.
    fn times_in_word(&self) -> usize {
        WORD / self.time_bits()
    }

    /// Returns the samples per channel in a frame.
    pub(in crate::io::voltages) fn times(&self) -> usize {
        match self.times_in_word() {
            0 => self.bytes / (self.time_bits() / 8),
            several => self.bytes / (WORD / 8) * several,
        }
    }

    /// Returns the words that hold `times` samples from sample `first` on.
    pub(super) fn span(&self, first: usize, times: usize) -> Span {
        match self.times_in_word() {
            0 => {
                let time = self.time_bits() / 8;
                Span { start: first * time, bytes: times * time, skip: 0 }
            }
            several => {
                let (word, skip) = (first / several, first % several);
                let end = (first + times).div_ceil(several);
                Span { start: word * WORD / 8, bytes: (end - word) * WORD / 8, skip }
            }
        }
    }

    /// Returns the output encoding: the narrowest that represents every value exactly.
    ///
    /// 2-bit values are quantization levels, which only [`VoltageEncoding::Real2`] and floats represent. 8-bit values
    /// are -127.5 .. 127.5; doubled, they are odd integers of 16 bits.
    pub(in crate::io::voltages) fn encoding(&self) -> VoltageEncoding {
        let whole = |encoding: VoltageEncoding| {
            self.times().is_multiple_of(encoding.group_samples()).then_some(encoding)
        };
        match (self.bits, self.complex) {
            (2, true) => VoltageEncoding::ComplexF32,
            (2, false) => whole(VoltageEncoding::Real2).unwrap_or(VoltageEncoding::RealF32),
            (4, true) => VoltageEncoding::Complex4,
            (4, false) => whole(VoltageEncoding::Real4).unwrap_or(VoltageEncoding::Real8),
            (..8, true) => VoltageEncoding::Complex8,
            (..8, false) => VoltageEncoding::Real8,
            (_, true) => VoltageEncoding::Complex16,
            (_, false) => VoltageEncoding::Real16,
        }
    }

    /// Returns the value of one count, which puts 1, 2, 4 and 8 bits on a common scale.
    ///
    /// # Source
    /// mark5access and baseband: 1 bit is -1 and 1; the inner level of 2 bits is 1; 4 bits are (code - 8) / 2.95 (in
    /// single precision); 8 bits are (code - 127.5) / 35.5. Wider ones: code - half the range.
    pub(in crate::io::voltages) fn scale(&self) -> f64 {
        match self.bits {
            4 => 1.0 / f64::from(2.95_f32),
            8 => 1.0 / 71.0,
            _ => 1.0,
        }
    }
}

/// Converts payloads to one channel's encoded samples.
#[derive(Clone, Debug)]
pub(super) struct Unpacker {
    layout: Layout,
    encoding: VoltageEncoding,
    /// For samples of up to 8 bits: the encoded bytes of each code, at the start of 8 bytes.
    table: Vec<[u8; 8]>,
}

/// Words of one payload.
#[derive(Clone, Copy, Debug)]
pub(super) struct Words<'a> {
    pub(super) bytes: &'a [u8],
    /// Samples of the first word to skip.
    pub(super) skip: usize,
}

/// Byte-aligned samples at arbitrary offsets in a buffer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Samples<'a> {
    pub(super) bytes: &'a [u8],
    /// Byte offset of each time's samples, all channels.
    pub(super) starts: &'a [u32],
}

impl Unpacker {
    pub(super) fn new(layout: Layout) -> Self {
        let encoding = layout.encoding();
        let codes = if layout.sample_bits() <= 8 { 1 << layout.sample_bits() } else { 0u32 };
        let table = (0..codes).map(|code| encoded(code, &layout, encoding)).collect();
        Self { layout, encoding, table }
    }

    /// Returns whether [`Self::gather`] applies: several channels, or values of 8 bits or more, and samples of all
    /// channels at one time that fill whole bytes.
    pub(super) fn gathers(&self) -> bool {
        let channels = self.layout.channels > 1 || self.layout.bits >= 8;
        channels && self.layout.bits.is_power_of_two() && self.layout.time_bits().is_multiple_of(8)
    }

    /// Converts words to offset binary, least significant bit first.
    pub(super) fn prepare(&self, words: &mut [u8]) {
        match (self.layout.code, self.layout.bits) {
            (Code::Mark5b, 1) => words.iter_mut().for_each(|byte| *byte = !*byte),
            (Code::Mark5b, _) => {
                words.iter_mut().for_each(|byte| *byte = (*byte & 0x55) << 1 | (*byte >> 1) & 0x55);
            }
            (Code::Offset, _) => {}
        }
    }

    /// Unpacks the samples of `channel` at each start into `row`.
    pub(super) fn gather(&self, samples: Samples<'_>, channel: usize, row: &mut [u8]) {
        let bits = self.layout.sample_bits();
        if bits <= 8 {
            let (byte, shift) = (channel * bits / 8, channel * bits % 8);
            let mask = u8::MAX >> (8 - bits);
            let starts = samples.starts.iter();
            let codes = starts
                .map(|start| usize::from(samples.bytes[*start as usize + byte] >> shift & mask));
            return self.encode(codes, row);
        }
        let byte = channel * bits / 8;
        match (self.layout.bits, self.layout.complex) {
            (8, _) => gather_bytes::<2, 4>(samples, byte, row, |[re, im]| {
                let [re, im] = [re, im].map(|code| (2 * i16::from(code) - 255).to_le_bytes());
                [re[0], re[1], im[0], im[1]]
            }),
            (_, false) => gather_bytes::<2, 2>(samples, byte, row, |[a, b]| [a, b ^ 0x80]),
            (_, true) => {
                gather_bytes::<4, 4>(samples, byte, row, |[a, b, c, d]| [a, b ^ 0x80, c, d ^ 0x80])
            }
        }
    }

    /// Unpacks consecutive samples of `channel` until `row` is full.
    pub(super) fn unpack(&self, words: Words<'_>, channel: usize, row: &mut [u8]) {
        match (self.encoding, self.layout.channels) {
            (VoltageEncoding::Real2, 1) => {
                row.copy_from_slice(&words.bytes[words.skip / 4..][..row.len()]);
            }
            (VoltageEncoding::Real4, 1) => {
                let bytes = &words.bytes[words.skip / 2..];
                row.iter_mut().zip(bytes).for_each(|(sample, byte)| *sample = byte ^ 0x88);
            }
            _ if self.layout.bits.is_power_of_two() => self.unpack_bits(words, channel, row),
            _ => self.unpack_words(words, row),
        }
    }

    /// Unpacks samples of up to 8 bits, when a byte holds several times.
    fn unpack_bits(&self, words: Words<'_>, channel: usize, row: &mut [u8]) {
        let bits = self.layout.sample_bits();
        let (mask, step) = ((1usize << bits) - 1, self.layout.time_bits());
        let first = words.skip * step + channel * bits;
        let codes = (first..words.bytes.len() * 8)
            .step_by(step)
            .map(|bit| (usize::from(words.bytes[bit / 8]) >> (bit % 8)) & mask);
        self.encode(codes, row);
    }

    /// Encodes sample codes by table lookup.
    fn encode(&self, codes: impl Iterator<Item = usize>, row: &mut [u8]) {
        match self.encoding.sample_bits() {
            2 => self.pack::<2>(codes, row),
            4 => self.pack::<4>(codes, row),
            8 => self.look_up::<1>(codes, row),
            16 => self.look_up::<2>(codes, row),
            32 => self.look_up::<4>(codes, row),
            _ => self.look_up::<8>(codes, row),
        }
    }

    fn look_up<const BYTES: usize>(&self, codes: impl Iterator<Item = usize>, row: &mut [u8]) {
        let (samples, _) = row.as_chunks_mut::<BYTES>();
        for (sample, code) in samples.iter_mut().zip(codes) {
            sample.copy_from_slice(&self.table[code][..BYTES]);
        }
    }

    fn pack<const BITS: usize>(&self, mut codes: impl Iterator<Item = usize>, row: &mut [u8]) {
        // 2-bit codes are unchanged; inverting the highest of 4 bits converts offset binary to two's complement.
        let turn = if BITS == 4 { 0x88 } else { 0 };
        for byte in row {
            let places = (0..8 / BITS).map(|place| place * BITS);
            let packed =
                places.fold(0, |byte, place| byte | (codes.next().unwrap_or(0) as u8) << place);
            *byte = packed ^ turn;
        }
    }

    /// Unpacks one channel whose bit width is not a power of two.
    fn unpack_words(&self, words: Words<'_>, row: &mut [u8]) {
        let bits = self.layout.bits;
        let parts = self.layout.sample_bits() / bits;
        let several = self.layout.times_in_word();
        let value = |index: usize| {
            let (time, part) = (words.skip + index / parts, index % parts);
            let word = &words.bytes[time / several * 4..][..4];
            let word = u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
            let shift = time % several * parts * bits + part * bits;
            self.layout.number((word >> shift) & ((1 << bits) - 1))
        };
        if self.encoding.bits() == 8 {
            row.iter_mut().enumerate().for_each(|(index, y)| *y = value(index) as i8 as u8);
        } else {
            let (samples, _) = row.as_chunks_mut::<2>();
            samples.iter_mut().enumerate().for_each(|(index, y)| *y = value(index).to_le_bytes());
        }
    }
}

/// Converts byte-aligned samples of `IN` bytes to `OUT` encoded bytes.
fn gather_bytes<const IN: usize, const OUT: usize>(
    samples: Samples<'_>,
    byte: usize,
    row: &mut [u8],
    encode: impl Fn([u8; IN]) -> [u8; OUT],
) {
    let (encoded, _) = row.as_chunks_mut::<OUT>();
    for (encoded, start) in encoded.iter_mut().zip(samples.starts) {
        if let Some(sample) = samples.bytes[*start as usize + byte..].first_chunk::<IN>() {
            *encoded = encode(*sample);
        }
    }
}

impl Layout {
    /// Returns the integer value of a code, for codes that are integers.
    fn number(&self, code: u32) -> i16 {
        match self.bits {
            1 | 8 => (2 * code as i32 - ((1 << self.bits) - 1)) as i16,
            bits => (code as i32 - (1 << (bits - 1))) as i16,
        }
    }
}

/// Encodes one sample's code.
fn encoded(code: u32, layout: &Layout, encoding: VoltageEncoding) -> [u8; 8] {
    let mask = (1 << layout.bits) - 1;
    let parts = [code & mask, (code >> layout.bits) & mask];
    let level = |code: u32| [-TWO_BIT_HIGH, -1.0, 1.0, TWO_BIT_HIGH][(code & 3) as usize];
    let mut bytes = [0; 8];
    match encoding {
        VoltageEncoding::Complex4 => bytes[0] = (((parts[0] ^ 8) << 4) | (parts[1] ^ 8)) as u8,
        VoltageEncoding::RealF32 | VoltageEncoding::ComplexF32 => {
            bytes[..4].copy_from_slice(&level(parts[0]).to_le_bytes());
            bytes[4..].copy_from_slice(&level(parts[1]).to_le_bytes());
        }
        VoltageEncoding::Real8 | VoltageEncoding::Complex8 => {
            let numbers = parts.map(|part| layout.number(part) as i8 as u8);
            bytes[..2].copy_from_slice(&numbers);
        }
        _ => {
            let numbers = parts.map(|part| layout.number(part).to_le_bytes());
            bytes[..4].copy_from_slice(numbers.as_flattened());
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::voltage::voltage;

    fn layout(bits: usize, complex: bool, channels: usize, bytes: usize) -> Layout {
        Layout { bits, complex, channels, bytes, code: Code::Offset }
    }

    #[test]
    fn frames_hold_what_the_standard_says() {
        for (bits, complex, channels, bytes, times) in [
            (2, false, 1, 5000, 20000),
            (4, true, 1024, 1024, 1),
            (8, true, 2, 512, 128),
            (2, false, 8, 10000, 5000),
            (3, false, 1, 8, 20),
            (5, true, 1, 8, 6),
            (9, true, 1, 16, 4),
            (12, true, 1, 8, 2),
            (16, true, 4, 64, 4),
            (16, false, 4, 24, 3),
        ] {
            let layout = layout(bits, complex, channels, bytes);
            assert_eq!(layout.fault(), None);
            assert_eq!(layout.times(), times, "{layout:?}");
            assert_eq!(layout.span(0, times).bytes, bytes, "{layout:?}");
        }
        let part = layout(2, false, 8, 64).span(3, 6);
        assert_eq!(part, Span { start: 4, bytes: 16, skip: 1 });
    }

    #[test]
    fn what_cannot_be_is_named() {
        let field = |layout: Layout| layout.fault().map(|(field, _)| field);
        assert_eq!(field(layout(17, false, 1, 800)), Some("bits"));
        assert_eq!(field(layout(3, false, 2, 800)), Some("bits"));
        assert_eq!(field(layout(8, true, 1024, 1024)), Some("frame length"));
        assert_eq!(field(layout(1, false, 1 << 31, 8)), Some("frame length"));
    }

    #[test]
    fn samples_that_fill_no_bytes_are_given_wider() {
        assert_eq!(layout(2, false, 16, 8).encoding(), VoltageEncoding::RealF32);
        assert_eq!(layout(4, false, 16, 8).encoding(), VoltageEncoding::Real8);
        assert_eq!(layout(4, false, 8, 8).encoding(), VoltageEncoding::Real4);
    }

    fn frame_layout(bits: usize, complex: bool, channels: usize, bytes: usize) -> Layout {
        Layout { bits, complex, channels, bytes, code: Code::Offset }
    }

    /// Value of a code as defined by the standard.
    fn truth(code: u32, bits: usize) -> f64 {
        match bits {
            1 => 2.0 * f64::from(code) - 1.0,
            2 => [-f64::from(TWO_BIT_HIGH), -1.0, 1.0, f64::from(TWO_BIT_HIGH)][code as usize],
            8 => (f64::from(code) - 127.5) * 2.0,
            _ => f64::from(code) - f64::from(1u32 << (bits - 1)),
        }
    }

    /// Extracts the bits of a value one by one.
    fn code(bytes: &[u8], layout: &Layout, sample: usize, channel: usize, part: usize) -> u32 {
        let bits = layout.bits;
        let several = layout.times_in_word();
        let start = if bits.is_power_of_two() {
            (sample * layout.channels + channel) * layout.sample_bits() + part * bits
        } else {
            sample / several * 32 + sample % several * layout.sample_bits() + part * bits
        };
        (0..bits).fold(0, |code, k| {
            let bit = start + k;
            code | u32::from(bytes[bit / 8] >> (bit % 8) & 1) << k
        })
    }

    #[test]
    fn every_value_of_every_layout_is_exact() {
        let cases = (1..=16).flat_map(|bits| [1, 2, 4, 16].map(|channels| (bits, channels)));
        for (bits, channels) in cases {
            for complex in [false, true] {
                let layout = frame_layout(bits, complex, channels, 192);
                if layout.fault().is_some() {
                    continue;
                }
                let bytes: Vec<u8> = (0..192u32).map(|k| (k * 167 + k * k / 3 + 9) as u8).collect();
                let unpacker = Unpacker::new(layout);
                let encoding = layout.encoding();
                let step = encoding.group_samples();
                let first = if layout.times() > 4 { step.max(3).next_multiple_of(step) } else { 0 };
                let times = (layout.times() - first) / step * step;
                let span = layout.span(first, times);
                let words = Words { bytes: &bytes[span.start..][..span.bytes], skip: span.skip };
                let time_bytes = (layout.time_bits() / 8) as u32;
                let starts: Vec<u32> =
                    (0..times as u32).map(|time| (first as u32 + time) * time_bytes).collect();
                let samples = Samples { bytes: &bytes, starts: &starts };
                for channel in 0..channels {
                    let mut row = vec![0xa5; encoding.bytes(times)];
                    if unpacker.gathers() {
                        unpacker.gather(samples, channel, &mut row);
                    } else {
                        unpacker.unpack(words, channel, &mut row);
                    }
                    for time in 0..times {
                        let found = voltage(&row, encoding, time);
                        let part =
                            |part| truth(code(&bytes, &layout, first + time, channel, part), bits);
                        let imaginary = if complex { part(1) } else { 0.0 };
                        assert_eq!((found.re, found.im), (part(0), imaginary), "{layout:?} {time}");
                    }
                }
            }
        }
    }

    #[test]
    fn mark_5b_has_sign_and_magnitude() {
        let mut layout = frame_layout(2, false, 1, 8);
        layout.code = Code::Mark5b;
        let mut words = [0b11_10_01_00, 0, 0, 0];
        Unpacker::new(layout).prepare(&mut words);
        let levels: Vec<f64> =
            (0..4).map(|k| voltage(&words, VoltageEncoding::Real2, k).re).collect();
        let high = f64::from(TWO_BIT_HIGH);
        assert_eq!(levels, [-high, 1.0, -1.0, high]);
        layout.bits = 1;
        let mut words = [0b01];
        Unpacker::new(layout).prepare(&mut words);
        assert_eq!(words, [0b1111_1110]);
    }
}
