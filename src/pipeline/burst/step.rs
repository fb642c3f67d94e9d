//! Steps of a search, and their implementation on the host: one gulp of rows at a time through every range.

use super::super::budget;
use super::super::cleaning::Cleaning;
use super::super::options::SearchOptions;
use super::super::range::RangeSearch;
use super::super::tail::Tail;
use crate::error::Result;
use crate::io::{FilterbankHeader, FilterbankSource};
use crate::sample::Samples;
use crate::single_pulse::Clusterer;

/// Limit in bytes on the rows of a gulp.
pub(super) const GULP_BYTES: usize = 32 << 20;

/// Limit in bytes on the dedispersed planes per gulp, over all ranges.
const PLANE_BYTES: usize = 96 << 20;

/// Processes rows of a source through all ranges, on the host or on a device.
pub(super) trait Step {
    /// Processes the next gulp; returns its number of rows, 0 at the end.
    fn step(
        &mut self,
        source: &mut dyn FilterbankSource,
        cleaning: &mut Cleaning,
        ranges: &mut [RangeSearch],
        clusterer: &mut Clusterer,
    ) -> Result<usize>;

    /// Ends the stream after `times` rows; returns the number of trials whose delay is longer than the data.
    fn finish(
        &mut self,
        times: u64,
        ranges: &mut [RangeSearch],
        clusterer: &mut Clusterer,
    ) -> Result<usize>;

    /// Returns the last rows after cleaning, as many as the search of the recording's end needs.
    fn tail(&mut self) -> Result<Vec<u8>>;
}

/// Buffers of a search.
pub(super) struct HostWork {
    raw: Vec<u8>,
    cleaned: Vec<u8>,
    tail: Tail,
}

impl HostWork {
    /// Allocates buffers for gulps of the requested rows, or of as many as the memory for the planes allows.
    ///
    /// # Errors
    /// [`crate::Error::Unavailable`] when the memory limit is too low for any gulp.
    pub(super) fn new(
        header: &FilterbankHeader,
        cleaning: &Cleaning,
        ranges: &[RangeSearch],
        (options, edge_rows): (&SearchOptions, usize),
    ) -> Result<Self> {
        let per_time: usize = ranges.iter().map(RangeSearch::plane_bytes_per_row).sum();
        let most = (PLANE_BYTES / per_time.max(1)).min(GULP_BYTES / header.row_bytes().max(1));
        let gulp = match options.gulp {
            0 => most.clamp(256, 1 << 16),
            asked => asked.min(most.max(1)),
        };
        let made = cleaning.made_row_bytes();
        let cleaned_row = if made == 0 { header.row_bytes() } else { made };
        let tail = Tail::new(edge_rows * cleaned_row)?;
        let edge = ranges.iter().map(RangeSearch::edge_plane_bytes).max().filter(|_| edge_rows > 0);
        let held = ranges.iter().map(RangeSearch::held_bytes).sum::<usize>()
            + cleaning.held_bytes()
            + tail.held_bytes()
            + edge.unwrap_or(0);
        let row = per_time + header.row_bytes() + made;
        let remaining = budget::remaining_bytes(options.memory, "the search", held, row)?;
        let gulp = gulp.min(remaining / row.max(1));
        Ok(Self { raw: vec![0; gulp * header.row_bytes()], cleaned: Vec::new(), tail })
    }
}

impl Step for HostWork {
    fn step(
        &mut self,
        source: &mut dyn FilterbankSource,
        cleaning: &mut Cleaning,
        ranges: &mut [RangeSearch],
        clusterer: &mut Clusterer,
    ) -> Result<usize> {
        let times = cleaning.read(source, &mut self.raw)?;
        if times == 0 {
            return Ok(0);
        }
        let header = source.header();
        let bytes = &self.raw[..times * header.row_bytes()];
        let samples = Samples::new(bytes, header.encoding, times, header.channels())?;
        let samples = cleaning.clean(samples, &mut self.cleaned)?;
        self.tail.push(samples.bytes());
        for range in ranges {
            range.run(samples, clusterer)?;
        }
        Ok(times)
    }

    fn finish(
        &mut self,
        times: u64,
        ranges: &mut [RangeSearch],
        clusterer: &mut Clusterer,
    ) -> Result<usize> {
        let mut skipped = 0;
        for range in ranges {
            skipped += range.finish(times, clusterer)?;
        }
        Ok(skipped)
    }

    fn tail(&mut self) -> Result<Vec<u8>> {
        Ok(self.tail.take())
    }
}
