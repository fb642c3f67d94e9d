//! Candidates as Heimdall sends them to a coincidencer (`--coincidencer`), such as the T2 programs of DSA-110 and GReX.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::net::{Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use sidereal::io::candidates::Record;
use sidereal::{Error, Result};
use tracing::Level;

use super::udp::resolve;
use super::worker::{Fates, Worker};
use crate::say::{self, warning};

/// Most gulps that wait to be sent.
const WAITING: usize = 64;

/// Longest wait for a connection, and for each write.
const PATIENCE: Duration = Duration::from_secs(2);

/// First and longest pause after a failure.
const PAUSES: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(30)];

/// Most bytes of lines in a datagram.
const MOST_BYTES: usize = 32_768;

/// Byte that ends the datagrams of GReX's fork.
const END: u8 = 3;

/// Way to the other program.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Transport {
    /// A connection for each gulp: its number on a line, then its candidates.
    Tcp,
    /// Datagrams of lines.
    Udp,
}

/// Other program.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Coincidencer {
    transport: Transport,
    address: SocketAddr,
}

impl Coincidencer {
    /// Parses `HOST:PORT`, `tcp://HOST:PORT` or `udp://HOST:PORT`.
    ///
    /// # Errors
    /// [`Error::Parameter`].
    pub(super) fn new(text: &str) -> Result<Self> {
        let (transport, place) = match text.split_once("://") {
            None => (Transport::Tcp, text),
            Some(("tcp", place)) => (Transport::Tcp, place),
            Some(("udp", place)) => (Transport::Udp, place),
            Some(_) => {
                let rule = "expected HOST:PORT, tcp://HOST:PORT or udp://HOST:PORT";
                return Err(Error::parameter("--coincidencer", text, rule));
            }
        };
        Ok(Self { transport, address: resolve("--coincidencer", text, place)? })
    }

    /// Starts the thread that sends.
    ///
    /// # Errors
    /// As [`Worker::start`].
    pub(super) fn start(self) -> Result<Worker<Gulp>> {
        let mut link = Link { to: self, pause: PAUSES[0], until: None, has_warned: false };
        Worker::start("coincidencer", WAITING, move |gulp, fates: &Fates| link.take(&gulp, fates))
    }
}

/// Candidates of a gulp.
#[derive(Debug)]
pub(super) struct Gulp {
    /// Number of the gulps with candidates so far.
    pub(super) number: u64,
    pub(super) lines: Vec<String>,
}

/// Formats a candidate: S/N, index in the filterbank, sample, seconds, filter, DM trial, DM, beam.
pub(super) fn line(record: &Record, beam: u32) -> String {
    let Record { snr, time_s, dm_trial, dm, .. } = record;
    let (sample, filter) = (record.sample(), record.filter());
    let mut line = String::new();
    // The two numbers of samples are the same, since there is one beam.
    let _ = writeln!(
        line,
        "{snr:.4}\t{sample}\t{sample}\t{time_s:.7}\t{filter}\t{dm_trial}\t{dm:.4}\t{beam}"
    );
    line
}

struct Link {
    to: Coincidencer,
    /// Pause after the next failure.
    pause: Duration,
    /// End of the present pause.
    until: Option<Instant>,
    has_warned: bool,
}

impl Link {
    fn take(&mut self, gulp: &Gulp, fates: &Fates) {
        if self.until.is_some_and(|until| Instant::now() < until) {
            return;
        }
        let sent = match self.to.transport {
            Transport::Tcp => self.connect(gulp),
            Transport::Udp => self.send(gulp),
        };
        match sent {
            Ok(()) => {
                (self.pause, self.until) = (PAUSES[0], None);
                Fates::count(&fates.done);
            }
            Err(error) => {
                Fates::count(&fates.failed);
                let pause = self.pause;
                self.until = Some(Instant::now() + pause);
                self.pause = (2 * pause).min(PAUSES[1]);
                let (to, pause_s) = (self.to.address, pause.as_secs_f64());
                let words = format!("--coincidencer {to}: {error}; the next try is in {pause_s} s");
                if std::mem::replace(&mut self.has_warned, true) {
                    say::log(Level::WARN, &words);
                } else {
                    warning!(quiet: false, "{words}, and further failures are only logged.");
                }
            }
        }
    }

    fn connect(&self, gulp: &Gulp) -> io::Result<()> {
        let mut stream = TcpStream::connect_timeout(&self.to.address, PATIENCE)?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let text = format!("{}\n{}", gulp.number, gulp.lines.concat());
        stream.write_all(text.as_bytes())?;
        // The reader takes the end of the stream for the end of the gulp.
        stream.shutdown(Shutdown::Write)
    }

    fn send(&self, gulp: &Gulp) -> io::Result<()> {
        let own: SocketAddr = match self.to.address {
            SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
            SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
        };
        let socket = UdpSocket::bind(own)?;
        let mut lines = gulp.lines.iter().peekable();
        let mut bytes = Vec::new();
        while let Some(line) = lines.next() {
            bytes.extend(line.as_bytes());
            let next = lines.peek().map(|next| next.len());
            if next.is_none_or(|next| bytes.len() + next > MOST_BYTES) {
                bytes.push(END);
                socket.send_to(&bytes, self.to.address)?;
                bytes.clear();
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::TcpListener;

    use rustix::net::{self, AddressFamily, SocketType};

    use super::*;

    fn record() -> Record {
        Record {
            snr: 12.5,
            time_s: 2.5,
            width_s: 0.008,
            dm: 350.5,
            dm_trial: 70,
            members: 3,
            begin_s: 2.4,
            end_s: 2.6,
            tsamp_s: 0.001,
            mjd: None,
            barycentric_mjd: None,
            band_fraction: 1.0,
        }
    }

    fn gulp(number: u64, count: usize) -> Gulp {
        Gulp { number, lines: vec![line(&record(), 2); count] }
    }

    #[test]
    fn lines_are_read_as_triggers() {
        let text = line(&record(), 2);
        assert_eq!(text, "12.5000\t2500\t2500\t2.5000000\t3\t70\t350.5000\t2\n");
        let read = sidereal::live::trigger::parse(text.as_bytes()).unwrap();
        assert_eq!((read.snr, read.dm), (Some(12.5), Some(350.5)));
    }

    #[test]
    fn each_gulp_is_a_connection_and_failures_make_pauses() {
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = server.local_addr().unwrap();
        let to = Coincidencer::new(&address.to_string()).unwrap();
        let mut link = Link { to, pause: Duration::ZERO, until: None, has_warned: true };
        let fates = Fates::default();
        for number in 1..3 {
            link.take(&gulp(number, 2), &fates);
            let mut text = String::new();
            server.accept().unwrap().0.read_to_string(&mut text).unwrap();
            assert_eq!(text.lines().next(), Some(number.to_string().as_str()));
            assert_eq!(text.lines().count(), 3);
        }
        // Bound but not listening: it refuses connections, and no other process gets its port.
        let closed = net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        net::bind(&closed, &SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
        link.to.address = net::getsockname(&closed).unwrap().try_into().unwrap();
        // The second one falls into the pause.
        link.take(&gulp(3, 1), &fates);
        link.take(&gulp(4, 1), &fates);
        assert_eq!(fates.counts()[..2], [2, 1]);
    }

    #[test]
    fn datagrams_end_with_a_byte_of_their_own_and_have_whole_lines() {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        server.set_read_timeout(Some(PATIENCE)).unwrap();
        let text = format!("udp://{}", server.local_addr().unwrap());
        let to = Coincidencer::new(&text).unwrap();
        let mut link = Link { to, pause: PAUSES[0], until: None, has_warned: true };
        link.take(&gulp(1, 1000), &Fates::default());
        let (mut lines, mut bytes) = (0, vec![0; 65_536]);
        while lines < 1000 {
            let length = server.recv(&mut bytes).unwrap();
            assert_eq!((bytes[length - 2], bytes[length - 1]), (b'\n', END));
            lines += bytes[..length].iter().filter(|byte| **byte == b'\n').count();
        }
        assert_eq!(lines, 1000);
        for text in ["x", "http://a:1", "127.0.0.1", "127.0.0.1:0"] {
            assert!(Coincidencer::new(text).is_err(), "{text}");
        }
    }
}
