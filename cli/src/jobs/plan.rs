//! `sidereal plan-jobs`: writes the tasks of many files.

use std::collections::{BTreeMap, HashMap};
use std::env;
use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};

use clap::{Args, Command};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use sidereal::{Error, Result};

use super::estimate::Estimate;
use super::manifest::{self, Listed};
use super::scripts::Scripts;
use super::status::RECORDS;
use super::task::{COMMAND, Kind, PlannedInput, PlannedRun, SCHEMA, Task, summary};
use crate::common::Common;
use crate::output::{Existing, Files, WritingFiles};
use crate::plots::plural;
use crate::provenance::Made;
use crate::say::warning;
use crate::selection::stem_of;
use crate::space::human;
use crate::{config, flags, interrupt, json};

/// Least and greatest length of a group in minutes.
const MINUTES: std::ops::RangeInclusive<f64> = 0.01..=1e6;
/// Tasks of an array in Slurm's default configuration: MaxArraySize of 1001 bounds the number of a task.
const USUAL_TASKS: usize = 1001;

/// Plan the jobs of many files: write tasks.jsonl for `run-task`.
///
/// Any scheduler can run the tasks.
///
/// A manifest has a line for each run: the path of its input, or a JSON object with "inputs" (the parts of a recording, or the
/// files of an array) and, if need be, "output" (in RESULTS) and "options". Lines that begin with # are comments. Paths are
/// relative to the manifest. After -- follows the command of all runs: search, dedisperse, channelize, correlate, convert or spiir
/// search, with its options, without inputs and --output. Products are in RESULTS, named after the first input. Each line of
/// tasks.jsonl has the commands of a task, the sizes of their inputs, and an estimate of core seconds and memory from the headers.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:\n  \
    sidereal plan-jobs files.txt -- search --dm-max 1000\n  \
    sidereal plan-jobs files.txt --group-minutes 10 --slurm found.sbatch -- search\n  \
    sidereal plan-jobs scans.jsonl -- correlate --antennas antennas.csv --channels 64")]
pub(crate) struct Arguments {
    /// Manifest: a text with a line for each run.
    #[arg(required = true, value_name = "MANIFEST")]
    manifests: Vec<PathBuf>,
    /// File to write, a line of JSON for each task.
    #[arg(
        short,
        long,
        value_name = "FILE",
        default_value = "tasks.jsonl",
        help_heading = "Output"
    )]
    output: PathBuf,
    /// Replace the files that are written if they exist.
    #[arg(long, help_heading = "Output")]
    overwrite: bool,
    /// Folder of the products, which `run-task` makes, and of its records of failures.
    #[arg(long, value_name = "DIR", default_value = "results", help_heading = "Output")]
    results: PathBuf,
    /// Pack runs that follow each other into tasks of at most this many estimated minutes of one core.
    ///
    /// By default each run is a task. A longer run, and one without an estimate, is a task of its own.
    #[arg(long, value_name = "MINUTES", help_heading = "Tasks")]
    group_minutes: Option<f64>,
    #[command(flatten)]
    scripts: Scripts,
    /// Verb and options of all runs.
    #[arg(required = true, last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// Numbers of what was planned, as JSON.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Document {
    /// File of the tasks.
    file: PathBuf,
    tasks: usize,
    runs: usize,
    /// Number of runs without an estimate of their time.
    without_estimate: usize,
    /// Size of all inputs.
    input_bytes: u64,
    /// Sum of the estimates of all runs that have one; the memory is that of the largest task.
    estimate: Estimate,
    /// Estimated core seconds of the longest task; null if no task has an estimate.
    longest_task_s: Option<f64>,
}

/// Runs the verb.
pub(crate) fn run(arguments: &Arguments, common: &Common) -> Result<()> {
    arguments.check()?;
    let listed = manifest::read(&arguments.manifests)?;
    let mut template = Template::new(&arguments.command, &arguments.results)?;
    let mut runs = Vec::new();
    for one in &listed {
        interrupt::check()?;
        runs.push(template.run(one, common)?);
    }
    check_outputs(&listed, &runs)?;
    let tasks = arguments.tasks(template.kind, runs)?;
    let existing = Existing::new(arguments.overwrite);
    let inputs = &arguments.manifests;
    let writing = WritingFiles { option: "--output", existing, inputs, common };
    let files = Files::begin(&arguments.output, &[], &writing)?;
    let lines: Vec<String> = tasks.iter().map(json::line).collect::<Result<_>>()?;
    let path = files.main();
    std::fs::write(&path, lines.join("\n") + "\n").map_err(|error| Error::io(&path, error))?;
    let scripts = arguments.scripts.begin(&arguments.output, &tasks, existing, common)?;
    files.finish()?;
    scripts.into_iter().try_for_each(Files::finish)?;
    report(arguments, &tasks, common)
}

impl Arguments {
    fn check(&self) -> Result<()> {
        self.scripts.check()?;
        match self.group_minutes {
            Some(minutes) if !MINUTES.contains(&minutes) => {
                let rule = format!("it must be {} to {}", MINUTES.start(), MINUTES.end());
                Err(Error::parameter("--group-minutes", minutes, rule))
            }
            _ => Ok(()),
        }
    }

    /// Divides runs into tasks.
    fn tasks(&self, kind: &Kind, runs: Vec<PlannedRun>) -> Result<Vec<Task>> {
        let folder = env::current_dir().map_err(|error| Error::io(".", error))?;
        let most_s = self.group_minutes.map(|minutes| 60.0 * minutes);
        let mut tasks: Vec<Task> = Vec::new();
        for run in runs {
            let both = tasks.last().map(|task| task.estimate.and(run.estimate));
            let fits = both.and_then(|both| both.core_s).zip(most_s);
            match tasks.last_mut().zip(both) {
                Some((task, both)) if fits.is_some_and(|(core_s, most_s)| core_s <= most_s) => {
                    task.estimate = both;
                    task.runs.push(run);
                }
                _ => tasks.push(Task {
                    schema: SCHEMA.to_owned(),
                    version: env!("CARGO_PKG_VERSION").to_owned(),
                    task: tasks.len(),
                    verb: kind.verb.to_owned(),
                    folder: folder.clone(),
                    results: self.results.clone(),
                    estimate: run.estimate,
                    runs: vec![run],
                }),
            }
        }
        Ok(tasks)
    }
}

/// Command of all runs.
struct Template<'a> {
    kind: &'static Kind,
    /// Verb and options, with those of --config and --preset.
    words: Vec<String>,
    results: &'a Path,
    command: Command,
}

impl<'a> Template<'a> {
    fn new(words: &[String], results: &'a Path) -> Result<Self> {
        let kind = Kind::of(words)?;
        let command = crate::command();
        let all = std::iter::once("sidereal").chain(words.iter().map(String::as_str));
        let expanded = config::expand(&command, all.map(OsString::from).collect())?;
        if expanded.text.is_some() {
            return Err(Error::parameter(COMMAND, words.join(" "), NO_PRODUCT));
        }
        let words = expanded.words.iter().skip(1);
        let words: Vec<_> = words.map(|word| word.to_string_lossy().into_owned()).collect();
        match refused(&words) {
            Some((word, rule)) => Err(Error::parameter(COMMAND, word, rule)),
            None => Ok(Self { kind, words, results, command }),
        }
    }

    /// Makes the run of a line of a manifest.
    fn run(&mut self, listed: &Listed, common: &Common) -> Result<PlannedRun> {
        if let Some((word, rule)) = refused(&listed.options) {
            return Err(listed.fault("options", format!("found {word}, but {rule}")));
        }
        let parsed = self.parse(listed)?;
        let options = parsed.common.command_line.options();
        let output = self.output(listed, options)?;
        let mut command = self.words.clone();
        command.extend(listed.options.iter().cloned());
        command.extend([format!("--output={}", output.display()), "--".to_owned()]);
        command.extend(listed.inputs.iter().cloned());
        let input = |input: &String| PlannedInput {
            file: input.clone(),
            bytes: manifest::bytes_of(input).unwrap_or(0),
        };
        let inputs: Vec<PlannedInput> = listed.inputs.iter().map(input).collect();
        let files = listed.inputs.iter().map(|input| manifest::file_of(input).to_path_buf());
        let estimate =
            Estimate::of(&parsed, &files.collect::<Vec<_>>()).or_else(|error| match error {
                // The same for every file, and nothing that a run could mend.
                Error::Parameter { .. } => Err(error),
                error => {
                    let why = flags::text(&error);
                    warning!(quiet: common.quiet, "{} has no estimate: {why}", listed.place());
                    Ok(Estimate::default())
                }
            })?;
        Ok(PlannedRun { command, inputs, output, estimate })
    }

    /// Parses the command of a run, with a name in place of its product, which options decide.
    fn parse(&mut self, listed: &Listed) -> Result<crate::Arguments> {
        let own = self.words.iter().chain(&listed.options).map(String::as_str);
        let inputs = listed.inputs.iter().map(String::as_str);
        let words: Vec<&str> = ["sidereal"].into_iter().chain(own).collect();
        let words = [words, vec!["--output=product", "--"], inputs.collect()].concat();
        let parsed = crate::parse(&mut self.command, &words).map_err(|error| {
            let why = summary(&error);
            match listed.options.is_empty() {
                true => Error::parameter(COMMAND, self.words.join(" "), why),
                false => listed.fault("options", why),
            }
        })?;
        match self.inputs_of(&parsed).saturating_sub(listed.inputs.len()) {
            0 => Ok(parsed),
            others => {
                let rule =
                    format!("it has {others} inputs of its own; all inputs come from the manifest");
                Err(Error::parameter(COMMAND, self.words.join(" "), rule))
            }
        }
    }

    /// Returns the number of inputs of a parsed command line.
    fn inputs_of(&self, parsed: &crate::Arguments) -> usize {
        let mut names = self.kind.verb.split(' ');
        let verb = names.try_fold(&self.command, |verb, name| verb.find_subcommand(name));
        let options = parsed.common.command_line.options();
        let positional = verb.into_iter().flat_map(Command::get_positionals);
        let values = positional.filter_map(|own| options.get(own.get_id().as_str()));
        values.map(|values| values.as_array().map_or(1, Vec::len)).sum()
    }

    /// Returns the path of a run's product.
    fn output(&self, listed: &Listed, options: &BTreeMap<String, Value>) -> Result<PathBuf> {
        let name = match &listed.output {
            Some(name) => name.clone(),
            None => {
                let input = listed.inputs.first().map_or("", String::as_str);
                stem_of(manifest::file_of(input)) + &self.ending(options)?
            }
        };
        let path = Path::new(&name);
        let is_inside = path.components().all(|part| matches!(part, Component::Normal(_)));
        if name.is_empty() || !is_inside {
            let why = format!("found {name:?}, expected a path in the folder of results");
            return Err(listed.fault("output", why));
        }
        if RECORDS.iter().any(|own| path.starts_with(own)) {
            let why =
                format!("found {name}, expected another name: run-task keeps its records there");
            return Err(listed.fault("output", why));
        }
        Ok(self.results.join(path))
    }

    /// Returns the ending of the default name.
    fn ending(&self, options: &BTreeMap<String, Value>) -> Result<String> {
        let value = |name: &str| options.get(name).and_then(Value::as_str);
        match self.kind.verb {
            "channelize" => Ok(match value("format") {
                Some("guppi") => ".raw".to_owned(),
                Some("dada") => ".dada".to_owned(),
                _ => self.kind.ending.to_owned(),
            }),
            "convert" => value("to").map(|format| format!(".{format}")).ok_or_else(|| {
                let rule = "--to must name the format of all products";
                Error::parameter(COMMAND, self.words.join(" "), rule)
            }),
            _ => Ok(self.kind.ending.to_owned()),
        }
    }
}

/// Reason to refuse a command that prints text.
const NO_PRODUCT: &str = "it makes no product";

/// Returns the first word that a run cannot have, and the reason.
fn refused(words: &[String]) -> Option<(&String, &'static str)> {
    let rule = |word: &String| match word.split('=').next().unwrap_or_default() {
        "--overwrite" | "--resume" => Some("run-task adds it where it is needed"),
        "--each" => Some("each line of the manifest is a run of its own"),
        "--output" | "-o" => Some(
            "--results names the folder of all products, and \"output\" in a line of JSON one in it",
        ),
        "--help" | "-h" | "--version" => Some(NO_PRODUCT),
        _ => None,
    };
    words.iter().find_map(|word| rule(word).map(|rule| (word, rule)))
}

/// Fails if two runs have the same product, or one is in the other's.
fn check_outputs(listed: &[Listed], runs: &[PlannedRun]) -> Result<()> {
    let mut places: HashMap<&Path, usize> = HashMap::new();
    let fault = |index: usize, first: usize| {
        let place = runs[index].output.display();
        let why = format!(
            "found {place}, which is the product of {} too, expected another; name it with \"output\" in a line of JSON",
            listed[first].place()
        );
        Err(listed[index].fault("output", why))
    };
    for (index, run) in runs.iter().enumerate() {
        if let Some(first) = places.insert(&run.output, index) {
            return fault(index, first);
        }
    }
    for (index, run) in runs.iter().enumerate() {
        let above = run.output.ancestors().skip(1).find_map(|folder| places.get(folder));
        if let Some(&first) = above {
            return fault(index, first);
        }
    }
    Ok(())
}

/// Prints what was planned.
fn report(arguments: &Arguments, tasks: &[Task], common: &Common) -> Result<()> {
    let runs = || tasks.iter().flat_map(|task| &task.runs);
    let known = runs().filter(|run| run.estimate.core_s.is_some());
    let estimate = known.clone().map(|run| run.estimate).reduce(Estimate::and);
    let times = tasks.iter().filter_map(|task| task.estimate.core_s);
    let document = Document {
        file: arguments.output.clone(),
        tasks: tasks.len(),
        runs: runs().count(),
        without_estimate: runs().count() - known.count(),
        input_bytes: runs().flat_map(|run| &run.inputs).map(|input| input.bytes).sum(),
        estimate: estimate.unwrap_or_default(),
        longest_task_s: times.reduce(f64::max),
    };
    if !common.quiet && document.tasks > USUAL_TASKS {
        warning!(
            quiet: false,
            "{} tasks are more than an array of Slurm has by default (MaxArraySize 1001); --group-minutes packs them.",
            document.tasks
        );
    }
    if common.json {
        return json::print(
            &Made::new(common, &arguments.manifests)?.product("plan-jobs", document),
        );
    }
    if common.quiet {
        return Ok(());
    }
    json::say(&document.text())
}

impl Document {
    fn text(&self) -> String {
        let Self { file, tasks, runs, without_estimate, input_bytes, estimate, longest_task_s } =
            self;
        let (tasks, runs) = (plural(*tasks, "task"), plural(*runs, "run"));
        let mut text = format!("{}: {tasks}, {runs}, {}", file.display(), human(*input_bytes));
        let shown = |seconds: f64| match seconds {
            0.0..60.0 => format!("{seconds:.1} s"),
            _ => format!("{:.1} minutes", seconds / 60.0),
        };
        if let (Some(core_s), Some(longest_s)) = (estimate.core_s, longest_task_s) {
            let (all, longest) = (shown(core_s), shown(*longest_s));
            text += &format!("; estimated {all} of one core, {longest} of the longest task");
        }
        if let Some(bytes) = estimate.memory_bytes {
            text += &format!(", memory {}", human(bytes));
        }
        if *without_estimate > 0 {
            text += &format!("; {} without an estimate", plural(*without_estimate, "run"));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(line: usize) -> Listed {
        Listed {
            manifest: "m".into(),
            line,
            inputs: vec!["a/x.fil.gz".to_owned()],
            output: None,
            options: Vec::new(),
        }
    }

    fn template(words: &str) -> Result<Template<'static>> {
        let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
        Template::new(&words, Path::new("r"))
    }

    #[test]
    fn products_are_named_after_the_first_input() {
        let place = |words: &str| {
            let mut template = template(words).unwrap();
            let parsed = template.parse(&listed(1)).unwrap();
            template.output(&listed(1), parsed.common.command_line.options())
        };
        for (words, expected) in [
            ("search", "r/x_search"),
            ("channelize --format=dada", "r/x.dada"),
            ("channelize --format guppi --channels 4", "r/x.raw"),
            ("convert --to gwf", "r/x.gwf"),
        ] {
            assert_eq!(place(words).unwrap(), Path::new(expected));
        }
        assert!(place("convert").unwrap_err().to_string().contains("--to must name"));
        for name in ["", "..", "/x", "a/../b", "failed/x", "logs"] {
            let other = Listed { output: Some(name.to_owned()), ..listed(3) };
            let error = template("search").unwrap().output(&other, &BTreeMap::new()).unwrap_err();
            assert!(error.to_string().starts_with("m: line 3: output: found "), "{error}");
        }
    }

    #[test]
    fn options_that_run_task_sets_are_refused() {
        for word in ["--overwrite", "--resume", "--each", "--output=x", "-o", "--help"] {
            let error = template(&format!("search {word}")).err().unwrap().to_string();
            assert!(error.contains(word), "{error}");
        }
        assert!(template("search --preset list").is_err(), "it prints a list");
        let preset = template("search --preset chime-frb").map(|template| template.words.len());
        assert!(preset.is_ok_and(|words| words > 3), "options of the preset are added");
    }

    #[test]
    fn a_product_in_another_is_refused() {
        let run = |output: &str| PlannedRun {
            command: Vec::new(),
            inputs: Vec::new(),
            output: output.into(),
            estimate: Estimate::default(),
        };
        let listed = [listed(1), listed(2)];
        let check = |a: &str, b: &str| check_outputs(&listed, &[run(a), run(b)]);
        check("r/a", "r/ab").unwrap();
        let error = check("r/a", "r/a").unwrap_err().to_string();
        assert!(error.contains("line 2") && error.contains("product of m, line 1 too"), "{error}");
        check("r/a", "r/a/b").unwrap_err();
        check("r/a/b", "r/a").unwrap_err();
    }
}
