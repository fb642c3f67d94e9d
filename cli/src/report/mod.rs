//! `sidereal report`: one HTML file of a finished folder, with its lists and pictures.

mod correlation;
mod folder;
mod html;
mod plot;
mod search;
mod strain;
mod text;

use std::path::{Path, PathBuf};

use clap::Args;
use sidereal::{Error, Result};

use plot::Drawing;

use crate::common::{Common, parse_size};
use crate::flags;
use crate::output::{Existing, Files, Folder, WritingFiles};
use crate::provenance::Made;
use crate::say::{note, warning};
use crate::space::human;

/// Name of the report in its folder.
pub(crate) const NAME: &str = "report.html";

/// Bytes of pictures that a report holds by default.
const EMBEDDED: u64 = 64 << 20;

/// Make one HTML file of a finished folder: its candidates, events or correlations, with plots and pictures.
///
/// The folder is that of `search`, `live search` or `spiir search`, the one with the file of `correlate`, or one with several of them in
/// it. Plots are drawn from the products, thus also of runs that drew none: candidates by time and DM, spectra and baselines of a
/// correlation, signal-to-noise ratios, strain and background of events. The page needs no network and no server; lists are sorted by a
/// click on a column.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:\n  \
    sidereal report found\n  \
    sidereal report /data/beam0 -o beam0.html --embed 200MiB\n  \
    sidereal report array --baselines ant00-ant01,ant00-ant07\n  \
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
    /// Baselines of a correlation to show, as names of two antennas; by default the shortest, the middle and the longest.
    #[arg(long, value_name = "A-B,...", value_delimiter = ',', help_heading = "Output")]
    baselines: Vec<String>,
}

/// Parses a size, or 0.
fn size_or_none(text: &str) -> std::result::Result<u64, String> {
    if text == "0" { Ok(0) } else { parse_size(text) }
}

/// Runs the verb.
pub(crate) fn run(arguments: &Arguments, common: &Common) -> Result<()> {
    correlation::check(&arguments.baselines)?;
    let place = arguments.output.clone().unwrap_or_else(|| arguments.folder.join(NAME));
    let found = folder::Found::read(&arguments.folder)?;
    // `.` has no name of its own.
    let whole = arguments.folder.canonicalize().ok();
    let name = whole.as_deref().and_then(Path::file_name);
    let title = name.unwrap_or(arguments.folder.as_os_str()).to_string_lossy();
    if found.is_empty() {
        let why =
            "found neither candidates.ndjson nor a document of search, correlate or spiir search";
        return Err(Error::format(&arguments.folder, "folder", 0, why));
    }
    let is_correlation = |document: &folder::Document| document.kind == "correlate";
    let correlations: Vec<_> = found.documents.iter().filter(|one| is_correlation(one)).collect();
    if !arguments.baselines.is_empty() && correlations.is_empty() {
        let rule = "the folder has no correlation";
        return Err(Error::parameter("--baselines", arguments.baselines.join(","), rule));
    }
    correlation::check_chosen(&correlations, &arguments.baselines)?;
    let existing = Existing::new(arguments.overwrite);
    let inputs = found.files();
    let writing = WritingFiles { option: "--output", existing, inputs: &inputs, common };
    let files = Files::begin(&place, &[], &writing)?;
    let made = Made::new(common, &[])?;
    let drawings = drawings(&found, &arguments.baselines, common)?;
    let page = html::Page {
        title: &title,
        folder: &arguments.folder,
        found: &found,
        drawings: &drawings,
        made: &made,
    };
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

/// Writes the report of the products in a folder that is not published yet. A report that cannot be written is a warning: the verb
/// `report` makes it of the finished products.
///
/// `title` is its heading, and `page` its path in that folder.
pub(crate) fn add(folder: &Path, title: &str, page: &Path, common: &Common) {
    let write = || {
        let found = folder::Found::read(folder)?;
        let drawings = drawings(&found, &[], common)?;
        let made = Made::new(common, &[])?;
        let content = html::Page { title, folder, found: &found, drawings: &drawings, made: &made };
        content.write(html::Links::new(page, EMBEDDED), page)
    };
    if let Err(error) = write() {
        let _ = std::fs::remove_file(page);
        let why = flags::text(&error);
        warning!(quiet: common.quiet, "there is no report of {title}: {why}");
    }
}

/// Adds the report to a folder of products that is not published yet, as [`add`] does.
pub(crate) fn add_to(folder: &Folder, title: &str, common: &Common) {
    add(&folder.file(""), title, &folder.file(NAME), common);
}

/// Draws the documents of a folder; `baselines` are those of a correlation, by default its own choice.
fn drawings(found: &folder::Found, baselines: &[String], common: &Common) -> Result<Vec<Drawing>> {
    found.documents.iter().map(|one| drawing(one, found, baselines, common)).collect()
}

/// Draws a document from its products; without them, or if one is damaged, there are only its lists and pictures.
fn drawing(
    document: &folder::Document,
    found: &folder::Found,
    baselines: &[String],
    common: &Common,
) -> Result<Drawing> {
    let drawn = match document.kind.as_str() {
        "correlate" => correlation::drawing(document, baselines),
        "spiir-search" => strain::drawing(document),
        // The lines of a live search have the candidates of all its observations.
        _ if !found.candidates.is_empty() => Ok(Drawing::default()),
        _ => {
            let key = if document.kind == "search-beams" { "events" } else { "candidates" };
            let list = document.object.get(key).and_then(serde_json::Value::as_array);
            let list = list.into_iter().flatten().filter_map(serde_json::Value::as_object);
            let plots = search::plots(list, Some(&document.object));
            Ok(Drawing { plots, ..Drawing::default() })
        }
    };
    match drawn {
        Err(error @ Error::Parameter { .. }) => Err(error),
        Err(error) => {
            warning!(quiet: common.quiet, "{} has no plots of its own: {error}.", document.path.display());
            Ok(Drawing::default())
        }
        drawn => drawn,
    }
}
