//! Plots of a search, and files for FETCH: both read the recording again.

use std::sync::{Mutex, PoisonError};

use sidereal::backend::Backend;
use sidereal::io::FilterbankHeader;
use sidereal::pipeline::burst::SearchOptions;
use sidereal::pipeline::cutout::Options;
use sidereal::single_pulse::Candidate;
use sidereal::trace::{self, Work};
use sidereal::units::{HZ_PER_MHZ, SECONDS_PER_DAY, dispersion_delay_s};
use sidereal::{Error, Result};

use super::cutouts::{Consumer, Rows};
use super::files;
use super::report::Found;
use crate::common::Common;
use crate::json;
use crate::output::Folder;
use crate::plots::{self, Overview, Png, Point, short};
use crate::progress::Progress;
use crate::provenance::Made;
use crate::rfi::Rfi;
use crate::selection::{BeamDocument, Recording};

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
    /// Draws the overview and the best `most` candidates.
    pub(crate) fn draw(&self, most: usize, common: &Common) -> Result<()> {
        plots::overview(&self.png(OVERVIEW), &self.overview())?;
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

/// Recording and search of which candidates are shown.
#[derive(Clone, Debug)]
pub(super) struct Shown {
    /// Name of the recording.
    pub(super) file: String,
    /// Header from the recording's first sample.
    pub(super) header: FilterbankHeader,
    pub(super) rfi: Rfi,
    pub(super) dm_constant: f64,
    pub(super) zero_dm: bool,
    /// Channels masked throughout, in recorded order; empty means none.
    pub(super) masked: Vec<bool>,
}

impl Shown {
    /// Returns the options of a candidate's plot.
    pub(super) fn plot_options(&self, candidate: &Candidate) -> Options {
        let band = &self.header.band;
        let sweep_s =
            dispersion_delay_s(1.0, band.lowest_hz(), band.highest_hz(), self.dm_constant);
        let (dm, time_s, width_s) = (candidate.dm, candidate.time_s, candidate.width_s);
        self.common_options(Options::plot(dm, time_s, width_s, sweep_s))
    }

    /// Applies the channel mask, dispersion constant and zero-DM setting of the search.
    fn common_options(&self, options: Options) -> Options {
        let (masked, dm_constant, zero_dm) = (self.masked.clone(), self.dm_constant, self.zero_dm);
        Options { masked, dm_constant, zero_dm, ..options }
    }

    /// Returns the text of a candidate's page; `rank` names it.
    pub(super) fn page(&self, candidate: &Candidate, rank: String) -> plots::Candidate {
        let header = &self.header;
        let known = header.tstart_mjd > 0.0;
        plots::Candidate {
            file: self.file.clone(),
            target: self.target(),
            rank,
            dm: candidate.dm,
            time_s: candidate.time_s,
            snr: candidate.snr,
            width_s: candidate.width_s,
            mjd: known.then(|| header.tstart_mjd + candidate.time_s / SECONDS_PER_DAY),
            masked_mhz: self.masked_mhz(),
        }
    }

    /// Returns the lower and upper edges of the masked channels, adjacent ones merged.
    fn masked_mhz(&self) -> Vec<(f64, f64)> {
        let band = &self.header.band;
        let half = 0.5 * band.channel_width_hz();
        let centres = band.centres_hz();
        let mut edges: Vec<(f64, f64)> = self
            .masked
            .iter()
            .zip(centres)
            .filter(|(masked, _)| **masked)
            .map(|(_, centre)| (centre - half, centre + half))
            .map(|(low, high)| (low / HZ_PER_MHZ, high / HZ_PER_MHZ))
            .collect();
        edges.sort_by(|a, b| a.0.total_cmp(&b.0));
        edges.dedup_by(|next, last| {
            let touches = next.0 <= last.1 + 1e-3 * (next.1 - next.0);
            if touches {
                last.1 = next.1;
            }
            touches
        });
        edges
    }

    /// Formats source, position, beam, telescope, band, masked channels and mitigation, where known.
    fn target(&self) -> String {
        let header = &self.header;
        let band = format!(
            "{} to {} MHz, {} channels, {} bit",
            short(header.band.lowest_hz() / HZ_PER_MHZ, 6),
            short(header.band.highest_hz() / HZ_PER_MHZ, 6),
            header.channels(),
            header.recorded_bits,
        );
        // SIGPROC headers call a telescope without a number Fake.
        let telescope = if header.telescope == "Fake" { "" } else { &header.telescope };
        let position = header.ra_deg.zip(header.dec_deg).map_or_else(String::new, |(ra, dec)| {
            format!("RA {} Dec {}", sexagesimal(ra / 15.0), sexagesimal(dec))
        });
        let masked = match self.masked.iter().filter(|masked| **masked).count() {
            0 => String::new(),
            many => format!("{many} left out"),
        };
        let beam = header
            .beam
            .map_or_else(String::new, |beam| format!("beam {}", BeamDocument::from(beam).text()));
        let rfi = match self.rfi {
            Rfi::None => String::new(),
            rfi => format!("--rfi {rfi}"),
        };
        let names =
            [header.source_name.as_str(), &position, &beam, telescope, &band, &masked, &rfi];
        let known: Vec<&str> = names.into_iter().filter(|name| !name.is_empty()).collect();
        known.join(" · ")
    }
}

/// Counts one more candidate and shows the number.
fn count(done: &Mutex<u64>, progress: &Progress) {
    let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
    *done += 1;
    progress.at(*done);
}

/// Formats hours or degrees as `-08:47:43.7`.
fn sexagesimal(value: f64) -> String {
    let tenths = (value.abs() * 36_000.0).round() as u64;
    let (whole, minutes) = (tenths / 36_000, tenths / 600 % 60);
    let sign = if value < 0.0 { "−" } else { "" };
    format!("{sign}{whole:02}:{minutes:02}:{:02}.{}", tenths / 10 % 60, tenths % 10)
}
