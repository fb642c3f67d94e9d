//! Document of what a live run does at a moment: `/status`, and each second's event.

use std::path::Path;

use schemars::JsonSchema;
use serde::Serialize;
use sidereal::io::printable;
use sidereal::live::capture::Statistics;
use sidereal::live::window::{Counts, Fill};
use sidereal::units::{HZ_PER_MHZ, SECONDS_PER_DAY};

use super::dumps::DumpCounts;
use crate::spiir::StrainView;
use crate::streams::{Counted, Observed};

/// Most sources of a stream that are listed one by one.
const MOST_SOURCES: usize = 1024;

/// Days from the epoch of MJD to 1970.
const UNIX_MJD: f64 = 40_587.0;

/// State of a live run.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub(crate) struct Status {
    /// Verb: `live search`.
    pub(super) verb: String,
    /// Folder of its output.
    pub(super) output: String,
    /// Time of this document, in seconds since 1970.
    pub(super) now_unix_s: f64,
    /// Time at which the program began, in seconds since 1970.
    pub(super) begun_unix_s: f64,
    pub(super) health: Health,
    /// Observations that have ended.
    pub(super) observations: u64,
    pub(super) streams: Vec<StreamStatus>,
    /// Blocks that were dropped because processing was too slow, and packets that the kernel dropped, in the last minute.
    pub(super) dropped_last_minute: u64,
    /// Stages of the chain, in the order in which they were first used.
    pub(super) stages: Vec<StageStatus>,
    pub(super) candidates: CandidateCounts,
    pub(super) dumps: DumpCounts,
    /// Bytes free where the output is written; absent if the file system does not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) disk_free_bytes: Option<u64>,
    pub(super) rows: RowsStatus,
    /// State of `live spiir`; absent of other verbs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) strain: Option<StrainView>,
    /// Seconds since the search of strain has reported its state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) since_report_s: Option<f64>,
}

/// Whether a run does what it should.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub(crate) struct Health {
    pub(super) ok: bool,
    /// Faults, a sentence each.
    pub(super) reasons: Vec<String>,
}

/// State of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum StreamState {
    /// Waits for an observation.
    #[default]
    Waiting,
    /// An observation arrives.
    Receiving,
    /// An observation has ended, and its products are being written.
    Ended,
}

/// Counters of a stream since the program began; those of packets are 0 for a ring.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub(crate) struct StreamStatus {
    pub(super) address: String,
    pub(super) state: StreamState,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) observation: Option<ObservationStatus>,
    /// Packets placed.
    pub(super) received: u64,
    /// Packets that came after their samples were passed on as lost.
    pub(super) late: u64,
    /// Packets too far ahead.
    pub(super) ahead: u64,
    pub(super) duplicate: u64,
    pub(super) wrong_length: u64,
    pub(super) wrong_source: u64,
    /// Packets that violate the format or are marked invalid.
    pub(super) invalid: u64,
    /// Parts of heaps whose items have not arrived.
    pub(super) unplaced: u64,
    /// Packets dropped because processing was too slow.
    pub(super) overrun: u64,
    /// Blocks of which some or all packets did not come.
    pub(super) missing_blocks: u64,
    /// Messages dropped by the kernel because its buffer was full: packets, or several that it had joined.
    pub(super) dropped_by_kernel: u64,
    /// Packets before the first header, or after the end of a stream.
    pub(super) without_header: u64,
    pub(super) invalid_headers: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) header_error: Option<String>,
    pub(super) packets_per_s: f64,
    /// Seconds since a packet was placed; absent before the first, and for a ring.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) since_packet_s: Option<f64>,
    /// Time of this machine less that of the last packets; absent without a clock of the packets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) packet_age_s: Option<f64>,
    pub(super) ring: RingStatus,
    /// Samples dropped of the current or last observation because processing was too slow, in seconds.
    pub(super) dropped_s: f64,
    /// Stage that took longest before the last of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) slowest_stage: Option<String>,
    /// Sources, the first 1024 of them.
    pub(super) sources: Vec<SourceStatus>,
}

/// Fill of the memory between a stream and its reader.
#[derive(Clone, Copy, Debug, Default, Serialize, JsonSchema)]
pub(crate) struct RingStatus {
    /// Chunks, or blocks of a PSRDADA ring, that wait to be read or are being read.
    pub(super) used: usize,
    /// Most that can; 0 before the first stream.
    pub(super) capacity: usize,
}

/// Current or last observation of a stream.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub(crate) struct ObservationStatus {
    /// `spectra` or `voltages`.
    pub(super) content: String,
    pub(super) source: String,
    pub(super) telescope: String,
    pub(super) channels: usize,
    pub(super) antennas: usize,
    pub(super) polarizations: usize,
    pub(super) lowest_mhz: f64,
    pub(super) highest_mhz: f64,
    pub(super) tsamp_s: f64,
    /// Start, MJD (UTC); absent if it is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) start_mjd: Option<f64>,
    /// Seconds of data that were read.
    pub(super) data_s: f64,
    /// Time of this machine less that of the last sample read; absent if the start is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) last_sample_age_s: Option<f64>,
}

/// Counters of a source of a stream.
#[derive(Clone, Copy, Debug, Default, Serialize, JsonSchema)]
pub(crate) struct SourceStatus {
    /// Number from 0: an antenna, a group of channels, or a thread.
    pub(super) source: usize,
    pub(super) received: u64,
    pub(super) late: u64,
    pub(super) ahead: u64,
    pub(super) duplicate: u64,
    pub(super) wrong_length: u64,
    pub(super) invalid: u64,
    pub(super) overrun: u64,
    pub(super) missing_blocks: u64,
    pub(super) packets_per_s: f64,
}

/// Stage of the chain.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub(crate) struct StageStatus {
    pub(super) name: String,
    /// Times that it worked.
    pub(super) calls: u64,
    /// Seconds of all threads in it.
    pub(super) busy_s: f64,
    /// Mean time of a call in the last second in which there was one: what the stage adds to the latency.
    pub(super) latency_s: f64,
    /// Part of the last second; above 1 for several threads.
    pub(super) share: f64,
}

/// Candidates since the program began.
#[derive(Clone, Copy, Debug, Default, Serialize, JsonSchema)]
pub(crate) struct CandidateCounts {
    pub(super) provisional: u64,
    pub(super) r#final: u64,
    pub(super) retracted: u64,
    /// From the time of the last provisional or final candidate at the highest frequency to its line; absent if the start of its
    /// observation is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) latency_s: Option<f64>,
    pub(super) labels: u64,
}

/// Rows that the page shows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub(crate) struct RowsStatus {
    /// Reason without rows; absent if there are some.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) none: Option<String>,
    pub(super) lowest_mhz: f64,
    pub(super) highest_mhz: f64,
    /// Part of the channels that is masked.
    pub(super) masked: f64,
}

/// Makes a text of a header or an address fit for a screen.
fn shown(text: &str) -> String {
    printable(text).into_owned()
}

impl ObservationStatus {
    fn new(observed: &Observed, counted: &Counted, now_unix_s: f64) -> Self {
        let data_s = counted.live.samples_read() as f64 * observed.tsamp_s;
        let start_mjd = (observed.start_mjd > 0.0).then_some(observed.start_mjd);
        let age_s = |mjd: f64| now_unix_s - ((mjd - UNIX_MJD) * SECONDS_PER_DAY + data_s);
        Self {
            content: if observed.is_voltages { "voltages" } else { "spectra" }.to_owned(),
            source: shown(&observed.source_name),
            telescope: shown(&observed.telescope),
            channels: observed.channels,
            antennas: observed.antennas,
            polarizations: observed.polarizations,
            lowest_mhz: observed.lowest_hz / HZ_PER_MHZ,
            highest_mhz: observed.highest_hz / HZ_PER_MHZ,
            tsamp_s: observed.tsamp_s,
            start_mjd,
            data_s,
            last_sample_age_s: start_mjd.map(age_s),
        }
    }
}

impl StreamStatus {
    /// Describes a stream but for its rates and times since a packet.
    pub(super) fn new(counted: &Counted, statistics: &Statistics, now_unix_s: f64) -> Self {
        let sum = |counter: fn(&Counts) -> u64| statistics.sum(counter);
        let (totals, behind) = (&statistics.totals, counted.live.behind());
        let observed = counted.observed.as_ref();
        let Fill { held, capacity } = statistics.fill;
        let sources = statistics.sources.iter().take(MOST_SOURCES).enumerate();
        let sources = sources.map(|(source, counts)| source_status(source, counts));
        Self {
            address: address(&counted.path),
            state: match observed {
                None => StreamState::Waiting,
                Some(_) if counted.live.has_ended() => StreamState::Ended,
                Some(_) => StreamState::Receiving,
            },
            observation: observed.map(|one| ObservationStatus::new(one, counted, now_unix_s)),
            received: sum(|counts| counts.received),
            late: sum(|counts| counts.late),
            ahead: sum(|counts| counts.ahead),
            duplicate: sum(|counts| counts.duplicate),
            wrong_length: sum(|counts| counts.wrong_length) + totals.wrong_length,
            wrong_source: totals.wrong_source,
            invalid: sum(|counts| counts.invalid) + totals.invalid,
            unplaced: totals.unplaced,
            overrun: sum(|counts| counts.overrun),
            missing_blocks: sum(|counts| counts.missing),
            dropped_by_kernel: statistics.dropped,
            without_header: statistics.without_header,
            invalid_headers: statistics.invalid_headers,
            header_error: statistics.header_error.as_deref().map(shown),
            packet_age_s: statistics.clock.map(|clock| -1e-9 * clock.last_ns as f64),
            ring: RingStatus { used: held, capacity },
            dropped_s: behind.times as f64 * observed.map_or(0.0, |one| one.tsamp_s),
            slowest_stage: behind.slowest.map(|slowest| slowest.name.to_owned()),
            sources: sources.collect(),
            ..Self::default()
        }
    }
}

/// Formats an address or a path.
pub(super) fn address(path: &Path) -> String {
    shown(&path.display().to_string())
}

fn source_status(source: usize, counts: &Counts) -> SourceStatus {
    SourceStatus {
        source,
        received: counts.received,
        late: counts.late,
        ahead: counts.ahead,
        duplicate: counts.duplicate,
        wrong_length: counts.wrong_length,
        invalid: counts.invalid,
        overrun: counts.overrun,
        missing_blocks: counts.missing,
        packets_per_s: 0.0,
    }
}

/// Converts MJD to seconds since 1970.
pub(super) fn unix_s(mjd: f64) -> f64 {
    (mjd - UNIX_MJD) * SECONDS_PER_DAY
}
