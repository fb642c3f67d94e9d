//! Concurrent detectors, each on its own thread: while a GPU filters one's strain, the others' is whitened.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;

use super::options::Status;
use super::ready::Ready;
use crate::error::Result;
use crate::units::Gps;

/// Searches all detectors up to a time; returns false when `observe` stopped the search.
///
/// # Errors
/// Error of the first detector that failed.
pub(super) fn run(
    detectors: &mut [Ready],
    (until, block): (Gps, usize),
    status: &mut Status,
    observe: &mut dyn FnMut(&Status) -> bool,
) -> Result<bool> {
    let work = |ready: &mut Ready, progress: &mut dyn FnMut(u64) -> bool| {
        ready.advance(until, block, progress)
    };
    let detectors = detectors.iter_mut().collect();
    Ok(run_concurrently(detectors, work, status, observe)?.is_some())
}

/// Runs `work` on all parts, each on a thread. `work` reports the samples done since its last report, and must return
/// `None` when the report returns false.
fn run_concurrently<T: Send, R: Send>(
    parts: Vec<T>,
    work: impl Fn(T, &mut dyn FnMut(u64) -> bool) -> Result<Option<R>> + Sync,
    status: &mut Status,
    observe: &mut dyn FnMut(&Status) -> bool,
) -> Result<Option<Vec<R>>> {
    let is_stopped = AtomicBool::new(false);
    let mut is_refused = false;
    let (progress, counts) = mpsc::channel::<u64>();
    let ended: Vec<_> = thread::scope(|scope| {
        let (stopped, work) = (&is_stopped, &work);
        let begin = |part: T| {
            let progress = progress.clone();
            scope.spawn(move || {
                work(part, &mut |times| {
                    progress.send(times).is_ok() && !stopped.load(Ordering::Relaxed)
                })
            })
        };
        let running: Vec<_> = parts.into_iter().map(begin).collect();
        drop(progress);
        for times in counts {
            status.times += times;
            // Parts may end before they notice the stop.
            if !is_refused && !observe(status) {
                is_refused = true;
                is_stopped.store(true, Ordering::Relaxed);
            }
        }
        running.into_iter().map(thread::ScopedJoinHandle::join).collect()
    });
    let mut reports = Vec::with_capacity(ended.len());
    let mut fault = None;
    for report in ended {
        match report.unwrap_or_else(|panic| std::panic::resume_unwind(panic)) {
            Ok(report) => reports.push(report),
            Err(error) => fault = fault.or(Some(error)),
        }
    }
    match fault {
        Some(error) => Err(error),
        None if is_refused => Ok(None),
        None => Ok(reports.into_iter().collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parts that report and end, whatever the report returns.
    fn ended(observe: &mut dyn FnMut(&Status) -> bool) -> Result<Option<Vec<u64>>> {
        let work = |part: u64, progress: &mut dyn FnMut(u64) -> bool| {
            let _ = progress(part);
            Ok(Some(part))
        };
        let mut status = Status { times: 0, total: 6 };
        run_concurrently(vec![1, 2, 3], work, &mut status, observe)
    }

    #[test]
    fn what_was_stopped_gives_no_reports_and_is_told_nothing_more() {
        let mut calls = 0;
        let refuse = &mut |_: &Status| {
            calls += 1;
            false
        };
        assert_eq!(ended(refuse).unwrap(), None);
        assert_eq!(calls, 1);
        let mut last = 0;
        let go_on = &mut |status: &Status| {
            last = status.times;
            true
        };
        assert_eq!(ended(go_on).unwrap(), Some(vec![1, 2, 3]));
        assert_eq!(last, 6);
    }
}
