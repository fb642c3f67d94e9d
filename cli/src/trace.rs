//! `--trace`: the time stamps of a run as a file that trace viewers show.

use std::path::Path;

use serde_json::{Value, json};
use sidereal::Result;
use sidereal::trace::{self, Span};

use crate::json;

/// Microseconds in a second, the unit of Chrome's trace format.
const MICROSECONDS: f64 = 1e6;

/// Ends recording and writes all spans to a file in Chrome's trace format.
///
/// # Errors
/// [`sidereal::Error::Io`].
pub(crate) fn write(path: &Path) -> Result<()> {
    json::write(path, &document(&trace::take()))
}

/// Returns the spans as trace events: one lane for each thread and each GPU stream, in order of appearance.
fn document(spans: &[Span]) -> Value {
    let mut lanes: Vec<&str> = Vec::new();
    let mut events = Vec::new();
    for span in spans {
        let known = lanes.iter().position(|lane| *lane == span.lane);
        let lane = known.unwrap_or_else(|| {
            lanes.push(&span.lane);
            lanes.len() - 1
        });
        events.push(json!({
            "ph": "X",
            "pid": 1,
            "tid": lane,
            "cat": span.work.name(),
            "name": span.name,
            "ts": span.start_s * MICROSECONDS,
            "dur": (span.end_s - span.start_s) * MICROSECONDS,
            "args": { "bytes": span.bytes },
        }));
    }
    let names = lanes.iter().enumerate().map(|(lane, name)| {
        json!({ "ph": "M", "pid": 1, "tid": lane, "name": "thread_name", "args": { "name": name } })
    });
    json!({ "traceEvents": names.chain(events).collect::<Vec<_>>() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use sidereal::trace::Work;

    #[test]
    fn every_lane_has_a_name_and_its_events() {
        let span = |lane: &str, start_s| Span {
            work: Work::Kernel,
            name: "dedisperse".into(),
            lane: lane.to_owned(),
            start_s,
            end_s: start_s + 0.5,
            bytes: 8,
        };
        let document = document(&[span("a", 0.25), span("b", 0.5), span("a", 1.0)]);
        let events = document["traceEvents"].as_array().unwrap();
        assert_eq!(events.len(), 5);
        assert_eq!(events[1]["args"]["name"], "b");
        assert_eq!(events[4]["tid"], 0);
        assert_eq!((&events[2]["ts"], &events[2]["dur"]), (&json!(250_000.0), &json!(500_000.0)));
        assert_eq!((&events[2]["cat"], &events[2]["args"]["bytes"]), (&json!("kernel"), &json!(8)));
    }
}
