//! The files that `dedisperse` fills as the series come.

use std::path::Path;

use serde::Serialize;
use sidereal::backend::Backend;
use sidereal::io::FilterbankHeader;
use sidereal::io::npy::{self, Order};
use sidereal::io::presto::{Inf, SeriesWriter};
use sidereal::io::sigproc::{TimeSeries, TimeSeriesWriter};
use sidereal::pipeline::burst::Status;
use sidereal::pipeline::ending::Ending;
use sidereal::pipeline::series::{Block, Checkpoint, SeriesRange, SeriesReport, SeriesSink};
use sidereal::units::{DM_CONSTANT, HZ_PER_MHZ, SECONDS_PER_DAY, dispersion_delay_s};
use sidereal::{Error, Result};

use super::Format;
use crate::common::Common;
use crate::errors;
use crate::gaps::{self, Gap};
use crate::geometry;
use crate::interrupt;
use crate::kept::Keeper;
use crate::output::Folder;
use crate::progress::Progress;
use crate::selection::Opened;
use crate::space;

/// dedispersed.json.
#[derive(Serialize)]
pub(super) struct Document<'a> {
    dms: &'a [f64],
    tsamp_s: f64,
    start_s: f64,
    downsample: usize,
    /// Valid samples of each trial.
    times: &'a [u64],
    /// Whether these are the series of the whole recording; else the reason why not.
    complete: bool,
    reason: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    gaps: Vec<Gap>,
    /// Samples that were not finite and were filled by their channel's level.
    flagged_samples: u64,
    /// The filter bank that made the spectra, of voltages.
    #[serde(skip_serializing_if = "Option::is_none")]
    geometry: Option<&'a geometry::Document>,
    /// The vector level of the processor's work; not there for the reference.
    #[serde(skip_serializing_if = "Option::is_none")]
    simd: Option<&'static str>,
}

impl<'a> Document<'a> {
    /// One document a range.
    pub(super) fn all(
        report: &'a SeriesReport,
        tsamp_s: f64,
        opened: &'a Opened,
        backend: &Backend,
    ) -> Vec<Self> {
        let delay_s = opened.delay_s();
        let gaps = gaps::listed(&report.gaps, tsamp_s, delay_s);
        let document = |(range, times): (&'a SeriesRange, &'a Vec<u64>)| Self {
            dms: &range.dms,
            tsamp_s: range.tsamp_s,
            start_s: delay_s + range.start_s,
            downsample: range.downsample,
            times,
            complete: report.ending.is_complete(),
            reason: report.ending.reason().map(|why| errors::named(&why)),
            gaps: gaps.clone(),
            flagged_samples: report.flagged_samples,
            geometry: opened.geometry.as_ref(),
            simd: backend.simd(),
        };
        report.ranges.iter().zip(&report.times).map(document).collect()
    }
}

/// `stem.extension` for the first range, `stem_2.extension` for the second.
pub(super) fn numbered(stem: &str, index: usize, extension: &str) -> String {
    match index {
        0 => format!("{stem}.{extension}"),
        _ => format!("{stem}_{}.{extension}", index + 1),
    }
}

/// Whether a file's name is one of those that are written.
pub(super) fn writes(name: &str) -> bool {
    let Some((stem, extension)) = name.rsplit_once('.') else { return false };
    let range = || stem.strip_prefix("dedispersed_").map(str::parse::<usize>);
    let dm = || stem.rsplit_once("_DM").map(|(_, dm)| dm.parse::<f64>());
    match extension {
        "npy" | "json" => stem == "dedispersed" || matches!(range(), Some(Ok(_))),
        "dat" | "inf" | "tim" => matches!(dm(), Some(Ok(_))),
        _ => false,
    }
}

/// What the series of one range are written to.
pub(super) enum Writer {
    Npy(npy::Writer),
    Dat(Vec<SeriesWriter>),
    Tim(Vec<TimeSeriesWriter>),
}

impl Writer {
    /// Truncates each trial's series to its number of samples in `times`.
    fn cut(&mut self, times: &[u64]) -> Result<()> {
        match self {
            Self::Npy(writer) => writer.cut(times.iter().copied().max().unwrap_or(0)),
            Self::Dat(writers) => {
                writers.iter_mut().zip(times).try_for_each(|(writer, times)| writer.cut(*times))
            }
            Self::Tim(writers) => {
                writers.iter_mut().zip(times).try_for_each(|(writer, times)| writer.cut(*times))
            }
        }
    }
}

/// All files of one call. A file is open only while a block is written to it, and has its name in the folder that is
/// being filled from the start, so that a later run can go on with it.
pub(super) struct Files<'a> {
    pub(super) folder: &'a Folder,
    pub(super) format: Format,
    pub(super) stem: &'a str,
    pub(super) header: &'a FilterbankHeader,
    pub(super) progress: &'a Progress,
    /// Rows that will come, where that is known.
    pub(super) rows: Option<u64>,
    pub(super) common: &'a Common,
    pub(super) keeper: Keeper,
    /// Whether the recording can be read again, so that checkpoints are of use.
    pub(super) has_checkpoints: bool,
    /// Checkpoint of the earlier run that is continued.
    pub(super) resumed: Option<Checkpoint>,
    pub(super) writers: Vec<Writer>,
}

impl<'a> Files<'a> {
    /// Returns the bytes of all series of `rows` rows.
    fn need(&self, ranges: &[SeriesRange], rows: u64) -> u64 {
        let (lowest, highest) = (self.header.band.lowest_hz(), self.header.band.highest_hz());
        let samples = |range: &SeriesRange| -> u64 {
            let all = rows / range.downsample as u64;
            let delay = |dm: &f64| {
                (dispersion_delay_s(*dm, lowest, highest, DM_CONSTANT) / range.tsamp_s) as u64
            };
            match self.format {
                Format::Npy => all.saturating_mul(range.dms.len() as u64),
                Format::Dat | Format::Tim => {
                    range.dms.iter().map(|dm| all.saturating_sub(delay(dm))).sum()
                }
            }
        };
        ranges.iter().map(samples).fold(0, u64::saturating_add).saturating_mul(4)
    }

    /// Gives every file its name; series of trials that turned out too long are dropped.
    pub(super) fn finish(&mut self, report: &SeriesReport) -> Result<()> {
        let failed = matches!(report.ending, Ending::Failed(_));
        for (mut writer, times) in self.writers.drain(..).zip(&report.times) {
            if failed {
                writer.cut(times)?;
            }
            match writer {
                Writer::Npy(writer) => writer.finish()?,
                Writer::Dat(writers) => {
                    for (writer, times) in writers.into_iter().zip(times) {
                        if *times > 0 { writer.finish() } else { writer.discard() }?;
                    }
                }
                Writer::Tim(writers) => {
                    for (writer, times) in writers.into_iter().zip(times) {
                        if *times > 0 { writer.finish() } else { writer.discard() }?;
                    }
                }
            }
        }
        Ok(())
    }

    fn writer(&self, index: usize, range: &SeriesRange, decimals: usize) -> Result<Writer> {
        let path = |dm: &f64, extension: &str| {
            self.folder.file(format!("{}_DM{dm:.decimals$}.{extension}", self.stem))
        };
        let times = |from: &Checkpoint| from.times.get(index).copied().unwrap_or(0);
        let written = self.resumed.as_ref().map_or(0, times);
        Ok(match self.format {
            Format::Npy => {
                let path = self.folder.file(numbered("dedispersed", index, "npy"));
                let shape = (range.dms.len(), Order::Fortran);
                Writer::Npy(npy::Writer::in_place(&path, shape, written)?)
            }
            Format::Dat => {
                let dat = |dm: &f64| self.dat(&path(dm, "dat"), *dm, range, written);
                let writers = range.dms.iter().map(dat);
                Writer::Dat(writers.collect::<Result<_>>()?)
            }
            Format::Tim => {
                let tim = |dm: &f64| self.tim(&path(dm, "tim"), *dm, range, written);
                let writers = range.dms.iter().map(tim);
                Writer::Tim(writers.collect::<Result<_>>()?)
            }
        })
    }

    fn dat(&self, path: &Path, dm: f64, range: &SeriesRange, written: u64) -> Result<SeriesWriter> {
        let inf = Inf::new(&self.shifted(range), dm, range.tsamp_s);
        let mut writer = SeriesWriter::in_place(path, &inf, written)?;
        writer.release()?;
        Ok(writer)
    }

    fn tim(
        &self,
        path: &Path,
        dm: f64,
        range: &SeriesRange,
        written: u64,
    ) -> Result<TimeSeriesWriter> {
        let header = self.shifted(range);
        let series = TimeSeries {
            source_name: header.source_name,
            telescope: header.telescope,
            ra_deg: header.ra_deg,
            dec_deg: header.dec_deg,
            tstart_mjd: header.tstart_mjd,
            tsamp_s: range.tsamp_s,
            dm,
            frequency_mhz: header.band.highest_hz() / HZ_PER_MHZ,
        };
        let mut writer = TimeSeriesWriter::in_place(path, &series, written)?;
        writer.release()?;
        Ok(writer)
    }

    /// The recording's header with the start of the series.
    fn shifted(&self, range: &SeriesRange) -> FilterbankHeader {
        let known = self.header.tstart_mjd > 0.0;
        let later = if known { range.start_s / SECONDS_PER_DAY } else { 0.0 };
        FilterbankHeader { tstart_mjd: self.header.tstart_mjd + later, ..self.header.clone() }
    }
}

impl SeriesSink for Files<'_> {
    fn begin(&mut self, ranges: &[SeriesRange]) -> Result<()> {
        if let Some(rows) = self.rows {
            let there = self.resumed.as_ref().map_or(0, |from| from.rows);
            let need = self.need(ranges, rows.saturating_sub(there));
            space::check(self.folder.place(), need, self.common)?;
        }
        let decimals = decimals(ranges.iter().flat_map(|range| &range.dms));
        for (index, range) in ranges.iter().enumerate() {
            self.writers.push(self.writer(index, range, decimals)?);
        }
        Ok(())
    }

    fn block(&mut self, block: Block<'_>) -> Result<()> {
        let Some(writer) = self.writers.get_mut(block.range) else {
            let (expected, actual) = (self.writers.len(), block.range);
            return Err(Error::Shape { what: "ranges of the plan", expected, actual });
        };
        let row = |dm: usize| &block.plane.row(dm)[..block.valid[dm]];
        match writer {
            Writer::Npy(writer) => {
                writer.write_times(block.plane)?;
                writer.release()
            }
            Writer::Dat(writers) => writers.iter_mut().enumerate().try_for_each(|(dm, writer)| {
                writer.write(row(dm))?;
                writer.release()
            }),
            Writer::Tim(writers) => writers.iter_mut().enumerate().try_for_each(|(dm, writer)| {
                writer.write(row(dm))?;
                writer.release()
            }),
        }
    }

    fn observe(&mut self, status: &Status) -> bool {
        self.progress.total(status.total);
        self.progress.at(status.times);
        !interrupt::requested()
    }

    fn checkpoint(&mut self, checkpoint: &Checkpoint, is_last: bool) -> Result<()> {
        if !self.has_checkpoints || !(is_last || self.keeper.is_due()) {
            return Ok(());
        }
        let Checkpoint { rows, flagged, times } = checkpoint;
        let words = [*rows, *flagged].into_iter().chain(times.iter().copied());
        let state: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
        self.keeper.checkpoint(&state)
    }
}

/// Where an interrupted run stood, from its state.
///
/// # Errors
/// [`Error::Parameter`] for a state of another length.
pub(super) fn checkpoint(state: &[u8]) -> Result<Checkpoint> {
    let (words, rest) = state.as_chunks::<8>();
    let mut words = words.iter().map(|word| u64::from_le_bytes(*word));
    match (words.next(), words.next().filter(|_| rest.is_empty())) {
        (Some(rows), Some(flagged)) => Ok(Checkpoint { rows, flagged, times: words.collect() }),
        _ => Err(Error::parameter("bytes of the checkpoint", state.len(), "it is damaged")),
    }
}

/// Decimals that tell all trials apart, at least 2.
fn decimals<'a>(dms: impl Iterator<Item = &'a f64>) -> usize {
    let mut dms: Vec<f64> = dms.copied().collect();
    dms.sort_by(f64::total_cmp);
    let closest = dms.windows(2).map(|pair| pair[1] - pair[0]).filter(|step| *step > 0.0);
    let closest = closest.fold(f64::INFINITY, f64::min);
    // A step of one unit of the last place or more keeps rounded names apart.
    (2..9).find(|decimals| closest >= 0.999 * 10f64.powi(-*decimals)).unwrap_or(9) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_trials_apart() {
        assert_eq!(decimals([1.0, 1.5, 2.0].iter()), 2);
        assert_eq!(decimals([1.0, 1.01, 1.02].iter()), 2);
        assert_eq!(decimals([1.0, 1.005].iter()), 3);
        assert_eq!(decimals([7.0].iter()), 2);
        assert_eq!(numbered("a", 0, "npy"), "a.npy");
        assert_eq!(numbered("a", 1, "npy"), "a_2.npy");
        for name in ["dedispersed.npy", "dedispersed_2.json", "a.b_DM1.50.dat", "x_DM-3.00.tim"] {
            assert!(writes(name), "{name}");
        }
        for name in ["thesis.tex", "mine.npy", "dedispersed_x.npy", "a_DM.inf", "a_DM1.50.png"] {
            assert!(!writes(name), "{name}");
        }
    }
}
