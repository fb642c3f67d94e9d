//! Data around one candidate, scaled to the size of a plot.
//!
//! Invariant: the file is read once and in order, a gulp at a time; what is kept has the size of the
//! plot and not of the recording.

use std::ops::Range;

use crate::error::{Error, Result};
use crate::io::{FilterbankHeader, FilterbankSource};
use crate::math::{median, median_and_sigma};
use crate::sample::unpack_f32;
use crate::units::{HZ_PER_MHZ, dispersion_delay_s};

/// Limit in bytes on the grids filled at the same time, unless a single one is larger.
const MAX_BYTES: usize = 256 << 20;

/// Data around a candidate, highest frequency first.
#[derive(Clone, Debug, PartialEq)]
pub struct Cutout {
    /// Dedispersed power of each sub-band in standard deviations; axes channel, time. NaN without data.
    pub waterfall: Vec<f32>,
    /// Sub-bands of the waterfall.
    pub channels: usize,
    /// Time bins.
    pub times: usize,
    /// Upper edge of the band in MHz.
    pub highest_mhz: f64,
    /// Lower edge of the band in MHz.
    pub lowest_mhz: f64,
    /// Start of the first bin in seconds relative to the candidate's time (negative).
    pub start_s: f64,
    /// Length of a time bin in seconds.
    pub bin_s: f64,
    /// Series at the candidate's dispersion measure, in standard deviations of a bin.
    pub profile: Vec<f32>,
    /// Trials of the DM-time plane.
    pub dms: Vec<f64>,
    /// Series of each trial, in standard deviations of a bin; axes dm, time.
    pub plane: Vec<f32>,
    /// Highest S/N of the candidate's boxcar near its time, one per trial.
    pub snr: Vec<f32>,
}

/// Cuts out the data around a candidate, from a source at its first sample.
///
/// The band is first dedispersed into sub-bands at the candidate's dispersion measure; other trials shift whole
/// sub-bands. Far from the candidate the plane is therefore coarser than a search's.
///
/// # Errors
/// [`Error::Parameter`] for invalid options; errors of the source's reads.
pub fn cutout(source: &mut dyn FilterbankSource, options: &Options) -> Result<Cutout> {
    section(source, options).map(Section::cutout)
}

/// Bins the rows around a candidate, from a source at its first sample.
///
/// # Errors
/// As [`cutout`].
pub fn section(source: &mut dyn FilterbankSource, options: &Options) -> Result<Section> {
    check(source.header(), options)?;
    let mut grid = Grid::new(source.header(), options);
    grid.read(source, options)?;
    Ok(Section { grid, options: options.clone() })
}

/// Binned rows around a candidate, before they are scaled.
pub struct Section {
    grid: Grid,
    options: Options,
}

impl Section {
    /// Returns the bytes that a section of a recording occupies.
    ///
    /// # Errors
    /// [`Error::Parameter`] for invalid options.
    pub fn bytes(header: &FilterbankHeader, options: &Options) -> Result<usize> {
        check(header, options)?;
        Ok(Shape::new(header, options).bytes())
    }

    /// Returns the rows that a section needs; the first may precede the data.
    ///
    /// # Errors
    /// [`Error::Parameter`] for invalid options.
    pub(super) fn rows(header: &FilterbankHeader, options: &Options) -> Result<Range<i64>> {
        check(header, options)?;
        let Shape { start, end, .. } = Shape::new(header, options);
        Ok(start..end)
    }

    /// Computes the cutout: dedisperses the sub-bands to each trial and scales all to standard deviations.
    pub fn cutout(self) -> Cutout {
        let Self { mut grid, options } = self;
        grid.average();
        grid.cutout(&options)
    }
}

/// Bins the rows around several candidates in one pass over a source at its first sample. `each` receives the
/// sections with their indices in `wanted`, in any order, and may scale them on another thread. Returns the indices of
/// candidates for which memory did not suffice beside the others; they need another pass.
///
/// # Errors
/// As [`cutout`] and `each`; [`Error::stopped`] when `goes_on`, called before each read, returns
/// false.
pub fn sections(
    source: &mut dyn FilterbankSource,
    wanted: &[Options],
    goes_on: &mut dyn FnMut() -> bool,
    each: &mut dyn FnMut(usize, Section) -> Result<()>,
) -> Result<Vec<usize>> {
    wanted.iter().try_for_each(|options| check(source.header(), options))?;
    let header = source.header().clone();
    let shapes: Vec<Shape> = wanted.iter().map(|options| Shape::new(&header, options)).collect();
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by_key(|place| shapes[*place].start);
    let mut waiting = order.into_iter().peekable();
    let (mut open, mut left): (Vec<(usize, Grid)>, Vec<usize>) = (Vec::new(), Vec::new());
    let gulp = gulp_rows(&header);
    let mut rows = vec![0u8; gulp * header.row_bytes()];
    let mut spectrum = vec![0f32; header.channels()];
    let (mut row, mut is_over) = (0i64, false);
    loop {
        if !goes_on() {
            return Err(Error::stopped(&header.path));
        }
        if open.is_empty() {
            let Some(next) = waiting.peek() else { break };
            // Skipped in steps, so that a stop takes effect.
            let ahead = (shapes[*next].start - row).min(gulp as i64);
            if ahead > 0 && !is_over {
                let passed = source.skip(ahead as u64)?;
                row += passed as i64;
                is_over = passed < ahead as u64;
                continue;
            }
        }
        let begins = |place: &usize| is_over || shapes[*place].start < row + gulp as i64;
        while let Some(place) = waiting.next_if(begins) {
            let held: usize = open.iter().map(|(place, _)| shapes[*place].bytes()).sum();
            if open.is_empty() || held + shapes[place].bytes() <= MAX_BYTES {
                open.push((place, Grid::new(&header, &wanted[place])));
            } else {
                left.push(place);
            }
        }
        let got = if is_over { 0 } else { source.read(&mut rows)? };
        is_over |= got < gulp;
        for bytes in rows[..got * header.row_bytes()].chunks_exact(header.row_bytes()) {
            unpack_f32(bytes, header.encoding, &mut spectrum);
            for (place, grid) in &mut open {
                grid.add(row, &spectrum, wanted[*place].zero_dm);
            }
            row += 1;
        }
        let is_done = |place: usize| is_over || shapes[place].end <= row;
        let (done, rest) = open.into_iter().partition(|(place, _)| is_done(*place));
        open = rest;
        let done: Vec<(usize, Grid)> = done;
        for (place, grid) in done {
            each(place, Section { grid, options: wanted[place].clone() })?;
        }
    }
    Ok(left)
}

/// Parameters of a cutout.
#[derive(Clone, Debug)]
pub struct Options {
    /// Dispersion measure of the candidate, pc cm^-3.
    pub dm: f64,
    /// Centre of the candidate's boxcar at the highest frequency, seconds from the first sample.
    pub time_s: f64,
    /// Width of the boxcar in seconds.
    pub width_s: f64,
    /// Dispersion constant, s MHz^2 pc^-1 cm^3.
    pub dm_constant: f64,
    /// Masked channels, in recorded order; empty means none.
    pub masked: Vec<bool>,
    /// Whether each spectrum's mean is subtracted.
    pub zero_dm: bool,
    /// Largest number of sub-bands of the waterfall; limited by the number of channels.
    pub channels: usize,
    /// Time bins.
    pub times: usize,
    /// Time bins across the candidate's width, if the sampling allows.
    pub bins_per_width: usize,
    /// Lowest and highest trial of the DM-time plane, and the number of trials.
    pub dms: (f64, f64, usize),
}

impl Options {
    /// Options for a plot: 4 bins per width, and trials out to where the pulse disappears in the noise.
    ///
    /// `smearing_s` is the delay across the band per unit of DM.
    pub fn plot(dm: f64, time_s: f64, width_s: f64, smearing_s: f64) -> Self {
        let reach = 12.0 * width_s / smearing_s.max(1e-12);
        // Bound the range for narrow bands, so that the candidate's position on the DM axis stays visible.
        let reach = reach.clamp(1e-3, dm.max(20.0) * 2.0);
        let dms = ((dm - reach).max(0.0), dm + reach, 161);
        let dm_constant = crate::units::DM_CONSTANT;
        Self {
            dm,
            time_s,
            width_s,
            dm_constant,
            dms,
            masked: Vec::new(),
            zero_dm: false,
            channels: 256,
            times: 192,
            bins_per_width: 4,
        }
    }

    /// Options for the FETCH classifier: 256 by 256, 2 bins per width, trials 0 to 2 DM.
    pub fn fetch(dm: f64, time_s: f64, width_s: f64) -> Self {
        let dms = (0.0, 2.0 * dm, 256);
        let (times, bins_per_width) = (256, 2);
        Self { dms, times, bins_per_width, ..Self::plot(dm, time_s, width_s, 1.0) }
    }
}

/// Checks the parameters against a recording.
///
/// # Errors
/// [`Error::Parameter`] naming the parameter, [`Error::Shape`] for the masked channels.
fn check(header: &FilterbankHeader, options: &Options) -> Result<()> {
    let positive = |name, value: f64| {
        let rule = "it must be positive and finite";
        (value.is_finite() && value > 0.0)
            .then_some(())
            .ok_or_else(|| Error::parameter(name, value, rule))
    };
    positive("candidate width (s)", options.width_s)?;
    positive("dispersion constant", options.dm_constant)?;
    if !(options.time_s.is_finite() && options.dm.is_finite()) {
        return Err(Error::parameter("candidate time (s)", options.time_s, "it must be finite"));
    }
    let (low, high, dms) = options.dms;
    if !(low.is_finite() && high.is_finite() && low <= high) {
        return Err(Error::parameter("DM range", format!("{low} to {high}"), "it must rise"));
    }
    if options.channels * options.times * dms * options.bins_per_width == 0 {
        return Err(Error::parameter("cutout size", 0, "no axis may be empty"));
    }
    if !options.masked.is_empty() {
        crate::view::check_length("masked channels", header.channels(), options.masked.len())?;
    }
    Ok(())
}

impl Grid {
    /// Returns the cutout of a filled grid.
    fn cutout(mut self, options: &Options) -> Cutout {
        let deviations = self.remove_baselines();
        let bin_s = self.factor as f64 * self.tsamp_s;
        let noise = self.bins - 2 * self.pad;
        let shown = (noise - options.times) / 2;
        let (low, high, count) = options.dms;
        let step = if count > 1 { (high - low) / (count - 1) as f64 } else { 0.0 };
        let dms: Vec<f64> = (0..count).map(|i| low + i as f64 * step).collect();
        let mut all = vec![0f32; (count + 1) * noise];
        let weighted = self.weighted();
        let offsets = dms.iter().map(|dm| dm - options.dm).chain([0.0]);
        let mut reaches = Vec::with_capacity(count + 1);
        for (series, offset) in all.chunks_mut(noise).zip(offsets) {
            reaches.push(self.series(&weighted, offset, options.dm_constant, series));
        }
        normalize(&mut all, noise);
        let part = |series: &[f32]| series[shown..][..options.times].to_vec();
        let width = (options.width_s / bin_s).round().max(1.0) as usize;
        let snr =
            |(series, reach): (&[f32], &usize)| highest_boxcar(series, width, reach + 2 * width);
        let (trials, own) = all.split_at(count * noise);
        let first = self.start + ((self.pad + shown) * self.factor) as i64;
        Cutout {
            waterfall: self.waterfall(options.times, self.pad + shown, &deviations),
            channels: self.subbands,
            times: options.times,
            highest_mhz: self.edges_hz.0 / HZ_PER_MHZ,
            lowest_mhz: self.edges_hz.1 / HZ_PER_MHZ,
            start_s: first as f64 * self.tsamp_s - options.time_s,
            bin_s,
            profile: part(own),
            plane: trials.chunks(noise).flat_map(part).collect(),
            snr: trials.chunks(noise).zip(&reaches).map(snr).collect(),
            dms,
        }
    }

    /// Subtracts each sub-band's median; returns the robust standard deviations.
    fn remove_baselines(&mut self) -> Vec<f32> {
        let deviation = |row: &mut [f32]| {
            let finite = row.iter().filter(|x| x.is_finite()).map(|x| f64::from(*x));
            let (centre, sigma) = median_and_sigma(&mut finite.collect::<Vec<_>>())?;
            row.iter_mut().for_each(|x| *x -= centre as f32);
            // With coarse samples more than half of the bins may be equal; the second moment then replaces the robust
            // estimate.
            (sigma > 0.0).then_some(sigma as f32).or_else(|| moment(row))
        };
        self.power.chunks_mut(self.bins).map(|row| deviation(row).unwrap_or(0.0)).collect()
    }

    /// Returns the cells weighted by the channels of their sub-band, 0 without data.
    fn weighted(&self) -> Vec<f32> {
        let mut weighted = self.power.clone();
        for (row, used) in weighted.chunks_mut(self.bins).zip(&self.used) {
            let weight = *used as f32;
            row.iter_mut().for_each(|x| *x = if x.is_finite() { weight * *x } else { 0.0 });
        }
        weighted
    }

    /// Sums the weighted sub-bands at a dispersion measure `offset` from the candidate's; returns the largest shift in
    /// bins.
    fn series(&self, weighted: &[f32], offset: f64, dm_constant: f64, series: &mut [f32]) -> usize {
        series.fill(0.0);
        let bin_s = self.factor as f64 * self.tsamp_s;
        let mut largest = 0;
        for subband in (0..self.subbands).filter(|s| self.used[*s] > 0) {
            let frequency = self.centres_hz[subband];
            let delay = dispersion_delay_s(offset, frequency, self.reference_hz, dm_constant);
            let most = self.pad as f64;
            let shift = (delay / bin_s).round_ties_even().clamp(-most, most) as i64;
            largest = largest.max(shift.unsigned_abs() as usize);
            let row = &weighted[subband * self.bins..][..self.bins];
            let row = &row[(self.pad as i64 + shift) as usize..][..series.len()];
            series.iter_mut().zip(row).for_each(|(sum, value)| *sum += value);
        }
        largest
    }

    fn waterfall(&self, times: usize, first: usize, deviations: &[f32]) -> Vec<f32> {
        let scaled = |(row, sigma): (&[f32], &f32)| {
            let scale = if *sigma > 0.0 { 1.0 / sigma } else { f32::NAN };
            row[first..][..times].iter().map(|x| x * scale).collect::<Vec<_>>()
        };
        self.power.chunks(self.bins).zip(deviations).flat_map(scaled).collect()
    }
}

/// Returns the standard deviation about 0, if it is positive.
fn moment(row: &[f32]) -> Option<f32> {
    let (sum, count) = row
        .iter()
        .filter(|x| x.is_finite())
        .fold((0f64, 0u32), |(sum, count), x| (sum + f64::from(*x).powi(2), count + 1));
    let sigma = (sum / f64::from(count.max(1))).sqrt() as f32;
    (sigma > 0.0).then_some(sigma)
}

/// Scales series of `times` bins to standard deviations. Each one's median is subtracted, and all are divided by the
/// median of their deviations, so that S/N is smooth in DM. Bins without data (0) stay 0.
fn normalize(all: &mut [f32], times: usize) {
    let mut deviations = Vec::new();
    for series in all.chunks_mut(times) {
        let filled = series.iter().filter(|x| **x != 0.0).map(|x| f64::from(*x));
        let measured = median_and_sigma(&mut filled.collect::<Vec<_>>());
        let Some((centre, sigma)) = measured.filter(|(_, sigma)| *sigma > 0.0) else { continue };
        series.iter_mut().filter(|x| **x != 0.0).for_each(|x| *x -= centre as f32);
        deviations.push(sigma);
    }
    let scale = median(&mut deviations).map_or(0.0, |sigma| 1.0 / sigma as f32);
    all.iter_mut().for_each(|x| *x *= scale);
}

/// Returns the highest S/N of a boxcar centred within `reach` bins of the middle.
fn highest_boxcar(series: &[f32], width: usize, reach: usize) -> f32 {
    let middle = series.len() / 2;
    let first = middle.saturating_sub(reach + width / 2);
    let last = (middle + reach + width.div_ceil(2)).min(series.len());
    let scale = 1.0 / (width as f32).sqrt();
    let best = series[first..last].windows(width).map(|w| w.iter().sum::<f32>() * scale);
    best.fold(0.0, f32::max)
}

/// Largest number of cells (sub-band, time) in a cutout: some 400 MB.
const MAX_CELLS: usize = 48 << 20;

/// Bins of the noise estimate per bin shown, so that medians and deviations are stable.
const BINS_PER_BIN_SHOWN: usize = 4;

/// Limit in bytes per read.
const GULP_BYTES: usize = 4 << 20;

/// Power dedispersed at the candidate's dispersion measure; axes sub-band, bin.
struct Grid {
    /// Sub-bands, highest frequency first.
    subbands: usize,
    /// Bins, including those outside the plot.
    bins: usize,
    /// Samples in a bin.
    factor: usize,
    /// First sample of the first bin at the highest frequency; may precede the data.
    start: i64,
    /// Bins before the first one of the noise estimate.
    pad: usize,
    /// Sampling time in seconds.
    tsamp_s: f64,
    /// Mean frequency of each sub-band in Hz; NaN if all its channels are masked.
    centres_hz: Vec<f64>,
    /// Used channels of each sub-band.
    used: Vec<usize>,
    /// Highest and lowest edge of the band in Hz.
    edges_hz: (f64, f64),
    /// Highest channel centre in Hz.
    reference_hz: f64,
    /// Sums of each cell, then means.
    power: Vec<f32>,
    counts: Vec<u32>,
    channels: Vec<Channel>,
}

/// Extent of a grid.
#[derive(Clone, Copy, Debug)]
struct Shape {
    subbands: usize,
    bins: usize,
    factor: usize,
    pad: usize,
    /// First row of the grid; may precede the data.
    start: i64,
    /// Row after the last row of the grid.
    end: i64,
}

impl Shape {
    fn new(header: &FilterbankHeader, options: &Options) -> Self {
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
        while subbands > 16 && subbands * bins > MAX_CELLS {
            subbands = subbands.div_ceil(2);
        }
        let middle = (options.time_s / tsamp_s).round() as i64;
        let start = middle - (bins / 2 * factor) as i64 - (factor / 2) as i64;
        let longest = (sweep(options.dm) / tsamp_s).round_ties_even().max(0.0) as i64;
        let end = start.saturating_add((bins * factor) as i64).saturating_add(longest);
        Self { subbands, bins, factor, pad, start, end }
    }

    /// Returns the bytes of the cells and their counts.
    fn bytes(&self) -> usize {
        8 * self.subbands * self.bins
    }
}

/// Returns the rows per read.
fn gulp_rows(header: &FilterbankHeader) -> usize {
    (GULP_BYTES / header.row_bytes().max(1)).max(1)
}

/// Sub-band and shift of one used channel.
struct Channel {
    index: usize,
    subband: usize,
    shift: i64,
}

impl Grid {
    fn new(header: &FilterbankHeader, options: &Options) -> Self {
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

    /// Reads all rows that contribute to the grid.
    fn read(&mut self, source: &mut dyn FilterbankSource, options: &Options) -> Result<()> {
        let header = source.header().clone();
        let row_bytes = header.row_bytes();
        let longest = self.channels.iter().map(|c| c.shift).max().unwrap_or(0);
        let first = self.start.max(0);
        let end = self.start + (self.bins * self.factor) as i64 + longest;
        if end <= first || source.skip(first as u64)? < first as u64 {
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
        Ok(())
    }

    /// Adds a row.
    fn add(&mut self, time: i64, spectrum: &[f32], zero_dm: bool) {
        let mean = if zero_dm && !self.channels.is_empty() {
            let values = self.channels.iter().map(|c| f64::from(spectrum[c.index]));
            let finite = values.filter(|value| value.is_finite());
            let (sum, count) =
                finite.fold((0.0, 0), |(sum, count), value| (sum + value, count + 1));
            (sum / f64::from(count.max(1))) as f32
        } else {
            0.0
        };
        let crossed = self.crossed(time);
        for channel in &self.channels[crossed] {
            let value = spectrum[channel.index] - mean;
            if value.is_finite() {
                let place = (time - channel.shift - self.start) as u32;
                let bin = if self.factor == 1 { place } else { place / self.factor as u32 };
                let cell = channel.subband * self.bins + bin as usize;
                self.power[cell] += value;
                self.counts[cell] += 1;
            }
        }
    }

    /// Returns the channels whose sample of a row lies in the grid.
    fn crossed(&self, time: i64) -> Range<usize> {
        let length = (self.bins * self.factor) as i64;
        let place = |channel: &Channel| time - channel.shift - self.start;
        let shifts = (self.channels.first(), self.channels.last());
        // Shifts rise from channel to channel; at a negative dispersion measure they fall.
        if shifts.0.map(|first| first.shift) <= shifts.1.map(|last| last.shift) {
            let first = self.channels.partition_point(|channel| place(channel) >= length);
            first..self.channels.partition_point(|channel| place(channel) >= 0)
        } else {
            let first = self.channels.partition_point(|channel| place(channel) < 0);
            first..self.channels.partition_point(|channel| place(channel) < length)
        }
    }

    /// Divides the sums by their counts.
    fn average(&mut self) {
        for (power, count) in self.power.iter_mut().zip(&self.counts) {
            *power = if *count > 0 { *power / *count as f32 } else { f32::NAN };
        }
        self.counts = Vec::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::Encoding;
    use crate::units::{Band, DM_CONSTANT};

    /// Recording in memory.
    struct Memory {
        header: FilterbankHeader,
        rows: Vec<u8>,
        place: usize,
    }

    impl FilterbankSource for Memory {
        fn header(&self) -> &FilterbankHeader {
            &self.header
        }
        fn read(&mut self, rows: &mut [u8]) -> Result<usize> {
            let bytes = rows.len().min(self.rows.len() - self.place);
            rows[..bytes].copy_from_slice(&self.rows[self.place..][..bytes]);
            self.place += bytes;
            Ok(bytes / self.header.row_bytes())
        }
        fn skip(&mut self, times: u64) -> Result<u64> {
            let row_bytes = self.header.row_bytes();
            let times = times.min(((self.rows.len() - self.place) / row_bytes) as u64);
            self.place += times as usize * row_bytes;
            Ok(times)
        }
    }

    const TSAMP_S: f64 = 1e-3;

    /// Noise of a small generator, and one pulse of `width` samples that starts at `time` at the highest frequency.
    fn recording(band: &Band, times: usize, dm: f64, time: usize, width: usize) -> Memory {
        let channels = band.channels();
        let mut state = 1u64;
        let mut noise = move || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 59) as u8
        };
        let mut rows: Vec<u8> = (0..times * channels).map(|_| 40 + noise()).collect();
        for (c, frequency) in band.centres_hz().iter().enumerate() {
            let delay = dispersion_delay_s(dm, *frequency, band.highest_hz(), DM_CONSTANT);
            let start = time + (delay / TSAMP_S).round() as usize;
            (start..start + width)
                .filter(|t| *t < times)
                .for_each(|t| rows[t * channels + c] += 30);
        }
        let header = FilterbankHeader {
            path: "memory".into(),
            format: "memory",
            source_name: String::new(),
            telescope: String::new(),
            ra_deg: None,
            dec_deg: None,
            beam: None,
            tstart_mjd: 0.0,
            tsamp_s: TSAMP_S,
            band: band.clone(),
            encoding: Encoding::U8,
            recorded_bits: 8,
            recorded_polarizations: 1,
            times: Some(times as u64),
        };
        Memory { header, rows, place: 0 }
    }

    fn brightest(values: &[f32]) -> usize {
        let finite = values.iter().enumerate().filter(|(_, x)| x.is_finite());
        finite.max_by(|a, b| a.1.total_cmp(b.1)).unwrap().0
    }

    fn cut(band: &Band, time: usize, width: usize) -> Cutout {
        let mut source = recording(band, 4000, 60.0, time, width);
        let time_s = (time as f64 + 0.5 * width as f64) * TSAMP_S;
        let sweep = dispersion_delay_s(1.0, band.lowest_hz(), band.highest_hz(), DM_CONSTANT);
        let options = Options::plot(60.0, time_s, width as f64 * TSAMP_S, sweep);
        cutout(&mut source, &options).unwrap()
    }

    #[test]
    fn a_pulse_lies_in_the_middle_at_its_dispersion_measure() {
        for (first, step) in [(1500.0, -2.0), (1300.0, 2.0)] {
            let band = Band::uniform(first, step, 128).unwrap();
            let cutout = cut(&band, 1500, 8);
            let bin = brightest(&cutout.profile);
            let time_s = cutout.start_s + (bin as f64 + 0.5) * cutout.bin_s;
            assert!(time_s.abs() <= 4.1 * TSAMP_S, "{time_s}");
            assert!((cutout.dms[brightest(&cutout.snr)] - 60.0).abs() < 2.0);
            let row = brightest(&cutout.plane) / cutout.times;
            assert!((cutout.dms[row] - 60.0).abs() < 4.0);
            for subband in cutout.waterfall.chunks(cutout.times) {
                assert!(brightest(subband).abs_diff(bin) <= 4);
            }
        }
    }

    #[test]
    fn the_edges_of_a_recording_are_blank_and_harmless() {
        let band = Band::uniform(1500.0, -2.0, 64).unwrap();
        for time in [2, 3990] {
            let cutout = cut(&band, time, 4);
            assert_eq!(cutout.waterfall.len(), cutout.channels * cutout.times);
            assert!(cutout.waterfall.iter().any(|x| x.is_nan()));
            assert!(cutout.profile.iter().chain(&cutout.plane).all(|x| x.is_finite()));
            assert!(cutout.snr.iter().all(|x| x.is_finite()));
        }
    }

    #[test]
    fn masked_channels_are_blank_and_the_rest_is_as_it_was() {
        let band = Band::uniform(1500.0, -2.0, 64).unwrap();
        let mut source = recording(&band, 4000, 60.0, 1500, 4);
        let mut options = Options::plot(60.0, 1.502, 4e-3, 1e-3);
        options.masked = (0..64).map(|c| c % 8 == 0).collect();
        options.zero_dm = true;
        let cutout = cutout(&mut source, &options).unwrap();
        for (subband, row) in cutout.waterfall.chunks(cutout.times).enumerate() {
            assert_eq!(row.iter().all(|x| x.is_nan()), subband % 8 == 0);
        }
    }

    #[test]
    fn wrong_options_are_refused() {
        let band = Band::uniform(1500.0, -2.0, 64).unwrap();
        let mut source = recording(&band, 100, 60.0, 15, 4);
        let good = Options::plot(60.0, 0.015, 4e-3, 1e-3);
        for bad in [
            Options { width_s: 0.0, ..good.clone() },
            Options { time_s: f64::NAN, ..good.clone() },
            Options { dms: (2.0, 1.0, 8), ..good.clone() },
            Options { times: 0, ..good.clone() },
            Options { masked: vec![true; 3], ..good },
        ] {
            assert!(cutout(&mut source, &bad).is_err());
        }
    }

    #[test]
    fn one_pass_cuts_out_what_single_ones_do() {
        let band = Band::uniform(1500.0, -2.0, 128).unwrap();
        let sweep = dispersion_delay_s(1.0, band.lowest_hz(), band.highest_hz(), DM_CONSTANT);
        // The last two lie after the end and before the start; two need samples while another grid is open.
        let wanted: Vec<Options> = [1.504, 0.01, 3.2, 1.504, 90.0, -3.0]
            .map(|time_s| Options {
                zero_dm: time_s > 3.0,
                ..Options::plot(60.0, time_s, 0.008, sweep)
            })
            .into();
        let source = || recording(&band, 4000, 60.0, 1500, 8);
        let mut found = vec![None; wanted.len()];
        let mut keep = |place: usize, section: Section| {
            assert!(found[place].replace(section.cutout()).is_none());
            Ok(())
        };
        assert!(sections(&mut source(), &wanted, &mut || true, &mut keep).unwrap().is_empty());
        for (options, found) in wanted.iter().zip(found) {
            let (alone, found) = (cutout(&mut source(), options).unwrap(), found.unwrap());
            // Blank cells are NaN.
            assert_eq!(format!("{found:?}"), format!("{alone:?}"));
        }
        // Grids of 120 MB each: two fit at a time.
        let large = Options { times: 30_000, ..wanted[0].clone() };
        let wanted = vec![large; 3];
        let mut count = 0;
        let mut drop = |_: usize, _: Section| {
            count += 1;
            Ok(())
        };
        assert_eq!(sections(&mut source(), &wanted, &mut || true, &mut drop).unwrap(), [2]);
        let stopped = sections(&mut source(), &wanted, &mut || false, &mut drop).unwrap_err();
        assert_eq!(count, 2);
        assert!(stopped.is_stop());
    }
}
