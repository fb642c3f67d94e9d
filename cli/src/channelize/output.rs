//! Files of channelized voltages.
//!
//! Invariant: OUT and its side files get their names together, with a document that states whether they are complete;
//! only then are existing files replaced.

use std::path::{Path, PathBuf};

use clap::ValueEnum;
use serde::Serialize;
use sidereal::backend::Backend;
use sidereal::io::FilterbankSource;
use sidereal::io::voltages::{Flag, VoltageHeader, VoltageSource};
use sidereal::pipeline::Ending;
use sidereal::pipeline::burst::Status;
use sidereal::pipeline::voltage::{
    ChannelizeOptions, ChannelizedVoltages, Depth, Destination, Gains, Requantization,
    VoltageFilterbank, VoltageFormat, write_filterbank, write_voltages,
};
use sidereal::units::{Epoch, HZ_PER_MHZ, SECONDS_PER_DAY};
use sidereal::{Error, Result};

use super::document::{Document, Made, Scaling, Written, text};
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
use crate::behind::Reporter;
use crate::common::{Common, tell_notes};
use crate::gaps::{self, Gap};
use crate::geometry::{self, ResponseDocument};
use crate::interrupt;
use crate::json;
use crate::output::{Files, WritingFiles};
use crate::plots::duration;
use crate::progress::Progress;
use crate::provenance::{Product, Provenance, Run};
use crate::say::{self, more, note, warning};
use crate::space::{self, Reserve};
use crate::voltage_arguments::points;

/// Summarizes a recording in one line, for --verbose.
fn recording(header: &VoltageHeader) -> String {
    format!(
        "{}, {}, {} streams, {} bit",
        header.format,
        header.duration_s().map_or_else(|| "of unknown length".to_owned(), duration),
        header.streams(),
        header.recorded_bits,
    )
}

/// Suffixes of the side files of OUT.
pub(super) const GAPS: &str = ".gaps.json";
pub(super) const DOCUMENT: &str = ".json";

/// A format of OUT.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// SIGPROC filterbank.
    Fil,
    /// Voltages as GUPPI raw.
    Guppi,
    /// Voltages as PSRDADA.
    Dada,
}

impl Format {
    /// Returns the format that a file's extension implies.
    pub(super) fn of(place: &Path) -> Self {
        let extension = place.extension().and_then(|end| end.to_str()).map(str::to_ascii_lowercase);
        match extension.as_deref() {
            Some("raw") => Self::Guppi,
            Some("dada") => Self::Dada,
            _ => Self::Fil,
        }
    }

    /// Returns the suffix of a file's name.
    pub(super) fn suffix(self) -> &'static str {
        match self {
            Self::Fil => ".fil",
            Self::Guppi => ".raw",
            Self::Dada => ".dada",
        }
    }

    /// Returns the name used in documents.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Fil => "SIGPROC filterbank",
            Self::Guppi => "GUPPI raw",
            Self::Dada => "PSRDADA",
        }
    }
}

/// OUT and its side files.
pub(super) struct Outputs {
    format: Format,
    place: PathBuf,
    /// `None` if OUT is standard output.
    files: Option<Files>,
    reserve: Option<Reserve>,
}

impl Outputs {
    /// Begins the files.
    ///
    /// # Errors
    /// As [`Files::begin`]; [`Error::Parameter`] for voltages on standard output.
    pub(super) fn begin(
        place: &Path,
        format: Option<Format>,
        writing: &WritingFiles<'_>,
    ) -> Result<Self> {
        let format = format.unwrap_or_else(|| Format::of(place));
        let files = match (place.as_os_str() == "-", format) {
            (true, Format::Fil) => None,
            (true, _) => {
                let rule = "voltages are written to files only";
                return Err(Error::parameter("--output", place.display(), rule));
            }
            (false, _) => Some(Files::begin(place, &[GAPS, DOCUMENT], writing)?),
        };
        let reserve = files.as_ref().and_then(|files| Reserve::new(&files.main()));
        Ok(Self { format, place: place.to_path_buf(), files, reserve })
    }

    pub(super) fn format(&self) -> Format {
        self.format
    }

    /// Returns whether OUT is standard output.
    pub(super) fn piped(&self) -> bool {
        self.files.is_none()
    }

    /// Returns the path of OUT.
    pub(super) fn place(&self) -> &Path {
        &self.place
    }

    /// Returns the path that OUT is being written to; `None` if OUT is standard output.
    pub(super) fn file(&self) -> Option<PathBuf> {
        self.files.as_ref().map(Files::main)
    }

    /// As [`Files::keep`].
    pub(super) fn keep(&self) {
        self.files.iter().for_each(Files::keep);
    }

    /// Writes the gaps and the document, and renames all files to their final names.
    ///
    /// # Errors
    /// As [`Files::finish`].
    pub(super) fn finish(
        self,
        product: &Product<impl Serialize>,
        gaps: &impl Serialize,
    ) -> Result<()> {
        let Some(files) = self.files else { return Ok(()) };
        drop(self.reserve);
        json::write(&files.beside(GAPS), gaps)?;
        json::write(&files.beside(DOCUMENT), product)?;
        files.finish()
    }
}

/// Values of a file, as requested.
#[derive(Clone, Copy, Debug)]
pub(super) struct Values {
    pub(super) format: Format,
    pub(super) nbits: Option<usize>,
    pub(super) gain: Option<f32>,
}

/// Voltages bound to their filter bank, from which files are made.
pub(super) struct Making {
    source: Source,
    recorded: VoltageHeader,
    geometry: geometry::Document,
    response: Option<ResponseDocument>,
    /// Bits of a filterbank's values.
    depth: Depth,
    format: Format,
    is_live: bool,
    #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
    reporter: Option<Reporter>,
}

pub(super) enum Source {
    Rows(Box<VoltageFilterbank>),
    Voltages(Box<ChannelizedVoltages>),
}

/// Result of writing a file.
pub(super) struct Wrote {
    pub(super) times: u64,
    pub(super) ending: Ending,
}

impl Making {
    /// Binds voltages to a filter bank, and prints what is known of them.
    pub(super) fn begin(
        recorded: Box<dyn VoltageSource>,
        values: Values,
        options: ChannelizeOptions,
        backend: &Backend,
        common: &Common,
    ) -> Result<Self> {
        say::warn_of_recording(recorded.warnings(), recorded.cut(), common.quiet);
        let points = points(recorded.header(), options.channels);
        let response = ResponseDocument::new(&options, points)?;
        if common.verbose && !common.quiet {
            note!("{}", recording(recorded.header()));
            more!("  on {}", backend.name());
            more!("  response: {}", geometry::response(&options, points)?);
        }
        let Values { format, nbits, gain } = values;
        let (header, is_live) = (recorded.header().clone(), recorded.is_live());
        let (source, depth) = match format {
            Format::Fil => {
                let depth = depth(nbits)?;
                let filterbank = VoltageFilterbank::divided(recorded, &options, backend)?;
                (Source::Rows(Box::new(filterbank)), depth)
            }
            Format::Guppi | Format::Dada => {
                let form = requantization(nbits, gain)?;
                let voltages = ChannelizedVoltages::new(recorded, &options, &form, backend)?;
                (Source::Voltages(Box::new(voltages)), Depth::F32)
            }
        };
        let (recorded, geometry) = match &source {
            Source::Rows(filterbank) => (filterbank.recorded().clone(), filterbank.geometry()),
            Source::Voltages(voltages) => (header, voltages.geometry()),
        };
        let geometry = geometry::Document::new(geometry);
        if common.verbose && !common.quiet {
            more!("  {}", geometry.text());
        }
        Ok(Self {
            source,
            recorded,
            geometry,
            response,
            depth,
            format,
            is_live,
            #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
            reporter: is_live.then(|| Reporter::new(common)),
        })
    }

    /// Returns the time from one spectrum to the next in seconds.
    pub(super) fn tsamp_s(&self) -> f64 {
        match &self.source {
            Source::Rows(filterbank) => filterbank.header().tsamp_s,
            Source::Voltages(voltages) => voltages.header().tsamp_s,
        }
    }

    /// Returns the bytes of a spectrum in a file.
    #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
    pub(super) fn sample_bytes(&self) -> f64 {
        match &self.source {
            Source::Rows(filterbank) => {
                let values = filterbank.header().channels() * filterbank.products();
                values as f64 * if self.depth == Depth::F32 { 4.0 } else { 1.0 }
            }
            Source::Voltages(voltages) => voltages.header().sample_bits() as f64 / 8.0,
        }
    }

    /// Returns the start of the next file, from which its name is made.
    pub(super) fn start(&self) -> Epoch {
        let row = match &self.source {
            Source::Rows(filterbank) => filterbank.row(),
            Source::Voltages(voltages) => voltages.row(),
        };
        match self.recorded.start {
            start if start.day == 0 => start,
            start => start.plus_s(row as f64 * self.tsamp_s()),
        }
    }

    /// Ends the next file after `most` spectra.
    pub(super) fn end_after(&mut self, most: u64) {
        match &mut self.source {
            Source::Rows(filterbank) => filterbank.end_at(filterbank.row().saturating_add(most)),
            Source::Voltages(voltages) => voltages.end_at(voltages.row().saturating_add(most)),
        }
    }

    /// Writes the next file and its side files; `read` lists the inputs for the provenance. A live part without spectra has no file.
    ///
    /// # Errors
    /// Errors before the first spectrum; those of the side files.
    pub(super) fn write(
        &mut self,
        outputs: Outputs,
        read: &[PathBuf],
        backend: &Backend,
        common: &Common,
    ) -> Result<Wrote> {
        let (recorded, geometry) = (self.recorded.clone(), self.geometry.clone());
        #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
        let mut look = || self.reporter.iter_mut().for_each(Reporter::look);
        #[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
        let mut look = || {};
        let look: &mut dyn FnMut() = &mut look;
        let written = match &mut self.source {
            Source::Rows(filterbank) => {
                write_rows(filterbank, self.depth, recorded, geometry, &outputs, look, common)?
            }
            Source::Voltages(voltages) => {
                write_spectra(voltages, self.format, recorded, geometry, &outputs, look, common)?
            }
        };
        let (times, ending) = (written.times, written.ending.clone());
        tell_notes(backend, common);
        if self.is_live && times == 0 {
            return Ok(Wrote { times, ending });
        }
        let mut document =
            Document::new(outputs.place(), outputs.format().name(), written, self.response);
        #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
        if let Some(reporter) = &mut self.reporter {
            document.dropped = reporter.sum();
        }
        let run = Run::new(common).on(backend).took(document.elapsed_s(), document.duration_s());
        let run = if self.is_live { run.live() } else { run };
        let product = Product::new("channelize", document, Provenance::new(common, read)?, run);
        let document = &product.document;
        gaps::warn(document.gaps(), common.quiet);
        if document.flagged_samples() > 0 {
            warning!(quiet: common.quiet,
                "{} samples are not finite (NaN or infinite); zeros replaced them.",
                document.flagged_samples()
            );
        }
        let piped = outputs.piped();
        outputs.finish(&product, &product.document.gap_list())?;
        if self.is_live {
            interrupt::goes_on();
        }
        if common.json {
            json::print(&product)?;
        } else if !(common.quiet || piped) {
            json::say(&text(document))?;
        }
        Ok(Wrote { times, ending })
    }
}

/// Writes OUT as a filterbank.
fn write_rows(
    filterbank: &mut VoltageFilterbank,
    depth: Depth,
    recorded: VoltageHeader,
    geometry: geometry::Document,
    outputs: &Outputs,
    look: &mut dyn FnMut(),
    common: &Common,
) -> Result<Written> {
    let header = filterbank.header().clone();
    let (first, passed_s) = (filterbank.row(), filterbank.row() as f64 * header.tsamp_s);
    let flagged_before = filterbank.not_finite();
    let samples = filterbank.plan().samples_per_row() * filterbank.recorded().streams();
    if let Some(times) = header.times.filter(|_| !outputs.piped()) {
        let bytes = if depth == Depth::U8 { 1 } else { 4 };
        let row = (filterbank.row_elements() * bytes) as u64;
        space::check(outputs.place(), (times - first).saturating_mul(row), common)?;
    }
    let progress = Progress::new(common, header.times, samples, header.tsamp_s);
    progress.doing("Channelizing");
    filterbank.watched_by(Box::new(|| !interrupt::requested()));
    let mut observe = |status: &Status| {
        progress.total(status.total);
        progress.at(status.times);
        look();
        if status.times > 0 {
            outputs.keep();
        }
        !interrupt::requested()
    };
    let file = outputs.file();
    let destination = match &file {
        None => Destination::Pipe(Box::new(std::io::stdout())),
        Some(path) => Destination::File(path),
    };
    let report = write_filterbank(filterbank, destination, depth, &mut observe);
    let report = report.map_err(named)?;
    progress.finish();
    if report.rows == 0 {
        interrupt::check()?;
    }
    Ok(Written {
        ending: report.ending,
        recorded,
        gaps: gaps::listed(&report.gaps, header.tsamp_s, geometry.delay_s()),
        flagged_samples: filterbank.not_finite() - flagged_before,
        geometry,
        tstart_mjd: header.tstart_mjd + passed_s / SECONDS_PER_DAY,
        tsamp_s: header.tsamp_s,
        times: report.rows,
        channels: header.channels(),
        fch1_mhz: header.band.fch1_mhz(),
        foff_mhz: header.band.foff_mhz(),
        bits: if report.scaling.is_some() { 8 } else { 32 },
        made: Made::Spectra { scaling: report.scaling.as_ref().map(Scaling::new) },
        row_samples: samples,
        elapsed_s: report.elapsed_s,
    })
}

/// Names standard output in an error.
fn named(error: Error) -> Error {
    match error {
        Error::Io { path, source } if path.as_os_str() == "-" => {
            Error::io("standard output", source)
        }
        other => other,
    }
}

fn depth(bits: Option<usize>) -> Result<Depth> {
    match bits {
        None | Some(32) => Ok(Depth::F32),
        Some(8) => Ok(Depth::U8),
        Some(bits) => Err(Error::parameter("--nbits", bits, "a filterbank has 32 (floats) or 8")),
    }
}

/// Returns the requantization that `--nbits` and `--gain` ask for.
pub(super) fn requantization(bits: Option<usize>, gain: Option<f32>) -> Result<Requantization> {
    let bits = bits.unwrap_or(8);
    if !matches!(bits, 4 | 8) {
        return Err(Error::parameter("--nbits", bits, "channelized voltages have 8 or 4"));
    }
    if let Some(bad) = gain.filter(|gain| !(*gain > 0.0 && gain.is_finite())) {
        return Err(Error::parameter("--gain", bad, "it must be above 0"));
    }
    let gains = gain.map_or(Gains::Automatic, |gain| Gains::Given(vec![gain]));
    Ok(Requantization { bits, gains })
}

/// Writes OUT as voltages.
fn write_spectra(
    source: &mut ChannelizedVoltages,
    format: Format,
    recorded: VoltageHeader,
    geometry: geometry::Document,
    outputs: &Outputs,
    look: &mut dyn FnMut(),
    common: &Common,
) -> Result<Written> {
    let header = source.header().clone();
    let (first, passed_s) = (source.row(), source.row() as f64 * header.tsamp_s);
    let (flagged_before, limited_before) = (source.not_finite(), source.saturated());
    let row_samples = source.geometry().hop * recorded.streams();
    if let Some(times) = header.times {
        let bits = header.encoding.sample_bits() as u64;
        let need = (times - first).saturating_mul(bits).div_ceil(8);
        space::check(outputs.place(), need.saturating_mul(header.streams() as u64), common)?;
    }
    let place = outputs.file().unwrap_or_default();
    let format = match format {
        Format::Dada => VoltageFormat::Dada,
        _ => VoltageFormat::Guppi,
    };
    let progress = Progress::new(common, header.times, row_samples, header.tsamp_s);
    progress.doing("Channelizing");
    source.watched_by(Box::new(|| !interrupt::requested()));
    let mut observe = |status: &Status| {
        progress.at(status.times);
        look();
        outputs.keep();
        !interrupt::requested()
    };
    let report = write_voltages(source, &place, format, &mut observe)?;
    progress.finish();
    if report.times == 0 {
        interrupt::check()?;
    }
    let width_mhz = header.channel_width_hz() / HZ_PER_MHZ;
    Ok(Written {
        gaps: gaps(&report.flags, report.times, &header, geometry.delay_s()),
        flagged_samples: source.not_finite() - flagged_before,
        recorded,
        geometry,
        tstart_mjd: header.start.mjd() + passed_s / SECONDS_PER_DAY,
        tsamp_s: header.tsamp_s,
        times: report.times,
        channels: header.coarse_channels(),
        fch1_mhz: header.centres_hz.first().map_or(0.0, |hz| hz / HZ_PER_MHZ),
        foff_mhz: step_mhz(&header).unwrap_or(width_mhz),
        bits: header.recorded_bits,
        made: Made::Voltages {
            gains: source.gains().to_vec(),
            limited: source.saturated().iter().sum::<u64>() - limited_before.iter().sum::<u64>(),
        },
        row_samples,
        elapsed_s: report.elapsed_s,
        ending: report.ending,
    })
}

/// Returns the spacing of adjacent channel centres.
fn step_mhz(header: &VoltageHeader) -> Option<f64> {
    let (first, second) = (header.centres_hz.first()?, header.centres_hz.get(1)?);
    Some((second - first) / HZ_PER_MHZ)
}

/// Returns the gaps within `times` in which at least one stream has no samples; `flags` are sorted by start.
fn gaps(flags: &[Flag], times: u64, header: &VoltageHeader, delay_s: f64) -> Vec<Gap> {
    let mut joined: Vec<sidereal::io::Gap> = Vec::new();
    for flag in flags.iter().filter(|flag| flag.start < times) {
        let end = flag.start.saturating_add(flag.times).min(times);
        match joined.last_mut() {
            Some(last) if flag.start <= last.start_time + last.times => {
                last.times = last.times.max(end - last.start_time);
            }
            _ => joined.push(sidereal::io::Gap { start_time: flag.start, times: end - flag.start }),
        }
    }
    gaps::listed(&joined, header.tsamp_s, delay_s)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_tells_the_format() {
        let of = |name: &str| Format::of(Path::new(name));
        assert_eq!((of("a.fil"), of("a.RAW")), (Format::Fil, Format::Guppi));
        assert_eq!((of("a.b.dada"), of("-")), (Format::Dada, Format::Fil));
    }
}
