//! Filters and peak search of one detector on a GPU: whitened strain in, triggers out; ratios stay in GPU memory.

use num_complex::Complex;

use crate::backend::Backend;
use crate::backend::cuda::{Buffer, Device, Stream, UploadRing};
use crate::error::Result;
use crate::spiir::trigger::{Autocorrelation, DeviceFinder, Trigger, TriggerOptions};
use crate::spiir::{Plan, Spiir};
use crate::state::{Saved, Saving};
use crate::view::check_length;

/// Limit in bytes on the signal-to-noise ratios per piece, and the divisor of the device's free memory that bounds
/// them.
const PLANE_BYTES: usize = 256 << 20;
const PART: usize = 4;

/// Smallest and largest number of samples per piece.
const PIECES: (usize, usize) = (256, 1 << 15);

/// Input buffers: one is filtered while the next are copied and filled.
const SLOTS: usize = 3;

/// Filters and peak finder of one detector on one device.
#[derive(Debug)]
pub(super) struct DeviceWork {
    spiir: Spiir,
    finder: DeviceFinder,
    stream: Stream,
    uploads: UploadRing<f32>,
    /// Ratios of a piece, axes template, time.
    z: Buffer<Complex<f32>>,
    piece: usize,
    /// Samples received; after the stream's end, `end` is the end of the appended zeros.
    taken: u64,
    end: Option<u64>,
}

impl DeviceWork {
    /// # Errors
    /// Errors of the steps; [`Error::Unavailable`](crate::Error::Unavailable) without memory for a short piece.
    pub(super) fn new(
        plan: Plan,
        (options, autocorrelations): (&TriggerOptions, &[Autocorrelation]),
        (device, backend): (&Device, &Backend),
    ) -> Result<Self> {
        let templates = plan.templates();
        let spiir = Spiir::new(plan, backend)?;
        let finder = DeviceFinder::new(options, autocorrelations, device)?;
        let ratio = size_of::<Complex<f32>>();
        let most = PLANE_BYTES.min(device.free_bytes()? / PART);
        let piece = (most / ratio / templates).clamp(PIECES.0, PIECES.1);
        Ok(Self {
            spiir,
            finder,
            stream: device.stream()?,
            uploads: UploadRing::new(device, piece, SLOTS)?,
            z: device.buffer(templates.saturating_mul(piece))?,
            piece,
            taken: 0,
            end: None,
        })
    }

    /// Returns the largest number of samples per piece.
    pub(super) fn piece(&self) -> usize {
        self.piece
    }

    /// Returns the bytes of host memory.
    pub(super) fn held_bytes(&self) -> usize {
        self.spiir.host_bytes().0 + self.finder.held_bytes() + SLOTS * self.piece * size_of::<f32>()
    }

    /// Limits the samples per piece.
    pub(super) fn limit(&mut self, samples: usize) {
        self.piece = self.piece.min(samples.max(1));
    }

    /// Returns the latencies in samples of the filters and of the peak search.
    pub(super) fn latencies(&self) -> (usize, usize) {
        (self.spiir.plan().latency(), self.finder.latency())
    }

    /// Enqueues whitened samples, at most one piece; returns the number of ratios they produce.
    pub(super) fn filter(&mut self, samples: &[f32]) -> Result<usize> {
        check_length("samples of a piece", samples.len().min(self.piece), samples.len())?;
        if samples.is_empty() {
            return Ok(0);
        }
        let fill = |host: &mut [f32]| host.copy_from_slice(samples);
        let input = self.uploads.upload(samples.len(), &self.stream, fill)?;
        let (count, piece) = (samples.len(), self.piece);
        let output = (&mut self.z, 0, piece);
        let produced = self.spiir.enqueue((input, 0), count, output, &self.stream)?.produced;
        self.uploads.release(&self.stream)?;
        self.taken += count as u64;
        Ok(produced)
    }

    /// Enqueues zeros after the stream's end; returns the number of ratios they produce, 0 at the end.
    pub(super) fn filter_end(&mut self) -> Result<usize> {
        let end = *self.end.get_or_insert(self.taken + self.spiir.plan().latency() as u64);
        let mut produced = 0;
        while produced == 0 && self.taken < end {
            let zeros = vec![0.0; (end - self.taken).min(self.piece as u64) as usize];
            produced = self.filter(&zeros)?;
        }
        Ok(produced)
    }

    /// Enqueues the peak search in the piece's first `valid.len()` ratios.
    pub(super) fn find(&mut self, valid: &[bool], triggers: &mut Vec<Trigger>) -> Result<()> {
        let rows = (self.piece, valid.len());
        self.finder.enqueue(&self.z, rows, valid, &self.stream, triggers)
    }

    /// Waits for all triggers that are final.
    pub(super) fn settle(&mut self, triggers: &mut Vec<Trigger>) -> Result<()> {
        self.finder.collect(triggers)
    }

    /// Saves the state of an unfinished stream; all final triggers must have been collected.
    pub(super) fn save(&self, to: &mut Saving) -> Result<bool> {
        let is_whole = self.spiir.save(to)?;
        self.finder.save(to)?;
        Ok(is_whole)
    }

    /// Restores a saved state; returns the samples received and the samples searched by then.
    pub(super) fn load(&mut self, from: &mut Saved<'_>) -> Result<(u64, u64)> {
        self.spiir.load(from)?;
        self.finder.load(from)?;
        (self.taken, self.end) = (self.spiir.consumed(), None);
        Ok((self.taken, self.finder.known()))
    }

    /// Ends the search.
    pub(super) fn finish(&mut self, triggers: &mut Vec<Trigger>) -> Result<()> {
        self.finder.flush(&self.stream, triggers)
    }
}
