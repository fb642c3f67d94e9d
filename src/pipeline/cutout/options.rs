//! Parameters of a cutout.

use crate::error::{Error, Result};
use crate::io::FilterbankSource;

/// Parameters of a cutout.
#[derive(Clone, Debug)]
pub struct Options {
    /// Dispersion measure of the candidate, pc cm^-3.
    pub dm: f64,
    /// Centre of the candidate's boxcar at the highest frequency, seconds from the first sample.
    pub time_s: f64,
    /// Width of the boxcar in seconds.
    pub width_s: f64,
    /// Dispersion constant, s MHz^2 pc^-1 cm^3.
    pub dm_constant: f64,
    /// Masked channels, in recorded order; empty means none.
    pub masked: Vec<bool>,
    /// Whether each spectrum's mean is subtracted.
    pub zero_dm: bool,
    /// Largest number of sub-bands of the waterfall; limited by the number of channels.
    pub channels: usize,
    /// Time bins.
    pub times: usize,
    /// Time bins across the candidate's width, if the sampling allows.
    pub bins_per_width: usize,
    /// Lowest and highest trial of the DM-time plane, and the number of trials.
    pub dms: (f64, f64, usize),
}

impl Options {
    /// Options for a plot: 4 bins per width, and trials out to where the pulse disappears in the noise.
    ///
    /// `smearing_s` is the delay across the band per unit of DM.
    pub fn plot(dm: f64, time_s: f64, width_s: f64, smearing_s: f64) -> Self {
        let reach = 12.0 * width_s / smearing_s.max(1e-12);
        // Bound the range for narrow bands, so that the candidate's position on the DM axis stays visible.
        let reach = reach.clamp(1e-3, dm.max(20.0) * 2.0);
        let dms = ((dm - reach).max(0.0), dm + reach, 161);
        let dm_constant = crate::units::DM_CONSTANT;
        Self {
            dm,
            time_s,
            width_s,
            dm_constant,
            dms,
            masked: Vec::new(),
            zero_dm: false,
            channels: 256,
            times: 192,
            bins_per_width: 4,
        }
    }

    /// Options for the FETCH classifier: 256 by 256, 2 bins per width, trials 0 to 2 DM.
    pub fn fetch(dm: f64, time_s: f64, width_s: f64) -> Self {
        let dms = (0.0, 2.0 * dm, 256);
        let (times, bins_per_width) = (256, 2);
        Self { dms, times, bins_per_width, ..Self::plot(dm, time_s, width_s, 1.0) }
    }
}

/// Checks the parameters against a source.
///
/// # Errors
/// [`Error::Parameter`] naming the parameter, [`Error::Shape`] for the masked channels.
pub(super) fn check(source: &dyn FilterbankSource, options: &Options) -> Result<()> {
    let positive = |name, value: f64| {
        let rule = "it must be positive and finite";
        (value.is_finite() && value > 0.0)
            .then_some(())
            .ok_or_else(|| Error::parameter(name, value, rule))
    };
    positive("candidate width (s)", options.width_s)?;
    positive("dispersion constant", options.dm_constant)?;
    if !(options.time_s.is_finite() && options.dm.is_finite()) {
        return Err(Error::parameter("candidate time (s)", options.time_s, "it must be finite"));
    }
    let (low, high, dms) = options.dms;
    if !(low.is_finite() && high.is_finite() && low <= high) {
        return Err(Error::parameter("DM range", format!("{low} to {high}"), "it must rise"));
    }
    if options.channels * options.times * dms * options.bins_per_width == 0 {
        return Err(Error::parameter("cutout size", 0, "no axis may be empty"));
    }
    let channels = source.header().channels();
    if !options.masked.is_empty() {
        crate::view::check_length("masked channels", channels, options.masked.len())?;
    }
    Ok(())
}
