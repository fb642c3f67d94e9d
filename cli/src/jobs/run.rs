//! `sidereal run-task`: runs one task of a list, or shows the state of all.
//!
//! Invariant: a run whose product is complete is not repeated, and no product of another command is replaced.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::{env, fs};

use clap::{Args, Command};
use sidereal::{Error, Result};

use super::manifest;
use super::product::{self, State};
use super::status::{self, Document, FailedRun, Record};
use super::task::{Inside, Kind, PlannedRun, Task, Tasks};
use crate::batch::{self, End, Ended};
use crate::common::{Common, Device};
use crate::interrupt::{self, Exit};
use crate::output::{CHECKPOINT, JOURNAL};
use crate::say::note;
use crate::{errors, flags};

/// Environment variable with the number of the task in a job array of Slurm.
const SLURM: &str = "SLURM_ARRAY_TASK_ID";
/// Environment variable with the path of the description of a job of HTCondor, which has the number of its process.
const HTCONDOR: &str = "_CONDOR_JOB_AD";

/// Run one task of a list by `plan-jobs`, or show which are done.
///
/// Products get their names only when they are complete. What is done is skipped, and an interrupted run continues from its
/// checkpoint if its verb writes them. A run that fails does not end the others of its task; its reason is in RESULTS/failed/OUTPUT.json
/// until it succeeds, and the exit code is that of the failure. Options of every verb, such as --threads, apply to all runs.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:\n  \
    sidereal run-task tasks.jsonl 17 --threads 4\n  \
    sbatch --array=0-99 --wrap 'sidereal run-task tasks.jsonl'\n  \
    sidereal run-task tasks.jsonl --status")]
pub(crate) struct Arguments {
    /// Tasks that `sidereal plan-jobs` wrote.
    #[arg(value_name = "TASKS")]
    tasks: PathBuf,
    /// Number of the task, from 0; by default that of the job array.
    ///
    /// The default is SLURM_ARRAY_TASK_ID of Slurm, or the process number of HTCondor (ProcId). Every node of a DAG is process 0,
    /// so its number is given.
    #[arg(value_name = "N")]
    number: Option<usize>,
    /// Show how many tasks are done, which failed and why, which are missing, and the numbers to run again.
    ///
    /// The exit code is 1 unless all are done.
    #[arg(long, conflicts_with = "number")]
    status: bool,
}

/// Runs the verb.
pub(crate) fn run(arguments: &Arguments, common: &Common) -> Result<Exit> {
    if arguments.status {
        return show(&arguments.tasks, common);
    }
    let number = arguments.number()?;
    let task = Tasks::open(&arguments.tasks)?.one(number)?;
    let _inside = Inside::enter(&task.folder)?;
    let record = Record { task: &task };
    if let Err(error) = check_version(&task) {
        let failed = task.runs.iter().map(|run| FailedRun::new(&run.output, &error));
        record.put_failed(failed.collect(), common)?;
        return Err(error);
    }
    let mut running = Running {
        task: &task,
        command: crate::command(),
        common,
        before: record.failed_outputs(),
        failed: Vec::new(),
    };
    let ended = running.all();
    let failed = running.failed;
    let ended = match ended {
        Ok(ended) => ended,
        Err(error) => {
            // The error itself matters more than that its record cannot be written.
            let _ = record.put_failed(failed, common);
            return Err(error);
        }
    };
    if !failed.is_empty() || ended.exit() == Exit::Success {
        record.put_failed(failed, common)?;
    }
    Ok(ended.exit())
}

/// Prints the state of all tasks.
fn show(tasks: &Path, common: &Common) -> Result<Exit> {
    let found = Document::of(&Tasks::open(tasks)?.all()?, common)?;
    let exit = if found.is_complete() { Exit::Success } else { Exit::Failed };
    found.print(common)?;
    Ok(exit)
}

impl Arguments {
    /// Returns the number of the task: the one given, or that of the scheduler.
    fn number(&self) -> Result<usize> {
        if let Some(number) = self.number {
            return Ok(number);
        }
        let number = |variable: &'static str, text: &str| {
            let rule = "it must be the number of a task, from 0";
            text.trim().parse().map_err(|_| Error::parameter(variable, text, rule))
        };
        if let Ok(text) = env::var(SLURM) {
            return number(SLURM, &text);
        }
        if let Some(path) = env::var_os(HTCONDOR).map(PathBuf::from) {
            let text = fs::read_to_string(&path).map_err(|error| Error::io(&path, error))?;
            let attributes = text.lines().filter_map(|line| line.split_once('='));
            let process = attributes.into_iter().find(|(name, _)| name.trim() == "ProcId");
            return number(HTCONDOR, process.map_or("without ProcId", |(_, value)| value));
        }
        let rule = format!(
            "give it after TASKS; jobs of an array have it in {SLURM} (Slurm) or {HTCONDOR} (HTCondor)"
        );
        Err(Error::parameter("the task's number", "not given", rule))
    }
}

fn check_version(task: &Task) -> Result<()> {
    let own = env!("CARGO_PKG_VERSION");
    if task.version == own {
        return Ok(());
    }
    let rule = format!("this is {own}; plan the jobs again, or run them with that version");
    Err(Error::parameter("the version that planned the task", &task.version, rule))
}

/// Task that is running.
struct Running<'a> {
    task: &'a Task,
    command: Command,
    common: &'a Common,
    /// Outputs of the runs that failed in an earlier process.
    before: Vec<PathBuf>,
    failed: Vec<FailedRun>,
}

impl Running<'_> {
    /// Runs every run that is not done.
    fn all(&mut self) -> Result<Ended> {
        let Task { task, runs, .. } = self.task;
        let mut ended = Ended::new(runs.len());
        for (index, run) in runs.iter().enumerate() {
            if interrupt::requested() {
                ended.stop();
                break;
            }
            if !self.common.quiet {
                let (number, all) = (index + 1, runs.len());
                note!("task {task}, {number} of {all}: {}", run.output.display());
            }
            let exit = self.one(run).inspect_err(|error| {
                self.failed.push(FailedRun::new(&run.output, error));
            })?;
            if exit == Exit::Interrupted {
                ended.stop();
                break;
            }
            ended.count(exit);
        }
        if runs.len() > 1 && (!self.common.quiet || !self.failed.is_empty()) {
            note!("task {task}: {}", ended.text());
        }
        Ok(ended)
    }

    /// Runs one run unless it is done, and records its failure.
    fn one(&mut self, run: &PlannedRun) -> Result<Exit> {
        let (task, kind) = (self.task, Kind::of(&run.command)?);
        let resume = kind.resumes.then_some("--resume");
        let mut first = run.parse(&mut self.command, resume)?;
        let expected = first.common.command_line.clone();
        let state = |has_failed| product::state(kind, run, &expected, &task.version, has_failed);
        match state(self.before.contains(&run.output))? {
            State::Done | State::Cut => return Ok(self.skip(run)),
            State::Other(why) => {
                let rule = format!("{why}; remove it, or plan the jobs with another --results");
                let error = Error::parameter("the product", run.output.display(), rule);
                let exit = errors::report(&error);
                self.failed.push(status::not_of_the_run(&run.output, &why));
                return Ok(exit);
            }
            State::Incomplete { .. } if !kind.resumes => {
                first = run.parse(&mut self.command, Some("--overwrite"))?;
            }
            State::Incomplete { .. } | State::Absent => {}
        }
        let (first, common) = (with_given(first, self.common), self.common);
        let End { exit, error } = batch::isolated(common, || {
            check_inputs(run)?;
            if let Some(folder) = run.output.parent() {
                fs::create_dir_all(folder).map_err(|error| Error::io(folder, error))?;
            }
            match crate::run_verb(&first) {
                Err(error) if cannot_resume(&error) => match state(false)? {
                    // Another process was faster.
                    State::Done | State::Cut => Ok(Exit::Success),
                    _ => {
                        let again = run.parse(&mut self.command, Some("--overwrite"))?;
                        crate::run_verb(&with_given(again, common))
                    }
                },
                ended => ended,
            }
        });
        if exit == Exit::Success || is_busy(error.as_ref()) {
            // The process that is busy with the run records what becomes of it.
            return Ok(exit);
        }
        let error = match (error, state(true)?) {
            (_, State::Done) => return Ok(self.skip(run)),
            (Some(error), _) => flags::text(&error),
            (None, State::Incomplete { reason: Some(reason) }) => reason,
            (None, _) => "an internal fault; the job's log has its place".to_owned(),
        };
        self.failed.push(FailedRun { output: run.output.clone(), exit_code: exit as u8, error });
        Ok(exit)
    }

    fn skip(&self, run: &PlannedRun) -> Exit {
        if !self.common.quiet {
            note!("{} is done already.", run.output.display());
        }
        Exit::Success
    }
}

/// Returns whether an error says that nothing can be continued: the checkpoint is damaged, or that of another kind of machine
/// or of an input that was changed since.
fn cannot_resume(error: &Error) -> bool {
    match error {
        Error::Parameter { name, .. } => *name == "--resume",
        Error::Format { path, .. } => {
            [CHECKPOINT, JOURNAL].iter().any(|name| path.file_name() == Some(name.as_ref()))
        }
        _ => false,
    }
}

fn is_busy(error: Option<&Error>) -> bool {
    matches!(error, Some(Error::Io { source, .. }) if source.kind() == ErrorKind::ResourceBusy)
}

/// Fails if an input is missing or has another size than when the task was planned.
fn check_inputs(run: &PlannedRun) -> Result<()> {
    for input in &run.inputs {
        let path = manifest::file_of(&input.file);
        match manifest::bytes_of(&input.file) {
            None => return Err(Error::io(path, ErrorKind::NotFound.into())),
            Some(bytes) if bytes != input.bytes => {
                let planned = input.bytes;
                let why = format!(
                    "found {bytes} bytes, expected {planned} as planned; plan the jobs again"
                );
                return Err(Error::format(path, "size", 0, why));
            }
            Some(_) => {}
        }
    }
    Ok(())
}

/// Adds the options of every verb that are given for the task to those of a run.
fn with_given(mut arguments: crate::Arguments, given: &Common) -> crate::Arguments {
    let own = arguments.common;
    arguments.common = Common {
        device: if given.device == Device::Auto { own.device } else { given.device.clone() },
        threads: if given.threads == 0 { own.threads } else { given.threads },
        memory: given.memory.or(own.memory),
        simd: given.simd.clone().or(own.simd),
        json: given.json || own.json,
        verbose: given.verbose || own.verbose,
        quiet: given.quiet || own.quiet,
        no_progress: given.no_progress || own.no_progress,
        no_sync: given.no_sync || own.no_sync,
        reproducible: given.reproducible || own.reproducible,
        is_batch: true,
        program: given.program.clone(),
        ..own
    };
    arguments
}
