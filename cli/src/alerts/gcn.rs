//! Events as notices of NASA's General Coordinates Network: JSON with the fields of CHIME/FRB or DSA-110.

use serde_json::{Map, Value, json};
use sidereal::Result;

use super::event::{AskedDump, Event, EventState};
use crate::json;

/// Schema whose fields a notice has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Schema {
    /// gcn/notices/chime/frb.
    Chime,
    /// gcn/notices/dsa110/frb.
    Dsa110,
}

impl Schema {
    fn folder(self) -> &'static str {
        match self {
            Self::Chime => "chime",
            Self::Dsa110 => "dsa110",
        }
    }
}

/// Returns the notice of an event.
///
/// # Errors
/// As [`json::text`].
pub(super) fn text(event: &Event, schema: Schema) -> Result<String> {
    json::text(&notice(event, schema))
}

fn notice(event: &Event, schema: Schema) -> Value {
    let folder = schema.folder();
    let url = format!("https://gcn.nasa.gov/schema/main/gcn/notices/{folder}/frb.schema.json");
    let mut fields = Map::new();
    let mut put = |key: &str, value: Value| {
        if !value.is_null() {
            fields.insert(key.to_owned(), value);
        }
    };
    put("$schema", json!(url));
    put("alert_type", json!(event.state.name()));
    put("alert_tense", json!(if event.is_test { "test" } else { "current" }));
    put("alert_datetime", json!(event.created));
    put("mission", json!(event.telescope));
    put("instrument", json!(event.backend));
    put("messenger", json!("EM"));
    put("record_number", json!(event.sequence));
    put("id", json!(event.id));
    put("trigger_time", json!(event.time));
    put("trigger_time_error", json!(event.time_error_s));
    if event.state == EventState::Subsequent {
        put("known_source", json!(event.follows));
    }
    let description = match event.state {
        EventState::Retraction => "Retracted by the search that reported it.",
        _ if event.is_final => "Final result of an automatic search; no person has looked at it.",
        _ => "Result of an automatic search that goes on; no person has looked at it.",
    };
    let dump = event.dump.as_ref().map_or_else(String::new, |dump| match &dump.file {
        Some(file) => format!(" Its voltages are in {file}."),
        None => {
            let AskedDump { start, end, list, .. } = dump;
            format!(" Voltages from {start} to {end} at the highest frequency were asked for; {list} will name their file.")
        }
    });
    put("description", json!(format!("{description}{dump}")));
    if event.state == EventState::Retraction {
        if schema == Schema::Chime {
            put("update_message", json!(format!("Retraction of event {}", event.id)));
        }
        return Value::Object(fields);
    }
    put("snr", json!(event.snr));
    put("dm", json!(event.dm));
    put("dm_error", json!(event.dm_error));
    // A position without an error would be taken as exact.
    if let (Some(ra), Some(dec), Some(radius)) = (event.ra_deg, event.dec_deg, event.radius_deg) {
        put("ra", json!(ra));
        put("dec", json!(dec));
        put("ra_dec_error", json!(radius));
    }
    put("spectral_band", json!(event.band_mhz));
    put("spectral_band_units", json!("MHz"));
    match schema {
        Schema::Chime => {
            put("trigger_time_inf_freq", json!(event.time_infinite));
            put("trigger_time_inf_freq_error", json!(event.time_infinite_error_s));
            put("sampling_time", json!(1e3 * event.tsamp_s));
            put("npol", json!(event.polarizations));
            if event.state == EventState::Update {
                let message = format!("S/N {:.2} at DM {:.3}", event.snr, event.dm);
                put("update_message", json!(message));
            }
        }
        Schema::Dsa110 => put("event_duration", json!(1e3 * event.width_s)),
    }
    Value::Object(fields)
}

#[cfg(test)]
mod tests {
    use super::super::event::tests::event;
    use super::*;

    #[test]
    fn notices_have_the_fields_of_their_schema() {
        let mut own = event(EventState::Initial);
        let chime = notice(&own, Schema::Chime);
        assert_eq!(chime["trigger_time"], "2023-02-25T12:00:02.500000Z");
        assert_eq!(
            (&chime["alert_type"], &chime["alert_tense"]),
            (&json!("initial"), &json!("current"))
        );
        assert_eq!((&chime["sampling_time"], &chime["ra_dec_error"]), (&json!(1.0), &json!(0.25)));
        assert!(chime.get("event_duration").is_none() && chime.get("known_source").is_none());
        own.is_test = true;
        let dsa = notice(&own, Schema::Dsa110);
        assert_eq!((&dsa["event_duration"], &dsa["alert_tense"]), (&json!(8.0), &json!("test")));
        assert!(dsa.get("npol").is_none());
        own.dump = Some(AskedDump {
            list: "found/dumps.ndjson".into(),
            trigger: own.id.clone(),
            start: "2023-02-25T12:00:02.25Z".into(),
            end: "2023-02-25T12:00:02.75Z".into(),
            file: None,
        });
        let words = |own: &Event| notice(own, Schema::Chime)["description"].to_string();
        assert!(words(&own).contains("from 2023-02-25T12:00:02.25Z to 2023-02-25T12:00:02.75Z"));
        assert!(words(&own).contains("found/dumps.ndjson will name their file."));
        own.dump.as_mut().unwrap().file = Some("found/dumps/a.dada".into());
        assert!(words(&own).contains("Its voltages are in found/dumps/a.dada."));
        let retraction = notice(&event(EventState::Retraction), Schema::Chime);
        assert_eq!(retraction["alert_type"], "retraction");
        assert!(retraction.get("dm").is_none());
    }
}
