//! The `sidereal` command as a function: one file per verb.

#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
mod alerts;
mod approximant;
mod band;
mod batch;
mod behind;
mod bench;
mod channelize;
mod common;
mod config;
mod convert;
mod correlate;
mod dedisperse;
mod demo;
mod devices;
mod dm_arguments;
mod errors;
mod events;
mod flags;
mod gaps;
mod geometry;
mod info;
mod interrupt;
mod jobs;
mod json;
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
mod live;
mod manual;
mod numbers;
mod output;
#[cfg(all(target_os = "linux", target_pointer_width = "64", feature = "page"))]
mod page;
mod plan;
mod plots;
mod progress;
mod provenance;
mod ranks;
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
mod receiver;
mod replot;
mod report;
mod rerun;
mod resume;
mod rfi;
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
mod ring;
mod say;
mod schema;
mod search;
mod selection;
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
mod send;
mod short_help;
mod simulate;
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
mod site;
mod sky;
mod space;
mod spiir;
mod steps;
mod streams;
mod trace;
mod tune;
mod voltage_arguments;
mod watch;

use std::ffi::{OsStr, OsString};
use std::panic::{AssertUnwindSafe, catch_unwind};

use clap::{Command, CommandFactory, FromArgMatches, Parser, Subcommand};
use common::{CommandLine, Common};
use interrupt::Exit;
use sidereal::Result;
use sidereal::backend::cuda::{CompileRequest, CompilerProgram, Extent};
use sidereal::io::{Unpacking, printable};
use tracing::Level;

/// Signal processing for radio astronomy and gravitational waves.
///
/// Channelizes and correlates voltages, finds short radio bursts in voltages and filterbanks, finds compact binaries
/// in strain, and simulates recordings for tests.
#[derive(Parser, Debug)]
#[command(
    name = "sidereal",
    version,
    arg_required_else_help = true,
    max_term_width = 100,
    after_help = AFTER_HELP,
    after_long_help = format!("{AFTER_HELP}\n\n{EXIT_CODES}")
)]
struct Arguments {
    #[command(flatten)]
    common: Common,
    #[command(subcommand)]
    verb: Verb,
}

const AFTER_HELP: &str = "\
Begin with `sidereal demo`, which makes an observation and finds its bursts, or
with `sidereal search RECORDING`. `sidereal help VERB` tells more of each verb.";

const EXIT_CODES: &str = "\
Exit codes:
    0  done; also of an input that is cut short, with a warning
    1  any other failure
    2  wrong use
    3  damaged input
    4  full disk, quota or largest file size
    5  a GPU that failed or was lost
  130  interrupted (SIGINT, SIGTERM, SIGHUP), also when what was found was kept";

#[derive(Subcommand, Debug)]
enum Verb {
    Demo(demo::Arguments),
    Search(search::Arguments),
    Replot(replot::Arguments),
    Report(report::Arguments),
    Info(info::Arguments),
    Dedisperse(dedisperse::Arguments),
    Channelize(channelize::Arguments),
    Correlate(Box<correlate::Arguments>),
    Plan(plan::Arguments),
    Convert(convert::Arguments),
    Simulate(simulate::Arguments),
    Spiir(spiir::Arguments),
    Rerun(rerun::Arguments),
    PlanJobs(jobs::PlanArguments),
    RunTask(jobs::RunArguments),
    Merge(jobs::MergeArguments),
    #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
    Live(live::Arguments),
    #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
    Ring(ring::Arguments),
    #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
    Send(Box<send::Arguments>),
    Schema(schema::Arguments),
    Completions(manual::CompletionsArguments),
    Man(manual::ManArguments),
    Bench(bench::Arguments),
    Devices(devices::Arguments),
    Tune(tune::Arguments),
}

impl Verb {
    /// Returns the verb's name if it has no GPU kernels.
    fn cpu_only_name(&self) -> Option<&'static str> {
        match self {
            Self::Info(_) => Some("info"),
            Self::Schema(_) => Some("schema"),
            Self::Completions(_) => Some("completions"),
            Self::Man(_) => Some("man"),
            Self::Plan(_) => Some("plan"),
            Self::PlanJobs(_) => Some("plan-jobs"),
            Self::Merge(_) => Some("merge"),
            Self::Convert(_) => Some("convert"),
            Self::Report(_) => Some("report"),
            Self::Simulate(_) => Some("simulate"),
            #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
            Self::Ring(_) => Some("ring"),
            #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
            Self::Send(_) => Some("send"),
            Self::Spiir(arguments) => arguments.cpu_only_name(),
            Self::Bench(arguments) => arguments.cpu_only_name(),
            #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
            Self::Live(_) => None,
            Self::Demo(_)
            | Self::Rerun(_)
            | Self::RunTask(_)
            | Self::Search(_)
            | Self::Replot(_)
            | Self::Dedisperse(_)
            | Self::Channelize(_)
            | Self::Correlate(_)
            | Self::Devices(_) => None,
            Self::Tune(_) => None,
        }
    }

    /// Returns the name of the verb for the error that it does not divide its work.
    fn undivided_name<'a>(&self, common: &'a Common) -> &'a str {
        match self {
            Self::Search(_) => "search without --beams or --antennas",
            _ => &common.command_line.verb,
        }
    }

    /// Returns whether several processes can divide the work.
    fn is_divided(&self) -> bool {
        match self {
            Self::Correlate(_) | Self::Rerun(_) => true,
            Self::Search(arguments) => arguments.is_divided(),
            Self::Spiir(arguments) => arguments.is_divided(),
            Self::Bench(arguments) => arguments.is_divided(),
            #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
            Self::Live(arguments) => arguments.is_divided(),
            _ => false,
        }
    }
}

/// Returns the command line with all options, as manual and completions have it.
fn full_command() -> Command {
    config::with_options(numbers::bounded(Arguments::command()))
}

/// Returns the command line, each verb with a short help.
fn command() -> Command {
    short_help::shortened(full_command())
}

/// Parses words, of which the first is the program's name, and records them as the command line.
fn parse(
    command: &mut Command,
    words: &[impl AsRef<OsStr>],
) -> std::result::Result<Arguments, clap::Error> {
    let words: Vec<&OsStr> = words.iter().map(AsRef::as_ref).collect();
    let matches = command.try_get_matches_from_mut(&words)?;
    let mut arguments = Arguments::from_arg_matches(&matches)?;
    let words = words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    arguments.common.command_line = CommandLine::new(command, &matches, words);
    Ok(arguments)
}

/// Runs a command line and returns its exit code.
///
/// `words` are the program's name and its arguments. `program` is a command that calls this function, and is started to
/// compile kernels; with `None` this process compiles them. Handlers of SIGINT, SIGTERM and SIGHUP, which stop the run,
/// replace those of the process. Runs must follow each other.
pub fn run(words: Vec<OsString>, program: Option<CompilerProgram>) -> u8 {
    if let Some(request) = CompileRequest::from_environment() {
        let kernels = sidereal::dedisperse::kernels(Extent::All);
        let compiled = request.compile(kernels.into_iter().map(|variant| variant.source));
        return if compiled.is_ok() { 0 } else { Exit::Failed as u8 };
    }
    let mut command = command();
    let expanded = match config::expand(&command, words.clone()) {
        Ok(expanded) => expanded,
        Err(error) => return errors::report(&error) as u8,
    };
    if let Some(text) = &expanded.text {
        return json::say(text.trim_end()).map_or_else(|error| errors::report(&error), Exit::from)
            as u8;
    }
    let mut arguments = match parse(&mut command, &expanded.words) {
        Ok(arguments) => arguments,
        // 0 after help, 2 after wrong use.
        Err(error) => {
            let _ = error.print();
            if error.use_stderr() {
                expanded.name_added();
            }
            return error.exit_code() as u8;
        }
    };
    errors::soften_panics();
    interrupt::install();
    if let Err(error) = say::begin(arguments.common.log_file.as_deref()) {
        return errors::report(&error) as u8;
    }
    if arguments.common.trace.is_some() {
        sidereal::trace::begin();
    }
    if arguments.common.threads > 0 {
        sidereal::io::limit_threads(arguments.common.threads);
    }
    sidereal::io::unpack_with(unpacking(&arguments.common));
    let words: Vec<_> = words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    arguments.common.command_line.words = words.clone();
    arguments.common.program = program;
    let version = env!("CARGO_PKG_VERSION");
    say::log(Level::INFO, &printable(&format!("sidereal {version} begins: {}", words.join(" "))));
    interrupt::ready();
    let exit = match catch_unwind(AssertUnwindSafe(|| run_verb(&arguments))) {
        Ok(Ok(exit)) => exit,
        Ok(Err(error)) => {
            let exit = errors::report(&error);
            if exit == Exit::WrongUse {
                expanded.name_added();
            }
            exit
        }
        Err(_) => errors::after_panic(),
    };
    interrupt::stopping();
    steps::finish();
    sidereal::io::unpack_with(Unpacking::default());
    let trace = arguments.common.trace.as_deref().map(ranks::own_file);
    let exit = match trace.as_deref().map(trace::write) {
        Some(Err(error)) if exit == Exit::Success => errors::report(&error),
        _ => exit,
    };
    interrupt::log_end(exit);
    exit as u8
}

/// Returns how compressed inputs are unpacked.
fn unpacking(common: &Common) -> Unpacking {
    let ratio = common.unpack_ratio;
    Unpacking { ratio, folder: None, keep: true, is_stopped: interrupt::requested }
}

fn run_verb(arguments: &Arguments) -> Result<Exit> {
    let common = &arguments.common;
    if let Some(place) = ranks::Place::of_environment()
        && !arguments.verb.is_divided()
    {
        return match place.rank {
            0 => Err(place.alone(arguments.verb.undivided_name(common))),
            _ => Ok(Exit::WrongUse),
        };
    }
    if let Some(verb) = arguments.verb.cpu_only_name() {
        common.on_host_only(verb)?;
    }
    match &arguments.verb {
        Verb::Demo(arguments) => demo::run(arguments, common).map(Exit::from),
        Verb::Info(arguments) => info::run(arguments, common).map(Exit::from),
        Verb::Search(arguments) => search::run(arguments, common),
        Verb::Replot(arguments) => replot::run(arguments, common).map(Exit::from),
        Verb::Report(arguments) => report::run(arguments, common).map(Exit::from),
        Verb::Dedisperse(arguments) => dedisperse::run(arguments, common),
        Verb::Channelize(arguments) => channelize::run(arguments, common),
        Verb::Correlate(arguments) => correlate::run(arguments, common),
        Verb::Devices(arguments) => devices::run(arguments, common).map(Exit::from),
        Verb::Tune(arguments) => tune::run(arguments, common).map(Exit::from),
        Verb::Simulate(arguments) => simulate::run(arguments, common).map(Exit::from),
        Verb::Spiir(arguments) => spiir::run(arguments, common),
        #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
        Verb::Live(arguments) => match arguments.site() {
            Some(file) => run_verb(&site::command_line(file, common)?),
            None => live::run(arguments, common),
        },
        Verb::Rerun(arguments) => run_verb(&rerun::command_line(arguments, common)?),
        Verb::PlanJobs(arguments) => jobs::plan_jobs(arguments, common).map(Exit::from),
        Verb::Merge(arguments) => jobs::merge(arguments, common).map(Exit::from),
        Verb::RunTask(arguments) => jobs::run_task(arguments, common),
        #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
        Verb::Ring(arguments) => ring::run(arguments, common).map(Exit::from),
        #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
        Verb::Send(arguments) => send::run(arguments, common),
        Verb::Plan(arguments) => plan::run(arguments, common).map(Exit::from),
        Verb::Convert(arguments) => convert::run(arguments, common).map(Exit::from),
        Verb::Schema(arguments) => schema::run(arguments).map(Exit::from),
        Verb::Completions(arguments) => manual::complete(arguments, full_command()).map(Exit::from),
        Verb::Man(arguments) => manual::write(arguments, full_command(), common).map(Exit::from),
        Verb::Bench(arguments) => bench::run(arguments, common),
    }
}
