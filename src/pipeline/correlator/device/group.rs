//! Antennas of one sample format: one filter bank and one aligner for all of them.

use std::ops::Range;

use super::placing::{Placed, place};
use super::{Kind, Pool, SLOTS, Wanted};
use crate::backend::cuda::{Buffer, Device, Inbox, Stream};
use crate::channelize::{self, Channelizer, DeviceVoltages, Input};
use crate::delay::{DeviceAligner, DeviceDelays, DeviceOptions, DeviceSamples, Form, Natural};
use crate::error::{Error, Result};
use crate::pipeline::correlator::station::Station;
use crate::pipeline::correlator::window::Window;

/// Alignment of streams in bytes.
const ALIGNED: usize = 16;

/// Bytes gathered before each host-to-device copy.
const PIECE_BYTES: usize = 16 << 20;

/// Antennas of one sample format.
pub(super) struct Group {
    /// Indices among all correlated antennas.
    stations: Vec<usize>,
    kind: Kind,
    /// Streams per antenna.
    streams: usize,
    aligner: DeviceAligner,
    /// Whether the device has each antenna's gains.
    settled: Vec<bool>,
    inbox: Inbox,
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
    pub(super) fn all(device: &Device, wanted: &Wanted<'_>) -> Result<Vec<Self>> {
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
            inbox: Inbox::new(device, stride.saturating_mul(streams * stations.len()), SLOTS)?,
            settled: vec![form == Form::Recorded; stations.len()],
            stations,
            kind,
            streams,
            aligner,
            source,
        })
    }

    pub(super) fn stations(&self) -> &Vec<usize> {
        &self.stations
    }

    pub(super) fn is_recorded(&self) -> bool {
        matches!(self.source, Source::Recorded(_))
    }

    pub(super) fn add_saturated(&self, all: &mut [u64]) {
        let Ok(counts) = self.aligner.saturated() else { return };
        let each = counts.len() / self.stations.len();
        for (station, counts) in self.stations.iter().zip(counts.chunks_exact(each)) {
            all[*station] += counts.iter().sum::<u64>();
        }
    }

    /// Uploads the gains of antennas whose measurement has finished.
    pub(super) fn settle(&mut self, all: &[Station]) -> Result<()> {
        let mut fresh = Vec::new();
        for (place, station) in self.stations.iter().enumerate() {
            if !self.settled[place] && all[*station].is_settled() {
                self.settled[place] = true;
                fresh.push((place, all[*station].level().gains()));
            }
        }
        if fresh.is_empty() { Ok(()) } else { self.aligner.set_gains(fresh) }
    }

    /// Releases the voltages of the previous spectra.
    pub(super) fn release(&mut self, work: &Stream) -> Result<()> {
        match &mut self.source {
            Source::Recorded(held) if held.is_some() => {
                *held = None;
                self.inbox.release(work)
            }
            _ => Ok(()),
        }
    }

    /// Copies samples to the device and enqueues their channelization.
    pub(super) fn make(
        &mut self,
        (all, windows): (&[Station], &[&Window]),
        segments: &[Range<u64>],
        pool: &mut Pool<'_>,
        work: &Stream,
    ) -> Result<()> {
        let base = segments.first().map_or(0, |segment| segment.start);
        if let Source::Recorded(_) = self.source {
            let times = segments.last().map_or(0, |segment| (segment.end - base) as usize);
            let samples = DeviceSamples { first_byte: 0, stride: stride(self.kind, times), times };
            let parts = |station: &Station| station.parts().0;
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
        (all, windows): (&[Station], &[&Window]),
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
        let parts = move |station: &Station| match shift(station, start) {
            Some(shift) => {
                let first = station.at(start, shift) as u64 + skipped as u64;
                vec![(0, first..first + times as u64)]
            }
            None => Vec::new(),
        };
        self.send((all, windows), (stride, times), &parts, pool)?;
        let Source::Bank(bank) = &mut self.source else { return Ok(()) };
        let (voltages, _) = self.inbox.turn(work)?;
        let layout = DeviceVoltages { first_byte: 0, stride, times };
        let progress =
            bank.channelizer.enqueue_at(voltages, layout, &mut bank.spectra, row, work)?;
        if (progress.consumed, progress.produced) != (times, spectra) {
            let (expected, actual) = (spectra, progress.produced);
            return Err(Error::Shape { what: "spectra of a segment", expected, actual });
        }
        bank.next = Some((segment.end, shifts));
        self.inbox.release(work)
    }

    /// Gathers samples of each antenna's streams and copies them: parts of the window, zeros elsewhere.
    fn send(
        &mut self,
        (all, windows): (&[Station], &[&Window]),
        (stride, times): (usize, usize),
        parts: &dyn Fn(&Station) -> Placed,
        pool: &mut Pool<'_>,
    ) -> Result<()> {
        let each = stride * self.streams;
        let together = (PIECE_BYTES / each.max(1)).max(pool.threads.count()).max(1);
        let mut filling = self.inbox.present();
        filling.bytes()?;
        for stations in self.stations.chunks(together) {
            let bytes = each * stations.len();
            let rows = &mut filling.rest()[..bytes];
            let own = stations.iter().map(|station| &all[*station]);
            place((own, windows), rows, (stride, times), parts, pool)?;
            filling.send(bytes)?;
        }
        Ok(())
    }

    /// Enqueues the alignment of `times` spectra.
    pub(super) fn align(
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
                self.aligner.enqueue((&bank.spectra, from), delays, to, work)
            }
            Source::Recorded(Some(samples)) => {
                let first_byte = self.kind.encoding.bytes(first);
                let from = DeviceSamples { first_byte, times, ..*samples };
                let (voltages, _) = self.inbox.turn(work)?;
                self.aligner.enqueue((voltages, from), delays, to, work)
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
fn shift(station: &Station, spectrum: u64) -> Option<i64> {
    let run = station.runs().iter().find(|run| run.spectra.contains(&spectrum))?;
    run.inside.then_some(run.shift)
}
