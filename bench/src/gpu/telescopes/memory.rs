//! Recording in host memory.

use sidereal::Result;
use sidereal::backend::Backend;
use sidereal::backend::threads::Threads;
use sidereal::io::{FilterbankHeader, FilterbankSource, Gap};
use sidereal::pipeline::burst::{Report, SearchOptions, search};
use sidereal::simulate::burst::{Options, Simulator};
use sidereal::units::Band;

use super::super::random;
use crate::telescopes::Observation;

/// Bytes that a thread copies at a time.
const PART: usize = 1 << 18;

/// All rows of a simulated recording.
pub(super) struct Recording {
    header: FilterbankHeader,
    rows: Vec<u8>,
    /// Threads that copy rows.
    threads: Threads,
}

impl Recording {
    /// Simulates an observation on all cores.
    ///
    /// # Errors
    /// Those of the simulation.
    pub(super) fn simulated(observation: &Observation) -> Result<Self> {
        let (telescope, threads) = (observation.telescope, Threads::new(0));
        let tsamp_s = telescope.tsamp_s();
        let times = (observation.seconds / tsamp_s) as u64;
        let mut options = Options::new(telescope.band()?, tsamp_s, times);
        options.bursts.push(observation.burst);
        let mut source = Simulator::new(options)?.with_threads(threads.clone());
        let header = source.header().clone();
        let mut rows = vec![0; times as usize * header.row_bytes()];
        source.read(&mut rows)?;
        Ok(Self { header, rows, threads: copiers(&threads) })
    }

    /// Makes rows of 64 us at 1400 MHz with uniformly distributed bytes.
    ///
    /// # Errors
    /// Those of the band.
    pub(super) fn random(channels: usize, times: usize) -> Result<Self> {
        let step_mhz = -300.0 / channels as f64;
        let band = Band::uniform(1550.0 + 0.5 * step_mhz, step_mhz, channels)?;
        let header = Simulator::new(Options::new(band, 64e-6, times as u64))?.header().clone();
        let rows = random::bytes(times * channels);
        Ok(Self { header, rows, threads: copiers(&Threads::new(0)) })
    }

    /// Returns a source that reads the recording from its start.
    pub(super) fn source(&self) -> Source<'_> {
        Source { recording: self, next: 0 }
    }
}

/// Searches a source; returns the report and the rows per second in the steady state. The time runs from the end of
/// the first gulp, after the setup, to the list of candidates, before memory is released. The second gulp does not
/// count, because it was already in transit.
///
/// # Errors
/// Those of the search.
pub(super) fn running(
    source: &mut dyn FilterbankSource,
    options: &SearchOptions,
    backend: &Backend,
) -> Result<(Report, f64)> {
    let mut begun = Vec::with_capacity(2);
    let report = search(source, options, backend, &mut |status| {
        // Before the first gulp, the search reads rows for masks.
        if begun.len() < 2 && status.times > 0 {
            begun.push(*status);
        }
        true
    })?;
    let (times, elapsed_s) = match begun[..] {
        [first, second] if second.times < report.times => (second.times, first.elapsed_s),
        _ => (0, 0.0),
    };
    let rate = (report.times - times) as f64 / (report.elapsed_s - elapsed_s).max(1e-9);
    Ok((report, rate))
}

/// Reader of a recording.
pub(super) struct Source<'a> {
    recording: &'a Recording,
    /// Byte offset of the next row.
    next: usize,
}

impl FilterbankSource for Source<'_> {
    fn header(&self) -> &FilterbankHeader {
        &self.recording.header
    }

    fn read(&mut self, rows: &mut [u8]) -> Result<usize> {
        let row_bytes = self.recording.header.row_bytes();
        let bytes = (rows.len() / row_bytes * row_bytes).min(self.recording.rows.len() - self.next);
        let from = &self.recording.rows[self.next..][..bytes];
        let threads = &self.recording.threads;
        let mut none = vec![(); threads.count()];
        threads.for_each_chunk(&mut none, &mut rows[..bytes], PART, |(), part, to| {
            to.copy_from_slice(&from[part * PART..][..to.len()]);
        });
        self.next += bytes;
        Ok(bytes / row_bytes)
    }

    fn skip(&mut self, times: u64) -> Result<u64> {
        let row_bytes = self.recording.header.row_bytes();
        let left = (self.recording.rows.len() - self.next) / row_bytes;
        let skipped = left.min(usize::try_from(times).unwrap_or(left));
        self.next += skipped * row_bytes;
        Ok(skipped as u64)
    }

    fn gaps(&self) -> &[Gap] {
        &[]
    }
}

/// Returns the copy threads: all but one, which the search waits on.
fn copiers(all: &Threads) -> Threads {
    Threads::new((all.count() - 1).max(1))
}
