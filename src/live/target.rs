//! Address of a stream in text: where a sender sends to, and where a receiver listens.
//!
//! | text | stream |
//! |---|---|
//! | `spead://HOST:PORT`, without HOST to receive on all addresses, with `?interface=NAME` for a multicast group | SPEAD heaps ([`crate::live::stream`]) by UDP |
//! | `vdif://HOST:PORT`, `vdif://HOST:PORT?sequence`, likewise; options are joined by `&` | VDIF frames by UDP, behind a sequence number of 8 bytes or not |
//! | `dada:KEY`, `dada://KEY` | PSRDADA ring of a hexadecimal key |

use std::fmt;
use std::net::{SocketAddr, SocketAddrV4, ToSocketAddrs};
use std::str::FromStr;

use crate::error::{Error, Result};
use crate::live::ring::Key;

/// Forms of a target, for errors.
const FORMS: &str = "it must be spead://HOST:PORT, vdif://HOST:PORT or dada:KEY";

/// Address of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Target {
    /// SPEAD heaps to a UDP port.
    Spead(Port),
    /// VDIF frames to a UDP port.
    Vdif(VdifPort),
    /// PSRDADA ring.
    Ring(Key),
}

/// UDP port of a host or of a multicast group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Address and port.
    pub address: SocketAddrV4,
    /// Name of the interface of a group; the system chooses one otherwise.
    pub interface: Option<String>,
}

/// UDP port of VDIF frames.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VdifPort {
    /// The port.
    pub port: Port,
    /// Whether a sequence number precedes each frame.
    pub numbered: bool,
}

impl Target {
    /// Returns the UDP port; `None` for a ring.
    pub fn port(&self) -> Option<&Port> {
        match self {
            Self::Spead(port) | Self::Vdif(VdifPort { port, .. }) => Some(port),
            Self::Ring(_) => None,
        }
    }

    /// Returns the UDP port, to be changed; `None` for a ring.
    pub fn port_mut(&mut self) -> Option<&mut Port> {
        match self {
            Self::Spead(port) | Self::Vdif(VdifPort { port, .. }) => Some(port),
            Self::Ring(_) => None,
        }
    }
}

impl FromStr for Target {
    type Err = Error;

    /// Parses a target; a host's name is looked up.
    ///
    /// # Errors
    /// [`Error::Parameter`] for another form, an unknown host, a port that is not 1 to 65535, or a key of no ring.
    fn from_str(text: &str) -> Result<Self> {
        let wrong = |rule: &str| Error::parameter("target", text, rule);
        let (scheme, rest) = text.split_once(':').ok_or_else(|| wrong(FORMS))?;
        match scheme {
            "spead" => {
                let rest = rest.strip_prefix("//").ok_or_else(|| wrong(FORMS))?;
                port(text, rest, &[]).map(|(port, _)| Self::Spead(port))
            }
            "vdif" => {
                let rest = rest.strip_prefix("//").ok_or_else(|| wrong(FORMS))?;
                let (port, flags) = port(text, rest, &["sequence"])?;
                Ok(Self::Vdif(VdifPort { port, numbered: !flags.is_empty() }))
            }
            "dada" => rest.strip_prefix("//").unwrap_or(rest).parse().map(Self::Ring),
            _ => Err(wrong(FORMS)),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Spead(port) => write!(f, "spead://{port}"),
            Self::Vdif(VdifPort { port, numbered: false }) => write!(f, "vdif://{port}"),
            Self::Vdif(VdifPort { port, numbered: true }) => {
                let join = if port.interface.is_some() { '&' } else { '?' };
                write!(f, "vdif://{port}{join}sequence")
            }
            Self::Ring(key) => write!(f, "dada:{key}"),
        }
    }
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.address)?;
        self.interface.as_ref().map_or(Ok(()), |name| write!(f, "?interface={name}"))
    }
}

/// Parses `HOST:PORT?interface=NAME` and flags, joined by `&`, and returns the flags given; `whole` is the text in errors.
fn port<'a>(whole: &str, text: &'a str, flags: &[&str]) -> Result<(Port, Vec<&'a str>)> {
    let wrong = |rule: String| Error::parameter("target", whole, rule);
    let (place, query) = text.split_once('?').map_or((text, None), |(a, b)| (a, Some(b)));
    let (mut interface, mut given) = (None, Vec::new());
    for word in query.into_iter().flat_map(|query| query.split('&')) {
        let name = word.strip_prefix("interface=").filter(|name| !name.is_empty());
        if let Some(name) = name.filter(|_| interface.is_none()) {
            interface = Some(name.to_owned());
        } else if flags.contains(&word) && !given.contains(&word) {
            given.push(word);
        } else {
            let known = ["interface=NAME"].into_iter().chain(flags.iter().copied());
            let known = known.collect::<Vec<_>>().join(" and ");
            return Err(wrong(format!("after ? it may have {known} only, joined by &")));
        }
    }
    let (host, number) = place.rsplit_once(':').ok_or_else(|| wrong(FORMS.to_owned()))?;
    let host = if host.is_empty() { "0.0.0.0" } else { host };
    let number: u16 = number
        .parse()
        .ok()
        .filter(|number| *number > 0 && !place.contains('+'))
        .ok_or_else(|| wrong("its port must be 1 to 65535".to_owned()))?;
    if host.starts_with('[') || host.contains(':') {
        return Err(wrong("its host must be an IPv4 address or a name".to_owned()));
    }
    let found = (host, number)
        .to_socket_addrs()
        .map_err(|error| wrong(format!("its host is unknown: {error}")))?;
    let mut addresses = found.filter_map(|address| match address {
        SocketAddr::V4(address) => Some(address),
        SocketAddr::V6(_) => None,
    });
    let address =
        addresses.next().ok_or_else(|| wrong("its host has no IPv4 address".to_owned()))?;
    if interface.is_some() && !address.ip().is_multicast() {
        return Err(wrong("an interface is for multicast groups, 224.0.0.0 and above".to_owned()));
    }
    Ok((Port { address, interface }, given))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_return_as_they_were_written() {
        for text in [
            "spead://127.0.0.1:7148",
            "spead://239.1.2.3:7148",
            "spead://239.1.2.3:7148?interface=eth0",
            "vdif://127.0.0.1:46227",
            "vdif://127.0.0.1:46227?sequence",
            "vdif://239.1.2.3:46227?interface=eth0&sequence",
            "dada:dada",
            "dada:6d0a0002",
        ] {
            assert_eq!(text.parse::<Target>().unwrap().to_string(), text);
        }
        assert_eq!("dada://0xdada".parse::<Target>().unwrap(), Target::Ring(Key::DEFAULT));
        assert_eq!("spead://:9".parse::<Target>().unwrap().to_string(), "spead://0.0.0.0:9");
        let Target::Spead(port) = "spead://localhost:9".parse().unwrap() else { panic!("a port") };
        assert!(port.address.ip().is_loopback());
    }

    #[test]
    fn other_texts_are_refused_with_the_reason() {
        for (text, rule) in [
            ("", "spead://HOST:PORT"),
            ("observation.fil", "spead://HOST:PORT"),
            ("udp://127.0.0.1:9", "spead://HOST:PORT"),
            ("spead:127.0.0.1:9", "spead://HOST:PORT"),
            ("spead://127.0.0.1", "spead://HOST:PORT"),
            ("spead://127.0.0.1:0", "1 to 65535"),
            ("spead://127.0.0.1:65536", "1 to 65535"),
            ("spead://127.0.0.1:+9", "1 to 65535"),
            ("spead://127.0.0.1:x", "1 to 65535"),
            ("spead://[::1]:9", "IPv4"),
            ("spead://239.1.2.3:9?interface=", "interface=NAME"),
            ("spead://239.1.2.3:9?ttl=3", "interface=NAME"),
            ("spead://127.0.0.1:9?interface=lo", "multicast groups"),
            ("spead://127.0.0.1:9?sequence", "interface=NAME only"),
            ("vdif:127.0.0.1:9", "vdif://HOST:PORT"),
            ("vdif://127.0.0.1:9?sequence&sequence", "interface=NAME and sequence only"),
            ("vdif://127.0.0.1:9?sequence=1", "interface=NAME and sequence only"),
            ("dada:", "hexadecimal"),
            ("dada:xyz", "hexadecimal"),
            ("dada:10000", "0000"),
        ] {
            let error = text.parse::<Target>().unwrap_err().to_string();
            assert!(error.contains(rule), "{text}: {error}");
        }
    }
}
