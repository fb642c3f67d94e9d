//! Incoherent sum of recordings of several beams or antennas, read as one recording.
//!
//! Invariant: the sum depends on the recordings alone, never on how rows are read.

use super::flagged::is_flagged;
use super::voltage::merged;
use crate::error::{Error, Result};
use crate::io::{FilterbankHeader, FilterbankSource, Gap, check_same_sampling};
use crate::math::median;
use crate::sample::{Encoding, unpack_f32};
use crate::units::SECONDS_PER_DAY;

/// Rows from which level and noise of each channel are measured.
const MEASURED_ROWS: usize = 1024;

/// Rows of a block, whose mean and deviation are one measurement.
const BLOCK_ROWS: usize = 64;

/// Sum of recordings that have the same channels and sampling time and were made at the same time.
///
/// `y[t, c] = level[c] + noise[c] / sqrt(n) sum_b (x_b[t + start_b, c] - level_b[c]) / noise_b[c]`, where level and noise of a
/// channel are the means of those of its n recordings, and `start_b` is the row of recording b at the latest start of all, to the
/// nearest row. Recordings without a start time begin together. Each recording has the same noise in the sum, so that a burst with
/// the S/N s_b in each has `sum_b s_b / sqrt(n)`; a channel that is constant in a recording is left out of its share.
///
/// Level and noise are the medians of the means and standard deviations of blocks of 64 rows in the first 1024 rows. Samples that
/// are not finite count as the level. The rows are 32-bit floats, from the latest start to the earliest end.
pub struct Summed {
    header: FilterbankHeader,
    inputs: Vec<Input>,
    /// Level of each channel.
    level: Vec<f32>,
    gaps: Vec<Gap>,
    warnings: Vec<String>,
    cut: Option<String>,
    flagged: u64,
    /// Whether a recording has ended.
    is_ended: bool,
}

/// Recording with its share of the sum.
struct Input {
    source: Box<dyn FilterbankSource>,
    /// Rows that were measured and are not read yet.
    ahead: Vec<u8>,
    /// Rows of the current read.
    rows: Vec<u8>,
    values: Vec<f32>,
    /// Level of each channel, and factor of its deviations.
    level: Vec<f32>,
    weight: Vec<f32>,
}

impl Summed {
    /// Sums recordings.
    ///
    /// # Errors
    /// [`Error::Parameter`] for fewer than two; [`Error::Format`] for recordings that differ in channels or sampling time, or that do
    /// not overlap in time; those of the recordings.
    pub fn new(sources: Vec<Box<dyn FilterbankSource>>) -> Result<Self> {
        if sources.len() < 2 {
            let rule = "a sum has two or more";
            return Err(Error::parameter("recordings", sources.len(), rule));
        }
        let headers: Vec<FilterbankHeader> =
            sources.iter().map(|source| source.header().clone()).collect();
        headers[1..].iter().try_for_each(|other| check_same_sampling(&headers[0], other))?;
        let starts = starts(&headers);
        let mut warnings: Vec<String> =
            sources.iter().flat_map(|source| source.warnings().to_vec()).collect();
        let known = headers.iter().filter(|header| header.tstart_mjd > 0.0).count();
        if known < headers.len() {
            let without = headers.len() - known;
            warnings.push(format!(
                "{without} of the {} recordings to sum have no start time; all are taken to begin together.",
                headers.len()
            ));
        }
        let cuts: Vec<&str> = sources.iter().filter_map(|source| source.cut()).collect();
        let cut = (!cuts.is_empty()).then(|| cuts.join("; "));
        let header = header(&headers, &starts)?;
        let gaps = gaps(&sources, &starts, header.times);
        let mut inputs = Vec::with_capacity(sources.len());
        for ((source, start), own) in sources.into_iter().zip(starts).zip(&headers) {
            inputs.push(Input::new(source, start, own)?);
        }
        let level = share(&mut inputs);
        Ok(Self { header, inputs, level, gaps, warnings, cut, flagged: 0, is_ended: false })
    }
}

/// Returns the row of each recording at the latest start.
fn starts(headers: &[FilterbankHeader]) -> Vec<u64> {
    let latest = headers.iter().map(|header| header.tstart_mjd).fold(0.0, f64::max);
    if headers.iter().any(|header| header.tstart_mjd <= 0.0) {
        return vec![0; headers.len()];
    }
    let rows = |header: &FilterbankHeader| {
        ((latest - header.tstart_mjd) * SECONDS_PER_DAY / header.tsamp_s).round() as u64
    };
    headers.iter().map(rows).collect()
}

/// Returns the header of the sum.
fn header(headers: &[FilterbankHeader], starts: &[u64]) -> Result<FilterbankHeader> {
    let first = &headers[0];
    let mut times: Option<u64> = None;
    for (header, start) in headers.iter().zip(starts) {
        let Some(own) = header.times else { continue };
        if own <= *start {
            let why =
                format!("it ends before another recording of the sum begins, at its row {start}");
            return Err(Error::format(&header.path, "tstart", 0, why));
        }
        times = Some(times.map_or(own - start, |times| times.min(own - start)));
    }
    let is_one_place = headers
        .iter()
        .all(|header| (header.ra_deg, header.dec_deg) == (first.ra_deg, first.dec_deg));
    let tstart_mjd = match headers.iter().any(|header| header.tstart_mjd <= 0.0) {
        true => first.tstart_mjd,
        false => headers.iter().map(|header| header.tstart_mjd).fold(0.0, f64::max),
    };
    Ok(FilterbankHeader {
        format: "incoherent sum",
        ra_deg: first.ra_deg.filter(|_| is_one_place),
        dec_deg: first.dec_deg.filter(|_| is_one_place),
        beam: None,
        tstart_mjd,
        encoding: Encoding::F32,
        times,
        ..first.clone()
    })
}

/// Returns the rows of the sum in which some recording has a gap.
fn gaps(sources: &[Box<dyn FilterbankSource>], starts: &[u64], times: Option<u64>) -> Vec<Gap> {
    let end = times.unwrap_or(u64::MAX);
    let mut found = Vec::new();
    for (source, start) in sources.iter().zip(starts) {
        let within = |row: u64| row.saturating_sub(*start).min(end);
        let range = |gap: &Gap| within(gap.start_time)..within(gap.start_time + gap.times);
        found.extend(source.gaps().iter().map(range));
    }
    merged(found)
}

/// Sets the weight of each recording in each channel; returns the level of the sum.
fn share(inputs: &mut [Input]) -> Vec<f32> {
    let channels = inputs[0].level.len();
    let mut level = vec![0.0; channels];
    for (channel, level) in level.iter_mut().enumerate() {
        let noises = inputs.iter().map(|input| input.weight[channel]).filter(|noise| *noise > 0.0);
        let (count, sum) =
            noises.fold((0.0, 0.0), |(count, sum), noise| (count + 1.0, sum + noise));
        let levels: f32 = inputs.iter().map(|input| input.level[channel]).sum();
        *level = levels / inputs.len() as f32;
        for input in &mut *inputs {
            let noise = input.weight[channel];
            let weight = sum / (count * noise * f32::sqrt(count));
            input.weight[channel] = if noise > 0.0 { weight } else { 0.0 };
        }
    }
    level
}

impl Input {
    /// Measures a recording from row `start` on. Its weights are the noise of each channel until [`share`] sets them.
    fn new(
        mut source: Box<dyn FilterbankSource>,
        start: u64,
        header: &FilterbankHeader,
    ) -> Result<Self> {
        let skipped = source.skip(start)?;
        let mut ahead = vec![0; MEASURED_ROWS * header.row_bytes()];
        let rows = if skipped < start { 0 } else { source.read(&mut ahead)? };
        if rows == 0 {
            let why = format!("found no row {start}, expected those of the other recordings' time");
            return Err(Error::format(&header.path, "length", 0, why));
        }
        ahead.truncate(rows * header.row_bytes());
        let channels = header.channels();
        let mut values = vec![0.0; channels];
        let blocks = ahead.chunks(BLOCK_ROWS * header.row_bytes());
        let mut measured = Vec::new();
        for block in blocks {
            let mut moments = vec![Moments::default(); channels];
            for row in block.chunks_exact(header.row_bytes()) {
                unpack_f32(row, header.encoding, &mut values);
                moments.iter_mut().zip(&values).for_each(|(moments, value)| moments.add(*value));
            }
            measured.push(moments);
        }
        let typical = |channel: usize, of: fn(&Moments) -> f64| {
            let own = measured.iter().map(|block| &block[channel]);
            let mut own: Vec<f64> = own.filter(|one| one.count > 1.0).map(of).collect();
            median(&mut own).unwrap_or(0.0) as f32
        };
        let level = (0..channels).map(|channel| typical(channel, Moments::mean)).collect();
        let weight = (0..channels).map(|channel| typical(channel, Moments::deviation)).collect();
        Ok(Self { source, ahead, rows: Vec::new(), values, level, weight })
    }

    /// Reads rows; returns their number, less than `times` only at the end.
    fn read(&mut self, times: usize, row_bytes: usize) -> Result<usize> {
        self.rows.resize(times * row_bytes, 0);
        let measured = self.ahead.len().min(self.rows.len());
        self.rows[..measured].copy_from_slice(&self.ahead[..measured]);
        self.ahead.drain(..measured);
        let read = match measured < self.rows.len() {
            true => self.source.read(&mut self.rows[measured..])?,
            false => 0,
        };
        Ok(measured / row_bytes + read)
    }

    /// Skips rows; returns their number, less than `times` only at the end.
    fn skip(&mut self, times: u64, row_bytes: usize) -> Result<u64> {
        let measured = times.min((self.ahead.len() / row_bytes) as u64);
        self.ahead.drain(..measured as usize * row_bytes);
        Ok(measured + if measured < times { self.source.skip(times - measured)? } else { 0 })
    }
}

/// Sums of the finite samples of a channel.
#[derive(Clone, Copy, Default)]
struct Moments {
    count: f64,
    sum: f64,
    squares: f64,
}

impl Moments {
    fn add(&mut self, value: f32) {
        if !is_flagged(value.to_le_bytes()) {
            let value = f64::from(value);
            self.count += 1.0;
            self.sum += value;
            self.squares += value * value;
        }
    }

    fn mean(&self) -> f64 {
        self.sum / self.count
    }

    fn deviation(&self) -> f64 {
        let variance = (self.squares - self.sum * self.mean()) / (self.count - 1.0);
        // Rounding leaves a small variance of a constant.
        if variance * self.count > 1e-12 * self.squares { variance.sqrt() } else { 0.0 }
    }
}

impl FilterbankSource for Summed {
    fn header(&self) -> &FilterbankHeader {
        &self.header
    }

    fn read(&mut self, rows: &mut [u8]) -> Result<usize> {
        let channels = self.header.channels();
        let mut times = if self.is_ended { 0 } else { rows.len() / (4 * channels) };
        for input in &mut self.inputs {
            let row_bytes = input.source.header().row_bytes();
            times = times.min(input.read(times, row_bytes)?);
        }
        self.is_ended |= times < rows.len() / (4 * channels);
        for (time, row) in rows.chunks_exact_mut(4 * channels).take(times).enumerate() {
            let sums = row.as_chunks_mut::<4>().0;
            sums.iter_mut().zip(&self.level).for_each(|(sum, level)| *sum = level.to_le_bytes());
            for input in &mut self.inputs {
                let header = input.source.header();
                let own = &input.rows[time * header.row_bytes()..][..header.row_bytes()];
                unpack_f32(own, header.encoding, &mut input.values);
                let shares = input.values.iter().zip(&input.level).zip(&input.weight);
                for (sum, ((value, level), weight)) in sums.iter_mut().zip(shares) {
                    if is_flagged(value.to_le_bytes()) {
                        self.flagged += 1;
                        continue;
                    }
                    *sum = (f32::from_le_bytes(*sum) + weight * (value - level)).to_le_bytes();
                }
            }
        }
        Ok(times)
    }

    fn skip(&mut self, times: u64) -> Result<u64> {
        let mut skipped = if self.is_ended { 0 } else { times };
        for input in &mut self.inputs {
            let row_bytes = input.source.header().row_bytes();
            skipped = skipped.min(input.skip(skipped, row_bytes)?);
        }
        self.is_ended |= skipped < times;
        Ok(skipped)
    }

    fn gaps(&self) -> &[Gap] {
        &self.gaps
    }

    fn flagged_samples(&self) -> u64 {
        self.flagged
    }

    fn cut(&self) -> Option<&str> {
        self.cut.as_deref()
    }

    fn warnings(&self) -> &[String] {
        &self.warnings
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::units::Band;

    const CHANNELS: usize = 4;
    const TSAMP_S: f64 = 1e-3;

    /// Recording in memory.
    struct Memory {
        header: FilterbankHeader,
        rows: Vec<u8>,
        at: usize,
        gaps: Vec<Gap>,
    }

    impl FilterbankSource for Memory {
        fn header(&self) -> &FilterbankHeader {
            &self.header
        }
        fn read(&mut self, rows: &mut [u8]) -> Result<usize> {
            let bytes = rows.len().min(self.rows.len() - self.at);
            rows[..bytes].copy_from_slice(&self.rows[self.at..self.at + bytes]);
            self.at += bytes;
            Ok(bytes / self.header.row_bytes())
        }
        fn skip(&mut self, times: u64) -> Result<u64> {
            let row_bytes = self.header.row_bytes();
            let bytes = (times as usize * row_bytes).min(self.rows.len() - self.at);
            self.at += bytes;
            Ok((bytes / row_bytes) as u64)
        }
        fn gaps(&self) -> &[Gap] {
            &self.gaps
        }
    }

    /// Returns a recording that begins `late` samples after another; `value` gives the samples by time and channel.
    fn recording(
        name: &str,
        late: f64,
        times: usize,
        encoding: Encoding,
        value: impl Fn(usize, usize) -> f64,
    ) -> Memory {
        let header = FilterbankHeader {
            path: PathBuf::from(name),
            format: "SIGPROC filterbank",
            source_name: "source".to_owned(),
            telescope: String::new(),
            ra_deg: Some(10.0),
            dec_deg: Some(-20.0),
            beam: None,
            tstart_mjd: 59_000.0 + late * TSAMP_S / SECONDS_PER_DAY,
            tsamp_s: TSAMP_S,
            band: Band::uniform(1500.0, -1.0, CHANNELS).unwrap(),
            encoding,
            recorded_bits: encoding.bits(),
            recorded_polarizations: 1,
            times: Some(times as u64),
        };
        let mut rows = vec![0; times * header.row_bytes()];
        for (time, row) in rows.chunks_exact_mut(header.row_bytes()).enumerate() {
            for channel in 0..CHANNELS {
                crate::sample::set_value(row, encoding, channel, value(time, channel));
            }
        }
        Memory { header, rows, at: 0, gaps: Vec::new() }
    }

    /// Returns noise of unit variance that depends on the numbers alone.
    fn noise(seed: usize, time: usize, channel: usize) -> f64 {
        let mut state = (seed * 7919 + channel) as u64 * 1_000_003 + time as u64 + 1;
        let mut next = || {
            state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9) ^ 0x1234_5678;
            state ^= state >> 31;
            (state >> 11) as f64 / (1_u64 << 53) as f64
        };
        (0..12).map(|_| next()).sum::<f64>() - 6.0
    }

    fn sum(all: Vec<Memory>) -> Result<Summed> {
        let boxed = |one| Box::new(one) as Box<dyn FilterbankSource>;
        Summed::new(all.into_iter().map(boxed).collect())
    }

    /// Reads all rows, in pieces of these numbers of rows.
    fn read(mut summed: Summed, pieces: &[usize]) -> (Vec<f32>, u64) {
        let mut values = Vec::new();
        for piece in pieces.iter().cycle() {
            let mut rows = vec![0; piece * CHANNELS * 4];
            let times = summed.read(&mut rows).unwrap();
            let bytes = rows[..times * CHANNELS * 4].as_chunks::<4>().0.iter();
            values.extend(bytes.map(|bytes| f32::from_le_bytes(*bytes)));
            if times < *piece {
                break;
            }
        }
        assert_eq!(summed.read(&mut [0; CHANNELS * 4]).unwrap(), 0);
        (values, summed.flagged_samples())
    }

    #[test]
    fn each_recording_has_the_same_noise_in_the_sum() {
        // The second has other levels and a tenth of the counts per unit of power.
        let first = |time: usize, channel: usize| 100.0 + 20.0 * noise(1, time, channel);
        let second = |time: usize, channel: usize| 30.0 + 2.0 * noise(2, time, channel);
        let make = || {
            vec![
                recording("a", 0.0, 3000, Encoding::F32, first),
                recording("b", 0.0, 3000, Encoding::F32, second),
            ]
        };
        let (values, flagged) = read(sum(make()).unwrap(), &[7, 1500, 64]);
        assert_eq!((values.len(), flagged), (3000 * CHANNELS, 0));
        for channel in 0..CHANNELS {
            let own: Vec<f64> =
                values.iter().skip(channel).step_by(CHANNELS).map(|x| f64::from(*x)).collect();
            let mean = own.iter().sum::<f64>() / 3000.0;
            let sigma = (own.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 3000.0).sqrt();
            assert!((mean - 65.0).abs() < 1.0 && (sigma - 11.0).abs() < 0.5, "{mean} {sigma}");
            let correlation = |of: &dyn Fn(usize, usize) -> f64, level: f64, scale: f64| {
                let pairs = own.iter().enumerate();
                let products =
                    pairs.map(|(time, x)| (x - mean) * (of(time, channel) - level) / scale);
                products.sum::<f64>() / 3000.0 / sigma
            };
            let parts = [correlation(&first, 100.0, 20.0), correlation(&second, 30.0, 2.0)];
            assert!(parts.iter().all(|part| (part - 0.5_f64.sqrt()).abs() < 0.05), "{parts:?}");
        }
        // Reads and skips of any size give the same rows.
        assert_eq!(read(sum(make()).unwrap(), &[4096]).0, values);
        let mut skipped = sum(make()).unwrap();
        assert_eq!((skipped.skip(3).unwrap(), skipped.skip(1100).unwrap()), (3, 1100));
        assert_eq!(read(skipped, &[100]).0, values[1103 * CHANNELS..]);
        assert_eq!(sum(make()).unwrap().skip(5000).unwrap(), 3000);
    }

    #[test]
    fn recordings_are_aligned_to_the_latest_start() {
        // A value that the time since the same moment gives.
        let from = |late: usize| move |time: usize, _: usize| ((time + late) * 37 % 101) as f64;
        let mut all = vec![
            recording("a", 0.0, 300, Encoding::U8, from(0)),
            recording("b", 12.3, 250, Encoding::U8, from(12)),
            recording("c", 4.0, 310, Encoding::F32, from(4)),
        ];
        all[0].gaps = vec![Gap { start_time: 5, times: 10 }, Gap { start_time: 290, times: 10 }];
        all[1].gaps = vec![Gap { start_time: 2, times: 4 }];
        let summed = sum(all).unwrap();
        assert_eq!(summed.header().times, Some(250));
        let late = (summed.header().tstart_mjd - 59_000.0) * SECONDS_PER_DAY / TSAMP_S;
        assert!((late - 12.3).abs() < 0.01, "{late}");
        let gap = |start_time: u64, times: u64| Gap { start_time, times };
        assert_eq!(summed.gaps(), [gap(0, 6)]);
        let (values, _) = read(summed, &[33]);
        assert_eq!(values.len(), 250 * CHANNELS);
        // All have the same samples, so that the sum is sqrt(3) times their deviation from the level.
        let samples: Vec<f64> = (12..262).map(|time| f64::from(time * 37 % 101)).collect();
        for time in 0..250 {
            let found = f64::from(values[time * CHANNELS] - values[0]);
            let expected = 3_f64.sqrt() * (samples[time] - samples[0]);
            assert!(
                (found - expected).abs() < 0.03 * expected.abs() + 1e-3,
                "{time}: {found}, {expected}"
            );
        }
    }

    #[test]
    fn dead_channels_and_samples_that_are_not_finite_have_no_share() {
        let dead = |time: usize, channel: usize| match channel {
            0 => 7.0,
            1 => 50.0 + noise(3, time, 1),
            _ if time % 50 == 9 => f64::NAN,
            _ => 50.0 + noise(3, time, channel),
        };
        let live = |time: usize, channel: usize| match channel {
            3 => 9.0,
            _ => 20.0 + noise(4, time, channel),
        };
        let all = vec![
            recording("a", 0.0, 500, Encoding::F32, dead),
            recording("b", 0.0, 500, Encoding::F32, live),
        ];
        let (values, flagged) = read(sum(all).unwrap(), &[500]);
        assert_eq!(flagged, 2 * 10);
        assert!(values.iter().all(|value| value.is_finite()));
        let at = |time: usize, channel: usize| f64::from(values[time * CHANNELS + channel]);
        for time in 0..500 {
            // Only the second recording has noise in channel 0.
            assert!((at(time, 0) - (13.5 + noise(4, time, 0))).abs() < 0.3, "{time}");
        }
        assert!((at(9, 3) - 29.5).abs() < 0.3, "the level of channel 3");
    }

    #[test]
    fn recordings_that_do_not_fit_are_named() {
        let flat = |_: usize, _: usize| 1.0;
        let one = |name: &str, late: f64| recording(name, late, 100, Encoding::U8, flat);
        let message = |all: Vec<Memory>| sum(all).err().unwrap().to_string();
        assert!(message(vec![one("a", 0.0)]).contains("two or more"));
        let apart = message(vec![one("a", 0.0), one("b", 100.0)]);
        assert!(apart.contains("a: tstart") && apart.contains("row 100"), "{apart}");
        let mut other = one("b", 0.0);
        other.header.tsamp_s = 2e-3;
        let tsamp = message(vec![one("a", 0.0), other]);
        assert!(tsamp.contains("b: sampling time") && tsamp.contains("as in a"), "{tsamp}");
        let mut moved = one("b", 0.0);
        moved.header.band = Band::uniform(1501.0, -1.0, CHANNELS).unwrap();
        let band = message(vec![one("a", 0.0), moved]);
        assert!(band.contains("b: frequency of channel 0"), "{band}");
        let mut undated = one("b", 0.0);
        undated.header.tstart_mjd = 0.0;
        let summed = sum(vec![one("a", 50.0), undated]).unwrap();
        assert!(summed.warnings()[0].contains("1 of the 2 recordings"), "{:?}", summed.warnings());
        assert_eq!(summed.header().times, Some(100));
    }
}
