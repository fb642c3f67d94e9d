//! F-engine on a GPU: voltages are copied in, spectra stay on the device until the X-engine multiplies them.
//!
//! Invariant: a spectrum's bits depend on its number and on the device, never on how spectra are asked for.

mod group;
mod placing;
mod room;

use std::ops::Range;

use super::channels::Channels;
use super::delays::Delays;
use super::station::{Scratch, Station};
use super::window::Window;
use crate::backend::cuda::{Buffer, Device, Inbox, Stream};
use crate::backend::threads::Threads;
use crate::channelize;
use crate::correlate::{self, Correlator, DeviceSpectra};
use crate::delay::{DeviceDelays, Natural};
use crate::error::Result;
use crate::voltage::VoltageEncoding;
use group::Group;

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
    pub(super) stations: &'a mut [Station],
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
    delays: Option<Inbox<f64>>,
    /// Whether `delays` holds those of the current spectra.
    delays_held: bool,
    masks: Inbox<u64>,
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
            false => Some(Inbox::new(device, 2 * wanted.kinds.len() * wanted.capacity, SLOTS)?),
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
            masks: Inbox::new(device, plan.channels() * plan.antennas() * words, SLOTS)?,
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
            let window = windows[station[0].place().feed];
            station[0].settle(window, own);
        });
        stations.iter_mut().try_for_each(Station::take_outcome)?;
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

    fn send_delays(&mut self, stations: &[Station], all: &Delays) -> Result<()> {
        let Some(inbox) = &mut self.delays else { return Ok(()) };
        let times = (self.made.end - self.made.start) as usize;
        let mut filling = inbox.present();
        let rows = filling.whole()?.chunks_exact_mut(2 * times);
        let order = self.groups.iter().flat_map(Group::stations);
        for (row, station) in rows.zip(order) {
            for (pair, delay) in row.chunks_exact_mut(2).zip(stations[*station].delays(all)) {
                pair.copy_from_slice(&[delay.late_s, delay.rest_s]);
            }
        }
        filling.send(2 * times * stations.len())?;
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
            Some(inbox) => Some(inbox.turn(&self.work)?.0),
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
        let mut filling = masks.present();
        mask(&mut filling.whole()?[..words]);
        filling.send(words)?;
        let valid = masks.turn(&self.work)?.0;
        correlator.enqueue(&mut self.natural, layout, Some(valid), &self.work)?;
        masks.release(&self.work)
    }
}

/// Splits `spectra` into segments within which no antenna's shift changes.
fn segments(stations: &[Station], spectra: &Range<u64>) -> Vec<Range<u64>> {
    let starts = stations.iter().flat_map(|station| station.runs());
    let mut ends: Vec<u64> = starts.map(|run| run.spectra.start).chain([spectra.end]).collect();
    ends.sort_unstable();
    ends.dedup();
    ends.windows(2).map(|pair| pair[0]..pair[1]).collect()
}
