//! Events of several beams: their candidates joined, as `search --beams` and `merge --beams` list them.
//!
//! Invariant: events and their order depend on the candidates alone, not on the order in which beams are given to a verb.

use std::fmt::{Debug, Write as _};

use clap::Args;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sidereal::geometry::Direction;
use sidereal::io::csv_cell;
use sidereal::pipeline::beams::{Adjacency, Detection, Event, JoinOptions, Origin, Pointing, join};
use sidereal::units::{SECONDS_PER_DAY, dispersion_delay_s};
use sidereal::{Error, Result};

use crate::numbers::tidy;
use crate::selection::BeamDocument;

/// File of the events.
pub(crate) const EVENTS: &str = "events.csv";

/// Options of joining the candidates of several beams, each with a part of the sky of its own.
#[derive(Args, Clone, Debug)]
pub(crate) struct JoinArguments {
    /// Most beams in which a source may be; an event in more is interference.
    ///
    /// By default 4/13 of the number of beams, at least 2, and fewer than all.
    #[arg(long, value_name = "N", requires = "beams", help_heading = "Beams")]
    max_beams: Option<usize>,
    /// Distance of adjacent beams in degrees, by the positions in their headers.
    ///
    /// An event in at most --max-beams beams is unclear if one of them is farther than this from the strongest. By default positions are
    /// not used.
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

/// Beam that was searched.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct SearchedBeam {
    pub(crate) file: String,
    /// Antenna of a recording of several, counted from 0; absent if the file is one beam.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) antenna: Option<usize>,
    /// Folder of its own products.
    pub(crate) folder: String,
    /// Number in the header; absent if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) beam: Option<BeamDocument>,
    pub(crate) ra_deg: Option<f64>,
    pub(crate) dec_deg: Option<f64>,
    pub(crate) tstart_mjd: Option<f64>,
    pub(crate) data_s: f64,
    pub(crate) candidates: usize,
}

/// Beam with its candidates; their times count from its own start.
pub(crate) struct BeamCandidates {
    pub(crate) beam: SearchedBeam,
    pub(crate) candidates: Vec<Detection>,
}

/// Sampling that all beams of an observation share.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Sampling {
    pub(crate) tsamp_s: f64,
    pub(crate) lowest_hz: f64,
    pub(crate) highest_hz: f64,
    /// Dispersion constant in s MHz^2 pc^-1 cm^3.
    pub(crate) dm_constant: f64,
}

/// Joins the candidates of an observation's beams.
#[derive(Debug)]
pub(crate) struct Joiner {
    options: JoinOptions,
    drops_interference: bool,
}

/// Events of an observation.
pub(crate) struct JoinedBeams {
    /// Start from which times count: that of the earliest beam, UTC; `None` if one is unknown, and all are taken to begin together.
    pub(crate) tstart_mjd: Option<f64>,
    pub(crate) beams: Vec<SearchedBeam>,
    /// Events left out as interference.
    pub(crate) dropped: usize,
    /// Events, best first.
    pub(crate) events: Vec<JoinedEvent>,
}

/// Event in one beam or several.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct JoinedEvent {
    /// `source`, `interference`, or `unclear`.
    pub(crate) origin: &'static str,
    /// DM, time, S/N and width in the best beam.
    pub(crate) dm: f64,
    /// Centre of the pulse at the reference frequency, in seconds from the start of the earliest beam.
    pub(crate) time_s: f64,
    pub(crate) snr: f64,
    pub(crate) width_s: f64,
    /// The same moment as a topocentric UTC MJD; absent if a start is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) mjd: Option<f64>,
    /// Number of beams that have it.
    in_beams: usize,
    /// Best beam, counted from 0, its file, and the line of the candidate in its list, from 1.
    best_beam: usize,
    file: String,
    candidate: usize,
    /// Root of the sum of the squares of the S/N in each beam.
    combined_snr: f64,
    /// S/N in each beam that has it, best first: `1:19.90 0:16.70`.
    pub(crate) beam_snrs: String,
    /// Best candidate of each beam that has it, best first.
    detections: Vec<InBeam>,
}

/// Candidate of an event in one beam.
#[derive(Debug, Serialize, JsonSchema)]
struct InBeam {
    beam: usize,
    /// Line in the beam's list, from 1.
    candidate: usize,
    snr: f64,
    dm: f64,
    time_s: f64,
    width_s: f64,
}

impl JoinArguments {
    /// Returns the settings, by their options.
    pub(crate) fn settings(&self) -> [(&'static str, &dyn Debug); 3] {
        [
            ("--max-beams", &self.max_beams),
            ("--adjacent", &self.adjacent),
            ("--drop-interference", &self.drop_interference),
        ]
    }

    /// Returns the joiner of an observation's beams.
    ///
    /// # Errors
    /// [`Error::Parameter`] for an option out of range; [`Error::Format`] for a beam without the position that --adjacent needs.
    pub(crate) fn joiner<'a>(
        &self,
        pointing: Pointing,
        sampling: Sampling,
        beams: impl ExactSizeIterator<Item = (&'a str, Option<Direction>)>,
    ) -> Result<Joiner> {
        let count = beams.len();
        let direction = |(file, direction): (&str, Option<Direction>)| {
            let why = "it is not given, and --adjacent needs that of every beam";
            direction.ok_or_else(|| Error::format(file, "position", 0, why))
        };
        let adjacency = match self.adjacent {
            Some(radius_deg) => {
                let directions = beams.map(direction).collect::<Result<Vec<_>>>()?;
                Some(Adjacency { directions, radius_deg })
            }
            None => None,
        };
        let Sampling { tsamp_s, lowest_hz, highest_hz, dm_constant } = sampling;
        let options = JoinOptions {
            beams: count,
            pointing,
            most_beams: self.max_beams.unwrap_or(JoinOptions::usual_most_beams(count)),
            delay_per_dm_s: dispersion_delay_s(1.0, lowest_hz, highest_hz, dm_constant),
            slack_s: tsamp_s,
            adjacency,
        };
        // Options are checked before a search, not after it.
        join(&[], &options)?;
        Ok(Joiner { options, drops_interference: self.drop_interference })
    }
}

impl Joiner {
    /// Returns the name of what the beams are: `beams`, each with a part of the sky of its own, or `antennas`.
    pub(crate) fn inputs(&self) -> &'static str {
        if self.options.pointing == Pointing::Apart { "beams" } else { "antennas" }
    }

    /// Returns the most beams in which a source may be; `None` for antennas.
    pub(crate) fn max_beams(&self) -> Option<usize> {
        (self.options.pointing == Pointing::Apart).then_some(self.options.most_beams)
    }

    /// Returns the joiner of some of the beams, by their indices.
    pub(crate) fn of(&self, beams: &[usize]) -> Self {
        let only = |all: &Adjacency| Adjacency {
            directions: beams.iter().map(|beam| all.directions[*beam]).collect(),
            ..*all
        };
        let adjacency = self.options.adjacency.as_ref().map(only);
        let options = JoinOptions { beams: beams.len(), adjacency, ..self.options.clone() };
        Self { options, ..*self }
    }

    /// Joins the candidates of all beams.
    ///
    /// # Errors
    /// As [`join`].
    pub(crate) fn join(&self, searched: Vec<BeamCandidates>) -> Result<JoinedBeams> {
        let starts = searched.iter().map(|own| own.beam.tstart_mjd);
        let starts: Option<Vec<f64>> = starts.collect();
        let tstart_mjd = starts.and_then(|starts| starts.into_iter().reduce(f64::min));
        let mut detections = Vec::new();
        let mut lines = Vec::new();
        for (beam, own) in searched.iter().enumerate() {
            let start = own.beam.tstart_mjd.zip(tstart_mjd);
            let offset_s = start.map_or(0.0, |(own, first)| (own - first) * SECONDS_PER_DAY);
            for (line, one) in (1..).zip(&own.candidates) {
                detections.push(Detection { beam, time_s: one.time_s + offset_s, ..*one });
                lines.push(line);
            }
        }
        let beams: Vec<SearchedBeam> = searched.into_iter().map(|own| own.beam).collect();
        let events = join(&detections, &self.options)?;
        let is_kept =
            |event: &&Event| !self.drops_interference || event.origin != Origin::Interference;
        let joined = |event: &Event| {
            let in_beam = |index: &usize| {
                let Detection { beam, time_s, dm, snr, width_s } = detections[*index];
                let [time_s, dm, snr, width_s] = [time_s, dm, snr, width_s].map(tidy);
                InBeam { beam, candidate: lines[*index], snr, dm, time_s, width_s }
            };
            let detections = event.beams.iter().map(in_beam).collect();
            JoinedEvent::new(event, detections, &beams, tstart_mjd)
        };
        let kept: Vec<JoinedEvent> = events.iter().filter(is_kept).map(joined).collect();
        let dropped = events.len() - kept.len();
        Ok(JoinedBeams { tstart_mjd, beams, dropped, events: kept })
    }
}

impl JoinedEvent {
    fn new(
        event: &Event,
        detections: Vec<InBeam>,
        beams: &[SearchedBeam],
        tstart_mjd: Option<f64>,
    ) -> Self {
        let InBeam { beam, candidate, snr, dm, time_s, width_s } = detections[0];
        let snrs = detections.iter().map(|one| format!("{}:{:.2}", one.beam, one.snr));
        Self {
            origin: event.origin.name(),
            dm,
            time_s,
            snr,
            width_s,
            mjd: tstart_mjd.map(|start| start + time_s / SECONDS_PER_DAY),
            in_beams: detections.len(),
            best_beam: beam,
            file: beams[beam].file.clone(),
            candidate,
            combined_snr: tidy(event.combined_snr),
            beam_snrs: snrs.collect::<Vec<_>>().join(" "),
            detections,
        }
    }

    /// Formats the event as a row of a table with the columns [`COLUMNS`].
    pub(crate) fn row(&self, number: usize) -> String {
        let Self { origin, snr, dm, time_s, width_s, mjd, in_beams, best_beam, .. } = self;
        let Self { candidate, combined_snr, beam_snrs, .. } = self;
        let file = csv_cell(&self.file);
        let mjd = mjd.map_or_else(String::new, |mjd| format!("{mjd:.11}"));
        format!(
            "{number},{origin},{snr},{dm},{time_s},{width_s},{mjd},{in_beams},{best_beam},{file},{candidate},{combined_snr},{beam_snrs}"
        )
    }
}

/// Returns how the beams of --beams or --antennas point; `None` with neither.
pub(crate) fn pointing(beams: bool, antennas: bool) -> Option<Pointing> {
    match (beams, antennas) {
        (true, _) => Some(Pointing::Apart),
        (_, true) => Some(Pointing::Same),
        _ => None,
    }
}

/// Returns the direction of a beam, if its header has both coordinates.
pub(crate) fn direction(ra_deg: Option<f64>, dec_deg: Option<f64>) -> Option<Direction> {
    ra_deg.zip(dec_deg).map(|(ra_deg, dec_deg)| Direction { ra_deg, dec_deg })
}

/// Columns of the table of events.
pub(crate) const COLUMNS: &str = "event,origin,snr,dm,time_s,width_s,mjd,in_beams,best_beam,file,candidate,combined_snr,beam_snrs";

/// Formats the table of events.
pub(crate) fn table(events: &[JoinedEvent]) -> String {
    let mut text = format!("{COLUMNS}\n");
    for (number, event) in (1..).zip(events) {
        let _ = writeln!(text, "{}", event.row(number));
    }
    text
}
