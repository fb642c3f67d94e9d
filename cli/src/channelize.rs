//! `sidereal channelize`: makes spectra from recorded voltages, as a filterbank file or as voltages of more channels.
//!
//! Invariant: OUT and its side files get their names together, with a document that states whether they are complete;
//! only then are existing files replaced.

use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::{Args, ValueEnum};
use schemars::JsonSchema;
use serde::Serialize;
use sidereal::backend::Backend;
use sidereal::channelize::Products;
use sidereal::io::FilterbankSource;
use sidereal::io::voltages::{Flag, VoltageHeader, VoltageSource};
use sidereal::pipeline::Ending;
use sidereal::pipeline::burst::Status;
use sidereal::pipeline::voltage::{
    self, ChannelizeOptions, ChannelizedVoltages, Depth, Destination, Gains, Requantization,
    VoltageFilterbank, VoltageFormat, write_filterbank, write_voltages,
};
use sidereal::units::{DM_CONSTANT, HZ_PER_MHZ};
use sidereal::{Error, Result};

use crate::common::{Common, Work, tell_notes};
use crate::dm_arguments::check_constant;
use crate::gaps::{self, Gap};
use crate::geometry::{self, ResponseDocument};
use crate::interrupt::{self, Exit};
use crate::output::{Existing, Files, WritingFiles};
use crate::plots::{duration, short};
use crate::progress::{Progress, multiple, rate};
use crate::provenance::{Product, Provenance, Run};
use crate::say::{self, more, note, warning};
use crate::selection::{TimeRange, parse_time_range, shown};
use crate::space::{self, Reserve};
use crate::voltage_arguments::{VoltageArguments, points};
use crate::{errors, flags, json};

/// Channelize recorded voltages to a filterbank (.fil) or to voltages of more channels.
///
/// A polyphase filter bank divides each recorded channel. For a filterbank, powers are detected and summed, and
/// channels run from the highest sky frequency down; a file's start is the middle of its first window, so that pulses
/// keep their times. Gaps of a recording are filled with each channel's running level (in voltages: with zeros) and
/// listed in OUT.gaps.json; OUT.json records how the file was made.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Voltages: GUPPI raw, PSRDADA, VDIF or Mark 5B.
    ///
    /// The format is recognized by content. Several files are parts of one recording, in any order; NAME stands for
    /// NAME.0000.raw, NAME.0001.raw and so on.
    #[arg(required = true, value_name = "INPUT")]
    inputs: Vec<PathBuf>,
    /// Use only these seconds of the recording; either end may be omitted: 10:20, 10:, :20.
    #[arg(long, value_name = "A:B", value_parser = parse_time_range, allow_hyphen_values = true)]
    time_range: Option<TimeRange>,
    /// Samples of each stream to read at once; 0 chooses.
    ///
    /// Results do not depend on it.
    #[arg(long, value_name = "SAMPLES", default_value_t = 0)]
    gulp: usize,
    /// Fill gaps of any length.
    ///
    /// By default a gap longer than both one minute and ten times the data before it is an error, because one damaged
    /// timestamp makes such a gap.
    #[arg(long)]
    allow_gaps: bool,
    #[command(flatten)]
    writing: Writing,
    #[command(flatten)]
    voltages: VoltageArguments,
    /// Dispersion constant of --coherent-dm, s MHz^2 pc^-1 cm^3.
    #[arg(
        long,
        value_name = "K",
        allow_negative_numbers = true,
        default_value_t = DM_CONSTANT,
        help_heading = "Voltages"
    )]
    dm_constant: f64,
    #[command(flatten)]
    detection: Detection,
}

/// Output options.
#[derive(Args, Clone, Debug)]
struct Writing {
    /// File to write; `-` is a filterbank on standard output, without side files.
    #[arg(short, long, value_name = "OUT", help_heading = "Output")]
    output: PathBuf,
    /// Replace OUT and its side files if they exist.
    #[arg(long, help_heading = "Output")]
    overwrite: bool,
    /// Format of OUT [default: guppi if it ends in .raw, dada if in .dada, else fil].
    #[arg(long, value_enum, help_heading = "Output")]
    format: Option<Format>,
    /// Bits per value.
    ///
    /// In a filterbank 32 (floats; the default) or 8 (scaled as recorded in OUT.json); in voltages 8 (the default) or
    /// 4.
    #[arg(long, value_name = "BITS", help_heading = "Output")]
    nbits: Option<usize>,
    /// Factor for all voltages before rounding [default: chosen for each channel from its power].
    ///
    /// Only for output voltages.
    #[arg(long, value_name = "FACTOR", allow_negative_numbers = true, help_heading = "Output")]
    gain: Option<f32>,
}

/// Detection of the channels' voltages.
#[derive(Args, Clone, Debug)]
struct Detection {
    /// I, IQUV, AABB (power of each polarization) or AABBCRCI (with their cross product) [default: I].
    #[arg(
        long,
        value_enum,
        value_name = "PRODUCTS",
        ignore_case = true,
        help_heading = "Filterbank"
    )]
    stokes: Option<Stokes>,
    /// Order channels from the lowest sky frequency up.
    ///
    /// By default they run from the highest down.
    #[arg(long, help_heading = "Filterbank")]
    ascending: bool,
}

const EXAMPLES: &str = "Examples:\n  \
    sidereal channelize voltages.raw -o spectra.fil --channels 64 --integrate 8\n  \
    sidereal channelize voltages.raw -o pulsar.fil --channels 16 --coherent-dm 26.8 --stokes IQUV\n  \
    sidereal channelize station.vdif -o station.fil --channels 1024 --freq 1420 --nbits 8\n  \
    sidereal channelize voltages.raw -o narrow.dada --channels 16 --oversample 4/3";

/// Detected products, in pulsar observers' notation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Stokes {
    #[value(name = "I")]
    I,
    #[value(name = "IQUV")]
    Iquv,
    #[value(name = "AABB")]
    Aabb,
    #[value(name = "AABBCRCI")]
    Aabbcrci,
}

/// Runs the verb.
pub(crate) fn run(arguments: &Arguments, common: &Common) -> Result<Exit> {
    let writing = &arguments.writing;
    let window = arguments.voltages.window_file();
    let read: Vec<PathBuf> = arguments.inputs.iter().cloned().chain(window).collect();
    if writing.output.as_os_str() == "-" && common.json {
        let rule = "standard output can't hold both the data and a JSON document";
        return Err(Error::parameter("--json", "given with --output -", rule));
    }
    let existing = Existing::new(writing.overwrite);
    let files = WritingFiles { option: "--output", existing, inputs: &read, common };
    let outputs = Outputs::begin(&writing.output, writing.format, &files)?;
    arguments.check_form(outputs.format())?;
    let recorded = arguments.voltages.lacking.open(&arguments.inputs, arguments.allow_gaps)?;
    let mut options = arguments.options(recorded.header())?;
    options.memory = common.memory;
    say::warn_of_recording(recorded.warnings(), recorded.cut(), common.quiet);
    let points = points(recorded.header(), options.channels);
    let backend = common.backend_for(Work::on_voltages(&arguments.inputs))?;
    let response = geometry::ResponseDocument::new(&options, points)?;
    if common.verbose && !common.quiet {
        note!("{}", recording(recorded.header()));
        more!("  on {}", backend.name());
        more!("  response: {}", geometry::response(&options, points)?);
    }
    let written = match outputs.format() {
        Format::Fil => record_rows(recorded, &options, writing.nbits, &outputs, common, &backend)?,
        Format::Guppi | Format::Dada => {
            let requantization = requantization(writing.nbits, writing.gain)?;
            record_voltages(recorded, &options, &requantization, &outputs, common, &backend)?
        }
    };
    tell_notes(&backend, common);
    let ending = written.ending.clone();
    let document = Document::new(written, &outputs, response);
    let run = Run::new(common).on(&backend).took(document.elapsed_s(), document.duration_s());
    let product = Product::new("channelize", document, Provenance::new(common, &read)?, run);
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
    if common.json {
        json::print(&product)?;
    } else if !(common.quiet || piped) {
        json::say(&text(document))?;
    }
    let place = if piped { Path::new("standard output") } else { &writing.output };
    Ok(errors::ended(&ending, place))
}

impl Arguments {
    /// Rejects options that do not apply to the format of OUT.
    fn check_form(&self, format: Format) -> Result<()> {
        if format == Format::Fil {
            return match self.writing.gain {
                Some(gain) => {
                    let rule = "it is for voltages; a filterbank of 8 bits has gains of its own";
                    Err(Error::parameter("--gain", gain, rule))
                }
                None => Ok(()),
            };
        }
        let stokes = self.detection.stokes.map(|_| "--stokes");
        let ascending = self.detection.ascending.then_some("--ascending");
        match stokes.or(ascending).or(self.voltages.detection_given()) {
            None => Ok(()),
            Some(option) => {
                let rule = "it is for a filterbank, and OUT holds voltages, which are not detected";
                Err(Error::parameter(option, "given", rule))
            }
        }
    }

    fn options(&self, header: &VoltageHeader) -> Result<ChannelizeOptions> {
        check_constant(self.dm_constant)?;
        Ok(ChannelizeOptions {
            products: match self.detection.stokes.unwrap_or(Stokes::I) {
                Stokes::I => Products::I,
                Stokes::Iquv => Products::Iquv,
                Stokes::Aabb => Products::Power,
                Stokes::Aabbcrci => Products::Aabbcrci,
            },
            ascending: self.detection.ascending,
            time_range: self.time_range.map(|range| (range.start_s, range.end_s)),
            gulp: self.gulp,
            ..self.voltages.options(header, self.dm_constant)?
        })
    }
}

fn text(document: &Document) -> String {
    let (data_s, elapsed_s) = (document.duration_s(), document.elapsed_s().max(1e-9));
    // A filterbank header cannot name the products of its IFs.
    let note = match document.products() {
        ["I", _, ..] => "\nTo search it, take I alone: sidereal search ... --pol 0",
        _ => "",
    };
    format!(
        "Channelized {} in {}: {}, {} x real time.\nWrote {}{}: {}{note}",
        duration(data_s),
        duration(elapsed_s),
        rate(document.samples() / elapsed_s),
        multiple(data_s / elapsed_s),
        document.file(),
        if document.is_complete() { "" } else { " (not complete)" },
        document.contents(),
    )
}

/// Description of the output.
struct Written {
    recorded: VoltageHeader,
    geometry: geometry::Document,
    tstart_mjd: f64,
    tsamp_s: f64,
    times: u64,
    channels: usize,
    fch1_mhz: f64,
    foff_mhz: f64,
    bits: usize,
    made: Made,
    gaps: Vec<Gap>,
    flagged_samples: u64,
    /// Samples of all streams that one spectrum is made from.
    row_samples: usize,
    elapsed_s: f64,
    ending: Ending,
}

/// Conversion of values to integers.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
enum Made {
    Spectra {
        #[serde(skip_serializing_if = "Option::is_none")]
        scaling: Option<Scaling>,
    },
    Voltages {
        /// Gain of each channel.
        gains: Vec<f32>,
        /// Number of complex samples that saturated.
        limited: u64,
    },
}

/// Scaling `count = mean_count + gain (power - mean)`; one mean and gain per product and channel, in the file's
/// order.
#[derive(Serialize, JsonSchema)]
struct Scaling {
    mean_count: u8,
    rows: usize,
    limited: u64,
    means: Vec<f32>,
    gains: Vec<f32>,
}

impl Scaling {
    fn new(scaling: &voltage::Scaling) -> Self {
        let voltage::Scaling { rows, means, gains, clipped } = scaling.clone();
        Self { mean_count: 64, rows, limited: clipped, means, gains }
    }
}

/// OUT.json, and the JSON document on standard output.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Document {
    file: String,
    format: &'static str,
    recording: String,
    source: String,
    telescope: String,
    tstart_mjd: Option<f64>,
    tsamp_s: f64,
    times: u64,
    duration_s: f64,
    channels: usize,
    fch1_mhz: f64,
    foff_mhz: f64,
    bits: usize,
    geometry: geometry::Document,
    #[serde(skip_serializing_if = "Option::is_none")]
    response: Option<ResponseDocument>,
    #[serde(flatten)]
    made: Made,
    gaps: Vec<Gap>,
    /// Number of samples of the recording that were not finite and were replaced by zeros.
    flagged_samples: u64,
    /// Whether the file contains the complete recording.
    complete: bool,
    /// Reason if it does not.
    reason: Option<String>,
    #[serde(skip)]
    elapsed_s: f64,
    #[serde(skip)]
    samples: f64,
}

/// Contents of OUT.gaps.json.
#[derive(Serialize, JsonSchema)]
struct GapList<'a> {
    file: &'a str,
    total_s: f64,
    gaps: &'a [Gap],
}

impl Document {
    fn new(written: Written, outputs: &Outputs, response: Option<ResponseDocument>) -> Self {
        let recorded = written.recorded;
        let duration_s = written.times as f64 * written.tsamp_s;
        Self {
            file: shown(outputs.place()),
            format: outputs.format().name(),
            recording: recorded.path.display().to_string(),
            source: recorded.source_name,
            telescope: recorded.telescope,
            tstart_mjd: (recorded.start.day != 0).then_some(written.tstart_mjd),
            tsamp_s: written.tsamp_s,
            times: written.times,
            duration_s,
            channels: written.channels,
            fch1_mhz: written.fch1_mhz,
            foff_mhz: written.foff_mhz,
            bits: written.bits,
            geometry: written.geometry,
            response,
            made: written.made,
            gaps: written.gaps,
            flagged_samples: written.flagged_samples,
            elapsed_s: written.elapsed_s,
            complete: written.ending.is_complete(),
            reason: flags::reason(&written.ending),
            samples: written.times as f64 * written.row_samples as f64,
        }
    }

    fn file(&self) -> &str {
        &self.file
    }

    fn duration_s(&self) -> f64 {
        self.duration_s
    }

    fn elapsed_s(&self) -> f64 {
        self.elapsed_s
    }

    fn flagged_samples(&self) -> u64 {
        self.flagged_samples
    }

    fn gaps(&self) -> &[Gap] {
        &self.gaps
    }

    /// Returns whether the file contains the complete recording.
    fn is_complete(&self) -> bool {
        self.complete
    }

    /// Returns the number of channelized samples of all streams.
    fn samples(&self) -> f64 {
        self.samples
    }

    fn products(&self) -> &[&'static str] {
        self.geometry.products()
    }

    /// Summarizes the file's contents in a few words.
    fn contents(&self) -> String {
        let products = match self.products() {
            [] => String::new(),
            products => format!(" ({})", products.join(" ")),
        };
        let last_mhz = self.fch1_mhz + self.foff_mhz * (self.channels as f64 - 1.0);
        format!(
            "{} spectra of {} channels{products} every {}, {} to {} MHz, {} bit",
            self.times,
            self.channels,
            duration(self.tsamp_s),
            short(self.fch1_mhz, 8),
            short(last_mhz, 8),
            self.bits,
        )
    }

    fn gap_list(&self) -> GapList<'_> {
        // Adding 0.0 turns the -0.0 of an empty sum into 0.0.
        let total_s = self.gaps.iter().map(Gap::length_s).sum::<f64>() + 0.0;
        GapList { file: &self.file, total_s, gaps: &self.gaps }
    }
}

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

/// Suffixes of the files beside OUT.
const GAPS: &str = ".gaps.json";
const DOCUMENT: &str = ".json";

/// A format of OUT.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// SIGPROC filterbank.
    Fil,
    /// Voltages as GUPPI raw.
    Guppi,
    /// Voltages as PSRDADA.
    Dada,
}

impl Format {
    /// Returns the format that a file's extension implies.
    fn of(place: &Path) -> Self {
        let extension = place.extension().and_then(|end| end.to_str()).map(str::to_ascii_lowercase);
        match extension.as_deref() {
            Some("raw") => Self::Guppi,
            Some("dada") => Self::Dada,
            _ => Self::Fil,
        }
    }

    /// Returns the name used in documents.
    fn name(self) -> &'static str {
        match self {
            Self::Fil => "SIGPROC filterbank",
            Self::Guppi => "GUPPI raw",
            Self::Dada => "PSRDADA",
        }
    }
}

/// OUT and its side files.
struct Outputs {
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
    fn begin(place: &Path, format: Option<Format>, writing: &WritingFiles<'_>) -> Result<Self> {
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

    fn format(&self) -> Format {
        self.format
    }

    /// Returns whether OUT is standard output.
    fn piped(&self) -> bool {
        self.files.is_none()
    }

    /// Returns the path of OUT.
    fn place(&self) -> &Path {
        &self.place
    }

    /// Returns the path that OUT is being written to; `None` if OUT is standard output.
    fn file(&self) -> Option<PathBuf> {
        self.files.as_ref().map(Files::main)
    }

    /// As [`Files::keep`].
    fn keep(&self) {
        self.files.iter().for_each(Files::keep);
    }

    /// Writes the gaps and the document, and renames all files to their final names.
    ///
    /// # Errors
    /// As [`Files::finish`].
    fn finish(self, product: &Product<impl Serialize>, gaps: &impl Serialize) -> Result<()> {
        let Some(files) = self.files else { return Ok(()) };
        drop(self.reserve);
        json::write(&files.beside(GAPS), gaps)?;
        json::write(&files.beside(DOCUMENT), product)?;
        files.finish()
    }
}

/// Writes OUT.
fn record_rows(
    recorded: Box<dyn VoltageSource>,
    options: &ChannelizeOptions,
    bits: Option<usize>,
    outputs: &Outputs,
    common: &Common,
    backend: &Backend,
) -> Result<Written> {
    let depth = depth(bits)?;
    let mut filterbank = VoltageFilterbank::new(recorded, options, backend)?;
    let geometry = geometry::Document::new(filterbank.geometry());
    if common.verbose && !common.quiet {
        more!("  {}", geometry.text());
    }
    let header = filterbank.header().clone();
    let samples = filterbank.plan().samples_per_row() * filterbank.recorded().streams();
    if let Some(times) = header.times.filter(|_| !outputs.piped()) {
        let bytes = if depth == Depth::U8 { 1 } else { 4 };
        let row = (filterbank.row_elements() * bytes) as u64;
        space::check(outputs.place(), times.saturating_mul(row), common)?;
    }
    let progress = Progress::new(common, header.times, samples, header.tsamp_s);
    progress.doing("Channelizing");
    filterbank.watched_by(Box::new(|| !interrupt::requested()));
    let mut observe = |status: &Status| {
        progress.total(status.total);
        progress.at(status.times);
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
    let report = write_filterbank(&mut filterbank, destination, depth, &mut observe);
    let report = report.map_err(named)?;
    progress.finish();
    if report.rows == 0 {
        interrupt::check()?;
    }
    Ok(Written {
        ending: report.ending,
        recorded: filterbank.recorded().clone(),
        gaps: gaps::listed(&report.gaps, header.tsamp_s, geometry.delay_s()),
        flagged_samples: filterbank.not_finite(),
        geometry,
        tstart_mjd: header.tstart_mjd,
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
fn requantization(bits: Option<usize>, gain: Option<f32>) -> Result<Requantization> {
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

/// Writes OUT.
fn record_voltages(
    recorded: Box<dyn VoltageSource>,
    options: &ChannelizeOptions,
    requantization: &Requantization,
    outputs: &Outputs,
    common: &Common,
    backend: &Backend,
) -> Result<Written> {
    let begun = Instant::now();
    let recorded_header = recorded.header().clone();
    let mut source = ChannelizedVoltages::new(recorded, options, requantization, backend)?;
    let geometry = geometry::Document::new(source.geometry());
    if common.verbose && !common.quiet {
        more!("  {}", geometry.text());
    }
    let header = source.header().clone();
    let row_samples = source.geometry().hop * recorded_header.streams();
    if let Some(times) = header.times {
        let bits = header.encoding.sample_bits() as u64;
        let need = times.saturating_mul(bits).div_ceil(8).saturating_mul(header.streams() as u64);
        space::check(outputs.place(), need, common)?;
    }
    let place = outputs.file().unwrap_or_default();
    let format = match outputs.format() {
        Format::Dada => VoltageFormat::Dada,
        _ => VoltageFormat::Guppi,
    };
    let progress = Progress::new(common, header.times, row_samples, header.tsamp_s);
    progress.doing("Channelizing");
    source.watched_by(Box::new(|| !interrupt::requested()));
    let mut observe = |status: &Status| {
        progress.at(status.times);
        outputs.keep();
        !interrupt::requested()
    };
    let report = write_voltages(&mut source, &place, format, &mut observe)?;
    progress.finish();
    if report.times == 0 {
        interrupt::check()?;
    }
    let width_mhz = header.channel_width_hz() / HZ_PER_MHZ;
    Ok(Written {
        gaps: gaps(&report.flags, report.times, &header, geometry.delay_s()),
        flagged_samples: source.not_finite(),
        recorded: recorded_header,
        geometry,
        tstart_mjd: header.start.mjd(),
        tsamp_s: header.tsamp_s,
        times: report.times,
        channels: header.coarse_channels(),
        fch1_mhz: header.centres_hz.first().map_or(0.0, |hz| hz / HZ_PER_MHZ),
        foff_mhz: step_mhz(&header).unwrap_or(width_mhz),
        bits: header.recorded_bits,
        made: Made::Voltages {
            gains: source.gains().to_vec(),
            limited: source.saturated().iter().sum(),
        },
        row_samples,
        elapsed_s: begun.elapsed().as_secs_f64(),
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
