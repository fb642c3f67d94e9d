//! `sidereal bench channelize --quality`: scalloping loss and leakage with and without the prototype filter, measured
//! with tones and compared with the windows' computed responses.

mod bank;

use std::io::Write as _;

pub use bank::{Bank, CENTRE, CHANNELS, powers_db};
use bank::{cases, measure};
use sidereal::{Error, Result};

use crate::session::{Document, Session};

/// File names of the two figures.
pub const SCALLOPING: &str = "scalloping.png";
pub const LEAKAGE: &str = "leakage.png";

/// Measures every window and prints the results.
///
/// # Errors
/// Those of the filter bank.
pub fn measure_all(session: &Session<'_>) -> Result<Vec<Bank>> {
    let mut banks = Vec::new();
    for (window, taps) in cases() {
        banks.push(measure(window, taps, &session.backend)?);
    }
    print(&banks, session)?;
    Ok(banks)
}

/// Compares the measurements with the computed responses.
///
/// # Errors
/// [`Error::Unavailable`] when one differs.
pub fn check(banks: &[Bank]) -> Result<()> {
    match banks.iter().find(|bank| !bank.agrees()) {
        None => Ok(()),
        Some(bank) => Err(Error::Unavailable {
            what: format!("the response of {}", bank.name()),
            why: format!(
                "measured {:.3} dB of scalloping and {:.2} dB of leakage: {}",
                bank.scalloping_db, bank.leakage_db, bank.summary
            ),
        }),
    }
}

/// Prints the measurements.
pub(super) fn print(banks: &[Bank], session: &Session<'_>) -> Result<()> {
    let text = if session.json {
        return session.caller.print(&Document::Lines(objects(banks)));
    } else if session.quiet {
        return Ok(());
    } else {
        table(banks)
    };
    writeln!(std::io::stdout(), "{text}").map_err(|source| Error::io("standard output", source))
}

pub(super) fn objects(banks: &[Bank]) -> Vec<serde_json::Value> {
    let object = |bank: &Bank| {
        serde_json::json!({
            "bench": "channelize quality", "window": bank.window.name(), "taps": bank.taps,
            "channels": CHANNELS, "scalloping_loss_db": bank.summary.scalloping_loss_db,
            "measured_scalloping_loss_db": bank.scalloping_db, "within_1_db": bank.within_1_db,
            "adjacent_db": bank.summary.adjacent_db, "leakage_db": bank.summary.leakage_db,
            "measured_leakage_db": bank.leakage_db, "leakage_offset": bank.summary.leakage_offset,
            "noise_bandwidth": bank.summary.noise_bandwidth, "checked": bank.agrees(),
        })
    };
    banks.iter().map(object).collect()
}

pub(super) fn table(banks: &[Bank]) -> String {
    let head = ["scalloping", "measured", "< 1 dB", "next", "leakage", "measured", "at", "noise"];
    let units = ["dB", "dB", "of band", "dB", "dB", "dB", "channels", "channels"];
    let mut lines = vec![
        format!("{CHANNELS} channels; levels in dB of a tone at a channel's centre"),
        line("filter", &head.map(str::to_owned)),
        line("", &units.map(str::to_owned)),
    ];
    lines.extend(banks.iter().map(|bank| {
        let all = &bank.summary;
        let cells = [
            format!("{:.3}", all.scalloping_loss_db),
            format!("{:.3}", bank.scalloping_db),
            format!("{:.0} %", 100.0 * bank.within_1_db),
            if all.adjacent_db < -300.0 {
                "none".into()
            } else {
                format!("{:.1}", all.adjacent_db)
            },
            format!("{:.2}", all.leakage_db),
            format!("{:.2}", bank.leakage_db),
            format!("{:.2}", all.leakage_offset),
            format!("{:.3}", all.noise_bandwidth),
        ];
        line(&bank.name(), &cells)
    }));
    lines.join("\n")
}

pub(super) fn line(name: &str, cells: &[String; 8]) -> String {
    let cells: String = cells.iter().map(|cell| format!("{cell:>11}")).collect();
    format!("{name:<28}{cells}")
}
