//! FX correlator of an antenna array: voltages to visibilities.
//!
//! Invariant: visibilities depend on the recordings and the options only: not on the number of threads, and on the gulp
//! only if a GPU may round floats.

mod antenna;
mod device;
mod device_blocks;
mod device_messages;
mod divided;
mod division;
mod f_engine;
mod messages;
mod options;
mod peers;
mod reading;
mod recordings;
mod remote;
mod setup;
mod window;
mod write;
mod x_engine;

pub use crate::pipeline::exchange::{EarlyEnd, Exchange, MAX_RANKS, Ranks};
use divided::{Divided, Made};
use f_engine::{Counts, FEngine};
use options::Request;
pub use options::{
    ArrayHeader, BankHeader, Baselines, CorrelateOptions, Gains, Integration, Missing, PhaseCentre,
};
pub use recordings::ArrayInput;
use recordings::{Baseline, Tracking, later};
pub use remote::RemoteRecording;
use setup::{Built, build};
pub use write::{Labels, WriteReport, history, write_uvh5};
use x_engine::{Readout, Scales, XEngine};

use crate::backend::Backend;
use crate::error::{Error, Result};
use crate::geometry::{Antenna, Array, DelayPolynomial, Direction, Sky};

/// FX correlator for the recordings of an array's antennas; returns one integration per call.
///
/// | step         | does                                                                                |
/// |--------------|-------------------------------------------------------------------------------------|
/// | whole delay  | reads each antenna's samples `round(delay / tsamp)` later                           |
/// | filter bank  | channelizes recorded channels, unless they are already channelized                  |
/// | alignment    | corrects the phase of the residual delay in each channel, requantizes               |
/// | corner turn  | transposes spectra into the order of the X-engine                                   |
/// | X-engine     | multiplies all pairs of antennas and accumulates                                    |
/// | readout      | divides by internal gains, averages channels, sorts them by sky frequency           |
///
/// Spectrum numbers count from the first sample that all recordings share (within `time_range`). Spectrum `s` covers
/// samples `s hop` to `s hop + span` of the reference point, and for each antenna the samples of the same wavefront.
/// A spectrum is invalid if a sample under its window is flagged or not finite, or if the delay moves its window
/// outside the recording. Sums and counts exclude invalid spectra.
///
/// # Numerics
/// Already channelized voltages without delays or gains give exact integer sums of products. All others are computed
/// in single precision up to requantization and are exact after it. Results have the same bits for any `gulp` and any
/// number of threads at one SIMD level, unless a GPU may round floats ([`crate::correlate::Precision`]).
/// # Source
/// Thompson, Moran & Swenson 2017, chapters 4 and 9 (FX correlators, delay tracking).
pub struct ArrayCorrelator {
    header: ArrayHeader,
    tracking: Tracking,
    f_engine: FEngine,
    x_engine: XEngine,
    readout: Readout,
    baselines: Vec<Baseline>,
    /// None in a single process.
    divided: Option<Divided>,
    /// Number of the next spectrum.
    next: u64,
    /// Integrations returned so far.
    number: u64,
    /// Integrations after which the current part ends.
    end: u64,
    /// State at the start of the current part.
    part: Start,
    watch: Option<Watch>,
    /// Whether an error ended the stream before the end of the data.
    ended: bool,
    /// Error to return by the next call.
    fault: Option<Error>,
}

/// State at the start of a part.
#[derive(Clone, Debug, Default)]
struct Start {
    /// Number of the first spectrum, and of the first integration.
    spectrum: u64,
    number: u64,
    /// Spectra that the F-engine had computed.
    made: u64,
    counts: Counts,
}

/// Progress callback: receives the number of correlated spectra; returns false to stop the run.
pub type Watch = Box<dyn FnMut(u64) -> bool + Send>;

impl std::fmt::Debug for ArrayCorrelator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ArrayCorrelator").field("header", &self.header).finish_non_exhaustive()
    }
}

impl ArrayCorrelator {
    /// Builds the correlator of an array for its recordings.
    ///
    /// # Errors
    /// [`crate::Error::Parameter`] naming the option that is out of range, or both files and their difference;
    /// [`crate::Error::Unavailable`] when memory does not suffice; errors of the geometry and the sources.
    pub fn new(
        array: &Array,
        inputs: Vec<ArrayInput>,
        options: &CorrelateOptions,
        backend: &Backend,
    ) -> Result<Self> {
        Self::built(Request { array, options, delays: None, backend }, inputs, None)
    }

    /// Like [`Self::new`], for one of several ranks, which have the same arguments, but for the device, the threads, and recordings
    /// that a rank need not read ([`RemoteRecording`]). Each computes the spectra of its share of the antennas and correlates its share
    /// of the channels; the ranks exchange spectra through host memory. Spectra are computed on the ranks' GPUs if each rank has one
    /// with memory for them, else on the hosts. Rank 0 returns the integrations, with the bits of a single process; those of the other
    /// ranks are empty. All must ask for the same integrations.
    ///
    /// An error or a stop at any rank ends the run of all of them, after the spectra before it; if a GPU fails, after the integrations
    /// before it.
    ///
    /// # Errors
    /// As [`Self::new`]; [`crate::Error::Parameter`] for more ranks than antennas or channels;
    /// [`crate::Error::Unavailable`] that names a rank that has failed; errors of the exchange.
    pub fn divided(
        array: &Array,
        inputs: Vec<ArrayInput>,
        options: &CorrelateOptions,
        backend: &Backend,
        ranks: Ranks,
    ) -> Result<Self> {
        Self::built(Request { array, options, delays: None, backend }, inputs, Some(ranks))
    }

    /// Like [`Self::new`], with the caller's delays instead of those of the phase centre: one polynomial per antenna
    /// of the array, in seconds since the polynomial's start.
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
        Self::built(Request { array, options, delays: Some(delays), backend }, inputs, None)
    }

    fn built(request: Request<'_>, inputs: Vec<ArrayInput>, ranks: Option<Ranks>) -> Result<Self> {
        let Built { header, tracking, f_engine, x_engine, readout, baselines, divided } =
            build(request, inputs, ranks)?;
        Ok(Self {
            header,
            tracking,
            f_engine,
            x_engine,
            readout,
            baselines,
            divided,
            next: 0,
            number: 0,
            end: u64::MAX,
            part: Start::default(),
            watch: None,
            ended: false,
            fault: None,
        })
    }

    /// Returns the properties known before the first integration. The numbers of spectra and integrations of a live observation are
    /// upper bounds until it ends.
    pub fn header(&self) -> &ArrayHeader {
        &self.header
    }

    /// Begins a part of at most `integrations` integrations, after which [`Self::next_integration`] returns false until the next
    /// part begins. Summaries are those of the part.
    pub fn begin_part(&mut self, integrations: u64) {
        let f_engine = &self.f_engine;
        self.end = self.number.saturating_add(integrations);
        self.part = Start {
            spectrum: self.next,
            number: self.number,
            made: f_engine.made.end,
            counts: self.counts(),
        };
    }

    /// Returns the properties of the current part: those of all integrations, but for the start and the numbers of spectra and
    /// integrations.
    ///
    /// # Errors
    /// As [`crate::geometry::plus_elapsed_s`].
    pub fn part_header(&self) -> Result<ArrayHeader> {
        let (header, part) = (self.header.clone(), &self.part);
        let most = (self.end - part.number).saturating_mul(header.integration_spectra);
        let spectra = header.spectra.saturating_sub(part.spectrum).min(most);
        Ok(ArrayHeader {
            start: later(header.start, part.spectrum as f64 * header.spectrum_s)?,
            spectra,
            integrations: spectra.div_ceil(header.integration_spectra),
            ..header
        })
    }

    /// Returns the source geometry of the array; `None` if the recordings do not state their start.
    pub fn sky(&self) -> Option<&Sky> {
        self.tracking.sky.as_ref()
    }

    /// Returns the tracked direction.
    pub fn direction(&self) -> Option<Direction> {
        self.tracking.direction
    }

    /// Sets a callback that receives the progress many times per integration.
    pub fn watched_by(&mut self, watch: Watch) {
        self.watch = Some(watch);
    }

    /// Describes a truncated recording that is used to its end, if any.
    pub fn cut(&self) -> Option<String> {
        self.f_engine.cut()
    }

    /// Computes the next integration; returns false at the end of the data.
    ///
    /// After an error or a stop within an integration, this call returns the spectra before it as a last, shorter
    /// integration, and the next call returns the error.
    ///
    /// # Errors
    /// Errors of a source or a device; [`Error::stopped`] when the callback stops the run.
    pub fn next_integration(&mut self, integration: &mut Integration) -> Result<bool> {
        if let Some(fault) = self.fault.take() {
            return Err(fault);
        }
        let header = &self.header;
        if self.ended || self.next >= header.spectra || self.number >= self.end {
            return Ok(false);
        }
        let first = self.next;
        let end = header.spectra.min(first + header.integration_spectra);
        if let Err(fault) = self.sum(end) {
            self.ended = true;
            // A failed device cannot return its sums.
            let is_read = self.next > first && self.read(first, integration).is_ok();
            // All ranks have agreed on this end, so that none waits for one that still writes.
            self.divided.iter_mut().for_each(Divided::finish_all);
            if !is_read {
                return Err(fault);
            }
            self.fault = Some(fault);
            return Ok(true);
        }
        if self.next == first {
            // A live observation has ended with the last integration.
            self.finish();
            return Ok(false);
        }
        self.read(first, integration)?;
        if self.next >= self.header.spectra {
            self.finish();
        }
        Ok(true)
    }

    /// Computes this rank's share of all integrations; for ranks other than 0.
    ///
    /// # Errors
    /// As [`Self::next_integration`].
    pub fn assist(&mut self) -> Result<()> {
        let mut integration = Integration::new();
        while self.next_integration(&mut integration)? {}
        Ok(())
    }

    /// Ends a divided correlation, once all ranks do, and returns the ranks for another one; `None` in a single process.
    ///
    /// # Errors
    /// As [`Self::divided`], for a rank that has failed and for the exchange.
    pub fn into_ranks(self) -> Result<Option<Ranks>> {
        self.divided.map(Divided::pass_on).transpose()
    }

    /// Declares that no rank expects another call of this one.
    fn finish(&mut self) {
        if let Some(divided) = &mut self.divided {
            divided.finish();
        }
    }

    /// Accumulates spectra up to number `end`, or to the end of a live observation.
    fn sum(&mut self, end: u64) -> Result<()> {
        while self.next < end.min(self.header.spectra) {
            if self.available().is_none() {
                if !self.supply(end)? {
                    continue;
                }
                self.check_watch()?;
            }
            let last = end.min(self.available().unwrap_or(self.next));
            if let Err(fault) = self.correlate(last) {
                // The sums are lost, so this rank can take part in no readout.
                if let Some(divided) = &mut self.divided {
                    divided.leave();
                }
                return Err(fault);
            }
            self.next = last;
            self.check_watch()?;
        }
        Ok(())
    }

    /// Returns the end of the available spectra, if there are any.
    fn available(&self) -> Option<u64> {
        let made = &self.f_engine.made;
        match &self.divided {
            Some(divided) => divided.available(self.next),
            None => made.contains(&self.next).then_some(made.end),
        }
    }

    /// Makes spectra available; returns false, without any, once a live observation has ended.
    fn supply(&mut self, end: u64) -> Result<bool> {
        if self.divided.is_some() {
            return self.exchange();
        }
        let total = self.make(self.next, end)?;
        total.map_or(Ok(true), |total| {
            self.end_at(total);
            Ok(false)
        })
    }

    /// Makes gulps for other ranks, and waits for one of all antennas; returns false once a live observation has ended.
    fn exchange(&mut self) -> Result<bool> {
        loop {
            self.settle()?;
            let spectra = self.header.spectra;
            let Some(divided) = &mut self.divided else { return Ok(false) };
            let Some(first) = divided.next_gulp(spectra) else { break };
            let made = if divided.is_stopping() {
                Made::Failed(Error::stopped("voltages"))
            } else {
                let most = (spectra - first).min(self.f_engine.capacity as u64);
                let prepared = divided.prepare(&mut self.f_engine, most as usize);
                match prepared.and_then(|()| self.make(first, spectra)) {
                    Ok(None) => Made::Spectra,
                    Ok(Some(total)) => Made::Ended(total),
                    Err(fault) => Made::Failed(fault),
                }
            };
            let Some(divided) = &mut self.divided else { return Ok(false) };
            divided.send(&mut self.f_engine, made)?;
            if divided.is_full() {
                break;
            }
        }
        self.divided.as_mut().map_or(Ok(false), Divided::receive)
    }

    /// Waits until all ranks have agreed on the length of the last gulp.
    fn settle(&mut self) -> Result<()> {
        let Self { divided, f_engine, header, .. } = self;
        let Some(divided) = divided else { return Ok(()) };
        if let Some(total) = divided.settle(f_engine, header.spectra)? {
            self.end_at(total);
        }
        Ok(())
    }

    /// Shortens a live observation to its number of spectra.
    fn end_at(&mut self, spectra: u64) {
        let header = &mut self.header;
        header.spectra = header.spectra.min(spectra);
        header.integrations = header.spectra.div_ceil(header.integration_spectra);
    }

    /// Multiplies and accumulates the available spectra before number `last`.
    fn correlate(&mut self, last: u64) -> Result<()> {
        let (times, capacity) = ((last - self.next) as usize, self.f_engine.capacity);
        let supply = match &mut self.divided {
            Some(divided) => divided.supply(self.next, times)?,
            None => self.f_engine.supply(self.next, times)?,
        };
        self.x_engine.run(supply, times, capacity)
    }

    /// Computes the spectra from number `first` on; if a source fails, only those that its samples allow. Returns the number of
    /// all spectra, without making any, once a live observation has ended.
    fn make(&mut self, first: u64, end: u64) -> Result<Option<u64>> {
        let end = end.min(self.header.spectra);
        let all = if self.f_engine.ends_with_integrations() { end } else { self.header.spectra };
        let mut last = all.min(first + self.f_engine.capacity as u64);
        while !self.f_engine.make(first..last, self.following(last, end))? {
            if let Some(times) = self.f_engine.take_times() {
                return Ok(Some(self.f_engine.framing().spectra(times).max(first)));
            }
            if last == first + 1 {
                let ended = || Error::stopped("voltages");
                return Err(self.f_engine.take_fault().unwrap_or_else(ended));
            }
            last = first + (last - first) / 2;
        }
        Ok(None)
    }

    /// Returns the number of spectra that are computed together after those before `last`, in an integration that ends
    /// at spectrum `end`.
    fn following(&self, last: u64, end: u64) -> u64 {
        let Self { header, f_engine, .. } = self;
        let end = match f_engine.ends_with_integrations() {
            true if last >= end => header.spectra.min(last + header.integration_spectra),
            true => end,
            false => header.spectra,
        };
        (end - last).min(f_engine.capacity as u64)
    }

    fn check_watch(&mut self) -> Result<()> {
        let next = self.next;
        if self.watch.as_mut().is_none_or(|watch| watch(next)) {
            return Ok(());
        }
        // Ranks stop together, at their next gulp.
        self.divided.as_mut().map_or_else(
            || Err(Error::stopped("voltages")),
            |divided| {
                divided.stop();
                Ok(())
            },
        )
    }

    /// Reads out the integration that begins with spectrum `first`.
    fn read(&mut self, first: u64, integration: &mut Integration) -> Result<()> {
        self.settle()?;
        let Self { header, f_engine, x_engine, readout, baselines, divided, .. } = self;
        match divided {
            Some(divided) => {
                divided.read(f_engine, x_engine, readout, baselines, integration)?;
                x_engine.elapsed_s[0] += divided.take_elapsed_s();
            }
            None => {
                let plan = x_engine.plan().clone();
                let all = 0..plan.channels();
                let inverse = (!f_engine.is_unit()).then(|| f_engine.inverse_gains(&[all]));
                x_engine.read(&Scales::new(&plan, readout, inverse), baselines, integration)?;
            }
        }
        integration.number = self.number;
        integration.first = first;
        integration.spectra = self.next - first;
        let length_s = (integration.spectra - 1) as f64 * header.spectrum_s + header.window_s;
        let middle_s = first as f64 * header.spectrum_s + 0.5 * length_s;
        integration.centre = later(header.start, middle_s)?;
        self.number += 1;
        Ok(())
    }

    /// Returns the counts of all antennas and recordings.
    fn counts(&self) -> Counts {
        self.divided.as_ref().map_or_else(|| self.f_engine.counts(), |own| own.counts().clone())
    }

    /// Returns the summary of the work so far, or of the current part.
    pub fn summary(&self) -> Summary {
        self.summary_of(self.next)
    }

    /// Returns the summary of the current part, if only the spectra before number `end` are used.
    fn summary_of(&self, end: u64) -> Summary {
        let Self { header, tracking, f_engine, x_engine, part, .. } = self;
        let spectra = end.saturating_sub(part.spectrum);
        let data_s = spectra as f64 * header.spectrum_s;
        let names = header.array.antennas.iter().zip(&header.present);
        let missing = names.filter(|(_, present)| !**present).map(|(own, _)| own.name.clone());
        let counts = self.counts();
        let not_finite = counts.not_finite.iter().sum::<u64>();
        Summary {
            integrations: self.number - part.number,
            spectra,
            data_s,
            samples: (data_s * header.bank.sample_rate_hz).round() as u64,
            made_on_device: f_engine.is_on_device(),
            not_on_device: f_engine.parts.not_on_device.clone(),
            steps: steps(f_engine, x_engine),
            antennas: antennas(header, f_engine, &counts, part),
            missing: missing.collect(),
            not_finite: not_finite - part.counts.not_finite.iter().sum::<u64>(),
            dut1_s: header.dut1_s,
            altitudes_deg: tracking.altitudes_deg(),
            lowest_altitude_deg: tracking.lowest_deg(),
        }
    }
}

/// Summary of a correlation.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// Integrations returned.
    pub integrations: u64,
    /// Spectra correlated.
    pub spectra: u64,
    /// Length of the data in seconds.
    pub data_s: f64,
    /// Recorded samples of each stream in `data_s`.
    pub samples: u64,
    /// Whether the GPU computed the spectra in addition to multiplying them.
    pub made_on_device: bool,
    /// Reason why the host computed the spectra although a GPU multiplied them; `None` if it did not.
    pub not_on_device: Option<String>,
    /// Seconds of each step.
    pub steps: Steps,
    /// Recorded antennas, by ascending array number.
    pub antennas: Vec<AntennaSummary>,
    /// Names of antennas without a recording.
    pub missing: Vec<String>,
    /// Recorded samples that were not finite numbers; spectra that contain them are invalid.
    pub not_finite: u64,
    /// UT1 - UTC at the start in seconds.
    pub dut1_s: f64,
    /// Altitude of the tracked source at the start and at the end in degrees.
    pub altitudes_deg: Option<(f64, f64)>,
    /// Lowest altitude of the source in degrees, sampled at least every ten minutes.
    pub lowest_altitude_deg: Option<f64>,
}

/// Seconds per step. Filter bank and alignment run concurrently on several threads, which the next samples are read
/// beside; their values and that of reading, the time spent waiting for samples, are shares of their common elapsed time.
///
/// With a GPU, the values are host time: reading includes waiting for the GPU to accept samples, the X-engine is the
/// time to enqueue its work, and the readout waits for all enqueued work.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Steps {
    /// Reading.
    pub read_s: f64,
    /// Filter banks.
    pub channelize_s: f64,
    /// Delay phases, gains and requantization.
    pub align_s: f64,
    /// Corner turn; with ranks also their messages, and waiting for them.
    pub turn_s: f64,
    /// X-engine.
    pub correlate_s: f64,
    /// Readout of the X-engine.
    pub output_s: f64,
}

/// Summary of one antenna.
#[derive(Clone, Debug, PartialEq)]
pub struct AntennaSummary {
    /// Name of the antenna.
    pub name: String,
    /// Fraction of its samples that saturated in requantization.
    pub saturated: f64,
    /// Fraction of its spectra that are invalid.
    pub masked: f64,
}

impl Steps {
    /// Returns the sum of all steps.
    pub fn total_s(&self) -> f64 {
        self.read_s
            + self.channelize_s
            + self.align_s
            + self.turn_s
            + self.correlate_s
            + self.output_s
    }
}

impl Summary {
    /// Returns whether the source is below the horizon at any of the altitude samples, at most ten minutes apart.
    pub fn is_below_horizon(&self) -> bool {
        self.lowest_altitude_deg.is_some_and(|lowest| lowest < 0.0)
    }

    /// Returns the recorded samples of each stream (antenna, polarization, recorded channel) per second, in millions.
    pub fn msamples_per_s(&self) -> f64 {
        self.samples as f64 * 1e-6 / self.steps.total_s().max(1e-9)
    }
}

fn steps(f_engine: &FEngine, x_engine: &XEngine) -> Steps {
    let read = f_engine.parts.sources.waited_s;
    let elapsed = f_engine.parts.antennas.iter().map(|antenna| antenna.elapsed);
    let (mut channelize, mut align) = (0.0, 0.0);
    for own in elapsed {
        channelize += own.channelize_s;
        align += own.align_s;
    }
    let share = f_engine.elapsed_s / (read + channelize + align).max(1e-12);
    let [turn_s, correlate_s, output_s] = x_engine.elapsed_s;
    Steps {
        read_s: read * share,
        channelize_s: channelize * share,
        align_s: align * share,
        turn_s,
        correlate_s,
        output_s,
    }
}

fn antennas(
    header: &ArrayHeader,
    f_engine: &FEngine,
    counts: &Counts,
    part: &Start,
) -> Vec<AntennaSummary> {
    let made = (f_engine.made.end - part.made) as f64;
    let since = |now: &[u64], before: &[u64]| -> Vec<u64> {
        let before = before.iter().copied().chain(std::iter::repeat(0));
        now.iter().zip(before).map(|(now, before)| now - before).collect()
    };
    let masked = since(&counts.masked, &part.counts.masked);
    let counts = masked.into_iter().zip(since(&counts.saturated, &part.counts.saturated));
    let channels = &f_engine.parts.channels;
    let elements = header.polarizations * channels.order.len();
    let present = header.array.antennas.iter().zip(&header.present).filter(|(_, own)| **own);
    let of = |((antenna, _), (masked, saturated)): ((&Antenna, &bool), (u64, u64))| {
        let fraction = |count: u64, each: usize| count as f64 / (made * each as f64).max(1.0);
        AntennaSummary {
            name: antenna.name.clone(),
            saturated: fraction(saturated, elements),
            masked: fraction(masked, channels.coarse),
        }
    };
    present.zip(counts).map(of).collect()
}
