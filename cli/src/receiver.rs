//! Receivers of `sidereal send`, from the command line.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use sidereal::io::is_description;
use sidereal::live::description::Description;
use sidereal::live::header::Content;
use sidereal::live::socket::Sender;
use sidereal::live::target::Target;
use sidereal::{Error, Result};
use toml::{Table, Value};

use crate::site::{self, Input};

/// Scheme of packets with a fixed header.
const PACKETS: &str = "packets://";

/// Receiver of a stream.
#[derive(Clone, Debug)]
pub(crate) enum Receiver {
    Address(Target),
    /// File that describes packets.
    File(PathBuf),
    /// Packets of an instrument: the text, and the keys of their description that it has.
    Preset {
        text: String,
        keys: Table,
    },
}

impl FromStr for Receiver {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        if is_description(Path::new(text)) {
            return Ok(Self::File(text.into()));
        }
        match text.strip_prefix(PACKETS) {
            Some(rest) => keys(text, rest).map(|keys| Self::Preset { text: text.to_owned(), keys }),
            None => text.parse().map(Self::Address),
        }
    }
}

/// Reads the keys of `packets://HOST:PORT?KEY=VALUE&...`.
fn keys(text: &str, rest: &str) -> Result<Table> {
    let wrong = |rule: String| Error::parameter("target", text, rule);
    let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
    let mut keys = Table::new();
    keys.insert("address".to_owned(), Value::String(format!("udp://{place}")));
    for word in query.split('&').filter(|word| !word.is_empty()) {
        let (key, value) = word
            .split_once('=')
            .ok_or_else(|| wrong(format!("after ? it has KEY=VALUE, joined by &, not {word}")))?;
        let number = value.parse().map(Value::Integer).ok();
        let number = number.or_else(|| value.parse().map(Value::Float).ok());
        let switch = || value.parse().map(Value::Boolean).ok();
        let value = number.or_else(switch).unwrap_or_else(|| Value::String(value.to_owned()));
        if keys.insert(key.to_owned(), value).is_some() {
            return Err(wrong(format!("{key} is there twice")));
        }
    }
    if !keys.contains_key("preset") {
        return Err(wrong("it needs ?preset=NAME: snap, snap2, chips or grex".to_owned()));
    }
    Ok(keys)
}

/// Adds what a recording says to the keys of a description.
fn complete(keys: &mut Table, content: &Content) {
    let mut add = |key: &str, value: Value| {
        keys.entry(key).or_insert(value);
    };
    let (channels, centres_hz) = match content {
        Content::Spectra(header) => (header.channels(), header.band.centres_hz().to_vec()),
        Content::Voltages(header) => (header.coarse_channels(), header.centres_hz.clone()),
    };
    add("tsamp_s", Value::Float(content.tsamp_s()));
    // Packets have no frequencies, and a recording may have none.
    let is_known = centres_hz.iter().all(|centre| *centre > 0.0);
    let centre = |channel: usize| if is_known { centres_hz[channel] } else { 1e9 + channel as f64 };
    add("centres_hz", Value::Array((0..channels).map(centre).map(Value::Float).collect()));
    if let Content::Voltages(header) = content {
        add("lower_sideband", Value::Boolean(header.lower_sideband));
    }
    // Its packets have fixed sizes.
    if keys.get("preset").and_then(Value::as_str) != Some("grex") {
        let antennas = match content {
            Content::Spectra(_) => 1,
            Content::Voltages(header) => header.antennas,
        };
        for (key, count) in [("channels", channels), ("antennas", antennas)] {
            keys.entry(key).or_insert(Value::Integer(count as i64));
        }
    }
}

/// Receiver that was checked.
pub(crate) enum Opened {
    Address(Target),
    Packets { path: PathBuf, description: Box<Description>, socket: Sender },
}

impl fmt::Display for Opened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(target) => target.fmt(f),
            Self::Packets { path, .. } => path.display().fmt(f),
        }
    }
}

impl Receiver {
    /// Returns whether it is a ring.
    pub(crate) fn is_ring(&self) -> bool {
        matches!(self, Self::Address(Target::Ring(_)))
    }

    /// Opens it for a recording of some content, through the interface of `--interface`.
    ///
    /// # Errors
    /// Those of the description and of the socket; [`Error::Parameter`] for an interface that is not for it, and for a preset that does
    /// not fit the recording.
    pub(crate) fn open(&self, content: &Content, interface: Option<&str>) -> Result<Opened> {
        match self {
            Self::Address(target) => through(target, interface).map(Opened::Address),
            Self::File(path) => {
                if let Some(name) = interface {
                    let rule = "the description has the interface";
                    return Err(Error::parameter("--interface", name, rule));
                }
                packets(path, site::read(path)?)
            }
            Self::Preset { text, keys } => {
                let mut keys = keys.clone();
                complete(&mut keys, content);
                if let Some(name) = interface
                    && let Some(other) = keys.insert("interface".to_owned(), name.into())
                {
                    let rule = format!("the target names {other}");
                    return Err(Error::parameter("--interface", name, rule));
                }
                let path = Path::new(text);
                match site::read_table(keys, path) {
                    Err(Error::Format { field, why, .. }) => {
                        Err(Error::parameter("target", text, format!("{field}: {why}")))
                    }
                    input => packets(path, input?),
                }
            }
        }
    }
}

/// Opens the first address of a description.
fn packets(path: &Path, input: Input) -> Result<Opened> {
    let found = input.sockets.first().map(|first| (first.address, &first.interface));
    let Some((address, interface)) = found else {
        return Err(Error::format(path, "input.address", 0, "expected an address"));
    };
    let socket = Sender::new(address, interface.as_deref())?;
    let (path, description) = (path.to_path_buf(), Box::new(input.description));
    Ok(Opened::Packets { path, description, socket })
}

/// Returns a target with an interface.
fn through(target: &Target, interface: Option<&str>) -> Result<Target> {
    let mut target = target.clone();
    let Some(name) = interface else { return Ok(target) };
    let refused = |rule: String| Err(Error::parameter("--interface", name, rule));
    match target.port_mut().filter(|port| port.address.ip().is_multicast()) {
        Some(port) => match &port.interface {
            Some(other) if other != name => refused(format!("the target names {other}")),
            _ => {
                port.interface = Some(name.to_owned());
                Ok(target)
            }
        },
        None => refused("it is for multicast groups, 224.0.0.0 and above".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_presets_have_the_keys_of_descriptions() {
        let text =
            "packets://127.0.0.1:10000?preset=snap&first_channel=512&idle_s=0.5&interface=lo";
        let Receiver::Preset { keys, .. } = text.parse().unwrap() else { panic!("a preset") };
        assert_eq!(keys["address"].as_str(), Some("udp://127.0.0.1:10000"));
        assert_eq!((keys["first_channel"].as_integer(), keys.len()), (Some(512), 5));
        assert_eq!(keys["idle_s"].as_float(), Some(0.5));
        for (text, words) in [
            ("packets://127.0.0.1:10000", "?preset=NAME"),
            ("packets://127.0.0.1:10000?snap", "KEY=VALUE"),
            ("packets://127.0.0.1:10000?preset=snap&preset=grex", "twice"),
        ] {
            let error = text.parse::<Receiver>().unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}
