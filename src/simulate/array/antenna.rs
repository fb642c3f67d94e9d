//! Voltages of one antenna, generated block by block on demand.

use std::sync::Arc;

use super::filter::HOP;
use super::scene::Scene;
use super::track::Track;
use super::wave::Scratch;
use crate::backend::threads::Threads;
use crate::error::{Error, Result};
use crate::io::voltages::{Flag, VoltageHeader, VoltageSource};
use crate::simulate::voltages::store;
use crate::view::check_length;
use crate::voltage::VoltageBlock;

/// Voltages of one antenna of an [`super::ArraySimulator`]; axes stream (recorded channel, polarization), time.
///
/// Samples are generated in blocks counted from the first sample, so that any sequence of reads returns the same
/// bytes. Memory: one block of every stream as stored, about 0.5 MB per thread and 0.1 MB per source.
#[derive(Debug)]
pub struct ArrayAntenna {
    scene: Arc<Scene>,
    index: usize,
    header: VoltageHeader,
    flags: Vec<Flag>,
    tracks: Vec<Track>,
    scratch: Vec<Scratch>,
    threads: Threads,
    /// Current block and its number.
    made: VoltageBlock<'static>,
    number: Option<u64>,
    next: u64,
}

impl ArrayAntenna {
    pub(super) fn new(scene: Arc<Scene>, index: usize, header: VoltageHeader) -> Self {
        let streams = header.streams();
        let flag = |(start, times)| Flag { streams: 0..streams, start, times };
        let mut gaps = scene.receivers[index].gaps.clone();
        gaps.sort_unstable();
        let tracks = scene.received.iter().map(|_| Track::default()).collect();
        let made = header.block(HOP);
        let antenna = Self {
            scene,
            index,
            header,
            flags: gaps.into_iter().map(flag).collect(),
            tracks,
            scratch: Vec::new(),
            threads: Threads::new(1),
            made,
            number: None,
            next: 0,
        };
        antenna.with_threads(Threads::new(1))
    }

    /// Uses several threads, which share the recorded channels.
    pub fn with_threads(mut self, threads: Threads) -> Self {
        let Scene { filter, polarizations, numbers, .. } = &*self.scene;
        let scratch = || Scratch::new(filter, *polarizations, *numbers);
        self.scratch = (0..threads.count()).map(|_| scratch()).collect();
        self.threads = threads;
        self
    }

    fn left(&self) -> u64 {
        self.header.times.map_or(u64::MAX, |times| times - self.next)
    }

    /// Generates a block, unless it is the current one.
    fn bring(&mut self, number: u64) {
        if self.number == Some(number) {
            return;
        }
        let (scene, index) = (&*self.scene, self.index);
        if scene.receivers[index].dead {
            self.made.rows_mut().for_each(|row| row.fill(scene.encoding.zero_byte()));
        } else {
            for (source, track) in scene.received.iter().zip(&mut self.tracks) {
                let delay = |seconds| scene.delay_s(source, index, seconds);
                track.follow(&scene.filter, scene.tsamp_s, number, delay);
            }
            let tracks = &self.tracks;
            let mut rows: Vec<&mut [u8]> = self.made.rows_mut().collect();
            let each = scene.polarizations;
            self.threads.for_each_chunk(
                &mut self.scratch,
                &mut rows,
                each,
                |scratch, channel, rows| {
                    scene.make((index, channel, number), tracks, scratch);
                    for (row, counts) in rows.iter_mut().zip(&scratch.counts) {
                        store(counts, scene.encoding, row);
                    }
                },
            );
            self.empty_gaps(number);
        }
        self.number = Some(number);
    }

    fn empty_gaps(&mut self, number: u64) {
        let encoding = self.header.encoding;
        let first = number * HOP as u64;
        for flag in &self.flags {
            let start = flag.start.max(first);
            let end = (flag.start + flag.times).min(first + HOP as u64);
            if start < end {
                let span = encoding.bytes((start - first) as usize)
                    ..encoding.bytes((end - first) as usize);
                self.made.rows_mut().for_each(|row| row[span.clone()].fill(encoding.zero_byte()));
            }
        }
    }
}

impl VoltageSource for ArrayAntenna {
    fn header(&self) -> &VoltageHeader {
        &self.header
    }

    fn read(&mut self, block: &mut VoltageBlock) -> Result<usize> {
        check_length("streams of a block", self.header.streams(), block.streams())?;
        let encoding = self.header.encoding;
        if block.encoding() != encoding {
            let rule = format!("the simulation's is {encoding:?}");
            let found = format!("{:?}", block.encoding());
            return Err(Error::parameter("encoding of a block", found, rule));
        }
        let times = self.left().min(block.capacity() as u64) as usize;
        let mut filled = 0;
        while filled < times {
            let (number, offset) = (self.next / HOP as u64, (self.next % HOP as u64) as usize);
            self.bring(number);
            let some = (HOP - offset).min(times - filled);
            let from = encoding.bytes(offset)..encoding.bytes(offset + some);
            let to = encoding.bytes(filled)..encoding.bytes(filled + some);
            for (stream, row) in block.rows_mut().enumerate() {
                row[to.clone()].copy_from_slice(&self.made.row_mut(stream)[from.clone()]);
            }
            filled += some;
            self.next += some as u64;
        }
        block.set_times(times)?;
        Ok(times)
    }

    fn skip(&mut self, times: u64) -> Result<u64> {
        let whole = self.header.encoding.samples_per_byte() as u64;
        if !times.is_multiple_of(whole) {
            let rule = format!("samples are passed over in whole bytes, {whole} at a time");
            return Err(Error::parameter("samples to skip", times, rule));
        }
        let times = times.min(self.left());
        self.next += times;
        Ok(times)
    }

    fn flags(&self) -> &[Flag] {
        &self.flags
    }
}
