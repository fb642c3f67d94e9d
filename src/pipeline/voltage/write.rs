//! Output of channelized voltages to a SIGPROC filterbank.

use std::io::Write;
use std::path::Path;
use std::time::Instant;

use super::filterbank::VoltageFilterbank;
use super::scaling::Scaling;
use crate::error::Result;
use crate::io::sigproc::FilterbankWriter;
use crate::io::{FilterbankHeader, FilterbankSource, Gap};
use crate::pipeline::burst::Status;
use crate::pipeline::ending::Ending;
use crate::sample::Encoding;

/// Bytes of rows per write.
const GULP_BYTES: usize = 1 << 20;

/// Rows from which the 8-bit scaling is computed, unless they exceed [`SCALING_BYTES`].
const SCALING_ROWS: usize = 4096;

/// Limit in bytes on the rows held for the scaling.
const SCALING_BYTES: usize = 64 << 20;

/// Bytes of rows per read for the scaling.
const LEARN_BYTES: usize = 1 << 20;

/// Number format of the output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Depth {
    /// Single precision, unscaled.
    #[default]
    F32,
    /// Counts from 0 to 255, scaled by [`Scaling`].
    U8,
}

/// Destination of a filterbank.
pub enum Destination<'a> {
    /// File; it gets its name once it is complete.
    File(&'a Path),
    /// Pipe, such as standard output.
    Pipe(Box<dyn Write + Send>),
}

/// Report of a written filterbank.
#[derive(Clone, Debug)]
pub struct WriteReport {
    /// Number of rows.
    pub rows: u64,
    /// Rows that were filled, counted from the first row written.
    pub gaps: Vec<Gap>,
    /// Scaling of the 8-bit counts.
    pub scaling: Option<Scaling>,
    /// Length of the rows in seconds.
    pub data_s: f64,
    /// Elapsed time in seconds.
    pub elapsed_s: f64,
    /// End state of the run. The file holds all earlier rows; a run stopped before its first row leaves no file.
    pub ending: Ending,
}

/// Writes all remaining rows to a SIGPROC filterbank, one IF per product.
///
/// `observe` receives the progress after each gulp and stops the run by returning false. A stop, a read error, a
/// device failure or a full disk truncates the file: it holds the earlier rows with the same bits as a complete run.
/// A run with 8-bit counts that ends among the rows for the scaling is scaled by the rows that it has.
///
/// # Errors
/// [`crate::Error::Io`] of a pipe; any error before the first row, except a stop.
pub fn write_filterbank(
    filterbank: &mut VoltageFilterbank,
    destination: Destination<'_>,
    depth: Depth,
    observe: &mut dyn FnMut(&Status) -> bool,
) -> Result<WriteReport> {
    let begin = Instant::now();
    let header = filterbank.header().clone();
    let mut sink = Sink::new(&header, filterbank.products(), destination, depth)?;
    let status = |rows: u64| Status {
        times: rows,
        total: header.times,
        data_s: rows as f64 * header.tsamp_s,
        elapsed_s: begin.elapsed().as_secs_f64(),
    };
    let mut go_on = |rows: u64| observe(&status(rows));
    let made = sink.fill(filterbank, &mut go_on);
    let ending = match made.and_then(|ending| sink.writer.end_data().map(|()| ending)) {
        Ok(ending) => ending,
        // Data already written to a pipe cannot be recovered.
        Err(fault) if sink.is_pipe => return Err(fault),
        Err(fault) => {
            sink.writer.keep_whole()?;
            Ending::after(fault)
        }
    };
    let Status { times, data_s, elapsed_s, .. } = status(sink.writer.rows());
    let ending = ending.or_error(times > 0)?;
    let scaling = sink.scaling;
    if times > 0 || ending.is_complete() {
        sink.writer.finish()?;
    }
    let gaps = filterbank.gaps().iter().filter(|gap| gap.start_time < times);
    let within = |gap: &Gap| Gap { times: gap.times.min(times - gap.start_time), ..*gap };
    let gaps = gaps.map(within).collect();
    Ok(WriteReport { rows: times, gaps, scaling, data_s, elapsed_s, ending })
}

struct Sink {
    writer: FilterbankWriter,
    is_pipe: bool,
    depth: Depth,
    scaling: Option<Scaling>,
    counts: Vec<u8>,
}

impl Sink {
    fn new(
        header: &FilterbankHeader,
        products: usize,
        destination: Destination<'_>,
        depth: Depth,
    ) -> Result<Self> {
        let encoding = match depth {
            Depth::F32 => Encoding::F32,
            Depth::U8 => Encoding::U8,
        };
        let header = FilterbankHeader { encoding, ..header.clone() };
        let is_pipe = matches!(destination, Destination::Pipe(_));
        let writer = match destination {
            Destination::File(path) => FilterbankWriter::create_ifs(path, &header, products)?,
            Destination::Pipe(pipe) => FilterbankWriter::to_pipe_ifs(pipe, &header, products)?,
        };
        Ok(Self { writer, is_pipe, depth, scaling: None, counts: Vec::new() })
    }

    /// Writes all remaining rows and returns how they ended; `go_on` receives the number of rows written.
    ///
    /// # Errors
    /// Errors of writing only.
    fn fill(
        &mut self,
        filterbank: &mut VoltageFilterbank,
        go_on: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Ending> {
        if self.depth == Depth::U8
            && let Some(ending) = self.learn(filterbank, go_on)?
        {
            return Ok(ending);
        }
        let elements = filterbank.row_elements();
        let mut rows = vec![0.0; (GULP_BYTES / 4).div_ceil(elements) * elements];
        loop {
            match filterbank.read_rows(&mut rows) {
                Ok(0) => return Ok(Ending::of_source(filterbank.cut())),
                Ok(times) => self.put(&rows[..times * elements])?,
                Err(fault) => return Ok(Ending::after(fault)),
            }
            if !go_on(self.writer.rows()) {
                return Ok(Ending::Stopped);
            }
        }
    }

    /// Reads the first rows, computes the scaling from those that are data, and writes them; returns how they ended,
    /// if they did.
    fn learn(
        &mut self,
        filterbank: &mut VoltageFilterbank,
        go_on: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Option<Ending>> {
        let elements = filterbank.row_elements();
        let gaps = filterbank.gaps().to_vec();
        let mut filling = vec![0.0; elements];
        // A gap at the start repeats one row.
        let mut empty = gaps.first().filter(|gap| gap.start_time == 0).map_or(0, |gap| gap.times);
        let mut ending = None;
        if empty > 0 {
            let passed = filterbank.read_rows(&mut filling);
            let passed = passed.and_then(|row| Ok(row as u64 + filterbank.skip(empty - 1)?));
            match passed {
                Ok(passed) => empty = passed,
                Err(fault) => return Ok(Some(Ending::after(fault))),
            }
        }
        let times = SCALING_ROWS.min((SCALING_BYTES / (4 * elements)).max(16));
        let mut rows = Vec::new();
        while rows.len() < times * elements && ending.is_none() {
            let known = rows.len();
            rows.resize((known + LEARN_BYTES / 4).div_ceil(elements) * elements, 0.0);
            rows.truncate(times * elements);
            let read = filterbank.read_rows(&mut rows[known..]);
            rows.truncate(known + elements * *read.as_ref().unwrap_or(&0));
            ending = match read {
                Ok(0) => Some(Ending::of_source(filterbank.cut())),
                Ok(_) => (!go_on(0)).then_some(Ending::Stopped),
                Err(fault) => Some(Ending::after(fault)),
            };
        }
        let is_data = |row: u64| {
            gaps.iter().all(|gap| row < gap.start_time || row >= gap.start_time + gap.times)
        };
        let data = rows.chunks_exact(elements).zip(empty..).filter(|(_, row)| is_data(*row));
        let data: Vec<f32> = data.flat_map(|(values, _)| values).copied().collect();
        self.scaling = Some(Scaling::new(if data.is_empty() { &filling } else { &data }, elements));
        for row in 0..empty {
            self.put(&filling)?;
            if row % SCALING_ROWS as u64 == 0 && !go_on(row) {
                return Ok(Some(Ending::Stopped));
            }
        }
        self.put(&rows)?;
        Ok(ending)
    }

    fn put(&mut self, rows: &[f32]) -> Result<()> {
        let Some(scaling) = &mut self.scaling else {
            return self.writer.write(bytemuck::cast_slice(rows));
        };
        self.counts.resize(rows.len(), 0);
        scaling.scale(rows, &mut self.counts);
        self.writer.write(&self.counts)
    }
}
