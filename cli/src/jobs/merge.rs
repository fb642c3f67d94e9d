//! `sidereal merge`: one list of candidates, one report and one summary of the searches of many files.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sidereal::io::csv_cell;
use sidereal::pipeline::beams::{Detection, Pointing};
use sidereal::units::{Band, SECONDS_PER_DAY};
use sidereal::{Error, Result};

use super::status::{Document as Status, Failure};
use super::task::Tasks;
use crate::common::Common;
use crate::events::{
    self, BeamCandidates, COLUMNS as EVENT_COLUMNS, EVENTS, JoinArguments, JoinedEvent, Sampling,
    SearchedBeam,
};
use crate::interrupt;
use crate::json;
use crate::output::{Contents, Existing, Folder, Writing};
use crate::plots::plural;
use crate::provenance::{Made, Product};
use crate::report::add_to as add_report;
use crate::say::warning;
use crate::selection::Observation;

/// Document of a search.
const DOCUMENT: &str = "summary.json";
/// Files of the merged folder.
const SUMMARY: &str = "merged.json";
const LIST: &str = "candidates.csv";
/// Lines of candidates, as the report reads them.
const LINES: &str = "candidates.ndjson";
/// Columns that the merged list has in addition to those of a search.
const COLUMNS: &str = "product,beam";

/// Merge the candidates of many searches into one list and one report.
///
/// Writes a folder with candidates.csv (FETCH's columns, the product and the beam), candidates.ndjson (all values of each candidate),
/// report.html and merged.json, which names what is missing or failed. Tasks that are not done are an error unless --partial
/// allows them. With --beams or --antennas, files that were recorded at the same time are joined, and events.csv has their events.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:\n  \
    sidereal merge tasks.jsonl -o merged\n  \
    sidereal merge monday.jsonl tuesday.jsonl -o week --partial\n  \
    sidereal merge results/*_search -o merged\n  \
    sidereal merge tasks.jsonl -o merged --beams")]
pub(crate) struct Arguments {
    /// Tasks that `plan-jobs` wrote, or folders of `search`.
    #[arg(required = true, value_name = "TASKS|FOLDER")]
    inputs: Vec<PathBuf>,
    /// Folder to write.
    #[arg(short, long, value_name = "DIR", default_value = "merged", help_heading = "Output")]
    output: PathBuf,
    /// Replace the folder if it exists.
    #[arg(long, help_heading = "Output")]
    overwrite: bool,
    /// Merge what is done, and name the tasks that failed or are missing.
    #[arg(long)]
    partial: bool,
    /// Join the candidates of files recorded at the same time, each a beam with a part of the sky of its own, into events.
    ///
    /// In more beams than --max-beams an event is interference, in fewer a source, as for `search --beams`. Files belong to one
    /// observation if they have the same channels and sampling time and overlap in time by at least half of the shorter file.
    #[arg(long, conflicts_with = "antennas", help_heading = "Beams")]
    beams: bool,
    /// As --beams, for antennas or beams that see the same part of the sky.
    ///
    /// An event in two or more is a source; one of a single antenna is unclear.
    #[arg(long, help_heading = "Beams")]
    antennas: bool,
    #[command(flatten)]
    join: JoinArguments,
}

/// Contents of the folder.
const CONTENTS: Contents =
    Contents { verb: "merge", documents: &[SUMMARY], writes: |_, name| writes(name) };

fn writes(name: &str) -> bool {
    [SUMMARY, LIST, LINES, EVENTS, crate::report::NAME].contains(&name)
}

/// Contents of merged.json.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Document {
    /// Whether every task is done.
    complete: bool,
    /// Number of candidates.
    candidates: usize,
    /// Searches, in the order of the list.
    products: Vec<Merged>,
    /// Tasks that are not done, by the file that lists them.
    undone: Vec<Undone>,
    /// Observations whose beams were joined, by their starts; absent without --beams or --antennas.
    #[serde(skip_serializing_if = "Option::is_none")]
    observations: Option<Vec<Joined>>,
    /// Events of all observations, best first for each; absent without --beams or --antennas.
    #[serde(skip_serializing_if = "Option::is_none")]
    events: Option<Vec<ObservedEvent>>,
}

/// Observation whose beams were joined.
#[derive(Debug, Serialize, JsonSchema)]
struct Joined {
    /// Whether the files are `beams`, each with a part of the sky of its own, or `antennas`, which see the same part.
    inputs: &'static str,
    /// Most beams in which a source may be; null for antennas.
    max_beams: Option<usize>,
    /// Start from which times count: that of the earliest beam, UTC.
    tstart_mjd: Option<f64>,
    /// Beams, in the order of their numbers in the headers and of their names; lists of events count them from 0.
    beams: Vec<SearchedBeam>,
    /// Events left out as interference (--drop-interference).
    dropped: usize,
}

/// Event of an observation.
#[derive(Debug, Serialize, JsonSchema)]
struct ObservedEvent {
    /// Number of the observation, from 0.
    observation: usize,
    #[serde(flatten)]
    event: JoinedEvent,
}

/// Search that was merged.
#[derive(Debug, Serialize, JsonSchema)]
struct Merged {
    product: PathBuf,
    /// Its first input.
    file: Option<String>,
    /// Number of the beam, if the header has one.
    beam: Option<u64>,
    candidates: usize,
    /// Whether its recording was searched to its end.
    complete: bool,
}

/// Tasks of a file that are not done.
#[derive(Debug, Serialize, JsonSchema)]
struct Undone {
    tasks: PathBuf,
    failed: Vec<Failure>,
    /// Numbers of the tasks that were not begun, are running or were killed.
    missing: Vec<usize>,
}

/// Searches to merge.
#[derive(Default)]
struct Sources {
    products: Vec<PathBuf>,
    undone: Vec<Undone>,
}

/// Runs the verb.
pub(crate) fn run(arguments: &Arguments, common: &Common) -> Result<()> {
    let sources = Sources::find(&arguments.inputs, common)?;
    let is_complete = sources.undone.is_empty();
    let undone = sources.undone();
    if !is_complete && !arguments.partial {
        let rule = "all tasks must be done; --partial merges without these";
        return Err(Error::parameter("tasks not done", undone, rule));
    }
    if sources.products.is_empty() {
        return Err(Error::parameter("tasks not done", undone, "there is nothing to merge"));
    }
    let existing = Existing::new(arguments.overwrite);
    let inputs = &arguments.inputs;
    let writing = Writing { contents: CONTENTS, existing, inputs, common };
    let folder = Folder::begin(&arguments.output, &writing)?;
    let mut list = List::default();
    for product in &sources.products {
        interrupt::check()?;
        list.add(product, arguments.pointing().is_some())?;
    }
    let write = |name: &str, text: &str| {
        let path = folder.file(name);
        fs::write(&path, text).map_err(|error| Error::io(path, error))
    };
    write(LIST, &list.text)?;
    write(LINES, &list.lines)?;
    let (observations, events) = match arguments.pointing() {
        Some(pointing) => {
            let (observations, events) = join(list.beams, pointing, &arguments.join)?;
            write(EVENTS, &table(&events))?;
            (Some(observations), Some(events))
        }
        None => (None, None),
    };
    let (candidates, found) = (list.candidates, events.as_ref().map(Vec::len));
    let document = Document {
        complete: is_complete,
        candidates,
        products: list.products,
        undone: sources.undone,
        observations,
        events,
    };
    let product: Product<Document> = Made::new(common, inputs)?.product("merge", document);
    json::write(&folder.file(SUMMARY), &product)?;
    let title = arguments.output.file_name().unwrap_or_default().to_string_lossy().into_owned();
    add_report(&folder, &title, common);
    folder.finish()?;
    if !is_complete {
        warning!(quiet: common.quiet, "{undone}");
    }
    if common.json {
        return json::print(&product);
    }
    if common.quiet {
        return Ok(());
    }
    let searches = product.document.products.len();
    let events = found.map_or_else(String::new, |count| format!(", {}", plural(count, "event")));
    json::say(&format!(
        "{}: {} of {searches} {}{events}",
        arguments.output.display(),
        plural(candidates, "candidate"),
        if searches == 1 { "search" } else { "searches" }
    ))
}

impl Arguments {
    /// Returns how the beams point; `None` unless candidates of several are to be joined.
    fn pointing(&self) -> Option<Pointing> {
        events::pointing(self.beams, self.antennas)
    }
}

impl Sources {
    /// Finds the products of tasks, and those in folders.
    fn find(inputs: &[PathBuf], common: &Common) -> Result<Self> {
        let mut found = Self::default();
        for input in inputs {
            if input.is_dir() {
                found.add_folder(input)?;
            } else {
                found.add_tasks(input, common)?;
            }
        }
        let mut seen = BTreeSet::new();
        match found.products.iter().find(|product| !seen.insert(*product)) {
            None => Ok(found),
            Some(twice) => {
                let rule = "it is given twice, and its candidates would be listed twice";
                Err(Error::parameter("TASKS|FOLDER", twice.display(), rule))
            }
        }
    }

    fn add_folder(&mut self, folder: &Path) -> Result<()> {
        let path = folder.join(DOCUMENT);
        if !path.is_file() {
            let why = "found no summary.json, expected a folder of search, or the file of tasks";
            return Err(Error::format(folder, "folder", 0, why));
        }
        self.products.push(folder.to_path_buf());
        Ok(())
    }

    fn add_tasks(&mut self, file: &Path, common: &Common) -> Result<()> {
        let tasks = Tasks::open(file)?.all()?;
        if let Some(other) = tasks.iter().find(|task| task.verb != "search") {
            let why = format!(
                "found tasks of {}, expected tasks of search, which finds candidates",
                other.verb
            );
            return Err(Error::format(file, "verb", 0, why));
        }
        let Status { products, failed, missing, .. } = Status::of(&tasks, common)?;
        self.products.extend(products);
        if !(failed.is_empty() && missing.is_empty()) {
            self.undone.push(Undone { tasks: file.to_path_buf(), failed, missing });
        }
        Ok(())
    }

    /// Describes the tasks that are not done.
    fn undone(&self) -> String {
        let describe = |one: &Undone| {
            let (failed, tasks) = (one.failed.len(), one.tasks.display());
            let missing = plural(one.missing.len(), "task");
            format!("{failed} failed and {missing} missing (sidereal run-task {tasks} --status)")
        };
        self.undone.iter().map(describe).collect::<Vec<_>>().join(", ")
    }
}

/// Merged list.
#[derive(Default)]
struct List {
    text: String,
    lines: String,
    candidates: usize,
    products: Vec<Merged>,
    beams: Vec<Beam>,
}

/// Search of a beam, and what its document has for joining it with others.
struct Beam {
    searched: Searched,
    list: BeamCandidates,
}

/// Part of the document of a search.
#[derive(Deserialize)]
struct Searched {
    observation: Observation,
    data_s: f64,
    candidates: Vec<Listed>,
}

#[derive(Deserialize)]
struct Listed {
    dm: f64,
    time_s: f64,
    snr: f64,
    width_s: f64,
}

impl List {
    /// Adds the candidates of a search, which are joined with those of other beams if `is_joined`.
    fn add(&mut self, product: &Path, is_joined: bool) -> Result<()> {
        let summary = object(&product.join(DOCUMENT))?;
        let own = |key: &str| summary.get(key).and_then(Value::as_object);
        let beam = own("observation")
            .and_then(|observation| observation.get("beam")?.get("number")?.as_u64());
        let inputs = own("provenance").and_then(|provenance| provenance.get("inputs")?.as_array());
        let file = inputs.and_then(|inputs| inputs.first()?.get("file")?.as_str());
        let name = product.display().to_string();
        let before = self.candidates;
        let list = summary.get("candidates").and_then(Value::as_array);
        for candidate in list.into_iter().flatten().filter_map(Value::as_object) {
            self.candidates += 1;
            let mut line = candidate.clone();
            line.insert("number".to_owned(), self.candidates.into());
            line.insert("observation".to_owned(), name.clone().into());
            line.insert("file".to_owned(), file.into());
            line.insert("beam".to_owned(), beam.into());
            self.lines += &(json::line(&line)? + "\n");
        }
        self.add_table(&product.join(LIST), &name, beam, self.candidates - before)?;
        if is_joined {
            let file = file.unwrap_or(&name).to_owned();
            self.beams.push(Beam::new(product, file, &summary)?);
        }
        self.products.push(Merged {
            product: product.to_path_buf(),
            file: file.map(str::to_owned),
            beam,
            candidates: self.candidates - before,
            complete: summary.get("complete").and_then(Value::as_bool).unwrap_or(false),
        });
        Ok(())
    }

    /// Adds the rows of a search's candidates.csv, which must be as many as its document has.
    fn add_table(&mut self, path: &Path, name: &str, beam: Option<u64>, rows: usize) -> Result<()> {
        let text = fs::read_to_string(path).map_err(|error| Error::io(path, error))?;
        let mut lines = text.lines();
        let head = format!("{},{COLUMNS}", lines.next().unwrap_or_default());
        match self.text.lines().next() {
            None => self.text = head + "\n",
            Some(first) if first == head => {}
            Some(first) => {
                let why = format!(
                    "found the columns {head}, expected those of the first search, {first}"
                );
                return Err(Error::format(path, "first line", 0, why));
            }
        }
        let beam = beam.map_or(String::new(), |beam| beam.to_string());
        let mut found = 0;
        for line in lines {
            found += 1;
            let _ = writeln!(self.text, "{line},{},{beam}", csv_cell(name));
        }
        if found != rows {
            let why = format!("found {found} candidates, expected {rows} as in summary.json");
            return Err(Error::format(path, "lines", 0, why));
        }
        Ok(())
    }
}

impl Beam {
    /// Reads what a document has for joining it with others.
    ///
    /// # Errors
    /// [`Error::Format`] if it lacks anything.
    fn new(product: &Path, file: String, summary: &Map<String, Value>) -> Result<Self> {
        let path = product.join(DOCUMENT);
        let searched = Searched::deserialize(summary)
            .map_err(|error| Error::format(&path, "JSON", 0, error.to_string()))?;
        if searched.observation.tstart_mjd.is_none() {
            let why = "found none, expected the start of the recording, by which files are joined";
            return Err(Error::format(path, "tstart_mjd", 0, why));
        }
        let detection = |one: &Listed| {
            let Listed { dm, time_s, snr, width_s } = *one;
            Detection { beam: 0, time_s, dm, snr, width_s }
        };
        let Observation { ra_deg, dec_deg, tstart_mjd, beam, .. } = searched.observation;
        let list = BeamCandidates {
            beam: SearchedBeam {
                file,
                antenna: None,
                folder: product.display().to_string(),
                beam,
                ra_deg,
                dec_deg,
                tstart_mjd,
                data_s: searched.data_s,
                candidates: searched.candidates.len(),
            },
            candidates: searched.candidates.iter().map(detection).collect(),
        };
        Ok(Self { searched, list })
    }

    /// Returns the start, in days, and the length in seconds.
    fn span(&self) -> (f64, f64) {
        (self.searched.observation.tstart_mjd.unwrap_or(0.0), self.searched.data_s)
    }

    /// Returns whether two searches are of one observation.
    fn is_of_one(&self, other: &Self) -> bool {
        let (one, two) = (&self.searched.observation, &other.searched.observation);
        let is_near = |a: f64, b: f64| (a - b).abs() <= 1e-9 * a.abs();
        let ((begin, own_s), (later, other_s)) = (self.span(), other.span());
        let offset_s = (later - begin) * SECONDS_PER_DAY;
        let shared_s = own_s.min(offset_s + other_s) - offset_s.max(0.0);
        one.channels == two.channels
            && is_near(one.tsamp_s, two.tsamp_s)
            && is_near(one.fch1_mhz, two.fch1_mhz)
            && is_near(one.foff_mhz, two.foff_mhz)
            && shared_s >= 0.5 * own_s.min(other_s)
    }

    /// Returns the sampling.
    ///
    /// # Errors
    /// As [`Band::uniform`].
    fn sampling(&self) -> Result<Sampling> {
        let Observation { tsamp_s, channels, fch1_mhz, foff_mhz, dm_constant_s, .. } =
            self.searched.observation;
        let band = Band::uniform(fch1_mhz, foff_mhz, channels)?;
        let (lowest_hz, highest_hz) = (band.lowest_hz(), band.highest_hz());
        Ok(Sampling { tsamp_s, lowest_hz, highest_hz, dm_constant: dm_constant_s })
    }
}

/// Joins the candidates of each observation's beams.
fn join(
    mut all: Vec<Beam>,
    pointing: Pointing,
    arguments: &JoinArguments,
) -> Result<(Vec<Joined>, Vec<ObservedEvent>)> {
    let file = |beam: &Beam| beam.list.beam.file.clone();
    all.sort_by(|a, b| a.span().0.total_cmp(&b.span().0).then_with(|| file(a).cmp(&file(b))));
    let mut groups: Vec<Vec<Beam>> = Vec::new();
    for beam in all {
        match groups.iter_mut().find(|group| group[0].is_of_one(&beam)) {
            Some(group) => group.push(beam),
            None => groups.push(vec![beam]),
        }
    }
    let (mut observations, mut all) = (Vec::new(), Vec::new());
    for (number, mut group) in groups.into_iter().enumerate() {
        let sampling = group[0].sampling()?;
        group.sort_by_key(|beam| (beam.list.beam.beam.map(|own| own.number), file(beam)));
        let place = |beam: &'_ Beam| {
            let own = &beam.list.beam;
            (own.file.clone(), events::direction(own.ra_deg, own.dec_deg))
        };
        let places: Vec<_> = group.iter().map(place).collect();
        let places = places.iter().map(|(file, direction)| (file.as_str(), *direction));
        let joiner = arguments.joiner(pointing, sampling, places)?;
        let joined = joiner.join(group.into_iter().map(|beam| beam.list).collect())?;
        observations.push(Joined {
            inputs: joiner.inputs(),
            max_beams: joiner.max_beams(),
            tstart_mjd: joined.tstart_mjd,
            beams: joined.beams,
            dropped: joined.dropped,
        });
        let events = joined.events.into_iter();
        all.extend(events.map(|event| ObservedEvent { observation: number, event }));
    }
    Ok((observations, all))
}

/// Formats the table of events of all observations.
fn table(events: &[ObservedEvent]) -> String {
    let mut text = format!("observation,{EVENT_COLUMNS}\n");
    for (number, ObservedEvent { observation, event }) in (1..).zip(events) {
        let _ = writeln!(text, "{observation},{}", event.row(number));
    }
    text
}

/// Reads the document of a search.
fn object(path: &Path) -> Result<Map<String, Value>> {
    let text = fs::read(path).map_err(|error| Error::io(path, error))?;
    let document: Map<String, Value> = serde_json::from_slice(&text)
        .map_err(|error| Error::format(path, "JSON", 0, error.to_string()))?;
    match document.get("schema").and_then(Value::as_str) {
        Some(schema) if schema.starts_with("sidereal/search/") => Ok(document),
        other => {
            let found = other.unwrap_or("none");
            let why = format!("found {found}, expected sidereal/search/1");
            Err(Error::format(path, "schema", 0, why))
        }
    }
}
