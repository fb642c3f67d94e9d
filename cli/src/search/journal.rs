//! The candidates of a search as they become final, one line of JSON each, and the checkpoints between them.

use serde::{Deserialize, Serialize};
use sidereal::pipeline::burst::{Checkpoint, Observer, Status};
use sidereal::pulse::cluster::Candidate;
use sidereal::{Error, Result};

use super::report::tidy;
use crate::kept::Keeper;
use crate::output::JOURNAL;

/// A line of the journal.
#[derive(Serialize, Deserialize)]
struct Line {
    dm: f64,
    /// From the recording's first sample.
    time_s: f64,
    snr: f64,
    width_s: f64,
    members: usize,
    /// All numbers of the candidate, bit for bit.
    exact: Vec<u64>,
}

/// Follows a search and keeps what it finds.
pub(super) struct Journal<'a> {
    pub(super) keeper: Keeper,
    /// Seconds from the recording's first sample to the first spectrum's start.
    pub(super) delay_s: f64,
    /// Whether the recording can be read again, so that checkpoints are of use.
    pub(super) has_checkpoints: bool,
    pub(super) observe: &'a mut dyn FnMut(&Status) -> bool,
}

impl Observer for Journal<'_> {
    fn observe(&mut self, status: &Status) -> bool {
        (self.observe)(status)
    }

    fn found(&mut self, candidates: &[Candidate]) -> Result<()> {
        let delay_s = self.delay_s;
        self.keeper.append(candidates.iter().map(|candidate| Line {
            dm: tidy(candidate.dm),
            time_s: tidy(candidate.time_s + delay_s),
            snr: tidy(candidate.snr),
            width_s: tidy(candidate.width_s),
            members: candidate.members,
            exact: candidate.words().to_vec(),
        }))
    }

    fn taken(&mut self) -> Result<Vec<Candidate>> {
        let candidate = |line: Line| {
            Candidate::from_words(&line.exact).ok_or_else(|| {
                Error::format(JOURNAL, "line", 0, "it is damaged, expected a candidate")
            })
        };
        self.keeper.lines()?.into_iter().map(candidate).collect()
    }

    fn wants_checkpoint(&mut self, is_last: bool) -> bool {
        self.has_checkpoints && (is_last || self.keeper.is_due())
    }

    fn checkpoint(&mut self, checkpoint: &Checkpoint) -> Result<()> {
        self.keeper.checkpoint(&checkpoint.to_bytes())
    }
}
