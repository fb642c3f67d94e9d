//! Time slides: cyclic shifts of the detectors against each other within their common time.

use super::background::Background;
use super::combine::{Coincidence, Combiner, best_of_windows};
use super::segments::Segments;
use super::table::{Hit, Table};
use crate::backend::threads::Threads;
use crate::units::Gps;

/// Inputs of the time slides.
pub(super) struct Slides<'a> {
    pub(super) table: &'a Table,
    /// Valid time of each detector.
    pub(super) valid: &'a [Segments],
    /// Cyclic interval: from the first to the last time with two valid detectors.
    pub(super) circle: (Gps, Gps),
    pub(super) windows_ns: &'a [Vec<i64>],
    pub(super) interval_ns: i64,
    pub(super) cluster_ns: i64,
}

/// Result of a slide.
struct Made {
    slide: usize,
    rankings: Vec<f64>,
    time_s: f64,
}

impl Made {
    fn new(slide: usize) -> Self {
        Self { slide, rankings: Vec::new(), time_s: 0.0 }
    }
}

/// Scratch memory of a thread.
struct Scratch {
    moved: Vec<Vec<Hit>>,
    found: Vec<Coincidence>,
}

impl Slides<'_> {
    /// Returns the most slides of the interval: no two give a pair of detectors the same offset, and none comes
    /// within a step of the full interval.
    pub(super) fn room(&self) -> usize {
        let steps = (self.circle.1.ns - self.circle.0.ns) / self.interval_ns - 1;
        steps.max(0) as usize / (self.valid.len() - 1)
    }

    /// Returns the events of `slides` slides, distributed over the threads.
    pub(super) fn run(&self, slides: usize, threads: &Threads) -> Background {
        let mut made: Vec<Made> = (1..=slides).map(Made::new).collect();
        let scratch = || Scratch { moved: vec![Vec::new(); self.valid.len()], found: Vec::new() };
        let mut scratch: Vec<Scratch> = (0..threads.count()).map(|_| scratch()).collect();
        threads.for_each_chunk(&mut scratch, &mut made, 1, |scratch, _, made| {
            made.iter_mut().for_each(|made| self.make(made, scratch));
        });
        let mut background = Background { slides, ..Background::default() };
        for made in made {
            background.rankings.extend(made.rankings);
            background.time_s += made.time_s;
        }
        background.rankings.sort_unstable_by(|a, b| b.total_cmp(a));
        background
    }

    /// Computes the events and the time of one slide.
    fn make(&self, made: &mut Made, scratch: &mut Scratch) {
        scratch.found.clear();
        self.slide(made.slide, &mut scratch.moved, &mut scratch.found);
        best_of_windows(&mut scratch.found, self.cluster_ns, |event| {
            made.rankings.push(event.square.sqrt());
        });
        made.time_s = self.time_s(made.slide);
    }

    fn offset_ns(&self, slide: usize, detector: usize) -> i64 {
        (slide * detector) as i64 * self.interval_ns
    }

    /// Finds the coincidences of one slide.
    fn slide(&self, slide: usize, moved: &mut [Vec<Hit>], coincidences: &mut Vec<Coincidence>) {
        for (place, template) in self.table.templates.iter().enumerate() {
            for (detector, moved) in moved.iter_mut().enumerate() {
                let offset = self.offset_ns(slide, detector);
                turn(self.table.row(detector, place), self.circle, offset, moved);
            }
            let mut rows: [&[Hit]; super::MAX_DETECTORS] = [&[]; super::MAX_DETECTORS];
            for (row, moved) in rows.iter_mut().zip(moved.iter()) {
                *row = moved;
            }
            let (windows_ns, rows) = (self.windows_ns, &rows[..moved.len()]);
            Combiner { windows_ns, template: *template, rows }.all(coincidences);
        }
    }

    /// Returns the time of one slide in which at least two detectors are valid.
    fn time_s(&self, slide: usize) -> f64 {
        let turned = |(detector, valid): (usize, &Segments)| {
            valid.turned(self.circle, self.offset_ns(slide, detector))
        };
        let turned: Vec<Segments> = self.valid.iter().enumerate().map(turned).collect();
        Segments::at_least(2, &turned.iter().collect::<Vec<_>>()).duration_s()
    }
}

/// Shifts time-ordered triggers cyclically within the interval; keeps them ordered.
fn turn(row: &[Hit], (first, last): (Gps, Gps), offset_ns: i64, moved: &mut Vec<Hit>) {
    let length = last.ns - first.ns;
    let offset = offset_ns.rem_euclid(length);
    let stay = row.partition_point(|hit| hit.ns + offset < last.ns);
    moved.clear();
    let later = |hit: &Hit, by: i64| Hit { ns: hit.ns + by, ..*hit };
    moved.extend(row[stay..].iter().map(|hit| later(hit, offset - length)));
    moved.extend(row[..stay].iter().map(|hit| later(hit, offset)));
}
