//! Sample layout of a frame's payload, and its output encoding.
//!
//! Words are 32 bits, little endian. For bits that are a power of two, values are packed without gaps, least
//! significant bits first, in the order time, channel, part (real, imaginary). Other widths allow one channel only;
//! each word holds whole samples, and its most significant bits are unused.
//!
//! Invariant: a frame holds one sample or more of every channel, and whole bytes of them as encoded.

use crate::voltage::VoltageEncoding;

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
    pub(super) fn times_in_word(&self) -> usize {
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
            self.times().is_multiple_of(encoding.samples_per_byte()).then_some(encoding)
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
