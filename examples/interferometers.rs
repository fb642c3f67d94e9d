//! Prints the responses of interferometers to gravitational waves.
//!
//!     cargo run --release --example interferometers -- CASES
//!
//! Each line of CASES has the name of a detector, right ascension, declination and polarization in radians, and the
//! time in GPS seconds. Each output line has F+, Fx and the delay after the Earth's centre in s.

use std::io::Write as _;
use std::process::ExitCode;

use sidereal::geometry::Interferometer;
use sidereal::units::Gps;
use sidereal::{Error, Result};

fn main() -> ExitCode {
    let Some(path) = std::env::args().nth(1) else {
        eprintln!("usage: interferometers CASES");
        return ExitCode::from(2);
    };
    match run(&path) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("interferometers: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(path: &str) -> Result<()> {
    let text = std::fs::read_to_string(path).map_err(|error| Error::io(path, error))?;
    let mut out = std::io::stdout().lock();
    for line in text.lines() {
        let [plus, cross, delay_s] = case(line)?;
        writeln!(out, "{plus:?} {cross:?} {delay_s:?}").map_err(|error| Error::io("-", error))?;
    }
    Ok(())
}

fn case(line: &str) -> Result<[f64; 3]> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let number = |index: usize| {
        let word = words.get(index).copied().unwrap_or_default();
        word.parse::<f64>().map_err(|_| Error::parameter("case", line, "a name and four numbers"))
    };
    let name = words.first().copied().unwrap_or_default();
    let detector = Interferometer::by_name(name)
        .ok_or_else(|| Error::parameter("detector", name, "it is not known"))?;
    let (ra, dec, polarization, gps) =
        (number(1)?, number(2)?, number(3)?, Gps::from_s(number(4)?));
    let (plus, cross) = detector.antenna_pattern(ra, dec, polarization, gps);
    Ok([plus, cross, detector.delay_from_centre_s(ra, dec, gps)])
}
