//! Line of a candidate of a live search, as JSON.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// File of the lines, in the folder of all observations.
pub(crate) const NAME: &str = "candidates.ndjson";

/// State of a candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum State {
    /// It stands out; later data may change it.
    Provisional,
    /// Later data have changed it.
    Updated,
    /// No later data change it.
    Final,
    /// It turned out to belong to another candidate, or to be none.
    Retracted,
}

/// Candidate of a live search as a line of JSON.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct CandidateLine {
    pub(crate) state: State,
    /// Number of the candidate in its observation, the same in all of its lines.
    pub(crate) number: u64,
    /// Folder of the observation.
    pub(crate) observation: String,
    pub(super) snr: f64,
    pub(super) dm: f64,
    /// Seconds from the observation's start, at the highest frequency.
    pub(super) time_s: f64,
    /// The same as MJD (UTC); absent if the start is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) mjd: Option<f64>,
    pub(super) width_s: f64,
    pub(super) members: usize,
    /// File of its picture, which is drawn after a final line; it may be missing after a request to stop or a full disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) picture: Option<String>,
    /// Time of this line, in seconds since 1970.
    pub(crate) written_unix_s: f64,
}
