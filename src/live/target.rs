//! Addresses of live streams: `spead://HOST:PORT` and `dada:KEY`.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddrV4, ToSocketAddrs};
use std::str::FromStr;

use crate::error::{Error, Result};
use crate::io::ADDRESSES;

/// Beginnings of the two kinds; `//` may follow that of a ring.
const SPEAD: &str = ADDRESSES[0];
const DADA: &str = ADDRESSES[1];

/// Place that a stream is sent to, or received from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// SPEAD heaps over UDP.
    Spead {
        /// Address and port: of a host, or of a multicast group; 0.0.0.0 receives on all addresses.
        address: SocketAddrV4,
        /// Name of the interface of a multicast group.
        interface: Option<String>,
    },
    /// Ring of PSRDADA with this key.
    Dada(u32),
}

impl FromStr for Target {
    type Err = Error;

    /// Parses `spead://HOST:PORT`, `spead://GROUP:PORT?interface=NAME`, `dada:KEY` or `dada://KEY` with a hexadecimal key. An
    /// empty host is 0.0.0.0.
    fn from_str(text: &str) -> Result<Self> {
        let bad = |rule: &str| Error::parameter("address of a stream", text, rule.to_owned());
        if let Some(key) = text.strip_prefix(DADA) {
            let key = key.strip_prefix("//").unwrap_or(key);
            let key = key.strip_prefix("0x").unwrap_or(key);
            let key = u32::from_str_radix(key, 16).ok().filter(|key| *key > 0);
            return key
                .map(Self::Dada)
                .ok_or_else(|| bad("expected dada:KEY with a hexadecimal key"));
        }
        let Some(rest) = text.strip_prefix(SPEAD) else {
            return Err(bad("expected spead://HOST:PORT or dada:KEY"));
        };
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let interface = match query.split_once('=') {
            Some(("interface", name)) if !name.is_empty() => Some(name.to_owned()),
            None if query.is_empty() => None,
            _ => return Err(bad("after ? expected interface=NAME")),
        };
        let Some((host, port)) = place.trim_end_matches('/').rsplit_once(':') else {
            return Err(bad("expected a port, as in spead://127.0.0.1:7148"));
        };
        let port: u16 = port.parse().map_err(|_| bad("expected a port from 0 to 65535"))?;
        let address = match host {
            "" => SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port),
            host => {
                let found = (host, port).to_socket_addrs().ok();
                let first = found.into_iter().flatten().find_map(|address| match address {
                    std::net::SocketAddr::V4(address) => Some(address),
                    std::net::SocketAddr::V6(_) => None,
                });
                first.ok_or_else(|| bad("the host has no IPv4 address that is known here"))?
            }
        };
        Ok(Self::Spead { address, interface })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Spead { address, interface: None } => write!(formatter, "{SPEAD}{address}"),
            Self::Spead { address, interface: Some(name) } => {
                write!(formatter, "{SPEAD}{address}?interface={name}")
            }
            Self::Dada(key) => write!(formatter, "{DADA}{key:x}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::io::is_address;

    #[test]
    fn addresses_are_read_as_they_are_shown() {
        for (text, shown) in [
            ("spead://127.0.0.1:7148", "spead://127.0.0.1:7148"),
            ("spead://:7148", "spead://0.0.0.0:7148"),
            ("spead://239.1.2.3:7148?interface=lo", "spead://239.1.2.3:7148?interface=lo"),
            ("dada:dada", "dada:dada"),
            ("dada://0xDADC", "dada:dadc"),
        ] {
            let target: Target = text.parse().unwrap();
            assert_eq!(target.to_string(), shown);
            assert_eq!(shown.parse::<Target>().unwrap(), target);
            assert!(is_address(Path::new(text)));
        }
        assert!(!is_address(Path::new("dada.fil")));
    }

    #[test]
    fn nonsense_is_refused_with_what_is_expected() {
        for (text, expected) in [
            ("dada:", "hexadecimal"),
            ("dada:xyz", "hexadecimal"),
            ("dada:0", "hexadecimal"),
            ("spead://127.0.0.1", "port"),
            ("spead://127.0.0.1:x", "port"),
            ("spead://127.0.0.1:70000", "port"),
            ("spead://127.0.0.1:1?eth0", "interface=NAME"),
            ("http://x", "spead://HOST:PORT"),
        ] {
            let error = text.parse::<Target>().unwrap_err().to_string();
            assert!(error.contains(expected) && error.contains(text), "{text}: {error}");
        }
    }
}
