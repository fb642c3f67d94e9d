//! Plots of a search, and files for FETCH: both read the recording again.

use std::sync::{Mutex, PoisonError};

use sidereal::backend::Backend;
use sidereal::pipeline::burst::SearchOptions;
use sidereal::pipeline::cutout::Options;
use sidereal::single_pulse::Candidate;
use sidereal::trace::{self, Work};
use sidereal::{Error, Result};

use super::cutouts::{Consumer, Rows};
use super::files;
use super::report::Found;
use super::shown::Shown;
use crate::common::Common;
use crate::json;
use crate::output::Folder;
use crate::plots::{self, Overview, Png, Point};
use crate::progress::Progress;
use crate::provenance::Made;
use crate::selection::Recording;

/// File name of the plot of all candidates.
pub(crate) const OVERVIEW: &str = "overview.png";

/// Inputs of the plots.
pub(crate) struct Pictures<'a> {
    pub(crate) recording: &'a Recording,
    pub(crate) backend: &'a Backend,
    pub(crate) options: &'a SearchOptions,
    pub(crate) found: &'a Found,
    pub(crate) folder: &'a Folder,
    /// Whether rows were cleaned before the search; the plots then show cleaned rows.
    pub(crate) is_cleaned: bool,
    pub(crate) spooled: bool,
}

/// Returns the name of one candidate's files without extension; `index` counts from 0.
pub(crate) fn stem(index: usize, candidate: &Candidate) -> String {
    format!("candidate_{:04}_DM{:.2}_{:.3}s", index + 1, candidate.dm, candidate.time_s)
}

/// Returns whether a file of this name is a plot of a search or a file for FETCH.
pub(crate) fn is_one(name: &str) -> bool {
    let is_picture = |rest: &str| rest.ends_with(".png") || rest.ends_with(".h5");
    name == OVERVIEW || name.strip_prefix("candidate_").is_some_and(is_picture)
}

/// Removes all plots and files for FETCH from the folder.
pub(super) fn remove(folder: &Folder) -> Result<()> {
    let failed = |error| Error::io(folder.file(""), error);
    for entry in std::fs::read_dir(folder.file("")).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if is_one(&entry.file_name().to_string_lossy()) {
            std::fs::remove_file(entry.path()).map_err(failed)?;
        }
    }
    Ok(())
}

impl Pictures<'_> {
    /// Draws all candidates by time and DM.
    pub(crate) fn draw_overview(&self) -> Result<()> {
        plots::overview(&self.png(OVERVIEW), &self.overview())
    }

    /// Draws the best `most` candidates.
    pub(crate) fn draw(&self, most: usize, common: &Common) -> Result<()> {
        let candidates = &self.found.report.candidates;
        let shown = &candidates[..candidates.len().min(most)];
        let progress = Progress::items(common, shown.len() as u64);
        progress.doing("Drawing");
        let about = self.shown();
        let wanted: Vec<Options> = shown.iter().map(|one| about.plot_options(one)).collect();
        let drawn = Mutex::new(0);
        self.cutouts(&wanted, &|index, cutout| {
            let span = trace::span(Work::Draw, "candidate");
            let candidate = &shown[index];
            let png = self.png(&(stem(index, candidate) + ".png"));
            let rank = format!("candidate {} of {}", index + 1, candidates.len());
            plots::candidate(&png, &cutout, &about.page(candidate, rank))?;
            drop(span);
            count(&drawn, &progress);
            Ok(())
        })
    }

    /// Writes one file for FETCH per candidate.
    pub(super) fn fetch(&self, common: &Common) -> Result<()> {
        let candidates = &self.found.report.candidates;
        let progress = Progress::items(common, candidates.len() as u64);
        progress.doing("Writing for FETCH");
        let Made { provenance, run } = &self.found.made;
        let texts = [("provenance", json::line(provenance)?), ("run", json::line(run)?)];
        let about = self.shown();
        let options = |one: &Candidate| Options::fetch(one.dm, one.time_s, one.width_s);
        let wanted: Vec<Options> =
            candidates.iter().map(|one| about.common_options(options(one))).collect();
        let written = Mutex::new(0);
        self.cutouts(&wanted, &|index, cutout| {
            let span = trace::span(Work::Write, "candidate");
            let candidate = &candidates[index];
            let path = self.folder.file(stem(index, candidate) + ".h5");
            crate::search::files::write_fetch(
                &path,
                candidate,
                &cutout,
                &self.found.header,
                &texts,
            )?;
            drop(span);
            count(&written, &progress);
            Ok(())
        })
    }

    fn png(&self, name: &str) -> Png<'_> {
        Png::new(self.folder.file(name), &self.found.made)
    }

    /// Cuts out the surroundings of each candidate; `each` receives the cutouts in any order and on several threads, by
    /// index in `wanted`.
    fn cutouts(&self, wanted: &[Options], each: &Consumer<'_>) -> Result<()> {
        let rows = Rows {
            recording: self.recording,
            backend: self.backend,
            options: self.options,
            header: &self.found.header,
            delay_s: self.found.delay_s,
            is_voltages: self.found.geometry.is_some(),
            is_cleaned: self.is_cleaned,
            removals: self.found.report.removals.as_deref(),
            masked: self.masked(),
            spool: self.spooled.then(|| self.folder.file(files::NAME)),
        };
        rows.cutouts(wanted, each)
    }

    fn shown(&self) -> Shown {
        Shown {
            file: self.recording.name(),
            header: self.found.header.clone(),
            rfi: self.found.rfi,
            dm_constant: self.options.dm_constant,
            zero_dm: self.options.zero_dm,
            masked: self.masked(),
        }
    }

    /// Returns which channels are masked throughout, in recorded order.
    fn masked(&self) -> Vec<bool> {
        let mut masked = vec![false; self.found.header.channels()];
        self.found.report.masked_channels.iter().for_each(|c| masked[*c] = true);
        masked
    }

    fn overview(&self) -> Overview {
        let report = &self.found.report;
        let start_s = self.found.delay_s + self.options.time_range.map_or(0.0, |range| range.0);
        let end_s = start_s + report.data_s;
        // A burst may have begun before the first sample.
        let first_s = report.candidates.iter().map(|c| c.time_s).fold(start_s, f64::min);
        let point = |c: &Candidate| Point { time_s: c.time_s, dm: c.dm, snr: c.snr };
        Overview {
            file: self.recording.name(),
            target: self.shown().target(),
            span_s: (first_s, end_s),
            dms: (
                report.dms.first().copied().unwrap_or(0.0),
                report.dms.last().copied().unwrap_or(1.0),
            ),
            snr: self.options.snr,
            points: report.candidates.iter().map(point).collect(),
        }
    }
}

/// Counts one more candidate and shows the number.
fn count(done: &Mutex<u64>, progress: &Progress) {
    let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
    *done += 1;
    progress.at(*done);
}
