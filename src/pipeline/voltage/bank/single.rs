//! Filter bank on the host or one GPU, behind coherent dedispersion where it is requested. On a GPU the voltages are copied in once,
//! and the dedispersed ones stay in its memory.
//!
//! Invariant: rows do not depend on the sizes of calls; on a GPU, within the tolerance of the stages.

use bytemuck::Pod;
use num_complex::Complex;

use super::device::{DeviceSamples, Stages, drop_first};
use crate::backend::Backend;
use crate::backend::cuda::{Buffer, Device, Stream};
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
pub(in super::super) trait Element: Copy + Default + Pod + Send {
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

/// Returns the elements of a row of type `T`.
pub(in super::super) fn row_elements<T: Element>(plan: &Plan) -> usize {
    match T::output(&mut []) {
        Output::Bytes(_) => plan.row_elements() * plan.element_bytes(),
        _ => plan.row_elements(),
    }
}

/// Plans of the rows of a recording.
#[derive(Clone, Debug)]
pub(in super::super) struct Plans {
    /// Filter bank.
    pub(in super::super) bank: Plan,
    /// Coherent dedispersion before it.
    pub(in super::super) coherent: Option<coherent::Plan>,
    /// Joining of its rows, where a GPU that dedisperses also does it.
    pub(in super::super) joining: Option<Joining>,
}

/// Filter bank of recorded voltages on the host or a GPU.
pub(super) struct Single {
    channelizer: Channelizer,
    dedispersion: Option<Dedispersion>,
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

impl Single {
    /// Binds plans to a backend, all stages to the same device.
    ///
    /// # Errors
    /// As [`Channelizer::new`] and [`Dedisperser::new`].
    pub(super) fn new(plans: Plans, backend: &Backend) -> Result<Self> {
        let Plans { bank, coherent, joining } = plans;
        let channelizer = Channelizer::new(bank, backend)?;
        let Some(coherent) = coherent else { return Ok(Self { channelizer, dedispersion: None }) };
        let dedisperser = Dedisperser::new(coherent.clone(), backend)?;
        let place = match backend {
            Backend::Cuda(device, threads) => {
                let bank = channelizer.plan();
                let samples = DeviceSamples::new(device, threads, &coherent, bank, joining)?;
                Place::Device(Box::new(samples))
            }
            _ => Place::Host(HostSamples::new(&coherent)),
        };
        let dedispersion = Some(Dedispersion { dedisperser, place, dropped: 0 });
        Ok(Self { channelizer, dedispersion })
    }

    /// As [`Single::new`], with the dedispersion on the host; rows are not joined.
    ///
    /// # Errors
    /// As [`Single::new`].
    pub(super) fn dedispersed_on_host(plans: Plans, backend: &Backend) -> Result<Self> {
        let Plans { bank, coherent, .. } = plans;
        let channelizer = Channelizer::new(bank, backend)?;
        let dedispersion = match coherent {
            Some(coherent) => {
                let place = Place::Host(HostSamples::new(&coherent));
                let dedisperser = Dedisperser::new(coherent, &backend.on_host())?;
                Some(Dedispersion { dedisperser, place, dropped: 0 })
            }
            None => None,
        };
        Ok(Self { channelizer, dedispersion })
    }

    /// Returns the filter bank itself.
    pub(super) fn channelizer(&self) -> &Channelizer {
        &self.channelizer
    }

    /// Returns the GPU that computes rows from recorded voltages in its memory, if one does.
    pub(super) fn device(&self) -> Option<&Device> {
        match &self.dedispersion {
            Some(Dedispersion { place: Place::Host(_), .. }) => None,
            _ => self.channelizer.device(),
        }
    }

    /// Returns whether rows in host memory are joined.
    pub(super) fn joins(&self) -> bool {
        self.on_device().is_some_and(DeviceSamples::joins)
    }

    fn on_device(&self) -> Option<&DeviceSamples> {
        match &self.dedispersion {
            Some(Dedispersion { place: Place::Device(samples), .. }) => Some(samples),
            _ => None,
        }
    }

    /// Returns the plan of the dedispersion, if there is one.
    pub(super) fn coherent(&self) -> Option<&coherent::Plan> {
        self.dedispersion.as_ref().map(|own| own.dedisperser.plan())
    }

    /// Returns the most samples at hand on a GPU whose rows are not computed, without those of the next window.
    pub(super) fn room(&self) -> usize {
        self.on_device().map_or(0, DeviceSamples::room)
    }

    /// Starts a new stream with the row whose first window begins at `sample`.
    pub(super) fn reset(&mut self, sample: u64) {
        self.channelizer.reset();
        self.dedisperse_from(sample);
    }

    /// As [`Single::reset`], at another place of the same stream: counts of saturated values go on.
    pub(super) fn restart(&mut self, sample: u64) {
        self.channelizer.restart();
        self.dedisperse_from(sample);
    }

    fn dedisperse_from(&mut self, sample: u64) {
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

    /// Consumes samples, or without any those after the recording's end, which are zeros, and writes the rows they complete;
    /// consumes all unless the rows have too little space.
    pub(super) fn run<T: Element>(
        &mut self,
        voltages: Option<Voltages<'_>>,
        rows: &mut [T],
    ) -> Result<Progress> {
        let Self { channelizer, dedispersion } = self;
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
        let Self { channelizer, dedispersion } = self;
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
