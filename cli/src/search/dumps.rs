//! Dumps of a live search: triggers write the voltages of bursts to files while the search goes on.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Args;
use sidereal::backend::threads::Threads;
use sidereal::io::voltages::{Sweep, VoltageHeader};
use sidereal::live::trigger::Trigger;
use sidereal::pipeline::burst::SearchOptions;
use sidereal::pipeline::dump::{self, Dumps, Memory, Report, Request, RingSize, State, Tap};
use sidereal::pipeline::voltage::VoltageFormat;
use sidereal::units::{Epoch, HZ_PER_MHZ, dispersion_delay_s};
use sidereal::{Error, Result};
use tracing::Level;

use super::line::{DUMPS, DumpLine, DumpState, Lost, Window};
use crate::common::{Common, parse_size};
use crate::provenance::{Product, Provenance, Run};
use crate::say::{self, note, warning};
use crate::space::{available_memory, human};
use crate::streams::name_of;
use crate::voltage_arguments::format_names;
use crate::watch::{Session, Watcher};
use crate::{interrupt, json};

/// Folder of dumps, in the folder of all observations.
const FOLDER: &str = "dumps";

/// Seconds from the last packet of a burst to its provisional line, beside the mitigation's blocks and the wait for longer delays.
const LATENCY_S: f64 = 1.0;

/// Part of the ring that dumps may hold while their disk is slow; the other part goes on.
const HELD_PART: f64 = 0.5;

/// Fewest rows of a mitigation's block.
const LEAST_ROWS: f64 = 512.0;

/// Time between two looks at the end.
const STEP: Duration = Duration::from_millis(20);

/// Part of the available memory that a ring may take.
const MEMORY_PART: f64 = 0.8;

/// Bytes of a disk that dumps leave free, and the part of a small disk.
const LEFT_BYTES: u64 = 256 << 20;
const LEFT_PART: u64 = 20;

/// Most threads that copy samples to the ring.
const MOST_THREADS: usize = 8;

/// Options of the dumps of a live search.
#[derive(Args, Clone, Debug)]
#[group(id = "dumps")]
pub(crate) struct Arguments {
    /// Keep the latest voltages in memory, for dumps of bursts: seconds, or auto.
    ///
    /// auto is twice the sweep of the highest trial DM, the margins, and the time until a candidate appears, since dumps hold up to
    /// half of the ring until the disk has them. A ring shorter than once that is refused. Triggers start dumps: those of the
    /// search itself (--trigger-snr), and those of other programs (--triggers).
    #[arg(
        long,
        value_name = "SECONDS",
        value_parser = parse_ring,
        allow_negative_numbers = true,
        help_heading = "Dumps"
    )]
    dump_ring: Option<Ring>,
    /// Seconds dumped before and after a burst, in each recorded channel.
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 0.25,
        allow_negative_numbers = true,
        help_heading = "Dumps"
    )]
    dump_margin: f64,
    /// Format of dumps; VDIF states neither the frequencies nor the window.
    #[arg(
        long,
        value_name = "FORMAT",
        value_parser = format_names(),
        default_value = "dada",
        help_heading = "Dumps"
    )]
    dump_format: VoltageFormat,
    /// Most bytes of all dumps of a run: 500G. Requests beyond it are refused; nothing is deleted.
    #[arg(long, value_name = "SIZE", value_parser = parse_size, help_heading = "Dumps")]
    dump_quota: Option<u64>,
}

/// Observation whose voltages are dumped.
pub(super) struct About<'a> {
    /// Its folder.
    pub(super) observation: &'a Path,
    pub(super) options: &'a SearchOptions,
    /// Time of a row of the search in seconds.
    pub(super) row_s: f64,
    /// Bytes that the dumps of the run may still take.
    pub(super) quota: Option<Arc<AtomicU64>>,
    /// Memory of the rings of the run.
    pub(super) memory: &'a Memory,
}

/// Length of the ring.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Ring {
    Auto,
    Seconds(f64),
}

fn parse_ring(text: &str) -> std::result::Result<Ring, String> {
    match text.trim().parse::<f64>() {
        _ if text.trim() == "auto" => Ok(Ring::Auto),
        Ok(seconds) if seconds > 0.0 && seconds < 1e6 => Ok(Ring::Seconds(seconds)),
        _ => Err("it must be seconds above 0, or auto".to_owned()),
    }
}

impl Arguments {
    /// Checks what needs no stream.
    ///
    /// # Errors
    /// [`Error::Parameter`] for an option out of range, or without a ring.
    pub(crate) fn check(&self) -> Result<()> {
        if !(0.0..=60.0).contains(&self.dump_margin) {
            let rule = "it must be 0 to 60";
            return Err(Error::parameter("--dump-margin", self.dump_margin, rule));
        }
        if let (Some(quota), None) = (self.dump_quota, self.dump_ring) {
            return Err(Error::parameter("--dump-quota", quota, "it needs --dump-ring"));
        }
        Ok(())
    }

    /// Returns whether there are dumps.
    pub(crate) fn is_wanted(&self) -> bool {
        self.dump_ring.is_some()
    }

    /// Returns the bytes that all dumps of a run may take.
    pub(super) fn quota(&self) -> Option<Arc<AtomicU64>> {
        self.dump_quota.map(|quota| Arc::new(AtomicU64::new(quota)))
    }

    /// Makes the memory of the ring before any packet comes, for a stream whose header, without its start, is known beforehand.
    ///
    /// # Errors
    /// As [`Arguments::begin`].
    pub(super) fn prepare(
        &self,
        header: &VoltageHeader,
        about: &About<'_>,
        common: &Common,
    ) -> Result<()> {
        let Some(ring) = self.dump_ring else { return Ok(()) };
        self.check_ring(header, about)?;
        let ring_s = self.ring_s(ring, header, about)?;
        let size = about.memory.prepare(header, ring_s, &threads())?;
        report_size(&size, "before the first packet", common.quiet);
        Ok(())
    }

    /// Checks the ring's length and memory for a stream whose header, without its start, is known beforehand.
    ///
    /// # Errors
    /// [`Error::Parameter`] for a ring that is too short, or larger than the machine's memory.
    pub(super) fn check_ring(&self, header: &VoltageHeader, about: &About<'_>) -> Result<()> {
        let Some(ring) = self.dump_ring else { return Ok(()) };
        check_memory(self.ring_s(ring, header, about)?, header, about.memory)
    }

    /// Returns the length of the ring.
    ///
    /// # Errors
    /// [`Error::Parameter`] if it is shorter than a dump of the highest DM needs.
    fn ring_s(&self, ring: Ring, header: &VoltageHeader, about: &About<'_>) -> Result<f64> {
        let options = about.options;
        let [lowest_hz, highest_hz] = edges(header);
        let highest_dm = options.plan.ranges.last().map_or(0.0, |range| range.dm_max);
        let sweep_s = dispersion_delay_s(highest_dm, lowest_hz, highest_hz, options.dm_constant);
        // Blocks are rounded up to a power of two of rows.
        let block_s = (2.0 * options.mitigation_block_s).max(LEAST_ROWS * about.row_s);
        let blocks_s = options.mitigation.map_or(0.0, |_| 2.0 * block_s);
        let waits_s = options.max_wait_s.min(sweep_s);
        let margins_s = 2.0 * self.dump_margin + options.max_width_s;
        let least_s = sweep_s + blocks_s + waits_s + margins_s + LATENCY_S;
        match ring {
            Ring::Auto => Ok(least_s / HELD_PART),
            Ring::Seconds(seconds) if seconds >= least_s => Ok(seconds),
            Ring::Seconds(seconds) => {
                let rule = format!(
                    "it must be {least_s:.2} s at least: the sweep of DM {highest_dm:.0} is {sweep_s:.2} s, the rest margins and the \
                     time until a candidate appears"
                );
                Err(Error::parameter("--dump-ring", seconds, rule))
            }
        }
    }

    /// Makes the ring of an observation; `tap` is that of its voltages. Dumps are listed in the folder of all observations. `None` if no dumps are wanted.
    ///
    /// # Errors
    /// [`Error::Parameter`] for a stream of spectra, or a ring that is too short; those of [`Tap::begin`]; [`Error::Io`].
    pub(super) fn begin(
        &self,
        tap: Option<Tap>,
        about: &About<'_>,
        session: &Session,
        common: &Common,
    ) -> Result<Option<Dumping>> {
        let Some(ring) = self.dump_ring else { return Ok(None) };
        let Some(tap) = tap else {
            let rule = "the stream has spectra, and dumps are of voltages";
            return Err(Error::parameter("--dump-ring", "given", rule));
        };
        let header = tap.header().clone();
        if header.start.day == 0 {
            let rule = "the start of the stream is unknown, and triggers are placed by their times";
            return Err(Error::parameter("--dump-ring", "given", rule));
        }
        let ring_s = self.ring_s(ring, &header, about)?;
        let parent = about.observation.parent().unwrap_or(Path::new(""));
        check_memory(ring_s, &header, about.memory)?;
        let folder = parent.join(FOLDER);
        fs::create_dir_all(&folder).map_err(|error| Error::io(&folder, error))?;
        let path = parent.join(DUMPS);
        let file = OpenOptions::new().create(true).append(true).open(&path);
        let file = file.map_err(|error| Error::io(&path, error))?;
        let (written, files) = channel();
        let list = List {
            file,
            observation: about.observation.display().to_string(),
            watcher: session.watcher.clone(),
            header: header.clone(),
            common: common.clone(),
            written,
        };
        // The list's disk must not hold up the threads of the dumps.
        let (reports, reported) = channel::<Report>();
        let listing = thread::Builder::new().name("dump list".into()).spawn(move || {
            let mut list = list;
            reported.iter().for_each(|report| list.write(&report));
        });
        let listing = listing.map_err(|error| Error::io("thread of the list of dumps", error))?;
        let sender = reports.clone();
        let (place, quiet) = (folder.clone(), common.quiet);
        let options_of_dumps = dump::Options {
            ring_s,
            format: self.dump_format,
            quota: about.quota.clone(),
            name: Arc::new(move |start| free_stem(&folder, start)),
            listener: Arc::new(move |report| {
                // Without the thread nobody lists dumps.
                let _ = sender.send(report.clone());
            }),
            space: Arc::new(move || space_for_dumps(&place)),
            memory: about.memory.clone(),
            ready: Arc::new(move |size| report_size(size, "while the first packets came", quiet)),
        };
        let dumps = tap.begin(&options_of_dumps, threads())?;
        let dumping = Dumping {
            dumps,
            reports,
            listing,
            files,
            list: path,
            header,
            margin_s: self.dump_margin,
            dm_constant: about.options.dm_constant,
        };
        Ok(Some(dumping))
    }
}

/// Checks that the machine has memory for a ring, which locked pages would otherwise take from all programs; memory of a ring before
/// it is there already.
fn check_memory(ring_s: f64, header: &VoltageHeader, memory: &Memory) -> Result<()> {
    if memory.has(header, ring_s) {
        return Ok(());
    }
    let bytes = ring_s * header.sample_bits() as f64 / 8.0 / header.tsamp_s;
    match available_memory().filter(|free| bytes > MEMORY_PART * *free as f64) {
        None => Ok(()),
        Some(free) => {
            let (needed, free) = (human(bytes as u64), human(free));
            let rule = format!("the ring needs {needed} of memory, and {free} are available");
            Err(Error::parameter("--dump-ring", needed, rule))
        }
    }
}

/// Returns the threads that copy samples to a ring and make its memory.
fn threads() -> Threads {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    Threads::new((cores / 2).clamp(1, MOST_THREADS))
}

/// Prints the size of a ring, how long making its memory took, and whether its pages are locked.
fn report_size(size: &RingSize, when: &str, quiet: bool) {
    let made = match size.made_s {
        0.0 => "its memory was allocated before".to_owned(),
        seconds => format!("its memory was allocated {when} in {seconds:.2} s"),
    };
    let locked = match size.is_locked {
        true => "and is locked",
        false => {
            "and is not locked, so the system may swap it out (see ulimit -l, or LimitMEMLOCK= of a systemd unit)"
        }
    };
    let (seconds, bytes) = (size.seconds, human(size.bytes as u64));
    let words =
        format!("The last {seconds:.2} s of voltages stay in memory, {bytes}; {made} {locked}.");
    if quiet {
        say::log(Level::INFO, &words);
    } else {
        note!("{words}");
    }
}

/// Returns the bytes that dumps may still write to the disk of a folder, so that the lists of the search have space after them; `None`
/// if the file system does not say.
fn space_for_dumps(folder: &Path) -> Option<u64> {
    let found = rustix::fs::statvfs(folder).ok().filter(|found| found.f_blocks > 0)?;
    let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
    let left = LEFT_BYTES.min(bytes(found.f_blocks) / LEFT_PART);
    Some(bytes(found.f_bavail).saturating_sub(left))
}

/// Returns the lowest and the highest frequency of the recorded band in Hz, edges included.
fn edges(header: &VoltageHeader) -> [f64; 2] {
    let half_hz = 0.5 * header.channel_width_hz();
    let centres = header.centres_hz.iter().copied();
    [centres.clone().fold(f64::INFINITY, f64::min) - half_hz, centres.fold(0.0, f64::max) + half_hz]
}

/// Returns a path without suffix in `folder` that no dump has.
fn free_stem(folder: &Path, start: Epoch) -> PathBuf {
    let milliseconds = (start.seconds.fract() * 1e3) as u32;
    let name = format!("{}.{milliseconds:03}", name_of(start));
    let taken = |stem: &str| {
        fs::read_dir(folder).is_ok_and(|entries| {
            // Files in the making have hidden names that contain the final one.
            entries.flatten().any(|entry| entry.file_name().to_string_lossy().contains(stem))
        })
    };
    let numbered = |number: u64| match number {
        1 => name.clone(),
        _ => format!("{name}_{number}"),
    };
    let free = (1..).map(numbered).find(|stem| !taken(stem)).unwrap_or_else(|| name.clone());
    folder.join(free)
}

/// Dumps of an observation.
pub(super) struct Dumping {
    dumps: Dumps,
    reports: Sender<Report>,
    listing: JoinHandle<()>,
    files: Receiver<Written>,
    /// List of the dumps, and seconds before and after a burst.
    pub(super) list: PathBuf,
    header: VoltageHeader,
    pub(super) margin_s: f64,
    dm_constant: f64,
}

/// Dump that was written.
pub(super) struct Written {
    /// Names of its triggers.
    pub(super) triggers: Vec<String>,
    pub(super) file: PathBuf,
}

impl Dumping {
    /// Returns a dump that was written since the last call, if there is one. Waits for nothing.
    pub(super) fn written(&self) -> Option<Written> {
        self.files.try_recv().ok()
    }

    /// Asks for the dump of a trigger; its fate is written to the list. Waits for nothing.
    pub(super) fn trigger(&self, trigger: &Trigger) {
        let [_, highest_hz] = edges(&self.header);
        let reference_hz = trigger.reference_hz.unwrap_or(highest_hz);
        let ahead_s = dispersion_delay_s(trigger.dm, reference_hz, highest_hz, self.dm_constant);
        let time_s = trigger.start.seconds_since(&self.header.start) - ahead_s;
        let sweep = Sweep {
            dms: [(trigger.dm - trigger.dm_error).max(0.0), trigger.dm + trigger.dm_error],
            times_s: [time_s - self.margin_s, time_s + trigger.width_s + self.margin_s],
            dm_constant: self.dm_constant,
        };
        let request = Request { name: trigger.name.clone(), sweep, priority: trigger.priority };
        if let Err(report) = self.dumps.request(request) {
            // Without the thread nobody lists dumps.
            let _ = self.reports.send(*report);
        }
    }

    /// Ends the dumps after the observation, and waits for their disk until a request to stop; returns those that were written.
    pub(super) fn finish(self, quiet: bool) -> Vec<Written> {
        let missed = self.dumps.missed();
        if missed > 0 {
            let seconds = missed as f64 * self.header.tsamp_s;
            warning!(quiet: quiet,
                "{seconds:.3} s of voltages were not kept for dumps, since dumps held the memory or it was being made.");
        }
        self.dumps.end();
        while !self.dumps.are_over() {
            if interrupt::requested() {
                self.dumps.stop();
            }
            interrupt::alive();
            thread::sleep(STEP);
        }
        self.dumps.finish();
        drop(self.reports);
        // A panic of the list's thread ends the list, not the search.
        let _ = self.listing.join();
        self.files.try_iter().collect()
    }
}

/// List of dumps, which a thread of its own writes.
struct List {
    file: File,
    observation: String,
    watcher: Option<Arc<dyn Watcher>>,
    header: VoltageHeader,
    common: Common,
    written: Sender<Written>,
}

impl List {
    /// Appends a line, and writes the document of a dump that is done. A disk that fails costs the line, not the search.
    fn write(&mut self, report: &Report) {
        let line = self.line(report);
        if let Some(path) = &report.path {
            let mut name = path.as_os_str().to_owned();
            name.push(".json");
            let made = Provenance::new(&self.common, &[]).and_then(|provenance| {
                let run = Run::new(&self.common).live();
                json::write(
                    Path::new(&name),
                    &Product::new("live-dump", line.clone(), provenance, run),
                )
            });
            if let Err(error) = made {
                warning!(quiet: self.common.quiet, "{error}");
            }
        }
        let is_over = !matches!(report.state, State::Waiting | State::Running | State::Joined);
        if let Some(reason) = report.reason.as_ref().filter(|_| is_over) {
            let names = report.names.join(", ");
            let state = match report.state {
                State::Done => "is incomplete",
                State::Refused => "was refused",
                _ => "failed",
            };
            warning!(quiet: self.common.quiet, "the dump of {names} {state}: {reason}.");
        }
        if let Some(path) = &report.path {
            let written = Written { triggers: report.names.clone(), file: path.clone() };
            // Without the search nobody names the file.
            let _ = self.written.send(written);
        }
        if let (Some(path), false) = (&report.path, self.common.quiet) {
            note!("{}: {:.3} s", path.display(), report.samples as f64 * self.header.tsamp_s);
        }
        if let Some(watcher) = &self.watcher {
            watcher.dump(&line);
        }
        let Ok(mut text) = serde_json::to_string(&line) else { return };
        text.push('\n');
        if let Err(error) = self.file.write_all(text.as_bytes()) {
            warning!(quiet: self.common.quiet, "{DUMPS}: {error}");
        }
    }

    fn line(&self, report: &Report) -> DumpLine {
        let tsamp_s = self.header.tsamp_s;
        let first_s = report.first as f64 * tsamp_s;
        let has_start = self.header.start.day != 0 && report.number > 0;
        let window = |(hz, samples): (&f64, std::ops::Range<u64>)| Window {
            mhz: hz / HZ_PER_MHZ,
            start: samples.start,
            end: samples.end,
        };
        let windows = report.path.as_ref().and_then(|_| {
            let windows = report.sweep.after(first_s).windows(&self.header, report.samples)?;
            Some(self.header.centres_hz.iter().zip(windows).map(window).collect())
        });
        let finite = |[first, last]: [f64; 2]| {
            [first, last].map(|value| if value.is_finite() { value } else { 0.0 })
        };
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        DumpLine {
            observation: self.observation.clone(),
            number: report.number,
            state: match report.state {
                State::Waiting => DumpState::Waiting,
                State::Running => DumpState::Running,
                State::Done => DumpState::Done,
                State::Failed => DumpState::Failed,
                State::Refused => DumpState::Refused,
                State::Joined => DumpState::Joined,
            },
            triggers: report.names.clone(),
            priority: report.priority,
            file: report.path.as_ref().map(|path| path.display().to_string()),
            tstart_mjd: has_start.then(|| self.header.start.plus_s(first_s).mjd()),
            samples: report.samples,
            tsamp_s,
            dms: finite(report.sweep.dms),
            times_s: finite(report.sweep.times_s),
            windows: windows.unwrap_or_default(),
            lost: report
                .lost
                .iter()
                .map(|flag| Lost {
                    streams: [flag.streams.start, flag.streams.end],
                    start: flag.start,
                    samples: flag.times,
                })
                .collect(),
            complete: report.state == State::Done && report.reason.is_none(),
            reason: report.reason.clone(),
            delay_s: report.delay_s,
            written_unix_s: since.as_secs_f64(),
        }
    }
}
