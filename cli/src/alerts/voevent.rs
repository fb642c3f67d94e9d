//! Events as VOEvent 2.0 packets with the groups of the FRB VOEvent standard.
//!
//! # Source
//! Petroff et al. 2017, arXiv:1710.08155, and its templates; the XML schema of VOEvent 2.0.

use std::fmt::Write as _;

use super::event::{Event, EventState};

/// Returns the packet of an event; `authority` is the identifier of its author, such as `ivo://institute/instrument`.
pub(super) fn text(event: &Event, authority: &str) -> String {
    let authority = escaped(authority.trim_end_matches('/'));
    let id = escaped(&event.id);
    let role = if event.is_test { "test" } else { "observation" };
    let mut xml = String::with_capacity(4096);
    let _ = write!(
        xml,
        r#"<?xml version="1.0" encoding="UTF-8"?>
<voe:VOEvent xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xmlns:voe="http://www.ivoa.net/xml/VOEvent/v2.0" xsi:schemaLocation="http://www.ivoa.net/xml/VOEvent/v2.0 http://www.ivoa.net/xml/VOEvent/VOEvent-v2.0.xsd" version="2.0" role="{role}" ivorn="{authority}#{id}.{sequence}">
  <Who>
    <AuthorIVORN>{authority}</AuthorIVORN>
    <Date>{date}</Date>
    <Author><title>{telescope}</title></Author>
  </Who>
"#,
        sequence = event.sequence,
        date = seconds(&event.created),
        telescope = escaped(&event.telescope),
    );
    if event.state != EventState::Retraction {
        what(&mut xml, event);
    }
    place(&mut xml, event);
    // The standard wants 0 for a retraction; no classifier gives another number.
    let importance = if event.state == EventState::Retraction { r#" importance="0""# } else { "" };
    let finality = if event.is_final { "final" } else { "provisional" };
    let _ = write!(
        xml,
        "  <Why{importance}>\n    <Concept>{finality}</Concept>\n    \
         <Description>Result of an automatic search; no person has looked at it.</Description>\n    \
         <Name>{id}</Name>\n  </Why>\n"
    );
    let (cited, relation, words) = match event.state {
        EventState::Initial => (None, "", ""),
        EventState::Subsequent => {
            let follows = event.follows.as_ref().map(|id| format!("{}.1", escaped(id)));
            (follows, "followup", "Later event at the same DM")
        }
        EventState::Update => (Some(format!("{id}.1")), "supersedes", "Later result of the search"),
        EventState::Retraction => {
            (Some(format!("{id}.1")), "retraction", "Retracted by the search")
        }
    };
    if let Some(cited) = cited {
        let _ = write!(
            xml,
            "  <Citations>\n    <EventIVORN cite=\"{relation}\">{authority}#{cited}</EventIVORN>\n    \
             <Description>{words}</Description>\n  </Citations>\n"
        );
    }
    xml.push_str("</voe:VOEvent>\n");
    xml
}

/// Parameter of a group.
struct Param {
    kind: &'static str,
    name: &'static str,
    ucd: &'static str,
    unit: &'static str,
    value: String,
}

impl Param {
    fn float(name: &'static str, ucd: &'static str, unit: &'static str, value: f64) -> Self {
        Self { kind: "float", name, ucd, unit, value: value.to_string() }
    }

    fn int(name: &'static str, ucd: &'static str, value: usize) -> Self {
        Self { kind: "int", name, ucd, unit: "", value: value.to_string() }
    }

    fn text(name: &'static str, value: &str) -> Self {
        Self { kind: "string", name, ucd: "", unit: "", value: escaped(value) }
    }
}

fn what(xml: &mut String, event: &Event) {
    let [low, high] = event.band_mhz;
    let mut observatory = Vec::new();
    if let Some(radius) = event.radius_deg {
        // The standard's MM is the arc minute.
        let ucd = "instr.beam;pos.errorEllipse;phys.angSize.smajAxis";
        observatory.push(Param::float("beam_semi-major_axis", ucd, "MM", 60.0 * radius));
        let ucd = "instr.beam;pos.errorEllipse;phys.angSize.sminAxis";
        observatory.push(Param::float("beam_semi-minor_axis", ucd, "MM", 60.0 * radius));
    }
    observatory.extend([
        Param::float("sampling_time", "time.resolution", "ms", 1e3 * event.tsamp_s),
        Param::float("bandwidth", "instr.bandwidth", "MHz", high - low),
        Param::int("nchan", "meta.number;em.freq;em.bin", event.channels),
        Param::float("centre_frequency", "em.freq;instr", "MHz", 0.5 * (low + high)),
        Param::int("npol", "", event.polarizations),
        Param::int("bits_per_sample", "", event.bits),
        Param::text("backend", &event.backend),
    ]);
    if let Some(beam) = event.beam {
        observatory.push(Param::text("beam", &beam.to_string()));
    }
    let mut observation = vec![
        Param::text("observation", &event.observation),
        Param::text("target_name", &event.source),
    ];
    if let (Some(ra), Some(dec)) = (event.ra_deg, event.dec_deg) {
        let [right, up] = ["obs.param;pos.eq.ra", "obs.param;pos.eq.dec"];
        observation.push(Param::float("observation_RA", right, "Degrees", ra));
        observation.push(Param::float("observation_DEC", up, "Degrees", dec));
    }
    let mut own = vec![
        Param::float("dm", "phys.dispMeasure", "pc/cm^3", event.dm),
        Param::float("dm_error", "stat.error;phys.dispMeasure", "pc/cm^3", event.dm_error),
        Param::float("width", "time.duration;src.var.pulse", "ms", 1e3 * event.width_s),
        Param::float("snr", "stat.snr", "", event.snr),
    ];
    if let Some(dump) = &event.dump {
        own.extend([
            Param::text("dump_start", &dump.start),
            Param::text("dump_end", &dump.end),
            Param::text("dump_trigger", &dump.trigger),
            Param::text("dump_list", &dump.list),
        ]);
        own.extend(dump.file.as_ref().map(|file| Param::text("dump_file", file)));
    }
    xml.push_str("  <What>\n");
    group(xml, "observatory parameters", &observatory);
    group(xml, "observation parameters", &observation);
    group(xml, "event parameters", &own);
    xml.push_str("  </What>\n");
}

fn group(xml: &mut String, name: &str, params: &[Param]) {
    let _ = writeln!(xml, "    <Group name=\"{name}\">");
    for Param { kind, name, ucd, unit, value } in params {
        let _ = write!(xml, "      <Param dataType=\"{kind}\" name=\"{name}\"");
        for (key, text) in [("ucd", ucd), ("unit", unit)] {
            if !text.is_empty() {
                let _ = write!(xml, " {key}=\"{text}\"");
            }
        }
        let _ = writeln!(xml, " value=\"{value}\"/>");
    }
    xml.push_str("    </Group>\n");
}

/// Writes time and position; the time is that at the highest frequency.
fn place(xml: &mut String, event: &Event) {
    let _ = write!(
        xml,
        "  <WhereWhen>\n    <ObsDataLocation>\n      <ObservatoryLocation id=\"{}\"/>\n      \
         <ObservationLocation>\n        <AstroCoordSystem id=\"UTC-FK5-GEO\"/>\n        \
         <AstroCoords coord_system_id=\"UTC-FK5-GEO\">\n",
        escaped(&event.telescope)
    );
    if let Some(time) = &event.time {
        let time = time.trim_end_matches('Z');
        let _ = writeln!(
            xml,
            "          <Time unit=\"s\"><TimeInstant><ISOTime>{time}</ISOTime></TimeInstant><Error>{}</Error></Time>",
            event.time_error_s
        );
    }
    // A position without an error would be taken as exact; the pointing is among the parameters.
    if let (Some(ra), Some(dec), Some(radius)) = (event.ra_deg, event.dec_deg, event.radius_deg) {
        let _ = writeln!(
            xml,
            "          <Position2D unit=\"deg\"><Name1>RA</Name1><Name2>Dec</Name2><Value2><C1>{ra}</C1><C2>{dec}</C2></Value2>\
             <Error2Radius>{radius}</Error2Radius></Position2D>"
        );
    }
    xml.push_str(
        "        </AstroCoords>\n      </ObservationLocation>\n    </ObsDataLocation>\n  </WhereWhen>\n",
    );
}

/// Returns a time without its fraction and zone.
fn seconds(time: &str) -> &str {
    time.split('.').next().unwrap_or_default()
}

/// Returns a text for XML: markup is escaped, and control characters, which XML cannot have, are replaced.
fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&apos;"),
            '\u{fffe}' | '\u{ffff}' => safe.push('\u{fffd}'),
            letter if letter.is_control() => safe.push('\u{fffd}'),
            letter => safe.push(letter),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::super::event::tests::event;
    use super::*;

    #[test]
    fn packets_name_time_place_and_what_they_cite() {
        let xml = text(&event(EventState::Initial), "ivo://example.org/live/");
        for expected in [
            r#"role="observation" ivorn="ivo://example.org/live#2023-02-25-12-00-00_0003.1""#,
            "<ISOTime>2023-02-25T12:00:02.500000</ISOTime>",
            "<C1>83.633</C1><C2>22.0145</C2></Value2><Error2Radius>0.25</Error2Radius>",
            r#"name="dm" ucd="phys.dispMeasure" unit="pc/cm^3" value="350.5""#,
            r#"<ObservatoryLocation id="A &amp; B"/>"#,
            r#"name="target_name" value="J&lt;1&gt;&amp;&quot;2&quot;""#,
        ] {
            assert!(xml.contains(expected), "{expected}: {xml}");
        }
        assert!(!xml.contains("<Citations>"));
        let mut later = event(EventState::Retraction);
        later.is_test = true;
        let xml = text(&later, "ivo://example.org/live");
        let cited = r#"<EventIVORN cite="retraction">ivo://example.org/live#2023-02-25-12-00-00_0003.1</EventIVORN>"#;
        assert!(
            xml.contains(cited) && xml.contains(r#"role="test""#) && !xml.contains("<What>"),
            "{xml}"
        );
    }

    #[test]
    fn no_text_breaks_the_markup() {
        assert_eq!(
            escaped("a<b>&'\"\u{0}\u{ffff}\n"),
            "a&lt;b&gt;&amp;&apos;&quot;\u{fffd}\u{fffd}\u{fffd}"
        );
    }
}
