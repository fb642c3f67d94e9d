//! F-engine on one GPU or several, and the corner turn among them: each GPU computes the spectra of a range of the antennas, and
//! copies those of its range of the channels from all.
//!
//! A GPU takes in the streams of its own antennas only, so antennas are divided without regard to their recordings. Spectra cross
//! the link in the order of the X-engine's input (channel, input, time): a strided copy for each pair of GPUs puts them in place.
//!
//! Invariant: the spectra's bits do not depend on the number of GPUs; a GPU that fails is named if there are several.

use std::ops::Range;

use super::antenna::AntennaInput;
use super::device::{DeviceConfig, DeviceFEngine, HostSamples, SLOTS, input_stride};
use super::recordings::Delays;
use super::window::Window;
use crate::backend::Backend;
use crate::backend::cuda::{
    Buffer, CopiedRows, Device, Event, MOST_JOINED, Source, Stream, UploadRing,
};
use crate::backend::threads::Threads;
use crate::correlate::{DeviceSpectra, Plan};
use crate::error::{Error, Result};

/// F-engines on GPUs, and the inputs of the GPUs' X-engines.
pub(super) struct OnDevice {
    plan: Plan,
    /// Spectra computed per call.
    capacity: usize,
    /// By ascending antennas.
    parts: Vec<Part>,
    /// By ascending channels.
    targets: Vec<Target>,
    /// One thread of the host for each part; `None` for one part.
    side_by_side: Option<Threads>,
    /// Layout of the most recently supplied spectra.
    layout: DeviceSpectra,
}

/// F-engine on one GPU.
struct Part {
    f_engine: DeviceFEngine,
    /// Threads that gather its voltages.
    threads: Threads,
}

/// Spectra to compute on one GPU.
struct Job<'a> {
    part: &'a mut Part,
    antennas: &'a mut [AntennaInput],
    outcome: Result<()>,
}

/// Input of the X-engine on one GPU.
struct Target {
    channels: Range<usize>,
    masks: UploadRing<u64>,
    /// Whether `masks` holds the mask of the most recently supplied spectra.
    mask_held: bool,
    /// Spectra of all antennas; `None` if one GPU computes and multiplies everything, which it does in place.
    gathered: Option<Gathered>,
}

/// Spectra of all antennas, copied from the GPUs that compute them.
struct Gathered {
    copies: Stream,
    /// Stream of the X-engine.
    work: Stream,
    /// Copies into one slot overlap the X-engine's work on the other.
    slots: Vec<Slot>,
    current: usize,
    /// Whether the X-engine uses the current slot.
    is_supplied: bool,
}

struct Slot {
    spectra: Buffer<u8>,
    /// Recorded after the copies into the slot.
    copied: Event,
    /// Recorded after the X-engine's work on the slot.
    read: Event,
}

/// Spectra on a GPU, for its X-engine.
pub(super) struct DeviceSupply<'a> {
    pub(super) spectra: &'a mut Buffer<u8>,
    pub(super) layout: DeviceSpectra,
    /// Axes channel, antenna, word.
    pub(super) valid: Option<&'a Buffer<u64>>,
    pub(super) stream: &'a Stream,
}

/// Returns range `index` of `count` elements divided into `parts` ranges.
pub(super) fn share(count: usize, index: usize, parts: usize) -> Range<usize> {
    count * index / parts..count * (index + 1) / parts
}

/// Names a GPU in its error, unless it is the only one.
pub(super) fn named(error: Error, device: &Device, is_alone: bool) -> Error {
    if is_alone { error } else { error.on_device(device.ordinal()) }
}

/// Returns the first `count` GPUs of a backend, or all if it has fewer.
fn devices(backend: &Backend, count: usize) -> Vec<&Device> {
    match backend {
        Backend::Cuda(device, _) => device.joined().take(count).collect(),
        _ => Vec::new(),
    }
}

impl OnDevice {
    /// Lists the kernels of each GPU that computes spectra.
    ///
    /// # Errors
    /// [`Error::Parameter`] as [`OnDevice::new`].
    pub(super) fn sources(
        devices: &[Device],
        config: &DeviceConfig<'_>,
    ) -> Result<Vec<Vec<Source>>> {
        let antennas = config.plan.antennas();
        let count = devices.len().min(antennas);
        let own =
            |index| DeviceFEngine::sources(&devices[index], config, &share(antennas, index, count));
        (0..count).map(own).collect()
    }

    /// Builds the F-engines of a GPU and its peers; those beyond the number of antennas only multiply.
    ///
    /// # Errors
    /// [`Error::Unavailable`] without memory, NVRTC or cuFFT on one of them; [`Error::Device`] when the driver fails.
    pub(super) fn new(backend: &Backend, config: &DeviceConfig<'_>) -> Result<Self> {
        let plan = config.plan.clone();
        let computing = devices(backend, plan.antennas());
        let multiplying = devices(backend, plan.channels());
        let is_alone = computing.len().max(multiplying.len()) == 1;
        let (count, pool) = (computing.len(), backend.host().threads());
        let mut parts = Vec::with_capacity(count);
        for (index, device) in computing.into_iter().enumerate() {
            let f_engine = DeviceFEngine::new(device, config, share(plan.antennas(), index, count));
            let threads = match count {
                1 => pool.clone(),
                _ => Threads::new(share(pool.count(), index, count).len().max(1)),
            };
            let f_engine = f_engine.map_err(|error| named(error, device, is_alone))?;
            parts.push(Part { f_engine, threads });
        }
        let mut targets = Vec::with_capacity(multiplying.len());
        for (index, device) in multiplying.iter().enumerate() {
            let channels = share(plan.channels(), index, multiplying.len());
            let target = Target::new(device, config, channels, is_alone);
            targets.push(target.map_err(|error| named(error, device, is_alone))?);
        }
        Ok(Self {
            side_by_side: (count > 1).then(|| Threads::new(count)),
            layout: layout(&plan, config.capacity, 0),
            capacity: config.capacity,
            plan,
            parts,
            targets,
        })
    }

    /// Returns whether one GPU computes and multiplies everything.
    fn is_alone(&self) -> bool {
        self.targets.iter().all(|target| target.gathered.is_none())
    }

    /// Returns whether an X-engine call must start at the first available spectrum, because recorded voltages must
    /// begin at a multiple of 16 bytes.
    pub(super) fn is_recorded(&self) -> bool {
        self.parts.iter().any(|part| part.f_engine.is_recorded())
    }

    /// Returns the saturated complex samples of each antenna; zeros for a device that has failed.
    pub(super) fn saturated(&self) -> Vec<u64> {
        self.parts.iter().flat_map(|part| part.f_engine.saturated()).collect()
    }

    /// Enqueues the computation of the antennas' prepared spectra, after an attempt to measure their gains. The host
    /// samples may change after the return.
    ///
    /// # Errors
    /// Errors of the filter banks and of the delay correction.
    pub(super) fn make(
        &mut self,
        mut antennas: &mut [AntennaInput],
        windows: &[Window],
        delays: &Delays,
        spectra: Range<u64>,
    ) -> Result<()> {
        let is_alone = self.is_alone();
        let count = self.parts.len();
        let mut jobs: [Option<Job<'_>>; MOST_JOINED] = std::array::from_fn(|_| None);
        for (job, part) in jobs.iter_mut().zip(&mut self.parts) {
            let (own, rest) = antennas.split_at_mut(part.f_engine.antennas.len());
            *job = Some(Job { part, antennas: own, outcome: Ok(()) });
            antennas = rest;
        }
        let make = |job: &mut Job<'_>| {
            let samples = HostSamples { antennas: job.antennas, windows, delays };
            let made = job.part.f_engine.make(samples, spectra.clone(), &job.part.threads);
            job.outcome = made.map_err(|error| job.part.named(error, is_alone));
        };
        match &self.side_by_side {
            Some(threads) => threads.for_each(&mut jobs[..count], 1, |_, jobs| {
                jobs.iter_mut().flatten().for_each(make);
            }),
            None => jobs.iter_mut().flatten().for_each(make),
        }
        jobs.into_iter().flatten().try_for_each(|job| job.outcome)
    }

    /// Enqueues the delay correction of `times` spectra from number `first` on and their copies to the GPUs that multiply
    /// them, for [`OnDevice::supplies`]; `fill` writes the validity mask of some channels, if there is one.
    ///
    /// # Errors
    /// Errors of the delay correction and of the copies.
    pub(super) fn supply(
        &mut self,
        first: u64,
        times: usize,
        fill: Option<impl Fn(Range<usize>, &mut [u64])>,
    ) -> Result<()> {
        let is_alone = self.is_alone();
        // Spectra that cross a link are packed.
        let rows = if is_alone { self.capacity } else { times };
        self.layout = layout(&self.plan, rows, times);
        let Self { plan, parts, targets, layout, .. } = self;
        for target in targets.iter_mut() {
            target.release_mask(parts)?;
        }
        for part in parts.iter_mut() {
            let corrected = part.correct(targets, first, times, layout.input_stride);
            corrected.map_err(|error| part.named(error, is_alone))?;
        }
        for (index, target) in targets.iter_mut().enumerate() {
            let (before, after) = parts.split_at(index.min(parts.len()));
            // Each GPU begins with its own spectra, so that no two take those of the same one at a time.
            let sources = after.iter().chain(before).map(|part| &part.f_engine);
            target.gather(sources, plan.polarizations(), *layout)?;
            if let Some(fill) = &fill {
                let words = plan.antennas() * Plan::mask_words(times);
                target
                    .send_mask(words, fill)
                    .map_err(|error| named(error, target.device(parts), is_alone))?;
            }
        }
        Ok(())
    }

    /// Returns the most recently supplied spectra, by ascending channels.
    pub(super) fn supplies(&mut self) -> impl Iterator<Item = Result<DeviceSupply<'_>>> {
        let Self { parts, targets, layout, .. } = self;
        let mut in_place =
            parts.first_mut().map(|part| (&mut part.f_engine.natural, &part.f_engine.work));
        let layout = *layout;
        targets.iter_mut().filter_map(move |target| {
            let (spectra, stream) = match &mut target.gathered {
                Some(gathered) => (&mut gathered.slots[gathered.current].spectra, &gathered.work),
                None => in_place.take()?,
            };
            let valid = match target.mask_held {
                true => target.masks.acquire(stream).map(|(mask, _)| Some(mask)),
                false => Ok(None),
            };
            Some(valid.map(|valid| DeviceSupply { spectra, layout, valid, stream }))
        })
    }
}

impl Drop for OnDevice {
    /// Waits for the copies, because the memory of a GPU is freed after its own work only.
    fn drop(&mut self) {
        for gathered in self.targets.iter().filter_map(|target| target.gathered.as_ref()) {
            // A GPU that has failed copies no more.
            let _ = gathered.copies.synchronize();
        }
    }
}

/// Returns the layout of `times` spectra of all inputs in rows for `capacity` spectra.
fn layout(plan: &Plan, capacity: usize, times: usize) -> DeviceSpectra {
    let input_stride = input_stride(plan, capacity);
    DeviceSpectra {
        first_byte: 0,
        channel_stride: plan.inputs() * input_stride,
        input_stride,
        times,
    }
}

impl Part {
    fn named(&self, error: Error, is_alone: bool) -> Error {
        named(error, self.f_engine.device(), is_alone)
    }

    /// Enqueues the delay correction of spectra, after the copies of the previous ones.
    fn correct(
        &mut self,
        targets: &[Target],
        first: u64,
        times: usize,
        input_stride: usize,
    ) -> Result<()> {
        let f_engine = &mut self.f_engine;
        let mut is_copied = false;
        for gathered in targets.iter().filter_map(|target| target.gathered.as_ref()) {
            f_engine.work.wait(&gathered.slots[gathered.current].copied)?;
            is_copied = true;
        }
        f_engine.correct(first, times, input_stride)?;
        if is_copied { f_engine.work.record(&f_engine.corrected) } else { Ok(()) }
    }
}

impl Target {
    fn new(
        device: &Device,
        config: &DeviceConfig<'_>,
        channels: Range<usize>,
        is_alone: bool,
    ) -> Result<Self> {
        let (plan, capacity) = (config.plan, config.capacity);
        let words = channels.len() * plan.antennas() * Plan::mask_words(capacity);
        let bytes = channels.len() * layout(plan, capacity, 0).channel_stride;
        let gathered = (!is_alone).then(|| Gathered::new(device, bytes));
        Ok(Self {
            masks: UploadRing::new(device, words, SLOTS)?,
            mask_held: false,
            gathered: gathered.transpose()?,
            channels,
        })
    }

    /// Returns the GPU, which is that of the first part if it multiplies in place.
    fn device<'a>(&'a self, parts: &'a [Part]) -> &'a Device {
        let gathered = self.gathered.as_ref();
        gathered.map_or_else(|| parts[0].f_engine.device(), |own| own.work.device())
    }

    /// Releases the mask of the previous spectra, which the X-engine's work so far uses.
    fn release_mask(&mut self, parts: &[Part]) -> Result<()> {
        if !std::mem::replace(&mut self.mask_held, false) {
            return Ok(());
        }
        let gathered = self.gathered.as_ref();
        let work = gathered.map_or_else(|| &parts[0].f_engine.work, |own| &own.work);
        let released = self.masks.release(work);
        released.map_err(|error| named(error, work.device(), gathered.is_none()))
    }

    /// Enqueues the copy of the mask, of `words` words in each channel.
    fn send_mask(&mut self, words: usize, fill: &impl Fn(Range<usize>, &mut [u64])) -> Result<()> {
        let count = self.channels.len() * words;
        let mut slot = self.masks.current();
        fill(self.channels.clone(), &mut slot.host()?[..count]);
        slot.send(count)?;
        self.mask_held = true;
        Ok(())
    }

    /// Enqueues the copies of the channels' spectra from all GPUs that compute some, unless they are used in place.
    fn gather<'a>(
        &mut self,
        sources: impl Iterator<Item = &'a DeviceFEngine>,
        polarizations: usize,
        layout: DeviceSpectra,
    ) -> Result<()> {
        let Some(gathered) = &mut self.gathered else { return Ok(()) };
        let device = gathered.work.device().clone();
        let own = |error| named(error, &device, false);
        gathered.begin().map_err(own)?;
        for source in sources {
            let inputs = source.antennas.start * polarizations..source.antennas.end * polarizations;
            let bytes = inputs.len() * layout.input_stride;
            let rows = CopiedRows {
                bytes,
                rows: self.channels.len(),
                from_stride: bytes,
                to_stride: layout.channel_stride,
            };
            let (from, to) = (self.channels.start * bytes, inputs.start * layout.input_stride);
            gathered.copy(source, from, to, &rows).map_err(|error| {
                let is_source = source.work.synchronize().is_err();
                named(error, if is_source { source.device() } else { &device }, false)
            })?;
        }
        gathered.end().map_err(own)
    }
}

impl Gathered {
    /// Allocates slots of `bytes` bytes.
    fn new(device: &Device, bytes: usize) -> Result<Self> {
        let slot = |_| {
            Ok(Slot {
                spectra: device.buffer(bytes)?,
                copied: device.event()?,
                read: device.event()?,
            })
        };
        Ok(Self {
            copies: device.stream()?,
            work: device.stream()?,
            slots: (0..SLOTS).map(slot).collect::<Result<_>>()?,
            current: 0,
            is_supplied: false,
        })
    }

    /// Advances to the next slot, and lets the copies wait for the X-engine's work on it.
    fn begin(&mut self) -> Result<()> {
        let Self { copies, work, slots, current, is_supplied } = self;
        if *is_supplied {
            work.record(&slots[*current].read)?;
            *current = (*current + 1) % slots.len();
            *is_supplied = false;
        }
        copies.wait(&slots[*current].read)
    }

    /// Enqueues the copy of rows of a GPU's spectra, from byte `from` on, to the current slot, from byte `to` on.
    fn copy(
        &mut self,
        source: &DeviceFEngine,
        from: usize,
        to: usize,
        rows: &CopiedRows,
    ) -> Result<()> {
        self.copies.wait(&source.corrected)?;
        let slot = &mut self.slots[self.current];
        self.copies.copy_rows_from(&source.natural, from, &mut slot.spectra, to, rows)
    }

    /// Lets the X-engine's work wait for the copies.
    fn end(&mut self) -> Result<()> {
        let slot = &self.slots[self.current];
        self.copies.record(&slot.copied)?;
        self.is_supplied = true;
        self.work.wait(&slot.copied)
    }
}
