//! State of a live run that the page shows, in bounded memory.
//!
//! Invariant: the threads of the run only take short locks here, and allocate only for a candidate's line.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use num_complex::Complex;
use schemars::JsonSchema;
use serde::Serialize;
use sidereal::io::printable;
use sidereal::pipeline::detections::Detections;
use sidereal::pipeline::recent::RecentRows;
use sidereal::{Error, Result};
use tokio::sync::broadcast;

use super::dumps::{Dump, DumpCounts};
use super::labels::{Given, LabelLine, Labels, tail};
use super::status::{CandidateCounts, Status, unix_s};
use super::strain::{Reported, StrainBoard, StrainHello};
use crate::json;
use crate::provenance::Made;
use crate::search::{CandidateLine, CandidateState, DUMPS, DumpLine, DumpState, LINES, PICTURES};
use crate::spiir::{AroundEvent, EventLine, SpectrumLine, StrainView, TrackLine, Viewer};
use crate::watch::Watcher;

/// Candidates, labels and dumps that are kept.
const MOST_CANDIDATES: usize = 1000;
const MOST_LABELS: usize = 2000;
const MOST_DUMPS: usize = 200;

/// Rows of the waterfall that are kept: a minute of them.
const MOST_ROWS: usize = 240;

/// Integrations whose visibilities are kept.
const MOST_INTEGRATIONS: usize = 600;

/// Messages that wait for a slow reader of events; it misses older ones.
const MOST_MESSAGES: usize = 64;

/// Message to all readers of events.
#[derive(Clone, Debug)]
pub(super) struct Message {
    pub(super) event: &'static str,
    pub(super) data: Arc<str>,
}

/// Facts of the run that do not change.
pub(super) struct About {
    pub(super) verb: String,
    /// Folder of the output.
    pub(super) folder: PathBuf,
    pub(super) made: Made,
}

/// Row of the waterfall: the mean of some rows by frequency.
#[derive(Clone, Debug, Serialize)]
pub(super) struct WaterfallRow {
    /// Time of this machine, in seconds since 1970.
    pub(super) unix_s: f64,
    /// Means by ascending frequency.
    pub(super) values: Vec<f64>,
}

/// Mean of the last second by frequency.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct BandpassLine {
    /// Means by ascending frequency; those of masked channels, too.
    pub(super) values: Vec<f64>,
    /// Places in `values` of which all channels are masked.
    pub(super) masked: Vec<usize>,
}

/// Detections of an observation.
#[derive(Clone)]
pub(super) struct Shown {
    pub(super) detections: Arc<Detections>,
    /// Its folder, and the seconds from its first sample to the first row searched.
    pub(super) observation: String,
    pub(super) first_s: f64,
}

/// Best detections in cells of time and dispersion measure.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct PlaneLine {
    /// Folder of the observation.
    pub(super) observation: String,
    /// Seconds from the observation's first sample to the start of the first column.
    pub(super) first_s: f64,
    /// Seconds that were searched from there on, and the time of this machine then.
    pub(super) end_s: f64,
    pub(super) unix_s: f64,
    /// Length of a column in seconds, number of rows, and the DM at the upper end of the last one.
    pub(super) step_s: f64,
    pub(super) rows: usize,
    pub(super) highest_dm: f64,
    pub(super) cells: Vec<PlaneCell>,
}

/// Cell of a plane, as an array: column, row and S/N.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct PlaneCell(pub(super) u32, pub(super) usize, pub(super) f64);

impl PlaneCell {
    /// Returns the cell in a form that has a hash.
    pub(super) fn bits(&self) -> [u64; 3] {
        [u64::from(self.0), self.1 as u64, self.2.to_bits()]
    }
}

/// Visibilities of an integration.
#[derive(Clone, Debug, Serialize)]
struct VisibilityLine {
    /// Time of this machine, in seconds since 1970.
    unix_s: f64,
    baselines: Vec<BaselineValue>,
}

/// Visibility of a baseline, as a mean over the band.
#[derive(Clone, Debug, Serialize)]
struct BaselineValue {
    name: String,
    amplitude: f64,
    phase_deg: f64,
}

/// Candidates of the run and of those before it, and their labels.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub(crate) struct Candidates {
    /// The last 1000 candidates, the latest first.
    candidates: Vec<Entry>,
    labels: Vec<LabelLine>,
}

/// Last line of a candidate, and its picture.
#[derive(Clone, Debug, Serialize, JsonSchema)]
struct Entry {
    #[serde(flatten)]
    line: CandidateLine,
    /// Address of its picture on the page; absent until it is drawn.
    #[serde(skip_serializing_if = "Option::is_none")]
    url: Option<String>,
}

/// Picture of a candidate that has been drawn.
#[derive(Serialize)]
struct PictureLine<'a> {
    observation: &'a str,
    number: u64,
    url: &'a str,
}

/// Picture of the whole run for a reader of events that begins.
#[derive(Serialize)]
struct Hello<'a> {
    begun_unix_s: f64,
    version: &'a str,
    rows: &'a VecDeque<WaterfallRow>,
    bandpass: &'a BandpassLine,
    dumps: &'a VecDeque<Dump>,
    visibilities: &'a VecDeque<VisibilityLine>,
    plane: Option<&'a PlaneLine>,
    #[serde(skip_serializing_if = "Option::is_none")]
    strain: Option<StrainHello>,
}

#[derive(Default)]
struct Listed {
    /// The latest last.
    candidates: VecDeque<Entry>,
    counts: CandidateCounts,
    labels: VecDeque<LabelLine>,
    dumps: VecDeque<Dump>,
    refused_dumps: u64,
}

#[derive(Clone, Default)]
struct Seen {
    status: Arc<Status>,
    waterfall: VecDeque<WaterfallRow>,
    bandpass: BandpassLine,
    visibilities: VecDeque<VisibilityLine>,
    /// Plane of the last observation that had one.
    plane: Option<Arc<PlaneLine>>,
}

/// State that the page shows.
pub(super) struct Board {
    pub(super) about: About,
    pub(super) begun_unix_s: f64,
    observations: AtomicU64,
    rows: Mutex<Option<Arc<RecentRows>>>,
    detections: Mutex<Option<Shown>>,
    listed: Mutex<Listed>,
    seen: Mutex<Seen>,
    labels: Labels,
    /// State of a search of strain.
    pub(super) strain: StrainBoard,
    messages: broadcast::Sender<Message>,
}

fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns seconds since 1970.
pub(super) fn now_unix_s() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

impl Board {
    /// Makes a board with the candidates and labels that are in the folder.
    pub(super) fn new(about: About) -> Self {
        let labels = Labels::new(about.folder.join("labels.ndjson"));
        let mut listed = Listed { labels: labels.read().into(), ..Listed::default() };
        for line in tail::<CandidateLine>(&about.folder.join(LINES)) {
            let url = line.picture.as_ref().filter(|path| Path::new(path).is_file());
            let url = url.and_then(|path| url_of(Path::new(path)));
            listed.put(line);
            if let Some(last) = listed.candidates.back_mut().filter(|_| url.is_some()) {
                last.url = url;
            }
        }
        for line in tail::<DumpLine>(&about.folder.join(DUMPS)) {
            listed.put_dump(&line);
        }
        listed.dumps.iter_mut().for_each(Dump::abandon);
        let excess = listed.labels.len().saturating_sub(MOST_LABELS);
        listed.labels.drain(..excess);
        let (messages, _) = broadcast::channel(MOST_MESSAGES);
        Self {
            about,
            begun_unix_s: now_unix_s(),
            observations: AtomicU64::new(0),
            rows: Mutex::default(),
            detections: Mutex::default(),
            listed: Mutex::new(listed),
            seen: Mutex::default(),
            labels,
            strain: StrainBoard::default(),
            messages,
        }
    }

    /// Returns the folder of the candidates' pictures.
    pub(super) fn pictures(&self) -> PathBuf {
        self.about.folder.join(PICTURES)
    }

    /// Returns the latest rows of the observation.
    pub(super) fn recent(&self) -> Option<Arc<RecentRows>> {
        locked(&self.rows).clone()
    }

    /// Adds what the board knows to a status.
    pub(super) fn complete(&self, status: &mut Status) {
        let listed = locked(&self.listed);
        status.verb.clone_from(&self.about.verb);
        status.output = super::status::address(&self.about.folder);
        status.begun_unix_s = self.begun_unix_s;
        status.observations = self.observations.load(Ordering::Relaxed);
        status.candidates = CandidateCounts { labels: listed.labels.len() as u64, ..listed.counts };
        if let Some(Reported { view, at }) = self.strain.reported() {
            status.strain = Some(view.as_ref().clone());
            status.since_report_s = Some(at.elapsed().as_secs_f64());
        }
        status.dumps = DumpCounts::of(&listed.dumps, listed.refused_dumps);
    }

    /// Sets the status.
    pub(super) fn set_status(&self, status: Status) {
        let text = json::line(&status).unwrap_or_default();
        locked(&self.seen).status = Arc::new(status);
        self.send("status", text);
    }

    /// Returns the latest status.
    pub(super) fn status(&self) -> Arc<Status> {
        Arc::clone(&locked(&self.seen).status)
    }

    /// Adds a row of the waterfall.
    pub(super) fn add_row(&self, row: WaterfallRow) {
        let text = json::line(&row).unwrap_or_default();
        let mut seen = locked(&self.seen);
        let is_other =
            seen.waterfall.back().is_some_and(|last| last.values.len() != row.values.len());
        if is_other {
            seen.waterfall.clear();
        }
        if seen.waterfall.len() == MOST_ROWS {
            seen.waterfall.pop_front();
        }
        seen.waterfall.push_back(row);
        drop(seen);
        self.send("row", text);
    }

    /// Sets the bandpass.
    pub(super) fn set_bandpass(&self, bandpass: BandpassLine) {
        let text = json::line(&bandpass).unwrap_or_default();
        locked(&self.seen).bandpass = bandpass;
        self.send("bandpass", text);
    }

    /// Returns the detections of the observation, or of the last one.
    pub(super) fn detections(&self) -> Option<Shown> {
        locked(&self.detections).clone()
    }

    /// Sets the plane; `changed` has what is new in it.
    pub(super) fn set_plane(&self, plane: PlaneLine, changed: &PlaneLine) {
        let text = json::line(changed).unwrap_or_default();
        locked(&self.seen).plane = Some(Arc::new(plane));
        self.send("plane", text);
    }

    /// Returns the plane.
    pub(super) fn plane(&self) -> Option<Arc<PlaneLine>> {
        locked(&self.seen).plane.clone()
    }

    /// Begins to read events; returns the first message and the source of those that follow.
    pub(super) fn listen(&self) -> (Message, broadcast::Receiver<Message>) {
        let receiver = self.messages.subscribe();
        // Long texts are made without a lock, for which the run would wait.
        let dumps = self.dumps();
        let seen = locked(&self.seen).clone();
        let hello = Hello {
            begun_unix_s: self.begun_unix_s,
            version: env!("CARGO_PKG_VERSION"),
            rows: &seen.waterfall,
            bandpass: &seen.bandpass,
            dumps: &dumps,
            visibilities: &seen.visibilities,
            plane: seen.plane.as_deref(),
            strain: self.strain.hello(),
        };
        let data = json::line(&hello).unwrap_or_default().into();
        (Message { event: "hello", data }, receiver)
    }

    /// Returns the candidates and their labels.
    pub(super) fn candidates(&self) -> Candidates {
        let listed = locked(&self.listed);
        Candidates {
            candidates: listed.candidates.iter().rev().cloned().collect(),
            labels: listed.labels.iter().cloned().collect(),
        }
    }

    /// Returns the dumps.
    pub(super) fn dumps(&self) -> VecDeque<Dump> {
        locked(&self.listed).dumps.clone()
    }

    /// Sets a label and appends it to the file.
    ///
    /// # Errors
    /// [`Unlabelled`].
    pub(super) fn label(&self, given: Given) -> std::result::Result<(), Unlabelled> {
        let line = given.line(now_unix_s()).map_err(Unlabelled::Refused)?;
        let is_there = |one: &Entry| {
            one.line.number == line.number && one.line.observation == line.observation
        };
        if !locked(&self.listed).candidates.iter().any(is_there) {
            return Err(Unlabelled::Unknown);
        }
        // The run does not wait for the disk.
        self.labels.append(&line).map_err(Unlabelled::Failed)?;
        let text = json::line(&line).unwrap_or_default();
        let mut listed = locked(&self.listed);
        if listed.labels.len() == MOST_LABELS {
            listed.labels.pop_front();
        }
        listed.labels.push_back(line);
        drop(listed);
        self.send("label", text);
        Ok(())
    }

    fn send(&self, event: &'static str, data: String) {
        // Without a reader nothing is sent.
        let _ = self.messages.send(Message { event, data: data.into() });
    }
}

/// Reason why a candidate was not labelled.
pub(super) enum Unlabelled {
    /// The label is wrong.
    Refused(String),
    /// There is no such candidate.
    Unknown,
    /// It could not be written.
    Failed(Error),
}

impl Listed {
    /// Puts a dump in the place of its earlier state; `None` for a request that is no dump of its own.
    fn put_dump(&mut self, line: &DumpLine) -> Option<Dump> {
        let dump = Dump::of(line)?;
        match self.dumps.iter_mut().rev().find(|other| other.id == dump.id) {
            Some(earlier) => *earlier = dump.clone(),
            None => self.dumps.push_back(dump.clone()),
        }
        if self.dumps.len() > MOST_DUMPS {
            self.dumps.pop_front();
        }
        Some(dump)
    }

    /// Adds a line, which replaces earlier ones of its candidate.
    fn put(&mut self, line: CandidateLine) {
        let is_same = |one: &&mut Entry| {
            one.line.number == line.number && one.line.observation == line.observation
        };
        if let Some(place) = self.candidates.iter_mut().rev().find(is_same) {
            place.line = line;
            return;
        }
        if self.candidates.len() == MOST_CANDIDATES {
            self.candidates.pop_front();
        }
        self.candidates.push_back(Entry { line, url: None });
    }
}

impl Watcher for Board {
    fn rows(&self, rows: Option<Arc<RecentRows>>) {
        *locked(&self.rows) = rows;
    }

    fn detections(&self, detections: Arc<Detections>, observation: &Path, first_s: f64) {
        let observation = observation.display().to_string();
        *locked(&self.detections) = Some(Shown { detections, observation, first_s });
    }

    fn candidate(&self, line: &CandidateLine) {
        let text = json::line(line).unwrap_or_default();
        let mut listed = locked(&self.listed);
        let counts = &mut listed.counts;
        match line.state {
            CandidateState::Provisional => counts.provisional += 1,
            CandidateState::Final => counts.r#final += 1,
            CandidateState::Retracted => counts.retracted += 1,
            CandidateState::Updated => {}
        }
        if matches!(line.state, CandidateState::Provisional | CandidateState::Final) {
            counts.latency_s = line.mjd.map(|mjd| line.written_unix_s - unix_s(mjd));
        }
        listed.put(line.clone());
        drop(listed);
        self.send("candidate", text);
    }

    fn dump(&self, line: &DumpLine) {
        let mut listed = locked(&self.listed);
        listed.refused_dumps += u64::from(line.state == DumpState::Refused);
        let Some(dump) = listed.put_dump(line) else { return };
        drop(listed);
        self.send("dump", json::line(&dump).unwrap_or_default());
    }

    fn picture(&self, path: &Path) {
        let mut listed = locked(&self.listed);
        let is_its = |one: &&mut Entry| {
            one.line.picture.as_ref().is_some_and(|picture| Path::new(picture) == path)
        };
        let Some(entry) = listed.candidates.iter_mut().rev().find(is_its) else { return };
        entry.url = url_of(path);
        let Entry { line: CandidateLine { observation, number, .. }, url } = entry;
        let url = url.as_deref().unwrap_or_default();
        let text = json::line(&PictureLine { observation, number: *number, url });
        drop(listed);
        self.send("picture", text.unwrap_or_default());
    }

    fn visibilities(&self, names: &[String], values: &[Complex<f64>]) {
        let value = |(name, value): (&String, &Complex<f64>)| BaselineValue {
            name: printable(name).into_owned(),
            amplitude: value.norm(),
            phase_deg: value.arg().to_degrees(),
        };
        let baselines = names.iter().zip(values).map(value).collect();
        let line = VisibilityLine { unix_s: now_unix_s(), baselines };
        let text = json::line(&line).unwrap_or_default();
        let mut seen = locked(&self.seen);
        if seen.visibilities.len() == MOST_INTEGRATIONS {
            seen.visibilities.pop_front();
        }
        seen.visibilities.push_back(line);
        drop(seen);
        self.send("visibilities", text);
    }

    fn observed(&self) {
        self.observations.fetch_add(1, Ordering::Relaxed);
    }
}

impl Viewer for Board {
    fn strain(&self, view: StrainView, tracks: Vec<TrackLine>) {
        let text = json::line(&tracks).unwrap_or_default();
        self.strain.report(view, tracks);
        self.send("tracks", text);
    }

    fn spectra(&self, spectra: Vec<SpectrumLine>) {
        let text = json::line(&spectra).unwrap_or_default();
        self.strain.set_spectra(spectra);
        self.send("spectra", text);
    }

    fn earlier(&self, lines: Vec<serde_json::Value>) {
        // Readers may have come before the search continued.
        self.strain.restore(lines).into_iter().for_each(|text| self.send("event", text));
    }

    fn event(&self, line: &EventLine, around: AroundEvent) {
        let text = self.strain.add(line, around);
        self.send("event", text);
    }
}

/// Returns the address of a picture on the page.
fn url_of(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_str()?;
    let day = path.parent()?.file_name()?.to_str()?;
    Some(format!("/pictures/{day}/{name}"))
}

/// Returns a file of the pictures; `None` for any other name.
pub(super) fn picture(pictures: &Path, day: &str, name: &str) -> Option<PathBuf> {
    let is_day = day.len() == 10 && day.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-');
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-+".contains(&byte);
    let is_name = name.ends_with(".png") && !name.starts_with('.') && name.bytes().all(is_plain);
    if !(is_day && is_name) {
        return None;
    }
    let path = pictures.join(day).join(name);
    // A link leads elsewhere.
    let is_within = || -> Result<bool> {
        let whole = |path: &Path| path.canonicalize().map_err(|error| Error::io(path, error));
        Ok(whole(&path)?.starts_with(whole(pictures)?) && path.is_file())
    };
    is_within().unwrap_or(false).then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pictures_of_the_folder_are_served() {
        let home = tempfile::tempdir().unwrap();
        let pictures = home.path().join("pictures");
        let day = pictures.join("2026-01-02");
        std::fs::create_dir_all(&day).unwrap();
        for path in [day.join("a_0001_DM3.00.png"), day.join("b.txt"), home.path().join("c.png")] {
            std::fs::write(path, "x").unwrap();
        }
        std::os::unix::fs::symlink(home.path().join("c.png"), day.join("link.png")).unwrap();
        assert!(picture(&pictures, "2026-01-02", "a_0001_DM3.00.png").is_some());
        for (day, name) in [
            ("2026-01-02", "b.txt"),
            ("2026-01-02", "missing.png"),
            ("2026-01-02", "link.png"),
            ("2026-01-02", "../../c.png"),
            ("..", "c.png"),
            ("2026-01-02", ".png"),
            ("2026/01/02", "a_0001_DM3.00.png"),
        ] {
            assert_eq!(picture(&pictures, day, name), None, "{day} {name}");
        }
    }
}
