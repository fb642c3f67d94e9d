//! Search of several beams or antennas, whose candidates are joined into events.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use sidereal::geometry::Direction;
use sidereal::io::{FilterbankHeader, check_same_sampling, csv_cell};
use sidereal::pipeline::Ending;
use sidereal::pipeline::beams::{Adjacency, Detection, Event, JoinOptions, Origin, Pointing, join};
use sidereal::units::{SECONDS_PER_DAY, dispersion_delay_s};
use sidereal::{Error, Result};

use super::report::{Found, LISTED};
use crate::batch::of_one;
use crate::common::{CommandLine, Common};
use crate::flags;
use crate::numbers::tidy;
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
    /// Most beams in which a source may be; an event in more is interference.
    ///
    /// By default 4 of 13 beams and the same fraction of others, at least 2, and never all.
    #[arg(long, value_name = "N", requires = "beams", help_heading = "Beams")]
    max_beams: Option<usize>,
    /// Distance of adjacent beams in degrees, by the positions in their headers.
    ///
    /// An event in few beams of which one is farther from the strongest is unclear. By default positions are not used.
    #[arg(
        long,
        value_name = "DEGREES",
        requires = "beams",
        allow_negative_numbers = true,
        help_heading = "Beams"
    )]
    adjacent: Option<f64>,
    /// Leave interference out of the events; the number is reported.
    ///
    /// Lists of single beams keep it.
    #[arg(long, requires = "beams", help_heading = "Beams")]
    drop_interference: bool,
}

impl BeamArguments {
    /// Returns how the beams point; `None` unless candidates of several are to be joined.
    pub(super) fn pointing(&self) -> Option<Pointing> {
        match (self.beams, self.antennas) {
            (true, _) => Some(Pointing::Apart),
            (_, true) => Some(Pointing::Same),
            _ => None,
        }
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

    /// Returns the options of the join of beams with these headers.
    ///
    /// # Errors
    /// [`Error::Parameter`] for an option out of range; [`Error::Format`] for a beam without the position that --adjacent needs.
    fn join_options(
        &self,
        pointing: Pointing,
        beams: &[Beam],
        dm_constant: f64,
    ) -> Result<JoinOptions> {
        let FilterbankHeader { band, tsamp_s, .. } = &beams[0].header;
        let (lowest_hz, highest_hz) = (band.lowest_hz(), band.highest_hz());
        let direction = |beam: &Beam| match (beam.header.ra_deg, beam.header.dec_deg) {
            (Some(ra_deg), Some(dec_deg)) => Ok(Direction { ra_deg, dec_deg }),
            _ => {
                let why = "it is not given, and --adjacent needs that of every beam";
                Err(Error::format(&beam.path, "position", 0, why))
            }
        };
        let adjacency = |radius_deg: f64| {
            let directions = beams.iter().map(direction).collect::<Result<Vec<_>>>()?;
            Ok::<_, Error>(Adjacency { directions, radius_deg })
        };
        let usual = JoinOptions::usual_most_beams(beams.len());
        Ok(JoinOptions {
            beams: beams.len(),
            pointing,
            most_beams: self.max_beams.unwrap_or(usual),
            delay_per_dm_s: dispersion_delay_s(1.0, lowest_hz, highest_hz, dm_constant),
            slack_s: *tsamp_s,
            adjacency: self.adjacent.map(adjacency).transpose()?,
        })
    }
}

/// Suffix of the folder's default name.
pub(super) const SUFFIX: &str = "beams";

/// File of the events.
pub(super) const EVENTS: &str = "events.csv";

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
    beams: Vec<Searched>,
    /// Events left out as interference (--drop-interference).
    dropped: usize,
    /// Whether all beams were searched completely; otherwise `reason` states why not.
    complete: bool,
    reason: Option<String>,
    /// Events, best first.
    events: Vec<Joined>,
}

/// Beam that was searched.
#[derive(Serialize, JsonSchema)]
struct Searched {
    file: String,
    /// Folder of its own products.
    folder: String,
    /// Number in the header; absent if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    beam: Option<BeamDocument>,
    ra_deg: Option<f64>,
    dec_deg: Option<f64>,
    tstart_mjd: Option<f64>,
    data_s: f64,
    candidates: usize,
}

/// Event in one beam or several.
#[derive(Serialize, JsonSchema)]
struct Joined {
    /// `source`, `interference`, or `unclear`.
    origin: &'static str,
    /// DM, time, S/N and width in the best beam.
    dm: f64,
    /// Centre of the pulse at the reference frequency, in seconds from the start of the earliest beam.
    time_s: f64,
    snr: f64,
    width_s: f64,
    /// The same moment as a topocentric UTC MJD; absent if a start is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    mjd: Option<f64>,
    /// Number of beams that have it.
    in_beams: usize,
    /// Best beam, counted from 0, its file, and the line of the candidate in its list, from 1.
    best_beam: usize,
    file: String,
    candidate: usize,
    /// Root of the sum of the squares of the S/N in each beam.
    combined_snr: f64,
    /// S/N in each beam that has it, best first: `1:19.90 0:16.70`.
    beam_snrs: String,
    /// Best candidate of each beam that has it, best first.
    detections: Vec<InBeam>,
}

/// Candidate of an event in one beam.
#[derive(Serialize, JsonSchema)]
struct InBeam {
    beam: usize,
    /// Line in the beam's list, from 1.
    candidate: usize,
    snr: f64,
    dm: f64,
    time_s: f64,
    width_s: f64,
}

/// Beam to be searched.
pub(super) struct Beam {
    pub(super) path: PathBuf,
    /// Name of the folder of its products.
    pub(super) folder: String,
    pub(super) header: FilterbankHeader,
}

/// Beams whose candidates are joined.
pub(super) struct Beams {
    /// In the order of their numbers in the headers, and of their paths.
    pub(super) all: Vec<Beam>,
    options: JoinOptions,
    drops_interference: bool,
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
        let options = arguments.join_options(pointing, &all, dm_constant)?;
        // Options are checked before the search, not after it.
        join(&[], &options)?;
        Ok(Self { all, options, drops_interference: arguments.drop_interference })
    }

    /// Joins the candidates of the first beams, those that were searched, in the order of [`Beams::all`].
    pub(super) fn document(&self, searched: &[Found], ending: &Ending) -> Result<Document> {
        let starts = searched.iter().map(|found| found.header.tstart_mjd);
        let tstart_mjd = Some(starts.fold(f64::INFINITY, f64::min)).filter(|start| *start > 0.0);
        let offset_s = |found: &Found| {
            tstart_mjd.map_or(0.0, |start| (found.header.tstart_mjd - start) * SECONDS_PER_DAY)
        };
        let mut detections = Vec::new();
        let mut lines = Vec::new();
        for (beam, found) in searched.iter().enumerate() {
            for (line, candidate) in (1..).zip(&found.report.candidates) {
                detections.push(Detection {
                    beam,
                    time_s: candidate.time_s + offset_s(found),
                    dm: candidate.dm,
                    snr: candidate.snr,
                    width_s: candidate.width_s,
                });
                lines.push(line);
            }
        }
        let events = join(&detections, &self.options)?;
        let is_kept =
            |event: &&Event| !self.drops_interference || event.origin != Origin::Interference;
        let joined = |event: &Event| {
            let in_beam = |index: &usize| {
                let Detection { beam, time_s, dm, snr, width_s } = detections[*index];
                let [time_s, dm, snr, width_s] = [time_s, dm, snr, width_s].map(tidy);
                InBeam { beam, candidate: lines[*index], snr, dm, time_s, width_s }
            };
            self.joined(event, event.beams.iter().map(in_beam).collect(), tstart_mjd)
        };
        let kept: Vec<Joined> = events.iter().filter(is_kept).map(joined).collect();
        let is_apart = self.options.pointing == Pointing::Apart;
        let beams = searched.iter().zip(&self.all).map(|(found, beam)| Searched::new(found, beam));
        Ok(Document {
            inputs: if is_apart { "beams" } else { "antennas" },
            max_beams: is_apart.then_some(self.options.most_beams),
            threshold_snr: searched[0].snr,
            tstart_mjd,
            beams: beams.collect(),
            dropped: events.len() - kept.len(),
            complete: ending.is_complete(),
            reason: flags::reason(ending),
            events: kept,
        })
    }

    fn joined(&self, event: &Event, detections: Vec<InBeam>, tstart_mjd: Option<f64>) -> Joined {
        let InBeam { beam, candidate, snr, dm, time_s, width_s } = detections[0];
        let snrs = detections.iter().map(|one| format!("{}:{:.2}", one.beam, one.snr));
        Joined {
            origin: event.origin.name(),
            dm,
            time_s,
            snr,
            width_s,
            mjd: tstart_mjd.map(|start| start + time_s / SECONDS_PER_DAY),
            in_beams: detections.len(),
            best_beam: beam,
            file: self.all[beam].path.display().to_string(),
            candidate,
            combined_snr: tidy(event.combined_snr),
            beam_snrs: snrs.collect::<Vec<_>>().join(" "),
            detections,
        }
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
pub(super) fn text(document: &Document, searched: &[Found], place: &Path) -> String {
    let sum = |of: fn(&Found) -> f64| searched.iter().map(of).sum::<f64>();
    let candidates: usize = searched.iter().map(|found| found.report.candidates.len()).sum();
    let mut text = format!(
        "Searched {} {}, {} of data, in {}: {}, {}.\n",
        searched.len(),
        document.inputs,
        duration(sum(|found| found.report.data_s)),
        duration(sum(|found| found.report.elapsed_s)),
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
        let Joined { snr, dm, time_s, width_s, origin, beam_snrs, .. } = event;
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

impl Searched {
    fn new(found: &Found, beam: &Beam) -> Self {
        let header = &found.header;
        Self {
            file: header.path.display().to_string(),
            folder: beam.folder.clone(),
            beam: header.beam.map(BeamDocument::from),
            ra_deg: header.ra_deg,
            dec_deg: header.dec_deg,
            tstart_mjd: Some(header.tstart_mjd).filter(|start| *start > 0.0),
            data_s: tidy(found.report.data_s),
            candidates: found.report.candidates.len(),
        }
    }
}

/// Writes the list of events.
pub(super) fn write_events(path: &Path, document: &Document) -> Result<()> {
    let mut text = "event,origin,snr,dm,time_s,width_s,mjd,in_beams,best_beam,file,candidate,combined_snr,beam_snrs\n".to_owned();
    for (number, event) in (1..).zip(&document.events) {
        let Joined { origin, snr, dm, time_s, width_s, mjd, in_beams, best_beam, .. } = event;
        let Joined { candidate, combined_snr, beam_snrs, .. } = event;
        let file = csv_cell(&event.file);
        let mjd = mjd.map_or_else(String::new, |mjd| format!("{mjd:.11}"));
        let _ = writeln!(
            text,
            "{number},{origin},{snr},{dm},{time_s},{width_s},{mjd},{in_beams},{best_beam},{file},{candidate},{combined_snr},{beam_snrs}"
        );
    }
    fs::write(path, text).map_err(|error| Error::io(path, error))
}
