//! Candidate lists of single pulses, in the formats of Heimdall, PRESTO, FETCH and `your`, read by content.
//!
//! Invariant: `sample = floor(time / t_samp)`, `begin` inclusive and `end` exclusive, all in native
//! samples; `filter = round(log2(width in samples))`.
//!
//! Heimdall's boxcar of w samples about sample i covers the samples `i - floor(w / 2)` to `i + floor((w - 1) / 2)`,
//! and its time is the start of sample i. The sample number is the same here, but the time is the boxcar's centre:
//! half a sample later than Heimdall's for an odd width (filter 0 is one sample), equal for an even width.
//!
//! # Source
//! Heimdall's `matched_filter.cu` for its boxcars. Heimdall's nine columns and FETCH's `cand.csv` as quoted in
//! FETCH's issue tracker and read by `your`; PRESTO's `single_pulse_search.py`.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::io::atomic;
use crate::io::csv::{self, Line, lines, shown};
use std::ops::RangeInclusive;

/// A candidate. Times are in seconds from the first sample's start, at the highest frequency.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Record {
    /// Signal-to-noise ratio.
    pub snr: f64,
    /// Centre of the pulse.
    pub time_s: f64,
    /// Width of the boxcar in seconds.
    pub width_s: f64,
    /// Dispersion measure, pc cm^-3.
    pub dm: f64,
    /// Index of the DM trial.
    pub dm_trial: usize,
    /// Number of detections in the candidate.
    pub members: usize,
    /// Start of the earliest detection.
    pub begin_s: f64,
    /// End of the latest detection.
    pub end_s: f64,
    /// Sampling time of the recording.
    pub tsamp_s: f64,
    /// Topocentric UTC of the pulse's centre, when known.
    pub mjd: Option<f64>,
    /// Time of the pulse's centre at the solar system's barycentre and infinite frequency, TDB, when known.
    pub barycentric_mjd: Option<f64>,
    /// Fraction of the channels that contain the pulse: 1, unless the recording's start or end truncates its sweep.
    pub band_fraction: f64,
}

impl Record {
    /// Returns the native sample that contains the pulse's centre; negative before the recording's first.
    pub fn sample(&self) -> i64 {
        samples(self.time_s, self.tsamp_s).floor() as i64
    }

    /// Returns the first native sample.
    pub fn begin(&self) -> i64 {
        samples(self.begin_s, self.tsamp_s).floor() as i64
    }

    /// Returns the native sample after the last.
    pub fn end(&self) -> i64 {
        samples(self.end_s, self.tsamp_s).ceil() as i64
    }

    /// Returns the width in native samples, at least 1.
    pub fn width(&self) -> u64 {
        samples(self.width_s, self.tsamp_s).round().max(1.0) as u64
    }

    /// Returns the rounded binary logarithm of the width.
    pub fn filter(&self) -> u32 {
        (self.width() as f64).log2().round() as u32
    }
}

/// Converts a time to samples; rounds a value within floating-point error of a whole number.
fn samples(time_s: f64, tsamp_s: f64) -> f64 {
    let exact = time_s / tsamp_s;
    let whole = exact.round();
    let tolerance = 1e-6 + 1e-12 * exact.abs();
    if (exact - whole).abs() < tolerance { whole } else { exact }
}

/// Writes Heimdall's `.cand`: S/N, sample, time (s), filter, DM trial, DM, members, begin, end,
/// separated by tabs, without a header line.
///
/// # Errors
/// [`Error::Io`].
pub fn write_heimdall(path: &Path, records: &[Record]) -> Result<()> {
    let mut text = String::new();
    for record in records {
        let Record { snr, time_s, dm, dm_trial, members, .. } = record;
        let (sample, filter) = (record.sample(), record.filter());
        let (begin, end) = (record.begin(), record.end());
        let _ = writeln!(
            text,
            "{snr:.4}\t{sample}\t{time_s:.7}\t{filter}\t{dm_trial}\t{dm:.4}\t{members}\t{begin}\t{end}"
        );
    }
    atomic::write(path, text.as_bytes())
}

/// Writes PRESTO's `.singlepulse`: DM, sigma, time (s), sample, downfact (the width in samples).
///
/// # Errors
/// [`Error::Io`].
pub fn write_singlepulse(path: &Path, records: &[Record]) -> Result<()> {
    let mut text = String::from("# DM      Sigma      Time (s)     Sample    Downfact\n");
    for record in records {
        let Record { dm, snr, time_s, .. } = record;
        let (sample, width) = (record.sample(), record.width());
        let _ = writeln!(text, "{dm:7.2} {snr:7.2} {time_s:13.6} {sample:10}     {width:3}");
    }
    atomic::write(path, text.as_bytes())
}

/// Writes the `cand.csv` that `your` and FETCH read (its `width` is the binary logarithm of samples), with the
/// additional columns `time_s`, `width_s`, `mjd`, `barycentric_mjd` and `band_fraction`. An unknown date is an empty
/// cell. `files` are the observation's files.
///
/// # Errors
/// [`Error::Io`].
pub fn write_fetch(path: &Path, files: &[PathBuf], records: &[Record]) -> Result<()> {
    let columns = "file,snr,stime,width,dm,label,chan_mask_path,num_files,time_s,width_s,mjd,barycentric_mjd,band_fraction\n";
    let mut text = String::from(columns);
    let file = files.first().map_or_else(String::new, |file| quoted(&file_name(file)));
    let count = files.len().max(1);
    for record in records {
        let Record { snr, time_s, dm, width_s, band_fraction, .. } = record;
        let filter = record.filter();
        let _ = writeln!(
            text,
            "{file},{snr:.4},{time_s:.7},{filter},{dm:.4},0,,{count},{time_s:.9},{width_s:.9},{},{},{band_fraction:.4}",
            date(record.mjd),
            date(record.barycentric_mjd),
        );
    }
    atomic::write(path, text.as_bytes())
}

fn date(mjd: Option<f64>) -> String {
    mjd.map_or_else(String::new, |mjd| format!("{mjd:.11}"))
}

/// Returns a file's name, prefixed with `./` if a spreadsheet would take it for a formula.
fn file_name(file: &Path) -> String {
    let name = file.to_string_lossy();
    if name.starts_with(['=', '+', '-', '@']) { format!("./{name}") } else { name.into_owned() }
}

/// Quotes a CSV field if necessary.
fn quoted(field: &str) -> String {
    if field.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field.to_string()
    }
}

/// One line of a Heimdall `.cand` file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HeimdallRow {
    /// Signal-to-noise ratio.
    pub snr: f64,
    /// Sample of the pulse.
    pub sample: i64,
    /// Time of the pulse in seconds.
    pub time_s: f64,
    /// Binary logarithm of the width in samples.
    pub filter: u32,
    /// Index of the DM trial.
    pub dm_trial: usize,
    /// Dispersion measure, pc cm^-3.
    pub dm: f64,
    /// Number of detections in the candidate.
    pub members: usize,
    /// First sample.
    pub begin: i64,
    /// The sample after the last.
    pub end: i64,
}

/// Reads a Heimdall `.cand` file; ignores further columns, which coincidenced files have.
///
/// # Errors
/// As [`parse_heimdall`], and [`Error::Io`].
pub fn read_heimdall(path: &Path) -> Result<Vec<HeimdallRow>> {
    let text = fs::read(path).map_err(|error| Error::io(path, error))?;
    parse_heimdall(&String::from_utf8_lossy(&text), path)
}

/// Reads the text of a Heimdall `.cand` file; `path` names it in errors.
///
/// # Errors
/// [`Error::Format`] naming the line's byte and the column.
pub fn parse_heimdall(text: &str, path: &Path) -> Result<Vec<HeimdallRow>> {
    let mut rows = Vec::new();
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        if !line.trim().is_empty() {
            rows.push(row(line, path, at)?);
        }
        at += line.len() as u64;
    }
    Ok(rows)
}

fn row(line: &str, path: &Path, at: u64) -> Result<HeimdallRow> {
    let mut words = line.split_whitespace();
    Ok(HeimdallRow {
        snr: number(&mut words, "snr", path, at)?,
        sample: number(&mut words, "sample", path, at)?,
        time_s: number(&mut words, "time", path, at)?,
        filter: number(&mut words, "filter", path, at)?,
        dm_trial: number(&mut words, "dm_trial", path, at)?,
        dm: number(&mut words, "dm", path, at)?,
        members: number(&mut words, "members", path, at)?,
        begin: number(&mut words, "begin", path, at)?,
        end: number(&mut words, "end", path, at)?,
    })
}

/// Parses the next word, that of the column `name`.
fn number<T: std::str::FromStr>(
    words: &mut std::str::SplitWhitespace<'_>,
    name: &str,
    path: &Path,
    at: u64,
) -> Result<T> {
    let fault = |why: String| Error::format(path, name, at, why);
    let word = words.next().ok_or_else(|| fault("the line has no such column".to_string()))?;
    word.parse().map_err(|_| fault(format!("found {word:?}, expected a number")))
}

/// Maximum bytes of a list.
const MAX_BYTES: u64 = 1 << 28;

/// Largest plausible time in seconds and dispersion measure.
const MAX_SECONDS: f64 = 1e9;
const MAX_DM: f64 = 1e6;

/// Minimum number of Heimdall columns; coincidenced files have more.
const HEIMDALL_COLUMNS: usize = 9;

/// A candidate. Its time is in seconds from the recording's first sample, at the highest frequency.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Listed {
    /// Signal-to-noise ratio.
    pub snr: f64,
    /// Dispersion measure, pc cm^-3.
    pub dm: f64,
    /// Time of the pulse.
    pub time_s: f64,
    /// Width of its boxcar in seconds.
    pub width_s: f64,
}

/// Reads a list. `tsamp_s` is the recording's sampling time, in which some formats count widths.
///
/// | content                                   | width in samples                                             |
/// |-------------------------------------------|--------------------------------------------------------------|
/// | nine or more numbers per line             | 2 to the power of the fourth number (Heimdall)               |
/// | comma-separated column names              | 2 to the power of `width`; `width_s`, if present, replaces it |
/// | five numbers per line (or a `#` before them) | the fifth, in samples of the series (time / sample, PRESTO) |
///
/// Columns are named `snr`, `sigma` or `s/n`; `dm`; `time_s`, `time`, `stime` or `tcand`; and `width_s`, `width` or
/// `filter`.
///
/// # Errors
/// [`Error::Format`] naming line and column; [`Error::Io`].
pub fn read(path: &Path, tsamp_s: f64) -> Result<Vec<Listed>> {
    let io = |error| Error::io(path, error);
    let length = fs::metadata(path).map_err(io)?.len();
    if length > MAX_BYTES {
        let why = format!("found {length} bytes, expected a list of at most {MAX_BYTES}");
        return Err(Error::format(path, "file", 0, why));
    }
    let bytes = fs::read(path).map_err(io)?;
    parse(&String::from_utf8_lossy(&bytes), path, tsamp_s)
}

/// Parses the text of a list; `path` names it in errors.
///
/// # Errors
/// As [`read`].
pub fn parse(text: &str, path: &Path, tsamp_s: f64) -> Result<Vec<Listed>> {
    let Some(first) = lines(text, path).find(|line| line.comment().is_none()) else {
        return Ok(Vec::new());
    };
    let rows = lines(text, path).filter(|line| line.comment().is_none());
    let words = first.words();
    // With any number in the first line, the line is data and not column names.
    if words.iter().any(|word| word.parse::<f64>().is_ok()) {
        return match words.len() {
            HEIMDALL_COLUMNS.. => rows.map(|line| heimdall(&line, tsamp_s)).collect(),
            5.. => rows.map(|line| singlepulse(&line, tsamp_s)).collect(),
            found => {
                let why = format!(
                    "found {found} numbers, expected nine or more (Heimdall), five (PRESTO), or column names"
                );
                Err(first.fault("columns", why))
            }
        };
    }
    let table = Table::new(&first)?;
    rows.skip(1).map(|line| table.row(&line, tsamp_s)).collect()
}

/// Parses S/N, sample, time, filter, trial, DM and more.
fn heimdall(line: &Line<'_>, tsamp_s: f64) -> Result<Listed> {
    let words = line.words();
    let [snr, _, time, filter, _, dm, ..] = words[..] else {
        return Err(line.fault("columns", "found fewer than nine"));
    };
    listed(line, [snr, dm, time], line.number("filter", filter, FILTER)?.exp2() * tsamp_s)
}

/// Parses DM, sigma, time, sample, width in samples.
fn singlepulse(line: &Line<'_>, tsamp_s: f64) -> Result<Listed> {
    let words = line.words();
    let [dm, snr, time, sample, width, ..] = words[..] else {
        return Err(line.fault("columns", "found fewer than five"));
    };
    let (seconds, sample) =
        (line.number("time", time, TIME)?, line.number("sample", sample, -1e18..=1e18)?);
    // The series may have been binned: infer its sampling time.
    let own = if sample * seconds > 0.0 { seconds / sample } else { tsamp_s };
    let width_s = line.number("downfact", width, 1.0..=1e12)? * own.max(tsamp_s);
    listed(line, [snr, dm, time], width_s)
}

/// Range of the binary logarithm of widths.
const FILTER: RangeInclusive<f64> = 0.0..=40.0;
const TIME: RangeInclusive<f64> = -MAX_SECONDS..=MAX_SECONDS;

fn listed(line: &Line<'_>, [snr, dm, time]: [&str; 3], width_s: f64) -> Result<Listed> {
    Ok(Listed {
        snr: line.number("snr", snr, csv::ANY)?,
        dm: line.number("dm", dm, 0.0..=MAX_DM)?,
        time_s: line.number("time", time, TIME)?,
        width_s: width_s.min(MAX_SECONDS),
    })
}

/// Column indices of a table with names.
struct Table {
    snr: usize,
    dm: usize,
    time: usize,
    width: Width,
}

enum Width {
    Seconds(usize),
    /// Binary logarithm of the width in samples.
    Filter(usize),
}

impl Table {
    fn new(names: &Line<'_>) -> Result<Self> {
        let fields = names.fields()?;
        let place = |wanted: &str| fields.iter().position(|name| name.eq_ignore_ascii_case(wanted));
        let need = |wanted: &[&str]| {
            wanted.iter().find_map(|name| place(name)).ok_or_else(|| {
                let found = fields.join(",");
                names.fault(
                    wanted[0],
                    format!("found the columns {}, and none of that name", shown(&found)),
                )
            })
        };
        Ok(Self {
            snr: need(&["snr", "sigma", "s/n"])?,
            dm: need(&["dm"])?,
            time: need(&["time_s", "time", "stime", "tcand"])?,
            width: match place("width_s") {
                Some(seconds) => Width::Seconds(seconds),
                None => Width::Filter(need(&["width", "filter"])?),
            },
        })
    }

    fn row(&self, line: &Line<'_>, tsamp_s: f64) -> Result<Listed> {
        let fields = line.fields()?;
        let field = |name: &str, place: usize| {
            let lacking = || line.fault(name, format!("found {} fields", fields.len()));
            fields.get(place).map(String::as_str).ok_or_else(lacking)
        };
        let width_s = match self.width {
            Width::Seconds(place) => {
                line.number("width_s", field("width_s", place)?, 1e-12..=MAX_SECONDS)?
            }
            Width::Filter(place) => {
                line.number("width", field("width", place)?, FILTER)?.exp2() * tsamp_s
            }
        };
        let numbers = [field("snr", self.snr)?, field("dm", self.dm)?, field("time", self.time)?];
        listed(line, numbers, width_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        Record {
            snr: 13.25,
            time_s: 1602.0 * 1.266_468_75e-3,
            width_s: 2.0 * 1.266_468_75e-3,
            dm: 475.28,
            dm_trial: 950,
            members: 12,
            begin_s: 1600.0 * 1.266_468_75e-3,
            end_s: 1604.0 * 1.266_468_75e-3,
            tsamp_s: 1.266_468_75e-3,
            mjd: Some(60_000.25),
            barycentric_mjd: None,
            band_fraction: 1.0,
        }
    }

    #[test]
    fn samples_follow_the_conventions() {
        for sample in [-1602i64, -1, 0, 1, 7, 1602, 123_456_789] {
            for tsamp_s in [64e-6, 1.266_468_75e-3, 0.000_163_84] {
                let time_s = sample as f64 * tsamp_s;
                let at = Record { time_s, begin_s: time_s, end_s: time_s, tsamp_s, ..record() };
                assert_eq!((at.sample(), at.begin(), at.end()), (sample, sample, sample));
                let half =
                    Record { time_s: time_s + 0.5 * tsamp_s, end_s: time_s + 0.5 * tsamp_s, ..at };
                assert_eq!((half.sample(), half.end()), (sample, sample + 1));
            }
        }
        let width = |width: f64| Record { width_s: width * 1e-3, tsamp_s: 1e-3, ..record() };
        let filters = [0.1, 1.0, 2.0, 3.0, 5.0, 6.0, 1024.0].map(|w| width(w).filter());
        assert_eq!(filters, [0, 0, 1, 2, 2, 3, 10]);
    }

    #[test]
    fn heimdall_lines_go_round() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.cand");
        write_heimdall(&path, &[record(), Record { dm: 0.0, ..record() }]).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        let first = "13.2500\t1602\t2.0288829\t1\t950\t475.2800\t12\t1600\t1604\n";
        assert!(text.starts_with(first), "{text}");
        let rows = read_heimdall(&path).unwrap();
        assert_eq!(rows.len(), 2);
        assert_eq!((rows[0].sample, rows[0].filter, rows[0].end), (1602, 1, 1604));
        assert_eq!((rows[0].dm, rows[1].dm), (475.28, 0.0));
    }

    #[test]
    fn bad_lines_are_named() {
        let parse = |text| parse_heimdall(text, Path::new("a.cand"));
        assert!(parse("").unwrap().is_empty());
        assert!(parse("1 2 3\n").unwrap_err().to_string().contains("filter"));
        assert!(parse("1 2.5 3 1 1 1 1 1 1\n").unwrap_err().to_string().contains("sample"));
        assert_eq!(parse("9 1 1e-3 0 0 5 1 0 2 7 7 7\n").unwrap()[0].end, 2);
    }

    #[test]
    fn singlepulse_lines_stand_in_prestos_columns() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.singlepulse");
        write_singlepulse(&path, &[record()]).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        let line = text.lines().nth(1).unwrap();
        assert_eq!(line, " 475.28   13.25      2.028883       1602       2");
    }

    #[test]
    fn fetch_rows_have_a_value_for_each_column() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cand.csv");
        let files = ["a,b.fil", "c.fil"].map(PathBuf::from);
        write_fetch(&path, &files, &[record()]).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        let mut lines = text.lines();
        let columns = lines.next().unwrap().split(',').count();
        let line = lines.next().unwrap();
        assert!(line.starts_with("\"a,b.fil\",13.2500,2.0288829,1,475.2800,0,,2,"), "{line}");
        assert_eq!(line.split(',').count(), columns + 1);
    }

    const TSAMP_S: f64 = 256e-6;

    fn listed_case() -> Record {
        Record {
            snr: 13.25,
            time_s: 1602.0 * TSAMP_S,
            width_s: 8.0 * TSAMP_S,
            dm: 475.28,
            dm_trial: 950,
            members: 12,
            begin_s: 0.4,
            end_s: 0.5,
            tsamp_s: TSAMP_S,
            mjd: None,
            barycentric_mjd: None,
            band_fraction: 1.0,
        }
    }

    fn said(text: &str) -> Result<Vec<Listed>> {
        parse(text, Path::new("a.txt"), TSAMP_S)
    }

    #[test]
    fn each_list_that_is_written_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("list");
        let records = [listed_case(), Record { time_s: 0.75, dm: 0.0, ..listed_case() }];
        let files = [PathBuf::from("a,b.fil")];
        for write in [
            &(|| write_heimdall(&path, &records)) as &dyn Fn() -> Result<()>,
            &|| write_fetch(&path, &files, &records),
            &|| write_singlepulse(&path, &records),
        ] {
            write().unwrap();
            let found = read(&path, TSAMP_S).unwrap();
            assert_eq!(found.len(), 2);
            for (found, record) in found.iter().zip(&records) {
                assert_eq!((found.snr, found.dm), (record.snr, record.dm));
                assert!((found.time_s - record.time_s).abs() < 1e-6, "{found:?}");
                assert!((found.width_s - record.width_s).abs() < 2e-6, "{found:?}");
            }
        }
    }

    #[test]
    fn other_programs_lists_are_read() {
        let heimdall = said("7.5\t100\t0.0256\t3\t12\t56.7\t4\t98\t106\t1\t1\n").unwrap();
        let expected = Listed { snr: 7.5, dm: 56.7, time_s: 0.0256, width_s: 8.0 * TSAMP_S };
        assert_eq!(heimdall, [expected]);
        let your = said(
            "file,snr,stime,width,dm,label,chan_mask_path,num_files\nx.fil,7.5,0.0256,3,56.7,0,,1\n",
        );
        assert_eq!(your.unwrap(), [expected]);
        // A series binned by four samples.
        let presto = said(
            "# DM      Sigma      Time (s)     Sample    Downfact\n  56.70    7.50      0.102400        100       2\n",
        );
        assert_eq!(presto.unwrap()[0].width_s, 2.0 * 4.0 * TSAMP_S);
        let spaced = said("DM, SNR, time_s, width_s\n1, 2, 3, 0.5\n").unwrap();
        assert_eq!(spaced, [Listed { snr: 2.0, dm: 1.0, time_s: 3.0, width_s: 0.5 }]);
        assert!(said("# nothing\n\n").unwrap().is_empty());
    }

    #[test]
    fn faults_name_line_and_column() {
        for (text, words) in [
            ("1 2 3\n", ["line 1", "3 numbers"]),
            ("1 2 3 x 5 6 7 8 9\n", ["line 1", "filter"]),
            ("1 2 3 4 5 6 7 8 9\n1 2 3 x 5 6 7 8 9\n", ["line 2", "filter"]),
            ("1 2 3 4 5 6 7 8 9\n1 2 3\n", ["line 2", "fewer"]),
            ("1 2 3 4 5 -6 7 8 9\n", ["line 1", "dm"]),
            ("1 2 -3e9 4 5 6 7 8 9\n", ["line 1", "time"]),
            ("1 2 3 400 5 6 7 8 9\n", ["line 1", "filter"]),
            ("dm,snr\n1,2\n", ["line 1", "time_s"]),
            ("dm,snr,time_s,width_s\n1,2,3\n", ["line 2", "width_s"]),
            ("dm,snr,time_s,width_s\n1,2,nan,1\n", ["line 2", "time"]),
            ("{\"dm\": 1}\n", ["line 1", "snr"]),
        ] {
            let error = said(text).unwrap_err().to_string();
            assert!(words.iter().all(|word| error.contains(word)), "{text}: {error}");
        }
    }
}
