//! Sizes of a peak search in samples.

use super::options::{Autocorrelation, TriggerOptions};
use super::shape::reach;
use crate::error::{Error, Result};

/// Sizes derived from the options.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    /// Half-length of the longest autocorrelation.
    pub(super) half: usize,
    /// Samples on either side within which a trigger is the maximum.
    pub(super) window: usize,
    /// Samples by which a gate is extended.
    pub(super) pad: usize,
    /// Samples before and after a sample that its detection and measurement read.
    pub(super) back: usize,
    /// Samples that must follow before a sample can be decided.
    pub(super) latency: usize,
}

impl Sizes {
    /// Checks the options and derives the sizes.
    ///
    /// # Errors
    /// As `Finder::new`.
    pub(super) fn new(
        options: &TriggerOptions,
        autocorrelations: &[Autocorrelation],
    ) -> Result<Self> {
        options.check()?;
        if autocorrelations.is_empty() || u32::try_from(autocorrelations.len()).is_err() {
            let rule = "there must be 1 to 2^32 - 1";
            return Err(Error::parameter("templates", autocorrelations.len(), rule));
        }
        for (template, autocorrelation) in autocorrelations.iter().enumerate() {
            autocorrelation.check(template)?;
        }
        let half = autocorrelations.iter().map(Autocorrelation::half).max().unwrap_or(0);
        let (window, pad) = (options.window(), options.gate_pad());
        let back = window.max(reach(half));
        Ok(Self { half, window, pad, back, latency: back.max(pad) })
    }
}
