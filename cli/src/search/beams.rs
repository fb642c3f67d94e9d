//! Search of several beams or antennas, whose candidates are joined into events.
//!
//! Invariant: every beam has the products of a search of it alone, whether beams are searched one after another or on several GPUs
//! at the same time.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use sidereal::backend::Backend;
use sidereal::backend::threads::Threads;
use sidereal::dedisperse::dm_plan::DmPlan;
use sidereal::io::{FilterbankHeader, check_same_sampling};
use sidereal::pipeline::Ending;
use sidereal::pipeline::beams::{Detection, Pointing};
use sidereal::single_pulse::Candidate;
use sidereal::{Error, Result};

use super::report::{Found, LISTED};
use crate::batch::of_one;
use crate::common::{CommandLine, Common};
use crate::events::{
    self, BeamCandidates, EVENTS, JoinArguments, JoinedBeams, JoinedEvent, Joiner, Sampling,
    SearchedBeam, direction, table,
};
use crate::flags;
use crate::numbers::tidy;
use crate::output::Folder;
use crate::plots::{duration, plural};
use crate::selection::{BeamDocument, check_files};

/// Flags that a search of one beam has unset, and options that it does not have.
const FLAGS: [&str; 3] = ["beams", "antennas", "drop-interference"];
const OPTIONS: [&str; 2] = ["max-beams", "adjacent"];

/// Options of a search of several beams.
#[derive(Args, Clone, Debug)]
pub(super) struct BeamArguments {
    /// Treat each INPUT as a beam that sees a part of the sky of its own, and join their candidates into events.
    ///
    /// The folder (by default the first INPUT's name with _beams) has events.csv, summary.json, report.html, and a folder for each
    /// beam with what a search of it alone writes. Candidates of all beams that agree in time, DM and width are one event: in many
    /// beams it is interference, in few a source. --each makes the same searches and joins nothing.
    #[arg(long, conflicts_with_all = ["each", "sum", "antennas"], help_heading = "Beams")]
    beams: bool,
    /// As --beams, for antennas or beams that see the same part of the sky.
    ///
    /// An event in two or more is a source; one of a single antenna is unclear.
    #[arg(long, conflicts_with_all = ["each", "sum"], help_heading = "Beams")]
    antennas: bool,
    #[command(flatten)]
    join: JoinArguments,
}

impl BeamArguments {
    /// Returns how the beams point; `None` unless candidates of several are to be joined.
    pub(super) fn pointing(&self) -> Option<Pointing> {
        events::pointing(self.beams, self.antennas)
    }

    /// Checks the inputs; `is_resumed` states whether --resume is given.
    ///
    /// # Errors
    /// [`Error::Parameter`] for fewer than two, streams, a file given twice, and --resume.
    pub(super) fn check(&self, inputs: &[PathBuf], is_resumed: bool) -> Result<()> {
        check_files(self.option(), inputs)?;
        if is_resumed {
            let rule = format!("a search with {} keeps no checkpoint; --each does", self.option());
            return Err(Error::parameter("--resume", "given", rule));
        }
        Ok(())
    }

    fn option(&self) -> &'static str {
        if self.beams { "--beams" } else { "--antennas" }
    }

    /// Fails if beams are to be joined by a verb that has one input only.
    ///
    /// # Errors
    /// [`Error::Parameter`].
    #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
    pub(super) fn check_none(&self) -> Result<()> {
        match self.pointing() {
            Some(_) => {
                Err(Error::parameter(self.option(), "given", "it is for files, not for streams"))
            }
            None => Ok(()),
        }
    }
}

/// Suffix of the folder's default name.
pub(super) const SUFFIX: &str = "beams";

/// Returns the backends on which beams are searched at the same time: each of several GPUs with its share of the threads, if there are
/// as many beams; otherwise all together, which divide the trial DMs of each beam.
pub(super) fn backends(backend: &Backend, beams: usize) -> Vec<Backend> {
    let shares = backend.shares();
    let count = shares.len();
    if count == 1 || beams < count {
        return vec![backend.clone()];
    }
    let threads = Threads::new((backend.threads() / count).max(1));
    let alone = |share: Backend| match share {
        Backend::Cuda(device, _) => Backend::Cuda(device.alone(), threads.clone()),
        other => other,
    };
    shares.into_iter().map(alone).collect()
}

/// Searches all beams with `search`, on several backends at the same time, until one fails or the user asks to stop; returns those that
/// were searched to their ends, with their indices, and why others were not.
///
/// # Errors
/// That of a beam, if none was searched; [`Error::Io`] if what is left of one cannot be removed from `folder`.
pub(super) fn search_all(
    beams: &[Beam],
    backends: &[Backend],
    folder: &Folder,
    search: impl Fn(usize, &Backend) -> Result<Found> + Sync,
) -> Result<(Vec<(usize, Found)>, Ending)> {
    let (next, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
    let done = Mutex::new(Vec::with_capacity(beams.len()));
    let named = |error: Error, backend: &Backend| match backend {
        Backend::Cuda(device, _) if backends.len() > 1 => error.on_device(device.ordinal()),
        _ => error,
    };
    let work = |backend: &Backend| {
        while !is_over.load(Ordering::Relaxed)
            && let index = next.fetch_add(1, Ordering::Relaxed)
            && index < beams.len()
        {
            let searched = search(index, backend).map_err(|error| named(error, backend));
            if searched.is_err() {
                is_over.store(true, Ordering::Relaxed);
            }
            done.lock().unwrap_or_else(PoisonError::into_inner).push((index, searched));
        }
    };
    match backends {
        [only] => work(only),
        several => thread::scope(|scope| {
            let work = &work;
            several.iter().for_each(|backend| drop(scope.spawn(move || work(backend))));
        }),
    }
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(index, _)| *index);
    let (mut searched, mut ending) = (Vec::new(), Ending::Complete);
    for (index, found) in done {
        match found {
            Ok(found) => {
                if ending.is_complete() && !found.report.ending.is_complete() {
                    ending = found.report.ending.clone();
                }
                searched.push((index, found));
            }
            Err(error) => {
                // Only beams that were searched to their ends are joined.
                remove_beam(&folder.file(&beams[index].folder))?;
                if ending.is_read() {
                    ending = Ending::after(error);
                }
            }
        }
    }
    if searched.is_empty() { Err(ending.error()) } else { Ok((searched, ending)) }
}

/// Removes the folder of a beam, if there is one.
fn remove_beam(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(Error::io(folder, error)),
        _ => Ok(()),
    }
}

/// Contents of summary.json.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Document {
    /// Whether the inputs are `beams`, each with a part of the sky of its own, or `antennas`, which see the same part.
    inputs: &'static str,
    /// Most beams in which a source may be; null for antennas.
    max_beams: Option<usize>,
    /// Lowest S/N of a candidate.
    threshold_snr: f64,
    /// Start from which times count: that of the earliest beam, UTC; null if one is unknown, and all are taken to begin together.
    tstart_mjd: Option<f64>,
    /// Beams that were searched, in the order of their numbers in the headers and of their names; lists of events count them from 0.
    beams: Vec<SearchedBeam>,
    /// Events left out as interference (--drop-interference).
    dropped: usize,
    /// Whether all beams were searched completely; otherwise `reason` states why not.
    complete: bool,
    reason: Option<String>,
    /// Events, best first.
    events: Vec<JoinedEvent>,
}

/// Beam to be searched.
pub(super) struct Beam {
    pub(super) path: PathBuf,
    /// Name of the folder of its products.
    pub(super) folder: String,
    pub(super) header: FilterbankHeader,
    /// Trials that a search of it alone would have.
    pub(super) plan: DmPlan,
}

/// Beams whose candidates are joined.
pub(super) struct Beams {
    /// In the order of their numbers in the headers, and of their paths.
    pub(super) all: Vec<Beam>,
    joiner: Joiner,
}

impl Beams {
    /// Orders beams and checks that they can be joined.
    ///
    /// # Errors
    /// [`Error::Format`] for beams that differ in channels or sampling time; [`Error::Parameter`] for an option out of range.
    pub(super) fn new(
        mut all: Vec<Beam>,
        arguments: &BeamArguments,
        pointing: Pointing,
        dm_constant: f64,
    ) -> Result<Self> {
        // Products must not depend on the order of the inputs.
        all.sort_by_key(|beam| (beam.header.beam.map(|beam| beam.number), beam.path.clone()));
        let first = &all[0].header;
        all.iter().try_for_each(|other| check_same_sampling(first, &other.header))?;
        let sampling = Sampling {
            tsamp_s: first.tsamp_s,
            lowest_hz: first.band.lowest_hz(),
            highest_hz: first.band.highest_hz(),
            dm_constant,
        };
        let names: Vec<String> = all.iter().map(|beam| beam.path.display().to_string()).collect();
        let directions = all.iter().map(|beam| direction(beam.header.ra_deg, beam.header.dec_deg));
        let beams = names.iter().map(String::as_str).zip(directions);
        let joiner = arguments.join.joiner(pointing, sampling, beams)?;
        Ok(Self { all, joiner })
    }

    /// Joins the candidates of the beams that were searched, each with its index in [`Beams::all`].
    pub(super) fn document(
        &self,
        searched: &[(usize, Found)],
        ending: &Ending,
    ) -> Result<Document> {
        let indices: Vec<usize> = searched.iter().map(|(index, _)| *index).collect();
        let beams = searched.iter().map(|(index, found)| candidates(found, &self.all[*index]));
        let JoinedBeams { tstart_mjd, beams, dropped, events } =
            self.joiner.of(&indices).join(beams.collect())?;
        Ok(Document {
            inputs: self.joiner.inputs(),
            max_beams: self.joiner.max_beams(),
            threshold_snr: searched[0].1.snr,
            tstart_mjd,
            beams,
            dropped,
            complete: ending.is_complete(),
            reason: flags::reason(ending),
            events,
        })
    }
}

/// Returns the candidates of a beam.
fn candidates(found: &Found, beam: &Beam) -> BeamCandidates {
    let (header, report) = (&found.header, &found.report);
    let detection = |one: &Candidate| {
        let Candidate { time_s, dm, snr, width_s, .. } = *one;
        Detection { beam: 0, time_s, dm, snr, width_s }
    };
    BeamCandidates {
        beam: SearchedBeam {
            file: header.path.display().to_string(),
            folder: beam.folder.clone(),
            beam: header.beam.map(BeamDocument::from),
            ra_deg: header.ra_deg,
            dec_deg: header.dec_deg,
            tstart_mjd: Some(header.tstart_mjd).filter(|start| *start > 0.0),
            data_s: tidy(report.data_s),
            candidates: report.candidates.len(),
        },
        candidates: report.candidates.iter().map(detection).collect(),
    }
}

/// Returns the options of the run of one beam, as its product records them: those of a search of it alone.
pub(super) fn of_beam(common: &Common, input: &Path) -> Common {
    let mut command_line: CommandLine = of_one(&common.command_line, input);
    command_line.options.retain(|name, _| !OPTIONS.contains(&name.as_str()));
    for flag in FLAGS {
        command_line.options.insert(flag.to_owned(), false.into());
    }
    command_line.given.retain(|name| ![&OPTIONS[..], &FLAGS].concat().contains(&name.as_str()));
    Common { command_line, ..common.clone() }
}

/// Formats the lines printed at the end.
pub(super) fn text(
    document: &Document,
    searched: &[(usize, Found)],
    elapsed_s: f64,
    place: &Path,
) -> String {
    let data_s: f64 = searched.iter().map(|(_, found)| found.report.data_s).sum();
    let candidates: usize = searched.iter().map(|(_, found)| found.report.candidates.len()).sum();
    let mut text = format!(
        "Searched {} {}, {} of data, in {}: {}, {}.\n",
        searched.len(),
        document.inputs,
        duration(data_s),
        duration(elapsed_s),
        plural(candidates, "candidate"),
        plural(document.events.len() + document.dropped, "event"),
    );
    if document.dropped > 0 {
        let _ = writeln!(text, "Left out {} as interference.", document.dropped);
    }
    if !document.events.is_empty() {
        text.push_str(
            "\n    #      S/N         DM       time (s)      width  origin        beam:S/N\n",
        );
    }
    for (number, event) in (1..).zip(document.events.iter().take(LISTED)) {
        let JoinedEvent { snr, dm, time_s, width_s, origin, beam_snrs, .. } = event;
        let _ = writeln!(
            text,
            "{number:>5} {snr:>8.2} {dm:>10.2} {time_s:>14.6} {:>10}  {origin:<12}  {beam_snrs}",
            duration(*width_s),
        );
    }
    if document.events.len() > LISTED {
        let more = document.events.len() - LISTED;
        let _ = writeln!(text, "      and {more} more in {EVENTS}");
    }
    let _ = write!(text, "Wrote {}", place.display());
    text
}

/// Writes the list of events.
pub(super) fn write_events(path: &Path, document: &Document) -> Result<()> {
    fs::write(path, table(&document.events)).map_err(|error| Error::io(path, error))
}
