//! Options that select the trial DMs, and DM plans as TOML files: one `[[range]]` table per range.
//!
//! Invariant: a plan read from a file passes the same checks as a plan made from options; errors name file and field.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;
use sidereal::dedisperse::dm_plan::{DdplanOptions, DmPlan, DmRange, ToleranceOptions};
use sidereal::io::atomic;
use sidereal::units::{Band, DM_CONSTANT};
use sidereal::{Error, Result};
use toml::{Table, Value};

use crate::numbers;
use crate::provenance::Made;

/// Default limits in pc cm^-3.
const DM_MIN: f64 = 0.0;
const DM_MAX: f64 = 2000.0;

/// Options of other plans, which conflict with a plan by tolerance.
const OTHER_SELECTIONS: [&str; 4] = ["dm_step", "ddplan", "ranges", "plan"];

/// Limits, which conflict with a complete plan: it has its own.
const LIMITS: [&str; 2] = ["dm_min", "dm_max"];

/// Options of the trial DMs: a plan by tolerance unless another is requested.
#[derive(Args, Clone, Debug)]
pub(crate) struct DmArguments {
    /// Lowest DM, in pc cm^-3 [default: 0, or the survey's].
    #[arg(
        long,
        value_name = "DM",
        allow_negative_numbers = true,
        help_heading = "Dispersion measures"
    )]
    pub(crate) dm_min: Option<f64>,
    /// Highest DM, itself a trial, in pc cm^-3 [default: 2000, or the survey's].
    #[arg(
        long,
        value_name = "DM",
        allow_negative_numbers = true,
        help_heading = "Dispersion measures"
    )]
    pub(crate) dm_max: Option<f64>,
    /// Constant step between trials, from the lowest to the highest DM, without downsampling.
    #[arg(
        long,
        value_name = "DM",
        allow_negative_numbers = true,
        group = "way",
        help_heading = "Dispersion measures"
    )]
    pub(crate) dm_step: Option<f64>,
    /// Choose the DM steps so that each widens a pulse by at most this factor, as Heimdall's [default: 1.25].
    #[arg(
        long,
        value_name = "FACTOR",
        allow_negative_numbers = true,
        group = "way",
        help_heading = "Dispersion measures"
    )]
    pub(crate) dm_tol: Option<f64>,
    /// With --dm-tol, width of the narrowest pulse to preserve, in seconds [default: 40e-6].
    #[arg(
        long,
        value_name = "SECONDS",
        allow_negative_numbers = true,
        conflicts_with_all = OTHER_SELECTIONS,
        help_heading = "Dispersion measures"
    )]
    pub(crate) pulse_width: Option<f64>,
    /// With --dm-tol, factor by which downsampling may widen a pulse; 1 disables it [default: 1.03].
    #[arg(
        long,
        value_name = "FACTOR",
        allow_negative_numbers = true,
        conflicts_with_all = OTHER_SELECTIONS,
        help_heading = "Dispersion measures"
    )]
    pub(crate) downsample_tol: Option<f64>,
    /// Balance sampling, channel and step smearing as PRESTO's DDplan.py does.
    #[arg(long, group = "way", help_heading = "Dispersion measures")]
    pub(crate) ddplan: bool,
    /// With --ddplan, sufficient time resolution in seconds [default: the data's].
    #[arg(
        long,
        value_name = "SECONDS",
        allow_negative_numbers = true,
        requires = "ddplan",
        help_heading = "Dispersion measures"
    )]
    pub(crate) time_res: Option<f64>,
    /// Fixed ranges A:B:STEP or A:B:STEP:DOWNSAMPLE: 0:150:0.1,150:300:0.2:2.
    #[arg(
        long,
        value_name = "RANGES",
        group = "way",
        conflicts_with_all = LIMITS,
        help_heading = "Dispersion measures"
    )]
    pub(crate) ranges: Option<String>,
    /// Read a plan written by `sidereal plan --toml`.
    #[arg(
        long,
        value_name = "FILE",
        group = "way",
        conflicts_with_all = LIMITS,
        help_heading = "Dispersion measures"
    )]
    pub(crate) plan: Option<PathBuf>,
    /// Dispersion constant, in s MHz^2 pc^-1 cm^3 (PRESTO uses 1/2.41e-4, SIGPROC 4148.741601).
    #[arg(
        long,
        value_name = "K",
        allow_negative_numbers = true,
        default_value_t = DM_CONSTANT,
        help_heading = "Dispersion measures"
    )]
    pub(crate) dm_constant: f64,
}

impl DmArguments {
    /// Makes the plan for a band; `limits` are the survey's, if one was named; `coherent_dm` was removed within
    /// channels before detection.
    ///
    /// # Errors
    /// [`Error::Parameter`] naming the option, or the error of [`read`].
    pub(crate) fn plan(
        &self,
        band: &Band,
        tsamp_s: f64,
        limits: Option<(f64, f64)>,
        coherent_dm: Option<f64>,
    ) -> Result<DmPlan> {
        let dm_constant = self.checked_constant()?;
        if let Some(path) = &self.plan {
            return read(path);
        }
        if let Some(text) = &self.ranges {
            return fixed(text);
        }
        let (low, high) = limits.unwrap_or((DM_MIN, DM_MAX));
        let (low, high) = (self.dm_min.unwrap_or(low), self.dm_max.unwrap_or(high));
        if let Some(step) = self.dm_step {
            return DmPlan::steps(low, high, step);
        }
        if self.ddplan {
            let time_resolution_s = self.time_res.unwrap_or(0.0);
            let options = DdplanOptions { time_resolution_s, dm_constant, coherent_dm };
            return DmPlan::ddplan(band, tsamp_s, low, high, &options);
        }
        let usual = ToleranceOptions::default();
        let options = ToleranceOptions {
            tolerance: self.dm_tol.unwrap_or(usual.tolerance),
            pulse_width_s: self.pulse_width.unwrap_or(usual.pulse_width_s),
            downsample_tolerance: self.downsample_tol.unwrap_or(usual.downsample_tolerance),
            dm_constant,
            coherent_dm,
        };
        DmPlan::tolerance(band, tsamp_s, low, high, &options)
    }

    /// Returns the dispersion constant after a check.
    fn checked_constant(&self) -> Result<f64> {
        check_constant(self.dm_constant).map(|()| self.dm_constant)
    }

    /// Describes the plan's method, for tables and files.
    pub(crate) fn way(&self) -> String {
        match (&self.plan, &self.ranges, self.dm_step, self.ddplan) {
            (Some(path), ..) => format!("plan of {}", path.display()),
            (_, Some(_), ..) => "fixed ranges".to_owned(),
            (.., Some(step), _) => format!("steps of {step}"),
            (.., true) => "balanced as PRESTO's DDplan".to_owned(),
            _ => format!("by tolerance {}", self.dm_tol.unwrap_or(1.25)),
        }
    }
}

/// Checks that a dispersion constant is physical.
///
/// # Errors
/// [`Error::Parameter`].
pub(crate) fn check_constant(dm_constant: f64) -> Result<()> {
    if (1.0..=1e6).contains(&dm_constant) {
        return Ok(());
    }
    let rule = "it must be above 0: 1 to 1e6 s MHz^2 pc^-1 cm^3";
    Err(Error::parameter("--dm-constant", dm_constant, rule))
}

/// Fields of a range.
const FIELDS: [&str; 3] = ["dm_min", "dm_max", "dm_step"];

/// Parses ranges from `A:B:STEP[:DOWNSAMPLE],...`.
fn fixed(text: &str) -> Result<DmPlan> {
    let range = |part: &str| {
        let wrong = || {
            let rule = "each range has the form A:B:STEP or A:B:STEP:DOWNSAMPLE";
            Error::parameter("--ranges", part, rule)
        };
        let words: Vec<&str> = part.split(':').map(str::trim).collect();
        let (limits, downsample) = match words.as_slice() {
            [low, high, step] => ([*low, *high, *step], 1),
            [low, high, step, samples] => {
                ([*low, *high, *step], samples.parse().map_err(|_| wrong())?)
            }
            _ => return Err(wrong()),
        };
        let mut numbers = [0.0; 3];
        for (number, (word, field)) in numbers.iter_mut().zip(limits.into_iter().zip(FIELDS)) {
            let fault = |why| Error::parameter("--ranges", part, format!("{field}: {why}"));
            *number = numbers::finite(word).map_err(fault)?;
        }
        let [low, high, step] = numbers;
        Ok(DmRange { downsample, ..DmRange::new(low, high, step) })
    };
    let ranges = text.split(',').map(range).collect::<Result<_>>()?;
    DmPlan::from_ranges(ranges).map_err(|error| match error {
        Error::Parameter { name, value, rule } => {
            let fault = format!("{name} is {value}, but {}", rule.replace('`', ""));
            Error::parameter("--ranges", text, fault)
        }
        other => other,
    })
}

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
pub(crate) fn write_plan(path: &Path, plan: &DmPlan, about: &str, made: &Made) -> Result<()> {
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
    parse_plan(&text(path)?, path)
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
pub(crate) fn plan_texts(path: &Path) -> Result<[String; 2]> {
    let text = text(path)?;
    Ok(COMMENTS.map(|begin| {
        let found = text.lines().find_map(|line| line.strip_prefix(begin));
        found.unwrap_or_default().to_owned()
    }))
}

fn parse_plan(text: &str, path: &Path) -> Result<DmPlan> {
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

    fn band() -> Band {
        Band::uniform(1500.0, -1.0, 256).unwrap()
    }

    #[test]
    fn ranges_of_the_paper() {
        let plan = fixed("0:150:0.1,150:300:0.2,300:500:0.25:2").unwrap();
        assert_eq!((plan.trials(), plan.ranges[2].downsample), (3050, 2));
        for bad in ["", "1:2", "a:b:c", "0:1:0.1:x", "5:1:1", "0:1:0.1,"] {
            assert!(fixed(bad).is_err(), "{bad}");
        }
        for (bad, field) in
            [("0:1:1e-320", "dm_step"), ("0:1e300:1e299", "dm_max"), ("nan:1:1", "dm_min")]
        {
            let told = fixed(bad).unwrap_err().to_string();
            assert!(told.contains(bad) && told.contains(field), "{told}");
        }
    }

    /// Parses options as the command line does.
    fn arguments(words: &str) -> std::result::Result<DmArguments, clap::Error> {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            dms: DmArguments,
        }
        let words = std::iter::once("sidereal").chain(words.split_whitespace());
        <Line as clap::Parser>::try_parse_from(words).map(|line| line.dms)
    }

    fn plan(words: &str) -> Result<DmPlan> {
        arguments(words).unwrap().plan(&band(), 1e-3, None, None)
    }

    #[test]
    fn each_way_makes_its_plan() {
        assert!((2000.0..2000.001).contains(plan("").unwrap().dms().last().unwrap()));
        assert_eq!(plan("--dm-step 1 --dm-max 50").unwrap().trials(), 51);
        assert!(plan("--ddplan --time-res 2e-3").unwrap().ranges.len() > 1);
        assert_eq!(plan("--ranges 0:1:0.5").unwrap().trials(), 2);
        assert!(plan("--dm-tol 1.5").unwrap().trials() < plan("").unwrap().trials());
        assert!(plan("--pulse-width 1e-3 --downsample-tol 1").is_ok());
    }

    #[test]
    fn options_that_exclude_each_other_are_refused() {
        for words in [
            "--dm-step 1 --dm-tol 1.2",
            "--dm-tol 1.2 --ddplan",
            "--ddplan --ranges 0:1:1",
            "--ranges 0:1:1 --plan a.toml",
            "--ranges 0:1:1 --dm-min 1",
            "--plan a.toml --dm-max 1",
            "--time-res 1e-3",
            "--dm-step 1 --pulse-width 1e-3",
            "--ddplan --downsample-tol 1.2",
        ] {
            assert!(arguments(words).is_err(), "{words}");
        }
    }

    #[test]
    fn faults_name_the_option() {
        for (words, option) in [
            ("--dm-min 5 --dm-max 1", "--dm-max"),
            ("--dm-min 5 --dm-max 1 --dm-step 1", "--dm-max"),
            ("--dm-min 5 --dm-max 1 --ddplan", "--dm-max"),
            ("--dm-min -5", "--dm-min"),
            ("--dm-max nan", "--dm-max"),
            ("--dm-step 0", "--dm-step"),
            ("--ranges 5:1:1", "--ranges"),
            ("--ranges 0:5:1,4:9:1", "--ranges"),
            ("--dm-constant 0", "--dm-constant"),
            ("--dm-constant -1 --ranges 0:1:1", "--dm-constant"),
        ] {
            let error = crate::flags::text(&plan(words).unwrap_err());
            assert!(error.starts_with(&format!("{option} is ")), "{words}: {error}");
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("plan.toml");
        let mut plan = DmPlan::fixed(&[(0.0, 150.0, 0.1), (150.0, 300.0, 0.2)]).unwrap();
        plan.ranges[1].downsample = 4;
        let made = Made::default();
        write_plan(&path, &plan, "two ranges", &made).unwrap();
        assert_eq!(read(&path).unwrap(), plan);
        let lines: Vec<String> = made
            .lines()
            .unwrap()
            .lines()
            .map(|line| line.split_once(": ").unwrap().1.to_owned())
            .collect();
        assert_eq!(plan_texts(&path).unwrap().to_vec(), lines);
    }

    #[test]
    fn faults_name_file_and_field() {
        let good = "[[range]]\ndm_min = 0\ndm_max = 10.0\ndm_step = 0.5\n";
        assert_eq!(parse_plan(good, Path::new("p.toml")).unwrap().trials(), 20);
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
            let error = parse_plan(text, Path::new("p.toml")).unwrap_err();
            assert!(matches!(error, Error::Format { .. }), "{text}");
            let message = error.to_string();
            assert!(message.contains("p.toml") && message.contains(field), "{message}");
        }
    }
}
