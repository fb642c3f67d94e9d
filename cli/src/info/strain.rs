//! `info` of gravitational-wave strain: what a recording says of itself, and how much of it is good.

use std::fmt::Write as _;
use std::path::Path;

use schemars::JsonSchema;
use serde::Serialize;
use sidereal::Result;
use sidereal::io::strain::{OpenOptions, Summary, open};
use sidereal::units::Gps;

use super::header::or_unknown;
use crate::plots::{duration, short};

/// Gaps that the table lists, at most.
const LISTED: usize = 8;

/// A recording, with the names of its JSON document.
#[derive(Debug, Serialize, JsonSchema)]
pub(super) struct Document {
    file: String,
    format: &'static str,
    detector: String,
    start_gps: f64,
    end_gps: f64,
    rate_hz: u32,
    samples: u64,
    valid_samples: u64,
    /// Stretches that may not be used, in GPS seconds.
    gaps_gps: Vec<[f64; 2]>,
    rms: f64,
}

impl Document {
    /// Reads a recording; returns its warnings, and what it lacks where it is cut short, as well.
    ///
    /// # Errors
    /// What reading finds.
    pub(super) fn read(path: &Path) -> Result<(Self, Vec<String>, Option<String>)> {
        let mut source = open(path, &OpenOptions::default())?;
        let summary = Summary::read(source.as_mut())?;
        let header = &summary.header;
        let time =
            |sample: u64| -> Gps { header.start.plus_samples(sample as i64, header.rate_hz) };
        let gap = |(first, end): &(u64, u64)| [time(*first).s(), time(*end).s()];
        let document = Self {
            file: path.display().to_string(),
            format: header.format,
            detector: header.detector.clone(),
            start_gps: header.start.s(),
            end_gps: time(summary.times).s(),
            rate_hz: header.rate_hz,
            samples: summary.times,
            valid_samples: summary.valid_times,
            gaps_gps: summary.gaps.iter().map(gap).collect(),
            rms: summary.rms,
        };
        Ok((document, source.warnings().to_vec(), source.cut().map(str::to_owned)))
    }

    pub(super) fn table(&self) -> String {
        let mut text = format!("{}\n", self.file);
        let mut row = |name: &str, value: String| {
            let _ = writeln!(text, "  {name:<12}{value}");
        };
        let rate = f64::from(self.rate_hz);
        row("Format", format!("{} strain", self.format));
        row("Detector", or_unknown(&self.detector));
        row("Start", format!("GPS {:.6}", self.start_gps));
        row("End", format!("GPS {:.6}", self.end_gps));
        let length = duration(self.samples as f64 / rate);
        row("Samples", format!("{} at {} Hz, {length}", self.samples, self.rate_hz));
        let good = 100.0 * self.valid_samples as f64 / self.samples.max(1) as f64;
        row("Good", format!("{} samples, {} %", self.valid_samples, short(good, 4)));
        row("Gaps", self.gaps());
        row("Rms", format!("{:.3e}", self.rms));
        text
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
