//! The front on a GPU: samples go in, and what is made of them stays there until it is multiplied.
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

/// Pairs of buffers that are used in turn.
const SLOTS: usize = 2;

/// Where rows of an input begin: at whole lines of memory.
const LINE: usize = 128;

/// How a station's samples are recorded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Kind {
    pub(super) encoding: VoltageEncoding,
    /// What one count means.
    pub(super) scale: f64,
}

/// What is to be made on a device.
pub(super) struct Wanted<'a> {
    pub(super) plan: &'a correlate::Plan,
    pub(super) channels: &'a Channels,
    /// An antenna's filter bank; none where voltages are channelized.
    pub(super) bank: Option<&'a channelize::Plan>,
    /// Whether there are no delays.
    pub(super) fixed: bool,
    /// Whether recorded integers are multiplied as they are.
    pub(super) direct: bool,
    /// All stations, by rising number in the array.
    pub(super) kinds: &'a [Kind],
    /// Spectra that are made at once.
    pub(super) capacity: usize,
}

/// All stations' samples, of which the prepared spectra are made.
pub(super) struct Held<'a> {
    pub(super) stations: &'a mut [Station],
    pub(super) windows: &'a [&'a Window],
    pub(super) delays: &'a Delays,
}

/// The host's threads, with their rooms.
pub(super) struct Pool<'a> {
    pub(super) threads: &'a Threads,
    pub(super) scratches: &'a mut [Scratch],
}

/// Spectra that are made on a device.
pub(super) struct OnDevice {
    work: Stream,
    /// Stations of one kind each.
    groups: Vec<Group>,
    /// Axes station (by group), time, (late, rest); none where nothing is turned.
    delays: Option<Inbox<f64>>,
    /// Whether delays of the spectra that were made are there.
    delays_held: bool,
    masks: Inbox<u64>,
    /// What is multiplied next.
    natural: Buffer<u8>,
    layout: Natural,
    /// Spectra that are there.
    made: Range<u64>,
}

impl OnDevice {
    /// # Errors
    /// [`crate::Error::Unavailable`] without memory, NVRTC or cuFFT; [`crate::Error::Device`] when the driver refuses.
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
        // What stands behind the last time is read and never counts, but is not left to chance.
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

    /// Whether spectra that are multiplied must be the first ones that were made.
    pub(super) fn is_recorded(&self) -> bool {
        self.groups.iter().any(Group::is_recorded)
    }

    /// Complex samples of each station that rounding had to limit; none of a device that has failed.
    pub(super) fn saturated(&self, stations: usize) -> Vec<u64> {
        let mut all = vec![0; stations];
        self.groups.iter().for_each(|group| group.add_saturated(&mut all));
        all
    }

    /// Queues the making of the prepared spectra; the samples may change when it returns.
    ///
    /// # Errors
    /// Whatever filter banks and alignment report.
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

    /// Lets go of what was held for the spectra before.
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

    /// Queues the multiplication of some of the spectra that were made; `mask` fills a mask, where there is one.
    ///
    /// # Errors
    /// Whatever alignment and the X-engine report.
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

/// Spectra that have one shift at every station.
fn segments(stations: &[Station], spectra: &Range<u64>) -> Vec<Range<u64>> {
    let starts = stations.iter().flat_map(|station| station.runs());
    let mut ends: Vec<u64> = starts.map(|run| run.spectra.start).chain([spectra.end]).collect();
    ends.sort_unstable();
    ends.dedup();
    ends.windows(2).map(|pair| pair[0]..pair[1]).collect()
}
