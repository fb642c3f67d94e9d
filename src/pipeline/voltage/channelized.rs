//! Channelized voltages: a filter bank's spectra as integers again, a recording of more channels.
//!
//! Invariant: gains depend on the first spectra alone, never on how the voltages are read.

mod flags;
mod gains;

use flags::Flags;
use gains::Measured;
pub(in crate::pipeline) use gains::deviation;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::coherent::dedispersed;
use super::filterbank::{all_flagged, too_short};
use super::finite::finite;
use super::geometry::Geometry;
use super::layout::Layout;
use super::options::ChannelizeOptions;
use super::part::part;
use super::spectra::{Spectra, Watch, fitting_gulp};
use crate::backend::Backend;
use crate::channelize::{Form, Plan};
use crate::error::{Error, Result};
use crate::io::voltages::{FilterGeometry, Flag, VoltageHeader, VoltageSource};
use crate::voltage::{VoltageBlock, VoltageEncoding};

/// Bytes of spectra that are made before they are sorted into streams.
const ROWS_BYTES: usize = 1 << 20;

/// Spectra that are sorted at once: few, so that all their lines stay in the cache.
const TILE: usize = 8;

/// How spectra become integers.
#[derive(Clone, Debug, PartialEq)]
pub struct Requantization {
    /// Bits of a real number: 8 or 4.
    pub bits: usize,
    /// What each channel is multiplied by.
    pub gains: Gains,
}

/// Gains of channels; antennas and polarizations share them.
#[derive(Clone, Debug, PartialEq)]
pub enum Gains {
    /// Such that real and imaginary part have a standard deviation of 20 counts for 8 bits, 2.8 for 4,
    /// by the power of up to 1024 spectra, behind those at the start that are flagged in all streams.
    /// Channels that are flagged in all of them have the others' median gain. 20 leaves 6 deviations of room, and rounding adds
    /// 1/4800 of the variance; near 2.8 rounding and limiting together add least to Gaussian noise,
    /// 1.2 % of the variance.
    ///
    /// # Source
    /// Max 1960, IRE Transactions on Information Theory 6, 7 (quantizing for least distortion).
    Automatic,
    /// One for each channel of the output, in its order, or one for all.
    Given(Vec<f32>),
}

/// Channelized voltages of 8 or 4 bits, made as they are read.
///
/// | buffer | axes                                        | type               | access      |
/// |--------|---------------------------------------------|--------------------|-------------|
/// | block  | antenna, channel, polarization, time        | complex 8 or 4 bit | overwritten |
///
/// Channels rise in the voltages' frequency: on the sky they rise too, or fall in a lower sideband.
/// Where a window holds flagged samples there are flagged zeros, in both polarizations.
pub struct ChannelizedVoltages {
    header: VoltageHeader,
    geometry: Geometry,
    gains: Vec<f32>,
    spectra: Spectra<u8>,
    streams: Streams,
    flags: Flags,
    not_finite: Arc<AtomicU64>,
    rows: Vec<u8>,
    /// The next spectrum's number; those before the filter bank's next one are flagged in all streams.
    row: u64,
    warnings: Vec<String>,
}

impl std::fmt::Debug for ChannelizedVoltages {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChannelizedVoltages").field("header", &self.header).finish_non_exhaustive()
    }
}

impl ChannelizedVoltages {
    /// Binds a recording to its filter bank; automatic gains read its beginning. Of the options, those
    /// of detection (`products`, `ascending`) are not used.
    ///
    /// # Errors
    /// [`Error::Parameter`] naming the option that does not fit the recording, or has no meaning for
    /// voltages (sums over spectra or channels); [`Error::Shape`] for gains of another number than the
    /// output's channels; whatever the source reports.
    pub fn new(
        source: Box<dyn VoltageSource>,
        options: &ChannelizeOptions,
        requantization: &Requantization,
        backend: &Backend,
    ) -> Result<Self> {
        check(options)?;
        let all = source.header().times;
        let (source, not_finite) = finite(part(source, options)?);
        let recorded = source.header().clone();
        let warnings = source.warnings().to_vec();
        let layout = Layout::new(&recorded, !recorded.lower_sideband)?;
        let bits = requantization.bits;
        let one = Form::Requantized { bits, gains: vec![1.0] };
        let plan = Plan::new(layout.options(&recorded, options, one))?;
        let header = header(&recorded, &plan, layout.centres_hz(&recorded, &plan, 1)?, bits);
        if header.times == Some(0) {
            return Err(too_short(&recorded, all, &plan));
        }
        let geometry =
            Geometry { coherent_dm: options.coherent_dm, ..Geometry::new(&recorded, &plan, None) };
        let (mut source, copies) = dedispersed(source, &plan, 1, options, backend)?;
        let flags = Flags::new(source.flags(), &plan, &layout, header.times);
        let lead = flags.lead(header.streams());
        if header.times.is_some_and(|times| lead >= times) {
            return Err(all_flagged(&recorded, options));
        }
        let streams = Streams::new(&recorded, &plan, &layout, copies);
        let (gains, first) = match &requantization.gains {
            Gains::Given(gains) => (given(gains, &header)?, None),
            Gains::Automatic => {
                let asked = layout.options(source.header(), options, Form::Spectra);
                let measured = Measured::new(source.as_mut(), lead, asked, backend)?;
                let (gains, first) = measured.gains(&streams, &flags, bits)?;
                (gains, Some(first))
            }
        };
        let form = Form::Requantized { bits, gains: streams.in_bank_order(&gains) };
        let plan = Plan::new(layout.options(source.header(), options, form))?;
        let gulp = fitting_gulp(&plan, options)?;
        let spectra = Spectra::new(source, first, plan, gulp, backend)?;
        Ok(Self {
            header,
            geometry,
            gains,
            spectra,
            streams,
            flags,
            not_finite,
            rows: Vec::new(),
            row: 0,
            warnings,
        })
    }

    /// Samples read so far that were not finite numbers, of a recording of floats: zeros replaced them.
    pub fn not_finite(&self) -> u64 {
        self.not_finite.load(Ordering::Relaxed)
    }

    /// The filter bank.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// What each channel is multiplied by, in the output's order.
    pub fn gains(&self) -> &[f32] {
        &self.gains
    }

    /// Complex samples of each stream that had to be limited so far.
    pub fn saturated(&self) -> Vec<u64> {
        let all = self.spectra.saturated();
        self.streams.elements.iter().map(|element| all[*element]).collect()
    }

    /// Asks `watch` before each block of voltages whether to go on; false ends the spectra with [`Error::stopped`].
    pub fn watched_by(&mut self, watch: Watch) {
        self.spectra.watched_by(watch);
    }

    /// Fills a block with the next spectra, and returns how many; fewer than there is room for only at the end of the
    /// data or before an error, which the next call returns.
    ///
    /// # Errors
    /// [`Error::Shape`]; whatever the source and the filter bank report; [`Error::stopped`].
    pub fn read_block(&mut self, block: &mut VoltageBlock) -> Result<usize> {
        let times = self.fill(block)?;
        if times == 0 {
            self.check_fault()?
        }
        Ok(times)
    }

    /// Returns the error that ended the spectra, once.
    fn check_fault(&mut self) -> Result<()> {
        self.spectra.take_fault().map_or(Ok(()), Err)
    }

    fn fill(&mut self, block: &mut VoltageBlock) -> Result<usize> {
        let row = self.spectra.elements();
        let room = (ROWS_BYTES / row).max(TILE);
        let first = self.row;
        let lead = self.spectra.row() - first;
        let mut done = lead.min(block.capacity() as u64) as usize;
        while done < block.capacity() {
            let wanted = room.min(block.capacity() - done);
            self.rows.resize(room * row, 0);
            let times = self.spectra.read(&mut self.rows[..wanted * row])?;
            self.sort(times, block, done);
            done += times;
            if times < wanted {
                break;
            }
        }
        block.set_times(done)?;
        self.flags.blank(first, done, block);
        self.row += done as u64;
        Ok(done)
    }

    /// Sorts spectra into streams, behind the `done` that the block holds.
    fn sort(&self, times: usize, block: &mut VoltageBlock, done: usize) {
        let bytes = self.header.encoding.bytes(1);
        let row = self.spectra.elements();
        for first in (0..times).step_by(TILE) {
            let tile = &self.rows[first * row..times.min(first + TILE) * row];
            for (samples, element) in block.rows_mut().zip(&self.streams.elements) {
                let element = element * bytes;
                let samples = samples[(done + first) * bytes..].chunks_exact_mut(bytes);
                for (sample, spectrum) in samples.zip(tile.chunks_exact(row)) {
                    sample.copy_from_slice(&spectrum[element..element + bytes]);
                }
            }
        }
    }
}

impl VoltageSource for ChannelizedVoltages {
    fn header(&self) -> &VoltageHeader {
        &self.header
    }

    fn read(&mut self, block: &mut VoltageBlock) -> Result<usize> {
        let times = self.fill(block)?;
        self.check_fault()?;
        Ok(times)
    }

    fn skip(&mut self, times: u64) -> Result<u64> {
        let lead = times.min(self.spectra.row() - self.row);
        let skipped = lead + self.spectra.skip(times - lead)?;
        self.row += skipped;
        self.check_fault()?;
        Ok(skipped)
    }

    fn flags(&self) -> &[Flag] {
        self.flags.all()
    }

    fn cut(&self) -> Option<&str> {
        self.spectra.cut()
    }

    fn warnings(&self) -> &[String] {
        &self.warnings
    }
}

/// Where each output stream stands in the filter bank's rows.
#[derive(Clone, Debug)]
struct Streams {
    polarizations: usize,
    /// The filter bank's place of each recorded channel of the output.
    places: Vec<usize>,
    /// Channels of each recorded channel.
    channels: usize,
    /// The element of a row that each stream (antenna, channel, polarization) is.
    elements: Vec<usize>,
}

impl Streams {
    /// Of `copies` of all antennas, channel `c` is that of copy `c mod copies`.
    fn new(recorded: &VoltageHeader, plan: &Plan, layout: &Layout, copies: usize) -> Self {
        let in_order = || (0..recorded.coarse_channels()).collect();
        let places = layout.places.clone().unwrap_or_else(in_order);
        let (polarizations, channels) = (recorded.polarizations, plan.channels());
        let mut streams = Self { polarizations, places, channels, elements: Vec::new() };
        let all = streams.all_channels();
        let element = |stream: usize| {
            let (channel, antenna) = (streams.channel(stream), stream / polarizations / all);
            let copy = channel % channels % copies;
            let row = (copy * recorded.antennas + antenna) * polarizations + stream % polarizations;
            row * all + streams.in_bank(channel)
        };
        streams.elements = (0..recorded.antennas * all * polarizations).map(element).collect();
        streams
    }

    /// Channels of an antenna.
    fn all_channels(&self) -> usize {
        self.places.len() * self.channels
    }

    /// A stream's channel.
    fn channel(&self, stream: usize) -> usize {
        stream / self.polarizations % self.all_channels()
    }

    /// The filter bank's place of an output channel.
    fn in_bank(&self, channel: usize) -> usize {
        self.places[channel / self.channels] * self.channels + channel % self.channels
    }

    /// Gains of output channels in the filter bank's order.
    fn in_bank_order(&self, gains: &[f32]) -> Vec<f32> {
        let mut sorted = vec![0.0; gains.len()];
        gains.iter().enumerate().for_each(|(channel, gain)| sorted[self.in_bank(channel)] = *gain);
        sorted
    }
}

fn check(options: &ChannelizeOptions) -> Result<()> {
    let rule = "voltages are not detected, so there is nothing to sum or to interpolate";
    if options.integrate != 1 {
        return Err(Error::parameter("--integrate", options.integrate, rule));
    }
    if options.average_channels != 1 {
        return Err(Error::parameter("--average-channels", options.average_channels, rule));
    }
    if options.interpolate_dc {
        return Err(Error::parameter("--dc", "set", rule));
    }
    Ok(())
}

fn given(gains: &[f32], header: &VoltageHeader) -> Result<Vec<f32>> {
    let channels = header.coarse_channels();
    if let [one] = gains {
        return Ok(vec![*one; channels]);
    }
    crate::view::check_length("gains (one a channel)", channels, gains.len())?;
    Ok(gains.to_vec())
}

fn header(
    recorded: &VoltageHeader,
    plan: &Plan,
    centres_hz: Vec<f64>,
    bits: usize,
) -> VoltageHeader {
    let start = recorded.start.plus_s(plan.delay_samples() * recorded.tsamp_s);
    let options = plan.options();
    VoltageHeader {
        format: "channelized voltages",
        start: if recorded.start.day == 0 { recorded.start } else { start },
        tsamp_s: plan.hop() as f64 * recorded.tsamp_s,
        centres_hz,
        encoding: if bits == 4 { VoltageEncoding::Complex4 } else { VoltageEncoding::Complex8 },
        scale: 1.0,
        recorded_bits: bits,
        times: recorded.times.map(|times| plan.rows(times)),
        filter: Some(FilterGeometry {
            channels: plan.channels(),
            taps: plan.taps(),
            window: options.window.name(),
            oversampling: options.oversampling,
        }),
        ..recorded.clone()
    }
}
