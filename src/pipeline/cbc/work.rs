//! Filters and peak search of one detector, on the host or on a GPU.

use num_complex::Complex;

use super::need::Need;
use crate::backend::Backend;
use crate::backend::cuda::{Buffer, Device, Stream, UploadRing};
use crate::error::Result;
use crate::spiir::trigger::{self, DeviceRatios, Finder, Ratios, Trigger};
use crate::spiir::{DeviceOutput, DeviceSamples, Plan, Spiir};
use crate::state::{Saved, Saving};
use crate::view::{check_length, check_memory};

/// Limits in bytes on the signal-to-noise ratios per piece, on the host and on a GPU, and the divisor of the GPU's free
/// memory that bounds them.
const HOST_BYTES: usize = 16 << 20;
const DEVICE_BYTES: usize = 256 << 20;
const PART: usize = 4;

/// Smallest number of samples per piece, and largest on the host and on a GPU.
const MIN_PIECE: usize = 256;
const MAX_PIECE: usize = 1 << 14;
const MAX_DEVICE_PIECE: usize = 1 << 15;

/// Input buffers of a GPU: one is filtered while the next are copied and filled.
const SLOTS: usize = 3;

/// Filters and peak search of whitened strain.
#[derive(Debug)]
pub(super) struct Work {
    spiir: Spiir,
    finder: Finder,
    /// Largest number of samples per piece.
    piece: usize,
    ratios: Memory,
    /// End of the zeros that follow the stream, once it has ended.
    end: Option<u64>,
}

/// Signal-to-noise ratios of a piece, axes template, time.
#[derive(Debug)]
enum Memory {
    Host(Vec<Complex<f32>>),
    Device(Box<OnDevice>),
}

/// Input and ratios of a piece in device memory.
#[derive(Debug)]
struct OnDevice {
    stream: Stream,
    uploads: UploadRing<f32>,
    z: Buffer<Complex<f32>>,
}

impl OnDevice {
    fn new(device: &Device, piece: usize, templates: usize) -> Result<Self> {
        Ok(Self {
            stream: device.stream()?,
            uploads: UploadRing::new(device, piece, SLOTS)?,
            z: device.buffer(templates.saturating_mul(piece))?,
        })
    }
}

impl Work {
    /// Builds filters and peak search. On a GPU, ratios stay in its memory unless they are `shown` to an observer; the
    /// peaks of shown ratios are searched on the host.
    ///
    /// # Errors
    /// Errors of the steps; [`Error::Unavailable`](crate::Error::Unavailable) without memory for a short piece.
    pub(super) fn new(
        plan: Plan,
        search: trigger::Plan,
        backend: &Backend,
        shown: bool,
    ) -> Result<Self> {
        let (ratio, templates) = (size_of::<Complex<f32>>(), plan.templates());
        let spiir = Spiir::new(plan, backend)?;
        let on_device = match backend {
            Backend::Cuda(device, _) if !shown => Some(device),
            _ => None,
        };
        let host = backend.on_host();
        let finder = Finder::new(search, if on_device.is_some() { backend } else { &host })?;
        let (bytes, longest) = match on_device {
            Some(device) => (DEVICE_BYTES.min(device.free_bytes()? / PART), MAX_DEVICE_PIECE),
            None => (HOST_BYTES, MAX_PIECE),
        };
        let piece = (bytes / ratio / templates).clamp(MIN_PIECE, longest);
        let ratios = match on_device {
            Some(device) => Memory::Device(Box::new(OnDevice::new(device, piece, templates)?)),
            None => {
                let what = "a piece of all templates' signal-to-noise ratios";
                check_memory(what, templates.checked_mul(piece * ratio))?;
                Memory::Host(vec![Complex::default(); templates * piece])
            }
        };
        Ok(Self { spiir, finder, piece, ratios, end: None })
    }

    /// Returns the largest number of samples per piece.
    pub(super) fn piece(&self) -> usize {
        self.piece
    }

    /// Returns the host memory.
    pub(super) fn need(&self) -> Need {
        let (held, staged) = self.spiir.host_bytes();
        let held = held + self.finder.held_bytes();
        match self.ratios {
            Memory::Host(_) => {
                let ratios = self.spiir.plan().templates() * size_of::<Complex<f32>>();
                Need { held, sample: ratios + staged }
            }
            Memory::Device(_) => {
                Need { held: held + SLOTS * self.piece * size_of::<f32>(), sample: 0 }
            }
        }
    }

    /// Limits the samples per piece; call it before the first sample.
    pub(super) fn limit(&mut self, samples: usize) {
        self.piece = self.piece.min(samples.max(1));
        if let Memory::Host(z) = &mut self.ratios {
            z.truncate(self.spiir.plan().templates() * self.piece);
            z.shrink_to_fit();
            self.spiir.limit(self.piece);
        }
    }

    /// Returns the latency in samples of the filters.
    pub(super) fn filter_latency(&self) -> usize {
        self.spiir.plan().latency()
    }

    /// Returns the latency in samples of the peak search.
    pub(super) fn search_latency(&self) -> usize {
        self.finder.plan().latency()
    }

    /// Filters whitened samples, at most one piece; returns the number of ratios they produce.
    pub(super) fn filter(&mut self, samples: &[f32]) -> Result<usize> {
        let times = samples.len();
        check_length("samples of a piece", times.min(self.piece), times)?;
        match &mut self.ratios {
            Memory::Host(z) => Ok(self.spiir.run(samples, z, self.piece)?.produced),
            Memory::Device(_) if times == 0 => Ok(0),
            Memory::Device(on_device) => {
                let OnDevice { stream, uploads, z } = &mut **on_device;
                let fill = |host: &mut [f32]| host.copy_from_slice(samples);
                let buffer = uploads.upload(times, stream, fill)?;
                let input = DeviceSamples { buffer, first: 0, times };
                let output = DeviceOutput { buffer: z, first: 0, stride: self.piece };
                let produced = self.spiir.enqueue(input, output, stream)?.produced;
                uploads.release(stream)?;
                Ok(produced)
            }
        }
    }

    /// Filters zeros after the stream's end; returns the number of ratios they produce, 0 at the end.
    pub(super) fn filter_end(&mut self) -> Result<usize> {
        if let Memory::Host(z) = &mut self.ratios {
            return self.spiir.flush(z, self.piece);
        }
        let latency = self.spiir.plan().latency() as u64;
        let end = *self.end.get_or_insert(self.spiir.consumed() + latency);
        let mut produced = 0;
        while produced == 0 && self.spiir.consumed() < end {
            let left = end - self.spiir.consumed();
            produced = self.filter(&vec![0.0; left.min(self.piece as u64) as usize])?;
        }
        Ok(produced)
    }

    /// Returns the piece's first `times` ratios if the host has them.
    pub(super) fn ratios(&self, times: usize) -> Option<Ratios<'_>> {
        match &self.ratios {
            Memory::Host(z) => Some(Ratios { z, stride: self.piece, times }),
            Memory::Device(_) => None,
        }
    }

    /// Searches the piece's first `valid.len()` ratios.
    pub(super) fn find(&mut self, valid: &[bool], triggers: &mut Vec<Trigger>) -> Result<()> {
        let (stride, times) = (self.piece, valid.len());
        match &self.ratios {
            Memory::Host(z) => self.finder.run(Ratios { z, stride, times }, valid, triggers),
            Memory::Device(on_device) => {
                let OnDevice { stream, z, .. } = &**on_device;
                self.finder.enqueue(DeviceRatios { z, stride, times }, valid, triggers, stream)
            }
        }
    }

    /// Waits for all triggers that are final.
    pub(super) fn settle(&mut self, triggers: &mut Vec<Trigger>) -> Result<()> {
        self.finder.collect(triggers)
    }

    /// Saves the state of the stream; returns false for the reference backend, which cannot be saved. All final
    /// triggers must have been collected.
    pub(super) fn save(&self, to: &mut Saving) -> Result<bool> {
        let is_whole = self.spiir.save(to)?;
        self.finder.save(to)?;
        Ok(is_whole)
    }

    /// Restores a state saved after this many samples were whitened and filtered.
    pub(super) fn load(
        &mut self,
        from: &mut Saved<'_>,
        whitened: u64,
        filtered: u64,
    ) -> Result<()> {
        self.spiir.load(from)?;
        self.finder.load(from)?;
        self.end = None;
        let found = (self.spiir.consumed(), self.finder.known());
        if found == (whitened, filtered) {
            return Ok(());
        }
        let why = format!("{found:?} found, expected {:?}", (whitened, filtered));
        Err(from.fault("samples filtered", why))
    }

    /// Ends the search.
    pub(super) fn finish(&mut self, triggers: &mut Vec<Trigger>) -> Result<()> {
        self.finder.flush(triggers)
    }
}
