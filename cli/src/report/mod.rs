//! `sidereal report`: one HTML file of a finished folder, with its lists and pictures.

mod folder;
mod html;

use std::path::PathBuf;

use clap::Args;
use sidereal::{Error, Result};

use crate::common::{Common, parse_size};
use crate::output::{Existing, Files, WritingFiles};
use crate::provenance::Made;
use crate::say::note;
use crate::space::human;

/// Name of the report in its folder.
const NAME: &str = "report.html";

/// Make one HTML file of a finished folder: its candidates, events or correlations, and their pictures.
///
/// The folder is that of `search`, `live search`, `correlate` or `spiir search`, or one with several of them in it. The page needs no
/// network and no server; lists are sorted by a click on a column.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:\n  \
    sidereal report found\n  \
    sidereal report /data/beam0 -o beam0.html --embed 200MiB\n  \
    sidereal report events --overwrite")]
pub(crate) struct Arguments {
    /// Folder of the products.
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
    /// File to write [default: FOLDER/report.html].
    #[arg(short, long, value_name = "FILE", help_heading = "Output")]
    output: Option<PathBuf>,
    /// Replace the file if it exists.
    #[arg(long, help_heading = "Output")]
    overwrite: bool,
    /// Most bytes of pictures that are put into the file; it links to the others, which must stay where they are.
    #[arg(long, value_name = "SIZE", default_value = "64MiB", value_parser = size_or_none, help_heading = "Output")]
    embed: u64,
}

/// Parses a size, or 0.
fn size_or_none(text: &str) -> std::result::Result<u64, String> {
    if text == "0" { Ok(0) } else { parse_size(text) }
}

/// Runs the verb.
pub(crate) fn run(arguments: &Arguments, common: &Common) -> Result<()> {
    let place = arguments.output.clone().unwrap_or_else(|| arguments.folder.join(NAME));
    let found = folder::Found::read(&arguments.folder)?;
    if found.is_empty() {
        let why =
            "found neither candidates.ndjson nor a document of search, correlate or spiir search";
        return Err(Error::format(&arguments.folder, "folder", 0, why));
    }
    let existing = Existing::new(arguments.overwrite);
    let inputs = found.files();
    let writing = WritingFiles { option: "--output", existing, inputs: &inputs, common };
    let files = Files::begin(&place, &[], &writing)?;
    let made = Made::new(common, &[])?;
    let page = html::Page { folder: &arguments.folder, found: &found, made: &made };
    let link = html::Links::new(&place, arguments.embed);
    let written = page.write(link, &files.main())?;
    files.finish()?;
    if !common.quiet {
        let html::Written { bytes, linked } = written;
        let links = match linked {
            0 => String::new(),
            linked => format!(", with links to {linked} pictures (--embed)"),
        };
        note!("{}: {}{links}", place.display(), human(bytes));
    }
    Ok(())
}
