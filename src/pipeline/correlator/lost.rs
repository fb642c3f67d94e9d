//! Float samples that are not finite: replaced by zeros and marked invalid.
//!
//! Invariant: what a window holds is finite, and what it holds in the place of lost samples is on the list.

use crate::io::voltages::Flag;
use crate::pipeline::voltage::blank;
use crate::voltage::{VoltageBlock, VoltageEncoding};

/// Lost samples of a recording.
#[derive(Debug)]
pub(super) struct Lost {
    /// Runs of lost samples; the runs of each stream ascend by start.
    runs: Vec<Flag>,
    /// Index in `runs` of each stream's last run, plus 1; 0: none.
    last: Vec<usize>,
    /// Samples under a window; a shorter gap between runs has no valid spectrum, so the runs are joined.
    span: u64,
    /// Lost samples so far.
    count: u64,
}

impl Lost {
    pub(super) fn new(streams: usize, span: u64) -> Self {
        Self { runs: Vec::new(), last: vec![0; streams], span, count: 0 }
    }

    /// Returns the number of lost samples so far.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Returns the lost samples among those in memory.
    pub(super) fn runs(&self) -> &[Flag] {
        &self.runs
    }

    /// Replaces a block's samples that are not finite by zeros; `first` is the block's first sample.
    pub(super) fn find(&mut self, block: &mut VoltageBlock, first: u64) {
        let (encoding, times) = (block.encoding(), block.times());
        if !matches!(encoding, VoltageEncoding::ComplexF32 | VoltageEncoding::RealF32) {
            return;
        }
        let (length, sample) = (encoding.bytes(times), encoding.bytes(1));
        for (stream, row) in block.rows_mut().enumerate() {
            blank(&mut row[..length], sample, |time| self.add(stream, first + time as u64));
        }
    }

    fn add(&mut self, stream: usize, time: u64) {
        self.count += 1;
        if let Some(run) = self.last[stream].checked_sub(1).map(|place| &mut self.runs[place])
            && time < run.start + run.times + self.span
        {
            run.times = time + 1 - run.start;
            return;
        }
        self.runs.push(Flag { streams: stream..stream + 1, start: time, times: 1 });
        self.last[stream] = self.runs.len();
    }

    /// Removes runs that end before a sample.
    pub(super) fn drop_before(&mut self, sample: u64) {
        if self.runs.is_empty() {
            return;
        }
        self.runs.retain(|run| run.start + run.times > sample);
        self.last.fill(0);
        for (place, run) in self.runs.iter().enumerate() {
            self.last[run.streams.start] = place + 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_joined_where_no_window_lies_between() {
        let mut lost = Lost::new(2, 4);
        for (stream, time) in [(0, 3), (0, 4), (1, 4), (0, 8), (0, 13), (1, 6)] {
            lost.add(stream, time);
        }
        let run = |stream, start, times| Flag { streams: stream..stream + 1, start, times };
        assert_eq!(lost.runs(), [run(0, 3, 6), run(1, 4, 3), run(0, 13, 1)]);
        lost.drop_before(9);
        assert_eq!(lost.runs(), [run(0, 13, 1)]);
        lost.add(1, 14);
        lost.add(0, 14);
        assert_eq!(lost.runs(), [run(0, 13, 2), run(1, 14, 1)]);
        assert_eq!(lost.count(), 8);
    }
}
