//! Candidate lists of single pulses, in the formats of Heimdall, PRESTO and FETCH.
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
    let file = files.first().map_or_else(String::new, |file| quoted(&shown(file)));
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
fn shown(file: &Path) -> String {
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
    let mut next = |name: &'static str| {
        let lacking = || Error::format(path, name, at, "the line has no such column");
        words.next().map(|word| (name, word)).ok_or_else(lacking)
    };
    Ok(HeimdallRow {
        snr: number(next("snr")?, path, at)?,
        sample: number(next("sample")?, path, at)?,
        time_s: number(next("time")?, path, at)?,
        filter: number(next("filter")?, path, at)?,
        dm_trial: number(next("dm_trial")?, path, at)?,
        dm: number(next("dm")?, path, at)?,
        members: number(next("members")?, path, at)?,
        begin: number(next("begin")?, path, at)?,
        end: number(next("end")?, path, at)?,
    })
}

fn number<T: std::str::FromStr>(column: (&str, &str), path: &Path, at: u64) -> Result<T> {
    let (name, word) = column;
    let why = || Error::format(path, name, at, format!("found {word:?}, expected a number"));
    word.parse().map_err(|_| why())
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
}
