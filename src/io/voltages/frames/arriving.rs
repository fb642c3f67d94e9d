//! Frames that arrive one at a time: the header of their recording, and the samples of each.

use std::ops::Range;

use super::unpack::{Layout, Samples, Unpacker, Words};
use super::{Description, Streams, TILE_TIMES, describe};
use crate::error::Result;
use crate::io::voltages::columns::Rows;
use crate::io::voltages::{VoltageHeader, VoltageOptions};
use crate::voltage::VoltageEncoding;

/// Samples of the frames of every thread at one time.
#[derive(Clone, Debug)]
pub(crate) struct ArrivingFrames {
    layout: Layout,
    streams: Streams,
    unpacker: Unpacker,
    encoding: VoltageEncoding,
}

/// Frames of all threads, as their headers and the options say.
#[derive(Clone, Debug)]
pub(in crate::io::voltages) struct Announced<'a> {
    pub(in crate::io::voltages) format: &'static str,
    pub(in crate::io::voltages) telescope: String,
    pub(in crate::io::voltages) stations: usize,
    /// Threads per station.
    pub(in crate::io::voltages) threads: usize,
    pub(in crate::io::voltages) layout: Layout,
    pub(in crate::io::voltages) frames_per_s: u32,
    pub(in crate::io::voltages) options: &'a VoltageOptions,
}

impl ArrivingFrames {
    /// Divides the payloads into streams; returns the header of their recording, whose start is unknown.
    ///
    /// # Errors
    /// [`crate::Error::Parameter`] for too many streams, or polarizations that do not divide them.
    pub(in crate::io::voltages) fn new(frames: &Announced<'_>) -> Result<(Self, VoltageHeader)> {
        let Announced { format, stations, threads, layout, frames_per_s, options, .. } = *frames;
        let streams = Streams::new(stations, threads, layout.channels, options.polarizations)?;
        let rate = f64::from(frames_per_s) * layout.times() as f64;
        let description =
            Description { format, telescope: frames.telescope.clone(), layout, streams, rate };
        let header = describe(description, options);
        let unpacker = Unpacker::new(layout);
        Ok((Self { layout, streams, unpacker, encoding: layout.encoding() }, header))
    }

    /// Returns the samples per frame.
    pub(crate) fn times(&self) -> usize {
        self.layout.times()
    }

    /// Returns the bytes of a payload.
    pub(crate) fn payload_bytes(&self) -> usize {
        self.layout.bytes
    }

    /// Returns the streams of a thread, in ascending order; threads are counted through all stations.
    pub(crate) fn streams_of(&self, thread: usize) -> Vec<Range<usize>> {
        let stream = |channel: usize| self.streams.stream(thread, channel);
        let channels = self.layout.channels;
        // Neighbours in one range.
        let each = if self.streams.step() == 1 { channels } else { 1 };
        let range = |channel: usize| stream(channel)..stream(channel + each - 1) + 1;
        (0..channels).step_by(each).map(range).collect()
    }

    /// Writes the samples `from` of a thread's payload to the rows of its streams, from sample `at` on; zeros without a
    /// payload. `scratch` is kept between calls.
    pub(crate) fn unpack<R: Rows>(
        &self,
        thread: usize,
        payload: Option<&[u8]>,
        from: Range<usize>,
        rows: &mut R,
        at: usize,
        scratch: &mut Scratch,
    ) {
        let encoding = self.encoding;
        let place = |at: usize, times: usize| encoding.bytes(at)..encoding.bytes(at + times);
        let Some(payload) = payload else {
            for channel in 0..self.layout.channels {
                let row = rows.row(self.streams.stream(thread, channel));
                row[place(at, from.len())].fill(encoding.zero_byte());
            }
            return;
        };
        let span = self.layout.span(from.start, from.len());
        let Scratch { words, starts } = scratch;
        words.clear();
        words.extend_from_slice(&payload[span.start..][..span.bytes]);
        self.unpacker.prepare(words);
        if !self.unpacker.gathers() {
            let words = Words { bytes: words, skip: span.skip };
            for channel in 0..self.layout.channels {
                let row = rows.row(self.streams.stream(thread, channel));
                self.unpacker.unpack(words, channel, &mut row[place(at, from.len())]);
            }
            return;
        }
        let step = self.layout.time_bits() / 8;
        starts.clear();
        starts.extend((0..from.len()).map(|time| ((span.skip + time) * step) as u32));
        for (tile, starts) in starts.chunks(TILE_TIMES).enumerate() {
            let place = place(at + tile * TILE_TIMES, starts.len());
            for channel in 0..self.layout.channels {
                let row = rows.row(self.streams.stream(thread, channel));
                self.unpacker.gather(
                    Samples { bytes: words, starts },
                    channel,
                    &mut row[place.clone()],
                );
            }
        }
    }
}

/// Memory of [`ArrivingFrames::unpack`].
#[derive(Clone, Debug, Default)]
pub(crate) struct Scratch {
    words: Vec<u8>,
    starts: Vec<u32>,
}
