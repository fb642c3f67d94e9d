//! Records of failures beside the products, and the state of all tasks of a file.

use std::fs;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sidereal::io::atomic;
use sidereal::{Error, Result};

use super::product::{self, State};
use super::task::{Inside, Kind, Task};
use crate::common::Common;
use crate::flags::text;
use crate::interrupt::Exit;
use crate::json;
use crate::output::beside;
use crate::provenance::{Made, Run};

/// Folders of records in that of the results.
pub(super) const RECORDS: [&str; 2] = [FAILED, LOGS];
const FAILED: &str = "failed";
/// Folder of the schedulers' logs.
pub(super) const LOGS: &str = "logs";

/// Most failures of a task's state that are printed.
const PRINTED: usize = 20;

/// Record of the runs of a task that failed: failed/OUTPUT.json in the folder of results, until the task succeeds. OUTPUT is that of
/// the task's first run, so that two lists of tasks can share the folder.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Failure {
    /// Always `sidereal/task-failure/1`.
    schema: String,
    /// Number of the task.
    task: usize,
    /// Time of the failure, UTC.
    date: String,
    /// Name of the machine.
    host: Option<String>,
    runs: Vec<FailedRun>,
}

/// Run that failed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(super) struct FailedRun {
    pub(super) output: PathBuf,
    /// Exit code that `sidereal` has for it.
    pub(super) exit_code: u8,
    pub(super) error: String,
}

impl FailedRun {
    /// Describes a run that ended with an error.
    pub(super) fn new(output: &Path, error: &Error) -> Self {
        let exit_code = Exit::after(error) as u8;
        Self { output: output.to_path_buf(), exit_code, error: text(error) }
    }
}

impl Failure {
    /// Describes the failed runs of a task on this machine.
    pub(super) fn new(task: usize, runs: Vec<FailedRun>, common: &Common) -> Self {
        let Run { date, host, .. } = Run::new(common);
        Self { schema: "sidereal/task-failure/1".to_owned(), task, date, host, runs }
    }
}

/// Record of a task.
pub(super) struct Record<'a> {
    pub(super) task: &'a Task,
}

impl Record<'_> {
    fn path(&self) -> PathBuf {
        let (results, runs) = (&self.task.results, &self.task.runs);
        let output = runs.first().map_or(Path::new("none"), |run| &run.output);
        let name = output.strip_prefix(results).unwrap_or(output);
        beside(&results.join(FAILED).join(name), ".json")
    }

    /// Replaces the record of failures, or removes it if there are none.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(super) fn put_failed(&self, runs: Vec<FailedRun>, common: &Common) -> Result<()> {
        let path = self.path();
        let failed = |error| Error::io(&path, error);
        if runs.is_empty() {
            return match self.failed() {
                Some(_) => fs::remove_file(&path).map_err(failed),
                None => Ok(()),
            };
        }
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(failed)?;
        }
        let failure = Failure::new(self.task.task, runs, common);
        atomic::write(&path, json::text(&failure)?.as_bytes())
    }

    /// Returns the record of failures, if there is one that can be read and is of this task's runs.
    pub(super) fn failed(&self) -> Option<Failure> {
        let failure: Failure = serde_json::from_slice(&fs::read(self.path()).ok()?).ok()?;
        let is_own =
            |failed: &FailedRun| self.task.runs.iter().any(|run| run.output == failed.output);
        failure.runs.iter().all(is_own).then_some(failure)
    }

    /// Returns the outputs of the runs that failed.
    pub(super) fn failed_outputs(&self) -> Vec<PathBuf> {
        let runs = self.failed().map_or(Vec::new(), |failure| failure.runs);
        runs.into_iter().map(|run| run.output).collect()
    }
}

/// State of the tasks of a file, as JSON.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Document {
    /// Number of tasks.
    tasks: usize,
    /// Number of tasks of which every product is there.
    done: usize,
    /// Numbers of tasks with an input that is cut short, of which the product has all there is.
    cut: Vec<usize>,
    /// Tasks that failed, with the reasons.
    pub(super) failed: Vec<Failure>,
    /// Numbers of the tasks that have neither product nor failure: not begun, running or killed.
    pub(super) missing: Vec<usize>,
    /// Numbers of the tasks to run again, as Slurm's --array takes them; empty if all are done.
    array: String,
    /// Products that are done, as seen from the current folder.
    #[serde(skip)]
    pub(super) products: Vec<PathBuf>,
}

impl Document {
    /// Returns whether every task is done.
    pub(super) fn is_complete(&self) -> bool {
        self.done == self.tasks
    }

    /// Finds the state of tasks, which were planned in one folder.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Parameter`] for a command that this version does not have.
    pub(super) fn of(tasks: &[Task], common: &Common) -> Result<Self> {
        let mut found = Self {
            tasks: tasks.len(),
            done: 0,
            cut: Vec::new(),
            failed: Vec::new(),
            missing: Vec::new(),
            array: String::new(),
            products: Vec::new(),
        };
        let Some(first) = tasks.first() else { return Ok(found) };
        let inside = Inside::enter(&first.folder)?;
        let (mut command, mut again) = (crate::command(), Vec::new());
        for task in tasks {
            let record = Record { task };
            let before = record.failed_outputs();
            let (mut done, mut is_cut, mut others) = (0, false, Vec::new());
            for run in &task.runs {
                let expected = run.parse(&mut command, None)?.common.command_line;
                let has_failed = before.contains(&run.output);
                let kind = Kind::of(&run.command)?;
                let state = product::state(kind, run, &expected, &task.version, has_failed)?;
                is_cut |= state == State::Cut;
                match state {
                    State::Done | State::Cut => {
                        done += 1;
                        found.products.push(inside.seen_outside(&task.folder, &run.output));
                    }
                    State::Other(why) => others.push(not_of_the_run(&run.output, &why)),
                    State::Absent | State::Incomplete { .. } => {}
                }
            }
            if is_cut {
                found.cut.push(task.task);
            }
            if done == task.runs.len() {
                found.done += 1;
                continue;
            }
            again.push(task.task);
            let failure = match others.is_empty() {
                true => record.failed(),
                false => Some(Failure::new(task.task, others, common)),
            };
            match failure {
                Some(failure) => found.failed.push(failure),
                None => found.missing.push(task.task),
            }
        }
        found.array = ranges(&again);
        Ok(found)
    }

    /// Prints the state.
    ///
    /// # Errors
    /// [`Error::Io`] when standard output is closed.
    pub(super) fn print(self, common: &Common) -> Result<()> {
        if common.json {
            return json::print(&Made::new(common, &[])?.product("task-status", self));
        }
        json::say(&self.text())
    }

    fn text(&self) -> String {
        let (failed, missing) = (self.failed.len(), self.missing.len());
        let mut lines = vec![format!(
            "{} of {} tasks done, {failed} failed, {missing} missing",
            self.done, self.tasks
        )];
        if !self.cut.is_empty() {
            let numbers = ranges(&self.cut);
            lines.push(format!(
                "with an input that is cut short, used as far as it goes: {numbers}"
            ));
        }
        for failure in self.failed.iter().take(PRINTED) {
            let host = failure.host.as_deref().unwrap_or("unknown host");
            for run in &failure.runs {
                let FailedRun { output, exit_code, error } = run;
                lines.push(format!(
                    "task {}: {}: {error} (exit code {exit_code}, {host}, {})",
                    failure.task,
                    output.display(),
                    failure.date
                ));
            }
        }
        if failed > PRINTED {
            lines.push(format!("{} more failed", failed - PRINTED));
        }
        if !self.missing.is_empty() {
            lines.push(format!("missing: {}", ranges(&self.missing)));
        }
        if !self.array.is_empty() {
            lines.push(format!("run again: --array={}", self.array));
        }
        lines.join("\n")
    }
}

/// Describes something else at the place of a product.
pub(super) fn not_of_the_run(output: &Path, why: &str) -> FailedRun {
    let error = format!("not the product of this task: {why}");
    FailedRun { output: output.to_path_buf(), exit_code: Exit::WrongUse as u8, error }
}

/// Formats ascending numbers as ranges: `0-3,7`.
fn ranges(numbers: &[usize]) -> String {
    let mut parts: Vec<[usize; 2]> = Vec::new();
    for &number in numbers {
        match parts.last_mut() {
            Some([_, last]) if *last + 1 == number => *last = number,
            _ => parts.push([number, number]),
        }
    }
    let part = |[first, last]: &[usize; 2]| match last - first {
        0 => first.to_string(),
        _ => format!("{first}-{last}"),
    };
    parts.iter().map(part).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_ranges_as_slurm_takes_them() {
        for (numbers, text) in
            [(&[][..], ""), (&[4], "4"), (&[0, 1, 2, 3, 7], "0-3,7"), (&[0, 2, 4, 5], "0,2,4-5")]
        {
            assert_eq!(ranges(numbers), text);
        }
    }
}
