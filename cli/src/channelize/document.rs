//! OUT.json: what was written, and how it was made.

use schemars::JsonSchema;
use serde::Serialize;
use sidereal::io::voltages::VoltageHeader;
use sidereal::pipeline::ending::Ending;
use sidereal::pipeline::voltage;

use super::outputs::Outputs;
use crate::gaps::Gap;
use crate::geometry::{self, ResponseDocument};
use crate::output::with_final_names;
use crate::plots::{duration, short};
use crate::selection::shown;

/// What was written.
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
    /// Samples of all streams that a spectrum is made from.
    pub(super) row_samples: usize,
    pub(super) elapsed_s: f64,
    pub(super) ending: Ending,
}

/// How numbers became integers.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
pub(super) enum Made {
    Spectra {
        #[serde(skip_serializing_if = "Option::is_none")]
        scaling: Option<Scaling>,
    },
    Voltages {
        /// What each channel was multiplied by.
        gains: Vec<f32>,
        /// Complex samples that had to be limited.
        limited: u64,
    },
}

/// `count = mean_count + gain (power - mean)`; a mean and a gain for each product and channel, in the
/// file's order.
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
        let voltage::Scaling { rows, means, gains, limited } = scaling.clone();
        Self { mean_count: 64, rows, limited, means, gains }
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
    /// Samples of the recording that were not finite; zeros replaced them.
    flagged_samples: u64,
    /// Whether all of a whole recording is in the file.
    complete: bool,
    /// Why not.
    reason: Option<String>,
    #[serde(skip)]
    elapsed_s: f64,
    #[serde(skip)]
    samples: f64,
}

/// OUT.gaps.json.
#[derive(Serialize, JsonSchema)]
pub(super) struct GapList<'a> {
    file: &'a str,
    total_s: f64,
    gaps: &'a [Gap],
}

impl Document {
    pub(super) fn new(
        written: Written,
        outputs: &Outputs,
        response: Option<ResponseDocument>,
    ) -> Self {
        let recorded = written.recorded;
        let duration_s = written.times as f64 * written.tsamp_s;
        Self {
            file: shown(outputs.place()),
            format: outputs.format().name(),
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
            elapsed_s: written.elapsed_s,
            complete: written.ending.is_complete(),
            reason: written.ending.reason().map(|why| with_final_names(&why)),
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

    /// Whether all of a whole recording is in the file.
    pub(super) fn is_complete(&self) -> bool {
        self.complete
    }

    /// Samples of all streams that were channelized.
    pub(super) fn samples(&self) -> f64 {
        self.samples
    }

    pub(super) fn products(&self) -> &[&'static str] {
        self.geometry.products()
    }

    /// What the file holds, in a few words.
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
        // An empty sum is -0.0.
        let total_s = self.gaps.iter().map(Gap::length_s).sum::<f64>() + 0.0;
        GapList { file: &self.file, total_s, gaps: &self.gaps }
    }
}

/// A recording in a line, for --verbose.
pub(super) fn recording(header: &VoltageHeader) -> String {
    format!(
        "{}, {}, {} streams, {} bit",
        header.format,
        header.duration_s().map_or_else(|| "of unknown length".to_owned(), duration),
        header.streams(),
        header.recorded_bits,
    )
}
