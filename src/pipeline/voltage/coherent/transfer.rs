//! Filter that removes a known dispersion within each channel.

use std::f64::consts::TAU;

use num_complex::Complex;

use crate::error::{Error, Result};
use crate::io::voltages::VoltageHeader;
use crate::pipeline::voltage::layout::sideband;
use crate::units::{HZ_PER_MHZ, dispersion_delay_s};

/// Largest transform length.
const MAX_POINTS: usize = 1 << 26;

/// Smallest transform length; below it, distributing blocks to threads takes longer than transforming them.
const MIN_POINTS: usize = 1 << 12;

/// Limit in bytes on all filters.
const MAX_BYTES: usize = 2 << 30;

/// Blocks and overlaps are multiples of this, so that sources skip whole bytes.
const STEP: usize = 4;

/// Parameters of the filters.
#[derive(Clone, Debug)]
pub(super) struct Request {
    /// Dispersion measure.
    pub(super) dm: f64,
    /// Dispersion constant.
    pub(super) dm_constant: f64,
    /// Frequency in Hz of each output channel in a recorded channel's voltages, relative to its middle.
    pub(super) offsets_hz: Vec<f64>,
    /// Transform points of the filter bank that follows.
    pub(super) points: usize,
}

/// Filters for two copies of each stream: one serves the even output channels, one the odd. In each copy a channel's
/// filter extends to the centres of the adjacent channels, so that channels may overlap as in a filter bank.
#[derive(Clone, Debug)]
pub(super) struct Transfer {
    /// Transform length in samples.
    pub(super) points: usize,
    /// Samples discarded at each end of a block.
    pub(super) overlap: usize,
    /// Longest delay that a filter removes, in samples.
    pub(super) reach: usize,
    /// One filter per recorded channel and copy, over the transform's bins.
    filters: Vec<[Vec<Complex<f32>>; 2]>,
}

impl Transfer {
    /// Computes filters as short as the delay within a channel allows.
    ///
    /// # Errors
    /// [`Error::Parameter`] for a dispersion measure that is negative or not finite, or whose filters are too long,
    /// or longer than the recording.
    pub(super) fn new(header: &VoltageHeader, request: &Request) -> Result<Self> {
        if !(request.dm.is_finite() && request.dm >= 0.0) {
            let rule = "it must be 0 or more";
            return Err(Error::parameter("coherent_dm", request.dm, rule));
        }
        let width = header.channel_width_hz() / request.offsets_hz.len() as f64;
        let delay = delay_s(header, request, width) / header.tsamp_s;
        // Responses outside the channel decay within one window of the filter bank.
        let overlap = (delay + request.points as f64).ceil();
        let channels = header.coarse_channels();
        let most = MAX_POINTS.min(MAX_BYTES / (16 * channels));
        if 8.0 * overlap > most as f64 {
            let rule = format!(
                "in channels of {:.6} MHz it takes filters of {overlap:.0} samples, and at most {} are \
                 possible; more channels make them shorter",
                width / HZ_PER_MHZ,
                most / 8,
            );
            return Err(Error::parameter("coherent_dm", request.dm, rule));
        }
        if let Some(times) = header.times.filter(|times| delay >= *times as f64) {
            let rule = format!(
                "in channels of {:.6} MHz it delays by {delay:.0} samples, and there are {times} of each \
                 stream",
                width / HZ_PER_MHZ,
            );
            return Err(Error::parameter("coherent_dm", request.dm, rule));
        }
        let overlap = (overlap as usize).next_multiple_of(STEP);
        let points = (8 * overlap).next_power_of_two().max(MIN_POINTS);
        let filters = header
            .centres_hz
            .iter()
            .map(|centre| [0, 1].map(|copy| filter(header, request, *centre, copy, points)));
        let filters = filters.collect();
        Ok(Self { points, overlap, reach: delay.ceil() as usize, filters })
    }

    /// Returns the valid output samples of a block.
    pub(super) fn kept(&self) -> usize {
        self.points - 2 * self.overlap
    }

    /// Returns the filter for a copy of a recorded channel.
    pub(super) fn filter(&self, coarse: usize, copy: usize) -> &[Complex<f32>] {
        &self.filters[coarse][copy]
    }
}

/// Returns the longest delay in seconds across one channel width, at the lowest frequency.
fn delay_s(header: &VoltageHeader, request: &Request, width: f64) -> f64 {
    let lowest = header.centres_hz.iter().copied().fold(f64::MAX, f64::min);
    let edge = lowest - 0.5 * header.channel_width_hz();
    if edge <= 0.0 {
        return f64::INFINITY;
    }
    dispersion_delay_s(request.dm, edge, edge + width, request.dm_constant)
}

/// Computes one filter: each bin's phase relative to the centre of the nearest even (or odd) channel.
fn filter(
    header: &VoltageHeader,
    request: &Request,
    centre_hz: f64,
    copy: usize,
    points: usize,
) -> Vec<Complex<f32>> {
    let rate = 1.0 / header.tsamp_s;
    let offsets = &request.offsets_hz;
    let first = offsets[copy.min(offsets.len() - 1)];
    let spacing = 2.0 * header.channel_width_hz() / offsets.len() as f64;
    let sign = sideband(header);
    let complex = header.encoding.is_complex();
    let edge = if complex { 0.0 } else { 0.5 * header.channel_width_hz() };
    let bin = |bin: usize| {
        let signed = if bin < points.div_ceil(2) { bin as f64 } else { bin as f64 - points as f64 };
        let frequency = signed * rate / points as f64;
        // Real samples have each frequency twice, the negative one conjugated.
        let offset = if complex { frequency } else { frequency.abs() - edge };
        let middle = first + ((offset - first) / spacing).round() * spacing;
        let turns = turns(request, centre_hz + sign * offset, centre_hz + sign * middle);
        let mirrored = !complex && frequency < 0.0;
        let phase = -TAU * sign * turns.fract() * if mirrored { -1.0 } else { 1.0 };
        let value = Complex::from_polar(1.0 / points as f64, phase);
        Complex::new(value.re as f32, value.im as f32)
    };
    let mut filter: Vec<Complex<f32>> = (0..points).map(bin).collect();
    if !complex {
        // The Nyquist bin is real.
        filter[points / 2].im = 0.0;
    }
    filter
}

/// Returns the dispersive phase in turns at a sky frequency, relative to a channel centre.
///
/// `K DM (f - f_0)^2 / (f f_0^2)`: its slope is the delay of `f` relative to `f_0`.
///
/// # Source
/// Hankins & Rickett 1975, Methods in Computational Physics 14, 55.
fn turns(request: &Request, frequency_hz: f64, middle_hz: f64) -> f64 {
    // K is in s MHz^2; phase in turns is seconds times Hz.
    let constant = request.dm_constant * request.dm * HZ_PER_MHZ * HZ_PER_MHZ;
    let distance = frequency_hz - middle_hz;
    constant * distance * distance / (frequency_hz * middle_hz * middle_hz)
}
