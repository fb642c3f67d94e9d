//! Output of the campaign: terminal, JSON, Markdown and plot.

use std::fmt::Write as _;
use std::path::Path;

use serde_json::{Value, json};
use sidereal::Result;
use sidereal::io::atomic;

use super::cell::Outcome;
use crate::session::{Document, Session};

/// Column: heading, width on the terminal, and function that formats a cell.
type Column = (&'static str, usize, fn(&Outcome) -> String);

const COLUMNS: [Column; 14] = [
    ("band", 8, |o| o.cell.band.name.to_owned()),
    ("DM", 5, |o| format!("{:.0}", o.cell.dm)),
    ("width (ms)", 10, |o| format!("{:.0}", o.cell.width_s * 1e3)),
    ("S/N", 4, |o| format!("{:.0}", o.cell.snr)),
    ("injected", 8, |o| o.injected.to_string()),
    ("found", 5, |o| o.found.to_string()),
    ("spurious", 8, |o| o.spurious.to_string()),
    ("S/N found", 9, |o| format!("{:.2}", o.mean_snr)),
    ("S/N exact DM", 12, |o| format!("{:.2}", o.exact_snr)),
    ("ratio", 5, |o| format!("{:.3}", o.mean_snr / o.exact_snr)),
    ("DM error", 13, |o| format!("{:+.2} rms {:.2}", o.dm_bias, o.dm_rms)),
    ("DM within", 9, |o| percent(o.dm_within, o.found)),
    ("time error (ms)", 15, |o| {
        format!("{:+.2} rms {:.2}", o.time_bias_s * 1e3, o.time_rms_s * 1e3)
    }),
    ("time within", 11, |o| percent(o.time_within, o.found)),
];

fn percent(part: usize, whole: usize) -> String {
    if whole == 0 { "-".to_owned() } else { format!("{:.1} %", 100.0 * part as f64 / whole as f64) }
}

/// Prints the table on the terminal.
#[allow(clippy::print_stdout)]
pub(super) fn print(outcomes: &[Outcome]) {
    let line = |cell: &dyn Fn(&Column) -> String| {
        let cells = COLUMNS.iter().map(|c| format!("{:>width$}", cell(c), width = c.1));
        cells.collect::<Vec<_>>().join("  ")
    };
    println!("{}", line(&|c| c.0.to_owned()));
    for outcome in outcomes {
        println!("{}", line(&|c| (c.2)(outcome)));
    }
}

/// Prints the rows as one JSON document.
#[allow(clippy::print_stdout)]
pub(super) fn print_json(outcomes: &[Outcome], session: &Session<'_>) -> Result<()> {
    session.caller.print(&Document::Lines(outcomes.iter().map(row).collect::<Vec<_>>()))
}

fn row(outcome: &Outcome) -> Value {
    let cell = &outcome.cell;
    json!({
        "bench": "recovery", "band": cell.band.name, "dm": cell.dm, "width_s": cell.width_s,
        "snr": cell.snr, "injected": outcome.injected, "found": outcome.found,
        "spurious": outcome.spurious, "mean_snr": outcome.mean_snr,
        "exact_snr": outcome.exact_snr, "dm_bias": outcome.dm_bias, "dm_rms": outcome.dm_rms,
        "time_bias_s": outcome.time_bias_s, "time_rms_s": outcome.time_rms_s,
        "dm_within": outcome.dm_within, "time_within": outcome.time_within,
    })
}

/// Writes the rows as a Markdown table.
pub(super) fn write_markdown(path: &Path, outcomes: &[Outcome]) -> Result<()> {
    let mut text = String::new();
    let heads: Vec<&str> = COLUMNS.iter().map(|c| c.0).collect();
    let _ = writeln!(text, "| {} |", heads.join(" | "));
    let _ = writeln!(text, "|{}", "---:|".repeat(COLUMNS.len()));
    for outcome in outcomes {
        let cells: Vec<String> = COLUMNS.iter().map(|c| (c.2)(outcome)).collect();
        let _ = writeln!(text, "| {} |", cells.join(" | "));
    }
    atomic::write(path, text.as_bytes())
}
