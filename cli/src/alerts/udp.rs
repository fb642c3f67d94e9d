//! Triggers that arrive as datagrams: a thread that receives, limits and reads them, and a bounded queue to the search.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::fs::fstat;
use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_recv_buffer_size_force};
use sidereal::live::trigger::{MOST_BYTES, Origin};
use sidereal::{Error, Result};

use super::inlet::{Arrivals, Counters, Inlet, inlet};

/// Longest wait for a datagram, after which the thread looks whether it should end.
const WAIT: Duration = Duration::from_millis(100);

/// Bytes of the kernel's buffer: some thousand datagrams.
const BUFFER_BYTES: usize = 4 << 20;

/// Time between two looks at the kernel's counter of drops.
const EVERY: Duration = Duration::from_secs(1);

/// Addresses to receive at, and senders to listen to.
#[derive(Clone, Debug)]
pub(super) struct Options {
    pub(super) address: SocketAddr,
    /// Senders; none are those of this machine.
    pub(super) senders: Vec<IpAddr>,
    /// Most triggers in a second from each sender.
    pub(super) per_s: f64,
}

/// Parses `udp://HOST:PORT`, with this machine as the default host.
///
/// # Errors
/// [`Error::Parameter`] naming `option`.
pub(super) fn address(option: &'static str, text: &str) -> Result<SocketAddr> {
    let rule = "expected udp://HOST:PORT, as udp://127.0.0.1:65432";
    let place = text.strip_prefix("udp://").ok_or(Error::parameter(option, text, rule))?;
    let place = if place.starts_with(':') { format!("127.0.0.1{place}") } else { place.to_owned() };
    resolve(option, text, &place)
}

/// Finds the address of `HOST:PORT`.
///
/// # Errors
/// [`Error::Parameter`] naming `option`.
pub(super) fn resolve(option: &'static str, text: &str, place: &str) -> Result<SocketAddr> {
    let found = place.to_socket_addrs();
    let found = found.map_err(|error| Error::parameter(option, text, error.to_string()))?;
    let rule = "expected HOST:PORT with a known host and a port of 1 to 65535";
    let found = found.into_iter().find(|address| address.port() > 0);
    found.ok_or_else(|| Error::parameter(option, text, rule))
}

/// Receiver of triggers.
pub(super) struct Udp {
    pub(super) arrivals: Arrivals,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Udp {
    /// Opens the socket and starts the thread.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if the address cannot be used; [`Error::Io`] if the system starts no thread.
    pub(super) fn start(options: Options) -> Result<Self> {
        let socket = UdpSocket::bind(options.address);
        let socket = socket.and_then(|socket| socket.set_read_timeout(Some(WAIT)).map(|()| socket));
        let socket = socket.map_err(|error| Error::Unavailable {
            what: format!("the address {} of --triggers", options.address),
            why: error.to_string(),
        })?;
        // Less than this is granted where the system's limit is lower.
        if set_socket_recv_buffer_size_force(&socket, BUFFER_BYTES).is_err() {
            let _ = set_socket_recv_buffer_size(&socket, BUFFER_BYTES);
        }
        let (inlet, arrivals) = inlet(options.per_s);
        let is_over = Arc::new(AtomicBool::new(false));
        let mut listener =
            Listener { socket, senders: options.senders, inlet, is_over: Arc::clone(&is_over) };
        let spawned = thread::Builder::new().name("triggers".into()).spawn(move || listener.run());
        let thread = spawned.map_err(|error| Error::io("thread of the triggers", error))?;
        Ok(Self { arrivals, is_over, thread: Some(thread) })
    }

    /// Ends the thread.
    pub(super) fn finish(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It ends within a wait; what it panicked about, if ever, is of no use to the search.
            let _ = thread.join();
        }
    }
}

struct Listener {
    socket: UdpSocket,
    senders: Vec<IpAddr>,
    inlet: Inlet,
    is_over: Arc<AtomicBool>,
}

impl Listener {
    fn run(&mut self) {
        // One byte more than the longest message, so that a longer one shows.
        let mut bytes = [0; MOST_BYTES + 1];
        let mut looked = Instant::now();
        while !self.is_over.load(Ordering::Relaxed) {
            match self.socket.recv_from(&mut bytes) {
                Ok((length, sender)) => self.take(&bytes[..length], sender),
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted => {}
                    // An interface that is down may come back.
                    _ => thread::sleep(WAIT),
                },
            }
            if looked.elapsed() >= EVERY {
                looked = Instant::now();
                self.look();
            }
        }
        self.look();
    }

    /// Reads how many datagrams the kernel has dropped.
    fn look(&self) {
        let Ok(inode) = fstat(&self.socket).map(|status| status.st_ino.to_string()) else { return };
        for table in ["/proc/net/udp", "/proc/net/udp6"] {
            let text = std::fs::read_to_string(table).unwrap_or_default();
            for line in text.lines() {
                let columns: Vec<&str> = line.split_whitespace().collect();
                if columns.get(9) == Some(&inode.as_str())
                    && let Some(dropped) = columns.last().and_then(|column| column.parse().ok())
                {
                    self.inlet.counters.dropped.store(dropped, Ordering::Relaxed);
                }
            }
        }
    }

    fn take(&mut self, bytes: &[u8], sender: SocketAddr) {
        let host = sender.ip().to_canonical();
        if self.is_allowed(host) {
            // Each fate has a counter.
            self.inlet.take(bytes, Origin::Udp(sender), host);
        } else {
            Counters::count(&self.inlet.counters.received);
            Counters::count(&self.inlet.counters.foreign);
        }
    }

    fn is_allowed(&self, host: IpAddr) -> bool {
        if self.senders.is_empty() { host.is_loopback() } else { self.senders.contains(&host) }
    }
}

/// Returns whether an address is open to other machines.
pub(super) fn is_open(address: &SocketAddr) -> bool {
    !address.ip().to_canonical().is_loopback()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_of_this_machine_unless_they_say_another() {
        let own = address("--triggers", "udp://:65432").unwrap();
        assert_eq!((own.to_string().as_str(), is_open(&own)), ("127.0.0.1:65432", false));
        assert!(is_open(&address("--triggers", "udp://0.0.0.0:65432").unwrap()));
        assert!(!is_open(&address("--triggers", "udp://[::1]:65432").unwrap()));
        for text in ["", ":65432", "tcp://:1", "udp://", "udp://:", "udp://:0", "udp://:70000"] {
            assert!(address("--triggers", text).is_err(), "{text}");
        }
    }
}
