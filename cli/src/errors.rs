//! How a fault is told: one error in full sentences, with a hint, and an exit code.

use std::io::ErrorKind;
use std::process::ExitCode;

use sidereal::Error;

use crate::{interrupt, output};

/// Exit code of wrong use.
const WRONG_USE: u8 = 2;
/// Exit code of every other fault.
const FAILED: u8 = 1;
/// Exit code after Ctrl-C, as shells have it.
const INTERRUPTED: u8 = 130;

/// Tells an error to the user, and gives the exit code.
pub(crate) fn report(error: &Error) -> ExitCode {
    if interrupt::requested() {
        eprintln!("sidereal: stopped on request; nothing unfinished was left behind.");
        return ExitCode::from(INTERRUPTED);
    }
    if is_broken_pipe(error) {
        // Whoever read our output has had enough, as `head` does.
        return ExitCode::SUCCESS;
    }
    eprintln!("sidereal: {}", sentence(&named(&error.to_string())));
    if let Some(hint) = hint(error) {
        eprintln!("          {hint}");
    }
    ExitCode::from(if matches!(error, Error::Parameter { .. }) { WRONG_USE } else { FAILED })
}

fn is_broken_pipe(error: &Error) -> bool {
    matches!(error, Error::Io { source, path }
        if source.kind() == ErrorKind::BrokenPipe && path.as_os_str() == "standard output")
}

/// A message with the names that a user knows: files' final ones, and standard input's.
fn named(message: &str) -> String {
    let message = output::with_final_names(message);
    message
        .strip_prefix("-: ")
        .map_or_else(|| message.clone(), |rest| format!("standard input: {rest}"))
}

fn sentence(words: &str) -> String {
    if words.ends_with(['.', '!', '?']) { words.to_owned() } else { format!("{words}.") }
}

fn hint(error: &Error) -> Option<&'static str> {
    Some(match error {
        Error::Parameter { .. } => "`sidereal help VERB` lists the options and what they take.",
        Error::Format { field, .. } => return format_hint(field),
        Error::Io { source, .. } => return io_hint(source.kind()),
        Error::Shape { .. } => "This is a fault of sidereal; please report it with your command.",
        Error::Overrun { .. } => "More --threads or fewer trial DMs make it faster.",
        _ => return None,
    })
}

/// A value out of range speaks for itself; what is missing may have been cut off.
fn format_hint(field: &str) -> Option<&'static str> {
    const STRUCTURE: [&str; 9] =
        ["file", "data", "HEADER_START", "keyword", "END", "NAXIS2", "FITSTYPE", "HDF5", "CLASS"];
    STRUCTURE.contains(&field).then_some(
        "The file may be cut short or of another format; `sidereal help info` lists those known.",
    )
}

fn io_hint(kind: ErrorKind) -> Option<&'static str> {
    Some(match kind {
        ErrorKind::NotFound => "Check the spelling of the path.",
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
            "Check who may read or write there, or choose another place with --output."
        }
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => {
            "Free some space, or choose another place with --output; nothing half-written was left."
        }
        _ => return None,
    })
}

/// Replaces the runtime's panic message by one for users.
pub(crate) fn soften_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let payload = panic.payload();
        let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        eprintln!(
            "sidereal: an internal fault stopped the work ({}, {place}).\n          \
             Please report it, with the command that you typed.",
            text.unwrap_or_else(|| "no further word".to_owned())
        );
    }));
}

/// The exit code after a panic.
pub(crate) fn after_panic() -> ExitCode {
    ExitCode::from(FAILED)
}
