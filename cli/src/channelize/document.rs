//! Document of channelized voltages.

use std::path::Path;

use schemars::JsonSchema;
use serde::Serialize;
use sidereal::io::voltages::VoltageHeader;
use sidereal::pipeline::{Ending, voltage};

use crate::behind::Dropped;
use crate::flags;
use crate::gaps::Gap;
use crate::geometry::{self, ResponseDocument};
use crate::plots::{duration, short};
use crate::progress::{multiple, rate};
use crate::selection::shown;

pub(super) fn text(document: &Document) -> String {
    let (data_s, elapsed_s) = (document.duration_s(), document.elapsed_s().max(1e-9));
    // A filterbank header cannot name the products of its IFs.
    let note = match document.products() {
        ["I", _, ..] => "\nTo search it, take I alone: sidereal search ... --pol 0",
        _ => "",
    };
    format!(
        "Channelized {} in {}: {}, {} x real time.\nWrote {}{}: {}{note}",
        duration(data_s),
        duration(elapsed_s),
        rate(document.samples() / elapsed_s),
        multiple(data_s / elapsed_s),
        document.file(),
        if document.is_complete() { "" } else { " (not complete)" },
        document.contents(),
    )
}

/// Description of the output.
pub(super) struct Written {
    pub(super) recorded: VoltageHeader,
    pub(super) geometry: geometry::Document,
    pub(super) tstart_mjd: f64,
    pub(super) tsamp_s: f64,
    pub(super) times: u64,
    pub(super) channels: usize,
    pub(super) fch1_mhz: f64,
    pub(super) foff_mhz: f64,
    pub(super) bits: usize,
    pub(super) made: Made,
    pub(super) gaps: Vec<Gap>,
    pub(super) flagged_samples: u64,
    /// Samples of all streams that one spectrum is made from.
    pub(super) row_samples: usize,
    pub(super) elapsed_s: f64,
    pub(super) ending: Ending,
}

/// Conversion of values to integers.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
pub(super) enum Made {
    Spectra {
        #[serde(skip_serializing_if = "Option::is_none")]
        scaling: Option<Scaling>,
    },
    Voltages {
        /// Gain of each channel.
        gains: Vec<f32>,
        /// Number of complex samples that saturated.
        limited: u64,
    },
}

/// Scaling `count = mean_count + gain (power - mean)`; one mean and gain per product and channel, in the file's
/// order.
#[derive(Serialize, JsonSchema)]
pub(super) struct Scaling {
    mean_count: u8,
    rows: usize,
    limited: u64,
    means: Vec<f32>,
    gains: Vec<f32>,
}

impl Scaling {
    pub(super) fn new(scaling: &voltage::Scaling) -> Self {
        let voltage::Scaling { rows, means, gains, clipped } = scaling.clone();
        Self { mean_count: 64, rows, limited: clipped, means, gains }
    }
}

/// OUT.json, and the JSON document on standard output.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Document {
    file: String,
    format: &'static str,
    recording: String,
    source: String,
    telescope: String,
    tstart_mjd: Option<f64>,
    tsamp_s: f64,
    times: u64,
    duration_s: f64,
    channels: usize,
    fch1_mhz: f64,
    foff_mhz: f64,
    bits: usize,
    geometry: geometry::Document,
    #[serde(skip_serializing_if = "Option::is_none")]
    response: Option<ResponseDocument>,
    #[serde(flatten)]
    made: Made,
    gaps: Vec<Gap>,
    /// Number of samples of the recording that were not finite and were replaced by zeros.
    flagged_samples: u64,
    /// Samples of a live observation so far that were dropped because channelizing was too slow; absent without any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) dropped: Option<Dropped>,
    /// Whether the file contains the complete recording.
    complete: bool,
    /// Reason if it does not.
    reason: Option<String>,
    #[serde(skip)]
    elapsed_s: f64,
    #[serde(skip)]
    samples: f64,
}

/// Contents of OUT.gaps.json.
#[derive(Serialize, JsonSchema)]
pub(super) struct GapList<'a> {
    file: &'a str,
    total_s: f64,
    gaps: &'a [Gap],
}

impl Document {
    pub(super) fn new(
        file: &Path,
        format: &'static str,
        written: Written,
        response: Option<ResponseDocument>,
    ) -> Self {
        let recorded = written.recorded;
        let duration_s = written.times as f64 * written.tsamp_s;
        Self {
            file: shown(file),
            format,
            recording: recorded.path.display().to_string(),
            source: recorded.source_name,
            telescope: recorded.telescope,
            tstart_mjd: (recorded.start.day != 0).then_some(written.tstart_mjd),
            tsamp_s: written.tsamp_s,
            times: written.times,
            duration_s,
            channels: written.channels,
            fch1_mhz: written.fch1_mhz,
            foff_mhz: written.foff_mhz,
            bits: written.bits,
            geometry: written.geometry,
            response,
            made: written.made,
            gaps: written.gaps,
            flagged_samples: written.flagged_samples,
            dropped: None,
            elapsed_s: written.elapsed_s,
            complete: written.ending.is_complete(),
            reason: flags::reason(&written.ending),
            samples: written.times as f64 * written.row_samples as f64,
        }
    }

    pub(super) fn file(&self) -> &str {
        &self.file
    }

    pub(super) fn duration_s(&self) -> f64 {
        self.duration_s
    }

    pub(super) fn elapsed_s(&self) -> f64 {
        self.elapsed_s
    }

    pub(super) fn flagged_samples(&self) -> u64 {
        self.flagged_samples
    }

    pub(super) fn gaps(&self) -> &[Gap] {
        &self.gaps
    }

    /// Returns whether the file contains the complete recording.
    pub(super) fn is_complete(&self) -> bool {
        self.complete
    }

    /// Returns the number of channelized samples of all streams.
    pub(super) fn samples(&self) -> f64 {
        self.samples
    }

    pub(super) fn products(&self) -> &[&'static str] {
        self.geometry.products()
    }

    /// Summarizes the file's contents in a few words.
    pub(super) fn contents(&self) -> String {
        let products = match self.products() {
            [] => String::new(),
            products => format!(" ({})", products.join(" ")),
        };
        let last_mhz = self.fch1_mhz + self.foff_mhz * (self.channels as f64 - 1.0);
        format!(
            "{} spectra of {} channels{products} every {}, {} to {} MHz, {} bit",
            self.times,
            self.channels,
            duration(self.tsamp_s),
            short(self.fch1_mhz, 8),
            short(last_mhz, 8),
            self.bits,
        )
    }

    pub(super) fn gap_list(&self) -> GapList<'_> {
        // Adding 0.0 turns the -0.0 of an empty sum into 0.0.
        let total_s = self.gaps.iter().map(Gap::length_s).sum::<f64>() + 0.0;
        GapList { file: &self.file, total_s, gaps: &self.gaps }
    }
}
