//! One search: its options, its run with checkpoints, and its files.
//!
//! Invariant: nothing is written before every option is checked, and lists are written before plots.

use std::fmt::Debug;
use std::path::{Path, PathBuf};
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
use std::sync::Arc;

use sidereal::backend::Backend;
use sidereal::clean::{Bandpass, Mitigated};
use sidereal::dedisperse::dm_plan::DmRange;
use sidereal::geometry::Dut1;
use sidereal::io::FilterbankHeader;
use sidereal::pipeline::Ending;
use sidereal::pipeline::burst::{self, Checkpoint, Report, SearchOptions, Status};
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
use sidereal::pipeline::detections::Detections;
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
use sidereal::pipeline::dump::{self, Tap};
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
use sidereal::pipeline::recent::RecentRows;
use sidereal::single_pulse::repeating;
use sidereal::units::{Epoch, SECONDS_PER_DAY, dispersion_delay_s};
use sidereal::{Error, Result};

#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
use super::album;
use super::arguments::{Arguments, recording_is_live, search_options, settings};
use super::files::{self, Journal, Spool};
use super::lines;
use super::pictures::{self, Pictures};
use super::report::{self, Found};
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
use super::shown;
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
use crate::alerts::Observation;
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
use crate::behind;
use crate::common::{self, Common, Gpus};
use crate::gaps::{self, Unsearched};
use crate::interrupt;
use crate::json;
use crate::output::{Contents, Folder};
use crate::progress::Progress;
use crate::provenance::{Made, Provenance, Run};
use crate::report::NAME as REPORT;
use crate::resume::{self, Identity, RunJournal};
use crate::say::{more, note, warning};
use crate::selection::{Opened, warn_of_flagged};
use crate::sky;
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
use crate::watch::Session;

/// Contents of a search's folder.
pub(crate) const CONTENTS: Contents =
    Contents { verb: "search", documents: &["summary.json", "candidates.cand"], writes };

/// Returns whether a file of this name belongs to a search's folder.
pub(crate) fn writes(_: &Path, name: &str) -> bool {
    pictures::is_one(name)
        || matches!(name, "summary.json" | "candidates.cand" | "candidates.csv")
        || ["candidates.singlepulse", files::ABSORBED, files::NAME, REPORT].contains(&name)
}

/// Limit in bytes on the record of removed interference, from which pictures clean rows again.
const REMOVALS_BYTES: u64 = 256 << 20;

/// Divisor of the memory limit; the quotient bounds that record as well.
const REMOVALS_PART: u64 = 32;

/// Data that a search stores for `--resume`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keep {
    /// Nothing: the search is part of a product that is made as a whole.
    Nothing,
    /// Journal and checkpoints of a new run.
    Anew,
    /// Journal and checkpoints, continued from those of an interrupted run.
    Resumed,
}

/// Seconds of rows in memory for a watcher alone.
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
const WATCHED_S: f64 = 2.0;

/// Seconds of detections that a watcher is shown.
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
const PLANE_S: f64 = 600.0;

/// Returns the header of the rows with the start of the recording's first sample.
pub(super) fn from_first_row(opened: &Opened) -> FilterbankHeader {
    let mut header = opened.source.header().clone();
    if header.tstart_mjd > 0.0 {
        header.tstart_mjd -= opened.delay_s() / SECONDS_PER_DAY;
    }
    header
}

/// One search with its options.
pub(super) struct Work<'a> {
    pub(super) arguments: &'a Arguments,
    pub(super) common: &'a Common,
    pub(super) backend: Backend,
    opened: Opened,
    /// Header whose start is the recording's first sample, the origin of all times.
    pub(super) header: FilterbankHeader,
    pub(super) options: SearchOptions,
    dut1: Dut1,
    spooled: bool,
    /// Returns whether another process of the run ended early, and asks this one to stop if the other was.
    pub(super) others_end: &'a (dyn Fn() -> bool + Sync),
    /// Lines of candidates of a live search.
    pub(super) lines: Option<lines::Lines>,
    /// Tap of the voltages of a live stream.
    #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
    pub(super) tap: Option<Tap>,
}

impl<'a> Work<'a> {
    /// Opens the recording and checks every option before anything is written.
    pub(super) fn begin(arguments: &'a Arguments, common: &'a Common) -> Result<Self> {
        let backend = common
            .backend_for(common::Work::on_trials(&arguments.recording.inputs), Gpus::Several)?;
        Self::on(backend, arguments, common)
    }

    /// Begins as [`Work::begin`] does, on a backend that several searches share.
    pub(super) fn on(
        backend: Backend,
        arguments: &'a Arguments,
        common: &'a Common,
    ) -> Result<Self> {
        #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
        let mut tap = None;
        #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
        let wrap = &mut |source| {
            let (source, own) = dump::tap(source);
            tap = Some(own);
            Ok(source)
        };
        #[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
        let wrap = &mut Ok;
        let dm_constant = arguments.trials.dm_constant;
        let opened = arguments.recording.open_through(dm_constant, &backend, wrap)?;
        let header = from_first_row(&opened);
        let mut options = search_options(arguments, &opened, &backend)?;
        options.memory = common.memory;
        if !arguments.products.no_plots || arguments.products.fetch {
            let part = common.memory.map_or(u64::MAX, |limit| limit / REMOVALS_PART);
            options.removals_bytes = part.min(REMOVALS_BYTES) as usize;
        }
        arguments.recording.warn(opened.source.rows(), common);
        let dut1 = arguments.orientation.dut1(None)?;
        if report::place(&header).is_some() {
            let day = header.tstart_mjd.floor();
            let start = Epoch::new(day as i64, (header.tstart_mjd - day) * SECONDS_PER_DAY);
            sky::warn_of_orientation(&dut1, start, header.duration_s().unwrap_or(0.0), common);
        }
        let wanted = !arguments.products.no_plots || arguments.products.fetch;
        let spooled = arguments.recording.is_pipe() && wanted;
        let lines = None;
        Ok(Self {
            arguments,
            common,
            backend,
            opened,
            header,
            options,
            dut1,
            spooled,
            others_end: &|| false,
            lines,
            #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
            tap,
        })
    }

    /// Returns what alerts say of an observation.
    #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
    pub(super) fn observation(&self, place: &Path) -> Observation {
        Observation {
            name: place.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            header: self.header.clone(),
            ranges: self.options.plan.ranges.clone(),
            dm_constant: self.options.dm_constant,
        }
    }

    /// Keeps the latest rows in memory for pictures and a watcher, if there is one of them.
    #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
    pub(super) fn recent(
        &mut self,
        has_pictures: bool,
        session: &Session,
    ) -> Result<Option<Arc<RecentRows>>> {
        let rows = self.opened.source.rows().header().clone();
        let bytes = match (has_pictures, &session.watcher) {
            (true, _) => album::bytes(&rows, &self.options),
            (false, Some(_)) => album::bytes_of(WATCHED_S, &rows, &self.options),
            (false, None) => return Ok(None),
        };
        self.options.recent = Some(Arc::new(RecentRows::new(&rows, bytes)?));
        Ok(self.options.recent.clone())
    }

    /// Keeps the detections of the last minutes for a watcher, if there is one.
    #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
    pub(super) fn show_detections(&mut self, observation: &Path, session: &Session) {
        let Some(watcher) = &session.watcher else { return };
        let highest = self.options.plan.ranges.last().map_or(0.0, |range| range.dm_max);
        let detections = Arc::new(Detections::new(PLANE_S, highest));
        self.options.detections = Some(Arc::clone(&detections));
        watcher.detections(detections, observation, self.first_s());
    }

    /// Returns the seconds from the observation's first sample to the first row searched.
    #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
    pub(super) fn first_s(&self) -> f64 {
        self.opened.delay_s() + self.options.time_range.map_or(0.0, |range| range.0)
    }

    /// Prepares the pictures of a live search.
    #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
    pub(super) fn album(
        &self,
        parent: &Path,
        observation: &Path,
        rows: Arc<RecentRows>,
        session: &Session,
    ) -> Result<album::Album> {
        let shown = shown::Shown {
            file: self.arguments.recording.name(),
            header: self.header.clone(),
            rfi: self.arguments.rfi().0,
            dm_constant: self.options.dm_constant,
            zero_dm: self.options.zero_dm,
            masked: Vec::new(),
        };
        let run = Run::new(self.common).on(&self.backend).live();
        let made = Made { provenance: Provenance::new(self.common, &self.inputs())?, run };
        let first_s = self.first_s();
        let (most, watcher) = (self.arguments.products.max_plots, session.watcher.clone());
        let about = album::About { rows, shown, first_s, made, watcher };
        album::Album::begin(parent, observation, most, about)
    }

    /// Runs the search; copies the rows of a pipe to a file for the plots.
    pub(super) fn search(&mut self, folder: &Folder, keep: Keep) -> Result<Found> {
        self.tell();
        let total = self.header.times;
        let progress =
            Progress::new(self.common, total, self.header.channels(), self.header.tsamp_s);
        progress.doing("Searching");
        let others_end = self.others_end;
        #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
        let mut reporter =
            recording_is_live(self.arguments).then(|| behind::Reporter::new(self.common));
        let mut observe = |status: &Status| {
            progress.total(status.total);
            progress.at(status.times);
            #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
            if let Some(reporter) = &mut reporter {
                reporter.look();
            }
            others_end();
            !interrupt::requested()
        };
        let (keeper, resumed) = self.keeper(folder, keep == Keep::Resumed)?;
        let (delay_s, has_checkpoints) = (self.opened.delay_s(), self.has_checkpoints());
        let source = &mut self.opened.source;
        let mut lines = self.lines.take();
        let mut journal =
            Journal::new(keeper, delay_s, has_checkpoints, lines.as_mut(), &mut observe);
        let resumed = resumed.as_ref();
        let report = if keep == Keep::Nothing {
            burst::search(source.for_search(), &self.options, &self.backend, journal.observe)
        } else if self.spooled {
            let mut spool = Spool::new(source.rows_mut(), &folder.file(files::NAME))?;
            let spool = burst::Source::Rows(&mut spool);
            burst::search_from(spool, &self.options, &self.backend, resumed, &mut journal)
        } else {
            burst::search_from(
                source.for_search(),
                &self.options,
                &self.backend,
                resumed,
                &mut journal,
            )
        };
        self.lines = lines;
        if report.is_err() && keep == Keep::Anew {
            // The run found nothing worth resuming.
            resume::clear(&folder.file(""))?;
        }
        let report = report?;
        progress.finish();
        #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
        let dropped = reporter.as_mut().and_then(behind::Reporter::sum);
        #[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
        let dropped = None;
        common::tell_notes(&self.backend, self.common);
        let report = from_first_sample(report, self.opened.delay_s());
        self.warn(&report);
        if self.common.verbose && !self.common.quiet {
            note!("channels left out: {:?}", report.masked_channels);
        }
        let mut files = self.arguments.recording.inputs.clone();
        // The earliest file comes first, as in the source.
        files.sort_by_key(|path| *path != self.header.path);
        let band = &self.header.band;
        let mut run = Run::new(self.common).on(&self.backend).took(report.elapsed_s, report.data_s);
        if recording_is_live(self.arguments) {
            run = run.live();
        }
        let dm_constant = self.options.dm_constant;
        let delay_per_dm =
            dispersion_delay_s(1.0, band.lowest_hz(), band.highest_hz(), dm_constant);
        Ok(Found {
            sources: repeating(&report.candidates, delay_per_dm),
            header: self.header.clone(),
            delay_s: self.opened.delay_s(),
            geometry: self.opened.geometry.clone(),
            snr: self.options.snr,
            rfi: self.arguments.rfi().0,
            max_per_minute: self.options.max_per_minute,
            plan: self.options.plan.clone(),
            dm_constant: self.options.dm_constant,
            dut1: self.dut1.clone(),
            dropped,
            made: Made { provenance: Provenance::new(self.common, &self.inputs())?, run },
            report,
            drawn: if self.arguments.products.no_plots {
                0
            } else {
                self.arguments.products.max_plots
            },
            files,
        })
    }

    /// Creates the run journal that stores candidates during the search, and the checkpoint to continue from.
    pub(super) fn keeper(
        &self,
        folder: &Folder,
        is_resumed: bool,
    ) -> Result<(RunJournal, Option<Checkpoint>)> {
        let mut keeper = RunJournal::new(folder.file(""), self.identity()?);
        if !is_resumed {
            return Ok((keeper, None));
        }
        let Some(left) = keeper.resume(folder.place())? else {
            return Ok((keeper, None));
        };
        pictures::remove(folder)?;
        let checkpoint = Checkpoint::from_bytes(left.state())?;
        resume::tell(checkpoint.times, self.common);
        Ok((keeper, Some(checkpoint)))
    }

    /// Returns the settings on which the candidates depend.
    pub(super) fn identity(&self) -> Result<Identity> {
        let options = &self.options;
        let own = settings(options);
        let identity = Identity::new("search", &self.inputs(), &own, &self.backend)?;
        Ok(identity.with(&self.arguments.recording, options))
    }

    /// Returns every input file.
    pub(super) fn inputs(&self) -> Vec<PathBuf> {
        [self.arguments.recording.files(), self.arguments.also()].concat()
    }

    /// Returns whether a later run can resume this one if it is interrupted.
    pub(super) fn has_checkpoints(&self) -> bool {
        resume::can_be_read_again(&self.arguments.recording)
    }

    /// With --verbose, reports the filter bank, the device and the trials of the search.
    pub(super) fn tell(&self) {
        if !self.common.verbose || self.common.quiet {
            return;
        }
        let plan = &self.options.plan;
        if let Some(geometry) = &self.opened.geometry {
            note!("{}", geometry.text());
        }
        note!("on {}, {} trials:", self.backend.name(), plan.trials());
        for range in &plan.ranges {
            let DmRange { dm_min, dm_step, downsample, .. } = range;
            let dm_last = range.dms().last().copied().unwrap_or(*dm_min);
            more!(
                "  DM {dm_min:9.2} to {dm_last:9.2} by {dm_step:7.3}, bins of {downsample} samples"
            );
        }
    }

    pub(super) fn warn(&self, report: &Report) {
        let quiet = self.common.quiet;
        let (left_out, channels) = (report.masked_channels.len(), self.header.channels());
        if 2 * left_out > channels {
            warning!(quiet: quiet,
                "{left_out} of {channels} channels were left out, more than half; \
                 `sidereal info` shows the bandpass, --no-auto-mask keeps outlying channels."
            );
        }
        if report.skipped_dms > 0 {
            let highest = report.dms.last().copied().unwrap_or(0.0);
            warning!(quiet: quiet,
                "{} trials above DM {highest:.2} were skipped: their delay across \
                 the band is longer than the data.",
                report.skipped_dms
            );
        }
        warn_of_flagged(report.flagged_samples, quiet);
        let (tsamp_s, first_s) = (self.header.tsamp_s, self.opened.delay_s());
        gaps::warn(&gaps::listed(&report.gaps, tsamp_s, first_s), quiet);
        let unsearched = Unsearched::listed(&report.unsearched, tsamp_s, first_s);
        gaps::warn_of_unsearched(&unsearched, quiet);
    }

    /// Writes all files except the folder's final name, and removes what --resume needs unless a later run can continue this one.
    pub(super) fn write(&self, folder: &Folder, found: &mut Found) -> Result<()> {
        self.write_files(folder, found)?;
        if found.report.ending.is_read() || !self.has_checkpoints() {
            return resume::clear(&folder.file(""));
        }
        resume::mark(&folder.file(""))
    }

    /// Writes all files of the product. Lists come first; an error that ends the plots becomes the search's ending.
    pub(super) fn write_files(&self, folder: &Folder, found: &mut Found) -> Result<()> {
        if !found.report.ending.is_read() {
            interrupt::finishing();
        }
        if self.spooled && !found.report.ending.is_read() {
            // No plot needs the spool any more, and the lists may need its space.
            self.remove_spool(folder)?;
        }
        files::write(folder, found, self.arguments.products.singlepulse)?;
        if self.arguments.products.list_absorbed {
            files::write_absorbed(folder, found)?;
        }
        self.write_summary(folder, found)?;
        if found.report.ending.is_read() {
            if let Err(error) = self.draw(folder, found) {
                pictures::remove(folder)?;
                found.report.ending = Ending::after(error);
                self.write_summary(folder, found)?;
            }
            if self.spooled {
                self.remove_spool(folder)?;
            }
        }
        Ok(())
    }

    pub(super) fn write_summary(&self, folder: &Folder, found: &Found) -> Result<()> {
        json::write(&folder.file("summary.json"), &found.document())
    }

    pub(super) fn remove_spool(&self, folder: &Folder) -> Result<()> {
        let path = folder.file(files::NAME);
        std::fs::remove_file(&path).map_err(|error| Error::io(path, error))
    }

    pub(super) fn draw(&self, folder: &Folder, found: &Found) -> Result<()> {
        let products = &self.arguments.products;
        let pictures = Pictures {
            recording: &self.arguments.recording,
            backend: &self.backend,
            options: &self.options,
            found,
            folder,
            is_cleaned: self.options.mask.is_some()
                || found.report.mitigated.as_ref().is_some_and(is_something),
            spooled: self.spooled,
        };
        if !products.no_plots {
            if products.png {
                pictures.draw_overview()?;
            }
            pictures.draw(products.max_plots, self.common)?;
        }
        if products.fetch {
            pictures.fetch(self.common)?;
        }
        Ok(())
    }
}

/// Returns whether mitigation changed any row.
fn is_something(found: &Mitigated) -> bool {
    let rows = found.broadband_rows + found.lost_rows + found.followed_rows;
    found.masked_cells + rows > 0 || found.steps.bandpass == Bandpass::Always
}

/// Returns the report with candidate times counted from the recording's first sample instead of the first spectrum's
/// start.
fn from_first_sample(mut report: Report, delay_s: f64) -> Report {
    report.candidates.iter_mut().for_each(|candidate| candidate.shift(delay_s));
    report.absorbed.iter_mut().for_each(|event| event.shift(delay_s));
    report
}
