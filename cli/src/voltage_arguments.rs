//! The options that voltages need: how they are divided into channels, and what a recording lacks.

mod suggestion;

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use sidereal::channelize::Feed;
use sidereal::channelize::plan::{MAX_CHANNELS, MAX_TAPS};
use sidereal::io::voltages::{self, VoltageHeader, VoltageOptions, VoltageSource};
use sidereal::io::{is_stream, window_file};
use sidereal::math::window::Window;
use sidereal::pipeline::voltage::ChannelizeOptions;
use sidereal::units::HZ_PER_MHZ;
use sidereal::{Error, Result};

use suggestion::missing_channels;

/// Where these options stand in the help.
const HEADING: &str = "Voltages";
/// Beyond any frequency in MHz and any rate in Hz.
const HIGHEST: f64 = 1e12;
/// Below any of them.
const LOWEST: f64 = 1e-6;
/// Taps where none are asked for.
const TAPS: usize = 8;
/// Coefficients of which a window may be all zeros.
const MIN_SPAN: usize = 2;

/// How voltages become spectra.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct VoltageArguments {
    /// Channels out of each recorded channel, 2 to 1048576; voltages need it.
    #[arg(long, value_name = "N", help_heading = HEADING)]
    pub(crate) channels: Option<usize>,
    /// Taps of the filter bank: it looks at TAPS x channels samples at once [default: 8].
    #[arg(long, value_name = "N", help_heading = HEADING)]
    taps: Option<usize>,
    /// hann, hamming, blackman or kaiser:DB (each times a sinc), rectangular (a plain FFT of one tap),
    /// or a file of taps x channels coefficients, text or .npy (real samples: of twice as many)
    /// [default: hann].
    #[arg(long, value_name = "WINDOW", help_heading = HEADING)]
    window: Option<String>,
    /// Oversample by P/Q: spectra come P/Q times as often as channels are wide [default: 1/1].
    #[arg(long, value_name = "P/Q", value_parser = parse_ratio, help_heading = HEADING)]
    oversample: Option<(usize, usize)>,
    /// How the feeds are made [default: as the recording says, else linear].
    #[arg(long, value_enum, value_name = "FEED", help_heading = HEADING)]
    feed: Option<FeedName>,
    /// Sum this many spectra into one [default: 1].
    #[arg(long, value_name = "SPECTRA", help_heading = HEADING)]
    integrate: Option<usize>,
    /// Sum this many neighbouring channels into one [default: 1].
    #[arg(long, value_name = "N", help_heading = HEADING)]
    average_channels: Option<usize>,
    /// Replace the channel where the recorded voltage's frequency is 0 (a recorded channel's centre; of
    /// real samples, the edge of its band), where receivers leave a spike, by the mean of its neighbours.
    #[arg(long, help_heading = HEADING)]
    dc: bool,
    /// Remove the dispersion of this measure within each recorded channel, before detection; delays
    /// between channels stay.
    #[arg(long, value_name = "DM", allow_negative_numbers = true, help_heading = HEADING)]
    coherent_dm: Option<f64>,
    /// Use one antenna only, counted from 0; by default the powers of all are summed.
    #[arg(long, value_name = "N", help_heading = HEADING)]
    antenna: Option<usize>,
    #[command(flatten)]
    pub(crate) lacking: Lacking,
}

/// What a recording may not say of itself.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Lacking {
    /// Sky frequency of the middle of the recorded band, in MHz, where the recording is wrong about it or
    /// does not say.
    #[arg(long, value_name = "MHZ", allow_negative_numbers = true, help_heading = HEADING)]
    freq: Option<f64>,
    /// Samples a second of each recorded channel, in Hz, where the recording is wrong about it or does
    /// not say.
    #[arg(long, value_name = "HZ", allow_negative_numbers = true, help_heading = HEADING)]
    sample_rate: Option<f64>,
    /// Whether sky frequency rises (upper) or falls (lower) within a recorded channel, where the
    /// recording is wrong about it or does not say [default there: upper]; channels of VDIF and Mark 5B
    /// then fall, too.
    #[arg(long, value_enum, value_name = "SIDE", help_heading = HEADING)]
    sideband: Option<Sideband>,
    /// Polarizations, 1 or 2, of a VDIF or Mark 5B recording, which does not say. Where one thread of
    /// VDIF is missing, all channels count as missing.
    #[arg(long, value_name = "N", help_heading = HEADING)]
    pols: Option<usize>,
    /// Recorded channels of a Mark 5B file, which does not say.
    #[arg(long, value_name = "N", help_heading = HEADING)]
    mark5b_channels: Option<usize>,
    /// Bits of a sample of a Mark 5B file, 1 or 2 [default: 2].
    #[arg(long, value_name = "BITS", help_heading = HEADING)]
    mark5b_bits: Option<usize>,
    /// A day within 500 days of a Mark 5B recording, which keeps three digits of it [default: 57000].
    #[arg(long, value_name = "MJD", allow_negative_numbers = true, help_heading = HEADING)]
    mark5b_near_mjd: Option<i64>,
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

impl Lacking {
    /// Opens a recording of voltages at its first sample.
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

    /// As [`Lacking::open`], for the header: a recording that ends within its first block has no sample.
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
        if let Some(pipe) = inputs.iter().find(|path| is_stream(path)) {
            let rule = "a pipe can't be sought; give a file: voltages are read from files, whose headers \
                        are looked through beforehand";
            return Err(Error::parameter("INPUT", pipe.display(), rule));
        }
        let options = VoltageOptions { allow_gaps, header_only, ..self.options()? };
        let source = voltages::open(inputs, &options).map_err(with_option_names)?;
        self.check_format(source.header())?;
        match self.freq {
            Some(freq) if source.header().centres_hz.iter().any(|centre| *centre <= 0.0) => {
                let rule = "the recorded band would reach below 0";
                Err(Error::parameter("--freq", freq, rule))
            }
            _ => Ok(source),
        }
    }

    /// Options that are only for formats that don't say what they give.
    fn check_format(&self, header: &VoltageHeader) -> Result<()> {
        let mark5b = header.format.contains("Mark 5B");
        let (option, formats) = match () {
            () if mark5b => return Ok(()),
            () if self.mark5b_channels.is_some() => ("--mark5b-channels", "Mark 5B"),
            () if self.mark5b_bits.is_some() => ("--mark5b-bits", "Mark 5B"),
            () if self.mark5b_near_mjd.is_some() => ("--mark5b-near-mjd", "Mark 5B"),
            () if self.pols.is_some() && !header.format.contains("VDIF") => {
                ("--pols", "VDIF and Mark 5B")
            }
            () => return Ok(()),
        };
        let rule = format!("it is for {formats}, and the recording is {}", header.format);
        Err(Error::parameter(option, "given", rule))
    }

    fn options(&self) -> Result<VoltageOptions> {
        Ok(VoltageOptions {
            sample_rate_hz: positive("--sample-rate", self.sample_rate)?,
            centre_hz: positive("--freq", self.freq)?.map(|mhz| mhz * HZ_PER_MHZ),
            lower_sideband: self.sideband.map(|side| side == Sideband::Lower),
            polarizations: self.pols,
            mark5b_channels: self.mark5b_channels,
            mark5b_bits: self.mark5b_bits,
            mark5b_near_mjd: self.mark5b_near_mjd,
            allow_gaps: false,
            header_only: false,
        })
    }

    fn given(&self) -> Option<&'static str> {
        first_of(&[
            (self.freq.is_some(), "--freq"),
            (self.sample_rate.is_some(), "--sample-rate"),
            (self.sideband.is_some(), "--sideband"),
            (self.pols.is_some(), "--pols"),
            (self.mark5b_channels.is_some(), "--mark5b-channels"),
            (self.mark5b_bits.is_some(), "--mark5b-bits"),
            (self.mark5b_near_mjd.is_some(), "--mark5b-near-mjd"),
        ])
    }

    /// Fails when an option is given that only voltages have a use for.
    ///
    /// # Errors
    /// [`Error::Parameter`] naming it.
    pub(crate) fn check_none(&self, path: &Path) -> Result<()> {
        not_for_filterbanks(self.given(), path)
    }
}

impl VoltageArguments {
    /// Fails when an option is given that only voltages have a use for.
    ///
    /// # Errors
    /// [`Error::Parameter`] naming it.
    pub(crate) fn check_none(&self, path: &Path) -> Result<()> {
        not_for_filterbanks(self.given(), path)
    }

    /// The file that the window is read from.
    pub(crate) fn window_file(&self) -> Option<PathBuf> {
        self.window.as_deref().and_then(file_of_window)
    }

    /// The first option given.
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

    /// The first option given that is about detection.
    pub(crate) fn detection_given(&self) -> Option<&'static str> {
        first_of(&[
            (self.feed.is_some(), "--feed"),
            (self.integrate.is_some(), "--integrate"),
            (self.average_channels.is_some(), "--average-channels"),
            (self.dc, "--dc"),
        ])
    }

    /// What is asked of a recording's filter bank.
    ///
    /// # Errors
    /// [`Error::Parameter`] naming the option that is missing or does not fit; as
    /// [`window_file::read`].
    pub(crate) fn options(
        &self,
        header: &VoltageHeader,
        dm_constant: f64,
    ) -> Result<ChannelizeOptions> {
        let channels = self.channels.ok_or_else(|| missing_channels(header))?;
        let rectangular = self.window.as_deref() == Some("rectangular");
        let taps = self.taps.unwrap_or(if rectangular { 1 } else { TAPS });
        within("--channels", channels, 2, MAX_CHANNELS)?;
        within("--taps", taps, 1, MAX_TAPS)?;
        let points = points(header, channels);
        let window = window(self.window.as_deref().unwrap_or("hann"), taps, points)?;
        if taps * points <= MIN_SPAN && window.coefficients(taps, points).is_err() {
            let rule = "its window is all zeros; take more taps, or --window rectangular";
            return Err(Error::parameter("--taps", taps, rule));
        }
        let (p, q) = self.oversample.unwrap_or((1, 1));
        let integrate = self.integrate.unwrap_or(1);
        let hop = points.saturating_mul(q) / p.max(1);
        check_length(header, (taps, points), (integrate, hop))?;
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

/// A library's fault, its parameters named as options are here.
fn with_option_names(error: Error) -> Error {
    match error {
        Error::Parameter { name, value, rule } => {
            let option = match name {
                "sample_rate_hz" | "sample rate (Hz)" => "--sample-rate",
                "centre_hz" => "--freq",
                "lower_sideband" => "--sideband",
                "polarizations" => "--pols",
                "mark5b_channels" => "--mark5b-channels",
                "mark5b_bits" => "--mark5b-bits",
                "mark5b_near_mjd" => "--mark5b-near-mjd",
                other => other,
            };
            Error::Parameter { name: option, value, rule }
        }
        other => other,
    }
}

fn parse_ratio(words: &str) -> std::result::Result<(usize, usize), String> {
    let number = |word: &str| word.trim().parse::<usize>().ok();
    let (p, q) = words.split_once('/').unwrap_or((words, "1"));
    number(p).zip(number(q)).ok_or_else(|| "write it as P/Q, such as 4/3".to_owned())
}

/// The file that a window is read from, if it is no name.
pub(crate) fn file_of_window(name: &str) -> Option<PathBuf> {
    name.parse::<Window>().is_err().then(|| PathBuf::from(name))
}

/// A window by its name, or from a file.
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
    window_file::read(path, taps, points)
}

/// Points of the Fourier transform: twice the channels for real samples.
pub(crate) fn points(header: &VoltageHeader, channels: usize) -> usize {
    if header.encoding.is_complex() { channels } else { 2 * channels }
}

fn within(name: &'static str, value: usize, least: usize, most: usize) -> Result<()> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(Error::parameter(name, value, format!("it must be {least} to {most}")))
}

/// A recording must hold one window at least, and all the spectra that are summed into one.
fn check_length(
    header: &VoltageHeader,
    (taps, points): (usize, usize),
    (integrate, hop): (usize, usize),
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
            "so many spectra take {spectra} samples, and the recording has {times} of each stream"
        );
        return Err(Error::parameter("--integrate", integrate, rule));
    }
    Ok(())
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
