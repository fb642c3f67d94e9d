//! `sidereal search`: finds bursts in a recording and plots them.

mod album;
mod beams;
mod cutouts;
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
mod dumps;
mod files;
mod line;
mod lines;
mod pictures;
mod report;
mod searched;
mod shares;
mod shown;

use std::fmt::Debug;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use beams::{Beam, BeamArguments, Beams, of_beam};
use clap::Args;
use files::{Journal, Spool};
use searched::Searched;
use sidereal::backend::Backend;
use sidereal::clean::{Bandpass, Mitigated};
use sidereal::dedisperse::dm_plan::{DmPlan, DmRange};
use sidereal::geometry::Dut1;
use sidereal::io::{FilterbankHeader, is_address};
use sidereal::pipeline::Ending;
use sidereal::pipeline::beams::Pointing;
use sidereal::pipeline::burst::{self, Checkpoint, Report, SearchOptions, Status};
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
use sidereal::pipeline::detections::Detections;
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
use sidereal::pipeline::dump::{self, Memory, Tap};
use sidereal::pipeline::recent::RecentRows;
use sidereal::single_pulse::repeating;
use sidereal::trace;
use sidereal::units::{Epoch, SECONDS_PER_DAY, dispersion_delay_s};
use sidereal::{Error, Result};

#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
use crate::alerts::{self, Alerts, Observation};
use crate::batch::{Batch, PerInput, check_apart};
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
use crate::behind;
use crate::common::{self, Common, Gpus};
use crate::dm_arguments::DmArguments;
use crate::events::EVENTS;
use crate::gaps::{self, Unsearched};
use crate::interrupt::{self, Exit};
use crate::output::{CHECKPOINT, Contents, Destination, Folder, is_state};
use crate::progress::Progress;
use crate::provenance::{Made, Provenance, Run};
use crate::ranks::{self, Group, Place};
use crate::report::{NAME as REPORT, add_to as add_report};
use crate::resume::{self, Identity, Resume, RunJournal, SavedCheckpoint};
use crate::rfi::{MAX_PER_MINUTE, Rfi};
use crate::say::{fault, more, note, warning};
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
use crate::selection::Source;
use crate::selection::{Opened, Recording, Selection, warn_of_flagged};
use crate::sky::{self, EarthOrientation};
use crate::space::Reserve;
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
use crate::streams::Expected;
use crate::streams::{self, free_name, name_of};
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
use crate::watch::Session;
use crate::{errors, json};

#[cfg(all(target_os = "linux", target_pointer_width = "64", feature = "page"))]
pub(crate) use album::FOLDER as PICTURES;
pub(crate) use beams::Document as BeamsDocument;
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
pub(crate) use dumps::Arguments as DumpArguments;
pub(crate) use line::{CandidateLine, DumpLine};
#[cfg(all(target_os = "linux", target_pointer_width = "64", feature = "page"))]
pub(crate) use line::{DUMPS, DumpState, NAME as LINES, State as CandidateState};
pub(crate) use pictures::{OVERVIEW, Pictures, is_one as is_picture, stem};
pub(crate) use report::{Found, Summary};

/// Limit in bytes on the record of removed interference, from which pictures clean rows again.
const REMOVALS_BYTES: u64 = 256 << 20;

/// Divisor of the memory limit; the quotient bounds that record as well.
const REMOVALS_PART: u64 = 32;

/// Search a recording for dispersed bursts and plot each candidate.
///
/// Voltages are channelized first (--channels); times then count from the recording's first sample, corrected for the
/// filter's delay.
///
/// Dedisperses the recording at many trial DMs, finds pulses of any width in each time series, and clusters the
/// events of each burst into one candidate. Writes a folder with candidates.cand (Heimdall's columns), candidates.csv
/// (FETCH's columns), one PNG per candidate, report.html for a browser and summary.json, which names the GPU if one
/// was used.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:\n  \
    sidereal search observation.fil\n  \
    sidereal search part1.fil part2.fil -o found --dm-min 100 --dm-max 800 --snr 7\n  \
    sidereal search beam*.fil --beams -o found\n  \
    sidereal search antenna*.fil --sum -o found\n  \
    sidereal search voltages.raw -o found --channels 64 --integrate 4 --coherent-dm 350\n  \
    sidereal search observation.fil.gz -o found --zero-dm")]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) recording: Recording,
    #[command(flatten)]
    destination: Destination,
    #[command(flatten)]
    batch: Batch,
    #[command(flatten)]
    beams: BeamArguments,
    #[command(flatten)]
    resume: Resume,
    #[command(flatten)]
    detection: Detection,
    #[command(flatten)]
    pub(crate) trials: DmArguments,
    #[command(flatten)]
    selection: Selection,
    /// Keep channels with outlying statistics.
    ///
    /// By default (--rfi auto) they are masked.
    #[arg(long, help_heading = "Channels and times")]
    no_auto_mask: bool,
    #[command(flatten)]
    orientation: EarthOrientation,
    #[command(flatten)]
    products: Products,
}

/// Options of the pulse detection.
#[derive(Args, Clone, Debug)]
struct Detection {
    /// Lowest S/N of a candidate.
    #[arg(
        long,
        default_value_t = 6.0,
        value_name = "S/N",
        allow_negative_numbers = true,
        help_heading = "Detection"
    )]
    snr: f64,
    /// Widest pulse to search for, in seconds.
    #[arg(
        long,
        default_value_t = 0.1,
        value_name = "SECONDS",
        allow_negative_numbers = true,
        help_heading = "Detection"
    )]
    max_width: f64,
    /// Window for the estimates of baseline and noise, in seconds.
    #[arg(
        long,
        default_value_t = 2.0,
        value_name = "SECONDS",
        allow_negative_numbers = true,
        help_heading = "Detection"
    )]
    baseline: f64,
    /// Longest wait of a trial for rows that only longer delays need, in seconds.
    ///
    /// Ranges of DM whose delays differ by more are dedispersed apart, which costs time and memory; beyond delays of 0.8 s the wait
    /// grows in proportion. A live stream has 0.1 s on a GPU and 0.4 s on the CPU by default, a recording no limit. Candidates
    /// are the same, but for those that the end cuts off.
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true, help_heading = "Detection")]
    max_wait: Option<f64>,
    /// Least fraction of the band for bursts cut off by the recording's start or end.
    ///
    /// A burst whose sweep began before the recording's start or passes its end is searched for in at least this
    /// fraction of the band; 1 searches for whole bursts only.
    #[arg(
        long,
        default_value_t = 0.25,
        value_name = "FRACTION",
        allow_negative_numbers = true,
        help_heading = "Detection"
    )]
    min_band: f64,
    /// Most candidates per minute of data.
    ///
    /// The strongest are kept, and the number of dropped ones is reported; 0 keeps all.
    #[arg(long, default_value_t = MAX_PER_MINUTE, value_name = "N", help_heading = "Detection")]
    max_per_minute: usize,
}

/// Output files.
#[derive(Args, Clone, Debug)]
struct Products {
    /// Write neither report.html nor pictures of candidates.
    #[arg(long, help_heading = "Output")]
    no_plots: bool,
    /// Draw all candidates by time and DM as a PNG file, overview.png, in place of report.html.
    #[arg(long, conflicts_with = "no_plots", help_heading = "Output")]
    png: bool,
    /// Draw at most this many of the best candidates; of a live stream, the first of each hour of an observation.
    #[arg(long, default_value_t = 100, value_name = "N", help_heading = "Output")]
    max_plots: usize,
    /// Also write each candidate as an .h5 file for the FETCH classifier.
    #[arg(long, help_heading = "Output")]
    fetch: bool,
    /// Also write candidates.singlepulse in PRESTO's format.
    #[arg(long, help_heading = "Output")]
    singlepulse: bool,
    /// Also write absorbed.csv.
    ///
    /// It lists every event above the threshold that was clustered into a candidate, with the line number of that
    /// candidate in candidates.csv.
    #[arg(long, help_heading = "Output")]
    list_absorbed: bool,
}

/// Contents of a search's folder.
pub(crate) const CONTENTS: Contents =
    Contents { verb: "search", documents: &["summary.json", "candidates.cand"], writes };

/// Returns whether a file of this name belongs to a search's folder.
pub(crate) fn writes(_: &Path, name: &str) -> bool {
    pictures::is_one(name)
        || matches!(name, "summary.json" | "candidates.cand" | "candidates.csv")
        || ["candidates.singlepulse", files::ABSORBED, files::NAME, REPORT].contains(&name)
}

/// Suffix of the folder's default name.
const SUFFIX: &str = "search";

/// Runs the verb, as one of several processes if mpirun has started them.
pub(crate) fn run(arguments: &Arguments, common: &Common) -> Result<Exit> {
    let Some(pointing) = arguments.beams.pointing() else {
        return arguments.batch.run(arguments, common);
    };
    match Place::of_environment() {
        None => run_beams(arguments, pointing, &mut Group::alone(), common),
        Some(place) => ranks::divided(place, common, |group, common| {
            run_beams(arguments, pointing, group, common)
        }),
    }
}

/// Searches one recording.
fn run_one(arguments: &Arguments, common: &Common) -> Result<Exit> {
    let also = arguments.also();
    let product = (SUFFIX, CONTENTS);
    let (recording, destination) = (&arguments.recording, &arguments.destination);
    let (folder, is_resumed) = arguments.resume.begin(
        &recording.files(),
        || destination.resume(recording, &also, product, common),
        || destination.begin(recording, &also, product, common),
        common,
    )?;
    let opening = trace::span(trace::Work::Read, "header and plan");
    let mut work = Work::begin(arguments, common)?;
    drop(opening);
    let reserve = Reserve::new(&folder.file("summary.json"));
    let mut found = work.search(&folder, if is_resumed { Keep::Resumed } else { Keep::Anew })?;
    drop(reserve);
    let writing = trace::span(trace::Work::Write, "products");
    work.write(&folder, &mut found)?;
    let place = folder.place().to_path_buf();
    let products = &arguments.products;
    if found.report.ending.is_read() && !products.no_plots && !products.png {
        add_report(&folder, &recording.name(), common);
    }
    folder.finish()?;
    drop(writing);
    if common.json {
        json::print_one(&found.document(), common.is_batch)?;
    } else if !common.quiet {
        json::say(&report::text(&found, &place))?;
    }
    Ok(errors::ended(&found.report.ending, &place))
}

/// Contents of the folder of a search of several beams.
const BEAMS: Contents =
    Contents { verb: "search", documents: &["summary.json", EVENTS], writes: writes_beams };

fn writes_beams(folder: &Path, name: &str) -> bool {
    match name.split_once('/') {
        Some((inner, rest)) => {
            inner.ends_with(SUFFIX) && (is_state(rest) || writes(&folder.join(inner), rest))
        }
        None => ["summary.json", EVENTS, REPORT].contains(&name),
    }
}

/// Beams that are searched with one plan, and what every process needs for it.
struct Planned {
    beams: Beams,
    backend: Backend,
    /// Backends that search beams at the same time.
    backends: Vec<Backend>,
    /// Settings of the whole run, for --resume.
    identity: Identity,
}

/// Searches several beams with one plan, and joins their candidates.
fn run_beams(
    arguments: &Arguments,
    pointing: Pointing,
    group: &mut Group<'_>,
    common: &Common,
) -> Result<Exit> {
    let planned = plan_beams(arguments, pointing, group, common);
    let planned = group.agree(planned)?;
    let folder = begin_beams(arguments, &planned.identity, group, common)?;
    let begun = Instant::now();
    let Planned { beams, backends, .. } = &planned;
    let search = |index: usize, backend: &Backend, others_end: &(dyn Fn() -> bool + Sync)| {
        let beam = &beams.all[index];
        if !common.quiet {
            note!("{} of {}: {}", index + 1, beams.all.len(), beam.name());
        }
        let own = of_beam(common, beam);
        let own = Common {
            memory: own.memory.map(|bytes| bytes / backends.len() as u64),
            no_progress: own.no_progress || backends.len() > 1,
            ..own
        };
        let beam =
            BeamSearch { index, beam, plan: &beams.all[0].plan, folder: &folder, others_end };
        beam.run(backend, arguments, &own)
    };
    let done = shares::search_all(&beams.all, group, backends, &folder, search);
    let exit = shares::exit(&done);
    match shares::gather(group, done, &beams.all)? {
        Some(done) => finish_beams(arguments, &planned, folder, done, begun, common),
        None => Ok(exit),
    }
}

/// Opens all beams, and checks every option before anything is written.
fn plan_beams(
    arguments: &Arguments,
    pointing: Pointing,
    group: &Group<'_>,
    common: &Common,
) -> Result<Planned> {
    let recording = &arguments.recording;
    let antennas = arguments.beams.antennas(recording)?;
    check_apart(&recording.inputs, |input| arguments.of_one(input).place())?;
    let backend = common.backend_for(common::Work::on_trials(&recording.inputs), Gpus::Several)?;
    let dm_constant = arguments.trials.dm_constant;
    let (mut all, mut options) = (Vec::new(), None);
    for path in &recording.inputs {
        // All antennas of a recording have one header.
        let own = arguments.of_beam(path, antennas.map(|_| 0));
        let opened = own.recording.open(dm_constant, &backend)?;
        let own = arguments.options(&opened)?;
        let header = from_first_row(&opened);
        for antenna in antennas.map_or(vec![None], |count| (0..count).map(Some).collect()) {
            let folder = arguments.of_beam(path, antenna).place();
            let folder = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let (path, header, plan) = (path.clone(), header.clone(), own.plan.clone());
            all.push(Beam { path, antenna, folder, header, plan });
        }
        options.get_or_insert(own);
    }
    if all.len() < group.count() {
        let rule =
            format!("the search has {} beams, and every rank searches at least one", all.len());
        return Err(Error::parameter(ranks::OPTION, group.count(), rule));
    }
    let beams = Beams::new(all, &arguments.beams, pointing, dm_constant)?;
    let backends = shares::backends(&backend, beams.all.len());
    let plan = beams.all[0].plan.clone();
    let options = options.map(|own| SearchOptions { plan: plan.clone(), ..own });
    let options = options.unwrap_or_else(|| SearchOptions::new(plan));
    let identity = arguments.identity_of_beams(pointing, &options, &backends[0])?;
    Ok(Planned { beams, backend, backends, identity })
}

/// Begins the folder of all beams at rank 0, or continues that of an interrupted run; other ranks fill the same folder.
fn begin_beams(
    arguments: &Arguments,
    identity: &Identity,
    group: &mut Group<'_>,
    common: &Common,
) -> Result<Folder> {
    let (recording, destination) = (&arguments.recording, &arguments.destination);
    let begin = || -> Result<Folder> {
        let also = arguments.also();
        let product = (beams::SUFFIX, BEAMS);
        let (folder, is_resumed) = arguments.resume.begin(
            &recording.files(),
            || destination.resume(recording, &also, product, common),
            || destination.begin(recording, &also, product, common),
            common,
        )?;
        let mut keeper = RunJournal::new(folder.file(""), identity.clone());
        if is_resumed {
            keeper.resume(folder.place())?;
        }
        keeper.checkpoint(&[])?;
        Ok(folder)
    };
    let own = if group.rank() == 0 { begin().map(Some) } else { Ok(None) };
    let own = group.agree(own)?;
    let name = own.as_ref().map(|folder| folder.file(""));
    let name = name.as_deref().and_then(Path::file_name).unwrap_or_default();
    let name = group.share(name.to_string_lossy().into_owned().into_bytes())?;
    let place = destination.place(recording, beams::SUFFIX);
    let other = || {
        let temporary = place.with_file_name(String::from_utf8_lossy(&name).as_ref());
        Folder::of_other(&place, temporary)
    };
    Ok(own.unwrap_or_else(other))
}

/// Joins the candidates of the beams that were searched, and writes the product of all beams.
fn finish_beams(
    arguments: &Arguments,
    planned: &Planned,
    folder: Folder,
    done: Vec<shares::Done>,
    begun: Instant,
    common: &Common,
) -> Result<Exit> {
    let (beams, recording) = (&planned.beams, &arguments.recording);
    let (searched, ending) = shares::settled(done);
    if searched.is_empty() {
        return without_beams(beams, folder, ending);
    }
    let elapsed_s = begun.elapsed().as_secs_f64();
    if !ending.is_read() {
        interrupt::finishing();
    }
    let document = beams.document(&searched, arguments.detection.snr, &ending)?;
    let data_s = searched.iter().map(|one| one.data_s).sum();
    let run = Run::new(common).on(&planned.backend).took(elapsed_s, data_s);
    let inputs = [recording.files(), arguments.also()].concat();
    let made = Made { provenance: Provenance::new(common, &inputs)?, run };
    let place = folder.place().to_path_buf();
    let text = beams::text(&document, &searched, elapsed_s, &place);
    beams::write_events(&folder.file(EVENTS), &document)?;
    let document = made.product("search-beams", document);
    json::write(&folder.file("summary.json"), &document)?;
    if ending.is_read() {
        for beam in &beams.all {
            resume::clear(&folder.file(&beam.folder))?;
        }
        resume::clear(&folder.file(""))?;
    }
    let products = &arguments.products;
    if !products.no_plots && !products.png {
        let title = place.file_name().unwrap_or_default().to_string_lossy();
        add_report(&folder, &title, common);
    }
    folder.finish()?;
    if common.json {
        json::print_one(&document, common.is_batch)?;
    } else if !common.quiet {
        json::say(&text)?;
    }
    Ok(errors::ended(&ending, &place))
}

/// Ends a run that has searched no beam to its end; its folder stays for --resume if a search can be continued.
///
/// # Errors
/// What ended the search.
fn without_beams(beams: &Beams, folder: Folder, ending: Ending) -> Result<Exit> {
    let has_checkpoint = |beam: &Beam| folder.file(&beam.folder).join(CHECKPOINT).exists();
    if !beams.all.iter().any(has_checkpoint) {
        resume::clear(&folder.file(""))?;
        return Err(ending.error());
    }
    drop(folder);
    match ending {
        Ending::Stopped => {
            fault!("stopped on request; --resume continues from there.");
            Ok(Exit::Interrupted)
        }
        failed => Err(failed.error()),
    }
}

/// Search of one of several beams, with the trials of all.
struct BeamSearch<'a> {
    /// Number of the beam.
    index: usize,
    beam: &'a Beam,
    plan: &'a DmPlan,
    /// Folder of all beams.
    folder: &'a Folder,
    /// Returns whether another process ended early, and asks this one to stop if the other was.
    others_end: &'a (dyn Fn() -> bool + Sync),
}

impl BeamSearch<'_> {
    /// Searches the beam and writes its folder, or continues what an interrupted run has left in it.
    ///
    /// # Errors
    /// What ended the search before the recording, or kept it from beginning.
    fn run(&self, backend: &Backend, arguments: &Arguments, common: &Common) -> Result<Searched> {
        let own = arguments.of_beam(&self.beam.path, self.beam.antenna);
        let mut work = Work::on(backend.clone(), &own, common)?;
        // The default trials depend on the telescope that a header names.
        work.options.plan = self.plan.clone();
        work.others_end = self.others_end;
        let folder = self.folder.inner(&self.beam.folder)?;
        let identity = work.identity()?;
        let left = SavedCheckpoint::with_journal(&folder.file(""), &identity, folder.place())?;
        if let Some((_, left)) = &left
            && let Some(searched) = Searched::of_state(&folder.file(""), self.index, left.state())?
        {
            return Ok(searched);
        }
        let keep = if left.is_some() { Keep::Resumed } else { Keep::Anew };
        let mut found = work.search(&folder, keep)?;
        if !found.report.ending.is_read() {
            return Err(found.report.ending.error());
        }
        work.write_files(&folder, &mut found)?;
        let searched = Searched::new(self.index, &found);
        if found.report.ending.is_read() {
            RunJournal::new(folder.file(""), identity).checkpoint(&searched.state())?;
        }
        Ok(searched)
    }
}

/// Options of what a live search does with its candidates, beside writing lists.
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
pub(crate) struct Actions<'a> {
    pub(crate) alerts: &'a alerts::Arguments,
    pub(crate) dumps: &'a DumpArguments,
    /// Triggers that come through the page.
    pub(crate) triggers: Option<alerts::Arrivals>,
}

/// Searches the observations of a live stream, each into a folder of its own, and writes lines for each candidate from the
/// moment it stands out. Ends as the session says, or after a request to stop; whatever ends it, alerts and dumps are ended and listed.
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
pub(crate) fn run_live(
    arguments: &Arguments,
    actions: Actions<'_>,
    session: &Session,
    common: &Common,
) -> Result<Exit> {
    arguments.check()?;
    actions.dumps.check()?;
    let mut arguments = arguments.clone();
    // Plots are drawn from the latest rows, and not at the end from a copy of all of them.
    let has_pictures = !std::mem::replace(&mut arguments.products.no_plots, true);
    let mut live = LiveSearch {
        arguments: &arguments,
        dumps: actions.dumps,
        quota: actions.dumps.quota(),
        memory: Memory::default(),
        has_pictures,
        parent: arguments.parent(),
        alerts: Some(Alerts::start(actions.alerts, actions.triggers, common)?),
        session,
        common,
    };
    let ended = live.observations();
    if let Some(alerts) = live.alerts {
        alerts.finish();
    }
    ended
}

/// Search of a live stream.
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
struct LiveSearch<'a> {
    arguments: &'a Arguments,
    dumps: &'a DumpArguments,
    /// Bytes that the dumps of the run may still take.
    quota: Option<Arc<AtomicU64>>,
    /// Memory of the ring of dumps, which all observations use.
    memory: Memory,
    has_pictures: bool,
    /// Folder of all observations.
    parent: PathBuf,
    /// Triggers and alerts, unless the lines of an observation have them.
    alerts: Option<Alerts>,
    session: &'a Session,
    common: &'a Common,
}

#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
impl LiveSearch<'_> {
    /// Searches observations until the session or a request to stop ends them.
    fn observations(&mut self) -> Result<Exit> {
        self.prepare()?;
        let mut done = 0;
        loop {
            let work = match Work::begin(self.arguments, self.common) {
                // The usual end of a program that waits for the next observation.
                Err(error) if error.is_stop() && done > 0 => return Ok(Exit::Interrupted),
                work => work?,
            };
            let exit = self.observation(work)?;
            done += 1;
            if exit != Exit::Success || done == self.session.observations {
                return Ok(exit);
            }
        }
    }

    /// Prepares for the stream before its sockets are opened, if files describe it: compiles kernels, and makes the memory of the
    /// ring of dumps.
    fn prepare(&self) -> Result<()> {
        let recording = &self.arguments.recording;
        let backend =
            self.common.backend_for(common::Work::on_trials(&recording.inputs), Gpus::Several)?;
        if !self.dumps.is_wanted()
            && let Some(header) = streams::described_spectra(&recording.inputs)?
        {
            let source = Source::Rows(Box::new(Expected { header }));
            return self.compile(Opened { source, geometry: None }, &backend);
        }
        let Some(header) = streams::described(&recording.inputs)? else { return Ok(()) };
        let source = Box::new(Expected { header: header.clone() });
        let dm_constant = self.arguments.trials.dm_constant;
        let opened = recording.channelized(source, dm_constant, &backend)?;
        if self.dumps.is_wanted() {
            let options = search_options(self.arguments, &opened, &backend)?;
            let about = about_stream(&opened, &options, &self.memory);
            self.dumps.prepare(&header, &about, self.common)?;
        }
        self.compile(opened, &backend)
    }

    /// Compiles the kernels of a search on a GPU, which would take seconds of the stream.
    fn compile(&self, mut opened: Opened, backend: &Backend) -> Result<()> {
        if !backend.is_gpu() {
            return Ok(());
        }
        let mut options = search_options(self.arguments, &opened, backend)?;
        options.memory = self.common.memory;
        burst::prepare(opened.source.for_search(), &options, backend)
    }

    /// Searches an observation.
    fn observation(&mut self, mut work: Work<'_>) -> Result<Exit> {
        let (parent, session, common) = (&self.parent, self.session, self.common);
        fs::create_dir_all(parent).map_err(|error| Error::io(parent, error))?;
        let mjd = work.header.tstart_mjd;
        let start = if mjd > 0.0 { Epoch::from_mjd(mjd) } else { Epoch::default() };
        let place = free_name(parent, &name_of(start), "");
        let folder = self.arguments.destination.at(&place, CONTENTS, common)?;
        let rows = work.recent(self.has_pictures, session)?;
        session.tell(|watcher| watcher.rows(rows.clone()));
        work.show_detections(&place, session);
        let drawn = rows.filter(|_| self.has_pictures);
        let album = drawn.map(|rows| work.album(parent, &place, rows, session)).transpose()?;
        let watcher = session.watcher.clone();
        let begin = lines::Begin { observation: &place, header: &work.header, album, watcher };
        let mut lines = lines::Lines::begin(parent, begin, common)?;
        if let Some(alerts) = &mut self.alerts {
            alerts.observe(parent, work.observation(&place))?;
        }
        let tap = work.tap.take();
        let about = dumps::About {
            observation: &place,
            options: &work.options,
            row_s: work.header.tsamp_s,
            quota: self.quota.clone(),
            memory: &self.memory,
        };
        lines.dumps = self.dumps.begin(tap, &about, session, common)?;
        lines.alerts = self.alerts.take();
        if let (Some(alerts), Some(dumps)) = (&mut lines.alerts, &lines.dumps) {
            alerts.dump_to(dumps.list.clone(), dumps.margin_s);
        }
        work.lines = Some(lines);
        let searched = search_into(&mut work, folder);
        if let Some(mut lines) = work.lines.take() {
            lines.finish_pictures();
            self.alerts = lines.alerts.take();
            if let Some(dumps) = lines.dumps.take() {
                for written in dumps.finish(common.quiet) {
                    if let Some(alerts) = &mut self.alerts {
                        alerts.dumped(&written.triggers, &written.file);
                    }
                }
            }
        }
        let found = searched?;
        interrupt::goes_on();
        if !common.quiet {
            let count = found.report.candidates.len();
            note!("{}: {:.3} s, {count} candidates", place.display(), found.report.data_s);
        }
        session.tell(|watcher| {
            watcher.rows(None);
            watcher.observed();
        });
        Ok(errors::ended(&found.report.ending, &place))
    }
}

/// Describes a stream that has not begun to its ring of dumps.
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
fn about_stream<'a>(
    opened: &Opened,
    options: &'a SearchOptions,
    memory: &'a Memory,
) -> dumps::About<'a> {
    let row_s = opened.source.header().tsamp_s;
    dumps::About { observation: Path::new(""), options, row_s, quota: None, memory }
}

/// Checks the ring of dumps of a stream that a file describes against the sweep, the latency and the machine's memory.
///
/// # Errors
/// [`Error::Parameter`] for a ring that is too short or too large; those of the file and of the options.
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
pub(crate) fn check_ring(
    arguments: &Arguments,
    dumps: &DumpArguments,
    common: &Common,
) -> Result<()> {
    let recording = &arguments.recording;
    if !dumps.is_wanted() {
        return Ok(());
    }
    let Some(header) = streams::described(&recording.inputs)? else { return Ok(()) };
    let backend = common.backend_for(common::Work::on_trials(&recording.inputs), Gpus::Several)?;
    let source = Box::new(Expected { header: header.clone() });
    let opened = recording.channelized(source, arguments.trials.dm_constant, &backend)?;
    let options = search_options(arguments, &opened, &backend)?;
    dumps.check_ring(&header, &about_stream(&opened, &options, &Memory::default()))
}

/// Searches a live observation and writes its folder, even if its last lines cannot be written.
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
fn search_into(work: &mut Work<'_>, folder: Folder) -> Result<Found> {
    let mut found = work.search(&folder, Keep::Anew)?;
    let lines = work.lines.as_mut();
    let listed = lines.map_or(Ok(()), |lines| lines.finish(&found.report.candidates));
    work.write(&folder, &mut found)?;
    folder.finish()?;
    listed.map(|()| found)
}

/// Searches into a folder that is being filled; the output refers to the recording as `shown`.
///
/// # Errors
/// As [`run`]; whatever ends the search before the recording.
pub(crate) fn run_into(
    folder: &Folder,
    arguments: &Arguments,
    shown: &Path,
    common: &Common,
) -> Result<Found> {
    let mut work = Work::begin(arguments, common)?;
    let mut found = work.search(folder, Keep::Nothing)?;
    found.header.path = shown.to_path_buf();
    found.files = vec![shown.to_path_buf()];
    work.write(folder, &mut found)?;
    if found.report.ending.is_read() { Ok(found) } else { Err(found.report.ending.error()) }
}

#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
impl Arguments {
    /// Returns the folder for the folders of live observations.
    pub(crate) fn parent(&self) -> PathBuf {
        self.destination.parent("live")
    }
}

/// Data that a search stores for `--resume`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Keep {
    /// Nothing: the search is part of a product that is made as a whole.
    Nothing,
    /// Journal and checkpoints of a new run.
    Anew,
    /// Journal and checkpoints, continued from those of an interrupted run.
    Resumed,
}

/// Length in seconds of a gulp of a live stream on a GPU and on the CPU, where short gulps cost more.
const LIVE_GULP_S: [f64; 2] = [0.05, 0.1];

/// Longest wait in seconds for rows of longer delays in a live stream, as above.
const LIVE_WAIT_S: [f64; 2] = [0.1, 0.4];

/// Seconds of rows in memory for a watcher alone.
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
const WATCHED_S: f64 = 2.0;

/// Seconds of detections that a watcher is shown.
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
const PLANE_S: f64 = 600.0;

fn recording_is_live(arguments: &Arguments) -> bool {
    arguments.recording.inputs.iter().any(|path| is_address(path))
}

/// Returns the options of a search of what was opened; those of a live stream have short gulps and waits.
fn search_options(
    arguments: &Arguments,
    opened: &Opened,
    backend: &Backend,
) -> Result<SearchOptions> {
    let mut options = arguments.options(opened)?;
    if recording_is_live(arguments) {
        // Candidates must not wait for a long gulp, nor for the longest delay of the plan.
        let which = usize::from(!backend.is_gpu());
        if options.gulp == 0 {
            let times = LIVE_GULP_S[which] / opened.source.header().tsamp_s;
            options.gulp = (times as usize).clamp(16, 1 << 16);
        }
        if arguments.detection.max_wait.is_none() {
            options.max_wait_s = LIVE_WAIT_S[which];
        }
    }
    Ok(options)
}

/// Returns the header of the rows with the start of the recording's first sample.
fn from_first_row(opened: &Opened) -> FilterbankHeader {
    let mut header = opened.source.header().clone();
    if header.tstart_mjd > 0.0 {
        header.tstart_mjd -= opened.delay_s() / SECONDS_PER_DAY;
    }
    header
}

/// One search with its options.
struct Work<'a> {
    arguments: &'a Arguments,
    common: &'a Common,
    backend: Backend,
    opened: Opened,
    /// Header whose start is the recording's first sample, the origin of all times.
    header: FilterbankHeader,
    options: SearchOptions,
    dut1: Dut1,
    spooled: bool,
    /// Returns whether another process of the run ended early, and asks this one to stop if the other was.
    others_end: &'a (dyn Fn() -> bool + Sync),
    /// Lines of candidates of a live search.
    lines: Option<lines::Lines>,
    /// Tap of the voltages of a live stream.
    #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
    tap: Option<Tap>,
}

impl<'a> Work<'a> {
    /// Opens the recording and checks every option before anything is written.
    fn begin(arguments: &'a Arguments, common: &'a Common) -> Result<Self> {
        let backend = common
            .backend_for(common::Work::on_trials(&arguments.recording.inputs), Gpus::Several)?;
        Self::on(backend, arguments, common)
    }

    /// Begins as [`Work::begin`] does, on a backend that several searches share.
    fn on(backend: Backend, arguments: &'a Arguments, common: &'a Common) -> Result<Self> {
        #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
        let mut tap = None;
        #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
        let wrap = &mut |source| {
            let (source, own) = dump::tap(source);
            tap = Some(own);
            Ok(source)
        };
        #[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
        let wrap = &mut Ok;
        let dm_constant = arguments.trials.dm_constant;
        let opened = arguments.recording.open_through(dm_constant, &backend, wrap)?;
        let header = from_first_row(&opened);
        let mut options = search_options(arguments, &opened, &backend)?;
        options.memory = common.memory;
        if !arguments.products.no_plots || arguments.products.fetch {
            let part = common.memory.map_or(u64::MAX, |limit| limit / REMOVALS_PART);
            options.removals_bytes = part.min(REMOVALS_BYTES) as usize;
        }
        arguments.recording.warn(opened.source.rows(), common);
        let dut1 = arguments.orientation.dut1(None)?;
        if report::place(&header).is_some() {
            let day = header.tstart_mjd.floor();
            let start = Epoch::new(day as i64, (header.tstart_mjd - day) * SECONDS_PER_DAY);
            sky::warn_of_orientation(&dut1, start, header.duration_s().unwrap_or(0.0), common);
        }
        let wanted = !arguments.products.no_plots || arguments.products.fetch;
        let spooled = arguments.recording.is_pipe() && wanted;
        let lines = None;
        Ok(Self {
            arguments,
            common,
            backend,
            opened,
            header,
            options,
            dut1,
            spooled,
            others_end: &|| false,
            lines,
            #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
            tap,
        })
    }

    /// Returns what alerts say of an observation.
    #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
    fn observation(&self, place: &Path) -> Observation {
        Observation {
            name: place.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            header: self.header.clone(),
            ranges: self.options.plan.ranges.clone(),
            dm_constant: self.options.dm_constant,
        }
    }

    /// Keeps the latest rows in memory for pictures and a watcher, if there is one of them.
    #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
    fn recent(&mut self, has_pictures: bool, session: &Session) -> Result<Option<Arc<RecentRows>>> {
        let rows = self.opened.source.rows().header().clone();
        let bytes = match (has_pictures, &session.watcher) {
            (true, _) => album::bytes(&rows, &self.options),
            (false, Some(_)) => album::bytes_of(WATCHED_S, &rows, &self.options),
            (false, None) => return Ok(None),
        };
        self.options.recent = Some(Arc::new(RecentRows::new(&rows, bytes)?));
        Ok(self.options.recent.clone())
    }

    /// Keeps the detections of the last minutes for a watcher, if there is one.
    #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
    fn show_detections(&mut self, observation: &Path, session: &Session) {
        let Some(watcher) = &session.watcher else { return };
        let highest = self.options.plan.ranges.last().map_or(0.0, |range| range.dm_max);
        let detections = Arc::new(Detections::new(PLANE_S, highest));
        self.options.detections = Some(Arc::clone(&detections));
        watcher.detections(detections, observation, self.first_s());
    }

    /// Returns the seconds from the observation's first sample to the first row searched.
    #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
    fn first_s(&self) -> f64 {
        self.opened.delay_s() + self.options.time_range.map_or(0.0, |range| range.0)
    }

    /// Prepares the pictures of a live search.
    #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
    fn album(
        &self,
        parent: &Path,
        observation: &Path,
        rows: Arc<RecentRows>,
        session: &Session,
    ) -> Result<album::Album> {
        let shown = shown::Shown {
            file: self.arguments.recording.name(),
            header: self.header.clone(),
            rfi: self.arguments.rfi().0,
            dm_constant: self.options.dm_constant,
            zero_dm: self.options.zero_dm,
            masked: Vec::new(),
        };
        let run = Run::new(self.common).on(&self.backend).live();
        let made = Made { provenance: Provenance::new(self.common, &self.inputs())?, run };
        let first_s = self.first_s();
        let (most, watcher) = (self.arguments.products.max_plots, session.watcher.clone());
        let about = album::About { rows, shown, first_s, made, watcher };
        album::Album::begin(parent, observation, most, about)
    }

    /// Runs the search; copies the rows of a pipe to a file for the plots.
    fn search(&mut self, folder: &Folder, keep: Keep) -> Result<Found> {
        self.tell();
        let total = self.header.times;
        let progress =
            Progress::new(self.common, total, self.header.channels(), self.header.tsamp_s);
        progress.doing("Searching");
        let others_end = self.others_end;
        #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
        let mut reporter =
            recording_is_live(self.arguments).then(|| behind::Reporter::new(self.common));
        let mut observe = |status: &Status| {
            progress.total(status.total);
            progress.at(status.times);
            #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
            if let Some(reporter) = &mut reporter {
                reporter.look();
            }
            others_end();
            !interrupt::requested()
        };
        let (keeper, resumed) = self.keeper(folder, keep == Keep::Resumed)?;
        let (delay_s, has_checkpoints) = (self.opened.delay_s(), self.has_checkpoints());
        let source = &mut self.opened.source;
        let mut lines = self.lines.take();
        let mut journal =
            Journal::new(keeper, delay_s, has_checkpoints, lines.as_mut(), &mut observe);
        let resumed = resumed.as_ref();
        let report = if keep == Keep::Nothing {
            burst::search(source.for_search(), &self.options, &self.backend, journal.observe)
        } else if self.spooled {
            let mut spool = Spool::new(source.rows_mut(), &folder.file(files::NAME))?;
            let spool = burst::Source::Rows(&mut spool);
            burst::search_from(spool, &self.options, &self.backend, resumed, &mut journal)
        } else {
            burst::search_from(
                source.for_search(),
                &self.options,
                &self.backend,
                resumed,
                &mut journal,
            )
        };
        self.lines = lines;
        if report.is_err() && keep == Keep::Anew {
            // The run found nothing worth resuming.
            resume::clear(&folder.file(""))?;
        }
        let report = report?;
        progress.finish();
        #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
        let dropped = reporter.as_mut().and_then(behind::Reporter::sum);
        #[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
        let dropped = None;
        common::tell_notes(&self.backend, self.common);
        let report = from_first_sample(report, self.opened.delay_s());
        self.warn(&report);
        if self.common.verbose && !self.common.quiet {
            note!("channels left out: {:?}", report.masked_channels);
        }
        let mut files = self.arguments.recording.inputs.clone();
        // The earliest file comes first, as in the source.
        files.sort_by_key(|path| *path != self.header.path);
        let band = &self.header.band;
        let mut run = Run::new(self.common).on(&self.backend).took(report.elapsed_s, report.data_s);
        if recording_is_live(self.arguments) {
            run = run.live();
        }
        let dm_constant = self.options.dm_constant;
        let delay_per_dm =
            dispersion_delay_s(1.0, band.lowest_hz(), band.highest_hz(), dm_constant);
        Ok(Found {
            sources: repeating(&report.candidates, delay_per_dm),
            header: self.header.clone(),
            delay_s: self.opened.delay_s(),
            geometry: self.opened.geometry.clone(),
            snr: self.options.snr,
            rfi: self.arguments.rfi().0,
            max_per_minute: self.options.max_per_minute,
            plan: self.options.plan.clone(),
            dm_constant: self.options.dm_constant,
            dut1: self.dut1.clone(),
            dropped,
            made: Made { provenance: Provenance::new(self.common, &self.inputs())?, run },
            report,
            drawn: if self.arguments.products.no_plots {
                0
            } else {
                self.arguments.products.max_plots
            },
            files,
        })
    }

    /// Creates the run journal that stores candidates during the search, and the checkpoint to continue from.
    fn keeper(
        &self,
        folder: &Folder,
        is_resumed: bool,
    ) -> Result<(RunJournal, Option<Checkpoint>)> {
        let mut keeper = RunJournal::new(folder.file(""), self.identity()?);
        if !is_resumed {
            return Ok((keeper, None));
        }
        let Some(left) = keeper.resume(folder.place())? else {
            return Ok((keeper, None));
        };
        pictures::remove(folder)?;
        let checkpoint = Checkpoint::from_bytes(left.state())?;
        resume::tell(checkpoint.times, self.common);
        Ok((keeper, Some(checkpoint)))
    }

    /// Returns the settings on which the candidates depend.
    fn identity(&self) -> Result<Identity> {
        let options = &self.options;
        let own = settings(options);
        let identity = Identity::new("search", &self.inputs(), &own, &self.backend)?;
        Ok(identity.with(&self.arguments.recording, options))
    }

    /// Returns every input file.
    fn inputs(&self) -> Vec<PathBuf> {
        [self.arguments.recording.files(), self.arguments.also()].concat()
    }

    /// Returns whether a later run can resume this one if it is interrupted.
    fn has_checkpoints(&self) -> bool {
        resume::can_be_read_again(&self.arguments.recording)
    }

    /// With --verbose, reports the filter bank, the device and the trials of the search.
    fn tell(&self) {
        if !self.common.verbose || self.common.quiet {
            return;
        }
        let plan = &self.options.plan;
        if let Some(geometry) = &self.opened.geometry {
            note!("{}", geometry.text());
        }
        note!("on {}, {} trials:", self.backend.name(), plan.trials());
        for range in &plan.ranges {
            let DmRange { dm_min, dm_step, downsample, .. } = range;
            let dm_last = range.dms().last().copied().unwrap_or(*dm_min);
            more!(
                "  DM {dm_min:9.2} to {dm_last:9.2} by {dm_step:7.3}, bins of {downsample} samples"
            );
        }
    }

    fn warn(&self, report: &Report) {
        let quiet = self.common.quiet;
        let (left_out, channels) = (report.masked_channels.len(), self.header.channels());
        if 2 * left_out > channels {
            warning!(quiet: quiet,
                "{left_out} of {channels} channels were left out, more than half; \
                 `sidereal info` shows the bandpass, --no-auto-mask keeps outlying channels."
            );
        }
        if report.skipped_dms > 0 {
            let highest = report.dms.last().copied().unwrap_or(0.0);
            warning!(quiet: quiet,
                "{} trials above DM {highest:.2} were skipped: their delay across \
                 the band is longer than the data.",
                report.skipped_dms
            );
        }
        warn_of_flagged(report.flagged_samples, quiet);
        let (tsamp_s, first_s) = (self.header.tsamp_s, self.opened.delay_s());
        gaps::warn(&gaps::listed(&report.gaps, tsamp_s, first_s), quiet);
        let unsearched = Unsearched::listed(&report.unsearched, tsamp_s, first_s);
        gaps::warn_of_unsearched(&unsearched, quiet);
    }

    /// Writes all files except the folder's final name, and removes what --resume needs unless a later run can continue this one.
    fn write(&self, folder: &Folder, found: &mut Found) -> Result<()> {
        self.write_files(folder, found)?;
        if found.report.ending.is_read() || !self.has_checkpoints() {
            return resume::clear(&folder.file(""));
        }
        resume::mark(&folder.file(""))
    }

    /// Writes all files of the product. Lists come first; an error that ends the plots becomes the search's ending.
    fn write_files(&self, folder: &Folder, found: &mut Found) -> Result<()> {
        if !found.report.ending.is_read() {
            interrupt::finishing();
        }
        if self.spooled && !found.report.ending.is_read() {
            // No plot needs the spool any more, and the lists may need its space.
            self.remove_spool(folder)?;
        }
        files::write(folder, found, self.arguments.products.singlepulse)?;
        if self.arguments.products.list_absorbed {
            files::write_absorbed(folder, found)?;
        }
        self.write_summary(folder, found)?;
        if found.report.ending.is_read() {
            if let Err(error) = self.draw(folder, found) {
                pictures::remove(folder)?;
                found.report.ending = Ending::after(error);
                self.write_summary(folder, found)?;
            }
            if self.spooled {
                self.remove_spool(folder)?;
            }
        }
        Ok(())
    }

    fn write_summary(&self, folder: &Folder, found: &Found) -> Result<()> {
        json::write(&folder.file("summary.json"), &found.document())
    }

    fn remove_spool(&self, folder: &Folder) -> Result<()> {
        let path = folder.file(files::NAME);
        std::fs::remove_file(&path).map_err(|error| Error::io(path, error))
    }

    fn draw(&self, folder: &Folder, found: &Found) -> Result<()> {
        let products = &self.arguments.products;
        let pictures = Pictures {
            recording: &self.arguments.recording,
            backend: &self.backend,
            options: &self.options,
            found,
            folder,
            is_cleaned: self.options.mask.is_some()
                || found.report.mitigated.as_ref().is_some_and(is_something),
            spooled: self.spooled,
        };
        if !products.no_plots {
            if products.png {
                pictures.draw_overview()?;
            }
            pictures.draw(products.max_plots, self.common)?;
        }
        if products.fetch {
            pictures.fetch(self.common)?;
        }
        Ok(())
    }
}

/// Returns the settings of the detection, by their options.
fn settings(options: &SearchOptions) -> [(&'static str, &dyn Debug); 7] {
    [
        ("--snr", &options.snr),
        ("--max-width", &options.max_width_s),
        ("--baseline", &options.baseline_s),
        ("--max-wait", &options.max_wait_s),
        ("--min-band", &options.min_band),
        ("--list-absorbed", &options.list_absorbed),
        ("--max-per-minute", &options.max_per_minute),
    ]
}

/// Returns whether mitigation changed any row.
fn is_something(found: &Mitigated) -> bool {
    let rows = found.broadband_rows + found.lost_rows + found.followed_rows;
    found.masked_cells + rows > 0 || found.steps.bandpass == Bandpass::Always
}

/// Returns the report with candidate times counted from the recording's first sample instead of the first spectrum's
/// start.
fn from_first_sample(mut report: Report, delay_s: f64) -> Report {
    report.candidates.iter_mut().for_each(|candidate| candidate.shift(delay_s));
    report.absorbed.iter_mut().for_each(|event| event.shift(delay_s));
    report
}

impl Detection {
    /// Checks the options and names the one that is out of range.
    fn check(&self) -> Result<()> {
        // The upper limit of times is the recording's length, checked later.
        let options = [
            ("--snr", self.snr, 0.1, 1e6),
            ("--max-width", self.max_width, 1e-9, f64::MAX),
            ("--baseline", self.baseline, 1e-9, f64::MAX),
            ("--max-wait", self.max_wait.unwrap_or(1.0), 1e-3, f64::MAX),
            ("--min-band", self.min_band, 0.01, 1.0),
        ];
        match options.into_iter().find(|(_, value, least, most)| !(*least..=*most).contains(value))
        {
            Some((name, value, least, most)) => {
                let rule = if most < f64::MAX {
                    format!("it must be {least} to {most}")
                } else {
                    format!("it must be {least:e} or above")
                };
                Err(Error::parameter(name, value, rule))
            }
            None => Ok(()),
        }
    }
}

impl PerInput for Arguments {
    fn inputs(&self) -> &[PathBuf] {
        &self.recording.inputs
    }

    fn of_one(&self, input: &Path) -> Self {
        let recording = self.recording.of_one(input);
        let destination = self.destination.of_each(&recording, SUFFIX);
        Self { recording, destination, ..self.clone() }
    }

    fn place(&self) -> PathBuf {
        self.destination.place(&self.recording, SUFFIX)
    }

    fn run(&self, common: &Common) -> Result<Exit> {
        run_one(self, common)
    }
}

impl Arguments {
    /// Returns whether several processes can divide the work.
    pub(crate) fn is_divided(&self) -> bool {
        self.beams.pointing().is_some()
    }

    /// Returns the options of the search of a beam: an input, or one of its antennas.
    fn of_beam(&self, input: &Path, antenna: Option<usize>) -> Self {
        let Some(antenna) = antenna else { return self.of_one(input) };
        let recording = self.recording.of_one(input).of_antenna(antenna);
        let suffix = format!("antenna{antenna}_{SUFFIX}");
        let destination = self.destination.of_each(&recording, &suffix);
        Self { recording, destination, ..self.clone() }
    }

    /// Returns the settings of a search of several beams, on which all of its files depend.
    fn identity_of_beams(
        &self,
        pointing: Pointing,
        options: &SearchOptions,
        backend: &Backend,
    ) -> Result<Identity> {
        let Products { no_plots, png, max_plots, fetch, singlepulse, list_absorbed: _ } =
            &self.products;
        let mut own: Vec<(&str, &dyn Debug)> = vec![
            ("beams", &pointing),
            ("--no-plots", no_plots),
            ("--png", png),
            ("--max-plots", max_plots),
            ("--fetch", fetch),
            ("--singlepulse", singlepulse),
        ];
        let joining = self.beams.settings();
        own.extend(joining.iter().map(|(name, value)| (*name, value as &dyn Debug)));
        own.extend(settings(options));
        let inputs = [self.recording.files(), self.also()].concat();
        Ok(Identity::new("search of beams", &inputs, &own, backend)?.with(&self.recording, options))
    }

    /// Returns every input file except the recording.
    fn also(&self) -> Vec<PathBuf> {
        let mut also = self.selection.files(&self.trials);
        also.extend(self.orientation.file());
        also
    }

    /// Checks what needs no stream.
    ///
    /// # Errors
    /// [`Error::Parameter`] for an option out of range or not for a stream.
    #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
    pub(crate) fn check(&self) -> Result<()> {
        streams::check(&self.recording.inputs, "INPUT")?;
        self.batch.check_none()?;
        self.beams.check_none()?;
        self.resume.check(&self.recording.inputs)?;
        if self.products.fetch {
            let rule = "cutouts need a recording: `sidereal live record` makes one";
            return Err(Error::parameter("--fetch", "given", rule));
        }
        self.detection.check()
    }

    /// Returns the steps of mitigation, and whether outlying channels are masked.
    fn rfi(&self) -> (Rfi, bool) {
        self.selection.cleaning.rfi(Rfi::Auto, self.no_auto_mask)
    }

    fn options(&self, opened: &Opened) -> Result<SearchOptions> {
        self.detection.check()?;
        let (rfi, auto_mask) = self.rfi();
        Ok(SearchOptions {
            snr: self.detection.snr,
            max_width_s: self.detection.max_width,
            baseline_s: self.detection.baseline,
            max_wait_s: self.detection.max_wait.unwrap_or(f64::INFINITY),
            min_band: self.detection.min_band,
            list_absorbed: self.products.list_absorbed,
            max_per_minute: Some(self.detection.max_per_minute).filter(|most| *most > 0),
            ..self.selection.options(opened, &self.trials, rfi, auto_mask)?
        })
    }
}
