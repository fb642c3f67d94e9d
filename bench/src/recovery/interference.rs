//! Searches and scores recordings with interference and known bursts, made by `tests/oracles/interference.py`.

use std::fmt::Write as _;
use std::path::Path;

use serde::{Deserialize, Serialize};
use sidereal::backend::Backend;
use sidereal::dedisperse::dm_plan::{DmPlan, ToleranceOptions};
use sidereal::io::{OpenOptions, atomic, open};
use sidereal::pipeline::burst::{SearchOptions, search};
use sidereal::single_pulse::Candidate;
use sidereal::units::{Band, DM_CONSTANT, dispersion_delay_s};
use sidereal::{Error, Result};

use crate::session::{Document, Session};

/// Lowest S/N at which a false candidate counts.
const COUNTED_SNR: f64 = 6.5;

/// Highest trial DM.
const DM_MAX: f64 = 2000.0;

/// Allowed time error of a candidate in seconds, in addition to the burst's width.
const TIME_REACH_S: f64 = 0.02;

/// Allowed DM error, in units of the DM error that smears a pulse by its own width.
const DM_REACH: f64 = 2.0;

/// Contents of the folder's campaign.json.
#[derive(Deserialize)]
struct Campaign {
    cases: Vec<String>,
}

/// Contents of CASE.truth.json.
#[derive(Deserialize)]
struct Truth {
    bursts: Vec<Burst>,
}

#[derive(Clone, Copy, Deserialize)]
struct Burst {
    time_s: f64,
    dm: f64,
    width_s: f64,
    snr: f64,
    /// Fraction of the burst that falls into dropouts.
    lost: f64,
}

/// Scores of one recording.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    bench: &'static str,
    case: String,
    /// Bursts with at most half of their duration in a dropout, and the number of those found.
    injected: usize,
    found: usize,
    /// Median of found over injected S/N.
    snr_ratio: f64,
    /// Bursts with more than half of their duration in a dropout, and the number of those found.
    lost: usize,
    lost_found: usize,
    /// Further candidates of found bursts, besides the best.
    repeated: usize,
    /// Candidates of no burst with S/N of at least 6.5, per hour.
    false_per_hour: f64,
    realtime_factor: f64,
}

/// Searches the cases of a folder, prints the table and, if asked, writes it as Markdown.
pub(super) fn run(
    folder: &Path,
    markdown: Option<&Path>,
    options: &dyn Fn(DmPlan) -> SearchOptions,
    session: &Session<'_>,
) -> Result<()> {
    let campaign: Campaign = read(&folder.join("campaign.json"))?;
    let backend = session.backend.clone();
    let shown = !session.json && !session.quiet;
    if shown {
        say(&HEADS.map(str::to_owned));
    }
    let mut outcomes = Vec::new();
    for case in campaign.cases {
        let outcome = score(folder, case, options, &backend)?;
        if shown {
            say(&outcome.cells());
        }
        outcomes.push(outcome);
    }
    if session.json {
        session.caller.print(&Document::Interference(outcomes.clone()))?;
    }
    markdown.map_or(Ok(()), |path| atomic::write(path, table(&outcomes).as_bytes()))
}

fn read<T: for<'a> Deserialize<'a>>(path: &Path) -> Result<T> {
    let bytes = std::fs::read(path).map_err(|error| Error::io(path, error))?;
    serde_json::from_slice(&bytes)
        .map_err(|error| Error::format(path, "JSON", error.column() as u64, error.to_string()))
}

fn score(
    folder: &Path,
    case: String,
    options: &dyn Fn(DmPlan) -> SearchOptions,
    backend: &Backend,
) -> Result<Outcome> {
    let truth: Truth = read(&folder.join(format!("{case}.truth.json")))?;
    let mut source = open(&[folder.join(format!("{case}.fil"))], &OpenOptions::default())?;
    let band = source.header().band.clone();
    let plan = DmPlan::tolerance(
        &band,
        source.header().tsamp_s,
        0.0,
        DM_MAX,
        &ToleranceOptions::default(),
    )?;
    let report = search(source.as_mut(), &options(plan), backend, &mut |_| true)?;
    let reach = Reach::new(&band);
    let mut is_taken = vec![false; report.candidates.len()];
    let (mut ratios, mut counts) = (Vec::new(), [[0usize; 2]; 2]);
    for burst in &truth.bursts {
        // Candidates are sorted best first.
        let mut best = None;
        for (index, candidate) in report.candidates.iter().enumerate() {
            if reach.holds(burst, candidate) {
                is_taken[index] = true;
                best = best.or(Some(candidate.snr));
            }
        }
        let counted = &mut counts[usize::from(burst.lost > 0.5)];
        counted[0] += 1;
        if let Some(snr) = best {
            counted[1] += 1;
            ratios.push(snr / burst.snr);
        }
    }
    let strong = |index: &usize| report.candidates[*index].snr >= COUNTED_SNR;
    let spurious = (0..is_taken.len()).filter(|index| !is_taken[*index]).filter(strong).count();
    let found = counts[0][1] + counts[1][1];
    let taken = is_taken.iter().filter(|taken| **taken).count();
    Ok(Outcome {
        bench: "interference",
        case,
        injected: counts[0][0],
        found: counts[0][1],
        snr_ratio: sidereal::math::median(&mut ratios).unwrap_or(f64::NAN),
        lost: counts[1][0],
        lost_found: counts[1][1],
        repeated: taken.saturating_sub(found),
        false_per_hour: spurious as f64 * 3600.0 / report.data_s,
        realtime_factor: report.realtime_factor(),
    })
}

/// Criterion for candidates that belong to a burst.
struct Reach {
    /// Delay across the band per unit DM, in seconds.
    delay_per_dm: f64,
}

impl Reach {
    fn new(band: &Band) -> Self {
        let edges = (band.lowest_hz(), band.highest_hz());
        Self { delay_per_dm: dispersion_delay_s(1.0, edges.0, edges.1, DM_CONSTANT) }
    }

    fn holds(&self, burst: &Burst, candidate: &Candidate) -> bool {
        let dm_error = (candidate.dm - burst.dm).abs();
        let smear_s = dm_error * self.delay_per_dm;
        let time_error_s = (candidate.time_s - burst.time_s).abs();
        smear_s <= DM_REACH * burst.width_s + TIME_REACH_S
            && time_error_s <= burst.width_s + TIME_REACH_S + smear_s
    }
}

const HEADS: [&str; 8] =
    ["case", "injected", "found", "S/N ratio", "in dropouts", "repeated", "false/h", "x real time"];

impl Outcome {
    fn cells(&self) -> [String; 8] {
        [
            self.case.clone(),
            self.injected.to_string(),
            format!("{} ({:.1} %)", self.found, 100.0 * self.found as f64 / self.injected as f64),
            format!("{:.3}", self.snr_ratio),
            format!("{} of {}", self.lost_found, self.lost),
            self.repeated.to_string(),
            format!("{:.0}", self.false_per_hour),
            format!("{:.1}", self.realtime_factor),
        ]
    }
}

#[allow(clippy::print_stdout)]
fn say(cells: &[String; 8]) {
    let [case, rest @ ..] = cells;
    println!("{case:<16}{}", rest.iter().map(|cell| format!("{cell:>14}")).collect::<String>());
}

fn table(outcomes: &[Outcome]) -> String {
    let mut text = format!("| {} |\n|---|{}\n", HEADS.join(" | "), "---:|".repeat(HEADS.len() - 1));
    for outcome in outcomes {
        let _ = writeln!(text, "| {} |", outcome.cells().join(" | "));
    }
    text
}
