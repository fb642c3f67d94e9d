//! `--each`: a run of its own for each input of a command line.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use clap::Args;
use serde_json::Value;
use sidereal::io::{is_stream, unpack_with};
use sidereal::{Error, Result};

use crate::common::{CommandLine, Common};
use crate::interrupt::{self, Exit};
use crate::say::note;
use crate::selection::shown;
use crate::{errors, json, unpacking};

/// Option of a run for each input.
#[derive(Args, Clone, Debug)]
pub(crate) struct Batch {
    /// Treat each INPUT as a recording of its own, with a folder of its own, instead of as parts of one.
    ///
    /// The folders have the default names, in the folder that --output names. An input that fails does not end the others; a
    /// last line has the numbers of those done and failed, and the exit code is 0 only if all were done. --json prints one
    /// JSON document per line. Several GPUs (--device cuda:0,1) have an input each at the same time.
    #[arg(long, conflicts_with = "sum", help_heading = "Output")]
    each: bool,
}

impl Batch {
    /// Fails if the option is given to a verb that has one input only.
    ///
    /// # Errors
    /// [`Error::Parameter`].
    #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
    pub(crate) fn check_none(&self) -> Result<()> {
        match self.each {
            true => Err(Error::parameter("--each", "given", "it is for files, not for streams")),
            false => Ok(()),
        }
    }

    /// Runs a verb on all inputs or, with the option, on each.
    ///
    /// # Errors
    /// [`Error::Parameter`] for an input that is no file, and if two runs had the same output; as [`Common::on_each_gpu`]; without
    /// the option, the error of the run.
    pub(crate) fn run<V: PerInput + Sync>(&self, verb: &V, common: &Common) -> Result<Exit> {
        if !self.each {
            return verb.run(common);
        }
        check_apart(verb.inputs(), |input| verb.of_one(input).place())?;
        run_each(verb.inputs(), common, |input, common| verb.of_one(input).run(common))
    }
}

/// Options of a verb that can run on each of its inputs.
pub(crate) trait PerInput: Sized {
    /// Returns all inputs.
    fn inputs(&self) -> &[PathBuf];

    /// Returns the options of the run of one input.
    fn of_one(&self, input: &Path) -> Self;

    /// Returns where the product goes.
    fn place(&self) -> PathBuf;

    /// Runs the verb on all inputs.
    ///
    /// # Errors
    /// Those of the verb.
    fn run(&self, common: &Common) -> Result<Exit>;
}

/// Checks that inputs are files, and that the runs of two do not have the same output, which `place` returns.
pub(crate) fn check_apart(inputs: &[PathBuf], place: impl Fn(&Path) -> PathBuf) -> Result<()> {
    if let Some(path) = inputs.iter().find(|path| is_stream(path)) {
        return Err(Error::parameter("an input", shown(path), "--each takes files, not streams"));
    }
    let places: Vec<PathBuf> = inputs.iter().map(|path| place(path)).collect();
    for (index, own) in places.iter().enumerate() {
        if let Some(first) = places[..index].iter().position(|other| other == own) {
            let (a, b) = (inputs[first].display(), inputs[index].display());
            let rule = format!("{a} and {b} would both be written there; run them one by one");
            return Err(Error::parameter("the output", own.display(), rule));
        }
    }
    Ok(())
}

/// Numbers of runs by their end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    runs: usize,
    done: usize,
    failed: usize,
    is_stopped: bool,
    /// Exit code of the failed ones if all have the same, else that of any failure.
    exit: Option<Exit>,
}

impl Ended {
    /// Begins to count the ends of `runs` runs.
    pub(crate) fn new(runs: usize) -> Self {
        Self { runs, done: 0, failed: 0, is_stopped: false, exit: None }
    }

    /// Counts a run by its exit code.
    pub(crate) fn count(&mut self, exit: Exit) {
        match exit {
            Exit::Success => self.done += 1,
            failure => {
                self.failed += 1;
                let first = self.exit.unwrap_or(failure);
                self.exit = Some(if first == failure { failure } else { Exit::Failed });
            }
        }
    }

    /// Records that no further run begins because of a request to stop.
    pub(crate) fn stop(&mut self) {
        self.is_stopped = true;
    }

    /// Returns the exit code of all runs.
    pub(crate) fn exit(&self) -> Exit {
        if self.is_stopped { Exit::Interrupted } else { self.exit.unwrap_or(Exit::Success) }
    }

    /// Formats the last line.
    pub(crate) fn text(&self) -> String {
        let Self { runs, done, failed, .. } = self;
        let left = match runs - done - failed {
            0 => String::new(),
            left => format!(", {left} not begun"),
        };
        format!("{done} of {runs} done, {failed} failed{left}")
    }
}

/// End of one of several runs.
pub(crate) struct End {
    pub(crate) exit: Exit,
    /// Error that left no product; it has been reported.
    pub(crate) error: Option<Error>,
}

/// Calls `run`, which is one of several of this process: its error or panic is reported and ends no other.
pub(crate) fn isolated(common: &Common, run: impl FnOnce() -> Result<Exit>) -> End {
    // Files that were unpacked for the input before are not needed any more.
    unpack_with(unpacking(common));
    let end = match catch_unwind(AssertUnwindSafe(run)) {
        Ok(Ok(exit)) => End { exit, error: None },
        Ok(Err(error)) => End { exit: errors::report(&error), error: Some(error) },
        Err(_) => End { exit: errors::after_panic(), error: None },
    };
    // After a request to stop, runs on other GPUs may still write their products.
    if !interrupt::requested() {
        interrupt::goes_on();
    }
    end
}

/// Calls `run` for each input, with options whose command line has that input alone; reports errors and goes on. With several
/// GPUs, as many runs as there are GPUs take place at the same time.
///
/// # Errors
/// As [`Common::on_each_gpu`].
fn run_each(
    inputs: &[PathBuf],
    common: &Common,
    run: impl Fn(&Path, &Common) -> Result<Exit> + Sync,
) -> Result<Exit> {
    let places = common.on_each_gpu(inputs.len())?;
    let runs = Runs {
        inputs,
        next: AtomicUsize::new(0),
        state: Mutex::new(State {
            ended: Ended::new(inputs.len()),
            printed: 0,
            waiting: vec![None; inputs.len()],
        }),
    };
    match &places[..] {
        [only] => runs.work(only, &run, |run| (run(), None)),
        several => thread::scope(|scope| {
            let run = |input: &Path, common: &Common| {
                run(input, common).map_err(|error| common.of_gpu(error))
            };
            for common in several {
                let (runs, run) = (&runs, run);
                scope.spawn(move || {
                    runs.work(common, &run, |run| {
                        let (exit, lines) = json::held(run);
                        (exit, Some(lines))
                    });
                });
            }
        }),
    }
    let ended = runs.state.into_inner().unwrap_or_else(PoisonError::into_inner).ended;
    if !common.quiet || ended.failed > 0 {
        note!("{}", ended.text());
    }
    Ok(ended.exit())
}

/// Runs of a batch, which one thread or several take in order.
struct Runs<'a> {
    inputs: &'a [PathBuf],
    next: AtomicUsize,
    state: Mutex<State>,
}

/// Ends of the runs, and output that is printed after that of the runs before.
struct State {
    ended: Ended,
    /// Runs whose output is printed.
    printed: usize,
    waiting: Vec<Option<String>>,
}

impl Runs<'_> {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `run` for one input after another until none is left or the user asks to stop; `call` calls it and returns its output
    /// if it is not printed yet.
    fn work(
        &self,
        common: &Common,
        run: &impl Fn(&Path, &Common) -> Result<Exit>,
        call: impl Fn(&dyn Fn() -> Exit) -> (Exit, Option<String>),
    ) {
        loop {
            if interrupt::requested() && self.next.load(Ordering::Relaxed) < self.inputs.len() {
                self.state().ended.stop();
                return;
            }
            let index = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(input) = self.inputs.get(index) else { return };
            if !common.quiet {
                note!("{} of {}: {}", index + 1, self.inputs.len(), input.display());
            }
            let command_line = of_one(&common.command_line, input);
            let own = Common { command_line, is_batch: true, ..common.clone() };
            let (exit, lines) = call(&|| isolated(common, || run(input, &own)).exit);
            let mut state = self.state();
            let exit =
                state.print(index, lines).map_or_else(|error| errors::report(&error), |()| exit);
            if exit == Exit::Interrupted {
                state.ended.stop();
                return;
            }
            state.ended.count(exit);
        }
    }
}

impl State {
    /// Prints the output of a run after that of all runs before it.
    fn print(&mut self, index: usize, lines: Option<String>) -> Result<()> {
        let Some(lines) = lines else { return Ok(()) };
        self.waiting[index] = Some(lines);
        while let Some(lines) = self.waiting.get_mut(self.printed).and_then(Option::take) {
            self.printed += 1;
            json::print_lines(&lines)?;
        }
        Ok(())
    }
}

/// Returns the command line of the run of one input, as its product records it.
pub(crate) fn of_one(all: &CommandLine, input: &Path) -> CommandLine {
    let mut own = all.clone();
    let input = Value::Array(vec![Value::String(input.to_string_lossy().into_owned())]);
    own.options.insert("inputs".to_owned(), input);
    own
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exit_code_is_that_of_all_failures() {
        let mut ended = Ended::new(5);
        ended.count(Exit::Success);
        ended.count(Exit::Damaged);
        ended.count(Exit::Damaged);
        assert_eq!(ended.exit(), Exit::Damaged);
        assert_eq!(ended.text(), "1 of 5 done, 2 failed, 2 not begun");
        ended.count(Exit::WrongUse);
        assert_eq!(ended.exit(), Exit::Failed);
        ended.count(Exit::Success);
        assert_eq!(ended.text(), "2 of 5 done, 3 failed");
        ended.stop();
        assert_eq!(ended.exit(), Exit::Interrupted);
    }

    #[test]
    fn two_inputs_have_two_outputs() {
        let inputs = ["a/x.fil", "b/x.fil"].map(PathBuf::from);
        check_apart(&inputs, |input| input.with_extension("out")).unwrap();
        let place = |input: &Path| PathBuf::from(input.file_stem().unwrap_or_default());
        let message = check_apart(&inputs, place).unwrap_err().to_string();
        for word in ["the output is x", "a/x.fil and b/x.fil"] {
            assert!(message.contains(word), "{message}");
        }
        let stream = check_apart(&["-".into()], Path::to_path_buf).unwrap_err();
        assert_eq!(
            stream.to_string(),
            "an input is standard input, but --each takes files, not streams"
        );
    }
}
