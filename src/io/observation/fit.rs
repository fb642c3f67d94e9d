//! Checks whether two files belong to one observation, and computes the gap between them.
//!
//! Invariant: every fault names both files and the field in which they differ.

use crate::error::{Error, Result};
use crate::io::FilterbankHeader;
use crate::units::SECONDS_PER_DAY;

/// Returns the rows of a file to be joined.
pub(super) fn length(header: &FilterbankHeader) -> Result<u64> {
    header.times.ok_or_else(|| {
        let why = "its length is not known beforehand, so that it can't be joined with other files";
        Error::format(&header.path, "data", 0, why)
    })
}

/// Checks that two files agree in their common properties.
pub(super) fn check_same(first: &FilterbankHeader, second: &FilterbankHeader) -> Result<()> {
    let differ = |field: &str, found: String, expected: String| {
        let why = format!("found {found}, expected {expected} as in {}", first.path.display());
        Err(Error::format(&second.path, field, 0, why))
    };
    if first.channels() != second.channels() {
        let (found, expected) = (second.channels(), first.channels());
        return differ("channels", found.to_string(), expected.to_string());
    }
    if first.encoding != second.encoding || first.recorded_bits != second.recorded_bits {
        let name = |header: &FilterbankHeader| {
            format!("{:?} (recorded with {} bit)", header.encoding, header.recorded_bits)
        };
        return differ("encoding", name(second), name(first));
    }
    if first.recorded_polarizations != second.recorded_polarizations {
        let (found, expected) = (second.recorded_polarizations, first.recorded_polarizations);
        return differ("polarizations", found.to_string(), expected.to_string());
    }
    if (first.tsamp_s - second.tsamp_s).abs() > 1e-9 * first.tsamp_s {
        let seconds = |tsamp: f64| format!("{tsamp} s");
        return differ("sampling time", seconds(second.tsamp_s), seconds(first.tsamp_s));
    }
    let tolerance = 1e-3 * first.band.channel_width_hz();
    let centres = first.band.centres_hz().iter().zip(second.band.centres_hz());
    let apart = centres.enumerate().find(|(_, (a, b))| (**a - **b).abs() > tolerance);
    if let Some((channel, (a, b))) = apart {
        let field = format!("frequency of channel {channel}");
        return differ(&field, format!("{} MHz", b / 1e6), format!("{} MHz", a / 1e6));
    }
    Ok(())
}

/// Returns the number of samples missing between two files.
pub(super) fn gap(before: &FilterbankHeader, after: &FilterbankHeader) -> Result<u64> {
    let fault = |why: String| Err(Error::format(&after.path, "tstart", 0, why));
    let path = before.path.display();
    let (first, second) = (before.tstart_mjd, after.tstart_mjd);
    if second <= first {
        return fault(format!("it and {path} start at the same time, MJD {first}"));
    }
    let apart = (second - first) * SECONDS_PER_DAY / before.tsamp_s;
    let missing = apart - length(before)? as f64;
    if missing < -0.5 {
        return fault(format!("it starts {:.1} samples before the end of {path}", -missing));
    }
    if missing <= 0.5 {
        return Ok(0);
    }
    // Floats are exact for integers up to about 9e15, which exceeds years of samples.
    if missing > 9e15 {
        return fault(format!("it starts {missing:e} samples after the end of {path}"));
    }
    Ok(missing.round() as u64)
}
