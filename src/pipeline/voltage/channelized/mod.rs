//! Channelized voltages: filter-bank spectra requantized to integers and read as a recording of more channels.
//!
//! Invariant: gains depend on the first spectra alone, never on how the voltages are read.

mod flags;
mod gains;
mod streams;

use flags::Flags;
use gains::Measured;
pub(in crate::pipeline) use gains::deviation;
use streams::Streams;

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

/// Bytes of spectra computed before they are transposed into streams.
const ROWS_BYTES: usize = 1 << 20;

/// Spectra transposed per tile; few, so that all their cache lines stay in the cache.
const TILE: usize = 8;

/// Requantization of spectra to integers.
#[derive(Clone, Debug, PartialEq)]
pub struct Requantization {
    /// Bits of each real component: 8 or 4.
    pub bits: usize,
    /// Gain of each channel.
    pub gains: Gains,
}

/// Gains of channels; antennas and polarizations share them.
#[derive(Clone, Debug, PartialEq)]
pub enum Gains {
    /// Scales the real and imaginary parts to a standard deviation of 20 counts for 8 bits, 2.8 for 4. The power of
    /// up to 1024 spectra sets the gains; spectra at the start that are flagged in all streams are skipped. Channels
    /// flagged in all of those spectra get the median gain of the others. 20 counts leave a range of 6 standard
    /// deviations, and rounding adds 1/4800 of the variance. Near 2.8 counts, rounding and saturation together add
    /// least to Gaussian noise, 1.2 % of the variance.
    ///
    /// # Source
    /// Max 1960, IRE Transactions on Information Theory 6, 7 (quantizing for least distortion).
    Automatic,
    /// One per output channel, in output order, or one for all.
    Given(Vec<f32>),
}

/// Channelized voltages of 8 or 4 bits, computed as they are read.
///
/// | buffer | axes                                        | type               | access      |
/// |--------|---------------------------------------------|--------------------|-------------|
/// | block  | antenna, channel, polarization, time        | complex 8 or 4 bit | overwritten |
///
/// Channels ascend in the voltages' frequency. Their sky frequencies also ascend, or descend in a lower sideband. A
/// spectrum whose window contains flagged samples is zero and flagged, in both polarizations.
pub struct ChannelizedVoltages {
    header: VoltageHeader,
    geometry: Geometry,
    gains: Vec<f32>,
    spectra: Spectra<u8>,
    streams: Streams,
    flags: Flags,
    not_finite: Arc<AtomicU64>,
    rows: Vec<u8>,
    /// Number of the next spectrum; spectra from here to the filter bank's next one are flagged in all streams.
    row: u64,
    warnings: Vec<String>,
}

impl std::fmt::Debug for ChannelizedVoltages {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChannelizedVoltages").field("header", &self.header).finish_non_exhaustive()
    }
}

impl ChannelizedVoltages {
    /// Binds a recording to its filter bank; automatic gains read its beginning. The detection options (`products`,
    /// `ascending`) have no effect.
    ///
    /// # Errors
    /// [`Error::Parameter`] naming an option that does not fit the recording, or has no meaning for voltages (sums
    /// over spectra or channels); [`Error::Shape`] when the number of gains differs from the output channels; errors
    /// of the source.
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

    /// Returns the samples read so far that were not finite, in a recording of floats; zeros replaced them.
    pub fn not_finite(&self) -> u64 {
        self.not_finite.load(Ordering::Relaxed)
    }

    /// Returns the filter bank's parameters.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Returns the gain of each channel, in output order.
    pub fn gains(&self) -> &[f32] {
        &self.gains
    }

    /// Returns the complex samples of each stream that saturated so far.
    pub fn saturated(&self) -> Vec<u64> {
        let all = self.spectra.saturated();
        self.streams.elements.iter().map(|element| all[*element]).collect()
    }

    /// Sets a callback that runs before each block of voltages; returning false ends the spectra with
    /// [`Error::stopped`].
    pub fn watched_by(&mut self, watch: Watch) {
        self.spectra.watched_by(watch);
    }

    /// Fills a block with the next spectra and returns their number. It is below the capacity only at the end of the
    /// data or before an error, which the next call returns.
    ///
    /// # Errors
    /// [`Error::Shape`]; errors of the source and the filter bank; [`Error::stopped`].
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
        let most = (ROWS_BYTES / row).max(TILE);
        let first = self.row;
        let lead = self.spectra.row() - first;
        let mut done = lead.min(block.capacity() as u64) as usize;
        while done < block.capacity() {
            let wanted = most.min(block.capacity() - done);
            self.rows.resize(most * row, 0);
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

    /// Transposes spectra into streams, after the `done` samples that the block holds.
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

fn check(options: &ChannelizeOptions) -> Result<()> {
    let rule = "voltages are not detected, so there is nothing to sum or to interpolate";
    if options.integrate != 1 {
        return Err(Error::parameter("integrate", options.integrate, rule));
    }
    if options.average_channels != 1 {
        return Err(Error::parameter("average_channels", options.average_channels, rule));
    }
    if options.interpolate_dc {
        return Err(Error::parameter("interpolate_dc", "set", rule));
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
