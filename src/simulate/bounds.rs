//! What a number in the options may be.

use crate::error::{Error, Result};

/// Holds a number to a range with its ends.
///
/// # Errors
/// [`Error::Parameter`] for what is not `low` to `high`.
pub(super) fn within(name: &'static str, value: f64, low: f64, high: f64) -> Result<()> {
    if (low..=high).contains(&value) {
        return Ok(());
    }
    Err(Error::parameter(name, value, format!("it must be {low} to {high}")))
}

/// Holds a number to what is positive and not too large.
///
/// # Errors
/// [`Error::Parameter`] for what is not above 0 and at most `high`.
pub(super) fn above_zero(name: &'static str, value: f64, high: f64) -> Result<()> {
    if value > 0.0 && value <= high {
        return Ok(());
    }
    Err(Error::parameter(name, value, format!("it must be above 0 and at most {high}")))
}
