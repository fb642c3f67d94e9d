//! Commands that events start (`--on-event`): without a shell, one at a time, with a time limit.

use std::io::{self, PipeReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{Access, OFlags, access, fcntl_setfl};
use rustix::process::{Pid, Signal, kill_process_group};
use serde::Serialize;
use sidereal::{Error, Result};
use tracing::Level;

use super::event::Event;
use super::worker::{Fates, Worker};
use crate::say::{self, warning};
use crate::{interrupt, json};

/// Most events that wait for the command.
const WAITING: usize = 64;

/// Most bytes of a command's output that are logged.
const MOST_OUTPUT: usize = 4096;

/// Time between two looks at a command that runs.
const STEP: Duration = Duration::from_millis(10);

/// Longest time that a command has after a request to stop; the program itself may end 0.7 s after it.
const GRACE: Duration = Duration::from_millis(500);

/// Message about an event.
pub(crate) trait Message: Serialize + Send + 'static {
    /// Returns the identifier of the event.
    fn id(&self) -> &str;

    /// Returns the name of the event's state.
    fn state(&self) -> &'static str;
}

impl Message for Event {
    fn id(&self) -> &str {
        &self.id
    }

    fn state(&self) -> &'static str {
        self.state.name()
    }
}

/// Command with its arguments.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Hook {
    program: PathBuf,
    arguments: Vec<String>,
    limit: Duration,
}

impl Hook {
    /// Splits a command as a shell does, and finds its program.
    ///
    /// # Errors
    /// [`Error::Parameter`] for an open quote, or a program that cannot be run.
    pub(crate) fn new(command: &str, limit_s: f64) -> Result<Self> {
        let option = "--on-event";
        let words = split(command).map_err(|rule| Error::parameter(option, command, rule))?;
        let mut words = words.into_iter();
        let Some(name) = words.next().filter(|name| !name.is_empty()) else {
            return Err(Error::parameter(option, command, "expected a program and its arguments"));
        };
        let program = find(&name).ok_or_else(|| {
            let rule = "its program must be an executable file, by its path or in PATH";
            Error::parameter(option, command, rule)
        })?;
        let limit = Duration::from_secs_f64(limit_s);
        Ok(Self { program, arguments: words.collect(), limit })
    }

    /// Returns the longest time that one event takes.
    pub(crate) fn limit(&self) -> Duration {
        self.limit
    }

    /// Starts the thread that runs the command for each event.
    ///
    /// # Errors
    /// As [`Worker::start`].
    pub(crate) fn start<M: Message>(self) -> Result<Worker<M>> {
        let (mut patience, mut has_warned) = (Patience::default(), false);
        Worker::start("on-event", WAITING, move |event: M, fates: &Fates| {
            if patience.is_over(fates) {
                return;
            }
            match self.run(&event, &mut patience, fates) {
                Ok(()) => Fates::count(&fates.done),
                Err(why) => {
                    Fates::count(&fates.failed);
                    let words = format!("--on-event of {} ({}): {why}", event.id(), event.state());
                    if std::mem::replace(&mut has_warned, true) {
                        say::log(Level::WARN, &words);
                    } else {
                        warning!(quiet: false, "{words}; further failures are only logged.");
                    }
                }
            }
        })
    }

    /// Runs the command for an event, and logs what it prints.
    fn run(
        &self,
        event: &impl Message,
        patience: &mut Patience,
        fates: &Fates,
    ) -> std::result::Result<(), String> {
        let text = json::line(event).map_err(|error| error.to_string())?;
        let (mut output, writer) = io::pipe().map_err(|error| error.to_string())?;
        fcntl_setfl(&output, OFlags::NONBLOCK).map_err(|error| error.to_string())?;
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).stdin(Stdio::piped());
        let errors = writer.try_clone().map_err(|error| error.to_string())?;
        // A process group of its own, so that its child processes can be killed too.
        command.stdout(writer).stderr(errors).process_group(0);
        let mut child = command.spawn().map_err(|error| error.to_string())?;
        // This program's ends of the pipe are closed with the command.
        drop(command);
        if let Some(mut input) = child.stdin.take() {
            // A new pipe has space for it; a command that reads nothing is no fault.
            let _ = input.write_all(format!("{text}\n").as_bytes());
        }
        let mut printed = Vec::new();
        let is_unwanted = || patience.is_over(fates);
        let status = self.wait(&mut child, &mut output, &mut printed, is_unwanted);
        drain(&mut output, &mut printed);
        if !printed.is_empty() {
            let words = String::from_utf8_lossy(&printed);
            say::log(Level::INFO, &format!("--on-event of {}: {}", event.id(), words.trim_end()));
        }
        match status? {
            status if status.success() => Ok(()),
            status => Err(format!("it ended with {status}")),
        }
    }

    fn wait(
        &self,
        child: &mut Child,
        output: &mut PipeReader,
        printed: &mut Vec<u8>,
        mut is_unwanted: impl FnMut() -> bool,
    ) -> std::result::Result<ExitStatus, String> {
        let begin = Instant::now();
        loop {
            if let Some(status) = child.try_wait().map_err(|error| error.to_string())? {
                return Ok(status);
            }
            drain(output, printed);
            let is_late = begin.elapsed() >= self.limit;
            if is_late || is_unwanted() {
                // The child is not waited for yet, so that its number is still its own.
                let _ = kill_process_group(Pid::from_child(child), Signal::KILL);
                let _ = child.wait();
                let limit_s = self.limit.as_secs_f64();
                return Err(if is_late {
                    format!("it was ended after {limit_s} s")
                } else {
                    "it was ended with this program".to_owned()
                });
            }
            thread::sleep(STEP);
        }
    }
}

/// Time since a request to stop was first seen.
#[derive(Debug, Default)]
struct Patience(Option<Instant>);

impl Patience {
    /// Returns whether the program ends, or was asked to stop and commands have had their time since then.
    fn is_over(&mut self, fates: &Fates) -> bool {
        fates.is_over()
            || interrupt::requested() && self.0.get_or_insert_with(Instant::now).elapsed() >= GRACE
    }
}

/// Reads what a command has printed; keeps the first bytes.
fn drain(output: &mut PipeReader, printed: &mut Vec<u8>) {
    let mut bytes = [0; 4096];
    // A command that prints without end must not keep the thread from its time limit.
    for _ in 0..64 {
        match output.read(&mut bytes) {
            Ok(count) if count > 0 => {
                let space = MOST_OUTPUT.saturating_sub(printed.len());
                printed.extend(&bytes[..count.min(space)]);
            }
            _ => return,
        }
    }
}

/// Finds a program by its path, or in the folders of PATH.
fn find(name: &str) -> Option<PathBuf> {
    let is_program = |path: &Path| path.is_file() && access(path, Access::EXEC_OK).is_ok();
    if name.contains('/') {
        let path = PathBuf::from(name);
        return is_program(&path).then_some(path);
    }
    let folders = std::env::var_os("PATH")?;
    std::env::split_paths(&folders).map(|folder| folder.join(name)).find(|path| is_program(path))
}

/// Splits a command into words as a shell does: quotes and backslashes, and nothing else.
fn split(command: &str) -> std::result::Result<Vec<String>, &'static str> {
    let (mut words, mut word) = (Vec::new(), None::<String>);
    let mut letters = command.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\'' => {
                let word = word.get_or_insert_default();
                loop {
                    match letters.next() {
                        Some('\'') => break,
                        Some(letter) => word.push(letter),
                        None => return Err("it has a ' without its end"),
                    }
                }
            }
            '"' => {
                let word = word.get_or_insert_default();
                loop {
                    match letters.next() {
                        Some('"') => break,
                        Some('\\') => match letters.next() {
                            Some(letter @ ('"' | '\\' | '$' | '`')) => word.push(letter),
                            Some(letter) => word.extend(['\\', letter]),
                            None => return Err("it has a \" without its end"),
                        },
                        Some(letter) => word.push(letter),
                        None => return Err("it has a \" without its end"),
                    }
                }
            }
            '\\' => match letters.next() {
                Some(letter) => word.get_or_insert_default().push(letter),
                None => return Err("it ends with a backslash"),
            },
            letter if letter.is_whitespace() => words.extend(word.take()),
            letter => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::super::event::EventState;
    use super::super::event::tests::event;
    use super::*;

    #[test]
    fn words_are_split_as_by_a_shell() {
        let words = |text: &str| split(text).map(|words| words.join("|"));
        assert_eq!(words("a  b\tc").unwrap(), "a|b|c");
        assert_eq!(
            words(r#"mail -s "new FRB" 'a "b" $HOME' "#).unwrap(),
            r#"mail|-s|new FRB|a "b" $HOME"#
        );
        assert_eq!(words(r#"a\ b "c\"d\e" x''y"#).unwrap(), r#"a b|c"d\e|xy"#);
        assert_eq!(split("a '' b").unwrap().len(), 3);
        for text in ["'a", "\"a", "a\\", "\"a\\"] {
            assert!(split(text).is_err(), "{text}");
        }
    }

    #[test]
    fn programs_are_found_or_named() {
        assert!(Hook::new("sh -c true", 1.0).is_ok());
        for command in ["", "''", "/tmp", "/no/such/program", "no-such-program-anywhere", "'a"] {
            let why = Hook::new(command, 1.0).unwrap_err().to_string();
            assert!(why.contains("--on-event"), "{command}: {why}");
        }
    }

    fn run(script: &str, limit_s: f64) -> std::result::Result<(), String> {
        let hook = Hook {
            program: "/bin/sh".into(),
            arguments: vec!["-c".into(), script.into()],
            limit: Duration::from_secs_f64(limit_s),
        };
        hook.run(&event(EventState::Initial), &mut Patience::default(), &Fates::default())
    }

    #[test]
    fn a_command_has_the_event_on_its_input() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("event.json");
        run(&format!("cat > {}", path.display()), 10.0).unwrap();
        let text = std::fs::read_to_string(path).unwrap();
        let found: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(found["id"], "2023-02-25-12-00-00_0003");
        assert_eq!((&found["state"], &found["dm"]), (&"initial".into(), &350.5.into()));
        assert_eq!(text.lines().count(), 1);
    }

    #[test]
    fn commands_that_fail_hang_or_print_without_end_are_ended() {
        assert_eq!(run("exit 3", 10.0).unwrap_err(), "it ended with exit status: 3");
        let begin = Instant::now();
        // The group is ended, also what runs in the background and ignores other signals.
        let script = "trap '' TERM HUP INT; yes & sleep 60";
        assert_eq!(run(script, 0.3).unwrap_err(), "it was ended after 0.3 s");
        assert!(begin.elapsed() < Duration::from_secs(5));
        run("exec < /dev/null; head -c 1000000 /dev/zero", 10.0).unwrap();
    }
}
