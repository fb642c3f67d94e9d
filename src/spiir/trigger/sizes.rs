//! What a search for peaks looks at, in samples.

use super::options::{Autocorrelation, TriggerOptions};
use super::shape::reach;
use crate::error::{Error, Result};

/// Sizes that follow from the options.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    /// The longest autocorrelation's samples to either side of its middle.
    pub(super) half: usize,
    /// Samples to either side among which a trigger is the greatest.
    pub(super) window: usize,
    /// Samples by which a gate is widened.
    pub(super) pad: usize,
    /// Samples before a sample, and after it, that its search and its measure look at.
    pub(super) back: usize,
    /// Samples that must follow before it is known whether it is a trigger.
    pub(super) latency: usize,
}

impl Sizes {
    /// Checks what is asked of a search.
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
