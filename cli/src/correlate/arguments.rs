//! Options of `correlate`.

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

/// Default number of channels per recorded channel.
pub(super) const CHANNELS: usize = 1024;
/// Default number of taps.
pub(super) const TAPS: usize = 8;

/// Correlate the voltages of an array's antennas to visibilities (UVH5).
///
/// Each antenna's voltages are delayed according to its position, channelized by a polyphase filter bank,
/// phase-rotated by the residual delay, quantized, multiplied with those of every other antenna and integrated. With
/// --phase-centre a source there has phase 0 at all times; with --drift only the antennas' cable delays are removed.
/// OUT.json records the output and its provenance, and plots summarize it. CASA reads the visibilities through
/// pyuvdata.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Arguments {
    /// Voltage recordings (GUPPI raw, PSRDADA, VDIF, Mark 5B), each of one or several antennas.
    ///
    /// A FILE may be written NAME=FILE (A,B,C=FILE for several antennas). Without names, it belongs to the antenna in
    /// its header if that is in the positions; otherwise recordings are assigned in the order of the positions. Files
    /// with one NAME are parts of one recording.
    #[arg(required = true, value_name = "FILE")]
    pub(super) inputs: Vec<PathBuf>,
    /// Use only these seconds; either end may be omitted: 10:20, 10:, :20.
    ///
    /// They count from the first sample that all recordings have.
    #[arg(long, value_name = "A:B", value_parser = parse_time_range, allow_hyphen_values = true)]
    pub(super) time_range: Option<TimeRange>,
    /// Spectra to make at once; 0 chooses.
    ///
    /// Results do not depend on it, except for the last bits if --precision lets a GPU round.
    #[arg(long, value_name = "SPECTRA", default_value_t = 0)]
    pub(super) gulp: usize,
    /// Fill gaps of any length.
    ///
    /// By default a gap longer than both one minute and ten times the data before it is an error, because one damaged
    /// timestamp makes such a gap.
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

/// Values of `--precision`.
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

/// Array options.
#[derive(Args, Clone, Debug)]
pub(super) struct Array {
    /// CSV file of the antenna positions.
    ///
    /// Columns name,x,y,z (ITRF, in metres), or name,east,north,up below lines "# longitude_deg=...", "#
    /// latitude_deg=..." and "# height_m=..."; optionally number, diameter (m) and delay_ns (of the cable).
    #[arg(long, value_name = "CSV", help_heading = "Array")]
    pub(super) antennas: PathBuf,
    /// Reference position of east, north and up, if the CSV does not have it.
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
    /// Treatment of antennas in the positions without a recording.
    #[arg(long, value_enum, value_name = "WHAT", default_value = "fail", help_heading = "Array")]
    pub(super) missing: MissingWord,
    /// Correlate recordings of different length up to the end of the shortest.
    ///
    /// By default they are an error.
    #[arg(long, help_heading = "Array")]
    pub(super) shortest: bool,
}

/// Treatment of antennas without a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum MissingWord {
    /// Write them without valid data.
    Flag,
    /// Report an error.
    Fail,
}

/// Pointing options.
#[derive(Args, Clone, Debug)]
pub(super) struct Sky {
    /// Right ascension and declination (J2000) of the phase centre [default: the recordings', if they have one].
    ///
    /// In degrees (83.633,22.0145) or as 05:34:31.9,22:00:52.
    #[arg(
        long,
        value_name = "RA,DEC",
        value_parser = parse_position,
        allow_hyphen_values = true,
        help_heading = "Sky"
    )]
    pub(super) phase_centre: Option<Position>,
    /// Track no source: fringes rotate with the Earth.
    #[arg(long, conflicts_with = "phase_centre", help_heading = "Sky")]
    pub(super) drift: bool,
    /// Name of the source at the phase centre [default: the recordings', else "target"].
    #[arg(long, value_name = "NAME", help_heading = "Sky")]
    pub(super) source_name: Option<String>,
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

/// Channelization options.
#[derive(Args, Clone, Debug)]
pub(super) struct Spectra {
    /// Channels per recorded channel [default: 1024, or 1 for channelized recordings].
    ///
    /// 1 uses the recorded channels unchanged; it is the default if the recordings state that a filter bank made
    /// their channels.
    #[arg(long, value_name = "N", help_heading = "Spectra")]
    pub(super) channels: Option<usize>,
    /// Taps of the filter bank: its window spans TAPS x channels samples [default: 8].
    #[arg(long, value_name = "N", help_heading = "Spectra")]
    pub(super) taps: Option<usize>,
    /// Window function [default: hann].
    ///
    /// hann, hamming, blackman or kaiser:DB (each multiplied by a sinc), rectangular (a plain FFT with one tap), or a
    /// file of taps x channels coefficients, text or .npy (real samples: twice as many).
    #[arg(long, value_name = "WINDOW", help_heading = "Spectra")]
    pub(super) window: Option<String>,
    /// Bits of the values that are multiplied: 8 or 4 (integers), or 32 (floats).
    #[arg(long, value_name = "BITS", default_value_t = 8, help_heading = "Spectra")]
    pub(super) nbits: usize,
    /// Rounding of 32-bit spectra on a GPU before multiplication.
    ///
    /// f32: none; split: to two parts of 11 significant bits each, within the error of single-precision sums; tf32:
    /// to 11 significant bits; f16: to 16-bit floats, of magnitudes up to 65504. Each is faster than the previous
    /// one. The CPU rounds nothing.
    #[arg(long, value_enum, value_name = "WHAT", default_value = "f32", help_heading = "Spectra")]
    pub(super) precision: PrecisionWord,
    /// Gain applied to spectra before rounding.
    ///
    /// auto: a gain for each antenna and channel, chosen from its power; or one number for all; both are divided out
    /// again afterwards. Or a file of complex gains, which stay in the visibilities: text whose first line names its
    /// columns, re and any of im, antenna, polarization (X, Y, R, L or 0, 1) and channel (from 0, by rising
    /// frequency).
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

/// Output options.
#[derive(Args, Clone, Debug)]
pub(super) struct Writing {
    /// File to write.
    #[arg(short, long, value_name = "OUT", help_heading = "Output")]
    pub(super) output: PathBuf,
    /// Replace OUT and its side files if they exist.
    #[arg(long, help_heading = "Output")]
    pub(super) overwrite: bool,
    /// Integration time of a visibility in seconds, rounded to whole spectra.
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 1.0,
        allow_negative_numbers = true,
        help_heading = "Output"
    )]
    pub(super) integration: f64,
    /// Number of adjacent channels to average into one.
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Output")]
    pub(super) average_channels: usize,
    /// Baselines to write: all, auto (autocorrelations only), or pairs of antennas A-B,C-D.
    ///
    /// A-A is an autocorrelation.
    #[arg(long, value_name = "WHICH", default_value = "all", help_heading = "Output")]
    pub(super) baselines: String,
    /// Folder for plots [default: OUT's name with _plots].
    #[arg(long, value_name = "DIR", help_heading = "Output")]
    pub(super) plots: Option<PathBuf>,
    /// Draw no plots.
    #[arg(long, conflicts_with = "plots", help_heading = "Output")]
    pub(super) no_plots: bool,
}

const EXAMPLES: &str = "Examples:\n  \
    sidereal correlate ant*.dada -o array.uvh5 --antennas positions.csv --phase-centre 83.633,22.0145\n  \
    sidereal correlate ea01=a.raw ea02=b.raw -o pair.uvh5 --antennas positions.csv --drift --nbits 4\n  \
    sidereal correlate stations.dada -o array.uvh5 --antennas positions.csv --integration 0.1 \
    --baselines s1-s2,s1-s3";

impl Writing {
    /// Returns the folder for plots, unless --no-plots is set.
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
    /// Returns the channels per recorded channel, the taps, and whether to divide recorded channels: `None` leaves
    /// that to the recordings.
    ///
    /// # Errors
    /// [`Error::Parameter`] for values that are invalid for a filter bank.
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
