//! Options of inputs: strain recordings, filter banks, and whitening.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use clap::{Args, ValueEnum};
use sidereal::io::psd::{self, Density};
use sidereal::io::strain::{OpenOptions, open_all};
use sidereal::math::{PowerSpectrum, advanced_ligo};
use sidereal::pipeline::cbc::{self, Spectrum, Whitening, common_span, read_bank};
use sidereal::spiir::bank::Bank;
use sidereal::spiir::whiten::{Average, GateOptions, Method, RunningOptions, WelchOptions};
use sidereal::units::Gps;
use sidereal::{Error, Result};

use crate::common::Common;
use crate::numbers::within;
use crate::say::warning;
use crate::selection::{TimeRange, parse_time_range};

/// Strain input options.
#[derive(Args, Clone, Debug)]
pub(crate) struct Strain {
    /// Strain of each detector: HDF5 of GWOSC's or gwpy's layout, frames (GWF), or a raw .npy.
    ///
    /// A STRAIN may be written NAME=FILE (H1=strain.npy) if the file does not name its detector or has several;
    /// several files of one detector are joined.
    #[arg(required = true, value_name = "STRAIN")]
    strain: Vec<PathBuf>,
    /// Use only these seconds; either end may be omitted: 10:20, 10:, :20.
    ///
    /// They count from the first sample that all detectors have.
    #[arg(long, value_name = "A:B", value_parser = parse_time_range, allow_hyphen_values = true, help_heading = "Strain")]
    time_range: Option<TimeRange>,
    /// Channels to read from frames (GWF) and gwpy's HDF5, separated by commas.
    ///
    /// Needed if a file has more than one candidate: H1:GDS-CALIB_STRAIN,L1:GDS-CALIB_STRAIN. One file may contain
    /// several detectors.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', help_heading = "Strain")]
    channel: Vec<String>,
    /// Use only seconds with these data-quality bits [default: DATA and CBC_CAT1, if the file has them].
    ///
    /// Separated by commas; none uses all seconds.
    #[arg(long, value_name = "BITS", help_heading = "Strain")]
    quality: Option<String>,
    /// Use only seconds with these injection bits: NO_CBC_HW_INJ.
    #[arg(long, value_name = "BITS", help_heading = "Strain")]
    injections: Option<String>,
    /// GPS time of the first sample, for .npy files.
    #[arg(long, value_name = "GPS", help_heading = "Strain")]
    start: Option<f64>,
    /// Sampling rate in Hz, for .npy files.
    ///
    /// The rate in other files must agree.
    #[arg(long, value_name = "HZ", help_heading = "Strain")]
    rate: Option<u32>,
}

/// Files of one detector.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Given {
    name: Option<String>,
    channel: Option<String>,
    files: Vec<PathBuf>,
}

/// Files of one detector, and the options with which they are opened.
pub(crate) struct DetectorFiles {
    pub(crate) files: Vec<PathBuf>,
    pub(crate) options: OpenOptions,
}

impl Strain {
    /// Uses all samples of files, whatever their quality; words are `FILE` or `NAME=FILE`.
    pub(crate) fn whole(strain: Vec<PathBuf>, channel: Vec<String>) -> Self {
        let quality = Some("none".to_owned());
        Self {
            strain,
            time_range: None,
            channel,
            quality,
            injections: None,
            start: None,
            rate: None,
        }
    }

    /// Returns every input file.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        self.strain.iter().map(|word| split(word).1).collect()
    }

    /// Returns the files of each detector, in order of first appearance.
    ///
    /// # Errors
    /// Those of reading; [`Error::Parameter`] for a channel that no file has.
    pub(crate) fn detectors(&self) -> Result<Vec<DetectorFiles>> {
        let of = |one: Given| Ok(DetectorFiles { options: self.options(&one)?, files: one.files });
        self.given()?.into_iter().map(of).collect()
    }

    /// Opens all strain and limits it to the time range.
    ///
    /// # Errors
    /// Those of reading; [`Error::Parameter`] for strain of an unnamed detector, of different rates, without common
    /// time, or a time range without strain.
    pub(super) fn open(&self) -> Result<Vec<cbc::Strain>> {
        let mut recordings = Vec::new();
        for DetectorFiles { files, options } in self.detectors()? {
            recordings.push(cbc::Strain::new(move || open_all(&files, &options))?);
        }
        check_rates(&recordings)?;
        let (from, until) = common_span(&recordings)?;
        if let Some(range) = self.time_range {
            let end = if range.end_s.is_finite() { from.plus_s(range.end_s) } else { until };
            for recording in &mut recordings {
                let length_s = recording.end().seconds_since(from);
                recording.limit(from.plus_s(range.start_s), end);
                if recording.times == 0 {
                    let rule = format!("there are {length_s} s of {}", recording.detector);
                    return Err(Error::parameter("--time-range", range.start_s, rule));
                }
            }
        }
        Ok(recordings)
    }

    fn options(&self, one: &Given) -> Result<OpenOptions> {
        let names = |words: &String| -> Vec<String> {
            let words = words.split(',').map(str::trim);
            words.filter(|word| !word.is_empty() && *word != "none").map(str::to_owned).collect()
        };
        if let Some(start) = self.start.filter(|start| !(0.0..5e9).contains(start)) {
            return Err(Error::parameter("--start", start, "it must be GPS seconds, 0 to 5e9"));
        }
        Ok(OpenOptions {
            detector: one.name.clone(),
            start: self.start.map(Gps::from_s),
            rate_hz: self.rate,
            channel: one.channel.clone(),
            required_quality: self.quality.as_ref().map(names),
            required_injections: self.injections.as_ref().map(names).unwrap_or_default(),
        })
    }

    /// Returns the files of each detector, in order of first appearance.
    fn given(&self) -> Result<Vec<Given>> {
        let mut all: Vec<Given> = Vec::new();
        let mut used = vec![false; self.channel.len()];
        for word in &self.strain {
            let (name, file) = split(word);
            for channel in self.channels_of(&file, name.as_deref(), &mut used)? {
                // Files without NAME are joined by the detector that they name themselves.
                let name = match &name {
                    Some(name) => Some(name.clone()),
                    None => self.detector(&file, channel.as_deref())?,
                };
                match all.iter_mut().find(|one| {
                    one.name.is_some() && (&one.name, &one.channel) == (&name, &channel)
                }) {
                    Some(one) => one.files.push(file.clone()),
                    None => all.push(Given { name, channel, files: vec![file.clone()] }),
                }
            }
        }
        match self.channel.iter().zip(used).find(|(_, used)| !used) {
            Some((unused, _)) => {
                Err(Error::parameter("--channel", unused, "none of the files has that channel"))
            }
            None => Ok(all),
        }
    }

    /// Returns the requested channels of a file; `None` lets the file choose.
    fn channels_of(
        &self,
        file: &Path,
        name: Option<&str>,
        used: &mut [bool],
    ) -> Result<Vec<Option<String>>> {
        if self.channel.is_empty() {
            return Ok(vec![None]);
        }
        let there = sidereal::io::strain::channels(file)?;
        if there.is_empty() {
            return Ok(vec![None]);
        }
        let mut chosen = Vec::new();
        for (channel, used) in self.channel.iter().zip(used) {
            let is_of = channel
                .split_once(':')
                .is_none_or(|(prefix, _)| name.is_none_or(|name| name == prefix));
            if is_of && there.contains(channel) {
                *used = true;
                chosen.push(Some(channel.clone()));
            }
        }
        if chosen.is_empty() {
            let there = there.join(", ");
            let rule = format!("{} has the channels {there}", file.display());
            return Err(Error::parameter("--channel", self.channel.join(","), rule));
        }
        Ok(chosen)
    }

    /// Returns the detector that a file names.
    fn detector(&self, file: &Path, channel: Option<&str>) -> Result<Option<String>> {
        let options = OpenOptions {
            start: self.start.map(Gps::from_s),
            rate_hz: self.rate,
            channel: channel.map(str::to_owned),
            required_quality: Some(Vec::new()),
            ..OpenOptions::default()
        };
        let source = sidereal::io::strain::open(file, &options)?;
        let name = source.header().detector.clone();
        Ok((!name.is_empty()).then_some(name))
    }
}

/// Splits an argument into name and file; if a file with the whole argument's name exists, there is no name.
pub(super) fn split(word: &Path) -> (Option<String>, PathBuf) {
    let pair = word.to_str().and_then(|text| text.split_once('='));
    match pair.filter(|(name, file)| !name.is_empty() && !file.is_empty() && !word.exists()) {
        Some((name, file)) => (Some(name.to_owned()), file.into()),
        None => (None, word.to_path_buf()),
    }
}

fn check_rates(recordings: &[cbc::Strain]) -> Result<()> {
    let Some((first, rest)) = recordings.split_first() else { return Ok(()) };
    match rest.iter().find(|other| other.rate_hz != first.rate_hz) {
        None => Ok(()),
        Some(other) => {
            let rule = format!(
                "{} has {} Hz and {} this, and all detectors must have one rate",
                first.path.display(),
                first.rate_hz,
                other.path.display()
            );
            Err(Error::parameter("rate of the strain (Hz)", other.rate_hz, rule))
        }
    }
}

/// Banks of single detectors, and one for all others.
pub(super) struct Banks {
    own: Vec<(String, Arc<Bank>)>,
    shared: Option<Arc<Bank>>,
}

impl Banks {
    /// Reads `FILE` and `NAME=FILE`, all files at the same time; a file made for a detector belongs to that detector.
    ///
    /// # Errors
    /// Those of reading; [`Error::Parameter`] for two banks of one detector, or two for all.
    pub(super) fn read(words: &[PathBuf]) -> Result<Self> {
        let mut banks = Self { own: Vec::new(), shared: None };
        let named: Vec<_> = words.iter().map(|word| split(word)).collect();
        let read: Vec<_> = thread::scope(|scope| {
            let begin = |(_, file): &(_, PathBuf)| {
                let file = file.clone();
                scope.spawn(move || read_bank(&file))
            };
            let running: Vec<_> = named.iter().map(begin).collect();
            running.into_iter().map(thread::ScopedJoinHandle::join).collect()
        });
        for ((name, file), read) in named.into_iter().zip(read) {
            let read = read.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            let (bank, detector) = read?;
            let bank = Arc::new(bank);
            let alone = words.len() == 1;
            let name = name.or_else(|| (!alone && !detector.is_empty()).then_some(detector));
            let twice = match &name {
                Some(name) => banks.own.iter().any(|(other, _)| other == name),
                None => banks.shared.is_some(),
            };
            if twice {
                let whose = name.as_deref().unwrap_or("all detectors");
                let rule = format!("there is another bank for {whose}; say NAME=BANK");
                return Err(Error::parameter("--bank", file.display(), rule));
            }
            match name {
                Some(name) => banks.own.push((name, bank)),
                None => banks.shared = Some(bank),
            }
        }
        Ok(banks)
    }

    /// Returns the files that [`Banks::read`] reads.
    pub(super) fn files(words: &[PathBuf]) -> impl Iterator<Item = PathBuf> {
        words.iter().map(|word| split(word).1)
    }

    /// Returns the sampling rate of a bank; `None` without banks.
    pub(super) fn rate_hz(&self) -> Option<u32> {
        let own = self.own.iter().map(|(_, bank)| bank);
        own.chain(&self.shared).next().map(|bank| bank.rate_hz)
    }

    /// Returns the bank of a detector.
    ///
    /// # Errors
    /// [`Error::Parameter`] when there is none.
    pub(super) fn of(&self, detector: &str) -> Result<Arc<Bank>> {
        let own = self.own.iter().find(|(name, _)| name == detector);
        own.map(|(_, bank)| Arc::clone(bank)).or_else(|| self.shared.clone()).ok_or_else(|| {
            let rule = format!("none is for {detector}; say --bank {detector}=BANK");
            Error::parameter("--bank", "given", rule)
        })
    }
}

/// Frequency spacing of the design spectra, in Hz.
const SPACING_HZ: f64 = 0.25;

/// Options of whitening.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Whitening")]
pub(crate) struct Whiten {
    /// Whiten with past strain only, as `live spiir` does.
    ///
    /// --psd is the initial spectrum and that of the templates; whitening then tracks the noise with a time constant of 32 segments
    /// (128 s by default). Other defaults change: --psd aligo, --whitening minimum-phase, gates held for 1/64 s; in a search also
    /// --resampling low-latency and --gate-pad 0.05.
    #[arg(long)]
    causal: bool,
    /// Power spectrum: welch, running, aligo or a file.
    ///
    /// welch estimates it from the whole recording without the first and last 2 s; running follows the noise; aligo
    /// is Advanced LIGO's design. A file is text with two columns, Hz and strain^2/Hz (strain/sqrt(Hz) if the name
    /// contains asd), or .npy.
    #[arg(
        long,
        value_name = "PSD",
        default_value = "welch",
        default_value_if("causal", "true", "aligo")
    )]
    psd: String,
    /// Length of the spectrum's segments, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 4.0, allow_negative_numbers = true)]
    psd_segment: f64,
    /// Whitening method: overlap (zero phase, seconds of latency) or minimum-phase (milliseconds).
    #[arg(
        long,
        value_enum,
        value_name = "METHOD",
        default_value = "overlap",
        default_value_if("causal", "true", "minimum-phase")
    )]
    whitening: MethodWord,
    /// Length of the whitening filter, in seconds [default: twice the spectrum's segments for overlap, else once].
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true)]
    whitening_length: Option<f64>,
    /// Average over the spectra of the segments: auto, median or mean.
    ///
    /// auto uses the median of 16 or more segments, which a loud wave hardly moves, otherwise the mean, because the
    /// median of few is biased low where it is the divisor.
    #[arg(long, value_enum, value_name = "HOW", default_value = "auto")]
    psd_average: AverageWord,
    /// Gate whitened strain above this many standard deviations; 0 disables gating.
    ///
    /// A gate is held for 0.25 s on each side, with tapers of 0.25 s; with --causal both are 1/64 s.
    #[arg(long, value_name = "SIGMA", default_value_t = 50.0, allow_negative_numbers = true)]
    gate: f64,
}

/// Hold and taper of the gates of a causal search, in seconds.
const SHORT_S: f64 = 1.0 / 64.0;

/// Averages over segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum AverageWord {
    /// Chosen from the number of segments.
    Auto,
    /// Loud segments have little influence.
    Median,
    /// Every segment counts equally.
    Mean,
}

/// Fraction of a recording in which a running spectrum may start up without a warning.
const LEARNING: f64 = 0.1;

/// Whitening methods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum MethodWord {
    /// Zero phase, by overlapping transforms.
    Overlap,
    /// Minimum phase.
    MinimumPhase,
}

impl Whiten {
    /// Returns whether whitening changes phases: filters must then be designed for it.
    pub(super) fn turns_phases(&self) -> bool {
        self.whitening == MethodWord::MinimumPhase
    }

    /// Returns the file that the spectrum is read from.
    pub(super) fn file(&self) -> Option<PathBuf> {
        (!["welch", "running"].contains(&self.psd.as_str())).then(|| spectrum_file(&self.psd))?
    }

    /// Fails if banks from files would not match the strain.
    ///
    /// # Errors
    /// [`Error::Parameter`] for whitening that changes phases.
    pub(super) fn check_bank(&self) -> Result<()> {
        if self.turns_phases() {
            let rule = "a bank in a file is made for whitening that leaves phases as they are; \
                        use overlap, or --templates, whose filters are made as the strain is whitened";
            return Err(Error::parameter("--whitening", "minimum-phase", rule));
        }
        Ok(())
    }

    /// Warns if a running spectrum starts up in a large part of a recording, in which nothing can be found.
    pub(super) fn warn_of_learning(&self, strain: &[cbc::Strain], common: &Common) {
        if self.psd != "running" {
            return;
        }
        let running = RunningOptions { segment_s: self.psd_segment, ..RunningOptions::default() };
        let learning_s = running.learning_s();
        for one in strain.iter().filter(|one| learning_s > LEARNING * one.duration_s()) {
            let whole_s = one.duration_s();
            warning!(
                quiet: common.quiet,
                "--psd running learns from the first {learning_s} s of the {whole_s} s of {}, in which nothing is found; \
                 --psd welch searches all of a short recording",
                one.detector
            );
        }
    }

    /// Returns the requested whitening for strain of a rate and a length, within a limit on memory.
    ///
    /// # Errors
    /// [`Error::Parameter`] naming the option, or what reading the spectrum finds.
    pub(super) fn whitening(
        &self,
        rate_hz: u32,
        length_s: f64,
        memory: Option<u64>,
    ) -> Result<Whitening> {
        within("--psd-segment", self.psd_segment, 0.25..=1024.0, "seconds")?;
        let average = match self.psd_average {
            AverageWord::Auto => Average::usual(length_s, self.psd_segment),
            AverageWord::Median => Average::Median,
            AverageWord::Mean => Average::Mean,
        };
        let usual_s = match self.whitening {
            MethodWord::Overlap => 2.0 * self.psd_segment,
            MethodWord::MinimumPhase => self.psd_segment,
        };
        let filter_s = self.whitening_length.unwrap_or(usual_s);
        within("--whitening-length", filter_s, 0.25..=2048.0, "seconds")?;
        within("--gate", self.gate, 0.0..=1e6, "standard deviations")?;
        let mut welch =
            WelchOptions { segment_s: self.psd_segment, average, ..WelchOptions::default() };
        if let Some(memory) = memory {
            welch.memory_bytes = welch.memory_bytes.min((memory / 2) as usize);
        }
        let running =
            || RunningOptions { segment_s: self.psd_segment, ..RunningOptions::default() };
        let spectrum = match self.psd.as_str() {
            "welch" | "running" if self.causal => {
                let rule =
                    "--causal begins with a spectrum that is known beforehand: aligo or a file";
                return Err(Error::parameter("--psd", &self.psd, rule));
            }
            other if self.causal => Spectrum::Causal(spectrum(other, rate_hz)?, running()),
            "welch" => Spectrum::Welch(welch),
            "running" => Spectrum::Running(running(), welch),
            other => Spectrum::Given(spectrum(other, rate_hz)?),
        };
        Ok(Whitening {
            spectrum,
            method: match self.whitening {
                MethodWord::Overlap => Method::Overlap { fft_s: filter_s },
                MethodWord::MinimumPhase => Method::MinimumPhase { taps_s: filter_s },
            },
            gate: (self.gate > 0.0).then(|| match self.causal {
                true => GateOptions { threshold: self.gate, hold_s: SHORT_S, taper_s: SHORT_S },
                false => GateOptions { threshold: self.gate, ..GateOptions::default() },
            }),
        })
    }
}

/// Returns the file that [`spectrum`] reads.
pub(super) fn spectrum_file(word: &str) -> Option<PathBuf> {
    (word != "aligo").then(|| PathBuf::from(word))
}

/// Returns the spectrum of a name or a file, up to half the sampling rate.
///
/// # Errors
/// [`Error::Parameter`] for an unknown name that is not a file, or the error of reading.
pub(super) fn spectrum(word: &str, rate_hz: u32) -> Result<PowerSpectrum> {
    let nyquist_hz = f64::from(rate_hz) / 2.0;
    if word == "aligo" {
        return advanced_ligo(SPACING_HZ, (nyquist_hz / SPACING_HZ) as usize + 1);
    }
    let path = PathBuf::from(word);
    if !Path::new(&path).exists() {
        let rule =
            "it is neither the name of a spectrum that this verb takes (see --help) nor a file";
        return Err(Error::parameter("--psd", word, rule));
    }
    let name = word.to_lowercase();
    let amplitude = name.rsplit('/').next().is_some_and(|name| name.contains("asd"));
    psd::read(&path, if amplitude { Density::Amplitude } else { Density::Power })
}
