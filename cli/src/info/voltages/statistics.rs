//! Statistics of voltages: rms of each polarization, and fraction of its samples at the extremes.

use std::fmt::Write as _;
use std::ops::Range;

use schemars::JsonSchema;
use serde::Serialize;
use sidereal::Result;
use sidereal::io::voltages::{Flag, VoltageHeader, VoltageSource};
use sidereal::voltage::{VoltageBlock, voltage};

use crate::common::Common;
use crate::interrupt;
use crate::plots::short;
use crate::progress::Progress;

/// Largest number of samples used by default.
const ENOUGH_SAMPLES: u64 = 1 << 24;
/// Number of positions at which a long recording is sampled.
const PLACES: u64 = 64;
/// Approximate number of bytes read at once.
const GULP_BYTES: u64 = 4 << 20;
/// Positions are multiples of this many samples: whole bytes of any encoding.
const STEP: u64 = 8;
/// Rows of a table.
const TABLE_ROWS: usize = 16;

/// Statistics with the keys of their JSON document; missing samples do not count.
#[derive(Serialize, JsonSchema)]
pub(super) struct Statistics {
    /// Number of samples of all streams together.
    samples: u64,
    /// Fraction of the recording's samples.
    fraction: Option<f64>,
    /// One entry per polarization of each antenna.
    polarizations: Vec<Polarization>,
    /// Rms of each recorded channel over all antennas, in recorded order; one entry per polarization.
    bandpass_rms: Vec<Vec<Option<f64>>>,
}

/// Statistics of one polarization; both parts of complex samples count.
#[derive(Serialize, JsonSchema)]
struct Polarization {
    antenna: usize,
    polarization: usize,
    samples: u64,
    /// Number of samples that are infinite or NaN; all other statistics exclude them.
    not_finite: u64,
    rms: Option<f64>,
    mean: Option<f64>,
    /// Mean of the imaginary part.
    mean_imaginary: Option<f64>,
    min: Option<f64>,
    max: Option<f64>,
    /// Fraction of values equal to the lowest or the highest found.
    at_extremes: Option<f64>,
}

/// Running sums of one stream.
#[derive(Clone, Copy)]
struct Sums {
    count: u64,
    not_finite: u64,
    sum: [f64; 2],
    squares: f64,
    min: Extreme,
    max: Extreme,
}

/// Extreme value and its number of occurrences.
#[derive(Clone, Copy)]
struct Extreme {
    value: f64,
    count: u64,
}

impl Extreme {
    /// Returns the more extreme one; equal values add their counts.
    fn join(self, other: Self, goes_before: fn(&f64, &f64) -> bool) -> Self {
        if self.value == other.value {
            return Self { value: self.value, count: self.count + other.count };
        }
        if goes_before(&self.value, &other.value) { self } else { other }
    }
}

impl Sums {
    const NONE: Self = Self {
        count: 0,
        not_finite: 0,
        sum: [0.0; 2],
        squares: 0.0,
        min: Extreme { value: f64::INFINITY, count: 0 },
        max: Extreme { value: f64::NEG_INFINITY, count: 0 },
    };

    fn number(&mut self, value: f64) {
        self.squares += value * value;
        let once = Extreme { value, count: 1 };
        self.min = self.min.join(once, f64::lt);
        self.max = self.max.join(once, f64::gt);
    }

    fn join(self, other: Self) -> Self {
        Self {
            count: self.count + other.count,
            not_finite: self.not_finite + other.not_finite,
            sum: [self.sum[0] + other.sum[0], self.sum[1] + other.sum[1]],
            squares: self.squares + other.squares,
            min: self.min.join(other.min, f64::lt),
            max: self.max.join(other.max, f64::gt),
        }
    }

    fn numbers(&self, complex: bool) -> f64 {
        self.count as f64 * if complex { 2.0 } else { 1.0 }
    }

    fn rms(&self, complex: bool) -> Option<f64> {
        (self.count > 0).then(|| (self.squares / self.numbers(complex)).sqrt())
    }
}

/// Sampling plan of a recording: number of positions, blocks at each, and samples between their starts.
struct Schedule {
    places: u64,
    blocks: u64,
    block_times: u64,
    apart: u64,
}

impl Schedule {
    fn new(header: &VoltageHeader, all: bool) -> Self {
        let streams = header.streams().max(1) as u64;
        let whole = |times: u64| (times / STEP).max(1) * STEP;
        let gulp = whole(GULP_BYTES * 8 / (streams * header.encoding.sample_bits() as u64));
        let enough = whole(ENOUGH_SAMPLES / streams);
        match header.times {
            Some(times) if !all && times > enough => {
                let each = whole(enough / PLACES);
                let block_times = gulp.min(each);
                let blocks = each / block_times;
                let apart = whole(times / PLACES).max(blocks * block_times);
                Self { places: PLACES, blocks, block_times, apart }
            }
            Some(_) => Self { places: 1, blocks: u64::MAX, block_times: gulp, apart: 0 },
            None if all => Self { places: 1, blocks: u64::MAX, block_times: gulp, apart: 0 },
            None => Self { places: 1, blocks: enough.div_ceil(gulp), block_times: gulp, apart: 0 },
        }
    }
}

impl Statistics {
    /// Measures a source from its first sample.
    pub(super) fn measure(
        source: &mut dyn VoltageSource,
        all: bool,
        common: &Common,
    ) -> Result<Self> {
        let header = source.header().clone();
        let flags = source.flags().to_vec();
        let schedule = Schedule::new(&header, all);
        let mut reader = Reader::new(&header, &flags, schedule.block_times as usize);
        let progress = Progress::new(common, header.times, header.streams(), header.tsamp_s);
        progress.doing("Statistics");
        let rest =
            schedule.apart.saturating_sub(schedule.blocks.saturating_mul(schedule.block_times));
        for place in 0..schedule.places {
            for _ in 0..schedule.blocks {
                interrupt::check()?;
                if !reader.read(source)? {
                    break;
                }
                progress.at(reader.position);
            }
            if place + 1 < schedule.places {
                reader.position += source.skip(rest)?;
            }
        }
        Ok(reader.summarize(&header))
    }

    pub(super) fn table(&self) -> String {
        let part = match self.fraction {
            Some(fraction) if fraction < 1.0 => {
                format!("{} % of the samples (--all takes all)", short(fraction * 100.0, 2))
            }
            Some(_) => "all samples".to_owned(),
            None => format!("the first {} samples", self.samples),
        };
        let mut text = format!("  Statistics  of {part}\n");
        for one in self.polarizations.iter().take(TABLE_ROWS) {
            let _ = writeln!(text, "    {}", one.line());
        }
        let more = self.polarizations.len().saturating_sub(TABLE_ROWS);
        if more > 0 {
            let _ = writeln!(text, "    and {more} more (--json lists all)");
        }
        text
    }
}

impl Polarization {
    fn line(&self) -> String {
        let Self { antenna, polarization, .. } = self;
        let name = format!("antenna {antenna}, polarization {polarization}");
        let (Some(rms), Some(mean), Some(min), Some(max), Some(extremes)) =
            (self.rms, self.mean, self.min, self.max, self.at_extremes)
        else {
            return format!("{name}: no sample is valid");
        };
        let faults = match self.not_finite {
            0 => String::new(),
            count => format!("   {count} not finite, left out"),
        };
        let mean = match self.mean_imaginary {
            None => short(mean, 3),
            Some(imaginary) => format!("{} and {}i", short(mean, 3), short(imaginary, 3)),
        };
        format!(
            "{name}: rms {}   mean {mean}   {} % at {} or {}{faults}",
            short(rms, 4),
            short(100.0 * extremes, 3),
            short(min, 4),
            short(max, 4),
        )
    }
}

struct Reader<'a> {
    block: VoltageBlock<'static>,
    flags: &'a [Flag],
    complex: bool,
    streams: Vec<Sums>,
    /// Samples of each stream read or skipped.
    position: u64,
    read: u64,
}

impl<'a> Reader<'a> {
    fn new(header: &VoltageHeader, flags: &'a [Flag], times: usize) -> Self {
        let streams = vec![Sums::NONE; header.streams()];
        let complex = header.encoding.is_complex();
        Self { block: header.block(times), flags, complex, streams, position: 0, read: 0 }
    }

    /// Adds a block; returns whether there may be another.
    fn read(&mut self, source: &mut dyn VoltageSource) -> Result<bool> {
        let times = source.read(&mut self.block)?;
        let (begin, end) = (self.position, self.position + times as u64);
        while self.flags.first().is_some_and(|flag| flag.start + flag.times <= begin) {
            self.flags = &self.flags[1..];
        }
        for stream in 0..self.streams.len() {
            let mut from = begin;
            for flag in self.flags.iter().take_while(|flag| flag.start < end) {
                if flag.streams.contains(&stream) {
                    self.add(stream, from..flag.start.max(from), begin);
                    from = from.max(flag.start + flag.times).min(end);
                }
            }
            self.add(stream, from..end, begin);
        }
        self.position = end;
        self.read += times as u64;
        Ok(times == self.block.capacity())
    }

    /// Adds samples of a stream; `begin` is the position of the block's first sample.
    fn add(&mut self, stream: usize, times: Range<u64>, begin: u64) {
        let voltages = self.block.voltages();
        let (row, encoding) = (voltages.row(stream), voltages.encoding());
        let sums = &mut self.streams[stream];
        for index in (times.start - begin) as usize..(times.end - begin) as usize {
            let value = voltage(row, encoding, index);
            if !(value.re.is_finite() && value.im.is_finite()) {
                sums.not_finite += 1;
                continue;
            }
            sums.count += 1;
            sums.sum[0] += value.re;
            sums.sum[1] += value.im;
            sums.number(value.re);
            if self.complex {
                sums.number(value.im);
            }
        }
    }

    fn summarize(&self, header: &VoltageHeader) -> Statistics {
        let (channels, polarizations) = (header.coarse_channels(), header.polarizations);
        let of = |antenna: usize, channel: usize, polarization: usize| {
            self.streams[(antenna * channels + channel) * polarizations + polarization]
        };
        let join = |streams: &mut dyn Iterator<Item = Sums>| streams.fold(Sums::NONE, Sums::join);
        let numbers = |antenna: usize, polarization: usize| {
            let sums = join(&mut (0..channels).map(|channel| of(antenna, channel, polarization)));
            self.polarization(antenna, polarization, &sums, header.scale)
        };
        let every = (0..header.antennas).flat_map(|a| (0..polarizations).map(move |p| (a, p)));
        let channel_rms = |polarization: usize, channel: usize| {
            let sums = join(&mut (0..header.antennas).map(|a| of(a, channel, polarization)));
            sums.rms(self.complex).map(|rms| rms * header.scale)
        };
        Statistics {
            samples: self.read * header.streams() as u64,
            fraction: header.times.map(|times| self.read as f64 / times.max(1) as f64),
            polarizations: every.map(|(antenna, p)| numbers(antenna, p)).collect(),
            bandpass_rms: (0..polarizations)
                .map(|p| (0..channels).map(|channel| channel_rms(p, channel)).collect())
                .collect(),
        }
    }

    fn polarization(
        &self,
        antenna: usize,
        polarization: usize,
        sums: &Sums,
        scale: f64,
    ) -> Polarization {
        let there = sums.count > 0;
        let mean = |part: usize| there.then(|| scale * sums.sum[part] / sums.count as f64);
        let extremes = match sums.min.value < sums.max.value {
            true => sums.min.count + sums.max.count,
            false => sums.min.count,
        };
        Polarization {
            antenna,
            polarization,
            samples: sums.count,
            not_finite: sums.not_finite,
            rms: sums.rms(self.complex).map(|rms| rms * scale),
            mean: mean(0),
            mean_imaginary: if self.complex { mean(1) } else { None },
            min: there.then_some(sums.min.value * scale),
            max: there.then_some(sums.max.value * scale),
            at_extremes: there.then(|| extremes as f64 / sums.numbers(self.complex)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extremes_are_counted() {
        let mut sums = Sums::NONE;
        [1.0, -2.0, 3.0, 3.0, -2.0, 0.0, 3.0].into_iter().for_each(|x| sums.number(x));
        assert_eq!((sums.min.value, sums.min.count), (-2.0, 2));
        assert_eq!((sums.max.value, sums.max.count), (3.0, 3));
        let both = sums.join(sums);
        assert_eq!((both.min.count, both.max.count), (4, 6));
        assert_eq!(Sums::NONE.join(sums).max.count, 3);
    }
}
