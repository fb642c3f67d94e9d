//! What a search found, as summary.json and as lines on the screen.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde::Serialize;
use sidereal::io::FilterbankHeader;
use sidereal::pipeline::burst::Report;

use crate::errors;
use crate::gaps::{self, Gap};
use crate::geometry;
use crate::plots::duration;
use crate::progress::multiple;

/// Candidates listed on the screen, at most.
const LISTED: usize = 20;

/// A finished search.
pub(crate) struct Found {
    pub(crate) report: Report,
    pub(crate) header: FilterbankHeader,
    /// Candidates drawn at most.
    pub(crate) drawn: usize,
    /// The files of the observation.
    pub(crate) files: Vec<PathBuf>,
    /// The filter bank that made the spectra, of voltages.
    pub(crate) geometry: Option<geometry::Document>,
    /// Seconds from the recording's first sample to the first spectrum's start.
    pub(crate) delay_s: f64,
    /// The threshold.
    pub(crate) snr: f64,
    /// The GPU that searched, if one did.
    pub(crate) device: Option<String>,
    /// The vector level of the processor's work.
    pub(crate) simd: Option<&'static str>,
}

/// summary.json.
#[derive(Serialize)]
pub(crate) struct Summary {
    file: String,
    dms: Dms,
    masked_channels: Vec<usize>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    gaps: Vec<Gap>,
    /// Samples that were not finite and were filled by their channel's level.
    flagged_samples: u64,
    realtime_factor: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    geometry: Option<geometry::Document>,
    /// The GPU that searched: `cuda:0` and its name; not there where the processor did.
    #[serde(skip_serializing_if = "Option::is_none")]
    device: Option<String>,
    /// Whether the whole recording was searched and everything was written; else the reason why not.
    complete: bool,
    reason: Option<String>,
    /// The vector level of the processor's work; not there for the reference.
    #[serde(skip_serializing_if = "Option::is_none")]
    simd: Option<&'static str>,
    candidates: Vec<Candidate>,
}

#[derive(Serialize)]
struct Dms {
    min: f64,
    max: f64,
    count: usize,
}

#[derive(Serialize)]
struct Candidate {
    dm: f64,
    time_s: f64,
    snr: f64,
    width_s: f64,
    members: usize,
}

impl Summary {
    pub(crate) fn new(found: &Found) -> Self {
        let report = &found.report;
        let candidates = report.candidates.iter().map(|c| Candidate {
            dm: tidy(c.dm),
            time_s: tidy(c.time_s),
            snr: tidy(c.snr),
            width_s: tidy(c.width_s),
            members: c.members,
        });
        Self {
            file: found.header.path.display().to_string(),
            dms: Dms {
                min: tidy(report.dms.first().copied().unwrap_or(0.0)),
                max: tidy(report.dms.last().copied().unwrap_or(0.0)),
                count: report.dms.len(),
            },
            masked_channels: report.masked_channels.clone(),
            gaps: gaps::listed(&report.gaps, found.header.tsamp_s, found.delay_s),
            flagged_samples: report.flagged_samples,
            realtime_factor: report.realtime_factor(),
            geometry: found.geometry.clone(),
            device: found.device.clone(),
            complete: report.ending.is_complete(),
            reason: report.ending.reason().map(|why| errors::named(&why)),
            simd: found.simd,
            candidates: candidates.collect(),
        }
    }
}

/// A number without the last digits' noise of sums in binary: 474.91, not 474.90999999999997.
pub(super) fn tidy(value: f64) -> f64 {
    (value * 1e9).round() / 1e9
}

/// The lines that end a search.
pub(crate) fn text(found: &Found, place: &Path) -> String {
    let report = &found.report;
    let (first, last) = (report.dms.first(), report.dms.last());
    let mut text = format!(
        "Searched {} of data at {} trial DMs from {:.2} to {:.2} in {}: {} x real time.\n",
        duration(report.data_s),
        report.dms.len(),
        first.copied().unwrap_or(0.0),
        last.copied().unwrap_or(0.0),
        duration(report.elapsed_s),
        multiple(report.realtime_factor()),
    );
    let masked = report.masked_channels.len();
    if masked > 0 {
        let _ = writeln!(text, "Left out {masked} of {} channels.", found.header.channels());
    }
    table(&mut text, found);
    if report.ending.is_read() && found.drawn > 0 && found.drawn < found.report.candidates.len() {
        let _ = writeln!(text, "Drew the best {}; --max-plots draws more.", found.drawn);
    }
    let _ = write!(text, "Wrote {}", place.display());
    text
}

fn table(text: &mut String, found: &Found) {
    let candidates = &found.report.candidates;
    if candidates.is_empty() {
        let _ = writeln!(text, "No candidate above S/N {}.", found.snr);
        return;
    }
    let _ = writeln!(text, "\n    #      S/N         DM       time (s)      width  members");
    for (index, candidate) in candidates.iter().take(LISTED).enumerate() {
        let _ = writeln!(
            text,
            "{:>5} {:>8.2} {:>10.2} {:>14.6} {:>10} {:>8}",
            index + 1,
            candidate.snr,
            candidate.dm,
            candidate.time_s,
            duration(candidate.width_s),
            candidate.members,
        );
    }
    if candidates.len() > LISTED {
        let _ = writeln!(text, "      and {} more in candidates.csv", candidates.len() - LISTED);
    }
    text.push('\n');
}
