//! Discovery of VDIF streams: their first frames say threads, sizes and, unless it is known, the rate.
//!
//! Frames are held back meanwhile, so that none is lost. With a known rate a sixteenth of a second of frames is enough;
//! otherwise the largest frame number of a second that another one follows says it. Damaged and foreign packets do not decide:
//! the form is that of most frames, a thread has an eighth or more of the busiest one's frames, and the largest number has a
//! neighbour.

use std::collections::BTreeMap;

use crate::error::{Error, Result};
use crate::io::voltages::{FrameForm, FrameHeader, VoltageOptions};
use crate::live::clock::Clock;
use crate::live::description::Description;
use crate::live::vdif::{Frames, Options, SEQUENCE_BYTES, Thread};
use crate::units::Epoch;

/// Most bytes of packets held back.
const HELD_BYTES: usize = 32 << 20;

/// Frames of each thread that are seen at least, if the stream goes on.
const LEAST_FRAMES: u64 = 16;

/// Part of a second whose frames show all threads.
const PARTS: u64 = 16;

/// A thread has at least this part of the frames of the busiest one.
const SHARE: u64 = 8;

/// Most forms whose frames are counted.
const MOST_FORMS: usize = 8;

/// Most threads.
const MOST_THREADS: usize = 4096;

/// Most seconds whose frames are compared, and most numbers kept of each, the largest: garbage must not fill the memory.
const MOST_SECONDS: usize = 64;
const MOST_NUMBERS: usize = 256;

/// Most frames per second.
const MOST_RATE: f64 = (1_u32 << 24) as f64;

/// 2000 January 1, from which frames are counted.
const FIRST: Epoch = Epoch { day: 51_544, seconds: 0.0 };

/// Frames seen so far.
#[derive(Debug)]
pub struct Discovery {
    numbered: bool,
    options: VoltageOptions,
    forms: Vec<Seen>,
    /// Packets held back, end to end.
    held: Vec<u8>,
    lengths: Vec<usize>,
    /// Packets that found no space.
    dropped: u64,
}

/// Frames of one form.
#[derive(Debug)]
struct Seen {
    form: FrameForm,
    rate_hz: Option<f64>,
    frames: u64,
    threads: BTreeMap<Thread, u64>,
    /// Earliest and latest frame: second and number.
    earliest: (u64, u32),
    latest: (u64, u32),
    /// Frames of each second, if the rate is unknown.
    seconds: BTreeMap<u64, Second>,
}

/// Frames of a second.
#[derive(Debug)]
struct Second {
    /// Frames before the first of them.
    begun: u64,
    /// Frames of each of the largest numbers.
    numbers: BTreeMap<u32, u32>,
}

impl Discovery {
    /// Makes a discovery of frames, behind a sequence number or not; `options` complete the header of their recording.
    pub fn new(numbered: bool, options: &VoltageOptions) -> Self {
        Self {
            numbered,
            options: options.clone(),
            forms: Vec::new(),
            held: Vec::new(),
            lengths: Vec::new(),
            dropped: 0,
        }
    }

    /// Returns a discovery that begins anew.
    pub fn again(&self) -> Self {
        Self::new(self.numbered, &self.options)
    }

    /// Takes a packet in and returns whether the stream is known.
    pub fn add(&mut self, packet: &[u8]) -> bool {
        if self.held.len() + packet.len() > HELD_BYTES {
            self.dropped += self.lengths.len() as u64;
            self.held.clear();
            self.lengths.clear();
        }
        self.held.extend_from_slice(packet);
        self.lengths.push(packet.len());
        let skipped = if self.numbered { SEQUENCE_BYTES } else { 0 };
        let Some(header) = packet.get(skipped..).and_then(FrameHeader::parse) else { return false };
        if skipped + header.frame_bytes() != packet.len() {
            return false;
        }
        let Some(form) = header.form() else { return false };
        let rate_hz = self.options.sample_rate_hz.or(header.sample_rate_hz());
        let most = self.forms.iter().map(|seen| seen.frames).max().unwrap_or(0);
        let place = match self.forms.iter().position(|seen| seen.form == form) {
            Some(place) => place,
            None if self.forms.len() < MOST_FORMS => {
                self.forms.push(Seen::new(form, rate_hz, &header));
                self.forms.len() - 1
            }
            None => return false,
        };
        let seen = &mut self.forms[place];
        seen.add(&header);
        seen.frames >= most && seen.is_known()
    }

    /// Returns whether no packet has come.
    pub fn is_empty(&self) -> bool {
        self.lengths.is_empty()
    }

    /// Returns the packets held back, in their order.
    pub fn held(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = &self.held[..];
        self.lengths.iter().map(move |length| {
            let (packet, after) = rest.split_at(*length);
            rest = after;
            packet
        })
    }

    /// Returns the packets that were not held back.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Describes the stream by the frames seen so far.
    ///
    /// # Errors
    /// [`Error::Unavailable`] without frames, or if their rate is unknown; [`Error::Parameter`] for a rate that is not a whole
    /// number of frames per second, stations with different threads, and polarizations that do not divide the threads.
    pub fn description(&self) -> Result<Description> {
        let missing =
            |what: &str, why: &str| Error::Unavailable { what: what.into(), why: why.into() };
        let seen = self.forms.iter().max_by_key(|seen| seen.frames);
        let seen = seen.ok_or_else(|| missing("VDIF frames", "no packet was one"))?;
        let rate = seen.frames_per_s().ok_or_else(|| {
            let why = "the headers of the frames have none, and they ended within a second, so that their numbers don't show \
                       it; give the samples a second (`sample_rate_hz`)";
            missing("the sample rate of the stream", why)
        })?;
        if rate.fract() != 0.0 || !(1.0..=MOST_RATE).contains(&rate) {
            let rule = format!(
                "{} samples a frame must make 1 to 2^24 frames a second",
                seen.form.times()
            );
            let rate = rate * seen.form.times() as f64;
            return Err(Error::parameter("sample_rate_hz", rate, rule));
        }
        let frames_per_s = rate as u32;
        let most = seen.threads.values().max().copied().unwrap_or(0);
        let threads: Vec<Thread> = seen
            .threads
            .iter()
            .filter(|(_, frames)| **frames * SHARE >= most)
            .map(|(thread, _)| *thread)
            .collect();
        let stations: Vec<&[Thread]> = threads.chunk_by(|a, b| a.station == b.station).collect();
        let of = |own: &[Thread]| own.iter().map(|thread| thread.thread).collect::<Vec<_>>();
        let first = of(stations[0]);
        if let Some(other) = stations.iter().find(|own| of(own) != first) {
            let rule = format!("station {} has {first:?}", stations[0][0].station);
            return Err(Error::parameter("threads", format!("{:?}", of(other)), rule));
        }
        let names: Vec<u16> = stations.iter().map(|own| own[0].station).collect();
        let (order, header) = seen.form.divide(&names, first.len(), frames_per_s, &self.options)?;
        let options = Options {
            numbered: self.numbered,
            threads,
            payload_bytes: order.payload_bytes(),
            frames_per_s,
            // Lost frames are replaced when they are unpacked.
            zero_byte: 0,
        };
        let frames = Frames::new(options)?.of_form(seen.form);
        let clock = Clock::new(FIRST, rate, None)?;
        Ok(Description::of_frames(header, frames, order).with_clock(clock))
    }
}

impl Seen {
    fn new(form: FrameForm, rate_hz: Option<f64>, header: &FrameHeader) -> Self {
        let at = (header.second(), header.number());
        Self {
            form,
            rate_hz,
            frames: 0,
            threads: BTreeMap::new(),
            earliest: at,
            latest: at,
            seconds: BTreeMap::new(),
        }
    }

    fn add(&mut self, header: &FrameHeader) {
        self.frames += 1;
        let thread = Thread { station: header.station(), thread: header.thread() };
        if self.threads.len() < MOST_THREADS || self.threads.contains_key(&thread) {
            *self.threads.entry(thread).or_default() += 1;
        }
        let at = (header.second(), header.number());
        self.earliest = self.earliest.min(at);
        self.latest = self.latest.max(at);
        if self.rate_hz.is_none() {
            self.count(header.second(), header.number());
        }
    }

    /// Counts a frame of a second. A new second takes the place of the one with the fewest frames.
    fn count(&mut self, second: u64, number: u32) {
        if self.seconds.len() >= MOST_SECONDS && !self.seconds.contains_key(&second) {
            let fewest = |(_, own): &(&u64, &Second)| (own.numbers.len(), own.begun);
            let least = self.seconds.iter().min_by_key(fewest).map(|(least, _)| *least);
            least.map(|least| self.seconds.remove(&least));
        }
        let begun = self.frames;
        let new = || Second { begun, numbers: BTreeMap::new() };
        let numbers = &mut self.seconds.entry(second).or_insert_with(new).numbers;
        *numbers.entry(number).or_default() += 1;
        if numbers.len() > MOST_NUMBERS {
            numbers.pop_first();
        }
    }

    /// Returns the frames per second, a whole number if it is close to one; `None` if they are not known yet.
    fn frames_per_s(&self) -> Option<f64> {
        if let Some(rate) = self.rate_hz {
            let frames = rate / self.form.times() as f64;
            let whole = frames.round();
            let is_whole = (frames - whole).abs() <= 1e-9 * whole + 1e-6;
            return Some(if is_whole { whole } else { frames });
        }
        let is_past = |second: u64| {
            let next = self.seconds.get(&(second + 1));
            next.is_some_and(|next| next.numbers.len() as u64 >= LEAST_FRAMES)
                || next.is_some() && self.seconds.contains_key(&(second + 2))
        };
        let past = self.seconds.iter().filter(|(second, _)| is_past(**second));
        let largest = past.filter_map(|(_, Second { numbers, .. })| {
            let is_sure = |number: u32, frames: u32| {
                number == 0 || frames > 1 || numbers.contains_key(&(number - 1))
            };
            let mut sure =
                numbers.iter().rev().filter(|(number, frames)| is_sure(**number, **frames));
            sure.next().map(|(number, _)| *number)
        });
        largest.max().map(|number| f64::from(number) + 1.0)
    }

    /// Returns whether all threads and the rate have been seen.
    fn is_known(&self) -> bool {
        let Some(rate) = self.frames_per_s() else { return false };
        if self.rate_hz.is_none() {
            return true;
        }
        let seconds = (self.latest.0 - self.earliest.0) as f64;
        let passed = seconds * rate + f64::from(self.latest.1) - f64::from(self.earliest.1);
        let busiest = self.threads.values().max().copied().unwrap_or(0);
        passed >= (rate / PARTS as f64).max(LEAST_FRAMES as f64)
            && busiest >= LEAST_FRAMES.min(rate as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::packet::Format as _;

    /// Frame of 64 real samples of 4 bits, whose header states no rate.
    fn frame(second: u64, number: u64, thread: u32) -> Vec<u8> {
        let words = [second as u32, 40 << 24 | number as u32, 8, 3 << 26 | thread << 16 | 1];
        let mut frame: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        frame.resize(64, 0);
        frame
    }

    #[test]
    fn garbage_neither_decides_nor_fills_the_memory() {
        let mut discovery = Discovery::new(false, &VoltageOptions::default());
        let mut bits = 1_u64;
        let mut random = |end: u64| {
            bits = bits.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (bits >> 33) % end
        };
        let mut is_known = false;
        for at in 0..5000_u64 {
            is_known |= discovery.add(&frame(1000 + at / 1000, at % 1000, (at % 2) as u32));
            for _ in 0..5 {
                let mut bad = frame(random(1 << 30), random(1 << 24), 0);
                // Other bits, another thread.
                match random(3) {
                    0 => bad[15] ^= 4,
                    1 => bad[14] = random(256) as u8,
                    _ => bad.truncate(40),
                }
                is_known |= discovery.add(&bad);
            }
        }
        assert!(is_known);
        for seen in &discovery.forms {
            assert!(seen.seconds.len() <= MOST_SECONDS, "{}", seen.seconds.len());
            assert!(seen.seconds.values().all(|own| own.numbers.len() <= MOST_NUMBERS));
        }
        let description = discovery.description().unwrap();
        let clock = description.clock().unwrap();
        assert_eq!(clock.counter(&FIRST.plus_s(1.0)).unwrap(), 1000, "frames a second");
        assert_eq!(description.packets().shape().sources, 2);
    }
}
