//! Triggers by template, then by time.

use std::ops::Range;

use super::{Detector, Ranking, TimedTrigger};

/// What coincidence needs of a trigger.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Hit {
    /// Time in GPS nanoseconds.
    pub(super) ns: i64,
    /// Square of its ranking.
    pub(super) square: f64,
    /// Index in its detector's list.
    pub(super) index: u32,
}

/// The triggers of all detectors, each detector's by template and time.
#[derive(Debug)]
pub(super) struct Table {
    /// Templates that have triggers in two detectors at least.
    pub(super) templates: Vec<u32>,
    hits: Vec<Vec<Hit>>,
    /// For each detector, where each of `templates` lies in its hits.
    ranges: Vec<Vec<Range<usize>>>,
}

impl Table {
    /// The triggers for which `wanted(detector, trigger)`.
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
        // A template is listed once for each detector that has it.
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

    /// One detector's triggers of the template at `place` in the list, by time.
    pub(super) fn row(&self, detector: usize, place: usize) -> &[Hit] {
        &self.hits[detector][self.ranges[detector][place].clone()]
    }
}

/// The templates of a list, each once.
fn own_templates(list: &[(u32, Hit)]) -> Vec<u32> {
    let mut own: Vec<u32> = list.iter().map(|(template, _)| *template).collect();
    own.dedup();
    own
}
