//! `info` of gravitational-wave strain: header, and amount of valid data.

use std::fmt::Write as _;
use std::path::Path;

use schemars::JsonSchema;
use serde::Serialize;
use sidereal::io::gwf::{Gwf, is_gwf};
use sidereal::io::strain::{OpenOptions, Summary, open};
use sidereal::units::Gps;
use sidereal::{Error, Result};

use super::header::or_unknown;
use crate::plots::{duration, short};

/// Most gaps listed in the table.
const LISTED: usize = 8;

/// Recording with the keys of its JSON document.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Document {
    file: String,
    format: &'static str,
    /// Series of the channel that was read; absent if there are several candidates and none was named.
    #[serde(flatten)]
    series: Option<Series>,
    #[serde(flatten)]
    frames: Option<Frames>,
}

/// Strain series.
#[derive(Debug, Serialize, JsonSchema)]
struct Series {
    detector: String,
    start_gps: f64,
    end_gps: f64,
    rate_hz: u32,
    samples: u64,
    valid_samples: u64,
    /// Intervals that may not be used, in GPS seconds.
    gaps_gps: Vec<[f64; 2]>,
    rms: f64,
}

/// Contents of a frame file.
#[derive(Debug, Serialize, JsonSchema)]
struct Frames {
    /// Version of the format.
    version: u8,
    frames: usize,
    channels: Vec<Channel>,
}

/// Channel of a frame file.
#[derive(Debug, Serialize, JsonSchema)]
struct Channel {
    name: String,
    start_gps: f64,
    rate_hz: f64,
    samples: u64,
    /// Type of its samples in NumPy's notation.
    dtype: &'static str,
    unit: String,
}

impl Document {
    /// Reads a recording, or the named one of several channels; also returns its warnings and the missing part if it
    /// is truncated.
    ///
    /// # Errors
    /// Those of reading.
    pub(super) fn read(
        path: &Path,
        channel: Option<&str>,
    ) -> Result<(Self, Vec<String>, Option<String>)> {
        let file = path.display().to_string();
        let (frames, cut) = match is_gwf(path) {
            true => Frames::read(path).map(|(frames, cut)| (Some(frames), cut))?,
            false => (None, None),
        };
        let options = OpenOptions { channel: channel.map(str::to_owned), ..OpenOptions::default() };
        let mut source = match open(path, &options) {
            // A frame file of many channels is shown as a list of channels.
            Err(Error::Parameter { name: "strain.channel", .. }) if frames.is_some() => {
                let document = Self { file, format: "GWF", series: None, frames };
                return Ok((document, Vec::new(), cut));
            }
            other => other?,
        };
        let summary = Summary::read(source.as_mut())?;
        let format = summary.header.format;
        let document = Self { file, format, series: Some(Series::new(&summary)), frames };
        Ok((document, source.warnings().to_vec(), source.cut().map(str::to_owned).or(cut)))
    }

    pub(super) fn table(&self) -> String {
        let mut text = format!("{}\n", self.file);
        let mut row = |name: &str, value: &str| {
            let _ = writeln!(text, "  {name:<12}{value}");
        };
        row("Format", &format!("{} strain", self.format));
        for (name, value) in self.series.iter().flat_map(Series::rows) {
            row(name, &value);
        }
        for (name, value) in self.frames.iter().flat_map(Frames::rows) {
            row(name, &value);
        }
        text
    }
}

impl Frames {
    fn read(path: &Path) -> Result<(Self, Option<String>)> {
        let file = Gwf::open(path)?;
        file.verify()?;
        let channel = |name: &str| {
            let (channel, pieces) = (file.channel(name)?, file.pieces(name)?);
            Ok(Channel {
                name: channel.name,
                start_gps: pieces.first().map_or(0.0, |piece| piece.start.s()),
                rate_hz: channel.rate_hz,
                samples: pieces.iter().map(|piece| piece.samples).sum(),
                dtype: channel.encoding.name(),
                unit: channel.unit,
            })
        };
        let channels = file.names().map(channel).collect::<Result<Vec<_>>>()?;
        let (version, frames) = (file.version(), file.frames());
        Ok((Self { version, frames, channels }, file.cut().map(str::to_owned)))
    }

    fn rows(&self) -> Vec<(&'static str, String)> {
        let Self { version, frames, channels } = self;
        let mut rows = vec![("Frames", format!("{frames}, of version {version}"))];
        rows.extend(channels.iter().enumerate().map(|(index, channel)| {
            let Channel { name, start_gps, rate_hz, samples, dtype, unit } = channel;
            let unit = if unit.is_empty() { "no unit" } else { unit };
            let rate = short(*rate_hz, 6);
            let length = duration(*samples as f64 / rate_hz);
            let what = format!(
                "{name}: {samples} {dtype} at {rate} Hz from GPS {start_gps:.6}, {length}, {unit}"
            );
            (if index == 0 { "Channels" } else { "" }, what)
        }));
        rows
    }
}

impl Series {
    fn new(summary: &Summary) -> Self {
        let header = &summary.header;
        let time =
            |sample: u64| -> Gps { header.start.plus_samples(sample as i64, header.rate_hz) };
        let gap = |(first, end): &(u64, u64)| [time(*first).s(), time(*end).s()];
        Self {
            detector: header.detector.clone(),
            start_gps: header.start.s(),
            end_gps: time(summary.times).s(),
            rate_hz: header.rate_hz,
            samples: summary.times,
            valid_samples: summary.valid_times,
            gaps_gps: summary.gaps.iter().map(gap).collect(),
            rms: summary.rms,
        }
    }

    fn rows(&self) -> Vec<(&'static str, String)> {
        let rate = f64::from(self.rate_hz);
        let length = duration(self.samples as f64 / rate);
        let good = 100.0 * self.valid_samples as f64 / self.samples.max(1) as f64;
        vec![
            ("Detector", or_unknown(&self.detector)),
            ("Start", format!("GPS {:.6}", self.start_gps)),
            ("End", format!("GPS {:.6}", self.end_gps)),
            ("Samples", format!("{} at {} Hz, {length}", self.samples, self.rate_hz)),
            ("Good", format!("{} samples, {} %", self.valid_samples, short(good, 4))),
            ("Gaps", self.gaps()),
            ("Rms", format!("{:.3e}", self.rms)),
        ]
    }

    fn gaps(&self) -> String {
        let gap = |[begin, end]: &[f64; 2]| format!("{begin:.3} to {end:.3}");
        let mut gaps: Vec<String> = self.gaps_gps.iter().take(LISTED).map(gap).collect();
        if self.gaps_gps.len() > LISTED {
            gaps.push(format!("{} more", self.gaps_gps.len() - LISTED));
        }
        if gaps.is_empty() { "none".to_owned() } else { format!("GPS {}", gaps.join(", ")) }
    }
}
