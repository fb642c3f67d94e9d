//! From filterbank rows to bursts: clean, dedisperse, detect, cluster.
//!
//! Invariant: candidates depend on the rows and the options alone, never on gulp, threads or backend.

use std::time::Instant;

use super::cleaning::Cleaning;
use super::range::RangeSearch;
use super::trials::Trials;
use crate::backend::Backend;
use crate::dedisperse::dm_plan::DmPlan;
use crate::error::{Error, Result};
use crate::io::rfifind::Mask;
use crate::io::{FilterbankHeader, FilterbankSource, Gap};
use crate::pulse::cluster::Candidate;
use crate::sample::Samples;
use crate::units::DM_CONSTANT;

/// Bytes of the dedispersed planes that one gulp may fill, all ranges together.
const PLANE_BYTES: usize = 96 << 20;

/// Bytes of rows that one gulp may hold.
const GULP_BYTES: usize = 32 << 20;

/// What a search is asked for.
#[derive(Clone, Debug)]
pub struct SearchOptions {
    /// Trial dispersion measures.
    pub plan: DmPlan,
    /// Dispersion constant, s MHz^2 pc^-1 cm^3.
    pub dm_constant: f64,
    /// Least S/N of a candidate.
    pub snr: f64,
    /// Widest boxcar in seconds.
    pub max_width_s: f64,
    /// Length in seconds over which baseline and noise are estimated.
    pub baseline_s: f64,
    /// Whether each row's mean over the channels is subtracted.
    pub zero_dm: bool,
    /// Channels left out, in recorded order.
    pub zapped: Vec<usize>,
    /// Whether channels of outlying statistics are left out too.
    pub auto_mask: bool,
    /// A PRESTO rfifind mask.
    pub mask: Option<Mask>,
    /// Rows a read; 0 chooses. The result does not depend on it.
    pub gulp: usize,
    /// The part to search, in seconds from the first sample's start.
    pub time_range: Option<(f64, f64)>,
}

impl SearchOptions {
    /// What `sidereal search` takes unless told otherwise: S/N 6, boxcars up to 0.1 s, a baseline
    /// over 2 s, and the automatic channel mask.
    pub fn new(plan: DmPlan) -> Self {
        Self {
            plan,
            dm_constant: DM_CONSTANT,
            snr: 6.0,
            max_width_s: 0.1,
            baseline_s: 2.0,
            zero_dm: false,
            zapped: Vec::new(),
            auto_mask: true,
            mask: None,
            gulp: 0,
            time_range: None,
        }
    }
}

/// How far a search has come.
#[derive(Clone, Copy, Debug)]
pub struct Status {
    /// Rows searched.
    pub times: u64,
    /// Rows in all, when known.
    pub total: Option<u64>,
    /// Length of the rows searched, in seconds.
    pub data_s: f64,
    /// Time since the search began, in seconds.
    pub elapsed_s: f64,
}

/// What a search found.
#[derive(Clone, Debug)]
pub struct Report {
    /// One a burst, best first.
    pub candidates: Vec<Candidate>,
    /// Every trial that was searched.
    pub dms: Vec<f64>,
    /// Trials left out because their delay is longer than the data.
    pub skipped_dms: usize,
    /// Channels left out, in recorded order.
    pub masked_channels: Vec<usize>,
    /// Gaps that were filled.
    pub gaps: Vec<Gap>,
    /// Rows searched.
    pub times: u64,
    /// Length of the data searched, in seconds.
    pub data_s: f64,
    /// Time that the search took, in seconds.
    pub elapsed_s: f64,
    /// False when the observer stopped the search: what lay behind was not searched.
    pub complete: bool,
}

impl Report {
    /// Seconds of data searched in a second.
    pub fn realtime_factor(&self) -> f64 {
        self.data_s / self.elapsed_s.max(1e-9)
    }
}

/// Searches a stream of filterbank rows for dispersed bursts.
///
/// `observe` is told after each gulp how far the search is, and stops it by returning false.
///
/// # Errors
/// [`Error::Parameter`] for options that don't fit the data, or when no trial's delay does;
/// whatever the source reports.
pub fn search(
    source: &mut dyn FilterbankSource,
    options: &SearchOptions,
    backend: &Backend,
    observe: &mut dyn FnMut(&Status) -> bool,
) -> Result<Report> {
    let begin = Instant::now();
    let header = source.header().clone();
    let part = Part::new(&header, options)?;
    skip_to(source, part.first)?;
    let mut cleaning = Cleaning::new(source, options, part, backend)?;
    let trials = Trials { header: &header, options, cleaning: &cleaning, part };
    let mut ranges = RangeSearch::all(trials, backend)?;
    let mut clusterer = RangeSearch::clusterer(&ranges, &header, options)?;
    let gulp = gulp_times(&header, &ranges, options.gulp);
    let mut raw = vec![0; gulp * header.row_bytes()];
    let mut cleaned = Vec::new();
    let mut times = 0;
    let mut complete = true;
    loop {
        let rows = cleaning.read(source, &mut raw)?;
        if rows == 0 {
            break;
        }
        times += rows as u64;
        let bytes = &raw[..rows * header.row_bytes()];
        let samples = Samples::new(bytes, header.encoding, rows, header.channels())?;
        let samples = cleaning.clean(samples, &mut cleaned)?;
        for range in &mut ranges {
            range.run(samples, &mut clusterer)?;
        }
        let data_s = times as f64 * header.tsamp_s;
        let elapsed_s = begin.elapsed().as_secs_f64();
        if !observe(&Status { times, total: part.times, data_s, elapsed_s }) {
            complete = false;
            break;
        }
    }
    let mut skipped_dms = RangeSearch::skipped(&ranges);
    if complete {
        for range in &mut ranges {
            skipped_dms += range.finish(times, &mut clusterer)?;
        }
    }
    let dms = RangeSearch::searched(&ranges, times);
    if dms.is_empty() && complete {
        return Err(no_trial_fits(&header, options, times));
    }
    let mut candidates = clusterer.finish();
    let offset_s = part.first as f64 * header.tsamp_s;
    for candidate in &mut candidates {
        candidate.time_s += offset_s;
        candidate.begin_s += offset_s;
        candidate.end_s += offset_s;
    }
    Ok(Report {
        candidates,
        dms,
        skipped_dms,
        masked_channels: cleaning.masked_channels(),
        gaps: source.gaps().to_vec(),
        times,
        data_s: times as f64 * header.tsamp_s,
        elapsed_s: begin.elapsed().as_secs_f64(),
        complete,
    })
}

/// The rows of a source that are searched.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    /// The first row.
    pub(super) first: u64,
    /// How many, where that is known.
    pub(super) times: Option<u64>,
    /// How many were asked for.
    pub(super) limit: u64,
}

impl Part {
    pub(super) fn new(header: &FilterbankHeader, options: &SearchOptions) -> Result<Self> {
        let Some((from, to)) = options.time_range else {
            return Ok(Self { first: 0, times: header.times, limit: u64::MAX });
        };
        let duration = header.duration_s().unwrap_or(f64::INFINITY);
        if !(from >= 0.0 && from < to && from < duration) {
            let rule = format!("it must be FROM:TO in seconds, rising, within 0 to {duration:.6}");
            return Err(Error::parameter("--time-range", format!("{from}:{to}"), rule));
        }
        let first = (from / header.tsamp_s).round() as u64;
        let limit = ((to / header.tsamp_s).round() as u64).saturating_sub(first);
        let times = header.times.map(|times| times.saturating_sub(first).min(limit));
        Ok(Self { first, times, limit })
    }
}

pub(super) fn skip_to(source: &mut dyn FilterbankSource, first: u64) -> Result<()> {
    let skipped = source.skip(first)?;
    if skipped < first {
        let rule = format!("the data end after {skipped} samples, before its start");
        return Err(Error::parameter("--time-range", first, rule));
    }
    Ok(())
}

/// Rows a gulp: as asked for, or as many as keep the planes within their share of memory.
fn gulp_times(header: &FilterbankHeader, ranges: &[RangeSearch], asked: usize) -> usize {
    let per_time: usize = ranges.iter().map(RangeSearch::plane_bytes_per_row).sum();
    let most = (PLANE_BYTES / per_time.max(1)).min(GULP_BYTES / header.row_bytes().max(1));
    if asked == 0 { most.clamp(256, 1 << 16) } else { asked.min(most.max(1)) }
}

fn no_trial_fits(header: &FilterbankHeader, options: &SearchOptions, times: u64) -> Error {
    let (lowest, highest) = (header.band.lowest_hz(), header.band.highest_hz());
    let dm = options.plan.ranges.first().map_or(0.0, |range| range.dm_min);
    let delay = crate::units::dispersion_delay_s(dm, lowest, highest, options.dm_constant);
    let length = times as f64 * header.tsamp_s;
    let rule = format!(
        "its delay across the band, {delay:.3} s, is longer than the data, {length:.3} s: no trial fits"
    );
    Error::parameter("--dm-min", dm, rule)
}
