//! Coherent dedispersion: a known dispersion is undone within each channel, before detection.
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

/// The source, or two copies of it without the dispersion within channels; how many copies.
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

/// A recording without the dispersion within channels, as twice as many antennas: the first half is
/// right for the even output channels, the second for the odd.
///
/// Overlap-save: of each block's circular convolution the wrapped ends are discarded. Before the first
/// sample and behind the last one there are zeros.
struct Coherent {
    source: Box<dyn VoltageSource>,
    header: VoltageHeader,
    flags: Vec<Flag>,
    transfer: Transfer,
    threads: Threads,
    transforms: Vec<Transform>,
    units: Vec<Unit>,
    block: VoltageBlock<'static>,
    /// Samples read from the source, or passed over.
    read: u64,
    /// Samples of the source, once its end was met.
    end: Option<u64>,
    /// The first sample that is kept of the present block; `None` before the first.
    first: Option<u64>,
    /// The next sample to be given.
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
            source.flags().iter().map(|flag| widened(flag, transfer.reach as u64)).collect();
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

    /// Whether the next sample lies in the present block, which is made where it must be.
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

    /// Makes the block that begins at `first`, with nothing known of what lies before; the source
    /// stands at the first sample that it needs.
    fn begin(&mut self, first: u64) -> Result<()> {
        self.units.iter_mut().for_each(Unit::clear);
        let overlap = self.transfer.overlap;
        let before = if first == 0 { 0 } else { overlap };
        let mut block = self.source.header().block(before + overlap);
        self.pull(&mut block)?;
        self.fill(first)
    }

    /// Makes the block that begins at `first`; its front is in the windows already.
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

    /// Reads a block full of samples into the windows.
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

    /// Copies samples of the present block to `block`, behind the `done` that it holds.
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
        // Of a recording whose length was not known, the end may lie before the wanted sample.
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

/// A flag with the samples that its filters bring it into.
fn widened(flag: &Flag, reach: u64) -> Flag {
    let start = flag.start.saturating_sub(reach);
    let end = flag.start.saturating_add(flag.times).saturating_add(reach);
    Flag { streams: flag.streams.clone(), start, times: end - start }
}
