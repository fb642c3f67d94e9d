//! Requests that the page refuses: those of foreign pages, of names that lead here by a trick, and those without the token.
//!
//! Invariant: the token is compared as digests, so that the time of a comparison says nothing of it; it is never in a URL.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::rand::{GetRandomFlags, getrandom};
use sha2::{Digest, Sha256};
use sidereal::{Error, Result};

/// Length of a token that a user gives.
const LENGTHS: std::ops::RangeInclusive<usize> = 16..=256;

/// Secret that permits what changes something, and on other addresses than the machine's own whatever is shown.
pub(super) struct Token {
    text: String,
    digest: [u8; 32],
}

impl Token {
    /// Draws 128 random bits and writes them to a file that only its owner reads.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(super) fn draw(path: &Path) -> Result<Self> {
        let failed = |error| Error::io(path, error);
        let mut bits = [0; 16];
        let drawn = getrandom(&mut bits, GetRandomFlags::empty());
        if drawn.map_err(|error| failed(error.into()))? < bits.len() {
            return Err(failed(std::io::Error::other("the system has no random numbers")));
        }
        let text: String = bits.iter().map(|byte| format!("{byte:02x}")).collect();
        // A file of an earlier run may belong to a mode or a link that somebody else has chosen.
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(failed(error));
            }
            _ => {}
        }
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
        let written = file.and_then(|mut file| file.write_all(format!("{text}\n").as_bytes()));
        written.map_err(failed)?;
        Ok(Self::new(text))
    }

    /// Reads a token from a file.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Format`] for a file with anything else than one word of 16 to 256 letters.
    pub(super) fn read(path: &Path) -> Result<Self> {
        let failed = |error| Error::io(path, error);
        let mut text = String::new();
        File::open(path)
            .and_then(|file| file.take(4096).read_to_string(&mut text))
            .map_err(failed)?;
        let text = text.trim();
        let is_word =
            text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(&byte));
        if !(is_word && LENGTHS.contains(&text.len())) {
            let why = format!(
                "found {} bytes, expected one word of {} to {} letters, digits, or -._~+/=",
                text.len(),
                LENGTHS.start(),
                LENGTHS.end()
            );
            return Err(Error::format(path, "token", 0, why));
        }
        Ok(Self::new(text.to_owned()))
    }

    fn new(text: String) -> Self {
        let digest = Sha256::digest(&text).into();
        Self { text, digest }
    }

    /// Returns the token as a cookie has it.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Compares a word with the token.
    pub(super) fn is(&self, word: &str) -> bool {
        let digest: [u8; 32] = Sha256::digest(word).into();
        let differs = |sum: u8, (a, b): (&u8, &u8)| sum | (a ^ b);
        digest.iter().zip(&self.digest).fold(0, differs) == 0
    }
}

/// Facts of a request by which it is admitted.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Asked<'a> {
    /// Whether it may change something.
    pub(super) is_post: bool,
    pub(super) path: &'a str,
    /// Header `Host`, unless there is none or several.
    pub(super) host: Option<&'a str>,
    pub(super) origin: Option<&'a str>,
    pub(super) cookies: Option<&'a str>,
    pub(super) authorization: Option<&'a str>,
    /// Address of this machine to which the request came.
    pub(super) local: Option<IpAddr>,
}

/// Reason of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The name of this machine in the request is unknown.
    Host,
    /// A page of another origin has sent the request.
    Origin,
    /// The token is missing or another one.
    Token,
}

/// Rules by which requests are admitted.
pub(super) struct Guard {
    /// Address that the page listens on.
    pub(super) address: SocketAddr,
    /// Further names of this machine, in lower case.
    pub(super) names: Vec<String>,
    pub(super) token: Token,
}

impl Guard {
    /// Returns the name of the token's cookie; pages of other ports have others.
    pub(super) fn cookie(&self) -> String {
        format!("sidereal-{}", self.address.port())
    }

    /// Admits or refuses a request.
    pub(super) fn check(&self, asked: &Asked<'_>) -> std::result::Result<(), Refusal> {
        let (name, _) = asked.host.and_then(divided).ok_or(Refusal::Host)?;
        if !self.is_known(name, asked.local) {
            return Err(Refusal::Host);
        }
        if let Some(origin) = asked.origin
            && !is_same_origin(origin, asked.host.unwrap_or_default())
        {
            return Err(Refusal::Origin);
        }
        // The machine's own users see the page; whoever comes by another name, through a proxy, needs the token.
        let is_own = self.address.ip().is_loopback() && is_loopback(name);
        let is_open = match asked.path {
            "/login" | "/healthz" | "/metrics" => true,
            path => path.starts_with("/assets/") || !asked.is_post && (is_own || path == "/"),
        };
        if is_open || self.has_token(asked) { Ok(()) } else { Err(Refusal::Token) }
    }

    /// Returns whether a request has the token.
    pub(super) fn has_token(&self, asked: &Asked<'_>) -> bool {
        let bearer = asked.authorization.and_then(|text| text.strip_prefix("Bearer "));
        let name = self.cookie();
        let cookies = asked.cookies.into_iter().flat_map(|cookies| cookies.split(';'));
        let cookie = cookies
            .filter_map(|cookie| cookie.trim().split_once('='))
            .find(|(own, _)| *own == name)
            .map(|(_, value)| value);
        bearer.into_iter().chain(cookie).any(|word| self.token.is(word.trim()))
    }

    fn is_known(&self, name: &str, local: Option<IpAddr>) -> bool {
        if is_loopback(name) || self.names.iter().any(|own| own.eq_ignore_ascii_case(name)) {
            return true;
        }
        // A number cannot lead to another machine later, as a name can.
        let number = name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
        number.is_ok_and(|number| number == self.address.ip() || Some(number) == local)
    }
}

fn is_loopback(name: &str) -> bool {
    name.eq_ignore_ascii_case("localhost") || ["127.0.0.1", "[::1]"].contains(&name)
}

/// Divides a host into its name and port.
fn divided(host: &str) -> Option<(&str, Option<u16>)> {
    let end = match host.strip_prefix('[') {
        Some(rest) => rest.find(']')? + 2,
        None => host.find(':').unwrap_or(host.len()),
    };
    let (name, rest) = host.split_at_checked(end)?;
    let port = match rest.strip_prefix(':') {
        Some(port) => Some(port.parse().ok()?),
        None if rest.is_empty() => None,
        None => return None,
    };
    (!name.is_empty()).then_some((name, port))
}

/// Returns whether an origin is that of a host.
fn is_same_origin(origin: &str, host: &str) -> bool {
    let (standard, place) = match (origin.strip_prefix("http://"), origin.strip_prefix("https://"))
    {
        (Some(place), _) => (80, place),
        (_, Some(place)) => (443, place),
        _ => return false,
    };
    let (Some((name, port)), Some((own, own_port))) = (divided(place), divided(host)) else {
        return false;
    };
    name.eq_ignore_ascii_case(own) && port.unwrap_or(standard) == own_port.unwrap_or(standard)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORD: &str = "0123456789abcdef";

    fn guard(address: &str) -> Guard {
        let names = vec!["telescope.example".to_owned()];
        Guard { address: address.parse().unwrap(), names, token: Token::new(WORD.into()) }
    }

    fn get<'a>(host: &'a str, path: &'a str) -> Asked<'a> {
        Asked { path, host: Some(host), ..Asked::default() }
    }

    #[test]
    fn names_that_are_not_this_machine_are_refused() {
        let own = guard("127.0.0.1:7149");
        for host in
            ["127.0.0.1:7149", "localhost:7149", "LOCALHOST", "[::1]:7149", "localhost:8000"]
        {
            assert_eq!(own.check(&get(host, "/status")), Ok(()), "{host}");
        }
        for host in [
            "evil.example:7149",
            "127.0.0.1.evil.example",
            "",
            ":7149",
            "[::1",
            "10.0.0.1",
            "localhost:x",
            "localhost:99999",
        ] {
            assert_eq!(own.check(&get(host, "/status")), Err(Refusal::Host), "{host}");
        }
        assert_eq!(own.check(&Asked { path: "/", ..Asked::default() }), Err(Refusal::Host));
        let open = guard("0.0.0.0:7149");
        let local = "10.0.0.1".parse().ok();
        assert_eq!(open.check(&Asked { local, ..get("10.0.0.1:7149", "/healthz") }), Ok(()));
        assert_eq!(
            open.check(&Asked { local, ..get("10.0.0.2:7149", "/healthz") }),
            Err(Refusal::Host)
        );
    }

    #[test]
    fn pages_of_other_origins_are_refused() {
        let own = guard("127.0.0.1:7149");
        for (origin, is_same) in [
            ("http://127.0.0.1:7149", true),
            ("http://127.0.0.1", false),
            ("http://127.0.0.1:3000", false),
            ("http://localhost:7149", false),
            ("https://evil.example", false),
            ("null", false),
            ("http://127.0.0.1:7149.evil.example", false),
        ] {
            let expected = if is_same { Ok(()) } else { Err(Refusal::Origin) };
            let asked = Asked { origin: Some(origin), ..get("127.0.0.1:7149", "/") };
            assert_eq!(own.check(&asked), expected, "{origin}");
        }
        // A proxy ends TLS, and passes the name on.
        let asked =
            Asked { origin: Some("https://telescope.example"), ..get("telescope.example", "/") };
        assert_eq!(own.check(&asked), Ok(()));
    }

    #[test]
    fn the_token_is_needed_to_change_something_and_by_other_machines() {
        let (own, open) = (guard("127.0.0.1:7149"), guard("0.0.0.0:7149"));
        let bearer = format!("Bearer {WORD}");
        let cookies = format!("other=1; sidereal-7149={WORD}");
        let post = Asked { is_post: true, ..get("localhost", "/label") };
        assert_eq!(own.check(&post), Err(Refusal::Token));
        assert_eq!(own.check(&Asked { authorization: Some(&bearer), ..post }), Ok(()));
        assert_eq!(own.check(&Asked { cookies: Some(&cookies), ..post }), Ok(()));
        for wrong in
            ["sidereal-7149=", "sidereal-7149=0123456789abcdee", "sidereal-7150=0123456789abcdef"]
        {
            assert_eq!(own.check(&Asked { cookies: Some(wrong), ..post }), Err(Refusal::Token));
        }
        assert_eq!(open.check(&get("localhost", "/status")), Err(Refusal::Token));
        assert_eq!(
            open.check(&Asked { cookies: Some(&cookies), ..get("localhost", "/status") }),
            Ok(())
        );
        // Through a proxy.
        assert_eq!(own.check(&get("telescope.example", "/status")), Err(Refusal::Token));
        for path in ["/", "/healthz", "/metrics", "/login", "/assets/page.css"] {
            assert_eq!(open.check(&get("localhost", path)), Ok(()), "{path}");
        }
    }

    #[test]
    fn a_token_is_written_for_its_owner_and_read_back() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("page-token");
        let (first, token) = (Token::draw(&path).unwrap(), Token::draw(&path).unwrap());
        assert!(!first.is(token.text()) && token.text().len() == 32);
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert!(Token::read(&path).unwrap().is(token.text()));
        for text in ["", "short", "with a space in the middle", "line\nline-of-sixteen"] {
            std::fs::write(&path, text).unwrap();
            assert!(Token::read(&path).is_err(), "{text}");
        }
    }
}
