//! Arrival times at the solar system's barycentre.

use sofars::ts::dtdb;

use super::frame::{Direction, Frame};
use super::orientation::Dut1;
use super::time::Tai;
use crate::error::Result;
use crate::units::{Epoch, SECONDS_PER_DAY};

/// Julian date of the modified Julian day 0.
const MJD_ZERO: f64 = 2_400_000.5;

/// Returns the time at which a wave passes the solar system's barycentre, as a modified Julian date in TDB. The wave
/// passes `place_itrf_m` (ITRF, m) at `moment` (UTC); the result adds the light travel time from there to the
/// barycentre along the source's direction.
///
/// # Errors
/// As [`Dut1::at`].
/// # Numerics
/// An error of 1 s in UT1 changes the result by at most 1.6 us. Agrees within 60 us with astropy's
/// `Time.light_travel_time(kind='barycentric')`; most of the difference is the Earth's position (SOFA's `epv00`).
/// Neither includes the Shapiro delay (up to 120 us). The date's resolution is 0.6 us.
/// # Source
/// SOFA's `epv00` and `dtdb`.
pub fn barycentric_mjd(
    moment: Epoch,
    place_itrf_m: [f64; 3],
    source: &Direction,
    dut1: &Dut1,
) -> Result<f64> {
    let tai = Tai::from_utc(&moment)?;
    let frame = Frame::new(&place_itrf_m, dut1, &tai)?;
    let (tt_day, tt_part) = tai.terrestrial();
    let tdb_tt_s = dtdb(tt_day, tt_part, 0.0, 0.0, 0.0, 0.0);
    let later_s = tdb_tt_s + frame.light_time_to_barycentre_s(source);
    Ok(tt_day - MJD_ZERO + (tt_part + later_s / SECONDS_PER_DAY))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geometry::site_itrf_m;

    /// astropy 8.0.2: `Time(mjd, scale='utc', location=EarthLocation.from_geocentric(...))`, then
    /// `(t.tdb + t.light_travel_time(SkyCoord(ra, dec), 'barycentric')).mjd`.
    const ASTROPY: [(&str, i64, f64, f64, f64, f64); 4] = [
        ("GBT", 58_000, 43_200.0, 187.5, 12.4, 58_000.495_482_476_035),
        ("Parkes", 55_562, 14.25, 249.97, -59.91, 55_561.996_760_889_02),
        ("MeerKAT", 59_945, 86_000.0, 0.0, 89.0, 59_945.998_369_543_566),
        ("Arecibo", 45_000, 1000.5, 82.99, 33.15, 45_000.016_043_085_794),
    ];

    #[test]
    fn times_are_those_of_astropy() {
        for (site, day, seconds, ra_deg, dec_deg, expected) in ASTROPY {
            let source = Direction { ra_deg, dec_deg };
            let place = site_itrf_m(site).unwrap();
            let found =
                barycentric_mjd(Epoch { day, seconds }, place, &source, &Dut1::Table).unwrap();
            let off_s = (found - expected) * SECONDS_PER_DAY;
            assert!(off_s.abs() < 60e-6, "{site} {off_s:e} s");
        }
    }
}
