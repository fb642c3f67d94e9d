//! Data around one candidate, scaled to the size of a plot.
//!
//! Invariant: the file is read once and in order, a gulp at a time; what is kept has the size of the
//! plot and not of the recording.

mod grid;
mod many;
mod plane;

pub use many::cutouts;

use crate::error::{Error, Result};
use crate::io::FilterbankSource;
use grid::Grid;

/// Largest number of cells (sub-band, time) in a cutout: some 400 MB.
const MOST_CELLS: usize = 48 << 20;

/// Bins of the noise estimate per bin shown, so that medians and deviations are stable.
const BINS_PER_BIN_SHOWN: usize = 4;

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

/// Data around a candidate, highest frequency first.
#[derive(Clone, Debug, PartialEq)]
pub struct Cutout {
    /// Dedispersed power of each sub-band in standard deviations; axes channel, time. NaN without data.
    pub waterfall: Vec<f32>,
    /// Sub-bands of the waterfall.
    pub channels: usize,
    /// Time bins.
    pub times: usize,
    /// Upper edge of the band in MHz.
    pub highest_mhz: f64,
    /// Lower edge of the band in MHz.
    pub lowest_mhz: f64,
    /// Start of the first bin in seconds relative to the candidate's time (negative).
    pub start_s: f64,
    /// Length of a time bin in seconds.
    pub bin_s: f64,
    /// Series at the candidate's dispersion measure, in standard deviations of a bin.
    pub profile: Vec<f32>,
    /// Trials of the DM-time plane.
    pub dms: Vec<f64>,
    /// Series of each trial, in standard deviations of a bin; axes dm, time.
    pub plane: Vec<f32>,
    /// Highest S/N of the candidate's boxcar near its time, one per trial.
    pub snr: Vec<f32>,
}

/// Cuts out the data around a candidate, from a source at its first sample.
///
/// The band is first dedispersed into sub-bands at the candidate's dispersion measure; other trials shift whole
/// sub-bands. Far from the candidate the plane is therefore coarser than a search's.
///
/// # Errors
/// [`Error::Parameter`] for invalid options; errors of the source's reads.
pub fn cutout(source: &mut dyn FilterbankSource, options: &Options) -> Result<Cutout> {
    check(source, options)?;
    let mut grid = Grid::new(source.header(), options);
    grid.read(source, options)?;
    Ok(grid.cutout(options))
}

fn check(source: &dyn FilterbankSource, options: &Options) -> Result<()> {
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

#[cfg(test)]
mod tests;
