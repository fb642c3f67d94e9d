//! `sidereal live spiir`: searches strain that arrives as frame files for compact binaries.

mod arguments;
mod checkpoint;
mod document;
mod lines;
mod view;

use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sidereal::backend::Backend;
use sidereal::live::frames::{Arrived, Begun, Block, FrameStreams, Span};
use sidereal::pipeline::Ending;
use sidereal::pipeline::cbc::{Awaited, Input, OnlineSearch};
use sidereal::spiir::coincidence::Change;
use sidereal::trace::{self, Work};
use sidereal::units::Gps;
use sidereal::{Error, Result};

pub(crate) use arguments::LiveArguments;
use checkpoint::{Keeper, Left, Record};
pub(crate) use document::Document;
use document::{DetectorRow, largest};
use lines::Lines;
#[cfg(feature = "page")]
pub(crate) use lines::State as EventState;
pub(crate) use lines::{EventLine, GapLine};
pub(crate) use view::Viewer;
#[cfg(feature = "page")]
pub(crate) use view::{AROUND_S, AroundEvent, DetectorView, SpectrumLine, StrainView, TrackLine};
use view::{EventCounts, Views};

use super::announce::Alerts;
use super::background::{self, BackgroundFile, BackgroundRow, RatedRow};
use super::search::event_row;
use crate::common::{self, Common, Gpus, tell_notes};
use crate::interrupt::{self, Exit};
use crate::output::{Contents, Existing, Folder, Writing};
use crate::plots::short;
use crate::provenance::{Product, Provenance, Run};
use crate::say::note;
use crate::streams::free_name;
use crate::{errors, flags, json, resume};

/// Longest wait for files between looks at the folders.
const LOOK: Duration = Duration::from_millis(100);

/// Seconds of strain for which a backend is chosen.
const CHOSEN_S: u64 = 3600;

/// Contents of the folder of a run.
const CONTENTS: Contents = Contents {
    verb: "live spiir",
    documents: &["events.json"],
    writes: |_, name| name == "events.json",
};

/// Runs the verb.
pub(crate) fn run(
    arguments: &LiveArguments,
    viewer: Option<Arc<dyn Viewer>>,
    common: &Common,
) -> Result<Exit> {
    let (output, patience) = (&arguments.output, arguments.patience()?);
    arguments.alerts.check()?;
    let folders = arguments.folders()?;
    let search_options = arguments.detection.options()?;
    let (banks, rate_hz) = arguments.banks_and_rate()?;
    let mut streams = FrameStreams::open(&folders, rate_hz, patience)?;
    let whitening = arguments.whitening.whitening(rate_hz, f64::INFINITY, common.memory)?;
    let inputs = arguments.inputs(&folders, banks.as_ref(), &whitening, rate_hz, common)?;
    let waveforms = |one: &Awaited| match &one.input {
        Input::Templates(source) => source.waveforms.len(),
        Input::Bank(bank) => bank.templates.len(),
    };
    let rows: usize = inputs.iter().map(waveforms).sum();
    let ratios = rows as u64 * u64::from(rate_hz) * CHOSEN_S;
    let chosen = || common.backend_for(common::Work::on_ratios(ratios), Gpus::Several);
    let backend = common.asked_backend(Gpus::Several)?.map_or_else(chosen, Ok)?;
    // Filters and kernels are there before the first frame.
    let mut search = OnlineSearch::new(inputs, rate_hz, &search_options(whitening), &backend)?;
    if !common.quiet {
        let latency = largest(search.detectors().map(|one| one.latency));
        note!("triggers are known {} s after their strain", short(latency.total_s(), 3));
        if arguments.quality.as_deref() == Some("none") {
            note!("--quality none: strain is used whatever its state");
        }
    }
    let identity = arguments.identity(&search, &backend)?;
    let writing = Writing { contents: CONTENTS, existing: Existing::Refuse, inputs: &[], common };
    let found = match arguments.resume {
        true => Left::find(output, &identity, &writing, folders.len())?,
        false => None,
    };
    let background = arguments.background.clone();
    let background = background.unwrap_or_else(|| output.join(background::NAME));
    let background = BackgroundFile::open(background, &mut search, found.is_some(), common)?;
    if arguments.resume && found.is_none() && !common.quiet {
        note!("no killed run left anything to continue; this run starts anew.");
    }
    if !common.quiet {
        let places: Vec<String> = folders
            .iter()
            .map(|one| format!("{} in {}", one.detector, one.folder.display()))
            .collect();
        note!("waiting for frames of {}", places.join(", "));
    }
    let (folder, left) = match found {
        Some((folder, left)) => (folder, Some(left)),
        None => {
            let begun = wait_for_strain(&mut streams)?;
            search.begin(begun.start);
            fs::create_dir_all(output).map_err(|error| Error::io(output, error))?;
            let name = (begun.start.ns.div_euclid(1_000_000_000)).to_string();
            (Folder::begin(&free_name(output, &name, ""), &writing)?, None)
        }
    };
    let place = folder.place().to_path_buf();
    let lines = Lines::begin(output, &place, arguments.max_events, common)?;
    let names: Vec<String> = folders.iter().map(|one| one.detector.clone()).collect();
    let until = arguments.until.map(Gps::from_s);
    let alerts = Alerts::start(&arguments.alerts, &place, &backend, common)?;
    let views = Views::new(names.len());
    let (keeper, is_quiet) = (None, common.quiet);
    let mut live = Live {
        names,
        streams,
        search,
        background,
        alerts,
        lines,
        rate_hz,
        until,
        keeper,
        viewer,
        views,
        is_quiet,
    };
    if let Some(left) = &left {
        live.resume(left)?;
        if !common.quiet {
            note!("continues {}", place.display());
        }
    }
    if arguments.checkpoint > 0.0 {
        let interval = Duration::from_secs_f64(arguments.checkpoint);
        let path = folder.file("");
        let keeper = Keeper::begin(&path, identity, left.as_ref(), interval, !common.no_sync)?;
        live.keeper = Some(keeper);
        // Before anything is published, so that every later run continues this one.
        live.keep()?;
        if let Some(keeper) = &mut live.keeper {
            keeper.settle(common.quiet);
        }
    }
    let mut ending = match left.is_some_and(|left| left.has_ended()) {
        // Only the document of the killed run is missing.
        true => Ending::Stopped,
        false => live.search().unwrap_or_else(Ending::after),
    };
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
    resume::clear(&folder.file(""))?;
    folder.finish()?;
    if common.json {
        json::print(&product)?;
    } else if !common.quiet {
        note!("{}", product.document.text(&place));
    }
    Ok(errors::ended(&ending, &place))
}

/// Waits for the first frames.
fn wait_for_strain(streams: &mut FrameStreams) -> Result<Begun> {
    loop {
        interrupt::check()?;
        streams.look();
        if let Some(begun) = streams.begin()? {
            return Ok(begun);
        }
        streams.wait(LOOK);
    }
}

/// Time before which no triggers are missing, of a detector that is waited for.
const NEVER: Gps = Gps { ns: i64::MIN / 4 };

/// Strain of a detector that is searched at once.
const PART_S: f64 = 0.25;

/// Frame that is being searched.
#[derive(Default)]
struct Frame {
    samples: Vec<f64>,
    valid: Vec<bool>,
    /// Samples that have been searched, and the time that this took.
    done: usize,
    spent: Duration,
    arrived: Option<Arrived>,
}

impl Frame {
    /// Takes the samples of a block.
    fn take(&mut self, block: &Block<'_>) {
        self.samples.clear();
        self.samples.extend_from_slice(block.samples);
        self.valid.clear();
        self.valid.extend_from_slice(block.valid);
        (self.done, self.spent, self.arrived) = (0, Duration::ZERO, block.frame);
    }

    fn is_left(&self) -> bool {
        self.done < self.samples.len()
    }

    /// Returns the next samples, at most `most`.
    fn next(&mut self, most: usize) -> (&[f64], &[bool]) {
        let first = self.done;
        self.done = (first + most).min(self.samples.len());
        (&self.samples[first..self.done], &self.valid[first..self.done])
    }
}

/// A search that is going on.
struct Live {
    names: Vec<String>,
    streams: FrameStreams,
    search: OnlineSearch,
    background: BackgroundFile,
    alerts: Alerts,
    lines: Lines,
    rate_hz: u32,
    until: Option<Gps>,
    keeper: Option<Keeper>,
    viewer: Option<Arc<dyn Viewer>>,
    views: Views,
    is_quiet: bool,
}

impl Live {
    /// Searches strain as it arrives, until the end or a signal.
    fn search(&mut self) -> Result<Ending> {
        let mut waited = Vec::new();
        let mut frames: Vec<Frame> = self.names.iter().map(|_| Frame::default()).collect();
        loop {
            self.streams.look();
            let mut is_idle = true;
            let mut is_ended = self.until.is_some();
            for (detector, frame) in frames.iter_mut().enumerate() {
                let next = self.streams.next(detector);
                if self.until.zip(next).is_some_and(|(until, next)| next >= until) {
                    continue;
                }
                is_ended = false;
                let Some(block) = self.streams.take(detector) else { continue };
                is_idle = false;
                frame.take(&block);
                self.lines.block(&self.names[detector], block.gaps, self.rate_hz)?;
                for Span { start, end } in block.injections {
                    self.search.mark_injection(detector, *start, *end);
                }
                let _span = trace::span(Work::Compute, "search");
                let mut missing = block.missing;
                while missing > 0 {
                    missing -= self.search.gap(detector, missing)?;
                    if interrupt::requested() {
                        return Ok(Ending::Stopped);
                    }
                }
            }
            self.streams.waited(&mut waited);
            if !self.frames(&mut frames, &waited)? {
                return Ok(Ending::Stopped);
            }
            self.changes(&waited)?;
            self.keep()?;
            self.show();
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

    /// Searches one frame of each detector, a part of each in turn, so that events early in the frames do not wait for the rest;
    /// returns false if a signal came.
    fn frames(&mut self, frames: &mut [Frame], waited: &[Gps]) -> Result<bool> {
        let part = (f64::from(self.rate_hz) * PART_S).ceil() as usize;
        let mut awaited = waited.to_vec();
        while frames.iter().any(Frame::is_left) {
            for (detector, frame) in frames.iter_mut().enumerate().filter(|(_, one)| one.is_left())
            {
                let begin = Instant::now();
                let _span = trace::span(Work::Compute, "search");
                let (samples, valid) = frame.next(part);
                self.search.push(detector, samples, valid)?;
                frame.spent += begin.elapsed();
                if let (false, Some(arrived)) = (frame.is_left(), frame.arrived) {
                    self.views.searched(detector, arrived, frame.spent);
                }
            }
            if frames.iter().any(Frame::is_left) {
                // The strain of an unfinished frame is there, so its triggers are awaited.
                for ((awaited, waited), frame) in awaited.iter_mut().zip(waited).zip(&*frames) {
                    *awaited = if frame.is_left() { NEVER } else { *waited };
                }
                self.changes(&awaited)?;
            }
            if interrupt::requested() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Continues a killed run: from its last checkpoint, with the events that it has published since.
    fn resume(&mut self, left: &Left) -> Result<()> {
        let mut from = left.state()?;
        let begun = self.streams.resume(&mut from)?;
        self.search.begin(begun.start);
        self.search.load(&mut from)?;
        let (search, names) = (&self.search, &self.names);
        self.lines.load(&mut from, names.len(), |change| row(change, search, names))?;
        self.alerts.load(&mut from)?;
        from.end()?;
        for record in &left.records {
            for change in &record.published.changes {
                self.alerts.published(change);
                self.lines.count(change, row(change, &self.search, &self.names));
            }
            self.search.resume(&record.published);
        }
        // A run that is killed between record and lines has written some of the last record's, or none.
        if let Some(Record { before, published }) = left.records.last() {
            let written = self.lines.events_from(*before)?;
            for change in published.changes.iter().skip(written) {
                self.lines.write(change, row(change, &self.search, &self.names))?;
            }
        }
        if let Some(viewer) = &self.viewer {
            viewer.earlier(self.lines.latest()?);
        }
        Ok(())
    }

    /// Shows the state on the page, if it is time.
    fn show(&mut self) {
        if let Some(viewer) = &self.viewer {
            let counts = EventCounts { found: self.lines.found, retracted: self.lines.retracted };
            self.views.show(viewer.as_ref(), &self.search, &self.streams, counts);
        }
    }

    /// Saves the state, if it is time.
    fn keep(&mut self) -> Result<()> {
        let Some(keeper) = &mut self.keeper else { return Ok(()) };
        let (streams, search, lines) = (&self.streams, &self.search, &self.lines);
        let alerts = &self.alerts;
        keeper.keep(self.is_quiet, |to| {
            let _span = trace::span(Work::Compute, "checkpoint");
            streams.save(to);
            let is_saved = search.save(to)?;
            lines.save(to)?;
            alerts.save(to);
            Ok(is_saved)
        })
    }

    /// Writes the events that have changed.
    fn changes(&mut self, waited: &[Gps]) -> Result<()> {
        let mut changes = Vec::new();
        self.search.changes(waited, &mut changes)?;
        self.background.update(&self.search);
        if changes.is_empty() {
            return Ok(());
        }
        let before = self.lines.events_bytes()?;
        let record = Record { before, published: self.search.published(changes) };
        if let Some(keeper) = &mut self.keeper {
            keeper.publish(&record)?;
        }
        for change in &record.published.changes {
            let row = row(change, &self.search, &self.names);
            self.lines.count(change, row.clone());
            let line = self.lines.write(change, row.clone())?;
            self.alerts.change(change, &row, &self.search)?;
            if let Some(viewer) = &self.viewer {
                self.views.event(viewer.as_ref(), &self.search, &change.event, &line);
            }
        }
        Ok(())
    }

    /// Writes the last events of a search that has ended, and the gaps that are open.
    fn write_changes(&mut self) -> Result<()> {
        self.changes(&vec![NEVER; self.names.len()])?;
        self.lines.end()
    }

    fn product(
        mut self,
        ending: &Ending,
        backend: &Backend,
        common: &Common,
    ) -> Result<Product<Document>> {
        // The last checkpoint is written.
        self.keeper = None;
        let begun =
            self.streams.begun().unwrap_or(Begun { start: Gps::default(), rate_hz: self.rate_hz });
        let mut detectors = Vec::new();
        for (index, one) in self.search.detectors().enumerate() {
            let channel = self.streams.channel(index).map(str::to_owned);
            detectors.push(DetectorRow::new(&one, channel, self.streams.counts(index), begun));
        }
        self.alerts.finish();
        self.background.finish(&self.search);
        let background = BackgroundRow::new(&self.search);
        let latency = largest(self.search.detectors().map(|one| one.latency));
        for (row, livetime_s) in detectors.iter_mut().zip(self.search.livetimes_s()) {
            row.livetime_s = livetime_s;
        }
        let document = Document {
            complete: ending.is_complete(),
            reason: flags::reason(ending),
            found: self.lines.found,
            retracted: self.lines.retracted,
            events: self.lines.loudest(),
            detectors,
            background,
            latency_s: latency.into(),
        };
        let run = Run::new(common).on(backend).live();
        Ok(Product::new("live-spiir", document, Provenance::new(common, &[])?, run))
    }
}

/// Describes an event that has changed.
fn row(change: &Change, search: &OnlineSearch, names: &[String]) -> RatedRow {
    let bank = search.detectors().next().map(|one| one.bank);
    let row = event_row(&change.event, names.iter().map(String::as_str), bank);
    RatedRow::new(row, change.significance, change.is_injection)
}
