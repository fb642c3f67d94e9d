//! Reports the end of a run: errors in full sentences with the options' names and a hint, and the exit code.

use std::io::ErrorKind;
use std::path::Path;

use sidereal::Error;
use sidereal::pipeline::Ending;

use crate::flags::{named, text};
use crate::interrupt::{self, Exit, is_full};
use crate::say;
use crate::say::{fault, more, sentence};

/// Reports an error that left no product; returns the exit code.
pub(crate) fn report(error: &Error) -> Exit {
    if interrupt::requested() || error.is_stop() {
        if !error.is_stop() {
            tell(error, "");
        }
        // Other ranks write no files.
        let left = if say::rank() == 0 { "; no unfinished file remains" } else { "" };
        fault!("stopped on request{left}.");
        return Exit::Interrupted;
    }
    if is_broken_pipe(error) {
        // The reader of our output has closed it, as `head` does.
        return Exit::Success;
    }
    let streams = matches!(error, Error::Io { path, .. } if path.as_os_str() == "standard output");
    tell(error, if streams { "" } else { "; nothing half-written was left" });
    Exit::after(error)
}

/// Reports the end of a run whose product is published at `place`; returns the exit code.
///
/// Verbs call it after the product has its final name; its document has `"complete": false` unless the ending is
/// complete.
pub(crate) fn ended(ending: &Ending, place: &Path) -> Exit {
    let place = place.display();
    let kept = || more!("          What was found before is in {place}, marked as not complete.");
    match ending {
        Ending::Complete => Exit::Success,
        Ending::Stopped => {
            fault!(
                "stopped on request; what was found was kept in {place}, marked as not complete."
            );
            Exit::Interrupted
        }
        // Ctrl-C also reaches the other program of a pipeline, which may truncate the stream.
        Ending::Cut(why) => {
            say::warn_once(why, false);
            if interrupt::requested() { Exit::Interrupted } else { Exit::Success }
        }
        Ending::Failed(error) => {
            tell(error, "");
            kept();
            if interrupt::requested() { Exit::Interrupted } else { Exit::after(error) }
        }
        other => {
            let why = other.reason().unwrap_or_default();
            fault!("{}", sentence(&named(&why)));
            kept();
            Exit::Failed
        }
    }
}

/// Reports an error and its hint; `left` describes the fate of files that were being written.
fn tell(error: &Error, left: &str) {
    fault!("{}", sentence(&text(error)));
    match (error, hint(error)) {
        (Error::Io { source, .. }, Some(hint)) if is_full(source.kind()) => {
            more!("          {hint}{left}.");
        }
        (_, Some(hint)) => more!("          {hint}"),
        (_, None) => {}
    }
}

fn is_broken_pipe(error: &Error) -> bool {
    matches!(error, Error::Io { source, path }
        if source.kind() == ErrorKind::BrokenPipe && path.as_os_str() == "standard output")
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

/// Returns a hint for missing fields, which a truncated file explains; values out of range need none.
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
        kind if is_full(kind) => "Free some space, or choose another place with --output",
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
        fault!(
            "an internal fault stopped the work ({}, {place}).\n          \
             Please report it, with the command that you typed.",
            text.unwrap_or_else(|| "no further word".to_owned())
        );
    }));
}

/// Returns the exit code after a panic.
pub(crate) fn after_panic() -> Exit {
    Exit::Failed
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn kinds_of_failure_have_codes_of_their_own() {
        let io = |kind: ErrorKind| Error::io("a.fil", kind.into());
        let device = Error::Device { call: "cuLaunchKernel", code: 719, text: String::new() };
        let cases = [
            (Error::parameter("--snr", 0, "it must be above 0"), Exit::WrongUse, 2),
            (Error::format("a.fil", "nchans", 8, "found 0"), Exit::Damaged, 3),
            (io(ErrorKind::UnexpectedEof), Exit::Damaged, 3),
            (io(ErrorKind::StorageFull), Exit::DiskFull, 4),
            (io(ErrorKind::QuotaExceeded), Exit::DiskFull, 4),
            (io(ErrorKind::FileTooLarge), Exit::DiskFull, 4),
            (device, Exit::DeviceLost, 5),
            (Error::stopped("a.fil"), Exit::Interrupted, 130),
            (io(ErrorKind::NotFound), Exit::Failed, 1),
        ];
        let place = Path::new("out");
        assert_eq!(ended(&Ending::Complete, place), Exit::Success);
        assert_eq!(ended(&Ending::Cut("half a row".to_owned()), place), Exit::Success);
        assert_eq!(ended(&Ending::Stopped, place), Exit::Interrupted);
        for (error, exit, code) in cases {
            assert_eq!((Exit::after(&error), exit as u8), (exit, code), "{error}");
            assert_eq!(ended(&Ending::Failed(Arc::new(error)), place), exit);
        }
    }
}
