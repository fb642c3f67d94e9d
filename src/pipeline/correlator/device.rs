//! F-engine on a GPU: voltages are copied in, spectra stay on the device until the X-engine multiplies them.
//!
//! Invariant: a spectrum's bits depend on its number and on the device, never on how spectra are asked for.

use std::ops::Range;

use super::antenna::{AntennaInput, Scratch};
use super::inputs::Channels;
use super::tracking::Delays;
use super::window::Window;
use crate::backend::cuda::{Buffer, Device, Stream, UploadRing};
use crate::backend::threads::Threads;
use crate::channelize::{self, Channelizer, DeviceVoltages, Input};
use crate::correlate::{self, Correlator, DeviceSpectra};
use crate::delay::{DeviceAligner, DeviceDelays, DeviceOptions, DeviceSamples, Form, Natural};
use crate::error::{Error, Result};
use crate::voltage::VoltageEncoding;

/// Fills a mask (channel, antenna, word).
pub(super) type FillMask<'a> = &'a dyn Fn(&mut [u64]);

/// Number of double-buffer slots.
const SLOTS: usize = 2;

/// Alignment of an input's rows: one memory line, in bytes.
const LINE: usize = 128;

/// Sample format of an antenna's recording.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Kind {
    pub(super) encoding: VoltageEncoding,
    /// Value of one count.
    pub(super) scale: f64,
}

/// Configuration of the device F-engine.
pub(super) struct Wanted<'a> {
    pub(super) plan: &'a correlate::Plan,
    pub(super) channels: &'a Channels,
    /// Filter bank of one antenna; none if the voltages are already channelized.
    pub(super) bank: Option<&'a channelize::Plan>,
    /// Whether there are no delays.
    pub(super) fixed: bool,
    /// Whether recorded integers are multiplied unchanged.
    pub(super) direct: bool,
    /// Sample formats of all correlated antennas, by ascending array number.
    pub(super) kinds: &'a [Kind],
    /// Spectra computed per call.
    pub(super) capacity: usize,
}

/// Host data from which the device computes the prepared spectra.
pub(super) struct Held<'a> {
    pub(super) stations: &'a mut [AntennaInput],
    pub(super) windows: &'a [&'a Window],
    pub(super) delays: &'a Delays,
}

/// Host threads with their scratch memory.
pub(super) struct Pool<'a> {
    pub(super) threads: &'a Threads,
    pub(super) scratches: &'a mut [Scratch],
}

/// Spectra computed on a device.
pub(super) struct OnDevice {
    work: Stream,
    /// Groups of antennas with the same sample format.
    groups: Vec<Group>,
    /// Axes antenna (by group), time, (total delay, residual delay); none without phase rotation.
    delays: Option<UploadRing<f64>>,
    /// Whether `delays` holds those of the current spectra.
    delays_held: bool,
    masks: UploadRing<u64>,
    /// Aligned spectra, input of the X-engine.
    natural: Buffer<u8>,
    layout: Natural,
    /// Range of available spectra.
    made: Range<u64>,
}

impl OnDevice {
    /// # Errors
    /// [`crate::Error::Unavailable`] without memory, NVRTC or cuFFT; [`crate::Error::Device`] when the driver
    /// refuses.
    pub(super) fn new(device: &Device, wanted: &Wanted<'_>) -> Result<Self> {
        let plan = wanted.plan;
        let input_stride = plan.encoding().bytes(wanted.capacity).next_multiple_of(LINE);
        let layout =
            Natural { first_byte: 0, channel_stride: plan.inputs() * input_stride, input_stride };
        let words = correlate::Plan::mask_words(wanted.capacity);
        let delays = match wanted.fixed {
            true => None,
            false => {
                Some(UploadRing::new(device, 2 * wanted.kinds.len() * wanted.capacity, SLOTS)?)
            }
        };
        let work = device.stream()?;
        let mut natural = device.buffer(plan.channels().saturating_mul(layout.channel_stride))?;
        // The X-engine reads past the last time without using the values; they are initialized all the same.
        let whole = 0..natural.len();
        work.fill(&mut natural, whole, 0)?;
        Ok(Self {
            work,
            natural,
            groups: Group::all(device, wanted)?,
            delays,
            delays_held: false,
            masks: UploadRing::new(device, plan.channels() * plan.antennas() * words, SLOTS)?,
            layout,
            made: 0..0,
        })
    }

    /// Whether an X-engine call must start at the first available spectrum.
    pub(super) fn is_recorded(&self) -> bool {
        self.groups.iter().any(Group::is_recorded)
    }

    /// Returns the saturated complex samples of each antenna; zeros for a device that has failed.
    pub(super) fn saturated(&self, stations: usize) -> Vec<u64> {
        let mut all = vec![0; stations];
        self.groups.iter().for_each(|group| group.add_saturated(&mut all));
        all
    }

    /// Enqueues the prepared spectra; the host samples may change after the return.
    ///
    /// # Errors
    /// Errors of the filter banks and of the alignment.
    pub(super) fn make(
        &mut self,
        held: Held<'_>,
        spectra: Range<u64>,
        pool: &mut Pool<'_>,
    ) -> Result<()> {
        self.release()?;
        let Held { stations, windows, delays } = held;
        pool.threads.for_each_chunk(pool.scratches, stations, 1, |own, _, station| {
            let window = windows[station[0].location().recording];
            station[0].settle(window, own);
        });
        stations.iter_mut().try_for_each(AntennaInput::take_outcome)?;
        self.made = spectra.clone();
        let segments = segments(stations, &spectra);
        for group in &mut self.groups {
            group.settle(stations)?;
            group.make((stations, windows), &segments, pool, &self.work)?;
        }
        self.send_delays(stations, delays)
    }

    /// Releases the buffers of the previous spectra.
    fn release(&mut self) -> Result<()> {
        if let (Some(delays), true) = (&mut self.delays, self.delays_held) {
            delays.release(&self.work)?;
            self.delays_held = false;
        }
        self.groups.iter_mut().try_for_each(|group| group.release(&self.work))
    }

    fn send_delays(&mut self, stations: &[AntennaInput], all: &Delays) -> Result<()> {
        let Some(uploads) = &mut self.delays else { return Ok(()) };
        let times = (self.made.end - self.made.start) as usize;
        let mut slot = uploads.current();
        let rows = slot.host()?.chunks_exact_mut(2 * times);
        let order = self.groups.iter().flat_map(Group::stations);
        for (row, station) in rows.zip(order) {
            for (pair, delay) in row.chunks_exact_mut(2).zip(stations[*station].delays(all)) {
                pair.copy_from_slice(&[delay.total_s, delay.residual_s]);
            }
        }
        slot.send(2 * times * stations.len())?;
        self.delays_held = true;
        Ok(())
    }

    /// Enqueues alignment and X-engine for `times` spectra; `mask` fills the validity mask, if there is one.
    ///
    /// # Errors
    /// Errors of the alignment and of the X-engine.
    pub(super) fn correlate(
        &mut self,
        (first, times): (u64, usize),
        mask: Option<FillMask<'_>>,
        correlator: &mut Correlator,
    ) -> Result<()> {
        let stride = (self.made.end - self.made.start) as usize;
        let first = (first - self.made.start) as usize;
        let delays = match &mut self.delays {
            Some(uploads) => Some(uploads.acquire(&self.work)?.0),
            None => None,
        };
        let mut row = 0;
        for group in &mut self.groups {
            let place = row * stride + first;
            let own = delays.map(|seconds| DeviceDelays { seconds, first: place, stride });
            let to = (&mut self.natural, self.layout);
            group.align((first, times), own, to, &self.work)?;
            row += group.stations().len();
        }
        let layout = DeviceSpectra {
            first_byte: self.layout.first_byte,
            channel_stride: self.layout.channel_stride,
            input_stride: self.layout.input_stride,
            times,
        };
        let Some(mask) = mask else {
            return correlator.enqueue(&mut self.natural, layout, None, &self.work);
        };
        let masks = &mut self.masks;
        let plan = correlator.plan();
        let words = plan.channels() * plan.antennas() * correlate::Plan::mask_words(times);
        let valid = masks.upload(words, &self.work, mask)?;
        correlator.enqueue(&mut self.natural, layout, Some(valid), &self.work)?;
        masks.release(&self.work)
    }
}

/// Splits `spectra` into segments within which no antenna's shift changes.
fn segments(stations: &[AntennaInput], spectra: &Range<u64>) -> Vec<Range<u64>> {
    let starts = stations.iter().flat_map(|station| station.runs());
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
    /// Indices among all correlated antennas.
    stations: Vec<usize>,
    kind: Kind,
    /// Streams per antenna.
    streams: usize,
    aligner: DeviceAligner,
    /// Whether the device has each antenna's gains.
    settled: Vec<bool>,
    uploads: UploadRing,
    source: Source,
}

/// Input of the aligner.
enum Source {
    /// Spectra of a filter bank.
    Bank(Box<Bank>),
    /// Recorded voltages, while the device holds them.
    Recorded(Option<DeviceSamples>),
}

struct Bank {
    channelizer: Channelizer,
    spectra: Buffer<u8>,
    /// Next spectrum of the stream and the shifts so far; the filter bank continues if both match.
    next: Option<(u64, Vec<Option<i64>>)>,
}

impl Group {
    /// Builds one group per sample format.
    fn all(device: &Device, wanted: &Wanted<'_>) -> Result<Vec<Self>> {
        let mut kinds: Vec<(Kind, Vec<usize>)> = Vec::new();
        for (station, kind) in wanted.kinds.iter().enumerate() {
            match kinds.iter_mut().find(|(other, _)| other == kind) {
                Some((_, stations)) => stations.push(station),
                None => kinds.push((*kind, vec![station])),
            }
        }
        kinds.into_iter().map(|(kind, own)| Self::new(device, wanted, kind, own)).collect()
    }

    fn new(device: &Device, wanted: &Wanted<'_>, kind: Kind, stations: Vec<usize>) -> Result<Self> {
        let (plan, channels) = (wanted.plan, wanted.channels);
        let polarizations = plan.polarizations();
        let streams = channels.coarse * polarizations;
        let form = match (wanted.bank, wanted.direct) {
            (Some(_), _) => Form::Spectra,
            (None, true) => Form::Recorded,
            (None, false) => Form::Voltages { encoding: kind.encoding, scale: kind.scale as f32 },
        };
        let aligner = DeviceAligner::new(
            device,
            DeviceOptions {
                inputs: stations.iter().map(|station| station * polarizations).collect(),
                polarizations,
                coarse_channels: channels.coarse,
                channels: channels.fine,
                encoding: plan.encoding(),
                form,
                band: (!wanted.fixed).then(|| channels.band().clone()),
            },
        )?;
        let (hop, span) = wanted.bank.map_or((1, 0), |bank| (bank.hop(), bank.span()));
        let stride = stride(kind, wanted.capacity.saturating_mul(hop).saturating_add(span));
        let source = match wanted.bank {
            Some(bank) => {
                Source::Bank(Box::new(Bank::new(device, (bank, kind), &stations, wanted.capacity)?))
            }
            None => Source::Recorded(None),
        };
        Ok(Self {
            uploads: UploadRing::new(
                device,
                stride.saturating_mul(streams * stations.len()),
                SLOTS,
            )?,
            settled: vec![form == Form::Recorded; stations.len()],
            stations,
            kind,
            streams,
            aligner,
            source,
        })
    }

    fn stations(&self) -> &Vec<usize> {
        &self.stations
    }

    fn is_recorded(&self) -> bool {
        matches!(self.source, Source::Recorded(_))
    }

    fn add_saturated(&self, all: &mut [u64]) {
        let Ok(counts) = self.aligner.saturated() else { return };
        let each = counts.len() / self.stations.len();
        for (station, counts) in self.stations.iter().zip(counts.chunks_exact(each)) {
            all[*station] += counts.iter().sum::<u64>();
        }
    }

    /// Uploads the gains of antennas whose measurement has finished.
    fn settle(&mut self, all: &[AntennaInput]) -> Result<()> {
        let mut fresh = Vec::new();
        for (place, station) in self.stations.iter().enumerate() {
            if !self.settled[place] && all[*station].is_settled() {
                self.settled[place] = true;
                fresh.push((place, all[*station].gain_control().gains()));
            }
        }
        if fresh.is_empty() { Ok(()) } else { self.aligner.set_gains(fresh) }
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
        (all, windows): (&[AntennaInput], &[&Window]),
        segments: &[Range<u64>],
        pool: &mut Pool<'_>,
        work: &Stream,
    ) -> Result<()> {
        let base = segments.first().map_or(0, |segment| segment.start);
        if let Source::Recorded(_) = self.source {
            let times = segments.last().map_or(0, |segment| (segment.end - base) as usize);
            let samples = DeviceSamples { first_byte: 0, stride: stride(self.kind, times), times };
            let parts = |station: &AntennaInput| station.parts().0;
            self.send((all, windows), (samples.stride, times), &parts, pool)?;
            self.source = Source::Recorded(Some(samples));
            return Ok(());
        }
        for segment in segments {
            self.channelize(
                (all, windows),
                segment,
                (segment.start - base) as usize,
                (pool, work),
            )?;
        }
        Ok(())
    }

    /// Enqueues one segment's spectra; `row` is the first output row.
    fn channelize(
        &mut self,
        (all, windows): (&[AntennaInput], &[&Window]),
        segment: &Range<u64>,
        row: usize,
        (pool, work): (&mut Pool<'_>, &Stream),
    ) -> Result<()> {
        let Source::Bank(bank) = &mut self.source else { return Ok(()) };
        let shifts: Vec<Option<i64>> =
            self.stations.iter().map(|station| shift(&all[*station], segment.start)).collect();
        let goes_on =
            bank.next.as_ref().is_some_and(|(next, old)| *next == segment.start && *old == shifts);
        let (hop, span) = (bank.channelizer.plan().hop(), bank.channelizer.plan().span());
        // A filter bank that continues holds all of the first window but its last hop.
        let skipped = if goes_on { span - hop } else { 0 };
        if !goes_on {
            bank.channelizer.reset();
        }
        let spectra = (segment.end - segment.start) as usize;
        let times = (spectra - 1) * hop + span - skipped;
        let stride = stride(self.kind, times);
        let start = segment.start;
        let parts = move |station: &AntennaInput| match shift(station, start) {
            Some(shift) => {
                let first = station.at(start, shift) as u64 + skipped as u64;
                vec![(0, first..first + times as u64)]
            }
            None => Vec::new(),
        };
        self.send((all, windows), (stride, times), &parts, pool)?;
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

    /// Gathers samples of each antenna's streams and copies them: parts of the window, zeros elsewhere.
    fn send(
        &mut self,
        (all, windows): (&[AntennaInput], &[&Window]),
        (stride, times): (usize, usize),
        parts: &dyn Fn(&AntennaInput) -> Placed,
        pool: &mut Pool<'_>,
    ) -> Result<()> {
        let each = stride * self.streams;
        let together = (PIECE_BYTES / each.max(1)).max(pool.threads.count()).max(1);
        let mut slot = self.uploads.current();
        slot.host()?;
        for stations in self.stations.chunks(together) {
            let bytes = each * stations.len();
            let rows = &mut slot.rest()[..bytes];
            let own = stations.iter().map(|station| &all[*station]);
            place((own, windows), rows, (stride, times), parts, pool)?;
            slot.send(bytes)?;
        }
        Ok(())
    }

    /// Enqueues the alignment of `times` spectra.
    fn align(
        &mut self,
        (first, times): (usize, usize),
        delays: Option<DeviceDelays<'_>>,
        to: (&mut Buffer<u8>, Natural),
        work: &Stream,
    ) -> Result<()> {
        match &mut self.source {
            Source::Bank(bank) => {
                let stride = 8 * bank.channelizer.plan().row_elements();
                let from = DeviceSamples { first_byte: first * stride, stride, times };
                self.aligner.enqueue(&bank.spectra, from, delays, to.0, to.1, work)
            }
            Source::Recorded(Some(samples)) => {
                let first_byte = self.kind.encoding.bytes(first);
                let from = DeviceSamples { first_byte, times, ..*samples };
                let (voltages, _) = self.uploads.acquire(work)?;
                self.aligner.enqueue(voltages, from, delays, to.0, to.1, work)
            }
            Source::Recorded(None) => Ok(()),
        }
    }
}

impl Bank {
    fn new(
        device: &Device,
        (one, kind): (&channelize::Plan, Kind),
        stations: &[usize],
        capacity: usize,
    ) -> Result<Self> {
        let Kind { encoding, scale } = kind;
        let input = Input { encoding, scale, antennas: stations.len(), ..*one.input() };
        let plan = channelize::Plan::new(channelize::Options { input, ..one.options().clone() })?;
        let bytes = plan.row_elements().saturating_mul(8).saturating_mul(capacity);
        let backend =
            crate::backend::Backend::Cuda(device.clone(), crate::backend::threads::Threads::new(1));
        Ok(Self {
            channelizer: Channelizer::new(plan, &backend)?,
            spectra: device.buffer(bytes)?,
            next: None,
        })
    }
}

/// Returns the bytes between streams, padded for whole chunks of samples.
fn stride(kind: Kind, times: usize) -> usize {
    kind.encoding.bytes(times.saturating_add(ALIGNED)).next_multiple_of(ALIGNED)
}

/// Returns the shift of a spectrum; none if the recording lacks its samples.
fn shift(station: &AntennaInput, spectrum: u64) -> Option<i64> {
    let run = station.runs().iter().find(|run| run.spectra.contains(&spectrum))?;
    run.inside.then_some(run.shift)
}

/// Sample ranges of a recording, each with its start time in the row.
type Placed = Vec<(usize, Range<u64>)>;

/// Rows of one antenna.
struct Job<'a> {
    window: &'a Window,
    streams: Range<usize>,
    parts: Placed,
    rows: &'a mut [u8],
    outcome: Result<()>,
}

/// Fills `times` samples of each stream of `stations`: the ranges that `parts` returns, zeros elsewhere.
fn place<'a>(
    (stations, windows): (impl Iterator<Item = &'a AntennaInput>, &[&Window]),
    rows: &mut [u8],
    (stride, times): (usize, usize),
    parts: &dyn Fn(&AntennaInput) -> Placed,
    pool: &mut Pool<'_>,
) -> Result<()> {
    let mut left = rows;
    let mut jobs = Vec::new();
    for station in stations {
        let streams = station.location().streams.clone();
        let (rows, rest) = left.split_at_mut(stride * streams.len());
        let window = windows[station.location().recording];
        jobs.push(Job { window, streams, parts: parts(station), rows, outcome: Ok(()) });
        left = rest;
    }
    pool.threads.for_each_chunk(pool.scratches, &mut jobs, 1, |_, _, job| {
        job[0].outcome = job[0].fill(stride, times);
    });
    jobs.into_iter().try_for_each(|job| job.outcome)
}

impl Job<'_> {
    fn fill(&mut self, stride: usize, times: usize) -> Result<()> {
        let encoding = self.window.encoding();
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
