//! Recordings sent through the loopback interface to `sidereal live search`, for the benchmarks of live searches.

use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::path::Path;
use std::process::Child;
use std::thread;
use std::time::{Duration, Instant};

use sidereal::io::Polarizations;
use sidereal::io::sigproc;
use sidereal::live::send::{Monitor, Options as SendOptions, Recording, send_packets};
use sidereal::live::socket::Sender;
use sidereal::{Error, Result};

use crate::runner::Session;

/// Sender of a recording of spectra.
pub(crate) struct Sending<'a> {
    pub(crate) path: &'a Path,
    /// Times that it is sent.
    pub(crate) repeats: u64,
    /// Multiple of real time.
    pub(crate) rate: f64,
    pub(crate) port: u16,
    pub(crate) session: &'a Session<'a>,
}

impl Monitor for &Sending<'_> {
    fn stops(&mut self) -> bool {
        self.session.caller.check_interrupt().is_err()
    }
}

impl Sending<'_> {
    /// Sends the recording; returns the time at which each packet of samples was sent.
    ///
    /// # Errors
    /// Those of the recording and of the socket; as the user asks to stop.
    pub(crate) fn run(&self) -> Result<Vec<Instant>> {
        let open = || {
            let reader = sigproc::open(self.path, Polarizations::Total)?;
            Ok(Recording::Spectra(Box::new(reader)))
        };
        let mut options = SendOptions::default();
        (options.repeats, options.rate) = (self.repeats, Some(self.rate));
        let address = SocketAddrV4::new(Ipv4Addr::LOCALHOST, self.port);
        let mut socket = Sender::new(address, None)?;
        let mut times = Vec::new();
        let least = options.packet_bytes / 2;
        let mut send = |packets: &[&[u8]]| {
            socket.send(packets)?;
            let now = Instant::now();
            let samples = packets.iter().filter(|packet| packet.len() > least).count();
            times.extend(std::iter::repeat_n(now, samples));
            Ok(())
        };
        let mut monitor = self;
        send_packets(open()?, &mut || open(), &options, &mut send, &mut monitor)?;
        self.session.caller.check_interrupt()?;
        Ok(times)
    }
}

/// Returns a port that no program uses.
///
/// # Errors
/// [`Error::Io`].
pub(crate) fn free_port() -> Result<u16> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0));
    let address = socket.and_then(|socket| socket.local_addr());
    address.map(|address| address.port()).map_err(|error| Error::io("UDP port", error))
}

/// Waits until `live search` has opened the port.
///
/// # Errors
/// [`Error::Unavailable`] when it ends before, or after a minute.
pub(crate) fn await_port(port: u16, search: &mut Child) -> Result<()> {
    let wanted = format!("0100007F:{port:04X} ");
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(60) {
        let open = std::fs::read_to_string("/proc/net/udp").unwrap_or_default();
        if open.contains(&wanted) {
            return Ok(());
        }
        let ended = search.try_wait().map_err(|error| Error::io("sidereal live search", error))?;
        if let Some(status) = ended {
            return Err(failed(format!("it ended with {status}")));
        }
        thread::sleep(Duration::from_millis(20));
    }
    Err(failed("it has not opened its port within a minute".into()))
}

/// Returns the error of a `live search` that failed.
pub(crate) fn failed(why: String) -> Error {
    Error::Unavailable { what: "sidereal live search".into(), why }
}
