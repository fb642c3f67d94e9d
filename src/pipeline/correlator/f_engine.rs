//! F-engine of all antennas, from recordings to spectra for the X-engine, one gulp at a time.
//!
//! Invariant: a spectrum's bits and its mask depend on its number, never on the division into gulps.

use std::ops::Range;
use std::time::Instant;

use super::antenna::{AntennaInput, Scratch, Target};
use super::device_messages::DeviceSender;
use super::messages::{FillMask, Messages, Parts as MessageParts};
use super::peers::{DeviceSupply, OnDevice};
use super::reading::Sources;
use super::recordings::{Channels, Delays};
use super::window::{Framing, InvalidRange, Window, cells};
use crate::backend::threads::Threads;
use crate::correlate::{self, Plan, Rows};
use crate::error::{Error, Result};
use crate::trace::{self, Work};
use crate::voltage::VoltageBlock;

/// Sources and state from which spectra are computed.
pub(super) struct Parts {
    pub(super) sources: Sources,
    /// By ascending array number.
    pub(super) antennas: Vec<AntennaInput>,
    pub(super) channels: Channels,
    pub(super) delays: Delays,
    /// Reason why the host computes the spectra although a GPU multiplies them; `None` if it does not.
    pub(super) not_on_device: Option<String>,
}

/// F-engine of all antennas.
pub(super) struct FEngine {
    pub(super) parts: Parts,
    pub(super) threads: Threads,
    scratches: Vec<Scratch>,
    pub(super) spectra: Spectra,
    /// Spectra per gulp.
    pub(super) capacity: usize,
    /// Range of available spectra.
    pub(super) made: Range<u64>,
    /// Seconds spent so far.
    pub(super) elapsed_s: f64,
    /// Invalid cells (spectrum, recorded channel) of each antenna.
    masked: Vec<u64>,
}

/// Counts since the start.
#[derive(Clone, Debug, Default)]
pub(super) struct Counts {
    /// Invalid cells (spectrum, recorded channel) of each antenna.
    pub(super) masked: Vec<u64>,
    /// Complex samples of each antenna that saturated in requantization.
    pub(super) saturated: Vec<u64>,
    /// Recorded samples of each recording that were not finite.
    pub(super) not_finite: Vec<u64>,
}

/// Spectra before the corner turn.
pub(super) enum Spectra {
    /// Axes antenna, polarization, time, channel.
    Rows(Vec<u8>),
    /// Recorded voltages; axes antenna, channel, polarization, time.
    Streams(VoltageBlock<'static>),
    /// Rows or streams, cut into the channels of each rank.
    Messages(Messages),
    /// Spectra in the memory of the GPUs that multiply them.
    Device(Box<OnDevice>),
    /// Spectra in the memory of a rank's GPU, until they are copied into messages.
    Sent(Box<DeviceSender>),
}

/// Spectra for the X-engine.
pub(super) enum Supply<'a> {
    /// In host memory, with the validity mask unless all are valid.
    Host {
        /// Input of the corner turn.
        spectra: correlate::Spectra<'a>,
        mask: Option<FillMask<'a>>,
    },
    /// In the memory of the GPUs that multiply them.
    Device(&'a mut OnDevice),
    /// Those of all ranks, in the memory of this rank's GPU.
    Received(DeviceSupply<'a>),
}

/// Part of a gulp that belongs to one antenna.
struct Job<'a> {
    antenna: &'a mut AntennaInput,
    target: Target<'a>,
}

impl Spectra {
    /// Returns whether a device holds them.
    pub(super) fn is_on_device(&self) -> bool {
        matches!(self, Self::Device(_) | Self::Sent(_))
    }
}

impl FEngine {
    /// Builds an F-engine that computes `capacity` spectra per gulp.
    pub(super) fn new(parts: Parts, spectra: Spectra, capacity: usize, threads: &Threads) -> Self {
        Self {
            scratches: (0..threads.count()).map(|_| Scratch::default()).collect(),
            threads: threads.clone(),
            masked: vec![0; parts.antennas.len()],
            parts,
            spectra,
            capacity,
            made: 0..0,
            elapsed_s: 0.0,
        }
    }

    /// Returns whether gulps must end with integrations, because an X-engine call must start at the first available
    /// spectrum.
    pub(super) fn ends_with_integrations(&self) -> bool {
        match &self.spectra {
            Spectra::Device(device) => device.is_recorded(),
            _ => false,
        }
    }

    /// Returns whether spectra are computed on a device.
    pub(super) fn is_on_device(&self) -> bool {
        self.spectra.is_on_device()
    }

    /// Returns the counts of the antennas and recordings.
    pub(super) fn counts(&self) -> Counts {
        let antennas = &self.parts.antennas;
        let saturated = match &self.spectra {
            Spectra::Device(device) => device.saturated(),
            Spectra::Sent(device) => device.saturated(),
            _ => antennas.iter().map(AntennaInput::saturated).collect(),
        };
        let not_finite = self.parts.sources.not_finite.clone();
        Counts { masked: self.masked.clone(), saturated, not_finite }
    }

    /// Returns the inverses of the gains that the readout divides by, in runs of channels; axes antenna, polarization,
    /// channel.
    pub(super) fn inverse_gains(&self, runs: &[Range<usize>]) -> Vec<f64> {
        let Parts { antennas, channels, .. } = &self.parts;
        let all = channels.order.len();
        let own = |antenna: &AntennaInput| -> Vec<f64> {
            let level = &antenna.gain_control;
            let rows = (0..level.elements()).step_by(all);
            let elements = rows.flat_map(|row| {
                let shifted = move |run: &Range<usize>| row + run.start..row + run.end;
                runs.iter().flat_map(shifted)
            });
            elements.map(|element| 1.0 / level.divisor(element)).collect()
        };
        antennas.iter().flat_map(own).collect()
    }

    /// Returns whether the gains of all antennas are known.
    pub(super) fn is_final(&self) -> bool {
        self.parts.antennas.iter().all(AntennaInput::is_final)
    }

    /// Returns whether the gains that the readout divides by are all 1.
    pub(super) fn is_unit(&self) -> bool {
        self.parts.antennas.iter().all(|antenna| antenna.gain_control.is_unit())
    }

    /// Describes a truncated recording that is used to its end, if any.
    pub(super) fn cut(&self) -> Option<String> {
        self.parts.sources.cut.clone()
    }

    /// Takes the error that made a source return too few samples.
    pub(super) fn take_fault(&mut self) -> Option<Error> {
        self.parts.sources.take_fault()
    }

    /// Returns the division of samples into spectra.
    pub(super) fn framing(&self) -> Framing {
        self.parts.delays.framing()
    }

    /// Returns the samples that all recordings share, if a live one has ended since the last call.
    pub(super) fn take_times(&mut self) -> Option<u64> {
        let Parts { sources, antennas, .. } = &mut self.parts;
        let lengths = sources.take_lengths()?;
        let shared = antennas.iter_mut().map(|antenna| {
            let location = &mut antenna.location;
            location.length = lengths[location.recording];
            location.length.saturating_sub(location.offset)
        });
        shared.min()
    }

    /// Computes the next spectra of all antennas, while the samples of the `following` ones are read; returns false,
    /// with none computed, if a source returned too few samples.
    ///
    /// # Errors
    /// [`crate::Error::Parameter`] for a delay that decreases too fast; errors of a device.
    pub(super) fn make(&mut self, spectra: Range<u64>, following: u64) -> Result<bool> {
        let begin = Instant::now();
        self.made = spectra.start..spectra.start;
        self.parts.delays.cover(&spectra)?;
        self.prepare(&spectra);
        let mut needed = self.needed();
        loop {
            if !self.parts.sources.hold(&needed)? {
                return Ok(false);
            }
            let held = needed;
            self.mark_invalid()?;
            // Gains may have to be measured with later spectra.
            needed = self.needed();
            if needed == held {
                break;
            }
        }
        if following > 0 {
            let (hop, made) = (self.parts.delays.hop(), spectra.end - spectra.start);
            self.parts.sources.read_ahead(&needed, made * hop, following * hop)?;
        }
        self.run(&spectra)?;
        self.count();
        self.made = spectra;
        self.elapsed_s += begin.elapsed().as_secs_f64();
        Ok(true)
    }

    /// Determines each antenna's shifts and needed samples.
    fn prepare(&mut self, spectra: &Range<u64>) {
        let Parts { antennas, channels, delays, .. } = &mut self.parts;
        self.threads.for_each_chunk(&mut self.scratches, antennas, 1, |_, _, own| {
            own[0].prepare(spectra.clone(), delays, channels);
        });
    }

    /// Marks spectra with samples that were found to be invalid.
    fn mark_invalid(&mut self) -> Result<()> {
        let Parts { sources, antennas, channels, .. } = &mut self.parts;
        let readers = sources.readers()?;
        for antenna in antennas {
            antenna.mark_invalid(&readers[antenna.location.recording].invalid, channels.coarse);
        }
        Ok(())
    }

    /// Returns the sample range needed from each recording.
    fn needed(&self) -> Vec<Option<Range<u64>>> {
        let Parts { sources, antennas, .. } = &self.parts;
        let mut needed: Vec<Option<Range<u64>>> = vec![None; sources.windows.len()];
        for antenna in antennas {
            if let Some(own) = &antenna.needed {
                let whole = needed[antenna.location.recording].get_or_insert(own.clone());
                *whole = whole.start.min(own.start)..whole.end.max(own.end);
            }
        }
        // An antenna of the same recording that needs no samples now may need earlier samples in a later gulp.
        for antenna in antennas {
            if let Some(whole) = &mut needed[antenna.location.recording] {
                whole.start = whole.start.min(antenna.from);
            }
        }
        needed
    }

    fn run(&mut self, spectra: &Range<u64>) -> Result<()> {
        let Parts { sources, antennas, delays, channels, .. } = &mut self.parts;
        let windows = &sources.windows;
        let on_host = !self.spectra.is_on_device();
        let _span = on_host.then(|| trace::span(Work::Compute, "F-engine"));
        let mut jobs: Vec<Job<'_>> = Vec::new();
        match &mut self.spectra {
            Spectra::Rows(rows) => {
                let each = rows.len() / antennas.len();
                let pairs = antennas.iter_mut().zip(rows.chunks_exact_mut(each));
                let target = |bytes| Target::Rows { bytes, times: self.capacity };
                jobs.extend(pairs.map(|(antenna, rows)| Job { antenna, target: target(rows) }));
            }
            Spectra::Streams(block) => gather(antennas, windows, block)?,
            Spectra::Messages(messages) => {
                let is_direct = messages.is_direct();
                let parts = messages.antennas(channels.order.len());
                let pairs = antennas.iter_mut().zip(parts);
                if is_direct {
                    for (antenna, parts) in pairs {
                        gather_parts(antenna, windows, parts)?;
                    }
                } else {
                    let job = |(antenna, parts)| Job { antenna, target: Target::Messages(parts) };
                    jobs.extend(pairs.map(job));
                }
            }
            on_device @ (Spectra::Device(_) | Spectra::Sent(_)) => {
                self.threads.for_each_chunk(&mut self.scratches, antennas, 1, |own, _, antenna| {
                    let window = &windows[antenna[0].location.recording];
                    antenna[0].finalize(window, own);
                });
                antennas.iter_mut().try_for_each(AntennaInput::take_outcome)?;
                let spectra = spectra.clone();
                match on_device {
                    Spectra::Device(device) => device.make(antennas, windows, delays, spectra)?,
                    Spectra::Sent(device) => device.make(antennas, windows, delays, spectra)?,
                    _ => {}
                }
            }
        }
        self.threads.for_each_chunk(&mut self.scratches, &mut jobs, 1, |own, _, job| {
            let Job { antenna, target } = &mut job[0];
            let window = &windows[antenna.location.recording];
            antenna.run(window, target, own);
        });
        antennas.iter_mut().try_for_each(AntennaInput::take_outcome)
    }

    fn count(&mut self) {
        for (masked, antenna) in self.masked.iter_mut().zip(&self.parts.antennas) {
            *masked += cells(&antenna.invalid, self.parts.channels.coarse);
        }
    }

    /// Discards the available spectra from number `end` on; they can be computed again.
    pub(super) fn shorten(&mut self, end: u64) {
        if end >= self.made.end {
            return;
        }
        for (masked, antenna) in self.masked.iter_mut().zip(&self.parts.antennas) {
            let late = antenna.invalid.iter().map(|invalid| InvalidRange {
                spectra: invalid.spectra.start.max(end)..invalid.spectra.end.max(end),
                coarse: invalid.coarse.clone(),
            });
            *masked -= cells(&late.collect::<Vec<_>>(), self.parts.channels.coarse);
        }
        self.made.end = end.max(self.made.start);
    }

    /// Enqueues the copies of `times` available spectra from number `first` on, which a rank's GPU computes, into messages.
    ///
    /// # Errors
    /// [`Error::Shape`] for spectra of the host; errors of the delay correction and of the copies.
    pub(super) fn send(&mut self, first: u64, times: usize, messages: &mut Messages) -> Result<()> {
        match &mut self.spectra {
            Spectra::Sent(device) => device.send(first, times, messages.blocks()?),
            _ => Err(Error::Shape { what: "spectra of a GPU", expected: times, actual: 0 }),
        }
    }

    /// Returns `times` available spectra from number `first` on.
    ///
    /// # Errors
    /// Errors of the delay correction on a device.
    pub(super) fn supply(&mut self, first: u64, times: usize) -> Result<Supply<'_>> {
        let skipped = (first - self.made.start) as usize;
        let valid = self.parts.validity(first..first + times as u64);
        let spectra = match &mut self.spectra {
            Spectra::Rows(bytes) => {
                correlate::Spectra::Rows(Rows { bytes, times: self.capacity, first: skipped })
            }
            Spectra::Streams(block) => {
                correlate::Spectra::Streams(block.voltages().slice(skipped, times)?)
            }
            // The X-engine has those of all ranks.
            Spectra::Messages(_) | Spectra::Sent(_) => {
                return Err(Error::Shape {
                    what: "spectra of all antennas",
                    expected: times,
                    actual: 0,
                });
            }
            Spectra::Device(device) => {
                let fill = valid.as_ref().map(|mask: &Mask<'_>| {
                    |channels: Range<usize>, bits: &mut [u64]| mask.fill_channels(channels, bits)
                });
                device.supply(first, times, fill)?;
                return Ok(Supply::Device(device));
            }
        };
        Ok(Supply::Host { spectra, mask: valid.map(Mask::boxed) })
    }
}

impl Parts {
    /// Returns the function that writes the validity mask of some spectra; `None` if all are valid.
    pub(super) fn mask(&self, times: Range<u64>) -> Option<FillMask<'_>> {
        self.validity(times).map(Mask::boxed)
    }

    fn validity(&self, times: Range<u64>) -> Option<Mask<'_>> {
        let is_invalid = |invalid: &InvalidRange| {
            invalid.spectra.start < times.end && invalid.spectra.end > times.start
        };
        let any = self.antennas.iter().any(|antenna| antenna.invalid.iter().any(is_invalid));
        any.then_some(Mask { parts: self, times })
    }
}

/// Validity of the spectra of all antennas.
struct Mask<'a> {
    parts: &'a Parts,
    times: Range<u64>,
}

impl<'a> Mask<'a> {
    fn boxed(self) -> FillMask<'a> {
        Box::new(move |bits: &mut [u64]| self.fill(bits))
    }

    /// Writes the bits; axes channel, antenna, word.
    fn fill(&self, mask: &mut [u64]) {
        let channels = &self.parts.channels;
        self.fill_channels(0..channels.coarse * channels.fine, mask);
    }

    /// Like [`Mask::fill`], for some of the channels.
    fn fill_channels(&self, channels: Range<usize>, mask: &mut [u64]) {
        let Self { parts, times } = self;
        let (antennas, fine) = (parts.antennas.len(), parts.channels.fine);
        let count = (times.end - times.start) as usize;
        let words = Plan::mask_words(count);
        mask.fill(u64::MAX);
        if !count.is_multiple_of(64) {
            let last = (1 << (count % 64)) - 1;
            mask.chunks_exact_mut(words).for_each(|row| row[words - 1] = last);
        }
        for (index, antenna) in parts.antennas.iter().enumerate() {
            for invalid in &antenna.invalid {
                let from = invalid.spectra.start.max(times.start);
                let to = invalid.spectra.end.min(times.end).max(from);
                let bits = (from - times.start) as usize..(to - times.start) as usize;
                let own = channels.start.max(invalid.coarse.start * fine)
                    ..channels.end.min(invalid.coarse.end * fine);
                for channel in own {
                    let row = (channel - channels.start) * antennas + index;
                    let row = &mut mask[row * words..][..words];
                    clear(row, &bits);
                }
            }
        }
    }
}

/// Clears the bits `bits` of a row of words.
fn clear(row: &mut [u64], bits: &Range<usize>) {
    for (index, word) in row.iter_mut().enumerate() {
        let (from, to) = (bits.start.max(64 * index), bits.end.min(64 * index + 64));
        if from < to {
            let ones = u64::MAX >> (64 - (to - from));
            *word &= !(ones << (from - 64 * index));
        }
    }
}

/// Copies the streams of all antennas into one block; missing samples become 0.
fn gather(antennas: &[AntennaInput], windows: &[Window], block: &mut VoltageBlock) -> Result<()> {
    let encoding = block.encoding();
    let mut rows = block.rows_mut();
    let mut made = 0;
    for antenna in antennas {
        let streams = antenna.location.streams.clone();
        let window = &windows[antenna.location.recording];
        let rows: Vec<&mut [u8]> = rows.by_ref().take(streams.len()).collect();
        let (parts, times) = antenna.parts();
        made = times;
        for (stream, row) in rows.into_iter().enumerate() {
            row[..encoding.bytes(times)].fill(encoding.zero_byte());
            for (at, samples) in &parts {
                let stream = streams.start + stream;
                let voltages = window.voltages(stream..stream + 1, samples.clone())?;
                let bytes = voltages.row(0);
                row[encoding.bytes(*at)..][..bytes.len()].copy_from_slice(bytes);
            }
        }
    }
    drop(rows);
    block.set_times(made)
}

/// Copies the streams of an antenna into its messages; missing samples become 0.
fn gather_parts(
    antenna: &AntennaInput,
    windows: &[Window],
    mut parts: MessageParts<'_>,
) -> Result<()> {
    let (window, location) = (&windows[antenna.location.recording], &antenna.location);
    let encoding = window.encoding;
    let (runs, times) = antenna.parts();
    for (stream, row) in parts.streams(antenna.polarizations()) {
        row[..encoding.bytes(times)].fill(encoding.zero_byte());
        for (at, samples) in &runs {
            let stream = location.streams.start + stream;
            let voltages = window.voltages(stream..stream + 1, samples.clone())?;
            let bytes = voltages.row(0);
            row[encoding.bytes(*at)..][..bytes.len()].copy_from_slice(bytes);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::clear;

    #[test]
    fn bits_are_cleared_one_by_one() {
        for start in 0..130 {
            for end in start..130 {
                let mut row = [u64::MAX; 3];
                clear(&mut row, &(start..end));
                let expected = |bit: usize| !(start..end).contains(&bit);
                assert!(
                    (0..192).all(|bit| (row[bit / 64] >> (bit % 64) & 1 == 1) == expected(bit))
                );
            }
        }
    }
}
