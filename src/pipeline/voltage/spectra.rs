//! Source with its filter bank, as one stream of rows that supports reading and skipping.
//!
//! Invariant: a row's bits do not depend on how rows are read or passed over, nor on what ends them before their time.

use super::ahead::{Ahead, BLOCKS};
use super::bank::{Element, FilterBank, Plans, row_elements};
use super::layout::ChannelizeOptions;
use crate::backend::Backend;
use crate::backend::cuda::{Buffer, Stream};
use crate::channelize::{DeviceVoltages, Plan};
use crate::coherent;
use crate::error::{Error, Result};
use crate::io::voltages::{Flag, VoltageHeader, VoltageSource};
use crate::pipeline::run::remaining_bytes;
use crate::view::Progress;
use crate::voltage::VoltageBlock;

/// Bytes of voltages per read for the host, unless requested otherwise; also the smallest read after an error.
const HOST_BYTES: usize = 4 << 20;

/// Bytes of voltages per read for each GPU, which copies and computes parts of a block at the same time.
const DEVICE_BYTES: usize = 64 << 20;

/// Longest time of voltages per read of a live stream, in seconds.
const LIVE_S: f64 = 0.05;

/// Upper bound in bytes per read, even if more are requested.
const MAX_BYTES: usize = 1 << 30;

/// Bytes of rows computed per step while skipping.
const SCRATCH_BYTES: usize = 1 << 20;

/// Multiple of spectra at which a restart of the filter bank changes no bits.
const RESTART_SPECTRA: u64 = 64;

/// Callback before each block of voltages; returns false to stop the run.
pub type Watch = Box<dyn FnMut() -> bool + Send>;

/// Source with its filter bank, whose rows are numbers of type `T`.
pub(super) struct Spectra<T> {
    source: Ahead,
    bank: FilterBank,
    block: VoltageBlock<'static>,
    /// Samples of the block that the filter bank has consumed.
    used: usize,
    /// First sample of the block after it.
    next_sample: u64,
    /// Samples that a live source has listed as missing, until they are taken.
    found: Vec<Flag>,
    /// Number of the next row.
    row: u64,
    /// Numbers in a row.
    elements: usize,
    /// Saturated samples of each element before the last restart of the filter bank.
    saturated: Vec<u64>,
    scratch: Vec<T>,
    watch: Option<Watch>,
    /// Whether an error ended the rows before the end of the data.
    ended: bool,
    /// That error, until it is taken.
    fault: Option<Error>,
}

impl<T: Element> Spectra<T> {
    /// Binds a source to its filter bank. `first` holds the block already read from the source and the row for which it
    /// begins at [`FilterBank::start`], a multiple of [`restart_rows`].
    ///
    /// # Errors
    /// [`Error::Parameter`] for rows that span less than a byte of samples; as [`FilterBank::new`].
    pub(super) fn new(
        source: Box<dyn VoltageSource>,
        first: Option<(u64, VoltageBlock<'static>)>,
        plans: Plans,
        gulp: usize,
        backend: &Backend,
    ) -> Result<Self> {
        let plan = plans.bank.clone();
        if plan.samples_per_row() < plan.input().encoding.group_samples() {
            let rule = "there are more rows than bytes of samples";
            let (p, q) = plan.options().oversampling;
            return Err(Error::parameter("oversampling", format!("{p}/{q}"), rule));
        }
        let joined = plans.joining.as_ref().map_or(1, |joining| joining.copies * joining.antennas);
        let mut bank = FilterBank::new(plans, backend)?;
        let header = source.header();
        let most = fitting_times(header, MAX_BYTES);
        let device_bytes = DEVICE_BYTES * backend.shares().len();
        let (gulp, least) = match gulp {
            0 if backend.is_gpu() => {
                let gulp =
                    block_times(header, &plan, device_bytes).max(bank.least_times().min(most));
                (gulp, block_times(header, &plan, HOST_BYTES))
            }
            0 => (block_times(header, &plan, HOST_BYTES), block_times(header, &plan, HOST_BYTES)),
            asked => (asked.min(most).max(1), asked.min(most).max(1)),
        };
        let unit = header.encoding.group_samples();
        let most = match source.is_live() {
            true => ((LIVE_S / header.tsamp_s) as usize).max(plan.hop()),
            false => most.max(1),
        };
        let [gulp, least] = [gulp, least].map(|times| times.min(most).next_multiple_of(unit));
        let (row, block) = first.unwrap_or_else(|| (0, header.block(gulp)));
        let sample = row * plan.samples_per_row() as u64;
        let elements = row_elements::<T>(&plan);
        let saturated = vec![0; plan.row_elements()];
        bank.restart(sample);
        let start = bank.start(sample);
        let position = start + block.times() as u64;
        let mut found = Vec::new();
        found.extend(block.flags_after(start));
        Ok(Self {
            elements: if bank.joins() { elements / joined } else { elements },
            saturated,
            source: Ahead::new(source, position, gulp, least),
            bank,
            block,
            used: 0,
            next_sample: position,
            found,
            row,
            scratch: Vec::new(),
            watch: None,
            ended: false,
            fault: None,
        })
    }

    /// Returns the filter bank's plan.
    pub(super) fn plan(&self) -> &Plan {
        self.bank.channelizer().plan()
    }

    /// Returns the number of the next row.
    pub(super) fn row(&self) -> u64 {
        self.row
    }

    /// Returns the numbers in a row.
    pub(super) fn elements(&self) -> usize {
        self.elements
    }

    /// Returns the number of GPUs that compute rows.
    pub(super) fn gpus(&self) -> usize {
        self.bank.gpus()
    }

    /// Returns the rows that a call should ask for at least, so that every GPU has its part.
    pub(super) fn least_rows(&self) -> usize {
        self.bank.least_times().div_ceil(self.plan().samples_per_row())
    }

    /// Returns the saturated samples of each row element, over all rows so far.
    pub(super) fn saturated(&self) -> Vec<u64> {
        let present = self.bank.saturated();
        self.saturated.iter().zip(present).map(|(before, now)| before + now).collect()
    }

    /// Sets a callback that runs before each block.
    pub(super) fn watched_by(&mut self, watch: Watch) {
        self.watch = Some(watch);
    }

    /// Describes the truncation of the recording, if any.
    pub(super) fn cut(&self) -> Option<&str> {
        self.source.cut()
    }

    /// Appends the missing samples that a live source has listed since the last call: at least those under the rows read.
    pub(super) fn take_flags(&mut self, flags: &mut Vec<Flag>) {
        flags.append(&mut self.found);
    }

    /// Takes the error that ended the rows: of the source, of the filter bank, or a stop.
    pub(super) fn take_fault(&mut self) -> Option<Error> {
        self.fault.take()
    }

    fn end(&mut self, fault: Error) {
        self.ended = true;
        self.fault = Some(fault);
    }

    /// Fills `rows` with the next rows; returns fewer only at the end of the data or after an error.
    pub(super) fn read(&mut self, rows: &mut [T]) -> Result<usize> {
        let asked = rows.len() / self.elements;
        let mut done = 0;
        while done < asked {
            let rest = &mut rows[done * self.elements..asked * self.elements];
            match self.advance(rest)? {
                Some(produced) => done += produced,
                None => break,
            }
        }
        Ok(done)
    }

    /// Writes the next rows, after reading a block where it is needed; returns their number, `None` at the end of the
    /// data or after an error.
    fn advance(&mut self, rows: &mut [T]) -> Result<Option<usize>> {
        let has_samples = self.refill();
        if self.ended {
            return Ok(None);
        }
        let run = if has_samples {
            let left = self.block.times() - self.used;
            self.bank.run(self.block.voltages().slice(self.used, left)?, rows)
        } else {
            self.bank.flush(rows).map(|produced| Progress { consumed: 0, produced })
        };
        match run {
            Ok(Progress { consumed: 0, produced: 0 }) if !has_samples => Ok(None),
            Ok(Progress { consumed, produced }) => {
                self.used += consumed;
                self.row += produced as u64;
                Ok(Some(produced))
            }
            Err(fault) => {
                self.end(fault);
                Ok(None)
            }
        }
    }

    /// Reads a block if all samples were consumed; returns whether samples are available.
    fn refill(&mut self) -> bool {
        if self.ended || self.used < self.block.times() {
            return !self.ended;
        }
        if self.watch.as_mut().is_some_and(|watch| !watch()) {
            self.end(Error::stopped(&self.source.header().path));
            return false;
        }
        match self.source.next(&mut self.block) {
            Ok(()) => {
                self.used = 0;
                self.found.extend(self.block.flags_after(self.next_sample));
                self.next_sample += self.block.times() as u64;
                self.block.times() > 0
            }
            Err(fault) => {
                self.end(fault);
                false
            }
        }
    }

    /// Skips rows, distant ones by a restart of the filter bank; skips fewer only at the end of the data.
    pub(super) fn skip(&mut self, rows: u64) -> Result<u64> {
        let before = self.row;
        if self.ended {
            return Ok(0);
        }
        let total = self.source.header().times.map(|times| self.plan().rows(times));
        let target = before.saturating_add(rows).min(total.unwrap_or(u64::MAX)).max(before);
        let restart = target / restart_rows(self.plan()) * restart_rows(self.plan());
        let sample = restart.saturating_mul(self.plan().samples_per_row() as u64);
        if self.bank.start(sample) > self.source.position() {
            // The thread may have read beyond that sample.
            self.source.stop();
            if self.bank.start(sample) > self.source.position() {
                self.restart(restart, sample)?;
            }
        }
        let remaining = (SCRATCH_BYTES / (size_of::<T>() * self.elements)).max(1) as u64;
        let mut scratch = std::mem::take(&mut self.scratch);
        while self.row < target {
            let rows = remaining.min(target - self.row) as usize;
            scratch.resize(rows * self.elements, T::default());
            if self.read(&mut scratch)? < rows {
                break;
            }
        }
        self.scratch = scratch;
        Ok(self.row - before)
    }

    /// Restarts at a later row whose first window begins at `sample`.
    fn restart(&mut self, row: u64, sample: u64) -> Result<()> {
        let before = self.row;
        let missed = self.source.skip_to(self.bank.start(sample)).unwrap_or_else(|fault| {
            self.end(fault);
            u64::MAX
        });
        self.next_sample = self.source.position();
        self.saturated = self.saturated();
        self.bank.restart(sample);
        self.block.set_times(0)?;
        self.used = 0;
        self.row = row;
        let mut is_short = missed > 0;
        while !is_short && self.bank.is_dropping() {
            is_short = self.advance(&mut [])?.is_none();
        }
        if is_short {
            // The data end before that row; continue after their last row.
            self.row = self.plan().rows(self.source.position()).max(before).min(row);
        }
        Ok(())
    }
}

/// Returns the multiple of rows at which the phases of an oversampled filter bank and its blocks of spectra repeat.
pub(super) fn restart_rows(plan: &Plan) -> u64 {
    let (p, q) = plan.options().oversampling;
    let period = (p / greatest_common_divisor(p as u64, q as u64) as usize) as u64;
    let spectra = period / greatest_common_divisor(period, RESTART_SPECTRA) * RESTART_SPECTRA;
    spectra / greatest_common_divisor(spectra, plan.spectra_per_row() as u64)
}

/// Returns the samples of each stream in `bytes` bytes.
fn fitting_times(recorded: &VoltageHeader, bytes: usize) -> usize {
    bytes * 8 / recorded.sample_bits()
}

/// Returns the samples per block: `bytes` bytes of all streams, at least one hop.
fn block_times(recorded: &VoltageHeader, plan: &Plan, bytes: usize) -> usize {
    fitting_times(recorded, bytes).max(plan.hop()).next_multiple_of(plan.hop())
}

/// Returns the samples of each stream per read: as requested, fewer under a memory limit; 0 selects automatically.
///
/// # Errors
/// [`Error::Unavailable`] when the limit is too low for the samples of one row.
pub(super) fn fitting_gulp(
    recorded: &VoltageHeader,
    plan: &Plan,
    coherent: Option<&coherent::Plan>,
    options: &ChannelizeOptions,
) -> Result<usize> {
    if options.memory.is_none() {
        return Ok(options.gulp);
    }
    let bits = recorded.sample_bits();
    let row = plan.samples_per_row().max(plan.hop());
    // Window samples as floats, and the rows being computed.
    let held = 8 * plan.input().streams() * plan.span() + 16 * plan.row_elements();
    let held = held + coherent.map_or(0, coherent::Plan::host_bytes);
    let remaining =
        remaining_bytes(options.memory, "the filter bank", held, (row * bits).div_ceil(8))?;
    let usual =
        if options.gulp == 0 { block_times(recorded, plan, HOST_BYTES) } else { options.gulp };
    Ok(usual.min((remaining / (BLOCKS + 1) * 8 / bits).max(row)))
}

fn greatest_common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

/// Samples that the filter bank has not received.
pub(in crate::pipeline) struct Unread<'a> {
    source: &'a mut Ahead,
    /// Block read by the host, and the number of its samples consumed.
    block: &'a mut VoltageBlock<'static>,
    used: &'a mut usize,
    next_sample: &'a mut u64,
    found: &'a mut Vec<Flag>,
}

impl Unread<'_> {
    /// Returns the samples of each stream that are already read and come first.
    pub(in crate::pipeline) fn held(&mut self) -> usize {
        if *self.used == self.block.times()
            && let Some(next) = self.source.take_held()
        {
            (*self.block, *self.used) = (next, 0);
            self.found.extend(self.block.flags_after(*self.next_sample));
            *self.next_sample += self.block.times() as u64;
        }
        self.block.times() - *self.used
    }

    /// Fills a block with the next samples; samples already read are returned first, by themselves.
    pub(in crate::pipeline) fn read(&mut self, block: &mut VoltageBlock<'_>) -> Result<usize> {
        let held = self.held().min(block.capacity());
        if held == 0 {
            let times = self.source.read(block)?;
            self.found.extend(block.flags_after(*self.next_sample));
            *self.next_sample += times as u64;
            return Ok(times);
        }
        let voltages = self.block.voltages().slice(*self.used, held)?;
        for (stream, row) in block.rows_mut().enumerate() {
            let bytes = voltages.row(stream);
            row[..bytes.len()].copy_from_slice(bytes);
        }
        block.set_times(held)?;
        *self.used += held;
        Ok(held)
    }
}

/// Filter bank bound to a device.
pub(in crate::pipeline) struct Bank<'a> {
    bank: &'a mut FilterBank,
    row: &'a mut u64,
}

impl Bank<'_> {
    /// Enqueues the computation of rows from voltages on the device, as [`FilterBank::enqueue`].
    pub(in crate::pipeline) fn enqueue(
        &mut self,
        voltages: &Buffer<u8>,
        pieces: Pieces<'_>,
        rows: &mut Buffer<u8>,
        stream: &Stream,
    ) -> Result<usize> {
        let Pieces { layouts, is_last } = pieces;
        let times = self.bank.enqueue(voltages, layouts, is_last, rows, stream)?;
        *self.row += times as u64;
        Ok(times)
    }
}

/// Voltages in a device's memory, in order.
#[derive(Clone, Copy, Debug)]
pub(in crate::pipeline) struct Pieces<'a> {
    /// Layout of each piece.
    pub(in crate::pipeline) layouts: &'a [DeviceVoltages],
    /// Whether the recording ends after them.
    pub(in crate::pipeline) is_last: bool,
}

impl<T> Spectra<T> {
    /// Returns the filter bank.
    pub(super) fn bank(&self) -> &FilterBank {
        &self.bank
    }

    /// Splits the spectra into the unread voltages and the filter bank.
    pub(super) fn split(&mut self) -> (Unread<'_>, Bank<'_>) {
        let Self { source, bank, block, used, next_sample, found, row, .. } = self;
        source.stop();
        (Unread { source, block, used, next_sample, found }, Bank { bank, row })
    }
}
