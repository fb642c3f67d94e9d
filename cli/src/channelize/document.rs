//! OUT.json: what was written, and how it was made.

use serde::Serialize;
use sidereal::io::FilterbankSource;
use sidereal::pipeline::voltage::{Scaling, VoltageFilterbank, WriteReport};

use super::outputs::Outputs;
use crate::gaps::Gap;
use crate::geometry::{self, ResponseDocument};
use crate::plots::{duration, short};
use crate::selection::shown;

/// OUT.json, and the JSON document on standard output.
#[derive(Serialize)]
pub(super) struct Document {
    file: String,
    format: &'static str,
    recording: String,
    source: String,
    telescope: String,
    tstart_mjd: f64,
    tsamp_s: f64,
    times: u64,
    duration_s: f64,
    output_channels: usize,
    fch1_mhz: f64,
    foff_mhz: f64,
    bits: usize,
    /// The filter bank.
    geometry: geometry::Document,
    #[serde(skip_serializing_if = "Option::is_none")]
    response: Option<ResponseDocument>,
    /// How 8-bit counts were made.
    #[serde(skip_serializing_if = "Option::is_none")]
    scaling: Option<ScalingDocument>,
    gaps: Vec<Gap>,
    elapsed_s: f64,
    realtime_factor: f64,
    /// Samples of all streams that a row is made from.
    #[serde(skip)]
    row_samples: usize,
}

/// `count = 64 + gain (power - mean)`; one mean and gain a product and channel, in the file's order.
#[derive(Serialize)]
struct ScalingDocument {
    mean_count: u8,
    rows: usize,
    limited: u64,
    means: Vec<f32>,
    gains: Vec<f32>,
}

impl ScalingDocument {
    fn new(scaling: &Scaling) -> Self {
        let Scaling { rows, means, gains, limited } = scaling.clone();
        Self { mean_count: 64, rows, limited, means, gains }
    }
}

/// OUT.gaps.json.
#[derive(Serialize)]
pub(super) struct Gaps<'a> {
    file: &'a str,
    tsamp_s: f64,
    total_s: f64,
    gaps: &'a [Gap],
}

impl Document {
    pub(super) fn new(
        outputs: &Outputs,
        filterbank: &VoltageFilterbank,
        geometry: geometry::Document,
        report: &WriteReport,
        gaps: Vec<Gap>,
    ) -> Self {
        let (header, recorded) = (filterbank.header(), filterbank.recorded());
        Self {
            file: shown(outputs.place()),
            format: "SIGPROC filterbank",
            recording: recorded.path.display().to_string(),
            source: recorded.source_name.clone(),
            telescope: recorded.telescope.clone(),
            tstart_mjd: header.tstart_mjd,
            tsamp_s: header.tsamp_s,
            times: report.rows,
            duration_s: report.data_s,
            output_channels: header.channels(),
            fch1_mhz: header.band.fch1_mhz(),
            foff_mhz: header.band.foff_mhz(),
            bits: if report.scaling.is_some() { 8 } else { 32 },
            geometry,
            response: ResponseDocument::new(filterbank.plan()),
            scaling: report.scaling.as_ref().map(ScalingDocument::new),
            gaps,
            elapsed_s: report.elapsed_s,
            realtime_factor: report.data_s / report.elapsed_s.max(1e-9),
            row_samples: filterbank.plan().samples_per_row() * recorded.streams(),
        }
    }

    pub(super) fn file(&self) -> &str {
        &self.file
    }

    /// Samples of all streams that were channelized.
    pub(super) fn samples(&self) -> f64 {
        self.times as f64 * self.row_samples as f64
    }

    /// What the file holds, in a few words.
    pub(super) fn contents(&self) -> String {
        let products = self.geometry.products().join(" ");
        format!(
            "{} spectra of {} channels ({products}) every {}, {} to {} MHz, {} bit",
            self.times,
            self.output_channels,
            duration(self.tsamp_s),
            short(self.fch1_mhz, 8),
            short(self.fch1_mhz + self.foff_mhz * (self.output_channels as f64 - 1.0), 8),
            self.bits,
        )
    }

    pub(super) fn gaps(&self) -> Gaps<'_> {
        let total_s = self.gaps.iter().map(Gap::length_s).sum();
        Gaps { file: &self.file, tsamp_s: self.tsamp_s, total_s, gaps: &self.gaps }
    }
}
