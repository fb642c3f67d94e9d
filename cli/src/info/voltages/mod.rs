//! `info` of recorded voltages: header, and statistics of the samples.

mod statistics;

use std::fmt::Write as _;

use schemars::JsonSchema;
use serde::Serialize;
use sidereal::Result;
use sidereal::io::voltages::{Flag, VoltageHeader, VoltageSource};
use sidereal::units::{Epoch, HZ_PER_MHZ};

use super::header::{calendar, duration_exactly, or_unknown, position, sexagesimal};
use crate::common::Common;
use crate::plots::{duration, frequency, plural, short};
use statistics::Statistics;

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
}
