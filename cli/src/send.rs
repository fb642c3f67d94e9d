//! `sidereal send`: plays a recording as a live stream.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use sidereal::io::voltages::Selection;
use sidereal::io::{is_stream, voltages};
use sidereal::live::header::Content;
use sidereal::live::impair;
use sidereal::live::send::{Lost, Monitor, Options, Recording, Summary, send, send_described};
use sidereal::{Error, Result};

use crate::common::Common;
use crate::interrupt::{self, Exit};
use crate::output::{Existing, Files, WritingFiles};
use crate::progress::Progress;
use crate::provenance::{Product, Provenance, Run};
use crate::receiver::{Opened, Receiver};
use crate::say::{self, warning};
use crate::selection::{self, shown};
use crate::voltage_arguments::Lacking;
use crate::{json, numbers};

/// Headings of options in the help.
const RECORDING: &str = "Recording";
const PACKETS: &str = "Packets";
const IMPAIRMENTS: &str = "Impairments of packets";

/// Reason for a stream that a signal ended.
const STOPPED: &str = "stopped on request";

/// First line of a list of lost samples.
const COLUMNS: &str = "first,times,source,start";

const EXAMPLES: &str = "Examples:\n  \
    sidereal send observation.fil spead://127.0.0.1:7148\n  \
    sidereal send observation.fil spead://239.1.2.3:7148 --interface eth0 --loop 0\n  \
    sidereal send guppi.0000.raw dada:dada --rate max\n  \
    sidereal send observation.vdif vdif://127.0.0.1:46227?sequence\n  \
    sidereal send guppi.0000.raw packets://127.0.0.1:10000?preset=snap\n  \
    sidereal send guppi.0000.raw site.toml\n  \
    sidereal send guppi.0000.raw spead://127.0.0.1:7148 --channels 0:31\n  \
    sidereal send observation.fil spead://127.0.0.1:7148 --loss 0.01 --reorder 0.1 --lost-list lost.csv\n\n\
    Nobody needs to receive packets, and packets sent faster than they are received are lost. A ring is waited for.";

/// Send a recording as a live stream: SPEAD heaps, VDIF frames or other packets by UDP, or a PSRDADA ring.
///
/// Samples are sent at the times at which they were taken, from the start of the run on. A SPEAD stream carries its own
/// header, again every second, and descriptors for other receivers, such as spead2. Spectra are sent as rows. Voltages have
/// the order of MeerKAT's F-engines in heaps, and that of PSRDADA files in rings. VDIF has a thread for each antenna (station) and
/// polarization; integers of 8 bits are sent as 16, since those of VDIF are -127.5 to 127.5. Packets with a fixed header are those of an
/// instrument (preset), or those that a file describes as for `live` (.toml); then they go to its first address.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// SIGPROC filterbank (.fil), PSRFITS search mode, FBH5 (.h5), or voltages (GUPPI raw, PSRDADA, VDIF, Mark 5B).
    ///
    /// The format is recognized by content. Several files are parts of one observation; `-` is a SIGPROC filterbank on
    /// standard input.
    #[arg(required = true, value_name = "INPUT")]
    inputs: Vec<PathBuf>,
    /// Receiver: spead://HOST:PORT, vdif://HOST:PORT or packets://HOST:PORT?preset=NAME (a host or a multicast group), dada:KEY with
    /// the hexadecimal key of a ring, or a file that describes packets (.toml).
    ///
    /// vdif://HOST:PORT?sequence puts a sequence number of 8 bytes before each frame. Presets are snap, snap2, chips and grex; other
    /// keys of their descriptions are joined by & (&first_channel=512), and the recording says the rest.
    #[arg(required = true, value_name = "TARGET")]
    target: Receiver,
    /// Rate as a multiple of real time, or max: as fast as it is taken.
    #[arg(long, value_name = "X", default_value = "1", value_parser = parse_rate)]
    rate: Rate,
    /// Times to send the recording, one after the other without a break in the count of samples; 0 is endless.
    ///
    /// Voltages that divide into whole heaps or described packets are read before the first packet and then sent from memory, if they take
    /// at most 1 GiB and at most --memory. Others, and VDIF frames, are read again each time.
    #[arg(long = "loop", value_name = "N", default_value_t = 1)]
    repeats: u64,
    /// Start again after every S seconds of data, with a later header and samples counted from 0.
    ///
    /// As a sender does that was killed and started again: the earlier stream has no end. In a ring another transfer begins. The
    /// time of VDIF frames goes on, and their sequence number begins anew.
    #[arg(long, value_name = "S", allow_negative_numbers = true)]
    restart: Option<f64>,
    /// Use only one polarization, counted from 0; by default all of voltages, and of filterbanks (IF) the total intensity.
    #[arg(long, value_name = "N", help_heading = RECORDING)]
    pol: Option<usize>,
    /// Send only these recorded channels of voltages, counted from 0, ends included: 0:127.
    ///
    /// Several senders play the bands of a recording, each to an address of its own; `live` joins them.
    #[arg(long, value_name = "A:B", value_parser = parse_channels, help_heading = RECORDING)]
    channels: Option<Channels>,
    /// Send a recording with gaps: voltages as zeros, spectra with each channel's running median.
    ///
    /// Without this option, gaps in voltages longer than both one minute and ten times the data before them are an
    /// error, and in PSRFITS all gaps.
    #[arg(long, help_heading = RECORDING)]
    allow_gaps: bool,
    /// Most bytes of samples in a packet, a multiple of 8.
    ///
    /// Headers add 92 bytes: 1408 suits networks without jumbo frames (1500 bytes). VDIF frames have at most 8000 bytes of samples.
    /// Not for packets of a description.
    #[arg(long, value_name = "BYTES", default_value_t = 8192, help_heading = PACKETS)]
    packet_bytes: usize,
    /// Samples per SPEAD heap or VDIF frame [default: about 8 KiB, at most 0.1 s].
    ///
    /// VDIF frames divide a second, in whole words of 8 bytes.
    #[arg(long, value_name = "N", help_heading = PACKETS)]
    heap_times: Option<usize>,
    /// Interface through which a multicast group is reached.
    #[arg(long, value_name = "NAME", help_heading = PACKETS)]
    interface: Option<String>,
    /// Number of the first sample, 0 to 2^48 - 1, for a count that wraps; of described packets, first value of the counter.
    ///
    /// Not for VDIF, whose frames are numbered by their time.
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = PACKETS)]
    first_count: u64,
    #[command(flatten)]
    impaired: Impaired,
    #[command(flatten)]
    lacking: Lacking,
}

/// Impairments of packets with samples; headers pass.
#[derive(Args, Clone, Debug)]
struct Impaired {
    /// Fraction of packets to lose, 0 to 1.
    #[arg(long, value_name = "P", default_value_t = 0.0, allow_negative_numbers = true, help_heading = IMPAIRMENTS)]
    loss: f64,
    /// Fraction of packets to delay.
    #[arg(long, value_name = "P", default_value_t = 0.0, allow_negative_numbers = true, help_heading = IMPAIRMENTS)]
    reorder: f64,
    /// Most packets by which a packet is delayed.
    #[arg(long, value_name = "N", default_value_t = 16, help_heading = IMPAIRMENTS)]
    reorder_span: usize,
    /// Fraction of packets to send twice.
    #[arg(long, value_name = "P", default_value_t = 0.0, allow_negative_numbers = true, help_heading = IMPAIRMENTS)]
    duplicate: f64,
    /// Seed of the impairments: the same packets are lost in every run.
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = IMPAIRMENTS)]
    seed: u64,
    /// Write the samples that were lost to this CSV file: first sample, samples, source (antenna), restarts before them.
    ///
    /// A heap is lost as a whole if one of its packets is. Samples are counted from the header's start. The source of VDIF is the
    /// thread, counted through all antennas; of described packets it is that of their header.
    #[arg(long, value_name = "FILE", help_heading = IMPAIRMENTS)]
    lost_list: Option<PathBuf>,
    /// Replace the list if it exists.
    #[arg(long, requires = "lost_list", help_heading = IMPAIRMENTS)]
    overwrite: bool,
}

/// First and last of consecutive channels.
#[derive(Clone, Copy, Debug)]
struct Channels {
    first: usize,
    last: usize,
}

fn parse_channels(words: &str) -> std::result::Result<Channels, String> {
    let number = |word: &str| word.trim().parse::<usize>().ok();
    let (first, last) = words.split_once(':').unwrap_or((words, words));
    match number(first).zip(number(last)) {
        Some((first, last)) if first <= last && last < usize::MAX => Ok(Channels { first, last }),
        _ => Err("write it as FIRST:LAST, such as 0:127".to_owned()),
    }
}

/// Multiple of real time; `None` is as fast as possible.
#[derive(Clone, Copy, Debug)]
struct Rate(Option<f64>);

fn parse_rate(words: &str) -> std::result::Result<Rate, String> {
    match words {
        "max" => Ok(Rate(None)),
        words => match numbers::finite(words)? {
            rate if rate > 0.0 => Ok(Rate(Some(rate))),
            _ => Err("it must be above 0, or max".to_owned()),
        },
    }
}

/// JSON document of a stream that was sent.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Document {
    /// Receiver, as it can be given again.
    target: String,
    /// `spectra` or `voltages`.
    content: &'static str,
    /// Samples of every stream that were sent or lost.
    samples: u64,
    /// Seconds of data.
    data_s: f64,
    /// Packets sent; 0 for a ring.
    packets: u64,
    /// Packets of headers, descriptors and ends among them.
    header_packets: u64,
    /// Bytes of packets with their SPEAD headers; of a ring, bytes of samples.
    bytes: u64,
    /// Packets lost on request.
    dropped: u64,
    /// Packets delayed on request.
    delayed: u64,
    /// Packets sent twice on request.
    duplicated: u64,
    /// Starts after the first.
    restarts: u64,
    /// Most seconds by which samples were sent later than due.
    behind_s: f64,
    /// List of lost samples.
    #[serde(skip_serializing_if = "Option::is_none")]
    lost_list: Option<String>,
    complete: bool,
    /// Reason for an incomplete stream, or missing part of a truncated recording.
    reason: Option<String>,
}

/// Runs the verb.
pub(crate) fn run(arguments: &Arguments, common: &Common) -> Result<Exit> {
    arguments.check()?;
    let recording = arguments.open(common)?;
    let content = recording.content();
    let mut target = arguments.target.open(&content, arguments.interface.as_deref())?;
    let inputs = &arguments.inputs;
    let impaired = &arguments.impaired;
    let files = impaired.lost_list.as_deref().map(|list| {
        let existing = Existing::new(impaired.overwrite);
        let writing = WritingFiles { option: "--lost-list", existing, inputs, common };
        Files::begin(list, &[], &writing)
    });
    let files = files.transpose()?;
    let provenance = Provenance::new(common, inputs)?;
    let mut listener = Listener::new(&recording, arguments, common, files.as_ref())?;
    let mut reopen = || arguments.open(common);
    let options = arguments.options(common.memory);
    let summary = match &mut target {
        Opened::Address(target) => send(recording, &mut reopen, target, &options, &mut listener)?,
        Opened::Packets { description, socket, .. } => {
            let mut put = |packets: &[&[u8]]| socket.send(packets);
            let listener = &mut listener;
            send_described(recording, &mut reopen, description, &options, &mut put, listener)?
        }
    };
    listener.finish()?;
    let reason = if summary.is_stopped { Some(STOPPED.to_owned()) } else { listener.cut.take() };
    let document = Document {
        lost_list: impaired.lost_list.as_deref().map(|list| list.display().to_string()),
        complete: reason.is_none(),
        reason,
        ..Document::new(target.to_string(), &content, &summary)
    };
    files.map_or(Ok(()), Files::finish)?;
    if summary.shift_s.abs() > 0.5 * content.tsamp_s() {
        warning!(
            quiet: common.quiet,
            "VDIF frames begin at whole fractions of a second: the times sent are {:e} s later than those of the recording.",
            summary.shift_s
        );
    }
    if common.json {
        let run = Run::new(common).took(summary.elapsed_s, summary.data_s);
        json::print(&Product::new("send", document, provenance, run))?;
    } else if !common.quiet {
        json::say(&document.table(&summary))?;
    }
    Ok(if summary.is_stopped { Exit::Interrupted } else { Exit::Success })
}

impl Arguments {
    fn options(&self, memory: Option<u64>) -> Options {
        let Impaired { loss, reorder, reorder_span: span, duplicate, seed, .. } = self.impaired;
        let mut options = Options::default();
        options.rate = self.rate.0;
        options.repeats = self.repeats;
        options.restart_s = self.restart;
        options.first = self.first_count;
        options.packet_bytes = self.packet_bytes;
        options.heap_times = self.heap_times;
        options.kept_bytes = options.kept_bytes.min(memory.unwrap_or(u64::MAX));
        options.impairments = impair::Options { loss, reorder, span, duplicate, seed };
        options
    }

    /// Refuses options that do not fit each other.
    fn check(&self) -> Result<()> {
        let is_ring = self.target.is_ring();
        if let (true, Some(list)) = (is_ring, &self.impaired.lost_list) {
            let rule = "it lists samples in lost packets, and rings lose none";
            return Err(Error::parameter("--lost-list", list.display(), rule));
        }
        if let (true, Some(times)) = (is_ring, self.heap_times) {
            let rule = "it is for packets, and rings have none";
            return Err(Error::parameter("--heap-times", times, rule));
        }
        let pipe = self.inputs.iter().find(|path| is_stream(path));
        match pipe.filter(|_| self.repeats != 1) {
            None => Ok(()),
            Some(pipe) => {
                let rule = format!("{} can be read once only", shown(pipe));
                Err(Error::parameter("--loop", self.repeats, rule))
            }
        }
    }

    /// Opens the recording at its first sample.
    fn open(&self, common: &Common) -> Result<Recording> {
        let input = self.inputs.first().map_or(Path::new(""), PathBuf::as_path);
        let is_pipe = self.inputs.iter().any(|path| is_stream(path));
        if !is_pipe && voltages::is_voltages(input)? {
            let source = self.lacking.open(&self.inputs, self.allow_gaps)?;
            let channels = self.channels.map(|Channels { first, last }| first..last + 1);
            let source = Selection { channels, polarization: self.pol }.of(source)?;
            say::warn_of_recording(source.warnings(), source.cut(), common.quiet);
            return Ok(Recording::Voltages(source));
        }
        if let Some(Channels { first, last }) = self.channels {
            let rule = format!("it is for voltages, and {} holds none", shown(input));
            return Err(Error::parameter("--channels", format!("{first}:{last}"), rule));
        }
        let source = selection::open(&self.inputs, self.pol, self.allow_gaps)?;
        self.lacking.check_none(input)?;
        say::warn_of_recording(source.warnings(), source.cut(), common.quiet);
        Ok(Recording::Spectra(source))
    }
}

impl Document {
    /// Describes a stream to `target`; only a request to stop made it incomplete.
    pub(crate) fn new(target: String, content: &Content, summary: &Summary) -> Self {
        Self {
            target,
            content: if matches!(content, Content::Spectra(_)) { "spectra" } else { "voltages" },
            samples: summary.samples,
            data_s: summary.data_s,
            packets: summary.packets,
            header_packets: summary.header_packets,
            bytes: summary.bytes,
            dropped: summary.dropped,
            delayed: summary.delayed,
            duplicated: summary.duplicated,
            restarts: summary.restarts,
            behind_s: summary.behind_s,
            lost_list: None,
            complete: !summary.is_stopped,
            reason: summary.is_stopped.then(|| STOPPED.to_owned()),
        }
    }

    /// Formats the document for a terminal.
    pub(crate) fn table(&self, summary: &Summary) -> String {
        let mut text = format!(
            "{}: {} samples of {}, {:.3} s of data in {:.3} s",
            self.target, self.samples, self.content, self.data_s, summary.elapsed_s
        );
        match self.packets {
            0 => {
                let _ = write!(text, "; {} bytes", self.bytes);
            }
            packets => {
                let _ = write!(text, "; {packets} packets of {} bytes in all", self.bytes);
            }
        }
        let counts = [
            (self.dropped, "packets lost"),
            (self.delayed, "packets delayed"),
            (self.duplicated, "packets sent twice"),
            (self.restarts, "restarts"),
        ];
        for (count, words) in counts.into_iter().filter(|(count, _)| *count > 0) {
            let _ = write!(text, "\n  {count} {words}");
        }
        if let Some(reason) = &self.reason {
            let _ = write!(text, "\n  not complete: {reason}");
        }
        text
    }
}

/// Listener of the sender: signals, progress, and the list of lost samples.
struct Listener<'a> {
    progress: Progress,
    list: Option<BufWriter<File>>,
    path: &'a Path,
    /// Missing part of a truncated recording.
    cut: Option<String>,
    quiet: bool,
}

impl<'a> Listener<'a> {
    fn new(
        recording: &Recording,
        arguments: &'a Arguments,
        common: &Common,
        files: Option<&Files>,
    ) -> Result<Self> {
        let (times, channels) = match recording {
            Recording::Spectra(source) => (source.header().times, source.header().channels()),
            Recording::Voltages(source) => (source.header().times, source.header().streams()),
        };
        let total = times.filter(|_| arguments.repeats > 0);
        let total = total.map(|times| times.saturating_mul(arguments.repeats));
        let path = arguments.impaired.lost_list.as_deref().unwrap_or(Path::new(""));
        let list = files.map(|files| {
            let mut list = BufWriter::new(File::create(files.main())?);
            writeln!(list, "{COLUMNS}")?;
            Ok(list)
        });
        let list = list.transpose().map_err(|error| Error::io(path, error))?;
        let progress = Progress::new(common, total, channels, recording.content().tsamp_s());
        progress.doing("Sending");
        Ok(Self { progress, list, path, cut: None, quiet: common.quiet })
    }

    fn finish(&mut self) -> Result<()> {
        self.progress.finish();
        let flushed = self.list.as_mut().map_or(Ok(()), BufWriter::flush);
        flushed.map_err(|error| Error::io(self.path, error))
    }
}

impl Monitor for Listener<'_> {
    fn stops(&mut self) -> bool {
        let is_requested = interrupt::requested();
        if is_requested {
            // The stream's end and the summary take less than the time after which a run that waits is ended.
            interrupt::finishing();
        }
        is_requested
    }

    fn sent(&mut self, samples: u64) {
        self.progress.at(samples);
    }

    fn cut(&mut self, why: &str) {
        say::warn_of_recording(&[], Some(why), self.quiet);
        self.cut = Some(why.to_owned());
    }

    fn waits(&mut self, why: &str) {
        warning!(quiet: self.quiet, "the ring is full: {why}.");
    }

    fn lost(&mut self, lost: &Lost) -> Result<()> {
        let Some(list) = &mut self.list else { return Ok(()) };
        let Lost { start, first, times, source } = lost;
        let written = writeln!(list, "{first},{times},{source},{start}");
        written.map_err(|error| Error::io(self.path, error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_numbers_or_max() {
        assert!(parse_rate("max").unwrap().0.is_none());
        assert_eq!(parse_rate("2.5").unwrap().0, Some(2.5));
        for bad in ["", "0", "-1", "nan", "inf", "fast", "1e40"] {
            assert!(parse_rate(bad).is_err(), "{bad}");
        }
    }
}
