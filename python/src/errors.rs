//! Errors of the library as Python's exceptions, and signals that Python has received.

use std::fmt::Display;

use pyo3::exceptions::PyMemoryError;
use pyo3::import_exception;
use pyo3::prelude::*;
use sidereal::Error;

import_exception!(sidereal_dsp._errors, DeviceError);
import_exception!(sidereal_dsp._errors, FileError);
import_exception!(sidereal_dsp._errors, FormatError);
import_exception!(sidereal_dsp._errors, ParameterError);
import_exception!(sidereal_dsp._errors, UnavailableError);

/// Converts an error of the library to the exception of its kind.
pub(crate) fn raised(error: Error) -> PyErr {
    let text = error.to_string();
    match error {
        Error::Shape { .. } | Error::Parameter { .. } => ParameterError::new_err(text),
        Error::Format { .. } => FormatError::new_err(text),
        Error::Unavailable { what, .. } if what.starts_with("memory") => {
            PyMemoryError::new_err(text)
        }
        Error::Unavailable { .. } => UnavailableError::new_err(text),
        Error::Device { .. } | Error::Overrun { .. } => DeviceError::new_err(text),
        Error::Io { path, source } => {
            let path = path.display().to_string();
            // The text of the system without Rust's suffix, as Python's own errors have it.
            let why = source.to_string();
            let why = why.split(" (os error").next().unwrap_or_default().to_owned();
            FileError::new_err((source.raw_os_error(), why, path))
        }
        // The library may get further kinds.
        _ => UnavailableError::new_err(text),
    }
}

/// Returns the exception for an argument that violates a rule.
pub(crate) fn refused(name: &'static str, value: impl Display, rule: impl Into<String>) -> PyErr {
    raised(Error::parameter(name, value.to_string(), rule))
}

/// Runs work without Python's lock, so that other Python threads go on, and converts its error.
///
/// # Errors
/// The exception for the work's error.
pub(crate) fn detached<T: Send>(
    py: Python<'_>,
    work: impl FnOnce() -> sidereal::Result<T> + Send,
) -> PyResult<T> {
    py.detach(work).map_err(raised)
}

/// First exception that Python code raised during a run of the library: a signal handler's or a callback's.
#[derive(Debug, Default)]
pub(crate) struct Interruption {
    exception: Option<PyErr>,
}

impl Interruption {
    /// Runs Python code from a thread without Python's lock, unless an exception was raised before; returns whether
    /// the run goes on.
    pub(crate) fn goes_on(&mut self, code: impl FnOnce(Python<'_>) -> PyResult<()>) -> bool {
        if self.exception.is_none() {
            self.exception = Python::attach(|py| code(py).err());
        }
        self.exception.is_none()
    }

    /// Runs the handlers of signals that have arrived; returns whether the run goes on.
    pub(crate) fn no_signal(&mut self) -> bool {
        self.goes_on(|py| py.check_signals())
    }

    /// Returns a run's result, or the exception that ended it.
    ///
    /// # Errors
    /// The exception of Python code; otherwise that of the run's error.
    pub(crate) fn result<T>(self, result: sidereal::Result<T>) -> PyResult<T> {
        match self.exception {
            Some(exception) => Err(exception),
            None => result.map_err(raised),
        }
    }
}
