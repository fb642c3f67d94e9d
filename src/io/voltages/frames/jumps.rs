//! Detects frames with damaged times: the frames after them continue the sequence from before.

use std::ops::Range;

use super::index::Run;

/// Number of runs after a jump that are searched for the continuation.
const LOOK_AHEAD: usize = 8;

/// Marks the runs of a thread, in file order, whose times are damaged.
///
/// `per_second` is the number of frames per second, if known. Frames that are merely out of order in time are not
/// marked.
pub(super) fn mark(runs: &[Run], per_second: Option<u64>) -> Vec<bool> {
    let mut bad = vec![false; runs.len()];
    let mut known: Option<Known> = None;
    let mut last = 0;
    while last + 1 < runs.len() {
        let next = last + 1;
        if continues(&runs[last], &runs[next]) {
            last = next;
            continue;
        }
        let end = runs.len().min(next + 1 + LOOK_AHEAD);
        let mut between = 0;
        let back = (next + 1..end).find(|other| {
            between += runs[other - 1].frames;
            takes_back(&runs[last], &runs[*other], between)
        });
        let Some(back) = back else {
            last = next;
            continue;
        };
        let known = known.get_or_insert_with(|| Known::new(runs));
        let most = per_second.unwrap_or_else(|| known.most(next..back));
        let place = missing_place(&runs[last], &runs[back], most);
        if place.is_none_or(|place| known.has(place)) {
            // All frames are present, but out of order.
            last = next;
            continue;
        }
        let span = runs[last].end()..=runs[back].first;
        for (bad, run) in bad[next..back].iter_mut().zip(&runs[next..back]) {
            let inside = span.contains(&run.first) && span.contains(&run.end());
            *bad = !inside || run.last_number() >= most;
        }
        last = back;
    }
    bad
}

/// Returns the key of a frame missing between two runs; `None` if the first run ends its second of `most` frames.
fn missing_place(last: &Run, back: &Run, most: u64) -> Option<u64> {
    let number = back.number();
    match () {
        () if back.second() == last.second() => Some(last.end()),
        () if number > 0 => Some(back.first - number),
        () => (last.last_number() + 1 < most).then(|| last.end()),
    }
}

/// Lookup tables of a thread's runs.
struct Known {
    /// Key of the first frame and key after the last frame, sorted by time.
    by_time: Vec<(u64, u64)>,
    /// Highest frame numbers within a second, with their run index; more entries than the runs ever excluded.
    highest: Vec<(u64, usize)>,
}

impl Known {
    fn new(runs: &[Run]) -> Self {
        let mut by_time: Vec<_> = runs.iter().map(|run| (run.first, run.end())).collect();
        by_time.sort_unstable();
        let numbers = runs.iter().map(Run::last_number);
        let mut highest: Vec<_> = numbers.enumerate().map(|(run, number)| (number, run)).collect();
        highest.sort_unstable_by(|a, b| b.cmp(a));
        highest.truncate(LOOK_AHEAD + 2);
        Self { by_time, highest }
    }

    /// Returns the frames per second seen in the runs, except those in `without`.
    fn most(&self, without: Range<usize>) -> u64 {
        let mut highest = self.highest.iter().filter(|(_, run)| !without.contains(run));
        highest.next().map_or(0, |(number, _)| number + 1)
    }

    /// Returns whether a run contains the frame with this key.
    fn has(&self, key: u64) -> bool {
        let before = self.by_time.partition_point(|(first, _)| *first <= key);
        self.by_time[..before].last().is_some_and(|(_, end)| *end > key)
    }
}

/// Returns whether a run follows another without a gap, as far as this is known without the frame rate.
fn continues(last: &Run, next: &Run) -> bool {
    next.first == last.end() || (next.second() == last.second() + 1 && next.number() == 0)
}

/// Returns whether `run` begins where `last` would continue after `between` frames, in the same file.
fn takes_back(last: &Run, run: &Run, between: u64) -> bool {
    let same = run.first == last.end() + between;
    let next = run.second() == last.second() + 1 && run.number() <= between;
    run.file == last.file && run.offset > last.offset && (same || next)
}
