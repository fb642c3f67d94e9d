//! Blocks filled by several threads, each with a span of times of all streams.

use crate::error::Result;
use crate::io::parallel;
use crate::voltage::VoltageBlock;

/// Threads share a block at multiples of this many samples: whole bytes and whole cache lines in every encoding.
const PART_TIMES: usize = 512;

/// Rows of samples, one of each stream.
pub(crate) trait Rows {
    /// Returns a stream's bytes.
    fn row(&mut self, stream: usize) -> &mut [u8];
}

impl Rows for VoltageBlock<'_> {
    fn row(&mut self, stream: usize) -> &mut [u8] {
        self.row_mut(stream)
    }
}

/// Rows of a part of a block.
pub(super) type Columns<'a> = Vec<&'a mut [u8]>;

impl Rows for Columns<'_> {
    fn row(&mut self, stream: usize) -> &mut [u8] {
        self[stream]
    }
}

/// Recording whose samples can be read in any order.
pub(super) trait Positioned: Sync {
    /// State of a thread that reads.
    type Cursor: Send;

    /// Makes the state of another thread.
    fn cursor(&self) -> Self::Cursor;

    /// Returns the samples of each stream that are stored together.
    fn unit_times(&self) -> u64;

    /// Fills the first `times` samples of all rows, from sample `position` of the recording on.
    ///
    /// # Errors
    /// Those of the file, and of its contents.
    fn fill<R: Rows>(
        &self,
        cursor: &mut Self::Cursor,
        position: u64,
        rows: &mut R,
        times: usize,
    ) -> Result<()>;

    /// Fills the first `times` samples of a block, from sample `position` of the recording on, on several threads if
    /// the block is large.
    ///
    /// # Errors
    /// The error at the earliest samples.
    fn fill_block(
        &self,
        cursors: &mut Vec<Self::Cursor>,
        position: u64,
        block: &mut VoltageBlock<'_>,
        times: usize,
    ) -> Result<()> {
        let count = parallel::threads(block.streams() * block.encoding().bytes(times));
        let starts = starts(times, self.unit_times(), count);
        while cursors.len() < starts.len().max(1) {
            cursors.push(self.cursor());
        }
        if starts.len() <= 1 {
            return self.fill(&mut cursors[0], position, block, times);
        }
        let ends = starts[1..].iter().copied().chain([times]);
        let spans = starts.iter().zip(ends);
        let bytes = block.streams() * block.encoding().bytes(times);
        let mut results: Vec<_> = starts.iter().map(|_| Ok(())).collect();
        let jobs = cursors.iter_mut().zip(block.columns_mut(&starts)).zip(spans).zip(&mut results);
        parallel::for_each(bytes, jobs, |(((cursor, mut rows), (start, end)), result)| {
            *result = self.fill(cursor, position + *start as u64, &mut rows, end - start);
        });
        results.into_iter().collect()
    }
}

/// Returns the samples at which each of `count` threads starts: whole units if there are enough of them.
fn starts(times: usize, unit_times: u64, count: usize) -> Vec<usize> {
    let unit = usize::try_from(unit_times).unwrap_or(usize::MAX).max(1);
    let step = if times / unit >= count { unit.next_multiple_of(PART_TIMES) } else { PART_TIMES };
    let part = times.div_ceil(count.max(1)).max(1).next_multiple_of(step);
    (0..times).step_by(part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_share_a_block_evenly_and_at_units() {
        assert_eq!(starts(100, 1, 1), [0]);
        assert_eq!(starts(8192, 1, 4), [0, 2048, 4096, 6144]);
        assert_eq!(starts(8192, 1024, 3), [0, 3072, 6144]);
        assert_eq!(starts(8192, 8192, 2), [0, 4096]);
        assert_eq!(starts(100, 1, 4), [0]);
        assert!(starts(0, 1, 4).is_empty());
    }
}
