//! Search of a live stream: each observation gets a folder, and lines, alerts and dumps while it arrives.
//!
//! Invariant: kernels and the memory of dumps are made before a described stream's sockets open.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use sidereal::backend::Backend;
use sidereal::pipeline::burst::{self, SearchOptions};
use sidereal::pipeline::dump::Memory;
use sidereal::units::Epoch;
use sidereal::{Error, Result};

use super::arguments::{Arguments, search_options};
use super::report::Found;
use super::work::{CONTENTS, Keep, Work};
use super::{dumps, lines};
use crate::alerts::{self, Alerts};
use crate::common::{self, Common, Gpus};
use crate::errors;
use crate::interrupt::{self, Exit};
use crate::output::Folder;
use crate::say::note;
use crate::selection::{Opened, Source};
use crate::streams::{self, Expected, free_name, name_of};
use crate::watch::Session;

/// Options of what a live search does with its candidates, beside writing lists.
pub(crate) struct Actions<'a> {
    pub(crate) alerts: &'a alerts::Arguments,
    pub(crate) dumps: &'a dumps::Arguments,
    /// Triggers that come through the page.
    pub(crate) triggers: Option<alerts::Arrivals>,
}

/// Searches the observations of a live stream, each into a folder of its own, and writes lines for each candidate from the
/// moment it stands out. Ends as the session says, or after a request to stop; whatever ends it, alerts and dumps are ended and listed.
pub(crate) fn run(
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
struct LiveSearch<'a> {
    arguments: &'a Arguments,
    dumps: &'a dumps::Arguments,
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
pub(crate) fn check_ring(
    arguments: &Arguments,
    dumps: &dumps::Arguments,
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
fn search_into(work: &mut Work<'_>, folder: Folder) -> Result<Found> {
    let mut found = work.search(&folder, Keep::Anew)?;
    let lines = work.lines.as_mut();
    let listed = lines.map_or(Ok(()), |lines| lines.finish(&found.report.candidates));
    work.write(&folder, &mut found)?;
    folder.finish()?;
    listed.map(|()| found)
}
