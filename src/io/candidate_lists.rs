//! Reads candidate lists of several programs, detected by content: Heimdall's `.cand`, tables with named columns
//! (`your`, FETCH, ours) and PRESTO's `.singlepulse`.
//!
//! Invariant: what is read has a finite S/N, a finite time (negative where a pulse came before the recording's first sample,
//! of which it has the lower frequencies), a width above 0 and a dispersion measure of at least 0.
//!
//! # Source
//! As in [`super::candidates`].

use std::fs;
use std::path::Path;

use super::csv::{Line, lines, shown};
use crate::error::{Error, Result};

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
/// Columns are named `snr` (or `sigma`), `dm`, and `time_s`, `time` or `stime`.
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
        (line.number("time", time, TIME)?, line.number("sample", sample, (-1e18, 1e18))?);
    // The series may have been binned: infer its sampling time.
    let own = if sample * seconds > 0.0 { seconds / sample } else { tsamp_s };
    let width_s = line.number("downfact", width, (1.0, 1e12))? * own.max(tsamp_s);
    listed(line, [snr, dm, time], width_s)
}

/// Range of the binary logarithm of widths.
const FILTER: (f64, f64) = (0.0, 40.0);
const TIME: (f64, f64) = (-MAX_SECONDS, MAX_SECONDS);

fn listed(line: &Line<'_>, [snr, dm, time]: [&str; 3], width_s: f64) -> Result<Listed> {
    Ok(Listed {
        snr: line.number("snr", snr, (f64::MIN, f64::MAX))?,
        dm: line.number("dm", dm, (0.0, MAX_DM))?,
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
                line.number("width_s", field("width_s", place)?, (1e-12, MAX_SECONDS))?
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
    use std::path::PathBuf;

    use super::*;
    use crate::io::candidates::{Record, write_fetch, write_heimdall, write_singlepulse};

    const TSAMP_S: f64 = 256e-6;

    fn record() -> Record {
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
        let records = [record(), Record { time_s: 0.75, dm: 0.0, ..record() }];
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
