//! `sidereal rerun`: repeats the run that a product's provenance records.

use std::path::{Path, PathBuf};

use clap::Args;
use serde::Deserialize;
use serde_json::Value;
use sidereal::io::fetch_h5;
use sidereal::{Error, Result};

use crate::common::{CommandLine, Common};
use crate::provenance::{Input, Provenance, Run};
use crate::say::{note, warning};
use crate::{dm_arguments, plots};

/// Documents in the folders that verbs write.
const DOCUMENTS: [&str; 5] =
    ["summary.json", "dedispersed.json", "events.json", "replot.json", "truth.json"];
/// Suffixes of documents beside a product's file.
const BESIDE: [&str; 2] = [".json", ".truth.json"];

/// Repeat the run that made a product: same verb, inputs, options and SIMD level.
///
/// Inputs are looked up under their recorded paths, relative to the current folder, and must have the recorded size
/// and checksum. With --reproducible in both runs the products are identical byte for byte (sums of floats differ in
/// their last digits between GPU and CPU).
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:\n  \
    sidereal rerun observation_search -o again\n  \
    sidereal rerun spectra.fil.json --overwrite --device cpu")]
pub(crate) struct Arguments {
    /// Product whose run to repeat.
    ///
    /// Its JSON document, the folder that holds it, or the file beside the document; or a plot, a plan file or a
    /// candidate file for FETCH, which contain their own provenance.
    #[arg(value_name = "PRODUCT")]
    product: PathBuf,
    /// File or folder to write [default: that of PRODUCT].
    ///
    /// A verb that only prints writes none.
    #[arg(short, long, value_name = "OUT", help_heading = "Output")]
    output: Option<PathBuf>,
    /// Replace OUT if it exists.
    #[arg(long, help_heading = "Output")]
    overwrite: bool,
}

/// One document, or an array of documents.
#[derive(Deserialize)]
#[serde(untagged)]
enum Lines {
    Many(Vec<Recorded>),
    One(Box<Recorded>),
}

/// Part of a document that records how its product was made.
#[derive(Deserialize)]
struct Recorded {
    provenance: Provenance,
    #[serde(default)]
    run: Run,
}

/// Returns the command line of the run to repeat.
///
/// # Errors
/// [`Error::Parameter`] for a product without provenance, or inputs that differ from those of the run; [`Error::Io`].
pub(crate) fn command_line(arguments: &Arguments, common: &Common) -> Result<crate::Arguments> {
    let Source { document, place, recorded } = source(&arguments.product)?;
    let Provenance { verb, inputs, options, given, .. } = &recorded.provenance;
    inputs.iter().try_for_each(check)?;
    let mut command = crate::command();
    let mut words: Vec<String> =
        ["sidereal"].into_iter().chain(verb.split(' ')).map(str::to_owned).collect();
    let unknown = |name: &str| {
        let rule =
            format!("{} names it, and this version has no such verb or option", document.display());
        Error::parameter("PRODUCT", name, rule)
    };
    let mut own = &command;
    for name in verb.split(' ') {
        own = own.find_subcommand(name).ok_or_else(|| unknown(verb))?;
    }
    match (output_of(own), arguments.output.as_ref().or(place.as_ref())) {
        (Output::None, _) if arguments.output.is_some() => {
            let rule =
                format!("{verb} writes no file of its own; its own options name what it writes");
            return Err(Error::parameter("--output", "given", rule));
        }
        (Output::None, _) | (Output::Option, None) => {}
        (_, Some(output)) => words.push(format!("--output={}", output.display())),
        (Output::Needed, None) => {
            let rule = format!("{} does not give the product's name; name one", document.display());
            return Err(Error::parameter("--output", "none", rule));
        }
    }
    if arguments.overwrite && own.get_arguments().any(|own| own.get_long() == Some("overwrite")) {
        words.push("--overwrite".to_owned());
    }
    let mut positional = vec!["--".to_owned()];
    for name in given {
        let argument = own
            .get_arguments()
            .find(|argument| argument.get_long().unwrap_or(argument.get_id().as_str()) == name)
            .ok_or_else(|| unknown(name))?;
        let values = match options.get(name) {
            Some(Value::Array(values)) => values.as_slice(),
            Some(value) => std::slice::from_ref(value),
            None => &[],
        };
        for value in values {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            match argument.get_long() {
                None => positional.push(text),
                Some(_) if !argument.get_action().takes_values() => {
                    words.extend((text == "true").then(|| format!("--{name}")));
                }
                Some(_) => words.push(format!("--{name}={text}")),
            }
        }
    }
    words.extend(positional);
    let mut again = crate::parse(&mut command, &words)
        .map_err(|error| refused(&document, &error.to_string()))?;
    let command_line = again.common.command_line;
    tell(&recorded, &command_line, common.quiet);
    let simd = common.simd.clone().or(recorded.run.simd);
    again.common = Common { command_line, simd, ..common.clone() };
    Ok(again)
}

fn refused(document: &Path, why: &str) -> Error {
    let rule = format!("its options are not a valid command line of this version: {}", why.trim());
    Error::parameter("PRODUCT", document.display(), rule)
}

/// Reports the repeated command, and what this version does differently.
fn tell(recorded: &Recorded, command_line: &CommandLine, is_quiet: bool) {
    if !is_quiet {
        note!("repeats: {}", command_line.words().join(" "));
    }
    let version = &recorded.provenance.version;
    let own = env!("CARGO_PKG_VERSION");
    if version != own {
        warning!(quiet: is_quiet, "version {version} made it, and this is {own}.");
    }
    for (name, before) in &recorded.provenance.options {
        let now = command_line.options().get(name);
        if now.is_some_and(|now| now != before) {
            let now = now.map_or_else(String::new, Value::to_string);
            warning!(quiet: is_quiet, "--{name} was {before}, and is {now} by default in this version.");
        }
    }
}

/// Source of a product's provenance.
struct Source {
    /// File that contains the provenance.
    document: PathBuf,
    /// Path of the product itself, if known.
    place: Option<PathBuf>,
    recorded: Recorded,
}

/// Kind of a verb's output.
enum Output {
    /// None: the verb prints, or its own options name files.
    None,
    /// A file, if requested.
    Option,
    /// A file or a folder, required.
    Needed,
}

fn output_of(verb: &clap::Command) -> Output {
    let has =
        |names: [&str; 2]| verb.get_arguments().any(|own| names.contains(&own.get_id().as_str()));
    match () {
        () if has(["out", "output"]) => Output::Needed,
        () if has(["toml", "toml"]) => Output::Option,
        () => Output::None,
    }
}

/// Verbs that write a folder, which also contains their plots.
const OF_FOLDERS: [&str; 4] = ["search", "replot", "demo", "spiir search"];

/// Finds a product's provenance: in the product itself, or in the document beside it.
fn source(product: &Path) -> Result<Source> {
    let ending = product.extension().map(|ending| ending.to_ascii_lowercase());
    let own = match ending.as_ref().and_then(|ending| ending.to_str()) {
        _ if !product.is_file() => None,
        Some("png") => Some(plots::png_texts(product)?),
        Some("toml") => Some(dm_arguments::plan_texts(product)?),
        Some("h5") => fetch_h5::texts(product, ["provenance", "run"]).ok(),
        _ => None,
    };
    let Some([provenance, run]) = own.filter(|[provenance, _]| !provenance.is_empty()) else {
        let (document, place) = document(product)?;
        let recorded = read(&document)?;
        return Ok(Source { document, place: Some(place), recorded });
    };
    let fault = |error: serde_json::Error| unclear(product, &error);
    let provenance: Provenance = serde_json::from_str(&provenance).map_err(fault)?;
    let run: Run = serde_json::from_str(&run).map_err(fault)?;
    let place = match provenance.verb.as_str() {
        "plan" => Some(product.to_path_buf()),
        verb if OF_FOLDERS.contains(&verb) => product.parent().map(Path::to_path_buf),
        _ => None,
    };
    Ok(Source { document: product.to_path_buf(), place, recorded: Recorded { provenance, run } })
}

fn unclear(document: &Path, error: &serde_json::Error) -> Error {
    let rule = format!("it does not record how it was made ({error})");
    Error::parameter("PRODUCT", document.display(), rule)
}

/// Returns the document of a product and the path of the product itself.
fn document(product: &Path) -> Result<(PathBuf, PathBuf)> {
    if product.is_dir() {
        let inside = DOCUMENTS.iter().map(|name| product.join(name)).find(|path| path.is_file());
        let rule = format!("the folder holds none of {}", DOCUMENTS.join(", "));
        let inside = inside.ok_or_else(|| Error::parameter("PRODUCT", product.display(), rule))?;
        return Ok((inside, product.to_path_buf()));
    }
    let name = product.file_name().map(|name| name.to_string_lossy().into_owned());
    let name = name.unwrap_or_default();
    if DOCUMENTS.contains(&&*name) {
        let folder = product.parent().unwrap_or(Path::new("")).to_path_buf();
        return Ok((product.to_path_buf(), folder));
    }
    // Longest suffix first: `.truth.json` also ends in `.json`.
    if let Some(stem) = BESIDE.iter().rev().find_map(|ending| name.strip_suffix(ending)) {
        return Ok((product.to_path_buf(), product.with_file_name(stem)));
    }
    let beside = BESIDE.map(|ending| product.with_file_name(format!("{name}{ending}")));
    let rule = format!("there is no {} beside it", beside[0].display());
    let found = beside.into_iter().find(|path| path.is_file());
    let found = found.ok_or_else(|| Error::parameter("PRODUCT", product.display(), rule))?;
    Ok((found, product.to_path_buf()))
}

fn read(document: &Path) -> Result<Recorded> {
    let text = std::fs::read_to_string(document).map_err(|error| Error::io(document, error))?;
    let recorded: Lines = serde_json::from_str(&text).map_err(|error| unclear(document, &error))?;
    match recorded {
        Lines::One(recorded) => Ok(*recorded),
        // All lines of a run have the same provenance.
        Lines::Many(lines) => lines
            .into_iter()
            .next()
            .ok_or_else(|| Error::parameter("PRODUCT", document.display(), "it is an empty list")),
    }
}

/// Fails unless the file has the recorded size and checksum.
fn check(input: &Input) -> Result<()> {
    if input.bytes.is_none() {
        let rule = "the run read a stream, which cannot be read again";
        return Err(Error::parameter("PRODUCT", &input.file, rule));
    }
    let path = Path::new(&input.file);
    path.metadata().map_err(|error| Error::io(path, error))?;
    let found = Input::of(path)?;
    if found == *input {
        return Ok(());
    }
    let shown = |input: &Input| {
        let sum = input.head_sha256.as_deref().unwrap_or("none");
        format!("{} bytes, SHA-256 of the first MiB {sum}", input.bytes.unwrap_or(0))
    };
    let rule = format!(
        "found {}; expected {}: it is not the file that was read",
        shown(&found),
        shown(input)
    );
    Err(Error::parameter("input", &input.file, rule))
}
