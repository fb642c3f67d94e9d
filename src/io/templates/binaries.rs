//! Columns of masses and spins, checked row by row.

use crate::strain::Binary;

/// The heaviest body, in solar masses.
pub(super) const MAX_MASS_MSUN: f64 = 1e4;

/// The columns of a binary, in the order of [`binary`].
pub(super) const COLUMNS: [&str; 4] = ["mass1", "mass2", "spin1z", "spin2z"];

/// Spins that must be 0, where a table has them.
pub(super) const SPINS_ACROSS: [&str; 4] = ["spin1x", "spin1y", "spin2x", "spin2y"];

/// A binary of masses and spins.
pub(super) fn binary([mass1_msun, mass2_msun, spin1z, spin2z]: [f64; 4]) -> Binary {
    Binary { mass1_msun, mass2_msun, spin1z, spin2z }
}

/// The column at fault and what is wrong with it, if anything is.
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
