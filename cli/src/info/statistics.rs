//! Statistics of a recording's samples and its bandpass.

use std::fmt::Write as _;

use schemars::JsonSchema;
use serde::Serialize;
use sidereal::Result;
use sidereal::io::{FilterbankHeader, FilterbankSource};
use sidereal::sample::unpack_f32;
use sidereal::units::HZ_PER_MHZ;

use crate::common::Common;
use crate::interrupt;
use crate::plots::short;
use crate::progress::Progress;

/// Largest number of samples used by default.
const ENOUGH_SAMPLES: u64 = 1 << 26;
/// Number of positions at which a long recording is sampled.
const PLACES: u64 = 64;
/// Largest number of bytes read at once.
const GULP_BYTES: usize = 4 << 20;
/// Rows of the bandpass table.
const TABLE_ROWS: usize = 16;

/// Statistics with the keys of their JSON document.
#[derive(Serialize, JsonSchema)]
pub(super) struct Statistics {
    statistics: Summary,
    bandpass: Bandpass,
    dead_channels: Vec<usize>,
}

#[derive(Serialize, JsonSchema)]
struct Summary {
    samples: u64,
    fraction: Option<f64>,
    min: f64,
    max: f64,
    mean: f64,
    sigma: f64,
    not_finite: u64,
}

/// Bandpass with one entry per channel, in recorded order.
#[derive(Serialize, JsonSchema)]
struct Bandpass {
    frequency_mhz: Vec<f64>,
    mean: Vec<f64>,
    sigma: Vec<f64>,
}

/// Running sums of one channel.
#[derive(Clone, Copy)]
struct Moments {
    count: u64,
    sum: f64,
    squares: f64,
    min: f32,
    max: f32,
}

impl Moments {
    const NONE: Self =
        Self { count: 0, sum: 0.0, squares: 0.0, min: f32::INFINITY, max: f32::NEG_INFINITY };

    fn add(&mut self, value: f32) {
        if value.is_finite() {
            self.count += 1;
            self.sum += f64::from(value);
            self.squares += f64::from(value) * f64::from(value);
            self.min = self.min.min(value);
            self.max = self.max.max(value);
        }
    }

    fn join(self, other: Self) -> Self {
        Self {
            count: self.count + other.count,
            sum: self.sum + other.sum,
            squares: self.squares + other.squares,
            min: self.min.min(other.min),
            max: self.max.max(other.max),
        }
    }

    fn mean(&self) -> f64 {
        self.sum / self.count as f64
    }

    fn sigma(&self) -> f64 {
        (self.squares / self.count as f64 - self.mean().powi(2)).max(0.0).sqrt()
    }
}

impl Statistics {
    /// Measures a source from its first sample.
    pub(super) fn measure(
        source: &mut dyn FilterbankSource,
        all: bool,
        common: &Common,
    ) -> Result<Self> {
        let header = source.header().clone();
        let mut reader = Reader::new(&header, common);
        let (places, rows, apart) = schedule(&header, all);
        for place in 0..places {
            let got = reader.read(source, rows)?;
            let last = got < rows || place + 1 == places;
            if last || source.skip(apart - rows)? < apart - rows {
                break;
            }
            reader.progress.at((place + 1) * apart);
        }
        Ok(reader.summarize(&header))
    }
}

/// Returns the number of positions, the spectra at each, and the spectra between their starts.
fn schedule(header: &FilterbankHeader, all: bool) -> (u64, u64, u64) {
    let enough = (ENOUGH_SAMPLES / header.channels() as u64).max(PLACES);
    match header.times {
        Some(times) if all || times <= enough => (1, times, times),
        Some(times) => (PLACES, enough / PLACES, times / PLACES),
        None if all => (1, u64::MAX, u64::MAX),
        None => (1, enough, enough),
    }
}

struct Reader {
    rows: Vec<u8>,
    row_bytes: usize,
    spectrum: Vec<f32>,
    channels: Vec<Moments>,
    times: u64,
    progress: Progress,
}

impl Reader {
    fn new(header: &FilterbankHeader, common: &Common) -> Self {
        let row_bytes = header.row_bytes();
        let gulp = (GULP_BYTES / row_bytes.max(1)).max(1);
        let progress = Progress::new(common, header.times, header.channels(), header.tsamp_s);
        progress.doing("Statistics");
        Self {
            rows: vec![0; gulp * row_bytes],
            row_bytes,
            spectrum: vec![0.0; header.channels()],
            channels: vec![Moments::NONE; header.channels()],
            times: 0,
            progress,
        }
    }

    /// Adds `times` spectra, or the rest of the data; returns their number.
    fn read(&mut self, source: &mut dyn FilterbankSource, times: u64) -> Result<u64> {
        let encoding = source.header().encoding;
        let mut done = 0;
        while done < times {
            interrupt::check()?;
            let gulp = (self.rows.len() / self.row_bytes) as u64;
            let wanted = gulp.min(times - done) as usize;
            let got = source.read(&mut self.rows[..wanted * self.row_bytes])?;
            for row in self.rows[..got * self.row_bytes].chunks_exact(self.row_bytes) {
                unpack_f32(row, encoding, &mut self.spectrum);
                self.channels.iter_mut().zip(&self.spectrum).for_each(|(m, x)| m.add(*x));
            }
            done += got as u64;
            if got < wanted {
                break;
            }
        }
        self.times += done;
        Ok(done)
    }

    fn summarize(&self, header: &FilterbankHeader) -> Statistics {
        let whole = self.channels.iter().fold(Moments::NONE, |sum, c| sum.join(*c));
        let samples = self.times * self.channels.len() as u64;
        let extreme = |value: f32| if value.is_finite() { value.into() } else { f64::NAN };
        let dead = |m: &Moments| m.count == 0 || m.min >= m.max;
        let channels = self.channels.iter().enumerate();
        Statistics {
            statistics: Summary {
                samples,
                fraction: header.times.map(|times| self.times as f64 / times.max(1) as f64),
                min: extreme(whole.min),
                max: extreme(whole.max),
                mean: whole.mean(),
                sigma: whole.sigma(),
                not_finite: samples - whole.count,
            },
            bandpass: Bandpass {
                frequency_mhz: header.band.centres_hz().iter().map(|f| f / HZ_PER_MHZ).collect(),
                mean: self.channels.iter().map(Moments::mean).collect(),
                sigma: self.channels.iter().map(Moments::sigma).collect(),
            },
            dead_channels: channels.filter(|(_, m)| dead(m)).map(|(c, _)| c).collect(),
        }
    }
}

impl Statistics {
    pub(super) fn table(&self) -> String {
        let summary = &self.statistics;
        let part = match summary.fraction {
            Some(fraction) if fraction >= 1.0 => "all samples".to_owned(),
            Some(fraction) => {
                format!("{} % of the samples (--all takes all)", short(fraction * 100.0, 2))
            }
            None => format!("the first {} samples", summary.samples),
        };
        let numbers = [summary.min, summary.max, summary.mean, summary.sigma].map(|x| short(x, 5));
        let [min, max, mean, sigma] = numbers;
        let mut text = format!("  Statistics  of {part}\n");
        let _ = writeln!(text, "    min {min}   max {max}   mean {mean}   sigma {sigma}");
        if summary.not_finite > 0 {
            let _ = writeln!(text, "    {} samples are not finite", summary.not_finite);
        }
        self.bandpass_table(&mut text);
        match self.dead_channels.len() {
            0 => {}
            1 => drop(writeln!(text, "    channel {} is constant", self.dead_channels[0])),
            many => drop(writeln!(
                text,
                "    {many} channels are constant: {}",
                list(&self.dead_channels)
            )),
        }
        text
    }

    /// Formats the means of up to 16 groups of channels with bars, highest frequency first.
    fn bandpass_table(&self, text: &mut String) {
        let bandpass = &self.bandpass;
        let mut order: Vec<usize> = (0..bandpass.mean.len()).collect();
        order.sort_by(|a, b| bandpass.frequency_mhz[*b].total_cmp(&bandpass.frequency_mhz[*a]));
        let groups: Vec<_> = order.chunks(order.len().div_ceil(TABLE_ROWS).max(1)).collect();
        let average = |values: &[f64], group: &[usize]| {
            let finite = group.iter().map(|c| values[*c]).filter(|x| x.is_finite());
            let (sum, count) = finite.fold((0.0, 0u32), |(sum, n), x| (sum + x, n + 1));
            sum / f64::from(count)
        };
        let means: Vec<f64> = groups.iter().map(|g| average(&bandpass.mean, g)).collect();
        let highest = means.iter().copied().fold(0.0, f64::max);
        let _ = writeln!(text, "  Bandpass    {:>9} {:>9}", "mean", "sigma");
        for (group, mean) in groups.iter().zip(&means) {
            let sigma = short(average(&bandpass.sigma, group), 4);
            let frequency = short(average(&bandpass.frequency_mhz, group), 6);
            let part = if highest > 0.0 { (mean / highest).clamp(0.0, 1.0) } else { 0.0 };
            let bar = "▇".repeat((part * 32.0).round() as usize);
            let _ = writeln!(text, "{frequency:>9} MHz {:>9} {sigma:>9}  {bar}", short(*mean, 4));
        }
    }
}

/// Formats numbers, with ranges as `A:B`, at most a dozen.
fn list(numbers: &[usize]) -> String {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for number in numbers {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == *number => *last = *number,
            _ => runs.push((*number, *number)),
        }
    }
    let words = |(a, b): &(usize, usize)| if a == b { a.to_string() } else { format!("{a}:{b}") };
    let mut shown: Vec<String> = runs.iter().take(12).map(words).collect();
    if runs.len() > 12 {
        shown.push("…".to_owned());
    }
    shown.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_channels_are_written_as_ranges() {
        assert_eq!(list(&[1, 2, 3, 7, 9, 10]), "1:3,7,9:10");
        assert_eq!(list(&[]), "");
    }

    #[test]
    fn moments_leave_out_what_is_not_finite() {
        let mut moments = Moments::NONE;
        [1.0, f32::NAN, 3.0, f32::INFINITY].into_iter().for_each(|x| moments.add(x));
        assert_eq!((moments.count, moments.mean(), moments.sigma()), (2, 2.0, 1.0));
        assert_eq!((moments.min, moments.max), (1.0, 3.0));
    }
}
