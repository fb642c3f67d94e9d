//! Options of `live spiir`.

use std::fmt::Debug;
#[cfg(feature = "page")]
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::{ArgGroup, Args};
use sidereal::backend::Backend;
use sidereal::backend::threads::Threads;
use sidereal::geometry::{INTERFEROMETERS, Interferometer};
use sidereal::io::templates;
use sidereal::live::frames::{Channels, FrameFolder, Patience};
use sidereal::pipeline::cbc::{Awaited, Input, OnlineDetector, OnlineSearch, Spectrum, Whitening};
use sidereal::{Error, Result};

use crate::common::Common;
use crate::numbers::within;
use crate::resume::Identity;
use crate::say::note;
use crate::spiir::announce;
use crate::spiir::inputs::{Banks, Whiten, split};
use crate::spiir::search::{DESIGN, Detection};
use crate::spiir::templates::{self as options, Design, Placement};

/// Help of --psd.
const PSD: &str = "Initial noise spectrum, also that of the templates: aligo or a file. A file has two columns, Hz and strain^2/Hz \
     (strain/sqrt(Hz) if its name contains asd), or is .npy";

/// Search strain for compact binaries as it arrives: frame files (GWF) in a folder for each detector.
#[derive(Args, Clone, Debug)]
#[command(group = ArgGroup::new("waves").args(["templates", "bank", "masses"]).required(true))]
#[command(
    mut_arg("causal", |causal| causal.default_value("true").hide(true)),
    mut_arg("psd", |psd| psd.default_value("aligo").help(PSD).long_help(PSD)),
    mut_arg("psd_average", |average| average.hide(true)),
    mut_arg("whitening", |whitening| whitening.default_value("minimum-phase")),
    mut_arg("resampling", |resampling| resampling.default_value("low-latency")),
    mut_arg("gate_pad", |pad| pad.default_value("0.05"))
)]
pub(crate) struct LiveArguments {
    /// Folder in which a detector's frames appear, NAME=FOLDER; once for each detector.
    ///
    /// Files are named OBSERVATORY-TAG-GPS-DURATION.gwf, with whole or decimal seconds, and should be renamed into place. The
    /// search begins with the oldest frame that lies within an hour of the next ones.
    #[arg(long, value_name = "NAME=FOLDER", required = true, help_heading = "Strain")]
    pub(super) frames: Vec<PathBuf>,
    /// Remove each frame file after it was read, or when it is refused, late or repeated.
    ///
    /// If such a run is killed, --resume finds no strain between its last checkpoint and the kill: that time is a gap.
    #[arg(long, help_heading = "Strain")]
    pub(super) remove_frames: bool,
    /// Channels of the strain, separated by commas [default: the only floating-point channel of a detector, or the only one that
    /// ends in STRAIN].
    #[arg(long, value_name = "NAMES", value_delimiter = ',', help_heading = "Strain")]
    pub(super) channel: Vec<String>,
    /// Channels of the state vectors, separated by commas [default: H1:GDS-CALIB_STATE_VECTOR of H1:GDS-CALIB_STRAIN and
    /// likewise, or GWOSC's ..._DQMASK].
    ///
    /// Frames without a state vector are gaps unless --quality is none.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', help_heading = "Strain")]
    pub(super) state: Vec<String>,
    /// Use only strain with these bits of the state vector, by name or number [default: HOFT_OK,OBSERVATION_INTENT, or
    /// DATA,CBC_CAT1 of a DQMASK].
    ///
    /// Separated by commas; none uses all strain, with or without a state vector.
    #[arg(long, value_name = "BITS", help_heading = "Strain")]
    pub(super) quality: Option<String>,
    /// Sampling rate of the strain, in Hz [default: that of --bank].
    ///
    /// Filters are made before the first frame; frames of another rate are gaps.
    #[arg(long, value_name = "HZ", required_unless_present = "bank", help_heading = "Strain")]
    pub(super) rate: Option<u32>,
    /// Announce events without a detector whose strain is this many seconds later than another detector's.
    ///
    /// A frame that is missing before a later frame of its detector, or that cannot be read, becomes a gap after the same time.
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 1.0,
        allow_negative_numbers = true,
        help_heading = "Strain"
    )]
    pub(super) wait: f64,
    /// Count strain of a stopped detector as a gap this many seconds after another detector's strain of that time arrived.
    ///
    /// Only then do events of that time become final. Files of that time that arrive later are not used.
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 60.0,
        allow_negative_numbers = true,
        help_heading = "Strain"
    )]
    pub(super) give_up: f64,
    /// End when all strain before this GPS time has been searched [default: goes on until it is interrupted].
    #[arg(long, value_name = "GPS", allow_negative_numbers = true, help_heading = "Strain")]
    pub(super) until: Option<f64>,
    /// Template file; a bank is made from it for the spectrum of --psd.
    #[arg(long, value_name = "FILE", help_heading = "Templates")]
    pub(super) templates: Option<PathBuf>,
    /// Existing bank: FILE for all detectors, or NAME=FILE for one.
    ///
    /// Its design options cannot be changed. It needs --whitening overlap, with which triggers are known seconds later.
    #[arg(long, value_name = "BANK", conflicts_with_all = DESIGN, help_heading = "Templates")]
    pub(super) bank: Vec<PathBuf>,
    #[command(flatten)]
    pub(super) placement: Placement,
    #[command(flatten)]
    pub(super) design: Design,
    #[command(flatten)]
    pub(super) whitening: Whiten,
    #[command(flatten)]
    pub(super) detection: Detection,
    /// File of the background, by which events have false-alarm rates [default: background in the folder of -o].
    ///
    /// The search reads it at the start if it exists; a run that continues takes the background from its checkpoint. It is replaced
    /// once a minute of strain and at the end. Old strain counts less, with a time constant of seven days. The file belongs to the
    /// detectors, templates and threshold of the search.
    #[arg(long, value_name = "FILE", help_heading = "Detection")]
    pub(super) background: Option<PathBuf>,
    #[command(flatten)]
    pub(super) alerts: announce::Options,
    /// Folder for events.ndjson, gaps.ndjson and the folders of runs, which is made if it is missing.
    #[arg(short, long, value_name = "DIR", default_value = "live", help_heading = "Output")]
    pub(super) output: PathBuf,
    /// Continue the killed run of the folder, from its last checkpoint and the frames that are still there.
    ///
    /// Options, filters, version and device must be the same. Events that are published already are not published again. Starts
    /// anew if there is nothing to continue.
    #[arg(long, help_heading = "Output")]
    pub(super) resume: bool,
    /// Write a checkpoint this often; 0 writes none.
    ///
    /// A checkpoint holds the search up for the time of a copy in memory, and is written less often than stated if that is more
    /// than a hundredth of the time.
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 10.0,
        allow_negative_numbers = true,
        help_heading = "Output"
    )]
    pub(super) checkpoint: f64,
    /// List at most this many of the loudest events in events.json.
    #[arg(long, value_name = "N", default_value_t = 1000, help_heading = "Output")]
    pub(super) max_events: usize,
}

/// Describes a detector's filters, as far as they identify a bank.
fn filters(one: &OnlineDetector<'_>) -> String {
    let templates = &one.bank.templates;
    let filters: usize = templates.iter().map(|template| template.filters.filters()).sum();
    let fits: f64 = templates.iter().map(|template| template.fit).sum();
    let (name, rate_hz, count) = (one.detector, one.bank.rate_hz, templates.len());
    format!("{name}: {count} templates of {rate_hz} Hz, {filters} filters, matches {fits}")
}

impl LiveArguments {
    /// Returns the folder of the output.
    #[cfg(feature = "page")]
    pub(crate) fn output(&self) -> &Path {
        &self.output
    }

    pub(super) fn patience(&self) -> Result<Patience> {
        within("--wait", self.wait, 0.0..=3600.0, "an hour")?;
        within("--give-up", self.give_up, 0.0..=86_400.0, "a day")?;
        within("--checkpoint", self.checkpoint, 0.0..=86_400.0, "a day")?;
        if let Some(until) = self.until {
            within("--until", until, 0.0..=5e9, "GPS seconds")?;
        }
        let seconds = Duration::from_secs_f64;
        Ok(Patience { wait: seconds(self.wait), give_up: seconds(self.give_up) })
    }

    /// Returns everything that the results depend on, which a run that continues must share.
    pub(super) fn identity(&self, search: &OnlineSearch, backend: &Backend) -> Result<Identity> {
        let mut files: Vec<PathBuf> = self.templates.iter().cloned().collect();
        files.extend(Banks::files(&self.bank));
        files.extend(self.whitening.file());
        let filters: Vec<_> = search.detectors().map(|one| filters(&one)).collect();
        let options: [(&str, &dyn Debug); 11] = [
            ("--frames", &self.frames),
            ("--channel", &self.channel),
            ("--state", &self.state),
            ("--quality", &self.quality),
            ("--templates", &self.templates),
            ("--bank", &self.bank),
            ("placement of templates", &self.placement),
            ("design of filters", &self.design),
            ("whitening", &self.whitening),
            ("detection", &self.detection),
            ("filters", &filters),
        ];
        Identity::new("live spiir", &files, &options, backend)
    }

    /// Returns the folder of each detector, with its channels.
    pub(super) fn folders(&self) -> Result<Vec<FrameFolder>> {
        let bits = self.quality.as_ref().map(|words| {
            let words = words.split(',').map(str::trim);
            words.filter(|word| !word.is_empty() && *word != "none").map(str::to_owned).collect()
        });
        let own = |names: &[String], detector: &str| {
            let is_own =
                |name: &&String| name.split_once(':').is_some_and(|(own, _)| own == detector);
            names.iter().find(is_own).cloned()
        };
        let mut folders: Vec<FrameFolder> = Vec::new();
        for word in &self.frames {
            let (Some(detector), folder) = split(word) else {
                let rule = "write NAME=FOLDER, as in H1=/dev/shm/kafka/H1";
                return Err(Error::parameter("--frames", word.display(), rule));
            };
            if Interferometer::by_name(&detector).is_none() {
                let known: Vec<&str> = INTERFEROMETERS.iter().map(|one| one.name).collect();
                let rule = format!("known detectors are {}", known.join(", "));
                return Err(Error::parameter("--frames", detector, rule));
            }
            let channels = Channels {
                strain: own(&self.channel, &detector),
                state: own(&self.state, &detector),
                bits: bits.clone(),
            };
            let same = folders.iter().find(|other: &&FrameFolder| other.folder == folder);
            if let Some(other) = same.filter(|_| self.remove_frames) {
                let rule = format!(
                    "{} has this folder, and --remove-frames needs one for each",
                    other.detector
                );
                return Err(Error::parameter("--frames", word.display(), rule));
            }
            folders.push(FrameFolder { detector, folder, channels, removes: self.remove_frames });
        }
        for (option, names) in [("--channel", &self.channel), ("--state", &self.state)] {
            let prefix = |name: &str| name.split_once(':').map(|(own, _)| own.to_owned());
            for (place, name) in names.iter().enumerate() {
                let before = names[..place].iter().find(|other| prefix(other) == prefix(name));
                if let (Some(before), Some(own)) = (before, prefix(name)) {
                    let rule = format!("{own} has {before} already, and needs one");
                    return Err(Error::parameter(option, name, rule));
                }
            }
            let is_used = |name: &str| {
                folders
                    .iter()
                    .any(|one| name.split_once(':').is_some_and(|(own, _)| own == one.detector))
            };
            if let Some(unused) = names.iter().find(|name| !is_used(name)) {
                let rule = "it must begin with the name of a detector of --frames and a colon";
                return Err(Error::parameter(option, unused, rule));
            }
        }
        Ok(folders)
    }

    /// Returns the banks in files, and the sampling rate of the strain.
    pub(super) fn banks_and_rate(&self) -> Result<(Option<Banks>, u32)> {
        let banks = match self.bank.is_empty() {
            true => None,
            false => {
                self.whitening.check_bank()?;
                Some(Banks::read(&self.bank)?)
            }
        };
        let of_bank = banks.as_ref().and_then(Banks::rate_hz);
        let rate_hz = self.rate.or(of_bank).unwrap_or(0);
        within("--rate", f64::from(rate_hz), 1.0..=1e6, "Hz")?;
        Ok((banks, rate_hz))
    }

    /// Returns the filters of each detector, or the templates from which they are made.
    pub(super) fn inputs(
        &self,
        detectors: &[FrameFolder],
        banks: Option<&Banks>,
        whitening: &Whitening,
        rate_hz: u32,
        common: &Common,
    ) -> Result<Vec<Awaited>> {
        let awaited = |one: &FrameFolder, input| Awaited { detector: one.detector.clone(), input };
        if let Some(banks) = banks {
            let of = |one: &FrameFolder| Ok(awaited(one, Input::Bank(banks.of(&one.detector)?)));
            return detectors.iter().map(of).collect();
        }
        let shared = self.shared(whitening, rate_hz, common)?;
        Ok(detectors.iter().map(|one| awaited(one, shared.clone())).collect())
    }

    /// Returns the templates for all detectors.
    fn shared(&self, whitening: &Whitening, rate_hz: u32, common: &Common) -> Result<Input> {
        let threads = Threads::new(common.threads()?);
        let templates = self.templates.as_deref().map(templates::open).transpose()?;
        let templates = match (templates, &whitening.spectrum) {
            (Some(templates), _) => templates,
            (None, Spectrum::Causal(psd, _)) => {
                let (placed, report) =
                    self.placement.place(psd, &self.design, rate_hz, &threads)?;
                if !common.quiet {
                    note!("{}", report.text());
                }
                options::placed(&placed)
            }
            (None, _) => {
                let rule = "strain that arrives needs a spectrum that is known beforehand";
                return Err(Error::parameter("--psd", "of the recording", rule));
            }
        };
        let source = self.design.source(templates, rate_hz, &threads, common.quiet)?;
        Ok(Input::Templates(Arc::new(source)))
    }
}
