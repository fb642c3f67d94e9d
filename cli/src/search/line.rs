//! Lines of candidates and of dumps of a live search, as JSON.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// File of the lines, in the folder of all observations.
pub(crate) const NAME: &str = "candidates.ndjson";

/// File of the lines of dumps, there.
pub(crate) const DUMPS: &str = "dumps.ndjson";

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

/// Dump as a line of JSON, and as the document beside its file.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct DumpLine {
    /// Folder of the observation.
    pub(crate) observation: String,
    /// Number of the dump in its observation; 0 of a refused request.
    pub(crate) number: u64,
    pub(crate) state: DumpState,
    /// Names of the triggers.
    pub(crate) triggers: Vec<String>,
    pub(crate) priority: u8,
    /// The file; absent until it has its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) file: Option<String>,
    /// Start of the first sample, MJD (UTC); absent if it is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tstart_mjd: Option<f64>,
    /// Samples per stream in the file, and their time.
    pub(crate) samples: u64,
    pub(crate) tsamp_s: f64,
    /// Lowest and highest dispersion measure of the window.
    pub(crate) dms: [f64; 2],
    /// First and last time of the window at the band's upper edge, in seconds from the observation's start.
    pub(crate) times_s: [f64; 2],
    /// Window of each recorded channel, in samples of the file; outside of it the file has zeros. Absent until it has its name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) windows: Vec<Window>,
    /// Samples that were lost before they were dumped.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) lost: Vec<Lost>,
    /// Whether every sample of the window that the stream had is in the file.
    pub(crate) complete: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
    /// Seconds from the trigger until the first samples were written to the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) delay_s: Option<f64>,
    /// Time of this line, in seconds since 1970.
    pub(crate) written_unix_s: f64,
}

/// State of a dump.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum DumpState {
    /// Its samples are held in memory as they come.
    Waiting,
    /// Its file is being written.
    Running,
    /// Its file is there.
    Done,
    /// It has no file.
    Failed,
    /// The request was refused.
    Refused,
    /// The request was joined with another dump, whose number the line has.
    Joined,
}

/// Samples of a recorded channel, the last one not included.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Window {
    pub(crate) mhz: f64,
    pub(crate) start: u64,
    pub(crate) end: u64,
}

/// Lost samples.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Lost {
    /// First stream and the one after the last: streams are in the order antenna, channel, polarization.
    pub(crate) streams: [usize; 2],
    /// First sample in the file, and number of samples.
    pub(crate) start: u64,
    pub(crate) samples: u64,
}
