//! Output of the campaign: terminal, JSON and Markdown.

use std::fmt::Write as _;
use std::path::Path;

use serde_json::{Value, json};
use sidereal::Result;
use sidereal::io::atomic;

use super::case::{NAMES, Outcome, Pair, Recovered};
use crate::session::{Document, Session};

/// Least injected ratio of a detector that counts for the errors: below it, noise peaks replace the signal's.
pub(super) const LEAST_SNR: f64 = 6.0;

/// Row of the table: name and range of the binary's total mass.
const ROWS: [(&str, f64, f64); 5] = [
    ("2.8 to 6", 0.0, 6.0),
    ("6 to 15", 6.0, 15.0),
    ("15 to 30", 15.0, 30.0),
    ("30 to 60", 30.0, 61.0),
    ("all", 0.0, 61.0),
];

const HEADS: [&str; 11] = [
    "total mass (solar)",
    "injected",
    "both above 5",
    "of these found",
    "loudest",
    "others above 9",
    "SNR / injected",
    "SNR - expected",
    "time error (ms)",
    "phase error (rad)",
    "xi-squared",
];

/// Returns the detectors that count, with their recovered values.
pub fn recovered(outcomes: &[&Outcome]) -> Vec<(Pair, Recovered)> {
    let pairs = outcomes.iter().flat_map(|outcome| &outcome.detectors);
    let counted = pairs.filter(|pair| pair.injected >= LEAST_SNR);
    counted.filter_map(|pair| Some((*pair, pair.found?))).collect()
}

/// Returns the mean, and the standard deviation about zero.
fn moments(values: &[f64]) -> (f64, f64) {
    let count = values.len().max(1) as f64;
    let mean = values.iter().sum::<f64>() / count;
    (mean, (values.iter().map(|value| value * value).sum::<f64>() / count).sqrt())
}

/// Formats `mean rms, rms in units of the expected deviation`.
fn errors(values: &[(Pair, Recovered)], error: fn(&Recovered) -> (f64, f64)) -> String {
    let plain: Vec<f64> = values.iter().map(|(_, one)| error(one).0).collect();
    let scaled: Vec<f64> = values.iter().map(|(_, one)| error(one).0 / error(one).1).collect();
    let ((mean, rms), (_, sigmas)) = (moments(&plain), moments(&scaled));
    format!("{mean:+.3} rms {rms:.3}, {sigmas:.2} sigma")
}

fn cells(name: &str, outcomes: &[&Outcome]) -> Vec<String> {
    let above = |outcome: &&&Outcome| outcome.detectors.iter().all(|pair| pair.injected >= 5.0);
    let both: Vec<&&Outcome> = outcomes.iter().filter(above).collect();
    let found = both.iter().filter(|outcome| outcome.network_snr.is_some()).count();
    let loudest = outcomes.iter().filter(|outcome| outcome.loudest).count();
    let others: usize = outcomes.iter().map(|outcome| outcome.others).sum();
    let values = recovered(outcomes);
    let mean =
        |of: fn(&(Pair, Recovered)) -> f64| moments(&values.iter().map(of).collect::<Vec<f64>>());
    let excess = mean(|(pair, one)| one.snr - pair.expected);
    let xi2 = mean(|(_, one)| one.xi2).0;
    let spread = moments(&values.iter().map(|(_, one)| one.xi2 - xi2).collect::<Vec<f64>>()).1;
    let sigma = spread / (values.len().max(1) as f64).sqrt();
    vec![
        name.to_owned(),
        outcomes.len().to_string(),
        both.len().to_string(),
        found.to_string(),
        loudest.to_string(),
        others.to_string(),
        format!("{:.3}", mean(|(pair, one)| one.snr / pair.injected).0),
        format!("{:+.2} rms {:.2}", excess.0, excess.1),
        errors(&values, |one| (one.time_error_s * 1e3, one.time_sigma_s * 1e3)),
        errors(&values, |one| (one.phase_error_rad, one.phase_sigma_rad)),
        format!("{xi2:.3} ± {sigma:.3}"),
    ]
}

fn rows(outcomes: &[Outcome]) -> Vec<Vec<String>> {
    let row = |(name, low, high): &(&str, f64, f64)| {
        let of_row = outcomes.iter().filter(|outcome| {
            let total = outcome.case.masses_msun.0 + outcome.case.masses_msun.1;
            (*low..*high).contains(&total)
        });
        cells(name, &of_row.collect::<Vec<_>>())
    };
    ROWS.iter().map(row).collect()
}

/// Prints the table on the terminal.
#[allow(clippy::print_stdout)]
pub(super) fn print(outcomes: &[Outcome]) {
    let rows = rows(outcomes);
    for (column, head) in HEADS.iter().enumerate() {
        let line: Vec<&str> = rows.iter().map(|row| row[column].as_str()).collect();
        println!("{head:>20}  {}", line.join(" | "));
    }
    println!(
        "Errors are of the {} detectors with an injected ratio of at least {LEAST_SNR}.",
        recovered(&outcomes.iter().collect::<Vec<_>>()).len()
    );
}

/// Prints every case as one JSON document.
#[allow(clippy::print_stdout)]
pub(super) fn print_json(outcomes: &[Outcome], session: &Session<'_>) -> Result<()> {
    session.caller.print(&Document::Lines(outcomes.iter().map(record).collect::<Vec<_>>()))
}

fn record(outcome: &Outcome) -> Value {
    let detectors = outcome.detectors.iter().zip(NAMES).map(|(pair, name)| {
        let found = pair.found.map(|one| {
            json!({
                "snr": one.snr, "xi2": one.xi2, "time_error_s": one.time_error_s,
                "time_sigma_s": one.time_sigma_s, "phase_error_rad": one.phase_error_rad,
                "phase_sigma_rad": one.phase_sigma_rad,
            })
        });
        json!({
            "detector": name, "injected_snr": pair.injected, "expected_snr": pair.expected,
            "found": found,
        })
    });
    json!({
        "bench": "injections", "mass1_msun": outcome.case.masses_msun.0,
        "mass2_msun": outcome.case.masses_msun.1, "injected_snr": outcome.case.network_snr,
        "filters": outcome.filters, "match": outcome.fit, "network_snr": outcome.network_snr,
        "loudest": outcome.loudest, "others": outcome.others,
        "detectors": detectors.collect::<Vec<Value>>(),
    })
}

/// Writes the rows as a Markdown table.
pub(super) fn write_markdown(path: &Path, outcomes: &[Outcome]) -> Result<()> {
    let mut text = String::new();
    let _ = writeln!(text, "| {} |", HEADS.join(" | "));
    let _ = writeln!(text, "|{}", "---:|".repeat(HEADS.len()));
    for row in rows(outcomes) {
        let _ = writeln!(text, "| {} |", row.join(" | "));
    }
    atomic::write(path, text.as_bytes())
}
