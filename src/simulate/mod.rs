//! Simulated telescope and detector data: seeded, streaming, in constant memory.
//!
//! Invariant: a row depends on the options and its own number only, never on how rows are asked for.

pub mod array;
pub mod burst;
pub(crate) mod random;
mod recording;
pub mod strain;
mod telescopes;
pub mod voltages;

pub use telescopes::{TELESCOPES, Telescope};

use crate::error::{Error, Result};
use crate::units::{HZ_PER_MHZ, MAX_FREQUENCY_HZ};

/// Checks that a number is in a closed range.
///
/// # Errors
/// [`Error::Parameter`] for values outside `low` to `high`.
fn within(name: &'static str, value: f64, low: f64, high: f64) -> Result<()> {
    if (low..=high).contains(&value) {
        return Ok(());
    }
    Err(Error::parameter(name, value, format!("it must be {low} to {high}")))
}

/// Checks that a number is positive and at most `high`.
///
/// # Errors
/// [`Error::Parameter`] for other values.
fn above_zero(name: &'static str, value: f64, high: f64) -> Result<()> {
    if value > 0.0 && value <= high {
        return Ok(());
    }
    Err(Error::parameter(name, value, format!("it must be above 0 and at most {high}")))
}

/// Checks recorded channels: each must be at least a millihertz wide and lie entirely above zero frequency. `width`
/// names the options that define `width_hz`.
fn recorded_band(width: &'static str, centres_hz: &[f64], width_hz: f64) -> Result<()> {
    above_zero(width, width_hz, 1e12)?;
    if width_hz < 1e-3 {
        let rule = "a recorded channel must be at least 0.001 Hz wide";
        return Err(Error::parameter("bandwidth_hz", width_hz, rule));
    }
    let good = |f: &f64| *f - 0.5 * width_hz > 0.0 && *f <= MAX_FREQUENCY_HZ;
    if let Some(bad) = centres_hz.iter().find(|f| !good(f)) {
        let rule = "each recorded channel must lie above 0 MHz as a whole";
        return Err(Error::parameter("centre_mhz", bad / HZ_PER_MHZ, rule));
    }
    Ok(())
}
