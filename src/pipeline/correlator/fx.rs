//! The correlator of an array: from recordings to integrations.

use super::baselines::Baseline;
use super::cross::Cross;
use super::front::Front;
use super::header::ArrayHeader;
use super::inputs::ArrayInput;
use super::integration::Integration;
use super::options::CorrelateOptions;
use super::setup::{Asked, Built, build};
use super::summary::Summary;
use super::tracking::{Tracking, later};
use crate::backend::Backend;
use crate::error::{Error, Result};
use crate::geometry::{Array, DelayPolynomial, Direction, Sky};

/// Correlates the recordings of an array's antennas, integration by integration.
///
/// | step         | does                                                                                |
/// |--------------|-------------------------------------------------------------------------------------|
/// | whole delay  | takes each antenna's samples `round(delay / tsamp)` later                           |
/// | filter bank  | divides recorded channels into channels, unless that was done before                |
/// | alignment    | turns each channel by what is left of the delay, rounds to integers                 |
/// | corner turn  | brings spectra into the order of the X-engine                                       |
/// | X-engine     | multiplies every antenna with every other, and sums                                 |
/// | reading out  | takes gains out again, averages channels, sorts them by sky frequency               |
///
/// Spectra are counted from the first sample that all recordings have (of `time_range`); spectrum `s` has the
/// reference point's samples `s hop` to `s hop + span`, and every antenna's that the wave reached at the same
/// phase. Spectra with samples under their window that are flagged or not finite, and those that a delay moves
/// over an end of the recording, are not valid: they are missing from sums and counts.
///
/// # Numerics
/// Voltages that are channelized already, without delays or gains, give exact sums of products of integers.
/// All others are single precision up to rounding, and exact from there on. The same bits for any `gulp` and
/// any number of threads at one vector level, unless a GPU may round floats ([`crate::correlate::Precision`]).
/// # Source
/// Thompson, Moran & Swenson 2017, chapters 4 and 9 (FX correlators, delay tracking).
pub struct ArrayCorrelator {
    header: ArrayHeader,
    tracking: Tracking,
    front: Front,
    cross: Cross,
    baselines: Vec<Baseline>,
    /// The next spectrum.
    next: u64,
    /// Integrations so far.
    number: u64,
    watch: Option<Watch>,
    /// Whether a fault ended the work before the data do.
    ended: bool,
    /// That fault, until it is returned.
    fault: Option<Error>,
}

/// Is shown how many spectra were correlated, and stops the work by returning false.
pub type Watch = Box<dyn FnMut(u64) -> bool + Send>;

impl std::fmt::Debug for ArrayCorrelator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ArrayCorrelator").field("header", &self.header).finish_non_exhaustive()
    }
}

impl ArrayCorrelator {
    /// Binds recordings to an array.
    ///
    /// # Errors
    /// [`crate::Error::Parameter`] naming the option that is out of range, or both files and what differs
    /// between them; [`crate::Error::Unavailable`] when all of it has no room in memory; whatever geometry and the sources report.
    pub fn new(
        array: &Array,
        inputs: Vec<ArrayInput>,
        options: &CorrelateOptions,
        backend: &Backend,
    ) -> Result<Self> {
        Self::built(Asked { array, options, delays: None, backend }, inputs)
    }

    /// As [`Self::new`], with delays of one's own in the place of those of the phase centre: one polynomial
    /// an antenna of the array, of the seconds since its start.
    ///
    /// # Errors
    /// As [`Self::new`]; [`crate::Error::Shape`] for another number of polynomials.
    pub fn with_delays(
        array: &Array,
        inputs: Vec<ArrayInput>,
        delays: &[DelayPolynomial],
        options: &CorrelateOptions,
        backend: &Backend,
    ) -> Result<Self> {
        Self::built(Asked { array, options, delays: Some(delays), backend }, inputs)
    }

    fn built(asked: Asked<'_>, inputs: Vec<ArrayInput>) -> Result<Self> {
        let Built { header, tracking, front, cross, baselines } = build(asked, inputs)?;
        Ok(Self {
            header,
            tracking,
            front,
            cross,
            baselines,
            next: 0,
            number: 0,
            watch: None,
            ended: false,
            fault: None,
        })
    }

    /// What is known before the first integration.
    pub fn header(&self) -> &ArrayHeader {
        &self.header
    }

    /// The sky over the array; none where the recordings don't say their start.
    pub fn sky(&self) -> Option<&Sky> {
        self.tracking.sky()
    }

    /// What is tracked.
    pub fn direction(&self) -> Option<Direction> {
        self.tracking.direction()
    }

    /// Shows `watch` how far the work is, many times an integration.
    pub fn watched_by(&mut self, watch: Watch) {
        self.watch = Some(watch);
    }

    /// Says what a recording lacks that is cut short and used to its end.
    pub fn cut(&self) -> Option<String> {
        self.front.cut()
    }

    /// Fills an integration with the next one; false at the end of the data.
    ///
    /// An error or a stop within an integration comes after the spectra before it: they are a last, shorter
    /// integration, and the next call returns the error.
    ///
    /// # Errors
    /// Whatever a source or a device reports; [`Error::stopped`] when it is stopped.
    pub fn next_integration(&mut self, integration: &mut Integration) -> Result<bool> {
        if let Some(fault) = self.fault.take() {
            return Err(fault);
        }
        let header = &self.header;
        if self.ended || self.next >= header.spectra {
            return Ok(false);
        }
        let first = self.next;
        let end = header.spectra.min(first + header.integration_spectra);
        if let Err(fault) = self.sum(end) {
            self.ended = true;
            // A device that has failed gives no sums either.
            if self.next == first || self.read(first, integration).is_err() {
                return Err(fault);
            }
            self.fault = Some(fault);
            return Ok(true);
        }
        self.read(first, integration)?;
        Ok(true)
    }

    /// Sums spectra up to number `end`.
    fn sum(&mut self, end: u64) -> Result<()> {
        while self.next < end {
            if !self.front.made().contains(&self.next) {
                self.make(end)?;
                self.check_watch()?;
            }
            let last = end.min(self.front.made().end);
            self.cross.run(&mut self.front, self.next, (last - self.next) as usize)?;
            self.next = last;
            self.check_watch()?;
        }
        Ok(())
    }

    /// Makes the next spectra; where a source fails, as many as there are samples for.
    fn make(&mut self, end: u64) -> Result<()> {
        let all = if self.front.ends_with_integrations() { end } else { self.header.spectra };
        let mut last = all.min(self.next + self.front.capacity() as u64);
        while !self.front.make(self.next..last)? {
            if last == self.next + 1 {
                let ended = || Error::stopped("voltages");
                return Err(self.front.take_fault().unwrap_or_else(ended));
            }
            last = self.next + (last - self.next) / 2;
        }
        Ok(())
    }

    fn check_watch(&mut self) -> Result<()> {
        let next = self.next;
        match self.watch.as_mut().is_some_and(|watch| !watch(next)) {
            true => Err(Error::stopped("voltages")),
            false => Ok(()),
        }
    }

    /// Reads out the integration that begins with spectrum `first`.
    fn read(&mut self, first: u64, integration: &mut Integration) -> Result<()> {
        let header = &self.header;
        self.cross.read(&self.front, &self.baselines, integration)?;
        integration.number = self.number;
        integration.first = first;
        integration.spectra = self.next - first;
        let length_s = (integration.spectra - 1) as f64 * header.spectrum_s + header.window_s;
        let middle_s = first as f64 * header.spectrum_s + 0.5 * length_s;
        integration.centre = later(header.start, middle_s)?;
        self.number += 1;
        Ok(())
    }

    /// What was done so far.
    pub fn summary(&self) -> Summary {
        Summary::new(
            (&self.header, &self.tracking),
            &self.front,
            &self.cross,
            (self.next, self.number),
        )
    }
}
