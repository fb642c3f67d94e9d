//! Flags of missing and invalid samples, per stream.
//!
//! Invariant: flags are by rising start, and no sample of a stream has two.

use std::ops::Range;

use super::index::Run;
use super::streams::Streams;
use crate::io::voltages::Flag;

/// Maximum number of single-stream flags; beyond it, one flag covers all streams from its first to its last.
const MOST_SINGLE: u64 = 1 << 16;

/// Frames of a thread that are missing or have invalid channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Gap {
    start: u64,
    frames: u64,
    unit: usize,
    /// One bit per group of channels.
    valid: u64,
}

/// Channel groups of a frame, each with a validity bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Groups {
    pub(super) groups: usize,
    pub(super) channels: usize,
}

impl Groups {
    /// Returns the bits of a fully valid frame.
    pub(super) fn all(&self) -> u64 {
        u64::MAX >> (64 - self.groups)
    }

    /// Returns whether a channel is valid.
    pub(super) fn is_valid(&self, valid: u64, channel: usize) -> bool {
        valid >> (channel * self.groups / self.channels) & 1 == 1
    }

    /// Returns the ranges of invalid channels.
    fn invalid(self, valid: u64) -> impl Iterator<Item = Range<usize>> {
        let width = self.channels / self.groups;
        let group = move |group: usize| group * width..(group + 1) * width;
        (0..self.groups).filter(move |bit| valid >> bit & 1 == 0).map(group)
    }
}

/// Computes the flags of all threads, for `times` samples per frame.
pub(super) fn flags(
    units: &[Vec<Run>],
    frames: u64,
    times: u64,
    streams: &Streams,
    groups: Groups,
) -> Vec<Flag> {
    let found = units.iter().enumerate();
    let mut gaps: Vec<Gap> =
        found.flat_map(|(unit, runs)| gaps_of(unit, runs, frames, groups.all())).collect();
    gaps.sort_unstable_by_key(|gap| (gap.start, gap.frames, gap.unit));
    let single = gaps.len() as u64 * streams.channels as u64 <= MOST_SINGLE;
    let mut flags = Vec::new();
    for alike in gaps.chunk_by(|a, b| (a.start, a.frames) == (b.start, b.frames)) {
        let mut ranges: Vec<Range<usize>> =
            alike.iter().flat_map(|gap| ranges(gap, streams, groups, single)).collect();
        ranges.sort_unstable_by_key(|range| range.start);
        ranges.dedup_by(|next, range| {
            let touches = next.start <= range.end;
            if touches {
                range.end = range.end.max(next.end);
            }
            touches
        });
        let (start, times) = (alike[0].start * times, alike[0].frames * times);
        flags.extend(ranges.into_iter().map(|streams| Flag { streams, start, times }));
    }
    flags
}

fn gaps_of(unit: usize, runs: &[Run], frames: u64, all: u64) -> Vec<Gap> {
    let mut gaps: Vec<Gap> = Vec::new();
    let mut add = |start: u64, end: u64, valid: u64| {
        if start == end || valid == all {
            return;
        }
        match gaps.last_mut() {
            Some(gap) if gap.valid == valid && gap.start + gap.frames == start => {
                gap.frames += end - start;
            }
            _ => gaps.push(Gap { start, frames: end - start, unit, valid }),
        }
    };
    let mut at = 0;
    for run in runs {
        add(at, run.first, 0);
        add(run.first, run.end(), run.valid);
        at = run.end();
    }
    add(at, frames, 0);
    gaps
}

/// Returns the stream ranges of a gap.
fn ranges(gap: &Gap, streams: &Streams, groups: Groups, single: bool) -> Vec<Range<usize>> {
    let stream = |channel: usize| streams.stream(gap.unit, channel);
    let stretches = groups.invalid(gap.valid);
    if streams.step() == 1 || !single {
        let whole = |stretch: Range<usize>| stream(stretch.start)..stream(stretch.end - 1) + 1;
        return stretches.map(whole).collect();
    }
    stretches.flatten().map(|channel| stream(channel)..stream(channel) + 1).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(first: u64, frames: u64, valid: u64) -> Run {
        Run { first, frames, file: 0, offset: 0, stride: 0, valid }
    }

    fn flag(streams: Range<usize>, start: u64, times: u64) -> Flag {
        Flag { streams, start, times }
    }

    #[test]
    fn gaps_of_all_threads_are_one_flag() {
        let streams = Streams::new(1, 2, 4, None).unwrap();
        let groups = Groups { groups: 1, channels: 4 };
        let whole = vec![run(0, 5, 1), run(7, 3, 1)];
        let late = vec![run(1, 4, 1), run(7, 2, 1), run(9, 1, 0)];
        let found = flags(&[whole, late], 10, 8, &streams, groups);
        let odd = |start, times| [1, 3, 5, 7].map(|stream| flag(stream..stream + 1, start, times));
        let mut expected = odd(0, 8).to_vec();
        expected.push(flag(0..8, 40, 16));
        expected.extend(odd(72, 8));
        assert_eq!(found, expected);
    }

    #[test]
    fn missing_and_invalid_frames_make_one_gap() {
        let streams = Streams::new(1, 3, 2, None).unwrap();
        let groups = Groups { groups: 1, channels: 2 };
        let units = [vec![run(0, 9, 1)], vec![run(0, 3, 1), run(3, 1, 0), run(6, 3, 1)], vec![]];
        let found = flags(&units, 9, 4, &streams, groups);
        assert_eq!(found, [flag(4..6, 0, 36), flag(2..4, 12, 12)]);
    }

    #[test]
    fn groups_of_channels_have_flags_of_their_own() {
        let streams = Streams::new(1, 1, 8, None).unwrap();
        let groups = Groups { groups: 4, channels: 8 };
        let units = [vec![run(0, 2, 0b1111), run(2, 1, 0b1001)]];
        assert_eq!(flags(&units, 3, 4, &streams, groups), [flag(2..6, 8, 4)]);
        assert!(groups.is_valid(0b1001, 1) && !groups.is_valid(0b1001, 2));
        assert_eq!(Groups { groups: 64, channels: 64 }.all(), u64::MAX);
    }

    #[test]
    fn flags_do_not_grow_without_end() {
        let streams = Streams::new(1, 2, 1024, None).unwrap();
        let groups = Groups { groups: 1, channels: 1024 };
        let lossy: Vec<Run> = (0..100).map(|k| run(2 * k, 1, 1)).collect();
        let found = flags(&[lossy, vec![run(0, 200, 1)]], 200, 1, &streams, groups);
        assert_eq!(found.len(), 100);
        assert_eq!(found[1], flag(0..2047, 3, 1));
    }
}
