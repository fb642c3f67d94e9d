//! Trials of a DM plan that fit the data, and the steps of a dedisperser.
//!
//! Invariant: a trial is kept if it has a sample at all in data of known length, and always otherwise.

use super::cleaning::Cleaning;
use super::options::{Part, SearchOptions};
use crate::dedisperse::dm_plan::DmRange;
use crate::dedisperse::{self, Dedisperser, Output};
use crate::error::Result;
use crate::io::FilterbankHeader;
use crate::sample::Samples;
use crate::view::Progress;

/// Largest number of output times per flush.
pub(super) const FLUSH_TIMES: usize = 1 << 12;

/// Data and options that trials are checked against.
#[derive(Clone, Copy)]
pub(super) struct Trials<'a> {
    pub(super) header: &'a FilterbankHeader,
    pub(super) options: &'a SearchOptions,
    pub(super) cleaning: &'a Cleaning,
    pub(super) part: Part,
}

impl Trials<'_> {
    /// Builds one plan for the trials of `ranges`, all with one binning, whose delays fit the data; none without such
    /// a trial. Also returns the number of trials skipped.
    pub(super) fn bind(&self, ranges: &[DmRange]) -> Result<(Option<dedisperse::Plan>, usize)> {
        let dms: Vec<f64> = ranges.iter().flat_map(DmRange::dms).collect();
        let downsample = ranges.first().map_or(1, |range| range.downsample);
        let all = self.plan(downsample, dms)?;
        let fits = |dm: &usize| self.part.times.is_none_or(|times| all.valid_times(times, *dm) > 0);
        let kept: Vec<f64> = (0..all.dms().len()).filter(fits).map(|dm| all.dms()[dm]).collect();
        let skipped = all.dms().len() - kept.len();
        match (kept.len(), skipped) {
            (0, _) => Ok((None, skipped)),
            (_, 0) => Ok((Some(all), 0)),
            _ => Ok((Some(self.plan(downsample, kept)?), skipped)),
        }
    }

    fn plan(&self, downsample: usize, dms: Vec<f64>) -> Result<dedisperse::Plan> {
        dedisperse::Plan::new(dedisperse::Options {
            band: self.header.band.clone(),
            tsamp_s: self.header.tsamp_s,
            dms,
            downsample,
            encoding: self.cleaning.encoding(),
            range: self.cleaning.range(),
            masked: self.cleaning.masked().to_vec(),
            dm_constant: self.options.dm_constant,
        })
    }
}

/// Dedisperses rows or, without rows, flushes the remainder.
pub(super) fn advance(
    dedisperser: &mut Dedisperser,
    rows: Option<Samples<'_>>,
    output: Output<'_>,
) -> Result<Progress> {
    match rows {
        Some(rows) => dedisperser.run(rows, output),
        None => dedisperser.flush(output),
    }
}

/// Returns the largest number of output times of a step: for rows, all of theirs; for a flush, part of the remainder.
pub(super) fn stride(plan: &dedisperse::Plan, rows: Option<Samples<'_>>) -> usize {
    match rows {
        Some(rows) => plan.max_output(rows.times()).max(1),
        None => plan.max_shift().clamp(1, FLUSH_TIMES),
    }
}
