//! Files of frames, written as samples come.

use std::path::Path;

use super::writer::{FrameSizes, FrameWriter};
use crate::error::{Error, Result};
use crate::io::atomic::AtomicFile;
use crate::io::voltages::{Flag, VoltageHeader, check_streams};
use crate::voltage::{VoltageBlock, VoltageEncoding, Voltages};

/// Most bytes of samples in a frame.
const MOST_BYTES: usize = 8000;

/// Unfinished VDIF file: a thread per antenna (station) and polarization, with all recorded channels.
///
/// The time of a frame is a whole fraction of a second. The first frame is the one in which the first sample lies, so that no sample
/// changes its time by more than half of a sample; it begins with zeros, and the last frame ends with zeros. A frame of which samples
/// are lost is marked as invalid as a whole.
///
/// Samples keep their values: integers of 8 bits are written as 16, since those of VDIF are -127.5 to 127.5.
#[derive(Debug)]
pub struct Writer {
    file: AtomicFile,
    encoding: VoltageEncoding,
    frames: FrameWriter,
    /// Samples of one frame of every stream, and the number of them that are there.
    block: VoltageBlock<'static>,
    filled: usize,
    /// Samples of the first frame before the recording.
    lead: usize,
    /// Threads whose next frame has lost samples.
    lost: Vec<bool>,
    /// Number of the next frame.
    number: u64,
    frame: Vec<u8>,
}

impl Writer {
    /// Creates a file.
    ///
    /// # Errors
    /// [`Error::Parameter`] for a header that frames cannot represent: channels that are not a power of 2, floats, samples of which
    /// a second has no whole number, no size of frames that divides a second, times outside 2000 to 2031; [`Error::Io`].
    pub fn create(path: &Path, header: &VoltageHeader) -> Result<Self> {
        let sizes = FrameSizes { most_bytes: MOST_BYTES, times: None };
        let mut frames = FrameWriter::new(header, sizes)?;
        let lead = frames.align(&header.start);
        let encoding = header.encoding;
        if !lead.is_multiple_of(encoding.group_samples()) {
            let each = encoding.group_samples();
            let rule = format!("the first of {each} samples in a byte must begin a VDIF frame");
            return Err(Error::parameter("start (samples of a frame)", lead, rule));
        }
        let mut block = header.block(frames.times());
        block.rows_mut().for_each(|row| row.fill(encoding.zero_byte()));
        block.set_times(frames.times())?;
        Ok(Self {
            file: AtomicFile::create(path)?,
            encoding,
            block,
            filled: lead,
            lead,
            lost: vec![false; frames.threads()],
            number: 0,
            frame: vec![0; frames.frame_bytes()],
            frames,
        })
    }

    /// Appends samples of every stream.
    ///
    /// # Errors
    /// [`Error::Shape`] for another number of streams than the header's; [`Error::Parameter`] for another encoding;
    /// [`Error::Io`].
    pub fn write(&mut self, voltages: Voltages<'_>) -> Result<()> {
        self.write_marked(voltages, &[])
    }

    /// Appends samples of which some are lost: flags count from the first of them on.
    ///
    /// # Errors
    /// As [`Writer::write`].
    pub fn write_marked(&mut self, voltages: Voltages<'_>, lost: &[Flag]) -> Result<()> {
        check_streams(voltages, self.block.streams(), self.encoding)?;
        let times = self.frames.times();
        let mut taken = 0;
        while taken < voltages.times() {
            let count = (times - self.filled).min(voltages.times() - taken);
            self.mark(lost, taken as u64, count as u64);
            if count == times {
                self.put(Some((voltages, taken)))?;
            } else {
                let encoding = self.encoding;
                let from = encoding.bytes(taken)..encoding.bytes(taken + count);
                let at = encoding.bytes(self.filled);
                for (stream, row) in self.block.rows_mut().enumerate() {
                    row[at..][..from.len()].copy_from_slice(&voltages.row(stream)[from.clone()]);
                }
                self.filled += count;
                if self.filled == times {
                    self.put(None)?;
                }
            }
            taken += count;
        }
        Ok(())
    }

    /// Marks the threads of which some of `count` samples from `start` on are lost.
    fn mark(&mut self, lost: &[Flag], start: u64, count: u64) {
        let is_here = |flag: &&Flag| flag.start < start + count && start < flag.start + flag.times;
        for flag in lost.iter().filter(is_here) {
            for (thread, is_lost) in self.lost.iter_mut().enumerate() {
                let mut streams = self.frames.streams_of(thread).iter();
                *is_lost |= streams.any(|stream| flag.streams.contains(stream));
            }
        }
    }

    /// Writes a frame of every thread: of samples from a number on, or those of the block.
    fn put(&mut self, from: Option<(Voltages<'_>, usize)>) -> Result<()> {
        let (voltages, start) = from.unwrap_or((self.block.voltages(), 0));
        for (thread, is_lost) in self.lost.iter_mut().enumerate() {
            self.frames.write(voltages, start, self.number, thread, &mut self.frame);
            if std::mem::take(is_lost) {
                FrameWriter::invalidate(&mut self.frame);
            }
            self.file.append(&self.frame)?;
        }
        self.number += 1;
        self.filled = 0;
        Ok(())
    }

    /// Ends the data: fills the last frame up with zeros and writes all buffered samples, so that a full disk is detected before
    /// the file is renamed.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn end_data(&mut self) -> Result<()> {
        let is_begun = self.filled > if self.number == 0 { self.lead } else { 0 };
        if is_begun {
            let (encoding, filled) = (self.encoding, self.encoding.bytes(self.filled));
            self.block.rows_mut().for_each(|row| row[filled..].fill(encoding.zero_byte()));
            self.put(None)?;
        }
        self.file.flush()
    }

    /// Recovers after a failed write: truncates the file to frames of all threads, and returns the number of samples per stream.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn keep_whole(&mut self) -> Result<u64> {
        self.filled = 0;
        let each = (self.lost.len() * self.frame.len()) as u64;
        let bytes = self.file.cut_to(|bytes| bytes - bytes % each)?;
        let samples = bytes / each * self.frames.times() as u64;
        Ok(samples.saturating_sub(self.lead as u64))
    }

    /// Ends the data and renames the file to its final name.
    ///
    /// # Errors
    /// [`Error::Parameter`] if no sample was written; [`Error::Io`].
    pub fn finish(mut self) -> Result<()> {
        self.end_data()?;
        if self.file.bytes() == 0 {
            return Err(Error::parameter("samples", 0, "a VDIF file holds one sample at least"));
        }
        self.file.commit()
    }
}
