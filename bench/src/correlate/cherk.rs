//! Times OpenBLAS's `cherk`, through SciPy, in a child process that runs alternately with the X-engine.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use sidereal::{Error, Result};

const SCRIPT: &str = include_str!("../../../benches/correlate_cherk.py");

/// Python process that waits for shapes to measure.
pub(super) struct Cherk {
    child: Child,
    shapes: Option<ChildStdin>,
    rates: BufReader<ChildStdout>,
}

impl Cherk {
    /// Starts a Python that has SciPy.
    ///
    /// # Errors
    /// [`Error::Io`] when it cannot be started.
    pub(super) fn start(python: &Path) -> Result<Self> {
        let mut command = Command::new(python);
        command.args(["-c", SCRIPT]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|source| Error::io(python, source))?;
        let (shapes, rates) = (child.stdin.take(), child.stdout.take());
        let rates = rates.ok_or_else(|| failed("its output can't be read"))?;
        Ok(Self { child, shapes, rates: BufReader::new(rates) })
    }

    /// Returns the best rate of one core in `seconds`, in 10^9 operations per second.
    ///
    /// # Errors
    /// [`Error::Unavailable`] when the process ended.
    pub(super) fn rate(&mut self, inputs: usize, times: usize, seconds: f64) -> Result<f64> {
        let ended = || failed("it ended; has that Python got NumPy and SciPy?");
        let shapes = self.shapes.as_mut().ok_or_else(ended)?;
        let asked = writeln!(shapes, "{inputs} {times} {seconds}").and_then(|()| shapes.flush());
        asked.map_err(|_| ended())?;
        let mut line = String::new();
        self.rates.read_line(&mut line).map_err(|_| ended())?;
        line.trim().parse().map_err(|_| ended())
    }
}

impl Drop for Cherk {
    fn drop(&mut self) {
        drop(self.shapes.take());
        let _ = self.child.wait();
    }
}

fn failed(why: &str) -> Error {
    Error::Unavailable { what: "the rate of cherk".to_owned(), why: why.to_owned() }
}
