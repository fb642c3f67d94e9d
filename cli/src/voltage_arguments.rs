//! Options that describe voltages and their filter bank.

use std::path::{Path, PathBuf};

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use sidereal::channelize::Feed;
use sidereal::channelize::{MAX_CHANNELS, MAX_TAPS};
use sidereal::io::voltages::{self, VoltageHeader, VoltageOptions, VoltageSource};
use sidereal::io::{is_address, is_stream, read_window};
use sidereal::math::Window;
use sidereal::pipeline::voltage::{ChannelizeOptions, VoltageFormat};
use sidereal::units::HZ_PER_MHZ;
use sidereal::{Error, Result};

use crate::numbers::within;
use crate::plots::{duration, frequency};

/// Heading of these options in the help.
const HEADING: &str = "Voltages";
/// Upper bound of any frequency in MHz and any rate in Hz.
const HIGHEST: f64 = 1e12;
/// Lower bound of both.
const LOWEST: f64 = 1e-6;
/// Default number of taps.
const TAPS: usize = 8;
/// Largest number of coefficients of a window that can be all zeros.
const MIN_SPAN: usize = 2;

/// Options of the channelization.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct VoltageArguments {
    /// Channels per recorded channel, 2 to 1048576; required for voltages.
    #[arg(long, value_name = "N", help_heading = HEADING)]
    pub(crate) channels: Option<usize>,
    /// Taps of the filter bank: its window spans TAPS x channels samples [default: 8].
    #[arg(long, value_name = "N", help_heading = HEADING)]
    taps: Option<usize>,
    /// Window function [default: hann].
    ///
    /// hann, hamming, blackman or kaiser:DB (each multiplied by a sinc), rectangular (a plain FFT with one tap), or a
    /// file of taps x channels coefficients, text or .npy (real samples: twice as many).
    #[arg(long, value_name = "WINDOW", help_heading = HEADING)]
    window: Option<String>,
    /// Oversampling factor P/Q: spectra come P/Q times as often as without [default: 1/1].
    #[arg(long, value_name = "P/Q", value_parser = parse_ratio, help_heading = HEADING)]
    oversample: Option<(usize, usize)>,
    /// Polarization basis of the feeds [default: as in the recording, else linear].
    #[arg(long, value_enum, value_name = "FEED", help_heading = HEADING)]
    feed: Option<FeedName>,
    /// Number of spectra to sum into one [default: 1].
    #[arg(long, value_name = "SPECTRA", help_heading = HEADING)]
    integrate: Option<usize>,
    /// Number of adjacent channels to sum into one [default: 1].
    #[arg(long, value_name = "N", help_heading = HEADING)]
    average_channels: Option<usize>,
    /// Replace the channel at zero voltage frequency by the mean of its neighbours.
    ///
    /// Receivers leave a spike there: at a recorded channel's centre, or for real samples at the edge of its band.
    #[arg(long, help_heading = HEADING)]
    dc: bool,
    /// Remove the dispersion of this DM coherently within each recorded channel, before detection.
    ///
    /// Delays between channels stay.
    #[arg(long, value_name = "DM", allow_negative_numbers = true, help_heading = HEADING)]
    coherent_dm: Option<f64>,
    /// Use only one antenna, counted from 0; by default the powers of all are summed.
    #[arg(long, value_name = "N", help_heading = HEADING)]
    antenna: Option<usize>,
    #[command(flatten)]
    pub(crate) lacking: Lacking,
}

/// Options for header fields that a recording or a stream may lack.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Unstated {
    /// Sky frequency of the recorded band's centre, in MHz, if the recording lacks it or is wrong.
    #[arg(long, value_name = "MHZ", allow_negative_numbers = true, help_heading = HEADING)]
    freq: Option<f64>,
    /// Sampling rate of each recorded channel, in Hz, if the recording lacks it or is wrong.
    #[arg(long, value_name = "HZ", allow_negative_numbers = true, help_heading = HEADING)]
    sample_rate: Option<f64>,
    /// Sideband, if the recording lacks it or is wrong [default there: upper].
    ///
    /// Sky frequency rises (upper) or falls (lower) within a recorded channel; with lower, the channels of VDIF and
    /// Mark 5B are also in falling order.
    #[arg(long, value_enum, value_name = "SIDE", help_heading = HEADING)]
    sideband: Option<Sideband>,
    /// Number of polarizations, 1 or 2, of a VDIF or Mark 5B recording, which does not contain it.
    ///
    /// If one VDIF thread is missing, all channels count as missing.
    #[arg(long, value_name = "N", help_heading = HEADING)]
    pols: Option<usize>,
}

/// Options for header fields that a recording may lack.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Lacking {
    #[command(flatten)]
    unstated: Unstated,
    /// Number of recorded channels of a Mark 5B file, which does not contain it.
    #[arg(long, value_name = "N", help_heading = HEADING)]
    mark5b_channels: Option<usize>,
    /// Bits per sample of a Mark 5B file, 1 or 2 [default: 2].
    #[arg(long, value_name = "BITS", help_heading = HEADING)]
    mark5b_bits: Option<usize>,
    /// MJD within 500 days of a Mark 5B recording, which stores only three digits [default: 57000].
    #[arg(long, value_name = "MJD", allow_negative_numbers = true, help_heading = HEADING)]
    mark5b_near_mjd: Option<i64>,
}

/// Returns the parser of the names of formats.
pub(crate) fn format_names() -> impl TypedValueParser<Value = VoltageFormat> {
    let names = PossibleValuesParser::new(VoltageFormat::ALL.map(VoltageFormat::name));
    names.try_map(|name| {
        let found = VoltageFormat::ALL.into_iter().find(|format| format.name() == name);
        found.ok_or("no such format")
    })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum FeedName {
    /// X and Y.
    Linear,
    /// R and L.
    Circular,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Sideband {
    Upper,
    Lower,
}

impl Unstated {
    /// Returns the options.
    ///
    /// # Errors
    /// [`Error::Parameter`] naming one that is out of range.
    pub(crate) fn options(&self) -> Result<VoltageOptions> {
        Ok(VoltageOptions {
            sample_rate_hz: positive("--sample-rate", self.sample_rate)?,
            centre_hz: positive("--freq", self.freq)?.map(|mhz| mhz * HZ_PER_MHZ),
            lower_sideband: self.sideband.map(|side| side == Sideband::Lower),
            polarizations: self.pols,
            ..VoltageOptions::default()
        })
    }

    /// Returns the first option given.
    pub(crate) fn given(&self) -> Option<&'static str> {
        first_of(&[
            (self.freq.is_some(), "--freq"),
            (self.sample_rate.is_some(), "--sample-rate"),
            (self.sideband.is_some(), "--sideband"),
            (self.pols.is_some(), "--pols"),
        ])
    }
}

impl Lacking {
    /// Opens a voltage recording at its first sample.
    ///
    /// # Errors
    /// As [`voltages::open`], options named as on the command line.
    pub(crate) fn open(
        &self,
        inputs: &[PathBuf],
        allow_gaps: bool,
    ) -> Result<Box<dyn VoltageSource>> {
        self.open_as(inputs, allow_gaps, false)
    }

    /// Like [`Lacking::open`], for the header: a recording that ends within its first block has no sample.
    ///
    /// # Errors
    /// As [`Lacking::open`].
    pub(crate) fn open_header(
        &self,
        input: &Path,
        allow_gaps: bool,
    ) -> Result<Box<dyn VoltageSource>> {
        self.open_as(&[input.to_path_buf()], allow_gaps, true)
    }

    fn open_as(
        &self,
        inputs: &[PathBuf],
        allow_gaps: bool,
        header_only: bool,
    ) -> Result<Box<dyn VoltageSource>> {
        if let Some(address) = inputs.iter().find(|path| is_address(path)) {
            let rule = "it is a live stream, which `sidereal live` reads";
            return Err(Error::parameter("INPUT", address.display(), rule));
        }
        if let Some(pipe) = inputs.iter().find(|path| is_stream(path)) {
            let rule = "a pipe can't be sought; give a file: voltages are read from files, whose headers \
                        are looked through beforehand";
            return Err(Error::parameter("INPUT", pipe.display(), rule));
        }
        let options = VoltageOptions { allow_gaps, header_only, ..self.options()? };
        let source = voltages::open(inputs, &options)?;
        self.check_format(source.header())?;
        match self.unstated.freq {
            Some(freq) if source.header().centres_hz.iter().any(|centre| *centre <= 0.0) => {
                let rule = "the recorded band would reach below 0";
                Err(Error::parameter("--freq", freq, rule))
            }
            _ => Ok(source),
        }
    }

    /// Rejects options for formats whose headers contain the value.
    fn check_format(&self, header: &VoltageHeader) -> Result<()> {
        let mark5b = header.format.contains("Mark 5B");
        let (option, formats) = match () {
            () if mark5b => return Ok(()),
            () if self.mark5b_channels.is_some() => ("--mark5b-channels", "Mark 5B"),
            () if self.mark5b_bits.is_some() => ("--mark5b-bits", "Mark 5B"),
            () if self.mark5b_near_mjd.is_some() => ("--mark5b-near-mjd", "Mark 5B"),
            () if self.unstated.pols.is_some() && !header.format.contains("VDIF") => {
                ("--pols", "VDIF and Mark 5B")
            }
            () => return Ok(()),
        };
        let rule = format!("it is for {formats}, and the recording is {}", header.format);
        Err(Error::parameter(option, "given", rule))
    }

    /// Returns the options for header fields that a recording or a stream may lack.
    ///
    /// # Errors
    /// [`Error::Parameter`] for a number out of range.
    pub(crate) fn options(&self) -> Result<VoltageOptions> {
        Ok(VoltageOptions {
            mark5b_channels: self.mark5b_channels,
            mark5b_bits: self.mark5b_bits,
            mark5b_near_mjd: self.mark5b_near_mjd,
            ..self.unstated.options()?
        })
    }

    fn given(&self) -> Option<&'static str> {
        let mark5b = first_of(&[
            (self.mark5b_channels.is_some(), "--mark5b-channels"),
            (self.mark5b_bits.is_some(), "--mark5b-bits"),
            (self.mark5b_near_mjd.is_some(), "--mark5b-near-mjd"),
        ]);
        self.unstated.given().or(mark5b)
    }

    /// Fails if an option that applies only to voltages is given.
    ///
    /// # Errors
    /// [`Error::Parameter`] naming it.
    pub(crate) fn check_none(&self, path: &Path) -> Result<()> {
        not_for_filterbanks(self.given(), path)
    }
}

impl VoltageArguments {
    /// Fails if an option that applies only to voltages is given.
    ///
    /// # Errors
    /// [`Error::Parameter`] naming it.
    pub(crate) fn check_none(&self, path: &Path) -> Result<()> {
        not_for_filterbanks(self.given(), path)
    }

    /// Returns the file that the window is read from.
    pub(crate) fn window_file(&self) -> Option<PathBuf> {
        self.window.as_deref().and_then(file_of_window)
    }

    /// Returns whether one antenna is named.
    pub(crate) fn has_antenna(&self) -> bool {
        self.antenna.is_some()
    }

    /// Returns the options for one antenna.
    pub(crate) fn of_antenna(&self, antenna: usize) -> Self {
        Self { antenna: Some(antenna), ..self.clone() }
    }

    /// Returns the first option given.
    pub(crate) fn given(&self) -> Option<&'static str> {
        let own = first_of(&[
            (self.channels.is_some(), "--channels"),
            (self.taps.is_some(), "--taps"),
            (self.window.is_some(), "--window"),
            (self.oversample.is_some(), "--oversample"),
            (self.coherent_dm.is_some(), "--coherent-dm"),
            (self.antenna.is_some(), "--antenna"),
        ]);
        own.or(self.detection_given()).or(self.lacking.given())
    }

    /// Returns the first detection option given.
    pub(crate) fn detection_given(&self) -> Option<&'static str> {
        first_of(&[
            (self.feed.is_some(), "--feed"),
            (self.integrate.is_some(), "--integrate"),
            (self.average_channels.is_some(), "--average-channels"),
            (self.dc, "--dc"),
        ])
    }

    /// Returns the options of the filter bank.
    ///
    /// # Errors
    /// [`Error::Parameter`] naming the option that is missing or does not fit; as [`read_window`].
    pub(crate) fn options(
        &self,
        header: &VoltageHeader,
        dm_constant: f64,
    ) -> Result<ChannelizeOptions> {
        let channels = self.channels.ok_or_else(|| missing_channels(header))?;
        let rectangular = self.window.as_deref() == Some("rectangular");
        let taps = self.taps.unwrap_or(if rectangular { 1 } else { TAPS });
        within("--channels", channels, 2..=MAX_CHANNELS, "")?;
        within("--taps", taps, 1..=MAX_TAPS, "")?;
        let points = points(header, channels);
        let window = window(self.window.as_deref().unwrap_or("hann"), taps, points)?;
        if taps * points <= MIN_SPAN && window.coefficients(taps, points).is_err() {
            let rule = "its window is all zeros; take more taps, or --window rectangular";
            return Err(Error::parameter("--taps", taps, rule));
        }
        let (p, q) = self.oversample.unwrap_or((1, 1));
        let integrate = self.integrate.unwrap_or(1);
        let hop = points.saturating_mul(q) / p.max(1);
        check_length(header, taps, points, integrate, hop)?;
        let feed = self.feed.map(|feed| match feed {
            FeedName::Linear => Feed::Linear,
            FeedName::Circular => Feed::Circular,
        });
        let usual = ChannelizeOptions::new(channels);
        Ok(ChannelizeOptions {
            taps,
            window,
            oversampling: self.oversample.unwrap_or(usual.oversampling),
            feed,
            integrate: self.integrate.unwrap_or(usual.integrate),
            average_channels: self.average_channels.unwrap_or(usual.average_channels),
            interpolate_dc: self.dc,
            coherent_dm: self.coherent_dm,
            dm_constant,
            antenna: self.antenna,
            ..usual
        })
    }
}

fn first_of(options: &[(bool, &'static str)]) -> Option<&'static str> {
    options.iter().find(|(given, _)| *given).map(|(_, name)| *name)
}

fn not_for_filterbanks(option: Option<&'static str>, path: &Path) -> Result<()> {
    let Some(option) = option else { return Ok(()) };
    let rule = format!("it is for voltages, and {} holds none", path.display());
    Err(Error::parameter(option, "given", rule))
}

fn positive(name: &'static str, value: Option<f64>) -> Result<Option<f64>> {
    match value {
        Some(number) if !(LOWEST..=HIGHEST).contains(&number) => {
            let rule = format!("it must be above 0, at least {LOWEST:e} and at most {HIGHEST:e}");
            Err(Error::parameter(name, format!("{number:e}"), rule))
        }
        value => Ok(value),
    }
}

fn parse_ratio(words: &str) -> std::result::Result<(usize, usize), String> {
    let number = |word: &str| word.trim().parse::<usize>().ok();
    let (p, q) = words.split_once('/').unwrap_or((words, "1"));
    number(p).zip(number(q)).ok_or_else(|| "write it as P/Q, such as 4/3".to_owned())
}

/// Returns the file that a window is read from, if it is not a name.
pub(crate) fn file_of_window(name: &str) -> Option<PathBuf> {
    name.parse::<Window>().is_err().then(|| PathBuf::from(name))
}

/// Returns a window by its name, or from a file.
pub(crate) fn window(name: &str, taps: usize, points: usize) -> Result<Window> {
    if let Ok(window) = name.parse() {
        return Ok(window);
    }
    let path = Path::new(name);
    if !path.exists() {
        let rule = "it must be hann, hamming, blackman, kaiser:DB, rectangular or a file, and there is \
                    no such file";
        return Err(Error::parameter("--window", name, rule));
    }
    read_window(path, taps, points)
}

/// Returns the points of the Fourier transform: twice the channels for real samples.
pub(crate) fn points(header: &VoltageHeader, channels: usize) -> usize {
    if header.encoding.is_complex() { channels } else { 2 * channels }
}

/// Checks that a recording holds at least one window, and all the spectra that are summed into one.
fn check_length(
    header: &VoltageHeader,
    taps: usize,
    points: usize,
    integrate: usize,
    hop: usize,
) -> Result<()> {
    let Some(times) = header.times else { return Ok(()) };
    let window = (taps * points) as u64;
    if window > times {
        let rule = format!(
            "{taps} taps of {points} samples are {window}, and the recording has {times} of each stream"
        );
        return Err(Error::parameter("--taps", taps, rule));
    }
    let spectra = integrate.saturating_mul(hop) as u64;
    if spectra > times {
        let rule = format!(
            "that many spectra take {spectra} samples, and the recording has {times} of each stream"
        );
        return Err(Error::parameter("--integrate", integrate, rule));
    }
    Ok(())
}

/// Spectrum period in seconds that the suggestion aims at.
const USUAL_SPECTRUM_S: f64 = 64e-6;

/// Creates the error, which suggests a suitable number.
fn missing_channels(header: &VoltageHeader) -> Error {
    let channels = suggestion(header);
    let width_hz = header.channel_width_hz();
    let each = match header.coarse_channels() {
        1 => format!("the recorded {}", frequency(width_hz)),
        many => format!("each of the {many} recorded channels of {}", frequency(width_hz)),
    };
    let rule = format!(
        "voltages must be divided into channels: --channels {channels} would divide {each} into \
         channels of {}, with a spectrum every {}",
        frequency(width_hz / channels as f64),
        duration(channels as f64 / width_hz),
    );
    Error::parameter("--channels", "not given", rule)
}

/// Returns the number of channels that gives the usual sampling time, if the recording is long enough.
fn suggestion(header: &VoltageHeader) -> usize {
    let wanted = (USUAL_SPECTRUM_S * header.channel_width_hz()).log2().round().clamp(1.0, 20.0);
    let real = if header.encoding.is_complex() { 1 } else { 2 };
    let longest = header.times.unwrap_or(u64::MAX) / (4 * TAPS as u64 * real);
    (1usize << wanted as u32).min(1 << longest.max(2).ilog2())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_two_numbers() {
        assert_eq!(parse_ratio("4/3"), Ok((4, 3)));
        assert_eq!(parse_ratio("2"), Ok((2, 1)));
        for bad in ["", "a", "4/", "/3", "4/3/2", "-4/3", "1.5"] {
            assert!(parse_ratio(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn windows_by_name_and_by_file() {
        assert_eq!(window("blackman", 8, 4).unwrap(), Window::Blackman);
        assert_eq!(window("kaiser:62.5", 8, 4).unwrap(), Window::Kaiser(62.5));
        for bad in ["han", "kaiser:", "kaiser:x", ""] {
            let told = window(bad, 8, 4).unwrap_err().to_string();
            assert!(told.starts_with("--window"), "{told}");
        }
    }
}
