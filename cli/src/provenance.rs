//! Provenance of a product: the program, its inputs and options, and the run.
//!
//! [`Provenance`] is the same for every run that makes the same product. [`Run`] holds the facts that differ from run
//! to run; `--reproducible` and `SOURCE_DATE_EPOCH` reduce it to a fixed date, so that whole files are identical byte
//! for byte.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};
use sidereal::backend::Backend;
use sidereal::{Error, Result};

use crate::common::{CommandLine, Common};
use crate::json;
use crate::output::with_final_names;

/// Number of bytes at an input's start that its checksum covers.
const HEAD: u64 = 1 << 20;

/// Environment variable with seconds since 1970 that replace the date:
/// <https://reproducible-builds.org/specs/source-date-epoch/>.
const FIXED_DATE: &str = "SOURCE_DATE_EPOCH";

/// Input file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Input {
    /// Path as given; `-` is standard input.
    pub(crate) file: String,
    /// Size; null for a stream.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) bytes: Option<u64>,
    /// SHA-256 of the first 1 MiB, or of the whole file if it is shorter; null for a stream.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) head_sha256: Option<String>,
}

impl Input {
    /// Reads the head of a file; a stream has only a name.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(crate) fn of(path: &Path) -> Result<Self> {
        let file = with_final_names(&path.display().to_string());
        let Ok(found) = path.metadata() else {
            return Ok(Self { file, bytes: None, head_sha256: None });
        };
        if !found.is_file() {
            return Ok(Self { file, bytes: None, head_sha256: None });
        }
        let failed = |error| Error::io(path, error);
        let mut head = Vec::new();
        File::open(path).and_then(|open| open.take(HEAD).read_to_end(&mut head)).map_err(failed)?;
        let digest = Sha256::digest(&head);
        let sum = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Self { file, bytes: Some(found.len()), head_sha256: Some(sum) })
    }
}

/// Program, inputs and options that made a product: the same for every run that makes the same product.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Provenance {
    /// Always `sidereal`.
    pub(crate) program: String,
    /// Version of the program.
    pub(crate) version: String,
    /// Verb: `spiir search`.
    pub(crate) verb: String,
    /// Input files.
    pub(crate) inputs: Vec<Input>,
    /// Every option and argument of the verb with its value, including defaults.
    pub(crate) options: BTreeMap<String, Value>,
    /// Names of the options that were given; all others are defaults.
    pub(crate) given: Vec<String>,
    /// Whether times refer to the solar system's barycentre, unless stated otherwise beside a time.
    pub(crate) barycentred: bool,
}

impl Provenance {
    /// Describes a product that is made from these files.
    ///
    /// # Errors
    /// As [`Input::of`].
    pub(crate) fn new(common: &Common, inputs: &[PathBuf]) -> Result<Self> {
        let CommandLine { verb, options, given, .. } = common.command_line.clone();
        Ok(Self {
            program: "sidereal".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            verb,
            inputs: inputs.iter().map(|path| Input::of(path)).collect::<Result<_>>()?,
            options,
            given,
            barycentred: false,
        })
    }
}

/// Facts that differ between two runs that make the same product.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Run {
    /// Time at which the product was made, UTC; with `--reproducible` that of `SOURCE_DATE_EPOCH`, else 1970.
    pub(crate) date: String,
    /// Host name of the machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) host: Option<String>,
    /// `cpu`, `reference`, or the GPU's number and name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) device: Option<String>,
    /// SIMD level of the CPU's work; null for the reference.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) simd: Option<String>,
    /// Threads of the CPU's work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) threads: Option<usize>,
    /// All words of the command line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) command: Option<Vec<String>>,
    /// Seconds from reading the first sample to the last result.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) elapsed_s: Option<f64>,
    /// Seconds of data processed per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) realtime_factor: Option<f64>,
    /// Seconds of each step, by its name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", default)]
    pub(crate) steps_s: BTreeMap<String, f64>,
    /// Clock of the machine, of a product that was made as its samples arrived; absent if the system does not tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) clock: Option<MachineClock>,
}

/// Clock of the machine as the product was made.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct MachineClock {
    /// Whether NTP or PTP keeps it on time.
    pub(crate) synchronized: bool,
    /// Largest error that is possible: 16 s of a clock that is not synchronized.
    pub(crate) maximum_error_s: f64,
    /// Error as the program that adjusts the clock estimates it.
    pub(crate) estimated_error_s: f64,
}

impl MachineClock {
    /// Asks the system.
    #[cfg(target_os = "linux")]
    fn now() -> Option<Self> {
        let clock = sidereal::live::system_clock::SystemClock::now().ok()?;
        Some(Self {
            synchronized: clock.is_synchronized,
            maximum_error_s: clock.maximum_error_s,
            estimated_error_s: clock.estimated_error_s,
        })
    }

    #[cfg(not(target_os = "linux"))]
    fn now() -> Option<Self> {
        None
    }
}

/// Returns the machine's name.
#[cfg(unix)]
fn host() -> Option<String> {
    Some(rustix::system::uname().nodename().to_string_lossy().into_owned())
}

#[cfg(not(unix))]
fn host() -> Option<String> {
    std::env::var("COMPUTERNAME").ok()
}

impl Run {
    /// Describes this run; only by the date if products of two runs are to be identical.
    pub(crate) fn new(common: &Common) -> Self {
        let fixed = std::env::var(FIXED_DATE).ok().and_then(|seconds| seconds.parse().ok());
        if let Some(seconds) = fixed.or(common.reproducible.then_some(0)) {
            return Self { date: date(seconds), ..Self::default() };
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        Self {
            date: date(now),
            host: host(),
            command: Some(common.command_line.words.clone()),
            ..Self::default()
        }
    }

    /// Formats date and host in a few words, for formats without space for more.
    pub(crate) fn line(&self) -> String {
        let host = self.host.as_ref().map_or_else(String::new, |host| format!(" on {host}"));
        self.date.clone() + &host
    }

    /// Returns whether the description contains more than the date.
    fn is_recorded(&self) -> bool {
        self.command.is_some()
    }

    /// Adds the device, the SIMD level and the threads of a backend.
    pub(crate) fn on(self, backend: &Backend) -> Self {
        if !self.is_recorded() {
            return self;
        }
        let simd = backend.simd().map(str::to_owned);
        let device = match backend.level() {
            _ if backend.is_gpu() => backend.name(),
            Some(_) => "cpu".to_owned(),
            None => "reference".to_owned(),
        };
        Self { device: Some(device), simd, threads: Some(backend.threads()), ..self }
    }

    /// Adds the elapsed time, and the real-time factor for `data_s` seconds of data.
    pub(crate) fn took(self, elapsed_s: f64, data_s: f64) -> Self {
        if !self.is_recorded() {
            return self;
        }
        let realtime_factor = Some(data_s / elapsed_s.max(1e-9));
        Self { elapsed_s: Some(elapsed_s), realtime_factor, ..self }
    }

    /// Adds the state of the machine's clock, for a product of samples that arrived.
    pub(crate) fn live(self) -> Self {
        let clock = if self.is_recorded() { MachineClock::now() } else { None };
        Self { clock, ..self }
    }

    /// Adds the seconds of each step.
    pub(crate) fn steps(self, steps_s: &[(&str, f64)]) -> Self {
        if !self.is_recorded() {
            return self;
        }
        let steps_s = steps_s.iter().map(|(name, seconds)| ((*name).to_owned(), *seconds));
        Self { steps_s: steps_s.collect(), ..self }
    }
}

/// Formats the provenance and the run as two lines, for products that have a history or a comment.
///
/// # Errors
/// As [`json::line`].
pub(crate) fn lines(provenance: &Provenance, run: &Run) -> Result<String> {
    Ok(format!("provenance: {}\nrun: {}", json::line(provenance)?, json::line(run)?))
}

/// Provenance and run of a product.
#[derive(Clone, Debug, Default)]
pub(crate) struct Made {
    pub(crate) provenance: Provenance,
    pub(crate) run: Run,
}

impl Made {
    /// Describes a product that this run makes from these files.
    ///
    /// # Errors
    /// As [`Provenance::new`].
    pub(crate) fn new(common: &Common, inputs: &[PathBuf]) -> Result<Self> {
        Ok(Self { provenance: Provenance::new(common, inputs)?, run: Run::new(common) })
    }

    /// Formats both as two lines; see [`lines`].
    ///
    /// # Errors
    /// As [`lines`].
    pub(crate) fn lines(&self) -> Result<String> {
        lines(&self.provenance, &self.run)
    }

    /// Makes a product's JSON document.
    pub(crate) fn product<T>(&self, name: &str, document: T) -> Product<T> {
        Product::new(name, document, self.provenance.clone(), self.run.clone())
    }
}

/// JSON document of a product: its schema version, the verb's own part, and the provenance.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct Product<T> {
    /// Name and version of the document's schema, such as `sidereal/search/1`.
    pub(crate) schema: String,
    #[serde(flatten)]
    pub(crate) document: T,
    pub(crate) provenance: Provenance,
    pub(crate) run: Run,
}

impl<T> Product<T> {
    /// Makes a document whose schema has this name.
    pub(crate) fn new(name: &str, document: T, provenance: Provenance, run: Run) -> Self {
        Self { schema: format!("sidereal/{name}/1"), document, provenance, run }
    }
}

/// Formats seconds since 1970 as UTC: 2026-11-23T04:05:06Z.
fn date(seconds: u64) -> String {
    let (day, second) = (seconds / 86_400, seconds % 86_400);
    // Years of the Gregorian calendar that begin in March, counted from 1 March 0000, in cycles of 400 years.
    let since = day + 719_468;
    let (cycle, day_of_cycle) = (since / 146_097, since % 146_097);
    let leap_days = day_of_cycle / 1460 + day_of_cycle / 146_096 - day_of_cycle / 36_524;
    let year_of_cycle = (day_of_cycle - leap_days) / 365;
    let day_of_year =
        day_of_cycle - (365 * year_of_cycle + year_of_cycle / 4 - year_of_cycle / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day_of_month = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    let year = 400 * cycle + year_of_cycle + u64::from(month < 3);
    let (hour, minute) = (second / 3600, second / 60 % 60);
    format!("{year:04}-{month:02}-{day_of_month:02}T{hour:02}:{minute:02}:{:02}Z", second % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_utc() {
        assert_eq!(date(0), "1970-01-01T00:00:00Z");
        assert_eq!(date(951_782_399), "2000-02-28T23:59:59Z");
        assert_eq!(date(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(date(1_795_408_206), "2026-11-23T04:30:06Z");
        assert_eq!(date(4_107_542_400), "2100-03-01T00:00:00Z");
    }
}
