//! Grid of sub-bands and time bins, accumulated from a stream of rows.

use super::options::Options;
use crate::error::Result;
use crate::io::{FilterbankHeader, FilterbankSource};
use crate::sample::unpack_f32;
use crate::units::dispersion_delay_s;

/// Largest number of cells (sub-band, time) in a cutout: some 400 MB.
const MOST_CELLS: usize = 48 << 20;

/// Bins of the noise estimate per bin shown, so that medians and deviations are stable.
const BINS_PER_BIN_SHOWN: usize = 4;

/// Limit in bytes per read.
const GULP_BYTES: usize = 4 << 20;

/// Power dedispersed at the candidate's dispersion measure; axes sub-band, bin.
pub(super) struct Grid {
    /// Sub-bands, highest frequency first.
    pub(super) subbands: usize,
    /// Bins, including those outside the plot.
    pub(super) bins: usize,
    /// Samples in a bin.
    pub(super) factor: usize,
    /// First sample of the first bin at the highest frequency; may precede the data.
    pub(super) start: i64,
    /// Bins before the first one of the noise estimate.
    pub(super) pad: usize,
    /// Sampling time in seconds.
    pub(super) tsamp_s: f64,
    /// Mean frequency of each sub-band in Hz; NaN if all its channels are masked.
    pub(super) centres_hz: Vec<f64>,
    /// Used channels of each sub-band.
    pub(super) used: Vec<usize>,
    /// Highest and lowest edge of the band in Hz.
    pub(super) edges_hz: (f64, f64),
    /// Highest channel centre in Hz.
    pub(super) reference_hz: f64,
    /// Sums of each cell, then means.
    pub(super) power: Vec<f32>,
    counts: Vec<u32>,
    channels: Vec<Channel>,
}

/// Extent of a grid.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) subbands: usize,
    pub(super) bins: usize,
    factor: usize,
    pad: usize,
    /// First row of the grid; may precede the data.
    pub(super) start: i64,
    /// Row after the last row of the grid.
    pub(super) end: i64,
}

impl Shape {
    pub(super) fn new(header: &FilterbankHeader, options: &Options) -> Self {
        let band = &header.band;
        let tsamp_s = header.tsamp_s;
        let width = options.width_s / tsamp_s;
        let factor = ((width / options.bins_per_width as f64) as usize).max(1);
        let bin_s = factor as f64 * tsamp_s;
        let reach = (options.dms.1 - options.dm).max(options.dm - options.dms.0).max(0.0);
        let sweep = |dm| {
            let lowest = band.lowest_hz();
            dispersion_delay_s(dm, lowest, band.highest_hz(), options.dm_constant)
        };
        let pad = (sweep(reach) / bin_s).ceil() as usize + 1;
        let bins = options.times * BINS_PER_BIN_SHOWN + 2 * pad;
        let mut subbands = options.channels.min(band.channels());
        while subbands > 16 && subbands * bins > MOST_CELLS {
            subbands = subbands.div_ceil(2);
        }
        let middle = (options.time_s / tsamp_s).round() as i64;
        let start = middle - (bins / 2 * factor) as i64 - (factor / 2) as i64;
        let longest = (sweep(options.dm) / tsamp_s).round_ties_even().max(0.0) as i64;
        let end = start.saturating_add((bins * factor) as i64).saturating_add(longest);
        Self { subbands, bins, factor, pad, start, end }
    }

    /// Returns the bytes of the cells and their counts.
    pub(super) fn bytes(&self) -> usize {
        8 * self.subbands * self.bins
    }
}

/// Returns the rows per read.
pub(super) fn gulp_rows(header: &FilterbankHeader) -> usize {
    (GULP_BYTES / header.row_bytes().max(1)).max(1)
}

/// Sub-band and shift of one used channel.
struct Channel {
    index: usize,
    subband: usize,
    shift: i64,
}

impl Grid {
    pub(super) fn new(header: &FilterbankHeader, options: &Options) -> Self {
        let band = &header.band;
        let tsamp_s = header.tsamp_s;
        let Shape { subbands, bins, factor, pad, start, .. } = Shape::new(header, options);
        let mut grid = Self {
            subbands,
            bins,
            factor,
            pad,
            tsamp_s,
            start,
            centres_hz: Vec::new(),
            used: vec![0; subbands],
            edges_hz: (
                band.highest_hz() + 0.5 * band.channel_width_hz(),
                band.lowest_hz() - 0.5 * band.channel_width_hz(),
            ),
            reference_hz: band.highest_hz(),
            power: vec![0.0; subbands * bins],
            counts: vec![0; subbands * bins],
            channels: Vec::new(),
        };
        grid.sort_channels(header, options);
        grid
    }

    /// Assigns each unmasked channel to a sub-band and computes its shift.
    fn sort_channels(&mut self, header: &FilterbankHeader, options: &Options) {
        let centres = header.band.centres_hz();
        let mut order: Vec<usize> = (0..centres.len()).collect();
        order.sort_by(|a, b| centres[*b].total_cmp(&centres[*a]));
        let mut sums = vec![0.0; self.subbands];
        for (rank, index) in order.into_iter().enumerate() {
            if options.masked.get(index).copied().unwrap_or(false) {
                continue;
            }
            let subband = rank * self.subbands / centres.len();
            let frequency = centres[index];
            let delay =
                dispersion_delay_s(options.dm, frequency, self.reference_hz, options.dm_constant);
            let shift = (delay / self.tsamp_s).round_ties_even() as i64;
            self.channels.push(Channel { index, subband, shift });
            self.used[subband] += 1;
            sums[subband] += frequency;
        }
        self.centres_hz = sums.iter().zip(&self.used).map(|(sum, n)| sum / *n as f64).collect();
    }

    /// Reads all rows that contribute to the grid and computes the means.
    pub(super) fn read(
        &mut self,
        source: &mut dyn FilterbankSource,
        options: &Options,
    ) -> Result<()> {
        let header = source.header().clone();
        let row_bytes = header.row_bytes();
        let longest = self.channels.iter().map(|c| c.shift).max().unwrap_or(0);
        let first = self.start.max(0);
        let end = self.start + (self.bins * self.factor) as i64 + longest;
        if end <= first || source.skip(first as u64)? < first as u64 {
            self.average();
            return Ok(());
        }
        let gulp = gulp_rows(&header);
        let mut rows = vec![0u8; gulp * row_bytes];
        let mut spectrum = vec![0f32; header.channels()];
        let mut time = first;
        while time < end {
            let wanted = gulp.min((end - time) as usize);
            let got = source.read(&mut rows[..wanted * row_bytes])?;
            for row in rows[..got * row_bytes].chunks_exact(row_bytes) {
                unpack_f32(row, header.encoding, &mut spectrum);
                self.add(time, &spectrum, options.zero_dm);
                time += 1;
            }
            if got < wanted {
                break;
            }
        }
        self.average();
        Ok(())
    }

    /// Adds a row.
    pub(super) fn add(&mut self, time: i64, spectrum: &[f32], zero_dm: bool) {
        let mean = if zero_dm && !self.channels.is_empty() {
            let values = self.channels.iter().map(|c| f64::from(spectrum[c.index]));
            let finite = values.filter(|value| value.is_finite());
            let (sum, count) =
                finite.fold((0.0, 0), |(sum, count), value| (sum + value, count + 1));
            (sum / f64::from(count.max(1))) as f32
        } else {
            0.0
        };
        let length = (self.bins * self.factor) as i64;
        for channel in &self.channels {
            let place = time - channel.shift - self.start;
            let value = spectrum[channel.index] - mean;
            if (0..length).contains(&place) && value.is_finite() {
                let bin = (place as u32 / self.factor as u32) as usize;
                let cell = channel.subband * self.bins + bin;
                self.power[cell] += value;
                self.counts[cell] += 1;
            }
        }
    }

    /// Divides the sums by their counts.
    pub(super) fn average(&mut self) {
        for (power, count) in self.power.iter_mut().zip(&self.counts) {
            *power = if *count > 0 { *power / *count as f32 } else { f32::NAN };
        }
        self.counts = Vec::new();
    }
}
