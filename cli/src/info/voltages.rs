//! `info` of recorded voltages: header, rms of each polarization, and fraction of its samples at the extremes.

use std::fmt::Write as _;
use std::ops::Range;

use schemars::JsonSchema;
use serde::Serialize;
use sidereal::Result;
use sidereal::io::voltages::{Flag, VoltageHeader, VoltageSource};
use sidereal::units::{Epoch, HZ_PER_MHZ};
use sidereal::voltage::{VoltageBlock, voltage};

use super::header::{calendar, duration_exactly, or_unknown, position, sexagesimal};
use crate::common::Common;
use crate::interrupt;
use crate::plots::{duration, frequency, plural, short};
use crate::progress::Progress;

/// Most gaps listed.
const LISTED: usize = 1000;

/// Recording with the keys of its JSON document.
#[derive(Serialize, JsonSchema)]
pub(super) struct Document {
    file: String,
    format: &'static str,
    source: String,
    telescope: String,
    ra_deg: Option<f64>,
    dec_deg: Option<f64>,
    tstart_mjd: Option<f64>,
    start_utc: Option<String>,
    tsamp_s: f64,
    times: Option<u64>,
    duration_s: Option<f64>,
    antennas: usize,
    recorded_channels: usize,
    polarizations: usize,
    feed: Option<&'static str>,
    complex: bool,
    bits: usize,
    centre_mhz: Option<f64>,
    bandwidth_mhz: f64,
    channel_width_mhz: f64,
    sideband: &'static str,
    /// Centre frequency of each recorded channel, in recorded order.
    frequency_mhz: Option<Vec<f64>>,
    filter: Option<Filter>,
    missing: Missing,
    #[serde(skip_serializing_if = "Option::is_none")]
    statistics: Option<Statistics>,
}

/// Filter bank that made the recorded channels.
#[derive(Serialize, JsonSchema)]
struct Filter {
    channels: usize,
    taps: usize,
    window: String,
    oversampling: [usize; 2],
}

/// Samples that were not recorded or are not valid.
#[derive(Serialize, JsonSchema)]
struct Missing {
    gaps: usize,
    /// Fraction of all samples of all streams.
    fraction: f64,
    /// Total time in which at least one stream has no samples.
    total_s: f64,
    /// First gaps.
    first: Vec<Gap>,
}

#[derive(Serialize, JsonSchema)]
struct Gap {
    start_s: f64,
    length_s: f64,
    /// First and last stream affected; streams are ordered by antenna, recorded channel, polarization.
    streams: [usize; 2],
}

impl Document {
    /// Reads the header, and if `wanted` the statistics: of all samples (`true`) or of some.
    pub(super) fn new(
        source: &mut dyn VoltageSource,
        wanted: Option<bool>,
        common: &Common,
    ) -> Result<Self> {
        let missing = Missing::new(source.flags(), source.header());
        let statistics = wanted.map(|all| Statistics::measure(source, all, common)).transpose()?;
        let header = source.header();
        let known = header.centres_hz.iter().all(|centre| *centre > 0.0);
        let (low, high) = edges_hz(header);
        let started = header.start.day != 0;
        Ok(Self {
            file: header.path.display().to_string(),
            format: header.format,
            source: header.source_name.clone(),
            telescope: header.telescope.clone(),
            ra_deg: header.ra_deg,
            dec_deg: header.dec_deg,
            tstart_mjd: started.then(|| header.start.mjd()),
            start_utc: started.then(|| utc(&header.start)),
            tsamp_s: header.tsamp_s,
            times: header.times,
            duration_s: header.duration_s(),
            antennas: header.antennas,
            recorded_channels: header.coarse_channels(),
            polarizations: header.polarizations,
            feed: header.circular.map(|circular| if circular { "circular" } else { "linear" }),
            complex: header.encoding.is_complex(),
            bits: header.recorded_bits,
            centre_mhz: known.then_some(0.5 * (low + high) / HZ_PER_MHZ),
            bandwidth_mhz: bandwidth_hz(header, known) / HZ_PER_MHZ,
            channel_width_mhz: header.channel_width_hz() / HZ_PER_MHZ,
            sideband: if header.lower_sideband { "lower" } else { "upper" },
            frequency_mhz: known
                .then(|| header.centres_hz.iter().map(|hz| hz / HZ_PER_MHZ).collect()),
            filter: header.filter.as_ref().map(|filter| Filter {
                channels: filter.channels,
                taps: filter.taps,
                window: filter.window.clone(),
                oversampling: [filter.oversampling.0, filter.oversampling.1],
            }),
            missing,
            statistics,
        })
    }

    pub(super) fn table(&self) -> String {
        let mut text = format!("{}\n", self.file);
        let mut row = |name: &str, value: String| {
            let _ = writeln!(text, "  {name:<12}{value}");
        };
        let kind = if self.complex { "complex" } else { "real" };
        row("Format", format!("{} voltages, {kind}, {} bit", self.format, self.bits));
        row("Source", or_unknown(&self.source));
        row("Telescope", or_unknown(&self.telescope));
        row("Position", position(self.ra_deg, self.dec_deg));
        row("Start", self.start());
        row("Length", self.length());
        let rate = frequency(1.0 / self.tsamp_s).replace("Hz", "samples/s");
        row("Sampling", format!("{}, {rate}", duration_exactly(self.tsamp_s)));
        row("Streams", self.streams());
        row("Band", self.band());
        if let Some(Filter { channels, taps, window, oversampling: [p, q] }) = &self.filter {
            let words = format!("{channels} channels of each, {taps} taps, {window}");
            row("Made by", format!("a filter bank: {words}, oversampled {p}/{q}"));
        }
        row("Missing", self.missing.text());
        text + &self.statistics.as_ref().map_or_else(String::new, Statistics::table)
    }

    fn start(&self) -> String {
        let (Some(mjd), Some(utc)) = (self.tstart_mjd, &self.start_utc) else {
            return "not known".to_owned();
        };
        format!("MJD {mjd:.9} ({utc} UTC)")
    }

    fn length(&self) -> String {
        match (self.times, self.duration_s) {
            (Some(times), Some(seconds)) => {
                format!("{times} samples of each stream, {}", duration(seconds))
            }
            _ => "not known beforehand".to_owned(),
        }
    }

    fn streams(&self) -> String {
        let feed = self.feed.map_or_else(String::new, |feed| format!(" ({feed})"));
        format!(
            "{} x {} x {}{feed}",
            plural(self.antennas, "antenna"),
            plural(self.recorded_channels, "recorded channel"),
            plural(self.polarizations, "polarization"),
        )
    }

    fn band(&self) -> String {
        let width = frequency(self.channel_width_mhz * HZ_PER_MHZ);
        let channels = plural(self.recorded_channels, "channel");
        let all = frequency(self.bandwidth_mhz * HZ_PER_MHZ);
        let middle = self.centre_mhz.map_or_else(
            || "centre not known (--freq gives it)".to_owned(),
            |centre| format!("centre {} MHz", short(centre, 9)),
        );
        format!("{middle}, width {all}: {channels} of {width}, {} sideband", self.sideband)
    }
}

impl Missing {
    fn new(flags: &[Flag], header: &VoltageHeader) -> Self {
        let all = header.times.unwrap_or(0) as f64 * header.streams() as f64;
        let flagged: f64 = flags.iter().map(|f| f.times as f64 * f.streams.len() as f64).sum();
        let gap = |flag: &Flag| Gap {
            start_s: flag.start as f64 * header.tsamp_s,
            length_s: flag.times as f64 * header.tsamp_s,
            streams: [flag.streams.start, flag.streams.end.saturating_sub(1)],
        };
        Self {
            gaps: flags.len(),
            fraction: if all > 0.0 { (flagged + 0.0) / all } else { 0.0 },
            total_s: union(flags) as f64 * header.tsamp_s,
            first: flags.iter().take(LISTED).map(gap).collect(),
        }
    }

    fn text(&self) -> String {
        let Some(first) = self.first.first() else { return "nothing".to_owned() };
        format!(
            "{}, {} in all, {} % of the samples; the first at {}",
            plural(self.gaps, "gap"),
            duration(self.total_s),
            short(100.0 * self.fraction, 3),
            duration(first.start_s),
        )
    }
}

/// Returns the number of samples covered by at least one flag; `flags` are sorted by start.
fn union(flags: &[Flag]) -> u64 {
    let (mut total, mut end) = (0, 0);
    for flag in flags {
        let flag_end = flag.start.saturating_add(flag.times);
        total += flag_end.saturating_sub(flag.start.max(end));
        end = flag_end.max(end);
    }
    total
}

/// Returns the outer edges of all recorded channels.
fn edges_hz(header: &VoltageHeader) -> (f64, f64) {
    let half = 0.5 * header.channel_width_hz();
    let centres = header.centres_hz.iter().copied();
    let low = centres.clone().fold(f64::INFINITY, f64::min);
    (low - half, centres.fold(f64::NEG_INFINITY, f64::max) + half)
}

fn bandwidth_hz(header: &VoltageHeader, known: bool) -> f64 {
    let (low, high) = edges_hz(header);
    if known { high - low } else { header.channel_width_hz() * header.coarse_channels() as f64 }
}

/// Formats date and time to the nanosecond without trailing zeros.
pub(super) fn utc(start: &Epoch) -> String {
    let date = calendar(start.day as f64);
    let date = date.split(' ').next().unwrap_or_default();
    let time = sexagesimal(start.seconds / 3600.0, 9);
    format!("{date} {}", time.trim_end_matches('0').trim_end_matches('.'))
}

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
struct Statistics {
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
    fn measure(source: &mut dyn VoltageSource, all: bool, common: &Common) -> Result<Self> {
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

    fn table(&self) -> String {
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
    fn flags_that_overlap_count_once() {
        let flag = |start, times| Flag { streams: 0..1, start, times };
        assert_eq!(union(&[flag(0, 4), flag(2, 4), flag(3, 1), flag(10, 1)]), 7);
        assert_eq!(union(&[]), 0);
    }

    #[test]
    fn moments_are_written_to_the_nanosecond() {
        assert_eq!(utc(&Epoch { day: 51_544, seconds: 3661.25 }), "2000-01-01 01:01:01.25");
        assert_eq!(utc(&Epoch { day: 51_544, seconds: 0.0 }), "2000-01-01 00:00:00");
    }

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
