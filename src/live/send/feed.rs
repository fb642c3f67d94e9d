//! Samples of a recording in blocks, over all its repetitions.

use std::fmt;
use std::ops::Range;

use super::options::Monitor;
use crate::error::{Error, Result};
use crate::io::FilterbankSource;
use crate::io::voltages::VoltageSource;
use crate::live::header::Content;
use crate::units::Epoch;
use crate::voltage::{Flag, VoltageBlock, Voltages};

/// Bytes of a block, unless a heap has more.
const BLOCK_BYTES: u64 = 4 << 20;

/// Seconds of wall time of a block: a pipe must give this much before it is sent.
const BLOCK_S: f64 = 0.05;

/// Seconds of a block of voltages that arrive while they are read.
pub(super) const LIVE_S: f64 = 0.01;

/// Recording, open at its first sample.
pub enum Recording {
    /// Detected spectra.
    Spectra(Box<dyn FilterbankSource>),
    /// Voltages.
    Voltages(Box<dyn VoltageSource>),
}

impl fmt::Debug for Recording {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Recording").field(&self.content()).finish()
    }
}

impl Recording {
    /// Returns what the recording holds.
    pub fn content(&self) -> Content {
        match self {
            Self::Spectra(source) => Content::Spectra(source.header().clone()),
            Self::Voltages(source) => Content::Voltages(source.header().clone()),
        }
    }

    /// Describes the missing part of a truncated recording; of a pipe only at the end of the data.
    pub fn cut(&self) -> Option<&str> {
        match self {
            Self::Spectra(source) => source.cut(),
            Self::Voltages(source) => source.cut(),
        }
    }
}

/// Returns contents that start `seconds` later; an unknown start stays unknown.
pub(super) fn later(content: &Content, seconds: f64) -> Content {
    let mut content = content.clone();
    let start = content.start();
    if start != Epoch::default() {
        let start = start.plus_s(seconds);
        match &mut content {
            Content::Spectra(header) => header.tstart_mjd = start.mjd(),
            Content::Voltages(header) => header.start = start,
        }
    }
    content
}

/// Samples of a recording.
pub(super) struct Feed<'a> {
    recording: Recording,
    content: Content,
    reopen: &'a mut dyn FnMut() -> Result<Recording>,
    /// Repetitions to come; `None` is endless.
    left: Option<u64>,
    /// Samples of the repetition in progress.
    read: u64,
    has_ended: bool,
    buffer: Vec<u8>,
    /// Missing samples of the block, if they arrive while they are read.
    lost: Vec<Flag>,
    /// Samples of a whole block.
    capacity: usize,
    /// Rows of the buffer: streams of voltages; 1 for spectra, whose rows are of another kind.
    streams: usize,
    /// Bits of a sample of a stream; of a spectrum.
    sample_bits: usize,
}

impl<'a> Feed<'a> {
    /// Makes blocks of a multiple of `unit` samples.
    pub(super) fn new(
        recording: Recording,
        reopen: &'a mut dyn FnMut() -> Result<Recording>,
        repeats: u64,
        unit: usize,
        rate: Option<f64>,
    ) -> Self {
        let content = recording.content();
        let (streams, sample_bits) = match &content {
            Content::Spectra(header) => (1, 8 * header.row_bytes()),
            Content::Voltages(header) => (header.streams(), header.encoding.sample_bits()),
        };
        let bits = (streams * sample_bits).max(1) as u64;
        let is_live = matches!(&recording, Recording::Voltages(source) if source.is_live());
        let block_s = match rate {
            _ if is_live => LIVE_S,
            Some(rate) => BLOCK_S * rate,
            None => f64::INFINITY,
        };
        let paced = (block_s / content.tsamp_s()) as u64;
        let units = (8 * BLOCK_BYTES / bits).min(paced) / unit as u64;
        let capacity = units.max(1) as usize * unit;
        let left = (repeats > 0).then(|| repeats - 1);
        let buffer = vec![0; (capacity * sample_bits).div_ceil(8) * streams];
        let (read, has_ended, lost) = (0, false, Vec::new());
        Self {
            recording,
            content,
            reopen,
            left,
            read,
            has_ended,
            buffer,
            lost,
            capacity,
            streams,
            sample_bits,
        }
    }

    /// Reads the next block, and returns its samples: fewer than a whole block's only at the end.
    ///
    /// # Errors
    /// Those of the recording; [`Error::Unavailable`] if it has changed when it is opened again.
    pub(super) fn fill(&mut self, monitor: &mut dyn Monitor) -> Result<usize> {
        let mut filled = 0;
        self.lost.clear();
        while filled < self.capacity && !self.has_ended {
            let count = self.read_into(filled)?;
            filled += count;
            self.read += count as u64;
            if filled < self.capacity {
                self.recording.cut().into_iter().for_each(|why| monitor.cut(why));
                self.repeat()?;
            }
        }
        Ok(filled)
    }

    /// Returns the samples of the recording, if its header states them.
    pub(super) fn length(&self) -> Option<u64> {
        match &self.content {
            Content::Spectra(header) => header.times,
            Content::Voltages(header) => header.times,
        }
    }

    /// Reads the next block of the first repetition alone, and returns its samples: fewer than a whole block's only at the end.
    ///
    /// # Errors
    /// Those of the recording.
    pub(super) fn fill_once(&mut self) -> Result<usize> {
        let mut filled = 0;
        while filled < self.capacity {
            let count = self.read_into(filled)?;
            if count == 0 {
                break;
            }
            (filled, self.read) = (filled + count, self.read + count as u64);
        }
        Ok(filled)
    }

    /// Returns to the first sample after [`Feed::fill_once`]. Returns whether all of the recording was read, up to an end without a
    /// fault. If so, it stays closed: the caller keeps the samples and calls [`Feed::pass`].
    ///
    /// # Errors
    /// Those of opening the recording.
    pub(super) fn begin_again(
        &mut self,
        has_ended: bool,
        monitor: &mut dyn Monitor,
    ) -> Result<bool> {
        if !has_ended || Some(self.read) != self.length() {
            return self.open_again().map(|()| false);
        }
        self.recording.cut().into_iter().for_each(|why| monitor.cut(why));
        self.read = 0;
        Ok(true)
    }

    /// Passes over the next block, whose samples the caller has, and returns their number as [`Feed::fill`] does.
    pub(super) fn pass(&mut self) -> usize {
        let samples = self.length().unwrap_or(0);
        let mut passed = 0;
        while passed < self.capacity && !self.has_ended {
            let count = (samples - self.read).min((self.capacity - passed) as u64);
            (passed, self.read) = (passed + count as usize, self.read + count);
            if self.read == samples && self.left == Some(0) {
                self.has_ended = true;
            } else if self.read == samples {
                (self.left, self.read) = (self.left.map(|left| left - 1), 0);
            }
        }
        passed
    }

    fn read_into(&mut self, filled: usize) -> Result<usize> {
        match &mut self.recording {
            Recording::Spectra(source) => {
                source.read(&mut self.buffer[filled * self.sample_bits / 8..])
            }
            Recording::Voltages(source) => {
                let encoding = source.header().encoding;
                let stride = encoding.bytes(self.capacity);
                let times = filled..self.capacity;
                let streams = self.streams;
                let mut block =
                    VoltageBlock::within(&mut self.buffer, encoding, streams, stride, times)?;
                let read = source.read(&mut block)?;
                if source.is_live() {
                    self.lost.extend(block.flags_after(filled as u64));
                }
                Ok(read)
            }
        }
    }

    /// Opens the recording again, if it is to be repeated.
    fn repeat(&mut self) -> Result<()> {
        // A recording without samples would be repeated for ever.
        if self.left == Some(0) || self.read == 0 {
            self.has_ended = true;
            return Ok(());
        }
        self.left = self.left.map(|left| left - 1);
        self.open_again()
    }

    /// Opens the recording again at its first sample.
    fn open_again(&mut self) -> Result<()> {
        self.read = 0;
        self.recording = (self.reopen)()?;
        if self.recording.content() != self.content {
            let what = "the recording, to be repeated".to_owned();
            let why = "its header has changed meanwhile".to_owned();
            return Err(Error::Unavailable { what, why });
        }
        Ok(())
    }

    /// Returns the bytes of a sample of every stream, or of a spectrum.
    pub(super) fn frame_bytes(&self) -> usize {
        self.streams * self.sample_bits / 8
    }

    /// Fills the block from `from` to `to` samples with the byte that encodes zeros.
    pub(super) fn pad(&mut self, from: usize, to: usize, zero_byte: u8) {
        let bytes = |times: usize| (times * self.sample_bits).div_ceil(8);
        let (stride, padded) = (bytes(self.capacity), bytes(from)..bytes(to));
        let rows = self.buffer.chunks_exact_mut(stride);
        rows.for_each(|row| row[padded.clone()].fill(zero_byte));
    }

    /// Returns the number of streams of voltages; 1 for spectra.
    pub(super) fn streams(&self) -> usize {
        self.streams
    }

    /// Returns whether a sample of the block is missing: of one of these streams, at one of these times.
    pub(super) fn is_lost(&self, streams: &Range<usize>, times: &Range<usize>) -> bool {
        let times = times.start as u64..times.end as u64;
        self.lost.iter().any(|flag| {
            let is_own = flag.streams.start < streams.end && streams.start < flag.streams.end;
            is_own && flag.start < times.end && times.start < flag.start + flag.times
        })
    }

    /// Returns spectra of the block: axes time, channel.
    pub(super) fn spectra(&self, start: usize, times: usize) -> &[u8] {
        &self.buffer[start * self.sample_bits / 8..][..times * self.sample_bits / 8]
    }

    /// Returns the whole block of voltages; `None` for spectra.
    ///
    /// # Errors
    /// None for a block that [`Feed::new`] made.
    pub(super) fn voltages(&self) -> Result<Option<Voltages<'_>>> {
        let Content::Voltages(header) = &self.content else { return Ok(None) };
        let stride = header.encoding.bytes(self.capacity);
        Voltages::new(&self.buffer, header.encoding, self.streams, stride, self.capacity).map(Some)
    }
}
