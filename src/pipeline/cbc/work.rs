//! Filters and peak search of one detector, on the host or on a GPU.

use num_complex::Complex;

use super::device::DeviceWork;
use super::need::Need;
use crate::backend::Backend;
use crate::error::Result;
use crate::spiir::trigger::{Autocorrelation, Finder, Trigger, TriggerOptions};
use crate::spiir::{Plan, Spiir};
use crate::state::{Saved, Saving};
use crate::view::check_memory;

/// Limit in bytes on the signal-to-noise ratios per piece.
const PLANE_BYTES: usize = 16 << 20;
/// Smallest and largest number of samples per piece.
const PIECES: (usize, usize) = (256, 1 << 14);

/// Filters and peak search of whitened strain.
#[derive(Debug)]
pub(super) enum Work {
    /// Ratios are copied to the host.
    Host(Box<HostWork>),
    /// Ratios stay on a GPU.
    Device(Box<DeviceWork>),
}

/// Signal-to-noise ratios of a piece, axes template, time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ratios<'a> {
    pub(super) z: &'a [Complex<f32>],
    pub(super) stride: usize,
}

/// Filters on any backend, with the peak search on the host.
#[derive(Debug)]
pub(super) struct HostWork {
    spiir: Spiir,
    finder: Finder,
    /// Largest number of samples per piece.
    piece: usize,
    z: Vec<Complex<f32>>,
}

impl Work {
    /// Builds filters and peak search. On a GPU, ratios stay in its memory unless they are `shown` to an observer.
    ///
    /// # Errors
    /// Errors of the steps' options.
    pub(super) fn new(
        plan: Plan,
        search: (&TriggerOptions, &[Autocorrelation]),
        backend: &Backend,
        shown: bool,
    ) -> Result<Self> {
        if let Backend::Cuda(device, _) = backend
            && !shown
        {
            let work = DeviceWork::new(plan, search, (device, backend))?;
            return Ok(Self::Device(Box::new(work)));
        }
        Ok(Self::Host(Box::new(HostWork::new(plan, search, backend)?)))
    }

    /// Returns the largest number of samples per piece.
    pub(super) fn piece(&self) -> usize {
        match self {
            Self::Host(work) => work.piece,
            Self::Device(work) => work.piece(),
        }
    }

    /// Returns the host memory.
    pub(super) fn need(&self) -> Need {
        match self {
            Self::Host(work) => {
                let (held, staged) = work.spiir.host_bytes();
                let ratios = work.spiir.plan().templates() * size_of::<Complex<f32>>();
                Need { held: held + work.finder.held_bytes(), sample: ratios + staged }
            }
            Self::Device(work) => Need { held: work.held_bytes(), sample: 0 },
        }
    }

    /// Limits the samples per piece; call it before the first sample.
    pub(super) fn limit(&mut self, samples: usize) {
        match self {
            Self::Host(work) => {
                work.piece = work.piece.min(samples.max(1));
                work.z.truncate(work.spiir.plan().templates() * work.piece);
                work.z.shrink_to_fit();
                work.spiir.limit(work.piece);
            }
            Self::Device(work) => work.limit(samples),
        }
    }

    /// Returns the latencies in samples of the filters and of the peak search.
    pub(super) fn latencies(&self) -> (usize, usize) {
        match self {
            Self::Host(work) => (work.spiir.plan().latency(), work.finder.latency()),
            Self::Device(work) => work.latencies(),
        }
    }

    /// Filters whitened samples, at most one piece; returns the number of ratios they produce.
    pub(super) fn filter(&mut self, samples: &[f32]) -> Result<usize> {
        match self {
            Self::Host(work) => Ok(work.spiir.run(samples, &mut work.z, work.piece)?.produced),
            Self::Device(work) => work.filter(samples),
        }
    }

    /// Filters zeros after the stream's end; returns the number of ratios they produce, 0 at the end.
    pub(super) fn filter_end(&mut self) -> Result<usize> {
        match self {
            Self::Host(work) => work.spiir.flush(&mut work.z, work.piece),
            Self::Device(work) => work.filter_end(),
        }
    }

    /// Returns the piece's ratios if the host has them.
    pub(super) fn ratios(&self) -> Option<Ratios<'_>> {
        match self {
            Self::Host(work) => Some(Ratios { z: &work.z, stride: work.piece }),
            Self::Device(_) => None,
        }
    }

    /// Searches the piece's first `valid.len()` ratios.
    pub(super) fn find(&mut self, valid: &[bool], triggers: &mut Vec<Trigger>) -> Result<()> {
        match self {
            Self::Host(work) => {
                let HostWork { finder, z, piece, .. } = &mut **work;
                finder.run(z, *piece, valid.len(), valid, triggers)
            }
            Self::Device(work) => work.find(valid, triggers),
        }
    }

    /// Waits for all triggers that are final.
    pub(super) fn settle(&mut self, triggers: &mut Vec<Trigger>) -> Result<()> {
        match self {
            Self::Host(_) => {
                let _ = triggers;
                Ok(())
            }
            Self::Device(work) => work.settle(triggers),
        }
    }

    /// Saves the state of the stream; returns false for the reference backend, which cannot be saved. All final
    /// triggers must have been collected.
    pub(super) fn save(&self, to: &mut Saving) -> Result<bool> {
        match self {
            Self::Host(work) => {
                let is_whole = work.spiir.save(to)?;
                work.finder.save(to);
                Ok(is_whole)
            }
            Self::Device(work) => work.save(to),
        }
    }

    /// Restores a saved state.
    pub(super) fn load(
        &mut self,
        from: &mut Saved<'_>,
        (whitened, filtered): (u64, u64),
    ) -> Result<()> {
        let found = match self {
            Self::Host(work) => {
                work.spiir.load(from)?;
                work.finder.load(from)?;
                (work.spiir.consumed(), work.finder.known())
            }
            Self::Device(work) => work.load(from)?,
        };
        if found == (whitened, filtered) {
            return Ok(());
        }
        let why = format!("{found:?} found, expected {:?}", (whitened, filtered));
        Err(from.fault("samples filtered", why))
    }

    /// Ends the search.
    pub(super) fn finish(&mut self, triggers: &mut Vec<Trigger>) -> Result<()> {
        match self {
            Self::Host(work) => {
                work.finder.flush(triggers);
                Ok(())
            }
            Self::Device(work) => work.finish(triggers),
        }
    }
}

impl HostWork {
    fn new(
        plan: Plan,
        (options, autocorrelations): (&TriggerOptions, &[Autocorrelation]),
        backend: &Backend,
    ) -> Result<Self> {
        let (ratio, templates) = (size_of::<Complex<f32>>(), plan.templates());
        let spiir = Spiir::new(plan, backend)?;
        let finder = Finder::new(options, autocorrelations)?;
        let piece = (PLANE_BYTES / ratio / templates.max(1)).clamp(PIECES.0, PIECES.1);
        check_memory(
            "a piece of all templates' signal-to-noise ratios",
            templates.checked_mul(piece * ratio),
        )?;
        Ok(Self { spiir, finder, piece, z: vec![Complex::default(); templates * piece] })
    }
}
