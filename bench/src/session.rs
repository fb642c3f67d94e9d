//! A run's settings, and what its caller does for it: JSON documents with provenance, figures, interruption.

use std::io::Write as _;
use std::path::Path;

use serde_json::Value;
use sidereal::backend::Backend;
use sidereal::io::printable;
use sidereal::{Error, Result};

use crate::injections::Outcome as Injected;
use crate::plane::Sums;
use crate::quality::Bank;
use crate::recovery::{Outcome as Recovered, Scored};
use crate::table::Row;

/// Settings of a run.
pub struct Session<'a> {
    /// Backend to measure.
    pub backend: Backend,
    /// Number of threads; 0 is one per core.
    pub threads: usize,
    /// Whether a JSON document takes the place of text on standard output.
    pub json: bool,
    /// Whether nothing but errors is printed.
    pub quiet: bool,
    /// Program that runs the benchmark.
    pub caller: &'a dyn Caller,
}

/// Program that runs a benchmark.
pub trait Caller {
    /// Prints a JSON document with its provenance on standard output.
    ///
    /// # Errors
    /// [`Error::Io`].
    fn print(&self, document: &Document) -> Result<()>;

    /// Draws a figure into a PNG file.
    ///
    /// # Errors
    /// [`Error::Io`].
    fn draw(&self, path: &Path, figure: &Figure<'_>) -> Result<()>;

    /// Fails if the user asked to stop.
    ///
    /// # Errors
    /// [`Error::stopped`].
    fn check_interrupt(&self) -> Result<()>;
}

/// JSON document of a benchmark, without provenance.
#[derive(Clone, Debug)]
pub enum Document {
    /// Array of measured rates.
    Rows(Vec<Row>),
    /// Array of a campaign's results.
    Lines(Vec<Value>),
    /// Array of scores of recordings with interference.
    Interference(Vec<Scored>),
    /// Single object.
    One(Value),
}

/// Data of a figure.
#[derive(Clone, Copy, Debug)]
pub enum Figure<'a> {
    /// DM-time plane and its differences from float64 sums.
    Plane(&'a Sums),
    /// Recovered against injected values of binaries.
    Injections(&'a [Injected]),
    /// Recovered against injected values of bursts.
    Recovery(&'a [Recovered]),
    /// Templates in real time against latency.
    Latency(&'a [Curve]),
    /// Power of a tone that moves over three channels.
    Scalloping(&'a [Bank], &'a Backend),
    /// Power of a tone between two channels over the whole band.
    Leakage(&'a [Bank], &'a Backend),
}

/// Results for one template length: points of latency in seconds, and templates that one core filters in real time.
#[derive(Clone, Debug)]
pub struct Curve {
    /// Length of the templates, in seconds.
    pub length_s: f64,
    /// Points of the Fourier transforms, by rising latency.
    pub transforms: Vec<(f64, f64)>,
    /// Points of the recursive filters, one per resampler.
    pub filters: Vec<(f64, f64)>,
}

impl Session<'_> {
    /// Rejects the reference, which is too slow to be measured.
    pub(crate) fn is_reference(&self) -> bool {
        matches!(self.backend, Backend::Reference)
    }
}

/// Prints lines of text on standard output.
///
/// # Errors
/// [`Error::Io`] when standard output is closed.
pub(crate) fn say(words: &str) -> Result<()> {
    let mut output = std::io::stdout().lock();
    let words = printable(words);
    let written = output.write_all(words.as_bytes()).and_then(|()| output.write_all(b"\n"));
    written.and_then(|()| output.flush()).map_err(|error| Error::io("standard output", error))
}
