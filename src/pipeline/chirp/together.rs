//! Detectors side by side, each on a thread of its own: while a GPU filters one's strain the others' is whitened.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;

use super::report::DetectorReport;
use super::search::{Ready, Status};
use crate::error::Result;

/// Searches all detectors; `None` instead of reports when `observe` stopped it.
///
/// # Errors
/// The first detector's that failed.
pub(super) fn run(
    detectors: Vec<Ready>,
    block: usize,
    status: &mut Status,
    observe: &mut dyn FnMut(&Status) -> bool,
) -> Result<Option<Vec<DetectorReport>>> {
    let is_stopped = AtomicBool::new(false);
    let (tell, told) = mpsc::channel::<u64>();
    let ended: Vec<_> = thread::scope(|scope| {
        let stopped = &is_stopped;
        let begin = |ready: Ready| {
            let tell = tell.clone();
            scope.spawn(move || {
                let report = ready.run(block, &mut |times| {
                    tell.send(times).is_ok() && !stopped.load(Ordering::Relaxed)
                });
                // The others need not go on behind a fault.
                stopped.fetch_or(report.is_err(), Ordering::Relaxed);
                report
            })
        };
        let running: Vec<_> = detectors.into_iter().map(begin).collect();
        drop(tell);
        for times in told {
            status.times += times;
            if !observe(status) {
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
        None => Ok(reports.into_iter().collect()),
    }
}
