//! `sidereal search`: finds bursts in a recording and plots them.

mod album;
mod arguments;
mod beams;
mod cutouts;
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
mod dumps;
mod files;
mod line;
mod lines;
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
mod live;
mod pictures;
mod report;
mod searched;
mod shares;
mod shown;
mod together;
mod work;

use std::path::{Path, PathBuf};

use arguments::SUFFIX;
use sidereal::{Result, trace};
use together::run_beams;
use work::{Keep, Work};

use crate::batch::PerInput;
use crate::common::Common;
use crate::interrupt::Exit;
use crate::output::{Folder, FolderKind};
use crate::ranks::{self, Group, Place};
use crate::report::add_to as add_report;
use crate::space::Reserve;
use crate::{errors, json};

#[cfg(all(target_os = "linux", target_pointer_width = "64", feature = "page"))]
pub(crate) use album::FOLDER as PICTURES;
pub(crate) use arguments::Arguments;
pub(crate) use beams::Document as BeamsDocument;
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
pub(crate) use dumps::Arguments as DumpArguments;
pub(crate) use line::{CandidateLine, DumpLine};
#[cfg(all(target_os = "linux", target_pointer_width = "64", feature = "page"))]
pub(crate) use line::{DUMPS, DumpState, NAME as LINES, State as CandidateState};
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
pub(crate) use live::{Actions, check_ring, run as run_live};
pub(crate) use pictures::{OVERVIEW, Pictures, is_one as is_picture, stem};
pub(crate) use report::{Found, Summary};
pub(crate) use work::{CONTENTS, writes};

/// Runs the verb, as one of several processes if mpirun has started them.
pub(crate) fn run(arguments: &Arguments, common: &Common) -> Result<Exit> {
    let Some(pointing) = arguments.beams.pointing() else {
        return arguments.batch.run(arguments, common);
    };
    match Place::of_environment() {
        None => run_beams(arguments, pointing, &mut Group::alone(), common),
        Some(place) => ranks::divided(place, common, |group, common| {
            run_beams(arguments, pointing, group, common)
        }),
    }
}

/// Searches one recording.
fn run_one(arguments: &Arguments, common: &Common) -> Result<Exit> {
    let also = arguments.also();
    let kind = FolderKind { suffix: SUFFIX, contents: CONTENTS };
    let (recording, destination) = (&arguments.recording, &arguments.destination);
    let (folder, is_resumed) =
        arguments.resume.folder(destination, recording, &also, kind, common)?;
    let opening = trace::span(trace::Work::Read, "header and plan");
    let mut work = Work::begin(arguments, common)?;
    drop(opening);
    let reserve = Reserve::new(&folder.file("summary.json"));
    let mut found = work.search(&folder, if is_resumed { Keep::Resumed } else { Keep::Anew })?;
    drop(reserve);
    let writing = trace::span(trace::Work::Write, "products");
    work.write(&folder, &mut found)?;
    let place = folder.place().to_path_buf();
    let products = &arguments.products;
    if found.report.ending.is_read() && !products.no_plots && !products.png {
        add_report(&folder, &recording.name(), common);
    }
    folder.finish()?;
    drop(writing);
    if common.json {
        json::print_one(&found.document(), common.is_batch)?;
    } else if !common.quiet {
        json::say(&report::text(&found, &place))?;
    }
    Ok(errors::ended(&found.report.ending, &place))
}

/// Searches into a folder that is being filled; the output refers to the recording as `shown`.
///
/// # Errors
/// As [`run`]; whatever ends the search before the recording.
pub(crate) fn run_into(
    folder: &Folder,
    arguments: &Arguments,
    shown: &Path,
    common: &Common,
) -> Result<Found> {
    let mut work = Work::begin(arguments, common)?;
    let mut found = work.search(folder, Keep::Nothing)?;
    found.header.path = shown.to_path_buf();
    found.files = vec![shown.to_path_buf()];
    work.write(folder, &mut found)?;
    if found.report.ending.is_read() { Ok(found) } else { Err(found.report.ending.error()) }
}

impl PerInput for Arguments {
    fn inputs(&self) -> &[PathBuf] {
        &self.recording.inputs
    }

    fn of_one(&self, input: &Path) -> Self {
        let recording = self.recording.of_one(input);
        let destination = self.destination.of_each(&recording, SUFFIX);
        Self { recording, destination, ..self.clone() }
    }

    fn place(&self) -> PathBuf {
        self.destination.place(&self.recording, SUFFIX)
    }

    fn run(&self, common: &Common) -> Result<Exit> {
        run_one(self, common)
    }
}
