//! Scripts that start the tasks: for Slurm (`--slurm`), HTCondor (`--htcondor`) and Nextflow (`--nextflow`).

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use sidereal::{Error, Result};

use super::status::LOGS;
use super::task::Task;
use crate::common::Common;
use crate::output::{Existing, Files, WritingFiles};

/// Requested time and memory over the estimates: other machines are slower, and some of the estimates too low.
const TIME_FACTOR: f64 = 2.0;
const MEMORY_FACTOR: f64 = 1.5;
/// Steps of the requests.
const MINUTES_STEP: u64 = 5;
const MEMORY_STEP: u64 = 256 << 20;
/// Seconds that a task has to write a checkpoint before its time ends.
const NOTICE_S: u64 = 60;
/// Further attempts of a task that fails.
const RETRIES: usize = 2;

/// Options of scripts.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Schedulers")]
pub(super) struct Scripts {
    /// Also write a script for sbatch: a job array of all tasks.
    #[arg(long, value_name = "FILE")]
    slurm: Option<PathBuf>,
    /// Also write a DAG for condor_submit_dag (.dag) and the submit file of its jobs (.sub).
    #[arg(long, value_name = "FILE")]
    htcondor: Option<PathBuf>,
    /// Also write a script for Nextflow.
    #[arg(long, value_name = "FILE")]
    nextflow: Option<PathBuf>,
    /// Cores that the scripts request for each task, and threads of its runs.
    #[arg(long, value_name = "N", default_value_t = 1)]
    cpus: usize,
}

/// Most cores of a task.
const MOST_CPUS: usize = 1024;

/// File with its text.
struct Script {
    option: &'static str,
    path: PathBuf,
    text: String,
}

impl Scripts {
    /// Checks the options.
    ///
    /// # Errors
    /// [`Error::Parameter`].
    pub(super) fn check(&self) -> Result<()> {
        if !(1..=MOST_CPUS).contains(&self.cpus) {
            let rule = format!("it must be 1 to {MOST_CPUS}");
            return Err(Error::parameter("--cpus", self.cpus, rule));
        }
        match &self.htcondor {
            Some(path) if path.extension().is_none_or(|end| end != "dag") => {
                let rule = "its name must end in .dag; the submit file beside it ends in .sub";
                Err(Error::parameter("--htcondor", path.display(), rule))
            }
            _ => Ok(()),
        }
    }

    /// Begins the files of the scripts that are asked for, and fills them; `tasks` lie in `file`.
    ///
    /// # Errors
    /// Those of [`Files::begin`]; [`Error::Io`].
    pub(super) fn begin(
        &self,
        file: &Path,
        tasks: &[Task],
        existing: Existing,
        common: &Common,
    ) -> Result<Vec<Files>> {
        let Some(first) = tasks.first() else { return Ok(Vec::new()) };
        let program = common.program.as_ref().map(|program| program.path.display().to_string());
        let array = Array {
            program: program.unwrap_or_else(|| "sidereal".to_owned()),
            file: text_of(file)?,
            folder: text_of(&first.folder)?,
            logs: text_of(&first.results.join(LOGS))?,
            tasks: tasks.len(),
            cpus: self.cpus,
            minutes: minutes(tasks, self.cpus),
            memory_mib: memory_mib(tasks),
        };
        let script = |option, path: &Option<PathBuf>, text: String| {
            path.clone().map(|path| Script { option, path, text })
        };
        let submit = self.htcondor.as_ref().map(|dag| dag.with_extension("sub"));
        let submit_name = submit.as_deref().and_then(Path::file_name).unwrap_or_default();
        let dag = array.dag(&submit_name.to_string_lossy());
        let scripts = [
            script("--slurm", &self.slurm, array.slurm()),
            script("--htcondor", &self.htcondor, dag),
            script("--htcondor", &submit, array.submit()),
            script("--nextflow", &self.nextflow, array.nextflow()),
        ];
        let mut begun = Vec::new();
        for Script { option, path, text } in scripts.into_iter().flatten() {
            let inputs = [file.to_path_buf()];
            let writing = WritingFiles { option, existing, inputs: &inputs, common };
            let files = Files::begin(&path, &[], &writing)?;
            let place = files.main();
            fs::write(&place, text).map_err(|error| Error::io(place, error))?;
            begun.push(files);
        }
        if !begun.is_empty() {
            // Schedulers open the logs before a task begins.
            let logs = first.results.join(LOGS);
            fs::create_dir_all(&logs).map_err(|error| Error::io(logs, error))?;
        }
        Ok(begun)
    }
}

/// Returns a path for a script.
///
/// # Errors
/// [`Error::Parameter`] for one with control characters or quotes, which the schedulers read each in their own way.
fn text_of(path: &Path) -> Result<String> {
    let text = path.display().to_string();
    let is_plain = |letter: char| !letter.is_control() && !"'\"$\\`%".contains(letter);
    match text.chars().all(is_plain) {
        true => Ok(text),
        false => {
            let rule = "a script cannot have a path with quotes, $, %, \\ or control characters";
            Err(Error::parameter("a path of the tasks", text, rule))
        }
    }
}

/// Returns the minutes that the longest task needs; `None` if no estimate covers all tasks.
fn minutes(tasks: &[Task], cpus: usize) -> Option<u64> {
    let times = tasks.iter().map(|task| task.estimate.core_s);
    let longest = times.collect::<Option<Vec<f64>>>()?.into_iter().reduce(f64::max)?;
    let minutes = TIME_FACTOR * longest / cpus as f64 / 60.0 + NOTICE_S as f64 / 60.0;
    Some((minutes as u64 + 1).next_multiple_of(MINUTES_STEP))
}

/// Returns the memory of the largest task in MiB; `None` if no estimate covers all tasks.
fn memory_mib(tasks: &[Task]) -> Option<u64> {
    let all = tasks.iter().map(|task| task.estimate.memory_bytes);
    let largest = all.collect::<Option<Vec<u64>>>()?.into_iter().max()?;
    let bytes = (MEMORY_FACTOR * largest as f64) as u64;
    Some(bytes.next_multiple_of(MEMORY_STEP) >> 20)
}

/// Facts of the scripts.
struct Array {
    program: String,
    /// File of the tasks, relative to the folder or absolute.
    file: String,
    /// Folder from which relative paths count.
    folder: String,
    logs: String,
    tasks: usize,
    cpus: usize,
    minutes: Option<u64>,
    memory_mib: Option<u64>,
}

impl Array {
    /// Returns the comment at the start of a script, after `mark`.
    fn head(&self, mark: &str) -> String {
        let version = env!("CARGO_PKG_VERSION");
        format!("{mark} Tasks of {}, by sidereal plan-jobs {version}.\n", self.file)
    }

    fn slurm(&self) -> String {
        let Self { program, file, folder, logs, cpus, .. } = self;
        let last = self.tasks.saturating_sub(1);
        let time = match self.minutes {
            Some(minutes) => format!("#SBATCH --time={minutes}"),
            None => "# There is no estimate of the time: add #SBATCH --time=MINUTES.".to_owned(),
        };
        let memory = match self.memory_mib {
            Some(mib) => format!("#SBATCH --mem={mib}M"),
            None => "# There is no estimate of the memory: add #SBATCH --mem=SIZE.".to_owned(),
        };
        format!(
            "#!/bin/bash\n{}\
             # At most 20 at once: sbatch --array=0-{last}%20. What is left: run-task TASKS --status prints the numbers.\n\
             #SBATCH --job-name=sidereal\n\
             #SBATCH --array=0-{last}\n\
             #SBATCH --cpus-per-task={cpus}\n\
             {memory}\n\
             {time}\n\
             #SBATCH --chdir=\"{folder}\"\n\
             #SBATCH --output=\"{logs}/%A_%a.log\"\n\
             # A task of a node that fails, or that is preempted, begins again; it continues what its verb can.\n\
             #SBATCH --requeue\n\
             # A task that reaches its time limit keeps what it has found.\n\
             #SBATCH --signal=B:TERM@{NOTICE_S}\n\
             exec '{program}' run-task '{file}' --threads \"$SLURM_CPUS_PER_TASK\" --no-progress\n",
            self.head("#")
        )
    }

    fn dag(&self, submit: &str) -> String {
        let mut text = self.head("#");
        for task in 0..self.tasks {
            text += &format!(
                "JOB T{task} {submit}\nVARS T{task} task=\"{task}\"\nRETRY T{task} {RETRIES}\n"
            );
        }
        text
    }

    fn submit(&self) -> String {
        let Self { program, file, folder, logs, cpus, .. } = self;
        let memory = self.memory_mib.map_or_else(
            || "# There is no estimate of the memory: add request_memory.\n".to_owned(),
            |mib| format!("request_memory = {mib}M\n"),
        );
        // In the new syntax of arguments, single quotes keep the blanks of a word.
        format!(
            "{}\
             # Without a DAG: leave out $(task), name the logs by $(Process), and queue {}.\n\
             universe = vanilla\n\
             executable = {program}\n\
             arguments = \"run-task '{file}' $(task) --threads {cpus} --no-progress\"\n\
             initialdir = {folder}\n\
             should_transfer_files = NO\n\
             request_cpus = {cpus}\n\
             {memory}\
             output = {logs}/$(task).out\n\
             error = {logs}/$(task).err\n\
             log = {logs}/condor.log\n\
             queue\n",
            self.head("#"),
            self.tasks
        )
    }

    fn nextflow(&self) -> String {
        let Self { program, file, folder, tasks, cpus, .. } = self;
        let last = tasks.saturating_sub(1);
        let memory =
            self.memory_mib.map_or(String::new(), |mib| format!("    memory '{mib} MB'\n"));
        let time =
            self.minutes.map_or(String::new(), |minutes| format!("    time '{minutes} min'\n"));
        format!(
            "{}\
             process run_task {{\n    \
                 tag \"${{number}}\"\n    \
                 cpus {cpus}\n{memory}{time}    \
                 errorStrategy 'retry'\n    \
                 maxRetries {RETRIES}\n\n    \
                 input:\n    val number\n\n    \
                 script:\n    \"\"\"\n    \
                 cd '{folder}'\n    \
                 '{program}' run-task '{file}' ${{number}} --threads ${{task.cpus}} --no-progress\n    \"\"\"\n\
             }}\n\n\
             workflow {{\n    run_task(Channel.of(0..{last}))\n}}\n",
            self.head("//")
        )
    }
}

#[cfg(test)]
mod tests {
    use super::super::estimate::Estimate;
    use super::*;

    fn task(core_s: Option<f64>, memory_bytes: Option<u64>) -> Task {
        Task {
            schema: String::new(),
            version: String::new(),
            task: 0,
            verb: "search".to_owned(),
            folder: "/data".into(),
            results: "results".into(),
            estimate: Estimate { core_s, memory_bytes, output_bytes: None },
            runs: Vec::new(),
        }
    }

    #[test]
    fn requests_are_above_the_largest_estimate() {
        let tasks = [task(Some(600.0), Some(300 << 20)), task(Some(60.0), Some(1 << 20))];
        // Twice 10 minutes and one of notice.
        assert_eq!((minutes(&tasks, 1), minutes(&tasks, 4)), (Some(25), Some(10)));
        assert_eq!(memory_mib(&tasks), Some(512));
        let unknown = [tasks[0].clone(), task(None, None)];
        assert_eq!((minutes(&unknown, 1), memory_mib(&unknown)), (None, None));
    }

    #[test]
    fn paths_that_a_script_cannot_quote_are_refused() {
        assert_eq!(text_of(Path::new("/a b/ä")).unwrap(), "/a b/ä");
        for path in ["a'b", "a\"b", "$HOME", "a\nb", "100%a"] {
            text_of(Path::new(path)).unwrap_err();
        }
    }
}
