//! Templates: waveforms as time series, or binaries from which to compute waveforms.
//!
//! Invariant: every waveform's samples are finite and of a known rate; every binary's masses lie within 0 to 1e4 solar
//! masses and its spins within -1 to 1.
//!
//! | file                             | contents                                                          |
//! |----------------------------------|-------------------------------------------------------------------|
//! | HDF5 with series                 | plus and cross as two data sets or two rows, or complex series    |
//! | PyCBC TimeSeries (.hdf)          | a complex series, or plus alone: a data set with `delta_t`        |
//! | PyCBC bank (HDF5)                | `mass1`, `mass2`, `spin1z`, `spin2z`, `template_hash`             |
//! | LIGO_LW (.xml, .xml.gz)          | a table `sngl_inspiral` with `mass1`, `mass2`, `spin1z`, `spin2z` |
//! | CSV                              | the columns `mass1,mass2`, and any of `spin1z,spin2z,name`        |
//!
//! The content of a file determines its kind, not its name.

mod hdf5;

use std::io::Read as _;
use std::path::Path;

use num_complex::Complex64;
use rustfft::FftPlanner;

use crate::error::{Error, Result};
use crate::io::compressed;
use crate::io::csv::{self, Line, lines, shown};
use crate::io::hdf5::Input;
use crate::io::inflate::most_bytes;
use crate::io::ligolw;
use crate::io::ligolw::Values;
use crate::strain::{Binary, Waveform};
use hdf5::{Array, Numbers};

/// Contents of a template file.
#[derive(Clone, Debug, PartialEq)]
pub enum Templates {
    /// Waveforms as time series.
    Waveforms(Vec<Waveform>),
    /// Binaries with their names, empty if a CSV file has none.
    Binaries(Vec<(String, Binary)>),
}

impl Templates {
    /// Returns the number of templates.
    pub fn len(&self) -> usize {
        match self {
            Self::Waveforms(waveforms) => waveforms.len(),
            Self::Binaries(binaries) => binaries.len(),
        }
    }

    /// Returns whether there are no templates.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Reads a template file of any kind.
///
/// # Errors
/// As [`open_with`].
pub fn open(path: &Path) -> Result<Templates> {
    open_with(path, &TemplateOptions::default())
}

/// Reads a template file of any kind.
///
/// In an HDF5 file, the attribute `rate`, `fs` (or similar) gives a series' sampling rate, or `dt` its sampling time;
/// the attribute may belong to the data set, its group, a group `meta`, or the file. A complex series is `h_plus - i
/// h_cross`. A real PyCBC TimeSeries is `h_plus` alone; the reader constructs `h_cross` with a lag of a quarter
/// cycle. Zeros at both ends of a series are removed.
///
/// # Errors
/// [`Error::Io`]; [`Error::Format`] with the contents of a file without templates, or with the invalid field: masses
/// or spins out of range, spins not along the orbital angular momentum, series without a rate.
pub fn open_with(path: &Path, options: &TemplateOptions) -> Result<Templates> {
    crate::io::check_seekable(path)?;
    let head = compressed::head(path, HDF5.len() as u64)?;
    let found = if head.starts_with(HDF5) {
        let file = Input::open(path)?;
        if is_bank(&file) {
            Templates::Binaries(read_bank(&file)?)
        } else {
            Templates::Waveforms(read_series(&file, options)?)
        }
    } else if ligolw::is_ligolw(path) {
        Templates::Binaries(read_table(path)?)
    } else {
        Templates::Binaries(read_csv(path)?)
    };
    match found.is_empty() {
        true => {
            Err(Error::format(path, "templates", 0, "found 0 templates, expected one at least"))
        }
        false => Ok(found),
    }
}

/// Magic bytes of HDF5.
const HDF5: &[u8] = b"\x89HDF\r\n\x1a\n";

/// Largest accepted mass, in solar masses.
const MAX_MASS_MSUN: f64 = 1e4;

/// Columns of a binary, in the order of [`binary`].
const COLUMNS: [&str; 4] = ["mass1", "mass2", "spin1z", "spin2z"];

/// In-plane spins, which must be 0 if a table has them.
const SPINS_ACROSS: [&str; 4] = ["spin1x", "spin1y", "spin2x", "spin2y"];

/// Makes a binary from masses and spins.
fn binary([mass1_msun, mass2_msun, spin1z, spin2z]: [f64; 4]) -> Binary {
    Binary { mass1_msun, mass2_msun, spin1z, spin2z }
}

/// Returns the faulty column and the reason, if any.
fn column_fault(numbers: &[f64; 4]) -> Option<(&'static str, String)> {
    let bad = numbers.iter().enumerate().find(|(column, number)| match column {
        0 | 1 => !(**number > 0.0 && **number <= MAX_MASS_MSUN),
        _ => number.is_nan() || number.abs() >= 1.0,
    });
    bad.map(|(column, number)| {
        let expected = match column {
            0 | 1 => format!("a mass above 0 and at most {MAX_MASS_MSUN} solar masses"),
            _ => "a spin between -1 and 1".to_string(),
        };
        (COLUMNS[column], format!("found {number}, expected {expected}"))
    })
}

/// Values for properties that a file does not store.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TemplateOptions {
    /// Sampling rate of series without one.
    pub rate_hz: Option<u32>,
    /// Source distance in Mpc of series without one; 1 by default.
    pub distance_mpc: Option<f64>,
}

/// Names of the two polarizations, ignoring case.
const PAIRS: [[&str; 2]; 5] =
    [["plus", "cross"], ["h_plus", "h_cross"], ["hplus", "hcross"], ["hp", "hc"], ["h+", "hx"]];

/// Names of data sets whose two rows are plus and cross.
const TWO_ROWS: [&str; 5] = ["template", "waveform", "strain", "h", "polarizations"];

/// Attributes with the sampling rate.
const RATES: [&str; 7] =
    ["rate", "rate_hz", "sample_rate", "sampling_rate", "fs", "srate", "sample_rate_hz"];

/// Attributes with the sampling time.
const STEPS: [&str; 5] = ["dt", "delta_t", "deltaT", "Xspacing", "dx"];

/// Attributes that identify a PyCBC series, in time and in frequency.
const PYCBC_TIME: &str = "delta_t";
const PYCBC_FREQUENCY: &str = "delta_f";

/// Maximum samples of a series of plus alone, whose cross is constructed.
const MAX_PLUS: usize = 1 << 25;

/// Attributes with the distance in Mpc.
const DISTANCES: [&str; 3] = ["distance_mpc", "distance", "dist_mpc"];

/// Attributes with the fields of [`Binary`].
const BODIES: [[&str; 3]; 4] = [
    ["mass1", "m1", "mass1_msun"],
    ["mass2", "m2", "mass2_msun"],
    ["spin1z", "a1", "chi1"],
    ["spin2z", "a2", "chi2"],
];

/// Maximum number of data sets named in an error.
const TOLD: usize = 20;

/// Maximum number of samples of all series.
const MAX_SAMPLES: u64 = 1 << 27;

/// Reads all series of a file.
fn read_series(file: &Input, options: &TemplateOptions) -> Result<Vec<Waveform>> {
    let mut search = Search { file, options, found: Vec::new(), samples: 0 };
    let mut told = Vec::new();
    for group in file.groups()? {
        let names = file.datasets(&group)?;
        search.group(&group, &names)?;
        if told.len() < TOLD {
            told.extend(names.iter().map(|name| file.describe(&full_name(&group, name))));
        }
    }
    if search.found.is_empty() {
        told.truncate(TOLD);
        let found = if told.is_empty() { "no data sets".to_string() } else { told.join(", ") };
        let why = format!(
            "found {found}; expected data sets plus and cross, one of two rows named template, complex series, a TimeSeries of \
             PyCBC, or masses mass1 and mass2"
        );
        return Err(file.fault("templates", why));
    }
    Ok(search.found)
}

struct Search<'a> {
    file: &'a Input,
    options: &'a TemplateOptions,
    found: Vec<Waveform>,
    samples: u64,
}

impl Search<'_> {
    /// Reads the series of one group.
    fn group(&mut self, group: &str, names: &[String]) -> Result<()> {
        let find = |wanted: &str| names.iter().find(|name| name.eq_ignore_ascii_case(wanted));
        for [plus, cross] in PAIRS {
            match (find(plus), find(cross)) {
                (Some(plus), Some(cross)) => self.pair(group, plus, cross)?,
                (None, None) => {}
                (Some(one), None) | (None, Some(one)) => {
                    let other = if one.eq_ignore_ascii_case(plus) { cross } else { plus };
                    let why = format!("found without {other}, expected both polarizations");
                    return Err(self.file.fault(&full_name(group, one), why));
                }
            }
        }
        for name in names {
            let full = full_name(group, name);
            if !self.file.is_series(&full) {
                continue;
            }
            if self.file.attribute(&full, PYCBC_FREQUENCY).is_some() {
                let why = "found a PyCBC FrequencySeries, expected a TimeSeries: save its to_timeseries()";
                return Err(self.file.fault(&full, why));
            }
            if self.file.is_complex(&full) {
                self.complex(group, name)?;
            } else if self.is_plus(&full, name) {
                self.plus(group, name)?;
            } else if TWO_ROWS.iter().any(|known| name.eq_ignore_ascii_case(known)) {
                self.two_rows(group, name)?;
            }
        }
        Ok(())
    }

    /// Reads plus and cross from two data sets, with one series or one series per row.
    fn pair(&mut self, group: &str, plus: &str, cross: &str) -> Result<()> {
        let (plus, cross) = (full_name(group, plus), full_name(group, cross));
        let (first, second) = (self.file.numbers(&plus)?, self.file.numbers(&cross)?);
        if first.shape != second.shape {
            let why =
                format!("axes {:?}, expected {:?} as those of {plus}", second.shape, first.shape);
            return Err(self.file.fault(&cross, why));
        }
        let (rows, columns) = first.rows();
        let (first, second) = (self.reals(first, &plus)?, self.reals(second, &cross)?);
        for row in 0..rows {
            let range = row * columns..(row + 1) * columns;
            let samples = joined(&first[range.clone()], &second[range]);
            let name = self.name(group, "", (rows > 1).then_some(row));
            self.take(name, [&plus, group], samples)?;
        }
        Ok(())
    }

    /// Reads plus and cross from rows (or columns) of one data set.
    fn two_rows(&mut self, group: &str, name: &str) -> Result<()> {
        let full = full_name(group, name);
        let shape = self.file.shape(&full)?;
        let samples = match shape[..] {
            [2, _] => {
                let rows = self.file.numbers(&full).and_then(|array| self.reals(array, &full))?;
                let (plus, cross) = rows.split_at(rows.len() / 2);
                joined(plus, cross)
            }
            [_, 2] => {
                let pairs = self.file.numbers(&full).and_then(|array| self.reals(array, &full))?;
                pairs.chunks_exact(2).map(|pair| Complex64::new(pair[0], -pair[1])).collect()
            }
            _ => {
                let why = format!("axes {shape:?} found, expected two rows, plus and cross");
                return Err(self.file.fault(&full, why));
            }
        };
        let label = self.name(group, "", None);
        self.take(label, [&full, group], samples)
    }

    /// Returns whether a data set is a real PyCBC TimeSeries that is not one of a pair of polarizations.
    fn is_plus(&self, full: &str, name: &str) -> bool {
        let is_named = |known: &&str| name.eq_ignore_ascii_case(known);
        self.file.attribute(full, PYCBC_TIME).is_some()
            && self.file.shape(full).is_ok_and(|shape| shape.len() == 1)
            && !PAIRS.iter().flatten().any(is_named)
    }

    /// Reads plus alone; cross is that of a face-on source, a quarter cycle behind at all frequencies.
    fn plus(&mut self, group: &str, name: &str) -> Result<()> {
        let full = full_name(group, name);
        let numbers = self.file.numbers(&full).and_then(|array| self.reals(array, &full))?;
        let bounds =
            |is: fn(&f64) -> bool| (numbers.iter().position(is), numbers.iter().rposition(is));
        let (Some(first), Some(last)) = bounds(|h| *h != 0.0) else {
            return Err(self.file.fault(&full, "found nothing but zeros, expected a waveform"));
        };
        let plus = &numbers[first..=last];
        if plus.len() > MAX_PLUS {
            let why = format!("{} samples found, expected {MAX_PLUS} at most", plus.len());
            return Err(self.file.fault(&full, why));
        }
        let label = self.name(group, name, None);
        self.take(label, [&full, group], with_cross(plus))
    }

    /// Reads a complex series, or one per row.
    fn complex(&mut self, group: &str, name: &str) -> Result<()> {
        let full = full_name(group, name);
        let array = self.file.numbers(&full)?;
        let (rows, columns) = array.rows();
        let Numbers::Complex(numbers) = array.numbers else { return Ok(()) };
        for row in 0..rows {
            let samples = numbers[row * columns..(row + 1) * columns].to_vec();
            let label = self.name(group, name, (rows > 1).then_some(row));
            self.take(label, [&full, group], samples)?;
        }
        Ok(())
    }

    fn reals(&self, array: Array, name: &str) -> Result<Vec<f64>> {
        match array.numbers {
            Numbers::Real(numbers) => Ok(numbers),
            Numbers::Complex(_) => {
                Err(self.file.fault(name, "complex numbers found, expected real ones"))
            }
        }
    }

    /// Names a series by its group (or, in the root group, its file), data set and row.
    fn name(&self, group: &str, dataset: &str, row: Option<usize>) -> String {
        let stem = self.file.path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
        let mut name = if group.is_empty() { stem.unwrap_or_default() } else { group.to_string() };
        for part in [dataset.to_string(), row.map_or_else(String::new, |row| row.to_string())] {
            if !part.is_empty() {
                name = format!("{name}_{part}");
            }
        }
        name
    }

    /// Makes a waveform from samples; `objects` may carry its attributes.
    fn take(&mut self, name: String, objects: [&str; 2], samples: Vec<Complex64>) -> Result<()> {
        let [dataset, group] = objects;
        self.samples = self.samples.saturating_add(samples.len() as u64);
        let most = MAX_SAMPLES.min(most_bytes(self.file.bytes) / size_of::<Complex64>() as u64);
        if self.samples > most {
            let why = format!("more than {most} samples in all");
            return Err(self.file.fault(dataset, why));
        }
        let objects = [dataset, group, "meta", ""];
        let rate_hz = self.rate(&objects)?;
        let distance = first(self.file, &objects, &DISTANCES);
        let distance_mpc = distance.or(self.options.distance_mpc).unwrap_or(1.0);
        let waveform = Waveform::new(
            name,
            stored_binary(self.file, &objects),
            rate_hz,
            trimmed(samples),
            distance_mpc,
        );
        // Report invalid samples as an error of the file.
        let waveform = waveform.map_err(|error| self.file.fault(dataset, error.to_string()))?;
        self.found.push(waveform);
        Ok(())
    }

    fn rate(&self, objects: &[&str; 4]) -> Result<u32> {
        let step = first(self.file, objects, &STEPS).map(|seconds| 1.0 / seconds);
        let rate = first(self.file, objects, &RATES).or(step);
        match (rate, self.options.rate_hz) {
            (Some(hertz), _) => {
                let whole = hertz.round();
                // A single-precision sampling time is accurate to 1e-7.
                let is_whole = (hertz - whole).abs() <= 1e-6 * whole;
                if !is_whole || !(1.0..=f64::from(1 << 30)).contains(&whole) {
                    let why =
                        format!("{hertz} Hz found, expected a whole number of samples a second");
                    return Err(self.file.fault("rate", why));
                }
                Ok(whole as u32)
            }
            (None, Some(rate_hz)) => Ok(rate_hz),
            (None, None) => {
                let why = format!(
                    "no rate found: expected an attribute {} or {} of {}, its group, a group meta or the file, or the \
                     rate as an option",
                    RATES.join(", "),
                    STEPS.join(", "),
                    objects[0]
                );
                Err(Error::format(&self.file.path, "rate", 0, why))
            }
        }
    }
}

/// Returns a data set's path within the file.
fn full_name(group: &str, name: &str) -> String {
    if group.is_empty() { name.to_string() } else { format!("{group}/{name}") }
}

/// Computes `h_plus - i h_cross`.
fn joined(plus: &[f64], cross: &[f64]) -> Vec<Complex64> {
    plus.iter().zip(cross).map(|(plus, cross)| Complex64::new(*plus, -cross)).collect()
}

/// Computes `h_plus - i h_cross` from its real part by keeping only negative frequencies, so that the phase
/// decreases.
fn with_cross(plus: &[f64]) -> Vec<Complex64> {
    let points = (2 * plus.len()).next_power_of_two();
    let mut series: Vec<Complex64> = plus.iter().map(|h| Complex64::new(*h, 0.0)).collect();
    series.resize(points, Complex64::ZERO);
    let mut planner = FftPlanner::new();
    planner.plan_fft_forward(points).process(&mut series);
    let scale = 1.0 / points as f64;
    for (bin, value) in series.iter_mut().enumerate() {
        let is_shared = bin == 0 || bin == points / 2;
        *value *= if is_shared {
            scale
        } else if bin < points / 2 {
            0.0
        } else {
            2.0 * scale
        };
    }
    planner.plan_fft_inverse(points).process(&mut series);
    series.truncate(plus.len());
    series.iter_mut().zip(plus).for_each(|(h, plus)| h.re = *plus);
    series
}

/// Removes the zeros at both ends, which are useless to a filter.
fn trimmed(mut samples: Vec<Complex64>) -> Vec<Complex64> {
    let is_something = |sample: &Complex64| *sample != Complex64::ZERO;
    let end = samples.iter().rposition(is_something).map_or(0, |last| last + 1);
    samples.truncate(end);
    let start = samples.iter().position(is_something).unwrap_or(0);
    samples.split_off(start)
}

/// Returns the first of these attributes that any object has.
fn first(file: &Input, objects: &[&str], names: &[&str]) -> Option<f64> {
    let mut all = objects.iter().flat_map(|object| names.iter().map(move |name| (object, name)));
    all.find_map(|(object, name)| file.attribute(object, name))
}

/// Returns the binary, if the attributes have both masses and valid values.
fn stored_binary(file: &Input, objects: &[&str; 4]) -> Option<Binary> {
    let [mass1, mass2, spin1z, spin2z] = BODIES.map(|names| first(file, objects, &names));
    let numbers = [mass1?, mass2?, spin1z.unwrap_or(0.0), spin2z.unwrap_or(0.0)];
    column_fault(&numbers).is_none().then(|| binary(numbers))
}

/// Data sets required in a bank.
const MASSES: [&str; 2] = ["mass1", "mass2"];

/// Data set of template names.
const NAMES: &str = "template_hash";

/// Returns whether an HDF5 file is a bank.
fn is_bank(file: &Input) -> bool {
    MASSES.iter().all(|name| file.has(name))
}

/// Reads a PyCBC bank.
fn read_bank(file: &Input) -> Result<Vec<(String, Binary)>> {
    let mut columns = Vec::new();
    for name in COLUMNS {
        columns.push(match file.has(name) {
            true => Some(file.numbers(name)?.column(file, name)?),
            false => None,
        });
    }
    let rows = columns[0].as_ref().map_or(0, Vec::len);
    for name in SPINS_ACROSS.into_iter().filter(|name| file.has(name)) {
        check_zeros(&file.numbers(name)?.column(file, name)?)
            .map_err(|why| file.fault(name, why))?;
    }
    let names = match file.has(NAMES) {
        true => file.whole_texts(NAMES, rows)?,
        false => None,
    };
    let binaries = join_columns(&columns, rows).map_err(|(name, why)| file.fault(name, why))?;
    Ok(named(binaries, names))
}

/// Reads the table `sngl_inspiral` of a LIGO_LW file.
fn read_table(path: &Path) -> Result<Vec<(String, Binary)>> {
    let table = ligolw::read_table(path, "sngl_inspiral")?;
    let fault = |name: &str, why: String| {
        Error::format(path, format!("sngl_inspiral:{name}"), table.offset, why)
    };
    let mut columns = Vec::new();
    for name in MASSES {
        columns.push(Some(table.reals(name)?));
    }
    for name in &COLUMNS[MASSES.len()..] {
        columns.push(table.optional_reals(name)?);
    }
    for name in SPINS_ACROSS {
        if let Some(spins) = table.optional_reals(name)? {
            check_zeros(&spins).map_err(|why| fault(name, why))?;
        }
    }
    let names = match table.column("event_id") {
        Some(Values::Whole(ids)) if ids.iter().all(Option::is_some) => {
            Some(ids.iter().flatten().map(i64::to_string).collect())
        }
        // Old id format: sngl_inspiral:event_id:17.
        Some(Values::Text(ids)) => {
            let last = |id: &String| id.rsplit(':').next().unwrap_or_default().trim().to_string();
            Some(ids.iter().flatten().map(last).collect())
        }
        _ => None,
    };
    let binaries = join_columns(&columns, table.rows).map_err(|(name, why)| fault(name, why))?;
    Ok(named(binaries, names))
}

/// Joins columns to rows; a missing column is 0.
fn join_columns(
    columns: &[Option<Vec<f64>>],
    rows: usize,
) -> std::result::Result<Vec<Binary>, (&'static str, String)> {
    for (name, column) in COLUMNS.iter().zip(columns) {
        if let Some(column) = column.as_ref().filter(|column| column.len() != rows) {
            return Err((name, format!("{} rows found, expected {rows}", column.len())));
        }
    }
    (0..rows)
        .map(|row| {
            let mut numbers = [0.0; 4];
            for (number, column) in numbers.iter_mut().zip(columns) {
                *number = column.as_ref().map_or(0.0, |column| column[row]);
            }
            match column_fault(&numbers) {
                Some((name, why)) => Err((name, format!("row {row}: {why}"))),
                None => Ok(binary(numbers)),
            }
        })
        .collect()
}

fn check_zeros(spins: &[f64]) -> std::result::Result<(), String> {
    match spins.iter().position(|spin| *spin != 0.0) {
        Some(row) => Err(format!(
            "row {row}: found a spin of {} across the orbit's axis, expected spins along it",
            spins[row]
        )),
        None => Ok(()),
    }
}

/// Pairs binaries with names, or with their index if names are missing, empty or not unique.
fn named(binaries: Vec<Binary>, names: Option<Vec<String>>) -> Vec<(String, Binary)> {
    let distinct = |names: &Vec<String>| {
        let mut sorted: Vec<&str> = names.iter().map(String::as_str).collect();
        sorted.sort_unstable();
        names.len() == binaries.len()
            && !names.iter().any(String::is_empty)
            && sorted.windows(2).all(|pair| pair[0] != pair[1])
    };
    match names.filter(distinct) {
        Some(names) => names.into_iter().zip(binaries).collect(),
        None => binaries.into_iter().enumerate().map(|(row, b)| (row.to_string(), b)).collect(),
    }
}

/// Maximum bytes of a file.
const MAX_BYTES: u64 = 1 << 30;

/// Column of names.
const NAME: &str = "name";

/// Reads a file; its first line that is neither empty nor a comment names the columns.
fn read_csv(path: &Path) -> Result<Vec<(String, Binary)>> {
    let mut bytes = Vec::new();
    compressed::open(path)?
        .take(MAX_BYTES)
        .read_to_end(&mut bytes)
        .map_err(|error| Error::io(path, error))?;
    match std::str::from_utf8(&bytes) {
        Ok(text) => parse(text, path),
        Err(error) => {
            let why =
                "found bytes that are not text, expected HDF5, LIGO_LW (.xml, .xml.gz) or CSV";
            Err(Error::format(path, "templates", error.valid_up_to() as u64, why))
        }
    }
}

fn parse(text: &str, path: &Path) -> Result<Vec<(String, Binary)>> {
    let mut columns: Option<Vec<Option<usize>>> = None;
    let mut rows = Vec::new();
    for line in lines(text, path) {
        if line.comment().is_some() {
            continue;
        }
        match &columns {
            None => columns = Some(find(&line)?),
            Some(columns) => rows.push(row(&line, columns)?),
        }
    }
    Ok(rows)
}

/// Returns the column of each field: 0 to 3 are the numbers, 4 is the name, and fields of unknown columns are
/// ignored.
fn find(line: &Line<'_>) -> Result<Vec<Option<usize>>> {
    let fields = line.fields()?;
    let known = |field: &String| {
        let name = field.to_ascii_lowercase();
        COLUMNS.iter().chain(&[NAME]).position(|column| *column == name)
    };
    let columns: Vec<Option<usize>> = fields.iter().map(known).collect();
    for (place, column) in COLUMNS.iter().chain(&[NAME]).enumerate() {
        let found = columns.iter().filter(|known| **known == Some(place)).count();
        if found > 1 {
            return Err(line.fault(column, "found the column a second time"));
        }
        if found == 0 && place < 2 {
            let first: String = fields.join(",");
            let why = format!(
                "found the columns {}, expected mass1,mass2 and any of spin1z,spin2z,name",
                shown(&first)
            );
            return Err(line.fault(column, why));
        }
    }
    Ok(columns)
}

fn row(line: &Line<'_>, columns: &[Option<usize>]) -> Result<(String, Binary)> {
    let fields = line.fields()?;
    if fields.len() > columns.len() {
        let why = format!("found {} fields, expected {}", fields.len(), columns.len());
        return Err(line.fault("columns", why));
    }
    let mut numbers = [f64::NAN, f64::NAN, 0.0, 0.0];
    let mut name = String::new();
    for (field, column) in fields.into_iter().zip(columns) {
        match *column {
            // A missing spin is 0.
            Some(2 | 3) if field.is_empty() => {}
            Some(place) if place < numbers.len() => {
                numbers[place] = line.number(COLUMNS[place], &field, csv::ANY)?;
            }
            Some(_) => name = field,
            None => {}
        }
    }
    if let Some((column, why)) = column_fault(&numbers) {
        return Err(line.fault(column, why));
    }
    Ok((name, binary(numbers)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(text: &str) -> std::result::Result<Vec<(String, Binary)>, String> {
        parse(text, Path::new("a.csv")).map_err(|error| error.to_string())
    }

    #[test]
    fn columns_come_in_any_order() {
        let text = "# a bank\nname,Mass2,mass1,colour,spin2z\nfirst,1.4,5,blue,-0.25\n,3,2,,\n";
        let rows = read_text(text).unwrap();
        let expected = Binary { mass1_msun: 5.0, mass2_msun: 1.4, spin1z: 0.0, spin2z: -0.25 };
        assert_eq!(rows[0], ("first".to_string(), expected));
        assert_eq!(rows[1], (String::new(), Binary::of_masses(2.0, 3.0)));
    }

    #[test]
    fn faults_name_line_and_column() {
        let faults = [
            ("mass1,spin1z\n1,2\n", "line 1, mass2"),
            ("1.4,1.4\n", "expected mass1,mass2"),
            ("mass1,mass2,mass1\n", "a second time"),
            ("mass1,mass2\n1.4\n", "line 2, mass2"),
            ("mass1,mass2\n1.4,-1\n", "line 2, mass2"),
            ("mass1,mass2\n1.4,x\n", "line 2, mass2"),
            ("mass1,mass2\n1.4,nan\n", "line 2, mass2"),
            ("mass1,mass2,spin1z\n1.4,1.4,1\n", "line 2, spin1z"),
            ("mass1,mass2\n1.4,1.4,1\n", "found 3 fields"),
        ];
        for (text, named) in faults {
            let error = read_text(text).unwrap_err();
            assert!(error.contains(named), "{text:?}: {error}");
        }
    }
}
