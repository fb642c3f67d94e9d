//! Recordings of filterbank rows in host memory, and the rate at which they are searched.

use sidereal::Result;
use sidereal::backend::Backend;
use sidereal::backend::threads::Threads;
use sidereal::io::{FilterbankHeader, FilterbankSource, Gap};
use sidereal::pipeline::burst::{Report, SearchOptions, Source, search};
use sidereal::simulate::burst::{Options, Simulator};
use sidereal::units::Band;

use crate::random::{self, PART};

/// Searches a source; returns the report and the rows per second in the steady state. The time runs from the end of
/// the first gulp, after the setup, to the list of candidates, before memory is released. The second gulp does not
/// count, because it was already in transit.
pub(crate) fn running(
    source: Source<'_>,
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

/// All rows of a simulated recording.
pub(crate) struct Recording {
    header: FilterbankHeader,
    rows: Vec<u8>,
    /// Threads that copy rows.
    threads: Threads,
}

impl Recording {
    /// Simulates a recording on all cores.
    pub(crate) fn simulated(options: Options) -> Result<Self> {
        let (times, threads) = (options.times as usize, Threads::new(0));
        let mut source = Simulator::new(options)?.with_threads(threads.clone());
        let header = source.header().clone();
        let mut rows = vec![0; times * header.row_bytes()];
        source.read(&mut rows)?;
        Ok(Self { header, rows, threads: copiers(&threads) })
    }

    /// Makes rows of 64 us at 1400 MHz with uniformly distributed bytes.
    pub(crate) fn random(channels: usize, times: usize) -> Result<Self> {
        let step_mhz = -300.0 / channels as f64;
        let band = Band::uniform(1550.0 + 0.5 * step_mhz, step_mhz, channels)?;
        let header = Simulator::new(Options::new(band, 64e-6, times as u64))?.header().clone();
        let rows = random::bytes(times * channels);
        Ok(Self { header, rows, threads: copiers(&Threads::new(0)) })
    }

    /// Returns a source that reads the recording from its start.
    pub(crate) fn source(&self) -> RecordingReader<'_> {
        RecordingReader { recording: self, next: 0 }
    }

    /// Returns a source that reads the recording a number of times.
    pub(crate) fn repeated(&self, count: u64) -> RepeatedRows<'_> {
        let mut header = self.header.clone();
        header.times = header.times.map(|times| times * count);
        RepeatedRows {
            recording: self,
            header,
            source: self.source(),
            left: count.saturating_sub(1),
        }
    }
}

/// Reader of a recording.
pub(crate) struct RecordingReader<'a> {
    recording: &'a Recording,
    /// Byte offset of the next row.
    next: usize,
}

impl FilterbankSource for RecordingReader<'_> {
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

/// Source that reads a recording several times.
pub(crate) struct RepeatedRows<'a> {
    recording: &'a Recording,
    header: FilterbankHeader,
    source: RecordingReader<'a>,
    /// Times that the recording is read again.
    left: u64,
}

impl FilterbankSource for RepeatedRows<'_> {
    fn header(&self) -> &FilterbankHeader {
        &self.header
    }

    fn read(&mut self, rows: &mut [u8]) -> Result<usize> {
        let row_bytes = self.header.row_bytes();
        let mut done = 0;
        while done * row_bytes < rows.len() {
            let times = self.source.read(&mut rows[done * row_bytes..])?;
            done += times;
            if times == 0 {
                if self.left == 0 {
                    break;
                }
                self.left -= 1;
                self.source = self.recording.source();
            }
        }
        Ok(done)
    }

    fn skip(&mut self, _: u64) -> Result<u64> {
        Ok(0)
    }
}

/// Returns the copy threads: all but one, which the search waits on.
fn copiers(all: &Threads) -> Threads {
    Threads::new((all.count() - 1).max(1))
}
