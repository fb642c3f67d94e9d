//! Correction for filled gaps: constant fill has no noise, so the noise of windows with fill is underestimated.
//!
//! Invariant: without gaps no event is touched.

use super::flagged::LostRows;
use crate::dedisperse;
use crate::io::Gap;
use crate::single_pulse::Event;
use crate::single_pulse::PartialEvent;

/// Number of channels sampled to estimate the filled fraction of a window.
const CHANNELS: usize = 32;

/// Largest filled fraction of a window; beyond it the noise cannot be estimated.
const MOST_FILLED: f64 = 0.25;

/// Exponent of the clipped standard deviation as a function of the unfilled fraction.
const CLIPPED: f64 = 0.63;

/// Filled rows of a search.
#[derive(Clone, Debug, Default)]
pub(super) struct Filled {
    /// First row and end of each gap, counted from the first row searched.
    gaps: Vec<(u64, u64)>,
    /// Rows found to be mostly filled when they were read.
    lost: LostRows,
}

impl Filled {
    /// Collects the gaps that extend beyond row `first`, where the search begins, and the rows found lost later.
    pub(super) fn new(gaps: &[Gap], first: u64, lost: LostRows) -> Self {
        let rows = |gap: &Gap| {
            let start = gap.start_time.saturating_sub(first);
            (start, (gap.start_time + gap.times).saturating_sub(first))
        };
        let gaps = gaps.iter().map(rows).filter(|(start, end)| start < end).collect();
        Self { gaps, lost }
    }

    /// Lowers the S/N in windows with fill. Drops events that fall below `least`, and all in windows with more than a
    /// quarter of fill.
    ///
    /// For noise of which the fraction `f` is constant, moments give `sqrt(1 - f)` of the standard deviation; with
    /// clipping at 3 standard deviations the result is `(1 - f)^0.63` within one per cent, up to `f` of a quarter.
    pub(super) fn weigh(
        &self,
        plan: &dedisperse::Plan,
        window_times: u64,
        least: f64,
        events: &mut Vec<Event>,
    ) {
        if events.is_empty() || (self.gaps.is_empty() && self.lost.runs().is_empty()) {
            return;
        }
        events.retain_mut(|event| {
            let window = event.time / window_times;
            let filled = self.part(plan, event.dm as usize, (window * window_times, window_times));
            event.snr *= (1.0 - filled).max(0.0).powf(CLIPPED) as f32;
            filled <= MOST_FILLED && f64::from(event.snr) >= least
        });
    }

    /// Like [`Filled::weigh`], for events of an edge whose noise was measured in `window` (first sample, number of
    /// samples).
    pub(super) fn weigh_partial(
        &self,
        plan: &dedisperse::Plan,
        window: (u64, u64),
        least: f64,
        events: &mut Vec<PartialEvent>,
    ) {
        if events.is_empty() || (self.gaps.is_empty() && self.lost.runs().is_empty()) {
            return;
        }
        events.retain_mut(|event| {
            let filled = self.part(plan, event.dm as usize, window);
            event.snr *= (1.0 - filled).max(0.0).powf(CLIPPED) as f32;
            filled <= MOST_FILLED && f64::from(event.snr) >= least
        });
    }

    /// Returns the filled fraction of a trial's window, `(first, times)` in output samples.
    fn part(&self, plan: &dedisperse::Plan, dm: usize, (first, times): (u64, u64)) -> f64 {
        let lost = self.lost.runs();
        let channels = plan.channels_used();
        let step = channels.len().div_ceil(CHANNELS);
        let bin = plan.downsample() as u64;
        let filled = |channel: usize| {
            let start = (first + plan.shift(dm, channel) as u64) * bin;
            let end = start + times * bin;
            let overlap = |gap: &(u64, u64)| gap.1.min(end).saturating_sub(gap.0.max(start));
            self.gaps.iter().chain(lost.iter()).map(overlap).sum::<u64>()
        };
        let looked = channels.iter().step_by(step);
        let count = looked.len() as u64 * times * bin;
        looked.map(|channel| filled(*channel)).sum::<u64>() as f64 / count as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::Encoding;
    use crate::units::{Band, DM_CONSTANT};

    #[test]
    fn the_part_follows_the_gap_through_the_band() {
        let plan = dedisperse::Plan::new(dedisperse::Options {
            band: Band::uniform(1500.0, -1.0, 8).unwrap(),
            tsamp_s: 1e-3,
            dms: vec![0.0, 5000.0],
            downsample: 2,
            encoding: Encoding::U8,
            range: None,
            masked: Vec::new(),
            dm_constant: DM_CONSTANT,
        })
        .unwrap();
        let filled = Filled::new(&[Gap { start_time: 150, times: 100 }], 50, LostRows::default());
        // Rows 100 to 200 are output samples 50 to 100.
        assert_eq!(filled.part(&plan, 0, (0, 100)), 0.5);
        assert_eq!(filled.part(&plan, 0, (100, 100)), 0.0);
        let delayed = filled.part(&plan, 1, (0, 100));
        assert!(delayed > 0.5 - 0.5 * 50.0 / 100.0 && delayed < 0.5 + 0.5, "{delayed}");
        assert_eq!(
            Filled::new(&[Gap { start_time: 0, times: 40 }], 50, LostRows::default()).gaps,
            []
        );
    }
}
