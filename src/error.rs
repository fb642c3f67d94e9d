//! The crate's error type.
//!
//! Invariant: depends on nothing in this crate.

use std::fmt;
use std::path::PathBuf;

/// Kinds of errors, with the values a caller needs to correct them.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// A buffer has the wrong length.
    Shape {
        /// The buffer or axis.
        what: &'static str,
        /// The required length.
        expected: usize,
        /// The length found.
        actual: usize,
    },
    /// A parameter violates a constraint.
    Parameter {
        /// Field of the options, qualified if several options have it (`array.times`), or the quantity in words.
        name: &'static str,
        /// Its value.
        value: Value,
        /// The violated constraint; fields of options are in back quotes.
        rule: String,
    },
    /// A file violates its format.
    Format {
        /// The file (`-` is standard input).
        path: PathBuf,
        /// The header field or table column at fault.
        field: String,
        /// Byte offset in the file; 0 if only the field is known.
        offset: u64,
        /// Found and expected values.
        why: String,
    },
    /// A resource missing from this machine, build or file.
    Unavailable {
        /// The requested resource.
        what: String,
        /// Why it is unavailable, and a remedy.
        why: String,
    },
    /// A call to a device driver failed.
    Device {
        /// The call.
        call: &'static str,
        /// The driver's error code.
        code: i64,
        /// The driver's message.
        text: String,
    },
    /// Data arrived faster than a stage processed them.
    Overrun {
        /// The stage that was too slow.
        stage: &'static str,
        /// Samples lost.
        lost: u64,
    },
    /// The operating system failed a file operation.
    Io {
        /// The file.
        path: PathBuf,
        /// The system's own error.
        source: std::io::Error,
    },
}

/// Value of a parameter at fault.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A whole number.
    Integer(i128),
    /// A real number; an `f32` becomes the `f64` with the same shortest decimal digits.
    Float(f64),
    /// Anything else, as it is printed.
    Text(String),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integer(number) => number.fmt(f),
            Self::Float(number) => number.fmt(f),
            Self::Text(text) => text.fmt(f),
        }
    }
}

/// Implements `From` for a type and references to it.
macro_rules! value_from {
    ($($type:ty),* => $make:expr) => {$(
        impl From<$type> for Value {
            fn from(value: $type) -> Self {
                $make(value)
            }
        }

        impl From<&$type> for Value {
            fn from(value: &$type) -> Self {
                $make(value.clone())
            }
        }
    )*};
}
value_from!(u8, u16, u32, u64, i8, i16, i32, i64 => |value| Self::Integer(i128::from(value)));
value_from!(usize, isize => |value| Self::Integer(value as i128));
value_from!(f64 => Self::Float);
value_from!(f32 => |value: f32| Self::Float(value.to_string().parse().unwrap_or(value.into())));
value_from!(String => Self::Text);

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<std::path::Display<'_>> for Value {
    fn from(path: std::path::Display<'_>) -> Self {
        Self::Text(path.to_string())
    }
}

/// `Result` with this crate's [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

/// Text before the number of a GPU in the error of its driver.
const ON_DEVICE: &str = ", on CUDA device ";

impl Error {
    /// Makes an [`Error::Parameter`].
    pub fn parameter(name: &'static str, value: impl Into<Value>, rule: impl Into<String>) -> Self {
        Self::Parameter { name, value: value.into(), rule: rule.into() }
    }

    /// Adds the number of a GPU to the error of its driver, unless it names one.
    #[must_use]
    pub fn on_device(self, ordinal: usize) -> Self {
        match self {
            Self::Device { call, code, text } if text.contains(ON_DEVICE) => {
                Self::Device { call, code, text }
            }
            Self::Device { call, code, text } => {
                Self::Device { call, code, text: format!("{text}{ON_DEVICE}{ordinal}") }
            }
            other => other,
        }
    }

    /// Makes an [`Error::Format`] at a byte of a file.
    pub fn format(
        path: impl Into<PathBuf>,
        field: impl Into<String>,
        offset: u64,
        why: impl Into<String>,
    ) -> Self {
        Self::Format { path: path.into(), field: field.into(), offset, why: why.into() }
    }

    /// Makes an [`Error::Io`] for a file.
    pub fn io(path: impl Into<PathBuf>, source: std::io::Error) -> Self {
        Self::Io { path: path.into(), source }
    }

    /// Makes the error of a read that ended because the user asked to stop.
    ///
    /// Its kind is not `Interrupted`, because the standard library retries such reads.
    pub fn stopped(path: impl Into<PathBuf>) -> Self {
        Self::io(path, std::io::Error::other(Stopped))
    }

    /// Returns whether this is an error of [`Error::stopped`].
    pub fn is_stop(&self) -> bool {
        let Self::Io { source, .. } = self else { return false };
        source.get_ref().is_some_and(|inner| inner.is::<Stopped>())
    }
}

/// Inner error of the [`std::io::Error`] of a read that ended because the user asked to stop.
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
            // Offset 0: the format (HDF5, text) has no byte offset to report.
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
