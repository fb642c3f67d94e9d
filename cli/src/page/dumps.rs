//! Dumps of voltages as the page lists them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// State of a dump.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum DumpState {
    /// It waits for its samples, or for another dump.
    Waiting,
    /// It is being written.
    Running,
    Done,
    Failed,
}

/// Dump of the samples around a trigger as a line of JSON.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Dump {
    pub(super) id: String,
    pub(super) state: DumpState,
    pub(super) dm: f64,
    /// Time at the highest frequency, MJD (UTC).
    pub(super) mjd: f64,
    /// Bytes written so far.
    pub(super) bytes: u64,
    /// File, once it has its final name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) path: Option<String>,
    /// Reason of a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<String>,
}

/// Dumps by state.
#[derive(Clone, Copy, Debug, Default, Serialize, JsonSchema)]
pub(crate) struct DumpCounts {
    pub(super) waiting: u64,
    pub(super) running: u64,
    pub(super) done: u64,
    pub(super) failed: u64,
}

impl DumpCounts {
    /// Counts dumps.
    pub(super) fn of(dumps: &[Dump]) -> Self {
        let mut counts = Self::default();
        for dump in dumps {
            *match dump.state {
                DumpState::Waiting => &mut counts.waiting,
                DumpState::Running => &mut counts.running,
                DumpState::Done => &mut counts.done,
                DumpState::Failed => &mut counts.failed,
            } += 1;
        }
        counts
    }
}
