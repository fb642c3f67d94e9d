//! Filter bank, behind coherent dedispersion where it is requested. On a GPU the voltages are copied in once, and the
//! dedispersed ones stay in its memory. Several GPUs divide the rows of a filter bank alone; one GPU dedisperses coherently.
//!
//! Invariant: rows do not depend on the sizes of calls; on a GPU, within the tolerance of the stages.

mod device;
mod divided;

use bytemuck::Pod;
use num_complex::Complex;

use device::{DeviceSamples, Stages, drop_first};
use divided::Divided;

use crate::backend::Backend;
use crate::backend::cuda::{Buffer, Device, Stream};
use crate::backend::threads::Threads;
use crate::channelize::{Channelizer, DeviceVoltages, Joining, Output, Plan};
use crate::coherent::{self, Dedisperser};
use crate::error::{Error, Result};
use crate::trace::{self, Work};
use crate::view::{Progress, check_length};
use crate::voltage::{VoltageBlock, Voltages};

/// Bytes of dedispersed voltages at a time on the host: they stay in its caches.
const HOST_BYTES: usize = 8 << 20;

/// Progress of a call that does nothing.
const NONE: Progress = Progress { consumed: 0, produced: 0 };

/// Element type of rows.
pub(super) trait Element: Copy + Default + Pod + Send {
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

/// Filter bank of recorded voltages.
pub(super) struct FilterBank {
    bank: Bank,
    dedispersion: Option<Dedispersion>,
    warning: Option<String>,
}

/// Filter bank on the host or a GPU, or on several GPUs.
enum Bank {
    One(Box<Channelizer>),
    Several(Box<Divided>),
}

/// Dedispersion before the filter bank.
struct Dedispersion {
    dedisperser: Dedisperser,
    place: Place,
    /// Dedispersed samples before the first row, still to be dropped.
    dropped: u64,
}

/// Memory of dedispersed voltages.
enum Place {
    Host(HostSamples),
    Device(Box<DeviceSamples>),
}

impl FilterBank {
    /// Binds a plan, and the dedispersion of its input, to a backend. With `joining`, a GPU that dedisperses also joins
    /// the rows, see [`FilterBank::joins`]. A GPU that cannot dedisperse, for want of cuFFT or memory, leaves that to
    /// the host. A GPU and its peers divide rows without dedispersion, for the host only.
    ///
    /// # Errors
    /// As [`Channelizer::new`] and [`Dedisperser::new`].
    pub(super) fn new(
        plan: Plan,
        coherent: Option<coherent::Plan>,
        joining: Option<Joining>,
        backend: &Backend,
    ) -> Result<Self> {
        let Some(coherent) = coherent else {
            let bank = match Divided::new(&plan, backend)? {
                Some(divided) => Bank::Several(Box::new(divided)),
                None => Bank::One(Box::new(Channelizer::new(plan, backend)?)),
            };
            return Ok(Self { bank, dedispersion: None, warning: None });
        };
        let channelizer = Channelizer::new(plan, backend)?;
        let on_device = |device: &Device, threads: &Threads| {
            let dedisperser = Dedisperser::new(coherent.clone(), backend)?;
            let bank = channelizer.plan();
            let samples = DeviceSamples::new(device, threads, &coherent, bank, joining)?;
            Ok((dedisperser, Place::Device(Box::new(samples))))
        };
        let on_host = || {
            let dedisperser = Dedisperser::new(coherent.clone(), &backend.on_host())?;
            Ok((dedisperser, Place::Host(HostSamples::new(&coherent))))
        };
        let is_divided = backend.shares().len() > 1;
        let mut warning = is_divided.then(|| {
            "one GPU dedisperses coherently and makes all spectra; the others are not used"
                .to_owned()
        });
        let (dedisperser, place) = match backend {
            Backend::Cuda(device, threads) => match on_device(device, threads) {
                Err(error @ Error::Unavailable { .. }) => {
                    let why = format!("the processor dedisperses coherently, not the GPU: {error}");
                    warning = Some(why);
                    on_host()?
                }
                made => made?,
            },
            _ => on_host()?,
        };
        let dedispersion = Some(Dedispersion { dedisperser, place, dropped: 0 });
        Ok(Self { bank: Bank::One(Box::new(channelizer)), dedispersion, warning })
    }

    /// Returns the filter bank itself; of several GPUs that of the first.
    pub(super) fn channelizer(&self) -> &Channelizer {
        match &self.bank {
            Bank::One(channelizer) => channelizer,
            Bank::Several(divided) => divided.first(),
        }
    }

    /// As [`Channelizer::saturated`].
    pub(super) fn saturated(&self) -> Vec<u64> {
        match &self.bank {
            Bank::One(channelizer) => channelizer.saturated(),
            Bank::Several(divided) => divided.saturated(),
        }
    }

    /// Returns why the host does a GPU's work, if it does.
    pub(super) fn warning(&self) -> Option<&str> {
        self.warning.as_deref()
    }

    /// Returns the GPU that computes rows from recorded voltages in its memory, if one does by itself.
    pub(super) fn device(&self) -> Option<&Device> {
        match (&self.bank, &self.dedispersion) {
            (Bank::Several(_), _) | (_, Some(Dedispersion { place: Place::Host(_), .. })) => None,
            (Bank::One(channelizer), _) => channelizer.device(),
        }
    }

    /// Returns whether rows in host memory are joined.
    pub(super) fn joins(&self) -> bool {
        self.on_device().is_some_and(|samples| samples.joins())
    }

    fn on_device(&self) -> Option<&DeviceSamples> {
        match &self.dedispersion {
            Some(Dedispersion { place: Place::Device(samples), .. }) => Some(samples),
            _ => None,
        }
    }

    /// Returns the recorded samples, after those of a row, that the row may depend on.
    pub(super) fn delay(&self) -> usize {
        self.dedispersion.as_ref().map_or(0, |own| own.dedisperser.plan().points())
    }

    /// Returns the most samples at hand on a GPU whose rows are not computed.
    pub(super) fn backlog(&self) -> usize {
        self.on_device().map_or(0, DeviceSamples::room) + self.delay()
    }

    /// Returns the first recorded sample to supply for rows that begin at `sample`.
    pub(super) fn start(&self, sample: u64) -> u64 {
        let own = self.dedispersion.as_ref();
        own.map_or(sample, |own| own.dedisperser.plan().start(sample).input)
    }

    /// Starts again with the row whose first window begins at `sample`, from recorded sample [`FilterBank::start`] on.
    pub(super) fn restart(&mut self, sample: u64) {
        match &mut self.bank {
            Bank::One(channelizer) => channelizer.reset(),
            Bank::Several(divided) => divided.reset(),
        }
        if let Some(own) = &mut self.dedispersion {
            let start = own.dedisperser.plan().start(sample);
            own.dedisperser.reset(start);
            own.dropped = sample - start.output;
            match &mut own.place {
                Place::Host(samples) => samples.used = samples.block.times(),
                Place::Device(samples) => samples.clear(),
            }
        }
    }

    /// Returns whether samples before the first row are still awaited.
    pub(super) fn is_dropping(&self) -> bool {
        self.dedispersion.as_ref().is_some_and(|own| own.dropped > 0)
    }

    /// Consumes samples and writes the rows they complete; consumes all unless the rows have too little space.
    pub(super) fn run<T: Element>(
        &mut self,
        voltages: Voltages<'_>,
        rows: &mut [T],
    ) -> Result<Progress> {
        self.advance(Some(voltages), rows)
    }

    /// Writes the next rows after the end of the recording; returns their number, 0 once all are written.
    pub(super) fn flush<T: Element>(&mut self, rows: &mut [T]) -> Result<usize> {
        Ok(self.advance(None, rows)?.produced)
    }

    fn advance<T: Element>(
        &mut self,
        voltages: Option<Voltages<'_>>,
        rows: &mut [T],
    ) -> Result<Progress> {
        let Self { bank, dedispersion, .. } = self;
        let channelizer = match bank {
            Bank::One(channelizer) => channelizer,
            Bank::Several(divided) => {
                let _span = trace::span(Work::Compute, "channelize");
                let elements = row_elements::<T>(divided.first().plan());
                return voltages
                    .map_or(Ok(NONE), |voltages| divided.run(voltages, rows, elements, T::output));
            }
        };
        let Some(Dedispersion { dedisperser, place, dropped }) = dedispersion else {
            let _span = trace::span(Work::Compute, "channelize");
            return voltages
                .map_or(Ok(NONE), |voltages| channelizer.run(voltages, T::output(rows)));
        };
        match place {
            Place::Host(samples) => {
                samples.advance(channelizer, dedisperser, dropped, voltages, rows)
            }
            Place::Device(samples) => {
                let rows = bytemuck::cast_slice_mut(rows);
                samples.run(Stages { channelizer, dedisperser, dropped }, voltages, rows)
            }
        }
    }
}

impl FilterBank {
    /// Enqueues the computation of rows from all `pieces` of recorded voltages on the device, and, with `is_last`, from
    /// the samples after them, which are zeros; returns the number of rows, which are not joined.
    pub(super) fn enqueue(
        &mut self,
        voltages: &Buffer<u8>,
        pieces: &[DeviceVoltages],
        is_last: bool,
        rows: &mut Buffer<u8>,
        stream: &Stream,
    ) -> Result<usize> {
        let Self { bank, dedispersion, .. } = self;
        let Bank::One(channelizer) = bank else {
            return Err(Error::Unavailable {
                what: "rows from voltages on a GPU".to_owned(),
                why: "several GPUs divide the rows for the host".to_owned(),
            });
        };
        let Some(Dedispersion { dedisperser, place, dropped }) = dedispersion else {
            let mut times = 0;
            for layout in pieces {
                let progress = channelizer.enqueue_at(voltages, *layout, rows, times, stream)?;
                check_length("samples that are channelized", layout.times, progress.consumed)?;
                times += progress.produced;
            }
            return Ok(times);
        };
        let Place::Device(samples) = place else {
            return Err(Error::Unavailable {
                what: "rows from voltages on a GPU".to_owned(),
                why: "the host dedisperses them coherently".to_owned(),
            });
        };
        let stages = Stages { channelizer, dedisperser, dropped };
        samples.enqueue(stages, voltages, pieces, is_last, rows, stream)
    }
}

/// Dedispersed voltages in host memory.
struct HostSamples {
    block: VoltageBlock<'static>,
    /// Samples of the block that the filter bank has consumed.
    used: usize,
}

impl HostSamples {
    fn new(plan: &coherent::Plan) -> Self {
        let (encoding, streams) = (plan.output_encoding(), plan.output_streams());
        let bytes = streams * encoding.bytes(plan.block());
        let capacity = (HOST_BYTES / bytes).max(1) * plan.block();
        Self { block: VoltageBlock::new(encoding, streams, capacity), used: 0 }
    }

    /// Writes rows from the samples at hand, then from those of `voltages`, or of the recording's end.
    fn advance<T: Element>(
        &mut self,
        channelizer: &mut Channelizer,
        dedisperser: &mut Dedisperser,
        dropped: &mut u64,
        voltages: Option<Voltages<'_>>,
        rows: &mut [T],
    ) -> Result<Progress> {
        let elements = row_elements::<T>(channelizer.plan());
        let mut done = Progress { consumed: 0, produced: 0 };
        loop {
            if self.used < self.block.times() {
                let left = self.block.times() - self.used;
                let samples = self.block.voltages().slice(self.used, left)?;
                let span = trace::span(Work::Compute, "channelize");
                let rest = T::output(&mut rows[done.produced * elements..]);
                let progress = channelizer.run(samples, rest)?;
                drop(span);
                self.used += progress.consumed;
                done.produced += progress.produced;
                if self.used < self.block.times() {
                    return Ok(done);
                }
            }
            let span = trace::span(Work::Compute, "dedisperse coherently");
            let made = match voltages {
                Some(voltages) if done.consumed < voltages.times() => {
                    let left = voltages.times() - done.consumed;
                    let rest = voltages.slice(done.consumed, left)?;
                    let progress = dedisperser.run(rest, &mut self.block)?;
                    done.consumed += progress.consumed;
                    progress.produced
                }
                Some(_) => return Ok(done),
                None => match dedisperser.flush(&mut self.block)? {
                    0 => return Ok(done),
                    made => made,
                },
            };
            drop(span);
            self.used = drop_first(dropped, made);
        }
    }
}

/// Returns the elements of a row of type `T`.
pub(super) fn row_elements<T: Element>(plan: &Plan) -> usize {
    match T::output(&mut []) {
        Output::Bytes(_) => plan.row_elements() * plan.element_bytes(),
        _ => plan.row_elements(),
    }
}
