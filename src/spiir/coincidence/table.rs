//! Triggers ordered by template, then time.

use std::ops::Range;

use super::{Detector, Ranking, TimedTrigger};

/// Trigger data that the coincidence search needs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Hit {
    /// Time in GPS nanoseconds.
    pub(super) ns: i64,
    /// Square of its ranking.
    pub(super) square: f64,
    /// Index in its detector's list.
    pub(super) index: u32,
}

/// Triggers of all detectors, by template and time for each detector.
#[derive(Debug)]
pub(super) struct Table {
    /// Templates with triggers in at least two detectors.
    pub(super) templates: Vec<u32>,
    hits: Vec<Vec<Hit>>,
    /// Range of each of `templates` in each detector's hits.
    ranges: Vec<Vec<Range<usize>>>,
}

impl Table {
    /// Collects the triggers for which `wanted(detector, trigger)` holds.
    pub(super) fn new(
        detectors: &[Detector<'_>],
        ranking: Ranking,
        wanted: impl Fn(usize, &TimedTrigger) -> bool,
    ) -> Self {
        let sorted = |(detector, of): (usize, &Detector<'_>)| {
            let triggers = of.triggers.iter().enumerate();
            let mut list: Vec<(u32, Hit)> = triggers
                .filter(|(_, trigger)| wanted(detector, trigger))
                .map(|(index, trigger)| {
                    let (ns, square) = (trigger.gps.ns, ranking.square(trigger));
                    (trigger.template, Hit { ns, square, index: index as u32 })
                })
                .collect();
            list.sort_unstable_by_key(|(template, hit)| (*template, hit.ns, hit.index));
            list
        };
        let lists: Vec<_> = detectors.iter().enumerate().map(sorted).collect();
        let mut templates: Vec<u32> = lists.iter().flat_map(|list| own_templates(list)).collect();
        templates.sort_unstable();
        // A template occurs once for each detector that has it.
        let twice = templates.windows(2).filter(|pair| pair[0] == pair[1]);
        let mut templates: Vec<u32> = twice.map(|pair| pair[0]).collect();
        templates.dedup();
        let range = |list: &[(u32, Hit)], template: u32| {
            let first = list.partition_point(|(own, _)| *own < template);
            first..first + list[first..].partition_point(|(own, _)| *own == template)
        };
        let ranges =
            |list: &Vec<_>| templates.iter().map(|template| range(list, *template)).collect();
        let ranges = lists.iter().map(ranges).collect();
        let hits = |list: Vec<(u32, Hit)>| list.into_iter().map(|(_, hit)| hit).collect();
        Self { ranges, hits: lists.into_iter().map(hits).collect(), templates }
    }

    /// Returns one detector's triggers of the template at index `place`, in order of time.
    pub(super) fn row(&self, detector: usize, place: usize) -> &[Hit] {
        &self.hits[detector][self.ranges[detector][place].clone()]
    }
}

/// Returns the distinct templates of a list.
fn own_templates(list: &[(u32, Hit)]) -> Vec<u32> {
    let mut own: Vec<u32> = list.iter().map(|(template, _)| *template).collect();
    own.dedup();
    own
}
