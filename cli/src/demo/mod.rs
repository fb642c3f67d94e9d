//! `sidereal demo`: simulates recordings, searches and correlates them, checks the results and writes a page about
//! them.

mod array;
mod chapter;
mod observation;
mod page;
mod strain;
mod voltages;

use std::path::{Path, PathBuf};
use std::time::Instant;

use array::Fringes;
use chapter::Verdict;
use clap::Args;
use observation::{OBSERVATION, SWEEP, Steps};
use page::Page;
use schemars::JsonSchema;
use serde::Serialize;
use sidereal::{Error, Result};
use strain::Merger;
use voltages::Chapter;

use crate::common::Common;
use crate::output::{Contents, Existing, Folder, Writing};
use crate::provenance::Made;
use crate::{interrupt, json, search, simulate};

/// File name of the page, which identifies the folder of a demo.
const PAGE: &str = "index.html";

/// Simulate four recordings, process them, and write a page that explains the results.
///
/// Finds bursts in an observation and in voltages, correlates an array's recording of a source, and finds a merger of
/// two black holes in the strain of two interferometers.
///
/// Takes about a minute. Writes the folder sidereal-demo with the recordings, their truths, candidates, plots and
/// index.html, and replaces the folder of an earlier demo.
#[derive(Args, Clone, Debug)]
pub(crate) struct Arguments {
    /// Folder to write.
    #[arg(short, long, value_name = "DIR", default_value = "sidereal-demo")]
    output: PathBuf,
    /// Replace the folder also if it lacks the page of an earlier demo.
    ///
    /// A folder with other files is never replaced.
    #[arg(long)]
    overwrite: bool,
}

/// JSON document of the demo.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Document<'a> {
    folder: String,
    page: String,
    found_all: bool,
    #[serde(flatten)]
    verdict: &'a Verdict,
    voltages: &'a Chapter,
    array: &'a Fringes,
    strain: &'a Merger,
}

/// Contents of the demo's folder.
const CONTENTS: Contents = Contents { verb: "demo", documents: &[PAGE, OBSERVATION], writes };

fn writes(folder: &Path, name: &str) -> bool {
    let Some((inner, rest)) = name.split_once('/') else {
        // An earlier version gave truth files shorter names.
        let is_recording = |name: &str| {
            [OBSERVATION, voltages::RECORDING, strain::RECORDING].iter().any(|recording| {
                let stem = recording.split('.').next().unwrap_or_default();
                let detector = || name.strip_prefix(stem).is_some_and(strain::is_of_a_detector);
                name == *recording
                    || detector()
                    || [format!("{recording}.truth.json"), format!("{stem}.truth.json")]
                        .iter()
                        .any(|truth| truth == name)
            })
        };
        return is_recording(name)
            || [SWEEP, strain::TEMPLATES].contains(&name)
            || array::writes(name)
            || search::writes(folder, name);
    };
    let inner_folder = folder.join(inner);
    match inner {
        array::RECORDINGS => simulate::array::writes(&inner_folder, rest),
        strain::FOUND => crate::spiir::writes(&inner_folder, rest),
        _ if voltages::SEARCHES.iter().any(|(folder, _)| *folder == inner) => {
            search::writes(&inner_folder, rest)
        }
        _ => array::draws(inner, rest),
    }
}

/// Runs the verb.
pub(crate) fn run(arguments: &Arguments, common: &Common) -> Result<()> {
    let begun = Instant::now();
    let place = &arguments.output;
    let own = place.join(PAGE).is_file() && place.join(OBSERVATION).is_file();
    let replace = own || arguments.overwrite;
    let existing = Existing::new(replace);
    let folder =
        Folder::begin(place, &Writing { contents: CONTENTS, existing, inputs: &[], common })?;
    let steps = Steps { folder: &folder, place, common: &quietly(common) };
    tell(common, "1/6  Making 60 s of a radio telescope's data, with bursts in it")?;
    let truth = steps.simulate()?;
    tell(common, "2/6  Searching it, without a look at what was put in")?;
    let found = steps.search()?;
    tell(common, "3/6  Making 3 s of voltages with a pulse in them, and searching them")?;
    let chapter = Chapter::make(&folder, place, steps.common)?;
    tell(common, "4/6  Making 2 s of the voltages of nine antennas, and correlating them")?;
    let fringes = Fringes::make(&folder, place, steps.common)?;
    tell(
        common,
        "5/6  Making 32 s of two interferometers with two black holes in them, and searching them",
    )?;
    let merger = Merger::make(&folder, steps.common)?;
    tell(common, "6/6  Comparing, and writing the page")?;
    let verdict = Verdict::new(&truth, &found);
    observation::draw_sweep(&folder.file(SWEEP), &folder.file(OBSERVATION), &found, &verdict)?;
    let page = Page {
        place,
        truth: &truth,
        found: &found,
        verdict: &verdict,
        chapter: &chapter,
        fringes: &fringes,
        merger: &merger,
    };
    let path = folder.file(PAGE);
    std::fs::write(&path, page.html()).map_err(|error| Error::io(path, error))?;
    interrupt::check()?;
    folder.finish()?;
    let found_all = verdict.found_all() && chapter.found.is_some();
    let complete = found_all && fringes.are_flat() && merger.is_found();
    let document = Document {
        folder: place.display().to_string(),
        page: place.join(PAGE).display().to_string(),
        found_all,
        verdict: &verdict,
        voltages: &chapter,
        array: &fringes,
        strain: &merger,
    };
    if common.json {
        let mut made = Made::new(common, &[])?;
        made.run = made.run.took(begun.elapsed().as_secs_f64(), found.report.data_s);
        json::print(&made.product("demo", document))?;
    } else if !common.quiet {
        json::say(&page.text(&document.page))?;
    }
    if complete {
        Ok(())
    } else {
        let merger = usize::from(!merger.is_found());
        Err(incomplete(verdict.missed() + usize::from(chapter.found.is_none()) + merger))
    }
}

fn incomplete(missed: usize) -> Error {
    let why = match missed {
        0 => "the array's fringes differ from the simulated source; please report it".to_owned(),
        _ => format!("{missed} of the injected signals were not found; please report it"),
    };
    Error::Unavailable { what: "a complete demo".to_owned(), why }
}

fn tell(common: &Common, words: &str) -> Result<()> {
    if common.quiet || common.json { Ok(()) } else { json::say(words) }
}

/// Returns the options for the verbs that the demo calls: progress is shown, results are not.
fn quietly(common: &Common) -> Common {
    // The demo flushes the whole folder at its end.
    Common { json: false, quiet: common.quiet || common.json, no_sync: true, ..common.clone() }
}

#[cfg(test)]
mod tests {
    use super::chapter::{parse, parse_words};
    use super::observation::{SEARCH, SIMULATION};
    use super::*;
    use crate::correlate;

    #[test]
    fn the_verbs_know_the_words_of_the_demo() {
        let path = Path::new("a.fil");
        parse::<simulate::Arguments>(&["burst"], path, SIMULATION).unwrap();
        parse::<search::Arguments>(&[], path, &[SEARCH]).unwrap();
        parse::<simulate::Arguments>(&["voltages"], path, voltages::SIMULATION).unwrap();
        for (_, words) in voltages::SEARCHES {
            parse::<search::Arguments>(&[], path, &[words]).unwrap();
        }
        parse::<simulate::Arguments>(&["array", "-o"], path, array::SIMULATION).unwrap();
        parse::<simulate::Arguments>(&["strain"], path, strain::SIMULATION).unwrap();
        parse::<crate::spiir::SearchArguments>(
            &[],
            path,
            &["--templates a.csv -o a", strain::SEARCH],
        )
        .unwrap();
        for (name, words) in array::CORRELATIONS {
            let words = format!("verb a.dada -o {name} --antennas a.csv {words}");
            parse_words::<correlate::Arguments>(words.split(' ').map(Into::into).collect())
                .unwrap();
        }
    }
}
