//! VDIF frames over UDP: one frame in a packet, alone or behind a little-endian sequence number of 8 bytes.
//!
//! The counter is the number of the frame since 2000, from the seconds and the number in the header: it tells a lost
//! frame as the sequence number would, and a late one from a restarted sender. The sequence number is skipped.

use crate::error::{Error, Result};
use crate::io::voltages::{FrameForm, FrameHeader};
use crate::live::packet::{Format, Outcome, Part, Reason, Rejection, Shape};

/// Bytes of the sequence number.
pub(crate) const SEQUENCE_BYTES: usize = 8;

/// Seconds after which the seconds of a header return to 0. A change of the reference epoch alone leaves the counter.
const SECONDS: u64 = 1 << 30;

/// Thread of a station, of which each is a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Thread {
    /// Identifier of the station.
    pub station: u16,
    /// Number of the thread.
    pub thread: u16,
}

/// Declaration of frames.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Whether a sequence number precedes each frame.
    pub numbered: bool,
    /// Sources, in their order.
    pub threads: Vec<Thread>,
    /// Bytes of samples per frame.
    pub payload_bytes: usize,
    /// Frames per second of each thread.
    pub frames_per_s: u32,
    /// Byte that encodes zeros.
    pub zero_byte: u8,
}

/// Receiver of frames.
#[derive(Clone, Debug)]
pub struct Frames {
    options: Options,
    shape: Shape,
    /// Form of all frames, if it is known.
    form: Option<FrameForm>,
}

impl Frames {
    /// Checks the declaration.
    ///
    /// # Errors
    /// [`Error::Parameter`] for impossible numbers, or a thread given twice.
    pub fn new(options: Options) -> Result<Self> {
        let Options { threads, payload_bytes, frames_per_s, zero_byte, .. } = &options;
        if *frames_per_s == 0 || *frames_per_s > 1 << 24 {
            return Err(Error::parameter("frames_per_s", *frames_per_s, "it must be 1 to 2^24"));
        }
        if let Some(at) = (1..threads.len()).find(|at| threads[..*at].contains(&threads[*at])) {
            let rule = format!("station {} has it twice", threads[at].station);
            return Err(Error::parameter("threads", threads[at].thread, rule));
        }
        let shape = Shape {
            sources: threads.len(),
            block_bytes: *payload_bytes,
            granule_bytes: *payload_bytes,
            step: 1,
            period: Some(SECONDS * u64::from(*frames_per_s)),
            zero_byte: *zero_byte,
        };
        shape.check()?;
        Ok(Self { options, shape, form: None })
    }

    /// Rejects frames of another form as invalid.
    pub(crate) fn of_form(mut self, form: FrameForm) -> Self {
        self.form = Some(form);
        self
    }
}

impl Format for Frames {
    fn shape(&self) -> Shape {
        self.shape
    }

    fn part<'a>(&mut self, packet: &'a [u8]) -> Outcome<'a> {
        let skipped = if self.options.numbered { SEQUENCE_BYTES } else { 0 };
        let frame = packet.get(skipped..).ok_or(Rejection::of(Reason::WrongLength))?;
        let header = FrameHeader::parse(frame).ok_or(Rejection::of(Reason::Invalid))?;
        let thread = Thread { station: header.station(), thread: header.thread() };
        let source = self.options.threads.iter().position(|other| *other == thread);
        let source = source.ok_or(Rejection::of(Reason::WrongSource))?;
        let rejected = |reason| Err(Rejection::from_source(reason, source));
        let payload = &frame[header.header_bytes()..];
        if frame.len() != header.frame_bytes() || payload.len() != self.shape.block_bytes {
            return rejected(Reason::WrongLength);
        }
        let frames_per_s = self.options.frames_per_s;
        let is_other = self.form.is_some_and(|form| !header.has_form(&form));
        if is_other || !header.is_valid() || header.number() >= frames_per_s {
            return rejected(Reason::Invalid);
        }
        let second = header.second() % SECONDS;
        let counter = second * u64::from(frames_per_s) + u64::from(header.number());
        Ok(Some(Part { source, counter, offset: 0, payload }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(numbered: bool) -> Options {
        let thread = |thread| Thread { station: 0x4161, thread };
        Options {
            numbered,
            threads: vec![thread(0), thread(3)],
            payload_bytes: 32,
            frames_per_s: 25,
            zero_byte: 0x80,
        }
    }

    /// Frame of 32 bytes of samples, behind a sequence number.
    fn packet(second: u32, number: u32, thread: u32, legacy: bool) -> Vec<u8> {
        let length = (32 + if legacy { 16 } else { 32 }) / 8;
        let first = [
            u32::from(legacy) << 30 | second,
            40 << 24 | number,
            length,
            1 << 26 | thread << 16 | 0x4161,
        ];
        let mut packet = vec![9; 8];
        packet.extend(first.iter().flat_map(|word| word.to_le_bytes()));
        packet.extend(vec![0; if legacy { 0 } else { 16 }]);
        packet.extend([5; 32]);
        packet
    }

    #[test]
    fn frames_are_counted_from_their_time() {
        for legacy in [false, true] {
            let packet = packet(1000, 24, 3, legacy);
            let mut with = Frames::new(options(true)).unwrap();
            let mut without = Frames::new(options(false)).unwrap();
            let part = with.part(&packet).unwrap().unwrap();
            assert_eq!((part.source, part.offset, part.payload), (1, 0, &[5; 32][..]));
            assert_eq!(without.part(&packet[8..]), Ok(Some(part)));
            let next = self::packet(1001, 0, 0, legacy);
            assert_eq!(with.part(&next).unwrap().unwrap().counter, part.counter + 1);
        }
    }

    #[test]
    fn the_seconds_wrap() {
        let mut frames = Frames::new(options(true)).unwrap();
        let shape = frames.shape();
        let mut counter = |second, number| {
            frames.part(&packet(second, number, 0, false)).unwrap().unwrap().counter
        };
        let (last, next) = (counter((1 << 30) - 1, 24), counter(0, 0));
        assert_eq!(shape.distance(last, next), 1);
    }

    #[test]
    fn frames_are_rejected_by_reason() {
        let good = packet(1000, 0, 0, false);
        let mut frames = Frames::new(options(true)).unwrap();
        let mut with = |at: usize, value: u8| {
            let mut packet = good.clone();
            packet[at] = value;
            frames.part(&packet).map(drop)
        };
        assert_eq!(
            with(8 + 3, 0x80),
            Err(Rejection::from_source(Reason::Invalid, 0)),
            "invalid bit"
        );
        assert_eq!(with(8 + 4, 25), Err(Rejection::from_source(Reason::Invalid, 0)), "number");
        assert_eq!(with(8 + 8, 9), Err(Rejection::from_source(Reason::WrongLength, 0)));
        assert_eq!(with(8 + 8, 4), Err(Rejection::of(Reason::Invalid)), "no samples");
        assert_eq!(with(8 + 14, 1), Err(Rejection::of(Reason::WrongSource)), "thread");
        assert_eq!(with(8 + 19, 1), Err(Rejection::of(Reason::Invalid)), "sync word");
        for length in 0..good.len() {
            assert!(frames.part(&good[..length]).is_err(), "{length} bytes");
        }
    }

    #[test]
    fn impossible_declarations_are_named() {
        let twice = vec![Thread { station: 1, thread: 2 }; 2];
        for (options, name) in [
            (Options { frames_per_s: 0, ..options(true) }, "frames_per_s"),
            (Options { threads: twice, ..options(true) }, "threads"),
            (Options { threads: Vec::new(), ..options(true) }, "sources"),
            (Options { payload_bytes: 0, ..options(true) }, "block_bytes"),
        ] {
            let error = Frames::new(options).unwrap_err().to_string();
            assert!(error.contains(name), "{error}");
        }
    }
}
