//! The options of `sidereal simulate array`.

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

/// Makes an array's recordings, one an antenna (DADA or GUPPI raw): sources on the sky through noise.
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
    /// Chooses all that is random; the same seed gives the same files.
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

/// Where antennas stand.
#[derive(Args, Clone, Debug)]
#[group(skip)]
pub(super) struct ArrayArguments {
    /// CSV file of the antennas' positions: name,x,y,z (ITRF, in metres), or name,east,north,up with lines
    /// "# longitude_deg=...", "# latitude_deg=..." and "# height_m=..." above; and number, diameter (m),
    /// delay_ns (of the cable) if you like.
    #[arg(
        long,
        value_name = "CSV",
        required_unless_present = "layout",
        conflicts_with = "layout",
        help_heading = "Array"
    )]
    pub(super) antennas: Option<PathBuf>,
    /// Make antennas up: ANTENNAS,SPREAD is so many anywhere in a circle of that diameter in metres, and
    /// ANTENNAS,SPREAD,wye along three arms.
    #[arg(
        long,
        value_name = "ANTENNAS,SPREAD",
        required_unless_present = "antennas",
        allow_hyphen_values = true,
        help_heading = "Array"
    )]
    pub(super) layout: Option<String>,
    /// The place that east, north and up refer to: degrees east, degrees north, metres above the ellipsoid
    /// WGS84 [default: the CSV's; of made-up antennas 21.4439,-30.713,1053].
    #[arg(
        long,
        value_name = "LON,LAT,HEIGHT",
        value_parser = parse_location,
        allow_hyphen_values = true,
        help_heading = "Array"
    )]
    pub(super) location: Option<Location>,
    /// Name of a made-up array.
    #[arg(long, value_name = "NAME", default_value = "simulation", help_heading = "Array")]
    pub(super) telescope: String,
}

/// What there is to see, and when.
#[derive(Args, Clone, Debug)]
pub(super) struct Sky {
    /// A source: right ascension and declination (J2000; degrees, or 05:34:31.9,22:00:52), flux density in
    /// Jy, and a name if you like. May be repeated.
    #[arg(
        long,
        value_name = "RA,DEC,FLUX[,NAME]",
        allow_hyphen_values = true,
        help_heading = "Sky"
    )]
    pub(super) source: Vec<String>,
    /// Polarizes a source: parts of its power that are linear and circular, and the linear part's angle in
    /// degrees, in the frame of the feeds. May be repeated.
    #[arg(long, value_name = "NAME,LINEAR[,ANGLE[,CIRCULAR]]", help_heading = "Sky")]
    pub(super) polarized: Vec<String>,
    /// Where the antennas point, for the headers [default: the first source].
    #[arg(
        long,
        value_name = "RA,DEC",
        value_parser = parse_position,
        allow_hyphen_values = true,
        help_heading = "Sky"
    )]
    pub(super) pointing: Option<Position>,
    /// Start of the first sample: a date (UTC) such as 2025-01-01T12:00:00, or a modified Julian date.
    #[arg(
        long,
        value_name = "TIME",
        alias = "tstart",
        default_value = "2025-01-01T00:00:00",
        allow_hyphen_values = true,
        help_heading = "Sky"
    )]
    pub(super) start: String,
    /// UT1 - UTC in seconds [default: from a table of the IERS, as old as this program].
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

/// What records.
#[derive(Args, Clone, Debug)]
pub(super) struct Receiver {
    /// Format of the files: dada (.dada) or guppi (.raw).
    #[arg(long, value_enum, default_value_t = Format::Dada, help_heading = "Receiver")]
    pub(super) format: Format,
    /// System equivalent flux density of every antenna, in Jy: the flux that doubles its power.
    #[arg(
        long,
        value_name = "JY",
        allow_negative_numbers = true,
        default_value_t = 400.0,
        help_heading = "Receiver"
    )]
    pub(super) sefd: f64,
    /// Middle of the whole recorded band, in MHz.
    #[arg(long, value_name = "MHZ", allow_negative_numbers = true, help_heading = "Receiver")]
    pub(super) freq: f64,
    /// Width of the whole recorded band, in MHz.
    #[arg(long, value_name = "MHZ", allow_negative_numbers = true, help_heading = "Receiver")]
    pub(super) bandwidth: f64,
    /// Recorded channels that divide the band.
    #[arg(
        long,
        value_name = "COUNT",
        alias = "coarse-channels",
        allow_negative_numbers = true,
        default_value_t = 1,
        help_heading = "Receiver"
    )]
    pub(super) channels: usize,
    /// Polarizations, 1 or 2.
    #[arg(
        long,
        value_name = "COUNT",
        alias = "pols",
        allow_negative_numbers = true,
        default_value_t = 2,
        help_heading = "Receiver"
    )]
    pub(super) polarizations: usize,
    /// What the two polarizations are.
    #[arg(long, value_enum, default_value_t = Feed::Linear, help_heading = "Receiver")]
    pub(super) feed: Feed,
    /// Bits of one real number (a complex sample has two): 4 (complex only), 8, 16 or 32 (floats; DADA
    /// only).
    #[arg(
        long,
        value_name = "BITS",
        allow_negative_numbers = true,
        default_value_t = 8,
        help_heading = "Receiver"
    )]
    pub(super) nbits: usize,
    /// Real samples, at twice the rate of complex ones; DADA only.
    #[arg(long, help_heading = "Receiver")]
    pub(super) real: bool,
    /// Sky frequency falls as the voltage's rises, and channels come from the highest.
    #[arg(long, help_heading = "Receiver")]
    pub(super) lower_sideband: bool,
    /// Rms of noise and sources together in one real number, in counts [default: what suits the bits].
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

/// What goes wrong.
#[derive(Args, Clone, Debug)]
pub(super) struct Faults {
    /// An antenna whose samples are all 0. May be repeated.
    #[arg(long, value_name = "NAME", help_heading = "Faults")]
    pub(super) dead: Vec<String>,
    /// An antenna of which no file is written. May be repeated.
    #[arg(long, value_name = "NAME", help_heading = "Faults")]
    pub(super) no_file: Vec<String>,
    /// Samples of an antenna that are missing, in seconds from the start. In GUPPI raw whole blocks are left
    /// out, in DADA the samples are zeros. May be repeated.
    #[arg(long, value_name = "NAME,START,DURATION", help_heading = "Faults")]
    pub(super) gap: Vec<String>,
}
