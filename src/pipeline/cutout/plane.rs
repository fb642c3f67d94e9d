//! Plot data from sub-bands: waterfall, profile, DM-time plane and S/N against DM.

use super::Cutout;
use super::grid::Grid;
use super::options::Options;
use crate::math::{median, median_and_sigma};
use crate::units::{HZ_PER_MHZ, dispersion_delay_s};

impl Grid {
    /// Returns the cutout of a filled grid.
    pub(super) fn cutout(mut self, options: &Options) -> Cutout {
        let deviations = self.remove_baselines();
        let bin_s = self.factor as f64 * self.tsamp_s;
        let noise = self.bins - 2 * self.pad;
        let shown = (noise - options.times) / 2;
        let (low, high, count) = options.dms;
        let step = if count > 1 { (high - low) / (count - 1) as f64 } else { 0.0 };
        let dms: Vec<f64> = (0..count).map(|i| low + i as f64 * step).collect();
        let mut all = vec![0f32; (count + 1) * noise];
        let offsets = dms.iter().map(|dm| dm - options.dm).chain([0.0]);
        let mut reaches = Vec::with_capacity(count + 1);
        for (series, offset) in all.chunks_mut(noise).zip(offsets) {
            reaches.push(self.series(offset, options.dm_constant, series));
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

    /// Sums the sub-bands at a dispersion measure `offset` from the candidate's; returns the largest shift in bins.
    fn series(&self, offset: f64, dm_constant: f64, series: &mut [f32]) -> usize {
        series.fill(0.0);
        let bin_s = self.factor as f64 * self.tsamp_s;
        let mut largest = 0;
        for subband in (0..self.subbands).filter(|s| self.used[*s] > 0) {
            let frequency = self.centres_hz[subband];
            let delay = dispersion_delay_s(offset, frequency, self.reference_hz, dm_constant);
            let most = self.pad as f64;
            let shift = (delay / bin_s).round_ties_even().clamp(-most, most) as i64;
            largest = largest.max(shift.unsigned_abs() as usize);
            let row = &self.power[subband * self.bins..][..self.bins];
            let row = &row[(self.pad as i64 + shift) as usize..][..series.len()];
            let weight = self.used[subband] as f32;
            for (sum, value) in series.iter_mut().zip(row) {
                *sum += if value.is_finite() { weight * value } else { 0.0 };
            }
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
