//! Inputs that arrive: pipes, and addresses of live streams. A request to stop ends every wait for them.

use std::fs::File;
use std::io::{self, Read};
#[cfg(unix)]
use std::os::fd::AsFd;
#[cfg(windows)]
use std::os::windows::io::AsHandle;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

#[cfg(unix)]
use rustix::event::{PollFd, PollFlags, Timespec, poll};
#[cfg(unix)]
use rustix::io::Errno;
#[cfg(target_os = "linux")]
use rustix::pipe::{fcntl_getpipe_size, fcntl_setpipe_size};
use sidereal::error::Stopped;
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
use sidereal::io::voltages::VoltageHeader;
use sidereal::io::voltages::{VoltageOptions, VoltageSource, dada};
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
use sidereal::io::{FilterbankHeader, with_threads};
use sidereal::io::{FilterbankSource, OpenOptions, is_address, is_description, open_with};
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
use sidereal::live::capture::Statistics;
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
use sidereal::live::header::Content;
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
use sidereal::live::joined::JoinedVoltages;
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
use sidereal::live::source::{Behind, Live, LiveSpectra, LiveVoltages, Observation};
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
use sidereal::live::target::Target;
use sidereal::units::Epoch;
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
use sidereal::voltage::VoltageBlock;
use sidereal::{Error, Result};

#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
use crate::common::parse_size;
use crate::interrupt;
use crate::say::warning;
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
use crate::site;
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
use crate::space::human;

/// Bytes of a socket's buffer.
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
const SOCKET_BYTES: usize = 64 << 20;

/// Time between two checks for a request to stop.
#[cfg(unix)]
const POLL_STEP: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// Length of a file of a live observation.
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Roll {
    Seconds(f64),
    Bytes(u64),
}

#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
impl Roll {
    /// Parses seconds, or a size with a unit.
    pub(crate) fn parse(text: &str) -> std::result::Result<Self, String> {
        let rule = "it must be seconds (600), or a size with K, M, G or T (4G)";
        match text.trim().parse::<f64>() {
            Ok(seconds) if (0.0..1e12).contains(&seconds) => Ok(Self::Seconds(seconds)),
            Ok(_) => Err(rule.to_owned()),
            Err(_) => parse_size(text).map(Self::Bytes).map_err(|_| rule.to_owned()),
        }
    }

    /// Returns the samples of a file, at least one, of samples of `tsamp_s` seconds and `bytes` bytes; `None` for 0 s, which
    /// sets no limit.
    pub(crate) fn samples(self, tsamp_s: f64, bytes: f64) -> Option<u64> {
        match self {
            Self::Seconds(0.0) => None,
            Self::Seconds(seconds) => Some((seconds / tsamp_s).round().max(1.0) as u64),
            Self::Bytes(size) => Some((size as f64 / bytes.max(1e-3)).floor().max(1.0) as u64),
        }
    }
}

#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
impl std::fmt::Display for Roll {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Seconds(seconds) => write!(f, "{seconds}"),
            Self::Bytes(bytes) => f.write_str(&human(*bytes)),
        }
    }
}

/// Opens files as one observation; reads of standard input, FIFOs and devices end at a request to stop.
///
/// # Errors
/// As [`open_with`]; a read that a request to stop ended has [`sidereal::Error::is_stop`].
pub(crate) fn open(paths: &[PathBuf], options: &OpenOptions) -> Result<Box<dyn FilterbankSource>> {
    #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
    if let [path] = paths
        && is_address(path)
    {
        return open_address(path);
    }
    check_system(paths)?;
    if let Some(address) = paths.iter().find(|path| is_address(path)) {
        let rule = "a live stream is not joined with other inputs";
        return Err(Error::parameter("INPUT", address.display(), rule));
    }
    let stream = |path: &Path| -> io::Result<Box<dyn Read + Send>> {
        let file = if path.as_os_str() == "-" { standard_input()? } else { File::open(path)? };
        Ok(Box::new(Pipe::new(file)))
    };
    open_with(paths, options, &stream)
}

/// Returns standard input as a file.
#[cfg(unix)]
fn standard_input() -> io::Result<File> {
    Ok(File::from(io::stdin().as_fd().try_clone_to_owned()?))
}

#[cfg(windows)]
fn standard_input() -> io::Result<File> {
    Ok(File::from(io::stdin().as_handle().try_clone_to_owned()?))
}

/// Bytes that a pipe is asked to hold: with Linux's 64 KiB, writer and reader wait for each other more often, and 1 MiB
/// leaves the cache and is slower.
#[cfg(target_os = "linux")]
const PIPE_BYTES: usize = 256 << 10;

/// Open pipe, terminal or device.
struct Pipe(File);

impl Pipe {
    fn new(file: File) -> Self {
        // A terminal or device has no such size, and a user's pipes may have reached their limit.
        #[cfg(target_os = "linux")]
        if fcntl_getpipe_size(&file).is_ok_and(|bytes| bytes < PIPE_BYTES) {
            let _ = fcntl_setpipe_size(&file, PIPE_BYTES);
        }
        Self(file)
    }
}

#[cfg(unix)]
impl Read for Pipe {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        loop {
            if interrupt::requested() {
                return Err(io::Error::other(Stopped));
            }
            let mut waited = [PollFd::new(&self.0, PollFlags::IN)];
            match poll(&mut waited, Some(&POLL_STEP)) {
                Ok(0) | Err(Errno::INTR) => {}
                // End of file and errors are results of a read.
                Ok(_) => return self.0.read(bytes),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Reads without a time limit: a request to stop is heard when bytes arrive.
#[cfg(not(unix))]
impl Read for Pipe {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        if interrupt::requested() {
            return Err(io::Error::other(Stopped));
        }
        self.0.read(bytes)
    }
}

/// Addresses that are open between observations.
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
static OPEN: Mutex<Vec<Open>> = Mutex::new(Vec::new());

#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
struct Open {
    path: PathBuf,
    live: Live,
    /// Difference between packets and the system's clock that is reported, in seconds.
    clock_alarm_s: f64,
    /// Time of a sample of the current or last observation in seconds.
    tsamp_s: f64,
}

#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
impl Open {
    fn new(path: &Path, options: &VoltageOptions) -> Result<Self> {
        let (live, clock_alarm_s) = if is_description(path) {
            if *options != VoltageOptions::default() {
                let rule = "the file that describes the stream has frequencies, rate, sideband and polarizations";
                return Err(Error::parameter("options of voltages", path.display(), rule));
            }
            let input = site::read(path)?;
            let live = Live::described(path, &input.sockets, &input.description)?;
            (live, input.clock_alarm_s)
        } else {
            let target: Target = path.to_str().unwrap_or_default().parse()?;
            (Live::open(&target, options, SOCKET_BYTES)?, f64::INFINITY)
        };
        #[cfg(feature = "page")]
        COUNTED.lock().unwrap_or_else(PoisonError::into_inner).push(Counted {
            path: path.to_path_buf(),
            statistics: live.shared_statistics(),
            live: live.clone(),
            observed: None,
        });
        if let Some(advice) = live.advice() {
            warning!(quiet: false, "{advice}.");
        }
        Ok(Self { path: path.to_path_buf(), live, clock_alarm_s, tsamp_s: 0.0 })
    }
}

/// Watcher of the time of packets.
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
struct Watch {
    statistics: Option<Arc<Mutex<Statistics>>>,
    alarm_s: f64,
    /// Time of the next look.
    due: Instant,
}

#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
impl Watch {
    /// Warns once if the time of packets differs from that of the system by more than the limit.
    fn look(&mut self) {
        let now = Instant::now();
        let Some(statistics) = self.statistics.as_ref().filter(|_| now >= self.due) else { return };
        self.due = now + Duration::from_secs(1);
        let clock = statistics.lock().unwrap_or_else(PoisonError::into_inner).clock;
        let Some(ahead_s) = clock.map(|clock| clock.last_ns as f64 * 1e-9) else { return };
        if ahead_s.abs() > self.alarm_s {
            let order = if ahead_s > 0.0 { "after" } else { "before" };
            warning!(
                quiet: false,
                "the time of the packets is {:.3} s {order} that of this machine, more than clock_alarm_s ({} s).",
                ahead_s.abs(), self.alarm_s
            );
            self.statistics = None;
        }
    }
}

/// Stream of which a part was read before.
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rest {
    /// The rest is no observation.
    Skip,
    /// The rest is an observation.
    Read,
}

/// Waits for the next observation of an address, which stays open until the program ends.
///
/// # Errors
/// Those of [`Live::open`] and [`Live::next`].
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
fn observe(path: &Path, options: &VoltageOptions, rest: Rest) -> Result<Observation> {
    listen(std::slice::from_ref(&path.to_path_buf()), options)?;
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(open) = open.iter_mut().find(|open| open.path == path) else {
        return Err(Error::stopped(path));
    };
    let (statistics, due) = (open.live.shared_statistics(), Instant::now());
    #[cfg(feature = "page")]
    set_observed(path, None);
    let mut watch = Watch { statistics, alarm_s: open.clock_alarm_s, due };
    let goes_on = Box::new(move || {
        watch.look();
        !interrupt::requested()
    });
    let observation = match rest {
        Rest::Skip => open.live.next(goes_on)?,
        Rest::Read => open.live.resume(goes_on)?,
    };
    open.tsamp_s = match &observation {
        Observation::Spectra(spectra) => spectra.header().tsamp_s,
        Observation::Voltages(voltages) => voltages.header().tsamp_s,
    };
    #[cfg(feature = "page")]
    set_observed(path, Some(Observed::new(&observation)));
    Ok(observation)
}

#[cfg(all(target_os = "linux", target_pointer_width = "64", feature = "page"))]
/// Addresses that are open, for watchers: [`OPEN`] is locked while an observation is waited for.
static COUNTED: Mutex<Vec<Counted>> = Mutex::new(Vec::new());

/// Open address as a watcher sees it.
#[cfg(all(target_os = "linux", target_pointer_width = "64", feature = "page"))]
#[derive(Clone, Debug)]
pub(crate) struct Counted {
    pub(crate) path: PathBuf,
    pub(crate) live: Live,
    /// Counters of packets; `None` for a ring.
    pub(crate) statistics: Option<Arc<Mutex<Statistics>>>,
    /// The current or last observation; `None` while one is waited for.
    pub(crate) observed: Option<Observed>,
}

/// Header of an observation as a watcher sees it.
#[cfg(all(target_os = "linux", target_pointer_width = "64", feature = "page"))]
#[derive(Clone, Debug)]
pub(crate) struct Observed {
    pub(crate) is_voltages: bool,
    pub(crate) source_name: String,
    pub(crate) telescope: String,
    pub(crate) channels: usize,
    pub(crate) antennas: usize,
    pub(crate) polarizations: usize,
    /// Edges of the band, of voltages the outermost centres; 0 if unknown.
    pub(crate) lowest_hz: f64,
    pub(crate) highest_hz: f64,
    pub(crate) tsamp_s: f64,
    /// Start, MJD (UTC); 0 if it is unknown.
    pub(crate) start_mjd: f64,
}

#[cfg(all(target_os = "linux", target_pointer_width = "64", feature = "page"))]
impl Observed {
    fn new(observation: &Observation) -> Self {
        match observation {
            Observation::Spectra(spectra) => {
                let header = spectra.header();
                Self {
                    is_voltages: false,
                    source_name: header.source_name.clone(),
                    telescope: header.telescope.clone(),
                    channels: header.channels(),
                    antennas: 1,
                    polarizations: header.recorded_polarizations,
                    lowest_hz: header.band.lowest_hz(),
                    highest_hz: header.band.highest_hz(),
                    tsamp_s: header.tsamp_s,
                    start_mjd: header.tstart_mjd,
                }
            }
            Observation::Voltages(voltages) => {
                let header = voltages.header();
                let edge = |sign: f64| {
                    let ends = header.centres_hz.iter().map(|hz| sign * hz);
                    ends.reduce(f64::max).map_or(0.0, |most| sign * most)
                };
                Self {
                    is_voltages: true,
                    source_name: header.source_name.clone(),
                    telescope: header.telescope.clone(),
                    channels: header.centres_hz.len(),
                    antennas: header.antennas,
                    polarizations: header.polarizations,
                    lowest_hz: edge(-1.0),
                    highest_hz: edge(1.0),
                    tsamp_s: header.tsamp_s,
                    start_mjd: if header.start.day == 0 { 0.0 } else { header.start.mjd() },
                }
            }
        }
    }
}

#[cfg(all(target_os = "linux", target_pointer_width = "64", feature = "page"))]
fn set_observed(path: &Path, observed: Option<Observed>) {
    let mut counted = COUNTED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(counted) = counted.iter_mut().find(|counted| counted.path == path) {
        counted.observed = observed;
    }
}

/// Returns the open addresses.
#[cfg(all(target_os = "linux", target_pointer_width = "64", feature = "page"))]
pub(crate) fn counted() -> Vec<Counted> {
    COUNTED.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Opens addresses, so that their packets are received from now on.
///
/// # Errors
/// Those of [`Live::open`].
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
pub(crate) fn listen(paths: &[PathBuf], options: &VoltageOptions) -> Result<()> {
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    for path in paths {
        if open.iter().all(|open| open.path != *path) {
            open.push(Open::new(path, options)?);
        }
    }
    Ok(())
}

/// Returns what was dropped of the current or last observation, summed over all addresses, and the time of a sample in seconds.
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
pub(crate) fn behind() -> (Behind, f64) {
    let open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    let (mut sum, mut tsamp_s) = (Behind::default(), 0.0);
    for open in open.iter() {
        let own = open.live.behind();
        sum.stretches += own.stretches;
        sum.blocks += own.blocks;
        sum.times += own.times;
        (sum.last, sum.slowest) = (own.last.or(sum.last), own.slowest.or(sum.slowest));
        tsamp_s = open.tsamp_s;
    }
    (sum, tsamp_s)
}

/// Opens the next observation of an address as a source of spectra.
///
/// # Errors
/// [`Error::Format`] for a stream of voltages; those of [`Live::open`] and [`Live::next`].
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
fn open_address(path: &Path) -> Result<Box<dyn FilterbankSource>> {
    match observe(path, &VoltageOptions::default(), Rest::Skip)? {
        Observation::Spectra(spectra) => Ok(Box::new(spectra)),
        Observation::Voltages(_) => {
            let why = "found voltages, expected spectra: `sidereal live` channelizes, searches, correlates and records voltages";
            Err(Error::format(path, "STATE", 0, why))
        }
    }
}

/// Observation that arrives.
pub(crate) enum Arriving {
    Spectra(Box<dyn FilterbankSource>),
    Voltages(Box<dyn VoltageSource>),
}

/// Waits for the next observation if the inputs are live streams; `None` for files.
///
/// # Errors
/// Those of [`observation`].
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
pub(crate) fn arriving(paths: &[PathBuf], options: &VoltageOptions) -> Result<Option<Arriving>> {
    if paths.is_empty() || !paths.iter().all(|path| is_address(path)) {
        return Ok(None);
    }
    Ok(Some(match observation(paths, options)? {
        Received::Spectra(spectra) => Arriving::Spectra(spectra),
        Received::Voltages(voltages) => Arriving::Voltages(voltages),
    }))
}

/// Returns the header, without its start, of streams of voltages that files describe; `None` if one is known from its first packets only.
///
/// # Errors
/// As [`described_each`]; those of [`JoinedVoltages::header_of`].
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
pub(crate) fn described(paths: &[PathBuf]) -> Result<Option<VoltageHeader>> {
    let Some(headers) = described_each(paths)? else { return Ok(None) };
    JoinedVoltages::header_of(&headers.iter().collect::<Vec<_>>()).map(Some)
}

/// Returns the header, without its start, of each stream of voltages, if files describe all of them.
///
/// # Errors
/// Those of the files; [`Error::Format`] for a stream of spectra.
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
pub(crate) fn described_each(paths: &[PathBuf]) -> Result<Option<Vec<VoltageHeader>>> {
    if !paths.iter().all(|path| is_description(path)) {
        return Ok(None);
    }
    let header = |path: &PathBuf| match site::read(path)?.description.content() {
        Content::Voltages(header) => Ok(header.clone()),
        Content::Spectra(_) => Err(spectra(path)),
    };
    paths.iter().map(header).collect::<Result<Vec<_>>>().map(Some)
}

/// Returns the header, without its start, of a stream of spectra that a file describes; `None` for voltages, several addresses, or an
/// address that no file describes.
///
/// # Errors
/// Those of the file.
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
pub(crate) fn described_spectra(paths: &[PathBuf]) -> Result<Option<FilterbankHeader>> {
    match paths {
        [path] if is_description(path) => match site::read(path)?.description.content() {
            Content::Voltages(_) => Ok(None),
            Content::Spectra(header) => Ok(Some(header.clone())),
        },
        _ => Ok(None),
    }
}

/// Placeholder for a stream that has not begun. Stages that are built for its header compile their kernels before the stream arrives.
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
pub(crate) struct Expected<Header> {
    pub(crate) header: Header,
}

#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
impl VoltageSource for Expected<VoltageHeader> {
    fn header(&self) -> &VoltageHeader {
        &self.header
    }

    fn read(&mut self, _: &mut VoltageBlock) -> Result<usize> {
        Ok(0)
    }

    fn is_live(&self) -> bool {
        true
    }
}

#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
impl FilterbankSource for Expected<FilterbankHeader> {
    fn header(&self) -> &FilterbankHeader {
        &self.header
    }

    fn read(&mut self, _: &mut [u8]) -> Result<usize> {
        Ok(0)
    }

    fn skip(&mut self, _: u64) -> Result<u64> {
        Ok(0)
    }

    fn is_live(&self) -> bool {
        true
    }
}

/// Observation of an address, or of several whose streams are parts of one recording.
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
pub(crate) enum Received {
    Spectra(Box<LiveSpectra>),
    Voltages(Box<JoinedVoltages>),
}

/// Checks addresses of streams that are parts of one recording; `name` is the argument that errors name.
///
/// # Errors
/// [`Error::Parameter`] for one that is no address, or that is given twice.
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
pub(crate) fn check(paths: &[PathBuf], name: &'static str) -> Result<()> {
    if let Some(path) = paths.iter().find(|path| !is_address(path)) {
        let rule = "expected the address of a stream: spead://HOST:PORT, vdif://HOST:PORT, dada:KEY, or a file that ends with .toml";
        return Err(Error::parameter(name, path.display(), rule));
    }
    let twice = (1..paths.len()).find(|index| paths[..*index].contains(&paths[*index]));
    match twice {
        None => Ok(()),
        Some(index) => {
            let rule = "it is given twice, and a stream has one reader";
            Err(Error::parameter(name, paths[index].display(), rule))
        }
    }
}

/// Waits for the next observation of an address, or of several whose streams are the bands or the polarizations of one recording.
///
/// # Errors
/// [`Error::Format`] for several streams of which one has spectra; those of [`Live::open`], [`Live::next`] and
/// [`JoinedVoltages::open`].
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
pub(crate) fn observation(paths: &[PathBuf], options: &VoltageOptions) -> Result<Received> {
    if let [path] = paths {
        return Ok(match observe(path, options, Rest::Skip)? {
            Observation::Spectra(spectra) => Received::Spectra(Box::new(spectra)),
            Observation::Voltages(voltages) => Received::Voltages(Box::new(voltages.into())),
        });
    }
    listen(paths, options)?;
    let part = |path: &Path| match observe(path, options, Rest::Read)? {
        Observation::Voltages(voltages) => Ok(voltages),
        Observation::Spectra(_) => {
            let why = "found spectra, expected voltages: several addresses are the bands or the polarizations of one recording of \
                       voltages";
            Err(Error::format(path, "STATE", 0, why))
        }
    };
    // A stream that goes on gives its latest samples, so those that begin anew come first.
    let mut order: Vec<usize> = (0..paths.len()).collect();
    order.sort_by_key(|number| is_going(&paths[*number]));
    let mut first: Vec<Option<LiveVoltages>> = paths.iter().map(|_| None).collect();
    for number in order {
        // They are sorted on threads that all share.
        first[number] = Some(with_threads(1, || part(&paths[number]))?);
    }
    let mut next = |number: usize| first[number].take().map_or_else(|| part(&paths[number]), Ok);
    let joined = JoinedVoltages::open(paths.len(), &mut next)?;
    Ok(Received::Voltages(Box::new(joined)))
}

/// Returns whether the last observation of an address was left before its stream had ended.
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
fn is_going(path: &Path) -> bool {
    let open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    open.iter().any(|open| open.path == path && open.live.is_going())
}

/// Waits for the next observation of addresses, whose contents must be voltages.
///
/// # Errors
/// [`Error::Format`] for a stream of spectra; those of [`observation`].
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
pub(crate) fn joined(paths: &[PathBuf], options: &VoltageOptions) -> Result<Box<JoinedVoltages>> {
    match observation(paths, options)? {
        Received::Voltages(voltages) => Ok(voltages),
        Received::Spectra(_) => Err(spectra(&paths[0])),
    }
}

/// Waits for the next observation of an address, whose contents must be voltages.
///
/// # Errors
/// [`Error::Format`] for a stream of spectra; those of [`Live::open`] and [`Live::next`].
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
pub(crate) fn voltages(path: &Path, options: &VoltageOptions) -> Result<LiveVoltages> {
    match observe(path, options, Rest::Skip)? {
        Observation::Voltages(voltages) => Ok(voltages),
        Observation::Spectra(_) => Err(spectra(path)),
    }
}

/// Returns the error of a stream of spectra for a verb of voltages.
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
fn spectra(path: &Path) -> Error {
    let why =
        "found spectra, expected voltages: `sidereal live search` and `live record` take spectra";
    Error::format(path, "STATE", 0, why)
}

/// Returns `None`: other systems have no live streams.
///
/// # Errors
/// [`Error::Unavailable`] for an address.
#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
pub(crate) fn arriving(paths: &[PathBuf], _: &VoltageOptions) -> Result<Option<Arriving>> {
    check_system(paths).map(|()| None)
}

/// Fails for an address on a system without live streams.
fn check_system(paths: &[PathBuf]) -> Result<()> {
    let is_linux = cfg!(all(target_os = "linux", target_pointer_width = "64"));
    match paths.iter().find(|path| is_address(path)) {
        Some(path) if !is_linux => Err(Error::Unavailable {
            what: path.display().to_string(),
            why: "live streams and rings need 64-bit Linux".to_owned(),
        }),
        _ => Ok(()),
    }
}

/// Returns a name for what begins at a time: `2026-01-31-12-30-05`.
pub(crate) fn name_of(start: Epoch) -> String {
    if start.day == 0 {
        return "observation".into();
    }
    let utc = dada::format_start(&start).0;
    let seconds = utc.split('.').next().unwrap_or_default();
    seconds.replace(':', "-")
}

/// Returns a path in `folder` that does not exist: `NAME.ending`, or `NAME_2.ending` and so on.
pub(crate) fn free_name(folder: &Path, name: &str, ending: &str) -> PathBuf {
    let numbered = |number: u64| match number {
        1 => folder.join(format!("{name}{ending}")),
        _ => folder.join(format!("{name}_{number}{ending}")),
    };
    (1..).map(numbered).find(|path| path.symlink_metadata().is_err()).unwrap_or_else(|| numbered(1))
}

#[cfg(all(test, target_os = "linux", target_pointer_width = "64"))]
mod tests {
    use super::*;

    #[test]
    fn files_roll_by_seconds_or_by_size() {
        let samples = |text: &str| Roll::parse(text).map(|roll| roll.samples(0.5, 3.0));
        assert_eq!(samples("0"), Ok(None));
        assert_eq!(samples("600"), Ok(Some(1200)));
        assert_eq!(samples("0.1"), Ok(Some(1)));
        assert_eq!(samples("3K"), Ok(Some(1024)));
        assert_eq!(samples("2B"), Ok(Some(1)));
        for text in ["-1", "nan", "inf", "4X", "", "0M"] {
            assert!(samples(text).is_err(), "{text}");
        }
        assert_eq!(Roll::parse("1.5GiB").unwrap().to_string(), "1.5 GiB");
    }
}
