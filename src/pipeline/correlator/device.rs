//! F-engine of some antennas on a GPU: copies voltages to the device; spectra stay there for the X-engine.
//!
//! Invariant: a spectrum's bits depend on its number and on the kind of device, never on the division into gulps or of the antennas
//! among GPUs.

use std::ops::Range;

use num_complex::Complex;

use super::antenna::AntennaInput;
use super::recordings::{Channels, Delays};
use super::window::Window;
use crate::backend::Backend;
use crate::backend::cuda::{self, Buffer, Device, Event, Stream, UploadRing};
use crate::backend::threads::Threads;
use crate::channelize::{Channelizer, DeviceVoltages, Input};
use crate::delay::{DelayCorrector, DeviceDelays, DeviceSamples, Form, Natural};
use crate::error::{Error, Result};
use crate::voltage::VoltageEncoding;
use crate::{channelize, correlate, delay};

/// Number of double-buffer slots.
pub(super) const SLOTS: usize = 2;

/// Alignment of an input's rows: one memory line, in bytes.
const LINE: usize = 128;

/// Sample format of an antenna's recording.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct SampleFormat {
    pub(super) encoding: VoltageEncoding,
    /// Factor from recorded values to voltages.
    pub(super) scale: f64,
}

/// Configuration of the F-engines of all antennas.
pub(super) struct DeviceConfig<'a> {
    pub(super) plan: &'a correlate::Plan,
    pub(super) channels: &'a Channels,
    /// Filter bank of one antenna; none if the voltages are already channelized.
    pub(super) bank: Option<&'a channelize::Plan>,
    /// Whether there are no delays.
    pub(super) fixed: bool,
    /// Whether recorded integers are multiplied unchanged.
    pub(super) direct: bool,
    /// Sample formats of all correlated antennas, by ascending array number.
    pub(super) formats: &'a [SampleFormat],
    /// Spectra computed per call.
    pub(super) capacity: usize,
}

/// Returns the bytes from one input to the next, in rows for `capacity` spectra.
pub(super) fn input_stride(plan: &correlate::Plan, capacity: usize) -> usize {
    plan.encoding().bytes(capacity).next_multiple_of(LINE)
}

/// Antennas of an F-engine, the windows of their recordings, and the model of their delays.
#[derive(Clone, Copy)]
pub(super) struct HostSamples<'a> {
    pub(super) antennas: &'a [AntennaInput],
    pub(super) windows: &'a [Window],
    pub(super) delays: &'a Delays,
}

/// F-engine of a range of the antennas on a GPU.
pub(super) struct DeviceFEngine {
    pub(super) work: Stream,
    /// Indices among all correlated antennas.
    pub(super) antennas: Range<usize>,
    /// Groups of antennas with the same sample format.
    groups: Vec<Group>,
    /// Axes antenna (by group), time, (total delay, residual delay); none without phase rotation.
    delays: Option<UploadRing<f64>>,
    /// Whether `delays` holds the delays of the current spectra.
    delays_held: bool,
    /// Corrected spectra of the antennas; axes channel, input, time.
    pub(super) natural: Buffer<u8>,
    inputs: usize,
    /// Completion of the corrected spectra.
    pub(super) corrected: Event,
    /// Range of available spectra.
    made: Range<u64>,
}

impl DeviceFEngine {
    /// Lists the kernels of a configuration.
    ///
    /// # Errors
    /// [`crate::Error::Parameter`] as [`DeviceFEngine::new`].
    pub(super) fn sources(
        device: &Device,
        config: &DeviceConfig<'_>,
        antennas: &Range<usize>,
    ) -> Result<Vec<cuda::Source>> {
        let mut sources = Vec::new();
        for (format, own) in antenna_groups(&config.formats[antennas.clone()]) {
            let GroupPlans { delays, bank, .. } = GroupPlans::new(config, format, &own)?;
            sources.extend(bank.iter().flat_map(|plan| channelize::sources(plan, device)));
            sources.push(delay::source(&delays));
        }
        Ok(sources)
    }

    /// Builds the F-engine of `antennas`, a range of all correlated ones.
    ///
    /// # Errors
    /// [`crate::Error::Unavailable`] without memory, NVRTC or cuFFT; [`crate::Error::Device`] when the driver
    /// fails.
    pub(super) fn new(
        device: &Device,
        config: &DeviceConfig<'_>,
        antennas: Range<usize>,
    ) -> Result<Self> {
        let plan = config.plan;
        let inputs = antennas.len() * plan.polarizations();
        let channel_bytes = inputs * input_stride(plan, config.capacity);
        let delays = match config.fixed {
            true => None,
            false => Some(UploadRing::new(device, 2 * antennas.len() * config.capacity, SLOTS)?),
        };
        let work = device.stream()?;
        let mut natural = device.buffer(plan.channels().saturating_mul(channel_bytes))?;
        // Initialized because the X-engine reads past the last time, although it does not use the values.
        let whole = 0..natural.len();
        work.fill(&mut natural, whole, 0)?;
        Ok(Self {
            work,
            natural,
            groups: Group::all(device, config, &config.formats[antennas.clone()])?,
            antennas,
            delays,
            delays_held: false,
            inputs,
            corrected: device.event()?,
            made: 0..0,
        })
    }

    /// Returns the F-engine's device.
    pub(super) fn device(&self) -> &Device {
        self.work.device()
    }

    /// Returns whether an X-engine call must start at the first available spectrum, because recorded voltages must
    /// begin at a multiple of 16 bytes.
    pub(super) fn is_recorded(&self) -> bool {
        self.groups.iter().any(Group::is_recorded)
    }

    /// Returns the saturated complex samples of each of its antennas; zeros for a device that has failed.
    pub(super) fn saturated(&self) -> Vec<u64> {
        let mut all = vec![0; self.antennas.len()];
        self.groups.iter().for_each(|group| group.add_saturated(&mut all));
        all
    }

    /// Enqueues the computation of the antennas' prepared spectra, after an attempt to measure their gains. The host
    /// samples may change after the return.
    ///
    /// # Errors
    /// Errors of the filter banks and of the delay correction.
    pub(super) fn make(
        &mut self,
        samples: HostSamples<'_>,
        spectra: Range<u64>,
        threads: &Threads,
    ) -> Result<()> {
        self.release()?;
        self.made = spectra.clone();
        let segments = segments(samples.antennas, &spectra);
        for group in &mut self.groups {
            group.settle(samples.antennas)?;
            group.make(samples, &segments, threads, &self.work)?;
        }
        self.send_delays(samples)
    }

    /// Releases the buffers of the previous spectra.
    fn release(&mut self) -> Result<()> {
        if let (Some(delays), true) = (&mut self.delays, self.delays_held) {
            delays.release(&self.work)?;
            self.delays_held = false;
        }
        self.groups.iter_mut().try_for_each(|group| group.release(&self.work))
    }

    fn send_delays(&mut self, samples: HostSamples<'_>) -> Result<()> {
        let Some(uploads) = &mut self.delays else { return Ok(()) };
        let times = (self.made.end - self.made.start) as usize;
        let mut slot = uploads.current();
        let rows = slot.host()?.chunks_exact_mut(2 * times);
        let order = self.groups.iter().flat_map(|group| &group.antennas);
        for (row, antenna) in rows.zip(order) {
            let delays = samples.antennas[*antenna].delays(samples.delays);
            for (pair, delay) in row.chunks_exact_mut(2).zip(delays) {
                pair.copy_from_slice(&[delay.total_s, delay.residual_s]);
            }
        }
        slot.send(2 * times * self.antennas.len())?;
        self.delays_held = true;
        Ok(())
    }

    /// Enqueues the delay correction of `times` spectra from number `first` on; `input_stride` is the bytes from one input to
    /// the next.
    ///
    /// # Errors
    /// Errors of the delay correction.
    pub(super) fn correct(&mut self, first: u64, times: usize, input_stride: usize) -> Result<()> {
        let stride = (self.made.end - self.made.start) as usize;
        let first = (first - self.made.start) as usize;
        let channel_stride = self.inputs * input_stride;
        let layout = Natural { first_byte: 0, channel_stride, input_stride };
        let delays = match &mut self.delays {
            Some(uploads) => Some(uploads.acquire(&self.work)?.0),
            None => None,
        };
        let mut row = 0;
        for group in &mut self.groups {
            let place = row * stride + first;
            let own = delays.map(|seconds| DeviceDelays { seconds, first: place, stride });
            group.correct(first, times, own, &mut self.natural, layout, &self.work)?;
            row += group.antennas.len();
        }
        Ok(())
    }
}

/// Splits `spectra` into segments within which no antenna's shift changes.
fn segments(antennas: &[AntennaInput], spectra: &Range<u64>) -> Vec<Range<u64>> {
    let starts = antennas.iter().flat_map(|antenna| &antenna.runs);
    let mut ends: Vec<u64> = starts.map(|run| run.spectra.start).chain([spectra.end]).collect();
    ends.sort_unstable();
    ends.dedup();
    ends.windows(2).map(|pair| pair[0]..pair[1]).collect()
}

/// Alignment of streams in bytes.
const ALIGNED: usize = 16;

/// Bytes gathered before each host-to-device copy.
const PIECE_BYTES: usize = 16 << 20;

/// Antennas of one sample format.
struct Group {
    /// Indices among the F-engine's antennas.
    antennas: Vec<usize>,
    format: SampleFormat,
    /// Streams per antenna.
    streams: usize,
    corrector: DelayCorrector,
    /// Whether the device has each antenna's gains.
    settled: Vec<bool>,
    uploads: UploadRing,
    source: Source,
}

/// Input of the delay correction.
enum Source {
    /// Spectra of a filter bank.
    Bank(Box<Bank>),
    /// Recorded voltages, while the device holds them.
    Recorded(Option<DeviceSamples>),
}

struct Bank {
    channelizer: Channelizer,
    spectra: Buffer<u8>,
    /// Next spectrum of the stream and the antennas' last shifts; the filter bank continues if both match.
    next: Option<(u64, Vec<Option<i64>>)>,
}

/// Returns the sample formats of antennas, and the antennas of each.
fn antenna_groups(formats: &[SampleFormat]) -> Vec<(SampleFormat, Vec<usize>)> {
    let mut groups: Vec<(SampleFormat, Vec<usize>)> = Vec::new();
    for (antenna, format) in formats.iter().enumerate() {
        match groups.iter_mut().find(|(other, _)| other == format) {
            Some((_, antennas)) => antennas.push(antenna),
            None => groups.push((*format, vec![antenna])),
        }
    }
    groups
}

/// Plans of a group's stages.
struct GroupPlans {
    form: Form,
    delays: delay::Plan,
    /// Filter bank of all antennas of the group; none if the voltages are already channelized.
    bank: Option<channelize::Plan>,
}

impl GroupPlans {
    fn new(config: &DeviceConfig<'_>, format: SampleFormat, antennas: &[usize]) -> Result<Self> {
        let SampleFormat { encoding, scale } = format;
        let (plan, channels) = (config.plan, config.channels);
        let polarizations = plan.polarizations();
        let form = match (config.bank, config.direct) {
            (Some(_), _) => Form::Spectra,
            (None, true) => Form::Recorded,
            (None, false) => Form::Voltages { encoding, scale: scale as f32 },
        };
        let delays = delay::Plan::new(delay::Options {
            inputs: antennas.iter().map(|antenna| antenna * polarizations).collect(),
            polarizations,
            coarse_channels: channels.coarse,
            channels: channels.fine,
            encoding: plan.encoding(),
            form,
            band: (!config.fixed).then(|| channels.band.clone()),
            gains: vec![Complex::ZERO],
        })?;
        let alike = config.formats.iter().filter(|other| **other == format).count();
        let bank = |one: &channelize::Plan| {
            let input = Input { encoding, scale, antennas: antennas.len(), ..*one.input() };
            let plan =
                channelize::Plan::new(channelize::Options { input, ..one.options().clone() });
            Ok(plan?.part_of(alike))
        };
        Ok(Self { form, delays, bank: config.bank.map(bank).transpose()? })
    }
}

impl Group {
    /// Builds one group per sample format of `formats`, those of the F-engine's antennas.
    fn all(
        device: &Device,
        config: &DeviceConfig<'_>,
        formats: &[SampleFormat],
    ) -> Result<Vec<Self>> {
        let groups = antenna_groups(formats).into_iter();
        groups.map(|(format, own)| Self::new(device, config, format, own)).collect()
    }

    fn new(
        device: &Device,
        config: &DeviceConfig<'_>,
        format: SampleFormat,
        antennas: Vec<usize>,
    ) -> Result<Self> {
        let streams = config.channels.coarse * config.plan.polarizations();
        let GroupPlans { form, delays, bank } = GroupPlans::new(config, format, &antennas)?;
        let corrector = DelayCorrector::new(delays, &on_one_thread(device))?;
        let (hop, span) = config.bank.map_or((1, 0), |bank| (bank.hop(), bank.span()));
        let stride = stride(format, config.capacity.saturating_mul(hop).saturating_add(span));
        let source = match bank {
            Some(bank) => Source::Bank(Box::new(Bank::new(device, bank, config.capacity)?)),
            None => Source::Recorded(None),
        };
        Ok(Self {
            uploads: UploadRing::new(
                device,
                stride.saturating_mul(streams * antennas.len()),
                SLOTS,
            )?,
            settled: vec![form == Form::Recorded; antennas.len()],
            antennas,
            format,
            streams,
            corrector,
            source,
        })
    }

    fn is_recorded(&self) -> bool {
        matches!(self.source, Source::Recorded(_))
    }

    fn add_saturated(&self, all: &mut [u64]) {
        let Ok(counts) = self.corrector.saturated() else { return };
        let each = counts.len() / self.antennas.len();
        for (antenna, counts) in self.antennas.iter().zip(counts.chunks_exact(each)) {
            all[*antenna] += counts.iter().sum::<u64>();
        }
    }

    /// Uploads the gains of antennas whose measurement has finished.
    fn settle(&mut self, all: &[AntennaInput]) -> Result<()> {
        let mut fresh = Vec::new();
        for (place, antenna) in self.antennas.iter().enumerate() {
            if !self.settled[place] && all[*antenna].is_final() {
                self.settled[place] = true;
                fresh.push((place, all[*antenna].gain_control.gains.as_slice()));
            }
        }
        if fresh.is_empty() { Ok(()) } else { self.corrector.set_gains(fresh) }
    }

    /// Releases the voltages of the previous spectra.
    fn release(&mut self, work: &Stream) -> Result<()> {
        match &mut self.source {
            Source::Recorded(held) if held.is_some() => {
                *held = None;
                self.uploads.release(work)
            }
            _ => Ok(()),
        }
    }

    /// Copies samples to the device and enqueues their channelization.
    fn make(
        &mut self,
        samples: HostSamples<'_>,
        segments: &[Range<u64>],
        threads: &Threads,
        work: &Stream,
    ) -> Result<()> {
        let base = segments.first().map_or(0, |segment| segment.start);
        if let Source::Recorded(_) = self.source {
            let times = segments.last().map_or(0, |segment| (segment.end - base) as usize);
            let stride = stride(self.format, times);
            self.send(samples, stride, times, threads, |antenna| antenna.parts().0)?;
            self.source = Source::Recorded(Some(DeviceSamples { first_byte: 0, stride, times }));
            return Ok(());
        }
        for segment in segments {
            self.channelize(samples, segment, (segment.start - base) as usize, threads, work)?;
        }
        Ok(())
    }

    /// Enqueues one segment's spectra; `row` is the first output row.
    fn channelize(
        &mut self,
        samples: HostSamples<'_>,
        segment: &Range<u64>,
        row: usize,
        threads: &Threads,
        work: &Stream,
    ) -> Result<()> {
        let Source::Bank(bank) = &mut self.source else { return Ok(()) };
        let shifts: Vec<Option<i64>> =
            self.antennas.iter().map(|own| shift(&samples.antennas[*own], segment.start)).collect();
        let goes_on =
            bank.next.as_ref().is_some_and(|(next, old)| *next == segment.start && *old == shifts);
        let (hop, span) = (bank.channelizer.plan().hop(), bank.channelizer.plan().span());
        // A filter bank that continues already holds the first window except its last hop.
        let skipped = if goes_on { span - hop } else { 0 };
        if !goes_on {
            bank.channelizer.reset();
        }
        let spectra = (segment.end - segment.start) as usize;
        let times = (spectra - 1) * hop + span - skipped;
        let stride = stride(self.format, times);
        let start = segment.start;
        let parts = move |antenna: &AntennaInput| match shift(antenna, start) {
            Some(shift) => {
                let first = antenna.at(start, shift) as u64 + skipped as u64;
                vec![(0, first..first + times as u64)]
            }
            None => Vec::new(),
        };
        self.send(samples, stride, times, threads, parts)?;
        let Source::Bank(bank) = &mut self.source else { return Ok(()) };
        let (voltages, _) = self.uploads.acquire(work)?;
        let layout = DeviceVoltages { first_byte: 0, stride, times };
        let progress =
            bank.channelizer.enqueue_at(voltages, layout, &mut bank.spectra, row, work)?;
        if (progress.consumed, progress.produced) != (times, spectra) {
            let (expected, actual) = (spectra, progress.produced);
            return Err(Error::Shape { what: "spectra of a segment", expected, actual });
        }
        bank.next = Some((segment.end, shifts));
        self.uploads.release(work)
    }

    /// Gathers `times` samples of each antenna's streams and copies them to the device. Samples outside the ranges that
    /// `parts` returns are zero.
    fn send(
        &mut self,
        samples: HostSamples<'_>,
        stride: usize,
        times: usize,
        threads: &Threads,
        parts: impl Fn(&AntennaInput) -> Placed,
    ) -> Result<()> {
        let each = stride * self.streams;
        let together = (PIECE_BYTES / each.max(1)).max(threads.count()).max(1);
        let mut slot = self.uploads.current();
        slot.host()?;
        for antennas in self.antennas.chunks(together) {
            let bytes = each * antennas.len();
            let rows = slot.rest()[..bytes].chunks_exact_mut(each);
            let jobs = antennas.iter().zip(rows).map(|(index, rows)| {
                let antenna = &samples.antennas[*index];
                let location = &antenna.location;
                Job {
                    window: &samples.windows[location.recording],
                    streams: location.streams.clone(),
                    parts: parts(antenna),
                    rows,
                    outcome: Ok(()),
                }
            });
            let mut jobs: Vec<Job<'_>> = jobs.collect();
            threads.for_each(&mut jobs, 1, |_, job| job[0].outcome = job[0].fill(stride, times));
            jobs.into_iter().try_for_each(|job| job.outcome)?;
            slot.send(bytes)?;
        }
        Ok(())
    }

    /// Enqueues the delay correction of `times` spectra.
    fn correct(
        &mut self,
        first: usize,
        times: usize,
        delays: Option<DeviceDelays<'_>>,
        to: &mut Buffer<u8>,
        layout: Natural,
        work: &Stream,
    ) -> Result<()> {
        match &mut self.source {
            Source::Bank(bank) => {
                let stride = 8 * bank.channelizer.plan().row_elements();
                let from = DeviceSamples { first_byte: first * stride, stride, times };
                self.corrector.enqueue(&bank.spectra, from, delays, to, layout, work)
            }
            Source::Recorded(Some(samples)) => {
                let first_byte = self.format.encoding.bytes(first);
                let from = DeviceSamples { first_byte, times, ..*samples };
                let (voltages, _) = self.uploads.acquire(work)?;
                self.corrector.enqueue(voltages, from, delays, to, layout, work)
            }
            Source::Recorded(None) => Ok(()),
        }
    }
}

impl Bank {
    fn new(device: &Device, plan: channelize::Plan, capacity: usize) -> Result<Self> {
        let bytes = plan.row_elements().saturating_mul(8).saturating_mul(capacity);
        Ok(Self {
            channelizer: Channelizer::new(plan, &on_one_thread(device))?,
            spectra: device.buffer(bytes)?,
            next: None,
        })
    }
}

/// Returns the device as a backend that leaves host work to the caller.
fn on_one_thread(device: &Device) -> Backend {
    Backend::Cuda(device.clone(), Threads::new(1))
}

/// Returns the bytes between streams, padded for whole chunks of samples.
fn stride(format: SampleFormat, times: usize) -> usize {
    format.encoding.bytes(times.saturating_add(ALIGNED)).next_multiple_of(ALIGNED)
}

/// Returns the shift of a spectrum; none if the recording lacks its samples.
fn shift(antenna: &AntennaInput, spectrum: u64) -> Option<i64> {
    let run = antenna.runs.iter().find(|run| run.spectra.contains(&spectrum))?;
    run.inside.then_some(run.shift)
}

/// Sample ranges of a recording, each with its start time in the row.
type Placed = Vec<(usize, Range<u64>)>;

/// Rows of one antenna to fill.
struct Job<'a> {
    window: &'a Window,
    streams: Range<usize>,
    parts: Placed,
    rows: &'a mut [u8],
    outcome: Result<()>,
}

impl Job<'_> {
    fn fill(&mut self, stride: usize, times: usize) -> Result<()> {
        let encoding = self.window.encoding;
        let covered: u64 = self.parts.iter().map(|(_, samples)| samples.end - samples.start).sum();
        if covered < times as u64 {
            let bytes = encoding.bytes(times);
            let rows = self.rows.chunks_exact_mut(stride);
            rows.for_each(|row| row[..bytes].fill(encoding.zero_byte()));
        }
        for (at, samples) in &self.parts {
            let voltages = self.window.voltages(self.streams.clone(), samples.clone())?;
            for (stream, row) in self.rows.chunks_exact_mut(stride).enumerate() {
                let from = voltages.row(stream);
                row[encoding.bytes(*at)..][..from.len()].copy_from_slice(from);
            }
        }
        Ok(())
    }
}
