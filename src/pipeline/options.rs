//! What a search or a dedispersion is asked for, and the rows of the source that it takes.
//!
//! Invariant: a part lies within its source, as far as the source's length is known.

use crate::clean::Steps;
use crate::dedisperse::dm_plan::DmPlan;
use crate::error::{Error, Result};
use crate::io::rfifind::Mask;
use crate::io::{FilterbankHeader, FilterbankSource};
use crate::units::DM_CONSTANT;

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
    /// The part of a channel's samples that may be not finite; with more, the channel is left out.
    pub max_flagged: f64,
    /// Interference that is looked for throughout, and taken away; `None` leaves rows as they are.
    pub mitigation: Option<Steps>,
    /// The most candidates of a minute: the strongest are kept. `None` sets no limit.
    pub max_per_minute: Option<usize>,
    /// A PRESTO rfifind mask.
    pub mask: Option<Mask>,
    /// Rows a read; 0 chooses. The result does not depend on it.
    pub gulp: usize,
    /// The most bytes that buffers in the host's memory may take, beside the recording's reader; `None` sets no limit.
    /// Blocks get shorter, and the result does not depend on it.
    pub memory: Option<u64>,
    /// True if the events that belong to each candidate are reported.
    pub list_absorbed: bool,
    /// The least part of the channels that the recording's start or end must leave of a burst's sweep, above 0; 1 looks for
    /// whole bursts alone.
    pub min_band: f64,
    /// The part to search, in seconds from the first sample's start.
    pub time_range: Option<(f64, f64)>,
}

impl SearchOptions {
    /// What `sidereal search` takes unless told otherwise: S/N 6, boxcars up to 0.1 s, a baseline
    /// over 2 s, bursts of which a quarter of the band is there, and the automatic channel mask. Nothing else is done about interference, and candidates are not limited.
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
            max_flagged: 0.5,
            mitigation: None,
            max_per_minute: None,
            mask: None,
            gulp: 0,
            memory: None,
            list_absorbed: false,
            min_band: 0.25,
            time_range: None,
        }
    }
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
