//! Progress, memory limit and end of a run over a recording or a stream.
//!
//! Invariant: whatever ends a run, what was found before is reported; results do not depend on the memory limit, only
//! blocks do.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::thread;

use crate::backend::threads::Threads;
use crate::error::{Error, Result};

/// Progress of a run.
#[derive(Clone, Copy, Debug)]
pub struct Status {
    /// Rows processed.
    pub times: u64,
    /// Total number of rows, if known.
    pub total: Option<u64>,
    /// Length of these rows, in seconds.
    pub data_s: f64,
    /// Elapsed time in seconds.
    pub elapsed_s: f64,
}

/// End state of a run, and the reason for an early end.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Ending {
    /// The source was read to its end.
    Complete,
    /// The recording is truncated: all but its last, incomplete piece was used. Describes the missing part.
    Cut(String),
    /// The observer asked to stop.
    Stopped,
    /// Reading or processing failed; earlier results are reported.
    Failed(Arc<Error>),
}

impl Ending {
    /// Returns the end state after an error: stopped for a stop request ([`Error::is_stop`]), else failed.
    pub fn after(error: Error) -> Self {
        if error.is_stop() { Self::Stopped } else { Self::Failed(Arc::new(error)) }
    }

    /// Returns the end state of a run that read its source to the end; `cut` describes the truncation of the source,
    /// if any.
    pub fn of_source(cut: Option<&str>) -> Self {
        cut.map_or(Self::Complete, |why| Self::Cut(why.to_owned()))
    }

    /// Returns the end state, given the truncation of the source if there is one; it matters to a complete run only.
    pub fn with_cut(self, cut: Option<&str>) -> Self {
        if self.is_complete() { Self::of_source(cut) } else { self }
    }

    /// Returns the error of a failed run without earlier results; returns every other end state unchanged.
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

    /// Returns the error for a run that cannot use the results before its end.
    pub fn error(self) -> Error {
        match self {
            Self::Failed(error) => Arc::try_unwrap(error).unwrap_or_else(|error| {
                let what = "the rest of the run".to_owned();
                Error::Unavailable { what, why: error.to_string() }
            }),
            Self::Complete | Self::Cut(_) | Self::Stopped => Error::stopped("the run"),
        }
    }

    /// Returns whether the source was read to its end, truncated or not.
    pub fn is_read(&self) -> bool {
        matches!(self, Self::Complete | Self::Cut(_))
    }

    /// Returns whether a complete recording was used entirely.
    pub fn is_complete(&self) -> bool {
        matches!(self, Self::Complete)
    }

    /// Returns the reason for an incomplete run, as stated in output files; `None` for a complete one.
    pub fn reason(&self) -> Option<String> {
        match self {
            Self::Complete => None,
            Self::Cut(why) => Some(why.clone()),
            Self::Stopped => Some("stopped on request".to_owned()),
            Self::Failed(error) => Some(error.to_string()),
        }
    }
}

/// Two threads, the caller and one of its own, that do two tasks at the same time without allocating.
pub(super) struct Pair {
    threads: Threads,
}

impl Pair {
    /// Starts the thread.
    pub(super) fn new() -> Self {
        Self { threads: Threads::new(2) }
    }

    /// Calls `own` on the calling thread and `other` on the other one at the same time; returns both results. If the system
    /// refuses a thread, `other` is called after `own`.
    pub(super) fn run<A: Send, B>(
        &self,
        other: impl FnOnce() -> A + Send,
        own: impl FnOnce() -> B,
    ) -> (A, B) {
        self.threads.beside(other, own)
    }
}

/// Calls `work` with each part, all at the same time.
///
/// # Errors
/// Error of the first part that failed.
pub(super) fn side_by_side<T: Send, R: Send>(
    parts: Vec<T>,
    work: impl Fn(T) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    let work = &work;
    let ended: Vec<_> = thread::scope(|scope| {
        let running: Vec<_> =
            parts.into_iter().map(|part| scope.spawn(move || work(part))).collect();
        running.into_iter().map(thread::ScopedJoinHandle::join).collect()
    });
    let ended = ended.into_iter();
    ended.map(|one| one.unwrap_or_else(|panic| resume_unwind(panic))).collect()
}

/// Returns the bytes that `limit` leaves for blocks after `held` fixed bytes; without a limit, `usize::MAX`.
///
/// # Errors
/// [`Error::Unavailable`], with the need and the limit, when the shortest blocks (`least` bytes) do not fit.
pub(super) fn remaining_bytes(
    limit: Option<u64>,
    what: &str,
    held: usize,
    least: usize,
) -> Result<usize> {
    let Some(limit) = limit else { return Ok(usize::MAX) };
    let need = held.saturating_add(least);
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    if need <= limit {
        return Ok(limit - held);
    }
    let mib = |bytes: usize| bytes.div_ceil(1 << 20);
    Err(Error::Unavailable {
        what: format!("memory for {what}"),
        why: format!("{} MiB are needed at least, and `memory` allows {}", mib(need), limit >> 20),
    })
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

    #[test]
    fn both_tasks_run_at_the_same_time() {
        let pair = Pair::new();
        for number in 0..50 {
            let (send, receive) = std::sync::mpsc::channel();
            let (other, own) = pair.run(move || send.send(number).is_ok(), move || receive.recv());
            assert_eq!((other, own), (true, Ok(number)));
        }
    }

    #[test]
    fn a_limit_leaves_what_is_not_held() {
        assert_eq!(remaining_bytes(None, "all", usize::MAX, usize::MAX).unwrap(), usize::MAX);
        assert_eq!(remaining_bytes(Some(100), "all", 60, 40).unwrap(), 40);
        let text = remaining_bytes(Some(8 << 20), "a search", 8 << 20, 1).unwrap_err().to_string();
        assert!(text.contains("a search") && text.contains("9 MiB") && text.contains("allows 8"));
    }
}
