//! Voltages of an observation: a source whose samples arrive, with zeros and flags where they were lost.
//!
//! Invariant: samples and flags do not depend on the division into reads, nor on the number of threads.

use std::ops::Range;

use crate::backend::threads::{Places, Threads};
use crate::error::{Error, Result};
use crate::io::voltages::{Flag, VoltageHeader, VoltageSource};
use crate::live::capture::Statistics;
use crate::live::feed::{Feed, Next};
use crate::live::sorting::Sorter;
use crate::live::window::Fill;
use crate::units::Epoch;
use crate::voltage::VoltageBlock;

/// Voltages of an observation.
#[derive(Debug)]
pub struct LiveVoltages {
    header: VoltageHeader,
    sorter: Box<Sorter>,
    /// Streams of each source.
    streams: Vec<Vec<Range<usize>>>,
    feed: Feed,
    /// Samples since that of the stream's header, by number, before the next one.
    position: u64,
    /// Samples lost in the block that is being filled.
    lost: Vec<Flag>,
}

impl LiveVoltages {
    pub(super) fn new(
        header: VoltageHeader,
        sorter: Option<Sorter>,
        streams: Vec<Vec<Range<usize>>>,
        feed: Feed,
        position: u64,
    ) -> Result<Self> {
        let Some(sorter) = sorter else {
            let why = "found spectra, expected voltages";
            return Err(Error::format(&header.path, "STATE", 0, why));
        };
        let (sorter, lost) = (Box::new(sorter), Vec::new());
        Ok(Self { header, sorter, streams, feed, position, lost })
    }

    /// Sorts on these threads; by default on as many as read a file ([`crate::io::limit_threads`]).
    #[must_use]
    pub fn with_threads(mut self, threads: Threads) -> Self {
        self.sorter.set_threads(threads);
        self
    }

    /// Returns the counters of the packets received; `None` for a ring.
    pub fn statistics(&self) -> Option<Statistics> {
        self.feed.statistics()
    }

    /// Returns how many samples follow that of the stream's header, by their numbers, before the next one.
    pub(super) fn position(&self) -> u64 {
        self.position
    }

    /// Returns whether all samples before the stream's end were read.
    pub(super) fn has_ended(&self) -> bool {
        self.feed.has_ended()
    }

    /// Returns whether samples beyond those that were read have arrived.
    pub(super) fn has_more(&self) -> bool {
        self.feed.has_more()
    }

    /// Moves the start of the observation to a later sample; returns by how many samples, fewer at the end of the stream.
    ///
    /// # Errors
    /// As [`VoltageSource::read`].
    pub(super) fn begin_after(&mut self, times: u64) -> Result<u64> {
        let done = self.skip(times)?;
        if self.header.start.day != 0 {
            self.header.start = self.header.start.plus_s(done as f64 * self.header.tsamp_s);
        }
        Ok(done)
    }

    /// Sets the start of the next sample.
    pub(super) fn begin_at(&mut self, start: Epoch) {
        self.header.start = start;
    }

    /// Reads the samples `times` of a block into the rows at `places`; returns how many came, fewer at the end of the stream or
    /// after a request to stop. What is lost is kept for [`LiveVoltages::pass_lost`].
    ///
    /// # Errors
    /// As [`VoltageSource::read`].
    pub(super) fn read_rows(
        &mut self,
        block: &mut VoltageBlock,
        places: Places,
        times: Range<usize>,
    ) -> Result<usize> {
        let Range { start: mut at, end } = times;
        while at < end {
            let next = match self.feed.next((end - at).min(1 << 30)) {
                Err(error) if error.is_stop() && at > times.start => break,
                Err(error) => {
                    self.sorter.clear();
                    self.feed.release();
                    return Err(error);
                }
                Ok(next) => next,
            };
            let count = match next {
                Next::End => break,
                Next::Missing(times) => {
                    let encoding = self.header.encoding;
                    let bytes = encoding.bytes(at)..encoding.bytes(at + times as usize);
                    for stream in 0..self.header.streams() {
                        let row = block.row_mut(places.of(stream));
                        row[bytes.clone()].fill(encoding.zero_byte());
                    }
                    self.lose(0..self.header.streams(), times, at);
                    times as usize
                }
                Next::Samples { start, times } => {
                    self.sorter.add(self.feed.blocks.part(start, times, at));
                    self.flag(start, times, at);
                    if self.sorter.is_due() || !self.feed.holds() {
                        self.sort(block, places);
                    }
                    times
                }
            };
            self.feed.take(next);
            at += count;
            self.position += count as u64;
        }
        self.sort(block, places);
        Ok(at - times.start)
    }

    /// Drops the samples `times` of a block, since the reader is too slow; returns how many there were, as
    /// [`LiveVoltages::read_rows`] does. The rows of the block are not written.
    ///
    /// # Errors
    /// As [`VoltageSource::read`].
    pub(super) fn drop_rows(&mut self, times: Range<usize>) -> Result<usize> {
        let mut at = times.start;
        while at < times.end {
            match self.feed.drop_next((times.end - at).min(1 << 30)) {
                Err(error) if error.is_stop() && at > times.start => break,
                Ok(0) => break,
                dropped => at += dropped?,
            }
        }
        let dropped = at - times.start;
        if dropped > 0 {
            self.lose(0..self.header.streams(), dropped as u64, times.start);
            self.position += dropped as u64;
        }
        Ok(dropped)
    }

    /// Returns the fill of the memory between the stream and its reader; that of a ring is unknown.
    pub(super) fn fill(&self) -> Fill {
        self.feed.fill()
    }

    /// Passes what was lost of the first `times` samples of a block on to its flags, as of the rows at `places`.
    pub(super) fn pass_lost(&mut self, block: &mut VoltageBlock, places: Places, times: u64) {
        for flag in self.lost.drain(..) {
            let Flag { streams, start, times: length } = flag;
            let times = length.min(times.saturating_sub(start));
            if times > 0 {
                let flags = places.ranges(streams).map(|streams| Flag { streams, start, times });
                block.flags_mut().extend(flags);
            }
        }
    }

    /// Lists samples that were lost, `at` samples after the start of the block.
    fn lose(&mut self, streams: Range<usize>, times: u64, at: usize) {
        let most = self.streams.iter().map(Vec::len).sum();
        add_flag(&mut self.lost, Flag { streams, start: at as u64, times }, most);
    }

    /// Flags the blocks of sources that are lost among samples of the blocks in use, which become the samples `at` and later
    /// of the block.
    fn flag(&mut self, start: usize, times: usize, at: usize) {
        let Self { feed, streams, lost, .. } = self;
        let blocks = &feed.blocks;
        let Some(chunk) = blocks.chunk.as_ref().filter(|chunk| !chunk.lost().is_empty()) else {
            return;
        };
        let most = streams.iter().map(Vec::len).sum();
        let mut done = 0;
        while done < times {
            let (number, place) = ((start + done) / blocks.times, (start + done) % blocks.times);
            let length = (blocks.times - place).min(times - done);
            for (source, streams) in streams.iter().enumerate() {
                if !chunk.is_present(blocks.block + number, source) {
                    for streams in streams {
                        let (streams, start) = (streams.clone(), (at + done) as u64);
                        add_flag(lost, Flag { streams, start, times: length as u64 }, most);
                    }
                }
            }
            done += length;
        }
    }

    /// Sorts the samples taken into the rows of `block` at `places`.
    fn sort(&mut self, block: &mut VoltageBlock, places: Places) {
        self.sorter.sort(&self.feed.blocks, block, places);
        self.feed.release();
    }
}

impl VoltageSource for LiveVoltages {
    fn header(&self) -> &VoltageHeader {
        &self.header
    }

    fn read(&mut self, block: &mut VoltageBlock) -> Result<usize> {
        block.flags_mut().clear();
        self.lost.clear();
        let done = self.read_rows(block, Places::ALL, 0..block.capacity())?;
        self.pass_lost(block, Places::ALL, done as u64);
        block.set_times(done)?;
        Ok(done)
    }

    fn is_live(&self) -> bool {
        true
    }

    fn cut(&self) -> Option<&str> {
        self.feed.blocks.cut.as_deref()
    }
}

/// Lists lost samples; joins them with those of the same streams directly before, among the last `most` flags.
fn add_flag(flags: &mut Vec<Flag>, lost: Flag, most: usize) {
    let same = |flag: &&mut Flag| flag.streams == lost.streams;
    match flags.iter_mut().rev().take(most).find(same) {
        Some(flag) if flag.start + flag.times == lost.start => flag.times += lost.times,
        _ => flags.push(lost),
    }
}
