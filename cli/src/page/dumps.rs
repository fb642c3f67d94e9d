//! Dumps of voltages as the page lists them.

use std::collections::VecDeque;
use std::path::Path;

use schemars::JsonSchema;
use serde::Serialize;

use crate::search::{DumpLine, DumpState};

/// Dump as the page lists it.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Dump {
    pub(super) id: String,
    state: DumpState,
    dms: [f64; 2],
    /// Start of its first sample.
    #[serde(skip_serializing_if = "Option::is_none")]
    tstart_mjd: Option<f64>,
    seconds: f64,
    triggers: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

impl Dump {
    /// Marks a dump that a run before this one left unfinished.
    pub(super) fn abandon(&mut self) {
        if matches!(self.state, DumpState::Waiting | DumpState::Running) {
            self.state = DumpState::Failed;
            self.reason = Some("the run that began it has ended".to_owned());
        }
    }

    /// Makes the entry of a line; `None` for a request that is no dump of its own.
    pub(super) fn of(line: &DumpLine) -> Option<Self> {
        if matches!(line.state, DumpState::Refused | DumpState::Joined) {
            return None;
        }
        let name = Path::new(&line.observation).file_name().unwrap_or_default();
        Some(Self {
            id: format!("{} {}", name.to_string_lossy(), line.number),
            state: line.state,
            dms: line.dms,
            tstart_mjd: line.tstart_mjd,
            seconds: line.samples as f64 * line.tsamp_s,
            triggers: line.triggers.clone(),
            file: line.file.clone(),
            reason: line.reason.clone(),
        })
    }
}

/// Dumps by state.
#[derive(Clone, Copy, Debug, Default, Serialize, JsonSchema)]
pub(crate) struct DumpCounts {
    pub(super) waiting: u64,
    pub(super) running: u64,
    pub(super) done: u64,
    pub(super) failed: u64,
    /// Requests that were refused since the program began.
    pub(super) refused: u64,
}

impl DumpCounts {
    /// Counts the dumps that are listed, and the requests that were refused.
    pub(super) fn of(dumps: &VecDeque<Dump>, refused: u64) -> Self {
        let mut counts = Self { refused, ..Self::default() };
        for dump in dumps {
            let count = match dump.state {
                DumpState::Waiting => &mut counts.waiting,
                DumpState::Running => &mut counts.running,
                DumpState::Done => &mut counts.done,
                DumpState::Failed => &mut counts.failed,
                DumpState::Refused | DumpState::Joined => continue,
            };
            *count += 1;
        }
        counts
    }
}
