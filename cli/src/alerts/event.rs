//! Events: candidates of a live search that its rules accept, as alerts and hooks have them.

use std::time::{SystemTime, UNIX_EPOCH};

use schemars::JsonSchema;
use serde::Serialize;
use sidereal::dedisperse::dm_plan::DmRange;
use sidereal::io::FilterbankHeader;
use sidereal::io::voltages::dada::format_start;
use sidereal::live::clock;
use sidereal::single_pulse::Candidate;
use sidereal::units::{Epoch, HZ_PER_MHZ, dispersion_delay_s};

use crate::numbers::tidy;

/// State of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum EventState {
    /// First message of an event.
    Initial,
    /// First message of an event at the DM of an earlier event of this run.
    Subsequent,
    /// Later data have changed the event, or it is final.
    Update,
    /// The event turned out to belong to another one, or to be none.
    Retraction,
}

impl EventState {
    /// Returns the name in files and messages.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Initial => "initial",
            Self::Subsequent => "subsequent",
            Self::Update => "update",
            Self::Retraction => "retraction",
        }
    }
}

/// Observation that events belong to.
#[derive(Clone, Debug)]
pub(crate) struct Observation {
    /// Name of its folder.
    pub(crate) name: String,
    /// Header whose start is the origin of all times.
    pub(crate) header: FilterbankHeader,
    /// Ranges of the plan of trial DMs.
    pub(crate) ranges: Vec<DmRange>,
    pub(crate) dm_constant: f64,
}

impl Observation {
    /// Returns the start, if it is known.
    pub(crate) fn start(&self) -> Option<Epoch> {
        let mjd = self.header.tstart_mjd;
        (mjd > 0.0).then(|| Epoch::from_mjd(mjd))
    }

    /// Returns the time of seconds from the start, if that is known.
    pub(crate) fn time(&self, seconds: f64) -> Option<Epoch> {
        self.start().map(|start| start.plus_s(seconds))
    }

    /// Returns the highest DM that is searched.
    pub(crate) fn highest_dm(&self) -> f64 {
        self.ranges.last().map_or(0.0, |range| range.dm_max)
    }

    /// Returns the step of the trials at a DM.
    pub(crate) fn dm_step(&self, dm: f64) -> f64 {
        let range = self.ranges.iter().find(|range| dm < range.dm_max).or(self.ranges.last());
        range.map_or(0.0, |range| range.dm_step)
    }

    /// Returns the error of a candidate's DM: half the step of the trials, or the error of a straight line through the arrival
    /// times in the band if that is larger.
    ///
    /// A pulse of width `W` and signal-to-noise ratio `S` has an arrival time of error `W / S`. A line through the times of
    /// many channels, spread evenly over a delay of `d` s per unit of DM, has a slope of error `sqrt(12) W / (S d)`.
    pub(crate) fn dm_error(&self, candidate: &Candidate) -> f64 {
        let band = &self.header.band;
        let delay_s =
            dispersion_delay_s(1.0, band.lowest_hz(), band.highest_hz(), self.dm_constant);
        let line = 12f64.sqrt() * candidate.width_s / (candidate.snr * delay_s);
        let half = 0.5 * self.ranges.get(candidate.range).map_or(0.0, |range| range.dm_step);
        // One channel has no delay, and the line no slope.
        if line.is_finite() { half.max(line) } else { half }
    }
}

/// Message about an event.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct Event {
    /// Observation and number of the candidate; unique in the folder of all observations.
    pub(crate) id: String,
    pub(crate) state: EventState,
    /// Number of the message of this event, from 1 on.
    pub(crate) sequence: u32,
    /// Whether no later data change it.
    #[serde(rename = "final")]
    pub(crate) is_final: bool,
    /// Whether it is a test.
    #[serde(rename = "test")]
    pub(crate) is_test: bool,
    /// Identifier of an earlier event at the same DM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) follows: Option<String>,
    /// Centre of the pulse at the highest frequency, UTC (ISO 8601); absent if the start of the observation is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) time: Option<String>,
    /// Time as MJD.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) mjd: Option<f64>,
    /// Error of the time in seconds: the width over the S/N, at least half a sample.
    pub(crate) time_error_s: f64,
    /// The time at infinite frequency.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) time_infinite: Option<String>,
    /// Error of the time at infinite frequency, with that of the DM.
    pub(crate) time_infinite_error_s: f64,
    pub(crate) snr: f64,
    /// pc cm^-3.
    pub(crate) dm: f64,
    /// Half the step of the trials, or the error of a line through the arrival times in the band, whichever is larger.
    pub(crate) dm_error: f64,
    pub(crate) width_s: f64,
    /// Pointing, J2000 degrees; absent if the header has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ra_deg: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) dec_deg: Option<f64>,
    /// Error of the position: --alert-radius.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) radius_deg: Option<f64>,
    pub(crate) telescope: String,
    /// Program that found it.
    pub(crate) backend: String,
    /// Source named in the header.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) source: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) beam: Option<u32>,
    /// Lowest and highest frequency of the band, edge to edge.
    pub(crate) band_mhz: [f64; 2],
    pub(crate) channels: usize,
    pub(crate) tsamp_s: f64,
    pub(crate) polarizations: usize,
    pub(crate) bits: usize,
    /// Name of the observation's folder.
    pub(crate) observation: String,
    /// Dump of voltages that the event asks for; absent without dumps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) dump: Option<AskedDump>,
    /// Time of this message, UTC.
    pub(crate) created: String,
    /// The same in seconds since 1970.
    pub(crate) created_unix_s: f64,
}

/// Dump of voltages that an event asks for.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct AskedDump {
    /// File with a line for each change of a dump, in which `trigger` is among the triggers of this one.
    pub(crate) list: String,
    /// Name of the trigger: `id` of the event.
    pub(crate) trigger: String,
    /// Start and end of the window at the highest frequency, UTC; that of lower frequencies follows the dispersion.
    pub(crate) start: String,
    pub(crate) end: String,
    /// The file, in the message that follows when it is written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) file: Option<String>,
}

/// Marks that all events of a run have.
#[derive(Clone, Copy, Debug)]
pub(super) struct Marks {
    pub(super) is_test: bool,
    pub(super) radius_deg: Option<f64>,
}

impl Event {
    /// Makes the first message of an event; the candidate's times count from the observation's first sample.
    pub(super) fn new(
        number: u64,
        candidate: &Candidate,
        observation: &Observation,
        marks: Marks,
    ) -> Self {
        let header = &observation.header;
        let band = &header.band;
        let edges = [
            band.lowest_hz() - 0.5 * band.channel_width_hz(),
            band.highest_hz() + 0.5 * band.channel_width_hz(),
        ];
        let telescope = match header.telescope.trim() {
            "" => "unknown",
            name => name,
        };
        let mut event = Self {
            id: format!("{}_{number:04}", observation.name),
            state: EventState::Initial,
            sequence: 0,
            is_final: false,
            is_test: marks.is_test,
            follows: None,
            time: None,
            mjd: None,
            time_error_s: 0.0,
            time_infinite: None,
            time_infinite_error_s: 0.0,
            snr: 0.0,
            dm: 0.0,
            dm_error: 0.0,
            width_s: 0.0,
            ra_deg: header.ra_deg,
            dec_deg: header.dec_deg,
            radius_deg: marks.radius_deg,
            telescope: telescope.to_owned(),
            backend: format!("sidereal {}", env!("CARGO_PKG_VERSION")),
            source: header.source_name.trim().to_owned(),
            beam: header.beam.map(|beam| beam.number),
            band_mhz: edges.map(|hz| hz / HZ_PER_MHZ),
            channels: header.channels(),
            tsamp_s: header.tsamp_s,
            polarizations: header.recorded_polarizations,
            bits: header.recorded_bits,
            observation: observation.name.clone(),
            dump: None,
            created: String::new(),
            created_unix_s: 0.0,
        };
        event.measure(candidate, observation);
        event
    }

    /// Takes the numbers of a candidate.
    pub(super) fn measure(&mut self, candidate: &Candidate, observation: &Observation) {
        let time = observation.time(candidate.time_s);
        let highest_hz = observation.header.band.highest_hz();
        // The delay from infinite frequency, where 1 / f^2 is 0, per unit of DM.
        let per_dm_s = dispersion_delay_s(1.0, highest_hz, f64::INFINITY, observation.dm_constant);
        self.time = time.map(|time| iso(&time));
        self.mjd = time.map(|time| time.mjd());
        self.time_infinite = time.map(|time| iso(&time.plus_s(-per_dm_s * candidate.dm)));
        self.snr = tidy(candidate.snr);
        self.dm = tidy(candidate.dm);
        self.dm_error = tidy(observation.dm_error(candidate));
        self.width_s = tidy(candidate.width_s);
        let half_s = 0.5 * observation.header.tsamp_s;
        self.time_error_s = tidy(half_s.max(candidate.width_s / candidate.snr));
        self.time_infinite_error_s = tidy(self.time_error_s.hypot(per_dm_s * self.dm_error));
    }

    /// Turns into the next message of the event, in a state, made now.
    pub(super) fn next(&mut self, state: EventState) {
        self.state = state;
        self.sequence += 1;
        self.created = iso(&clock::now());
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.created_unix_s = since.as_secs_f64();
    }

    /// Returns whether the DMs of two events agree within their errors.
    pub(super) fn agrees(&self, dm: f64, dm_error: f64) -> bool {
        (self.dm - dm).abs() <= self.dm_error + dm_error
    }
}

/// Formats a time as ISO 8601 with microseconds: `2026-01-31T12:30:05.250000Z`.
pub(crate) fn iso(time: &Epoch) -> String {
    let rounded = Epoch::new(time.day, (time.seconds * 1e6).round() * 1e-6);
    let text = format_start(&rounded).0;
    let (seconds, fraction) = text.split_once('.').unwrap_or((&text, ""));
    let (date, clock) =
        (seconds.get(..10).unwrap_or_default(), seconds.get(11..).unwrap_or_default());
    format!("{date}T{clock}.{:0<6.6}Z", fraction)
}

#[cfg(test)]
pub(super) mod tests {
    use sidereal::sample::Encoding;
    use sidereal::units::{Band, DM_CONSTANT};

    use super::*;

    /// A candidate of DM 350.5, 8 ms wide, at 2.5 s.
    pub(in crate::alerts) fn candidate() -> Candidate {
        Candidate {
            dm: 350.5,
            time_s: 2.5,
            snr: 12.5,
            width_s: 0.008,
            members: 3,
            range: 0,
            trial: 70,
            peak_begin_s: 2.496,
            peak_end_s: 2.504,
            begin_s: 2.4,
            end_s: 2.6,
            dm_min: 340.0,
            dm_max: 360.0,
            band_fraction: 1.0,
        }
    }

    /// An observation of 64 channels from 1200 MHz to 1500 MHz.
    pub(in crate::alerts) fn observation() -> Observation {
        let header = FilterbankHeader {
            path: "stream".into(),
            format: "stream",
            source_name: "J<1>&\"2\"".into(),
            telescope: "A & B".into(),
            ra_deg: Some(83.633),
            dec_deg: Some(22.0145),
            beam: None,
            tstart_mjd: 60_000.5,
            tsamp_s: 0.001,
            band: Band::uniform(1500.0, -300.0 / 63.0, 64).unwrap(),
            encoding: Encoding::U8,
            recorded_bits: 8,
            recorded_polarizations: 2,
            times: None,
        };
        Observation {
            name: "2023-02-25-12-00-00".into(),
            header,
            ranges: vec![DmRange::new(0.0, 1000.0, 1.0), DmRange::new(1000.0, 2000.0, 4.0)],
            dm_constant: DM_CONSTANT,
        }
    }

    pub(in crate::alerts) fn event(state: EventState) -> Event {
        let marks = Marks { is_test: false, radius_deg: Some(0.25) };
        let mut event = Event::new(3, &candidate(), &observation(), marks);
        event.next(state);
        event
    }

    #[test]
    fn times_and_errors_are_those_of_the_candidate() {
        let event = event(EventState::Initial);
        assert_eq!((event.id.as_str(), event.sequence), ("2023-02-25-12-00-00_0003", 1));
        assert_eq!(event.time.as_deref(), Some("2023-02-25T12:00:02.500000Z"));
        // K DM / f^2 = 4148.808 * 350.5 / 1500^2 s before.
        assert_eq!(event.time_infinite.as_deref(), Some("2023-02-25T12:00:01.853708Z"));
        assert!((event.time_error_s - 0.008 / 12.5).abs() < 1e-12);
        // K (1200^-2 - 1500^-2) = 1.0372 ms per unit of DM.
        let line = 12f64.sqrt() * 0.008 / (12.5 * 1.0372e-3);
        assert!((event.dm_error - line).abs() < 1e-3 * line, "{}", event.dm_error);
        let mut narrow = candidate();
        narrow.width_s = 0.001;
        assert_eq!(observation().dm_error(&narrow), 0.5);
        let steps = [0.0, 999.0, 1000.0, 5000.0].map(|dm| observation().dm_step(dm));
        assert_eq!((steps, observation().highest_dm()), ([1.0, 1.0, 4.0, 4.0], 2000.0));
    }

    #[test]
    fn times_are_rounded_to_microseconds() {
        assert_eq!(iso(&Epoch::new(60_000, 0.0)), "2023-02-25T00:00:00.000000Z");
        assert_eq!(iso(&Epoch::new(59_999, 86_399.999_999_9)), "2023-02-25T00:00:00.000000Z");
        assert_eq!(iso(&Epoch::new(60_000, 1.25)), "2023-02-25T00:00:01.250000Z");
    }
}
