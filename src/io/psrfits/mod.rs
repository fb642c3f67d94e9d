//! PSRFITS search mode: a FITS file whose SUBINT table has one block of spectra per row.
//!
//! Invariant: a reader holds about 1 MiB of a row at a time, whatever the row's length.
//!
//! # Source
//! Hotan, van Straten & Manchester 2004, PASA 21, 302, and the PSRFITS definition's web page.

mod fits;
mod samples;

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use crate::error::{Error, Result};
use crate::io;
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
    let file = File::open(path).map_err(|e| Error::io(path, e))?;
    from_reader(file, path, polarizations, allow_gaps)
}

/// Opens any seekable stream like [`open`]; `path` names it in errors.
///
/// # Errors
/// As [`open`].
pub fn from_reader<R: Read + Seek + Send + 'static>(
    mut input: R,
    path: &Path,
    polarizations: Polarizations,
    allow_gaps: bool,
) -> Result<Box<dyn FilterbankSource>> {
    let bytes = input.seek(SeekFrom::End(0)).map_err(|e| Error::io(path, e))?;
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
    Ok(Box::new(Source::new(input, header, table, layout, scaling, timing.gaps, converter)))
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

/// Raw bytes per read, unless a single spectrum is longer.
const BATCH_BYTES: u64 = 1 << 20;
/// Maximum number of spectra before a gap whose median fills it.
const MEDIAN_TIMES: u64 = 256;
/// Maximum number of samples in that median.
const MEDIAN_SAMPLES: u64 = 1 << 22;

/// Row stream of a PSRFITS file.
#[derive(Debug)]
struct Source<R> {
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
    fn new(
        input: R,
        header: FilterbankHeader,
        table: Table,
        layout: Layout,
        scaling: Scaling,
        gaps: Vec<Gap>,
        converter: Converter,
    ) -> Self {
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
            let data = &self.layout.data;
            self.table.read_bytes(&mut self.input, data, row, first / 8, &mut self.raw)?;
            let phase = (first % 8) as usize;
            self.converter.convert(&mut self.raw, phase, &self.scaling, &self.factors, rows);
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
