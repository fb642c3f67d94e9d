//! Options of a search.
//!
//! Invariant: an option out of range is an error before anything is written.

use std::fmt::Debug;
use std::path::{Path, PathBuf};

use clap::Args;
use sidereal::backend::Backend;
use sidereal::io::is_address;
use sidereal::pipeline::beams::Pointing;
use sidereal::pipeline::burst::SearchOptions;
use sidereal::{Error, Result};

use super::beams::BeamArguments;
use crate::batch::{Batch, PerInput};
use crate::dm_arguments::DmArguments;
use crate::output::Destination;
use crate::resume::{Identity, Resume};
use crate::rfi::{MAX_PER_MINUTE, Rfi};
use crate::selection::{Opened, Recording, Selection};
use crate::sky::EarthOrientation;
use crate::streams;

/// Suffix of the folder's default name.
pub(super) const SUFFIX: &str = "search";

/// Search a recording for dispersed bursts and plot each candidate.
///
/// Voltages are channelized first (--channels); times then count from the recording's first sample, corrected for the
/// filter's delay.
///
/// Dedisperses the recording at many trial DMs, finds pulses of any width in each time series, and clusters the
/// events of each burst into one candidate. Writes a folder with candidates.cand (Heimdall's columns), candidates.csv
/// (FETCH's columns), one PNG per candidate, report.html for a browser and summary.json, which names the GPU if one
/// was used.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:\n  \
    sidereal search observation.fil\n  \
    sidereal search part1.fil part2.fil -o found --dm-min 100 --dm-max 800 --snr 7\n  \
    sidereal search beam*.fil --beams -o found\n  \
    sidereal search antenna*.fil --sum -o found\n  \
    sidereal search voltages.raw -o found --channels 64 --integrate 4 --coherent-dm 350\n  \
    sidereal search observation.fil.gz -o found --zero-dm")]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) recording: Recording,
    #[command(flatten)]
    pub(super) destination: Destination,
    #[command(flatten)]
    pub(super) batch: Batch,
    #[command(flatten)]
    pub(super) beams: BeamArguments,
    #[command(flatten)]
    pub(super) resume: Resume,
    #[command(flatten)]
    pub(super) detection: Detection,
    #[command(flatten)]
    pub(crate) trials: DmArguments,
    #[command(flatten)]
    pub(super) selection: Selection,
    /// Keep channels with outlying statistics.
    ///
    /// By default (--rfi auto) they are masked.
    #[arg(long, help_heading = "Channels and times")]
    pub(super) no_auto_mask: bool,
    #[command(flatten)]
    pub(super) orientation: EarthOrientation,
    #[command(flatten)]
    pub(super) products: Products,
}

/// Options of the pulse detection.
#[derive(Args, Clone, Debug)]
pub(super) struct Detection {
    /// Lowest S/N of a candidate.
    #[arg(
        long,
        default_value_t = 6.0,
        value_name = "S/N",
        allow_negative_numbers = true,
        help_heading = "Detection"
    )]
    pub(super) snr: f64,
    /// Widest pulse to search for, in seconds.
    #[arg(
        long,
        default_value_t = 0.1,
        value_name = "SECONDS",
        allow_negative_numbers = true,
        help_heading = "Detection"
    )]
    max_width: f64,
    /// Window for the estimates of baseline and noise, in seconds.
    #[arg(
        long,
        default_value_t = 2.0,
        value_name = "SECONDS",
        allow_negative_numbers = true,
        help_heading = "Detection"
    )]
    baseline: f64,
    /// Longest wait of a trial for rows that only longer delays need, in seconds.
    ///
    /// Ranges of DM whose delays differ by more are dedispersed apart, which costs time and memory; beyond delays of 0.8 s the wait
    /// grows in proportion. A live stream has 0.1 s on a GPU and 0.4 s on the CPU by default, a recording no limit. Candidates
    /// are the same, but for those that the end cuts off.
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true, help_heading = "Detection")]
    pub(super) max_wait: Option<f64>,
    /// Least fraction of the band for bursts cut off by the recording's start or end.
    ///
    /// A burst whose sweep began before the recording's start or passes its end is searched for in at least this
    /// fraction of the band; 1 searches for whole bursts only.
    #[arg(
        long,
        default_value_t = 0.25,
        value_name = "FRACTION",
        allow_negative_numbers = true,
        help_heading = "Detection"
    )]
    min_band: f64,
    /// Most candidates per minute of data.
    ///
    /// The strongest are kept, and the number of dropped ones is reported; 0 keeps all.
    #[arg(long, default_value_t = MAX_PER_MINUTE, value_name = "N", help_heading = "Detection")]
    max_per_minute: usize,
}

/// Output files.
#[derive(Args, Clone, Debug)]
pub(super) struct Products {
    /// Write neither report.html nor pictures of candidates.
    #[arg(long, help_heading = "Output")]
    pub(super) no_plots: bool,
    /// Draw all candidates by time and DM as a PNG file, overview.png, in place of report.html.
    #[arg(long, conflicts_with = "no_plots", help_heading = "Output")]
    pub(super) png: bool,
    /// Draw at most this many of the best candidates; of a live stream, the first of each hour of an observation.
    #[arg(long, default_value_t = 100, value_name = "N", help_heading = "Output")]
    pub(super) max_plots: usize,
    /// Also write each candidate as an .h5 file for the FETCH classifier.
    #[arg(long, help_heading = "Output")]
    pub(super) fetch: bool,
    /// Also write candidates.singlepulse in PRESTO's format.
    #[arg(long, help_heading = "Output")]
    pub(super) singlepulse: bool,
    /// Also write absorbed.csv.
    ///
    /// It lists every event above the threshold that was clustered into a candidate, with the line number of that
    /// candidate in candidates.csv.
    #[arg(long, help_heading = "Output")]
    pub(super) list_absorbed: bool,
}

/// Length in seconds of a gulp of a live stream on a GPU and on the CPU, where short gulps cost more.
const LIVE_GULP_S: [f64; 2] = [0.05, 0.1];

/// Longest wait in seconds for rows of longer delays in a live stream, as above.
const LIVE_WAIT_S: [f64; 2] = [0.1, 0.4];

impl Detection {
    /// Checks the options and names the one that is out of range.
    pub(super) fn check(&self) -> Result<()> {
        // The upper limit of times is the recording's length, checked later.
        let options = [
            ("--snr", self.snr, 0.1, 1e6),
            ("--max-width", self.max_width, 1e-9, f64::MAX),
            ("--baseline", self.baseline, 1e-9, f64::MAX),
            ("--max-wait", self.max_wait.unwrap_or(1.0), 1e-3, f64::MAX),
            ("--min-band", self.min_band, 0.01, 1.0),
        ];
        match options.into_iter().find(|(_, value, least, most)| !(*least..=*most).contains(value))
        {
            Some((name, value, least, most)) => {
                let rule = if most < f64::MAX {
                    format!("it must be {least} to {most}")
                } else {
                    format!("it must be {least:e} or above")
                };
                Err(Error::parameter(name, value, rule))
            }
            None => Ok(()),
        }
    }
}

impl Arguments {
    /// Returns whether several processes can divide the work.
    pub(crate) fn is_divided(&self) -> bool {
        self.beams.pointing().is_some()
    }

    /// Returns the options of the search of a beam: an input, or one of its antennas.
    pub(super) fn of_beam(&self, input: &Path, antenna: Option<usize>) -> Self {
        let Some(antenna) = antenna else { return self.of_one(input) };
        let recording = self.recording.of_one(input).of_antenna(antenna);
        let suffix = format!("antenna{antenna}_{SUFFIX}");
        let destination = self.destination.of_each(&recording, &suffix);
        Self { recording, destination, ..self.clone() }
    }

    /// Returns the settings of a search of several beams, on which all of its files depend.
    pub(super) fn identity_of_beams(
        &self,
        pointing: Pointing,
        options: &SearchOptions,
        backend: &Backend,
    ) -> Result<Identity> {
        let Products { no_plots, png, max_plots, fetch, singlepulse, list_absorbed: _ } =
            &self.products;
        let mut own: Vec<(&str, &dyn Debug)> = vec![
            ("beams", &pointing),
            ("--no-plots", no_plots),
            ("--png", png),
            ("--max-plots", max_plots),
            ("--fetch", fetch),
            ("--singlepulse", singlepulse),
        ];
        own.extend(self.beams.settings());
        own.extend(settings(options));
        let inputs = [self.recording.files(), self.also()].concat();
        Ok(Identity::new("search of beams", &inputs, &own, backend)?.with(&self.recording, options))
    }

    /// Returns every input file except the recording.
    pub(super) fn also(&self) -> Vec<PathBuf> {
        let mut also = self.selection.files(&self.trials);
        also.extend(self.orientation.file());
        also
    }

    /// Checks what needs no stream.
    ///
    /// # Errors
    /// [`Error::Parameter`] for an option out of range or not for a stream.
    #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
    pub(crate) fn check(&self) -> Result<()> {
        streams::check(&self.recording.inputs, "INPUT")?;
        self.batch.check_none()?;
        self.beams.check_none()?;
        self.resume.check(&self.recording.inputs)?;
        if self.products.fetch {
            let rule = "cutouts need a recording: `sidereal live record` makes one";
            return Err(Error::parameter("--fetch", "given", rule));
        }
        self.detection.check()
    }

    /// Returns the steps of mitigation, and whether outlying channels are masked.
    pub(super) fn rfi(&self) -> (Rfi, bool) {
        self.selection.cleaning.rfi(Rfi::Auto, self.no_auto_mask)
    }

    /// Returns the options of a search of what was opened.
    ///
    /// # Errors
    /// [`Error::Parameter`] for an option out of range; errors of the files that options name.
    pub(super) fn options(&self, opened: &Opened) -> Result<SearchOptions> {
        self.detection.check()?;
        let (rfi, auto_mask) = self.rfi();
        Ok(SearchOptions {
            snr: self.detection.snr,
            max_width_s: self.detection.max_width,
            baseline_s: self.detection.baseline,
            max_wait_s: self.detection.max_wait.unwrap_or(f64::INFINITY),
            min_band: self.detection.min_band,
            list_absorbed: self.products.list_absorbed,
            max_per_minute: Some(self.detection.max_per_minute).filter(|most| *most > 0),
            ..self.selection.options(opened, &self.trials, rfi, auto_mask)?
        })
    }
}

#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
impl Arguments {
    /// Returns the folder for the folders of live observations.
    pub(crate) fn parent(&self) -> PathBuf {
        self.destination.parent("live")
    }
}

/// Returns whether the recording is a stream that arrives.
pub(super) fn recording_is_live(arguments: &Arguments) -> bool {
    arguments.recording.inputs.iter().any(|path| is_address(path))
}

/// Returns the options of a search of what was opened; those of a live stream have short gulps and waits.
pub(super) fn search_options(
    arguments: &Arguments,
    opened: &Opened,
    backend: &Backend,
) -> Result<SearchOptions> {
    let mut options = arguments.options(opened)?;
    if recording_is_live(arguments) {
        // Candidates must not wait for a long gulp, nor for the longest delay of the plan.
        let which = usize::from(!backend.is_gpu());
        if options.gulp == 0 {
            let times = LIVE_GULP_S[which] / opened.source.header().tsamp_s;
            options.gulp = (times as usize).clamp(16, 1 << 16);
        }
        if arguments.detection.max_wait.is_none() {
            options.max_wait_s = LIVE_WAIT_S[which];
        }
    }
    Ok(options)
}

/// Returns the settings of the detection, by their options.
pub(super) fn settings(options: &SearchOptions) -> [(&'static str, &dyn Debug); 7] {
    [
        ("--snr", &options.snr),
        ("--max-width", &options.max_width_s),
        ("--baseline", &options.baseline_s),
        ("--max-wait", &options.max_wait_s),
        ("--min-band", &options.min_band),
        ("--list-absorbed", &options.list_absorbed),
        ("--max-per-minute", &options.max_per_minute),
    ]
}
