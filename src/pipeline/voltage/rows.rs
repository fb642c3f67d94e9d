//! Rows as the filter bank makes them: antennas summed, recorded channels in order, gaps as they come.
//!
//! Invariant: a row's bits do not depend on how rows are read or passed over.

use crate::array::Progress;
use crate::backend::Backend;
use crate::channelize::{Channelizer, Output, Plan};
use crate::error::{Error, Result};
use crate::io::voltages::VoltageSource;
use crate::voltage::VoltageBlock;

/// Bytes of voltages read at once, unless asked otherwise.
const BLOCK_BYTES: usize = 4 << 20;

/// Bytes of rows that are put together at once.
const SCRATCH_BYTES: usize = 1 << 20;

/// Spectra after which the filter bank may be started anew without a change in any bit.
const RESTART_SPECTRA: u64 = 64;

/// A source and its filter bank.
pub(super) struct Rows {
    source: Box<dyn VoltageSource>,
    channelizer: Channelizer,
    assembly: Option<Assembly>,
    block: VoltageBlock,
    /// Samples of the block that the filter bank has taken.
    used: usize,
    /// Samples read or passed over.
    position: u64,
    /// The next row's number.
    row: u64,
    scratch: Vec<f32>,
}

impl Rows {
    /// Binds a source to its filter bank.
    ///
    /// # Errors
    /// [`Error::Parameter`] for rows of less than a byte's samples; as [`Channelizer::new`].
    pub(super) fn new(
        source: Box<dyn VoltageSource>,
        plan: Plan,
        assembly: Option<Assembly>,
        gulp: usize,
        backend: &Backend,
    ) -> Result<Self> {
        let input = *plan.input();
        if plan.samples_per_row() < input.encoding.samples_per_byte() {
            let rule = "so many rows are more than one for each byte of samples";
            let (p, q) = plan.options().oversampling;
            return Err(Error::parameter("--oversample", format!("{p}/{q}"), rule));
        }
        let gulp = if gulp == 0 { block_times(&plan) } else { gulp };
        let block = source.header().block(gulp);
        let row = plan.row_elements();
        let rows = assembly.as_ref().map_or(0, |_| (SCRATCH_BYTES / (4 * row)).max(1));
        Ok(Self {
            source,
            channelizer: Channelizer::new(plan, backend)?,
            assembly,
            block,
            used: 0,
            position: 0,
            row: 0,
            scratch: vec![0.0; rows * row],
        })
    }

    /// The filter bank's plan.
    pub(super) fn plan(&self) -> &Plan {
        self.channelizer.plan()
    }

    /// The next row's number.
    pub(super) fn row(&self) -> u64 {
        self.row
    }

    /// Numbers in a row.
    pub(super) fn elements(&self) -> usize {
        let plan = self.channelizer.plan();
        plan.row_elements() / self.assembly.as_ref().map_or(1, Assembly::rows)
    }

    /// Rows in all, where that is known.
    pub(super) fn total(&self) -> Option<u64> {
        self.source.header().times.map(|times| self.plan().rows(times))
    }

    /// Fills `rows` with the next rows; fewer only at the end of the data.
    pub(super) fn read(&mut self, rows: &mut [f32]) -> Result<usize> {
        let elements = self.elements();
        let asked = rows.len() / elements;
        let mut done = 0;
        while done < asked && self.refill()? {
            let rest = &mut rows[done * elements..asked * elements];
            let Progress { consumed, produced } = self.step(rest)?;
            self.used += consumed;
            self.row += produced as u64;
            done += produced;
        }
        Ok(done)
    }

    /// Whether there are samples that the filter bank has not taken.
    fn refill(&mut self) -> Result<bool> {
        if self.used == self.block.times() {
            let read = self.source.read(&mut self.block)?;
            self.position += read as u64;
            self.used = 0;
            return Ok(read > 0);
        }
        Ok(true)
    }

    /// Hands samples of the block to the filter bank, for as many rows as there is room for.
    fn step(&mut self, rows: &mut [f32]) -> Result<Progress> {
        let voltages = self.block.voltages().slice(self.used, self.block.times() - self.used)?;
        let Some(assembly) = &self.assembly else {
            return self.channelizer.run(voltages, Output::F32(rows));
        };
        let elements = self.channelizer.plan().row_elements();
        let row = elements / assembly.rows();
        let room = (rows.len() / row).min(self.scratch.len() / elements);
        let made = &mut self.scratch[..room * elements];
        let progress = self.channelizer.run(voltages, Output::F32(made))?;
        let pairs = made.chunks_exact(elements).zip(rows.chunks_exact_mut(row));
        pairs.take(progress.produced).for_each(|(from, to)| assembly.put(from, to));
        Ok(progress)
    }

    /// Passes over rows: far ones by starting the filter bank anew; fewer only at the end of the data.
    pub(super) fn skip(&mut self, rows: u64) -> Result<u64> {
        let before = self.row;
        let most = self.total().unwrap_or(u64::MAX);
        let target = before.saturating_add(rows).min(most).max(before);
        let restart = target / self.restart_rows() * self.restart_rows();
        let sample = restart.saturating_mul(self.plan().samples_per_row() as u64);
        if sample > self.position {
            self.restart(restart, sample)?;
        }
        let elements = self.elements();
        let room = (SCRATCH_BYTES / (4 * elements)).max(1) as u64;
        let mut passed = Vec::new();
        while self.row < target {
            let rows = room.min(target - self.row) as usize;
            passed.resize(rows * elements, 0.0);
            if self.read(&mut passed)? < rows {
                break;
            }
        }
        Ok(self.row.saturating_sub(before))
    }

    /// Goes on at a later row, whose first window begins at `sample`.
    fn restart(&mut self, row: u64, sample: u64) -> Result<()> {
        let wanted = sample - self.position;
        let skipped = self.source.skip(wanted)?;
        self.position += skipped;
        if skipped < wanted {
            // The data end before that row.
            self.row = self.row.max(self.plan().rows(self.position)).min(row);
        } else {
            self.row = row;
        }
        self.channelizer.reset();
        self.block.set_times(0)?;
        self.used = 0;
        Ok(())
    }

    /// Rows after which the phases of an oversampled filter bank, and blocks of spectra, begin again.
    fn restart_rows(&self) -> u64 {
        let (p, q) = self.plan().options().oversampling;
        let period = p / greatest_common_divisor(p, q);
        let spectra = least_common_multiple(period as u64, RESTART_SPECTRA);
        let row = self.plan().spectra_per_row();
        spectra / greatest_common_divisor(spectra as usize, row) as u64
    }
}

/// Samples of a block: a few MiB of all streams, and no less than a window.
fn block_times(plan: &Plan) -> usize {
    let input = plan.input();
    let fitting = BLOCK_BYTES * 8 / (input.streams() * input.encoding.sample_bits());
    fitting.max(plan.hop()).next_multiple_of(plan.hop())
}

pub(super) fn greatest_common_divisor(a: usize, b: usize) -> usize {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

fn least_common_multiple(a: u64, b: u64) -> u64 {
    a / greatest_common_divisor(a as usize, b as usize) as u64 * b
}

/// How the filter bank's rows become one antenna's rows.
#[derive(Clone, Debug)]
pub(super) struct Assembly {
    /// Copies of all antennas: channel `c` is that of copy `c mod copies`.
    pub(super) copies: usize,
    /// Antennas whose numbers are summed.
    pub(super) antennas: usize,
    /// Products of each.
    pub(super) products: usize,
    /// The filter bank's place of each recorded channel.
    pub(super) places: Vec<usize>,
    /// Channels of each recorded channel.
    pub(super) channels: usize,
}

impl Assembly {
    /// Rows that one is made from.
    fn rows(&self) -> usize {
        self.copies * self.antennas
    }

    /// One row; axes of `from`: copy, antenna, product, channel.
    fn put(&self, from: &[f32], to: &mut [f32]) {
        let line = self.places.len() * self.channels;
        for (index, from) in from.chunks_exact(line).enumerate() {
            let (antenna, product) = (index / self.products, index % self.products);
            let (copy, antenna) = (antenna / self.antennas, antenna % self.antennas);
            let to = &mut to[product * line..][..line];
            for (to, place) in to.chunks_exact_mut(self.channels).zip(&self.places) {
                let from = &from[place * self.channels..][..self.channels];
                self.add(copy, antenna == 0, from, to);
            }
        }
    }

    /// Sets, or adds to, a copy's channels of one recorded channel.
    fn add(&self, copy: usize, is_first: bool, from: &[f32], to: &mut [f32]) {
        if self.copies == 1 && is_first {
            return to.copy_from_slice(from);
        }
        let pairs = to.iter_mut().zip(from).skip(copy).step_by(self.copies);
        pairs.for_each(|(sum, value)| *sum = if is_first { *value } else { *sum + value });
    }
}
