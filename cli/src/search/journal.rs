//! Journal of a search: each final candidate as one line of JSON, and checkpoints between them.

use serde::{Deserialize, Serialize};
use sidereal::pipeline::burst::{Checkpoint, Observer, Status};
use sidereal::single_pulse::{Absorbed, Candidate};
use sidereal::{Error, Result};

use super::report::tidy;
use crate::output::JOURNAL;
use crate::resume::RunJournal;

/// Line of the journal.
#[derive(Serialize, Deserialize)]
struct Line {
    dm: f64,
    /// Seconds from the recording's first sample.
    time_s: f64,
    snr: f64,
    width_s: f64,
    members: usize,
    /// All numbers of the candidate, bit for bit.
    exact: Vec<u64>,
    /// Events that belong to the candidate, if they are listed: trial, DM, S/N, begin and end as numbers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    absorbed: Vec<[u64; 5]>,
}

/// Observer of a search that records its candidates.
pub(super) struct Journal<'a> {
    pub(super) keeper: RunJournal,
    /// Seconds from the recording's first sample to the first spectrum's start.
    pub(super) delay_s: f64,
    /// Whether the recording can be read again: otherwise checkpoints are useless.
    pub(super) has_checkpoints: bool,
    pub(super) observe: &'a mut dyn FnMut(&Status) -> bool,
    /// Members of the next candidates, and the members of all lines read.
    members: Vec<Absorbed>,
    read: Vec<Absorbed>,
}

impl<'a> Journal<'a> {
    /// Wraps a run journal. `delay_s` counts from the recording's first sample to the first spectrum's start;
    /// `has_checkpoints` states whether the recording can be read again.
    pub(super) fn new(
        (keeper, delay_s, has_checkpoints): (RunJournal, f64, bool),
        observe: &'a mut dyn FnMut(&Status) -> bool,
    ) -> Self {
        let (members, read) = (Vec::new(), Vec::new());
        Self { keeper, delay_s, has_checkpoints, observe, members, read }
    }
}

impl Observer for Journal<'_> {
    fn observe(&mut self, status: &Status) -> bool {
        (self.observe)(status)
    }

    fn found(&mut self, candidates: &[Candidate]) -> Result<()> {
        let delay_s = self.delay_s;
        let members = std::mem::take(&mut self.members);
        self.keeper.append(candidates.iter().map(|candidate| {
            Line {
                dm: tidy(candidate.dm),
                time_s: tidy(candidate.time_s + delay_s),
                snr: tidy(candidate.snr),
                width_s: tidy(candidate.width_s),
                members: candidate.members,
                exact: candidate.words().to_vec(),
                absorbed: members
                    .iter()
                    .filter(|event| event.owner == (candidate.trial, candidate.peak_begin_s))
                    .map(words)
                    .collect(),
            }
        }))
    }

    fn taken(&mut self) -> Result<Vec<Candidate>> {
        let mut read = Vec::new();
        let candidate = |line: Line| {
            let candidate = Candidate::from_words(&line.exact).ok_or_else(|| {
                Error::format(JOURNAL, "line", 0, "it is damaged, expected a candidate")
            })?;
            read.extend(line.absorbed.iter().map(|words| event(words, &candidate)));
            Ok(candidate)
        };
        let candidates = self.keeper.lines()?.into_iter().map(candidate).collect();
        self.read = read;
        candidates
    }

    fn absorbed(&mut self, members: &[Absorbed]) -> Result<()> {
        self.members = members.to_vec();
        Ok(())
    }

    fn taken_absorbed(&mut self) -> Result<Vec<Absorbed>> {
        Ok(std::mem::take(&mut self.read))
    }

    fn wants_checkpoint(&mut self, is_last: bool) -> bool {
        self.has_checkpoints && (is_last || self.keeper.is_due())
    }

    fn checkpoint(&mut self, checkpoint: &Checkpoint) -> Result<()> {
        self.keeper.checkpoint(&checkpoint.to_bytes())
    }
}

fn words(event: &Absorbed) -> [u64; 5] {
    let Absorbed { trial, dm, snr, begin_s, end_s, .. } = *event;
    let [dm, snr, begin, end] = [dm, snr, begin_s, end_s].map(f64::to_bits);
    [trial as u64, dm, snr, begin, end]
}

fn event(words: &[u64; 5], owner: &Candidate) -> Absorbed {
    let [dm, snr, begin_s, end_s] = [words[1], words[2], words[3], words[4]].map(f64::from_bits);
    let owner = (owner.trial, owner.peak_begin_s);
    Absorbed { owner, trial: words[0] as usize, dm, snr, begin_s, end_s }
}
