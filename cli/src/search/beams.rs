//! Search of several beams or antennas, whose candidates are joined into events.
//!
//! Invariant: every beam has the products of a search of it alone, whether beams are searched one after another, on several GPUs at the
//! same time, or by several processes.

use std::fmt::{Debug, Write as _};
use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use sidereal::dedisperse::dm_plan::DmPlan;
use sidereal::io::{FilterbankHeader, check_same_sampling};
use sidereal::pipeline::Ending;
use sidereal::pipeline::beams::Pointing;
use sidereal::{Error, Result};

use super::report::LISTED;
use super::searched::Searched;
use crate::batch::of_one;
use crate::common::{CommandLine, Common};
use crate::events::{
    self, BeamCandidates, EVENTS, JoinArguments, JoinedBeams, JoinedEvent, Joiner, Sampling,
    SearchedBeam, direction, table,
};
use crate::flags;
use crate::numbers::tidy;
use crate::plots::{duration, plural};
use crate::selection::{BeamDocument, Recording, check_files};

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
    /// beams it is interference, in few a source. --each makes the same searches and joins nothing. One INPUT has voltages of several
    /// antennas, each of which is a beam; mpirun divides beams among processes.
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

    /// Returns the number of antennas of the recording, each of which is a beam; `None` if each input is a beam.
    ///
    /// # Errors
    /// [`Error::Parameter`] for streams, a file given twice, and one file that has one beam; errors of opening it.
    pub(super) fn antennas(&self, recording: &Recording) -> Result<Option<usize>> {
        let inputs = &recording.inputs;
        if inputs.len() > 1 || recording.is_pipe() {
            return check_files(self.option(), inputs).map(|()| None);
        }
        match recording.antennas()? {
            0 | 1 => {
                let rule = "it takes two or more, or one of voltages of several antennas (a file of a SIGPROC filterbank, PSRFITS or FBH5 \
                            has one beam)";
                Err(Error::parameter("INPUT", format!("one file with {}", self.option()), rule))
            }
            antennas => Ok(Some(antennas)),
        }
    }

    /// Returns the settings of the events, by their options.
    pub(super) fn settings(&self) -> [(&'static str, &dyn Debug); 3] {
        self.join.settings()
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
#[derive(Clone, Debug)]
pub(super) struct Beam {
    pub(super) path: PathBuf,
    /// Antenna of a recording of several, counted from 0; `None` if the recording is the beam.
    pub(super) antenna: Option<usize>,
    /// Name of the folder of its products.
    pub(super) folder: String,
    /// Header whose start is the recording's first sample.
    pub(super) header: FilterbankHeader,
    /// Trials that a search of it alone would have.
    pub(super) plan: DmPlan,
}

impl Beam {
    /// Returns its name in messages.
    pub(super) fn name(&self) -> String {
        let antenna =
            self.antenna.map_or_else(String::new, |antenna| format!(", antenna {antenna}"));
        format!("{}{antenna}", self.path.display())
    }
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
        all.sort_by_key(|beam| {
            (beam.header.beam.map(|beam| beam.number), beam.path.clone(), beam.antenna)
        });
        let first = &all[0].header;
        all.iter().try_for_each(|other| check_same_sampling(first, &other.header))?;
        let sampling = Sampling {
            tsamp_s: first.tsamp_s,
            lowest_hz: first.band.lowest_hz(),
            highest_hz: first.band.highest_hz(),
            dm_constant,
        };
        let names: Vec<String> = all.iter().map(Beam::name).collect();
        let directions = all.iter().map(|beam| match beam.antenna {
            // The position in the header is one for all.
            Some(_) => None,
            None => direction(beam.header.ra_deg, beam.header.dec_deg),
        });
        let beams = names.iter().map(String::as_str).zip(directions);
        let joiner = arguments.join.joiner(pointing, sampling, beams)?;
        Ok(Self { all, joiner })
    }

    /// Joins the candidates of the beams that were searched; `threshold_snr` is the lowest S/N of a candidate.
    pub(super) fn document(
        &self,
        searched: &[Searched],
        threshold_snr: f64,
        ending: &Ending,
    ) -> Result<Document> {
        let indices: Vec<usize> = searched.iter().map(|one| one.beam).collect();
        let beams = searched.iter().map(|one| candidates(one, &self.all[one.beam]));
        let JoinedBeams { tstart_mjd, beams, dropped, events } =
            self.joiner.of(&indices).join(beams.collect())?;
        Ok(Document {
            inputs: self.joiner.inputs(),
            max_beams: self.joiner.max_beams(),
            threshold_snr,
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
fn candidates(searched: &Searched, beam: &Beam) -> BeamCandidates {
    let header = &beam.header;
    BeamCandidates {
        beam: SearchedBeam {
            file: header.path.display().to_string(),
            antenna: beam.antenna,
            folder: beam.folder.clone(),
            beam: header.beam.map(BeamDocument::from),
            ra_deg: header.ra_deg,
            dec_deg: header.dec_deg,
            tstart_mjd: Some(header.tstart_mjd).filter(|start| *start > 0.0),
            data_s: tidy(searched.data_s),
            candidates: searched.candidates.len(),
        },
        candidates: searched.candidates.clone(),
    }
}

/// Returns the options of the run of one beam, as its product records them: those of a search of it alone.
pub(super) fn of_beam(common: &Common, beam: &Beam) -> Common {
    let mut command_line: CommandLine = of_one(&common.command_line, &beam.path);
    command_line.options.retain(|name, _| !OPTIONS.contains(&name.as_str()));
    for flag in FLAGS {
        command_line.options.insert(flag.to_owned(), false.into());
    }
    command_line.given.retain(|name| ![&OPTIONS[..], &FLAGS].concat().contains(&name.as_str()));
    if let Some(antenna) = beam.antenna {
        command_line.options.insert("antenna".to_owned(), antenna.into());
        command_line.given.push("antenna".to_owned());
    }
    Common { command_line, ..common.clone() }
}

/// Formats the lines printed at the end.
pub(super) fn text(
    document: &Document,
    searched: &[Searched],
    elapsed_s: f64,
    place: &Path,
) -> String {
    let data_s: f64 = searched.iter().map(|one| one.data_s).sum();
    let candidates: usize = searched.iter().map(|one| one.candidates.len()).sum();
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
