//! End and watcher of a run of `live`.

use std::path::Path;
use std::sync::Arc;

use num_complex::Complex;
use sidereal::pipeline::detections::Detections;
use sidereal::pipeline::recent::RecentRows;

use crate::search::{CandidateLine, DumpLine};

/// Watcher of a live run, such as its page. No call waits, and only those of candidates and visibilities allocate.
pub(crate) trait Watcher: Send + Sync {
    /// Takes the latest rows of an observation that begins, or `None` when it ends.
    fn rows(&self, rows: Option<Arc<RecentRows>>);

    /// Receives the detections of a new observation: its folder as in candidate lines, and `first_s`, the time in seconds from its
    /// first sample to the first row searched, at which the times of detections begin.
    fn detections(&self, detections: Arc<Detections>, observation: &Path, first_s: f64);

    /// Takes a line of a candidate.
    fn candidate(&self, line: &CandidateLine);

    /// Takes a line of a dump.
    fn dump(&self, line: &DumpLine);

    /// Takes a candidate's picture, which has been written.
    fn picture(&self, path: &Path);

    /// Takes an integration's visibilities of some baselines (`A-B`), as means over the band.
    fn visibilities(&self, names: &[String], values: &[Complex<f64>]);

    /// Counts an observation that has ended.
    fn observed(&self);
}

/// End of a live run, and its watcher.
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
#[derive(Clone)]
pub(crate) struct Session {
    /// Observations after which the run ends; 0 goes on until it is interrupted.
    pub(crate) observations: u64,
    pub(crate) watcher: Option<Arc<dyn Watcher>>,
    /// Baselines that the watcher is shown; empty chooses the first ones.
    pub(crate) baselines: Vec<String>,
}

#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
impl Session {
    /// Tells the watcher, if there is one.
    pub(crate) fn tell(&self, what: impl FnOnce(&dyn Watcher)) {
        if let Some(watcher) = &self.watcher {
            what(watcher.as_ref());
        }
    }
}
