//! Coherent dedispersion: removes a known dispersion within each channel before detection.
//!
//! Invariant: sample `n` of the filtered streams has the time of sample `n` of the recording, and bits
//! that do not depend on how streams are read or passed over: blocks begin at whole multiples of their
//! length, counted from the first sample.

mod streams;
mod transfer;

use streams::{Transform, Unit};
use transfer::{Request, Transfer};

use super::layout::offsets_hz;
use super::options::ChannelizeOptions;
use crate::backend::threads::Threads;
use crate::backend::{Backend, Host};
use crate::channelize::Plan;
use crate::error::Result;
use crate::io::voltages::{Flag, VoltageHeader, VoltageSource};
use crate::voltage::{VoltageBlock, VoltageEncoding};

/// Returns the source, or one with two copies of each stream, dedispersed within channels; and the number of copies.
pub(super) fn dedispersed(
    source: Box<dyn VoltageSource>,
    plan: &Plan,
    summed: usize,
    options: &ChannelizeOptions,
    backend: &Backend,
) -> Result<(Box<dyn VoltageSource>, usize)> {
    let Some(dm) = options.coherent_dm else { return Ok((source, 1)) };
    let request = Request {
        dm,
        dm_constant: options.dm_constant,
        offsets_hz: offsets_hz(source.header(), plan, summed),
        points: plan.points(),
    };
    let transfer = Transfer::new(source.header(), &request)?;
    Ok((Box::new(Coherent::new(source, transfer, backend)), 2))
}

/// Recording dedispersed within channels, presented as twice as many antennas: the first half is correct for even
/// output channels, the second for odd ones.
///
/// Overlap-save: each block's circular convolution wraps around at both ends, and the wrapped samples are discarded.
/// Samples before the first and after the last are zeros.
struct Coherent {
    source: Box<dyn VoltageSource>,
    header: VoltageHeader,
    flags: Vec<Flag>,
    transfer: Transfer,
    threads: Threads,
    transforms: Vec<Transform>,
    units: Vec<Unit>,
    block: VoltageBlock<'static>,
    /// Samples read from the source or skipped.
    read: u64,
    /// Length of the source in samples, once its end was reached.
    end: Option<u64>,
    /// First valid output sample of the current block; `None` before the first block.
    first: Option<u64>,
    /// Next sample to return.
    next: u64,
}

impl Coherent {
    fn new(source: Box<dyn VoltageSource>, transfer: Transfer, backend: &Backend) -> Self {
        let recorded = source.header();
        let encoding = match recorded.encoding.is_complex() {
            true => VoltageEncoding::ComplexF32,
            false => VoltageEncoding::RealF32,
        };
        let antennas = 2 * recorded.antennas;
        let header = VoltageHeader { encoding, antennas, ..recorded.clone() };
        let threads = match &backend.host() {
            Host::Reference => Threads::new(1),
            Host::Cpu(_, threads) => threads.clone(),
        };
        let each = if encoding.is_complex() { 1 } else { recorded.polarizations };
        let unit = |first: usize| {
            let coarse = first / recorded.polarizations % recorded.coarse_channels();
            Unit::new(coarse, first..first + each, &transfer)
        };
        let units = (0..recorded.streams()).step_by(each).map(unit).collect();
        let block = recorded.block(transfer.kept());
        let flags =
            source.flags().iter().map(|flag| extended(flag, transfer.reach as u64)).collect();
        let transforms = vec![Transform::new(transfer.points); threads.count()];
        Self {
            source,
            header,
            flags,
            transfer,
            threads,
            transforms,
            units,
            block,
            read: 0,
            end: None,
            first: None,
            next: 0,
        }
    }

    /// Returns whether the next sample is in the current block; computes blocks as needed.
    fn advance(&mut self) -> Result<bool> {
        let kept = self.transfer.kept() as u64;
        let ready = |first: Option<u64>, next: u64| first.is_some_and(|first| next < first + kept);
        while !ready(self.first, self.next) {
            if self.end.is_some_and(|end| self.next >= end) {
                return Ok(false);
            }
            match self.first {
                None => self.begin(0)?,
                Some(first) => self.fill(first + kept)?,
            }
        }
        Ok(self.end.is_none_or(|end| self.next < end))
    }

    /// Computes the block whose output begins at `first`, without earlier state; the source must be positioned at the
    /// first sample that the block needs.
    fn begin(&mut self, first: u64) -> Result<()> {
        self.units.iter_mut().for_each(Unit::clear);
        let overlap = self.transfer.overlap;
        let before = if first == 0 { 0 } else { overlap };
        let mut block = self.source.header().block(before + overlap);
        self.pull(&mut block)?;
        self.fill(first)
    }

    /// Computes the block whose output begins at `first`; the windows already hold the overlap.
    fn fill(&mut self, first: u64) -> Result<()> {
        let mut block =
            std::mem::replace(&mut self.block, VoltageBlock::new(self.header.encoding, 0, 0));
        let pulled = self.pull(&mut block);
        self.block = block;
        pulled?;
        let transfer = &self.transfer;
        self.threads.for_each_chunk(&mut self.transforms, &mut self.units, 1, |own, _, units| {
            units.iter_mut().for_each(|unit| unit.run(transfer, own));
        });
        self.first = Some(first);
        Ok(())
    }

    /// Reads a block of samples into the windows.
    fn pull(&mut self, block: &mut VoltageBlock) -> Result<()> {
        let times = if self.end.is_some() { 0 } else { self.source.read(block)? };
        self.read += times as u64;
        if times < block.capacity() {
            block.set_times(times)?;
            self.end = Some(self.read);
        }
        let (voltages, capacity) = (block.voltages(), block.capacity());
        let mut none = vec![(); self.threads.count()];
        self.threads.for_each_chunk(&mut none, &mut self.units, 1, |(), _, units| {
            units.iter_mut().for_each(|unit| unit.push(voltages, capacity));
        });
        Ok(())
    }

    /// Copies samples of the current block to `block`, after the `done` samples that it holds.
    fn give(&self, block: &mut VoltageBlock, done: usize, samples: std::ops::Range<usize>) {
        let is_complex = self.header.encoding.is_complex();
        let offset = self.header.encoding.bytes(done);
        let half = self.header.streams() / 2;
        for unit in &self.units {
            for copy in 0..2 {
                let streams = unit.streams();
                let rows = block.rows_mut().skip(copy * half + streams.start).take(streams.len());
                unit.write(copy, samples.clone(), is_complex, rows.map(|row| &mut row[offset..]));
            }
        }
    }
}

impl VoltageSource for Coherent {
    fn header(&self) -> &VoltageHeader {
        &self.header
    }

    fn read(&mut self, block: &mut VoltageBlock) -> Result<usize> {
        let mut done = 0;
        while done < block.capacity() && self.advance()? {
            let first = self.first.unwrap_or(0);
            let end = self.end.unwrap_or(u64::MAX).min(first + self.transfer.kept() as u64);
            let times = (end - self.next).min((block.capacity() - done) as u64);
            let from = (self.next - first) as usize;
            self.give(block, done, from..from + times as usize);
            self.next += times;
            done += times as usize;
        }
        block.set_times(done)?;
        Ok(done)
    }

    fn skip(&mut self, times: u64) -> Result<u64> {
        let before = self.next;
        let most = self.end.or(self.header.times).unwrap_or(u64::MAX);
        self.next = before.saturating_add(times).min(most).max(before);
        let kept = self.transfer.kept() as u64;
        let first = self.next / kept * kept;
        let needed = first.saturating_sub(self.transfer.overlap as u64);
        if self.end.is_none() && first > 0 && needed >= self.read {
            let wanted = needed - self.read;
            let skipped = self.source.skip(wanted)?;
            self.read += skipped;
            if skipped < wanted {
                self.end = Some(self.read);
                self.next = self.read.max(before);
            } else {
                self.begin(first)?;
            }
        }
        // If the length was unknown, the recording may end before the requested sample.
        if !self.advance()? {
            self.next = self.next.min(self.end.unwrap_or(u64::MAX)).max(before);
        }
        Ok(self.next - before)
    }

    fn flags(&self) -> &[Flag] {
        &self.flags
    }

    fn cut(&self) -> Option<&str> {
        self.source.cut()
    }

    fn warnings(&self) -> &[String] {
        self.source.warnings()
    }
}

/// Extends a flag by the reach of the filters.
fn extended(flag: &Flag, reach: u64) -> Flag {
    let start = flag.start.saturating_sub(reach);
    let end = flag.start.saturating_add(flag.times).saturating_add(reach);
    Flag { streams: flag.streams.clone(), start, times: end - start }
}
