//! Observers of a search: progress, candidates, and checkpoints, from which another process can resume.
//!
//! Invariant: a search that goes on from a checkpoint reports what one that was never interrupted reports, bit for bit.

use crate::error::{Error, Result};
use crate::pipeline::range::RangeSearch;
use crate::pipeline::run::Status;
use crate::single_pulse::{Absorbed, Candidate, ClusterState, Clusterer};
use crate::state::GREATEST;

/// Receiver of a search's progress and results.
pub trait Observer {
    /// Receives the progress after each gulp; returning false stops the search.
    fn observe(&mut self, status: &Status) -> bool;

    /// Receives candidates that no later row changes, in any order; the search does not store them.
    ///
    /// # Errors
    /// Any error ends the search; its report then contains these candidates.
    fn found(&mut self, candidates: &[Candidate]) -> Result<()>;

    /// Returns whether [`Observer::provisional`] is wanted after each gulp.
    fn wants_provisional(&self) -> bool {
        false
    }

    /// Receives the candidates that later rows may still change, after those that became final.
    ///
    /// # Errors
    /// Any error ends the search.
    fn provisional(&mut self, _candidates: &[Candidate]) -> Result<()> {
        Ok(())
    }

    /// Receives the members of the candidates in the next call of [`Observer::found`], if the search lists them.
    ///
    /// # Errors
    /// As [`Observer::found`].
    fn absorbed(&mut self, _members: &[Absorbed]) -> Result<()> {
        Ok(())
    }

    /// Returns the members of all candidates received; called after [`Observer::taken`].
    ///
    /// # Errors
    /// Any error is returned by the search.
    fn taken_absorbed(&mut self) -> Result<Vec<Absorbed>> {
        Ok(Vec::new())
    }

    /// Returns all candidates received, for the report. In a resumed search they include those that were final at its
    /// checkpoint.
    ///
    /// # Errors
    /// Any error is returned by the search.
    fn taken(&mut self) -> Result<Vec<Candidate>>;

    /// Returns whether to take a checkpoint now; called after each gulp, and with `is_last` at the end of the search
    /// or of the recording.
    fn wants_checkpoint(&mut self, is_last: bool) -> bool;

    /// Receives a checkpoint.
    ///
    /// # Errors
    /// Any error ends the search.
    fn checkpoint(&mut self, checkpoint: &Checkpoint) -> Result<()>;
}

/// Observer that stores candidates in memory.
pub(super) struct MemoryObserver<'a> {
    observe: &'a mut dyn FnMut(&Status) -> bool,
    found: Vec<Candidate>,
    absorbed: Vec<Absorbed>,
}

impl<'a> MemoryObserver<'a> {
    pub(super) fn new(observe: &'a mut dyn FnMut(&Status) -> bool) -> Self {
        Self { observe, found: Vec::new(), absorbed: Vec::new() }
    }
}

impl Observer for MemoryObserver<'_> {
    fn observe(&mut self, status: &Status) -> bool {
        (self.observe)(status)
    }

    fn found(&mut self, candidates: &[Candidate]) -> Result<()> {
        self.found.extend_from_slice(candidates);
        Ok(())
    }

    fn absorbed(&mut self, members: &[Absorbed]) -> Result<()> {
        self.absorbed.extend_from_slice(members);
        Ok(())
    }

    fn taken_absorbed(&mut self) -> Result<Vec<Absorbed>> {
        Ok(std::mem::take(&mut self.absorbed))
    }

    fn taken(&mut self) -> Result<Vec<Candidate>> {
        Ok(std::mem::take(&mut self.found))
    }

    fn wants_checkpoint(&mut self, _: bool) -> bool {
        false
    }

    fn checkpoint(&mut self, _: &Checkpoint) -> Result<()> {
        Ok(())
    }
}

/// State of a search between two gulps: the data that later rows need and that re-reading a few rows does not
/// restore.
#[derive(Clone, Debug, PartialEq)]
pub struct Checkpoint {
    /// Rows searched.
    pub times: u64,
    /// Candidates that were final by then.
    pub candidates: u64,
    /// Samples that the source replaced.
    pub(super) flagged: u64,
    ranges: Vec<Vec<u64>>,
    clusterer: Vec<u64>,
}

impl Checkpoint {
    pub(super) fn take(
        times: u64,
        candidates: u64,
        flagged: u64,
        ranges: &mut [RangeSearch],
        clusterer: &Clusterer,
    ) -> Result<Self> {
        let carried = ranges.iter_mut().map(RangeSearch::carried).collect::<Result<_>>()?;
        let clusterer = clusterer.state().words().to_vec();
        Ok(Self { times, candidates, flagged, ranges: carried, clusterer })
    }

    /// Restores ranges and a clusterer of the same search; returns the first row that they need.
    pub(super) fn restore(
        &self,
        ranges: &mut [RangeSearch],
        clusterer: &mut Clusterer,
    ) -> Result<u64> {
        if self.ranges.len() != ranges.len() {
            let rule = format!(
                "the search has {}; it goes on with the same options, on as many GPUs",
                ranges.len()
            );
            return Err(Error::parameter("ranges of the checkpoint", self.ranges.len(), rule));
        }
        clusterer.restore(&ClusterState::from_words(self.clusterer.clone()))?;
        let mut first = self.times;
        for (range, words) in ranges.iter_mut().zip(&self.ranges) {
            let needed = range.restore(words)?;
            if needed > self.times {
                let rule = format!("{} were searched", self.times);
                return Err(Error::parameter("rows of the checkpoint", needed, rule));
            }
            first = first.min(needed);
        }
        Ok(first)
    }

    /// Serializes the checkpoint.
    pub fn to_bytes(&self) -> Vec<u8> {
        let parts = self.ranges.iter().chain([&self.clusterer]);
        let mut words =
            vec![self.times, self.candidates, self.flagged, self.ranges.len() as u64 + 1];
        for part in parts {
            words.push(part.len() as u64);
            words.extend(part);
        }
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// Deserializes a checkpoint from [`Checkpoint::to_bytes`].
    ///
    /// # Errors
    /// [`Error::Parameter`] for bytes of another length, or counts that no search reaches.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let words: Vec<u64> = bytes
            .chunks_exact(8)
            .map(|word| word.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
            .collect();
        Self::from_words(&words).filter(|_| bytes.len().is_multiple_of(8)).ok_or_else(|| {
            Error::parameter("bytes of the checkpoint", bytes.len(), "it is cut short or damaged")
        })
    }

    fn from_words(words: &[u64]) -> Option<Self> {
        let [times, candidates, flagged, parts, rest @ ..] = words else { return None };
        let mut rest = rest;
        let mut ranges = Vec::new();
        for _ in 0..*parts {
            let (length, after) = rest.split_first()?;
            let (part, after) = after.split_at_checked(usize::try_from(*length).ok()?)?;
            ranges.push(part.to_vec());
            rest = after;
        }
        let clusterer = ranges.pop().filter(|_| rest.is_empty())?;
        let counts = [*times, *candidates, *flagged];
        let [times, candidates, flagged] =
            Some(counts).filter(|counts| counts.iter().all(|count| *count < GREATEST))?;
        Some(Self { times, candidates, flagged, ranges, clusterer })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checkpoint_survives_as_bytes_and_a_damaged_one_is_refused() {
        let checkpoint = Checkpoint {
            times: 7,
            candidates: 2,
            flagged: 1,
            ranges: vec![vec![1, u64::MAX], Vec::new()],
            clusterer: vec![3],
        };
        let bytes = checkpoint.to_bytes();
        assert_eq!(Checkpoint::from_bytes(&bytes).unwrap(), checkpoint);
        for length in 0..bytes.len() {
            assert!(Checkpoint::from_bytes(&bytes[..length]).is_err(), "{length}");
        }
        let huge = [&bytes[..32], &[255; 8], &bytes[40..]].concat();
        assert!(Checkpoint::from_bytes(&huge).is_err());
    }
}
