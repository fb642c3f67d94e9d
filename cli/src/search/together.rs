//! Run of a search of several beams: their folders, which --resume continues, and the joined events.
//!
//! Invariant: rank 0 begins and finishes the folder of all beams; each rank fills the folders of its beams.

use std::path::Path;
use std::time::Instant;

use sidereal::backend::Backend;
use sidereal::dedisperse::dm_plan::DmPlan;
use sidereal::pipeline::Ending;
use sidereal::pipeline::beams::Pointing;
use sidereal::pipeline::burst::SearchOptions;
use sidereal::{Error, Result};

use super::arguments::{Arguments, SUFFIX};
use super::beams::{self, Beam, Beams, of_beam};
use super::searched::Searched;
use super::shares;
use super::work::{Keep, Work, from_first_row, writes};
use crate::batch::{PerInput, check_apart};
use crate::common::{self, Common, Gpus};
use crate::events::EVENTS;
use crate::interrupt::{self, Exit};
use crate::output::{CHECKPOINT, Contents, Folder, FolderKind, is_state};
use crate::provenance::{Made, Provenance, Run};
use crate::ranks::{self, Group};
use crate::report::{NAME as REPORT, add_to as add_report};
use crate::resume::{self, Identity, RunJournal, SavedCheckpoint};
use crate::say::{fault, note};
use crate::{errors, json};

/// Contents of the folder of a search of several beams.
const BEAMS: Contents =
    Contents { verb: "search", documents: &["summary.json", EVENTS], writes: writes_beams };

fn writes_beams(folder: &Path, name: &str) -> bool {
    match name.split_once('/') {
        Some((inner, rest)) => {
            inner.ends_with(SUFFIX) && (is_state(rest) || writes(&folder.join(inner), rest))
        }
        None => ["summary.json", EVENTS, REPORT].contains(&name),
    }
}

/// Beams that are searched with one plan, and what every process needs for it.
struct Planned {
    beams: Beams,
    backend: Backend,
    /// Backends that search beams at the same time.
    backends: Vec<Backend>,
    /// Settings of the whole run, for --resume.
    identity: Identity,
}

/// Searches several beams with one plan, and joins their candidates.
pub(super) fn run_beams(
    arguments: &Arguments,
    pointing: Pointing,
    group: &mut Group<'_>,
    common: &Common,
) -> Result<Exit> {
    let planned = plan_beams(arguments, pointing, group, common);
    let planned = group.agree(planned)?;
    let folder = begin_beams(arguments, &planned.identity, group, common)?;
    let begun = Instant::now();
    let Planned { beams, backends, .. } = &planned;
    let search = |index: usize, backend: &Backend, others_end: &(dyn Fn() -> bool + Sync)| {
        let beam = &beams.all[index];
        if !common.quiet {
            note!("{} of {}: {}", index + 1, beams.all.len(), beam.name());
        }
        let own = of_beam(common, beam);
        let own = Common {
            memory: own.memory.map(|bytes| bytes / backends.len() as u64),
            no_progress: own.no_progress || backends.len() > 1,
            ..own
        };
        let beam =
            BeamSearch { index, beam, plan: &beams.all[0].plan, folder: &folder, others_end };
        beam.run(backend, arguments, &own)
    };
    let done = shares::search_all(&beams.all, group, backends, &folder, search);
    let exit = shares::exit(&done);
    match shares::gather(group, done, &beams.all)? {
        Some(done) => finish_beams(arguments, &planned, folder, done, begun, common),
        None => Ok(exit),
    }
}

/// Opens all beams, and checks every option before anything is written.
fn plan_beams(
    arguments: &Arguments,
    pointing: Pointing,
    group: &Group<'_>,
    common: &Common,
) -> Result<Planned> {
    let recording = &arguments.recording;
    let antennas = arguments.beams.antennas(recording)?;
    check_apart(&recording.inputs, |input| arguments.of_one(input).place())?;
    let backend = common.backend_for(common::Work::on_trials(&recording.inputs), Gpus::Several)?;
    let dm_constant = arguments.trials.dm_constant;
    let (mut all, mut options) = (Vec::new(), None);
    for path in &recording.inputs {
        // All antennas of a recording have one header.
        let own = arguments.of_beam(path, antennas.map(|_| 0));
        let opened = own.recording.open(dm_constant, &backend)?;
        let own = arguments.options(&opened)?;
        let header = from_first_row(&opened);
        for antenna in antennas.map_or(vec![None], |count| (0..count).map(Some).collect()) {
            let folder = arguments.of_beam(path, antenna).place();
            let folder = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let (path, header, plan) = (path.clone(), header.clone(), own.plan.clone());
            all.push(Beam { path, antenna, folder, header, plan });
        }
        options.get_or_insert(own);
    }
    if all.len() < group.count() {
        let rule =
            format!("the search has {} beams, and every rank searches at least one", all.len());
        return Err(Error::parameter(ranks::OPTION, group.count(), rule));
    }
    let beams = Beams::new(all, &arguments.beams, pointing, dm_constant)?;
    let backends = shares::backends(&backend, beams.all.len());
    let plan = beams.all[0].plan.clone();
    let options = options.map(|own| SearchOptions { plan: plan.clone(), ..own });
    let options = options.unwrap_or_else(|| SearchOptions::new(plan));
    let identity = arguments.identity_of_beams(pointing, &options, &backends[0])?;
    Ok(Planned { beams, backend, backends, identity })
}

/// Begins the folder of all beams at rank 0, or continues that of an interrupted run; other ranks fill the same folder.
fn begin_beams(
    arguments: &Arguments,
    identity: &Identity,
    group: &mut Group<'_>,
    common: &Common,
) -> Result<Folder> {
    let (recording, destination) = (&arguments.recording, &arguments.destination);
    let begin = || -> Result<Folder> {
        let also = arguments.also();
        let kind = FolderKind { suffix: beams::SUFFIX, contents: BEAMS };
        let (folder, is_resumed) =
            arguments.resume.folder(destination, recording, &also, kind, common)?;
        let mut keeper = RunJournal::new(folder.file(""), identity.clone());
        if is_resumed {
            keeper.resume(folder.place())?;
        }
        keeper.checkpoint(&[])?;
        Ok(folder)
    };
    let own = if group.rank() == 0 { begin().map(Some) } else { Ok(None) };
    let own = group.agree(own)?;
    let name = own.as_ref().map(|folder| folder.file(""));
    let name = name.as_deref().and_then(Path::file_name).unwrap_or_default();
    let name = group.share(name.to_string_lossy().into_owned().into_bytes())?;
    let place = destination.place(recording, beams::SUFFIX);
    let other = || {
        let temporary = place.with_file_name(String::from_utf8_lossy(&name).as_ref());
        Folder::of_other(&place, temporary)
    };
    Ok(own.unwrap_or_else(other))
}

/// Joins the candidates of the beams that were searched, and writes the product of all beams.
fn finish_beams(
    arguments: &Arguments,
    planned: &Planned,
    folder: Folder,
    done: Vec<shares::Done>,
    begun: Instant,
    common: &Common,
) -> Result<Exit> {
    let (beams, recording) = (&planned.beams, &arguments.recording);
    let (searched, ending) = shares::settled(done);
    if searched.is_empty() {
        return without_beams(beams, folder, ending);
    }
    let elapsed_s = begun.elapsed().as_secs_f64();
    if !ending.is_read() {
        interrupt::finishing();
    }
    let document = beams.document(&searched, arguments.detection.snr, &ending)?;
    let data_s = searched.iter().map(|one| one.data_s).sum();
    let run = Run::new(common).on(&planned.backend).took(elapsed_s, data_s);
    let inputs = [recording.files(), arguments.also()].concat();
    let made = Made { provenance: Provenance::new(common, &inputs)?, run };
    let place = folder.place().to_path_buf();
    let text = beams::text(&document, &searched, elapsed_s, &place);
    beams::write_events(&folder.file(EVENTS), &document)?;
    let document = made.product("search-beams", document);
    json::write(&folder.file("summary.json"), &document)?;
    if ending.is_read() {
        for beam in &beams.all {
            resume::clear(&folder.file(&beam.folder))?;
        }
        resume::clear(&folder.file(""))?;
    }
    let products = &arguments.products;
    if !products.no_plots && !products.png {
        let title = place.file_name().unwrap_or_default().to_string_lossy();
        add_report(&folder, &title, common);
    }
    folder.finish()?;
    if common.json {
        json::print_one(&document, common.is_batch)?;
    } else if !common.quiet {
        json::say(&text)?;
    }
    Ok(errors::ended(&ending, &place))
}

/// Ends a run that has searched no beam to its end; its folder stays for --resume if a search can be continued.
///
/// # Errors
/// What ended the search.
fn without_beams(beams: &Beams, folder: Folder, ending: Ending) -> Result<Exit> {
    let has_checkpoint = |beam: &Beam| folder.file(&beam.folder).join(CHECKPOINT).exists();
    if !beams.all.iter().any(has_checkpoint) {
        resume::clear(&folder.file(""))?;
        return Err(ending.error());
    }
    drop(folder);
    match ending {
        Ending::Stopped => {
            fault!("stopped on request; --resume continues from there.");
            Ok(Exit::Interrupted)
        }
        failed => Err(failed.error()),
    }
}

/// Search of one of several beams, with the trials of all.
struct BeamSearch<'a> {
    /// Number of the beam.
    index: usize,
    beam: &'a Beam,
    plan: &'a DmPlan,
    /// Folder of all beams.
    folder: &'a Folder,
    /// Returns whether another process ended early, and asks this one to stop if the other was.
    others_end: &'a (dyn Fn() -> bool + Sync),
}

impl BeamSearch<'_> {
    /// Searches the beam and writes its folder, or continues what an interrupted run has left in it.
    ///
    /// # Errors
    /// What ended the search before the recording, or kept it from beginning.
    fn run(&self, backend: &Backend, arguments: &Arguments, common: &Common) -> Result<Searched> {
        let own = arguments.of_beam(&self.beam.path, self.beam.antenna);
        let mut work = Work::on(backend.clone(), &own, common)?;
        // The default trials depend on the telescope that a header names.
        work.options.plan = self.plan.clone();
        work.others_end = self.others_end;
        let folder = self.folder.inner(&self.beam.folder)?;
        let identity = work.identity()?;
        let left = SavedCheckpoint::with_journal(&folder.file(""), &identity, folder.place())?;
        if let Some((_, left)) = &left
            && let Some(searched) = Searched::of_state(&folder.file(""), self.index, left.state())?
        {
            return Ok(searched);
        }
        let keep = if left.is_some() { Keep::Resumed } else { Keep::Anew };
        let mut found = work.search(&folder, keep)?;
        if !found.report.ending.is_read() {
            return Err(found.report.ending.error());
        }
        work.write_files(&folder, &mut found)?;
        let searched = Searched::new(self.index, &found);
        if found.report.ending.is_read() {
            RunJournal::new(folder.file(""), identity).checkpoint(&searched.state())?;
        }
        Ok(searched)
    }
}
