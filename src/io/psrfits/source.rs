//! Row stream of a PSRFITS file: the sequence of table rows and gaps.
//!
//! Invariant: spectra come in order, each once; a gap stands before the row that [`Gap`] names.

use std::io::{Read, Seek};

use super::gaps::Gap;
use super::layout::Layout;
use super::samples::Converter;
use super::scale::{Factors, Scaling};
use super::table::Table;
use crate::error::Result;
use crate::io::{self, FilterbankHeader, FilterbankSource};
use crate::math::RunningMedian;
use crate::sample::Encoding;

/// Raw bytes per read, unless a single spectrum is longer.
const BATCH_BYTES: u64 = 1 << 20;
/// Maximum number of spectra before a gap whose median fills it.
const MEDIAN_TIMES: u64 = 256;
/// Maximum number of samples in that median.
const MEDIAN_SAMPLES: u64 = 1 << 22;

/// Row stream of a PSRFITS file.
#[derive(Debug)]
pub(super) struct Source<R> {
    input: R,
    header: FilterbankHeader,
    table: Table,
    layout: Layout,
    scaling: Scaling,
    converter: Converter,
    gaps: Vec<Gap>,
    filled: Vec<io::Gap>,
    position: Position,
    factors: Factors,
    factors_row: Option<u64>,
    raw: Vec<u8>,
    fill: Vec<u8>,
    warnings: Vec<String>,
}

/// Position of the next spectrum.
#[derive(Clone, Copy, Debug, Default)]
struct Position {
    row: u64,
    time: u64,
    gap: usize,
    gap_times: u64,
}

/// A run of spectra from one gap or one table row.
#[derive(Clone, Copy, Debug)]
enum Run {
    Gap { times: u64 },
    Row { row: u64, time: u64, times: u64 },
    End,
}

impl<R: Read + Seek> Source<R> {
    /// Makes a stream at its start.
    pub(super) fn new(
        input: R,
        header: FilterbankHeader,
        table: Table,
        layout: Layout,
        parts: (Scaling, Vec<Gap>, Converter),
    ) -> Self {
        let (scaling, gaps, converter) = parts;
        let warnings = warnings(&table, &layout);
        let filled = filled_times(&gaps, layout.block_times);
        Self {
            input,
            header,
            table,
            layout,
            scaling,
            converter,
            gaps,
            filled,
            position: Position::default(),
            factors: Factors::default(),
            factors_row: None,
            raw: Vec::new(),
            fill: Vec::new(),
            warnings,
        }
    }

    /// Returns the next run of at most `wanted` spectra, and advances past it.
    fn advance(&mut self, wanted: u64) -> Run {
        let position = &mut self.position;
        if position.row == self.table.rows {
            return Run::End;
        }
        let gap = self.gaps.get(position.gap).filter(|gap| gap.row == position.row);
        if let Some(gap) = gap {
            let times = wanted.min(gap.times - position.gap_times);
            position.gap_times += times;
            if position.gap_times == gap.times {
                position.gap += 1;
                position.gap_times = 0;
            }
            return Run::Gap { times };
        }
        let is_last = position.row + 1 == self.table.rows;
        let row_times = if is_last { self.layout.last_times } else { self.layout.block_times };
        let (row, time) = (position.row, position.time);
        let times = wanted.min(row_times - time);
        position.time += times;
        if position.time == row_times {
            position.row += 1;
            position.time = 0;
        }
        Run::Row { row, time, times }
    }

    /// Reads spectra of one table row into `rows`, in batches.
    fn read_row(&mut self, row: u64, time: u64, rows: &mut [u8]) -> Result<()> {
        if self.factors_row != Some(row) && !self.scaling.is_trivial() {
            self.scaling.read(&mut self.input, &self.table, row, &mut self.factors)?;
            self.factors_row = Some(row);
        }
        let spectrum_bits = self.layout.spectrum_bits();
        let batch = (BATCH_BYTES * 8 / spectrum_bits).max(1);
        let row_bytes = self.header.row_bytes();
        let mut time = time;
        for rows in rows.chunks_mut(batch as usize * row_bytes) {
            let times = (rows.len() / row_bytes) as u64;
            let first = time * spectrum_bits;
            let end = (first + times * spectrum_bits).div_ceil(8);
            self.raw.resize((end - first / 8) as usize, 0);
            let at = (&self.layout.data, row);
            self.table.read_bytes(&mut self.input, at, first / 8, &mut self.raw)?;
            let scaling = (&self.scaling, &self.factors);
            self.converter.convert(&mut self.raw, (first % 8) as usize, scaling, rows);
            time += times;
        }
        Ok(())
    }

    /// Fills `rows` with each channel's median over the last spectra before table row `row`.
    fn read_gap(&mut self, row: u64, rows: &mut [u8]) -> Result<()> {
        let channels = self.layout.channels;
        let row_bytes = self.header.row_bytes();
        if self.fill.is_empty() {
            let most = (MEDIAN_SAMPLES / channels as u64).clamp(1, MEDIAN_TIMES);
            let times = self.layout.block_times.min(most);
            let mut before = vec![0u8; times as usize * row_bytes];
            self.read_row(row - 1, self.layout.block_times - times, &mut before)?;
            let mut median = RunningMedian::dense(self.header.encoding, channels);
            median.observe_rows(0, &before);
            self.fill = median.row();
        }
        rows.chunks_exact_mut(row_bytes).for_each(|row| row.copy_from_slice(&self.fill));
        Ok(())
    }
}

impl<R: Read + Seek + Send> FilterbankSource for Source<R> {
    fn header(&self) -> &FilterbankHeader {
        &self.header
    }

    fn read(&mut self, rows: &mut [u8]) -> Result<usize> {
        let row_bytes = self.header.row_bytes();
        self.header.times_in(rows)?;
        let mut done = 0;
        while done < rows.len() {
            let at_row = self.position.row;
            let run = self.advance(((rows.len() - done) / row_bytes) as u64);
            let part = |times: u64| done..done + times as usize * row_bytes;
            done = match run {
                Run::End => break,
                Run::Gap { times } => {
                    let part = part(times);
                    self.read_gap(at_row, &mut rows[part.clone()])?;
                    part.end
                }
                Run::Row { row, time, times } => {
                    let part = part(times);
                    self.fill.clear();
                    self.read_row(row, time, &mut rows[part.clone()])?;
                    part.end
                }
            };
        }
        Ok(done / row_bytes)
    }

    fn skip(&mut self, times: u64) -> Result<u64> {
        let mut left = times;
        while left > 0 {
            match self.advance(left) {
                Run::End => break,
                Run::Gap { times } => left -= times,
                Run::Row { times, .. } => {
                    self.fill.clear();
                    left -= times;
                }
            }
        }
        Ok(times - left)
    }

    fn gaps(&self) -> &[io::Gap] {
        &self.filled
    }

    fn cut(&self) -> Option<&str> {
        self.table.cut.as_deref()
    }

    fn warnings(&self) -> &[String] {
        &self.warnings
    }
}

/// Converts gaps between table rows to times of the stream.
fn filled_times(gaps: &[Gap], block_times: u64) -> Vec<io::Gap> {
    let mut lost = 0;
    let mut place = |gap: &Gap| {
        let start_time = gap.row * block_times + lost;
        lost += gap.times;
        io::Gap { start_time, times: gap.times }
    };
    gaps.iter().map(&mut place).collect()
}

/// Warns about missing search-mode columns and the assumptions made instead.
fn warnings(table: &Table, layout: &Layout) -> Vec<String> {
    let missing = |names: &[&str]| -> Option<String> {
        let missing: Vec<&str> =
            names.iter().copied().filter(|name| table.column(name).is_none()).collect();
        (!missing.is_empty()).then(|| missing.join(", "))
    };
    let path = table.path().display();
    let mut warnings = Vec::new();
    if let Some(names) = missing(&["OFFS_SUB"]) {
        warnings.push(format!(
            "{path}: its table has no column {names}, so that lost rows can't be found and times may be wrong"
        ));
    }
    // Floats need no scales, and writers omit them.
    let columns: &[&str] = match layout.encoding {
        Encoding::F32 => &[],
        _ => &["DAT_SCL", "DAT_OFFS", "DAT_WTS"],
    };
    if let Some(names) = missing(columns) {
        warnings.push(format!(
            "{path}: its table has no column {names}; samples are used as if these were 1, 0 and 1"
        ));
    }
    warnings
}
