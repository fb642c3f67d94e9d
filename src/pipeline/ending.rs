//! How a run over a recording or a stream ends.
//!
//! Invariant: whatever ends a run, what was found before is reported.

use std::sync::Arc;

use crate::error::{Error, Result};

/// How a run ended, and why before its time.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Ending {
    /// The source was read to its end.
    Complete,
    /// The recording is cut short: all of it but its last, broken piece was used. Says what is missing.
    Cut(String),
    /// The observer asked to stop.
    Stopped,
    /// Reading or processing failed; what came before is reported.
    Failed(Arc<Error>),
}

impl Ending {
    /// Returns how a run ends that met an error: stopped if that is all it says ([`Error::is_stop`]).
    pub fn after(error: Error) -> Self {
        if error.is_stop() { Self::Stopped } else { Self::Failed(Arc::new(error)) }
    }

    /// Returns how a run ends that read its source to the end, which says what it lacks where it is cut short.
    pub fn of_source(cut: Option<&str>) -> Self {
        cut.map_or(Self::Complete, |why| Self::Cut(why.to_owned()))
    }

    /// Returns the error of a failed run that found nothing before it; every other ending as it is.
    ///
    /// # Errors
    /// The error that ended the run.
    pub fn or_error(self, found: bool) -> Result<Self> {
        match self {
            Self::Failed(error) if !found => {
                Arc::try_unwrap(error).map_or_else(|shared| Ok(Self::Failed(shared)), Err)
            }
            other => Ok(other),
        }
    }

    /// Returns the error of a run that has no use for what came before its end.
    pub fn error(self) -> Error {
        match self {
            Self::Failed(error) => Arc::try_unwrap(error).unwrap_or_else(|error| {
                let what = "the rest of the run".to_owned();
                Error::Unavailable { what, why: error.to_string() }
            }),
            Self::Complete | Self::Cut(_) | Self::Stopped => Error::stopped("the run"),
        }
    }

    /// Returns whether the source was read to its end, be it cut short or not.
    pub fn is_read(&self) -> bool {
        matches!(self, Self::Complete | Self::Cut(_))
    }

    /// Returns whether all of a whole recording was used.
    pub fn is_complete(&self) -> bool {
        matches!(self, Self::Complete)
    }

    /// Returns why the run is not complete, as products say it; `None` for one that is.
    pub fn reason(&self) -> Option<String> {
        match self {
            Self::Complete => None,
            Self::Cut(why) => Some(why.clone()),
            Self::Stopped => Some("stopped on request".to_owned()),
            Self::Failed(error) => Some(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_that_was_stopped_is_no_failure() {
        assert!(matches!(Ending::after(Error::stopped("a.fil")), Ending::Stopped));
        let refused = Error::io("a.fil", std::io::ErrorKind::Interrupted.into());
        assert!(matches!(Ending::after(refused), Ending::Failed(_)));
    }

    #[test]
    fn only_a_whole_run_has_no_reason() {
        assert!(Ending::Complete.is_complete() && Ending::Complete.reason().is_none());
        let failed =
            Ending::Failed(Arc::new(Error::io("a.fil", std::io::ErrorKind::TimedOut.into())));
        for (ending, word) in [
            (Ending::Cut("a.fil: half a row".to_owned()), "half"),
            (Ending::Stopped, "request"),
            (failed, "a.fil"),
        ] {
            assert!(!ending.is_complete() && ending.reason().is_some_and(|why| why.contains(word)));
        }
    }
}
