//! Strain recordings, and their assignment to detectors.

use std::path::{Path, PathBuf};

use clap::Args;
use sidereal::io::strain::{OpenOptions, open_all};
use sidereal::pipeline::cbc::{self, common_span};
use sidereal::units::Gps;
use sidereal::{Error, Result};

use crate::selection::{TimeRange, parse_time_range};

/// Strain input options.
#[derive(Args, Clone, Debug)]
pub(crate) struct Strain {
    /// Strain of each detector: HDF5 of GWOSC's or gwpy's layout, frames (GWF), or a raw .npy.
    ///
    /// A STRAIN may be written NAME=FILE (H1=strain.npy) if the file does not name its detector or has several;
    /// several files of one detector are joined.
    #[arg(required = true, value_name = "STRAIN")]
    pub(super) strain: Vec<PathBuf>,
    /// Use only these seconds; either end may be omitted: 10:20, 10:, :20.
    ///
    /// They count from the first sample that all detectors have.
    #[arg(long, value_name = "A:B", value_parser = parse_time_range, allow_hyphen_values = true, help_heading = "Strain")]
    pub(super) time_range: Option<TimeRange>,
    /// Channels to read from frames (GWF) and gwpy's HDF5, separated by commas.
    ///
    /// Needed if a file has more than one candidate: H1:GDS-CALIB_STRAIN,L1:GDS-CALIB_STRAIN. One file may contain
    /// several detectors.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', help_heading = "Strain")]
    pub(super) channel: Vec<String>,
    /// Use only seconds with these data-quality bits [default: DATA and CBC_CAT1, if the file has them].
    ///
    /// Separated by commas; none uses all seconds.
    #[arg(long, value_name = "BITS", help_heading = "Strain")]
    pub(super) quality: Option<String>,
    /// Use only seconds with these injection bits: NO_CBC_HW_INJ.
    #[arg(long, value_name = "BITS", help_heading = "Strain")]
    pub(super) injections: Option<String>,
    /// GPS time of the first sample, for .npy files.
    #[arg(long, value_name = "GPS", help_heading = "Strain")]
    pub(super) start: Option<f64>,
    /// Sampling rate in Hz, for .npy files.
    ///
    /// The rate in other files must agree.
    #[arg(long, value_name = "HZ", help_heading = "Strain")]
    pub(super) rate: Option<u32>,
}

/// Files of one detector.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Given {
    name: Option<String>,
    channel: Option<String>,
    files: Vec<PathBuf>,
}

impl Strain {
    /// Returns every input file.
    pub(super) fn files(&self) -> Vec<PathBuf> {
        self.strain.iter().map(|word| split(word).1).collect()
    }

    /// Opens all strain and limits it to the time range.
    ///
    /// # Errors
    /// Those of reading; [`Error::Parameter`] for strain of an unnamed detector, of different rates, without common
    /// time, or a time range without strain.
    pub(super) fn open(&self) -> Result<Vec<cbc::Strain>> {
        let mut recordings = Vec::new();
        for one in self.given()? {
            let options = self.options(&one)?;
            recordings.push(cbc::Strain::new(move || open_all(&one.files, &options))?);
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
fn split(word: &Path) -> (Option<String>, PathBuf) {
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
