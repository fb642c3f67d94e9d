//! Options of a search or a dedispersion, and the selection of a source's rows.
//!
//! Invariant: a part lies within its source, as far as the source's length is known.

use std::sync::Arc;

use super::detections::Detections;
use super::recent::RecentRows;
use crate::clean::Steps;
use crate::dedisperse::dm_plan::DmPlan;
use crate::error::{Error, Result};
use crate::io::presto::Mask;
use crate::io::{FilterbankHeader, FilterbankSource};
use crate::units::DM_CONSTANT;

/// Options of a search.
#[derive(Clone, Debug)]
pub struct SearchOptions {
    /// Trial dispersion measures.
    pub plan: DmPlan,
    /// Dispersion constant, s MHz^2 pc^-1 cm^3.
    pub dm_constant: f64,
    /// Lowest S/N of a candidate.
    pub snr: f64,
    /// Widest boxcar in seconds.
    pub max_width_s: f64,
    /// Length in seconds over which baseline and noise are estimated.
    pub baseline_s: f64,
    /// Longest time in seconds that the samples of a trial wait for rows that only trials of longer delays need; it grows in
    /// proportion to delays beyond 0.8 s. Ranges of DM whose delays differ by more are dedispersed apart. The default is
    /// infinite, the fastest; with a finite value, the noise of bursts that the end of the data cuts off comes from other rows.
    pub max_wait_s: f64,
    /// Whether to subtract each row's mean over the channels.
    pub zero_dm: bool,
    /// Masked channels, in recorded order.
    pub zapped: Vec<usize>,
    /// Whether to mask channels with outlying statistics.
    pub auto_mask: bool,
    /// Largest fraction of a channel's samples that may be not finite; channels above it are masked.
    pub max_flagged: f64,
    /// Mitigation steps for interference in all rows; `None` leaves rows unchanged.
    pub mitigation: Option<Steps>,
    /// Approximate length in seconds of the blocks of rows in which interference is found. A row leaves the mitigation when
    /// the block after its own is known.
    pub mitigation_block_s: f64,
    /// Largest number of candidates per minute; the strongest remain. `None` sets no limit.
    pub max_per_minute: Option<usize>,
    /// A PRESTO rfifind mask.
    pub mask: Option<Mask>,
    /// Rows per read; 0 selects automatically. The result does not depend on it.
    pub gulp: usize,
    /// Limit in bytes on buffers in host memory, without the recording's reader, met by shorter blocks; `None` sets
    /// no limit. The result does not depend on it.
    pub memory: Option<u64>,
    /// Limit in bytes on the record of removed interference, with which cleaned rows can be read again in any order
    /// ([`Report::removals`](super::burst::Report::removals)); 0 records nothing.
    pub removals_bytes: usize,
    /// Whether to report the events absorbed by each candidate.
    pub list_absorbed: bool,
    /// Smallest fraction of the channels, above 0, that a burst cut by the recording's start or end must retain; 1
    /// searches for whole bursts only.
    pub min_band: f64,
    /// Receives the rows as they are searched, unless a GPU makes them from voltages; `None` stores none.
    pub recent: Option<Arc<RecentRows>>,
    /// Receives detections before they are clustered; `None` stores none.
    pub detections: Option<Arc<Detections>>,
    /// Time range to search, in seconds from the first sample's start.
    pub time_range: Option<(f64, f64)>,
}

impl SearchOptions {
    /// Returns the defaults of `sidereal search`: S/N 6, boxcars up to 0.1 s, a baseline over 2 s, cut bursts with at
    /// least a quarter of the band, and the automatic channel mask; no mitigation and no limit on candidates.
    pub fn new(plan: DmPlan) -> Self {
        Self {
            plan,
            dm_constant: DM_CONSTANT,
            snr: 6.0,
            max_width_s: 0.1,
            baseline_s: 2.0,
            max_wait_s: f64::INFINITY,
            zero_dm: false,
            zapped: Vec::new(),
            auto_mask: true,
            max_flagged: 0.5,
            mitigation: None,
            mitigation_block_s: 0.5,
            max_per_minute: None,
            mask: None,
            gulp: 0,
            memory: None,
            removals_bytes: 0,
            list_absorbed: false,
            min_band: 0.25,
            recent: None,
            detections: None,
            time_range: None,
        }
    }
}

/// Range of a source's rows to search.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    /// First row.
    pub(super) first: u64,
    /// Number of rows, if known.
    pub(super) times: Option<u64>,
    /// Requested number of rows.
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
            return Err(Error::parameter("time_range", format!("{from}:{to}"), rule));
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
        return Err(Error::parameter("time_range", first, rule));
    }
    Ok(())
}
