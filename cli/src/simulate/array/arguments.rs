//! Options of `sidereal simulate array`, and parsers of sources, times and layouts.

use std::path::PathBuf;

use clap::Args;
use sidereal::geometry::{Direction, Location};
use sidereal::io::voltages::dada::parse_utc;
use sidereal::simulate::array::{Layout, PointSource};
use sidereal::simulate::voltages::Polarization;
use sidereal::units::Epoch;
use sidereal::{Error, Result};

use crate::simulate::recording::{Band, Feed, Format, Samples};
use crate::sky::{EarthOrientation, Position, parse_location, parse_position};

const EXAMPLES: &str = "Examples:\n  \
    sidereal simulate array -o vla --antennas vla.csv --source 83.633,22.0145,10,Crab --sefd 400 \\\n      \
    --freq 1400 --bandwidth 8 --seconds 1 --start 2025-01-01T04:30:00\n  \
    sidereal simulate array -o two --layout 16,2000,wye --source 60,-30,5 --source 60.2,-30.1,2,south \\\n      \
    --freq 600 --bandwidth 16 --channels 4 --seconds 2 --start 2025-01-01T18:00:00 --format guppi\n\n\
    A source of S Jy makes in each polarization S / (SEFD + all sources) of an antenna's power, and that is\n\
    the correlation coefficient of two antennas. Delays are those of the apparent direction in the Earth's\n\
    frame, positive where the wave comes later than at the array's reference point. Written are one file\n\
    an antenna (its name is the header's telescope), antennas.csv, and truth.json: what was put in.";

/// Make an array's recordings, one per antenna (DADA or GUPPI raw): sources on the sky plus noise.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(in crate::simulate) struct Arguments {
    /// Folder to write.
    #[arg(short, long, value_name = "DIR")]
    pub(super) output: PathBuf,
    /// Replace the folder if it exists.
    #[arg(long)]
    pub(super) overwrite: bool,
    /// Length in seconds.
    #[arg(
        long,
        value_name = "SECONDS",
        alias = "duration",
        allow_negative_numbers = true,
        default_value_t = 1.0
    )]
    pub(super) seconds: f64,
    /// Seed of everything random; the same seed gives the same files.
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub(super) seed: u64,
    #[command(flatten)]
    pub(super) array: ArrayArguments,
    #[command(flatten)]
    pub(super) sky: Sky,
    #[command(flatten)]
    pub(super) receiver: Receiver,
    #[command(flatten)]
    pub(super) faults: Faults,
}

/// Options of the antenna positions.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Array")]
#[group(skip)]
pub(super) struct ArrayArguments {
    /// CSV file of the antenna positions.
    ///
    /// Columns name,x,y,z (ITRF, in metres), or name,east,north,up below lines "# longitude_deg=...", "#
    /// latitude_deg=..." and "# height_m=..."; optionally number, diameter (m) and delay_ns (of the cable).
    #[arg(long, value_name = "CSV", required_unless_present = "layout", conflicts_with = "layout")]
    pub(super) antennas: Option<PathBuf>,
    /// Generate antenna positions.
    ///
    /// ANTENNAS,SPREAD places that many antennas at random in a circle of that diameter in metres;
    /// ANTENNAS,SPREAD,wye places them along three arms.
    #[arg(
        long,
        value_name = "ANTENNAS,SPREAD",
        required_unless_present = "antennas",
        allow_hyphen_values = true
    )]
    pub(super) layout: Option<String>,
    /// Reference position of east, north and up [default: the CSV's; of a generated array 21.4439,-30.713,1053].
    ///
    /// In degrees east, degrees north, and metres above the WGS84 ellipsoid.
    #[arg(
        long,
        value_name = "LON,LAT,HEIGHT",
        value_parser = parse_location,
        allow_hyphen_values = true
    )]
    pub(super) location: Option<Location>,
    /// Name of a generated array.
    #[arg(long, value_name = "NAME", default_value = "simulation")]
    pub(super) telescope: String,
}

/// Options of the sources and the start time.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Sky")]
pub(super) struct Sky {
    /// Add a source; may be repeated.
    ///
    /// Right ascension and declination (J2000; degrees, or 05:34:31.9,22:00:52), flux density in Jy, and optionally a
    /// name.
    #[arg(long, value_name = "RA,DEC,FLUX[,NAME]", allow_hyphen_values = true)]
    pub(super) source: Vec<String>,
    /// Polarize a source; may be repeated.
    ///
    /// Fractions of its power that are linearly and circularly polarized, and the angle of the linear polarization in
    /// degrees, in the frame of the feeds.
    #[arg(long, value_name = "NAME,LINEAR[,ANGLE[,CIRCULAR]]")]
    pub(super) polarized: Vec<String>,
    /// Pointing direction for the headers [default: the first source].
    #[arg(
        long,
        value_name = "RA,DEC",
        value_parser = parse_position,
        allow_hyphen_values = true
    )]
    pub(super) pointing: Option<Position>,
    /// Start of the first sample.
    ///
    /// A date (UTC) such as 2025-01-01T12:00:00, or a modified Julian date.
    #[arg(
        long,
        value_name = "TIME",
        alias = "tstart",
        default_value = "2025-01-01T00:00:00",
        allow_hyphen_values = true
    )]
    pub(super) start: String,
    /// UT1 - UTC in seconds [default: from an IERS table built into the program].
    #[arg(
        long,
        value_name = "SECONDS",
        allow_negative_numbers = true,
        conflicts_with = "earth_orientation"
    )]
    pub(super) dut1: Option<f64>,
    #[command(flatten)]
    pub(super) orientation: EarthOrientation,
}

/// Options of the receivers.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Receiver")]
pub(super) struct Receiver {
    /// Format of the files: dada (.dada) or guppi (.raw).
    #[arg(long, value_enum, default_value_t = Format::Dada)]
    pub(super) format: Format,
    /// System equivalent flux density of every antenna, in Jy: the flux density that doubles its power.
    #[arg(long, value_name = "JY", allow_negative_numbers = true, default_value_t = 400.0)]
    pub(super) sefd: f64,
    #[command(flatten)]
    pub(super) band: Band,
    /// Number of recorded channels in the band.
    #[arg(
        long,
        value_name = "COUNT",
        alias = "coarse-channels",
        allow_negative_numbers = true,
        default_value_t = 1
    )]
    pub(super) channels: usize,
    /// Number of polarizations, 1 or 2.
    #[arg(
        long,
        value_name = "COUNT",
        alias = "pols",
        allow_negative_numbers = true,
        default_value_t = 2
    )]
    pub(super) polarizations: usize,
    /// Polarization basis.
    #[arg(long, value_enum, default_value_t = Feed::Linear)]
    pub(super) feed: Feed,
    #[command(flatten)]
    pub(super) samples: Samples,
    /// Record the lower sideband.
    ///
    /// Sky frequency falls as the voltage's frequency rises, and channels begin at the highest sky frequency.
    #[arg(long)]
    pub(super) lower_sideband: bool,
    /// Rms of noise plus sources in one real value, in counts [default: chosen from the number of bits].
    #[arg(long, value_name = "COUNTS", allow_negative_numbers = true)]
    pub(super) rms: Option<f64>,
}

/// Options of simulated faults.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Faults")]
pub(super) struct Faults {
    /// Antenna whose samples are all 0; may be repeated.
    #[arg(long, value_name = "NAME")]
    pub(super) dead: Vec<String>,
    /// Antenna without a file; may be repeated.
    #[arg(long, value_name = "NAME")]
    pub(super) no_file: Vec<String>,
    /// Gap in an antenna's samples, in seconds from the start; may be repeated.
    ///
    /// GUPPI raw omits whole blocks, DADA contains zeros.
    #[arg(long, value_name = "NAME,START,DURATION")]
    pub(super) gap: Vec<String>,
}

/// Largest number of antennas of a generated array.
const MAX_ANTENNAS: usize = 4096;

/// Parses a source from `RA,DEC,FLUX[,NAME]`; `number` is its index, for its default name.
pub(super) fn source(text: &str, number: usize) -> Result<PointSource> {
    let wrong = |rule: String| Error::parameter("--source", text, rule);
    let usage = "write it as RA,DEC,FLUX or RA,DEC,FLUX,NAME: the flux in Jy";
    let parts: Vec<&str> = text.splitn(4, ',').collect();
    let [ra, dec, flux, name @ ..] = &parts[..] else {
        return Err(wrong(usage.to_owned()));
    };
    let place = parse_position(&format!("{ra},{dec}")).map_err(wrong)?;
    let flux_jy = flux.trim().parse::<f64>().ok().filter(|flux| flux.is_finite() && *flux >= 0.0);
    let flux_jy = flux_jy.ok_or_else(|| {
        wrong(format!("{} is not a flux in Jy of 0 or more; {usage}", flux.trim()))
    })?;
    let usual = format!("source{number}");
    let name = name.first().map_or(usual.as_str(), |name| name.trim());
    Ok(PointSource::new(name, Direction::new(place.ra_deg, place.dec_deg)?, flux_jy))
}

/// Polarizes a source as `NAME,LINEAR[,ANGLE[,CIRCULAR]]` specifies.
pub(super) fn polarize(text: &str, sources: &mut [PointSource]) -> Result<()> {
    let wrong = |rule: &str| Error::parameter("--polarized", text, rule);
    let (name, numbers) = text.split_once(',').unwrap_or((text, ""));
    let source = sources.iter_mut().find(|source| source.name == name.trim());
    let source = source.ok_or_else(|| wrong("there is no --source of that name"))?;
    let number = |part: &str| part.trim().parse::<f64>().ok().filter(|number| number.is_finite());
    let numbers: Option<Vec<f64>> = numbers.split(',').map(number).collect();
    let usage = "write it as NAME,LINEAR,ANGLE,CIRCULAR: parts of the power, the angle in degrees";
    let numbers = numbers.filter(|numbers| numbers.len() <= 3).ok_or_else(|| wrong(usage))?;
    let at = |place: usize| numbers.get(place).copied().unwrap_or(0.0);
    let (linear, angle_rad, circular) = (at(0), at(1).to_radians(), at(2));
    source.polarization = Polarization { linear, angle_rad, circular };
    Ok(())
}

/// Generates an array from `ANTENNAS,SPREAD[,random|wye]`.
pub(super) fn layout(text: &str, seed: u64) -> Result<Vec<(String, [f64; 3])>> {
    let wrong = |rule: String| Error::parameter("--layout", text, rule);
    let usage = "write it as ANTENNAS,SPREAD or ANTENNAS,SPREAD,wye: the spread in metres";
    let parts: Vec<&str> = text.split(',').map(str::trim).collect();
    let (count, spread, kind) = match parts[..] {
        [count, spread] | [count, spread, "random"] => (count, spread, Layout::Random),
        [count, spread, "wye"] => (count, spread, Layout::Wye),
        _ => return Err(wrong(usage.to_owned())),
    };
    let antennas = count.parse::<usize>().ok().filter(|n| (1..=MAX_ANTENNAS).contains(n));
    let antennas = antennas.ok_or_else(|| {
        wrong(format!("there must be 1 to {MAX_ANTENNAS} antennas, found {count}"))
    })?;
    let spread_m = spread.parse::<f64>().ok().filter(|metres| *metres > 0.0 && *metres <= 1e6);
    let spread_m = spread_m.ok_or_else(|| {
        wrong(format!("the spread must be above 0 and at most 1e6 m, found {spread}"))
    })?;
    Ok(kind.places(antennas, spread_m, seed))
}

/// Parses a time from a date such as `2025-01-01T12:00:00` or a modified Julian date.
pub(super) fn start(text: &str) -> Result<Epoch> {
    let text = text.trim();
    if let Ok(mjd) = text.parse::<f64>() {
        if (1.0..1e7).contains(&mjd) {
            return Ok(Epoch::from_mjd(mjd));
        }
    } else if let Some(epoch) = parse_utc(text).or_else(|| parse_utc(&format!("{text}T00:00:00"))) {
        return Ok(epoch);
    }
    let rule = "it must be a date (UTC) such as 2025-01-01T12:00:00, or a modified Julian date";
    Err(Error::parameter("--start", text, rule))
}

/// Parses an antenna's gap from `NAME,START,DURATION`: its name, and times in seconds.
pub(super) fn gap(text: &str) -> Result<(&str, f64, f64)> {
    let number = |part: &str| part.trim().parse::<f64>().ok().filter(|number| number.is_finite());
    let mut parts = text.rsplitn(3, ',');
    let (duration, start) = (parts.next().and_then(number), parts.next().and_then(number));
    match (parts.next(), start, duration) {
        (Some(name), Some(start), Some(duration)) if start >= 0.0 && duration > 0.0 => {
            Ok((name.trim(), start, duration))
        }
        _ => {
            let rule = "write it as NAME,START,DURATION: an antenna, and seconds from the start";
            Err(Error::parameter("--gap", text, rule))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_have_a_place_a_flux_and_a_name() {
        let crab = source("5:34:30,22.5,1000,Crab, the pulsar", 0).unwrap();
        assert_eq!((crab.direction.ra_deg, crab.direction.dec_deg), (83.625, 22.5));
        assert_eq!((crab.flux_jy, crab.name.as_str()), (1000.0, "Crab, the pulsar"));
        assert_eq!(source("0,0,0", 2).unwrap().name, "source2");
        for wrong in ["", "1,2", "1,2,x", "1,2,-3", "1,2,nan", "400,2,3", "1,91,3", "x,2,3"] {
            let error = source(wrong, 0).unwrap_err().to_string();
            assert!(error.contains("--source"), "{wrong}: {error}");
        }
        let mut sources = [crab];
        sources[0].name = "a".to_owned();
        polarize("a,0.5,90", &mut sources).unwrap();
        assert_eq!((sources[0].polarization.linear, sources[0].polarization.circular), (0.5, 0.0));
        for wrong in ["b,0.5", "a", "a,x", "a,0,0,0,0"] {
            assert!(polarize(wrong, &mut sources).is_err(), "{wrong}");
        }
    }

    #[test]
    fn layouts_starts_and_gaps_are_read() {
        assert_eq!(layout("7,500", 1).unwrap().len(), 7);
        assert_eq!(layout("3, 500 ,wye", 1).unwrap().len(), 3);
        for wrong in ["", "0,5", "5", "5,0", "5,nan", "5,5,ring", "-1,5", "5000,5", "5,5,wye,1"] {
            assert!(layout(wrong, 0).is_err(), "{wrong}");
        }
        assert_eq!(start("2025-01-01").unwrap(), Epoch::new(60676, 0.0));
        assert_eq!(start("2025-01-01T06:00:00.5Z").unwrap(), Epoch::new(60676, 21_600.5));
        assert_eq!(start("60676.25").unwrap(), Epoch::new(60676, 21_600.0));
        for wrong in ["", "2025-13-01", "x", "0", "nan", "1e9", "2025-01-01T25:00:00"] {
            assert!(start(wrong).is_err(), "{wrong}");
        }
        assert_eq!(gap("a,b,0.5,1").unwrap(), ("a,b", 0.5, 1.0));
        for wrong in ["", "a", "a,1", "1,2", "a,-1,1", "a,1,0", "a,x,1"] {
            assert!(gap(wrong).is_err(), "{wrong}");
        }
    }
}
