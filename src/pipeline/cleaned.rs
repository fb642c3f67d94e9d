//! Rows of a source as a search uses them, for further inspection.
//!
//! Invariant: rows are those that the search of the same options dedisperses, but for the counts' scale.

use super::cleaning::Cleaning;
use super::options::{Part, SearchOptions, skip_to};
use crate::backend::Backend;
use crate::error::Result;
use crate::io::{FilterbankHeader, FilterbankSource};
use crate::sample::Samples;

/// Rows per read while skipping.
const SKIPPED: usize = 1024;

/// Rows of a source with interference removed, masked cells filled and, if requested, zero-DM applied.
///
/// Row 0 is the first of the searched time range.
pub struct CleanedRows {
    source: Box<dyn FilterbankSource>,
    cleaning: Cleaning,
    header: FilterbankHeader,
    start_s: f64,
    raw: Vec<u8>,
    cleaned: Vec<u8>,
}

impl CleanedRows {
    /// Reads the rows needed for the automatic mask and the mitigation, from a source at its first row. Calls
    /// `goes_on` between reads.
    ///
    /// # Errors
    /// As [`search`](super::burst::search); [`crate::Error::stopped`] when `goes_on` returns false.
    pub fn new(
        mut source: Box<dyn FilterbankSource>,
        options: &SearchOptions,
        backend: &Backend,
        goes_on: &mut dyn FnMut() -> bool,
    ) -> Result<Self> {
        let part = Part::new(source.header(), options)?;
        skip_to(source.as_mut(), part.first)?;
        let mut cleaning = Cleaning::new(source.as_mut(), options, part, (backend, goes_on))?;
        cleaning.check_whole()?;
        let mut header = source.header().clone();
        let start_s = part.first as f64 * header.tsamp_s;
        (header.encoding, header.times) = (cleaning.encoding(), part.times);
        Ok(Self { source, cleaning, header, start_s, raw: Vec::new(), cleaned: Vec::new() })
    }

    /// Returns the seconds from the source's first row to this first row.
    pub fn start_s(&self) -> f64 {
        self.start_s
    }

    /// Returns which channels are masked throughout, in recorded order.
    pub fn masked(&self) -> &[bool] {
        self.cleaning.masked()
    }
}

impl FilterbankSource for CleanedRows {
    fn header(&self) -> &FilterbankHeader {
        &self.header
    }

    fn read(&mut self, rows: &mut [u8]) -> Result<usize> {
        let row_bytes = self.header.row_bytes();
        let recorded = self.source.header();
        let (encoding, channels) = (recorded.encoding, recorded.channels());
        let raw_bytes = recorded.row_bytes();
        let wanted = rows.len() / row_bytes;
        let mut read = 0;
        // Mitigation returns one block at a time.
        while read < wanted {
            self.raw.resize((wanted - read) * raw_bytes, 0);
            let times = self.cleaning.read(self.source.as_mut(), &mut self.raw)?;
            if times == 0 {
                break;
            }
            let samples = Samples::new(&self.raw[..times * raw_bytes], encoding, times, channels)?;
            let samples = self.cleaning.clean(samples, &mut self.cleaned)?;
            for (time, row) in
                rows[read * row_bytes..].chunks_exact_mut(row_bytes).take(times).enumerate()
            {
                row.copy_from_slice(samples.row(time));
            }
            read += times;
        }
        Ok(read)
    }

    fn skip(&mut self, times: u64) -> Result<u64> {
        let row_bytes = self.header.row_bytes();
        let mut rows = vec![0; SKIPPED * row_bytes];
        let mut passed = 0;
        while passed < times {
            let wanted = (times - passed).min(SKIPPED as u64) as usize;
            let read = self.read(&mut rows[..wanted * row_bytes])?;
            passed += read as u64;
            if read < wanted {
                break;
            }
        }
        Ok(passed)
    }
}
