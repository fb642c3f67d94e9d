//! Results of a search, as summary.json and as terminal output.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::Serialize;
use sidereal::dedisperse::dm_plan::{DmPlan, DmRange};
use sidereal::geometry::{Direction, Dut1, barycentric_mjd, site_itrf_m};
use sidereal::io::FilterbankHeader;
use sidereal::pipeline::burst::Report;
use sidereal::single_pulse;
use sidereal::single_pulse::Repeater;
use sidereal::units::{Epoch, HZ_PER_MHZ, SECONDS_PER_DAY};

use crate::behind::Dropped;
use crate::flags;
use crate::gaps::{self, Gap, Unsearched};
use crate::geometry;
use crate::numbers::tidy;
use crate::plots::duration;
use crate::progress::multiple;
use crate::provenance::{Made, Product};
use crate::rfi::{self, Rfi};
use crate::selection::Observation;

/// Most candidates listed on the terminal.
pub(super) const LISTED: usize = 20;

/// Results of a finished search.
pub(crate) struct Found {
    pub(crate) report: Report,
    /// Sources of periodic pulses.
    pub(crate) sources: Vec<Repeater>,
    pub(crate) header: FilterbankHeader,
    /// Most candidates to plot.
    pub(crate) drawn: usize,
    /// Files of the observation.
    pub(crate) files: Vec<PathBuf>,
    /// Filter bank that made the spectra from voltages.
    pub(crate) geometry: Option<geometry::Document>,
    /// Seconds from the recording's first sample to the first spectrum's start.
    pub(crate) delay_s: f64,
    /// S/N threshold.
    pub(crate) snr: f64,
    /// Report on the mitigation of interference.
    pub(crate) rfi: Rfi,
    /// Most candidates per minute.
    pub(crate) max_per_minute: Option<usize>,
    /// Requested trials.
    pub(crate) plan: DmPlan,
    /// Dispersion constant in s MHz^2 pc^-1 cm^3.
    pub(crate) dm_constant: f64,
    /// Source of UT1 - UTC, for barycentric times.
    pub(crate) dut1: Dut1,
    /// Samples of a live stream that were dropped because the search was too slow.
    pub(crate) dropped: Option<Dropped>,
    /// Program, inputs and options; date, host, device and times of the run.
    pub(crate) made: Made,
}

/// Contents of summary.json.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Summary {
    file: String,
    observation: Observation,
    /// Seconds of data that were searched.
    data_s: f64,
    /// Lowest S/N of a candidate.
    threshold_snr: f64,
    dms: Dms,
    /// Requested ranges of trials; a recording may be too short for the highest.
    plan: Vec<Range>,
    masked_channels: Vec<usize>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    gaps: Vec<Gap>,
    /// Times in which no burst of the lowest trial can be found, because gaps fill more than a quarter of the window that gives the
    /// noise; absent without any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unsearched: Vec<Unsearched>,
    /// Samples of a live stream that were dropped because the search was too slow; absent without any.
    #[serde(skip_serializing_if = "Option::is_none")]
    dropped: Option<Dropped>,
    interference: rfi::Document,
    /// Candidates dropped in favour of stronger ones of the same minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    left_out: Option<LeftOut>,
    /// Number of samples that were not finite and were replaced by their channel's level.
    flagged_samples: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    geometry: Option<geometry::Document>,
    /// Whether the whole recording was searched and all output was written; otherwise `reason` states why not.
    complete: bool,
    reason: Option<String>,
    candidates: Vec<Candidate>,
    /// Sources of periodic pulses; absent if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    sources: Vec<Source>,
}

/// Source of periodic pulses.
#[derive(Serialize, JsonSchema)]
struct Source {
    dm: f64,
    period_s: f64,
    pulses: usize,
    /// S/N of the best pulse.
    snr: f64,
    first_s: f64,
    last_s: f64,
    /// Line numbers of the pulses in the list of candidates, from 1, in order of time.
    candidates: Vec<usize>,
}

impl Source {
    fn new(source: &Repeater, found: &Found) -> Self {
        let pulses = source.candidates.iter().map(|place| &found.report.candidates[*place]);
        let times = pulses.clone().map(|pulse| tidy(pulse.time_s));
        Self {
            dm: tidy(source.dm),
            period_s: tidy(source.period_s),
            pulses: source.candidates.len(),
            snr: tidy(pulses.map(|pulse| pulse.snr).fold(0.0, f64::max)),
            first_s: times.clone().fold(f64::INFINITY, f64::min),
            last_s: times.fold(f64::NEG_INFINITY, f64::max),
            candidates: source.candidates.iter().map(|place| place + 1).collect(),
        }
    }
}

/// Candidates dropped because there were too many.
#[derive(Serialize, JsonSchema)]
struct LeftOut {
    candidates: usize,
    reason: String,
}

impl LeftOut {
    fn new(found: &Found) -> Option<Self> {
        let (candidates, most) = (found.report.left_out, found.max_per_minute?);
        let reason = format!("a minute keeps its {most} strongest candidates (--max-per-minute)");
        (candidates > 0).then_some(Self { candidates, reason })
    }
}

fn interference(found: &Found) -> rfi::Document {
    rfi::Document::new(found.rfi, found.report.mitigated.as_ref(), found.header.tsamp_s)
}

#[derive(Serialize, JsonSchema)]
struct Dms {
    min: f64,
    max: f64,
    count: usize,
}

/// Range of trials of one step and one downsampling factor.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Range {
    dm_min: f64,
    dm_max: f64,
    dm_step: f64,
    /// Number of samples summed into one.
    downsample: usize,
}

impl Range {
    pub(crate) fn new(range: &DmRange) -> Self {
        let DmRange { dm_min, dm_max, dm_step, downsample } = *range;
        Self { dm_min: tidy(dm_min), dm_max: tidy(dm_max), dm_step: tidy(dm_step), downsample }
    }
}

#[derive(Serialize, JsonSchema)]
struct Candidate {
    dm: f64,
    /// Centre of the pulse at the reference frequency, in seconds from the recording's first sample.
    time_s: f64,
    snr: f64,
    width_s: f64,
    members: usize,
    /// The same moment as a topocentric UTC MJD; absent if the recording's start is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    mjd: Option<f64>,
    /// Arrival time at the solar system's barycentre at infinite frequency (TDB), corrected for the dispersion delay
    /// at the reference frequency. Absent if the source's position or the telescope is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    barycentric_mjd: Option<f64>,
    /// Fraction of the channels that the pulse was measured in: 1, unless the recording's start or end cuts its sweep
    /// off. The time is negative if the pulse reached the reference frequency before the first sample.
    band_fraction: f64,
}

/// Returns the source's direction and the telescope's position, if both and the start are known.
pub(super) fn place(header: &FilterbankHeader) -> Option<(Direction, [f64; 3])> {
    let source = Direction { ra_deg: header.ra_deg?, dec_deg: header.dec_deg? };
    let place = site_itrf_m(&header.telescope).filter(|_| header.tstart_mjd > 0.0)?;
    Some((source, place))
}

impl Found {
    /// Returns a candidate's time at the reference frequency as a topocentric UTC MJD.
    pub(super) fn mjd(&self, candidate: &single_pulse::Candidate) -> Option<f64> {
        let start = self.header.tstart_mjd;
        (start > 0.0).then(|| start + candidate.time_s / SECONDS_PER_DAY)
    }

    /// Returns a candidate's time at infinite frequency and the solar system's barycentre, as a TDB MJD.
    pub(super) fn barycentric_mjd(&self, candidate: &single_pulse::Candidate) -> Option<f64> {
        let header = &self.header;
        let (source, place) = place(header)?;
        let reference_mhz = header.band.highest_hz() / HZ_PER_MHZ;
        let dispersion_s = self.dm_constant * candidate.dm / reference_mhz.powi(2);
        let day = header.tstart_mjd.floor();
        let seconds = (header.tstart_mjd - day) * SECONDS_PER_DAY + candidate.time_s - dispersion_s;
        barycentric_mjd(Epoch::new(day as i64, seconds), place, &source, &self.dut1).ok()
    }

    /// Makes the document summary.json.
    pub(crate) fn document(&self) -> Product<Summary> {
        self.made.product("search", Summary::new(self))
    }
}

impl Summary {
    fn new(found: &Found) -> Self {
        let report = &found.report;
        let candidates = report.candidates.iter().map(|c| Candidate {
            dm: tidy(c.dm),
            time_s: tidy(c.time_s),
            snr: tidy(c.snr),
            width_s: tidy(c.width_s),
            members: c.members,
            mjd: found.mjd(c),
            barycentric_mjd: found.barycentric_mjd(c),
            band_fraction: tidy(c.band_fraction),
        });
        Self {
            file: found.header.path.display().to_string(),
            observation: Observation::new(&found.header, found.dm_constant),
            data_s: tidy(report.data_s),
            threshold_snr: found.snr,
            plan: found.plan.ranges.iter().map(Range::new).collect(),
            dms: Dms {
                min: tidy(report.dms.first().copied().unwrap_or(0.0)),
                max: tidy(report.dms.last().copied().unwrap_or(0.0)),
                count: report.dms.len(),
            },
            masked_channels: report.masked_channels.clone(),
            gaps: gaps::listed(&report.gaps, found.header.tsamp_s, found.delay_s),
            unsearched: Unsearched::listed(&report.unsearched, found.header.tsamp_s, found.delay_s),
            dropped: found.dropped.clone(),
            interference: interference(found),
            left_out: LeftOut::new(found),
            flagged_samples: report.flagged_samples,
            geometry: found.geometry.clone(),
            complete: report.ending.is_complete(),
            reason: flags::reason(&report.ending),
            candidates: candidates.collect(),
            sources: found.sources.iter().map(|source| Source::new(source, found)).collect(),
        }
    }
}

/// Formats the lines printed at the end of a search.
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
    text += &interference(found).text();
    if let Some(LeftOut { candidates, reason }) = LeftOut::new(found) {
        let _ = writeln!(text, "Left out {candidates} candidates: {reason}.");
    }
    table(&mut text, found);
    if report.ending.is_read() && found.drawn > 0 && found.drawn < found.report.candidates.len() {
        let _ = writeln!(text, "Drew the best {}; --max-plots draws more.", found.drawn);
    }
    let _ = write!(text, "Wrote {}", place.display());
    text
}

/// States the fraction of the channels of a burst that the recording's start or end cuts off.
fn part_of_band(fraction: f64) -> String {
    if fraction < 1.0 {
        format!("  in {:.0} % of the band", 100.0 * fraction)
    } else {
        String::new()
    }
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
            "{:>5} {:>8.2} {:>10.2} {:>14.6} {:>10} {:>8}{}",
            index + 1,
            candidate.snr,
            candidate.dm,
            candidate.time_s,
            duration(candidate.width_s),
            candidate.members,
            part_of_band(candidate.band_fraction),
        );
    }
    if candidates.len() > LISTED {
        let _ = writeln!(text, "      and {} more in candidates.csv", candidates.len() - LISTED);
    }
    for source in &found.sources {
        let Source { dm, period_s, pulses, snr, first_s, last_s, .. } = Source::new(source, found);
        let _ = writeln!(
            text,
            "{pulses} of these repeat each {period_s:.6} s at DM {dm:.2}, from {first_s:.3} s to {last_s:.3} s; \
             the best has S/N {snr:.1}."
        );
    }
    text.push('\n');
}
