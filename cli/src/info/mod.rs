//! `sidereal info`: header and statistics of a recording.

mod header;
mod statistics;

use clap::Args;
use serde::Serialize;
use sidereal::Result;

use crate::common::Common;
use crate::{json, selection};
use header::Header;
use statistics::Statistics;

/// Shows a recording's header, statistics and bandpass.
///
/// Reads SIGPROC filterbanks (.fil) and series (.tim), PSRFITS search mode and FBH5 (.h5), told apart
/// by their content, and PRESTO series (.dat with its .inf). Several files are shown one by one;
/// `-` is a SIGPROC filterbank on standard input.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Example:\n  sidereal info observation.fil")]
pub(crate) struct Arguments {
    /// The files.
    #[arg(required = true, value_name = "INPUT")]
    inputs: Vec<std::path::PathBuf>,
    /// Use one polarization (IF) only, counted from 0; by default the total intensity.
    #[arg(long, value_name = "N")]
    pol: Option<usize>,
    /// Use every sample for the statistics; by default some 64 million, spread over the recording.
    #[arg(long)]
    all: bool,
    /// Show the header only.
    #[arg(long, conflicts_with = "all")]
    header: bool,
}

#[derive(Serialize)]
struct Document {
    #[serde(flatten)]
    header: Header,
    #[serde(flatten)]
    statistics: Option<Statistics>,
}

/// Runs the verb.
pub(crate) fn run(arguments: &Arguments, common: &Common) -> Result<()> {
    let mut documents = Vec::new();
    for (index, input) in arguments.inputs.iter().enumerate() {
        let document = examine(input, arguments, common)?;
        if common.json {
            documents.push(document);
            continue;
        }
        if index > 0 {
            json::say("")?;
        }
        json::say(document.header.table().trim_end())?;
        if let Some(statistics) = &document.statistics {
            json::say(statistics.table().trim_end())?;
        }
    }
    match documents.as_slice() {
        [] => Ok(()),
        [one] => json::print(one),
        many => json::print(&many),
    }
}

fn examine(input: &std::path::Path, arguments: &Arguments, common: &Common) -> Result<Document> {
    let mut source = selection::open(&[input.to_path_buf()], arguments.pol, false)?;
    let header = Header::new(source.header());
    let statistics = if arguments.header {
        None
    } else {
        Some(Statistics::measure(source.as_mut(), arguments.all, common)?)
    };
    Ok(Document { header, statistics })
}
