//! Tasks: the lines of tasks.jsonl, and the verbs that a task may run.

use std::env;
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind};
use std::path::{Path, PathBuf};

use clap::Command;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sidereal::{Error, Result};

use super::estimate::Estimate;

/// Name of the command of all runs in errors.
pub(super) const COMMAND: &str = "the command after --";

/// Schema of a line.
pub(super) const SCHEMA: &str = "sidereal/task/1";

/// Verb that a task may run.
pub(super) struct Kind {
    pub(super) verb: &'static str,
    /// Ending that the default name of its product adds to that of the first input.
    pub(super) ending: &'static str,
    /// Document in the product's folder; `None` if it is beside the product's file, as FILE.json.
    pub(super) document: Option<&'static str>,
    /// Whether it continues interrupted runs with `--resume`.
    pub(super) resumes: bool,
}

const KINDS: &[Kind] = &[
    Kind { verb: "search", ending: "_search", document: Some("summary.json"), resumes: true },
    Kind {
        verb: "dedisperse",
        ending: "_dedispersed",
        document: Some("dedispersed.json"),
        resumes: true,
    },
    Kind { verb: "spiir search", ending: "_events", document: Some("events.json"), resumes: true },
    Kind { verb: "channelize", ending: ".fil", document: None, resumes: false },
    Kind { verb: "correlate", ending: ".uvh5", document: None, resumes: false },
    Kind { verb: "convert", ending: "", document: None, resumes: false },
];

impl Kind {
    /// Finds the verb with which a command begins.
    ///
    /// # Errors
    /// [`Error::Parameter`] for any other verb.
    pub(super) fn of(words: &[String]) -> Result<&'static Self> {
        let begins = |kind: &&Self| {
            let mut own = kind.verb.split(' ');
            own.clone().count() <= words.len()
                && words.iter().all(|word| own.next().is_none_or(|own| own == word))
        };
        KINDS.iter().find(begins).ok_or_else(|| {
            let known: Vec<_> = KINDS.iter().map(|kind| kind.verb).collect();
            let rule = format!("a task runs one of {}", known.join(", "));
            Error::parameter(COMMAND, words.join(" "), rule)
        })
    }

    /// Returns the number of words of the verb.
    pub(super) fn words(&self) -> usize {
        self.verb.split(' ').count()
    }
}

/// Line of tasks.jsonl: runs that a scheduler starts as one job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Task {
    /// Always `sidereal/task/1`.
    pub(super) schema: String,
    /// Version of the program that planned it.
    pub(super) version: String,
    /// Number of the task, counted from 0, which is also its line.
    pub(super) task: usize,
    /// Verb of its runs.
    pub(super) verb: String,
    /// Folder from which relative paths count.
    pub(super) folder: PathBuf,
    /// Folder of the products, and of the records of failures.
    pub(super) results: PathBuf,
    /// Sum over the runs of times and output, and the largest memory.
    pub(super) estimate: Estimate,
    /// Runs, in their order.
    pub(super) runs: Vec<PlannedRun>,
}

/// Run of a task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct PlannedRun {
    /// Words of the command line after the program's name.
    pub(super) command: Vec<String>,
    /// Input files.
    pub(super) inputs: Vec<PlannedInput>,
    /// Folder or file that it makes.
    pub(super) output: PathBuf,
    /// Estimate of its cost.
    pub(super) estimate: Estimate,
}

impl PlannedRun {
    /// Parses the command, with an option added to it.
    ///
    /// # Errors
    /// [`Error::Parameter`] for a command that this version does not have.
    pub(super) fn parse(
        &self,
        command: &mut Command,
        option: Option<&str>,
    ) -> Result<crate::Arguments> {
        let verb = Kind::of(&self.command)?.words();
        let own = self.command.iter().map(String::as_str);
        let words = ["sidereal"].into_iter().chain(own.clone().take(verb)).chain(option);
        let words: Vec<&str> = words.chain(own.skip(verb)).collect();
        crate::parse(command, &words).map_err(|error| {
            let rule = format!("it is no command line of this version: {}", summary(&error));
            Error::parameter("the command of the task", words.join(" "), rule)
        })
    }
}

/// Returns what is wrong with a command line in one line, without the hints that follow.
pub(super) fn summary(error: &clap::Error) -> String {
    let text = error.to_string();
    let text = text.split("\n\n").next().unwrap_or_default();
    text.trim_start_matches("error: ").split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Current folder of the process while it works on tasks.
pub(super) struct Inside {
    former: PathBuf,
}

impl Inside {
    /// Changes to the folder in which the tasks were planned.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(super) fn enter(folder: &Path) -> Result<Self> {
        let former = env::current_dir().map_err(|error| Error::io(".", error))?;
        env::set_current_dir(folder).map_err(|error| Error::io(folder, error))?;
        Ok(Self { former })
    }

    /// Returns a path as seen from the former folder.
    pub(super) fn seen_outside(&self, folder: &Path, path: &Path) -> PathBuf {
        if self.former == folder { path.to_path_buf() } else { folder.join(path) }
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        let _ = env::set_current_dir(&self.former);
    }
}

/// Input of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct PlannedInput {
    /// Path, or NAME=PATH.
    pub(super) file: String,
    /// Size; 0 for a series of numbered files or a folder.
    pub(super) bytes: u64,
}

/// Reader of the tasks of a file.
pub(super) struct Tasks {
    path: PathBuf,
    lines: std::io::Lines<BufReader<File>>,
    line: usize,
}

impl Tasks {
    /// Opens a file of tasks.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(super) fn open(path: &Path) -> Result<Self> {
        let file = File::open(path).map_err(|error| Error::io(path, error))?;
        Ok(Self { path: path.to_path_buf(), lines: BufReader::new(file).lines(), line: 0 })
    }

    /// Returns the next line; `None` at the end.
    fn line(&mut self) -> Result<Option<String>> {
        self.line += 1;
        self.lines.next().transpose().map_err(|error| match error.kind() {
            ErrorKind::InvalidData => {
                let why = "found bytes that are not UTF-8; `sidereal plan-jobs` writes JSON";
                Error::format(&self.path, format!("line {}: text", self.line), 0, why)
            }
            _ => Error::io(&self.path, error),
        })
    }

    fn parse(&self, text: &str) -> Result<Task> {
        let fault = |field: &str, why: String| {
            let field = format!("line {}: {field}", self.line);
            Error::format(&self.path, field, 0, why)
        };
        let task: Task = serde_json::from_str(text)
            .map_err(|error| fault("task", format!("{error}; `sidereal plan-jobs` writes it")))?;
        if task.schema != SCHEMA {
            return Err(fault("schema", format!("found {}, expected {SCHEMA}", task.schema)));
        }
        let expected = self.line - 1;
        if task.task != expected {
            return Err(fault("task", format!("found {}, expected {expected}", task.task)));
        }
        Ok(task)
    }

    /// Reads the task with this number; parses no other.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Format`] for a damaged line; [`Error::Parameter`] if there is no such task.
    pub(super) fn one(mut self, number: usize) -> Result<Task> {
        let mut last = None;
        while let Some(text) = self.line()? {
            if self.line - 1 == number {
                return self.parse(&text);
            }
            last = Some(self.line - 1);
        }
        let rule = match last {
            None => format!("{} has no tasks", self.path.display()),
            Some(last) => format!("{} has the tasks 0 to {last}", self.path.display()),
        };
        Err(Error::parameter("the task's number", number, rule))
    }

    /// Reads all tasks.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Format`] for a damaged line or if there is none.
    pub(super) fn all(mut self) -> Result<Vec<Task>> {
        let mut all = Vec::new();
        while let Some(text) = self.line()? {
            all.push(self.parse(&text)?);
        }
        if all.is_empty() {
            let why =
                "found no task, expected a line of JSON for each; `sidereal plan-jobs` writes them";
            return Err(Error::format(&self.path, "tasks", 0, why));
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn verbs_with_a_product_of_files_are_planned() {
        assert_eq!(Kind::of(&words("search --snr 7")).unwrap().verb, "search");
        assert_eq!(Kind::of(&words("spiir search --bank b")).unwrap().words(), 2);
        for text in ["", "spiir", "spiir bank", "live search", "--snr 7", "searching"] {
            let error = Kind::of(&words(text)).err().unwrap().to_string();
            assert!(error.contains("one of search, dedisperse, spiir search"), "{error}");
        }
    }

    #[test]
    fn damaged_lines_are_named() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("tasks.jsonl");
        let task = Task {
            schema: SCHEMA.to_owned(),
            version: "1".to_owned(),
            task: 0,
            verb: "search".to_owned(),
            folder: "/".into(),
            results: "r".into(),
            estimate: Estimate::default(),
            runs: Vec::new(),
        };
        let line = |task: &Task| serde_json::to_string(task).unwrap();
        std::fs::write(&path, format!("{}\n{{\n", line(&task))).unwrap();
        let open = || Tasks::open(&path).unwrap();
        assert_eq!(open().one(0).unwrap(), task, "other lines are not parsed");
        for (error, word) in [
            (open().one(1).unwrap_err(), "line 2: task"),
            (open().all().unwrap_err(), "line 2: task"),
            (open().one(7).unwrap_err(), "has the tasks 0 to 1"),
        ] {
            assert!(error.to_string().contains(word), "{error}");
        }
        let other = Task { task: 3, ..task.clone() };
        std::fs::write(&path, line(&other)).unwrap();
        assert!(open().all().unwrap_err().to_string().contains("found 3, expected 0"));
        let other = Task { schema: "x".to_owned(), ..task };
        std::fs::write(&path, line(&other)).unwrap();
        assert!(open().one(0).unwrap_err().to_string().contains("found x"));
        std::fs::write(&path, "").unwrap();
        assert!(open().one(0).unwrap_err().to_string().contains("has no tasks"));
        assert!(open().all().unwrap_err().to_string().contains("found no task"));
    }
}
