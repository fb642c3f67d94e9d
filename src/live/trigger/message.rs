//! Triggers as datagrams: our own JSON, and those of CHIME (kotekan), GReX, DSA-110 and Heimdall.
//!
//! # Source
//! kotekan's `/baseband` requests, whose times are at the lowest frequency of CHIME's band; the T2 programs of DSA-110 and of
//! GReX; the lines that their forks of Heimdall write to a `-coincidencer`.

use std::fmt;

use serde_json::{Map, Value};

use super::{Origin, Refusal, Trigger, unix};
use crate::io::voltages::dada::{format_start, parse_utc};
use crate::units::{Epoch, HZ_PER_MHZ};

/// Longest datagram in bytes.
pub const MOST_BYTES: usize = 4096;

/// Frequency in Hz at which CHIME's times are: the lowest of its band.
const CHIME_HZ: f64 = 400e6;

/// Largest binary logarithm of a width in samples.
const MOST_FILTER: u32 = 40;

/// Program whose form a message has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// Our own JSON.
    Own,
    /// kotekan's JSON of a baseband request.
    Chime,
    /// GReX's JSON: a name and the number of a sample.
    Grex,
    /// DSA-110's text `NUMBER-NAME-`, alone or in the JSON of its command, or the JSON of its candidate.
    Dsa110,
    /// Heimdall's columns.
    Heimdall,
}

/// Time of a trigger.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum When {
    /// UTC.
    Utc(Epoch),
    /// Number of a sample since the start of the observation.
    Sample(u64),
}

/// Length of a burst.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Width {
    /// In seconds.
    Seconds(f64),
    /// In samples.
    Samples(u64),
}

/// Trigger as it was sent.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    /// Form of the message.
    pub dialect: Dialect,
    /// Name; made of the time if none was sent.
    pub name: String,
    /// Arrival of the burst's start at the reference frequency.
    pub when: When,
    /// Reference frequency in Hz; `None` is the highest of the band.
    pub reference_hz: Option<f64>,
    /// Dispersion measure, if one was sent.
    pub dm: Option<f64>,
    /// Its error, if one was sent.
    pub dm_error: Option<f64>,
    /// Length of the burst.
    pub width: Width,
    /// Signal-to-noise ratio, if one was sent.
    pub snr: Option<f64>,
    /// Priority.
    pub priority: u8,
    /// Whether it is a test or an injection.
    pub is_test: bool,
}

/// Observation to which a message without a UTC or a DM refers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stream {
    /// Start of sample 0 (UTC), if it is known.
    pub start: Option<Epoch>,
    /// Length of a sample in seconds.
    pub sample_s: f64,
    /// Highest dispersion measure that is searched.
    pub highest_dm: f64,
}

impl Message {
    /// Makes the trigger of a message. Without a DM it covers all DMs of the search; a DM without an error is exact.
    ///
    /// # Errors
    /// [`Refusal::NoStart`].
    pub fn trigger(self, source: Origin, stream: &Stream) -> Result<Trigger, Refusal> {
        let start = match self.when {
            When::Utc(time) => time,
            When::Sample(number) => {
                let start = stream.start.ok_or(Refusal::NoStart)?;
                start.plus_s(number as f64 * stream.sample_s)
            }
        };
        let half = 0.5 * stream.highest_dm;
        Ok(Trigger {
            name: self.name,
            source,
            start,
            reference_hz: self.reference_hz,
            dm: self.dm.unwrap_or(half),
            dm_error: self.dm.map_or(half, |_| self.dm_error.unwrap_or(0.0)),
            width_s: match self.width {
                Width::Seconds(seconds) => seconds,
                Width::Samples(samples) => samples as f64 * stream.sample_s,
            },
            snr: self.snr,
            priority: self.priority,
            is_test: self.is_test,
        })
    }
}

/// Reason for which a datagram is no trigger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed(String);

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

type Parsed<T> = Result<T, Malformed>;

fn fault<T>(why: impl Into<String>) -> Parsed<T> {
    Err(Malformed(why.into()))
}

/// Reads the trigger of a datagram, whose form its content shows. Of several lines of Heimdall, the one with the highest S/N.
///
/// # Errors
/// [`Malformed`] naming the field, what was found and what is expected.
pub fn parse(datagram: &[u8]) -> Parsed<Message> {
    if datagram.len() > MOST_BYTES {
        return fault(format!("found {} bytes, expected at most {MOST_BYTES}", datagram.len()));
    }
    let Ok(text) = std::str::from_utf8(datagram) else {
        return fault("found other bytes, expected UTF-8");
    };
    // Heimdall's fork ends its datagrams with 0x03; C programs send the NUL of a text.
    let text = text
        .trim_matches(|letter: char| letter.is_whitespace() || matches!(letter, '\0' | '\u{3}'));
    if text.starts_with('{') {
        return match serde_json::from_str(text) {
            Ok(Value::Object(fields)) => json(&Fields(fields)),
            Ok(_) => fault("found other JSON, expected an object"),
            Err(error) => fault(format!("the JSON is damaged: {error}")),
        };
    }
    if text.contains('\t') {
        return heimdall(text);
    }
    dsa_text(text)
}

fn json(fields: &Fields) -> Parsed<Message> {
    if fields.has("event_id") || fields.has("start_unix_seconds") {
        chime(fields)
    } else if fields.has("itime") {
        let number = fields.whole("itime")?;
        let name = fields.named("candname", When::Sample(number))?;
        message(Dialect::Grex, fields, name, When::Sample(number))
    } else if fields.has("cmd") {
        match (fields.text("cmd")?, fields.text("val")?) {
            (Some("trigger"), Some(value)) => dsa_text(value),
            (command, _) => {
                fault(format!("cmd is {}, expected \"trigger\" with a val", command.unwrap_or("")))
            }
        }
    } else if let Some((name, inner)) = fields.candidate() {
        dsa_candidate(name, inner)
    } else {
        let when = when(fields)?;
        message(Dialect::Own, fields, fields.named("name", when)?, when)
    }
}

/// Reads the fields that all forms of JSON may have.
fn message(dialect: Dialect, fields: &Fields, name: String, when: When) -> Parsed<Message> {
    Ok(Message {
        dialect,
        name,
        when,
        reference_hz: fields.number("reference_mhz")?.map(|mhz| mhz * HZ_PER_MHZ),
        dm: fields.number("dm")?,
        dm_error: fields.number("dm_error")?,
        width: Width::Seconds(fields.number("width_s")?.unwrap_or(0.0)),
        snr: fields.number("snr")?,
        priority: match fields.0.get("priority") {
            None | Some(Value::Null) => 0,
            Some(value) => match value.as_u64().and_then(|number| u8::try_from(number).ok()) {
                Some(number) => number,
                None => return fault(format!("priority is {value}, expected 0 to 255")),
            },
        },
        is_test: match fields.0.get("test") {
            None | Some(Value::Null) => false,
            Some(Value::Bool(is_test)) => *is_test,
            Some(value) => return fault(format!("test is {value}, expected true or false")),
        },
    })
}

/// Reads the time of our own form.
fn when(fields: &Fields) -> Parsed<When> {
    let keys = ["time", "mjd", "unix", "sample"];
    let given: Vec<&str> = keys.into_iter().filter(|key| fields.has(key)).collect();
    let [key] = given[..] else {
        let found = if given.is_empty() { "none".to_owned() } else { given.join(", ") };
        return fault(format!("found {found} of {}, expected one of them", keys.join(", ")));
    };
    match key {
        "time" => {
            let text = fields.text(key)?.unwrap_or_default();
            let expected = "expected UTC (ISO 8601) such as 2026-01-31T12:30:05.25Z";
            parse_utc(text)
                .map(When::Utc)
                .ok_or_else(|| Malformed(format!("time is {text:?}, {expected}")))
        }
        "sample" => fields.whole(key).map(When::Sample),
        _ => {
            let number = fields.number(key)?.unwrap_or_default();
            if number.abs() > 1e12 {
                return fault(format!("{key} is {number}, expected a time"));
            }
            let whole = number.floor();
            Ok(When::Utc(match key {
                "mjd" => Epoch::from_mjd(number),
                _ => unix(whole as i64, 0).plus_s(number - whole),
            }))
        }
    }
}

fn chime(fields: &Fields) -> Parsed<Message> {
    let needed = |key: &'static str| {
        let number = fields.0.get(key).and_then(Value::as_i64);
        number.ok_or_else(|| {
            Malformed(format!("{key} is {}, expected a whole number", fields.shown(key)))
        })
    };
    let (seconds, nanoseconds) = (needed("start_unix_seconds")?, needed("start_unix_nano")?);
    if !(0..1_000_000_000).contains(&nanoseconds) || !(0..1 << 40).contains(&seconds) {
        let rule = "expected seconds since 1970, and 0 to 999999999 nanoseconds";
        return fault(format!("the start is {seconds} s and {nanoseconds} ns, {rule}"));
    }
    let duration = needed("duration_nano")?;
    let when = When::Utc(unix(seconds, nanoseconds));
    let name = fields.whole("event_id")?.to_string();
    let mut message = message(Dialect::Chime, fields, name, when)?;
    let reference_hz = message.reference_hz.unwrap_or(CHIME_HZ);
    message.reference_hz = Some(reference_hz);
    message.width = Width::Seconds(duration as f64 * 1e-9);
    if message.dm.is_none() {
        return fault("dm is missing, expected a number");
    }
    Ok(message)
}

/// Reads DSA-110's text `NUMBER-NAME-`.
fn dsa_text(text: &str) -> Parsed<Message> {
    let expected = "expected JSON, Heimdall's columns, or NUMBER-NAME- (DSA-110)";
    let shown: String = text.chars().take(40).collect();
    let Some((number, name)) = text.split_once('-') else {
        return fault(format!("found {shown:?}, {expected}"));
    };
    let (Ok(number), name) = (number.parse(), name.trim_end_matches('-')) else {
        return fault(format!("found {shown:?}, {expected}"));
    };
    if name == "flush" {
        return fault("found DSA-110's flush, which is no trigger");
    }
    message(Dialect::Dsa110, &Fields(Map::new()), name.to_owned(), When::Sample(number))
}

/// Reads DSA-110's candidate: `{"NAME": {"mjds": ..., "specnum": ..., "dm": ..., "snr": ..., "ibox": ...}}`.
fn dsa_candidate(name: &str, fields: &Map<String, Value>) -> Parsed<Message> {
    let fields = Fields(fields.clone());
    let when = match fields.number("mjds")? {
        Some(mjd) if (0.0..1e7).contains(&mjd) => When::Utc(Epoch::from_mjd(mjd)),
        Some(mjd) => return fault(format!("mjds is {mjd}, expected a modified Julian date")),
        None => When::Sample(fields.whole("specnum")?),
    };
    let mut message = message(Dialect::Dsa110, &fields, name.to_owned(), when)?;
    if fields.has("ibox") {
        message.width = Width::Samples(fields.whole("ibox")?);
    }
    message.is_test |= fields.0.get("injected") == Some(&Value::Bool(true));
    Ok(message)
}

/// Reads Heimdall's columns: S/N, index, sample, seconds, filter, DM trial, DM, beam.
fn heimdall(text: &str) -> Parsed<Message> {
    let mut best: Option<Message> = None;
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let columns: Vec<&str> = line.split('\t').map(str::trim).collect();
        let [snr, _, sample, _, filter, _, dm, _] = columns[..] else {
            return fault(format!("found {} columns, expected Heimdall's 8", columns.len()));
        };
        let real = |what: &str, column: &str| {
            let number: Result<f64, _> = column.parse();
            number.map_err(|_| Malformed(format!("{what} is {column:?}, expected a number")))
        };
        let Ok(sample) = sample.parse() else {
            return fault(format!("the sample is {sample:?}, expected a whole number"));
        };
        let filter: u32 = match filter.parse() {
            Ok(filter) if filter <= MOST_FILTER => filter,
            _ => return fault(format!("the filter is {filter:?}, expected 0 to {MOST_FILTER}")),
        };
        let snr = real("the S/N", snr)?;
        if best.as_ref().is_some_and(|best| best.snr >= Some(snr)) {
            continue;
        }
        best = Some(Message {
            dialect: Dialect::Heimdall,
            name: made_name(When::Sample(sample)),
            when: When::Sample(sample),
            reference_hz: None,
            dm: Some(real("the DM", dm)?),
            dm_error: None,
            width: Width::Samples(1 << filter),
            snr: Some(snr),
            priority: 0,
            is_test: false,
        });
    }
    best.ok_or_else(|| Malformed("found no line".to_owned()))
}

/// Makes a name of a time: `T2026-01-31-12-30-05` or `S123`.
fn made_name(when: When) -> String {
    match when {
        When::Sample(number) => format!("S{number}"),
        // Times before any calendar of ours have no date, and are refused later.
        When::Utc(time) if !(0..3_000_000).contains(&time.day) => "T".to_owned(),
        When::Utc(time) => {
            let text = format_start(&time).0.replace(':', "-");
            format!("T{}", text.split('.').next().unwrap_or_default())
        }
    }
}

/// Fields of a JSON object.
struct Fields(Map<String, Value>);

impl Fields {
    fn has(&self, key: &str) -> bool {
        self.0.get(key).is_some_and(|value| !value.is_null())
    }

    fn shown(&self, key: &str) -> String {
        self.0.get(key).map_or("missing".to_owned(), Value::to_string)
    }

    fn number(&self, key: &str) -> Parsed<Option<f64>> {
        if !self.has(key) {
            return Ok(None);
        }
        let number = self.0.get(key).and_then(Value::as_f64);
        let why = || Malformed(format!("{key} is {}, expected a number", self.shown(key)));
        number.map(Some).ok_or_else(why)
    }

    /// Returns a whole number that must be there; it may be a text of digits.
    fn whole(&self, key: &str) -> Parsed<u64> {
        let number = self.0.get(key).and_then(|value| match value {
            Value::String(text) => text.parse().ok(),
            other => other.as_u64(),
        });
        let why = || Malformed(format!("{key} is {}, expected a whole number", self.shown(key)));
        number.ok_or_else(why)
    }

    fn text(&self, key: &str) -> Parsed<Option<&str>> {
        match self.0.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => fault(format!("{key} is {other}, expected a text")),
        }
    }

    /// Returns a name, or one made of the time.
    fn named(&self, key: &str, when: When) -> Parsed<String> {
        Ok(self.text(key)?.map_or_else(|| made_name(when), str::to_owned))
    }

    /// Returns name and fields of DSA-110's candidate, if there is nothing else.
    fn candidate(&self) -> Option<(&str, &Map<String, Value>)> {
        let mut entries = self.0.iter();
        match (entries.next(), entries.next()) {
            (Some((name, Value::Object(inner))), None) => Some((name, inner)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::Limits;
    use super::*;

    const STREAM: Stream = Stream {
        start: Some(Epoch { day: 60_000, seconds: 10.0 }),
        sample_s: 0.001,
        highest_dm: 2000.0,
    };

    fn trigger(text: &str) -> Trigger {
        parse(text.as_bytes()).unwrap().trigger(Origin::Search, &STREAM).unwrap()
    }

    #[test]
    fn our_own_json_is_read() {
        let found = trigger(
            r#"{"time": "2023-02-25T00:00:12.5Z", "dm": 350.5, "dm_error": 2, "width_s": 0.004, "snr": 11.5,
               "name": "B1", "reference_mhz": 1500, "priority": 3, "test": true, "other": [1]}"#,
        );
        let expected = Trigger {
            name: "B1".into(),
            source: Origin::Search,
            start: Epoch::new(60_000, 12.5),
            reference_hz: Some(1500e6),
            dm: 350.5,
            dm_error: 2.0,
            width_s: 0.004,
            snr: Some(11.5),
            priority: 3,
            is_test: true,
        };
        assert_eq!(found, expected);
        let found = trigger(r#"{"mjd": 60000.5}"#);
        assert_eq!(found.start, Epoch::new(60_000, 43_200.0));
        // Without a DM, all of them.
        assert_eq!(
            (found.name.as_str(), found.dm, found.dm_error),
            ("T2023-02-25-12-00-00", 1000.0, 1000.0)
        );
        let found = trigger(r#"{"unix": 1677283212.25, "dm": 5}"#);
        assert_eq!((found.start, found.dm_error), (Epoch::new(60_000, 12.25), 0.0));
        assert_eq!(trigger(r#"{"sample": 2500, "dm": 5}"#).start, Epoch::new(60_000, 12.5));
    }

    #[test]
    fn the_forms_of_other_programs_are_read() {
        let found = trigger(
            r#"{"event_id": 427325191, "start_unix_seconds": 1677283212, "start_unix_nano": 500000000,
               "duration_nano": 100000000, "dm": 279.4, "dm_error": 0.4, "file_path": "/data/baseband"}"#,
        );
        assert_eq!((found.name.as_str(), found.start), ("427325191", Epoch::new(60_000, 12.5)));
        assert_eq!((found.reference_hz, found.width_s, found.dm), (Some(400e6), 0.1, 279.4));
        for text in [
            r#"{"candname": "240918aaaa", "itime": 2500}"#,
            "2500-240918aaaa-",
            r#"{"cmd": "trigger", "val": "2500-240918aaaa-"}"#,
            "2500-240918aaaa-\0",
        ] {
            let found = trigger(text);
            assert_eq!(
                (found.name.as_str(), found.start),
                ("240918aaaa", Epoch::new(60_000, 12.5)),
                "{text}"
            );
        }
        let found = trigger(
            r#"{"240918aaaa": {"mjds": 60000.25, "snr": 12.7, "ibox": 4, "dm": 279.4, "ibeam": 127, "specnum": 9}}"#,
        );
        assert_eq!(
            (found.name.as_str(), found.start),
            ("240918aaaa", Epoch::new(60_000, 21_600.0))
        );
        assert_eq!((found.dm, found.snr, found.width_s), (279.4, Some(12.7), 0.004));
        let found =
            trigger("8.5\t0\t2000\t2\t3\t12\t100\t1\n11.5\t0\t2500\t2.5\t4\t70\t350.5\t1\n\u{3}");
        assert_eq!((found.start, found.snr), (Epoch::new(60_000, 12.5), Some(11.5)));
        assert_eq!((found.dm, found.width_s, found.name.as_str()), (350.5, 0.016, "S2500"));
    }

    #[test]
    fn mistakes_are_named() {
        for (text, expected) in [
            ("", "found \"\", expected JSON, Heimdall's columns"),
            ("hello", "found \"hello\", expected JSON"),
            ("x-y-", "found \"x-y-\", expected JSON"),
            ("0-flush-", "flush, which is no trigger"),
            ("{", "the JSON is damaged"),
            ("{}", "found none of time, mjd, unix, sample, expected one of them"),
            (r#"{"mjd": 1, "unix": 2}"#, "found mjd, unix of time"),
            (r#"{"time": "yesterday"}"#, "time is \"yesterday\", expected UTC (ISO 8601)"),
            (r#"{"time": 5}"#, "time is 5, expected a text"),
            (r#"{"unix": 1e300}"#, "expected a time"),
            (r#"{"unix": 1, "dm": "high"}"#, "dm is \"high\", expected a number"),
            (r#"{"unix": 1, "dm": NaN}"#, "the JSON is damaged"),
            (r#"{"unix": 1, "dm": 1e400}"#, "the JSON is damaged"),
            (r#"{"unix": 1, "priority": 256}"#, "priority is 256, expected 0 to 255"),
            (r#"{"unix": 1, "test": "yes"}"#, "test is \"yes\", expected true or false"),
            (r#"{"itime": -5}"#, "itime is -5, expected a whole number"),
            (r#"{"event_id": 1}"#, "start_unix_seconds is missing, expected a whole number"),
            (r#"{"cmd": "start", "val": "1"}"#, "cmd is start, expected \"trigger\""),
            ("1\t2\t3", "found 3 columns, expected Heimdall's 8"),
            ("x\t0\t1\t1\t1\t1\t1\t1", "the S/N is \"x\", expected a number"),
            ("9\t0\t1\t1\t99\t1\t1\t1", "the filter is \"99\", expected 0 to 40"),
        ] {
            let why = parse(text.as_bytes()).unwrap_err().to_string();
            assert!(why.contains(expected), "{text}: {why}");
        }
        let deep = format!("{{\"unix\": {}1{}}}", "[".repeat(2000), "]".repeat(2000));
        assert!(parse(deep.as_bytes()).unwrap_err().to_string().contains("recursion limit"));
        let long = vec![b' '; MOST_BYTES + 1];
        assert!(parse(&long).unwrap_err().to_string().contains("expected at most 4096"));
        let nan = parse(b"9\t0\t1\t1\t1\t1\tNaN\t1").unwrap();
        let nan = nan.trigger(Origin::Search, &STREAM).unwrap();
        assert_eq!(Limits::default().check(&nan, &nan.start), Err(Refusal::NotFinite("DM")));
        let unknown = Stream { start: None, ..STREAM };
        let found = parse(b"5-a-").unwrap().trigger(Origin::Search, &unknown);
        assert_eq!(found, Err(Refusal::NoStart));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            if let Ok(message) = parse(&bytes) {
                let found = message.trigger(Origin::Search, &STREAM).unwrap();
                let _ = Limits::default().check(&found, &STREAM.start.unwrap());
            }
        }

        #[test]
        fn any_numbers_are_read_or_refused(
            key in "time|mjd|unix|sample|itime|event_id|start_unix_seconds",
            number in any::<f64>(),
            whole in any::<i64>(),
            dm in any::<f64>(),
        ) {
            for time in [format!("{number:e}"), whole.to_string(), format!("\"{number}\"")] {
                let text = format!(
                    "{{\"{key}\": {time}, \"start_unix_nano\": {whole}, \"duration_nano\": {whole}, \"dm\": {dm:e}}}"
                );
                let Ok(message) = parse(text.as_bytes()) else { continue };
                let found = message.trigger(Origin::Search, &STREAM).unwrap();
                let now = STREAM.start.unwrap();
                if Limits::default().check(&found, &now).is_ok() {
                    prop_assert!((0.0..=10_000.0).contains(&found.dm) && found.start.seconds_since(&now) <= 10.0);
                }
            }
        }
    }
}
