//! Filters and the search for peaks of one detector, on the host or on a GPU.

use num_complex::Complex;

#[cfg(feature = "cuda")]
use super::device::DeviceWork;
use super::need::Need;
use crate::backend::Backend;
use crate::error::Result;
use crate::spiir::trigger::{Autocorrelation, Finder, Trigger, TriggerOptions};
use crate::spiir::{Plan, Spiir};
use crate::state::{Saved, Saving};
use crate::view::check_memory;

/// Bytes of signal-to-noise ratios that are made at once.
const PLANE_BYTES: usize = 16 << 20;
/// Samples that are filtered at once: at least, and at most.
const PIECES: (usize, usize) = (256, 1 << 14);

/// Where whitened strain is filtered and searched.
#[derive(Debug)]
pub(super) enum Work {
    /// Ratios come to the host.
    Host(Box<HostWork>),
    /// Ratios stay on a GPU.
    #[cfg(feature = "cuda")]
    Device(Box<DeviceWork>),
}

/// Signal-to-noise ratios of a piece, axes template, time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ratios<'a> {
    pub(super) z: &'a [Complex<f32>],
    pub(super) stride: usize,
}

/// Filters on any backend, whose ratios the host searches.
#[derive(Debug)]
pub(super) struct HostWork {
    spiir: Spiir,
    finder: Finder,
    /// Samples filtered at once.
    piece: usize,
    z: Vec<Complex<f32>>,
}

impl Work {
    /// Ratios stay on a GPU unless they are to be `shown`.
    ///
    /// # Errors
    /// What the steps report of their options.
    pub(super) fn new(
        plan: Plan,
        search: (&TriggerOptions, &[Autocorrelation]),
        backend: &Backend,
        shown: bool,
    ) -> Result<Self> {
        #[cfg(feature = "cuda")]
        if let Backend::Cuda(device, _) = backend
            && !shown
        {
            let work = DeviceWork::new(plan, search, (device, backend))?;
            return Ok(Self::Device(Box::new(work)));
        }
        #[cfg(not(feature = "cuda"))]
        let _ = shown;
        Ok(Self::Host(Box::new(HostWork::new(plan, search, backend)?)))
    }

    /// Samples filtered at once, at most.
    pub(super) fn piece(&self) -> usize {
        match self {
            Self::Host(work) => work.piece,
            #[cfg(feature = "cuda")]
            Self::Device(work) => work.piece(),
        }
    }

    /// The memory that it takes on the host.
    pub(super) fn need(&self) -> Need {
        match self {
            Self::Host(work) => {
                let (held, staged) = work.spiir.host_bytes();
                let ratios = work.spiir.plan().templates() * size_of::<Complex<f32>>();
                Need { held: held + work.finder.held_bytes(), sample: ratios + staged }
            }
            #[cfg(feature = "cuda")]
            Self::Device(work) => Need { held: work.held_bytes(), sample: 0 },
        }
    }

    /// Makes pieces have at most so many samples; nothing was filtered yet.
    pub(super) fn limit(&mut self, samples: usize) {
        match self {
            Self::Host(work) => {
                work.piece = work.piece.min(samples.max(1));
                work.z.truncate(work.spiir.plan().templates() * work.piece);
                work.z.shrink_to_fit();
                work.spiir.limit(work.piece);
            }
            #[cfg(feature = "cuda")]
            Self::Device(work) => work.limit(samples),
        }
    }

    /// Samples that the filters wait for, and the search for peaks.
    pub(super) fn latencies(&self) -> (usize, usize) {
        match self {
            Self::Host(work) => (work.spiir.plan().latency(), work.finder.latency()),
            #[cfg(feature = "cuda")]
            Self::Device(work) => work.latencies(),
        }
    }

    /// Filters whitened samples, at most a piece; gives the number of ratios that they bring.
    pub(super) fn filter(&mut self, samples: &[f32]) -> Result<usize> {
        match self {
            Self::Host(work) => Ok(work.spiir.run(samples, &mut work.z, work.piece)?.produced),
            #[cfg(feature = "cuda")]
            Self::Device(work) => work.filter(samples),
        }
    }

    /// Filters what follows the stream's end; gives the number of ratios that this brings, 0 at the last.
    pub(super) fn filter_end(&mut self) -> Result<usize> {
        match self {
            Self::Host(work) => work.spiir.flush(&mut work.z, work.piece),
            #[cfg(feature = "cuda")]
            Self::Device(work) => work.filter_end(),
        }
    }

    /// The piece's ratios, where the host has them.
    pub(super) fn ratios(&self) -> Option<Ratios<'_>> {
        match self {
            Self::Host(work) => Some(Ratios { z: &work.z, stride: work.piece }),
            #[cfg(feature = "cuda")]
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
            #[cfg(feature = "cuda")]
            Self::Device(work) => work.find(valid, triggers),
        }
    }

    /// Waits for all triggers that are certain by now.
    pub(super) fn settle(&mut self, triggers: &mut Vec<Trigger>) -> Result<()> {
        match self {
            Self::Host(_) => {
                let _ = triggers;
                Ok(())
            }
            #[cfg(feature = "cuda")]
            Self::Device(work) => work.settle(triggers),
        }
    }

    /// Saves what is kept of the stream, and says whether it can: the reference can't. All triggers that are certain by now
    /// were settled before.
    pub(super) fn save(&self, to: &mut Saving) -> Result<bool> {
        match self {
            Self::Host(work) => {
                let is_whole = work.spiir.save(to)?;
                work.finder.save(to);
                Ok(is_whole)
            }
            #[cfg(feature = "cuda")]
            Self::Device(work) => work.save(to),
        }
    }

    /// Goes on where such work was saved.
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
            #[cfg(feature = "cuda")]
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
            #[cfg(feature = "cuda")]
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
