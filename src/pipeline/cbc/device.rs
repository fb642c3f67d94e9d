//! Whitened strain in, triggers out, on a GPU: ratios stay in its memory.

use num_complex::Complex;

use crate::backend::Backend;
use crate::backend::cuda::{Buffer, Device, Inbox, Stream};
use crate::error::Result;
use crate::spiir::trigger::{Autocorrelation, DeviceFinder, Trigger, TriggerOptions};
use crate::spiir::{Plan, Spiir};
use crate::state::{Saved, Saving};
use crate::view::check_length;

/// Bytes of signal-to-noise ratios that are made at once, and of the device's free memory the part that they may take.
const PLANE_BYTES: usize = 256 << 20;
const PART: usize = 4;

/// Samples that are filtered at once: at least, and at most.
const PIECES: (usize, usize) = (256, 1 << 15);

/// Pairs of buffers on the way in: one is filtered while the next are copied and filled.
const SLOTS: usize = 3;

/// Filters and finder of one detector on one device.
#[derive(Debug)]
pub(super) struct DeviceWork {
    spiir: Spiir,
    finder: DeviceFinder,
    stream: Stream,
    inbox: Inbox<f32>,
    /// Ratios of a piece, axes template, time.
    z: Buffer<Complex<f32>>,
    piece: usize,
    /// Samples taken; once the stream has ended, where its zeros end.
    taken: u64,
    end: Option<u64>,
}

impl DeviceWork {
    /// # Errors
    /// What the steps report; [`Error::Unavailable`](crate::Error::Unavailable) without memory for a short piece.
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
            inbox: Inbox::new(device, piece, SLOTS)?,
            z: device.buffer(templates.saturating_mul(piece))?,
            piece,
            taken: 0,
            end: None,
        })
    }

    /// Samples that are filtered at once, at most.
    pub(super) fn piece(&self) -> usize {
        self.piece
    }

    /// Bytes that it takes on the host.
    pub(super) fn held_bytes(&self) -> usize {
        self.spiir.host_bytes().0 + self.finder.held_bytes() + SLOTS * self.piece * size_of::<f32>()
    }

    /// Makes pieces have at most so many samples.
    pub(super) fn limit(&mut self, samples: usize) {
        self.piece = self.piece.min(samples.max(1));
    }

    /// Samples that the filters wait for, and the search for peaks.
    pub(super) fn latencies(&self) -> (usize, usize) {
        (self.spiir.plan().latency(), self.finder.latency())
    }

    /// Queues whitened samples, at most a piece; gives the number of ratios that they bring.
    pub(super) fn filter(&mut self, samples: &[f32]) -> Result<usize> {
        check_length("samples of a piece", samples.len().min(self.piece), samples.len())?;
        if samples.is_empty() {
            return Ok(0);
        }
        let mut filling = self.inbox.present();
        filling.whole()?[..samples.len()].copy_from_slice(samples);
        filling.send(samples.len())?;
        let (input, _) = self.inbox.turn(&self.stream)?;
        let (count, piece) = (samples.len(), self.piece);
        let output = (&mut self.z, 0, piece);
        let produced = self.spiir.enqueue((input, 0), count, output, &self.stream)?.produced;
        self.inbox.release(&self.stream)?;
        self.taken += count as u64;
        Ok(produced)
    }

    /// Queues zeros behind the stream's end; gives the number of ratios that they bring, 0 at the end.
    pub(super) fn filter_end(&mut self) -> Result<usize> {
        let end = *self.end.get_or_insert(self.taken + self.spiir.plan().latency() as u64);
        let mut produced = 0;
        while produced == 0 && self.taken < end {
            let zeros = vec![0.0; (end - self.taken).min(self.piece as u64) as usize];
            produced = self.filter(&zeros)?;
        }
        Ok(produced)
    }

    /// Queues the search of the piece's first `valid.len()` ratios.
    pub(super) fn find(&mut self, valid: &[bool], triggers: &mut Vec<Trigger>) -> Result<()> {
        let rows = (self.piece, valid.len());
        self.finder.enqueue(&self.z, rows, valid, &self.stream, triggers)
    }

    /// Waits for all triggers that are certain by now.
    pub(super) fn settle(&mut self, triggers: &mut Vec<Trigger>) -> Result<()> {
        self.finder.collect(triggers)
    }

    /// Saves what is kept of a stream that has not ended; all triggers that are certain by now were settled before.
    pub(super) fn save(&self, to: &mut Saving) -> Result<bool> {
        let is_whole = self.spiir.save(to)?;
        self.finder.save(to)?;
        Ok(is_whole)
    }

    /// Goes on where such work was saved; gives the samples whitened and filtered by then.
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
