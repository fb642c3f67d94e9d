//! Exit codes of the program.

use std::io::ErrorKind;
use std::process::ExitCode;

use sidereal::Error;
use tracing::Level;

use crate::say;

/// Exit code of the program, which scripts and services evaluate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Success, also for a truncated recording, which causes a warning.
    Success = 0,
    /// Any other failure.
    Failed = 1,
    /// Options or arguments are wrong; clap uses the same code.
    WrongUse = 2,
    /// An input violates its format.
    Damaged = 3,
    /// A disk, a quota or the largest file size is exceeded.
    DiskFull = 4,
    /// A GPU failed or was lost during the run.
    DeviceLost = 5,
    /// SIGINT, SIGTERM or SIGHUP stopped the run, whether its product was kept or not.
    Interrupted = 130,
}

impl Exit {
    /// Returns the exit code for an error.
    pub(crate) fn after(error: &Error) -> Self {
        match error {
            _ if error.is_stop() => Self::Interrupted,
            Error::Parameter { .. } => Self::WrongUse,
            Error::Format { .. } => Self::Damaged,
            Error::Device { .. } => Self::DeviceLost,
            Error::Io { source, .. } if is_full(source.kind()) => Self::DiskFull,
            Error::Io { source, .. } if source.kind() == ErrorKind::UnexpectedEof => Self::Damaged,
            _ => Self::Failed,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

impl From<()> for Exit {
    fn from((): ()) -> Self {
        Self::Success
    }
}

/// Writes the exit code to the log as its last line.
pub(crate) fn log_end(exit: Exit) {
    say::log(Level::INFO, &format!("ended with exit code {}", exit as u8));
}

pub(crate) fn is_full(kind: ErrorKind) -> bool {
    use ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(kind, StorageFull | QuotaExceeded | FileTooLarge)
}
