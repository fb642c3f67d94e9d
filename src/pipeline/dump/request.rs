//! Requests for dumps, their options, and reports on them.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use super::ring::{Memory, RingSize};
use crate::io::voltages::{Flag, Sweep};
use crate::pipeline::voltage::VoltageFormat;
use crate::units::Epoch;

/// Options of dumps.
#[derive(Clone)]
pub struct Options {
    /// Seconds of voltages in memory.
    pub ring_s: f64,
    /// Format of the files.
    pub format: VoltageFormat,
    /// Bytes that dumps may still take, which several runs of dumps may share; `None` sets no limit.
    pub quota: Option<Arc<AtomicU64>>,
    /// Returns a free path, without suffix, for a dump that begins at an epoch (day 0 if it is unknown).
    pub name: Arc<dyn Fn(Epoch) -> PathBuf + Send + Sync>,
    /// Returns the bytes that dumps may still write to their disk, called for each part of a dump; `None` if that is unknown.
    pub space: Arc<dyn Fn() -> Option<u64> + Send + Sync>,
    /// Receives each change of a dump's state, on the dumps' own threads.
    pub listener: Arc<dyn Fn(&Report) + Send + Sync>,
    /// Memory of earlier rings, or memory that was prepared.
    pub memory: Memory,
    /// Receives the size of the ring when all of its memory is made.
    pub ready: Arc<dyn Fn(&RingSize) + Send + Sync>,
}

/// Request for a dump.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// Name of the trigger.
    pub name: String,
    /// Window, with times from the stream's first sample.
    pub sweep: Sweep,
    /// Dumps of high priority are written first, and given up last; of equal ones the later is given up first.
    pub priority: u8,
}

/// Request on its way to the keeper.
pub(super) struct Asked {
    pub(super) request: Request,
    pub(super) at: Instant,
}

/// State of a dump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Its samples are held in memory as they come.
    Waiting,
    /// Its file is being written.
    Running,
    /// Its file is complete, or as complete as it could be: see [`Report::reason`].
    Done,
    /// It has no file.
    Failed,
    /// The request was refused.
    Refused,
    /// The request was joined with an earlier dump, whose number the report has.
    Joined,
}

/// Report on a dump.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// Number of the dump, from 1 on; 0 of a refused request.
    pub number: u64,
    /// Names of its triggers; of a refused or joined request its own.
    pub names: Vec<String>,
    /// State after the change.
    pub state: State,
    /// Highest priority of its triggers.
    pub priority: u8,
    /// Window, with times from the stream's first sample.
    pub sweep: Sweep,
    /// First sample, counted from the stream's first one.
    pub first: u64,
    /// Samples per stream written so far.
    pub samples: u64,
    /// The file, once it has its name.
    pub path: Option<PathBuf>,
    /// Samples that the stream lost, inside and outside the windows, counted from the dump's first sample; the file has zeros there.
    pub lost: Vec<Flag>,
    /// Seconds from [`super::Dumps::request`] until the first samples were written to the file.
    pub delay_s: Option<f64>,
    /// Reason of an incomplete, failed or refused dump.
    pub reason: Option<String>,
}

impl Report {
    /// Makes the report of a request that is refused.
    pub fn refused(request: Request, reason: impl Into<String>) -> Self {
        Self {
            number: 0,
            names: vec![request.name],
            state: State::Refused,
            priority: request.priority,
            sweep: request.sweep,
            first: 0,
            samples: 0,
            path: None,
            lost: Vec::new(),
            delay_s: None,
            reason: Some(reason.into()),
        }
    }
}
