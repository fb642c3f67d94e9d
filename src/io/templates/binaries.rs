//! Columns of masses and spins, validated row by row.

use crate::strain::Binary;

/// Largest accepted mass, in solar masses.
pub(super) const MAX_MASS_MSUN: f64 = 1e4;

/// Columns of a binary, in the order of [`binary`].
pub(super) const COLUMNS: [&str; 4] = ["mass1", "mass2", "spin1z", "spin2z"];

/// In-plane spins, which must be 0 if a table has them.
pub(super) const SPINS_ACROSS: [&str; 4] = ["spin1x", "spin1y", "spin2x", "spin2y"];

/// Makes a binary from masses and spins.
pub(super) fn binary([mass1_msun, mass2_msun, spin1z, spin2z]: [f64; 4]) -> Binary {
    Binary { mass1_msun, mass2_msun, spin1z, spin2z }
}

/// Returns the faulty column and the reason, if any.
pub(super) fn fault(numbers: &[f64; 4]) -> Option<(&'static str, String)> {
    let bad = numbers.iter().enumerate().find(|(column, number)| match column {
        0 | 1 => !(**number > 0.0 && **number <= MAX_MASS_MSUN),
        _ => number.is_nan() || number.abs() >= 1.0,
    });
    bad.map(|(column, number)| {
        let expected = match column {
            0 | 1 => format!("a mass above 0 and at most {MAX_MASS_MSUN} solar masses"),
            _ => "a spin between -1 and 1".to_string(),
        };
        (COLUMNS[column], format!("found {number}, expected {expected}"))
    })
}
