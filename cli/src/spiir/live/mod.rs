//! `sidereal live spiir`: searches strain that arrives as frame files for compact binaries.

mod arguments;
mod document;
mod lines;

use std::fs;
use std::time::Duration;

use sidereal::backend::Backend;
use sidereal::io::templates;
use sidereal::live::frames::{Begun, FrameFolder, FrameStreams};
use sidereal::pipeline::Ending;
use sidereal::pipeline::cbc::{Awaited, Input, Latency, OnlineSearch};
use sidereal::trace::{self, Work};
use sidereal::units::Gps;
use sidereal::{Error, Result};

pub(crate) use arguments::LiveArguments;
use document::DetectorRow;
pub(crate) use document::Document;
use lines::Lines;
pub(crate) use lines::{EventLine, GapLine};

use super::search::event_row;
use crate::common::{self, Common, tell_notes};
use crate::interrupt::{self, Exit};
use crate::output::{Contents, Existing, Folder, Writing};
use crate::provenance::{Product, Provenance, Run};
use crate::say::note;
use crate::streams::free_name;
use crate::{errors, flags, json};

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
pub(crate) fn run(arguments: &LiveArguments, common: &Common) -> Result<Exit> {
    let patience = arguments.patience()?;
    let folders = arguments.folders()?;
    let search_options = arguments.detection.options()?;
    let templates = arguments.templates.as_deref().map(templates::open).transpose()?;
    let mut streams = FrameStreams::open(&folders, patience)?;
    if !common.quiet {
        let places: Vec<String> = folders
            .iter()
            .map(|one| format!("{} in {}", one.detector, one.folder.display()))
            .collect();
        note!("waiting for frames of {}", places.join(", "));
    }
    let begun = loop {
        interrupt::check()?;
        streams.look();
        if let Some(begun) = streams.begin()? {
            break begun;
        }
        streams.wait(LOOK);
    };
    let whitening = arguments.whitening.whitening(begun.rate_hz, f64::INFINITY, common.memory)?;
    let input = arguments.input(templates, &whitening, begun.rate_hz, common)?;
    let waveforms = match &input {
        Input::Shared(source) => source.waveforms.len(),
        Input::Templates(source) => source.waveforms.len(),
        Input::Bank(bank) => bank.templates.len(),
    };
    let ratios = folders.len() as u64 * waveforms as u64 * u64::from(begun.rate_hz) * CHOSEN_S;
    let chosen = || common.backend_for(common::Work::on_ratios(ratios));
    let backend = common.asked_backend()?.map_or_else(chosen, Ok)?;
    let awaited =
        |one: &FrameFolder| Awaited { detector: one.detector.clone(), input: input.clone() };
    let awaited = folders.iter().map(awaited).collect();
    let options = search_options(whitening);
    let search = OnlineSearch::new(awaited, begun.start, begun.rate_hz, &options, &backend)?;
    fs::create_dir_all(&arguments.output).map_err(|error| Error::io(&arguments.output, error))?;
    let name = (begun.start.ns.div_euclid(1_000_000_000)).to_string();
    let place = free_name(&arguments.output, &name, "");
    let writing = Writing { contents: CONTENTS, existing: Existing::Refuse, inputs: &[], common };
    let folder = Folder::begin(&place, &writing)?;
    let lines = Lines::begin(&arguments.output, &place, common)?;
    let names: Vec<String> = folders.iter().map(|one| one.detector.clone()).collect();
    let until = arguments.until.map(Gps::from_s);
    let mut live = Live { arguments, names, streams, search, lines, begun, until };
    let mut ending = live.search().unwrap_or_else(Ending::after);
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
    folder.finish()?;
    if common.json {
        json::print(&product)?;
    } else if !common.quiet {
        note!("{}", product.document.text(&place));
    }
    Ok(errors::ended(&ending, &place))
}

/// A search that is going on.
struct Live<'a> {
    arguments: &'a LiveArguments,
    names: Vec<String>,
    streams: FrameStreams,
    search: OnlineSearch,
    lines: Lines,
    begun: Begun,
    until: Option<Gps>,
}

impl Live<'_> {
    /// Searches strain as it arrives, until the end or a signal.
    fn search(&mut self) -> Result<Ending> {
        let mut waited = Vec::new();
        // Searched at once, so that a signal is noticed within the frames of a backlog.
        let most = self.begun.rate_hz as usize;
        loop {
            self.streams.look();
            let mut is_idle = true;
            let mut is_ended = self.until.is_some();
            for detector in 0..self.names.len() {
                let next = self.streams.next(detector);
                if self.until.zip(next).is_some_and(|(until, next)| next >= until) {
                    continue;
                }
                is_ended = false;
                let Some(block) = self.streams.take(detector)? else { continue };
                is_idle = false;
                self.lines.block(&self.names[detector], block.gaps, self.begun.rate_hz)?;
                let _span = trace::span(Work::Compute, "search");
                for (samples, valid) in block.samples.chunks(most).zip(block.valid.chunks(most)) {
                    self.search.push(detector, samples, valid)?;
                    if interrupt::requested() {
                        return Ok(Ending::Stopped);
                    }
                }
            }
            self.streams.waited(&mut waited);
            self.changes(&waited)?;
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

    /// Writes the events that have changed.
    fn changes(&mut self, waited: &[Gps]) -> Result<()> {
        let mut changes = Vec::new();
        self.search.changes(waited, &mut changes)?;
        if changes.is_empty() {
            return Ok(());
        }
        let bank = self.search.detectors().next().map(|one| one.bank);
        for change in &changes {
            let names = self.names.iter().map(String::as_str);
            let row = event_row(&change.event, names, bank);
            self.lines.event(change, row)?;
        }
        self.lines.loudest.truncate(self.arguments.max_events);
        Ok(())
    }

    /// Writes the last events of a search that has ended, and the gaps that are open.
    fn write_changes(&mut self) -> Result<()> {
        let never = vec![Gps { ns: i64::MIN / 4 }; self.names.len()];
        self.changes(&never)?;
        self.lines.end()
    }

    fn product(
        self,
        ending: &Ending,
        backend: &Backend,
        common: &Common,
    ) -> Result<Product<Document>> {
        let mut detectors = Vec::new();
        let mut latency = Latency::default();
        for (index, one) in self.search.detectors().enumerate() {
            let channel = self.streams.channel(index).map(str::to_owned);
            detectors.push(DetectorRow::new(&one, channel, self.streams.counts(index), self.begun));
            latency = one.latency;
        }
        for (row, livetime_s) in detectors.iter_mut().zip(self.search.livetimes_s()) {
            row.livetime_s = livetime_s;
        }
        let document = Document {
            complete: ending.is_complete(),
            reason: flags::reason(ending),
            events: self.lines.loudest,
            found: self.lines.found,
            retracted: self.lines.retracted,
            detectors,
            latency_s: latency.into(),
        };
        let run = Run::new(common).on(backend).live();
        Ok(Product::new("live-spiir", document, Provenance::new(common, &[])?, run))
    }
}
