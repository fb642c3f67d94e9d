//! DM plans as TOML files: one `[[range]]` table per range.
//!
//! Invariant: what is read passes the same checks as a plan made here, and errors name file and field.

use std::fmt::Write as _;
use std::path::Path;

use serde::Serialize;
use sidereal::dedisperse::dm_plan::{DmPlan, DmRange};
use sidereal::io::atomic;
use sidereal::{Error, Result};
use toml::{Table, Value};

use crate::numbers;
use crate::provenance::Made;

/// Largest size of a plan file in bytes.
const MAX_BYTES: u64 = 1 << 20;

#[derive(Serialize)]
struct Document {
    range: Vec<Range>,
}

#[derive(Serialize)]
struct Range {
    dm_min: f64,
    dm_max: f64,
    dm_step: f64,
    downsample: usize,
}

impl From<&DmRange> for Range {
    fn from(range: &DmRange) -> Self {
        let DmRange { dm_min, dm_max, dm_step, downsample } = *range;
        Self { dm_min, dm_max, dm_step, downsample }
    }
}

/// Prefixes of the comments with provenance, each followed by JSON.
const COMMENTS: [&str; 2] = ["# provenance: ", "# run: "];

/// Writes a plan; `about` becomes the comment at the top, followed by its provenance.
///
/// # Errors
/// [`Error::Io`].
pub(crate) fn write(path: &Path, plan: &DmPlan, about: &str, made: &Made) -> Result<()> {
    let mut text = String::new();
    for line in about.lines().chain(made.lines()?.lines()) {
        let _ = writeln!(text, "# {line}");
    }
    text.push_str("# Trials are dm_min + i dm_step below dm_max, in pc cm^-3.\n\n");
    let document = Document { range: plan.ranges.iter().map(Range::from).collect() };
    let body = toml::to_string(&document).map_err(|error| Error::Unavailable {
        what: "the plan as TOML".to_owned(),
        why: error.to_string(),
    })?;
    text.push_str(&body);
    atomic::write(path, text.as_bytes())
}

/// Reads a plan.
///
/// # Errors
/// [`Error::Io`], [`Error::Format`] naming the field, or the error of [`DmPlan::check`].
pub(crate) fn read(path: &Path) -> Result<DmPlan> {
    parse(&text(path)?, path)
}

fn text(path: &Path) -> Result<String> {
    let size = std::fs::metadata(path).map_err(|error| Error::io(path, error))?.len();
    if size > MAX_BYTES {
        let why = format!("the file has {size} bytes, a plan has at most {MAX_BYTES}");
        return Err(Error::format(path, "size", 0, why));
    }
    let bytes = std::fs::read(path).map_err(|error| Error::io(path, error))?;
    String::from_utf8(bytes).map_err(|error| {
        let offset = error.utf8_error().valid_up_to() as u64;
        Error::format(path, "text", offset, "it is not UTF-8")
    })
}

/// Returns the JSON of `provenance` and `run` in a plan's comments, empty if absent.
///
/// # Errors
/// As [`read`].
pub(crate) fn texts(path: &Path) -> Result<[String; 2]> {
    let text = text(path)?;
    Ok(COMMENTS.map(|begin| {
        let found = text.lines().find_map(|line| line.strip_prefix(begin));
        found.unwrap_or_default().to_owned()
    }))
}

fn parse(text: &str, path: &Path) -> Result<DmPlan> {
    let table: Table = text.parse().map_err(|error: toml::de::Error| {
        let offset = error.span().map_or(0, |span| span.start) as u64;
        Error::format(path, "TOML", offset, error.message().to_owned())
    })?;
    let fault = |field: &str, why: String| Error::format(path, field, 0, why);
    if let Some(unknown) = table.keys().find(|key| *key != "range") {
        return Err(fault(unknown, "a plan has [[range]] tables only".to_owned()));
    }
    let ranges = table.get("range").and_then(Value::as_array);
    let ranges = ranges.ok_or_else(|| fault("range", "there is no [[range]] table".to_owned()))?;
    let read = |(index, value): (usize, &Value)| {
        let name = |field: &str| format!("range {} {field}", index + 1);
        range(value).map_err(|(field, why)| fault(name(&field).trim_end(), why))
    };
    let ranges = ranges.iter().enumerate().map(read).collect::<Result<_>>()?;
    DmPlan::from_ranges(ranges).map_err(|error| match error {
        Error::Parameter { name, value, rule } => {
            fault(name, format!("{value} found, but {}", rule.replace('`', "")))
        }
        other => other,
    })
}

/// Parses one range; the error has the field and the reason.
fn range(value: &Value) -> std::result::Result<DmRange, (String, String)> {
    let fault = |field: &str, why: &str| (field.to_owned(), why.to_owned());
    let table = value.as_table().ok_or_else(|| fault("", "it is not a table"))?;
    let known = ["dm_min", "dm_max", "dm_step", "downsample"];
    if let Some(unknown) = table.keys().find(|key| !known.contains(&key.as_str())) {
        return Err(fault(unknown, &format!("its fields are {}", known.join(", "))));
    }
    let sane = |field: &str, number: f64| numbers::sane(number).map_err(|why| fault(field, &why));
    let number = |field: &str| match table.get(field) {
        Some(Value::Float(number)) => sane(field, *number),
        Some(Value::Integer(number)) => sane(field, *number as f64),
        Some(other) => Err(fault(field, &format!("{other} is not a number"))),
        None => Err(fault(field, "it is missing")),
    };
    let downsample = match table.get("downsample") {
        None => 1,
        Some(Value::Integer(samples)) => usize::try_from(*samples)
            .map_err(|_| fault("downsample", &format!("{samples} is not a number of samples")))?,
        Some(other) => {
            return Err(fault("downsample", &format!("{other} is not a whole number")));
        }
    };
    let (dm_min, dm_max, dm_step) = (number("dm_min")?, number("dm_max")?, number("dm_step")?);
    Ok(DmRange { dm_min, dm_max, dm_step, downsample })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("plan.toml");
        let mut plan = DmPlan::fixed(&[(0.0, 150.0, 0.1), (150.0, 300.0, 0.2)]).unwrap();
        plan.ranges[1].downsample = 4;
        let made = Made::default();
        write(&path, &plan, "two ranges", &made).unwrap();
        assert_eq!(read(&path).unwrap(), plan);
        let lines: Vec<String> = made
            .lines()
            .unwrap()
            .lines()
            .map(|line| line.split_once(": ").unwrap().1.to_owned())
            .collect();
        assert_eq!(texts(&path).unwrap().to_vec(), lines);
    }

    #[test]
    fn faults_name_file_and_field() {
        let good = "[[range]]\ndm_min = 0\ndm_max = 10.0\ndm_step = 0.5\n";
        assert_eq!(parse(good, Path::new("p.toml")).unwrap().trials(), 20);
        let cases = [
            ("", "range"),
            ("[[range]\n", "TOML"),
            ("[[range]]\ndm_min = 0\ndm_max = 10\n", "dm_step"),
            ("[[range]]\ndm_min = 0\ndm_max = '10'\ndm_step = 1\n", "dm_max"),
            ("[[range]]\ndm_min = 0\ndm_max = nan\ndm_step = 1\n", "dm_max"),
            ("[[range]]\ndm_min = 0\ndm_max = 1\ndm_step = 1e-320\n", "dm_step: it must be 0 or"),
            ("[[range]]\ndm_min = 9\ndm_max = 1\ndm_step = 1\n", "dm_max"),
            ("[[range]]\ndm_min = 0\ndm_max = 1\ndm_step = 1\ndownsample = -1\n", "downsample"),
            ("[[range]]\ndm_min = 0\ndm_max = 1\ndm_step = 1\ndm_stop = 1\n", "dm_stop"),
            ("steps = 3\n", "steps"),
            ("range = []\n", "DM ranges"),
        ];
        for (text, field) in cases {
            let error = parse(text, Path::new("p.toml")).unwrap_err();
            assert!(matches!(error, Error::Format { .. }), "{text}");
            let message = error.to_string();
            assert!(message.contains("p.toml") && message.contains(field), "{message}");
        }
    }
}
