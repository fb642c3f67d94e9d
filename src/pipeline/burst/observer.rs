//! Observers of a search: progress, candidates, checkpoints.

use super::checkpoint::Checkpoint;
use crate::error::Result;
use crate::single_pulse::{Absorbed, Candidate};

/// Progress of a search.
#[derive(Clone, Copy, Debug)]
pub struct Status {
    /// Rows searched.
    pub times: u64,
    /// Total number of rows, if known.
    pub total: Option<u64>,
    /// Length of the rows searched, in seconds.
    pub data_s: f64,
    /// Elapsed time in seconds.
    pub elapsed_s: f64,
}

/// Receiver of a search's progress and results.
pub trait Observer {
    /// Receives the progress after each gulp; returning false stops the search.
    fn observe(&mut self, status: &Status) -> bool;

    /// Receives candidates that no later row changes, in any order; the search does not store them.
    ///
    /// # Errors
    /// Any error ends the search; its report then contains these candidates.
    fn found(&mut self, candidates: &[Candidate]) -> Result<()>;

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
