//! `sidereal channelize`: from recorded voltages to spectra.

mod document;
mod outputs;

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use sidereal::channelize::Products;
use sidereal::io::FilterbankSource;
use sidereal::io::voltages::VoltageHeader;
use sidereal::pipeline::burst::Status;
use sidereal::pipeline::voltage::{
    ChannelizeOptions, Depth, Destination, VoltageFilterbank, WriteReport, write_filterbank,
};
use sidereal::units::DM_CONSTANT;
use sidereal::{Error, Result};

use crate::common::Common;
use crate::plots::duration;
use crate::progress::{Progress, multiple, rate};
use crate::selection::{TimeRange, parse_time_range};
use crate::voltage_arguments::VoltageArguments;
use crate::{gaps, geometry, interrupt, json};
use document::Document;
use outputs::Outputs;

/// Divides recorded voltages into channels, and writes a filterbank (.fil).
///
/// A polyphase filter bank divides each recorded channel; powers are detected and summed while spectra
/// are in the cache. Channels run from the highest sky frequency down; a file's start is the middle of
/// its first window, so that pulses keep their times. What is missing from a recording is filled with
/// each channel's running median and listed in OUT.gaps.json; OUT.json says how the file was made.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Voltages: GUPPI raw, PSRDADA, VDIF or Mark 5B, told apart by content; several files are parts of
    /// one recording, in any order; NAME stands for NAME.0000.raw, NAME.0001.raw and so on.
    #[arg(required = true, value_name = "INPUT")]
    inputs: Vec<PathBuf>,
    #[command(flatten)]
    writing: Writing,
    #[command(flatten)]
    voltages: VoltageArguments,
    /// What is detected: I, IQUV, AABB (the power of each polarization), AABBCRCI (and their cross
    /// product) [default: I].
    #[arg(
        long,
        value_enum,
        value_name = "PRODUCTS",
        ignore_case = true,
        help_heading = "Detection"
    )]
    stokes: Option<Stokes>,
    /// Channels from the lowest sky frequency up, instead of from the highest down.
    #[arg(long, help_heading = "Detection")]
    ascending: bool,
    /// Dispersion constant of --coherent-dm, s MHz^2 pc^-1 cm^3.
    #[arg(
        long,
        value_name = "K",
        allow_negative_numbers = true,
        default_value_t = DM_CONSTANT,
        help_heading = "Detection"
    )]
    dm_constant: f64,
    /// Use these seconds of the recording only; an end may be left out: 10:20, 10:, :20.
    #[arg(long, value_name = "A:B", value_parser = parse_time_range, allow_hyphen_values = true)]
    time_range: Option<TimeRange>,
    /// Samples of each stream read at once; 0 chooses. Results are the same for any.
    #[arg(long, value_name = "SAMPLES", default_value_t = 0)]
    gulp: usize,
}

/// What is written, and where.
#[derive(Args, Clone, Debug)]
struct Writing {
    /// File to write; `-` is standard output, without the files beside it.
    #[arg(short, long, value_name = "OUT", help_heading = "Output")]
    output: PathBuf,
    /// Replace OUT and the files beside it if they exist.
    #[arg(long, help_heading = "Output")]
    overwrite: bool,
    /// Bits of a number: 32 (floats), or 8 (scaled by each channel's mean and deviation, as OUT.json
    /// says).
    #[arg(long, value_name = "BITS", help_heading = "Output")]
    nbits: Option<usize>,
}

const EXAMPLES: &str = "Examples:\n  \
    sidereal channelize voltages.raw -o spectra.fil --channels 64 --integrate 8\n  \
    sidereal channelize voltages.raw -o pulsar.fil --channels 16 --coherent-dm 26.8 --stokes IQUV\n  \
    sidereal channelize station.vdif -o station.fil --channels 1024 --freq 1420 --nbits 8";

/// What is detected, as pulsar observers write it.
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
pub(crate) fn run(arguments: &Arguments, common: &Common) -> Result<()> {
    let writing = &arguments.writing;
    let outputs = Outputs::new(&writing.output, writing.overwrite, &arguments.inputs)?;
    if outputs.piped() && common.json {
        let rule = "standard output can't hold both the data and a JSON document";
        return Err(Error::parameter("--json", "given with --output -", rule));
    }
    let depth = writing.depth()?;
    let recorded = arguments.voltages.lacking.open(&arguments.inputs)?;
    let options = arguments.options(recorded.header())?;
    let mut filterbank = VoltageFilterbank::new(recorded, &options, &common.backend()?)?;
    let geometry = geometry::Document::new(filterbank.geometry());
    if common.verbose && !common.quiet {
        tell(&filterbank, &geometry);
    }
    let report = write(&mut filterbank, &outputs, depth, common)?;
    let gaps = gaps::listed(&report.gaps, filterbank.header().tsamp_s, geometry.delay_s());
    if !common.quiet {
        gaps::warn(&gaps);
    }
    let document = Document::new(&outputs, &filterbank, geometry, &report, gaps);
    outputs.write_beside(&document)?;
    if common.json {
        return json::print(&document);
    }
    if common.quiet || outputs.piped() { Ok(()) } else { json::say(&text(&document, &report)) }
}

impl Writing {
    fn depth(&self) -> Result<Depth> {
        match self.nbits {
            None | Some(32) => Ok(Depth::F32),
            Some(8) => Ok(Depth::U8),
            Some(bits) => {
                Err(Error::parameter("--nbits", bits, "a filterbank has 32 (floats) or 8"))
            }
        }
    }
}

impl Arguments {
    fn options(&self, header: &VoltageHeader) -> Result<ChannelizeOptions> {
        if !(self.dm_constant > 0.0 && self.dm_constant.is_finite()) {
            return Err(Error::parameter("--dm-constant", self.dm_constant, "it must be above 0"));
        }
        Ok(ChannelizeOptions {
            products: match self.stokes.unwrap_or(Stokes::I) {
                Stokes::I => Products::I,
                Stokes::Iquv => Products::Iquv,
                Stokes::Aabb => Products::Power,
                Stokes::Aabbcrci => Products::Aabbcrci,
            },
            ascending: self.ascending,
            time_range: self.time_range.map(|range| (range.start_s, range.end_s)),
            gulp: self.gulp,
            ..self.voltages.options(header, self.dm_constant)?
        })
    }
}

/// With --verbose: the recording, the filter bank and what it lets through.
fn tell(filterbank: &VoltageFilterbank, geometry: &geometry::Document) {
    let (recorded, header) = (filterbank.recorded(), filterbank.header());
    eprintln!(
        "sidereal: {} of {}, {} streams, {} bit",
        recorded.format,
        recorded.duration_s().map_or_else(|| "unknown length".to_owned(), duration),
        recorded.streams(),
        recorded.recorded_bits,
    );
    eprintln!("  {}", geometry.text());
    eprintln!("  response: {}", filterbank.plan().response().summary());
    eprintln!(
        "  spectra of {} x {} channels every {}, the first {} after the recording's start",
        filterbank.products(),
        header.channels(),
        duration(header.tsamp_s),
        duration(geometry.delay_s()),
    );
}

fn write(
    filterbank: &mut VoltageFilterbank,
    outputs: &Outputs,
    depth: Depth,
    common: &Common,
) -> Result<WriteReport> {
    let header = filterbank.header().clone();
    let samples = filterbank.plan().samples_per_row() * filterbank.recorded().streams();
    let progress = Progress::new(common, header.times, samples, header.tsamp_s);
    progress.doing("Channelizing");
    let mut observe = |status: &Status| {
        progress.total(status.total);
        progress.at(status.times);
        !interrupt::requested()
    };
    let destination = match outputs.piped() {
        true => Destination::Pipe(Box::new(std::io::stdout())),
        false => Destination::File(outputs.place()),
    };
    let report = write_filterbank(filterbank, destination, depth, &mut observe)?;
    progress.finish();
    interrupt::check()?;
    Ok(report)
}

fn text(document: &Document, report: &WriteReport) -> String {
    let samples = document.samples() / report.elapsed_s.max(1e-9);
    format!(
        "Channelized {} in {}: {}, {} x real time.\nWrote {}: {}",
        duration(report.data_s),
        duration(report.elapsed_s),
        rate(samples),
        multiple(report.data_s / report.elapsed_s.max(1e-9)),
        document.file(),
        document.contents(),
    )
}
