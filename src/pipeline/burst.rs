//! From filterbank rows to bursts: clean, dedisperse, detect, cluster.
//!
//! Invariant: candidates depend on the rows and the options alone, never on gulp, threads or backend.

use std::time::Instant;

use super::cleaning::Cleaning;
use super::filled::Filled;
pub use super::options::SearchOptions;
use super::options::{Part, skip_to};
use super::range::RangeSearch;
use super::trials::Trials;
use crate::backend::Backend;
use crate::error::{Error, Result};
use crate::io::{FilterbankHeader, FilterbankSource, Gap};
use crate::pulse::cluster::Candidate;
use crate::sample::Samples;

/// Bytes of the dedispersed planes that one gulp may fill, all ranges together.
const PLANE_BYTES: usize = 96 << 20;

/// Bytes of rows that one gulp may hold.
const GULP_BYTES: usize = 32 << 20;

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
    let filled = Filled::new(source.gaps(), part.first);
    let mut ranges = RangeSearch::all(trials, &filled, backend)?;
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
