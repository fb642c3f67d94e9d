//! Arguments of `correlate`: spectra, baselines and gains.

use std::path::{Path, PathBuf};

use clap::Args;
use num_complex::Complex;
use sidereal::channelize::{MAX_CHANNELS, MAX_TAPS};
use sidereal::correlate::Precision;
use sidereal::geometry::Location;
use sidereal::pipeline::correlator::{Baselines, Gains};
use sidereal::{Error, Result};

use super::inputs::listed;
use crate::numbers::within;
use crate::selection::{TimeRange, parse_time_range};
use crate::sky::{EarthOrientation, Position, parse_location, parse_position};
use crate::voltage_arguments::Lacking;

/// Default number of channels per recorded channel.
pub(super) const CHANNELS: usize = 1024;
/// Default number of taps.
pub(super) const TAPS: usize = 8;

/// Correlate the voltages of an array to visibilities (UVH5).
///
/// Each antenna's voltages are delayed according to its position, channelized by a polyphase filter bank,
/// phase-rotated by the residual delay, quantized, multiplied with those of every other antenna and integrated. With
/// --phase-centre a source there has phase 0 at all times; with --drift only the antennas' cable delays are removed.
/// OUT.json records the output and its provenance, and OUT.html shows plots in a browser. CASA reads the visibilities
/// through pyuvdata.
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
        value_parser = parse_gains,
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
    #[command(flatten)]
    pub(super) visibilities: Visibilities,
    /// Draw the plots as PNG files in this folder, in place of the report OUT.html.
    #[arg(long, value_name = "DIR", help_heading = "Output")]
    pub(super) plots: Option<PathBuf>,
    /// Write neither the report nor other plots.
    #[arg(long, conflicts_with = "plots", help_heading = "Output")]
    pub(super) no_plots: bool,
}

/// Options of the visibilities.
#[derive(Args, Clone, Debug)]
pub(super) struct Visibilities {
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
}

const EXAMPLES: &str = "Examples:\n  \
    sidereal correlate ant*.dada -o array.uvh5 --antennas positions.csv --phase-centre 83.633,22.0145\n  \
    sidereal correlate ea01=a.raw ea02=b.raw -o pair.uvh5 --antennas positions.csv --drift --nbits 4\n  \
    sidereal correlate stations.dada -o array.uvh5 --antennas positions.csv --integration 0.1 \
    --baselines s1-s2,s1-s3";

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
        within("--channels", channels, 1..=MAX_CHANNELS, "")?;
        within("--taps", taps, 1..=MAX_TAPS, "")?;
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

/// Parses `all`, `auto` or `A-B,C-D`; `A-A` is an autocorrelation. Names may contain a `-`.
///
/// # Errors
/// [`Error::Parameter`] for text that is not a pair of known antennas or is ambiguous.
pub(super) fn parse_baselines(words: &str, known: &[String]) -> Result<Baselines> {
    match words {
        "all" => return Ok(Baselines::All),
        "auto" | "autos" => return Ok(Baselines::Autos),
        _ => {}
    }
    let pairs = words.split(',').map(|pair| parse_pair(pair.trim(), known));
    pairs.collect::<Result<_>>().map(Baselines::List)
}

fn parse_pair(words: &str, known: &[String]) -> Result<(String, String)> {
    let is_known = |name: &str| known.iter().any(|other| other == name);
    let dashes = words.match_indices('-').map(|(place, _)| (&words[..place], &words[place + 1..]));
    let mut pairs = dashes.filter(|(first, second)| is_known(first) && is_known(second));
    let refuse = |rule: String| Err(Error::parameter("--baselines", words, rule));
    match (pairs.next(), pairs.next()) {
        (Some((first, second)), None) => Ok((first.to_owned(), second.to_owned())),
        (Some(_), Some(_)) => refuse("it can be read as several pairs of antennas".to_owned()),
        (None, _) => {
            refuse(format!("it must be all, auto or pairs such as A-B,C-D, of {}", listed(known)))
        }
    }
}

/// Columns that a file of gains may have.
const COLUMNS: [&str; 5] = ["antenna", "polarization", "channel", "re", "im"];

/// Value of `--gains`.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum GainWords {
    Auto,
    Number(f32),
    File(PathBuf),
}

/// Parses the option.
pub(super) fn parse_gains(words: &str) -> std::result::Result<GainWords, String> {
    if words == "auto" {
        return Ok(GainWords::Auto);
    }
    match words.parse::<f32>() {
        Ok(number) if number > 0.0 && number.is_finite() => Ok(GainWords::Number(number)),
        Ok(_) => Err("a number must be above 0".to_owned()),
        Err(_) if Path::new(words).exists() => Ok(GainWords::File(words.into())),
        Err(_) => Err("it must be auto, a number or a file, and there is no such file".to_owned()),
    }
}

/// Axes of a table of gains; channels are all outputs of the filter bank, by rising frequency.
#[derive(Clone, Copy, Debug)]
pub(super) struct Axes<'a> {
    pub(super) antennas: &'a [String],
    pub(super) circular: bool,
    pub(super) polarizations: usize,
    pub(super) channels: usize,
}

impl GainWords {
    /// Returns the named file, if any.
    pub(super) fn file(&self) -> Option<&Path> {
        match self {
            Self::File(path) => Some(path),
            _ => None,
        }
    }

    /// Returns the gains; a file's gains by antenna, polarization and channel.
    ///
    /// # Errors
    /// [`Error::Io`] and [`Error::Format`] of the file.
    pub(super) fn gains(&self, axes: Axes<'_>) -> Result<Gains> {
        Ok(match self {
            Self::Auto => Gains::Auto,
            Self::Number(number) => Gains::Fixed(*number),
            Self::File(path) => {
                let text = std::fs::read_to_string(path).map_err(|error| Error::io(path, error))?;
                Gains::Table(table(path, &text, axes)?)
            }
        })
    }
}

/// Position of each column in a line, and the number of columns.
#[derive(Clone, Copy, Debug, Default)]
struct Columns {
    places: [Option<usize>; COLUMNS.len()],
    count: usize,
}

/// Parses a table with axes antenna, polarization, channel. The first line names the columns; a missing column means
/// that a line applies to all its values; every element must be given exactly once.
fn table(path: &Path, text: &str, axes: Axes<'_>) -> Result<Vec<Complex<f32>>> {
    let Axes { antennas, polarizations, channels, .. } = axes;
    let mut table = vec![None; antennas.len() * polarizations * channels];
    let mut lines = lines(path, text);
    let Some(first) = lines.next() else {
        return Err(Error::format(path, "file", 0, "found no line, expected columns and gains"));
    };
    let columns = columns(&first)?;
    for line in lines {
        let fields = fields(line.words);
        if fields.len() != columns.count {
            let why = format!("found {} fields, expected {}", fields.len(), columns.count);
            return Err(line.fault("columns", why));
        }
        let at = |column: usize| columns.places[column].map(|place| fields[place]);
        let antenna = at(0).map(|name| antenna(&line, name, antennas)).transpose()?;
        let polarization = at(1).map(|name| polarization(&line, name, axes)).transpose()?;
        let channel = at(2).map(|word| channel(&line, word, channels)).transpose()?;
        let value = |column: usize| at(column).map(|word| real(&line, column, word));
        let gain = Complex::new(
            value(3).transpose()?.unwrap_or(0.0),
            value(4).transpose()?.unwrap_or(0.0),
        );
        for antenna in span(antenna, antennas.len()) {
            for polarization in span(polarization, polarizations) {
                for channel in span(channel, channels) {
                    let place = (antenna * polarizations + polarization) * channels + channel;
                    if table[place].replace(gain).is_some() {
                        let why = format!("found {} twice", name_of(axes, place));
                        return Err(line.fault("gain", why));
                    }
                }
            }
        }
    }
    if let Some(place) = table.iter().position(Option::is_none) {
        let why = format!("found none for {}", name_of(axes, place));
        return Err(Error::format(path, "gain", text.len() as u64, why));
    }
    Ok(table.into_iter().flatten().collect())
}

fn span(one: Option<usize>, all: usize) -> std::ops::Range<usize> {
    one.map_or(0..all, |one| one..one + 1)
}

/// Line of a file.
#[derive(Clone, Copy, Debug)]
struct Line<'a> {
    path: &'a Path,
    number: usize,
    offset: usize,
    words: &'a str,
}

impl Line<'_> {
    fn fault(&self, field: &str, why: impl Into<String>) -> Error {
        let field = format!("line {}, {field}", self.number);
        Error::format(self.path, field, self.offset as u64, why)
    }
}

/// Returns the lines that are neither empty nor comments.
fn lines<'a>(path: &'a Path, text: &'a str) -> impl Iterator<Item = Line<'a>> {
    let mut offset = 0;
    let lines = text.split_inclusive('\n').enumerate().map(move |(index, line)| {
        let start = offset;
        offset += line.len();
        Line { path, number: index + 1, offset: start, words: line.trim() }
    });
    lines.filter(|line| !line.words.is_empty() && !line.words.starts_with('#'))
}

/// Splits a line at commas, or at whitespace if it has no comma.
fn fields(line: &str) -> Vec<&str> {
    if line.contains(',') {
        line.split(',').map(str::trim).collect()
    } else {
        line.split_whitespace().collect()
    }
}

fn columns(line: &Line<'_>) -> Result<Columns> {
    let fields = fields(line.words);
    let mut columns = Columns { count: fields.len(), ..Columns::default() };
    for (place, field) in fields.iter().enumerate() {
        let Some(column) = COLUMNS.iter().position(|name| name == field) else {
            let why = format!("found \"{field}\", expected some of {}", COLUMNS.join(", "));
            return Err(line.fault("columns", why));
        };
        if columns.places[column].replace(place).is_some() {
            return Err(line.fault("columns", format!("found {field} twice")));
        }
    }
    if columns.places[3].is_none() {
        return Err(line.fault("columns", "found no re, the gain's real part"));
    }
    Ok(columns)
}

fn antenna(line: &Line<'_>, name: &str, antennas: &[String]) -> Result<usize> {
    let place = antennas.iter().position(|known| known == name);
    let why = || format!("found \"{name}\", expected one of {}", super::inputs::listed(antennas));
    place.ok_or_else(|| line.fault("antenna", why()))
}

fn polarization(line: &Line<'_>, name: &str, axes: Axes<'_>) -> Result<usize> {
    let names = feeds(axes.circular);
    let names = &names[..axes.polarizations];
    let place = names.iter().position(|known| known.eq_ignore_ascii_case(name));
    let number = name.parse::<usize>().ok().filter(|number| *number < axes.polarizations);
    let why = || format!("found \"{name}\", expected {}", names.join(" or "));
    place.or(number).ok_or_else(|| line.fault("polarization", why()))
}

fn channel(line: &Line<'_>, word: &str, channels: usize) -> Result<usize> {
    let number = word.parse::<usize>().ok().filter(|number| *number < channels);
    let why = || format!("found \"{word}\", expected 0 to {}", channels.saturating_sub(1));
    number.ok_or_else(|| line.fault("channel", why()))
}

fn real(line: &Line<'_>, column: usize, word: &str) -> Result<f32> {
    let number = word.parse::<f32>().ok().filter(|number| number.is_finite());
    let why = || format!("found \"{word}\", expected a number");
    number.ok_or_else(|| line.fault(COLUMNS[column], why()))
}

/// Names an element: `antenna a, polarization X, channel 3`.
fn name_of(axes: Axes<'_>, place: usize) -> String {
    let Axes { antennas, polarizations, channels, circular } = axes;
    let (row, channel) = (place / channels, place % channels);
    let feed = feeds(circular)[row % polarizations];
    format!("antenna {}, polarization {feed}, channel {channel}", antennas[row / polarizations])
}

/// Returns the letters of the feeds.
fn feeds(circular: bool) -> [&'static str; 2] {
    if circular { ["R", "L"] } else { ["X", "Y"] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_two_antennas() {
        let known: Vec<String> = ["a", "b", "s-1", "1", "s", "a-s"].map(str::to_owned).into();
        let list = |pairs: &[(&str, &str)]| {
            let owned = |(a, b): &(&str, &str)| ((*a).to_owned(), (*b).to_owned());
            Baselines::List(pairs.iter().map(owned).collect())
        };
        assert_eq!(parse_baselines("all", &known).unwrap(), Baselines::All);
        assert_eq!(parse_baselines("auto", &known).unwrap(), Baselines::Autos);
        assert_eq!(parse_baselines("a-b, b-b", &known).unwrap(), list(&[("a", "b"), ("b", "b")]));
        assert_eq!(parse_baselines("s-1-b", &known).unwrap(), list(&[("s-1", "b")]));
        for (words, told) in [
            ("a-s-1", "several"),
            ("a-c", "6 antennas (a, b,"),
            ("a", "such as A-B"),
            ("", "must be"),
        ] {
            let error = parse_baselines(words, &known).unwrap_err().to_string();
            assert!(error.contains(told), "{error}");
        }
    }

    fn read(text: &str) -> std::result::Result<Vec<Complex<f32>>, String> {
        let antennas = ["a".to_owned(), "b".to_owned()];
        let axes = Axes { antennas: &antennas, circular: false, polarizations: 2, channels: 2 };
        table(Path::new("g.csv"), text, axes).map_err(|error| error.to_string())
    }

    fn complex(re: f32, im: f32) -> Complex<f32> {
        Complex::new(re, im)
    }

    #[test]
    fn columns_that_are_not_there_stand_for_all() {
        assert_eq!(read("re\n2.5\n").unwrap(), [complex(2.5, 0.0); 8]);
        let each = read("# by channel\nchannel re im\n0 1 2\n\n1 3 4\n").unwrap();
        assert_eq!(each[..2], [complex(1.0, 2.0), complex(3.0, 4.0)]);
        assert_eq!(each[..2], each[6..]);
        let feeds = read("antenna,polarization,re\na,X,1\nb,x,2\nb,1,3\na,Y,4\n").unwrap();
        let expected = [1.0, 1.0, 4.0, 4.0, 2.0, 2.0, 3.0, 3.0].map(|re| complex(re, 0.0));
        assert_eq!(feeds, expected);
    }

    #[test]
    fn faults_name_the_line() {
        for (text, told) in [
            ("", "found no line"),
            ("gain\n1\n", "\"gain\""),
            ("im\n1\n", "no re"),
            ("re re\n1 1\n", "re twice"),
            ("re im\n1\n", "found 1 fields, expected 2"),
            ("re\none\n", "line 2"),
            ("re\nnan\n", "nan"),
            ("antenna,re\na,1\n", "found none for antenna b, polarization X, channel 0"),
            ("antenna,re\na,1\na,2\n", "antenna a, polarization X, channel 0 twice"),
            ("antenna,re\nc,1\n", "\"c\""),
            ("channel,re\n2,1\n", "expected 0 to 1"),
            ("polarization,re\nR,1\n", "expected X or Y"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(told) && error.contains("g.csv"), "{error}");
        }
    }

    #[test]
    fn the_option_is_a_word_a_number_or_a_file() {
        assert_eq!(parse_gains("auto"), Ok(GainWords::Auto));
        assert_eq!(parse_gains("2.5"), Ok(GainWords::Number(2.5)));
        assert!(
            parse_gains("0").is_err() && parse_gains("-1").is_err() && parse_gains("nan").is_err()
        );
        assert!(parse_gains("no-such-file").is_err());
    }
}
