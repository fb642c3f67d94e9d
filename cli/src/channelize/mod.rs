//! `sidereal channelize`: makes spectra from recorded voltages.

mod document;
mod filterbank;
mod outputs;
mod voltages;

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use sidereal::channelize::Products;
use sidereal::io::voltages::VoltageHeader;
use sidereal::pipeline::voltage::ChannelizeOptions;
use sidereal::units::DM_CONSTANT;
use sidereal::{Error, Result};

use crate::common::{Common, Work, tell_notes};
use crate::dm_arguments::check_constant;
use crate::errors;
use crate::interrupt::Exit;
use crate::output::{Existing, WritingFiles};
use crate::plots::duration;
use crate::progress::{multiple, rate};
use crate::provenance::{Product, Provenance, Run};
use crate::say::{more, note, warning};
use crate::selection::{TimeRange, parse_time_range};
use crate::voltage_arguments::{VoltageArguments, points};
use crate::{gaps, geometry, json, say};
pub(crate) use document::Document;
use outputs::{Format, Outputs};

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
        note!("{}", document::recording(recorded.header()));
        more!("  on {}", backend.name());
        more!("  response: {}", geometry::response(&options, points)?);
    }
    let written = match outputs.format() {
        Format::Fil => {
            filterbank::write(recorded, &options, writing.nbits, &outputs, common, &backend)?
        }
        Format::Guppi | Format::Dada => {
            let requantization = voltages::requantization(writing.nbits, writing.gain)?;
            voltages::write(recorded, &options, &requantization, &outputs, common, &backend)?
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
