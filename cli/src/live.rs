//! `sidereal live`: searches, channelizes, correlates and records streams as they arrive.

use std::fs;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use schemars::JsonSchema;
use serde::Serialize;
use sidereal::io::sigproc::FilterbankWriter;
use sidereal::io::voltages::{VoltageOptions, VoltageSource};
use sidereal::io::{FilterbankHeader, FilterbankSource, is_description};
use sidereal::live::capture::Statistics;
use sidereal::live::joined::JoinedVoltages;
use sidereal::live::source::LiveSpectra;
use sidereal::pipeline::Ending;
use sidereal::pipeline::correlator::Ranks;
use sidereal::pipeline::voltage::{VoltageFormat, VoltageWriter};
use sidereal::trace::{self, Work};
use sidereal::units::Epoch;
use sidereal::voltage::VoltageBlock;
use sidereal::{Error, Result};

use crate::behind::{Dropped, Reporter};
use crate::common::Common;
use crate::gaps::{self, Gap};
use crate::interrupt::{self, Exit};
use crate::output::{Existing, Files, WritingFiles, with_final_names};
#[cfg(feature = "page")]
use crate::page;
use crate::provenance::{Product, Provenance, Run};
use crate::ranks;
use crate::say::note;
use crate::space::Reserve;
use crate::streams::{Received, Roll, free_name, name_of};
use crate::voltage_arguments::{Unstated, format_names};
use crate::watch::Session;
use crate::{
    Verb, alerts, channelize, correlate, errors, flags, json, search, site, space, spiir, streams,
};

/// Bytes of samples that are read at once for a recording.
const RECORDED_BYTES: usize = 1 << 20;

/// Longest time of samples that are read at once, in seconds.
const RECORDED_S: f64 = 0.1;

/// Suffix that the document's name adds to the recording's.
const DOCUMENT: &str = ".json";

const EXAMPLES: &str = "Examples:\n  \
    sidereal live search spead://:7148 -o found\n  \
    sidereal live search spead://239.10.0.1:7148?interface=eth1 -o found --dm-max 1000\n  \
    sidereal live search dada:dada -o found --snr 8\n  \
    sidereal live search spead://:7148 -o found --channels 1024 --integrate 4\n  \
    sidereal live search spead://:7148 spead://:7149 -o found --channels 512 --integrate 4\n  \
    sidereal live channelize spead://:7148 -o spectra --channels 64 --integrate 8 --roll 600\n  \
    sidereal live correlate spead://:7148 -o visibilities --antennas positions.csv --drift\n  \
    sidereal live record spead://:7148 -o recordings --roll 600\n  \
    sidereal live record vdif://:46227?sequence -o recordings --freq 1400 --format dada\n  \
    sidereal live record site.toml -o recordings\n  \
    sidereal live spiir --frames H1=/dev/shm/kafka/H1 --frames L1=/dev/shm/kafka/L1 --masses 10:60 --psd asd.txt\n\n\
    A stream that was sent by `sidereal send` carries its header, as does a PSRDADA ring. Addresses are spead://HOST:PORT,\n\
    where an empty host receives on all addresses, and dada:KEY. A file that ends with .toml describes other packets.\n\n\
    Several addresses of search, channelize and record are the bands or the two polarizations of one recording of voltages, each\n\
    received by a thread of its own.\n\n\
    vdif://HOST:PORT receives VDIF frames, vdif://HOST:PORT?sequence frames behind a sequence number of 8 bytes. They state neither\n\
    frequencies nor, often, the sampling rate: --freq and --sample-rate give them. Without a rate the first second shows it.";

const SEARCH_EXAMPLES: &str = "Examples:\n  \
    sidereal live search spead://:7148 -o found --dm-max 1000\n  \
    sidereal live search spead://:7148 spead://:7149 -o found --channels 16 --page 7150\n  \
    sidereal live search site.toml -o found --trigger-snr 10 --on-event ./alert.sh";

/// Search, channelize, correlate and record streams as they arrive: SPEAD heaps, VDIF frames, packets that a file describes, PSRDADA rings.
///
/// Waits for an observation, works on it until it ends, and waits for the next one, until it is interrupted. An observation ends
/// when the sender ends it, sends another header, or counts anew.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Clone, Debug)]
enum Command {
    /// Search the observations of a stream for dispersed bursts; voltages need --channels.
    ///
    /// Prints each candidate as lines of JSON, and appends them to candidates.ndjson in the folder: provisional when it stands out,
    /// updated when it changes, then final or retracted. Each observation gets a folder as `search` writes it, named by its start;
    /// final candidates are drawn in the folder pictures.
    #[command(after_help = SEARCH_EXAMPLES)]
    Search(Box<SearchArguments>),
    /// Channelize the observations of a stream of voltages to files.
    ///
    /// Each observation becomes a filterbank, or voltages of more channels, as `channelize` writes them from its recording, in files
    /// named by their start. Lost samples are filled and listed as the gaps of a recording.
    Channelize(Box<ChannelizeArguments>),
    /// Correlate the observations of an array's streams to visibilities (UVH5).
    ///
    /// As `correlate` does with recordings, in files named by their start. Each antenna's or several antennas' voltages arrive in a
    /// stream; lost samples are flagged.
    Correlate(Box<CorrelateArguments>),
    /// Search strain for compact binaries as it arrives: frame files (GWF) in a folder for each detector.
    ///
    /// Prints each event as lines of JSON, and appends them to events.ndjson in the folder: first when it is found, better when a
    /// higher-ranked coincidence replaces it, then final or retracted. Gaps of a detector, with their reason, go to gaps.ndjson.
    /// At the end a folder named by the GPS second of the start gets events.json. Final events are those of
    /// `spiir search --causal` of the recorded strain.
    Spiir(Box<SpiirArguments>),
    /// Write the observations of a stream to files.
    ///
    /// Spectra become SIGPROC filterbanks, voltages PSRDADA, GUPPI raw or VDIF. Lost spectra are filled with each channel's running
    /// median, lost voltages with zeros; the document beside each file lists them, and VDIF marks their frames as invalid.
    Record(RecordArguments),
    /// Run the chain that a site's file names.
    ///
    /// The file has a table [input] with the address of a stream or the description of its packets, and one of the tables
    /// [search], [channelize], [correlate] and [record] with the options of that verb: `dm_max = 1000` is `--dm-max 1000`.
    Run(SiteArguments),
    /// Check a site's file, and what its chain needs, without starting it.
    ///
    /// Checks the keys and their values, opens the address (socket, interface, group, ring), and writes to the output folder; prints the
    /// disk's space and speed and the available memory. Frequencies, antennas, and the ring of dumps are checked when a stream is there.
    Check(SiteArguments),
}

#[derive(Args, Clone, Debug)]
struct SiteArguments {
    /// File of the site (.toml).
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

/// Options common to all verbs of `live`.
#[derive(Args, Clone, Debug)]
struct Limits {
    /// End after this many observations; 0 goes on until it is interrupted.
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = "Stream")]
    observations: u64,
    #[cfg(feature = "page")]
    #[command(flatten)]
    page: page::PageArguments,
}

/// Run of a verb, and its page until this value is dropped.
struct Begun {
    session: Session,
    /// Triggers that come to the page.
    triggers: Option<alerts::Arrivals>,
    #[cfg(feature = "page")]
    _page: Option<page::Page>,
}

impl Limits {
    /// Checks what needs no stream.
    ///
    /// # Errors
    /// Those of the page's options.
    fn check(&self) -> Result<()> {
        #[cfg(feature = "page")]
        self.page.check()?;
        Ok(())
    }

    /// Begins a run whose output goes to a folder. A search takes triggers that come to the page, at the rate of its alerts.
    ///
    /// # Errors
    /// Those of the page.
    #[cfg(feature = "page")]
    fn begin(
        &self,
        folder: &Path,
        search: Option<&alerts::Arguments>,
        common: &Common,
    ) -> Result<Begun> {
        let (inlet, triggers) = search.map(|own| alerts::inlet(own.trigger_rate())).unzip();
        let page = self.page.start(folder, inlet, common)?;
        let watcher = page.as_ref().map(page::Page::watcher);
        let (observations, baselines) = (self.observations, Vec::new());
        let triggers = triggers.filter(|_| page.is_some());
        Ok(Begun { session: Session { observations, watcher, baselines }, triggers, _page: page })
    }

    #[cfg(not(feature = "page"))]
    fn begin(&self, _: &Path, _: Option<&alerts::Arguments>, _: &Common) -> Result<Begun> {
        let (observations, baselines) = (self.observations, Vec::new());
        let session = Session { observations, watcher: None, baselines };
        Ok(Begun { session, triggers: None })
    }
}

#[derive(Args, Clone, Debug)]
struct SearchArguments {
    #[command(flatten)]
    limits: Limits,
    #[command(flatten)]
    search: search::Arguments,
    #[command(flatten)]
    alerts: alerts::Arguments,
    #[command(flatten)]
    dumps: search::DumpArguments,
}

#[derive(Args, Clone, Debug)]
struct ChannelizeArguments {
    #[command(flatten)]
    limits: Limits,
    #[command(flatten)]
    channelize: channelize::LiveArguments,
}

#[derive(Args, Clone, Debug)]
struct CorrelateArguments {
    #[command(flatten)]
    limits: Limits,
    /// Show these baselines on the page, at most 8: pairs of antennas, A-B,A-C [default: the first four].
    #[cfg(feature = "page")]
    #[arg(long, value_name = "BASELINES", value_delimiter = ',', help_heading = "Page")]
    page_baselines: Vec<String>,
    #[command(flatten)]
    correlate: correlate::LiveArguments,
}

#[derive(Args, Clone, Debug)]
struct SpiirArguments {
    #[cfg(feature = "page")]
    #[command(flatten)]
    page: page::PageArguments,
    #[command(flatten)]
    spiir: spiir::LiveArguments,
}

impl CorrelateArguments {
    /// Correlates, with a page at rank 0 if it is wanted.
    fn run(&self, common: &Common, ranks: Option<Ranks>) -> Result<Exit> {
        self.correlate.check()?;
        if ranks.as_ref().is_some_and(|ranks| ranks.own() > 0) {
            let (observations, baselines) = (self.limits.observations, Vec::new());
            let session = Session { observations, watcher: None, baselines };
            return correlate::run_live(&self.correlate, &session, common, ranks);
        }
        #[cfg_attr(not(feature = "page"), expect(unused_mut))]
        let mut begun = self.limits.begin(self.correlate.output(), None, common)?;
        #[cfg(feature = "page")]
        begun.session.baselines.clone_from(&self.page_baselines);
        correlate::run_live(&self.correlate, &begun.session, common, ranks)
    }
}

impl SpiirArguments {
    /// Runs the search, with its page if it is wanted.
    #[cfg(feature = "page")]
    fn run(&self, common: &Common) -> Result<Exit> {
        let page = self.page.start(self.spiir.output(), None, common)?;
        let viewer = page.as_ref().map(page::Page::viewer);
        spiir::run_live(&self.spiir, viewer, common)
    }

    #[cfg(not(feature = "page"))]
    fn run(&self, common: &Common) -> Result<Exit> {
        spiir::run_live(&self.spiir, None, common)
    }
}

#[derive(Args, Clone, Debug)]
struct RecordArguments {
    /// Address of the stream: spead://HOST:PORT, vdif://HOST:PORT, dada:KEY, or a file that describes it (.toml).
    ///
    /// Several addresses are the bands or the two polarizations of one recording of voltages, in any order of the bands.
    #[arg(required = true, value_name = "ADDRESS")]
    addresses: Vec<PathBuf>,
    /// Folder for the files, which is made if it is missing.
    #[arg(short, long, value_name = "DIR", default_value = "recordings", help_heading = "Output")]
    output: PathBuf,
    /// Format of voltages.
    #[arg(
        long,
        value_parser = format_names(),
        value_name = "FORMAT",
        default_value = "dada",
        help_heading = "Output"
    )]
    format: VoltageFormat,
    /// Begin another file after this many seconds of data, or this size (4G); 0 writes a file per observation.
    #[arg(
        long,
        value_name = "SECONDS|SIZE",
        allow_negative_numbers = true,
        value_parser = Roll::parse,
        default_value_t = Roll::Seconds(0.0),
        help_heading = "Output"
    )]
    roll: Roll,
    #[command(flatten)]
    limits: Limits,
    #[command(flatten)]
    unstated: Unstated,
}

/// Contents of FILE.json.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct RecordDocument {
    file: String,
    /// Start of the first sample, MJD (UTC); absent if it is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    tstart_mjd: Option<f64>,
    tsamp_s: f64,
    /// Samples per stream.
    samples: u64,
    /// Lost samples of some or all streams, filled in.
    gaps: Vec<Gap>,
    /// Samples of the observation so far that were dropped because writing was too slow; absent without any.
    #[serde(skip_serializing_if = "Option::is_none")]
    dropped: Option<Dropped>,
    /// Whether the file ends with the observation or because the next file begins.
    complete: bool,
    /// Reason of an incomplete file.
    reason: Option<String>,
    /// Counters of packets since the program began; absent for a ring.
    #[serde(skip_serializing_if = "Option::is_none")]
    packets: Option<Packets>,
}

/// Counters of packets since the program began.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub(crate) struct Packets {
    received: u64,
    /// Blocks of which a packet is missing.
    missing_blocks: u64,
    late: u64,
    duplicate: u64,
    /// Too far ahead or between the steps of the counter, of a wrong length or source, or invalid.
    rejected: u64,
    /// Dropped because this program was too slow.
    overrun: u64,
    /// Messages dropped by the kernel because its buffer was full: packets, or several that it had joined.
    dropped_by_kernel: u64,
    /// Received before the first header.
    without_header: u64,
    /// Time of the last packets less that of this machine as they arrived, in seconds; absent without a clock of the packets.
    #[serde(skip_serializing_if = "Option::is_none")]
    clock_difference_s: Option<f64>,
    /// The difference farthest from 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    worst_clock_difference_s: Option<f64>,
}

impl From<&Statistics> for Packets {
    fn from(statistics: &Statistics) -> Self {
        let totals = &statistics.totals;
        Self {
            received: statistics.sum(|counts| counts.received),
            missing_blocks: statistics.sum(|counts| counts.missing),
            late: statistics.sum(|counts| counts.late),
            duplicate: statistics.sum(|counts| counts.duplicate),
            rejected: statistics.sum(|c| c.ahead + c.wrong_length + c.invalid)
                + totals.wrong_source
                + totals.wrong_length
                + totals.invalid
                + totals.unplaced,
            overrun: statistics.sum(|counts| counts.overrun),
            dropped_by_kernel: statistics.dropped,
            without_header: statistics.without_header,
            clock_difference_s: statistics.clock.map(|clock| clock.last_ns as f64 * 1e-9),
            worst_clock_difference_s: statistics.clock.map(|clock| clock.worst_ns as f64 * 1e-9),
        }
    }
}

impl Arguments {
    /// Returns whether the verb may run as several processes.
    pub(crate) fn is_divided(&self) -> bool {
        matches!(self.command, Command::Correlate(_) | Command::Run(_))
    }

    /// Returns the site's file that names the verb to run, if one does.
    pub(crate) fn site(&self) -> Option<&Path> {
        match &self.command {
            Command::Run(arguments) => Some(&arguments.file),
            _ => None,
        }
    }
}

/// Runs the verb.
pub(crate) fn run(arguments: &Arguments, common: &Common) -> Result<Exit> {
    trace::sum();
    match &arguments.command {
        Command::Run(arguments) | Command::Check(arguments) => check(&arguments.file, common),
        Command::Search(arguments) => {
            let SearchArguments { limits, search, alerts, dumps } = &**arguments;
            search.check()?;
            dumps.check()?;
            let mut begun = limits.begin(&search.parent(), Some(alerts), common)?;
            let triggers = begun.triggers.take();
            if dumps.is_wanted() && !alerts.has_triggers() && triggers.is_none() {
                let rule = "nothing asks for dumps: give --trigger-snr, --triggers or --page";
                return Err(Error::parameter("--dump-ring", "given", rule));
            }
            let actions = search::Actions { alerts, dumps, triggers };
            search::run_live(search, actions, &begun.session, common)
        }
        Command::Channelize(arguments) => {
            arguments.channelize.check()?;
            let begun = arguments.limits.begin(arguments.channelize.output(), None, common)?;
            channelize::run_live(&arguments.channelize, &begun.session, common)
        }
        Command::Correlate(arguments) => ranks::run(
            common,
            |common, ranks| arguments.run(common, ranks),
            |common, ranks| arguments.run(common, Some(ranks)),
        ),
        Command::Spiir(arguments) => arguments.run(common),
        Command::Record(arguments) => arguments.run(common),
    }
}

/// Opens the addresses of a site's file whose spectra are sent to `receivers`.
///
/// # Errors
/// Those of opening the addresses.
fn check_sender(file: &Path, receivers: &str, common: &Common) -> Result<Exit> {
    let addresses = site::addresses(file, &site::table(file)?);
    streams::listen(&addresses, &VoltageOptions::default())?;
    if !common.quiet {
        let addresses: Vec<String> =
            addresses.iter().map(|address| address.display().to_string()).collect();
        let file = file.display();
        note!("{file}: live channelize of {} to {receivers}", addresses.join(", "));
    }
    Ok(Exit::Success)
}

/// Checks a site's file, opens its addresses and writes to its output folder.
///
/// # Errors
/// The first fault, naming the key or what is missing.
fn check(file: &Path, common: &Common) -> Result<Exit> {
    let line = site::command_line(file, common)?;
    let Verb::Live(Arguments { command }) = &line.verb else {
        return Err(Error::parameter("FILE", file.display(), "its chain is no verb of `live`"));
    };
    let (verb, output) = match command {
        Command::Search(arguments) => {
            arguments.search.check()?;
            arguments.alerts.check()?;
            arguments.dumps.check()?;
            arguments.limits.check()?;
            search::check_ring(&arguments.search, &arguments.dumps, common)?;
            ("search", arguments.search.parent())
        }
        Command::Channelize(arguments) => {
            arguments.channelize.check()?;
            arguments.limits.check()?;
            if let Some(receivers) = arguments.channelize.receivers() {
                return check_sender(file, &receivers, common);
            }
            ("channelize", arguments.channelize.output().to_owned())
        }
        Command::Correlate(arguments) => {
            arguments.correlate.check()?;
            arguments.limits.check()?;
            ("correlate", arguments.correlate.output().to_owned())
        }
        Command::Record(arguments) => {
            arguments.limits.check()?;
            ("record", arguments.output.clone())
        }
        Command::Spiir(_) => {
            let rule = "`live spiir` reads frame files and has no site file; give its options on the command line";
            return Err(Error::parameter("FILE", file.display(), rule));
        }
        Command::Run(_) | Command::Check(_) => ("run", PathBuf::new()),
    };
    let addresses = site::addresses(file, &site::table(file)?);
    streams::listen(&addresses, &VoltageOptions::default())?;
    fs::create_dir_all(&output).map_err(|error| Error::io(&output, error))?;
    let rate = space::write_rate(&output)?;
    if !common.quiet {
        let addresses: Vec<String> =
            addresses.iter().map(|address| address.display().to_string()).collect();
        let free =
            rustix::fs::statvfs(&output).map_err(|error| Error::io(&output, error.into()))?;
        let memory = space::available_memory().map_or("?".to_owned(), space::human);
        note!(
            "{}: live {verb} of {} to {}, with {} free there, written at {}/s; {memory} of memory are available",
            file.display(),
            addresses.join(", "),
            output.display(),
            space::human(free.f_bavail * free.f_frsize),
            space::human(rate as u64),
        );
    }
    Ok(Exit::Success)
}

impl RecordArguments {
    fn run(&self, common: &Common) -> Result<Exit> {
        let options = self.unstated.options()?;
        streams::check(&self.addresses, "ADDRESS")?;
        let is_described = self.addresses.iter().any(|address| is_description(address));
        if let Some(option) = self.unstated.given().filter(|_| is_described) {
            return Err(Error::parameter(option, "given", "the description has it"));
        }
        let Begun { session, .. } = &self.limits.begin(&self.output, None, common)?;
        let mut done = 0;
        loop {
            let observation = match streams::observation(&self.addresses, &options) {
                // The usual end of a program that waits for the next observation.
                Err(error) if error.is_stop() && done > 0 => return Ok(Exit::Interrupted),
                observation => observation?,
            };
            fs::create_dir_all(&self.output).map_err(|error| Error::io(&self.output, error))?;
            let exit = match observation {
                Received::Spectra(spectra) => self.record(Spectra::new(*spectra), common)?,
                Received::Voltages(voltages) => {
                    self.record(RecordedVoltages::new(voltages, self.format), common)?
                }
            };
            session.tell(|watcher| watcher.observed());
            done += 1;
            if exit != Exit::Success || done == session.observations {
                return Ok(exit);
            }
        }
    }

    /// Writes an observation to one file or several.
    fn record(&self, mut source: impl Recorded, common: &Common) -> Result<Exit> {
        let tsamp_s = source.tsamp_s();
        let most = self.roll.samples(tsamp_s, source.sample_bytes());
        let mut reporter = Reporter::new(common);
        let mut first = 0;
        loop {
            let most = most.map_or(u64::MAX, |most| source.part(first, most));
            let start = source.start();
            let start = if start.day == 0 { start } else { start.plus_s(first as f64 * tsamp_s) };
            let path = free_name(&self.output, &name_of(start), source.suffix());
            let inputs: [PathBuf; 0] = [];
            let existing = Existing::Refuse;
            let writing = WritingFiles { option: "--output", existing, inputs: &inputs, common };
            let files = Files::begin(&path, &[DOCUMENT], &writing)?;
            let reserve = Reserve::new(&files.main());
            let copied = source.copy(&files.main(), start, most, &mut || reporter.look())?;
            drop(reserve);
            let Copied { samples, ending } = copied;
            if samples == 0 {
                let is_stopped = matches!(ending, Ending::Stopped);
                return Ok(if is_stopped { Exit::Interrupted } else { Exit::Success });
            }
            let document = RecordDocument {
                file: with_final_names(&path.display().to_string()),
                tstart_mjd: (start.day != 0).then(|| start.mjd()),
                tsamp_s,
                samples,
                gaps: source.take_gaps(first, samples),
                dropped: reporter.sum(),
                complete: ending.is_complete(),
                reason: flags::reason(&ending),
                packets: source.statistics().as_ref().map(Packets::from),
            };
            let span = trace::span(Work::Write, "document");
            let run = Run::new(common).live();
            let product = Product::new("live-record", document, Provenance::new(common, &[])?, run);
            json::write(&files.beside(DOCUMENT), &product)?;
            files.finish()?;
            interrupt::goes_on();
            if common.json {
                json::print(&product)?;
            } else if !common.quiet {
                let seconds = samples as f64 * tsamp_s;
                note!("{}: {seconds:.3} s", path.display());
                gaps::warn(&product.document.gaps, common.quiet);
            }
            drop(span);
            first += samples;
            let exit = errors::ended(&ending, &path);
            if exit != Exit::Success || samples < most {
                return Ok(exit);
            }
        }
    }
}

/// Samples of which each number of bits fills whole bytes.
const WHOLE_BYTES: u64 = 8;

/// Result of copying to a file.
struct Copied {
    samples: u64,
    ending: Ending,
}

/// Source of a recording.
trait Recorded {
    type File: RecordedFile;

    fn tsamp_s(&self) -> f64;

    /// Returns the bytes of a sample of all streams.
    fn sample_bytes(&self) -> f64;

    /// Returns the start of the observation.
    fn start(&self) -> Epoch;

    /// Returns the samples of a file of about `most` samples, the first of which is sample `first` of the observation.
    fn part(&self, _first: u64, most: u64) -> u64 {
        most
    }

    fn suffix(&self) -> &'static str;

    /// Creates a file whose first sample is at `start`.
    ///
    /// # Errors
    /// Those of the file.
    fn create(&self, path: &Path, start: Epoch) -> Result<Self::File>;

    /// Reads the next samples, at most `most`; returns how many, or 0 at the end of the observation.
    ///
    /// # Errors
    /// Those of the source.
    fn read(&mut self, most: u64) -> Result<usize>;

    /// Writes the samples that were read last.
    ///
    /// # Errors
    /// Those of the file.
    fn write(&self, file: &mut Self::File) -> Result<()>;

    /// Describes an incomplete sample at the end of the observation, which was left out.
    fn cut(&self) -> Option<&str>;

    /// Lists the gaps among `samples` samples from sample `first` on, counted from there; called once a file.
    fn take_gaps(&mut self, first: u64, samples: u64) -> Vec<Gap>;

    fn statistics(&self) -> Option<Statistics>;

    /// Copies samples to a file whose first sample is at `start`, at most `most`. After an error the file holds what was
    /// written whole; without samples there is no file.
    ///
    /// # Errors
    /// Errors before the first sample is written.
    fn copy(
        &mut self,
        path: &Path,
        start: Epoch,
        most: u64,
        look: &mut dyn FnMut(),
    ) -> Result<Copied> {
        let mut file = self.create(path, start)?;
        let mut samples = 0;
        let mut fill = || {
            while samples < most {
                match self.read(most - samples) {
                    Ok(0) => return Ok(Ending::of_source(self.cut())),
                    Ok(read) => {
                        self.write(&mut file)?;
                        samples += read as u64;
                    }
                    Err(error) => return Ok(Ending::after(error)),
                }
                look();
            }
            Ok(Ending::Complete)
        };
        let made = fill();
        let ending = match made.and_then(|ending| file.end_data().map(|()| ending)) {
            Ok(ending) => ending,
            Err(fault) => {
                samples = file.keep_whole()?;
                Ending::after(fault)
            }
        };
        let ending = ending.or_error(samples > 0)?;
        if samples > 0 {
            file.finish()?;
        }
        Ok(Copied { samples, ending })
    }
}

/// File of a recording while it is written.
trait RecordedFile {
    /// Writes what is buffered.
    fn end_data(&mut self) -> Result<()>;

    /// Truncates the file to what is whole after a failed write; returns its samples.
    fn keep_whole(&mut self) -> Result<u64>;

    /// Completes the file.
    fn finish(self) -> Result<()>;
}

impl RecordedFile for FilterbankWriter {
    fn end_data(&mut self) -> Result<()> {
        self.end_data()
    }

    fn keep_whole(&mut self) -> Result<u64> {
        self.keep_whole()
    }

    fn finish(self) -> Result<()> {
        self.finish()
    }
}

impl RecordedFile for VoltageWriter {
    fn end_data(&mut self) -> Result<()> {
        self.end_data()
    }

    fn keep_whole(&mut self) -> Result<u64> {
        self.keep_whole()
    }

    fn finish(self) -> Result<()> {
        self.finish()
    }
}

/// Returns the samples to read at once.
fn gulp(sample_bytes: usize, tsamp_s: f64) -> usize {
    let by_time = (RECORDED_S / tsamp_s).clamp(1.0, 1e9) as usize;
    by_time.min(RECORDED_BYTES / sample_bytes.max(1)).max(1)
}

/// Cuts gaps to a range of samples and counts them from its start.
fn within(gaps: &[sidereal::io::Gap], first: u64, samples: u64, tsamp_s: f64) -> Vec<Gap> {
    let cut = |gap: &sidereal::io::Gap| {
        let start = gap.start_time.max(first);
        let end = (gap.start_time + gap.times).min(first + samples);
        (start < end).then(|| sidereal::io::Gap { start_time: start - first, times: end - start })
    };
    gaps::listed(&gaps.iter().filter_map(cut).collect::<Vec<_>>(), tsamp_s, 0.0)
}

struct Spectra {
    source: LiveSpectra,
    rows: Vec<u8>,
    read: usize,
}

impl Spectra {
    fn new(source: LiveSpectra) -> Self {
        let header = source.header();
        let rows = vec![0; gulp(header.row_bytes(), header.tsamp_s) * header.row_bytes()];
        Self { source, rows, read: 0 }
    }
}

impl Recorded for Spectra {
    type File = FilterbankWriter;

    fn tsamp_s(&self) -> f64 {
        self.source.header().tsamp_s
    }

    fn sample_bytes(&self) -> f64 {
        self.source.header().row_bytes() as f64
    }

    fn start(&self) -> Epoch {
        let mjd = self.source.header().tstart_mjd;
        if mjd > 0.0 { Epoch::from_mjd(mjd) } else { Epoch::default() }
    }

    fn suffix(&self) -> &'static str {
        ".fil"
    }

    fn create(&self, path: &Path, start: Epoch) -> Result<FilterbankWriter> {
        let header = self.source.header().clone();
        let tstart_mjd =
            if start.day == 0 || start == self.start() { header.tstart_mjd } else { start.mjd() };
        FilterbankWriter::create(path, &FilterbankHeader { tstart_mjd, ..header })
    }

    fn read(&mut self, most: u64) -> Result<usize> {
        let row_bytes = self.source.header().row_bytes();
        let rows = (self.rows.len() / row_bytes).min(most.min(1 << 40) as usize);
        self.read = self.source.read(&mut self.rows[..rows * row_bytes])?;
        Ok(self.read)
    }

    fn write(&self, file: &mut FilterbankWriter) -> Result<()> {
        file.write(&self.rows[..self.read * self.source.header().row_bytes()])
    }

    fn cut(&self) -> Option<&str> {
        self.source.cut()
    }

    fn take_gaps(&mut self, first: u64, samples: u64) -> Vec<Gap> {
        within(self.source.gaps(), first, samples, self.tsamp_s())
    }

    fn statistics(&self) -> Option<Statistics> {
        self.source.statistics()
    }
}

struct RecordedVoltages {
    source: Box<JoinedVoltages>,
    format: VoltageFormat,
    /// Samples of a whole gulp, and the block of the last read, which may be shorter.
    times: usize,
    block: VoltageBlock<'static>,
    /// Samples read so far, and gaps of the file that is being written.
    time: u64,
    gaps: Vec<sidereal::io::Gap>,
}

impl RecordedVoltages {
    fn new(source: Box<JoinedVoltages>, format: VoltageFormat) -> Self {
        let header = source.header();
        let bytes = header.sample_bits() / 8;
        let times = gulp(bytes, header.tsamp_s);
        let block = header.block(times);
        Self { source, format, times, block, time: 0, gaps: Vec::new() }
    }
}

impl Recorded for RecordedVoltages {
    type File = VoltageWriter;

    fn tsamp_s(&self) -> f64 {
        self.source.header().tsamp_s
    }

    fn sample_bytes(&self) -> f64 {
        let header = self.source.header();
        // VDIF has no integers of 8 bits.
        let is_widened = self.format == VoltageFormat::Vdif && header.encoding.bits() == 8;
        header.sample_bits() as f64 / if is_widened { 4.0 } else { 8.0 }
    }

    /// Files begin with a whole byte, and those of VDIF, whose frames divide a second, with a whole second.
    fn part(&self, first: u64, most: u64) -> u64 {
        if self.format != VoltageFormat::Vdif {
            return most.checked_next_multiple_of(WHOLE_BYTES).unwrap_or(u64::MAX);
        }
        let header = self.source.header();
        let begin = (header.start.seconds.fract() / header.tsamp_s).round() as u64;
        let rate = ((1.0 / header.tsamp_s).round() as u64).max(1);
        let position = begin.saturating_add(first);
        let end = position.saturating_add(most).checked_next_multiple_of(rate);
        end.map_or(u64::MAX, |end| end - position)
    }

    fn start(&self) -> Epoch {
        self.source.header().start
    }

    fn suffix(&self) -> &'static str {
        self.format.suffix()
    }

    fn create(&self, path: &Path, start: Epoch) -> Result<VoltageWriter> {
        let mut header = self.source.header().clone();
        header.start = start;
        VoltageWriter::create(self.format, path, &header)
    }

    fn read(&mut self, most: u64) -> Result<usize> {
        let times = self.times.min(most.min(1 << 40) as usize);
        if times != self.block.capacity() {
            self.block = self.source.header().block(times);
        }
        let read = self.source.read(&mut self.block)?;
        for flag in self.block.flags() {
            let (start, times) = (self.time + flag.start, flag.times);
            // Antennas that lose the same samples make one gap, as does what is lost on both sides of a read.
            let touches = |gap: &&mut sidereal::io::Gap| {
                (gap.start_time..=gap.start_time + gap.times).contains(&start)
            };
            match self.gaps.iter_mut().rev().take(64).find(touches) {
                Some(gap) => gap.times = gap.times.max(start + times - gap.start_time),
                None => self.gaps.push(sidereal::io::Gap { start_time: start, times }),
            }
        }
        self.time += read as u64;
        Ok(read)
    }

    fn write(&self, file: &mut VoltageWriter) -> Result<()> {
        file.write_marked(self.block.voltages(), self.block.flags())
    }

    fn cut(&self) -> Option<&str> {
        self.source.cut()
    }

    fn take_gaps(&mut self, first: u64, samples: u64) -> Vec<Gap> {
        let gaps = std::mem::take(&mut self.gaps);
        within(&gaps, first, samples, self.tsamp_s())
    }

    fn statistics(&self) -> Option<Statistics> {
        self.source.statistics()
    }
}
