//! `sidereal live spiir`: searches strain that arrives as frame files for compact binaries.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::{ArgGroup, Args};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sidereal::backend::Backend;
use sidereal::backend::threads::Threads;
use sidereal::geometry::{INTERFEROMETERS, Interferometer};
use sidereal::io::templates::{self, Templates};
use sidereal::live::frames::{
    Begun, Channels, Counts, FrameFolder, FrameStreams, Gap, Patience, Reason, Span,
};
use sidereal::pipeline::Ending;
use sidereal::pipeline::cbc::{
    Awaited, Input, Latency, OnlineDetector, OnlineSearch, Spectrum, Whitening,
};
use sidereal::spiir::coincidence::{self, Change};
use sidereal::trace::{self, Work};
use sidereal::units::Gps;
use sidereal::{Error, Result};

use super::inputs::{Whiten, split};
use super::search::{Detection, EventRow, LatencyRow, event_row};
use super::templates::{self as options, Design, Placement};
use crate::common::{self, Common, tell_notes};
use crate::interrupt::{self, Exit};
use crate::numbers::within;
use crate::output::{Contents, Existing, Folder, Writing};
use crate::plots::{plural, short};
use crate::provenance::{Product, Provenance, Run};
use crate::say::note;
use crate::streams::free_name;
use crate::{errors, flags, json};

/// Files of the lines of events and of gaps, in the folder of all runs.
const EVENTS: &str = "events.ndjson";
const GAPS: &str = "gaps.ndjson";

/// Help of --psd.
const PSD: &str = "Initial noise spectrum, also that of the templates: aligo or a file. A file has two columns, Hz and strain^2/Hz \
     (strain/sqrt(Hz) if its name contains asd), or is .npy";

/// Longest wait for files between looks at the folders.
const LOOK: Duration = Duration::from_millis(100);

/// Seconds of strain for which a backend is chosen.
const CHOSEN_S: u64 = 3600;

/// Search strain for compact binaries as it arrives: frame files (GWF) in a folder for each detector.
#[derive(Args, Clone, Debug)]
#[command(group = ArgGroup::new("waves").args(["templates", "masses"]).required(true))]
#[command(
    mut_arg("causal", |causal| causal.default_value("true").hide(true)),
    mut_arg("psd", |psd| psd.default_value("aligo").help(PSD).long_help(PSD)),
    mut_arg("psd_average", |average| average.hide(true)),
    mut_arg("whitening", |whitening| whitening.default_value("minimum-phase")),
    mut_arg("resampling", |resampling| resampling.default_value("low-latency")),
    mut_arg("gate_pad", |pad| pad.default_value("0.05"))
)]
pub(crate) struct LiveArguments {
    /// Folder in which a detector's frames appear, NAME=FOLDER; once for each detector.
    ///
    /// Files are named OBSERVATORY-TAG-GPS-DURATION.gwf, with whole or decimal seconds, and should be renamed into place. The
    /// search begins with the oldest frame that lies within an hour of the next ones.
    #[arg(long, value_name = "NAME=FOLDER", required = true, help_heading = "Strain")]
    frames: Vec<PathBuf>,
    /// Channels of the strain, separated by commas [default: the only floating-point channel of a detector, or the only one that
    /// ends in STRAIN].
    #[arg(long, value_name = "NAMES", value_delimiter = ',', help_heading = "Strain")]
    channel: Vec<String>,
    /// Channels of the state vectors, separated by commas [default: H1:GDS-CALIB_STATE_VECTOR of H1:GDS-CALIB_STRAIN and
    /// likewise, or GWOSC's ..._DQMASK, if the frames have it].
    #[arg(long, value_name = "NAMES", value_delimiter = ',', help_heading = "Strain")]
    state: Vec<String>,
    /// Use only strain with these bits of the state vector, by name or number [default: HOFT_OK,OBSERVATION_INTENT, or
    /// DATA,CBC_CAT1 of a DQMASK].
    ///
    /// Separated by commas; none uses all strain.
    #[arg(long, value_name = "BITS", help_heading = "Strain")]
    quality: Option<String>,
    /// Announce events without a detector whose strain is this many seconds later than another detector's.
    ///
    /// A frame that is missing before a later frame of its detector, or that cannot be read, becomes a gap after the same time.
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 1.0,
        allow_negative_numbers = true,
        help_heading = "Strain"
    )]
    wait: f64,
    /// Count strain of a stopped detector as a gap this many seconds after another detector's strain of that time arrived.
    ///
    /// Only then do events of that time become final. Files of that time that arrive later are not used.
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 60.0,
        allow_negative_numbers = true,
        help_heading = "Strain"
    )]
    give_up: f64,
    /// End when all strain before this GPS time has been searched [default: goes on until it is interrupted].
    #[arg(long, value_name = "GPS", allow_negative_numbers = true, help_heading = "Strain")]
    until: Option<f64>,
    /// Template file; a bank is made from it for the spectrum of --psd.
    #[arg(long, value_name = "FILE", help_heading = "Templates")]
    templates: Option<PathBuf>,
    #[command(flatten)]
    placement: Placement,
    #[command(flatten)]
    design: Design,
    #[command(flatten)]
    whitening: Whiten,
    #[command(flatten)]
    detection: Detection,
    /// Folder for events.ndjson, gaps.ndjson and the folders of runs, which is made if it is missing.
    #[arg(short, long, value_name = "DIR", default_value = "live", help_heading = "Output")]
    output: PathBuf,
    /// List at most this many of the loudest events in events.json.
    #[arg(long, value_name = "N", default_value_t = 1000, help_heading = "Output")]
    max_events: usize,
}

/// State of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum State {
    /// It was found; later strain, or that of a late detector, may change it.
    First,
    /// A higher-ranked coincidence has replaced it.
    Better,
    /// No later strain changes it.
    Final,
    /// A coincidence of another event outranks it.
    Retracted,
}

/// Event of a live search as a line of JSON.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct EventLine {
    state: State,
    /// Number of the event in its run, the same in all of its lines.
    number: u64,
    /// Folder of the run.
    observation: String,
    #[serde(flatten)]
    event: EventRow,
    /// Time of this line, in seconds since 1970.
    written_unix_s: f64,
}

/// Gap of a detector as a line of JSON.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct GapLine {
    detector: String,
    /// Folder of the run.
    observation: String,
    /// First time, and the time after the last, of the gap or of the frames that have it, in GPS seconds.
    start_gps: f64,
    end_gps: f64,
    /// missing, stopped, damaged, vanished, channel, state or not_finite.
    reason: &'static str,
    /// Invalid strain in that time.
    seconds: f64,
    /// Fault of the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

/// Contents of events.json.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct Document {
    /// Whether the run reached --until; otherwise `reason` states why not.
    complete: bool,
    reason: Option<String>,
    /// Final events, loudest first.
    events: Vec<EventRow>,
    /// Total number of final events, and of retracted ones.
    found: u64,
    retracted: u64,
    detectors: Vec<DetectorRow>,
    /// Largest latency of a trigger after its sample.
    latency_s: LatencyRow,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
struct DetectorRow {
    name: String,
    /// Channel of the strain; absent if no frame of the detector could be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    channel: Option<String>,
    start_gps: f64,
    rate_hz: u32,
    duration_s: f64,
    /// Strain that was valid.
    valid_s: f64,
    /// Time in which triggers were possible.
    livetime_s: f64,
    templates: usize,
    filters: usize,
    lowest_match: f64,
    triggers: u64,
    /// Frames that were read.
    frames: u64,
    /// Invalid strain by reason.
    gaps: BTreeMap<&'static str, GapRow>,
    /// Files whose time had passed as a gap.
    late: u64,
    /// Files whose time had been read.
    repeated: u64,
}

/// Invalid strain of one reason.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
struct GapRow {
    /// Pieces of at most a second of missing strain, or frames with invalid samples.
    gaps: u64,
    seconds: f64,
}

/// Contents of the folder of a run.
const CONTENTS: Contents = Contents {
    verb: "live spiir",
    documents: &["events.json"],
    writes: |_, name| name == "events.json",
};

/// Runs the verb.
pub(crate) fn run(arguments: &LiveArguments, common: &Common) -> Result<Exit> {
    let patience = arguments.patience()?;
    let folders = arguments.folders()?;
    let search_options = arguments.detection.options()?;
    let templates = arguments.templates.as_deref().map(templates::open).transpose()?;
    let mut streams = FrameStreams::open(&folders, patience)?;
    if !common.quiet {
        let places: Vec<String> = folders
            .iter()
            .map(|one| format!("{} in {}", one.detector, one.folder.display()))
            .collect();
        note!("waiting for frames of {}", places.join(", "));
    }
    let begun = loop {
        interrupt::check()?;
        streams.look();
        if let Some(begun) = streams.begin()? {
            break begun;
        }
        streams.wait(LOOK);
    };
    let whitening = arguments.whitening.whitening(begun.rate_hz, f64::INFINITY, common.memory)?;
    let input = arguments.input(templates, &whitening, begun.rate_hz, common)?;
    let waveforms = match &input {
        Input::Shared(source) => source.waveforms.len(),
        Input::Templates(source) => source.waveforms.len(),
        Input::Bank(bank) => bank.templates.len(),
    };
    let ratios = folders.len() as u64 * waveforms as u64 * u64::from(begun.rate_hz) * CHOSEN_S;
    let chosen = || common.backend_for(common::Work::on_ratios(ratios));
    let backend = common.asked_backend()?.map_or_else(chosen, Ok)?;
    let awaited =
        |one: &FrameFolder| Awaited { detector: one.detector.clone(), input: input.clone() };
    let awaited = folders.iter().map(awaited).collect();
    let options = search_options(whitening);
    let search = OnlineSearch::new(awaited, begun.start, begun.rate_hz, &options, &backend)?;
    fs::create_dir_all(&arguments.output).map_err(|error| Error::io(&arguments.output, error))?;
    let name = (begun.start.ns.div_euclid(1_000_000_000)).to_string();
    let place = free_name(&arguments.output, &name, "");
    let writing = Writing { contents: CONTENTS, existing: Existing::Refuse, inputs: &[], common };
    let folder = Folder::begin(&place, &writing)?;
    let lines = Lines::begin(&arguments.output, &place, common)?;
    let names: Vec<String> = folders.iter().map(|one| one.detector.clone()).collect();
    let until = arguments.until.map(Gps::from_s);
    let mut live = Live { arguments, names, streams, search, lines, begun, until };
    let mut ending = live.search().unwrap_or_else(Ending::after);
    if matches!(ending, Ending::Stopped) {
        interrupt::finishing();
    }
    // An error ends the search; the document says so, and has the events that were found.
    let ended = live.search.end().and_then(|()| live.write_changes());
    if let (Err(error), false) = (ended, matches!(ending, Ending::Failed(_))) {
        ending = Ending::after(error);
    }
    tell_notes(&backend, common);
    let product = live.product(&ending, &backend, common)?;
    json::write(&folder.file("events.json"), &product)?;
    folder.finish()?;
    if common.json {
        json::print(&product)?;
    } else if !common.quiet {
        note!("{}", product.document.text(&place));
    }
    Ok(errors::ended(&ending, &place))
}

impl LiveArguments {
    fn patience(&self) -> Result<Patience> {
        within("--wait", self.wait, 0.0..=3600.0, "an hour")?;
        within("--give-up", self.give_up, 0.0..=86_400.0, "a day")?;
        if let Some(until) = self.until {
            within("--until", until, 0.0..=5e9, "GPS seconds")?;
        }
        let seconds = Duration::from_secs_f64;
        Ok(Patience { wait: seconds(self.wait), give_up: seconds(self.give_up) })
    }

    /// Returns the folder of each detector, with its channels.
    fn folders(&self) -> Result<Vec<FrameFolder>> {
        let bits = self.quality.as_ref().map(|words| {
            let words = words.split(',').map(str::trim);
            words.filter(|word| !word.is_empty() && *word != "none").map(str::to_owned).collect()
        });
        let own = |names: &[String], detector: &str| {
            let is_own =
                |name: &&String| name.split_once(':').is_some_and(|(own, _)| own == detector);
            names.iter().find(is_own).cloned()
        };
        let mut folders: Vec<FrameFolder> = Vec::new();
        for word in &self.frames {
            let (Some(detector), folder) = split(word) else {
                let rule = "write NAME=FOLDER, as in H1=/dev/shm/kafka/H1";
                return Err(Error::parameter("--frames", word.display(), rule));
            };
            if Interferometer::by_name(&detector).is_none() {
                let known: Vec<&str> = INTERFEROMETERS.iter().map(|one| one.name).collect();
                let rule = format!("known detectors are {}", known.join(", "));
                return Err(Error::parameter("--frames", detector, rule));
            }
            let channels = Channels {
                strain: own(&self.channel, &detector),
                state: own(&self.state, &detector),
                bits: bits.clone(),
            };
            folders.push(FrameFolder { detector, folder, channels });
        }
        for (option, names) in [("--channel", &self.channel), ("--state", &self.state)] {
            let is_used = |name: &str| {
                folders
                    .iter()
                    .any(|one| name.split_once(':').is_some_and(|(own, _)| own == one.detector))
            };
            if let Some(unused) = names.iter().find(|name| !is_used(name)) {
                let rule = "it must begin with the name of a detector of --frames and a colon";
                return Err(Error::parameter(option, unused, rule));
            }
        }
        Ok(folders)
    }

    /// Returns the templates for all detectors.
    fn input(
        &self,
        templates: Option<Templates>,
        whitening: &Whitening,
        rate_hz: u32,
        common: &Common,
    ) -> Result<Input> {
        let threads = Threads::new(common.threads()?);
        let templates = match (templates, &whitening.spectrum) {
            (Some(templates), _) => templates,
            (None, Spectrum::Causal(psd, _)) => {
                let (placed, report) =
                    self.placement.place(psd, &self.design, rate_hz, &threads)?;
                if !common.quiet {
                    note!("{}", report.text());
                }
                options::placed(&placed)
            }
            (None, _) => {
                let rule = "strain that arrives needs a spectrum that is known beforehand";
                return Err(Error::parameter("--psd", "of the recording", rule));
            }
        };
        let source = self.design.source(templates, rate_hz, &threads, common.quiet)?;
        Ok(Input::Shared(Arc::new(source)))
    }
}

/// A search that is going on.
struct Live<'a> {
    arguments: &'a LiveArguments,
    names: Vec<String>,
    streams: FrameStreams,
    search: OnlineSearch,
    lines: Lines,
    begun: Begun,
    until: Option<Gps>,
}

impl Live<'_> {
    /// Searches strain as it arrives, until the end or a signal.
    fn search(&mut self) -> Result<Ending> {
        let mut waited = Vec::new();
        // Searched at once, so that a signal is noticed within the frames of a backlog.
        let most = self.begun.rate_hz as usize;
        loop {
            self.streams.look();
            let mut is_idle = true;
            let mut is_ended = self.until.is_some();
            for detector in 0..self.names.len() {
                let next = self.streams.next(detector);
                if self.until.zip(next).is_some_and(|(until, next)| next >= until) {
                    continue;
                }
                is_ended = false;
                let Some(block) = self.streams.take(detector)? else { continue };
                is_idle = false;
                self.lines.block(&self.names[detector], block.gaps, self.begun.rate_hz)?;
                let _span = trace::span(Work::Compute, "search");
                for (samples, valid) in block.samples.chunks(most).zip(block.valid.chunks(most)) {
                    self.search.push(detector, samples, valid)?;
                    if interrupt::requested() {
                        return Ok(Ending::Stopped);
                    }
                }
            }
            self.streams.waited(&mut waited);
            self.changes(&waited)?;
            if is_ended {
                return Ok(Ending::Complete);
            }
            if interrupt::requested() {
                return Ok(Ending::Stopped);
            }
            if is_idle {
                self.streams.wait(LOOK);
            }
        }
    }

    /// Writes the events that have changed.
    fn changes(&mut self, waited: &[Gps]) -> Result<()> {
        let mut changes = Vec::new();
        self.search.changes(waited, &mut changes)?;
        if changes.is_empty() {
            return Ok(());
        }
        let bank = self.search.detectors().next().map(|one| one.bank);
        for change in &changes {
            let names = self.names.iter().map(String::as_str);
            let row = event_row(&change.event, names, bank);
            self.lines.event(change, row)?;
        }
        self.lines.loudest.truncate(self.arguments.max_events);
        Ok(())
    }

    /// Writes the last events of a search that has ended, and the gaps that are open.
    fn write_changes(&mut self) -> Result<()> {
        let never = vec![Gps { ns: i64::MIN / 4 }; self.names.len()];
        self.changes(&never)?;
        self.lines.end()
    }

    fn product(
        self,
        ending: &Ending,
        backend: &Backend,
        common: &Common,
    ) -> Result<Product<Document>> {
        let mut detectors = Vec::new();
        let mut latency = Latency::default();
        for (index, one) in self.search.detectors().enumerate() {
            let channel = self.streams.channel(index).map(str::to_owned);
            detectors.push(DetectorRow::new(&one, channel, self.streams.counts(index), self.begun));
            latency = one.latency;
        }
        for (row, livetime_s) in detectors.iter_mut().zip(self.search.livetimes_s()) {
            row.livetime_s = livetime_s;
        }
        let document = Document {
            complete: ending.is_complete(),
            reason: flags::reason(ending),
            events: self.lines.loudest,
            found: self.lines.found,
            retracted: self.lines.retracted,
            detectors,
            latency_s: latency.into(),
        };
        let run = Run::new(common).on(backend).live();
        Ok(Product::new("live-spiir", document, Provenance::new(common, &[])?, run))
    }
}

impl DetectorRow {
    fn new(
        one: &OnlineDetector<'_>,
        channel: Option<String>,
        counts: &Counts,
        begun: Begun,
    ) -> Self {
        let seconds = |samples: u64| samples as f64 / f64::from(begun.rate_hz);
        let gaps = Reason::ALL.iter().zip(&counts.gaps).filter(|(_, count)| count.gaps > 0);
        let fits = one.bank.templates.iter().map(|template| template.fit);
        Self {
            name: one.detector.to_owned(),
            channel,
            start_gps: begun.start.s(),
            rate_hz: begun.rate_hz,
            duration_s: seconds(counts.samples),
            valid_s: seconds(counts.valid()),
            livetime_s: 0.0,
            templates: one.bank.templates.len(),
            filters: one.bank.templates.iter().map(|template| template.filters.filters()).sum(),
            lowest_match: fits.fold(1.0, f64::min),
            triggers: one.triggers,
            frames: counts.frames,
            gaps: gaps
                .map(|(reason, count)| {
                    (reason.name(), GapRow { gaps: count.gaps, seconds: seconds(count.samples) })
                })
                .collect(),
            late: counts.late,
            repeated: counts.repeated,
        }
    }
}

impl Document {
    /// Formats a line for each detector, and the number of events.
    fn text(&self, place: &Path) -> String {
        let mut text = String::new();
        for one in &self.detectors {
            let gaps = one
                .gaps
                .iter()
                .map(|(reason, row)| format!(", {} s {reason}", short(row.seconds, 4)));
            let _ = writeln!(
                text,
                "{}: {} s, {} s of them valid{}; {} with {}, {}",
                one.name,
                short(one.duration_s, 6),
                short(one.valid_s, 6),
                gaps.collect::<String>(),
                plural(one.templates, "template"),
                plural(one.filters, "filter"),
                plural(one.triggers as usize, "trigger"),
            );
        }
        text + &format!("{}: {}", place.display(), plural(self.found as usize, "event"))
    }
}

/// Lines of events and gaps, printed and appended to files.
struct Lines {
    events: Appended,
    gaps: Appended,
    observation: String,
    is_quiet: bool,
    /// Gaps of each detector that may go on, with the seconds of invalid strain in them.
    open: BTreeMap<String, Vec<GapLine>>,
    /// Final events, loudest first.
    loudest: Vec<EventRow>,
    found: u64,
    retracted: u64,
}

/// File to which lines are appended.
struct Appended {
    path: PathBuf,
    file: File,
}

impl Appended {
    fn open(path: PathBuf) -> Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(&path);
        let file = file.map_err(|error| Error::io(&path, error))?;
        Ok(Self { path, file })
    }

    fn line(&mut self, text: &str) -> Result<()> {
        let written = self.file.write_all(format!("{text}\n").as_bytes());
        written.map_err(|error| Error::io(&self.path, error))
    }
}

impl Lines {
    /// Opens the files in a folder; their earlier lines stay.
    fn begin(folder: &Path, observation: &Path, common: &Common) -> Result<Self> {
        Ok(Self {
            events: Appended::open(folder.join(EVENTS))?,
            gaps: Appended::open(folder.join(GAPS))?,
            observation: observation.display().to_string(),
            is_quiet: common.quiet,
            open: BTreeMap::new(),
            loudest: Vec::new(),
            found: 0,
            retracted: 0,
        })
    }

    /// Writes an event that has changed.
    fn event(&mut self, change: &Change, event: EventRow) -> Result<()> {
        let state = match change.state {
            coincidence::State::First => State::First,
            coincidence::State::Better => State::Better,
            coincidence::State::Final => State::Final,
            coincidence::State::Retracted => State::Retracted,
        };
        match state {
            State::Final => {
                self.found += 1;
                let place = self.loudest.partition_point(|other| other.ranking >= event.ranking);
                self.loudest.insert(place, event.clone());
            }
            State::Retracted => self.retracted += 1,
            State::First | State::Better => {}
        }
        let written = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let line = EventLine {
            state,
            number: change.number,
            observation: self.observation.clone(),
            event,
            written_unix_s: written.as_secs_f64(),
        };
        let text = json::line(&line)?;
        self.events.line(&text)?;
        if !self.is_quiet {
            json::say(&text)?;
        }
        Ok(())
    }

    /// Takes the gaps in a detector's next samples; writes those that do not go on.
    fn block(&mut self, detector: &str, gaps: &[Gap], rate_hz: u32) -> Result<()> {
        let before = self.open.remove(detector).unwrap_or_default();
        let mut open: Vec<GapLine> = Vec::with_capacity(gaps.len());
        for gap in gaps {
            let Span { start, end } = gap.span;
            open.push(GapLine {
                detector: detector.to_owned(),
                observation: self.observation.clone(),
                start_gps: start.s(),
                end_gps: end.s(),
                reason: gap.reason.name(),
                seconds: gap.samples as f64 / f64::from(rate_hz),
                why: gap.why.clone(),
            });
        }
        for line in before {
            let goes_on = |other: &&mut GapLine| {
                other.reason == line.reason
                    && other.start_gps <= line.end_gps
                    && other.why == line.why
            };
            match open.iter_mut().find(goes_on) {
                Some(other) => {
                    other.start_gps = line.start_gps;
                    other.seconds += line.seconds;
                }
                None => self.gap(&line)?,
            }
        }
        if !open.is_empty() {
            self.open.insert(detector.to_owned(), open);
        }
        Ok(())
    }

    /// Writes the gaps that may go on.
    fn end(&mut self) -> Result<()> {
        let open = std::mem::take(&mut self.open);
        open.into_values().flatten().try_for_each(|line| self.gap(&line))
    }

    fn gap(&mut self, line: &GapLine) -> Result<()> {
        let text = json::line(line)?;
        self.gaps.line(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_that_go_on_are_one_line() {
        let home = tempfile::tempdir().unwrap();
        let mut lines = Lines {
            events: Appended::open(home.path().join(EVENTS)).unwrap(),
            gaps: Appended::open(home.path().join(GAPS)).unwrap(),
            observation: "live/100".to_owned(),
            is_quiet: true,
            open: BTreeMap::new(),
            loudest: Vec::new(),
            found: 0,
            retracted: 0,
        };
        let gap = |s: f64, reason, samples| Gap {
            span: Span { start: Gps::from_s(s), end: Gps::from_s(s + 1.0) },
            reason,
            samples,
            why: None,
        };
        for s in [100.0, 101.0, 102.0] {
            lines.block("H1", &[gap(s, Reason::Stopped, 16)], 16).unwrap();
        }
        lines.block("L1", &[gap(101.0, Reason::Missing, 16)], 16).unwrap();
        lines.block("H1", &[gap(103.0, Reason::State, 4)], 16).unwrap();
        lines.block("H1", &[], 16).unwrap();
        lines.block("H1", &[gap(105.0, Reason::State, 4)], 16).unwrap();
        lines.end().unwrap();
        let text = fs::read_to_string(home.path().join(GAPS)).unwrap();
        let rows: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let row = |row: &serde_json::Value| {
            let number = |key: &str| row[key].as_f64().unwrap();
            (row["reason"].as_str().unwrap().to_owned(), number("start_gps"), number("seconds"))
        };
        let expected = [
            ("stopped".to_owned(), 100.0, 3.0),
            ("state".to_owned(), 103.0, 0.25),
            ("state".to_owned(), 105.0, 0.25),
            ("missing".to_owned(), 101.0, 1.0),
        ];
        assert_eq!(rows.iter().map(row).collect::<Vec<_>>(), expected);
    }
}
