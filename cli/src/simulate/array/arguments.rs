//! Options of `sidereal simulate array`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use sidereal::geometry::Location;

use crate::direction::{Position, parse_position};
use crate::earth_orientation::EarthOrientation;
use crate::positions::parse_location;
use crate::simulate::voltages::writer::Format;

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
#[group(skip)]
pub(super) struct ArrayArguments {
    /// CSV file of the antenna positions.
    ///
    /// Columns name,x,y,z (ITRF, in metres), or name,east,north,up below lines "# longitude_deg=...", "#
    /// latitude_deg=..." and "# height_m=..."; optionally number, diameter (m) and delay_ns (of the cable).
    #[arg(
        long,
        value_name = "CSV",
        required_unless_present = "layout",
        conflicts_with = "layout",
        help_heading = "Array"
    )]
    pub(super) antennas: Option<PathBuf>,
    /// Generate antenna positions.
    ///
    /// ANTENNAS,SPREAD places that many antennas at random in a circle of that diameter in metres;
    /// ANTENNAS,SPREAD,wye places them along three arms.
    #[arg(
        long,
        value_name = "ANTENNAS,SPREAD",
        required_unless_present = "antennas",
        allow_hyphen_values = true,
        help_heading = "Array"
    )]
    pub(super) layout: Option<String>,
    /// Reference position of east, north and up [default: the CSV's; of a generated array 21.4439,-30.713,1053].
    ///
    /// In degrees east, degrees north, and metres above the WGS84 ellipsoid.
    #[arg(
        long,
        value_name = "LON,LAT,HEIGHT",
        value_parser = parse_location,
        allow_hyphen_values = true,
        help_heading = "Array"
    )]
    pub(super) location: Option<Location>,
    /// Name of a generated array.
    #[arg(long, value_name = "NAME", default_value = "simulation", help_heading = "Array")]
    pub(super) telescope: String,
}

/// Options of the sources and the start time.
#[derive(Args, Clone, Debug)]
pub(super) struct Sky {
    /// Add a source; may be repeated.
    ///
    /// Right ascension and declination (J2000; degrees, or 05:34:31.9,22:00:52), flux density in Jy, and optionally a
    /// name.
    #[arg(
        long,
        value_name = "RA,DEC,FLUX[,NAME]",
        allow_hyphen_values = true,
        help_heading = "Sky"
    )]
    pub(super) source: Vec<String>,
    /// Polarize a source; may be repeated.
    ///
    /// Fractions of its power that are linearly and circularly polarized, and the angle of the linear polarization in
    /// degrees, in the frame of the feeds.
    #[arg(long, value_name = "NAME,LINEAR[,ANGLE[,CIRCULAR]]", help_heading = "Sky")]
    pub(super) polarized: Vec<String>,
    /// Pointing direction for the headers [default: the first source].
    #[arg(
        long,
        value_name = "RA,DEC",
        value_parser = parse_position,
        allow_hyphen_values = true,
        help_heading = "Sky"
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
        allow_hyphen_values = true,
        help_heading = "Sky"
    )]
    pub(super) start: String,
    /// UT1 - UTC in seconds [default: from an IERS table built into the program].
    #[arg(
        long,
        value_name = "SECONDS",
        allow_negative_numbers = true,
        conflicts_with = "earth_orientation",
        help_heading = "Sky"
    )]
    pub(super) dut1: Option<f64>,
    #[command(flatten)]
    pub(super) orientation: EarthOrientation,
}

/// Options of the receivers.
#[derive(Args, Clone, Debug)]
pub(super) struct Receiver {
    /// Format of the files: dada (.dada) or guppi (.raw).
    #[arg(long, value_enum, default_value_t = Format::Dada, help_heading = "Receiver")]
    pub(super) format: Format,
    /// System equivalent flux density of every antenna, in Jy: the flux density that doubles its power.
    #[arg(
        long,
        value_name = "JY",
        allow_negative_numbers = true,
        default_value_t = 400.0,
        help_heading = "Receiver"
    )]
    pub(super) sefd: f64,
    /// Centre of the whole recorded band, in MHz.
    #[arg(long, value_name = "MHZ", allow_negative_numbers = true, help_heading = "Receiver")]
    pub(super) freq: f64,
    /// Width of the whole recorded band, in MHz.
    #[arg(long, value_name = "MHZ", allow_negative_numbers = true, help_heading = "Receiver")]
    pub(super) bandwidth: f64,
    /// Number of recorded channels in the band.
    #[arg(
        long,
        value_name = "COUNT",
        alias = "coarse-channels",
        allow_negative_numbers = true,
        default_value_t = 1,
        help_heading = "Receiver"
    )]
    pub(super) channels: usize,
    /// Number of polarizations, 1 or 2.
    #[arg(
        long,
        value_name = "COUNT",
        alias = "pols",
        allow_negative_numbers = true,
        default_value_t = 2,
        help_heading = "Receiver"
    )]
    pub(super) polarizations: usize,
    /// Polarization basis.
    #[arg(long, value_enum, default_value_t = Feed::Linear, help_heading = "Receiver")]
    pub(super) feed: Feed,
    /// Bits per real value: 4 (complex only), 8, 16 or 32 (floats; DADA only).
    ///
    /// A complex sample has two values.
    #[arg(
        long,
        value_name = "BITS",
        allow_negative_numbers = true,
        default_value_t = 8,
        help_heading = "Receiver"
    )]
    pub(super) nbits: usize,
    /// Record real samples, at twice the rate of complex ones; DADA only.
    #[arg(long, help_heading = "Receiver")]
    pub(super) real: bool,
    /// Record the lower sideband.
    ///
    /// Sky frequency falls as the voltage's frequency rises, and channels begin at the highest sky frequency.
    #[arg(long, help_heading = "Receiver")]
    pub(super) lower_sideband: bool,
    /// Rms of noise plus sources in one real value, in counts [default: chosen from the number of bits].
    #[arg(long, value_name = "COUNTS", allow_negative_numbers = true, help_heading = "Receiver")]
    pub(super) rms: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Feed {
    /// X and Y.
    Linear,
    /// R and L.
    Circular,
}

/// Options of simulated faults.
#[derive(Args, Clone, Debug)]
pub(super) struct Faults {
    /// Antenna whose samples are all 0; may be repeated.
    #[arg(long, value_name = "NAME", help_heading = "Faults")]
    pub(super) dead: Vec<String>,
    /// Antenna without a file; may be repeated.
    #[arg(long, value_name = "NAME", help_heading = "Faults")]
    pub(super) no_file: Vec<String>,
    /// Gap in an antenna's samples, in seconds from the start; may be repeated.
    ///
    /// GUPPI raw omits whole blocks, DADA contains zeros.
    #[arg(long, value_name = "NAME,START,DURATION", help_heading = "Faults")]
    pub(super) gap: Vec<String>,
}
