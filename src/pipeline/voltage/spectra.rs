//! Source with its filter bank, as one stream of rows that supports reading and skipping.
//!
//! Invariant: a row's bits do not depend on how rows are read or passed over, nor on what ends them before their time.

use num_complex::Complex;

use super::ahead::{Ahead, BLOCKS};
use super::layout::ChannelizeOptions;
use crate::backend::Backend;
use crate::backend::cuda::{Buffer, Stream};
use crate::channelize::{Channelizer, DeviceVoltages, Output, Plan};
use crate::error::{Error, Result};
use crate::io::voltages::VoltageSource;
use crate::pipeline::run::remaining_bytes;
use crate::trace::{self, Work};
use crate::view::check_length;
use crate::voltage::VoltageBlock;

/// Bytes of voltages per read for the host, unless requested otherwise; also the smallest read after an error.
const HOST_BYTES: usize = 8 << 20;

/// Bytes of voltages per read for a GPU, which copies and computes parts of a block at the same time.
const DEVICE_BYTES: usize = 64 << 20;

/// Upper bound in bytes per read, even if more are requested.
const MAX_BYTES: usize = 1 << 30;

/// Bytes of rows computed per step while skipping.
const SCRATCH_BYTES: usize = 1 << 20;

/// Multiple of spectra at which a restart of the filter bank changes no bits.
const RESTART_SPECTRA: u64 = 64;

/// Callback before each block of voltages; returns false to stop the run.
pub type Watch = Box<dyn FnMut() -> bool + Send>;

/// Element type of rows.
pub(super) trait Element: Copy + Default {
    /// Wraps a buffer as the channelizer's output.
    fn output(rows: &mut [Self]) -> Output<'_>;
}

impl Element for f32 {
    fn output(rows: &mut [Self]) -> Output<'_> {
        Output::F32(rows)
    }
}

impl Element for Complex<f32> {
    fn output(rows: &mut [Self]) -> Output<'_> {
        Output::Complex(rows)
    }
}

impl Element for u8 {
    fn output(rows: &mut [Self]) -> Output<'_> {
        Output::Bytes(rows)
    }
}

/// Source with its filter bank, whose rows are numbers of type `T`.
pub(super) struct Spectra<T> {
    source: Ahead,
    channelizer: Channelizer,
    block: VoltageBlock<'static>,
    /// Samples of the block that the filter bank has consumed.
    used: usize,
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
    /// Binds a source to its filter bank. `first` holds the block already read from the source and the row at which
    /// it begins, a multiple of [`restart_rows`].
    ///
    /// # Errors
    /// [`Error::Parameter`] for rows that span less than a byte of samples; as [`Channelizer::new`].
    pub(super) fn new(
        source: Box<dyn VoltageSource>,
        first: Option<(u64, VoltageBlock<'static>)>,
        plan: Plan,
        gulp: usize,
        backend: &Backend,
    ) -> Result<Self> {
        let encoding = plan.input().encoding;
        if plan.samples_per_row() < encoding.samples_per_byte() {
            let rule = "there are more rows than bytes of samples";
            let (p, q) = plan.options().oversampling;
            return Err(Error::parameter("oversampling", format!("{p}/{q}"), rule));
        }
        let most = MAX_BYTES * 8 / (plan.input().streams() * encoding.sample_bits());
        let (gulp, least) = match gulp {
            0 if backend.is_gpu() => {
                (block_times(&plan, DEVICE_BYTES), block_times(&plan, HOST_BYTES))
            }
            0 => (block_times(&plan, HOST_BYTES), block_times(&plan, HOST_BYTES)),
            asked => (asked.min(most).max(1), asked.min(most).max(1)),
        };
        let [gulp, least] =
            [gulp, least].map(|times| times.next_multiple_of(encoding.samples_per_byte()));
        let (row, block) = first.unwrap_or_else(|| (0, source.header().block(gulp)));
        let position = row * plan.samples_per_row() as u64 + block.times() as u64;
        let elements = match T::output(&mut []) {
            Output::Bytes(_) => plan.row_elements() * plan.element_bytes(),
            _ => plan.row_elements(),
        };
        Ok(Self {
            saturated: vec![0; plan.row_elements()],
            source: Ahead::new(source, position, gulp, least),
            channelizer: Channelizer::new(plan, backend)?,
            block,
            used: 0,
            row,
            elements,
            scratch: Vec::new(),
            watch: None,
            ended: false,
            fault: None,
        })
    }

    /// Returns the filter bank's plan.
    pub(super) fn plan(&self) -> &Plan {
        self.channelizer.plan()
    }

    /// Returns the number of the next row.
    pub(super) fn row(&self) -> u64 {
        self.row
    }

    /// Returns the numbers in a row.
    pub(super) fn elements(&self) -> usize {
        self.elements
    }

    /// Returns the saturated samples of each row element, over all rows so far.
    pub(super) fn saturated(&self) -> Vec<u64> {
        let present = self.channelizer.saturated();
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
        while done < asked && self.refill() {
            let rest = &mut rows[done * self.elements..asked * self.elements];
            let left = self.block.times() - self.used;
            let voltages = self.block.voltages().slice(self.used, left)?;
            let span = trace::span(Work::Compute, "channelize");
            let run = self.channelizer.run(voltages, T::output(rest));
            drop(span);
            let progress = match run {
                Ok(progress) => progress,
                Err(fault) => {
                    self.end(fault);
                    break;
                }
            };
            self.used += progress.consumed;
            self.row += progress.produced as u64;
            done += progress.produced;
        }
        Ok(done)
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
        self.source.stop();
        if sample > self.source.position() {
            self.restart(restart, sample)?;
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
        let missed = self.source.skip_to(sample).unwrap_or_else(|fault| {
            self.end(fault);
            u64::MAX
        });
        // The data end before that row; continue after their last row.
        let last = self.plan().rows(self.source.position()).max(self.row);
        self.row = if missed > 0 { last.min(row) } else { row };
        self.saturated = self.saturated();
        self.channelizer.reset();
        self.block.set_times(0)?;
        self.used = 0;
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

/// Returns the samples per block: `bytes` bytes of all streams, at least one hop.
fn block_times(plan: &Plan, bytes: usize) -> usize {
    let input = plan.input();
    let fitting = bytes * 8 / (input.streams() * input.encoding.sample_bits());
    fitting.max(plan.hop()).next_multiple_of(plan.hop())
}

/// Returns the samples of each stream per read: as requested, fewer under a memory limit; 0 selects automatically.
///
/// # Errors
/// [`Error::Unavailable`] when the limit is too low for the samples of one row.
pub(super) fn fitting_gulp(plan: &Plan, options: &ChannelizeOptions) -> Result<usize> {
    if options.memory.is_none() {
        return Ok(options.gulp);
    }
    let input = plan.input();
    let bits = input.streams() * input.encoding.sample_bits();
    let row = plan.samples_per_row().max(plan.hop());
    // Window samples as floats, and the rows being computed.
    let held = 8 * input.streams() * plan.span() + 16 * plan.row_elements();
    let remaining =
        remaining_bytes(options.memory, "the filter bank", held, (row * bits).div_ceil(8))?;
    let usual = if options.gulp == 0 { block_times(plan, HOST_BYTES) } else { options.gulp };
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
}

impl Unread<'_> {
    /// Returns the samples of each stream that are already read and come first.
    pub(in crate::pipeline) fn held(&mut self) -> usize {
        if *self.used == self.block.times()
            && let Some(next) = self.source.take_held()
        {
            (*self.block, *self.used) = (next, 0);
        }
        self.block.times() - *self.used
    }

    /// Fills a block with the next samples; samples already read are returned first, by themselves.
    pub(in crate::pipeline) fn read(&mut self, block: &mut VoltageBlock<'_>) -> Result<usize> {
        let held = self.held().min(block.capacity());
        if held == 0 {
            return self.source.read(block);
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
    channelizer: &'a mut Channelizer,
    row: &'a mut u64,
}

impl Bank<'_> {
    /// Enqueues the computation of rows from all `pieces` of voltages on the device; returns the number of rows.
    pub(in crate::pipeline) fn enqueue(
        &mut self,
        voltages: &Buffer<u8>,
        pieces: &[DeviceVoltages],
        rows: &mut Buffer<u8>,
        stream: &Stream,
    ) -> Result<usize> {
        let mut times = 0;
        for layout in pieces {
            let progress = self.channelizer.enqueue_at(voltages, *layout, rows, times, stream)?;
            check_length("samples that are channelized", layout.times, progress.consumed)?;
            times += progress.produced;
        }
        *self.row += times as u64;
        Ok(times)
    }
}

impl<T> Spectra<T> {
    /// Returns the filter bank.
    pub(super) fn channelizer(&self) -> &Channelizer {
        &self.channelizer
    }

    /// Splits the spectra into the unread voltages and the filter bank.
    pub(super) fn split(&mut self) -> (Unread<'_>, Bank<'_>) {
        let Self { source, channelizer, block, used, row, .. } = self;
        source.stop();
        (Unread { source, block, used }, Bank { channelizer, row })
    }
}
