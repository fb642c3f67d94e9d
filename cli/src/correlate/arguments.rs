//! The options of `correlate`.

use std::path::PathBuf;

use clap::Args;
use sidereal::channelize::plan::{MAX_CHANNELS, MAX_TAPS};
use sidereal::correlate::Precision;
use sidereal::geometry::Location;
use sidereal::{Error, Result};

use super::gains::{self, GainWords};
use crate::direction::{Position, parse_position};
use crate::earth_orientation::EarthOrientation;
use crate::positions::parse_location;
use crate::selection::{TimeRange, parse_time_range};
use crate::voltage_arguments::Lacking;

/// Channels of each recorded channel where none are asked for.
pub(super) const CHANNELS: usize = 1024;
/// Taps where none are asked for.
pub(super) const TAPS: usize = 8;

/// Correlates the voltages of an array's antennas: visibilities (UVH5) for pyuvdata, and through it CASA.
///
/// Each antenna's voltages are delayed as its place asks for, divided into channels by a polyphase filter
/// bank, turned by the rest of the delay, rounded, multiplied with those of every other antenna and summed.
/// With --phase-centre a source there has phase 0 at all times; with --drift only the antennas' cable
/// delays are taken out. OUT.json says what was made and how, and pictures show it at a glance.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Recordings of voltages (GUPPI raw, PSRDADA, VDIF, Mark 5B), each of one antenna or of several. A FILE
    /// may be written NAME=FILE (A,B,C=FILE of several antennas); else it is of the antenna that its header
    /// names, if the positions have it, else they come in the order of the positions. Files with one NAME are
    /// parts of one recording.
    #[arg(required = true, value_name = "FILE")]
    pub(super) inputs: Vec<PathBuf>,
    /// Use these seconds only, counted from the first sample that all have; an end may be left out: 10:20,
    /// 10:, :20.
    #[arg(long, value_name = "A:B", value_parser = parse_time_range, allow_hyphen_values = true)]
    pub(super) time_range: Option<TimeRange>,
    /// Spectra made at once; 0 chooses. Results are the same for any, but for the last bits where --precision lets a
    /// GPU round.
    #[arg(long, value_name = "SPECTRA", default_value_t = 0)]
    pub(super) gulp: usize,
    /// Fill gaps of any length; by default a gap above the greater of a minute and ten times the data before
    /// it is an error, since one damaged time makes such a gap.
    #[arg(long)]
    pub(super) allow_gaps: bool,
    #[command(flatten)]
    pub(super) array: Array,
    #[command(flatten)]
    pub(super) sky: Sky,
    #[command(flatten)]
    pub(super) spectra: Spectra,
    #[command(flatten)]
    pub(super) writing: Writing,
    #[command(flatten)]
    pub(super) lacking: Lacking,
}

/// A precision by its name.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(crate) enum PrecisionWord {
    F32,
    Split,
    Tf32,
    F16,
}

impl From<PrecisionWord> for Precision {
    fn from(word: PrecisionWord) -> Self {
        match word {
            PrecisionWord::F32 => Self::F32,
            PrecisionWord::Split => Self::Split,
            PrecisionWord::Tf32 => Self::Tf32,
            PrecisionWord::F16 => Self::F16,
        }
    }
}

/// The antennas.
#[derive(Args, Clone, Debug)]
pub(super) struct Array {
    /// CSV file of the antennas' positions: name,x,y,z (ITRF, in metres), or name,east,north,up with lines
    /// "# longitude_deg=...", "# latitude_deg=..." and "# height_m=..." above; and number, diameter (m),
    /// delay_ns (of the cable) if you like.
    #[arg(long, value_name = "CSV", help_heading = "Array")]
    pub(super) antennas: PathBuf,
    /// The place that east, north and up refer to, where the CSV does not say: degrees east, degrees north,
    /// metres above the ellipsoid WGS84.
    #[arg(
        long,
        value_name = "LON,LAT,HEIGHT",
        value_parser = parse_location,
        allow_hyphen_values = true,
        help_heading = "Array"
    )]
    pub(super) location: Option<Location>,
    /// Antennas of the positions without a recording: flag, or fail.
    #[arg(long, value_enum, value_name = "WHAT", default_value = "fail", help_heading = "Array")]
    pub(super) missing: MissingWord,
    /// Take recordings of different length as far as the shortest goes; else they are an error.
    #[arg(long, help_heading = "Array")]
    pub(super) shortest: bool,
}

/// What antennas without a recording are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum MissingWord {
    /// Antennas without valid data.
    Flag,
    /// An error.
    Fail,
}

/// Where the array looks.
#[derive(Args, Clone, Debug)]
pub(super) struct Sky {
    /// Right ascension and declination (J2000) where phases are 0: degrees (83.633,22.0145) or
    /// 05:34:31.9,22:00:52 [default: the recordings', if they have one].
    #[arg(
        long,
        value_name = "RA,DEC",
        value_parser = parse_position,
        allow_hyphen_values = true,
        help_heading = "Sky"
    )]
    pub(super) phase_centre: Option<Position>,
    /// Follow no source: phases turn as the Earth does.
    #[arg(long, conflicts_with = "phase_centre", help_heading = "Sky")]
    pub(super) drift: bool,
    /// Name of what is in the phase centre [default: the recordings', else "target"].
    #[arg(long, value_name = "NAME", help_heading = "Sky")]
    pub(super) source_name: Option<String>,
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

/// How voltages become spectra.
#[derive(Args, Clone, Debug)]
pub(super) struct Spectra {
    /// Channels out of each recorded channel; 1 takes recorded channels as they are [default: 1 where the
    /// recordings say that a filter bank made their channels, else 1024].
    #[arg(long, value_name = "N", help_heading = "Spectra")]
    pub(super) channels: Option<usize>,
    /// Taps of the filter bank: it looks at TAPS x channels samples at once [default: 8].
    #[arg(long, value_name = "N", help_heading = "Spectra")]
    pub(super) taps: Option<usize>,
    /// hann, hamming, blackman or kaiser:DB (each times a sinc), rectangular (a plain FFT of one tap),
    /// or a file of taps x channels coefficients, text or .npy (real samples: of twice as many)
    /// [default: hann].
    #[arg(long, value_name = "WINDOW", help_heading = "Spectra")]
    pub(super) window: Option<String>,
    /// Bits of the numbers that are multiplied: 8 or 4 (integers), or 32 (floats).
    #[arg(long, value_name = "BITS", default_value_t = 8, help_heading = "Spectra")]
    pub(super) nbits: usize,
    /// How a GPU may round spectra of 32 bits before it multiplies them. f32: not at all; split: to two parts of 11
    /// significant bits each, within the error of single-precision sums; tf32: to 11 significant bits; f16: to 16-bit
    /// floats, of magnitudes up to 65504. Each is faster than the one before. The CPU rounds nothing.
    #[arg(long, value_enum, value_name = "WHAT", default_value = "f32", help_heading = "Spectra")]
    pub(super) precision: PrecisionWord,
    /// What spectra are multiplied by before they are rounded. auto: what suits each antenna and channel,
    /// and a number for all, both divided out again afterwards; or a file of complex gains, which stay:
    /// text whose first line names its columns, re and any of im, antenna, polarization (X, Y, R, L or 0, 1)
    /// and channel (from 0, by rising frequency).
    #[arg(
        long,
        value_name = "GAINS",
        value_parser = gains::parse,
        default_value = "auto",
        allow_negative_numbers = true,
        help_heading = "Spectra"
    )]
    pub(super) gains: GainWords,
}

/// What is written, and where.
#[derive(Args, Clone, Debug)]
pub(super) struct Writing {
    /// File to write.
    #[arg(short, long, value_name = "OUT", help_heading = "Output")]
    pub(super) output: PathBuf,
    /// Replace OUT and what stands beside it if it exists.
    #[arg(long, help_heading = "Output")]
    pub(super) overwrite: bool,
    /// Seconds summed into one visibility, rounded to whole spectra.
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 1.0,
        allow_negative_numbers = true,
        help_heading = "Output"
    )]
    pub(super) integration: f64,
    /// Neighbouring channels averaged into one.
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Output")]
    pub(super) average_channels: usize,
    /// all, auto (autocorrelations only), or pairs of antennas: A-B,C-D; A-A is an autocorrelation.
    #[arg(long, value_name = "WHICH", default_value = "all", help_heading = "Output")]
    pub(super) baselines: String,
    /// Folder of pictures [default: OUT's name with _plots].
    #[arg(long, value_name = "DIR", help_heading = "Output")]
    pub(super) plots: Option<PathBuf>,
    /// Draw no pictures.
    #[arg(long, conflicts_with = "plots", help_heading = "Output")]
    pub(super) no_plots: bool,
}

const EXAMPLES: &str = "Examples:\n  \
    sidereal correlate ant*.dada -o array.uvh5 --antennas positions.csv --phase-centre 83.633,22.0145\n  \
    sidereal correlate ea01=a.raw ea02=b.raw -o pair.uvh5 --antennas positions.csv --drift --nbits 4\n  \
    sidereal correlate stations.dada -o array.uvh5 --antennas positions.csv --integration 0.1 \
    --baselines s1-s2,s1-s3";

impl Writing {
    /// The folder of pictures, if they are wanted.
    pub(super) fn plots(&self) -> Option<PathBuf> {
        if self.no_plots {
            return None;
        }
        let stem = self.output.file_stem().unwrap_or_default().to_string_lossy();
        let usual = || self.output.with_file_name(format!("{stem}_plots"));
        Some(self.plots.clone().unwrap_or_else(usual))
    }
}

impl Spectra {
    /// Channels of each recorded one, taps, and whether recorded channels are divided: `None` leaves it to
    /// the recordings.
    ///
    /// # Errors
    /// [`Error::Parameter`] for numbers that no filter bank has.
    pub(super) fn division(&self) -> Result<(usize, usize, Option<bool>)> {
        let channels = self.channels.unwrap_or(CHANNELS);
        let rectangular = self.window.as_deref() == Some("rectangular");
        let taps = self.taps.unwrap_or(if rectangular { 1 } else { TAPS });
        within("--channels", channels, 1, MAX_CHANNELS)?;
        within("--taps", taps, 1, MAX_TAPS)?;
        if channels == 1 {
            let given = [(self.taps.is_some(), "--taps"), (self.window.is_some(), "--window")];
            if let Some((_, option)) = given.into_iter().find(|(given, _)| *given) {
                let rule = "with --channels 1 recorded channels are taken as they are";
                return Err(Error::parameter(option, "given", rule));
            }
        }
        Ok((channels, taps, self.channels.map(|channels| channels > 1)))
    }
}

fn within(name: &'static str, value: usize, least: usize, most: usize) -> Result<()> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(Error::parameter(name, value, format!("it must be {least} to {most}")))
}
