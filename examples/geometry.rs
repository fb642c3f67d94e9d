//! Prints results of the geometry module for sources, times and positions.
//!
//!     cargo run --release --example geometry -- CASES
//!
//! Each line of CASES has eleven numbers: the day (MJD, UTC) and its second; UT1 - UTC in s (or `table`, or the
//! absolute path of a finals2000A.all); right ascension and declination in degrees; and the reference point and an
//! antenna in metres (ITRF). Each output line has: UT1 - UTC; the apparent direction (ITRF, three numbers); altitude
//! and azimuth in degrees; the delay of the antenna in s, exact and from a polynomial; its u, v, w in m; the local
//! apparent sidereal time in radians; right ascension and declination of the zenith in degrees; and apparent right
//! ascension, declination and position angle of the source in degrees.

use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use sidereal::geometry::{
    Antenna, Array, DelayModel, Direction, Dut1, OrientationDay, OrientationTable, PhaseCentre, Sky,
};
use sidereal::io::read_earth_orientation;
use sidereal::units::Epoch;
use sidereal::{Error, Result};

/// Seconds by which the polynomials begin before the time of a case, and their duration.
const POLYNOMIAL_S: (f64, f64) = (700.0, 1500.0);

fn main() -> ExitCode {
    let Some(path) = std::env::args().nth(1) else {
        eprintln!("usage: geometry CASES");
        return ExitCode::from(2);
    };
    match run(&path) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("geometry: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(path: &str) -> Result<()> {
    let text = std::fs::read_to_string(path).map_err(|error| Error::io(path, error))?;
    let mut out = std::io::stdout().lock();
    for line in text.lines() {
        let words: Vec<String> = case(line)?.iter().map(|number| format!("{number:?}")).collect();
        writeln!(out, "{}", words.join(" ")).map_err(|error| Error::io("-", error))?;
    }
    Ok(())
}

/// A table of the IERS.
fn newer(path: &Path) -> Result<Dut1> {
    let table = read_earth_orientation(path)?;
    let days: Vec<_> = table
        .days
        .iter()
        .map(|(ut1_utc_s, pole)| OrientationDay { ut1_utc_s: *ut1_utc_s, pole_arcsec: *pole })
        .collect();
    let table = OrientationTable::new("IERS", table.first, &days)?;
    Ok(Dut1::Newer(Arc::new(table)))
}

fn case(line: &str) -> Result<Vec<f64>> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let number = |index: usize| {
        let word = words.get(index).copied().unwrap_or_default();
        word.parse::<f64>().map_err(|_| Error::parameter("case", line, "it has eleven numbers"))
    };
    let epoch = Epoch { day: number(0)? as i64, seconds: number(1)? };
    let dut1 = match words.get(2) {
        Some(&"table") => Dut1::Table,
        Some(path) if path.starts_with('/') => newer(Path::new(path))?,
        _ => Dut1::Given(number(2)?),
    };
    let direction = Direction::new(number(3)?, number(4)?)?;
    let itrf_m = [number(8)?, number(9)?, number(10)?];
    let antenna = Antenna { name: "A".to_string(), number: 0, itrf_m, diameter_m: None };
    let reference = [number(5)?, number(6)?, number(7)?];
    let sky = Sky::new(&Array::from_itrf("case", vec![antenna], Some(reference))?, dut1.clone())?;

    let mut numbers = vec![dut1.at(epoch)?];
    numbers.extend(sky.itrf(direction, epoch)?);
    let (altitude, azimuth) = sky.altitude_azimuth_deg(direction, epoch)?;
    numbers.extend([altitude, azimuth]);
    numbers.extend(sky.delays_s(direction, epoch)?);
    numbers.push(polynomial(&sky, direction, epoch)?);
    numbers.extend(sky.uvw_m(direction, epoch)?[0]);
    numbers.push(sky.local_sidereal_time_rad(epoch)?);
    let zenith = sky.zenith(epoch)?;
    numbers.extend([zenith.ra_deg, zenith.dec_deg]);
    let apparent = sky.apparent(direction, epoch)?;
    numbers.extend([apparent.ra_deg, apparent.dec_deg, apparent.position_angle_deg]);
    Ok(numbers)
}

/// Delay from the polynomial of an observation around the time of the case.
fn polynomial(sky: &Sky, direction: Direction, epoch: Epoch) -> Result<f64> {
    let (before_s, length_s) = POLYNOMIAL_S;
    let start = sidereal::geometry::plus_elapsed_s(&epoch, -before_s)?;
    let centre = PhaseCentre::Source(direction);
    Ok(DelayModel::fit(sky, centre, start, length_s, &[])?.at(0, before_s))
}
