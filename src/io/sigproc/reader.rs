//! Streaming reader of a SIGPROC filterbank file or pipe.
//!
//! Invariant: `row` counts the recorded rows that were read or passed over.

use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use super::filterbank::Layout;
use super::header::Header;
use crate::error::{Error, Result};
use crate::io::rows::{Chosen, add};
use crate::io::{FilterbankHeader, FilterbankSource, Polarizations};

/// Bytes read ahead when rows must be converted or discarded.
const SCRATCH_BYTES: usize = 1 << 20;

enum Input {
    File(File),
    Pipe(Box<dyn Read + Send>),
}

/// SIGPROC filterbank opened for reading.
pub struct FilterbankReader {
    input: Input,
    fields: Header,
    header: FilterbankHeader,
    layout: Layout,
    chosen: Chosen,
    row: u64,
    scratch: Vec<u8>,
    cut: Option<String>,
}

impl std::fmt::Debug for FilterbankReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FilterbankReader").field("header", &self.header).finish_non_exhaustive()
    }
}

/// Opens a file and validates its header and length.
///
/// The reader drops a last row truncated by the file's end; [`FilterbankSource::cut`] reports it.
///
/// # Errors
/// [`Error::Format`] for an invalid header, for no data, and for data that end within the first row;
/// [`Error::Parameter`] for an IF that the file does not have; [`Error::Io`].
pub fn open(path: &Path, polarizations: Polarizations) -> Result<FilterbankReader> {
    let io = |error| Error::io(path, error);
    let mut file = File::open(path).map_err(io)?;
    if !file.metadata().map_err(io)?.is_file() {
        // A named pipe has no length and cannot seek.
        return FilterbankReader::from_pipe(Box::new(file), path, polarizations);
    }
    let fields = Header::parse(BufReader::with_capacity(4096, &mut file), path)?;
    file.seek(SeekFrom::Start(fields.bytes())).map_err(io)?;
    let bytes = file.metadata().map_err(io)?.len().saturating_sub(fields.bytes());
    let mut reader = FilterbankReader::new(Input::File(file), path, fields, polarizations)?;
    reader.header.times = Some(reader.count_rows(bytes)?);
    Ok(reader)
}

impl FilterbankReader {
    /// Reads from a pipe of unknown length; `path` names it in errors (`-` for standard input).
    ///
    /// # Errors
    /// As [`open`].
    pub fn from_pipe(
        mut pipe: Box<dyn Read + Send>,
        path: &Path,
        polarizations: Polarizations,
    ) -> Result<Self> {
        let fields = Header::parse(&mut pipe, path)?;
        Self::new(Input::Pipe(pipe), path, fields, polarizations)
    }

    fn new(
        input: Input,
        path: &Path,
        fields: Header,
        polarizations: Polarizations,
    ) -> Result<Self> {
        let layout = Layout::new(&fields, path)?;
        let chosen = Chosen::new(polarizations, layout.ifs)?;
        let header = layout.describe(&fields, path, chosen);
        Ok(Self { input, fields, header, layout, chosen, row: 0, scratch: Vec::new(), cut: None })
    }

    /// Returns the file's own header.
    pub fn fields(&self) -> &Header {
        &self.fields
    }

    /// Counts the complete rows in `bytes` bytes of data, and notes a truncated one.
    fn count_rows(&mut self, bytes: u64) -> Result<u64> {
        let row = self.layout.row_bytes() as u64;
        let (rows, rest) = (bytes / row, bytes % row);
        if bytes == 0 {
            return Err(self.broken(0, "the header is followed by no data".into()));
        }
        if rows == 0 {
            return Err(self.within_a_row(rows, rest));
        }
        if rest > 0 {
            self.note_cut(rows, rest);
        }
        Ok(rows)
    }

    fn note_cut(&mut self, rows: u64, rest: u64) {
        let (path, row) = (self.header.path.display(), self.layout.row_bytes());
        let why = format!(
            "{path}: the data end {rest} bytes into row {rows}, which has {row}; the {rows} rows before it are used"
        );
        self.cut = Some(why);
    }

    fn within_a_row(&self, rows: u64, rest: u64) -> Error {
        let row = self.layout.row_bytes();
        let why = format!(
            "the data end {rest} bytes into row {rows}, expected rows of {row} bytes ({} channels, \
             {} IFs, {} bit)",
            self.layout.band.channels(),
            self.layout.ifs,
            self.layout.encoding.bits(),
        );
        self.broken(rows * row as u64 + rest, why)
    }

    fn broken(&self, data_bytes: u64, why: String) -> Error {
        let path: &PathBuf = &self.header.path;
        Error::format(path, "data", self.layout.data_offset + data_bytes, why)
    }

    fn rows_left(&self) -> u64 {
        self.header.times.map_or(u64::MAX, |times| times - self.row)
    }

    /// Fills `buffer` with recorded rows; returns the number of complete rows.
    fn fill(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let row_bytes = self.layout.row_bytes();
        let mut filled = 0;
        while filled < buffer.len() {
            let read = match &mut self.input {
                Input::File(file) => file.read(&mut buffer[filled..]),
                Input::Pipe(pipe) => pipe.read(&mut buffer[filled..]),
            };
            match read {
                Ok(0) => break,
                Ok(bytes) => filled += bytes,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Error::io(&self.header.path, error)),
            }
        }
        let rows = filled / row_bytes;
        self.row += rows as u64;
        let rest = (filled % row_bytes) as u64;
        let shrunk = self.header.times.is_some() && filled < buffer.len();
        if shrunk || (rest > 0 && self.row == 0) {
            return Err(self.within_a_row(self.row, rest));
        }
        if rest > 0 {
            self.note_cut(self.row, rest);
        }
        if self.row == 0 && filled == 0 && !buffer.is_empty() {
            return Err(self.broken(0, "the header is followed by no data".into()));
        }
        Ok(rows)
    }

    /// Returns the rows that fit the scratch buffer.
    fn scratch_rows(&self) -> usize {
        (SCRATCH_BYTES / self.layout.row_bytes()).max(1)
    }

    fn with_scratch(&mut self, rows: usize, mut take: impl FnMut(&Self, &[u8])) -> Result<usize> {
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.resize(self.scratch_rows() * self.layout.row_bytes(), 0);
        let wanted = rows.min(self.scratch_rows()) * self.layout.row_bytes();
        let filled = self.fill(&mut scratch[..wanted]);
        if let Ok(rows) = filled {
            take(self, &scratch[..rows * self.layout.row_bytes()]);
        }
        self.scratch = scratch;
        filled
    }
}

impl FilterbankSource for FilterbankReader {
    fn header(&self) -> &FilterbankHeader {
        &self.header
    }

    fn read(&mut self, rows: &mut [u8]) -> Result<usize> {
        let row_bytes = self.header.row_bytes();
        let asked = self.header.times_in(rows)?;
        let wanted = self.rows_left().min(asked as u64) as usize;
        if self.layout.ifs == 1 {
            return self.fill(&mut rows[..wanted * row_bytes]);
        }
        let mut done = 0;
        while done < wanted {
            let output = &mut rows[done * row_bytes..wanted * row_bytes];
            let read = self.with_scratch(wanted - done, |reader, recorded| {
                let times = recorded.len() / reader.layout.row_bytes();
                let output = &mut output[..times * row_bytes];
                convert(reader.chosen, &reader.layout, recorded, output);
            })?;
            done += read;
            if read == 0 {
                break;
            }
        }
        Ok(done)
    }

    fn skip(&mut self, times: u64) -> Result<u64> {
        let wanted = self.rows_left().min(times);
        if let Input::File(file) = &mut self.input {
            let bytes = wanted * self.layout.row_bytes() as u64;
            let at = self.layout.data_offset + self.row * self.layout.row_bytes() as u64 + bytes;
            file.seek(SeekFrom::Start(at)).map_err(|error| Error::io(&self.header.path, error))?;
            self.row += wanted;
            return Ok(wanted);
        }
        let mut done = 0;
        while done < wanted {
            let read =
                self.with_scratch(usize::try_from(wanted - done).unwrap_or(usize::MAX), |_, _| {})?;
            done += read as u64;
            if read == 0 {
                break;
            }
        }
        Ok(done)
    }
    fn cut(&self) -> Option<&str> {
        self.cut.as_deref()
    }
}

/// Converts recorded rows to output rows.
fn convert(chosen: Chosen, layout: &Layout, recorded: &[u8], rows: &mut [u8]) {
    let if_bytes = layout.if_bytes();
    let output_bytes = layout.band.channels() * chosen.encoding(layout.encoding).bits() / 8;
    let recorded = recorded.chunks_exact(layout.row_bytes());
    for (row, output) in recorded.zip(rows.chunks_exact_mut(output_bytes)) {
        let first = &row[chosen.first * if_bytes..][..if_bytes];
        match chosen.second {
            None => output.copy_from_slice(first),
            Some(second) => {
                add(first, &row[second * if_bytes..][..if_bytes], layout.encoding, output);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::Encoding;
    use crate::units::Band;

    fn layout(encoding: Encoding, ifs: usize) -> Layout {
        let band = Band::uniform(1500.0, -1.0, 8).unwrap();
        Layout { band, encoding, ifs, tsamp_s: 1e-3, tstart_mjd: 0.0, data_offset: 0 }
    }

    #[test]
    fn one_of_several_is_cut_out() {
        let layout = layout(Encoding::U4, 4);
        let recorded: Vec<u8> = (0..32).collect();
        let mut rows = [0; 8];
        convert(Chosen { first: 2, second: None }, &layout, &recorded, &mut rows);
        assert_eq!(rows, [8, 9, 10, 11, 24, 25, 26, 27]);
    }

    #[test]
    fn the_first_two_of_each_row_are_added() {
        let layout = layout(Encoding::U8, 2);
        let recorded: Vec<u8> = (0..32).map(|k| 8 * k).collect();
        let mut rows = [0; 32];
        convert(Chosen { first: 0, second: Some(1) }, &layout, &recorded, &mut rows);
        let sums: Vec<u16> =
            rows.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]])).collect();
        let expected: Vec<u16> = (0..16).map(|k| 16 * (k % 8) + 64 + 256 * (k / 8)).collect();
        assert_eq!(sums, expected);
    }
}
