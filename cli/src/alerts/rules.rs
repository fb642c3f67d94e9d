//! Rules by which candidates become events: S/N, DM, width, a list of vetoes, and a limit on their number in an hour.

use std::fmt;
use std::path::Path;
use std::time::{Duration, Instant};

use serde::Deserialize;
use sidereal::single_pulse::Candidate;
use sidereal::{Error, Result};

use crate::numbers;

/// Time after which the count of events begins anew.
const HOUR: Duration = Duration::from_secs(3600);

/// Range of dispersion measures, its ends included.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct DmRange {
    pub(super) lowest: f64,
    pub(super) highest: f64,
}

impl DmRange {
    /// Parses `LOWEST:HIGHEST`; either may be left out.
    pub(super) fn parse(text: &str) -> std::result::Result<Self, String> {
        let (lowest, highest) =
            text.split_once(':').ok_or("expected LOWEST:HIGHEST, as 100:2000")?;
        let end = |text: &str, default: f64| {
            if text.trim().is_empty() { Ok(default) } else { numbers::finite(text.trim()) }
        };
        let (lowest, highest) = (end(lowest, 0.0)?, end(highest, f64::INFINITY)?);
        if !(0.0..=highest).contains(&lowest) {
            return Err("expected a lowest DM of at least 0, and a highest above it".into());
        }
        Ok(Self { lowest, highest })
    }

    fn has(&self, dm: f64) -> bool {
        (self.lowest..=self.highest).contains(&dm)
    }
}

impl fmt::Display for DmRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.lowest, self.highest)
    }
}

/// Range of DMs whose candidates are no events, as of a known pulsar.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Veto {
    pub(super) name: String,
    pub(super) dm_min: f64,
    pub(super) dm_max: f64,
}

/// TOML file of vetoes: tables `[[veto]]`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct VetoFile {
    veto: Vec<Veto>,
}

/// Reads vetoes: a TOML file with tables `[[veto]]`, or lines `name,dm_min,dm_max`, of which the first may name the columns.
///
/// # Errors
/// [`Error::Io`]; [`Error::Format`] naming line or key, what was found and what is expected.
pub(super) fn read_vetoes(path: &Path) -> Result<Vec<Veto>> {
    let text = std::fs::read_to_string(path).map_err(|error| Error::io(path, error))?;
    let vetoes = if path.extension().is_some_and(|end| end == "toml") {
        let file: VetoFile = toml::from_str(&text)
            .map_err(|error| Error::format(path, "veto", 0, error.message().to_owned()))?;
        file.veto
    } else {
        parse_lines(path, &text)?
    };
    for Veto { name, dm_min, dm_max } in &vetoes {
        if !(dm_min.is_finite() && dm_max.is_finite() && (0.0..=*dm_max).contains(dm_min)) {
            let why = format!(
                "found {dm_min} to {dm_max}, expected a lowest DM of at least 0 and a highest above it"
            );
            return Err(Error::format(path, format!("veto {name:?}"), 0, why));
        }
    }
    Ok(vetoes)
}

fn parse_lines(path: &Path, text: &str) -> Result<Vec<Veto>> {
    let mut vetoes = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        let cells: Vec<&str> = line.split(',').map(str::trim).collect();
        let [name, dm_min, dm_max] = cells[..] else {
            let why = format!("found {} columns, expected name,dm_min,dm_max", cells.len());
            return Err(Error::format(path, format!("line {number}"), 0, why));
        };
        if number == 1 && dm_min == "dm_min" {
            continue;
        }
        let read = |what: &str, cell: &str| {
            let read: std::result::Result<f64, _> = cell.parse();
            read.map_err(|_| {
                let why = format!("{what} is {cell:?}, expected a number");
                Error::format(path, format!("line {number}"), 0, why)
            })
        };
        let (dm_min, dm_max) = (read("dm_min", dm_min)?, read("dm_max", dm_max)?);
        vetoes.push(Veto { name: name.to_owned(), dm_min, dm_max });
    }
    Ok(vetoes)
}

/// Verdict on a candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is an event.
    Passes,
    /// It is too weak or too wide, or has another DM.
    Fails,
    /// Its DM is on the list of vetoes.
    Vetoed,
    /// The hour has its events.
    Limited,
}

/// The rules, and the events since the last full hour.
#[derive(Debug)]
pub(super) struct Rules {
    pub(super) snr: f64,
    pub(super) dm: DmRange,
    pub(super) longest_s: f64,
    pub(super) vetoes: Vec<Veto>,
    /// Most events in an hour.
    pub(super) most: u64,
    pub(super) hour: Instant,
    pub(super) count: u64,
}

impl Rules {
    /// Judges a candidate at a time, and counts it if it passes.
    pub(super) fn judge(&mut self, candidate: &Candidate, now: Instant) -> Verdict {
        let Candidate { snr, dm, width_s, .. } = *candidate;
        if snr < self.snr || width_s > self.longest_s || !self.dm.has(dm) {
            return Verdict::Fails;
        }
        if self.vetoes.iter().any(|veto| (veto.dm_min..=veto.dm_max).contains(&dm)) {
            return Verdict::Vetoed;
        }
        if now.saturating_duration_since(self.hour) >= HOUR {
            (self.hour, self.count) = (now, 0);
        }
        if self.count >= self.most {
            return Verdict::Limited;
        }
        self.count += 1;
        Verdict::Passes
    }
}

#[cfg(test)]
mod tests {
    use super::super::event::tests::candidate;
    use super::*;

    #[test]
    fn candidates_are_judged_by_every_rule() {
        let begin = Instant::now();
        let mut rules = Rules {
            snr: 10.0,
            dm: DmRange::parse("100:1000").unwrap(),
            longest_s: 0.02,
            vetoes: vec![Veto { name: "B0531+21".into(), dm_min: 360.0, dm_max: 370.0 }],
            most: 2,
            hour: begin,
            count: 0,
        };
        let mut judged = |change: fn(&mut Candidate), seconds: u64| {
            let mut changed = candidate();
            change(&mut changed);
            rules.judge(&changed, begin + Duration::from_secs(seconds))
        };
        assert_eq!(judged(|c| c.snr = 9.9, 0), Verdict::Fails);
        assert_eq!(judged(|c| c.dm = 99.0, 0), Verdict::Fails);
        assert_eq!(judged(|c| c.width_s = 0.03, 0), Verdict::Fails);
        assert_eq!(judged(|c| c.dm = 365.0, 0), Verdict::Vetoed);
        assert_eq!(judged(|_| (), 0), Verdict::Passes);
        assert_eq!(judged(|_| (), 1), Verdict::Passes);
        assert_eq!(judged(|_| (), 3599), Verdict::Limited);
        assert_eq!(judged(|_| (), 3600), Verdict::Passes);
    }

    #[test]
    fn ranges_of_dm_may_be_open() {
        let range = |text: &str| DmRange::parse(text).map(|range| [range.lowest, range.highest]);
        assert_eq!(range("100:"), Ok([100.0, f64::INFINITY]));
        assert_eq!(range(":50"), Ok([0.0, 50.0]));
        for text in ["100", "5:1", "-1:5", "a:b", "nan:1"] {
            assert!(range(text).is_err(), "{text}");
        }
    }

    #[test]
    fn vetoes_are_read_from_lines_and_from_toml() {
        let home = tempfile::tempdir().unwrap();
        let read = |name: &str, text: &str| {
            let path = home.path().join(name);
            std::fs::write(&path, text).unwrap();
            read_vetoes(&path)
        };
        let expected = [Veto { name: "B0531+21".into(), dm_min: 56.0, dm_max: 57.5 }];
        let text = "name,dm_min,dm_max\n# pulsars\nB0531+21, 56, 57.5 # Crab\n\n";
        assert_eq!(read("a.csv", text).unwrap(), expected);
        let text = "[[veto]]\nname = \"B0531+21\"\ndm_min = 56.0\ndm_max = 57.5\n";
        assert_eq!(read("a.toml", text).unwrap(), expected);
        for (name, text, expected) in [
            ("b.csv", "a,1", "line 1: found 2 columns, expected name,dm_min,dm_max"),
            ("b.csv", "a,1,2\nb,x,2", "line 2: dm_min is \"x\", expected a number"),
            ("b.csv", "a,5,2", "veto \"a\": found 5 to 2"),
            ("b.csv", "a,nan,2", "veto \"a\": found NaN to 2"),
            ("b.toml", "[[veto]]\nname = \"a\"\n", "missing field `dm_min`"),
            (
                "b.toml",
                "[[veto]]\nname = \"a\"\ndm_min = 1.0\ndm_max = 2.0\ndm = 3\n",
                "unknown field `dm`",
            ),
        ] {
            let why = read(name, text).unwrap_err().to_string();
            assert!(why.contains(expected), "{text}: {why}");
        }
    }
}
