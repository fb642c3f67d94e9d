//! Warnings about recordings, told once each on standard error.

use std::sync::{Mutex, PoisonError};

use crate::common::Common;
use crate::errors;
use crate::say::warning;

/// What was told so far.
static TOLD: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Tells what a recording says of itself: its warnings, and what it lacks where it is cut short.
pub(crate) fn tell_all(warnings: &[String], cut: Option<&str>, common: &Common) {
    if common.quiet {
        return;
    }
    for warning in warnings.iter().map(String::as_str).chain(cut) {
        tell(warning);
    }
}

/// Tells a warning, unless it was told before.
pub(crate) fn tell(warning: &str) {
    let mut told = TOLD.lock().unwrap_or_else(PoisonError::into_inner);
    if !told.iter().any(|one| one == warning) {
        warning!("{}", errors::sentence(&errors::named(warning)));
        told.push(warning.to_owned());
    }
}
