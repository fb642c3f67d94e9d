//! The one error type: kinds of fault, each with its numbers.
//!
//! Invariant: depends on nothing in this crate.

use std::fmt;
use std::path::PathBuf;

/// What went wrong, with the numbers that a caller needs to mend it.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// A buffer has the wrong length.
    Shape {
        /// The buffer or axis.
        what: &'static str,
        /// The length that the plan asks for.
        expected: usize,
        /// The length found.
        actual: usize,
    },
    /// A parameter breaks a rule.
    Parameter {
        /// The parameter, as a user would write it.
        name: &'static str,
        /// The value found.
        value: String,
        /// The rule that it breaks.
        rule: String,
    },
    /// A file does not hold what its format promises.
    Format {
        /// The file (`-` is standard input).
        path: PathBuf,
        /// The header field or table column at fault.
        field: String,
        /// The byte at which it stands, counted from the file's start; 0 also where only the field is known.
        offset: u64,
        /// What was found and what was expected.
        why: String,
    },
    /// Something that this machine, build or file lacks.
    Unavailable {
        /// What was asked for.
        what: String,
        /// Why it can't be had, and what would help.
        why: String,
    },
    /// A call to a device driver failed.
    Device {
        /// The call.
        call: &'static str,
        /// The driver's code.
        code: i64,
        /// The driver's text.
        text: String,
    },
    /// Data came faster than a stage took them.
    Overrun {
        /// The stage that was too slow.
        stage: &'static str,
        /// Samples lost.
        lost: u64,
    },
    /// The operating system refused a read or a write.
    Io {
        /// The file.
        path: PathBuf,
        /// The system's own error.
        source: std::io::Error,
    },
}

/// `Result` with this crate's [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// A [`Error::Parameter`] from anything printable.
    pub fn parameter(
        name: &'static str,
        value: impl fmt::Display,
        rule: impl Into<String>,
    ) -> Self {
        Self::Parameter { name, value: value.to_string(), rule: rule.into() }
    }

    /// A [`Error::Format`] at a byte of a file.
    pub fn format(
        path: impl Into<PathBuf>,
        field: impl Into<String>,
        offset: u64,
        why: impl Into<String>,
    ) -> Self {
        Self::Format { path: path.into(), field: field.into(), offset, why: why.into() }
    }

    /// A [`Error::Io`] of a file.
    pub fn io(path: impl Into<PathBuf>, source: std::io::Error) -> Self {
        Self::Io { path: path.into(), source }
    }

    /// A read of a file that ended because the user asked to stop.
    ///
    /// Its kind is not `Interrupted`: the standard library repeats such reads.
    pub fn stopped(path: impl Into<PathBuf>) -> Self {
        Self::io(path, std::io::Error::other(Stopped))
    }

    /// Returns whether it says only that the user asked to stop ([`Error::stopped`]).
    pub fn is_stop(&self) -> bool {
        let Self::Io { source, .. } = self else { return false };
        source.get_ref().is_some_and(|inner| inner.is::<Stopped>())
    }
}

/// What a read gives that ended because the user asked to stop: the inner error of an [`std::io::Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stopped;

impl fmt::Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("stopped on request")
    }
}

impl std::error::Error for Stopped {}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shape { what, expected, actual } => {
                write!(f, "{what} has length {actual}, expected {expected}")
            }
            Self::Parameter { name, value, rule } => write!(f, "{name} is {value}, but {rule}"),
            // Formats without bytes of their own to name (HDF5, text) name the object alone.
            Self::Format { path, field, offset: 0, why } => {
                write!(f, "{}: {field}: {why}", path.display())
            }
            Self::Format { path, field, offset, why } => {
                write!(f, "{}: {field} (at byte {offset}): {why}", path.display())
            }
            Self::Unavailable { what, why } => write!(f, "{what} is not available: {why}"),
            Self::Device { call, code, text } => {
                write!(f, "{call} failed with code {code}: {text}")
            }
            Self::Overrun { stage, lost } => {
                write!(f, "{stage} was too slow: {lost} samples were lost")
            }
            Self::Io { path, source } => write!(f, "{}: {source}", path.display()),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}
