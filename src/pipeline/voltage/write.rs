//! From voltages to a SIGPROC filterbank.

use std::io::Write;
use std::path::Path;
use std::time::Instant;

use super::filterbank::VoltageFilterbank;
use super::scaling::Scaling;
use crate::error::Result;
use crate::io::sigproc::FilterbankWriter;
use crate::io::{FilterbankHeader, FilterbankSource, Gap};
use crate::pipeline::burst::Status;
use crate::sample::Encoding;

/// Bytes of rows that are made before they are written.
const GULP_BYTES: usize = 1 << 20;

/// Rows that 8-bit scaling looks at, unless they are more than [`SCALING_BYTES`].
const SCALING_ROWS: usize = 4096;

/// The most bytes of rows that are held for it.
const SCALING_BYTES: usize = 64 << 20;

/// How numbers are stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Depth {
    /// As they are, in single precision.
    #[default]
    F32,
    /// As counts from 0 to 255, scaled by [`Scaling`].
    U8,
}

/// Where a filterbank is written.
pub enum Destination<'a> {
    /// A file, which has its name once it is whole.
    File(&'a Path),
    /// A pipe, such as standard output.
    Pipe(Box<dyn Write + Send>),
}

/// What was written.
#[derive(Clone, Debug)]
pub struct WriteReport {
    /// Rows.
    pub rows: u64,
    /// Rows that were filled, counted from the first row written.
    pub gaps: Vec<Gap>,
    /// How 8-bit counts were made.
    pub scaling: Option<Scaling>,
    /// Length of the rows in seconds.
    pub data_s: f64,
    /// Time that it took, in seconds.
    pub elapsed_s: f64,
    /// False when the observer stopped it; then there is no file.
    pub complete: bool,
}

/// Writes all rows that are left to a SIGPROC filterbank, one IF a product.
///
/// `observe` is told after each gulp how far the work is, and stops it by returning false.
///
/// # Errors
/// [`crate::Error::Io`]; whatever the source reports.
pub fn write_filterbank(
    filterbank: &mut VoltageFilterbank,
    destination: Destination<'_>,
    depth: Depth,
    observe: &mut dyn FnMut(&Status) -> bool,
) -> Result<WriteReport> {
    let begin = Instant::now();
    let header = filterbank.header().clone();
    let mut sink = Sink::new(&header, filterbank.products(), destination, depth)?;
    if depth == Depth::U8 {
        sink.learn(filterbank)?;
    }
    let elements = filterbank.row_elements();
    let mut rows = vec![0.0; (GULP_BYTES / 4).div_ceil(elements) * elements];
    let mut complete = true;
    let status = |rows: u64| Status {
        times: rows,
        total: header.times,
        data_s: rows as f64 * header.tsamp_s,
        elapsed_s: begin.elapsed().as_secs_f64(),
    };
    loop {
        let times = filterbank.read_rows(&mut rows)?;
        sink.put(&rows[..times * elements])?;
        if !observe(&status(sink.writer.rows())) {
            complete = false;
            break;
        }
        if times * elements < rows.len() {
            break;
        }
    }
    let Status { times, data_s, elapsed_s, .. } = status(sink.writer.rows());
    let scaling = sink.scaling;
    if complete {
        sink.writer.finish()?;
    }
    let gaps = filterbank.gaps().to_vec();
    Ok(WriteReport { rows: times, gaps, scaling, data_s, elapsed_s, complete })
}

struct Sink {
    writer: FilterbankWriter,
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
        let writer = match destination {
            Destination::File(path) => FilterbankWriter::create_ifs(path, &header, products)?,
            Destination::Pipe(pipe) => FilterbankWriter::to_pipe_ifs(pipe, &header, products)?,
        };
        Ok(Self { writer, scaling: None, counts: Vec::new() })
    }

    /// Reads the first rows, takes the scaling from those that are data, and writes them.
    fn learn(&mut self, filterbank: &mut VoltageFilterbank) -> Result<()> {
        let elements = filterbank.row_elements();
        let gaps = filterbank.gaps().to_vec();
        let mut filling = vec![0.0; elements];
        // A gap at the start is one row many times over.
        let empty = gaps.first().filter(|gap| gap.start_time == 0).map_or(0, |gap| gap.times);
        if empty > 0 {
            filterbank.read_rows(&mut filling)?;
            filterbank.skip(empty - 1)?;
        }
        let times = SCALING_ROWS.min((SCALING_BYTES / (4 * elements)).max(16));
        let mut rows = vec![0.0; times * elements];
        let times = filterbank.read_rows(&mut rows)?;
        rows.truncate(times * elements);
        let is_data = |row: u64| {
            gaps.iter().all(|gap| row < gap.start_time || row >= gap.start_time + gap.times)
        };
        let data = rows.chunks_exact(elements).zip(empty..).filter(|(_, row)| is_data(*row));
        let data: Vec<f32> = data.flat_map(|(values, _)| values).copied().collect();
        self.scaling = Some(Scaling::new(if data.is_empty() { &filling } else { &data }, elements));
        for _ in 0..empty {
            self.put(&filling)?;
        }
        self.put(&rows)
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
