//! Alerts of a live search for compact binaries: LIGO_LW files with the data for sky localization, GCN notices, and commands.
//!
//! The search copies the strain that an alert needs; series, files and commands are made by threads behind bounded queues.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};
use sidereal::backend::Backend;
use sidereal::backend::threads::Threads;
use sidereal::geometry::utc_of_tai;
use sidereal::io::atomic;
use sidereal::io::ligolw::{self, EventsFile, PsdRow, write_events};
use sidereal::live::clock;
use sidereal::pipeline::cbc::{OnlineSearch, Snapshot};
use sidereal::spiir::coincidence::{Change, Event, State};
use sidereal::state::{Saved, Saving};
use sidereal::units::{Epoch, Gps, SECONDS_PER_YEAR};
use sidereal::{Error, Result};
use tracing::Level;

use super::background::RatedRow;
use super::search::{HALF_S, detector_row, option_words, template_row};
use crate::alerts::{EventState, Fates, Hook, Message, Worker, iso, stem};
use crate::common::Common;
use crate::numbers::within;
use crate::plots::plural;
use crate::provenance::Provenance;
use crate::say::{self, note, warning};
use crate::{interrupt, json as document};

/// Most alerts that wait to be written.
const WAITING: usize = 64;

/// Longest wait at the end for files.
const PATIENCE: Duration = Duration::from_secs(5);

/// TAI - GPS in seconds, and the modified Julian date of the GPS epoch.
const TAI_GPS_S: f64 = 19.0;
const GPS_ZERO_MJD: i64 = 44_244;

/// Options of alerts.
#[derive(Args, Clone, Debug)]
#[group(id = "announce_options")]
#[command(next_help_heading = "Alerts")]
pub(super) struct Options {
    /// Alert about events whose false-alarm rate is at most this many a year.
    ///
    /// An event without a rate, while the background has too few triggers, gives no alert.
    #[arg(long, value_name = "RATE", default_value_t = 12.0, allow_negative_numbers = true)]
    far_max: f64,
    /// Run a command for each message about an event, which is JSON on its standard input.
    ///
    /// Words are split as a shell splits them, but no shell runs: variables and pipes need a script. One command runs at a
    /// time, 64 messages wait, and what it prints is logged.
    #[arg(long, value_name = "COMMAND")]
    on_event: Option<String>,
    /// Time limit of a command in seconds; beyond it the command and its child processes are killed.
    #[arg(long, value_name = "SECONDS", default_value_t = 30.0, allow_negative_numbers = true)]
    on_event_timeout: f64,
    /// Write each message about an event as LIGO_LW, with the SNR series and spectra that BAYESTAR needs, and as a GCN notice to
    /// this folder.
    #[arg(long, value_name = "DIR")]
    alerts: Option<PathBuf>,
    /// Mark all alerts as tests.
    #[arg(long)]
    alert_test: bool,
}

impl Options {
    /// Checks everything that needs no strain; returns the command.
    ///
    /// # Errors
    /// [`Error::Parameter`] naming the option.
    pub(super) fn check(&self) -> Result<Option<Hook>> {
        within("--far-max", self.far_max, 1e-12..=1e12, "events a year")?;
        within("--on-event-timeout", self.on_event_timeout, 0.01..=3600.0, "seconds")?;
        let hook = self.on_event.as_deref();
        hook.map(|command| Hook::new(command, self.on_event_timeout)).transpose()
    }
}

/// Message about an event.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct Alert {
    /// Folder of the run and number of the event; unique in the folder of all runs.
    id: String,
    /// initial, update or retraction.
    state: EventState,
    /// Number of the message of this event, from 1 on.
    sequence: u32,
    /// Whether no later strain changes it.
    #[serde(rename = "final")]
    is_final: bool,
    /// Whether it is a test.
    #[serde(rename = "test")]
    is_test: bool,
    /// Time of the event, UTC (ISO 8601); absent for times whose leap seconds are unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    time: Option<String>,
    #[serde(flatten)]
    event: RatedRow,
    /// LIGO_LW file; absent for a retraction, and without --alerts.
    #[serde(skip_serializing_if = "Option::is_none")]
    coinc: Option<String>,
    /// Time of this message, UTC.
    created: String,
    /// The same in seconds since 1970.
    created_unix_s: f64,
}

impl Message for Alert {
    fn id(&self) -> &str {
        &self.id
    }

    fn state(&self) -> &'static str {
        self.state.name()
    }
}

impl Alert {
    /// Updates the alert to the event's next message, with the current time.
    fn next(&mut self, state: EventState, is_final: bool, gps: Gps, event: RatedRow) {
        self.state = state;
        self.sequence += 1;
        self.is_final = is_final;
        self.time = utc(gps);
        self.event = event;
        self.coinc = None;
        self.created = iso(&clock::now());
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.created_unix_s = since.as_secs_f64();
    }

    /// Returns a notice of NASA's General Coordinates Network with the fields of its core schemas, and those of its own.
    fn notice(&self) -> Value {
        let row = &self.event.event;
        let names: Vec<&str> = row.detectors.keys().map(String::as_str).collect();
        let tense = match () {
            () if self.is_test => "test",
            () if self.event.injection => "injection",
            () => "current",
        };
        let words = match (self.state, self.is_final) {
            (EventState::Retraction, _) => "Retracted by the search that reported it.",
            (_, true) => "Final result of an automatic search; no person has looked at it.",
            (_, false) => "Result of an automatic search that goes on; no person has looked at it.",
        };
        let mut notice = json!({
            "alert_type": self.state.name(),
            "alert_tense": tense,
            "alert_datetime": self.created,
            "mission": names.join(","),
            "instrument": format!("sidereal {}", env!("CARGO_PKG_VERSION")),
            "messenger": "GW",
            "record_number": self.sequence,
            "id": self.id,
            "additional_info": words,
        });
        let Some(fields) = notice.as_object_mut() else { return notice };
        if let Some(time) = &self.time {
            fields.insert("trigger_time".to_owned(), json!(time));
        }
        if self.state == EventState::Retraction {
            return notice;
        }
        let per_year = row.far_hz.map(|far_hz| far_hz * SECONDS_PER_YEAR);
        let own = [
            ("far", json!(row.far_hz)),
            ("far_per_year", json!(per_year)),
            ("log_likelihood_ratio", json!(self.event.log_likelihood_ratio)),
            ("snr", json!(row.network_snr)),
            ("detectors", json!(row.detectors)),
            ("binary", json!(row.binary)),
        ];
        let known = own.into_iter().filter(|(_, value)| !value.is_null());
        fields.extend(known.map(|(name, value)| (name.to_owned(), value)));
        notice
    }
}

/// Formats a GPS time in UTC.
fn utc(gps: Gps) -> Option<String> {
    let day_ns = 86_400_000_000_000;
    let seconds = gps.ns.rem_euclid(day_ns) as f64 * 1e-9 + TAI_GPS_S;
    let tai = Epoch::new(GPS_ZERO_MJD + gps.ns.div_euclid(day_ns), seconds);
    utc_of_tai(&tai).ok().map(|utc| iso(&utc))
}

/// Alert with the data for its files.
struct Job {
    alert: Alert,
    event: Event,
    snapshots: Vec<Snapshot>,
}

/// Folder, options and backend of all files.
struct Files {
    folder: PathBuf,
    parameters: Vec<(String, String)>,
    backend: Backend,
}

impl Files {
    /// Writes the files of an alert.
    fn write(&self, Job { alert, event, snapshots }: &mut Job) -> Result<()> {
        let stem = self.folder.join(stem(&alert.id, alert.state, alert.sequence));
        let with = |ending: &str| PathBuf::from(format!("{}.{ending}", stem.display()));
        if alert.state != EventState::Retraction {
            let path = with("xml");
            self.write_coinc(&path, event, std::mem::take(snapshots))?;
            alert.coinc = Some(path.display().to_string());
        }
        atomic::write(&with("json"), document::text(&alert.notice())?.as_bytes())
    }

    fn write_coinc(&self, path: &Path, event: &Event, snapshots: Vec<Snapshot>) -> Result<()> {
        let about = snapshots.first().map(|one| template_row(one.template()));
        let approximant = snapshots.first().and_then(|one| one.template().approximant.clone());
        let (mut detectors, mut psds) = (Vec::new(), Vec::new());
        for (snapshot, trigger) in snapshots.into_iter().zip(event.detectors.iter().flatten()) {
            let (name, template) = (snapshot.detector.clone(), snapshot.template().clone());
            psds.push(PsdRow { ifo: name.clone(), psd: snapshot.psd.clone() });
            let ratios = snapshot.series(&self.backend)?;
            detectors.push(detector_row(&name, &template, trigger, ratios));
        }
        let times = event.detectors.iter().flatten().map(|one| one.gps);
        let ends = times.map(|gps| (gps.plus_s(-HALF_S), gps.plus_s(HALF_S)));
        let mut parameters = self.parameters.clone();
        if let Some(name) = approximant
            && parameters.iter().all(|(option, _)| option != "--approximant")
        {
            parameters.push(("--approximant".to_owned(), name));
        }
        let file = EventsFile {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            comment: "sidereal live spiir".to_owned(),
            parameters,
            span: ends.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1))),
            events: vec![ligolw::EventRow {
                gps: event.gps,
                network_snr: event.network_snr,
                far_hz: event.far_hz,
                template: about.unwrap_or_default(),
                detectors,
            }],
            psds,
        };
        write_events(path, &file)
    }
}

/// Alerts of a run.
pub(super) struct Alerts {
    far_max_hz: f64,
    is_test: bool,
    is_quiet: bool,
    hook: Option<Arc<Worker<Alert>>>,
    hook_limit: Duration,
    files: Option<Worker<Job>>,
    observation: String,
    /// Messages so far about each event that is neither final nor retracted, by the event's number.
    open: BTreeMap<u64, u32>,
    /// Events with messages.
    events: u64,
}

impl Alerts {
    /// Finds the command, makes the folder, and starts the threads.
    ///
    /// # Errors
    /// As [`Options::check`]; [`Error::Io`] for a folder that cannot be written.
    pub(super) fn start(
        options: &Options,
        observation: &Path,
        backend: &Backend,
        common: &Common,
    ) -> Result<Self> {
        let hook = options.check()?;
        let hook_limit = hook.as_ref().map_or(Duration::ZERO, Hook::limit);
        let hook = hook.map(Hook::start).transpose()?.map(Arc::new);
        let files = options.alerts.as_ref().map(|folder| {
            let failed = |error| Error::io(folder, error);
            fs::create_dir_all(folder).map_err(failed)?;
            tempfile::tempfile_in(folder).map_err(failed)?;
            let backend = match backend.on_host() {
                Backend::Cpu(level, _) => Backend::Cpu(level, Threads::new(1)),
                other => other,
            };
            let parameters = option_words(&Provenance::new(common, &[])?);
            let files = Files { folder: folder.clone(), parameters, backend };
            writer(files, hook.clone())
        });
        let name = observation.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Self {
            far_max_hz: options.far_max / SECONDS_PER_YEAR,
            is_test: options.alert_test,
            is_quiet: common.quiet,
            hook,
            hook_limit,
            files: files.transpose()?,
            observation: name,
            open: BTreeMap::new(),
            events: 0,
        })
    }

    /// Takes a change of an event: the first with a rate that is low enough gives an alert, each later one an update.
    ///
    /// # Errors
    /// As [`OnlineSearch::snapshots`].
    pub(super) fn change(
        &mut self,
        change: &Change,
        row: &RatedRow,
        search: &OnlineSearch,
    ) -> Result<()> {
        if self.hook.is_none() && self.files.is_none() {
            return Ok(());
        }
        let Some(before) = self.count(change) else { return Ok(()) };
        let state = match change.state {
            State::Retracted => EventState::Retraction,
            _ if before == 0 => EventState::Initial,
            _ => EventState::Update,
        };
        let mut alert = self.alert(change.number, before, row);
        alert.next(state, is_last(change), change.event.gps, row.clone());
        match (&self.files, &self.hook) {
            (Some(files), _) => {
                let snapshots = match state {
                    EventState::Retraction => Vec::new(),
                    _ => search.snapshots(&change.event, HALF_S)?,
                };
                files.offer(Job { alert, event: change.event.clone(), snapshots });
            }
            (None, Some(hook)) => hook.offer(alert),
            (None, None) => {}
        }
        Ok(())
    }

    /// Counts the message about a change; returns how many the event had before, `None` for a change without a message.
    fn count(&mut self, change: &Change) -> Option<u32> {
        let is_rare = change.significance.is_some_and(|own| own.far_hz <= self.far_max_hz);
        let before = match self.open.remove(&change.number) {
            Some(before) => before,
            None if is_rare && change.state != State::Retracted => {
                self.events += 1;
                0
            }
            None => return None,
        };
        if !is_last(change) {
            self.open.insert(change.number, before + 1);
        }
        Some(before)
    }

    /// Takes note of a change that a killed run has published, and sends nothing.
    pub(super) fn published(&mut self, change: &Change) {
        if self.hook.is_some() || self.files.is_some() {
            let _ = self.count(change);
        }
    }

    /// Saves which events have messages.
    pub(super) fn save(&self, to: &mut Saving) {
        to.part("alerts");
        to.number(self.open.len() as u64);
        for (number, messages) in &self.open {
            to.number(*number);
            to.number((*messages).into());
        }
    }

    /// Restores which events have messages.
    ///
    /// # Errors
    /// [`Error::Format`] for something else.
    pub(super) fn load(&mut self, from: &mut Saved<'_>) -> Result<()> {
        from.part("alerts")?;
        self.open.clear();
        for _ in 0..from.number()? {
            let (number, messages) = (from.number()?, from.at_most(u32::MAX as usize)? as u32);
            self.open.insert(number, messages);
        }
        Ok(())
    }

    fn alert(&self, number: u64, sequence: u32, row: &RatedRow) -> Alert {
        Alert {
            id: format!("{}_{number:04}", self.observation),
            state: EventState::Initial,
            sequence,
            is_final: false,
            is_test: self.is_test,
            time: None,
            event: row.clone(),
            coinc: None,
            created: String::new(),
            created_unix_s: 0.0,
        }
    }

    /// Waits a limited time for what is not written or sent yet, and ends the threads.
    pub(super) fn finish(self) {
        if self.hook.is_none() && self.files.is_none() {
            return;
        }
        interrupt::finishing();
        let lost = |what: &str, [_, failed, dropped]: [u64; 3]| {
            if failed + dropped > 0 {
                warning!(quiet: self.is_quiet, "{what}: {failed} failed, {dropped} left out.");
            }
        };
        if let Some(mut files) = self.files {
            files.finish(PATIENCE);
            lost("messages of --alerts", files.fates.counts());
        }
        // The thread that writes files shares the command's queue until it ends.
        if let Some(mut hook) = self.hook.and_then(Arc::into_inner) {
            hook.finish(self.hook_limit + PATIENCE);
            lost("commands of --on-event", hook.fates.counts());
        }
        if !self.is_quiet {
            note!("{} with alerts", plural(self.events as usize, "event"));
        }
    }
}

/// Returns whether no message follows that of a change.
fn is_last(change: &Change) -> bool {
    matches!(change.state, State::Final | State::Retracted)
}

/// Starts the thread that writes files and then queues the command.
fn writer(files: Files, hook: Option<Arc<Worker<Alert>>>) -> Result<Worker<Job>> {
    let mut has_warned = false;
    Worker::start("alerts", WAITING, move |mut job: Job, fates: &Fates| {
        match files.write(&mut job) {
            Ok(()) => Fates::count(&fates.done),
            Err(error) => {
                Fates::count(&fates.failed);
                let words = format!("the alert of {} was not written: {error}", job.alert.id);
                if std::mem::replace(&mut has_warned, true) {
                    say::log(Level::WARN, &words);
                } else {
                    warning!(quiet: false, "{words}; further failures are only logged.");
                }
            }
        }
        if let Some(hook) = &hook {
            hook.offer(job.alert);
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gps_times_have_their_leap_seconds() {
        // GW150914 and the leap second before 2017.
        let of = |s: f64| utc(Gps::from_s(s)).unwrap();
        assert_eq!(of(1_126_259_462.391), "2015-09-14T09:50:45.391000Z");
        assert_eq!(of(1_167_264_018.0), "2017-01-01T00:00:00.000000Z");
        assert_eq!(of(0.0), "1980-01-06T00:00:00.000000Z");
        assert_eq!(utc(Gps { ns: i64::MIN / 4 }), None);
    }
}
