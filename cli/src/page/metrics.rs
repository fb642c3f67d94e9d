//! Numbers of a live run in the text format of Prometheus.

use std::fmt::{Display, Write as _};

use super::status::{Status, StreamState, StreamStatus};
use crate::spiir::{DetectorView, StrainView};

/// Text that grows by one metric after another.
struct Text(String);

impl Text {
    /// Begins a metric, whose samples follow.
    fn metric(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    /// Adds a sample.
    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        self.0.push_str(name);
        for (index, (label, text)) in labels.iter().enumerate() {
            let _ = write!(
                self.0,
                "{}{label}=\"{}\"",
                if index == 0 { '{' } else { ',' },
                escaped(text)
            );
        }
        let _ = writeln!(self.0, "{} {value}", if labels.is_empty() { "" } else { "}" });
    }

    /// Adds a metric with one sample.
    fn one(&mut self, name: &str, kind: &str, help: &str, value: impl Display) {
        self.metric(name, kind, help);
        self.sample(name, &[], value);
    }
}

/// Escapes the value of a label.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// Counters of a stream's packets that belong to no source: their names and values.
fn of_no_source(stream: &StreamStatus) -> [(&'static str, u64); 5] {
    let placed = |counter: fn(&super::status::SourceStatus) -> u64| -> u64 {
        stream.sources.iter().map(counter).sum()
    };
    [
        ("wrong_source", stream.wrong_source),
        ("wrong_length", stream.wrong_length.saturating_sub(placed(|source| source.wrong_length))),
        ("invalid", stream.invalid.saturating_sub(placed(|source| source.invalid))),
        ("unplaced", stream.unplaced),
        ("without_header", stream.without_header),
    ]
}

/// Formats a status.
pub(super) fn text(status: &Status) -> String {
    let mut text = Text(String::with_capacity(8192));
    let help = "Version of the program and verb that runs.";
    text.metric("sidereal_build_info", "gauge", help);
    let labels = [("version", env!("CARGO_PKG_VERSION")), ("verb", &status.verb)];
    text.sample("sidereal_build_info", &labels, 1);
    let help = "Time at which the program began, in seconds since 1970.";
    text.one("sidereal_start_time_seconds", "gauge", help, status.begun_unix_s);
    let help = "Whether the run does what it should, as /healthz says.";
    text.one("sidereal_healthy", "gauge", help, u8::from(status.health.ok));
    let help = "Observations that have ended.";
    text.one("sidereal_observations_total", "counter", help, status.observations);
    packets(&mut text, &status.streams);
    streams(&mut text, status);
    let help = "Seconds of all threads in a stage, without the stages within it.";
    text.metric("sidereal_stage_seconds_total", "counter", help);
    for stage in &status.stages {
        text.sample("sidereal_stage_seconds_total", &[("stage", &stage.name)], stage.busy_s);
    }
    text.metric("sidereal_stage_calls_total", "counter", "Times that a stage worked.");
    for stage in &status.stages {
        text.sample("sidereal_stage_calls_total", &[("stage", &stage.name)], stage.calls);
    }
    let help = "Mean time of a call of a stage, in the last second in which there was one.";
    text.metric("sidereal_stage_latency_seconds", "gauge", help);
    for stage in &status.stages {
        text.sample("sidereal_stage_latency_seconds", &[("stage", &stage.name)], stage.latency_s);
    }
    text.metric("sidereal_candidates_total", "counter", "Lines of candidates by state.");
    let found = &status.candidates;
    for (state, count) in [
        ("provisional", found.provisional),
        ("final", found.r#final),
        ("retracted", found.retracted),
    ] {
        text.sample("sidereal_candidates_total", &[("state", state)], count);
    }
    if let Some(latency_s) = found.latency_s {
        let help = "From the time of the last candidate at the highest frequency to its line.";
        text.one("sidereal_candidate_latency_seconds", "gauge", help, latency_s);
    }
    text.metric("sidereal_dumps", "gauge", "Dumps by state.");
    let dumps = &status.dumps;
    for (state, count) in [
        ("waiting", dumps.waiting),
        ("running", dumps.running),
        ("done", dumps.done),
        ("failed", dumps.failed),
        ("refused", dumps.refused),
    ] {
        text.sample("sidereal_dumps", &[("state", state)], count);
    }
    if let Some(view) = &status.strain {
        strain(&mut text, view);
    }
    if let Some(free) = status.disk_free_bytes {
        let help = "Bytes free where the output is written.";
        text.one("sidereal_disk_free_bytes", "gauge", help, free);
    }
    text.0
}

/// Adds the counters of packets and blocks.
fn packets(text: &mut Text, streams: &[StreamStatus]) {
    let name = "sidereal_packets_total";
    let help = "Packets of each source by what became of them; those of no known source have an empty one.";
    text.metric(name, "counter", help);
    for stream in streams {
        let address = stream.address.as_str();
        for source in &stream.sources {
            let number = source.source.to_string();
            for (outcome, count) in [
                ("received", source.received),
                ("late", source.late),
                ("ahead", source.ahead),
                ("duplicate", source.duplicate),
                ("wrong_length", source.wrong_length),
                ("invalid", source.invalid),
                ("overrun", source.overrun),
            ] {
                let labels = [("stream", address), ("source", &number), ("outcome", outcome)];
                text.sample(name, &labels, count);
            }
        }
        for (outcome, count) in of_no_source(stream) {
            text.sample(name, &[("stream", address), ("source", ""), ("outcome", outcome)], count);
        }
    }
    let name = "sidereal_missing_blocks_total";
    text.metric(name, "counter", "Blocks of which some or all packets did not come.");
    for stream in streams {
        for source in &stream.sources {
            let labels =
                [("stream", stream.address.as_str()), ("source", &source.source.to_string())];
            text.sample(name, &labels, source.missing_blocks);
        }
    }
    let name = "sidereal_kernel_dropped_packets_total";
    text.metric(name, "counter", "Messages that the kernel dropped because its buffer was full: packets, or several that it had joined.");
    for stream in streams {
        text.sample(name, &[("stream", &stream.address)], stream.dropped_by_kernel);
    }
    let name = "sidereal_invalid_headers_total";
    text.metric(name, "counter", "Headers that could not be used.");
    for stream in streams {
        text.sample(name, &[("stream", &stream.address)], stream.invalid_headers);
    }
}

/// Number of a detector that may be unknown.
type OfDetector = fn(&DetectorView) -> Option<f64>;

/// Metrics of each detector: name, kind, help and value.
const OF_DETECTORS: [(&str, &str, &str, OfDetector); 10] = [
    ("sidereal_frames_total", "counter", "Frames that were read.", |one| Some(one.frames as f64)),
    ("sidereal_late_frames_total", "counter", "Files whose time had passed as a gap.", |one| {
        Some(one.late as f64)
    }),
    ("sidereal_repeated_frames_total", "counter", "Files whose time had been read.", |one| {
        Some(one.repeated as f64)
    }),
    ("sidereal_strain_seconds_total", "counter", "Strain, with gaps.", |one| Some(one.duration_s)),
    ("sidereal_triggers_total", "counter", "Triggers.", |one| Some(one.triggers as f64)),
    (
        "sidereal_filter_restarts_total",
        "counter",
        "Restarts of the filters after long gaps.",
        |one| Some(one.restarts as f64),
    ),
    ("sidereal_templates", "gauge", "Templates.", |one| Some(one.templates as f64)),
    (
        "sidereal_warm_templates",
        "gauge",
        "Templates whose filters have had strain for long enough.",
        |one| Some(one.warm as f64),
    ),
    ("sidereal_since_frame_seconds", "gauge", "Time since a frame arrived.", |one| {
        one.since_frame_s
    }),
    (
        "sidereal_horizon_mpc",
        "gauge",
        "Distance of two neutron stars with a signal-to-noise ratio of 8.",
        |one| one.horizon_mpc,
    ),
];

/// Adds the numbers of a search of strain.
fn strain(text: &mut Text, view: &StrainView) {
    for (name, kind, help, value) in OF_DETECTORS {
        text.metric(name, kind, help);
        for one in &view.detectors {
            if let Some(value) = value(one) {
                text.sample(name, &[("detector", &one.name)], value);
            }
        }
    }
    let name = "sidereal_gap_seconds_total";
    text.metric(name, "counter", "Invalid strain by reason.");
    for one in &view.detectors {
        for (reason, gap) in &one.gaps {
            text.sample(name, &[("detector", &one.name), ("reason", reason)], gap.seconds);
        }
    }
    let name = "sidereal_frame_latency_seconds";
    text.metric(name, "gauge", "Latency of the last frame by stage.");
    for one in &view.detectors {
        let stages = one.latency_s;
        for (stage, value) in [
            ("frame", stages.frame),
            ("delivery", stages.delivery),
            ("waiting", stages.waiting),
            ("algorithms", stages.algorithms),
            ("computing", stages.computing),
        ] {
            text.sample(name, &[("detector", &one.name), ("stage", stage)], value);
        }
    }
    text.metric("sidereal_events_total", "counter", "Events that have ended, by state.");
    for (state, count) in [("final", view.found), ("retracted", view.retracted)] {
        text.sample("sidereal_events_total", &[("state", state)], count);
    }
    if let Some(latency_s) = view.event_latency_s {
        let help = "From the time of the last event to its first line.";
        text.one("sidereal_event_latency_seconds", "gauge", help, latency_s);
    }
}

/// Number of a stream that may be unknown.
type Number = fn(&StreamStatus) -> Option<f64>;

/// Age of the last sample, of streams and of detectors.
const SAMPLE_AGE: &str = "sidereal_last_sample_age_seconds";

/// Gauges of each stream: name, help and value.
const GAUGES: [(&str, &str, Number); 6] = [
    ("sidereal_ring_used", "Chunks or blocks that wait to be read or are being read.", |stream| {
        Some(stream.ring.used as f64)
    }),
    ("sidereal_ring_capacity", "Chunks or blocks that can wait.", |stream| {
        Some(stream.ring.capacity as f64)
    }),
    ("sidereal_since_packet_seconds", "Time since a packet was placed.", |stream| {
        stream.since_packet_s
    }),
    (
        "sidereal_packet_age_seconds",
        "Time of this machine less that of the last packets.",
        |stream| stream.packet_age_s,
    ),
    (SAMPLE_AGE, "Time of this machine less that of the last sample that was read.", |stream| {
        stream.observation.as_ref()?.last_sample_age_s
    }),
    (
        "sidereal_observation_dropped_seconds",
        "Data of the current or last observation that were dropped because processing was too slow.",
        |stream| Some(stream.dropped_s),
    ),
];

/// Adds the gauges of streams.
fn streams(text: &mut Text, status: &Status) {
    let streams = &status.streams;
    let name = "sidereal_stream_receiving";
    text.metric(name, "gauge", "Whether an observation arrives.");
    for stream in streams {
        let is_receiving = u8::from(stream.state == StreamState::Receiving);
        text.sample(name, &[("stream", &stream.address)], is_receiving);
    }
    for (name, help, value) in GAUGES {
        text.metric(name, "gauge", help);
        for stream in streams {
            if let Some(value) = value(stream) {
                text.sample(name, &[("stream", &stream.address)], value);
            }
        }
        let detectors = status.strain.iter().flat_map(|strain| &strain.detectors);
        for one in detectors.filter(|_| name == SAMPLE_AGE) {
            if let Some(age_s) = one.last_sample_age_s {
                text.sample(name, &[("stream", &one.name)], age_s);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::status::{SourceStatus, StageStatus};

    #[test]
    fn every_sample_has_a_type_and_labels_are_escaped() {
        let source =
            SourceStatus { source: 3, received: 7, wrong_length: 1, ..SourceStatus::default() };
        let stream = StreamStatus {
            address: "a\"b\\c\nd".into(),
            wrong_length: 3,
            dropped_by_kernel: 4,
            since_packet_s: Some(0.5),
            sources: vec![source],
            ..StreamStatus::default()
        };
        let stage = StageStatus { name: "search".into(), calls: 2, ..StageStatus::default() };
        let status = Status { streams: vec![stream], stages: vec![stage], ..Status::default() };
        let found = text(&status);
        for line in [
            r#"sidereal_packets_total{stream="a\"b\\c\nd",source="3",outcome="received"} 7"#,
            r#"sidereal_packets_total{stream="a\"b\\c\nd",source="",outcome="wrong_length"} 2"#,
            r#"sidereal_kernel_dropped_packets_total{stream="a\"b\\c\nd"} 4"#,
            r#"sidereal_since_packet_seconds{stream="a\"b\\c\nd"} 0.5"#,
            r#"sidereal_stage_calls_total{stage="search"} 2"#,
        ] {
            assert!(found.lines().any(|found| found == line), "{line}\n{found}");
        }
        assert!(!found.contains("sidereal_packet_age_seconds{"));
        let mut typed = "";
        for line in found.lines() {
            match line.strip_prefix("# TYPE ") {
                Some(rest) => typed = rest.split(' ').next().unwrap(),
                None if line.starts_with("# HELP") => {}
                None => assert_eq!(line.split(['{', ' ']).next(), Some(typed)),
            }
        }
    }
}
