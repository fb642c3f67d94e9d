//! Lines of JSON about triggers, with what became of each: `triggers.ndjson`.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use schemars::JsonSchema;
use serde::Serialize;
use sidereal::live::trigger::{Origin, Trigger};
use sidereal::units::HZ_PER_MHZ;
use sidereal::{Error, Result};

use super::event::iso;
use crate::json;
use crate::numbers::tidy;
use crate::say::warning;

/// File in the folder of all observations.
pub(super) const NAME: &str = "triggers.ndjson";

/// Fate of a trigger, or of several.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Fate {
    /// It is within all limits.
    Accepted,
    /// It is malformed, out of range, or from an unknown sender.
    Refused,
    /// Its sender, or the search, had too many.
    Limited,
    /// The counters at the end of the program.
    Summary,
}

/// Trigger as a line of JSON.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct TriggerLine {
    fate: Fate,
    /// `search`, `http`, or `udp` and the address; absent if the line is about several.
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    /// Arrival of the burst's start at the reference frequency, UTC (ISO 8601).
    #[serde(skip_serializing_if = "Option::is_none")]
    time: Option<String>,
    /// Absent for the highest frequency of the band.
    #[serde(skip_serializing_if = "Option::is_none")]
    reference_mhz: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dm: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dm_error: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    width_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    snr: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    priority: Option<u8>,
    /// Whether it is a test or an injection.
    #[serde(skip_serializing_if = "Option::is_none")]
    test: Option<bool>,
    /// Reason of a refusal or a limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
    /// Number of triggers that the line is about, if there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    count: Option<u64>,
    /// Counters, in a summary.
    #[serde(skip_serializing_if = "Option::is_none")]
    counts: Option<Counts>,
    /// Time of this line, in seconds since 1970.
    written_unix_s: f64,
}

impl TriggerLine {
    fn new(fate: Fate) -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            fate,
            source: None,
            name: None,
            time: None,
            reference_mhz: None,
            dm: None,
            dm_error: None,
            width_s: None,
            snr: None,
            priority: None,
            test: None,
            why: None,
            count: None,
            counts: None,
            written_unix_s: since.as_secs_f64(),
        }
    }

    /// Makes the line of a trigger; a refused one has a reason.
    pub(super) fn of(trigger: &Trigger, why: Option<String>) -> Self {
        let finite = |number: f64| Some(tidy(number)).filter(|number| number.is_finite());
        let has_date =
            trigger.start.seconds.is_finite() && (0..3_000_000).contains(&trigger.start.day);
        Self {
            source: Some(trigger.source.to_string()),
            name: Some(trigger.name.clone()),
            time: has_date.then(|| iso(&trigger.start)),
            reference_mhz: trigger.reference_hz.map(|hz| hz / HZ_PER_MHZ),
            dm: finite(trigger.dm),
            dm_error: finite(trigger.dm_error),
            width_s: finite(trigger.width_s),
            snr: trigger.snr.and_then(finite),
            priority: Some(trigger.priority),
            test: Some(trigger.is_test),
            why: why.clone(),
            ..Self::new(if why.is_some() { Fate::Refused } else { Fate::Accepted })
        }
    }

    /// Makes the line of a datagram that is no trigger.
    pub(super) fn malformed(source: Origin, why: String) -> Self {
        let source = Some(source.to_string());
        Self { source, why: Some(why), ..Self::new(Fate::Refused) }
    }

    /// Makes the line of several triggers.
    pub(super) fn several(fate: Fate, why: &str, count: u64) -> Self {
        Self { why: Some(why.to_owned()), count: Some(count), ..Self::new(fate) }
    }

    /// Makes the last line.
    pub(super) fn summary(counts: Counts) -> Self {
        Self { counts: Some(counts), ..Self::new(Fate::Summary) }
    }
}

/// Counters of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct Counts {
    /// Datagrams, and requests over HTTP.
    pub(super) received: u64,
    /// Triggers accepted, from other programs and from the search.
    pub(super) accepted: u64,
    /// Messages that are no trigger.
    pub(super) malformed: u64,
    /// Triggers out of range.
    pub(super) out_of_range: u64,
    /// Messages beyond the rate of their sender.
    pub(super) beyond_rate: u64,
    /// Datagrams from other senders than those allowed.
    pub(super) foreign: u64,
    /// Triggers dropped because the queue was full.
    pub(super) overflowed: u64,
    /// Triggers that came when the search had ended.
    pub(super) too_late: u64,
    /// Datagrams that the kernel dropped because its buffer was full.
    pub(super) dropped_by_kernel: u64,
    /// Candidates that became events.
    pub(super) events: u64,
    /// Candidates on the list of vetoes.
    pub(super) vetoed: u64,
    /// Candidates beyond the limit of the hour.
    pub(super) beyond_hour: u64,
    /// Events handed to the command, those for which it failed, and those for which it was not run.
    pub(super) commands: [u64; 3],
    /// Messages written as files, those that failed, and those left out.
    pub(super) alerts: [u64; 3],
    /// Gulps sent to the coincidencer, those that failed, and those left out.
    pub(super) gulps: [u64; 3],
}

/// The file.
pub(super) struct Record {
    file: File,
    has_warned: bool,
}

impl Record {
    /// Opens the file in a folder that exists; its earlier lines stay.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(super) fn open(folder: &Path) -> Result<Self> {
        let path = folder.join(NAME);
        let file = OpenOptions::new().create(true).append(true).open(&path);
        let file = file.map_err(|error| Error::io(path, error))?;
        Ok(Self { file, has_warned: false })
    }

    /// Appends a line; a failure is reported once, since a search does not end for it.
    pub(super) fn write(&mut self, line: &TriggerLine) {
        let file = &mut self.file;
        let written = json::line(line).and_then(|text| {
            let written = file.write_all(format!("{text}\n").as_bytes());
            written.map_err(|error| Error::io(NAME, error))
        });
        if let Err(error) = written
            && !std::mem::replace(&mut self.has_warned, true)
        {
            warning!(quiet: false, "lines of triggers are missing: {error}.");
        }
    }
}
