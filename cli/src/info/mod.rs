//! `sidereal info`: prints header and statistics of a recording.

mod header;
mod series;
mod statistics;
mod strain;
mod visibilities;
mod voltages;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use sidereal::io::strain::is_strain;
use sidereal::io::uvh5::is_uvh5;
use sidereal::io::voltages::is_voltages;
use sidereal::io::{bank_h5, is_stream};
use sidereal::{Error, Result};

use crate::common::Common;
use crate::provenance::Made;
use crate::spiir;
use crate::voltage_arguments::Lacking;
use crate::{json, say, selection};
use header::Header;
use series::Facts;
use statistics::Statistics;

/// Show a recording's header, statistics and bandpass.
///
/// Recognizes by content: SIGPROC filterbanks (.fil) and series (.tim), PSRFITS search mode and FBH5 (.h5), voltages
/// (GUPPI raw, PSRDADA, VDIF, Mark 5B), visibilities (UVH5), gravitational-wave strain (HDF5, GWF) and filter banks
/// of `spiir bank`. Recognizes by name: PRESTO series (.dat with .inf), NumPy arrays (.npy) and rfifind masks
/// (.mask). Several files are shown one by one; `-` is a SIGPROC filterbank on standard input.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Example:\n  sidereal info observation.fil")]
pub(crate) struct Arguments {
    /// Files to show.
    #[arg(required = true, value_name = "INPUT")]
    inputs: Vec<PathBuf>,
    /// Use only one polarization (IF), counted from 0; by default the total intensity.
    #[arg(long, value_name = "N")]
    pol: Option<usize>,
    /// Use every sample for the statistics.
    ///
    /// By default about 64 million samples, spread over the recording.
    #[arg(long)]
    all: bool,
    /// Show only the header.
    #[arg(long, conflicts_with = "all")]
    header: bool,
    /// Show a recording with gaps.
    ///
    /// Without this option, gaps in voltages longer than both one minute and ten times the data before them are an
    /// error, and in PSRFITS all gaps.
    #[arg(long)]
    allow_gaps: bool,
    /// Channel of a frame file (GWF) or of gwpy's HDF5 with several channels.
    #[arg(long, value_name = "NAME")]
    channel: Option<String>,
    #[command(flatten)]
    lacking: Lacking,
}

/// Document of a file, and whether the file is complete.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Examined {
    #[serde(flatten)]
    document: Document,
    complete: bool,
    /// Missing part of a truncated file.
    reason: Option<String>,
    warnings: Vec<String>,
}

impl Examined {
    fn new(document: Document, warnings: &[String], cut: Option<&str>) -> Self {
        let reason = cut.map(str::to_owned);
        Self { document, complete: cut.is_none(), reason, warnings: warnings.to_vec() }
    }

    fn table(&self) -> String {
        let mut text = self.document.table().to_owned();
        if let Some(reason) = &self.reason {
            let _ = write!(text, "\n  {:<12}no: {reason}", "Complete");
        }
        for warning in &self.warnings {
            let _ = write!(text, "\n  {:<12}{warning}", "Warning");
        }
        text
    }
}

/// Contents of one file's document.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
enum Document {
    Filterbank {
        #[serde(flatten)]
        header: Box<Header>,
        #[serde(flatten)]
        statistics: Option<Statistics>,
    },
    Voltages(Box<voltages::Document>),
    Visibilities(Box<visibilities::Document>),
    Strain(Box<strain::Document>),
    Bank(Box<spiir::BankDocument>),
    Other(Facts),
}

impl Document {
    fn table(&self) -> String {
        match self {
            Self::Other(facts) => facts.table(),
            Self::Voltages(document) => document.table(),
            Self::Visibilities(document) => document.table(),
            Self::Strain(document) => document.table(),
            Self::Bank(document) => document.table(),
            Self::Filterbank { header, statistics } => {
                let statistics = statistics.as_ref().map_or_else(String::new, Statistics::table);
                header.table() + &statistics
            }
        }
    }
}

/// Runs the verb.
pub(crate) fn run(arguments: &Arguments, common: &Common) -> Result<()> {
    let mut documents = Vec::new();
    let made = Made::new(common, &arguments.inputs)?;
    for (index, input) in arguments.inputs.iter().enumerate() {
        let document = examine(input, arguments, common)?;
        say::warn_of_recording(&document.warnings, document.reason.as_deref(), common.quiet);
        if common.json {
            documents.push(made.product("info", document));
        } else {
            let gap = if index > 0 { "\n" } else { "" };
            json::say(&format!("{gap}{}", document.table().trim_end()))?;
        }
    }
    match documents.as_slice() {
        [] => Ok(()),
        [one] => json::print(one),
        many => json::print(&many),
    }
}

fn examine(input: &Path, arguments: &Arguments, common: &Common) -> Result<Examined> {
    if let Some(facts) = series::examine(input) {
        let facts = facts?;
        let cut = facts.cut().map(str::to_owned);
        return Ok(Examined::new(Document::Other(facts), &[], cut.as_deref()));
    }
    let is_file = !is_stream(input);
    if is_file && is_uvh5(input) {
        if let Some(pol) = arguments.pol {
            let rule = "it is for filterbanks; of visibilities every polarization is shown";
            return Err(Error::parameter("--pol", pol, rule));
        }
        arguments.lacking.check_none(input)?;
        let document = Document::Visibilities(Box::new(visibilities::Document::read(input)?));
        return Ok(Examined::new(document, &[], None));
    }
    if is_file && let Some(document) = strain_or_bank(input, arguments)? {
        arguments.lacking.check_none(input)?;
        return Ok(document);
    }
    if let Some(channel) = &arguments.channel {
        let rule = "it is for frame files (GWF) and gwpy's HDF5";
        return Err(Error::parameter("--channel", channel, rule));
    }
    if is_file && is_voltages(input)? {
        if let Some(pol) = arguments.pol {
            let rule = "it is for filterbanks; of voltages every polarization is shown";
            return Err(Error::parameter("--pol", pol, rule));
        }
        let mut source = arguments.lacking.open_header(input, arguments.allow_gaps)?;
        let is_empty = source.header().times == Some(0);
        let wanted = (!arguments.header && !is_empty).then_some(arguments.all);
        let document = voltages::Document::new(source.as_mut(), wanted, common)?;
        let document = Document::Voltages(Box::new(document));
        return Ok(Examined::new(document, source.warnings(), source.cut()));
    }
    arguments.lacking.check_none(input)?;
    let mut source = selection::open(&[input.to_path_buf()], arguments.pol, arguments.allow_gaps)?;
    let header = Box::new(Header::new(source.header()));
    let measured = !arguments.header;
    let statistics = measured
        .then(|| Statistics::measure(source.as_mut(), arguments.all, common))
        .transpose()?;
    let document = Document::Filterbank { header, statistics };
    Ok(Examined::new(document, source.warnings(), source.cut()))
}

/// Reads a strain recording or a filter bank, if the file is one.
fn strain_or_bank(input: &Path, arguments: &Arguments) -> Result<Option<Examined>> {
    if bank_h5::is_bank(input) {
        let (bank, detector) = sidereal::pipeline::cbc::read_bank(input)?;
        let document = spiir::BankDocument::new(input, &bank, &detector)?;
        let document = Document::Bank(Box::new(document));
        return Ok(Some(Examined::new(document, &[], None)));
    }
    if is_strain(input) {
        let (document, warnings, cut) =
            strain::Document::read(input, arguments.channel.as_deref())?;
        let document = Document::Strain(Box::new(document));
        return Ok(Some(Examined::new(document, &warnings, cut.as_deref())));
    }
    Ok(None)
}
