//! PSRFITS search mode: a FITS file whose SUBINT table has one block of spectra per row.
//!
//! Invariant: each of the threads that convert (at most 12) holds about 1 MiB of a row at a time, whatever the row's
//! length. A read that fails does not move the source.
//!
//! # Source
//! Hotan, van Straten & Manchester 2004, PASA 21, 302, and the PSRFITS definition's web page.

mod fits;
mod samples;

use std::io::{Read, Seek};
use std::path::Path;

use crate::error::{Error, Result};
use crate::io;
use crate::io::parallel::{self, Input};
use crate::io::{Beam, FilterbankHeader, FilterbankSource, Polarizations, sexagesimal};
use crate::math::RunningMedian;
use crate::sample::Encoding;
use crate::units::{Band, HZ_PER_MHZ, SECONDS_PER_DAY};
use fits::Header;
use fits::{Column, Table};
use samples::Converter;
use samples::Layout;
use samples::{Factors, Scaling};

pub(super) use fits::card_value;

/// Opens a PSRFITS search-mode file.
///
/// Samples keep their recorded width if the file's scales, offsets, weights and zero level are all trivial; otherwise
/// they become f32. A sum of two polarizations has a wider type. Rows lost by the recorder (jumps of OFFS_SUB) are an
/// error unless `allow_gaps` is set; then each channel's median over the spectra before the gap fills them.
///
/// | rows          | axes          | type                            | unit           |
/// |---------------|---------------|---------------------------------|----------------|
/// | of the source | time, channel | the header's `encoding`         | as recorded    |
///
/// # Errors
/// [`Error::Format`] naming the card or column for a file that is not a PSRFITS search-mode file, ends early, is
/// inconsistent or has gaps; [`Error::Parameter`] for a polarization that it lacks; [`Error::Io`].
/// # Source
/// PSRFITS definition 6.x; scaling has the order of operations of PRESTO and `your`.
pub fn open(
    path: &Path,
    polarizations: Polarizations,
    allow_gaps: bool,
) -> Result<Box<dyn FilterbankSource>> {
    let file = crate::io::compressed::open(path)?;
    open_input(Input::File(file), path, polarizations, allow_gaps)
}

/// Opens a file held in memory like [`open`]; `path` names it in errors.
///
/// # Errors
/// As [`open`].
pub fn from_bytes(
    bytes: Vec<u8>,
    path: &Path,
    polarizations: Polarizations,
    allow_gaps: bool,
) -> Result<Box<dyn FilterbankSource>> {
    open_input(Input::Bytes(bytes), path, polarizations, allow_gaps)
}

fn open_input(
    file: Input,
    path: &Path,
    polarizations: Polarizations,
    allow_gaps: bool,
) -> Result<Box<dyn FilterbankSource>> {
    let bytes = file.len().map_err(|e| Error::io(path, e))?;
    let mut input = file.cursor_at(0);
    let primary = Header::read(&mut input, path, 0)?;
    check_primary(&primary, path)?;
    let subint = find_subint(&mut input, path, &primary, bytes)?;
    let table = Table::new(&subint, path, bytes)?;
    let layout = Layout::new(&subint, &table)?;
    let kind = subint.text("POL_TYPE").unwrap_or_default();
    let select = layout.select(polarizations, kind)?;
    let scaling = Scaling::scan(&mut input, &table, &layout)?;
    let timing = scan_gaps(&mut input, &table, &layout, allow_gaps)?;
    let converter = Converter::new(&layout, select, &scaling);
    let lost: u64 = timing.gaps.iter().map(|gap| gap.times).sum();
    let header = FilterbankHeader {
        path: path.to_path_buf(),
        format: "PSRFITS",
        source_name: primary.text("SRC_NAME").unwrap_or_default().to_string(),
        telescope: primary.text("TELESCOP").unwrap_or_default().to_string(),
        ra_deg: primary.text("RA").and_then(sexagesimal::parse).map(|hours| hours * 15.0),
        dec_deg: primary.text("DEC").and_then(sexagesimal::parse),
        beam: Beam::named(primary.text("IBEAM"), None),
        tstart_mjd: start_mjd(&primary, &subint, &layout, &timing)?,
        tsamp_s: layout.tsamp_s,
        band: read_band(&mut input, &primary, &subint, &table, &layout)?,
        encoding: converter.encoding(),
        recorded_bits: layout.bits,
        recorded_polarizations: layout.polarizations,
        times: Some((table.rows - 1) * layout.block_times + layout.last_times + lost),
    };
    Ok(Box::new(Source::new(file, header, table, layout, scaling, timing.gaps, converter)))
}

fn check_primary(primary: &Header, path: &Path) -> Result<()> {
    let kind = primary.text("FITSTYPE").unwrap_or_default();
    if kind != "PSRFITS" {
        let what = crate::io::foreign::clause(path);
        let why = format!("{kind:?} found, expected \"PSRFITS\"{what}");
        return Err(primary.fault("FITSTYPE", why));
    }
    let mode = primary.text("OBS_MODE").unwrap_or_default();
    if ["PSR", "CAL"].contains(&mode) {
        let why = format!("{mode:?} found (folded data), expected \"SEARCH\"");
        return Err(primary.fault("OBS_MODE", why));
    }
    Ok(())
}

/// Reads the header of the first unit named SUBINT.
fn find_subint<R: Read + Seek>(
    input: &mut R,
    path: &Path,
    primary: &Header,
    bytes: u64,
) -> Result<Header> {
    let mut start = primary.next_start()?;
    while start < bytes {
        let header = Header::read(input, path, start)?;
        let is_table = header.text("XTENSION") == Some("BINTABLE");
        if is_table && header.text("EXTNAME") == Some("SUBINT") {
            return Ok(header);
        }
        start = header.next_start()?;
    }
    let why = format!("no binary table of the name SUBINT in the file of {bytes} bytes");
    Err(Error::format(path, "EXTNAME", bytes, why))
}

/// Computes the start: STT_IMJD + STT_SMJD + STT_OFFS, plus the rows of earlier files from NSUBOFFS or the first
/// row's OFFS_SUB, whichever is larger.
fn start_mjd(primary: &Header, subint: &Header, layout: &Layout, timing: &Timing) -> Result<f64> {
    let real = |key| Ok::<f64, Error>(primary.real(key)?.unwrap_or(0.0));
    let rows = subint.integer("NSUBOFFS")?.unwrap_or(0).max(0) as f64;
    let rows = rows.max(timing.rows_before as f64);
    let before_s = rows * layout.block_times as f64 * layout.tsamp_s;
    let seconds = real("STT_SMJD")? + real("STT_OFFS")? + before_s;
    Ok(real("STT_IMJD")? + seconds / SECONDS_PER_DAY)
}

/// Reads channel centres from the first row's DAT_FREQ, or from OBSFREQ and CHAN_BW without that column.
fn read_band<R: Read + Seek>(
    input: &mut R,
    primary: &Header,
    subint: &Header,
    table: &Table,
    layout: &Layout,
) -> Result<Band> {
    let channels = layout.channels;
    let width_mhz = subint.real("CHAN_BW")?.unwrap_or(0.0);
    let Some(column) = table.column("DAT_FREQ") else {
        let Some(centre) = primary.real("OBSFREQ")? else {
            return Err(primary.fault("OBSFREQ", "no centre frequency and no column DAT_FREQ"));
        };
        let first = centre - width_mhz * (channels as f64 - 1.0) / 2.0;
        return Band::uniform(first, width_mhz, channels)
            .map_err(|error| subint.fault("CHAN_BW", error.to_string()));
    };
    if column.elements != channels as u64 {
        let why = format!("{} elements a row found, expected {channels}", column.elements);
        return Err(table.fault(column, 0, why));
    }
    let (mut scratch, mut centres) = (Vec::new(), Vec::new());
    table.read_reals(input, column, 0, &mut scratch, &mut centres)?;
    centres.iter_mut().for_each(|centre| *centre *= HZ_PER_MHZ);
    let spacing_hz = (centres[channels - 1] - centres[0]).abs() / (channels.max(2) - 1) as f64;
    let width_hz = if width_mhz == 0.0 { spacing_hz } else { width_mhz.abs() * HZ_PER_MHZ };
    Band::from_centres(centres, width_hz).map_err(|error| table.fault(column, 0, error.to_string()))
}

/// Upper bound on the samples of an observation, which keeps sums of gaps from overflowing.
const MAX_TIMES: f64 = 1e15;

/// Samples missing before a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Gap {
    /// Row after the gap.
    row: u64,
    /// Number of missing samples.
    times: u64,
}

/// Time of the rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Timing {
    /// Whole rows between the observation's start and the file's first row.
    rows_before: u64,
    /// Jumps between rows.
    gaps: Vec<Gap>,
}

/// Reads OFFS_SUB of every row. If it is 0 in all rows, or missing, no row counts as lost.
///
/// # Errors
/// [`crate::Error::Format`] for a row that starts before the end of the one before it, for a gap of more than a day,
/// and for any gap unless `allow_gaps`.
fn scan_gaps<R: Read + Seek>(
    input: &mut R,
    table: &Table,
    layout: &Layout,
    allow_gaps: bool,
) -> Result<Timing> {
    let Some(column) = table.column("OFFS_SUB") else { return Ok(Timing::default()) };
    let (mut scratch, mut cell) = (Vec::new(), Vec::new());
    let mut timing = Timing::default();
    let mut reference = 0.0;
    let mut lost = 0u64;
    for row in 0..table.rows {
        table.read_reals(input, column, row, &mut scratch, &mut cell)?;
        let offset_s = cell[0];
        if row == 0 {
            reference = offset_s;
            timing.rows_before = rows_before(offset_s, layout);
            continue;
        }
        if offset_s == 0.0 && reference == 0.0 {
            continue;
        }
        let expected = (row * layout.block_times + lost) as f64;
        let missing = (offset_s - reference) / layout.tsamp_s - expected;
        let is_last = row + 1 == table.rows;
        let times = check_jump(table, column, row, missing, expected, is_last, layout)?;
        if times > 0 && !allow_gaps {
            let why = format!(
                "row {row} starts {times} samples ({} s) after the end of row {}; `allow_gaps` fills them",
                times as f64 * layout.tsamp_s,
                row - 1
            );
            return Err(table.fault(column, row, why));
        }
        if times > 0 {
            timing.gaps.push(Gap { row, times });
            lost += times;
        }
    }
    Ok(timing)
}

/// Returns the whole rows before the first from its OFFS_SUB, as in PRESTO's psrfits.c.
fn rows_before(offset_s: f64, layout: &Layout) -> u64 {
    let row_s = layout.block_times as f64 * layout.tsamp_s;
    let rows = (offset_s / row_s - 0.5 + 1e-7).floor();
    if rows > 0.0 && rows < 1e9 { rows as u64 } else { 0 }
}

/// Returns the whole number of missing samples; rows within half a sample are contiguous.
fn check_jump(
    table: &Table,
    column: &Column,
    row: u64,
    missing: f64,
    expected: f64,
    is_last: bool,
    layout: &Layout,
) -> Result<u64> {
    // OFFS_SUB of a last, partly valid row may be the centre of its valid samples, which is earlier.
    let early = if is_last { layout.block_times as f64 / 2.0 } else { 0.5 };
    if missing < -early - 1e-3 {
        let why = format!(
            "row {row} starts {:.1} samples before the end of row {}, expected rows in order of time",
            -missing,
            row - 1
        );
        return Err(table.fault(column, row, why));
    }
    if missing * layout.tsamp_s > SECONDS_PER_DAY || missing + expected > MAX_TIMES {
        let why =
            format!("row {row} starts {:.0} s late, more than a day", missing * layout.tsamp_s);
        return Err(table.fault(column, row, why));
    }
    Ok(if missing <= 0.5 { 0 } else { missing.round() as u64 })
}

/// Bytes that a thread reads and converts at a time, recorded or converted, unless a single spectrum is longer.
const BATCH_BYTES: u64 = 1 << 20;
/// Maximum number of spectra before a gap whose median fills it.
const MEDIAN_TIMES: u64 = 256;
/// Maximum number of samples in that median.
const MEDIAN_SAMPLES: u64 = 1 << 22;

/// Row stream of a PSRFITS file.
#[derive(Debug)]
struct Source {
    input: Input,
    header: FilterbankHeader,
    table: Table,
    layout: Layout,
    scaling: Scaling,
    /// One for each thread that has been used; at least one.
    workers: Vec<Worker>,
    gaps: Vec<Gap>,
    filled: Vec<io::Gap>,
    position: Position,
    fill: Vec<u8>,
    warnings: Vec<String>,
}

/// Buffers of a thread that reads and converts spectra.
#[derive(Clone, Debug)]
struct Worker {
    converter: Converter,
    factors: Factors,
    factors_row: Option<u64>,
    raw: Vec<u8>,
}

/// Spectra of one table row to be converted to `rows`.
struct Batch<'a> {
    row: u64,
    time: u64,
    rows: &'a mut [u8],
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

impl Source {
    /// Makes a stream at its start.
    fn new(
        input: Input,
        header: FilterbankHeader,
        table: Table,
        layout: Layout,
        scaling: Scaling,
        gaps: Vec<Gap>,
        converter: Converter,
    ) -> Self {
        let warnings = warnings(&table, &layout);
        let filled = filled_times(&gaps, layout.block_times);
        let factors = Factors::default();
        let workers = vec![Worker { converter, factors, factors_row: None, raw: Vec::new() }];
        Self {
            input,
            header,
            table,
            layout,
            scaling,
            workers,
            gaps,
            filled,
            position: Position::default(),
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

    /// Returns the spectra of a batch.
    fn batch_times(&self) -> usize {
        let bytes = self.layout.spectrum_bits().div_ceil(8).max(self.header.row_bytes() as u64);
        (BATCH_BYTES / bytes).max(1) as usize
    }

    /// Reads and converts batches, on several threads if they are large.
    ///
    /// # Errors
    /// The error of the earliest batch.
    fn convert(&mut self, batches: Vec<Batch<'_>>) -> Result<()> {
        let bytes = batches.iter().map(|batch| batch.rows.len()).sum();
        let count = parallel::threads(bytes).min(batches.len()).max(1);
        while self.workers.len() < count {
            let mut more = self.workers[0].clone();
            more.factors_row = None;
            self.workers.push(more);
        }
        let mut results: Vec<_> = batches.iter().map(|_| Ok(())).collect();
        let Self { input, table, layout, scaling, workers, .. } = self;
        let jobs = batches.into_iter().zip(&mut results);
        parallel::for_each_with(&mut workers[..count], jobs, |worker, (batch, result)| {
            *result = worker.convert(input, table, layout, scaling, batch);
        });
        results.into_iter().collect()
    }

    /// Fills `rows` with each channel's median over the last spectra before table row `row`.
    fn read_gap(&mut self, row: u64, rows: &mut [u8]) -> Result<()> {
        let channels = self.layout.channels;
        let row_bytes = self.header.row_bytes();
        if self.fill.is_empty() {
            let most = (MEDIAN_SAMPLES / channels as u64).clamp(1, MEDIAN_TIMES);
            let times = self.layout.block_times.min(most);
            let mut before = vec![0u8; times as usize * row_bytes];
            let (row, time) = (row - 1, self.layout.block_times - times);
            self.convert(batches(row, time, &mut before, self.batch_times(), row_bytes).collect())?;
            let mut median = RunningMedian::dense(self.header.encoding, channels);
            median.observe_rows(0, &before);
            self.fill = median.row();
        }
        rows.chunks_exact_mut(row_bytes).for_each(|row| row.copy_from_slice(&self.fill));
        Ok(())
    }

    /// Reads the next rows and advances past them; returns their number.
    fn read_next(&mut self, mut rows: &mut [u8]) -> Result<usize> {
        let (row_bytes, batch_times) = (self.header.row_bytes(), self.batch_times());
        let (mut done, mut waiting) = (0, Vec::new());
        while !rows.is_empty() {
            let at_row = self.position.row;
            let run = self.advance((rows.len() / row_bytes) as u64);
            let (Run::Gap { times } | Run::Row { times, .. }) = run else { break };
            let (part, rest) = rows.split_at_mut(times as usize * row_bytes);
            if let Run::Row { row, time, .. } = run {
                self.fill.clear();
                waiting.extend(batches(row, time, part, batch_times, row_bytes));
            } else {
                // An error in the rows before the gap comes first.
                self.convert(std::mem::take(&mut waiting))?;
                self.read_gap(at_row, part)?;
            }
            done += times as usize;
            rows = rest;
        }
        self.convert(waiting)?;
        Ok(done)
    }
}

/// Divides spectra of a table row, from spectrum `time` on, into batches of `times`.
fn batches(
    row: u64,
    time: u64,
    rows: &mut [u8],
    times: usize,
    row_bytes: usize,
) -> impl Iterator<Item = Batch<'_>> {
    let parts = rows.chunks_mut(times * row_bytes).enumerate();
    parts.map(move |(index, rows)| Batch { row, time: time + (index * times) as u64, rows })
}

impl Worker {
    /// Reads and converts the spectra of a batch.
    fn convert(
        &mut self,
        input: &Input,
        table: &Table,
        layout: &Layout,
        scaling: &Scaling,
        batch: Batch<'_>,
    ) -> Result<()> {
        let Batch { row, time, rows } = batch;
        let mut input = input.cursor_at(0);
        if self.factors_row != Some(row) && !scaling.is_trivial() {
            self.factors_row = None;
            scaling.read(&mut input, table, row, &mut self.factors)?;
            self.factors_row = Some(row);
        }
        let spectrum_bits = layout.spectrum_bits();
        let times = (rows.len() / self.converter.row_bytes()) as u64;
        let first = time * spectrum_bits;
        let end = (first + times * spectrum_bits).div_ceil(8);
        self.raw.resize((end - first / 8) as usize, 0);
        table.read_bytes(&mut input, &layout.data, row, first / 8, &mut self.raw)?;
        let phase = (first % 8) as usize;
        self.converter.convert(&mut self.raw, phase, scaling, &self.factors, rows);
        Ok(())
    }
}

impl FilterbankSource for Source {
    fn header(&self) -> &FilterbankHeader {
        &self.header
    }

    fn read(&mut self, rows: &mut [u8]) -> Result<usize> {
        self.header.times_in(rows)?;
        let position = self.position;
        let read = self.read_next(rows);
        if read.is_err() {
            self.position = position;
            self.fill.clear();
        }
        read
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
