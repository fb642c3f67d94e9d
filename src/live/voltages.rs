//! Voltages of an observation: a source whose samples arrive, with zeros and flags where they were lost.
//!
//! Invariant: samples and flags do not depend on the division into reads, nor on the number of threads.

use std::ops::Range;

use crate::backend::threads::Threads;
use crate::error::{Error, Result};
use crate::io::voltages::{Flag, VoltageHeader, VoltageSource};
use crate::live::capture::Statistics;
use crate::live::feed::{Feed, Next};
use crate::live::sorting::Sorter;
use crate::voltage::VoltageBlock;

/// Voltages of an observation.
#[derive(Debug)]
pub struct LiveVoltages {
    header: VoltageHeader,
    sorter: Box<Sorter>,
    /// Streams of each source.
    streams: Vec<Vec<Range<usize>>>,
    feed: Feed,
}

impl LiveVoltages {
    pub(super) fn new(
        header: VoltageHeader,
        sorter: Option<Sorter>,
        streams: Vec<Vec<Range<usize>>>,
        feed: Feed,
    ) -> Result<Self> {
        let Some(sorter) = sorter else {
            let why = "found spectra, expected voltages";
            return Err(Error::format(&header.path, "STATE", 0, why));
        };
        Ok(Self { header, sorter: Box::new(sorter), streams, feed })
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

    /// Lists samples that were lost, `at` samples after the start of `block`.
    fn lose(&self, streams: Range<usize>, times: u64, block: &mut VoltageBlock, at: usize) {
        let most = self.streams.iter().map(Vec::len).sum();
        add_flag(block.flags_mut(), Flag { streams, start: at as u64, times }, most);
    }

    /// Flags the blocks of sources that are lost among samples of the blocks in use, which become the samples `at` and later
    /// of `block`.
    fn flag(&self, start: usize, times: usize, block: &mut VoltageBlock, at: usize) {
        let blocks = &self.feed.blocks;
        let Some(chunk) = blocks.chunk.as_ref().filter(|chunk| !chunk.lost().is_empty()) else {
            return;
        };
        let mut done = 0;
        while done < times {
            let (number, place) = ((start + done) / blocks.times, (start + done) % blocks.times);
            let length = (blocks.times - place).min(times - done);
            for (source, streams) in self.streams.iter().enumerate() {
                if !chunk.is_present(blocks.block + number, source) {
                    for streams in streams {
                        self.lose(streams.clone(), length as u64, block, at + done);
                    }
                }
            }
            done += length;
        }
    }

    /// Sorts the samples taken into the rows of `block`.
    fn sort(&mut self, block: &mut VoltageBlock) {
        self.sorter.sort(&self.feed.blocks, block);
        self.feed.release();
    }
}

impl VoltageSource for LiveVoltages {
    fn header(&self) -> &VoltageHeader {
        &self.header
    }

    fn read(&mut self, block: &mut VoltageBlock) -> Result<usize> {
        let capacity = block.capacity();
        block.flags_mut().clear();
        let mut done = 0;
        while done < capacity {
            let next = match self.feed.next((capacity - done).min(1 << 30)) {
                Err(error) if error.is_stop() && done > 0 => break,
                Err(error) => {
                    self.sorter.clear();
                    self.feed.release();
                    return Err(error);
                }
                Ok(next) => next,
            };
            let times = match next {
                Next::End => break,
                Next::Missing(times) => {
                    let encoding = self.header.encoding;
                    let bytes = encoding.bytes(done)..encoding.bytes(done + times as usize);
                    block.rows_mut().for_each(|row| row[bytes.clone()].fill(encoding.zero_byte()));
                    self.lose(0..self.header.streams(), times, block, done);
                    times as usize
                }
                Next::Samples { start, times } => {
                    self.sorter.add(self.feed.blocks.part(start, times, done));
                    self.flag(start, times, block, done);
                    if self.sorter.is_due() || !self.feed.holds() {
                        self.sort(block);
                    }
                    times
                }
            };
            self.feed.take(next);
            done += times;
        }
        self.sort(block);
        block.set_times(done)?;
        Ok(done)
    }

    fn skip(&mut self, times: u64) -> Result<u64> {
        let mut scratch = self.header.block(times.min(4096) as usize);
        let mut done = 0;
        while done < times {
            if times - done < scratch.capacity() as u64 {
                scratch = self.header.block((times - done) as usize);
            }
            match self.read(&mut scratch)? {
                0 => break,
                read => done += read as u64,
            }
        }
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
